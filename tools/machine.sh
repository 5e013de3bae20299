# shellcheck shell=bash
# What the machine is called, which processors it has and what a build is of: sourced by the other
# tools.

# A field of the first processor.
cpu_field() {
    sed -n "s/^$1[[:space:]]*: //p" /proc/cpuinfo | head -n 1
}

# Virtual machines often hide the model's name, but not its number.
microarchitecture() {
    local family model
    family=$(cpu_field 'cpu family')
    model=$(cpu_field model)
    case $(cpu_field vendor_id)-$family-$model in
    AuthenticAMD-23-*) ((model >= 48)) && echo zen2 || echo zen ;;
    AuthenticAMD-25-1[6-9] | AuthenticAMD-25-2? | AuthenticAMD-25-3[01]) echo zen4 ;;
    AuthenticAMD-25-9[6-9] | AuthenticAMD-25-1[0-2]? | AuthenticAMD-25-1[67]?) echo zen4 ;;
    AuthenticAMD-25-*) echo zen3 ;;
    AuthenticAMD-26-*) echo zen5 ;;
    GenuineIntel-6-85) echo skylake-server ;;
    GenuineIntel-6-106 | GenuineIntel-6-108) echo icelake-server ;;
    GenuineIntel-6-143) echo sapphire-rapids ;;
    GenuineIntel-6-207) echo emerald-rapids ;;
    GenuineIntel-6-173 | GenuineIntel-6-174) echo granite-rapids ;;
    *) echo "family$family-model$model" ;;
    esac
}

cpu_name() {
    local brand
    case $(cpu_field vendor_id) in
    AuthenticAMD) brand=amd ;;
    GenuineIntel) brand=intel ;;
    *)
        uname -m
        return
        ;;
    esac
    case $(cpu_field 'model name') in
    *EPYC*) brand+=-epyc ;;
    *Ryzen*) brand+=-ryzen ;;
    *Xeon*) brand+=-xeon ;;
    *Core*) brand+=-core ;;
    esac
    echo "$brand-$(microarchitecture)"
}

# The processors that this process may use, one for each core, with commas between them.
cores() {
    local allowed
    allowed=$("${python:-python3}" -c 'import os; print(*sorted(os.sched_getaffinity(0)))')
    lscpu -p=CPU,CORE | awk -F , -v allowed=" $allowed " \
        '!/^#/ && index(allowed, " " $1 " ") && !seen[$2]++ { printf "%s%s", sep, $1; sep = "," }'
}

# built_from BUILD SOURCE: whether meson set the folder BUILD up for SOURCE. Of another copy it goes
# on building that one, without a word.
built_from() {
    python3 -c '
import json, os, sys

with open(sys.argv[1] + "/meson-info/meson-info.json") as file:
    source = json.load(file)["directories"]["source"]
sys.exit(not os.path.samefile(source, sys.argv[2]))' "$1" "$2" 2>/dev/null
}
