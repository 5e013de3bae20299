# shellcheck shell=bash
# Stage of tools/test: what a program that includes linattn.h is promised. No warnings; C and C++ in
# one program; nothing leaks out of the header; nothing else is needed to link it, and it has no
# variable but one of 4 bytes. And how all files are written: clang-format, 100 columns.

# ---- Warnings ------------------------------------------------------------------------------------

# What some programs ask for, too.
more_warnings() { # COMPILER LANGUAGE
    echo -Wcast-align -Wcast-qual -Wdouble-promotion -Wredundant-decls -Wswitch-enum \
        -Wunused-macros -Wwrite-strings
    case $1 in
    gcc) echo -Warith-conversion -Wlogical-op ;;
    clang) echo -Wcomma ;;
    esac
    [[ $2 != c ]] ||
        echo -Wbad-function-cast -Wmissing-prototypes -Wold-style-definition -Wstrict-prototypes
}

no_warnings() { # COMPILER LANGUAGE STANDARD FILE
    "$1" -x "$2" -std="$3" $warnings $(more_warnings "$1" "$2") -fsyntax-only -I . "$4"
}

header_warnings() { # COMPILER
    local file standard
    for file in consumer implementation; do
        for standard in c99 c11 c17; do
            job "header-$1 / no warnings, $file as $standard" no_warnings "$1" c $standard \
                "tests/consumer/$file.c"
        done
        for standard in c++11 c++17 c++20; do
            job "header-$1 / no warnings, $file as $standard" no_warnings "$1" c++ $standard \
                "tests/consumer/$file.c"
        done
    done
    for file in $(find examples -name '*.c'); do
        job "header-$1 / no warnings, ${file##*/} as c99" example_without_warnings "$1" "$file"
    done
}

# What an example needs beside the library.
example_flags() { # FILE
    case $1 in
    */mpi.c) pkg-config --cflags mpi-c | sed 's/-I/-isystem /g' ;;
    esac
}

# Optimised, for some warnings come from what the optimiser sees. It sees the library in the matrix,
# and here the example alone.
example_without_warnings() { # COMPILER FILE
    local flags
    if ! flags=$(example_flags "$2"); then
        echo 'a library that it needs is not installed'
        return 77
    fi
    "$1" -std=c99 -fsyntax-only $warnings -DLINATTN_SCALAR_ONLY -I . $flags "$2"
    [[ $1 == clang ]] || # whose optimiser has no warnings
        "$1" -std=c99 -O1 -c -o /dev/null $warnings -DLINATTN__IMPLEMENTED -I . $flags "$2"
}

# ---- Programs of two files -----------------------------------------------------------------------

two_files() { # NAME COMPILER CONSUMER_FLAGS IMPLEMENTATION_FLAGS
    local objects=$work/two-files/$1
    mkdir -p "$objects"
    "$2" $3 $warnings -I . -c tests/consumer/consumer.c -o "$objects/consumer.o"
    "$2" $4 $warnings -I . -c tests/consumer/implementation.c -o "$objects/implementation.o"
    "$2" "$objects/consumer.o" "$objects/implementation.o" -o "$objects/consumer"
    "$objects/consumer"
}

# How the files are linked depends neither on the instruction sets nor on the methods.
header_two_files() { # COMPILER
    local private='-DLINATTN_STATIC -DLINATTN_IMPLEMENTATION'
    local c99="-x c -std=c99 $few_methods" cpp11="-x c++ -std=c++11 $few_methods"
    job "header-$1 / C uses C++" two_files "$1-c-cpp" "$1" "$c99" "$cpp11"
    job "header-$1 / C++ uses C" two_files "$1-cpp-c" "$1" "$cpp11" "$c99"
    # Each of the two languages by one compiler, where there are two.
    [[ $compilers/$1 == *clang/clang ]] ||
        job "header-$1 / two private copies, C99" two_files "$1-private-c" "$1" \
            "$c99 $private" "$c99 -DLINATTN_STATIC"
    [[ $compilers/$1 == *clang/gcc ]] ||
        job "header-$1 / two private copies, C++11" two_files "$1-private-cpp" "$1" \
            "$cpp11 $private" "$cpp11 -DLINATTN_STATIC"
}

# ---- Leaks ---------------------------------------------------------------------------------------

