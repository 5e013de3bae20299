/* Compiled once per instruction set, for each library: FUNCTION is the library's, which takes
   vectors of FLOATS, EXP the name of ours. */
#include <immintrin.h>

#include "peers.h"

#if FLOATS == 16
typedef __m512 vec;
#else
typedef __m256 vec;
#endif

extern vec FUNCTION(vec x);

void EXP(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += FLOATS) {
#if FLOATS == 16
        _mm512_storeu_ps(y + i, FUNCTION(_mm512_loadu_ps(x + i)));
#else
        _mm256_storeu_ps(y + i, FUNCTION(_mm256_loadu_ps(x + i)));
#endif
    }
}
