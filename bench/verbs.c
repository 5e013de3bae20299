/* The verbs that take sequences. A verb is a line of `verbs`; what it is combined with (maps,
   shapes, lengths, variants of the operands, windows, threads) is registered below. */
#include <string.h>

#include "benchmarks.h"
#include "pool.h"

/* ---- The verbs ------------------------------------------------------------------------------ */

typedef struct verb verb;

/* One call of a verb. */
typedef struct run {
    const verb *verb;
    const library *library;
    linattn_config config;
    operands o;
    void *memory; /* a state or a workspace */
    size_t bytes; /* of it */
    size_t n;     /* tokens */
    linattn_context context;
} run;

typedef enum kind { SUMS, EXACT, NYSTROM } kind;

struct verb {
    const char *name;
    linattn_status (*call)(const run *r);
    kind kind;
    bool writes, reads; /* k and v; q and out */
    bool causal;
    int workspace; /* or -1: it works on a state */
};

static linattn_status update(const run *r)
{
    return r->library->update(r->memory, r->o.k, r->o.v, r->n, &r->context);
}

static linattn_status query(const run *r)
{
    return r->library->query(r->memory, r->o.q, r->o.out, r->n, &r->context);
}

static linattn_status causal(const run *r)
{
    return r->library->causal(r->memory, r->o.q, r->o.k, r->o.v, r->o.out, r->n, &r->context);
}

static linattn_status bidirectional(const run *r)
{
    return r->library->bidirectional(&r->config, r->o.q, r->n, r->o.k, r->o.v, r->n, r->o.out,
                                     r->memory, r->bytes, &r->context);
}

static linattn_status exact(const run *r)
{
    return r->library->softmax(&r->config, r->o.q, r->n, r->o.k, r->o.v, r->n, r->o.out,
                               r->verb->causal, r->memory, r->bytes, &r->context);
}

static linattn_status nystrom(const run *r)
{
    return r->library->nystrom(&r->config, r->o.q, r->n, r->o.k, r->o.v, r->n, r->o.out, 0,
                               r->memory, r->bytes, &r->context);
}

static const verb verbs[] = {
    {"update", update, SUMS, true, false, false, -1},
    {"query", query, SUMS, false, true, false, -1},
    {"causal", causal, SUMS, true, true, true, -1},
    {"bidirectional", bidirectional, SUMS, true, true, false, LINATTN_WORKSPACE_BIDIRECTIONAL},
    {"softmax/full", exact, EXACT, true, true, false, LINATTN_WORKSPACE_SOFTMAX},
    {"softmax/causal", exact, EXACT, true, true, true, LINATTN_WORKSPACE_SOFTMAX},
    {"nystrom/l64", nystrom, NYSTROM, true, true, false, LINATTN_WORKSPACE_NYSTROM},
};

enum { VERBS = sizeof verbs / sizeof verbs[0], LANDMARKS = 64 };

static const verb *verb_of(const char *name)
{
    const verb *v = verbs;
    while (strcmp(v->name, name) != 0) v++;
    return v;
}

/* ---- Running one ---------------------------------------------------------------------------- */

/* What is timed, what it is timed by turns with, and how many calls of that do as much. */
typedef struct runs {
    run call, base;
    size_t bases;
} runs;

static void run_once(const run *r) { bench_check(r->verb->call(r)); }
static void runs_call(bench *b) { run_once(&((const runs *)b->data)->call); }

static void runs_base(bench *b)
{
    const runs *r = b->data;
    for (size_t i = 0; i < r->bases; i++) run_once(&r->base);
}

static const char *take_threads(run *r, size_t threads)
{
    if (threads <= 1) return NULL;
    r->context.parallel_for = pool_parallel_for;
    r->context.threads = threads;
    r->context.user = pool_of(threads);
    return r->context.user ? NULL : "no threads";
}

/* On a state it begins with an empty one; a verb that only reads gets the keys' state. */
static const char *run_begin(run *r, const bench *b, const verb *v, const operands *o, size_t n)
{
    const char *problem;
    *r = (run){.verb = v, .library = b->library, .config = bench_config(b), .o = *o, .n = n};
    problem = take_threads(r, b->threads);
    if (problem) return problem;
    r->bytes =
        v->workspace < 0
            ? r->library->state_size(&r->config)
            : r->library->workspace_size(&r->config, (linattn_workspace)v->workspace, &r->context);
    r->memory = bench_take(r->bytes);
    if (!r->memory) return bench_no_memory;
    if (v->workspace >= 0) return NULL;
    bench_check(r->library->state_init(&r->config, r->memory, r->bytes));
    if (!v->writes) bench_check(update(r));
    return NULL;
}

