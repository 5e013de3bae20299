/* Prints the instruction sets compiled into this build, one space before each. */
#include <stdio.h>

#include "linattn.h"

int main(void)
{
    unsigned compiled = linattn_isa_compiled();
    int isa;
    for (isa = LINATTN_ISA_SCALAR; isa < LINATTN_ISA_COUNT; isa++)
        if (compiled >> isa & 1) printf(" %s", linattn_isa_name((linattn_isa)isa));
    printf("\n");
    return 0;
}
