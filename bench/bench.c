#include "bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "gbench.h"
#include "peak.h"

/* ---- Memory --------------------------------------------------------------------------------- */

const char bench_no_memory[] = "not enough memory";

/* Large blocks begin where a huge page may. */
static void *take_raw(size_t bytes)
{
    const size_t page = bytes >= ((size_t)4 << 20) ? (size_t)2 << 20 : 64;
    const size_t rounded = (bytes / page + 1) * page;
    void *p;
#ifdef __linux__
    const double half = 0.5 * (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if ((double)rounded > half) return NULL;
#endif
    p = aligned_alloc(page, rounded);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (p && page > 64) (void)madvise(p, rounded, MADV_HUGEPAGE);
#endif
    return p;
}

enum { MAX_BLOCKS = 64 };
static void *blocks[MAX_BLOCKS];
static size_t block_count;

void *bench_take(size_t bytes)
{
    void *p = block_count < MAX_BLOCKS ? take_raw(bytes) : NULL;
    if (!p) return NULL;
    memset(p, 0, bytes);
    return blocks[block_count++] = p;
}

float *bench_floats(size_t count) { return bench_take(count * sizeof(float)); }

static void release(void)
{
    while (block_count) free(blocks[--block_count]);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t scramble(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The sum of four uniform numbers, with variance 1. */
static float normal(uint64_t index)
{
    const uint64_t x = scramble(index + 1);
    const uint32_t sum = (uint32_t)(x & 0xffff) + (uint32_t)(x >> 16 & 0xffff) +
                         (uint32_t)(x >> 32 & 0xffff) + (uint32_t)(x >> 48);
    return ((float)sum - 131070.0f) * (1.7320508f / 65536.0f);
}

float *bench_random(size_t count)
{
    static float *pool;
    static size_t size;
    if (count > size) {
        free(pool);
        size = 0;
        pool = take_raw(count * sizeof(float));
        if (!pool) return NULL;
        size = count;
        for (size_t i = 0; i < size; i++) pool[i] = normal(i);
    }
    return pool;
}

/* ---- Operands ------------------------------------------------------------------------------- */

const char *bench_map_name(linattn_feature_map map)
{
    static const char *const names[LINATTN_MAP_COUNT] = {
        [LINATTN_MAP_ELU1] = "elu1",
        [LINATTN_MAP_IDENTITY] = "identity",
        [LINATTN_MAP_RELU] = "relu",
        [LINATTN_MAP_EXP] = "exp",
        [LINATTN_MAP_SOFTMAX] = "softmax",
        [LINATTN_MAP_FAVOR] = "favor",
        [LINATTN_MAP_TAYLOR] = "taylor",
        [LINATTN_MAP_EXPDEF] = "expdef",
        [LINATTN_MAP_FAVOR_SIMPLIFIED] = "favor-simplified",
        [LINATTN_MAP_FAVOR_HYPERBOLIC] = "favor-hyperbolic",
        [LINATTN_MAP_UNIT] = "unit",
    };
    return names[map] ? names[map] : "unnamed";
}

const char *bench_map(const bench *b)
{
    static char name[64];
    snprintf(name, sizeof name, b->parameter ? "%s-%zu" : "%s", bench_map_name(b->map),
             b->parameter);
    return name;
}

const char *bench_by(const bench *b)
{
    static char name[32];
    snprintf(name, sizeof name, "%s%s", linattn_isa_name(b->isa),
             b->library ? b->library->suffix : "");
    return name;
}

static bool projects(const bench *b)
{
    return b->map >= LINATTN_MAP_FAVOR && b->map <= LINATTN_MAP_FAVOR_HYPERBOLIC;
}

/* Rows of the projection, 0 if there is none. */
static size_t projected(const bench *b)
{
    return projects(b) ? b->parameter ? b->parameter : 4 * b->d : 0;
}

linattn_config bench_config(const bench *b)
{
    linattn_config config = {0};
    config.heads = b->heads;
    config.dim_key = b->d;
    config.dim_value = b->dv;
    config.map = b->map;
    config.features = projected(b);
    config.projection = b->projection;
    config.degree = projects(b) ? 0 : b->parameter;
    config.window = b->window;
    config.landmarks = b->landmarks;
    config.normaliser = b->normaliser;
    config.rule = b->rule;
    config.state_type = b->state_type;
    if (b->variant == VARIANT_GROUPED) config.kv_heads = 1;
    if (b->variant == VARIANT_COMPENSATED) config.precision = LINATTN_PRECISION_COMPENSATED;
    if (b->normaliser != LINATTN_NORM_DEFAULT) return config;
    config.normaliser = LINATTN_NORM_SUM;
    if (b->map == LINATTN_MAP_SOFTMAX) config.normaliser = LINATTN_NORM_FEATURE;
    if (b->map == LINATTN_MAP_IDENTITY) config.normaliser = LINATTN_NORM_LENGTH;
    if (b->rule != LINATTN_RULE_SUM) config.normaliser = LINATTN_NORM_NONE;
    return config;
}

void bench_check(linattn_status status)
{
    if (status == LINATTN_OK) return;
    fprintf(stderr, "linattn: %s\n", linattn_status_string(status));
    exit(1);
}

double bench_token_flops(const bench *b)
{
    return 2.0 * (double)(b->m * b->dv) + 2.0 * (double)(projected(b) * b->d);
}

/* Of the exponential maps: e^-88 and less, which favor has from |x'|^2/2 around 88. The others:
   products of about 1e-40. */
static void make_denormal(const bench *b, float *x, size_t floats)
{
    const bool exponential =
        b->map == LINATTN_MAP_ELU1 || b->map == LINATTN_MAP_EXP || b->map == LINATTN_MAP_SOFTMAX;
    const float spread = projects(b) ? (float)sqrt(176.0 / sqrt((double)b->d)) : 1e-20f;
    for (size_t i = 0; i < floats; i++)
        x[i] = exponential ? 4.0f * normal(i) - 88.0f : spread * normal(i);
}

static linattn_view view_of(const bench *b, bool keys, const float *data, size_t tokens, size_t dim)
{
    linattn_view view = {.data = data, .stride_token = dim, .stride_head = tokens * dim};
    if (b->variant == VARIANT_HEADS || (b->variant == VARIANT_GROUPED && !keys)) {
        view.stride_token = b->heads * dim;
        view.stride_head = dim;
    }
    return view;
}

static size_t rounded(size_t floats) { return (floats + 15) / 16 * 16; }

const char *bench_operands(const bench *b, size_t tokens, operands *x)
{
    const size_t rows = b->heads * tokens, keys = rounded(rows * b->d),
                 values = rounded(rows * b->dv);
    const size_t shift = b->variant == VARIANT_MISALIGNED;
    float *in = b->variant == VARIANT_DENORMAL ? bench_floats(2 * keys + values + shift)
                                               : bench_random(2 * keys + values + shift);
    float *out = bench_floats(values + shift);
    linattn_view as_out;
    if (!in || !out) return bench_no_memory;
    if (b->variant == VARIANT_DENORMAL) {
        make_denormal(b, in, 2 * keys);
        for (size_t i = 0; i < values; i++) in[2 * keys + i] = 1e-20f * normal(i);
    }
    in += shift;
    *x = (operands){.tokens = tokens};
    x->q = view_of(b, false, in, tokens, b->d);
    x->k = view_of(b, true, in + keys, tokens, b->d);
    x->v = view_of(b, true, in + 2 * keys, tokens, b->dv);
    as_out = view_of(b, false, out, tokens, b->dv);
    x->out.data = out + shift;
    x->out.stride_token = as_out.stride_token;
    x->out.stride_head = as_out.stride_head;
    return NULL;
}

oracle_problem bench_problem(const bench *b, const operands *x, bool causal)
{
    return (oracle_problem){
        .q = x->q.data,
        .k = x->k.data,
        .v = x->v.data,
        .q_token = x->q.stride_token,
        .k_token = x->k.stride_token,
        .v_token = x->v.stride_token,
        .n = x->tokens,
        .d = b->d,
        .dv = b->dv,
        .map = b->map,
        .features = projected(b),
        .degree = projects(b) ? 0 : b->parameter,
        .projection = b->projection,
        .window = b->window,
        .landmarks = b->landmarks,
        .normaliser = bench_config(b).normaliser,
        .causal = causal,
        .rule = b->rule,
    };
}

void *bench_state(const bench *b)
{
    const linattn_config config = bench_config(b);
    const size_t bytes = linattn_state_size(&config);
    void *state = bench_take(bytes);
    if (state) bench_check(linattn_state_init(&config, state, bytes));
    return state;
}

/* What one head does not take: a projection belongs to it. */
size_t bench_state_header(const bench *b)
{
    linattn_config one = bench_config(b), two;
    one.heads = one.kv_heads = 1;
    two = one;
    two.heads = two.kv_heads = 2;
    return (2 * linattn_state_size(&one) - linattn_state_size(&two)) / sizeof(float);
}

void bench_memory_is_state(bench *b, void *state)
{
    const linattn_config config = bench_config(b);
    const size_t header = bench_state_header(b);
    b->memory = (float *)state + header;
    b->memory_floats = linattn_state_size(&config) / sizeof(float) - header;
}

/* ---- Measuring ------------------------------------------------------------------------------ */

/* Long enough for the clock, short enough that most samples escape the machine's other work. */
static const double sample_seconds = 150e-6, limit_seconds = 15e-6;
enum { least_samples = 5 }; /* of calls so long that one would do for Google Benchmark */

static double patience_seconds = 10.0; /* in all, for other programs to leave the core */

void bench_patience(double seconds) { patience_seconds = seconds; }

/* One thread's benchmarks are timed by its processor time, which stands still while other programs
   have the processor. */
static clockid_t the_clock = CLOCK_THREAD_CPUTIME_ID;

static double read_clock(clockid_t which)
{
    struct timespec t;
    clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) { return read_clock(the_clock); }

/* Seconds of one call. */
static double time_calls(bench *b, void (*call)(bench *b), size_t count)
{
    const double start = now();
    for (size_t i = 0; i < count; i++) call(b);
    return (now() - start) / (double)count;
}

/* How many calls make a sample. */
static size_t calls_per_sample(bench *b)
{
    size_t count = 1;
    b->call(b);
    for (;;) {
        const double seconds = time_calls(b, b->call, count) * (double)count;
        if (seconds >= sample_seconds) return count;
        count *= seconds < 0.1 * sample_seconds ? 8 : 2;
    }
}

/* ---- Another version of the library ---------------------------------------------------------- */

static const library *other_o3, *other_o2;

const char *bench_against(const char *file)
{
    void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!object) return dlerror();
    other_o3 = dlsym(object, "library_o3");
    other_o2 = dlsym(object, "library_o2");
    return other_o3 && other_o2 ? NULL : "it does not define library_o3 and library_o2";
}

/* The version to compare with, or NULL. */
static const library *other_of(const bench *b)
{
    if (b->library == &library_o3) return other_o3;
    return b->library == &library_o2 ? other_o2 : NULL;
}

/* ---- Samples --------------------------------------------------------------------------------- */

/* The benchmark that is open. Google Benchmark calls several times, with more and more iterations.
   */
static struct {
    bench *b;
    bench other; /* by the other version, if it has a library */
    const char *problem;
    size_t calls;         /* of a sample */
    size_t rounds, steps; /* of each limit's loop */
    size_t at;            /* where memory is updated next */
    bool limited, memory_binds;
} current;

/* Seconds of a loop of FMAs, and how many flops these are. */
static double multiply(size_t rounds, double *flops)
{
    const double start = now();
    *flops = peak_of(current.b->isa)->multiply(rounds);
    return now() - start;
}

/* Seconds of updating memory where the benchmark's lies, and how many bytes are moved. A large
   place is walked through a piece at a time, in turn from one sample to the next. */
static double update(size_t steps, double *bytes)
{
    enum { MOST = 1 << 16 };
    const bench *b = current.b;
    const peak *p = peak_of(b->isa);
    const double start = now();
    size_t moved = 0;
    for (size_t i = 0; i < steps; i++) {
        const size_t left = b->memory_floats - current.at, floats = left < MOST ? left : MOST;
        p->update(b->memory + current.at, floats);
        current.at = floats == left ? 0 : current.at + floats;
        moved += 2 * floats * sizeof(float);
    }
    *bytes = (double)moved;
    return now() - start;
}

/* Seconds that the arithmetic of a call takes at least, and that it takes to move its bytes. */
static double arithmetic_limit(void)
{
    const size_t threads = current.b->threads > 1 ? current.b->threads : 1;
    double flops;
    const double seconds = multiply(current.rounds, &flops);
    return current.b->flops * seconds / (flops * (double)threads);
}

static double memory_limit(void)
{
    double bytes;
    const double seconds = update(current.steps, &bytes);
    return current.b->bytes * seconds / bytes;
}

/* The one that binds. Disturbances only add, and weigh more in a short loop than in a long sample:
   the smallest of three. */
static double binding_limit(void)
{
    double least = HUGE_VAL;
    if (!current.limited) return 0.0;
    for (int i = 0; i < 3; i++)
        least = fmin(least, current.memory_binds ? memory_limit() : arithmetic_limit());
    return least;
}

static double shortest_turns = HUGE_VAL;

/* Seconds of instructions that want nothing but their turn, at least. Another program on the other
   thread of this core takes turns, of which no clock knows, nor a loop of FMAs, which leaves turns
   to spare. Where a machine is virtual the processor's time goes back at times: not that clock. */
static double time_turns(void)
{
    double least = HUGE_VAL;
    for (int i = 0; i < 3; i++) {
        const double start = read_clock(CLOCK_MONOTONIC);
        for (int round = 0; round < 500; round++) {
#ifdef __GNUC__
            __asm__ volatile(".rept 96\n\tnop\n\t.endr");
#endif
        }
        least = fmin(least, read_clock(CLOCK_MONOTONIC) - start);
    }
    shortest_turns = fmin(shortest_turns, least);
    return least;
}

static bool undisturbed(double turns) { return turns <= 1.15 * shortest_turns; }

/* Waits for the core to be left alone, as long as there is patience. */
static double turns_alone(bench *b)
{
    double turns = time_turns();
    if (undisturbed(turns)) return turns;
    for (; patience_seconds > 0.0 && !undisturbed(turns); turns = time_turns()) {
        const double start = read_clock(CLOCK_MONOTONIC);
        double waited = 0.0; /* awake: after a sleep a core is slow for a while */
        while (waited < 1e-3) waited = read_clock(CLOCK_MONOTONIC) - start;
        patience_seconds -= waited;
    }
    b->call(b); /* which is warm again */
    return turns;
}

/* Whether a loop is too short for the clock. One disturbance must not make it seem long enough: it
   would stay short for all samples. */
static bool too_short(double (*loop)(size_t size, double *count), size_t size)
{
    double count, least = HUGE_VAL;
    for (int i = 0; i < 3; i++) least = fmin(least, loop(size, &count));
    return least < limit_seconds;
}

static void size_limits(const bench *b)
{
    current.limited = b->flops > 0.0 || b->bytes > 0.0;
    if (!current.limited) return;
    current.rounds = current.steps = 1;
    current.at = 0;
    while (too_short(multiply, current.rounds)) current.rounds *= 2;
    while (b->memory_floats && too_short(update, current.steps)) current.steps *= 2;
}

/* Which limit binds; the smallest of a few trials each, as disturbances only add. */
static bool memory_binds(const bench *b)
{
    double arithmetic = HUGE_VAL, memory = HUGE_VAL;
    if (!current.limited) return false;
    if (b->flops == 0.0) return true;
    if (b->memory_floats == 0) return false;
    for (int i = 0; i < 5; i++) {
        arithmetic = fmin(arithmetic, arithmetic_limit());
        memory = fmin(memory, memory_limit());
    }
    return memory > arithmetic;
}

typedef struct series {
    double *x;
    size_t count, capacity;
} series;

static void push(series *s, double x)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 256;
        s->x = realloc(s->x, s->capacity * sizeof(double));
        if (!s->x) exit(1);
    }
    s->x[s->count++] = x;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that a share of the series lies below. */
static double quantile(series *s, double share)
{
    qsort(s->x, s->count, sizeof(double), ascending);
    return s->count ? s->x[(size_t)(share * (double)(s->count - 1) + 0.5)] : 0.0;
}

static double worst_error;

double bench_worst_error(void) { return worst_error; }

static bench_outcome outcome;

bench_outcome bench_what_ran(void) { return outcome; }

static const char *open_projection(bench *b)
{
    float *rows = bench_floats(projected(b) * b->d);
    if (!rows) return bench_no_memory;
    bench_check(linattn_random_features(1, LINATTN_RANDOM_ORTHOGONAL, projected(b), b->d, rows));
    b->projection = rows;
    return NULL;
}

/* With operands, states and outputs of its own. */
static const char *open_other(const bench *b)
{
    bench *other = &current.other;
    *other = *b;
    other->library = other_of(b);
    if (!other->library) return NULL;
    bench_check(other->library->isa_select(b->isa));
    return other->open(other);
}

static void open_bench(bench *b)
{
    if (current.b == b) return;
    release();
    current.b = b;
    b->error = -1.0;
    b->flops = b->bytes = 0.0;
    b->memory_floats = 0;
    bench_check(linattn_isa_select(b->isa));
    if (b->library) bench_check(b->library->isa_select(b->isa));
    the_clock = b->threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    current.problem = projects(b) ? open_projection(b) : NULL;
    if (!current.problem) current.problem = b->open(b);
    if (!current.problem) current.problem = open_other(b);
    outcome.some_failed |= current.problem != NULL;
    outcome.some_lacked_memory |= current.problem == bench_no_memory;
    outcome.some_ran |= !current.problem;
    if (current.problem) return;
    worst_error = fmax(worst_error, b->error);
    b->memory_floats -= b->memory_floats % 128; /* a step of the loop in peak.c, at most */
    current.calls = calls_per_sample(b);
    size_limits(b);
    current.memory_binds = memory_binds(b);
}

typedef struct samples {
    series seconds, base, share, against, versions, turns;
} samples;

static void free_samples(samples *s)
{
    free(s->seconds.x);
    free(s->base.x);
    free(s->share.x);
    free(s->against.x);
    free(s->versions.x);
    free(s->turns.x);
}

static void keep(series *s, const series *turns)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++)
        if (undisturbed(turns->x[i])) s->x[kept++] = s->x[i];
    s->count = kept;
}