/* Few tokens are too easy: several calls, one after the other. */
enum { LEAST_CHECKED = 16 };

static size_t tokens_of(const bench *b)
{
    const verb *v = b->subject;
    return v->workspace < 0 && b->n < LEAST_CHECKED ? LEAST_CHECKED / b->n * b->n : b->n;
}

static run run_at(const run *r, size_t token)
{
    run at = *r;
    at.o.q.data += token * at.o.q.stride_token;
    at.o.k.data += token * at.o.k.stride_token;
    at.o.v.data += token * at.o.v.stride_token;
    at.o.out.data += token * at.o.out.stride_token;
    return at;
}

/* The first tokens of the first head, against double. What a verb that only writes left behind is
   read with a query. */
static double run_error(const bench *b, const operands *o)
{
    const verb *v = b->subject;
    oracle_problem p = bench_problem(b, o, v->causal);
    size_t n;
    run r;
    p.exact = v->kind == EXACT;
    p.n = oracle_tokens(&p);
    n = p.n < b->n ? p.n : b->n;
    if (run_begin(&r, b, v, o, v->writes ? n : p.n)) return -1.0;
    r.n = n;
    for (size_t t = 0; t + n <= p.n; t += n) {
        const run at = run_at(&r, t);
        run_once(&at);
    }
    r.n = p.n;
    if (!v->reads) bench_check(query(&r));
    return oracle_error(&p, o->out.data, o->out.stride_token);
}

/* Flops and bytes of a call. Nystroem: 2 n L d for each of F and B and 2 n L dv for each of their
   products with values; what landmarks and the pseudo-inverse take, which does not grow with n, is
   not counted. A window: as without one. */
static void set_limits(bench *b, void *memory)
{
    const verb *v = b->subject;
    const int sides = v->reads + v->writes;
    const double n = (double)b->n, heads = (double)b->heads, dims = (double)(b->d + b->dv);
    const double states = b->variant == VARIANT_GROUPED ? 1.0 : heads;
    const double state = states * (double)(b->m * b->dv);
    b->items = heads * n;
    switch (v->kind) {
    case SUMS:
        b->flops = (sides * b->items) * bench_token_flops(b);
        if (b->variant == VARIANT_GROUPED && v->writes)
            b->flops -= (heads - 1) * n * bench_token_flops(b);
        break;
    case EXACT: b->flops = heads * n * (v->causal ? n + 1.0 : 2.0 * n) * dims; break;
    case NYSTROM: b->flops = 4.0 * b->items * (double)b->landmarks * dims; break;
    }
    if (v->workspace >= 0) return;
    b->bytes = sizeof(float) * (b->items * sides * dims + (v->writes ? 2.0 : 1.0) * state);
    bench_memory_is_state(b, memory);
    if (b->items * (double)(2 * b->d + b->dv) > state && b->variant == VARIANT_PLAIN) {
        b->memory = bench_random(0); /* q, k and v */
        b->memory_floats = b->heads * b->n * (2 * b->d + b->dv);
    }
}

/* What threads are compared with: the same in one; a group: as many heads with a key each; another
   variant: plain operands, as many tokens of as many heads; a window alone: all tokens; a long
   sequence: as many tokens in short ones. */
static const char *base_begin(runs *r, const bench *b, const operands *o)
{
    bench plain = *b;
    operands dense;
    const char *problem;
    r->bases = 1;
    if (b->threads > 1) {
        r->base = r->call;
        r->base.context = (linattn_context){0};
        return NULL;
    }
    plain.variant = b->variant == VARIANT_GROUPED ? VARIANT_HEADS : VARIANT_PLAIN;
    if (b->variant == VARIANT_PLAIN) plain.window = 0;
    problem = b->variant == VARIANT_PLAIN ? NULL : bench_operands(&plain, o->tokens, &dense);
    if (problem) return problem;
    if (b->n == long_length && !b->window) r->bases = long_length / short_length;
    return run_begin(&r->base, &plain, b->subject, b->variant == VARIANT_PLAIN ? o : &dense,
                     b->n / r->bases);
}

