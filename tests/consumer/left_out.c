/* Built with switches that leave something out: is just that refused? What is left prints a line
   per config, which the library as a whole prints, too. */
#define LINATTN_IMPLEMENTATION
#include "linattn.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#if defined(LINATTN_ONLY_ELU1) || defined(LINATTN_ONLY_IDENTITY) || defined(LINATTN_ONLY_RELU) ||  \
    defined(LINATTN_ONLY_EXP) || defined(LINATTN_ONLY_SOFTMAX) || defined(LINATTN_ONLY_FAVOR) ||   \
    defined(LINATTN_ONLY_TAYLOR) || defined(LINATTN_ONLY_EXPDEF) || defined(LINATTN_ONLY_UNIT)
#define SOME_MAPS 1
#else
#define SOME_MAPS 0
#endif
#ifdef LINATTN_ONLY_ELU1
#define ELU1 1
#else
#define ELU1 !SOME_MAPS
#endif
#ifdef LINATTN_ONLY_IDENTITY
#define IDENTITY 1
#else
#define IDENTITY !SOME_MAPS
#endif
#ifdef LINATTN_ONLY_RELU
#define RELU 1
#else
#define RELU !SOME_MAPS
#endif
#ifdef LINATTN_ONLY_EXP
#define EXP 1
#else
#define EXP !SOME_MAPS
#endif
#ifdef LINATTN_ONLY_SOFTMAX
#define SOFTMAX 1
#else
#define SOFTMAX !SOME_MAPS
#endif
#ifdef LINATTN_ONLY_UNIT
#define UNIT 1
#else
#define UNIT !SOME_MAPS
#endif
#ifdef LINATTN_NO_RECURRENT
#define RECURRENT 0
#else
#define RECURRENT 1
#endif
#if defined(LINATTN_NO_FEATURES) || defined(LINATTN_NO_PREFILL)
#define FEATURES 0
#else
#define FEATURES 1
#endif
#ifdef LINATTN_ONLY_FAVOR
#define FAVOR FEATURES
#else
#define FAVOR (FEATURES && !SOME_MAPS)
#endif
#ifdef LINATTN_ONLY_TAYLOR
#define TAYLOR FEATURES
#else
#define TAYLOR (FEATURES && !SOME_MAPS)
#endif
#ifdef LINATTN_ONLY_EXPDEF
#define EXPDEF FEATURES
#else
#define EXPDEF (FEATURES && !SOME_MAPS)
#endif
#if defined(LINATTN_NO_WINDOW) || defined(LINATTN_NO_PREFILL)
#define WINDOW 0
#else
#define WINDOW 1
#endif
#if defined(LINATTN_NO_COMPENSATED) || defined(LINATTN_NO_PREFILL) ||                              \
    (defined(LINATTN_SCALAR_ONLY) && !WINDOW && !FAVOR && !TAYLOR)
#define COMPENSATED 0
#else
#define COMPENSATED 1
#endif
#ifdef LINATTN_NO_HALF
#define HALF 0
#else
#define HALF 1
#endif
#ifdef LINATTN_NO_EXACT
#define EXACT 0
#else
#define EXACT 1
#endif
#if defined(LINATTN_NO_NYSTROM) || defined(LINATTN_NO_EXACT)
#define NYSTROM 0
#else
#define NYSTROM 1
#endif

/* Rows are short, or longer than what any kernel maps at a time. */
enum { KEY = 4, LONG_KEY = 150, VALUE = 19, TOKENS = 9 };

static size_t dim_key;
static float memory[65536], q[TOKENS * LONG_KEY], k[TOKENS * LONG_KEY], v[TOKENS * VALUE];
static float out[TOKENS * VALUE];
static int failed;

static void fill(float *x, int count)
{
    static uint32_t last = 1;
    for (int i = 0; i < count; i++) {
        last = last * 1664525u + 1013904223u;
        x[i] = (float)((int)(last >> 16) % 33 - 16) * 0.125f;
    }
}

static void print_hash(const char *what)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < TOKENS * VALUE; i++) {
        uint32_t bits;
        memcpy(&bits, out + i, sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001B3);
    }
    printf("%s, dim %zu %016" PRIx64 "\n", what, dim_key, hash);
}

static int expect(const char *what, linattn_status status, int works)
{
    const linattn_status expected = works ? LINATTN_OK : LINATTN_ERROR_UNSUPPORTED;
    if (status == expected) return works;
    failed = printf("%s: %s, expected: %s\n", what, linattn_status_string(status),
                    linattn_status_string(expected));
    return 0;
}

/* A state can be made just where `works` says so; its outputs are the same, token by token and all
   at once. */
