/* Laws that hold to the bit: across instruction sets, cuts of the sequence, threads, layouts and
   heads; causality and windows; masked tokens; merges. And the law of large numbers. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Problems ------------------------------------------------------------------------------- */

static const size_t lengths[] = {1, 2, 4, 7, 23, 24, 31, 49, 65, 127, 130, 200};

/* Keys whose maxima move: the exponential maps then rescale rows in the middle of a call. */
static void add_drift(rng *r, problem *p)
{
    float slope = rng_float(r, 8);
    for (size_t j = 0; j < p->n_k; j++)
        for (size_t i = 0; i < key_width(p); i++)
            p->k[j * key_width(p) + i] += slope * (float)j + (rng_below(r, 40) ? 0 : 90);
}

static problem draw_problem(rng *r, int map, int normaliser)
{
    bool quick = test_quick();
    linattn_config config = config_draw(r, map, normaliser, 0, quick ? 100 : 400);
    if (rng_below(r, 4) == 0) config.window = window_draw(r, 200);
    if (!config.window && rng_below(r, 4) == 0) config.precision = LINATTN_PRECISION_COMPENSATED;
    config.state_type = state_type_draw(r, &config);
    size_t n_q, n_k, m = config_features(&config), width = config.dim_value;
    if (map_is_favor(config.map)) width += config.dim_key;
    bool fields = map_has_fields((linattn_feature_map)map);
    double limit = (quick ? 1e5 : 4e6) / (fields ? 4 : 1);
    do {
        n_q = rng_pick(r, lengths, COUNT_OF(lengths));
        n_k = rng_below(r, 3) ? n_q : rng_pick(r, lengths, COUNT_OF(lengths));
        limit *= 1.2;
    } while ((double)(n_q + n_k) * (double)(m * width * config.heads) > limit);
    problem p = problem_new(config, n_q, n_k, r, 3);
    if (rng_below(r, 2) && !map_is_monomial(config.map)) add_drift(r, &p);
    return p;
}

/* Runs `law` on random problems with every map and normaliser, one in four with a window. */
static void for_all_problems(uint64_t seed, size_t repeats, void (*law)(const problem *p, rng *r))
{
    rng r = {seed};
    if (test_quick()) repeats = 1;
    repeats *= test_long();
    for (size_t i = 0; i < repeats; i++)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
                if (i % 2 && map_has_fields((linattn_feature_map)map) && (i / 2 + (size_t)map) % 2)
                    continue;
                size_t mark = pool_mark();
                problem p = draw_problem(&r, map, normaliser);
                law(&p, &r);
                pool_release(mark);
            }
}

/* ---- Instruction sets, cuts, threads, layouts ----------------------------------------------- */

static void isa_law(const problem *p, rng *r)
{
    (void)r;
    outcome actual = run_all(p, NULL), expected = run_all_on(p, NULL, LINATTN_ISA_SCALAR);
    check_same_outcome(p, &actual, &expected, "the bits of scalar");
}

static void instruction_sets(void **state)
{
    (void)state;
    if (test_inexact() || test_isa() == LINATTN_ISA_SCALAR) return;
    for_all_problems(1, 12, isa_law);
}

static void cuts_law(const problem *p, rng *r)
{
    outcome expected = run_all(p, NULL);
    plan how = {.cuts = r};
    for (int i = 0; i < 2; i++) {
        outcome actual = run_all(p, &how);
        check_same_outcome(p, &actual, &expected, "random cuts");
    }
}

static void cuts(void **state)
{
    (void)state;
    for_all_problems(2, 10, cuts_law);
}

/* One call per token. */
static void decode_law(const problem *p, rng *r)
{
    (void)r;
    problem whole = *p;
    whole.n_q = whole.n_k = p->n_q < p->n_k ? p->n_q : p->n_k;
    void *prefilled = run_init(&p->config), *decoded = run_init(&p->config);
    float *expected = run_causal(&whole, prefilled);
    float *actual = pool_floats(whole.n_q * output_width(p));
    for (size_t t = 0; t < whole.n_q; t++)
        check_status(linattn_causal(decoded, linattn_rows(p->q + t * query_width(p)),
                                    linattn_rows(p->k + t * key_width(p)),
                                    linattn_rows(p->v + t * value_width(p)),
                                    linattn_output_rows(actual + t * output_width(p)), 1, NULL),
                     LINATTN_OK, "%s", problem_name(p));
    check_same_floats(actual, expected, whole.n_q * output_width(p), output_width(p), "decode, %s",
                      problem_name(p));
    check_same_bytes(decoded, prefilled, linattn_state_size(&p->config), "decode, %s",
                     problem_name(p));
}

static void decode_steps(void **state)
{
    (void)state;
    for_all_problems(3, 10, decode_law);
}

/* Under a window a score that is beyond floats has its query read out by other means: each of a
   group for itself, whatever is asked for with it. */
static void windows_with_scores_beyond_floats(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {LINATTN_MAP_ELU1, LINATTN_MAP_RELU,
                                               LINATTN_MAP_IDENTITY};
    rng r = {29};
    for (size_t i = 0; i < (test_quick() ? 4 : 16) * COUNT_OF(maps); i++) {
        size_t mark = pool_mark(), group = 1 + rng_below(&r, 20);
        linattn_config config = {.heads = group,
                                 .kv_heads = 1,
                                 .dim_key = 1 + rng_below(&r, 20),
                                 .dim_value = 1 + rng_below(&r, 20),
                                 .map = maps[i % COUNT_OF(maps)],
                                 .normaliser = i % 2 ? LINATTN_NORM_NONE : LINATTN_NORM_LENGTH,
                                 .window = window_draw(&r, 60)};
        problem p = problem_new(config, 100, 100, &r, 1);
        for (size_t row = 0; row < 100 * group; row++)
            for (size_t f = 0; row % 5 == 0 && f < config.dim_key; f++)
                p.q[row * config.dim_key + f] *= 1e20f;
        for (size_t e = 0; e < 100 * config.dim_key; e++) p.k[e] *= 1e20f;
        for (size_t e = 0; e < 100 * config.dim_value; e++) p.v[e] *= 1e-10f;
        isa_law(&p, &r);
        cuts_law(&p, &r);
        decode_law(&p, &r);
        pool_release(mark);
    }
}

/* Heads that fit in one panel have kernels of their own, one for each number of vectors; those of
   the identity make the factors of eight query heads at once: 2 to 21 are some, all, and more. */
static void decode_steps_of_one_panel(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {LINATTN_MAP_ELU1, LINATTN_MAP_RELU, LINATTN_MAP_EXP,
                                               LINATTN_MAP_SOFTMAX, LINATTN_MAP_IDENTITY};
    rng r = {23};
    for (size_t i = 0; i < COUNT_OF(maps); i++)
        for (size_t group = 1; group <= 3; group++)
            for (size_t dim = 1; dim <= 16; dim++) {
                size_t mark = pool_mark();
                size_t kv_heads = 2 + (dim + group) % 6; /* 2 to 7 */
                linattn_config config = {.heads = kv_heads * group,
                                         .kv_heads = kv_heads,
                                         .dim_key = dim,
                                         .map = maps[i],
                                         .normaliser = LINATTN_NORM_SUM};
                problem p = problem_new(config, 16, 16, &r, 3);
                decode_law(&p, &r);
                /* a feature that is not finite leaves columns beyond the values' zero */
                p.k[9 * key_width(&p) + rng_below(&r, key_width(&p))] = test_infinity;
                if (maps[i] != LINATTN_MAP_IDENTITY) decode_law(&p, &r); /* which makes NaN of it */
                pool_release(mark);
            }
}

/* The features of a key and its query are made together, in the order in which the two lie, or of
   one array: chunks of fewer than 128, of both signs of a projection, masked keys. */
static void decode_steps_of_made_features(void **state)
{
    (void)state;
    static const struct {
        linattn_feature_map map;
        size_t dim, features, degree, group;
    } cases[] = {
        {LINATTN_MAP_FAVOR, 5, 40, 0, 1},
        {LINATTN_MAP_FAVOR, 17, 260, 0, 3},
        {LINATTN_MAP_FAVOR_SIMPLIFIED, 8, 129, 0, 2},
        {LINATTN_MAP_FAVOR_HYPERBOLIC, 6, 64, 0, 1},
        {LINATTN_MAP_FAVOR_HYPERBOLIC, 16, 128, 0, 2},
        {LINATTN_MAP_FAVOR_HYPERBOLIC, 7, 144, 0, 1}, /* more than are kept */
        {LINATTN_MAP_FAVOR_HYPERBOLIC, 4, 37, 0, 1},
        {LINATTN_MAP_TAYLOR, 16, 0, 2, 1},
        {LINATTN_MAP_TAYLOR, 6, 0, 3, 4},
        {LINATTN_MAP_TAYLOR, 200, 0, 1, 1},
        {LINATTN_MAP_EXPDEF, 7, 0, 4, 2},
    };
    static const linattn_normaliser normalisers[] = {LINATTN_NORM_SUM, LINATTN_NORM_FEATURE,
                                                     LINATTN_NORM_LENGTH, LINATTN_NORM_NONE};
    rng r = {29};
    for (size_t i = 0; i < 12 * COUNT_OF(cases); i++) {
        size_t mark = pool_mark(), at = i / 12, order = i % 3, width = cases[at].dim;
        linattn_config config = {.heads = 2 * cases[at].group,
                                 .kv_heads = 2,
                                 .dim_key = width,
                                 .dim_value = 1 + rng_below(&r, 40),
                                 .map = cases[at].map,
                                 .normaliser = normalisers[i / 3 % 4],
                                 .features = cases[at].features,
                                 .degree = cases[at].degree};
        problem p = problem_new(config, 9, 9, &r, 1);
        size_t queries = 9 * query_width(&p), keys = 9 * key_width(&p);
        float *both = pool_floats(queries + keys);
        float *q = order == 0 ? both : both + keys, *k = order == 0 ? both + queries : both;
        if (order == 2 && queries == keys) q = k;
        memcpy(q, p.q, queries * sizeof *q);
        memcpy(k, p.k, keys * sizeof *k);
        p.q = q;
        p.k = k;
        for (size_t f = 0; f < width && i % 2; f++) k[4 * key_width(&p) + f] = -test_infinity;
        decode_law(&p, &r);
        pool_release(mark);
    }
}

static void reversed_jobs_law(const problem *p, rng *r)
{
    outcome expected = run_all(p, NULL);
    linattn_context context = {parallel_reverse, NULL, 0};
    plan how = {.context = &context};
    for (size_t threads = 0; threads <= 9; threads += test_quick() ? 3 : 1) {
        context.threads = threads;
        how.cuts = threads % 2 ? r : NULL;
        outcome actual = run_all(p, &how);
        check_same_outcome(p, &actual, &expected, "jobs in reverse order");
    }
}

