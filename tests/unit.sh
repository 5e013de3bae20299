# shellcheck shell=bash
# Stage of tools/test: the tests of meson.build, as `meson test` runs them.

unit_build() {
    # What a debugger is told takes half as long again to compile.
    local options="-Dtests=enabled -Dexamples=enabled -Dwerror=true -Ddebug=false"
    if pkg-config --exists sleef; then options+=' -Dsleef=enabled'; fi
    if [[ -e $build/unit/build.ninja ]]; then
        if ! (source tools/machine.sh && built_from "$build/unit" "$root"); then
            echo "$build/unit is a build of another copy of linattn: remove it"
            return 1
        fi
        meson configure "$build/unit" $options
    else
        meson setup "$build/unit" $options
    fi
    ninja -C "$build/unit" -j "$cores" -k 0
    touch "$made"
}

# meson's own list of them, a line each: suite, name, seconds that it may take, its environment and
# the command, as words that bash reads.
unit_list() {
    meson introspect --tests "$build/unit" | python3 -c '
import json, shlex, sys

tests = json.load(sys.stdin)
for test in sorted(tests, key=lambda test: -test["priority"]):
    words = [f"{name}={value}" for name, value in test["env"].items()] + test["cmd"]
    print(test["suite"][0].split(":")[-1], test["name"], test["timeout"],
          shlex.join(words))'
}

# An instruction set that this machine is known to have must not be passed over.
unit_test() { # SECONDS NAME=VALUE... COMMAND...
    local status=0
    cd "$build/unit"
    timeout --foreground "$1" env "${@:2}" || status=$?
    if ((status == 77)) && [[ $2 == LINATTN_REQUIRE_ISA=1 ]]; then
        echo 'it was skipped, although this machine has what it needs'
        return 1
    fi
    return $status
}

unit_suite() { # SUITE NAME=VALUE...
    local suite name seconds words
    while read -r suite name seconds words; do
        [[ $suite == "$1" ]] || continue
        unit_seen=$((unit_seen + 1))
        # Each word is quoted.
        eval "job 'unit / $suite / $name' unit_test $seconds ${*:2} $words"
    done <<<"$tests"
}

unit() {
    local isa widest=scalar tests unit_seen=0 listed
    for isa in $host_isas; do
        if has_isa "$isa"; then widest=$isa; fi
    done
    tests=$(unit_list)
    # All kernels are one text, so that the widest vectors take all tests in full. Every float for
    # exp is compared with the true value there, and has the same bits elsewhere.
    unit_suite examples LINATTN_REQUIRE_ISA=1
    for isa in $widest ${host_isas/$widest/}; do
        if [[ $isa == "$widest" ]]; then
            unit_suite $isa LINATTN_REQUIRE_ISA=1
        elif has_isa "$isa"; then
            unit_suite $isa LINATTN_REQUIRE_ISA=1 LINATTN_TEST_QUICK=1 LINATTN_TEST_HASH=1
        else
            unit_suite $isa
        fi
    done
    listed=$(grep -c . <<<"$tests")
    if ((unit_seen == 0 || unit_seen != listed)); then
        report_failed "unit: meson has $listed tests, and $unit_seen were run"
    fi
    grep -q '^examples mpi ' <<<"$tests" ||
        report_not_run 'unit / mpi' 'Open MPI or NumPy is not installed'
    pkg-config --exists sleef || report_not_run 'unit / SLEEF' 'it is not installed'
    [[ -n $python ]] || report_not_run 'unit / attend, rwkv, stream' 'NumPy is not installed'
}

# What pip has of ONNX, in an environment that stays from run to run.
onnx_build() {
    local environment=$build/onnx
    if ! "$environment/bin/python" -c 'import onnx, onnxruntime' 2>/dev/null; then
        ((install)) || return 77
        "$python" -m venv "$environment" || return 77
        local pip="$environment/bin/pip -q install --retries 1 --timeout 10 --prefer-binary"
        $pip 'onnx>=1.23' numpy || return 77
        $pip onnxruntime || echo 'there is no onnxruntime for this machine'
    fi
    touch "$made"
}

onnx_run() { # cases|onnxruntime
    if [[ ! -e $work/onnx ]]; then
        echo 'onnx and onnxruntime are not installed, and pip does not install them'
        return 77
    fi
    "$build/onnx/bin/python" tests/onnx_test.py "$build/unit/examples/attend" "$1"
}

# What a stream asks of the system while it runs.
stream_calls() { # strace, or hook HOOK
    python3 tests/stream_calls_test.py "$build/unit/examples/stream" "$@"
}

stream_picture() {
    local at=$work/picture clip=examples/data/stream.wav
    if ! "$python" -c 'import matplotlib' 2>/dev/null; then
        echo 'Matplotlib is not installed'
        return 77
    fi
    mkdir -p "$at"
    "$build/unit/examples/stream" $clip --quiet --memories "$at/memories.npy" --times "$at/auto.npy"
    "$python" examples/stream_plot.py $clip "$at/memories.npy" "$at/picture.png" "$at/auto.npy"
    grep -qa PNG "$at/picture.png"
}

# Instructions of calls, by the library that meson built with -O2.
instructions() {
    local program=$work/instructions
    if ! echo '#include <valgrind/callgrind.h>' | cc -fsyntax-only -x c - 2>/dev/null; then
        echo 'valgrind is not installed'
        return 77
    fi
    cc -std=c11 -O1 $warnings -I . tests/instructions.c "$build/unit/liblinattn_compiled.a" \
        -o "$program" -lm -pthread
    python3 tests/instructions_test.py "$program" "$(cc -dumpversion)"
}

target "$work/unit" unit_build
[[ -z $python ]] || target "$work/onnx" onnx_build
target "$work/stream_hook.so" gcc -O1 -shared -fPIC $warnings tests/stream_hook.c \
    -o "$work/stream_hook.so" -ldl -pthread
wait_for_jobs
if [[ -e $work/unit ]]; then
    unit
    job 'unit / stream, allocations and locks' stream_calls hook "$work/stream_hook.so"
    job 'unit / stream, system calls' stream_calls strace
    job 'unit / limits of the benchmark' python3 tests/limits_test.py
    job 'unit / instructions' instructions
    [[ -z $python ]] || job 'unit / stream, picture' stream_picture
    job 'unit / attend and the cases of ONNX' onnx_run cases
    job 'unit / attend and onnxruntime' onnx_run onnxruntime
else
    report_not_run unit 'it was not built'
fi
