#include "peak.h"

const peak *peak_of(linattn_isa isa)
{
    switch (isa) {
    case LINATTN_ISA_SCALAR: return &peak_scalar;
#if defined(__x86_64__)
    case LINATTN_ISA_AVX2: return &peak_avx2;
    case LINATTN_ISA_AVX512: return &peak_avx512;
#elif defined(__aarch64__)
    case LINATTN_ISA_NEON: return &peak_neon;
#endif
    default: return NULL;
    }
}
