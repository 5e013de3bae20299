/* exp, elu1, relu and the maps on arrays: every float that matters against double precision, the
   worst against long double, lengths, alignments and in-place use. With TEST_SLEEF, SLEEF is a
   second oracle. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef TEST_SLEEF
#include <sleef.h>
enum { WITH_SLEEF = 1 }; /* every float is for the executable without */
#else
enum { WITH_SLEEF = 0 };
#endif

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

typedef linattn_status array_function(const float *x, float *y, size_t n);

static void apply(array_function *function, const float *x, float *y, size_t n)
{
    check_status(function(x, y, n), LINATTN_OK, "%zu floats", n);
}

static void apply_scalar(array_function *function, const float *x, float *y, size_t n)
{
    linattn_isa_select(LINATTN_ISA_SCALAR);
    apply(function, x, y, n);
    linattn_isa_select(test_isa());
}

/* ---- exp over the floats -------------------------------------------------------------------- */

/* The distance between neighbouring floats where x lies, for normal x. */
static double ulp_of(double x)
{
    union {
        double value;
        uint64_t bits;
    } exponent = {fabs(x)};
    exponent.bits &= 0x7FF0000000000000u;
    return exponent.value * (double)FLT_EPSILON;
}

static double ulps_off(float actual, double expected)
{
    return fabs((double)actual - expected) / ulp_of(expected);
}

/* Is y right for e^x? Below FLT_MIN results are zero by definition, above FLT_MAX they are inf; one
   ulp around each border either is right. */
static bool exp_is_right(float x, float y, double *ulps)
{
    *ulps = 0;
    if (float_is_nan(x)) return float_is_nan(y);
    double expected = exp((double)x), edge = (double)FLT_MIN * (double)FLT_EPSILON;
    if (expected < (double)FLT_MIN + edge && float_bits(y) == 0) return true;
    if (expected < (double)FLT_MIN - edge) return false;
    if (expected > (double)FLT_MAX - ulp_of((double)FLT_MAX) && y == test_infinity) return true;
    if (expected > (double)FLT_MAX + ulp_of((double)FLT_MAX) || !float_is_finite(y)) return false;
    *ulps = ulps_off(y, expected);
    return *ulps <= 1;
}

/* The inputs with the largest errors so far, for a second look. */
typedef struct worst {
    float x[64], y[64];
    double ulps[64];
    size_t count, least; /* least: which of them has the smallest error */
} worst;

static void worst_add(worst *w, float x, float y, double ulps)
{
    size_t most = COUNT_OF(w->x);
    if (w->count == most && ulps <= w->ulps[w->least]) return;
    size_t at = w->count < most ? w->count++ : w->least;
    w->x[at] = x;
    w->y[at] = y;
    w->ulps[at] = ulps;
    w->least = 0;
    for (size_t i = 1; i < w->count; i++)
        if (w->ulps[i] < w->ulps[w->least]) w->least = i;
}

static void worst_check(const worst *w)
{
    double largest = 0;
    for (size_t i = 0; i < w->count; i++) {
        long double expected = expl((long double)w->x[i]);
        double ulps = (double)(fabsl((long double)w->y[i] - expected) /
                               (long double)ulp_of((double)expected));
        check(ulps <= 1, "exp(%.9g) = %.9g is %.4f ulp off", (double)w->x[i], (double)w->y[i],
              ulps);
        if (ulps > largest) largest = ulps;
    }
    print_message("exp: %.4f ulp at most\n", largest);
}

/* What is known about the floats seen so far. */
typedef struct sweep {
    worst worst;
    uint64_t hash;  /* of all results */
    float previous; /* the last result */
    bool started;
} sweep;

enum { BLOCK = 4096 };

/* Floats of ascending magnitude: each result is right and, to an ulp, none breaks the order. */
static void check_block(sweep *s, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double ulps, before = (double)s->previous, now = (double)y[i];
        check(exp_is_right(x[i], y[i], &ulps), "exp(%.9g) = %.9g, expected %.9g, %.4f ulp",
              (double)x[i], now, exp((double)x[i]), ulps);
        if (ulps > 0.5) worst_add(&s->worst, x[i], y[i], ulps);
        bool rises = now > before + ulp_of(before), falls = now < before - ulp_of(before);
        check(!s->started || !(x[i] < 0 ? rises : falls), "exp(%.9g) = %.9g after %.9g",
              (double)x[i], now, before);
        s->previous = y[i];
        s->started = true;
        s->hash = (s->hash ^ float_bits(y[i])) * UINT64_C(0x100000001B3); /* as FNV-1a, by words */
    }
}

