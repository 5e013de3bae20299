/* Every status of every function, nothing written on refusal, states as blocks of bytes, strides,
   and the host's floating-point environment. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Config --------------------------------------------------------------------------------- */

/* Enumerators out of range, as a caller in another language may pass them. */
static linattn_config with_map(linattn_config config, int map)
{
    memcpy(&config.map, &map, sizeof map);
    return config;
}

static linattn_config with_normaliser(linattn_config config, int normaliser)
{
    memcpy(&config.normaliser, &normaliser, sizeof normaliser);
    return config;
}

typedef struct refusal {
    const char *why, *field;
    linattn_status status;
    linattn_config config;
} refusal;

static const refusal fixed_refusals[] = {
    {"no dim_key", "dim_key", LINATTN_ERROR_SIZE, {.heads = 2}},
    {"dim_key too large",
     "dim_key",
     LINATTN_ERROR_SIZE,
     {.dim_key = LINATTN_MAX_DIM + 1, .dim_value = 1}},
    {"dim_key huge", "dim_key", LINATTN_ERROR_SIZE, {.dim_key = SIZE_MAX, .dim_value = 1}},
    {"dim_value too large",
     "dim_value",
     LINATTN_ERROR_SIZE,
     {.dim_key = 1, .dim_value = LINATTN_MAX_DIM + 1}},
    {"dim_value huge", "dim_value", LINATTN_ERROR_SIZE, {.dim_key = 1, .dim_value = SIZE_MAX - 8}},
    {"heads huge", "heads", LINATTN_ERROR_SIZE, {.heads = SIZE_MAX, .dim_key = 1}},
    {"heads times dim", "heads", LINATTN_ERROR_SIZE, {.heads = SIZE_MAX / 64 + 2, .dim_key = 16}},
    {"heads times matrix",
     "heads",
     LINATTN_ERROR_SIZE,
     {.heads = SIZE_MAX >> 34, .dim_key = 65536}},
    {"not a divisor", "kv_heads", LINATTN_ERROR_CONFIG, {.heads = 4, .kv_heads = 3, .dim_key = 8}},
    {"kv_heads alone", "kv_heads", LINATTN_ERROR_CONFIG, {.kv_heads = 2, .dim_key = 8}},
    {"more kv_heads", "kv_heads", LINATTN_ERROR_CONFIG, {.heads = 2, .kv_heads = 4, .dim_key = 8}},
    {"negative scale", "scale", LINATTN_ERROR_CONFIG, {.dim_key = 8, .scale = -1}},
    {"negative epsilon", "epsilon", LINATTN_ERROR_CONFIG, {.dim_key = 8, .epsilon = -1e-6f}},
    {"features too many",
     "features",
     LINATTN_ERROR_SIZE,
     {.dim_key = 8, .map = LINATTN_MAP_FAVOR, .features = SIZE_MAX}},
    {"features overflow",
     "features",
     LINATTN_ERROR_SIZE,
     {.dim_key = 8, .map = LINATTN_MAP_FAVOR_HYPERBOLIC, .features = SIZE_MAX / 2 + 1}},
    {"features times dim_key",
     "features",
     LINATTN_ERROR_SIZE,
     {.dim_key = 8, .map = LINATTN_MAP_FAVOR_SIMPLIFIED, .features = SIZE_MAX / 8 + 1}},
    {"degree 9",
     "degree",
     LINATTN_ERROR_CONFIG,
     {.dim_key = 2, .map = LINATTN_MAP_TAYLOR, .degree = 9}},
    {"degree huge",
     "degree",
     LINATTN_ERROR_CONFIG,
     {.dim_key = 1, .map = LINATTN_MAP_EXPDEF, .degree = SIZE_MAX}},
    {"monomials overflow",
     "degree",
     LINATTN_ERROR_SIZE,
     {.dim_key = 65536, .dim_value = 1, .map = LINATTN_MAP_TAYLOR, .degree = 8}},
    {"monomials overflow",
     "degree",
     LINATTN_ERROR_SIZE,
     {.dim_key = 65536, .dim_value = 1, .map = LINATTN_MAP_EXPDEF, .degree = 5}},
    {"monomials times dim_value",
     "degree",
     LINATTN_ERROR_SIZE,
     {.dim_key = 65536, .map = LINATTN_MAP_TAYLOR, .degree = 3}},
    {"monomials times heads",
     "degree",
     LINATTN_ERROR_SIZE,
     {.heads = 65536, .dim_key = 65536, .dim_value = 16, .map = LINATTN_MAP_EXPDEF, .degree = 3}},
    {"window too large", "window", LINATTN_ERROR_SIZE, {.dim_key = 8, .window = 0x40000000}},
    {"window huge", "window", LINATTN_ERROR_SIZE, {.dim_key = 8, .window = SIZE_MAX}},
    {"landmarks too many",
     "landmarks",
     LINATTN_ERROR_SIZE,
     {.dim_key = 8, .landmarks = LINATTN_MAX_DIM + 1}},
};

static size_t config_refusals(refusal *list)
{
    size_t count = 0;
    for (; count < COUNT_OF(fixed_refusals); count++) list[count] = fixed_refusals[count];
    const linattn_config good = {.dim_key = 8};
    const float wrong[] = {test_nan, -test_nan, test_infinity, -test_infinity};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        list[count] = (refusal){"scale not finite", "scale", LINATTN_ERROR_CONFIG, good};
        list[count++].config.scale = wrong[i];
        list[count] = (refusal){"epsilon not finite", "epsilon", LINATTN_ERROR_CONFIG, good};
        list[count++].config.epsilon = wrong[i];
    }
    const int maps[] = {-1, LINATTN_MAP_COUNT, 1000}, norms[] = {-1, LINATTN_NORM_COUNT, 1000};
    for (size_t i = 0; i < COUNT_OF(maps); i++) {
        list[count++] = (refusal){"map", "map", LINATTN_ERROR_CONFIG, with_map(good, maps[i])};
        list[count++] = (refusal){"normaliser", "normaliser", LINATTN_ERROR_CONFIG,
                                  with_normaliser(good, norms[i])};
    }
    return count;
}

enum { MOST_REFUSALS = 80 };

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* What exact attention and Nystroem do not look at, and what linattn_map does not. */
static bool is_ignored_by_exact(const refusal *r)
{
    static const char *const names[] = {"map",      "normaliser", "epsilon",
                                        "features", "projection", "degree"};
    return is_one_of(r->field, names, COUNT_OF(names));
}

static bool is_ignored_by_map(const refusal *r)
{
    static const char *const names[] = {"heads",      "kv_heads", "dim_value", "epsilon",
                                        "normaliser", "window",   "landmarks"};
    return is_one_of(r->field, names, COUNT_OF(names)) || strstr(r->why, "monomials times");
}

/* Does the sentence ask whether the config was set? */
static bool asks(const char *why)
{
    static const char question[] = "was the config zeroed first? ";
    return why && strncmp(why, question, sizeof question - 1) == 0;
}

/* Does it, or what follows the question, begin with this field? */
static bool begins_with(const char *why, const char *field)
{
    size_t length = strlen(field);
    if (asks(why)) why = strchr(why, '?') + 2;
    return why && strncmp(why, field, length) == 0 && why[length] == ' ';
}

static void check_config_error(const linattn_config *c, const char *field, const char *why)
{
    check(begins_with(why, field), "%s: %s, %s", field, why ? why : "none", config_name(c));
    bool huge = c->heads > 1u << 31 || c->dim_key > 1u << 31 || c->dim_value > 1u << 31 ||
                c->features > 1u << 31 || c->degree > 1u << 31 || c->window > 1u << 31;
    bool map = (int)c->map < 0 || (int)c->map > 255;
    bool norm = (int)c->normaliser < 0 || (int)c->normaliser > 255;
    check(asks(why) == (huge || map || norm), "%s, %s", why, config_name(c));
}

/* Memory that nobody has set: the sentence asks whether it was. */
static void unset_configs(void **state)
{
    (void)state;
    static const unsigned char patterns[] = {0xA5, 0xCC, 0xCD, 0xFF, 0x55, 0x7F, 0x80};
    linattn_config c;
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        memset(&c, patterns[i], sizeof c);
        const char *why = linattn_config_error(&c);
        check(asks(why), "%02x: %s", patterns[i], why ? why : "none");
        c.heads = c.dim_key = 8; /* and what a newcomer sets */
        why = linattn_config_error(&c);
        check(asks(why), "%02x: %s", patterns[i], why ? why : "none");
    }
    uintptr_t *words = (uintptr_t *)(void *)&c;
    for (size_t i = 0; i < sizeof c / sizeof *words; i++) words[i] = (uintptr_t)&c;
    check(asks(linattn_config_error(&c)), "pointers");
    check(strncmp(linattn_config_error(NULL), "config ", 7) == 0, "NULL");
}

/* All functions that take a config refuse it alike, and write nothing. */
static void configs_are_refused(void **state)
{
    (void)state;
    refusal list[MOST_REFUSALS];
    size_t count = config_refusals(list);
    float x[64] = {0}, y[64], before[64];
    memset(y, 0xA5, sizeof y);
    memcpy(before, y, sizeof y);
    linattn_view in = linattn_rows(x);
    linattn_output out = linattn_output_rows(y);
    unsigned char *memory = (unsigned char *)pool_take(4096), *copy = pool_copy(memory, 4096);
    for (size_t i = 0; i < count; i++) {
        const linattn_config *c = &list[i].config;
        const char *why = list[i].why;
        linattn_status expected = list[i].status;
        check_status(linattn_config_check(c), expected, "%s", why);
        check_config_error(c, list[i].field, linattn_config_error(c));
        check(linattn_features(c) == 0, "%s", why);
        check(linattn_state_size(c) == 0, "%s", why);
        check(linattn_workspace_size(c, LINATTN_WORKSPACE_BIDIRECTIONAL, NULL) == 0, "%s", why);
        check_status(linattn_state_init(c, memory, SIZE_MAX), expected, "%s", why);
        check_status(linattn_state_check(c, memory, SIZE_MAX), expected, "%s", why);
        check_status(linattn_bidirectional(c, in, 1, in, in, 1, out, memory, SIZE_MAX, NULL),
                     expected, "%s", why);
        const bool none = is_ignored_by_exact(&list[i]), window = !strcmp(list[i].field, "window");
        const bool takes[] = {none, none || window}; /* exact attention, Nystroem */
        for (int j = 0; j < 2; j++) {
            size_t bytes =
                linattn_workspace_size(c, (linattn_workspace)(LINATTN_WORKSPACE_SOFTMAX + j), NULL);
            check(takes[j] == (bytes > 0), "%zu bytes, %s", bytes, why);
        }
        linattn_status exact[] = {
            linattn_softmax(c, in, takes[0] ? 0 : 1, in, in, 1, out, 0, memory, SIZE_MAX / 2, NULL),
            linattn_nystrom(c, in, takes[1] ? 0 : 1, in, in, 1, out, 0, memory, SIZE_MAX / 2,
                            NULL)};
        for (size_t j = 0; j < COUNT_OF(exact) && c->dim_key < LINATTN_MAX_DIM; j++)
            check_status(exact[j], takes[j] ? LINATTN_OK : expected, "%s", why);
        bool taken = is_ignored_by_map(&list[i]);
        check_status(linattn_map(c, 0, x, y, taken ? 0 : 1), taken ? LINATTN_OK : expected, "%s",
                     why);
        check_same_bytes(y, before, sizeof y, "%s", why);
        check_same_bytes(memory, copy, 4096, "%s", why);
    }
}

/* Whatever a config says about maps, exact attention and Nystroem are the same; Nystroem is, too,
   whatever it says about windows. */
static void maps_do_not_matter_to_exact_attention(void **state)
{
    (void)state;
    rng r = {8};
    const linattn_config plain = {.heads = 4, .kv_heads = 2, .dim_key = 5, .dim_value = 7};
    linattn_config others[8];
    for (size_t i = 0; i < COUNT_OF(others); i++) others[i] = plain;
    others[0].map = LINATTN_MAP_FAVOR; /* without a projection */
    others[1].map = LINATTN_MAP_TAYLOR;
    others[1].degree = 9;
    others[2].features = SIZE_MAX;
    others[2].map = LINATTN_MAP_FAVOR_HYPERBOLIC;
    others[3] = with_map(plain, -1);
    others[4] = with_normaliser(plain, 77);
    others[5].epsilon = test_nan;
    others[6].window = 3;
    others[7].window = SIZE_MAX;
    enum { N = 20, OUT = N * 4 * 7 };
    problem p = problem_new(plain, N, N, &r, 2);
    for (int verb = LINATTN_WORKSPACE_SOFTMAX; verb <= LINATTN_WORKSPACE_NYSTROM; verb++) {
        float expected[OUT], actual[OUT];
        size_t bytes = linattn_workspace_size(&plain, (linattn_workspace)verb, NULL);
        void *memory = pool_take(bytes);
        size_t count = COUNT_OF(others) - (verb == LINATTN_WORKSPACE_SOFTMAX ? 2 : 0);
        for (size_t i = 0; i <= count; i++) {
            const linattn_config *c = i ? &others[i - 1] : &plain;
            linattn_output out = linattn_output_rows(i ? actual : expected);
            linattn_view q = linattn_rows(p.q), k = linattn_rows(p.k), v = linattn_rows(p.v);
            check(linattn_workspace_size(c, (linattn_workspace)verb, NULL) == bytes, "%zu", i);
            linattn_status status =
                verb == LINATTN_WORKSPACE_SOFTMAX
                    ? linattn_softmax(c, q, N, k, v, N, out, 0, memory, bytes, NULL)
                    : linattn_nystrom(c, q, N, k, v, N, out, 0, memory, bytes, NULL);
            check_status(status, LINATTN_OK, "config %zu", i);
            if (i) check_same_floats(actual, expected, OUT, 28, "config %zu, verb %d", i, verb);
        }
    }
}

static void a_null_config_is_refused(void **state)
{
    (void)state;
    float x[8] = {0};
    unsigned char memory[64] = {0};
    linattn_view in = linattn_rows(x);
    linattn_output out = linattn_output_rows(x + 4);
    check_status(linattn_config_check(NULL), LINATTN_ERROR_NULL, "NULL");
    check(linattn_features(NULL) == 0, "NULL");
    check(linattn_state_size(NULL) == 0, "NULL");
    check(linattn_workspace_size(NULL, LINATTN_WORKSPACE_SOFTMAX, NULL) == 0, "NULL");
    check_status(linattn_state_init(NULL, memory, 64), LINATTN_ERROR_NULL, "NULL");
    check_status(linattn_state_check(NULL, memory, 64), LINATTN_ERROR_NULL, "NULL");
    check_status(linattn_bidirectional(NULL, in, 1, in, in, 1, out, memory, 64, NULL),
                 LINATTN_ERROR_NULL, "NULL");
    check_status(linattn_softmax(NULL, in, 1, in, in, 1, out, 0, memory, 64, NULL),
                 LINATTN_ERROR_NULL, "NULL");
    check_status(linattn_map(NULL, 0, x, x, 1), LINATTN_ERROR_NULL, "NULL");
}

/* Favor without a projection, or with one that is out of range. Exact attention does not ask. */
static void projections_are_refused(void **state)
{
    (void)state;
    static const float wrong[] = {NAN, -INFINITY, INFINITY, 1.0000001e6f, -2e6f, FLT_MAX};
    enum { WIDTH = 3, ROWS = 5 };
    float projection[ROWS * WIDTH] = {0}, x[64] = {0}, y[64];
    linattn_view in = linattn_rows(x);
    linattn_output out = linattn_output_rows(y);
    unsigned char *memory = (unsigned char *)pool_take(65536), *copy = pool_copy(memory, 65536);
    float *before = (float *)memset(y, 0xA5, sizeof y);
    before = (float *)pool_copy(before, sizeof y);
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++)
        for (size_t i = 0; i <= COUNT_OF(wrong); i++)
            for (size_t at = 0; at < ROWS * WIDTH; at++) {
                linattn_config c = {.dim_key = WIDTH,
                                    .map = (linattn_feature_map)map,
                                    .features = ROWS,
                                    .projection = i ? projection : NULL};
                memset(projection, 0, sizeof projection);
                if (i) projection[at] = wrong[i - 1];
                linattn_status expected = i ? LINATTN_ERROR_CONFIG : LINATTN_ERROR_NULL;
                const char *name = config_name(&c);
                check_status(linattn_config_check(&c), expected, "%s", name);
                check_config_error(&c, "projection", linattn_config_error(&c));
                check_status(linattn_state_init(&c, memory, 65536), expected, "%s", name);
                check_status(linattn_state_check(&c, memory, 65536), expected, "%s", name);
                check_status(linattn_bidirectional(&c, in, 1, in, in, 1, out, memory, 65536, NULL),
                             expected, "%s", name);
                check_status(linattn_map(&c, 1, x, y, 1), expected, "%s", name);
                check_same_bytes(y, before, sizeof y, "%s", name);
                check_same_bytes(memory, copy, 65536, "%s", name);
            }
    for (size_t at = 0; at < ROWS * WIDTH; at++)
        for (int sign = -1; sign <= 1; sign += 2) {
            linattn_config c = {.dim_key = WIDTH,
                                .map = LINATTN_MAP_FAVOR,
                                .features = ROWS,
                                .projection = projection};
            memset(projection, 0, sizeof projection);
            projection[at] = 1e6f * (float)sign;
            check_status(linattn_config_check(&c), LINATTN_OK, "1e6, %s", config_name(&c));
        }
}

/* The number of rows is 4 * dim_key unless given, and not one more is read. */
static void default_features(void **state)
{
    (void)state;
    rng r = {6};
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++)
        for (size_t dim = 1; dim < 20; dim += 6) {
            size_t mark = pool_mark(), bytes = 4 * dim * dim * sizeof(float);
            float *projection = (float *)pool_take_guarded(bytes, GUARD_AFTER);
            rng_fill_normal(&r, projection, 4 * dim * dim);
            pool_freeze();
            linattn_config config = {.heads = 2,
                                     .dim_key = dim,
                                     .map = (linattn_feature_map)map,
                                     .projection = projection};
            size_t m = map == LINATTN_MAP_FAVOR_HYPERBOLIC ? 8 * dim : 4 * dim;
            check(linattn_features(&config) == m, "%zu features, %s", linattn_features(&config),
                  config_name(&config));
            linattn_config spelt = config;
            spelt.features = 4 * dim;
            size_t size = linattn_state_size(&config);
            void *memory = run_init(&config);
            check(linattn_state_size(&spelt) == size, "%s", config_name(&config));
            check_status(linattn_state_check(&spelt, memory, size), LINATTN_OK, "%s",
                         config_name(&config));
            problem p = problem_new(spelt, 9, 9, &r, 2), q = p;
            q.config.features = 0;
            outcome expected = run_all(&p, NULL), actual = run_all(&q, NULL);
            check_same_outcome(&p, &actual, &expected, "the default number of features");
            pool_release(mark);
        }
    linattn_config monomials = {.dim_key = 16, .map = LINATTN_MAP_TAYLOR};
    check(linattn_features(&monomials) == 153, "%zu", linattn_features(&monomials));
    monomials.degree = 2;
    check(linattn_features(&monomials) == 153, "%zu", linattn_features(&monomials));
}

static void configs_at_the_limits_are_taken(void **state)
{
    (void)state;
    const linattn_config good[] = {
        {.dim_key = 1},
        {.dim_key = LINATTN_MAX_DIM, .dim_value = 1},
        {.dim_key = 1, .dim_value = LINATTN_MAX_DIM},
        {.dim_key = 3, .scale = FLT_MAX, .epsilon = FLT_MAX},
        {.dim_key = 3, .scale = FLT_MIN, .epsilon = FLT_MIN},
        {.heads = 6, .kv_heads = 2, .dim_key = 3},
        {.heads = 6, .kv_heads = 1, .dim_key = 3},
        {.heads = 6, .kv_heads = 6, .dim_key = 3},
        {.dim_key = 1, .map = LINATTN_MAP_TAYLOR, .degree = 8},
        {.dim_key = 30, .dim_value = 1, .map = LINATTN_MAP_TAYLOR, .degree = 8},
        {.dim_key = LINATTN_MAX_DIM, .dim_value = 1, .map = LINATTN_MAP_EXPDEF, .degree = 2},
        {.dim_key = 3, .window = 1},
        {.dim_key = 3, .window = 100000},
        {.dim_key = 3, .features = SIZE_MAX, .degree = 7}, /* of other maps */
    };
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        check_status(linattn_config_check(&good[i]), LINATTN_OK, "%s", config_name(&good[i]));
        check(linattn_config_error(&good[i]) == NULL, "%s", config_name(&good[i]));
        check(linattn_features(&good[i]) == config_features(&good[i]), "%zu features, %s",
              linattn_features(&good[i]), config_name(&good[i]));
        check(linattn_state_size(&good[i]) > 0, "%s", config_name(&good[i]));
    }
}

