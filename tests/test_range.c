/* Finite in, finite out: the ends of the range, maxima that arrive late, long sequences,
   saturation, and accuracy where the range is wide. */
#include <float.h>
#include <math.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const linattn_feature_map exponential[] = {LINATTN_MAP_EXP, LINATTN_MAP_SOFTMAX};
static const linattn_feature_map unbounded[] = {LINATTN_MAP_EXP, LINATTN_MAP_SOFTMAX,
                                                LINATTN_MAP_FAVOR, LINATTN_MAP_FAVOR_SIMPLIFIED,
                                                LINATTN_MAP_FAVOR_HYPERBOLIC};
static const linattn_feature_map polynomial[] = {LINATTN_MAP_ELU1, LINATTN_MAP_IDENTITY,
                                                 LINATTN_MAP_RELU};

/* Wild weights, as far as they are allowed; all of one size, some of one row, or as they should be.
   */
static void wild_projection(rng *r, problem *p)
{
    static const float sizes[] = {1e6f, 1e6f, 1e5f, 1e3f, 30, 1, 1e-3f, 1e-20f, 1e-38f, 1e-45f, 0};
    size_t count = p->config.features * p->config.dim_key, kind = rng_below(r, 5);
    if (!map_is_favor(p->config.map) || kind == 0) return;
    float *projection = pool_floats(count);
    rng_fill_normal(r, projection, count);
    float common = sizes[rng_below(r, COUNT_OF(sizes))];
    for (size_t i = 0; i < count; i++) {
        float size = kind == 1 ? sizes[rng_below(r, COUNT_OF(sizes))] : common;
        if (kind == 2 || kind == 1) projection[i] = rng_below(r, 2) ? size : -size;
        if (kind == 3) projection[i] *= 0.1f * common;
        if (kind == 4) projection[i] = common;
    }
    p->config.projection = projection;
}

static bool is_weighted_mean(const problem *p)
{
    linattn_normaliser normaliser = p->config.normaliser;
    if (p->config.map == LINATTN_MAP_SOFTMAX && normaliser == LINATTN_NORM_FEATURE) return true;
    return !map_has_signs(p->config.map) && normaliser == LINATTN_NORM_SUM;
}

/* The whole sequence of p, causal and bidirectional, is what the oracle says of `meant`, which p is
   or has to amount to. */
static void check_both(const problem *p, const problem *meant, double tolerance)
{
    check_close(meant, "causal", run_causal(p, run_init(&p->config)), p->n_q,
                oracle_linear(meant, true), tolerance);
    check_close(meant, "bidirectional", run_bidirectional(p, NULL), p->n_q,
                oracle_linear(meant, false), tolerance);
}

static void check_within(const problem *p, const float *out, const char *what, size_t count,
                         float low, float high)
{
    for (size_t i = 0; i < count; i++)
        check(float_is_finite(out[i]) && out[i] >= low && out[i] <= high,
              "%s: element %zu is %g, not in %g .. %g, %s", what, i, (double)out[i], (double)low,
              (double)high, problem_name(p));
}

/* All linear verbs give finite outputs; where they are weighted means, means of the values. */
static void check_range(const problem *p, float low, float high)
{
    size_t mark = pool_mark(), count = p->n_q * output_width(p);
    if (!is_weighted_mean(p)) {
        low = -FLT_MAX;
        high = FLT_MAX;
    }
    check_within(p, run_bidirectional(p, NULL), "bidirectional", count, low, high);
    if (p->n_q == p->n_k)
        check_within(p, run_causal(p, run_init(&p->config)), "causal", count, low, high);
    pool_release(mark);
}

/* With values of 1, weights that sum to one; then with values of +-1e30. */
static void check_values(rng *r, problem *p)
{
    size_t count = p->n_k * value_width(p);
    for (size_t i = 0; i < count; i++) p->v[i] = 1;
    bool sums_to_one = p->config.epsilon == 0;
    check_range(p, sums_to_one ? 1 - 1e-5f : 0, 1 + 1e-5f);
    for (size_t i = 0; i < count; i++) p->v[i] = rng_below(r, 2) ? 1e30f : -1e30f;
    check_range(p, -1.00001e30f, 1.00001e30f);
}

/* ---- Queries and keys at the ends of the range ---------------------------------------------- */

