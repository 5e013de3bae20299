#!/usr/bin/env bash
# Checks what linattn_bench says where it fails, and its status: results that cannot be written,
# benchmarks that cannot be run, options. And that another version is compared with.
#
#     tests/bench_test.sh PATH_TO_LINATTN_BENCH A_VERSION_OF_THE_LIBRARY

set -u -o pipefail
bench=$1
version=$2
few=(--benchmark_min_time=0.0001 --benchmark_filter='^merge/elu1/[a-z0-9]*/8x8' --shapes=8x8
    --patience=1)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

report() { # STATUS NAME
    if (($1 == 0)); then
        echo "ok - $2"
    else
        echo "not ok - $2, stderr:"
        cat "$work/said"
        failed=1
    fi
}

takes() { # NAME OPTION...
    "$bench" "${@:2}" >"$work/printed" 2>"$work/said" && grep -q '^merge/' "$work/printed"
    report $? "$1"
}

# Status 1, and a line on stderr of its own.
fails() { # SAYING NAME OUTPUT OPTION...
    local status
    case $3 in
    closed) "$bench" "${@:4}" >&- 2>"$work/said" ;;
    *) "$bench" "${@:4}" >"$3" 2>"$work/said" ;;
    esac
    status=$?
    ((status == 1)) && [[ $(grep -c '^linattn_bench: ' "$work/said") == 1 ]] &&
        grep -q "^linattn_bench: .*$1" "$work/said"
    report $? "$2, status $status"
}

takes 'a run' "${few[@]}"
takes 'seconds with their unit' "${few[@]}" --benchmark_min_time=0.0002s
takes 'the names alone' "${few[@]}" --benchmark_list_tests
for format in json csv console; do
    out=$work/out.$format
    takes "a file of $format" "${few[@]}" --benchmark_out="$out" --benchmark_out_format=$format
    grep -q merge/elu1 "$out" && ! grep -q $'\x1b' "$out"
    report $? 'it has results, without colours'
done
takes 'another version' "${few[@]}" "--against=$version"
grep -q '^merge/.* against=[0-9]' "$work/printed"
report $? 'which is compared with'
takes 'one version alone' "${few[@]}" && ! grep -q ' against=' "$work/printed"
report $? 'which is compared with nothing'
fails 'nothing.so: ' 'no other version' /dev/null "${few[@]}" --against=/nothing.so
fails 'library_o3' 'what is no version' /dev/null "${few[@]}" --against=libm.so.6
fails min_time 'hours' /dev/null "${few[@]}" --benchmark_min_time=1h
fails min_time 'no number of seconds' /dev/null "${few[@]}" --benchmark_min_time=s
fails "patience: '0' is not" 'no patience' /dev/null "${few[@]}" --patience=0
fails "patience: '1s' is not" 'patience that is no number' /dev/null "${few[@]}" --patience=1s
fails closed 'no output' closed "${few[@]}"
fails closed 'no output for the help' closed --help
if [[ -e /dev/full ]]; then
    for format in json csv console; do
        fails written "a full disk, $format" /dev/full "${few[@]}" --benchmark_format=$format
        fails written "a file on a full disk, $format" /dev/null "${few[@]}" \
            --benchmark_out=/dev/full --benchmark_out_format=$format
    done
    fails written 'names on a full disk' /dev/full "${few[@]}" --benchmark_list_tests
    fails written 'help on a full disk' /dev/full --help
fi
fails none 'nothing that fits into memory' /dev/null --n=999999999999 \
    --benchmark_filter=/999999999999/
fails memory 'some that do not' /dev/null --n=999999999999 "${few[@]}" \
    --benchmark_filter='^(merge|causal)/elu1/[a-z0-9]*/8x8'
exit $failed
