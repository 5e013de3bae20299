# shellcheck shell=bash
# Stage of tools/test: the same bits from every compiler, language and set of flags. The fixed runs
# of `golden` hold them, so each library gets these; what else there is to see depends on what the
# compiler may do.

matrix_tests() { # VARIANT TOOLCHAIN LINK_FLAGS
    local slow='' others='' isa tests
    for isa in $host_isas; do
        # Without an instruction for multiply-add it takes ten times as long as any other.
        if [[ $isa == scalar && $1 != *-fast ]]; then slow=scalar; else others+=" $isa"; fi
    done
    tests='laws recurrent verbs softmax nystrom range exp'
    [[ $1 != *-O0 ]] || tests=exp
    [[ $1 != *-O2 ]] || tests='range exp'
    run_tests "$1" "$2" "$3" "$slow" 'golden exp' LINATTN_TEST_QUICK=1
    if [[ $1 == gcc-c99-fast && $others == *scalar* ]]; then
        # Every float for exp. The rest in part: the others are compared with the oracles in full,
        # and with scalar code to the bit.
        run_tests "$1" "$2" "$3" scalar 'exp softmax'
        run_tests "$1" "$2" "$3" scalar 'golden laws recurrent verbs nystrom range random' \
            LINATTN_TEST_QUICK=1
        others=${others/scalar/}
    fi
    run_tests "$1" "$2" "$3" "$others" "golden $tests" LINATTN_TEST_QUICK=1
}

matrix matrix_library
matrix matrix_tests
