# shellcheck shell=bash
# Stage of tools/test: everything under the address and undefined-behaviour sanitizers, and what
# uses threads under the thread sanitizer. No leaks are looked for: the library does not allocate.

toolchain threads gcc '-g1 -fsanitize=thread'

# Some kernels place mappings where this sanitizer of some compilers cannot start.
thread_sanitizer_runs() {
    printf 'int main(void) { return 0; }\n' >"$work/probe.c"
    gcc -fsanitize=thread "$work/probe.c" -o "$work/probe" && "$work/probe"
}

# All kernels are one text, so that the widest vectors of this machine take all, and for the others,
# scalar code above all, which is the slowest here, their own words are enough. What is drawn at
# random, and what holds of any call, the stage fuzz draws under the same sanitizers.
tests=$all_tests
sanitizers='-g1 -fsanitize=address,undefined -fno-sanitize-recover=all'
if has_libfuzzer; then # the library of the stage fuzz, which has these tests
    toolchain sanitized clang "$sanitizers"
    fuzz_library address
    library_of[sanitized]=address
    tests=${tests/fuzz calls /} && tests=${tests/laws /}
else
    toolchain sanitized gcc "$sanitizers"
    library sanitized sanitized "-std=c99 $sanitized_flags ${fuzz_options[address]}"
fi
vectors=
for isa in ${host_isas#scalar}; do
    if has_isa "$isa"; then
        vectors+=${vectors:+ }$isa
    else
        report_not_run "sanitized / $isa" "the CPU lacks $isa"
    fi
done
vectors=${vectors:-scalar}
run_tests sanitized sanitized '' "${vectors##* }" "$tests" LINATTN_TEST_QUICK=1 \
    ASAN_OPTIONS=detect_leaks=0
if [[ $vectors == *' '* ]]; then
    run_tests sanitized sanitized '' "${vectors% *}" \
        'golden fuzz exp softmax dispatch' LINATTN_TEST_QUICK=1 \
        ASAN_OPTIONS=detect_leaks=0
fi
if [[ $vectors != scalar ]]; then
    # what test_fuzz compares with is scalar code's
    run_tests sanitized sanitized '' scalar 'exp dispatch' LINATTN_TEST_QUICK=1 \
        ASAN_OPTIONS=detect_leaks=0
fi
if [[ $tests != "$all_tests" ]]; then
    run_tests sanitized sanitized '' "${vectors##* }" calls LINATTN_TEST_QUICK=1 \
        ASAN_OPTIONS=detect_leaks=0 LINATTN_TEST_ONLY=every_verb,every_alignment
fi

if thread_sanitizer_runs >"$work/probe.log" 2>&1; then
    # What threads share does not depend on the vectors.
    library threads threads '-std=c99 -O0 -DLINATTN_NO_AVX512'
    vectors=${vectors%% *}
    run_tests threads threads '' "${host_isas%%"$vectors"*}$vectors" dispatch LINATTN_TEST_QUICK=1
    run_tests threads threads '' "$vectors" laws LINATTN_TEST_QUICK=1 \
        LINATTN_TEST_ONLY=threads,many_states,crowds_of_states
    run_tests threads threads '' "$vectors" recurrent LINATTN_TEST_QUICK=1 \
        LINATTN_TEST_ONLY=threads,threads_and_heads,many_sequences
    run_tests threads threads '' "$vectors" calls LINATTN_TEST_ONLY=every_verb
else
    report_not_run threads 'the thread sanitizer does not work here'
fi
