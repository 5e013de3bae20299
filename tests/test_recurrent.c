/* The recurrences: every rule with every map against the formulas in double precision; laws that
   hold to the bit across instruction sets, cuts, threads, layouts, heads and forms of the gates;
   sums that come out and go in; what stays finite, and free of denormal numbers. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Sequences ------------------------------------------------------------------------------ */

/* Query heads, key/value heads, heads of keys (0: as many as of values). */
static const size_t head_counts[][3] = {{1, 1, 0}, {2, 2, 0}, {4, 2, 0}, {6, 2, 0}, {3, 1, 0},
                                        {5, 5, 0}, {4, 4, 2}, {6, 6, 3}, {4, 4, 1}, {3, 3, 1}};

/* Decays of each feature are multiplied up where values have so many numbers, and not below. */
enum { LONG = 64 };

/* Heads, scale and, where the rule has one, a normaliser at random. */
static linattn_config draw_config(rng *r, rule_form form, linattn_feature_map map, size_t m,
                                  size_t dv)
{
    static const float scales[] = {0, 0, 0.25f, 0.125f, 3}, epsilons[] = {0, 0.01f, 2};
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_DEFAULT, LINATTN_NORM_NONE,
                                                     LINATTN_NORM_SUM, LINATTN_NORM_LENGTH};
    const size_t *heads = head_counts[rng_below(r, COUNT_OF(head_counts))];
    linattn_config config = {.heads = heads[0],
                             .kv_heads = heads[1],
                             .key_heads = heads[2],
                             .dim_key = m,
                             .dim_value = dv,
                             .map = map,
                             .scale = scales[rng_below(r, COUNT_OF(scales))]};
    if (form == FORM_GATED || form == FORM_GATED_FEATURES) {
        config.normaliser = normalisers[rng_below(r, COUNT_OF(normalisers))];
        config.epsilon = epsilons[rng_below(r, COUNT_OF(epsilons))];
    }
    if (form != FORM_DELTA && form != FORM_MLSTM && rng_below(r, 2)) config.dim_value += LONG;
    return config;
}

/* Keys that rise: the rows of the exponential map are rescaled in the middle of a call. Only where
   nothing reads the state, which keys of such lengths would make explode. (Where they fall, and
   what was larger has decayed to nothing, rows keep their exponents and lose what is new.) */
static void add_drift(recurrence *x, float slope, float jump, rng *r)
{
    size_t width = operand_floats(x, IN_K) / x->n;
    if (x->config.map != LINATTN_MAP_EXP || x->config.rule != LINATTN_RULE_GATED) return;
    for (size_t t = 0; t < x->n; t++)
        for (size_t i = 0; i < width; i++)
            x->in[IN_K][t * width + i] += slope * (float)t + (rng_below(r, 40) ? 0 : jump);
}

static size_t draw_length(rng *r, const linattn_config *config, double limit)
{
    static const size_t lengths[] = {1, 2, 3, 5, 8, 9, 16, 17, 24, 33, 40, 70};
    double token = (double)(config->heads * config->dim_key * config->dim_value);
    for (int attempt = 0; attempt < 12; attempt++) {
        size_t n = rng_pick(r, lengths, COUNT_OF(lengths));
        if ((double)n * token <= limit) return n;
    }
    return 2;
}

static bool has_compensated(rule_form form) { return form <= FORM_BONUS || form == FORM_MLSTM; }

/* Where the rule has compensated sums, one in three has them, and so many tokens more that they are
   folded. From numbers of their own, so that other draws stay as they were. */
static size_t draw_precision(linattn_config *config, rule_form form, uint64_t seed)
{
    rng r = {seed};
    if (!has_compensated(form) || rng_below(&r, 3)) return 0;
    config->precision = LINATTN_PRECISION_COMPENSATED;
    return config->dim_key * config->dim_value < 2000 ? rng_below(&r, 4) * 48 : 0;
}

typedef void rule_law(const recurrence *x, rng *r);

/* Runs `law` under every form of every rule with every map, on random shapes; half of the states in
   16 bits, where a law holds to the bit. */
static void for_all_states(uint64_t seed, size_t repeats, rule_law *law, bool halves)
{
    rng r = {seed}, apart = {~seed}; /* so that the other draws stay as they were */
    if (test_quick()) repeats = (repeats + 3) / 4;
    for (size_t i = 0; i < repeats; i++)
        for (int form = 0; form < FORM_COUNT; form++)
            for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
                size_t mark = pool_mark();
                size_t m = rng_pick(&r, odd_dims, rng_below(&r, 4) ? 24 : ODD_DIMS);
                size_t dv = rng_pick(&r, odd_dims, rng_below(&r, 4) ? 24 : ODD_DIMS);
                linattn_config config = draw_config(&r, (rule_form)form, rule_maps[map], m, dv);
                size_t n = draw_length(&r, &config, test_quick() ? 5e4 : 4e5);
                n += draw_precision(&config, (rule_form)form, ~r.state);
                recurrence x = recurrence_new(config, (rule_form)form, n, &r);
                if (halves) x.config.state_type = state_type_draw(&apart, &x.config);
                if (rng_below(&r, 2)) add_drift(&x, 2 + rng_float(&r, 2), 25, &r);
                law(&x, &r);
                pool_release(mark);
            }
}

static void for_all(uint64_t seed, size_t repeats, rule_law *law)
{
    for_all_states(seed, repeats, law, true);
}

static void for_all_floats(uint64_t seed, size_t repeats, rule_law *law)
{
    for_all_states(seed, repeats, law, false);
}

/* ---- Accuracy ------------------------------------------------------------------------------- */

/* What is promised beside every figure of speed, of a row's size. */
#define TOLERANCE 1e-5

static void check_row(const recurrence *x, const char *verb, size_t row, const float *out,
                      const double *value, double size)
{
    for (size_t c = 0; c < x->config.dim_value; c++) {
        /* What the largest float cannot hold saturates. */
        double nearest = fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, value[c]));
        double error = fabs((double)out[c] - nearest);
        double allowed = TOLERANCE * size + (double)FLT_MIN;
        check(float_is_finite(out[c]) && error <= allowed,
              "%s: element %zu of row %zu is %.9g, expected %.9g, off by %.3g of %.3g allowed, %s",
              verb, c, row, (double)out[c], nearest, error, allowed, recurrence_name(x));
    }
}

static void check_rows(const recurrence *x, const char *verb, const float *out,
                       const rule_oracle *expected, size_t from, size_t to)
{
    size_t dv = x->config.dim_value;
    for (size_t row = from * x->config.heads; row < to * x->config.heads; row++)
        check_row(x, verb, row, out + row * dv, expected->value + row * dv, expected->size[row]);
}

static bool has_z(const linattn_config *c)
{
    return c->rule == LINATTN_RULE_MLSTM || c->normaliser == LINATTN_NORM_SUM;
}

/* Sums of float range against those of the oracle. */
static void check_sums(const recurrence *x, const char *verb, const float *sums,
                       const rule_oracle *expected)
{
    const linattn_config *c = &x->config;
    size_t matrix = c->dim_key * c->dim_value, all = c->kv_heads * matrix;
    for (size_t i = 0; i < sums_count(c); i++) {
        size_t h = i < all ? i / matrix : (i - all) / c->dim_key;
        double unit = exp(expected->log_scale[h]);
        double value = (i < all ? expected->sums[i] : expected->z[i - all]) * unit;
        double size = (i < all ? expected->sums_size[i] : expected->z_size[i - all]) * unit;
        if (!(fabs(value) < 0.9 * (double)FLT_MAX) || !(size < (double)FLT_MAX)) continue;
        /* What no normaliser needs may be there nevertheless. */
        if (i >= all && !has_z(c) && float_bits(sums[i]) == 0) continue;
        double error = fabs((double)sums[i] - value);
        check(float_is_finite(sums[i]) && error <= TOLERANCE * size + 0x1p-100,
              "%s: number %zu of %s is %.9g, expected %.9g, off by %.3g of %.3g, %s", verb, i,
              i < all ? "S" : "z", (double)sums[i], value, error, TOLERANCE * size,
              recurrence_name(x));
    }
}

static void accuracy_law(const recurrence *x, rng *r)
{
    (void)r;
    rule_oracle expected = oracle_rule(x);
    recurred actual = recurrence_run(x, NULL);
    check_rows(x, "recurrent", actual.out, &expected, 0, x->n);
    check(linattn_state_tokens(actual.state) == x->n, "%s", recurrence_name(x));
    check_status(linattn_state_check(&x->config, actual.state, actual.state_bytes), LINATTN_OK,
                 "%s", recurrence_name(x));
    check_sums(x, "export", run_export(&x->config, actual.state), &expected);
}

/* Dimensions of every kind in each other's company. */
static void accuracy(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 3, 8, 16, 17, 33, 64, 100, 128, 300, 600};
    rng r = {1};
    size_t repeats = test_quick() ? 3 : 30;
    for (size_t i = 0; i < repeats; i++)
        for (int form = 0; form < FORM_COUNT; form++)
            for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
                size_t mark = pool_mark();
                size_t m = rng_pick(&r, dims, COUNT_OF(dims));
                size_t dv = rng_pick(&r, dims, COUNT_OF(dims));
                linattn_config config = draw_config(&r, (rule_form)form, rule_maps[map], m, dv);
                size_t n = draw_length(&r, &config, test_quick() ? 2e5 : 2e6);
                recurrence x = recurrence_new(config, (rule_form)form, n, &r);
                accuracy_law(&x, &r);
                pool_release(mark);
            }
}

/* A third of the keys, heads apart. */
static void mask_some(recurrence *x, rng *r)
{
    size_t m = x->config.dim_key, rows = operand_floats(x, IN_K) / m;
    for (size_t row = 0; row < rows; row++) {
        if (rng_below(r, 3)) continue;
        for (size_t f = 0; f < m; f++) x->in[IN_K][row * m + f] = -test_infinity;
    }
}

static void masked_accuracy_law(const recurrence *x, rng *r)
{
    recurrence masked = recurrence_copy(x);
    mask_some(&masked, r);
    accuracy_law(&masked, r);
}

static void accuracy_with_masked_tokens(void **state)
{
    (void)state;
    for_all_floats(2, 5, masked_accuracy_law);
}

/* Below zero a beta makes what is known grow. */
static void betas_of_both_signs(void **state)
{
    (void)state;
    rng r = {45};
    for (size_t i = 0; i < (test_quick() ? 20 : 100); i++) {
        size_t mark = pool_mark();
        rule_form form = (rule_form)(FORM_DELTA + rng_below(&r, 3));
        linattn_config config = draw_config(&r, form, rule_maps[i % COUNT_OF(rule_maps)],
                                            rng_pick(&r, odd_dims, 26), rng_pick(&r, odd_dims, 26));
        recurrence x = recurrence_new(config, form, 12, &r);
        rng_fill(&r, x.in[IN_BETA], operand_floats(&x, IN_BETA), 2);
        accuracy_law(&x, &r);
        pool_release(mark);
    }
}

/* Thousands of tokens, off by 1e-5 of the row's largest element. */
static void long_sequences(void **state)
{
    (void)state;
    rng r = {3};
    for (int i = 0; i < 2 * FORM_COUNT; i++) {
        int form = i % FORM_COUNT;
        if (i >= FORM_COUNT && !has_compensated((rule_form)form)) continue;
        size_t mark = pool_mark(), dim = test_quick() ? 24 : 64, n = test_quick() ? 1500 : 4096;
        linattn_config config = {.dim_key = dim, .map = LINATTN_MAP_IDENTITY};
        if (form % 2) config.map = LINATTN_MAP_UNIT;
        if (i >= FORM_COUNT) config.precision = LINATTN_PRECISION_COMPENSATED;
        recurrence x = recurrence_new(config, (rule_form)form, n, &r);
        rule_oracle expected = oracle_rule(&x);
        recurred actual = recurrence_run(&x, NULL);
        for (size_t row = 0; row < n; row++) {
            double largest = 0, *value = expected.value + row * dim;
            for (size_t c = 0; c < dim; c++) largest = fmax(largest, fabs(value[c]));
            /* A row may cancel, for a query that is at right angles to all keys, and so may a
               denominator of both signs. */
            double least = form == FORM_MLSTM ? 1 : 0.05;
            largest = fmax(largest, least * expected.size[row]);
            check_row(&x, "recurrent", row, actual.out + row * dim, value, largest);
        }
        pool_release(mark);
    }
}

/* The oracle on a case that is worked out by hand, one number of everything: S after two tokens and
   what is read. */
static void oracle_by_hand(void **state)
{
    (void)state;
    static const struct {
        rule_form form;
        double S, out;
    } cases[FORM_COUNT] = {
        /* S_1 = 0.5 * 4 = 2; S_2 = 0.5 * 2 - 0.25 * 8 = -1; out = 3 * S_2 */
        {FORM_GATED, -1, -3},
        {FORM_GATED_FEATURES, -1, -3},
        /* 3 (S_1 + 2 * -0.25 * 8) */
        {FORM_BONUS, -1, -6},
        /* S_1 = 1.5 * 0.5 * 4 = 3; S_2 = 3 + 1.5 * -0.25 (8 + 0.25 * 3) = -0.28125 */
        {FORM_DELTA, -0.28125, -0.84375},
        /* S' = 1.5; 1.5 + 1.5 * -0.25 (8 + 0.25 * 1.5) = -1.640625 */
        {FORM_GATED_DELTA, -1.640625, -4.921875},
        {FORM_GATED_DELTA_FEATURES, -1.640625, -4.921875},
        /* S_1 = 2; 0.5 * 2 + 3 (0.75 * 2) - 2 = 3.5 */
        {FORM_GENERAL, 3.5, 10.5},
        {FORM_GENERAL_HEADS, 3.5, 10.5},
        /* i = e^0: S = -1, z = 0.5 * 0.5 - 0.25 = 0: -3 / max(0, 1) */
        {FORM_MLSTM, -1, -3},
    };
    rng r = {4};
    for (size_t i = 0; i < FORM_COUNT; i++) {
        linattn_config config = {.dim_key = 1, .map = LINATTN_MAP_IDENTITY};
        recurrence x = recurrence_empty(config, cases[i].form, 2, &r);
        const float keys[] = {0.5f, -0.25f}, values[] = {4, 8};
        for (size_t t = 0; t < 2; t++) {
            x.in[IN_Q][t] = 3;
            x.in[IN_K][t] = keys[t];
            x.in[IN_V][t] = values[t];
            if (x.in[IN_DECAY] && (t == 0 || !x.fixed))
                x.in[IN_DECAY][t] = x.log ? -0.69314718f : 0.5f;
            if (x.in[IN_BETA]) x.in[IN_BETA][t] = 1.5f;
            if (x.in[IN_READ]) x.in[IN_READ][t] = 0.75f;
            if (x.in[IN_WRITE]) x.in[IN_WRITE][t] = 3;
            if (x.in[IN_INPUT]) x.in[IN_INPUT][t] = 0;
        }
        if (x.in[IN_BONUS]) x.in[IN_BONUS][0] = 2;
        rule_oracle o = oracle_rule(&x);
        double S = o.sums[0] * exp(o.log_scale[0]);
        check(fabs(S - cases[i].S) < 1e-6 && fabs(o.value[1] - cases[i].out) < 1e-6,
              "%g and %g, expected %g and %g, %s", S, o.value[1], cases[i].S, cases[i].out,
              recurrence_name(&x));
    }
}

