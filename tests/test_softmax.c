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
    for (int causal = 0; causal < 2; causal++)
        if (exact_applies(p, causal))
            check_close(p, causal ? "causal softmax" : "softmax", run_softmax(p, causal, NULL),
                        p->n_q, oracle_softmax(p, causal), rounding_softmax(p));
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

/* ---- Windows, sinks, soft caps and slopes --------------------------------------------------- */

static const plan plain;
static const elements floats = {LINATTN_F32, LINATTN_F32, LINATTN_F32};

/* Those of Press et al. 2022 and others: one of each sign, none, and large ones. */
static const float *draw_slopes(rng *r, size_t count)
{
    float *slopes = pool_floats(count);
    for (size_t h = 0; h < count; h++) {
        slopes[h] = (float)ldexp(1, -(int)(h % 8) - 1);
        if (rng_below(r, 4) == 0) slopes[h] = rng_float(r, 0.1f);
        if (rng_below(r, 8) == 0) slopes[h] = (float)rng_below(r, 2) * 100;
    }
    return slopes;
}

static void draw_scores(rng *r, linattn_config *c, size_t n_k)
{
    static const float caps[] = {0, 50, 1, 0.125f, 1e30f};
    if (rng_below(r, 3)) c->window = window_draw(r, n_k + 10);
    if (rng_below(r, 2)) c->sinks = rng_below(r, 2) ? 4 : rng_below(r, n_k + 10);
    c->soft_cap = caps[rng_below(r, COUNT_OF(caps))];
    if (rng_below(r, 2)) c->alibi_slopes = draw_slopes(r, c->heads);
}

static void changed_scores(void **state)
{
    (void)state;
    rng r = {20};
    double limit = test_quick() ? 2e4 : 2e6;
    for (size_t i = 0; i < (test_quick() ? 200u : 1500u); i++) {
        size_t mark = pool_mark(), n_k = counts[i % COUNT_OF(counts)][1] + rng_below(&r, 150);
        size_t n_q = rng_below(&r, 8) ? 1 + rng_below(&r, n_k) : n_k + 3;
        linattn_config config = draw_config(&r, dims[rng_below(&r, 20)]);
        draw_scores(&r, &config, n_k);
        problem p = problem_new(config, n_q, n_k, &r, 3);
        for (size_t j = 0; i % 4 == 0 && j < n_k; j++)
            for (size_t f = 0; j % 5 < 2 && f < key_width(&p); f++)
                p.k[j * key_width(&p) + f] = -test_infinity;
        if (cost_of(&config, n_q, n_k) < limit) check_problem(&p);
        pool_release(mark);
    }
}

/* Long enough for windows that end far from where blocks of keys begin. */
static void long_windows(void **state)
{
    (void)state;
    rng r = {21};
    size_t n = test_quick() ? 300 : 1500;
    for (size_t window = 1; window < n; window = 2 * window + 5)
        for (size_t sinks = 0; sinks < 100; sinks = 3 * sinks + 3) {
            size_t mark = pool_mark();
            linattn_config config = {
                .heads = 2, .kv_heads = 1, .dim_key = 8, .window = window, .sinks = sinks};
            problem p = problem_new(config, 100, n, &r, 3);
            check_problem(&p);
            pool_release(mark);
        }
}

/* What changes nothing changes no bit. */
static void nothing_changed(void **state)
{
    (void)state;
    rng r = {22};
    linattn_config config = {.heads = 6, .kv_heads = 2, .dim_key = 20, .dim_value = 33};
    problem p = problem_new(config, 90, 210, &r, 3);
    float slopes[6] = {0};
    linattn_config same[5];
    for (size_t i = 0; i < COUNT_OF(same); i++) same[i] = p.config;
    same[0].window = 210;
    same[1].window = 0x3fffffff;
    same[2].sinks = 7;
    same[3].window = 1;
    same[3].sinks = 210;
    same[4].alibi_slopes = slopes;
    for (int causal = 0; causal < 2; causal++) {
        float *expected = run_softmax(&p, causal, NULL);
        for (size_t i = 0; i < COUNT_OF(same); i++) {
            problem x = p;
            x.config = same[i];
            check_same_floats(run_softmax(&x, causal, NULL), expected, 90 * output_width(&p),
                              output_width(&p), "config %zu, causal %d", i, causal);
        }
    }
}

