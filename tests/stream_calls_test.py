#!/usr/bin/env python3
"""What examples/stream.c asks of the system while it runs, which should be nothing.

    stream_calls_test.py PATH_TO_STREAM hook PATH_TO_HOOK    allocations and locks, counted by
                                                             stream_hook.c
    stream_calls_test.py PATH_TO_STREAM strace               system calls

Prints one line for each check and exits with 1 if any failed, with 77 where there is no strace, or
no process may be traced. Needs Python 3 alone.
"""
import os
import pathlib
import pty
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # beside the source

import checks
from checks import check, run

CLIP = pathlib.Path(__file__).resolve().parent.parent / "examples/data/stream.wav"
HOPS, READINGS = 5000, 4  # of the clock in each hop, and one before


# ---- Allocations and locks -----------------------------------------------------------------------

def hooked(name, hook, *options):
    """The counts from the second hop to the last, and in all."""
    done = run(CLIP, "--quiet", "--hops", HOPS, *options,
               env={**os.environ, "LD_PRELOAD": hook, "HOOK_FROM": str(READINGS + 2)})
    told = done.stderr.split()
    if done.returncode or told[:1] != [b"hook:"]:
        raise RuntimeError(f"{done.returncode} {done.stderr!r}")
    readings, *counts = map(int, told[1:])
    check(f"{name}: the hook saw every hop", readings == 1 + READINGS * HOPS)
    return counts


def check_hook(hook, work):
    for name, options in {"plain": [], "scalar": ["--isa", "scalar"],
                          "with outputs": ["--out", work / "out.npy"],
                          "with copies": ["--save", work / "saved"]}.items():
        allocations, locks, *in_all = hooked(name, hook, *options)
        check(f"{name}: no allocation and no lock after the first hop",
              allocations == locks == 0 < in_all[0], f"of {in_all[0]} and {in_all[1]}")
    allocations, locks, *_ = hooked("two threads", hook, "--handoff")
    check("two threads: no allocation, and the locks of their turns",
          allocations == 0 and locks >= HOPS, f"{locks} locks")


# ---- System calls --------------------------------------------------------------------------------

def traced(name, work, *options, hops=HOPS, **keywords):
    """The calls between the two of getrusage, which stand before the first hop and behind the last:
    those of the thread that makes these. Readings of the clock are calls on some machines alone."""
    log = work / "trace"
    subprocess.run(["strace", "-f", "-o", log, *checks.command, CLIP, f"--hops={hops}", *options],
                   check=True, timeout=120, **keywords)
    lines = [line.split(None, 1) for line in log.read_text(errors="replace").splitlines()]
    marks = [i for i, (_, call) in enumerate(lines) if call.startswith("getrusage(")]
    check(f"{name}: strace saw both ends", len(marks) == 2)
    own = [call.split("(")[0] for thread, call in lines[marks[0] + 1:marks[1]]
           if thread == lines[marks[0]][0] and not call.startswith("<...")]  # the end of one
    return [call for call in own if call != "clock_gettime"]


def check_strace(work):
    outputs = ["--out", work / "out.npy", "--times", work / "times.npy"]
    for name, options in {"quiet": ["--quiet"], "no terminal": [], "scalar": ["--isa", "scalar"],
                          "with outputs": outputs,
                          "with copies": ["--save", work / "saved"]}.items():
        calls = traced(name, work, *options, stdout=subprocess.DEVNULL)
        check(f"{name}: no system call from the first hop to the last", calls == [],
              " ".join(calls[:5]))
    ours, its = pty.openpty()
    reader = subprocess.Popen(["cat"], stdin=ours, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    calls = traced("a terminal", work, stdout=its)
    os.close(its)
    os.close(ours)
    reader.wait()
    check("a terminal: the meter's alone", set(calls) == {"write"} and len(calls) == HOPS // 5,
          f"{len(calls)}")
    calls = traced("paced", work, "--quiet", "--realtime", hops=20)
    check("paced: one to wait for each hop", set(calls) == {"clock_nanosleep"}
          and len(calls) <= 20, f"{len(calls)}")


def can_trace():
    try:
        return subprocess.run(["strace", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL,
                              timeout=60).returncode == 0
    except FileNotFoundError:
        return False


def main():
    if sys.argv[2:] != ["strace"] and sys.argv[2:3] != ["hook"]:
        sys.exit(__doc__)
    checks.use("stream", sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[2] == "hook":
            check_hook(os.path.abspath(sys.argv[3]), pathlib.Path(folder))
        elif can_trace():
            check_strace(pathlib.Path(folder))
        else:
            print("there is no strace, or it may trace nothing here")
            sys.exit(77)
    check.finish()


if __name__ == "__main__":
    main()
