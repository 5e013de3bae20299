/* Prints a hash of outputs, the same on every machine, whatever its byte order. Their sums pass
   through denormal numbers, which a program that was linked with -ffast-math flushes to zero, but
   for what linattn does about it; and every call has to leave the floating-point environment as it
   was. Arguments: `flush`, flushing has to be on; `upward`, the program rounds upwards; the name of
   an instruction set, which is selected; `chosen` before that name, linattn has to choose it by
   itself. */
#include "linattn.h"

#include <fenv.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { HEADS = 2, KEY = 11, VALUE = 19, TOKENS = 37, FEATURES = 24 };

static float q[TOKENS * HEADS * KEY], k[TOKENS * KEY], v[TOKENS * VALUE];
static float decay[TOKENS * KEY], beta[TOKENS], reading[TOKENS * KEY], writing[TOKENS * KEY];
static float bonus[KEY], input[TOKENS], sums[KEY * VALUE], counts[KEY];
static float out[TOKENS * HEADS * VALUE], projection[FEATURES * KEY];
static float state[1 << 18], workspace[65536];
static uint64_t hash = UINT64_C(0xCBF29CE484222325);
static uint32_t last_random = 1;

/* ---- The environment ------------------------------------------------------------------------ */

/* What a call must not change, and where flushing is switched on, in it. */
#if defined(__arm__) && defined(__ARM_FP)
#define FLUSH (UINT32_C(1) << 24)
static uint32_t environment(void)
{
    uint32_t now;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(now));
    return now & 0x0fffffff; /* without the flags of the last comparison */
}
#elif defined(__aarch64__)
#define FLUSH (UINT32_C(1) << 24)
static uint32_t environment(void)
{
    uint64_t now;
    __asm__ volatile("mrs %0, fpcr" : "=r"(now));
    return (uint32_t)now;
}
#elif defined(__SSE__) && !defined(__TINYC__)
#define FLUSH UINT32_C(0x8000)
static uint32_t environment(void)
{
    uint32_t now;
    __asm__ volatile("stmxcsr %0" : "=m"(now));
    return now;
}
#elif defined(__mips_hard_float)
#define FLUSH (UINT32_C(1) << 24)
static uint32_t environment(void)
{
    uint32_t now;
    __asm__ volatile("cfc1 %0, $31" : "=r"(now));
    return now;
}
#elif defined(__riscv_flen)
#define FLUSH UINT32_C(0) /* there is none */
static uint32_t environment(void)
{
    size_t now;
    __asm__ volatile("frcsr %0" : "=r"(now));
    return (uint32_t)now;
}
#elif defined(__s390x__)
#define FLUSH UINT32_C(0)
static uint32_t environment(void)
{
    uint32_t now;
    __asm__ volatile("efpc %0" : "=d"(now));
    return now;
}
#elif defined(__powerpc__)
#define FLUSH UINT32_C(0)
static uint32_t environment(void)
{
    double in_register;
    uint64_t now;
    __asm__ volatile("mffs %0" : "=f"(in_register));
    memcpy(&now, &in_register, sizeof now);
    return (uint32_t)now;
}
#else
#define FLUSH UINT32_C(0)
static uint32_t environment(void) { return 0; }
#endif

static int check(const char *what, linattn_status status, uint32_t before)
{
    const uint32_t after = environment();
    if (status != LINATTN_OK) printf("%s: %s\n", what, linattn_status_string(status));
    if (after != before)
        printf("%s: the environment was %#lx, is %#lx\n", what, (unsigned long)before,
               (unsigned long)after);
    return status != LINATTN_OK || after != before;
}

/* ---- The run -------------------------------------------------------------------------------- */

/* Integers times a power of two. */
static void fill(float *x, size_t count, float scale)
{
    for (size_t i = 0; i < count; i++) {
        last_random = last_random * 1664525u + 1013904223u;
        x[i] = (float)((int)(last_random >> 16) % 41 - 20) * scale;
    }
}

/* FNV-1a over numbers rather than bytes. */
static void hash_floats(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001B3);
    }
}

