# shellcheck shell=bash
# Stage of tools/test: a microcontroller. The library for a Cortex-M4F is run by qemu: the bits are
# those of this machine, and a program stays within so many bytes of code and of stack, and so many
# instructions per token. tools/sizes writes these figures into README.md.

# shellcheck source=tests/cortex-m/builds.sh
source tests/cortex-m/builds.sh
declare -A most_code=([step]=6144 [prefill]=20480) # bytes, of state_init and causal
declare -A most_stack=([step]=1024 [prefill]=4096) # bytes
most_instructions=150                              # % of the plain loop's
most_double=0 most_divide64=0                      # functions

cortex_m_figures() { # FILE VARIANT
    # shellcheck disable=SC2086
    tests/cortex-m/measure . "$work/cortex-m/$2" ${cortex_m_flags[$2]} >"$1.part" || {
        cat "$1.part"
        return 1
    }
    mv "$1.part" "$1"
}

figures_of() { echo "$work/cortex-m/$1.figures"; } # VARIANT

figure() { # FILE NAME
    awk -v name="$2" '$1 == name { print $2; found = 1 } END { exit !found }' "$1"
}

at_most() { # VARIANT NAME MARK
    local file found
    file=$(figures_of "$1")
    await "$file"
    found=$(figure "$file" "$2")
    echo "$2: $found, at most $3"
    ((found <= $3)) && return
    [[ $2 == stack* ]] || grep '^needed' "$file"
    return 1
}

few_instructions() { # VARIANT DIMENSION
    local file library plain
    file=$(figures_of "$1")
    await "$file"
    library=$(figure "$file" "library-$2")
    plain=$(figure "$file" "plain-$2")
    echo "instructions per token: $library, plain loop: $plain, at most $most_instructions % of it"
    ((library * 100 <= plain * most_instructions))
}

# The same files on this machine.
host_golden() { # PROGRAM FLAGS
    gcc -std=c99 -O1 -Wall -Wextra -Werror $2 -I . tests/cortex-m/golden.c tests/cortex-m/host.c \
        tests/cortex-m/library.c -o "$1"
}

same_golden() { # VARIANT PROGRAM
    local file here there
    file=$(figures_of "$1")
    await "$file" "$2"
    here=$("$2")
    there=$(grep '^golden ' "$file")
    echo "here $here, there $there"
    [[ $here == "$there" && $here != *' 0000000000000000' ]]
}

# Of a program with README.md's lines, linked with -nostdlib: what has to come from elsewhere is
# named there.
needs_what_is_named() {
    local object=$work/cortex-m/needs.o symbol
    mkdir -p "${object%/*}"
    {
        readme_block c 4
        cat <<'EOF'
linattn_status begin(const linattn_config *config, void *state, size_t bytes)
{
    return linattn_state_init(config, state, bytes);
}
linattn_status step(void *state, const float *q, const float *k, const float *v, float *out)
{
    return linattn_causal(state, linattn_rows(q), linattn_rows(k), linattn_rows(v),
                          linattn_output_rows(out), 1, NULL);
}
EOF
    } >"${object%.o}.c"
    grep -q LINATTN_FREESTANDING "${object%.o}.c"
    arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -Os -std=c99 \
        $warnings -ffreestanding -I . -c "${object%.o}.c" -o "$object"
    for symbol in $(arm-none-eabi-nm -u "$object" | awk '{ print $NF }'); do
        echo "$symbol"
        grep -qF "\`$symbol\`" README.md
    done
    # Nothing but these, of which libgcc has the last.
    arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -nostdlib \
        -Wl,-e,step -Wl,--defsym=memcpy=0 -Wl,--defsym=memset=0 "$object" -lgcc -o "${object%.o}"
}

cortex_m_quiet() { # VARIANT
    arm-none-eabi-gcc -mcpu=cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard -Os -std=c99 $warnings \
        -DLINATTN_SCALAR_ONLY -DLINATTN_FREESTANDING -ffreestanding ${cortex_m_flags[$1]} -I . \
        -c tests/cortex-m/library.c -o /dev/null
}

# Otherwise two builds of two names would be one.
has_blocks() { # VARIANT 0|1
    printf '#define LINATTN_IMPLEMENTATION\n#include "linattn.h"\n' |
        arm-none-eabi-gcc -mcpu=cortex-m4 -mfpu=fpv4-sp-d16 -mfloat-abi=hard -DLINATTN_SCALAR_ONLY \
            -DLINATTN_FREESTANDING -ffreestanding ${cortex_m_flags[$1]} -I . -x c -E -dD - |
        grep -x "#define LINATTN__HAS_PREFILL $2"
}

cortex_m() {
    local isa variant flags dim program
    for isa in $host_isas; do
        case $isa in
        scalar) flags=-DLINATTN_SCALAR_ONLY ;;
        avx2) flags='-DLINATTN_NO_DISPATCH -mavx2 -mfma' ;;
        avx512) flags='-DLINATTN_NO_DISPATCH -mavx512f -mavx2 -mfma' ;;
        *) flags=-DLINATTN_NO_DISPATCH ;;
        esac
        program=$work/cortex-m/golden-$isa
        target "$program" host_golden "$program" "$flags"
    done
    for variant in step prefill; do
        program=$work/cortex-m/golden-$variant
        target "$program" host_golden "$program" "-DLINATTN_SCALAR_ONLY ${cortex_m_flags[$variant]}"
        target "$(figures_of $variant)" cortex_m_figures "$(figures_of $variant)" $variant
        job "cortex-m-$variant / no warnings" cortex_m_quiet $variant
        for isa in $host_isas $variant; do
            if [[ $isa == "$variant" ]] || has_isa "$isa"; then
                job "cortex-m-$variant / golden bits, $isa" same_golden $variant \
                    "$work/cortex-m/golden-$isa"
            else
                report_not_run "cortex-m-$variant / golden bits, $isa" "the CPU lacks $isa"
            fi
        done
        job "cortex-m-$variant / blocks of tokens" has_blocks $variant \
            "$([[ $variant == step ]] && echo 0 || echo 1)"
        job "cortex-m-$variant / code" at_most $variant code ${most_code[$variant]}
        for dim in 16 32; do
            job "cortex-m-$variant / stack, ($dim,$dim)" at_most $variant stack-$dim \
                ${most_stack[$variant]}
        done
    done
    job "cortex-m / what README's lines need" needs_what_is_named
    job 'cortex-m-step / no double' at_most step double $most_double
    job 'cortex-m-step / no division of 64 bits' at_most step divide64 $most_divide64
    for dim in 16 32; do
        job "cortex-m-step / instructions, ($dim,$dim)" few_instructions step $dim
    done
}

if ! command -v arm-none-eabi-gcc >/dev/null ||
    ! echo '#include <math.h>' | arm-none-eabi-gcc -E - >/dev/null 2>&1; then
    report_not_run cortex-m 'the cross compiler or its C library is not installed'
elif ! command -v qemu-system-arm >/dev/null; then
    report_not_run cortex-m 'qemu-system-arm is not installed'
else
    cortex_m
fi
