/* Exact attention against the formula in double precision, and at the edges of the range. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const size_t dims[] = {1,  2,  3,  4,  5,  7,  8,   9,   11,  12,  13,  15,
                              16, 17, 20, 23, 24, 31, 32,  33,  40,  47,  48,  49,
                              63, 64, 65, 79, 80, 96, 100, 127, 128, 129, 255, 257};
static const size_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}, {6, 3}, {5, 5}};
static const float scales[] = {0, 1, 0.3f, 2};

/* Query and key counts: one query, one key, around blocks of queries and keys. */
static const size_t counts[][2] = {{1, 1},   {1, 2},   {1, 17},  {1, 300},  {2, 1},    {3, 5},
                                   {5, 3},   {7, 64},  {16, 16}, {17, 33},  {31, 65},  {33, 31},
                                   {48, 48}, {64, 63}, {65, 64}, {65, 129}, {130, 70}, {90, 200}};

static linattn_config draw_config(rng *r, size_t dim_key)
{
    size_t h = rng_below(r, COUNT_OF(heads));
    linattn_config config = {.heads = heads[h][0],
                             .kv_heads = heads[h][1],
                             .dim_key = dim_key,
                             .dim_value = rng_pick(r, dims, COUNT_OF(dims)),
                             .scale = scales[rng_below(r, COUNT_OF(scales))]};
    return config;
}

static void check_problem(const problem *p)
{
    size_t mark = pool_mark();
    check_close(p, "softmax", run_softmax(p, 0, NULL), p->n_q, oracle_softmax(p, false),
                rounding_softmax(p));
    if (p->n_q <= p->n_k)
        check_close(p, "causal softmax", run_softmax(p, 1, NULL), p->n_q, oracle_softmax(p, true),
                    rounding_softmax(p));
    pool_release(mark);
}

static double cost_of(const linattn_config *c, size_t n_q, size_t n_k)
{
    return (double)c->heads * (double)n_q * (double)n_k * (double)(c->dim_key + c->dim_value + 16);
}

/* Every dimension with a few pairs of lengths, every pair of lengths with a few dimensions. */
static void random_problems(void **state)
{
    (void)state;
    rng r = {1};
    double limit = test_quick() ? 2e4 : 5e6;
    for (size_t i = 0; i < COUNT_OF(dims) * COUNT_OF(counts); i++) {
        size_t mark = pool_mark();
        const size_t *n = counts[i % COUNT_OF(counts)];
        linattn_config config = draw_config(&r, dims[i / COUNT_OF(counts)]);
        if (cost_of(&config, n[0], n[1]) > limit) continue;
        problem p = problem_new(config, n[0], n[1], &r, 2);
        check_problem(&p);
        pool_release(mark);
    }
}

static void large_dimensions(void **state)
{
    (void)state;
    static const size_t large[][2] = {{1024, 33}, {33, 1024}, {1023, 1025}};
    rng r = {2};
    for (size_t i = 0; i < COUNT_OF(large); i++) {
        linattn_config config = {
            .heads = 2, .kv_heads = 1, .dim_key = large[i][0], .dim_value = large[i][1]};
        size_t n = test_quick() ? 3 : 40;
        problem p = problem_new(config, n, n + 5, &r, 2);
        check_problem(&p);
    }
}

static void long_sequences(void **state)
{
    (void)state;
    rng r = {3};
    linattn_config config = {.heads = 2, .kv_heads = 1, .dim_key = 24, .dim_value = 20};
    problem few = problem_new(config, 3, test_quick() ? 500 : 5000, &r, 3);
    check_problem(&few);
    problem one = problem_new(config, 1, test_quick() ? 700 : 20000, &r, 3);
    check_problem(&one);
}

/* Scores that rise with every key move the running maximum every time; falling ones never. Values
   of one sign, so that a lost rescaling cannot average out. */
static void moving_maxima(void **state)
{
    (void)state;
    rng r = {4};
    linattn_config config = {.dim_key = 5, .dim_value = 9, .scale = 1};
    for (int shape = 0; shape < 4; shape++) {
        problem p = problem_new(config, 40, 150, &r, 1);
        for (size_t i = 0; i < 40 * 5; i++) p.q[i] = 1 + 0.5f * p.q[i];
        for (size_t j = 0; j < 150; j++)
            for (size_t f = 0; f < 5; f++) {
                float steps = (float)j;
                if (shape == 1) steps = -steps;
                if (shape == 2) steps = j % 2 ? steps : -steps;
                if (shape == 3) steps = j == 131 ? 500 : 0;
                p.k[j * 5 + f] = 0.3f * steps + 0.5f * p.k[j * 5 + f];
            }
        for (size_t i = 0; i < 150 * 9; i++) p.v[i] = fabsf(p.v[i]);
        check_problem(&p);
    }
}

static void query_heads_share_key_heads(void **state)
{
    (void)state;
    rng r = {5};
    linattn_config config = {.heads = 12, .kv_heads = 3, .dim_key = 17, .dim_value = 18};
    problem p = problem_new(config, 20, 35, &r, 2);
    check_problem(&p);
    config.kv_heads = 1;
    p = problem_new(config, 20, 35, &r, 2);
    check_problem(&p);
}

