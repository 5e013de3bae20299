/* Linear and exact attention in double precision, in plain loops. The scale is 1 / sqrt(d) for
   exact attention, Nystroem and the maps that approximate it, 1 for the others. */
#ifndef LINATTN_BENCH_ORACLE_H
#define LINATTN_BENCH_ORACLE_H

#include <stdbool.h>
#include <stddef.h>

#include "linattn.h"

/* One head. Strides in floats, from one token to the next. */
typedef struct oracle_problem {
    const float *q, *k, *v;
    size_t q_token, k_token, v_token;
    size_t n, d, dv;
    linattn_feature_map map;
    size_t features; /* favor: rows of the projection */
    size_t degree;   /* taylor, expdef; 0 means 2 */
    const float *projection;
    size_t window;                 /* not 0: keys i - window < j <= i alone, causal */
    linattn_normaliser normaliser; /* not DEFAULT */
    bool exact;                    /* exact attention */
    bool causal;
    size_t landmarks;    /* not 0: Nystroem with so many, a divisor of n, and 12 steps */
    linattn_rule rule;   /* not SUM: causal, without a normaliser */
    linattn_gates gates; /* with no stride left 0 */
} oracle_problem;

/* How many tokens can be checked in reasonable time, at most n. */
size_t oracle_tokens(const oracle_problem *p);

/* The largest |out - expected|, relative to the largest |expected| of its row. */
double oracle_error(const oracle_problem *p, const float *out, size_t out_token);

/* w = A^+ bv with A = softmax(q k^T / sqrt(d)), by 12 steps of Nystroem's iteration; dense rows,
   `landmarks` each. */
void oracle_inverse(const double *q, const double *k, const double *bv, size_t landmarks, size_t d,
                    size_t dv, double *w);

/* The same for a map on an array: relative to each element. */
double oracle_map_error(linattn_feature_map map, const float *x, const float *y, size_t n);

/* phi of one vector, and how long that is. keys: of a key, not of a query. */
void oracle_features(const oracle_problem *p, bool keys, const float *x, double *phi);
size_t oracle_feature_count(const oracle_problem *p);

#endif
