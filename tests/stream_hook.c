/* Loaded before the C library, by LD_PRELOAD: counts what a program allocates, frees and locks. At
   its end it prints on stderr
       hook: READINGS of the clock, ALLOCATIONS LOCKS between two of them, ALLOCATIONS LOCKS in all
   The two are the one whose number is in HOOK_FROM and the last. For glibc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct counts {
    atomic_long allocations, locks;
} counts;

static counts all, at_first, at_last;
static atomic_long readings;
static long first_reading;

/* The C library's own function, as dlsym gives it: a pointer to an object. */
typedef union function {
    void *object;
    int (*lock)(void *);
    int (*clock_gettime)(clockid_t, struct timespec *);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
} function;

static function next_of(const char *name) { return (function){dlsym(RTLD_NEXT, name)}; }

/* ---- Allocations ---------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void __libc_free(void *memory);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&all.allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&all.allocations, 1);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&all.allocations, 1);
    return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
    atomic_fetch_add(&all.allocations, 1);
    __libc_free(memory);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    atomic_fetch_add(&all.allocations, 1);
    return next_of("posix_memalign").posix_memalign(memory, alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&all.allocations, 1);
    return next_of("aligned_alloc").aligned_alloc(alignment, bytes);
}

/* ---- Locks ---------------------------------------------------------------------------------- */

static int lock(const char *name, void *what)
{
    atomic_fetch_add(&all.locks, 1);
    return next_of(name).lock(what);
}

int pthread_mutex_lock(pthread_mutex_t *m) { return lock("pthread_mutex_lock", m); }
int pthread_mutex_trylock(pthread_mutex_t *m) { return lock("pthread_mutex_trylock", m); }
int pthread_spin_lock(pthread_spinlock_t *s) { return lock("pthread_spin_lock", (void *)s); }
int pthread_rwlock_rdlock(pthread_rwlock_t *l) { return lock("pthread_rwlock_rdlock", l); }
int pthread_rwlock_wrlock(pthread_rwlock_t *l) { return lock("pthread_rwlock_wrlock", l); }
int sem_wait(sem_t *s) { return lock("sem_wait", s); }

/* ---- The clock ------------------------------------------------------------------------------ */

static void copy_counts(counts *to)
{
    atomic_store(&to->allocations, atomic_load(&all.allocations));
    atomic_store(&to->locks, atomic_load(&all.locks));
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    copy_counts(&at_last);
    if (atomic_fetch_add(&readings, 1) + 1 == first_reading) {
        copy_counts(&at_first);
    }
    return next_of("clock_gettime").clock_gettime(clock, time);
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("HOOK_FROM");
    first_reading = text ? atol(text) : 1;
}

__attribute__((destructor)) static void end(void)
{
    counts total;
    copy_counts(&total);
    fprintf(stderr, "hook: %ld %ld %ld %ld %ld\n", atomic_load(&readings),
            atomic_load(&at_last.allocations) - atomic_load(&at_first.allocations),
            atomic_load(&at_last.locks) - atomic_load(&at_first.locks),
            atomic_load(&total.allocations), atomic_load(&total.locks));
}
