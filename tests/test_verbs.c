/* Update and query, causal, bidirectional and merge against the formulas in double precision, for
   every map, every normaliser, odd shapes and windows; the features themselves. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const size_t lengths[] = {1,  2,  3,  5,   23,  24,  25,  26, 47,
                                 48, 49, 50, 127, 128, 129, 130, 300};

/* A length, drawn at random, for which the oracle's cost, and some of the library's, stay below
   `limit` operations. An exponential counts as sixteen. */
static size_t draw_length(rng *r, const linattn_config *config, size_t others, double limit)
{
    double m = (double)config_features(config), dv = (double)config->dim_value;
    double pair = m * (map_is_exponential(config->map) ? 16 : 1) + dv, token = m * dv / 4;
    if (config->normaliser == LINATTN_NORM_FEATURE) pair += m * dv;
    if (map_is_favor(config->map)) token += m * (double)config->dim_key * 8;
    limit /= (double)config->heads;
    for (int attempt = 0; attempt < 20; attempt++) {
        size_t n = rng_pick(r, lengths, COUNT_OF(lengths));
        double pairs = (double)(others > 1 ? n * others : n * n);
        if (pairs * pair + (double)(n + others) * token <= limit) return n;
    }
    return 1;
}

/* The sum over one pass, and over two merged states. */
static void check_unordered(const problem *p)
{
    oracle expected = oracle_linear(p, false);
    void *whole = run_init(&p->config);
    run_update(p, whole);
    check_close(p, "update and query", run_query(p, whole), p->n_q, expected, rounding_linear(p));
    check_close(p, "bidirectional", run_bidirectional(p, NULL), p->n_q, expected,
                rounding_linear(p));

    void *merged = run_slice(p, 0, p->n_k / 3), *rest = run_slice(p, p->n_k / 3, p->n_k);
    check_status(linattn_merge(merged, rest), LINATTN_OK, "%s", problem_name(p));
    check(linattn_state_tokens(merged) == p->n_k, "%s", problem_name(p));
    check_close(p, "merge and query", run_query(p, merged), p->n_q, expected, rounding_linear(p));
}

static void check_causal(const problem *p)
{
    oracle expected = oracle_linear(p, true);
    void *state = run_init(&p->config);
    float *out = run_causal(p, state);
    check(linattn_state_tokens(state) == p->n_k, "%s", problem_name(p));
    check_close(p, "causal", out, p->n_q, expected, rounding_linear(p));
}

static void check_one(rng *r, const linattn_config *config, double limit)
{
    size_t mark = pool_mark();
    size_t n = draw_length(r, config, 1, limit);
    problem causal = problem_new(*config, n, n, r, 2);
    check_causal(&causal);
    causal.config.precision = LINATTN_PRECISION_COMPENSATED;
    if (!causal.config.window && n <= 300) check_causal(&causal);
    size_t queries = rng_below(r, 8) ? 1 + rng_below(r, 9) : 27 + rng_below(r, 30);
    n = draw_length(r, config, queries, limit);
    problem unordered = problem_new(*config, queries, n, r, 2);
    check_unordered(&unordered);
    unordered.config.precision = LINATTN_PRECISION_COMPENSATED;
    if (!unordered.config.window && n <= 300) check_unordered(&unordered);
    pool_release(mark);
}

/* The maps that have fields of their own see a third of the dimensions: their features are odd
   numbers whatever the dimension is. */
static void check_map(int map)
{
    rng r = {1000u + (uint64_t)map};
    bool fields = map_has_fields((linattn_feature_map)map);
    size_t step = test_quick() || fields ? 3 : 1, most = test_quick() ? 500 : 3500;
    double limit = test_quick() ? 5e4 : fields ? 1e6 : 2e6;
    if (test_quick() && fields) step = 9;
    for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++)
        for (size_t i = rng_below(&r, step); i < ODD_DIMS; i += step) {
            linattn_config config = config_draw(&r, map, normaliser, odd_dims[i], most);
            check_one(&r, &config, limit);
        }
}

static void elu1(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_ELU1);
}

static void identity(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_IDENTITY);
}

