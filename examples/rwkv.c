/* rwkv: text from an RWKV language model, of version 5, 6 or 7.  SPDX: MIT

       cc -O3 examples/rwkv.c -o rwkv
       ./rwkv examples/data/tiny-rwkv-7v0-834K-FP16.bin --prompt "What is" --tokens 200

   Runs model files in the format of rwkv.cpp, f32 and f16. The attention of every layer is a state
   of linattn's, which linattn_recurrent moves: rule GATED with a bonus for RWKV-5 and RWKV-6, rule
   GENERAL for RWKV-7. All else that a layer does is plain C below, from the papers: Peng et al.
   2024, Eagle and Finch; Peng et al. 2025, RWKV-7 Goose.

   What a model remembers of a text has a fixed size, the states and the last token's vectors. They
   lie in one block of memory, so that a copy of it goes on from there as often as one likes.

   Needs the headers beside it, linattn.h and a POSIX C library, nothing else. Where pthreads are a
   library of their own (glibc before 2.34), add -pthread to have --threads. Under -ffast-math the
   plain C below has other bits in calls of another length. */

#define PROGRAM "rwkv"
#include "rwkv_model.h"
#include "rwkv_vocabulary.h"

#define LINATTN_IMPLEMENTATION
#include "../linattn.h"

static const char help[] =
    "usage: rwkv MODEL [options]\n"
    "\n"
    "Reads a model file of RWKV-5.1, 5.2, 6 or 7 in the format of rwkv.cpp, f32 or f16, and\n"
    "prints how it goes on after the prompt.\n"
    "\n"
    "  --prompt TEXT    what the model reads first (default: a newline)\n"
    "  --tokens N       how many tokens follow (default: 100, or 0 with --logits)\n"
    "  --temperature X  0: always the likeliest token; 1 (default): at random, as the model\n"
    "                   weighs them; others divide the logits before\n"
    "  --seed S         of the random numbers, 0 to 2^64 - 1 (default: 0)\n"
    "  --branches N     go on N times from the state after the prompt (default: 1), printed one\n"
    "                   after another under a line \"--- S ---\" each, with the seeds S,\n"
    "                   S + 1, ...\n"
    "  --logits F       write the logits after the prompt: .npy, float32, shape (vocabulary). F\n"
    "                   changes only when all has succeeded\n"
    "  --vocab F        the vocabulary file of the \"world\" models, rwkv_vocab_v20230424.txt;\n"
    "                   token 0, which it lacks, ends the text. Without it tokens are bytes\n"
    "  --chunk C        read the prompt in calls of so many tokens (default: 32); same bytes\n"
    "  --threads T      use T threads, 1 to 256; same bytes\n"
    "  --isa NAME       " ISA_NAMES ";\n"
    "                   same bytes\n"
    "  --time           tell on stderr how long it took, and what part of it was attention\n"
    "  --help, -h       print this\n"
    "\n"
    "Exit status: 0, or 2 after one line on stderr; then no output file is left.\n";

enum {
    OPTION_PROMPT,
    OPTION_TOKENS,
    OPTION_TEMPERATURE,
    OPTION_SEED,
    OPTION_BRANCHES,
    OPTION_LOGITS,
    OPTION_VOCAB,
    OPTION_CHUNK,
    OPTION_THREADS,
    OPTION_ISA,
    OPTION_TIME, /* from here on without a value */
    OPTION_HELP,
    OPTION_COUNT
};
static const char *const option_names[OPTION_COUNT] = {
    "--prompt", "--tokens", "--temperature", "--seed", "--branches", "--logits",
    "--vocab",  "--chunk",  "--threads",     "--isa",  "--time",     "--help"};

/* ---- A run of a model ------------------------------------------------------------------------ */

/* Every buffer has a row for each token of a chunk. */
typedef struct run {
    const rwkv_model *model;
    linattn_context context;
    size_t threads, chunk;
    /* What the model remembers, one block: for each layer the state, and the vectors of the last
       token that attention and feed-forward mix into the next one. */
    unsigned char *memory;
    size_t layer_bytes, state_bytes;
    float *vectors;           /* all of the model's width: */
    float *x, *norm, *change; /* x: what goes through the layers; change: to the token before */
    float *mixed, *r, *k, *v, *gate, *decay, *read, *write, *out, *first_v;
    float *low, *hidden; /* of the small matrices, of the feed-forward */
    float *rows;         /* one of a matrix for each thread */
    float *logits;
    double seconds, attention_seconds;
} run;

