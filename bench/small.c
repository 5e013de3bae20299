/* One token of small states, and of many: what a game does in a frame; a few tokens in a call, one
   token of query heads that share a key, and exact attention over short caches. Timed by turns with
   a plain loop. The library is compiled with -O2 here, as most programs are, and once more with -O3
   to show what that makes of it. */
#include <math.h>

#include "benchmarks.h"
#include "peers/peers.h"

/* So many tokens of one sequence, or a token of each of so many agents. The plain loop has outputs
   and states of its own. */
typedef struct small {
    operands o;
    size_t n;      /* of each call; 0 checks everything and computes nothing */
    size_t step;   /* from call to call: that, or 1 */
    void **states; /* for each token */
    float *out, *s, *z;
    size_t next_s, next_z; /* 0 within a sequence */
} small;

typedef struct verb {
    const char *name, *map_name;
    linattn_feature_map map;
    void (*call)(bench *b);
    plain_step *plain;
} verb;

/* ---- Calls of a token, or a few -------------------------------------------------------------- */

/* Dense, as linattn_rows has it. */
static linattn_view row(linattn_view view, size_t i)
{
    return (linattn_view){.data = view.data + i * view.stride_token};
}

static linattn_output out_row(linattn_output out, size_t i)
{
    return (linattn_output){.data = out.data + i * out.stride_token};
}

static void causal(bench *b)
{
    const small *x = b->data;
    linattn_status problem = LINATTN_OK;
    for (size_t i = 0; i < b->n; i += x->step) {
        const linattn_status status =
            b->library->causal(x->states[i], row(x->o.q, i), row(x->o.k, i), row(x->o.v, i),
                               out_row(x->o.out, i), x->n, NULL);
        if (status != LINATTN_OK) problem = status;
    }
    bench_check(problem);
}

static void update(bench *b)
{
    const small *x = b->data;
    linattn_status problem = LINATTN_OK;
    for (size_t i = 0; i < b->n; i += x->step) {
        const linattn_status status =
            b->library->update(x->states[i], row(x->o.k, i), row(x->o.v, i), x->n, NULL);
        if (status != LINATTN_OK) problem = status;
    }
    bench_check(problem);
}

static void query(bench *b)
{
    const small *x = b->data;
    linattn_status problem = LINATTN_OK;
    for (size_t i = 0; i < b->n; i += x->step) {
        const linattn_status status =
            b->library->query(x->states[i], row(x->o.q, i), out_row(x->o.out, i), x->n, NULL);
        if (status != LINATTN_OK) problem = status;
    }
    bench_check(problem);
}

#ifdef BENCH_MANY
static void causal_many(bench *b)
{
    const small *x = b->data;
    bench_check(b->library->causal_many(x->states, b->n, row(x->o.q, 0), row(x->o.k, 0),
                                        row(x->o.v, 0), out_row(x->o.out, 0), x->n, NULL));
}
#endif

static void run_plain(const bench *b, plain_step *step)
{
    const small *x = b->data;
    for (size_t i = 0; i < b->n; i++)
        step(b->heads, b->d, b->dv, row(x->o.q, i).data, row(x->o.k, i).data, row(x->o.v, i).data,
             x->out + i * b->heads * b->dv, x->s + i * x->next_s, x->z + i * x->next_z);
}

static void plain(bench *b) { run_plain(b, ((const verb *)b->subject)->plain); }

static const verb verbs[] = {
    {"step", "elu1", LINATTN_MAP_ELU1, causal, plain_step_elu1},
    {"step", "relu", LINATTN_MAP_RELU, causal, plain_step_relu},
    {"step", "identity", LINATTN_MAP_IDENTITY, causal, plain_step_identity},
    {"step", "exp", LINATTN_MAP_EXP, causal, plain_step_exp},
    {"step-update", "elu1", LINATTN_MAP_ELU1, update, plain_step_update},
    {"step-query", "elu1", LINATTN_MAP_ELU1, query, plain_step_query},
};

static const verb few[] = {
    {"few", "elu1", LINATTN_MAP_ELU1, causal, plain_step_elu1},
    {"few-query", "elu1", LINATTN_MAP_ELU1, query, plain_step_query},
};

/* Query heads of one key. */
static const verb grouped = {"grouped", "elu1", LINATTN_MAP_ELU1, causal, plain_step_grouped};

/* A token whose features are made, without a plain loop. */
static const verb made = {"made", NULL, LINATTN_MAP_ELU1, causal, NULL};

/* What its checks cost, without a plain loop. */
static const verb checks[] = {
    {"checks-causal", "elu1", LINATTN_MAP_ELU1, causal, NULL},
    {"checks-update", "elu1", LINATTN_MAP_ELU1, update, NULL},
    {"checks-query", "elu1", LINATTN_MAP_ELU1, query, NULL},
};

