# shellcheck shell=bash
# Stage of tools/test: the single file that tools/amalgamate writes, which is all that its include
# path offers, is the same program as the two headers; and that file under another name in an odd
# place.

single=$work/amalgamated/linattn.h

# With `-I .` behind it this directory's linattn.h comes first, and no linattn_simd.h is wanted. Not
# optimised: to the optimiser it is the text of the two.
amalgamated_library() { # OBJECT
    await "$single"
    cp tests/linattn.c "$work/amalgamated/"
    gcc $warnings -std=c99 -O0 -I "$work/amalgamated" -c "$work/amalgamated/linattn.c" -o "$1"
}

# To the compiler, both are one text, but for empty lines.
same_text() {
    local language place=$work/amalgamated/text
    await "$single"
    mkdir -p "$place"
    cp tests/linattn.c "$single" "$place"
    for language in '-x c -std=c99' '-x c++ -std=c++11'; do
        gcc $language -E -P "$place/linattn.c" | grep . >"$place/one"
        gcc $language -E -P -I . tests/linattn.c | grep . >"$place/two"
        grep -q linattn_causal "$place/one"
        cmp "$place/one" "$place/two"
    done
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
job 'amalgamated / the same text' same_text
job 'amalgamated / renamed' renamed
run_tests amalgamated gcc '' "$host_isas" dispatch LINATTN_TEST_QUICK=1
run_tests amalgamated gcc '' "${host_isas/scalar /}" golden LINATTN_TEST_QUICK=1
