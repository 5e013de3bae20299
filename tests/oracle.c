#include "oracle.h"

#include <float.h>
#include <math.h>

/* phi(x)_f = factor * e^exponent: the exponential maps have factor 1 (0 for e^-inf), the others
   exponent 0. doubt: how many units of rounding a float computation may be off, relative to it. */
typedef struct feature {
    double factor, exponent, doubt;
} feature;

static double scale_of_maps(const linattn_config *config)
{
    if (config->scale > 0) return sqrt((double)config->scale);
    return map_has_fields(config->map) ? 1 / sqrt(sqrt((double)config->dim_key)) : 1;
}

static double elu1(double x) { return x >= 0 ? x + 1 : exp(x); }

static feature exponential(double x)
{
    feature result = {1, x, 0};
    if (x == -INFINITY) result = (feature){0, 0, 0};
    return result;
}

/* log of the sum of e^(root x_f) over the features of one query. */
static double log_sum_exp(const float *x, size_t m, double root)
{
    double largest = -INFINITY, sum = 0;
    for (size_t f = 0; f < m; f++) largest = fmax(largest, root * (double)x[f]);
    for (size_t f = 0; f < m; f++) sum += exp(root * (double)x[f] - largest);
    return largest + log(sum);
}

/* A sum of products, and the root of the squares of everything that a float computation rounds on
   the way: each term and each partial sum. Roundings are independent, so that this times a small
   constant is how far off it may be. */
typedef struct sum {
    double value, squares;
} sum;

static void sum_add(sum *s, double term)
{
    s->value += term;
    s->squares += term * term + s->value * s->value;
}

/* M^-1/2 exp(w.x' - |x'|^2/2); simplified: exp(w.x'); hyperbolic: (2M)^-1/2 and both signs of w. An
   absolute error of the exponent is a relative one of the feature. */
static void favor(const linattn_config *config, const float *x, feature *y)
{
    size_t count = config->features, dim = config->dim_key;
    bool simplified = config->map == LINATTN_MAP_FAVOR_SIMPLIFIED;
    bool hyperbolic = config->map == LINATTN_MAP_FAVOR_HYPERBOLIC;
    double root = scale_of_maps(config), constant = 0;
    sum half = {0, 0};
    for (size_t i = 0; i < dim && !simplified; i++)
        sum_add(&half, root * (double)x[i] * root * (double)x[i] / 2);
    if (!simplified) constant = half.value + log((double)(hyperbolic ? 2 * count : count)) / 2;
    for (size_t r = 0; r < count; r++) {
        sum dot = {0, 0};
        for (size_t i = 0; i < dim; i++)
            sum_add(&dot, (double)config->projection[r * dim + i] * root * (double)x[i]);
        double doubt =
            2 * (sqrt(dot.squares) + sqrt(half.squares) + fabs(dot.value) + fabs(constant));
        y[r] = (feature){1, dot.value - constant, doubt};
        if (hyperbolic) y[count + r] = (feature){1, -dot.value - constant, doubt};
    }
}

/* The weight of degree p in the series of exp: 1, or p! C(n, p) / n^p of (1 + x / n)^n. */
static double series_weight(const linattn_config *config, size_t p)
{
    double weight = 1;
    for (size_t j = 0; j < p && config->map == LINATTN_MAP_EXPDEF; j++)
        weight *= 1 - (double)j / (double)config->degree;
    return weight;
}

/* Every monomial once: from one of degree p whose largest index is `last`, there `repeats` times,
   to those of degree p + 1 with an index that is not smaller. value is the product of all
   coordinates over the root of the factorials of how often each occurs. */
typedef struct monomials {
    size_t dim, degree;
    double root, weight[9]; /* of a degree, its root taken */
    const float *x;
    feature *next;
} monomials;

static void monomials_from(monomials *m, size_t p, size_t last, size_t repeats, double value)
{
    /* x', its products and the weight are each rounded, for one coordinate all the same way. */
    *m->next++ = (feature){value * m->weight[p], 0, 2 * (double)p};
    for (size_t i = last; p < m->degree && i < m->dim; i++) {
        size_t times = i == last ? repeats + 1 : 1;
        double x = m->root * (double)m->x[i];
        monomials_from(m, p + 1, i, times, value * x / sqrt((double)times));
    }
}

static void monomial_features(const linattn_config *config, const float *x, feature *y)
{
    monomials all = {config->dim_key, config->degree, scale_of_maps(config), {0}, x, y};
    for (size_t p = 0; p <= config->degree; p++) all.weight[p] = sqrt(series_weight(config, p));
    monomials_from(&all, 0, 0, 0, 1);
}