/* ---- Instruction sets, cuts, threads, layouts ----------------------------------------------- */

/* With keys that go up and down, too. */
static void isa_law(const recurrence *given, rng *r)
{
    recurrence x = recurrence_copy(given);
    add_drift(&x, rng_float(r, 4), 60, r);
    recurred actual = recurrence_run(&x, NULL);
    recurred expected = recurrence_run_on(&x, LINATTN_ISA_SCALAR);
    check_same_recurred(&x, &actual, &expected, "the bits of scalar");
}

static void instruction_sets(void **state)
{
    (void)state;
    if (test_inexact() || test_isa() == LINATTN_ISA_SCALAR) return;
    for_all(5, 12, isa_law);
}

static void cuts_law(const recurrence *given, rng *r)
{
    recurrence drifting = recurrence_copy(given), *x = &drifting;
    add_drift(x, rng_float(r, 4), 60, r);
    recurred expected = recurrence_run(x, NULL), steps = {0};
    recurrence_plan how = {.cuts = r};
    recurred actual = recurrence_run(x, &how);
    check_same_recurred(x, &actual, &expected, "random cuts");
    steps = expected;
    steps.out = pool_floats(expected.count);
    steps.state = run_init(&x->config);
    for (size_t t = 0; t < x->n; t++) recurrence_call(x, steps.state, t, t + 1, steps.out);
    check_same_recurred(x, &steps, &expected, "one call per token");
}

static void cuts(void **state)
{
    (void)state;
    for_all(6, 8, cuts_law);
}

/* Every way to cut seven tokens. */
static void every_cut(void **state)
{
    (void)state;
    enum { N = 7 };
    rng r = {7};
    for (int form = 0; form < FORM_COUNT; form++)
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
            size_t mark = pool_mark();
            linattn_config config =
                draw_config(&r, (rule_form)form, rule_maps[map], rng_pick(&r, odd_dims, 20),
                            rng_pick(&r, odd_dims, 24));
            recurrence x = recurrence_new(config, (rule_form)form, N, &r);
            recurred expected = recurrence_run(&x, NULL), actual = expected;
            actual.out = pool_floats(expected.count);
            for (unsigned set = 1; set < 1u << (N - 1); set++) {
                size_t inner = pool_mark(), from = 0;
                actual.state = run_init(&x.config);
                for (size_t t = 1; t <= N; t++)
                    if (t == N || (set >> (t - 1) & 1)) {
                        recurrence_call(&x, actual.state, from, t, actual.out);
                        from = t;
                    }
                check_same_recurred(&x, &actual, &expected, "cuts");
                pool_release(inner);
            }
            pool_release(mark);
        }
}

static void threads_law(const recurrence *x, rng *r)
{
    static const size_t counts[] = {2, 3, 7};
    recurred expected = recurrence_run(x, NULL);
    linattn_context context = {parallel_reverse, r, 0};
    recurrence_plan how = {.context = &context};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        context.threads = counts[i];
        how.cuts = i == 1 ? r : NULL;
        recurred actual = recurrence_run(x, &how);
        check_same_recurred(x, &actual, &expected, "jobs in reverse order");
    }
    if (rng_below(r, 4)) return;
    context.parallel_for = parallel_threads;
    how.cuts = NULL;
    recurred actual = recurrence_run(x, &how);
    check_same_recurred(x, &actual, &expected, "threads");
}

static void threads(void **state)
{
    (void)state;
    for_all(8, 5, threads_law);
}

/* Fewer heads than threads, as many, and more; wide values, which are cut into panels. */
static void threads_and_heads(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 7, 8, 11};
    rng r = {9};
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        for (int form = 0; form < FORM_COUNT; form++) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = counts[i] * (1 + (size_t)form % 2),
                                     .kv_heads = counts[i],
                                     .dim_key = 5 + i,
                                     .dim_value = form % 3 ? 70 : 33,
                                     .map = rule_maps[(i + (size_t)form) % COUNT_OF(rule_maps)]};
            recurrence x = recurrence_new(config, (rule_form)form, 9, &r);
            threads_law(&x, &r);
            pool_release(mark);
        }
}

typedef struct counter {
    size_t largest;
} counter;

static void parallel_counted(void *user, size_t count, linattn_job *job, void *arg)
{
    counter *c = (counter *)user;
    if (count > c->largest) c->largest = count;
    for (size_t i = 0; i < count; i++) job(arg, i);
}

/* A callback that is never used would keep the law above. */
static void work_is_shared_out(void **state)
{
    (void)state;
    rng r = {10};
    for (size_t given = 0; given < 9; given++)
        for (int form = 0; form < FORM_COUNT; form++) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = 8, .dim_key = 20, .map = LINATTN_MAP_UNIT};
            recurrence x = recurrence_new(config, (rule_form)form, 10, &r);
            counter count = {0};
            linattn_context context = {parallel_counted, &count, given};
            recurrence_plan how = {.context = &context};
            recurrence_run(&x, &how);
            check(count.largest <= given, "%zu jobs, %zu threads", count.largest, given);
            if (given > 1)
                check(count.largest == given, "%zu jobs at most, %zu threads, %s", count.largest,
                      given, recurrence_name(&x));
            pool_release(mark);
        }
}

static void layouts_law(const recurrence *x, rng *r)
{
    recurred expected = recurrence_run(x, NULL);
    recurrence_plan how = {.layouts = r, .cuts = rng_below(r, 2) ? r : NULL};
    for (int i = 0; i < 2; i++) {
        recurred actual = recurrence_run(x, &how);
        check_same_recurred(x, &actual, &expected, "strides and alignment");
    }
}

static void layouts(void **state)
{
    (void)state;
    for_all(11, 8, layouts_law);
}

/* Inputs of 16 bits, gates among them, anywhere, cut and shared out: the bits of the same numbers
   as floats. */
static void elements_law(const recurrence *given, rng *r)
{
    recurrence x = recurrence_copy(given);
    linattn_context context = context_draw(r);
    recurrence_plan how = {.layouts = r,
                           .cuts = rng_below(r, 2) ? r : NULL,
                           .context = rng_below(r, 2) ? &context : NULL,
                           .silent = rng_below(r, 8) == 0};
    recurrence_elements(r, &x, how.of);
    recurrence_plan plain = {.silent = how.silent};
    recurred expected = recurrence_run(&x, &plain), actual = recurrence_run(&x, &how);
    check_same_recurred(&x, &actual, &expected, "inputs of 16 bits");
}

static void inputs_of_16_bits(void **state)
{
    (void)state;
    for_all(61, 12, elements_law);
}

/* So many heads that their states come from memory, which single tokens fetch ahead, and of which
   some processors take their columns in another order. */
static void states_from_memory(void **state)
{
    (void)state;
    rng r = {13};
    for (int form = 0; form < FORM_COUNT; form += test_quick() ? FORM_COUNT : 1) {
        size_t mark = pool_mark();
        linattn_config config = {.heads = 350,
                                 .dim_key = 128,
                                 .dim_value = form % 2 ? 128 : 100,
                                 .map = form % 3 ? LINATTN_MAP_UNIT : LINATTN_MAP_IDENTITY};
        recurrence x = recurrence_new(config, (rule_form)form, 2, &r);
        recurred expected = recurrence_run(&x, NULL), steps = expected;
        steps.out = pool_floats(expected.count);
        steps.state = run_init(&x.config);
        for (size_t t = 0; t < x.n; t++) recurrence_call(&x, steps.state, t, t + 1, steps.out);
        check_same_recurred(&x, &steps, &expected, "one call per token");
        pool_release(mark);
    }
}

/* Every third column of the values becomes so small that some of its sums are flushed: all that are
   below 2^-78, and what a decay would make denormal. */
static void shrink_columns(recurrence *x)
{
    const size_t dv = x->config.dim_value, count = operand_floats(x, IN_V);
    for (size_t i = 0; i < count; i++)
        if (i % dv % 3 == 0) x->in[IN_V][i] *= i % dv % 2 ? 2e-23f : 3e-24f;
}

/* In one head every 16th row, or all where one decay is for all of them, decays below 2^-48: with
   the last token, or with the fifth. With the last these rows take nothing, so that no more is in
   them than what is left. */
static void exhaust_rows(recurrence *x, bool at_once)
{
    axes decays = operand_axes(x, IN_DECAY);
    size_t last = x->n - 1, t = at_once && !x->fixed ? last : 0;
    if (!x->in[IN_DECAY]) return;
    for (; t < decays.tokens; t++)
        for (size_t f = 0; f < decays.dim; f += 16) {
            float *decay = operand_row(x, IN_DECAY, t, decays.heads > 1) + f;
            *decay = at_once ? (x->log ? -37 : 1e-16f) : x->log ? -7 : 1e-3f;
        }
    for (size_t f = 0; at_once && f < x->config.dim_key; f += 16)
        for (size_t i = 0; i < 2; i++) {
            rule_input in = i ? IN_WRITE : IN_K;
            if (x->in[in]) operand_row(x, in, last, 1 % operand_axes(x, in).heads)[f] = 0;
        }
}

/* Heads that L1 does not hold, by one token and by all: their columns may come in pairs of panels,
   the last pair whole or not, which an infinite key is not to change beside the columns that there
   are. In some heads rows have decayed too far and are flushed: one by one where a decay is tiny,
   else 16 together. */
static void tokens_of_wide_heads(void **state)
{
    (void)state;
    enum { WIDTHS = 6 };
    static const size_t widths[WIDTHS] = {65, 79, 81, 96, 90, 128};
    rng r = {62};
    for (size_t i = 0; i < (test_quick() ? FORM_COUNT : (size_t)WIDTHS * FORM_COUNT); i++) {
        size_t mark = pool_mark(), form = i % FORM_COUNT;
        bool at_once = i / FORM_COUNT % 2 == 0;
        linattn_config config = {.heads = 4,
                                 .dim_key = 65 + rng_below(&r, 64),
                                 .dim_value = widths[(form + i / FORM_COUNT) % WIDTHS],
                                 .map = rng_below(&r, 2) ? LINATTN_MAP_UNIT : LINATTN_MAP_IDENTITY};
        recurrence x = recurrence_new(config, (rule_form)form, at_once ? 4 : 6, &r);
        exhaust_rows(&x, at_once);
        shrink_columns(&x);
        operand_row(&x, IN_K, 2, 2 % operand_axes(&x, IN_K).heads)[7] = test_infinity;
        recurred expected = recurrence_run(&x, NULL), steps = expected;
        steps.out = pool_floats(expected.count);
        steps.state = run_init(&x.config);
        for (size_t t = 0; t < x.n; t++) recurrence_call(&x, steps.state, t, t + 1, steps.out);
        check_same_recurred(&x, &steps, &expected, "one call per token");
        pool_release(mark);
    }
}

/* All that a token needs in one record, [q | k | v | gates | out], token by token. */
static void interleaved_operands(void **state)
{
    (void)state;
    rng r = {12};
    for (int form = 0; form < FORM_COUNT; form++) {
        size_t mark = pool_mark(), record = 0, at[OPERANDS] = {0};
        linattn_config config = {
            .heads = 4, .kv_heads = 2, .dim_key = 6, .dim_value = 19, .map = LINATTN_MAP_UNIT};
        recurrence x = recurrence_new(config, (rule_form)form, 8, &r);
        recurred expected = recurrence_run(&x, NULL);
        for (int i = 0; i < OPERANDS; i++) {
            axes e = operand_axes(&x, (rule_input)i);
            at[i] = record;
            if (x.in[i] && operand_is_of_tokens(&x, (rule_input)i)) record += e.heads * e.dim;
        }
        size_t width = recurrence_width(&x), out_at = record;
        record += width + 1;
        float *buffer = pool_floats(x.n * record);
        linattn_view views[OPERANDS];
        for (int i = 0; i < OPERANDS; i++) {
            views[i] = recurrence_view(&x, (rule_input)i, 0);
            if (!x.in[i] || !operand_is_of_tokens(&x, (rule_input)i)) continue;
            axes e = operand_axes(&x, (rule_input)i);
            for (size_t t = 0; t < x.n; t++)
                memcpy(buffer + t * record + at[i], operand_row(&x, (rule_input)i, t, 0),
                       e.heads * e.dim * sizeof(float));
            views[i] = strided(buffer + at[i], record, 0);
        }
        linattn_gates gates = recurrence_gates_of(&x, views);
        void *memory = run_init(&x.config);
        check_status(linattn_recurrent(memory, views[IN_Q], views[IN_K], views[IN_V], &gates,
                                       strided_output(buffer + out_at, record, 0), x.n, NULL),
                     LINATTN_OK, "%s", recurrence_name(&x));
        for (size_t t = 0; t < x.n; t++)
            check_same_floats(buffer + t * record + out_at, expected.out + t * width, width, width,
                              "interleaved, token %zu, %s", t, recurrence_name(&x));
        check_same_bytes(memory, expected.state, expected.state_bytes, "interleaved, %s",
                         recurrence_name(&x));
        pool_release(mark);
    }
}

static void silent_law(const recurrence *x, rng *r)
{
    recurred expected = recurrence_run(x, NULL);
    recurrence_plan how = {.silent = true, .cuts = rng_below(r, 2) ? r : NULL};
    linattn_context context = {parallel_reverse, NULL, 3};
    if (rng_below(r, 2)) how.context = &context;
    recurred actual = recurrence_run(x, &how);
    check_same_recurred(x, &actual, &expected, "without queries");
}

static void only_the_state_moves(void **state)
{
    (void)state;
    for_all(13, 5, silent_law);
}

/* Keys so much larger than those before that these leave nothing in z, but large values something
   in S: several query heads, each of which looks at the key, leave as much of it as none. */
static void large_values_of_small_keys(void **state)
{
    (void)state;
    rng r = {46};
    for (int i = 0; i < 4; i++) {
        linattn_config config = {.heads = 1 + (size_t)i,
                                 .kv_heads = 1,
                                 .dim_key = 20,
                                 .dim_value = 3,
                                 .map = LINATTN_MAP_EXP};
        recurrence x = recurrence_new(config, FORM_BONUS, 2, &r);
        for (size_t t = 0; t < x.n; t++)
            for (size_t f = 0; f < config.dim_key; f++)
                operand_row(&x, IN_K, t, 0)[f] += 5 * (float)(f * t);
        for (size_t e = 0; e < operand_floats(&x, IN_V); e++)
            x.in[IN_V][e] *= e < config.dim_value ? 1e30f : 1e-30f;
        silent_law(&x, &r);
    }
}

/* A query reads what the last token's read; it changes nothing. */
static void query_law(const recurrence *x, rng *r)
{
    (void)r;
    if (x->in[IN_BONUS]) return;
    size_t width = recurrence_width(x), last = x->n - 1;
    recurred run = recurrence_run(x, NULL);
    void *before = pool_copy(run.state, run.state_bytes);
    float *all = pool_floats(x->n * width);
    check_status(
        linattn_query(run.state, recurrence_view(x, IN_Q, 0), linattn_output_rows(all), x->n, NULL),
        LINATTN_OK, "%s", recurrence_name(x));
    check_same_floats(all + last * width, run.out + last * width, width, width,
                      "query of all tokens, %s", recurrence_name(x));
    check_status(
        linattn_query(run.state, recurrence_view(x, IN_Q, last), linattn_output_rows(all), 1, NULL),
        LINATTN_OK, "%s", recurrence_name(x));
    check_same_floats(all, run.out + last * width, width, width, "query of the last token, %s",
                      recurrence_name(x));
    check_same_bytes(run.state, before, run.state_bytes, "query, %s", recurrence_name(x));
}

