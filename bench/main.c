/* linattn_bench: see `usage`. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benchmarks.h"
#include "gbench.h"
#include "peers/peers.h"
#include "rules.h"

static const char usage[] =
    "usage: linattn_bench [OPTION...] [Google Benchmark's options]\n"
    "  --full               every map and shape, more lengths; default: a sample of some minutes\n"
    "  --shapes=64x64,...   dim_key x dim_value\n"
    "  --n=1,4096,...       tokens\n"
    "  --maps=elu1,...      elu1, identity, relu, exp, softmax, favor, favor-simplified,\n"
    "                       favor-hyperbolic, taylor, expdef, unit\n"
    "  --rules=kda,...      gated, gated-channel, rwkv6, delta, gated-delta, kda, general, mlstm\n"
    "  --isas=avx2,...      scalar, neon, avx2, avx512\n"
    "  --check              fail if a result is wrong\n"
    "  --against=FILE       a shared object of bench/library.c with another version's headers, as\n"
    "                       library_o3 and as library_o2: timed by turns with this version\n"
    "  --patience=SECONDS   how long in all to wait while another program uses the core's other\n"
    "                       thread, default: 10\n"
    "With --shapes, --n, --maps or --rules: all their combinations. Rules have the map identity;\n"
    "with --rules and without --maps there is nothing but rules.\n"
    "Status 1: results could not be written, none could be had, or not all that these options\n"
    "ask for, for want of memory.\n"
    "\n"
    "Names: verb/map[-parameter]/isa or peer/dim_key x dim_value/n[/variant]; parameters are\n"
    "favor's rows of the projection, the degree of taylor and expdef, nystrom's landmarks. band "
    "is\n"
    "causal with a window, step one token of a small state, by the library compiled with -O2.\n"
    "recurrent/rule/..., recurrent-decode and recurrent-step are the same for the recurrences;\n"
    "calls64: in calls of 64 tokens, not in one; plain-h1, plain-h8: beside a plain loop.\n"
    "Counters:\n"
    "  ns            per token and head, per element, per merge; of a step per call: a median\n"
    "  spread        of the samples' middle half, relative to that\n"
    "  gflops        2 m dv for each of adding a key and reading a query, m features; favor: and\n"
    "                2 M dim_key to project each; nystrom: 4 landmarks (dim_key + dv) per token;\n"
    "                band: those of causal, so that its share tells how much slower it is;\n"
    "                rules: 2 m dv for each instruction of the FMA units that an element of the\n"
    "                state needs for a token, be it a product or a sum alone: gated, rwkv6, delta\n"
    "                and mlstm 3, gated-delta and kda 4, general 5\n"
    "  peak          the least possible time over the time taken: see memory_bound\n"
    "  memory_bound  0: that time is of an FMA loop; 1: of updating as many bytes in that place\n"
    "  error         the largest against double precision, relative to its row's largest element\n"
    "  times         as long as on aligned, dense, ordinary operands; a window: as without;\n"
    "                grouped8, eight query heads of one key: as eight with a key each;\n"
    "                1,048,576 tokens: as in sequences of 1,024; recurrent-step: as causal, elu1;\n"
    "                a peer: as linattn on the same operands. Samples of both are taken by turns\n"
    "  share         of the time of a plain loop, base_ns, also by turns\n"
    "  speedup       over one thread\n"
    "  against       times as long as the version of --against: below 1 this one is faster\n"
    "  alone         the share of samples in which no other program used the core: all of the\n"
    "                above is of these; 0: they were too few, and it is of all\n"
    "\n";

/* ---- The command line ----------------------------------------------------------------------- */

static void refuse(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("linattn_bench: ", stderr);
    vfprintf(stderr, format, values);
    fputs(", see --help\n", stderr);
    va_end(values);
    exit(1);
}

static void fail(const char *why)
{
    fprintf(stderr, "linattn_bench: %s\n", why);
    exit(1);
}

