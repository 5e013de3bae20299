# shellcheck shell=bash
# Stage of tools/test: machines that no developer sits at. 32-bit Arm and s390x are cross-compiled,
# run by qemu and give the bits of this machine, also in a program that flushes denormal numbers to
# zero; what cannot give them is refused. The processors that clang knows are compiled for.

# ---- Same bits -----------------------------------------------------------------------------------

# A program of one library, without shared libraries, as none are installed for these machines.
ports_program() { # PROGRAM TOOLCHAIN LINK_FLAGS LIBRARY
    await "$4"
    # shellcheck disable=SC2086
    ${compiler[$2]} ${common_flags[$2]} -std=c99 -O1 $warnings -I . -c tests/ports/bits.c -o "$1.o"
    ${compiler[$2]} ${common_flags[$2]} "$1.o" "$4" -o "$1" $3 -lm
}

same_hash() { # PROGRAM TOOLCHAIN [ARGUMENT]
    local here there host=$work/ports/host
    await "$1" "$host"
    here=$("$host")
    echo "here $here"
    there=$(${runner[$2]} "$1" ${3-}) || {
        echo "there $there"
        return 1
    }
    echo "there $there"
    [[ $here == "$there" ]]
}

# The library with FLAGS, in programs that leave the environment as it is, that round upwards, and
# that were linked with -ffast-math.
ports_bits() { # NAME TOOLCHAIN FLAGS
    local variant=$2$1 exact=$work/ports/$2$1 flushed=$work/ports/$2$1-flushed
    library "ports/$variant" "$2" "$3"
    target "$exact" ports_program "$exact" "$2" -static "$work/lib/ports/$variant.o"
    target "$flushed" ports_program "$flushed" "$2" '-static -ffast-math' \
        "$work/lib/ports/$variant.o"
    job "ports-$variant / same bits" same_hash "$exact" "$2"
    job "ports-$variant / same bits, rounding upwards" same_hash "$exact" "$2" upward
    job "ports-$variant / same bits, flushing to zero" same_hash "$flushed" "$2" flush
}

cross_toolchain() { # NAME COMPILER FLAGS QEMU
    toolchain "$1" "$2" "$3"
    runner[$1]=$4
}

can_run() { # NAME COMPILER HEADERS QEMU
    if ! command -v "$2" >/dev/null || [[ ! -e $3/stdio.h ]]; then
        report_not_run "ports-$1" 'the cross compiler or its C library is not installed'
    elif ! command -v "$4" >/dev/null; then
        report_not_run "ports-$1" "$4 is not installed"
    else
        return 0
    fi
    return 1
}

ports_host() {
    library ports/host gcc '-std=c99 -O2 -DLINATTN_SCALAR_ONLY'
    target "$work/ports/host" ports_program "$work/ports/host" gcc '' "$work/lib/ports/host.o"
}

ports_arm() {
    local gcc=arm-linux-gnueabihf-gcc root=/usr/arm-linux-gnueabihf
    can_run arm $gcc $root/include qemu-arm || return 0
    cross_toolchain arm-gcc $gcc '' qemu-arm
    ports_bits '' arm-gcc '-std=c99 -O2'
    ports_bits -fma arm-gcc '-std=c99 -O3 -mfpu=neon-vfpv4 -ffast-math'
    if command -v clang >/dev/null; then
        # gcc's files are linked by its own driver.
        cross_toolchain arm-clang "$gcc" '' qemu-arm
        target "$work/lib/ports/arm-clang.o" clang --target=arm-linux-gnueabihf -mfpu=vfpv4 \
            -isystem $root/include -std=c99 -O2 $warnings -I . -c tests/linattn.c \
            -o "$work/lib/ports/arm-clang.o"
        ports_bits '' arm-clang ''
    fi
}