/* A cap far above the scores leaves them, to rounding; one far below leaves their sign. */
static void extreme_caps(void **state)
{
    (void)state;
    static const float caps[] = {1e5f, 1e10f, 1e20f, 3e38f};
    rng r = {23};
    linattn_config config = {.heads = 2, .dim_key = 16, .dim_value = 16};
    problem p = problem_new(config, 40, 120, &r, 2), capped = p;
    for (size_t i = 0; i < COUNT_OF(caps); i++) {
        capped.config.soft_cap = caps[i];
        check_close(&capped, "soft cap", run_softmax(&capped, 1, NULL), 40,
                    oracle_softmax(&p, true), 2 * rounding_softmax(&p));
    }
    static const float tiny[] = {1e-45f, 1e-38f, 1e-20f};
    float k[] = {3e38f, -3e38f, 0, 1e-30f};
    for (size_t i = 0; i < COUNT_OF(tiny); i++) {
        capped = (problem){
            config_resolved((linattn_config){.dim_key = 1, .soft_cap = tiny[i], .scale = 1}),
            1,
            4,
            pool_floats(1),
            k,
            pool_floats(4)};
        for (size_t j = 0; j < 4; j++) capped.v[j] = (float)(1 + j);
        capped.q[0] = 1;
        check(*run_softmax(&capped, 0, NULL) == 2.5f, "cap %g", (double)tiny[i]);
    }
}

/* Finite slopes of either sign, however large, and finite scores: finite outputs. */
static void extreme_slopes(void **state)
{
    (void)state;
    float slopes[] = {3e38f, -3e38f, 1e-45f, -1e30f};
    rng r = {24};
    linattn_config config = {.heads = 4, .dim_key = 3, .alibi_slopes = slopes};
    problem p = problem_new(config, 100, 100, &r, 1e15f);
    for (int causal = 0; causal < 2; causal++) {
        float *out = run_softmax(&p, causal, NULL);
        for (size_t i = 0; i < 100 * output_width(&p); i++)
            check(float_is_finite(out[i]) && fabsf(out[i]) <= 1.001f, "element %zu is %g", i,
                  (double)out[i]);
        for (size_t t = 0; t < 100; t++) /* the own key alone */
            check_same_floats(out + t * 12, p.v + t * 12, 3, 3, "token %zu", t);
    }
}

/* A cache that grows: every step has the bits of a prefill, of whatever queries. */
static void steps_of_a_cache(void **state)
{
    (void)state;
    rng r = {25};
    for (size_t i = 0; i < (test_quick() ? 10u : 60u); i++) {
        size_t mark = pool_mark(), n = 150 + rng_below(&r, 100);
        linattn_config config = draw_config(&r, dims[rng_below(&r, 16)]);
        draw_scores(&r, &config, n);
        problem p = problem_new(config, n, n, &r, 3);
        for (size_t j = 0; i % 2 && j < n; j += 1 + rng_below(&r, 4))
            for (size_t f = 0; f < key_width(&p); f++) p.k[j * key_width(&p) + f] = -test_infinity;
        float *expected = run_softmax(&p, 1, NULL);
        for (size_t t = 0, step; t < n; t += step) {
            step = 1 + rng_below(&r, rng_below(&r, 2) ? 3 : n - t);
            if (step > n - t) step = n - t;
            problem x = p;
            x.q += t * query_width(&p);
            x.n_q = step;
            x.n_k = t + step;
            check_same_floats(run_softmax(&x, 1, NULL), expected + t * output_width(&p),
                              step * output_width(&p), output_width(&p), "from %zu, %s", t,
                              problem_name(&x));
        }
        pool_release(mark);
    }
}

/* Few queries of keys that no cache holds may go by other kernels than many do. */
static void keys_from_memory(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 25000}, {2, 12500}, {8, 4200}}; /* heads, keys */
    rng r = {27};
    for (size_t i = 0; !test_quick() && i < COUNT_OF(sizes); i++) {
        size_t mark = pool_mark();
        linattn_config config = {.heads = sizes[i][0], .dim_key = 64};
        problem p = problem_new(config, 5, sizes[i][1], &r, 3);
        float *expected = run_softmax(&p, 0, NULL);
        for (size_t t = 0, step; t < 5; t += step) {
            problem x = p;
            step = x.n_q = t ? 2 : 1;
            x.q += t * query_width(&p);
            check_same_floats(run_softmax(&x, 0, NULL), expected + t * output_width(&p),
                              step * output_width(&p), output_width(&p), "from %zu, %s", t,
                              problem_name(&x));
        }
        pool_release(mark);
    }
}