static void jobs_in_reverse(void **state)
{
    (void)state;
    for_all_problems(4, 4, reversed_jobs_law);
}

static void threads_law(const problem *p, rng *r)
{
    outcome expected = run_all(p, NULL);
    linattn_context context = {parallel_threads, r, 2 + rng_below(r, 8)};
    plan how = {.context = &context};
    outcome actual = run_all(p, &how);
    check_same_outcome(p, &actual, &expected, "threads");
}

static void threads(void **state)
{
    (void)state;
    for_all_problems(5, 8, threads_law);
}

typedef struct counter {
    size_t calls, jobs, largest;
} counter;

static void parallel_counted(void *user, size_t count, linattn_job *job, void *arg)
{
    counter *c = (counter *)user;
    c->calls++;
    c->jobs += count;
    if (count > c->largest) c->largest = count;
    for (size_t i = 0; i < count; i++) job(arg, i);
}

/* A callback that is never used would keep every law above. */
static void work_is_shared_out(void **state)
{
    (void)state;
    rng r = {6};
    for (size_t threads_given = 0; threads_given < 9; threads_given++) {
        linattn_config config = {.heads = 8, .dim_key = 20, .dim_value = 20};
        problem p = problem_new(config, 10, 10, &r, 2);
        counter count = {0, 0, 0};
        linattn_context context = {parallel_counted, &count, threads_given};
        plan how = {.context = &context};
        run_all(&p, &how);
        check(count.largest <= threads_given, "%zu jobs, %zu threads", count.largest,
              threads_given);
        if (threads_given > 1)
            check(count.largest == threads_given, "%zu jobs at most, %zu threads", count.largest,
                  threads_given);
    }
}

/* A few tokens of each verb, from a state that holds some: heads and columns for several jobs. */
static void few_tokens_law(const problem *p, size_t n, const linattn_context *context)
{
    const size_t bytes = linattn_state_size(&p->config), floats = n * output_width(p);
    void *begin = run_init(&p->config), *alone, *shared;
    float *expected = pool_floats(floats), *actual = pool_floats(floats);
    const linattn_view q = linattn_rows(p->q), k = linattn_rows(p->k), v = linattn_rows(p->v);
    check_status(linattn_update(begin, k, v, p->n_k, NULL), LINATTN_OK, "%s", problem_name(p));
    for (int verb = 0; verb < 3; verb++) {
        static const char *const names[] = {"causal", "query", "update"};
        for (int i = 0; i < 2; i++) {
            void *const state = pool_copy(begin, bytes);
            const linattn_output out = linattn_output_rows(i ? actual : expected);
            const linattn_context *const threads = i ? context : NULL;
            linattn_status status = LINATTN_OK;
            *(i ? &shared : &alone) = state;
            if (verb == 0) status = linattn_causal(state, q, k, v, out, n, threads);
            if (verb == 1) status = linattn_query(state, q, out, n, threads);
            if (verb == 2) status = linattn_update(state, k, v, n, threads);
            check_status(status, LINATTN_OK, "%s, %s", names[verb], problem_name(p));
        }
        if (verb != 2)
            check_same_floats(actual, expected, floats, output_width(p), "%s, %zu tokens, %s",
                              names[verb], n, problem_name(p));
        check_same_bytes(shared, alone, bytes, "%s, %zu tokens, %s", names[verb], n,
                         problem_name(p));
    }
}

static void steps_on_threads(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {
        LINATTN_MAP_ELU1,    LINATTN_MAP_EXP,   LINATTN_MAP_IDENTITY,
        LINATTN_MAP_SOFTMAX, LINATTN_MAP_FAVOR, LINATTN_MAP_TAYLOR,
    };
    static const size_t heads[] = {1, 2, 3, 7}, dims[][2] = {{16, 16}, {40, 100}, {64, 64}};
    rng r = {31};
    for (size_t i = 0; i < COUNT_OF(maps); i++)
        for (size_t h = 0; h < COUNT_OF(heads); h++)
            for (size_t d = 0; d < COUNT_OF(dims); d++) {
                size_t mark = pool_mark(), group = 1 + rng_below(&r, 3);
                counter count = {0, 0, 0};
                linattn_context context = {parallel_counted, &count, 2 + rng_below(&r, 4)};
                linattn_config config = {.heads = heads[h] * group,
                                         .kv_heads = heads[h],
                                         .dim_key = dims[d][0],
                                         .dim_value = dims[d][1],
                                         .map = maps[i]};
                if (maps[i] == LINATTN_MAP_TAYLOR) config.dim_key = 10;
                problem p = problem_new(config, 4, 4, &r, 1);
                for (size_t n = 1; n <= 3; n++) few_tokens_law(&p, n, &context);
                if (heads[h] > 1 && config.dim_value == 64)
                    check(count.calls >= 9, "%zu calls of parallel_for, %s", count.calls,
                          problem_name(&p));
                pool_release(mark);
            }
}

static void layouts_law(const problem *p, rng *r)
{
    outcome expected = run_all(p, NULL);
    plan how = {.q = layout_random(r),
                .k = layout_random(r),
                .v = layout_random(r),
                .out = layout_random(r),
                .state_side = (guard)rng_below(r, 3),
                .state_offset = 4 * rng_below(r, 16),
                .workspace_offset = rng_below(r, 64)};
    outcome actual = run_all(p, &how);
    check_same_outcome(p, &actual, &expected, "strides and alignment");
}

static void layouts(void **state)
{
    (void)state;
    for_all_problems(7, 12, layouts_law);
}

/* Operands of 16 bits, anywhere, cut into calls and shared out: the bits of the same numbers as
   floats. */
static void elements_law(const problem *given, rng *r)
{
    problem p = *given;
    linattn_context context = context_draw(r);
    plan how = {.of = elements_draw(r, &p),
                .context = rng_below(r, 2) ? &context : NULL,
                .cuts = rng_below(r, 2) ? r : NULL,
                .q = layout_random(r),
                .k = layout_random(r),
                .v = layout_random(r),
                .out = layout_random(r),
                .state_side = (guard)rng_below(r, 3)};
    for (size_t j = 0; map_masks(p.config.map) && j < p.n_k; j++)
        for (size_t i = 0; rng_below(r, 9) == 0 && i < key_width(&p); i++)
            p.k[j * key_width(&p) + i] = -test_infinity;
    outcome expected = run_all(&p, NULL), actual = run_all(&p, &how);
    check_same_outcome(&p, &actual, &expected, "operands of 16 bits");
}

static void operands_of_16_bits(void **state)
{
    (void)state;
    for_all_problems(21, 12, elements_law);
}

/* Long enough for several parts of what is converted at a time; a decode step of more heads than
   one holds; and rows as long as may be, or too long by one. */
static void conversion_in_parts(void **state)
{
    (void)state;
    rng r = {22};
    const struct {
        size_t heads, kv_heads, d, dv, n;
    } of[] = {{2, 1, 64, 64, 200}, {40, 40, 33, 70, 1}, {24, 4, 64, 65, 1},
              {3, 3, 128, 19, 90}, {1, 1, 1024, 1, 2},  {9, 1, 100, 20, 7}};
    for (size_t i = 0; i < COUNT_OF(of); i++)
        for (size_t window = 0; window < 60; window += 40) {
            linattn_config config = {.heads = of[i].heads,
                                     .kv_heads = of[i].kv_heads,
                                     .dim_key = of[i].d,
                                     .dim_value = of[i].dv,
                                     .window = window};
            problem p = problem_new(config, of[i].n, of[i].n, &r, 3);
            plan how = {.of = {LINATTN_BF16, LINATTN_F16, LINATTN_BF16}};
            if (!elements_fit(&config)) continue;
            narrow(how.of.q, p.q, p.n_q * query_width(&p));
            narrow(how.of.k, p.k, p.n_k * key_width(&p));
            narrow(how.of.v, p.v, p.n_k * value_width(&p));
            outcome expected = run_all(&p, NULL), actual = run_all(&p, &how);
            check_same_outcome(&p, &actual, &expected, "parts");
        }
    for (size_t more = 0; more < 2; more++) {
        bool small = linattn_isa_compiled() == 1u << LINATTN_ISA_SCALAR;
        linattn_config config = {
            .heads = 2, .kv_heads = 1, .dim_key = 4, .dim_value = (small ? 1012 : 4084) + more};
        check(elements_fit(&config) == !more, "%zu", config.dim_value);
        problem p = problem_new(config, 1, 1, &r, 3);
        void *memory = run_init(&config);
        void *before = pool_copy(memory, linattn_state_size(&config));
        uint16_t *halves = (uint16_t *)pool_take(config.dim_value * sizeof *halves);
        memset(halves, 0, config.dim_value * sizeof *halves);
        linattn_status status = linattn_update(memory, linattn_rows(p.k),
                                               linattn_rows_as(halves, LINATTN_F16), 1, NULL);
        check_status(status, more ? LINATTN_ERROR_ELEMENT : LINATTN_OK, "a row too long");
        if (more) check_same_bytes(memory, before, linattn_state_size(&config), "refused");
        check_status(linattn_update(memory, linattn_rows(p.k), linattn_rows(p.v), 1, NULL),
                     LINATTN_OK, "floats of any length");
    }
}

/* ---- Verbs made of verbs -------------------------------------------------------------------- */

/* Bidirectional is init, update, query; causal leaves the state of update; its last output is that
   of a query after all updates. (Windowed sums are other sums on each side.) */
static void composition_law(const problem *p, rng *r)
{
    (void)r;
    outcome all = run_all(p, NULL);
    size_t width = output_width(p), last = (p->n_q - 1) * width;
    if (!p->config.state_type)
        check_same_floats(all.out[PART_BIDIRECTIONAL], all.out[PART_QUERY], all.count[PART_QUERY],
                          width, "bidirectional, %s", problem_name(p));
    if (p->n_q != p->n_k) return;
    if (!p->config.window) {
        check_same_bytes(all.causal_state, all.update_state, all.state_bytes, "state of causal, %s",
                         problem_name(p));
        check_same_floats(all.out[PART_CAUSAL] + last, all.out[PART_QUERY] + last, width, width,
                          "last output of causal, %s", problem_name(p));
    }
    check_same_floats(all.out[PART_SOFTMAX_CAUSAL] + last, all.out[PART_SOFTMAX] + last, width,
                      width, "last output of causal softmax, %s", problem_name(p));
}

static void composition(void **state)
{
    (void)state;
    for_all_problems(8, 10, composition_law);
}