static size_t product_of(size_t a, size_t b)
{
    if (b && a > SIZE_MAX / sizeof(float) / b) {
        fail("out of memory: the model and --chunk are too large");
    }
    return a * b;
}

static float *floats(size_t rows, size_t width)
{
    return allocate(product_of(rows, width) * sizeof(float));
}

static linattn_config config_of(const rwkv_model *m)
{
    linattn_config config = {0};
    config.heads = config.kv_heads = m->heads;
    config.dim_key = m->head_size;
    config.map = LINATTN_MAP_IDENTITY;
    config.normaliser = LINATTN_NORM_NONE;
    config.rule = m->version == RWKV_7 ? LINATTN_RULE_GENERAL : LINATTN_RULE_GATED;
    return config;
}

static void *state_of(const run *u, size_t layer) { return u->memory + layer * u->layer_bytes; }

/* The last token's vectors: of attention 0, of feed-forward 1. */
static float *last_of(const run *u, size_t layer, size_t which)
{
    return (float *)(void *)(u->memory + layer * u->layer_bytes + u->state_bytes) +
           which * u->model->width;
}

static size_t memory_bytes(const run *u) { return product_of(u->layer_bytes, u->model->layers); }

static void make_memory(run *u)
{
    const size_t line = 64;
    const rwkv_model *m = u->model;
    linattn_config config = config_of(m);
    require(linattn_config_check(&config), "the heads of this model");
    u->state_bytes = (linattn_state_size(&config) + line - 1) / line * line;
    size_t vectors = product_of(m->width, 2) * sizeof(float);
    u->layer_bytes = (u->state_bytes + vectors + line - 1) / line * line;
    u->memory = allocate(memory_bytes(u));
    memset(u->memory, 0, memory_bytes(u));
    for (size_t i = 0; i < m->layers; i++) {
        require(linattn_state_init(&config, state_of(u, i), u->state_bytes), "a state");
    }
}

/* The most that a layer has of something. */
static size_t widest(const rwkv_model *m, const char *letters)
{
    size_t most = 1;
    for (size_t i = 0; i < m->layers; i++) {
        for (const char *c = letters; *c; c++) {
            size_t size = m->layer[i].sizes[(unsigned char)*c] * (*c == 'm' ? 5 : 1);
            most = size > most ? size : most;
        }
    }
    return most;
}

static void make_buffers(run *u)
{
    float **const of_width[] = {&u->x,     &u->norm, &u->change, &u->mixed, &u->r,
                                &u->k,     &u->v,    &u->gate,   &u->decay, &u->read,
                                &u->write, &u->out,  &u->first_v};
    enum { COUNT = sizeof of_width / sizeof of_width[0] };
    const rwkv_model *m = u->model;
    size_t low = widest(m, "mwavg"), hidden = widest(m, "mF"), columns = widest(m, "DFmwavg");
    u->vectors = floats(product_of(COUNT, u->chunk), m->width);
    for (size_t i = 0; i < COUNT; i++) {
        *of_width[i] = u->vectors + i * u->chunk * m->width;
    }
    u->low = floats(u->chunk, low);
    u->hidden = floats(u->chunk, hidden);
    u->rows = floats(u->threads, columns);
    u->logits = floats(1, m->vocabulary);
}

static void free_run(run *u)
{
    float *const buffers[] = {u->vectors, u->low, u->hidden, u->rows, u->logits};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        free(buffers[i]);
    }
    free(u->memory);
}

/* ---- Matrices -------------------------------------------------------------------------------- */

/* The same for every chunk and every number of threads: a sum is always of the same lanes. */
RWKV_INLINE float dot_lanes(const float *a, const float *b, size_t n)
{
    enum { LANES = 16 }; /* that compilers turn into vectors */
    float sum[LANES] = {0};
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            sum[lane] += a[i + lane] * b[i + lane];
        }
    }
    for (size_t lane = 0; lane < n - whole; lane++) {
        sum[lane] += a[whole + lane] * b[whole + lane];
    }
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; lane++) {
            sum[lane] += sum[lane + half];
        }
    }
    return sum[0];
}

