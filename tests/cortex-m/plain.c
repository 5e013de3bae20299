#include <math.h>

#include "attention.h"

static float elu1(float x) { return x >= 0 ? x + 1 : expf(x); }

void plain_causal(float *restrict state, const float *restrict q, const float *restrict k,
                  const float *restrict v, float *restrict out, size_t dim_key, size_t dim_value)
{
    float *restrict s = state + dim_key, denominator = 0;
    for (size_t j = 0; j < dim_value; j++) out[j] = 0;
    for (size_t i = 0; i < dim_key; i++) {
        const float phi_q = elu1(q[i]), phi_k = elu1(k[i]);
        state[i] += phi_k;
        denominator += phi_q * state[i];
        for (size_t j = 0; j < dim_value; j++, s++) {
            *s += phi_k * v[j];
            out[j] += phi_q * *s;
        }
    }
    for (size_t j = 0; j < dim_value; j++) out[j] /= denominator;
}
