/* States of 16-bit numbers: every float is rounded as the formats say, on the way through a kernel
   and through an import; every token of every rule and map takes the state from what it exports to
   the nearest such numbers of what the formula in double precision makes of it, and reads out what
   it then exports; merges round once more. What holds to the bit, test_laws and test_recurrent draw
   these states for, too. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const linattn_element halves[] = {LINATTN_F16, LINATTN_BF16};

/* ---- Rounding ------------------------------------------------------------------------------- */

/* The nearest number of the format, of two the one whose last bit is 0. bf16 is infinite from 2^112
   on, has multiples of 2^-107 below 2^-100, and no -0. */
static float nearest(linattn_element element, float x)
{
    const bool wide = element == LINATTN_BF16;
    uint16_t low;
    float below, above, result;
    double to_below, to_above;
    if (float_is_nan(x)) return x;
    if (wide && !float_is_finite(x)) return test_nan;
    if (wide && fabsf(x) >= 0x1p112f) return test_infinity;
    if (wide && fabsf(x) < 0x1p-100f) return (float)(rint((double)x * 0x1p107) * 0x1p-107) + 0.0f;
    if (!wide && fabsf(x) >= 65520) return copysignf(test_infinity, x);
    low = element_bits(element, x);
    below = element_value(element, low);
    above = element_value(element, (uint16_t)(low + 1));
    to_below = fabs((double)x - (double)below);
    to_above = fabs((double)above - (double)x);
    result = to_below < to_above || (to_below == to_above && low % 2 == 0) ? below : above;
    return wide && result == 0 ? 0 : result;
}

/* What a state holds of values that a key of 1 brings to it, and of those that it imports. */
static void check_rounding(linattn_element element, const float *x, size_t count)
{
    size_t mark = pool_mark();
    linattn_config config = {.dim_key = 1,
                             .dim_value = count,
                             .map = LINATTN_MAP_IDENTITY,
                             .normaliser = LINATTN_NORM_NONE,
                             .state_type = element};
    const float one = 1;
    float *sums = pool_floats(count), *again = pool_floats(count);
    void *memory = run_init(&config);
    check_status(linattn_update(memory, linattn_rows(&one), linattn_rows(x), 1, NULL), LINATTN_OK,
                 "%s", config_name(&config));
    check_status(linattn_state_export(memory, 0, 0, sums, NULL), LINATTN_OK, "export");
    check_status(linattn_state_import(memory, 0, 0, x, NULL), LINATTN_OK, "import");
    check_status(linattn_state_export(memory, 0, 0, again, NULL), LINATTN_OK, "export");
    for (size_t i = 0; i < count; i++) {
        float expected = nearest(element, x[i]);
        check(float_same(sums[i] + 0.0f, expected + 0.0f), "%08x becomes %08x, expected %08x, %s",
              (unsigned)float_bits(x[i]), (unsigned)float_bits(sums[i]),
              (unsigned)float_bits(expected), config_name(&config));
        check(float_same(again[i] + 0.0f, expected + 0.0f), "%08x is imported as %08x, %s",
              (unsigned)float_bits(x[i]), (unsigned)float_bits(again[i]), config_name(&config));
    }
    pool_release(mark);
}

/* Every number of the format, the middle between it and the next one, and the floats beside both;
   and floats of any bits. */
static void every_number(void **state)
{
    (void)state;
    enum { BLOCK = 4096 };
    static float x[6 * BLOCK];
    rng r = {71};
    for (size_t e = 0; e < COUNT_OF(halves); e++)
        for (uint32_t first = 0; first < 0x10000; first += BLOCK) {
            for (uint32_t i = 0; i < BLOCK; i++) {
                uint16_t bits = (uint16_t)(first + i);
                float value = element_value(halves[e], bits);
                float next = element_value(halves[e], (uint16_t)(bits + 1));
                float middle = (float)(0.5 * ((double)value + (double)next));
                float *to = x + 6 * i;
                to[0] = value;
                to[1] = nextafterf(value, test_infinity);
                to[2] = middle;
                to[3] = nextafterf(middle, test_infinity);
                to[4] = nextafterf(middle, -test_infinity);
                to[5] = bits_draw(&r);
            }
            check_rounding(halves[e], x, COUNT_OF(x));
        }
}

