/* attend: linear, exact or Nystrom attention over NumPy files, from the command line.  SPDX: MIT

       cc -O3 examples/attend.c -o attend
       ./attend --dir examples/data/lm --causal --compare
       ./attend --dir examples/data/lm --causal --map exp --out out.npy

   Needs linattn.h and a POSIX C library, nothing else. Where pthreads are a library of their own
   (glibc before 2.34), add -pthread to have --threads. */

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1 /* POSIX under -std=c11 too */
#endif

#define LINATTN_IMPLEMENTATION
#include "../linattn.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#if !defined(__GLIBC__) || defined(_REENTRANT)
#define ATTEND_THREADS 1
#elif __GLIBC_PREREQ(2, 34)
#define ATTEND_THREADS 1
#else
#define ATTEND_THREADS 0
#endif
#if ATTEND_THREADS
#include <pthread.h>
#endif

enum { MAX_THREADS = 256, MAX_DEGREE = 8 };

/* The library's own, where it leaves the choice to the caller or the comparison tells it. */
enum { FEATURES_PER_DIM = 4, DEFAULT_DEGREE = 2, DEFAULT_LANDMARKS = 64 };

static const char help[] =
    "usage: attend (--dir D | --q F --k F --v F) --out F [options]\n"
    "       attend (--dir D | --q F --k F --v F) --compare [options]\n"
    "\n"
    "Reads queries, keys and values, attends, writes the outputs. Files are .npy: float32, little\n"
    "endian, C order, shape (tokens, heads, dim), or (tokens, dim) for one head. Keys and values\n"
    "may have fewer heads than queries: query head h reads head h / (heads / kv_heads). The\n"
    "output has the shape of the queries, with the dimension of the values.\n"
    "\n"
    "  --dir D             read D/q.npy, D/k.npy and D/v.npy\n"
    "  --q F --k F --v F   or each from its own file\n"
    "  --out F             write the outputs here; F changes only when all has succeeded\n"
    "  --causal            token i sees keys 0..i only (default: every query sees every key, and\n"
    "                      there may be more or fewer queries than keys)\n"
    "  --attention KIND    linear (default), softmax: exact attention, or nystrom: Nystromformer\n"
    "  --scale X           multiplies q.k (default: 1 for the maps elu1, identity, relu, exp and\n"
    "                      softmax, 1/sqrt(dim) for the others, exact attention and nystrom)\n"
    "  --split N1,N2,...   work in calls of so many tokens, the last number repeated; same bytes.\n"
    "                      Not with --attention nystrom\n"
    "  --threads T         use T threads, 1 to 256; same bytes\n"
    "  --isa NAME          auto (default), scalar, neon, avx2 or avx512; same bytes\n"
    "  --help              print this\n"
    "\n"
    "Linear attention only:\n"
    "  --map NAME          elu1 (default), identity, relu, exp, softmax, favor, favor-simple,\n"
    "                      favor-hyperbolic, taylor or expdef\n"
    "  --norm NAME         sum, feature, length or none (default: feature for --map softmax, else\n"
    "                      sum)\n"
    "  --eps X             added to the denominator of --norm sum (default: 0)\n"
    "  --state-in F        begin with the state of a file that --state-out wrote under the same\n"
    "                      options and shapes: the sequence goes on where that one ended. Without\n"
    "                      --causal, every query sees the earlier keys and the new ones\n"
    "  --state-out F       save the state after the last key\n"
    "  --window W          token i sees keys i-W+1..i only. Without --causal i-W+1..i+W-1: then\n"
    "                      as many queries as keys are needed, and no --split or state is taken\n"
    "\n"
    "Maps favor, favor-simple and favor-hyperbolic, exp(q.k) by random features, only:\n"
    "  --features M        rows of the projection (default: 4 dim)\n"
    "  --seed S            draws them, 0 to 2^64 - 1 (default: 0)\n"
    "  --orthogonal 0|1    0 (default): independent rows; 1: orthogonal within blocks of dim rows\n"
    "  --projection F      or reads them from a .npy file of shape (M, dim)\n"
    "\n"
    "Maps taylor and expdef, exp(q.k) by polynomials, only:\n"
    "  --degree N          1 to 8 (default: 2)\n"
    "\n"
    "--attention nystrom, which goes without --causal, only:\n"
    "  --landmarks L       means of so many segments stand for all tokens (default: 64)\n"
    "  --iterations N      steps of the pseudo-inverse at most (default: 12)\n"
    "\n"
    "  --compare           write no file; print, for every map with its default norm and for\n"
    "                      nystrom, how far its outputs are from exact attention on this data,\n"
    "                      and how fast it is. Goes with --causal, --eps, --threads, --isa, with\n"
    "                      --scale for all alike, and with the options from --window on, each for\n"
    "                      the methods that have it\n"
    "\n"
    "Exit status: 0, or 2 after one line on stderr; then no output file is left.\n";

/* ---- Failure -------------------------------------------------------------------------------- */

/* Files under way. Each is written under a temporary name beside its target and renamed at the end,
   so that nobody sees half a file; `present` is the name under which it exists by now, to be
   removed if anything fails, or NULL for what must stay (a device, a pipe, a symbolic link). */
typedef struct output_file {
    const char *path;
    FILE *stream;
    char *temporary;
    const char *present;
} output_file;

static output_file outputs[2];
static size_t output_count;

/* One line on stderr, whatever names and file contents are quoted in it; then exit status 2. */
static void fail(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 127) {
            *c = '?';
        }
    }
    fprintf(stderr, "attend: %s\n", line);
    for (size_t i = 0; i < output_count; i++) {
        if (outputs[i].present) {
            remove(outputs[i].present);
        }
    }
    exit(2);
}

static void require(linattn_status status, const char *what)
{
    if (status != LINATTN_OK) {
        fail("%s: %s", what, linattn_status_string(status));
    }
}

/* Aligned to a cache line: values that straddle lines cost some speed. */
static void *allocate(size_t bytes)
{
    const size_t line = 64;
    void *memory;
    if (posix_memalign(&memory, line, bytes ? bytes : 1) != 0) {
        fail("out of memory: %zu bytes are needed", bytes);
    }
    return memory;
}

/* ---- Options -------------------------------------------------------------------------------- */

typedef enum option {
    OPTION_DIR,
    OPTION_Q,
    OPTION_K,
    OPTION_V,
    OPTION_OUT,
    OPTION_ATTENTION,
    OPTION_MAP,
    OPTION_NORM,
    OPTION_SCALE,
    OPTION_EPS,
    OPTION_ISA,
    OPTION_SPLIT,
    OPTION_THREADS,
    OPTION_STATE_IN,
    OPTION_STATE_OUT,
    OPTION_WINDOW,
    OPTION_FEATURES,
    OPTION_SEED,
    OPTION_ORTHOGONAL,
    OPTION_PROJECTION,
    OPTION_DEGREE,
    OPTION_LANDMARKS,
    OPTION_ITERATIONS,
    OPTION_CAUSAL, /* from here on without a value */
    OPTION_COMPARE,
    OPTION_HELP,
    OPTION_COUNT
} option;

