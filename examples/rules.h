/* rules.h: what attend and mpi read and write for the rules of linear attention: gates from .npy
   files, and states as plain sums; and the names of its maps and normalisers.  SPDX: MIT */
#ifndef RULES_H
#define RULES_H

#include "npy.h"

/* The end of what --help prints. */
static const char rules_help[] =
    "Rules, each of which tells how a token changes the state S of linear attention:\n"
    "  --rule NAME         sum (default), or one of these, which imply --causal, take the maps\n"
    "                      elu1, identity, relu, exp and unit, and need files of gates:\n"
    "                      gated: S = Diag(a) S + k v'. RetNet, Mamba-2, GLA, RWKV-5 and 6.\n"
    "                        Needs --decay; takes --bonus, and --norm sum or length\n"
    "                      delta: S = S + beta k (v - S'k)'. DeltaNet. Needs --beta\n"
    "                      gated-delta: the same after S = Diag(a) S. Gated DeltaNet, KDA.\n"
    "                        Needs --decay and --beta\n"
    "                      general: S = Diag(a) S + p (r'S) + k v'. RWKV-7. Needs --decay,\n"
    "                        --read and --write\n"
    "                      mlstm: S = a S + e^i k v', z = a z + e^i k, and the output is\n"
    "                        S'q / max(|z'q|, 1). xLSTM. Needs --decay and --input-gate\n"
    "                      Under these, several heads of values may share one of queries and\n"
    "                      keys: head h of the values, gates and outputs reads head\n"
    "                      h / (heads of values / heads of keys). kv_heads are those of values\n"
    "  --decay F           a: .npy file of shape (tokens, kv_heads) or, but for mlstm, (tokens,\n"
    "                      kv_heads, dim); with 1 in place of tokens the same for all of them\n"
    "  --decay-is KIND     log (default): the file has log(a), at most 0; factor: a, 0 to 1\n"
    "  --beta F            (tokens, kv_heads) or (tokens, 1), 0 to 2\n"
    "  --read F --write F  r and p, each of the shape of k\n"
    "  --bonus F           u, (kv_heads, dim): the output is (S + Diag(u) k v')'q with S as it\n"
    "                      was before the token\n"
    "  --input-gate F      i, (tokens, kv_heads), any finite numbers\n"
    "\n"
    "States as plain numbers, for linear attention without --window:\n"
    "  --import-state F    begin with the S of a .npy file, (kv_heads, dim, dim_value). It lacks\n"
    "                      the sums of a normaliser: with --norm none, and not for mlstm\n"
    "  --export-state F    save the S after the last key, in the same manner as --out\n"
    "\n"
    "Exit status: 0, or 2 after one line on stderr; then no output file is left.\n";

static const char *const rule_names[] = {
    [LINATTN_RULE_SUM] = "sum",         [LINATTN_RULE_GATED] = "gated",
    [LINATTN_RULE_DELTA] = "delta",     [LINATTN_RULE_GATED_DELTA] = "gated-delta",
    [LINATTN_RULE_GENERAL] = "general", [LINATTN_RULE_MLSTM] = "mlstm",
};
_Static_assert(sizeof rule_names / sizeof rule_names[0] == LINATTN_RULE_COUNT, "name every rule");

static const char *const decay_names[] = {"log", "factor"};

/* Sets of rules: bit 1u << each. */
enum {
    SUM = 1u << LINATTN_RULE_SUM,
    GATED = 1u << LINATTN_RULE_GATED,
    DELTA = 1u << LINATTN_RULE_DELTA,
    GATED_DELTA = 1u << LINATTN_RULE_GATED_DELTA,
    GENERAL = 1u << LINATTN_RULE_GENERAL,
    MLSTM = 1u << LINATTN_RULE_MLSTM,
    DECAYING = GATED | GATED_DELTA | GENERAL | MLSTM,
    ALL_RULES = (1u << LINATTN_RULE_COUNT) - 1
};

