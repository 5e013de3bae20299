/* attend: linear, exact or Nystrom attention over NumPy files, from the command line.  SPDX: MIT

       cc -O2 examples/attend.c -o attend
       ./attend --dir examples/data/lm --causal --compare
       ./attend --dir examples/data/lm --causal --map exp --out out.npy

   Needs the headers beside it, linattn.h and a POSIX C library, nothing else. Where pthreads are a
   library of their own (glibc before 2.34), add -pthread to have --threads. */

#define PROGRAM "attend"
#include "rules.h"

#define LINATTN_IMPLEMENTATION
#include "../linattn.h"

/* The library's own, some of which the comparison tells. */
enum { DEFAULT_DEGREE = 2, DEFAULT_LANDMARKS = 64, MAX_WINDOW = (1 << 30) - 1 };

static const char general_help[] =
    "usage: attend (--dir D | --q F --k F --v F) --out F [options]\n"
    "       attend (--dir D | --q F --k F --v F) --compare [options]\n"
    "\n"
    "Reads queries, keys and values, attends, writes the outputs. Files are .npy: float32 or\n"
    "float16 (these three alone), little endian, C order, shape (tokens, heads, dim), or\n"
    "(tokens, dim) for one head. Keys and values may have fewer heads than queries: query head h\n"
    "reads head h / (heads / kv_heads). The output is float32 and has the shape of the queries,\n"
    "with the dimension of the values.\n"
    "\n"
    "  --dir D             read D/q.npy, D/k.npy and D/v.npy\n"
    "  --q F --k F --v F   or each from its own file\n"
    "  --out F             write the outputs here. F changes only when all has succeeded, keeps\n"
    "                      its mode, and may be an input, a link, a device or /dev/stdout\n"
    "  --causal            token i sees keys 0..i only (default: every query sees every key, and\n"
    "                      there may be more or fewer queries than keys)\n"
    "  --attention KIND    linear (default), softmax: exact attention, or nystrom: Nystromformer\n"
    "  --scale X           multiplies q.k (default: 1 for the maps elu1, identity, relu, exp,\n"
    "                      softmax and unit; 1/sqrt(dim) for the others, exact attention, nystrom\n"
    "                      and every --rule but sum)\n"
    "  --split N1,N2,...   work in calls of so many tokens, the last number repeated; same bytes.\n"
    "                      Not with --attention nystrom\n"
    "  --threads T         use T threads, 1 to 256; same bytes\n"
    "  --isa NAME          " ISA_NAMES ";\n"
    "                      same bytes\n"
    "  --help, -h          print this\n"
    "\n"
    "Linear attention only:\n"
    "  --map NAME          elu1 (default), identity, relu, exp, softmax, favor, favor-simple,\n"
    "                      favor-hyperbolic, taylor, expdef or unit: x / |x|\n"
    "  --norm NAME         sum, feature, length or none (default: none for every --rule but sum,\n"
    "                      feature for --map softmax, else sum)\n"
    "  --eps X             added to the denominator of --norm sum (default: 0)\n"
    "  --precision KIND    plain (default) or compensated: sums of two floats, which do not\n"
    "                      drift over millions of tokens. Without --window, under the rules sum,\n"
    "                      gated and mlstm\n"
    "  --state-type TYPE   f32 (default), f16 or bf16: what the state keeps its sums in, rounded "
    "at\n"
    "                      every token. 16 bits take half the memory; not with --window,\n"
    "                      --precision compensated, favor, taylor and expdef\n"
    "  --state-in F        begin with the state of a file that --state-out wrote under the same\n"
    "                      options and shapes: the sequence goes on where that one ended. Without\n"
    "                      --causal, every query sees the earlier keys and the new ones\n"
    "  --state-out F       save the state after the last key, in the same manner as --out, with a\n"
    "                      checksum. (If attend is killed while it writes, the old files stay,\n"
    "                      and beside them perhaps .attend*.tmp, which may be removed)\n"
    "\n";
static const char methods_help[] =
    "Linear and exact attention only:\n"
    "  --window W          token i sees keys i-W+1..i only. Without --causal i-W+1..i+W-1: then\n"
    "                      as many queries as keys are needed, and no --split or state is taken\n"
    "\n"
    "--attention softmax only:\n"
    "  --sinks N           and the first N keys beside a window\n"
    "  --soft-cap X        scores become X tanh(score / X), as in Gemma 2\n"
    "  --alibi F           a .npy file of shape (heads,): slopes of ALiBi. Needs as many\n"
    "                      queries as keys, and with --split --causal\n"
    "\n"
    "Maps favor, favor-simple and favor-hyperbolic, exp(q.k) by random features, only:\n"
    "  --features M        rows of the projection (default: 4 dim)\n"
    "  --seed S            draws them, 0 to 2^64 - 1 (default: 0)\n"
    "  --orthogonal 0|1    0 (default): independent rows; 1: orthogonal within blocks of dim rows\n"
    "  --projection F      or reads them from a .npy file of shape (M, dim)\n"
    "\n"
    "Maps taylor and expdef, exp(q.k) by polynomials, only:\n"
    "  --degree N          1 to 8 (default: 2)\n"
    "\n"
    "--attention nystrom, which goes without --causal, only:\n"
    "  --landmarks L       means of so many segments stand for all tokens (default: 64)\n"
    "  --iterations N      steps of the pseudo-inverse at most (default: 12)\n"
    "\n"
    "  --compare           write no file; print, for every map with its default norm and for\n"
    "                      nystrom, how far its outputs are from exact attention on this data,\n"
    "                      and how fast it is. Goes with --causal, --eps, --threads, --isa, with\n"
    "                      --scale for all alike, and with the options from --window to\n"
    "                      --iterations but --sinks, --soft-cap and --alibi, each for the methods\n"
    "                      that have it\n"
    "\n";

/* ---- Options -------------------------------------------------------------------------------- */

