# shellcheck shell=bash
# Stage of tools/test: the same bits from every compiler, language and set of flags.

matrix_tests() { # VARIANT TOOLCHAIN LINK_FLAGS
    local isas=$host_isas
    if [[ $1 == *-O0 && $isas == *scalar* ]]; then # slow: there its bits have to do
        run_tests "$1" "$2" "$3" scalar 'golden softmax exp random' LINATTN_TEST_QUICK=1
        isas=${isas/scalar/}
    fi
    run_tests "$1" "$2" "$3" "$isas" 'golden laws verbs softmax nystrom range exp random' \
        LINATTN_TEST_QUICK=1
}

matrix matrix_library
matrix matrix_tests