static size_t count_undisturbed(const samples *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->turns.count; i++) count += undisturbed(s->turns.x[i]);
    return count;
}

/* Leaves the samples for which the core was left alone. Which share they are; 0 if they were too
   few, and all stay. */
static double keep_undisturbed(samples *s)
{
    const size_t count = count_undisturbed(s);
    if (count < least_samples) return 0.0;
    keep(&s->seconds, &s->turns);
    keep(&s->base, &s->turns);
    keep(&s->share, &s->turns);
    keep(&s->against, &s->turns);
    keep(&s->versions, &s->turns);
    return (double)count / (double)s->turns.count;
}

/* Threads that have waited for long sleep: a call wakes them. States that stay in the caches were
   driven out by the base's. */
static double time_warm(bench *b, void (*call)(bench *b))
{
    if (b->threads > 1 || b->comparison == COMPARE_SHARE || current.other.library) call(b);
    return time_calls(b, call, current.calls);
}

/* Seconds of all calls of the sample, which goes to s. */
static double sample(bench *b, samples *s)
{
    const double turns = turns_alone(b);
    const double before = binding_limit();
    const double base = b->comparison ? time_warm(b, b->base) : 0.0;
    const double seconds = time_warm(b, b->call);
    const double after = binding_limit();
    const double other = current.other.library ? time_warm(&current.other, b->call) : 0.0;
    push(&s->turns, fmax(turns, time_turns()));
    push(&s->seconds, seconds);
    push(&s->share, 0.5 * (before + after) / seconds);
    push(&s->base, base);
    push(&s->against, base > 0.0 ? seconds / base : 0.0);
    push(&s->versions, other > 0.0 ? seconds / other : 0.0);
    return seconds * (double)current.calls;
}

