/* One fixed run, hashed: the same bits from every instruction set, compiler, language and set of
   flags, in this version and, until a release says otherwise, in the next. */
#include <inttypes.h>
#include <string.h>

#include "common.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Hashes, one for each family that came with a version. Of a family that is new, zero stands here
   until its bits are final; the failing test says what they are. */
static const uint64_t EXPECTED_ELEMENTWISE = UINT64_C(0x822c112c2248ccee);
static const uint64_t EXPECTED_FAVOR = UINT64_C(0x11b4a791cb301245);
static const uint64_t EXPECTED_MONOMIALS = UINT64_C(0x14d1549a6880ad4f);
static const uint64_t EXPECTED_WINDOWS = UINT64_C(0xadfd4ac9b8f87c09);
static const uint64_t EXPECTED_UNIT = UINT64_C(0x80ada25875ae26a7);
static const uint64_t EXPECTED_RULES = UINT64_C(0xf7d21b8597b66cb6);
static const uint64_t EXPECTED_COMPENSATED = UINT64_C(0x5ca947c3a212a758);
static const uint64_t EXPECTED_HALVES = UINT64_C(0x58e4a4258febfd0a);
static const uint64_t EXPECTED_COMPENSATED_RULES = UINT64_C(0xe4dde34c988cd1d9);
static const uint64_t EXPECTED_COMPENSATED_EXPONENTS = UINT64_C(0x158923e377797026);
static const uint64_t EXPECTED_EXACT = UINT64_C(0xa4a9aa81a366c5c2);
static const uint64_t EXPECTED_NYSTROM = UINT64_C(0x2e17b8ecac36512b);
static const uint64_t EXPECTED_RANDOM = UINT64_C(0x19ed42875664e000);

/* Those of quick tests, where a part of the runs that take longest has to do. */
static const uint64_t EXPECTED_QUICK_WINDOWS = UINT64_C(0xc25b846237bc28b9);
static const uint64_t EXPECTED_QUICK_COMPENSATED = UINT64_C(0xe1c8624f9952bceb);
static const uint64_t EXPECTED_QUICK_EXACT = UINT64_C(0xca81c0d1c2cea6d8);

/* FNV-1a. */
#define HASH_START UINT64_C(0xCBF29CE484222325)

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* The inputs are made of integers and single products or sums, so that no compiler can round them
   differently. In every third problem the keys rise in steps, which moves the exponents. */
static problem golden_problem(rng *r, linattn_config config, size_t n_q, size_t n_k, bool rising)
{
    problem p = problem_new(config, n_q, n_k, r, 4);
    size_t width = key_width(&p);
    for (size_t i = 0; rising && i < n_k * width; i++) {
        int step = (int)(i / width / 7) * 24;
        p.k[i] += (float)(i % 5 == 4 ? -step : step);
    }
    return p;
}

/* The first four of a shape: heads, kv_heads, dim_key, dim_value. */
static linattn_config config_of(const size_t *shape, int map, int normaliser)
{
    linattn_config config = {.heads = shape[0],
                             .kv_heads = shape[1],
                             .dim_key = shape[2],
                             .dim_value = shape[3],
                             .map = (linattn_feature_map)map,
                             .normaliser = (linattn_normaliser)normaliser};
    return config;
}

/* The projection's rows by the number of the run, and no more monomials than that. */
static void bound_features(linattn_config *config, size_t run, size_t most)
{
    if (map_is_favor(config->map)) config->features = 1 + 37 * (run % 7);
    while (map_is_monomial(config->map) && config_features(config) > most) config->degree--;
}

static uint64_t hash_outcome(uint64_t hash, const problem *p, bool print)
{
    outcome all = run_all(p, NULL);
    if (p->config.window) { /* exact attention without: hash_of_exact has its windows */
        problem whole = *p;
        whole.config.window = 0;
        outcome exact = run_all(&whole, NULL);
        for (int i = PART_SOFTMAX; i <= PART_SOFTMAX_CAUSAL; i++) {
            all.out[i] = exact.out[i];
            all.count[i] = exact.count[i];
        }
    }
    for (int i = 0; i < PART_COUNT; i++)
        hash = hash_bytes(hash, all.out[i], all.count[i] * sizeof(float));
    hash = hash_bytes(hash, all.causal_state, all.state_bytes);
    if (all.update_state) {
        check_status(linattn_merge(all.update_state, all.causal_state), LINATTN_OK, "%s",
                     problem_name(p));
        hash = hash_bytes(hash, all.update_state, all.state_bytes);
    }
    if (print) print_message("%016" PRIx64 " %s\n", hash, problem_name(p));
    return hash;
}

