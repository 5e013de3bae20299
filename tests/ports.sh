# shellcheck shell=bash
# Stage of tools/test: machines that no developer sits at. Programs for them are cross-compiled, run
# by an emulator and give the bits of this machine, also where the program rounds upwards and
# flushes denormal numbers to zero; what cannot give them is refused. Other compilers and the
# processors that they know are compiled for. README.md has a table of all this.

# ---- Same bits -----------------------------------------------------------------------------------

# A program of one library, without shared libraries, as none are installed for these machines.
ports_program() { # PROGRAM TOOLCHAIN LINK_FLAGS LIBRARY
    await "$4"
    # shellcheck disable=SC2086
    ${compiler[$2]} ${common_flags[$2]} -std=c99 -O1 $warnings -I . -c tests/ports/bits.c -o "$1.o"
    ${compiler[$2]} ${common_flags[$2]} "$1.o" "$4" -o "$1" $3 -lm
}

same_hash() { # PROGRAM TOOLCHAIN [ARGUMENT...]
    local here there program=$1 chain=$2 host=$work/ports/host
    shift 2
    await "$program" "$host"
    here=$("$host")
    echo "here $here"
    there=$(${runner[$chain]} "$program" "$@") || {
        echo "there $there"
        return 1
    }
    there=${there%$'\r'} # of Windows
    echo "there $there"
    [[ $here == "$there" ]]
}

# The library with FLAGS, in a program that leaves the environment as it is and in one that was
# linked with -ffast-math and rounds upwards.
ports_bits() { # NAME TOOLCHAIN FLAGS
    local variant=$2$1 exact=$work/ports/$2$1 hostile=$work/ports/$2$1-hostile
    library "ports/$variant" "$2" "$3"
    target "$exact" ports_program "$exact" "$2" -static "$work/lib/ports/$variant.o"
    target "$hostile" ports_program "$hostile" "$2" '-static -ffast-math' \
        "$work/lib/ports/$variant.o"
    job "ports-$variant / same bits" same_hash "$exact" "$2"
    job "ports-$variant / same bits, rounding upwards, flushing" same_hash "$hostile" "$2" flush \
        upward
}

cross_toolchain() { # NAME COMPILER FLAGS QEMU
    toolchain "$1" "$2" "$3"
    runner[$1]=$4
}

can_run() { # NAME COMPILER HEADERS EMULATOR
    if ! command -v "$2" >/dev/null || [[ ! -e $3/stdio.h ]]; then
        report_not_run "ports-$1" 'the compiler or its C library is not installed'
    elif ! command -v "$4" >/dev/null; then
        report_not_run "ports-$1" "$4 is not installed"
    else
        return 0
    fi
    return 1
}

ports_host() {
    scalar_library
    target "$work/ports/host" ports_program "$work/ports/host" gcc '' "$work/lib/scalar-O2.o"
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
    ports_hostile arm $gcc -mfpu=neon-vfpv4 "qemu-arm -L $root" arm-gcc-fma
}

# The tests of the kernels, each call from another floating-point environment.
ports_hostile() { # NAME COMPILER FLAGS EMULATOR LIBRARY
    local chain=$1-hostile cmocka_object=$work/cmocka-$1.o
    if ! have_cmocka; then
        report_not_run "ports-$chain" "cmocka's source package is not to be had"
        return 0
    fi
    cross_toolchain "$chain" "$2" "$3" "$4"
    cmocka_flags[$chain]="-I $cmocka/source/include"
    cmocka_link[$chain]=$cmocka_object
    target "$cmocka_object" cmocka_object "$cmocka_object" "$2"
    run_hostile "$chain" "$chain" "ports/$5" scalar 'calls exp softmax'
    run_hostile "$chain" "$chain" "ports/$5" scalar golden LINATTN_TEST_ONLY=$few_hashes
}

ports_s390x() {
    local gcc=s390x-linux-gnu-gcc
    can_run s390x $gcc /usr/s390x-linux-gnu/include qemu-s390x || return 0
    cross_toolchain s390x $gcc '' qemu-s390x
    ports_bits -fast s390x '-std=c99 -O3 -ffast-math'
    job 'ports-s390x / no warnings, GNU C' compiles s390x -std=gnu99
    # Where ISO C is asked for, float is computed in double.
    job 'ports-s390x / float computed in double' is_refused s390x ''
}

# One library for each: which flags it has does not depend on the processor.
ports_cross() { # NAME TRIPLE QEMU FLAGS
    can_run "$1" "$2-gcc" "/usr/$2/include" "$3" || return 0
    cross_toolchain "$1" "$2-gcc" '' "$3"
    ports_bits '' "$1" "-std=c99 $4"
}