static void check(const char *what, linattn_config config, int works)
{
    float first[VALUE];
    config.dim_key = dim_key;
    config.dim_value = VALUE;
    if (!expect(what, linattn_config_check(&config), works)) {
        expect(what, linattn_state_init(&config, memory, sizeof memory), works);
        if (linattn_state_size(&config) != 0) failed = printf("%s has a size\n", what);
        return;
    }
    if (linattn_state_size(&config) > sizeof memory) failed = printf("%s is too large\n", what);
    expect(what, linattn_state_init(&config, memory, sizeof memory), 1);
    expect(what,
           linattn_causal(memory, linattn_rows(q), linattn_rows(k), linattn_rows(v),
                          linattn_output_rows(out), 1, NULL),
           1);
    memcpy(first, out, sizeof first);
    expect(what, linattn_state_reset(memory), 1);
    expect(what,
           linattn_causal(memory, linattn_rows(q), linattn_rows(k), linattn_rows(v),
                          linattn_output_rows(out), TOKENS, NULL),
           1);
    if (memcmp(first, out, sizeof first) != 0) failed = printf("%s has other bits\n", what);
    print_hash(what);
}

/* The same of a rule, with gates that are values of other tokens. */
static void check_rule(const char *what, linattn_config config, int works)
{
    config.dim_key = dim_key;
    config.dim_value = VALUE;
    if (!expect(what, linattn_config_check(&config), works)) {
        expect(what, linattn_state_init(&config, memory, sizeof memory), works);
        if (linattn_state_size(&config) != 0) failed = printf("%s has a size\n", what);
        return;
    }
#if RECURRENT
    {
        const linattn_rule rule = config.rule;
        const linattn_view none = linattn_rows(NULL), gate = linattn_rows(v);
        const int reads = rule == LINATTN_RULE_GENERAL;
        linattn_gates gates;
        float first[VALUE];
        memset(&gates, 0, sizeof gates);
        gates.decay = rule == LINATTN_RULE_DELTA ? none : gate;
        gates.beta = rule == LINATTN_RULE_DELTA || rule == LINATTN_RULE_GATED_DELTA ? gate : none;
        gates.read = gates.write = reads ? linattn_rows(k) : none;
        gates.input = rule == LINATTN_RULE_MLSTM ? gate : none;
        expect(what, linattn_state_init(&config, memory, sizeof memory), 1);
        expect(what,
               linattn_recurrent(memory, linattn_rows(q), linattn_rows(k), linattn_rows(v), &gates,
                                 linattn_output_rows(out), 1, NULL),
               1);
        memcpy(first, out, sizeof first);
        expect(what, linattn_state_reset(memory), 1);
        expect(what,
               linattn_recurrent(memory, linattn_rows(q), linattn_rows(k), linattn_rows(v), &gates,
                                 linattn_output_rows(out), TOKENS, NULL),
               1);
        if (memcmp(first, out, sizeof first) != 0) failed = printf("%s has other bits\n", what);
        print_hash(what);
    }
#endif
}

static void check_rules(const char *name, linattn_feature_map map, int kept)
{
    for (int rule = LINATTN_RULE_SUM; rule < LINATTN_RULE_COUNT; rule++)
        for (int type = LINATTN_F32; type < LINATTN_ELEMENT_COUNT; type++) {
            const linattn_config config = {
                .map = map, .rule = (linattn_rule)rule, .state_type = (linattn_element)type};
            const int works = kept && (HALF || type == LINATTN_F32);
            char what[64];
            snprintf(what, sizeof what, "%s, rule %d, state type %d", name, rule, type);
            if (rule == LINATTN_RULE_SUM)
                check(what, config, works);
            else
                check_rule(what, config, works && RECURRENT);
        }
}

/* Zeros of 16 bits are refused, or taken as the same of floats. */
static void check_halves(void)
{
    static const float zeros[TOKENS * VALUE];
    const linattn_view halves = linattn_rows_as(zeros, LINATTN_BF16), floats = linattn_rows(zeros);
    linattn_config config = {.map = LINATTN_MAP_COUNT, .dim_key = KEY, .dim_value = VALUE};
    linattn_status status;
    for (int map = 0; map < LINATTN_MAP_FAVOR && linattn_state_size(&config) == 0; map++)
        config.map = (linattn_feature_map)map;
    if (linattn_state_size(&config) == 0) return;
    expect("a state", linattn_state_init(&config, memory, sizeof memory), 1);
    status = linattn_causal(memory, halves, floats, halves, linattn_output_rows(out), TOKENS, NULL);
    if (status != (HALF ? LINATTN_OK : LINATTN_ERROR_ELEMENT))
        failed = printf("operands of 16 bits: %s\n", linattn_status_string(status));
    for (size_t i = 0; status == LINATTN_OK && i < TOKENS * VALUE; i++)
        if (out[i] > 0 || out[i] < 0) failed = printf("output %g of zeros\n", (double)out[i]);
}

/* A verb that is left out needs no workspace: there is none that would do. */
static void check_workspace(const char *what, linattn_workspace verb, int works)
{
    const linattn_config config = {.dim_key = KEY};
    if ((linattn_workspace_size(&config, verb, NULL) != 0) != works)
        failed = printf("the workspace of %s\n", what);
}

