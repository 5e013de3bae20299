#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *take(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (p) return p;
    fputs("no memory for the oracle\n", stderr);
    exit(1);
}

static double map_of(linattn_feature_map map, double x)
{
    switch (map) {
    case LINATTN_MAP_ELU1: return x < 0.0 ? exp(x) : x + 1.0;
    case LINATTN_MAP_RELU: return x > 0.0 ? x : 0.0;
    case LINATTN_MAP_EXP: return exp(x);
    case LINATTN_MAP_SOFTMAX: return exp(x);
    default: return x;
    }
}

static size_t degree_of(const oracle_problem *p) { return p->degree ? p->degree : 2; }

size_t oracle_feature_count(const oracle_problem *p)
{
    size_t count = 1;
    switch (p->map) {
    case LINATTN_MAP_FAVOR:
    case LINATTN_MAP_FAVOR_SIMPLIFIED: return p->features;
    case LINATTN_MAP_FAVOR_HYPERBOLIC: return 2 * p->features;
    case LINATTN_MAP_TAYLOR:
    case LINATTN_MAP_EXPDEF:
        for (size_t i = 1; i <= degree_of(p); i++) count = count * (p->d + i) / i;
        return count;
    default: return p->d;
    }
}

static void random_features(const oracle_problem *p, const float *x, double *phi)
{
    const size_t m = oracle_feature_count(p);
    const double root = pow((double)p->d, -0.25);
    double lower = 0.0, weight = 1.0 / sqrt((double)m);
    for (size_t i = 0; i < p->d; i++) lower += 0.5 * root * root * (double)x[i] * (double)x[i];
    if (p->map == LINATTN_MAP_FAVOR_SIMPLIFIED) lower = 0.0, weight = 1.0;
    for (size_t f = 0; f < m; f++) {
        const float *row = p->projection + f % p->features * p->d;
        double dot = 0.0;
        for (size_t i = 0; i < p->d; i++) dot += root * (double)row[i] * (double)x[i];
        phi[f] = weight * exp((f < p->features ? dot : -dot) - lower);
    }
}

/* The products of `product` and so many more coordinates from x[first] on, which it has `equal`
   times already: each is divided by the root of its count, a! in all. Returns their number. */
static size_t monomials(const oracle_problem *p, const float *x, size_t more, size_t first,
                        size_t equal, double product, double *phi)
{
    size_t count = 0;
    if (more == 0) {
        *phi = product;
        return 1;
    }
    for (size_t i = first; i < p->d; i++, equal = 0) {
        const double by = pow((double)p->d, -0.25) / sqrt((double)(equal + 1));
        count += monomials(p, x, more - 1, i, equal + 1, product * by * (double)x[i], phi + count);
    }
    return count;
}

static void monomial_features(const oracle_problem *p, const float *x, double *phi)
{
    const size_t degree = degree_of(p);
    double weight = 1.0;
    for (size_t i = 0; i <= degree; i++) {
        phi += monomials(p, x, i, 0, 0, sqrt(weight), phi);
        if (p->map == LINATTN_MAP_EXPDEF) weight *= 1.0 - (double)i / (double)degree;
    }
}

void oracle_features(const oracle_problem *p, bool keys, const float *x, double *phi)
{
    double sum = 0.0;
    if (p->map == LINATTN_MAP_UNIT) {
        for (size_t f = 0; f < p->d; f++) sum += (double)x[f] * (double)x[f];
        for (size_t f = 0; f < p->d; f++) phi[f] = (double)x[f] / sqrt(sum + 1e-6);
        return;
    }
    if (p->map == LINATTN_MAP_TAYLOR || p->map == LINATTN_MAP_EXPDEF) {
        monomial_features(p, x, phi);
    } else if (p->map >= LINATTN_MAP_FAVOR) {
        random_features(p, x, phi);
    } else {
        for (size_t f = 0; f < p->d; f++) sum += phi[f] = map_of(p->map, x[f]);
        if (p->map == LINATTN_MAP_SOFTMAX && !keys)
            for (size_t f = 0; f < p->d; f++) phi[f] /= sum;
    }
}

