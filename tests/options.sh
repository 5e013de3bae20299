# shellcheck shell=bash
# Stage of tools/test: every preprocessor option is built without a warning as C99 and C++11, has
# the instruction sets that it should have, and gives the same bits; options that contradict each
# other are refused with a message.

contradictions() { # FLAGS
    local cc
    for cc in $compilers; do contradiction "$cc" "$1"; done
}

quiet() { # NAME FLAGS
    local cc
    for cc in $compilers; do
        job "option-$1-$cc / no warnings, C99" compiles "$cc" "-std=c99 $2"
        job "option-$1-$cc / no warnings, C++11" compiles "$cc" "-x c++ -std=c++11 $2"
    done
}

# Tested with gcc; with clang, too, where functions are called directly rather than by a table.
# Everywhere else clang has nothing to show but its warnings.
tested() { # NAME COMPILERS FLAGS ISAS [INEXACT_ISAS]
    local cc name=$1 to_run=$2
    shift 2
    quiet "$name" "$1"
    for cc in $to_run; do
        [[ " $compilers " != *" $cc "* ]] || option "option-$name-$cc" "$cc" "$@"
    done
}

# What is left out is refused, and the rest works. Both are decided before an instruction set is.
left_out() { # COMPILER FLAGS
    local program
    program=$(mktemp "$work/left-out.XXXXXX")
    "$1" -std=c11 -O1 $2 -DLINATTN_SCALAR_ONLY -I . tests/consumer/left_out.c -o "$program"
    "$program"
}

# The hosted library is out of reach of a freestanding build; the compiler's own headers are allowed.
freestanding_includes() { # COMPILER
    local found
    found=$(direct_includes "$1" -std=c99 -ffreestanding -DLINATTN_FREESTANDING \
        -DLINATTN_IMPLEMENTATION | grep -vE '/(stddef|stdint|float|immintrin|arm_neon)\.h$' || true)
    if [[ -n $found ]]; then
        echo "includes $found"
        return 1
    fi
}

case $host_isas in
*avx512)
    tested scalar-only gcc -DLINATTN_SCALAR_ONLY scalar
    tested no-avx2 gcc -DLINATTN_NO_AVX2 'scalar avx512'
    tested no-avx512 gcc -DLINATTN_NO_AVX512 'scalar avx2'
    tested no-dispatch gcc -DLINATTN_NO_DISPATCH scalar
    tested no-dispatch-avx2 'gcc clang' '-DLINATTN_NO_DISPATCH -mavx2 -mfma' avx2
    if has_isa avx512; then
        tested no-dispatch-native 'gcc clang' '-DLINATTN_NO_DISPATCH -march=native' avx512
    else
        report_not_run option-no-dispatch-native 'the CPU lacks avx512'
    fi
    tested scalar-fast gcc -DLINATTN_SCALAR_FAST "$host_isas" scalar
    tested scalar-fast-fma gcc '-DLINATTN_SCALAR_FAST -DLINATTN_SCALAR_ONLY -mfma' scalar
    ;;
*neon)
    tested scalar-only gcc -DLINATTN_SCALAR_ONLY scalar
    tested no-neon gcc -DLINATTN_NO_NEON scalar
    tested no-dispatch 'gcc clang' -DLINATTN_NO_DISPATCH neon
    ;;
esac
for flags in -DLINATTN_NO_WINDOW -DLINATTN_NO_FEATURES \
    '-DLINATTN_NO_WINDOW -DLINATTN_NO_FEATURES -DLINATTN_STATIC'; do
    quiet "left-out${flags//-DLINATTN_/}" "$flags"
    for cc in $compilers; do
        job "option-left-out-$cc / refused $flags" left_out "$cc" "$flags"
    done
done
tested assert gcc '-DLINATTN_ASSERT(x)=((x)?(void)0:__builtin_trap())' "$host_isas"
# Whatever the laws and the fuzzing reach keeps the invariants.
run_tests option-assert-gcc gcc '' "${host_isas/scalar /}" 'laws fuzz' LINATTN_TEST_QUICK=1
tested freestanding gcc '-DLINATTN_FREESTANDING -ffreestanding' "$host_isas"
for cc in $compilers; do job "option-freestanding-$cc / inclusions" freestanding_includes "$cc"; done
if pkg-config --exists sleef; then # the stage unit runs it
    quiet use-sleef -DLINATTN_USE_SLEEF
else
    report_not_run option-use-sleef 'SLEEF is not installed'
fi

contradictions '-DLINATTN_SCALAR_ONLY -DLINATTN_NO_DISPATCH'
contradictions '-DLINATTN_FREESTANDING -DLINATTN_USE_SLEEF'
contradictions '-DLINATTN_SCALAR_FAST -DLINATTN_USE_SLEEF'
contradictions '-DLINATTN_NO_WINDOWS'
contradictions '-DLINATTN_FREE_STANDING'
contradictions '-DLINATTN_IMPLEMENTATION -include linattn_simd.h'
# Sums in the registers of the 8087 are rounded at other places.
[[ $host_isas != *avx* ]] || contradictions '-DLINATTN_FREESTANDING -ffreestanding -m32 -mno-sse'
