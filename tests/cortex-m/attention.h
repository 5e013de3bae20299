/* Causal attention as the programs of this directory call it: on dense arrays, one state. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stddef.h>

typedef struct attention {
    size_t heads, dim_key, dim_value;
    int normaliser; /* a linattn_normaliser */
    float scale, epsilon;
} attention;

/* By linattn.h; both return a linattn_status. The two functions, and nothing else, call it. */
int library_init(const attention *a, void *state, size_t bytes);
int library_causal(void *state, const float *q, const float *k, const float *v, float *out,
                   size_t n);

/* By one loop over the rows of S, elu1, as one would write it: one head, one token. The state is
   z[dim_key], then S[dim_key][dim_value], all zero at first. */
void plain_causal(float *state, const float *q, const float *k, const float *v, float *out,
                  size_t dim_key, size_t dim_value);

#endif