/* What the documentation says about memory, with room for a header and for rounding. */
static void sizes_are_as_documented(void **state)
{
    (void)state;
    rng r = {1};
    for (int i = 0; i < 300; i++) {
        linattn_config config = {.heads = 12,
                                 .kv_heads = (size_t)1 << rng_below(&r, 3),
                                 .dim_key = 1 + rng_below(&r, 200),
                                 .dim_value = 1 + rng_below(&r, 200),
                                 .map = (linattn_feature_map)rng_below(&r, LINATTN_MAP_COUNT)};
        config_draw_features(&r, &config, 5000);
        size_t bytes = linattn_state_size(&config), m = config_features(&config);
        size_t panels = (config.dim_value + 15) / 16 * 16;
        size_t least = 4 * config.kv_heads * m * (config.dim_value + 1);
        size_t most = 4 * config.kv_heads * (m + 16) * (panels + 2) + 512;
        if (map_is_favor(config.map)) {
            least += 4 * config_resolved(config).features * config.dim_key;
            most += 4 * (m + 16) * config.dim_key;
        }
        if (map_is_monomial(config.map)) most += 4 * (m + 16);
        check(bytes >= least && bytes <= most && bytes % 4 == 0, "%zu bytes, %s", bytes,
              config_name(&config));
    }
}

/* The macro is a constant, for all maps that act on each coordinate. */
static void sizes_of_static_states(void **state)
{
    (void)state;
    static unsigned char memory[LINATTN_STATE_BYTES(2, 16, 24)];
    rng r = {2};
    for (size_t dim = 1; dim < 300; dim++)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++)
            for (int normaliser = 0; normaliser < LINATTN_NORM_COUNT; normaliser++) {
                if (map_has_fields((linattn_feature_map)map)) continue;
                size_t kv_heads = 1 + rng_below(&r, 9), other = 1 + rng_below(&r, 300);
                size_t d = normaliser % 2 ? dim : other, dv = normaliser % 2 ? other : dim;
                linattn_config config = {.heads = kv_heads * (1 + rng_below(&r, 3)),
                                         .kv_heads = kv_heads,
                                         .dim_key = d,
                                         .dim_value = dv,
                                         .map = (linattn_feature_map)map,
                                         .normaliser = (linattn_normaliser)normaliser};
                size_t bytes = linattn_state_size(&config);
                check(LINATTN_STATE_BYTES(kv_heads, d, dv) == bytes, "%zu bytes, %s", bytes,
                      config_name(&config));
                check(LINATTN_STATE_BYTES(kv_heads + 0, d + 1 - 1, dv | 0) == bytes,
                      "%zu bytes, sums as arguments", bytes);
            }
    linattn_config large = {.heads = 3, .dim_key = LINATTN_MAX_DIM, .dim_value = LINATTN_MAX_DIM};
    if (sizeof(size_t) > 4)
        check(linattn_state_size(&large) == LINATTN_STATE_BYTES(3, 65536, 65536), "the largest");
    linattn_config config = {.heads = 2, .dim_key = 16, .dim_value = 24};
    check(linattn_state_size(&config) == sizeof memory, "%zu bytes", sizeof memory);
}

/* A window costs memory, and more of it the longer it is. */
static void sizes_of_windows(void **state)
{
    (void)state;
    linattn_config config = {.heads = 4, .kv_heads = 2, .dim_key = 20, .dim_value = 40};
    size_t least = linattn_state_size(&config);
    for (size_t window = 1; window <= 4096; window *= 4) {
        config.window = window;
        size_t bytes = linattn_state_size(&config);
        check(bytes >= least && bytes % 4 == 0, "%zu bytes after %zu, window %zu", bytes, least,
              window);
        least = bytes;
    }
    config.window = SIZE_MAX; /* refused, or as good as none */
    linattn_status status = linattn_config_check(&config);
    check((status == LINATTN_OK) == (linattn_state_size(&config) > 0), "status %d", (int)status);
    check(status == LINATTN_OK || status == LINATTN_ERROR_SIZE, "status %d", (int)status);
}

/* ---- A world of operands -------------------------------------------------------------------- */

enum { HEADS = 4, KV_HEADS = 2, DIM_KEY = 6, DIM_VALUE = 5, TOKENS = 7, FEATURES = 9 };

/* Everything that a call may read or write, in one block that can be compared with its copy. What
   comes first is aligned as the block is, to 64 bytes; some outputs begin in front of the state. */
typedef struct world {
    unsigned char front[64], state[49152], other[49152], workspace[65536];
    linattn_config config;
    size_t state_bytes;
    float projection[FEATURES * DIM_KEY];
    float q[TOKENS * HEADS * DIM_KEY], k[TOKENS * KV_HEADS * DIM_KEY];
    float v[TOKENS * KV_HEADS * DIM_VALUE], out[TOKENS * HEADS * DIM_VALUE];
} world;

/* Empty states of another map. */
static void world_use(world *w, int map, size_t window)
{
    w->config.map = (linattn_feature_map)map;
    w->config.window = window;
    w->config.features = map_is_favor(w->config.map) ? FEATURES : 0;
    w->config.projection = map_is_favor(w->config.map) ? w->projection : NULL;
    w->state_bytes = linattn_state_size(&w->config);
    check(w->state_bytes + 64 <= sizeof w->state, "%zu", w->state_bytes);
    check_status(linattn_state_init(&w->config, w->state, w->state_bytes), LINATTN_OK, "init");
    check_status(linattn_state_init(&w->config, w->other, w->state_bytes), LINATTN_OK, "init");
}

static linattn_config usual_config(void)
{
    return (linattn_config){
        .heads = HEADS, .kv_heads = KV_HEADS, .dim_key = DIM_KEY, .dim_value = DIM_VALUE};
}

static world *world_new(void)
{
    world *w = (world *)pool_take(sizeof *w);
    rng r = {1};
    w->config = usual_config();
    rng_fill(&r, w->q, COUNT_OF(w->q), 2);
    rng_fill(&r, w->k, COUNT_OF(w->k), 2);
    rng_fill(&r, w->v, COUNT_OF(w->v), 2);
    rng_fill_normal(&r, w->projection, COUNT_OF(w->projection));
    world_use(w, LINATTN_MAP_EXP, 0);
    check_status(linattn_update(w->state, linattn_rows(w->k), linattn_rows(w->v), 2, NULL),
                 LINATTN_OK, "update");
    return w;
}

/* The operands of a call in the world, to be spoilt one by one. */
typedef struct call {
    world *w;
    void *state;
    linattn_view q, k, v;
    linattn_output out;
    size_t n_q, n_k;
    void *workspace;
    size_t workspace_bytes;
    int causal;
} call;

typedef enum verb { UPDATE, QUERY, CAUSAL, BIDIRECTIONAL, SOFTMAX, VERB_COUNT } verb;

static const char *const verb_names[] = {"update", "query", "causal", "bidirectional", "softmax"};

/* Sets of verbs. */
enum {
    WITH_STATE = 1 << UPDATE | 1 << QUERY | 1 << CAUSAL,
    WITH_QUERIES = 1 << QUERY | 1 << CAUSAL | 1 << BIDIRECTIONAL | 1 << SOFTMAX,
    WITH_KEYS = 1 << UPDATE | 1 << CAUSAL | 1 << BIDIRECTIONAL | 1 << SOFTMAX,
    WITH_WORKSPACE = 1 << BIDIRECTIONAL | 1 << SOFTMAX,
    ALL_VERBS = (1 << VERB_COUNT) - 1
};

static call call_new(world *w)
{
    call c = {w,
              w->state,
              linattn_rows(w->q),
              linattn_rows(w->k),
              linattn_rows(w->v),
              linattn_output_rows(w->out),
              TOKENS,
              TOKENS,
              w->workspace,
              sizeof w->workspace,
              0};
    return c;
}

static linattn_status perform(const call *c, verb which)
{
    const linattn_config *config = &c->w->config;
    switch (which) {
    case UPDATE: return linattn_update(c->state, c->k, c->v, c->n_k, NULL);
    case QUERY: return linattn_query(c->state, c->q, c->out, c->n_q, NULL);
    case CAUSAL: return linattn_causal(c->state, c->q, c->k, c->v, c->out, c->n_q, NULL);
    case BIDIRECTIONAL:
        return linattn_bidirectional(config, c->q, c->n_q, c->k, c->v, c->n_k, c->out, c->workspace,
                                     c->workspace_bytes, NULL);
    default:
        return linattn_softmax(config, c->q, c->n_q, c->k, c->v, c->n_k, c->out, c->causal,
                               c->workspace, c->workspace_bytes, NULL);
    }
}

static void check_refused_by(const call *c, int verbs, linattn_status expected, const char *why)
{
    world *before = (world *)pool_copy(c->w, sizeof *c->w);
    for (int which = 0; which < VERB_COUNT; which++) {
        if (!(verbs >> which & 1)) continue;
        check_status(perform(c, (verb)which), expected, "%s, %s", verb_names[which], why);
        check_same_bytes(c->w, before, sizeof *before, "%s, %s: written although refused",
                         verb_names[which], why);
    }
}

static void check_taken_by(const call *c, int verbs, const char *why)
{
    for (int which = 0; which < VERB_COUNT; which++)
        if (verbs >> which & 1)
            check_status(perform(c, (verb)which), LINATTN_OK, "%s, %s", verb_names[which], why);
}

/* The verbs with a state that take this one. */
static int verbs_of_state(const world *w) { return w->config.window ? 1 << CAUSAL : WITH_STATE; }

static void null_operands(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    check_taken_by(&c, ALL_VERBS, "good operands");
    c.state = NULL;
    check_refused_by(&c, WITH_STATE, LINATTN_ERROR_NULL, "no state");
    c = call_new(w);
    c.q.data = NULL;
    check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_NULL, "no queries");
    c = call_new(w);
    c.k.data = NULL;
    check_refused_by(&c, WITH_KEYS, LINATTN_ERROR_NULL, "no keys");
    c = call_new(w);
    c.v.data = NULL;
    check_refused_by(&c, WITH_KEYS, LINATTN_ERROR_NULL, "no values");
    c = call_new(w);
    c.out.data = NULL;
    check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_NULL, "no output");
    c = call_new(w);
    c.workspace = NULL;
    check_refused_by(&c, WITH_WORKSPACE, LINATTN_ERROR_NULL, "no workspace");
}

/* n = 0 with nothing behind the views does nothing; no keys under queries give zeros. */
static void no_tokens(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    c.n_q = c.n_k = 0;
    world *before = (world *)pool_copy(w, sizeof *w);
    check_taken_by(&c, ALL_VERBS, "no tokens");
    check_same_bytes(w->state, before->state, sizeof w->state, "no tokens");
    check_same_bytes(w->out, before->out, sizeof w->out, "no tokens");
    c.q = c.k = c.v = linattn_rows(NULL);
    c.out = linattn_output_rows(NULL);
    check_taken_by(&c, ALL_VERBS, "no tokens and no memory");
    check_same_bytes(w->state, before->state, sizeof w->state, "no tokens");

    c = call_new(w);
    c.n_k = 0;
    c.k = c.v = linattn_rows(NULL);
    for (int which = BIDIRECTIONAL; which <= SOFTMAX; which++) {
        memset(w->out, 0xA5, sizeof w->out);
        check_status(perform(&c, (verb)which), LINATTN_OK, "no keys");
        for (size_t i = 0; i < COUNT_OF(w->out); i++)
            check(w->out[i] == 0, "%s: element %zu is %g", verb_names[which], i, (double)w->out[i]);
    }
    c = call_new(w);
    c.n_q = c.n_k = 0;
    c.state = NULL;
    check_refused_by(&c, WITH_STATE, LINATTN_ERROR_NULL, "no tokens and no state");
}

static void states_that_are_none(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    for (size_t i = 1; i < 4; i++) {
        c.state = w->state + i;
        check_refused_by(&c, WITH_STATE, LINATTN_ERROR_ALIGNMENT, "an odd address");
    }
    c = call_new(w);
    memset(w->other, 0, sizeof w->other);
    c.state = w->other;
    check_refused_by(&c, WITH_STATE, LINATTN_ERROR_STATE, "zeroed memory");
    memset(w->other, 0xFF, sizeof w->other);
    check_refused_by(&c, WITH_STATE, LINATTN_ERROR_STATE, "memory of ones");
    memcpy(w->other, w->state, sizeof w->other);
    for (size_t i = 0; i < 4; i++) {
        w->other[i] ^= 0x10;
        check_refused_by(&c, WITH_STATE, LINATTN_ERROR_STATE, "the first word is another");
        w->other[i] ^= 0x10;
    }
}

static void strides_that_overflow(void **state)
{
    (void)state;
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4, SIZE_MAX / 8,
                                  SIZE_MAX / 4 / (TOKENS - 1) + 1};
    world *w = world_new();
    call c;
    for (size_t i = 0; i < COUNT_OF(huge); i++) {
        const size_t stride = huge[i];
        c = call_new(w);
        c.q = strided(w->q, stride, 0);
        check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_SIZE, "stride_token of the queries");
        c.q = strided(w->q, 0, stride);
        check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_SIZE, "stride_head of the queries");
        c = call_new(w);
        c.k = strided(w->k, stride, 0);
        check_refused_by(&c, WITH_KEYS, LINATTN_ERROR_SIZE, "stride_token of the keys");
        c = call_new(w);
        c.v = strided(w->v, stride, stride);
        check_refused_by(&c, WITH_KEYS, LINATTN_ERROR_SIZE, "strides of the values");
        c = call_new(w);
        c.out = strided_output(w->out, stride, 0);
        check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_SIZE, "stride_token of the output");
        c.out = strided_output(w->out, 0, stride);
        check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_SIZE, "stride_head of the output");
        c = call_new(w);
        c.n_q = c.n_k = stride;
        check_refused_by(&c, ALL_VERBS, LINATTN_ERROR_SIZE, "the number of tokens");
    }
    /* Far too long for what lies behind them in the address space. */
    c = call_new(w);
    c.k = strided(w->k, (SIZE_MAX / 4 - 100) / (TOKENS - 1), 0);
    check_refused_by(&c, WITH_KEYS, LINATTN_ERROR_SIZE, "keys as long as the address space");
    c = call_new(w);
    c.v.data = (const float *)(UINTPTR_MAX - 63);
    check_refused_by(&c, WITH_KEYS, LINATTN_ERROR_SIZE, "values at the end of the address space");
}

/* ---- Overlaps ------------------------------------------------------------------------------- */

static void outputs_that_overlap_themselves(void **state)
{
    (void)state;
    static const size_t strides[][2] = {
        /* stride_token, stride_head */
        {1, 100}, /* tokens run into each other */
        {DIM_VALUE - 1, 100},
        {100, DIM_VALUE - 1}, /* heads do */
        {100, 1},
        {DIM_VALUE, DIM_VALUE},              /* token 1, head 0 is token 0, head 1 */
        {HEADS * DIM_VALUE - 1, DIM_VALUE},  /* the last head reaches into the next token */
        {DIM_VALUE, TOKENS * DIM_VALUE - 1}, /* the last token into the next head */
        {2 * DIM_VALUE, 3 * DIM_VALUE},      /* 3 tokens on is 2 heads on */
        {3 * DIM_VALUE, 2 * DIM_VALUE},
        {3 * DIM_VALUE + 2, 2 * DIM_VALUE},
    };
    world *w = world_new();
    float *large = pool_floats(2000);
    float *before = (float *)pool_copy(large, 2000 * sizeof(float));
    call c = call_new(w);
    for (size_t i = 0; i < COUNT_OF(strides); i++) {
        c.out = strided_output(large, strides[i][0], strides[i][1]);
        check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_OVERLAP, "rows of the output overlap");
        check_same_bytes(large, before, 2000 * sizeof(float), "strides %zu", i);
    }
}

/* One token or one head only: the stride that is never taken does not matter. */
static void strides_that_are_not_taken(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    c.n_q = c.n_k = 1;
    c.out = strided_output(w->out, 1, DIM_VALUE);
    check_taken_by(&c, WITH_QUERIES, "one token, any stride_token");
    c.out = strided_output(w->out, SIZE_MAX, DIM_VALUE);
    c.q = strided(w->q, SIZE_MAX, DIM_KEY);
    check_taken_by(&c, WITH_QUERIES, "one token, any stride_token");
    w->config.heads = w->config.kv_heads = 1;
    check_status(linattn_state_init(&w->config, w->state, w->state_bytes), LINATTN_OK, "init");
    c = call_new(w);
    c.out = strided_output(w->out, DIM_VALUE, 1);
    c.q = strided(w->q, DIM_KEY, SIZE_MAX);
    check_taken_by(&c, WITH_QUERIES, "one head, any stride_head");
}

/* Nor do its sums and multiples, which wrap around. */
static void huge_strides_that_are_not_taken(void **state)
{
    (void)state;
    world *w = world_new();
    for (size_t i = 0; i < 5 * 140; i++) {
        const size_t huge = SIZE_MAX / (i % 2 ? 4 : 1) - i / 5;
        call c = call_new(w);
        c.n_q = c.n_k = 1;
        if (i % 5 == 0 || i % 5 == 4) c.q = strided(w->q, huge, DIM_KEY);
        if (i % 5 == 1 || i % 5 == 4) c.k = strided(w->k, huge, DIM_KEY);
        if (i % 5 == 2 || i % 5 == 4) c.v = strided(w->v, huge, DIM_VALUE);
        if (i % 5 == 3 || i % 5 == 4) c.out = strided_output(w->out, huge, DIM_VALUE);
        call dense = call_new(w);
        dense.n_q = dense.n_k = 1;
        for (int which = 0; which < VERB_COUNT; which++) {
            size_t mark = pool_mark();
            world_use(w, LINATTN_MAP_ELU1, 0);
            check_taken_by(&dense, 1 << which, "dense");
            world *expected = (world *)pool_copy(w, sizeof *w);
            world_use(w, LINATTN_MAP_ELU1, 0);
            check_taken_by(&c, 1 << which, "one token, huge strides");
            check_same_bytes(w->out, expected->out, sizeof w->out, "%s, %zu", verb_names[which], i);
            check_same_bytes(w->state, expected->state, w->state_bytes, "%s, %zu",
                             verb_names[which], i);
            pool_release(mark);
        }
    }
}

static float *floats_at(world *w, size_t offset)
{
    return (float *)(void *)((unsigned char *)w + offset);
}

static void outputs_that_overlap_inputs(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    c.out.data = w->q;
    check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_OVERLAP, "the output is the queries");
    c.out.data = w->q + COUNT_OF(w->q) - 1;
    check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_OVERLAP, "the last query is the first output");
    c = call_new(w);
    c.q.data = w->out + COUNT_OF(w->out) - 1;
    check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_OVERLAP, "the last output is the first query");
    c = call_new(w);
    c.k.data = w->out + COUNT_OF(w->out) - 1;
    check_refused_by(&c, WITH_QUERIES & WITH_KEYS, LINATTN_ERROR_OVERLAP, "output and keys");
    c = call_new(w);
    c.v.data = w->out + 3;
    check_refused_by(&c, WITH_QUERIES & WITH_KEYS, LINATTN_ERROR_OVERLAP, "output and values");
    c = call_new(w);
    c.out.data = floats_at(w, offsetof(world, state) + w->state_bytes - sizeof(float));
    check_refused_by(&c, WITH_STATE & WITH_QUERIES, LINATTN_ERROR_OVERLAP, "output and state");
    c.out.data = floats_at(w, offsetof(world, state) - sizeof(float));
    check_refused_by(&c, WITH_STATE & WITH_QUERIES, LINATTN_ERROR_OVERLAP, "output and state");
    c = call_new(w);
    c.k.data = floats_at(w, offsetof(world, state) + w->state_bytes - sizeof(float));
    check_refused_by(&c, WITH_STATE & WITH_KEYS, LINATTN_ERROR_OVERLAP, "keys and state");
    c = call_new(w);
    c.v.data = floats_at(w, offsetof(world, state));
    check_refused_by(&c, WITH_STATE & WITH_KEYS, LINATTN_ERROR_OVERLAP, "values and state");
    c = call_new(w);
    c.out.data = floats_at(w, offsetof(world, workspace));
    check_refused_by(&c, WITH_WORKSPACE, LINATTN_ERROR_OVERLAP, "output and workspace");
    c = call_new(w);
    c.q.data = floats_at(w, offsetof(world, workspace));
    check_refused_by(&c, WITH_WORKSPACE, LINATTN_ERROR_OVERLAP, "queries and workspace");
    c = call_new(w);
    c.v.data = floats_at(w, offsetof(world, workspace) - sizeof(float));
    check_refused_by(&c, WITH_WORKSPACE, LINATTN_ERROR_OVERLAP, "values and workspace");
    /* A period that one token does not walk, and whose bytes would wrap around. */
    c = call_new(w);
    c.n_q = c.n_k = 1;
    for (size_t head = 0; head <= DIM_KEY; head += DIM_KEY) {
        c.q = strided(w->q, SIZE_MAX / 4 + 1, head);
        c.out = strided_output(w->q, SIZE_MAX / 4 + 1, head);
        check_refused_by(&c, WITH_QUERIES, LINATTN_ERROR_OVERLAP, "one token, equal huge strides");
    }
}