static void queries_read_the_state(void **state)
{
    (void)state;
    for_all(14, 6, query_law);
}

/* With a bonus, a query reads the state as the next token's would without its own key. */
static void queries_read_past_the_bonus(void **state)
{
    (void)state;
    rng r = {15};
    for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
        linattn_config config = {.heads = 2, .dim_key = 9, .dim_value = 20, .map = rule_maps[map]};
        recurrence x = recurrence_new(config, FORM_BONUS, 12, &r);
        size_t width = recurrence_width(&x);
        memset(x.in[IN_BONUS], 0, operand_floats(&x, IN_BONUS) * sizeof(float));
        void *memory = run_init(&x.config);
        float *out = pool_floats(x.n * width), *queried = pool_floats(width);
        recurrence_call(&x, memory, 0, 11, out);
        check_status(linattn_query(memory, recurrence_view(&x, IN_Q, 11),
                                   linattn_output_rows(queried), 1, NULL),
                     LINATTN_OK, "%s", recurrence_name(&x));
        recurrence_call(&x, memory, 11, 12, out);
        for (size_t i = 0; i < width; i++)
            check(out[11 * width + i] == queried[i], "%g and %g, %s", (double)out[11 * width + i],
                  (double)queried[i], recurrence_name(&x));
    }
}

/* A copy of the state goes on as the original does. */
static void copies_law(const recurrence *x, rng *r)
{
    size_t cut = rng_below(r, x->n + 1), bytes = linattn_state_size(&x->config);
    recurred expected = recurrence_run(x, NULL), actual = expected;
    void *memory = run_init(&x->config);
    actual.out = pool_floats(expected.count);
    recurrence_call(x, memory, 0, cut, actual.out);
    actual.state = pool_copy(memory, bytes);
    recurrence_call(x, memory, cut, x->n, NULL);
    recurrence_call(x, actual.state, cut, x->n, actual.out);
    check_same_recurred(x, &actual, &expected, "a copied state");
    check_same_bytes(memory, expected.state, bytes, "the original, %s", recurrence_name(x));
    check_status(linattn_state_reset(memory), LINATTN_OK, "%s", recurrence_name(x));
    check_same_bytes(memory, run_init(&x->config), bytes, "reset, %s", recurrence_name(x));
}

static void states_are_copied(void **state)
{
    (void)state;
    for_all(16, 4, copies_law);
}

/* ---- Causality, masked tokens, heads -------------------------------------------------------- */

static const uint32_t spoilers[] = {0x7F61B1E6 /* 3e38 */, 0x7F800000, 0x7FC00000, 0x00000001};

/* Whatever comes later changes no bit of what came before, gates included. */
static void causality_law(const recurrence *x, rng *r)
{
    size_t at = rng_below(r, x->n), width = recurrence_width(x);
    recurred expected = recurrence_run(x, NULL);
    for (size_t s = 0; s < COUNT_OF(spoilers); s++) {
        recurrence spoilt = recurrence_copy(x);
        for (int i = 0; i < OPERANDS; i++) {
            if (!x->in[i] || !operand_is_of_tokens(x, (rule_input)i)) continue;
            size_t each = operand_floats(x, (rule_input)i) / x->n;
            for (size_t e = at * each; e < x->n * each; e++)
                spoilt.in[i][e] = float_from_bits(spoilers[s]) * (e % 2 ? 1.0f : -1.0f);
        }
        recurred actual = recurrence_run(&spoilt, NULL);
        check_same_floats(actual.out, expected.out, at * width, width, "later %08x, %s",
                          (unsigned)spoilers[s], recurrence_name(x));
    }
}

static void causality(void **state)
{
    (void)state;
    for_all(17, 4, causality_law);
}

/* x with masked tokens between its own: some[i] is where its token i went. What else belongs to
   them is of no use to anyone. */
static recurrence with_masked_tokens(const recurrence *x, rng *r, size_t *some)
{
    size_t n = 0;
    for (size_t t = 0; t < x->n; t++, n++) {
        n += rng_below(r, 3) ? 0 : 1 + rng_below(r, 2);
        some[t] = n;
    }
    recurrence masked = *x;
    masked.n = n += rng_below(r, 3);
    for (int i = 0; i < OPERANDS; i++) {
        if (!x->in[i] || !operand_is_of_tokens(x, (rule_input)i)) continue;
        size_t each = operand_floats(x, (rule_input)i) / x->n;
        masked.in[i] = pool_floats(n * each);
        for (size_t e = 0; e < n * each; e++)
            masked.in[i][e] = i == IN_K ? -test_infinity : i == IN_Q ? 1 : test_nan;
        for (size_t t = 0; t < x->n; t++)
            memcpy(masked.in[i] + some[t] * each, x->in[i] + t * each, each * sizeof(float));
    }
    return masked;
}

static void masked_law(const recurrence *x, rng *r)
{
    if (x->config.normaliser == LINATTN_NORM_LENGTH) return;
    size_t *some = (size_t *)pool_take(x->n * sizeof *some), width = recurrence_width(x);
    recurrence masked = with_masked_tokens(x, r, some);
    recurred expected = recurrence_run(x, NULL), actual = recurrence_run(&masked, NULL);
    for (size_t t = 0; t < x->n; t++)
        check_same_floats(actual.out + some[t] * width, expected.out + t * width, width, width,
                          "masked tokens, token %zu, %s", t, recurrence_name(x));
    check_same_floats(run_export(&x->config, actual.state), run_export(&x->config, expected.state),
                      sums_count(&x->config), x->config.dim_value, "masked tokens: sums, %s",
                      recurrence_name(x));
    check(linattn_state_tokens(actual.state) == masked.n, "%s", recurrence_name(&masked));
}

static void masked_tokens_are_absent(void **state)
{
    (void)state;
    for_all(18, 8, masked_law);
}

/* The query of a masked token reads what the state is: that of the token before. */
static void queries_of_masked_tokens(void **state)
{
    (void)state;
    rng r = {19};
    for (int form = 0; form < FORM_COUNT; form++)
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
            size_t mark = pool_mark();
            linattn_config config = {
                .heads = 2, .dim_key = 13, .dim_value = map % 2 ? 18 : 82, .map = rule_maps[map]};
            recurrence x = recurrence_new(config, (rule_form)form, 6, &r);
            size_t width = recurrence_width(&x);
            for (size_t i = 0; i < 2 * 13; i++) {
                x.in[IN_K][4 * 2 * 13 + i] = -test_infinity;
                x.in[IN_Q][4 * 2 * 13 + i] = x.in[IN_Q][3 * 2 * 13 + i];
            }
            float *out = pool_floats(6 * width), *queried = pool_floats(width);
            void *memory = run_init(&x.config);
            recurrence_call(&x, memory, 0, 6, out);
            check_status(linattn_state_reset(memory), LINATTN_OK, "reset");
            recurrence_call(&x, memory, 0, 4, NULL);
            check_status(linattn_query(memory, recurrence_view(&x, IN_Q, 4),
                                       linattn_output_rows(queried), 1, NULL),
                         LINATTN_OK, "%s", recurrence_name(&x));
            check_same_floats(out + 4 * width, queried, width, width, "a masked token, %s",
                              recurrence_name(&x));
            pool_release(mark);
        }
}

/* Heads of one input rotated by `by`. */
static void rotate(const recurrence *x, recurrence *rotated, rule_input which, size_t by)
{
    axes e = operand_axes(x, which);
    for (size_t t = 0; t < e.tokens; t++)
        for (size_t h = 0; h < e.heads; h++)
            memcpy(operand_row(rotated, which, t, h), operand_row(x, which, t, (h + by) % e.heads),
                   e.dim * sizeof(float));
}

/* Groups of heads that share a key rotated by one. */
static void permutation_law(const recurrence *x, rng *r)
{
    (void)r;
    const linattn_config *c = &x->config;
    recurrence rotated = recurrence_copy(x);
    size_t groups = c->key_heads ? c->key_heads : c->kv_heads, width = recurrence_width(x);
    for (int i = 0; i < OPERANDS; i++) {
        axes e = operand_axes(x, (rule_input)i);
        if (x->in[i] && e.heads % groups == 0) rotate(x, &rotated, (rule_input)i, e.heads / groups);
    }
    recurred expected = recurrence_run(x, NULL), actual = recurrence_run(&rotated, NULL);
    size_t shift = c->heads / groups;
    for (size_t t = 0; t < x->n; t++)
        for (size_t h = 0; h < c->heads; h++)
            check_same_floats(actual.out + t * width + h * c->dim_value,
                              expected.out + t * width + (h + shift) % c->heads * c->dim_value,
                              c->dim_value, c->dim_value, "rotated heads, token %zu, head %zu, %s",
                              t, h, recurrence_name(x));
}

static void permutation_of_heads(void **state)
{
    (void)state;
    for_all(20, 5, permutation_law);
}

/* NaN anywhere in one head makes NaN there, if at all, and nowhere else. */
static void nan_law(const recurrence *x, rng *r)
{
    const linattn_config *c = &x->config;
    size_t groups = c->key_heads ? c->key_heads : c->kv_heads, group = rng_below(r, groups);
    size_t matrix = c->dim_key * c->dim_value, states = c->kv_heads / groups;
    recurred clean = recurrence_run(x, NULL);
    float *sums = run_export(c, clean.state);
    for (int i = 0; i < OPERANDS; i++) {
        axes e = operand_axes(x, (rule_input)i);
        if (!x->in[i] || e.heads < groups) continue;
        size_t mark = pool_mark(), shared = e.heads / groups;
        recurrence spoilt = recurrence_copy(x);
        size_t token = rng_below(r, x->n), head = group * shared + rng_below(r, shared);
        operand_row(&spoilt, (rule_input)i, token, head)[rng_below(r, e.dim)] = test_nan;
        recurred actual = recurrence_run(&spoilt, NULL);
        size_t nans = 0;
        for (size_t at = 0; at < clean.count; at++) {
            size_t h = at / c->dim_value % c->heads, t = at / recurrence_width(x);
            bool later = t >= token || !operand_is_of_tokens(x, (rule_input)i);
            if (float_is_nan(actual.out[at])) nans++;
            if (h / (c->heads / groups) != group || !later)
                check(float_same(actual.out[at], clean.out[at]),
                      "NaN of input %d, token %zu, head %zu reaches token %zu, head %zu, %s", i,
                      token, head, t, h, recurrence_name(x));
        }
        float *now = run_export(c, actual.state);
        for (size_t at = 0; at < sums_count(c); at++)
            if (float_is_nan(now[at])) nans++;
        check(nans > 0, "NaN of input %d, token %zu, head %zu is lost, %s", i, token, head,
              recurrence_name(x));
        for (size_t h = 0; h < c->kv_heads; h++)
            if (h / states != group)
                check_same_floats(now + h * matrix, sums + h * matrix, matrix, c->dim_value,
                                  "NaN of input %d, head %zu in the sums of %zu, %s", i, head, h,
                                  recurrence_name(x));
        pool_release(mark);
    }
}

static void nan_stays_in_its_head(void **state)
{
    (void)state;
    for_all(21, 4, nan_law);
}

/* Heads of values that share a key: the same as with the key of each. */
static void grouped_keys(void **state)
{
    (void)state;
    rng r = {22};
    for (int form = 0; form < FORM_COUNT; form++)
        for (size_t i = 0; i < (test_quick() ? 6 : 30); i++) {
            size_t mark = pool_mark(), keys = 1 + rng_below(&r, 3), shared = 2 + rng_below(&r, 3);
            linattn_config config =
                draw_config(&r, (rule_form)form, rule_maps[i % COUNT_OF(rule_maps)],
                            rng_pick(&r, odd_dims, 26), rng_pick(&r, odd_dims, 30));
            config.kv_heads = keys * shared;
            config.heads = i % 3 == 0 ? 0 : i % 3 == 1 ? keys : keys * shared;
            config.key_heads = keys;
            recurrence x = recurrence_new(config, (rule_form)form, 1 + rng_below(&r, 12), &r);
            x.config.heads = config.heads; /* in each of the ways to say it */
            recurrence spelt = x;
            spelt.config.heads = keys * shared;
            spelt.config.key_heads = 0;
            for (int which = 0; which < OPERANDS; which++) {
                axes few = operand_axes(&x, (rule_input)which);
                axes many = operand_axes(&spelt, (rule_input)which);
                if (!x.in[which] || few.heads == many.heads) continue;
                spelt.in[which] = pool_floats(many.tokens * many.heads * many.dim);
                for (size_t t = 0; t < many.tokens; t++)
                    for (size_t h = 0; h < many.heads; h++)
                        memcpy(operand_row(&spelt, (rule_input)which, t, h),
                               operand_row(&x, (rule_input)which, t, h / shared),
                               many.dim * sizeof(float));
            }
            recurred expected = recurrence_run(&spelt, NULL), actual = expected;
            actual.out = pool_floats(expected.count);
            actual.state = run_init(&x.config);
            recurrence_call(&x, actual.state, 0, x.n, actual.out);
            check_same_floats(actual.out, expected.out, expected.count, recurrence_width(&spelt),
                              "grouped keys, %s", recurrence_name(&x));
            check_same_floats(run_export(&spelt.config, actual.state),
                              run_export(&spelt.config, expected.state), sums_count(&spelt.config),
                              config.dim_value, "grouped keys, %s", recurrence_name(&x));
            pool_release(mark);
        }
}

/* ---- Forms of the gates --------------------------------------------------------------------- */

static void check_same_run(const recurrence *x, const recurrence *y, const char *law)
{
    recurred actual = recurrence_run(x, NULL), expected = recurrence_run(y, NULL);
    check_same_floats(actual.out, expected.out, expected.count, recurrence_width(x), "%s, %s", law,
                      recurrence_name(x));
    check_same_floats(run_export(&x->config, actual.state), run_export(&y->config, expected.state),
                      sums_count(&x->config), x->config.dim_value, "%s: sums, %s", law,
                      recurrence_name(x));
}

/* x with its decay spelt out for each token, or each feature too. */
static recurrence spell_decay(const recurrence *x, bool per_feature)
{
    recurrence spelt = *x;
    spelt.fixed = false;
    spelt.per_feature = x->per_feature || per_feature;
    axes e = operand_axes(&spelt, IN_DECAY);
    spelt.in[IN_DECAY] = pool_floats(e.tokens * e.heads * e.dim);
    for (size_t t = 0; t < e.tokens; t++)
        for (size_t h = 0; h < e.heads; h++)
            for (size_t f = 0; f < e.dim; f++)
                operand_row(&spelt, IN_DECAY, t, h)[f] =
                    operand_row(x, IN_DECAY, t, h)[x->per_feature ? f : 0];
    return spelt;
}

/* May decays go into the sums some tokens at a time? */
static bool owes(const recurrence *x)
{
    const linattn_config *c = &x->config;
    return x->in[IN_DECAY] && c->state_type == LINATTN_F32 &&
           c->precision == LINATTN_PRECISION_PLAIN &&
           (c->map != LINATTN_MAP_EXP || c->rule != LINATTN_RULE_GATED);
}

