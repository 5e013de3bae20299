/* All of linattn.h that is in a program which calls these two. */
#define LINATTN_STATIC
#define LINATTN_IMPLEMENTATION
#include "linattn.h"

#include "attention.h"

int library_init(const attention *a, void *state, size_t bytes)
{
    linattn_config config = {0};
    config.heads = a->heads;
    config.dim_key = a->dim_key;
    config.dim_value = a->dim_value;
    config.normaliser = (linattn_normaliser)a->normaliser;
    config.scale = a->scale;
    config.epsilon = a->epsilon;
    /* Any config: or what this one does not need would be left out. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    return linattn_state_init(&config, state, bytes);
}

int library_causal(void *state, const float *q, const float *k, const float *v, float *out,
                   size_t n)
{
    return linattn_causal(state, linattn_rows(q), linattn_rows(k), linattn_rows(v),
                          linattn_output_rows(out), n, NULL);
}
