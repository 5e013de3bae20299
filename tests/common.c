#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS and posix_memalign under -std=c11 */

#include "common.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define MEMORY_SANITIZER
#endif
#endif

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

const float test_infinity = INFINITY, test_nan = NAN;

/* ---- Start-up ------------------------------------------------------------------------------- */

static linattn_isa isa_under_test;

static linattn_isa isa_from_name(const char *name)
{
    for (int isa = LINATTN_ISA_AUTO; isa < LINATTN_ISA_COUNT; isa++)
        if (strcmp(name, linattn_isa_name((linattn_isa)isa)) == 0) return (linattn_isa)isa;
    fprintf(stderr, "LINATTN_TEST_ISA=%s is not the name of an instruction set\n", name);
    exit(1);
}

void test_begin(void)
{
    fp_set_control(fp_ieee);
    const char *name = getenv("LINATTN_TEST_ISA");
    linattn_isa isa = name && *name ? isa_from_name(name) : LINATTN_ISA_AUTO;
#ifdef MEMORY_SANITIZER
    if (isa == LINATTN_ISA_AUTO) isa = test_isa();
#endif
    isa_under_test = isa;
    /* AUTO without select, so that the library's own first choice is under test, too. */
    if (isa != LINATTN_ISA_AUTO && linattn_isa_select(isa) != LINATTN_OK) {
        fprintf(stderr, "%s is not available here\n", linattn_isa_name(isa));
        exit(getenv("LINATTN_REQUIRE_ISA") ? 1 : 77);
    }
}

bool test_has(linattn_isa isa)
{
#ifdef MEMORY_SANITIZER
    if (isa == LINATTN_ISA_AVX512) return false;
#endif
    static atomic_uint known; /* the processor's answer takes long where it is a virtual one */
    unsigned available = atomic_load_explicit(&known, memory_order_relaxed);
    if (!available) {
        available = linattn_isa_available();
        atomic_store_explicit(&known, available, memory_order_relaxed);
    }
    return available >> isa & 1u;
}

linattn_isa test_isa(void)
{
    if (isa_under_test != LINATTN_ISA_AUTO) return isa_under_test;
    int best = LINATTN_ISA_COUNT - 1;
    while (!test_has((linattn_isa)best) || (best == LINATTN_ISA_SSE2 && test_has(LINATTN_ISA_AVX2)))
        best--;
    return (linattn_isa)best;
}

/* Asked for in loops, and by threads, so that the environment is read once. */
enum { FLAG_UNKNOWN, FLAG_CLEAR, FLAG_SET };

static bool environment_flag(const char *name, atomic_int *known)
{
    int flag = atomic_load_explicit(known, memory_order_relaxed);
    if (flag == FLAG_UNKNOWN) {
        const char *value = getenv(name);
        flag = value && *value && strcmp(value, "0") != 0 ? FLAG_SET : FLAG_CLEAR;
        atomic_store_explicit(known, flag, memory_order_relaxed);
    }
    return flag == FLAG_SET;
}

bool test_quick(void)
{
    static atomic_int quick;
    return environment_flag("LINATTN_TEST_QUICK", &quick);
}

size_t test_long(void)
{
    const char *times = getenv("LINATTN_TEST_LONG");
    return times && *times ? (size_t)strtoull(times, NULL, 0) : 1;
}

bool test_inexact(void)
{
    static atomic_int inexact;
    return environment_flag("LINATTN_TEST_INEXACT", &inexact);
}

int test_teardown(void **state)
{
    (void)state;
    pool_release(0);
    fp_set_control(fp_ieee);
    return linattn_isa_select(isa_under_test) == LINATTN_OK ? 0 : -1;
}

enum { MOST_TESTS = 100 };

int test_run(const char *name, const struct CMUnitTest *tests, size_t count)
{
    struct CMUnitTest chosen[MOST_TESTS];
    const char *only = getenv("LINATTN_TEST_ONLY"), *at = only;
    size_t found = 0;
    if (count > MOST_TESTS) abort();
    /* cmocka returns the number of failed tests, which might be 77. */
    if (!only) return _cmocka_run_group_tests(name, tests, count, NULL, NULL) != 0;
    while (*at) {
        size_t length = strcspn(at, ","), i = 0;
        while (i < count && (strncmp(tests[i].name, at, length) != 0 || tests[i].name[length])) i++;
        if (i == count || found == MOST_TESTS) {
            fprintf(stderr, "LINATTN_TEST_ONLY=%s is not a list of tests of %s\n", only, name);
            return 1;
        }
        chosen[found++] = tests[i];
        at += length + (at[length] == ',');
    }
    return _cmocka_run_group_tests(name, chosen, found, NULL, NULL) != 0;
}

/* ---- Checks --------------------------------------------------------------------------------- */

static void fail_with(const char *file, int line, const char *what, const char *format,
                      va_list arguments)
{
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    print_error("%s\n    with %s, isa=%s\n", what, text, linattn_isa_name(linattn_isa_active()));
    _fail(file, line);
}

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    char what[512];
    snprintf(what, sizeof what, "not so: %s", condition);
    va_list arguments;
    va_start(arguments, format);
    fail_with(file, line, what, format, arguments);
    va_end(arguments);
}

void check_status_at(const char *file, int line, const char *call, linattn_status actual,
                     linattn_status expected, const char *format, ...)
{
    if (actual == expected) return;
    char what[512];
    snprintf(what, sizeof what, "%s\n    returned %d (%s), expected %d (%s)", call, (int)actual,
             linattn_status_string(actual), (int)expected, linattn_status_string(expected));
    va_list arguments;
    va_start(arguments, format);
    fail_with(file, line, what, format, arguments);
    va_end(arguments);
}

/* ---- Random numbers ------------------------------------------------------------------------- */

uint64_t rng_next(rng *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* What a fuzzer gave, and whose choices it makes. */
static struct {
    const rng *reader;
    const unsigned char *at;
    size_t left;
} bytes_given;

/* Of as few bytes as the limit needs. */
static size_t read_choice(size_t limit)
{
    size_t choice = 0;
    for (size_t most = limit - 1; most && bytes_given.left; most >>= 8, bytes_given.left--)
        choice = choice << 8 | *bytes_given.at++;
    return choice % limit;
}

size_t rng_below(rng *r, size_t limit)
{
    if (r == bytes_given.reader && bytes_given.left) return read_choice(limit);
    return (size_t)(rng_next(r) % limit);
}

size_t rng_pick(rng *r, const size_t *choices, size_t count)
{
    return choices[rng_below(r, count)];
}

/* A 24-bit integer and one product, rounded once: the golden run depends on these bits. */
float rng_float(rng *r, float spread)
{
    int32_t integer = (int32_t)(rng_next(r) >> 40) - (1 << 23);
    return (float)integer * 0x1p-23f * spread;
}

void rng_fill(rng *r, float *x, size_t n, float spread)
{
    for (size_t i = 0; i < n; i++) x[i] = rng_float(r, spread);
}

/* Sums of twelve 16-bit integers, exact in float on every machine. */
void rng_fill_normal(rng *r, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t sum = -12 * 32768 + 6;
        for (int word = 0; word < 3; word++)
            for (uint64_t bits = rng_next(r), piece = 0; piece < 4; piece++, bits >>= 16)
                sum += (int32_t)(bits & 0xFFFF);
        x[i] = (float)sum * 0x1p-16f;
    }
}

static uint64_t seed_now;

uint64_t fuzz_seed(void) { return seed_now; }

