# shellcheck shell=bash
# Stage of tools/test: the NEON and the scalar code on aarch64, cross-compiled and run by qemu. The
# bits have to be those of x86, for the golden hash is one. On an aarch64 machine the other stages
# do this already.

sysroot=/usr/aarch64-linux-gnu
aarch64_toolchain() { # NAME COMPILER FLAGS
    toolchain "$1" "$2" "$3"
    cmocka_flags[$1]="-I $cmocka/source/include"
    cmocka_link[$1]=$work/cmocka-aarch64.o
    runner[$1]="qemu-aarch64 -L $sysroot"
}

aarch64_attend() { # PROGRAM COMPILER LIBRARY
    await "$3"
    "$2" -O1 -DLINATTN__IMPLEMENTED examples/attend.c "$3" -o "$1" -pthread
}

# On real queries, keys and values, the bytes that this machine writes.
same_bytes() {
    local here=$work/bin/attend there=$work/bin/attend-aarch64 map options
    await "$here" "$there"
    for map in elu1 softmax favor; do
        for options in '--dir examples/data/lm --causal' \
            '--dir examples/data/encoder --isa scalar'; do
            "$here" ${options% --isa*} --map $map --out "$work/here.npy"
            qemu-aarch64 -L $sysroot "$there" $options --map $map --out "$work/there.npy"
            cmp "$work/here.npy" "$work/there.npy"
        done
    done
    for options in '--dir examples/data/lm --causal' '--dir examples/data/encoder'; do
        "$here" $options --attention softmax --out "$work/here.npy"
        qemu-aarch64 -L $sysroot "$there" $options --attention softmax --out "$work/there.npy"
        cmp "$work/here.npy" "$work/there.npy"
    done
}

# The same under every rule, with gates as files.
same_bytes_of_rules() {
    local here=$work/bin/attend there=$work/bin/attend-aarch64 gates=$work/gates options
    await "$here" "$there"
    mkdir -p "$gates"
    "$python" - "$gates" <<'EOF'
import sys
import numpy as np
n, heads, dim = np.load("examples/data/lm/k.npy").shape
g = np.random.default_rng(0)
np.save(sys.argv[1] + "/vectors.npy", g.random((n, heads, dim), np.float32) / -8)
np.save(sys.argv[1] + "/numbers.npy", g.random((n, heads), np.float32))
EOF
    for options in "gated --decay $gates/vectors.npy" \
        "delta --beta $gates/numbers.npy" \
        "gated-delta --decay $gates/vectors.npy --beta $gates/numbers.npy" \
        "general --decay $gates/vectors.npy --read $gates/vectors.npy \
            --write $gates/vectors.npy" \
        "mlstm --decay $gates/numbers.npy --decay-is factor --input-gate $gates/numbers.npy"; do
        options="--dir examples/data/lm --map unit --rule $options"
        "$here" $options --out "$gates/here.npy" --export-state "$gates/here-state.npy"
        qemu-aarch64 -L $sysroot "$there" $options --out "$gates/there.npy" \
            --export-state "$gates/there-state.npy"
        cmp "$gates/here.npy" "$gates/there.npy"
        cmp "$gates/here-state.npy" "$gates/there-state.npy"
    done
}