RWKV_FAST static float dot_fast(const float *a, const float *b, size_t n)
{
    return dot_lanes(a, b, n);
}

static float dot(const float *a, const float *b, size_t n)
{
    return rwkv_has_fast() ? dot_fast(a, b, n) : dot_lanes(a, b, n);
}

/* y_t = A x_t for each token t; the vectors x begin so many floats after one another. */
typedef struct product {
    const rwkv_tensor *a;
    size_t first, rows, columns; /* a part of A: from its row `first` on */
    const float *x;
    size_t stride, tokens;
    float *y, *wide; /* wide: room for a row in each part */
    size_t parts;
} product;

/* A row of n floats where it lies, or one of f16 widened. */
static const float *row_of(const rwkv_tensor *a, size_t row, size_t n, float *wide)
{
    if (!a->is_half) {
        return (const float *)a->data + row * n;
    }
    rwkv_widen((const uint16_t *)a->data + row * n, wide, n);
    return wide;
}

/* A row is brought in once for all tokens. */
static void multiply_part(void *arg, size_t index)
{
    const product *p = arg;
    size_t n = p->columns, end = p->rows * (index + 1) / p->parts;
    for (size_t i = p->rows * index / p->parts; i < end; i++) {
        const float *row = row_of(p->a, p->first + i, n, p->wide + index * n);
        for (size_t t = 0; t < p->tokens; t++) {
            p->y[t * p->rows + i] = dot(row, p->x + t * p->stride, n);
        }
    }
}

/* Do so many multiplications for each token take longer than waking the threads? */
static int is_worth_threads(size_t products, size_t tokens) { return products >= 100000 / tokens; }

static void multiply_rows(run *u, product p)
{
    p.wide = u->rows;
    p.parts = is_worth_threads(p.rows * p.columns, p.tokens) ? u->threads : 1;
    if (p.parts > 1) {
        u->context.parallel_for(u->context.user, p.parts, multiply_part, &p);
    } else {
        multiply_part(&p, 0);
    }
}

static void multiply(run *u, const rwkv_tensor *a, const float *x, float *y, size_t tokens)
{
    size_t n = a->shape[0];
    multiply_rows(u, (product){a, 0, a->shape[1], n, x, n, tokens, y, NULL, 1});
}

/* ---- Vectors --------------------------------------------------------------------------------- */

static const float *vector(const rwkv_tensor *t) { return t->data; }

/* The library's exp is at hand, and has the same bits everywhere. */
static void exponential(float *x, size_t n) { require(linattn_exp(x, x, n), "the exponential"); }

static void sigmoid(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = -x[i];
    }
    exponential(x, n);
    for (size_t i = 0; i < n; i++) {
        x[i] = 1 / (1 + x[i]);
    }
}

static void hyperbolic_tangent(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = 2 * x[i];
    }
    exponential(x, n);
    for (size_t i = 0; i < n; i++) {
        x[i] = 1 - 2 / (x[i] + 1);
    }
}

static void add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] += y[i];
    }
}

static void scale(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= y[i];
    }
}

/* y = (x - mean) / sqrt(variance + epsilon) * weight + bias; x and y may be the same. */
static void normalise(const float *x, const float *weight, const float *bias, double epsilon,
                      size_t n, float *y)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
    }
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    double factor = 1 / square_root(squares / (double)n + epsilon);
    for (size_t i = 0; i < n; i++) {
        y[i] = (float)((x[i] - mean) * factor) * weight[i] + bias[i];
    }
}

static void normalise_layer(const float *x, const rwkv_tensor *weight, const rwkv_tensor *bias,
                            float *y)
{
    normalise(x, vector(weight), vector(bias), 1e-5, weight->count, y);
}

/* ---- A layer --------------------------------------------------------------------------------- */

/* One layer over the tokens of a chunk. */
typedef struct pass {
    run *u;
    const rwkv_layer *layer;
    size_t index, width, tokens;
} pass;

/* norm = LN(x), and change = that of the token before, less norm. */
static void begin_block(const pass *p, rwkv_slot weight, rwkv_slot bias, size_t which)
{
    run *u = p->u;
    float *last = last_of(u, p->index, which);
    for (size_t t = 0; t < p->tokens; t++) {
        size_t at = t * p->width;
        normalise_layer(u->x + at, p->layer->part[weight], p->layer->part[bias], u->norm + at);
        for (size_t i = 0; i < p->width; i++) {
            u->change[at + i] = last[i] - u->norm[at + i];
            last[i] = u->norm[at + i];
        }
    }
}

