/* Random projections: their distribution, their orthogonality and what they are for, against
   expectations within bounds of 5 standard errors. All seeds are fixed. test_golden holds the
   bits. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *const kind_names[] = {"independent", "orthogonal", "orthogonal, unit"};

static void fill(uint64_t seed, int kind, size_t features, size_t dim, float *w)
{
    check_status(linattn_random_features(seed, (linattn_random_kind)kind, features, dim, w),
                 LINATTN_OK, "%s, %zu x %zu", kind_names[kind], features, dim);
}

static float *projection(uint64_t seed, int kind, size_t features, size_t dim)
{
    float *w = pool_floats(features * dim);
    fill(seed, kind, features, dim, w);
    return w;
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static double norm(const float *a, size_t n) { return sqrt(dot(a, a, n)); }

/* ---- Statuses ------------------------------------------------------------------------------- */

static void bad_arguments(void **state)
{
    (void)state;
    const size_t most = LINATTN_MAX_DIM;
    struct {
        int kind;
        size_t features, dim;
        linattn_status expected;
    } cases[] = {
        {0, 0, 4, LINATTN_ERROR_SIZE},
        {0, 4, 0, LINATTN_ERROR_SIZE},
        {1, 4 * most + 1, 1, LINATTN_ERROR_SIZE},
        {2, 1, most + 1, LINATTN_ERROR_SIZE},
        {0, SIZE_MAX, 1, LINATTN_ERROR_SIZE},
        {0, 1, SIZE_MAX, LINATTN_ERROR_SIZE},
        {0, SIZE_MAX, 2, LINATTN_ERROR_SIZE},
        {LINATTN_RANDOM_COUNT, 2, 4, LINATTN_ERROR_CONFIG},
        {-1, 2, 4, LINATTN_ERROR_CONFIG},
    };
    float *w = pool_floats(8), *before = (float *)pool_copy(w, 8 * sizeof *w);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        check_status(linattn_random_features(1, (linattn_random_kind)cases[i].kind,
                                             cases[i].features, cases[i].dim, w),
                     cases[i].expected, "case %zu", i);
        check_same_bytes(w, before, 8 * sizeof *w, "case %zu", i);
    }
    check_status(linattn_random_features(1, LINATTN_RANDOM_INDEPENDENT, 2, 4, NULL),
                 LINATTN_ERROR_NULL, "NULL");
    /* The memory would wrap around the end of the address space. */
    float *last = (float *)(UINTPTR_MAX - 15);
    check_status(linattn_random_features(1, LINATTN_RANDOM_INDEPENDENT, 2, 4, last),
                 LINATTN_ERROR_SIZE, "at the end");
}

static void largest_sizes(void **state)
{
    (void)state;
    const size_t most = LINATTN_MAX_DIM;
    for (int kind = 0; kind < LINATTN_RANDOM_COUNT; kind++) {
        float *column = projection(5, kind, 4 * most, 1), *row = projection(6, kind, 1, most);
        for (size_t i = 0; i < 4 * most; i++)
            check(float_is_finite(column[i]) && float_is_finite(row[i % most]), "%s: element %zu",
                  kind_names[kind], i);
        double error = norm(row, most) / 256 - 1; /* its variance is 1 / (2 dim) */
        check(fabs(error) < (kind == LINATTN_RANDOM_ORTHOGONAL_UNIT ? 1e-6 : 5 * sqrt(0.5) / 256),
              "%s: the norm is off by %g", kind_names[kind], error);
        for (size_t i = 0; i < most && kind == LINATTN_RANDOM_ORTHOGONAL_UNIT; i++)
            check(fabsf(column[i]) == 1, "a unit row of one element is %g", (double)column[i]);
    }
}

/* ---- One number ----------------------------------------------------------------------------- */

#define GAMMA UINT64_C(0x9E3779B97F4A7C15)