static const char *runs_open(bench *b)
{
    runs *r = bench_take(sizeof *r);
    operands o;
    const char *problem = r ? bench_operands(b, tokens_of(b), &o) : bench_no_memory;
    if (problem) return problem;
    if (b->variant != VARIANT_DENORMAL) b->error = run_error(b, &o);
    problem = run_begin(&r->call, b, b->subject, &o, b->n);
    if (!problem && b->comparison) problem = base_begin(r, b, &o);
    if (problem) return problem;
    b->data = r;
    set_limits(b, r->call.memory);
    return NULL;
}

/* ---- What is registered ---------------------------------------------------------------------- */

static bench bench_of(const library *l, const verb *v)
{
    return (bench){.open = runs_open,
                   .call = runs_call,
                   .base = runs_base,
                   .library = l,
                   .subject = v,
                   .heads = 1,
                   .landmarks = v->kind == NYSTROM ? LANDMARKS : 0};
}

static const char *const variant_names[VARIANT_COUNT] = {
    [VARIANT_PLAIN] = "",
    [VARIANT_MISALIGNED] = "/misaligned",
    [VARIANT_HEADS] = "/heads8",
    [VARIANT_GROUPED] = "/grouped8",
    [VARIANT_DENORMAL] = "/denormal",
    [VARIANT_COMPENSATED] = "/compensated",
};

/* One shape of each map has variants. A sample of them holds the usual map, and what may be
   denormal in the others. */
static bool variant_wanted(const selection *s, const bench *b)
{
    const verb *v = b->subject;
    if (b->variant == VARIANT_PLAIN) return true;
    if (b->variant == VARIANT_GROUPED)
        return v->reads && v->writes && b->n == usual_length && b->d == b->dv && b->d % 64 == 0 &&
               (b->map == LINATTN_MAP_ELU1 || b->map == LINATTN_MAP_EXP);
    if (b->n != usual_length || b->dv != 64 || (b->d != 64 && b->map < LINATTN_MAP_TAYLOR))
        return false;
    if (s->full || s->given || b->map == LINATTN_MAP_ELU1) return true;
    return b->variant == VARIANT_DENORMAL &&
           (b->map == LINATTN_MAP_EXP || b->map == LINATTN_MAP_IDENTITY || b->parameter);
}

static void add_sums(const selection *s, bench b)
{
    b.heads = b.variant == VARIANT_HEADS || b.variant == VARIANT_GROUPED ? 8 : 1;
    if (b.variant != VARIANT_PLAIN || b.n == long_length) b.comparison = COMPARE_TIMES;
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        b.isa = (linattn_isa)isa;
        if (selection_wants(s, &b) && variant_wanted(s, &b))
            bench_add(&b, "%s/%s/%s/%zux%zu/%zu%s", ((const verb *)b.subject)->name, bench_map(&b),
                      bench_by(&b), b.d, b.dv, b.n, variant_names[b.variant]);
    }
}

/* update, query and causal on all maps, shapes, lengths and variants. */
static void register_sums(const selection *s, bench b)
{
    for (size_t i = 0; selection_case(s, i, &b); i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (int v = 0; v < VARIANT_COUNT; v++) {
                b.n = s->n[j];
                b.variant = (variant)v;
                add_sums(s, b);
            }
}

/* One of the others: a map, if it takes one, is elu1. */
static void add_other(const selection *s, const bench *b)
{
    const verb *v = b->subject;
    const char *map = v->kind == SUMS ? "/elu1" : "";
    if (!selection_wants(s, b) || !selection_samples(s, b)) return;
    if (b->threads > 1)
        bench_add(b, "%s%s/%s/%zux%zu/%zu/heads%zu-t%zu", v->name, map, bench_by(b), b->d, b->dv,
                  b->n, b->heads, b->threads);
    else
        bench_add(b, "%s%s/%s/%zux%zu/%zu%s", v->name, map, bench_by(b), b->d, b->dv, b->n,
                  variant_names[b->variant]);
}

/* The same of eight heads whose rows take turns, beside dense ones. */
static void add_turns(const selection *s, bench b)
{
    if (b.n != usual_length || b.d != 64 || b.dv != 64) return;
    b.variant = VARIANT_HEADS;
    b.heads = 8;
    b.comparison = COMPARE_TIMES;
    add_other(s, &b);
}

static void register_other(const selection *s, bench b)
{
    const verb *v = b.subject;
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                b.isa = (linattn_isa)isa;
                b.d = s->shapes[i].d;
                b.dv = s->shapes[i].dv;
                b.n = s->n[j];
                if (v->kind != SUMS && b.n > longest_exact) continue;
                if (v->kind == NYSTROM && b.n % LANDMARKS) continue;
                add_other(s, &b);
                if (v->kind == NYSTROM) add_turns(s, b);
            }
}

