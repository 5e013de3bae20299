# shellcheck shell=bash
# Stage of tools/test: a program that uses linattn in each way in which it can be had.

prefix=$work/installed/prefix
moved=$work/installed/moved
scalar=-DLINATTN_SCALAR_ONLY # compiled in a fifth of the time

installed() {
    meson setup "$work/installed/build" --prefix "$prefix" -Dtests=disabled -Dexamples=disabled \
        -Dpkgconfig.relocatable=true
    meson install -C "$work/installed/build"
    test -e "$prefix/include/linattn.h"
    test -e "$prefix/include/linattn_simd.h"
    # Elsewhere from the start, so that nothing can depend on where it was installed.
    cp -R "$prefix" "$moved"
    rm -rf "$prefix"
    touch "$made"
}

with_pkg_config() {
    local flags version
    await "$work/installed/done"
    export PKG_CONFIG_PATH=$moved/share/pkgconfig
    flags=$(pkg-config --cflags --libs linattn)
    version=$(pkg-config --modversion linattn)
    mkdir -p "$work/installed/pkg-config"
    gcc $scalar tests/consumer/consumer.c tests/consumer/implementation.c $flags \
        -o "$work/installed/pkg-config/consumer"
    "$work/installed/pkg-config/consumer" | tee /dev/stderr | grep "^linattn $version, "
}

with_cmake() {
    await "$work/installed/done"
    cmake -S tests/consumer -B "$work/installed/cmake" -DCMAKE_PREFIX_PATH="$moved" \
        -DCMAKE_C_FLAGS="$scalar"
    cmake --build "$work/installed/cmake"
    "$work/installed/cmake/consumer"
}

with_cmake_too_old() {
    local log=$work/installed/too-old.log
    await "$work/installed/done"
    if cmake -S tests/consumer -B "$work/installed/too-old" -DCMAKE_PREFIX_PATH="$moved" \
        -DREQUESTED=99.0 >"$log" 2>&1; then
        echo 'version 99.0 is found'
        return 1
    fi
    cat "$log"
    grep -q 'version: 0' "$log"
}

as_subproject() {
    local program=$work/subproject file
    mkdir -p "$program/subprojects/linattn"
    cp tests/consumer/{consumer.c,implementation.c,meson.build} "$program"
    for file in meson.build meson_options.txt linattn.h linattn_simd.h cmake tests examples; do
        cp -R "$file" "$program/subprojects/linattn"
    done
    meson setup "$program/build" "$program" --wrap-mode=forcefallback \
        -Dc_args="$scalar"
    meson test -C "$program/build" --print-errorlogs
}

target "$work/installed/done" installed
job 'install / pkg-config' with_pkg_config
if command -v cmake >/dev/null; then
    job 'install / CMake' with_cmake
    job 'install / CMake, a version that is too old' with_cmake_too_old
else
    report_not_run 'install / CMake' 'it is not installed'
fi
job 'install / meson subproject' as_subproject