/* What is written may not be the projection, which is still needed. */
static void projections_that_are_written(void **state)
{
    (void)state;
    world *w = world_new();
    world_use(w, LINATTN_MAP_FAVOR, 0);
    call c = call_new(w);
    check_taken_by(&c, ALL_VERBS, "a projection apart");
    for (size_t at = 0; at < COUNT_OF(w->projection); at += COUNT_OF(w->projection) - 1) {
        c.out.data = w->projection + at;
        check_refused_by(&c, 1 << BIDIRECTIONAL, LINATTN_ERROR_OVERLAP, "output and projection");
    }
    c = call_new(w);
    c.q = c.k = strided(w->projection, 1, 1);
    check_taken_by(&c, ALL_VERBS, "inputs may be the projection");
    w->config.projection = floats_at(w, offsetof(world, workspace) + 64);
    memset(w->workspace, 0, sizeof w->workspace);
    c = call_new(w);
    check_refused_by(&c, 1 << BIDIRECTIONAL, LINATTN_ERROR_OVERLAP, "workspace and projection");
    check_status(linattn_state_init(&w->config, w->workspace, sizeof w->workspace),
                 LINATTN_ERROR_OVERLAP, "state and projection");
    float y[FEATURES] = {0};
    w->config.projection = w->projection;
    check_status(linattn_map(&w->config, 0, w->q, w->projection, 1), LINATTN_ERROR_OVERLAP, "map");
    check_status(linattn_map(&w->config, 0, w->q, y, 1), LINATTN_OK, "map");
}

/* A window can be continued, but neither taken apart nor put together. */
static void windows_are_for_whole_sequences(void **state)
{
    (void)state;
    world *w = world_new();
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (size_t window = 1; window < 3 * TOKENS; window += 5) {
            world_use(w, map, window);
            call c = call_new(w);
            check_taken_by(&c, 1 << CAUSAL | 1 << BIDIRECTIONAL, "a window");
            check_refused_by(&c, 1 << UPDATE | 1 << QUERY, LINATTN_ERROR_UNSUPPORTED, "a window");
            world *before = (world *)pool_copy(w, sizeof *w);
            check_status(linattn_merge(w->state, w->other), LINATTN_ERROR_UNSUPPORTED, "a window");
            check_same_bytes(w, before, sizeof *w, "merge of windows");
            c.n_k = TOKENS - 1;
            check_refused_by(&c, 1 << BIDIRECTIONAL, LINATTN_ERROR_UNSUPPORTED, "fewer keys");
            c.n_k = TOKENS;
            c.n_q = TOKENS - 1;
            check_refused_by(&c, 1 << BIDIRECTIONAL, LINATTN_ERROR_UNSUPPORTED, "fewer queries");
            c.n_q = 0;
            c.n_k = 0;
            check_taken_by(&c, 1 << CAUSAL | 1 << BIDIRECTIONAL, "no tokens");
        }
}

/* Operands that touch without overlapping, and inputs that overlap one another. */
static void neighbours_are_taken(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    c.n_q = c.n_k = 2;
    c.q.data = w->out;
    c.out.data = w->out + 2 * HEADS * DIM_KEY;
    check_taken_by(&c, WITH_QUERIES, "the output right behind the queries");
    c = call_new(w);
    c.k = c.q = linattn_rows(w->q);
    c.v = strided(w->q, 1, 1);
    check_taken_by(&c, ALL_VERBS, "inputs that overlap");
}

/* Queries, keys, values and outputs that take turns in one buffer, per token and per head. */
static void interleaved_operands_are_told_apart(void **state)
{
    (void)state;
    world *w = world_new();
    w->config.kv_heads = HEADS;
    float *buffer = pool_floats(TOKENS * HEADS * (2 * DIM_KEY + 2 * DIM_VALUE));
    rng r = {2};
    rng_fill(&r, buffer, TOKENS * HEADS * (2 * DIM_KEY + 2 * DIM_VALUE), 2);
    size_t row = 2 * DIM_KEY + 2 * DIM_VALUE;
    unsigned char *memory = (unsigned char *)pool_take(linattn_state_size(&w->config));
    check_status(linattn_state_init(&w->config, memory, SIZE_MAX), LINATTN_OK, "init");
    for (int per_head = 0; per_head < 2; per_head++) {
        call c = call_new(w);
        size_t gap = per_head ? 1 : HEADS;
        size_t q = per_head ? row : DIM_KEY, v = per_head ? row : DIM_VALUE;
        c.state = memory;
        c.q = strided(buffer, HEADS * row, q);
        c.k = strided(buffer + gap * DIM_KEY, HEADS * row, q);
        c.v = strided(buffer + gap * 2 * DIM_KEY, HEADS * row, v);
        c.out = strided_output(buffer + gap * (2 * DIM_KEY + DIM_VALUE), HEADS * row, v);
        check_taken_by(&c, ALL_VERBS, "interleaved operands");
        c.out.data--;
        float *before = (float *)pool_copy(buffer, TOKENS * HEADS * row * sizeof(float));
        check_refused_by(&c, WITH_QUERIES & WITH_KEYS, LINATTN_ERROR_OVERLAP, "a float too early");
        check_same_bytes(buffer, before, TOKENS * HEADS * row * sizeof(float), "a float too early");
    }
}

/* ---- Workspaces ----------------------------------------------------------------------------- */

static void check_workspaces(world *w)
{
    for (int which = BIDIRECTIONAL; which <= SOFTMAX; which++) {
        call c = call_new(w);
        linattn_workspace kind =
            which == SOFTMAX ? LINATTN_WORKSPACE_SOFTMAX : LINATTN_WORKSPACE_BIDIRECTIONAL;
        c.workspace_bytes = linattn_workspace_size(&w->config, kind, NULL);
        check(c.workspace_bytes > 0 && c.workspace_bytes + 64 <= sizeof w->workspace, "%zu bytes",
              c.workspace_bytes);
        check_taken_by(&c, 1 << which, "a workspace of the right size");
        float *expected = (float *)pool_copy(w->out, sizeof w->out);
        for (size_t offset = 0; offset < 64; offset++) {
            memset(w->workspace, offset % 2 ? 0xFF : 0, sizeof w->workspace);
            memset(w->out, 0xA5, sizeof w->out);
            c.workspace = w->workspace + offset;
            check_taken_by(&c, 1 << which, "any alignment");
            check_same_bytes(w->out, expected, sizeof w->out, "%s, offset %zu", verb_names[which],
                             offset);
            for (size_t i = 0; i < sizeof w->workspace; i++)
                check((i >= offset && i < offset + c.workspace_bytes) ||
                          w->workspace[i] == (offset % 2 ? 0xFF : 0),
                      "%s: byte %zu outside the workspace, offset %zu", verb_names[which], i,
                      offset);
        }
        c.workspace_bytes--;
        check_refused_by(&c, 1 << which, LINATTN_ERROR_WORKSPACE, "one byte too small");
        c.workspace_bytes = 0;
        check_refused_by(&c, 1 << which, LINATTN_ERROR_WORKSPACE, "no bytes");
    }
}

static void workspaces(void **state)
{
    (void)state;
    world *w = world_new();
    for (size_t window = 0; window < 4; window += 3)
        for (int map = LINATTN_MAP_EXP; map <= LINATTN_MAP_TAYLOR; map++) {
            world_use(w, map, window);
            check_workspaces(w);
        }
    const int wrong = 77;
    linattn_workspace none;
    memcpy(&none, &wrong, sizeof none);
    check(linattn_workspace_size(&w->config, none, NULL) == 0, "an unknown verb");
}

/* More threads need more workspace; what suffices for one is refused for more, if it is less. */
static void workspaces_of_threads(void **state)
{
    (void)state;
    world *w = world_new();
    linattn_context context = {parallel_reverse, NULL, 8};
    for (int kind = 0; kind < 2; kind++) {
        linattn_workspace of = (linattn_workspace)kind;
        size_t one = linattn_workspace_size(&w->config, of, NULL);
        size_t many = linattn_workspace_size(&w->config, of, &context);
        check(many >= one, "%zu and %zu bytes", many, one);
        context.threads = SIZE_MAX;
        size_t huge = linattn_workspace_size(&w->config, of, &context);
        check(huge == 0 || huge >= many, "%zu and %zu bytes", huge, many);
        context.threads = 8;
    }
}

/* Threads, but no way to start them: nothing is written. */
static void threads_without_parallel_for(void **state)
{
    (void)state;
    world *w = world_new();
    for (size_t threads = 0; threads < 4; threads++) {
        linattn_context context = {NULL, NULL, threads};
        linattn_status expected = threads > 1 ? LINATTN_ERROR_NULL : LINATTN_OK;
        for (int kind = 0; kind < 3; kind++) {
            size_t bytes = linattn_workspace_size(&w->config, (linattn_workspace)kind, &context);
            check((bytes > 0) == (threads < 2), "%zu bytes, %zu threads", bytes, threads);
        }
        w->config.landmarks = 2;
        call c = call_new(w);
        world *before = (world *)pool_copy(w, sizeof *w);
        const linattn_status actual[] = {
            linattn_update(c.state, c.k, c.v, TOKENS, &context),
            linattn_query(c.state, c.q, c.out, TOKENS, &context),
            linattn_causal(c.state, c.q, c.k, c.v, c.out, TOKENS, &context),
            linattn_bidirectional(&w->config, c.q, TOKENS, c.k, c.v, TOKENS, c.out, c.workspace,
                                  c.workspace_bytes, &context),
            linattn_softmax(&w->config, c.q, TOKENS, c.k, c.v, TOKENS, c.out, 1, c.workspace,
                            c.workspace_bytes, &context),
            linattn_nystrom(&w->config, c.q, TOKENS, c.k, c.v, TOKENS, c.out, 0, c.workspace,
                            c.workspace_bytes, &context),
        };
        for (size_t i = 0; i < COUNT_OF(actual); i++)
            check_status(actual[i], expected, "verb %zu, %zu threads", i, threads);
        if (threads > 1) check_same_bytes(w, before, sizeof *w, "%zu threads", threads);
    }
}

typedef struct exact_field {
    const char *field;
    linattn_status exact; /* what exact attention says to it */
    linattn_config config;
} exact_field;

enum { MOST_EXACT_FIELDS = 16 };

static size_t exact_fields(exact_field *list)
{
    static const float good[HEADS] = {0.5f, 0.25f, 0, -1};
    static float nan[HEADS], infinite[HEADS];
    const linattn_config plain = usual_config();
    size_t count = 0;
    nan[HEADS - 1] = test_nan;
    infinite[1] = test_infinity;
    const float caps[] = {-1, -1e-45f, test_nan, test_infinity, -test_infinity, 1, 1e-45f, 3e38f};
    for (size_t i = 0; i < COUNT_OF(caps); i++) {
        list[count].field = "soft_cap";
        list[count].exact =
            caps[i] > 0 && caps[i] < test_infinity ? LINATTN_OK : LINATTN_ERROR_CONFIG;
        list[count].config = plain;
        list[count++].config.soft_cap = caps[i];
    }
    const float *slopes[] = {good, nan, infinite};
    for (size_t i = 0; i < COUNT_OF(slopes); i++) {
        list[count].field = "alibi_slopes";
        list[count].exact = i ? LINATTN_ERROR_CONFIG : LINATTN_OK;
        list[count].config = plain;
        list[count++].config.alibi_slopes = slopes[i];
    }
    const size_t sinks[] = {1, 0x3fffffff, 0x40000000, SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(sinks); i++) {
        list[count].field = "sinks";
        list[count].exact = i < 2 ? LINATTN_OK : LINATTN_ERROR_SIZE;
        list[count].config = plain;
        list[count++].config.sinks = sinks[i];
    }
    return count;
}

/* Fields of exact attention: wrong ones, and right ones where they do not belong. */
static void fields_of_exact_attention(void **state)
{
    (void)state;
    exact_field list[MOST_EXACT_FIELDS];
    size_t count = exact_fields(list);
    world *w = world_new();
    w->config.landmarks = 2;
    for (size_t i = 0; i < count; i++) {
        const linattn_config *c = &list[i].config;
        const char *why = linattn_config_error(c), *name = config_name(c);
        check(begins_with(why, list[i].field), "%s, %s", why ? why : "none", name);
        check((strstr(why, "exact attention") != NULL) == (list[i].exact == LINATTN_OK), "%s, %s",
              why, name);
        check_status(linattn_config_check(c), LINATTN_ERROR_UNSUPPORTED, "%s", name);
        check_status(linattn_state_init(c, w->other, sizeof w->other), LINATTN_ERROR_UNSUPPORTED,
                     "%s", name);
        check(linattn_state_size(c) == 0 && linattn_features(c) == 0, "%s", name);
        for (int kind = 0; kind < 3; kind++) {
            size_t bytes = linattn_workspace_size(c, (linattn_workspace)kind, NULL);
            bool taken = kind == LINATTN_WORKSPACE_SOFTMAX && list[i].exact == LINATTN_OK;
            check((bytes > 0) == taken, "%zu bytes of %d, %s", bytes, kind, name);
        }
        w->config = *c;
        call x = call_new(w);
        check_refused_by(&x, 1 << BIDIRECTIONAL, LINATTN_ERROR_UNSUPPORTED, name);
        world *before = (world *)pool_copy(w, sizeof *w);
        check_status(linattn_nystrom(c, x.q, TOKENS, x.k, x.v, TOKENS, x.out, 0, x.workspace,
                                     x.workspace_bytes, NULL),
                     LINATTN_ERROR_UNSUPPORTED, "%s", name);
        check_same_bytes(w, before, sizeof *w, "%s", name);
        if (list[i].exact == LINATTN_OK)
            check_taken_by(&x, 1 << SOFTMAX, name);
        else
            check_refused_by(&x, 1 << SOFTMAX, list[i].exact, name);
        float y[DIM_KEY]; /* linattn_map does not look at them */
        check_status(linattn_map(c, 0, w->q, y, 1), LINATTN_OK, "%s", name);
    }
}

/* Where one of these fields is set, what exact attention refuses is blamed first, and nothing that
   it does not look at. */
static void blame_by_exact_attention(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        linattn_config c = usual_config();
        if (i & 1) c.sinks = 4;
        if (!(i & 1)) c.soft_cap = 50;
        if (i & 2) c.map = (linattn_feature_map)77, c.epsilon = -1;
        if (i & 4) c.window = (size_t)1 << 30;
        const char *why = linattn_config_error(&c), *name = config_name(&c);
        check(begins_with(why, i & 4   ? "window"
                               : i & 1 ? "sinks"
                                       : "soft_cap"),
              "%s, %s", why ? why : "none", name);
        check((linattn_workspace_size(&c, LINATTN_WORKSPACE_SOFTMAX, NULL) == 0) == (i >= 4), "%s",
              name);
    }
}

/* Where queries have no place among the keys; and slopes that lie in what is written. */
static void places_of_queries(void **state)
{
    (void)state;
    static const float slopes[HEADS] = {1, 1, 1, 1};
    world *w = world_new();
    call c = call_new(w);
    c.n_k = TOKENS - 1;
    check_taken_by(&c, 1 << SOFTMAX, "more queries than keys");
    w->config.window = 3;
    check_refused_by(&c, 1 << SOFTMAX, LINATTN_ERROR_UNSUPPORTED, "and a window");
    w->config.window = 0x40000000;
    check_refused_by(&c, 1 << SOFTMAX, LINATTN_ERROR_SIZE, "a window too large");
    w->config.window = 0;
    w->config.sinks = 3;
    w->config.soft_cap = 1;
    check_taken_by(&c, 1 << SOFTMAX, "and sinks, and a soft cap");
    w->config.alibi_slopes = slopes;
    check_refused_by(&c, 1 << SOFTMAX, LINATTN_ERROR_UNSUPPORTED, "and slopes");
    c.n_k = TOKENS;
    check_taken_by(&c, 1 << SOFTMAX, "slopes");
    c.n_k = ((size_t)1 << 24) + 1;
    c.k.stride_token = c.v.stride_token = 1; /* far from all else, and not read */
    c.k.data = c.v.data = (const float *)(uintptr_t)4096;
    check_refused_by(&c, 1 << SOFTMAX, LINATTN_ERROR_SIZE, "more keys than a float counts");
    c = call_new(w);
    const float *const inside[] = {w->out, w->out + COUNT_OF(w->out) - HEADS,
                                   (const float *)(const void *)w->workspace};
    for (size_t i = 0; i < COUNT_OF(inside); i++) {
        w->config.alibi_slopes = inside[i];
        memset(w->workspace, 0, 64);
        memset(w->out, 0, sizeof w->out);
        check_refused_by(&c, 1 << SOFTMAX, LINATTN_ERROR_OVERLAP, "slopes in what is written");
    }
}

/* Numbers of 16 bits are for all verbs, and other elements for nobody. */
static void elements_of_views(void **state)
{
    (void)state;
    world *w = world_new();
    const linattn_view all = call_new(w).q;
    for (int element = -1; element <= LINATTN_ELEMENT_COUNT; element++) {
        if (element == LINATTN_F32) continue;
        bool known = element > 0 && element < LINATTN_ELEMENT_COUNT;
        for (int i = 0; i < 3; i++) {
            call c = call_new(w);
            linattn_view *view = i == 0 ? &c.q : i == 1 ? &c.k : &c.v;
            memcpy(&view->element, &element, sizeof element);
            int verbs = i ? WITH_KEYS : WITH_QUERIES;
            size_t bytes = linattn_workspace_size(&w->config, LINATTN_WORKSPACE_NYSTROM, NULL);
            check_status(linattn_nystrom(&w->config, c.q, TOKENS, c.k, c.v, TOKENS, c.out, 0,
                                         pool_take(bytes), bytes, NULL),
                         known ? LINATTN_OK : LINATTN_ERROR_ELEMENT, "Nystroem");
            if (known)
                check_taken_by(&c, verbs, "numbers of 16 bits");
            else
                check_refused_by(&c, verbs, LINATTN_ERROR_ELEMENT, "no element");
            c.n_q = c.n_k = 0;
            if (!known) check_refused_by(&c, verbs, LINATTN_ERROR_ELEMENT, "no tokens");
        }
    }
    check(all.element == LINATTN_F32 && linattn_rows(w->q).element == LINATTN_F32, "rows");
    linattn_view half = linattn_rows_as(w->q, LINATTN_BF16);
    check(half.data == w->q && half.element == LINATTN_BF16 && !half.stride_token &&
              !half.stride_head && !half.stride_sequence,
          "rows of 16 bits");
}

/* What operands of 16 bits span: the byte before and the byte after may be the output's. */
static void overlaps_of_16_bits(void **state)
{
    (void)state;
    world *w = world_new();
    size_t keys = TOKENS * KV_HEADS * DIM_KEY, out = COUNT_OF(w->out);
    unsigned char *memory = (unsigned char *)pool_take(4 * (out + keys) + 8);
    for (size_t end = 0; end < 2; end++)
        for (size_t shift = 0; shift <= 4; shift += 2) {
            call c = call_new(w);
            size_t gap = 2 * keys - shift + 2;
            gap -= end ? 0 : gap % 4; /* an output of floats is aligned to them */
            c.k = linattn_rows_as(end ? memory + 4 * out - shift : memory, LINATTN_F16);
            c.out = linattn_output_rows((float *)(void *)(end ? memory : memory + gap));
            memset(memory, 0, 4 * (out + keys) + 8);
            bool apart = end ? shift == 0 : gap >= 2 * keys;
            for (int which = CAUSAL; which < VERB_COUNT; which++)
                check_status(perform(&c, (verb)which), apart ? LINATTN_OK : LINATTN_ERROR_OVERLAP,
                             "%s: end %zu, shift %zu", verb_names[which], end, shift);
        }
}

static size_t token_stride(int how, size_t heads, size_t dim)
{
    return how == 0 ? 0 : how == 1 ? heads * dim : dim;
}

static size_t head_stride(int how, size_t dim)
{
    return how == 0 ? 0 : how == 1 ? dim : TOKENS * dim;
}

/* Dense, by zeroes or by numbers, or each head's tokens together: the same blocks. */
static void use_strides(call *c, int how)
{
    const size_t key = head_stride(how, DIM_KEY), value = head_stride(how, DIM_VALUE);
    c->q = strided(c->q.data, token_stride(how, HEADS, DIM_KEY), key);
    c->k = strided(c->k.data, token_stride(how, KV_HEADS, DIM_KEY), key);
    c->v = strided(c->v.data, token_stride(how, KV_HEADS, DIM_VALUE), value);
    c->out = strided_output(c->out.data, token_stride(how, HEADS, DIM_VALUE), value);
}