static void relu(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_RELU);
}

static void exponential(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_EXP);
}

static void softmax(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_SOFTMAX);
}

static void favor(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_FAVOR);
}

static void favor_simplified(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_FAVOR_SIMPLIFIED);
}

static void favor_hyperbolic(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_FAVOR_HYPERBOLIC);
}

static void taylor(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_TAYLOR);
}

static void expdef(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_EXPDEF);
}

static void unit(void **state)
{
    (void)state;
    check_map(LINATTN_MAP_UNIT);
}

/* Every degree, with the few dimensions that keep the features few, and their smallest sets. */
static void degrees(void **state)
{
    (void)state;
    static const size_t widest[] = {0, 40, 40, 20, 11, 8, 6, 6, 5};
    rng r = {8};
    for (int map = LINATTN_MAP_TAYLOR; map <= LINATTN_MAP_EXPDEF; map++)
        for (size_t degree = 1; degree <= 8; degree++)
            for (size_t i = 0; i < (test_quick() ? 2 : 4); i++) {
                int normaliser = 1 + (int)rng_below(&r, LINATTN_NORM_COUNT - 1);
                size_t dim = i ? 1 + rng_below(&r, widest[degree]) : 1;
                linattn_config config = config_draw(&r, map, normaliser, dim, 1);
                config.degree = degree;
                check_one(&r, &config, test_quick() ? 5e4 : 1e6);
            }
}

/* Dimensions that fill several blocks of features, with every map. */
static void large_dimensions(void **state)
{
    (void)state;
    static const size_t large[][2] = {{1024, 64},          {64, 1024}, {1023, 33},
                                      {1025, 1},           {1, 1025},  {2, LINATTN_MAX_DIM},
                                      {LINATTN_MAX_DIM, 2}};
    rng r = {2};
    size_t count = test_quick() ? 3 : COUNT_OF(large);
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (size_t i = 0; i < count; i++) {
            if (map_has_fields((linattn_feature_map)map)) continue;
            linattn_config config = {.heads = 2,
                                     .kv_heads = 1,
                                     .dim_key = large[i][0],
                                     .dim_value = large[i][1],
                                     .map = (linattn_feature_map)map};
            check_one(&r, &config, test_quick() ? 2e4 : 2e6);
        }
}

/* Many features of few coordinates, few of many. */
static void many_features(void **state)
{
    (void)state;
    static const linattn_config large[] = {
        {.dim_key = 1024, .dim_value = 64, .map = LINATTN_MAP_FAVOR, .features = 33},
        {.dim_key = 5, .dim_value = 9, .map = LINATTN_MAP_FAVOR, .features = 3001},
        {.dim_key = LINATTN_MAX_DIM, .dim_value = 2, .map = LINATTN_MAP_FAVOR, .features = 3},
        {.dim_key = 64, .dim_value = 130, .map = LINATTN_MAP_FAVOR_SIMPLIFIED, .features = 1000},
        {.dim_key = 33, .dim_value = 257, .map = LINATTN_MAP_FAVOR_HYPERBOLIC, .features = 515},
        {.dim_key = 2, .dim_value = LINATTN_MAX_DIM, .map = LINATTN_MAP_FAVOR, .features = 5},
        {.dim_key = 100, .dim_value = 33, .map = LINATTN_MAP_TAYLOR, .degree = 2},
        {.dim_key = 32, .dim_value = 9, .map = LINATTN_MAP_TAYLOR, .degree = 2}, /* last picked */
        {.dim_key = 33, .dim_value = 9, .map = LINATTN_MAP_EXPDEF, .degree = 2}, /* first not */
        {.dim_key = 6, .dim_value = 17, .map = LINATTN_MAP_TAYLOR, .degree = 8},
        {.dim_key = LINATTN_MAX_DIM, .dim_value = 1, .map = LINATTN_MAP_EXPDEF, .degree = 1},
        {.dim_key = 20, .dim_value = 70, .map = LINATTN_MAP_EXPDEF, .degree = 4},
    };
    rng r = {9};
    for (size_t i = 0; i < COUNT_OF(large); i++) {
        linattn_config config = config_resolved(large[i]);
        double size = (double)config_features(&config) * (double)config.dim_value;
        if (test_quick() && size > 3e4) continue;
        check_one(&r, &config, 1e6);
    }
}

