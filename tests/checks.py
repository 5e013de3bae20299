"""What the tests of the example programs share: checks that are counted, running the program, what
it refuses. Needs Python 3 alone."""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ISAS = ["scalar", "avx2", "avx512", "neon"]


class Checks:
    def __init__(self):
        self.count = self.failed = 0

    def __call__(self, name, passed, detail=""):
        self.count += 1
        self.failed += not passed
        print(("ok - " if passed else "not ok - ") + name + (f" ({detail})" if detail else ""),
              flush=True)

    def finish(self):
        print(f"{self.count} checks, {self.failed} failed")
        sys.exit(1 if self.failed else 0)


check = Checks()
command, program = [], ""


def use(name, path):
    """From now on the program of this name is run, behind what NAME_RUN says."""
    global program
    program = name
    command[:] = shlex.split(os.environ.get(name.upper() + "_RUN", "")) + [os.path.abspath(path)]


def run(*arguments, **keywords):
    return subprocess.run(command + [a if isinstance(a, bytes) else str(a) for a in arguments],
                          **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 120,
                             **keywords})


OUT = "OUT"  # stands for an output path in a folder that must stay empty


def refuse(name, *arguments, says=(), **keywords):
    """Exit status 2, one line on stderr, nothing written."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.npy")
        done = run(*[out if a is OUT else a for a in arguments], **{"timeout": 60, **keywords})
        line = done.stderr
        good = (done.returncode == 2 and line.startswith(program.encode() + b": ")
                and line.count(b"\n") == 1 and line.endswith(b"\n") and not done.stdout
                and not os.listdir(folder) and all(word in line for word in says))
        check(f"refused: {name}", good, "" if good else f"{done.returncode} {line!r}")


def present_isas(*arguments):
    """The instruction sets that the program runs with; the others it has to refuse."""
    for isa in ISAS:
        done = run(*arguments, "--isa", isa)
        if done.returncode == 0:
            yield isa
        else:
            check(f"{isa} is absent and refused", done.returncode == 2 and b"lacks" in done.stderr
                  and isa != "scalar")


def check_common_options(*arguments):
    """What all programs do alike, with arguments to which an option may be added."""
    shown = run("--help")
    short = run("-h")
    check("-h is --help", (short.returncode, short.stdout, short.stderr)
          == (0, shown.stdout, b"") and shown.stdout.startswith(b"usage: "), repr(short.stderr))
    text = shown.stdout.decode()
    check("--help names -h", re.search(r"\n  --help, -h +print this\n", text) is not None)
    said = run(*arguments, "--isa", "no-such").stderr.decode()
    expected = said.split("expected one of: ")[-1].strip().split(", ")
    listed = text.split("--isa NAME")[-1].split(";")[0].replace(" (default)", "").strip()
    names = re.split(", | or ", " ".join(listed.split()))
    check("--help has the names of --isa that an unknown one is answered with",
          names == expected and len(names) > 4, f"{names}, {expected}")
    refuse("a value that looks like an option", *arguments, "--isa", "--x",
           says=[b"--isa needs a value", b"--help", b"--isa=--x"])
    refuse("no value at all", *arguments, "--isa", says=[b"--isa needs a value, see --help\n"])


def main(name, usage, make_tests, takes_data=True):
    """Runs PATH_TO_PROGRAM [DATA_DIR] through its tests: make_tests(work, data) has each with what
    it takes behind a folder of its own."""
    if not 2 <= len(sys.argv) <= 2 + takes_data:
        sys.exit(usage)
    here = pathlib.Path(__file__).resolve().parent
    data = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else here.parent / "examples/data"
    use(name, sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for test, more in make_tests(work, data).items():
            own = work / test.__name__
            own.mkdir()
            try:
                test(own, *more)
            except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
                check(f"{test.__name__} runs to its end", False, repr(error))
    check.finish()
