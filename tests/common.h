/* What the tests share: start-up, checks with messages, random numbers, memory that goes after each
   test, placed operands, comparison by bits, runs of every verb on one problem and of every rule on
   one sequence. */
#ifndef LINATTN_TESTS_COMMON_H
#define LINATTN_TESTS_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "linattn.h"

/* ---- Start-up ------------------------------------------------------------------------------- */

/* To be called first in main. Sets the floating-point environment of IEEE 754 (a process linked
   with -ffast-math starts with flushing switched on) and the instruction set of LINATTN_TEST_ISA;
   exits with 77 where that is absent, or with 1 if LINATTN_REQUIRE_ISA is set. */
void test_begin(void);

linattn_isa test_isa(void); /* the instruction set under test, never AUTO */
bool test_quick(void);      /* LINATTN_TEST_QUICK: a subset for slow builds */
size_t test_long(void);     /* LINATTN_TEST_LONG: so many times as much, 1 if not set */
bool test_inexact(void);    /* LINATTN_TEST_INEXACT: bits may differ between instruction sets */
/* Is it here to be run? AVX-512 is not under the memory sanitizer, which knows few of its
   intrinsics: there it is compiled for what it shares with the others. */
bool test_has(linattn_isa isa);

/* A test whose memory is released and whose instruction set is restored when it ends or fails. */
#define TEST(function) cmocka_unit_test_teardown(function, test_teardown)
int test_teardown(void **state);

/* The exit status: 0, or 1 where a test failed. LINATTN_TEST_ONLY names the tests to run, separated
   by commas, if they are not all. */
#define RUN_TESTS(name, tests) test_run(name, tests, sizeof(tests) / sizeof *(tests))
int test_run(const char *name, const struct CMUnitTest *tests, size_t count);

/* ---- Checks --------------------------------------------------------------------------------- */

#if defined(__GNUC__) || defined(__clang__)
#define TEST_PRINTF(position, first) __attribute__((format(printf, position, first)))
#else
#define TEST_PRINTF(position, first)
#endif

/* check(condition, format, ...) fails the test with a message. */
#define check(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__);               \
    } while (0)
void check_failed(const char *file, int line, const char *condition, const char *format, ...)
    TEST_PRINTF(4, 5);