typedef enum option {
    OPTION_DIR,
    OPTION_Q,
    OPTION_K,
    OPTION_V,
    OPTION_OUT,
    OPTION_ATTENTION,
    OPTION_MAP,
    OPTION_NORM,
    OPTION_SCALE,
    OPTION_EPS,
    OPTION_PRECISION,
    OPTION_STATE_TYPE,
    OPTION_ISA,
    OPTION_SPLIT,
    OPTION_THREADS,
    OPTION_STATE_IN,
    OPTION_STATE_OUT,
    OPTION_WINDOW,
    OPTION_SINKS,
    OPTION_SOFT_CAP,
    OPTION_ALIBI,
    OPTION_IMPORT_STATE,
    OPTION_EXPORT_STATE,
    OPTION_RULE,
    OPTION_DECAY_IS,
    OPTION_GATES, /* one for each gate */
    OPTION_FEATURES = OPTION_GATES + GATE_COUNT,
    OPTION_SEED,
    OPTION_ORTHOGONAL,
    OPTION_PROJECTION,
    OPTION_DEGREE,
    OPTION_LANDMARKS,
    OPTION_ITERATIONS,
    OPTION_CAUSAL, /* from here on without a value */
    OPTION_COMPARE,
    OPTION_HELP,
    OPTION_COUNT
} option;

static const char *const option_names[OPTION_COUNT] = {
    [OPTION_DIR] = "--dir",
    [OPTION_Q] = "--q",
    [OPTION_K] = "--k",
    [OPTION_V] = "--v",
    [OPTION_OUT] = "--out",
    [OPTION_ATTENTION] = "--attention",
    [OPTION_MAP] = "--map",
    [OPTION_NORM] = "--norm",
    [OPTION_SCALE] = "--scale",
    [OPTION_EPS] = "--eps",
    [OPTION_PRECISION] = "--precision",
    [OPTION_STATE_TYPE] = "--state-type",
    [OPTION_ISA] = "--isa",
    [OPTION_SPLIT] = "--split",
    [OPTION_THREADS] = "--threads",
    [OPTION_STATE_IN] = "--state-in",
    [OPTION_STATE_OUT] = "--state-out",
    [OPTION_WINDOW] = "--window",
    [OPTION_SINKS] = "--sinks",
    [OPTION_SOFT_CAP] = "--soft-cap",
    [OPTION_ALIBI] = "--alibi",
    [OPTION_IMPORT_STATE] = "--import-state",
    [OPTION_EXPORT_STATE] = "--export-state",
    [OPTION_RULE] = "--rule",
    [OPTION_DECAY_IS] = "--decay-is",
    [OPTION_GATES + GATE_DECAY] = "--decay",
    [OPTION_GATES + GATE_BETA] = "--beta",
    [OPTION_GATES + GATE_READ] = "--read",
    [OPTION_GATES + GATE_WRITE] = "--write",
    [OPTION_GATES + GATE_BONUS] = "--bonus",
    [OPTION_GATES + GATE_INPUT] = "--input-gate",
    [OPTION_FEATURES] = "--features",
    [OPTION_SEED] = "--seed",
    [OPTION_ORTHOGONAL] = "--orthogonal",
    [OPTION_PROJECTION] = "--projection",
    [OPTION_DEGREE] = "--degree",
    [OPTION_LANDMARKS] = "--landmarks",
    [OPTION_ITERATIONS] = "--iterations",
    [OPTION_CAUSAL] = "--causal",
    [OPTION_COMPARE] = "--compare",
    [OPTION_HELP] = "--help",
};

static const struct {
    option a, b;
    const char *why;
} conflicts[] = {
    {OPTION_DIR, OPTION_Q, "--dir names all three inputs"},
    {OPTION_DIR, OPTION_K, "--dir names all three inputs"},
    {OPTION_DIR, OPTION_V, "--dir names all three inputs"},
    {OPTION_COMPARE, OPTION_OUT, "--compare writes no file"},
    {OPTION_COMPARE, OPTION_STATE_IN, "--compare begins every run with an empty state"},
    {OPTION_COMPARE, OPTION_STATE_OUT, "--compare writes no file"},
    {OPTION_COMPARE, OPTION_IMPORT_STATE, "--compare begins every run with an empty state"},
    {OPTION_COMPARE, OPTION_EXPORT_STATE, "--compare writes no file"},
    {OPTION_COMPARE, OPTION_RULE, "--compare runs the maps under the rule sum"},
    {OPTION_COMPARE, OPTION_ATTENTION, "--compare runs every kind"},
    {OPTION_COMPARE, OPTION_MAP, "--compare runs every map"},
    {OPTION_COMPARE, OPTION_NORM, "--compare runs every map with its default norm"},
    {OPTION_COMPARE, OPTION_PRECISION, "--compare runs plain sums"},
    {OPTION_COMPARE, OPTION_STATE_TYPE, "--compare runs sums of floats"},
    {OPTION_COMPARE, OPTION_SPLIT, "--compare times whole sequences"},
    {OPTION_COMPARE, OPTION_SINKS, "--compare measures against plain exact attention"},
    {OPTION_COMPARE, OPTION_SOFT_CAP, "--compare measures against plain exact attention"},
    {OPTION_COMPARE, OPTION_ALIBI, "--compare measures against plain exact attention"},
    {OPTION_IMPORT_STATE, OPTION_STATE_IN, "there is one state to begin with"},
    {OPTION_WINDOW, OPTION_IMPORT_STATE, "a window consists of its last tokens, not of sums"},
    {OPTION_WINDOW, OPTION_EXPORT_STATE, "a window consists of its last tokens, not of sums"},
    {OPTION_PROJECTION, OPTION_SEED, "the rows are read or drawn"},
    {OPTION_PROJECTION, OPTION_ORTHOGONAL, "the rows are read or drawn"},
};

static void check_conflicts(const options *given)
{
    for (size_t i = 0; i < sizeof conflicts / sizeof conflicts[0]; i++) {
        option a = conflicts[i].a, b = conflicts[i].b;
        if (given->text[a] && given->text[b]) {
            fail("%s and %s exclude each other: %s", option_names[a], option_names[b],
                 conflicts[i].why);
        }
    }
    if (!given->text[OPTION_DIR]) {
        for (option o = OPTION_Q; o <= OPTION_V; o++) {
            if (!given->text[o]) {
                fail("%s is missing: give --dir, or --q, --k and --v (see --help)",
                     option_names[o]);
            }
        }
    }
    if (!given->text[OPTION_OUT] && !given->text[OPTION_COMPARE]) {
        fail("--out is missing: give --out, or --compare (see --help)");
    }
}

