/* Google Benchmark for C: the only part of it that the benchmarks need. */
#ifndef LINATTN_BENCH_GBENCH_H
#define LINATTN_BENCH_GBENCH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gbench_state gbench_state;
typedef void gbench_function(gbench_state *state, void *argument);

/* What follows "--option=" in an argument, or NULL. */
char *gbench_value(char *argument, const char *option);

/* Takes Google Benchmark's own flags out of the command line. min_time is in seconds and holds
   where the command line has no --benchmark_min_time, which may end in s or not, whatever the
   version takes. */
void gbench_init(int *argc, char **argv, double min_time);

/* The function is called with the argument, as often as Google Benchmark sees fit. The name is
   copied. */
void gbench_register(const char *name, gbench_function *function, void *argument);

/* Adds a line to the head of the report. */
void gbench_context(const char *key, const char *value);

/* Runs what the flags select; returns how many benchmarks ran. */
size_t gbench_run(void);

/* After that: whether all that it printed, and wrote to the file of --benchmark_out, has gone out.
   */
bool gbench_is_written(void);

/* while (gbench_next(state, batch)) { run it `batch` times; gbench_time(state, seconds of all); }
   */
bool gbench_next(gbench_state *state, size_t batch);
void gbench_time(gbench_state *state, double seconds);

/* After the loop. */
void gbench_counter(gbench_state *state, const char *name, double value);

/* Instead of the loop: the benchmark is reported as skipped, with the message. */
void gbench_skip(gbench_state *state, const char *message);

#ifdef __cplusplus
}
#endif

#endif
