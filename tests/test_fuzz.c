/* Random configs, shapes, layouts, cuts, threads and values, NaN and infinities among them.
   Operands lie against inaccessible pages; statuses are those that the arguments deserve; bits are
   those of scalar. LINATTN_TEST_SEED repeats a run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Valid arguments ------------------------------------------------------------------------ */

static linattn_config draw_config(rng *r)
{
    size_t kv_heads = 1 + rng_below(r, 3), group = 1 + rng_below(r, rng_below(r, 6) ? 3 : 30);
    linattn_config config = {.heads = kv_heads * group,
                             .kv_heads = kv_heads,
                             .dim_key = dim_draw(r),
                             .dim_value = dim_draw(r),
                             .map = (linattn_feature_map)rng_below(r, LINATTN_MAP_COUNT),
                             .normaliser = (linattn_normaliser)rng_below(r, LINATTN_NORM_COUNT)};
    if (rng_below(r, 3) == 0) config.scale = 0.1f + (float)rng_below(r, 40) * 0.25f;
    if (rng_below(r, 3) == 0) config.epsilon = (float)rng_below(r, 100) * 0.01f;
    config_draw_features(r, &config, test_quick() ? 150 : 2000);
    if (rng_below(r, 4) == 0)
        config.window = window_draw(r, 200);
    else if (rng_below(r, 3) == 0)
        config.precision = LINATTN_PRECISION_COMPENSATED;
    config.state_type = state_type_draw(r, &config);
    return config;
}

static problem draw_problem(rng *r, bool *finite)
{
    linattn_config config = draw_config(r);
    double per_token = (double)(config.heads * config_features(&config) * config.dim_value);
    size_t most = (size_t)(1 + (test_quick() ? 1e5 : 1e6) / per_token);
    if (most > 150) most = 150;
    size_t n_q = rng_below(r, most + 1), n_k = rng_below(r, 2) ? n_q : rng_below(r, most + 1);
    problem p = problem_new(config, n_q, n_k, r, (float)(1 << rng_below(r, 9)));
    *finite = rng_below(r, 2) == 0;
    if (*finite) return p;
    spoil_floats(r, p.q, n_q * query_width(&p), config.dim_key);
    spoil_floats(r, p.k, n_k * key_width(&p), config.dim_key);
    if (rng_below(r, 2)) spoil_floats(r, p.v, n_k * value_width(&p), n_k + 1);
    return p;
}

/* Operands placed at random, on any number of threads: `context` is drawn into, and used or not. */
static plan draw_plan(rng *r, linattn_context *context)
{
    *context = context_draw(r);
    plan how = {.context = rng_below(r, 2) ? context : NULL,
                .q = layout_random(r),
                .k = layout_random(r),
                .v = layout_random(r),
                .out = layout_random(r),
                .state_side = (guard)rng_below(r, 3)};
    return how;
}

/* Placed at random, cut at random, on any number of threads: the bits of the simplest run of scalar
   code. (Where bits may differ between instruction sets, of the simplest run.) */
static void fuzz_valid(rng *r)
{
    bool finite;
    problem p = draw_problem(r, &finite);
    linattn_context context;
    plan how = draw_plan(r, &context);
    how.state_offset = 4 * rng_below(r, 16);
    how.workspace_offset = rng_below(r, 64);
    how.cuts = rng_below(r, 2) ? r : NULL;
    if (rng_below(r, 2)) how.of = elements_draw(r, &p);
    char law[64];
    snprintf(law, sizeof law, "seed %" PRIu64, fuzz_seed());
    outcome expected = run_all_on(&p, NULL, test_inexact() ? test_isa() : LINATTN_ISA_SCALAR);
    outcome actual = run_all(&p, &how);
    if (finite) {
        check_same_outcome(&p, &actual, &expected, law);
        return;
    }
    /* NaN may have different payloads. */
    check_same_outputs(&p, &actual, &expected, law);
    check_same_state(&p.config, actual.causal_state, expected.causal_state, law);
    if (actual.update_state)
        check_same_state(&p.config, actual.update_state, expected.update_state, law);
}

static void valid_arguments(void **state)
{
    (void)state;
    fuzz(fuzz_valid, 20000, 3);
}

/* ---- Exact attention ------------------------------------------------------------------------ */

/* Operands of any element, placed at random, on any number of threads: the bits of scalar code on
   the same numbers as floats; what is finite stays so. */
static void fuzz_one_exact(rng *r)
{
    static const plan simplest;
    const elements floats = {LINATTN_F32, LINATTN_F32, LINATTN_F32};
    bool finite;
    problem p = draw_problem(r, &finite);
    exact_draw(r, &p.config, p.n_k);
    elements of = {(linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT),
                   (linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT),
                   (linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT)};
    int causal = (int)rng_below(r, 2);
    if (!exact_applies(&p, causal)) return;
    narrow(of.q, p.q, p.n_q * query_width(&p));
    narrow(of.k, p.k, p.n_k * key_width(&p));
    narrow(of.v, p.v, p.n_k * value_width(&p));
    linattn_context context;
    plan how = draw_plan(r, &context);
    how.workspace_offset = rng_below(r, 64);
    linattn_isa isa = linattn_isa_active();
    check_status(linattn_isa_select(test_inexact() ? isa : LINATTN_ISA_SCALAR), LINATTN_OK, "isa");
    float *expected = run_exact(&p, floats, causal, &simplest);
    check_status(linattn_isa_select(isa), LINATTN_OK, "isa");
    float *actual = run_exact(&p, of, causal, &how);
    check_same_floats(actual, expected, p.n_q * output_width(&p), output_width(&p),
                      "seed %" PRIu64 ", causal %d, elements %d %d %d, %s", fuzz_seed(), causal,
                      (int)of.q, (int)of.k, (int)of.v, problem_name(&p));
    for (size_t i = 0; finite && i < p.n_q * output_width(&p); i++)
        check(float_is_finite(actual[i]), "seed %" PRIu64 ", %s", fuzz_seed(), problem_name(&p));
}

