/* Nystroemformer against its formulas in double precision, on real heads too; its laws, its edges
   and its statuses. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#ifndef TEST_DATA /* programs that are not built by meson run in the source directory */
#define TEST_DATA "examples/data"
#endif

enum { MOST_STEPS = 24 }; /* as documented */

/* ---- The formulas --------------------------------------------------------------------------- */

typedef struct matrix {
    size_t rows, columns;
    double *x;
} matrix;

static matrix matrix_new(size_t rows, size_t columns)
{
    matrix m = {rows, columns, pool_doubles(rows * columns + 1)};
    for (size_t i = 0; i < rows * columns; i++) m.x[i] = 0;
    return m;
}

static matrix times(matrix a, matrix b)
{
    matrix c = matrix_new(a.rows, b.columns);
    check(a.columns == b.rows, "%zu and %zu", a.columns, b.rows);
    for (size_t i = 0; i < a.rows; i++) {
        double *restrict to = c.x + i * c.columns;
        size_t t = 0, n = b.columns;
        for (; t + 4 <= a.columns; t += 4) { /* half of the time that one by one takes */
            const double *restrict by = a.x + i * a.columns + t, *restrict from = b.x + t * n;
            for (size_t j = 0; j < n; j++)
                to[j] = to[j] + by[0] * from[j] + by[1] * from[n + j] + by[2] * from[2 * n + j] +
                        by[3] * from[3 * n + j];
        }
        for (; t < a.columns; t++)
            for (size_t j = 0; j < n; j++) to[j] += a.x[i * a.columns + t] * b.x[t * n + j];
    }
    return c;
}

static matrix transposed(matrix a)
{
    matrix b = matrix_new(a.columns, a.rows);
    for (size_t i = 0; i < a.rows; i++)
        for (size_t j = 0; j < a.columns; j++) b.x[j * b.columns + i] = a.x[i * a.columns + j];
    return b;
}

static matrix absolute(matrix a)
{
    matrix b = matrix_new(a.rows, a.columns);
    for (size_t i = 0; i < a.rows * a.columns; i++) b.x[i] = fabs(a.x[i]);
    return b;
}

static matrix plus(matrix a, matrix b)
{
    matrix c = matrix_new(a.rows, a.columns);
    for (size_t i = 0; i < a.rows * a.columns; i++) c.x[i] = a.x[i] + b.x[i];
    return c;
}

/* factor I - a */
static matrix identity_less(double factor, matrix a)
{
    matrix c = matrix_new(a.rows, a.columns);
    for (size_t i = 0; i < a.rows; i++)
        for (size_t j = 0; j < a.columns; j++)
            c.x[i * a.columns + j] = (i == j ? factor : 0) - a.x[i * a.columns + j];
    return c;
}

static double frobenius(matrix a)
{
    double sum = 0;
    for (size_t i = 0; i < a.rows * a.columns; i++) sum += a.x[i] * a.x[i];
    return sqrt(sum);
}

/* softmax of the rows of s a b^T, and the largest sum of the absolute terms of a score. */
static matrix attention(double s, matrix a, matrix b, double *largest_score)
{
    matrix p = matrix_new(a.rows, b.rows);
    for (size_t i = 0; i < a.rows; i++) {
        double *row = p.x + i * p.columns, largest = -INFINITY, sum = 0;
        for (size_t j = 0; j < b.rows; j++) {
            double terms = 0;
            for (size_t f = 0; f < a.columns; f++) {
                double term = s * a.x[i * a.columns + f] * b.x[j * b.columns + f];
                row[j] += term;
                terms += fabs(term);
            }
            largest = fmax(largest, row[j]);
            *largest_score = fmax(*largest_score, terms);
        }
        for (size_t j = 0; j < b.rows; j++) sum += row[j] = exp(row[j] - largest);
        for (size_t j = 0; j < b.rows; j++) row[j] /= sum;
    }
    return p;
}

static double largest_sum(matrix a, bool of_columns)
{
    double largest = 0;
    for (size_t i = 0; i < (of_columns ? a.columns : a.rows); i++) {
        double sum = 0;
        for (size_t j = 0; j < (of_columns ? a.rows : a.columns); j++)
            sum += fabs(of_columns ? a.x[j * a.columns + i] : a.x[i * a.columns + j]);
        largest = fmax(largest, sum);
    }
    return largest;
}

static matrix pseudo_inverse(matrix a, size_t steps)
{
    matrix z = transposed(a);
    double c = largest_sum(a, true) * largest_sum(a, false);
    for (size_t i = 0; i < z.rows * z.columns; i++) z.x[i] /= c;
    for (size_t step = 0; step < steps; step++) {
        size_t mark = pool_mark();
        matrix az = times(a, z);
        if (step > 0 && frobenius(identity_less(1, az)) <= ldexp(1, -30)) break;
        matrix next = times(az, identity_less(7, az));
        next = times(az, identity_less(15, next));
        next = times(z, identity_less(13, next));
        for (size_t i = 0; i < z.rows * z.columns; i++) z.x[i] = 0.25 * next.x[i];
        pool_release(mark);
    }
    return z;
}

static bool is_masked(const double *k, size_t dim)
{
    for (size_t f = 0; f < dim; f++)
        if (k[f] != -INFINITY) return false;
    return true;
}

