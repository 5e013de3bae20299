/* The library under test, as a table of its verbs. library.c is compiled once for each way to
   compile it that is measured; all benchmarks take the public verbs from here, as a user calls
   them, and across the border of a file. */
#ifndef LINATTN_BENCH_LIBRARY_H
#define LINATTN_BENCH_LIBRARY_H

#include "linattn.h"

/* What the reports' heads say of it. */
#define LIBRARY_TEXT(x) #x
#define LIBRARY_NUMBERS(major, minor, patch)                                                       \
    LIBRARY_TEXT(major) "." LIBRARY_TEXT(minor) "." LIBRARY_TEXT(patch)
#define LIBRARY_VERSION                                                                            \
    LIBRARY_NUMBERS(LINATTN_VERSION_MAJOR, LINATTN_VERSION_MINOR, LINATTN_VERSION_PATCH)
#if defined(__clang__)
#define LIBRARY_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define LIBRARY_COMPILER "gcc " __VERSION__
#endif

/* A verb that a benchmark needs is a line here. */
#define LIBRARY_VERBS(X)                                                                           \
    X(isa_select)                                                                                  \
    X(state_size)                                                                                  \
    X(state_init)                                                                                  \
    X(workspace_size)                                                                              \
    X(update)                                                                                      \
    X(query)                                                                                       \
    X(causal)                                                                                      \
    X(recurrent)                                                                                   \
    X(merge)                                                                                       \
    X(bidirectional)                                                                               \
    X(softmax)                                                                                     \
    X(nystrom)                                                                                     \
    X(map)                                                                                         \
    X(exp)                                                                                         \
    X(elu1)                                                                                        \
    X(relu)                                                                                        \
    LIBRARY_MANY(X)

#ifdef BENCH_MANY /* where linattn.h has it: see meson.build */
#define LIBRARY_MANY(X) X(causal_many)
#else
#define LIBRARY_MANY(X)
#endif

typedef struct library {
#define LIBRARY_MEMBER(verb) __typeof__(linattn_##verb) *verb;
    LIBRARY_VERBS(LIBRARY_MEMBER)
#undef LIBRARY_MEMBER
    const char *suffix; /* of the instruction set's name */
} library;

/* -O3, which everything is measured with that does not say otherwise, and which has the symbols of
   linattn.h; -O2, as most programs are compiled; with LINATTN_USE_SLEEF. */
extern const library library_o3, library_o2, library_sleef;

#endif