/* x / sqrt(|x|^2 + 1e-6); the scale multiplies the queries. */
static void unit(const linattn_config *config, bool keys, const float *x, feature *y)
{
    double squares = 1e-6, scale = !keys && config->scale > 0 ? (double)config->scale : 1;
    for (size_t f = 0; f < config->dim_key; f++) squares += (double)x[f] * (double)x[f];
    for (size_t f = 0; f < config->dim_key; f++)
        y[f] = (feature){scale * (double)x[f] / sqrt(squares), 0, 0};
}

static void features(const linattn_config *config, bool keys, const float *x, feature *y)
{
    size_t m = config->dim_key;
    double root = scale_of_maps(config);
    double shift = 0;
    if (config->map == LINATTN_MAP_SOFTMAX && !keys) shift = log_sum_exp(x, m, root);
    if (map_is_favor(config->map)) {
        favor(config, x, y);
        return;
    }
    if (map_is_monomial(config->map)) {
        monomial_features(config, x, y);
        return;
    }
    if (config->map == LINATTN_MAP_UNIT) {
        unit(config, keys, x, y);
        return;
    }
    for (size_t f = 0; f < m; f++) {
        double scaled = root * (double)x[f];
        switch (config->map) {
        case LINATTN_MAP_ELU1: y[f] = (feature){elu1(scaled), 0, 0}; break;
        case LINATTN_MAP_IDENTITY: y[f] = (feature){scaled, 0, 0}; break;
        case LINATTN_MAP_RELU: y[f] = (feature){fmax(scaled, 0), 0, 0}; break;
        case LINATTN_MAP_EXP:
        case LINATTN_MAP_SOFTMAX: y[f] = exponential(scaled - shift); break;
        default: check(false, "no oracle for map %d", (int)config->map);
        }
    }
}

void oracle_map(const linattn_config *config, bool keys, const float *x, double *y, double *doubt)
{
    size_t m = config_features(config);
    feature *mapped = (feature *)pool_take(m * sizeof *mapped);
    features(config, keys, x, mapped);
    for (size_t f = 0; f < m; f++) {
        y[f] = mapped[f].factor * exp(mapped[f].exponent);
        if (doubt) doubt[f] = mapped[f].doubt;
    }
}

static double dot_scaled(const linattn_config *config, const float *a, const float *b)
{
    double root = scale_of_maps(config), dot = 0;
    for (size_t i = 0; i < config->dim_key; i++) dot += root * (double)a[i] * root * (double)b[i];
    return dot;
}

/* exp(-(|q'|^2 + |k'|^2)/2) times the mean of e^(w.(q' + k')), or of its hyperbolic cosine;
   simplified: the sum of e^(w.(q' + k')). */
static double kernel_of_favor(const linattn_config *config, const float *q, const float *k)
{
    size_t dim = config->dim_key;
    double root = scale_of_maps(config), mean = 0;
    for (size_t r = 0; r < config->features; r++) {
        double dot = 0;
        for (size_t i = 0; i < dim; i++)
            dot += (double)config->projection[r * dim + i] * root * ((double)q[i] + (double)k[i]);
        mean += config->map == LINATTN_MAP_FAVOR_HYPERBOLIC ? cosh(dot) : exp(dot);
    }
    if (config->map == LINATTN_MAP_FAVOR_SIMPLIFIED) return mean;
    double norms = dot_scaled(config, q, q) + dot_scaled(config, k, k);
    return mean / (double)config->features * exp(-norms / 2);
}

double oracle_kernel(const linattn_config *config, const float *q, const float *k)
{
    if (map_is_favor(config->map)) return kernel_of_favor(config, q, k);
    double x = dot_scaled(config, q, k), sum_of_powers = 0, power = 1;
    if (config->map == LINATTN_MAP_EXPDEF)
        return pow(1 + x / (double)config->degree, (double)config->degree);
    for (size_t p = 0; p <= config->degree; p++) {
        sum_of_powers += power;
        power *= x / (double)(p + 1);
    }
    return sum_of_powers;
}

static bool is_masked(const float *k, size_t dim)
{
    for (size_t f = 0; f < dim; f++)
        if (k[f] != -INFINITY) return false;
    return true;
}

static oracle oracle_new(const problem *p)
{
    size_t count = p->n_q * output_width(p);
    oracle result = {pool_doubles(count), pool_doubles(count)};
    return result;
}

/* The keys that query i sees. */
typedef struct range {
    size_t first, end;
} range;

static range visible_keys(const problem *p, bool causal, size_t i)
{
    size_t window = p->config.window;
    range seen = {0, causal ? i + 1 : p->n_k};
    if (window && window <= i) seen.first = i - window + 1;
    if (window && window < seen.end - i) seen.end = i + window;
    return seen;
}