/* A family of configs: maps from one to another, with windows or without. */
typedef struct family {
    int first, last;
    size_t window, degree;
    uint64_t seed, expected;
} family;

static uint64_t hash_verbs(const family *of, uint64_t hash, bool print)
{
    static const size_t shapes[][6] = {
        /* heads, kv_heads, dim_key, dim_value, n_q, n_k */
        {1, 1, 1, 1, 3, 3},     {2, 1, 5, 19, 9, 26},    {3, 3, 16, 16, 24, 24},
        {2, 2, 17, 33, 25, 50}, {1, 1, 64, 64, 49, 49},  {4, 2, 31, 48, 47, 48},
        {1, 1, 129, 7, 10, 30}, {2, 1, 40, 100, 23, 23}, {1, 1, 72, 130, 20, 20},
    };
    static const float scales[] = {0, 0.125f, 3}, epsilons[] = {0, 0.25f};
    const size_t most = of->window && test_quick() ? 150 : 3000; /* features of monomials */
    rng r = {of->seed};
    size_t i = 0;
    for (int map = of->first; map <= of->last; map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++, i++) {
            size_t mark = pool_mark();
            const size_t *s = shapes[i % COUNT_OF(shapes)];
            linattn_config config = config_of(s, map, normaliser);
            config.scale = scales[i % COUNT_OF(scales)];
            config.epsilon = epsilons[i / 3 % COUNT_OF(epsilons)];
            config.degree = of->degree;
            if (of->window) config.window = 1 + of->window * i % 31 + (i % 3 == 2 ? 64 : 0);
            bound_features(&config, i, most);
            problem p = golden_problem(&r, config, s[4], s[5], i % 3 == 1);
            hash = hash_outcome(hash, &p, print);
            pool_release(mark);
        }
    return hash;
}

static uint64_t hash_features(const family *of, uint64_t hash)
{
    rng r = {of->seed + 1};
    for (int map = of->first; map <= of->last; map++) {
        linattn_config config = {
            .dim_key = 11, .map = (linattn_feature_map)map, .features = 77, .degree = of->degree};
        problem p = problem_new(config, 9, 0, &r, 3);
        size_t count = 9 * config_features(&p.config);
        float *y = pool_floats(count);
        check_status(linattn_map(&p.config, 0, p.q, y, 9), LINATTN_OK, "%s", problem_name(&p));
        hash = hash_bytes(hash, y, count * sizeof *y);
    }
    return hash;
}

static uint64_t hash_maps(uint64_t hash)
{
    rng r = {2025};
    static float x[1999], y[1999];
    rng_fill(&r, x, COUNT_OF(x), 100);
    check_status(linattn_exp(x, y, COUNT_OF(x)), LINATTN_OK, "exp");
    hash = hash_bytes(hash, y, sizeof y);
    check_status(linattn_elu1(x, y, COUNT_OF(x)), LINATTN_OK, "elu1");
    hash = hash_bytes(hash, y, sizeof y);
    check_status(linattn_relu(x, y, COUNT_OF(x)), LINATTN_OK, "relu");
    hash = hash_bytes(hash, y, sizeof y);
    linattn_config config = {.dim_key = 37, .map = LINATTN_MAP_SOFTMAX, .scale = 0.3f};
    check_status(linattn_map(&config, 0, x, y, COUNT_OF(x) / 37), LINATTN_OK, "softmax");
    return hash_bytes(hash, y, COUNT_OF(x) / 37 * 37 * sizeof *y);
}

static void check_hash(uint64_t hash, uint64_t expected)
{
    check(test_inexact() || hash == expected, "hash %016" PRIx64 ", expected %016" PRIx64, hash,
          expected);
}

/* Runs print where they went astray, to be compared with a build that is right. */
typedef uint64_t run_hash(const family *of, bool print);