/* Head h of `heads` as doubles; masked rows are left out. */
static matrix head_of(const float *x, size_t n, size_t heads, size_t h, size_t dim)
{
    matrix m = matrix_new(n, dim);
    for (size_t t = 0; t < n; t++)
        for (size_t f = 0; f < dim; f++) m.x[t * dim + f] = (double)x[(t * heads + h) * dim + f];
    return m;
}

static matrix without_masked(matrix x, matrix keys)
{
    matrix m = matrix_new(x.rows, x.columns);
    m.rows = 0;
    for (size_t t = 0; t < x.rows; t++)
        if (!is_masked(keys.x + t * keys.columns, keys.columns))
            memcpy(m.x + m.rows++ * m.columns, x.x + t * x.columns, x.columns * sizeof(double));
    return m;
}

/* Means of consecutive segments, without masked tokens. */
static matrix landmarks_of(matrix x, size_t landmarks)
{
    size_t length = x.rows ? (x.rows + landmarks - 1) / landmarks : 1;
    matrix m = matrix_new(x.rows < landmarks ? x.rows : landmarks, x.columns);
    m.rows = 0;
    for (size_t start = 0; start < x.rows; start += length) {
        double *mean = m.x + m.rows * m.columns;
        size_t count = 0;
        for (size_t t = start; t < x.rows && t < start + length; t++) {
            const double *row = x.x + t * x.columns;
            if (is_masked(row, x.columns)) continue;
            for (size_t f = 0; f < x.columns; f++) mean[f] += row[f];
            count++;
        }
        for (size_t f = 0; f < x.columns && count; f++) mean[f] /= (double)count;
        if (count) m.rows++;
    }
    return m;
}

/* out = F A^+ (B V). The magnitude is what first errors of F, B and A amount to, each relative to
   its elements: dF W + F Z dB V + F Z dA W with W = Z B V, all in absolute values. An error of a
   score is a relative error of its weight. */
static oracle oracle_nystrom(const problem *p)
{
    const linattn_config *c = &p->config;
    size_t dv = c->dim_value, width = output_width(p);
    size_t landmarks = c->landmarks ? c->landmarks : 64, steps = c->iterations ? c->iterations : 12;
    double s = c->scale > 0 ? (double)c->scale : 1 / sqrt((double)c->dim_key);
    oracle result = {pool_doubles(p->n_q * width), pool_doubles(p->n_q * width)};
    for (size_t h = 0; h < c->heads; h++) {
        size_t mark = pool_mark(), g = h / (c->heads / c->kv_heads);
        double score = 0;
        matrix q = head_of(p->q, p->n_q, c->heads, h, c->dim_key);
        matrix keys = head_of(p->k, p->n_k, c->kv_heads, g, c->dim_key);
        matrix v = without_masked(head_of(p->v, p->n_k, c->kv_heads, g, dv), keys);
        matrix k = without_masked(keys, keys);
        matrix q_marks = landmarks_of(q, landmarks), k_marks = landmarks_of(keys, landmarks);
        matrix a = attention(s, q_marks, k_marks, &score);
        matrix f = attention(s, q, k_marks, &score), b = attention(s, q_marks, k, &score);
        matrix z = pseudo_inverse(a, steps < MOST_STEPS ? steps : MOST_STEPS);
        matrix w = times(z, times(b, v)), out = times(f, w);
        matrix errors = plus(times(b, absolute(v)), times(a, absolute(w)));
        errors = times(f, plus(absolute(w), times(absolute(z), errors)));
        for (size_t i = 0; i < p->n_q; i++)
            for (size_t e = 0; e < dv; e++) {
                result.value[i * width + h * dv + e] = out.x[i * dv + e];
                result.magnitude[i * width + h * dv + e] = (1 + score) * errors.x[i * dv + e];
            }
        pool_release(mark);
    }
    return result;
}

/* ---- Runs ----------------------------------------------------------------------------------- */

static const char *name_of(const problem *p)
{
    static char text[256];
    snprintf(text, sizeof text, "%zu landmarks, %zu steps, %s", p->config.landmarks,
             p->config.iterations, problem_name(p));
    return text;
}

static float *run_placed(const problem *p, const plan *how)
{
    const linattn_config *c = &p->config;
    size_t bytes = linattn_workspace_size(c, LINATTN_WORKSPACE_NYSTROM, how->context);
    size_t offset = how->workspace_offset;
    unsigned char *workspace =
        (unsigned char *)pool_take_guarded(bytes + offset, how->state_side) + offset;
    elements of = how->of;
    linattn_view q = place_elements(p->q, of.q, p->n_q, c->heads, c->dim_key, how->q);
    linattn_view k = place_elements(p->k, of.k, p->n_k, c->kv_heads, c->dim_key, how->k);
    linattn_view v = place_elements(p->v, of.v, p->n_k, c->kv_heads, c->dim_value, how->v);
    linattn_output out = place_output(p->n_q, c->heads, c->dim_value, how->out);
    float *dense = pool_floats(p->n_q * output_width(p));
    check(bytes > 0, "%s", name_of(p));
    check_status(
        linattn_nystrom(c, q, p->n_q, k, v, p->n_k, out, 0, workspace, bytes, how->context),
        LINATTN_OK, "%s", name_of(p));
    collect_output(out, p->n_q, c->heads, c->dim_value, how->out, dense, name_of(p));
    return dense;
}