/* Roundings of sums over n tokens and m features, independent enough to grow like the square root,
   with room for the worst of many elements; the constant is for the map, the quotient and the
   product with the weight. */
static double steps_of(const problem *p)
{
    return 16 + 4 * sqrt((double)(p->n_k + config_features(&p->config)));
}

/* |term|, made larger by the doubt about its factors, so that steps_of of it covers both. */
static double with_doubt(double term, double doubt, double steps)
{
    return doubt == 0 ? fabs(term) : fabs(term) * (1 + doubt / steps);
}

/* One head's mapped keys and values, and the row that is being computed. */
typedef struct head {
    const problem *p;
    size_t index, kv_index, m;
    double steps;
    const feature *keys; /* [n_k][m] */
    const bool *masked;  /* [n_k] */
    const feature *query;
    double *value, *magnitude; /* [dim_value] */
} head;

static const float *values_at(const head *h, size_t j)
{
    const linattn_config *config = &h->p->config;
    return h->p->v + (j * config->kv_heads + h->kv_index) * config->dim_value;
}

static feature key_at(const head *h, size_t j, size_t f) { return h->keys[j * h->m + f]; }

/* The largest exponent of phi(q)_f phi(k_j)_f over all features and visible keys. */
static double largest_exponent(const head *h, range visible)
{
    double largest = -INFINITY;
    if (!map_is_exponential(h->p->config.map)) return 0; /* nor has any feature an exponent */
    for (size_t j = visible.first; j < visible.end; j++)
        for (size_t f = 0; f < h->m; f++) {
            feature q = h->query[f], k = key_at(h, j, f);
            if (q.factor != 0 && k.factor != 0 && !h->masked[j] &&
                q.exponent + k.exponent > largest)
                largest = q.exponent + k.exponent;
        }
    return largest == -INFINITY ? 0 : largest;
}

/* phi(q).phi(k_j) / e^shift, and the sum of the absolute values of its terms. */
static double key_weight(const head *h, size_t j, double shift, double *absolute)
{
    const feature *q = h->query, *k = h->keys + j * h->m, *end = q + h->m;
    double weight = 0, steps = h->steps, sum_of_sizes = 0;
    bool exponents = map_is_exponential(h->p->config.map);
    for (; q < end; q++, k++) {
        double term = q->factor * k->factor;
        if (exponents) term *= exp(q->exponent + k->exponent - shift);
        weight += term;
        sum_of_sizes += with_doubt(term, q->doubt + k->doubt, steps);
    }
    *absolute = sum_of_sizes;
    return weight;
}

/* Beyond this condition number a float denominator is lost in its own rounding, and so is what is
   divided by it. Such elements only have to be finite. */
#define WORST_CONDITION 1e4

/* Turns numerators into quotients and, with the condition of both operands, into magnitudes. */
static void divide_row(const head *h, double denominator, double absolute_denominator)
{
    for (size_t c = 0; c < h->p->config.dim_value; c++) {
        if (denominator == 0) {
            h->value[c] = h->magnitude[c] = 0;
            continue;
        }
        h->value[c] /= denominator;
        h->magnitude[c] += fabs(h->value[c]) * absolute_denominator;
        h->magnitude[c] /= fabs(denominator);
        if (absolute_denominator > WORST_CONDITION * fabs(denominator)) h->magnitude[c] = INFINITY;
    }
}

/* normaliser sum, length or none: numerator and denominator as sums over keys, both divided by
   e^shift. */
static void row_by_keys(const head *h, range visible)
{
    const linattn_config *config = &h->p->config;
    double shift = largest_exponent(h, visible);
    /* What this limit cuts off is far outside the range of float in either case. */
    double unit = exp(fmax(-700, fmin(700, -shift)));
    double denominator = (double)config->epsilon * unit, absolute = denominator;
    size_t dv = config->dim_value;
    double *restrict value = h->value, *restrict magnitude = h->magnitude;
    for (size_t c = 0; c < dv; c++) value[c] = magnitude[c] = 0;
    for (size_t j = visible.first; j < visible.end; j++) {
        if (h->masked[j]) continue;
        const float *restrict v = values_at(h, j);
        double absolute_weight, weight = key_weight(h, j, shift, &absolute_weight);
        denominator += weight;
        absolute += absolute_weight;
        for (size_t c = 0; c < dv; c++) {
            value[c] += weight * (double)v[c];
            magnitude[c] += absolute_weight * fabs((double)v[c]);
        }
    }
    if (config->normaliser == LINATTN_NORM_LENGTH)
        denominator = absolute = (double)(visible.end - visible.first) * unit;
    if (config->normaliser == LINATTN_NORM_NONE) denominator = absolute = unit;
    divide_row(h, denominator, absolute);
}

