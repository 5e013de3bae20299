# shellcheck shell=bash
# Stage of tools/test: the same bits from every compiler, language and set of flags. The fixed runs
# of `golden` hold them, so each library gets these; what else there is to see depends on what the
# compiler may do.

matrix_tests() { # VARIANT TOOLCHAIN LINK_FLAGS
    local slow='' others='' isa tests
    [[ $1 != *-O2 ]] || return 0 # the plain one, below
    for isa in $host_isas; do
        # Without an instruction for multiply-add it takes ten times as long as any other.
        if [[ $isa == scalar && $1 != *-fast ]]; then slow=scalar; else others+=" $isa"; fi
    done
    tests='laws recurrent half verbs softmax nystrom range exp'
    [[ $1 != *-O0 ]] || tests=exp
    if [[ $1 != clang-*-O0 ]]; then # gcc's is enough
        run_tests "$1" "$2" "$3" "$slow" exp LINATTN_TEST_QUICK=1
        run_tests "$1" "$2" "$3" "$slow" golden LINATTN_TEST_QUICK=1 LINATTN_TEST_ONLY=$few_hashes
    fi
    if [[ $1 == gcc-c99-fast && $others == *scalar* ]]; then
        # Every float for exp, which the stage unit compares with the true values: here its bits.
        # The rest in part: the others are compared with the oracles in full, and with scalar code
        # to the bit.
        run_tests "$1" "$2" "$3" scalar exp LINATTN_TEST_HASH=1
        run_tests "$1" "$2" "$3" scalar \
            'golden laws recurrent verbs softmax nystrom range random' LINATTN_TEST_QUICK=1
        others=${others/scalar/}
    elif [[ $others == *' scalar '* ]]; then # what else it might do, gcc's does
        run_tests "$1" "$2" "$3" scalar 'golden exp' LINATTN_TEST_QUICK=1
        others=${others/scalar/}
    fi
    run_tests "$1" "$2" "$3" "$others" "golden $tests" LINATTN_TEST_QUICK=1
}

matrix matrix_library
matrix matrix_tests
# The plain library, called from hostile environments: every rounding, flushing, exceptions
# unmasked, a program linked with -ffast-math. Scalar code, which takes longest, where its own words
# are: calls enter and leave alike.
plain_library
run_hostile hostile "$plain_compiler" "$plain" "${host_isas/scalar /}" \
    'golden exp verbs softmax nystrom laws recurrent half range random'
[[ $host_isas == scalar ]] ||
    run_hostile hostile "$plain_compiler" "$plain" scalar 'golden exp softmax random'
# For size tiles stay in registers, too, or all takes three times as long: their loops are unrolled,
# so that there are as many multiply-adds as in the plain library.
multiply_adds() { objdump -d "$1" | grep -cE 'vfn?m(add|sub)[0-9]+ps .*%ymm'; }

tiles_unrolled() { # VARIANT
    local for_size for_speed
    await "$work/lib/$1.o" "$work/lib/$plain.o"
    for_size=$(multiply_adds "$work/lib/$1.o")
    for_speed=$(multiply_adds "$work/lib/$plain.o")
    echo "$for_size multiply-adds of vectors, $for_speed for speed"
    ((10 * for_size > 8 * for_speed))
}

# Levels that the library has its own ways with: each of gcc's clears the upper halves of registers
# in another, of which calls from outside are to see nothing.
if [[ $host_isas == *avx2* ]]; then
    grep -qw xgetbv1 /proc/cpuinfo ||
        report_not_run 'matrix / upper halves' 'this CPU does not say what is in use'
    for level in gcc-O1 gcc-Os clang-Os; do
        cc=${level%-*}
        [[ " $compilers " == *" $cc "* ]] || continue
        library "$cc-c99-${level#*-}" "$cc" "-std=c99 -${level#*-}"
        run_hostile "hostile-$level" "$cc" "$cc-c99-${level#*-}" "${host_isas/scalar /}" \
            'golden recurrent softmax'
        [[ $level == *-O1 ]] || job "matrix / tiles of $level" tiles_unrolled "$cc-c99-${level#*-}"
    done
    [[ " $compilers " != *' gcc '* ]] ||
        run_hostile hostile-gcc-O0 gcc gcc-c++11-O0 "${host_isas/scalar /}" golden
fi
# Tuned for no processor, clang takes estimates for roots and quotients where it may. With AVX2 it
# is the stage options' to show, in a library that has nothing else.
if [[ $compilers == *clang* ]]; then
    library clang-c99-untuned clang '-std=c99 -O1 -ffast-math -DLINATTN_NO_AVX2'
    untuned=${host_isas/ avx2/}
    run_tests clang-c99-untuned clang -ffast-math "${untuned#scalar }" golden LINATTN_TEST_QUICK=1