/* ---- Tokens --------------------------------------------------------------------------------- */

static double feature(linattn_feature_map map, const float *x, size_t m, size_t f, bool query)
{
    double y = (double)x[f], sum = 0;
    switch (map) {
    case LINATTN_MAP_ELU1: return y < 0 ? exp(y) : y + 1;
    case LINATTN_MAP_RELU: return y < 0 ? 0 : y;
    case LINATTN_MAP_EXP: return exp(y);
    case LINATTN_MAP_SOFTMAX:
        for (size_t i = 0; i < m; i++) sum += exp((double)x[i]);
        return query ? exp(y) / sum : exp(y);
    case LINATTN_MAP_UNIT:
        for (size_t i = 0; i < m; i++) sum += (double)x[i] * (double)x[i];
        return y / sqrt(sum + 1e-6);
    default: return y;
    }
}

/* The numbers of one key/value head for token t, from its inputs. */
typedef struct token {
    size_t m, dv;
    double *k, *v, *a, *p, *r, beta, gain;
} token;

static double *doubles_of(const recurrence *x, rule_input which, size_t t, size_t head,
                          size_t count)
{
    double *to = pool_doubles(count);
    for (size_t i = 0; i < count; i++)
        to[i] = x->in[which] ? (double)operand_row(x, which, t, head)[i] : 0;
    return to;
}

static token read_token(const recurrence *x, size_t t, size_t head)
{
    const linattn_config *c = &x->config;
    token now = {.m = c->dim_key, .dv = c->dim_value, .beta = 1, .gain = 1};
    size_t keys = c->key_heads ? head / (c->kv_heads / c->key_heads) : head;
    const float *key = operand_row(x, IN_K, t, keys);
    bool delta = c->rule == LINATTN_RULE_DELTA || c->rule == LINATTN_RULE_GATED_DELTA;
    now.k = pool_doubles(now.m);
    now.v = doubles_of(x, IN_V, t, head, now.dv);
    now.a = pool_doubles(now.m);
    now.p = doubles_of(x, IN_WRITE, t, keys, now.m);
    now.r = doubles_of(x, IN_READ, t, keys, now.m);
    if (x->in[IN_BETA]) now.beta = (double)*operand_row(x, IN_BETA, t, x->shared ? 0 : head);
    if (x->in[IN_INPUT]) now.gain = exp((double)*operand_row(x, IN_INPUT, t, head));
    for (size_t f = 0; f < now.m; f++) {
        now.k[f] = feature(c->map, key, now.m, f, false);
        now.a[f] = 1;
        if (x->in[IN_DECAY])
            now.a[f] = (double)operand_row(x, IN_DECAY, t, head)[x->per_feature ? f : 0];
        if (x->in[IN_DECAY] && x->log) now.a[f] = exp(now.a[f]);
        if (delta) now.p[f] = -now.beta * now.k[f];
        if (delta) now.r[f] = now.a[f] * now.k[f];
    }
    return now;
}

/* S and z of one head before the token become those after it; and of what size the terms were. */
static void move(const token *now, double *s, double *z, double *size)
{
    for (size_t f = 0; f < now->m; f++) z[f] = now->a[f] * z[f] + now->gain * now->k[f];
    for (size_t c = 0; c < now->dv; c++) {
        double read = 0, read_size = 0;
        for (size_t f = 0; f < now->m; f++) {
            read += now->r[f] * s[f * now->dv + c];
            read_size += fabs(now->r[f] * s[f * now->dv + c]);
        }
        for (size_t f = 0; f < now->m; f++) {
            double *at = s + f * now->dv + c;
            double old = now->a[f] * *at, taken = now->p[f] * read;
            double added = now->beta * now->gain * now->k[f] * now->v[c];
            size[f * now->dv + c] = fabs(old) + fabs(now->p[f]) * read_size + fabs(added);
            *at = old + taken + added;
        }
    }
}