static float *run(const problem *p)
{
    static const plan simplest;
    return run_placed(p, &simplest);
}

static float *run_on(const problem *p, linattn_isa isa)
{
    linattn_isa before = linattn_isa_active();
    check_status(linattn_isa_select(isa), LINATTN_OK, "%s", linattn_isa_name(isa));
    float *out = run(p);
    check_status(linattn_isa_select(before), LINATTN_OK, "%s", linattn_isa_name(before));
    return out;
}

static void check_problem(const problem *p)
{
    size_t mark = pool_mark();
    double tolerance = (24 + 4 * sqrt((double)(p->n_k + p->config.dim_key))) * 0.5 * FLT_EPSILON;
    check_close(p, name_of(p), run(p), p->n_q, oracle_nystrom(p), tolerance);
    pool_release(mark);
}

/* What is promised: the error of a head's output, in norm. */
static void check_norm(const problem *p, double allowed)
{
    size_t mark = pool_mark(), width = output_width(p), dv = p->config.dim_value;
    oracle expected = oracle_nystrom(p);
    const float *out = run(p);
    for (size_t h = 0; h < p->config.heads; h++) {
        double error = 0, norm = 0;
        for (size_t i = 0; i < p->n_q; i++)
            for (size_t c = 0; c < dv; c++) {
                size_t at = i * width + h * dv + c;
                error += pow((double)out[at] - expected.value[at], 2);
                norm += pow(expected.value[at], 2);
            }
        check(sqrt(error) <= allowed * sqrt(norm), "head %zu is %.3g off, %.3g allowed, %s", h,
              sqrt(error / norm), allowed, name_of(p));
    }
    pool_release(mark);
}

/* ---- Against the formulas ------------------------------------------------------------------- */

static const size_t dims[] = {1, 2, 3, 5, 7, 8, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65, 100};
static const size_t heads[][2] = {{1, 1}, {2, 2}, {4, 2}, {3, 1}};
static const size_t counts[][2] = {{1, 1},   {1, 20},  {2, 1},   {5, 3},    {16, 16},  {17, 33},
                                   {33, 31}, {48, 48}, {49, 70}, {65, 129}, {130, 64}, {200, 200}};
static const size_t marks[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33, 48, 49, 64, 0};
static const size_t steps[] = {0, 1, 2, 6, 12}, scales[] = {0, 0, 5, 11}; /* eighths */

static linattn_config draw_config(rng *r)
{
    size_t h = rng_below(r, COUNT_OF(heads));
    linattn_config config = {.heads = heads[h][0],
                             .kv_heads = heads[h][1],
                             .dim_key = rng_pick(r, dims, COUNT_OF(dims)),
                             .dim_value = rng_pick(r, dims, COUNT_OF(dims)),
                             .scale = 0.125f * (float)rng_pick(r, scales, COUNT_OF(scales)),
                             .landmarks = rng_pick(r, marks, COUNT_OF(marks)),
                             .iterations = rng_pick(r, steps, COUNT_OF(steps))};
    return config;
}

static void random_problems(void **state)
{
    (void)state;
    rng r = {1};
    size_t repeats = test_quick() ? 60 : 600;
    for (size_t i = 0; i < repeats; i++) {
        size_t mark = pool_mark();
        const size_t *n = counts[rng_below(&r, COUNT_OF(counts) - (test_quick() ? 3 : 0))];
        problem p = problem_new(draw_config(&r), n[0], n[1], &r, 2);
        check_problem(&p);
        pool_release(mark);
    }
}

/* Every remainder of the tiles, square and not, over and under the number of landmarks. */
static void every_number_of_landmarks(void **state)
{
    (void)state;
    rng r = {2};
    for (size_t landmarks = 1; landmarks <= (test_quick() ? 20 : 70); landmarks++) {
        size_t mark = pool_mark();
        linattn_config config = {.dim_key = 4, .dim_value = 1 + landmarks % 20};
        config.landmarks = landmarks;
        problem p = problem_new(config, 2 * landmarks - 1, 50 + landmarks % 7, &r, 3);
        check_problem(&p);
        p.config.landmarks = 1000;
        p.n_q = landmarks;
        check_problem(&p);
        pool_release(mark);
    }
}

/* The mean query's exact attention, for every query. */
static void one_landmark(void **state)
{
    (void)state;
    rng r = {3};
    linattn_config config = {.dim_key = 20, .dim_value = 18, .landmarks = 1};
    problem p = problem_new(config, 50, 70, &r, 3), mean = problem_new(config, 1, 70, &r, 3);
    for (size_t f = 0; f < 20; f++) {
        double sum = 0;
        for (size_t t = 0; t < 50; t++) sum += (double)p.q[t * 20 + f];
        mean.q[f] = (float)(sum / 50);
    }
    mean.k = p.k;
    mean.v = p.v;
    oracle expected = oracle_softmax(&mean, false);
    const float *out = run(&p);
    for (size_t i = 0; i < 50; i++)
        check_close(&mean, "one landmark", out + i * 18, 1, expected, 1e-5);
}

/* Where every token is its own landmark the result is exact attention, once the steps converge;
   they do if the tokens differ. */