/* Of the processor, so that a busy machine tests as much as an idle one. */
static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void fuzz(fuzz_function *one, uint64_t rounds, double seconds)
{
    enum { LEAST = 20 };
    const char *given = getenv("LINATTN_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 0) : 1, longer = test_long();
    double start = seconds_now();
    if (test_quick()) seconds /= 4;
    for (uint64_t i = 0; i < longer * rounds; i++) {
        if (i >= LEAST && seconds_now() - start >= (double)longer * seconds) break;
        size_t mark = pool_mark();
        seed_now = first + i;
        rng r = {seed_now};
        one(&r);
        pool_release(mark);
    }
}

void fuzz_bytes(fuzz_function *const *functions, size_t count, const unsigned char *bytes,
                size_t size)
{
    static bool begun;
    rng r = {size};
    for (size_t i = 0; i < size; i++) r.state = (r.state ^ bytes[i]) * 0x100000001B3u;
    if (!begun) test_begin();
    begun = true;
    bytes_given.reader = &r;
    bytes_given.at = bytes;
    bytes_given.left = size;
    functions[rng_below(&r, count)](&r);
    bytes_given.reader = NULL;
    pool_release(0);
}

/* ---- Memory --------------------------------------------------------------------------------- */

typedef struct pool_block {
    void *base;
    size_t mapped; /* 0: from malloc */
} pool_block;

static pool_block *pool;
static size_t pool_count, pool_capacity;

static void *or_abort(void *memory)
{
    if (memory) return memory;
    fprintf(stderr, "out of memory\n");
    abort();
}

static void pool_add(void *base, size_t mapped)
{
    if (pool_count == pool_capacity) {
        pool_capacity = pool_capacity ? 2 * pool_capacity : 64;
        pool = (pool_block *)or_abort(realloc(pool, pool_capacity * sizeof *pool));
    }
    pool[pool_count++] = (pool_block){base, mapped};
}

size_t pool_mark(void) { return pool_count; }

void pool_release(size_t mark)
{
    while (pool_count > mark) {
        pool_block block = pool[--pool_count];
        if (block.mapped)
            munmap(block.base, block.mapped);
        else
            free(block.base);
    }
    if (pool_count) return;
    free(pool);
    pool = NULL;
    pool_capacity = 0;
}

/* What fresh memory holds: no plausible result, neither as float nor as state. */
#define PATTERN 0xA5

/* To the memory sanitizer, not written yet. */
static void *unwritten(void *memory, size_t bytes)
{
#ifdef MEMORY_SANITIZER
    __msan_poison(memory, bytes);
#else
    (void)bytes;
#endif
    return memory;
}

void pool_known(const void *memory, size_t bytes)
{
#ifdef MEMORY_SANITIZER
    __msan_unpoison(memory, bytes);
#else
    (void)memory;
    (void)bytes;
#endif
}

void *pool_take(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes ? bytes : 1) != 0) memory = NULL;
    pool_add(or_abort(memory), 0);
    memset(memory, PATTERN, bytes);
    return unwritten(memory, bytes);
}

void *pool_take_guarded(size_t bytes, guard side)
{
    if (side == GUARD_NONE) return pool_take(bytes);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page - 1) / page * page;
    size_t mapped = inside + 2 * page;
    unsigned char *base =
        (unsigned char *)mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) or_abort(NULL);
    if (inside && mprotect(base + page, inside, PROT_READ | PROT_WRITE) != 0) or_abort(NULL);
    pool_add(base, mapped);
    unsigned char *memory = base + page + (side == GUARD_AFTER ? inside - bytes : 0);
    return bytes ? unwritten(memset(memory, PATTERN, bytes), bytes) : memory;
}

void pool_freeze(void)
{
    pool_block last = pool[pool_count - 1];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (last.mapped <= 2 * page) return;
    if (mprotect((unsigned char *)last.base + page, last.mapped - 2 * page, PROT_READ) != 0)
        or_abort(NULL);
}

float *pool_floats(size_t count) { return (float *)pool_take(count * sizeof(float)); }

double *pool_doubles(size_t count) { return (double *)pool_take(count * sizeof(double)); }

void *pool_copy(const void *source, size_t bytes)
{
    void *copy = pool_take(bytes);
    memcpy(copy, source, bytes);
    return copy;
}

/* ---- Bits ----------------------------------------------------------------------------------- */

float element_value(linattn_element element, uint16_t bits)
{
    if (element == LINATTN_BF16) return float_from_bits((uint32_t)bits << 16);
    int exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
    /* of the last bit: a power of two, made here, as this runs for every number that is narrowed */
    double unit = (double)float_from_bits((uint32_t)(exponent ? exponent + 102 : 103) << 23);
    double size = (exponent ? 1024 + fraction : fraction) * unit;
    if (exponent == 31) size = fraction ? (double)test_nan : (double)test_infinity;
    return (float)(bits >> 15 ? -size : size);
}

/* Numbers of either format ascend with their bits. */
uint16_t element_bits(linattn_element element, float x)
{
    uint16_t sign = (uint16_t)(float_bits(x) >> 31 << 15), low = 0, step;
    if (element == LINATTN_BF16) return (uint16_t)(float_bits(x) >> 16);
    if (float_is_nan(x)) return (uint16_t)(sign | 0x7E00);
    for (step = 0x4000; step; step /= 2)
        if (low + step <= 0x7C00 &&
            fabs((double)element_value(element, (uint16_t)(low + step))) <= fabs((double)x))
            low = (uint16_t)(low + step);
    return (uint16_t)(sign | low);
}

void narrow(linattn_element element, float *x, size_t count)
{
    for (size_t i = 0; i < count && element != LINATTN_F32; i++)
        x[i] = element_value(element, element_bits(element, x[i]));
}

/* ---- The floating-point environment --------------------------------------------------------- */

#if defined(__SSE__)

/* Above MXCSR, on 32-bit x86, the control word of the 8087, which some conversions still take. */
#if defined(__i386__)
#define X87(control) ((uint64_t)(control) << 32)
static uint64_t x87_control(void)
{
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    return X87(control);
}
static void x87_set_control(uint64_t all)
{
    uint16_t control = (uint16_t)(all >> 32);
    __asm__ volatile("fnclex\n\tfldcw %0" : : "m"(control));
}
#else
#define X87(control) 0
static uint64_t x87_control(void) { return 0; }
static void x87_set_control(uint64_t all) { (void)all; }
#endif

const uint64_t fp_ieee = 0x1F80 | X87(0x037F), fp_flags = 0x3F;

uint64_t fp_control(void) { return _mm_getcsr() | x87_control(); }

void fp_set_control(uint64_t control)
{
    _mm_setcsr((unsigned)control);
    x87_set_control(control);
}

static const struct {
    uint64_t control;
    const char *name;
} hostile[] = {
    {0x3FA1 | X87(0x077F), "rounding down"},
    {0x5F80 | X87(0x0B7F), "rounding up"},
    {0x7FBF | X87(0x0F7F), "rounding to zero"},
    {0x9FC0 | X87(0x027F), "FTZ and DAZ"},
    {0x9F92 | X87(0x007F), "FTZ"},
    {0x1FCC | X87(0x037F), "DAZ"},
    {0xDFFF | X87(0x087F), "rounding up, FTZ and DAZ"},
    {0x0000 | X87(0x0340), "every exception trapping"},
    {0x203F | X87(0x0740), "rounding down, every exception trapping and past"},
    {0xFFFF | X87(0x0C7F), "rounding to zero, FTZ, DAZ, every exception past"},
};

#elif defined(__aarch64__)

/* FPSR has the sticky flags, QC of saturating integers with them. */
#define FPSR(flags) ((uint64_t)(flags) << 32)

const uint64_t fp_ieee = 0, fp_flags = FPSR(0x0800009F);

uint64_t fp_control(void)
{
    uint64_t control, status;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control), "=r"(status));
    return control | (FPSR(status) & fp_flags);
}

void fp_set_control(uint64_t control)
{
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1"
                     :
                     : "r"(control & 0xFFFFFFFF), "r"(control >> 32)
                     : "memory");
}

static const struct {
    uint64_t control;
    const char *name;
} hostile[] = {
    {1u << 22, "rounding up"},
    {2u << 22 | FPSR(0x11), "rounding down"},
    {3u << 22, "rounding to zero"},
    {1u << 24 | FPSR(0x8A), "flush to zero"},
    {1u << 25, "default NaN"},
    {3u << 24 | 1u << 22 | FPSR(0x0800009F), "rounding up, flush, default NaN"},
    {0x9F00 | FPSR(0x9F), "every exception trapping, where that is built in, and past"},
};