aarch64() {
    local cc flags laws rules
    target "$work/cmocka-aarch64.o" cmocka_object "$work/cmocka-aarch64.o" aarch64-linux-gnu-gcc
    aarch64_toolchain aarch64-gcc aarch64-linux-gnu-gcc ''
    aarch64_toolchain aarch64-clang clang "--target=aarch64-linux-gnu -isystem $sysroot/include"

    # Once what kernels do, called from hostile environments. What is compared with x86 to the bit
    # need not be compared with the oracles again: those, too, would run on qemu; nor does a refused
    # argument reach a kernel.
    library aarch64-gcc-fast aarch64-gcc '-std=c99 -O2 -ffast-math'
    run_hostile aarch64-hostile aarch64-gcc aarch64-gcc-fast neon \
        'golden exp softmax nystrom half range fuzz calls'
    # The laws that ask most of tiles and their edges.
    laws=instruction_sets,cuts,decode_steps,layouts,windows_forget,reach_of_windows
    laws+=,groups_of_every_size,nan_stays_in_its_head,masked_tokens_are_absent
    laws+=,merge_on_instruction_sets,many_states,single_tokens
    run_hostile aarch64-hostile aarch64-gcc aarch64-gcc-fast neon laws LINATTN_TEST_ONLY=$laws
    rules=instruction_sets,cuts,every_cut,layouts,inputs_of_16_bits,interleaved_operands
    rules+=,states_are_copied,forms_of_gates,nan_stays_in_its_head,masked_tokens_are_absent
    rules+=,many_sequences,merges_in_order,mlstm_with_wild_gates
    run_hostile aarch64-hostile aarch64-gcc aarch64-gcc-fast neon recurrent LINATTN_TEST_ONLY=$rules
    run_tests aarch64-gcc-fast aarch64-gcc '' 'scalar neon' dispatch LINATTN_TEST_QUICK=1

    # what Microsoft's compiler is given; the stage matrix has its scalar code
    library aarch64-gcc-msvc aarch64-gcc '-std=c99 -O1 -DLINATTN__AS_MSVC -I tests/msvc'
    run_tests aarch64-gcc-msvc aarch64-gcc '' neon exp LINATTN_TEST_QUICK=1
    run_tests aarch64-gcc-msvc aarch64-gcc '' neon golden LINATTN_TEST_QUICK=1 \
        LINATTN_TEST_ONLY=$few_hashes

    # The last of the compilers, that is clang where there is one, which takes more liberties.
    cc=${compilers##* }
    flags=-ffast-math
    if ! compiles "aarch64-$cc" '-std=c99 -ffast-math' >/dev/null 2>&1; then
        flags=
        contradiction "aarch64-$cc" -ffast-math
    fi
    library "aarch64-$cc-c99-O3" "aarch64-$cc" "-std=c99 -O3 $flags"
    run_tests "aarch64-$cc-c99-O3" "aarch64-$cc" "$flags" neon 'golden exp' LINATTN_TEST_QUICK=1
    # Scalar code is that of every machine: gcc's has the bits on all those of the stage ports.
    run_tests "aarch64-$cc-c99-O3" "aarch64-$cc" "$flags" scalar exp LINATTN_TEST_QUICK=1
    run_tests "aarch64-$cc-c99-O3" "aarch64-$cc" "$flags" scalar golden LINATTN_TEST_QUICK=1 \
        LINATTN_TEST_ONLY=$few_hashes

    library aarch64-no-neon aarch64-gcc '-std=c99 -O0 -DLINATTN_NO_NEON'
    job 'aarch64-no-neon / instruction sets' is_compiled_with aarch64-no-neon aarch64-gcc '' scalar
    # C++ and -O0 as well.
    library aarch64-no-dispatch "aarch64-$cc" '-x c++ -std=c++11 -O0 -DLINATTN_NO_DISPATCH'
    job 'aarch64-no-dispatch / instruction sets' is_compiled_with aarch64-no-dispatch \
        "aarch64-$cc" '' neon
    run_tests aarch64-no-dispatch "aarch64-$cc" '' neon golden LINATTN_TEST_QUICK=1 \
        LINATTN_TEST_ONLY=$few_hashes

    plain_library
    target "$work/bin/attend" aarch64_attend "$work/bin/attend" gcc "$work/lib/$plain.o"
    target "$work/bin/attend-aarch64" aarch64_attend "$work/bin/attend-aarch64" \
        aarch64-linux-gnu-gcc "$work/lib/aarch64-gcc-fast.o"
    job 'aarch64 / attend writes the same bytes' same_bytes
    if [[ -n $python ]]; then
        job 'aarch64 / attend writes the same bytes under every rule' same_bytes_of_rules
    else
        report_not_run 'aarch64 / attend under every rule' 'NumPy is not installed'
    fi
}

if [[ $(uname -m) == aarch64 ]]; then
    report_not_run 'aarch64 / through qemu' 'this machine is one; the other stages have tested it'
elif ! command -v qemu-aarch64 >/dev/null; then
    report_not_run aarch64 'qemu-aarch64 is not installed'
elif ! command -v aarch64-linux-gnu-gcc >/dev/null || [[ ! -e $sysroot/include/stdio.h ]]; then
    report_not_run aarch64 'the cross compiler or its C library is not installed'
elif ! have_cmocka; then
    report_not_run aarch64 "cmocka's source package is not to be had"
else
    aarch64
fi
