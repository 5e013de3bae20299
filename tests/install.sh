# shellcheck shell=bash
# Stage of tools/test: a program that uses linattn in each way in which it can be had.

clone=$work/installed/clone
moved=$work/installed/moved
scalar=-DLINATTN_SCALAR_ONLY # compiled in a fifth of the time

# By the commands that README.md has, in a tree of their own.
installed() {
    local command staged=$work/installed/staged prefix
    command=$(grep -x 'meson setup build && meson install -C build  *# this,' README.md)
    readme_clone "$clone"
    cd "$clone"
    DESTDIR=$staged CFLAGS="$scalar -O0" bash -e -c "$command"
    find build -name '*.o' >"$work/installed/compiled"
    prefix=$staged/usr/local
    test -e "$prefix/include/linattn.h"
    test -e "$prefix/include/linattn_simd.h"
    # Elsewhere from the start, so that nothing can depend on where it was installed.
    mv "$prefix" "$moved"
    touch "$made"
}

# Installing compiles nothing, although there are tests, and each is built when it is asked for.
nothing_compiled() {
    local listed
    await "$work/installed/done"
    cat "$work/installed/compiled"
    [[ ! -s $work/installed/compiled ]]
    listed=$(meson test -C "$clone/build" --list)
    grep -q ' / golden$' <<<"$listed"
    meson test -C "$clone/build" --print-errorlogs quickstart
    test -x "$clone/build/examples/quickstart"
}

with_pkg_config() {
    local flags version
    await "$work/installed/done"
    export PKG_CONFIG_PATH=$moved/share/pkgconfig
    pkg-config --cflags linattn | grep -F -e "-I$moved/" # rather than a copy in /usr/local
    flags=$(pkg-config --cflags --libs linattn)
    version=$(pkg-config --modversion linattn)
    mkdir -p "$work/installed/pkg-config"
    gcc $few_methods tests/consumer/consumer.c tests/consumer/implementation.c $flags \
        -o "$work/installed/pkg-config/consumer"
    "$work/installed/pkg-config/consumer" | tee /dev/stderr | grep "^linattn $version, "
}

# tests/consumer, built by CMake: HOW is described there.
cmake_consumer() { # NAME HOW [OPTION...]
    local tree=$work/cmake/$1 how=$2
    shift 2
    cmake -S tests/consumer -B "$tree" -DHOW="$how" -DCMAKE_C_FLAGS="$few_methods" "$@"
    cmake --build "$tree"
    "$tree/consumer"
}

with_cmake() {
    await "$work/installed/done"
    cmake_consumer after-meson find_package -DCMAKE_PREFIX_PATH="$moved"
}

# What CMake installs is where meson puts it, and can be moved as well.
with_cmake_alone() {
    local command place=$work/cmake/alone
    await "$work/installed/done"
    command=$(grep -x 'cmake -S \. -B build && cmake --install build  *# or this' README.md)
    readme_clone "$place/clone"
    (cd "$place/clone" && DESTDIR=$place/staged bash -e -c "$command")
    mv "$place/staged/usr/local" "$place/moved"
    diff <(cd "$moved" && find . -type f ! -name '*.pc' | sort) \
        <(cd "$place/moved" && find . -type f | sort)
    cmp "$moved/share/cmake/linattn/linattnConfigVersion.cmake" \
        "$place/moved/share/cmake/linattn/linattnConfigVersion.cmake"
    cmake_consumer alone-consumer find_package -DCMAKE_PREFIX_PATH="$place/moved"
}

with_add_subdirectory() {
    cmake_consumer subdirectory add_subdirectory -DLINATTN="$root"
    cmake --install "$work/cmake/subdirectory" --prefix "$work/cmake/subdirectory-prefix"
    grep linattn::linattn "$work/cmake/subdirectory-prefix/share/cmake/consumer/consumer.cmake"
    test -e "$work/cmake/subdirectory-prefix/share/cmake/linattn/linattnConfig.cmake"
}

# Nothing of linattn's is installed with a program that fetches it. A directory in its place is
# taken before the archive is looked for.
with_fetch_content() {
    local archive=$work/cmake/linattn.tar.gz
    mkdir -p "$work/cmake"
    tar czf "$archive" CMakeLists.txt cmake linattn.h linattn_simd.h
    cmake_consumer fetched FetchContent -DLINATTN="$archive"
    cmake --install "$work/cmake/fetched" --prefix "$work/cmake/fetched-prefix"
    test ! -e "$work/cmake/fetched-prefix"
    cmake -S tests/consumer -B "$work/cmake/directory" -DHOW=FetchContent -DLINATTN=/nowhere \
        -DFETCHCONTENT_SOURCE_DIR_LINATTN="$root"
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

# It exports what linattn.h declares, under a name that changes with the version.
shared_library() {
    local tree=$work/shared library
    meson setup "$tree/build" --prefix "$tree/prefix" --libdir lib -Dshared=enabled -Dwerror=true \
        -Dtests=disabled -Dexamples=disabled -Dc_args="$scalar" -Doptimization=0
    meson install -C "$tree/build"
    library=$tree/prefix/lib/liblinattn.so
    test -L "$library"
    test -e "$tree/prefix/include/linattn.h"
    nm -D --defined-only "$library" | awk '{ print $NF }' | sort | diff <(declared_functions) -
    objdump -p "$library" | grep -E 'SONAME +liblinattn\.so\.(0\.)?[0-9]+$'
    gcc tests/consumer/isas.c -I "$tree/prefix/include" -L "${library%/*}" -llinattn \
        -o "$tree/isas"
    LD_LIBRARY_PATH=${library%/*} "$tree/isas"
}

as_subproject() {
    local program=$work/subproject file
    mkdir -p "$program/subprojects/linattn"
    cp tests/consumer/{consumer.c,implementation.c,meson.build} "$program"
    for file in meson.build meson_options.txt linattn.h linattn_simd.h cmake tests examples; do
        cp -R "$file" "$program/subprojects/linattn"
    done
    meson setup "$program/build" "$program" --wrap-mode=forcefallback \
        -Dc_args="$few_methods"
    meson test -C "$program/build" --print-errorlogs
}

target "$work/installed/done" installed
job 'install / compiles nothing' nothing_compiled
job 'install / pkg-config' with_pkg_config
if command -v cmake >/dev/null; then
    job 'install / CMake' with_cmake
    job 'install / CMake, a version that is too old' with_cmake_too_old
    job 'install / CMake alone' with_cmake_alone
    job 'install / CMake, add_subdirectory' with_add_subdirectory
    job 'install / CMake, FetchContent' with_fetch_content
else
    report_not_run 'install / CMake' 'it is not installed'
fi
job 'install / meson subproject' as_subproject
if [[ $(uname -s) != Linux ]]; then
    report_not_run 'install / shared library' 'its symbols are looked at on Linux alone'
elif command -v nm >/dev/null; then
    job 'install / shared library' shared_library
else
    report_not_run 'install / shared library' 'nm is not installed'
fi
