# shellcheck shell=bash
# Sourced by tools/test: a pool of jobs that reports one line per test, and the ways in which the
# tests are compiled, linked and run. Flags are kept in strings and split at spaces; there is no
# globbing.

# ---- Jobs ----------------------------------------------------------------------------------------
#
# Jobs start in the order in which they are queued, never more than $cores at once. A job may wait
# for what an earlier one builds, and only for that: so the pool cannot lock up. While it waits,
# another takes its place; when there is one for it, it goes on before any that has not begun.

declare -a job_kind=() job_name=() job_start=() job_pid=() job_waits=()
declare -A queued=()
job_count=0 running=0 passed=0 failed=0 skipped=0

# Jobs write a line into $wake when they end or wait. Nobody writes into $never: to read it is to
# sleep without a process.
mkfifo "$work/wake" "$work/never"
exec {wake}<>"$work/wake" {never}<>"$work/never"

seconds_since() { # of an earlier $EPOCHREALTIME, with one digit behind the point
    local tenths=$(((${EPOCHREALTIME/./} - ${1/./}) / 100000))
    printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

report_ok() { # NAME SECONDS
    passed=$((passed + 1))
    printf 'ok        %s (%s s)\n' "$1" "$2"
}

report_failed() { # NAME [LOG]
    failed=$((failed + 1))
    printf 'FAILED    %s\n' "$1"
    # Enough to see the cause; the whole log stays in the build directory.
    if [[ -n ${2-} ]]; then
        grep -v '^\[ RUN  \|^\[       OK' "$2" | tail -n 60 | cut -c 1-400 | sed 's/^/          | /'
    fi
}

report_not_run() { # NAME REASON
    skipped=$((skipped + 1))
    printf 'not run   %s: %s\n' "$1" "$2"
}

# Queues COMMAND as a test: status 0 is ok, 77 is not run for the reason in its last line of output.
job() { # NAME COMMAND...
    launch test "$@"
}

# Queues COMMAND, which makes FILE. Only a failure is reported. The same FILE is made once a run.
target() { # FILE COMMAND...
    local file=$1
    shift
    [[ -z ${queued[$file]-} ]] || return 0
    queued[$file]=1
    launch target "${file#"$work"/}" make_target "$file" "$@"
}

make_target() { # FILE COMMAND...
    made=$1
    shift
    mkdir -p "${made%/*}"
    rm -f "$made"
    "$@"
}

# Within a job: waits until these targets have ended, and gives the job up if one failed.
await() { # FILE...
    local file
    if ! are_done "$@"; then
        printf '%s ' "$@" >"$logs/$own_id.part"
        mv "$logs/$own_id.part" "$logs/$own_id.waits"
        echo >&"$wake"
        while [[ -e $logs/$own_id.waits ]]; do read -rt 0.1 -u "$never" || true; done
    fi
    for file; do
        if [[ ! -e $file ]]; then
            echo "${file#"$work"/} was not built"
            exit 77
        fi
    done
}

are_done() { # FILE...
    local file
    for file; do [[ -e $file.done ]] || return 1; done
}

launch() { # KIND NAME COMMAND...
    local kind=$1 name=$2 id
    shift 2
    while ((running >= cores || ${#job_name[@]} >= 16 * cores)); do reap; done
    job_count=$((job_count + 1))
    running=$((running + 1))
    id=$((10000 + job_count)) # names of as many digits, so that logs are in order
    job_kind[$id]=$kind job_name[$id]=$name job_start[$id]=$EPOCHREALTIME
    set -m # a process group of its own, so that all of it can be stopped
    (
        set +m
        exec >"$logs/$id" 2>&1 </dev/null
        own_id=$id made=
        trap 'end_job "$id" $?' EXIT
        set -e
        "$@"
    ) &
    job_pid[$id]=$!
    set +m
}

# The last thing that a job does.
end_job() { # ID STATUS
    if [[ -n $made ]]; then touch "$made.done"; fi
    times >"$logs/$1.times"
    echo "$2" >"$logs/$1.part"
    mv "$logs/$1.part" "$logs/$1.status"
    echo >&"$wake"
}

# Waits until a job ends or waits, or a second, as one that was killed tells nobody. Reports all
# that have ended, and lets those go on that have what they wait for.
reap() {
    local id status
    read -rt 1 -u "$wake" || true
    for id in "${!job_name[@]}"; do
        if has_ended "$id"; then
            [[ -n ${job_waits[$id]-} ]] || running=$((running - 1))
            wait "${job_pid[$id]}" 2>/dev/null || true
            finish "$id" "$status"
            unset "job_kind[$id]" "job_name[$id]" "job_start[$id]" "job_pid[$id]" "job_waits[$id]"
        elif [[ -z ${job_waits[$id]-} && -e $logs/$id.waits ]]; then
            job_waits[$id]=$(<"$logs/$id.waits")
            running=$((running - 1))
        fi
    done
    for id in "${!job_waits[@]}"; do
        ((running < cores)) || break
        # shellcheck disable=SC2086
        are_done ${job_waits[$id]} || continue
        running=$((running + 1))
        unset "job_waits[$id]"
        job_start[$id]=$EPOCHREALTIME
        rm "$logs/$id.waits"
    done
}

# Sets $status, if so.
has_ended() { # ID
    local alive=1
    kill -0 "${job_pid[$1]}" 2>/dev/null || alive=0
    if [[ -e $logs/$1.status ]]; then
        status=$(<"$logs/$1.status")
    elif ((!alive)); then
        status=killed
        echo 'it was killed' >>"$logs/$1"
    else
        return 1
    fi
}

# Adds a job to $work/times, with what `times` printed: minutes and seconds of the processor in the
# shell and in its children.
record_times() { # NAME WALL_SECONDS FILE
    [[ ! -e $3 ]] || awk -F '[ ms]+' -v name="$1" -v wall="$2" '
        { processor += $1 * 60 + $2 + $3 * 60 + $4 }
        END { printf "%.1f\t%.1f\t%s\n", processor, wall, name }' "$3" >>"$work/times"
}

# Sets $processor to the seconds of the processor that everything has taken that has ended. Not in
# $(...), where `times` tells the subshell's.
processor_seconds() {
    times >"$work/processor"
    processor=$(awk -F '[ ms]+' '{ sum += $1 * 60 + $2 + $3 * 60 + $4 } END { printf "%d", sum }' \
        "$work/processor")
}

say_times() { # WHAT START PROCESSOR_BEFORE
    processor_seconds
    echo "          $1 took $(seconds_since "$2") s, $((processor - $3)) s of the processor"
}

longest_jobs() { # COUNT
    echo "          seconds of the processor, of the clock, job"
    sort -rn "$work/times" 2>/dev/null | sed -n "1,$1s/^/          /p"
}

finish() { # ID STATUS
    local kind=${job_kind[$1]} name=${job_name[$1]} log=$logs/$1
    record_times "$name" "$(seconds_since "${job_start[$1]}")" "$log.times"
    case $kind/$2 in
    test/0) report_ok "$name" "$(seconds_since "${job_start[$1]}")" ;;
    target/0 | target/77) ;;
    test/77) report_not_run "$name" "$(tail -n 1 "$log")" ;;
    test/124) echo 'it took too long' >>"$log" && report_failed "$name" "$log" ;;
    test/*) report_failed "$name" "$log" ;;
    *) report_failed "$name (build)" "$log" ;;
    esac
}

wait_for_jobs() {
    while ((${#job_name[@]})); do reap; done
}

stop_jobs() {
    local id
    for id in "${!job_pid[@]}"; do kill -- "-${job_pid[$id]}" 2>/dev/null; done
}

# ---- Toolchains ----------------------------------------------------------------------------------
#
# A toolchain is a compiler, flags that every file gets, a way to link cmocka and a way to run.

declare -A compiler=() common_flags=() cmocka_flags=() cmocka_link=() runner=()

toolchain() { # NAME COMPILER COMMON_FLAGS
    compiler[$1]=$2
    common_flags[$1]=$3
    cmocka_flags[$1]=$host_cmocka_flags
    cmocka_link[$1]=$host_cmocka_link
    runner[$1]=
}

warnings='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wvla -Werror'

# Every program of the tests, and the shared files that are linked to each.
all_tests='api exp verbs softmax nystrom laws recurrent half range random golden fuzz calls'
all_tests+=' dispatch'
shared_files='common oracle'

# The flags of tests/linattn.c for a language.
language_flags() { # c99|c++11
    case $1 in
    c99) echo '-std=c99' ;;
    c++11) echo '-x c++ -std=c++11' ;;
    esac
}

# tests/linattn.c with a toolchain and flags: $work/lib/VARIANT.o. -I comes first in FLAGS where
# another linattn.h than that of the source directory is meant.
library() { # VARIANT TOOLCHAIN FLAGS
    # shellcheck disable=SC2086
    target "$work/lib/$1.o" ${compiler[$2]} ${common_flags[$2]} $warnings $3 -I . \
        -c tests/linattn.c -o "$work/lib/$1.o"
}

# Variants that are linked to another's library, with flags of the same effect.
declare -A library_of=()

# The libraries that have to give the same bits, with the kernels that are chosen on Zen 4 (and what
# is on Zen 3, of its family) and Zen 5, each by one compiler's -O0 and the other's -O3, and on
# Intel's processors; the stage unit has those of this one. What is small is fetched as what comes
# from memory is, of which tests have too little, and shared out over threads. The linker is given
# -ffast-math as well, which then switches flushing to zero on for the whole process.
fetches="-DLINATTN__FETCH_FLOATS=512 -DLINATTN__TURN=8 -DLINATTN__CROWDED=16"
fetches+=" -DLINATTN__SHARE_FLOATS=1"
matrix_flags() { # COMPILER OPTIMISATION
    case $1/$2 in
    gcc/O0) echo "-O0 -DLINATTN__FAMILY=26 $fetches" ;;
    */O0) echo "-O0 -DLINATTN__FAMILY=25 $fetches" ;;
    */O2) echo "-O2 -DLINATTN__FAMILY=6 $fetches" ;;
    gcc/fast) echo "-O3 -march=native -ffast-math -DLINATTN__FAMILY=25 $fetches" ;;
    */fast) echo "-O3 -march=native -ffast-math -DLINATTN__FAMILY=26 $fetches" ;;
    esac
}