static void forms_law(const recurrence *x, rng *r)
{
    (void)r;
    if (x->in[IN_DECAY]) {
        recurrence spelt = spell_decay(x, false);
        check_same_run(x, &spelt, "a decay for each token");
        if (x->config.rule != LINATTN_RULE_MLSTM) {
            rule_oracle expected = oracle_rule(x);
            spelt = spell_decay(x, true);
            recurred each = recurrence_run(&spelt, NULL);
            if (owes(x))
                check_rows(x, "a decay for each feature", each.out, &expected, 0, x->n);
            else
                check_same_run(x, &spelt, "a decay for each feature");
        }
    }
    if (x->shared) {
        recurrence spelt = *x;
        spelt.shared = false;
        size_t kv = x->config.kv_heads;
        spelt.in[IN_BETA] = pool_floats(x->n * kv);
        for (size_t i = 0; i < x->n * kv; i++) spelt.in[IN_BETA][i] = x->in[IN_BETA][i / kv];
        check_same_run(x, &spelt, "a beta for each head");
    }
}

/* Decays of heads and of features take turns on one state: what either leaves, the other goes on
   with, in the same bits however each stretch is cut. */
static void turns_law(const recurrence *x, rng *r)
{
    if (!x->in[IN_DECAY] || x->per_feature || x->config.rule == LINATTN_RULE_MLSTM) return;
    recurrence spelt = spell_decay(x, true);
    rule_oracle expected = oracle_rule(x);
    void *whole = run_init(&x->config), *single = run_init(&x->config);
    float *out = pool_floats(x->n * recurrence_width(x));
    float *other = pool_floats(x->n * recurrence_width(x));
    bool each = rng_below(r, 2);
    for (size_t t = 0, end; t < x->n; t = end, each = !each) {
        const recurrence *form = each ? &spelt : x;
        end = t + 1 + rng_below(r, x->n - t < 12 ? x->n - t : 12);
        recurrence_call(form, whole, t, end, out);
        for (size_t i = t; i < end; i++) recurrence_call(form, single, i, i + 1, other);
    }
    check_rows(x, "decays that take turns", out, &expected, 0, x->n);
    check_same_floats(other, out, x->n * recurrence_width(x), recurrence_width(x),
                      "token by token, decays that take turns, %s", recurrence_name(x));
    check_same_floats(run_export(&x->config, single), run_export(&x->config, whole),
                      sums_count(&x->config), x->config.dim_value,
                      "sums, token by token, decays that take turns, %s", recurrence_name(x));
}

/* Nor does any byte of the state tell of a cut where decays of heads came first, if they were 1. */
static void decays_of_1_take_turns(void **state)
{
    (void)state;
    enum { N = 5, MOST = 40 };
    rng r = {45};
    for (size_t m = 1; m <= MOST; m += 3) {
        size_t mark = pool_mark();
        linattn_config config = {.dim_key = m, .map = LINATTN_MAP_IDENTITY};
        config.dim_value = m % 2 ? LONG : LONG - 1;
        recurrence x = recurrence_new(config, FORM_GATED, N, &r);
        x = spell_decay(&x, false);
        for (size_t i = 0; i < N; i++) x.in[IN_DECAY][i] = (x.log ? 0.0f : 1.0f);
        recurrence each = spell_decay(&x, true);
        float *decays = each.in[IN_DECAY];
        for (size_t i = 0; i < N * m; i++) decays[i] += (x.log ? -0.01f : -0.1f) * (float)(i % 3);
        void *whole = run_init(&x.config), *single = run_init(&x.config);
        float *out = pool_floats(N * recurrence_width(&x));
        recurrence_call(&x, whole, 0, 1, out);
        recurrence_call(&each, whole, 1, N, out);
        recurrence_call(&x, single, 0, 1, out);
        for (size_t i = 1; i < N; i++) recurrence_call(&each, single, i, i + 1, out);
        check_same_state(&x.config, single, whole, "token by token after a decay of 1");
        pool_release(mark);
    }
}

static void decays_take_turns(void **state)
{
    (void)state;
    for_all_floats(29, 8, turns_law);
}

static void forms_of_gates(void **state)
{
    (void)state;
    for_all(23, 8, forms_law);
}

/* All heads have one beta. */
static void one_beta_for_all_heads(void **state)
{
    (void)state;
    rng r = {24};
    for (int i = 0; i < 12; i++) {
        size_t mark = pool_mark();
        linattn_config config = {
            .heads = 6, .kv_heads = 3, .dim_key = 10, .dim_value = 21, .map = LINATTN_MAP_UNIT};
        recurrence x = recurrence_new(config, (rule_form)(FORM_DELTA + i % 3), 8, &r);
        x.shared = true;
        forms_law(&x, &r);
        accuracy_law(&x, &r);
        pool_release(mark);
    }
}

/* Factors and their logarithms, off by their rounding. */
static void logarithms_law(const recurrence *x, rng *r)
{
    (void)r;
    if (!x->in[IN_DECAY]) return;
    recurrence factors = recurrence_copy(x), logarithms = recurrence_copy(x);
    factors.log = false;
    logarithms.log = true;
    for (size_t i = 0; i < operand_floats(x, IN_DECAY); i++) {
        double given = (double)x->in[IN_DECAY][i];
        double log_of = x->log ? given : log(given);
        logarithms.in[IN_DECAY][i] = log_of < -1e30 ? -1e30f : (float)log_of;
        factors.in[IN_DECAY][i] = (float)exp((double)logarithms.in[IN_DECAY][i]);
    }
    recurred a = recurrence_run(&factors, NULL), b = recurrence_run(&logarithms, NULL);
    rule_oracle expected = oracle_rule(&logarithms);
    check_rows(&factors, "factors", a.out, &expected, 0, x->n);
    check_rows(&logarithms, "logarithms", b.out, &expected, 0, x->n);
}

static void factors_and_logarithms(void **state)
{
    (void)state;
    for_all_floats(25, 4, logarithms_law);
}

/* A decay of 1, however it is said, is none. */
static void set_to_one(recurrence *x)
{
    for (size_t i = 0; i < operand_floats(x, IN_DECAY); i++)
        x->in[IN_DECAY][i] = x->log ? (i % 2 ? -0.0f : 0.0f) : 1.0f;
}

/* The bits of linattn_causal, whose keys and queries are the same. */
static void gated_by_one(void **state)
{
    (void)state;
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_NONE, LINATTN_NORM_SUM,
                                                     LINATTN_NORM_LENGTH};
    rng r = {26};
    for (size_t i = 0; i < (test_quick() ? 3 : 12); i++)
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++)
            for (size_t norm = 0; norm < COUNT_OF(normalisers); norm++)
                for (int way = 0; way < 8; way++) {
                    size_t mark = pool_mark();
                    linattn_config config =
                        draw_config(&r, FORM_GATED, rule_maps[map],
                                    rng_pick(&r, odd_dims, ODD_DIMS), rng_pick(&r, odd_dims, 30));
                    config.normaliser = normalisers[norm];
                    config.key_heads = 0;
                    if (config.map == LINATTN_MAP_IDENTITY || config.map == LINATTN_MAP_UNIT)
                        config.scale = 0; /* of queries alone, here */
                    size_t n = draw_length(&r, &config, test_quick() ? 2e4 : 2e5);
                    recurrence x =
                        recurrence_new(config, way & 1 ? FORM_GATED_FEATURES : FORM_GATED, n, &r);
                    add_drift(&x, rng_float(&r, 4), 60, &r);
                    x.fixed = way & 2;
                    x.log = way & 4;
                    axes e = operand_axes(&x, IN_DECAY);
                    x.in[IN_DECAY] = pool_floats(e.tokens * e.heads * e.dim);
                    set_to_one(&x);
                    recurred actual = recurrence_run(&x, NULL);
                    problem p = {.config = x.config,
                                 .n_q = n,
                                 .n_k = n,
                                 .q = x.in[IN_Q],
                                 .k = x.in[IN_K],
                                 .v = x.in[IN_V]};
                    p.config.rule = LINATTN_RULE_SUM;
                    void *memory = run_init(&p.config);
                    check_same_floats(actual.out, run_causal(&p, memory), actual.count,
                                      output_width(&p), "a decay of 1, %s", recurrence_name(&x));
                    if (config.map != LINATTN_MAP_EXP && norm == 1)
                        check_same_floats(run_export(&x.config, actual.state),
                                          run_export(&p.config, memory), sums_count(&x.config),
                                          config.dim_value, "sums, a decay of 1, %s",
                                          recurrence_name(&x));
                    pool_release(mark);
                }
}

static void delta_gated_by_one_law(const recurrence *x, rng *r)
{
    (void)r;
    if (x->config.rule != LINATTN_RULE_GATED_DELTA) return;
    recurrence gated = recurrence_copy(x), plain = *x;
    set_to_one(&gated);
    plain.config.rule = LINATTN_RULE_DELTA;
    plain.in[IN_DECAY] = NULL;
    plain.fixed = plain.log = plain.per_feature = false;
    check_same_run(&gated, &plain, "a decay of 1");
}

static void gated_delta_by_one(void **state)
{
    (void)state;
    for_all(27, 8, delta_gated_by_one_law);
}

/* A beta of zero, and what is written is nothing: the sums stay. */
static void nothing_is_written_law(const recurrence *x, rng *r)
{
    bool delta = x->config.rule == LINATTN_RULE_DELTA;
    if (!delta && x->config.rule != LINATTN_RULE_GATED_DELTA) return;
    recurrence still = recurrence_copy(x);
    for (size_t i = 0; i < operand_floats(x, IN_BETA); i++)
        still.in[IN_BETA][i] = rng_below(r, 2) ? 0.0f : -0.0f;
    set_to_one(&still);
    recurred run = recurrence_run(x, NULL);
    float *before = run_export(&x->config, run.state);
    recurrence_call(&still, run.state, 0, x->n, NULL);
    float *after = run_export(&x->config, run.state);
    for (size_t i = 0; i < sums_count(&x->config); i++)
        check(before[i] == after[i], "number %zu was %g, is %g, %s", i, (double)before[i],
              (double)after[i], recurrence_name(x));
}

static void a_beta_of_zero(void **state)
{
    (void)state;
    for_all(28, 6, nothing_is_written_law);
}

/* What is read is the key, with p = -beta k and v scaled: general is gated delta, to rounding; with
   p = 0 it is gated, to the bit. */
static void general_contains_the_others(void **state)
{
    (void)state;
    rng r = {29};
    for (size_t i = 0; i < (test_quick() ? 10 : 40); i++) {
        size_t mark = pool_mark();
        linattn_config config = {.heads = 2,
                                 .dim_key = rng_pick(&r, odd_dims, 30),
                                 .dim_value = rng_pick(&r, odd_dims, 30),
                                 .map = LINATTN_MAP_IDENTITY};
        recurrence x = recurrence_new(config, FORM_GENERAL, 20, &r), gated = x;
        gated.config.rule = LINATTN_RULE_GATED;
        gated.in[IN_READ] = gated.in[IN_WRITE] = NULL;
        recurrence silent = recurrence_copy(&x);
        for (size_t e = 0; e < operand_floats(&x, IN_WRITE); e++) silent.in[IN_WRITE][e] = 0;
        check_same_run(&silent, &gated, "p = 0");

        recurrence delta = recurrence_new(config, FORM_GATED_DELTA_FEATURES, 20, &r);
        size_t m = config.dim_key, dv = config.dim_value;
        delta.fixed = delta.log = delta.shared = x.fixed = x.log = false;
        delta.in[IN_DECAY] = pool_floats(20 * 2 * m);
        delta.in[IN_BETA] = pool_floats(20 * 2);
        x.in[IN_DECAY] = delta.in[IN_DECAY];
        recurrence same = recurrence_copy(&x);
        same.in[IN_DECAY] = delta.in[IN_DECAY];
        same.in[IN_Q] = delta.in[IN_Q];
        same.in[IN_K] = delta.in[IN_K];
        for (size_t row = 0; row < 20 * 2; row++) {
            float beta = delta.in[IN_BETA][row] = 1 + rng_float(&r, 1);
            for (size_t f = row * m; f < (row + 1) * m; f++) {
                delta.in[IN_DECAY][f] = 0.8f + rng_float(&r, 0.2f);
                same.in[IN_READ][f] = delta.in[IN_DECAY][f] * delta.in[IN_K][f];
                same.in[IN_WRITE][f] = -beta * delta.in[IN_K][f];
            }
            for (size_t c = row * dv; c < (row + 1) * dv; c++)
                same.in[IN_V][c] = beta * delta.in[IN_V][c];
        }
        rule_oracle of_delta = oracle_rule(&delta);
        recurred general = recurrence_run(&same, NULL);
        check_rows(&same, "general as delta", general.out, &of_delta, 0, 20);
        pool_release(mark);
    }
}

/* ---- The rule of the sum -------------------------------------------------------------------- */

/* linattn_recurrent is linattn_causal, and linattn_update where there are no queries. */
static void sums_are_a_rule(void **state)
{
    (void)state;
    rng r = {30};
    const linattn_gates none = {0};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++)
            for (size_t i = 0; i < 4; i++) {
                size_t mark = pool_mark(), n = 1 + rng_below(&r, 30);
                linattn_config config =
                    config_draw(&r, map, normaliser, rng_pick(&r, odd_dims, 22), 60);
                if (i == 3) config.window = window_draw(&r, 20);
                problem p = problem_new(config, n, n, &r, 2);
                void *expected = run_init(&p.config), *actual = run_init(&p.config);
                float *causal = run_causal(&p, expected), *out = pool_floats(n * output_width(&p));
                const linattn_gates *gates = i % 2 ? &none : NULL;
                check_status(linattn_recurrent(actual, linattn_rows(p.q), linattn_rows(p.k),
                                               linattn_rows(p.v), gates, linattn_output_rows(out),
                                               n, NULL),
                             LINATTN_OK, "%s", problem_name(&p));
                check_same_floats(out, causal, n * output_width(&p), output_width(&p),
                                  "recurrent, %s", problem_name(&p));
                check_same_bytes(actual, expected, linattn_state_size(&p.config), "recurrent, %s",
                                 problem_name(&p));
                check_status(linattn_state_reset(actual), LINATTN_OK, "reset");
                check_status(
                    linattn_recurrent(actual, linattn_rows(NULL), linattn_rows(p.k),
                                      linattn_rows(p.v), gates, linattn_output_rows(NULL), n, NULL),
                    config.window ? LINATTN_ERROR_UNSUPPORTED : LINATTN_OK, "%s", problem_name(&p));
                if (!config.window)
                    check_same_bytes(actual, expected, linattn_state_size(&p.config),
                                     "recurrent without queries, %s", problem_name(&p));
                pool_release(mark);
            }
}

/* ---- Many sequences ------------------------------------------------------------------------- */