#elif defined(__arm__) && defined(__ARM_FP)

/* FPSCR, without the outcome of the last comparison. */
const uint64_t fp_ieee = 0, fp_flags = 0x0800009F;

uint64_t fp_control(void)
{
    uint32_t control;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(control));
    return control & 0x0FFFFFFF;
}

void fp_set_control(uint64_t control)
{
    __asm__ volatile("vmsr fpscr, %0" : : "r"((uint32_t)control) : "memory", "cc");
}

static const struct {
    uint64_t control;
    const char *name;
} hostile[] = {
    {1u << 22, "rounding up"},
    {2u << 22 | 0x11, "rounding down"},
    {3u << 22 | 0x80, "rounding to zero"},
    {1u << 24 | 0x0A, "flush to zero"},
    {1u << 25, "default NaN"},
    {3u << 24 | 1u << 22 | 0x0800009F, "rounding up, flush, default NaN"},
    {0x9F00 | 0x9F, "every exception trapping, where that is built in, and past"},
};

#else

const uint64_t fp_ieee = 0, fp_flags = 0;

uint64_t fp_control(void) { return 0; }

void fp_set_control(uint64_t control) { (void)control; }

static const struct {
    uint64_t control;
    const char *name;
} hostile[] = {{0, "the only one known here"}};

#endif

size_t fp_hostile_count(void) { return COUNT_OF(hostile); }

uint64_t fp_hostile(size_t index, const char **name)
{
    *name = hostile[index].name;
    return hostile[index].control;
}

/* ---- Threads -------------------------------------------------------------------------------- */

void parallel_reverse(void *user, size_t count, linattn_job *job, void *arg)
{
    (void)user;
    for (size_t i = count; i-- > 0;) job(arg, i);
}

typedef struct thread_job {
    pthread_t thread;
    linattn_job *job;
    void *arg;
    size_t index;
} thread_job;

static void *thread_main(void *job)
{
    thread_job *self = (thread_job *)job;
    self->job(self->arg, self->index);
    return NULL;
}

#define MAX_THREADS 64

void parallel_threads(void *user, size_t count, linattn_job *job, void *arg)
{
    thread_job jobs[MAX_THREADS];
    if (count > MAX_THREADS) abort();
    for (size_t i = 0; i < count; i++) jobs[i] = (thread_job){.job = job, .arg = arg, .index = i};
    for (size_t i = count; i > 1; i--) {
        size_t other = rng_below((rng *)user, i);
        thread_job swapped = jobs[other];
        jobs[other] = jobs[i - 1];
        jobs[i - 1] = swapped;
    }
    for (size_t i = 0; i < count; i++)
        if (pthread_create(&jobs[i].thread, NULL, thread_main, &jobs[i]) != 0) abort();
    for (size_t i = 0; i < count; i++) pthread_join(jobs[i].thread, NULL);
}

linattn_context context_draw(rng *r)
{
    linattn_context context = {parallel_reverse, r, rng_below(r, 6)};
    if (rng_below(r, 8) == 0) context.parallel_for = parallel_threads;
    return context;
}

/* ---- Problems ------------------------------------------------------------------------------- */

linattn_config config_resolved(linattn_config config)
{
    if (config.key_heads && config.kv_heads) config.heads = config.kv_heads;
    if (!config.heads) config.heads = 1;
    if (!config.kv_heads) config.kv_heads = config.heads;
    if (!config.dim_value) config.dim_value = config.dim_key;
    if (config.normaliser == LINATTN_NORM_DEFAULT && config.rule != LINATTN_RULE_SUM)
        config.normaliser = LINATTN_NORM_NONE;
    if (config.normaliser == LINATTN_NORM_DEFAULT)
        config.normaliser =
            config.map == LINATTN_MAP_SOFTMAX ? LINATTN_NORM_FEATURE : LINATTN_NORM_SUM;
    if (map_is_favor(config.map) && !config.features) config.features = 4 * config.dim_key;
    if (map_is_monomial(config.map) && !config.degree) config.degree = 2;
    return config;
}

/* C(dim + degree, degree), as products of which every one is a binomial coefficient. */
static size_t monomials(size_t dim, size_t degree)
{
    uint64_t count = 1;
    for (uint64_t p = 1; p <= degree; p++) {
        if (count > ((uint64_t)1 << 48) / (dim + p)) return SIZE_MAX;
        count = count * (dim + p) / p;
    }
    return (size_t)count;
}

size_t config_features(const linattn_config *config)
{
    linattn_config c = config_resolved(*config);
    if (map_is_monomial(c.map)) return monomials(c.dim_key, c.degree);
    if (!map_is_favor(c.map)) return c.dim_key;
    return c.map == LINATTN_MAP_FAVOR_HYPERBOLIC ? 2 * c.features : c.features;
}

bool map_is_favor(linattn_feature_map map)
{
    return map == LINATTN_MAP_FAVOR || map == LINATTN_MAP_FAVOR_SIMPLIFIED ||
           map == LINATTN_MAP_FAVOR_HYPERBOLIC;
}

bool map_is_monomial(linattn_feature_map map)
{
    return map == LINATTN_MAP_TAYLOR || map == LINATTN_MAP_EXPDEF;
}

bool map_is_exponential(linattn_feature_map map)
{
    return map == LINATTN_MAP_EXP || map == LINATTN_MAP_SOFTMAX || map_is_favor(map);
}

bool map_has_fields(linattn_feature_map map) { return map_is_favor(map) || map_is_monomial(map); }

bool map_has_signs(linattn_feature_map map)
{
    return map == LINATTN_MAP_IDENTITY || map == LINATTN_MAP_UNIT || map_is_monomial(map);
}

bool map_masks(linattn_feature_map map) { return !map_has_signs(map); }

problem problem_new(linattn_config config, size_t n_q, size_t n_k, rng *r, float spread)
{
    problem p = {.config = config_resolved(config), .n_q = n_q, .n_k = n_k};
    p.q = pool_floats(n_q * query_width(&p));
    p.k = pool_floats(n_k * key_width(&p));
    p.v = pool_floats(n_k * value_width(&p));
    rng_fill(r, p.q, n_q * query_width(&p), spread);
    rng_fill(r, p.k, n_k * key_width(&p), spread);
    rng_fill(r, p.v, n_k * value_width(&p), 1);
    if (map_is_favor(p.config.map) && !p.config.projection) {
        size_t count = p.config.features * p.config.dim_key;
        float *projection = pool_floats(count);
        rng_fill_normal(r, projection, count);
        p.config.projection = projection;
    }
    return p;
}

const size_t odd_dims[ODD_DIMS] = {1,  2,  3,  4,  5,  6,   7,   8,   9,   10,  11,  12,  13,
                                   14, 15, 16, 17, 18, 19,  20,  31,  32,  33,  63,  64,  65,
                                   72, 79, 80, 96, 97, 100, 127, 128, 129, 130, 255, 256, 257};

linattn_config config_draw(rng *r, int map, int normaliser, size_t dim_key, size_t most)
{
    static const size_t heads[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 2}, {3, 1}, {5, 5}};
    static const float scales[] = {0, 0.25f, 0.125f, 3}, epsilons[] = {0, 0.01f, 2};
    size_t h = rng_below(r, COUNT_OF(heads));
    linattn_config config = {.heads = heads[h][0],
                             .kv_heads = heads[h][1],
                             .dim_key = dim_key ? dim_key : rng_pick(r, odd_dims, ODD_DIMS),
                             .dim_value = rng_pick(r, odd_dims, ODD_DIMS),
                             .map = (linattn_feature_map)map,
                             .normaliser = (linattn_normaliser)normaliser,
                             .scale = scales[rng_below(r, COUNT_OF(scales))],
                             .epsilon = epsilons[rng_below(r, COUNT_OF(epsilons))]};
    config_draw_features(r, &config, most);
    return config;
}