# Every pair of compiler, language and flags, rather than every triple: a slip in one of them shows
# in each library that has it. gcc -O2 is the stage unit.
matrix_builds() { # COMPILER
    case $compilers/$1 in
    *clang/gcc) echo 'c99-fast c++11-O0' ;;
    *clang/clang) echo 'c++11-fast c99-O0 c99-O2' ;;
    *) echo 'c99-fast c++11-fast c99-O0 c++11-O0' ;;
    esac
}

matrix() { # FUNCTION, called with VARIANT TOOLCHAIN LINK_FLAGS FLAGS
    local cc one link
    for cc in $compilers; do
        for one in $(matrix_builds "$cc"); do
            link=
            [[ $one != *-fast ]] || link=-ffast-math
            "$1" "$cc-$one" "$cc" "$link" \
                "$(language_flags ${one%-*}) $(matrix_flags "$cc" ${one#*-})"
        done
    done
}

matrix_library() { library "$1" "$2" "$4"; }

# The plain library, for stages that look at other things than its compiler: one of the matrix where
# clang is. Sets $plain to its variant, and $plain_compiler.
plain_library() {
    plain_compiler=${compilers##* }
    plain=$plain_compiler-c99-O2
    library "$plain" "$plain_compiler" "$(language_flags c99) $(matrix_flags "$plain_compiler" O2)"
}

# Scalar code alone, for stages that look at other things than how it was compiled.
scalar_library() { library scalar-O2 gcc '-std=c99 -O2 -DLINATTN_SCALAR_ONLY'; }

# Toolchains that link another's objects of the tests: which compiler made them is not the point.
declare -A tests_of=([clang]=gcc)

# The tests' own files with a toolchain, C99 -O1 whatever the library's flags are.
test_object() { # TOOLCHAIN FILE
    # shellcheck disable=SC2086
    target "$work/tests-$1/$2.o" ${compiler[$1]} -std=c99 -O1 ${common_flags[$1]} $warnings \
        ${cmocka_flags[$1]} -I . -c "tests/$2.c" -o "$work/tests-$1/$2.o"
}

link_test() { # PROGRAM TOOLCHAIN LINK_FLAGS OBJECT...
    local program=$1 chain=$2 flags=$3
    shift 3
    await "$@"
    [[ ${cmocka_link[$chain]} != *.o ]] || await "${cmocka_link[$chain]}"
    # shellcheck disable=SC2086
    ${compiler[$chain]} ${common_flags[$chain]} "$@" -o "$program" $flags \
        ${cmocka_link[$chain]} -lm -pthread
}

# Queues TESTS of the library VARIANT, once per instruction set. Further arguments are variables for
# the tests' environment.
run_tests() { # VARIANT TOOLCHAIN LINK_FLAGS ISAS TESTS [NAME=VALUE...]
    local variant=$1 chain=$2 link_flags=$3 isas=$4 tests=$5 test isa file program
    local makes_tests=${tests_of[$2]-$2}
    shift 5
    [[ -n $isas ]] || return 0
    for file in $shared_files; do test_object "$makes_tests" "$file"; done
    for test in $tests; do
        test_object "$makes_tests" "test_$test"
        program=$work/bin/$variant/test_$test
        # shellcheck disable=SC2086
        target "$program" link_test "$program" "$chain" "$link_flags" \
            "$work/tests-$makes_tests/test_$test.o" \
            $(printf "$work/tests-$makes_tests/%s.o " $shared_files) \
            "$work/lib/${library_of[$variant]-$variant}.o"
        for isa in $isas; do
            job "$variant / $test $isa" run_test "$program" "$chain" "$isa" "$@"
        done
    done
}

# An instruction set that this machine is known to have must not be passed over.
run_test() { # PROGRAM TOOLCHAIN ISA [NAME=VALUE...]
    local program=$1 chain=$2 isa=$3 status=0
    shift 3
    await "$program"
    if has_isa "$isa"; then export LINATTN_REQUIRE_ISA=1; fi
    # In the foreground, that is in the job's process group, which stop_jobs ends.
    env LINATTN_TEST_ISA="$isa" "$@" timeout --foreground "$time_limit" ${runner[$chain]} \
        "$program" || status=$?
    if ((status == 77)) && has_isa "$isa"; then
        echo "it was skipped, although this machine has $isa"
        return 1
    fi
    return $status
}

# Golden runs that reach most kernels, where all of them take long.
few_hashes=hash_of_a_fixed_run,hash_of_unit,hash_of_rules,hash_of_halves,hash_of_exact

# Seconds for one program in one run.
time_limit=300

# What the processor and the operating system offer, by their own account rather than by linattn's.
has_isa() {
    local flag needed
    case $1 in
    scalar | neon | sse2) return 0 ;;
    avx2) needed='avx2 fma' ;;
    avx512) needed='avx512f avx2 fma' ;;
    esac
    for flag in $needed; do
        [[ $cpu_flags == *" $flag "* ]] || return 1
    done
}
cpu_flags=$(sed -n 's/^flags[[:space:]]*:\(.*\)/\1 /p' /proc/cpuinfo 2>/dev/null | head -n 1)