static void every_token_a_landmark(void **state)
{
    (void)state;
    rng r = {4};
    for (size_t n = 1; n <= (test_quick() ? 20 : 60); n += 1 + n / 5) {
        size_t mark = pool_mark();
        linattn_config config = {.heads = 2, .dim_key = 64, .dim_value = 5, .scale = 0.25f};
        config.landmarks = n;
        config.iterations = MOST_STEPS;
        problem p = problem_new(config, n, n, &r, 3);
        for (size_t i = 0; i < n * query_width(&p); i++) p.q[i] = p.k[i] + 0.1f * p.q[i];
        const float *out = run(&p);
        double error = norm_error(out, oracle_softmax(&p, false), n * output_width(&p));
        check(error < 1e-5, "%.3g off from exact attention, %s", error, name_of(&p));
        p.config.landmarks = n + 900;
        check_same_floats(run(&p), out, n * output_width(&p), output_width(&p),
                          "more landmarks than tokens, %s", name_of(&p));
        pool_release(mark);
    }
}

/* With the documentation's limit, and once converged, no further step changes anything. */
static void the_number_of_steps(void **state)
{
    (void)state;
    rng r = {5};
    linattn_config config = {.heads = 2, .dim_key = 32, .dim_value = 7, .landmarks = 24};
    problem p = problem_new(config, 100, 100, &r, 1);
    /* Two landmarks nearly agree, so that 24 steps are too few. */
    for (size_t i = 0; i < 5 * query_width(&p); i++)
        p.q[i] = p.q[5 * query_width(&p) + i] + 1e-4f * p.q[i];
    size_t count = 100 * output_width(&p);
    p.config.iterations = MOST_STEPS;
    const float *most = run(&p);
    p.config.iterations = SIZE_MAX;
    check_same_floats(run(&p), most, count, output_width(&p), "no end of steps");
    p.config.iterations = 0;
    const float *usual = run(&p);
    p.config.iterations = 12;
    check_same_floats(run(&p), usual, count, output_width(&p), "12 steps are the default");
    p.config.iterations = 11;
    check(memcmp(run(&p), usual, count * sizeof(float)) != 0, "11 steps give what 12 do");

    linattn_config sharp = {.dim_key = 64, .dim_value = 6, .scale = 1, .landmarks = 16};
    problem converges = problem_new(sharp, 16, 16, &r, 3);
    memcpy(converges.q, converges.k, 16 * 64 * sizeof(float));
    usual = run(&converges);
    converges.config.iterations = MOST_STEPS;
    check_same_floats(run(&converges), usual, 16 * 6, 6, "more steps than converge");
}

/* ---- Ill-conditioned landmarks -------------------------------------------------------------- */

/* Tokens that move slowly have landmarks that hardly differ. */
static void ill_conditioned(void **state)
{
    (void)state;
    rng r = {6};
    for (int i = 0; i < 12; i++) {
        size_t mark = pool_mark(), n = test_quick() ? 96 : 256;
        linattn_config config = {.heads = 2, .dim_key = 32, .dim_value = 16};
        config.landmarks = (size_t)8 << i % (test_quick() ? 3 : 4);
        problem p = problem_new(config, n, n, &r, 0.2f + 0.1f * (float)i);
        for (size_t e = query_width(&p); e < n * query_width(&p); e++) {
            p.q[e] = 0.97f * p.q[e - query_width(&p)] + 0.2f * p.q[e];
            p.k[e] = 0.97f * p.k[e - key_width(&p)] + 0.2f * p.k[e];
        }
        check_norm(&p, 1e-4);
        check_problem(&p);
        pool_release(mark);
    }
}

/* A .npy file's floats, of known shape. */
static float *data(const char *name, char operand, size_t count)
{
    char path[512];
    unsigned char start[10];
    snprintf(path, sizeof path, "%s/%s/%c.npy", TEST_DATA, name, operand);
    FILE *file = fopen(path, "rb");
    check(file != NULL, "%s: cannot be opened", path);
    check(fread(start, 1, 10, file) == 10 && memcmp(start, "\x93NUMPY\1", 7) == 0, "%s", path);
    check(fseek(file, start[8] + 256L * start[9], SEEK_CUR) == 0, "%s", path);
    float *x = pool_floats(count);
    check(fread(x, sizeof *x, count, file) == count && fgetc(file) == EOF, "%s: size", path);
    fclose(file);
    return x;
}

static void real_heads(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t tokens, heads, dim;
    } sets[] = {{"encoder", 128, 12, 32}, {"lm", 256, 4, 64}};
    static const size_t most[] = {8, 16, 32, 50, 64, 100, 128, 256};
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        linattn_config config = {.heads = sets[i].heads, .dim_key = sets[i].dim};
        size_t n = sets[i].tokens, count = n * config.heads * config.dim_key;
        problem p = {config_resolved(config),
                     n,
                     n,
                     data(sets[i].name, 'q', count),
                     data(sets[i].name, 'k', count),
                     data(sets[i].name, 'v', count)};
        for (size_t l = 0; l < COUNT_OF(most) && most[l] <= n; l++) {
            if (test_quick() && l > 2) continue;
            p.config.landmarks = most[l];
            p.config.iterations = 0;
            check_norm(&p, 1e-4);
            p.config.iterations = 6;
            check_norm(&p, 1e-4);
        }
    }
}

/* ---- Masked keys ---------------------------------------------------------------------------- */

static void mask(const problem *p, size_t j)
{
    for (size_t i = 0; i < key_width(p); i++) p->k[j * key_width(p) + i] = -test_infinity;
}