/* As many keys as do not fill a tile, or two: for one query, two, three and as many as fill tiles
   of their own. */
static void short_caches(void **state)
{
    (void)state;
    static const size_t dims_of[] = {8, 16, 33, 50, 64, 100};
    rng r = {29};
    for (size_t n = 1; n < 140; n += 1 + n / 70)
        for (size_t i = test_quick() ? n % 3 : 0; i < COUNT_OF(dims_of);
             i += test_quick() ? 3 : 1) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = 1 + n % 2, .dim_key = dims_of[i]};
            config.dim_value = dims_of[(i + n) % COUNT_OF(dims_of)];
            problem p = problem_new(config, 20, n, &r, 3);
            for (size_t f = 0; n % 4 == 3 && f < key_width(&p); f++)
                p.k[n / 2 * key_width(&p) + f] = -test_infinity;
            float *expected = run_softmax(&p, 0, NULL);
            for (size_t t = 0, count = 1; t < 6; t += count++) {
                problem x = p;
                x.n_q = count;
                x.q += t * query_width(&p);
                check_same_floats(run_softmax(&x, 0, NULL), expected + t * output_width(&p),
                                  count * output_width(&p), output_width(&p), "from %zu, %s", t,
                                  problem_name(&x));
            }
            pool_release(mark);
        }
}

/* What no query sees is not even read. */
static void unseen_keys(void **state)
{
    (void)state;
    rng r = {26};
    linattn_config config = {.heads = 2, .dim_key = 7, .window = 40, .sinks = 3};
    problem p = problem_new(config, 20, 300, &r, 2);
    float *expected = run_softmax(&p, 1, NULL);
    size_t seen = 300 - 20 - 40 + 1;
    for (size_t i = 3 * 14; i < seen * 14; i++) p.k[i] = p.v[i] = test_nan;
    check_same_floats(run_softmax(&p, 1, NULL), expected, 20 * 14, 14, "NaN between");
    for (size_t t = 0; t < 20; t++) { /* and what some see harms no others */
        problem x = p;
        x.v = (float *)pool_copy(p.v, 300 * 14 * sizeof *x.v);
        for (size_t i = 0; i < 14; i++) x.v[(seen + t) * 14 + i] = test_infinity;
        float *out = run_softmax(&x, 1, NULL);
        check_same_floats(out + (t + 1) * 14, expected + (t + 1) * 14, (19 - t) * 14, 14, "key %zu",
                          t);
        check(!float_is_finite(out[t * 14]), "key %zu", t);
    }
}

/* ---- Numbers of 16 bits --------------------------------------------------------------------- */

/* A single key's value comes out as it is: all of them, as value, and their signs as score. */
static void every_number_of_16_bits(void **state)
{
    (void)state;
    const size_t all = 65536;
    uint16_t *bits = (uint16_t *)pool_take(all * sizeof *bits);
    for (size_t i = 0; i < all; i++) bits[i] = (uint16_t)i;
    float one = 1, *out = pool_floats(all), *expected = pool_floats(all);
    linattn_config config = {.dim_key = 1, .dim_value = all};
    size_t bytes = linattn_workspace_size(&config, LINATTN_WORKSPACE_SOFTMAX, NULL);
    void *workspace = pool_take(bytes);
    for (int element = LINATTN_F16; element <= LINATTN_BF16; element++) {
        for (size_t i = 0; i < all; i++)
            expected[i] = element_value((linattn_element)element, bits[i]) + 0.0f; /* -0 is 0 */
        check_status(linattn_softmax(&config, linattn_rows(&one), 1, linattn_rows(&one),
                                     linattn_rows_as(bits, (linattn_element)element), 1,
                                     linattn_output_rows(out), 0, workspace, bytes, NULL),
                     LINATTN_OK, "element %d", element);
        check_same_floats(out, expected, all, all, "element %d", element);
    }
}