/* ---- Numbers and names ---------------------------------------------------------------------- */

static void check_split(const char *text)
{
    size_t n;
    const char *at = text;
    int legal = read_size(&at, &n) && n > 0;
    while (legal && *at == ',') {
        at++;
        legal = read_size(&at, &n) && n > 0;
    }
    if (!legal || *at) {
        fail("--split: '%s' is not a list of whole numbers from 1 like 100,1,27", text);
    }
}

/* The size of the next call when `left` tokens remain: *split is what is left of a checked list,
   or NULL where everything is one call. */
static size_t next_piece(const char **split, size_t left)
{
    if (!*split) {
        return left;
    }
    size_t n;
    const char *at = *split;
    read_size(&at, &n);
    if (*at == ',') {
        *split = at + 1;
    }
    return n < left ? n : left;
}

typedef enum attention {
    ATTENTION_LINEAR,
    ATTENTION_SOFTMAX,
    ATTENTION_NYSTROM,
    ATTENTION_COUNT
} attention;

static const char *const precision_names[LINATTN_PRECISION_COUNT] = {"plain", "compensated"};

static const char *const element_names[LINATTN_ELEMENT_COUNT] = {"f32", "f16", "bf16"};

static const char *const attention_names[ATTENTION_COUNT] = {"linear", "softmax", "nystrom"};

/* Sets of kinds of attention: bit 1u << each. */
enum {
    LINEAR = 1u << ATTENTION_LINEAR,
    SOFTMAX = 1u << ATTENTION_SOFTMAX,
    NYSTROM = 1u << ATTENTION_NYSTROM
};

/* ---- Tensors -------------------------------------------------------------------------------- */

/* Queries, keys or values: [tokens][heads][dim], dense. */
typedef struct tensor {
    const char *path;
    float *data;
    size_t tokens, heads, dim;
    int has_heads; /* the file has an axis for them */
    int half;      /* the data are float16 */
} tensor;

static const npy_layout projection_layout = {2, 2, "(features, dim)", NULL, 0};
static const npy_layout slopes_layout = {1, 1, "(heads,)", NULL, 0};

static tensor tensor_of(npy_array a)
{
    const char *path = a.path;
    int has_heads = a.rank == 3;
    tensor t = {path,      a.data, a.shape[0], has_heads ? a.shape[1] : 1, a.shape[a.rank - 1],
                has_heads, a.half};
    check_sizes(path, t.heads, t.dim);
    return t;
}

/* A write_function. */
static void write_tensor(output_file *file, const void *content)
{
    const tensor *t = content;
    npy_array a = {.data = t->data, .rank = t->has_heads ? 3 : 2};
    a.shape[0] = t->tokens;
    a.shape[1] = t->heads;
    a.shape[a.rank - 1] = t->dim;
    npy_write(file, &a);
}

/* Memory for the data of a tensor; `what` is to be that. */
static float *allocate_tensor(const char *what, size_t tokens, size_t heads, size_t dim)
{
    const size_t shape[] = {tokens, heads, dim};
    size_t bytes;
    if (!npy_bytes(shape, 3, &bytes)) {
        fail("%s of shape (%zu, %zu, %zu) is too large", what, tokens, heads, dim);
    }
    return allocate(bytes);
}

/* The projection of the favor maps, as a tensor of one head with its rows as tokens. */
static tensor read_projection(const char *path, size_t features, size_t dim)
{
    static const number_range range = {-1e6f, 1e6f, "a finite number of size 1e6 at most", 0};
    npy_array rows = npy_read(path, &projection_layout);
    tensor w = tensor_of(rows);
    if (w.dim != dim) {
        fail("%s: rows of dimension %zu, expected %zu as in the queries and keys", path, w.dim,
             dim);
    }
    if (w.tokens == 0 || w.tokens > MAX_FEATURES) {
        fail("%s: %zu rows, expected at least 1 and at most %d", path, w.tokens, MAX_FEATURES);
    }
    if (features && w.tokens != features) {
        fail("%s: %zu rows, expected %zu as --features says", path, w.tokens, features);
    }
    check_numbers(&rows, NULL, &range);
    return w;
}

/* ---- Attending ------------------------------------------------------------------------------ */

static tensor draw_projection(const options *given, size_t features, size_t dim)
{
    tensor w = {NULL, NULL, features, 1, dim, 0, 0};
    uint64_t seed = whole_option(given, OPTION_SEED, 0, UINT64_MAX, 0);
    linattn_random_kind kind = whole_option(given, OPTION_ORTHOGONAL, 0, 1, 0)
                                   ? LINATTN_RANDOM_ORTHOGONAL
                                   : LINATTN_RANDOM_INDEPENDENT;
    w.data = allocate_tensor("a projection", features, 1, dim);
    require(linattn_random_features(seed, kind, features, dim, w.data), "the random features");
    return w;
}

/* One attention over the three tensors. `memory` is a state where the tokens come in several calls
   or a state is kept, and a workspace otherwise. */
typedef struct task {
    linattn_config config;
    linattn_context context;
    tensor q, k, v, projection; /* the last one empty but for the favor maps */
    npy_array slopes;           /* empty without --alibi */
    gate_files gates;           /* empty but for rules other than the sum */
    attention kind;
    int causal, with_state;
    const char *split; /* a checked list, or NULL */
    void *memory;
    size_t bytes;
} task;

static linattn_view rows_from(const tensor *x, size_t token)
{
    const size_t at = token * x->heads * x->dim;
    if (x->half) {
        return linattn_rows_as((const char *)x->data + 2 * at, LINATTN_F16);
    }
    return linattn_rows(x->data + at);
}

static linattn_output output_from(const tensor *x, size_t token)
{
    return linattn_output_rows(x->data + token * x->heads * x->dim);
}

/* A causal piece sees the keys up to its own end, as with a cache of keys and values. */
static void attend_exact(const task *t, const tensor *out)
{
    const char *split = t->split;
    for (size_t done = 0, n; done < out->tokens; done += n) {
        n = next_piece(&split, out->tokens - done);
        require(linattn_softmax(&t->config, rows_from(&t->q, done), n, rows_from(&t->k, 0),
                                rows_from(&t->v, 0), t->causal ? done + n : t->k.tokens,
                                output_from(out, done), t->causal, t->memory, t->bytes,
                                &t->context),
                "exact attention");
    }
}

