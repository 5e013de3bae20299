/* linattn_recurrent by all its rules: sequences, one token of many heads, one token of a small
   state; and plain C that does the same. The map is the identity and keys have length 1, as models
   normalise them before. */
#include "rules.h"

#include <math.h>
#include <stdio.h>

#include "benchmarks.h"
#include "peers/peers.h"

/* ---- The rules ------------------------------------------------------------------------------- */

typedef struct rule_row {
    const char *name;
    linattn_rule rule;
    /* Instructions that the FMA units cannot do without, for each element of S and token. A product
       takes as long there as a fused multiply-add, which the loop that they are held against counts
       as two flops: so each of these is two flops, too. gated: a s, + k v, and q s into the output.
       delta: + k u, q s, r s. gated delta: and a s. general: and + p (r S). What is done once for
       each feature or column is not counted. A decay that all rows share is, although linattn
       multiplies it up and saves it: the formula is the measure. */
    int operations;
    bool decay, per_feature, factors; /* else logarithms */
    bool bonus;
    plain_rule_step *step; /* one token in plain C */
} rule_row;

enum { GATED, GATED_CHANNEL, RWKV6, DELTA, GATED_DELTA, KDA, GENERAL, MLSTM };

static const rule_row rules[RULE_ROWS] = {
    [GATED] = {"gated", LINATTN_RULE_GATED, 3, true, false, false, false, plain_step_gated},
    [GATED_CHANNEL] = {"gated-channel", LINATTN_RULE_GATED, 3, true, true, false, false,
                       plain_step_gated_channel},
    [RWKV6] = {"rwkv6", LINATTN_RULE_GATED, 3, true, true, false, true, plain_step_rwkv6},
    [DELTA] = {"delta", LINATTN_RULE_DELTA, 3, false, false, false, false, plain_step_delta},
    [GATED_DELTA] = {"gated-delta", LINATTN_RULE_GATED_DELTA, 4, true, false, false, false,
                     plain_step_gated_delta},
    [KDA] = {"kda", LINATTN_RULE_GATED_DELTA, 4, true, true, false, false, plain_step_kda},
    [GENERAL] = {"general", LINATTN_RULE_GENERAL, 5, true, true, true, false, plain_step_general},
    [MLSTM] = {"mlstm", LINATTN_RULE_MLSTM, 3, true, false, false, false, plain_step_mlstm},
};

/* The rule of the other verbs, which have benchmarks of their own: for states of 16 bits alone. */
static const rule_row sum_row = {.name = "sum", .rule = LINATTN_RULE_SUM, .operations = 2};

const char *rule_row_name(int row) { return rules[row].name; }

/* Plain C, by the compilers that were found. */
typedef struct plain_row {
    const char *name;
    int rule;
    plain_rule *function;
} plain_row;