/* The inverse of splitmix64's function of its state. */
static uint64_t unmix(uint64_t z)
{
    z ^= z >> 31 ^ z >> 62;
    z *= UINT64_C(0x319642B2D24D8EC3);
    z ^= z >> 27 ^ z >> 54;
    z *= UINT64_C(0x96DE1B173F119089);
    return z ^ z >> 30 ^ z >> 60;
}

/* The first number of the seed that makes the generator's first word this one. */
static float number_of(uint64_t word)
{
    float x;
    fill(unmix(unmix(word) - GAMMA) - GAMMA, LINATTN_RANDOM_INDEPENDENT, 1, 1, &x);
    return x;
}

/* The word's first 52 bits are k: the number is where the tail's probability is (2 k + 1) 2^-54.
   Returns its error in units of the last place of a float near it. */
static double check_number(uint64_t word)
{
    const double root_half = sqrt(0.5), density = 0.3989422804014327;
    double p = (double)((word >> 12) * 2 + 1) * 0x1p-54;
    float upper = number_of(word & ~UINT64_C(1)), lower = number_of(word | 1);
    check(lower == -upper, "%g and %g", (double)lower, (double)upper);
    double x = (double)upper, error;
    if (p < 0.25)
        error = p - 0.5 * erfc(x * root_half);
    else
        error = 0.5 * erf(x * root_half) - (0.5 - p);
    error /= density * exp(-0.5 * x * x);
    check(fabs(error) <= 0x1p-24 * 1.01 * x, "p = %g: %.9g is off by %g", p, x, error);
    return error / x;
}

/* Rounding to float may add half a unit; what is left for the double before it is 1 % of that. All
   parts of its approximation are reached: the far tail by none but chosen seeds. */
static void every_quantile(void **state)
{
    (void)state;
    rng r = {11};
    double sum = 0;
    size_t count = test_quick() ? 20000 : 200000;
    for (size_t i = 0; i < count; i++)
        sum += check_number(rng_next(&r) >> (i % 42) & ~UINT64_C(0xFFF)) / (double)count;
    check(fabs(sum) < 5 * 0.29 * 0x1p-23 / sqrt((double)count), "the mean error is %g", sum);
    for (uint64_t k = 0; k < 1000; k++) {
        check_number(k << 12);
        check_number(~(k << 12));
        uint64_t edge = (uint64_t)(0.075 * 0x1p53) + k - 500;
        check_number(edge << 12);
        edge = (uint64_t)(exp(-25) * 0x1p53) + 2 * k - 1000;
        check_number(edge << 12);
    }
    check(fabs((double)number_of(0) - 8.2924) < 1e-4, "the largest is %g", (double)number_of(0));
}

/* ---- Many numbers --------------------------------------------------------------------------- */