# 32-bit x86, by the machine itself.
ports_i686() {
    can_run i686 i686-linux-gnu-gcc /usr/i686-linux-gnu/include true || return 0
    cross_toolchain i686 i686-linux-gnu-gcc '-msse2 -mfpmath=sse' ''
    ports_bits '' i686 '-std=c99 -O2'
    ports_bits -sse2 i686 '-std=c99 -O2 -ffast-math -DLINATTN_SSE2 -DLINATTN_NO_DISPATCH'
    ports_hostile i686 i686-linux-gnu-gcc '-msse2 -mfpmath=sse -static' '' i686
}

# Processors without AVX2 and without AVX-512: the best that they have is chosen, and no instruction
# of another. With SSE2 for the former, too.
ports_x86() {
    local plain_program=$work/ports/x86-64 sse2=$work/ports/x86-64-sse2 processor isa program
    local with_sse2=option-sse2-gcc
    if ! command -v qemu-x86_64 >/dev/null; then
        report_not_run ports-x86-64 'qemu-x86_64 is not installed'
        return
    fi
    plain_library
    target "$plain_program" ports_program "$plain_program" "$plain_compiler" -static \
        "$work/lib/$plain.o"
    # The library of the stage options: what is chosen does not depend on how it was optimised.
    library $with_sse2 gcc '-std=c99 -O1 -DLINATTN_SSE2 -DLINATTN_NO_AVX512'
    target "$sse2" ports_program "$sse2" gcc -static "$work/lib/$with_sse2.o"
    while read -r processor isa program; do
        cross_toolchain "$processor" '' '' "qemu-x86_64 -cpu $processor"
        job "ports-x86-64 / same bits, $isa chosen, $processor" same_hash "$program" "$processor" \
            chosen "$isa"
    done <<EOF
Nehalem scalar $plain_program
Nehalem sse2 $sse2
Haswell avx2 $plain_program
EOF
}

# ---- Cortex-M ------------------------------------------------------------------------------------

# A program without an operating system, on the start-up of tests/cortex-m. Its data lie at DATA.
cortex_m_program() { # PROGRAM TOOLCHAIN FLAGS DATA
    local cc="${compiler[$2]} ${common_flags[$2]} -std=gnu99" place=tests/cortex-m
    # shellcheck disable=SC2086
    $cc $warnings $3 -I . -c tests/linattn.c -o "$1-library.o"
    $cc $warnings -O1 -Dmain=bits_main -I . -c tests/ports/bits.c -o "$1-bits.o"
    $cc $warnings -O1 -c $place/bits.c -o "$1-main.o"
    $cc -Os -c $place/startup.c -o "$1-startup.o"
    $cc --specs=rdimon.specs -nostartfiles -T $place/link.ld "-Wl,--defsym=board_data_at=$4" \
        -Wl,--defsym=end=board_bss_end "$1-startup.o" "$1-main.o" "$1-bits.o" "$1-library.o" \
        -lm -o "$1"
}

ports_cortex_m() {
    local core board data flags program gcc=arm-none-eabi-gcc
    if ! command -v $gcc >/dev/null || ! echo '#include <math.h>' | $gcc -E - >/dev/null 2>&1; then
        report_not_run ports-cortex-m 'the cross compiler or its C library is not installed'
        return
    elif ! command -v qemu-system-arm >/dev/null; then
        report_not_run ports-cortex-m 'qemu-system-arm is not installed'
        return
    fi
    while read -r core board data flags; do
        cross_toolchain "$core" $gcc "-mthumb -mfloat-abi=hard -mcpu=$core ${flags%:*}" \
            "timeout --foreground $time_limit qemu-system-arm -machine $board -nographic
            -monitor none -serial none -semihosting-config enable=on,target=native -kernel"
        program=$work/ports/$core
        target "$program" cortex_m_program "$program" "$core" "${flags#*:}" "$data"
        job "ports-$core / same bits, rounding upwards, flushing" same_hash "$program" "$core"
    done <<'EOF'
cortex-m4 mps2-an386 0x20000000 -mfpu=fpv4-sp-d16:-O2
cortex-m7 mps2-an500 0x20000000 -mfpu=fpv5-d16:-O3 -ffast-math
cortex-m55 mps3-an547 0x21000000 :-O2
EOF
}

# ---- Windows, WebAssembly ------------------------------------------------------------------------