static void attend_nystrom(const task *t, const tensor *out)
{
    require(linattn_nystrom(&t->config, rows_from(&t->q, 0), t->q.tokens, rows_from(&t->k, 0),
                            rows_from(&t->v, 0), t->k.tokens, output_from(out, 0), t->causal,
                            t->memory, t->bytes, &t->context),
            t->causal ? "--attention nystrom with --causal" : "--attention nystrom");
}

/* Float16 becomes floats some tokens at a time, and one has to fit there: see linattn_view. */
static void require_linear(const task *t, linattn_status status, const char *what)
{
    const tensor *q = &t->q, *k = &t->k, *v = &t->v;
    if (status == LINATTN_ERROR_ELEMENT) {
        size_t group = q->heads > v->heads ? q->heads / v->heads : 1;
        fail("%s%s%s%s%s: float16 in rows that are too long: (heads / kv_heads + 1) dim + "
             "dim_value is %zu, expected at most 4096, or 1024 if this build has scalar code "
             "alone; save as float32",
             q->half ? q->path : "", q->half && k->half ? ", " : "", k->half ? k->path : "",
             (q->half || k->half) && v->half ? ", " : "", v->half ? v->path : "",
             (group + 1) * k->dim + v->dim);
    }
    require(status, what);
}

static void attend_causal(const task *t, const tensor *out)
{
    const char *split = t->split;
    for (size_t done = 0, n; done < out->tokens; done += n) {
        n = next_piece(&split, out->tokens - done);
        require_linear(t,
                       linattn_causal(t->memory, rows_from(&t->q, done), rows_from(&t->k, done),
                                      rows_from(&t->v, done), output_from(out, done), n,
                                      &t->context),
                       "causal linear attention");
    }
}

static void attend_by_rule(const task *t, const tensor *out)
{
    const char *split = t->split;
    for (size_t done = 0, n; done < out->tokens; done += n) {
        n = next_piece(&split, out->tokens - done);
        linattn_gates views = gates_from(&t->gates, done);
        require_linear(t,
                       linattn_recurrent(t->memory, rows_from(&t->q, done), rows_from(&t->k, done),
                                         rows_from(&t->v, done), &views, output_from(out, done), n,
                                         &t->context),
                       "--rule");
    }
}

/* All keys, then all queries. */
static void attend_in_pieces(const task *t, const tensor *out)
{
    const char *split = t->split;
    for (size_t done = 0, n; done < t->k.tokens; done += n) {
        n = next_piece(&split, t->k.tokens - done);
        require_linear(t,
                       linattn_update(t->memory, rows_from(&t->k, done), rows_from(&t->v, done), n,
                                      &t->context),
                       "update");
    }
    split = t->split;
    for (size_t done = 0, n; done < out->tokens; done += n) {
        n = next_piece(&split, out->tokens - done);
        require_linear(t,
                       linattn_query(t->memory, rows_from(&t->q, done), output_from(out, done), n,
                                     &t->context),
                       "query");
    }
}

static void attend_at_once(const task *t, const tensor *out)
{
    require_linear(t,
                   linattn_bidirectional(&t->config, rows_from(&t->q, 0), t->q.tokens,
                                         rows_from(&t->k, 0), rows_from(&t->v, 0), t->k.tokens,
                                         output_from(out, 0), t->memory, t->bytes, &t->context),
                   "bidirectional linear attention");
}

static void attend(const task *t, const tensor *out)
{
    if (t->kind == ATTENTION_SOFTMAX) {
        attend_exact(t, out);
    } else if (t->kind == ATTENTION_NYSTROM) {
        attend_nystrom(t, out);
    } else if (t->config.rule != LINATTN_RULE_SUM) {
        attend_by_rule(t, out);
    } else if (t->causal) {
        attend_causal(t, out);
    } else if (t->with_state) {
        attend_in_pieces(t, out);
    } else {
        attend_at_once(t, out);
    }
}

static void reserve(task *t)
{
    static const linattn_workspace verbs[ATTENTION_COUNT] = {
        [ATTENTION_LINEAR] = LINATTN_WORKSPACE_BIDIRECTIONAL,
        [ATTENTION_SOFTMAX] = LINATTN_WORKSPACE_SOFTMAX,
        [ATTENTION_NYSTROM] = LINATTN_WORKSPACE_NYSTROM,
    };
    if (t->kind == ATTENTION_LINEAR) {
        check_config(&t->config);
        require(linattn_config_check(&t->config), "these shapes and options");
    }
    t->bytes = t->with_state ? linattn_state_size(&t->config)
                             : linattn_workspace_size(&t->config, verbs[t->kind], &t->context);
    if (t->bytes == 0) {
        check_config(&t->config);
        fail("these shapes and options: more than memory can hold");
    }
    t->memory = allocate(t->bytes);
}

static void prepare(task *t)
{
    reserve(t);
    if (t->with_state) {
        require(linattn_state_init(&t->config, t->memory, t->bytes), "the state");
    }
}

static tensor make_output(const task *t)
{
    size_t heads = t->config.key_heads ? t->v.heads : t->q.heads;
    tensor out = {NULL, NULL, t->q.tokens, heads, t->v.dim, t->q.has_heads || heads > 1, 0};
    out.data = allocate_tensor("an output", out.tokens, out.heads, out.dim);
    return out;
}

/* ---- State files ---------------------------------------------------------------------------- */

/* Numbers in little-endian order, then the bytes of linattn's state, in the order of the machine:

       byte 0    8 bytes   "LINATTNS"
            8    4         version of the file, 1
           12    4         CRC-32 of the state
           16    8         bytes of the state
           24              the state

   Written whole or not at all: see files.h. Version 0, of which there are some, was the state
   alone, which begins with LATT. */
enum { STATE_VERSION = 1, STATE_HEADER = 24 };
static const char state_magic[] = "LINATTNS";

static void put_number(unsigned char *at, size_t bytes, uint64_t x)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(x >> 8 * i);
    }
}

