# shellcheck shell=bash
# Stage of tools/test: the tests of meson.build, as `meson test` runs them.

unit_build() {
    # What a debugger is told takes half as long again to compile.
    local options="-Dtests=enabled -Dexamples=enabled -Dwerror=true -Ddebug=false"
    if pkg-config --exists sleef; then options+=' -Dsleef=enabled'; fi
    if [[ -e $build/unit/build.ninja ]]; then
        meson configure "$build/unit" $options
    else
        meson setup "$build/unit" $options
    fi
    ninja -C "$build/unit" -j "$cores" -k 0
    touch "$made"
}

# One line per test as it ends, from meson's: ` 3/42 linattn:avx2 / exp   OK   1.23s`.
unit_run() { # SKIPPED: report_not_run or report_failed; SUITES...
    local line name suites='' summary=0 before=$failed if_skipped=$1
    local pattern='^ *[0-9]+/[0-9]+ +(.*[^ ]) +([A-Z]+) +([0-9.]+) ?s'
    shift
    for name; do suites+=" --suite $name"; done
    [[ -n $suites ]] || return 0
    : >"$work/unit.log"
    while IFS= read -r line; do
        [[ $line != 'Summary of Failures'* ]] || summary=1
        if ((!summary)) && [[ $line =~ $pattern ]]; then
            name="unit / ${BASH_REMATCH[1]#linattn:}"
            unit_seen=$((unit_seen + 1))
            case ${BASH_REMATCH[2]} in
            OK) report_ok "$name" "${BASH_REMATCH[3]}" ;;
            SKIP) "$if_skipped" "$name" 'the CPU lacks the instruction set' ;;
            *) report_failed "$name: ${BASH_REMATCH[2]}" ;;
            esac
        else
            printf '%s\n' "$line" >>"$work/unit.log"
        fi
    done < <(PYTHONUNBUFFERED=1 meson test -C "$build/unit" --no-rebuild --print-errorlogs \
        --num-processes "$cores" $suites 2>&1)
    if ((failed > before)); then
        grep -v '^\[ RUN  \|^\[       OK' "$work/unit.log" | sed 's/^/          | /'
    fi
}

# An instruction set that this machine is known to have must not be passed over.
unit_skipped() { # NAME
    report_failed "$1 was skipped, although this machine has the instruction set"
}

unit() {
    local isa present='' absent='' unit_seen=0 tests listed
    for isa in $host_isas; do
        if has_isa "$isa"; then present+=" $isa"; else absent+=" $isa"; fi
    done
    # All kernels are one text, so that the widest vectors take all tests in full. Every float for
    # exp is compared with the true value there, and has the same bits elsewhere.
    LINATTN_REQUIRE_ISA=1 unit_run unit_skipped "${present##* }" examples
    LINATTN_REQUIRE_ISA=1 LINATTN_TEST_QUICK=1 LINATTN_TEST_HASH=1 \
        unit_run unit_skipped ${present% *}
    unit_run report_not_run $absent
    tests=$(meson test -C "$build/unit" --no-rebuild --list 2>/dev/null)
    listed=$(grep -c ' / ' <<<"$tests")
    if ((unit_seen != listed)); then
        report_failed "unit: meson has $listed tests, and $unit_seen were run"
    fi
    grep -q ' / mpi$' <<<"$tests" ||
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
    [[ -z $python ]] || job 'unit / stream, picture' stream_picture
    job 'unit / attend and the cases of ONNX' onnx_run cases
    job 'unit / attend and onnxruntime' onnx_run onnxruntime
else
    report_not_run unit 'it was not built'
fi
