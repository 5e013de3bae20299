/* The harness that all benchmarks share. A benchmark is a `bench`: open prepares its operands, call
   is timed. Around every sample of calls the machine's limit is timed, too, and what is reported is
   the median of their ratios: on a shared machine, whose clock and caches are not ours, a ratio of
   neighbours holds where a time does not. */
#ifndef LINATTN_BENCH_BENCH_H
#define LINATTN_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "library.h"
#include "linattn.h"
#include "oracle.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- A benchmark ---------------------------------------------------------------------------- */

/* What the operands are like, or the sums. */
typedef enum variant {
    VARIANT_PLAIN,       /* aligned, each head's tokens dense */
    VARIANT_MISALIGNED,  /* one float beyond an aligned address */
    VARIANT_HEADS,       /* eight heads, interleaved: [tokens][heads][dim] */
    VARIANT_GROUPED,     /* the same of queries, which share the key and value of one head */
    VARIANT_DENORMAL,    /* values whose features and products are denormal, or nearly */
    VARIANT_COMPENSATED, /* operands as plain ones, in sums that do not drift */
    VARIANT_COUNT
} variant;

/* What comes of timing a base by turns with the call. */
typedef enum comparison {
    COMPARE_NOT,
    COMPARE_TIMES,   /* "times": the call's time over the base's, the median over the samples */
    COMPARE_SPEEDUP, /* "speedup": the inverse */
    COMPARE_SHARE    /* "share": the call's median over the base's median, which is "base_ns" */
} comparison;

typedef struct bench bench;

struct bench {
    char name[128];
    const char *(*open)(bench *b); /* NULL, or why this one is skipped */
    void (*call)(bench *b);
    void (*base)(bench *b); /* unless COMPARE_NOT */
    comparison comparison;

    /* What it is, as far as it applies. */
    const library *library; /* NULL: library_o3 */
    linattn_isa isa;
    linattn_feature_map map;
    linattn_rule rule;             /* not SUM: no normaliser */
    linattn_normaliser normaliser; /* DEFAULT: what bench_config says */
    size_t parameter;         /* favor: rows of the projection; taylor, expdef: degree; 0: usual */
    size_t d, dv, n, heads;   /* d: length of a key */
    size_t window, landmarks; /* 0: none */
    linattn_element state_type;
    variant variant;
    size_t threads, chunk;
    bool causal;
    const void *subject; /* what its file runs: a verb, a map or a peer */
    size_t m;            /* features: set by bench_add */

    /* Set before open: of favor, else NULL. */
    const float *projection;

    /* Set by open. */
    void *data;    /* goes when the next benchmark is opened */
    double items;  /* a call's tokens times heads, or elements: ns are per item */
    double flops;  /* of a call; 0: only memory bounds it */
    double bytes;  /* that a call reads and writes at least; a float updated counts twice. Neither
                      flops nor bytes: it has no limit */
    float *memory; /* where these lie: their bandwidth is measured there */
    size_t memory_floats;
    double error; /* the largest against double precision; negative: not measured */
};

/* Registers a copy, which opens nothing: that is done for what passes the filter alone, when its
   turn comes. The name is printf's. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void bench_add(const bench *b, const char *format, ...);

/* The name of a feature map; elu1 is 0. */
const char *bench_map_name(linattn_feature_map map);

/* The same with the map's parameter, as in "favor-256"; until the next call. */
const char *bench_map(const bench *b);

/* The name of the instruction set, with the library's suffix; until the next call. */
const char *bench_by(const bench *b);

/* The config that maps are benchmarked with. The sum of the identity's features cancels, so that
   its quotient means nothing: it takes the normaliser of the paper that it comes from. */
linattn_config bench_config(const bench *b);

/* The largest error of all benchmarks that ran. */
double bench_worst_error(void);

/* Of the benchmarks that were opened. A peer that has no kernel for a shape fails, too. */
typedef struct bench_outcome {
    bool some_ran, some_failed, some_lacked_memory;
} bench_outcome;

bench_outcome bench_what_ran(void);

/* Exits with a message if the library refuses what a benchmark asks for. */
void bench_check(linattn_status status);

/* How long to wait in all, rather than measure, while another program uses the core's other thread.
   Samples that one disturbs nevertheless are left out where enough remain. */
void bench_patience(double seconds);

/* Another version of the library, from a shared object that defines library_o3 and library_o2, to
   be timed by turns with this one in every benchmark of it. NULL, or why not. */
const char *bench_against(const char *file);

/* ---- Memory --------------------------------------------------------------------------------- */

extern const char bench_no_memory[]; /* what open returns where there is not enough */

/* Until the next benchmark is opened; aligned to 64 bytes, cleared. NULL if there is not enough. */
void *bench_take(size_t bytes);
float *bench_floats(size_t count);

/* The same normally distributed numbers for all, aligned to 64 bytes; NULL if there is not enough
   memory. They must not be written, except with the same values. */
float *bench_random(size_t count);

/* Flops of a token's accumulation, or of its read-out, and of the projection of its key or query
   before that. The monomials' own products are not counted. */
double bench_token_flops(const bench *b);

/* Tokens of one attention in the layout of the variant, with views of its first head. */
typedef struct operands {
    linattn_view q, k, v;
    linattn_output out;
    size_t tokens;
} operands;

/* NULL, or why not. */
const char *bench_operands(const bench *b, size_t tokens, operands *x);

/* What the oracle is to solve: the first head's tokens. */
oracle_problem bench_problem(const bench *b, const operands *x, bool causal);

/* An empty state of the benchmark's config, which goes when the next one is opened; or NULL. */
void *bench_state(const bench *b);

/* Floats of a state that come before those of its heads. */
size_t bench_state_header(const bench *b);

/* The bandwidth is to be measured in this state: z, exponents and S of all heads. */
void bench_memory_is_state(bench *b, void *state);

#endif