/* Queries leave the state alone. */
static void query_law(const problem *p, rng *r)
{
    (void)r;
    if (p->config.window) return;
    void *memory = run_init(&p->config);
    run_update(p, memory);
    void *before = pool_copy(memory, linattn_state_size(&p->config));
    run_query(p, memory);
    check_same_bytes(memory, before, linattn_state_size(&p->config), "query, %s", problem_name(p));
}

static void query_changes_nothing(void **state)
{
    (void)state;
    for_all_problems(9, 2, query_law);
}

/* ---- Causality ------------------------------------------------------------------------------ */

static void spoil(float *x, size_t width, size_t from, size_t to, float value)
{
    for (size_t i = from * width; i < to * width; i++) x[i] = i % 2 ? value : -value;
}

static const uint32_t spoilers[] = {0x7F61B1E6 /* 3e38 */, 0x7F800000, 0x7FC00000, 0x00000001};

/* A copy of p whose keys and values from one token to another hold these bits. */
static problem spoil_tokens(const problem *p, size_t from, size_t to, uint32_t bits)
{
    problem spoilt = *p;
    spoilt.k = (float *)pool_copy(p->k, p->n_k * key_width(p) * sizeof(float));
    spoilt.v = (float *)pool_copy(p->v, p->n_k * value_width(p) * sizeof(float));
    spoil(spoilt.k, key_width(p), from, to, float_from_bits(bits));
    spoil(spoilt.v, value_width(p), from, to, float_from_bits(bits));
    return spoilt;
}

/* Whatever comes later changes no bit of what came before. */
static void causality_law(const problem *p, rng *r)
{
    problem clean = *p;
    clean.n_q = clean.n_k = p->n_q < p->n_k ? p->n_q : p->n_k;
    size_t n = clean.n_k, at = rng_below(r, n), width = output_width(p);
    float *expected = run_causal(&clean, run_init(&p->config));
    float *expected_softmax = run_softmax(&clean, 1, NULL);
    for (size_t i = 0; i < COUNT_OF(spoilers); i++) {
        problem spoilt = spoil_tokens(&clean, at, n, spoilers[i]);
        check_same_floats(run_causal(&spoilt, run_init(&p->config)), expected, at * width, width,
                          "causal, later %08x, %s", (unsigned)spoilers[i], problem_name(p));
        check_same_floats(run_softmax(&spoilt, 1, NULL), expected_softmax, at * width, width,
                          "softmax, later %08x, %s", (unsigned)spoilers[i], problem_name(p));
    }
}

static void causality(void **state)
{
    (void)state;
    for_all_problems(10, 5, causality_law);
}

/* A key that dwarfs all others, in favor, as a maximum over all keys would let the past see it. */
static void check_dwarfed(const problem *p, size_t at, float factor)
{
    problem spoilt = *p;
    size_t width = output_width(p), d = key_width(p);
    spoilt.k = (float *)pool_copy(p->k, p->n_k * d * sizeof(float));
    for (size_t i = 0; i < d; i++) spoilt.k[at * d + i] *= factor;
    void *clean_state = run_init(&p->config), *state = run_init(&p->config);
    float *expected = run_causal(p, clean_state), *actual = run_causal(&spoilt, state);
    check_same_floats(actual, expected, at * width, width, "causal, key %zu is %g times larger, %s",
                      at, (double)factor, problem_name(p));
    for (size_t i = 0; i < p->n_q * width; i++)
        check(float_is_finite(actual[i]), "element %zu, key %zu is %g times larger, %s", i, at,
              (double)factor, problem_name(p));
}

static void a_key_that_dwarfs_all_others(void **state)
{
    (void)state;
    static const float factors[] = {1e4f, -1e4f, 1e30f};
    rng r = {20};
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++)
            for (size_t window = 0; window < 3; window++) {
                size_t mark = pool_mark();
                linattn_config config = config_draw(&r, map, normaliser, 0, 100);
                if (window) config.window = window_draw(&r, 40);
                if (test_quick()) config.heads = config.kv_heads = 1;
                problem p = problem_new(config, 70, 70, &r, 1);
                for (size_t i = 0; i < COUNT_OF(factors); i++)
                    check_dwarfed(&p, i == 0 ? 69 : rng_below(&r, 70), factors[i]);
                pool_release(mark);
            }
}

/* What a window has left behind changes no bit, whatever it was; nor does what it has not reached.
   */
static void window_law(const problem *p, rng *r)
{
    problem clean = *p;
    clean.config.precision = LINATTN_PRECISION_PLAIN;
    clean.config.state_type = LINATTN_F32;
    size_t n = clean.n_q = clean.n_k = p->n_q < p->n_k ? p->n_q : p->n_k;
    size_t w = clean.config.window = p->config.window ? p->config.window : window_draw(r, n);
    size_t at = rng_below(r, n), end = at + 1 + rng_below(r, n - at), width = output_width(p);
    float *causal = run_causal(&clean, run_init(&clean.config));
    float *both = run_bidirectional(&clean, NULL);
    for (size_t i = 0; i < COUNT_OF(spoilers); i++) {
        problem spoilt = spoil_tokens(&clean, at, end, spoilers[i]);
        float *causal_now = run_causal(&spoilt, run_init(&clean.config));
        float *both_now = run_bidirectional(&spoilt, NULL);
        for (size_t t = 0; t < n; t++) {
            if (t < at || t >= end - 1 + w)
                check_same_floats(causal_now + t * width, causal + t * width, width, width,
                                  "causal token %zu, %08x from %zu to %zu, %s", t,
                                  (unsigned)spoilers[i], at, end, problem_name(&clean));
            if (t + w <= at || t >= end - 1 + w)
                check_same_floats(both_now + t * width, both + t * width, width, width,
                                  "bidirectional token %zu, %08x from %zu to %zu, %s", t,
                                  (unsigned)spoilers[i], at, end, problem_name(&clean));
        }
    }
}

static void windows_forget(void **state)
{
    (void)state;
    for_all_problems(21, 4, window_law);
}

/* Windows about as long as those whose keys are all taken one by one, for heads that are large
   enough for that: up to 129 keys. */
static void windows_key_by_key(void **state)
{
    (void)state;
    static const size_t windows[] = {33, 63, 64, 65, 80, 96, 97, 98, 113, 128, 129, 130};
    static const size_t dims[][2] = {{32, 32}, {64, 65}, {150, 20}, {40, 112}};
    rng r = {33};
    for (size_t i = 0; i < COUNT_OF(windows); i++)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
            size_t mark = pool_mark(), which = (i + (size_t)map) % COUNT_OF(dims);
            if (test_quick() && (i + (size_t)map) % 5) continue;
            linattn_config config = config_draw(&r, map, LINATTN_NORM_SUM, dims[which][0], 200);
            config.heads = config.kv_heads = 1 + i % 2;
            config.heads += i % 3 ? 0 : config.kv_heads;
            config.dim_value = dims[which][1];
            config.window = windows[i];
            if (map_is_monomial(config.map)) config.degree = 1;
            problem p = problem_new(config, windows[i] + 50, windows[i] + 50, &r, 2);
            if (map % 2 && !map_is_monomial(config.map)) add_drift(&r, &p);
            /* a third of them, as scalar code took twice as long as all the rest */
            if (!test_inexact() && (i + (size_t)map) % 3 == 0) isa_law(&p, &r);
            cuts_law(&p, &r);
            decode_law(&p, &r);
            window_law(&p, &r);
            pool_release(mark);
        }
}

/* What a feature is kept relative to is one of the keys in the window, and not one that has left it
   as NaN is taken for larger. */
static void exponents_forget(void **state)
{
    (void)state;
    enum { N = 3, HEADER = 32, EXPONENTS = HEADER + 16 };
    float q[N] = {0}, k[N] = {-100, test_nan, test_nan}, v[N] = {1, 1, 1};
    linattn_config config = {.dim_key = 1, .map = LINATTN_MAP_EXP, .window = 2};
    problem p = {config_resolved(config), N, N, q, k, v};
    float *words = (float *)run_init(&p.config);
    run_causal(&p, words);
    check(words[EXPONENTS] == -test_infinity, "relative to 2^%g", (double)words[EXPONENTS]);
}

/* Every small window and length: a value is seen by the queries within the window and by no other,
   not even with a weight of zero. */
static void check_reach(const problem *p, size_t j)
{
    size_t n = p->n_q, w = p->config.window;
    problem spoilt = *p;
    spoilt.v = (float *)pool_copy(p->v, n * sizeof(float));
    spoilt.v[j] = test_nan;
    const float *causal = run_causal(&spoilt, run_init(&p->config));
    const float *both = run_bidirectional(&spoilt, NULL);
    for (size_t t = 0; t < n; t++) {
        bool behind = j <= t && t < j + w, near = t < j + w && j < t + w;
        check(float_is_nan(causal[t]) == behind, "causal, from token %zu to %zu, %s", j, t,
              problem_name(p));
        check(float_is_nan(both[t]) == near, "bidirectional, from token %zu to %zu, %s", j, t,
              problem_name(p));
    }
}

static void reach_of_windows(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {LINATTN_MAP_ELU1, LINATTN_MAP_FAVOR};
    rng r = {28};
    size_t most = test_quick() ? 8 : 36;
    for (size_t w = 1; w < most; w += w < 7 ? 1 : 9)
        for (size_t n = 1; n < 80; n += n < 6 ? 1 : 11)
            for (size_t i = 0; i < COUNT_OF(maps); i++) {
                linattn_config config = {
                    .dim_key = 2, .dim_value = 1, .map = maps[i], .features = 3, .window = w};
                problem p = problem_new(config, n, n, &r, 2);
                for (size_t j = 0; j < n; j += 1 + n / 20) {
                    size_t mark = pool_mark();
                    check_reach(&p, j);
                    pool_release(mark);
                }
            }
}

/* Sums that underflow to a zero below, where tiles hold more keys than a token sees, or fewer. */
static void zeros_of_windows(void **state)
{
    (void)state;
    static const float keys[] = {1, -12, -3}, values[] = {0, -1e-38f, 0};
    rng r = {31};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (size_t window = 1; window < 80; window += 1 + window / 2) {
            size_t mark = pool_mark();
            linattn_config config = {.dim_key = 1,
                                     .map = (linattn_feature_map)map,
                                     .normaliser = LINATTN_NORM_SUM,
                                     .features = 3,
                                     .window = window};
            problem p = problem_new(config, 81, 81, &r, 1);
            for (size_t t = 0; t < p.n_k; t++) {
                p.k[t] = keys[t % 3] * (t < 3 || rng_below(&r, 4) ? 1 : rng_float(&r, 4));
                p.v[t] = t < 3 || rng_below(&r, 2) ? values[t % 3] : rng_float(&r, 2e-38f);
            }
            decode_law(&p, &r);
            cuts_law(&p, &r);
            if (!test_inexact()) isa_law(&p, &r);
            pool_release(mark);
        }
}