static void exact_attention(void **state)
{
    (void)state;
    fuzz(fuzz_one_exact, 20000, 2);
}

/* ---- Rules ---------------------------------------------------------------------------------- */

static recurrence draw_recurrence(rng *r, bool *finite)
{
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_DEFAULT, LINATTN_NORM_NONE,
                                                     LINATTN_NORM_SUM, LINATTN_NORM_LENGTH};
    rule_form form = (rule_form)rng_below(r, FORM_COUNT);
    size_t keys = 1 + rng_below(r, 3), group = 1 + rng_below(r, rng_below(r, 6) ? 3 : 12);
    bool shared = rng_below(r, 3) == 0; /* keys by values, or values by queries */
    linattn_config config = {.heads = keys * group,
                             .kv_heads = shared ? keys * group : keys,
                             .key_heads = shared ? keys : 0,
                             .dim_key = dim_draw(r),
                             .dim_value = dim_draw(r),
                             .map = rule_maps[rng_below(r, COUNT_OF(rule_maps))]};
    if (rng_below(r, 3) == 0) config.scale = 0.1f + (float)rng_below(r, 40) * 0.25f;
    if (rng_below(r, 2)) config.dim_value += 64; /* from there on rows owe their decays */
    if (form <= FORM_GATED_FEATURES) {
        config.normaliser = normalisers[rng_below(r, COUNT_OF(normalisers))];
        config.epsilon = (float)rng_below(r, 3) * 0.01f;
    }
    if ((form <= FORM_BONUS || form == FORM_MLSTM) && rng_below(r, 3) == 0)
        config.precision = LINATTN_PRECISION_COMPENSATED;
    config.state_type = state_type_draw(r, &config);
    double per_token = (double)(config.heads * config.dim_key * config.dim_value);
    size_t most = (size_t)(1 + (test_quick() ? 1e5 : 1e6) / per_token);
    size_t n = rng_below(r, (most < 150 ? most : 150) + 1);
    recurrence x = recurrence_new(config, form, n, r);
    *finite = rng_below(r, 2) == 0;
    for (int i = 0; i < OPERANDS && !*finite; i++)
        if (x.in[i] && rng_below(r, 2))
            spoil_floats(r, x.in[i], operand_floats(&x, (rule_input)i),
                         operand_axes(&x, (rule_input)i).dim);
    return x;
}

/* Placed at random, cut at random, on any number of threads: the bits of the simplest run of scalar
   code; what is finite stays so. */
static void fuzz_rule(rng *r)
{
    bool finite;
    recurrence x = draw_recurrence(r, &finite);
    linattn_context context = context_draw(r);
    recurrence_plan how = {.context = rng_below(r, 2) ? &context : NULL,
                           .layouts = r,
                           .cuts = rng_below(r, 2) ? r : NULL,
                           .silent = rng_below(r, 8) == 0};
    if (rng_below(r, 2)) recurrence_elements(r, &x, how.of);
    recurred expected = recurrence_run_on(&x, test_inexact() ? test_isa() : LINATTN_ISA_SCALAR);
    recurred actual = recurrence_run(&x, &how);
    const char *name = recurrence_name(&x);
    char law[64];
    snprintf(law, sizeof law, "seed %" PRIu64, fuzz_seed());
    if (finite) {
        check_same_recurred(&x, &actual, &expected, law);
    } else { /* NaN may have different payloads */
        check_same_floats(actual.out, expected.out, actual.count, recurrence_width(&x), "%s, %s",
                          law, name);
        check_same_state(&x.config, actual.state, expected.state, law);
    }
    check_status(linattn_state_check(&x.config, actual.state, actual.state_bytes), LINATTN_OK,
                 "seed %" PRIu64 ", %s", fuzz_seed(), name);
    float *sums = run_export(&x.config, actual.state);
    for (size_t i = 0; finite && i < actual.count; i++)
        check(float_is_finite(actual.out[i]), "seed %" PRIu64 ", %s", fuzz_seed(), name);
    for (size_t i = 0; finite && i < sums_count(&x.config); i++)
        check(float_is_finite(sums[i]), "seed %" PRIu64 ": sums, %s", fuzz_seed(), name);
}

static void rules(void **state)
{
    (void)state;
    fuzz(fuzz_rule, 20000, 2);
}

/* One operand that is missing, too many, the output or as long as the address space: refused, and
   nothing is written. */
