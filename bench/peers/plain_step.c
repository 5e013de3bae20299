/* One token of small states as a program without a library would have it: one loop over the rows of
   S, in which z, the denominator, S and the output are taken together. Compiled alone, with -O3
   -march=native -ffast-math. */
#include <math.h>

#include "peers.h"

static inline float elu1(float x) { return x < 0.0f ? expf(x) : x + 1.0f; }
static inline float relu(float x) { return x > 0.0f ? x : 0.0f; }
static inline float identity(float x) { return x; }

static inline void causal(float (*phi)(float), size_t heads, size_t m, size_t dv,
                          const float *restrict q, const float *restrict k, const float *restrict v,
                          float *restrict out, float *restrict s, float *restrict z)
{
    for (size_t h = 0; h < heads; h++, q += m, k += m, z += m, v += dv, out += dv, s += m * dv) {
        float sum = 0.0f;
        for (size_t c = 0; c < dv; c++) out[c] = 0.0f;
        for (size_t f = 0; f < m; f++) {
            const float key = phi(k[f]), query = phi(q[f]);
            float *restrict row = s + f * dv;
            z[f] += key;
            sum += query * z[f];
            for (size_t c = 0; c < dv; c++) {
                row[c] += key * v[c];
                out[c] += query * row[c];
            }
        }
        for (size_t c = 0; c < dv; c++) out[c] /= sum;
    }
}

void plain_step_elu1(size_t heads, size_t m, size_t dv, const float *restrict q,
                     const float *restrict k, const float *restrict v, float *restrict out,
                     float *restrict s, float *restrict z)
{
    causal(elu1, heads, m, dv, q, k, v, out, s, z);
}

void plain_step_relu(size_t heads, size_t m, size_t dv, const float *restrict q,
                     const float *restrict k, const float *restrict v, float *restrict out,
                     float *restrict s, float *restrict z)
{
    causal(relu, heads, m, dv, q, k, v, out, s, z);
}

void plain_step_identity(size_t heads, size_t m, size_t dv, const float *restrict q,
                         const float *restrict k, const float *restrict v, float *restrict out,
                         float *restrict s, float *restrict z)
{
    causal(identity, heads, m, dv, q, k, v, out, s, z);
}

void plain_step_exp(size_t heads, size_t m, size_t dv, const float *restrict q,
                    const float *restrict k, const float *restrict v, float *restrict out,
                    float *restrict s, float *restrict z)
{
    causal(expf, heads, m, dv, q, k, v, out, s, z);
}

void plain_step_update(size_t heads, size_t m, size_t dv, const float *restrict q,
                       const float *restrict k, const float *restrict v, float *restrict out,
                       float *restrict s, float *restrict z)
{
    (void)q;
    (void)out;
    for (size_t h = 0; h < heads; h++, k += m, z += m, v += dv, s += m * dv)
        for (size_t f = 0; f < m; f++) {
            const float key = elu1(k[f]);
            float *restrict row = s + f * dv;
            z[f] += key;
            for (size_t c = 0; c < dv; c++) row[c] += key * v[c];
        }
}

void plain_step_query(size_t heads, size_t m, size_t dv, const float *restrict q,
                      const float *restrict k, const float *restrict v, float *restrict out,
                      float *restrict s, float *restrict z)
{
    (void)k;
    (void)v;
    for (size_t h = 0; h < heads; h++, q += m, z += m, out += dv, s += m * dv) {
        float sum = 0.0f;
        for (size_t c = 0; c < dv; c++) out[c] = 0.0f;
        for (size_t f = 0; f < m; f++) {
            const float query = elu1(q[f]), *restrict row = s + f * dv;
            sum += query * z[f];
            for (size_t c = 0; c < dv; c++) out[c] += query * row[c];
        }
        for (size_t c = 0; c < dv; c++) out[c] /= sum;
    }
}

void plain_step_grouped(size_t heads, size_t m, size_t dv, const float *restrict q,
                        const float *restrict k, const float *restrict v, float *restrict out,
                        float *restrict s, float *restrict z)
{
    float sums[16] = {0.0f}; /* as many heads at most */
    for (size_t c = 0; c < heads * dv; c++) out[c] = 0.0f;
    for (size_t f = 0; f < m; f++) {
        const float key = elu1(k[f]);
        float *restrict row = s + f * dv;
        z[f] += key;
        for (size_t c = 0; c < dv; c++) row[c] += key * v[c];
        for (size_t h = 0; h < heads; h++) {
            const float query = elu1(q[h * m + f]);
            float *restrict o = out + h * dv;
            sums[h] += query * z[f];
            for (size_t c = 0; c < dv; c++) o[c] += query * row[c];
        }
    }
    for (size_t h = 0; h < heads; h++)
        for (size_t c = 0; c < dv; c++) out[h * dv + c] /= sums[h];
}

void plain_step_softmax(size_t heads, size_t n, size_t d, size_t dv, float scale,
                        const float *restrict q, const float *restrict k, const float *restrict v,
                        float *restrict out)
{
    float weight[1024]; /* as many keys at most */
    for (size_t h = 0; h < heads; h++, q += d, k += d, v += dv, out += dv) {
        float top = -INFINITY, sum = 0.0f;
        for (size_t j = 0; j < n; j++) {
            const float *restrict key = k + j * heads * d;
            float score = 0.0f;
            for (size_t f = 0; f < d; f++) score += q[f] * key[f];
            weight[j] = score * scale;
            top = weight[j] > top ? weight[j] : top;
        }
        for (size_t j = 0; j < n; j++) {
            weight[j] = expf(weight[j] - top);
            sum += weight[j];
        }
        for (size_t c = 0; c < dv; c++) out[c] = 0.0f;
        for (size_t j = 0; j < n; j++) {
            const float *restrict value = v + j * heads * dv;
            for (size_t c = 0; c < dv; c++) out[c] += weight[j] * value[c];
        }
        for (size_t c = 0; c < dv; c++) out[c] /= sum;
    }
}
