/* Threads that wait for work, for linattn_context.parallel_for. */
#ifndef LINATTN_BENCH_POOL_H
#define LINATTN_BENCH_POOL_H

#include <stddef.h>

#include "linattn.h"

typedef struct pool pool;

/* One pool for the whole process; `threads` includes the caller's. NULL if they cannot be had. */
pool *pool_of(size_t threads);

/* user is the pool. Job 0 runs in the calling thread. */
void pool_parallel_for(void *user, size_t count, linattn_job *job, void *arg);

/* Processors that this process may run on. */
size_t pool_processors(void);

#endif