# The tests of the kernels, each call from another floating-point environment.
ports_arm_hostile() {
    local gcc=arm-linux-gnueabihf-gcc root=/usr/arm-linux-gnueabihf
    can_run arm $gcc $root/include qemu-arm >/dev/null || return 0
    if ! (cmocka_source) >"$work/cmocka.log" 2>&1; then
        report_not_run ports-arm-hostile "cmocka's source package is not to be had"
        return 0
    fi
    cross_toolchain arm-hostile "$gcc" '-mfpu=neon-vfpv4' "qemu-arm -L $root"
    cmocka_flags[arm-hostile]="-I $cmocka/source/include"
    cmocka_link[arm-hostile]=$work/cmocka-arm.o
    target "$work/cmocka-arm.o" cmocka_object "$work/cmocka-arm.o" "$gcc"
    run_hostile arm-hostile arm-hostile scalar 'golden calls softmax recurrent'
}

ports_s390x() {
    local gcc=s390x-linux-gnu-gcc
    can_run s390x $gcc /usr/s390x-linux-gnu/include qemu-s390x || return 0
    cross_toolchain s390x $gcc '' qemu-s390x
    ports_bits '' s390x '-std=gnu99 -O2'
    ports_bits -fast s390x '-std=c99 -O3 -ffast-math'
    # Where ISO C is asked for, float is computed in double.
    job 'ports-s390x / float computed in double' is_refused s390x ''
}

# ---- Compilers -----------------------------------------------------------------------------------

# Enumerations as small as they can be, as on most Arm systems without an operating system.
ports_enums() {
    local cc
    for cc in $compilers; do
        job "ports-$cc / short enums, C99" compiles "$cc" \
            '-std=c99 -DLINATTN_SCALAR_ONLY -fshort-enums -Wtype-limits'
        job "ports-$cc / short enums, C++11" compiles "$cc" \
            '-x c++ -std=c++11 -DLINATTN_SCALAR_ONLY -fshort-enums -Wtype-limits'
    done
}

ports_compile() { # CLANG TARGET FLAGS...
    local clang=$1 machine=$2
    shift 2
    # shellcheck disable=SC2086
    "$clang" -target "$machine" -std=c99 -ffreestanding -DLINATTN_FREESTANDING \
        -DLINATTN_SCALAR_ONLY $warnings -I . "$@"
}

# -ffast-math is undone for the header, or refused: no arithmetic may have the flags that allow it.
not_fast() { # CLANG TARGET
    local code fast
    if ! code=$(ports_compile "$1" "$2" -O1 -ffast-math -S -emit-llvm tests/linattn.c \
        -o - 2>&1); then
        grep -E 'linattn\.h:[0-9:]+ error: "' <<<"$code" && return
        head -n 20 <<<"$code"
        return 1
    fi
    fast=$(grep -cE '= f(add|sub|mul|div|cmp) (fast|reassoc|nnan|ninf|nsz|arcp|contract|afn) ' \
        <<<"$code" || true)
    echo "$fast instructions are fast"
    ((fast == 0))
}

ports_clang() { # CLANG
    local machine
    for machine in x86_64 aarch64 riscv64 powerpc64le s390x wasm32 armv7-none-eabihf \
        thumbv7em-none-eabihf loongarch64 mips64 sparc64 hexagon; do
        # This one may lack the processor.
        "$1" -target $machine -fsyntax-only -x c /dev/null 2>/dev/null || continue
        job "ports-$1 / no warnings, $machine" ports_compile "$1" $machine -fsyntax-only \
            tests/linattn.c
        job "ports-$1 / -ffast-math, $machine" not_fast "$1" $machine
    done
}

newest_clang() {
    local number
    for number in {30..15}; do
        if command -v "clang-$number"; then return; fi
    done
    return 1
}

ports_host
ports_enums
ports_arm
ports_arm_hostile
ports_s390x
if command -v clang >/dev/null; then ports_clang clang; fi
# What clang can undo changes with its version; Debian's plain one may be an old one.
if newest_clang >/dev/null; then
    newest=$(newest_clang)
    [[ $(readlink -f "$newest") == "$(readlink -f "$(command -v clang)")" ]] ||
        ports_clang "${newest##*/}"
fi