/* normaliser feature: one quotient S_f / z_f per feature, both divided by e^shift. */
static void row_by_features(const head *h, range visible)
{
    const linattn_config *config = &h->p->config;
    size_t dv = config->dim_value;
    double *sums = pool_doubles(2 * dv), *absolute_sums = sums + dv;
    for (size_t c = 0; c < dv; c++) h->value[c] = h->magnitude[c] = 0;
    for (size_t f = 0; f < h->m; f++) {
        double shift = -INFINITY, z = 0, absolute_z = 0;
        for (size_t c = 0; c < 2 * dv; c++) sums[c] = 0;
        for (size_t j = visible.first; j < visible.end; j++)
            if (!h->masked[j] && key_at(h, j, f).factor != 0)
                shift = fmax(shift, key_at(h, j, f).exponent);
        for (size_t j = visible.first; j < visible.end; j++) {
            feature k = key_at(h, j, f);
            if (h->masked[j] || k.factor == 0) continue;
            const float *v = values_at(h, j);
            double weight = k.factor * exp(k.exponent - shift);
            z += weight;
            absolute_z += with_doubt(weight, k.doubt, h->steps);
            for (size_t c = 0; c < dv; c++) {
                sums[c] += weight * (double)v[c];
                absolute_sums[c] += with_doubt(weight * (double)v[c], k.doubt, h->steps);
            }
        }
        if (z == 0) continue;
        double weight = h->query[f].factor * exp(h->query[f].exponent);
        for (size_t c = 0; c < dv; c++) {
            h->value[c] += weight * sums[c] / z;
            h->magnitude[c] += with_doubt(weight / z, h->query[f].doubt, h->steps) *
                               (absolute_sums[c] + fabs(sums[c] / z) * absolute_z);
            if (absolute_z > WORST_CONDITION * fabs(z)) h->magnitude[c] = INFINITY;
        }
    }
}

/* The keys and the mask of the key/value head that h reads. */
static void head_keys(head *h)
{
    const problem *p = h->p;
    const linattn_config *config = &p->config;
    size_t dim = config->dim_key;
    feature *keys = (feature *)pool_take(p->n_k * h->m * sizeof *keys);
    bool *masked = (bool *)pool_take(p->n_k * sizeof *masked);
    for (size_t j = 0; j < p->n_k; j++) {
        const float *k = p->k + (j * config->kv_heads + h->kv_index) * dim;
        features(config, true, k, keys + j * h->m);
        masked[j] = is_masked(k, dim);
    }
    h->keys = keys;
    h->masked = masked;
}

oracle oracle_linear(const problem *p, bool causal)
{
    const linattn_config *config = &p->config;
    oracle result = oracle_new(p);
    size_t mark = pool_mark();
    for (size_t index = 0; index < config->heads; index++) {
        head h = {.p = p,
                  .index = index,
                  .kv_index = index / (config->heads / config->kv_heads),
                  .m = config_features(config),
                  .steps = steps_of(p)};
        feature *query = (feature *)pool_take(h.m * sizeof *query);
        h.query = query;
        head_keys(&h);
        for (size_t i = 0; i < p->n_q; i++) {
            size_t row = i * config->heads + index;
            size_t row_mark = pool_mark();
            features(config, false, p->q + row * config->dim_key, query);
            h.value = result.value + row * config->dim_value;
            h.magnitude = result.magnitude + row * config->dim_value;
            if (config->normaliser == LINATTN_NORM_FEATURE)
                row_by_features(&h, visible_keys(p, causal, i));
            else
                row_by_keys(&h, visible_keys(p, causal, i));
            pool_release(row_mark);
        }
    }
    pool_release(mark);
    return result;
}

/* ---- The recurrence ------------------------------------------------------------------------- */

typedef struct linear_state {
    double *S, *z; /* [m][dim_value], [m] */
    double tokens;
} linear_state;

static void recurrence_reset(linear_state *r, size_t m, size_t dv)
{
    for (size_t i = 0; i < m * dv; i++) r->S[i] = 0;
    for (size_t i = 0; i < m; i++) r->z[i] = 0;
    r->tokens = 0;
}

static void recurrence_update(linear_state *r, const linattn_config *config, const float *k,
                              const float *v)
{
    size_t m = config_features(config), dv = config->dim_value;
    double *mapped = pool_doubles(m);
    r->tokens++;
    if (is_masked(k, config->dim_key)) return;
    oracle_map(config, true, k, mapped, NULL);
    for (size_t f = 0; f < m; f++) {
        r->z[f] += mapped[f];
        for (size_t c = 0; c < dv; c++) r->S[f * dv + c] += mapped[f] * (double)v[c];
    }
}

