/* A fixed run: the same hash on every machine. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include <stdint.h>

/* 0 if a call is refused. */
uint64_t golden_hash(void);

/* Integers from -range to range, as floats. */
void golden_fill(float *x, unsigned count, int range, float scale);

#endif
