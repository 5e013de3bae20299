/* Update and query, causal, bidirectional and merge against the formulas in double precision, for
   every map, every normaliser and odd shapes. */
#include <float.h>
#include <math.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Around every width of a vector, a pair of vectors and a panel. */
static const size_t dims[] = {1,  2,  3,  4,  5,  6,   7,   8,   9,   10,  11,  12,  13,
                              14, 15, 16, 17, 18, 19,  20,  31,  32,  33,  63,  64,  65,
                              72, 79, 80, 96, 97, 100, 127, 128, 129, 130, 255, 256, 257};
static const size_t lengths[] = {1,  2,  3,  5,   23,  24,  25,  26, 47,
                                 48, 49, 50, 127, 128, 129, 130, 300};
static const size_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}, {6, 3}, {5, 5}};
static const float scales[] = {0, 0.25f, 0.125f, 3};
static const float epsilons[] = {0, 0.01f, 2};

/* The longest length, drawn at random, for which the oracle's cost stays below `limit` operations.
   An exponential counts as sixteen. */
static size_t draw_length(rng *r, const linattn_config *config, size_t others, double limit)
{
    double per_key = (double)config->heads * (double)others *
                     ((double)config->dim_key * (map_is_exponential(config->map) ? 16 : 1) +
                      (double)config->dim_value);
    for (int attempt = 0; attempt < 20; attempt++) {
        size_t n = rng_pick(r, lengths, COUNT_OF(lengths));
        if (per_key * (double)(others > 1 ? n : n * n) <= limit) return n;
    }
    return 1;
}

static linattn_config draw_config(rng *r, int map, int normaliser, size_t dim_key)
{
    size_t h = rng_below(r, COUNT_OF(heads));
    linattn_config config = {.heads = heads[h][0],
                             .kv_heads = heads[h][1],
                             .dim_key = dim_key,
                             .dim_value = rng_pick(r, dims, COUNT_OF(dims)),
                             .map = (linattn_feature_map)map,
                             .normaliser = (linattn_normaliser)normaliser,
                             .scale = scales[rng_below(r, COUNT_OF(scales))],
                             .epsilon = epsilons[rng_below(r, COUNT_OF(epsilons))]};
    return config;
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

    problem first = *p, second = *p;
    first.n_k = p->n_k / 3;
    second.n_k = p->n_k - first.n_k;
    second.k += first.n_k * key_width(p);
    second.v += first.n_k * value_width(p);
    void *merged = run_init(&p->config), *rest = run_init(&p->config);
    run_update(&first, merged);
    run_update(&second, rest);
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
    size_t queries = rng_below(r, 8) ? 1 + rng_below(r, 9) : 27 + rng_below(r, 30);
    n = draw_length(r, config, queries, limit);
    problem unordered = problem_new(*config, queries, n, r, 2);
    check_unordered(&unordered);
    pool_release(mark);
}

static void check_map(int map)
{
    rng r = {1000u + (uint64_t)map};
    size_t step = test_quick() ? 3 : 1;
    double limit = test_quick() ? 5e4 : 2e6;
    for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++)
        for (size_t i = rng_below(&r, step); i < COUNT_OF(dims); i += step) {
            linattn_config config = draw_config(&r, map, normaliser, dims[i]);
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
            linattn_config config = {.heads = 2,
                                     .kv_heads = 1,
                                     .dim_key = large[i][0],
                                     .dim_value = large[i][1],
                                     .map = (linattn_feature_map)map};
            check_one(&r, &config, test_quick() ? 2e4 : 2e6);
        }
}

/* Relative to the norm of the output, for the maps whose denominators do not cancel. */
static void relative_error_in_the_norm(void **state)
{
    (void)state;
    static const int maps[] = {LINATTN_MAP_ELU1, LINATTN_MAP_RELU, LINATTN_MAP_EXP,
                               LINATTN_MAP_SOFTMAX};
    rng r = {3};
    for (size_t i = 0; i < COUNT_OF(maps); i++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = 4,
                                     .kv_heads = 2,
                                     .dim_key = 37,
                                     .dim_value = 29,
                                     .map = (linattn_feature_map)maps[i],
                                     .normaliser = (linattn_normaliser)normaliser};
            size_t n = test_quick() ? 40 : 250;
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
            linattn_config config = draw_config(&r, map, normaliser, 13);
            config.epsilon = 0;
            problem p = problem_new(config, 5, 0, &r, 2);
            check_zeros(&p, run_query(&p, run_init(&p.config)), "an empty state");
            check_zeros(&p, run_bidirectional(&p, NULL), "no keys");
            if (map != LINATTN_MAP_IDENTITY) {
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

/* The two forms of the oracle against each other: a slip in one would be a slip in all above. */
static void oracles_agree(void **state)
{
    (void)state;
    rng r = {7};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            size_t mark = pool_mark();
            linattn_config config = draw_config(&r, map, normaliser, 9);
            problem p = problem_new(config, 14, 14, &r, 2);
            oracle pairs = oracle_linear(&p, true);
            double *recurrence = oracle_recurrence(&p);
            for (size_t i = 0; i < 14 * output_width(&p); i++)
                check(fabs(pairs.value[i] - recurrence[i]) <= 1e-13 * pairs.magnitude[i],
                      "element %zu: %g and %g, %s", i, pairs.value[i], recurrence[i],
                      problem_name(&p));
            pool_release(mark);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(oracles_agree),
        TEST(elu1),
        TEST(identity),
        TEST(relu),
        TEST(exponential),
        TEST(softmax),
        TEST(large_dimensions),
        TEST(relative_error_in_the_norm),
        TEST(empty_denominators_give_zeros),
        TEST(vanishing_relu),
        TEST(features_below_the_smallest_float),
    };
    test_begin();
    return RUN_TESTS("verbs", tests);
}