typedef struct recurrence {
    double *s, *z, *phi;
    size_t m, seen;
} recurrence;

static void add_key(const oracle_problem *p, recurrence *r, size_t t)
{
    const float *v = p->v + t * p->v_token;
    oracle_features(p, true, p->k + t * p->k_token, r->phi);
    for (size_t f = 0; f < r->m; f++) {
        double *row = r->s + f * p->dv;
        r->z[f] += r->phi[f];
        for (size_t c = 0; c < p->dv; c++) row[c] += r->phi[f] * (double)v[c];
    }
    r->seen++;
}

static void read_out(const oracle_problem *p, recurrence *r, size_t t, double *out)
{
    const bool by_feature = p->normaliser == LINATTN_NORM_FEATURE;
    double by = 1.0;
    oracle_features(p, false, p->q + t * p->q_token, r->phi);
    if (p->normaliser == LINATTN_NORM_LENGTH) by = (double)r->seen;
    if (p->normaliser == LINATTN_NORM_SUM) {
        by = 0.0;
        for (size_t f = 0; f < r->m; f++) by += r->phi[f] * r->z[f];
    }
    for (size_t f = 0; f < r->m; f++) {
        const double weight = r->phi[f] / (by_feature ? r->z[f] : by);
        const double *row = r->s + f * p->dv;
        for (size_t c = 0; c < p->dv; c++) out[c] += weight * row[c];
    }
}

static void linear(const oracle_problem *p, double *out)
{
    const size_t m = oracle_feature_count(p);
    recurrence r = {take(m * p->dv * sizeof(double)), take(m * sizeof(double)),
                    take(m * sizeof(double)), m, 0};
    for (size_t t = 0; t < p->n && !p->causal; t++) add_key(p, &r, t);
    for (size_t t = 0; t < p->n; t++) {
        if (p->causal) add_key(p, &r, t);
        read_out(p, &r, t, out + t * p->dv);
    }
    free(r.s);
    free(r.z);
    free(r.phi);
}

/* ---- Rules ----------------------------------------------------------------------------------- */

/* What get_gates makes of a token's. */
typedef struct gates {
    double *decay, *read, *write, *value, *taken;
    double beta, input;
} gates;

static void get_gates(const oracle_problem *p, const recurrence *r, size_t t, gates *g)
{
    const linattn_gates *from = &p->gates;
    const float *decay = from->decay.data ? from->decay.data + t * from->decay.stride_token : NULL;
    const bool delta = p->rule == LINATTN_RULE_DELTA || p->rule == LINATTN_RULE_GATED_DELTA;
    g->beta = delta ? (double)from->beta.data[t * from->beta.stride_token] : 1.0;
    g->input = 1.0;
    if (p->rule == LINATTN_RULE_MLSTM)
        g->input = exp((double)from->input.data[t * from->input.stride_token]);
    for (size_t f = 0; f < r->m; f++) {
        const double a = decay ? (double)decay[from->decay_per_feature ? f : 0] : 1.0;
        g->decay[f] = decay && from->decay_log ? exp(a) : a;
        g->read[f] = g->write[f] = 0.0;
        if (delta) g->read[f] = g->decay[f] * r->phi[f];
        if (delta) g->write[f] = -g->beta * r->phi[f];
        if (p->rule != LINATTN_RULE_GENERAL) continue;
        g->read[f] = (double)from->read.data[t * from->read.stride_token + f];
        g->write[f] = (double)from->write.data[t * from->write.stride_token + f];
    }
}