static const verb agents[] = {
    {"agents", "elu1", LINATTN_MAP_ELU1, causal, plain_step_elu1},
#ifdef BENCH_MANY
    {"agents-many", "elu1", LINATTN_MAP_ELU1, causal_many, plain_step_elu1},
#endif
};

/* ---- Operands and states --------------------------------------------------------------------- */

/* The sum of the identity's features would cancel, and the quotient mean nothing. */
static const char *make_positive(const bench *b, operands *o)
{
    const size_t keys = b->n * b->heads * b->d;
    float *q = bench_floats(keys), *k = bench_floats(keys);
    if (!q || !k) return bench_no_memory;
    for (size_t i = 0; i < keys; i++) {
        q[i] = fabsf(o->q.data[i]);
        k[i] = fabsf(o->k.data[i]);
    }
    o->q.data = q;
    o->k.data = k;
    return NULL;
}

/* Each on a cache line of its own, one after the other. */
static const char *take_states(const bench *b, small *x, size_t sequences)
{
    const linattn_config config = bench_config(b);
    const size_t bytes = b->library->state_size(&config), each = (bytes + 63) / 64 * 64;
    const size_t s = b->heads * b->d * b->dv, z = b->heads * b->d;
    char *states = bench_take(sequences * each);
    x->states = bench_take(b->n * sizeof *x->states);
    x->out = bench_floats(b->n * b->heads * b->dv);
    x->s = bench_floats(sequences * s);
    x->z = bench_floats(sequences * z);
    if (!states || !x->states || !x->out || !x->s || !x->z) return bench_no_memory;
    for (size_t i = 0; i < b->n; i++) x->states[i] = states + (sequences > 1 ? i * each : 0);
    for (size_t i = 0; i < sequences; i++)
        bench_check(b->library->state_init(&config, states + i * each, bytes));
    if (sequences == 1) return NULL;
    x->next_s = s;
    x->next_z = z;
    return NULL;
}

/* The largest difference of `count` outputs from the plain loop's, relative to the largest element
   of a row. The plain loop makes NaN of a denominator of zero. */
static double difference(const bench *b, size_t count, const float *out, const float *plain_out)
{
    double worst = 0.0;
    for (size_t i = 0; i < count; i += b->dv) {
        double largest = 0.0, off = 0.0;
        for (size_t c = 0; c < b->dv; c++) {
            const double is = (double)out[i + c], should = (double)plain_out[i + c];
            if (isnan(should)) continue;
            largest = fmax(largest, fabs(should));
            off = isnan(is) ? HUGE_VAL : fmax(off, fabs(is - should));
        }
        if (off > 0.0) worst = fmax(worst, off / largest);
    }
    return worst;
}

/* Call by call, from an empty state. What a verb leaves in the state is read with
   queries; to what reads alone, keys are added first. */
static double small_error(bench *b, const small *x)
{
    enum { SAME = 1000 }; /* a plain loop further off than this error computes something else */
    const verb *v = b->subject;
    const bool reads = v->call != update, writes = v->call != query;
    oracle_problem p = bench_problem(b, &x->o, reads && writes);
    double off, error;
    if (!writes) update(b);
    if (!writes) run_plain(b, plain_step_update);
    b->call(b);
    plain(b);
    if (!reads) query(b);
    if (!reads) run_plain(b, plain_step_query);
    off = difference(b, b->n * b->heads * b->dv, x->o.out.data, x->out);
    if (x->next_s) p.n = 1; /* the first agent's */
    error = oracle_error(&p, x->o.out.data, x->o.out.stride_token);
    return off > 1.0 / SAME ? off : error;
}

static const char *small_open_as(bench *b, size_t sequences)
{
    const verb *v = b->subject;
    small *x = bench_take(sizeof *x);
    const char *problem = x ? bench_operands(b, b->n, &x->o) : bench_no_memory;
    if (!problem && v->map == LINATTN_MAP_IDENTITY) problem = make_positive(b, &x->o);
    if (!problem) problem = take_states(b, x, sequences);
    if (problem) return problem;
    b->data = x;
    b->items = (double)b->n;
    x->n = v->plain ? b->chunk : 0;
    x->step = b->chunk;
    if (v->plain) b->error = small_error(b, x);
    return NULL;
}

static const char *small_open(bench *b) { return small_open_as(b, 1); }

static const char *made_open(bench *b)
{
    const char *problem = small_open_as(b, 1);
    small *x = b->data;
    oracle_problem p;
    if (problem) return problem;
    x->n = 1;
    p = bench_problem(b, &x->o, true);
    causal(b);
    b->error = oracle_error(&p, x->o.out.data, x->o.out.stride_token);
    return NULL;
}