/* The last number of an operand's last token is the first one of another operand, or of the state:
   the first tokens lie apart. */
static void overlaps_of_last_tokens(void **state)
{
    (void)state;
    enum { FLOATS = TOKENS * HEADS * (DIM_KEY + DIM_VALUE) };
    world *w = world_new();
    float *const memory = pool_floats(2 * FLOATS);
    float *const other = (float *)pool_take(FLOATS * sizeof(float) + w->state_bytes);
    for (int how = 0; how < 3; how++) {
        for (int which = 0; which < 6; which++) {
            call c = call_new(w);
            const size_t counts[] = {COUNT_OF(w->q), COUNT_OF(w->k), COUNT_OF(w->v)};
            const size_t end = which < 3 ? COUNT_OF(w->out) : counts[which - 3];
            const float **const input = which % 3 == 0   ? &c.q.data
                                        : which % 3 == 1 ? &c.k.data
                                                         : &c.v.data;
            c.out.data = which < 3 ? memory : memory + end - 1;
            *input = which < 3 ? memory + end - 1 : memory;
            use_strides(&c, how);
            check_refused_by(&c, which % 3 == 0 ? WITH_QUERIES : WITH_QUERIES & WITH_KEYS,
                             LINATTN_ERROR_OVERLAP, "the last number is the first one");
            c.out.data += which < 3 ? 0 : 1;
            *input += which < 3 ? 1 : 0;
            check_taken_by(&c, WITH_QUERIES & WITH_KEYS, "side by side");
        }
        for (int which = 0; which < 4; which++) {
            call c = call_new(w);
            const size_t counts[] = {COUNT_OF(w->q), COUNT_OF(w->k), COUNT_OF(w->v),
                                     COUNT_OF(w->out)};
            const int verbs[] = {1 << CAUSAL, WITH_STATE & WITH_KEYS, WITH_STATE & WITH_KEYS,
                                 WITH_STATE & WITH_QUERIES};
            if (which == 0) c.q.data = other;
            if (which == 1) c.k.data = other;
            if (which == 2) c.v.data = other;
            if (which == 3) c.out.data = other;
            use_strides(&c, how);
            c.state = other + counts[which];
            check_status(linattn_state_init(&w->config, c.state, w->state_bytes), LINATTN_OK,
                         "init");
            check_taken_by(&c, verbs[which], "the state behind an operand");
            c.state = other + counts[which] - 1;
            check_status(linattn_state_init(&w->config, c.state, w->state_bytes), LINATTN_OK,
                         "init");
            check_refused_by(&c, verbs[which], LINATTN_ERROR_OVERLAP, "it begins in the state");
        }
    }
}

/* Odd numbers of them end where an output begins, or begin where it ends; or a number earlier. */
static void overlaps_of_odd_numbers(void **state)
{
    (void)state;
    for (size_t dim = 1; dim <= 3; dim += 2) {
        linattn_config config = {.dim_key = dim, .dim_value = 1};
        size_t bytes = linattn_state_size(&config);
        void *memory = pool_take(bytes);
        uint16_t *halves = (uint16_t *)(void *)pool_floats(8);
        check_status(linattn_state_init(&config, memory, bytes), LINATTN_OK, "init");
        for (size_t q = 0; q < 8; q++)
            for (size_t out = 0; out < 8; out += 2) {
                linattn_status status =
                    linattn_query(memory, linattn_rows_as(halves + q, LINATTN_F16),
                                  linattn_output_rows((float *)(void *)(halves + out)), 1, NULL);
                bool apart = q + dim <= out || out + 2 <= q;
                check_status(status, apart ? LINATTN_OK : LINATTN_ERROR_OVERLAP,
                             "%zu numbers from %zu on, output at %zu", dim, q, out);
                memset(halves, 0, 8 * sizeof(float));
            }
    }
}

/* Records of [q | k | v] of 16 bits and an output of floats, which do not touch; or touch in the
   last, or begin at an odd number. */
static void records_of_16_bits(void **state)
{
    (void)state;
    world *w = world_new();
    enum { QUERIES = HEADS * DIM_KEY, KEYS = KV_HEADS * DIM_KEY, VALUES = KV_HEADS * DIM_VALUE };
    enum { HALVES = (QUERIES + KEYS + VALUES + 1) / 2 * 2, OUT = HEADS * DIM_VALUE };
    float *records = pool_floats(TOKENS * (HALVES / 2 + OUT) + 8);
    for (size_t shift = 0; shift < 3; shift++) {
        const size_t record = HALVES / 2 + OUT;
        uint16_t *halves = (uint16_t *)(void *)records + shift;
        call c = call_new(w);
        linattn_view *const view[] = {&c.q, &c.k, &c.v};
        const size_t at[] = {0, QUERIES, QUERIES + KEYS};
        memset(records, 0, (TOKENS * record + 8) * sizeof *records);
        for (int i = 0; i < 3; i++) {
            *view[i] = linattn_rows_as(halves + at[i], LINATTN_BF16);
            view[i]->stride_token = 2 * record;
        }
        c.out = strided_output(records + HALVES / 2, record, 0);
        bool apart = QUERIES + KEYS + VALUES + shift <= HALVES;
        for (int which = CAUSAL; which < VERB_COUNT; which++)
            check_status(perform(&c, (verb)which), apart ? LINATTN_OK : LINATTN_ERROR_OVERLAP,
                         "%s: shift %zu", verb_names[which], shift);
        c.k.stride_token++; /* in step with nothing */
        check_refused_by(&c, 1 << CAUSAL, LINATTN_ERROR_OVERLAP, "an odd stride");
    }
}

static void causal_softmax_with_too_few_keys(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    c.causal = 1;
    c.n_k = TOKENS - 1;
    check_refused_by(&c, 1 << SOFTMAX, LINATTN_ERROR_UNSUPPORTED, "more queries than keys");
    c.n_k = TOKENS;
    check_taken_by(&c, 1 << SOFTMAX, "as many queries as keys");
}

/* ---- States --------------------------------------------------------------------------------- */

static void state_init(void **state)
{
    (void)state;
    world *w = world_new();
    unsigned char *before = (unsigned char *)pool_copy(w->other, sizeof w->other);
    const linattn_config *c = &w->config;
    check_status(linattn_state_init(c, NULL, sizeof w->other), LINATTN_ERROR_NULL, "init");
    for (size_t i = 1; i < 4; i++)
        check_status(linattn_state_init(c, w->other + i, w->state_bytes), LINATTN_ERROR_ALIGNMENT,
                     "offset %zu", i);
    check_status(linattn_state_init(c, w->other, w->state_bytes - 1), LINATTN_ERROR_WORKSPACE,
                 "one byte too small");
    check_status(linattn_state_init(c, w->other, 0), LINATTN_ERROR_WORKSPACE, "no bytes");
    check_same_bytes(w->other, before, sizeof w->other, "written although refused");

    /* The same bytes whatever was there before, and none beyond. */
    unsigned char *first = (unsigned char *)pool_take(sizeof w->other);
    for (int fill = 0; fill < 256; fill += 85) {
        memset(w->other, fill, sizeof w->other);
        check_status(linattn_state_init(c, w->other, sizeof w->other), LINATTN_OK, "init");
        if (fill == 0) memcpy(first, w->other, sizeof w->other);
        check_same_bytes(w->other, first, w->state_bytes, "init over bytes of %d", fill);
        for (size_t i = w->state_bytes; i < sizeof w->other; i++)
            check(w->other[i] == fill, "byte %zu of %zu", i, w->state_bytes);
        check(linattn_state_tokens(w->other) == 0, "init");
    }
}

static void state_reset(void **state)
{
    (void)state;
    world *w = world_new();
    check_status(linattn_state_reset(NULL), LINATTN_ERROR_NULL, "reset");
    for (size_t i = 1; i < 4; i++)
        check_status(linattn_state_reset(w->state + i), LINATTN_ERROR_ALIGNMENT, "offset %zu", i);
    unsigned char *nothing = (unsigned char *)pool_take(sizeof w->state);
    check_status(linattn_state_reset(memset(nothing, 0, sizeof w->state)), LINATTN_ERROR_STATE,
                 "zeroed memory");
    check_status(linattn_state_reset(memset(nothing, 0xFF, sizeof w->state)), LINATTN_ERROR_STATE,
                 "memory of ones");
    /* w->other is empty already. */
    check(linattn_state_tokens(w->state) == 2, "two tokens");
    check_status(linattn_state_reset(w->state), LINATTN_OK, "reset");
    check_same_bytes(w->state, w->other, w->state_bytes, "reset and init");
    check(linattn_state_tokens(w->state) == 0, "reset");
}

static void state_tokens(void **state)
{
    (void)state;
    world *w = world_new();
    check(linattn_state_tokens(NULL) == 0, "NULL");
    check(linattn_state_tokens(w->state) == 2, "after two tokens");
    check(linattn_state_tokens(memset(w->other, 0, 256)) == 0, "zeroed memory");
    check(linattn_state_tokens(memset(w->other, 0xFF, 256)) == 0, "memory of ones");
    call c = call_new(w);
    check_taken_by(&c, 1 << UPDATE | 1 << CAUSAL, "tokens");
    check(linattn_state_tokens(w->state) == 2 + 2 * TOKENS, "after two calls");
    check_taken_by(&c, 1 << QUERY, "tokens");
    check(linattn_state_tokens(w->state) == 2 + 2 * TOKENS, "after a query");
}

static void check_state(const linattn_config *config, const void *memory, size_t bytes,
                        linattn_status expected, const char *why)
{
    check_status(linattn_state_check(config, memory, bytes), expected, "%s", why);
}

static void state_check(void **state)
{
    (void)state;
    world *w = world_new();
    const linattn_config *c = &w->config;
    check_state(c, w->state, w->state_bytes, LINATTN_OK, "a good state");
    check_state(c, w->state, sizeof w->state, LINATTN_OK, "a good state and more");
    check_state(c, NULL, w->state_bytes, LINATTN_ERROR_NULL, "NULL");
    for (size_t i = 1; i < 4; i++)
        check_state(c, w->state + i, w->state_bytes, LINATTN_ERROR_ALIGNMENT, "an odd address");
    for (size_t bytes = 0; bytes < w->state_bytes; bytes += bytes < 200 ? 1 : 97) {
        void *cut = pool_take_guarded(bytes / 4 * 4, GUARD_AFTER);
        memcpy(cut, w->state, bytes / 4 * 4);
        check_state(c, cut, bytes / 4 * 4, LINATTN_ERROR_WORKSPACE, "a cut block");
    }
    check_state(c, w->state, w->state_bytes - 1, LINATTN_ERROR_WORKSPACE, "one byte less");
    memset(w->other, 0, sizeof w->other);
    check_state(c, w->other, w->state_bytes, LINATTN_ERROR_STATE, "zeroed memory");
    memset(w->other, 0xFF, sizeof w->other);
    check_state(c, w->other, w->state_bytes, LINATTN_ERROR_STATE, "memory of ones");
    for (size_t i = 0; i < w->state_bytes; i++) w->other[i] = w->state[i ^ 3];
    check_state(c, w->other, w->state_bytes, LINATTN_ERROR_STATE, "the other byte order");
}

/* Windows' own changed after the rest: a state of either is of one version and of no other. */
static void states_of_other_versions(void **state)
{
    (void)state;
    for (size_t window = 0; window <= 40; window += 40) {
        linattn_config config = {.dim_key = 4, .window = window};
        size_t bytes = linattn_state_size(&config);
        uint32_t *memory = (uint32_t *)pool_take(bytes), own = window ? 4 : 2;
        float x[4] = {1, 1, 1, 1}, out[4];
        check_status(linattn_state_init(&config, memory, bytes), LINATTN_OK, "%zu", window);
        check(memory[1] == own, "version %u, window %zu", (unsigned)memory[1], window);
        for (uint32_t version = 0; version < 6; version++) {
            linattn_status expected = version == own ? LINATTN_OK : LINATTN_ERROR_STATE;
            memory[1] = version;
            check_state(&config, memory, bytes, expected, "a version");
            check_status(linattn_causal(memory, linattn_rows(x), linattn_rows(x), linattn_rows(x),
                                        linattn_output_rows(out), 1, NULL),
                         expected, "version %u, window %zu", (unsigned)version, window);
        }
    }
}

/* A state of `mine` is one of `same`, and not one of the others. */
static void check_told_apart(const linattn_config *mine, const linattn_config *same,
                             const linattn_config *others, size_t count)
{
    size_t bytes = 65536;
    void *memory = pool_take(bytes), *theirs = pool_take(bytes);
    linattn_status merged = mine->window ? LINATTN_ERROR_UNSUPPORTED : LINATTN_OK;
    check_status(linattn_state_init(mine, memory, bytes), LINATTN_OK, "%s", config_name(mine));
    check_state(same, memory, bytes, LINATTN_OK, "defaults spelt out");
    check_status(linattn_state_init(same, theirs, bytes), LINATTN_OK, "%s", config_name(same));
    check_status(linattn_merge(memory, theirs), merged, "%s", config_name(same));
    for (size_t i = 0; i < count; i++) {
        const char *name = config_name(&others[i]);
        check_state(&others[i], memory, bytes, LINATTN_ERROR_STATE, name);
        check_status(linattn_state_init(&others[i], theirs, bytes), LINATTN_OK, "%s", name);
        void *before = pool_copy(memory, bytes);
        linattn_status status = linattn_merge(memory, theirs);
        if (merged == LINATTN_OK && !others[i].window)
            check_status(status, LINATTN_ERROR_STATE, "%s", name);
        else
            check(status == LINATTN_ERROR_STATE || status == LINATTN_ERROR_UNSUPPORTED,
                  "status %d, %s", (int)status, name);
        check_same_bytes(memory, before, bytes, "%s", name);
    }
}

/* A state of another attention is refused; one of the same attention, spelt otherwise, is not. */
static void state_check_compares_configs(void **state)
{
    (void)state;
    const linattn_config mine = {.heads = 4, .dim_key = 8};
    const linattn_config others[] = {
        {.heads = 2, .dim_key = 8},
        {.heads = 8, .kv_heads = 4, .dim_key = 8},
        {.heads = 4, .kv_heads = 2, .dim_key = 8},
        {.heads = 4, .dim_key = 7, .dim_value = 8},
        {.heads = 4, .dim_key = 8, .dim_value = 7},
        {.heads = 4, .dim_key = 8, .map = LINATTN_MAP_RELU},
        {.heads = 4, .dim_key = 8, .map = LINATTN_MAP_EXP},
        {.heads = 4, .dim_key = 8, .normaliser = LINATTN_NORM_NONE},
        {.heads = 4, .dim_key = 8, .scale = 2},
        {.heads = 4, .dim_key = 8, .epsilon = 1e-6f},
    };
    const linattn_config same = {.heads = 4,
                                 .kv_heads = 4,
                                 .dim_key = 8,
                                 .dim_value = 8,
                                 .normaliser = LINATTN_NORM_SUM,
                                 .scale = 1,
                                 .features = 3, /* of other maps */
                                 .degree = 3};
    check_told_apart(&mine, &same, others, COUNT_OF(others));
    const linattn_config windowed = {.heads = 4, .dim_key = 8, .window = 9};
    const linattn_config longer = {.heads = 4, .dim_key = 8, .window = 10};
    check_told_apart(&windowed, &windowed, others, COUNT_OF(others));
    check_told_apart(&windowed, &windowed, &longer, 1);
    check_told_apart(&mine, &mine, &windowed, 1);
}

static void state_check_compares_fields_of_maps(void **state)
{
    (void)state;
    const linattn_feature_map FAVOR = LINATTN_MAP_FAVOR, TAYLOR = LINATTN_MAP_TAYLOR;
    float w[20];
    rng r = {7};
    rng_fill_normal(&r, w, COUNT_OF(w));
    const linattn_config favor = {.dim_key = 2, .map = FAVOR, .projection = w};
    const linattn_config same_favor = {
        .dim_key = 2, .map = FAVOR, .features = 8, .projection = w, .degree = 5};
    const linattn_config other_favor[] = {
        {.dim_key = 2, .map = FAVOR, .features = 7, .projection = w},
        {.dim_key = 2, .map = FAVOR, .features = 9, .projection = w},
        {.dim_key = 2, .map = FAVOR, .projection = w + 1},
        {.dim_key = 2, .map = FAVOR, .projection = w, .window = 3},
        {.dim_key = 2, .map = FAVOR, .projection = w, .scale = 1},
        {.dim_key = 2, .map = LINATTN_MAP_FAVOR_SIMPLIFIED, .projection = w},
        {.dim_key = 2, .map = LINATTN_MAP_FAVOR_HYPERBOLIC, .projection = w},
        {.dim_key = 2, .map = LINATTN_MAP_FAVOR_HYPERBOLIC, .features = 4, .projection = w},
        {.dim_key = 8, .dim_value = 2, .map = LINATTN_MAP_EXP},
    };
    check_told_apart(&favor, &same_favor, other_favor, COUNT_OF(other_favor));
    const linattn_config taylor = {.dim_key = 4, .map = TAYLOR};
    const linattn_config same_taylor = {
        .dim_key = 4, .map = TAYLOR, .degree = 2, .scale = 0.5f, .features = 5};
    const linattn_config other_taylor[] = {
        {.dim_key = 4, .map = TAYLOR, .degree = 1},
        {.dim_key = 4, .map = TAYLOR, .degree = 3},
        {.dim_key = 4, .map = LINATTN_MAP_EXPDEF},
        {.dim_key = 4, .map = TAYLOR, .scale = 1},
        {.dim_key = 4, .map = TAYLOR, .window = 1},
        {.dim_key = 15, .dim_value = 4, .map = LINATTN_MAP_IDENTITY},
    };
    check_told_apart(&taylor, &same_taylor, other_taylor, COUNT_OF(other_taylor));
}

/* A block with one word overwritten is either refused or safe to go on with: no verb leaves its
   memory, which ends at an inaccessible page. */
static bool is_refused(world *w, size_t at, uint32_t word)
{
    size_t mark = pool_mark();
    unsigned char *block = (unsigned char *)pool_take_guarded(w->state_bytes, GUARD_AFTER);
    memcpy(block, w->state, w->state_bytes);
    memcpy(block + at, &word, sizeof word);
    linattn_status status = linattn_state_check(&w->config, block, w->state_bytes);
    if (status == LINATTN_OK) {
        call c = call_new(w);
        c.state = block;
        check_taken_by(&c, verbs_of_state(w), "a state that passed its check");
        if (!w->config.window)
            check_status(linattn_merge(w->other, block), LINATTN_OK, "merge of it");
    } else {
        check_status(status, LINATTN_ERROR_STATE, "word %zu is %x", at, (unsigned)word);
    }
    pool_release(mark);
    return status != LINATTN_OK;
}

/* How many words are refused where none of their exponents, weights or counts look like this. */
static size_t corrupt_all(world *w)
{
    static const uint32_t words[] = {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800000, 0x10000};
    size_t refused = 0;
    size_t step = w->config.window ? 11 * sizeof *words : sizeof *words;
    for (size_t at = 0; at < w->state_bytes; at += at < 512 ? sizeof *words : step) {
        uint32_t good;
        memcpy(&good, w->state + at, sizeof good);
        for (size_t i = 0; i < COUNT_OF(words); i++) {
            bool counts = words[i] == 0x7FFFFFFF;
            if (test_quick() && at >= 512 && !counts && i != at / 4 % COUNT_OF(words)) continue;
            if (is_refused(w, at, words[i]) && counts) refused++;
        }
        /* Small counts that are off by a little are the likeliest to be believed. */
        for (unsigned bit = 0; at < 256 && bit < 32; bit++) is_refused(w, at, good ^ (1u << bit));
    }
    return refused;
}

static void corrupted_states(void **state)
{
    (void)state;
    world *w = world_new();
    size_t refused[LINATTN_MAP_COUNT];
    for (size_t window = 0; window < 4; window += 3)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
            refused[map] = 0;
            if (map == LINATTN_MAP_SOFTMAX || map == LINATTN_MAP_IDENTITY) continue;
            if (test_quick() && map >= LINATTN_MAP_EXPDEF) continue;
            world_use(w, map, window);
            call c = call_new(w);
            if (window) check_taken_by(&c, 1 << CAUSAL, "before it is corrupted");
            refused[map] = corrupt_all(w);
            if (window) continue;
            /* Exponents, of which no integer and no float looks like this; projections, that of
               the config word for word. */
            size_t more = map == LINATTN_MAP_EXP ? KV_HEADS * DIM_KEY : 0;
            if (map_is_favor(w->config.map)) {
                size_t m = config_features(&w->config);
                more = KV_HEADS * m + FEATURES * DIM_KEY;
            }
            check(refused[map] >= refused[LINATTN_MAP_ELU1] + more,
                  "%zu words refused, %zu in elu1's state, %s", refused[map],
                  refused[LINATTN_MAP_ELU1], config_name(&w->config));
        }
}