static void check_wild(rng *r, linattn_feature_map map, int normaliser)
{
    static const float scales[] = {0, 0, 0.125f, 100, 1e-38f, 3e38f};
    static const float epsilons[] = {0, 1e-6f, 1e30f};
    static const size_t lengths[] = {1, 2, 3, 17, 24, 50, 131};
    size_t n = rng_pick(r, lengths, COUNT_OF(lengths));
    linattn_config config = {.heads = 2,
                             .kv_heads = 1 + rng_below(r, 2),
                             .dim_key = 1 + rng_below(r, 40),
                             .dim_value = 1 + rng_below(r, 40),
                             .map = map,
                             .normaliser = (linattn_normaliser)normaliser,
                             .scale = scales[rng_below(r, COUNT_OF(scales))]};
    if (rng_below(r, 3) == 0) config.epsilon = epsilons[rng_below(r, COUNT_OF(epsilons))];
    if (rng_below(r, 4) == 0) config.window = window_draw(r, 100);
    config_draw_features(r, &config, 60);
    problem p = problem_new(config, n, n, r, 3);
    wild_projection(r, &p);
    wild_fill(r, p.q, n * query_width(&p));
    wild_fill(r, p.k, n * key_width(&p));
    check_values(r, &p);
}

static void any_finite_query_and_key(void **state)
{
    (void)state;
    rng r = {1};
    size_t repeats = test_quick() ? 12 : 300;
    for (size_t i = 0; i < repeats; i++)
        for (size_t map = 0; map < COUNT_OF(unbounded); map++)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
                if (map_is_favor(unbounded[map]) && i % 3 > 0) continue;
                size_t mark = pool_mark();
                check_wild(&r, unbounded[map], normaliser);
                pool_release(mark);
            }
}

/* One feature, so that every key's weight is its own: the largest keys share the output. Value j is
   1 + j; is their mean what comes out? */
static void check_winner(float q, const float *k, size_t n, linattn_feature_map map, float mean)
{
    static float v[16];
    for (size_t j = 0; j < n; j++) v[j] = (float)(1 + j);
    linattn_config config = {.dim_key = 1, .dim_value = 1, .map = map};
    problem p = {config_resolved(config),
                 1,
                 n,
                 (float *)pool_copy(&q, sizeof q),
                 (float *)pool_copy(k, n * sizeof *k),
                 v};
    float out = *run_bidirectional(&p, NULL);
    check(fabsf(out - mean) <= 2 * FLT_EPSILON * mean, "%s, q = %g, first key %g: %g, expected %g",
          map_name(map), (double)q, (double)k[0], (double)out, (double)mean);
}

static void the_largest_key_wins(void **state)
{
    (void)state;
    static const float queries[] = {0, 1, -5000, 1e6f, -3e38f, 3e38f};
    const float late[] = {-3e38f, 1, 1.0e6f, 1.2e6f}, early[] = {1.2e6f, 0, 1.0e6f, -3e38f};
    const float ties[] = {5000, 4000, 5000}, beyond[] = {1e3f, -3e38f, 3e38f};
    const float negative[] = {-1.3e6f, -1.2e6f, -1.3e6f};
    for (size_t map = 0; map < COUNT_OF(exponential); map++)
        for (size_t i = 0; i < COUNT_OF(queries); i++) {
            check_winner(queries[i], late, 4, exponential[map], 4);
            check_winner(queries[i], early, 4, exponential[map], 1);
            check_winner(queries[i], ties, 3, exponential[map], 2);
            check_winner(queries[i], beyond, 3, exponential[map], 3);
            check_winner(queries[i], negative, 3, exponential[map], 2);
        }
}

/* The query decides between features whose scales are far apart. */
static void the_query_weighs_features_across_scales(void **state)
{
    (void)state;
    /* Feature 0 has seen value 1 at e^4000, feature 1 value 2 at e^-4000. */
    linattn_config config = {.dim_key = 2, .dim_value = 1, .map = LINATTN_MAP_EXP};
    float k[] = {4000, -3e38f, -3e38f, -4000}, v[] = {1, 2};
    float q[] = {-4100, 4100, -3900, 3900, -4000, 4000, -4000, 4001};
    problem p = {config_resolved(config), 4, 2, q, k, v};
    oracle expected = oracle_linear(&p, false);
    check_close(&p, "weights 2^-289, 2^289, 1 and 2^1.44", run_bidirectional(&p, NULL), 4, expected,
                rounding_linear(&p));
}

/* ---- Maxima that move ----------------------------------------------------------------------- */

typedef enum course {
    COURSE_RISING, /* every key above all before */
    COURSE_FALLING,
    COURSE_ALTERNATING, /* up and down by more each time */
    COURSE_LATE,        /* one jump near the end */
    COURSE_STEPS,       /* a jump every 29 tokens */
    COURSE_COUNT
} course;

/* From -1 to 1 over the sequence. */
static float course_at(course which, size_t t, size_t n)
{
    float now = n > 1 ? 2 * (float)t / (float)(n - 1) - 1 : 0;
    switch (which) {
    case COURSE_RISING: return now;
    case COURSE_FALLING: return -now;
    case COURSE_ALTERNATING: return (t % 2 ? 0.5f : -0.5f) * (now + 1);
    case COURSE_LATE: return t + 3 >= n ? 1 : 0;
    default: return (float)(t / 29 * 29) / (float)n;
    }
}

