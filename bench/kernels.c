/* The library, and a benchmark for every kernel in its list. A kernel is driven by its type: one
   that is added to the list with a type that is here already needs nothing in this file. Compiled
   twice, with LINATTN_USE_SLEEF for the second time. */
#ifdef LINATTN_USE_SLEEF
#define LINATTN_STATIC
#define REGISTER register_kernels_sleef
#define SUFFIX "-sleef"
#else
#define REGISTER register_kernels
#define SUFFIX ""
#endif
#define LINATTN_IMPLEMENTATION
#include "linattn.h"

#include <math.h>
#include <string.h>

#include "bench.h"

/* A kernel of one instruction set, and what it was seen to do. */
typedef struct subject {
    void (*kernel)(void);
    bool writes_state, writes_out;
} subject;

/* A kernel on all of them; NULL where it is absent. */
typedef struct family {
    const char *name;
    subject of[LINATTN_ISA_COUNT];
} family;

static family families[64]; /* in the list's order */

/* One that stands before in the list. */
static const family *family_of(const char *name)
{
    const family *f = families;
    while (strcmp(f->name, name) != 0) f++;
    return f;
}

static const char no_memory[] = "not enough memory";

#ifndef LINATTN_USE_SLEEF
void bench_memory_is_state(bench *b, void *state)
{
    const linattn_config config = bench_config(b);
    const size_t header = sizeof(linattn__header) / sizeof(float);
    b->memory = (float *)state + header;
    b->memory_floats = linattn_state_size(&config) / sizeof(float) - header;
}
#endif

/* ---- Kernels on a span of tokens ------------------------------------------------------------ */

typedef struct span_run {
    linattn__shape shape;
    linattn__work work;
    linattn__span span[8]; /* of each head */
    size_t heads;
    linattn__span_kernel *kernel;
} span_run;

/* As the verbs set it up. The state is empty, but for a kernel that only reads it: that is given
   the keys' state. */
static void span_begin(span_run *r, const bench *b, void *state, const operands *o, size_t n)
{
    const subject *kernel = b->subject;
    linattn__shape *s = &r->shape; /* the span points into it */
    linattn__header h;
    linattn__operands x;
    bench_check(linattn__read_state(state, &h, s));
    bench_check(linattn__read_keys(s, o->k, o->v, n, &x));
    bench_check(linattn__read_queries(s, o->q, o->out, n, &x));
    if (!kernel->writes_state) {
        bench_check(linattn_update(state, o->k, o->v, n, NULL));
        bench_check(linattn__read_state(state, &h, s));
    }
    linattn__start(&r->work, s, &h, state);
    if (kernel->writes_state) linattn__use_keys(&r->work, &x.k, &x.v);
    if (kernel->writes_out) linattn__use_query(&r->work, &x.q, &x.out);
    r->work.span.fetch = linattn__from_memory(&r->work.span);
    r->heads = b->heads;
    r->kernel = (linattn__span_kernel *)kernel->kernel;
    for (size_t head = 0; head < b->heads; head++) r->span[head] = linattn__span_of(&r->work, head);
}

static void span_walk(const span_run *r)
{
    for (size_t head = 0; head < r->heads; head++) r->kernel(&r->span[head]);
}

typedef struct span_pair {
    span_run call, base;
} span_pair;

static void span_call(bench *b) { span_walk(&((const span_pair *)b->data)->call); }
static void span_base(bench *b) { span_walk(&((const span_pair *)b->data)->base); }

/* As many tokens in short sequences. */
static void span_base_short(bench *b)
{
    for (size_t t = 0; t < b->n; t += bench_short_length) span_base(b);
}

/* The first tokens of the first head from an empty state, against double. What a kernel that only
   writes left behind is read with a query. */