static void check_mean(double mean, double expected, double deviation, size_t n, const char *what,
                       const char *of)
{
    double error = (mean - expected) / (deviation / sqrt((double)n));
    check(fabs(error) < 5, "%s of %s: %g, expected %g, %g standard errors off", what, of, mean,
          expected, error);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov's test, of a level of 1e-5. Sorts x. */
static void check_distribution(double *x, size_t n, double (*cdf)(double x, double parameter),
                               double parameter, const char *what)
{
    double worst = 0, step = 1 / (double)n;
    qsort(x, n, sizeof *x, ascending);
    for (size_t i = 0; i < n; i++) {
        double p = cdf(x[i], parameter), below = p - (double)i * step;
        if (below > worst) worst = below;
        if (step - below > worst) worst = step - below;
    }
    check(worst * sqrt((double)n) < 2.47, "%s, parameter %g: %g from its distribution", what,
          parameter, worst * sqrt((double)n));
}

static double normal_cdf(double x, double unused)
{
    (void)unused;
    return 0.5 * erfc(-x * sqrt(0.5));
}

static double uniform_cdf(double x, double half_width)
{
    return x < -half_width ? 0 : x > half_width ? 1 : 0.5 + 0.5 * x / half_width;
}

/* Of the sum of `degree` squares, an even number. */
static double chi_square_cdf(double x, double degree)
{
    double term = exp(-0.5 * x), sum = 0;
    for (int i = 1; 2 * i <= (int)degree; i++) {
        sum += term;
        term *= 0.5 * x / i;
    }
    return 1 - sum;
}

static void check_normal(const float *x, size_t n, const char *what)
{
    static const double tails[] = {0.3173105078629141, 0.04550026389635842, 2.699796063260189e-3,
                                   6.334248366623985e-5, 5.733031437583875e-7};
    double power[7] = {0}, beyond[COUNT_OF(tails)] = {0}, *sorted = pool_doubles(n);
    for (size_t i = 0; i < n; i++) {
        double x_i = sorted[i] = (double)x[i], product = 1;
        for (int k = 1; k <= 6; k++) power[k] += (product *= x_i) / (double)n;
        for (size_t k = 0; k < COUNT_OF(tails); k++) beyond[k] += fabs(x_i) > (double)(k + 1);
    }
    check_mean(power[1], 0, 1, n, "mean", what);
    check_mean(power[2], 1, sqrt(2), n, "variance", what);
    check_mean(power[3], 0, sqrt(15), n, "third moment", what);
    check_mean(power[4], 3, sqrt(96), n, "fourth moment", what);
    check_mean(power[5], 0, sqrt(945), n, "fifth moment", what);
    check_mean(power[6], 15, sqrt(10395 - 225), n, "sixth moment", what);
    for (size_t k = 0; k < COUNT_OF(tails); k++) {
        double expected = tails[k] * (double)n, error = beyond[k] - expected;
        check(fabs(error) < 5 * sqrt(expected) + 1, "%s: %g beyond %zu, expected %g", what,
              beyond[k], k + 1, expected);
    }
    check_distribution(sorted, n, normal_cdf, 0, what);
}

/* Numbers of mean 0 and variance 1. */
static void check_uncorrelated_squares(const float *x, const float *y, size_t n, const char *what)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        double a = (double)x[i], b = (double)y[i];
        squares += (a * a - 1) * (b * b - 1) / (double)n;
    }
    check_mean(squares, 0, 2, n, "correlation of squares", what);
}

static void check_uncorrelated(const float *x, const float *y, size_t n, const char *what)
{
    check_mean(dot(x, y, n) / (double)n, 0, 1, n, "correlation", what);
    check_uncorrelated_squares(x, y, n, what);
}

/* Every row of the orthogonal kind is N(0, I), too. Those of one block depend on one another, which
   makes the sums more exact than of independent rows, never less. */
static void numbers_are_normal(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 3, 64, 256};
    for (size_t i = 0; i < COUNT_OF(dims); i++)
        for (int kind = 0; kind <= LINATTN_RANDOM_ORTHOGONAL; kind++) {
            size_t mark = pool_mark(), dim = dims[i], n = test_quick() ? 1 << 15 : 1 << 19;
            size_t features = n / dim < LINATTN_MAX_DIM ? n / dim : LINATTN_MAX_DIM;
            check_normal(projection(21 + i, kind, features, dim), features * dim, kind_names[kind]);
            pool_release(mark);
        }
}

static void numbers_are_uncorrelated(void **state)
{
    (void)state;
    static const size_t lags[] = {1, 2, 3, 7, 32, 64, 128, 4096};
    size_t n = test_quick() ? 1 << 15 : 1 << 20, dim = 64;
    float *x = projection(31, LINATTN_RANDOM_INDEPENDENT, n / dim, dim);
    for (size_t i = 0; i < COUNT_OF(lags); i++)
        check_uncorrelated(x, x + lags[i], n - lags[i], "neighbours");
    /* Sizes of the one are from the stream of norms, of the other from that of rows. Signs are from
       the same one, until a row is drawn again. */
    n = test_quick() ? 1 << 13 : LINATTN_MAX_DIM;
    float *rows = projection(32, LINATTN_RANDOM_INDEPENDENT, n, 1);
    float *norms = projection(32, LINATTN_RANDOM_ORTHOGONAL, n, 1);
    check_uncorrelated_squares(rows, norms, n, "norms and rows");
}