static const char *const option_names[OPTION_COUNT] = {
    [OPTION_DIR] = "--dir",
    [OPTION_Q] = "--q",
    [OPTION_K] = "--k",
    [OPTION_V] = "--v",
    [OPTION_OUT] = "--out",
    [OPTION_ATTENTION] = "--attention",
    [OPTION_MAP] = "--map",
    [OPTION_NORM] = "--norm",
    [OPTION_SCALE] = "--scale",
    [OPTION_EPS] = "--eps",
    [OPTION_ISA] = "--isa",
    [OPTION_SPLIT] = "--split",
    [OPTION_THREADS] = "--threads",
    [OPTION_STATE_IN] = "--state-in",
    [OPTION_STATE_OUT] = "--state-out",
    [OPTION_WINDOW] = "--window",
    [OPTION_FEATURES] = "--features",
    [OPTION_SEED] = "--seed",
    [OPTION_ORTHOGONAL] = "--orthogonal",
    [OPTION_PROJECTION] = "--projection",
    [OPTION_DEGREE] = "--degree",
    [OPTION_LANDMARKS] = "--landmarks",
    [OPTION_ITERATIONS] = "--iterations",
    [OPTION_CAUSAL] = "--causal",
    [OPTION_COMPARE] = "--compare",
    [OPTION_HELP] = "--help",
};

/* What was given: the text of the value, "" for an option without one, NULL for not given. */
typedef struct options {
    const char *text[OPTION_COUNT];
} options;

static const struct {
    option a, b;
    const char *why;
} conflicts[] = {
    {OPTION_DIR, OPTION_Q, "--dir names all three inputs"},
    {OPTION_DIR, OPTION_K, "--dir names all three inputs"},
    {OPTION_DIR, OPTION_V, "--dir names all three inputs"},
    {OPTION_COMPARE, OPTION_OUT, "--compare writes no file"},
    {OPTION_COMPARE, OPTION_STATE_IN, "--compare begins every run with an empty state"},
    {OPTION_COMPARE, OPTION_STATE_OUT, "--compare writes no file"},
    {OPTION_COMPARE, OPTION_ATTENTION, "--compare runs every kind"},
    {OPTION_COMPARE, OPTION_MAP, "--compare runs every map"},
    {OPTION_COMPARE, OPTION_NORM, "--compare runs every map with its default norm"},
    {OPTION_COMPARE, OPTION_SPLIT, "--compare times whole sequences"},
    {OPTION_PROJECTION, OPTION_SEED, "the rows are read or drawn"},
    {OPTION_PROJECTION, OPTION_ORTHOGONAL, "the rows are read or drawn"},
};

static option option_named(const char *text, size_t length)
{
    int i = 0;
    while (i < OPTION_COUNT &&
           !(strlen(option_names[i]) == length && memcmp(option_names[i], text, length) == 0)) {
        i++;
    }
    return (option)i;
}

static void print_help(void)
{
    if (fputs(help, stdout) == EOF || fflush(stdout) == EOF) {
        fail("standard output: cannot be written: %s", strerror(errno));
    }
    exit(0);
}

/* Takes `--name value` and `--name=value`. */
static options read_options(int count, char **arguments)
{
    options given = {{NULL}};
    for (int i = 1; i < count; i++) {
        const char *text = arguments[i];
        size_t length = strcspn(text, "=");
        option o = option_named(text, length);
        if (o == OPTION_COUNT) {
            fail("unknown option '%s', see --help", text);
        }
        if (given.text[o]) {
            fail("%s is given twice", option_names[o]);
        }
        const char *value = text[length] ? text + length + 1 : NULL;
        if (o >= OPTION_CAUSAL) {
            if (value) {
                fail("%s takes no value", option_names[o]);
            }
            value = "";
        } else {
            if (!value && i + 1 < count && strncmp(arguments[i + 1], "--", 2) != 0) {
                value = arguments[++i];
            }
            if (!value || !*value) {
                fail("%s needs a value, see --help", option_names[o]);
            }
        }
        if (o == OPTION_HELP) {
            print_help();
        }
        given.text[o] = value;
    }
    return given;
}

static void check_conflicts(const options *given)
{
    for (size_t i = 0; i < sizeof conflicts / sizeof conflicts[0]; i++) {
        option a = conflicts[i].a, b = conflicts[i].b;
        if (given->text[a] && given->text[b]) {
            fail("%s and %s exclude each other: %s", option_names[a], option_names[b],
                 conflicts[i].why);
        }
    }
    if (!given->text[OPTION_DIR]) {
        for (option o = OPTION_Q; o <= OPTION_V; o++) {
            if (!given->text[o]) {
                fail("%s is missing: give --dir, or --q, --k and --v (see --help)",
                     option_names[o]);
            }
        }
    }
    if (!given->text[OPTION_OUT] && !given->text[OPTION_COMPARE]) {
        fail("--out is missing: give --out, or --compare (see --help)");
    }
    const char *out = given->text[OPTION_OUT], *state_out = given->text[OPTION_STATE_OUT];
    if (out && state_out && strcmp(out, state_out) == 0) {
        fail("--out and --state-out name the same file");
    }
}

/* ---- Numbers and names ---------------------------------------------------------------------- */

/* Reads decimal digits and moves on behind them; 0 if there are none, or too many for the type. */
static int read_whole(const char **at, uint64_t *value)
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

static int read_size(const char **at, size_t *value)
{
    uint64_t whole;
    int legal = read_whole(at, &whole) && whole <= SIZE_MAX;
    *value = legal ? (size_t)whole : 0;
    return legal;
}

/* The option's number, or `absent` if it is not given. */
static uint64_t whole_option(const options *given, option o, uint64_t least, uint64_t most,
                             uint64_t absent)
{
    const char *text = given->text[o], *at = text;
    uint64_t value = absent;
    if (text && (!read_whole(&at, &value) || *at || value < least || value > most)) {
        fail("%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64, option_names[o], text,
             least, most);
    }
    return value;
}

/* 0, the default of the library, if it is not given. */
static size_t size_option(const options *given, option o, size_t most)
{
    return (size_t)whole_option(given, o, 1, most, 0);
}

static size_t read_threads(const options *given)
{
    size_t threads = (size_t)whole_option(given, OPTION_THREADS, 1, MAX_THREADS, 1);
    if (threads > 1 && !ATTEND_THREADS) {
        fail("--threads: this build has none, compile it with -pthread");
    }
    return threads;
}