static void masked_keys(void **state)
{
    (void)state;
    rng r = {7};
    for (int shape = 0; shape < 5; shape++) {
        linattn_config config = {.heads = 4, .kv_heads = 2, .dim_key = 6, .dim_value = 5};
        config.landmarks = 8;
        problem p = problem_new(config, 30, 77, &r, 2);
        for (size_t i = 0; i < 30 * query_width(&p); i += 7) p.q[i] = 0; /* -inf times 0 is NaN */
        for (size_t j = 0; j < 77; j++) {
            const bool hidden[] = {j % 3 == 1, j < 10, j >= 70, j / 10 % 2 == 0, j != 35};
            if (hidden[shape]) mask(&p, j);
        }
        check_problem(&p);
        const float *before = run(&p);
        for (size_t j = 0; j < 77; j++)
            for (size_t c = 0; c < value_width(&p) && p.k[j * key_width(&p)] == -test_infinity; c++)
                p.v[j * value_width(&p) + c] = c % 2 ? test_nan : test_infinity;
        check_same_floats(run(&p), before, 30 * output_width(&p), output_width(&p),
                          "values of masked keys, shape %d", shape);
    }
}

static void no_visible_key_gives_zeros(void **state)
{
    (void)state;
    rng r = {8};
    linattn_config config = {.heads = 4, .kv_heads = 2, .dim_key = 6, .dim_value = 5};
    problem p = problem_new(config, 40, 6, &r, 2), empty = p;
    for (size_t j = 0; j < 6; j++) mask(&p, j);
    empty.n_k = 0;
    const float *masked = run(&p), *none = run(&empty);
    for (size_t i = 0; i < 40 * output_width(&p); i++)
        check(masked[i] == 0 && none[i] == 0, "element %zu is %g and %g", i, (double)masked[i],
              (double)none[i]);
}

/* ---- Laws ----------------------------------------------------------------------------------- */

/* Placed against inaccessible pages, on any number of threads: the bits of the simplest run of
   scalar code. */
static void same_bits(void **state)
{
    (void)state;
    rng r = {9};
    linattn_isa base = test_inexact() ? test_isa() : LINATTN_ISA_SCALAR;
    if (!(linattn_isa_available() >> base & 1u)) base = test_isa();
    size_t repeats = test_quick() ? 16 : 200;
    for (size_t i = 0; i < repeats; i++) {
        size_t mark = pool_mark(), n_q = rng_below(&r, 120), n_k = 1 + rng_below(&r, 120);
        problem p = problem_new(draw_config(&r), n_q, n_k, &r, 3);
        linattn_context context = {parallel_reverse, &r, rng_below(&r, 7)};
        if (rng_below(&r, 8) == 0) context.parallel_for = parallel_threads;
        plan how = {.context = rng_below(&r, 3) ? &context : NULL,
                    .q = layout_random(&r),
                    .k = layout_random(&r),
                    .v = layout_random(&r),
                    .out = layout_random(&r),
                    .state_side = (guard)rng_below(&r, 3),
                    .workspace_offset = rng_below(&r, 64)};
        for (size_t j = 0; i % 4 == 0 && j < n_k; j += 1 + rng_below(&r, 9)) mask(&p, j);
        if (i % 2) how.of = elements_draw(&r, &p);
        check_same_floats(run_placed(&p, &how), run_on(&p, base), n_q * output_width(&p),
                          output_width(&p), "run %zu, %zu threads, %s", i, context.threads,
                          name_of(&p));
        pool_release(mark);
    }
}

static void large_problems_have_the_same_bits(void **state)
{
    (void)state;
    rng r = {10};
    linattn_isa base = test_inexact() ? test_isa() : LINATTN_ISA_SCALAR;
    if (!(linattn_isa_available() >> base & 1u)) base = test_isa();
    linattn_config config = {.heads = 3, .kv_heads = 1, .dim_key = 64, .dim_value = 64};
    size_t n = test_quick() ? 100 : 600;
    problem p = problem_new(config, n, n, &r, 2);
    linattn_context context = {parallel_threads, &r, 2};
    plan how = {.context = &context};
    check_same_floats(run_placed(&p, &how), run_on(&p, base), n * output_width(&p),
                      output_width(&p), "two threads");
}

/* Each head is alone: the same problem as part of another. */
static void heads_are_independent(void **state)
{
    (void)state;
    rng r = {11};
    linattn_config config = {.heads = 6, .kv_heads = 2, .dim_key = 9, .dim_value = 10};
    config.landmarks = 12;
    problem p = problem_new(config, 50, 60, &r, 2);
    const float *all = run(&p);
    for (size_t h = 0; h < 6; h++) {
        problem one = p;
        one.config.heads = one.config.kv_heads = 1;
        one.q = pool_floats(50 * 9);
        one.k = pool_floats(60 * 9);
        one.v = pool_floats(60 * 10);
        for (size_t t = 0; t < 50; t++)
            memcpy(one.q + t * 9, p.q + (t * 6 + h) * 9, 9 * sizeof(float));
        for (size_t t = 0; t < 60; t++) {
            memcpy(one.k + t * 9, p.k + (t * 2 + h / 3) * 9, 9 * sizeof(float));
            memcpy(one.v + t * 10, p.v + (t * 2 + h / 3) * 10, 10 * sizeof(float));
        }
        const float *alone = run(&one);
        for (size_t t = 0; t < 50; t++)
            check_same_floats(alone + t * 10, all + (t * 6 + h) * 10, 10, 10, "head %zu, query %zu",
                              h, t);
    }
}