/* A copied state goes on with the same bits, wherever it lies. */
static void check_moves(world *w)
{
    call c = call_new(w);
    check_taken_by(&c, w->config.window ? 1 << CAUSAL : 1 << UPDATE, "before the copy");
    unsigned char *saved = (unsigned char *)pool_copy(w->state, w->state_bytes);
    check_taken_by(&c, 1 << CAUSAL, "the original");
    float *expected = (float *)pool_copy(w->out, sizeof w->out);
    unsigned char *after = (unsigned char *)pool_copy(w->state, w->state_bytes);
    for (size_t offset = 0; offset < 64; offset += 4) {
        c.state = memcpy(w->other + offset, saved, w->state_bytes);
        memset(w->out, 0xA5, sizeof w->out);
        check_taken_by(&c, 1 << CAUSAL, "the copy");
        check_same_bytes(w->out, expected, sizeof w->out, "%s, offset %zu", config_name(&w->config),
                         offset);
        check_same_bytes(c.state, after, w->state_bytes, "%s, offset %zu", config_name(&w->config),
                         offset);
    }
}

static void states_move(void **state)
{
    (void)state;
    world *w = world_new();
    for (size_t window = 0; window < 10; window += 3)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
            world_use(w, map, window);
            check_moves(w);
        }
}

static void merge(void **state)
{
    (void)state;
    world *w = world_new();
    world *before = (world *)pool_copy(w, sizeof *w);
    check_status(linattn_merge(NULL, w->other), LINATTN_ERROR_NULL, "merge");
    check_status(linattn_merge(w->state, NULL), LINATTN_ERROR_NULL, "merge");
    check_status(linattn_merge(w->state + 2, w->other), LINATTN_ERROR_ALIGNMENT, "merge");
    check_status(linattn_merge(w->state, w->other + 1), LINATTN_ERROR_ALIGNMENT, "merge");
    check_status(linattn_merge(w->state, w->state), LINATTN_ERROR_OVERLAP, "merge");
    check_status(linattn_merge(w->workspace, w->state), LINATTN_ERROR_STATE, "merge");
    check_status(linattn_merge(w->state, w->workspace), LINATTN_ERROR_STATE, "merge");
    check_same_bytes(w, before, sizeof *w, "written although refused");
    /* The header of a second state among the numbers of the first. */
    memcpy(w->workspace, w->state, w->state_bytes);
    memmove(w->workspace + w->state_bytes - 64, w->other, w->state_bytes);
    before = (world *)pool_copy(w, sizeof *w);
    check_status(linattn_merge(w->workspace, w->workspace + w->state_bytes - 64),
                 LINATTN_ERROR_OVERLAP, "merge");
    check_status(linattn_merge(w->workspace + w->state_bytes - 64, w->workspace),
                 LINATTN_ERROR_OVERLAP, "merge");
    check_same_bytes(w, before, sizeof *w, "written although refused");
}

/* ---- Arrays --------------------------------------------------------------------------------- */

typedef linattn_status array_function(const float *x, float *y, size_t n);

/* linattn_map as one of them. */
static linattn_status map_exp(const float *x, float *y, size_t n)
{
    linattn_config config = {.dim_key = 1, .map = LINATTN_MAP_EXP};
    return linattn_map(&config, 1, x, y, n);
}

/* linattn_map looks at a config's map alone: those of models, with what they have beside it. */
static void maps_of_models(void **state)
{
    (void)state;
    const linattn_config of_rules[] = {
        {.rule = LINATTN_RULE_GATED_DELTA,
         .map = LINATTN_MAP_UNIT,
         .key_heads = 16,
         .kv_heads = 32,
         .dim_key = 4},
        {.rule = LINATTN_RULE_GATED,
         .map = LINATTN_MAP_EXP,
         .precision = LINATTN_PRECISION_COMPENSATED,
         .key_heads = 2,
         .kv_heads = 2,
         .dim_key = 4},
        {.rule = LINATTN_RULE_MLSTM,
         .map = LINATTN_MAP_IDENTITY,
         .state_type = LINATTN_F16,
         .dim_key = 4},
    };
    const float x[4] = {0.5f, -2, 3, 0};
    for (size_t i = 0; i < COUNT_OF(of_rules); i++) {
        const linattn_config alone = {.map = of_rules[i].map, .dim_key = 4};
        float y[4], expected[4];
        check_status(linattn_config_check(&of_rules[i]), LINATTN_OK, "config %zu", i);
        check_status(linattn_map(&of_rules[i], 1, x, y, 1), LINATTN_OK, "config %zu", i);
        check_status(linattn_map(&alone, 1, x, expected, 1), LINATTN_OK, "map %zu", i);
        check_same_bytes(y, expected, sizeof y, "config %zu", i);
    }
}

static void arrays(void **state)
{
    (void)state;
    array_function *const functions[] = {linattn_exp, linattn_elu1, linattn_relu, map_exp};
    float x[40] = {0}, before[40];
    memset(x, 0xA5, sizeof x);
    memcpy(before, x, sizeof x);
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        array_function *f = functions[i];
        check_status(f(NULL, x, 1), LINATTN_ERROR_NULL, "function %zu", i);
        check_status(f(x, NULL, 1), LINATTN_ERROR_NULL, "function %zu", i);
        check_status(f(NULL, NULL, 0), LINATTN_OK, "function %zu", i);
        check_status(f(x, x, 0), LINATTN_OK, "function %zu", i);
        check_status(f(x, x + 1, 2), LINATTN_ERROR_OVERLAP, "function %zu", i);
        check_status(f(x + 1, x, 2), LINATTN_ERROR_OVERLAP, "function %zu", i);
        check_status(f(x, x + 19, 20), LINATTN_ERROR_OVERLAP, "function %zu", i);
        check_status(f(x, x + 1, SIZE_MAX), LINATTN_ERROR_SIZE, "function %zu", i);
        check_status(f(x, x, SIZE_MAX / 4 + 1), LINATTN_ERROR_SIZE, "function %zu", i);
        check_same_bytes(x, before, sizeof x, "function %zu: written although refused", i);
    }
    for (size_t i = 0; i < COUNT_OF(functions); i++)
        check_status(functions[i](x, x + 20, 20), LINATTN_OK, "function %zu", i);
}

static void map_refuses(void **state)
{
    (void)state;
    float x[64] = {0}, y[64];
    linattn_config config = {.dim_key = 8, .map = LINATTN_MAP_EXP};
    check_status(linattn_map(&config, 0, x, x + 1, 2), LINATTN_ERROR_OVERLAP, "map");
    check_status(linattn_map(&config, 0, x, x + 15, 2), LINATTN_ERROR_OVERLAP, "map");
    check_status(linattn_map(&config, 0, x, x + 16, 2), LINATTN_OK, "map");
    check_status(linattn_map(&config, 0, x, y, SIZE_MAX / 8), LINATTN_ERROR_SIZE, "map");
    check_status(linattn_map(&config, 0, x, y, SIZE_MAX / 32 + 1), LINATTN_ERROR_SIZE, "map");
    config.scale = test_nan;
    check_status(linattn_map(&config, 0, x, y, 1), LINATTN_ERROR_CONFIG, "map");
    config.scale = 0;
    config.dim_key = 0;
    check_status(linattn_map(&config, 0, x, y, 1), LINATTN_ERROR_SIZE, "map");
    config = with_map((linattn_config){.dim_key = 8}, LINATTN_MAP_COUNT);
    check_status(linattn_map(&config, 0, x, y, 1), LINATTN_ERROR_CONFIG, "map");
}

/* m values for each dim_key: sizes are those of both sides. */
static void map_of_features_refuses(void **state)
{
    (void)state;
    float projection[16 * 16], x[200], y[600];
    rng r = {8};
    rng_fill_normal(&r, projection, COUNT_OF(projection));
    rng_fill(&r, x, COUNT_OF(x), 2);
    linattn_config config = {
        .dim_key = 4, .map = LINATTN_MAP_FAVOR, .features = 6, .projection = projection};
    check_status(linattn_map(&config, 0, NULL, y, 2), LINATTN_ERROR_NULL, "map");
    check_status(linattn_map(&config, 0, x, NULL, 2), LINATTN_ERROR_NULL, "map");
    check_status(linattn_map(&config, 0, NULL, NULL, 0), LINATTN_OK, "map");
    check_status(linattn_map(&config, 0, y, y, 2), LINATTN_ERROR_OVERLAP, "in place");
    check_status(linattn_map(&config, 0, y + 11, y, 2), LINATTN_ERROR_OVERLAP, "the last feature");
    check_status(linattn_map(&config, 0, y, y + 7, 2), LINATTN_ERROR_OVERLAP, "the last input");
    memcpy(y + 12, x, 8 * sizeof *x);
    check_status(linattn_map(&config, 0, y + 12, y, 2), LINATTN_OK, "right behind");
    check_status(linattn_map(&config, 0, y + 12, y + 20, 2), LINATTN_OK, "right before");
    check_status(linattn_map(&config, 0, x, y, SIZE_MAX / 16), LINATTN_ERROR_SIZE, "map");
    config = (linattn_config){.dim_key = 4, .map = LINATTN_MAP_TAYLOR, .degree = 8};
    check_status(linattn_map(&config, 0, x, y, SIZE_MAX / 256), LINATTN_ERROR_SIZE, "map");
    check_status(linattn_map(&config, 0, x, y, 1), LINATTN_OK, "map");
}

/* In place, where there are as many features as coordinates: the same, or refused. */
static void map_in_place(void **state)
{
    (void)state;
    enum { DIM = 40, VECTORS = 7 };
    static float projection[DIM * DIM], x[VECTORS * DIM], y[VECTORS * DIM], before[VECTORS * DIM];
    rng r = {9};
    rng_fill_normal(&r, projection, COUNT_OF(projection));
    rng_fill(&r, x, COUNT_OF(x), 2);
    memcpy(before, x, sizeof x);
    linattn_config config = {
        .dim_key = DIM, .map = LINATTN_MAP_FAVOR, .features = DIM, .projection = projection};
    check_status(linattn_map(&config, 0, x, y, VECTORS), LINATTN_OK, "map");
    linattn_status status = linattn_map(&config, 0, x, x, VECTORS);
    check(status == LINATTN_OK || status == LINATTN_ERROR_OVERLAP, "status %d", (int)status);
    check_same_floats(x, status == LINATTN_OK ? y : before, COUNT_OF(x), DIM, "map in place");
}

/* ---- Strides -------------------------------------------------------------------------------- */

/* [heads][tokens][dim] and [tokens][heads][dim], dense (strides of zero included) and not. */
static void orders_of_tokens_and_heads(void **state)
{
    (void)state;
    static const layout layouts[] = {
        {0, 0, 0, true, GUARD_NONE}, {0, 0, 0, true, GUARD_AFTER}, {3, 0, 1, true, GUARD_NONE},
        {0, 5, 3, true, GUARD_NONE}, {1, 0, 5, false, GUARD_NONE}, {0, 7, 7, false, GUARD_BEFORE},
    };
    rng r = {3};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
        linattn_config config = {.heads = 6,
                                 .kv_heads = 3,
                                 .dim_key = 19,
                                 .dim_value = 21,
                                 .map = (linattn_feature_map)map,
                                 .features = 18,
                                 .window = map % 3 == 1 ? 5 : 0};
        problem p = problem_new(config, 13, 13, &r, 2);
        outcome expected = run_all(&p, NULL);
        for (size_t i = 0; i < COUNT_OF(layouts); i++) {
            plan how = {.q = layouts[i],
                        .k = layouts[(i + 1) % COUNT_OF(layouts)],
                        .v = layouts[(i + 3) % COUNT_OF(layouts)],
                        .out = layouts[(i + 4) % COUNT_OF(layouts)]};
            outcome actual = run_all(&p, &how);
            check_same_outcome(&p, &actual, &expected, "order of tokens and heads");
        }
    }
}

/* A stride of zero in one direction only stands for the dense one. */
static void single_zero_strides(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    check_taken_by(&c, 1 << BIDIRECTIONAL, "dense");
    float *expected = (float *)pool_copy(w->out, sizeof w->out);
    for (int i = 0; i < 3; i++) {
        memset(w->out, 0xA5, sizeof w->out);
        c.q = strided(w->q, i == 0 ? 0 : HEADS * DIM_KEY, i == 1 ? 0 : DIM_KEY);
        c.k = strided(w->k, i == 1 ? 0 : KV_HEADS * DIM_KEY, i == 0 ? 0 : DIM_KEY);
        c.v = strided(w->v, i == 0 ? 0 : KV_HEADS * DIM_VALUE, i == 1 ? 0 : DIM_VALUE);
        c.out = strided_output(w->out, i == 1 ? 0 : HEADS * DIM_VALUE, i == 0 ? 0 : DIM_VALUE);
        check_taken_by(&c, 1 << BIDIRECTIONAL, "explicit and zero strides");
        check_same_bytes(w->out, expected, sizeof w->out, "explicit and zero strides");
    }
}

/* Frames of a signal that slide by less than their length. */
static void rows_of_inputs_may_overlap(void **state)
{
    (void)state;
    enum { N = 9, DIM = 6 };
    float signal[3][2 * N + DIM];
    rng r = {9};
    rng_fill(&r, signal[0], sizeof signal / sizeof(float), 2);
    linattn_config config = {.dim_key = DIM};
    problem p = problem_new(config, N, N, &r, 1);
    for (size_t i = 0; i < N * DIM; i++) {
        const size_t at = i / DIM * 2 + i % DIM;
        p.q[i] = signal[0][at];
        p.k[i] = signal[1][at];
        p.v[i] = signal[2][at];
    }
    float *expected = run_causal(&p, run_init(&config)), actual[N * DIM];
    const linattn_view q = strided(signal[0], 2, 0), k = strided(signal[1], 2, 0);
    const linattn_view v = strided(signal[2], 2, 0);
    check_status(linattn_causal(run_init(&config), q, k, v, linattn_output_rows(actual), N, NULL),
                 LINATTN_OK, "sliding frames");
    check_same_floats(actual, expected, N * DIM, DIM, "sliding frames");
}

/* ---- The floating-point environment --------------------------------------------------------- */

typedef struct fp_case {
    world *w;
    float x[40], y[40];
    linattn_config query_map;
} fp_case;

enum { FP_CALLS = VERB_COUNT + 7 };

/* One of all functions that compute. Only the library does floating-point arithmetic here. */
static linattn_status fp_perform(fp_case *f, int which)
{
    call c = call_new(f->w);
    c.causal = 1;
    if (which < VERB_COUNT) return perform(&c, (verb)which);
    switch (which - VERB_COUNT) {
    case 0: return linattn_exp(f->x, f->y, COUNT_OF(f->x));
    case 1: return linattn_elu1(f->x, f->y, COUNT_OF(f->x));
    case 2: return linattn_relu(f->x, f->y, COUNT_OF(f->x));
    case 3: return linattn_map(&f->query_map, 0, f->x, f->y, 1);
    case 4: return linattn_map(&f->w->config, 1, f->x, f->y, 1);
    case 5: return linattn_merge(f->w->state, f->w->other);
    default: return linattn_state_init(&f->w->config, f->w->other, f->w->state_bytes);
    }
}

/* What the windows refuse. */
static linattn_status fp_status(const fp_case *f, int which)
{
    bool unsupported = which == UPDATE || which == QUERY || which == VERB_COUNT + 5;
    return f->w->config.window && unsupported ? LINATTN_ERROR_UNSUPPORTED : LINATTN_OK;
}

static fp_case fp_case_new(int map, size_t window)
{
    fp_case f = {.w = world_new(), .query_map = {.dim_key = 40, .map = LINATTN_MAP_SOFTMAX}};
    world *w = f.w;
    rng r = {4};
    f.query_map.scale = 0.3f;
    w->config.scale = 0.3f;
    w->config.epsilon = 0.01f;
    rng_fill(&r, f.x, COUNT_OF(f.x), 20);
    rng_fill(&r, w->k, COUNT_OF(w->k), 40);
    memset(f.y, 0, sizeof f.y);
    memset(w->out, 0, sizeof w->out);
    memset(w->workspace, 0, sizeof w->workspace);
    world_use(w, map, window);
    if (!window)
        check_status(linattn_update(w->other, linattn_rows(w->v), linattn_rows(w->v), 2, NULL),
                     LINATTN_OK, "update");
    return f;
}

/* Whatever the host has set is set again afterwards, and does not matter in between. */
static void floating_point_environment(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2 * LINATTN_MAP_COUNT; kind++)
        for (size_t i = 0; i < fp_hostile_count(); i++) {
            int map = kind % LINATTN_MAP_COUNT;
            size_t window = kind < LINATTN_MAP_COUNT ? 0 : 3;
            size_t mark = pool_mark();
            const char *name;
            uint64_t control = fp_hostile(i, &name);
            fp_case expected = fp_case_new(map, window), actual = fp_case_new(map, window);
            for (int which = 0; which < FP_CALLS; which++) {
                check_status(fp_perform(&expected, which), fp_status(&expected, which), "call %d",
                             which);
                check((fp_control() & ~fp_flags) == fp_ieee, "call %d leaves %x", which,
                      (unsigned)fp_control());
                fp_set_control(control);
                uint64_t before = fp_control();
                linattn_status status = fp_perform(&actual, which);
                uint64_t after = fp_control();
                fp_set_control(fp_ieee);
                check_status(status, fp_status(&actual, which), "call %d under %s", which, name);
                check(after == before, "call %d leaves %x of %x (%s)", which, (unsigned)after,
                      (unsigned)before, name);
                check_same_bytes(actual.y, expected.y, sizeof actual.y, "call %d under %s", which,
                                 name);
                check_same_bytes(actual.w->out, expected.w->out, sizeof actual.w->out,
                                 "call %d under %s, %s", which, name,
                                 map_name(actual.w->config.map));
                check_same_bytes(actual.w->state, expected.w->state, actual.w->state_bytes,
                                 "call %d under %s, %s", which, name,
                                 map_name(actual.w->config.map));
            }
            pool_release(mark);
        }
}

/* A refused call leaves it alone, too. */
static void floating_point_environment_on_refusal(void **state)
{
    (void)state;
    world *w = world_new();
    for (size_t i = 0; i < fp_hostile_count(); i++) {
        const char *name;
        call c = call_new(w);
        c.out.data = w->q;
        fp_set_control(fp_hostile(i, &name));
        uint64_t before = fp_control();
        linattn_status status = perform(&c, CAUSAL);
        uint64_t after = fp_control();
        fp_set_control(fp_ieee);
        check_status(status, LINATTN_ERROR_OVERLAP, "%s", name);
        check(after == before, "%s", name);
    }
}

/* What only looks at numbers does no arithmetic: nothing traps, and denormals are not zero. */
static void floating_point_environment_of_checks(void **state)
{
    (void)state;
    enum { ROWS = 4, DIM = 3 };
    static const uint32_t wrong[] = {0x7FC00000, 0x7F800001, 0xFF800001, 0x7F800000,
                                     0xFF800000, 0x80000001, 0x800116C2, 0xBF800000};
    static const uint32_t right[] = {0, 0x80000000, 1, 0x000116C2, 0x3F800000, 0x7F7FFFFF};
    static const uint32_t far_off[] = {0x7FC00000, 0x7F800001, 0xFFC00000, 0x7F800000,
                                       0xFF800000, 0x49742401, 0xC9742401, 0x7F7FFFFF};
    static const uint32_t fractions[] = {0x7FC00000, 0x7F800001, 0x7F800000, 0x3F000000,
                                         0x3FC00000, 0x00000001, 0x80000001, 0x4A000001,
                                         0x4A000002, 0xCA000004, 0x49FFFFFF, 0x4B000000};
    static const uint32_t integers[] = {0xFF800000, 0,          0x80000000, 0x3F800000,
                                        0xC0400000, 0x4A000000, 0xCA000000, 0x49FFFFF8};
    float projection[ROWS * DIM] = {0};
    linattn_config favor = {
        .dim_key = DIM, .map = LINATTN_MAP_FAVOR, .features = ROWS, .projection = projection};
    const linattn_config plain = {.dim_key = DIM, .map = LINATTN_MAP_EXP};
    const size_t bytes = linattn_state_size(&plain);
    float *exponent = (float *)run_init(&plain) + 128 / sizeof(float) + 16;
    for (size_t i = 0; i < fp_hostile_count(); i++) {
        linattn_status status[5][16] = {{LINATTN_OK}};
        linattn_config c = plain;
        const char *name;
        fp_set_control(fp_hostile(i, &name));
        for (size_t j = 0; j < COUNT_OF(wrong); j++) {
            memcpy(&c.scale, &wrong[j], sizeof c.scale);
            status[0][j] = linattn_config_check(&c);
            c.scale = 0;
            memcpy(&c.epsilon, &wrong[j], sizeof c.epsilon);
            if (status[0][j] == LINATTN_ERROR_CONFIG) status[0][j] = linattn_config_check(&c);
            c.epsilon = 0;
        }
        for (size_t j = 0; j < COUNT_OF(right); j++) {
            memcpy(&c.scale, &right[j], sizeof c.scale);
            memcpy(&c.epsilon, &right[j], sizeof c.epsilon);
            status[1][j] = linattn_config_check(&c);
        }
        for (size_t j = 0; j < COUNT_OF(far_off); j++) {
            memcpy(projection + 5, &far_off[j], sizeof *projection);
            status[2][j] = linattn_config_check(&favor);
        }
        for (size_t j = 0; j < COUNT_OF(fractions); j++) {
            memcpy(exponent + 1, &fractions[j], sizeof *exponent);
            status[3][j] = linattn_state_check(&plain, exponent - 48, bytes);
        }
        for (size_t j = 0; j < COUNT_OF(integers); j++) {
            memcpy(exponent + 1, &integers[j], sizeof *exponent);
            status[4][j] = linattn_state_check(&plain, exponent - 48, bytes);
        }
        fp_set_control(fp_ieee);
        for (size_t j = 0; j < COUNT_OF(wrong); j++)
            check_status(status[0][j], LINATTN_ERROR_CONFIG, "%08x, %s", (unsigned)wrong[j], name);
        for (size_t j = 0; j < COUNT_OF(right); j++)
            check_status(status[1][j], LINATTN_OK, "%08x, %s", (unsigned)right[j], name);
        for (size_t j = 0; j < COUNT_OF(far_off); j++)
            check_status(status[2][j], LINATTN_ERROR_CONFIG, "%08x, %s", (unsigned)far_off[j],
                         name);
        for (size_t j = 0; j < COUNT_OF(fractions); j++)
            check_status(status[3][j], LINATTN_ERROR_STATE, "%08x, %s", (unsigned)fractions[j],
                         name);
        for (size_t j = 0; j < COUNT_OF(integers); j++)
            check_status(status[4][j], LINATTN_OK, "%08x, %s", (unsigned)integers[j], name);
    }
}