static void check_split(const char *text)
{
    size_t n;
    const char *at = text;
    int legal = read_size(&at, &n) && n > 0;
    while (legal && *at == ',') {
        at++;
        legal = read_size(&at, &n) && n > 0;
    }
    if (!legal || *at) {
        fail("--split: '%s' is not a list of whole numbers from 1 like 100,1,27", text);
    }
}

/* The size of the next call when `left` tokens remain: *split is what is left of a checked list,
   or NULL where everything is one call. */
static size_t next_piece(const char **split, size_t left)
{
    if (!*split) {
        return left;
    }
    size_t n;
    const char *at = *split;
    read_size(&at, &n);
    if (*at == ',') {
        *split = at + 1;
    }
    return n < left ? n : left;
}

static float parse_float(option o, const char *text, int zero_allowed)
{
    /* strtod alone would also take inf, nan, hexadecimals and leading blanks. */
    int decimal = text[strspn(text, "0123456789.eE+-")] == '\0';
    char *end;
    double x = strtod(text, &end);
    if (decimal && !*end && x == 0 && zero_allowed) {
        return 0;
    }
    if (!decimal || *end || !(x >= FLT_MIN && x <= FLT_MAX)) {
        fail("%s: '%s' is not a number from %.3g to %.3g%s", option_names[o], text, (double)FLT_MIN,
             (double)FLT_MAX, zero_allowed ? ", or 0" : "");
    }
    return (float)x;
}

static const char *const map_names[] = {
    [LINATTN_MAP_ELU1] = "elu1",
    [LINATTN_MAP_IDENTITY] = "identity",
    [LINATTN_MAP_RELU] = "relu",
    [LINATTN_MAP_EXP] = "exp",
    [LINATTN_MAP_SOFTMAX] = "softmax",
    [LINATTN_MAP_FAVOR] = "favor",
    [LINATTN_MAP_FAVOR_SIMPLIFIED] = "favor-simple",
    [LINATTN_MAP_FAVOR_HYPERBOLIC] = "favor-hyperbolic",
    [LINATTN_MAP_TAYLOR] = "taylor",
    [LINATTN_MAP_EXPDEF] = "expdef",
};
_Static_assert(sizeof map_names / sizeof map_names[0] == LINATTN_MAP_COUNT, "name every map");

static const char *const norm_names[] = {
    [LINATTN_NORM_SUM] = "sum",
    [LINATTN_NORM_FEATURE] = "feature",
    [LINATTN_NORM_LENGTH] = "length",
    [LINATTN_NORM_NONE] = "none",
};
_Static_assert(sizeof norm_names / sizeof norm_names[0] == LINATTN_NORM_COUNT, "name every norm");

typedef enum attention {
    ATTENTION_LINEAR,
    ATTENTION_SOFTMAX,
    ATTENTION_NYSTROM,
    ATTENTION_COUNT
} attention;

static const char *const attention_names[ATTENTION_COUNT] = {"linear", "softmax", "nystrom"};

/* Sets of maps or kinds of attention: bit 1u << each. */
enum {
    LINEAR = 1u << ATTENTION_LINEAR,
    SOFTMAX = 1u << ATTENTION_SOFTMAX,
    NYSTROM = 1u << ATTENTION_NYSTROM,
    FAVOR = 1u << LINATTN_MAP_FAVOR | 1u << LINATTN_MAP_FAVOR_SIMPLIFIED |
            1u << LINATTN_MAP_FAVOR_HYPERBOLIC,
    MONOMIALS = 1u << LINATTN_MAP_TAYLOR | 1u << LINATTN_MAP_EXPDEF,
    ALL_MAPS = (1u << LINATTN_MAP_COUNT) - 1
};

static linattn_normaliser effective_norm(const linattn_config *config)
{
    if (config->normaliser != LINATTN_NORM_DEFAULT) {
        return config->normaliser;
    }
    return config->map == LINATTN_MAP_SOFTMAX ? LINATTN_NORM_FEATURE : LINATTN_NORM_SUM;
}

typedef struct name_list {
    char text[128];
} name_list;

/* Those of the names that are in the set; gaps are NULL. */
static name_list list_names(const char *const *names, int count, unsigned set)
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
static int name_option(const options *given, option o, const char *const *names, int count)
{
    const char *text = given->text[o];
    for (int i = 0; text && i < count; i++) {
        if (names[i] && strcmp(names[i], text) == 0) {
            return i;
        }
    }
    if (text) {
        fail("%s: unknown name '%s', expected one of: %s", option_names[o], text,
             list_names(names, count, ~0u).text);
    }
    return 0;
}

static void select_isa(const options *given)
{
    const char *names[LINATTN_ISA_COUNT];
    for (int i = 0; i < LINATTN_ISA_COUNT; i++) {
        names[i] = linattn_isa_name((linattn_isa)i);
    }
    linattn_isa isa = (linattn_isa)name_option(given, OPTION_ISA, names, LINATTN_ISA_COUNT);
    if (linattn_isa_select(isa) != LINATTN_OK) {
        fail("--isa: this CPU or this build lacks %s, available: %s", names[isa],
             list_names(names, LINATTN_ISA_COUNT, linattn_isa_available()).text);
    }
}

/* ---- Reading files -------------------------------------------------------------------------- */

/* A file whose size is known before anything is allocated for it. */
typedef struct input_file {
    const char *path;
    FILE *stream;
    size_t bytes;
} input_file;

static input_file open_input(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        fail("%s: cannot be opened: %s", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        fail("%s: not a regular file", path);
    }
    if ((uintmax_t)about.st_size > SIZE_MAX) {
        fail("%s: too large", path);
    }
    input_file in = {path, fopen(path, "rb"), (size_t)about.st_size};
    if (!in.stream) {
        fail("%s: cannot be opened: %s", path, strerror(errno));
    }
    return in;
}

static void read_bytes(const input_file *in, void *to, size_t bytes, const char *what)
{
    if (fread(to, 1, bytes, in->stream) != bytes) {
        if (ferror(in->stream)) {
            fail("%s: cannot be read: %s", in->path, strerror(errno));
        }
        fail("%s: truncated, it ends within its %s", in->path, what);
    }
}

/* Queries, keys or values: [tokens][heads][dim], dense. */
typedef struct tensor {
    const char *path;
    float *data;
    size_t tokens, heads, dim;
    int has_heads; /* the file has an axis for them */
} tensor;

/* How many axes a file may have, and what they are. */
typedef struct npy_layout {
    size_t most_axes; /* and 2 at least */
    const char *axes;
} npy_layout;

static const npy_layout tokens_layout = {3, "(tokens, heads, dim) or (tokens, dim)"};
static const npy_layout projection_layout = {2, "(features, dim)"};

