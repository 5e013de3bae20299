/* program.h: what the example programs share: failure, memory, options, a clock, random numbers,
   roots, threads.  SPDX: MIT

   A program is one file, which names itself and includes this before anything else:

       #define PROGRAM "attend"
       #include "program.h"

   Needs a POSIX C library. Where pthreads are a library of their own (glibc before 2.34), -pthread
   makes PROGRAM_THREADS 1. */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifndef PROGRAM
#error "define PROGRAM, the program's name, before this inclusion"
#endif
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* POSIX under -std=c99 too */
#endif

#include "../linattn.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if !defined(__GLIBC__) || defined(_REENTRANT)
#define PROGRAM_THREADS 1
#elif __GLIBC_PREREQ(2, 34)
#define PROGRAM_THREADS 1
#else
#define PROGRAM_THREADS 0
#endif
#if PROGRAM_THREADS
#include <pthread.h>
#endif

#ifdef __GNUC__
#define PROGRAM_FAILS __attribute__((noreturn, format(printf, 1, 2)))
#else
#define PROGRAM_FAILS
#endif

/* ---- Failure and memory --------------------------------------------------------------------- */

/* A program of many processes defines another way to say why it ends. */
#ifndef PROGRAM_REPORT
#define PROGRAM_REPORT(line) fprintf(stderr, PROGRAM ": %s\n", line)
#endif

/* One line on stderr, whatever names and file contents are quoted in it; then exit status 2. */
PROGRAM_FAILS static inline void fail(const char *format, ...)
{
    char begin[1024], *whole = NULL;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    size_t bytes = (size_t)vsnprintf(begin, sizeof begin, format, arguments) + 1;
    if (bytes > sizeof begin && (whole = malloc(bytes))) { /* a long path comes before the reason */
        vsnprintf(whole, bytes, format, again);
    }
    va_end(again);
    va_end(arguments);
    char *line = whole ? whole : begin;
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 127) {
            *c = '?';
        }
    }
    PROGRAM_REPORT(line);
    exit(2);
}

static inline void require(linattn_status status, const char *what)
{
    if (status != LINATTN_OK) {
        fail("%s: %s", what, linattn_status_string(status));
    }
}

/* Aligned to a cache line: values that straddle lines cost some speed. */
static inline void *allocate(size_t bytes)
{
    const size_t line = 64;
    void *memory;
    if (posix_memalign(&memory, line, bytes ? bytes : 1) != 0) {
        fail("out of memory: %zu bytes are needed", bytes);
    }
    return memory;
}

/* At the end of a program that printed something: a full disk is a failure, too. */
static inline void finish_printing(void)
{
    if (fflush(stdout) == EOF || ferror(stdout)) {
        fail("standard output: cannot be written: %s", strerror(errno));
    }
}

/* ---- Options -------------------------------------------------------------------------------- */

/* The names of a program's options, as an enum of its own counts them: those with a value, then
   from `first_flag` on those without, --help last. `text` is what was given: the value, "" for a
   flag, NULL for nothing. */
enum { MAX_OPTIONS = 64 };
typedef struct options {
    const char *const *names;
    int count, first_flag;
    const char *help;
    const char *text[MAX_OPTIONS];
} options;

static inline int option_named(const options *given, const char *text, size_t length)
{
    int i = 0;
    while (i < given->count &&
           !(strlen(given->names[i]) == length && memcmp(given->names[i], text, length) == 0)) {
        i++;
    }
    return i;
}

static inline int is_short_help(const char *text) { return strcmp(text, "-h") == 0; }

/* For programs whose first argument is a file, unless an option comes first. */
static inline int begins_with_file(int count, char **arguments)
{
    return count > 1 && strncmp(arguments[1], "--", 2) != 0 && !is_short_help(arguments[1]);
}

/* The value of option o: behind the '=' at `text`, or the argument behind *i, which moves on. */
static inline const char *option_value(const options *given, int o, const char *text, int *i,
                                       int count, char **arguments)
{
    const char *value = *text ? text + 1 : NULL;
    if (o >= given->first_flag) {
        if (value) {
            fail("%s takes no value", given->names[o]);
        }
        return "";
    }
    const char *next = *i + 1 < count ? arguments[*i + 1] : NULL;
    if (!value && next) {
        if (strncmp(next, "--", 2) == 0) {
            fail("%s needs a value, see --help; one that begins with -- goes behind =: %s=%s",
                 given->names[o], given->names[o], next);
        }
        value = next;
        ++*i;
    }
    if (!value || !*value) {
        fail("%s needs a value, see --help", given->names[o]);
    }
    return value;
}