/* Threads of the caller may have environments of their own. */
static void parallel_hostile(void *user, size_t count, linattn_job *job, void *arg)
{
    uint64_t outer = fp_control();
    for (size_t i = 0; i < count; i++) {
        const char *name;
        uint64_t control = fp_hostile((i + *(size_t *)user) % fp_hostile_count(), &name);
        fp_set_control(control);
        uint64_t before = fp_control();
        job(arg, i);
        uint64_t after = fp_control();
        fp_set_control(outer);
        if (after != before) abort();
    }
}

static void floating_point_environment_of_threads(void **state)
{
    (void)state;
    rng r = {5};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
        linattn_config config = {.heads = 4,
                                 .dim_key = 19,
                                 .dim_value = 21,
                                 .map = (linattn_feature_map)map,
                                 .scale = 0.3f,
                                 .features = 18,
                                 .window = map % 3 == 2 ? 4 : 0};
        problem p = problem_new(config, 13, 13, &r, 30);
        outcome expected = run_all(&p, NULL);
        for (size_t first = 0; first < fp_hostile_count(); first++) {
            linattn_context context = {parallel_hostile, &first, 3};
            plan how = {.context = &context};
            outcome actual = run_all(&p, &how);
            check_same_outcome(&p, &actual, &expected, "environments of threads");
        }
    }
}

/* ---- Many states ---------------------------------------------------------------------------- */

enum { SEQUENCES = 5, STEPS = 2, STATE_ROOM = LINATTN_STATE_BYTES(KV_HEADS, DIM_KEY, DIM_VALUE) };

/* All that a call for many sequences may read or write. States lie side by side. */
typedef struct crowd {
    unsigned char front[64], states[SEQUENCES + 1][STATE_ROOM];
    linattn_config config;
    float q[SEQUENCES * STEPS * HEADS * DIM_KEY], k[SEQUENCES * STEPS * KV_HEADS * DIM_KEY];
    float v[SEQUENCES * STEPS * KV_HEADS * DIM_VALUE];
    float out[SEQUENCES * STEPS * HEADS * DIM_VALUE];
} crowd;

typedef struct many_call {
    crowd *w;
    void *list[SEQUENCES];
    void *const *states;
    size_t count, n;
    linattn_view q, k, v;
    linattn_output out;
    const linattn_context *context;
} many_call;

static crowd *crowd_new(void)
{
    crowd *w = (crowd *)pool_take(sizeof *w);
    rng r = {3};
    w->config = usual_config();
    rng_fill(&r, w->q, COUNT_OF(w->q), 2);
    rng_fill(&r, w->k, COUNT_OF(w->k), 2);
    rng_fill(&r, w->v, COUNT_OF(w->v), 2);
    for (size_t i = 0; i <= SEQUENCES; i++)
        check_status(linattn_state_init(&w->config, w->states[i], STATE_ROOM), LINATTN_OK, "init");
    return w;
}

static many_call *many_call_new(crowd *w)
{
    many_call *c = (many_call *)pool_take(sizeof *c);
    c->w = w;
    for (size_t i = 0; i < SEQUENCES; i++) c->list[i] = w->states[i];
    c->states = c->list;
    c->count = SEQUENCES;
    c->n = STEPS;
    c->q = linattn_rows(w->q);
    c->k = linattn_rows(w->k);
    c->v = linattn_rows(w->v);
    c->out = linattn_output_rows(w->out);
    c->context = NULL;
    return c;
}

static linattn_status perform_many(const many_call *c, int which)
{
    switch (which) {
    case UPDATE: return linattn_update_many(c->states, c->count, c->k, c->v, c->n, c->context);
    case QUERY:
        return linattn_query_many((const void *const *)c->states, c->count, c->q, c->out, c->n,
                                  c->context);
    default:
        return linattn_causal_many(c->states, c->count, c->q, c->k, c->v, c->out, c->n, c->context);
    }
}

static void check_many_refused(const many_call *c, int verbs, linattn_status expected,
                               const char *why)
{
    size_t mark = pool_mark();
    crowd *before = (crowd *)pool_copy(c->w, sizeof *c->w);
    for (int which = UPDATE; which <= CAUSAL; which++) {
        if (!(verbs >> which & 1)) continue;
        check_status(perform_many(c, which), expected, "%s_many, %s", verb_names[which], why);
        check_same_bytes(c->w, before, sizeof *before, "%s_many, %s: written although refused",
                         verb_names[which], why);
    }
    pool_release(mark);
}

static void check_many_taken(const many_call *c, int verbs, const char *why)
{
    for (int which = UPDATE; which <= CAUSAL; which++)
        if (verbs >> which & 1)
            check_status(perform_many(c, which), LINATTN_OK, "%s_many, %s", verb_names[which], why);
}

enum {
    MANY = WITH_STATE,
    MANY_WITH_KEYS = WITH_STATE & WITH_KEYS,
    MANY_WITH_QUERIES = WITH_STATE & WITH_QUERIES
};

static void many_null(void **state)
{
    (void)state;
    crowd *w = crowd_new();
    many_call *c = many_call_new(w);
    check_many_taken(c, MANY, "good operands");
    c->states = NULL;
    check_many_refused(c, MANY, LINATTN_ERROR_NULL, "no list");
    for (size_t i = 0; i < SEQUENCES; i++) {
        c = many_call_new(w);
        c->list[i] = NULL;
        check_many_refused(c, MANY, LINATTN_ERROR_NULL, "a null in the list");
        c->n = 0;
        check_many_refused(c, MANY, LINATTN_ERROR_NULL, "a null in the list, no tokens");
    }
    c = many_call_new(w);
    c->q.data = NULL;
    check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_NULL, "no queries");
    c = many_call_new(w);
    c->k.data = NULL;
    check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_NULL, "no keys");
    c = many_call_new(w);
    c->v.data = NULL;
    check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_NULL, "no values");
    c = many_call_new(w);
    c->out.data = NULL;
    check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_NULL, "no output");
    const linattn_context context = {NULL, NULL, 2};
    c = many_call_new(w);
    c->context = &context;
    check_many_refused(c, MANY, LINATTN_ERROR_NULL, "threads without parallel_for");
}

static void many_of_nothing(void **state)
{
    (void)state;
    crowd *w = crowd_new(), *before = (crowd *)pool_copy(w, sizeof *w);
    many_call *c = many_call_new(w);
    c->n = 0;
    check_many_taken(c, MANY, "no tokens");
    c->q = c->k = c->v = linattn_rows(NULL);
    c->out = linattn_output_rows(NULL);
    check_many_taken(c, MANY, "no tokens and no memory");
    c->n = STEPS;
    c->count = 0;
    check_many_taken(c, MANY, "no states and no operands");
    c->states = NULL;
    check_many_taken(c, MANY, "no list");
    check_same_bytes(w, before, sizeof *w, "nothing to do");
}

static void many_of_no_state(void **state)
{
    (void)state;
    crowd *w = crowd_new();
    for (size_t i = 0; i < SEQUENCES; i++) {
        many_call *c = many_call_new(w);
        for (size_t odd = 1; odd < 4; odd++) {
            c->list[i] = w->states[i] + odd;
            check_many_refused(c, MANY, LINATTN_ERROR_ALIGNMENT, "an odd address");
        }
        c = many_call_new(w);
        memset(w->states[i], 0, STATE_ROOM);
        check_many_refused(c, MANY, LINATTN_ERROR_STATE, "zeroed memory");
        linattn_config others[] = {w->config, w->config, w->config, w->config,
                                   w->config, w->config, w->config, w->config};
        others[0].map = LINATTN_MAP_EXP;
        others[1].normaliser = LINATTN_NORM_LENGTH;
        others[2].heads = KV_HEADS;
        others[3].dim_key = DIM_KEY - 1;
        others[4].dim_value = DIM_VALUE - 1;
        others[5].scale = 2;
        others[6].epsilon = 1;
        others[7].kv_heads = 1;
        for (size_t j = 0; j < COUNT_OF(others); j++) {
            check_status(linattn_state_init(&others[j], w->states[i], STATE_ROOM), LINATTN_OK,
                         "init");
            check_many_refused(c, MANY, LINATTN_ERROR_STATE, "a state of another config");
        }
        check_status(linattn_state_init(&w->config, w->states[i], STATE_ROOM), LINATTN_OK, "init");
        check_many_taken(c, MANY, "a state of the same config");
    }
}

/* The same state twice, or two that share a float, wherever in the list; also among many. */
static void many_states_overlap(void **state)
{
    (void)state;
    crowd *w = crowd_new();
    for (size_t i = 0; i < SEQUENCES; i++)
        for (size_t j = 0; j < SEQUENCES; j++) {
            if (i == j) continue;
            many_call *c = many_call_new(w);
            c->list[i] = c->list[j];
            check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_OVERLAP, "one state twice");
            check_many_taken(c, 1 << QUERY, "one state twice");
        }
    for (size_t shift = 128; shift <= STATE_ROOM; shift += shift < STATE_ROOM - 8 ? 60 : 4) {
        if (shift > STATE_ROOM) shift = STATE_ROOM;
        for (size_t order = 0; order < 4; order++) {
            memset(w->states[SEQUENCES], 0, STATE_ROOM);
            check_status(linattn_state_init(&w->config, w->states[0], STATE_ROOM), LINATTN_OK,
                         "init");
            memcpy(w->states[0] + shift, w->states[0], 128);
            many_call *c = many_call_new(w);
            void *const list[] = {w->states[0], w->states[0] + shift, w->states[3], w->states[2]};
            static const int orders[][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {0, 3, 1, 2}, {3, 1, 2, 0}};
            c->count = 4 - (order < 2 ? 2 : 0);
            for (size_t i = 0; i < c->count; i++) c->list[i] = list[orders[order][i]];
            if (shift < STATE_ROOM)
                check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_OVERLAP, "states overlap");
            else
                check_many_taken(c, MANY, "states side by side");
        }
    }
}

/* More states than are looked at at a time, side by side, some way apart, or far: one pair
   overlaps, by all or by part, near or far from each other. */
enum { CROWD = 300, CROWD_BYTES = LINATTN_STATE_BYTES(1, 4, 4) };

static linattn_status crowd_step(void **list)
{
    static float x[CROWD * 4], y[CROWD * 4];
    const linattn_view rows = linattn_rows(x);
    return linattn_causal_many(list, CROWD, rows, rows, rows, linattn_output_rows(y), 1, NULL);
}

static void crowd_overlaps(rng *r, size_t gap)
{
    const linattn_config config = {.dim_key = 4};
    const size_t room = CROWD * (CROWD_BYTES + gap) + CROWD_BYTES;
    unsigned char *memory = (unsigned char *)pool_take(room), *at = memory;
    void *list[CROWD];
    memset(memory, 0, room);
    for (size_t i = 0; i < CROWD; i++) {
        list[i] = at;
        check_status(linattn_state_init(&config, at, CROWD_BYTES), LINATTN_OK, "init");
        at += CROWD_BYTES + gap / 8 * 4 + (gap ? rng_below(r, gap / 2 + 1) / 4 * 4 : 0);
    }
    for (size_t i = CROWD; i > 1; i--) {
        size_t other = rng_below(r, i);
        void *swapped = list[other];
        list[other] = list[i - 1];
        list[i - 1] = swapped;
    }
    check_status(crowd_step(list), LINATTN_OK, "a crowd, at most %zu bytes between states", gap);
    void *before = pool_copy(memory, room);
    for (size_t i = 0; i < CROWD; i += 1 + i / 2)
        for (size_t j = 0; j < CROWD; j += test_quick() ? 7 : 1) {
            /* mine begins behind the header of the other one */
            unsigned char kept[128], *other = (unsigned char *)list[j];
            void *const mine = list[i];
            size_t shift = j % 3 ? 128 + rng_below(r, CROWD_BYTES - 255) / 4 * 4 : 0;
            if (i == j) continue;
            memcpy(kept, other + shift, sizeof kept);
            memcpy(other + shift, mine, sizeof kept);
            list[i] = other + shift;
            check_status(crowd_step(list), LINATTN_ERROR_OVERLAP,
                         "states %zu and %zu, %zu bytes apart", i, j, shift);
            list[i] = mine;
            memcpy(other + shift, kept, sizeof kept);
        }
    check_same_bytes(memory, before, room, "crowds that overlap");
}

static void crowds_overlap(void **state)
{
    (void)state;
    rng r = {4};
    crowd_overlaps(&r, 0);
    crowd_overlaps(&r, 8);
    crowd_overlaps(&r, 32);
    crowd_overlaps(&r, CROWD_BYTES);
    crowd_overlaps(&r, 6 * CROWD_BYTES);
    crowd_overlaps(&r, 60 * CROWD_BYTES);
}

/* Inputs may lie in a state that is only read. */
static void many_operands_in_states(void **state)
{
    (void)state;
    crowd *w = crowd_new();
    for (size_t i = 0; i < SEQUENCES; i++) {
        float *first = (float *)(void *)w->states[i],
              *last = first + STATE_ROOM / sizeof(float) - 1;
        many_call *c = many_call_new(w);
        c->k.data = last;
        check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_OVERLAP, "keys in a state");
        c = many_call_new(w);
        c->v.data = first;
        check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_OVERLAP, "values in a state");
        c = many_call_new(w);
        c->q.data = last;
        check_many_refused(c, 1 << CAUSAL, LINATTN_ERROR_OVERLAP, "queries in a state");
        c = many_call_new(w);
        c->out.data = last;
        check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_OVERLAP, "outputs in a state");
        c->out.data = first - 1;
        check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_OVERLAP, "outputs end in a state");
    }
    many_call *c = many_call_new(w); /* the state behind the last one is not in the list */
    c->count = 2;
    c->n = 1;
    c->k = c->v = linattn_rows((const float *)(const void *)w->states[2]);
    check_many_taken(c, MANY, "inputs beside the states");
    c->out.data = (float *)(void *)w->states[SEQUENCES];
    check_many_taken(c, MANY, "outputs beside the states");
}

static void many_outputs_overlap(void **state)
{
    (void)state;
    /* Of a sequence, a token, a head. */
    static const size_t strides[][3] = {
        {STEPS * HEADS * DIM_VALUE - 1, 0, 0},
        {1, 0, 0},
        {DIM_VALUE, HEADS * SEQUENCES * DIM_VALUE - 1, SEQUENCES * DIM_VALUE},
        {DIM_VALUE, SEQUENCES * HEADS * DIM_VALUE, DIM_VALUE},
        {HEADS * DIM_VALUE, (SEQUENCES - 1) * HEADS * DIM_VALUE, DIM_VALUE},
        {2 * DIM_VALUE, 3 * DIM_VALUE, 30 * DIM_VALUE},
    };
    crowd *w = crowd_new();
    float *large = pool_floats(2000);
    float *before = (float *)pool_copy(large, 2000 * sizeof(float));
    for (size_t i = 0; i < COUNT_OF(strides); i++) {
        many_call *c = many_call_new(w);
        linattn_output out = {large, strides[i][1], strides[i][2], strides[i][0]};
        c->out = out;
        check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_OVERLAP, "rows of the output");
        check_same_bytes(large, before, 2000 * sizeof(float), "strides %zu", i);
    }
    many_call *c = many_call_new(w);
    linattn_output close = {large, 0, 0, HEADS * DIM_VALUE - 1};
    c->n = 1;
    c->out = close;
    check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_OVERLAP, "rows of one token each");
    c = many_call_new(w);
    c->out.data = w->q;
    check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_OVERLAP, "the output is the queries");
    c->out.data = w->v + COUNT_OF(w->v) - 1;
    check_many_refused(c, 1 << CAUSAL, LINATTN_ERROR_OVERLAP, "the output begins in the values");
    c->out.data = w->k;
    check_many_refused(c, 1 << CAUSAL, LINATTN_ERROR_OVERLAP, "the output is the keys");
    c = many_call_new(w); /* inputs that are one for all sequences, almost */
    c->q.stride_sequence = c->k.stride_sequence = c->v.stride_sequence = 1;
    check_many_taken(c, MANY, "inputs that overlap");
}

/* Before the list is read, which is not as long as that. */
static void many_sizes_overflow(void **state)
{
    (void)state;
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4, SIZE_MAX / 8,
                                  SIZE_MAX / 4 / (SEQUENCES - 1) + 1};
    crowd *w = crowd_new();
    for (size_t i = 0; i < COUNT_OF(huge); i++) {
        many_call *c = many_call_new(w);
        c->count = huge[i];
        check_many_refused(c, MANY, LINATTN_ERROR_SIZE, "the number of states");
        c = many_call_new(w);
        c->n = huge[i];
        check_many_refused(c, MANY, LINATTN_ERROR_SIZE, "the number of tokens");
        c = many_call_new(w);
        c->q.stride_sequence = huge[i];
        check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_SIZE, "strides of queries");
        c = many_call_new(w);
        c->k.stride_sequence = huge[i];
        check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_SIZE, "strides of keys");
        c = many_call_new(w);
        c->v.stride_sequence = huge[i];
        check_many_refused(c, MANY_WITH_KEYS, LINATTN_ERROR_SIZE, "strides of values");
        c = many_call_new(w);
        c->out.stride_sequence = huge[i];
        check_many_refused(c, MANY_WITH_QUERIES, LINATTN_ERROR_SIZE, "strides of outputs");
        c = many_call_new(w);
        c->count = 1;
        c->q.stride_sequence = c->k.stride_sequence = c->v.stride_sequence = huge[i];
        c->out.stride_sequence = huge[i];
        check_many_taken(c, MANY, "one state, any stride of sequences");
        c->q.stride_sequence = c->k.stride_sequence = c->v.stride_sequence = 1;
        c->out.stride_sequence = 1;
        check_many_taken(c, MANY, "one state, any stride of sequences");
    }
}

static void many_windows(void **state)
{
    (void)state;
    crowd *w = crowd_new();
    linattn_config config = w->config;
    config.window = 3;
    size_t bytes = linattn_state_size(&config);
    many_call *c = many_call_new(w);
    for (size_t i = 0; i < SEQUENCES; i++) {
        c->list[i] = pool_take(bytes);
        check_status(linattn_state_init(&config, c->list[i], bytes), LINATTN_OK, "init");
    }
    check_many_refused(c, 1 << UPDATE | 1 << QUERY, LINATTN_ERROR_UNSUPPORTED, "a window");
    check_many_taken(c, 1 << CAUSAL, "a window");
    c->list[2] = w->states[2];
    check_many_refused(c, 1 << CAUSAL, LINATTN_ERROR_STATE, "a window and none");
}

/* The verbs for one sequence do not look at a stride of sequences. */
static void strides_of_no_sequence(void **state)
{
    (void)state;
    world *w = world_new();
    call c = call_new(w);
    static const size_t strides[] = {1, 7, SIZE_MAX, SIZE_MAX / 4};
    for (size_t i = 0; i < COUNT_OF(strides); i++) {
        c.q.stride_sequence = c.k.stride_sequence = c.v.stride_sequence = strides[i];
        c.out.stride_sequence = strides[i];
        check_taken_by(&c, ALL_VERBS, "any stride of sequences");
    }
}

