/* The harness that all benchmarks share. A benchmark is a `bench`: open prepares its operands, call
   is timed. Around every sample of calls the machine's limit is timed, too, and what is reported is
   the median of their ratios: on a shared machine, whose clock and caches are not ours, a ratio of
   neighbours holds where a time does not. */
#ifndef LINATTN_BENCH_BENCH_H
#define LINATTN_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "linattn.h"
#include "oracle.h"
#include "peak.h"

/* ---- A benchmark ---------------------------------------------------------------------------- */

/* What the operands are like. */
typedef enum variant {
    VARIANT_PLAIN,      /* aligned, each head's tokens dense */
    VARIANT_MISALIGNED, /* one float beyond an aligned address */
    VARIANT_HEADS,      /* eight heads, interleaved: [tokens][heads][dim] */
    VARIANT_DENORMAL,   /* values whose features and products are denormal, or nearly */
    VARIANT_COUNT
} variant;

typedef struct bench bench;

struct bench {
    char name[128];
    const char *(*open)(bench *b); /* NULL, or why this one is skipped */
    void (*call)(bench *b);
    void (*base)(bench *b);   /* timed by turns with call, to compare with; or NULL */
    const char *base_counter; /* how the comparison is called: "times", "speedup" or "overhead" */

    /* What it is, as far as it applies. */
    linattn_isa isa;
    linattn_feature_map map;
    size_t parameter;         /* favor: rows of the projection; taylor, expdef: degree; 0: usual */
    size_t d, dv, n, heads;   /* d: length of a key */
    size_t window, landmarks; /* 0: none */
    variant variant;
    size_t threads, chunk;
    bool causal;
    const void *subject; /* kernel or peer */
    size_t m;            /* features: set by bench_add */

    /* Set before open: of favor, else NULL. */
    const float *projection;

    /* Set by open. */
    void *data;    /* goes when the next benchmark is opened */
    double items;  /* a call's tokens times heads, or elements: ns are per item */
    double flops;  /* of a call; 0: only memory bounds it */
    double bytes;  /* that a call reads and writes at least; a float updated counts twice */
    float *memory; /* where these lie: their bandwidth is measured there */
    size_t memory_floats;
    double error; /* the largest against double precision; negative: not measured */
};

/* Registers a copy. The name is printf's. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void bench_add(const bench *b, const char *format, ...);

/* The name of a feature map; elu1 is 0. */
const char *bench_map_name(linattn_feature_map map);

/* The same with the map's parameter, as in "favor-256"; until the next call. */
const char *bench_map(const bench *b);

/* The config that maps are benchmarked with. The sum of the identity's features cancels, so that
   its quotient means nothing: it takes the normaliser of the paper that it comes from. */
linattn_config bench_config(const bench *b);

/* The largest error of all benchmarks that ran. */
double bench_worst_error(void);

/* Exits with a message if the library refuses what a benchmark asks for. */
void bench_check(linattn_status status);

/* ---- Memory --------------------------------------------------------------------------------- */

/* Until the next benchmark is opened; aligned to 64 bytes, cleared. NULL if there is not enough. */
void *bench_take(size_t bytes);
float *bench_floats(size_t count);

/* The same normally distributed numbers for all, aligned to 64 bytes; NULL if there is not enough
   memory. They must not be written, except with the same values. */
float *bench_random(size_t count);

/* Flops of a token's accumulation, or of its read-out, and of the projection of its key or query
   before that. The monomials' own products are not counted. */
double bench_token_flops(const bench *b);

/* n tokens of one attention in the layout of the variant, with views of its first head. */
typedef struct operands {
    linattn_view q, k, v;
    linattn_output out;
} operands;

/* NULL, or why not. */
const char *bench_operands(const bench *b, operands *x);

/* What the oracle is to solve: the first head's n tokens. */
oracle_problem bench_problem(const bench *b, const operands *x, bool causal);

/* An empty state of the benchmark's config, which goes when the next one is opened; or NULL. */
void *bench_state(const bench *b);

/* The bandwidth is to be measured in this state: z, exponents and S of all heads. */
void bench_memory_is_state(bench *b, void *state);

/* ---- What is registered --------------------------------------------------------------------- */

typedef struct shape {
    size_t d, dv; /* lengths of a key and of a value */
} shape;

/* What to run, beside Google Benchmark's filter. The shapes and lengths are what to go through; not
   all of their combinations are wanted, unless the user gave them. */
typedef struct selection {
    bool full;  /* all maps, shapes and lengths, else a sample */
    bool check; /* a wrong result is a failure */
    bool given; /* some of the following were: all combinations are wanted */
    shape shapes[32];
    size_t shape_count;
    size_t n[32];
    size_t n_count;
    unsigned maps, isas; /* sets, as in 1u << isa */
} selection;

enum {
    bench_usual_length = 4096,
    bench_short_length = 1024,   /* what is in the caches, */
    bench_long_length = 1048576, /* and what is not */
    bench_scalar_length = 64,    /* scalar code is 8 to 60 times slower */
    bench_longest_exact = 16384, /* exact attention takes n * n */
};

/* The i-th of all maps on all shapes: sets the map, its parameter and the shape. False after the
   last. Maps with a parameter have shapes of their own, unless the user gave some. */
bool bench_case(const selection *s, size_t i, bench *b);

bool bench_wanted(const selection *s, const bench *b);
bool bench_wanted_array(const selection *s, linattn_isa isa, linattn_feature_map map, size_t n);

/* Where a sample of the shapes will do. */
bool bench_sampled(const selection *s, const bench *b);

/* The best instruction set of the selection. */
linattn_isa bench_best(const selection *s);

void register_kernels(const selection *s);       /* the library's kernels, by its own list */
void register_kernels_sleef(const selection *s); /* the same with LINATTN_USE_SLEEF */
void register_verbs(const selection *s);
void register_peers(const selection *s);

#endif