/* Also of eight heads whose rows take turns. */
static void add_window(const selection *s, bench b)
{
    if (!selection_wants(s, &b)) return;
    bench_add(&b, "band/elu1/%s/%zux%zu/%zu/w%zu", bench_by(&b), b.d, b.dv, b.n, b.window);
    if (b.window != 256 || b.d != 64 || b.dv != 64) return;
    b.variant = VARIANT_HEADS;
    b.heads = 8;
    bench_add(&b, "band/elu1/%s/%zux%zu/%zu/w%zu/heads8", bench_by(&b), b.d, b.dv, b.n, b.window);
}

/* The flops are those of causal without a window. */
static void register_windows(const selection *s, bench b)
{
    static const size_t windows[] = {16, 64, 100, 256, 1024};
    b.comparison = COMPARE_TIMES;
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++)
                for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                    b.isa = (linattn_isa)isa;
                    b.d = s->shapes[i].d;
                    b.dv = s->shapes[i].dv;
                    b.n = s->n[j];
                    b.window = windows[w];
                    if (!s->given && (b.n != usual_length || b.d != b.dv || b.d % 64)) continue;
                    add_window(s, b);
                }
}

/* Exact attention takes long: one shape will do. */
static void register_threads(const selection *s, bench b)
{
    const bool one_shape = ((const verb *)b.subject)->kind == EXACT && !s->given && !s->full;
    const size_t processors = pool_processors();
    b.comparison = COMPARE_SPEEDUP;
    b.n = usual_length;
    for (size_t i = 0; i < s->shape_count; i++)
        for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++)
            for (b.threads = 2; b.threads <= processors; b.threads *= 2) {
                b.isa = (linattn_isa)isa;
                b.d = s->shapes[i].d;
                b.dv = s->shapes[i].dv;
                if (b.d < 64 || (one_shape && (b.d != 64 || b.dv != 64))) continue;
                b.heads = 1;
                add_other(s, &b);
                b.heads = 8;
                add_other(s, &b);
            }
}

/* One token for each of many heads, whose states may be beyond the caches. Also with eight query
   heads of one key, and with a window: its sums are not those of a state without. */
static void add_decode(bench b)
{
    bench_add(&b, "decode/elu1/%s/%zux%zu/1/h%zu", bench_by(&b), b.d, b.dv, b.heads);
    if (b.heads == 8) {
        b.variant = VARIANT_GROUPED;
        b.comparison = COMPARE_TIMES;
        bench_add(&b, "decode/elu1/%s/%zux%zu/1/grouped8", bench_by(&b), b.d, b.dv);
        return;
    }
    if (b.d != 64 || b.heads != 32) return;
    b.window = 256;
    bench_add(&b, "decode/elu1/%s/%zux%zu/1/h%zu-w%zu", bench_by(&b), b.d, b.dv, b.heads, b.window);
}

static void register_decode(const selection *s, bench b)
{
    static const size_t heads[] = {1, 2, 8, 32, 128, 512};
    b.n = 1;
    b.variant = VARIANT_HEADS;
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                const shape x = s->shapes[i];
                const bool usual = (x.d == 64 || x.d == 128) && x.d == x.dv;
                if (!(s->isas >> isa & 1u) || !(s->maps & 1u << LINATTN_MAP_ELU1)) continue;
                if (!s->given && !s->full && (!usual || isa == LINATTN_ISA_SCALAR)) continue;
                b.isa = (linattn_isa)isa;
                b.d = x.d;
                b.dv = x.dv;
                b.heads = heads[h];
                add_decode(b);
            }
}

void register_verbs(const selection *s, const library *l)
{
    const bench all = bench_of(l, verb_of("causal"));
    for (size_t i = 0; i < VERBS; i++) {
        const bench b = bench_of(l, &verbs[i]);
        if (verbs[i].workspace < 0)
            register_sums(s, b);
        else
            register_other(s, b);
    }
    register_windows(s, all);
    if (l != &library_o3) return; /* only exp differs in the others */
    register_decode(s, all);
    register_threads(s, all);
    register_threads(s, bench_of(l, verb_of("bidirectional")));
    register_threads(s, bench_of(l, verb_of("softmax/causal")));
}