static void check_sums(void)
{
    static const float scales[] = {0.125f, 0.3f, 2, 3, 1e-41f, 1e38f};
    const int kept[] = {ELU1, IDENTITY, RELU, EXP, SOFTMAX};
    check("elu1", (linattn_config){.map = LINATTN_MAP_ELU1}, ELU1);
    check("identity", (linattn_config){.map = LINATTN_MAP_IDENTITY}, IDENTITY);
    check("relu", (linattn_config){.map = LINATTN_MAP_RELU}, RELU);
    check("exp", (linattn_config){.map = LINATTN_MAP_EXP}, EXP);
    check("softmax", (linattn_config){.map = LINATTN_MAP_SOFTMAX}, SOFTMAX);
    check("unit", (linattn_config){.map = LINATTN_MAP_UNIT}, UNIT);
    check("unit, window", (linattn_config){.map = LINATTN_MAP_UNIT, .window = 3}, UNIT && WINDOW);
    check_rules("elu1", LINATTN_MAP_ELU1, ELU1);
    check_rules("identity", LINATTN_MAP_IDENTITY, IDENTITY);
    check_rules("relu", LINATTN_MAP_RELU, RELU);
    check_rules("exp", LINATTN_MAP_EXP, EXP);
    check_rules("unit", LINATTN_MAP_UNIT, UNIT);
    check("softmax, sum",
          (linattn_config){.map = LINATTN_MAP_SOFTMAX, .normaliser = LINATTN_NORM_SUM}, SOFTMAX);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (int map = LINATTN_MAP_ELU1; map <= LINATTN_MAP_SOFTMAX; map++) {
            const linattn_config config = {
                .map = (linattn_feature_map)map, .scale = scales[i], .epsilon = 0.5f};
            char name[64];
            snprintf(name, sizeof name, "map %d, scale %g", map, (double)scales[i]);
            check(name, config, kept[map]);
        }
    check("elu1, compensated",
          (linattn_config){.map = LINATTN_MAP_ELU1, .precision = LINATTN_PRECISION_COMPENSATED},
          ELU1 && COMPENSATED);
    check("exp, compensated",
          (linattn_config){.map = LINATTN_MAP_EXP, .precision = LINATTN_PRECISION_COMPENSATED},
          EXP && COMPENSATED);
    check_rule("elu1, gated, compensated",
               (linattn_config){.map = LINATTN_MAP_ELU1,
                                .rule = LINATTN_RULE_GATED,
                                .precision = LINATTN_PRECISION_COMPENSATED},
               ELU1 && RECURRENT && COMPENSATED);
    check("elu1, window", (linattn_config){.map = LINATTN_MAP_ELU1, .window = 3}, ELU1 && WINDOW);
    check("exp, window", (linattn_config){.map = LINATTN_MAP_EXP, .window = 3}, EXP && WINDOW);
}

static void check_features(void)
{
    static const float projection[16] = {1, 0, -1, 0, 0, 1, 0, -1, 1, 1, 0, 0, 0, 0, 1, 1};
    linattn_config favor = {.features = 4, .projection = projection};
    check("taylor", (linattn_config){.map = LINATTN_MAP_TAYLOR}, TAYLOR);
    check("expdef", (linattn_config){.map = LINATTN_MAP_EXPDEF}, EXPDEF);
    favor.map = LINATTN_MAP_FAVOR;
    check("favor", favor, FAVOR);
    favor.map = LINATTN_MAP_FAVOR_SIMPLIFIED;
    check("simplified", favor, FAVOR);
    favor.map = LINATTN_MAP_FAVOR_HYPERBOLIC;
    check("hyperbolic", favor, FAVOR);
    favor.window = 3;
    check("hyperbolic, window", favor, FAVOR && WINDOW);
    check("taylor, window", (linattn_config){.map = LINATTN_MAP_TAYLOR, .window = 3},
          TAYLOR && WINDOW);
    check_workspace("exact attention", LINATTN_WORKSPACE_SOFTMAX, EXACT);
    check_workspace("nystrom", LINATTN_WORKSPACE_NYSTROM, NYSTROM);
    check_halves();
}

/* What is left out does not depend on the instruction set, nor do the bits. */
int main(void)
{
    fill(q, TOKENS * LONG_KEY);
    fill(k, TOKENS * LONG_KEY);
    fill(v, TOKENS * VALUE);
    for (int isa = LINATTN_ISA_SCALAR; isa < LINATTN_ISA_COUNT; isa++)
        if (linattn_isa_available() >> isa & 1) {
            if (linattn_isa_select((linattn_isa)isa) != LINATTN_OK) failed = 1;
            dim_key = LONG_KEY;
            check_sums();
            dim_key = KEY;
            check_sums();
            check_features();
        }
    return failed != 0;
}