static void seeds_are_independent(void **state)
{
    (void)state;
    const uint64_t seed = 12345;
    const uint64_t others[] = {seed + 1, seed - 1,     seed + 2,     seed ^ UINT64_C(1) << 63,
                               ~seed,    seed + GAMMA, seed - GAMMA, seed + 2 * GAMMA,
                               0,        UINT64_MAX,   unmix(seed),  GAMMA};
    size_t n = test_quick() ? 1 << 14 : 1 << 18, dim = 32;
    for (int kind = 0; kind <= LINATTN_RANDOM_ORTHOGONAL; kind++) {
        float *x = projection(seed, kind, n / dim, dim);
        for (size_t i = 0; i < COUNT_OF(others); i++) {
            float *y = projection(others[i], kind, n / dim, dim);
            check_uncorrelated(x, y, n, kind_names[kind]);
            check_uncorrelated(x, y + 1, n - 1, kind_names[kind]);
            check_uncorrelated(x + 1, y, n - 1, kind_names[kind]);
        }
    }
    /* The same element of seeds that count up. */
    float *first = pool_floats(n);
    for (size_t i = 0; i < n; i++) fill(i, LINATTN_RANDOM_INDEPENDENT, 1, 1, first + i);
    check_normal(first, n, "first numbers of seeds that count");
    check_uncorrelated(first, first + 1, n - 1, "first numbers of seeds that count");
}

/* ---- Rows ----------------------------------------------------------------------------------- */

static void norms_are_chi_distributed(void **state)
{
    (void)state;
    static const size_t dims[] = {2, 8, 64};
    size_t features = test_quick() ? 1000 : 10000;
    double *square = pool_doubles(features);
    float *standard = pool_floats(features);
    for (size_t i = 0; i < COUNT_OF(dims); i++)
        for (int kind = 0; kind <= LINATTN_RANDOM_ORTHOGONAL; kind++) {
            double dim = (double)dims[i], product = 0;
            float *w = projection(41 + i, kind, features, dims[i]);
            for (size_t f = 0; f < features; f++) {
                square[f] = dot(w + f * dims[i], w + f * dims[i], dims[i]);
                standard[f] = (float)((square[f] - dim) / sqrt(2 * dim));
                if (f) product += (double)standard[f] * (double)standard[f - 1];
            }
            check_mean(product / (double)(features - 1), 0, 1, features - 1,
                       "correlation of the norms of neighbours", kind_names[kind]);
            check_distribution(square, features, chi_square_cdf, dim, kind_names[kind]);
        }
}

/* Returns the largest cosine within a block. */
static double check_orthogonal(const float *w, size_t features, size_t dim, const char *what)
{
    double worst = 0;
    for (size_t first = 0; first < features; first += dim)
        for (size_t i = first; i < features && i < first + dim; i++)
            for (size_t j = first; j < i; j++) {
                const float *a = w + i * dim, *b = w + j * dim;
                double cosine = fabs(dot(a, b, dim)) / (norm(a, dim) * norm(b, dim));
                check(cosine < 1e-6, "%s, %zu x %zu: rows %zu and %zu have cosine %g", what,
                      features, dim, i, j, cosine);
                if (cosine > worst) worst = cosine;
            }
    return worst;
}

/* Both orthogonal kinds; the second has the first one's directions and the root of dim for norm. */
static void check_blocks(uint64_t seed, size_t features, size_t dim)
{
    size_t mark = pool_mark();
    float *w = projection(seed, LINATTN_RANDOM_ORTHOGONAL, features, dim);
    float *unit = projection(seed, LINATTN_RANDOM_ORTHOGONAL_UNIT, features, dim);
    double root = sqrt((double)dim);
    check_orthogonal(w, features, dim, "orthogonal");
    check_orthogonal(unit, features, dim, "unit");
    for (size_t f = 0; f < features; f++) {
        const float *a = w + f * dim, *b = unit + f * dim;
        double length = norm(a, dim);
        check(fabs(norm(b, dim) / root - 1) < 1e-6, "row %zu of %zu x %zu has norm %.9g", f,
              features, dim, norm(b, dim));
        for (size_t i = 0; i < dim; i++)
            check(fabs((double)a[i] / length - (double)b[i] / root) < 2e-7,
                  "row %zu of %zu x %zu: element %zu of %g and %g", f, features, dim, i,
                  (double)a[i], (double)b[i]);
    }
    pool_release(mark);
}