static void recurrence_query(const linear_state *r, const linattn_config *config, const float *q,
                             double *out)
{
    size_t m = config_features(config), dv = config->dim_value;
    double *mapped = pool_doubles(m), denominator = 0;
    oracle_map(config, false, q, mapped, NULL);
    for (size_t f = 0; f < m; f++) denominator += mapped[f] * r->z[f];
    denominator += (double)config->epsilon;
    if (config->normaliser == LINATTN_NORM_FEATURE) {
        denominator = 1;
        for (size_t f = 0; f < m; f++) mapped[f] = r->z[f] == 0 ? 0 : mapped[f] / r->z[f];
    }
    if (config->normaliser == LINATTN_NORM_LENGTH) denominator = r->tokens;
    if (config->normaliser == LINATTN_NORM_NONE) denominator = 1;
    for (size_t c = 0; c < dv; c++) {
        out[c] = 0;
        for (size_t f = 0; f < m; f++) out[c] += mapped[f] * r->S[f * dv + c];
        out[c] = denominator == 0 ? 0 : out[c] / denominator;
    }
}

double *oracle_recurrence(const problem *p)
{
    const linattn_config *config = &p->config;
    size_t dim = config->dim_key, m = config_features(config), dv = config->dim_value;
    double *out = pool_doubles(p->n_q * output_width(p));
    for (size_t h = 0; h < config->heads; h++) {
        size_t mark = pool_mark(), g = h / (config->heads / config->kv_heads);
        linear_state r = {pool_doubles(m * dv), pool_doubles(m), 0};
        recurrence_reset(&r, m, dv);
        for (size_t t = 0; t < p->n_q; t++) {
            size_t row = t * config->heads + h, row_mark = pool_mark(), j = t;
            if (config->window) { /* afresh, as nothing can be taken out of a sum */
                recurrence_reset(&r, m, dv);
                j = t < config->window ? 0 : t + 1 - config->window;
            }
            for (; j <= t; j++) {
                size_t key_row = j * config->kv_heads + g;
                recurrence_update(&r, config, p->k + key_row * dim, p->v + key_row * dv);
            }
            recurrence_query(&r, config, p->q + row * dim, out + row * dv);
            pool_release(row_mark);
        }
        pool_release(mark);
    }
    return out;
}

/* ---- Recurrences ---------------------------------------------------------------------------- */

/* One key/value head on its way through a sequence. */
typedef struct rule_state {
    const recurrence *x;
    size_t head, m, dv;
    double *S, *z; /* times e^-shift */
    double *size, *z_size;
    double *k, *a, *read; /* of the token; what reads: S, or S and the bonus */
    double *read_size;
    double shift, recent; /* recent: the largest element of S lately */
    size_t tokens;
} rule_state;

static size_t key_head_of(const recurrence *x, size_t kv_head)
{
    const linattn_config *c = &x->config;
    return c->key_heads ? kv_head / (c->kv_heads / c->key_heads) : kv_head;
}

/* The scale multiplies the query alone where the map is none or the norm. */
static void map_of_rule(const linattn_config *config, bool keys, const float *x, double *y)
{
    linattn_config c = *config;
    if (c.map != LINATTN_MAP_IDENTITY) {
        oracle_map(&c, keys, x, y, NULL);
        return;
    }
    for (size_t f = 0; f < c.dim_key; f++)
        y[f] = (double)x[f] * (!keys && c.scale > 0 ? (double)c.scale : 1);
}

/* The logarithm of a decay. */
static double log_decay(const rule_state *s, size_t t, size_t f)
{
    const recurrence *x = s->x;
    if (!x->in[IN_DECAY]) return 0;
    double given = (double)operand_row(x, IN_DECAY, t, s->head)[x->per_feature ? f : 0];
    return x->log ? given : log(given);
}

static double decay_of(const rule_state *s, size_t t, size_t f)
{
    const recurrence *x = s->x;
    if (!x->in[IN_DECAY]) return 1;
    double given = (double)operand_row(x, IN_DECAY, t, s->head)[x->per_feature ? f : 0];
    return x->log ? exp(given) : given;
}

