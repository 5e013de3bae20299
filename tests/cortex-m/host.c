/* The fixed run on the machine that compiles. */
#include <inttypes.h>
#include <stdio.h>

#include "golden.h"

int main(void) { return printf("golden %016" PRIx64 "\n", golden_hash()) < 0; }