/* Around 8 partial sums, batches of 32 rows and 256 columns; whole, partial and several blocks. */
static void rows_are_orthogonal(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {
        {1, 1},   {9, 1},    {2, 2},     {7, 2},     {3, 3},     {11, 3},    {16, 5},    {7, 7},
        {8, 8},   {30, 9},   {31, 31},   {32, 32},   {33, 33},   {66, 33},   {64, 64},   {100, 64},
        {65, 65}, {1, 100},  {100, 100}, {40, 255},  {40, 256},  {40, 257},  {128, 128}, {300, 129},
        {3, 600}, {33, 513}, {256, 64},  {1024, 20}, {257, 257}, {512, 512},
    };
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (!test_quick() || sizes[i][0] * sizes[i][1] < 20000)
            check_blocks(51 + i, sizes[i][0], sizes[i][1]);
}

/* One seed in some hundreds draws a row of which the earlier ones leave next to nothing. */
static void rows_are_orthogonal_for_every_seed(void **state)
{
    (void)state;
    size_t seeds = test_quick() ? 2000 : 50000;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        check_blocks(seed, 2, 2);
        check_blocks(seed, 5, 3);
        check_blocks(seed, 6, 6);
    }
}

/* ---- Directions ----------------------------------------------------------------------------- */

static double determinant(const float *m)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, k = (i + 2) % 3;
        sum += (double)m[i] *
               ((double)m[3 + j] * (double)m[6 + k] - (double)m[3 + k] * (double)m[6 + j]);
    }
    return sum;
}

/* Haar measure on 3 x 3 matrices, scaled here by the root of 3. Every element is uniform
   (Archimedes: so is each coordinate on a sphere), both orientations are as likely, and the trace
   has moments 0 and 1, which a Q factor whose signs are not set right does not have. */
static void directions_are_uniform(void **state)
{
    (void)state;
    size_t seeds = test_quick() ? 3000 : 50000;
    double *element[18], product[18] = {0}, trace = 0, trace_square = 0, orientation = 0, both = 0;
    for (size_t e = 0; e < 18; e++) element[e] = pool_doubles(seeds);
    for (size_t seed = 0; seed < seeds; seed++) {
        float w[18];
        fill(seed, LINATTN_RANDOM_ORTHOGONAL_UNIT, 6, 3, w);
        double t = (double)(w[0] + w[4] + w[8]) / sqrt(3), n = (double)seeds;
        trace += t / n;
        trace_square += t * t / n;
        orientation += (determinant(w) > 0 ? 1 : -1) / n;
        both += (determinant(w) > 0) == (determinant(w + 9) > 0) ? 1 / n : -1 / n;
        for (size_t e = 0; e < 18; e++) {
            element[e][seed] = (double)w[e];
            product[e] += (double)w[e] * (double)w[(e + 4) % 18] / n;
        }
    }
    check_mean(orientation, 0, 1, seeds, "mean", "orientation");
    check_mean(both, 0, 1, seeds, "correlation", "orientations of two blocks");
    check_mean(trace, 0, 1, seeds, "mean", "trace");
    check_mean(trace_square, 1, sqrt(2), seeds, "variance", "trace");
    for (size_t e = 0; e < 18; e++) {
        check_mean(product[e], 0, sqrt(1.2), seeds, "correlation", "elements");
        check_distribution(element[e], seeds, uniform_cdf, sqrt(3), "element");
    }
}

/* ---- What they are for ---------------------------------------------------------------------- */

