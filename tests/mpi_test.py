"""Tests of examples/mpi.c: PATH_TO_MPI PATH_TO_ATTEND, whose outputs are the reference. Needs
Python 3 with NumPy, and mpirun."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import checks
from checks import check

RANKS = [1, 2, 3, 4, 7]
MAPS = ["elu1", "identity", "relu", "exp", "softmax", "favor", "favor-simple", "favor-hyperbolic",
        "taylor", "expdef", "unit"]
TOKENS, HEADS, KV_HEADS, DIM, DIM_VALUE = 61, 4, 2, 20, 24

# As root and on more ranks than processors; quiet, so that what a failure prints is the program's
# own; and for one machine, which takes half the time to begin.
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                  OMPI_MCA_pml="ob1", OMPI_MCA_btl="self,vader", OMPI_MCA_mpi_yield_when_idle="1")
MPIRUN = ["mpirun", "-q", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]


def mpirun(line, env=os.environ):
    """In a folder of its own for its files: several at once take one another's away."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(line, capture_output=True, timeout=60,
                              env={**env, "OMPI_MCA_orte_tmpdir_base": folder})


def run(ranks, *arguments, **keywords):
    """The program on so many ranks."""
    line = MPIRUN + ["-n", str(ranks)] + checks.command
    return mpirun(line + [str(a) for a in arguments], **keywords)


def good(name, done):
    if done.returncode != 0 or done.stderr:
        check(name, False, f"{done.returncode} {done.stderr!r}")
    return done.returncode == 0


def attend(out, *arguments):
    subprocess.run([os.path.abspath(sys.argv[2]), "--out", str(out)] + [str(a) for a in arguments],
                   check=True, timeout=60)
    return np.load(out)


def near(name, x, expected):
    """Within 1e-6 of the largest number, merging rounds sums elsewhere."""
    size = max(1e-30, np.abs(expected).max(initial=0))
    error = np.abs(x.astype(np.float64) - expected).max(initial=0) / size
    check(name, x.shape == expected.shape and error <= 1e-6, f"{error:.1e}")


def compare(name, work, ranks, *arguments, more=(), **keywords):
    """Ranks against one process; `more` are options that attend lacks."""
    own = pathlib.Path(tempfile.mkdtemp(dir=work))
    expected = attend(own / "expected.npy", *arguments)
    done = run(ranks, *arguments, *more, "--out", own / "out.npy", **keywords)
    if good(name, done):
        near(name, np.load(own / "out.npy"), expected)