/* What the header of a .npy file says: a Python dictionary like
   {'descr': '<f4', 'fortran_order': False, 'shape': (512, 4, 64), } and padding. */
typedef struct npy_header {
    const char *path, *begin, *at;
    const npy_layout *layout;
    int has_descr, has_order, has_shape;
    size_t shape[3], rank;
} npy_header;

static void skip_blanks(npy_header *h) { h->at += strspn(h->at, " \t\r\n"); }

static int accept(npy_header *h, char c)
{
    skip_blanks(h);
    int accepted = *h->at == c;
    h->at += accepted;
    return accepted;
}

static void fail_header(const npy_header *h, const char *expected)
{
    fail("%s: malformed .npy header at its character %td, expected %s", h->path,
         h->at - h->begin + 1, expected);
}

static void expect(npy_header *h, char c, const char *name)
{
    if (!accept(h, c)) {
        fail_header(h, name);
    }
}

static void parse_string(npy_header *h, char text[32])
{
    skip_blanks(h);
    char quote = *h->at;
    size_t length = quote == '\'' || quote == '"' ? strcspn(h->at + 1, "'\"\\") : 32;
    if (length >= 32 || h->at[1 + length] != quote) {
        fail_header(h, "a short quoted string");
    }
    memcpy(text, h->at + 1, length);
    text[length] = '\0';
    h->at += length + 2;
}

static void parse_descr(npy_header *h)
{
    char descr[32];
    if (h->has_descr++) {
        fail_header(h, "'descr' only once");
    }
    parse_string(h, descr);
    if (strcmp(descr, "<f4") != 0) {
        fail("%s: dtype '%s', expected '<f4' (little-endian float32)", h->path, descr);
    }
}

static void parse_order(npy_header *h)
{
    if (h->has_order++) {
        fail_header(h, "'fortran_order' only once");
    }
    skip_blanks(h);
    if (strncmp(h->at, "True", 4) == 0) {
        fail("%s: Fortran order, expected C order", h->path);
    }
    if (strncmp(h->at, "False", 5) != 0) {
        fail_header(h, "True or False");
    }
    h->at += 5;
}

static void parse_shape(npy_header *h)
{
    int comma = 1;
    if (h->has_shape++) {
        fail_header(h, "'shape' only once");
    }
    expect(h, '(', "'('");
    while (!accept(h, ')')) {
        size_t size;
        skip_blanks(h);
        int leading_zero = h->at[0] == '0' && h->at[1] >= '0' && h->at[1] <= '9';
        if (!comma || leading_zero || !read_size(&h->at, &size)) {
            fail_header(h, "a tuple of sizes");
        }
        if (h->rank < 3) {
            h->shape[h->rank] = size;
        }
        h->rank++;
        comma = accept(h, ',');
    }
    if (h->rank < 2 || h->rank > h->layout->most_axes) {
        fail("%s: shape of %zu dimensions, expected %s", h->path, h->rank, h->layout->axes);
    }
}

static void parse_header(npy_header *h, size_t length)
{
    h->at = h->begin;
    expect(h, '{', "'{'");
    int comma = 1;
    while (!accept(h, '}')) {
        char key[32];
        if (!comma) {
            fail_header(h, "',' or '}'");
        }
        parse_string(h, key);
        expect(h, ':', "':'");
        if (strcmp(key, "descr") == 0) {
            parse_descr(h);
        } else if (strcmp(key, "fortran_order") == 0) {
            parse_order(h);
        } else if (strcmp(key, "shape") == 0) {
            parse_shape(h);
        } else {
            fail("%s: unknown key '%s' in the .npy header", h->path, key);
        }
        comma = accept(h, ',');
    }
    skip_blanks(h);
    if (h->at != h->begin + length) {
        fail_header(h, "blanks to its end");
    }
    if (!h->has_descr || !h->has_order || !h->has_shape) {
        fail("%s: malformed .npy header, expected descr, fortran_order and shape", h->path);
    }
}

/* Leaves the stream at the data and returns its offset. */
static size_t read_header(const input_file *in, const npy_layout *layout, npy_header *h)
{
    enum { LONGEST = 10000 }; /* NumPy's own limit */
    char text[LONGEST + 1];
    unsigned char start[12];
    if (in->bytes < 8 || fread(start, 1, 8, in->stream) != 8 || memcmp(start, "\x93NUMPY", 6)) {
        fail("%s: not a .npy file, its first bytes are not \\x93NUMPY", in->path);
    }
    if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
        fail("%s: .npy version %d.%d, expected 1.0, 2.0 or 3.0", in->path, start[6], start[7]);
    }
    size_t length = 0, offset = start[6] == 1 ? 10 : 12;
    read_bytes(in, start + 8, offset - 8, "header");
    for (size_t i = offset; i-- > 8;) {
        length = length << 8 | start[i];
    }
    if (length > LONGEST) {
        fail("%s: .npy header of %zu bytes, expected at most %d", in->path, length, LONGEST);
    }
    read_bytes(in, text, length, "header");
    text[length] = '\0';
    *h = (npy_header){.path = in->path, .begin = text, .layout = layout};
    parse_header(h, length);
    h->begin = h->at = NULL;
    return offset + length;
}

/* The bytes of a dense array of floats, or 0 where that overflows. */
static int array_bytes(size_t tokens, size_t heads, size_t dim, size_t *bytes)
{
    size_t most = SIZE_MAX / sizeof(float);
    if ((dim && heads > most / dim) || (tokens && heads * dim > most / tokens)) {
        return 0;
    }
    *bytes = tokens * heads * dim * sizeof(float);
    return 1;
}

/* From the byte order of the file to that of the machine, or back. */
static void swap_if_big_endian(float *data, size_t count)
{
    const uint16_t one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    for (size_t i = 0; i < count && !low; i++) {
        unsigned char b[4];
        memcpy(b, &data[i], 4);
        const unsigned char swapped[4] = {b[3], b[2], b[1], b[0]};
        memcpy(&data[i], swapped, 4);
    }
}

static tensor read_tensor(const char *path, const npy_layout *layout)
{
    npy_header h;
    input_file in = open_input(path);
    size_t offset = read_header(&in, layout, &h), bytes;
    int has_heads = h.rank == 3;
    tensor t = {path, NULL, h.shape[0], has_heads ? h.shape[1] : 1, h.shape[h.rank - 1], has_heads};
    if (t.heads < 1 || t.dim < 1 || t.dim > LINATTN_MAX_DIM) {
        fail("%s: %zu heads of dimension %zu, expected at least 1 head of dimension 1 to %d", path,
             t.heads, t.dim, LINATTN_MAX_DIM);
    }
    if (!array_bytes(t.tokens, t.heads, t.dim, &bytes)) {
        fail("%s: its shape (%zu, %zu, %zu) is too large", path, t.tokens, t.heads, t.dim);
    }
    if (in.bytes < offset || in.bytes - offset != bytes) {
        fail("%s: %s, %zu bytes of data where its shape needs %zu", path,
             in.bytes - offset < bytes ? "truncated" : "bytes behind its end", in.bytes - offset,
             bytes);
    }
    t.data = allocate(bytes);
    read_bytes(&in, t.data, bytes, "data");
    fclose(in.stream);
    swap_if_big_endian(t.data, bytes / sizeof(float));
    return t;
}