static double span_error(const bench *b, const operands *o)
{
    const subject *kernel = b->subject;
    oracle_problem p = bench_problem(b, o, kernel->writes_state && kernel->writes_out);
    void *state = bench_state(b);
    span_run r;
    if (!state) return -1.0;
    p.n = oracle_tokens(&p);
    span_begin(&r, b, state, o, p.n);
    span_walk(&r);
    linattn__set_tokens(state, p.n);
    if (!kernel->writes_out) bench_check(linattn_query(state, o->q, o->out, p.n, NULL));
    return oracle_error(&p, o->out.data, o->out.stride_token);
}

static void span_limits(bench *b, void *state)
{
    const subject *kernel = b->subject;
    const int sides = kernel->writes_state + kernel->writes_out; /* k and v, q and out */
    const double each = (double)(b->heads * b->m * b->dv), tokens = (double)(b->heads * b->n);
    b->items = tokens;
    b->flops = sides * tokens * bench_token_flops(b);
    b->bytes = sizeof(float) *
               (tokens * sides * (double)(b->d + b->dv) + (1.0 + kernel->writes_state) * each);
    bench_memory_is_state(b, state);
    if (tokens * (double)(2 * b->d + b->dv) > each && b->variant == VARIANT_PLAIN) {
        b->memory = bench_random(0); /* q, k and v */
        b->memory_floats = b->heads * b->n * (2 * b->d + b->dv);
    }
}

/* What a variant is compared with: plain operands, as many tokens of as many heads; what a window
   is compared with: causal without one; what a long sequence is compared with: its beginning. */
static const char *span_open_base(const bench *b, span_pair *pair)
{
    bench plain = *b;
    operands o;
    void *state;
    const char *problem;
    plain.variant = VARIANT_PLAIN;
    plain.window = 0;
    if (b->window) plain.subject = &family_of("causal")->of[b->isa];
    state = bench_state(&plain);
    problem = bench_operands(&plain, &o);
    if (problem || !state) return problem ? problem : no_memory;
    span_begin(&pair->base, &plain, state, &o,
               b->base == span_base_short ? bench_short_length : b->n);
    return NULL;
}

static const char *span_open(bench *b)
{
    span_pair *pair = bench_take(sizeof *pair);
    void *state = bench_state(b);
    operands o;
    const char *problem;
    if (!pair || !state) return no_memory;
    b->data = pair;
    /* the larger block of random numbers first: later ones are parts of it */
    problem = bench_operands(b, &o);
    if (!problem && b->base) problem = span_open_base(b, pair);
    if (problem) return problem;
    if (b->variant != VARIANT_DENORMAL) b->error = span_error(b, &o);
    span_begin(&pair->call, b, state, &o, b->n);
    span_limits(b, state);
    return NULL;
}

/* Does the kernel write the state, the output? It is run once to see. */
static void probe(subject *kernel)
{
    enum { dim = 16, floats = 4096 };
    static float state[floats], before[floats], in[dim], out[dim];
    const bench b = {.d = dim, .dv = dim, .n = 1, .heads = 1, .subject = kernel};
    const operands o = {{in, 0, 0}, {in, 0, 0}, {in, 0, 0}, {out, 0, 0}};
    const linattn_config config = bench_config(&b);
    span_run r;
    bench_check(linattn_state_init(&config, state, sizeof state));
    for (size_t i = 0; i < dim; i++) {
        in[i] = 2.5f;
        out[i] = -1.0f; /* not what comes out: a mean of 2.5, or 0 */
    }
    kernel->writes_state = kernel->writes_out = true; /* gets all operands */
    span_begin(&r, &b, state, &o, 1);
    memcpy(before, state, sizeof state);
    span_walk(&r);
    kernel->writes_state = memcmp(before, state, sizeof state) != 0;
    kernel->writes_out = out[0] != -1.0f || !kernel->writes_state;
}

static const char *const variant_names[VARIANT_COUNT] = {
    [VARIANT_PLAIN] = "",
    [VARIANT_MISALIGNED] = "/misaligned",
    [VARIANT_HEADS] = "/heads8",
    [VARIANT_DENORMAL] = "/denormal",
};