/* All tokens at once. */
static void prefill(bench *b)
{
    const small *x = b->data;
    bench_check(b->library->causal(x->states[0], x->o.q, x->o.k, x->o.v, x->o.out, b->n, NULL));
}

static const char *agents_open(bench *b) { return small_open_as(b, b->n); }

/* ---- Exact attention of one query ------------------------------------------------------------ */

/* Of all heads against a short cache, [keys][heads][dim]. */
typedef struct cache {
    linattn_config config;
    operands o;
    float *plain; /* the loop's outputs */
    void *workspace;
    size_t bytes;
} cache;

static void short_call(bench *b)
{
    const cache *x = b->data;
    bench_check(b->library->softmax(&x->config, x->o.q, 1, x->o.k, x->o.v, b->n, x->o.out, 0,
                                    x->workspace, x->bytes, NULL));
}

static void short_plain(bench *b)
{
    const cache *x = b->data;
    plain_step_softmax(b->heads, b->n, b->d, b->dv, x->config.scale, x->o.q.data, x->o.k.data,
                       x->o.v.data, x->plain);
}

static const char *short_open(bench *b)
{
    cache *x = bench_take(sizeof *x);
    const char *problem = x ? bench_operands(b, b->n, &x->o) : bench_no_memory;
    if (problem) return problem;
    x->config = bench_config(b);
    x->config.scale = 1.0f / sqrtf((float)b->d);
    x->bytes = b->library->workspace_size(&x->config, LINATTN_WORKSPACE_SOFTMAX, NULL);
    x->workspace = bench_take(x->bytes);
    x->plain = bench_floats(b->heads * b->dv);
    if (!x->workspace || !x->plain) return bench_no_memory;
    b->data = x;
    b->items = 1;
    short_call(b);
    short_plain(b);
    b->error = difference(b, b->heads * b->dv, x->o.out.data, x->plain);
    return NULL;
}

/* ---- What is registered ---------------------------------------------------------------------- */

static bench bench_of(const verb *v, shape x, size_t heads)
{
    return (bench){.open = small_open,
                   .call = v->call,
                   .base = plain,
                   .comparison = v->plain ? COMPARE_SHARE : COMPARE_NOT,
                   .library = &library_o2,
                   .subject = v,
                   .map = v->map,
                   .normaliser = LINATTN_NORM_SUM,
                   .variant = VARIANT_HEADS,
                   .d = x.d,
                   .dv = x.dv,
                   .chunk = 1,
                   .heads = heads};
}

/* As many tokens as leave room for the state in the caches next to the core, few of which can be
   guessed from the last ones. */
static size_t tokens_of(const bench *b)
{
    const size_t bytes = sizeof(float) * 2 * b->heads * (b->d + b->dv), most = 65536 / bytes;
    return most < 8 ? 8 : most > 64 ? 64 : most;
}

static void add_step(const selection *s, bench b)
{
    const verb *v = b.subject;
    const bool usual = v->name == verbs[0].name && v->map == LINATTN_MAP_ELU1;
    if (!(s->maps >> v->map & 1u)) return;
    b.n = tokens_of(&b);
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        const bool scalar = isa == LINATTN_ISA_SCALAR;
        b.isa = (linattn_isa)isa;
        b.library = &library_o2;
        if (!(s->isas >> isa & 1u) || (scalar && !usual && !s->full)) continue;
        bench_add(&b, "%s/%s/%s/%zux%zu/%d/h%zu", v->name, v->map_name, bench_by(&b), b.d, b.dv,
                  v->plain ? 1 : 0, b.heads);
        if (!usual || scalar) continue;
        b.library = &library_o3;
        bench_add(&b, "%s/%s/%s-O3/%zux%zu/1/h%zu", v->name, v->map_name, bench_by(&b), b.d, b.dv,
                  b.heads);
    }
}

/* On every vector instruction set. */
static void add_vectors(const selection *s, bench b, char as, size_t count)
{
    const verb *v = b.subject;
    for (int isa = LINATTN_ISA_SCALAR + 1; isa < LINATTN_ISA_COUNT; isa++) {
        b.isa = (linattn_isa)isa;
        if (s->isas >> isa & 1u)
            bench_add(&b, "%s/%s/%s/%zux%zu/%zu/%c%zu", v->name, v->map_name, bench_by(&b), b.d,
                      b.dv, b.chunk, as, count);
    }
}

/* A few tokens in each call, of one head. */
static void register_few(const selection *s)
{
    static const shape shapes[] = {{8, 8}, {16, 16}, {32, 32}, {64, 64}};
    static const size_t tokens[] = {2, 3, 4, 8};
    for (size_t i = 0; i < COUNT(few); i++)
        for (size_t j = 0; j < COUNT(shapes); j++)
            for (size_t t = 0; t < COUNT(tokens); t++) {
                bench b = bench_of(&few[i], shapes[j], 1);
                b.chunk = tokens[t];
                b.n = tokens_of(&b) / b.chunk * b.chunk;
                add_vectors(s, b, 'h', 1);
            }
}