static void fuzz_refused(rng *r)
{
    enum { MISSING, TOO_MANY, OVERLAPS, HUGE, FAULTS };
    bool finite;
    recurrence x = draw_recurrence(r, &finite);
    size_t bytes = linattn_state_size(&x.config), count = x.n * recurrence_width(&x);
    int which = (int)rng_below(r, OPERANDS), fault = (int)rng_below(r, FAULTS);
    if (x.n < 2 || (x.in[which] != NULL) == (fault == TOO_MANY)) return;
    if (which == IN_BONUS && (fault == MISSING || x.config.rule == LINATTN_RULE_GATED)) return;
    if (fault == HUGE && !operand_is_of_tokens(&x, (rule_input)which)) return;
    linattn_view views[OPERANDS];
    float *out = pool_floats(count), nothing[1] = {0};
    for (int i = 0; i < OPERANDS; i++) views[i] = recurrence_view(&x, (rule_input)i, 0);
    if (fault == MISSING) views[which] = linattn_rows(NULL);
    if (fault == TOO_MANY) views[which] = linattn_rows(nothing);
    if (fault == OVERLAPS) views[which].data = out + rng_below(r, count);
    if (fault == HUGE) views[which].stride_token = SIZE_MAX / (1 + rng_below(r, 8));
    linattn_gates gates = recurrence_gates_of(&x, views);
    void *memory = run_init(&x.config), *before = pool_copy(memory, bytes);
    pool_known(out, count * sizeof *out);
    float *out_before = (float *)pool_copy(out, count * sizeof *out);
    linattn_status status = linattn_recurrent(memory, views[IN_Q], views[IN_K], views[IN_V], &gates,
                                              linattn_output_rows(out), x.n, NULL);
    const char *name = recurrence_name(&x);
    check(status != LINATTN_OK, "fault %d of input %d, seed %" PRIu64 ", %s", fault, which,
          fuzz_seed(), name);
    if (fault == OVERLAPS)
        check(status == LINATTN_ERROR_OVERLAP, "status %d, seed %" PRIu64, (int)status,
              fuzz_seed());
    if (fault == HUGE)
        check(status == LINATTN_ERROR_SIZE, "status %d, seed %" PRIu64, (int)status, fuzz_seed());
    check_same_bytes(memory, before, bytes, "fault %d of input %d, seed %" PRIu64 ", %s", fault,
                     which, fuzz_seed(), name);
    check_same_bytes(out, out_before, count * sizeof *out,
                     "fault %d of input %d, seed %" PRIu64 ", %s", fault, which, fuzz_seed(), name);
}

static void refused_rules(void **state)
{
    (void)state;
    fuzz(fuzz_refused, 20000, 1);
}

/* ---- Any arguments -------------------------------------------------------------------------- */

/* Small numbers, and the ones that break arithmetic. */
static size_t draw_size(rng *r, size_t usual)
{
    static const size_t odd[] = {0,
                                 1,
                                 2,
                                 7,
                                 SIZE_MAX,
                                 SIZE_MAX / 2,
                                 SIZE_MAX / 4,
                                 SIZE_MAX - 63,
                                 (SIZE_MAX >> 1) + 1,
                                 65535,
                                 65536,
                                 65537,
                                 (size_t)1 << 31};
    return rng_below(r, 12) ? usual : rng_pick(r, odd, COUNT_OF(odd));
}

static int draw_enumerator(rng *r, int count)
{
    return rng_below(r, 12) ? (int)rng_below(r, (size_t)count) : (int)rng_below(r, 1000) - 500;
}

static float draw_parameter(rng *r) { return rng_below(r, 3) ? 0 : bits_draw(r); }

/* A projection that is at times too large or not finite; none where it would have to be huge. */
static void draw_projection(rng *r, linattn_config *config)
{
    enum { MOST = 5000 };
    static float projection[MOST + 20];
    size_t rows = config->features ? config->features : 4 * (config->dim_key & 0xFFFF);
    if (config->dim_key > MOST || rows > MOST / (config->dim_key | 1) || rng_below(r, 8) == 0)
        return;
    rng_fill(r, projection, rows * config->dim_key, 1e6f);
    if (rng_below(r, 4) == 0) projection[rng_below(r, rows * config->dim_key + 20)] = bits_draw(r);
    config->projection = projection;
}

static linattn_config draw_any_config(rng *r)
{
    linattn_config config = {.heads = draw_size(r, 1 + rng_below(r, 4)),
                             .kv_heads = draw_size(r, rng_below(r, 3)),
                             .dim_key = draw_size(r, 1 + rng_below(r, 12)),
                             .dim_value = draw_size(r, rng_below(r, 12)),
                             .scale = draw_parameter(r),
                             .epsilon = draw_parameter(r),
                             .features = draw_size(r, rng_below(r, 40)),
                             .degree = draw_size(r, rng_below(r, 10)),
                             .window = rng_below(r, 2) ? 0 : draw_size(r, rng_below(r, 50)),
                             .landmarks = draw_size(r, 0),
                             .iterations = draw_size(r, 0),
                             .key_heads = rng_below(r, 4) ? 0 : draw_size(r, 1 + rng_below(r, 4)),
                             .sinks = rng_below(r, 8) ? 0 : draw_size(r, rng_below(r, 20)),
                             .soft_cap = rng_below(r, 8) ? 0 : draw_parameter(r)};
    static float slopes[LINATTN_MAX_HEADS];
    slopes[0] = bits_draw(r);
    if (rng_below(r, 8) == 0) config.alibi_slopes = slopes;
    draw_projection(r, &config);
    int map = draw_enumerator(r, LINATTN_MAP_COUNT);
    int normaliser = draw_enumerator(r, LINATTN_NORM_COUNT);
    int rule = rng_below(r, 2) ? 0 : draw_enumerator(r, LINATTN_RULE_COUNT);
    int precision = rng_below(r, 4) ? 0 : draw_enumerator(r, LINATTN_PRECISION_COUNT);
    int state_type = rng_below(r, 4) ? 0 : draw_enumerator(r, LINATTN_ELEMENT_COUNT);
    memcpy(&config.state_type, &state_type, sizeof state_type);
    memcpy(&config.precision, &precision, sizeof precision);
    memcpy(&config.map, &map, sizeof map);
    memcpy(&config.normaliser, &normaliser, sizeof normaliser);
    memcpy(&config.rule, &rule, sizeof rule);
    return config;
}