/* One shape of each map has variants. A sample of them holds the usual map, and what may be
   denormal in the others. */
static bool variant_wanted(const selection *s, const bench *b)
{
    if (b->variant == VARIANT_PLAIN) return true;
    if (b->n != bench_usual_length || b->dv != 64 || (b->d != 64 && b->map < LINATTN_MAP_TAYLOR))
        return false;
    if (s->full || s->given || b->map == LINATTN_MAP_ELU1) return true;
    return b->variant == VARIANT_DENORMAL &&
           (b->map == LINATTN_MAP_EXP || b->map == LINATTN_MAP_IDENTITY || b->parameter);
}

static void add_span(const selection *s, const family *f, bench b)
{
    b.open = span_open;
    b.call = span_call;
    b.heads = b.variant == VARIANT_HEADS ? 8 : 1;
    if (b.variant != VARIANT_PLAIN) b.base = span_base;
    if (b.variant == VARIANT_PLAIN && b.n == bench_long_length) b.base = span_base_short;
    b.base_counter = "times";
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        if (!f->of[isa].kernel) continue;
        b.isa = (linattn_isa)isa;
        b.subject = &f->of[isa];
        if (bench_wanted(s, &b) && variant_wanted(s, &b))
            bench_add(&b, "%s/%s/%s" SUFFIX "/%zux%zu/%zu%s", f->name, bench_map(&b),
                      linattn_isa_name(b.isa), b.d, b.dv, b.n, variant_names[b.variant]);
    }
}

static void register_plain(const selection *s, family *f)
{
    bench b = {0};
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++)
        if (f->of[isa].kernel) probe(&f->of[isa]);
    for (size_t i = 0; bench_case(s, i, &b); i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (int v = 0; v < VARIANT_COUNT; v++) {
                b.n = s->n[j];
                b.variant = (variant)v;
                add_span(s, f, b);
            }
}

/* ---- Windows -------------------------------------------------------------------------------- */

static void add_band(const selection *s, family *f, bench b)
{
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        subject *kernel = &f->of[isa];
        if (!kernel->kernel) continue;
        kernel->writes_state = kernel->writes_out = true;
        b.isa = (linattn_isa)isa;
        b.subject = kernel;
        if (bench_wanted(s, &b))
            bench_add(&b, "%s/%s/%s" SUFFIX "/%zux%zu/%zu/w%zu", f->name, bench_map(&b),
                      linattn_isa_name(b.isa), b.d, b.dv, b.n, b.window);
    }
}

/* The usual map on a usual length. The flops are those of causal without a window. */
static void register_band(const selection *s, family *f)
{
    static const size_t windows[] = {16, 64, 100, 256, 1024};
    bench b = {.open = span_open,
               .call = span_call,
               .base = span_base,
               .base_counter = "times",
               .heads = 1};
    for (size_t i = 0; i < s->shape_count; i++)
        for (size_t j = 0; j < s->n_count; j++)
            for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
                b.d = s->shapes[i].d;
                b.dv = s->shapes[i].dv;
                b.n = s->n[j];
                b.window = windows[w];
                if (s->given || (b.n == bench_usual_length && b.d == b.dv && b.d % 64 == 0))
                    add_band(s, f, b);
            }
}

/* ---- Features of arrays --------------------------------------------------------------------- */

typedef struct features_run {
    linattn_config config;
    const float *x;
    float *y;
} features_run;

static void features_call(bench *b)
{
    const features_run *r = b->data;
    bench_check(linattn_map(&r->config, 1, r->x, r->y, b->n));
}

