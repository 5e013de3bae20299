/* Maps on plain arrays, and the sum of two states: what memory bounds. */
#include <math.h>

#include "benchmarks.h"

/* ---- Maps that act on each number ------------------------------------------------------------ */

typedef struct array {
    const library *library;
    linattn_config config;
    float *x, *y;
    size_t vectors; /* of config.dim_key */
} array;

/* Maps with a verb of their own are called by that. */
static linattn_status map_array(const array *r, size_t n)
{
    switch (r->config.map) {
    case LINATTN_MAP_EXP: return r->library->exp(r->x, r->y, n);
    case LINATTN_MAP_ELU1: return r->library->elu1(r->x, r->y, n);
    case LINATTN_MAP_RELU: return r->library->relu(r->x, r->y, n);
    default: return r->library->map(&r->config, 0, r->x, r->y, r->vectors);
    }
}

static void array_call(bench *b) { bench_check(map_array(b->data, b->n)); }

static double array_error(const bench *b, const array *r)
{
    const oracle_problem p = {.d = b->d, .map = b->map};
    double phi[64], worst = 0.0;
    if (b->map != LINATTN_MAP_SOFTMAX) return oracle_map_error(b->map, r->x, r->y, b->n);
    for (size_t i = 0; i + b->d <= b->n; i += b->d) {
        oracle_features(&p, false, r->x + i, phi);
        for (size_t f = 0; f < b->d; f++)
            worst = fmax(worst, fabs((double)r->y[i + f] - phi[f]) / phi[f]);
    }
    return worst;
}

/* x and y lie in one block, which the bandwidth is measured in. */
static const char *array_open(bench *b)
{
    const size_t n = (b->n + 15) / 16 * 16;
    array *r = bench_take(sizeof *r);
    float *block = bench_floats(2 * n);
    const float *random = bench_random(b->n);
    if (!r || !block || !random) return bench_no_memory;
    if (b->n < b->d) b->d = b->dv = b->n;
    *r = (array){b->library, bench_config(b), block, block + n, b->n / b->d};
    for (size_t i = 0; i < b->n; i++) r->x[i] = 4.0f * random[i];
    b->data = r;
    b->call(b);
    b->error = array_error(b, r);
    b->items = (double)b->n;
    b->bytes = 2.0 * sizeof(float) * (double)b->n;
    b->memory = block;
    b->memory_floats = 2 * n;
    return NULL;
}

static void register_maps(const selection *s, const library *l)
{
    bench b = {.open = array_open, .call = array_call, .library = l, .d = 64, .dv = 64, .heads = 1};
    for (int map = 0; map < LINATTN_MAP_FAVOR; map++) /* the others make features, see below */
        for (size_t j = 0; j < s->n_count; j++)
            for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
                b.map = (linattn_feature_map)map;
                b.isa = (linattn_isa)isa;
                b.n = s->n[j];
                if (selection_wants_array(s, b.isa, b.map, b.n))
                    bench_add(&b, "%s/%s/%s/array/%zu",
                              b.map == LINATTN_MAP_SOFTMAX ? "map_softmax" : "map",
                              bench_map_name(b.map), bench_by(&b), b.n);
            }
}

/* ---- Maps that make features of their own ---------------------------------------------------- */

static void features_call(bench *b)
{
    const array *r = b->data;
    bench_check(r->library->map(&r->config, 1, r->x, r->y, r->vectors));
}

/* Relative to the largest feature of the vector. */
static double features_error(const bench *b, const array *r)
{
    const operands none = {.tokens = r->vectors};
    const oracle_problem p = bench_problem(b, &none, false);
    double *phi = bench_take(b->m * sizeof *phi), worst = 0.0;
    for (size_t t = 0; phi && t < r->vectors; t++) {
        double largest = 0.0, off = 0.0;
        oracle_features(&p, true, r->x + t * b->d, phi);
        for (size_t f = 0; f < b->m; f++) {
            largest = fmax(largest, fabs(phi[f]));
            off = fmax(off, fabs((double)r->y[t * b->m + f] - phi[f]));
        }
        worst = fmax(worst, off / largest);
    }
    return worst;
}

