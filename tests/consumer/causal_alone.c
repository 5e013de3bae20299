/* A program that calls linattn_state_init and linattn_causal, and nothing else. */
#include "linattn.h"

static float state[4096], x[64], out[64];

/* Whatever the caller wants, so that nothing is left out that some config needs. */
linattn_status attend(const linattn_config *config, size_t n, const linattn_context *context);
linattn_status attend(const linattn_config *config, size_t n, const linattn_context *context)
{
    linattn_status status = linattn_state_init(config, state, sizeof state);
    if (status != LINATTN_OK) return status;
    return linattn_causal(state, linattn_rows(x), linattn_rows(x), linattn_rows(x),
                          linattn_output_rows(out), n, context);
}

int main(void)
{
    linattn_config config = {.dim_key = 16};
    return attend(&config, 4, NULL) != LINATTN_OK;
}