/* S = Diag(a) S + k (w v)^T, and so z and the sizes. */
static void decay_and_add(rule_state *s, const float *v, double weight)
{
    for (size_t f = 0; f < s->m; f++) {
        for (size_t c = 0; c < s->dv; c++) {
            double term = weight * s->k[f] * (double)v[c], *at = s->S + f * s->dv + c;
            *at = s->a[f] * *at + term;
            s->size[f * s->dv + c] = s->a[f] * s->size[f * s->dv + c] + fabs(term);
        }
        s->z[f] = s->a[f] * s->z[f] + weight * s->k[f];
        s->z_size[f] = s->a[f] * s->z_size[f] + weight * fabs(s->k[f]);
    }
}

/* S' = Diag(a) S, S = S' + beta k (v - S'^T k)^T */
static void delta_step(rule_state *s, const float *v, double beta)
{
    for (size_t f = 0; f < s->m; f++)
        for (size_t c = 0; c < s->dv; c++) s->S[f * s->dv + c] *= s->a[f];
    for (size_t c = 0; c < s->dv; c++) {
        double known = 0;
        for (size_t f = 0; f < s->m; f++) known += s->S[f * s->dv + c] * s->k[f];
        for (size_t f = 0; f < s->m; f++)
            s->S[f * s->dv + c] += beta * s->k[f] * ((double)v[c] - known);
    }
}

/* S = Diag(a) S + p (r^T S) + k v^T */
static void general_step(rule_state *s, const float *v, const float *r, const float *p)
{
    for (size_t c = 0; c < s->dv; c++) {
        double read = 0;
        for (size_t f = 0; f < s->m; f++) read += (double)r[f] * s->S[f * s->dv + c];
        for (size_t f = 0; f < s->m; f++) {
            double *at = s->S + f * s->dv + c;
            *at = s->a[f] * *at + (double)p[f] * read + s->k[f] * (double)v[c];
        }
    }
}

/* S and z are e^shift times what is kept, shift = max(log f + shift, i). */
static void mlstm_step(rule_state *s, size_t t, const float *v)
{
    double input = (double)*operand_row(s->x, IN_INPUT, t, s->head), kept = log_decay(s, t, 0);
    double before = s->shift, after = fmax(kept + before, input);
    double factor = before == -INFINITY || kept == -INFINITY ? 0 : exp(before - after + kept);
    for (size_t f = 0; f < s->m; f++) s->a[f] = factor;
    s->shift = after;
    decay_and_add(s, v, exp(input - after));
}

/* Where a rule reads, errors of one element are errors of all. */
static void size_of_what_is_read(rule_state *s)
{
    double largest = 0, least, *restrict size = s->size;
    const double *restrict S = s->S;
    size_t count = s->m * s->dv;
    for (size_t i = 0; i < count; i++) /* by hand, as fmax is a call, and these loops run often */
        if (fabs(S[i]) > largest) largest = fabs(S[i]);
    s->recent = fmax(largest, 0.7 * s->recent);
    least = s->recent / sqrt((double)s->m);
    for (size_t i = 0; i < count; i++) size[i] = fabs(S[i]) > least ? fabs(S[i]) : least;
}

static void copy_for_reading(rule_state *s)
{
    for (size_t i = 0; i < s->m * s->dv; i++) {
        s->read[i] = s->S[i];
        s->read_size[i] = s->size[i];
    }
}

static void rule_token(rule_state *s, size_t t)
{
    const recurrence *x = s->x;
    const float *k = operand_row(x, IN_K, t, key_head_of(x, s->head));
    const float *v = operand_row(x, IN_V, t, s->head);
    s->tokens++;
    if (is_masked(k, s->m)) {
        copy_for_reading(s);
        return;
    }
    map_of_rule(&x->config, true, k, s->k);
    for (size_t f = 0; f < s->m; f++) s->a[f] = decay_of(s, t, f);
    if (x->in[IN_BONUS]) {
        const float *u = operand_row(x, IN_BONUS, 0, s->head);
        copy_for_reading(s);
        for (size_t i = 0; i < s->m * s->dv; i++) {
            double term = (double)u[i / s->dv] * s->k[i / s->dv] * (double)v[i % s->dv];
            s->read[i] += term;
            s->read_size[i] += fabs(term);
        }
    }
    switch (x->config.rule) {
    case LINATTN_RULE_DELTA:
    case LINATTN_RULE_GATED_DELTA:
        delta_step(s, v, (double)*operand_row(x, IN_BETA, t, x->shared ? 0 : s->head));
        size_of_what_is_read(s);
        break;
    case LINATTN_RULE_GENERAL:
        general_step(s, v, operand_row(x, IN_READ, t, key_head_of(x, s->head)),
                     operand_row(x, IN_WRITE, t, key_head_of(x, s->head)));
        size_of_what_is_read(s);
        break;
    case LINATTN_RULE_MLSTM: mlstm_step(s, t, v); break;
    default: decay_and_add(s, v, 1); break;
    }
    if (!x->in[IN_BONUS]) copy_for_reading(s);
}

