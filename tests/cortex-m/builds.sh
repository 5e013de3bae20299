# shellcheck shell=bash disable=SC2034
# Sourced by tests/cortex-m.sh and tools/sizes: what of the library is built for a Cortex-M4F.
# `step` takes tokens one by one, and so does `same`: scalar code alone has blocks of tokens, as
# `prefill` has, only for the windows and features.

declare -A cortex_m_flags=(
    [step]='-DLINATTN_NO_WINDOW -DLINATTN_NO_FEATURES -DLINATTN_ONLY_ELU1 -DLINATTN_NO_PREFILL
        -DLINATTN_NO_HALF'
    [same]='-DLINATTN_NO_WINDOW -DLINATTN_NO_FEATURES -DLINATTN_ONLY_ELU1 -DLINATTN_NO_HALF'
    [prefill]='-DLINATTN_ONLY_ELU1 -DLINATTN_NO_HALF'
    [whole]=''
)