/* phi(q).phi(k) / e^(q.k) of plain favor is the mean over the rows w of e^(w.z) / e^(|z|^2 / 2),
   z = q + k, and should be 1. */
enum { EST_DIM = 16, EST_MOST = 40 };

/* 0F1(dim / 2; x / 4), the mean of e^(u.z) over all u of one length, x = |u|^2 |z|^2. */
static double mean_over_sphere(double x)
{
    double term = 1, total = 0;
    for (int n = 0; n < 200; n++) {
        total += term;
        term *= 0.25 * x / ((n + 1) * (0.5 * EST_DIM + n));
    }
    return total;
}

/* 1F1(dim; dim / 2; x / 2): the same over |u|^2 of chi-square distribution, 2 dim degrees. */
static double mean_over_two_rows(double x)
{
    double term = 1, total = 0;
    for (int n = 0; n < 200; n++) {
        total += term;
        term *= 0.5 * x * (EST_DIM + n) / ((n + 1) * (0.5 * EST_DIM + n));
    }
    return total;
}

/* Mean and variance of the estimate. Its square is a mean over pairs of rows: of one row with
   itself, of two rows that are independent, and of two orthogonal ones, a and b, where a + b has
   a uniform direction and the length of the root of |a|^2 + |b|^2. */
static void expectations(int kind, size_t rows, double square, double *mean, double *variance)
{
    double n = (double)rows, orthogonal = 0, weight = exp(-0.5 * square), itself, two;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < rows; j++) orthogonal += i != j && i / EST_DIM == j / EST_DIM;
    if (kind == LINATTN_RANDOM_ORTHOGONAL_UNIT) {
        *mean = mean_over_sphere(EST_DIM * square) * weight;
        itself = mean_over_sphere(4 * EST_DIM * square) * weight * weight;
        two = mean_over_sphere(2 * EST_DIM * square) * weight * weight;
    } else {
        *mean = 1;
        itself = exp(square);
        two = kind ? mean_over_two_rows(square) * weight * weight : 1;
    }
    double independent = n * n - n - orthogonal;
    *variance = (n * itself + orthogonal * two + independent * *mean * *mean) / (n * n);
    *variance -= *mean * *mean;
}

/* The variance over seeds, after checks of it and of the mean. */
static double check_estimates(int kind, size_t rows, const float *z, size_t seeds)
{
    double square = dot(z, z, EST_DIM), mean, variance, m1 = 0, m2 = 0, m4 = 0;
    expectations(kind, rows, square, &mean, &variance);
    for (size_t seed = 0; seed < seeds; seed++) {
        float w[EST_MOST * EST_DIM];
        double value = 0;
        fill(seed, kind, rows, EST_DIM, w);
        for (size_t f = 0; f < rows; f++)
            value += exp(dot(w + f * EST_DIM, z, EST_DIM) - 0.5 * square) / (double)rows;
        double error = value - mean;
        m1 += error / (double)seeds;
        m2 += error * error / (double)seeds;
        m4 += error * error * error * error / (double)seeds;
    }
    check_mean(m1, 0, sqrt(m2), seeds, "mean error", kind_names[kind]);
    check_mean(m2, variance, sqrt(m4 - m2 * m2), seeds, "variance", kind_names[kind]);
    return m2;
}

/* Orthogonal rows lower the variance (Choromanski et al. 2021, theorem 2); unit norms, which add a
   bias, lower it further. */
static void estimates_of_exp(void **state)
{
    (void)state;
    static const size_t counts[] = {5, EST_DIM, EST_MOST};
    rng r = {61};
    size_t seeds = test_quick() ? 1000 : 8000;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        float z[EST_DIM];
        double variance[LINATTN_RANDOM_COUNT];
        rng_fill(&r, z, EST_DIM, 1);
        double length = norm(z, EST_DIM);
        for (int f = 0; f < EST_DIM; f++) z[f] = (float)((double)z[f] / length);
        for (int kind = 0; kind < LINATTN_RANDOM_COUNT; kind++)
            variance[kind] = check_estimates(kind, counts[i], z, seeds);
        if (test_quick()) continue; /* too few seeds to tell them apart without the formulas */
        if (counts[i] < EST_DIM) continue;
        check(variance[1] < 0.9 * variance[0], "%zu rows: orthogonal %g, independent %g", counts[i],
              variance[1], variance[0]);
        check(variance[2] < 0.9 * variance[1], "%zu rows: unit %g, orthogonal %g", counts[i],
              variance[2], variance[1]);
    }
}