static void hostile_environments(void **state)
{
    (void)state;
    rng r = {12};
    linattn_config config = {.heads = 2, .dim_key = 9, .dim_value = 10, .landmarks = 12};
    problem p = problem_new(config, 50, 60, &r, 2);
    linattn_context context = {parallel_threads, &r, 3};
    plan how = {.context = &context};
    const float *expected = run(&p);
    for (size_t i = 0; i < fp_hostile_count(); i++) {
        const char *name;
        uint64_t control = fp_hostile(i, &name);
        float *out = pool_floats(50 * output_width(&p));
        size_t bytes = linattn_workspace_size(&p.config, LINATTN_WORKSPACE_NYSTROM, how.context);
        void *workspace = pool_take(bytes);
        fp_set_control(control);
        uint64_t before = fp_control(); /* without the traps that are not built in */
        linattn_status status =
            linattn_nystrom(&p.config, linattn_rows(p.q), 50, linattn_rows(p.k), linattn_rows(p.v),
                            60, linattn_output_rows(out), 0, workspace, bytes, how.context);
        uint64_t after = fp_control();
        fp_set_control(fp_ieee);
        check_status(status, LINATTN_OK, "%s", name);
        check(after == before, "%s: not restored", name);
        check_same_floats(out, expected, 50 * output_width(&p), output_width(&p), "%s", name);
    }
}

/* What lies on the stack, where the next call has its locals. */
static void fill_stack(unsigned char byte)
{
    volatile unsigned char x[1 << 16];
    for (size_t i = 0; i < sizeof x; i++) x[i] = byte;
}

/* Few queries go by other kernels, which fetch what comes from memory. */
static void few_queries_of_many_keys(void **state)
{
    (void)state;
    enum { KEYS = 8192 };
    void (*volatile fill)(unsigned char) = fill_stack; /* not inline, or it is a part of this one */
    rng r = {77};
    linattn_config config = {.heads = 1, .dim_key = 64, .landmarks = 2};
    problem p = problem_new(config, 2, KEYS, &r, 1);
    fill(0);
    const float *expected = run(&p);
    for (unsigned byte = 1; byte < 256; byte += 84) {
        fill((unsigned char)byte);
        check_same_floats(run(&p), expected, 2 * output_width(&p), output_width(&p), "%u", byte);
    }
}

/* ---- Range ---------------------------------------------------------------------------------- */

/* Any sign and exponent. */
static float wild(rng *r)
{
    uint32_t exponent = (uint32_t)rng_below(r, 255);
    return float_from_bits(((uint32_t)rng_next(r) & 0x807fffffu) | exponent << 23);
}

static void check_finite(const problem *p, const char *what)
{
    const float *out = run(p);
    for (size_t i = 0; i < p->n_q * output_width(p); i++)
        check(float_is_finite(out[i]), "%s: element %zu is %g, %s", what, i, (double)out[i],
              name_of(p));
}

/* Any finite queries and keys whose scaled scores are finite, values up to 1e30. */
static void finite_in_finite_out(void **state)
{
    (void)state;
    rng r = {13};
    size_t repeats = test_quick() ? 40 : 1000;
    for (size_t i = 0; i < repeats; i++) {
        size_t mark = pool_mark();
        linattn_config config = draw_config(&r);
        if (i % 2) config.dim_key = 1;
        if (i % 5 == 0) config.iterations = MOST_STEPS;
        problem p = problem_new(config, 1 + rng_below(&r, 60), 1 + rng_below(&r, 60), &r, 1);
        bool of_keys = rng_below(&r, 2);
        float *large = of_keys ? p.k : p.q, *small = of_keys ? p.q : p.k;
        size_t large_count = of_keys ? p.n_k * key_width(&p) : p.n_q * query_width(&p);
        size_t small_count = of_keys ? p.n_q * query_width(&p) : p.n_k * key_width(&p);
        for (size_t e = 0; e < large_count; e++) large[e] = wild(&r);
        for (size_t e = 0; e < small_count; e++)
            small[e] = rng_float(&r, 0.5f) / (float)config.dim_key;
        for (size_t e = 0; e < p.n_k * value_width(&p); e++)
            p.v[e] = rng_below(&r, 2) ? 1e30f : rng_float(&r, 1e30f);
        check_finite(&p, "wild");
        pool_release(mark);
    }
}

/* Equal tokens: A is as singular as can be. Tokens that nearly agree; scores that are one-hot. */
static void singular_landmarks(void **state)
{
    (void)state;
    rng r = {14};
    for (int shape = 0; shape < 4; shape++)
        for (size_t iterations = 1; iterations <= MOST_STEPS; iterations++) {
            linattn_config config = {.dim_key = 8, .dim_value = 6, .landmarks = 20};
            config.iterations = iterations;
            problem p = problem_new(config, 40, 40, &r, 3);
            for (size_t i = 8; i < 40 * 8; i++) {
                float step = shape == 1 ? 1e-6f * p.k[i] : 0;
                if (shape < 2) p.q[i] = p.q[i % 8] + step;
                if (shape < 2) p.k[i] = p.k[i % 8] - step;
                if (shape == 2) p.k[i] *= 1e6f;
                if (shape == 3) p.q[i] = p.k[i] *= 1e6f;
            }
            for (size_t i = 0; i < 40 * 6; i++) p.v[i] *= 1e30f;
            check_finite(&p, "singular");
            if (shape == 0) check_problem(&p);
        }
}

