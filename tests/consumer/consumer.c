/* A small program that uses linattn as users do, in C or C++: it compares one output with values
   worked out by hand. implementation.c is its other file. */
#include <stdio.h>
#include <string.h>

#include "linattn.h"
#include "linattn.h" /* a second inclusion changes nothing */

#ifdef __cplusplus
extern "C" {
#endif
size_t consumer_state(const linattn_config *config, void *state, size_t bytes);
#ifdef __cplusplus
}
#endif

static float memory[LINATTN_STATE_BYTES(1, 2, 2) / sizeof(float)]; /* a constant */

int main(void)
{
    static const float q[4] = {1, 2, 0, 1}, k[4] = {1, 0, 0, 2}, v[4] = {3, 5, 1, -1};
    /* Token 0: (q0.k0) v0 = 1 (3, 5). Token 1: (q1.k0) v0 + (q1.k1) v1 = 0 (3, 5) + 2 (1, -1). */
    static const float expected[4] = {3, 5, 2, -2};
    float out[4] = {0, 0, 0, 0};
    linattn_config config;
    int i;
    memset(&config, 0, sizeof config);
    config.dim_key = 2;
    config.map = LINATTN_MAP_IDENTITY;
    config.normaliser = LINATTN_NORM_NONE;

    if (consumer_state(&config, memory, sizeof memory) != sizeof memory) return 1;
    if (linattn_causal(memory, linattn_rows(q), linattn_rows(k), linattn_rows(v),
                       linattn_output_rows(out), 2, NULL) != LINATTN_OK)
        return 1;
    for (i = 0; i < 4; i++) {
        if (out[i] != expected[i]) {
            printf("output %d is %g instead of %g\n", i, (double)out[i], (double)expected[i]);
            return 1;
        }
    }
    printf("linattn %d.%d.%d, %s\n", LINATTN_VERSION_MAJOR, LINATTN_VERSION_MINOR,
           LINATTN_VERSION_PATCH, linattn_isa_name(linattn_isa_active()));
    return 0;
}
