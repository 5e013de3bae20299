/* mpi: linear attention over one sequence that many machines share, with MPI.  SPDX: MIT

       mpicc -O2 examples/mpi.c -o mpi
       mpirun -n 4 ./mpi --generate 1000000 --heads 8 --causal
       mpirun -n 4 ./mpi --dir examples/data/lm --causal --out out.npy

   Each rank has a stretch of the tokens, and
   1. updates an empty state with its keys and values;
   2. receives the sum of the states of all ranks before it: MPI_Exscan with an operation made of
      linattn_merge. Where every query sees every key, that of all ranks: MPI_Allreduce;
   3. runs linattn_causal over its stretch from there, or linattn_query.
   So a rank sends a state in each of log2 R steps, whatever the length is. The same goes for the
   rules gated and mlstm, where what is merged is in order, and what decays. States of the delta
   rules do not merge, nor do windows.

   BITS. Merging takes sums in another order than one pass does: outputs are within 1e-6 of those of
   one process (the tests hold it to that, relative to the largest). For one number of ranks, and of
   threads that share tokens, the bits are the same on every run and instruction set, as long as MPI
   merges in the same order, which recursive doubling does. Causal attention of the rule sum by two
   ranks has the bits of one, as rank 1 goes on from the very state that rank 0 reaches.

   TIME of causal attention over n tokens with h heads, by R ranks of one core each:
       n h a                                                                 for R = 1, otherwise
       ceil(n / R) h (u + a) + ceil(log2 R) (l + s / b + m)
   u, a: time of linattn_update and of linattn_causal for a token and head; s: bytes of a state;
   l, b: latency and bandwidth of the network; m: what a step merges, two states. A chain, such as
   Open MPI's own MPI_Exscan is (see enter_ranks), has R - 1 in place of log2 R. This table is
   computed, not measured, with h = 8, u = 140 ns, a = 310 ns (64 x 64, AVX-512, operands in
   memory, not in the caches), s = 135296 bytes, l = 2 us, b = 12.5 GB/s and m = 38 us:

       ranks        10^6        10^7        10^8        10^9 tokens: seconds
           1        2.48        24.8         248        2480
           2        1.80        18.0         180        1800
           4       0.900        9.00        90.0         900
          16       0.225        2.25        22.5         225
          64      0.0566       0.563        5.63        56.3
         256      0.0145       0.141        1.41        14.1
        1024     0.00403      0.0357       0.352        3.52

   As all but the last rank read their keys twice, R ranks are not R times as fast as one but
   R a / (u + a) times, here R / 1.45, until the steps weigh.

   THREADS. --threads T splits a rank's stretch by tokens in the same way, without MPI: T states,
   summed up one after another, and T calls of linattn_causal. Its bits are not those of one pass,
   so it is left to the caller. What the library does itself (--by columns) has the bits of one
   pass: it splits heads, and columns of values in panels of 16, each of which needs all features.
   One head of 64 x 64 has 4 panels. So many times as fast as one call in one thread (AVX-512,
   operands in the caches): by columns as measured, the longest of the T jobs; by tokens as computed
   from the u and a measured, T a / (u + a):

       threads        2       3       4       8
       columns      1.7     1.7     2.4     2.4
       tokens       1.4     2.1     2.8     5.5

   So split by heads where there are as many as threads, and one head by tokens from 3 threads. */

#define PROGRAM "mpi"
#define PROGRAM_REPORT report_failure
static void report_failure(const char *line);

#include "rules.h"

#define LINATTN_IMPLEMENTATION
#include "../linattn.h"

#include <limits.h>
#include <mpi.h>