# ---- cmocka for other machines ------------------------------------------------------------------

cmocka=$build/cmocka # kept from run to run

# No package brings cmocka for another architecture without adding that architecture to the system.
# Its source package does, for every one: a single file to compile. The machine's own package
# sources are read as sources of source packages, with lists of our own.
cmocka_source() {
    local file apt
    [[ ! -e $cmocka/source/src/cmocka.c ]] || return 0
    rm -rf "$cmocka"
    mkdir -p "$cmocka/lists/partial" "$cmocka/cache" "$cmocka/parts"
    cd "$cmocka" || return
    for file in /etc/apt/sources.list $(find /etc/apt/sources.list.d -name '*.list'); do
        [[ ! -e $file ]] || sed -n 's/^deb /deb-src /p' "$file" >"parts/${file##*/}"
    done
    for file in $(find /etc/apt/sources.list.d -name '*.sources'); do
        sed 's/^Types:.*/Types: deb-src/' "$file" >"parts/${file##*/}"
    done
    apt="apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$cmocka/parts
        -o Dir::State::Lists=$cmocka/lists -o Dir::Cache=$cmocka/cache"
    $apt update
    $apt source --download-only cmocka
    mkdir source
    find . -name 'cmocka_*.orig.tar.*z' -exec tar xf {} -C source --strip-components 1 \;
    test -e source/src/cmocka.c
}