/* Floats with bits from first up to last, ascending in magnitude. */
static void check_sweep(sweep *s, uint32_t first, uint32_t last, uint32_t step, bool against_scalar)
{
    static float x[BLOCK], y[BLOCK], scalar[BLOCK];
    s->started = false;
    for (uint64_t bits = first; bits <= last;) {
        size_t n = 0;
        for (; n < BLOCK && bits <= last; bits += step) x[n++] = float_from_bits((uint32_t)bits);
        apply(linattn_exp, x, y, n);
        check_block(s, x, y, n);
        if (!against_scalar || test_inexact() || test_isa() == LINATTN_ISA_SCALAR) continue;
        apply_scalar(linattn_exp, x, scalar, n);
        check_same_floats(y, scalar, n, n, "exp from %.9g on", (double)x[0]);
    }
}

#define SIGN 0x80000000u

/* The hash of the results below. Every instruction set has to have this one; to run scalar code
   beside each would take too long. */
static const uint64_t EXPECTED = UINT64_C(0x2b36ee24ab09befb);

/* As check_sweep over every float, but for the hash alone. */
static uint64_t hash_sweep(uint64_t hash, uint32_t first, uint32_t last)
{
    static float x[BLOCK], y[BLOCK];
    for (uint64_t bits = first; bits <= last;) {
        size_t n = 0;
        for (; n < BLOCK && bits <= last; bits++) x[n++] = float_from_bits((uint32_t)bits);
        apply(linattn_exp, x, y, n);
        for (size_t i = 0; i < n; i++) hash = (hash ^ float_bits(y[i])) * UINT64_C(0x100000001B3);
    }
    return hash;
}

/* All floats where e^x is neither 1 to the last bit nor zero nor infinite, and a margin. With
   LINATTN_TEST_HASH=1 their hash is enough, if it is the expected one: the same bits are as near to
   e^x as where another run has looked at each. */
static void every_float_that_matters(void **state)
{
    (void)state;
    sweep s = {.hash = 0};
    bool quick = test_quick() || WITH_SLEEF;
    uint32_t step = quick ? 1009 : 1, tiny = float_bits(0x1p-26f);
    if (!quick && !test_inexact() && getenv("LINATTN_TEST_HASH")) {
        uint64_t hash = hash_sweep(0, tiny, float_bits(89.0f));
        if (hash_sweep(hash, SIGN | tiny, SIGN | float_bits(88.0f)) == EXPECTED) return;
    }
    check_sweep(&s, tiny, float_bits(89.0f), step, quick);
    check_sweep(&s, SIGN | tiny, SIGN | float_bits(88.0f), step, quick);
    worst_check(&s.worst);
    if (quick || test_inexact()) return;
    check(s.hash == EXPECTED, "hash %016" PRIx64 ", expected %016" PRIx64, s.hash, EXPECTED);
}

/* The other floats, more thinly: tiny and denormal ones, and from the borders to infinity. */
static void the_other_floats(void **state)
{
    (void)state;
    sweep s = {.hash = 0};
    uint32_t step = test_quick() ? 65521 : 251;
    for (int sign = 0; sign < 2; sign++) {
        uint32_t bit = sign ? SIGN : 0;
        check_sweep(&s, bit, bit | float_bits(0x1p-26f), step, true);
        check_sweep(&s, bit | float_bits(88.0f), bit | 0x7F800000u, step, true);
    }
}

/* Every float around the places where something changes. */
static void borders(void **state)
{
    (void)state;
    static const float centres[] = {88.7228391f, -87.3365448f, 0.34657359f, -0.34657359f,
                                    0.69314718f, -0.69314718f, 87.9831f,    -103.972f,
                                    -86.6433f,   1.0f,         FLT_MIN,     -FLT_MIN,
                                    0x1p-24f,    -0x1p-24f,    0x1p-25f,    128.0f};
    sweep s = {.hash = 0};
    for (size_t i = 0; i < COUNT_OF(centres); i++) {
        uint32_t bits = float_bits(centres[i]);
        check_sweep(&s, bits - 3000, bits + 3000, 1, true);
    }
    check_sweep(&s, 0, 3000, 1, true);
    check_sweep(&s, SIGN, SIGN + 3000, 1, true);
    check_sweep(&s, float_bits(FLT_MAX) - 3000, float_bits(FLT_MAX) + 1, 1, true);
    check_sweep(&s, float_bits(-FLT_MAX) - 3000, float_bits(-FLT_MAX) + 1, 1, true);
}