static const char help_text[] =
    "usage: mpirun -n RANKS mpi (--dir D | --q F --k F --v F | --generate N) [options]\n"
    "\n"
    "Linear attention over one sequence, of which each rank has a stretch. Files are .npy:\n"
    "float32, little endian, C order, shape (tokens, heads, dim), or (tokens, dim) for one head.\n"
    "Each rank maps its own part of them. Prints for each rank how many tokens it had, how long\n"
    "it was in linattn's functions (which read what is mapped), waited for others and exchanged\n"
    "states, and how many bytes of states it sent.\n"
    "\n"
    "  --dir D             read D/q.npy, D/k.npy and D/v.npy\n"
    "  --q F --k F --v F   or each from its own file\n"
    "  --generate N        or make N tokens of random numbers, the same for any number of ranks\n"
    "  --heads H, --kv-heads K, --dim D, --dim-value E\n"
    "                      of generated ones (default: 1, H, 64, D)\n"
    "  --out F             write the outputs here, all ranks into one file, which F becomes when\n"
    "                      all have succeeded: the ranks need a file system that they share\n"
    "  --cut N1,N2,...     tokens of each rank, 0 or more (default: as equal as can be). If there\n"
    "                      are not as many queries as keys, queries are cut into equal parts\n"
    "  --causal            token i sees keys 0..i only (default: every query sees every key)\n"
    "  --threads T         use T threads in each rank, 1 to 256 (default: 1)\n"
    "  --by KIND           what threads share: tokens (default), stretches of the rank's tokens,\n"
    "                      like ranks; or columns, heads and columns of values, as the library\n"
    "                      does, and with the same bytes for any T\n"
    "  --isa NAME          " ISA_NAMES ";\n"
    "                      same bytes\n"
    "  --map NAME          elu1 (default), identity, relu, exp, softmax, favor, favor-simple,\n"
    "                      favor-hyperbolic, taylor, expdef or unit\n"
    "  --norm NAME         sum, feature, length or none, as in attend\n"
    "  --eps X             added to the denominator of --norm sum (default: 0)\n"
    "  --scale X           multiplies q.k, with the defaults of attend\n"
    "  --features M --seed S  of the maps favor..., --degree N of taylor and expdef, as in attend\n"
    "  --rule NAME         sum (default), gated or mlstm, which imply --causal, with --decay F,\n"
    "                      --decay-is log or factor, --bonus F and --input-gate F as in attend;\n"
    "                      with --generate, gates are generated, too. States of the other rules\n"
    "                      do not merge\n"
    "  --help, -h          print this\n"
    "\n"
    "Exit status: 0, or 2 after one line on stderr; then no output file is left. mpirun -q adds\n"
    "no lines of its own to that.\n";

/* ---- Ranks ---------------------------------------------------------------------------------- */

static int rank, ranks;
static int is_working; /* in a step that a rank does not leave by itself */

/* Each step in which a rank may fail ends here, for all of them: if any has, the first that has
   says why, and all end. */
static void agree(const char *failure)
{
    int mine = failure ? rank : ranks, first;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == rank) {
        fprintf(stderr, PROGRAM ": rank %d: %s\n", rank, failure);
    }
    if (first < ranks) {
        exit(2);
    }
}