cmocka_made() {
    (cmocka_source) || return 77
    touch "$made"
}

# Whether there is one, when that is known.
have_cmocka() {
    until [[ -e $work/cmocka.done ]]; do sleep 0.05; done
    [[ -e $work/cmocka ]]
}

cmocka_object() { # OBJECT COMPILER
    "$2" -O1 -w -D_GNU_SOURCE -DHAVE_CLOCK_GETTIME -DHAVE_CLOCK_REALTIME \
        -DHAVE_GCC_THREAD_LOCAL_STORAGE -DHAVE_INTTYPES_H -DHAVE_MALLOC_H -DHAVE_SETJMP_H \
        -DHAVE_SIGNAL_H -DHAVE_STDINT_H -DHAVE_STRINGS_H -DHAVE_STRSIGNAL \
        -DHAVE_STRUCT_TIMESPEC -DHAVE_TIME_H -I "$cmocka/source/include" \
        -c "$cmocka/source/src/cmocka.c" -o "$1"
}

# ---- Hostile hosts -------------------------------------------------------------------------------

# As run_tests, with each call from another floating-point environment, in a program that was linked
# with -ffast-math: whatever the tests look for is to be found from these, too.
run_hostile() { # VARIANT TOOLCHAIN LIBRARY ISAS TESTS [NAME=VALUE...]
    local shared_files="$shared_files hostile" wrap
    wrap=$(sed -n 's/^WRAP(\([a-z0-9_]*\),.*/-Wl,--wrap=linattn_\1/p' tests/hostile.c | tr '\n' ' ')
    library_of[$1]=$3
    run_tests "$1" "$2" "-ffast-math $wrap" "$4" "$5" LINATTN_TEST_QUICK=1 "${@:6}"
}