/* One call for some sequences against one for each; states have seen tokens of their own. */
static void check_many(rng *r, rule_form form, linattn_feature_map map, size_t count, size_t n,
                       const linattn_context *context, bool silent)
{
    linattn_config config = draw_config(r, form, map, 1 + rng_below(r, 40), 1 + rng_below(r, 40));
    rng apart = {~r->state}; /* so that other draws stay as they were */
    n += draw_precision(&config, form, rng_next(&apart));
    config.state_type = state_type_draw(&apart, &config);
    recurrence first = recurrence_new(config, form, n, r);
    recurrence *each = (recurrence *)pool_take(count * sizeof *each);
    void **states = (void **)pool_take(count * sizeof *states);
    void **alone = (void **)pool_take(count * sizeof *alone);
    linattn_view views[OPERANDS];
    size_t bytes = linattn_state_size(&first.config), width = recurrence_width(&first);
    unsigned char *block = (unsigned char *)pool_take(count * bytes);
    for (size_t s = 0; s < count; s++) {
        recurrence past = first;
        past.n = s % 3 < n ? s % 3 : n;
        states[s] = block + (count % 2 ? count - 1 - s : s) * bytes;
        check_status(linattn_state_init(&first.config, states[s], bytes), LINATTN_OK, "init");
        recurrence_call(&past, states[s], 0, past.n, NULL);
        alone[s] = pool_copy(states[s], bytes);
        each[s] = first;
    }
    for (int i = 0; i < OPERANDS; i++) {
        views[i] = linattn_rows(first.in[i]);
        if (!first.in[i] || !operand_is_of_tokens(&first, (rule_input)i)) continue;
        size_t floats = operand_floats(&first, (rule_input)i), gap = rng_below(r, 2) * 5;
        float *all = pool_floats(count * (floats + gap));
        views[i].data = all;
        if (gap || rng_below(r, 2)) views[i].stride_sequence = floats + gap;
        for (size_t s = 0; s < count; s++) {
            size_t mark = pool_mark();
            recurrence numbers = recurrence_copy(&first);
            recurrence_fill(&numbers, r);
            each[s].in[i] = all + s * (floats + gap);
            memcpy(each[s].in[i], numbers.in[i], floats * sizeof(float));
            pool_release(mark);
        }
    }
    linattn_gates gates = recurrence_gates_of(&first, views);
    float *out = pool_floats(count * n * width), *expected = pool_floats(n * width);
    check_status(linattn_recurrent_many(states, count, silent ? linattn_rows(NULL) : views[IN_Q],
                                        views[IN_K], views[IN_V], &gates,
                                        linattn_output_rows(silent ? NULL : out), n, context),
                 LINATTN_OK, "%zu sequences, %s", count, recurrence_name(&first));
    for (size_t s = 0; s < count; s++) {
        recurrence_call(&each[s], alone[s], 0, n, expected);
        check_same_bytes(states[s], alone[s], bytes, "state %zu of %zu, %s", s, count,
                         recurrence_name(&first));
        if (!silent)
            check_same_floats(out + s * n * width, expected, n * width, width,
                              "sequence %zu of %zu, %s", s, count, recurrence_name(&first));
    }
}

static void many_sequences(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 1, 1, 2, 3, 9};
    rng r = {31};
    for (size_t i = 0; i < (test_quick() ? 2 : 10); i++)
        for (int form = 0; form < FORM_COUNT; form++)
            for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
                size_t mark = pool_mark();
                linattn_context context = {parallel_reverse, &r, rng_below(&r, 9)};
                if (rng_below(&r, 6) == 0) context.parallel_for = parallel_threads;
                check_many(&r, (rule_form)form, rule_maps[map], 1 + rng_below(&r, 9),
                           rng_pick(&r, lengths, COUNT_OF(lengths)),
                           rng_below(&r, 2) ? &context : NULL, rng_below(&r, 6) == 0);
                pool_release(mark);
            }
}

/* ---- Merge ---------------------------------------------------------------------------------- */

static bool merges(const recurrence *x)
{
    return x->config.rule == LINATTN_RULE_GATED || x->config.rule == LINATTN_RULE_MLSTM;
}

static void *state_of(const recurrence *x, size_t from, size_t to)
{
    void *memory = run_init(&x->config);
    recurrence_call(x, memory, from, to, NULL);
    return memory;
}

static void *merged(const recurrence *x, void *dst, const void *src)
{
    check_status(linattn_merge(dst, src), LINATTN_OK, "%s", recurrence_name(x));
    check_status(linattn_state_check(&x->config, dst, linattn_state_size(&x->config)), LINATTN_OK,
                 "%s", recurrence_name(x));
    return dst;
}

/* What two or three states make together is what one pass makes, and it goes on like that. */
static void merge_law(const recurrence *x, rng *r)
{
    size_t first = rng_below(r, x->n + 1), bytes = linattn_state_size(&x->config);
    if (!merges(x)) {
        void *a = state_of(x, 0, first), *b = state_of(x, first, x->n);
        void *before = pool_copy(a, bytes);
        check_status(linattn_merge(a, b), LINATTN_ERROR_UNSUPPORTED, "%s", recurrence_name(x));
        check_same_bytes(a, before, bytes, "a merge that is refused, %s", recurrence_name(x));
        return;
    }
    size_t second = first + rng_below(r, x->n + 1 - first);
    size_t third = second + rng_below(r, x->n + 1 - second);
    rule_oracle expected = oracle_rule(x);
    for (int order = 0; order < 2; order++) {
        void *a = state_of(x, 0, first), *b = state_of(x, first, second);
        void *c = state_of(x, second, third);
        void *all = order ? merged(x, a, merged(x, b, c)) : merged(x, merged(x, a, b), c);
        float *out = pool_floats(x->n * recurrence_width(x));
        check(linattn_state_tokens(all) == third, "%s", recurrence_name(x));
        recurrence_call(x, all, third, x->n, out);
        check_rows(x, "after a merge", out, &expected, third, x->n);
        check_sums(x, "after a merge", run_export(&x->config, all), &expected);
    }
}

static void merges_in_order(void **state)
{
    (void)state;
    for_all_floats(32, 12, merge_law);
}

/* Columns of S beyond dim_value stay zero whatever decays were, so that the next call finds the
   same bytes on every instruction set. */
static void merge_of_endless_decays_law(const recurrence *x, rng *r)
{
    if (!merges(x)) return;
    const linattn_config *c = &x->config;
    size_t m16 = (c->dim_key + 15) / 16 * 16, dv16 = (c->dim_value + 15) / 16 * 16;
    size_t sums = c->dim_key * dv16, before = 4 * m16 + 16 + dv16;
    bool twice = c->precision == LINATTN_PRECISION_COMPENSATED;
    size_t parts = c->kv_heads * (twice ? 2 : 1);
    if (twice && c->rule == LINATTN_RULE_GATED && c->map == LINATTN_MAP_EXP) before += m16;
    recurrence endless = recurrence_copy(x);
    for (size_t i = 0; i < operand_floats(x, IN_DECAY); i++)
        if (rng_below(r, 2)) endless.in[IN_DECAY][i] = rng_below(r, 2) ? test_infinity : test_nan;
    void *all = merged(x, state_of(x, 0, x->n / 2), state_of(&endless, x->n / 2, x->n));
    const float *head = (const float *)all + 32 + before;
    for (size_t h = 0; h < parts; h++, head += before + sums)
        for (size_t i = 0; i < sums; i++)
            if (i / (16 * c->dim_key) * 16 + i % 16 >= c->dim_value)
                check(float_bits(head[i]) == 0, "float %zu of S is %g, %s", i, (double)head[i],
                      recurrence_name(x));
}

static void merges_of_endless_decays(void **state)
{
    (void)state;
    for_all_floats(44, 4, merge_of_endless_decays_law);
}

/* Read out after a merge, nothing in between. */
static void merge_and_query_law(const recurrence *x, rng *r)
{
    if (!merges(x) || x->in[IN_BONUS]) return;
    size_t cut = rng_below(r, x->n + 1), last = x->n - 1, width = recurrence_width(x);
    rule_oracle expected = oracle_rule(x);
    void *all = merged(x, state_of(x, 0, cut), state_of(x, cut, x->n));
    float *out = pool_floats(x->n * width);
    check_status(linattn_query(all, recurrence_view(x, IN_Q, last),
                               linattn_output_rows(out + last * width), 1, NULL),
                 LINATTN_OK, "%s", recurrence_name(x));
    check_rows(x, "query of a merge", out, &expected, last, x->n);
    if (test_inexact()) return;
    void *a = state_of(x, 0, cut), *b = state_of(x, cut, x->n);
    linattn_isa_select(LINATTN_ISA_SCALAR);
    merged(x, a, b);
    linattn_isa_select(test_isa());
    check_same_bytes(all, a, linattn_state_size(&x->config), "merge by scalar code, %s",
                     recurrence_name(x));
}

static void merges_are_read(void **state)
{
    (void)state;
    for_all_floats(33, 8, merge_and_query_law);
}

/* Nothing before or after changes no sum, but for the sign of a zero. */
static void merge_with_nothing_law(const recurrence *x, rng *r)
{
    (void)r;
    if (!merges(x)) return;
    void *nothing = run_init(&x->config), *all = state_of(x, 0, x->n);
    float *sums = run_export(&x->config, all);
    float *after = run_export(&x->config, merged(x, all, nothing));
    float *before = run_export(&x->config, merged(x, nothing, all));
    for (size_t i = 0; i < sums_count(&x->config); i++)
        check(after[i] == sums[i] && before[i] == sums[i],
              "number %zu is %g, before nothing %g, after it %g, %s", i, (double)sums[i],
              (double)after[i], (double)before[i], recurrence_name(x));
}

static void merges_with_nothing(void **state)
{
    (void)state;
    for_all(34, 4, merge_with_nothing_law);
}

/* ---- Streams without end -------------------------------------------------------------------- */

enum { DOUBLINGS = 25, MORE = 1 << 20, CALL = 4096 };

/* Plain sums have come to a standstill before them. */
static size_t more_tokens(void) { return test_quick() ? MORE / 8 : MORE; }

/* A long past of one key, made by merging states with their copies, in which every value is 0; then
   as many tokens as a day has, of value 1: the share of these. */
static double share_of_the_new(linattn_config config, float decay, bool per_feature)
{
    static float keys[CALL], values[CALL], inputs[CALL];
    const float query = 0.25f, zero = 0;
    float out;
    linattn_gates gates = {.decay = linattn_rows(&decay), .decay_fixed = 1};
    gates.decay_per_feature = per_feature;
    if (config.rule == LINATTN_RULE_MLSTM) gates.input = linattn_rows(inputs);
    for (size_t i = 0; i < CALL; i++) {
        keys[i] = 0.3f;
        values[i] = 1;
    }
    size_t bytes = linattn_state_size(&config);
    void *memory = run_init(&config), *copy = pool_take(bytes);
    check_status(linattn_recurrent(memory, linattn_rows(NULL), linattn_rows(keys),
                                   linattn_rows(&zero), &gates, linattn_output_rows(NULL), 1, NULL),
                 LINATTN_OK, "%s", config_name(&config));
    for (int i = 0; i < DOUBLINGS; i++) {
        memcpy(copy, memory, bytes);
        check_status(linattn_merge(memory, copy), LINATTN_OK, "%s", config_name(&config));
    }
    for (size_t t = 0; t < more_tokens(); t += CALL)
        check_status(linattn_recurrent(memory, linattn_rows(NULL), linattn_rows(keys),
                                       linattn_rows(values), &gates, linattn_output_rows(NULL),
                                       CALL, NULL),
                     LINATTN_OK, "%s", config_name(&config));
    check_status(linattn_query(memory, linattn_rows(&query), linattn_output_rows(&out), 1, NULL),
                 LINATTN_OK, "%s", config_name(&config));
    return (double)out;
}

/* Plain sums no longer follow their decays there: what one token takes away, or adds, is less than
   half of their last place. */
static void streams_without_end(void **state)
{
    (void)state;
    static const float decays[] = {1, 1 - 0x1p-24f, 1 - 0x1p-22f, 1 - 0x1p-20f};
    for (size_t i = 0; i < 3 * COUNT_OF(decays) * COUNT_OF(rule_maps); i += test_quick() ? 7 : 1) {
        size_t mark = pool_mark();
        bool mlstm = i % 3 == 2;
        float a = decays[i / 3 % COUNT_OF(decays)];
        double past = 1, old = (double)a, recent = 0, now = 1;
        linattn_config config = {.dim_key = 1,
                                 .rule = mlstm ? LINATTN_RULE_MLSTM : LINATTN_RULE_GATED,
                                 .map = rule_maps[i / 3 / COUNT_OF(decays)],
                                 .normaliser = mlstm ? LINATTN_NORM_NONE : LINATTN_NORM_SUM};
        for (int d = 0; d < DOUBLINGS; d++, old *= old) past += past * old;
        for (size_t t = 0; t < more_tokens(); t++, now *= (double)a) recent += now;
        double expected = recent / (recent + past * now);
        /* but for a decay that all rows share, which is not a part of each */
        if (config.map == LINATTN_MAP_ELU1 && (a == 1 || i % 3 == 1)) {
            double plain = share_of_the_new(config, a, i % 3 == 1);
            check(fabs(plain - expected) > 1e-3 * expected,
                  "plain sums have become as good: %.9g, expected %.9g, decay %.9g", plain,
                  expected, (double)a);
        }
        config.precision = LINATTN_PRECISION_COMPENSATED;
        double share = share_of_the_new(config, a, i % 3 == 1);
        check(fabs(share - expected) < 1e-5 * expected, "%.9g, expected %.9g, decay %.9g, %s",
              share, expected, (double)a, config_name(&config));
        pool_release(mark);
    }
}

/* ---- Sums that come out and go in ----------------------------------------------------------- */

static bool comes_back_to_the_bit(const linattn_config *c)
{
    return c->map != LINATTN_MAP_EXP && c->rule != LINATTN_RULE_MLSTM;
}

/* Off by rounding, a zero on either side included. */
static void check_near(const float *actual, const float *expected, size_t count, double tolerance,
                       const char *what, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)actual[i] - (double)expected[i]);
        check(error <= tolerance * fabs((double)expected[i]) + 0x1p-100,
              "%s: number %zu is %.9g, was %.9g, %s", what, i, (double)actual[i],
              (double)expected[i], name);
    }
}

static void check_back(const linattn_config *c, const float *actual, const float *expected,
                       size_t count, const char *what)
{
    if (comes_back_to_the_bit(c) && c->precision) { /* where a zero loses its sign */
        for (size_t i = 0; i < count; i++)
            check(float_same(actual[i] + 0.0f, expected[i] + 0.0f), "%s, %zu: %g, not %g, %s", what,
                  i, (double)actual[i], (double)expected[i], config_name(c));
    } else if (comes_back_to_the_bit(c))
        check_same_floats(actual, expected, count, c->dim_value, "%s, %s", what, config_name(c));
    else
        check_near(actual, expected, count, 1e-6, what, config_name(c));
}