static uint64_t get_number(const unsigned char *at, size_t bytes)
{
    uint64_t x = 0;
    for (size_t i = bytes; i-- > 0;) {
        x = x << 8 | at[i];
    }
    return x;
}

/* A write_function. */
static void write_state(output_file *file, const void *content)
{
    const task *t = content;
    unsigned char header[STATE_HEADER];
    memcpy(header, state_magic, 8);
    put_number(header + 8, 4, STATE_VERSION);
    put_number(header + 12, 4, crc32_of(t->memory, t->bytes));
    put_number(header + 16, 8, t->bytes);
    write_bytes(file, header, sizeof header);
    write_bytes(file, t->memory, t->bytes);
}

/* Leaves the stream at the state, and returns its checksum. */
static uint32_t read_state_header(const task *t, const input_file *in)
{
    unsigned char header[STATE_HEADER] = {0};
    read_bytes(in, header, in->bytes < STATE_HEADER ? in->bytes : STATE_HEADER, "header");
    if (memcmp(header, "LATT", 4) == 0 || memcmp(header, "TTAL", 4) == 0) {
        fail("%s: a state of an earlier attend, without a checksum: save it anew", in->path);
    }
    if (memcmp(header, state_magic, 8) != 0) {
        fail("%s: not a state, it does not begin with %s", in->path, state_magic);
    }
    if (in->bytes < STATE_HEADER) {
        fail("%s: truncated, it ends within its header", in->path);
    }
    uint64_t version = get_number(header + 8, 4), bytes = get_number(header + 16, 8);
    if (version != STATE_VERSION) {
        fail("%s: version %" PRIu64 " of state files, expected %d", in->path, version,
             STATE_VERSION);
    }
    if (bytes != t->bytes) {
        fail("%s: a state of %" PRIu64 " bytes, that for these options and shapes has %zu",
             in->path, bytes, t->bytes);
    }
    if (in->bytes - STATE_HEADER != t->bytes) {
        fail("%s: %s, %zu bytes of a state of %zu", in->path,
             in->bytes - STATE_HEADER < t->bytes ? "truncated" : "bytes behind its end",
             in->bytes - STATE_HEADER, t->bytes);
    }
    return (uint32_t)get_number(header + 12, 4);
}

static void read_state(const task *t, const char *path)
{
    input_file in = open_input(path);
    uint32_t checksum = read_state_header(t, &in);
    read_bytes(&in, t->memory, t->bytes, "state");
    fclose(in.stream);
    if (crc32_of(t->memory, t->bytes) != checksum) {
        fail("%s: damaged, its state is not what its checksum says", path);
    }
    linattn_status status = linattn_state_check(&t->config, t->memory, t->bytes);
    if (status != LINATTN_OK) {
        fail("%s: not a state for these options and shapes: %s", path,
             linattn_status_string(status));
    }
}

/* ---- The comparison ------------------------------------------------------------------------- */

static double run_seconds(const task *t, const tensor *out)
{
    double begin = seconds_now();
    if (t->with_state) {
        require(linattn_state_reset(t->memory), "the state");
    }
    attend(t, out);
    return seconds_now() - begin;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of at least 3 runs after one to warm up, and of as many as fit in some 50 ms. */
static double median_seconds(task *t, const tensor *out)
{
    enum { FEWEST = 3, MOST = 201 };
    double seconds[MOST], sum = 0;
    int runs = 0;
    prepare(t);
    run_seconds(t, out);
    while (runs < FEWEST || (runs < MOST && sum < 0.05)) {
        seconds[runs] = run_seconds(t, out);
        sum += seconds[runs++];
    }
    free(t->memory);
    qsort(seconds, (size_t)runs, sizeof seconds[0], by_size);
    return seconds[runs / 2];
}

/* |x - exact| / |exact| in the Frobenius norm; nan and inf come through. */
static double relative_error(const tensor *x, const tensor *exact)
{
    size_t count = exact->tokens * exact->heads * exact->dim;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double e = exact->data[i], d = x->data[i] - e;
        difference += d * d;
        norm += e * e;
    }
    return difference == 0 ? 0 : square_root(difference / norm);
}

static void print_setting(const task *t, const char *from, size_t threads)
{
    const linattn_config *c = &t->config;
    printf("%s: %zu queries, %zu keys, %zu heads over %zu key/value heads, dimension %zu, values "
           "%zu\n",
           from, t->q.tokens, t->k.tokens, t->q.heads, t->k.heads, t->q.dim, t->v.dim);
    printf("%s, %s, %zu thread%s, ", t->causal ? "causal" : "every query sees every key",
           linattn_isa_name(linattn_isa_active()), threads, threads == 1 ? "" : "s");
    if (c->scale > 0) {
        printf("scale %g\n", (double)c->scale);
    } else {
        printf("scale 1 for elu1, identity, relu, exp, softmax and unit,\n1/sqrt(%zu) for the "
               "others\n",
               t->q.dim);
    }
    if (c->window) {
        printf("the maps see a window of %zu tokens, exact attention%s all\n", c->window,
               t->causal ? "" : " and nystrom");
    }
    printf("favor: %zu features; taylor, expdef: degree %zu", c->features,
           c->degree ? c->degree : DEFAULT_DEGREE);
    if (!t->causal) {
        printf("; nystrom: %zu landmarks", c->landmarks ? c->landmarks : DEFAULT_LANDMARKS);
    }
    printf("\n\nattention         norm     relative error   us/token   speed-up\n");
}

/* The row of what the task is set to. */
static void compare_one(task *t, const char *name, const char *norm, const tensor *exact,
                        double exact_seconds, const tensor *out)
{
    double seconds = median_seconds(t, out);
    printf("%-17s %-8s %#14.4g %10.3f %10.2f\n", name, norm, relative_error(out, exact),
           1e6 * seconds / (double)t->q.tokens, exact_seconds / seconds);
}

/* The features of taylor and expdef grow like dim^degree: a table that nobody asked for these
   should not take minutes, or all memory, for their sake. */
static int is_out_of_proportion(const linattn_config *config)
{
    enum { MOST = 40000 };
    size_t features = linattn_features(config);
    int monomials = (1u << config->map & MONOMIALS) != 0;
    return monomials && !config->degree && (features == 0 || features > MOST);
}