# Only names of the interface may be new, the guard of the implementation, and what the first
# inclusion knew of LINATTN_STATIC, beside the macros of the standard headers that it includes.
leaked_macros() { # COMPILER FLAGS...
    local place include leaked
    place=$(mktemp -d -p "$work")
    direct_includes "$@" >"$place/list"
    grep -q stddef "$place/list"
    sed 's/.*\/\(.*\)/#include <\1>/' "$place/list" >"$place/standard.c"
    echo '#include "linattn.h"' >"$place/header.c"
    for include in standard header; do
        "$@" -I . -dM -E "$place/$include.c" | sed 's/#define \([A-Za-z0-9_]*\).*/\1/' |
            sort >"$place/$include"
    done
    leaked=$(comm -13 "$place/standard" "$place/header" |
        grep -vxE 'LINATTN_(H|_IMPLEMENTED|_STATIC|[A-Z][A-Z0-9_]*)' || true)
    if [[ -n $leaked ]]; then
        echo "$leaked"
        return 1
    fi
    grep -qx LINATTN_VERSION_MAJOR "$place/header"
}

# The same functions are compiled with and without the header in front of them: a pragma that was
# not taken back, such as one for an instruction set or for precise arithmetic, changes their code.
leaked_pragmas() { # COMPILER FLAGS...
    local place
    place=$(mktemp -d -p "$work")
    cat >"$place/probe.c" <<'EOF'
#ifdef WITH_HEADER
#define LINATTN_STATIC
#define LINATTN_IMPLEMENTATION
#include "linattn.h"
#endif
float probe_contracted(float a, float b, float c) { return a * b + c; }
float probe_reordered(float a, float b) { return (a + b) - a; }
int probe_nan(float a) { return a != a; }
float probe_vectorised(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}
void probe_copied(float *restrict y, const float *restrict x, float a, int n)
{
    for (int i = 0; i < n; i++) y[i] += a * x[i];
}
EOF
    "$@" -std=c99 -S -I . "$place/probe.c" -o "$place/without.s"
    "$@" -std=c99 -S -I . -DWITH_HEADER "$place/probe.c" -o "$place/with.s"
    probes "$place/without.s" >"$place/without"
    probes "$place/with.s" >"$place/with"
    grep -q probe_copied "$place/without"
    diff "$place/without" "$place/with"
}

# The instructions of the probes, without directives and the numbers of labels.
probes() { # ASSEMBLY
    awk '/^probe_/ { on = 1 } /^\t\.size\tprobe_/ { on = 0 } on && !/^\t\./' "$1" |
        sed 's/#.*//; s/\.L[A-Z]*[0-9_]*/.L/g; s/\(LBB\|LCPI\)[0-9_]*/\1/g'
}

# Warnings that the header switches off for itself must be on again behind it. It does so around all
# instruction sets at once, so the quickest build shows it. In each group, no warning is about what
# another has to find.
warnings_return() { # COMPILER
    local cc=$1 place group warning flags
    place=$(mktemp -d -p "$work")
    for group in 'conversion shadow unused-variable undef pedantic' \
        'float-conversion sign-conversion unused-function unused-parameter vla'; do
        flags=
        {
            printf '#define LINATTN_STATIC\n#define LINATTN_IMPLEMENTATION\n#include "linattn.h"\n'
            for warning in $group; do
                flags+=" -W$warning"
                printf '#line 1 "%s.c"\n' "$warning"
                sed -n "s/^$warning: //p" <<'EOF'
conversion: char probe_conversion(int a) { return a; }
float-conversion: int probe_float_conversion(double a) { return a; }
sign-conversion: unsigned probe_sign_conversion(int a) { return a; }
shadow: int probe_shadow(int a) { { int a = 1; return a; } }
unused-variable: void probe_unused_variable(void) { int a; }
unused-function: static void probe_unused_function(void) { }
unused-parameter: void probe_unused_parameter(int a) { }
undef: #if PROBE
undef: #endif
vla: void probe_vla(int n) { int a[n]; a[0] = 0; }
pedantic: int probe_pedantic(int a) { return ({ a; }); }
EOF
            done
        } >"$place/probe.c"
        "$cc" -std=c99 -S $flags $few_methods -I . "$place/probe.c" -o "$place/probe.s" \
            2>"$place/messages"
        for warning in $group; do
            grep -q "^$warning\.c:.*warning" "$place/messages" && continue
            echo "-W$warning is lost"
            return 1
        done
    done
}

# Names that headers of Windows, Qt, Arduino and old compilers define, before the implementation.
names_of_others() { # COMPILER
    local place word
    place=$(mktemp -d -p "$work")
    {
        for word in small hyper interface near far huge pascal IN OUT slots signals emit foreach \
            forever F PI HIGH LOW None Bool Status True False Always unix linux min max; do
            echo "#undef $word"
            echo "#define $word @"
        done
        for word in 'bit(b)' 'round(x)' 'abs(x)' 'sq(x)' 'lowByte(w)' 'clear()' 'move(y, x)'; do
            echo "#define $word @"
        done
        echo '#include "linattn.h"'
    } >"$place/names.h"
    printf '#include <float.h>\n#include <stddef.h>\n#include <stdint.h>\n' >"$place/names.c"
    [[ $host_isas != *avx2* ]] || echo '#include <immintrin.h>' >>"$place/names.c"
    echo '#include "names.h"' >>"$place/names.c"
    "$1" -std=c99 -DLINATTN_IMPLEMENTATION -fsyntax-only $warnings -I . "$place/names.c"
}