/* S = Diag(a) S + p (r' S) + k v', z = a z + k; k and v with what the gates make of them. */
static void move(const oracle_problem *p, recurrence *r, const gates *g, const float *v)
{
    memset(g->taken, 0, p->dv * sizeof(double));
    for (size_t c = 0; c < p->dv; c++) g->value[c] = g->beta * g->input * (double)v[c];
    for (size_t f = 0; f < r->m; f++)
        for (size_t c = 0; c < p->dv; c++) g->taken[c] += g->read[f] * r->s[f * p->dv + c];
    for (size_t f = 0; f < r->m; f++) {
        double *row = r->s + f * p->dv;
        r->z[f] = g->decay[f] * r->z[f] + g->input * r->phi[f];
        for (size_t c = 0; c < p->dv; c++)
            row[c] = g->decay[f] * row[c] + g->write[f] * g->taken[c] + r->phi[f] * g->value[c];
    }
}

/* out /= max(|z' q|, 1); r->phi is q. */
static void divide_mlstm(const oracle_problem *p, const recurrence *r, double *out)
{
    double sum = 0.0;
    for (size_t f = 0; f < r->m; f++) sum += r->phi[f] * r->z[f];
    for (size_t c = 0; c < p->dv; c++) out[c] /= fmax(fabs(sum), 1.0);
}

/* q' Diag(u) k v', what RWKV-6 reads of the token itself; r->phi is k. */
static void read_bonus(const oracle_problem *p, const recurrence *r, size_t t, const float *v,
                       double *out)
{
    const float *q = p->q + t * p->q_token;
    double sum = 0.0;
    for (size_t f = 0; f < r->m; f++)
        sum += (double)q[f] * (double)p->gates.bonus.data[f] * r->phi[f];
    for (size_t c = 0; c < p->dv; c++) out[c] += sum * (double)v[c];
}

static void recurrent(const oracle_problem *p, double *out)
{
    const size_t m = oracle_feature_count(p);
    double *all = take((m * p->dv + 5 * m + 2 * p->dv) * sizeof *all), *at = all + m * p->dv;
    recurrence r = {all, at, at + m, m, 0};
    gates g = {at + 2 * m, at + 3 * m, at + 4 * m, at + 5 * m, at + 5 * m + p->dv, 1.0, 1.0};
    for (size_t t = 0; t < p->n; t++, out += p->dv) {
        const float *v = p->v + t * p->v_token;
        if (p->gates.bonus.data) read_out(p, &r, t, out);
        oracle_features(p, true, p->k + t * p->k_token, r.phi);
        if (p->gates.bonus.data) read_bonus(p, &r, t, v, out);
        get_gates(p, &r, t, &g);
        move(p, &r, &g, v);
        if (!p->gates.bonus.data) read_out(p, &r, t, out);
        if (p->rule == LINATTN_RULE_MLSTM) divide_mlstm(p, &r, out);
    }
    free(all);
}

static bool same_rule(const oracle_problem *a, const oracle_problem *b)
{
    const linattn_gates *x = &a->gates, *y = &b->gates;
    return a->rule == b->rule && x->decay.data == y->decay.data && x->beta.data == y->beta.data &&
           x->read.data == y->read.data && x->bonus.data == y->bonus.data &&
           x->decay_log == y->decay_log && x->decay_per_feature == y->decay_per_feature;
}

/* ---- Windows, exact attention ---------------------------------------------------------------- */

/* A window, key by key; the normaliser is the sum. */
static void banded(const oracle_problem *p, double *out)
{
    const size_t m = oracle_feature_count(p);
    double *keys = take(p->n * m * sizeof *keys), *phi = take(m * sizeof *phi);
    for (size_t t = 0; t < p->n; t++) {
        double sum = 0.0;
        oracle_features(p, true, p->k + t * p->k_token, keys + t * m);
        oracle_features(p, false, p->q + t * p->q_token, phi);
        for (size_t j = t < p->window ? 0 : t + 1 - p->window; j <= t; j++) {
            double weight = 0.0;
            for (size_t f = 0; f < m; f++) weight += phi[f] * keys[j * m + f];
            for (size_t c = 0; c < p->dv; c++)
                out[t * p->dv + c] += weight * (double)p->v[j * p->v_token + c];
            sum += weight;
        }
        for (size_t c = 0; c < p->dv; c++) out[t * p->dv + c] /= sum;
    }
    free(keys);
    free(phi);
}