/* What a rule may be told of each token, besides its query, key and value. */
typedef enum gate_kind {
    GATE_DECAY,
    GATE_BETA,
    GATE_READ,
    GATE_WRITE,
    GATE_BONUS,
    GATE_INPUT,
    GATE_COUNT
} gate_kind;

/* The rules that take each. They need it, too: all but the bonus. */
static const unsigned gate_rules[GATE_COUNT] = {
    [GATE_DECAY] = DECAYING, [GATE_BETA] = DELTA | GATED_DELTA,
    [GATE_READ] = GENERAL,   [GATE_WRITE] = GENERAL,
    [GATE_BONUS] = GATED,    [GATE_INPUT] = MLSTM,
};

/* Those of a run: `views` are the gates of its first token, `step` the floats from one token to the
   next, 0 where all have the same. */
typedef struct gate_files {
    linattn_gates views;
    npy_array file[GATE_COUNT]; /* without data where there is none */
    size_t step[GATE_COUNT];
} gate_files;

/* ---- Maps and normalisers ------------------------------------------------------------------- */

/* FEATURES_PER_DIM is the library's own number for the favor maps, which leave it to the caller. */
enum { FEATURES_PER_DIM = 4, MAX_DEGREE = 8, MAX_FEATURES = FEATURES_PER_DIM * LINATTN_MAX_DIM };

static const char *const map_names[] = {
    [LINATTN_MAP_ELU1] = "elu1",
    [LINATTN_MAP_IDENTITY] = "identity",
    [LINATTN_MAP_RELU] = "relu",
    [LINATTN_MAP_EXP] = "exp",
    [LINATTN_MAP_SOFTMAX] = "softmax",
    [LINATTN_MAP_FAVOR] = "favor",
    [LINATTN_MAP_FAVOR_SIMPLIFIED] = "favor-simple",
    [LINATTN_MAP_FAVOR_HYPERBOLIC] = "favor-hyperbolic",
    [LINATTN_MAP_TAYLOR] = "taylor",
    [LINATTN_MAP_EXPDEF] = "expdef",
    [LINATTN_MAP_UNIT] = "unit",
};
_Static_assert(sizeof map_names / sizeof map_names[0] == LINATTN_MAP_COUNT, "name every map");

static const char *const norm_names[] = {
    [LINATTN_NORM_SUM] = "sum",
    [LINATTN_NORM_FEATURE] = "feature",
    [LINATTN_NORM_LENGTH] = "length",
    [LINATTN_NORM_NONE] = "none",
};
_Static_assert(sizeof norm_names / sizeof norm_names[0] == LINATTN_NORM_COUNT, "name every norm");

/* Sets of maps: bit 1u << each. */
enum {
    FAVOR = 1u << LINATTN_MAP_FAVOR | 1u << LINATTN_MAP_FAVOR_SIMPLIFIED |
            1u << LINATTN_MAP_FAVOR_HYPERBOLIC,
    MONOMIALS = 1u << LINATTN_MAP_TAYLOR | 1u << LINATTN_MAP_EXPDEF,
    RULE_MAPS = 1u << LINATTN_MAP_IDENTITY | 1u << LINATTN_MAP_ELU1 | 1u << LINATTN_MAP_RELU |
                1u << LINATTN_MAP_EXP | 1u << LINATTN_MAP_UNIT,
    ALL_MAPS = (1u << LINATTN_MAP_COUNT) - 1
};

/* The library's default, where none is set. */
static inline linattn_normaliser effective_norm(const linattn_config *config)
{
    if (config->normaliser != LINATTN_NORM_DEFAULT) {
        return config->normaliser;
    }
    if (config->rule != LINATTN_RULE_SUM) {
        return LINATTN_NORM_NONE;
    }
    return config->map == LINATTN_MAP_SOFTMAX ? LINATTN_NORM_FEATURE : LINATTN_NORM_SUM;
}

/* ---- Shapes --------------------------------------------------------------------------------- */

/* The shapes that a file may have. */
typedef struct shapes {
    size_t count;
    struct {
        size_t rank, size[3];
    } one[4];
} shapes;