/* A score of 1e38 is not beyond the weights of A, F and B, nor one that only s makes so small. */
static void huge_scores(void **state)
{
    (void)state;
    rng r = {15};
    linattn_config config = {.dim_key = 4, .dim_value = 3, .landmarks = 4};
    problem p = problem_new(config, 4, 4, &r, 1);
    for (size_t t = 0; t < 4; t++)
        for (size_t f = 0; f < 4; f++) p.q[t * 4 + f] = p.k[t * 4 + f] = t == f ? 1.2e19f : 0;
    const float *out = run(&p);
    for (size_t i = 0; i < 12; i++)
        check(fabs((double)out[i] - (double)p.v[i]) < 1e-6, "element %zu is %g, expected %g", i,
              (double)out[i], (double)p.v[i]);
}

static void nan_stays_in_its_head(void **state)
{
    (void)state;
    rng r = {16};
    linattn_config config = {.heads = 4, .kv_heads = 2, .dim_key = 7, .dim_value = 5};
    config.landmarks = 6;
    for (int operand = 0; operand < 3; operand++) {
        problem p = problem_new(config, 30, 31, &r, 2);
        const float *clean = run(&p);
        /* query head 2, key/value head 1 */
        if (operand == 0) p.q[(9 * 4 + 2) * 7 + 3] = test_nan;
        if (operand == 1) p.k[(9 * 2 + 1) * 7 + 3] = test_nan;
        if (operand == 2) p.v[(9 * 2 + 1) * 5 + 3] = test_nan;
        const float *out = run(&p);
        for (size_t i = 0; i < 30 * 20; i++) {
            size_t h = i / 5 % 4;
            bool hit = operand == 0 ? h == 2 : h >= 2 && (operand == 1 || i % 5 == 3);
            check(hit ? float_is_nan(out[i]) : float_same(out[i], clean[i]),
                  "operand %d, head %zu, element %zu is %g", operand, h, i, (double)out[i]);
        }
    }
}

/* Scores that are all infinite have no softmax. */
static void infinite_queries_make_nan(void **state)
{
    (void)state;
    rng r = {17};
    linattn_config config = {.dim_key = 9, .dim_value = 21, .scale = 3.0f, .landmarks = 16};
    problem p = problem_new(config, 1, 2, &r, 1);
    p.q[8] = -test_infinity;
    p.k[8] = 0.75f;
    p.k[9 + 8] = 0.5f;
    const float *out = run(&p);
    for (size_t i = 0; i < 21; i++)
        check(float_is_nan(out[i]), "element %zu is %g", i, (double)out[i]);
}

/* ---- Statuses ------------------------------------------------------------------------------- */

enum { TOKENS = 9 };

typedef struct call {
    linattn_config config;
    linattn_view q, k, v;
    linattn_output out;
    size_t n_q, n_k;
    int causal;
    void *workspace;
    size_t bytes;
    const linattn_context *context;
} call;

static call call_new(void)
{
    rng r = {17};
    call c = {.config = {.heads = 2, .dim_key = 3, .dim_value = 4, .landmarks = 5},
              .n_q = TOKENS,
              .n_k = TOKENS};
    problem p = problem_new(c.config, TOKENS, TOKENS, &r, 1);
    c.q = linattn_rows(p.q);
    c.k = linattn_rows(p.k);
    c.v = linattn_rows(p.v);
    c.out = linattn_output_rows(pool_floats(TOKENS * output_width(&p)));
    c.bytes = linattn_workspace_size(&c.config, LINATTN_WORKSPACE_NYSTROM, NULL);
    c.workspace = pool_take_guarded(c.bytes, GUARD_AFTER);
    return c;
}

static linattn_status perform(const call *c)
{
    return linattn_nystrom(&c->config, c->q, c->n_q, c->k, c->v, c->n_k, c->out, c->causal,
                           c->workspace, c->bytes, c->context);
}

static void check_refused(call c, const call *good, linattn_status expected, const char *why)
{
    size_t bytes = TOKENS * 2 * 4 * sizeof(float);
    float *before = (float *)pool_copy(good->out.data, bytes);
    unsigned char *workspace = (unsigned char *)pool_copy(good->workspace, good->bytes);
    check_status(perform(&c), expected, "%s", why);
    check_same_bytes(good->out.data, before, bytes, "%s: output", why);
    check_same_bytes(good->workspace, workspace, good->bytes, "%s: workspace", why);
}