/* What the library takes, in size. Compared as bits, in whose order NaN is the largest, because
   -ffast-math may take it that there is none. */
static int in_range(float x)
{
    const float most = 1e6f;
    uint32_t bits, limit;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&limit, &most, sizeof limit);
    return (bits & 0x7fffffff) <= limit;
}

/* The projection of the favor maps, as a tensor of one head with its rows as tokens. */
static tensor read_projection(const char *path, size_t features, size_t dim)
{
    tensor w = read_tensor(path, &projection_layout);
    if (w.dim != dim) {
        fail("%s: rows of dimension %zu, expected %zu as in the queries and keys", path, w.dim,
             dim);
    }
    if (w.tokens == 0) {
        fail("%s: no row, expected at least 1", path);
    }
    if (features && w.tokens != features) {
        fail("%s: %zu rows, expected %zu as --features says", path, w.tokens, features);
    }
    for (size_t i = 0; i < w.tokens * dim; i++) {
        if (!in_range(w.data[i])) {
            fail("%s: element (%zu, %zu) is %g, expected a finite number of size 1e6 at most", path,
                 i / dim, i % dim, (double)w.data[i]);
        }
    }
    return w;
}

/* ---- Writing files -------------------------------------------------------------------------- */

static void create_temporary(output_file *file)
{
    size_t size = strlen(file->path) + 16;
    file->temporary = allocate(size);
    for (int i = 0; i < 1000 && !file->stream; i++) {
        snprintf(file->temporary, size, "%s.tmp%d", file->path, i);
        file->stream = fopen(file->temporary, "wbx"); /* x: never one that somebody else made */
        if (!file->stream && errno != EEXIST) {
            break;
        }
    }
    file->present = file->stream ? file->temporary : NULL;
}

/* Renaming onto a device, a pipe or a symbolic link would put a plain file in its place: these are
   written directly. */
static output_file *open_output(const char *path)
{
    struct stat about;
    int exists = lstat(path, &about) == 0;
    output_file *file = &outputs[output_count++];
    *file = (output_file){.path = path};
    if (exists && S_ISDIR(about.st_mode)) {
        fail("%s: is a directory, expected a file", path);
    }
    if (exists && !S_ISREG(about.st_mode)) {
        file->stream = fopen(path, "wb");
    } else if (!exists || access(path, W_OK) == 0) {
        create_temporary(file);
    }
    if (!file->stream) {
        fail("%s: cannot be created: %s", path, strerror(errno));
    }
    return file;
}

static void write_bytes(const output_file *file, const void *from, size_t bytes)
{
    if (fwrite(from, 1, bytes, file->stream) != bytes) {
        fail("%s: cannot be written: %s", file->path, strerror(errno));
    }
}

/* Gives every file its name, once all are whole. */
static void publish_outputs(void)
{
    for (size_t i = 0; i < output_count; i++) {
        if (fclose(outputs[i].stream) != 0) {
            fail("%s: cannot be written: %s", outputs[i].path, strerror(errno));
        }
    }
    for (size_t i = 0; i < output_count; i++) {
        if (outputs[i].temporary && rename(outputs[i].temporary, outputs[i].path) != 0) {
            fail("%s: cannot be created: %s", outputs[i].path, strerror(errno));
        }
        outputs[i].present = outputs[i].temporary ? outputs[i].path : NULL;
    }
    for (size_t i = 0; i < output_count; i++) {
        free(outputs[i].temporary);
    }
    output_count = 0;
}

static void write_tensor(const tensor *t)
{
    enum { START = 10, BLOCK = 64 };
    char header[4 * BLOCK] = "\x93NUMPY\x01";
    char heads[32] = "";
    if (t->has_heads) {
        snprintf(heads, sizeof heads, "%zu, ", t->heads);
    }
    int length = snprintf(header + START, sizeof header - START,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %s%zu), }",
                          t->tokens, heads, t->dim);
    size_t used = START + (size_t)length;
    size_t size = (used / BLOCK + 1) * BLOCK;
    memset(header + used, ' ', size - used - 1);
    header[size - 1] = '\n';
    header[8] = (char)(size - START);
    header[9] = 0;

    size_t count = t->tokens * t->heads * t->dim;
    output_file *file = open_output(t->path);
    write_bytes(file, header, size);
    swap_if_big_endian(t->data, count);
    write_bytes(file, t->data, count * sizeof(float));
}

/* ---- Attending ------------------------------------------------------------------------------ */

#if ATTEND_THREADS
typedef struct thread_job {
    linattn_job *job;
    void *arg;
    size_t index;
} thread_job;

static void *run_thread(void *p)
{
    const thread_job *mine = p;
    mine->job(mine->arg, mine->index);
    return NULL;
}

/* The callback of linattn_context: job 0 here, each other one in a thread of its own, or here too
   if the system gives no thread. */
static void parallel_for(void *user, size_t count, linattn_job *job, void *arg)
{
    pthread_t threads[MAX_THREADS];
    thread_job jobs[MAX_THREADS];
    int started[MAX_THREADS];
    (void)user;
    for (size_t i = 1; i < count; i++) {
        jobs[i] = (thread_job){job, arg, i};
        started[i] = pthread_create(&threads[i], NULL, run_thread, &jobs[i]) == 0;
    }
    if (count > 0) {
        job(arg, 0);
    }
    for (size_t i = 1; i < count; i++) {
        if (started[i]) {
            pthread_join(threads[i], NULL);
        } else {
            job(arg, i);
        }
    }
}
#endif

static linattn_context make_context(size_t threads)
{
    linattn_context context = {0};
#if ATTEND_THREADS
    if (threads > 1) {
        context.parallel_for = parallel_for;
        context.threads = threads;
    }
#else
    (void)threads;
#endif
    return context;
}

static tensor draw_projection(const options *given, size_t features, size_t dim)
{
    tensor w = {NULL, NULL, features, 1, dim, 0};
    uint64_t seed = whole_option(given, OPTION_SEED, 0, UINT64_MAX, 0);
    linattn_random_kind kind = whole_option(given, OPTION_ORTHOGONAL, 0, 1, 0)
                                   ? LINATTN_RANDOM_ORTHOGONAL
                                   : LINATTN_RANDOM_INDEPENDENT;
    size_t bytes;
    if (!array_bytes(features, 1, dim, &bytes)) {
        fail("%s: %zu rows of dimension %zu are too large", option_names[OPTION_FEATURES], features,
             dim);
    }
    w.data = allocate(bytes);
    require(linattn_random_features(seed, kind, features, dim, w.data), "the random features");
    return w;
}