/* What a game has for each agent: its state and its operands in one struct. */
static void agents_as_structs(void **state)
{
    (void)state;
    typedef struct agent {
        float name, q[HEADS * DIM_KEY], k[KV_HEADS * DIM_KEY], v[KV_HEADS * DIM_VALUE];
        float out[HEADS * DIM_VALUE];
        float memory[STATE_ROOM / sizeof(float)];
    } agent;
    enum { RECORD = sizeof(agent) / sizeof(float) };
    static agent agents[SEQUENCES], alone[SEQUENCES];
    void *list[SEQUENCES];
    const linattn_config config = crowd_new()->config;
    rng r = {5};
    for (size_t i = 0; i < SEQUENCES; i++) {
        rng_fill(&r, &agents[i].name, RECORD, 2);
        list[i] = agents[i].memory;
        check_status(linattn_state_init(&config, list[i], STATE_ROOM), LINATTN_OK, "init");
        alone[i] = agents[i];
        check_status(linattn_causal(alone[i].memory, linattn_rows(alone[i].q),
                                    linattn_rows(alone[i].k), linattn_rows(alone[i].v),
                                    linattn_output_rows(alone[i].out), 1, NULL),
                     LINATTN_OK, "an agent alone");
    }
    linattn_view q = linattn_rows(agents->q), k = linattn_rows(agents->k);
    linattn_view v = linattn_rows(agents->v);
    q.stride_sequence = k.stride_sequence = v.stride_sequence = RECORD;
    linattn_output out = {agents->out, 0, 0, RECORD};
    check_status(linattn_causal_many(list, SEQUENCES, q, k, v, out, 1, NULL), LINATTN_OK,
                 "agents as structs");
    check_same_bytes(agents, alone, sizeof agents, "agents as structs");
}

/* ---- The rest ------------------------------------------------------------------------------- */

/* ---- Recurrences ---------------------------------------------------------------------------- */

/* Everything that linattn_recurrent may read or write, as in a world. */
typedef struct rule_world {
    unsigned char front[64], state[8192], other[8192];
    linattn_config config;
    size_t state_bytes;
    float q[TOKENS * HEADS * DIM_KEY], k[TOKENS * KV_HEADS * DIM_KEY];
    float v[TOKENS * KV_HEADS * DIM_VALUE], out[TOKENS * HEADS * DIM_VALUE];
    float decay[TOKENS * KV_HEADS * DIM_KEY], beta[TOKENS * KV_HEADS], bonus[KV_HEADS * DIM_KEY];
    float read[TOKENS * KV_HEADS * DIM_KEY], write[TOKENS * KV_HEADS * DIM_KEY];
    float input[TOKENS * KV_HEADS];
} rule_world;

typedef struct rule_call {
    rule_world *w;
    void *state;
    linattn_view q, k, v;
    linattn_gates gates;
    linattn_output out;
    size_t n;
    const linattn_context *context;
} rule_call;

enum { DECAY, BETA, READ, WRITE, BONUS, INPUT, GATES };

/* Of each rule, what it needs and what it takes. */
static const bool needed[LINATTN_RULE_COUNT][GATES] = {
    [LINATTN_RULE_GATED] = {[DECAY] = true},
    [LINATTN_RULE_DELTA] = {[BETA] = true},
    [LINATTN_RULE_GATED_DELTA] = {[DECAY] = true, [BETA] = true},
    [LINATTN_RULE_GENERAL] = {[DECAY] = true, [READ] = true, [WRITE] = true},
    [LINATTN_RULE_MLSTM] = {[DECAY] = true, [INPUT] = true}};

static const linattn_status gate_errors[GATES] = {
    LINATTN_ERROR_DECAY,      LINATTN_ERROR_BETA,  LINATTN_ERROR_READ_WRITE,
    LINATTN_ERROR_READ_WRITE, LINATTN_ERROR_BONUS, LINATTN_ERROR_INPUT_GATE};

static linattn_view *gate_of(rule_call *c, int which)
{
    linattn_view *const views[GATES] = {&c->gates.decay, &c->gates.beta,  &c->gates.read,
                                        &c->gates.write, &c->gates.bonus, &c->gates.input};
    return views[which];
}

static float *memory_of_gate(rule_world *w, int which)
{
    float *const arrays[GATES] = {w->decay, w->beta, w->read, w->write, w->bonus, w->input};
    return arrays[which];
}

static linattn_config rule_config(int rule)
{
    linattn_config config = usual_config();
    config.map = LINATTN_MAP_UNIT;
    config.rule = (linattn_rule)rule;
    return config;
}

/* With the gates that the rule needs, decays per head and token. */
static rule_call rule_call_new(rule_world *w)
{
    rule_call c = {.w = w,
                   .state = w->state,
                   .q = linattn_rows(w->q),
                   .k = linattn_rows(w->k),
                   .v = linattn_rows(w->v),
                   .out = linattn_output_rows(w->out),
                   .n = TOKENS};
    for (int i = 0; i < GATES; i++)
        if (needed[w->config.rule][i]) *gate_of(&c, i) = linattn_rows(memory_of_gate(w, i));
    return c;
}

static linattn_status perform_rule(const rule_call *c)
{
    return linattn_recurrent(c->state, c->q, c->k, c->v, &c->gates, c->out, c->n, c->context);
}

static linattn_status perform_rule_many(const rule_call *c)
{
    void *const states[] = {c->state};
    return linattn_recurrent_many(states, 1, c->q, c->k, c->v, &c->gates, c->out, c->n, c->context);
}

static void check_rule_refused(const rule_call *c, linattn_status expected, const char *why)
{
    size_t mark = pool_mark();
    rule_world *before = (rule_world *)pool_copy(c->w, sizeof *c->w);
    check_status(perform_rule(c), expected, "%s, rule %d", why, (int)c->w->config.rule);
    check_same_bytes(c->w, before, sizeof *before, "%s: written although refused", why);
    check_status(perform_rule_many(c), expected, "many, %s, rule %d", why, (int)c->w->config.rule);
    check_same_bytes(c->w, before, sizeof *before, "many, %s: written although refused", why);
    pool_release(mark);
}

static void check_rule_taken(const rule_call *c, const char *why)
{
    check_status(perform_rule(c), LINATTN_OK, "%s, rule %d", why, (int)c->w->config.rule);
    check_status(perform_rule_many(c), LINATTN_OK, "many, %s, rule %d", why,
                 (int)c->w->config.rule);
}

static rule_world *rule_world_new(int rule)
{
    rule_world *w = (rule_world *)pool_take(sizeof *w);
    rng r = {11};
    w->config = rule_config(rule);
    w->state_bytes = linattn_state_size(&w->config);
    check(w->state_bytes > 0 && w->state_bytes <= sizeof w->state, "%zu", w->state_bytes);
    rng_fill(&r, w->q, COUNT_OF(w->q), 2);
    rng_fill(&r, w->k, COUNT_OF(w->k), 2);
    rng_fill(&r, w->v, COUNT_OF(w->v), 2);
    for (size_t i = 0; i < COUNT_OF(w->decay); i++) w->decay[i] = 0.75f + rng_float(&r, 0.25f);
    for (size_t i = 0; i < COUNT_OF(w->beta); i++) w->beta[i] = 1 + rng_float(&r, 1);
    rng_fill(&r, w->read, COUNT_OF(w->read), 0.5f);
    rng_fill(&r, w->write, COUNT_OF(w->write), 0.5f);
    rng_fill(&r, w->bonus, COUNT_OF(w->bonus), 1);
    rng_fill(&r, w->input, COUNT_OF(w->input), 2);
    check_status(linattn_state_init(&w->config, w->state, w->state_bytes), LINATTN_OK, "init");
    check_status(linattn_state_init(&w->config, w->other, w->state_bytes), LINATTN_OK, "init");
    rule_call c = rule_call_new(w);
    c.n = 2;
    check_rule_taken(&c, "good operands");
    return w;
}

/* What a rule needs and lacks, or is given and does not take. */
static void gates_of_rules(void **state)
{
    (void)state;
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule);
        for (int gate = 0; gate < GATES; gate++) {
            rule_call c = rule_call_new(w);
            bool bonus = gate == BONUS && rule == LINATTN_RULE_GATED;
            bool need = needed[rule][gate];
            *gate_of(&c, gate) = linattn_rows(need ? NULL : memory_of_gate(w, gate));
            if (bonus)
                check_rule_taken(&c, "a bonus");
            else
                check_rule_refused(&c, gate_errors[gate],
                                   need ? "a gate is missing" : "a gate too many");
            c.n = 0;
            c.q = c.k = c.v = linattn_rows(NULL);
            c.out = linattn_output_rows(NULL);
            if (!bonus && !need) check_rule_refused(&c, gate_errors[gate], "no tokens");
        }
        rule_call c = rule_call_new(w);
        rule_world *before = (rule_world *)pool_copy(w, sizeof *w);
        linattn_status expected = rule == LINATTN_RULE_SUM     ? LINATTN_OK
                                  : rule == LINATTN_RULE_DELTA ? LINATTN_ERROR_BETA
                                                               : LINATTN_ERROR_DECAY;
        linattn_status actual = linattn_recurrent(c.state, c.q, c.k, c.v, NULL, c.out, c.n, NULL);
        if (rule == LINATTN_RULE_SUM || rule == LINATTN_RULE_DELTA || rule == LINATTN_RULE_GATED)
            check_status(actual, expected, "no gates, rule %d", rule);
        else
            check(actual >= LINATTN_ERROR_DECAY, "status %d, no gates, rule %d", (int)actual, rule);
        if (rule != LINATTN_RULE_SUM) check_same_bytes(w, before, sizeof *w, "no gates");
        c = rule_call_new(w);
        c.gates.decay_per_feature = 1;
        if (rule == LINATTN_RULE_MLSTM)
            check_rule_refused(&c, LINATTN_ERROR_DECAY, "a decay per feature");
        else if (needed[rule][DECAY])
            check_rule_taken(&c, "a decay per feature");
        c = rule_call_new(w);
        c.gates.decay_fixed = c.gates.decay_log = 1;
        w->decay[0] = w->decay[1] = -0.5f;
        if (needed[rule][DECAY]) check_rule_taken(&c, "a fixed decay");
    }
}

static void null_operands_of_rules(void **state)
{
    (void)state;
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule);
        rule_call c = rule_call_new(w);
        c.state = NULL;
        check_rule_refused(&c, LINATTN_ERROR_NULL, "no state");
        c = rule_call_new(w);
        c.k.data = NULL;
        check_rule_refused(&c, LINATTN_ERROR_NULL, "no keys");
        c = rule_call_new(w);
        c.v.data = NULL;
        check_rule_refused(&c, LINATTN_ERROR_NULL, "no values");
        c = rule_call_new(w);
        c.q.data = NULL;
        check_rule_refused(&c, LINATTN_ERROR_NULL, "an output, no queries");
        c = rule_call_new(w);
        c.out.data = NULL;
        check_rule_refused(&c, LINATTN_ERROR_NULL, "queries, no output");
        c.q.data = NULL;
        rule_world *before = (rule_world *)pool_copy(w, sizeof *w);
        check_rule_taken(&c, "neither");
        check_same_bytes(w->out, before->out, sizeof w->out, "neither");
        c = rule_call_new(w);
        const linattn_context context = {NULL, NULL, 2};
        c.context = &context;
        check_rule_refused(&c, LINATTN_ERROR_NULL, "threads without parallel_for");
        for (size_t i = 1; i < 4; i++) {
            c = rule_call_new(w);
            c.state = w->state + i;
            check_rule_refused(&c, LINATTN_ERROR_ALIGNMENT, "an odd address");
        }
        c = rule_call_new(w);
        memset(w->other, 0, sizeof w->other);
        c.state = w->other;
        check_rule_refused(&c, LINATTN_ERROR_STATE, "zeroed memory");
        c = rule_call_new(w);
        check_status(linattn_recurrent_many(NULL, 1, c.q, c.k, c.v, &c.gates, c.out, c.n, NULL),
                     LINATTN_ERROR_NULL, "no list");
        void *const twice[] = {w->state, w->state};
        c.n = 1;
        before = (rule_world *)pool_copy(w, sizeof *w);
        check_status(linattn_recurrent_many(twice, 2, c.q, c.k, c.v, &c.gates, c.out, 1, NULL),
                     LINATTN_ERROR_OVERLAP, "a state twice");
        check_same_bytes(w, before, sizeof *w, "a state twice");
        check_status(linattn_recurrent_many(NULL, 0, c.q, c.k, c.v, &c.gates, c.out, 1, NULL),
                     LINATTN_OK, "no states");
        check_same_bytes(w, before, sizeof *w, "no states");
    }
}

static void no_tokens_of_rules(void **state)
{
    (void)state;
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule), *before = (rule_world *)pool_copy(w, sizeof *w);
        rule_call c = rule_call_new(w);
        c.n = 0;
        check_rule_taken(&c, "no tokens");
        c.q = c.k = c.v = linattn_rows(NULL);
        c.out = linattn_output_rows(NULL);
        check_rule_taken(&c, "no tokens and no memory");
        check_same_bytes(w, before, sizeof *w, "no tokens");
    }
}

/* An output that is an input, and inputs in the state. */
static void overlaps_of_rules(void **state)
{
    (void)state;
    static const size_t floats[GATES] = {TOKENS * KV_HEADS,           TOKENS * KV_HEADS,
                                         TOKENS * KV_HEADS * DIM_KEY, TOKENS * KV_HEADS * DIM_KEY,
                                         KV_HEADS * DIM_KEY,          TOKENS * KV_HEADS};
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule);
        rule_call c;
        for (int gate = 0; gate < GATES; gate++)
            for (int at = 0; at < 3; at++) {
                bool bonus = gate == BONUS && rule == LINATTN_RULE_GATED;
                if (!needed[rule][gate] && !bonus) continue;
                c = rule_call_new(w);
                *gate_of(&c, gate) = linattn_rows(memory_of_gate(w, gate));
                size_t last = floats[gate] - 1;
                if (at < 2) { /* the first, or the last number is the first of the output */
                    c.out.data = memory_of_gate(w, gate) + (at ? last : 0);
                } else { /* the first number is the last of the output */
                    gate_of(&c, gate)->data = w->out + COUNT_OF(w->out) - 1;
                }
                check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "a gate and the output");
                c = rule_call_new(w);
                *gate_of(&c, gate) = linattn_rows(
                    (float *)(void *)(w->state + (at ? w->state_bytes - sizeof(float) : 0)));
                check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "a gate and the state");
            }
        if (needed[rule][DECAY]) {
            c = rule_call_new(w);
            c.gates.decay_fixed = 1;
            c.out.data = w->decay + KV_HEADS - 1;
            check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "a fixed decay and the output");
            c = rule_call_new(w);
            c.gates.decay_per_feature = rule != LINATTN_RULE_MLSTM;
            c.out.data =
                w->decay + TOKENS * KV_HEADS * (c.gates.decay_per_feature ? DIM_KEY : 1) - 1;
            check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "decays and the output");
        }
        c = rule_call_new(w);
        c.out.data = w->q;
        check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "queries and the output");
        c = rule_call_new(w);
        c.out.data = w->k + COUNT_OF(w->k) - 1;
        check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "keys and the output");
        c = rule_call_new(w);
        c.out.data = (float *)(void *)(w->state + w->state_bytes - sizeof(float));
        check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "the state and the output");
        c = rule_call_new(w);
        c.v.data = (float *)(void *)w->state;
        check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "the state and values");
        c = rule_call_new(w);
        c.out = strided_output(w->out, 1, DIM_VALUE);
        check_rule_refused(&c, LINATTN_ERROR_OVERLAP, "the output and itself");
    }
}

static void strides_of_gates_that_overflow(void **state)
{
    (void)state;
    static const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4, SIZE_MAX / 8};
    for (int rule = 1; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule);
        for (int gate = 0; gate < GATES; gate++)
            for (size_t i = 0; i < COUNT_OF(huge) && needed[rule][gate]; i++) {
                rule_call c = rule_call_new(w);
                *gate_of(&c, gate) = strided(memory_of_gate(w, gate), huge[i], 0);
                check_rule_refused(&c, LINATTN_ERROR_SIZE, "stride_token of a gate");
                *gate_of(&c, gate) = strided(memory_of_gate(w, gate), 0, huge[i]);
                check_rule_refused(&c, LINATTN_ERROR_SIZE, "stride_head of a gate");
            }
    }
}

/* Verbs of the sum refuse the states of other rules; queries do not. */
static void rules_are_for_recurrent(void **state)
{
    (void)state;
    for (int rule = 1; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule), *before;
        rule_call c = rule_call_new(w);
        void *const states[] = {w->state};
        static unsigned char workspace[65536];
        before = (rule_world *)pool_copy(w, sizeof *w);
        check_status(linattn_update(w->state, c.k, c.v, TOKENS, NULL), LINATTN_ERROR_UNSUPPORTED,
                     "update, rule %d", rule);
        check_status(linattn_causal(w->state, c.q, c.k, c.v, c.out, TOKENS, NULL),
                     LINATTN_ERROR_UNSUPPORTED, "causal, rule %d", rule);
        check_status(linattn_update_many(states, 1, c.k, c.v, TOKENS, NULL),
                     LINATTN_ERROR_UNSUPPORTED, "update_many, rule %d", rule);
        check_status(linattn_causal_many(states, 1, c.q, c.k, c.v, c.out, TOKENS, NULL),
                     LINATTN_ERROR_UNSUPPORTED, "causal_many, rule %d", rule);
        check_status(linattn_bidirectional(&w->config, c.q, TOKENS, c.k, c.v, TOKENS, c.out,
                                           workspace, sizeof workspace, NULL),
                     LINATTN_ERROR_UNSUPPORTED, "bidirectional, rule %d", rule);
        check_same_bytes(w, before, sizeof *w, "written although refused, rule %d", rule);
        check_status(linattn_query(w->state, c.q, c.out, TOKENS, NULL), LINATTN_OK, "query");
        check_same_bytes(w->state, before->state, sizeof w->state, "query, rule %d", rule);
    }
}

typedef struct rule_refusal {
    const char *field;
    linattn_status status;
    linattn_config config;
} rule_refusal;

static void check_rule_config(const rule_refusal *r)
{
    unsigned char memory[256];
    const char *name = config_name(&r->config), *why = linattn_config_error(&r->config);
    memset(memory, 0xA5, sizeof memory);
    check_status(linattn_config_check(&r->config), r->status, "%s, %s", r->field, name);
    check(begins_with(why, r->field), "%s: %s, %s", r->field, why ? why : "none", name);
    check(linattn_state_size(&r->config) == 0, "%s", name);
    check_status(linattn_state_init(&r->config, memory, SIZE_MAX), r->status, "%s", name);
    check_status(linattn_state_check(&r->config, memory, SIZE_MAX), r->status, "%s", name);
    for (size_t i = 0; i < sizeof memory; i++) check(memory[i] == 0xA5, "byte %zu, %s", i, name);
}

typedef size_t heads_of_rule[3]; /* heads, kv_heads, key_heads */

static linattn_config with_heads(linattn_config config, const heads_of_rule heads)
{
    config.heads = heads[0];
    config.kv_heads = heads[1];
    config.key_heads = heads[2];
    return config;
}

static void check_heads_of_rule(const linattn_config *good)
{
    static const heads_of_rule indivisible[] = {{0, 4, 3}, {4, 4, 8}, {2, 5, 2}},
                               others[] = {{8, 4, 2}, {1, 4, 2}, {12, 6, 2}},
                               taken[] = {{0, 4, 2}, {4, 4, 2}, {2, 4, 2}, {0, 6, 1}, {4, 0, 2}};
    for (size_t i = 0; i < COUNT_OF(indivisible); i++) {
        rule_refusal refused = {"key_heads", LINATTN_ERROR_CONFIG,
                                with_heads(*good, indivisible[i])};
        check_rule_config(&refused);
    }
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        const linattn_config c = with_heads(*good, others[i]);
        check_status(linattn_config_check(&c), LINATTN_ERROR_CONFIG, "%s", config_name(&c));
        check(linattn_config_error(&c) != NULL, "%s", config_name(&c));
    }
    for (size_t i = 0; i < COUNT_OF(taken); i++) {
        const linattn_config c = with_heads(*good, taken[i]);
        check_status(linattn_config_check(&c), LINATTN_OK, "%s", config_name(&c));
    }
}