static inline void add_shape(shapes *s, size_t rank, size_t a, size_t b, size_t c)
{
    s->one[s->count].rank = rank;
    s->one[s->count].size[0] = a;
    s->one[s->count].size[1] = b;
    s->one[s->count].size[2] = c;
    s->count++;
}

/* Of queries, keys or values. */
static inline void check_sizes(const char *path, size_t heads, size_t dim)
{
    if (heads < 1 || heads > LINATTN_MAX_HEADS || dim < 1 || dim > LINATTN_MAX_DIM) {
        fail("%s: %zu heads of dimension %zu, expected 1 to %d heads of dimension 1 to %d", path,
             heads, dim, LINATTN_MAX_HEADS, LINATTN_MAX_DIM);
    }
}

/* Fails if the library refuses the config, and says why: but for its hint to who writes C. */
static inline void check_config(const linattn_config *config)
{
    const char *why = linattn_config_error(config);
    const char *hint = why ? strstr(why, ": was the config zeroed") : NULL;
    if (why) {
        fail("these shapes and options: %.*s", (int)(hint ? hint - why : (ptrdiff_t)strlen(why)),
             why);
    }
}

/* The library has none under the normaliser sum. */
static inline void check_bonus(const options *given, int bonus, const linattn_config *config)
{
    if (given->text[bonus] && effective_norm(config) == LINATTN_NORM_SUM) {
        fail("%s does not go with --norm sum: give --norm length or none", given->names[bonus]);
    }
}

/* Reads a file that has one of the shapes. */
static inline npy_array read_shaped(const char *path, const npy_layout *layout,
                                    const shapes *expected)
{
    char wanted[512] = "";
    npy_array a = npy_read(path, layout);
    for (size_t i = 0, used = 0; i < expected->count; i++) {
        size_t rank = expected->one[i].rank;
        const size_t *size = expected->one[i].size;
        if (a.rank == rank && memcmp(a.shape, size, rank * sizeof *size) == 0) {
            return a;
        }
        used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%s(%s)", i ? " or " : "",
                                 npy_print_sizes(size, rank, NULL).text);
    }
    fail("%s: shape (%s), expected %s: %s", path, npy_print_sizes(a.shape, a.rank, NULL).text,
         wanted, layout->axes);
}

/* Of queries, keys and values. */
static const npy_layout tokens_layout = {2, 3, "(tokens, heads, dim) or (tokens, dim)", NULL, 0};

/* ---- Numbers in their ranges ---------------------------------------------------------------- */

typedef struct number_range {
    float least, most;
    const char *text;
    int has_minus_infinity; /* beside these */
} number_range;

static const number_range any_finite = {-FLT_MAX, FLT_MAX, "a finite number", 0};

/* The bits as a number, in whose order NaN comes behind infinity: -ffast-math may take it that
   there is neither. */
static inline int32_t order_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t size = (int32_t)(bits & 0x7fffffff);
    return bits >> 31 ? -size : size;
}

static inline int in_range(float x, const number_range *range)
{
    const int32_t minus_infinity = -0x7f800000, at = order_of(x);
    return (at >= order_of(range->least) && at <= order_of(range->most)) ||
           (at == minus_infinity && range->has_minus_infinity);
}

/* Where the element is whose place is `at` in the whole array, like "3, 0, 2". */
static inline npy_sizes npy_print_place(const npy_array *a, size_t at)
{
    size_t place[NPY_MOST_AXES] = {0};
    for (size_t i = a->rank; i-- > 0;) {
        place[i] = at % a->shape[i];
        at /= a->shape[i];
    }
    return npy_print_sizes(place, a->rank, NULL);
}