static problem moving_problem(rng *r, linattn_feature_map map, int normaliser, course which,
                              size_t n, float height)
{
    static const float scales[] = {0, 0.3f, 7};
    linattn_config config = {.heads = 2,
                             .kv_heads = 1,
                             .dim_key = 1 + rng_below(r, 20),
                             .dim_value = 1 + rng_below(r, 20),
                             .map = map,
                             .normaliser = (linattn_normaliser)normaliser,
                             .scale = scales[rng_below(r, COUNT_OF(scales))],
                             .features = 8};
    if (map_is_monomial(map)) config.dim_key = 1 + config.dim_key % 5;
    problem p = problem_new(config, n, n, r, 3);
    for (size_t t = 0; t < n; t++)
        for (size_t f = 0; f < config.dim_key; f++) {
            float sign = f % 4 == 3 ? -1 : 1;
            p.k[t * config.dim_key + f] += sign * height * course_at(which, t, n);
        }
    return p;
}

/* Keys up to +-5000, against the oracle in the logarithmic domain. The product with sqrt(scale) may
   not lose what the exponential needs. */
static void moving_maxima(void **state)
{
    (void)state;
    static const float heights[] = {10, 90, 300, 5000};
    rng r = {2};
    for (size_t map = 0; map < COUNT_OF(exponential); map++)
        for (int which = 0; which < COURSE_COUNT; which++)
            for (size_t h = 0; h < COUNT_OF(heights); h++) {
                size_t mark = pool_mark();
                int normaliser = rng_below(&r, 2) ? LINATTN_NORM_SUM : LINATTN_NORM_FEATURE;
                if (exponential[map] == LINATTN_MAP_EXP) normaliser = LINATTN_NORM_SUM;
                problem p = moving_problem(&r, exponential[map], normaliser, (course)which,
                                           test_quick() ? 40 : 100 + rng_below(&r, 60), heights[h]);
                check_both(&p, &p, 1e-5);
                pool_release(mark);
            }
}

/* Query and key exponents that cancel: e^5000 e^-4990 is a product like any other. */
static void factors_far_outside_the_range_of_float(void **state)
{
    (void)state;
    static const float shifts[] = {80, -80, 200, -200, 5000, -5000};
    rng r = {3};
    for (size_t i = 0; i < COUNT_OF(shifts); i++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            if (normaliser == LINATTN_NORM_FEATURE) continue;
            linattn_config config = {.dim_key = 7,
                                     .dim_value = 5,
                                     .map = LINATTN_MAP_EXP,
                                     .normaliser = (linattn_normaliser)normaliser};
            problem p = problem_new(config, 9, 9, &r, 2);
            for (size_t e = 0; e < 9 * 7; e++) {
                p.q[e] -= shifts[i];
                p.k[e] += shifts[i];
            }
            check_both(&p, &p, 1e-5);
        }
}

/* Norms for which each factor of favor is far outside the range of float: e^(-|x'|^2/2) of 1e-500
   is common to numerator and denominator. An exponent this large has few digits left behind the
   point, which the oracle's magnitudes account for. */
static void factors_of_favor_far_outside_the_range_of_float(void **state)
{
    (void)state;
    static const float spreads[] = {0.01f, 5, 20, 60};
    rng r = {14};
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++)
        for (size_t i = 0; i < COUNT_OF(spreads); i++)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
                size_t mark = pool_mark();
                linattn_config config = {.heads = 2,
                                         .kv_heads = 1,
                                         .dim_key = 1 + rng_below(&r, 30),
                                         .dim_value = 5,
                                         .map = (linattn_feature_map)map,
                                         .normaliser = (linattn_normaliser)normaliser,
                                         .window = i % 2 ? 0 : 6};
                config_draw_features(&r, &config, 60);
                problem p = problem_new(config, 30, 30, &r, spreads[i]);
                check_both(&p, &p, rounding_linear(&p));
                pool_release(mark);
            }
}

/* e^(-|x'|^2/2) leaves nothing of a huge key, however large its projections: it is as if masked. */
static void huge_keys_of_favor_are_absent(void **state)
{
    (void)state;
    static const float factors[] = {1e5f, 1e8f, 1e12f, 1e13f, 1e15f, 1e20f, 1e37f};
    static const linattn_feature_map maps[] = {LINATTN_MAP_FAVOR, LINATTN_MAP_FAVOR_HYPERBOLIC};
    rng r = {19};
    for (size_t i = 0; i < COUNT_OF(factors) * COUNT_OF(maps); i++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            size_t mark = pool_mark(), dim = 1 + rng_below(&r, 20);
            linattn_config config = {.dim_key = dim,
                                     .dim_value = 3,
                                     .map = maps[i % COUNT_OF(maps)],
                                     .normaliser = (linattn_normaliser)normaliser,
                                     .features = 1 + rng_below(&r, 30)};
            problem p = problem_new(config, 12, 12, &r, 2), masked = p;
            masked.k = (float *)pool_copy(p.k, 12 * dim * sizeof(float));
            for (size_t f = 0; f < dim; f++) {
                p.k[4 * dim + f] = (p.k[4 * dim + f] < 0 ? -1.0f : 1.0f) * factors[i / 2];
                masked.k[4 * dim + f] = -test_infinity;
            }
            check_both(&p, &masked, rounding_linear(&masked));
            pool_release(mark);
        }
}