/* Relative to the norm of the output, for the maps whose denominators do not cancel. */
static void relative_error_in_the_norm(void **state)
{
    (void)state;
    rng r = {3};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            bool divides = normaliser == LINATTN_NORM_FEATURE || normaliser == LINATTN_NORM_SUM;
            if (divides && map_has_signs((linattn_feature_map)map)) continue;
            size_t mark = pool_mark();
            bool fields = map_has_fields((linattn_feature_map)map);
            linattn_config config = {.heads = fields ? 2 : 4,
                                     .kv_heads = fields ? 1 : 2,
                                     .dim_key = 37,
                                     .dim_value = 29,
                                     .map = (linattn_feature_map)map,
                                     .normaliser = (linattn_normaliser)normaliser,
                                     .features = 50};
            size_t n = test_quick() || fields ? 40 : 160;
            problem p = problem_new(config, n, n, &r, 3);
            size_t count = n * output_width(&p);
            double error =
                norm_error(run_causal(&p, run_init(&p.config)), oracle_linear(&p, true), count);
            check(error < 1e-5, "causal: %g, %s", error, problem_name(&p));
            error = norm_error(run_bidirectional(&p, NULL), oracle_linear(&p, false), count);
            check(error < 1e-5, "bidirectional: %g, %s", error, problem_name(&p));
            pool_release(mark);
        }
}

/* Nothing seen, nothing to divide by: zeros, and not negative ones. */
static void check_zeros(const problem *p, const float *out, const char *what)
{
    for (size_t i = 0; i < p->n_q * output_width(p); i++)
        check(float_bits(out[i]) == 0, "%s: element %zu is %g, %s", what, i, (double)out[i],
              problem_name(p));
}

static void empty_denominators_give_zeros(void **state)
{
    (void)state;
    rng r = {4};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            size_t mark = pool_mark();
            linattn_config config = config_draw(&r, map, normaliser, 13, 600);
            config.epsilon = 0;
            problem p = problem_new(config, 5, 0, &r, 2);
            check_zeros(&p, run_query(&p, run_init(&p.config)), "an empty state");
            check_zeros(&p, run_bidirectional(&p, NULL), "no keys");
            if (map_masks(config.map)) {
                problem masked = problem_new(config, 5, 5, &r, 2);
                for (size_t i = 0; i < 5 * key_width(&p); i++) masked.k[i] = -test_infinity;
                check_zeros(&masked, run_causal(&masked, run_init(&p.config)), "only masked keys");
                check_zeros(&masked, run_bidirectional(&masked, NULL), "only masked keys");
            }
            pool_release(mark);
        }
}

/* Where the denominator vanishes for some rows or features only. */
static void vanishing_relu(void **state)
{
    (void)state;
    rng r = {5};
    for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++) {
        linattn_config config = {.heads = 2,
                                 .dim_key = 21,
                                 .dim_value = 19,
                                 .map = LINATTN_MAP_RELU,
                                 .normaliser = (linattn_normaliser)normaliser};
        problem p = problem_new(config, 12, 12, &r, 1);
        for (size_t i = 0; i < 12 * query_width(&p); i++) {
            if (i / query_width(&p) % 3 == 0) p.q[i] = -1;
            if (i % 21 >= 17 || i / key_width(&p) < 4) p.k[i] = -1;
        }
        check_causal(&p);
        check_unordered(&p);
    }
}

/* e^x below FLT_MIN is zero by definition: a row of such features has a denominator of zero. */
static void features_below_the_smallest_float(void **state)
{
    (void)state;
    rng r = {6};
    linattn_config config = {.dim_key = 11, .dim_value = 7};
    problem p = problem_new(config, 4, 9, &r, 1);
    for (size_t i = 0; i < 4 * query_width(&p); i++) p.q[i] = -200;
    void *memory = run_init(&p.config);
    run_update(&p, memory);
    check_zeros(&p, run_query(&p, memory), "queries that map to zero");
}