/* ---- Heads ---------------------------------------------------------------------------------- */

/* The same problem with the groups of heads rotated by one. */
static float *rotate_heads(const float *x, size_t tokens, size_t groups, size_t width)
{
    float *rotated = pool_floats(tokens * groups * width);
    for (size_t t = 0; t < tokens; t++)
        for (size_t g = 0; g < groups; g++)
            memcpy(rotated + (t * groups + g) * width, x + (t * groups + (g + 1) % groups) * width,
                   width * sizeof *x);
    return rotated;
}

static void permutation_law(const problem *p, rng *r)
{
    (void)r;
    const linattn_config *c = &p->config;
    size_t groups = c->kv_heads, shared = c->heads / c->kv_heads;
    problem rotated = *p;
    rotated.q = rotate_heads(p->q, p->n_q, groups, shared * c->dim_key);
    rotated.k = rotate_heads(p->k, p->n_k, groups, c->dim_key);
    rotated.v = rotate_heads(p->v, p->n_k, groups, c->dim_value);
    outcome expected = run_all(p, NULL), actual = run_all(&rotated, NULL);
    for (int i = 0; i < PART_COUNT; i++) {
        float *unrotated = expected.out[i];
        size_t tokens = expected.count[i] / output_width(p);
        check_same_floats(actual.out[i],
                          rotate_heads(unrotated, tokens, groups, shared * c->dim_value),
                          expected.count[i], output_width(p), "rotated heads, %s, %s",
                          part_name((part)i), problem_name(p));
    }
}

static void permutation_of_heads(void **state)
{
    (void)state;
    for_all_problems(11, 6, permutation_law);
}

/* Each query head as a problem of its own. */
static void separation_law(const problem *p, rng *r)
{
    const linattn_config *c = &p->config;
    size_t h = rng_below(r, c->heads), g = h / (c->heads / c->kv_heads);
    problem alone = *p;
    alone.config.heads = alone.config.kv_heads = 1;
    alone.q = pool_floats(p->n_q * c->dim_key);
    alone.k = pool_floats(p->n_k * c->dim_key);
    alone.v = pool_floats(p->n_k * c->dim_value);
    for (size_t t = 0; t < p->n_q; t++)
        memcpy(alone.q + t * c->dim_key, p->q + (t * c->heads + h) * c->dim_key,
               c->dim_key * sizeof(float));
    for (size_t t = 0; t < p->n_k; t++) {
        memcpy(alone.k + t * c->dim_key, p->k + (t * c->kv_heads + g) * c->dim_key,
               c->dim_key * sizeof(float));
        memcpy(alone.v + t * c->dim_value, p->v + (t * c->kv_heads + g) * c->dim_value,
               c->dim_value * sizeof(float));
    }
    outcome expected = run_all(p, NULL), actual = run_all(&alone, NULL);
    for (int i = 0; i < PART_COUNT; i++)
        for (size_t t = 0; t < actual.count[i] / c->dim_value; t++)
            check_same_floats(actual.out[i] + t * c->dim_value,
                              expected.out[i] + (t * c->heads + h) * c->dim_value, c->dim_value,
                              c->dim_value, "head %zu alone, token %zu, %s, %s", h, t,
                              part_name((part)i), problem_name(p));
}

static void heads_are_separate(void **state)
{
    (void)state;
    for_all_problems(12, 6, separation_law);
}

/* Tiles take four query heads of a group, two or one, each with its own number of tokens; the block
   of tokens holds fewer of them the more heads there are, down to one, and at most 47 heads. */
static void groups_of_every_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 23, 24, 47, 48};
    rng r = {23};
    for (size_t size = 0; size < COUNT_OF(sizes); size++)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
            const size_t heads = sizes[size];
            if (test_quick() && (size + (size_t)map) % 3) continue;
            size_t mark = pool_mark();
            linattn_config config = config_draw(&r, map, LINATTN_NORM_SUM, 0, 70);
            config.heads = heads;
            config.kv_heads = 1;
            config.dim_value = 1 + rng_below(&r, 70);
            problem p = problem_new(config, 29, 29, &r, 1);
            separation_law(&p, &r);
            cuts_law(&p, &r);
            pool_release(mark);
        }
}

/* A block of a window holds so many tokens, or so many query heads, as the instruction set likes:
   several blocks of heads, where exponents are to stay what they are. */
static void windows_of_groups(void **state)
{
    (void)state;
    rng r = {29};
    for (size_t heads = 1; heads < 32; heads += test_quick() ? 10 : 1)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
            if (test_quick() && (heads / 10 + (size_t)map) % 2) continue;
            size_t mark = pool_mark();
            linattn_config config = config_draw(&r, map, LINATTN_NORM_SUM, 1 + heads % 5, 20);
            config.heads = heads;
            config.kv_heads = 1;
            config.dim_value = 1 + rng_below(&r, 20);
            const size_t n = heads % 3 ? 40 : 110; /* sub-blocks one by one; and summed */
            config.window = window_draw(&r, n);
            problem p = problem_new(config, n, n, &r, 3);
            separation_law(&p, &r);
            cuts_law(&p, &r);
            if (!test_inexact()) isa_law(&p, &r);
            pool_release(mark);
        }
}

/* Which outputs a NaN has to reach, and that it reaches no other head. */
typedef struct poison {
    const char *name;
    size_t key_head;      /* whose query heads are affected */
    size_t token, column; /* column: only this one must be NaN; SIZE_MAX: all of them */
    problem p;
} poison;

static void check_poisoned(const poison *x, const outcome *actual, const outcome *clean)
{
    const linattn_config *c = &x->p.config;
    for (int i = 0; i < PART_COUNT; i++)
        for (size_t e = 0; e < clean->count[i]; e++) {
            size_t column = e % c->dim_value, h = e / c->dim_value % c->heads;
            size_t t = e / output_width(&x->p);
            bool affected = h / (c->heads / c->kv_heads) == x->key_head;
            bool causal = i == PART_CAUSAL || i == PART_SOFTMAX_CAUSAL;
            if (c->window)
                affected = affected && t < x->token + c->window && x->token < t + c->window;
            float value = actual->out[i][e];
            if (!affected || (causal && t < x->token))
                check(float_same(value, clean->out[i][e]),
                      "%s reaches %s, head %zu, from token %zu to %zu, %s", x->name,
                      part_name((part)i), h, x->token, t, problem_name(&x->p));
            else if (x->column == SIZE_MAX || x->column == column)
                check(float_is_nan(value), "%s is lost in %s, head %zu, token %zu: %g, %s", x->name,
                      part_name((part)i), h, t, (double)value, problem_name(&x->p));
        }
}

static void nan_law(const problem *p, rng *r)
{
    const linattn_config *c = &p->config;
    if (p->n_q != p->n_k) return;
    outcome clean = run_all(p, NULL);
    size_t g = rng_below(r, c->kv_heads), token = rng_below(r, p->n_k);
    size_t feature = rng_below(r, c->dim_key), column = rng_below(r, c->dim_value);
    poison key = {"a NaN key", g, token, SIZE_MAX, *p};
    poison value = {"a NaN value", g, token, column, *p};
    key.p.k = (float *)pool_copy(p->k, p->n_k * key_width(p) * sizeof(float));
    key.p.k[token * key_width(p) + g * c->dim_key + feature] = test_nan;
    value.p.v = (float *)pool_copy(p->v, p->n_k * value_width(p) * sizeof(float));
    value.p.v[token * value_width(p) + g * c->dim_value + column] = test_nan;
    outcome poisoned = run_all(&key.p, NULL);
    check_poisoned(&key, &poisoned, &clean);
    poisoned = run_all(&value.p, NULL);
    check_poisoned(&value, &poisoned, &clean);
}

static void nan_stays_in_its_head(void **state)
{
    (void)state;
    for_all_problems(13, 5, nan_law);
}

/* A NaN query makes its own row NaN and no other. (Under the normaliser feature, features that no
   key has, as relu and elu1 may leave them, count for nothing, whatever the query is.) */
static void nan_query_law(const problem *p, rng *r)
{
    const linattn_config *c = &p->config;
    if ((c->map == LINATTN_MAP_RELU || c->map == LINATTN_MAP_ELU1) &&
        c->normaliser == LINATTN_NORM_FEATURE)
        return;
    outcome clean = run_all(p, NULL);
    size_t row = rng_below(r, p->n_q * c->heads);
    problem spoilt = *p;
    spoilt.q = (float *)pool_copy(p->q, p->n_q * query_width(p) * sizeof(float));
    spoilt.q[row * c->dim_key + rng_below(r, c->dim_key)] = test_nan;
    outcome actual = run_all(&spoilt, NULL);
    for (int i = 0; i < PART_COUNT; i++)
        for (size_t e = 0; e < clean.count[i]; e++) {
            float value = actual.out[i][e];
            check(e / c->dim_value == row ? float_is_nan(value)
                                          : float_same(value, clean.out[i][e]),
                  "NaN in query row %zu, %s, element %zu: %g, %s", row, part_name((part)i), e,
                  (double)value, problem_name(p));
        }
}

static void nan_query_stays_in_its_row(void **state)
{
    (void)state;
    for_all_problems(14, 5, nan_query_law);
}

/* Under the normaliser feature a feature that no key has counts for nothing, whatever the query is:
   the others are not weighed against its NaN either. */
static void nan_query_of_a_feature_without_keys(void **state)
{
    (void)state;
    static const linattn_feature_map maps[] = {LINATTN_MAP_EXP, LINATTN_MAP_RELU};
    rng r = {30};
    for (size_t i = 0; i < 60; i++) {
        size_t mark = pool_mark();
        linattn_config config =
            config_draw(&r, (int)maps[i % 2], LINATTN_NORM_FEATURE, 2 + i % 40, 99);
        config.window = i % 4 > 1 ? window_draw(&r, 30) : 0;
        problem p = problem_new(config, 20, 20, &r, 300), q = p;
        size_t dead = rng_below(&r, config.dim_key);
        for (size_t j = dead; j < p.n_k * key_width(&p); j += config.dim_key)
            p.k[j] = -test_infinity;
        q.q = (float *)pool_copy(p.q, p.n_q * query_width(&p) * sizeof(float));
        for (size_t j = dead; j < p.n_q * query_width(&p); j += config.dim_key) {
            p.q[j] = -test_infinity;
            q.q[j] = test_nan;
        }
        float *expected = run_causal(&p, run_init(&p.config));
        float *actual = run_causal(&q, run_init(&p.config));
        check_same_floats(actual, expected, p.n_q * output_width(&p), output_width(&p),
                          "NaN in feature %zu, %s", dead, problem_name(&p));
        pool_release(mark);
    }
}