#define PLAINS(by)                                                                                 \
    {"rows-" #by, GATED, by##_rows_gated}, {"panels-" #by, GATED, by##_panels_gated},              \
        {"rows-" #by, GATED_DELTA, by##_rows_gated_delta},                                         \
        {"panels-" #by, GATED_DELTA, by##_panels_gated_delta},                                     \
        {"rows-" #by, GENERAL, by##_rows_general}, {"panels-" #by, GENERAL, by##_panels_general},

static const plain_row plains[] = {
#ifdef BENCH_PLAIN_GCC
    PLAINS(gcc)
#endif
#ifdef BENCH_PLAIN_CLANG
        PLAINS(clang)
#endif
            {0},
};

static void plain_call(bench *b);

/* The subject is a plain_row or a rule_row. */
static const plain_row *plain_of(const bench *b)
{
    return b->call == plain_call ? b->subject : NULL;
}

static const rule_row *rule_of(const bench *b)
{
    return plain_of(b) ? &rules[plain_of(b)->rule] : b->subject;
}

/* ---- Operands -------------------------------------------------------------------------------- */

/* [tokens][heads][dim], dense and in one block. */
typedef struct rule_operands {
    operands x;
    linattn_gates gates;
    float *block;
    size_t floats;
} rule_operands;

typedef struct space {
    float *block;
    size_t used;
} space;

/* The next tokens * heads rows, of numbers from bench_random; without a block it only counts. */
static linattn_view take_rows(const bench *b, space *from, size_t tokens, size_t dim)
{
    const size_t count = tokens * b->heads * dim;
    linattn_view view = {.stride_token = b->heads * dim, .stride_head = dim};
    if (from->block) {
        const float *random = bench_random(from->used + count) + from->used;
        float *x = from->block + from->used;
        for (size_t i = 0; i < count; i++) x[i] = random[i];
        view.data = x;
    }
    from->used += (count + 15) / 16 * 16;
    return view;
}

static rule_operands take_operands(const bench *b, space *from, size_t tokens)
{
    const rule_row *rule = rule_of(b);
    const bool delta = rule->rule == LINATTN_RULE_DELTA || rule->rule == LINATTN_RULE_GATED_DELTA;
    rule_operands o = {.x = {.q = take_rows(b, from, tokens, b->d),
                             .k = take_rows(b, from, tokens, b->d),
                             .v = take_rows(b, from, tokens, b->dv),
                             .tokens = tokens}};
    linattn_gates *g = &o.gates;
    g->decay_per_feature = rule->per_feature;
    g->decay_log = rule->decay && !rule->factors;
    if (rule->decay) g->decay = take_rows(b, from, tokens, rule->per_feature ? b->d : 1);
    if (delta) g->beta = take_rows(b, from, tokens, 1);
    if (rule->rule == LINATTN_RULE_MLSTM) g->input = take_rows(b, from, tokens, 1);
    if (rule->rule == LINATTN_RULE_GENERAL) g->read = take_rows(b, from, tokens, b->d);
    if (rule->rule == LINATTN_RULE_GENERAL) g->write = take_rows(b, from, tokens, b->d);
    if (rule->bonus) g->bonus = take_rows(b, from, 1, b->d);
    o.block = from->block;
    o.floats = from->used;
    return o;
}

static void make_unit(float *x, size_t rows, size_t d)
{
    for (size_t i = 0; i < rows; i++, x += d) {
        float sum = 0.0f;
        for (size_t f = 0; f < d; f++) sum += x[f] * x[f];
        for (size_t f = 0; f < d; f++) x[f] /= sqrtf(sum);
    }
}

/* From 0.7 to 1, mostly; beta within (0, 1); general as in RWKV-7: p = kappa alpha, r = -kappa. */
static void shape_gates(const bench *b, rule_operands *o)
{
    const rule_row *rule = rule_of(b);
    const size_t rows = o->x.tokens * b->heads;
    float *decay = (float *)o->gates.decay.data, *beta = (float *)o->gates.beta.data;
    float *read = (float *)o->gates.read.data, *write = (float *)o->gates.write.data;
    make_unit((float *)o->x.k.data, rows, b->d);
    for (size_t i = 0; decay && i < rows * (rule->per_feature ? b->d : 1); i++) {
        decay[i] = -0.1f * fabsf(decay[i]);
        if (rule->factors) decay[i] = expf(decay[i]);
    }
    for (size_t i = 0; beta && i < rows; i++) beta[i] = 1.0f / (1.0f + expf(-beta[i]));
    if (!read) return;
    make_unit(read, rows, b->d);
    for (size_t i = 0; i < rows * b->d; i++) {
        write[i] = read[i] / (1.0f + expf(-write[i]));
        read[i] = -read[i];
    }
}

static const char *make_operands(const bench *b, size_t tokens, rule_operands *o)
{
    space from = {0};
    const size_t floats = take_operands(b, &from, tokens).floats;
    from = (space){.block = bench_floats(floats)};
    if (!from.block || !bench_random(floats)) return bench_no_memory;
    *o = take_operands(b, &from, tokens);
    shape_gates(b, o);
    o->x.out.data = bench_floats(tokens * b->heads * b->dv);
    o->x.out.stride_token = b->heads * b->dv;
    o->x.out.stride_head = b->dv;
    return o->x.out.data ? NULL : bench_no_memory;
}

static void advance(linattn_view *view, size_t tokens)
{
    if (view->data) view->data += tokens * view->stride_token;
}

/* By pointers alone: this is timed, too, where calls are of one token. */
static void skip(rule_operands *o, size_t tokens)
{
    advance(&o->x.q, tokens);
    advance(&o->x.k, tokens);
    advance(&o->x.v, tokens);
    advance(&o->gates.decay, tokens);
    advance(&o->gates.beta, tokens);
    advance(&o->gates.read, tokens);
    advance(&o->gates.write, tokens);
    advance(&o->gates.input, tokens);
    o->x.out.data += tokens * o->x.out.stride_token;
}

/* ---- Running one ----------------------------------------------------------------------------- */

/* What the benchmark times, and what by turns with it: plain C with linattn, one token of a small
   state with causal's, compensated sums and those of 16 bits with plain ones. */
typedef struct rule_run {
    rule_operands o;
    void *state, *causal, *plain;
    float *s, *scratch;  /* of plain C */
    float *z, *e, *outs; /* and of its single tokens */
} rule_run;

/* `tokens` in calls of b->chunk. */
static void recur(const bench *b, const rule_run *r, size_t tokens)
{
    rule_operands at = r->o;
    for (size_t t = 0; t < tokens; t += b->chunk, skip(&at, b->chunk)) {
        const size_t n = tokens - t < b->chunk ? tokens - t : b->chunk;
        bench_check(
            b->library->recurrent(r->state, at.x.q, at.x.k, at.x.v, &at.gates, at.x.out, n, NULL));
    }
}

static void rule_call(bench *b) { recur(b, b->data, b->n); }

static void plain_sums_call(bench *b)
{
    rule_run r = *(const rule_run *)b->data;
    r.state = r.plain;
    recur(b, &r, b->n);
}

static void causal_call(bench *b)
{
    const rule_run *r = b->data;
    rule_operands at = r->o;
    for (size_t t = 0; t < b->n; t++, skip(&at, 1))
        bench_check(b->library->causal(r->causal, at.x.q, at.x.k, at.x.v, at.x.out, 1, NULL));
}

/* Heads one after the other: with more than one there is only one token. */
static void run_plain(const bench *b, const rule_run *r, size_t tokens)
{
    const operands *x = &r->o.x;
    const linattn_gates *g = &r->o.gates;
    for (size_t h = 0; h < b->heads; h++) {
        const peer_rule p = {
            .q = x->q.data + h * b->d,
            .k = x->k.data + h * b->d,
            .v = x->v.data + h * b->dv,
            .decay = g->decay.data + h * g->decay.stride_head,
            .beta = g->beta.data ? g->beta.data + h : NULL,
            .read = g->read.data ? g->read.data + h * b->d : NULL,
            .write = g->write.data ? g->write.data + h * b->d : NULL,
            .out = x->out.data + h * b->dv,
            .s = r->s + h * b->d * b->dv,
            .scratch = r->scratch,
            .n = tokens,
            .m = b->d,
            .dv = b->dv,
        };
        plain_of(b)->function(&p);
    }
}

static void plain_call(bench *b) { run_plain(b, b->data, b->n); }

/* One token after the other, all heads of each, with outputs and a state of its own. */
static void run_steps(const bench *b, const rule_run *r, size_t tokens)
{
    rule_operands at = r->o;
    for (size_t t = 0; t < tokens; t++, skip(&at, 1)) {
        const rule_step x = {.q = at.x.q.data,
                             .k = at.x.k.data,
                             .v = at.x.v.data,
                             .decay = at.gates.decay.data,
                             .beta = at.gates.beta.data,
                             .read = at.gates.read.data,
                             .write = at.gates.write.data,
                             .bonus = at.gates.bonus.data,
                             .input = at.gates.input.data,
                             .out = r->outs + t * b->heads * b->dv,
                             .s = r->s,
                             .z = r->z,
                             .e = r->e,
                             .scratch = r->scratch,
                             .heads = b->heads,
                             .m = b->d,
                             .dv = b->dv};
        rule_of(b)->step(&x);
    }
}

static void steps_call(bench *b) { run_steps(b, b->data, b->n); }

/* Few tokens are too easy: there are operands of so many, the first of which are timed. */
enum { LEAST_CHECKED = 16 };

/* Has a plain loop that is far off computed something else? */
static bool steps_differ(const bench *b, const rule_run *r, size_t tokens)
{
    double worst = 0.0;
    run_steps(b, r, tokens);
    for (size_t i = 0; i < tokens * b->heads * b->dv; i++) {
        const double off = fabs((double)r->outs[i] - (double)r->o.x.out.data[i]);
        if (!(off <= worst)) worst = off;
    }
    return !(worst < 1e-3);
}

static double run_error(const bench *b, const rule_run *r)
{
    oracle_problem p = bench_problem(b, &r->o.x, true);
    if (plain_of(b) && b->heads > 1) return -1.0; /* it is for one token */
    p.gates = r->o.gates;
    p.n = oracle_tokens(&p);
    if (plain_of(b))
        run_plain(b, r, p.n);
    else
        recur(b, r, p.n);
    if (b->base == steps_call && steps_differ(b, r, p.n)) return HUGE_VAL;
    return oracle_error(&p, r->o.x.out.data, r->o.x.out.stride_token);
}

/* Bandwidth is measured in the state, or in the operands if these are larger. */
static void set_limits(bench *b, rule_run *r)
{
    const size_t state = b->heads * b->d * b->dv;
    const size_t moved = b->n * (r->o.floats / r->o.x.tokens + b->heads * b->dv);
    const size_t element = b->state_type ? 2 : sizeof(float);
    b->flops = 2.0 * rule_of(b)->operations * b->items * (double)(b->d * b->dv);
    b->bytes = (double)(sizeof(float) * moved + 2 * element * state);
    if (moved > 2 * state) {
        b->memory = r->o.block;
        b->memory_floats = r->o.floats;
    } else if (plain_of(b)) {
        b->memory = r->s;
        b->memory_floats = state;
    } else {
        bench_memory_is_state(b, r->state);
    }
}

static const char *take_causal(const bench *b, rule_run *r)
{
    bench usual = *b;
    usual.rule = LINATTN_RULE_SUM;
    usual.map = LINATTN_MAP_ELU1;
    r->causal = bench_state(&usual);
    return r->causal ? NULL : bench_no_memory;
}

static const char *take_plain(const bench *b, rule_run *r)
{
    bench plain = *b;
    plain.variant = VARIANT_PLAIN;
    plain.state_type = LINATTN_F32;
    r->plain = bench_state(&plain);
    return r->plain ? NULL : bench_no_memory;
}

static const char *rule_open(bench *b)
{
    const size_t states = b->heads * b->d * b->dv;
    const size_t tokens = b->n < LEAST_CHECKED ? LEAST_CHECKED : b->n;
    rule_run *r = bench_take(sizeof *r);
    const char *problem = r ? make_operands(b, tokens, &r->o) : bench_no_memory;
    if (problem) return problem;
    b->data = r;
    b->items = (double)(b->n * b->heads);
    r->state = bench_state(b);
    r->s = bench_floats(plain_of(b) || b->base == steps_call ? states : 1);
    r->scratch = bench_floats(3 * b->dv + b->d);
    r->z = bench_floats(b->heads * b->d);
    r->e = bench_floats(b->heads);
    r->outs = bench_floats(b->base == steps_call ? tokens * b->heads * b->dv : 1);
    if (!r->state || !r->s || !r->scratch || !r->z || !r->e || !r->outs) return bench_no_memory;
    if (b->base == causal_call) problem = take_causal(b, r);
    if (b->base == plain_sums_call) problem = take_plain(b, r);
    if (problem) return problem;
    b->error = run_error(b, r);
    set_limits(b, r);
    return NULL;
}

/* ---- What is registered ---------------------------------------------------------------------- */

static const shape main_shapes[] = {{64, 64}, {128, 128}, {256, 256}, {128, 64}};

/* And what they lie between. */
static const shape odd_shapes[] = {{32, 32}, {33, 33}, {65, 65}, {96, 96}, {100, 100}};

static bench rule_bench(const rule_row *rule, shape x, size_t n)
{
    return (bench){.open = rule_open,
                   .call = rule_call,
                   .library = &library_o3,
                   .subject = rule,
                   .rule = rule->rule,
                   .map = LINATTN_MAP_IDENTITY,
                   .d = x.d,
                   .dv = x.dv,
                   .n = n,
                   .chunk = n,
                   .heads = 1};
}

/* On every instruction set; scalar code where it was asked for, on fewer tokens. */
static void add_each(const selection *s, const bench *usual, const char *kernel, const char *suffix)
{
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        const bool scalar = isa == LINATTN_ISA_SCALAR;
        bench b = *usual;
        if (!(s->isas >> isa & 1u) || (scalar && !s->given && !s->full)) continue;
        b.isa = (linattn_isa)isa;
        if (scalar && !s->given && b.n == usual_length) b.n = scalar_length;
        bench_add(&b, "%s/%s/%s/%zux%zu/%zu%s", kernel, rule_of(&b)->name, bench_by(&b), b.d, b.dv,
                  b.chunk == 1 ? 1 : b.n, suffix);
    }
}

/* Plain C for this rule, timed by turns with linattn, but for decode: each would evict the other's
   states. */
static void add_plains(const selection *s, int rule, shape x, size_t n, size_t heads)
{
    bench b = rule_bench(&rules[rule], x, n);
    b.call = plain_call;
    b.base = rule_call;
    b.comparison = heads == 1 ? COMPARE_TIMES : COMPARE_NOT;
    b.isa = selection_best(s);
    b.heads = heads;
    if (b.isa == LINATTN_ISA_SCALAR) return;
    for (const plain_row *p = plains; p->name; p++) {
        b.subject = p;
        if (p->rule != rule) continue;
        if (heads == 1)
            bench_add(&b, "recurrent/%s/%s/%zux%zu/%zu", rules[rule].name, p->name, x.d, x.dv, n);
        else
            bench_add(&b, "recurrent-decode/%s/%s/%zux%zu/1/h%zu", rules[rule].name, p->name, x.d,
                      x.dv, heads);
    }
}

static void add_sequence(const selection *s, int rule, shape x, size_t n)
{
    const bench b = rule_bench(&rules[rule], x, n);
    add_each(s, &b, "recurrent", "");
}

/* The same in calls of 64 tokens. */
static void add_calls(const selection *s, int rule)
{
    bench b = rule_bench(&rules[rule], (shape){128, 128}, usual_length);
    b.chunk = 64;
    add_each(s, &b, "recurrent", "/calls64");
}

/* Eight heads, whose rows take turns. */
static void add_turns(const selection *s, int rule)
{
    bench b = rule_bench(&rules[rule], (shape){64, 64}, usual_length);
    b.heads = 8;
    add_each(s, &b, "recurrent", "/heads8");
}

static void add_compensated(const selection *s, int rule)
{
    bench b = rule_bench(&rules[rule], (shape){64, 64}, usual_length);
    b.variant = VARIANT_COMPENSATED;
    b.base = plain_sums_call;
    b.comparison = COMPARE_TIMES;
    add_each(s, &b, "recurrent", "/compensated");
}

/* One token for each of many heads. */
static void add_decode(const selection *s, int rule, size_t heads)
{
    bench b = rule_bench(&rules[rule], (shape){128, 128}, 1);
    char suffix[32];
    snprintf(suffix, sizeof suffix, "/h%zu", heads);
    b.heads = heads;
    add_each(s, &b, "recurrent-decode", suffix);
    add_plains(s, rule, (shape){128, 128}, 1, heads);
}

/* States of 16-bit numbers beside those of floats. */
static void add_state16(const selection *s, const rule_row *rule, shape x, size_t n, size_t heads)
{
    bench b = rule_bench(rule, x, n);
    char suffix[32];
    if (rule == &sum_row) b.map = LINATTN_MAP_ELU1;
    b.heads = heads;
    b.base = plain_sums_call;
    b.comparison = COMPARE_TIMES;
    for (int bf = 0; bf < 2; bf++) {
        b.state_type = bf ? LINATTN_BF16 : LINATTN_F16;
        snprintf(suffix, sizeof suffix, "/h%zu-%s", heads, bf ? "bf16" : "f16");
        add_each(s, &b, "state16", suffix);
    }
}

/* One token of a small state, compiled with -O2 as small.c has it: beside one of causal, and beside
   a plain loop. */
static void add_step(const selection *s, int rule)
{
    enum { TOKENS = 64 }; /* one after the other, so that few can be guessed */
    bench b = rule_bench(&rules[rule], (shape){16, 16}, TOKENS);
    b.base = causal_call;
    b.comparison = COMPARE_TIMES;
    b.library = &library_o2;
    b.chunk = 1;
    add_each(s, &b, "recurrent-step", "/h1");
    b.base = steps_call;
    b.comparison = COMPARE_SHARE;
    add_each(s, &b, "recurrent-step", "/plain-h1");
    b.heads = 8;
    add_each(s, &b, "recurrent-step", "/plain-h8");
}

static void register_samples(const selection *s)
{
    static const int called[] = {GATED, GATED_DELTA, DELTA};
    static const int decoded[] = {GATED, GATED_DELTA, DELTA, KDA, GENERAL};
    static const rule_row *const halved[] = {&sum_row, &rules[GATED], &rules[GATED_DELTA]};
    static const size_t heads[] = {512, 32, 1};
    for (int rule = 0; rule < RULE_ROWS; rule++) {
        for (size_t i = 0; i < COUNT(main_shapes); i++) {
            add_sequence(s, rule, main_shapes[i], usual_length);
            add_plains(s, rule, main_shapes[i], usual_length, 1);
        }
        for (size_t i = 0; i < COUNT(odd_shapes); i++)
            if (rule == GATED || rule == GATED_DELTA || s->full)
                add_sequence(s, rule, odd_shapes[i], usual_length);
    }
    for (size_t i = 0; i < COUNT(called); i++) add_calls(s, called[i]);
    for (size_t i = 0; i < COUNT(decoded); i++) {
        add_decode(s, decoded[i], 32);
        add_decode(s, decoded[i], 512);
    }
    for (int rule = 0; rule < RULE_ROWS; rule++) {
        add_turns(s, rule);
        add_step(s, rule);
    }
    add_compensated(s, GATED);
    add_compensated(s, GATED_CHANNEL);
    for (size_t i = 0; i < 2; i++) /* (64,64) and (128,128) */
        for (size_t j = 0; j < COUNT(halved); j++) {
            for (size_t k = 0; k < COUNT(heads); k++)
                add_state16(s, halved[j], main_shapes[i], 1, heads[k]);
            add_state16(s, halved[j], main_shapes[i], 1024, 1);
        }
}

static void register_given(const selection *s, int rule)
{
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t j = 0; j < s->n_count; j++) {
            add_sequence(s, rule, s->shapes[i], s->n[j]);
            add_plains(s, rule, s->shapes[i], s->n[j], 1);
        }
}

void register_rules(const selection *s)
{
    if (!s->given) register_samples(s);
    for (int rule = 0; s->given && rule < RULE_ROWS; rule++)
        if (s->rules >> rule & 1u) register_given(s, rule);
}