/* ---- Windows -------------------------------------------------------------------------------- */

static void check_window(const problem *p)
{
    oracle expected = oracle_linear(p, true);
    void *state = run_init(&p->config);
    float *out = run_causal(p, state);
    check(linattn_state_tokens(state) == p->n_k, "%s", problem_name(p));
    check_close(p, "causal", out, p->n_q, expected, rounding_linear(p));
    check_close(p, "bidirectional", run_bidirectional(p, NULL), p->n_q, oracle_linear(p, false),
                rounding_linear(p));
}

/* Shorter and longer than the sequence, and than whatever is taken at a time; masked keys keep
   their place in a window. */
static void windows(void **state)
{
    (void)state;
    rng r = {10};
    size_t repeats = test_quick() ? 1 : 5;
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++)
            for (size_t i = 0; i < repeats; i++) {
                size_t mark = pool_mark();
                size_t dim = rng_pick(&r, odd_dims, i ? 20 : ODD_DIMS);
                linattn_config config = config_draw(&r, map, normaliser, dim, 200);
                config.window = window_draw(&r, 200);
                size_t n = draw_length(&r, &config, 1, test_quick() ? 5e4 : 2e6);
                problem p = problem_new(config, n, n, &r, 2);
                for (size_t j = 0; j < n * p.config.kv_heads; j++)
                    for (size_t f = 0; i % 2 && map_masks(config.map) && j % 7 < 3 && f < dim; f++)
                        p.k[j * dim + f] = -test_infinity;
                check_window(&p);
                pool_release(mark);
            }
}

/* Long enough for many blocks of any window. */
static void long_windows(void **state)
{
    (void)state;
    static const size_t widths[] = {1, 2, 3, 5, 8, 16, 17, 33, 64, 100, 200, 257, 1000};
    rng r = {11};
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        size_t mark = pool_mark();
        linattn_config config = {.heads = 2,
                                 .kv_heads = 1,
                                 .dim_key = 5,
                                 .dim_value = 19,
                                 .map = (linattn_feature_map)(i % LINATTN_MAP_COUNT),
                                 .features = 7,
                                 .window = widths[i]};
        if (map_has_signs(config.map)) config.normaliser = LINATTN_NORM_LENGTH;
        size_t n = test_quick() ? 300 : 1500;
        problem p = problem_new(config, n, n, &r, 2);
        check_window(&p);
        pool_release(mark);
    }
}

/* Each window up to a few blocks of any size. */
static void every_window(void **state)
{
    (void)state;
    rng r = {16};
    for (size_t window = 1; window < 140; window++) {
        size_t mark = pool_mark();
        linattn_config config = {.dim_key = window % 2 ? 2 : 40,
                                 .dim_value = window % 2 ? 1 : 36,
                                 .map = window % 5 ? LINATTN_MAP_ELU1 : LINATTN_MAP_FAVOR,
                                 .features = 3,
                                 .window = window};
        size_t n = window + 70;
        problem p = problem_new(config, n, n, &r, 2);
        check_window(&p);
        pool_release(mark);
    }
}

/* A window that holds everything is none. */
static void windows_of_everything(void **state)
{
    (void)state;
    rng r = {12};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            if (test_quick() && (map + normaliser) % 2) continue;
            size_t mark = pool_mark(), n = 40 + rng_below(&r, 20);
            linattn_config config = config_draw(&r, map, normaliser, 9, 100);
            problem p = problem_new(config, n, n, &r, 2), windowed = p;
            windowed.config.window = n + rng_below(&r, 3);
            check_close(&windowed, "causal", run_causal(&windowed, run_init(&windowed.config)), n,
                        oracle_linear(&p, true), rounding_linear(&p));
            check_close(&windowed, "bidirectional", run_bidirectional(&windowed, NULL), n,
                        oracle_linear(&p, false), rounding_linear(&p));
            pool_release(mark);
        }
}