void config_draw_features(rng *r, linattn_config *config, size_t most)
{
    if (map_is_favor(config->map)) {
        size_t kind = rng_below(r, 8), count = 1 + rng_below(r, 300);
        if (kind == 0 && 4 * config->dim_key <= most) count = 0;
        if (kind > 4) count = rng_pick(r, odd_dims, ODD_DIMS);
        config->features = count < most ? count : most;
    }
    if (map_is_monomial(config->map)) {
        config->degree = rng_below(r, 9);
        while (config->degree != 1 && config_features(config) > most)
            config->degree = config->degree ? config->degree - 1 : 1;
    }
}

linattn_element state_type_draw(rng *r, const linattn_config *config)
{
    if (config->window || config->precision || map_has_fields(config->map) || rng_below(r, 2))
        return LINATTN_F32;
    return rng_below(r, 2) ? LINATTN_F16 : LINATTN_BF16;
}

size_t window_draw(rng *r, size_t most)
{
    static const size_t windows[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 31, 32, 48, 63, 64, 65, 128};
    size_t window =
        rng_below(r, 2) ? 1 + rng_below(r, most) : rng_pick(r, windows, COUNT_OF(windows));
    return window < most ? window : most;
}

size_t dim_draw(rng *r)
{
    switch (rng_below(r, 8)) {
    case 0: return 1 + rng_below(r, 300);
    case 1: return ((size_t)1 << rng_below(r, 8)) + rng_below(r, 3);
    default: return 1 + rng_below(r, 40);
    }
}

/* Mostly powers of ten from one end of the range to the other. */
float wild_draw(rng *r)
{
    static const float magnitudes[] = {3e38f,  FLT_MAX, 1e38f,  1e30f,  1e20f,  1e10f,  3e6f,
                                       1.5e6f, 1e6f,    1e4f,   1e3f,   100,    10,     1,
                                       0.1f,   1e-5f,   1e-20f, 1e-38f, 1e-40f, 1e-45f, 0};
    float magnitude = magnitudes[rng_below(r, COUNT_OF(magnitudes))];
    return rng_below(r, 2) ? magnitude : -magnitude;
}

/* Wild to a degree: all elements, one in ten, or everything of one magnitude. */
void wild_fill(rng *r, float *x, size_t n)
{
    size_t kind = rng_below(r, 3);
    float common = wild_draw(r);
    rng each = {rng_next(r)};
    for (size_t i = 0; i < n; i++) {
        if (kind == 0 || (kind == 1 && rng_below(&each, 10) == 0)) x[i] = wild_draw(&each);
        if (kind == 2) x[i] = rng_below(&each, 2) ? common : -common;
    }
}

float bits_draw(rng *r)
{
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000,
                                       0xFFC00001, 0x7F800001, 0x00000001, 0x807FFFFF, 0x00800000,
                                       0x7F7FFFFF, 0xFF7FFFFF, 0x7F61B1E6, 0xFF61B1E6};
    if (rng_below(r, 2)) return float_from_bits(special[rng_below(r, COUNT_OF(special))]);
    return float_from_bits((uint32_t)rng_next(r));
}

void spoil_floats(rng *r, float *x, size_t count, size_t width)
{
    size_t one_in = (size_t)1 << rng_below(r, 12);
    bool rows = rng_below(r, 2) != 0;
    rng each = {rng_next(r)};
    for (size_t i = 0; i < count; i++)
        if (rng_below(&each, one_in) == 0) x[i] = bits_draw(&each);
    for (size_t row = 0; rows && row < count / width; row++)
        for (size_t i = 0; row % 3 == 0 && i < width; i++) x[row * width + i] = -test_infinity;
}

size_t query_width(const problem *p) { return p->config.heads * p->config.dim_key; }

size_t key_width(const problem *p) { return p->config.kv_heads * p->config.dim_key; }

size_t value_width(const problem *p) { return p->config.kv_heads * p->config.dim_value; }

size_t output_width(const problem *p) { return p->config.heads * p->config.dim_value; }

const char *map_name(linattn_feature_map map)
{
    static const char *const names[] = {"elu1",
                                        "identity",
                                        "relu",
                                        "exp",
                                        "softmax",
                                        "favor",
                                        "favor_simplified",
                                        "favor_hyperbolic",
                                        "taylor",
                                        "expdef",
                                        "unit"};
    return (size_t)map < COUNT_OF(names) ? names[map] : "unknown";
}

const char *normaliser_name(linattn_normaliser normaliser)
{
    static const char *const names[] = {"default", "sum", "feature", "length", "none"};
    return (size_t)normaliser < COUNT_OF(names) ? names[normaliser] : "unknown";
}

/* One of a few buffers in turn, so that several names fit into one message. */
enum { CONFIG_BYTES = 400, NAME_BYTES = CONFIG_BYTES + 80 };

static char *name_buffer(void)
{
    static char buffers[4][NAME_BYTES];
    static unsigned next;
    return buffers[next++ % COUNT_OF(buffers)];
}

/* Returns the length of what is written. */
static size_t write_config(char name[CONFIG_BYTES], const linattn_config *config)
{
    int used = snprintf(
        name, CONFIG_BYTES,
        "map=%s norm=%s heads=%zu/%zu dims=%zu,%zu scale=%g epsilon=%g%s features=%zu degree=%zu "
        "window=%zu rule=%d key_heads=%zu precision=%d state_type=%d sinks=%zu soft_cap=%g%s",
        map_name(config->map), normaliser_name(config->normaliser), config->heads, config->kv_heads,
        config->dim_key, config->dim_value, (double)config->scale, (double)config->epsilon,
        config->projection ? " projection" : "", config->features, config->degree, config->window,
        (int)config->rule, config->key_heads, (int)config->precision, (int)config->state_type,
        config->sinks, (double)config->soft_cap, config->alibi_slopes ? " slopes" : "");
    return used > 0 && used < CONFIG_BYTES ? (size_t)used : CONFIG_BYTES - 1;
}

const char *config_name(const linattn_config *config)
{
    char *name = name_buffer();
    write_config(name, config);
    return name;
}

const char *problem_name(const problem *p)
{
    char *name = name_buffer();
    size_t at = write_config(name, &p->config);
    snprintf(name + at, NAME_BYTES - at, " queries=%zu keys=%zu", p->n_q, p->n_k);
    return name;
}

/* ---- Placed operands ------------------------------------------------------------------------ */

typedef struct placement {
    size_t stride_token, stride_head, extent;
} placement;

static placement placement_of(size_t tokens, size_t heads, size_t dim, layout where)
{
    size_t inner = where.heads_first ? tokens : heads;
    size_t outer = where.heads_first ? heads : tokens;
    size_t row = dim + where.row_gap;
    size_t group = inner * row + where.outer_gap;
    placement result = {where.heads_first ? row : group, where.heads_first ? group : row, 0};
    if (tokens) result.extent = (outer - 1) * group + (inner - 1) * row + dim;
    return result;
}

static float *place(size_t extent, layout where)
{
    size_t offset = where.side == GUARD_NONE ? where.offset : 0;
    return (float *)pool_take_guarded((extent + offset) * sizeof(float), where.side) + offset;
}

static bool is_dense(layout where)
{
    return !where.row_gap && !where.outer_gap && !where.heads_first;
}

linattn_view strided(const float *data, size_t stride_token, size_t stride_head)
{
    linattn_view view = linattn_rows(data);
    view.stride_token = stride_token;
    view.stride_head = stride_head;
    return view;
}

linattn_output strided_output(float *data, size_t stride_token, size_t stride_head)
{
    linattn_output out = {data, stride_token, stride_head, 0};
    return out;
}

layout layout_random(rng *r)
{
    layout where = {0};
    if (rng_below(r, 2)) where.row_gap = rng_below(r, 9);
    if (rng_below(r, 2)) where.outer_gap = rng_below(r, 40);
    where.offset = rng_below(r, 16);
    where.heads_first = rng_below(r, 2) != 0;
    where.side = (guard)rng_below(r, 3);
    return where;
}

/* The row of token t and head h. */
static float *row_at(float *data, placement strides, size_t t, size_t h)
{
    return data + t * strides.stride_token + h * strides.stride_head;
}

