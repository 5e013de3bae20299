/* Built with LINATTN_NO_WINDOW, LINATTN_NO_FEATURES or both: are just these refused? */
#define LINATTN_IMPLEMENTATION
#include "linattn.h"
#include <stdio.h>

#ifdef LINATTN_NO_WINDOW
#define WINDOW LINATTN_ERROR_UNSUPPORTED
#else
#define WINDOW LINATTN_OK
#endif
#ifdef LINATTN_NO_FEATURES
#define FEATURES LINATTN_ERROR_UNSUPPORTED
#else
#define FEATURES LINATTN_OK
#endif

static float memory[65536];
static int failed;

/* A state can be made exactly where `expected` says so, and then averages two equal values. */
static void check(const char *what, linattn_config config, linattn_status expected)
{
    const float q[8] = {1, 2, 3, 4, 5, 6, 7, 8}, v[8] = {3, 3, 3, 3, 3, 3, 3, 3};
    float out[8] = {0};
    linattn_status status = linattn_state_init(&config, memory, sizeof memory);
    if (status == LINATTN_OK)
        status = linattn_causal(memory, linattn_rows(q), linattn_rows(q), linattn_rows(v),
                                linattn_output_rows(out), 2, NULL);
    if (status != expected || (status == LINATTN_OK && !(out[4] > 2.999f && out[4] < 3.001f))) {
        printf("%s: %s, %g\n", what, linattn_status_string(status), (double)out[4]);
        failed = 1;
    }
}

int main(void)
{
    static const float projection[16] = {1, 0, -1, 0, 0, 1, 0, -1, 1, 1, 0, 0, 0, 0, 1, 1};
    check("elu1", (linattn_config){.dim_key = 4}, LINATTN_OK);
    check("exp", (linattn_config){.dim_key = 4, .map = LINATTN_MAP_EXP}, LINATTN_OK);
    check("window", (linattn_config){.dim_key = 4, .window = 3}, WINDOW);
    check("taylor", (linattn_config){.dim_key = 4, .map = LINATTN_MAP_TAYLOR}, FEATURES);
    check("favor",
          (linattn_config){
              .dim_key = 4, .map = LINATTN_MAP_FAVOR, .features = 4, .projection = projection},
          FEATURES);
    return failed;
}