/* Relative to the largest feature of the vector. */
static double features_error(const bench *b, const features_run *r)
{
    const operands none = {{0}, {0}, {0}, {0}};
    const oracle_problem p = bench_problem(b, &none, false);
    double *phi = bench_take(b->m * sizeof *phi), worst = 0.0;
    for (size_t t = 0; phi && t < b->n; t++) {
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
    features_run *r = bench_take(sizeof *r);
    if (!r) return no_memory;
    bench_check(linattn_isa_select(b->isa)); /* of this copy of the library */
    r->config = bench_config(b);
    r->x = bench_random(b->n * b->d);
    r->y = bench_floats(b->n * b->m);
    if (!r->x || !r->y) return no_memory;
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

static void register_features(const selection *s, family *f)
{
    bench b = {.open = features_open, .call = features_call, .heads = 1};
    for (size_t i = 0; bench_case(s, i, &b); i++)
        for (int isa = 1; isa < LINATTN_ISA_COUNT && b.map >= LINATTN_MAP_FAVOR; isa++) {
            b.isa = (linattn_isa)isa;
            b.subject = &f->of[isa];
            b.n = bench_usual_length;
            if (f->of[isa].kernel && bench_wanted(s, &b))
                bench_add(&b, "%s/%s/%s" SUFFIX "/%zux%zu/%zu", f->name, bench_map(&b),
                          linattn_isa_name(b.isa), b.d, b.dv, b.n);
        }
}

/* Kernels of this type that have operands of their own. */
static void register_span(const selection *s, family *f)
{
    if (strcmp(f->name, "band") == 0)
        register_band(s, f);
    else if (strcmp(f->name, "map_features") == 0)
        register_features(s, f);
    else
        register_plain(s, f);
}

/* ---- What a call costs beside its kernel ----------------------------------------------------- */

#ifndef LINATTN_USE_SLEEF
typedef struct verb_run {
    span_pair pair; /* base is the kernel alone */
    operands o;
    void *state;
} verb_run;

static void verb_call(bench *b)
{
    const verb_run *r = b->data;
    bench_check(linattn_causal(r->state, r->o.q, r->o.k, r->o.v, r->o.out, b->n, NULL));
}

static const char *verb_open(bench *b)
{
    verb_run *r = bench_take(sizeof *r);
    const char *problem;
    if (!r) return no_memory;
    b->data = r;
    r->state = bench_state(b);
    problem = bench_operands(b, &r->o);
    if (problem || !r->state) return problem ? problem : no_memory;
    span_begin(&r->pair.base, b, r->state, &r->o, b->n);
    span_limits(b, r->state);
    b->items = 1.0;
    return NULL;
}

static void register_call(const selection *s, const subject *causal, linattn_isa isa)
{
    const bench b = {.open = verb_open,
                     .call = verb_call,
                     .base = span_base,
                     .base_counter = "overhead",
                     .subject = causal,
                     .isa = isa,
                     .d = 16,
                     .dv = 16,
                     .n = 1,
                     .heads = 1};
    if (s->isas >> isa & 1u) bench_add(&b, "call/elu1/%s/16x16/1", linattn_isa_name(isa));
}
#endif

/* ---- Exact attention ------------------------------------------------------------------------ */

typedef struct exact_run {
    linattn__exact exact;
    linattn__exact_kernel *kernel;
} exact_run;

static void exact_call(bench *b)
{
    const exact_run *r = b->data;
    r->kernel(&r->exact);
}

/* One head, scale 1 / sqrt(m), as linattn_softmax sets it up. */
static void exact_begin(exact_run *r, const bench *b, const operands *o, float *scratch, size_t n)
{
    const linattn_config config = bench_config(b);
    linattn__exact_work w;
    linattn__shape s;
    linattn__operands x;
    bench_check(linattn__read_config(&config, &s));
    bench_check(linattn__read_keys(&s, o->k, o->v, n, &x));
    bench_check(linattn__read_queries(&s, o->q, o->out, n, &x));
    linattn__exact_operands(&w, &s, &x);
    r->kernel = (linattn__exact_kernel *)((const subject *)b->subject)->kernel;
    r->exact = w.head;
    r->exact.pre = (float)(1.0 / sqrt((double)b->d));
    r->exact.post = 1.0f;
    r->exact.causal = b->causal;
    r->exact.offset = 0;
    r->exact.scratch = scratch;
    r->exact.begin = 0;
    r->exact.end = n;
}

static double exact_error(const bench *b, exact_run *r, const operands *o, float *scratch)
{
    oracle_problem p = bench_problem(b, o, b->causal);
    p.exact = true;
    p.n = oracle_tokens(&p);
    exact_begin(r, b, o, scratch, p.n);
    r->kernel(&r->exact);
    return oracle_error(&p, o->out.data, b->dv);
}

static const char *exact_open(bench *b)
{
    exact_run *r = bench_take(sizeof *r);
    float *scratch = bench_floats(linattn__exact_floats(b->d, b->dv));
    const double n = (double)b->n, pairs = b->causal ? 0.5 * n * (n + 1.0) : n * n;
    operands o;
    const char *problem = bench_operands(b, &o);
    if (problem) return problem;
    if (!r || !scratch) return no_memory;
    b->data = r;
    b->error = exact_error(b, r, &o, scratch);
    exact_begin(r, b, &o, scratch, b->n);
    b->items = n;
    b->flops = 2.0 * pairs * (double)(b->d + b->dv);
    b->bytes = 0.0;
    return NULL;
}

static void add_exact(const selection *s, const family *f, bench b)
{
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        if (!f->of[isa].kernel) continue;
        b.isa = (linattn_isa)isa;
        b.subject = &f->of[isa];
        if (bench_wanted(s, &b) && bench_sampled(s, &b))
            bench_add(&b, "%s/%s/%s" SUFFIX "/%zux%zu/%zu", f->name, b.causal ? "causal" : "full",
                      linattn_isa_name(b.isa), b.d, b.dv, b.n);
    }
}

static void register_exact(const selection *s, family *f)
{
    bench b = {.open = exact_open, .call = exact_call, .heads = 1};
    for (size_t i = 0; i < s->shape_count; i++) {
        b.d = s->shapes[i].d;
        b.dv = s->shapes[i].dv;
        for (size_t j = 0; j < s->n_count; j++) {
            b.n = s->n[j];
            if (b.n > bench_longest_exact) continue;
            for (int causal = 0; causal < 2; causal++) {
                b.causal = causal;
                add_exact(s, f, b);
            }
        }
    }
}

/* ---- Nystroem ------------------------------------------------------------------------------- */

enum { LANDMARKS = 64 };

typedef struct means_run {
    linattn__means means;
    linattn__means_kernel *kernel;
} means_run;

static void means_call(bench *b)
{
    const means_run *r = b->data;
    r->kernel(&r->means);
}

static double means_error(const linattn__means *x)
{
    double worst = 0.0;
    for (size_t i = 0; i < x->n / x->length; i++)
        for (size_t f = 0; f < x->d; f++) {
            double sum = 0.0;
            for (size_t t = 0; t < x->length; t++)
                sum += (double)x->x[(i * x->length + t) * x->token + f] / (double)x->length;
            worst = fmax(worst, fabs((double)x->mean[i * x->d + f] - sum));
        }
    return worst; /* of numbers around 1 */
}

static const char *means_open(bench *b)
{
    const size_t count = b->n * b->d;
    means_run *r = bench_take(sizeof *r);
    float *x = bench_floats(count), *mean = bench_floats(LANDMARKS * b->d);
    const float *random = bench_random(count);
    if (!r || !x || !mean || !random) return no_memory;
    for (size_t i = 0; i < count; i++) x[i] = random[i];
    r->means = (linattn__means){x, b->d, b->n, b->d, b->n / LANDMARKS, 1, mean};
    r->kernel = (linattn__means_kernel *)((const subject *)b->subject)->kernel;
    b->data = r;
    b->call(b);
    b->error = means_error(&r->means);
    b->items = (double)b->n;
    b->flops = 0.0;
    b->bytes = sizeof(float) * (double)count;
    b->memory = x;
    b->memory_floats = count;
    return NULL;
}

typedef struct inverse_run {
    linattn__inverse_of inverse;
    linattn__inverse_kernel *kernel;
} inverse_run;

static void inverse_call(bench *b)
{
    const inverse_run *r = b->data;
    r->kernel(&r->inverse);
}

static double *widened(const float *x, size_t count)
{
    double *y = bench_take(count * sizeof *y);
    for (size_t i = 0; y && i < count; i++) y[i] = (double)x[i];
    return y;
}

static double inverse_error(const linattn__inverse_of *x)
{
    const size_t count = LANDMARKS * x->dv;
    double *q = widened(x->q, LANDMARKS * x->d), *k = widened(x->k, LANDMARKS * x->d);
    double *bv = widened(x->bv, count), *w = bench_take(count * sizeof *w);
    double largest = 0.0, off = 0.0;
    if (!q || !k || !bv || !w) return -1.0;
    oracle_inverse(q, k, bv, LANDMARKS, x->d, x->dv, w);
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(w[i]));
        off = fmax(off, fabs((double)x->w[i] - w[i]));
    }
    return off / largest;
}

