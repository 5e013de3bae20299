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
   query i sees keys 0 .. i; of these and of all, the last ones within the config's window.
   Magnitudes include what a float computation of the map itself may lose: a float dot product is
   the exponent of favor, and a product of up to `degree` factors is a monomial. */
oracle oracle_linear(const problem *p, bool causal);

/* The same, causal, as the recurrence S += phi(k) v^T, with exponentials taken at face value:
   values only, moderate queries and keys only. A second opinion on the first form. Under a window a
   recurrence of its own for each query. */
double *oracle_recurrence(const problem *p);

/* Exact attention. causal: query i sees keys 0 .. i + n_k - n_q. */
oracle oracle_softmax(const problem *p, bool causal);

/* phi of one vector of a config with its defaults spelt out. Monomials come in an order of their
   own. doubt: by how many units of rounding beyond a few each one may be off; may be NULL. */
void oracle_map(const linattn_config *config, bool keys, const float *x, double *y, double *doubt);

/* phi(q).phi(k) without features, for favor, taylor and expdef: the mean over the rows of the
   projection of e^(w.(q' + k') - ..), the sum of (s q.k)^p / p!, and (1 + s q.k / n)^n. */
double oracle_kernel(const linattn_config *config, const float *q, const float *k);

/* ---- Recurrences ---------------------------------------------------------------------------- */

/* What is expected of a sequence under a rule. size: what the error of a row of outputs, and of an
   element of the sums, is relative to: of sums what they are over absolute values; where a rule
   reads its state, and what is read may cancel what was there, the largest element that there was
   lately. INFINITY for a row whose denominator cancels. Sums are e^log_scale (of their head) times
   what is given here: mLSTM's, which may be beyond a double. */
typedef struct rule_oracle {
    double *value, *size;     /* [n][heads][dim_value], [n][heads] */
    double *sums, *sums_size; /* [kv_heads][dim_key][dim_value] */
    double *z, *z_size;       /* [kv_heads][dim_key]; whether the rule needs it or not */
    double *log_scale;        /* [kv_heads] */
} rule_oracle;

rule_oracle oracle_rule(const recurrence *x);

/* How far a result may lie from its oracle, relative to the magnitude. Sums over n tokens and m
   features round n + m times; the errors are independent enough to grow like the square root, with
   room for the worst element of many. The constant is for the map, the quotient and the product
   with the weight. With a scale other than 1, x sqrt(scale) is rounded before the exponential of an
   elementwise map. */
double rounding_linear(const problem *p);
double rounding_softmax(const problem *p);

/* Every element within tolerance * magnitude. */
void check_close(const problem *p, const char *verb, const float *out, size_t n_q, oracle expected,
                 double tolerance);

/* || out - expected || / || expected || over all outputs. */
double norm_error(const float *out, oracle expected, size_t count);

#endif