static bool is_map(const linattn_config *c, bool (*kind)(linattn_feature_map map))
{
    int map;
    memcpy(&map, &c->map, sizeof map);
    return map >= 0 && map < LINATTN_MAP_COUNT && kind((linattn_feature_map)map);
}

/* As the documentation has them: what is not given is what the others say. */
static bool heads_are_good(const linattn_config *c)
{
    size_t heads = c->heads, kv_heads = c->kv_heads, key_heads = c->key_heads;
    if (key_heads && kv_heads && (!heads || heads == key_heads)) heads = kv_heads;
    if (!heads) heads = 1;
    if (!kv_heads) kv_heads = heads;
    if (!key_heads) key_heads = kv_heads;
    return heads % kv_heads == 0 && kv_heads % key_heads == 0 &&
           (key_heads == kv_heads || heads == kv_heads);
}

static int rule_of(const linattn_config *c)
{
    int rule;
    memcpy(&rule, &c->rule, sizeof rule);
    return rule;
}

/* Is the config good, by the words of its documentation? Sizes whose state would not fit into the
   address space are left to the library. */
static bool config_is_good(const linattn_config *c)
{
    int map, normaliser, precision, state_type;
    memcpy(&map, &c->map, sizeof map);
    memcpy(&normaliser, &c->normaliser, sizeof normaliser);
    memcpy(&precision, &c->precision, sizeof precision);
    memcpy(&state_type, &c->state_type, sizeof state_type);
    if (is_map(c, map_is_monomial) && c->degree > 8) return false;
    return c->dim_key >= 1 && c->dim_key <= LINATTN_MAX_DIM && c->dim_value <= LINATTN_MAX_DIM &&
           heads_are_good(c) && map >= 0 && map < LINATTN_MAP_COUNT && normaliser >= 0 &&
           normaliser < LINATTN_NORM_COUNT && precision >= 0 &&
           precision < LINATTN_PRECISION_COUNT && state_type >= 0 &&
           state_type < LINATTN_ELEMENT_COUNT && rule_of(c) >= 0 &&
           rule_of(c) < LINATTN_RULE_COUNT && float_is_finite(c->scale) && c->scale >= 0 &&
           float_is_finite(c->epsilon) && c->epsilon >= 0;
}

/* Compensated sums. */
static bool precision_is_supported(const linattn_config *c)
{
    int rule = rule_of(c);
    return !c->window && (rule <= LINATTN_RULE_GATED || rule == LINATTN_RULE_MLSTM);
}

/* Sums of 16 bits. */
static bool state_type_is_supported(const linattn_config *c)
{
    return !c->window && !c->precision && !is_map(c, map_has_fields);
}

/* Do the parts of a good config go together? */
static bool config_is_supported(const linattn_config *c)
{
    int rule = rule_of(c);
    bool of_maps = false;
    size_t kv_heads = c->kv_heads ? c->kv_heads : c->heads ? c->heads : 1;
    bool exact = c->sinks || float_bits(c->soft_cap) << 1 || c->alibi_slopes;
    if (exact || (c->precision && !precision_is_supported(c))) return false;
    if (c->state_type && !state_type_is_supported(c)) return false;
    if (rule == LINATTN_RULE_SUM) return !c->key_heads || c->key_heads == kv_heads;
    for (size_t i = 0; i < COUNT_OF(rule_maps); i++)
        of_maps = of_maps || memcmp(&c->map, &rule_maps[i], sizeof c->map) == 0;
    bool none = c->normaliser == LINATTN_NORM_DEFAULT || c->normaliser == LINATTN_NORM_NONE;
    bool gated = rule == LINATTN_RULE_GATED && c->normaliser != LINATTN_NORM_FEATURE;
    return of_maps && !c->window && (none || gated);
}

/* Has favor all it needs? Of a config that is good otherwise. */
static bool projection_is_good(const linattn_config *c)
{
    if (!is_map(c, map_is_favor)) return true;
    if (!c->projection) return false;
    size_t count = (c->features ? c->features : 4 * c->dim_key) * c->dim_key;
    for (size_t i = 0; i < count; i++)
        if (!(c->projection[i] >= -1e6f && c->projection[i] <= 1e6f)) return false;
    return true;
}

/* Far from whatever limit there is. */
static bool sizes_are_modest(const linattn_config *c)
{
    if (c->heads > 65536 || c->kv_heads > 65536 || c->window > 65536) return false;
    if (c->landmarks > LINATTN_MAX_DIM) return false;
    if (is_map(c, map_is_favor) && c->features > 65536) return false;
    if (!is_map(c, map_is_monomial)) return true;
    return config_features(c) < (size_t)1 << 20;
}

static void check_config_status(const linattn_config *c, linattn_status status)
{
    const char *name = config_name(c);
    if (!config_is_good(c))
        check(status == LINATTN_ERROR_SIZE || status == LINATTN_ERROR_CONFIG ||
                  (status == LINATTN_ERROR_UNSUPPORTED && !config_is_supported(c)),
              "status %d, %s", (int)status, name);
    else if (!config_is_supported(c))
        check(status == LINATTN_ERROR_UNSUPPORTED || status == LINATTN_ERROR_SIZE ||
                  !projection_is_good(c),
              "status %d, %s", (int)status, name);
    else if (!projection_is_good(c))
        check(status == LINATTN_ERROR_SIZE ||
                  status == (c->projection ? LINATTN_ERROR_CONFIG : LINATTN_ERROR_NULL),
              "status %d, %s", (int)status, name);
    else if (sizes_are_modest(c))
        check(status == LINATTN_OK, "status %d, %s", (int)status, name);
}

