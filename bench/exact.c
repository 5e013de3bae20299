/* linattn_softmax as a shared library for bench/peers/exact_attention.py, which times it by turns
   with what else Python can call. */
#include <stdlib.h>

#include "library.h"
#include "pool.h"

/* Operands are [heads][tokens][dim], dense, or, interleaved, [tokens][heads][dim]. */
typedef struct exact_problem {
    const float *q, *k, *v;
    float *out;
    size_t heads, kv_heads, dim, queries, keys, threads;
    int causal, interleaved;
    float scale, soft_cap;
    size_t window, sinks;
    const float *slopes;
} exact_problem;

/* A call that can be repeated; it goes with the process. */
typedef struct exact_call {
    exact_problem problem;
    linattn_config config;
    linattn_context context;
    size_t bytes;
    unsigned char workspace[];
} exact_call;

exact_call *exact_open(const exact_problem *p);
const char *exact_run(exact_call *c);
const char *exact_version(void);
const char *exact_compiler(void);
const char *exact_isa(void);

/* NULL if linattn refuses it, or for want of memory or threads. */
exact_call *exact_open(const exact_problem *p)
{
    linattn_config config = {0};
    linattn_context context = {0};
    exact_call *c;
    size_t bytes;
    config.heads = p->heads;
    config.kv_heads = p->kv_heads;
    config.dim_key = config.dim_value = p->dim;
    config.scale = p->scale;
    config.soft_cap = p->soft_cap;
    config.window = p->window;
    config.sinks = p->sinks;
    config.alibi_slopes = p->slopes;
    if (p->threads > 1) {
        context.parallel_for = pool_parallel_for;
        context.threads = p->threads;
        context.user = pool_of(p->threads);
        if (!context.user) return NULL;
    }
    bytes = linattn_workspace_size(&config, LINATTN_WORKSPACE_SOFTMAX, &context);
    c = bytes ? calloc(1, sizeof *c + bytes) : NULL;
    if (!c) return NULL;
    c->problem = *p;
    c->config = config;
    c->context = context;
    c->bytes = bytes;
    return c;
}

static linattn_view view_of(const exact_problem *p, const float *x, size_t tokens)
{
    if (p->interleaved) return linattn_rows(x);
    return (linattn_view){.data = x, .stride_token = p->dim, .stride_head = tokens * p->dim};
}

/* NULL, or what linattn says. */
const char *exact_run(exact_call *c)
{
    const exact_problem *p = &c->problem;
    const linattn_view out = view_of(p, p->out, p->queries);
    const linattn_status status = linattn_softmax(
        &c->config, view_of(p, p->q, p->queries), p->queries, view_of(p, p->k, p->keys),
        view_of(p, p->v, p->keys), p->keys,
        (linattn_output){
            .data = p->out, .stride_token = out.stride_token, .stride_head = out.stride_head},
        p->causal, c->workspace, c->bytes, &c->context);
    return status == LINATTN_OK ? NULL : linattn_status_string(status);
}

const char *exact_version(void) { return LIBRARY_VERSION; }
const char *exact_compiler(void) { return LIBRARY_COMPILER; }
const char *exact_isa(void) { return linattn_isa_name(linattn_isa_active()); }
