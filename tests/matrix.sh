# shellcheck shell=bash
# Stage of tools/test: the same bits from every compiler, language and set of flags.

matrix_tests() { # VARIANT TOOLCHAIN LINK_FLAGS
    run_tests "$1" "$2" "$3" "$host_isas" 'golden laws verbs softmax nystrom range exp random' \
        LINATTN_TEST_QUICK=1
}

matrix matrix_library
matrix matrix_tests