/* The flops are those of 12 steps of the paper's iteration, in double: more than the kernel takes. */
static const char *inverse_open(bench *b)
{
    const size_t l = LANDMARKS, doubles = linattn__inverse_doubles(l, b->d, b->dv);
    const double products = 4.0 * 12.0 * (double)(l * l) + (double)(l * b->dv);
    inverse_run *r = bench_take(sizeof *r);
    const float *q = bench_random(l * (2 * b->d + b->dv));
    float *w = bench_floats(l * b->dv);
    double *scratch = bench_take(doubles * sizeof *scratch);
    if (!r || !q || !w || !scratch) return no_memory;
    r->inverse =
        (linattn__inverse_of){q,     q + l * b->d, q + 2 * l * b->d,        w, scratch, l, l, b->d,
                              b->dv, 12,           1.0 / sqrt((double)b->d)};
    r->kernel = (linattn__inverse_kernel *)((const subject *)b->subject)->kernel;
    b->data = r;
    b->call(b);
    b->error = inverse_error(&r->inverse);
    b->items = 1.0;
    b->flops = 2.0 * (double)l * products;
    b->bytes = 0.0;
    return NULL;
}

static void add_nystrom(const selection *s, const family *f, bench b)
{
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        if (!f->of[isa].kernel) continue;
        b.isa = (linattn_isa)isa;
        b.subject = &f->of[isa];
        if (!bench_wanted(s, &b) || !bench_sampled(s, &b)) continue;
        bench_add(&b, "%s/l%d/%s" SUFFIX "/%zux%zu/%zu", f->name, LANDMARKS,
                  linattn_isa_name(b.isa), b.d, b.dv, b.n);
    }
}