/* ---- Bits ----------------------------------------------------------------------------------- */

static void more_features_append_rows(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 2, 5, 17, 40};
    for (size_t i = 0; i < COUNT_OF(dims); i++)
        for (int kind = 0; kind < LINATTN_RANDOM_COUNT; kind++) {
            size_t dim = dims[i], most = 3 * dim + 2;
            float *all = projection(71, kind, most, dim);
            for (size_t features = 1; features < most; features++) {
                size_t mark = pool_mark();
                check_same_floats(projection(71, kind, features, dim), all, features * dim, dim,
                                  "%s, %zu of %zu rows", kind_names[kind], features, most);
                pool_release(mark);
            }
        }
}

/* At the edges of pages, and at every alignment that a float may have. */
static void only_the_projection_is_written(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1}, {3, 2}, {2, 3}, {20, 7}, {70, 33}, {5, 300}, {9, 64}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (int kind = 0; kind < LINATTN_RANDOM_COUNT; kind++) {
            size_t mark = pool_mark(), dim = sizes[i][1], count = sizes[i][0] * dim;
            float *expected = projection(81, kind, sizes[i][0], dim);
            for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++) {
                float *w = (float *)pool_take_guarded(count * sizeof *w, (guard)side);
                fill(81, kind, sizes[i][0], dim, w);
                check_same_floats(w, expected, count, dim, "side %d", side);
            }
            for (size_t offset = 1; offset < 16; offset++) {
                float *w = pool_floats(count + 32), *other = pool_floats(count + 32);
                memcpy(other + offset, expected, count * sizeof *w);
                fill(81, kind, sizes[i][0], dim, w + offset);
                check_same_bytes(w, other, (count + 32) * sizeof *w, "offset %zu", offset);
            }
            pool_release(mark);
        }
}

static void floating_point_environment(void **state)
{
    (void)state;
    for (int kind = 0; kind < LINATTN_RANDOM_COUNT; kind++) {
        float *expected = projection(91, kind, 70, 40), *w = pool_floats(70 * 40);
        for (size_t i = 0; i < fp_hostile_count(); i++) {
            const char *name;
            fp_set_control(fp_hostile(i, &name));
            uint64_t before = fp_control();
            linattn_status status =
                linattn_random_features(91, (linattn_random_kind)kind, 70, 40, w);
            uint64_t after = fp_control();
            linattn_status refused = linattn_random_features(91, LINATTN_RANDOM_COUNT, 70, 40, w);
            uint64_t last = fp_control();
            fp_set_control(fp_ieee);
            check_status(status, LINATTN_OK, "%s", name);
            check_status(refused, LINATTN_ERROR_CONFIG, "%s", name);
            check(after == before && last == before, "%s: %x, then %x and %x", name,
                  (unsigned)before, (unsigned)after, (unsigned)last);
            check_same_floats(w, expected, 70 * 40, 40, "%s, %s", kind_names[kind], name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_arguments),
        TEST(largest_sizes),
        TEST(every_quantile),
        TEST(numbers_are_normal),
        TEST(numbers_are_uncorrelated),
        TEST(seeds_are_independent),
        TEST(norms_are_chi_distributed),
        TEST(rows_are_orthogonal),
        TEST(rows_are_orthogonal_for_every_seed),
        TEST(directions_are_uniform),
        TEST(estimates_of_exp),
        TEST(more_features_append_rows),
        TEST(only_the_projection_is_written),
        TEST(floating_point_environment),
    };
    test_begin();
    return RUN_TESTS("random", tests);
}
