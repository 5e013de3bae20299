/* Instruction sets: what is compiled, available and active agree; select refuses what is absent;
   all of it from many threads at once, which is for the thread sanitizer to watch. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

static unsigned bit(int isa) { return 1u << isa; }

static void sets_are_consistent(void **state)
{
    (void)state;
    unsigned compiled = linattn_isa_compiled(), available = linattn_isa_available();
    unsigned known = (bit(LINATTN_ISA_COUNT) - 1) & ~bit(LINATTN_ISA_AUTO);
    check((compiled & ~known) == 0, "compiled %x, known %x", compiled, known);
    check((available & ~compiled) == 0, "available %x, compiled %x", available, compiled);
    check(available != 0, "compiled %x", compiled);
    check(available & bit((int)linattn_isa_active()), "available %x, active %d", available,
          (int)linattn_isa_active());
}

static void names(void **state)
{
    (void)state;
    static const char *const expected[] = {"auto",   "scalar",  "neon",    "avx2",
                                           "avx512", "simd128", "relaxed", "sse2"};
    for (int isa = 0; isa < LINATTN_ISA_COUNT; isa++)
        check(strcmp(linattn_isa_name((linattn_isa)isa), expected[isa]) == 0, "name of %d is %s",
              isa, linattn_isa_name((linattn_isa)isa));
    const int wrong[] = {-1, LINATTN_ISA_COUNT, 1000};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check(strcmp(linattn_isa_name((linattn_isa)wrong[i]), "unknown") == 0, "name of %d",
              wrong[i]);
}

/* Instruction sets are enumerated from worst to best, but for SSE2, which is worse than AVX2. */
static void auto_is_the_best(void **state)
{
    (void)state;
    unsigned available = linattn_isa_available();
    if (available & (bit(LINATTN_ISA_AVX2) | bit(LINATTN_ISA_AVX512)))
        available &= ~bit(LINATTN_ISA_SSE2);
    check_status(linattn_isa_select(LINATTN_ISA_AUTO), LINATTN_OK, "auto");
    linattn_isa active = linattn_isa_active();
    check((available >> (int)active) == 1, "active %d, available %x", (int)active, available);
}

static void select_takes_what_is_available(void **state)
{
    (void)state;
    for (int isa = 1; isa < LINATTN_ISA_COUNT; isa++) {
        linattn_isa before = linattn_isa_active();
        bool present = (linattn_isa_available() & bit(isa)) != 0;
        check_status(linattn_isa_select((linattn_isa)isa), present ? LINATTN_OK : LINATTN_ERROR_ISA,
                     "isa %d", isa);
        linattn_isa expected = present ? (linattn_isa)isa : before;
        check(linattn_isa_active() == expected, "active %d after select of %d from %d",
              (int)linattn_isa_active(), isa, (int)before);
    }
    linattn_isa before = linattn_isa_active();
    const int wrong[] = {-1, LINATTN_ISA_COUNT, 31, 32, 33, 1000};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        check_status(linattn_isa_select((linattn_isa)wrong[i]), LINATTN_ERROR_ISA, "isa %d",
                     wrong[i]);
        check(linattn_isa_active() == before, "active after select of %d", wrong[i]);
    }
}

/* ---- Threads -------------------------------------------------------------------------------- */

enum { THREADS = 6, DIM = 33, TOKENS = 20, FEATURES = 21 };

typedef struct worker {
    pthread_t thread;
    uint64_t seed;
    int rounds;
    bool selects;      /* switch instruction sets all the time, or attend all the time */
    const char *fault; /* cmocka's checks are for the main thread */
} worker;

static void select_at_random(worker *self, rng *r)
{
    linattn_isa isa = (linattn_isa)rng_below(r, LINATTN_ISA_COUNT);
    bool present = isa == LINATTN_ISA_AUTO || (linattn_isa_available() & bit((int)isa));
    linattn_status status = linattn_isa_select(isa);
    if (status != (present ? LINATTN_OK : LINATTN_ERROR_ISA)) self->fault = "a status of select";
    if (!(linattn_isa_available() & bit((int)linattn_isa_active()))) self->fault = "active";
}

