/* linattn_bench: see `usage`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gbench.h"

static const char usage[] =
    "usage: linattn_bench [OPTION...] [Google Benchmark's options, see --help]\n"
    "  --full               every map and shape, more lengths; default: a sample of some minutes\n"
    "  --shapes=64x64,...   dim_key x dim_value\n"
    "  --n=1,4096,...       tokens\n"
    "  --maps=elu1,...      elu1, identity, relu, exp, softmax, favor, favor-simplified,\n"
    "                       favor-hyperbolic, taylor, expdef\n"
    "  --isas=avx2,...      scalar, neon, avx2, avx512\n"
    "  --check              fail if a result is wrong\n"
    "With --shapes, --n or --maps: all their combinations.\n"
    "Names: kernel/map[-parameter]/isa or peer/dim_key x dim_value/n[/variant]; parameters are\n"
    "favor's rows of the projection, the degree of taylor and expdef, nystrom's landmarks. "
    "Counters:\n"
    "  ns            per token and head, per element, per merge or per call; a median\n"
    "  spread        of the samples' middle half, relative to that\n"
    "  gflops        2 m dv for each of adding a key and reading a query, m features; favor: and\n"
    "                2 M dim_key to project each; nystrom: 4 landmarks (dim_key + dv) per token;\n"
    "                band: those of causal, so that its share tells how much slower it is\n"
    "  peak          the least possible time over the time taken: see memory_bound\n"
    "  memory_bound  0: that time is of an FMA loop; 1: of updating as many bytes in that place\n"
    "  error         the largest against double precision, relative to its row's largest element\n"
    "  times         as long as on aligned, dense, ordinary operands; a window: as without;\n"
    "                1,048,576 tokens: as in sequences of 1,024;\n"
    "                a peer: as linattn on the same operands. Samples of both are taken by turns\n"
    "  speedup       over one thread\n"
    "  overhead      ns of a call, beside its kernel\n";

static const shape all_shapes[] = {{16, 16}, {32, 32}, {33, 33},   {40, 40},   {64, 64}, {65, 65},
                                   {72, 72}, {96, 96}, {100, 100}, {128, 128}, {256, 64}};
static const size_t all_lengths[] = {1,   2,   3,    5,    8,     16,    64,
                                     128, 256, 1024, 4096, 16384, 65536, 1048576};

/* ---- What is wanted ------------------------------------------------------------------------- */

linattn_isa bench_best(const selection *s)
{
    linattn_isa best = LINATTN_ISA_SCALAR;
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++)
        if (s->isas >> isa & 1u) best = (linattn_isa)isa;
    return best;
}

static bool in_sets(const selection *s, linattn_isa isa, linattn_feature_map map)
{
    return (s->isas >> isa & 1u) && (s->maps >> map & 1u);
}

/* Maps with a parameter, and the shapes that a sample has of each. */
typedef struct method {
    linattn_feature_map map;
    size_t parameter;
    shape shape;
} method;

static const method methods[] = {
    {LINATTN_MAP_FAVOR, 256, {64, 64}},
    {LINATTN_MAP_FAVOR, 128, {32, 32}},
    {LINATTN_MAP_FAVOR, 512, {128, 128}},
    {LINATTN_MAP_FAVOR_SIMPLIFIED, 256, {64, 64}},
    {LINATTN_MAP_FAVOR_HYPERBOLIC, 128, {64, 64}},
    {LINATTN_MAP_TAYLOR, 2, {16, 64}},
    {LINATTN_MAP_TAYLOR, 2, {32, 64}},
    {LINATTN_MAP_TAYLOR, 4, {8, 64}},
    {LINATTN_MAP_EXPDEF, 2, {16, 64}},
};

bool bench_case(const selection *s, size_t i, bench *b)
{
    const size_t maps = s->given ? LINATTN_MAP_COUNT : LINATTN_MAP_FAVOR;
    const size_t plain = maps * s->shape_count;
    shape x = {0, 0};
    if (i < plain) {
        b->map = (linattn_feature_map)(i / s->shape_count);
        b->parameter = 0;
        x = s->shapes[i % s->shape_count];
    } else if (!s->given && i - plain < sizeof methods / sizeof methods[0]) {
        b->map = methods[i - plain].map;
        b->parameter = methods[i - plain].parameter;
        x = methods[i - plain].shape;
    }
    b->d = x.d;
    b->dv = x.dv;
    return x.d != 0;
}

/* What a full run has of lengths on other shapes than the usual one. */
static bool sampled_length(size_t n) { return n == 1 || n == 16 || n == 256 || n == 65536; }

bool bench_wanted(const selection *s, const bench *b)
{
    const bool usual_map = b->map == LINATTN_MAP_ELU1, usual_shape = b->d == 64 && b->dv == 64;
    const bool scalar = b->isa == LINATTN_ISA_SCALAR;
    const bool usual_n = b->n == (size_t)(scalar ? bench_scalar_length : bench_usual_length);
    if (!in_sets(s, b->isa, b->map)) return false;
    if (s->given) return true;
    if (b->parameter) return usual_n && !scalar;
    if (s->full) return usual_n || (usual_map && !scalar && (usual_shape || sampled_length(b->n)));
    return (usual_n && (usual_shape || (usual_map && !scalar))) ||
           (usual_map && usual_shape && b->isa == bench_best(s));
}