/* Into a state that has seen something else, in both orders, and on with the same bits. */
static void export_law(const recurrence *x, rng *r)
{
    const linattn_config *c = &x->config;
    size_t m = c->dim_key, dv = c->dim_value, cut = rng_below(r, x->n + 1);
    void *memory = state_of(x, 0, cut), *other = run_init(c);
    float *sums = run_export(c, memory), *z = sums + c->kv_heads * m * dv;
    /* (Exponents of rows are moved by what z would be.) */
    bool none = c->normaliser == LINATTN_NORM_NONE && !has_z(c) && c->map != LINATTN_MAP_EXP;
    float *turned = pool_floats(m * dv), *back = pool_floats(m * dv), *back_z = pool_floats(m);
    recurrence_call(x, other, 0, x->n - cut, NULL);
    for (size_t h = 0; h < c->kv_heads; h++) {
        const float *S = sums + h * m * dv;
        check_status(linattn_state_export(memory, h, 1, turned, NULL), LINATTN_OK, "%s",
                     recurrence_name(x));
        for (size_t i = 0; i < m * dv; i++)
            check(float_same(turned[i % dv * m + i / dv], S[i]), "transposed %zu, %s", i,
                  recurrence_name(x));
        for (size_t f = 0; none && f < m; f++)
            check(float_bits(z[h * m + f]) == 0, "z without a normaliser: %g, %s",
                  (double)z[h * m + f], recurrence_name(x));
        bool transposed = rng_below(r, 2) != 0, with_z = has_z(c) || rng_below(r, 2);
        check_status(linattn_state_import(other, h, transposed, transposed ? turned : S,
                                          with_z ? z + h * m : NULL),
                     LINATTN_OK, "%s", recurrence_name(x));
        check_status(linattn_state_export(other, h, 0, back, back_z), LINATTN_OK, "%s",
                     recurrence_name(x));
        check_back(c, back, S, m * dv, "S that went in");
        if (has_z(c)) check_back(c, back_z, z + h * m, m, "z that went in");
    }
    check(linattn_state_tokens(other) == x->n - cut, "import counts, %s", recurrence_name(x));
    check_status(linattn_state_check(c, other, linattn_state_size(c)), LINATTN_OK, "%s",
                 recurrence_name(x));
    /* z of both signs has low parts, which numbers do not hold, and so have compensated sums. */
    bool low = map_has_signs(c->map) && c->normaliser == LINATTN_NORM_SUM;
    bool exact = comes_back_to_the_bit(c) && !low && c->precision == LINATTN_PRECISION_PLAIN;
    if (c->normaliser == LINATTN_NORM_LENGTH) return; /* which counts */
    for (size_t i = 0; i < operand_floats(x, IN_K); i++)
        if (fabsf(x->in[IN_K][i]) > 20) return; /* sums beyond floats */
    float *expected = pool_floats(x->n * recurrence_width(x));
    float *actual = pool_floats(x->n * recurrence_width(x));
    size_t from = cut * recurrence_width(x), count = x->n * recurrence_width(x) - from;
    recurrence_call(x, memory, cut, x->n, expected);
    recurrence_call(x, other, cut, x->n, actual);
    if (exact && !owes(x)) { /* else the plain sums were rounded */
        check_same_floats(actual + from, expected + from, count, recurrence_width(x),
                          "after an import, %s", recurrence_name(x));
    } else {
        rule_oracle o = oracle_rule(x);
        check_rows(x, "after an import", actual, &o, cut, x->n);
    }
}

static void sums_come_out_and_go_in(void **state)
{
    (void)state;
    for_all_floats(35, 10, export_law);
}

/* Sums of no particular origin come back, for the sum and every rule, whatever the scale is. */
static void foreign_sums(void **state)
{
    (void)state;
    static const float scales[] = {0, 0.3f, 5};
    rng r = {36};
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++)
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++)
            for (size_t i = 0; i < COUNT_OF(scales); i++) {
                size_t mark = pool_mark(), m = 1 + rng_below(&r, 40), dv = 1 + rng_below(&r, 40);
                linattn_config config = {.heads = 3,
                                         .dim_key = m,
                                         .dim_value = dv,
                                         .map = rule_maps[map],
                                         .scale = scales[i],
                                         .rule = (linattn_rule)rule};
                config = config_resolved(config);
                void *memory = run_init(&config);
                float *S = pool_floats(m * dv), *z = pool_floats(m);
                float *back = pool_floats(m * dv), *back_z = pool_floats(m);
                rng_fill(&r, S, m * dv, 3);
                rng_fill(&r, z, m, 3);
                for (size_t f = 0; f < m; f++) z[f] = fabsf(z[f]);
                check_status(linattn_state_import(memory, 1, 0, S, z), LINATTN_OK, "%s",
                             config_name(&config));
                check_status(linattn_state_export(memory, 1, 0, back, back_z), LINATTN_OK, "%s",
                             config_name(&config));
                check_back(&config, back, S, m * dv, "S that went in");
                if (has_z(&config)) check_back(&config, back_z, z, m, "z that went in");
                for (size_t h = 0; h < 3; h += 2) { /* the others are as they were */
                    check_status(linattn_state_export(memory, h, 0, back, back_z), LINATTN_OK, "%s",
                                 config_name(&config));
                    for (size_t e = 0; e < m * dv; e++)
                        check(back[e] == 0, "head %zu, %s", h, config_name(&config));
                }
                check_status(linattn_state_import(memory, 1, 1, S, NULL), LINATTN_OK, "%s",
                             config_name(&config));
                check_status(linattn_state_export(memory, 1, 1, back, back_z), LINATTN_OK, "%s",
                             config_name(&config));
                check_back(&config, back, S, m * dv, "S that went in, transposed");
                for (size_t f = 0; f < m && config.map != LINATTN_MAP_EXP; f++)
                    check(back_z[f] == 0, "no z went in: %g, %s", (double)back_z[f],
                          config_name(&config));
                pool_release(mark);
            }
}

/* The plain sums of the rule of the sum, whatever the scale: of keys times values. */
static void sums_of_the_sum(void **state)
{
    (void)state;
    static const float scales[] = {0, 0.3f, 7};
    rng r = {37};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (size_t i = 0; i < COUNT_OF(scales); i++) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = 4,
                                     .kv_heads = 2,
                                     .dim_key = 9,
                                     .dim_value = 20,
                                     .map = (linattn_feature_map)map,
                                     .scale = scales[i],
                                     .features = 11};
            problem p = problem_new(config, 0, 25, &r, 1);
            size_t m = config_features(&p.config), dv = 20;
            void *memory = run_init(&p.config);
            run_update(&p, memory);
            double *phi = pool_doubles(m), *sums = pool_doubles(m * dv), *z = pool_doubles(m);
            double *sizes = pool_doubles(m * dv);
            float *S = pool_floats(m * dv), *Z = pool_floats(m);
            for (size_t h = 0; h < 2; h++) {
                for (size_t e = 0; e < m * dv; e++) sums[e] = sizes[e] = 0;
                for (size_t f = 0; f < m; f++) z[f] = 0;
                for (size_t t = 0; t < 25; t++) {
                    const float *k = p.k + (t * 2 + h) * 9, *v = p.v + (t * 2 + h) * dv;
                    oracle_map(&p.config, true, k, phi, NULL);
                    for (size_t f = 0; f < m; f++) {
                        if (map == LINATTN_MAP_IDENTITY) phi[f] = (double)k[f];
                        z[f] += phi[f];
                        for (size_t c = 0; c < dv; c++) {
                            sums[f * dv + c] += phi[f] * (double)v[c];
                            sizes[f * dv + c] += fabs(phi[f] * (double)v[c]);
                        }
                    }
                }
                check_status(linattn_state_export(memory, h, 0, S, Z), LINATTN_OK, "%s",
                             problem_name(&p));
                if (map_is_monomial(p.config.map)) continue; /* in an order of their own */
                for (size_t e = 0; e < m * dv; e++)
                    check(fabs((double)S[e] - sums[e]) <= 1e-5 * sizes[e] + 1e-30,
                          "S[%zu] is %g, expected %g, %s", e, (double)S[e], sums[e],
                          problem_name(&p));
                for (size_t f = 0; f < m; f++)
                    check(fabs((double)Z[f] - z[f]) <= 1e-5 * (fabs(z[f]) + 1),
                          "z[%zu] is %g, expected %g, %s", f, (double)Z[f], z[f], problem_name(&p));
            }
            pool_release(mark);
        }
}

/* An initial state that was trained: the sums go on from there. */
static void sequences_from_imported_sums(void **state)
{
    (void)state;
    rng r = {38};
    enum { M = 7, DV = 5, N = 6 };
    linattn_config config = {.dim_key = M, .dim_value = DV, .map = LINATTN_MAP_IDENTITY};
    float S[M * DV];
    rng_fill(&r, S, M * DV, 1);
    recurrence x = recurrence_new(config, FORM_GATED, N, &r);
    void *memory = run_init(&x.config);
    float out[N * DV];
    check_status(linattn_state_import(memory, 0, 0, S, NULL), LINATTN_OK, "import");
    recurrence_call(&x, memory, 0, N, out);
    double now[M * DV];
    for (size_t i = 0; i < M * DV; i++) now[i] = (double)S[i];
    for (size_t t = 0; t < N; t++) {
        double a = (double)*operand_row(&x, IN_DECAY, t, 0);
        if (x.log) a = exp(a);
        for (size_t i = 0; i < M * DV; i++)
            now[i] = a * now[i] +
                     (double)x.in[IN_K][t * M + i / DV] * (double)x.in[IN_V][t * DV + i % DV];
        for (size_t c = 0; c < DV; c++) {
            double expected = 0;
            for (size_t f = 0; f < M; f++)
                expected += (double)x.in[IN_Q][t * M + f] * now[f * DV + c];
            check(fabs(expected - (double)out[t * DV + c]) < 1e-5 * 10, "token %zu: %g, not %g", t,
                  (double)out[t * DV + c], expected);
        }
    }
    /* It has no product of decays since it was empty. */
    void *first = state_of(&x, 0, 2), *before = pool_copy(first, linattn_state_size(&x.config));
    linattn_status status = linattn_merge(first, memory);
    check(status == LINATTN_ERROR_STATE || status == LINATTN_ERROR_UNSUPPORTED, "status %d",
          (int)status);
    check_same_bytes(first, before, linattn_state_size(&x.config), "a merge that is refused");
    merged(&x, memory, first);
}

/* mLSTM's sums beyond what f16 holds, and below it: an import keeps them relative to the largest,
   as gates do. */
static void halves_from_imported_sums(void **state)
{
    (void)state;
    enum { M = 7, DV = 5 };
    rng r = {49};
    const linattn_config config = {.dim_key = M,
                                   .dim_value = DV,
                                   .map = LINATTN_MAP_IDENTITY,
                                   .rule = LINATTN_RULE_MLSTM,
                                   .state_type = LINATTN_F16};
    for (float size = 1e-20f; size < 1e25f; size *= 1e4f) {
        float sums[M * DV], z[M], S[M * DV], plain[M];
        void *memory = run_init(&config);
        for (size_t i = 0; i < M * DV; i++) sums[i] = rng_float(&r, size);
        for (size_t i = 0; i < M; i++) z[i] = rng_float(&r, size);
        check_status(linattn_state_import(memory, 0, 0, sums, z), LINATTN_OK, "import");
        check_status(linattn_state_export(memory, 0, 0, S, plain), LINATTN_OK, "export");
        check_status(linattn_state_check(&config, memory, linattn_state_size(&config)), LINATTN_OK,
                     "what was imported");
        for (size_t i = 0; i < M * DV; i++)
            check(fabsf(S[i] - sums[i]) <= 1e-3f * fabsf(sums[i]) + 1e-6f * size, "%g, expected %g",
                  (double)S[i], (double)sums[i]);
        for (size_t i = 0; i < M; i++)
            check(fabsf(plain[i] - z[i]) <= 1e-6f * fabsf(z[i]), "z is %g, expected %g",
                  (double)plain[i], (double)z[i]);
    }
}

/* Keys of -1e30, as masks have them, under compensated sums of exp that decay: one between them is
   not lost to where exponents end, and the state stays one. */
static void exponents_at_their_end(void **state)
{
    (void)state;
    const linattn_config config = {.dim_key = 1,
                                   .dim_value = 1,
                                   .map = LINATTN_MAP_EXP,
                                   .rule = LINATTN_RULE_GATED,
                                   .precision = LINATTN_PRECISION_COMPENSATED};
    const float decays[] = {0.5f, 0.9f, 1e-3f};
    for (size_t i = 0; i < COUNT_OF(decays); i++) {
        void *memory = run_init(&config);
        for (int t = 0; t < 600; t++) {
            const float k = t == 100 || t == 300 ? 0.0f : -1e30f, v = 1, q = 0;
            const linattn_gates gates = {.decay = linattn_rows(&decays[i])};
            float out;
            check_status(linattn_recurrent(memory, linattn_rows(&q), linattn_rows(&k),
                                           linattn_rows(&v), &gates, linattn_output_rows(&out), 1,
                                           NULL),
                         LINATTN_OK, "token %d", t);
            check_status(linattn_state_check(&config, memory, linattn_state_size(&config)),
                         LINATTN_OK, "decay %g, after token %d", (double)decays[i], t);
            check(float_is_finite(out), "token %d: %g", t, (double)out);
        }
    }
}

/* Beyond floats: the largest. */
static void sums_saturate(void **state)
{
    (void)state;
    enum { M = 3, DV = 4 };
    const linattn_config of_exp = {.dim_key = M, .dim_value = DV, .map = LINATTN_MAP_EXP};
    float k[M] = {0, 300, -300}, v[DV] = {1, -1, 0, 2}, S[M * DV], z[M];
    void *memory = run_init(&of_exp);
    check_status(linattn_update(memory, linattn_rows(k), linattn_rows(v), 1, NULL), LINATTN_OK,
                 "update");
    check_status(linattn_state_export(memory, 0, 0, S, z), LINATTN_OK, "export");
    const float expected[M * DV] = {1, -1, 0, 2, FLT_MAX, -FLT_MAX, 0, FLT_MAX, 0, 0, 0, 0};
    for (size_t i = 0; i < M * DV; i++)
        check(S[i] == expected[i], "S[%zu] is %g, expected %g", i, (double)S[i],
              (double)expected[i]);
    check(z[0] == 1 && z[1] == FLT_MAX && z[2] == 0, "%g %g %g", (double)z[0], (double)z[1],
          (double)z[2]);
    rng r = {39};
    recurrence x =
        recurrence_new((linattn_config){.dim_key = M, .dim_value = DV, .map = LINATTN_MAP_IDENTITY},
                       FORM_MLSTM, 1, &r);
    memcpy(x.in[IN_V], v, sizeof v);
    x.in[IN_INPUT][0] = 1e4f;
    float *sums = run_export(&x.config, recurrence_run(&x, NULL).state);
    for (size_t i = 0; i < M * DV; i++) {
        float sign = x.in[IN_K][i / DV] * v[i % DV];
        check(sums[i] == (sign == 0  ? 0
                          : sign > 0 ? FLT_MAX
                                     : -FLT_MAX),
              "S[%zu] is %g", i, (double)sums[i]);
    }
}

/* Favor keeps them times the root of the number of features, which may be beyond floats. */
static void large_sums_of_favor(void **state)
{
    (void)state;
    enum { M = 40, DV = 4 };
    rng r = {48};
    float *const w = pool_floats(M), *const S = pool_floats(M * DV), *const z = pool_floats(M);
    float *const sums = pool_floats(M * DV);
    rng_fill_normal(&r, w, M);
    const linattn_config config = {
        .dim_key = 1, .dim_value = DV, .map = LINATTN_MAP_FAVOR, .features = M, .projection = w};
    void *memory = run_init(&config);
    for (size_t i = 0; i < M * DV; i++) sums[i] = rng_float(&r, 3e38f);
    for (size_t i = 0; i < M; i++) z[i] = 1e36f * (float)(1 + i);
    for (int with_z = 0; with_z < 2; with_z++) {
        check_status(linattn_state_import(memory, 0, 0, sums, with_z ? z : NULL), LINATTN_OK,
                     "import");
        check_status(linattn_state_export(memory, 0, 0, S, NULL), LINATTN_OK, "export");
        for (size_t i = 0; i < M * DV; i++)
            check(fabsf(S[i] - sums[i]) <= 1e-6f * fabsf(sums[i]), "%g, expected %g", (double)S[i],
                  (double)sums[i]);
    }
}

