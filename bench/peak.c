/* Compiled once per instruction set, with that set's flags, PEAK set to the name of its table and
   PEAK_FLOATS to the width of its vectors. */
#include "peak.h"

#if PEAK_FLOATS == 1
typedef float vec;
#else
typedef float vec __attribute__((vector_size(4 * PEAK_FLOATS), may_alias, aligned(4)));
#endif

/* Enough chains to hide the latency of two units with four cycles each, few enough for sixteen
   registers. */
enum { CHAINS = 12, STEPS = 8 };

/* Read at run time, so that nothing can be folded. */
static const volatile float shrink = 0.75f, shift = 0.25f, one = 1.0f, minus_zero = -0.0f;
static volatile float sink;

static vec all(float x) { return x - (vec){0}; }

static double multiply(size_t rounds)
{
    const vec a = all(shrink), b = all(shift);
    vec x[CHAINS];
    float sum = 0.0f;
    for (size_t i = 0; i < CHAINS; i++) x[i] = all((float)i);
    for (size_t round = 0; round < rounds; round++)
        for (size_t step = 0; step < STEPS; step++)
            for (size_t i = 0; i < CHAINS; i++) x[i] = x[i] * a + b;
    for (size_t i = 0; i < CHAINS; i++) sum += ((const float *)&x[i])[0];
    sink = sum;
    return 2.0 * PEAK_FLOATS * CHAINS * STEPS * (double)rounds;
}

/* x * 1 + -0 is x, its sign of zero included. */
static void update(float *x, size_t floats)
{
    const vec a = all(one), b = all(minus_zero);
    vec *v = (vec *)x;
    size_t i = 0;
    for (; i + 8 * PEAK_FLOATS <= floats; i += 8 * PEAK_FLOATS, v += 8) {
        for (size_t j = 0; j < 8; j++) v[j] = v[j] * a + b;
    }
}

const peak PEAK = {multiply, update};
