# shellcheck shell=bash
# Stage of tools/test: what README.md tells a newcomer to do works as it stands there.

# A `cc` that does not optimise, whatever it is told, for programs that take longest to compile: the
# matrix is for what optimisers do. And one for programs whose text is the same in scalar code.
quick_cc() { # FOLDER FLAGS...
    mkdir -p "$work/$1"
    printf '#!/bin/sh\nexec "%s" "$@" %s\n' "$(command -v cc)" "${*:2}" >"$work/$1/cc"
    chmod +x "$work/$1/cc"
}

readme_first_command() {
    local command PATH=$work/quick-cc:$PATH
    readme_clone "$work/clone"
    command=$(readme_block sh 1)
    echo "$command"
    [[ $command == *'--compare'* ]]
    cd "$work/clone"
    bash -e -c "$command" | tee "$work/compare.txt"
    grep -q elu1 "$work/compare.txt"
}

# All instruction sets give the same bits, or its status is 1.
readme_stream() {
    local command fma=
    command=$(grep -x 'cc .*examples/stream\.c .*' README.md)
    mkdir -p "$work/sooner-cc"
    # As quick_cc, but for a program that runs for long, most of it in scalar code: with the
    # processor's fma, where it has one, ten times faster to the same bits.
    if [[ $host_isas == *avx2* ]] && has_isa avx2; then fma=-mfma; fi
    printf '#!/bin/sh\nexec "%s" "$@" -O1 %s\n' "$(command -v cc)" "$fma" >"$work/sooner-cc/cc"
    chmod +x "$work/sooner-cc/cc"
    PATH=$work/sooner-cc:$PATH
    readme_clone "$work/clone-stream"
    cd "$work/clone-stream"
    bash -e -c "$command" | tee "$work/stream.txt"
    grep -q '^scalar .* the same bits$' "$work/stream.txt"
}

# The text that a model goes on with is the one printed.
readme_rwkv() {
    local command PATH=$work/scalar-cc:$PATH
    command=$(awk '/^```/ { inside = 0 } /^cc .*rwkv\.c / { inside = 1 } inside' README.md)
    readme_clone "$work/clone-rwkv"
    cd "$work/clone-rwkv"
    echo "$command"
    bash -e -c "$command" >"$work/rwkv.txt"
    cat "$work/rwkv.txt"
    grep . "$work/rwkv.txt" | grep -qxFf - README.md
}

readme_second_command() {
    readme_block sh 2 | grep -x tools/test
    tools/test --help
}

# The program that it prints is the one that is built.
readme_quickstart() {
    readme_block c 1 | diff - examples/quickstart.c
}

# The single file is written where README.md writes it, and is a library; the tree stays as it was.
readme_single_file() {
    local command place=$work/clone-single/linattn
    command=$(sed -n 's/.*`\(tools\/amalgamate [^`]*\)` write both as one file.*/\1/p' README.md)
    readme_clone "$place"
    cp -R "$place" "$place-before"
    cd "$place"
    echo "$command"
    bash -e -c "$command"
    diff -r "$place-before" "$place"
    mkdir "$place/../alone"
    cp "${command##* }" "$place/../alone/single.h"
    cd "$place/../alone"
    echo '#include "single.h"' >library.c
    gcc -std=c99 $warnings -DLINATTN_IMPLEMENTATION -DLINATTN_SCALAR_ONLY -fsyntax-only library.c
}

# The example of a layer of Gated DeltaNet: the second value corrects what the first one left.
readme_rules() {
    {
        printf '#define LINATTN_IMPLEMENTATION\n#include "linattn.h"\n#include <stdlib.h>\n'
        readme_block c 2
        cat <<'EOF'
static float q[2][KEY_HEADS][DIM], v[2][VALUE_HEADS][DIM], out[2][VALUE_HEADS][DIM];
static float log_decay[2][VALUE_HEADS], beta[2][VALUE_HEADS];
int main(void)
{
    float last;
    for (int h = 0; h < VALUE_HEADS; h++) {
        q[0][h / 2][0] = q[1][h / 2][0] = 1;
        v[0][h][0] = 3;
        v[1][h][0] = 5;
        beta[0][h] = beta[1][h] = 1;
    }
    if (begin() != LINATTN_OK || layer(**q, **q, **v, *log_decay, *beta, **out, 2) != LINATTN_OK)
        return 1;
    last = out[1][VALUE_HEADS - 1][0] / config.scale;
    return linattn_state_tokens(state) != 2 || last < 4.999f || last > 5.001f;
}
EOF
    } >"$work/rules.c"
    gcc -std=c99 -O0 $warnings -DLINATTN_SCALAR_ONLY -I . "$work/rules.c" -o "$work/rules"
    "$work/rules"
}

# The example of many states, in a program that calls what it defines.
readme_many() {
    {
        printf '#define LINATTN_IMPLEMENTATION\n#include "linattn.h"\n'
        readme_block c 3
        cat <<'EOF'
int main(void)
{
    begin();
    for (int i = 0; i < 3; i++)
        if (frame() != LINATTN_OK) return 1;
    return linattn_state_tokens(states[AGENTS - 1]) != 3;
}
EOF
    } >"$work/many.c"
    grep -q LINATTN_STATE_BYTES "$work/many.c"
    gcc -std=c99 -O0 $warnings -DLINATTN_SCALAR_ONLY -I . "$work/many.c" -o "$work/many"
    "$work/many"
}