/* ---- Masked tokens -------------------------------------------------------------------------- */

/* p with masked tokens between its own: some[i] is where its token i went. */
static problem with_masked_tokens(const problem *p, rng *r, size_t *some)
{
    size_t at = 0;
    problem masked = *p;
    size_t most = 3 * p->n_k + 3;
    masked.q = pool_floats(most * query_width(p));
    masked.k = pool_floats(most * key_width(p));
    masked.v = pool_floats(most * value_width(p));
    for (size_t t = 0; t <= p->n_k; t++) {
        size_t extra = rng_below(r, 3) ? 0 : 1 + rng_below(r, 2);
        for (; extra > 0; extra--, at++) {
            rng_fill(r, masked.q + at * query_width(p), query_width(p), 2);
            for (size_t i = 0; i < key_width(p); i++)
                masked.k[at * key_width(p) + i] = -test_infinity;
            for (size_t i = 0; i < value_width(p); i++)
                masked.v[at * value_width(p) + i] = i % 2 ? test_nan : test_infinity;
        }
        if (t == p->n_k) break;
        memcpy(masked.q + at * query_width(p), p->q + t * query_width(p),
               query_width(p) * sizeof(float));
        memcpy(masked.k + at * key_width(p), p->k + t * key_width(p), key_width(p) * sizeof(float));
        memcpy(masked.v + at * value_width(p), p->v + t * value_width(p),
               value_width(p) * sizeof(float));
        some[t] = at++;
    }
    masked.n_q = masked.n_k = at;
    return masked;
}

/* The rows of causal outputs, and queries over the whole, are as if masked tokens were absent. */
static void masked_law(const problem *given, rng *r)
{
    problem p = *given;
    p.n_q = p.n_k = p.n_q < p.n_k ? p.n_q : p.n_k;
    if (!map_masks(p.config.map) || p.config.normaliser == LINATTN_NORM_LENGTH) return;
    p.config.window = 0; /* where masked tokens have their places */
    size_t *some = (size_t *)pool_take(p.n_k * sizeof *some), width = output_width(&p);
    plan how = {.cuts = r, .of = elements_draw(r, &p)};
    problem masked = with_masked_tokens(&p, r, some);
    outcome expected = run_all(&p, NULL), actual = run_all(&masked, &how);
    for (int i = 0; i < PART_COUNT; i++)
        for (size_t t = 0; expected.count[i] && t < p.n_q; t++)
            check_same_floats(actual.out[i] + some[t] * width, expected.out[i] + t * width, width,
                              width, "masked tokens, token %zu, %s, %s", t, part_name((part)i),
                              problem_name(&p));
    check(linattn_state_tokens(actual.update_state) == masked.n_k, "%s", problem_name(&masked));
}

static void masked_tokens_are_absent(void **state)
{
    (void)state;
    for_all_problems(15, 8, masked_law);
    rng r = {51};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++) { /* sums that are folded once at least */
        linattn_config config = config_draw(&r, map, LINATTN_NORM_DEFAULT, 0, 20);
        config.precision = LINATTN_PRECISION_COMPENSATED;
        problem p = problem_new(config, 130, 130, &r, 3);
        masked_law(&p, &r);
    }
}

/* Nothing of a masked token is looked at, but for its place in a window. */
static void masked_place_law(const problem *given, rng *r)
{
    problem p = *given;
    if (!map_masks(p.config.map)) return;
    p.k = (float *)pool_copy(p.k, p.n_k * key_width(&p) * sizeof(float));
    problem spoilt = p;
    spoilt.v = (float *)pool_copy(p.v, p.n_k * value_width(&p) * sizeof(float));
    for (size_t j = 0; j < p.n_k; j++) {
        if (rng_below(r, 3)) continue;
        for (size_t i = 0; i < key_width(&p); i++) p.k[j * key_width(&p) + i] = -test_infinity;
        spoil(spoilt.v, value_width(&p), j, j + 1, j % 2 ? test_nan : 3e38f);
    }
    outcome expected = run_all(&p, NULL), actual = run_all(&spoilt, NULL);
    check_same_outputs(&p, &actual, &expected, "values of masked tokens");
}

static void values_of_masked_tokens(void **state)
{
    (void)state;
    for_all_problems(22, 4, masked_place_law);
}

/* The normaliser `length` counts masked tokens: their outputs keep their sums over a larger n. */
static void masked_tokens_count_as_length(void **state)
{
    (void)state;
    rng r = {16};
    linattn_config config = {.dim_key = 7, .dim_value = 9, .normaliser = LINATTN_NORM_LENGTH};
    problem p = problem_new(config, 10, 10, &r, 2);
    size_t some[10];
    problem masked = with_masked_tokens(&p, &r, some);
    check_close(&masked, "causal", run_causal(&masked, run_init(&p.config)), masked.n_q,
                oracle_linear(&masked, true), rounding_linear(&masked));
}

/* ---- Merge ---------------------------------------------------------------------------------- */

/* An empty state on either side changes nothing. */
/* ---- Streams without end -------------------------------------------------------------------- */

enum { DOUBLINGS = 25, MORE = 1 << 20, CALL = 4096 };

/* A long past of one key, made by merging states with their copies, in which every value is 0; then
   as many tokens as a day has, of value 1: the share of these. */
static float share_of_the_new(linattn_config config, size_t *tokens)
{
    static float keys[CALL], values[CALL];
    float query = 0.25f, zero = 0, out;
    for (size_t i = 0; i < CALL; i++) {
        keys[i] = 0.3f;
        values[i] = 1;
    }
    size_t bytes = linattn_state_size(&config);
    void *memory = run_init(&config), *copy = pool_take(bytes);
    check_status(linattn_update(memory, linattn_rows(keys), linattn_rows(&zero), 1, NULL),
                 LINATTN_OK, "%s", config_name(&config));
    for (int i = 0; i < DOUBLINGS; i++) {
        memcpy(copy, memory, bytes);
        check_status(linattn_merge(memory, copy), LINATTN_OK, "%s", config_name(&config));
    }
    for (size_t t = 0; t < MORE; t += CALL)
        check_status(linattn_update(memory, linattn_rows(keys), linattn_rows(values), CALL, NULL),
                     LINATTN_OK, "%s", config_name(&config));
    check_status(linattn_query(memory, linattn_rows(&query), linattn_output_rows(&out), 1, NULL),
                 LINATTN_OK, "%s", config_name(&config));
    *tokens = (size_t)linattn_state_tokens(memory);
    return out;
}

/* Plain sums no longer grow there: 1 is less than half of their last place. */
static void streams_without_end(void **state)
{
    (void)state;
    const double share = (double)MORE / (MORE + (1 << DOUBLINGS));
    static const linattn_feature_map maps[] = {LINATTN_MAP_ELU1,    LINATTN_MAP_IDENTITY,
                                               LINATTN_MAP_RELU,    LINATTN_MAP_EXP,
                                               LINATTN_MAP_SOFTMAX, LINATTN_MAP_TAYLOR};
    for (size_t i = 0; i < COUNT_OF(maps); i++) {
        size_t mark = pool_mark(), tokens;
        linattn_config config = {.dim_key = 1, .map = maps[i]};
        if (maps[i] == LINATTN_MAP_ELU1) {
            double plain = (double)share_of_the_new(config, &tokens);
            check(fabs(plain - share) > 0.02 * share,
                  "plain sums have become as good: %.9g, expected %.9g", plain, share);
        }
        config.precision = LINATTN_PRECISION_COMPENSATED;
        double compensated = (double)share_of_the_new(config, &tokens);
        check(tokens == MORE + ((size_t)1 << DOUBLINGS), "%zu tokens", tokens);
        check(fabs(compensated - share) < 1e-5 * share, "%.9g, expected %.9g, %s", compensated,
              share, config_name(&config));
        pool_release(mark);
    }
}

static void merge_empty_law(const problem *p, rng *r)
{
    (void)r;
    if (p->config.window) return;
    size_t bytes = linattn_state_size(&p->config);
    void *memory = run_init(&p->config), *empty = run_init(&p->config);
    run_update(p, memory);
    void *before = pool_copy(memory, bytes);
    check_status(linattn_merge(memory, empty), LINATTN_OK, "%s", problem_name(p));
    check_same_bytes(memory, before, bytes, "merge of an empty state, %s", problem_name(p));
    check_status(linattn_merge(empty, memory), LINATTN_OK, "%s", problem_name(p));
    check_same_bytes(empty, before, bytes, "merge into an empty state, %s", problem_name(p));
    check_same_bytes(memory, before, bytes, "source of a merge, %s", problem_name(p));
}

static void merge_with_empty(void **state)
{
    (void)state;
    for_all_problems(17, 4, merge_empty_law);
}

static void *merged(void *dst, const void *src, const problem *p)
{
    check_status(linattn_merge(dst, src), LINATTN_OK, "%s", problem_name(p));
    return dst;
}

/* (a + b) + c and a + (b + c) and (c + a) + b, to rounding. */
static void merge_order_law(const problem *p, rng *r)
{
    size_t first = rng_below(r, p->n_k + 1), second = first + rng_below(r, p->n_k + 1 - first);
    oracle expected = oracle_linear(p, false);
    for (int order = 0; order < 3; order++) {
        void *a = run_slice(p, 0, first), *b = run_slice(p, first, second);
        void *c = run_slice(p, second, p->n_k), *sum;
        if (order == 0)
            sum = merged(merged(a, b, p), c, p);
        else if (order == 1)
            sum = merged(a, merged(b, c, p), p);
        else
            sum = merged(merged(c, a, p), b, p);
        check(linattn_state_tokens(sum) == p->n_k, "%s", problem_name(p));
        check_status(linattn_state_check(&p->config, sum, linattn_state_size(&p->config)),
                     LINATTN_OK, "%s", problem_name(p));
        check_close(p, "merge", run_query(p, sum), p->n_q, expected, rounding_linear(p));
    }
}

static void merge_in_any_order(void **state)
{
    (void)state;
    rng r = {18};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = 4,
                                     .kv_heads = 2,
                                     .dim_key = rng_pick(&r, odd_dims, 21),
                                     .dim_value = rng_pick(&r, odd_dims, 21),
                                     .map = (linattn_feature_map)map,
                                     .normaliser = (linattn_normaliser)normaliser};
            config_draw_features(&r, &config, 300);
            problem p = problem_new(config, 7, 40, &r, 2);
            if (map_is_exponential(config.map) && !map_is_favor(config.map)) add_drift(&r, &p);
            merge_order_law(&p, &r);
            pool_release(mark);
        }
}