/* Of two parts, each of which alone is beyond floats, and of either sign. */
static void compensated_sums_saturate(void **state)
{
    (void)state;
    enum { N = 197, DV = 40 };
    static float k[N], v[N][DV];
    const linattn_config config = {.dim_key = 1,
                                   .dim_value = DV,
                                   .map = LINATTN_MAP_EXP,
                                   .precision = LINATTN_PRECISION_COMPENSATED};
    rng r = {46};
    float S[DV], z;
    for (size_t t = 0; t < N; t++) {
        k[t] = 150;
        for (size_t i = 0; i < DV; i++) v[t][i] = 2 + rng_float(&r, 1);
    }
    for (size_t n = 96; n <= N; n += 96 + 5) { /* folded, and once more with tokens since then */
        void *memory = run_init(&config);
        check_status(linattn_update(memory, linattn_rows(k), linattn_rows(v[0]), n, NULL),
                     LINATTN_OK, "update");
        check_status(linattn_state_export(memory, 0, 0, S, &z), LINATTN_OK, "export");
        for (size_t i = 0; i < DV; i++)
            check(S[i] == FLT_MAX, "%zu tokens: S[%zu] is %g", n, i, (double)S[i]);
        check(z == FLT_MAX, "%zu tokens: z is %g", n, (double)z);
    }
}

/* ---- Finite, and no denormal numbers -------------------------------------------------------- */

static void check_finite(const recurrence *x, const float *numbers, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        check(float_is_finite(numbers[i]), "%s: number %zu is %g, %s", what, i, (double)numbers[i],
              recurrence_name(x));
}

static void check_finite_sums(const recurrence *x, const void *memory)
{
    size_t mark = pool_mark();
    check_finite(x, run_export(&x->config, memory), sums_count(&x->config), "sums");
    pool_release(mark);
}

static void check_no_denormals(const recurrence *x, const void *memory, size_t t)
{
    size_t mark = pool_mark();
    float *sums = run_export(&x->config, memory);
    check_finite(x, sums, sums_count(&x->config), "sums");
    for (size_t i = 0; i < sums_count(&x->config); i++)
        check(sums[i] == 0 || fabsf(sums[i]) >= FLT_MIN, "number %zu is %g after token %zu, %s", i,
              (double)sums[i], t, recurrence_name(x));
    pool_release(mark);
}

static void count_denormals(const recurrence *x, const void *memory, size_t *denormals,
                            size_t *numbers)
{
    float *sums = run_export(&x->config, memory);
    size_t count = sums_count(&x->config);
    for (size_t i = 0; i < count; i++) *denormals += sums[i] != 0 && fabsf(sums[i]) < FLT_MIN;
    *numbers += count;
}

/* Values, and then none: the state decays, at one pace or at that of each feature. Now and then a
   key has components that are small. */
static void check_decaying(rng *r, rule_form form, linattn_feature_map map, size_t least, size_t n)
{
    static const float paces[] = {0, 1, 1e-30f, 1e-3f, 0.5f, 0.9f, 0.97f, 0.99f};
    linattn_config config = {.heads = 8,
                             .dim_key = 1 + rng_below(r, 20),
                             .dim_value = least + rng_below(r, 34),
                             .map = map};
    recurrence x = recurrence_new(config, form, n, r);
    size_t m = config.dim_key, each = x.per_feature ? 8 * m : 8;
    for (size_t i = 0; i < operand_floats(&x, IN_DECAY); i++) {
        size_t at = x.per_feature ? i % each / m + i % m : i % each;
        float pace = paces[at % COUNT_OF(paces)];
        x.in[IN_DECAY][i] = !x.log ? pace : pace > 0 ? (float)log((double)pace) : -1e30f;
    }
    for (size_t t = 0; t < n; t++) {
        for (size_t i = 0; i < 8 * config.dim_value; i++)
            if (t > 8) x.in[IN_V][t * 8 * config.dim_value + i] = i % 7 == 6 ? -0.0f : 0.0f;
        for (size_t i = 0; i < 8 * m; i++)
            if (map == LINATTN_MAP_IDENTITY && rng_below(r, 5) == 0)
                x.in[IN_K][t * 8 * m + i] *= rng_below(r, 2) ? 1e-12f : 0;
    }
    void *memory = run_init(&x.config);
    float *out = pool_floats(n * recurrence_width(&x));
    size_t denormals = 0, numbers = 0;
    for (size_t t = 0, step; t < n; t += step) {
        step = 1 + rng_below(r, 60);
        if (step > n - t) step = n - t;
        recurrence_call(&x, memory, t, t + step, out);
        if (form == FORM_DELTA) /* which has no decay */
            check_finite_sums(&x, memory);
        else if (form > FORM_DELTA && form < FORM_MLSTM)
            count_denormals(&x, memory, &denormals, &numbers);
        else
            check_no_denormals(&x, memory, t + step);
    }
    /* what keys read may cancel to anything, for a few tokens */
    check(denormals * 200 <= numbers, "%zu of %zu numbers are denormal, %s", denormals, numbers,
          recurrence_name(&x));
    check_finite(&x, out, n * recurrence_width(&x), "outputs");
}

static void states_decay_to_zero(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {LINATTN_MAP_IDENTITY, LINATTN_MAP_UNIT,
                                               LINATTN_MAP_RELU};
    rng r = {40};
    for (int form = 0; form < FORM_MLSTM; form++)
        for (size_t map = 0; map < COUNT_OF(maps); map++) {
            size_t mark = pool_mark();
            check_decaying(&r, (rule_form)form, maps[map], 1, test_quick() ? 1000 : 12000);
            if (form != FORM_DELTA)
                check_decaying(&r, (rule_form)form, maps[map], LONG, test_quick() ? 1000 : 4000);
            pool_release(mark);
        }
}

/* Under the normaliser of the sum z decays, too, down to zero: then zeros come out. */
static void denominators_decay_to_zero(void **state)
{
    (void)state;
    rng r = {41};
    enum { N = 3000 };
    for (int form = FORM_GATED; form <= FORM_GATED_FEATURES; form++)
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
            size_t mark = pool_mark();
            linattn_config config = {.dim_key = 5,
                                     .dim_value = 3,
                                     .map = rule_maps[map],
                                     .normaliser = LINATTN_NORM_SUM};
            recurrence x = recurrence_new(config, (rule_form)form, N, &r);
            for (size_t i = 0; i < operand_floats(&x, IN_DECAY); i++)
                x.in[IN_DECAY][i] = x.log ? -0.3f : 0.7f;
            bool exponents = config.map == LINATTN_MAP_EXP;
            for (size_t i = 5; i < N * 5; i++)
                x.in[IN_K][i] = exponents || config.map == LINATTN_MAP_ELU1 ? -1e30f : 0;
            void *memory = run_init(&x.config);
            float *out = pool_floats(N * 3);
            recurrence_call(&x, memory, 0, N, out);
            check_finite(&x, out, N * 3, "outputs");
            for (size_t i = 0; i < 3 && !exponents; i++)
                check(out[(N - 1) * 3 + i] == 0, "%g, %s", (double)out[(N - 1) * 3 + i],
                      recurrence_name(&x));
            pool_release(mark);
        }
}

/* Any finite input gate, decays from 0 to 1, in all successions. */
static void mlstm_with_wild_gates(void **state)
{
    (void)state;
    static const float inputs[] = {3e38f, -3e38f, 1e30f, 1e4f, -1e4f, 100, -100, 0, 1, 1e-40f};
    static const float decays[] = {-1e30f, 0, -1e-3f, -0.5f, -90, -1e4f};
    static const float factors[] = {0, 1, 0.999f, 0.5f, 1e-38f, 1e-45f};
    rng r = {42};
    for (size_t i = 0; i < (test_quick() ? 40 : 400); i++) {
        size_t mark = pool_mark(), n = 1 + rng_below(&r, i % 3 ? 60 : 250);
        linattn_config config = {.heads = 2,
                                 .dim_key = 1 + rng_below(&r, 20),
                                 .dim_value = 1 + rng_below(&r, 20),
                                 .map = rule_maps[i % COUNT_OF(rule_maps)]};
        if (i % 3 == 0) config.precision = LINATTN_PRECISION_COMPENSATED;
        recurrence x = recurrence_new(config, FORM_MLSTM, n, &r);
        size_t kinds = 1 + rng_below(&r, COUNT_OF(inputs));
        for (size_t e = 0; e < operand_floats(&x, IN_INPUT); e++)
            x.in[IN_INPUT][e] = inputs[COUNT_OF(inputs) - 1 - rng_below(&r, kinds)];
        for (size_t e = 0; e < operand_floats(&x, IN_DECAY); e++)
            x.in[IN_DECAY][e] = (x.log ? decays : factors)[rng_below(&r, COUNT_OF(decays))];
        recurred run = recurrence_run(&x, NULL);
        check_finite(&x, run.out, run.count, "outputs");
        check_finite_sums(&x, run.state);
        check_status(linattn_state_check(&x.config, run.state, run.state_bytes), LINATTN_OK, "%s",
                     recurrence_name(&x));
        void *merged_state = merged(&x, state_of(&x, 0, n / 2), state_of(&x, n / 2, n));
        check_finite_sums(&x, merged_state);
        cuts_law(&x, &r);
        if (!test_inexact()) isa_law(&x, &r);
        pool_release(mark);
    }
}

/* Gates far outside the range of floats against the oracle, whose stabiliser is another. */
static void mlstm_across_scales(void **state)
{
    (void)state;
    static const float heights[] = {20, 200, 1000};
    rng r = {43};
    for (size_t i = 0; i < (test_quick() ? 30 : 150); i++) {
        size_t mark = pool_mark(), n = i % 2 ? 40 : 140;
        linattn_feature_map map = rule_maps[i % COUNT_OF(rule_maps)];
        /* One stabiliser for all features of a head: where the largest token has none of one, what
           others have of it must be in the range of floats. */
        float height = map == LINATTN_MAP_RELU ? 15 : heights[i % COUNT_OF(heights)];
        float slope = map == LINATTN_MAP_RELU ? 0.5f : rng_float(&r, height / 10);
        linattn_config config = {.heads = 2,
                                 .dim_key = 1 + rng_below(&r, 30),
                                 .dim_value = 1 + rng_below(&r, 30),
                                 .map = map};
        if (i % 2 == 0) config.precision = LINATTN_PRECISION_COMPENSATED;
        /* A token whose gates let less than 2^-87 of the past be heard may drop it. */
        if (i % 2 == 0 && map == LINATTN_MAP_EXP) height = 20, slope = 1;
        recurrence x = recurrence_new(config, FORM_MLSTM, n, &r);
        for (size_t e = 0; e < operand_floats(&x, IN_INPUT); e++)
            x.in[IN_INPUT][e] = rng_float(&r, height) + slope * (float)(e / 2);
        accuracy_law(&x, &r);
        pool_release(mark);
    }
}

/* The exponential map, where keys fall as fast as what is older decays: exponents are lowered again
   and again, between folds and across them; and raised where keys jump. */
static void exponents_under_decays(void **state)
{
    (void)state;
    static const float rates[] = {0.05f, 0.5f, 2, 4}; /* doubles hold e^-700 */
    rng r = {45};
    for (size_t i = 0; i < (test_quick() ? 12 : 150); i++) {
        size_t mark = pool_mark(), n = 170;
        linattn_config config = {.heads = 1 + rng_below(&r, 3),
                                 .kv_heads = 1,
                                 .dim_key = i % 10 ? 1 + rng_below(&r, 20) : 150,
                                 .dim_value = 1 + rng_below(&r, 20),
                                 .map = LINATTN_MAP_EXP};
        rule_form form = (rule_form)(i % 3);
        if (form != FORM_BONUS) config.normaliser = LINATTN_NORM_SUM;
        if (rng_below(&r, 4)) config.precision = LINATTN_PRECISION_COMPENSATED;
        recurrence x = recurrence_new(config, form, n, &r);
        float rate = rates[i % COUNT_OF(rates)];
        size_t jump = 80 + rng_below(&r, 40);
        for (size_t e = 0; e < operand_floats(&x, IN_DECAY); e++)
            x.in[IN_DECAY][e] = x.log ? -rate : expf(-rate);
        for (size_t t = 0; t < n; t++)
            for (size_t f = 0; f < config.dim_key; f++)
                operand_row(&x, IN_K, t, 0)[f] -=
                    rate * (float)t - (t > jump && i % 3 ? 10 * rate : 0);
        accuracy_law(&x, &r);
        cuts_law(&x, &r);
        if (!test_inexact()) isa_law(&x, &r);
        pool_release(mark);
    }
}

/* Decays of which nothing is left, or next to nothing: r reads what is there before that, also
   where features come in chunks and heads in blocks of one token. */
static void reads_before_decays_erase(void **state)
{
    (void)state;
    static const float decays[] = {0, 1e-45f, 1e-40f, 1.5e-38f, 1e-36f, 1e-34f, 1e-20f};
    static const float sizes[] = {1, 1e-5f, 1e-10f};
    rng r = {53};
    for (size_t i = 0; i < (test_quick() ? 24 : 240); i++) {
        size_t mark = pool_mark();
        linattn_config config = {.heads = 1 + rng_below(&r, 2),
                                 .kv_heads = 1,
                                 .dim_key = i % 6 ? 1 + rng_below(&r, 20) : 600,
                                 .dim_value = 1 + rng_below(&r, 40) + (i / 2 % 2 ? LONG : 0)};
        recurrence x = recurrence_new(config, i % 2 ? FORM_GENERAL : FORM_GENERAL_HEADS, 12, &r);
        float size = sizes[i % COUNT_OF(sizes)];
        for (size_t e = 0; e < operand_floats(&x, IN_V); e++) x.in[IN_V][e] *= size;
        for (size_t e = 0; e < operand_floats(&x, IN_DECAY); e++) {
            float a = decays[rng_below(&r, COUNT_OF(decays))];
            if (rng_below(&r, 3) == 0)
                x.in[IN_DECAY][e] = !x.log ? a : a > 0 ? (float)log((double)a) : -test_infinity;
        }
        accuracy_law(&x, &r);
        cuts_law(&x, &r);
        if (!test_inexact()) isa_law(&x, &r);
        pool_release(mark);
    }
}

/* Forget gates below FLT_MIN, beside an input gate that outweighs them by far. */
static void mlstm_forgets_by_denormals(void **state)
{
    (void)state;
    static const float decays[] = {1e-37f, FLT_MIN, 1e-38f, 1e-40f, 1e-45f};
    static const float inputs[] = {1000, 0}, ones[] = {1, 1}, values[] = {1, 5};
    for (int precision = 0; precision < 2; precision++)
        for (size_t i = 0; i < COUNT_OF(decays); i++) {
            linattn_config config = {.dim_key = 1,
                                     .rule = LINATTN_RULE_MLSTM,
                                     .precision = (linattn_precision)precision};
            float decay[] = {1, decays[i]}, out[2];
            linattn_gates gates = {.decay = linattn_rows(decay), .input = linattn_rows(inputs)};
            size_t mark = pool_mark();
            check_status(linattn_recurrent(run_init(&config), linattn_rows(ones),
                                           linattn_rows(ones), linattn_rows(values), &gates,
                                           linattn_output_rows(out), 2, NULL),
                         LINATTN_OK, "recurrent");
            check(fabsf(out[0] - 1) < 1e-6f && fabsf(out[1] - 1) < 1e-6f, "%g %g after %g",
                  (double)out[0], (double)out[1], (double)decays[i]);
            pool_release(mark);
        }
}