static void configs_of_rules_are_refused(void **state)
{
    (void)state;
    static const float projection[64] = {0};
    const linattn_status UNSUPPORTED = LINATTN_ERROR_UNSUPPORTED, CONFIG = LINATTN_ERROR_CONFIG;
    for (int rule = 1; rule < LINATTN_RULE_COUNT; rule++) {
        linattn_config good = {.dim_key = 4, .rule = (linattn_rule)rule, .features = 8};
        check_status(linattn_config_check(&good), LINATTN_OK, "%s", config_name(&good));
        rule_refusal refused = {"window", UNSUPPORTED, good};
        refused.config.window = 3;
        check_rule_config(&refused);
        for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
            bool taken = false;
            for (size_t i = 0; i < COUNT_OF(rule_maps); i++) taken |= map == (int)rule_maps[i];
            refused = (rule_refusal){"map", UNSUPPORTED, with_map(good, map)};
            refused.config.projection = projection;
            if (taken)
                check_status(linattn_config_check(&refused.config), LINATTN_OK, "%s",
                             config_name(&refused.config));
            else
                check_rule_config(&refused);
        }
        for (int norm = 0; norm < LINATTN_NORM_COUNT; norm++) {
            refused = (rule_refusal){"normaliser", UNSUPPORTED, with_normaliser(good, norm)};
            bool gated = rule == LINATTN_RULE_GATED;
            if (norm == LINATTN_NORM_NONE || norm == LINATTN_NORM_DEFAULT ||
                (gated && norm != LINATTN_NORM_FEATURE))
                check_status(linattn_config_check(&refused.config), LINATTN_OK, "%s",
                             config_name(&refused.config));
            else
                check_rule_config(&refused);
        }
        check_heads_of_rule(&good);
    }
    const int rules[] = {-1, LINATTN_RULE_COUNT, 1000};
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        rule_refusal refused = {"rule", CONFIG, {.dim_key = 4}};
        memcpy(&refused.config.rule, &rules[i], sizeof rules[i]);
        check_rule_config(&refused);
    }
    rule_refusal refused = {"key_heads", UNSUPPORTED, {.heads = 4, .key_heads = 2, .dim_key = 4}};
    check_rule_config(&refused);
    const linattn_config same = {.heads = 4, .kv_heads = 4, .key_heads = 4, .dim_key = 4};
    check_status(linattn_config_check(&same), LINATTN_OK, "%s", config_name(&same));
}

static void configs_of_state_types_are_refused(void **state)
{
    (void)state;
    const int none[] = {-1, LINATTN_ELEMENT_COUNT, 1000};
    linattn_config good = {.dim_key = 4, .dim_value = 20};
    size_t plain = linattn_state_size(&good);
    void *theirs = run_init(&good);
    for (int element = LINATTN_F16; element <= LINATTN_BF16; element++) {
        linattn_config other = good;
        good.state_type = (linattn_element)element;
        check_status(linattn_config_check(&good), LINATTN_OK, "%s", config_name(&good));
        check(linattn_config_error(&good) == NULL, "%s", config_name(&good));
        size_t bytes = linattn_state_size(&good);
        void *memory = run_init(&good);
        check_state(&good, memory, bytes, LINATTN_OK, "its own");
        check_state(&other, memory, plain, LINATTN_ERROR_STATE, "another type");
        check_state(&good, theirs, plain, LINATTN_ERROR_STATE, "floats, for 16 bits");
        check_status(linattn_merge(memory, theirs), LINATTN_ERROR_STATE, "merge");
        const rule_refusal refused[] = {
            {"state_type", LINATTN_ERROR_UNSUPPORTED, {.map = LINATTN_MAP_TAYLOR}},
            {"state_type", LINATTN_ERROR_UNSUPPORTED, {.map = LINATTN_MAP_EXPDEF}},
            {"state_type", LINATTN_ERROR_UNSUPPORTED, {.map = LINATTN_MAP_FAVOR}},
            {"state_type", LINATTN_ERROR_UNSUPPORTED, {.window = 7}},
            {"state_type",
             LINATTN_ERROR_UNSUPPORTED,
             {.precision = LINATTN_PRECISION_COMPENSATED}}};
        for (size_t i = 0; i < COUNT_OF(refused); i++) {
            rule_refusal one = refused[i];
            one.config.dim_key = 4;
            one.config.state_type = good.state_type;
            check_rule_config(&one);
        }
        float x[20] = {0};
        size_t need = linattn_workspace_size(&good, LINATTN_WORKSPACE_BIDIRECTIONAL, NULL);
        check(need == 0, "%zu bytes", need);
        check_status(linattn_bidirectional(&good, linattn_rows(x), 1, linattn_rows(x),
                                           linattn_rows(x), 1, linattn_output_rows(x), memory,
                                           bytes, NULL),
                     LINATTN_ERROR_UNSUPPORTED, "%s", config_name(&good));
        theirs = memory;
        plain = bytes;
    }
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        rule_refusal refused = {"state_type", LINATTN_ERROR_CONFIG, good};
        memcpy(&refused.config.state_type, &none[i], sizeof none[i]);
        check_rule_config(&refused);
    }
}

static void configs_of_precisions_are_refused(void **state)
{
    (void)state;
    const int none[] = {-1, LINATTN_PRECISION_COUNT, 1000};
    linattn_config good = {.dim_key = 4, .dim_value = 20};
    size_t plain = linattn_state_size(&good), bytes;
    good.precision = LINATTN_PRECISION_COMPENSATED;
    check_status(linattn_config_check(&good), LINATTN_OK, "%s", config_name(&good));
    check(linattn_config_error(&good) == NULL, "%s", config_name(&good));
    bytes = linattn_state_size(&good);
    check(bytes == 2 * plain - 128, "%zu bytes of %zu", bytes, plain);
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        rule_refusal refused = {"precision", LINATTN_ERROR_CONFIG, good};
        memcpy(&refused.config.precision, &none[i], sizeof none[i]);
        check_rule_config(&refused);
    }
    for (int rule = LINATTN_RULE_GATED; rule < LINATTN_RULE_COUNT; rule++) {
        rule_refusal refused = {"precision", LINATTN_ERROR_UNSUPPORTED, good};
        refused.config.rule = (linattn_rule)rule;
        if (rule != LINATTN_RULE_GATED && rule != LINATTN_RULE_MLSTM) {
            check_rule_config(&refused);
            continue;
        }
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++) {
            refused.config.map = rule_maps[map];
            check_status(linattn_config_check(&refused.config), LINATTN_OK, "%s",
                         config_name(&refused.config));
        }
    }
    rule_refusal refused = {"precision", LINATTN_ERROR_UNSUPPORTED, good};
    refused.config.window = 7;
    check_rule_config(&refused);
    linattn_config other = good;
    other.precision = LINATTN_PRECISION_PLAIN;
    void *memory = run_init(&good), *theirs = run_init(&other);
    check_state(&good, memory, bytes, LINATTN_OK, "its own");
    check_state(&other, memory, bytes, LINATTN_ERROR_STATE, "compensated, for plain");
    check_state(&good, theirs, plain, LINATTN_ERROR_STATE, "plain, for compensated");
    check_status(linattn_merge(memory, theirs), LINATTN_ERROR_STATE, "merge");
}

static void sizes_of_rule_states(void **state)
{
    (void)state;
    static unsigned char memory[LINATTN_RULE_STATE_BYTES(2, 16, 24)];
    rng r = {12};
    for (int i = 0; i < 2000; i++) {
        size_t kv = 1 + rng_below(&r, 9), d = 1 + rng_below(&r, 300), dv = 1 + rng_below(&r, 300);
        linattn_config config = {.heads = kv,
                                 .key_heads = rng_below(&r, 2),
                                 .dim_key = d,
                                 .dim_value = dv,
                                 .map = rule_maps[rng_below(&r, COUNT_OF(rule_maps))],
                                 .rule = (linattn_rule)(1 + rng_below(&r, LINATTN_RULE_COUNT - 1))};
        if (config.rule == LINATTN_RULE_GATED && rng_below(&r, 2))
            config.normaliser = LINATTN_NORM_SUM;
        size_t bytes = linattn_state_size(&config);
        check(LINATTN_RULE_STATE_BYTES(kv, d, dv) == bytes, "%zu bytes, %s", bytes,
              config_name(&config));
    }
    linattn_config config = {
        .heads = 2, .dim_key = 16, .dim_value = 24, .rule = LINATTN_RULE_DELTA};
    check(linattn_state_size(&config) == sizeof memory, "%zu bytes", sizeof memory);
}

/* States of one rule are not of another, nor of other heads of keys. */
static void state_check_compares_rules(void **state)
{
    (void)state;
    enum { BYTES = 16384 };
    linattn_config configs[2 * LINATTN_RULE_COUNT];
    size_t count = 0;
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++)
        for (size_t keys = 0; keys < (rule ? 2 : 1); keys++)
            configs[count++] = (linattn_config){.heads = 4,
                                                .key_heads = 2 * keys,
                                                .dim_key = 5,
                                                .normaliser = LINATTN_NORM_NONE,
                                                .rule = (linattn_rule)rule};
    void *memory = pool_take(BYTES), *theirs = pool_take(BYTES);
    for (size_t i = 0; i < count; i++) {
        check_status(linattn_state_init(&configs[i], memory, BYTES), LINATTN_OK, "init");
        for (size_t j = 0; j < count; j++) {
            check_state(&configs[j], memory, BYTES, i == j ? LINATTN_OK : LINATTN_ERROR_STATE,
                        config_name(&configs[j]));
            if (i == j) continue;
            check_status(linattn_state_init(&configs[j], theirs, BYTES), LINATTN_OK, "init");
            void *before = pool_copy(memory, BYTES);
            linattn_status status = linattn_merge(memory, theirs);
            check(status == LINATTN_ERROR_STATE || status == LINATTN_ERROR_UNSUPPORTED,
                  "status %d, %s", (int)status, config_name(&configs[j]));
            check_same_bytes(memory, before, BYTES, "%s", config_name(&configs[j]));
        }
        for (size_t bytes = 0; bytes < linattn_state_size(&configs[i]); bytes += 4)
            check_state(&configs[i], memory, bytes, LINATTN_ERROR_WORKSPACE, "a cut block");
    }
    linattn_config spelt = configs[0];
    spelt.key_heads = 4;
    check_status(linattn_state_init(&configs[0], memory, BYTES), LINATTN_OK, "init");
    check_state(&spelt, memory, BYTES, LINATTN_OK, "key_heads spelt out");
}

/* A rule's block with one word overwritten is refused, or safe to go on with. */
static void check_corrupted(rule_world *w, size_t at, uint32_t word)
{
    size_t mark = pool_mark();
    unsigned char *block = (unsigned char *)pool_take_guarded(w->state_bytes, GUARD_AFTER);
    memcpy(block, w->state, w->state_bytes);
    memcpy(block + at, &word, sizeof word);
    linattn_status status = linattn_state_check(&w->config, block, w->state_bytes);
    if (status == LINATTN_OK) {
        float sums[DIM_KEY * DIM_VALUE], z[DIM_KEY];
        rule_call c = rule_call_new(w);
        c.state = block;
        check_rule_taken(&c, "a state that passed its check");
        check_status(linattn_query(block, c.q, c.out, TOKENS, NULL), LINATTN_OK, "query");
        check_status(linattn_state_export(block, KV_HEADS - 1, 0, sums, z), LINATTN_OK, "export");
        linattn_merge(w->other, block);
    } else {
        check_status(status, LINATTN_ERROR_STATE, "word %zu is %x", at, (unsigned)word);
    }
    pool_release(mark);
}

static void corrupted_states_of_rules(void **state)
{
    (void)state;
    static const uint32_t words[] = {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800000, 0x10000};
    for (int rule = 1; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule);
        for (size_t at = 0; at < w->state_bytes; at += sizeof *words) {
            uint32_t good;
            memcpy(&good, w->state + at, sizeof good);
            for (size_t i = 0; i < COUNT_OF(words); i++)
                if (!test_quick() || at < 256 || i == at / 4 % COUNT_OF(words))
                    check_corrupted(w, at, words[i]);
            for (unsigned bit = 0; at < 256 && bit < 32; bit++)
                check_corrupted(w, at, good ^ (1u << bit));
        }
    }
}

static void export_and_import_refuse(void **state)
{
    (void)state;
    enum { MATRIX = DIM_KEY * DIM_VALUE };
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++) {
        rule_world *w = rule_world_new(rule), *before = (rule_world *)pool_copy(w, sizeof *w);
        float sums[MATRIX + DIM_KEY], was[MATRIX + DIM_KEY], *z = sums + MATRIX;
        memset(sums, 0xA5, sizeof sums);
        memcpy(was, sums, sizeof sums);
        float *inside = (float *)(void *)(w->state + w->state_bytes - sizeof(float));
        struct {
            void *state;
            size_t head;
            float *sums, *z;
            linattn_status status;
        } cases[] = {
            {NULL, 0, sums, z, LINATTN_ERROR_NULL},
            {w->state, 0, NULL, z, LINATTN_ERROR_NULL},
            {w->state + 2, 0, sums, z, LINATTN_ERROR_ALIGNMENT},
            {w->out, 0, sums, z, LINATTN_ERROR_STATE},
            {w->state, KV_HEADS, sums, z, LINATTN_ERROR_SIZE},
            {w->state, SIZE_MAX, sums, z, LINATTN_ERROR_SIZE},
            {w->state, 0, inside, z, LINATTN_ERROR_OVERLAP},
            {w->state, 0, sums, inside, LINATTN_ERROR_OVERLAP},
            {w->state, 0, sums, sums + MATRIX - 1, LINATTN_ERROR_OVERLAP},
        };
        for (size_t i = 0; i < COUNT_OF(cases); i++) {
            bool overlap = cases[i].sums == sums && cases[i].z == sums + MATRIX - 1;
            check_status(
                linattn_state_export(cases[i].state, cases[i].head, 0, cases[i].sums, cases[i].z),
                cases[i].status, "export %zu, rule %d", i, rule);
            if (!overlap) /* which inputs may */
                check_status(linattn_state_import(cases[i].state, cases[i].head, 1, cases[i].sums,
                                                  cases[i].z),
                             cases[i].status, "import %zu, rule %d", i, rule);
            check_same_bytes(w, before, sizeof *w, "case %zu", i);
            check_same_bytes(sums, was, sizeof sums, "case %zu", i);
        }
        check_status(linattn_state_export(w->state, KV_HEADS - 1, 0, sums, NULL), LINATTN_OK, "z");
        check_same_bytes(z, was + MATRIX, DIM_KEY * sizeof *z, "no z was asked for");
        check_same_bytes(w, before, sizeof *w, "export");
    }
    world *w = world_new();
    world_use(w, LINATTN_MAP_ELU1, 3);
    float sums[MATRIX], z[DIM_KEY];
    check_status(linattn_state_export(w->state, 0, 0, sums, z), LINATTN_ERROR_UNSUPPORTED,
                 "window");
    memset(sums, 0, sizeof sums);
    check_status(linattn_state_import(w->state, 0, 0, sums, NULL), LINATTN_ERROR_UNSUPPORTED,
                 "window");
}

/* Whatever the host has set is set again afterwards, and does not matter in between. */
static void floating_point_environment_of_rules(void **state)
{
    (void)state;
    for (int rule = 0; rule < LINATTN_RULE_COUNT; rule++)
        for (size_t map = 0; map < COUNT_OF(rule_maps); map++)
            for (size_t i = 0; i < fp_hostile_count(); i++) {
                size_t mark = pool_mark();
                const char *name;
                uint64_t control = fp_hostile(i, &name);
                rule_world *worlds[] = {rule_world_new(rule), rule_world_new(rule)};
                for (int hostile = 0; hostile < 2; hostile++) {
                    rule_world *w = worlds[hostile];
                    w->config.map = rule_maps[map];
                    memset(w->out, 0, sizeof w->out);
                    memset(w->other, 0, sizeof w->other);
                    check_status(linattn_state_init(&w->config, w->state, w->state_bytes),
                                 LINATTN_OK, "init");
                    rule_call c = rule_call_new(w);
                    float sums[DIM_KEY * DIM_VALUE], z[DIM_KEY];
                    linattn_status status[4];
                    if (hostile) fp_set_control(control);
                    uint64_t before = fp_control();
                    status[0] = perform_rule(&c);
                    status[1] = linattn_query(c.state, c.q, c.out, 2, NULL);
                    status[2] = linattn_state_export(c.state, 0, 0, sums, z);
                    status[3] = linattn_state_import(c.state, 1, 1, sums, z);
                    uint64_t after = fp_control();
                    fp_set_control(fp_ieee);
                    for (int j = 0; j < 4; j++)
                        check_status(status[j], LINATTN_OK, "call %d under %s", j, name);
                    check(after == before, "rule %d leaves %x of %x (%s)", rule, (unsigned)after,
                          (unsigned)before, name);
                }
                check_same_bytes(worlds[1]->out, worlds[0]->out, sizeof worlds[0]->out,
                                 "rule %d under %s", rule, name);
                check_same_bytes(worlds[1]->state, worlds[0]->state, worlds[0]->state_bytes,
                                 "rule %d under %s", rule, name);
                pool_release(mark);
            }
}

static void status_strings(void **state)
{
    (void)state;
    for (int i = -1; i <= LINATTN_ERROR_ELEMENT + 2; i++) {
        const char *text = linattn_status_string((linattn_status)i);
        check(text && *text, "status %d", i);
        for (int j = 0; j < i && i <= LINATTN_ERROR_ELEMENT; j++)
            check(strcmp(text, linattn_status_string((linattn_status)j)) != 0, "%d and %d", i, j);
    }
}

static void views(void **state)
{
    (void)state;
    float x[1] = {0};
    linattn_view view = linattn_rows(x);
    linattn_output out = linattn_output_rows(x);
    check(view.data == x && !view.stride_token && !view.stride_head && !view.stride_sequence,
          "linattn_rows");
    check(out.data == x && !out.stride_token && !out.stride_head && !out.stride_sequence,
          "linattn_output_rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(configs_are_refused),
        TEST(maps_do_not_matter_to_exact_attention),
        TEST(unset_configs),
        TEST(a_null_config_is_refused),
        TEST(projections_are_refused),
        TEST(default_features),
        TEST(configs_at_the_limits_are_taken),
        TEST(sizes_are_as_documented),
        TEST(sizes_of_static_states),
        TEST(sizes_of_windows),
        TEST(null_operands),
        TEST(no_tokens),
        TEST(states_that_are_none),
        TEST(strides_that_overflow),
        TEST(outputs_that_overlap_themselves),
        TEST(strides_that_are_not_taken),
        TEST(huge_strides_that_are_not_taken),
        TEST(outputs_that_overlap_inputs),
        TEST(projections_that_are_written),
        TEST(windows_are_for_whole_sequences),
        TEST(neighbours_are_taken),
        TEST(interleaved_operands_are_told_apart),
        TEST(workspaces),
        TEST(workspaces_of_threads),
        TEST(threads_without_parallel_for),
        TEST(fields_of_exact_attention),
        TEST(blame_by_exact_attention),
        TEST(places_of_queries),
        TEST(elements_of_views),
        TEST(overlaps_of_16_bits),
        TEST(overlaps_of_last_tokens),
        TEST(overlaps_of_odd_numbers),
        TEST(records_of_16_bits),
        TEST(causal_softmax_with_too_few_keys),
        TEST(state_init),
        TEST(state_reset),
        TEST(state_tokens),
        TEST(state_check),
        TEST(states_of_other_versions),
        TEST(state_check_compares_configs),
        TEST(state_check_compares_fields_of_maps),
        TEST(corrupted_states),
        TEST(states_move),
        TEST(merge),
        TEST(maps_of_models),
        TEST(arrays),
        TEST(map_refuses),
        TEST(map_of_features_refuses),
        TEST(map_in_place),
        TEST(orders_of_tokens_and_heads),
        TEST(single_zero_strides),
        TEST(rows_of_inputs_may_overlap),
        TEST(floating_point_environment),
        TEST(floating_point_environment_on_refusal),
        TEST(floating_point_environment_of_checks),
        TEST(floating_point_environment_of_threads),
        TEST(many_null),
        TEST(many_of_nothing),
        TEST(many_of_no_state),
        TEST(many_states_overlap),
        TEST(crowds_overlap),
        TEST(many_operands_in_states),
        TEST(many_outputs_overlap),
        TEST(many_sizes_overflow),
        TEST(many_windows),
        TEST(strides_of_no_sequence),
        TEST(agents_as_structs),
        TEST(gates_of_rules),
        TEST(null_operands_of_rules),
        TEST(no_tokens_of_rules),
        TEST(overlaps_of_rules),
        TEST(strides_of_gates_that_overflow),
        TEST(rules_are_for_recurrent),
        TEST(configs_of_rules_are_refused),
        TEST(configs_of_precisions_are_refused),
        TEST(configs_of_state_types_are_refused),
        TEST(sizes_of_rule_states),
        TEST(state_check_compares_rules),
        TEST(corrupted_states_of_rules),
        TEST(export_and_import_refuse),
        TEST(floating_point_environment_of_rules),
        TEST(status_strings),
        TEST(views),
    };
    test_begin();
    return RUN_TESTS("api", tests);
}