/* One attention over the three tensors. `memory` is a state where the tokens come in several calls
   or a state is kept, and a workspace otherwise. */
typedef struct task {
    linattn_config config;
    linattn_context context;
    tensor q, k, v, projection; /* the last one empty but for the favor maps */
    attention kind;
    int causal, with_state;
    const char *split; /* a checked list, or NULL */
    void *memory;
    size_t bytes;
} task;

static linattn_view rows_from(const tensor *x, size_t token)
{
    return linattn_rows(x->data + token * x->heads * x->dim);
}

static linattn_output output_from(const tensor *x, size_t token)
{
    return linattn_output_rows(x->data + token * x->heads * x->dim);
}

/* A causal piece sees the keys up to its own end, as with a cache of keys and values. */
static void attend_exact(const task *t, const tensor *out)
{
    const char *split = t->split;
    for (size_t done = 0, n; done < out->tokens; done += n) {
        n = next_piece(&split, out->tokens - done);
        require(linattn_softmax(&t->config, rows_from(&t->q, done), n, rows_from(&t->k, 0),
                                rows_from(&t->v, 0), t->causal ? done + n : t->k.tokens,
                                output_from(out, done), t->causal, t->memory, t->bytes,
                                &t->context),
                "exact attention");
    }
}

static void attend_nystrom(const task *t, const tensor *out)
{
    require(linattn_nystrom(&t->config, rows_from(&t->q, 0), t->q.tokens, rows_from(&t->k, 0),
                            rows_from(&t->v, 0), t->k.tokens, output_from(out, 0), t->causal,
                            t->memory, t->bytes, &t->context),
            t->causal ? "--attention nystrom with --causal" : "--attention nystrom");
}

static void attend_causal(const task *t, const tensor *out)
{
    const char *split = t->split;
    for (size_t done = 0, n; done < out->tokens; done += n) {
        n = next_piece(&split, out->tokens - done);
        require(linattn_causal(t->memory, rows_from(&t->q, done), rows_from(&t->k, done),
                               rows_from(&t->v, done), output_from(out, done), n, &t->context),
                "causal linear attention");
    }
}

/* All keys, then all queries. */
static void attend_in_pieces(const task *t, const tensor *out)
{
    const char *split = t->split;
    for (size_t done = 0, n; done < t->k.tokens; done += n) {
        n = next_piece(&split, t->k.tokens - done);
        require(linattn_update(t->memory, rows_from(&t->k, done), rows_from(&t->v, done), n,
                               &t->context),
                "update");
    }
    split = t->split;
    for (size_t done = 0, n; done < out->tokens; done += n) {
        n = next_piece(&split, out->tokens - done);
        require(linattn_query(t->memory, rows_from(&t->q, done), output_from(out, done), n,
                              &t->context),
                "query");
    }
}

static void attend_at_once(const task *t, const tensor *out)
{
    require(linattn_bidirectional(&t->config, rows_from(&t->q, 0), t->q.tokens, rows_from(&t->k, 0),
                                  rows_from(&t->v, 0), t->k.tokens, output_from(out, 0), t->memory,
                                  t->bytes, &t->context),
            "bidirectional linear attention");
}

static void attend(const task *t, const tensor *out)
{
    if (t->kind == ATTENTION_SOFTMAX) {
        attend_exact(t, out);
    } else if (t->kind == ATTENTION_NYSTROM) {
        attend_nystrom(t, out);
    } else if (t->causal) {
        attend_causal(t, out);
    } else if (t->with_state) {
        attend_in_pieces(t, out);
    } else {
        attend_at_once(t, out);
    }
}

static void reserve(task *t)
{
    static const linattn_workspace verbs[ATTENTION_COUNT] = {
        [ATTENTION_LINEAR] = LINATTN_WORKSPACE_BIDIRECTIONAL,
        [ATTENTION_SOFTMAX] = LINATTN_WORKSPACE_SOFTMAX,
        [ATTENTION_NYSTROM] = LINATTN_WORKSPACE_NYSTROM,
    };
    require(linattn_config_check(&t->config), "these shapes and options");
    t->bytes = t->with_state ? linattn_state_size(&t->config)
                             : linattn_workspace_size(&t->config, verbs[t->kind], &t->context);
    t->memory = allocate(t->bytes);
}

static void prepare(task *t)
{
    reserve(t);
    if (t->with_state) {
        require(linattn_state_init(&t->config, t->memory, t->bytes), "the state");
    }
}

static tensor make_output(const task *t, const char *path)
{
    tensor out = {path, NULL, t->q.tokens, t->q.heads, t->v.dim, t->q.has_heads};
    size_t bytes;
    if (!array_bytes(out.tokens, out.heads, out.dim, &bytes)) {
        fail("the output of %zu tokens, %zu heads and dimension %zu is too large", out.tokens,
             out.heads, out.dim);
    }
    out.data = allocate(bytes);
    return out;
}

static void read_state(const task *t, const char *path)
{
    input_file in = open_input(path);
    if (in.bytes != t->bytes) {
        fail("%s: %zu bytes, the state for these options and shapes has %zu", path, in.bytes,
             t->bytes);
    }
    read_bytes(&in, t->memory, t->bytes, "state");
    fclose(in.stream);
    linattn_status status = linattn_state_check(&t->config, t->memory, t->bytes);
    if (status != LINATTN_OK) {
        fail("%s: not a state for these options and shapes: %s", path,
             linattn_status_string(status));
    }
}

/* ---- The comparison ------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double run_seconds(const task *t, const tensor *out)
{
    double begin = now();
    if (t->with_state) {
        require(linattn_state_reset(t->memory), "the state");
    }
    attend(t, out);
    return now() - begin;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of at least 3 runs after one to warm up, and of as many as fit in some 50 ms. */
static double median_seconds(task *t, const tensor *out)
{
    enum { FEWEST = 3, MOST = 201 };
    double seconds[MOST], sum = 0;
    int runs = 0;
    prepare(t);
    run_seconds(t, out);
    while (runs < FEWEST || (runs < MOST && sum < 0.05)) {
        seconds[runs] = run_seconds(t, out);
        sum += seconds[runs++];
    }
    free(t->memory);
    qsort(seconds, (size_t)runs, sizeof seconds[0], by_size);
    return seconds[runs / 2];
}

/* By Heron's rule, from above: the C library's own needs -lm. nan and inf are their own roots. */
static double square_root(double x)
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