static void rule_row(const rule_state *s, const float *query, double *value, double *size)
{
    const linattn_config *config = &s->x->config;
    double *q = pool_doubles(s->m), denominator = 1, dot = 0, absolute = 0, largest = 0;
    map_of_rule(config, false, query, q);
    for (size_t f = 0; f < s->m; f++) {
        dot += q[f] * s->z[f];
        absolute += fabs(q[f]) * s->z_size[f];
    }
    if (config->normaliser == LINATTN_NORM_SUM) {
        denominator = dot + (double)config->epsilon;
        absolute += (double)config->epsilon;
    } else if (config->rule == LINATTN_RULE_MLSTM) {
        denominator = fmax(fabs(dot), exp(-s->shift));
    } else {
        absolute = 0;
    }
    if (config->normaliser == LINATTN_NORM_LENGTH) denominator = (double)s->tokens;
    for (size_t c = 0; c < s->dv; c++) {
        double total = 0, total_size = 0;
        for (size_t f = 0; f < s->m; f++) {
            total += q[f] * s->read[f * s->dv + c];
            total_size += fabs(q[f]) * s->read_size[f * s->dv + c];
        }
        value[c] = denominator == 0 ? 0 : total / denominator;
        largest = fmax(largest, denominator == 0 ? 0 : total_size / fabs(denominator));
    }
    *size = largest * (1 + (denominator == 0 ? 0 : absolute / fabs(denominator)));
    if (absolute > WORST_CONDITION * fabs(denominator)) *size = INFINITY;
}

rule_oracle oracle_rule(const recurrence *x)
{
    const linattn_config *config = &x->config;
    size_t m = config->dim_key, dv = config->dim_value, heads = config->heads;
    size_t kv = config->kv_heads, group = heads / kv;
    rule_oracle o = {.value = pool_doubles(x->n * heads * dv),
                     .size = pool_doubles(x->n * heads),
                     .sums = pool_doubles(kv * m * dv),
                     .sums_size = pool_doubles(kv * m * dv),
                     .z = pool_doubles(kv * m),
                     .z_size = pool_doubles(kv * m),
                     .log_scale = pool_doubles(kv)};
    size_t mark = pool_mark();
    for (size_t h = 0; h < kv; h++) {
        rule_state s = {.x = x,
                        .head = h,
                        .m = m,
                        .dv = dv,
                        .S = o.sums + h * m * dv,
                        .z = o.z + h * m,
                        .size = o.sums_size + h * m * dv,
                        .z_size = o.z_size + h * m,
                        .k = pool_doubles(m),
                        .a = pool_doubles(m),
                        .read = pool_doubles(m * dv),
                        .read_size = pool_doubles(m * dv),
                        .shift = config->rule == LINATTN_RULE_MLSTM ? (double)-INFINITY : 0};
        for (size_t i = 0; i < m * dv; i++) s.S[i] = s.size[i] = 0;
        for (size_t f = 0; f < m; f++) s.z[f] = s.z_size[f] = 0;
        copy_for_reading(&s);
        for (size_t t = 0; t < x->n; t++) {
            rule_token(&s, t);
            for (size_t i = h * group; i < (h + 1) * group; i++) {
                size_t row = t * heads + i, row_mark = pool_mark();
                const float *q = operand_row(x, IN_Q, t, config->key_heads ? key_head_of(x, h) : i);
                rule_row(&s, q, o.value + row * dv, o.size + row);
                pool_release(row_mark);
            }
        }
        for (size_t i = 0; s.recent > 0 && i < m * dv; i++) s.size[i] = s.recent;
        o.log_scale[h] = s.shift == -INFINITY ? 0 : s.shift;
    }
    pool_release(mark);
    return o;
}

/* ---- Exact attention ------------------------------------------------------------------------ */

/* s q.k, and the sum of the absolute values of its terms. */
static double score(const problem *p, const float *q, const float *k, double *absolute)
{
    size_t dim = p->config.dim_key;
    double s = p->config.scale > 0 ? (double)p->config.scale : 1 / sqrt((double)dim);
    double product = 0;
    *absolute = 0;
    for (size_t f = 0; f < dim; f++) {
        double term = s * (double)q[f] * (double)k[f];
        product += term;
        *absolute += fabs(term);
    }
    return product;
}

/* Does query i, whose place is `place`, see key j? */
static bool sees(const linattn_config *c, bool causal, double place, double j)
{
    double window = (double)c->window;
    if (causal && j > place) return false;
    return !c->window || fabs(place - j) < window || j < (double)c->sinks;
}

