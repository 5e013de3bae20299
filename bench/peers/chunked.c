/* Causal attention by chunks, as is usual where products of matrices are fast: within a chunk by
   its masked score matrix, across chunks by the state. Compiled with -O3 -march=native -ffast-math,
   so that elu1 takes libmvec's exp. */
#include <math.h>
#include <string.h>

#include "peers.h"

size_t peer_scratch(size_t m, size_t dv, size_t chunk)
{
    return 3 * chunk * m + chunk * chunk + chunk + 2 * m + dv;
}

static void elu1(const float *restrict x, float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float e = expf(x[i] < 0.0f ? x[i] : 0.0f);
        y[i] = x[i] < 0.0f ? e : x[i] + 1.0f;
    }
}

/* sum[t] = phi(q_t)' z. */
static void denominators(const float *restrict phi, const float *restrict z, float *restrict sum,
                         size_t chunk, size_t m)
{
    for (size_t t = 0; t < chunk; t++) {
        float s = 0.0f;
        for (size_t f = 0; f < m; f++) s += phi[t * m + f] * z[f];
        sum[t] = s;
    }
}

/* Scores of later keys become 0; the others count in the denominators. */
static void mask(float *restrict a, float *restrict sum, size_t chunk)
{
    for (size_t t = 0; t < chunk; t++) {
        float *row = a + t * chunk, s = 0.0f;
        for (size_t j = 0; j <= t; j++) s += row[j];
        for (size_t j = t + 1; j < chunk; j++) row[j] = 0.0f;
        sum[t] += s;
    }
}

static void add_rows(const float *restrict phi, float *restrict z, size_t chunk, size_t m)
{
    for (size_t t = 0; t < chunk; t++)
        for (size_t f = 0; f < m; f++) z[f] += phi[t * m + f];
}

static void divide(float *restrict out, const float *restrict sum, size_t chunk, size_t dv)
{
    for (size_t t = 0; t < chunk; t++) {
        const float by = 1.0f / sum[t];
        for (size_t c = 0; c < dv; c++) out[t * dv + c] *= by;
    }
}

typedef struct workspace {
    float *q, *k, *transposed, *a, *sum;
} workspace;

static workspace layout(const peer_problem *p)
{
    workspace w;
    w.q = p->scratch;
    w.k = w.q + p->chunk * p->m;
    w.transposed = w.k + p->chunk * p->m;
    w.a = w.transposed + p->chunk * p->m;
    w.sum = w.a + p->chunk * p->chunk;
    return w;
}

static void map_keys(const peer_problem *p, const workspace *w, size_t t)
{
    const gemm *g = p->gemm;
    elu1(p->k + t * p->m, w->k, p->chunk * p->m);
    if (g->wants_transposed) g->transpose(g, w->k, w->transposed);
}

void chunked_causal(const peer_problem *p)
{
    const gemm *g = p->gemm;
    const workspace w = layout(p);
    for (size_t t = 0; t < p->n; t += p->chunk) {
        const float *v = p->v + t * p->dv;
        float *out = p->out + t * p->dv;
        elu1(p->q + t * p->m, w.q, p->chunk * p->m);
        map_keys(p, &w, t);
        denominators(w.q, p->z, w.sum, p->chunk, p->m);
        g->scores(g, w.q, w.k, w.transposed, w.a);
        mask(w.a, w.sum, p->chunk);
        g->read(g, w.q, p->s, out);
        g->weigh(g, w.a, v, out);
        divide(out, w.sum, p->chunk, p->dv);
        g->write(g, w.k, w.transposed, v, p->s);
        add_rows(w.k, p->z, p->chunk, p->m);
    }
}

void chunked_bidirectional(const peer_problem *p)
{
    const gemm *g = p->gemm;
    const workspace w = layout(p);
    memset(p->s, 0, p->m * p->dv * sizeof(float));
    memset(p->z, 0, p->m * sizeof(float));
    for (size_t t = 0; t < p->n; t += p->chunk) {
        map_keys(p, &w, t);
        g->write(g, w.k, w.transposed, p->v + t * p->dv, p->s);
        add_rows(w.k, p->z, p->chunk, p->m);
    }
    for (size_t t = 0; t < p->n; t += p->chunk) {
        elu1(p->q + t * p->m, w.q, p->chunk * p->m);
        denominators(w.q, p->z, w.sum, p->chunk, p->m);
        g->read(g, w.q, p->s, p->out + t * p->dv);
        divide(p->out + t * p->dv, w.sum, p->chunk, p->dv);
    }
}
