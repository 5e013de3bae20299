# shellcheck shell=bash
# Stage of tools/test: every preprocessor option is built without a warning as C99 and C++11, has
# the instruction sets that it should have, and gives the same bits; options that contradict each
# other are refused with a message.

contradictions() { # FLAGS
    local cc
    for cc in $compilers; do contradiction "$cc" "$1"; done
}

quiet() { # NAME FLAGS [COMPILED_BY]
    local cc
    for cc in $compilers; do
        [[ " ${3-} " == *" $cc "* ]] ||
            job "option-$1-$cc / no warnings, C99" compiles "$cc" "-std=c99 $2"
        job "option-$1-$cc / no warnings, C++11" compiles "$cc" "-x c++ -std=c++11 $2"
    done
}

# Tested with gcc, but for what clang calls directly rather than by a table. Everywhere else clang
# has nothing to show but its warnings.
tested() { # NAME COMPILERS FLAGS ISAS [INEXACT_ISAS]
    local cc name=$1 to_run=$2
    shift 2
    quiet "$name" "$1" "$to_run"
    for cc in $to_run; do
        [[ " $compilers " != *" $cc "* ]] || option "option-$name-$cc" "$cc" "$@"
    done
}

# What is left out is refused, and the rest has the bits of the whole library.
left_out_program() { # PROGRAM COMPILER FLAGS
    "$2" -std=c99 $warnings $3 -I . tests/consumer/left_out.c -o "$1"
}

# The whole library is one that is there, as its bits do not depend on how it was compiled.
nothing_left_out() { # PROGRAM LIBRARY
    await "$2"
    gcc -std=c99 -O0 $warnings -DLINATTN__IMPLEMENTED -I . tests/consumer/left_out.c "$2" -o "$1"
}

left_out() { # COMPILER FLAGS
    local program lines
    await "$work/left-out"
    program=$(mktemp "$work/left-out.XXXXXX")
    left_out_program "$program" "$1" "$2"
    lines=$("$program") || { echo "$lines" && return 1; }
    if [[ -n $lines ]] && grep -vxFf <("$work/left-out") <<<"$lines"; then
        echo 'differ from the whole library'
        return 1
    fi
}

# A function that is left out is not declared, and no other one goes with it.
not_declared() { # COMPILER SWITCH FUNCTION...
    local function switch=$2 cc=$1
    shift 2
    for function in $(declared_functions); do
        if printf '#include "linattn.h"\nvoid (*probe)(void) = (void (*)(void))%s;\n' "$function" |
            "$cc" -std=c99 -fsyntax-only -w "-D$switch" -I . -x c - 2>/dev/null; then
            [[ " $* " != *" $function "* ]] || { echo "$function is still declared" && return 1; }
        else
            [[ " $* " == *" $function "* ]] || { echo "$function is gone, too" && return 1; }
        fi
    done
}

# The names of what must not be in a program that calls state_init and causal alone. (Windows merge
# sums by the kernel of linattn_merge. Which configs ask for exact attention all are to know.)
other_methods='softmax|exact|nystrom|landmark|random|bidirectional|linattn_merge|_many|crowd'
other_methods+='|__(inverse|map)_(scalar|neon|avx2|avx512)'

no_other_methods() { # FILE
    if nm --defined-only "$1" | awk '$NF != "linattn__is_exact" { print $NF }' |
        grep -E "linattn.*($other_methods)"; then
        return 1
    fi
    nm --defined-only "$1" | grep linattn__ >/dev/null # to its end, or nm fails
}

causal_alone_static() { # COMPILER
    local object
    object=$(mktemp -p "$work" alone.XXXXXX)
    "$1" -std=c99 -O1 -DLINATTN_STATIC -DLINATTN_IMPLEMENTATION -I . \
        -c tests/consumer/causal_alone.c -o "$object"
    no_other_methods "$object"
}

# Not optimised, which takes a third of the time: functions refer to no fewer others then.
causal_alone_linked() { # COMPILER
    local program
    program=$(mktemp -p "$work" alone.XXXXXX)
    "$1" -std=c99 -O0 -ffunction-sections -fdata-sections -I . -Wl,--gc-sections \
        tests/consumer/causal_alone.c tests/linattn.c -o "$program"
    "$program"
    no_other_methods "$program"
}

# What scalar code does on a CPU without the instruction. Where the tests run, all else uses it. As
# a private copy, of which compilers leave out what the program does not call: nearly all of it.
multiply_add() { # COMPILER FLAGS...
    local program
    program=$(mktemp "$work/multiply-add.XXXXXX")
    "$1" -std=c99 -O0 $warnings -DLINATTN_STATIC -DLINATTN_NO_DISPATCH "${@:2}" -I . \
        tests/consumer/multiply_add.c -fsanitize=undefined -fno-sanitize-recover=all \
        -o "$program" -lm
    "$program"
}