static void special_values(void **state)
{
    (void)state;
    const float x[] = {0.0f,
                       -0.0f,
                       test_infinity,
                       -test_infinity,
                       test_nan,
                       -test_nan,
                       float_from_bits(0x7F800001u),
                       1e-45f,
                       -1e-45f};
    const float expected[] = {1, 1, test_infinity, 0, test_nan, test_nan, test_nan, 1, 1};
    /* In each position of a vector, and in a tail. */
    for (size_t at = 0; at < 40; at++)
        for (size_t i = 0; i < COUNT_OF(x); i++) {
            float padded[40], y[40];
            for (size_t e = 0; e < 40; e++) padded[e] = 1;
            padded[at] = x[i];
            apply(linattn_exp, padded, y, 40);
            check(float_same(y[at], expected[i]), "exp(%g) = %g at %zu", (double)x[i],
                  (double)y[at], at);
            for (size_t e = 0; e < 40; e++)
                check(e == at || y[e] == y[at == 0], "element %zu next to %g", e, (double)x[i]);
        }
}

#ifdef TEST_SLEEF
/* Two functions within 1 ulp of e^x differ by 2 ulp at most; where they differ by more, one is
   wrong. */
static void against_sleef(void **state)
{
    (void)state;
    static float x[BLOCK], y[BLOCK];
    uint32_t step = test_quick() ? 9973 : 61;
    for (int sign = 0; sign < 2; sign++) {
        uint64_t bits = float_bits(sign ? -0x1p-26f : 0x1p-26f);
        uint64_t last = float_bits(sign ? -87.33f : 88.72f);
        while (bits <= last) {
            size_t n = 0;
            for (; n < BLOCK && bits <= last; bits += step)
                x[n++] = float_from_bits((uint32_t)bits);
            apply(linattn_exp, x, y, n);
            for (size_t i = 0; i < n; i++) {
                float sleef = Sleef_expf_u10(x[i]);
                check(fabs((double)y[i] - (double)sleef) <= 2 * ulp_of((double)sleef),
                      "exp(%.9g) = %.9g, of SLEEF %.9g", (double)x[i], (double)y[i], (double)sleef);
            }
        }
    }
}
#endif

/* ---- elu1 and relu -------------------------------------------------------------------------- */

/* Below 2^-125, twice FLT_MIN, zero is right, too. */
static void check_elu1(float x, float y)
{
    double ulps;
    if (float_is_nan(x))
        check(float_is_nan(y), "elu1(NaN) = %g", (double)y);
    else if (x < 0 && exp((double)x) < 0x1p-125 && y == 0)
        return;
    else if (x >= 0)
        check(y == x + 1, "elu1(%.9g) = %.9g", (double)x, (double)y);
    else
        check(exp_is_right(x, y, &ulps), "elu1(%.9g) = %.9g", (double)x, (double)y);
}

/* Denormal numbers may be taken for zeros; zeros may have either sign. */
static void check_relu(float x, float y)
{
    if (float_is_nan(x))
        check(float_is_nan(y), "relu(NaN) = %g", (double)y);
    else if (fabsf(x) < FLT_MIN)
        check(y == 0 || y == x, "relu(%g) = %g", (double)x, (double)y);
    else
        check(y == (x > 0 ? x : 0), "relu(%.9g) = %.9g", (double)x, (double)y);
}

static void check_over_floats(array_function *function, void (*check_one)(float x, float y))
{
    static float x[BLOCK], y[BLOCK], scalar[BLOCK];
    uint32_t step = test_quick() ? 65521 : 997;
    for (uint64_t bits = 0; bits <= UINT32_MAX;) {
        size_t n = 0;
        for (; n < BLOCK && bits <= UINT32_MAX; bits += step)
            x[n++] = float_from_bits((uint32_t)bits);
        apply(function, x, y, n);
        for (size_t i = 0; i < n; i++) check_one(x[i], y[i]);
        if (test_inexact()) continue;
        apply_scalar(function, x, scalar, n);
        check_same_floats(y, scalar, n, n, "from %.9g on", (double)x[0]);
    }
}