/* Takes `--name value` and `--name=value`. With --help or -h prints that, and ends the program. */
static inline void read_options(options *given, int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        const char *text = arguments[i];
        size_t length = strcspn(text, "=");
        int o = is_short_help(text) ? given->count - 1 : option_named(given, text, length);
        if (o == given->count) {
            fail("unknown option '%s', see --help", text);
        }
        if (given->text[o]) {
            fail("%s is given twice", given->names[o]);
        }
        given->text[o] = option_value(given, o, text + length, &i, count, arguments);
        if (o == given->count - 1) {
            fputs(given->help, stdout);
            finish_printing();
            exit(0);
        }
    }
}

/* Reads decimal digits and moves on behind them; 0 if there are none, or too many for the type. */
static inline int read_whole(const char **at, uint64_t *value)
{
    const char *c = *at;
    *value = 0;
    for (; *c >= '0' && *c <= '9'; c++) {
        unsigned digit = (unsigned)(*c - '0');
        if (*value > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        *value = *value * 10 + digit;
    }
    int any = c != *at;
    *at = c;
    return any;
}

static inline int read_size(const char **at, size_t *value)
{
    uint64_t whole;
    int legal = read_whole(at, &whole) && whole <= SIZE_MAX;
    *value = legal ? (size_t)whole : 0;
    return legal;
}

/* The option's number, or `absent` if it is not given. */
static inline uint64_t whole_option(const options *given, int o, uint64_t least, uint64_t most,
                                    uint64_t absent)
{
    const char *text = given->text[o], *at = text;
    uint64_t value = absent;
    if (text && (!read_whole(&at, &value) || *at || value < least || value > most)) {
        fail("%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64, given->names[o], text,
             least, most);
    }
    return value;
}

/* 1 or more; 0, which the library takes for its default, if it is not given. */
static inline size_t size_option(const options *given, int o, size_t most)
{
    return (size_t)whole_option(given, o, 1, most, 0);
}

/* A positive number, or zero where that is allowed: but a number that is too small for a float is
   not zero, and is refused as one that is too large. */
static inline float float_option(const options *given, int o, int zero_allowed, float absent)
{
    const char *text = given->text[o];
    char *end;
    if (!text) {
        return absent;
    }
    /* strtod alone would also take inf, nan, hexadecimals and leading blanks. */
    int decimal = text[strspn(text, "0123456789.eE+-")] == '\0';
    char digit = text[strcspn(text, "123456789eE")];
    int zero = digit < '1' || digit > '9';
    double x = strtod(text, &end);
    if (decimal && !*end && zero && zero_allowed) {
        return 0;
    }
    if (!decimal || *end || !(x >= FLT_MIN && x <= FLT_MAX)) {
        fail("%s: '%s' is not a number from %.3g to %.3g%s", given->names[o], text, (double)FLT_MIN,
             (double)FLT_MAX, zero_allowed ? ", or 0" : "");
    }
    return (float)x;
}

typedef struct name_list {
    char text[128];
} name_list;

/* Those of the names that are in the set; gaps are NULL. */
static inline name_list list_names(const char *const *names, int count, unsigned set)
{
    name_list list = {""};
    for (int i = 0; i < count; i++) {
        if (names[i] && (set >> i & 1)) {
            size_t used = strlen(list.text);
            snprintf(list.text + used, sizeof list.text - used, "%s%s", used ? ", " : "", names[i]);
        }
    }
    return list;
}

/* The index of the option's value among the names, 0 if it is not given. */
static inline int name_option(const options *given, int o, const char *const *names, int count)
{
    const char *text = given->text[o];
    for (int i = 0; text && i < count; i++) {
        if (names[i] && strcmp(names[i], text) == 0) {
            return i;
        }
    }
    if (text) {
        fail("%s: unknown name '%s', expected one of: %s", given->names[o], text,
             list_names(names, count, ~0u).text);
    }
    return 0;
}

/* For --help: what linattn_isa_name() calls them, in its order. */
#define ISA_NAMES "auto (default), scalar, neon, avx2, avx512, simd128, relaxed, sse2"

/* The option's instruction set, or LINATTN_ISA_COUNT for `more`, a name besides, if not NULL. Those
   that there are go into `names`. */
static inline int isa_option(const options *given, int o, const char *more,
                             const char *names[LINATTN_ISA_COUNT + 1])
{
    for (int i = 0; i < LINATTN_ISA_COUNT; i++) {
        names[i] = linattn_isa_name((linattn_isa)i);
    }
    names[LINATTN_ISA_COUNT] = more;
    return name_option(given, o, names, LINATTN_ISA_COUNT + 1);
}

static inline void select_isa(const options *given, int o)
{
    const char *names[LINATTN_ISA_COUNT + 1];
    int isa = isa_option(given, o, NULL, names);
    if (linattn_isa_select((linattn_isa)isa) != LINATTN_OK) {
        fail("%s: this CPU or this build lacks %s, available: %s", given->names[o], names[isa],
             list_names(names, LINATTN_ISA_COUNT, linattn_isa_available()).text);
    }
}

/* ---- Clock and numbers ---------------------------------------------------------------------- */

static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Moves on over so many numbers. */
static inline void skip_random(uint64_t *state, uint64_t count)
{
    *state += count * 0x9e3779b97f4a7c15;
}

/* SplitMix64 (Steele, Lea, Flood 2014): the same numbers everywhere. *state begins as any seed. */
static inline uint64_t random_bits(uint64_t *state)
{
    skip_random(state, 1);
    uint64_t x = *state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* From 0 to below 1; every value is a float. */
static inline float random_float(uint64_t *state)
{
    return (float)(random_bits(state) >> 40) * 0x1p-24f;
}

/* By Heron's rule, from above: the C library's own needs -lm. nan and inf are their own roots. */
static inline double square_root(double x)
{
    double y = x > 1 ? x : 1;
    if (!(x > 0 && x <= DBL_MAX)) {
        return x;
    }
    for (double next = (y + x / y) / 2; next < y; next = (y + x / y) / 2) {
        y = next;
    }
    return y;
}

/* ---- Threads -------------------------------------------------------------------------------- */

enum { MAX_THREADS = 256 };

static inline size_t read_threads(const options *given, int o)
{
    size_t threads = (size_t)whole_option(given, o, 1, MAX_THREADS, 1);
    if (threads > 1 && !PROGRAM_THREADS) {
        fail("%s: this build has none, compile it with -pthread", given->names[o]);
    }
    return threads;
}

#if PROGRAM_THREADS
/* Threads that wait for jobs, which they and the caller take one by one. */
typedef struct thread_pool {
    pthread_mutex_t lock; /* over all that follows */
    pthread_cond_t begun, ended;
    linattn_job *job;
    void *arg;
    size_t next, count, running; /* jobs next to count - 1 are still to be taken */
    int closed;
    size_t threads; /* beside the caller's */
    pthread_t thread[MAX_THREADS];
} thread_pool;

/* Takes one job, with the lock held before and after. */
static inline void run_next_job(thread_pool *pool)
{
    size_t index = pool->next++;
    pool->running++;
    pthread_mutex_unlock(&pool->lock);
    pool->job(pool->arg, index);
    pthread_mutex_lock(&pool->lock);
    if (--pool->running == 0 && pool->next == pool->count) {
        pthread_cond_signal(&pool->ended);
    }
}

static inline void *wait_for_jobs(void *user)
{
    thread_pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    while (!pool->closed) {
        if (pool->next < pool->count) {
            run_next_job(pool);
        } else {
            pthread_cond_wait(&pool->begun, &pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* The callback of linattn_context. */
static inline void pool_parallel_for(void *user, size_t count, linattn_job *job, void *arg)
{
    thread_pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    pool->job = job;
    pool->arg = arg;
    pool->next = 0;
    pool->count = count;
    pthread_cond_broadcast(&pool->begun);
    while (pool->next < pool->count) {
        run_next_job(pool);
    }
    while (pool->running) {
        pthread_cond_wait(&pool->ended, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}
#endif

/* The context of calls with so many threads, the caller's among them. If the system gives fewer,
   these do all the work. */
static inline linattn_context start_threads(size_t threads)
{
    linattn_context context = {0};
#if PROGRAM_THREADS
    if (threads > 1) {
        thread_pool *pool = allocate(sizeof *pool);
        memset(pool, 0, sizeof *pool);
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->begun, NULL);
        pthread_cond_init(&pool->ended, NULL);
        while (pool->threads + 1 < threads &&
               pthread_create(&pool->thread[pool->threads], NULL, wait_for_jobs, pool) == 0) {
            pool->threads++;
        }
        context.parallel_for = pool_parallel_for;
        context.user = pool;
        context.threads = threads;
    }
#else
    (void)threads;
#endif
    return context;
}

static inline void stop_threads(linattn_context *context)
{
#if PROGRAM_THREADS
    thread_pool *pool = context->user;
    if (pool) {
        pthread_mutex_lock(&pool->lock);
        pool->closed = 1;
        pthread_cond_broadcast(&pool->begun);
        pthread_mutex_unlock(&pool->lock);
        for (size_t i = 0; i < pool->threads; i++) {
            pthread_join(pool->thread[i], NULL);
        }
        pthread_cond_destroy(&pool->begun);
        pthread_cond_destroy(&pool->ended);
        pthread_mutex_destroy(&pool->lock);
        free(pool);
    }
#endif
    memset(context, 0, sizeof *context);
}

#endif