# ---- Consumers -----------------------------------------------------------------------------------

# What tests/consumer/consumer.c needs of the library, compiled in a tenth of the time.
few_methods='-DLINATTN_SCALAR_ONLY -DLINATTN_ONLY_IDENTITY -DLINATTN_NO_EXACT -DLINATTN_NO_HALF'
few_methods+=' -DLINATTN_NO_RECURRENT'

# ---- What README.md says -------------------------------------------------------------------------

# The Nth block of code in a language.
readme_block() { # LANGUAGE N
    awk -v fence='```'"$1" -v wanted="$2" '
        inside && /^```/ { exit }
        inside { print }
        $0 == fence && ++seen == wanted { inside = 1 }' README.md
}

# A copy of what a clone contains, without anything built.
readme_clone() { # DIRECTORY
    mkdir -p "$1"
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard |
            tar --null --ignore-failed-read -cf - -T - | tar xf - -C "$1"
    else
        tar --exclude './build*' -cf - . | tar xf - -C "$1"
    fi
}

# ---- Sanitizers ----------------------------------------------------------------------------------

has_libfuzzer() {
    [[ $compilers == *clang* ]] &&
        echo 'int LLVMFuzzerTestOneInput(const char *b, long n) { return b == 0 && n; }' |
        clang -fsanitize=fuzzer,address -x c - -o "$work/probe" >"$work/probe.log" 2>&1
}

# Not optimised: to optimise what the sanitizers add takes four times as long as to run it all, but
# for hours. With the instruction for a multiply-add, without which scalar code, that others are
# compared with, takes most of the time; the function that stands for it is the stage options' to
# test.
sanitized_flags=-O0
if ((long)); then sanitized_flags=-O1; fi
if [[ $host_isas == *avx2* ]] && has_isa avx2; then sanitized_flags+=' -mfma'; fi
# What cannot run is compiled elsewhere.
if [[ $host_isas == *avx512* ]] && ! has_isa avx512; then
    sanitized_flags+=' -DLINATTN_NO_AVX512'
fi

declare -A fuzz_sanitizers=([address]=address,undefined [memory]=memory)

# The memory sanitizer knows some intrinsics of AVX2 as what they are optimised to, and few of
# AVX-512, which is not run under it: see test_has in tests/common.h.
declare -A fuzz_options=([address]="-DLINATTN__FAMILY=25 $fetches" [memory]=-O1)

# Objects of which libFuzzer sees what it reaches, and which other programs can have as well.
fuzz_library() { # SANITIZER
    toolchain "$1" clang "-std=c11 -g1 -fsanitize=fuzzer-no-link,${fuzz_sanitizers[$1]}
        -fno-sanitize-recover=all -fno-sanitize-coverage=trace-cmp"
    library "$1" "$1" "-std=c99 $sanitized_flags ${fuzz_options[$1]}"
}

# ---- Preprocessor options ------------------------------------------------------------------------

# The library with an option must have just these instruction sets, and the same bits on all but
# INEXACT_ISAS. An option leaves code out or calls it in another way: with the bits of the fixed
# runs there is nothing left that could differ.
option() { # VARIANT TOOLCHAIN FLAGS ISAS [INEXACT_ISAS]
    local variant=$1 chain=$2 flags=$3 isas=$4 inexact=${5-} isa exact=''
    for isa in $isas; do
        [[ " $inexact " == *" $isa "* ]] || exact+=" $isa"
    done
    [[ -n ${library_of[$variant]-} ]] || library "$variant" "$chain" "-std=c99 -O1 $flags"
    job "$variant / instruction sets" is_compiled_with "${library_of[$variant]-$variant}" "$chain" \
        '' "$isas"
    run_tests "$variant" "$chain" '' "$exact" dispatch LINATTN_TEST_QUICK=1
    # Scalar code, which takes longest, where it is all there is.
    [[ $exact == ' scalar' ]] || exact=${exact/ scalar/}
    run_tests "$variant" "$chain" '' "$exact" golden LINATTN_TEST_QUICK=1
    run_tests "$variant" "$chain" '' "$inexact" 'verbs softmax range' LINATTN_TEST_QUICK=1 \
        LINATTN_TEST_INEXACT=1
}

compiles() { # TOOLCHAIN FLAGS
    ${compiler[$1]} ${common_flags[$1]} $2 $warnings -fsyntax-only -I . tests/linattn.c
}

is_compiled_with() { # VARIANT TOOLCHAIN LINK_FLAGS ISAS
    local program=$work/bin/$1/isas found
    await "$work/lib/$1.o"
    mkdir -p "${program%/*}"
    ${compiler[$2]} ${common_flags[$2]} -std=c99 -I . tests/consumer/isas.c "$work/lib/$1.o" \
        -o "$program" $3
    found=$(${runner[$2]} "$program")
    echo "compiled:$found, expected: $4"
    [[ $found == " $4" ]]
}

# A build with these flags must stop at an #error of linattn.h that says what to do.
contradiction() { # TOOLCHAIN FLAGS
    job "contradiction-$1 / $2" is_refused "$1" "$2"
}

is_refused() { # TOOLCHAIN FLAGS
    local messages
    if messages=$(${compiler[$1]} ${common_flags[$1]} -std=c99 -fsyntax-only -I . $2 \
        tests/linattn.c 2>&1); then
        echo 'this compiles'
        return 1
    fi
    echo "$messages"
    grep -qE 'linattn(_simd)?\.h:[0-9:]+ error: (#error )?"' <<<"$messages"
}

# The headers that linattn.h includes by itself, not through another, one a line.
direct_includes() { # COMPILER FLAGS...
    local source=$work/inclusions.$BASHPID
    echo '#include "linattn.h"' >"$source"
    "$@" -x "$(language_of "$@")" -H -E -I . "$source" 2>&1 >/dev/null |
        awk '$1 ~ /^\.+$/ {
            depth = length($1)
            header[depth] = $2
            if (depth > 1 && header[depth - 1] ~ /^(.*\/)?linattn[^\/]*\.h$/ &&
                $2 !~ /^(.*\/)?linattn[^\/]*\.h$/) print $2
        }' | sort -u
}

# The functions that linattn.h declares.
declared_functions() {
    sed -n '/^#endif .* LINATTN_H /q; s/^LINATTN_API .*[ *]\(linattn_[a-z0-9_]*\)(.*/\1/p' \
        linattn.h | sort -u
}

language_of() { # COMPILER FLAGS...
    if [[ $* == *c++* ]]; then echo c++; else echo c; fi
}