static void fuzz_config(rng *r)
{
    linattn_config config = draw_any_config(r);
    linattn_status status = linattn_config_check(&config);
    size_t bytes = linattn_state_size(&config);
    const char *name = config_name(&config);
    check_config_status(&config, status);
    check((linattn_config_error(&config) == NULL) == (status == LINATTN_OK), "%s", name);
    if (config_is_good(&config) && !projection_is_good(&config)) return; /* sizes may be told */
    check((status == LINATTN_OK) == (bytes > 0), "status %d, %zu bytes, seed %" PRIu64 ", %s",
          (int)status, bytes, fuzz_seed(), name);
    linattn_context context = {parallel_reverse, NULL, draw_size(r, rng_below(r, 9))};
    for (int kind = 0; kind <= LINATTN_WORKSPACE_NYSTROM; kind++) {
        size_t workspace = linattn_workspace_size(&config, (linattn_workspace)kind, &context);
        if (kind == LINATTN_WORKSPACE_BIDIRECTIONAL) /* the other verb ignores much of it */
            check(status == LINATTN_OK || workspace == 0, "%zu bytes, %s", workspace, name);
    }
    if (bytes == 0 || bytes > 1 << 20) return;
    void *memory = pool_take_guarded(bytes, GUARD_AFTER);
    check_status(linattn_state_init(&config, memory, bytes - 1), LINATTN_ERROR_WORKSPACE, "%s",
                 name);
    check_status(linattn_state_init(&config, memory, bytes), LINATTN_OK, "%s", name);
    check_status(linattn_state_check(&config, memory, bytes), LINATTN_OK, "%s", name);
}

static void configs(void **state)
{
    (void)state;
    fuzz(fuzz_config, 100000, 1);
}

/* ---- Arrays --------------------------------------------------------------------------------- */

enum { ARRAY_EXP, ARRAY_ELU1, ARRAY_RELU, ARRAY_MAP, ARRAY_MAP_KEYS, ARRAY_FUNCTIONS };

static linattn_status apply(const linattn_config *c, int which, const float *x, float *y, size_t n)
{
    switch (which) {
    case ARRAY_EXP: return linattn_exp(x, y, n);
    case ARRAY_ELU1: return linattn_elu1(x, y, n);
    case ARRAY_RELU: return linattn_relu(x, y, n);
    default: return linattn_map(c, which == ARRAY_MAP_KEYS, x, y, n);
    }
}

/* Any numbers against inaccessible pages, from hostile environments: the bits of scalar code. */
static void check_array(rng *r, const linattn_config *c, int which, size_t n, size_t in, size_t out)
{
    const char *name;
    uint64_t control = fp_hostile(rng_below(r, fp_hostile_count()), &name);
    linattn_isa isa = linattn_isa_active();
    float *x = pool_floats(in), *expected = pool_floats(out);
    float *placed = (float *)pool_take_guarded(in * sizeof *x, (guard)rng_below(r, 3));
    float *y = (float *)pool_take_guarded(out * sizeof *y, (guard)rng_below(r, 3));
    rng_fill(r, x, in, (float)(1 << rng_below(r, 9)));
    if (rng_below(r, 2)) spoil_floats(r, x, in, 1 + rng_below(r, 9));
    memcpy(placed, x, in * sizeof *x);
    if (in == out && which <= ARRAY_RELU && rng_below(r, 3) == 0) y = placed;
    check_status(linattn_isa_select(test_inexact() ? isa : LINATTN_ISA_SCALAR), LINATTN_OK, "isa");
    check_status(apply(c, which, x, expected, n), LINATTN_OK, "%s", config_name(c));
    check_status(linattn_isa_select(isa), LINATTN_OK, "isa");
    fp_set_control(control);
    uint64_t before = fp_control();
    linattn_status status = apply(c, which, placed, y, n);
    uint64_t after = fp_control();
    fp_set_control(fp_ieee);
    check_status(status, LINATTN_OK, "%s", config_name(c));
    check(after == before, "function %d under %s, seed %" PRIu64, which, name, fuzz_seed());
    check_same_floats(y, expected, out, out, "function %d, seed %" PRIu64 ", %s", which,
                      fuzz_seed(), config_name(c));
    if (y != placed)
        check_same_bytes(placed, x, in * sizeof *x, "function %d, seed %" PRIu64, which,
                         fuzz_seed());
}

static void fuzz_arrays(rng *r)
{
    enum { MOST = 300 };
    int which = (int)rng_below(r, ARRAY_FUNCTIONS), map = (int)rng_below(r, LINATTN_MAP_COUNT);
    linattn_config c = config_draw(r, map, LINATTN_NORM_SUM, dim_draw(r), 100);
    c = problem_new(c, 0, 0, r, 1).config;
    size_t m = which < ARRAY_MAP ? 1 : config_features(&c), dim = which < ARRAY_MAP ? 1 : c.dim_key;
    size_t n = rng_below(r, MOST / dim + 2);
    check_array(r, &c, which, n, n * dim, n * m);

    /* What overlaps, and what is longer than memory, is refused. */
    size_t many = SIZE_MAX / (1 + rng_below(r, 4)), shift = 1 + rng_below(r, n * dim + 1);
    size_t bytes = (n * (dim + m) + 1) * sizeof(float);
    float *x = pool_floats(bytes / sizeof(float));
    pool_known(x, bytes);
    float *before = (float *)pool_copy(x, bytes);
    check(apply(&c, which, x, x, many) != LINATTN_OK, "%zu, seed %" PRIu64, many, fuzz_seed());
    if (shift < n * dim)
        check_status(apply(&c, which, x, x + shift, n), LINATTN_ERROR_OVERLAP, "seed %" PRIu64,
                     fuzz_seed());
    check_same_bytes(x, before, bytes, "seed %" PRIu64, fuzz_seed());
}