static void check_run(run_hash *run, const family *of, uint64_t expected)
{
    uint64_t hash = run(of, false);
    if (!test_inexact() && hash != expected) run(of, true);
    check_hash(hash, expected);
}

static uint64_t hash_family(const family *of, bool print)
{
    bool elementwise = of->last == LINATTN_MAP_SOFTMAX;
    uint64_t hash = elementwise ? hash_maps(HASH_START) : hash_features(of, HASH_START);
    if (print) print_message("%016" PRIx64 " maps\n", hash);
    return hash_verbs(of, hash, print);
}

static void check_family(const family *of) { check_run(hash_family, of, of->expected); }

static void hash_of_a_fixed_run(void **state)
{
    (void)state;
    const family elementwise = {LINATTN_MAP_ELU1,    LINATTN_MAP_SOFTMAX, 0, 0, 2024,
                                EXPECTED_ELEMENTWISE};
    check_family(&elementwise);
}

static void hash_of_favor(void **state)
{
    (void)state;
    const family favor = {LINATTN_MAP_FAVOR, LINATTN_MAP_FAVOR_HYPERBOLIC, 0, 0, 2026,
                          EXPECTED_FAVOR};
    check_family(&favor);
}

static void hash_of_monomials(void **state)
{
    (void)state;
    const family monomials = {LINATTN_MAP_TAYLOR, LINATTN_MAP_EXPDEF, 0, 5, 2028,
                              EXPECTED_MONOMIALS};
    check_family(&monomials);
}

static void hash_of_windows(void **state)
{
    (void)state;
    const family windows = {LINATTN_MAP_ELU1,
                            LINATTN_MAP_EXPDEF,
                            7,
                            3,
                            2030,
                            test_quick() ? EXPECTED_QUICK_WINDOWS : EXPECTED_WINDOWS};
    check_family(&windows);
}

static void hash_of_unit(void **state)
{
    (void)state;
    const family unit = {LINATTN_MAP_UNIT, LINATTN_MAP_UNIT, 0, 0, 2032, EXPECTED_UNIT};
    check_family(&unit);
}

/* A sequence under a rule whose inputs are made of integers and single products. Keys are short, so
   that nothing explodes where they are read; those of elu1 and exp map to e^-4 .. e^-2. */
static recurrence golden_recurrence(rng *r, linattn_config config, int form, size_t n)
{
    recurrence x = recurrence_empty(config, (rule_form)form, n, r);
    bool logs = x.config.map == LINATTN_MAP_ELU1 || x.config.map == LINATTN_MAP_EXP;
    for (int i = 0; i < OPERANDS; i++)
        rng_fill(r, x.in[i], operand_floats(&x, (rule_input)i), i == IN_V ? 1 : 0.25f);
    for (size_t i = 0; i < operand_floats(&x, IN_K); i++)
        if (logs) x.in[IN_K][i] = 4 * x.in[IN_K][i] - 3;
    for (size_t i = 0; i < operand_floats(&x, IN_DECAY); i++)
        x.in[IN_DECAY][i] = i % 31 == 7   ? (x.log ? -1e30f : 0)
                            : i % 31 == 9 ? (x.log ? 0.0f : 1.0f)
                                          : x.in[IN_DECAY][i] + (x.log ? -0.25f : 0.75f);
    for (size_t i = 0; i < operand_floats(&x, IN_BETA); i++)
        x.in[IN_BETA][i] = 4 * x.in[IN_BETA][i] + 1;
    for (size_t i = 0; i < operand_floats(&x, IN_INPUT); i++)
        x.in[IN_INPUT][i] *= i % 9 == 4 ? 4096 : 8;
    return x;
}

/* Keys of the exponential map fall, and what is older decays as fast, for every other sequence. */
static void let_fall(recurrence *x)
{
    size_t keys = operand_floats(x, IN_K) / x->n;
    if (x->config.map != LINATTN_MAP_EXP || x->config.rule != LINATTN_RULE_GATED || x->n % 2)
        return;
    for (size_t i = 0; i < operand_floats(x, IN_K); i++) x->in[IN_K][i] -= (float)(i / keys);
    for (size_t i = 0; i < operand_floats(x, IN_DECAY); i++)
        x->in[IN_DECAY][i] = x->log ? x->in[IN_DECAY][i] - 1 : x->in[IN_DECAY][i] * 0.375f;
}

