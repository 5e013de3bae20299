/* What a core can do at best: the two limits that kernels are measured against. */
#ifndef LINATTN_BENCH_PEAK_H
#define LINATTN_BENCH_PEAK_H

#include <stddef.h>

#include "linattn.h"

typedef struct peak {
    double (*multiply)(size_t rounds); /* independent FMAs in registers; returns their flops */
    void (*update)(float *x, size_t floats); /* reads and writes x, without changing a bit of it */
} peak;

/* Of one instruction set; NULL where there is none for it. */
const peak *peak_of(linattn_isa isa);

/* peak.c is compiled once for each of these. */
extern const peak peak_scalar, peak_neon, peak_avx2, peak_avx512;

#endif
