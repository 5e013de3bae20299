/* A program of nothing but start-up, and with -DCALLS what the two functions bring with them. */
#include "attention.h"

int main(void)
{
#ifdef CALLS
    static float state[512], x[16], out[16];
    static const attention a = {1, 16, 16, 0, 0, 0};
    return library_init(&a, state, sizeof state) || library_causal(state, x, x, x, out, 1);
#else
    return 0;
#endif
}
