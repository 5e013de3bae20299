/* Prints a hash of outputs, the same on every machine, whatever its byte order. Their sums pass
   through denormal numbers, which a program that was linked with -ffast-math flushes to zero, but
   for what linattn does about it; and every call has to leave the floating-point environment as it
   was. With the argument `flush`, flushing has to be on; with `upward`, the program rounds
   upwards. */
#include "linattn.h"

#include <fenv.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEADS = 2, KEY = 11, VALUE = 19, TOKENS = 37, FEATURES = 24 };

static float q[TOKENS * HEADS * KEY], k[TOKENS * KEY], v[TOKENS * VALUE];
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
#elif defined(__x86_64__)
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
    hash_floats(out, sizeof out / sizeof *out);
    to.data = out;
    if (!config.window) {
        failed |= check("update", linattn_update(state, views[1], views[2], TOKENS, NULL), before);
        failed |= check("query", linattn_query(state, views[0], to, TOKENS, NULL), before);
        hash_floats(out, sizeof out / sizeof *out);
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
    hash_floats(out, sizeof out / sizeof *out);
    failed |= check("nystrom",
                    linattn_nystrom(&config, views[0], TOKENS, views[1], views[2], TOKENS,
                                    linattn_output_rows(out), 0, workspace, sizeof workspace, NULL),
                    before);
    hash_floats(out, sizeof out / sizeof *out);
    failed |= check("exp", linattn_exp(k, out, TOKENS * KEY), before);
    hash_floats(out, TOKENS * KEY);
    return failed;
}

int main(int argc, char **argv)
{
    /* Of queries, keys and values. No input is denormal: this program would flush it. */
    static const float scales[][3] = {{0.125f, 0.125f, 0.25f},
                                      {0x1p60f, 0x1p-66f, 0x1p-70f},
                                      {0x1p-60f, 0x1p-70f, 1.0f},
                                      {4.0f, 0x1p-40f, 0x1p-100f}};
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_SUM, LINATTN_NORM_NONE,
                                                     LINATTN_NORM_FEATURE, LINATTN_NORM_LENGTH};
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "flush") == 0 && FLUSH && !(environment() & FLUSH)) {
        printf("nothing is flushed to zero in this program\n");
        return 1;
    }
#ifdef FE_UPWARD
    if (argc > 1 && strcmp(argv[1], "upward") == 0 && fesetround(FE_UPWARD)) {
        printf("this program cannot round upwards\n");
        return 1;
    }
#endif
    failed |=
        check("random_features",
              linattn_random_features(7, LINATTN_RANDOM_ORTHOGONAL, FEATURES, KEY, projection),
              environment());
    hash_floats(projection, FEATURES * KEY);
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
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
            fill(q, sizeof q / sizeof *q, scales[i][0]);
            fill(k, sizeof k / sizeof *k, scales[i][1]);
            fill(v, sizeof v / sizeof *v, scales[i][2]);
            failed |= run_verbs(config);
            if (map == LINATTN_MAP_ELU1) failed |= run_exact(config);
            config.window = 9;
            if (i == 0) failed |= run_verbs(config);
        }
    printf("%016" PRIx64 "\n", hash);
    return failed;
}