/* Merging is done in the same bits by every instruction set, exponents far apart included. */
static void merge_isa_law(const problem *p, rng *r)
{
    if (p->config.window) return;
    size_t cut = rng_below(r, p->n_k + 1), bytes = linattn_state_size(&p->config);
    void *a = run_slice(p, 0, cut), *b = run_slice(p, cut, p->n_k), *c = pool_copy(a, bytes);
    merged(a, b, p);
    linattn_isa_select(LINATTN_ISA_SCALAR);
    merged(c, b, p);
    linattn_isa_select(test_isa());
    check_same_bytes(a, c, bytes, "merge, %s", problem_name(p));
}

static void merge_on_instruction_sets(void **state)
{
    (void)state;
    if (test_inexact() || test_isa() == LINATTN_ISA_SCALAR) return;
    for_all_problems(19, 6, merge_isa_law);
}

/* ---- States with a projection --------------------------------------------------------------- */

/* A state keeps its projection: what the config pointed at may be gone. */
static void a_projection_is_copied(void **state)
{
    (void)state;
    rng r = {23};
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++)
        for (size_t window = 0; window < 8; window += 7) {
            linattn_config config = {.heads = 4,
                                     .kv_heads = 2,
                                     .dim_key = 13,
                                     .dim_value = 11,
                                     .map = (linattn_feature_map)map,
                                     .features = 21,
                                     .window = window};
            problem p = problem_new(config, 30, 30, &r, 2);
            outcome expected = run_all(&p, NULL);
            size_t count = 21 * 13;
            float *mine = (float *)pool_copy(p.config.projection, count * sizeof(float));
            linattn_config short_lived = p.config;
            short_lived.projection = mine;
            void *causal = run_init(&short_lived), *update = run_init(&short_lived);
            for (size_t i = 0; i < count; i++) mine[i] = test_nan;
            check_same_floats(run_causal(&p, causal), expected.out[PART_CAUSAL],
                              expected.count[PART_CAUSAL], 44, "causal, %s", problem_name(&p));
            check_same_bytes(causal, expected.causal_state, expected.state_bytes, "causal, %s",
                             problem_name(&p));
            check_status(linattn_state_check(&p.config, causal, expected.state_bytes), LINATTN_OK,
                         "the same projection elsewhere");
            if (window) continue;
            run_update(&p, update);
            check_same_floats(run_query(&p, update), expected.out[PART_QUERY],
                              expected.count[PART_QUERY], 44, "query, %s", problem_name(&p));
            check_same_bytes(update, expected.update_state, expected.state_bytes, "update, %s",
                             problem_name(&p));
        }
}

/* One bit of one weight makes another attention. */
static void projections_are_told_apart(void **state)
{
    (void)state;
    rng r = {24};
    linattn_config config = {.dim_key = 5, .dim_value = 3, .map = LINATTN_MAP_FAVOR, .features = 9};
    problem p = problem_new(config, 8, 8, &r, 2);
    size_t bytes = linattn_state_size(&p.config);
    void *mine = run_init(&p.config);
    run_update(&p, mine);
    void *before = pool_copy(mine, bytes);
    for (size_t i = 0; i < 9 * 5; i++) {
        float *other = (float *)pool_copy(p.config.projection, 9 * 5 * sizeof(float));
        other[i] = float_from_bits(float_bits(other[i]) ^ 1u);
        problem q = p;
        q.config.projection = other;
        void *theirs = run_init(&q.config);
        run_update(&q, theirs);
        check_status(linattn_state_check(&q.config, mine, bytes), LINATTN_ERROR_STATE, "weight %zu",
                     i);
        check_status(linattn_merge(mine, theirs), LINATTN_ERROR_STATE, "weight %zu", i);
        check_same_bytes(mine, before, bytes, "weight %zu", i);
    }
    float *same = (float *)pool_copy(p.config.projection, 9 * 5 * sizeof(float));
    problem q = p;
    q.config.projection = same;
    void *theirs = run_init(&q.config);
    check_status(linattn_state_check(&q.config, mine, bytes), LINATTN_OK, "an equal projection");
    check_status(linattn_merge(mine, theirs), LINATTN_OK, "an equal projection");
}

/* ---- Many states ---------------------------------------------------------------------------- */

/* Where the rows of [sequences][tokens][heads][dim] lie: strides in floats. */
enum { SEQUENCES, IN_SEQUENCE, IN_TOKEN, AXES };

typedef struct rows {
    float *data;
    size_t count[AXES], stride[AXES], dim;
} rows;

/* Axes in this order, the outermost first, with gaps behind each step of them. Returns the floats
   that are spanned. */
static size_t rows_measure(rows *x, const int order[AXES], const size_t gaps[AXES])
{
    size_t step = x->dim, span = x->dim;
    for (int i = AXES; i-- > 0;) {
        step += gaps[order[i]];
        x->stride[order[i]] = step;
        if (x->count[order[i]] == 0) return 0;
        span += (x->count[order[i]] - 1) * step;
        step *= x->count[order[i]];
    }
    return span;
}

static float *row_of(const rows *x, size_t sequence, size_t token, size_t head)
{
    return x->data + sequence * x->stride[SEQUENCES] + token * x->stride[IN_SEQUENCE] +
           head * x->stride[IN_TOKEN];
}

/* To or from dense [tokens][heads][dim] of one sequence. */
static void copy_rows(const rows *x, size_t sequence, float *dense, bool from_dense)
{
    for (size_t t = 0; t < x->count[IN_SEQUENCE]; t++)
        for (size_t h = 0; h < x->count[IN_TOKEN]; h++, dense += x->dim) {
            float *row = row_of(x, sequence, t, h);
            memcpy(from_dense ? row : dense, from_dense ? dense : row, x->dim * sizeof *row);
        }
}

/* A few sequences of one config, each with a problem and a projection of its own, a state that has
   seen some tokens of its own, and operands in one block of memory. */
typedef struct crowd {
    size_t count, n, state_bytes;
    problem *each;
    void **states;
    rows q, k, v, out;
    bool dense; /* all strides are left to the library */
    float *memory;
    size_t floats;
} crowd;

typedef enum arrangement {
    DENSE,            /* one operand after the other */
    SCATTERED,        /* in any order of axes, with gaps */
    RECORDS,          /* q | k | v | out of one sequence, then those of the next */
    RECORDS_OF_TOKEN, /* one record for each token of each sequence, sequence by sequence */
    TOKENS_FIRST,     /* the same, token by token */
    ARRANGEMENTS
} arrangement;