/* mixed = norm + change * weights, in each token. */
static void mix(const pass *p, const float *weights)
{
    run *u = p->u;
    for (size_t t = 0; t < p->tokens; t++) {
        for (size_t i = 0, at = t * p->width; i < p->width; i++, at++) {
            u->mixed[at] = u->norm[at] + u->change[at] * weights[i];
        }
    }
}

static void project(const pass *p, rwkv_slot matrix, const float *x, float *y)
{
    multiply(p->u, p->layer->part[matrix], x, y, p->tokens);
}

static void mix_and_project(const pass *p, rwkv_slot weights, rwkv_slot matrix, float *y)
{
    mix(p, vector(p->layer->part[weights]));
    project(p, matrix, p->u->mixed, y);
}

/* Adds a vector to each token. */
static void add_to_all(const pass *p, float *x, rwkv_slot slot)
{
    for (size_t t = 0; t < p->tokens; t++) {
        add(x + t * p->width, vector(p->layer->part[slot]), p->width);
    }
}

/* x silu'd: x = x / (1 + e^-x). Takes `mixed` to work in. */
static void make_silu(const pass *p, float *x)
{
    size_t n = p->tokens * p->width;
    memcpy(p->u->mixed, x, n * sizeof *x);
    sigmoid(p->u->mixed, n);
    scale(x, p->u->mixed, n);
}

/* x += W_o out */
static void end_attention(const pass *p)
{
    project(p, OUTPUT, p->u->out, p->u->mixed);
    add(p->u->x, p->u->mixed, p->tokens * p->width);
}

/* The library's part: out = what the state answers to r, token by token. Keys are k, values v. */
static void attend(const pass *p, const linattn_gates *gates)
{
    run *u = p->u;
    int wakes = is_worth_threads(p->width * u->model->head_size, p->tokens);
    double begin = seconds_now();
    require(linattn_recurrent(state_of(u, p->index), linattn_rows(u->r), linattn_rows(u->k),
                              linattn_rows(u->v), gates, linattn_output_rows(u->out), p->tokens,
                              wakes ? &u->context : NULL),
            "the attention");
    u->attention_seconds += seconds_now() - begin;
}

/* GN: each head by itself. */
static void normalise_heads(const pass *p, double epsilon)
{
    const rwkv_model *m = p->u->model;
    const float *weight = vector(p->layer->part[LN_X_WEIGHT]);
    const float *bias = vector(p->layer->part[LN_X_BIAS]);
    for (size_t t = 0; t < p->tokens; t++) {
        for (size_t h = 0; h < p->width; h += m->head_size) {
            float *head = p->u->out + t * p->width + h;
            normalise(head, weight + h, bias + h, epsilon, m->head_size, head);
        }
    }
}

/* ---- RWKV-5 and RWKV-6 ----------------------------------------------------------------------- */

/* What RWKV-5 does with fixed weights: r, k, v and the gate from mixtures of this token and the one
   before. */
static void mix_fixed(const pass *p)
{
    run *u = p->u;
    mix_and_project(p, MIX_R, RECEPTANCE, u->r);
    mix_and_project(p, MIX_K, KEY, u->k);
    mix_and_project(p, MIX_V, VALUE, u->v);
    if (p->layer->part[GATE]) {
        mix_and_project(p, MIX_G, GATE, u->gate);
    }
}

/* log w = -exp(time_decay + W_d2 tanh(W_d1 mixed)) */
static void make_decay_6(const pass *p)
{
    run *u = p->u;
    size_t n = p->tokens * p->width;
    project(p, DECAY_W1, u->mixed, u->low);
    hyperbolic_tangent(u->low, p->tokens * p->layer->sizes['w']);
    project(p, DECAY_W2, u->low, u->decay);
    add_to_all(p, u->decay, DECAY);
    exponential(u->decay, n);
    for (size_t i = 0; i < n; i++) {
        u->decay[i] = -u->decay[i];
    }
}

/* In RWKV-6 the weights of the mixtures depend on the token themselves, through small matrices: the
   part c of tanh(W1 x), times the part c of W2. */
