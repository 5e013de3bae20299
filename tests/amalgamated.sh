# shellcheck shell=bash
# Stage of tools/test: the single file that tools/amalgamate writes, which is all that its include
# path offers, is the same program as the two headers; and that file under another name in an odd
# place. What the tools refuse.

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

# One line on stderr says what was wrong.
refused() { # COMMAND...
    if "$@" >/dev/null 2>"$place/said"; then
        echo "$* was taken"
        return 1
    fi
    if [[ $(wc -l <"$place/said") != 1 ]]; then
        echo "$* said:"
        cat "$place/said"
        return 1
    fi
}

# By no name or link is a header of the library replaced by the file that is made of it. In a copy,
# as what fails here writes.
not_onto_itself() {
    local place=$work/amalgamated/itself out
    await "$single"
    mkdir -p "$place/tools"
    cp tools/amalgamate "$place/tools"
    cp linattn.h linattn_simd.h "$place"
    ln -s ../linattn.h "$place/tools/link.h"
    ln "$place/linattn_simd.h" "$place/hard.h"
    for out in linattn.h ./linattn_simd.h "$place/linattn.h" tools/link.h hard.h; do
        (cd "$place" && refused tools/amalgamate "$out")
        grep -F "$out is what this reads" "$place/said"
        cmp linattn.h "$place/linattn.h"
        cmp linattn_simd.h "$place/linattn_simd.h"
    done
    [[ -h $place/tools/link.h && $place/hard.h -ef $place/linattn_simd.h ]]
    (cd "$place" && tools/amalgamate other.h)
    cmp "$single" "$place/other.h"
    rm "$place/said" "$place/tools/link.h"
    diff <(ls -A "$place" "$place/tools") - <<END
$place:
hard.h
linattn.h
linattn_simd.h
other.h
tools

$place/tools:
amalgamate
END
}

# A file that there is stays as it is where the new one cannot be written whole.
unwritten() {
    local place=$work/amalgamated/unwritten tool
    mkdir -p "$place/folder"
    echo before >"$place/out"
    if (ulimit -f 64 && tools/amalgamate "$place/out") 2>"$place/said"; then
        echo 'a disk of 64 KiB was taken'
        return 1
    fi
    refused tools/amalgamate "$place/folder"
    refused tools/amalgamate "$place/none/out"
    refused tools/amalgamate ''
    refused tools/amalgamate "$place/out" "$place/two"
    refused tools/amalgamate --no-such
    for tool in test sizes bench sweep; do
        refused "tools/$tool" --no-such
        refused "tools/$tool" --build
    done
    refused tools/sizes --base
    refused tools/sizes --base no-such
    refused tools/bench -- '--benchmark_filter=('
    refused tools/bench -- --benchmark_min_time=0.01m
    refused tools/bench --against HEAD
    refused tools/bench --against no-such -- --benchmark_filter=^none
    # Seconds as newer versions of Google Benchmark have them: what is refused comes behind.
    refused tools/bench --processor none -- --benchmark_min_time=0.01s
    grep -q -e --processor "$place/said"
    mkdir -p "$place/other/bench/gcc/meson-info"
    touch "$place/other/bench/gcc/build.ninja"
    echo '{"directories": {"source": "/"}}' >"$place/other/bench/gcc/meson-info/meson-info.json"
    refused tools/bench --no-install --build "$place/other"
    grep -q 'another copy' "$place/said"
    rm -r "$place/other"
    grep -qx before "$place/out"
    rm "$place/said"
    diff <(ls -A "$place") - <<<$'folder\nout'
    [[ -z $(ls -A "$place/folder") ]]
}

target "$single" tools/amalgamate "$single"
job 'amalgamated / the same text' same_text
job 'amalgamated / renamed' renamed
job 'amalgamated / not onto what it is made of' not_onto_itself
job 'tools / what cannot be is refused' unwritten
