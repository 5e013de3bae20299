/* Benchmarks of the public verbs: decode steps, whole sequences, threads. */
#include "bench.h"
#include "pool.h"

static const char no_memory[] = "not enough memory";

/* ---- decode: one token for each of many heads ----------------------------------------------- */

enum { DECODE_TOKENS = 16 }; /* that are checked; the first one is timed */

typedef struct verb_run {
    operands o;
    void *state;
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
    const double heads = (double)b->heads, each = (double)(b->m * b->dv);
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
    b->bytes = 2.0 * sizeof(float) * heads * (each + (double)(b->m + b->dv));
    bench_memory_is_state(b, r->state);
    return NULL;
}

static void register_decode(const selection *s)
{
    static const size_t heads[] = {1, 2, 8, 32, 128, 512};
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                const shape x = s->shapes[i];
                const bool usual = (x.m == 64 || x.m == 128) && x.m == x.dv;
                const bench b = {.open = decode_open,
                                 .call = decode_call,
                                 .heads = heads[h],
                                 .isa = (linattn_isa)isa,
                                 .m = x.m,
                                 .dv = x.dv,
                                 .n = DECODE_TOKENS,
                                 .variant = VARIANT_HEADS};
                if (!(s->isas >> isa & 1u)) continue;
                if (s->given || s->full || (usual && isa != LINATTN_ISA_SCALAR))
                    bench_add(&b, "decode/elu1/%s/%zux%zu/1/h%zu", linattn_isa_name(b.isa), x.m,
                              x.dv, heads[h]);
            }
}

/* ---- Whole sequences, with and without threads ---------------------------------------------- */

static void causal(bench *b, const linattn_context *context)
{
    verb_run *r = b->data;
    bench_check(linattn_causal(r->state, r->o.q, r->o.k, r->o.v, r->o.out, b->n, context));
}

/* linattn_bidirectional would clear its workspace each time, which at many heads counts. */
static void bidirectional(bench *b, const linattn_context *context)
{
    verb_run *r = b->data;
    const linattn_config config = bench_config(b);
    bench_check(linattn_bidirectional(&config, r->o.q, b->n, r->o.k, r->o.v, b->n, r->o.out,
                                      r->state, linattn_state_size(&config) + 64, context));
}

static void run_verb(bench *b, const linattn_context *context)
{
    if (b->causal)
        causal(b, context);
    else
        bidirectional(b, context);
}

static void verb_call(bench *b) { run_verb(b, &((verb_run *)b->data)->context); }
static void verb_base(bench *b) { run_verb(b, NULL); }

static const char *verb_open(bench *b)
{
    const linattn_config config = bench_config(b);
    const size_t bytes = linattn_state_size(&config);
    const double tokens = (double)(b->heads * b->n);
    verb_run *r = bench_take(sizeof *r);
    const char *problem;
    if (!r) return no_memory;
    r->state = bench_take(bytes + 64);
    problem = bench_operands(b, &r->o);
    if (problem || !r->state) return problem ? problem : no_memory;
    bench_check(linattn_state_init(&config, r->state, bytes));
    if (b->threads > 1) {
        r->context.parallel_for = pool_parallel_for;
        r->context.threads = b->threads;
        r->context.user = pool_of(b->threads);
        if (!r->context.user) return "no threads";
    }
    b->data = r;
    b->call(b);
    b->error = verb_error(b, &r->o, b->causal);
    b->items = tokens;
    b->flops = 4.0 * tokens * (double)(b->m * b->dv);
    b->bytes = 0.0;
    return NULL;
}

static void add_verb(const selection *s, bench b, size_t heads, size_t threads)
{
    const char *kernel = b.causal ? "causal" : "bidirectional";
    b.open = verb_open;
    b.call = verb_call;
    b.heads = heads;
    b.threads = threads;
    if (threads > 1) {
        b.base = verb_base;
        b.base_counter = "speedup";
    }
    if (!bench_wanted(s, b.isa, b.map, (shape){b.m, b.dv}, b.n)) return;
    if (!bench_sampled(s, (shape){b.m, b.dv})) return;
    if (threads > 1)
        bench_add(&b, "%s/elu1/%s/%zux%zu/%zu/heads%zu-t%zu", kernel, linattn_isa_name(b.isa), b.m,
                  b.dv, b.n, heads, threads);
    else
        bench_add(&b, "%s/elu1/%s/%zux%zu/%zu", kernel, linattn_isa_name(b.isa), b.m, b.dv, b.n);
}

static void register_sequences(const selection *s)
{
    const size_t processors = pool_processors();
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                bench b = {.isa = (linattn_isa)isa,
                           .m = s->shapes[i].m,
                           .dv = s->shapes[i].dv,
                           .n = s->n[j]};
                add_verb(s, b, 1, 1);
                if (b.n != bench_usual_length || b.m < 64) continue;
                for (size_t threads = 2; threads <= processors; threads *= 2)
                    for (int causal = 0; causal < 2; causal++) {
                        b.causal = causal;
                        add_verb(s, b, 1, threads);
                        add_verb(s, b, 8, threads);
                    }
            }
}

/* ---- Nystroem ------------------------------------------------------------------------------- */

enum { LANDMARKS = 64 };

typedef struct nystrom_run {
    operands o;
    linattn_config config;
    void *workspace;
    size_t bytes;
} nystrom_run;

static void nystrom_call(bench *b)
{
    const nystrom_run *r = b->data;
    bench_check(linattn_nystrom(&r->config, r->o.q, b->n, r->o.k, r->o.v, b->n, r->o.out, 0,
                                r->workspace, r->bytes, NULL));
}

/* The flops are those of F, B and their products with values; the pseudo-inverse's come on top. */
static const char *nystrom_open(bench *b)
{
    nystrom_run *r = bench_take(sizeof *r);
    const char *problem;
    oracle_problem p;
    if (!r) return no_memory;
    r->config = bench_config(b);
    r->config.landmarks = LANDMARKS;
    r->bytes = linattn_workspace_size(&r->config, LINATTN_WORKSPACE_NYSTROM, NULL);
    r->workspace = bench_take(r->bytes);
    problem = bench_operands(b, &r->o);
    if (problem || !r->workspace) return problem ? problem : no_memory;
    b->data = r;
    b->call(b);
    p = bench_problem(b, &r->o, false);
    p.landmarks = LANDMARKS;
    b->error = oracle_error(&p, r->o.out.data, r->o.out.stride_token);
    b->items = (double)b->n;
    b->flops = 4.0 * (double)(b->n * LANDMARKS * (b->m + b->dv));
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
                                 .m = s->shapes[i].m,
                                 .dv = s->shapes[i].dv,
                                 .n = s->n[j],
                                 .heads = 1};
                if (b.n % LANDMARKS || b.n > bench_longest_exact) continue;
                if (bench_wanted(s, b.isa, b.map, s->shapes[i], b.n) &&
                    bench_sampled(s, s->shapes[i]))
                    bench_add(&b, "nystrom/l%d/%s/%zux%zu/%zu", LANDMARKS, linattn_isa_name(b.isa),
                              b.m, b.dv, b.n);
            }
}

void register_verbs(const selection *s)
{
    register_decode(s);
    register_sequences(s);
    register_nystrom(s);
}
