#!/usr/bin/env python3
"""Counts the instructions of calls under callgrind, and compares them with those on record: time is
too noisy to test, but a kernel that is no longer inline, spills its registers or copies what it
should not takes more instructions everywhere.

    instructions_test.py PROGRAM COMPILER [--record]

PROGRAM is tests/instructions.c with a library that was compiled with -O2, and COMPILER says by
what, "12" for gcc 12; only the same one makes the same instructions. With --record what is counted
is written into tests/instructions.txt: do that where a change is meant. Status 77: not to be
compared here. Needs valgrind."""
import pathlib
import re
import subprocess
import sys
import tempfile

from checks import check

RECORD = pathlib.Path(__file__).resolve().parent / "instructions.txt"
MOST = 0.02  # of what is on record, up or down


def skip(why):
    print(why)
    sys.exit(77)


def counted(program):
    """Instructions of the call of each case, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "counts"
        try:
            done = subprocess.run(
                ["valgrind", "--quiet", "--tool=callgrind", "--combine-dumps=yes",
                 f"--callgrind-out-file={out}", program], timeout=600, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        except FileNotFoundError:
            skip("valgrind is not installed")
        if done.returncode == 77:
            skip(done.stdout.strip())
        if done.returncode:
            sys.exit(f"instructions_test.py: {program}: status {done.returncode}: {done.stdout}")
        parts = re.findall(r"^desc: Trigger: Client Request: (\S+)$.*?^totals: (\d+)$",
                           out.read_text(), re.M | re.S)
    return {name: int(count) for name, count in parts}


def main():
    arguments = [a for a in sys.argv[1:] if a != "--record"]
    if len(arguments) != 2:
        sys.exit("usage: instructions_test.py PROGRAM COMPILER [--record]")
    program, compiler = arguments
    if "--record" in sys.argv:
        lines = [f"{name} {count}\n" for name, count in counted(program).items()]
        RECORD.write_text(f"compiler {compiler}\n" + "".join(lines))
        return
    known = dict(line.split() for line in RECORD.read_text().splitlines())
    by = known.pop("compiler")
    if compiler != by:
        skip(f"what is on record was compiled by gcc {by}, this by {compiler}")
    counts = counted(program)
    check("the cases are those on record", list(counts) == list(known),
          ", ".join(sorted(set(counts) ^ set(known))))
    for name, count in counts.items():
        change = count / int(known.get(name, 0) or 1)
        check(f"instructions of {name}", abs(change - 1) <= MOST,
              f"{count}, {change:.3f} of what is on record")
    check.finish()


if __name__ == "__main__":
    main()