def each(test, cases):
    """mpirun mostly waits, for ranks that begin and end: so three at once."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda case: test(*case), cases))


def make_inputs(folder, tokens=TOKENS, queries=None, seed=1):
    """Queries, keys and values, and gates for them."""
    rng = np.random.default_rng(seed)
    shapes = {"q": (queries or tokens, HEADS, DIM), "k": (tokens, KV_HEADS, DIM),
              "v": (tokens, KV_HEADS, DIM_VALUE), "key1": (tokens, 1, DIM),
              "q2": (tokens, KV_HEADS, DIM),
              "input": (tokens, KV_HEADS), "bonus": (KV_HEADS, DIM)}
    folder.mkdir(exist_ok=True)
    for name, shape in shapes.items():
        np.save(folder / name, rng.standard_normal(shape, dtype=np.float32))
    for name, shape in {"decay": (tokens, KV_HEADS), "decays": (tokens, KV_HEADS, DIM),
                        "fixed": (1, KV_HEADS)}.items():
        np.save(folder / name, -0.2 * rng.random(shape, dtype=np.float32))
    return folder


# ---- Against one process ------------------------------------------------------------------------

def one_rank_is_attend(work, inputs):
    """The bits of one process, under mpirun and without."""
    out = work / "out.npy"
    for options in (["--causal"], [], ["--rule", "gated", "--decay", inputs / "decay.npy"]):
        attend(work / "expected.npy", "--dir", inputs, *options)
        arguments = ["--dir", inputs, *options, "--out", out]
        done = run(1, *arguments) if options == ["--causal"] else checks.run(*arguments)
        if good(f"one rank {options[:2]}", done):
            check(f"one rank {options[:2]}",
                  out.read_bytes() == (work / "expected.npy").read_bytes())


def ranks_agree(work, inputs):
    each(lambda ranks, causal: compare(f"{ranks} ranks {causal}", work, ranks, "--dir", inputs,
                                       *causal),
         [*((ranks, ["--causal"]) for ranks in RANKS[1:]), (4, []), (7, [])])


def maps_agree(work, inputs):
    """Every other one causal: what is merged does not depend on it."""
    def case(i, name, causal):
        options = ["--dir", inputs, "--map", name, *causal]
        if name in ("taylor", "expdef"):
            options += ["--degree", 2]
        if name.startswith("favor"):
            options += ["--features", 37, "--seed", 5]
        ranks = RANKS[1 + (i // 2 + len(causal)) % 4]
        compare(f"--map {name} {causal}, {ranks} ranks", work, ranks, *options)

    each(case, [(i, name, [] if i % 2 else ["--causal"]) for i, name in enumerate(MAPS)])


def rules_agree(work, inputs):
    decay = ["--decay", inputs / "decay.npy"]
    shared = ["--q", inputs / "key1.npy", "--k", inputs / "key1.npy", "--v", inputs / "v.npy"]
    cases = [
        ("per head", ["--dir", inputs, "--rule", "gated", *decay]),
        ("per feature", ["--dir", inputs, "--rule", "gated", "--decay", inputs / "decays.npy",
                         "--map", "exp"]),
        ("fixed", ["--dir", inputs, "--rule", "gated", "--decay", inputs / "fixed.npy"]),
        ("bonus", ["--dir", inputs, "--rule", "gated", *decay, "--map", "identity", "--bonus",
                   inputs / "bonus.npy"]),
        ("sum", ["--dir", inputs, "--rule", "gated", *decay, "--norm", "sum", "--eps", "0.5"]),
        ("length", ["--dir", inputs, "--rule", "gated", *decay, "--norm", "length", "--scale", 2]),
        ("mlstm", ["--dir", inputs, "--rule", "mlstm", *decay, "--map", "identity", "--input-gate",
                   inputs / "input.npy"]),
        ("shared keys", [*shared, "--rule", "mlstm", *decay, "--input-gate", inputs / "input.npy"]),
    ]
    each(lambda i, name, options: compare(f"--rule, {name}, {RANKS[1 + i % 4]} ranks", work,
                                          RANKS[1 + i % 4], *options),
         [(i, *case) for i, case in enumerate(cases)])


def cuts_agree(work, inputs):
    gated = ["--rule", "gated", "--decay", inputs / "decay.npy"]
    each(lambda cut, options: compare(f"--cut {cut} {options[:2]}", work, 1 + cut.count(","),
                                      "--dir", inputs, *options, more=["--cut", cut]),
         [(cut, options) for cut in ("5,0,1,55", "0,0,61", "61,0,0,0") for options in (gated, [])])
    few, none = make_inputs(work / "few", 3), make_inputs(work / "none", 0)
    for folder in (few, none):
        compare(f"{folder.name} tokens, 7 ranks", work, 7, "--dir", folder, "--causal")
    compare("no tokens, 3 ranks, every query sees every key", work, 3, "--dir", none)
    other = make_inputs(work / "other", queries=9)
    compare("fewer queries than keys, 4 ranks", work, 4, "--dir", other, more=["--cut", "1,2,58,0"])


def one_head_has_two_axes(work, inputs):
    folder = work / "flat"
    folder.mkdir()
    for name in "qkv":
        np.save(folder / name, np.load(inputs / f"{name}.npy")[:, 0])
    compare("files without an axis of heads", work, 3, "--dir", folder, "--causal")


def threads_agree(work, inputs):
    gated = ["--rule", "gated", "--decay", inputs / "decay.npy", "--map", "exp"]
    for ranks, threads, options in ((1, 3, ["--causal"]), (2, 40, gated), (3, 4, [])):
        compare(f"--threads {threads}, {ranks} ranks {options[:2]}", work, ranks, "--dir", inputs,
                *options, more=["--threads", threads])
    options = ["--dir", inputs, "--causal", "--threads", 3, "--by", "columns"]
    run(3, *options, "--out", work / "columns.npy")
    run(3, *options[:3], "--out", work / "one.npy")
    check("--by columns has the bits of one thread",
          (work / "columns.npy").read_bytes() == (work / "one.npy").read_bytes())


# ---- The same bits ------------------------------------------------------------------------------

def two_ranks_have_the_bits_of_one(work, inputs):
    """As the second one goes on from the very state that the first one reaches."""
    for name in ("elu1", "identity", "favor"):
        options = ["--dir", inputs, "--map", name, "--causal"]
        attend(work / "one.npy", *options)
        run(2, *options, "--out", work / "two.npy")
        check(f"two ranks and one, --map {name}",
              (work / "one.npy").read_bytes() == (work / "two.npy").read_bytes())


def bits_repeat(work, inputs):
    """For one number of ranks, on every run and instruction set."""
    gated = ["--rule", "gated", "--decay", inputs / "decays.npy", "--map", "exp"]
    isas = list(checks.present_isas("--generate", 1))
    for ranks, options in ((7, gated), (4, ["--map", "identity"])):
        outs = [(work / f"{ranks}-{i}.npy", isa) for i, isa in enumerate(["auto"] * 2 + isas)]
        each(lambda out, isa: run(ranks, "--dir", inputs, *options, "--isa", isa, "--out", out),
             outs)
        found = {out.read_bytes() for out, _ in outs}
        check(f"the same bits, {ranks} ranks {options[:2]}", len(found) == 1, str(len(found)))


def generated_tokens_are_the_same(work, _inputs):
    """Whatever the number of ranks; and the gates with them."""
    for options in (["--heads", 4, "--kv-heads", 2, "--dim", 9, "--dim-value", 5, "--causal"],
                    ["--rule", "mlstm", "--map", "identity"]):
        outs = []
        for ranks in (1, 3):
            out = work / f"{ranks}.npy"
            run(ranks, "--generate", 50, *options, "--out", out)
            outs.append(np.load(out))
        near(f"--generate {options[:2]}", outs[1], outs[0])
        check("generated outputs differ from token to token", len(np.unique(outs[0])) > 100)


# ---- What is sent -------------------------------------------------------------------------------

def report_of(done):
    lines = done.stdout.decode().splitlines()
    size = int(re.search(r"a state has (\d+) bytes", lines[0]).group(1))
    return size, [[float(x) for x in line.split()] for line in lines[2:]]


def monitored(work, ranks, options):
    """What each rank sent by Open MPI's own count, but for the few bytes of agreements."""
    settings = {"OMPI_MCA_pml_monitoring_enable": "1", "OMPI_MCA_pml_monitoring_enable_output": "3",
                "OMPI_MCA_pml_monitoring_filename": str(work / "sent"), **os.environ}
    settings.pop("OMPI_MCA_pml")
    done = run(ranks, *options, env=settings)
    sent = [0] * ranks
    for path in work.glob("sent.*.prof"):
        for line in path.read_text().splitlines():
            fields = line.split()
            if fields and fields[0] in "EI" and len(fields) > 3:
                sent[int(fields[1])] += int(fields[3])
        path.unlink()
    return done, sent