static void report_comparison(gbench_state *state, const bench *b, samples *s)
{
    const double seconds = quantile(&s->seconds, 0.5), base = quantile(&s->base, 0.5);
    const double against = quantile(&s->against, 0.5);
    if (b->comparison == COMPARE_TIMES) gbench_counter(state, "times", against);
    if (b->comparison == COMPARE_SPEEDUP) gbench_counter(state, "speedup", 1.0 / against);
    if (b->comparison == COMPARE_SHARE) {
        gbench_counter(state, "share", seconds / base);
        gbench_counter(state, "base_ns", 1e9 * base / b->items);
    }
}

static void report(gbench_state *state, const bench *b, samples *s)
{
    const double seconds = quantile(&s->seconds, 0.5);
    const double quartiles = quantile(&s->seconds, 0.75) - quantile(&s->seconds, 0.25);
    gbench_counter(state, "ns", 1e9 * seconds / b->items);
    gbench_counter(state, "spread", quartiles / seconds);
    if (b->flops > 0.0) gbench_counter(state, "gflops", 1e-9 * b->flops / seconds);
    if (current.limited) gbench_counter(state, "peak", quantile(&s->share, 0.5));
    if (current.limited) gbench_counter(state, "memory_bound", current.memory_binds);
    report_comparison(state, b, s);
    if (current.other.library) gbench_counter(state, "against", quantile(&s->versions, 0.5));
    if (b->error >= 0.0) gbench_counter(state, "error", b->error);
}

static void run(gbench_state *state, void *argument)
{
    bench *b = argument;
    samples s = {0};
    open_bench(b);
    if (current.problem) {
        gbench_skip(state, current.problem);
        return;
    }
    while (gbench_next(state, current.calls)) gbench_time(state, sample(b, &s));
    while (s.seconds.count < least_samples ||
           (patience_seconds > 0.0 && count_undisturbed(&s) < least_samples))
        patience_seconds -= sample(b, &s);
    gbench_counter(state, "alone", keep_undisturbed(&s));
    report(state, b, &s);
    free_samples(&s);
}

/* ---- Registration --------------------------------------------------------------------------- */

void bench_add(const bench *b, const char *format, ...)
{
    bench *copy = malloc(sizeof *copy); /* lives as long as the process */
    const linattn_config config = bench_config(b);
    va_list args;
    if (!copy) exit(1);
    *copy = *b;
    copy->m = linattn_features(&config);
    va_start(args, format);
    vsnprintf(copy->name, sizeof copy->name, format, args);
    va_end(args);
    gbench_register(copy->name, run, copy);
}