static void masked_keys(void **state)
{
    (void)state;
    rng r = {6};
    linattn_config config = {.heads = 2, .kv_heads = 1, .dim_key = 6, .dim_value = 5};
    problem p = problem_new(config, 30, 70, &r, 2);
    /* Zero and mixed signs in the queries: -inf times them would be NaN. */
    for (size_t i = 0; i < 30 * query_width(&p); i += 7) p.q[i] = 0;
    for (size_t j = 0; j < 70; j++) {
        if (j % 3 != 1 && j >= 5 && j < 60) continue;
        for (size_t f = 0; f < 6; f++) p.k[j * 6 + f] = -test_infinity;
        for (size_t c = 0; c < 5; c++) p.v[j * 5 + c] = j % 2 ? test_nan : test_infinity;
    }
    check_problem(&p);
}

static void no_visible_key_gives_zeros(void **state)
{
    (void)state;
    rng r = {7};
    linattn_config config = {.heads = 3, .dim_key = 6, .dim_value = 5};
    problem p = problem_new(config, 4, 6, &r, 2);
    for (size_t i = 0; i < 6 * key_width(&p); i++) p.k[i] = -test_infinity;
    problem empty = p;
    empty.n_k = 0;
    const float *outputs[] = {run_softmax(&p, 0, NULL), run_softmax(&p, 1, NULL),
                              run_softmax(&empty, 0, NULL)};
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
        for (size_t e = 0; e < 4 * output_width(&p); e++)
            check(outputs[i][e] == 0, "run %zu: element %zu is %g", i, e, (double)outputs[i][e]);
}

/* One query and a few keys of one component: scores are plain products. */
static const float *attend(float q, const float *k, size_t n, float scale)
{
    static float v[16];
    for (size_t j = 0; j < n; j++) v[j] = (float)(1 + j);
    linattn_config config = {.dim_key = 1, .dim_value = 1, .scale = scale};
    problem p = {config_resolved(config),     1, n, pool_copy(&q, sizeof q),
                 pool_copy(k, n * sizeof *k), v};
    return run_softmax(&p, 0, NULL);
}

static void huge_scores(void **state)
{
    (void)state;
    const float last[] = {-3e38f, 1, -2e38f, 0, 3e38f}, none[] = {-3e38f, -3e38f, -3e38f};
    const float first[] = {3e38f, -3e38f, 2.9e38f, -3e38f}, ties[] = {3e38f, 0, 3e38f, -3e38f};
    check(*attend(1, last, 5, 1) == 5, "the last key's score is 3e38");
    check(*attend(1, first, 4, 1) == 1, "the first key's score is 3e38");
    check(*attend(1, none, 3, 1) == 2, "three keys' scores are -3e38");
    check(*attend(1, ties, 4, 1) == 2, "two keys' scores are 3e38");
    check(*attend(-1, first, 4, 1) == 3, "two keys' scores are 3e38");
}

/* What has to be finite is s q.k; q.k and s q need not be. */
static void scores_whose_parts_overflow(void **state)
{
    (void)state;
    rng r = {8};
    linattn_config config = {.dim_key = 64, .dim_value = 3};
    problem p = problem_new(config, 2, 4, &r, 1);
    for (size_t i = 0; i < 2 * 64; i++) p.q[i] = 4e18f;
    for (size_t j = 0; j < 4; j++)
        for (size_t f = 0; f < 64; f++) p.k[j * 64 + f] = j == 2 ? 4e18f : 3e18f;
    const float *out = run_softmax(&p, 0, NULL);
    for (size_t i = 0; i < 6; i++)
        check(out[i] == p.v[2 * 3 + i % 3], "q.k is 1e39, s q.k 1e38: element %zu is %g", i,
              (double)out[i]);

    const float tiny[] = {1e-20f, 2e-20f, -1e-20f};
    check(*attend(1e20f, tiny, 3, 1e20f) == 2, "s q is 1e40, s q.k 1e20");
    const float large[] = {1e20f, 2e20f, -1e20f};
    check(*attend(1e20f, large, 3, 1e-20f) == 2, "q.k is 1e40, s q.k 1e20");
    check(*attend(1e-20f, large, 3, 1e20f) == 2, "s k is 1e40, s q.k 1e20");
}

/* Weights that differ by less than their maximum's rounding still have to be right. */
static void close_scores_at_large_magnitude(void **state)
{
    (void)state;
    const float k[] = {4096, 4097, 4096.5f};
    double total = 1 + exp(1) + exp(0.5), expected = (1 + 2 * exp(1) + 3 * exp(0.5)) / total;
    double out = (double)*attend(1, k, 3, 1);
    check(fabs(out - expected) < 1e-6 * expected, "%.9g, expected %.9g", out, expected);
}

static void values_of_large_magnitude(void **state)
{
    (void)state;
    rng r = {9};
    linattn_config config = {.heads = 2, .dim_key = 8, .dim_value = 8};
    size_t n = test_quick() ? 200 : 3000;
    problem p = problem_new(config, 4, n, &r, 2);
    for (size_t i = 0; i < n * value_width(&p); i++) p.v[i] = i % 3 ? 1e30f : -1e30f;
    check_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_problems),
        TEST(large_dimensions),
        TEST(long_sequences),
        TEST(moving_maxima),
        TEST(query_heads_share_key_heads),
        TEST(masked_keys),
        TEST(no_visible_key_gives_zeros),
        TEST(huge_scores),
        TEST(scores_whose_parts_overflow),
        TEST(close_scores_at_large_magnitude),
        TEST(values_of_large_magnitude),
    };
    test_begin();
    return RUN_TESTS("softmax", tests);
}