/* Without that factor they are all that is seen. */
static void huge_keys_of_simplified_favor_win(void **state)
{
    (void)state;
    static const float sizes[] = {1e4f, 1e8f, 1e13f, 1e20f, 3e38f};
    float weight = 1, q[] = {1, -5, 1e13f}, v[] = {1, 2, 3};
    linattn_config config = {.dim_key = 1,
                             .dim_value = 1,
                             .map = LINATTN_MAP_FAVOR_SIMPLIFIED,
                             .features = 1,
                             .projection = &weight};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        float k[] = {3, sizes[i], -sizes[i]};
        problem p = {config_resolved(config), 3, 3, q, k, v};
        check_within(&p, run_bidirectional(&p, NULL), "the largest key wins", 3, 1.999999f,
                     2.000001f);
    }
}

/* epsilon is compared with the denominator itself, not with its scaled form. */
static void epsilon_across_scales(void **state)
{
    (void)state;
    static const float shifts[] = {0, 30, -30, 60, -60, -80};
    static const float epsilons[] = {1e-30f, 1e-12f, 1, 1e12f, 1e30f};
    rng r = {4};
    for (size_t i = 0; i < COUNT_OF(shifts); i++)
        for (size_t j = 0; j < COUNT_OF(epsilons); j++) {
            linattn_config config = {
                .dim_key = 7, .dim_value = 5, .map = LINATTN_MAP_EXP, .epsilon = epsilons[j]};
            problem p = problem_new(config, 9, 9, &r, 2);
            for (size_t e = 0; e < 9 * 7; e++) p.k[e] += shifts[i];
            check_close(&p, "causal", run_causal(&p, run_init(&p.config)), 9,
                        oracle_linear(&p, true), 1e-5);
        }
}

/* The queries of a state that two others of ten keys each were merged into. */
static const float *merged_halves(const problem *p)
{
    void *a = run_slice(p, 0, 10), *b = run_slice(p, 10, 20);
    check_status(linattn_merge(a, b), LINATTN_OK, "merge of halves");
    return run_query(p, a);
}

/* States whose exponents are far apart. */
static void merge_across_scales(void **state)
{
    (void)state;
    static const float shifts[] = {0, 50, -50, 130, -3000, 4000, 3e38f, -3e38f};
    rng r = {5};
    linattn_config config = {.dim_key = 7, .dim_value = 5, .map = LINATTN_MAP_EXP};
    for (size_t i = 0; i < COUNT_OF(shifts); i++) {
        problem p = problem_new(config, 6, 20, &r, 2);
        for (size_t e = 10 * 7; e < 20 * 7; e++) p.k[e] += e % 7 == 6 ? -shifts[i] : shifts[i];
        const float *out = merged_halves(&p);
        if (fabsf(shifts[i]) > 1e5f)
            check_within(&p, out, "merge", 6 * 5, -1, 1);
        else
            check_close(&p, "merge", out, 6, oracle_linear(&p, false), 1e-5);
    }
}

/* The same for favor, whose exponents follow the keys' norms and projections. */
static void merge_of_favor_across_scales(void **state)
{
    (void)state;
    static const float factors[] = {1, 4, 0.1f, 30, 1e6f, 1e30f, 1e-30f};
    rng r = {15};
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++)
        for (size_t i = 0; i < COUNT_OF(factors); i++) {
            linattn_config config = {
                .dim_key = 7, .dim_value = 5, .map = (linattn_feature_map)map, .features = 20};
            problem p = problem_new(config, 6, 20, &r, 2);
            for (size_t e = 10 * 7; e < 20 * 7; e++) p.k[e] *= factors[i];
            const float *out = merged_halves(&p);
            if (factors[i] > 1e5f)
                check_within(&p, out, "merge", 6 * 5, -1.00001f, 1.00001f);
            else
                check_close(&p, "merge", out, 6, oracle_linear(&p, false), rounding_linear(&p));
        }
}

/* ---- Long sequences ------------------------------------------------------------------------- */

static size_t long_length(void) { return test_quick() ? 2000 : 100000; }