/* S and z of one head as exported. */
static void export_head(const void *memory, size_t head, size_t m, size_t dv, double *s, double *z)
{
    float *sums = pool_floats(m * dv), *plain_z = pool_floats(m);
    check_status(linattn_state_export(memory, head, 0, sums, plain_z), LINATTN_OK, "export");
    for (size_t i = 0; i < m * dv; i++) s[i] = (double)sums[i];
    for (size_t f = 0; f < m; f++) z[f] = (double)plain_z[f];
}

/* The output of one query over S and z; `before` are the sums that a bonus is added to. */
static void check_read(const recurrence *x, size_t t, size_t h, size_t tokens, const token *now,
                       const double *s, const double *z, const float *out)
{
    const linattn_config *c = &x->config;
    size_t m = c->dim_key, dv = c->dim_value, head = h / (c->heads / c->kv_heads);
    size_t row = c->key_heads ? head / (c->kv_heads / c->key_heads) : h;
    const float *query = operand_row(x, IN_Q, t, row);
    double *q = pool_doubles(m), den = 0, lead = 0;
    for (size_t f = 0; f < m; f++) {
        q[f] = feature(c->map, query, m, f, true);
        den += q[f] * z[f];
        if (x->in[IN_BONUS])
            lead += q[f] * (double)operand_row(x, IN_BONUS, 0, head)[f] * now->k[f];
    }
    for (size_t col = 0; col < dv; col++) {
        double sum = lead * now->v[col], size = fabs(sum);
        for (size_t f = 0; f < m; f++) {
            double by = c->normaliser == LINATTN_NORM_FEATURE ? z[f] : 1;
            double term = by == 0 ? 0 : q[f] * s[f * dv + col] / by;
            sum += term;
            size += fabs(term);
        }
        double by = 1;
        if (c->rule == LINATTN_RULE_MLSTM) by = fmax(fabs(den), 1);
        if (c->normaliser == LINATTN_NORM_SUM) by = den + (double)c->epsilon;
        if (c->normaliser == LINATTN_NORM_LENGTH) by = (double)tokens;
        if (c->normaliser == LINATTN_NORM_SUM && fabs(den) < 1e-2) continue; /* cancels */
        check(fabs((double)out[col] - sum / by) <= 3e-5 * size / fabs(by) + 1e-30,
              "output %zu of head %zu of token %zu is %.9g, expected %.9g of %.3g, %s", col, h, t,
              (double)out[col], sum / by, size / fabs(by), recurrence_name(x));
    }
}