static const char *features_open(bench *b)
{
    array *r = bench_take(sizeof *r);
    if (!r) return bench_no_memory;
    *r = (array){b->library, bench_config(b), bench_random(b->n * b->d), bench_floats(b->n * b->m),
                 b->n};
    if (!r->x || !r->y) return bench_no_memory;
    b->data = r;
    b->call(b);
    b->error = features_error(b, r);
    b->items = (double)b->n;
    b->flops = b->items * (bench_token_flops(b) - 2.0 * (double)(b->m * b->dv));
    b->bytes = sizeof(float) * b->items * (double)(b->d + b->m);
    b->memory = r->y;
    b->memory_floats = b->n * b->m;
    return NULL;
}

static void register_features(const selection *s, const library *l)
{
    bench b = {.open = features_open, .call = features_call, .library = l, .heads = 1};
    b.n = usual_length;
    for (size_t i = 0; selection_case(s, i, &b); i++)
        for (int isa = 1; isa < LINATTN_ISA_COUNT && b.map >= LINATTN_MAP_FAVOR; isa++) {
            b.isa = (linattn_isa)isa;
            if (selection_wants(s, &b))
                bench_add(&b, "map_features/%s/%s/%zux%zu/%zu", bench_map(&b), bench_by(&b), b.d,
                          b.dv, b.n);
        }
}

/* ---- merge ---------------------------------------------------------------------------------- */

typedef struct states {
    const library *library;
    void *to, *from;
} states;

static void merge_call(bench *b)
{
    const states *r = b->data;
    bench_check(r->library->merge(r->to, r->from));
}

/* Each half of the tokens in a state of its own; their sum is read with all queries. */
static double merge_error(bench *b, const states *r)
{
    const size_t half = b->n / 2;
    operands o;
    oracle_problem p;
    linattn_view k, v;
    if (bench_operands(b, b->n, &o)) return -1.0;
    k = o.k;
    v = o.v;
    bench_check(r->library->update(r->to, k, v, half, NULL));
    k.data += half * k.stride_token;
    v.data += half * v.stride_token;
    bench_check(r->library->update(r->from, k, v, b->n - half, NULL));
    merge_call(b);
    bench_check(r->library->query(r->to, o.q, o.out, b->n, NULL));
    p = bench_problem(b, &o, false);
    return oracle_error(&p, o.out.data, o.out.stride_token);
}

static const char *merge_open(bench *b)
{
    const linattn_config config = bench_config(b);
    const size_t bytes = linattn_state_size(&config) / sizeof(float) * sizeof(float);
    states *r = bench_take(sizeof *r);
    if (!r) return bench_no_memory;
    *r = (states){b->library, bench_state(b), bench_state(b)};
    if (!r->to || !r->from) return bench_no_memory;
    b->data = r;
    b->error = merge_error(b, r);
    b->items = 1.0;
    b->bytes = 3.0 * (double)(bytes - sizeof(float) * bench_state_header(b));
    bench_memory_is_state(b, r->to);
    return NULL;
}

static void register_merge(const selection *s, const library *l)
{
    bench b = {.open = merge_open, .call = merge_call, .library = l, .heads = 1};
    b.n = usual_length;
    for (size_t i = 0; selection_case(s, i, &b); i++)
        for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
            b.isa = (linattn_isa)isa;
            if (selection_wants(s, &b) && selection_samples(s, &b))
                bench_add(&b, "merge/%s/%s/%zux%zu", bench_map(&b), bench_by(&b), b.d, b.dv);
        }
}

void register_arrays(const selection *s, const library *l)
{
    register_maps(s, l);
    register_features(s, l);
    if (l == &library_o3) register_merge(s, l); /* which has no exp */
}