# Wine's directory stays from run to run.
wine_prefix() {
    if [[ ! -e $build/wine/system.reg ]]; then
        $wine wineboot -i
        $wine wineserver -w
        test -e "$build/wine/system.reg"
    fi
    touch "$made"
}

ports_windows() {
    local gcc=x86_64-w64-mingw32-gcc program=$work/ports/windows.exe isa
    local wine="env WINEPREFIX=$build/wine WINEDEBUG=-all WINEDLLOVERRIDES=mscoree,mshtml="
    can_run windows $gcc /usr/x86_64-w64-mingw32/include wine || return 0
    cross_toolchain windows $gcc '' "$wine wine"
    library ports/windows windows '-std=c99 -O1'
    target "$work/wine" wine_prefix
    target "$program" ports_program "$program" windows '-static -ffast-math' \
        "$work/lib/ports/windows.o"
    for isa in $host_isas; do
        if has_isa "$isa"; then
            job "ports-windows / same bits, $isa" on_windows "$program" "$isa"
            job "ports-windows / same bits, $isa, rounding upwards, flushing" on_windows \
                "$program" "$isa" flush upward
        else
            report_not_run "ports-windows / same bits, $isa" "the CPU lacks $isa"
        fi
    done
}

on_windows() { # PROGRAM ARGUMENT...
    local program=$1
    shift
    await "$work/wine"
    same_hash "$program" windows "$@"
}

