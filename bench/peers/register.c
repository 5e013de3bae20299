/* The peers that were found at configure time. */
#include "benchmarks.h"
#include "peers/peers.h"

/* ---- Attention ------------------------------------------------------------------------------ */

typedef struct peer {
    const char *name;
    void (*causal)(const peer_problem *p);
    void (*bidirectional)(const peer_problem *p);
    bool (*gemm)(gemm *g, size_t m, size_t dv, size_t chunk); /* or NULL: token by token */
} peer;

static const peer peers[] = {
    {"plain", plain_causal, plain_bidirectional, NULL},
    {"plain-fast", plain_fast_causal, plain_fast_bidirectional, NULL},
#ifdef BENCH_OPENBLAS
    {"openblas", chunked_causal, chunked_bidirectional, openblas_gemm},
#endif
#ifdef BENCH_LIBXSMM
    {"libxsmm", chunked_causal, chunked_bidirectional, libxsmm_gemm},
#endif
};

typedef struct peer_run {
    peer_problem problem; /* of the first head */
    gemm gemm;
    void (*function)(const peer_problem *p);
    operands operands; /* and linattn's own state or workspace, timed by turns */
    linattn_config config;
    void *state;
    size_t bytes;
} peer_run;

/* One head after the other; operands are [heads][tokens][dim]. */
static void peer_call(bench *b)
{
    const peer_run *r = b->data;
    for (size_t head = 0; head < b->heads; head++) {
        peer_problem p = r->problem;
        p.q += head * b->n * b->d;
        p.k += head * b->n * b->d;
        p.v += head * b->n * b->dv;
        p.out += head * b->n * b->dv;
        p.s += head * b->d * b->dv;
        p.z += head * b->d;
        r->function(&p);
    }
}

static void peer_base(bench *b)
{
    const peer_run *r = b->data;
    const operands *o = &r->operands;
    if (b->causal)
        bench_check(linattn_causal(r->state, o->q, o->k, o->v, o->out, b->n, NULL));
    else
        bench_check(linattn_bidirectional(&r->config, o->q, b->n, o->k, o->v, b->n, o->out,
                                          r->state, r->bytes, NULL));
}

static const char *peer_begin_base(bench *b, peer_run *r)
{
    r->config = bench_config(b);
    r->bytes = linattn_workspace_size(&r->config, LINATTN_WORKSPACE_BIDIRECTIONAL, NULL);
    r->state = bench_take(r->bytes); /* a state fits in there */
    if (!r->state) return bench_no_memory;
    if (b->causal) bench_check(linattn_state_init(&r->config, r->state, r->bytes));
    return NULL;
}

/* The states of all heads lie together, as a caller would have it. */
static const char *peer_begin(bench *b, peer_run *r, const operands *o)
{
    const peer *subject = b->subject;
    peer_problem *p = &r->problem;
    const size_t states = b->heads * b->d * b->dv;
    *p = (peer_problem){.q = o->q.data,
                        .k = o->k.data,
                        .v = o->v.data,
                        .out = o->out.data,
                        .n = b->n,
                        .m = b->d,
                        .dv = b->dv,
                        .chunk = b->chunk,
                        .gemm = &r->gemm};
    p->s = bench_floats(states);
    p->z = bench_floats(b->heads * b->d);
    p->scratch = bench_floats(peer_scratch(b->d, b->dv, b->chunk));
    r->function = b->causal ? subject->causal : subject->bidirectional;
    if (!p->s || !p->z || !p->scratch) return bench_no_memory;
    if (subject->gemm && !subject->gemm(&r->gemm, b->d, b->dv, b->chunk))
        return "the library has no kernel for this shape";
    b->memory = p->s;
    b->memory_floats = states;
    return NULL;
}

static const char *peer_open(bench *b)
{
    const double tokens = (double)(b->heads * b->n), each = (double)(b->d * b->dv);
    peer_run *r = bench_take(sizeof *r);
    const char *problem = r ? bench_operands(b, b->n, &r->operands) : bench_no_memory;
    oracle_problem p;
    if (!problem) problem = peer_begin(b, r, &r->operands);
    if (!problem) problem = peer_begin_base(b, r);
    if (problem) return problem;
    b->data = r;
    b->items = tokens;
    b->flops = 4.0 * tokens * each;
    b->bytes =
        b->n == 1 ? 2.0 * sizeof(float) * (double)b->heads * (each + (double)(b->d + b->dv)) : 0.0;
    peer_call(b);
    p = bench_problem(b, &r->operands, b->causal);
    if (oracle_tokens(&p) == b->n) b->error = oracle_error(&p, r->operands.out.data, b->dv);
    return NULL;
}

