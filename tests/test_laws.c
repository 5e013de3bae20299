/* Laws that hold to the bit: across instruction sets, cuts of the sequence, threads, layouts and
   heads; causality; masked tokens; merges. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Problems ------------------------------------------------------------------------------- */

static const size_t dims[] = {1,  2,  3,  5,  8,  13, 15, 16, 17,  24,  31,  32,
                              33, 40, 48, 49, 63, 64, 65, 72, 100, 127, 128, 129};
static const size_t heads[][2] = {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {4, 2}, {6, 2}, {3, 1}};
static const size_t lengths[] = {1, 2, 4, 7, 23, 24, 31, 49, 65, 127, 130, 200};

/* Keys whose maxima move: the exponential maps then rescale rows in the middle of a call. */
static void add_drift(rng *r, problem *p)
{
    float slope = rng_float(r, 8);
    for (size_t j = 0; j < p->n_k; j++)
        for (size_t i = 0; i < key_width(p); i++)
            p->k[j * key_width(p) + i] += slope * (float)j + (rng_below(r, 40) ? 0 : 90);
}

static linattn_config draw_config(rng *r, int map, int normaliser)
{
    static const float scales[] = {0, 0.125f, 3}, epsilons[] = {0, 0.01f};
    size_t h = rng_below(r, COUNT_OF(heads));
    linattn_config config = {.heads = heads[h][0],
                             .kv_heads = heads[h][1],
                             .dim_key = rng_pick(r, dims, COUNT_OF(dims)),
                             .dim_value = rng_pick(r, dims, COUNT_OF(dims)),
                             .map = (linattn_feature_map)map,
                             .normaliser = (linattn_normaliser)normaliser,
                             .scale = scales[rng_below(r, COUNT_OF(scales))],
                             .epsilon = epsilons[rng_below(r, COUNT_OF(epsilons))]};
    return config;
}

static problem draw_problem(rng *r, int map, int normaliser)
{
    linattn_config config = draw_config(r, map, normaliser);
    size_t n_q, n_k;
    double limit = test_quick() ? 1e5 : 4e6;
    do {
        n_q = rng_pick(r, lengths, COUNT_OF(lengths));
        n_k = rng_below(r, 3) ? n_q : rng_pick(r, lengths, COUNT_OF(lengths));
        limit *= 1.2;
    } while ((double)(n_q + n_k) * (double)(config.dim_key * config.dim_value * config.heads) >
             limit);
    problem p = problem_new(config, n_q, n_k, r, 3);
    if (rng_below(r, 2)) add_drift(r, &p);
    return p;
}