/* Fails on a map for which there is no memory, as well as can be told, before the table begins. */
static void check_maps(task *t)
{
    for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
        t->config.map = (linattn_feature_map)map;
        if (!is_out_of_proportion(&t->config)) {
            reserve(t);
            free(t->memory);
        }
    }
    t->config.map = LINATTN_MAP_ELU1;
}

static void compare_maps(task *t, const tensor *exact, double exact_seconds, const tensor *out)
{
    for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
        t->config.map = (linattn_feature_map)map;
        if (is_out_of_proportion(&t->config)) {
            printf("%-17s left out: too many features; --degree includes it\n", map_names[map]);
        } else {
            compare_one(t, map_names[map], norm_names[effective_norm(&t->config)], exact,
                        exact_seconds, out);
        }
    }
}

/* Exact attention and nystrom, which have neither window nor state; then the maps. */
static void compare(task *t, const char *from, size_t threads)
{
    if (t->q.tokens == 0 || t->k.tokens == 0) {
        fail("--compare: there is nothing to compare in 0 tokens");
    }
    task other = *t;
    other.kind = ATTENTION_SOFTMAX;
    other.config.window = 0;
    t->with_state = t->causal;
    check_maps(t);
    tensor exact = make_output(t), out = make_output(t);
    print_setting(t, from, threads);
    double exact_seconds = median_seconds(&other, &exact);
    printf("%-17s -        %14s %10.3f %10.2f\n", "exact", "-",
           1e6 * exact_seconds / (double)t->q.tokens, 1.0);
    if (!t->causal) {
        other.kind = ATTENTION_NYSTROM;
        compare_one(&other, "nystrom", "-", &exact, exact_seconds, &out);
    }
    compare_maps(t, &exact, exact_seconds, &out);
    printf("\n"
           "relative error: |outputs - exact| / |exact| over all outputs. elu1, identity, relu,\n"
           "exp, softmax and unit have to be trained with: on a layer trained with exact\n"
           "attention it is large, they do not replace that in a finished model. nystrom, favor,\n"
           "taylor and expdef approximate it, by landmarks, features and degrees.\n");
    free(exact.data);
    free(out.data);
}

/* ---- Main ----------------------------------------------------------------------------------- */

/* The kinds of attention, maps and rules that run: several with --compare, else one of each. */
typedef struct methods {
    unsigned kinds, maps, rules;
} methods;

static methods chosen_methods(const options *given, attention kind, const linattn_config *config)
{
    if (given->text[OPTION_COMPARE]) {
        unsigned causal = LINEAR | SOFTMAX;
        return (methods){given->text[OPTION_CAUSAL] ? causal : causal | NYSTROM, ALL_MAPS, SUM};
    }
    return (methods){1u << kind, 1u << config->map, 1u << config->rule};
}

/* What an option is for, where that is not everything. */
static const struct {
    option o;
    methods of;
} scopes[] = {
    {OPTION_SPLIT, {LINEAR | SOFTMAX, ALL_MAPS, ALL_RULES}},
    {OPTION_MAP, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_NORM, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_EPS, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_PRECISION, {LINEAR, ALL_MAPS, SUM | GATED | MLSTM}},
    {OPTION_STATE_TYPE, {LINEAR, ALL_MAPS & ~(FAVOR | MONOMIALS), ALL_RULES}},
    {OPTION_STATE_IN, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_STATE_OUT, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_WINDOW, {LINEAR | SOFTMAX, ALL_MAPS, SUM}},
    {OPTION_SINKS, {SOFTMAX, ALL_MAPS, ALL_RULES}},
    {OPTION_SOFT_CAP, {SOFTMAX, ALL_MAPS, ALL_RULES}},
    {OPTION_ALIBI, {SOFTMAX, ALL_MAPS, ALL_RULES}},
    {OPTION_FEATURES, {LINEAR, FAVOR, ALL_RULES}},
    {OPTION_SEED, {LINEAR, FAVOR, ALL_RULES}},
    {OPTION_ORTHOGONAL, {LINEAR, FAVOR, ALL_RULES}},
    {OPTION_PROJECTION, {LINEAR, FAVOR, ALL_RULES}},
    {OPTION_DEGREE, {LINEAR, MONOMIALS, ALL_RULES}},
    {OPTION_LANDMARKS, {NYSTROM, ALL_MAPS, ALL_RULES}},
    {OPTION_ITERATIONS, {NYSTROM, ALL_MAPS, ALL_RULES}},
    {OPTION_IMPORT_STATE, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_EXPORT_STATE, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_RULE, {LINEAR, ALL_MAPS, ALL_RULES}},
    {OPTION_DECAY_IS, {LINEAR, ALL_MAPS, DECAYING}},
};

static void check_scope(option o, option to, const char *const *names, int count, unsigned of,
                        unsigned run)
{
    if (!(of & run)) {
        fail("%s belongs to %s %s, and what runs is %s", option_names[o], option_names[to],
             list_names(names, count, of).text, list_names(names, count, run).text);
    }
}

static void check_methods(const options *given, option o, methods of, methods run)
{
    if (given->text[o]) {
        check_scope(o, OPTION_ATTENTION, attention_names, ATTENTION_COUNT, of.kinds, run.kinds);
        check_scope(o, OPTION_MAP, map_names, LINATTN_MAP_COUNT, of.maps, run.maps);
        check_scope(o, OPTION_RULE, rule_names, LINATTN_RULE_COUNT, of.rules, run.rules);
    }
}

static void check_scopes(const options *given, methods run)
{
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        check_methods(given, scopes[i].o, scopes[i].of, run);
    }
    for (gate_kind i = 0; i < GATE_COUNT; i++) {
        check_methods(given, OPTION_GATES + i, (methods){LINEAR, ALL_MAPS, gate_rules[i]}, run);
    }
}

