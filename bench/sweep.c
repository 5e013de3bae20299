/* What tools/sweep compiles once for every value that it tries: the library for the instruction set
   that the compiler's flags allow, and nothing that takes long to compile beside it.

       sweep check           a hash of the results of each of many problems: no value may change it
       sweep time VERB...    ns per token and head of each verb, shape by shape */
#define _POSIX_C_SOURCE 199309L
#define LINATTN_IMPLEMENTATION
#define LINATTN_STATIC
#define LINATTN_NO_DISPATCH
#define LINATTN_NO_FEATURES
#define LINATTN_NO_WINDOW
#include "linattn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct shape {
    size_t d, dv; /* lengths of a key and of a value */
} shape;

/* Operands of n tokens, dense, and memory for a state and for what verbs need. */
typedef struct problem {
    linattn_config config;
    size_t n;
    float *q, *k, *v, *out;
    void *state, *workspace;
    size_t workspace_bytes, out_floats;
} problem;

static void check(linattn_status status)
{
    if (status == LINATTN_OK) return;
    fprintf(stderr, "sweep: %s\n", linattn_status_string(status));
    exit(1);
}

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory) return memory;
    fprintf(stderr, "sweep: not enough memory\n");
    exit(1);
}

/* The same numbers in every run, between -size and size. */
static float *numbers(size_t count, float size)
{
    static uint32_t x = 1;
    float *to = take(count * sizeof *to);
    for (size_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        to[i] = size * ((float)(x >> 8) / 8388608.0f - 1.0f);
    }
    return to;
}

static void empty(const problem *p)
{
    check(linattn_state_init(&p->config, p->state, linattn_state_size(&p->config)));
}

static problem problem_of(linattn_config config, size_t n, float size)
{
    const size_t kv_heads = config.kv_heads ? config.kv_heads : config.heads;
    problem p = {.config = config, .n = n, .out_floats = n * config.heads * config.dim_value};
    const size_t exact = linattn_workspace_size(&config, LINATTN_WORKSPACE_SOFTMAX, NULL);
    const size_t nystrom = linattn_workspace_size(&config, LINATTN_WORKSPACE_NYSTROM, NULL);
    p.q = numbers(n * config.heads * config.dim_key, size);
    p.k = numbers(n * kv_heads * config.dim_key, size);
    p.v = numbers(n * kv_heads * config.dim_value, 1.0f);
    p.out = numbers(p.out_floats, 0.0f);
    p.workspace_bytes = exact > nystrom ? exact : nystrom;
    p.workspace = take(p.workspace_bytes);
    p.state = take(linattn_state_size(&config));
    empty(&p);
    return p;
}

static void problem_end(problem *p)
{
    void *const blocks[] = {p->q, p->k, p->v, p->out, p->workspace, p->state};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) free(blocks[i]);
}

/* ---- The verbs ------------------------------------------------------------------------------ */

static void update(const problem *p)
{
    check(linattn_update(p->state, linattn_rows(p->k), linattn_rows(p->v), p->n, NULL));
}

static void query(const problem *p)
{
    check(linattn_query(p->state, linattn_rows(p->q), linattn_output_rows(p->out), p->n, NULL));
}

static void causal(const problem *p)
{
    check(linattn_causal(p->state, linattn_rows(p->q), linattn_rows(p->k), linattn_rows(p->v),
                         linattn_output_rows(p->out), p->n, NULL));
}

static void exact_as(const problem *p, int is_causal)
{
    check(linattn_softmax(&p->config, linattn_rows(p->q), p->n, linattn_rows(p->k),
                          linattn_rows(p->v), p->n, linattn_output_rows(p->out), is_causal,
                          p->workspace, p->workspace_bytes, NULL));
}

static void exact(const problem *p) { exact_as(p, 1); }

static void nystrom(const problem *p)
{
    check(linattn_nystrom(&p->config, linattn_rows(p->q), p->n, linattn_rows(p->k),
                          linattn_rows(p->v), p->n, linattn_output_rows(p->out), 0, p->workspace,
                          p->workspace_bytes, NULL));
}

typedef struct verb {
    const char *name;
    void (*run)(const problem *p);
    size_t n, heads;
} verb;

static const verb verbs[] = {
    {"update", update, 1024, 1}, {"query", query, 1024, 1}, {"causal", causal, 1024, 1},
    {"decode", causal, 1, 8},    {"exact", exact, 512, 1},  {"nystrom", nystrom, 512, 1},
};