static void report_failure(const char *line)
{
    if (is_working) {
        fprintf(stderr, PROGRAM ": rank %d: %s\n", rank, line);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    agree(line);
}

/* At exit, whatever the reason is. */
static void leave_ranks(void) { MPI_Finalize(); }

/* Open MPI's own choice for MPI_Exscan is a chain of R - 1 ranks that wait for one another, and
   elsewhere recursive doubling is: log2 R steps. What the user has set stays. */
static void enter_ranks(int *argc, char ***argv)
{
    int level;
    setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
    setenv("OMPI_MCA_coll_tuned_exscan_algorithm", "2", 0);
    setenv("OMPI_MCA_coll_tuned_allreduce_algorithm", "3", 0);
    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level);
    atexit(leave_ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (level < MPI_THREAD_FUNNELED) {
        fail("this MPI allows no threads beside it");
    }
}

/* Of the states that recursive doubling sends, how many this rank does. An MPI_Allreduce of a
   number of ranks that is no power of two lets the first ones above it join in pairs. */
static int states_sent(int causal)
{
    int sent = 0, power = 1, pairs;
    for (; power < ranks && causal; power *= 2) {
        sent += (rank ^ power) < ranks;
    }
    if (causal) {
        return sent;
    }
    for (; 2 * power <= ranks; power *= 2) {
        sent++;
    }
    pairs = ranks - power;
    return rank >= 2 * pairs ? sent : rank % 2 ? sent + 1 : 1;
}

/* ---- Options -------------------------------------------------------------------------------- */

typedef enum option {
    OPTION_DIR,
    OPTION_Q,
    OPTION_K,
    OPTION_V,
    OPTION_GENERATE,
    OPTION_HEADS,
    OPTION_KV_HEADS,
    OPTION_DIM,
    OPTION_DIM_VALUE,
    OPTION_OUT,
    OPTION_CUT,
    OPTION_THREADS,
    OPTION_BY,
    OPTION_ISA,
    OPTION_MAP,
    OPTION_NORM,
    OPTION_EPS,
    OPTION_SCALE,
    OPTION_FEATURES,
    OPTION_SEED,
    OPTION_DEGREE,
    OPTION_RULE,
    OPTION_DECAY_IS,
    OPTION_DECAY,
    OPTION_BONUS,
    OPTION_INPUT_GATE,
    OPTION_CAUSAL, /* from here on without a value */
    OPTION_HELP,
    OPTION_COUNT
} option;

static const char *const option_names[OPTION_COUNT] = {
    [OPTION_DIR] = "--dir",
    [OPTION_Q] = "--q",
    [OPTION_K] = "--k",
    [OPTION_V] = "--v",
    [OPTION_GENERATE] = "--generate",
    [OPTION_HEADS] = "--heads",
    [OPTION_KV_HEADS] = "--kv-heads",
    [OPTION_DIM] = "--dim",
    [OPTION_DIM_VALUE] = "--dim-value",
    [OPTION_OUT] = "--out",
    [OPTION_CUT] = "--cut",
    [OPTION_THREADS] = "--threads",
    [OPTION_BY] = "--by",
    [OPTION_ISA] = "--isa",
    [OPTION_MAP] = "--map",
    [OPTION_NORM] = "--norm",
    [OPTION_EPS] = "--eps",
    [OPTION_SCALE] = "--scale",
    [OPTION_FEATURES] = "--features",
    [OPTION_SEED] = "--seed",
    [OPTION_DEGREE] = "--degree",
    [OPTION_RULE] = "--rule",
    [OPTION_DECAY_IS] = "--decay-is",
    [OPTION_DECAY] = "--decay",
    [OPTION_BONUS] = "--bonus",
    [OPTION_INPUT_GATE] = "--input-gate",
    [OPTION_CAUSAL] = "--causal",
    [OPTION_HELP] = "--help",
};

enum { MERGING = SUM | GATED | MLSTM }; /* the rules whose states do */

static const struct {
    gate_kind which;
    option o;
} gate_options[] = {
    {GATE_DECAY, OPTION_DECAY}, {GATE_BONUS, OPTION_BONUS}, {GATE_INPUT, OPTION_INPUT_GATE}};
enum { GATE_OPTIONS = sizeof gate_options / sizeof gate_options[0] };

/* What belongs to some maps or rules alone. */
static const struct {
    option o;
    unsigned maps, rules;
} scopes[] = {
    {OPTION_FEATURES, FAVOR, MERGING},       {OPTION_SEED, FAVOR, MERGING},
    {OPTION_DEGREE, MONOMIALS, MERGING},     {OPTION_DECAY_IS, ALL_MAPS, GATED | MLSTM},
    {OPTION_DECAY, ALL_MAPS, GATED | MLSTM}, {OPTION_BONUS, ALL_MAPS, GATED},
    {OPTION_INPUT_GATE, ALL_MAPS, MLSTM},
};

/* Queries, keys and values come in one of three ways; `first` to `last` belong to another. */
static void check_source(const options *given, option source, option first, option last)
{
    for (option o = first; o <= last; o++) {
        if (given->text[source] && given->text[o]) {
            fail("%s and %s exclude each other (see --help)", option_names[source],
                 option_names[o]);
        }
    }
}

static void check_sources(const options *given)
{
    check_source(given, OPTION_DIR, OPTION_Q, OPTION_DIM_VALUE);
    check_source(given, OPTION_GENERATE, OPTION_Q, OPTION_V);
    check_source(given, OPTION_GENERATE, OPTION_DECAY_IS, OPTION_INPUT_GATE);
    check_source(given, OPTION_Q, OPTION_HEADS, OPTION_DIM_VALUE);
    for (option o = OPTION_Q; o <= OPTION_V; o++) {
        if (!given->text[OPTION_DIR] && !given->text[OPTION_GENERATE] && !given->text[o]) {
            fail("%s is missing: give --dir, or --q, --k and --v, or --generate (see --help)",
                 option_names[o]);
        }
    }
}

static void check_scopes(const options *given, const linattn_config *config)
{
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        const char *name = option_names[scopes[i].o];
        if (!given->text[scopes[i].o]) {
            continue;
        }
        if (!(scopes[i].maps >> config->map & 1)) {
            fail("%s belongs to --map %s, and what runs is %s", name,
                 list_names(map_names, LINATTN_MAP_COUNT, scopes[i].maps).text,
                 map_names[config->map]);
        }
        if (!(scopes[i].rules >> config->rule & 1)) {
            fail("%s belongs to --rule %s, and what runs is %s", name,
                 list_names(rule_names, LINATTN_RULE_COUNT, scopes[i].rules).text,
                 rule_names[config->rule]);
        }
    }
    if (given->text[OPTION_EPS] && effective_norm(config) != LINATTN_NORM_SUM) {
        fail("--eps belongs to --norm sum alone");
    }
}

/* All but the shapes. */
static linattn_config read_config(const options *given)
{
    linattn_config config = {0};
    config.map = (linattn_feature_map)name_option(given, OPTION_MAP, map_names, LINATTN_MAP_COUNT);
    config.normaliser =
        (linattn_normaliser)name_option(given, OPTION_NORM, norm_names, LINATTN_NORM_COUNT);
    config.rule = (linattn_rule)name_option(given, OPTION_RULE, rule_names, LINATTN_RULE_COUNT);
    config.scale = float_option(given, OPTION_SCALE, 0, 0);
    config.epsilon = float_option(given, OPTION_EPS, 1, 0);
    config.features = size_option(given, OPTION_FEATURES, MAX_FEATURES);
    config.degree = size_option(given, OPTION_DEGREE, MAX_DEGREE);
    if (!(MERGING >> config.rule & 1)) {
        fail("--rule %s: its states do not merge, those of %s do", rule_names[config.rule],
             list_names(rule_names, LINATTN_RULE_COUNT, MERGING).text);
    }
    check_scopes(given, &config);
    check_bonus(given, OPTION_BONUS, &config);
    return config;
}