/* |x - exact| / |exact| in the Frobenius norm; nan and inf come through. */
static double relative_error(const tensor *x, const tensor *exact)
{
    size_t count = exact->tokens * exact->heads * exact->dim;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double e = exact->data[i], d = x->data[i] - e;
        difference += d * d;
        norm += e * e;
    }
    return difference == 0 ? 0 : square_root(difference / norm);
}

static void print_setting(const task *t, const char *from, size_t threads)
{
    const linattn_config *c = &t->config;
    printf("%s: %zu queries, %zu keys, %zu heads over %zu key/value heads, dimension %zu, values "
           "%zu\n",
           from, t->q.tokens, t->k.tokens, t->q.heads, t->k.heads, t->q.dim, t->v.dim);
    printf("%s, %s, %zu thread%s, ", t->causal ? "causal" : "every query sees every key",
           linattn_isa_name(linattn_isa_active()), threads, threads == 1 ? "" : "s");
    if (c->scale > 0) {
        printf("scale %g\n", (double)c->scale);
    } else {
        printf("scale 1 for elu1, identity, relu, exp and softmax,\n1/sqrt(%zu) for the others\n",
               t->q.dim);
    }
    if (c->window) {
        printf("the maps see a window of %zu tokens, exact attention%s all\n", c->window,
               t->causal ? "" : " and nystrom");
    }
    printf("favor: %zu features; taylor, expdef: degree %zu", c->features,
           c->degree ? c->degree : DEFAULT_DEGREE);
    if (!t->causal) {
        printf("; nystrom: %zu landmarks", c->landmarks ? c->landmarks : DEFAULT_LANDMARKS);
    }
    printf("\n\nattention         norm     relative error   us/token   speed-up\n");
}

/* The row of what the task is set to. */
static void compare_one(task *t, const char *name, const char *norm, const tensor *exact,
                        double exact_seconds, const tensor *out)
{
    double seconds = median_seconds(t, out);
    printf("%-17s %-8s %#14.4g %10.3f %10.2f\n", name, norm, relative_error(out, exact),
           1e6 * seconds / (double)t->q.tokens, exact_seconds / seconds);
}

/* The features of taylor and expdef grow like dim^degree: a table that nobody asked for these
   should not take minutes, or all memory, for their sake. */
static int is_out_of_proportion(const linattn_config *config)
{
    enum { MOST = 40000 };
    size_t features = linattn_features(config);
    int monomials = (1u << config->map & MONOMIALS) != 0;
    return monomials && !config->degree && (features == 0 || features > MOST);
}

/* Fails on a map for which there is no memory, as well as can be told, before the table begins. */
static void check_maps(task *t)
{
    for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
        t->config.map = (linattn_feature_map)map;
        if (!is_out_of_proportion(&t->config)) {
            reserve(t);
            free(t->memory);
        }
    }
    t->config.map = LINATTN_MAP_ELU1;
}

static void compare_maps(task *t, const tensor *exact, double exact_seconds, const tensor *out)
{
    for (int map = 0; map < LINATTN_MAP_COUNT; map++) {
        t->config.map = (linattn_feature_map)map;
        if (is_out_of_proportion(&t->config)) {
            printf("%-17s left out: too many features; --degree includes it\n", map_names[map]);
        } else {
            compare_one(t, map_names[map], norm_names[effective_norm(&t->config)], exact,
                        exact_seconds, out);
        }
    }
}

/* Exact attention and nystrom, which have neither window nor state; then the maps. */
static void compare(task *t, const char *from, size_t threads)
{
    if (t->q.tokens == 0 || t->k.tokens == 0) {
        fail("--compare: there is nothing to compare in 0 tokens");
    }
    task other = *t;
    other.kind = ATTENTION_SOFTMAX;
    other.config.window = 0;
    t->with_state = t->causal;
    check_maps(t);
    tensor exact = make_output(t, NULL), out = make_output(t, NULL);
    print_setting(t, from, threads);
    double exact_seconds = median_seconds(&other, &exact);
    printf("%-17s -        %14s %10.3f %10.2f\n", "exact", "-",
           1e6 * exact_seconds / (double)t->q.tokens, 1.0);
    if (!t->causal) {
        other.kind = ATTENTION_NYSTROM;
        compare_one(&other, "nystrom", "-", &exact, exact_seconds, &out);
    }
    compare_maps(t, &exact, exact_seconds, &out);
    printf("\n"
           "relative error: |outputs - exact| / |exact| over all outputs. elu1, identity, relu, "
           "exp and\n"
           "softmax have to be trained with: on a layer trained with exact attention it is large, "
           "they\n"
           "do not replace that in a finished model. nystrom, favor, taylor and expdef approximate "
           "it,\n"
           "by landmarks, features and degrees.\n");
    free(exact.data);
    free(out.data);
}

/* ---- Main ----------------------------------------------------------------------------------- */

/* The kinds of attention and the maps that run: several with --compare, else one of each. */
typedef struct methods {
    unsigned kinds, maps;
} methods;

static methods chosen_methods(const options *given, attention kind, linattn_feature_map map)
{
    if (given->text[OPTION_COMPARE]) {
        unsigned causal = LINEAR | SOFTMAX;
        return (methods){given->text[OPTION_CAUSAL] ? causal : causal | NYSTROM, ALL_MAPS};
    }
    return (methods){1u << kind, 1u << map};
}

/* What an option is for, where that is not everything. */
static const struct {
    option o;
    methods of;
} scopes[] = {
    {OPTION_SPLIT, {LINEAR | SOFTMAX, ALL_MAPS}},
    {OPTION_MAP, {LINEAR, ALL_MAPS}},
    {OPTION_NORM, {LINEAR, ALL_MAPS}},
    {OPTION_EPS, {LINEAR, ALL_MAPS}},
    {OPTION_STATE_IN, {LINEAR, ALL_MAPS}},
    {OPTION_STATE_OUT, {LINEAR, ALL_MAPS}},
    {OPTION_WINDOW, {LINEAR, ALL_MAPS}},
    {OPTION_FEATURES, {LINEAR, FAVOR}},
    {OPTION_SEED, {LINEAR, FAVOR}},
    {OPTION_ORTHOGONAL, {LINEAR, FAVOR}},
    {OPTION_PROJECTION, {LINEAR, FAVOR}},
    {OPTION_DEGREE, {LINEAR, MONOMIALS}},
    {OPTION_LANDMARKS, {NYSTROM, ALL_MAPS}},
    {OPTION_ITERATIONS, {NYSTROM, ALL_MAPS}},
};

static void check_scope(option o, option to, const char *const *names, int count, unsigned of,
                        unsigned run)
{
    if (!(of & run)) {
        fail("%s belongs to %s %s, and what runs is %s", option_names[o], option_names[to],
             list_names(names, count, of).text, list_names(names, count, run).text);
    }
}