/* Token by token. */
static void check_tokens(const recurrence *x)
{
    const linattn_config *c = &x->config;
    size_t m = c->dim_key, dv = c->dim_value;
    const bool wide = c->state_type == LINATTN_BF16, raised = map_is_exponential(c->map);
    const double unit = wide ? 0x1p-8 : 0x1p-11; /* a half of the last of 8 or 11 bits */
    void *memory = run_init(c);
    float *out = pool_floats(x->n * recurrence_width(x));
    double *most = pool_doubles(c->kv_heads * m);
    double *gate = pool_doubles(c->kv_heads); /* MLSTM: the largest so far, decayed */
    for (size_t i = 0; i < c->kv_heads * m; i++) most[i] = 0;
    for (size_t h = 0; h < c->kv_heads; h++) gate[h] = 0;
    for (size_t t = 0; t < x->n; t++) {
        size_t mark = pool_mark(), all = c->kv_heads * m * dv;
        double *before = pool_doubles(all), *after = pool_doubles(all),
               *size = pool_doubles(m * dv);
        double *z = pool_doubles(c->kv_heads * m), *z_after = pool_doubles(c->kv_heads * m);
        for (size_t h = 0; h < c->kv_heads; h++)
            export_head(memory, h, m, dv, before + h * m * dv, z + h * m);
        recurrence_call(x, memory, t, t + 1, out);
        for (size_t h = 0; h < c->kv_heads; h++) {
            token now = read_token(x, t, h);
            double *moved = before + h * m * dv, *seen = after + h * m * dv;
            double *s = pool_doubles(m * dv);
            memcpy(s, moved, m * dv * sizeof *s);
            gate[h] = fmax(gate[h] * now.a[0], now.gain);
            export_head(memory, h, m, dv, seen, z_after + h * m);
            move(&now, moved, z + h * m, size);
            for (size_t i = 0; i < m * dv; i++) {
                double *top = most + h * m + i / dv, least = wide ? 0x1p-108 : 0x1p-25;
                if (now.gain * now.k[i / dv] > *top) *top = now.gain * now.k[i / dv];
                if (raised && !wide) least = 1.5 * 0x1p-19 * *top;
                if (c->rule == LINATTN_RULE_MLSTM && !wide) least = 0x1p-16 * gate[h];
                double error = fabs(seen[i] - moved[i]);
                check(error <= unit * fabs(moved[i]) + 2e-6 * size[i] + least,
                      "sum %zu of head %zu after token %zu is %.9g, expected %.9g, %s", i, h, t,
                      seen[i], moved[i], recurrence_name(x));
            }
            for (size_t q = 0; q < c->heads / c->kv_heads; q++) {
                size_t head = h * (c->heads / c->kv_heads) + q;
                check_read(x, t, head, t + 1, &now, x->in[IN_BONUS] ? s : seen, z_after + h * m,
                           out + t * recurrence_width(x) + head * dv);
            }
        }
        pool_release(mark);
    }
}

static void tokens_of_rules(void **state)
{
    (void)state;
    static const size_t dims[][2] = {{1, 1}, {5, 19}, {16, 16}, {17, 70}, {40, 33}, {130, 20}};
    static const size_t heads[][3] = {{1, 1, 0}, {4, 2, 0}, {4, 4, 2}};
    rng r = {72};
    size_t i = 0;
    for (size_t e = 0; e < COUNT_OF(halves); e++)
        for (int form = 0; form < FORM_COUNT; form++)
            for (size_t map = 0; map < COUNT_OF(rule_maps); map++, i++) {
                size_t mark = pool_mark();
                const size_t *d = dims[i % COUNT_OF(dims)], *h = heads[i % COUNT_OF(heads)];
                linattn_config config = {.heads = h[0],
                                         .kv_heads = h[1],
                                         .key_heads = h[2],
                                         .dim_key = d[0],
                                         .dim_value = d[1],
                                         .map = rule_maps[map],
                                         .state_type = halves[e]};
                if (form <= FORM_GATED_FEATURES)
                    config.normaliser =
                        (linattn_normaliser)(rng_below(&r, 2) ? LINATTN_NORM_SUM
                                                              : LINATTN_NORM_LENGTH);
                recurrence x = recurrence_new(config, (rule_form)form, test_quick() ? 6 : 20, &r);
                check_tokens(&x);
                pool_release(mark);
            }
}