static void elu1(void **state)
{
    (void)state;
    check_over_floats(linattn_elu1, check_elu1);
    const float x[] = {0.0f, -0.0f, test_infinity, -test_infinity, test_nan, 1e-45f, -1e-45f};
    const float expected[] = {1, 1, test_infinity, 0, test_nan, 1, 1};
    float y[COUNT_OF(x)];
    apply(linattn_elu1, x, y, COUNT_OF(x));
    check_same_floats(y, expected, COUNT_OF(x), COUNT_OF(x), "special values of elu1");
}

static void relu(void **state)
{
    (void)state;
    check_over_floats(linattn_relu, check_relu);
    const float x[] = {0.0f, -0.0f, test_infinity, -test_infinity, test_nan};
    float y[COUNT_OF(x)];
    apply(linattn_relu, x, y, COUNT_OF(x));
    for (size_t i = 0; i < COUNT_OF(x); i++) check_relu(x[i], y[i]);
}

/* ---- Lengths, alignments, in place ---------------------------------------------------------- */

enum { LONGEST = 70, SLACK = 32, PLACE = LONGEST + 2 * SLACK };

static const uint32_t CANARY = 0xDEADBEEFu;

/* Results at every place are those of the single elements; nothing around y is written. */
static void check_placement(array_function *function, const float *x, const float *single, size_t n,
                            size_t x_offset, size_t y_offset)
{
    size_t mark = pool_mark();
    float *from = pool_floats(PLACE), *to = pool_floats(PLACE);
    bool in_place = x_offset == y_offset && n % 2;
    float *target = in_place ? from : to;
    for (size_t i = 0; i < PLACE; i++) from[i] = to[i] = float_from_bits(CANARY);
    memcpy(from + x_offset, x, n * sizeof *x);
    apply(function, from + x_offset, target + y_offset, n);
    for (size_t i = 0; i < PLACE; i++) {
        bool inside = i >= y_offset && i < y_offset + n;
        uint32_t expected = inside ? float_bits(single[i - y_offset]) : CANARY;
        check(float_bits(target[i]) == expected,
              "%zu floats from offset %zu to %zu: element %zd is %08x, expected %08x", n, x_offset,
              y_offset, (ptrdiff_t)(i - y_offset), (unsigned)float_bits(target[i]),
              (unsigned)expected);
    }
    pool_release(mark);
}

static void check_placements(array_function *function)
{
    rng r = {1};
    float x[LONGEST], single[LONGEST];
    rng_fill(&r, x, LONGEST, 8);
    for (size_t i = 0; i < LONGEST; i++) apply(function, x + i, single + i, 1);
    for (size_t n = 0; n <= LONGEST; n += test_quick() && n > 20 ? 7 : 1)
        for (size_t x_offset = 0; x_offset < 16; x_offset++)
            for (size_t y_offset = 0; y_offset < 16; y_offset += test_quick() ? 5 : 1) {
                check_placement(function, x, single, n, x_offset, y_offset);
                if (test_quick()) check_placement(function, x, single, n, x_offset, x_offset);
            }
}

static void every_length_and_alignment(void **state)
{
    (void)state;
    check_placements(linattn_exp);
    check_placements(linattn_elu1);
    check_placements(linattn_relu);
}

/* Operands that end, or begin, at an inaccessible page. */
static void nothing_outside_is_touched(void **state)
{
    (void)state;
    array_function *const functions[] = {linattn_exp, linattn_elu1, linattn_relu};
    for (size_t f = 0; f < COUNT_OF(functions); f++)
        for (size_t n = 0; n <= LONGEST; n++)
            for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++) {
                size_t mark = pool_mark();
                float *x = (float *)pool_take_guarded(n * sizeof(float), (guard)side);
                float *y = (float *)pool_take_guarded(n * sizeof(float), (guard)side);
                apply(functions[f], x, y, n);
                apply(functions[f], x, x, n);
                check_same_floats(x, y, n, n, "in place, %zu floats", n);
                pool_release(mark);
            }
}

/* ---- linattn_map ---------------------------------------------------------------------------- */