static void crowd_place(crowd *c, rng *r, arrangement how)
{
    static const int orders[][AXES] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                       {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    rows *const all[] = {&c->q, &c->k, &c->v, &c->out};
    size_t at[4], total = 0, record = 0;
    for (size_t i = 0; i < 4; i++) {
        size_t gaps[AXES] = {0, 0, 0};
        rows one = *all[i];
        for (int axis = 0; axis < AXES && how == SCATTERED; axis++)
            if (rng_below(r, 3) == 0) gaps[axis] = rng_below(r, 20);
        one.count[SEQUENCES] = how < RECORDS ? c->count : 1;
        one.count[IN_SEQUENCE] = how < RECORDS_OF_TOKEN ? c->n : 1;
        at[i] = total;
        total += rows_measure(&one, orders[how == SCATTERED ? rng_below(r, 6) : 0], gaps);
        memcpy(all[i]->stride, one.stride, sizeof one.stride);
    }
    record = total + (rng_below(r, 2) ? rng_below(r, 20) : 0);
    if (how >= RECORDS) total = record * c->count * (how == RECORDS ? 1 : c->n);
    for (size_t i = 0; i < 4; i++) {
        if (how == RECORDS) all[i]->stride[SEQUENCES] = record;
        if (how == RECORDS_OF_TOKEN || how == TOKENS_FIRST) {
            all[i]->stride[SEQUENCES] = record * (how == TOKENS_FIRST ? 1 : c->n);
            all[i]->stride[IN_SEQUENCE] = record * (how == TOKENS_FIRST ? c->count : 1);
        }
    }
    c->dense = how == DENSE;
    c->floats = total;
    c->memory = (float *)pool_take_guarded(total * sizeof(float),
                                           rng_below(r, 2) ? GUARD_AFTER : GUARD_BEFORE);
    for (size_t i = 0; i < 4; i++) all[i]->data = c->memory + at[i];
    for (size_t s = 0; s < c->count; s++) {
        copy_rows(&c->q, s, c->each[s].q, true);
        copy_rows(&c->k, s, c->each[s].k, true);
        copy_rows(&c->v, s, c->each[s].v, true);
    }
}

typedef enum succession { ASCENDING, DESCENDING, SHUFFLED, SUCCESSIONS } succession;

/* States side by side, at times with gaps, in this order of addresses. */
static void crowd_states(crowd *c, rng *r, succession order)
{
    size_t gap = rng_below(r, 2) ? 4 * rng_below(r, 20) : 0;
    unsigned char *block = (unsigned char *)pool_take_guarded(
        c->count * (c->state_bytes + gap) - gap, rng_below(r, 2) ? GUARD_AFTER : GUARD_BEFORE);
    c->states = (void **)pool_take(c->count * sizeof *c->states);
    for (size_t i = 0; i < c->count; i++) {
        size_t place = order == DESCENDING ? c->count - 1 - i : i;
        c->states[i] = block + place * (c->state_bytes + gap);
    }
    for (size_t i = c->count; i > 1 && order == SHUFFLED; i--) {
        size_t other = rng_below(r, i);
        void *swapped = c->states[other];
        c->states[other] = c->states[i - 1];
        c->states[i - 1] = swapped;
    }
    for (size_t i = 0; i < c->count; i++) {
        size_t mark = pool_mark();
        check_status(linattn_state_init(&c->each[i].config, c->states[i], c->state_bytes),
                     LINATTN_OK, "%s", problem_name(&c->each[i]));
        problem past = problem_new(c->each[i].config, i % 5, i % 5, r, 3);
        run_causal(&past, c->states[i]);
        pool_release(mark);
    }
}

static rows rows_new(const crowd *c, size_t heads, size_t dim)
{
    rows x = {.count = {c->count, c->n, heads}, .dim = dim};
    return x;
}

static crowd crowd_new(rng *r, linattn_config config, size_t count, size_t n, arrangement how,
                       succession order)
{
    crowd c = {.count = count, .n = n};
    c.each = (problem *)pool_take(count * sizeof *c.each);
    for (size_t i = 0; i < count; i++) {
        c.each[i] = problem_new(config, n, n, r, 3);
        if (rng_below(r, 4) == 0 && !map_is_monomial(config.map)) add_drift(r, &c.each[i]);
    }
    config = c.each[0].config;
    c.state_bytes = linattn_state_size(&config);
    c.q = rows_new(&c, config.heads, config.dim_key);
    c.k = rows_new(&c, config.kv_heads, config.dim_key);
    c.v = rows_new(&c, config.kv_heads, config.dim_value);
    c.out = rows_new(&c, config.heads, config.dim_value);
    crowd_states(&c, r, order);
    crowd_place(&c, r, how);
    return c;
}

/* At times left to the library, where it is what that takes. */
static size_t stride_of_sequences(const crowd *c, const rows *x)
{
    bool usual = x->stride[SEQUENCES] == c->n * x->stride[IN_SEQUENCE];
    return usual && c->count % 3 ? 0 : x->stride[SEQUENCES];
}

static linattn_view crowd_view(const crowd *c, const rows *x)
{
    if (c->dense) return linattn_rows(x->data);
    linattn_view view = strided(x->data, x->stride[IN_SEQUENCE], x->stride[IN_TOKEN]);
    view.stride_sequence = stride_of_sequences(c, x);
    return view;
}

static linattn_output crowd_output(const crowd *c)
{
    if (c->dense) return linattn_output_rows(c->out.data);
    linattn_output out =
        strided_output(c->out.data, c->out.stride[IN_SEQUENCE], c->out.stride[IN_TOKEN]);
    out.stride_sequence = stride_of_sequences(c, &c->out);
    return out;
}

typedef enum many { UPDATE_MANY, QUERY_MANY, CAUSAL_MANY, MANY_COUNT } many;

static linattn_status call_many(const crowd *c, many verb, const linattn_context *context)
{
    linattn_view q = crowd_view(c, &c->q), k = crowd_view(c, &c->k), v = crowd_view(c, &c->v);
    linattn_output out = crowd_output(c);
    switch (verb) {
    case UPDATE_MANY: return linattn_update_many(c->states, c->count, k, v, c->n, context);
    case QUERY_MANY:
        return linattn_query_many((const void *const *)c->states, c->count, q, out, c->n, context);
    default: return linattn_causal_many(c->states, c->count, q, k, v, out, c->n, context);
    }
}

/* One call for all sequences against one for each, from the states as they are, which move on. */
static void check_many(crowd *c, many verb, const linattn_context *context)
{
    size_t mark = pool_mark();
    void **alone = (void **)pool_take(c->count * sizeof *alone);
    float **expected = (float **)pool_take(c->count * sizeof *expected);
    float *before = (float *)pool_copy(c->memory, c->floats * sizeof *before);
    for (size_t i = 0; i < c->count; i++) {
        const problem *p = &c->each[i];
        alone[i] = pool_copy(c->states[i], c->state_bytes);
        if (verb == UPDATE_MANY) run_update(p, alone[i]);
        if (verb == QUERY_MANY) expected[i] = run_query(p, alone[i]);
        if (verb == CAUSAL_MANY) expected[i] = run_causal(p, alone[i]);
    }
    check_status(call_many(c, verb, context), LINATTN_OK, "verb %d, %zu states, %s", (int)verb,
                 c->count, problem_name(&c->each[0]));
    for (size_t i = 0; i < c->count; i++) {
        const problem *p = &c->each[i];
        size_t width = output_width(p);
        float *actual = pool_floats(c->n * width);
        check_same_bytes(c->states[i], alone[i], c->state_bytes, "verb %d, state %zu of %zu, %s",
                         (int)verb, i, c->count, problem_name(p));
        if (verb == UPDATE_MANY) continue;
        copy_rows(&c->out, i, actual, false);
        check_same_floats(actual, expected[i], c->n * width, width, "verb %d, state %zu of %zu, %s",
                          (int)verb, i, c->count, problem_name(p));
        for (size_t t = 0; t < c->n; t++) /* whatever else has changed now shows */
            for (size_t h = 0; h < p->config.heads; h++) {
                float *row = row_of(&c->out, i, t, h);
                memcpy(row, before + (row - c->memory), c->out.dim * sizeof *row);
            }
    }
    check_same_bytes(c->memory, before, c->floats * sizeof *before, "verb %d, besides outputs, %s",
                     (int)verb, problem_name(&c->each[0]));
    pool_release(mark);
}

static void check_crowd(crowd *c, rng *r)
{
    linattn_context context = {parallel_reverse, r, rng_below(r, 10)};
    if (rng_below(r, 8) == 0) context.parallel_for = parallel_threads;
    for (int verb = 0; verb < MANY_COUNT; verb++)
        if (verb == CAUSAL_MANY || !c->each[0].config.window)
            check_many(c, (many)verb, rng_below(r, 2) ? &context : NULL);
}

/* The bits of separate calls: for every map and normaliser, with windows, compensated sums and
   those of 16 bits, wherever operands and states lie, on any threads. */
static void many_states(void **state)
{
    (void)state;
    static const size_t lengths_of_calls[] = {1, 1, 2, 30, 0};
    static const size_t groups[] = {1, 1, 2, 3, 4, 5, 7, 9};
    rng r = {32};
    size_t repeats = test_quick() ? 3 : 20;
    for (size_t i = 0; i < repeats; i++)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
                size_t mark = pool_mark(), kv_heads = 1 + rng_below(&r, 3);
                size_t n = rng_pick(&r, lengths_of_calls, COUNT_OF(lengths_of_calls));
                linattn_config config = config_draw(&r, map, normaliser, 1 + rng_below(&r, 40), 60);
                config.heads = kv_heads * rng_pick(&r, groups, COUNT_OF(groups));
                config.kv_heads = kv_heads;
                config.dim_value = 1 + rng_below(&r, 40);
                if (rng_below(&r, 4) == 0) config.window = window_draw(&r, 40);
                rng apart = {~r.state}; /* so that other draws stay as they were */
                if (!config.window && rng_below(&apart, 4) == 0)
                    config.precision = LINATTN_PRECISION_COMPENSATED;
                config.state_type = state_type_draw(&apart, &config);
                crowd c = crowd_new(&r, config, 1 + rng_below(&r, n == 30 ? 4 : 12), n,
                                    (arrangement)rng_below(&r, ARRANGEMENTS),
                                    (succession)rng_below(&r, SUCCESSIONS));
                check_crowd(&c, &r);
                pool_release(mark);
            }
}

/* Each place of operands with each order of states, more of them than are sorted at a time. */
static void crowds_of_states(void **state)
{
    (void)state;
    rng r = {33};
    for (int how = 0; how < ARRANGEMENTS; how++)
        for (int order = 0; order < SUCCESSIONS; order++)
            for (size_t count = 127; count < 400;
                 count = count < 130 ? count + 1 : 3 * count - 90) {
                size_t mark = pool_mark();
                linattn_config config = {.heads = 2, .kv_heads = 1, .dim_key = 2, .dim_value = 3};
                crowd c = crowd_new(&r, config, count, 1 + rng_below(&r, 2), (arrangement)how,
                                    (succession)order);
                check_crowd(&c, &r);
                pool_release(mark);
            }
}

/* So many that they do not stay in the caches, and are fetched ahead. */
static void states_in_memory(void **state)
{
    (void)state;
    rng r = {34};
    linattn_config config = {.heads = 4, .dim_key = 64};
    crowd c = crowd_new(&r, config, test_quick() ? 30 : 60, 1, DENSE, SHUFFLED);
    for (int i = 0; i < 2; i++) check_crowd(&c, &r);
}

static void many_are_shared_out(void **state)
{
    (void)state;
    rng r = {35};
    linattn_config config = {.heads = 3, .dim_key = 32}; /* enough to be worth it */
    for (size_t states = 1; states < 9; states++)
        for (size_t threads_given = 0; threads_given < 12; threads_given++)
            for (int verb = 0; verb < MANY_COUNT; verb++) {
                size_t mark = pool_mark(), most = threads_given < states ? threads_given : states;
                crowd c = crowd_new(&r, config, states, 3, DENSE, ASCENDING);
                counter count = {0, 0, 0};
                linattn_context context = {parallel_counted, &count, threads_given};
                check_status(call_many(&c, (many)verb, &context), LINATTN_OK, "%zu", states);
                check(count.jobs == (most > 1 ? most : 0), "%zu jobs, %zu states, %zu threads",
                      count.jobs, states, threads_given);
                pool_release(mark);
            }
}

/* ---- One token ------------------------------------------------------------------------------ */

/* Some keys are masked, some numbers are none. */
static void spoil_some(problem *p, rng *r)
{
    size_t d = p->config.dim_key;
    if (map_masks(p->config.map) && rng_below(r, 3) == 0)
        for (size_t row = 0; row < p->n_k * p->config.kv_heads; row++)
            if (rng_below(r, 2))
                for (size_t f = 0; f < d; f++) p->k[row * d + f] = -test_infinity;
    if (rng_below(r, 6)) return;
    float *const where[] = {p->q, p->k, p->v};
    const size_t counts[] = {p->n_q * query_width(p), p->n_k * key_width(p),
                             p->n_k * value_width(p)};
    size_t i = rng_below(r, 3);
    where[i][rng_below(r, counts[i])] = rng_below(r, 2) ? test_nan : test_infinity;
}

/* Token by token, by each of the verbs, against all tokens at once. */
static void steps_law(const problem *p, rng *r)
{
    size_t n = p->n_q, width = output_width(p), floats = linattn_state_size(&p->config) / 4;
    void *updated = run_init(&p->config), *prefilled = run_init(&p->config);
    void *decoded = run_init(&p->config), *stepped = run_init(&p->config);
    float *causal = run_causal(p, prefilled), *step = pool_floats(width);
    run_update(p, updated);
    float *queried = run_query(p, updated);
    (void)r;
    for (size_t t = 0; t < n; t++) {
        linattn_view q = linattn_rows(p->q + t * query_width(p));
        linattn_view k = linattn_rows(p->k + t * key_width(p));
        linattn_view v = linattn_rows(p->v + t * value_width(p));
        linattn_output out = linattn_output_rows(step);
        check_status(linattn_causal(decoded, q, k, v, out, 1, NULL), LINATTN_OK, "causal");
        check_same_floats(step, causal + t * width, width, p->config.dim_value,
                          "decode step, token %zu, %s", t, problem_name(p));
        check_status(linattn_update(stepped, k, v, 1, NULL), LINATTN_OK, "update");
        check_status(linattn_query(updated, q, out, 1, NULL), LINATTN_OK, "query");
        check_same_floats(step, queried + t * width, width, p->config.dim_value,
                          "query, token %zu, %s", t, problem_name(p));
    }
    const void *const states[] = {decoded, stepped, updated};
    for (size_t i = 0; i < COUNT_OF(states); i++)
        check_same_floats((const float *)states[i], (const float *)prefilled, floats, 16,
                          "state of %s, %s",
                          i == 0   ? "decode"
                          : i == 1 ? "steps"
                                   : "update",
                          problem_name(p));
}