static void register_nystrom(const selection *s, const family *f, bench b)
{
    b.heads = 1;
    b.n = bench_usual_length;
    for (size_t i = 0; i < s->shape_count; i++) {
        b.d = s->shapes[i].d;
        b.dv = s->shapes[i].dv;
        add_nystrom(s, f, b);
    }
}

static void register_means(const selection *s, family *f)
{
    register_nystrom(s, f, (bench){.open = means_open, .call = means_call});
}

static void register_inverse(const selection *s, family *f)
{
    register_nystrom(s, f, (bench){.open = inverse_open, .call = inverse_call});
}

/* ---- merge ---------------------------------------------------------------------------------- */

typedef struct merge_run {
    linattn__work to, from;
    linattn__merge_kernel *kernel;
} merge_run;

static void merge_call(bench *b)
{
    const merge_run *r = b->data;
    r->kernel(&r->to.span, &r->from.span);
}

static void merge_side(linattn__work *w, void *state)
{
    linattn__shape s;
    linattn__header h;
    bench_check(linattn__read_state(state, &h, &s));
    linattn__start(w, &s, &h, state);
    w->span.params = &w->params;
}

/* Each half of the tokens in a state of its own; their sum is read with all queries. */
static double merge_error(bench *b, const operands *o, void *to, void *from)
{
    const size_t half = b->n / 2;
    const linattn_view k = {o->k.data + half * b->d, b->d, 0};
    const linattn_view v = {o->v.data + half * b->dv, b->dv, 0};
    const oracle_problem p = bench_problem(b, o, false);
    bench_check(linattn_update(to, o->k, o->v, half, NULL));
    bench_check(linattn_update(from, k, v, b->n - half, NULL));
    merge_call(b);
    linattn__set_tokens(to, b->n);
    bench_check(linattn_query(to, o->q, o->out, b->n, NULL));
    return oracle_error(&p, o->out.data, b->dv);
}