linattn_view place_view(const float *dense, size_t tokens, size_t heads, size_t dim, layout where)
{
    placement strides = placement_of(tokens, heads, dim, where);
    float *data = place(strides.extent, where);
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < heads; h++)
            memcpy(row_at(data, strides, t, h), dense + (t * heads + h) * dim, dim * sizeof *data);
    pool_freeze();
    if (is_dense(where)) return linattn_rows(data);
    return strided(data, strides.stride_token, strides.stride_head);
}

linattn_view place_elements(const float *dense, linattn_element element, size_t tokens,
                            size_t heads, size_t dim, layout where)
{
    if (element == LINATTN_F32) return place_view(dense, tokens, heads, dim, where);
    placement strides = placement_of(tokens, heads, dim, where);
    size_t offset = where.side == GUARD_NONE ? where.offset : 0;
    uint16_t *data =
        (uint16_t *)pool_take_guarded((strides.extent + offset) * sizeof *data, where.side);
    data += offset;
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < dim; i++)
                data[t * strides.stride_token + h * strides.stride_head + i] =
                    element_bits(element, dense[(t * heads + h) * dim + i]);
    pool_freeze();
    linattn_view view = linattn_rows_as(data, element);
    if (is_dense(where)) return view;
    view.stride_token = strides.stride_token;
    view.stride_head = strides.stride_head;
    return view;
}

linattn_output place_output(size_t tokens, size_t heads, size_t dim, layout where)
{
    placement strides = placement_of(tokens, heads, dim, where);
    float *data = place(strides.extent, where);
    if (is_dense(where)) return linattn_output_rows(data);
    return strided_output(data, strides.stride_token, strides.stride_head);
}

void collect_output(linattn_output out, size_t tokens, size_t heads, size_t dim, layout where,
                    float *dense, const char *what)
{
    placement strides = placement_of(tokens, heads, dim, where);
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < heads; h++) {
            float *row = row_at(out.data, strides, t, h);
            memcpy(dense + (t * heads + h) * dim, row, dim * sizeof *row);
            memset(row, PATTERN, dim * sizeof *row);
        }
    const unsigned char *bytes = (const unsigned char *)out.data;
    pool_known(bytes, strides.extent * sizeof(float));
    /* All of them alike is what is expected, and soon seen. */
    if (strides.extent && *bytes == PATTERN &&
        memcmp(bytes, bytes + 1, strides.extent * sizeof(float) - 1) == 0)
        return;
    for (size_t i = 0; i < strides.extent * sizeof(float); i++)
        check(bytes[i] == PATTERN, "%s: byte %zu of a gap in the output was written", what, i);
}

/* ---- Runs ----------------------------------------------------------------------------------- */

const char *part_name(part which)
{
    static const char *const names[] = {"causal", "update and query", "bidirectional", "softmax",
                                        "softmax causal"};
    return names[which];
}

/* The operands of one problem where the plan puts them, with explicit strides. */
typedef struct operands {
    linattn_view q, k, v;
} operands;

static operands place_operands(const problem *p, const plan *how)
{
    const linattn_config *c = &p->config;
    elements of = how->of;
    operands o = {place_elements(p->q, of.q, p->n_q, c->heads, c->dim_key, how->q),
                  place_elements(p->k, of.k, p->n_k, c->kv_heads, c->dim_key, how->k),
                  place_elements(p->v, of.v, p->n_k, c->kv_heads, c->dim_value, how->v)};
    return o;
}

/* linattn.h: a token of 16-bit operands of states is at most so many floats. */
static size_t most_floats(void)
{
    return linattn_isa_compiled() == 1u << LINATTN_ISA_SCALAR ? 1024 : 4096;
}

bool elements_fit(const linattn_config *config)
{
    linattn_config c = config_resolved(*config);
    return (c.heads / c.kv_heads + 1) * c.dim_key + c.dim_value <= most_floats();
}

elements elements_draw(rng *r, problem *p)
{
    elements of = {LINATTN_F32, LINATTN_F32, LINATTN_F32};
    if (!elements_fit(&p->config)) return of;
    of.q = (linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT);
    of.k = (linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT);
    of.v = (linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT);
    narrow(of.q, p->q, p->n_q * query_width(p));
    narrow(of.k, p->k, p->n_k * key_width(p));
    narrow(of.v, p->v, p->n_k * value_width(p));
    return of;
}

const float *element_at(linattn_view view, size_t index)
{
    size_t bytes = view.element == LINATTN_F32 ? sizeof(float) : sizeof(uint16_t);
    return (const float *)(const void *)((const char *)view.data + index * bytes);
}

linattn_view view_from(linattn_view view, size_t token, size_t heads, size_t dim)
{
    view.data = element_at(view, token * (view.stride_token ? view.stride_token : heads * dim));
    return view;
}

linattn_output output_from(linattn_output out, size_t token, size_t heads, size_t dim)
{
    out.data += token * (out.stride_token ? out.stride_token : heads * dim);
    return out;
}

size_t next_cut(rng *cuts, size_t left)
{
    if (!cuts || left < 2) return left;
    return rng_below(cuts, 3) ? 1 + rng_below(cuts, left) : 1;
}

void *place_state(const linattn_config *config, const plan *how)
{
    size_t bytes = linattn_state_size(config);
    check(bytes > 0, "%s", config_name(config));
    size_t offset = how->state_side == GUARD_NONE ? how->state_offset : 0;
    void *state = (unsigned char *)pool_take_guarded(bytes + offset, how->state_side) + offset;
    check_status(linattn_state_init(config, state, bytes), LINATTN_OK, "%s", config_name(config));
    return state;
}

static void causal_part(const problem *p, const plan *how, operands in, outcome *result)
{
    const linattn_config *c = &p->config;
    size_t n = p->n_q < p->n_k ? p->n_q : p->n_k;
    void *state = place_state(c, how);
    linattn_output out = place_output(n, c->heads, c->dim_value, how->out);
    for (size_t t = 0, step; t < n; t += step) {
        step = next_cut(how->cuts, n - t);
        check_status(linattn_causal(state, view_from(in.q, t, c->heads, c->dim_key),
                                    view_from(in.k, t, c->kv_heads, c->dim_key),
                                    view_from(in.v, t, c->kv_heads, c->dim_value),
                                    output_from(out, t, c->heads, c->dim_value), step,
                                    how->context),
                     LINATTN_OK, "%s", problem_name(p));
    }
    collect_output(out, n, c->heads, c->dim_value, how->out, result->out[PART_CAUSAL],
                   problem_name(p));
    result->causal_state = (unsigned char *)state;
}

static void query_part(const problem *p, const plan *how, operands in, outcome *result)
{
    const linattn_config *c = &p->config;
    void *state = place_state(c, how);
    for (size_t t = 0, step; t < p->n_k; t += step) {
        step = next_cut(how->cuts, p->n_k - t);
        check_status(linattn_update(state, view_from(in.k, t, c->kv_heads, c->dim_key),
                                    view_from(in.v, t, c->kv_heads, c->dim_value), step,
                                    how->context),
                     LINATTN_OK, "%s", problem_name(p));
    }
    linattn_output out = place_output(p->n_q, c->heads, c->dim_value, how->out);
    for (size_t t = 0, step; t < p->n_q; t += step) {
        step = next_cut(how->cuts, p->n_q - t);
        check_status(linattn_query(state, view_from(in.q, t, c->heads, c->dim_key),
                                   output_from(out, t, c->heads, c->dim_value), step, how->context),
                     LINATTN_OK, "%s", problem_name(p));
    }
    collect_output(out, p->n_q, c->heads, c->dim_value, how->out, result->out[PART_QUERY],
                   problem_name(p));
    result->update_state = (unsigned char *)state;
}

