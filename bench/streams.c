/* What tools/streams runs: the error of sums against double precision, after as many tokens as a
   stream has in days.

       streams cases                  the names of all cases
       streams run CASE TOKENS        after 10^4, 10^5, ... tokens, up to so many, a line of
                                      "tokens plain compensated": the largest error of an output,
                                      relative to its row's largest element */
#define LINATTN_IMPLEMENTATION
#define LINATTN_STATIC
#define LINATTN_NO_WINDOW
#define LINATTN_NO_EXACT
#define LINATTN_NO_MAPS
#define LINATTN_NO_HALF
#include "linattn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

enum { DIM = 4, ROWS = 16, MOST = ROWS, CALL = 4096, QUERIES = 16 }; /* taylor has 15 features */

/* 1 - decay is a power of two, but for 0.99. Maps that take any sign have random tokens of any. */
typedef struct stream {
    const char *name;
    linattn_feature_map map;
    linattn_rule rule;
    float decay;
    int constant, positive; /* one token again and again; coordinates of keys and queries >= 0 */
} stream;

#define BOTH(name, map, rule, decay, positive)                                                     \
    {name "/random", LINATTN_MAP_##map, LINATTN_RULE_##rule, decay, 0, positive},                  \
    {                                                                                              \
        name "/constant", LINATTN_MAP_##map, LINATTN_RULE_##rule, decay, 1, positive               \
    }

static const stream streams[] = {
    BOTH("elu1", ELU1, SUM, 1, 0),
    BOTH("identity", IDENTITY, SUM, 1, 1), /* whose sum of features is not to cancel */
    BOTH("relu", RELU, SUM, 1, 0),
    BOTH("exp", EXP, SUM, 1, 0),
    BOTH("softmax", SOFTMAX, SUM, 1, 0),
    BOTH("favor", FAVOR, SUM, 1, 0),
    BOTH("taylor", TAYLOR, SUM, 1, 0),
    BOTH("gated-1", ELU1, GATED, 1, 0),
    BOTH("gated-24", ELU1, GATED, 1 - 0x1p-24f, 0),
    BOTH("gated-20", ELU1, GATED, 1 - 0x1p-20f, 0),
    BOTH("gated-16", ELU1, GATED, 1 - 0x1p-16f, 0),
    BOTH("gated-0.99", ELU1, GATED, 0.99f, 0),
    BOTH("mlstm-1", IDENTITY, MLSTM, 1, 1),
    BOTH("mlstm-20", IDENTITY, MLSTM, 1 - 0x1p-20f, 1),
};

enum { STREAMS = sizeof streams / sizeof streams[0] };

/* A call's tokens, and what they are to the oracle. */
typedef struct block {
    float k[CALL][DIM], v[CALL][DIM], input[CALL];
    double phi[CALL][MOST];
} block;

/* The sums of phi(k) v^T and of phi(k), in double. */
typedef struct oracle {
    double s[MOST][DIM], z[MOST];
    size_t tokens;
} oracle;

static float projection[ROWS][DIM];
static float queries[QUERIES][DIM];

static void check(linattn_status status)
{
    if (status == LINATTN_OK) return;
    fprintf(stderr, "streams: %s\n", linattn_status_string(status));
    exit(1);
}

/* Uniform in [0, 1): xorshift64*, whose period no stream reaches. */
static float uniform(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    return (float)((x * 2685821657736338717u) >> 40) * 0x1p-24f;
}

static float coordinate(const stream *p) { return p->positive ? uniform() : 2 * uniform() - 1; }

/* ---- The oracle ------------------------------------------------------------------------------ */

static linattn_config config_of(const stream *p)
{
    linattn_config config = {.dim_key = DIM, .map = p->map, .rule = p->rule};
    if (p->map == LINATTN_MAP_FAVOR) {
        config.features = ROWS;
        config.projection = *projection;
    }
    return config;
}

/* bench/oracle.h runs whole sequences: of it, the features. */
static oracle_problem problem_of(const stream *p)
{
    return (oracle_problem){.d = DIM, .map = p->map, .features = ROWS, .projection = *projection};
}

static size_t features_of(const stream *p)
{
    const oracle_problem of = problem_of(p);
    return oracle_feature_count(&of);
}

static void oracle_add(const stream *p, oracle *sums, const block *b, size_t n)
{
    const size_t m = features_of(p);
    for (size_t t = 0; t < n; t++)
        for (size_t f = 0; f < m; f++) {
            sums->z[f] = p->decay * sums->z[f] + b->phi[t][f];
            for (int c = 0; c < DIM; c++)
                sums->s[f][c] = p->decay * sums->s[f][c] + b->phi[t][f] * (double)b->v[t][c];
        }
    sums->tokens += n;
}

/* Divided by the sum under SUM, feature by feature for softmax; by nothing under GATED; by no less
   than 1 under MLSTM. */
static void oracle_query(const stream *p, const oracle *sums, const float *query, double *out)
{
    const oracle_problem of = problem_of(p);
    const size_t m = features_of(p);
    double phi[MOST], den = 0;
    oracle_features(&of, false, query, phi);
    for (size_t f = 0; f < m; f++) {
        den += phi[f] * sums->z[f];
        if (p->map == LINATTN_MAP_SOFTMAX) phi[f] /= sums->z[f];
    }
    if (p->rule == LINATTN_RULE_GATED || p->map == LINATTN_MAP_SOFTMAX) den = 1;
    if (p->rule == LINATTN_RULE_MLSTM) den = fmax(fabs(den), 1);
    for (int c = 0; c < DIM; c++) {
        out[c] = 0;
        for (size_t f = 0; f < m; f++) out[c] += phi[f] * sums->s[f][c] / den;
    }
}

/* ---- The stream ------------------------------------------------------------------------------ */

/* The next tokens; the same again where they are all one. */
static void fill(const stream *p, block *b)
{
    const oracle_problem of = problem_of(p);
    const size_t m = features_of(p);
    for (size_t t = 0; t < CALL; t++) {
        for (int i = 0; i < DIM; i++) {
            b->k[t][i] = p->constant && t ? b->k[0][i] : coordinate(p);
            b->v[t][i] = p->constant && t ? b->v[0][i] : uniform();
        }
        b->input[t] = p->constant && t ? b->input[0] : 2 * uniform() - 1;
        oracle_features(&of, true, b->k[t], b->phi[t]);
        for (size_t f = 0; f < m && p->rule == LINATTN_RULE_MLSTM; f++)
            b->phi[t][f] *= exp(b->input[t]);
    }
}

static void *empty_state(const stream *p, linattn_precision precision)
{
    linattn_config config = config_of(p);
    config.precision = precision;
    const size_t bytes = linattn_state_size(&config);
    void *state = malloc(bytes ? bytes : 1);
    if (!state) {
        fprintf(stderr, "streams: not enough memory\n");
        exit(1);
    }
    check(linattn_state_init(&config, state, bytes));
    return state;
}

static void add(const stream *p, void *state, const block *b, size_t n)
{
    const linattn_view k = linattn_rows(*b->k), v = linattn_rows(*b->v);
    linattn_gates gates = {0};
    if (p->rule == LINATTN_RULE_SUM) {
        check(linattn_update(state, k, v, n, NULL));
        return;
    }
    gates.decay = linattn_rows(&p->decay);
    gates.decay_fixed = 1;
    if (p->rule == LINATTN_RULE_MLSTM) gates.input = linattn_rows(b->input);
    check(linattn_recurrent(state, (linattn_view){0}, k, v, &gates, (linattn_output){0}, n, NULL));
}

static double error(const stream *p, const oracle *sums, const void *state)
{
    float out[QUERIES][DIM];
    double worst = 0;
    check(linattn_query(state, linattn_rows(*queries), linattn_output_rows(*out), QUERIES, NULL));
    for (int i = 0; i < QUERIES; i++) {
        double expected[DIM], most = 0, away = 0;
        oracle_query(p, sums, queries[i], expected);
        for (int c = 0; c < DIM; c++) {
            most = fmax(most, fabs(expected[c]));
            away = fmax(away, fabs(expected[c] - (double)out[i][c]));
        }
        if (!(away / most <= worst)) worst = away / most; /* what is not a number, too */
    }
    return worst;
}

static void run(const stream *p, size_t tokens)
{
    static block b;
    static oracle sums;
    void *plain = empty_state(p, LINATTN_PRECISION_PLAIN);
    void *compensated = empty_state(p, LINATTN_PRECISION_COMPENSATED);
    for (int i = 0; i < QUERIES * DIM; i++) queries[i / DIM][i % DIM] = coordinate(p);
    fill(p, &b);
    for (size_t report = 10000; sums.tokens < tokens;) {
        const size_t left = (report < tokens ? report : tokens) - sums.tokens;
        const size_t n = left < CALL ? left : CALL;
        oracle_add(p, &sums, &b, n);
        add(p, plain, &b, n);
        add(p, compensated, &b, n);
        if (n == left)
            printf("%zu %.2g %.2g\n", sums.tokens, error(p, &sums, plain),
                   error(p, &sums, compensated));
        if (sums.tokens == report) report *= 10;
        if (!p->constant) fill(p, &b);
    }
    free(plain);
    free(compensated);
}

int main(int argc, char **argv)
{
    const size_t tokens = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    check(linattn_random_features(1, LINATTN_RANDOM_ORTHOGONAL, ROWS, DIM, *projection));
    if (argc == 2 && strcmp(argv[1], "cases") == 0) {
        for (int i = 0; i < STREAMS; i++) puts(streams[i].name);
        return 0;
    }
    for (int i = 0; i < STREAMS && tokens && strcmp(argv[1], "run") == 0; i++)
        if (strcmp(argv[2], streams[i].name) == 0) {
            run(&streams[i], tokens);
            return 0;
        }
    fprintf(stderr, "usage: streams cases | streams run CASE TOKENS\n");
    return 1;
}
