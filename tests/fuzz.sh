# shellcheck shell=bash
# Stage of tools/test: libFuzzer's targets, for 10 seconds each, or with --long for an hour: any
# sequence of calls, any arguments, files with any bytes, any command line of attend, under the
# address and undefined-behaviour sanitizers; calls and arguments under the memory sanitizer, too.
# What is found is left in DIR/test/fuzz/NAME, a file to be given to that target. Then valgrind over
# every verb, and over rules token by token, with decays that are rare; and with --long ten thousand
# random problems under every law.

fuzz_seconds=10
if ((long)); then fuzz_seconds=3600; fi

# Where a token of a rule goes by itself, and what it asks for seldom.
single_tokens=cuts,states_from_memory,tokens_of_wide_heads,denominators_decay_to_zero
single_tokens+=,mlstm_with_wild_gates,mlstm_across_scales,mlstm_forgets_by_denormals

declare -A fuzz_objects=([calls]='test_calls fuzz/checks' [arguments]='test_fuzz fuzz/checks'
    [files]=fuzz/files [attend]=fuzz/attend)
declare -A fuzz_shared=([calls]=$shared_files [arguments]=$shared_files)

fuzz_object() { # SANITIZER FILE
    # shellcheck disable=SC2086
    target "$work/fuzz/$1/$2.o" ${compiler[$1]} ${common_flags[$1]} $sanitized_flags $warnings \
        -Wno-unused-function -DTEST_BYTES -DLINATTN__IMPLEMENTED -I . -c "tests/$2.c" \
        -o "$work/fuzz/$1/$2.o"
}

fuzz_program() { # SANITIZER PROGRAM OBJECT...
    local sanitizer=$1 program=$2
    shift 2
    await "$@"
    clang -fsanitize=fuzzer,"${fuzz_sanitizers[$sanitizer]}" "$@" -o "$program" -lm -pthread
}

# Begins with the seeds, and says how many inputs were run in all. Programs work in a folder in
# memory, where there is one, as attend waits until its outputs are on the disk.
fuzz_run() { # PROGRAM NAME
    local folder=$work/fuzz/$2 scratch status=0 options='-max_len=300 -close_fd_mask=1'
    # What the programs have to say is not worth keeping, what the checks say is.
    case $2 in files-* | attend-*) options='-max_len=4096 -close_fd_mask=3' ;; esac
    await "$1"
    mkdir -p "$folder/corpus"
    scratch=$(mktemp -d /dev/shm/linattn-XXXXXX 2>/dev/null || mktemp -d)
    export LINATTN_TEST_QUICK=1 UBSAN_OPTIONS=print_stacktrace=1
    export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16
    # shellcheck disable=SC2086
    (cd "$scratch" && "$1" $options -max_total_time=$fuzz_seconds -timeout=60 \
        -rss_limit_mb=4096 -entropic=0 -print_final_stats=1 -artifact_prefix="$folder/" \
        "$folder/corpus" "$root/tests/fuzz/seeds/${2%-*}") \
        >"$folder/log" 2>&1 || status=$?
    rm -rf "$scratch"
    grep -E 'number_of_executed|average_exec|DONE' "$folder/log" || true
    ((status)) || return 0
    grep -av 'NEW\|REDUCE\|RELOAD\|pulse' "$folder/log" | tail -n 50
    return 1 # libFuzzer's own 77, of what it found, would say that it was not run
}

fuzz_target() { # SANITIZER NAME
    local program=$work/fuzz/$1/fuzz_$2 file objects=$work/lib/$1.o
    for file in ${fuzz_objects[$2]}; do
        fuzz_object "$1" "$file"
        objects+=" $work/fuzz/$1/$file.o"
    done
    for file in ${fuzz_shared[$2]-}; do
        test_object "$1" "$file"
        objects+=" $work/tests-$1/$file.o"
    done
    # shellcheck disable=SC2086
    target "$program" fuzz_program "$1" "$program" $objects
    job "fuzz / $2, $1 sanitizer" fuzz_run "$program" "$2-$1"
}

# It knows no AVX-512, reports a processor without, and stops where that is called all the same.
fuzz_memcheck() { # PROGRAM TESTS [NAME=VALUE...]
    await "$1"
    env LINATTN_TEST_ONLY="$2" "${@:3}" \
        valgrind --quiet --error-exitcode=1 --track-origins=yes "$1"
}

fuzz_valgrind() { # WHAT TEST ONLY [NAME=VALUE...]
    local program=$work/bin/memcheck/test_$2 file objects=
    for file in $shared_files "test_$2"; do
        test_object gcc "$file"
        objects+=" $work/tests-gcc/$file.o"
    done
    # shellcheck disable=SC2086
    target "$program" link_test "$program" gcc '' $objects "$work/lib/$plain.o"
    job "fuzz / $1 under valgrind" fuzz_memcheck "$program" "${@:3}"
}

if [[ $compilers != *clang* ]]; then
    report_not_run fuzz 'clang is not installed'
elif ! has_libfuzzer; then
    report_not_run fuzz "clang has no libFuzzer here (see $work/probe.log)"
else
    for sanitizer in address memory; do fuzz_library $sanitizer; done
    for name in calls arguments files attend; do fuzz_target address $name; done
    for name in calls arguments; do fuzz_target memory $name; done
fi
if command -v valgrind >/dev/null; then
    plain_library
    fuzz_valgrind 'every verb' calls every_verb
    fuzz_valgrind 'single tokens of rules' recurrent "$single_tokens" LINATTN_TEST_QUICK=1
else
    report_not_run 'fuzz / valgrind' 'it is not installed'
fi
if ((long)); then
    time_limit=14400
    library_of[long]=$plain
    run_tests long gcc '' "$host_isas" 'laws fuzz calls' LINATTN_TEST_LONG=30
    wait_for_jobs
    time_limit=300
fi