/* The verbs that need a workspace. */
static void whole_part(const problem *p, const plan *how, operands in, part which, outcome *result)
{
    const linattn_config *c = &p->config;
    linattn_workspace verb =
        which == PART_BIDIRECTIONAL ? LINATTN_WORKSPACE_BIDIRECTIONAL : LINATTN_WORKSPACE_SOFTMAX;
    size_t bytes = linattn_workspace_size(c, verb, how->context);
    size_t offset = how->workspace_offset;
    unsigned char *workspace =
        (unsigned char *)pool_take_guarded(bytes + offset, how->state_side) + offset;
    linattn_output out = place_output(p->n_q, c->heads, c->dim_value, how->out);
    linattn_status status;
    if (which == PART_BIDIRECTIONAL)
        status = linattn_bidirectional(c, in.q, p->n_q, in.k, in.v, p->n_k, out, workspace, bytes,
                                       how->context);
    else
        status = linattn_softmax(c, in.q, p->n_q, in.k, in.v, p->n_k, out,
                                 which == PART_SOFTMAX_CAUSAL, workspace, bytes, how->context);
    check_status(status, LINATTN_OK, "%s %s", part_name(which), problem_name(p));
    collect_output(out, p->n_q, c->heads, c->dim_value, how->out, result->out[which],
                   problem_name(p));
}

void exact_draw(rng *r, linattn_config *c, size_t n_k)
{
    float *slopes = pool_floats(c->heads);
    for (size_t h = 0; h < c->heads; h++) slopes[h] = rng_float(r, (float)(1 << rng_below(r, 8)));
    c->window = rng_below(r, 2) ? window_draw(r, n_k + 10) : 0;
    c->sinks = rng_below(r, 2) ? rng_below(r, n_k + 10) : rng_below(r, 5);
    if (rng_below(r, 2)) c->soft_cap = (float)(1 + rng_below(r, 1000)) * 0.05f;
    if (rng_below(r, 2)) c->alibi_slopes = slopes;
}

bool exact_applies(const problem *p, int causal)
{
    const linattn_config *c = &p->config;
    return p->n_q <= p->n_k || (!causal && !c->window && !c->alibi_slopes);
}

/* Does this verb take this problem? */
static bool part_applies(const problem *p, part which)
{
    switch (which) {
    case PART_QUERY: return !p->config.window;
    case PART_BIDIRECTIONAL:
        return !p->config.state_type && (!p->config.window || p->n_q == p->n_k);
    case PART_SOFTMAX:
    case PART_SOFTMAX_CAUSAL: return exact_applies(p, which == PART_SOFTMAX_CAUSAL);
    default: return true;
    }
}

outcome run_all(const problem *p, const plan *how)
{
    static const plan simplest;
    if (!how) how = &simplest;
    outcome result = {.state_bytes = linattn_state_size(&p->config)};
    operands in = place_operands(p, how);
    for (int i = 0; i < PART_COUNT; i++) {
        size_t n = i == PART_CAUSAL && p->n_k < p->n_q ? p->n_k : p->n_q;
        bool applies = part_applies(p, (part)i);
        result.count[i] = applies ? n * output_width(p) : 0;
        result.out[i] = pool_floats(result.count[i]);
        if (!applies) continue;
        if (i == PART_CAUSAL)
            causal_part(p, how, in, &result);
        else if (i == PART_QUERY)
            query_part(p, how, in, &result);
        else
            whole_part(p, how, in, (part)i, &result);
    }
    return result;
}

outcome run_all_on(const problem *p, const plan *how, linattn_isa isa)
{
    linattn_isa before = linattn_isa_active();
    check_status(linattn_isa_select(isa), LINATTN_OK, "%s", linattn_isa_name(isa));
    outcome result = run_all(p, how);
    check_status(linattn_isa_select(before), LINATTN_OK, "%s", linattn_isa_name(before));
    return result;
}

void *run_init(const linattn_config *config)
{
    static const plan simplest;
    return place_state(config, &simplest);
}

void run_update(const problem *p, void *state)
{
    check_status(linattn_update(state, linattn_rows(p->k), linattn_rows(p->v), p->n_k, NULL),
                 LINATTN_OK, "%s", problem_name(p));
}

void *run_slice(const problem *p, size_t from, size_t to)
{
    problem slice = *p;
    slice.n_k = to - from;
    slice.k += from * key_width(p);
    slice.v += from * value_width(p);
    void *state = run_init(&p->config);
    run_update(&slice, state);
    return state;
}

float *run_query(const problem *p, const void *state)
{
    float *out = pool_floats(p->n_q * output_width(p));
    check_status(linattn_query(state, linattn_rows(p->q), linattn_output_rows(out), p->n_q, NULL),
                 LINATTN_OK, "%s", problem_name(p));
    return out;
}

float *run_causal(const problem *p, void *state)
{
    float *out = pool_floats(p->n_q * output_width(p));
    check_status(linattn_causal(state, linattn_rows(p->q), linattn_rows(p->k), linattn_rows(p->v),
                                linattn_output_rows(out), p->n_q, NULL),
                 LINATTN_OK, "%s", problem_name(p));
    return out;
}

float *run_bidirectional(const problem *p, const linattn_context *context)
{
    float *out = pool_floats(p->n_q * output_width(p));
    size_t bytes = linattn_workspace_size(&p->config, LINATTN_WORKSPACE_BIDIRECTIONAL, context);
    check_status(linattn_bidirectional(&p->config, linattn_rows(p->q), p->n_q, linattn_rows(p->k),
                                       linattn_rows(p->v), p->n_k, linattn_output_rows(out),
                                       pool_take(bytes), bytes, context),
                 LINATTN_OK, "%s", problem_name(p));
    return out;
}

float *run_softmax(const problem *p, int causal, const linattn_context *context)
{
    float *out = pool_floats(p->n_q * output_width(p));
    size_t bytes = linattn_workspace_size(&p->config, LINATTN_WORKSPACE_SOFTMAX, context);
    check_status(linattn_softmax(&p->config, linattn_rows(p->q), p->n_q, linattn_rows(p->k),
                                 linattn_rows(p->v), p->n_k, linattn_output_rows(out), causal,
                                 pool_take(bytes), bytes, context),
                 LINATTN_OK, "%s", problem_name(p));
    return out;
}

float *run_exact(const problem *p, elements of, int causal, const plan *how)
{
    const linattn_config *c = &p->config;
    float *dense = pool_floats(p->n_q * output_width(p));
    linattn_view q = place_elements(p->q, of.q, p->n_q, c->heads, c->dim_key, how->q);
    linattn_view k = place_elements(p->k, of.k, p->n_k, c->kv_heads, c->dim_key, how->k);
    linattn_view v = place_elements(p->v, of.v, p->n_k, c->kv_heads, c->dim_value, how->v);
    linattn_output out = place_output(p->n_q, c->heads, c->dim_value, how->out);
    size_t bytes = linattn_workspace_size(c, LINATTN_WORKSPACE_SOFTMAX, how->context);
    void *workspace =
        (unsigned char *)pool_take_guarded(bytes + how->workspace_offset, how->state_side) +
        how->workspace_offset;
    check_status(
        linattn_softmax(c, q, p->n_q, k, v, p->n_k, out, causal, workspace, bytes, how->context),
        LINATTN_OK, "%s", problem_name(p));
    collect_output(out, p->n_q, c->heads, c->dim_value, how->out, dense, problem_name(p));
    return dense;
}

void check_same_floats(const float *actual, const float *expected, size_t count, size_t width,
                       const char *format, ...)
{
    if (count == 0 || memcmp(actual, expected, count * sizeof *actual) == 0) return;
    for (size_t i = 0; i < count; i++) {
        if (float_same(actual[i], expected[i])) continue;
        char what[160];
        snprintf(what, sizeof what, "element %zu of row %zu is %.9g (%08x), expected %.9g (%08x)",
                 i % width, i / width, (double)actual[i], (unsigned)float_bits(actual[i]),
                 (double)expected[i], (unsigned)float_bits(expected[i]));
        va_list arguments;
        va_start(arguments, format);
        fail_with(__FILE__, __LINE__, what, format, arguments);
        va_end(arguments);
    }
}