static void long_sequences(void **state)
{
    (void)state;
    static const float heights[] = {0, 1e3f, 1e6f, 3e38f};
    rng r = {6};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (size_t h = 0; h < COUNT_OF(heights); h++) {
            size_t mark = pool_mark();
            bool wide = map_is_exponential((linattn_feature_map)map);
            if (heights[h] > 0 && !wide) continue;
            bool fields = map_has_fields((linattn_feature_map)map);
            size_t n = fields ? long_length() / 10 : long_length();
            problem p = moving_problem(&r, (linattn_feature_map)map, LINATTN_NORM_SUM,
                                       (course)rng_below(&r, COURSE_COUNT), n, heights[h]);
            /* Otherwise relu would have rows without a denominator. */
            for (size_t i = 0; !wide && i < p.n_q * query_width(&p); i++) p.q[i] = 1;
            for (size_t i = 0; !wide && i < p.n_k * key_width(&p); i++) p.k[i] = fabsf(p.k[i]);
            check_values(&r, &p);
            pool_release(mark);
        }
}

/* Every key above all before, by so much that only the last few count. */
static void growth_at_every_token(void **state)
{
    (void)state;
    rng r = {7};
    size_t n = long_length(), tail = 60;
    for (size_t map = 0; map < COUNT_OF(exponential); map++) {
        linattn_config config = {.dim_key = 5, .dim_value = 3, .map = exponential[map]};
        problem p = problem_new(config, n, n, &r, 1);
        for (size_t t = 0; t < n; t++)
            for (size_t f = 0; f < 5; f++) p.k[t * 5 + f] += (f % 2 ? 2 : 12) * (float)t;
        float *out = run_causal(&p, run_init(&p.config));
        problem last = p;
        last.n_q = last.n_k = tail;
        last.q += (n - tail) * 5;
        last.k += (n - tail) * 5;
        last.v += (n - tail) * 3;
        oracle expected = oracle_linear(&last, true);
        size_t skip = tail - 10;
        expected.value += skip * 3;
        expected.magnitude += skip * 3;
        check_close(&last, "the last ten of a long rise", out + (n - 10) * 3, 10, expected, 1e-5);
    }
}

/* ---- Saturation ----------------------------------------------------------------------------- */

/* With values of -1 and 1 in turn, the outputs are the two largest floats in turn. */
static void check_saturates(problem *p, const float sizes[2])
{
    size_t width = output_width(p), count = p->n_q * width;
    for (size_t e = 0; e < count; e++) p->v[e] = e % width % 2 ? 1 : -1;
    const float *outs[] = {run_causal(p, run_init(&p->config)), run_bidirectional(p, NULL)};
    for (size_t e = 0; e < count; e++)
        for (size_t o = 0; o < COUNT_OF(outs); o++)
            check(outs[o][e] == (e % width % 2 ? FLT_MAX : -FLT_MAX),
                  "sizes %g and %g: element %zu is %g, %s", (double)sizes[0], (double)sizes[1], e,
                  (double)outs[o][e], problem_name(p));
}

/* Without a denominator the output of the exponential maps can exceed the largest float. */
static void unnormalised_outputs_saturate(void **state)
{
    (void)state;
    static const int normalisers[] = {LINATTN_NORM_NONE, LINATTN_NORM_LENGTH};
    static const float sizes[][2] = {{60, 60}, {200, 200}, {3e38f, 3e38f}, {1e6f, -900}, {95, 0}};
    rng r = {8};
    for (size_t i = 0; i < COUNT_OF(normalisers); i++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            linattn_config config = {.dim_key = 6,
                                     .dim_value = 19,
                                     .map = LINATTN_MAP_EXP,
                                     .normaliser = (linattn_normaliser)normalisers[i]};
            problem p = problem_new(config, 40, 40, &r, 1);
            for (size_t e = 0; e < 40 * 6; e++) {
                p.q[e] = sizes[s][0];
                p.k[e] = sizes[s][1];
            }
            check_saturates(&p, sizes[s]);
        }
}

/* The same of favor: w.x' of several hundreds on both sides. */
static void unnormalised_outputs_of_favor_saturate(void **state)
{
    (void)state;
    static const float sizes[][2] = {/* w, x */ {100, 1}, {1e6f, 1}, {30, 4}};
    float w[4 * 6];
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            for (size_t i = 0; i < COUNT_OF(w); i++) w[i] = sizes[s][0];
            linattn_config config = {.dim_key = 6,
                                     .dim_value = 3,
                                     .map = (linattn_feature_map)map,
                                     .normaliser = LINATTN_NORM_NONE,
                                     .features = 4,
                                     .projection = w};
            rng r = {16};
            problem p = problem_new(config, 20, 20, &r, 1);
            for (size_t e = 0; e < 20 * 6; e++) p.q[e] = p.k[e] = sizes[s][1];
            check_saturates(&p, sizes[s]);
        }
}