# Freestanding, it includes nothing of the hosted library: only the compiler's own headers.
freestanding_includes() { # COMPILER
    local found
    found=$(direct_includes "$1" -std=c99 -ffreestanding -DLINATTN_FREESTANDING \
        -DLINATTN_IMPLEMENTATION | grep -vE '/(stddef|stdint|float|immintrin|arm_neon)\.h$' || true)
    if [[ -n $found ]]; then
        echo "includes $found"
        return 1
    fi
}

last=${compilers##* } # clang, where there is one
scalar_library
library_of[option-scalar-only-gcc]=scalar-O2
case $host_isas in
*avx512)
    tested scalar-only gcc -DLINATTN_SCALAR_ONLY scalar
    tested no-avx2 gcc '-O0 -DLINATTN_NO_AVX2' 'scalar avx512'
    tested no-avx512 gcc '-O0 -DLINATTN_NO_AVX512' 'scalar avx2'
    tested no-dispatch gcc -DLINATTN_NO_DISPATCH scalar
    job "option-no-dispatch-$last / multiply-add" multiply_add "$last"
    # Beside AVX2 by one compiler, alone by the other, which takes -ffast-math most literally.
    tested sse2 gcc '-DLINATTN_SSE2 -DLINATTN_NO_AVX512' 'scalar avx2 sse2'
    tested sse2-alone "$last" '-DLINATTN_SSE2 -DLINATTN_NO_DISPATCH -O2 -ffast-math' sse2
    run_tests option-sse2-gcc gcc '' sse2 'laws recurrent' LINATTN_TEST_QUICK=1
    run_tests "option-sse2-alone-$last" "$last" -ffast-math sse2 \
        'half verbs softmax nystrom range' LINATTN_TEST_QUICK=1
    run_tests "option-sse2-alone-$last" "$last" -ffast-math sse2 exp LINATTN_TEST_HASH=1
    run_hostile option-sse2-hostile "$last" "option-sse2-alone-$last" sse2 'golden exp softmax'
    job "option-sse2-$last / multiply-add" multiply_add "$last" -DLINATTN_SSE2
    job 'option-sse2-gcc / multiply-add' multiply_add gcc -DLINATTN_SSE2 -O2
    # Tuned for no processor, as clang-c99-untuned of the stage matrix, which has no AVX2.
    tested no-dispatch-avx2 "$last" '-DLINATTN_NO_DISPATCH -mavx2 -mfma -ffast-math' avx2
    if has_isa avx512; then
        tested no-dispatch-native gcc '-DLINATTN_NO_DISPATCH -march=native' avx512
    else
        report_not_run option-no-dispatch-native 'the CPU lacks avx512'
    fi
    tested scalar-fast gcc '-DLINATTN_SCALAR_FAST -DLINATTN_NO_AVX512' 'scalar avx2' scalar
    tested scalar-fast-fma gcc '-DLINATTN_SCALAR_FAST -DLINATTN_SCALAR_ONLY -mfma' scalar
    ;;
*neon)
    tested scalar-only gcc -DLINATTN_SCALAR_ONLY scalar
    tested no-neon gcc -DLINATTN_NO_NEON scalar
    tested no-dispatch "$compilers" -DLINATTN_NO_DISPATCH neon
    ;;
esac
# One switch for every method, and one for every map that can be kept.
left_out_switches='NO_WINDOW NO_FEATURES NO_EXACT NO_NYSTROM NO_MAPS NO_RANDOM NO_PREFILL
    NO_RECURRENT NO_COMPENSATED NO_HALF ONLY_ELU1 ONLY_IDENTITY ONLY_RELU ONLY_EXP ONLY_SOFTMAX
    ONLY_FAVOR ONLY_TAYLOR ONLY_EXPDEF ONLY_UNIT'
# Several together: as a microcontroller has it; two maps; states alone.
left_out_together='NO_WINDOW,NO_FEATURES,ONLY_ELU1,NO_PREFILL ONLY_ELU1,ONLY_EXP
    NO_HALF,NO_EXACT NO_HALF,NO_PREFILL ONLY_RELU,ONLY_FAVOR ONLY_UNIT,NO_WINDOW
    NO_RECURRENT,NO_WINDOW,NO_FEATURES,ONLY_ELU1
    NO_WINDOW,NO_FEATURES,NO_EXACT,NO_NYSTROM,NO_MAPS,NO_RANDOM'