/* What the rule lacks, and the maps and norms that do not go with it. */
static void check_rule(const options *given, const linattn_config *config)
{
    static const unsigned norm_rules[LINATTN_NORM_COUNT] = {
        [LINATTN_NORM_SUM] = SUM | GATED,
        [LINATTN_NORM_FEATURE] = SUM,
        [LINATTN_NORM_LENGTH] = SUM | GATED,
        [LINATTN_NORM_NONE] = ALL_RULES,
    };
    const char *rule = rule_names[config->rule];
    unsigned set = 1u << config->rule;
    linattn_normaliser norm = effective_norm(config);
    for (gate_kind i = 0; i < GATE_COUNT; i++) {
        if ((gate_rules[i] & set) && i != GATE_BONUS && !given->text[OPTION_GATES + i]) {
            fail("--rule %s needs %s (see --help)", rule, option_names[OPTION_GATES + i]);
        }
    }
    if (!(set & SUM) && !(1u << config->map & RULE_MAPS)) {
        fail("--rule %s goes with --map %s, and what runs is %s", rule,
             list_names(map_names, LINATTN_MAP_COUNT, RULE_MAPS).text, map_names[config->map]);
    }
    if (!(norm_rules[norm] & set)) {
        fail("--norm %s belongs to --rule %s, and what runs is %s", norm_names[norm],
             list_names(rule_names, LINATTN_RULE_COUNT, norm_rules[norm]).text, rule);
    }
    check_bonus(given, OPTION_GATES + GATE_BONUS, config);
    if (config->precision && config->window) {
        fail("--precision compensated does not go with --window");
    }
    if (config->state_type && (config->precision || config->window)) {
        fail("--state-type %s does not go with %s", element_names[config->state_type],
             config->precision ? "--precision compensated" : "--window");
    }
    if (given->text[OPTION_IMPORT_STATE] && (norm != LINATTN_NORM_NONE || (set & MLSTM))) {
        fail("--import-state belongs to --norm none, and what runs is %s: it has no sums to divide "
             "by; --state-in takes a whole state",
             set & MLSTM ? rule : norm_names[norm]);
    }
}

static linattn_config read_config(const options *given)
{
    linattn_config config = {0};
    config.map = (linattn_feature_map)name_option(given, OPTION_MAP, map_names, LINATTN_MAP_COUNT);
    config.normaliser =
        (linattn_normaliser)name_option(given, OPTION_NORM, norm_names, LINATTN_NORM_COUNT);
    config.rule = (linattn_rule)name_option(given, OPTION_RULE, rule_names, LINATTN_RULE_COUNT);
    config.precision = (linattn_precision)name_option(given, OPTION_PRECISION, precision_names,
                                                      LINATTN_PRECISION_COUNT);
    config.state_type = (linattn_element)name_option(given, OPTION_STATE_TYPE, element_names,
                                                     LINATTN_ELEMENT_COUNT);
    config.scale = float_option(given, OPTION_SCALE, 0, 0);
    config.epsilon = float_option(given, OPTION_EPS, 1, 0);
    if (given->text[OPTION_EPS] && effective_norm(&config) != LINATTN_NORM_SUM) {
        fail("--eps belongs to --norm sum alone");
    }
    config.features = size_option(given, OPTION_FEATURES, MAX_FEATURES);
    config.degree = size_option(given, OPTION_DEGREE, MAX_DEGREE);
    config.window = size_option(given, OPTION_WINDOW, MAX_WINDOW);
    config.sinks = size_option(given, OPTION_SINKS, MAX_WINDOW);
    config.soft_cap = float_option(given, OPTION_SOFT_CAP, 0, 0);
    config.landmarks = size_option(given, OPTION_LANDMARKS, LINATTN_MAX_DIM);
    config.iterations = size_option(given, OPTION_ITERATIONS, SIZE_MAX);
    return config;
}

static tensor read_input(const options *given, option which)
{
    static const char *const in_dir[] = {"/q.npy", "/k.npy", "/v.npy"};
    const char *dir = given->text[OPTION_DIR];
    npy_layout layout = tokens_layout;
    layout.takes_half = 1;
    if (!dir) {
        return tensor_of(npy_read(given->text[which], &layout));
    }
    const char *name = in_dir[which - OPTION_Q];
    size_t size = strlen(dir) + strlen(name) + 1;
    char *path = allocate(size);
    snprintf(path, size, "%s%s", dir, name);
    tensor t = tensor_of(npy_read(path, &layout));
    free(path);
    t.path = in_dir[which - OPTION_Q] + 1;
    return t;
}

/* Under a rule other than the sum, several heads of values may share one of queries and keys. */
static void check_heads(const task *t)
{
    const tensor *q = &t->q, *k = &t->k, *v = &t->v;
    if (v->heads % k->heads != 0) {
        fail("%s has %zu heads, expected a multiple of the %zu heads of %s", v->path, v->heads,
             k->heads, k->path);
    }
    if (v->heads != k->heads && q->heads != k->heads) {
        fail("%s has %zu heads, expected %zu as %s, which has fewer than the %zu of %s", q->path,
             q->heads, k->heads, k->path, v->heads, v->path);
    }
}

static void check_shapes(const task *t)
{
    const tensor *q = &t->q, *k = &t->k, *v = &t->v;
    int by_rule = t->config.rule != LINATTN_RULE_SUM;
    if (k->tokens != v->tokens || (!by_rule && k->heads != v->heads)) {
        fail("%s has %zu tokens and %zu heads, %s has %zu and %zu: keys and values must agree",
             k->path, k->tokens, k->heads, v->path, v->tokens, v->heads);
    }
    if (q->dim != k->dim) {
        fail("%s has dimension %zu, %s has %zu: queries and keys must agree", q->path, q->dim,
             k->path, k->dim);
    }
    if (by_rule) {
        check_heads(t);
    }
    if (q->heads % k->heads != 0) {
        fail("%s has %zu heads, expected a multiple of the %zu heads of %s", q->path, q->heads,
             k->heads, k->path);
    }
    if ((t->causal || t->config.window || t->config.alibi_slopes) && q->tokens != k->tokens) {
        option why = by_rule            ? OPTION_RULE
                     : t->causal        ? OPTION_CAUSAL
                     : t->config.window ? OPTION_WINDOW
                                        : OPTION_ALIBI;
        fail("%s has %zu tokens, %s has %zu: %s needs as many queries as keys", q->path, q->tokens,
             k->path, k->tokens, option_names[why]);
    }
}