static void exact_row(const oracle_problem *p, size_t t, double *weight, double *out)
{
    const size_t keys = p->causal ? t + 1 : p->n;
    const float *q = p->q + t * p->q_token;
    double top = -HUGE_VAL, sum = 0.0;
    for (size_t j = 0; j < keys; j++) {
        double dot = 0.0;
        for (size_t f = 0; f < p->d; f++) dot += (double)q[f] * (double)p->k[j * p->k_token + f];
        weight[j] = dot / sqrt((double)p->d);
        top = fmax(top, weight[j]);
    }
    for (size_t j = 0; j < keys; j++) sum += weight[j] = exp(weight[j] - top);
    for (size_t j = 0; j < keys; j++)
        for (size_t c = 0; c < p->dv; c++)
            out[c] += weight[j] / sum * (double)p->v[j * p->v_token + c];
}

static void exact(const oracle_problem *p, double *out)
{
    double *weight = take(p->n * sizeof(double));
    for (size_t t = 0; t < p->n; t++) exact_row(p, t, weight, out + t * p->dv);
    free(weight);
}

/* ---- Nystroem: dense matrices of n rows ------------------------------------------------------ */

/* c = a b */
static void times(const double *a, const double *b, double *c, size_t n, size_t inner, size_t m)
{
    memset(c, 0, n * m * sizeof *c);
    for (size_t i = 0; i < n; i++)
        for (size_t t = 0; t < inner; t++)
            for (size_t j = 0; j < m; j++) c[i * m + j] += a[i * inner + t] * b[t * m + j];
}

static void attend(const double *q, size_t n, const double *k, size_t keys, size_t d, double *a)
{
    for (size_t i = 0; i < n; i++, a += keys) {
        double top = -HUGE_VAL, sum = 0.0;
        for (size_t j = 0; j < keys; j++) {
            a[j] = 0.0;
            for (size_t f = 0; f < d; f++) a[j] += q[i * d + f] * k[j * d + f] / sqrt((double)d);
            top = fmax(top, a[j]);
        }
        for (size_t j = 0; j < keys; j++) sum += a[j] = exp(a[j] - top);
        for (size_t j = 0; j < keys; j++) a[j] /= sum;
    }
}

/* y = factor I - x */
static void less(double factor, const double *x, double *y, size_t n)
{
    for (size_t i = 0; i < n * n; i++) y[i] = (i % (n + 1) ? 0.0 : factor) - x[i];
}

static double largest_column(const double *a, size_t n)
{
    double largest = 0.0;
    for (size_t j = 0; j < n; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < n; i++) sum += a[i * n + j];
        largest = fmax(largest, sum);
    }
    return largest;
}

void oracle_inverse(const double *q, const double *k, const double *bv, size_t landmarks, size_t d,
                    size_t dv, double *w)
{
    const size_t n = landmarks, square = n * n;
    double *a = take(5 * square * sizeof *a), *z = a + square, *az = z + square, *x = az + square;
    double *y = x + square, by;
    attend(q, n, k, n, d, a);
    by = largest_column(a, n); /* its rows sum to one */
    for (size_t i = 0; i < square; i++) z[i] = a[i % n * n + i / n] / by;
    for (int step = 0; step < 12; step++) {
        times(a, z, az, n, n, n);
        less(7.0, az, x, n);
        times(az, x, y, n, n, n);
        less(15.0, y, x, n);
        times(az, x, y, n, n, n);
        less(13.0, y, x, n);
        times(z, x, y, n, n, n);
        for (size_t i = 0; i < square; i++) z[i] = 0.25 * y[i];
    }
    times(z, bv, w, n, n, dv);
    free(a);
}

static double *widened(const float *x, size_t token, size_t n, size_t d)
{
    double *y = take(n * d * sizeof *y);
    for (size_t t = 0; t < n; t++)
        for (size_t f = 0; f < d; f++) y[t * d + f] = (double)x[t * token + f];
    return y;
}