/* The state and the outputs of one sequence, decoded with whatever is selected at each call. */
typedef struct sequence {
    float x[TOKENS * DIM], out[TOKENS * DIM];
    unsigned char state[65536];
} sequence;

static float projection[FEATURES * DIM];

/* A state that all threads query, and none writes. */
static float shared_state[16384];

/* Each thread has another map, every third a window. */
static linattn_config config_of(uint64_t seed)
{
    static const linattn_feature_map maps[] = {LINATTN_MAP_EXP, LINATTN_MAP_FAVOR,
                                               LINATTN_MAP_TAYLOR, LINATTN_MAP_FAVOR_HYPERBOLIC};
    linattn_config config = {.dim_key = DIM,
                             .map = maps[seed % 4],
                             .features = FEATURES,
                             .projection = projection,
                             .degree = 1,
                             .window = seed % 3 == 2 ? 7 : 0};
    return config;
}

static bool attend(sequence *s, uint64_t seed)
{
    rng r = {seed};
    linattn_config config = config_of(seed);
    rng_fill(&r, s->x, TOKENS * DIM, 2);
    if (linattn_state_init(&config, s->state, sizeof s->state) != LINATTN_OK) return false;
    for (size_t t = 0; t < TOKENS; t++) {
        linattn_view row = linattn_rows(s->x + t * DIM);
        if (linattn_causal(s->state, row, row, row, linattn_output_rows(s->out + t * DIM), 1, NULL))
            return false;
    }
    return linattn_query(shared_state, linattn_rows(s->x), linattn_output_rows(s->out), TOKENS / 2,
                         NULL) == LINATTN_OK;
}

static void *worker_main(void *argument)
{
    worker *self = (worker *)argument;
    rng r = {self->seed};
    sequence *first = (sequence *)malloc(sizeof *first), *again = (sequence *)malloc(sizeof *again);
    for (int i = 0; i < self->rounds && !self->fault; i++) {
        if (self->selects) {
            select_at_random(self, &r);
            continue;
        }
        if (!attend(i ? again : first, self->seed)) self->fault = "a status of a verb";
        if (i && !test_inexact() && memcmp(first->out, again->out, sizeof first->out) != 0)
            self->fault = "bits that change with the instruction set";
    }
    free(first);
    free(again);
    return NULL;
}

static void run_workers(int selecting)
{
    worker workers[THREADS] = {0};
    for (int i = 0; i < THREADS; i++) {
        workers[i].seed = (uint64_t)i;
        workers[i].selects = i < selecting;
        workers[i].rounds = (test_quick() ? 5 : 100) * (i < selecting ? 50 : 1);
        check(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0, "thread %d",
              i);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        check(!workers[i].fault, "thread %d: %s", i, workers[i].fault);
}

/* The first call of all finds the instruction set. Here, unless one was asked for, several threads
   make that call at once; so this has to be the first test. */
static void threads_race_for_the_first_call(void **state)
{
    (void)state;
    rng r = {1};
    rng_fill_normal(&r, projection, FEATURES * DIM);
    for (uint64_t seed = 0; seed < THREADS; seed++) {
        linattn_config config = config_of(seed);
        check(linattn_state_size(&config) <= sizeof((sequence *)NULL)->state, "%s",
              config_name(&config));
    }
    linattn_config config = config_of(0);
    check_status(linattn_state_init(&config, shared_state, sizeof shared_state), LINATTN_OK,
                 "init");
    run_workers(0);
    check(linattn_isa_active() == test_isa(), "active %d", (int)linattn_isa_active());
}

static void threads_select_while_others_attend(void **state)
{
    (void)state;
    linattn_view rows = linattn_rows(projection);
    check_status(linattn_update(shared_state, rows, rows, FEATURES, NULL), LINATTN_OK, "update");
    run_workers(THREADS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_race_for_the_first_call),
        TEST(auto_is_the_best),
        TEST(sets_are_consistent),
        TEST(names),
        TEST(select_takes_what_is_available),
        TEST(threads_select_while_others_attend),
    };
    test_begin();
    return RUN_TESTS("dispatch", tests);
}