static void check_scopes(const options *given, methods run)
{
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        option o = scopes[i].o;
        if (given->text[o]) {
            check_scope(o, OPTION_ATTENTION, attention_names, ATTENTION_COUNT, scopes[i].of.kinds,
                        run.kinds);
            check_scope(o, OPTION_MAP, map_names, LINATTN_MAP_COUNT, scopes[i].of.maps, run.maps);
        }
    }
}

static linattn_config read_config(const options *given)
{
    linattn_config config = {0};
    config.map = (linattn_feature_map)name_option(given, OPTION_MAP, map_names, LINATTN_MAP_COUNT);
    config.normaliser =
        (linattn_normaliser)name_option(given, OPTION_NORM, norm_names, LINATTN_NORM_COUNT);
    if (given->text[OPTION_SCALE]) {
        config.scale = parse_float(OPTION_SCALE, given->text[OPTION_SCALE], 0);
    }
    if (given->text[OPTION_EPS]) {
        config.epsilon = parse_float(OPTION_EPS, given->text[OPTION_EPS], 1);
        if (effective_norm(&config) != LINATTN_NORM_SUM) {
            fail("--eps belongs to --norm sum alone");
        }
    }
    config.features = size_option(given, OPTION_FEATURES, SIZE_MAX);
    config.degree = size_option(given, OPTION_DEGREE, MAX_DEGREE);
    config.window = size_option(given, OPTION_WINDOW, SIZE_MAX);
    config.landmarks = size_option(given, OPTION_LANDMARKS, SIZE_MAX);
    config.iterations = size_option(given, OPTION_ITERATIONS, SIZE_MAX);
    return config;
}

static tensor read_input(const options *given, option which)
{
    static const char *const in_dir[] = {"/q.npy", "/k.npy", "/v.npy"};
    const char *dir = given->text[OPTION_DIR];
    if (!dir) {
        return read_tensor(given->text[which], &tokens_layout);
    }
    const char *name = in_dir[which - OPTION_Q];
    size_t size = strlen(dir) + strlen(name) + 1;
    char *path = allocate(size);
    snprintf(path, size, "%s%s", dir, name);
    tensor t = read_tensor(path, &tokens_layout);
    free(path);
    t.path = in_dir[which - OPTION_Q] + 1;
    return t;
}

static void check_shapes(const task *t)
{
    const tensor *q = &t->q, *k = &t->k, *v = &t->v;
    if (k->tokens != v->tokens || k->heads != v->heads) {
        fail("%s has %zu tokens and %zu heads, %s has %zu and %zu: keys and values must agree",
             k->path, k->tokens, k->heads, v->path, v->tokens, v->heads);
    }
    if (q->dim != k->dim) {
        fail("%s has dimension %zu, %s has %zu: queries and keys must agree", q->path, q->dim,
             k->path, k->dim);
    }
    if (q->heads % k->heads != 0) {
        fail("%s has %zu heads, expected a multiple of the %zu heads of %s", q->path, q->heads,
             k->heads, k->path);
    }
    if ((t->causal || t->config.window) && q->tokens != k->tokens) {
        fail("%s has %zu tokens, %s has %zu: %s needs as many queries as keys", q->path, q->tokens,
             k->path, k->tokens, option_names[t->causal ? OPTION_CAUSAL : OPTION_WINDOW]);
    }
}

/* Without --causal, the two verbs that a state would take, update and query, know no window. */
static void check_window(const options *given)
{
    static const option with_state[] = {OPTION_SPLIT, OPTION_STATE_IN, OPTION_STATE_OUT};
    for (size_t i = 0; i < sizeof with_state / sizeof with_state[0]; i++) {
        if (given->text[OPTION_WINDOW] && given->text[with_state[i]] &&
            !given->text[OPTION_CAUSAL]) {
            fail("--window with %s needs --causal", option_names[with_state[i]]);
        }
    }
}

/* Sets the shapes of the config, and the projection where a favor map runs. */
static void complete_config(task *t, const options *given, methods run)
{
    const char *file = given->text[OPTION_PROJECTION];
    linattn_config *config = &t->config;
    size_t features = config->features, dim = t->k.dim;
    config->heads = t->q.heads;
    config->kv_heads = t->k.heads;
    config->dim_key = dim;
    config->dim_value = t->v.dim;
    if ((run.kinds & LINEAR) && (run.maps & FAVOR)) {
        t->projection =
            file ? read_projection(file, features, dim)
                 : draw_projection(given, features ? features : FEATURES_PER_DIM * dim, dim);
        config->features = t->projection.tokens;
        config->projection = t->projection.data;
    }
}

static task read_task(const options *given)
{
    task t = {.config = read_config(given),
              .kind =
                  (attention)name_option(given, OPTION_ATTENTION, attention_names, ATTENTION_COUNT),
              .causal = given->text[OPTION_CAUSAL] != NULL,
              .split = given->text[OPTION_SPLIT]};
    methods run = chosen_methods(given, t.kind, t.config.map);
    check_scopes(given, run);
    check_window(given);
    if (t.split) {
        check_split(t.split);
    }
    t.with_state =
        t.kind == ATTENTION_LINEAR && !given->text[OPTION_COMPARE] &&
        (t.causal || t.split || given->text[OPTION_STATE_IN] || given->text[OPTION_STATE_OUT]);
    t.q = read_input(given, OPTION_Q);
    t.k = read_input(given, OPTION_K);
    t.v = read_input(given, OPTION_V);
    check_shapes(&t);
    complete_config(&t, given, run);
    return t;
}

static void run_and_write(task *t, const options *given)
{
    tensor out = make_output(t, given->text[OPTION_OUT]);
    prepare(t);
    if (given->text[OPTION_STATE_IN]) {
        read_state(t, given->text[OPTION_STATE_IN]);
    }
    attend(t, &out);
    write_tensor(&out);
    if (given->text[OPTION_STATE_OUT]) {
        write_bytes(open_output(given->text[OPTION_STATE_OUT]), t->memory, t->bytes);
    }
    publish_outputs();
    free(t->memory);
    free(out.data);
}

int main(int argc, char **argv)
{
    options given = read_options(argc, argv);
    check_conflicts(&given);
    select_isa(&given);
    size_t threads = read_threads(&given);
    task t = read_task(&given);
    t.context = make_context(threads);
    if (given.text[OPTION_COMPARE]) {
        compare(&t, given.text[OPTION_DIR] ? given.text[OPTION_DIR] : t.q.path, threads);
    } else {
        run_and_write(&t, &given);
    }
    free(t.q.data);
    free(t.k.data);
    free(t.v.data);
    free(t.projection.data);
    if (fflush(stdout) == EOF) {
        fail("standard output: cannot be written: %s", strerror(errno));
    }
    return 0;
}