# What is said to be enough for a microcontroller, on this machine.
readme_small() {
    {
        readme_block c 4
        cat <<'EOF'
static unsigned state[LINATTN_STATE_BYTES(1, 8, 8) / sizeof(unsigned)];
static float x[8], y[8];
int main(void)
{
    const linattn_config config = {.dim_key = 8};
    if (linattn_state_init(&config, state, sizeof state) != LINATTN_OK) return 1;
    return linattn_causal(state, linattn_rows(x), linattn_rows(x), linattn_rows(x),
                          linattn_output_rows(y), 1, NULL) != LINATTN_OK;
}
EOF
    } >"$work/small.c"
    grep -q LINATTN_FREESTANDING "$work/small.c"
    gcc -std=c99 -O1 $warnings -I . "$work/small.c" -o "$work/small"
    "$work/small"
}

# The library that the README's line makes, and its example of ctypes, which compares.
readme_python() {
    local command place=$work/python PATH=$work/quick-cc:$PATH
    command=$(grep -x 'cc .* -shared .* -o liblinattn\.so' README.md)
    mkdir -p "$place"
    cp linattn.h linattn_simd.h "$place"
    readme_block python 1 >"$place/example.py"
    cd "$place"
    eval "$command"
    "$python" example.py | tee output
    grep -E 'largest difference [0-9]e-0[67]$' output
}

# The figures of size are replaced by a script; a slip in its options is refused before it works.
readme_sizes() {
    tools/sizes --help | grep -q -e --publish
    if tools/sizes --no-such-option || tools/sizes --base no-such-commit ||
        tools/sizes --passes none; then return 1; fi
    grep -qx '<!-- sizes:begin -->' README.md
    grep -qx '<!-- sizes:end -->' README.md
    grep -q '<!-- sizes:scalar-alone-small -->[0-9]*<!-- /sizes --> KiB' README.md
}

# A hundredth of the streams that the page of them is of: the same figures, as the bits are.
readme_streams() {
    local columns='/^\|/ { print $2, $3, $4, $5 }'
    tools/streams --help | grep -e --publish >/dev/null # to its end, or Python fails
    if tools/streams --no-such-option || tools/streams --tokens 10 ||
        tools/streams --publish --tokens 1000000; then return 1; fi
    tools/streams --tokens 1000000 --build "$work/streams" >"$work/streams.md"
    diff <(awk -F ' *[|] *' "$columns" bench/results/streams.md) \
        <(awk -F ' *[|] *' "$columns" "$work/streams.md")
    grep -q '^| taylor/constant |' "$work/streams.md"
    # The README's rows are the page's first: plain sums of elu1.
    diff <(sed -n 's/^| plain: [a-z ]*|/|/p' README.md) \
        <(sed -n '/^## Compensated/q; s/^| elu1.[a-z]* |/|/p' bench/results/streams.md)
}

# The tables of the benchmark are those of the results that are there. Pictures are not drawn again.
readme_figures() {
    readme_clone "$work/clone-figures"
    cd "$work/clone-figures"
    mkdir before no-pictures
    cp -r README.md bench/results before
    echo 'raise ImportError' >no-pictures/matplotlib.py
    PYTHONPATH=no-pictures python3 bench/report.py render $(find bench/results -name '*.csv') \
        --readme README.md
    diff before/README.md README.md
    diff -r before/results bench/results
}

# Where NumPy and Matplotlib are missing, the study's --help is printed, and all else says so.
readme_study() {
    local place=$work/study
    mkdir -p "$place"
    echo 'raise ImportError("it is not there")' >"$place/numpy.py"
    cp "$place/numpy.py" "$place/matplotlib.py"
    export PYTHONPATH=$place PYTHONDONTWRITEBYTECODE=1
    python3 docs/study.py --help | tee "$place/help"
    grep -q -e '--render' "$place/help"
    if python3 docs/study.py --render >"$place/said" 2>&1; then return 1; fi
    grep 'Install python3-numpy' "$place/said"
}

quick_cc quick-cc -O0
quick_cc scalar-cc -O1 -DLINATTN_SCALAR_ONLY
# The one that takes longest goes first, as nothing comes after this stage.
job 'readme / a stream' readme_stream
job 'readme / first command' readme_first_command
job 'readme / second command' readme_second_command
job 'readme / a model' readme_rwkv
job 'readme / tables of the benchmark' readme_figures
job 'readme / sizes are measured' readme_sizes
job 'readme / help of the study' readme_study
job 'readme / streams without end' readme_streams
job 'readme / quickstart.c is the one printed' readme_quickstart
job 'readme / the single file' readme_single_file
job 'readme / rules' readme_rules
job 'readme / many states' readme_many
job 'readme / a microcontroller' readme_small
if [[ -n $python ]]; then
    job 'readme / Python' readme_python
else
    report_not_run 'readme / Python' 'NumPy is not installed'
fi