/* A denominator that cancels to almost nothing under a large numerator: that of a single monomial
   may where the degree is even, too. */
static void quotients_that_cancel_stay_finite(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {LINATTN_MAP_IDENTITY, LINATTN_MAP_TAYLOR,
                                               LINATTN_MAP_EXPDEF};
    for (size_t i = 0; i < 5 * COUNT_OF(maps); i++)
        for (int normaliser = LINATTN_NORM_SUM; normaliser <= LINATTN_NORM_FEATURE; normaliser++) {
            linattn_config config = {.dim_key = 1,
                                     .dim_value = 2,
                                     .map = maps[i % COUNT_OF(maps)],
                                     .degree = 1 + i / COUNT_OF(maps),
                                     .normaliser = (linattn_normaliser)normaliser};
            float q[] = {1, 1}, k[] = {1, -1 + 0x1p-22f}, v[] = {1e36f, -1e36f, 0, 0};
            problem p = {config_resolved(config), 2, 2, q, k, v};
            for (p.config.window = 0; p.config.window <= 2; p.config.window += 2) {
                check_within(&p, run_bidirectional(&p, NULL), "bidirectional", 4, -FLT_MAX,
                             FLT_MAX);
                check_within(&p, run_causal(&p, run_init(&p.config)), "causal", 4, -FLT_MAX,
                             FLT_MAX);
            }
        }
}

/* The same for two query heads that read the state together. */
static void grouped_quotients_that_cancel_stay_finite(void **state)
{
    (void)state;
    linattn_config config = {.heads = 2,
                             .kv_heads = 1,
                             .dim_key = 20,
                             .dim_value = 2,
                             .map = LINATTN_MAP_IDENTITY,
                             .normaliser = LINATTN_NORM_SUM};
    float q[4 * 20] = {0}, k[2 * 20] = {0}, v[] = {1e36f, -1e36f, 0, 0};
    for (size_t row = 0; row < 4; row++) q[20 * row] = 1;
    k[0] = 1;
    k[20] = -1 + 0x1p-22f;
    problem p = {config_resolved(config), 2, 2, q, k, v};
    const float *out = run_causal(&p, run_init(&p.config));
    check_within(&p, out, "causal", 8, -FLT_MAX, FLT_MAX);
    for (size_t e = 4; e < 8; e++)
        check(out[e] == (e % 2 ? -FLT_MAX : FLT_MAX), "element %zu is %g", e, (double)out[e]);
}

/* ---- The maps that grow like a polynomial --------------------------------------------------- */

/* Sums of phi(k)|v| and of phi(q)phi(k)|v| just below 1e37. */
static void sums_near_the_largest_float(void **state)
{
    (void)state;
    static const float sizes[][3] = {/* q, k, v */ {0.01f, 1e4f, 1e30f},
                                     {1e-8f, 1e20f, 1e14f},
                                     {1e15f, 1e18f, 1e1f},
                                     {1, 1e3f, 1e30f}};
    rng r = {9};
    for (size_t map = 0; map < COUNT_OF(polynomial); map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++)
            for (size_t s = 0; s < COUNT_OF(sizes); s++) {
                size_t mark = pool_mark();
                linattn_config config = {.dim_key = 5,
                                         .dim_value = 9,
                                         .map = polynomial[map],
                                         .normaliser = (linattn_normaliser)normaliser};
                problem p = problem_new(config, 100, 100, &r, 1);
                for (size_t e = 0; e < 100 * 5; e++) {
                    p.q[e] = (1 + 0.5f * p.q[e]) * sizes[s][0];
                    p.k[e] = (1 + 0.5f * p.k[e]) * sizes[s][1];
                }
                for (size_t e = 0; e < 100 * 9; e++) p.v[e] *= sizes[s][2];
                check_both(&p, &p, rounding_linear(&p));
                pool_release(mark);
            }
}

/* Products of some queries and keys beyond the largest float, with values so small that the sums
   are not: windows multiply scores by values. */
static void scores_beyond_the_largest_float(void **state)
{
    (void)state;
    rng r = {26};
    for (size_t i = 0; i < (test_quick() ? 2 : 8) * COUNT_OF(polynomial); i++)
        for (int normaliser = LINATTN_NORM_FEATURE; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = 3,
                                     .kv_heads = 1,
                                     .dim_key = 1 + rng_below(&r, 20),
                                     .dim_value = 1 + rng_below(&r, 20),
                                     .map = polynomial[i % COUNT_OF(polynomial)],
                                     .normaliser = (linattn_normaliser)normaliser,
                                     .window = rng_below(&r, 4) ? window_draw(&r, 60) : 0};
            problem p = problem_new(config, 120, 120, &r, 1);
            for (size_t row = 0; row < 120 * 3; row++) {
                float size = rng_below(&r, 2) ? 1e20f : 1;
                for (size_t f = 0; f < config.dim_key; f++) p.q[row * config.dim_key + f] *= size;
            }
            for (size_t e = 0; e < 120 * config.dim_key; e++) p.k[e] *= 1e20f;
            for (size_t e = 0; e < 120 * config.dim_value; e++) p.v[e] *= 1e-10f;
            check_both(&p, &p, rounding_linear(&p));
            pool_release(mark);
        }
}

