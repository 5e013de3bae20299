#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAX_THREADS = 64, SPINS = 20000, CALLER_SPINS = 500 };

/* Job i of a round is worker i's. */
struct pool {
    size_t workers;
    int caller; /* the processor that is kept free of workers, where there are others; or -1 */
    pthread_mutex_t lock;
    pthread_cond_t begun;
    atomic_uint round;  /* moves on when there is work */
    atomic_size_t left; /* workers that have not finished it */
    size_t count;
    linattn_job *job;
    void *arg;
};

typedef struct worker {
    pool *of;
    size_t index;
    unsigned seen; /* the last round that it took part in */
    pthread_t thread;
} worker;

static worker workers[MAX_THREADS];

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

/* Work often follows at once, so it spins for a while before it sleeps. */
static void await_round(worker *me)
{
    pool *p = me->of;
    for (int i = 0; i < SPINS && atomic_load(&p->round) == me->seen; i++) pause_briefly();
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->round) == me->seen) pthread_cond_wait(&p->begun, &p->lock);
    pthread_mutex_unlock(&p->lock);
    me->seen++;
}

static void *work(void *argument)
{
    worker *me = argument;
    pool *p = me->of;
    for (;;) {
        await_round(me);
        if (me->index < p->count) p->job(p->arg, me->index);
        atomic_fetch_sub(&p->left, 1);
    }
    return NULL;
}

pool *pool_of(size_t threads)
{
    static pool p = {
        .caller = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .begun = PTHREAD_COND_INITIALIZER};
    if (threads > MAX_THREADS) return NULL;
    for (; p.workers + 1 < threads; p.workers++) {
        worker *w = &workers[p.workers];
        *w = (worker){.of = &p, .index = p.workers + 1, .seen = atomic_load(&p.round)};
        p.caller = -1; /* not known to the new one */
        if (pthread_create(&w->thread, NULL, work, w) != 0) return NULL;
    }
    return &p;
}

/* Linux wakes a worker where its caller runs, at times call after call, and then it waits for half
   a millisecond: workers stay away from there. */
static void leave_callers_processor(pool *p)
{
#ifdef __linux__
    const int here = sched_getcpu();
    cpu_set_t set;
    if (here < 0 || here == p->caller || sched_getaffinity(0, sizeof set, &set) != 0) return;
    p->caller = here;
    if (CPU_COUNT(&set) > 1) CPU_CLR((size_t)here, &set);
    for (size_t i = 0; i < p->workers; i++)
        pthread_setaffinity_np(workers[i].thread, sizeof set, &set);
#else
    (void)p;
#endif
}

void pool_parallel_for(void *user, size_t count, linattn_job *job, void *arg)
{
    pool *p = user;
    leave_callers_processor(p);
    pthread_mutex_lock(&p->lock);
    p->count = count;
    p->job = job;
    p->arg = arg;
    atomic_store(&p->left, p->workers);
    atomic_fetch_add(&p->round, 1);
    pthread_cond_broadcast(&p->begun);
    pthread_mutex_unlock(&p->lock);
    job(arg, 0);
    /* a worker that was woken on this processor runs when it is left to it, and not before */
    for (int i = 0; atomic_load(&p->left) > 0; i++) {
        if (i < CALLER_SPINS)
            pause_briefly();
        else
            sched_yield();
    }
}

size_t pool_processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (size_t)CPU_COUNT(&set);
#endif
    return (size_t)sysconf(_SC_NPROCESSORS_ONLN);
}