/* One token of a key/value head that several query heads share. */
static void register_grouped(const selection *s)
{
    static const shape shapes[] = {{32, 32}, {64, 64}, {128, 128}};
    static const size_t groups[] = {2, 3, 4, 8};
    for (size_t j = 0; j < COUNT(shapes); j++)
        for (size_t g = 0; g < COUNT(groups); g++) {
            bench b = bench_of(&grouped, shapes[j], groups[g]);
            b.variant = VARIANT_GROUPED;
            b.n = tokens_of(&b);
            add_vectors(s, b, 'g', groups[g]);
        }
}

/* One token of maps whose features are made, against all in one call. */
static void register_made(const selection *s)
{
    static const method cases[] = {
        {LINATTN_MAP_FAVOR, 64, {16, 16}},
        {LINATTN_MAP_FAVOR, 256, {64, 64}},
        {LINATTN_MAP_FAVOR_HYPERBOLIC, 128, {64, 64}},
        {LINATTN_MAP_TAYLOR, 2, {16, 16}},
        {LINATTN_MAP_TAYLOR, 2, {16, 64}},
        {LINATTN_MAP_TAYLOR, 4, {8, 64}},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int isa = LINATTN_ISA_SCALAR + 1; isa < LINATTN_ISA_COUNT; isa++) {
            bench b = bench_of(&made, cases[i].shape, 1);
            b.open = made_open;
            b.base = prefill;
            b.comparison = COMPARE_TIMES;
            b.map = cases[i].map;
            b.parameter = cases[i].parameter;
            b.n = 64;
            b.isa = (linattn_isa)isa;
            if ((s->isas >> isa & 1u) && (s->maps >> b.map & 1u))
                bench_add(&b, "made/%s/%s/%zux%zu/1/h1", bench_map(&b), bench_by(&b), b.d, b.dv);
        }
}

/* 300 agents of two heads of 16. */
static void register_agents(const selection *s)
{
    for (size_t i = 0; i < COUNT(agents); i++)
        for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
            bench b = bench_of(&agents[i], (shape){16, 16}, 2);
            b.open = agents_open;
            b.isa = (linattn_isa)isa;
            b.n = 300;
            if (s->isas >> isa & 1u)
                bench_add(&b, "%s/%s/%s/%zux%zu/1/h%zu-a%zu", agents[i].name, agents[i].map_name,
                          bench_by(&b), b.d, b.dv, b.heads, b.n);
        }
}

/* One query of exact attention. */
static void register_short(const selection *s)
{
    static const verb exact = {"short", "exact", LINATTN_MAP_ELU1, short_call, NULL};
    static const shape shapes[] = {{16, 16}, {32, 32}, {64, 64}, {128, 128}};
    static const size_t keys[] = {1, 16, 40, 64, 256}, heads[] = {1, 8};
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (size_t j = 0; j < COUNT(keys); j++)
            for (size_t h = 0; h < COUNT(heads); h++)
                for (int isa = LINATTN_ISA_SCALAR + 1; isa < LINATTN_ISA_COUNT; isa++) {
                    bench b = bench_of(&exact, shapes[i], heads[h]);
                    b.open = short_open;
                    b.base = short_plain;
                    b.comparison = COMPARE_SHARE;
                    b.n = keys[j];
                    b.isa = (linattn_isa)isa;
                    if (s->isas >> isa & 1u)
                        bench_add(&b, "%s/%s/%s/%zux%zu/%zu/h%zu", exact.name, exact.map_name,
                                  bench_by(&b), b.d, b.dv, b.n, b.heads);
                }
}

static bool one_token(const selection *s)
{
    for (size_t i = 0; i < s->n_count; i++)
        if (s->n[i] == 1) return true;
    return false;
}

void register_small(const selection *s)
{
    static const shape usual[] = {{4, 4}, {8, 8}, {16, 16}, {32, 32}, {64, 64}};
    const shape *shapes = s->given ? s->shapes : usual;
    const size_t shape_count = s->given ? s->shape_count : COUNT(usual);
    if (!one_token(s)) return;
    for (size_t i = 0; i < COUNT(verbs); i++)
        for (size_t j = 0; j < shape_count; j++) {
            add_step(s, bench_of(&verbs[i], shapes[j], 1));
            add_step(s, bench_of(&verbs[i], shapes[j], 8));
        }
    if (s->given) return;
    for (size_t i = 0; i < COUNT(checks); i++)
        add_step(s, bench_of(&checks[i], (shape){16, 16}, 1));
    register_few(s);
    register_grouped(s);
    register_made(s);
    register_agents(s);
    register_short(s);
}