/* ---- Features ------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each feature of favor where it belongs; monomials in any order. */
static void check_features(const linattn_config *config, const float *x, const float *y, int keys)
{
    size_t m = config_features(config);
    double *expected = pool_doubles(m), *doubt = pool_doubles(m), *actual = pool_doubles(m);
    oracle_map(config, keys != 0, x, expected, doubt);
    for (size_t f = 0; f < m; f++) actual[f] = (double)y[f];
    if (map_is_monomial(config->map)) {
        qsort(expected, m, sizeof *expected, compare_doubles);
        qsort(actual, m, sizeof *actual, compare_doubles);
        for (size_t f = 0; f < m; f++) doubt[f] = 2 * (double)config->degree;
    }
    for (size_t f = 0; f < m; f++) {
        double allowed = (8 + doubt[f]) * 0x1p-24 * fabs(expected[f]) + (double)FLT_MIN;
        if (expected[f] > (double)FLT_MAX * 0.999)
            check(y[f] > FLT_MAX * 0.99f, "%g for %g", (double)y[f], expected[f]);
        else
            check(fabs(actual[f] - expected[f]) <= allowed,
                  "feature %zu is %.9g, expected %.9g, off by %.3g of %.3g allowed, %s", f,
                  actual[f], expected[f], fabs(actual[f] - expected[f]), allowed,
                  config_name(config));
    }
}

/* phi(q).phi(k) of what linattn_map returns. */
static void check_kernel(const linattn_config *config, const float *q, const float *k,
                         const float *mapped_q, const float *mapped_k)
{
    double sum = 0, allowed = 0, expected = oracle_kernel(config, q, k);
    size_t m = config_features(config);
    double *phi_q = pool_doubles(4 * m), *phi_k = phi_q + m, *doubt_q = phi_k + m;
    double *doubt_k = doubt_q + m;
    oracle_map(config, false, q, phi_q, doubt_q);
    oracle_map(config, true, k, phi_k, doubt_k);
    for (size_t f = 0; f < m; f++) {
        sum += (double)mapped_q[f] * (double)mapped_k[f];
        /* What is below FLT_MIN is zero. */
        allowed += fabs(phi_q[f] * phi_k[f]) * 0x1p-24 * (8 + doubt_q[f] + doubt_k[f]);
        allowed += (fabs(phi_q[f]) + fabs(phi_k[f])) * (double)FLT_MIN;
    }
    check(fabs(sum - expected) <= allowed, "phi.phi is %.9g, expected %.9g, %s", sum, expected,
          config_name(config));
}

static void maps_on_plain_arrays(void **state)
{
    (void)state;
    rng r = {13};
    size_t repeats = test_quick() ? 8 : 60;
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_EXPDEF; map++)
        for (size_t i = 0; i < repeats; i++) {
            size_t mark = pool_mark(), n = 1 + rng_below(&r, 12);
            linattn_config config = config_draw(&r, map, 0, rng_pick(&r, odd_dims, 30), 2000);
            config.heads = config.kv_heads = 1;
            problem p = problem_new(config, n, n, &r, 1);
            size_t m = config_features(&p.config), dim = p.config.dim_key;
            check(linattn_features(&p.config) == m, "%zu, expected %zu, %s",
                  linattn_features(&p.config), m, config_name(&p.config));
            float *mapped_q = (float *)pool_take_guarded(n * m * sizeof(float), GUARD_AFTER);
            float *mapped_k = (float *)pool_take_guarded(n * m * sizeof(float), GUARD_BEFORE);
            check_status(linattn_map(&p.config, 0, p.q, mapped_q, n), LINATTN_OK, "%s",
                         config_name(&p.config));
            check_status(linattn_map(&p.config, 1, p.k, mapped_k, n), LINATTN_OK, "%s",
                         config_name(&p.config));
            for (size_t t = 0; t < n; t++) {
                check_features(&p.config, p.q + t * dim, mapped_q + t * m, 0);
                check_features(&p.config, p.k + t * dim, mapped_k + t * m, 1);
                check_kernel(&p.config, p.q + t * dim, p.k + t * dim, mapped_q + t * m,
                             mapped_k + t * m);
            }
            pool_release(mark);
        }
}

/* ---- The oracle ----------------------------------------------------------------------------- */

