/* libxsmm is column-major and compiles kernels for products of stored matrices, so what is
   row-major here is its transpose there: c = a b is c' = b' a'. The keys are transposed first, by
   its own transposition. */
#include <libxsmm.h>

#include "peers.h"

enum { SCORES, READ, WEIGH, WRITE };

/* c [rows][columns] = a [rows][depth] b [depth][columns] + beta c, row-major. */
static void *compile(size_t rows, size_t columns, size_t depth, float beta)
{
    const float alpha = 1.0f;
    const libxsmm_blasint m = (libxsmm_blasint)columns, n = (libxsmm_blasint)rows,
                          k = (libxsmm_blasint)depth;
    const libxsmm_smmfunction kernel =
        libxsmm_smmdispatch(m, n, k, &m, &k, &m, &alpha, &beta, NULL, NULL);
    union {
        libxsmm_smmfunction function;
        void *pointer;
    } as;
    as.function = kernel;
    return as.pointer;
}

static void multiply(const gemm *g, int which, const float *a, const float *b, float *c)
{
    union {
        void *pointer;
        libxsmm_smmfunction function;
    } as;
    as.pointer = g->kernel[which];
    as.function(b, a, c);
}

static void transpose(const gemm *g, const float *keys, float *transposed)
{
    const libxsmm_blasint m = (libxsmm_blasint)g->m, n = (libxsmm_blasint)g->chunk;
    libxsmm_otrans(transposed, keys, sizeof(float), m, n, m, n);
}

static void scores(const gemm *g, const float *queries, const float *keys, const float *transposed,
                   float *a)
{
    (void)keys;
    multiply(g, SCORES, queries, transposed, a);
}

static void read_out(const gemm *g, const float *queries, const float *s, float *out)
{
    multiply(g, READ, queries, s, out);
}

static void weigh(const gemm *g, const float *a, const float *v, float *out)
{
    multiply(g, WEIGH, a, v, out);
}

static void add_keys(const gemm *g, const float *keys, const float *transposed, const float *v,
                     float *s)
{
    (void)keys;
    multiply(g, WRITE, transposed, v, s);
}

bool libxsmm_gemm(gemm *g, size_t m, size_t dv, size_t chunk)
{
    *g = (gemm){.m = m,
                .dv = dv,
                .chunk = chunk,
                .wants_transposed = true,
                .transpose = transpose,
                .scores = scores,
                .read = read_out,
                .weigh = weigh,
                .write = add_keys};
    g->kernel[SCORES] = compile(chunk, chunk, m, 0.0f);
    g->kernel[READ] = compile(chunk, dv, m, 0.0f);
    g->kernel[WEIGH] = compile(chunk, dv, chunk, 1.0f);
    g->kernel[WRITE] = compile(m, dv, chunk, 1.0f);
    return g->kernel[SCORES] && g->kernel[READ] && g->kernel[WEIGH] && g->kernel[WRITE];
}