static float *run_map(const linattn_config *config, int keys, const float *x, size_t n,
                      bool in_place)
{
    size_t count = n * config->dim_key;
    float *y =
        (float *)pool_take_guarded(count * sizeof(float), n % 2 ? GUARD_AFTER : GUARD_BEFORE);
    if (in_place) memcpy(y, x, count * sizeof *x);
    check_status(linattn_map(config, keys, in_place ? y : x, y, n), LINATTN_OK, "%s",
                 config_name(config));
    return y;
}

static void check_map(const linattn_config *config, int keys, size_t n, rng *r)
{
    size_t dim = config->dim_key, count = n * dim;
    float *x = pool_floats(count);
    rng_fill(r, x, count, 12);
    float *y = run_map(config, keys, x, n, false);
    check_same_floats(run_map(config, keys, x, n, true), y, count, dim, "in place, %s",
                      config_name(config));
    double *expected = pool_doubles(dim);
    double rounding = (config->scale > 0 ? 40 * sqrt((double)config->scale) : 0) + 4;
    if (config->map == LINATTN_MAP_SOFTMAX && !keys) rounding += 24 + 4 * sqrt((double)dim);
    for (size_t t = 0; t < n; t++) {
        oracle_map(config, keys, x + t * dim, expected, NULL);
        for (size_t f = 0; f < dim; f++) {
            double error = fabs((double)y[t * dim + f] - expected[f]);
            check(error <= rounding * (double)FLT_EPSILON / 2 * fabs(expected[f]) + (double)FLT_MIN,
                  "map of %g is %.9g, expected %.9g, keys=%d, %s", (double)x[t * dim + f],
                  (double)y[t * dim + f], expected[f], keys, config_name(config));
        }
    }
    if (test_inexact()) return;
    linattn_isa_select(LINATTN_ISA_SCALAR);
    float *scalar = run_map(config, keys, x, n, false);
    linattn_isa_select(test_isa());
    check_same_floats(y, scalar, count, dim, "keys=%d, %s", keys, config_name(config));
}

static void every_map(void **state)
{
    (void)state;
    static const float scales[] = {0, 0.125f, 9};
    rng r = {2};
    for (int map = 0; map < LINATTN_MAP_FAVOR; map++)
        for (size_t dim = 1; dim <= LONGEST; dim += test_quick() && dim > 20 ? 7 : 1)
            for (int keys = 0; keys < 2; keys++) {
                size_t mark = pool_mark();
                linattn_config config = {.dim_key = dim,
                                         .map = (linattn_feature_map)map,
                                         .scale = scales[rng_below(&r, COUNT_OF(scales))]};
                check_map(&config, keys, rng_below(&r, 6), &r);
                pool_release(mark);
            }
    linattn_config large = {.dim_key = 1000, .map = LINATTN_MAP_SOFTMAX};
    check_map(&large, 0, 3, &r);
}

/* x / sqrt(|x|^2 + 1e-6), of vectors of every length, zero included; in place the same or refused;
   a NaN in its own vector. */
static void unit_map(void **state)
{
    (void)state;
    static const float spreads[] = {0, 1e-30f, 1e-3f, 1, 12, 1e15f, 1e25f, 3e38f};
    rng r = {4};
    enum { N = 3 };
    for (size_t dim = 1; dim <= LONGEST; dim += test_quick() && dim > 20 ? 7 : 1)
        for (size_t i = 0; i < COUNT_OF(spreads); i++) {
            size_t mark = pool_mark(), count = N * dim;
            linattn_config config = {.dim_key = dim, .map = LINATTN_MAP_UNIT};
            float *x = pool_floats(count), *scalar;
            double *expected = pool_doubles(dim), rounding = 6 + 2 * sqrt((double)dim);
            rng_fill(&r, x, count, spreads[i]);
            float *y = run_map(&config, (int)(dim % 2), x, N, false);
            for (size_t t = 0; t < N; t++) {
                oracle_map(&config, true, x + t * dim, expected, NULL);
                for (size_t f = 0; f < dim; f++)
                    check(fabs((double)y[t * dim + f] - expected[f]) <=
                              rounding * (double)FLT_EPSILON / 2 * fabs(expected[f]) +
                                  (double)FLT_MIN,
                          "map of %g is %.9g, expected %.9g, %s", (double)x[t * dim + f],
                          (double)y[t * dim + f], expected[f], config_name(&config));
            }
            linattn_isa_select(LINATTN_ISA_SCALAR);
            scalar = run_map(&config, 0, x, N, false);
            linattn_isa_select(test_isa());
            check_same_floats(y, scalar, count, dim, "%s", config_name(&config));
            float *in_place = (float *)pool_copy(x, count * sizeof *x);
            linattn_status status = linattn_map(&config, 0, in_place, in_place, N);
            check(status == LINATTN_OK || status == LINATTN_ERROR_OVERLAP, "status %d",
                  (int)status);
            check_same_floats(in_place, status == LINATTN_OK ? y : x, count, dim, "in place, %s",
                              config_name(&config));
            x[dim + rng_below(&r, dim)] = test_nan;
            float *spoilt = run_map(&config, 0, x, N, false);
            for (size_t e = 0; e < count; e++)
                check(e / dim == 1 ? float_is_nan(spoilt[e]) : float_same(spoilt[e], y[e]),
                      "element %zu is %g, %s", e, (double)spoilt[e], config_name(&config));
            pool_release(mark);
        }
}

