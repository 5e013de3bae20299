/* What is measured on the board, or in its place by qemu with -icount shift=0, where the clock of
   SysTick advances with the instructions: the fixed run, instructions per token, bytes of stack. */
#include "attention.h"
#include "board.h"
#include "golden.h"

enum { LARGEST = 32, CALLS = 64 };

static float q[CALLS * LARGEST], k[CALLS * LARGEST], v[CALLS * LARGEST];
static float out[CALLS * LARGEST], plain_out[CALLS * LARGEST];
static float state[2048], plain_state[LARGEST * (LARGEST + 1)];

/* ---- Printing ------------------------------------------------------------------------------- */

static void print_number(const char *name, uint64_t number, unsigned base)
{
    char text[24], *at = text + sizeof text;
    *--at = 0;
    *--at = '\n';
    do *--at = "0123456789abcdef"[number % base];
    while ((number /= base) || (base == 16 && at > text + sizeof text - 18));
    board_print(name);
    board_print(" ");
    board_print(at);
}

/* ---- Instructions --------------------------------------------------------------------------- */

#define SYSTICK ((volatile uint32_t *)0xe000e010) /* control, reload, current */

static uint32_t ticks_per_million; /* of instructions */

static void start_clock(void)
{
    SYSTICK[1] = 0xffffff;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5; /* on, at the processor's clock */
}

/* It counts 24 bits downwards. */
static uint32_t clock(void) { return 0xffffff - SYSTICK[2]; }
static uint32_t since(uint32_t start) { return (clock() - start) & 0xffffff; }

/* 10 million instructions. */
static void calibrate(void)
{
    uint32_t loops = 5000000;
    const uint32_t start = clock();
    __asm__ volatile("1: subs %0, #1\n\tbne 1b" : "+r"(loops) : : "cc");
    ticks_per_million = since(start) / 10;
}

typedef struct shape { /* one head */
    size_t dim;
    const char *library, *block, *plain, *stack;
} shape;

typedef void step(const shape *s, size_t token);

static void library_step(const shape *s, size_t token)
{
    const size_t at = token * s->dim;
    if (library_causal(state, q + at, k + at, v + at, out + at, 1)) board_exit(3);
}

/* All of them in one call, with the first. */
static void library_block(const shape *s, size_t token)
{
    (void)s;
    if (token == 0 && library_causal(state, q, k, v, out, CALLS)) board_exit(3);
}

static void plain_step(const shape *s, size_t token)
{
    const size_t at = token * s->dim;
    plain_causal(plain_state, q + at, k + at, v + at, plain_out + at, s->dim, s->dim);
}

/* Without this, the empty step is not a call. */
static void __attribute__((noinline)) no_step(const shape *s, size_t token)
{
    __asm__ volatile("" : : "r"(s), "r"(token) : "memory");
}

static uint32_t ticks(const shape *s, step *function)
{
    const uint32_t start = clock();
    for (size_t token = 0; token < CALLS; token++) function(s, token);
    return since(start);
}

static uint32_t per_token(const shape *s, step *function)
{
    const uint64_t difference = ticks(s, function) - ticks(s, no_step);
    return (uint32_t)(difference * 1000000 / ticks_per_million / CALLS);
}

/* ---- Stack ---------------------------------------------------------------------------------- */

#define PAINT 0xa5a5a5a5u

static const shape *painted_shape;
static size_t painted_tokens;

static void __attribute__((noinline)) call(void)
{
    if (library_causal(state, q, k, v, out, painted_tokens)) board_exit(3);
}

/* Bytes below the stack pointer at the call, the call's own arguments among them. */
static uint32_t __attribute__((noinline)) stack_used(const shape *s, size_t tokens)
{
    uint32_t *at = board_stack_limit, *pointer;
    painted_shape = s;
    painted_tokens = tokens;
    __asm__ volatile("mov %0, sp" : "=r"(pointer));
    for (; at < pointer; at++) *(volatile uint32_t *)at = PAINT;
    call();
    for (at = board_stack_limit; *(volatile uint32_t *)at == PAINT; at++) continue;
    return (uint32_t)((pointer - at) * (ptrdiff_t)sizeof *at);
}

/* ---- All of it ------------------------------------------------------------------------------ */

static void empty_states(const shape *s)
{
    const attention a = {1, s->dim, s->dim, 0, 0, 0};
    if (library_init(&a, state, sizeof state)) board_exit(3);
    for (size_t i = 0; i < sizeof plain_state / sizeof *plain_state; i++) plain_state[i] = 0;
}

/* Both have computed the same thing: values reach 62. */
static void compare(const shape *s)
{
    for (size_t i = 0; i < CALLS * s->dim; i++) {
        const float difference = out[i] - plain_out[i];
        if (!(difference < 1e-3f && difference > -1e-3f)) {
            board_print("linattn and the plain loop differ\n");
            board_exit(4);
        }
    }
}

int main(void)
{
    static const shape shapes[] = {{16, "library-16", "block-16", "plain-16", "stack-16"},
                                   {32, "library-32", "block-32", "plain-32", "stack-32"}};
    print_number("golden", golden_hash(), 16);
    start_clock();
    calibrate();
    print_number("ticks-per-million", ticks_per_million, 10);
    golden_fill(q, CALLS * LARGEST, 30, 0.125f);
    golden_fill(k, CALLS * LARGEST, 30, 0.125f);
    golden_fill(v, CALLS * LARGEST, 1000, 0.0625f);
    for (const shape *s = shapes; s < shapes + 2; s++) {
        uint32_t one, many;
        empty_states(s);
        print_number(s->library, per_token(s, library_step), 10);
        print_number(s->plain, per_token(s, plain_step), 10);
        compare(s);
        empty_states(s);
        print_number(s->block, per_token(s, library_block), 10);
        compare(s);
        one = stack_used(s, 1);
        many = stack_used(s, CALLS);
        print_number(s->stack, one > many ? one : many, 10);
    }
    return 0;
}