static void add_sequence(const selection *s, bench b)
{
    static const size_t chunks[] = {16, 32, 64, 128};
    const peer *subject = b.subject;
    const char *kernel = b.causal ? "causal" : "bidirectional";
    if (!selection_wants(s, &b) || !selection_samples(s, &b)) return;
    if (!subject->gemm)
        bench_add(&b, "%s/elu1/%s/%zux%zu/%zu", kernel, subject->name, b.d, b.dv, b.n);
    for (size_t i = 0; subject->gemm && i < sizeof chunks / sizeof chunks[0]; i++) {
        b.chunk = chunks[i];
        if (b.n % b.chunk == 0)
            bench_add(&b, "%s/elu1/%s-%zu/%zux%zu/%zu", kernel, subject->name, b.chunk, b.d, b.dv,
                      b.n);
    }
}

static void register_attention(const selection *s, bench b)
{
    static const size_t heads[] = {1, 32, 512};
    for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
        b.subject = &peers[i];
        b.comparison = COMPARE_TIMES;
        b.heads = 1;
        for (size_t j = 0; j < s->n_count; j++)
            for (int causal = 0; causal < 2; causal++) {
                b.causal = causal;
                b.n = s->n[j];
                if (s->given || b.n == usual_length) add_sequence(s, b);
            }
        b.n = 1;
        b.causal = true;
        b.comparison = COMPARE_NOT; /* by turns, each would evict the other's states */
        for (size_t h = 0; h < sizeof heads / sizeof heads[0] && !peers[i].gemm; h++) {
            b.heads = heads[h];
            if (s->given || s->full || ((b.d == 64 || b.d == 128) && b.d == b.dv))
                bench_add(&b, "decode/elu1/%s/%zux%zu/1/h%zu", peers[i].name, b.d, b.dv, b.heads);
        }
    }
}

/* ---- exp on arrays -------------------------------------------------------------------------- */

typedef struct array_peer {
    const char *name;
    linattn_isa isa;
    peer_exp *function;
} array_peer;

static const array_peer array_peers[] = {
#ifdef BENCH_SLEEF
    {"sleef-avx2", LINATTN_ISA_AVX2, sleef_exp_avx2},
    {"sleef-avx512", LINATTN_ISA_AVX512, sleef_exp_avx512},
#endif
#ifdef BENCH_LIBMVEC
    {"libmvec-avx2", LINATTN_ISA_AVX2, libmvec_exp_avx2},
    {"libmvec-avx512", LINATTN_ISA_AVX512, libmvec_exp_avx512},
#endif
    {0},
};

static void array_call(bench *b)
{
    const float *x = b->data;
    ((const array_peer *)b->subject)->function(x, (float *)b->data + b->n, b->n);
}

static const char *array_open(bench *b)
{
    float *x = bench_floats(2 * b->n);
    const float *random = bench_random(b->n);
    if (!x || !random) return bench_no_memory;
    for (size_t i = 0; i < b->n; i++) x[i] = 4.0f * random[i];
    b->data = b->memory = x;
    b->memory_floats = 2 * b->n;
    b->items = (double)b->n;
    b->bytes = 2.0 * sizeof(float) * (double)b->n;
    array_call(b);
    b->error = oracle_map_error(LINATTN_MAP_EXP, x, x + b->n, b->n);
    return NULL;
}

static void array_base(bench *b)
{
    const float *x = b->data;
    bench_check(linattn_exp(x, (float *)b->data + b->n, b->n));
}

static void register_exp(const selection *s)
{
    for (const array_peer *a = array_peers; a->name; a++)
        for (size_t j = 0; j < s->n_count; j++) {
            const bench b = {.open = array_open,
                             .call = array_call,
                             .base = array_base,
                             .comparison = COMPARE_TIMES,
                             .subject = a,
                             .isa = a->isa,
                             .n = s->n[j]};
            if (b.n % 16 == 0 && selection_wants_array(s, b.isa, LINATTN_MAP_EXP, b.n))
                bench_add(&b, "map/exp/%s/array/%zu", a->name, b.n);
        }
}

void register_peers(const selection *s)
{
    register_exp(s);
    for (size_t i = 0; i < s->shape_count; i++) {
        const bench b = {.open = peer_open,
                         .call = peer_call,
                         .base = peer_base,
                         .comparison = COMPARE_TIMES,
                         .isa = selection_best(s),
                         .d = s->shapes[i].d,
                         .dv = s->shapes[i].dv};
        if (b.isa != LINATTN_ISA_SCALAR && (s->maps & 1u << LINATTN_MAP_ELU1))
            register_attention(s, b);
    }
}
