# shellcheck shell=bash
# Stage of tools/test: every test on the single file that tools/amalgamate writes, which is all that
# its include path offers; and that file under another name in an odd place.

single=$work/amalgamated/linattn.h

# With `-I .` behind it this directory's linattn.h comes first, and no linattn_simd.h is wanted.
amalgamated_library() { # OBJECT
    await "$single"
    cp tests/linattn.c "$work/amalgamated/"
    gcc $warnings -std=c99 -O2 -I "$work/amalgamated" -c "$work/amalgamated/linattn.c" -o "$1"
}

renamed() {
    local place="$work/odd place (1)+ü"
    await "$single"
    mkdir -p "$place"
    cp "$single" "$place/la v0.h"
    cat >"$place/main.c" <<'EOF'
#define LINATTN_IMPLEMENTATION
#include "la v0.h"
int main(void) { return linattn_status_string(LINATTN_OK)[0] == 0; }
EOF
    gcc -std=c99 $warnings -fsyntax-only "$place/main.c" # with every instruction set
    gcc -std=c99 $warnings -DLINATTN_SCALAR_ONLY "$place/main.c" -o "$place/main"
    "$place/main"
}

target "$single" tools/amalgamate "$single"
target "$work/lib/amalgamated.o" amalgamated_library "$work/lib/amalgamated.o"
job 'amalgamated / renamed' renamed
vectors=${host_isas/scalar /}
run_tests amalgamated gcc '' "$vectors" "$all_tests" LINATTN_TEST_QUICK=1
if [[ $vectors != scalar ]]; then
    run_tests amalgamated gcc '' scalar 'golden api exp softmax fuzz dispatch' LINATTN_TEST_QUICK=1
fi