static void bad_arguments(void **state)
{
    (void)state;
    const call good = call_new();
    call c = good;
    check_status(perform(&good), LINATTN_OK, "good arguments");
    check_status(linattn_nystrom(NULL, c.q, 1, c.k, c.v, 1, c.out, 0, c.workspace, c.bytes, NULL),
                 LINATTN_ERROR_NULL, "no config");
#define REFUSED(change, status)                                                                    \
    do {                                                                                           \
        c = good;                                                                                  \
        change;                                                                                    \
        check_refused(c, &good, status, #change);                                                  \
    } while (0)
    REFUSED(c.q.data = NULL, LINATTN_ERROR_NULL);
    REFUSED(c.k.data = NULL, LINATTN_ERROR_NULL);
    REFUSED(c.v.data = NULL, LINATTN_ERROR_NULL);
    REFUSED(c.out.data = NULL, LINATTN_ERROR_NULL);
    REFUSED(c.workspace = NULL, LINATTN_ERROR_NULL);
    REFUSED(c.bytes--, LINATTN_ERROR_WORKSPACE);
    REFUSED(c.bytes = 0, LINATTN_ERROR_WORKSPACE);
    REFUSED(c.causal = 1, LINATTN_ERROR_UNSUPPORTED);
    REFUSED(c.config.dim_key = 0, LINATTN_ERROR_SIZE);
    REFUSED(c.config.landmarks = LINATTN_MAX_DIM + 1, LINATTN_ERROR_SIZE);
    REFUSED(c.config.landmarks = SIZE_MAX, LINATTN_ERROR_SIZE);
    REFUSED(c.config.scale = -1, LINATTN_ERROR_CONFIG);
    REFUSED(c.config.landmarks = 64, LINATTN_ERROR_WORKSPACE);
    REFUSED(c.n_q = SIZE_MAX / 2, LINATTN_ERROR_SIZE);
    REFUSED(c.n_k = SIZE_MAX / 2, LINATTN_ERROR_SIZE);
    REFUSED(c.q.stride_token = SIZE_MAX / 2, LINATTN_ERROR_SIZE);
    REFUSED(c.v.stride_head = SIZE_MAX / 2, LINATTN_ERROR_SIZE);
    REFUSED(c.out.stride_token = 1, LINATTN_ERROR_OVERLAP);
    REFUSED(c.q.data = c.out.data + 5, LINATTN_ERROR_OVERLAP);
    REFUSED(c.k.data = c.out.data, LINATTN_ERROR_OVERLAP);
    REFUSED(c.v.data = c.out.data + 1, LINATTN_ERROR_OVERLAP);
    REFUSED(c.out.data = (float *)c.workspace, LINATTN_ERROR_OVERLAP);
    REFUSED(c.v.data = (const float *)c.workspace, LINATTN_ERROR_OVERLAP);
#undef REFUSED
}

static void no_queries(void **state)
{
    (void)state;
    const call good = call_new();
    call c = good;
    c.n_q = 0;
    c.q = linattn_rows(NULL);
    c.out = linattn_output_rows(NULL);
    check_refused(c, &good, LINATTN_OK, "no queries");
}

/* Grows with landmarks * (landmarks + dim_key + dim_value) and with the threads. */
static void workspace_sizes(void **state)
{
    (void)state;
    rng r = {18};
    for (int i = 0; i < 200; i++) {
        linattn_config c = {.heads = 1 + rng_below(&r, 9),
                            .dim_key = 1 + rng_below(&r, 200),
                            .dim_value = 1 + rng_below(&r, 200),
                            .landmarks = 1 + rng_below(&r, 200)};
        linattn_context context = {parallel_reverse, NULL, 1 + rng_below(&r, 9)};
        size_t one = linattn_workspace_size(&c, LINATTN_WORKSPACE_NYSTROM, NULL);
        size_t all = linattn_workspace_size(&c, LINATTN_WORKSPACE_NYSTROM, &context);
        size_t exact = linattn_workspace_size(&c, LINATTN_WORKSPACE_SOFTMAX, NULL);
        size_t wide = c.landmarks + 32, dims_wide = c.dim_key + c.dim_value + 32;
        check(one > exact && one <= exact + 8 * wide * (6 * wide + 4 * dims_wide) + 1024,
              "%zu bytes, %s, %zu landmarks", one, config_name(&c), c.landmarks);
        check(all <= context.threads * one && all >= context.threads * (one - 128), "%zu and %zu",
              all, one);
    }
    linattn_config usual = {.dim_key = 16}, spelt = {.dim_key = 16, .landmarks = 64};
    check(linattn_workspace_size(&usual, LINATTN_WORKSPACE_NYSTROM, NULL) ==
              linattn_workspace_size(&spelt, LINATTN_WORKSPACE_NYSTROM, NULL),
          "64 landmarks are the default");
    linattn_context countless = {parallel_reverse, NULL, SIZE_MAX / 2};
    call c = call_new();
    check(linattn_workspace_size(&spelt, LINATTN_WORKSPACE_NYSTROM, &countless) == 0, "overflow");
    c.context = &countless;
    check_status(perform(&c), LINATTN_ERROR_SIZE, "more threads than memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_problems),
        TEST(every_number_of_landmarks),
        TEST(one_landmark),
        TEST(every_token_a_landmark),
        TEST(the_number_of_steps),
        TEST(ill_conditioned),
        TEST(real_heads),
        TEST(masked_keys),
        TEST(no_visible_key_gives_zeros),
        TEST(same_bits),
        TEST(large_problems_have_the_same_bits),
        TEST(heads_are_independent),
        TEST(hostile_environments),
        TEST(few_queries_of_many_keys),
        TEST(finite_in_finite_out),
        TEST(singular_landmarks),
        TEST(huge_scores),
        TEST(nan_stays_in_its_head),
        TEST(infinite_queries_make_nan),
        TEST(bad_arguments),
        TEST(no_queries),
        TEST(workspace_sizes),
    };
    test_begin();
    return RUN_TESTS("nystrom", tests);
}