static const char *merge_open(bench *b)
{
    const linattn_config config = bench_config(b);
    const size_t bytes = (linattn_state_size(&config) + 63) / 64 * 64;
    merge_run *r = bench_take(sizeof *r);
    char *states = bench_take(2 * bytes);
    operands o;
    const char *problem = bench_operands(b, &o);
    if (problem) return problem;
    if (!r || !states) return no_memory;
    bench_check(linattn_state_init(&config, states, bytes));
    bench_check(linattn_state_init(&config, states + bytes, bytes));
    merge_side(&r->to, states);
    merge_side(&r->from, states + bytes);
    r->kernel = (linattn__merge_kernel *)((const subject *)b->subject)->kernel;
    b->data = r;
    b->error = merge_error(b, &o, states, states + bytes);
    b->items = 1.0;
    b->flops = 0.0;
    b->bytes = 3.0 * (double)(bytes - sizeof(linattn__header));
    b->memory = (float *)(void *)states + sizeof(linattn__header) / sizeof(float);
    b->memory_floats = (bytes - sizeof(linattn__header)) / sizeof(float);
    return NULL;
}

static void register_merge(const selection *s, family *f)
{
    bench b = {.open = merge_open, .call = merge_call, .heads = 1, .n = bench_usual_length};
    for (size_t i = 0; bench_case(s, i, &b); i++)
        for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
            b.isa = (linattn_isa)isa;
            b.subject = &f->of[isa];
            if (f->of[isa].kernel && bench_wanted(s, &b) && bench_sampled(s, &b))
                bench_add(&b, "%s/%s/%s" SUFFIX "/%zux%zu", f->name, bench_map(&b),
                          linattn_isa_name(b.isa), b.d, b.dv);
        }
}

/* ---- Maps on arrays ------------------------------------------------------------------------- */

typedef struct map_run {
    linattn__params params;
    linattn__span span;
    float *x, *y;
    void (*kernel)(void);
} map_run;

static void map_call(bench *b)
{
    const map_run *r = b->data;
    ((linattn__map_kernel *)r->kernel)(r->x, r->y, b->n, &r->params);
}

/* n numbers in rows of m. */
static void row_call(bench *b)
{
    const map_run *r = b->data;
    for (size_t i = 0; i + b->d <= b->n; i += b->d)
        ((linattn__row_kernel *)r->kernel)(&r->span, r->x + i, r->y + i);
}

static double map_error(const bench *b, const map_run *r)
{
    const oracle_problem p = {.d = b->d, .map = b->map};
    double phi[64], worst = 0.0;
    if (b->call == map_call) return oracle_map_error(b->map, r->x, r->y, b->n);
    for (size_t i = 0; i + b->d <= b->n; i += b->d) {
        oracle_features(&p, false, r->x + i, phi);
        for (size_t f = 0; f < b->d; f++)
            worst = fmax(worst, fabs((double)r->y[i + f] - phi[f]) / phi[f]);
    }
    return worst;
}

