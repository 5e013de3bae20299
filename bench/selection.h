/* What is to run, beside Google Benchmark's filter. The shapes and lengths are what to go through;
   not all of their combinations are wanted, unless the user gave them. */
#ifndef LINATTN_BENCH_SELECTION_H
#define LINATTN_BENCH_SELECTION_H

#include "bench.h"

typedef struct shape {
    size_t d, dv; /* lengths of a key and of a value */
} shape;

/* A map with its parameter, and a shape of it. */
typedef struct method {
    linattn_feature_map map;
    size_t parameter;
    shape shape;
} method;

typedef struct selection {
    bool full;  /* all maps, shapes and lengths, else a sample */
    bool check; /* a wrong result is a failure */
    bool given; /* some of the following were: all combinations are wanted */
    shape shapes[32];
    size_t shape_count;
    size_t n[32];
    size_t n_count;
    unsigned maps, isas; /* sets, as in 1u << isa */
    unsigned rules;      /* a set of rules.h's */
} selection;

enum {
    usual_length = 4096,
    short_length = 1024,   /* what is in the caches, */
    long_length = 1048576, /* and what is not */
    scalar_length = 64,    /* scalar code is 8 to 60 times slower */
    longest_exact = 16384, /* exact attention takes n * n */
};

/* What was not given beside something that was is the usual. */
void selection_fill(selection *s);

/* The i-th of all maps on all shapes: sets the map, its parameter and the shape. False after the
   last. Maps with a parameter have shapes of their own, unless the user gave some. */
bool selection_case(const selection *s, size_t i, bench *b);

bool selection_wants(const selection *s, const bench *b);
bool selection_wants_array(const selection *s, linattn_isa isa, linattn_feature_map map, size_t n);

/* Where a sample of the shapes will do. */
bool selection_samples(const selection *s, const bench *b);

/* The best instruction set of the selection. */
linattn_isa selection_best(const selection *s);

#endif
