/* Benchmarks of the public verbs: decode steps, whole sequences, threads. */
#include "bench.h"
#include "pool.h"

static const char no_memory[] = "not enough memory";

/* ---- decode: one token for each of many heads ----------------------------------------------- */

enum { DECODE_TOKENS = 16 }; /* that are checked; the first one is timed */

typedef struct verb_run {
    operands o;
    void *state; /* or workspace */
    size_t bytes;
    linattn_context context;
} verb_run;

static linattn_view at(linattn_view view, size_t token)
{
    view.data += token * view.stride_token;
    return view;
}

static void decode_step(verb_run *r, size_t token)
{
    linattn_output out = r->o.out;
    out.data += token * out.stride_token;
    bench_check(linattn_causal(r->state, at(r->o.q, token), at(r->o.k, token), at(r->o.v, token),
                               out, 1, NULL));
}

static void decode_call(bench *b) { decode_step(b->data, 0); }

static double verb_error(const bench *b, const operands *o, bool causal)
{
    const oracle_problem p = bench_problem(b, o, causal);
    return oracle_tokens(&p) == b->n ? oracle_error(&p, o->out.data, o->out.stride_token) : -1.0;
}

static const char *decode_open(bench *b)
{
    verb_run *r = bench_take(sizeof *r);
    const double heads = (double)b->heads, each = (double)(b->d * b->dv);
    const char *problem;
    if (!r) return no_memory;
    r->state = bench_state(b);
    problem = bench_operands(b, &r->o);
    if (problem || !r->state) return problem ? problem : no_memory;
    for (size_t t = 0; t < DECODE_TOKENS; t++) decode_step(r, t);
    b->data = r;
    b->error = verb_error(b, &r->o, true);
    b->items = heads;
    b->flops = 4.0 * heads * each;
    b->bytes = 2.0 * sizeof(float) * heads * (each + (double)(b->d + b->dv));
    bench_memory_is_state(b, r->state);
    return NULL;
}

/* With a window, whose sums are not those of a state without. */
static void add_windowed(bench b)
{
    b.window = 256;
    bench_add(&b, "decode/elu1/%s/%zux%zu/1/h%zu-w%zu", linattn_isa_name(b.isa), b.d, b.dv, b.heads,
              b.window);
}

static void register_decode(const selection *s)
{
    static const size_t heads[] = {1, 2, 8, 32, 128, 512};
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                const shape x = s->shapes[i];
                const bool usual = (x.d == 64 || x.d == 128) && x.d == x.dv;
                const bench b = {.open = decode_open,
                                 .call = decode_call,
                                 .heads = heads[h],
                                 .isa = (linattn_isa)isa,
                                 .d = x.d,
                                 .dv = x.dv,
                                 .n = DECODE_TOKENS,
                                 .variant = VARIANT_HEADS};
                if (!(s->isas >> isa & 1u) || !(s->maps & 1u << LINATTN_MAP_ELU1)) continue;
                if (!s->given && !s->full && (!usual || isa == LINATTN_ISA_SCALAR)) continue;
                bench_add(&b, "decode/elu1/%s/%zux%zu/1/h%zu", linattn_isa_name(b.isa), x.d, x.dv,
                          heads[h]);
                if (x.d == 64 && heads[h] == 32) add_windowed(b);
            }
}

/* ---- Whole sequences, with and without threads ---------------------------------------------- */

static void causal(bench *b, const linattn_context *context)
{
    verb_run *r = b->data;
    bench_check(linattn_causal(r->state, r->o.q, r->o.k, r->o.v, r->o.out, b->n, context));
}

static void bidirectional(bench *b, const linattn_context *context)
{
    verb_run *r = b->data;
    const linattn_config config = bench_config(b);
    bench_check(linattn_bidirectional(&config, r->o.q, b->n, r->o.k, r->o.v, b->n, r->o.out,
                                      r->state, r->bytes, context));
}

static void exact(bench *b, const linattn_context *context)
{
    verb_run *r = b->data;
    const linattn_config config = bench_config(b);
    bench_check(linattn_softmax(&config, r->o.q, b->n, r->o.k, r->o.v, b->n, r->o.out, b->causal,
                                r->state, r->bytes, context));
}

typedef struct verb {
    const char *name; /* kernel/map */
    void (*run)(bench *b, const linattn_context *context);
    linattn_workspace workspace;
    bool causal;
} verb;

static const verb verbs[] = {
    {"bidirectional/elu1", bidirectional, LINATTN_WORKSPACE_BIDIRECTIONAL, false},
    {"causal/elu1", causal, LINATTN_WORKSPACE_BIDIRECTIONAL, true}, /* a state fits in there */
    {"softmax/causal", exact, LINATTN_WORKSPACE_SOFTMAX, true},
};

static void verb_call(bench *b)
{
    verb_run *r = b->data;
    ((const verb *)b->subject)->run(b, &r->context);
}

static void verb_base(bench *b) { ((const verb *)b->subject)->run(b, NULL); }

static double verb_flops(const bench *b)
{
    const double n = (double)b->n, heads = (double)b->heads;
    const verb *subject = b->subject;
    if (subject->workspace != LINATTN_WORKSPACE_SOFTMAX)
        return 2.0 * heads * n * bench_token_flops(b);
    return heads * n * (n + 1.0) * (double)(b->d + b->dv);
}