header_leaks() { # COMPILER
    job "header-$1 / names of other headers" names_of_others "$1"
    job "header-$1 / macros of the declarations" leaked_macros "$1" -std=c99
    job "header-$1 / macros of the declarations, C++" leaked_macros "$1" -x c++ -std=c++11
    job "header-$1 / macros of the implementation" leaked_macros "$1" -std=c99 \
        -DLINATTN_IMPLEMENTATION
    job "header-$1 / macros of the implementation, C++" leaked_macros "$1" -x c++ -std=c++11 \
        -DLINATTN_IMPLEMENTATION
    job "header-$1 / macros of a small implementation" leaked_macros "$1" -std=c99 \
        -DLINATTN_IMPLEMENTATION -DLINATTN_SCALAR_ONLY -DLINATTN_NO_HALF -DLINATTN_NO_PREFILL
    job "header-$1 / pragmas, -O2" leaked_pragmas "$1" -O2
    job "header-$1 / pragmas, -O3 -ffast-math" leaked_pragmas "$1" -O3 -ffast-math
    job "header-$1 / pragmas, -O3 -ffast-math -march=native" leaked_pragmas "$1" -O3 -ffast-math \
        -march=native
    job "header-$1 / warnings are on again" warnings_return "$1"
}

# ---- Objects -------------------------------------------------------------------------------------

# Defined: what linattn.h declares and no more. Undefined: what any compiler may call by itself.
# Writable: the instruction set in use. Nothing runs before main. What only fetches is called,
# though to compilers it has no effect.
good_symbols() { # VARIANT
    local object=$work/lib/$1.o
    await "$object"
    {
        nm -u "$object" | awk '{ print $NF }' |
            grep -vxE 'memcpy|memset|memmove|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail' |
            sed 's/^/is needed to link it: /'
        comm -3 <(declared_functions) <(nm --extern-only --defined-only "$object" |
            awk '{ print $NF }' | sort) | sed 's/^\t/defined, not declared: /; t
                s/^/declared, not defined: /'
        nm -f sysv -t d --defined-only "$object" | awk -F '|' '
            { gsub(/ /, "") }
            $7 ~ /^(\.t?data|\.t?bss|\*COM\*)/ && $7 !~ /^\.data\.rel\.ro/ && $4 ~ /OBJECT|TLS/ {
                bytes += $5
                names = names " " $1
            }
            END { if (bytes > 4) print "variables of " bytes " bytes:" names }'
        objdump -h "$object" | grep -E '\.(init_array|fini_array|ctors|dtors)' |
            sed 's/^/runs by itself: /'
        comm -13 <(objdump -d "$object" |
            sed -n 's/.*<\(linattn__tile_fetch[^+]*\)>$/\1/p' | sort -u) \
            <(nm "$object" | awk '/ t linattn__tile_fetch/ { print $NF }' | sort) |
            sed 's/^/defined, but never called: /'
    } >"$object.faults" || true
    cat "$object.faults"
    [[ ! -s $object.faults ]]
}

# A program's functions that call the library's are not taken for code that is seldom run.
# tests/consumer/callers.c calls them all. Which sets there are makes no difference, nor do operands
# of 16 bits, nor how a multiply-add is made: with an instruction, it takes two thirds of the time.
callers_stay_warm() { # COMPILER
    local object fma=
    [[ $host_isas != *avx2* ]] || fma=-mfma
    object=$(mktemp -p "$work" callers-XXXXXX.o)
    "$1" -std=c99 -O2 -DLINATTN_SCALAR_ONLY -DLINATTN_NO_HALF $fma -I . \
        -c tests/consumer/callers.c -o "$object"
    diff <(declared_functions | sed 's/^linattn_/calls_/') <(nm --defined-only "$object" |
        awk '$NF ~ /^calls_/ { print $NF }' | sort)
    ! objdump -t "$object" | grep -E '\.unlikely.* calls_'
}

header_symbols() { # VARIANT
    job "header / symbols of $1" good_symbols "$1"
}

# Bytes of stack that README.md and linattn.h promise, of calls of each kind: scalar code, the rest.
# `steps` is one token of a small state under a rule, `small` is one of heads of up to 16: vectors
# take more if blocks of tokens take the one, or the way of larger heads the other, which is slower.
# `owing` is the latter of the identity.
declare -A most_stack_scalar=([maps]=5376 [features]=5376 [window]=4608 [others]=5120 [rules]=5376
    [steps]=5376 [small]=5376 [owing]=5376 [halves]=22784 [states]=5376)