/* Runs `law` on random problems with every map and normaliser. */
static void for_all_problems(uint64_t seed, size_t repeats, void (*law)(const problem *p, rng *r))
{
    rng r = {seed};
    if (test_quick()) repeats = 1;
    for (size_t i = 0; i < repeats; i++)
        for (int map = 0; map < LINATTN_MAP_COUNT; map++)
            for (int normaliser = 1; normaliser < LINATTN_NORM_COUNT; normaliser++) {
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

/* ---- Verbs made of verbs -------------------------------------------------------------------- */

/* Bidirectional is init, update, query; causal leaves the state of update; its last output is that
   of a query after all updates. */
static void composition_law(const problem *p, rng *r)
{
    (void)r;
    outcome all = run_all(p, NULL);
    size_t width = output_width(p);
    check_same_floats(all.out[PART_BIDIRECTIONAL], all.out[PART_QUERY], all.count[PART_QUERY],
                      width, "bidirectional, %s", problem_name(p));
    if (p->n_q != p->n_k) return;
    check_same_bytes(all.causal_state, all.update_state, all.state_bytes, "state of causal, %s",
                     problem_name(p));
    size_t last = (p->n_q - 1) * width;
    check_same_floats(all.out[PART_CAUSAL] + last, all.out[PART_QUERY] + last, width, width,
                      "last output of causal, %s", problem_name(p));
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

/* Whatever comes later changes no bit of what came before. */
static void causality_law(const problem *p, rng *r)
{
    static const uint32_t spoilers[] = {0x7F61B1E6 /* 3e38 */, 0x7F800000, 0x7FC00000, 0x00000001};
    problem clean = *p;
    clean.n_q = clean.n_k = p->n_q < p->n_k ? p->n_q : p->n_k;
    size_t n = clean.n_k, at = rng_below(r, n), width = output_width(p);
    float *expected = run_causal(&clean, run_init(&p->config));
    float *expected_softmax = run_softmax(&clean, 1, NULL);
    for (size_t i = 0; i < COUNT_OF(spoilers); i++) {
        problem spoilt = clean;
        spoilt.k = (float *)pool_copy(p->k, n * key_width(p) * sizeof(float));
        spoilt.v = (float *)pool_copy(p->v, n * value_width(p) * sizeof(float));
        spoil(spoilt.k, key_width(p), at, n, float_from_bits(spoilers[i]));
        spoil(spoilt.v, value_width(p), at, n, float_from_bits(spoilers[i]));
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
            float value = actual->out[i][e];
            if (!affected || (causal && t < x->token))
                check(float_same(value, clean->out[i][e]), "%s reaches %s, head %zu, %s", x->name,
                      part_name((part)i), h, problem_name(&x->p));
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
   key has, as relu may leave them, count for nothing, whatever the query is.) */
static void nan_query_law(const problem *p, rng *r)
{
    const linattn_config *c = &p->config;
    if (c->map == LINATTN_MAP_RELU && c->normaliser == LINATTN_NORM_FEATURE) return;
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
    if (p.config.map == LINATTN_MAP_IDENTITY || p.config.normaliser == LINATTN_NORM_LENGTH) return;
    size_t *some = (size_t *)pool_take(p.n_k * sizeof *some), width = output_width(&p);
    problem masked = with_masked_tokens(&p, r, some);
    outcome expected = run_all(&p, NULL), actual = run_all(&masked, NULL);
    for (int i = 0; i < PART_COUNT; i++)
        for (size_t t = 0; t < p.n_q; t++)
            check_same_floats(actual.out[i] + some[t] * width, expected.out[i] + t * width, width,
                              width, "masked tokens, token %zu, %s, %s", t, part_name((part)i),
                              problem_name(&p));
    check(linattn_state_tokens(actual.update_state) == masked.n_k, "%s", problem_name(&masked));
}

static void masked_tokens_are_absent(void **state)
{
    (void)state;
    for_all_problems(15, 8, masked_law);
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
static void merge_empty_law(const problem *p, rng *r)
{
    (void)r;
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

static void *state_of(const problem *p, size_t from, size_t to)
{
    problem slice = *p;
    slice.n_k = to - from;
    slice.k += from * key_width(p);
    slice.v += from * value_width(p);
    void *memory = run_init(&p->config);
    run_update(&slice, memory);
    return memory;
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
        void *a = state_of(p, 0, first), *b = state_of(p, first, second);
        void *c = state_of(p, second, p->n_k), *sum;
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
                                     .dim_key = rng_pick(&r, dims, 12),
                                     .dim_value = rng_pick(&r, dims, 12),
                                     .map = (linattn_feature_map)map,
                                     .normaliser = (linattn_normaliser)normaliser};
            problem p = problem_new(config, 7, 40, &r, 2);
            if (map_is_exponential(config.map)) add_drift(&r, &p);
            merge_order_law(&p, &r);
            pool_release(mark);
        }
}

/* Merging is done in the same bits by every instruction set, exponents far apart included. */
static void merge_isa_law(const problem *p, rng *r)
{
    size_t cut = rng_below(r, p->n_k + 1), bytes = linattn_state_size(&p->config);
    void *a = state_of(p, 0, cut), *b = state_of(p, cut, p->n_k), *c = pool_copy(a, bytes);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(instruction_sets),
        TEST(cuts),
        TEST(decode_steps),
        TEST(jobs_in_reverse),
        TEST(threads),
        TEST(work_is_shared_out),
        TEST(layouts),
        TEST(composition),
        TEST(query_changes_nothing),
        TEST(causality),
        TEST(permutation_of_heads),
        TEST(heads_are_separate),
        TEST(nan_stays_in_its_head),
        TEST(nan_query_stays_in_its_row),
        TEST(masked_tokens_are_absent),
        TEST(masked_tokens_count_as_length),
        TEST(merge_with_empty),
        TEST(merge_in_any_order),
        TEST(merge_on_instruction_sets),
    };
    test_begin();
    return RUN_TESTS("laws", tests);
}
