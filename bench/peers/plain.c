/* The recurrence as most people write it. PLAIN gives the functions their names. */
#include <math.h>

#include "peers.h"

static float elu1(float x) { return x < 0.0f ? expf(x) : x + 1.0f; }

/* S += phi(k) v', z += phi(k). */
static void add_key(const peer_problem *p, size_t t)
{
    const float *k = p->k + t * p->m, *restrict v = p->v + t * p->dv;
    for (size_t f = 0; f < p->m; f++) {
        const float phi = elu1(k[f]);
        float *restrict row = p->s + f * p->dv;
        p->z[f] += phi;
        for (size_t c = 0; c < p->dv; c++) row[c] += phi * v[c];
    }
}

/* out = phi(q)' S / phi(q)' z. */
static void read_query(const peer_problem *p, size_t t)
{
    const float *q = p->q + t * p->m;
    float *restrict out = p->out + t * p->dv;
    float sum = 0.0f;
    for (size_t c = 0; c < p->dv; c++) out[c] = 0.0f;
    for (size_t f = 0; f < p->m; f++) {
        const float phi = elu1(q[f]), *restrict row = p->s + f * p->dv;
        sum += phi * p->z[f];
        for (size_t c = 0; c < p->dv; c++) out[c] += phi * row[c];
    }
    for (size_t c = 0; c < p->dv; c++) out[c] /= sum;
}

/* Both for one token, in one pass over S. phi comes first, so that it may be vectorised. */
static void step(const peer_problem *p, size_t t)
{
    const float *q = p->q + t * p->m, *k = p->k + t * p->m, *restrict v = p->v + t * p->dv;
    float *restrict out = p->out + t * p->dv, *restrict z = p->z;
    float *restrict phi_k = p->scratch, *restrict phi_q = p->scratch + p->m;
    float sum = 0.0f;
    for (size_t f = 0; f < p->m; f++) phi_k[f] = elu1(k[f]);
    for (size_t f = 0; f < p->m; f++) phi_q[f] = elu1(q[f]);
    for (size_t f = 0; f < p->m; f++) {
        z[f] += phi_k[f];
        sum += phi_q[f] * z[f];
    }
    for (size_t c = 0; c < p->dv; c++) out[c] = 0.0f;
    for (size_t f = 0; f < p->m; f++) {
        float *restrict row = p->s + f * p->dv;
        for (size_t c = 0; c < p->dv; c++) {
            row[c] += phi_k[f] * v[c];
            out[c] += phi_q[f] * row[c];
        }
    }
    for (size_t c = 0; c < p->dv; c++) out[c] /= sum;
}

#define JOIN(a, b) a##b
#define NAME(a, b) JOIN(a, b)

void NAME(PLAIN, _causal)(const peer_problem *p)
{
    for (size_t t = 0; t < p->n; t++) step(p, t);
}

void NAME(PLAIN, _bidirectional)(const peer_problem *p)
{
    for (size_t t = 0; t < p->n; t++) add_key(p, t);
    for (size_t t = 0; t < p->n; t++) read_query(p, t);
}