/* Every number but NaN survives the tests' own way there and back. */
static void numbers_of_16_bits_in_the_tests(void **state)
{
    (void)state;
    for (int element = LINATTN_F16; element <= LINATTN_BF16; element++)
        for (uint32_t i = 0; i < 65536; i++) {
            float x = element_value((linattn_element)element, (uint16_t)i);
            if (!float_is_nan(x))
                check(element_bits((linattn_element)element, x) == i, "%04x", (unsigned)i);
        }
}

/* The bits of the same numbers as floats, wherever the operands lie. */
static void operands_of_16_bits(void **state)
{
    (void)state;
    rng r = {27};
    for (size_t i = 0; i < (test_quick() ? 30u : 600u); i++) {
        size_t mark = pool_mark(), n_k = 1 + rng_below(&r, 200), n_q = 1 + rng_below(&r, n_k);
        linattn_config config = draw_config(&r, dims[rng_below(&r, 30)]);
        if (i % 2) draw_scores(&r, &config, n_k);
        problem p = problem_new(config, n_q, n_k, &r, 3);
        for (size_t j = 0; i % 3 == 0 && j < n_k; j++)
            for (size_t f = 0; j % 5 < 2 && f < key_width(&p); f++)
                p.k[j * key_width(&p) + f] = -test_infinity;
        elements of = {(linattn_element)rng_below(&r, 3), (linattn_element)rng_below(&r, 3),
                       (linattn_element)rng_below(&r, 3)};
        narrow(of.q, p.q, n_q * query_width(&p));
        narrow(of.k, p.k, n_k * key_width(&p));
        narrow(of.v, p.v, n_k * value_width(&p));
        plan how = {.q = layout_random(&r),
                    .k = layout_random(&r),
                    .v = layout_random(&r),
                    .out = layout_random(&r),
                    .state_side = (guard)rng_below(&r, 3)};
        for (int causal = 0; causal < 2; causal++)
            check_same_floats(run_exact(&p, of, causal, &how),
                              run_exact(&p, floats, causal, &plain), n_q * output_width(&p),
                              output_width(&p), "elements %d %d %d, %s", (int)of.q, (int)of.k,
                              (int)of.v, problem_name(&p));
        pool_release(mark);
    }
}

/* A single query, whose keys may be widened on the way into a tile: rows of fours and others, as
   many as fill all tiles and some more, a masked one behind a tile, and 2 KiB apart. */
static void single_queries_of_16_bits(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {/* heads, dimension, keys */
                                      {1, 4, 64},  {1, 64, 203}, {2, 20, 97}, {3, 7, 70},
                                      {1, 8, 16},  {1, 40, 15},  {2, 24, 33}, {2, 72, 31},
                                      {4, 16, 64}, {8, 128, 70}};
    rng r = {28};
    for (size_t i = 0; i < 4 * COUNT_OF(sizes); i++) {
        const size_t *size = sizes[i / 4], mark = pool_mark();
        const linattn_element element = i % 2 ? LINATTN_F16 : LINATTN_BF16;
        const elements of = {LINATTN_F32, element, element};
        linattn_config config = {.heads = size[0], .dim_key = size[1]};
        problem p = problem_new(config, 1, size[2], &r, 3);
        narrow(element, p.k, p.n_k * key_width(&p));
        narrow(element, p.v, p.n_k * value_width(&p));
        for (size_t f = 0; i % 4 < 2 && f < key_width(&p); f++)
            p.k[(p.n_k > 32 ? 32 : p.n_k / 2) * key_width(&p) + f] = -test_infinity;
        check_same_floats(run_exact(&p, of, 0, &plain), run_exact(&p, floats, 0, &plain),
                          output_width(&p), output_width(&p), "element %d, %s", (int)element,
                          problem_name(&p));
        pool_release(mark);
    }
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
        TEST(changed_scores),
        TEST(long_windows),
        TEST(nothing_changed),
        TEST(extreme_caps),
        TEST(extreme_slopes),
        TEST(steps_of_a_cache),
        TEST(short_caches),
        TEST(keys_from_memory),
        TEST(unseen_keys),
        TEST(every_number_of_16_bits),
        TEST(numbers_of_16_bits_in_the_tests),
        TEST(operands_of_16_bits),
        TEST(single_queries_of_16_bits),
    };
    test_begin();
    return RUN_TESTS("softmax", tests);
}