def bytes_are_counted(work, _inputs):
    """A rank sends whole states, log2 of the ranks of them, whatever the length. Open MPI counts
    as many bytes, but for the empty state that rank 0 sends to all, and the numbers of which each
    step ends with."""
    for ranks, causal, tokens in ((4, ["--causal"], 100), (4, ["--causal"], 4000),
                                  (7, ["--causal"], 100), (7, [], 4000)):
        done, sent = monitored(work, ranks, ["--generate", tokens, "--dim", 64, "--heads", 2,
                                             *causal])
        size, rows = report_of(done)
        said = [row[5] for row in rows]
        beside = sum(sent) - sum(said) - (ranks - 1) * size
        check(f"bytes sent, {ranks} ranks {causal}, {tokens} tokens",
              sum(row[1] for row in rows) == tokens and all(s % size == 0 for s in said)
              and max(said) == (ranks - 1).bit_length() * size and 0 < beside < 500 * ranks,
              f"{said}, {beside} beside")


def table_is_the_formula(_work, _inputs):
    """The one at the top of mpi.c, from the numbers that stand there."""
    text = (pathlib.Path(__file__).parents[1] / "examples/mpi.c").read_text().split("*/")[0]
    text = " ".join(text.split())
    u, a, heads, state, latency, bandwidth, merging = (
        float(re.search(rf"\b{name} = ([\d.]+)", text).group(1)) for name in "uahslbm")
    cells = text.split("tokens: seconds ")[1].split(" As all")[0].split()
    check("a table of 7 x 4 times", len(cells) == 7 * 5, str(len(cells)))
    step = latency * 1e-6 + state / (bandwidth * 1e9) + merging * 1e-6
    for row in np.reshape([float(x) for x in cells], (-1, 5)):
        ranks = int(row[0])
        for power, said in enumerate(row[1:], 6):
            each = -(-10 ** power // ranks) * heads * 1e-9
            time = each * (u + a) + step * (ranks - 1).bit_length() if ranks > 1 else each * a
            check(f"the table's time of {ranks} ranks, 10^{power} tokens",
                  abs(said / time - 1) < 0.006, f"{said}, computed {time:.4g}")


def chains_agree(work, inputs):
    """The other scan that Open MPI has, where the user asks for it."""
    compare("a chain of 7 ranks", work, 7, "--dir", inputs, "--rule", "gated", "--decay",
            inputs / "decay.npy", env={**os.environ, "OMPI_MCA_coll_tuned_exscan_algorithm": "1"})


# ---- What is refused ----------------------------------------------------------------------------

def refuse(name, work, *lines, says, limit=""):
    """Each of the lines is what some ranks are started with: [count, argument...]. One line on
    stderr, status 2, and OUT as it was, with nothing beside it."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=work))
    out = folder / "out.npy"
    out.write_text("older")
    command = list(MPIRUN)
    for i, (count, *arguments) in enumerate(lines):
        command += [":"] * (i > 0) + ["-n", str(count)]
        if limit and i > 0:
            command += ["bash", "-c", f'ulimit {limit}; exec "$0" "$@"']
        command += checks.command + [str(out if a is checks.OUT else a) for a in arguments]
    done = mpirun(command)
    line = done.stderr.decode()
    passed = (done.returncode == 2 and line.startswith("mpi: rank ") and line.count("\n") == 1
              and not done.stdout and all(word in line for word in says)
              and os.listdir(folder) == ["out.npy"] and out.read_text() == "older")
    check(f"refused: {name}", passed, "" if passed else f"{done.returncode} {line!r}")


def bad_options_are_refused(work, inputs):
    files = ["--dir", inputs, "--out", checks.OUT]
    np.save(work / "q.npy", np.zeros((1, 65537, 1), np.float32))
    for name, arguments, says in (
            ("an unknown option", [*files, "--windw", 3], ["--windw"]),
            ("delta", [*files, "--rule", "delta"], ["merge", "gated"]),
            ("a gate that is missing", [*files, "--rule", "gated"], ["needs --decay"]),
            ("a degree of elu1", [*files, "--degree", 2], ["--degree", "taylor"]),
            ("tokens for two ranks", [*files, "--cut", "1,60"], ["--cut", "1 whole"]),
            ("other tokens", [*files, "--cut", "60"], ["--cut", "61"]),
            ("more tokens", [*files, "--cut", "62"], ["--cut"]),
            ("no tokens", [*files, "--cut", "61,"], ["--cut"]),
            ("two sources", [*files, "--generate", 5], ["--generate"]),
            ("a device", ["--dir", inputs, "--out", "/dev/null"], ["regular file"]),
            ("no such folder", ["--dir", inputs, "--out", work / "none/out.npy"], ["none"]),
            ("queries with the heads of values", [
                "--q", inputs / "q2.npy", "--k", inputs / "key1.npy", "--v", inputs / "v.npy",
                "--rule", "gated", "--decay", inputs / "decay.npy"], ["q2.npy has 2", "1 as"]),
            ("65537 heads", ["--q", work / "q.npy", "--k", work / "q.npy", "--v", work / "q.npy"],
             ["q.npy: 65537 heads", "65536"]),
            ("too many features", ["--generate", 9, "--map", "favor", "--features", 2 ** 18 + 1],
             ["--features", "262144"]),
            ("a bonus and the norm sum", [
                *files, "--rule", "gated", "--decay", inputs / "decay.npy", "--bonus",
                inputs / "bonus.npy", "--norm", "sum"], ["--bonus", "--norm sum"]),
            ("heads that do not divide", ["--generate", 9, "--heads", 3, "--kv-heads", 2],
             ["kv_heads"]),
            ("states beyond all memory", ["--generate", 3, "--heads", 65536, "--dim", 65536],
             ["out of memory"])):
        checks.refuse(name, *arguments, says=[b"rank 0", *(word.encode() for word in says)])
    refuse("tokens for two of three ranks", work, [3, *files, "--cut", "1,60"],
           says=["rank 0", "3 whole"])


def bad_files_are_refused(work, inputs):
    """On all ranks or on one of them."""
    short = make_inputs(work / "short")
    path = short / "k.npy"
    path.write_bytes(path.read_bytes()[:-4])
    odd = make_inputs(work / "odd") / "q.npy"
    content = odd.read_bytes()
    odd.write_bytes(content[:8] + bytes([content[8] + 1]) + content[9:127] + b" \n" + content[128:])
    checks.refuse("data at an odd byte", "--dir", work / "odd", "--out", checks.OUT,
                  says=[b"q.npy", b"byte 129"])
    fewer = make_inputs(work / "fewer", 60)
    decay = np.load(inputs / "decay.npy")
    decay[50, 1] = 0.5
    np.save(work / "decay.npy", decay)
    options = ["--causal", "--out", checks.OUT]
    every = [("a file too short", [[3, "--dir", short, *options]], ["rank 0", "truncated"], ""),
             ("too short for rank 2", [[2, "--dir", inputs, *options],
                                       [1, "--dir", short, *options]],
              ["rank 2", "k.npy", "truncated"], ""),
             ("a gate of rank 1", [[2, "--dir", inputs, "--rule", "gated", "--decay",
                                    work / "decay.npy", *options]],
              ["rank 1", "decay.npy: element (50, 1) is 0.5", "at most 0"], ""),
             ("rank 1 has other tokens", [[1, "--dir", inputs, *options],
                                          [1, "--dir", fewer, *options]], ["rank 1", "rank 0"], ""),
             ("rank 1 has another map", [[1, "--dir", inputs, *options],
                                         [1, "--dir", inputs, *options, "--map", "relu"]],
              ["rank 1", "rank 0"], ""),
             ("rank 1 has no --out", [[1, "--dir", inputs, *options],
                                      [2, "--dir", inputs, "--causal"]], ["rank 1", "--out"], ""),
             ("rank 0 has no --out", [[1, "--dir", inputs, "--causal"],
                                      [2, "--dir", inputs, *options]], ["rank 1", "--out"], ""),
             ("rank 2 has another --out", [[2, "--dir", inputs, *options],
                                           [1, "--dir", inputs, "--causal", "--out",
                                            work / "another.npy"]], ["rank 2", "--out"], ""),
             ("rank 1 cannot write", [[1, "--generate", 300000, "--dim", 16, *options]] * 2,
              ["rank 1", "/out.npy: cannot be written"], "-f 12000")]
    each(lambda name, lines, says, limit: refuse(name, work, *lines, says=says, limit=limit), every)


def full_outputs_leave_the_file(work, inputs):
    """Where the report cannot be printed: to a device that is full, to nothing at all."""
    for printed in (">/dev/full", ">&-"):
        out = work / "out.npy"
        for older in (b"older", None):
            out.unlink(missing_ok=True) if older is None else out.write_bytes(older)
            line = [*checks.command, "--dir", inputs, "--causal", "--out", out]
            done = subprocess.run(["bash", "-c", f'exec "$0" "$@" {printed}', *map(str, line)],
                                  stderr=subprocess.PIPE, timeout=60)
            left = out.read_bytes() if out.exists() else None
            check(f"{printed}, {'an older file' if older else 'no file'}",
                  done.returncode == 2 and b"standard output" in done.stderr
                  and done.stderr.count(b"\n") == 1 and left == older
                  and os.listdir(work) == ["out.npy"] * bool(older), repr(done.stderr))


def ranks_map_their_part(work, _inputs):
    """Files of 256 MiB, which are all zeros that the disk does not hold, and ranks that have not as
    many addresses as two of them."""
    tokens = 1 << 18
    for name in ("q", "k", "v"):
        with open(work / f"{name}.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(file, {
                "descr": "<f4", "fortran_order": False,
                "shape": (tokens, 1 if name == "v" else 256)})
            file.truncate(file.tell() + tokens * (4 if name == "v" else 1024))
    command = [*MPIRUN, "-n", "4", "bash", "-c", 'ulimit -v 450000; exec "$0" "$@"',
               *checks.command, "--dir", str(work), "--map", "relu"]
    done = mpirun(command)
    if good("ranks map their part", done):
        check("ranks map their part", [row[1] for row in report_of(done)[1]] == [tokens / 4] * 4)


def help_is_printed_once(_work, _inputs):
    done = run(3, "--help")
    check("--help", good("--help", done) and done.stdout.startswith(b"usage: mpirun")
          and done.stdout.count(b"usage:") == 1)
    checks.check_common_options("--generate", 3)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    checks.main("mpi", __doc__, lambda work, _attend: {
        test: (make_inputs(work / "inputs"),) for test in (
            one_rank_is_attend, ranks_agree, maps_agree, rules_agree, cuts_agree,
            one_head_has_two_axes, threads_agree, two_ranks_have_the_bits_of_one, bits_repeat,
            generated_tokens_are_the_same, bytes_are_counted, table_is_the_formula, chains_agree,
            bad_options_are_refused, bad_files_are_refused, full_outputs_leave_the_file,
            ranks_map_their_part, help_is_printed_once)})