/* ---- Stretches ------------------------------------------------------------------------------ */

/* Part i of so many equal ones; the first ones have one more where that does not come out even. */
static npy_part equal_part(size_t of, size_t parts, size_t i)
{
    size_t each = of / parts, more = of % parts;
    npy_part part = {of, each * i + (i < more ? i : more), each + (i < more)};
    return part;
}

/* This rank's, by a list of as many numbers as there are ranks. */
static npy_part listed_part(const char *list, size_t of)
{
    npy_part part = {of, 0, 0};
    const char *at = list;
    size_t n, sum = 0;
    int i = 0, legal;
    do {
        legal = read_size(&at, &n) && n <= of - sum;
        if (i == rank) {
            part.first = sum;
            part.count = n;
        }
        sum += legal ? n : 0;
        i++;
    } while (legal && *at++ == ',');
    if (!legal || at[-1] || i != ranks || sum != of) {
        fail("--cut: '%s' is not a list of %d whole numbers, one for each rank, whose sum is the "
             "%zu tokens",
             list, ranks, of);
    }
    return part;
}

static npy_part own_part(const options *given, size_t of)
{
    const char *list = given->text[OPTION_CUT];
    return list ? listed_part(list, of) : equal_part(of, (size_t)ranks, (size_t)rank);
}

/* ---- Operands ------------------------------------------------------------------------------- */

/* Queries, keys or values: shape of all, data of this rank's. */
typedef struct operand {
    char *path; /* NULL: generated */
    npy_array rows;
    size_t tokens, heads, dim;
} operand;

/* One attention, and this rank's part in it. */
typedef struct work {
    linattn_config config;
    linattn_context context;
    operand q, k, v;
    npy_part queries, keys;
    npy_array out;
    gate_files gates;
    int causal;
    size_t pieces; /* of this rank's stretch, one for each thread; 1 where these share columns */
    size_t bytes;  /* of a state */
    void *own[MAX_THREADS]; /* states: of the pieces, */
    void *total, *before;   /* of all of them, of all earlier ranks */
    linattn_status status[MAX_THREADS];
    double kernels, waiting, communication; /* seconds */
    double *numbers;                        /* of all ranks, for the report */
} work;

/* To be freed. */
static char *operand_path(const options *given, option which)
{
    static const char *const in_dir[] = {"q.npy", "k.npy", "v.npy"};
    const char *dir = given->text[OPTION_DIR];
    const char *name = dir ? in_dir[which - OPTION_Q] : given->text[which];
    size_t size = (dir ? strlen(dir) + 1 : 0) + strlen(name) + 1;
    char *path = allocate(size);
    snprintf(path, size, "%s%s%s", dir ? dir : "", dir ? "/" : "", name);
    return path;
}

static operand operand_of(char *path, npy_array rows)
{
    operand x = {path, rows, rows.shape[0], rows.rank == 3 ? rows.shape[1] : 1,
                 rows.shape[rows.rank - 1]};
    check_sizes(rows.path, x.heads, x.dim);
    return x;
}

/* The numbers of a token are the same for any cut. `which` tells apart what there is of each. */
static float *random_rows(uint64_t which, const npy_part *part, size_t row, float least, float most)
{
    uint64_t state = random_bits(&which);
    size_t bytes;
    if (!npy_bytes((size_t[]){part->count, row}, 2, &bytes)) {
        fail("%zu tokens of %zu numbers are too many", part->count, row);
    }
    float *data = allocate(bytes);
    skip_random(&state, (uint64_t)part->first * row);
    for (size_t i = 0; i < bytes / sizeof *data; i++) {
        data[i] = least + (most - least) * random_float(&state);
    }
    return data;
}

/* Not yet of any data. */
static operand generated_shape(const options *given, int is_value, int is_query)
{
    size_t heads = size_option(given, OPTION_HEADS, LINATTN_MAX_HEADS);
    size_t kv_heads = size_option(given, OPTION_KV_HEADS, LINATTN_MAX_HEADS);
    size_t dim = size_option(given, OPTION_DIM, LINATTN_MAX_DIM);
    size_t dim_value = size_option(given, OPTION_DIM_VALUE, LINATTN_MAX_DIM);
    npy_array rows = {.path = "--generate", .rank = 3};
    heads = heads ? heads : 1;
    dim = dim ? dim : 64;
    rows.shape[0] = size_option(given, OPTION_GENERATE, SIZE_MAX);
    rows.shape[1] = kv_heads && !is_query ? kv_heads : heads;
    rows.shape[2] = dim_value && is_value ? dim_value : dim;
    return operand_of(NULL, rows);
}

