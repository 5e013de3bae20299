/* The recurrences that are benchmarked: the rules of linattn_recurrent, some with several kinds of
   gates. */
#ifndef LINATTN_BENCH_RULES_H
#define LINATTN_BENCH_RULES_H

enum { RULE_ROWS = 8 };
const char *rule_row_name(int row);

#endif
