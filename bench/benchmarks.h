/* What each file of benchmarks registers; main.c alone calls these. */
#ifndef LINATTN_BENCH_BENCHMARKS_H
#define LINATTN_BENCH_BENCHMARKS_H

#include "selection.h"

void register_verbs(const selection *s, const library *l);  /* verbs.c: sequences */
void register_arrays(const selection *s, const library *l); /* arrays.c: maps on arrays */
void register_small(const selection *s);                    /* small.c: one token */
void register_peers(const selection *s);                    /* peers/register.c */
void register_rules(const selection *s); /* rules.c: the recurrences, and their peers */

#endif