/* Two numbers of S in 16 bits, or a float: equal, or NaN both. */
static bool same_word(linattn_element element, uint32_t a, uint32_t b)
{
    if (element == LINATTN_F32 || float_same(float_from_bits(a), float_from_bits(b)))
        return float_same(float_from_bits(a), float_from_bits(b));
    return float_same(element_value(element, (uint16_t)a), element_value(element, (uint16_t)b)) &&
           float_same(element_value(element, (uint16_t)(a >> 16)),
                      element_value(element, (uint16_t)(b >> 16)));
}

void check_same_state(const linattn_config *config, const void *actual, const void *expected,
                      const char *what)
{
    size_t bytes = linattn_state_size(config);
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t a, b;
        memcpy(&a, (const unsigned char *)actual + i, sizeof a);
        memcpy(&b, (const unsigned char *)expected + i, sizeof b);
        check(same_word(config->state_type, a, b), "byte %zu: %08x, expected %08x, %s, %s", i,
              (unsigned)a, (unsigned)b, what, config_name(config));
    }
}

void check_same_bytes(const void *actual, const void *expected, size_t count, const char *format,
                      ...)
{
    if (count == 0 || memcmp(actual, expected, count) == 0) return;
    const unsigned char *a = (const unsigned char *)actual, *b = (const unsigned char *)expected;
    size_t first = 0;
    while (a[first] == b[first]) first++;
    char what[160];
    snprintf(what, sizeof what, "byte %zu of %zu is %02x, expected %02x", first, count, a[first],
             b[first]);
    va_list arguments;
    va_start(arguments, format);
    fail_with(__FILE__, __LINE__, what, format, arguments);
    va_end(arguments);
}

void check_same_outputs(const problem *p, const outcome *actual, const outcome *expected,
                        const char *law)
{
    for (int i = 0; i < PART_COUNT; i++)
        check_same_floats(actual->out[i], expected->out[i], actual->count[i], output_width(p),
                          "%s: %s, %s", law, part_name((part)i), problem_name(p));
}

void check_same_outcome(const problem *p, const outcome *actual, const outcome *expected,
                        const char *law)
{
    check_same_outputs(p, actual, expected, law);
    check_same_bytes(actual->causal_state, expected->causal_state, actual->state_bytes,
                     "%s: state of causal, %s", law, problem_name(p));
    if (actual->update_state)
        check_same_bytes(actual->update_state, expected->update_state, actual->state_bytes,
                         "%s: state of update, %s", law, problem_name(p));
}

/* ---- Recurrences ---------------------------------------------------------------------------- */

const linattn_feature_map rule_maps[5] = {LINATTN_MAP_IDENTITY, LINATTN_MAP_ELU1, LINATTN_MAP_RELU,
                                          LINATTN_MAP_EXP, LINATTN_MAP_UNIT};

static linattn_rule rule_of(rule_form form)
{
    switch (form) {
    case FORM_GATED:
    case FORM_GATED_FEATURES:
    case FORM_BONUS: return LINATTN_RULE_GATED;
    case FORM_DELTA: return LINATTN_RULE_DELTA;
    case FORM_GATED_DELTA:
    case FORM_GATED_DELTA_FEATURES: return LINATTN_RULE_GATED_DELTA;
    case FORM_GENERAL:
    case FORM_GENERAL_HEADS: return LINATTN_RULE_GENERAL;
    default: return LINATTN_RULE_MLSTM;
    }
}

axes operand_axes(const recurrence *x, rule_input which)
{
    const linattn_config *c = &x->config;
    size_t key_heads = c->key_heads ? c->key_heads : c->kv_heads;
    switch (which) {
    case IN_Q: return (axes){x->n, c->key_heads ? c->key_heads : c->heads, c->dim_key};
    case IN_V: return (axes){x->n, c->kv_heads, c->dim_value};
    case IN_DECAY: return (axes){x->fixed ? 1 : x->n, c->kv_heads, x->per_feature ? c->dim_key : 1};
    case IN_BETA: return (axes){x->n, x->shared ? 1 : c->kv_heads, 1};
    case IN_BONUS: return (axes){1, c->kv_heads, c->dim_key};
    case IN_INPUT: return (axes){x->n, c->kv_heads, 1};
    default: return (axes){x->n, key_heads, c->dim_key};
    }
}

bool operand_is_of_tokens(const recurrence *x, rule_input which)
{
    return which != IN_BONUS && !(which == IN_DECAY && x->fixed);
}

size_t operand_floats(const recurrence *x, rule_input which)
{
    axes e = operand_axes(x, which);
    return x->in[which] ? e.tokens * e.heads * e.dim : 0;
}

float *operand_row(const recurrence *x, rule_input which, size_t token, size_t head)
{
    axes e = operand_axes(x, which);
    if (!operand_is_of_tokens(x, which)) token = 0;
    return x->in[which] + (token * e.heads + head) * e.dim;
}

size_t recurrence_width(const recurrence *x) { return x->config.heads * x->config.dim_value; }

const char *recurrence_name(const recurrence *x)
{
    char *name = name_buffer();
    size_t at = write_config(name, &x->config);
    snprintf(name + at, NAME_BYTES - at, " tokens=%zu%s%s%s%s%s", x->n,
             x->per_feature ? " per_feature" : "", x->fixed ? " fixed" : "", x->log ? " log" : "",
             x->shared ? " shared" : "", x->in[IN_BONUS] ? " bonus" : "");
    return name;
}

recurrence recurrence_empty(linattn_config config, rule_form form, size_t n, rng *r)
{
    config.rule = rule_of(form);
    recurrence x = {.config = config_resolved(config), .n = n};
    bool takes[OPERANDS] = {[IN_Q] = true, [IN_K] = true, [IN_V] = true};
    size_t how = rng_below(r, 64);
    takes[IN_DECAY] = form != FORM_DELTA;
    takes[IN_BETA] = form >= FORM_DELTA && form <= FORM_GATED_DELTA_FEATURES;
    takes[IN_READ] = takes[IN_WRITE] = form == FORM_GENERAL || form == FORM_GENERAL_HEADS;
    takes[IN_BONUS] = form == FORM_BONUS;
    takes[IN_INPUT] = form == FORM_MLSTM;
    x.per_feature = form == FORM_GATED_FEATURES || form == FORM_GATED_DELTA_FEATURES ||
                    form == FORM_GENERAL || (form == FORM_BONUS && how & 1);
    x.fixed = takes[IN_DECAY] && (how >> 1 & 3) == 0;
    x.log = takes[IN_DECAY] && how & 8;
    x.shared = takes[IN_BETA] && (how >> 4) == 0;
    for (int i = 0; i < OPERANDS; i++) {
        axes e = operand_axes(&x, (rule_input)i);
        if (takes[i]) x.in[i] = pool_floats(e.tokens * e.heads * e.dim);
    }
    return x;
}

/* 0.95 times a vector of length one. */
static void fill_unit(rng *r, float *row, size_t dim)
{
    double squares = 0;
    for (size_t f = 0; f < dim; f++) {
        row[f] = rng_float(r, 0.95f);
        row[f] += row[f] < 0 ? -0.05f : 0.05f;
        squares += (double)row[f] * (double)row[f];
    }
    for (size_t f = 0; f < dim; f++) row[f] = (float)(0.95 * (double)row[f] / sqrt(squares));
}

static void fill_key(rng *r, const linattn_config *c, float *row)
{
    float root = c->scale > 0 ? sqrtf(c->scale) : 1;
    fill_unit(r, row, c->dim_key);
    for (size_t f = 0; f < c->dim_key; f++) {
        if (c->map == LINATTN_MAP_UNIT) row[f] *= 3;
        if (c->map == LINATTN_MAP_RELU) row[f] /= root;
        if (c->map == LINATTN_MAP_ELU1 || c->map == LINATTN_MAP_EXP)
            row[f] = logf(fabsf(row[f])) / root;
    }
}

/* Most near 1, now and then exactly 0 or 1. */
static float draw_decay(rng *r, bool log)
{
    float u = rng_float(r, 1), lost = 0.4f * u * u;
    size_t kind = rng_below(r, 48);
    if (kind == 0) return log ? -1e30f : 0;
    if (kind == 1) return log ? 0 : 1;
    return log ? -lost : 1 - lost;
}