static operand operand_shape(const options *given, option which)
{
    if (given->text[OPTION_GENERATE]) {
        return generated_shape(given, which == OPTION_V, which == OPTION_Q);
    }
    char *path = operand_path(given, which);
    return operand_of(path, npy_look(path, &tokens_layout));
}

static void load_operand(operand *x, option which, const npy_part *part)
{
    npy_layout layout = tokens_layout;
    layout.part = part;
    if (x->path) {
        x->rows = npy_read(x->path, &layout);
    } else {
        x->rows.data = random_rows(which, part, x->heads * x->dim, -1, 1);
    }
}

static void free_operand(operand *x)
{
    npy_free(&x->rows);
    free(x->path);
}

static void load_gates(work *w, const options *given)
{
    int generated = given->text[OPTION_GENERATE] != NULL;
    unsigned rule = 1u << w->config.rule;
    w->gates.views.decay_log =
        !(rule & SUM) && !generated && name_option(given, OPTION_DECAY_IS, decay_names, 2) == 0;
    for (int i = 0; i < GATE_OPTIONS; i++) {
        gate_kind which = gate_options[i].which;
        const char *path = given->text[gate_options[i].o];
        int needed = (gate_rules[which] & rule) && which != GATE_BONUS;
        if (path) {
            read_gate(&w->gates, which, path, &w->config, w->k.tokens, &w->keys);
        } else if (needed && !generated) {
            fail("--rule %s needs %s (see --help)", rule_names[w->config.rule],
                 option_names[gate_options[i].o]);
        } else if (needed) {
            float *data = random_rows(OPTION_COUNT + which, &w->keys, w->config.kv_heads,
                                      which == GATE_DECAY ? 0.9f : -1, 1);
            w->gates.file[which].data = data;
            w->gates.step[which] = w->config.kv_heads;
            *gate_view(&w->gates.views, which) = linattn_rows(data);
        }
    }
}

/* What the library cannot see, which is handed one number for all. */
static void check_shapes(const work *w)
{
    if (w->k.tokens != w->v.tokens) {
        fail("%s has %zu tokens, %s has %zu: keys and values must agree", w->k.rows.path,
             w->k.tokens, w->v.rows.path, w->v.tokens);
    }
    if (w->causal && w->q.tokens != w->k.tokens) {
        fail("%s has %zu tokens, %s has %zu: --causal needs as many queries as keys",
             w->q.rows.path, w->q.tokens, w->k.rows.path, w->k.tokens);
    }
    if (w->q.dim != w->k.dim) {
        fail("%s has dimension %zu, %s has %zu: queries and keys must agree", w->q.rows.path,
             w->q.dim, w->k.rows.path, w->k.dim);
    }
    if (w->config.rule == LINATTN_RULE_SUM && w->k.heads != w->v.heads) {
        fail("%s has %zu heads, %s has %zu: keys and values must agree", w->k.rows.path, w->k.heads,
             w->v.rows.path, w->v.heads);
    }
    if (w->k.heads != w->v.heads && w->q.heads != w->k.heads) {
        fail("%s has %zu heads, expected %zu as %s, which has others than the %zu of %s",
             w->q.rows.path, w->q.heads, w->k.heads, w->k.rows.path, w->v.heads, w->v.rows.path);
    }
}

static float *draw_projection(const options *given, size_t features, size_t dim)
{
    size_t bytes;
    if (!npy_bytes((size_t[]){features, dim}, 2, &bytes)) {
        fail("a projection of shape (%zu, %zu) is too large", features, dim);
    }
    float *rows = allocate(bytes);
    require(linattn_random_features(whole_option(given, OPTION_SEED, 0, UINT64_MAX, 0),
                                    LINATTN_RANDOM_INDEPENDENT, features, dim, rows),
            "the random features");
    return rows;
}

/* Under a rule, several heads of values may share one of queries and keys. */
static void complete_config(work *w, const options *given)
{
    linattn_config *config = &w->config;
    int shared_keys = w->k.heads != w->v.heads;
    config->heads = shared_keys ? 0 : w->q.heads;
    config->kv_heads = w->v.heads;
    config->key_heads = shared_keys ? w->k.heads : 0;
    config->dim_key = w->k.dim;
    config->dim_value = w->v.dim;
    if (config->rule != LINATTN_RULE_SUM && !given->text[OPTION_SCALE]) {
        config->scale = (float)(1 / square_root((double)w->k.dim));
    }
    if (FAVOR >> config->map & 1) {
        config->features = config->features ? config->features : FEATURES_PER_DIM * w->k.dim;
        config->projection = draw_projection(given, config->features, w->k.dim);
    }
    check_config(config);
    require(linattn_config_check(config), "these shapes and options");
}