static int run_verbs(linattn_config config)
{
    int failed = 0;
    uint32_t before = environment();
    linattn_view views[3] = {linattn_rows(q), linattn_rows(k), linattn_rows(v)}, rest[3];
    linattn_output to = linattn_output_rows(out);
    memset(out, 0, sizeof out);
    failed |= check("init", linattn_state_init(&config, state, sizeof state), before);
    failed |=
        check("causal", linattn_causal(state, views[0], views[1], views[2], to, 1, NULL), before);
    rest[0] = linattn_rows(q + HEADS * KEY);
    rest[1] = linattn_rows(k + KEY);
    rest[2] = linattn_rows(v + VALUE);
    to.data += HEADS * VALUE;
    failed |= check("causal",
                    linattn_causal(state, rest[0], rest[1], rest[2], to, TOKENS - 1, NULL), before);
    hash_floats(out, COUNT_OF(out));
    to.data = out;
    if (!config.window) {
        failed |= check("update", linattn_update(state, views[1], views[2], TOKENS, NULL), before);
        failed |= check("query", linattn_query(state, views[0], to, TOKENS, NULL), before);
        hash_floats(out, COUNT_OF(out));
    }
    return failed;
}

static int run_exact(linattn_config config)
{
    uint32_t before = environment();
    int failed;
    linattn_view views[3] = {linattn_rows(q), linattn_rows(k), linattn_rows(v)};
    failed = check("softmax",
                   linattn_softmax(&config, views[0], TOKENS, views[1], views[2], TOKENS,
                                   linattn_output_rows(out), 1, workspace, sizeof workspace, NULL),
                   before);
    hash_floats(out, COUNT_OF(out));
    failed |= check("nystrom",
                    linattn_nystrom(&config, views[0], TOKENS, views[1], views[2], TOKENS,
                                    linattn_output_rows(out), 0, workspace, sizeof workspace, NULL),
                    before);
    hash_floats(out, COUNT_OF(out));
    failed |= check("exp", linattn_exp(k, out, TOKENS * KEY), before);
    hash_floats(out, TOKENS * KEY);
    return failed;
}

/* Every map, without and with a window. */
static int run_maps(void)
{
    /* Of queries, keys and values. No input is denormal: this program would flush it. */
    static const float scales[][3] = {{0.125f, 0.125f, 0.25f},
                                      {0x1p60f, 0x1p-66f, 0x1p-70f},
                                      {0x1p-60f, 0x1p-70f, 1.0f},
                                      {4.0f, 0x1p-40f, 0x1p-100f}};
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_SUM, LINATTN_NORM_NONE,
                                                     LINATTN_NORM_FEATURE, LINATTN_NORM_LENGTH};
    int failed = 0;
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (size_t i = 0; i < COUNT_OF(scales); i++) {
            linattn_config config = {.heads = HEADS,
                                     .kv_heads = 1,
                                     .dim_key = KEY,
                                     .dim_value = VALUE,
                                     .map = (linattn_feature_map)map,
                                     .normaliser = normalisers[i],
                                     .features = FEATURES,
                                     .projection = projection,
                                     .landmarks = 8};
            if (i % 2 == 0) config.scale = 0.3125f;
            fill(q, COUNT_OF(q), scales[i][0]);
            fill(k, COUNT_OF(k), scales[i][1]);
            fill(v, COUNT_OF(v), scales[i][2]);
            failed |= run_verbs(config);
            if (map == LINATTN_MAP_ELU1) failed |= run_exact(config);
            config.window = 9;
            if (i == 0) failed |= run_verbs(config);
        }
    return failed;
}

/* How a rule is told of its gates. */
typedef struct form {
    linattn_rule rule;
    int per_feature, log;
} form;

static void fill_gates(const form *f)
{
    fill(decay, COUNT_OF(decay), 0x1p-6f);
    fill(beta, COUNT_OF(beta), 0x1p-5f);
    fill(reading, COUNT_OF(reading), 0x1p-7f);
    fill(writing, COUNT_OF(writing), 0x1p-7f);
    fill(bonus, COUNT_OF(bonus), 0.125f);
    fill(input, COUNT_OF(input), 4.0f);
    for (size_t i = 0; i < COUNT_OF(decay); i++) decay[i] += f->log ? -0.3125f : 0.6875f;
    for (size_t i = 0; i < COUNT_OF(beta); i++) beta[i] += 1;
}

static linattn_gates gates_from(const form *f, size_t token)
{
    linattn_gates gates = {.decay_per_feature = f->per_feature, .decay_log = f->log};
    if (f->rule != LINATTN_RULE_DELTA)
        gates.decay = linattn_rows(decay + token * (f->per_feature ? KEY : 1));
    if (f->rule == LINATTN_RULE_DELTA || f->rule == LINATTN_RULE_GATED_DELTA)
        gates.beta = linattn_rows(beta + token);
    if (f->rule == LINATTN_RULE_GENERAL) {
        gates.read = linattn_rows(reading + token * KEY);
        gates.write = linattn_rows(writing + token * KEY);
    }
    if (f->rule == LINATTN_RULE_GATED && f->per_feature) gates.bonus = linattn_rows(bonus);
    if (f->rule == LINATTN_RULE_MLSTM) gates.input = linattn_rows(input + token);
    return gates;
}