/* Every form of every rule with every map: outputs, the state, a merge where there is one, and the
   sums that come out. With compensated sums, where a rule has them: long enough to fold them;
   `moving` those whose exponents move, or the others. */
static uint64_t hash_rules_of(uint64_t hash, linattn_element element, linattn_precision precision,
                              bool moving, bool print)
{
    static const size_t shapes[][6] = {
        /* heads, kv_heads, dim_key, dim_value, key_heads, n */
        {1, 1, 1, 1, 0, 9},    {2, 1, 5, 19, 0, 26}, {4, 4, 16, 16, 2, 24}, {2, 2, 17, 33, 0, 30},
        {1, 1, 64, 64, 0, 40}, {3, 3, 31, 48, 1, 9}, {4, 2, 40, 100, 0, 9}, {1, 1, 129, 7, 0, 20}};
    static const float scales[] = {0, 0.125f, 3};
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_NONE, LINATTN_NORM_SUM,
                                                     LINATTN_NORM_LENGTH};
    rng r = {2034};
    for (size_t i = 0; i < 3 * FORM_COUNT * COUNT_OF(rule_maps); i++) {
        size_t mark = pool_mark();
        const size_t *s = shapes[i % COUNT_OF(shapes)];
        int form = (int)(i % FORM_COUNT);
        linattn_feature_map map = rule_maps[i / FORM_COUNT % COUNT_OF(rule_maps)];
        bool moves = form == FORM_MLSTM || (form <= FORM_BONUS && map == LINATTN_MAP_EXP);
        if (precision && (moves != moving || (form > FORM_BONUS && !moves))) continue;
        linattn_config config = config_of(s, (int)map, 0);
        config.key_heads = s[4];
        config.scale = scales[i % COUNT_OF(scales)];
        config.state_type = element;
        config.precision = precision;
        /* keys that are long take rules beyond f16, and NaN has no bits that hold everywhere */
        if (element == LINATTN_F16 && map != LINATTN_MAP_UNIT && form > FORM_GATED_FEATURES) {
            pool_release(mark);
            continue;
        }
        if (form <= FORM_GATED_FEATURES)
            config.normaliser = normalisers[i / FORM_COUNT % COUNT_OF(normalisers)];
        recurrence x = golden_recurrence(&r, config, form, s[5] + (precision ? 90 : 0));
        if (moving) let_fall(&x);
        recurred all = recurrence_run(&x, NULL);
        hash = hash_bytes(hash, all.out, all.count * sizeof(float));
        hash = hash_bytes(hash, all.state, all.state_bytes);
        hash = hash_bytes(hash, run_export(&x.config, all.state),
                          sums_count(&x.config) * sizeof(float));
        if (form <= FORM_BONUS || form == FORM_MLSTM) {
            check_status(linattn_merge(all.state, recurrence_run(&x, NULL).state), LINATTN_OK, "%s",
                         recurrence_name(&x));
            hash = hash_bytes(hash, all.state, all.state_bytes);
        }
        if (print) print_message("%016" PRIx64 " %s\n", hash, recurrence_name(&x));
        pool_release(mark);
    }
    return hash;
}

static uint64_t hash_rules(const family *of, bool print)
{
    (void)of;
    return hash_rules_of(HASH_START, LINATTN_F32, LINATTN_PRECISION_PLAIN, false, print);
}

static uint64_t hash_compensated_rules(const family *of, bool print)
{
    (void)of;
    return hash_rules_of(HASH_START, LINATTN_F32, LINATTN_PRECISION_COMPENSATED, false, print);
}

static uint64_t hash_compensated_exponents(const family *of, bool print)
{
    (void)of;
    return hash_rules_of(HASH_START, LINATTN_F32, LINATTN_PRECISION_COMPENSATED, true, print);
}

static void hash_of_rules(void **state)
{
    (void)state;
    check_run(hash_rules, NULL, EXPECTED_RULES);
}