/* The unit map takes the norm of any finite vector. */
static void vectors_of_any_length(void **state)
{
    (void)state;
    static const float sizes[] = {1e-45f, 1e-38f, 1e-20f, 1e-4f, 1e-3f,
                                  1,      1e18f,  1e20f,  1e30f, 3e38f};
    rng r = {19};
    for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(sizes); i++)
        for (size_t dim = 1; dim < 130; dim = 3 * dim + 1) {
            size_t mark = pool_mark();
            linattn_config config = {.dim_key = dim,
                                     .dim_value = 5,
                                     .map = LINATTN_MAP_UNIT,
                                     .normaliser = LINATTN_NORM_NONE};
            problem p = problem_new(config, 9, 9, &r, 1);
            for (size_t e = 0; e < 9 * dim; e++) {
                p.q[e] *= sizes[i % COUNT_OF(sizes)];
                p.k[e] *= sizes[i / COUNT_OF(sizes)];
            }
            check_both(&p, &p, rounding_linear(&p));
            pool_release(mark);
        }
}

/* The same of monomials, whose powers are near the largest float for keys that are not: on one side
   1e26, on the other 0.1. */
static void sums_of_monomials_near_the_largest_float(void **state)
{
    (void)state;
    rng r = {17};
    for (int map = LINATTN_MAP_TAYLOR; map <= LINATTN_MAP_EXPDEF; map++)
        for (size_t degree = test_quick() ? 2 : 1; degree <= 8; degree += test_quick() ? 3 : 1)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++)
                for (int side = 0; side < 2; side++) {
                    size_t mark = pool_mark();
                    linattn_config config = {.dim_key = 3,
                                             .dim_value = 9,
                                             .map = (linattn_feature_map)map,
                                             .normaliser = (linattn_normaliser)normaliser,
                                             .degree = degree,
                                             .window = rng_below(&r, 3) ? 0 : 20};
                    problem p = problem_new(config, 60, 60, &r, 1);
                    float large = (float)pow(1e26, 1 / (double)degree);
                    float small = (float)pow(0.1, 1 / (double)degree);
                    for (size_t e = 0; e < 60 * 3; e++) {
                        p.q[e] = (1 + 0.5f * p.q[e]) * (side ? large : small);
                        p.k[e] = (1 + 0.5f * p.k[e]) * (side ? small : large);
                    }
                    for (size_t e = 0; e < 60 * 9; e++) p.v[e] *= 1e5f;
                    check_both(&p, &p, rounding_linear(&p));
                    pool_release(mark);
                }
}

/* Of both signs, finite whatever cancels. */
static void quotients_of_monomials_stay_finite(void **state)
{
    (void)state;
    static const float sizes[] = {1e-30f, 1e-3f, 1, 3, 1e2f};
    rng r = {18};
    size_t repeats = test_quick() ? 2 : 8;
    for (size_t i = 0; i < repeats * COUNT_OF(sizes); i++)
        for (int map = LINATTN_MAP_TAYLOR; map <= LINATTN_MAP_EXPDEF; map++)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
                size_t mark = pool_mark();
                linattn_config config = {.dim_key = 1 + rng_below(&r, 5),
                                         .dim_value = 1 + rng_below(&r, 20),
                                         .map = (linattn_feature_map)map,
                                         .normaliser = (linattn_normaliser)normaliser,
                                         .degree = 1 + rng_below(&r, 8),
                                         .window = rng_below(&r, 3) ? 0 : window_draw(&r, 40)};
                problem p = problem_new(config, 40, 40, &r, sizes[i % COUNT_OF(sizes)]);
                check_range(&p, -FLT_MAX, FLT_MAX);
                pool_release(mark);
            }
}

/* ---- Denormal numbers and infinities -------------------------------------------------------- */

static void denormal_inputs(void **state)
{
    (void)state;
    rng r = {10};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            linattn_config config = {.dim_key = 9,
                                     .dim_value = 21,
                                     .map = (linattn_feature_map)map,
                                     .normaliser = (linattn_normaliser)normaliser};
            problem p = problem_new(config, 30, 30, &r, 0x1p-127f);
            for (size_t i = 0; i < 30 * 21; i++) p.v[i] *= i % 2 ? 0x1p-127f : 1;
            check_range(&p, -1.00001f, 1.00001f);
            /* Ordinary keys and queries, denormal values. */
            rng_fill(&r, p.q, 30 * 9, 2);
            rng_fill(&r, p.k, 30 * 9, 2);
            rng_fill(&r, p.v, 30 * 21, 0x1p-127f);
            check_range(&p, -FLT_MIN, FLT_MIN);
        }
}