/* Random features, the same bits from any environment; what cannot be is refused. */
static void fuzz_features(rng *r)
{
    enum { MOST = 40 };
    size_t features = draw_size(r, 1 + rng_below(r, MOST)),
           dim = draw_size(r, 1 + rng_below(r, MOST));
    int drawn = draw_enumerator(r, LINATTN_RANDOM_COUNT);
    linattn_random_kind kind;
    memcpy(&kind, &drawn, sizeof kind);
    if (features > MOST && features <= 4 * LINATTN_MAX_DIM) return; /* takes long */
    bool good = features >= 1 && features <= MOST && dim >= 1 && dim <= MOST && drawn >= 0 &&
                drawn < LINATTN_RANDOM_COUNT;
    if (dim > MOST && dim <= LINATTN_MAX_DIM) return;
    size_t count = good ? features * dim : 1;
    float *expected = pool_floats(count);
    float *w = (float *)pool_take_guarded(count * sizeof *w, GUARD_AFTER);
    pool_known(expected, count * sizeof *expected);
    memcpy(w, expected, count * sizeof *w);
    uint64_t seed = rng_next(r);
    linattn_status wanted = linattn_random_features(seed, kind, features, dim, expected);
    check((wanted == LINATTN_OK) == good, "status %d, seed %" PRIu64, (int)wanted, fuzz_seed());
    const char *name;
    fp_set_control(fp_hostile(rng_below(r, fp_hostile_count()), &name));
    linattn_status status = linattn_random_features(seed, kind, features, dim, w);
    fp_set_control(fp_ieee);
    check_status(status, wanted, "%s, seed %" PRIu64, name, fuzz_seed());
    check_same_bytes(w, expected, count * sizeof *w, "%s, seed %" PRIu64, name, fuzz_seed());
}

static void arrays_and_features(void **state)
{
    (void)state;
    fuzz(fuzz_arrays, 20000, 1);
    fuzz(fuzz_features, 20000, 1);
}

/* ---- Overlaps ------------------------------------------------------------------------------- */

enum { ARENA = 600 };

typedef struct rows {
    size_t start, tokens, heads, dim, stride_token, stride_head;
} rows;

/* With the strides of `like`, if given. start is SIZE_MAX where the arena is too small. */
static rows draw_rows(rng *r, size_t tokens, size_t heads, size_t dim, const rows *like)
{
    rows result = {0, tokens, heads, dim, 1 + rng_below(r, 40), 1 + rng_below(r, 40)};
    if (rng_below(r, 2)) result.stride_head = dim + rng_below(r, 9);
    if (rng_below(r, 2)) result.stride_token = heads * result.stride_head + rng_below(r, 9);
    if (like) {
        result.stride_token = like->stride_token;
        result.stride_head = like->stride_head;
    }
    size_t extent = (tokens - 1) * result.stride_token + (heads - 1) * result.stride_head + dim;
    result.start = extent < ARENA ? rng_below(r, ARENA - extent) : SIZE_MAX;
    return result;
}

/* Marks what the rows cover; true if something of it was marked already. */
static bool mark_rows(const rows *x, unsigned char *marked, unsigned char mark)
{
    bool twice = false;
    for (size_t t = 0; t < x->tokens; t++)
        for (size_t h = 0; h < x->heads; h++)
            for (size_t i = 0; i < x->dim; i++) {
                unsigned char *at =
                    marked + x->start + t * x->stride_token + h * x->stride_head + i;
                twice = twice || *at != 0;
                *at |= mark;
            }
    return twice;
}

/* Do intervals of lengths a and b, b starting `shift` behind a, stay apart when both are repeated
   every `period`? */
static bool apart_in_period(size_t a, size_t b, ptrdiff_t shift, size_t period)
{
    ptrdiff_t p = (ptrdiff_t)period, behind = (shift % p + p) % p;
    return behind >= (ptrdiff_t)a && behind + (ptrdiff_t)b <= p;
}

/* Two operands interleaved in one buffer: per token, per head, or per token and head. */
static bool are_interleaved(const rows *a, const rows *b)
{
    bool heads_inside = a->stride_head <= a->stride_token;
    size_t inner = heads_inside ? a->stride_head : a->stride_token;
    size_t outer = heads_inside ? a->stride_token : a->stride_head;
    size_t reach = ((heads_inside ? a->heads : a->tokens) - 1) * inner;
    ptrdiff_t shift = (ptrdiff_t)b->start - (ptrdiff_t)a->start;
    if (b->stride_head != a->stride_head || b->stride_token != a->stride_token) return false;
    if (reach + a->dim > outer || reach + b->dim > outer) return false;
    return apart_in_period(reach + a->dim, reach + b->dim, shift, outer) ||
           (outer % inner == 0 && apart_in_period(a->dim, b->dim, shift, inner));
}

/* An output that covers an element twice, or an element of the queries, is refused. An output that
   is interleaved with the queries is taken. */