bool bench_sampled(const selection *s, const bench *b)
{
    return s->full || s->given || b->d >= 256 || (b->d == b->dv && (b->d & (b->d - 1)) == 0);
}

bool bench_wanted_array(const selection *s, linattn_isa isa, linattn_feature_map map, size_t n)
{
    if (!in_sets(s, isa, map)) return false;
    if (s->given) return true;
    return n == bench_usual_length || (n >= 64 && (s->full || map == LINATTN_MAP_EXP));
}

/* ---- The command line ----------------------------------------------------------------------- */

static void refuse(const char *what)
{
    fprintf(stderr, "linattn_bench: %s\n%s", what, usage);
    exit(1);
}

static void read_shapes(selection *s, char *list)
{
    s->shape_count = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        shape x;
        if (sscanf(word, "%zux%zu", &x.d, &x.dv) != 2 || x.d == 0 || x.dv == 0) refuse(word);
        if (s->shape_count == sizeof s->shapes / sizeof s->shapes[0]) refuse("too many shapes");
        s->shapes[s->shape_count++] = x;
    }
}

static void read_lengths(selection *s, char *list)
{
    s->n_count = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        const size_t n = strtoul(word, NULL, 10);
        if (n == 0) refuse(word);
        if (s->n_count == sizeof s->n / sizeof s->n[0]) refuse("too many lengths");
        s->n[s->n_count++] = n;
    }
}

/* The set of those of `count` things whose names are in the list. */
static unsigned read_set(char *list, int count, const char *(*name)(int index))
{
    unsigned set = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        int i = 0;
        while (i < count && strcmp(word, name(i)) != 0) i++;
        if (i == count) refuse(word);
        set |= 1u << i;
    }
    return set;
}

static const char *map_name(int map) { return bench_map_name((linattn_feature_map)map); }
static const char *isa_name(int isa) { return linattn_isa_name((linattn_isa)isa); }

/* What follows "--option=", or NULL. */
static char *value_of(char *argument, const char *option)
{
    const size_t length = strlen(option);
    return strncmp(argument, option, length) == 0 ? argument + length : NULL;
}

static void read_option(selection *s, char *argument)
{
    char *value;
    if (strcmp(argument, "--full") == 0) {
        s->full = true;
    } else if (strcmp(argument, "--check") == 0) {
        s->check = true;
    } else if ((value = value_of(argument, "--isas="))) {
        s->isas &= read_set(value, LINATTN_ISA_COUNT, isa_name);
        if (!s->isas) refuse("none of these instruction sets is available");
    } else {
        s->given = true;
        if ((value = value_of(argument, "--shapes=")))
            read_shapes(s, value);
        else if ((value = value_of(argument, "--n=")))
            read_lengths(s, value);
        else if ((value = value_of(argument, "--maps=")))
            s->maps = read_set(value, LINATTN_MAP_COUNT, map_name);
        else
            refuse(argument);
    }
}

/* What was not given beside something that was is the usual. */
static void fill_in(selection *s)
{
    if (s->given) {
        if (!s->shape_count) s->shapes[s->shape_count++] = (shape){64, 64};
        if (!s->n_count) s->n[s->n_count++] = bench_usual_length;
        if (!s->maps) s->maps = 1u << LINATTN_MAP_ELU1;
        return;
    }
    s->maps = ~0u;
    s->shape_count = sizeof all_shapes / sizeof all_shapes[0];
    s->n_count = sizeof all_lengths / sizeof all_lengths[0];
    memcpy(s->shapes, all_shapes, sizeof all_shapes);
    memcpy(s->n, all_lengths, sizeof all_lengths);
}

static void describe(const selection *s)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", LINATTN_VERSION_MAJOR, LINATTN_VERSION_MINOR,
             LINATTN_VERSION_PATCH);
    gbench_context("linattn", version);
    gbench_context("isa", linattn_isa_name(bench_best(s)));
#if defined(__clang__)
    gbench_context("compiler", "clang " __clang_version__);
#elif defined(__GNUC__)
    gbench_context("compiler", "gcc " __VERSION__);
#endif
}

/* Only exp differs: a sample will do, unless the user chose. */
#ifdef BENCH_KERNELS_SLEEF
static void register_sleef(selection s)
{
    s.full = false;
    register_kernels_sleef(&s);
}
#endif

int main(int argc, char **argv)
{
    selection s = {0};
    size_t ran;
    s.isas = linattn_isa_available();
    if (argc > 1 && strcmp(argv[1], "--help") == 0) fputs(usage, stdout);
    gbench_init(&argc, argv, 0.05);
    for (int i = 1; i < argc; i++) read_option(&s, argv[i]);
    fill_in(&s);
    describe(&s);
    register_kernels(&s);
#ifdef BENCH_KERNELS_SLEEF
    if (s.full || s.given) register_sleef(s);
#endif
    register_verbs(&s);
    register_peers(&s);
    ran = gbench_run();
    if (s.check && !(bench_worst_error() < 1e-3)) {
        fprintf(stderr, "linattn_bench: an error of %g\n", bench_worst_error());
        return 1;
    }
    return ran ? 0 : 1;
}