static void check_steps(rng *r, linattn_config config, size_t group, size_t d, size_t dv)
{
    size_t mark = pool_mark(), n = 2 + rng_below(r, 5);
    config.kv_heads = 1 + rng_below(r, 2);
    config.heads = config.kv_heads * group;
    config.dim_key = d;
    config.dim_value = dv;
    problem p = problem_new(config, n, n, r, 3);
    if (rng_below(r, 2) && !map_is_monomial(config.map)) add_drift(r, &p);
    spoil_some(&p, r);
    steps_law(&p, r);
    pool_release(mark);
}

/* Every group and every dimension of a small attention, and some that fill several blocks. */
static void single_tokens(void **state)
{
    (void)state;
    static const size_t large[][2] = {{129, 7}, {300, 20}, {5, 130}, {257, 65}, {128, 128}};
    rng r = {36};
    for (int map = 0; map < LINATTN_MAP_COUNT; map++)
        for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
            linattn_config config = config_draw(&r, map, normaliser, 1, 50);
            bool fields = map_has_fields((linattn_feature_map)map);
            size_t one_in = test_quick() ? 100 : fields ? 6 : 2;
            for (size_t group = 1; group < 10; group++)
                for (size_t dim = 1; dim <= 40; dim++)
                    if (rng_below(&r, one_in) == 0) {
                        size_t other = 1 + rng_below(&r, 40);
                        config.degree = 1 + rng_below(&r, dim > 12 ? 2 : 3);
                        check_steps(&r, config, group, dim, other);
                        config.degree = 1 + rng_below(&r, other > 12 ? 2 : 3);
                        check_steps(&r, config, group, other, dim);
                    }
            config.degree = 1;
            for (size_t i = 0; i < COUNT_OF(large); i += test_quick() ? 4 : 1)
                check_steps(&r, config, 1 + rng_below(&r, 9), large[i][0], large[i][1]);
        }
}

/* Each head of a problem as a sequence of its own, by calls for all of them. */
static void heads_apart_law(const problem *p)
{
    size_t n = p->n_q, width = output_width(p), heads = p->config.heads;
    linattn_config alone = p->config;
    alone.heads = alone.kv_heads = 1;
    size_t bytes = linattn_state_size(&alone);
    float *causal = run_causal(p, run_init(&p->config)), *step = pool_floats(width);
    unsigned char *block = (unsigned char *)pool_take(heads * bytes);
    void **states = (void **)pool_take(heads * sizeof *states);
    for (size_t h = 0; h < heads; h++) { /* 7 divides no number of them */
        states[h] = block + h * 7 % heads * bytes;
        check_status(linattn_state_init(&alone, states[h], bytes), LINATTN_OK, "init");
    }
    for (size_t t = 0; t < n; t++) {
        linattn_view q = linattn_rows(p->q + t * query_width(p));
        linattn_view k = linattn_rows(p->k + t * key_width(p));
        linattn_view v = linattn_rows(p->v + t * value_width(p));
        linattn_output out = linattn_output_rows(step);
        q.stride_sequence = k.stride_sequence = p->config.dim_key;
        v.stride_sequence = out.stride_sequence = p->config.dim_value;
        check_status(linattn_causal_many(states, heads, q, k, v, out, 1, NULL), LINATTN_OK, "many");
        check_same_floats(step, causal + t * width, width, p->config.dim_value,
                          "heads as sequences, token %zu, %s", t, problem_name(p));
    }
}

/* So many heads that their states come from memory, which single tokens fetch ahead, and of which
   some processors take their columns in another order. */
static void states_from_memory(void **state)
{
    (void)state;
    static const struct {
        int map;
        size_t heads, d, dv;
    } cases[] = {
        {LINATTN_MAP_EXP, 353, 128, 100},     {LINATTN_MAP_ELU1, 300, 128, 128},
        {LINATTN_MAP_IDENTITY, 1500, 64, 60}, {LINATTN_MAP_RELU, 120, 200, 264},
        {LINATTN_MAP_SOFTMAX, 400, 128, 81},
    };
    rng r = {37};
    for (size_t i = 0; i < (test_quick() ? 1 : COUNT_OF(cases)); i++) {
        size_t mark = pool_mark(), n = 2;
        linattn_config config = {.heads = cases[i].heads * (i % 2 ? 4 : 1),
                                 .kv_heads = cases[i].heads,
                                 .dim_key = cases[i].d,
                                 .dim_value = cases[i].dv,
                                 .map = (linattn_feature_map)cases[i].map};
        problem p = problem_new(config_resolved(config), n, n, &r, 3);
        steps_law(&p, &r);
        if (p.config.heads == p.config.kv_heads) heads_apart_law(&p);
        pool_release(mark);
    }
}

/* ---- Approximation -------------------------------------------------------------------------- */

/* || approximate - exact || / || exact || of one attention in place of another. */
static double distance(const float *approximate, const float *exact, size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)approximate[i] - (double)exact[i];
        error += difference * difference;
        norm += (double)exact[i] * (double)exact[i];
    }
    return sqrt(error / norm);
}

/* The slope of log error over log M, fitted to the mean over a few projections. */
static double slope_of(const problem *p, const float *exact, rng *r)
{
    double sums[4] = {0, 0, 0, 0};
    int points = 0, draws = test_quick() ? 4 : 8;
    for (size_t features = 16; features <= 1024; features *= 4, points++) {
        double error = 0;
        for (int draw = 0; draw < draws; draw++) {
            size_t mark = pool_mark();
            problem q = *p;
            float *projection = pool_floats(features * p->config.dim_key);
            rng_fill_normal(r, projection, features * p->config.dim_key);
            q.config.projection = projection;
            q.config.features = features;
            error += distance(run_bidirectional(&q, NULL), exact, p->n_q * output_width(p)) / draws;
            pool_release(mark);
        }
        double x = log((double)features), y = log(error);
        sums[0] += x;
        sums[1] += y;
        sums[2] += x * x;
        sums[3] += x * y;
    }
    return (points * sums[3] - sums[0] * sums[1]) / (points * sums[2] - sums[0] * sums[0]);
}

/* The error against exact attention falls like M^-1/2. */
static void favor_converges(void **state)
{
    (void)state;
    rng r = {25};
    for (int map = LINATTN_MAP_FAVOR; map <= LINATTN_MAP_FAVOR_HYPERBOLIC; map++) {
        if (map == LINATTN_MAP_FAVOR_SIMPLIFIED) continue;
        size_t mark = pool_mark();
        linattn_config config = {
            .heads = 2, .dim_key = 16, .dim_value = 16, .map = (linattn_feature_map)map};
        problem p = problem_new(config, 40, 40, &r, 0.7f);
        double slope = slope_of(&p, run_softmax(&p, 0, NULL), &r);
        check(slope > -0.7 && slope < -0.3, "slope %g, %s", slope, problem_name(&p));
        pool_release(mark);
    }
}

/* The simplified form takes |k| as constant: where it is, the two agree. */
static void simplified_is_favor_for_keys_of_one_norm(void **state)
{
    (void)state;
    rng r = {26};
    linattn_config config = {
        .dim_key = 12, .dim_value = 7, .map = LINATTN_MAP_FAVOR, .features = 40};
    problem p = problem_new(config, 30, 30, &r, 2), simplified;
    for (size_t i = 0; i < 30 * 12; i++) p.k[i] = p.k[i] < 0 ? -1 : 1;
    simplified = p;
    simplified.config.map = LINATTN_MAP_FAVOR_SIMPLIFIED;
    check_close(&p, "simplified", run_bidirectional(&simplified, NULL), 30,
                oracle_linear(&p, false), 2 * rounding_linear(&p));
}

/* Each degree comes closer to exact attention than the one before; of taylor each even one far. */
static void series_converge(void **state)
{
    (void)state;
    rng r = {27};
    double error[2][9];
    for (size_t i = 0; i < 2; i++)
        for (size_t degree = 1; degree <= 8; degree++) {
            size_t mark = pool_mark();
            linattn_config config = {.heads = 2,
                                     .dim_key = 5,
                                     .dim_value = 16,
                                     .map = i ? LINATTN_MAP_EXPDEF : LINATTN_MAP_TAYLOR,
                                     .degree = degree};
            rng same = r;
            problem p = problem_new(config, 40, 40, &same, 1.2f);
            error[i][degree] = distance(run_bidirectional(&p, NULL), run_softmax(&p, 0, NULL),
                                        p.n_q * output_width(&p));
            check(degree == 1 || error[i][degree] < 0.95 * error[i][degree - 1],
                  "error %g after %g, %s", error[i][degree], error[i][degree - 1],
                  problem_name(&p));
            pool_release(mark);
        }
    check(error[0][8] < 1e-5, "%g", error[0][8]);
    /* (1 + x/n)^n is off by x^2 / 2n. */
    check(error[1][8] > 0.15 * error[1][1] && error[1][8] < 0.05, "%g after %g", error[1][8],
          error[1][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(instruction_sets),
        TEST(cuts),
        TEST(decode_steps),
        TEST(windows_with_scores_beyond_floats),
        TEST(decode_steps_of_one_panel),
        TEST(decode_steps_of_made_features),
        TEST(jobs_in_reverse),
        TEST(threads),
        TEST(work_is_shared_out),
        TEST(steps_on_threads),
        TEST(layouts),
        TEST(operands_of_16_bits),
        TEST(conversion_in_parts),
        TEST(composition),
        TEST(query_changes_nothing),
        TEST(causality),
        TEST(a_key_that_dwarfs_all_others),
        TEST(windows_forget),
        TEST(windows_key_by_key),
        TEST(exponents_forget),
        TEST(reach_of_windows),
        TEST(zeros_of_windows),
        TEST(permutation_of_heads),
        TEST(heads_are_separate),
        TEST(groups_of_every_size),
        TEST(windows_of_groups),
        TEST(nan_stays_in_its_head),
        TEST(nan_query_stays_in_its_row),
        TEST(nan_query_of_a_feature_without_keys),
        TEST(masked_tokens_are_absent),
        TEST(values_of_masked_tokens),
        TEST(masked_tokens_count_as_length),
        TEST(streams_without_end),
        TEST(merge_with_empty),
        TEST(merge_in_any_order),
        TEST(merge_on_instruction_sets),
        TEST(a_projection_is_copied),
        TEST(projections_are_told_apart),
        TEST(many_states),
        TEST(crowds_of_states),
        TEST(states_in_memory),
        TEST(many_are_shared_out),
        TEST(single_tokens),
        TEST(states_from_memory),
        TEST(favor_converges),
        TEST(simplified_is_favor_for_keys_of_one_norm),
        TEST(series_converge),
    };
    test_begin();
    return RUN_TESTS("laws", tests);
}