/* States of 16-bit numbers: every rule, and every map that goes with them. */
static uint64_t hash_halves(const family *of, bool print)
{
    (void)of;
    static const linattn_feature_map maps[] = {LINATTN_MAP_ELU1,    LINATTN_MAP_IDENTITY,
                                               LINATTN_MAP_RELU,    LINATTN_MAP_EXP,
                                               LINATTN_MAP_SOFTMAX, LINATTN_MAP_UNIT};
    static const size_t shapes[][5] = {/* heads, kv_heads, dim_key, dim_value, n */
                                       {1, 1, 1, 1, 3},    {2, 1, 5, 19, 26},  {3, 3, 16, 16, 24},
                                       {2, 2, 17, 33, 50}, {1, 1, 64, 64, 49}, {1, 1, 130, 70, 10}};
    rng r = {2041};
    uint64_t hash = HASH_START;
    size_t i = 0;
    for (int element = LINATTN_F16; element <= LINATTN_BF16; element++) {
        hash = hash_rules_of(hash, (linattn_element)element, LINATTN_PRECISION_PLAIN, false, print);
        for (size_t map = 0; map < COUNT_OF(maps); map++)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++, i++) {
                size_t mark = pool_mark();
                const size_t *s = shapes[i % COUNT_OF(shapes)];
                linattn_config config = config_of(s, (int)maps[map], normaliser);
                config.state_type = (linattn_element)element;
                problem p = golden_problem(&r, config, s[4], s[4], i % 3 == 1);
                hash = hash_outcome(hash, &p, print);
                pool_release(mark);
            }
    }
    return hash;
}

static void hash_of_halves(void **state)
{
    (void)state;
    check_run(hash_halves, NULL, EXPECTED_HALVES);
}

static void hash_of_compensated_rules(void **state)
{
    (void)state;
    check_run(hash_compensated_rules, NULL, EXPECTED_COMPENSATED_RULES);
    check_run(hash_compensated_exponents, NULL, EXPECTED_COMPENSATED_EXPONENTS);
}

/* Long enough for sums to be folded, once within a call and once between two. */
static uint64_t hash_compensated(const family *of, bool print)
{
    (void)of;
    static const size_t shapes[][6] = {/* heads, kv_heads, dim_key, dim_value, n_q, n_k */
                                       {1, 1, 1, 1, 3, 97},
                                       {2, 1, 5, 19, 9, 150},
                                       {3, 3, 16, 16, 192, 192},
                                       {2, 2, 17, 33, 25, 96},
                                       {1, 1, 130, 20, 100, 100}};
    rng r = {2036};
    uint64_t hash = HASH_START;
    size_t i = 0;
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++, i++) {
            size_t mark = pool_mark();
            const size_t *s = shapes[i % COUNT_OF(shapes)];
            linattn_config config = config_of(s, map, normaliser);
            config.degree = 1 + i % 3;
            config.precision = LINATTN_PRECISION_COMPENSATED;
            bound_features(&config, i, test_quick() ? 150 : 300);
            problem p = golden_problem(&r, config, s[4], s[5], i % 3 == 1);
            hash = hash_outcome(hash, &p, print);
            pool_release(mark);
        }
    return hash;
}

static void hash_of_compensated(void **state)
{
    (void)state;
    check_run(hash_compensated, NULL,
              test_quick() ? EXPECTED_QUICK_COMPENSATED : EXPECTED_COMPENSATED);
}