/* x and y lie in one block, which the bandwidth is measured in. */
static const char *map_open(bench *b)
{
    const size_t n = (b->n + 15) / 16 * 16;
    const linattn_config config = bench_config(b);
    map_run *r = bench_take(sizeof *r);
    float *block = bench_floats(2 * n);
    const float *random = bench_random(b->n);
    linattn__shape s;
    if (!r || !block || !random) return no_memory;
    bench_check(linattn__read_config(&config, &s));
    linattn__read_params(&s, &r->params);
    r->span.params = &r->params;
    r->span.m = b->d;
    r->x = block;
    r->y = block + n;
    r->kernel = ((const subject *)b->subject)->kernel;
    for (size_t i = 0; i < b->n; i++) r->x[i] = 4.0f * random[i];
    b->data = r;
    b->call(b);
    b->error = map_error(b, r);
    b->items = (double)b->n;
    b->flops = 0.0;
    b->bytes = 2.0 * sizeof(float) * (double)b->n;
    b->memory = block;
    b->memory_floats = 2 * n;
    return NULL;
}

static void add_map(const selection *s, const family *f, bench b)
{
    for (size_t j = 0; j < s->n_count; j++)
        for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
            b.isa = (linattn_isa)isa;
            b.subject = &f->of[isa];
            b.n = s->n[j];
            if (f->of[isa].kernel && bench_wanted_array(s, b.isa, b.map, b.n))
                bench_add(&b, "%s/%s/%s" SUFFIX "/array/%zu", f->name, bench_map_name(b.map),
                          linattn_isa_name(b.isa), b.n);
        }
}

static void register_map(const selection *s, family *f)
{
    bench b = {.open = map_open, .call = map_call, .d = 64, .dv = 64, .heads = 1};
    for (int map = 0; map < LINATTN_MAP_FAVOR; map++) { /* the others are map_features */
        b.map = (linattn_feature_map)map;
        if (map != LINATTN_MAP_SOFTMAX) add_map(s, f, b); /* the softmax map is a row kernel's */
    }
}

static void register_row(const selection *s, family *f)
{
    const bench b = {.open = map_open,
                     .call = row_call,
                     .map = LINATTN_MAP_SOFTMAX,
                     .d = 64,
                     .dv = 64,
                     .heads = 1};
    add_map(s, f, b);
}

/* ---- The list ------------------------------------------------------------------------------- */

/* How a kernel's type is driven: a new type needs a line here. */
#define REGISTER_OF(kernel)                                                                        \
    _Generic((kernel), linattn__span_kernel *                                                      \
             : register_span, linattn__exact_kernel *                                              \
             : register_exact, linattn__means_kernel *                                             \
             : register_means, linattn__inverse_kernel *                                           \
             : register_inverse, linattn__merge_kernel *                                           \
             : register_merge, linattn__map_kernel *                                               \
             : register_map, linattn__row_kernel *                                                 \
             : register_row)

void REGISTER(const selection *s)
{
    enum { tables = sizeof linattn__tables / sizeof linattn__tables[0] };
    family *f = families;
#define REGISTER_KERNEL(member, type)                                                              \
    f->name = #member;                                                                             \
    for (size_t i = 0; i < tables; i++) {                                                          \
        const int isa = linattn__tables[i]->isa;                                                   \
        if (linattn_isa_available() >> isa & 1u)                                                   \
            f->of[isa].kernel = (void (*)(void))linattn__tables[i]->member;                        \
    }                                                                                              \
    REGISTER_OF(linattn__tables[0]->member)(s, f);                                                 \
    f++;
    LINATTN__KERNEL_LIST(REGISTER_KERNEL)
#undef REGISTER_KERNEL
#ifndef LINATTN_USE_SLEEF
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        const subject *causal = &family_of("causal")->of[isa];
        if (causal->kernel) register_call(s, causal, (linattn_isa)isa);
    }
#endif
}