/* Of an array, or of the part of it that its data are. */
static inline void check_numbers(const npy_array *a, const npy_part *part,
                                 const number_range *range)
{
    size_t first = part ? part->first : 0, rows = part ? part->count : a->shape[0], row = 1;
    for (size_t i = 1; i < a->rank; i++) {
        row *= a->shape[i];
    }
    for (size_t i = 0; i < rows * row; i++) {
        if (!in_range(a->data[i], range)) {
            fail("%s: element (%s) is %g, expected %s", a->path,
                 npy_print_place(a, first * row + i).text, (double)a->data[i], range->text);
        }
    }
}

/* ---- Gates ---------------------------------------------------------------------------------- */

static const npy_layout gate_layouts[GATE_COUNT] = {
    [GATE_DECAY] = {2, 3, "(tokens, kv_heads) or (tokens, kv_heads, dim), or of 1 token for all",
                    NULL, 0},
    [GATE_BETA] = {2, 2, "(tokens, kv_heads) or (tokens, 1)", NULL, 0},
    [GATE_READ] = {2, 3, "the shape of the keys", NULL, 0},
    [GATE_WRITE] = {2, 3, "the shape of the keys", NULL, 0},
    [GATE_BONUS] = {2, 2, "(kv_heads, dim)", NULL, 0},
    [GATE_INPUT] = {2, 2, "(tokens, kv_heads)", NULL, 0},
};
static const npy_layout head_decay_layout = {2, 2, "(tokens, kv_heads), or of 1 token for all",
                                             NULL, 0};

/* Of the decay and of what has a number per head. */
static inline shapes gate_shapes(gate_kind which, const linattn_config *config, size_t tokens)
{
    shapes s = {0};
    size_t heads = config->kv_heads, dim = config->dim_key;
    int per_feature = which == GATE_DECAY && config->rule != LINATTN_RULE_MLSTM;
    add_shape(&s, 2, tokens, heads, 0);
    if (per_feature) {
        add_shape(&s, 3, tokens, heads, dim);
    }
    if (which == GATE_DECAY && tokens != 1) {
        add_shape(&s, 2, 1, heads, 0);
        if (per_feature) {
            add_shape(&s, 3, 1, heads, dim);
        }
    }
    if (which == GATE_BETA && heads != 1) {
        add_shape(&s, 2, tokens, 1, 0);
    }
    return s;
}

/* Of vectors as long as a key: for each token, or one for each head. */
static inline shapes vector_shapes(gate_kind which, const linattn_config *config, size_t tokens)
{
    shapes s = {0};
    size_t dim = config->dim_key;
    size_t key_heads = config->key_heads ? config->key_heads : config->kv_heads;
    if (which == GATE_BONUS) {
        add_shape(&s, 2, config->kv_heads, dim, 0);
    } else {
        add_shape(&s, 3, tokens, key_heads, dim);
        if (key_heads == 1) {
            add_shape(&s, 2, tokens, dim, 0);
        }
    }
    return s;
}

static inline linattn_view *gate_view(linattn_gates *views, gate_kind which)
{
    linattn_view *const all[GATE_COUNT] = {
        [GATE_DECAY] = &views->decay, [GATE_BETA] = &views->beta,   [GATE_READ] = &views->read,
        [GATE_WRITE] = &views->write, [GATE_BONUS] = &views->bonus, [GATE_INPUT] = &views->input,
    };
    return all[which];
}

static inline const number_range *gate_range(gate_kind which, int decay_log)
{
    static const number_range beta = {0, 2, "0 to 2", 0}; /* below, S grows without end */
    static const number_range factor = {0, 1, "0 to 1, as --decay-is factor has it", 0};
    static const number_range log = {-FLT_MAX, 0, "at most 0, as --decay-is log has it", 1};
    if (which == GATE_DECAY) {
        return decay_log ? &log : &factor;
    }
    return which == GATE_BETA ? &beta : &any_finite;
}

/* Adds one to the gates; the config is complete, and decay_log is set. With a part, those of its
   tokens. */