/* The two forms of the oracle against each other: a slip in one would be a slip in all above. */
static void oracles_agree(void **state)
{
    (void)state;
    rng r = {7};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++)
            for (size_t window = 0; window < 12; window += 5) {
                size_t mark = pool_mark();
                linattn_config config = config_draw(&r, map, normaliser, 9, 100);
                config.window = window;
                problem p = problem_new(config, 14, 14, &r, 2);
                oracle pairs = oracle_linear(&p, true);
                double *values = oracle_recurrence(&p);
                for (size_t i = 0; i < 14 * output_width(&p); i++)
                    check(fabs(pairs.value[i] - values[i]) <= 1e-13 * pairs.magnitude[i],
                          "element %zu: %g and %g, %s", i, pairs.value[i], values[i],
                          problem_name(&p));
                pool_release(mark);
            }
}

/* The oracle's features against the kernels that they are to make. */
static void oracles_make_their_kernels(void **state)
{
    (void)state;
    rng r = {14};
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_EXPDEF; map++)
        for (size_t i = 0; i < 50; i++) {
            size_t mark = pool_mark();
            linattn_config config = config_draw(&r, map, 0, 1 + rng_below(&r, 12), 2000);
            config.heads = config.kv_heads = 1;
            problem p = problem_new(config, 1, 1, &r, 2);
            size_t m = config_features(&p.config);
            double *q = pool_doubles(m), *k = pool_doubles(m), sum = 0, absolute = 0;
            oracle_map(&p.config, false, p.q, q, NULL);
            oracle_map(&p.config, true, p.k, k, NULL);
            for (size_t f = 0; f < m; f++) {
                sum += q[f] * k[f];
                absolute += fabs(q[f] * k[f]);
            }
            double expected = oracle_kernel(&p.config, p.q, p.k);
            check(fabs(sum - expected) <= 1e-12 * absolute, "%.15g, expected %.15g, %s", sum,
                  expected, config_name(&p.config));
            pool_release(mark);
        }
}

/* A window is what is left when all other keys are masked. */
static void oracles_of_windows(void **state)
{
    (void)state;
    rng r = {15};
    linattn_config config = {.dim_key = 3, .dim_value = 2, .map = LINATTN_MAP_EXP, .window = 4};
    problem p = problem_new(config, 11, 11, &r, 2);
    for (int causal = 0; causal < 2; causal++) {
        oracle windowed = oracle_linear(&p, causal != 0);
        for (size_t i = 0; i < 11; i++) {
            problem q = p;
            q.config.window = 0;
            q.k = (float *)pool_copy(p.k, 11 * 3 * sizeof(float));
            for (size_t j = 0; j < 11; j++) {
                bool seen = causal ? i < j + 4 && j <= i : i < j + 4 && j < i + 4;
                for (size_t f = 0; f < 3 && !seen; f++) q.k[j * 3 + f] = -test_infinity;
            }
            oracle masked = oracle_linear(&q, false);
            for (size_t c = 0; c < 2; c++)
                check(fabs(windowed.value[i * 2 + c] - masked.value[i * 2 + c]) <= 1e-14,
                      "query %zu: %g and %g", i, windowed.value[i * 2 + c],
                      masked.value[i * 2 + c]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(oracles_agree),
        TEST(oracles_make_their_kernels),
        TEST(oracles_of_windows),
        TEST(maps_on_plain_arrays),
        TEST(elu1),
        TEST(identity),
        TEST(relu),
        TEST(exponential),
        TEST(softmax),
        TEST(favor),
        TEST(favor_simplified),
        TEST(favor_hyperbolic),
        TEST(taylor),
        TEST(expdef),
        TEST(unit),
        TEST(degrees),
        TEST(large_dimensions),
        TEST(many_features),
        TEST(relative_error_in_the_norm),
        TEST(empty_denominators_give_zeros),
        TEST(vanishing_relu),
        TEST(features_below_the_smallest_float),
        TEST(windows),
        TEST(long_windows),
        TEST(every_window),
        TEST(windows_of_everything),
    };
    test_begin();
    return RUN_TESTS("verbs", tests);
}