static double *means(const double *x, size_t n, size_t d, size_t landmarks)
{
    double *y = take(landmarks * d * sizeof *y);
    const size_t length = n / landmarks;
    for (size_t t = 0; t < n; t++)
        for (size_t f = 0; f < d; f++) y[t / length * d + f] += x[t * d + f] / (double)length;
    return y;
}

static void nystrom(const oracle_problem *p, double *out)
{
    const size_t n = p->n, l = p->landmarks;
    double *q = widened(p->q, p->q_token, n, p->d), *k = widened(p->k, p->k_token, n, p->d);
    double *v = widened(p->v, p->v_token, n, p->dv);
    double *q_marks = means(q, n, p->d, l), *k_marks = means(k, n, p->d, l);
    double *a = take(l * n * sizeof *a), *bv = take(l * p->dv * sizeof *bv);
    double *w = take(l * p->dv * sizeof *w);
    attend(q_marks, l, k, n, p->d, a);
    times(a, v, bv, l, n, p->dv);
    oracle_inverse(q_marks, k_marks, bv, l, p->d, p->dv, w);
    attend(q, n, k_marks, l, p->d, a);
    times(a, w, out, n, l, p->dv);
    free(q);
    free(k);
    free(v);
    free(q_marks);
    free(k_marks);
    free(a);
    free(bv);
    free(w);
}

size_t oracle_tokens(const oracle_problem *p)
{
    const double budget = 3e8; /* flops */
    const double m = (double)oracle_feature_count(p), dv = (double)p->dv;
    size_t n = p->n < 4096 ? p->n : 4096;
    for (;; n /= 2) {
        double pair = 0.0, token = 4.0 * (m * dv + (double)(p->features * p->d));
        if (p->exact) pair = 0.5 * (double)n * ((double)p->d + dv);
        if (p->window) pair = (double)p->window * (m + dv);
        if (pair > 0.0) token = 4.0 * pair;
        if (token * (double)n <= budget || n <= 16) return n;
    }
}

static bool same(const oracle_problem *a, const oracle_problem *b)
{
    return a->q == b->q && a->k == b->k && a->v == b->v && a->q_token == b->q_token &&
           a->k_token == b->k_token && a->v_token == b->v_token && a->n == b->n && a->d == b->d &&
           a->dv == b->dv && a->map == b->map && a->features == b->features &&
           a->degree == b->degree && a->window == b->window && a->normaliser == b->normaliser &&
           a->exact == b->exact && a->causal == b->causal && a->landmarks == b->landmarks &&
           same_rule(a, b);
}

/* The last problem's outputs are kept: instruction sets and peers follow one another with the same
   problem. */
static const double *solve(const oracle_problem *p)
{
    static oracle_problem last;
    static double *out;
    if (out && same(p, &last)) return out;
    free(out);
    out = take(p->n * p->dv * sizeof(double));
    last = *p;
    if (p->landmarks)
        nystrom(p, out);
    else if (p->exact)
        exact(p, out);
    else if (p->rule != LINATTN_RULE_SUM)
        recurrent(p, out);
    else if (p->window)
        banded(p, out);
    else
        linear(p, out);
    return out;
}

double oracle_error(const oracle_problem *p, const float *out, size_t out_token)
{
    const double *expected = solve(p);
    double worst = 0.0;
    for (size_t t = 0; t < p->n; t++) {
        const float *row = out + t * out_token;
        double largest = 0.0, off = 0.0;
        for (size_t c = 0; c < p->dv; c++) {
            const double is = (double)row[c], should = expected[t * p->dv + c];
            if (isnan(should)) continue; /* 0 / 0: what the library makes of it is its affair */
            largest = fmax(largest, fabs(should));
            off = isnan(is) ? HUGE_VAL : fmax(off, fabs(is - should));
        }
        if (off > 0.0) worst = fmax(worst, off / largest);
    }
    return worst;
}

double oracle_map_error(linattn_feature_map map, const float *x, const float *y, size_t n)
{
    double worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double should = map_of(map, x[i]), off = fabs((double)y[i] - should);
        if (off > 0.0) worst = fmax(worst, off / fabs(should));
    }
    return worst;
}
