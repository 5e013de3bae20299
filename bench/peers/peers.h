/* What linattn is compared with. Each takes one head of dense tokens with the map elu1 and the
   normaliser `sum`, in the calling thread. */
#ifndef LINATTN_BENCH_PEERS_H
#define LINATTN_BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>

/* q and k [n][m], v and out [n][dv]; the state s [m][dv] and z [m] goes on from what it holds. */
typedef struct peer_problem {
    const float *q, *k, *v;
    float *out, *s, *z;
    float *scratch; /* as many floats as peer_scratch says */
    size_t n, m, dv;
    size_t chunk; /* tokens that are taken at once; n is a multiple */
    const void *gemm;
} peer_problem;

size_t peer_scratch(size_t m, size_t dv, size_t chunk);

/* ---- Plain C: plain.c, compiled with -O3 -march=native, and with -ffast-math ------------------
   */

void plain_causal(const peer_problem *p);
void plain_bidirectional(const peer_problem *p);
void plain_fast_causal(const peer_problem *p);
void plain_fast_bidirectional(const peer_problem *p);

/* ---- Plain C for one token: plain_step.c ------------------------------------------------------
   */

/* All heads: q and k [heads][m], v and out [heads][dv], s [heads][m][dv], z [heads][m]. What a verb
   does not take may be NULL. */
typedef void plain_step(size_t heads, size_t m, size_t dv, const float *restrict q,
                        const float *restrict k, const float *restrict v, float *restrict out,
                        float *restrict s, float *restrict z);

extern plain_step plain_step_elu1, plain_step_relu, plain_step_identity, plain_step_exp;
extern plain_step plain_step_update, plain_step_query; /* with elu1 */
extern plain_step plain_step_grouped; /* with elu1: heads of queries that share a key and value */

/* Exact attention of one query of each head: k [n][heads][d], v [n][heads][dv], n <= 1024. */
void plain_step_softmax(size_t heads, size_t n, size_t d, size_t dv, float scale,
                        const float *restrict q, const float *restrict k, const float *restrict v,
                        float *restrict out);

/* ---- Plain C for the recurrences: plain_rules.c, by each compiler that is there -------------- */

/* One head of dense tokens, the map identity: gated and gated delta with the logarithm of one decay
   for each token, general with factors [n][m]. The state s goes on from what it holds: [m][dv], or
   in panels of columns. */
typedef struct peer_rule {
    const float *q, *k, *v, *decay, *beta, *read, *write;
    float *out, *s;
    float *scratch; /* 3 dv */
    size_t n, m, dv;
} peer_rule;

typedef void plain_rule(const peer_rule *p);
extern plain_rule gcc_rows_gated, gcc_rows_gated_delta, gcc_rows_general;
extern plain_rule gcc_panels_gated, gcc_panels_gated_delta, gcc_panels_general;
extern plain_rule clang_rows_gated, clang_rows_gated_delta, clang_rows_general;
extern plain_rule clang_panels_gated, clang_panels_gated_delta, clang_panels_general;

/* ---- Plain C for one token of the recurrences: plain_rule_step.c ------------------------------
   */

/* All heads, dense as plain_step has them; the map identity. Decays are logarithms, for general
   factors, [heads] or [heads][m]; beta and input [heads], read, write and bonus [heads][m]. */
typedef struct rule_step {
    const float *q, *k, *v, *decay, *beta, *read, *write, *bonus, *input;
    float *out, *s;
    float *z, *e;   /* of mLSTM: [heads][m] and [heads] */
    float *scratch; /* 2 dv + m */
    size_t heads, m, dv;
} rule_step;

typedef void plain_rule_step(const rule_step *x);
extern plain_rule_step plain_step_gated, plain_step_gated_channel, plain_step_rwkv6;
extern plain_rule_step plain_step_delta, plain_step_gated_delta, plain_step_kda;
extern plain_rule_step plain_step_general, plain_step_mlstm;

/* ---- Products of matrices over chunks of tokens: chunked.c ------------------------------------
   */

/* The four products, for one shape. Matrices are dense and row-major, [chunk][m], [chunk][dv],
   [chunk][chunk]; `transposed` is [m][chunk], where wanted. */
typedef struct gemm {
    size_t m, dv, chunk;
    bool wants_transposed;
    void *kernel[4];
    void (*transpose)(const struct gemm *g, const float *keys, float *transposed);
    void (*scores)(const struct gemm *g, const float *queries, const float *keys,
                   const float *transposed, float *a); /* a = q k' */
    void (*read)(const struct gemm *g, const float *queries, const float *s, float *out); /* = */
    void (*weigh)(const struct gemm *g, const float *a, const float *v, float *out);      /* += */
    void (*write)(const struct gemm *g, const float *keys, const float *transposed, const float *v,
                  float *s); /* s += k' v */
} gemm;

void chunked_causal(const peer_problem *p);
void chunked_bidirectional(const peer_problem *p);

/* Fill the gemm in for a shape; false if the library cannot. */
bool openblas_gemm(gemm *g, size_t m, size_t dv, size_t chunk);
bool libxsmm_gemm(gemm *g, size_t m, size_t dv, size_t chunk);

/* The kernels that OpenBLAS chose for this processor, and its version. */
const char *openblas_description(void);

/* ---- exp on arrays: exp.c, compiled once per instruction set; n is a multiple of 16 -----------
   */

typedef void peer_exp(const float *x, float *y, size_t n);
extern peer_exp sleef_exp_avx2, sleef_exp_avx512, libmvec_exp_avx2, libmvec_exp_avx512;

#endif