/* If it is closed, the next file that is opened would be taken for it. */
static void check_output(void)
{
    if (fcntl(STDOUT_FILENO, F_GETFD) == -1) fail("standard output is closed");
}

/* A number from 1 to 2^40 in front of what is left of a word, or 0. */
static size_t read_number(char *text, char **end)
{
    const bool digit = text[0] >= '1' && text[0] <= '9';
    const unsigned long long number = digit ? strtoull(text, end, 10) : 0;
    if (!digit) *end = text;
    return number <= 1ull << 40 ? (size_t)number : 0;
}

static bool is_dimension(size_t x) { return x > 0 && x <= LINATTN_MAX_DIM; }

static void read_shapes(selection *s, char *list)
{
    s->shape_count = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        char *end;
        shape x = {read_number(word, &end), 0};
        if (*end == 'x') x.dv = read_number(end + 1, &end);
        if (*end || !is_dimension(x.d) || !is_dimension(x.dv))
            refuse("--shapes: '%s' is not dim_key x dim_value, each from 1 to %d, such as 64x64",
                   word, LINATTN_MAX_DIM);
        if (s->shape_count == sizeof s->shapes / sizeof s->shapes[0])
            refuse("--shapes: more than %zu", s->shape_count);
        s->shapes[s->shape_count++] = x;
    }
    if (s->shape_count == 0) refuse("--shapes: the list is empty");
}

static void read_lengths(selection *s, char *list)
{
    s->n_count = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        char *end;
        const size_t n = read_number(word, &end);
        if (*end || n == 0) refuse("--n: '%s' is not a whole number from 1 to 2^40", word);
        if (s->n_count == sizeof s->n / sizeof s->n[0]) refuse("--n: more than %zu", s->n_count);
        s->n[s->n_count++] = n;
    }
    if (s->n_count == 0) refuse("--n: the list is empty");
}

/* The set of those of `count` things whose names are in the list. */
static unsigned read_set(const char *option, char *list, int first, int count,
                         const char *(*name)(int index))
{
    unsigned set = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        int i = first;
        while (i < count && strcmp(word, name(i)) != 0) i++;
        if (i == count) refuse("%s: unknown name '%s'", option, word);
        set |= 1u << i;
    }
    if (!set) refuse("%s: the list is empty", option);
    return set;
}

static const char *map_name(int map) { return bench_map_name((linattn_feature_map)map); }
static const char *isa_name(int isa) { return linattn_isa_name((linattn_isa)isa); }

static void read_patience(char *text)
{
    char *end;
    const size_t seconds = read_number(text, &end);
    if (*end || seconds == 0) refuse("--patience: '%s' is not a whole number from 1 to 2^40", text);
    bench_patience((double)seconds);
}

static void read_against(const char *file)
{
    const char *problem = bench_against(file);
    if (problem) refuse("--against: %s: %s", file, problem);
}

static void read_option(selection *s, char *argument)
{
    char *value;
    if (strcmp(argument, "--full") == 0) {
        s->full = true;
    } else if (strcmp(argument, "--check") == 0) {
        s->check = true;
    } else if ((value = gbench_value(argument, "--patience="))) {
        read_patience(value);
    } else if ((value = gbench_value(argument, "--against="))) {
        read_against(value);
    } else if ((value = gbench_value(argument, "--isas="))) {
        s->isas &= read_set("--isas", value, LINATTN_ISA_SCALAR, LINATTN_ISA_COUNT, isa_name);
        if (!s->isas) refuse("--isas: this processor or this build has none of these");
    } else {
        s->given = true;
        if ((value = gbench_value(argument, "--shapes=")))
            read_shapes(s, value);
        else if ((value = gbench_value(argument, "--n=")))
            read_lengths(s, value);
        else if ((value = gbench_value(argument, "--maps=")))
            s->maps = read_set("--maps", value, 0, LINATTN_MAP_COUNT, map_name);
        else if ((value = gbench_value(argument, "--rules=")))
            s->rules = read_set("--rules", value, 0, RULE_ROWS, rule_row_name);
        else
            refuse("unknown option '%s'", argument);
    }
}