static const char *verb_open(bench *b)
{
    const linattn_config config = bench_config(b);
    const verb *subject = b->subject;
    verb_run *r = bench_take(sizeof *r);
    const char *problem;
    if (!r) return no_memory;
    if (b->threads > 1) {
        r->context.parallel_for = pool_parallel_for;
        r->context.threads = b->threads;
        r->context.user = pool_of(b->threads);
        if (!r->context.user) return "no threads";
    }
    r->bytes = linattn_workspace_size(&config, subject->workspace, &r->context);
    r->state = bench_take(r->bytes);
    problem = bench_operands(b, &r->o);
    if (problem || !r->state) return problem ? problem : no_memory;
    if (subject->run == causal) bench_check(linattn_state_init(&config, r->state, r->bytes));
    b->data = r;
    b->call(b);
    if (subject->run != exact) b->error = verb_error(b, &r->o, b->causal); /* exact: too long */
    b->items = (double)(b->heads * b->n);
    b->flops = verb_flops(b);
    b->bytes = 0.0;
    return NULL;
}

/* Exact attention takes long: one shape will do. */
static void add_verb(const selection *s, bench b, const verb *subject, size_t heads, size_t threads)
{
    if (subject->run == exact && !s->given && !s->full && (b.d != 64 || b.dv != 64)) return;
    b.subject = subject;
    b.causal = subject->causal;
    b.open = verb_open;
    b.call = verb_call;
    b.heads = heads;
    b.threads = threads;
    if (threads > 1) {
        b.base = verb_base;
        b.base_counter = "speedup";
    }
    if (!bench_wanted(s, &b) || !bench_sampled(s, &b)) return;
    if (threads > 1)
        bench_add(&b, "%s/%s/%zux%zu/%zu/heads%zu-t%zu", subject->name, linattn_isa_name(b.isa),
                  b.d, b.dv, b.n, heads, threads);
    else
        bench_add(&b, "%s/%s/%zux%zu/%zu", subject->name, linattn_isa_name(b.isa), b.d, b.dv, b.n);
}

static void register_sequences(const selection *s)
{
    const size_t processors = pool_processors();
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                bench b = {.isa = (linattn_isa)isa,
                           .d = s->shapes[i].d,
                           .dv = s->shapes[i].dv,
                           .n = s->n[j]};
                add_verb(s, b, &verbs[0], 1, 1); /* the others are kernels, too */
                if (b.n != bench_usual_length || b.d < 64) continue;
                for (size_t threads = 2; threads <= processors; threads *= 2)
                    for (size_t v = 0; v < sizeof verbs / sizeof verbs[0]; v++) {
                        add_verb(s, b, &verbs[v], 1, threads);
                        add_verb(s, b, &verbs[v], 8, threads);
                    }
            }
}

/* ---- Nystroem ------------------------------------------------------------------------------- */

enum { LANDMARKS = 64 };

static void nystrom_call(bench *b)
{
    const verb_run *r = b->data;
    const linattn_config config = bench_config(b);
    bench_check(linattn_nystrom(&config, r->o.q, b->n, r->o.k, r->o.v, b->n, r->o.out, 0, r->state,
                                r->bytes, NULL));
}

static double nystrom_error(const bench *b, const operands *o)
{
    const oracle_problem p = bench_problem(b, o, false);
    return oracle_error(&p, o->out.data, o->out.stride_token);
}

/* The flops are 2 n L d for each of F and B and 2 n L dv for each of their products with values;
   what landmarks and the pseudo-inverse take, which does not grow with n, is not counted. */
static const char *nystrom_open(bench *b)
{
    const linattn_config config = bench_config(b);
    verb_run *r = bench_take(sizeof *r);
    const char *problem;
    if (!r) return no_memory;
    r->bytes = linattn_workspace_size(&config, LINATTN_WORKSPACE_NYSTROM, NULL);
    r->state = bench_take(r->bytes);
    problem = bench_operands(b, &r->o);
    if (problem || !r->state) return problem ? problem : no_memory;
    b->data = r;
    b->call(b);
    b->error = nystrom_error(b, &r->o);
    b->items = (double)b->n;
    b->flops = 4.0 * (double)(b->n * b->landmarks * (b->d + b->dv));
    b->bytes = 0.0;
    return NULL;
}

static void register_nystrom(const selection *s)
{
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                const bench b = {.open = nystrom_open,
                                 .call = nystrom_call,
                                 .isa = (linattn_isa)isa,
                                 .d = s->shapes[i].d,
                                 .dv = s->shapes[i].dv,
                                 .n = s->n[j],
                                 .landmarks = LANDMARKS,
                                 .heads = 1};
                if (b.n % LANDMARKS || b.n > bench_longest_exact) continue;
                if (bench_wanted(s, &b) && bench_sampled(s, &b))
                    bench_add(&b, "nystrom/l%d/%s/%zux%zu/%zu", LANDMARKS, linattn_isa_name(b.isa),
                              b.d, b.dv, b.n);
            }
}

void register_verbs(const selection *s)
{
    register_decode(s);
    register_sequences(s);
    register_nystrom(s);
}