static float draw_beta(rng *r)
{
    size_t kind = rng_below(r, 48);
    return kind < 2 ? 2 * (float)kind : 1 + rng_float(r, 1);
}

void recurrence_fill(recurrence *x, rng *r)
{
    const linattn_config *c = &x->config;
    size_t m = c->dim_key;
    rng_fill(r, x->in[IN_Q], operand_floats(x, IN_Q), 2);
    rng_fill(r, x->in[IN_V], operand_floats(x, IN_V), 1);
    for (size_t i = 0; i < operand_floats(x, IN_K); i += m) fill_key(r, c, x->in[IN_K] + i);
    for (size_t i = 0; i < operand_floats(x, IN_DECAY); i++)
        x->in[IN_DECAY][i] = draw_decay(r, x->log);
    for (size_t i = 0; i < operand_floats(x, IN_BETA); i++) x->in[IN_BETA][i] = draw_beta(r);
    for (size_t i = 0; i < operand_floats(x, IN_READ); i += m) {
        fill_unit(r, x->in[IN_READ] + i, m); /* of the form of RWKV-7 */
        for (size_t f = i; f < i + m; f++)
            x->in[IN_WRITE][f] = -x->in[IN_READ][f] * (0.5f + rng_float(r, 0.5f));
    }
    rng_fill(r, x->in[IN_BONUS], operand_floats(x, IN_BONUS), 1);
    rng_fill(r, x->in[IN_INPUT], operand_floats(x, IN_INPUT), 3);
}

recurrence recurrence_new(linattn_config config, rule_form form, size_t n, rng *r)
{
    recurrence x = recurrence_empty(config, form, n, r);
    recurrence_fill(&x, r);
    return x;
}

recurrence recurrence_copy(const recurrence *x)
{
    recurrence copy = *x;
    for (int i = 0; i < OPERANDS; i++)
        if (x->in[i])
            copy.in[i] =
                (float *)pool_copy(x->in[i], operand_floats(x, (rule_input)i) * sizeof(float));
    return copy;
}

linattn_gates recurrence_gates_of(const recurrence *x, const linattn_view views[OPERANDS])
{
    linattn_gates gates = {.decay = views[IN_DECAY],
                           .decay_per_feature = x->per_feature,
                           .decay_fixed = x->fixed,
                           .decay_log = x->log,
                           .beta = views[IN_BETA],
                           .beta_shared = x->shared,
                           .read = views[IN_READ],
                           .write = views[IN_WRITE],
                           .bonus = views[IN_BONUS],
                           .input = views[IN_INPUT]};
    return gates;
}

linattn_view recurrence_view(const recurrence *x, rule_input which, size_t from)
{
    return linattn_rows(x->in[which] ? operand_row(x, which, from, 0) : NULL);
}

linattn_gates recurrence_gates(const recurrence *x, size_t from)
{
    linattn_view views[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) views[i] = recurrence_view(x, (rule_input)i, from);
    return recurrence_gates_of(x, views);
}

void recurrence_call(const recurrence *x, void *state, size_t from, size_t to, float *out)
{
    linattn_gates gates = recurrence_gates(x, from);
    check_status(
        linattn_recurrent(state, out ? recurrence_view(x, IN_Q, from) : linattn_rows(NULL),
                          recurrence_view(x, IN_K, from), recurrence_view(x, IN_V, from), &gates,
                          linattn_output_rows(out ? out + from * recurrence_width(x) : NULL),
                          to - from, NULL),
        LINATTN_OK, "%s", recurrence_name(x));
}

void recurrence_views_from(const recurrence *x, const linattn_view all[OPERANDS], size_t token,
                           linattn_view views[OPERANDS])
{
    for (int i = 0; i < OPERANDS; i++) {
        axes e = operand_axes(x, (rule_input)i);
        views[i] = all[i];
        if (all[i].data && operand_is_of_tokens(x, (rule_input)i))
            views[i] = view_from(all[i], token, e.heads, e.dim);
    }
}

void recurrence_elements(rng *r, recurrence *x, linattn_element of[OPERANDS])
{
    size_t floats = 0;
    for (int i = 0; i < OPERANDS; i++) {
        of[i] = (linattn_element)rng_below(r, LINATTN_ELEMENT_COUNT);
        floats += x->in[i] ? operand_axes(x, (rule_input)i).dim : 0;
    }
    floats += (x->config.heads / x->config.kv_heads) * x->config.dim_key;
    for (int i = 0; i < OPERANDS; i++) {
        if (floats > most_floats()) of[i] = LINATTN_F32;
        if (x->in[i]) narrow(of[i], x->in[i], operand_floats(x, (rule_input)i));
    }
}

recurred recurrence_run(const recurrence *x, const recurrence_plan *how)
{
    static const recurrence_plan simplest;
    static const layout dense;
    const linattn_config *c = &x->config;
    linattn_view all[OPERANDS], views[OPERANDS];
    recurred result = {.state_bytes = linattn_state_size(c)};
    if (!how) how = &simplest;
    rng *r = how->layouts;
    for (int i = 0; i < OPERANDS; i++) {
        axes e = operand_axes(x, (rule_input)i);
        all[i] = linattn_rows(NULL);
        if (x->in[i] && !(how->silent && i == IN_Q))
            all[i] = place_elements(x->in[i], how->of[i], e.tokens, e.heads, e.dim,
                                    r ? layout_random(r) : dense);
    }
    plan of_state = {.state_side = r ? (guard)rng_below(r, 3) : GUARD_NONE,
                     .state_offset = r ? 4 * rng_below(r, 16) : 0};
    layout of_out = r ? layout_random(r) : dense;
    result.state = place_state(c, &of_state);
    linattn_output out = linattn_output_rows(NULL);
    if (!how->silent) out = place_output(x->n, c->heads, c->dim_value, of_out);
    for (size_t t = 0, step; t < x->n; t += step) {
        step = next_cut(how->cuts, x->n - t);
        recurrence_views_from(x, all, t, views);
        linattn_gates gates = recurrence_gates_of(x, views);
        check_status(
            linattn_recurrent(result.state, views[IN_Q], views[IN_K], views[IN_V], &gates,
                              how->silent ? out : output_from(out, t, c->heads, c->dim_value), step,
                              how->context),
            LINATTN_OK, "%s", recurrence_name(x));
    }
    if (how->silent) return result;
    result.count = x->n * recurrence_width(x);
    result.out = pool_floats(result.count);
    collect_output(out, x->n, c->heads, c->dim_value, of_out, result.out, recurrence_name(x));
    return result;
}

recurred recurrence_run_on(const recurrence *x, linattn_isa isa)
{
    linattn_isa before = linattn_isa_active();
    check_status(linattn_isa_select(isa), LINATTN_OK, "%s", linattn_isa_name(isa));
    recurred result = recurrence_run(x, NULL);
    check_status(linattn_isa_select(before), LINATTN_OK, "%s", linattn_isa_name(before));
    return result;
}

void check_same_recurred(const recurrence *x, const recurred *actual, const recurred *expected,
                         const char *law)
{
    size_t count = actual->count < expected->count ? actual->count : expected->count;
    check_same_floats(actual->out, expected->out, count, recurrence_width(x), "%s: %s", law,
                      recurrence_name(x));
    check_same_bytes(actual->state, expected->state, expected->state_bytes, "%s: state, %s", law,
                     recurrence_name(x));
}

size_t sums_count(const linattn_config *config)
{
    return config->kv_heads * config->dim_key * (config->dim_value + 1);
}

float *run_export(const linattn_config *config, const void *state)
{
    size_t matrix = config->dim_key * config->dim_value;
    float *sums = pool_floats(sums_count(config)), *z = sums + config->kv_heads * matrix;
    for (size_t h = 0; h < config->kv_heads; h++)
        check_status(linattn_state_export(state, h, 0, sums + h * matrix, z + h * config->dim_key),
                     LINATTN_OK, "head %zu, %s", h, config_name(config));
    return sums;
}
