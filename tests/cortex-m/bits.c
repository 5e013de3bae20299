/* tests/ports/bits.c on the board, in a program that rounds upwards and flushes denormal numbers to
   zero. Newlib's standard output is semihosting's. */
#include <stdint.h>
#include <stdio.h>

int bits_main(int argc, char **argv);
void initialise_monitor_handles(void);

int main(void)
{
    static char name[] = "bits", *arguments[] = {name, NULL};
    const uint32_t upward = 1u << 22, flush = 1u << 24;
    uint32_t environment;
    int failed;
    initialise_monitor_handles();
    __asm__ volatile("vmrs %0, fpscr" : "=r"(environment));
    __asm__ volatile("vmsr fpscr, %0" : : "r"(environment | upward | flush));
    failed = bits_main(1, arguments);
    return fflush(stdout) || failed;
}