static void mix_by_token(const pass *p)
{
    static const rwkv_slot matrices[] = {DECAY, KEY, VALUE, RECEPTANCE, GATE};
    run *u = p->u;
    float *const to[] = {u->decay, u->k, u->v, u->r, u->gate};
    size_t small = p->layer->sizes['m'], n = p->tokens * p->width;
    float *low = u->hidden; /* the decay needs the other one */
    mix(p, vector(p->layer->part[MIX_X]));
    project(p, MAA_W1, u->mixed, low);
    hyperbolic_tangent(low, p->tokens * 5 * small);
    for (size_t c = 0; c < 5; c++) {
        multiply_rows(u, (product){p->layer->part[MAA_W2], c * p->width, p->width, small,
                                   low + c * small, 5 * small, p->tokens, u->mixed, NULL, 1});
        add_to_all(p, u->mixed, (rwkv_slot)(MIX_W + c));
        scale(u->mixed, u->change, n);
        add(u->mixed, u->norm, n);
        if (matrices[c] == DECAY) {
            make_decay_6(p);
        } else {
            project(p, matrices[c], u->mixed, to[c]);
        }
    }
}

static void attend_5_6(const pass *p)
{
    run *u = p->u;
    int is_6 = u->model->version == RWKV_6;
    linattn_gates gates = {0};
    gates.decay_per_feature = 1;
    gates.bonus = linattn_rows(vector(p->layer->part[BONUS]));
    if (is_6) {
        mix_by_token(p);
        gates.decay = linattn_rows(u->decay);
        gates.decay_log = 1;
    } else {
        mix_fixed(p);
        gates.decay = linattn_rows(vector(p->layer->part[DECAY]));
        gates.decay_fixed = 1;
    }
    attend(p, &gates);
    normalise_heads(p, is_6 ? 64e-5 : 1e-5);
    if (p->layer->part[GATE]) {
        make_silu(p, u->gate);
        scale(u->out, u->gate, p->tokens * p->width);
    }
}

/* ---- RWKV-7 ---------------------------------------------------------------------------------- */

enum { MIX7_R, MIX7_W, MIX7_K, MIX7_V, MIX7_A, MIX7_G };

static void mix_7(const pass *p, size_t which)
{
    mix(p, vector(p->layer->part[MIX_ALL]) + which * p->width);
}

/* low = W1 mixed, in `count` numbers; y = bias + W2 low comes after. */
static size_t project_low(const pass *p, rwkv_slot matrix)
{
    project(p, matrix, p->u->mixed, p->u->low);
    return p->tokens * p->layer->part[matrix]->shape[1];
}

/* log w = -e^(-1/2) sigmoid(w0 + w2 tanh(w1 mixed)) */
static void make_decay_7(const pass *p)
{
    const float root = -0.60653065971263342f;
    run *u = p->u;
    size_t n = p->tokens * p->width;
    mix_7(p, MIX7_W);
    hyperbolic_tangent(u->low, project_low(p, DECAY_W1));
    project(p, DECAY_W2, u->low, u->decay);
    add_to_all(p, u->decay, DECAY);
    sigmoid(u->decay, n);
    for (size_t i = 0; i < n; i++) {
        u->decay[i] *= root;
    }
}

/* v = W_v mixed; in layers after the first it moves towards that of the first. */
static void make_value_7(const pass *p)
{
    run *u = p->u;
    size_t n = p->tokens * p->width;
    mix_7(p, MIX7_V);
    project(p, VALUE, u->mixed, u->v);
    if (p->index == 0) {
        memcpy(u->first_v, u->v, n * sizeof *u->v);
        return;
    }
    project_low(p, V1);
    project(p, V2, u->low, u->mixed);
    add_to_all(p, u->mixed, V0);
    sigmoid(u->mixed, n);
    for (size_t i = 0; i < n; i++) {
        u->v[i] += (u->first_v[i] - u->v[i]) * u->mixed[i];
    }
}

/* g = g2 sigmoid(g1 mixed) */
static void make_gate_7(const pass *p)
{
    mix_7(p, MIX7_G);
    sigmoid(p->u->low, project_low(p, G1));
    project(p, G2, p->u->low, p->u->gate);
}