/* One token, then the others, and the sums that they leave. */
static int run_rule(const form *f, linattn_config config)
{
    static const size_t from[] = {0, 1}, count[] = {1, TOKENS - 1};
    int failed;
    uint32_t before = environment();
    config.rule = f->rule;
    failed = check("init", linattn_state_init(&config, state, sizeof state), before);
    for (size_t i = 0; i < COUNT_OF(from); i++) {
        linattn_gates gates = gates_from(f, from[i]);
        failed |= check("recurrent",
                        linattn_recurrent(state, linattn_rows(q + from[i] * HEADS * KEY),
                                          linattn_rows(k + from[i] * KEY),
                                          linattn_rows(v + from[i] * VALUE), &gates,
                                          linattn_output_rows(out + from[i] * HEADS * VALUE),
                                          count[i], NULL),
                        before);
    }
    hash_floats(out, COUNT_OF(out));
    failed |= check("export", linattn_state_export(state, 0, 0, sums, counts), before);
    hash_floats(sums, COUNT_OF(sums));
    hash_floats(counts, COUNT_OF(counts));
    return failed;
}

/* Every rule, on keys no longer than 1. */
static int run_rules(void)
{
    static const form forms[] = {{LINATTN_RULE_GATED, 0, 0},       {LINATTN_RULE_GATED, 1, 1},
                                 {LINATTN_RULE_DELTA, 0, 0},       {LINATTN_RULE_GATED_DELTA, 0, 1},
                                 {LINATTN_RULE_GATED_DELTA, 1, 0}, {LINATTN_RULE_GENERAL, 1, 0},
                                 {LINATTN_RULE_MLSTM, 0, 1}};
    static const linattn_feature_map maps[] = {LINATTN_MAP_UNIT, LINATTN_MAP_IDENTITY};
    static const float scales[] = {1, 0x1p-70f, 0x1p-110f}; /* of values */
    int failed = 0;
    for (size_t i = 0; i < COUNT_OF(forms) * COUNT_OF(maps) * COUNT_OF(scales); i++) {
        const form *f = &forms[i % COUNT_OF(forms)];
        linattn_config config = {.heads = HEADS,
                                 .kv_heads = 1,
                                 .dim_key = KEY,
                                 .dim_value = VALUE,
                                 .map = maps[i / COUNT_OF(forms) % COUNT_OF(maps)]};
        fill(q, COUNT_OF(q), 0.125f);
        fill(k, COUNT_OF(k), 0x1p-7f);
        fill(v, COUNT_OF(v), scales[i % COUNT_OF(scales)]);
        fill_gates(f);
        failed |= run_rule(f, config);
    }
    return failed;
}

/* ---- What the arguments ask for ------------------------------------------------------------- */

static int is_flushed(void)
{
    if (!FLUSH || environment() & FLUSH) return 1;
    printf("nothing is flushed to zero in this program\n");
    return 0;
}

static int round_upwards(void)
{
#ifdef FE_UPWARD
    if (fesetround(FE_UPWARD) == 0) return 1;
#endif
    printf("this program cannot round upwards\n");
    return 0;
}

static int is_chosen(const char *name)
{
    const char *chosen = linattn_isa_name(linattn_isa_active());
    if (strcmp(chosen, name) == 0) return 1;
    printf("%s was chosen\n", chosen);
    return 0;
}

static int select_isa(const char *name)
{
    for (int isa = 0; isa < LINATTN_ISA_COUNT; isa++)
        if (strcmp(name, linattn_isa_name((linattn_isa)isa)) == 0)
            return linattn_isa_select((linattn_isa)isa) == LINATTN_OK;
    printf("%s is not an instruction set\n", name);
    return 0;
}

static int prepare(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int done = strcmp(argv[i], "flush") == 0    ? is_flushed()
                   : strcmp(argv[i], "upward") == 0 ? round_upwards()
                   : strcmp(argv[i], "chosen") == 0 ? ++i < argc && is_chosen(argv[i])
                                                    : select_isa(argv[i]);
        if (!done) return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    int failed;
    if (!prepare(argc, argv)) return 1;
    failed = check("random_features",
                   linattn_random_features(7, LINATTN_RANDOM_ORTHOGONAL, FEATURES, KEY, projection),
                   environment());
    hash_floats(projection, FEATURES * KEY);
    failed |= run_maps();
    failed |= run_rules();
    printf("%08lx%08lx\n", (unsigned long)(hash >> 32), (unsigned long)(hash & 0xffffffffu));
    return failed;
}
