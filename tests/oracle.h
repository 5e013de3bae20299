/* The formulas in double precision, in plain loops, sharing no code with the library. */
#ifndef LINATTN_TESTS_ORACLE_H
#define LINATTN_TESTS_ORACLE_H

#include "common.h"

/* What is expected of one output element, and the magnitude that its rounding errors are relative
   to: the same sums over absolute values, the condition of the quotient included. A backward stable
   float computation is off by a small multiple of FLT_EPSILON * magnitude. Where terms cancel, the
   magnitude is larger than the value. */
typedef struct oracle {
    double *value, *magnitude; /* [n_q][heads][dim_value] */
} oracle;

/* Linear attention, from the attention matrix phi(q_i).phi(k_j): n_q * n_k * (m + dim_value). The
   exponential maps work in the logarithmic domain and hold for any finite query and key. causal:
   query i sees keys 0 .. i. */
oracle oracle_linear(const problem *p, bool causal);

/* The same, causal, as the recurrence S += phi(k) v^T, with exponentials taken at face value:
   values only, moderate queries and keys only. A second opinion on the first form. */
double *oracle_recurrence(const problem *p);

/* Exact attention. causal: query i sees keys 0 .. i + n_k - n_q. */
oracle oracle_softmax(const problem *p, bool causal);

/* phi of one vector. */
void oracle_map(const linattn_config *config, bool keys, const float *x, double *y);

/* How far a result may lie from its oracle, relative to the magnitude. Sums over n tokens and m
   features round n + m times; the errors are independent enough to grow like the square root, with
   room for the worst element of many. The constant is for the map, the quotient and the product
   with the weight. With a scale other than 1, x sqrt(scale) is rounded before the exponential. */
double rounding_linear(const problem *p);
double rounding_softmax(const problem *p);

/* Every element within tolerance * magnitude. */
void check_close(const problem *p, const char *verb, const float *out, size_t n_q, oracle expected,
                 double tolerance);

/* || out - expected || / || expected || over all outputs. */
double norm_error(const float *out, oracle expected, size_t count);

#endif
