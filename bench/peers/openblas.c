#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

#include "peers.h"

/* c = a b + beta c with a [rows][depth] and b [depth][columns], either of them stored transposed.
   */
static void product(bool a_transposed, bool b_transposed, size_t rows, size_t columns, size_t depth,
                    const float *a, const float *b, float beta, float *c)
{
    cblas_sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                b_transposed ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, (int)depth, 1.0f,
                a, (int)(a_transposed ? rows : depth), b, (int)(b_transposed ? depth : columns),
                beta, c, (int)columns);
}

static void scores(const gemm *g, const float *queries, const float *keys, const float *transposed,
                   float *a)
{
    (void)transposed;
    product(false, true, g->chunk, g->chunk, g->m, queries, keys, 0.0f, a);
}

static void read_out(const gemm *g, const float *queries, const float *s, float *out)
{
    product(false, false, g->chunk, g->dv, g->m, queries, s, 0.0f, out);
}

static void weigh(const gemm *g, const float *a, const float *v, float *out)
{
    product(false, false, g->chunk, g->dv, g->chunk, a, v, 1.0f, out);
}

static void add_keys(const gemm *g, const float *keys, const float *transposed, const float *v,
                     float *s)
{
    (void)transposed;
    product(true, false, g->m, g->dv, g->chunk, keys, v, 1.0f, s);
}

bool openblas_gemm(gemm *g, size_t m, size_t dv, size_t chunk)
{
    openblas_set_num_threads(1);
    *g = (gemm){.m = m,
                .dv = dv,
                .chunk = chunk,
                .scores = scores,
                .read = read_out,
                .weigh = weigh,
                .write = add_keys};
    return true;
}

const char *openblas_description(void)
{
    static char text[256];
    const char *told = getenv("OPENBLAS_CORETYPE"); /* by main.c */
    snprintf(text, sizeof text, "%s%s (%s)", openblas_get_corename(),
             told ? ", as it does not know this processor" : "", openblas_get_config());
    return text;
}