/* Keys of which some components are -inf: these features see nothing of the token. */
static void partly_infinite_keys(void **state)
{
    (void)state;
    static const int maps[] = {LINATTN_MAP_ELU1, LINATTN_MAP_RELU, LINATTN_MAP_EXP,
                               LINATTN_MAP_SOFTMAX};
    rng r = {11};
    for (size_t map = 0; map < COUNT_OF(maps); map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            linattn_config config = {.heads = 2,
                                     .kv_heads = 1,
                                     .dim_key = 19,
                                     .dim_value = 6,
                                     .map = (linattn_feature_map)maps[map],
                                     .normaliser = (linattn_normaliser)normaliser};
            problem p = problem_new(config, 30, 30, &r, 2);
            for (size_t i = 0; i < 30 * 19; i++)
                if (rng_below(&r, 3) == 0 || i % 19 == 4 || i < 20) p.k[i] = -test_infinity;
            check_both(&p, &p, rounding_linear(&p));
        }
}

/* Masked tokens before, between and after keys at the ends of the range. */
static void masked_among_wild(void **state)
{
    (void)state;
    rng r = {12};
    size_t repeats = test_quick() ? 10 : 100;
    for (size_t i = 0; i < repeats; i++)
        for (size_t map = 0; map < COUNT_OF(unbounded); map++) {
            size_t mark = pool_mark();
            linattn_config config = {
                .dim_key = 1 + rng_below(&r, 9), .dim_value = 5, .map = unbounded[map]};
            if (rng_below(&r, 3) == 0) config.window = window_draw(&r, 30);
            problem p = problem_new(config, 25, 25, &r, 2);
            wild_projection(&r, &p);
            wild_fill(&r, p.q, 25 * config.dim_key);
            wild_fill(&r, p.k, 25 * config.dim_key);
            for (size_t j = 0; j < 25; j++)
                for (size_t f = 0; j % 4 == 0 && f < config.dim_key; f++)
                    p.k[j * config.dim_key + f] = -test_infinity;
            check_range(&p, -1.00001f, 1.00001f);
            pool_release(mark);
        }
}

/* Exact attention: any finite queries and keys whose scaled scores are finite. */
static void softmax_with_wild_scores(void **state)
{
    (void)state;
    rng r = {13};
    size_t repeats = test_quick() ? 20 : 500;
    for (size_t i = 0; i < repeats; i++) {
        size_t mark = pool_mark();
        linattn_config config = {.heads = 2, .dim_key = 1, .dim_value = 1 + rng_below(&r, 20)};
        problem p = problem_new(config, 20, 20 + rng_below(&r, 60), &r, 3);
        wild_fill(&r, p.k, p.n_k * key_width(&p));
        for (size_t e = 0; e < 20 * query_width(&p); e++) p.q[e] = wild_draw(&r) < 0 ? -1 : 1e-3f;
        for (size_t e = 0; e < p.n_k * value_width(&p); e++) p.v[e] = 1;
        for (int causal = 0; causal < 2; causal++)
            check_within(&p, run_softmax(&p, causal, NULL), "softmax", 20 * output_width(&p),
                         1 - 1e-5f, 1 + 1e-5f);
        pool_release(mark);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(any_finite_query_and_key),
        TEST(the_largest_key_wins),
        TEST(the_query_weighs_features_across_scales),
        TEST(moving_maxima),
        TEST(factors_far_outside_the_range_of_float),
        TEST(factors_of_favor_far_outside_the_range_of_float),
        TEST(huge_keys_of_favor_are_absent),
        TEST(huge_keys_of_simplified_favor_win),
        TEST(epsilon_across_scales),
        TEST(merge_across_scales),
        TEST(merge_of_favor_across_scales),
        TEST(long_sequences),
        TEST(growth_at_every_token),
        TEST(unnormalised_outputs_saturate),
        TEST(unnormalised_outputs_of_favor_saturate),
        TEST(quotients_that_cancel_stay_finite),
        TEST(grouped_quotients_that_cancel_stay_finite),
        TEST(sums_near_the_largest_float),
        TEST(scores_beyond_the_largest_float),
        TEST(vectors_of_any_length),
        TEST(sums_of_monomials_near_the_largest_float),
        TEST(quotients_of_monomials_stay_finite),
        TEST(denormal_inputs),
        TEST(partly_infinite_keys),
        TEST(masked_among_wild),
        TEST(softmax_with_wild_scores),
    };
    test_begin();
    return RUN_TESTS("range", tests);
}
