# shellcheck shell=bash disable=SC2034
# Sourced by tests/cortex-m.sh and tools/sizes: what of the library is built for a Cortex-M4F.
# `step` takes tokens one by one. `prefill` also has blocks of tokens, which it owes to the windows:
# scalar code alone without windows and features has none, with LINATTN_NO_PREFILL or without.

declare -A cortex_m_flags=(
    [step]='-DLINATTN_NO_WINDOW -DLINATTN_NO_FEATURES -DLINATTN_ONLY_ELU1 -DLINATTN_NO_PREFILL
        -DLINATTN_NO_HALF'
    [prefill]='-DLINATTN_ONLY_ELU1 -DLINATTN_NO_HALF'
    [whole]=''
)