enum { VERBS = sizeof verbs / sizeof verbs[0] };

/* ---- check ---------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t h, const problem *p)
{
    const unsigned char *bytes = (const unsigned char *)p->out;
    for (size_t i = 0; i < p->out_floats * sizeof *p->out; i++)
        h = (h ^ bytes[i]) * UINT64_C(1099511628211); /* FNV-1a */
    return h;
}

/* Everything that reads or writes a state: whole blocks, their ends, and single tokens. */
static uint64_t hash_linear(const problem *p)
{
    problem one = *p;
    uint64_t h = UINT64_C(14695981039346656037);
    one.n = 1;
    causal(p);
    h = hash(h, p);
    for (int i = 0; i < 3; i++) causal(&one);
    h = hash(h, p);
    query(&one);
    query(p);
    h = hash(h, p);
    empty(p);
    update(p);
    query(p);
    return hash(h, p);
}

static uint64_t hash_exact(const problem *p)
{
    uint64_t h = UINT64_C(14695981039346656037);
    exact_as(p, 1);
    h = hash(h, p);
    exact_as(p, 0);
    h = hash(h, p);
    nystrom(p);
    return hash(h, p);
}

static void check_shape(shape x, size_t heads)
{
    static const char *const maps[] = {"elu1", "identity", "relu", "exp", "softmax"};
    linattn_config config = {
        .heads = heads, .kv_heads = 1, .dim_key = x.d, .dim_value = x.dv, .landmarks = 23};
    for (int map = 0; map <= LINATTN_MAP_SOFTMAX; map++) {
        problem p;
        config.map = (linattn_feature_map)map;
        p = problem_of(config, 157, 4.0f);
        /* one masked token; the identity has none */
        for (size_t f = 0; f < x.d && map != LINATTN_MAP_IDENTITY; f++)
            p.k[41 * x.d + f] = -INFINITY;
        printf("%s %zux%zu/%zu %016" PRIx64 "\n", maps[map], x.d, x.dv, heads, hash_linear(&p));
        if (map == LINATTN_MAP_ELU1)
            printf("exact %zux%zu/%zu %016" PRIx64 "\n", x.d, x.dv, heads, hash_exact(&p));
        problem_end(&p);
    }
}

static void check_all(void)
{
    static const shape shapes[] = {{32, 32}, {64, 64},   {128, 128}, {256, 64},
                                   {17, 23}, {100, 100}, {40, 72},   {5, 200}};
    printf("%s\n", linattn_isa_name(linattn_isa_active()));
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_shape(shapes[i], 1);
        check_shape(shapes[i], 3);
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Of the processor, so that a machine that is shared may stop this process. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double calls_time(const verb *subject, const problem *p, size_t calls)
{
    const double begin = now();
    for (size_t i = 0; i < calls; i++) subject->run(p);
    return (now() - begin) / (double)calls;
}

/* The fastest of a few samples: what disturbs only adds. */
static double call_time(const verb *subject, const problem *p)
{
    enum { SAMPLES = 8 };
    const double sample = 1e-3;
    double best = calls_time(subject, p, 2);
    const size_t calls = best < sample ? (size_t)(sample / best) : 1;
    for (int i = 0; i < SAMPLES; i++) best = fmin(best, calls_time(subject, p, calls));
    return best;
}

static void time_verb(const verb *subject)
{
    static const shape shapes[] = {{32, 32}, {64, 64}, {128, 128}, {256, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape x = shapes[i];
        const linattn_config config = {.heads = subject->heads, .dim_key = x.d, .dim_value = x.dv};
        problem p = problem_of(config, subject->n, 1.0f);
        const double ns = 1e9 * call_time(subject, &p) / (double)(subject->n * subject->heads);
        printf("%s (%zu,%zu) %.3f\n", subject->name, x.d, x.dv, ns);
        problem_end(&p);
    }
}

static const verb *verb_of(const char *name)
{
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    fprintf(stderr, "sweep: no verb %s\n", name);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "check") == 0) {
        check_all();
    } else if (argc > 2 && strcmp(argv[1], "time") == 0) {
        for (int i = 2; i < argc; i++) verb_of(argv[i]);
        for (int i = 2; i < argc; i++) time_verb(verb_of(argv[i]));
    } else {
        fprintf(stderr, "usage: sweep check | sweep time VERB...\n");
        return 1;
    }
    return 0;
}