/* ---- What the report's head says ------------------------------------------------------------- */

static void describe(const selection *s)
{
    gbench_context("linattn", LIBRARY_VERSION);
    gbench_context("isa", linattn_isa_name(selection_best(s)));
    gbench_context("compiler", LIBRARY_COMPILER);
#ifdef BENCH_OPENBLAS
    gbench_context("openblas", openblas_description());
#endif
}

#ifdef BENCH_OPENBLAS
/* OpenBLAS reads these before main begins: the program starts again. */
static void start_again(char **argv)
{
    execv("/proc/self/exe", argv);
    perror("linattn_bench: OPENBLAS_CORETYPE could not be changed");
    exit(1);
}

/* The best kernels for the processor, or NULL where OpenBLAS chose kernels with its vectors. */
static const char *better_kernels(void)
{
    static const char *const narrow[] = {"Prescott", "Core2", "Nehalem", "Generic", "Unknown"};
    const unsigned isas = linattn_isa_available();
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        if (strncmp(openblas_description(), narrow[i], strlen(narrow[i])) != 0) continue;
        if (isas >> LINATTN_ISA_AVX512 & 1u) return "SkylakeX";
        if (isas >> LINATTN_ISA_AVX2 & 1u) return "Haswell";
    }
    return NULL;
}
#endif

/* What stands in the environment may make OpenBLAS run slower kernels than it would choose. Left to
   itself it takes a processor that is newer than it is for one without AVX: then it is told. */
static void settle_openblas(char **argv)
{
#ifdef BENCH_OPENBLAS
    static const char told[] = "LINATTN_BENCH_OPENBLAS_TOLD";
    const char *better;
    if (getenv(told)) return;
    if (getenv("OPENBLAS_CORETYPE") || getenv("OPENBLAS_L2_SIZE")) {
        unsetenv("OPENBLAS_CORETYPE");
        unsetenv("OPENBLAS_L2_SIZE");
        start_again(argv);
    }
    better = better_kernels();
    if (!better) return;
    setenv("OPENBLAS_CORETYPE", better, 1);
    setenv(told, "1", 1);
    start_again(argv);
#else
    (void)argv;
#endif
}

/* Only exp differs: a sample will do, unless the user chose. */
#ifdef BENCH_SLEEF_LIBRARY
static void register_sleef(selection s)
{
    if (!s.full && !s.given) return;
    s.full = false;
    register_verbs(&s, &library_sleef);
    register_arrays(&s, &library_sleef);
}
#endif

/* Of the sample some may be too large for a machine. What was asked for is to fit. */
static void check_outcome(const selection *s)
{
    const bench_outcome outcome = bench_what_ran();
    if (!gbench_is_written()) fail("the results could not be written");
    if (outcome.some_failed && !outcome.some_ran) fail("none of the benchmarks could be run");
    if (s->given && outcome.some_lacked_memory)
        fail("not enough memory for all that --shapes, --n, --maps and --rules ask for");
}

int main(int argc, char **argv)
{
    selection s = {0};
    size_t ran;
    check_output();
    settle_openblas(argv);
    s.isas = linattn_isa_available();
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) fputs(usage, stdout);
    if (fflush(stdout) != 0) fail("the help could not be written");
    gbench_init(&argc, argv, 0.05);
    for (int i = 1; i < argc; i++) read_option(&s, argv[i]);
    selection_fill(&s);
    describe(&s);
    register_verbs(&s, &library_o3);
    register_arrays(&s, &library_o3);
#ifdef BENCH_SLEEF_LIBRARY
    register_sleef(s);
#endif
    register_small(&s);
    register_rules(&s);
    register_peers(&s);
    ran = gbench_run();
    check_outcome(&s);
    if (s.check && !(bench_worst_error() < 1e-3)) {
        fprintf(stderr, "linattn_bench: an error of %g\n", bench_worst_error());
        return 1;
    }
    return ran ? 0 : 1;
}
