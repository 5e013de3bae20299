/* The board as seen by the programs of this directory. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

extern uint32_t board_stack_limit[]; /* the lowest word of the stack */

void board_print(const char *text);
__attribute__((noreturn)) void board_exit(int status);

#endif
