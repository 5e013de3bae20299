/* What a Cortex-M4F needs before main, and how a program under qemu or a debugger talks: ARM
   semihosting. Nothing else of a C library's start-up is used. */
#include "board.h"

extern uint32_t board_stack_top[], board_data_load[], board_data[], board_data_end[], board_bss[],
    board_bss_end[];

int main(void);

static uint32_t semihosting(uint32_t operation, const void *argument)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void board_print(const char *text) { semihosting(0x04, text); } /* SYS_WRITE0 */

void board_exit(int status)
{
    const uint32_t reason[2] = {0x20026, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    semihosting(0x20, reason);                              /* SYS_EXIT_EXTENDED */
    for (;;) continue;
}

void board_reset(void);
void board_reset(void)
{
    volatile uint32_t *const coprocessors = (volatile uint32_t *)0xe000ed88; /* CPACR */
    const uint32_t *from = board_data_load;
    uint32_t *to;
    *coprocessors |= 0xfu << 20; /* the FPU, for all */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    for (to = board_data; to < board_data_end; to++) *to = *from++;
    for (to = board_bss; to < board_bss_end; to++) *to = 0;
    board_exit(main());
}

static void fault(void)
{
    board_print("fault\n");
    board_exit(2);
}

/* Stack pointer, reset, NMI, and the four faults; no interrupt is ever enabled. */
__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    board_stack_top,     (const void *)board_reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault,       (const void *)fault};