/* read = -c, c = k * k_k with each head of norm 1: what the state holds there is taken away. */
static void make_read(const pass *p)
{
    run *u = p->u;
    const float *k_k = vector(p->layer->part[K_K]);
    size_t size = u->model->head_size;
    for (size_t at = 0; at < p->tokens * p->width; at += size) {
        const float *k = u->k + at, *weight = k_k + at % p->width;
        double squares = 0;
        for (size_t i = 0; i < size; i++) {
            squares += (double)(k[i] * weight[i]) * (k[i] * weight[i]);
        }
        double norm = square_root(squares);
        float factor = (float)(-1 / (norm < 1e-12 ? 1e-12 : norm));
        for (size_t i = 0; i < size; i++) {
            u->read[at + i] = k[i] * weight[i] * factor;
        }
    }
}

/* read; write = c * alpha, alpha = sigmoid(a0 + a2 a1 mixed); k = k * (1 + (alpha - 1) * k_a) */
static void make_key_7(const pass *p)
{
    run *u = p->u;
    float *alpha = u->write;
    const float *k_a = vector(p->layer->part[K_A]);
    size_t n = p->tokens * p->width;
    mix_7(p, MIX7_K);
    project(p, KEY, u->mixed, u->k);
    make_read(p);
    mix_7(p, MIX7_A);
    project_low(p, A1);
    project(p, A2, u->low, alpha);
    add_to_all(p, alpha, A0);
    sigmoid(alpha, n);
    for (size_t i = 0; i < n; i++) {
        u->k[i] *= 1 + (alpha[i] - 1) * k_a[i % p->width];
        u->write[i] = -u->read[i] * alpha[i];
    }
}

/* out += (sum of k * r * r_k) v, in each head */
static void add_bonus_7(const pass *p)
{
    run *u = p->u;
    const float *r_k = vector(p->layer->part[R_K]);
    size_t size = u->model->head_size;
    for (size_t at = 0; at < p->tokens * p->width; at += size) {
        float sum = 0;
        for (size_t i = 0; i < size; i++) {
            sum += u->k[at + i] * u->r[at + i] * r_k[at % p->width + i];
        }
        for (size_t i = 0; i < size; i++) {
            u->out[at + i] += sum * u->v[at + i];
        }
    }
}

static void attend_7(const pass *p)
{
    run *u = p->u;
    linattn_gates gates = {0};
    mix_7(p, MIX7_R);
    project(p, RECEPTANCE, u->mixed, u->r);
    make_decay_7(p);
    make_key_7(p);
    make_value_7(p);
    make_gate_7(p);
    gates.decay = linattn_rows(u->decay);
    gates.decay_per_feature = 1;
    gates.decay_log = 1;
    gates.read = linattn_rows(u->read);
    gates.write = linattn_rows(u->write);
    attend(p, &gates);
    normalise_heads(p, 64e-5);
    add_bonus_7(p);
    scale(u->out, u->gate, p->tokens * p->width);
}

/* ---- All layers ------------------------------------------------------------------------------ */

/* x += W_v relu(W_k mixed)^2, before RWKV-7 times sigmoid(W_r mixed). */
static void feed_forward(const pass *p)
{
    run *u = p->u;
    size_t n = p->tokens * p->width, hidden = p->tokens * p->layer->sizes['F'];
    mix_and_project(p, FFN_MIX_K, FFN_KEY, u->hidden);
    for (size_t i = 0; i < hidden; i++) {
        float x = u->hidden[i];
        u->hidden[i] = x < 0 ? 0 : x * x;
    }
    project(p, FFN_VALUE, u->hidden, u->out);
    if (p->layer->part[FFN_RECEPTANCE]) {
        mix_and_project(p, FFN_MIX_R, FFN_RECEPTANCE, u->r);
        sigmoid(u->r, n);
        scale(u->out, u->r, n);
    }
    add(u->x, u->out, n);
}

static void embed(run *u, const size_t *tokens, size_t n)
{
    const rwkv_model *m = u->model;
    for (size_t t = 0; t < n; t++) {
        float *x = u->x + t * m->width;
        normalise_layer(row_of(m->global[EMBEDDING], tokens[t], m->width, x), m->global[LN0_WEIGHT],
                        m->global[LN0_BIAS], x);
    }
}