static void fuzz_overlap(rng *r)
{
    static float arena[ARENA], before[ARENA];
    static unsigned char marked[ARENA];
    size_t tokens = 1 + rng_below(r, 5), heads = 1 + rng_below(r, 4);
    linattn_config config = {
        .heads = heads, .dim_key = 1 + rng_below(r, 6), .dim_value = 1 + rng_below(r, 6)};
    rows q = draw_rows(r, tokens, heads, config.dim_key, NULL);
    rows out = draw_rows(r, tokens, heads, config.dim_value, rng_below(r, 2) ? &q : NULL);
    if (q.start == SIZE_MAX || out.start == SIZE_MAX) return;
    memset(marked, 0, sizeof marked);
    bool own = mark_rows(&out, marked, 1), overlap = own;
    mark_rows(&q, marked, 2);
    for (size_t i = 0; i < ARENA; i++) overlap = overlap || marked[i] == 3;

    void *memory = run_init(&config);
    rng_fill(r, arena, ARENA, 1);
    memcpy(before, arena, sizeof arena);
    linattn_status status = linattn_query(
        memory, strided(arena + q.start, q.stride_token, q.stride_head),
        strided_output(arena + out.start, out.stride_token, out.stride_head), tokens, NULL);
    check(status == LINATTN_OK || status == LINATTN_ERROR_OVERLAP, "seed %" PRIu64, fuzz_seed());
    check(!overlap || status == LINATTN_ERROR_OVERLAP, "seed %" PRIu64, fuzz_seed());
    check(own || !are_interleaved(&q, &out) || status == LINATTN_OK, "seed %" PRIu64, fuzz_seed());
    for (size_t i = 0; i < ARENA; i++)
        check(float_bits(arena[i]) == float_bits(before[i]) ||
                  (status == LINATTN_OK && (marked[i] & 1)),
              "seed %" PRIu64 ": float %zu was written", fuzz_seed(), i);
}

/* ---- Overlaps of many ----------------------------------------------------------------------- */

enum { CROWD = 4, CROWD_ARENA = 1500 };

/* The rows of a few sequences: those of each, and how far from one to the next. */
typedef struct rows_of_many {
    rows of_one;
    size_t sequences, stride;
    linattn_element element; /* those of 16 bits begin at a float */
} rows_of_many;

/* Anywhere in the arena, or `record` floats from one sequence to the next. */
static rows_of_many draw_many(rng *r, size_t sequences, size_t tokens, size_t heads, size_t dim,
                              size_t record)
{
    rows_of_many x = {draw_rows(r, tokens, heads, dim, NULL), sequences, record, LINATTN_F32};
    rows *one = &x.of_one;
    if (rng_below(r, 2)) one->stride_head = dim;
    if (rng_below(r, 2)) one->stride_token = heads * one->stride_head;
    size_t extent = (tokens - 1) * one->stride_token + (heads - 1) * one->stride_head + dim;
    if (!record) x.stride = rng_below(r, 2) ? extent + rng_below(r, 4) : 1 + rng_below(r, 60);
    extent += (sequences - 1) * x.stride;
    one->start = extent < CROWD_ARENA ? rng_below(r, CROWD_ARENA - extent) : SIZE_MAX;
    return x;
}

static bool mark_many(const rows_of_many *x, unsigned char *marked, unsigned char mark)
{
    bool twice = false;
    for (size_t s = 0; s < x->sequences; s++) {
        rows one = x->of_one;
        for (size_t t = 0; t < one.tokens; t++)
            for (size_t h = 0; h < one.heads; h++)
                for (size_t i = 0; i < one.dim; i++) {
                    size_t place = s * x->stride + t * one.stride_token + h * one.stride_head + i;
                    if (x->element != LINATTN_F32) place /= 2;
                    unsigned char *at = marked + one.start + place;
                    twice = twice || (*at & mark);
                    *at |= mark;
                }
    }
    return twice;
}

static linattn_view view_of_many(const rows_of_many *x, const float *arena)
{
    linattn_view view =
        strided(arena + x->of_one.start, x->of_one.stride_token, x->of_one.stride_head);
    view.stride_sequence = x->stride;
    view.element = x->element;
    return view;
}

typedef enum crowd_verb { UPDATE_MANY, QUERY_MANY, CAUSAL_MANY } crowd_verb;

/* What the floats of an arena are in one call. */
enum { OUT = 1, IN_QUERIES = 2, IN_KEYS = 4, STATE = 8 };

/* Is anything written twice, or read besides? */
static bool mark_overlaps(crowd_verb verb, unsigned char *marked, const rows_of_many *q,
                          const rows_of_many *k, const rows_of_many *v, const rows_of_many *out)
{
    bool overlap = verb != UPDATE_MANY && mark_many(out, marked, OUT);
    if (verb != UPDATE_MANY) mark_many(q, marked, IN_QUERIES);
    if (verb != QUERY_MANY) mark_many(k, marked, IN_KEYS);
    if (verb != QUERY_MANY) mark_many(v, marked, IN_KEYS);
    for (size_t i = 0; i < CROWD_ARENA; i++) {
        const unsigned m = marked[i];
        if ((m & OUT) && (m & ~(unsigned)OUT)) overlap = true;
        if (verb != QUERY_MANY && (m & STATE) && (m & ~(unsigned)STATE)) overlap = true;
    }
    return overlap;
}