/* Windows, sinks, soft caps, slopes and operands of 16 bits, each with and without the others. */
static void hash_of_exact(void **state)
{
    (void)state;
    static const size_t shapes[][6] = {/* heads, kv_heads, dim_key, dim_value, n_q, n_k */
                                       {1, 1, 1, 1, 1, 300},    {2, 1, 5, 19, 9, 126},
                                       {3, 3, 16, 16, 60, 160}, {4, 1, 64, 64, 1, 200},
                                       {8, 2, 17, 130, 3, 90},  {2, 2, 40, 33, 100, 100},
                                       {1, 1, 128, 7, 2, 70}};
    static const plan plain;
    const float slopes[] = {0.5f, 0.25f, 0.125f, 0, -0.0625f, 0.03125f, 0.015625f, 1};
    uint64_t hash = HASH_START;
    rng r = {2036};
    for (size_t i = 0; i < 16 * COUNT_OF(shapes); i += test_quick() ? 5 : 1) {
        size_t mark = pool_mark();
        const size_t *s = shapes[i % COUNT_OF(shapes)];
        linattn_config config = config_of(s, 0, 0);
        config.window = i & 1 ? 1 + i * 7 % 97 : 0;
        config.sinks = i % 3 ? i % 5 : 0;
        config.soft_cap = i & 2 ? 0.5f + (float)(i % 4) * 8 : 0;
        config.alibi_slopes = i & 4 ? slopes : NULL;
        problem p = golden_problem(&r, config, s[4], s[5], i % 3 == 1);
        elements of = {(linattn_element)(i / 4 % 3), (linattn_element)(i % 3),
                       (linattn_element)(i / 3 % 3)};
        narrow(of.q, p.q, p.n_q * query_width(&p));
        narrow(of.k, p.k, p.n_k * key_width(&p));
        narrow(of.v, p.v, p.n_k * value_width(&p));
        for (int causal = 0; causal < 2; causal++)
            hash = hash_bytes(hash, run_exact(&p, of, causal, &plain),
                              p.n_q * output_width(&p) * sizeof(float));
        pool_release(mark);
    }
    check_hash(hash, test_quick() ? EXPECTED_QUICK_EXACT : EXPECTED_EXACT);
}

static void hash_of_nystrom(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {/* n_q, n_k, dim_key, dim_value, landmarks */
                                       {50, 61, 17, 9, 7},
                                       {33, 30, 5, 40, 16},
                                       {70, 70, 32, 16, 24},
                                       {20, 90, 3, 3, 64}};
    uint64_t hash = HASH_START;
    rng r = {19};
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        const size_t *s = shapes[i];
        linattn_config config = {
            .heads = 2, .kv_heads = 1, .dim_key = s[2], .dim_value = s[3], .landmarks = s[4]};
        problem p = problem_new(config, s[0], s[1], &r, 2);
        size_t bytes = linattn_workspace_size(&p.config, LINATTN_WORKSPACE_NYSTROM, NULL);
        size_t count = s[0] * output_width(&p);
        float *out = pool_floats(count);
        check_status(linattn_nystrom(&p.config, linattn_rows(p.q), p.n_q, linattn_rows(p.k),
                                     linattn_rows(p.v), p.n_k, linattn_output_rows(out), 0,
                                     pool_take(bytes), bytes, NULL),
                     LINATTN_OK, "%s", problem_name(&p));
        hash = hash_bytes(hash, out, count * sizeof *out);
    }
    check_hash(hash, EXPECTED_NYSTROM);
}

static uint64_t hash_projection(uint64_t hash, uint64_t seed, int kind, size_t features, size_t dim)
{
    float *w = pool_floats(features * dim);
    check_status(linattn_random_features(seed, (linattn_random_kind)kind, features, dim, w),
                 LINATTN_OK, "kind %d, %zu x %zu", kind, features, dim);
    return hash_bytes(hash, w, features * dim * sizeof *w);
}

/* The thousands of tiny ones have rows that are drawn again. */
static void hash_of_random_features(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1},    {300, 1},  {9, 2},   {40, 3},
                                      {17, 17},  {100, 31}, {70, 65}, {256, 64},
                                      {64, 130}, {20, 300}, {40, 258}};
    uint64_t hash = HASH_START;
    for (int kind = 0; kind < LINATTN_RANDOM_COUNT; kind++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            hash = hash_projection(hash, i * UINT64_C(0x9E3779B97F4A7C15), kind, sizes[i][0],
                                   sizes[i][1]);
        for (uint64_t seed = 0; seed < 4000; seed++) {
            size_t mark = pool_mark();
            hash = hash_projection(hash, seed, kind, 3, 2);
            pool_release(mark);
        }
    }
    check_hash(hash, EXPECTED_RANDOM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hash_of_a_fixed_run), TEST(hash_of_favor),
        TEST(hash_of_monomials),   TEST(hash_of_windows),
        TEST(hash_of_unit),        TEST(hash_of_rules),
        TEST(hash_of_halves),      TEST(hash_of_compensated_rules),
        TEST(hash_of_compensated), TEST(hash_of_exact),
        TEST(hash_of_nystrom),     TEST(hash_of_random_features),
    };
    test_begin();
    return RUN_TESTS("golden", tests);
}