/* The first of the given options that take linear attention into a state, or NULL. */
static const char *state_option(const options *given)
{
    static const option of_states[] = {OPTION_SPLIT, OPTION_STATE_IN, OPTION_STATE_OUT,
                                       OPTION_IMPORT_STATE, OPTION_EXPORT_STATE};
    for (size_t i = 0; i < sizeof of_states / sizeof of_states[0]; i++) {
        if (given->text[of_states[i]]) {
            return option_names[of_states[i]];
        }
    }
    return NULL;
}

/* Without --causal, the two verbs that a state would take, update and query, know no window. */
static void check_window(const options *given)
{
    const char *with_state = state_option(given);
    if (given->text[OPTION_WINDOW] && with_state && !given->text[OPTION_CAUSAL]) {
        fail("--window with %s needs --causal", with_state);
    }
}

/* Pieces without --causal have no places among the keys. */
static void read_slopes(task *t, const options *given)
{
    const char *path = given->text[OPTION_ALIBI];
    if (!path) {
        return;
    }
    if (t->split && !given->text[OPTION_CAUSAL]) {
        fail("--alibi with --split needs --causal");
    }
    t->slopes = npy_read(path, &slopes_layout);
    if (t->slopes.shape[0] != t->q.heads) {
        fail("%s: %zu slopes, expected one for each of the %zu heads of %s", path,
             t->slopes.shape[0], t->q.heads, t->q.path);
    }
    check_numbers(&t->slopes, NULL, &any_finite);
    t->config.alibi_slopes = t->slopes.data;
}

/* Sets the shapes of the config, and the projection where a favor map runs. */
static void complete_config(task *t, const options *given, methods run)
{
    const char *file = given->text[OPTION_PROJECTION];
    linattn_config *config = &t->config;
    size_t features = config->features, dim = t->k.dim;
    int shared_keys = t->k.heads != t->v.heads;
    config->heads = shared_keys ? 0 : t->q.heads;
    config->kv_heads = t->v.heads;
    config->key_heads = shared_keys ? t->k.heads : 0;
    config->dim_key = dim;
    config->dim_value = t->v.dim;
    if (config->rule != LINATTN_RULE_SUM && !given->text[OPTION_SCALE]) {
        config->scale = (float)(1 / square_root((double)dim)); /* as in ONNX's LinearAttention */
    }
    if ((run.kinds & LINEAR) && (run.maps & FAVOR)) {
        t->projection =
            file ? read_projection(file, features, dim)
                 : draw_projection(given, features ? features : FEATURES_PER_DIM * dim, dim);
        config->features = t->projection.tokens;
        config->projection = t->projection.data;
    }
}

static void read_gates(task *t, const options *given)
{
    t->gates.views.decay_log = name_option(given, OPTION_DECAY_IS, decay_names, 2) == 0;
    for (gate_kind i = 0; i < GATE_COUNT; i++) {
        if (given->text[OPTION_GATES + i]) {
            read_gate(&t->gates, i, given->text[OPTION_GATES + i], &t->config, t->k.tokens, NULL);
        }
    }
}

static int needs_state(const options *given, const task *t)
{
    int wanted = t->causal || t->config.state_type || state_option(given);
    return wanted && t->kind == ATTENTION_LINEAR && !given->text[OPTION_COMPARE];
}

static task read_task(const options *given)
{
    task t = {.config = read_config(given),
              .kind =
                  (attention)name_option(given, OPTION_ATTENTION, attention_names, ATTENTION_COUNT),
              .split = given->text[OPTION_SPLIT]};
    methods run = chosen_methods(given, t.kind, &t.config);
    check_scopes(given, run);
    check_rule(given, &t.config);
    check_window(given);
    t.causal = given->text[OPTION_CAUSAL] || t.config.rule != LINATTN_RULE_SUM;
    if (t.split) {
        check_split(t.split);
    }
    t.with_state = needs_state(given, &t);
    t.q = read_input(given, OPTION_Q);
    t.k = read_input(given, OPTION_K);
    t.v = read_input(given, OPTION_V);
    read_slopes(&t, given);
    check_shapes(&t);
    complete_config(&t, given, run);
    read_gates(&t, given);
    return t;
}

static void run_and_write(task *t, const options *given)
{
    tensor out = make_output(t);
    npy_array sums = {0};
    add_output(given->text[OPTION_OUT], write_tensor, &out);
    if (given->text[OPTION_STATE_OUT]) {
        add_output(given->text[OPTION_STATE_OUT], write_state, t);
    }
    if (given->text[OPTION_EXPORT_STATE]) {
        add_output(given->text[OPTION_EXPORT_STATE], npy_write, &sums);
    }
    prepare(t);
    if (given->text[OPTION_STATE_IN]) {
        read_state(t, given->text[OPTION_STATE_IN]);
    }
    if (given->text[OPTION_IMPORT_STATE]) {
        import_state(&t->config, t->memory, given->text[OPTION_IMPORT_STATE]);
    }
    attend(t, &out);
    if (given->text[OPTION_EXPORT_STATE]) {
        sums = make_sums(&t->config);
        export_state(t->memory, &sums);
    }
    publish_outputs();
    free(sums.data);
    free(t->memory);
    free(out.data);
}

int main(int argc, char **argv)
{
    /* C has no literals as long as all */
    char help[sizeof general_help + sizeof methods_help + sizeof rules_help];
    snprintf(help, sizeof help, "%s%s%s", general_help, methods_help, rules_help);
    options given = {option_names, OPTION_COUNT, OPTION_CAUSAL, help, {NULL}};
    read_options(&given, argc, argv);
    check_conflicts(&given);
    select_isa(&given, OPTION_ISA);
    size_t threads = read_threads(&given, OPTION_THREADS);
    task t = read_task(&given);
    t.context = start_threads(threads);
    if (given.text[OPTION_COMPARE]) {
        compare(&t, given.text[OPTION_DIR] ? given.text[OPTION_DIR] : t.q.path, threads);
    } else {
        run_and_write(&t, &given);
    }
    stop_threads(&t.context);
    free(t.q.data);
    free(t.k.data);
    free(t.v.data);
    free(t.projection.data);
    free(t.slopes.data);
    free_gates(&t.gates);
    finish_printing();
    return 0;
}