fi

# ---- AVX-512 where the processor has none --------------------------------------------------------

# What is written for it, by intrinsics for pairs of AVX2's vectors. The header asks for AVX-512,
# which the compiler would use by itself.
emulated_library() { # OBJECT
    local place=$work/emulated
    mkdir -p "$place"
    sed 's/"avx512f,avx2,fma,f16c"/"avx2,fma,f16c"/' linattn.h >"$place/linattn.h"
    cp linattn_simd.h "$place"
    # shellcheck disable=SC2086
    gcc -std=c99 -O1 -mfma $warnings -DLINATTN__AS_MSVC -DLINATTN__FAMILY=25 $fetches \
        -I "$place" -I tests/emulated -I . -c tests/linattn.c -o "$1"
    if objdump -d "$1" | grep zmm >/dev/null; then # to its end, or objdump fails
        echo 'it uses AVX-512'
        return 1
    fi
}

if has_isa avx2 && ! has_isa avx512 && [[ $host_isas == *avx512* ]]; then
    target "$work/lib/emulated.o" emulated_library "$work/lib/emulated.o"
    run_tests emulated gcc '' avx512 "$all_tests" LINATTN_TEST_QUICK=1 LINATTN_REQUIRE_ISA=1
fi

# ---- What Microsoft's compiler is given ----------------------------------------------------------

# It cannot run here. The others compile its text to the same bits, but for clang under -ffast-math,
# which takes the operands of intrinsics to be no NaN.
msvc_text() { # TOOLCHAIN FLAGS LINK_FLAGS
    library "msvc-$1" "$1" "$2 -mfma -DLINATTN__AS_MSVC -I tests/msvc"
    run_tests "msvc-$1" "$1" "$3" "$host_isas" 'golden recurrent half exp dispatch' \
        LINATTN_TEST_QUICK=1
    library "msvc-sse2-$1" "$1" \
        "$2 -DLINATTN__AS_MSVC -DLINATTN_SSE2 -DLINATTN_NO_DISPATCH -I tests/msvc"
    run_tests "msvc-sse2-$1" "$1" "$3" sse2 'golden half exp' LINATTN_TEST_QUICK=1
}

msvc_clang() { # MACHINE LANGUAGE FLAGS...
    local machine=$1 language=$2
    shift 2
    # shellcheck disable=SC2046,SC2086
    clang --target="$machine-pc-windows-msvc" -fms-compatibility -fms-compatibility-version=19.29 \
        -ffreestanding -DLINATTN_FREESTANDING $(language_flags "$language") $warnings \
        -Wno-unused-function "$@" -I . tests/linattn.c
}

# Every line of it, by a clang that does not say that it is one, where vectors are unions as in
# Microsoft's headers.
msvc_types() { # MACHINE LANGUAGE FLAGS...
    local place unknown
    place=$(mktemp -d -p "$work")
    msvc_clang "$@" -U__clang__ -I tests/msvc/unions -Wno-misleading-indentation \
        -Wno-unknown-pragmas -Wno-ignored-pragmas -fsyntax-only
    msvc_clang "$@" -U__clang__ -I tests/msvc/unions -E -o "$place/text"
    grep -q linattn_causal "$place/text"
    unknown=$(grep -E '# *pragma (GCC|clang)|__attribute__|__builtin_|__asm__|__typeof__' \
        "$place/text" | grep -v '__builtin_offsetof' || true)
    echo "$unknown"
    [[ -z $unknown ]]
}

# With clang's own headers, which play Microsoft's.
msvc_object() { # MACHINE LANGUAGE FLAGS...
    local object
    object=$(mktemp -p "$work" XXXXXX.obj)
    msvc_clang "$@" -DLINATTN__AS_MSVC -Wno-language-extension-token -O0 -c -o "$object"
    test -s "$object"
}

msvc() {
    local language
    if has_isa avx2 && [[ $host_isas == *avx2* ]]; then
        msvc_text gcc '-std=c99 -O1 -ffast-math' -ffast-math
        [[ $compilers != *clang* ]] || msvc_text clang '-x c++ -std=c++11 -O1' ''
    else
        report_not_run 'msvc-gcc' 'this machine lacks AVX2'
    fi
    [[ $compilers == *clang* ]] || return 0
    for language in c99 c++11; do
        job "msvc / types, x86_64, $language" msvc_types x86_64 $language -DLINATTN_SSE2
        job "msvc / types, aarch64, $language" msvc_types aarch64 $language
        job "msvc / types, i686, $language" msvc_types i686 $language -msse2
    done
    job 'msvc / object, x86_64' msvc_object x86_64 c99 -mavx2 -mfma -mavx512f -mxsave
    job 'msvc / object, aarch64' msvc_object aarch64 c++11
}

msvc