static void tokens_of_sums(void **state)
{
    (void)state;
    static const size_t dims[][2] = {{1, 1}, {5, 19}, {16, 16}, {17, 70}, {40, 33}, {130, 20}};
    static const linattn_feature_map maps[] = {LINATTN_MAP_ELU1,    LINATTN_MAP_IDENTITY,
                                               LINATTN_MAP_RELU,    LINATTN_MAP_EXP,
                                               LINATTN_MAP_SOFTMAX, LINATTN_MAP_UNIT};
    rng r = {73};
    size_t i = 0;
    for (size_t e = 0; e < COUNT_OF(halves); e++)
        for (size_t map = 0; map < COUNT_OF(maps); map++)
            for (int norm = 1; norm < LINATTN_NORM_COUNT; norm++, i++) {
                size_t mark = pool_mark();
                const size_t *d = dims[i % COUNT_OF(dims)];
                linattn_config config = {.heads = 2 + 2 * (i % 2),
                                         .kv_heads = 2,
                                         .dim_key = d[0],
                                         .dim_value = d[1],
                                         .map = maps[map],
                                         .normaliser = (linattn_normaliser)norm,
                                         .state_type = halves[e]};
                recurrence x = recurrence_new(config, FORM_GATED, test_quick() ? 6 : 20, &r);
                x.config.rule = LINATTN_RULE_SUM;
                x.config.normaliser = config.normaliser;
                x.in[IN_DECAY] = NULL;
                x.per_feature = x.fixed = x.log = false;
                check_tokens(&x);
                pool_release(mark);
            }
}

/* ---- Range, merges, sizes ------------------------------------------------------------------- */

/* Of a rule whose gates are all 1. */
static linattn_gates open_gates(linattn_rule rule, const float *ones)
{
    linattn_gates gates = {0};
    if (rule == LINATTN_RULE_GATED) gates.decay = linattn_rows(ones);
    if (rule == LINATTN_RULE_DELTA) gates.beta = linattn_rows(ones);
    return gates;
}

/* Sums that f16 cannot hold are infinite, by a decode step and by a prefill alike; what is read of
   them saturates. */
static void sums_overflow(void **state)
{
    (void)state;
    enum { TOKENS = 6 };
    static const float values[TOKENS] = {60000, 5519, -5504, 5520, -60000, 1},
                       sums[TOKENS] = {60000, 65504, 60000, FLT_MAX, FLT_MAX, FLT_MAX};
    for (size_t d = 1; d < 40; d += 13)
        for (int rule = LINATTN_RULE_SUM; rule <= LINATTN_RULE_GATED; rule++) {
            size_t mark = pool_mark();
            linattn_config config = {.dim_key = 1,
                                     .dim_value = d,
                                     .map = LINATTN_MAP_IDENTITY,
                                     .normaliser = LINATTN_NORM_NONE,
                                     .rule = (linattn_rule)rule,
                                     .state_type = LINATTN_F16};
            const float ones[TOKENS] = {1, 1, 1, 1, 1, 1};
            linattn_gates gates = open_gates(config.rule, ones);
            float *v = pool_floats(TOKENS * d), *out = pool_floats(TOKENS * d);
            for (size_t i = 0; i < TOKENS * d; i++)
                v[i] = i % d % 2 ? -values[i / d] : values[i / d];
            for (size_t step = 1; step <= TOKENS; step += TOKENS - 1) {
                void *memory = run_init(&config);
                for (size_t t = 0; t < TOKENS; t += step)
                    check_status(linattn_recurrent(memory, linattn_rows(ones), linattn_rows(ones),
                                                   linattn_rows(v + t * d), &gates,
                                                   linattn_output_rows(out + t * d), step, NULL),
                                 LINATTN_OK, "%s", config_name(&config));
                for (size_t i = 0; i < TOKENS * d; i++)
                    check(out[i] == (i % d % 2 ? -sums[i / d] : sums[i / d]), "token %zu: %g",
                          i / d, (double)out[i]);
            }
            pool_release(mark);
        }
}

/* mLSTM: sums of up to 127 times the largest input gate so far, decayed, are finite, however gates
   come and go. */
