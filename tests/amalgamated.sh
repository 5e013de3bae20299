# shellcheck shell=bash
# Stage of tools/test: the single file that tools/amalgamate writes, which is all that its include
# path offers, is the same program as the two headers; and that file under another name in an odd
# place.

single=$work/amalgamated/linattn.h

# To the compiler, both are one text, but for empty lines: with the same flags it makes the same
# program of them. There is no `-I .` for the single file, so that no linattn_simd.h can be found.
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
job 'amalgamated / the same text' same_text
job 'amalgamated / renamed' renamed