static npy_array make_output(const work *w)
{
    size_t bytes;
    npy_array out = {.rank = w->q.rows.rank, .shape = {w->q.tokens, w->q.heads, w->v.dim}};
    if (w->config.key_heads) {
        out.rank = 3;
        out.shape[1] = w->v.heads;
    }
    size_t own[] = {w->queries.count, out.shape[1], w->v.dim};
    if (out.rank == 2) {
        out.shape[1] = w->v.dim;
    }
    if (!npy_bytes(own, 3, &bytes) || !npy_bytes(out.shape, out.rank, &(size_t){0})) {
        fail("an output for %zu tokens is too large", w->q.tokens);
    }
    out.data = allocate(bytes);
    memset(out.data, 0, bytes); /* or the kernels' time is the system's, which finds the memory */
    return out;
}

static void *make_state(const work *w)
{
    void *state = allocate(w->bytes);
    require(linattn_state_init(&w->config, state, w->bytes), "the state");
    return state;
}

/* What may be too much is asked for before the operands are made or mapped. */
static void read_work(work *w, const options *given)
{
    check_sources(given);
    w->config = read_config(given);
    w->causal = given->text[OPTION_CAUSAL] || w->config.rule != LINATTN_RULE_SUM;
    w->q = operand_shape(given, OPTION_Q);
    w->k = operand_shape(given, OPTION_K);
    w->v = operand_shape(given, OPTION_V);
    check_shapes(w);
    complete_config(w, given);
    w->keys = own_part(given, w->k.tokens);
    w->queries =
        w->q.tokens == w->k.tokens ? w->keys : equal_part(w->q.tokens, (size_t)ranks, (size_t)rank);
    w->bytes = linattn_state_size(&w->config);
    w->total = make_state(w);
    w->before = make_state(w);
    for (size_t i = 0; i < w->pieces; i++) {
        w->own[i] = make_state(w);
    }
    load_operand(&w->q, OPTION_Q, &w->queries);
    load_operand(&w->k, OPTION_K, &w->keys);
    load_operand(&w->v, OPTION_V, &w->keys);
    load_gates(w, given);
    w->out = make_output(w);
}

/* ---- Attending ------------------------------------------------------------------------------ */

static linattn_view rows_from(const operand *x, size_t token)
{
    return linattn_rows(x->rows.data + token * x->heads * x->dim);
}

static linattn_output output_from(const work *w, size_t token)
{
    size_t heads = w->config.key_heads ? w->v.heads : w->q.heads;
    return linattn_output_rows(w->out.data + token * heads * w->v.dim);
}

/* Where threads share tokens, each call runs in its own. */
static const linattn_context *context_of(const work *w)
{
    return w->pieces > 1 ? NULL : &w->context;
}

/* Jobs, one for each piece. linattn_recurrent is linattn_update and linattn_causal under the rule
   sum. In causal attention nobody comes after the last piece of the last rank. */
static void update_piece(void *arg, size_t i)
{
    work *w = arg;
    if (w->causal && rank + 1 == ranks && i + 1 == w->pieces) {
        return;
    }
    npy_part piece = equal_part(w->keys.count, w->pieces, i);
    linattn_gates gates = gates_from(&w->gates, piece.first);
    w->status[i] = linattn_recurrent(w->own[i], linattn_rows(NULL), rows_from(&w->k, piece.first),
                                     rows_from(&w->v, piece.first), &gates,
                                     linattn_output_rows(NULL), piece.count, context_of(w));
}

static void attend_piece(void *arg, size_t i)
{
    work *w = arg;
    npy_part piece = equal_part(w->queries.count, w->pieces, i);
    linattn_gates gates = gates_from(&w->gates, piece.first);
    w->status[i] =
        linattn_recurrent(w->own[i], rows_from(&w->q, piece.first), rows_from(&w->k, piece.first),
                          rows_from(&w->v, piece.first), &gates, output_from(w, piece.first),
                          piece.count, context_of(w));
}

static void query_piece(void *arg, size_t i)
{
    work *w = arg;
    npy_part piece = equal_part(w->queries.count, w->pieces, i);
    w->status[i] = linattn_query(w->before, rows_from(&w->q, piece.first),
                                 output_from(w, piece.first), piece.count, context_of(w));
}

static void run_pieces(work *w, linattn_job *run)
{
    if (w->pieces > 1) {
        w->context.parallel_for(w->context.user, w->pieces, run, w);
    } else {
        run(w, 0);
    }
    for (size_t i = 0; i < w->pieces; i++) {
        require(w->status[i], "linear attention");
    }
}

/* The sums of all pieces. */
static void sum_pieces(work *w)
{
    double begin = seconds_now();
    run_pieces(w, update_piece);
    for (size_t i = 0; i < w->pieces; i++) {
        require(linattn_merge(w->total, w->own[i]), "merge");
    }
    w->kernels += seconds_now() - begin;
}