static void gates_come_and_go(void **state)
{
    (void)state;
    enum { TOKENS = 200, RUNS = 300 };
    static const float spans[] = {0.02f, 0.3f, 1, 3}; /* of the logarithms of decays */
    rng r = {82};
    for (size_t run = 0; run < RUNS; run++) {
        size_t mark = pool_mark();
        linattn_config config = {.dim_key = 1,
                                 .map = LINATTN_MAP_IDENTITY,
                                 .normaliser = LINATTN_NORM_NONE,
                                 .rule = LINATTN_RULE_MLSTM,
                                 .state_type = LINATTN_F16};
        float span = spans[run % COUNT_OF(spans)], one = 1, sum;
        double exact = 0, gate = 0;
        void *memory = run_init(&config);
        for (size_t t = 0; t < TOKENS; t++) {
            float decay = -span * rng_float(&r, 1), input = 6 * rng_float(&r, 1);
            if (decay > 0) decay = 0;
            linattn_gates gates = {
                .decay = linattn_rows(&decay), .decay_log = 1, .input = linattn_rows(&input)};
            check_status(linattn_recurrent(memory, (linattn_view){0}, linattn_rows(&one),
                                           linattn_rows(&one), &gates, (linattn_output){0}, 1,
                                           NULL),
                         LINATTN_OK, "%s", config_name(&config));
            check_status(linattn_state_export(memory, 0, 0, &sum, NULL), LINATTN_OK, "export");
            exact = exact * exp(decay) + exp(input);
            gate = fmax(gate * exp(decay), exp(input));
            if (exact > 127 * gate) break;
            check(sum > 0.95 * exact && sum < 1.05 * exact, "run %zu, token %zu: %g, not %g", run,
                  t, (double)sum, exact);
        }
        pool_release(mark);
    }
}

/* Those of bf16 are infinite for one token, and then NaN; so are they in an import. */
static void wide_sums_overflow(void **state)
{
    (void)state;
    enum { TOKENS = 4 };
    static const float ones[TOKENS] = {1, 1, 1, 1}, values[TOKENS] = {5e33f, 4e32f, 1, -5e33f};
    for (size_t step = 1; step <= TOKENS; step += TOKENS - 1) {
        linattn_config config = {.dim_key = 1,
                                 .map = LINATTN_MAP_IDENTITY,
                                 .normaliser = LINATTN_NORM_NONE,
                                 .state_type = LINATTN_BF16};
        float out[TOKENS], sum;
        void *memory = run_init(&config);
        for (size_t t = 0; t < TOKENS; t += step)
            check_status(linattn_causal(memory, linattn_rows(ones), linattn_rows(ones),
                                        linattn_rows(values + t), linattn_output_rows(out + t),
                                        step, NULL),
                         LINATTN_OK, "%s", config_name(&config));
        check(out[0] > 4.9e33f && out[0] < 5.1e33f && out[1] == FLT_MAX && float_is_nan(out[2]) &&
                  float_is_nan(out[3]),
              "%g, %g, %g, %g", (double)out[0], (double)out[1], (double)out[2], (double)out[3]);
        for (int again = 0; again < 2; again++) {
            sum = again ? sum : 6e33f;
            check_status(linattn_state_import(memory, 0, 0, &sum, NULL), LINATTN_OK, "import");
            check_status(linattn_state_export(memory, 0, 0, &sum, NULL), LINATTN_OK, "export");
            check(again ? float_is_nan(sum) : sum == test_infinity, "import %d: %g", again,
                  (double)sum);
        }
    }
}

/* Blocks of tokens that go by way of floats, and those that have no room for them: as tokens one by
   one. */