/* On arrays, unlike in the verbs, what overflows is infinite, and a softmax is not. */
static void maps_at_the_ends_of_the_range(void **state)
{
    (void)state;
    const float some[] = {4e5f, -6e5f, 3e38f, -3e38f, -test_infinity, 0};
    static const float scales[] = {0, 0.5f, 3, 1e-6f};
    enum { SOME = COUNT_OF(some), COUNT = 3 * SOME };
    float x[COUNT], y[COUNT], expected[COUNT], one_hot[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        x[i] = some[i % SOME];
        expected[i] = x[i] > 0 ? test_infinity : x[i] < 0 ? 0.0f : 1.0f;
        one_hot[i] = i % SOME == 2 ? 1.0f : 0.0f;
    }
    for (size_t i = 0; i < COUNT_OF(scales); i++) {
        linattn_config config = {.dim_key = SOME, .scale = scales[i]};
        config.map = LINATTN_MAP_EXP;
        check_status(linattn_map(&config, 1, x, y, 3), LINATTN_OK, "exp");
        check_same_floats(y, expected, COUNT, SOME, "%s", config_name(&config));
        config.map = LINATTN_MAP_SOFTMAX;
        check_status(linattn_map(&config, 1, x, y, 3), LINATTN_OK, "softmax of keys");
        check_same_floats(y, expected, COUNT, SOME, "keys, %s", config_name(&config));
        check_status(linattn_map(&config, 0, x, y, 3), LINATTN_OK, "softmax of queries");
        check_same_floats(y, one_hot, COUNT, SOME, "queries, %s", config_name(&config));
    }
}

/* For softmax, too, a NaN stays in its own vector. */
static void nan_in_one_vector(void **state)
{
    (void)state;
    for (int map = 0; map < LINATTN_MAP_FAVOR; map++)
        for (size_t at = 0; at < 3 * 19; at++) {
            float x[3 * 19], clean[3 * 19], y[3 * 19];
            rng r = {3};
            rng_fill(&r, x, 3 * 19, 2);
            linattn_config config = {.dim_key = 19, .map = (linattn_feature_map)map};
            check_status(linattn_map(&config, 0, x, clean, 3), LINATTN_OK, "%s",
                         map_name(config.map));
            x[at] = test_nan;
            check_status(linattn_map(&config, 0, x, y, 3), LINATTN_OK, "%s", map_name(config.map));
            bool whole = map == LINATTN_MAP_SOFTMAX;
            for (size_t i = 0; i < 3 * 19; i++)
                check(i == at || (whole && i / 19 == at / 19) ? float_is_nan(y[i])
                                                              : float_same(y[i], clean[i]),
                      "%s: element %zu is %g, NaN at %zu", map_name(config.map), i, (double)y[i],
                      at);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef TEST_SLEEF
        TEST(against_sleef),
#endif
        TEST(special_values),
        TEST(borders),
        TEST(every_float_that_matters),
        TEST(the_other_floats),
        TEST(elu1),
        TEST(relu),
        TEST(every_length_and_alignment),
        TEST(nothing_outside_is_touched),
        TEST(every_map),
        TEST(unit_map),
        TEST(maps_at_the_ends_of_the_range),
        TEST(nan_in_one_vector),
    };
    test_begin();
    return RUN_TESTS("exp", tests);
}