/* Each piece begins with the sums of all earlier ones: `before`, then own[0], own[1], ... What an
   MPI_Exscan leaves with rank 0 is undefined. */
static void begin_pieces(work *w)
{
    double begin = seconds_now();
    if (rank == 0) {
        require(linattn_state_init(&w->config, w->before, w->bytes), "the state");
    }
    for (size_t i = 0; i < w->pieces; i++) {
        void *sums = w->own[i], *next = w->total;
        if (i + 1 < w->pieces) {
            memcpy(next, w->before, w->bytes);
            require(linattn_merge(next, sums), "merge");
        }
        w->own[i] = w->before;
        w->before = next;
        w->total = sums;
    }
    w->kernels += seconds_now() - begin;
}

/* ---- States as messages --------------------------------------------------------------------- */

/* Where merge_states works: MPI hands an operation nothing of its caller's. */
static void *merged;
static size_t merged_bytes;

/* later = earlier, then later. linattn_merge has it the other way round, the earlier of the two
   grows, and MPI's must not change. */
static void merge_states(void *earlier, void *later, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        char *to = (char *)later + (size_t)i * merged_bytes;
        memcpy(merged, (char *)earlier + (size_t)i * merged_bytes, merged_bytes);
        require(linattn_merge(merged, to), "merge");
        memcpy(to, merged, merged_bytes);
    }
}

/* A state is one element, which no MPI sends or merges in parts, of words of 4 bytes, so that MPI's
   own memory for it is aligned as linattn wants it. */
static MPI_Datatype make_type(size_t bytes)
{
    MPI_Datatype type;
    if (bytes / 4 > INT_MAX) {
        fail("a state of %zu bytes is too large for a message", bytes);
    }
    MPI_Type_contiguous((int)(bytes / 4), MPI_UINT32_T, &type);
    MPI_Type_commit(&type);
    return type;
}

/* All ranks must be about the same attention: its state says what it is. And about one output,
   which they write in step: a checksum tells its name, 0 that there is none. */