static void prefills_are_steps(void **state)
{
    (void)state;
    static const size_t dims[][2] = {{64, 48}, {256, 33}, {257, 40}, {512, 17}, {513, 20}};
    rng r = {76};
    for (size_t e = 0; e < COUNT_OF(halves); e++)
        for (int form = 0; form < FORM_COUNT; form++)
            for (size_t i = 0; i < COUNT_OF(dims); i++) {
                size_t mark = pool_mark();
                linattn_config config = {.dim_key = dims[i][0],
                                         .dim_value = dims[i][1],
                                         .map = LINATTN_MAP_IDENTITY,
                                         .state_type = halves[e]};
                recurrence x = recurrence_new(config, (rule_form)form, 7, &r);
                recurred all = recurrence_run(&x, NULL);
                float *out = pool_floats(x.n * recurrence_width(&x));
                void *memory = run_init(&x.config);
                for (size_t t = 0; t < x.n; t++) recurrence_call(&x, memory, t, t + 1, out);
                check_same_bytes(out, all.out, all.count * sizeof *out, "%s", recurrence_name(&x));
                check_same_bytes(memory, all.state, all.state_bytes, "%s", recurrence_name(&x));
                pool_release(mark);
            }
}

/* States that come from memory, each of which fetches the next one. */
static void many_states(void **state)
{
    (void)state;
    enum { STATES = 120, D = 80 };
    rng r = {77};
    float *x = pool_floats(STATES * D), *out = pool_floats(STATES * D), *one = pool_floats(D);
    float *ones = pool_floats(STATES);
    for (size_t i = 0; i < STATES; i++) ones[i] = 1;
    for (size_t i = 0; i < STATES * D; i++) x[i] = rng_float(&r, 1);
    for (size_t e = 0; e < COUNT_OF(halves); e++)
        for (int rule = LINATTN_RULE_SUM; rule <= LINATTN_RULE_DELTA; rule++) {
            size_t mark = pool_mark();
            linattn_config config = {
                .dim_key = D, .dim_value = D, .rule = (linattn_rule)rule, .state_type = halves[e]};
            linattn_gates gates = open_gates(config.rule, ones);
            void *states[STATES], *alone = run_init(&config);
            size_t bytes = linattn_state_size(&config);
            for (size_t i = 0; i < STATES; i++) states[i] = run_init(&config);
            check_status(linattn_recurrent_many(states, STATES, linattn_rows(x), linattn_rows(x),
                                                linattn_rows(x), &gates, linattn_output_rows(out),
                                                1, NULL),
                         LINATTN_OK, "%s", config_name(&config));
            for (size_t i = 0; i < STATES; i++) {
                linattn_view row = linattn_rows(x + i * D);
                check_status(linattn_state_init(&config, alone, bytes), LINATTN_OK, "init");
                check_status(linattn_recurrent(alone, row, row, row, &gates,
                                               linattn_output_rows(one), 1, NULL),
                             LINATTN_OK, "%s", config_name(&config));
                check_same_bytes(out + i * D, one, D * sizeof *one, "output %zu", i);
                check_same_bytes(states[i], alone, bytes, "state %zu", i);
            }
            pool_release(mark);
        }
}

/* Merged sums are those of the two states, rounded. */
static void merges_round(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {LINATTN_MAP_ELU1, LINATTN_MAP_IDENTITY,
                                               LINATTN_MAP_EXP, LINATTN_MAP_SOFTMAX,
                                               LINATTN_MAP_UNIT};
    rng r = {74};
    for (size_t e = 0; e < COUNT_OF(halves); e++)
        for (size_t i = 0; i < 3 * COUNT_OF(maps); i++) {
            size_t mark = pool_mark();
            linattn_config config = config_draw(&r, (int)maps[i % COUNT_OF(maps)], 1, 0, 100);
            config.state_type = halves[e];
            problem p = problem_new(config, 0, 60, &r, 2), q = problem_new(config, 0, 30, &r, 2);
            const double unit = halves[e] == LINATTN_BF16 ? 0x1p-8 : 0x1p-11;
            void *dst = run_init(&p.config), *src = run_init(&p.config);
            size_t count = sums_count(&p.config);
            size_t sums = p.config.kv_heads * p.config.dim_key * p.config.dim_value;
            run_update(&p, dst);
            run_update(&q, src);
            float *a = run_export(&p.config, dst), *b = run_export(&p.config, src);
            check_status(linattn_merge(dst, src), LINATTN_OK, "%s", problem_name(&p));
            float *both = run_export(&p.config, dst);
            for (size_t j = 0; j < count; j++) {
                double expected = (double)a[j] + (double)b[j], size = fabs((double)a[j]);
                double allowed = 1e-6 * (size + fabs((double)b[j]));
                size += fabs((double)b[j]);
                if (j < sums)
                    allowed += unit * fabs(expected) +
                               (halves[e] == LINATTN_F16 ? 0x1p-14 * size + 0x1p-12 : 0);
                check(fabs((double)both[j] - expected) <= allowed,
                      "%zu: %.9g and %.9g become %.9g, %s", j, (double)a[j], (double)b[j],
                      (double)both[j], problem_name(&p));
            }
            pool_release(mark);
        }
}