static inline void read_gate(gate_files *g, gate_kind which, const char *path,
                             const linattn_config *config, size_t tokens, const npy_part *part)
{
    int vectors = which == GATE_READ || which == GATE_WRITE || which == GATE_BONUS;
    int of_heads = which == GATE_DECAY && config->rule == LINATTN_RULE_MLSTM;
    shapes expected =
        vectors ? vector_shapes(which, config, tokens) : gate_shapes(which, config, tokens);
    npy_layout layout = of_heads ? head_decay_layout : gate_layouts[which];
    layout.part = which == GATE_BONUS ? NULL : part;
    npy_array a = read_shaped(path, &layout, &expected);
    size_t per_token = a.rank == 3 ? a.shape[1] * a.shape[2] : a.shape[1];
    int fixed = which == GATE_BONUS || a.shape[0] != tokens;
    check_numbers(&a, fixed ? NULL : part, gate_range(which, g->views.decay_log));
    g->file[which] = a;
    g->step[which] = fixed ? 0 : per_token;
    *gate_view(&g->views, which) = linattn_rows(a.data);
    if (which == GATE_DECAY) {
        g->views.decay_fixed = fixed;
        g->views.decay_per_feature = a.rank == 3;
    } else if (which == GATE_BETA) {
        g->views.beta_shared = a.shape[1] != config->kv_heads;
    }
}

static inline linattn_gates gates_from(const gate_files *g, size_t token)
{
    linattn_gates views = g->views;
    for (gate_kind i = 0; i < GATE_COUNT; i++) {
        if (g->file[i].data) {
            gate_view(&views, i)->data = g->file[i].data + token * g->step[i];
        }
    }
    return views;
}

static inline void free_gates(gate_files *g)
{
    for (gate_kind i = 0; i < GATE_COUNT; i++) {
        npy_free(&g->file[i]);
    }
}

/* ---- States as plain sums ------------------------------------------------------------------- */

static const npy_layout sums_layout = {3, 3, "(kv_heads, dim, dim_value)", NULL, 0};

/* Memory for export_state(). */
static inline npy_array make_sums(const linattn_config *config)
{
    size_t features = linattn_features(config), bytes;
    npy_array a = {.rank = 3, .shape = {config->kv_heads, features, config->dim_value}};
    if (!npy_bytes(a.shape, a.rank, &bytes)) {
        fail("a state of shape (%zu, %zu, %zu) is too large", a.shape[0], a.shape[1], a.shape[2]);
    }
    a.data = allocate(bytes);
    return a;
}

static inline void export_state(const void *state, const npy_array *a)
{
    for (size_t head = 0; head < a->shape[0]; head++) {
        float *sums = a->data + head * a->shape[1] * a->shape[2];
        require(linattn_state_export(state, head, 0, sums, NULL), "the state's export");
    }
}

/* What is too large for a state is infinite there, or NaN, and comes back as that or saturated. */
static inline void check_imported(const void *state, const linattn_config *config,
                                  const npy_array *imported)
{
    npy_array kept = make_sums(config);
    export_state(state, &kept);
    for (size_t i = 0; i < kept.shape[0] * kept.shape[1] * kept.shape[2]; i++) {
        int32_t size = abs(order_of(kept.data[i]));
        if (size >= order_of(FLT_MAX) && size != abs(order_of(imported->data[i]))) {
            fail("%s: element (%s) is %g, too large for sums of this --state-type and --scale",
                 imported->path, npy_print_place(imported, i).text, (double)imported->data[i]);
        }
    }
    free(kept.data);
}

/* From a file into a state of this config. */
static inline void import_state(const linattn_config *config, void *state, const char *path)
{
    shapes expected = {0};
    size_t features = linattn_features(config);
    add_shape(&expected, 3, config->kv_heads, features, config->dim_value);
    npy_array a = read_shaped(path, &sums_layout, &expected);
    check_numbers(&a, NULL, &any_finite);
    for (size_t head = 0; head < config->kv_heads; head++) {
        const float *sums = a.data + head * features * config->dim_value;
        require(linattn_state_import(state, head, 0, sums, NULL), path);
    }
    check_imported(state, config, &a);
    free(a.data);
}

#endif