declare -A most_stack_vector=([maps]=49152 [features]=55296 [window]=69632 [others]=49152
    [rules]=55296 [steps]=20480 [small]=2304 [owing]=4096 [halves]=87040 [states]=89088)
most_stack_scalar_alone=10240 # of `halves`, in a build of scalar code alone

little_stack() { # VARIANT COMPILER LINK_FLAGS
    local program=$work/bin/$1/stack isa kind used limit lines too_much=0
    await "$work/lib/$1.o"
    mkdir -p "${program%/*}"
    # bound at once: the dynamic linker takes 3 KiB at a first call of memcpy
    "$2" -std=gnu99 -O1 $warnings -Wno-pedantic -I . tests/consumer/stack.c "$work/lib/$1.o" \
        -o "$program" $3 -Wl,-z,now
    lines=$("$program")
    while read -r isa kind used; do
        limit=${most_stack_vector[$kind]}
        [[ $isa-$kind != @(scalar-*|shared-@(small|owing)) ]] || limit=${most_stack_scalar[$kind]}
        [[ $1-$kind != scalar*-halves ]] || limit=$most_stack_scalar_alone
        ((used <= limit)) && continue
        echo "$isa, $kind: $used bytes of stack, at most $limit"
        too_much=1
    done <<<"$lines"
    return $too_much
}

# Not where nothing is optimised.
header_stack() { # VARIANT COMPILER LINK_FLAGS
    [[ $1 == *-O0 ]] || job "header / stack of $1" little_stack "$1" "$2" "$3"
}

# A test that is not named in meson.build or in the scripts would never be run.
every_test_is_run() {
    local file name
    for file in $(find tests -name 'test_*.c'); do
        name=${file#tests/test_}
        name=${name%.c}
        [[ " $all_tests " == *" $name "* ]] || { echo "tests/harness.sh lacks $name" && return 1; }
        grep -q "^    '$name':" tests/meson.build ||
            { echo "tests/meson.build lacks $name" && return 1; }
    done
}

# ---- Style ---------------------------------------------------------------------------------------

# Files of the project whose names match, without what was built.
files_named() { # REGULAR_EXPRESSION
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard
    else
        find . -path './build*' -prune -o -type f -print | sed 's/^\.\///'
    fi | grep -E "$1" | while read -r file; do [[ ! -e $file ]] || echo "$file"; done
}

# Version 14's, as others break lines elsewhere. The headers section by section, as its time grows
# with the square of a file: a section says in its name where it begins.
formatted() { # CLANG_FORMAT
    local files parts=$work/format
    files=$(files_named '\.(c|h|cc)$')
    grep -qx linattn.h <<<"$files"
    mkdir -p "$parts"
    cp .clang-format "$parts"
    awk -v parts="$parts" '
        FNR == 1 || (/^\/\* ---- / && FNR - begin > 300) {
            close(part)
            begin = FNR
            part = parts "/line-" begin "-of-" FILENAME
            blank = ""
        }
        /^$/ { blank = blank "\n"; next }
        { printf "%s%s\n", blank, $0 > part; blank = "" }' linattn.h linattn_simd.h
    "$1" --dry-run -Werror $(grep -vx 'linattn\(_simd\)\?\.h' <<<"$files") \
        $(find "$parts" -name 'line-*')
}

# At most 100 characters, comments too: clang-format leaves comments alone.
narrow() {
    local files long text='\.(c|h|cc|sh|py|ld|S|cmake\.in|build)$'
    files=$(files_named "$text|^tools/|(CMakeLists|meson_options)\.txt$")
    grep -qx tools/test <<<"$files"
    long=$(LC_ALL=C.UTF-8 grep -nE '^.{101}' $files | cut -c 1-140 || true)
    echo "$long"
    [[ -z $long ]]
}

style() {
    local candidate
    job 'header / 100 columns' narrow
    for candidate in clang-format-14 clang-format; do
        if [[ $("$candidate" --version 2>/dev/null) == *'version 14.'* ]]; then
            job 'header / clang-format' formatted "$candidate"
            return
        fi
    done
    report_not_run 'header / clang-format' 'version 14 of it is not installed'
}

job 'header / every test is run' every_test_is_run
style
matrix matrix_library
for cc in $compilers; do
    header_warnings "$cc"
    header_two_files "$cc"
    header_leaks "$cc"
done
if command -v nm >/dev/null; then
    matrix header_symbols
    for cc in $compilers; do
        job "header-$cc / calls do not make functions cold" callers_stay_warm "$cc"
    done
else
    report_not_run 'header / symbols' 'nm is not installed'
fi
matrix header_stack
scalar_library
header_stack scalar-O2 gcc ''