# All kernels are one text, so that scalar code, compiled in a third of the time, is enough to run;
# the others are checked for warnings: of functions that are not used or not defined, too. But where
# scratch that all sets share may have another layout, all of them run.
every_set=' NO_WINDOW NO_FEATURES NO_RECURRENT NO_COMPENSATED NO_HALF '
vectors=${host_isas/scalar /}
one_set=-DLINATTN_SCALAR_ONLY
if [[ $host_isas == *avx2* ]] && has_isa avx2; then one_set+=' -mfma'; fi

plain_library
target "$work/left-out" nothing_left_out "$work/left-out" "$work/lib/$plain.o"
for switch in $left_out_switches $left_out_together; do
    flags=-DLINATTN_${switch//,/ -DLINATTN_}
    # One by one by the quicker compiler.
    for cc in $compilers; do
        [[ $cc == "$last" || " $left_out_together " == *[[:space:]]"$switch"[[:space:]]* ]] ||
            continue
        job "option-left-out-$cc / no warnings $flags, C++11" compiles "$cc" \
            "-x c++ -std=c++11 $flags"
    done
    # A private copy differs by a word before each function, so that those that leave out most are
    # enough.
    [[ " $left_out_together " != *[[:space:]]"$switch"[[:space:]]* ]] ||
        job "option-left-out-gcc / refused $flags, static" left_out gcc \
            "-O0 $one_set $flags -DLINATTN_STATIC"
    sets=$one_set
    [[ $every_set != *" $switch "* ]] || sets=
    job "option-left-out-$last / refused $flags" left_out "$last" "-O0 $sets $flags"
done
while read -r switch functions; do
    job "option-left-out / not declared LINATTN_$switch" not_declared gcc "LINATTN_$switch" \
        $functions
done <<'EOF'
NO_EXACT linattn_softmax linattn_nystrom
NO_NYSTROM linattn_nystrom
NO_MAPS linattn_map linattn_exp linattn_elu1 linattn_relu
NO_RANDOM linattn_random_features
NO_RECURRENT linattn_recurrent linattn_recurrent_many
NO_WINDOW
NO_PREFILL
ONLY_EXP
EOF
job 'option-causal-alone-gcc / static' causal_alone_static gcc
job "option-causal-alone-$last / linked" causal_alone_linked "$last"
# Two that have nothing to do with each other are run as one.
asserted='-DLINATTN_ASSERT(x)=((x)?(void)0:__builtin_trap())'
quiet assert "$asserted"
quiet freestanding '-DLINATTN_FREESTANDING -ffreestanding'
option option-assert-freestanding-gcc gcc "-O0 $asserted -DLINATTN_FREESTANDING -ffreestanding" \
    "$host_isas"
# Whatever these reach keeps the invariants.
run_tests option-assert-freestanding-gcc gcc '' "${vectors%% *}" fuzz LINATTN_TEST_QUICK=1
run_tests option-assert-freestanding-gcc gcc '' "${vectors%% *}" recurrent LINATTN_TEST_QUICK=1 \
    LINATTN_TEST_ONLY=every_cut,layouts,forms_of_gates,many_sequences,merges_in_order,threads
run_tests option-assert-freestanding-gcc gcc '' "${vectors%% *}" laws LINATTN_TEST_QUICK=1 \
    LINATTN_TEST_ONLY=cuts,layouts,threads,windows_forget,groups_of_every_size,crowds_of_states
for cc in $compilers; do
    job "option-freestanding-$cc / inclusions" freestanding_includes "$cc"
done
if pkg-config --exists sleef; then # the stage unit runs it
    quiet use-sleef -DLINATTN_USE_SLEEF
else
    report_not_run option-use-sleef 'SLEEF is not installed'
fi

contradictions '-DLINATTN_SCALAR_ONLY -DLINATTN_NO_DISPATCH'
contradictions '-DLINATTN_FREESTANDING -DLINATTN_USE_SLEEF'
contradictions '-DLINATTN_SCALAR_FAST -DLINATTN_USE_SLEEF'
contradictions '-DLINATTN_SCALAR_ONLY -DLINATTN_SSE2'
contradictions '-DLINATTN_NO_FEATURES -DLINATTN_ONLY_ELU1 -DLINATTN_ONLY_TAYLOR'
contradictions '-DLINATTN_NO_PREFILL -DLINATTN_ONLY_FAVOR'
contradictions '-include linattn.h -include tests/consumer/late_static.h'
contradictions '-DLINATTN_NO_WINDOWS'
contradictions '-DLINATTN_NO_PREFIL'
contradictions '-DLINATTN_FREE_STANDING'
contradictions '-DLINATTN_IMPLEMENTATION -include linattn_simd.h'
# Sums in the registers of the 8087 are rounded at other places.
[[ $host_isas != *avx* ]] || contradictions '-DLINATTN_FREESTANDING -ffreestanding -m32 -mno-sse'
