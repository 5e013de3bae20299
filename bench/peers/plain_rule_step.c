/* One token of small states under the rules, as a program without a library would have it: loops
   over the rows of S, one where its key reads S, one that moves S and reads it out. Compiled alone,
   with -O3 -march=native -ffast-math. */
#include <math.h>

#include "peers.h"

enum { PER_FEATURE = 1, BONUS = 2, DECAYED = 4, DELTA = 8, GENERAL = 16 };

/* taken = (a r) S */
static inline void read_state(const rule_step *x, const float *restrict r, const float *restrict a,
                              size_t a_step, const float *restrict s, float *restrict taken)
{
    for (size_t c = 0; c < x->dv; c++) taken[c] = 0.0f;
    for (size_t f = 0; f < x->m; f++, s += x->dv, a += a_step) {
        const float by = *a * r[f];
        for (size_t c = 0; c < x->dv; c++) taken[c] += by * s[c];
    }
}

/* S = a S + p taken + k u, and out = q S. */
static inline void move_state(const rule_step *x, const float *restrict q, const float *restrict k,
                              const float *restrict a, size_t a_step, const float *restrict p,
                              const float *restrict taken, const float *restrict u,
                              float *restrict s, float *restrict out, int rule)
{
    for (size_t c = 0; c < x->dv; c++) out[c] = 0.0f;
    for (size_t f = 0; f < x->m; f++, s += x->dv, a += a_step) {
        const float decay = *a, key = k[f], query = q[f], by = rule & GENERAL ? p[f] : 0.0f;
        for (size_t c = 0; c < x->dv; c++) {
            if (rule & BONUS) out[c] += query * s[c];
            s[c] = decay * s[c] + key * u[c] + (rule & GENERAL ? by * taken[c] : 0.0f);
            if (!(rule & BONUS)) out[c] += query * s[c];
        }
    }
}

static inline void step(const rule_step *x, int rule)
{
    const size_t m = x->m, dv = x->dv, each = rule & PER_FEATURE ? m : 1;
    float *restrict taken = x->scratch, *restrict u = taken + dv, *restrict a = u + dv;
    const float one = 1.0f;
    a[0] = one;
    for (size_t h = 0; h < x->heads; h++) {
        const float *q = x->q + h * m, *k = x->k + h * m, *v = x->v + h * dv;
        float *s = x->s + h * m * dv, *out = x->out + h * dv;
        const float beta = rule & DELTA ? x->beta[h] : 1.0f;
        for (size_t i = 0; rule & DECAYED && i < each; i++)
            a[i] = rule & GENERAL ? x->decay[h * each + i] : expf(x->decay[h * each + i]);
        if (rule & DELTA) read_state(x, k, a, each == m, s, taken);
        if (rule & GENERAL) read_state(x, x->read + h * m, &one, 0, s, taken);
        for (size_t c = 0; c < dv; c++) u[c] = rule & DELTA ? beta * (v[c] - taken[c]) : v[c];
        move_state(x, q, k, a, each == m, rule & GENERAL ? x->write + h * m : NULL, taken, u, s,
                   out, rule);
        if (rule & BONUS) {
            float lead = 0.0f;
            for (size_t f = 0; f < m; f++) lead += q[f] * x->bonus[h * m + f] * k[f];
            for (size_t c = 0; c < dv; c++) out[c] += lead * v[c];
        }
    }
}

void plain_step_gated(const rule_step *x) { step(x, DECAYED); }
void plain_step_gated_channel(const rule_step *x) { step(x, DECAYED | PER_FEATURE); }
void plain_step_rwkv6(const rule_step *x) { step(x, DECAYED | PER_FEATURE | BONUS); }
void plain_step_delta(const rule_step *x) { step(x, DELTA); }
void plain_step_gated_delta(const rule_step *x) { step(x, DECAYED | DELTA); }
void plain_step_kda(const rule_step *x) { step(x, DECAYED | DELTA | PER_FEATURE); }
void plain_step_general(const rule_step *x) { step(x, DECAYED | GENERAL | PER_FEATURE); }

/* z [heads][m] and the exponent e [heads] that S and z are kept relative to go on, too. */
void plain_step_mlstm(const rule_step *x)
{
    const size_t m = x->m, dv = x->dv;
    for (size_t h = 0; h < x->heads; h++) {
        const float *q = x->q + h * m, *k = x->k + h * m, *v = x->v + h * dv;
        const float before = x->e[h] + x->decay[h], input = x->input[h];
        const float e = before > input ? before : input;
        float a[1] = {expf(before - e)}, sum = 0.0f, least = expf(-e), gain = expf(input - e);
        float *restrict u = x->scratch, *restrict z = x->z + h * m, *out = x->out + h * dv;
        for (size_t c = 0; c < dv; c++) u[c] = gain * v[c];
        for (size_t f = 0; f < m; f++) {
            z[f] = a[0] * z[f] + gain * k[f];
            sum += q[f] * z[f];
        }
        move_state(x, q, k, a, 0, NULL, u, u, x->s + h * m * dv, out, DECAYED);
        sum = fabsf(sum) > least ? fabsf(sum) : least;
        for (size_t c = 0; c < dv; c++) out[c] /= sum;
        x->e[h] = e;
    }
}