static linattn_status call_many(crowd_verb verb, void *const *states, size_t count, float *arena,
                                const rows_of_many *q, const rows_of_many *k, const rows_of_many *v,
                                const rows_of_many *out, size_t tokens)
{
    linattn_view q_view = view_of_many(q, arena), k_view = view_of_many(k, arena);
    linattn_view v_view = view_of_many(v, arena);
    linattn_output output = strided_output(arena + out->of_one.start, out->of_one.stride_token,
                                           out->of_one.stride_head);
    output.stride_sequence = out->stride;
    switch (verb) {
    case UPDATE_MANY: return linattn_update_many(states, count, k_view, v_view, tokens, NULL);
    case QUERY_MANY:
        return linattn_query_many((const void *const *)states, count, q_view, output, tokens, NULL);
    default:
        return linattn_causal_many(states, count, q_view, k_view, v_view, output, tokens, NULL);
    }
}

/* States and operands in one arena: what is written is neither written twice nor read besides. */
static void fuzz_overlap_of_many(rng *r)
{
    static float arena[CROWD_ARENA], before[CROWD_ARENA];
    static unsigned char marked[CROWD_ARENA];
    size_t count = 1 + rng_below(r, CROWD), tokens = 1 + rng_below(r, 2);
    size_t kv_heads = 1 + rng_below(r, 2), heads = kv_heads * (1 + rng_below(r, 2));
    linattn_config config = {.heads = heads,
                             .kv_heads = kv_heads,
                             .dim_key = 1 + rng_below(r, 3),
                             .dim_value = 1 + rng_below(r, 3)};
    const size_t floats = linattn_state_size(&config) / sizeof(float);
    const crowd_verb verb = (crowd_verb)rng_below(r, 3);
    const size_t record = rng_below(r, 2) ? floats + 10 + rng_below(r, 60) : 0;
    rows_of_many q = draw_many(r, count, tokens, heads, config.dim_key, record);
    rows_of_many k = draw_many(r, count, tokens, kv_heads, config.dim_key, record);
    rows_of_many v = draw_many(r, count, tokens, kv_heads, config.dim_value, record);
    rows_of_many out = draw_many(r, count, tokens, heads, config.dim_value, record);
    if (q.of_one.start == SIZE_MAX || k.of_one.start == SIZE_MAX || v.of_one.start == SIZE_MAX ||
        out.of_one.start == SIZE_MAX || count * (record ? record : floats) >= CROWD_ARENA)
        return;

    rows_of_many *const in[] = {&q, &k, &v};
    for (size_t i = 0; i < 3; i++) {
        in[i]->element = (linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT);
        if (record && in[i]->element != LINATTN_F32) in[i]->stride *= 2; /* in step */
    }

    void *states[CROWD] = {NULL};
    bool overlap = false, broken = false;
    size_t first = rng_below(r, CROWD_ARENA - count * (record ? record : floats));
    rng_fill(r, arena, CROWD_ARENA, 1);
    memset(marked, 0, sizeof marked);
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i * (record ? record : floats);
        if (rng_below(r, 12) == 0) at = rng_below(r, CROWD_ARENA - floats);
        states[i] = arena + at;
        if (i && rng_below(r, 30) == 0) states[i] = states[rng_below(r, i)];
    }
    for (size_t i = 0; i < count; i++)
        check_status(linattn_state_init(&config, states[i], floats * sizeof(float)), LINATTN_OK,
                     "init");
    for (size_t i = 0; i < count; i++) {
        linattn_status status = linattn_state_check(&config, states[i], floats * sizeof(float));
        size_t at = (size_t)((float *)states[i] - arena);
        broken = broken || status != LINATTN_OK;
        for (size_t f = at; f < at + floats; f++) {
            overlap = overlap || (verb != QUERY_MANY && (marked[f] & STATE));
            marked[f] |= STATE;
        }
    }
    if (mark_overlaps(verb, marked, &q, &k, &v, &out)) overlap = true;

    memcpy(before, arena, sizeof arena);
    linattn_status status = call_many(verb, states, count, arena, &q, &k, &v, &out, tokens);
    check(status == LINATTN_OK || status == LINATTN_ERROR_OVERLAP ||
              (broken && status == LINATTN_ERROR_STATE),
          "status %d, seed %" PRIu64, (int)status, fuzz_seed());
    check(!overlap || status != LINATTN_OK, "verb %d, seed %" PRIu64, (int)verb, fuzz_seed());
    for (size_t i = 0; i < CROWD_ARENA; i++)
        check(float_bits(arena[i]) == float_bits(before[i]) ||
                  (status == LINATTN_OK && (marked[i] & (verb == QUERY_MANY ? OUT : OUT | STATE))),
              "verb %d, seed %" PRIu64 ": float %zu was written", (int)verb, fuzz_seed(), i);
}

static void overlaps_of_many(void **state)
{
    (void)state;
    fuzz(fuzz_overlap_of_many, 100000, 1);
}

static void overlaps(void **state)
{
    (void)state;
    fuzz(fuzz_overlap, 200000, 1);
}

#ifdef TEST_BYTES

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    static fuzz_function *const all[] = {fuzz_valid,     fuzz_rule,    fuzz_refused,
                                         fuzz_config,    fuzz_overlap, fuzz_overlap_of_many,
                                         fuzz_one_exact, fuzz_arrays,  fuzz_features};
    fuzz_bytes(all, COUNT_OF(all), bytes, size);
    return 0;
}

#else

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(valid_arguments),
        TEST(exact_attention),
        TEST(rules),
        TEST(refused_rules),
        TEST(configs),
        TEST(overlaps),
        TEST(overlaps_of_many),
        TEST(arrays_and_features),
    };
    test_begin();
    return RUN_TESTS("fuzz", tests);
}

#endif