static void sizes_are_constants(void **state)
{
    (void)state;
    for (size_t heads = 1; heads < 4; heads++)
        for (size_t i = 0; i < ODD_DIMS * ODD_DIMS; i++) {
            size_t d = odd_dims[i % ODD_DIMS], dv = odd_dims[i / ODD_DIMS];
            linattn_config config = {
                .heads = heads, .dim_key = d, .dim_value = dv, .state_type = halves[i % 2]};
            check(linattn_state_size(&config) == LINATTN_HALF_STATE_BYTES(heads, d, dv), "%s",
                  config_name(&config));
            config.rule = LINATTN_RULE_DELTA;
            check(linattn_state_size(&config) == LINATTN_HALF_RULE_STATE_BYTES(heads, d, dv), "%s",
                  config_name(&config));
        }
}

/* The caller's floating-point environment changes no bit, and is left as it was. */
static void environments(void **state)
{
    (void)state;
    rng r = {75};
    for (size_t e = 0; e < COUNT_OF(halves); e++)
        for (int form = 0; form < FORM_COUNT; form++) {
            size_t mark = pool_mark();
            linattn_config config = {.dim_key = 20, .dim_value = 19, .state_type = halves[e]};
            recurrence x = recurrence_new(config, (rule_form)form, 12, &r);
            recurred expected = recurrence_run(&x, NULL);
            for (size_t i = 0; i < fp_hostile_count(); i++) {
                const char *name;
                uint64_t control = fp_hostile(i, &name), after;
                void *memory = run_init(&x.config);
                float *out = pool_floats(x.n * recurrence_width(&x));
                linattn_gates gates = recurrence_gates(&x, 0);
                linattn_view q = recurrence_view(&x, IN_Q, 0), k = recurrence_view(&x, IN_K, 0);
                linattn_view v = recurrence_view(&x, IN_V, 0);
                linattn_output to = linattn_output_rows(out);
                fp_set_control(control);
                control = fp_control(); /* without traps where there are none */
                linattn_status status = linattn_recurrent(memory, q, k, v, &gates, to, x.n, NULL);
                after = fp_control();
                fp_set_control(fp_ieee);
                check_status(status, LINATTN_OK, "%s", name);
                check((after & ~fp_flags) == (control & ~fp_flags), "%s is not restored", name);
                check_same_bytes(out, expected.out, expected.count * sizeof *out, "%s, %s", name,
                                 recurrence_name(&x));
                check_same_bytes(memory, expected.state, expected.state_bytes, "%s, %s", name,
                                 recurrence_name(&x));
            }
            pool_release(mark);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_number),        TEST(tokens_of_rules),   TEST(tokens_of_sums),
        TEST(sums_overflow),       TEST(gates_come_and_go), TEST(wide_sums_overflow),
        TEST(prefills_are_steps),  TEST(many_states),       TEST(merges_round),
        TEST(sizes_are_constants), TEST(environments),
    };
    test_begin();
    return RUN_TESTS("half", tests);
}