/* check_status(call, LINATTN_OK, format, ...) */
#define check_status(call, expected, ...)                                                          \
    check_status_at(__FILE__, __LINE__, #call, call, expected, __VA_ARGS__)
void check_status_at(const char *file, int line, const char *call, linattn_status actual,
                     linattn_status expected, const char *format, ...) TEST_PRINTF(6, 7);

/* ---- Random numbers ------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014): the same numbers on every machine. The choices of the one
   that fuzz_bytes makes are read from these, as long as there are any. */
typedef struct rng {
    uint64_t state;
} rng;

uint64_t rng_next(rng *r);
size_t rng_below(rng *r, size_t limit); /* 0 .. limit - 1 */
size_t rng_pick(rng *r, const size_t *choices, size_t count);
float rng_float(rng *r, float spread); /* uniform in [-spread, spread) */
void rng_fill(rng *r, float *x, size_t n, float spread);
void rng_fill_normal(rng *r, float *x, size_t n); /* as good as N(0, 1), but for its tails */

/* Runs `one` with seeds in a row, from LINATTN_TEST_SEED or 1 on, for a number of rounds or of
   seconds of the processor, whichever ends first; LINATTN_TEST_LONG multiplies both. The seed of
   the round that runs is for messages. */
typedef void fuzz_function(rng *r);
void fuzz(fuzz_function *one, uint64_t rounds, double seconds);
uint64_t fuzz_seed(void);

/* For LLVMFuzzerTestOneInput: the bytes choose one of the functions and what it draws. */
void fuzz_bytes(fuzz_function *const *functions, size_t count, const unsigned char *bytes,
                size_t size);

/* ---- Memory --------------------------------------------------------------------------------- */

/* Memory that lives until the test ends, or until pool_release of an earlier mark. */
typedef enum guard {
    GUARD_NONE,  /* from malloc */
    GUARD_AFTER, /* the byte after the last one is on an inaccessible page */
    GUARD_BEFORE /* the byte before the first one is */
} guard;

size_t pool_mark(void);
void pool_release(size_t mark);
void *pool_take(size_t bytes); /* never NULL, aligned to 64 bytes, filled with a pattern */
void *pool_take_guarded(size_t bytes, guard side);
void pool_freeze(void); /* the block taken last, if it is guarded, can only be read from now on */
void pool_known(const void *memory, size_t bytes); /* may be read before it is written */
float *pool_floats(size_t count);
double *pool_doubles(size_t count);
void *pool_copy(const void *source, size_t bytes);

/* ---- Bits ----------------------------------------------------------------------------------- */

/* Here, as every float for exp goes through them. */
static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline bool float_is_nan(float x) { return (float_bits(x) & 0x7FFFFFFFu) > 0x7F800000u; }

static inline bool float_is_finite(float x) { return (float_bits(x) & 0x7F800000u) != 0x7F800000u; }

/* The same bits, or two NaN. */
static inline bool float_same(float a, float b)
{
    return float_bits(a) == float_bits(b) || (float_is_nan(a) && float_is_nan(b));
}

extern const float test_infinity, test_nan;

/* Numbers of 16 bits, by the definition of their formats. Of a float the bits of the next one
   towards zero; `narrow` makes floats into numbers that the element holds. */
float element_value(linattn_element element, uint16_t bits);
uint16_t element_bits(linattn_element element, float x);
void narrow(linattn_element element, float *x, size_t count);

/* ---- The floating-point environment --------------------------------------------------------- */

/* MXCSR, FPCR with FPSR above it, or FPSCR: rounding, flushing, exception masks, and the sticky
   flags of past exceptions, fp_flags; 0 on other machines. */
uint64_t fp_control(void);
void fp_set_control(uint64_t control);
extern const uint64_t fp_ieee, fp_flags;
/* Other environments that a host program may have: all roundings, flushing on and off, exceptions
   that trap where they can, flags set and clear. Returns how many there are; names them. */
size_t fp_hostile_count(void);
uint64_t fp_hostile(size_t index, const char **name);

/* ---- Threads -------------------------------------------------------------------------------- */

/* For linattn_context.parallel_for. The first runs the jobs in this thread, last one first; user is
   not used. The second runs each in a thread of its own, started in an order shuffled by the rng
   that user points to. */
void parallel_reverse(void *user, size_t count, linattn_job *job, void *arg);
void parallel_threads(void *user, size_t count, linattn_job *job, void *arg);

linattn_context context_draw(rng *r); /* up to five threads, seldom real ones */

/* ---- Problems ------------------------------------------------------------------------------- */

/* A config whose every default but the scale is spelt out, and dense [tokens][heads][dim] inputs
   for it. */
typedef struct problem {
    linattn_config config;
    size_t n_q, n_k;
    float *q, *k, *v;
} problem;

linattn_config config_resolved(linattn_config config);
size_t config_features(const linattn_config *config); /* m; SIZE_MAX where that exceeds 2^48 */

bool map_is_exponential(linattn_feature_map map); /* its keys map to e^x, kept with exponents */
bool map_is_favor(linattn_feature_map map);
bool map_is_monomial(linattn_feature_map map); /* taylor, expdef */
bool map_has_fields(linattn_feature_map map);  /* of the config: favor, taylor, expdef */
bool map_has_signs(linattn_feature_map map);   /* features below zero: sums may cancel */
bool map_masks(linattn_feature_map map);       /* phi of a key of -inf is zero */

/* Queries and keys uniform in +-spread, values in +-1; a projection where the map needs one and the
   config has none. */
problem problem_new(linattn_config config, size_t n_q, size_t n_k, rng *r, float spread);

/* Dimensions around every width of a vector, a pair of vectors and a panel, smallest first. */
enum { ODD_DIMS = 39 };
extern const size_t odd_dims[ODD_DIMS];

/* Heads, dimensions (dim_key 0: one of odd_dims), parameters and the map's own fields at random; no
   window. At most `most` features, where the map leaves a choice. */
linattn_config config_draw(rng *r, int map, int normaliser, size_t dim_key, size_t most);
void config_draw_features(rng *r, linattn_config *config, size_t most); /* the map's own fields */
size_t window_draw(rng *r, size_t most);                                /* 1 .. most */
/* Floats, or where the config goes with them as often f16 or bf16. */
linattn_element state_type_draw(rng *r, const linattn_config *config);
size_t dim_draw(rng *r); /* mostly small, at times around a power of two, seldom large */

/* Finite numbers of every size, often the same ones; any bits, NaN and infinities among them; and
   some elements replaced by such bits, some rows by -inf. */
float wild_draw(rng *r);
void wild_fill(rng *r, float *x, size_t n);
float bits_draw(rng *r);
void spoil_floats(rng *r, float *x, size_t count, size_t width);

/* Text for messages; the last few results stay valid. */
const char *map_name(linattn_feature_map map);
const char *normaliser_name(linattn_normaliser normaliser);
const char *config_name(const linattn_config *config);
const char *problem_name(const problem *p);

/* Queries, keys and values per token, in floats. */
size_t query_width(const problem *p);
size_t key_width(const problem *p);
size_t value_width(const problem *p);
size_t output_width(const problem *p);

/* ---- Placed operands ------------------------------------------------------------------------ */

/* Where an operand lies: zero is dense [tokens][heads][dim], 64-byte aligned. */
typedef struct layout {
    size_t row_gap, outer_gap; /* unused floats after each row, and after each group of rows */
    size_t offset;             /* floats past an alignment of 64 bytes, if not guarded */
    bool heads_first;          /* [heads][tokens][dim] */
    guard side;
} layout;

/* With these strides, and none from sequence to sequence. */
linattn_view strided(const float *data, size_t stride_token, size_t stride_head);
linattn_output strided_output(float *data, size_t stride_token, size_t stride_head);

layout layout_random(rng *r);
linattn_view place_view(const float *dense, size_t tokens, size_t heads, size_t dim, layout where);
/* The output's memory is filled with a pattern; collecting copies the rows to `dense` and checks
   that no byte between them has changed. */
linattn_output place_output(size_t tokens, size_t heads, size_t dim, layout where);
/* Of numbers that the element holds. */
linattn_view place_elements(const float *dense, linattn_element element, size_t tokens,
                            size_t heads, size_t dim, layout where);
void collect_output(linattn_output out, size_t tokens, size_t heads, size_t dim, layout where,
                    float *dense, const char *what);

/* What lies so many elements on. */
const float *element_at(linattn_view view, size_t index);

/* From a later token on. */
linattn_view view_from(linattn_view view, size_t token, size_t heads, size_t dim);
linattn_output output_from(linattn_output out, size_t token, size_t heads, size_t dim);
/* The tokens of the next call when so many are left. */
size_t next_cut(rng *cuts, size_t left);

/* ---- Runs ----------------------------------------------------------------------------------- */

/* What operands are of. */
typedef struct elements {
    linattn_element q, k, v;
} elements;

/* Of any, where the verbs on states take them: the problem's numbers become such that they hold. */
elements elements_draw(rng *r, problem *p);
bool elements_fit(const linattn_config *config);

/* How the verbs are called: zero is one call on dense operands of floats in this thread. */
typedef struct plan {
    const linattn_context *context;
    elements of;
    layout q, k, v, out;
    guard state_side;        /* of states and workspaces */
    size_t state_offset;     /* bytes past an alignment of 64, a multiple of 4, if not guarded */
    size_t workspace_offset; /* bytes past an alignment of 64 */
    rng *cuts;               /* cut the sequences into calls at random; NULL: one call each */
} plan;

typedef enum part {
    PART_CAUSAL,        /* the first min(n_q, n_k) tokens */
    PART_QUERY,         /* all queries after an update with all keys; empty under a window */
    PART_BIDIRECTIONAL, /* empty for sums in 16 bits, under a window where n_q differs from n_k */
    PART_SOFTMAX,
    PART_SOFTMAX_CAUSAL, /* empty where n_q > n_k */
    PART_COUNT
} part;

/* The output of every verb, dense, and both states' bytes (no update_state under a window). */
typedef struct outcome {
    float *out[PART_COUNT];
    size_t count[PART_COUNT];
    unsigned char *causal_state, *update_state;
    size_t state_bytes;
} outcome;

const char *part_name(part which);
outcome run_all(const problem *p, const plan *how);
outcome run_all_on(const problem *p, const plan *how, linattn_isa isa);

/* An empty state where the plan puts it. */
void *place_state(const linattn_config *config, const plan *how);

/* The single verbs, into memory of the pool. */
void *run_init(const linattn_config *config);
float *run_causal(const problem *p, void *state);
float *run_query(const problem *p, const void *state);
void run_update(const problem *p, void *state);
void *run_slice(const problem *p, size_t from, size_t to); /* a state of these keys */
float *run_bidirectional(const problem *p, const linattn_context *context);
float *run_softmax(const problem *p, int causal, const linattn_context *context);

/* Exact attention on operands of these elements, which hold the problem's numbers. */
float *run_exact(const problem *p, elements of, int causal, const plan *how);
bool exact_applies(const problem *p, int causal); /* are the queries not too many? */

/* What changes its scores: a window, sinks, a soft cap, slopes. */
void exact_draw(rng *r, linattn_config *config, size_t n_k);

void check_same_floats(const float *actual, const float *expected, size_t count, size_t width,
                       const char *format, ...) TEST_PRINTF(5, 6);
void check_same_bytes(const void *actual, const void *expected, size_t count, const char *format,
                      ...) TEST_PRINTF(4, 5);
/* States whose NaN may have other payloads. */
void check_same_state(const linattn_config *config, const void *actual, const void *expected,
                      const char *what);
/* Every output; and every output and both states. `law` says what is compared. */
void check_same_outputs(const problem *p, const outcome *actual, const outcome *expected,
                        const char *law);
void check_same_outcome(const problem *p, const outcome *actual, const outcome *expected,
                        const char *law);

/* ---- Recurrences ---------------------------------------------------------------------------- */

/* The rules, and what decays and reads under them. */
typedef enum rule_form {
    FORM_GATED,
    FORM_GATED_FEATURES,
    FORM_BONUS,
    FORM_DELTA,
    FORM_GATED_DELTA,
    FORM_GATED_DELTA_FEATURES,
    FORM_GENERAL,
    FORM_GENERAL_HEADS,
    FORM_MLSTM,
    FORM_COUNT
} rule_form;

typedef enum rule_input {
    IN_Q,
    IN_K,
    IN_V,
    IN_DECAY,
    IN_BETA,
    IN_READ,
    IN_WRITE,
    IN_BONUS,
    IN_INPUT,
    OPERANDS
} rule_input;

/* One sequence under a rule: a config whose defaults are spelt out, and dense inputs; NULL for what
   the rule does not take. */
typedef struct recurrence {
    linattn_config config;
    size_t n;
    bool per_feature, fixed, log, shared; /* decay, decay, decay, beta */
    float *in[OPERANDS];
} recurrence;

extern const linattn_feature_map rule_maps[5]; /* those that go with all rules */

/* The config's rule and normaliser are those of the form, unless it has a normaliser. Keys that map
   to vectors of length 0.95, other gates so that no sum grows beyond bounds; now and then decays of
   exactly 0 and 1 and a beta of 0 and 2. How gates are passed is drawn. */
recurrence recurrence_new(linattn_config config, rule_form form, size_t n, rng *r);
/* Its two steps: what the inputs are, and their numbers. */
recurrence recurrence_empty(linattn_config config, rule_form form, size_t n, rng *r);
void recurrence_fill(recurrence *x, rng *r);
/* A copy of its own of every input. */
recurrence recurrence_copy(const recurrence *x);

/* [tokens][heads][dim] of an input: tokens is 1 where there is one for the whole sequence. */
typedef struct axes {
    size_t tokens, heads, dim;
} axes;

axes operand_axes(const recurrence *x, rule_input which);
size_t operand_floats(const recurrence *x, rule_input which); /* 0 where there is none */
float *operand_row(const recurrence *x, rule_input which, size_t token, size_t head);
bool operand_is_of_tokens(const recurrence *x, rule_input which);
const char *recurrence_name(const recurrence *x);
size_t recurrence_width(const recurrence *x); /* of an output */

/* Inputs of any elements, as elements_draw; and placed so. */
void recurrence_elements(rng *r, recurrence *x, linattn_element of[OPERANDS]);

/* Views of all inputs from one token on, and of gates that lie elsewhere. */
linattn_view recurrence_view(const recurrence *x, rule_input which, size_t from);
linattn_gates recurrence_gates(const recurrence *x, size_t from);
linattn_gates recurrence_gates_of(const recurrence *x, const linattn_view views[OPERANDS]);

/* All views moved on by some tokens. */
void recurrence_views_from(const recurrence *x, const linattn_view all[OPERANDS], size_t token,
                           linattn_view views[OPERANDS]);

/* Tokens from .. to - 1; out is NULL for none (and no queries), else for the whole sequence. */
void recurrence_call(const recurrence *x, void *state, size_t from, size_t to, float *out);

typedef struct recurrence_plan {
    const linattn_context *context;
    rng *layouts; /* operands and the state lie anywhere; NULL: dense */
    rng *cuts;    /* into calls at random; NULL: one */
    bool silent;  /* without q and out */
    linattn_element of[OPERANDS];
} recurrence_plan;

typedef struct recurred {
    float *out; /* [n][heads][dim_value]; none where silent */
    size_t count;
    void *state;
    size_t state_bytes;
} recurred;

recurred recurrence_run(const recurrence *x, const recurrence_plan *how);
recurred recurrence_run_on(const recurrence *x, linattn_isa isa);
void check_same_recurred(const recurrence *x, const recurred *actual, const recurred *expected,
                         const char *law);

/* S [kv_heads][dim_key][dim_value] and z [kv_heads][dim_key] of a state, one after the other. */
size_t sums_count(const linattn_config *config); /* of all heads: S and z */
float *run_export(const linattn_config *config, const void *state);

#endif