/* The exponential map: a decay of 0 makes room for any key, however far below what it ends. */
static void exponents_after_resets(void **state)
{
    (void)state;
    rng r = {54};
    for (size_t i = 0; i < (test_quick() ? 24 : 240); i++) {
        size_t mark = pool_mark(), n = 30;
        linattn_config config = {.heads = 1 + rng_below(&r, 2),
                                 .kv_heads = 1,
                                 .dim_key = i % 6 ? 1 + rng_below(&r, 20) : 150,
                                 .dim_value = 1 + rng_below(&r, 20),
                                 .map = LINATTN_MAP_EXP,
                                 .normaliser = LINATTN_NORM_SUM};
        if (i % 3 == 2) config.precision = LINATTN_PRECISION_COMPENSATED;
        recurrence x = recurrence_new(config, i % 2 ? FORM_GATED : FORM_GATED_FEATURES, n, &r);
        size_t each = x.per_feature ? config.dim_key : 1;
        x.fixed = false;
        x.in[IN_DECAY] = pool_floats(n * each);
        for (size_t t = 0; t < n; t++) {
            /* all at once: a document ends */
            bool end = t % 7 == 6;
            float size = t / 7 % 2 ? -90 : 90;
            for (size_t e = 0; e < each; e++)
                x.in[IN_DECAY][t * each + e] = end     ? (x.log ? -test_infinity : 0)
                                               : x.log ? -0.1f
                                                       : 0.9f;
            for (size_t f = 0; f < config.dim_key; f++)
                operand_row(&x, IN_K, t, 0)[f] += end ? -size : size;
        }
        accuracy_law(&x, &r);
        cuts_law(&x, &r);
        if (!test_inexact()) isa_law(&x, &r);
        pool_release(mark);
    }
}

/* A logarithm of which e^x is 0 is such a decay, of all features or of each: on either side of
   where that begins both give the same bits. */
static void resets_by_logarithms(void **state)
{
    (void)state;
    enum { N = 3, M = 2 };
    static const float keys[N * M] = {40, 40, -40, -40, -39, -41}, queries[N * M];
    static const float values[N] = {1, 5, 2};
    for (float decay = -120; decay < -70; decay += 0.25f) {
        linattn_config config = {.dim_key = M,
                                 .dim_value = 1,
                                 .map = LINATTN_MAP_EXP,
                                 .rule = LINATTN_RULE_GATED,
                                 .normaliser = LINATTN_NORM_SUM};
        const float of_all[N] = {-1, decay, -0.5f};
        const float of_each[N * M] = {-1, -1, decay, decay, -0.5f, -0.5f};
        float out[2][N];
        size_t mark = pool_mark();
        for (int each = 0; each < 2; each++) {
            linattn_gates gates = {.decay = linattn_rows(each ? of_each : of_all),
                                   .decay_per_feature = each,
                                   .decay_log = 1};
            check_status(linattn_recurrent(run_init(&config), linattn_rows(queries),
                                           linattn_rows(keys), linattn_rows(values), &gates,
                                           linattn_output_rows(out[each]), N, NULL),
                         LINATTN_OK, "recurrent");
        }
        check_same_floats(out[1], out[0], N, 1, "each feature's decay is that of all");
        if (decay < -88)
            check(fabsf(out[0][1] - 5) < 1e-5f, "%g after %g", (double)out[0][1], (double)decay);
        pool_release(mark);
    }
}

/* Decays below 0, as the formula has them: what a row has decayed by in all, which is below 0 then,
   is flushed at token 27, whether or not another row has the tokens looked at one by one. */
static void decays_below_zero(void **state)
{
    (void)state;
    enum { N = 30, M = 5 };
    static const float row[N - 24] = {1, -0.5f, 0.5f, 1, 1, 1};
    rng r = {52};
    for (size_t dv = 3; dv < LONG + 4; dv += LONG) {
        linattn_config config = {.dim_key = M, .dim_value = dv, .map = LINATTN_MAP_IDENTITY};
        recurrence x = recurrence_new(config, FORM_GATED_FEATURES, N, &r);
        x.fixed = x.log = false;
        x.in[IN_DECAY] = pool_floats(N * M);
        for (size_t t = 0; t < N; t++)
            for (size_t f = 0; f < M; f++)
                operand_row(&x, IN_DECAY, t, 0)[f] = f == 0 && t > 23 ? row[t - 24]
                                                     : t == 0         ? -1.0f
                                                     : t < 13         ? 0x1p-10f
                                                     : t < 18         ? 0.5f
                                                                      : 0.93f;
        recurred expected = recurrence_run(&x, NULL), actual = expected;
        for (size_t step = 1; step < N; step += 6) {
            actual.out = pool_floats(expected.count);
            actual.state = run_init(&x.config);
            for (size_t t = 0; t < N; t += step)
                recurrence_call(&x, actual.state, t, t + step < N ? t + step : N, actual.out);
            check_same_recurred(&x, &actual, &expected, "cuts");
        }
        if (!test_inexact()) isa_law(&x, &r);
    }
}

/* Nor do they, or -0, leave a sign beyond the columns, which states have room for and queries do
   not see: one token, as others may clear it again. */
/* Keys are divided by what their rows owe, which AVX-512 does by an estimate of the reciprocal:
   every ninth significand that can be owed, and all of the largest, where such estimates are
   rounded to the wrong side. The first token makes rows owe as much as they may, the second decays
   by that significand and has the only key. */
static void keys_are_divided_by_what_is_owed(void **state)
{
    enum { M = 512, TOKENS = 5 };
    static const uint32_t ends[2][2] = {{0x00000000, 0x007f0000}, {0x007f0000, 0x00800000}};
    const uint32_t steps[] = {test_quick() ? 509 : 9, test_quick() ? 31 : 1};
    linattn_config config = {.heads = 1,
                             .dim_key = M,
                             .dim_value = LONG,
                             .map = LINATTN_MAP_IDENTITY,
                             .rule = LINATTN_RULE_GATED};
    size_t bytes = linattn_state_size(&config);
    void *one = pool_take(bytes), *other = pool_take(bytes);
    float *k = pool_floats(TOKENS * M), *v = pool_floats(TOKENS * LONG);
    float *decay = pool_floats(TOKENS * M), *out = pool_floats(TOKENS * LONG);
    linattn_gates gates = {.decay = linattn_rows(decay), .decay_per_feature = 1};
    (void)state;
    if (test_inexact() || test_isa() == LINATTN_ISA_SCALAR) return;
    for (size_t i = 0; i < TOKENS * M; i++) {
        decay[i] = i < M ? 0.5f : 1.0f;
        k[i] = i / M == 1 ? 1.0f : 0.0f;
    }
    for (size_t i = 0; i < TOKENS * LONG; i++) v[i] = 1.0f;
    for (int range = 0; range < 2; range++)
        for (uint32_t at = ends[range][0]; at < ends[range][1];) {
            for (size_t f = 0; f < M; f++, at += steps[range])
                decay[M + f] = float_from_bits(0x3f000000 | (at & 0x007fffff));
            for (int scalar = 0; scalar < 2; scalar++) {
                linattn_isa_select(scalar ? LINATTN_ISA_SCALAR : test_isa());
                check_status(linattn_state_init(&config, scalar ? other : one, bytes), LINATTN_OK,
                             "%zu bytes", bytes);
                check_status(linattn_recurrent(scalar ? other : one, linattn_rows(k),
                                               linattn_rows(k), linattn_rows(v), &gates,
                                               linattn_output_rows(out), TOKENS, NULL),
                             LINATTN_OK, "%d tokens", TOKENS);
            }
            check(memcmp(one, other, bytes) == 0, "the bits differ before significand %06x",
                  (unsigned)at);
        }
}

static void signs_beyond_columns(void **state)
{
    (void)state;
    enum { M = 14 };
    static const rule_form forms[] = {FORM_GATED_FEATURES, FORM_BONUS, FORM_GATED_DELTA_FEATURES,
                                      FORM_GENERAL};
    rng r = {53};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (size_t dv = 3; dv < LONG + 16; dv += 9) {
            linattn_config config = {.dim_key = M, .dim_value = dv, .map = LINATTN_MAP_IDENTITY};
            recurrence x = recurrence_new(config, forms[i], 1, &r);
            size_t mark = pool_mark();
            x.fixed = x.log = false;
            x.in[IN_DECAY] = pool_floats(operand_floats(&x, IN_DECAY));
            for (size_t f = 0; f < operand_floats(&x, IN_DECAY); f++)
                x.in[IN_DECAY][f] = f % 3 == 0 ? -0.0f : f % 3 == 1 ? -0.75f : 0.5f;
            recurred actual = recurrence_run(&x, NULL);
            recurred expected = recurrence_run_on(&x, LINATTN_ISA_SCALAR);
            if (!test_inexact()) check_same_recurred(&x, &actual, &expected, "signs");
            pool_release(mark);
        }
}

/* What their product loses is 0, not -0, which is what compilers may differ about. */
static void low_parts_of_decays_below_zero(void **state)
{
    (void)state;
    enum { DIM = 16 };
    linattn_config config = {
        .dim_key = DIM, .rule = LINATTN_RULE_GATED, .precision = LINATTN_PRECISION_COMPENSATED};
    float x[DIM], decay = -1;
    for (size_t i = 0; i < DIM; i++) x[i] = 1;
    linattn_gates gates = {.decay = linattn_rows(&decay)};
    void *memory = run_init(&config);
    check_status(linattn_recurrent(memory, linattn_rows(NULL), linattn_rows(x), linattn_rows(x),
                                   &gates, linattn_output_rows(NULL), 1, NULL),
                 LINATTN_OK, "recurrent");
    const float *words = (const float *)memory;
    for (size_t i = 0; i < linattn_state_size(&config) / sizeof *words; i++)
        check(float_bits(words[i]) != 0x80000000, "word %zu is -0", i);
}

/* A decay beyond 1, which makes a number of what has decayed before, and inf of what has not: of
   lanes behind the last row, which no row may see. */
static void decays_beyond_floats(void **state)
{
    (void)state;
    enum { N = 70, M = 23, DV = 5 };
    if (test_inexact()) return;
    linattn_config config = {.dim_key = M,
                             .dim_value = DV,
                             .map = LINATTN_MAP_RELU,
                             .scale = 1e-20f,
                             .normaliser = LINATTN_NORM_SUM,
                             .rule = LINATTN_RULE_GATED,
                             .precision = LINATTN_PRECISION_COMPENSATED};
    rng r = {49};
    float *const x = pool_floats(N * M), *const v = pool_floats(N * DV), *const a = pool_floats(N);
    for (size_t i = 0; i < N * M; i++) x[i] = 0.5f + rng_float(&r, 0.5f);
    rng_fill(&r, v, N * DV, 1);
    for (size_t t = 0; t < N; t++) a[t] = t < 31 ? 0.5f : t < 67 ? 1 : t == 67 ? 3e38f : 2;
    linattn_gates gates = {.decay = linattn_rows(a)};
    float *out[2];
    for (int i = 0; i < 2; i++) {
        void *memory = run_init(&config);
        out[i] = pool_floats(N * DV);
        check_status(linattn_isa_select(i ? LINATTN_ISA_SCALAR : test_isa()), LINATTN_OK, "select");
        check_status(linattn_recurrent(memory, linattn_rows(x), linattn_rows(x), linattn_rows(v),
                                       &gates, linattn_output_rows(out[i]), N, NULL),
                     LINATTN_OK, "recurrent");
    }
    check_status(linattn_isa_select(test_isa()), LINATTN_OK, "select");
    check_same_floats(out[0], out[1], N * DV, DV, "the bits of scalar");
}

/* Nothing of a key that is masked counts, in one head as in all. */
static void masked_in_one_head(void **state)
{
    (void)state;
    rng r = {44};
    for (int form = 0; form < FORM_COUNT; form++)
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
            size_t mark = pool_mark(), m = 1 + rng_below(&r, 20), dv = 1 + rng_below(&r, 20);
            linattn_config config = {
                .heads = 3, .dim_key = m, .dim_value = dv, .map = rule_maps[map]};
            recurrence x = recurrence_new(config, (rule_form)form, 4, &r);
            recurrence spoilt = recurrence_copy(&x);
            for (size_t f = 0; f < m; f++)
                operand_row(&spoilt, IN_K, 3, 1)[f] = operand_row(&x, IN_K, 3, 1)[f] =
                    -test_infinity;
            for (int i = IN_V; i < OPERANDS; i++) {
                axes e = operand_axes(&x, (rule_input)i);
                if (!x.in[i] || !operand_is_of_tokens(&x, (rule_input)i) || e.heads < 3) continue;
                for (size_t f = 0; f < e.dim; f++)
                    operand_row(&spoilt, (rule_input)i, 3, 1)[f] = f % 2 ? test_nan : test_infinity;
            }
            check_same_run(&spoilt, &x, "what belongs to a masked key");
            pool_release(mark);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(oracle_by_hand),
        TEST(accuracy),
        TEST(accuracy_with_masked_tokens),
        TEST(betas_of_both_signs),
        TEST(long_sequences),
        TEST(instruction_sets),
        TEST(cuts),
        TEST(every_cut),
        TEST(threads),
        TEST(threads_and_heads),
        TEST(work_is_shared_out),
        TEST(layouts),
        TEST(inputs_of_16_bits),
        TEST(states_from_memory),
        TEST(tokens_of_wide_heads),
        TEST(interleaved_operands),
        TEST(only_the_state_moves),
        TEST(large_values_of_small_keys),
        TEST(queries_read_the_state),
        TEST(queries_read_past_the_bonus),
        TEST(states_are_copied),
        TEST(causality),
        TEST(masked_tokens_are_absent),
        TEST(queries_of_masked_tokens),
        TEST(reads_before_decays_erase),
        TEST(mlstm_forgets_by_denormals),
        TEST(exponents_after_resets),
        TEST(resets_by_logarithms),
        TEST(decays_below_zero),
        TEST(keys_are_divided_by_what_is_owed),
        TEST(signs_beyond_columns),
        TEST(low_parts_of_decays_below_zero),
        TEST(decays_beyond_floats),
        TEST(masked_in_one_head),
        TEST(permutation_of_heads),
        TEST(nan_stays_in_its_head),
        TEST(grouped_keys),
        TEST(forms_of_gates),
        TEST(decays_take_turns),
        TEST(decays_of_1_take_turns),
        TEST(one_beta_for_all_heads),
        TEST(factors_and_logarithms),
        TEST(gated_by_one),
        TEST(gated_delta_by_one),
        TEST(a_beta_of_zero),
        TEST(general_contains_the_others),
        TEST(sums_are_a_rule),
        TEST(many_sequences),
        TEST(merges_in_order),
        TEST(merges_of_endless_decays),
        TEST(merges_are_read),
        TEST(merges_with_nothing),
        TEST(streams_without_end),
        TEST(sums_come_out_and_go_in),
        TEST(foreign_sums),
        TEST(sums_of_the_sum),
        TEST(sequences_from_imported_sums),
        TEST(halves_from_imported_sums),
        TEST(exponents_at_their_end),
        TEST(sums_saturate),
        TEST(large_sums_of_favor),
        TEST(compensated_sums_saturate),
        TEST(states_decay_to_zero),
        TEST(denominators_decay_to_zero),
        TEST(mlstm_with_wild_gates),
        TEST(mlstm_across_scales),
        TEST(exponents_under_decays),
    };
    test_begin();
    return RUN_TESTS("recurrent", tests);
}