/* Reads n tokens, n at most the chunk. Layer by layer, but what comes out of each for a token is
   computed from that token and what went before alone, and in one order: any chunk has the same
   bits. */
static void read_tokens(run *u, const size_t *tokens, size_t n)
{
    const rwkv_model *m = u->model;
    double begin = seconds_now();
    embed(u, tokens, n);
    for (size_t i = 0; i < m->layers; i++) {
        const pass p = {u, &m->layer[i], i, m->width, n};
        begin_block(&p, LN1_WEIGHT, LN1_BIAS, 0);
        if (m->version == RWKV_7) {
            attend_7(&p);
        } else {
            attend_5_6(&p);
        }
        end_attention(&p);
        begin_block(&p, LN2_WEIGHT, LN2_BIAS, 1);
        feed_forward(&p);
    }
    u->seconds += seconds_now() - begin;
}

/* The logits after the last of the n tokens that were read. */
static void make_logits(run *u, size_t n)
{
    const rwkv_model *m = u->model;
    double begin = seconds_now();
    normalise_layer(u->x + (n - 1) * m->width, m->global[LN_OUT_WEIGHT], m->global[LN_OUT_BIAS],
                    u->norm);
    multiply(u, m->global[HEAD], u->norm, u->logits, 1);
    u->seconds += seconds_now() - begin;
}

/* ---- Going on -------------------------------------------------------------------------------- */

/* What is asked for. */
typedef struct task {
    const rwkv_vocabulary *words;
    size_t *prompt, prompt_tokens, tokens, branches, generated;
    float temperature;
    uint64_t seed;
    int ends_at_0;
} task;

static int is_possible(const task *t, size_t token)
{
    return t->words->word[token].length > 0 || (t->ends_at_0 && token == 0);
}

/* The first of the likeliest tokens. NaN is never larger. */
static size_t likeliest(const task *t, const float *logits)
{
    size_t best = t->words->sorted[0].token;
    for (size_t i = 0; i < t->words->size; i++) {
        if (is_possible(t, i) && (logits[i] > logits[best] || logits[best] != logits[best])) {
            best = i;
        }
    }
    return best;
}

/* At random, in proportion to exp(logit / temperature). The largest number of SplitMix64's 53 upper
   bits is below 1, so that rounding alone can lead past the last token. */
static size_t sample(const task *t, const float *logits, float *weights, uint64_t *random)
{
    size_t best = likeliest(t, logits), last = best, n = t->words->size;
    if (t->temperature == 0) {
        return best;
    }
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double x = ((double)logits[i] - logits[best]) / t->temperature;
        weights[i] = x < -200 ? -200 : (float)x; /* e^-200 is 0 */
    }
    exponential(weights, n);
    for (size_t i = 0; i < n; i++) {
        weights[i] = is_possible(t, i) && weights[i] > 0 ? weights[i] : 0;
        sum += weights[i];
    }
    double at = (double)(random_bits(random) >> 11) * 0x1p-53 * sum;
    for (size_t i = 0; i < n; i++) {
        if (weights[i] > 0) {
            last = i;
            at -= weights[i];
            if (at < 0) {
                break;
            }
        }
    }
    return last;
}

/* Prints tokens as they come. */
static void go_on(run *u, task *t, float *logits, float *weights, uint64_t seed)
{
    uint64_t random = seed;
    for (size_t i = 0; i < t->tokens; i++) {
        size_t token = sample(t, logits, weights, &random);
        if (t->ends_at_0 && token == 0) {
            break;
        }
        const rwkv_word *word = &t->words->word[token];
        fwrite(word->bytes, 1, word->length, stdout);
        finish_printing();
        t->generated++;
        if (i + 1 < t->tokens) {
            read_tokens(u, &token, 1);
            make_logits(u, 1);
            logits = u->logits;
        }
    }
    if (t->tokens) {
        putchar('\n');
    }
}

/* The memory after the prompt is saved, and every branch begins with a copy of it. */
static void run_branches(run *u, task *t, float *logits)
{
    float *weights = floats(1, u->model->vocabulary);
    size_t bytes = memory_bytes(u);
    unsigned char *saved = t->branches > 1 ? allocate(bytes) : NULL;
    if (saved) {
        memcpy(saved, u->memory, bytes);
    }
    for (size_t i = 0; i < t->branches; i++) {
        if (saved) {
            memcpy(u->memory, saved, bytes);
            printf("--- %" PRIu64 " ---\n", t->seed + i);
        }
        go_on(u, t, logits, weights, t->seed + i);
    }
    finish_printing();
    free(saved);
    free(weights);
}