# The newest clang that finds its linker and its part of the library for WebAssembly.
wasm_clang() {
    local candidate
    for candidate in $(newest_clang) clang; do
        if echo 'int main(void) { return 0; }' |
            "$candidate" --target=wasm32-wasi -x c - -o "$work/probe.wasm" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

ports_wasm() {
    local clang
    if ! clang=$(wasm_clang); then
        report_not_run ports-wasm 'no clang with wasi-libc, wasm-ld and its library is installed'
    elif ! command -v node >/dev/null; then
        report_not_run ports-wasm 'node is not installed'
    else
        cross_toolchain wasm "$clang --target=wasm32-wasi" '' \
            'node --no-warnings tests/ports/wasi.mjs'
        library ports/wasm wasm '-std=c99 -O1'
        target "$work/ports/wasm" ports_program "$work/ports/wasm" wasm '' "$work/lib/ports/wasm.o"
        job 'ports-wasm / same bits' same_hash "$work/ports/wasm" wasm
    fi
}

# ---- WebAssembly's vectors -----------------------------------------------------------------------

# A library for node with the instructions FLAGS, whose best is ISA.
wasm_vectors() { # NAME CLANG RUNNER FLAGS ISA
    local chain=wasm-$1 program=$work/ports/wasm-$1 variant=ports/wasm${4// /}
    cross_toolchain "$chain" "$2 --target=wasm32-wasi" '' "$3 tests/ports/wasi.mjs"
    library "$variant" "$chain" "-std=c99 -O1 $4"
    target "$program" ports_program "$program" "$chain" '' "$work/lib/$variant.o"
    job "ports-$chain / same bits" same_hash "$program" "$chain" chosen "$5"
}

# node 20 has relaxed SIMD behind a flag that later ones may lack. Without FMA its relaxed_madd
# rounds twice, which the library has to find out.
ports_wasm_vectors() {
    local clang node='node --no-warnings' relaxed='-msimd128 -mrelaxed-simd'
    if ! clang=$(newest_clang) || ! echo 'int main(void) { return 0; }' |
        "$clang" --target=wasm32-wasi -x c - -o "$work/probe.wasm" 2>/dev/null ||
        ! command -v node >/dev/null; then
        report_not_run ports-wasm-simd128 'node, or a clang with wasi-libc, is not installed'
        return
    fi
    clang=${clang##*/}
    wasm_vectors simd128 "$clang" "$node" -msimd128 simd128
    wasm_vectors alone "$clang" "$node" '-msimd128 -DLINATTN_NO_DISPATCH' simd128
    if node --experimental-wasm-relaxed-simd -e 0 2>/dev/null; then
        node+=' --experimental-wasm-relaxed-simd'
    fi
    if has_isa avx2; then wasm_vectors relaxed "$clang" "$node" "$relaxed" relaxed; fi
    wasm_vectors unfused "$clang" "$node --no-enable-fma3" "$relaxed" simd128
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

# No warnings. And -ffast-math is undone for the header, or refused: no arithmetic may have the
# flags that allow it, which it has from the start.
not_fast() { # CLANG TARGET
    local code fast
    if ! code=$(ports_compile "$1" "$2" -O0 -ffast-math -S -emit-llvm tests/linattn.c \
        -o - 2>&1); then
        grep -E 'linattn\.h:[0-9:]+ error: "' <<<"$code" || { head -n 20 <<<"$code" && return 1; }
        ports_compile "$1" "$2" -fsyntax-only tests/linattn.c
        return
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
        job "ports-$1 / no warnings, -ffast-math, $machine" not_fast "$1" $machine
    done
}

newest_clang() {
    local number
    for number in {30..15}; do
        if command -v "clang-$number"; then return; fi
    done
    return 1
}

# Every instruction set that this machine has, by a clang that is newer than the plain one.
ports_newest() { # CLANG
    local program=$work/ports/$1 isa
    toolchain "$1" "$1" ''
    library "ports/$1" "$1" '-std=c99 -O3 -ffast-math'
    target "$program" ports_program "$program" "$1" -ffast-math "$work/lib/ports/$1.o"
    for isa in $host_isas; do
        if has_isa "$isa"; then
            job "ports-$1 / same bits, $isa" same_hash "$program" "$1" flush upward "$isa"
        else
            report_not_run "ports-$1 / same bits, $isa" "the CPU lacks $isa"
        fi
    done
}

# A compiler without gcc's extensions.
ports_tcc() {
    if ! command -v tcc >/dev/null; then
        report_not_run ports-tcc 'it is not installed'
        return
    fi
    toolchain tcc tcc ''
    library ports/tcc tcc '-std=c99'
    target "$work/ports/tcc" ports_program "$work/ports/tcc" tcc '' "$work/lib/ports/tcc.o"
    job 'ports-tcc / same bits' same_hash "$work/ports/tcc" tcc
}

# With Microsoft's conventions, but neither its compiler nor its library, with what the flags allow
# and with all.
ports_msvc() { # CLANG
    local flags
    for flags in '' '-mavx2 -mfma -mf16c'; do
        job "ports-$1 / an object for x86_64-pc-windows-msvc $flags" ports_msvc_object "$1" "$flags"
    done
}

ports_msvc_object() { # CLANG FLAGS
    local object
    object=$(mktemp -p "$work" XXXXXX.obj)
    # shellcheck disable=SC2086
    "$1" --target=x86_64-pc-windows-msvc -std=c99 -O0 -ffreestanding -DLINATTN_FREESTANDING \
        $warnings $2 -I . -c tests/linattn.c -o "$object"
    test -s "$object"
}

# What pip has of zig, in an environment that stays from run to run.
zig_build() {
    local environment=$build/zig
    if ! "$environment/bin/python" -m ziglang version 2>/dev/null; then
        ((install)) || return 77
        "${python:-python3}" -m venv "$environment" || return 77
        "$environment/bin/pip" -q install --retries 1 --timeout 10 ziglang || return 77
    fi
    touch "$made"
}

# Not with the checks that zig adds by itself, which take as long as the rest.
zig_object() { # TARGET
    await "$work/zig"
    # shellcheck disable=SC2086
    "$build/zig/bin/python" -m ziglang cc -target "$1" -fno-sanitize=undefined -std=c99 -O0 \
        $warnings -I . -c tests/linattn.c -o "$work/ports/zig-$1.o"
}

ports_zig() {
    local machine
    target "$work/zig" zig_build
    for machine in aarch64-macos x86_64-macos x86_64-linux-musl x86_64-windows-gnu; do
        job "ports-zig / an object for $machine" zig_object $machine
    done
}

ports_host
ports_zig
ports_enums
case $(uname -m) in
x86_64)
    ports_windows
    ports_i686
    ports_x86
    ;;
*) report_not_run 'ports-windows, ports-i686, ports-x86-64' 'this machine is of another kind' ;;
esac
ports_wasm
ports_arm
ports_s390x
ports_cross riscv64 riscv64-linux-gnu qemu-riscv64 -O2
ports_cross ppc64 powerpc64-linux-gnu qemu-ppc64 '-O3 -ffast-math'
ports_cortex_m
ports_wasm_vectors
ports_tcc
if command -v clang >/dev/null; then
    ports_clang clang
    ports_msvc clang
fi
# What clang can undo changes with its version; Debian's plain one may be an old one.
if newest_clang >/dev/null; then
    newest=$(newest_clang)
    if [[ $(readlink -f "$newest") != "$(readlink -f "$(command -v clang)")" ]]; then
        newest=${newest##*/}
        ports_clang "$newest"
        ports_msvc "$newest"
        ports_newest "$newest"
    fi
else
    report_not_run 'ports / a newer clang' 'none from 15 to 30 is installed'
fi