/* The score with soft cap and slope; an error of what goes in is no larger in what comes out. */
static double changed_score(const linattn_config *c, size_t h, double distance, double s,
                            double *absolute)
{
    if (c->soft_cap > 0) s = (double)c->soft_cap * tanh(s / (double)c->soft_cap);
    if (c->alibi_slopes) {
        double bias = (double)c->alibi_slopes[h] * distance;
        s -= bias;
        *absolute += fabs(bias);
    }
    return s;
}

static void softmax_row(const problem *p, size_t i, size_t h, bool causal, double *value,
                        double *magnitude)
{
    const linattn_config *config = &p->config;
    size_t dim = config->dim_key, dv = config->dim_value, kv = config->kv_heads;
    size_t g = h / (config->heads / kv);
    const float *q = p->q + (i * config->heads + h) * dim;
    double *scores = pool_doubles(2 * p->n_k), *absolute = scores + p->n_k;
    double largest = -INFINITY, denominator = 0, weights = 0;
    double place = (double)i + (double)p->n_k - (double)p->n_q;
    for (size_t j = 0; j < p->n_k; j++) {
        const float *k = p->k + (j * kv + g) * dim;
        scores[j] = score(p, q, k, &absolute[j]);
        scores[j] = changed_score(config, h, fabs(place - (double)j), scores[j], &absolute[j]);
        if (is_masked(k, dim) || !sees(config, causal, place, (double)j)) scores[j] = -INFINITY;
        largest = fmax(largest, scores[j]);
    }
    for (size_t c = 0; c < dv; c++) value[c] = magnitude[c] = 0;
    for (size_t j = 0; j < p->n_k; j++) {
        if (scores[j] == -INFINITY) continue;
        /* An error of the score is a relative error of its weight. */
        double weight = exp(scores[j] - largest), sensitive = weight * (1 + absolute[j]);
        denominator += weight;
        weights += sensitive;
        for (size_t c = 0; c < dv; c++) {
            double v = (double)p->v[(j * kv + g) * dv + c];
            value[c] += weight * v;
            magnitude[c] += sensitive * fabs(v);
        }
    }
    for (size_t c = 0; c < dv && denominator > 0; c++) {
        value[c] /= denominator;
        magnitude[c] = (magnitude[c] + fabs(value[c]) * weights) / denominator;
    }
}

oracle oracle_softmax(const problem *p, bool causal)
{
    const linattn_config *config = &p->config;
    oracle result = oracle_new(p);
    for (size_t i = 0; i < p->n_q; i++)
        for (size_t h = 0; h < config->heads; h++) {
            size_t row = (i * config->heads + h) * config->dim_value, mark = pool_mark();
            softmax_row(p, i, h, causal, result.value + row, result.magnitude + row);
            pool_release(mark);
        }
    return result;
}

/* ---- Comparison ----------------------------------------------------------------------------- */

#define UNIT_ROUNDOFF (0.5 * (double)FLT_EPSILON)

static double largest_absolute(const float *x, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        if (fabs((double)x[i]) < (double)INFINITY) largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

double rounding_linear(const problem *p)
{
    double steps = steps_of(p), root = scale_of_maps(&p->config);
    if (!map_has_fields(p->config.map) && root != 1)
        steps += 2 * root *
                 (largest_absolute(p->q, p->n_q * query_width(p)) +
                  largest_absolute(p->k, p->n_k * key_width(p)));
    return steps * UNIT_ROUNDOFF;
}

double rounding_softmax(const problem *p)
{
    return (16 + 4 * sqrt((double)(p->n_k + p->config.dim_key))) * UNIT_ROUNDOFF;
}

void check_close(const problem *p, const char *verb, const float *out, size_t n_q, oracle expected,
                 double tolerance)
{
    size_t width = output_width(p);
    for (size_t i = 0; i < n_q * width; i++) {
        /* What the largest float cannot hold saturates. */
        double value = fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, expected.value[i]));
        double error = fabs((double)out[i] - value);
        /* FLT_MIN: what underflows on the way is flushed. */
        double allowed = tolerance * expected.magnitude[i] + (double)FLT_MIN;
        check(float_is_finite(out[i]) && error <= allowed,
              "%s: element %zu of row %zu is %.9g, expected %.9g, off by %.3g of %.3g allowed, %s",
              verb, i % width, i / width, (double)out[i], value, error, allowed, problem_name(p));
    }
}

double norm_error(const float *out, oracle expected, size_t count)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)out[i] - expected.value[i];
        error += difference * difference;
        norm += expected.value[i] * expected.value[i];
    }
    return norm > 0 ? sqrt(error / norm) : sqrt(error);
}