static void read_prompt(run *u, const task *t)
{
    size_t n = 0;
    for (size_t done = 0; done < t->prompt_tokens; done += n) {
        n = t->prompt_tokens - done < u->chunk ? t->prompt_tokens - done : u->chunk;
        read_tokens(u, t->prompt + done, n);
    }
    make_logits(u, n);
}

/* ---- Main ------------------------------------------------------------------------------------ */

static task read_task(const options *given, const rwkv_vocabulary *words)
{
    const char *prompt = given->text[OPTION_PROMPT] ? given->text[OPTION_PROMPT] : "\n";
    task t = {.words = words};
    t.prompt = allocate(product_of(strlen(prompt), sizeof(size_t)));
    t.prompt_tokens = rwkv_tokens_of(words, prompt, t.prompt);
    t.tokens = (size_t)whole_option(given, OPTION_TOKENS, 0, SIZE_MAX,
                                    given->text[OPTION_LOGITS] ? 0 : 100);
    t.branches = (size_t)whole_option(given, OPTION_BRANCHES, 1, SIZE_MAX, 1);
    t.temperature = float_option(given, OPTION_TEMPERATURE, 1, 1);
    t.seed = whole_option(given, OPTION_SEED, 0, UINT64_MAX, 0);
    t.ends_at_0 = given->text[OPTION_VOCAB] && words->word[0].length == 0;
    return t;
}

static void print_times(const run *u, const task *t, double prompt_seconds, double prompt_attention)
{
    double after = u->seconds - prompt_seconds, attention = u->attention_seconds - prompt_attention;
    fprintf(stderr, PROGRAM ": prompt: %zu tokens in %.3g s, attention %.1f %%", t->prompt_tokens,
            prompt_seconds, 100 * prompt_attention / prompt_seconds);
    if (after > 0) {
        fprintf(stderr, "; then %zu in %.3g s, attention %.1f %%", t->generated, after,
                100 * attention / after);
    }
    fprintf(stderr, " (%s, %zu thread%s)\n", linattn_isa_name(linattn_isa_active()), u->threads,
            u->threads == 1 ? "" : "s");
}

static void run_task(run *u, task *t, const options *given)
{
    size_t vocabulary = u->model->vocabulary;
    float *logits = floats(1, vocabulary);
    npy_array written = {.data = logits, .rank = 1, .shape = {vocabulary}};
    if (given->text[OPTION_LOGITS]) {
        add_output(given->text[OPTION_LOGITS], npy_write, &written);
    }
    read_prompt(u, t);
    double seconds = u->seconds, attention = u->attention_seconds;
    memcpy(logits, u->logits, vocabulary * sizeof *logits);
    run_branches(u, t, logits);
    publish_outputs();
    if (given->text[OPTION_TIME]) {
        print_times(u, t, seconds, attention);
    }
    free(logits);
}

int main(int argc, char **argv)
{
    options given = {option_names, OPTION_COUNT, OPTION_TIME, help, {NULL}};
    int has_model = begins_with_file(argc, argv);
    read_options(&given, argc - has_model, argv + has_model);
    if (!has_model) {
        fail("the model is missing: give its file first, rwkv MODEL (see --help)");
    }
    select_isa(&given, OPTION_ISA);
    run u = {.threads = read_threads(&given, OPTION_THREADS)};
    size_t chunk = (size_t)whole_option(&given, OPTION_CHUNK, 1, SIZE_MAX, 32);
    rwkv_model model = rwkv_read(argv[1]);
    rwkv_vocabulary words = rwkv_read_vocabulary(given.text[OPTION_VOCAB], model.vocabulary);
    task t = read_task(&given, &words);
    u.model = &model;
    u.chunk = chunk < t.prompt_tokens ? chunk : t.prompt_tokens;
    make_memory(&u);
    make_buffers(&u);
    u.context = start_threads(u.threads);
    run_task(&u, &t, &given);
    stop_threads(&u.context);
    free_run(&u);
    free(t.prompt);
    rwkv_free_vocabulary(&words);
    rwkv_free(&model);
    return 0;
}