static void check_ranks(work *w, const char *out, MPI_Datatype type)
{
    const uint64_t named = out ? (uint64_t)1 << 32 | crc32_of(out, strlen(out)) : 0;
    const uint64_t mine[] = {named, w->q.tokens, w->k.tokens, w->bytes, (uint64_t)w->causal};
    uint64_t of_first[5];
    memcpy(of_first, mine, sizeof mine);
    MPI_Bcast(of_first, 5, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    agree(of_first[0] == named ? NULL : "its --out is not that of rank 0");
    int same = memcmp(of_first, mine, sizeof mine) == 0;
    agree(same ? NULL : "its tokens, shapes or options are not those of rank 0");
    MPI_Bcast(w->before, 1, type, 0, MPI_COMM_WORLD);
    same = memcmp(w->before, w->total, w->bytes) == 0;
    agree(same ? NULL : "its shapes or options are not those of rank 0");
}

static void exchange_states(work *w, MPI_Datatype type)
{
    MPI_Op merge;
    int commutes = 0; /* sums do, but for the order of roundings; what decays does not */
    merged = allocate(w->bytes);
    merged_bytes = w->bytes;
    MPI_Op_create(merge_states, commutes, &merge);
    double begin = seconds_now();
    MPI_Barrier(MPI_COMM_WORLD); /* for the clock alone: the slower ranks are waited for here */
    double ready = seconds_now();
    if (w->causal) {
        MPI_Exscan(w->total, w->before, 1, type, merge, MPI_COMM_WORLD);
    } else {
        MPI_Allreduce(w->total, w->before, 1, type, merge, MPI_COMM_WORLD);
    }
    w->communication = seconds_now() - ready;
    w->waiting = ready - begin;
    MPI_Op_free(&merge);
    free(merged);
}

static void attend(work *w, MPI_Datatype type)
{
    is_working = 1;
    sum_pieces(w);
    exchange_states(w, type);
    if (w->causal) {
        begin_pieces(w);
    }
    double begin = seconds_now();
    run_pieces(w, w->causal ? attend_piece : query_piece);
    w->kernels += seconds_now() - begin;
    is_working = 0;
}

/* ---- Outputs -------------------------------------------------------------------------------- */

/* Each rank writes its rows into the file that rank 0 has made, which becomes `path`. */
static void write_rows(const work *w, const char *path, const char *temporary)
{
    char header[NPY_LONGEST_HEADER];
    size_t row = 1;
    for (size_t i = 1; i < w->out.rank; i++) {
        row *= w->out.shape[i];
    }
    size_t offset = npy_print_header(&w->out, header) + w->queries.first * row * sizeof(float);
    output_file file = {.path = path, .stream = fopen(temporary, "r+b")};
    if (!file.stream || fseeko(file.stream, (off_t)offset, SEEK_SET) != 0) {
        fail("%s: cannot be opened by the name %s, which rank 0 gave it: %s", path, temporary,
             strerror(errno));
    }
    signal(SIGXFSZ, SIG_IGN);
    npy_write_data(&file, w->out.data, w->queries.count * row);
    int written = is_on_disk(file.stream), reason = errno;
    if (fclose(file.stream) != 0 || !written) {
        fail("%s: cannot be written: %s", path, strerror(written ? errno : reason));
    }
}

/* All ranks in step with rank 0, which alone knows the file that there is as yet. */
static void write_together(const work *w, const char *path, const output_file *file)
{
    agree(NULL); /* the file is there */
    int length = file ? (int)strlen(file->temporary) + 1 : 0;
    MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    char *temporary = allocate((size_t)length);
    if (file) {
        memcpy(temporary, file->temporary, (size_t)length);
    }
    MPI_Bcast(temporary, length, MPI_CHAR, 0, MPI_COMM_WORLD);
    write_rows(w, path, temporary);
    free(temporary);
    agree(NULL); /* and complete */
}

/* A write_function, for rank 0. */
static void write_output(output_file *file, const void *content)
{
    const work *w = content;
    char header[NPY_LONGEST_HEADER];
    write_bytes(file, header, npy_print_header(&w->out, header));
    if (fflush(file->stream) != 0) {
        fail("%s: cannot be written: %s", file->path, strerror(errno));
    }
    write_together(w, file->path, file);
}

enum { NUMBERS = 5 }; /* that a rank reports */

static void gather_numbers(work *w)
{
    double mine[NUMBERS] = {(double)w->keys.count, w->kernels, w->waiting, w->communication,
                            (double)w->bytes * states_sent(w->causal)};
    w->numbers = allocate((size_t)ranks * sizeof mine);
    MPI_Gather(mine, NUMBERS, MPI_DOUBLE, w->numbers, NUMBERS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

/* A write_function, for rank 0. */
static void print_report(output_file *file, const void *content)
{
    const work *w = content;
    const linattn_config *c = &w->config;
    fprintf(file->stream,
            "%zu tokens, %zu heads over %zu, dimension %zu, values %zu; %s, %s, %s; %s; a state "
            "has %zu bytes\n",
            w->k.tokens, w->q.heads, w->v.heads, c->dim_key, w->v.dim,
            w->causal ? "causal" : "every query sees every key", rule_names[c->rule],
            map_names[c->map], linattn_isa_name(linattn_isa_active()), w->bytes);
    fputs("rank       tokens   s in kernels   s waiting   s in communication   bytes sent\n",
          file->stream);
    for (int i = 0; i < ranks; i++) {
        const double *x = w->numbers + NUMBERS * i;
        fprintf(file->stream, "%4d %12.0f %14.6f %11.6f %20.6f %12.0f\n", i, x[0], x[1], x[2], x[3],
                x[4]);
    }
}

/* Finds out, before the work begins, whether there can be an output file. */
static void plan_outputs(const work *w, const char *path)
{
    if (rank == 0) {
        add_printed(print_report, w);
    }
    if (path && rank == 0) {
        add_output(path, write_output, w);
        if (!program_outputs[program_output_count - 1].target) {
            fail("%s: not a regular file, which all ranks could write to", path);
        }
    }
}

static void publish(work *w, const char *path)
{
    gather_numbers(w);
    if (rank == 0) {
        publish_outputs();
    } else if (path) {
        write_together(w, path, NULL);
    }
    agree(NULL);
}

/* ---- Main ----------------------------------------------------------------------------------- */

static void free_work(work *w)
{
    free_operand(&w->q);
    free_operand(&w->k);
    free_operand(&w->v);
    npy_free(&w->out);
    free_gates(&w->gates);
    free((void *)(uintptr_t)w->config.projection);
    free(w->numbers);
    free(w->total);
    free(w->before);
    for (size_t i = 0; i < w->pieces; i++) {
        free(w->own[i]);
    }
    stop_threads(&w->context);
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"tokens", "columns"};
    static work w;
    enter_ranks(&argc, &argv);
    options given = {option_names, OPTION_COUNT, OPTION_CAUSAL, rank == 0 ? help_text : "", {NULL}};
    read_options(&given, argc, argv);
    select_isa(&given, OPTION_ISA);
    size_t threads = read_threads(&given, OPTION_THREADS);
    w.pieces = name_option(&given, OPTION_BY, kinds, 2) == 0 ? threads : 1;
    read_work(&w, &given);
    plan_outputs(&w, given.text[OPTION_OUT]);
    MPI_Datatype type = make_type(w.bytes);
    w.context = start_threads(threads);
    agree(NULL);
    check_ranks(&w, given.text[OPTION_OUT], type);
    attend(&w, type);
    publish(&w, given.text[OPTION_OUT]);
    MPI_Type_free(&type);
    free_work(&w);
    return 0;
}
