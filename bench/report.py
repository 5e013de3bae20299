#!/usr/bin/env python3
"""Turns what linattn_bench measured into results, and results into tables and pictures.

    report.py collect OUT.csv RUN.json... [--rows MORE.csv...] [--note KEY=VALUE...]
    report.py render RESULTS.csv... [--readme README.md]
    report.py marks RESULTS.csv

collect takes the median of each benchmark over the runs. render writes a .md and, unless it is of
small states, rules or exact attention alone, a .png beside each csv, and puts a summary of all in
its directory that were made with gcc between the markers in the README: a first look at the latest
of the whole benchmark where vectors are widest, and the rest. It can be repeated: the csv is its
only source. marks prints what was aimed at, and whether it is met.
"""

import argparse
import csv
import json
import math
import pathlib
import re
import statistics
import sys

import limits

VALUES = ["ns", "spread", "gflops", "peak", "memory_bound", "error", "times", "speedup",
          "share", "base_ns"]
COLUMNS = ["kernel", "map", "by", "d", "dv", "n", "variant"] + VALUES + ["bytes"]
ISAS = ["avx512", "avx2", "neon", "scalar"]
EXACT_PEERS = ["onnxruntime", "torch", "numpy"]


# ---- Collecting ---------------------------------------------------------------------------------


def split_name(name):
    """verb/map/by/shape[/n][/variant], see linattn_bench --help."""
    parts = name.removesuffix("/manual_time").split("/")
    row = dict(zip(["kernel", "map", "by"], parts))
    rest = parts[3:]
    shape = rest.pop(0)
    if "x" in shape:
        row["d"], row["dv"] = shape.split("x")
    if rest and rest[0].isdigit():
        row["n"] = rest.pop(0)
    row["variant"] = "/".join(rest)
    return row


def left_alone(runs):
    """Those of a benchmark's runs in which no other program was on its core."""
    return [run for run in runs if run.get("alone", 1) > 0]


def median_row(name, runs):
    row = split_name(name)
    runs = left_alone(runs) or runs
    for value in VALUES:
        seen = [run[value] for run in runs if value in run]
        if not seen:
            continue
        row[value] = max(seen) if value == "error" else statistics.median(seen)
    return row


def collect(out, run_files, row_files, notes):
    runs, context = {}, {}
    for path in run_files:
        document = json.loads(pathlib.Path(path).read_text())
        context = document["context"]
        for run in document["benchmarks"]:
            if run.get("error_occurred"):
                print(f"{run['name']}: {run['error_message']}", file=sys.stderr)
            else:
                runs.setdefault(run["name"], []).append(run)
    rows = [median_row(name, seen) for name, seen in runs.items()]
    for path in row_files:
        with open(path, newline="") as file:
            rows += list(csv.DictReader(file))
    head = {key: context[key] for key in ["linattn", "compiler", "date", "openblas", *EXACT_PEERS]
            if key in context}
    disturbed = sum(not left_alone(seen) for seen in runs.values())
    if disturbed:
        head["disturbed"] = f"{disturbed} of {len(runs)} benchmarks"
    head |= dict(note.split("=", 1) for note in notes)
    write_csv(out, head, rows)


def rounded(value):
    return f"{value:.4g}" if isinstance(value, float) else value


def write_csv(path, head, rows):
    with open(path, "w", newline="") as file:
        for key, value in head.items():
            file.write(f"# {key}: {value}\n")
        table = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow({key: rounded(value) for key, value in row.items()})


# ---- Looking up ---------------------------------------------------------------------------------


class Results:
    """One csv: its head, and its rows by what they are."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        lines = self.path.read_text().splitlines()
        head = [line for line in lines if line.startswith("# ")]
        self.head = dict(line[2:].split(": ", 1) for line in head)
        self.rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        for row in self.rows:
            for key in ["d", "dv", "n"] + VALUES + ["bytes"]:
                row[key] = float(row[key]) if row.get(key) else None
        present = {row["by"] for row in self.rows if row["ns"]}
        self.isas = [isa for isa in ISAS if isa in present]
        self.vector_isas = [isa for isa in self.isas if isa != "scalar"]
        cpu = self.head.get("cpu", "")
        self.limited = [isa for isa in self.isas if limits.ports_of(cpu, isa)]
        self.peaks = {isa: self.peak(isa) for isa in self.limited}

    def find(self, **wanted):
        return [row for row in self.rows if all(row[key] == want for key, want in wanted.items())]

    def one(self, **wanted):
        found = self.find(**({"variant": ""} | wanted))
        return found[0] if found else None

    def peak(self, isa):
        """GFLOP/s of the FMA loop, as most rows saw it."""
        seen = [row["gflops"] / row["peak"] for row in self.find(by=isa)
                if row["gflops"] and row["peak"] and not row["memory_bound"]]
        return statistics.median(seen) if seen else None

    def limit(self, row):
        """What ports allow of the FMA peak, see limits.py; None where they are not counted."""
        if not row or row["by"] not in self.limited or not row["n"]:
            return None
        window = re.fullmatch(r"w(\d+)", row["variant"])
        if row["variant"] and (row["kernel"] != "band" or not window):
            return None
        return limits.limit_of(self.head["cpu"], row["kernel"], row["map"], row["by"], row["d"],
                               row["dv"], row["n"], window[1] if window else 0)

    def of_limit(self, row):
        """The least possible time, of ports or of memory, over the time taken; or None."""
        limit = self.limit(row)
        if not row or row["by"] not in self.limited or row["peak"] is None:
            return None
        if not row["memory_bound"]:
            return limit and row["peak"] / limit.share
        if not limit or not self.peaks[row["by"]]:
            return row["peak"]
        return max(row["peak"], row["gflops"] / self.peaks[row["by"]] / limit.share)

    def faster_at_limit(self, ours, theirs):
        """How many times as fast as a peer linattn would be where ports alone bind; or None."""
        limit = self.limit(ours)
        return limit and faster(ours, theirs) * limit.share / ours["peak"]

    def shapes(self, kernel):
        found = {(row["d"], row["dv"]) for row in self.find(kernel=kernel) if row["d"]}
        return sorted(found, key=lambda shape: (shape[0] * shape[1], shape))

    def peers(self, kernel, shape, n, variant="", **wanted):
        """The best row of each peer: some come in several chunk sizes."""
        def cost(row):
            return row["times"] or row["ns"]

        best = {}
        for row in self.find(kernel=kernel, d=shape[0], dv=shape[1], n=n, variant=variant,
                             **wanted):
            peer = re.sub(r"-\d+$", "", row["by"])
            if peer in ISAS or not row["ns"] or peer.endswith("-sleef"):
                continue
            if peer not in best or cost(row) < cost(best[peer]):
                best[peer] = row
        return best


def faster(ours, theirs):
    """How many times as fast. Most peers were timed by turns with linattn: the median of these
    ratios, as the clock may have moved between the two rows."""
    return theirs["times"] or theirs["ns"] / ours["ns"]


def peer_cell(ours, peer, mark):
    """ns of a peer and how many times as fast linattn is, bold where that misses the mark."""
    if not ours or not peer:
        return "–"
    times = faster(ours, peer)
    shown = f"{times:.2f}×"
    return f"{time(peer)} ({shown if times >= mark else f'**{shown}**'})"


def shape_name(shape):
    return f"({shape[0]:.0f},{shape[1]:.0f})"


# ---- Tables -------------------------------------------------------------------------------------


def time(row):
    if not row or row["ns"] is None:
        return "–"
    ns = row["ns"]
    return f"{ns:.3g}" if ns < 100 else f"{ns:.0f}"


def share(row):
    return f"{row['peak']:.2f}" if row and row["peak"] else "–"


def limit_share(results, row):
    part = results.of_limit(row)
    return f"{part:.2f}" if part else "–"


def header_of(results, isa):
    return [f"{isa}: ns", "of the peak"] + ["of the limit"] * (isa in results.limited)


def cells_of(results, isa, row):
    """What stands below such a header."""
    return [time(row), share(row)] + [limit_share(results, row)] * (isa in results.limited)


def error(row):
    return f"{row['error']:.0e}".replace("e-0", "e-") if row and row["error"] else "–"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def peers_table(results, kernel, n, shapes, variant="", map_name="elu1"):
    """ns per token and head, error, and beside each peer's ns how many times as fast linattn is."""
    best = results.isas[0]
    found = {shape: results.peers(kernel, shape, n, variant) for shape in shapes}
    names = sorted({peer for peers in found.values() for peer in peers})
    rows = []
    for shape in shapes:
        ours = results.one(kernel=kernel, map=map_name, by=best, d=shape[0], dv=shape[1], n=n,
                           variant=variant)
        if not ours:
            continue
        row = [shape_name(shape), f"**{time(ours)}** ± {error(ours)}"]
        row += cells_of(results, best, ours)[1:]
        for name in names:
            peer = found[shape].get(name)
            row.append(f"{time(peer)} ({faster(ours, peer):.2f}×)" if peer else "–")
        rows.append(row)
    header = ["shape", f"linattn, {best}"] + header_of(results, best)[1:]
    return table(header + names, rows)


def shares_table(results):
    """Time and shares of every kernel on every instruction set, elu1, n = 4096."""
    isas = results.vector_isas
    rows = []
    for kernel in dict.fromkeys(row["kernel"] for row in results.rows):
        for shape in results.shapes(kernel):
            cells = [
                results.one(kernel=kernel, map="elu1", by=isa, d=shape[0], dv=shape[1], n=4096.0)
                for isa in isas
            ]
            if any(cells):
                rows.append([kernel, shape_name(shape)])
                for isa, row in zip(isas, cells):
                    rows[-1] += cells_of(results, isa, row)
                rows[-1].append(error(next(row for row in cells if row)))
    header = [name for isa in isas for name in header_of(results, isa)]
    return table(["kernel", "shape"] + header + ["error"], rows)


def methods(results):
    """Rows of what is not an elementwise map on all tokens, n = 4096, for each instruction set."""
    kernels = ["causal", "update", "query", "band", "nystrom", "map_features", "softmax"]
    found = {}
    for row in results.rows:
        plain = row["map"] in ["elu1", "identity", "relu", "exp", "softmax"]
        window = re.fullmatch(r"w\d+", row["variant"])
        usual = row["n"] == 4096.0 and (window or (not plain and not row["variant"]))
        if row["kernel"] in kernels and usual and row["by"] in results.isas and row["d"]:
            key = (row["kernel"], row["map"], row["d"], row["dv"], row["variant"])
            found.setdefault(key, {})[row["by"]] = row
    return dict(sorted(found.items(), key=lambda item: kernels.index(item[0][0])))


def methods_table(results):
    isas = results.vector_isas
    rows = []
    for (kernel, name, d, dv, window), by in methods(results).items():
        cells = [by.get(isa) for isa in isas]
        if any(cells):
            rows.append([kernel, " ".join(filter(None, [name, window])), shape_name((d, dv))])
            for isa, row in zip(isas, cells):
                rows[-1] += cells_of(results, isa, row)
            rows[-1].append(error(next(row for row in cells if row)))
    header = [name for isa in isas for name in header_of(results, isa)]
    return table(["kernel", "method", "shape"] + header + ["error"], rows)


def lengths_table(results):
    """Linear and exact attention against n: where they cross."""
    best = results.isas[0]
    fixed = {"by": best, "d": 64.0, "dv": 64.0}
    rows = []
    for n in sorted({row["n"] for row in results.find(kernel="causal", map="elu1", **fixed)}):
        linear = results.one(kernel="causal", map="elu1", n=n, **fixed)
        exact = results.one(kernel="softmax", map="causal", n=n, **fixed)
        rows.append([f"{n:,.0f}", time(linear), share(linear), time(exact), share(exact)])
    return table(["n", "linear: ns", "share", "exact: ns", "share"], rows)


def maps_table(results):
    rows = []
    for row in results.rows:
        if row["d"] is None and row["n"] == 4096.0 and row["ns"]:
            sleef = results.one(kernel="map", map=row["map"], by=f"sleef-{row['by']}", n=4096.0)
            ratio = f"{faster(row, sleef):.2f}×" if sleef else ""
            rows.append([row["map"], row["by"], f"{row['ns']:.3f}", share(row), error(row), ratio])
    header = ["map", "by", "ns per element", "of the bandwidth", "error", "against SLEEF"]
    return table(header, rows)


def merges_table(results):
    rows = [[row["map"], row["by"], shape_name((row["d"], row["dv"])), time(row), share(row)]
            for row in results.find(kernel="merge") if row["by"] in results.isas]
    return table(["map", "by", "shape", "ns per head", "of the bandwidth"], rows)


def variants_table(results):
    rows = []
    for row in results.rows:
        for what, label in [("times", "long"), ("speedup", "")]:
            if row[what] is None or row["by"] not in results.isas:
                continue
            name = "/".join(filter(None, [row["kernel"], row["map"], row["by"]]))
            rows.append([name, shape_name((row["d"], row["dv"])), f"{row['n']:.0f}",
                         row["variant"] or label, f"{row[what]:.2f}×"])
    return table(["benchmark", "shape", "n", "", "against its base"], rows)


def sizes_table(results):
    rows = [[row["by"], f"{row['bytes'] / 1024:.1f}"] for row in results.find(kernel="size")]
    return table(["code", "KiB"], rows)


def decode_tables(results):
    lines = []
    for heads in ["h1", "h32", "h512"]:
        shapes = results.shapes("decode")
        rows = peers_table(results, "decode", 1.0, shapes, heads)
        if len(rows) > 3:
            lines += [f"**{heads[1:]} heads**", ""] + rows
    return lines


# ---- Marks -------------------------------------------------------------------------------------

SHAPES = [(32.0, 32.0), (64.0, 64.0), (128.0, 128.0), (256.0, 64.0)]
BETWEEN = [(16.0, 16.0), (40.0, 40.0), (72.0, 72.0), (100.0, 100.0)]
SHARES = [  # kernel, instruction set, shapes, least shares of the FMA peak with elu1
    ("update", "avx512", SHAPES, [0.66, 0.79, 0.84, 0.79]),
    ("query", "avx512", SHAPES, [0.60, 0.76, 0.85, 0.80]),
    ("causal", "avx512", SHAPES, [0.60, 0.73, 0.82, 0.69]),
    ("causal", "avx512", BETWEEN, [0.40, 0.50, 0.60, 0.63]),
    ("bidirectional", "avx512", SHAPES[1:], [0.80, 0.80, 0.75]),
    ("update", "avx2", SHAPES, [0.66, 0.79, 0.84, 0.76]),
    ("query", "avx2", SHAPES, [0.66, 0.79, 0.84, 0.76]),
    ("causal", "avx2", SHAPES, [0.66, 0.79, 0.84, 0.76]),
]
METHODS = [  # what, kernel, map, shape, least share
    ("favor, m = 256, causal", "causal", "favor-256", (64.0, 64.0), 0.60),
    ("favor hyperbolic, m = 2 x 128, causal", "causal", "favor-hyperbolic-128",
     (64.0, 64.0), 0.65),
    ("favor, m = 256, into an array", "map_features", "favor-256", (64.0, 64.0), 0.50),
    ("taylor 2, causal", "causal", "taylor-2", (16.0, 64.0), 0.68),
    ("taylor 2, update", "update", "taylor-2", (16.0, 64.0), 0.60),
    ("taylor 4, causal", "causal", "taylor-4", (8.0, 64.0), 0.65),
    ("nystrom, 64 landmarks, n = 4096", "nystrom", "l64", (32.0, 32.0), 0.55),
    ("nystrom, 64 landmarks, n = 4096", "nystrom", "l64", (64.0, 64.0), 0.66),
    ("exact attention, causal", "softmax", "causal", (64.0, 64.0), 0.55),
    ("exact attention, all keys", "softmax", "full", (64.0, 64.0), 0.55),
]
# Odd sizes, and what they lie between.
NEIGHBOURS = {33.0: (32.0, 64.0), 40.0: (32.0, 64.0), 65.0: (64.0, 96.0), 72.0: (64.0, 96.0),
              100.0: (96.0, 128.0)}


def at_least(what, values, marks, unit=""):
    """A mark, or nothing if something of it was not measured."""
    if not values or None in values:
        return []
    held = all(value >= mark for value, mark in zip(values, marks))
    return [[what, " ".join(f"{value:.2f}{unit}" for value in values),
             "≥ " + " ".join(f"{mark:.2f}" for mark in marks), "yes" if held else "**no**"]]


def shares_at_least(results, what, found, marks):
    """Marks of the share of the FMA peak of these rows; of those that are missed the share that
    ports allow, with its count where that is less."""
    rows = at_least(what, [row and row["peak"] for row in found], marks)
    for row, mark in zip(found, marks if rows else []):
        limit = results.limit(row)
        if not limit or row["peak"] >= mark:
            continue
        rows[0][-1] += f"; {shape_name((row['d'], row['dv']))} {row['by']} "
        if limit.share < mark:
            rows[0][-1] += f"cannot be: {limit.share:.2f}, {limit}"
        else:
            rows[0][-1] += f"is {row['peak'] / limit.share:.2f} of what ports allow"
    return rows


def at_most(what, rows, mark):
    """rows: a ratio, where it was seen, and maybe what it is where ports alone bind, or None; the
    worst counts. What ports allow is said of it, and where they put the mark out of reach."""
    if not rows:
        return []
    worst, worst_where = max(row[:2] for row in rows)
    held = "yes" if worst <= mark else "**no**"
    bound = [f"{where} {limit[0]:.2f}×" for ratio, where, *limit in rows
             if ratio > mark and limit and limit[0] and
             (limit[0] > mark or ratio == worst)]
    if bound:
        held += f"; where ports alone bind: {', '.join(bound)}"
    return [[what, f"{worst:.2f}× ({worst_where})", f"≤ {mark:.2f}", held]]


def times_as_fast(what, found, mark):
    """found: how many times as fast, against what, and maybe how many times it would be at the
    limit of the ports, or None; the least counts."""
    if not found:
        return []
    least, least_where = min(item[:2] for item in found)
    held = "yes" if least >= mark else "**no**"
    bound = [f"{where} {limit[0]:.2f}×" for ratio, where, *limit in found
             if ratio < mark and limit and limit[0] and limit[0] < mark]
    if bound:
        held += f"; cannot be, as where ports alone bind: {', '.join(bound)}"
    return [[what, f"{least:.2f}× ({least_where})", f"≥ {mark:.2f}", held]]


def share_marks(results):
    rows = []
    for kernel, isa, shapes, marks in SHARES:
        marks = list(marks)
        if kernel == "causal" and isa == "avx512" and "zen5" in results.head.get("cpu", ""):
            marks = [0.50 if shape == (32.0, 32.0) else m for shape, m in zip(shapes, marks)]
        found = [results.one(kernel=kernel, map="elu1", by=isa, d=d, dv=dv, n=4096.0)
                 for d, dv in shapes]
        names = " ".join(shape_name(shape) for shape in shapes)
        rows += shares_at_least(results, f"{kernel}, {isa}: share of the FMA peak at {names}",
                                found, marks)
    isas = [isa for isa in results.isas if isa in ["avx512", "avx2"]]
    for what, kernel, name, (d, dv), mark in METHODS:
        found = [results.one(kernel=kernel, map=name, by=isa, d=d, dv=dv, n=4096.0)
                 for isa in isas]
        what = f"{what}, {shape_name((d, dv))}: share on {', '.join(isas)}"
        rows += shares_at_least(results, what, found, [mark] * len(isas))
    for d, marks in [(128.0, [0.95] * 3), (64.0, [0.70, 0.75, 0.80])]:
        found = [results.one(kernel="decode", map="elu1", by=results.isas[0], d=d, variant=each)
                 for each in ["h1", "h32", "h512"]]
        rows += at_least(f"decode {shape_name((d, d))}, 1, 32, 512 heads: share of the bandwidth",
                         [row and row["peak"] for row in found], marks)
    return rows


def slowest(results, kernel, shapes, variant=""):
    """How many times as fast as a peer linattn is, as which one, and would be at its limit."""
    n = 1.0 if kernel == "decode" else 4096.0
    found = []
    for d, dv in shapes:
        ours = results.one(kernel=kernel, map="elu1", by=results.isas[0], d=d, dv=dv, n=n,
                           variant=variant)
        for name, peer in results.peers(kernel, (d, dv), n, variant).items():
            if ours:
                where = " ".join(filter(None, [kernel, variant, shape_name((d, dv)), name]))
                found.append((faster(ours, peer), where, results.faster_at_limit(ours, peer)))
    return found


def peer_marks(results):
    rows = []
    causal = slowest(results, "causal", results.shapes("causal"))
    both = slowest(results, "bidirectional", results.shapes("bidirectional"))
    decode = [found for heads in ["h1", "h32", "h512"]
              for found in slowest(results, "decode", results.shapes("decode"), heads)]
    for what, found, mark in [("causal", causal, 1.5), ("bidirectional", both, 1.2),
                              ("decode", decode, 1.0)]:
        rows += times_as_fast(f"{what}, elu1: times as fast as the best peer", found, mark)
    for isa, mark in [("avx512", 2.3), ("avx2", 1.9)]:
        ours, sleef = (results.one(kernel="map", map="exp", by=by, n=4096.0)
                       for by in [isa, f"sleef-{isa}"])
        if ours and sleef:
            least = exp_least(results, isa)
            found = [(faster(ours, sleef), isa, least and faster(ours, sleef) * ours["ns"] / least)]
            rows += times_as_fast(f"exp, {isa}: times as fast as SLEEF", found, mark)
    return rows


def exp_least(results, isa):
    """ns of an exp by its fma alone, which is less than any code can take."""
    if not results.peaks.get(isa):
        return None
    return 2 * limits.EXP_FMA / results.peaks[isa]


def odd_sizes(results, cases):
    """Time per flop of odd sizes over the mean of what they lie between, n = 4096. cases: by name,
    what a row is to be."""
    def per_flop(case, isa, d):
        row = results.one(**case, by=isa, d=d, dv=d, n=4096.0)
        limit = results.limit(row)
        return row and row["ns"] / (d * d), limit and limit.cycles / (d * d)

    def ratio(odd, others):
        return odd / statistics.mean(others) if odd and all(others) else None

    found = []
    for name, case in cases.items():
        for isa in results.vector_isas:
            for d, around in NEIGHBOURS.items():
                times, cycles = zip(*(per_flop(case, isa, x) for x in (d, *around)))
                if ratio(times[0], times[1:]):
                    found.append((ratio(times[0], times[1:]), f"{name} {isa} {d:.0f}",
                                  ratio(cycles[0], cycles[1:])))
    return found


def variants(results, kernel=None, variant=""):
    """Times over the base of what matches, and where."""
    return [(row["times"], f"{row['kernel']} {row['map']} {row['by']} {row['variant']}")
            for row in results.rows
            if row["times"] and re.fullmatch(variant, row["variant"]) and
            (kernel is None or row["kernel"] == kernel)]


def windows(results, least):
    """Times over those without a window, where, and what ports make of it."""
    found = []
    for row in results.rows:
        window = re.fullmatch(r"w(\d+)", row["variant"])
        if row["kernel"] != "band" or not row["times"] or not window or int(window[1]) < least:
            continue
        limit = results.limit(row)
        whole = limit and results.limit(row | {"kernel": "causal", "variant": ""})
        where = f"{shape_name((row['d'], row['dv']))} {row['by']} {row['variant']}"
        found.append((row["times"], where, limit and limit.cycles / whole.cycles))
    return found


def long_sequences(results):
    return [(row["times"], f"{row['kernel']} {shape_name((row['d'], row['dv']))} {row['by']}")
            for row in results.find(n=1048576.0, variant="")
            if row["times"] and row["by"] in results.isas]


def crossing(results):
    """The length from which on linear causal attention is faster than exact, between two that were
    measured: straight lines between logarithms."""
    fixed = {"by": results.isas[0], "d": 64.0, "dv": 64.0}
    points = []
    for row in results.find(kernel="causal", map="elu1", variant="", **fixed):
        exact = results.one(kernel="softmax", map="causal", n=row["n"], **fixed)
        if exact and row["ns"]:
            points.append((math.log(row["n"]), math.log(exact["ns"] / row["ns"])))
    points.sort()
    for (x, y), (next_x, next_y) in reversed(list(zip(points, points[1:]))):
        if y <= 0.0 < next_y:
            return math.exp(x + (next_x - x) * y / (y - next_y))
    return None


def figures(results):
    """What has no mark: it is to be known."""
    best = results.isas[0]
    rows = []
    length = crossing(results)
    if length:
        rows.append(["linear causal attention is faster than exact, (64,64), from tokens",
                     f"{length:.0f}", "", ""])
    sizes = {row["by"]: row["bytes"] / 1024 for row in results.find(kernel="size")}
    for name in results.isas + ["shared", "scalar only -O2", "scalar only -Os",
                                "scalar only -Os; state_init and causal alone"]:
        if name in sizes:
            rows.append([f"code, {name}: KiB", f"{sizes[name]:.1f}", "", ""])
    return rows


def halves_limit(results, kernel, name):
    """How much faster two threads can be with one head of causal, which they share by columns: both
    map all keys and queries."""
    isa = results.isas[0]
    if kernel != "causal" or isa not in results.limited:
        return None
    whole, half = (limits.limit_of(results.head["cpu"], kernel, name, isa, 64.0, dv, 4096.0).cycles
                   for dv in [64.0, 32.0])
    return whole / half


def thread_marks(results):
    rows = []
    for kernel, name in [("causal", "elu1"), ("bidirectional", "elu1"), ("softmax", "causal")]:
        for heads, what in [("heads8", "eight heads"), ("heads1", "one head")]:
            row = results.one(kernel=kernel, map=name, by=results.isas[0], d=64.0, dv=64.0,
                              variant=f"{heads}-t2")
            held = at_least(f"{kernel} (64,64), {what}: speed-up with 2 threads",
                            [row and row["speedup"]], [1.85], "×")
            limit = halves_limit(results, kernel, name) if heads == "heads1" else None
            if held and limit and row["speedup"] < 1.85 and limit < 1.85:
                held[0][-1] += f"; cannot be: {limit:.2f}×, as both map all keys and queries"
            rows += held
    return rows


def marks_table(results):
    rows = share_marks(results) + peer_marks(results) + thread_marks(results)
    rows += at_most("windows from 64 up against no window, per token", windows(results, 64), 1.9)
    elu1 = {kernel: {"kernel": kernel, "map": "elu1"} for kernel in ["update", "query", "causal"]}
    rows += at_most("odd sizes against their neighbours, per flop", odd_sizes(results, elu1), 1.3)
    rows += at_most("compensated sums against plain ones, causal",
                    variants(results, "causal", "compensated"), 2.2)
    rows += at_most("eight query heads that share keys and values against eight with their own",
                    variants(results, "causal", "grouped8"), 0.8)
    rows += at_most("the same, one token", variants(results, "decode", "grouped8"), 0.8)
    rows += at_most("eight heads whose rows take turns against dense ones",
                    variants(results, None, "(w256/)?heads8"), 1.15)
    rows += at_most("unaligned operands", variants(results, None, "misaligned"), 1.1)
    rows += at_most("inputs that provoke denormals", variants(results, None, "denormal"), 3.0)
    rows += at_most("n = 1,048,576 against n = 1,024, per token", long_sequences(results), 1.1)
    return table(["what", "measured", "mark", "met"], rows + figures(results))


def describe(results):
    return ", ".join(f"{key} {value}" for key, value in results.head.items())


def as_document(results, text, sections):
    """text: what stands in front of the sections, which are pairs of a title and lines, if any."""
    lines = [f"# {results.path.stem}", "", describe(results) + ".", "", *text, ""]
    for title, rows in sections:
        if rows:
            lines += [f"## {title}", ""] + rows
    return "\n".join(lines).rstrip() + "\n"


# ---- One token of small states ------------------------------------------------------------------

SMALL_SHAPES = [(4.0, 4.0), (8.0, 8.0), (16.0, 16.0), (32.0, 32.0), (64.0, 64.0)]
SMALL_MARKS = {  # shares of the plain loop's time
    "h1": [1.6, 1.2, 0.8, 0.6, 0.6],
    "h8": [0.8, 0.6, 0.45, 0.45, 0.55],
}
SMALL_AIMS = {"h1": [None, None, 0.6, 0.5, 0.5], "h8": [None, None, 0.35, 0.4, 0.5]}
SMALL_HEADS = {"h1": "one head", "h8": "eight heads"}
SMALL_VERBS = [("step", name) for name in ["elu1", "relu", "identity", "exp"]]
SMALL_VERBS += [("step-update", "elu1"), ("step-query", "elu1")]


def small_rows(results, heads, shape):
    """Every verb and map on every vector instruction set: by kernel, map and instruction set."""
    found = {}
    for kernel, name in SMALL_VERBS:
        for isa in results.vector_isas:
            row = results.one(kernel=kernel, map=name, by=isa, d=shape[0], dv=shape[1],
                              variant=heads)
            if row and row["share"]:
                found[kernel, name, isa] = row
    return found


def ratios(results, kernel, one, other):
    """Times of the one over those of the other, each as a share of the plain loop's, as the clock
    may have moved between the two rows; and where."""
    found = []
    for row in results.find(by=one):
        if row["kernel"].startswith(kernel) and row["share"]:
            same = {key: row[key] for key in ["kernel", "map", "d", "dv", "n", "variant"]}
            base = results.one(by=other, **same)
            if base and base["share"]:
                where = f"{row['kernel']} {row['map']} {shape_name((row['d'], row['dv']))}"
                found.append((row["share"] / base["share"], f"{where} {row['variant']}"))
    return found


def small_marks(results):
    rows = []
    for heads, marks in SMALL_MARKS.items():
        for shape, mark in zip(SMALL_SHAPES, marks):
            found = [(row["share"], " ".join(key))
                     for key, row in small_rows(results, heads, shape).items()]
            rows += at_most(f"one token, {shape_name(shape)}, {SMALL_HEADS[heads]}: share of the "
                            "plain loop's time", found, mark)
    for isa in results.vector_isas:
        for kernel, what in [("agents", "linattn_causal for each"),
                             ("agents-many", "linattn_causal_many")]:
            found = [(row["share"], isa) for row in results.find(kernel=kernel, by=isa)
                     if row["share"]]
            rows += at_most(f"300 agents of two heads of 16, {what}: share of the plain loop's "
                            "time", found, 0.5)
    rows += few_marks(results) + grouped_marks(results) + made_marks(results)
    rows += short_marks(results)
    rows += at_most("AVX-512 against AVX2", ratios(results, "step", "avx512", "avx2"), 1.05)
    for isa in results.vector_isas:
        rows += at_most(f"-O2 against -O3, {isa}", ratios(results, "step", isa, f"{isa}-O3"), 1.05)
    return table(["what", "worst", "mark", "met"], rows)


def small_cell(row, mark):
    """ns of a call, and its share of the plain loop's, bold where that misses the mark."""
    if not row:
        return "–"
    share = f"{row['share']:.2f}"
    return f"{time(row)} ({share if row['share'] <= mark else f'**{share}**'})"


def small_tables(results, verbs=None):
    """A table for one head and one for eight."""
    verbs = verbs or SMALL_VERBS
    lines = []
    for heads, marks in SMALL_MARKS.items():
        header = [SMALL_HEADS[heads], "mark (aim)", "plain, elu1"]
        header += [f"{name if kernel == 'step' else kernel.removeprefix('step-')}, {isa}"
                   for kernel, name in verbs for isa in results.vector_isas]
        rows = []
        for shape, mark, aim in zip(SMALL_SHAPES, marks, SMALL_AIMS[heads]):
            found = small_rows(results, heads, shape)
            plain = [row["base_ns"] for key, row in found.items() if key[:2] == ("step", "elu1")]
            if plain:
                rows.append([shape_name(shape), f"{mark:.2f}" + (f" ({aim:.2f})" if aim else ""),
                             time({"ns": statistics.median(plain)})])
                rows[-1] += [small_cell(found.get((*verb, isa)), mark)
                             for verb in verbs for isa in results.vector_isas]
        if rows:
            lines += table(header, rows)
    return lines


def agents_table(results):
    rows = [[row["kernel"], row["by"], time(row), time({"ns": row["base_ns"]}),
             f"{row['share']:.2f}"]
            for row in results.rows if row["kernel"].startswith("agents") and row["share"]]
    return table(["300 agents, two heads of 16", "by", "ns per agent", "plain", "share"], rows)


FEW_TOKENS = [2.0, 3.0, 4.0, 8.0]
FEW_VERBS = [("few", "step", "causal"), ("few-query", "step-query", "query")]
GROUPS = {"g2": "two", "g3": "three", "g4": "four", "g8": "eight"}


def few_rows(results):
    """By verb, shape and instruction set: a call of one token, and those of a few."""
    for kernel, step, verb in FEW_VERBS:
        for shape in SMALL_SHAPES:
            for isa in results.vector_isas:
                same = {"map": "elu1", "by": isa, "d": shape[0], "dv": shape[1], "variant": "h1"}
                found = [results.one(kernel=kernel, n=n, **same) for n in FEW_TOKENS]
                one = results.one(kernel=step, **same)
                if one and all(row and row["share"] for row in found):
                    yield f"{verb}, {shape_name(shape)}", isa, one, found


def few_marks(results):
    """A few tokens in a call against a call for each, as shares of the plain loop's time."""
    found = [(row["share"] / one["share"], f"{what} {isa}, {n:.0f} tokens")
             for what, isa, one, rows in few_rows(results) for n, row in zip(FEW_TOKENS, rows)]
    return at_most("a few tokens in a call against a call for each: time per token", found, 1.05)


def few_table(results):
    rows = [[what, isa] + [f"{time(row)} ({row['share']:.2f})" for row in [one] + found]
            for what, isa, one, found in few_rows(results)]
    header = ["one head, elu1: ns per token", "by", "one token"]
    header += [f"{n:.0f} tokens" for n in FEW_TOKENS]
    return table(header, rows) if rows else []


def grouped_marks(results):
    found = [(row["share"], f"{shape_name((row['d'], row['dv']))} {row['variant']} {row['by']}")
             for row in results.find(kernel="grouped") if row["share"]]
    return at_most("one token, query heads that share a key: share of the plain loop's time", found,
                   1.0)


def grouped_table(results):
    rows = []
    for row in results.find(kernel="grouped"):
        if row["by"] != results.vector_isas[0]:
            continue
        shape = (row["d"], row["dv"])
        cells = [results.one(kernel="grouped", by=isa, d=shape[0], dv=shape[1],
                             variant=row["variant"]) for isa in results.vector_isas]
        if all(cell and cell["share"] for cell in cells):
            rows.append([shape_name(shape), GROUPS[row["variant"]], time({"ns": row["base_ns"]})] +
                        [f"{time(cell)} ({cell['share']:.2f})" for cell in cells])
    header = ["one token, elu1: ns of a call", "query heads", "plain"] + results.vector_isas
    return table(header, rows) if rows else []


def made_rows(results):
    return [row for row in results.find(kernel="made") if row["times"]]


def made_marks(results):
    found = [(row["times"], f"{row['map']} {shape_name((row['d'], row['dv']))} {row['by']}")
             for row in made_rows(results)]
    return at_most("one token whose features are made against one of 64 in a call", found, 2.5)


def made_table(results):
    rows = [[row["map"], shape_name((row["d"], row["dv"])), row["by"], time(row),
             f"{row['times']:.2f}"] for row in made_rows(results)]
    header = ["one token of one head", "shape", "by", "ns", "of 64 tokens in one call, each"]
    return table(header, rows) if rows else []


SHORT_MARKS = {64.0: 1.0, 256.0: 1.0}  # by the number of keys


def short_marks(results):
    rows = []
    for n, mark in SHORT_MARKS.items():
        found = [(row["share"], f"{shape_name((row['d'], row['dv']))} {row['variant']} "
                  f"{row['by']}") for row in results.find(kernel="short", n=n) if row["share"]]
        rows += at_most(f"exact attention, one query against {n:.0f} keys: share of the plain "
                        "loop's time", found, mark)
    return rows


def short_table(results):
    rows = []
    for row in results.find(kernel="short", by=results.vector_isas[0]):
        same = {key: row[key] for key in ["d", "dv", "n", "variant"]}
        cells = [results.one(kernel="short", by=isa, **same) for isa in results.vector_isas]
        if all(cell and cell["share"] for cell in cells):
            mark = SHORT_MARKS.get(row["n"], math.inf)
            rows.append([shape_name((row["d"], row["dv"])), f"{row['n']:.0f}",
                         SMALL_HEADS[row["variant"]], time({"ns": row["base_ns"]})] +
                        [small_cell(cell, mark) for cell in cells])
    header = ["one query, exact: ns of a call", "keys", "heads", "plain"] + results.vector_isas
    return table(header, rows) if rows else []


def checks_table(results):
    rows = [[row["kernel"].removeprefix("checks-"), row["by"], time(row)]
            for row in results.rows if row["kernel"].startswith("checks-") and row["ns"]]
    return table(["verb", "by", "ns of a call with n = 0"], rows)


def scalar_table(results):
    rows = []
    for shape in SMALL_SHAPES:
        cells = [results.one(kernel="step", map="elu1", by="scalar", d=shape[0], dv=shape[1],
                             variant=heads) for heads in SMALL_HEADS]
        if all(cells):
            shares = [f"{time(row)} ({row['share']:.1f})" for row in cells]
            rows.append([shape_name(shape)] + shares)
    return table(["scalar code, elu1"] + list(SMALL_HEADS.values()), rows)


def is_small(results):
    return results.head.get("part") == "small"


def small_document(results):
    text = ["Made by `bench/report.py` from the csv beside it. One token by the public verb, "
            "checks and all: ns of a call, one core, and in brackets its share of the time of a "
            "plain loop ([`bench/peers/plain_step.c`](../peers/plain_step.c)), which runs by "
            "turns with it; bold where that misses the mark. The library is compiled with -O2, "
            "the plain loop with -O3 -march=native -ffast-math, by the same compiler."]
    sections = [
        ("Marks", small_marks(results)),
        ("Decode step, update and query of one token", small_tables(results)),
        ("A few tokens in a call", few_table(results)),
        ("Query heads that share a key", grouped_table(results)),
        ("Features that are made", made_table(results)),
        ("Many states", agents_table(results)),
        ("Exact attention over a short cache", short_table(results)),
        ("What the checks cost", checks_table(results)),
        ("Scalar code", scalar_table(results)),
    ]
    return as_document(results, text, sections)


# ---- Recurrences --------------------------------------------------------------------------------

RULES = {"gated": "gated per head", "gated-channel": "gated per channel", "rwkv6": "RWKV-6",
         "delta": "delta", "gated-delta": "gated delta", "kda": "KDA",
         "general": "general (RWKV-7)", "mlstm": "mLSTM"}
RULE_SHAPES = [(64.0, 64.0), (128.0, 128.0), (256.0, 256.0), (128.0, 64.0)]
RULE_MARKS = {  # least shares of the FMA peak at these shapes, and what is aimed at
    "avx512": {
        "gated": ([0.78, 0.82, 0.85, 0.85], [0.95, 0.95, 0.94, 0.95]),
        "gated-channel": ([0.70, 0.74, 0.74, 0.74], [0.92, 0.87, 0.86, 0.90]),
        "rwkv6": ([0.66, 0.72, 0.76, 0.64], [0.86, 0.86, 0.88, 0.82]),
        "gated-delta": ([0.85, 0.84, 0.84, 0.86], [0.95, 0.94, 0.94, 0.95]),
        "kda": ([0.82, 0.80, 0.77, 0.83], [0.94, 0.92, 0.92, 0.94]),
        "general": ([0.85, 0.80, 0.78, 0.83], [0.96, 0.93, 0.91, 0.95]),
        "delta": ([0.62, 0.66, 0.66, 0.62], [0.70, 0.79, 0.82, 0.72]),
    },
    "avx2": {
        "gated": ([0.83] * 4, [0.94] * 4),
        "rwkv6": ([0.73] * 4, [0.87] * 4),
        "gated-delta": ([0.85] * 4, [0.95] * 4),
        "kda": ([0.85] * 4, [0.95] * 4),
        "general": ([0.85] * 4, [0.95] * 4),
        "delta": ([0.83] * 4, [0.94] * 4),
    },
}
RULE_DECODE = {  # of the bandwidth, (128,128), by heads: least share, and what is aimed at
    "h32": {"gated": (0.80, 0.92), "delta": (0.58, 0.70), "gated-delta": (0.58, 0.70)},
    "h512": {"gated": (0.70, 0.85), "delta": (0.65, 0.83), "gated-delta": (0.65, 0.83)},
}
RULE_ODD = [33.0, 65.0, 100.0]
RULE_PEERS = 1.5  # times as fast as every peer, at every shape


def limits_text(results):
    """What the limit is, or that none is known."""
    if not results.limited:
        return ", unknown for this processor"
    return ", with maps, denominators, loads and stores ([`bench/limits.py`](../limits.py))"


def is_rules(results):
    return results.head.get("part") == "rules"


def rule_row(results, rule, isa, shape, variant=""):
    return results.one(kernel="recurrent", map=rule, by=isa, d=shape[0], dv=shape[1], n=4096.0,
                       variant=variant)


def rule_mark(rule, isa, shape):
    """The least share of this cell, or None."""
    must = RULE_MARKS.get(isa, {}).get(rule)
    return must[0][RULE_SHAPES.index(shape)] if must and shape in RULE_SHAPES else None


def with_aims(rows, aims):
    """A column more: what is aimed at."""
    shown = " ".join(f"{aim:.2f}" for aim in aims)
    return [row[:3] + [shown] + row[3:] for row in rows]


def rule_share_marks(results):
    names = " ".join(shape_name(shape) for shape in RULE_SHAPES)
    rows = []
    for isa in results.vector_isas:
        for rule, (must, aims) in RULE_MARKS.get(isa, {}).items():
            found = [rule_row(results, rule, isa, shape) for shape in RULE_SHAPES]
            what = f"{RULES[rule]}, {isa}: share of the FMA peak at {names}"
            rows += with_aims(shares_at_least(results, what, found, must), aims)
    return rows


def rule_decode_marks(results):
    rows = []
    for heads, marks in RULE_DECODE.items():
        for rule, (must, aim) in marks.items():
            found = results.one(kernel="recurrent-decode", map=rule, by=results.isas[0],
                                variant=heads)
            what = f"{RULES[rule]}, {results.isas[0]}, one token of {heads[1:]} heads of (128,128)"
            rows += with_aims(at_least(f"{what}: share of the bandwidth",
                                       [found and found["peak"]], [must]), [aim])
    return rows


def rule_faster(results, kernel, n, variants):
    """For each peer, how many times as fast linattn is, and where."""
    found = {}
    for rule in RULES:
        for shape in results.shapes(kernel):
            for variant in variants:
                ours = results.one(kernel=kernel, map=rule, by=results.isas[0], d=shape[0],
                                   dv=shape[1], n=n, variant=variant)
                peers = results.peers(kernel, shape, n, variant, map=rule)
                where = " ".join(filter(None, [rule, shape_name(shape), variant]))
                for name, peer in peers.items():
                    if ours:
                        found.setdefault(name, []).append(
                            (faster(ours, peer), where, results.faster_at_limit(ours, peer)))
    return dict(sorted(found.items()))


def rule_peer_marks(results):
    rows = []
    for what, found in [
            ("n = 4096", rule_faster(results, "recurrent", 4096.0, [""])),
            ("one token", rule_faster(results, "recurrent-decode", 1.0, RULE_DECODE))]:
        for peer, each in found.items():
            rows += times_as_fast(f"{what}: times as fast as {peer}", each, RULE_PEERS)
    return with_aims(rows, [])


def rule_turns(results):
    """Shares of the peak of one head over those of eight whose rows take turns, and where."""
    found = []
    for row in results.find(kernel="recurrent", variant="heads8"):
        one = rule_row(results, row["map"], row["by"], (row["d"], row["dv"]))
        if one and one["peak"] and row["peak"]:
            found.append((one["peak"] / row["peak"], f"{row['map']} {row['by']}"))
    return found


def rule_marks(results):
    rows = rule_share_marks(results) + rule_decode_marks(results) + rule_peer_marks(results)
    steps = [(row["times"], f"{row['map']} {row['by']}")
             for row in results.find(kernel="recurrent-step")
             if row["times"] and row["by"] in results.vector_isas]
    rows += with_aims(at_most("one token, (16,16), one head: against causal's, elu1", steps, 1.5),
                      [])
    shares = [(row["share"], f"{row['map']} {row['by']} {row['variant'][6:]}")
              for row in results.find(kernel="recurrent-step")
              if row["share"] and row["by"] in results.vector_isas]
    rows += with_aims(at_most("one token, (16,16): against a plain loop", shares, 1.0), [])
    rows += with_aims(at_most("odd sizes against their neighbours, per flop",
                              odd_sizes(results, {rule: {"kernel": "recurrent", "map": rule}
                                                  for rule in RULES}), 1.4), [])
    rows += with_aims(at_most("eight heads of (64,64) whose rows take turns against one",
                              rule_turns(results), 1.15), [])
    rows += with_aims(at_most("compensated sums against plain ones",
                              variants(results, "recurrent", "compensated"), 2.2), [])
    return table(["what", "measured", "mark", "aim", "met"], rows)


def rule_cell(results, row, mark):
    """ns per token and its share of the peak, bold where that misses the mark, and of the limit."""
    if not row or row["ns"] is None:
        return "–"
    held = mark is None or row["peak"] >= mark
    shown = share(row) if held else f"**{share(row)}**"
    of_limit = f", {limit_share(results, row)}" if results.limit(row) else ""
    return f"{time(row)} ({shown}{of_limit})"


def rules_table(results):
    rows = []
    for rule, name in RULES.items():
        for isa in results.vector_isas:
            cells = [rule_row(results, rule, isa, shape) for shape in RULE_SHAPES]
            if any(cells):
                rows.append([name, isa])
                rows[-1] += [rule_cell(results, row, rule_mark(rule, isa, shape))
                             for row, shape in zip(cells, RULE_SHAPES)]
                calls = rule_row(results, rule, isa, (128.0, 128.0), "calls64")
                rows[-1] += [rule_cell(results, calls, None),
                             error(max(filter(None, cells), key=lambda row: row["error"] or 0.0))]
    header = [shape_name(shape) for shape in RULE_SHAPES]
    return table(["rule", "by"] + header + ["(128,128), calls of 64", "error"], rows)


def rule_peers_table(results):
    """ns of linattn, and of each peer with how many times as fast linattn is."""
    best = results.isas[0]
    names = sorted({row["by"] for row in results.rows if row["kernel"] == "recurrent"} - set(ISAS))
    rows = []
    for rule, title in RULES.items():
        for shape in RULE_SHAPES:
            ours = rule_row(results, rule, best, shape)
            peers = results.peers("recurrent", shape, 4096.0, map=rule)
            if ours and peers:
                rows.append([title, shape_name(shape), f"**{time(ours)}** ± {error(ours)}"])
                rows[-1] += [peer_cell(ours, peers.get(name), RULE_PEERS) for name in names]
    return table(["rule", "shape", f"linattn, {best}"] + names, rows) if rows else []


def rule_odd_table(results):
    rows = []
    for rule, name in RULES.items():
        for isa in results.vector_isas:
            cells = [rule_row(results, rule, isa, (d, d)) for d in RULE_ODD]
            if any(cells):
                rows.append([name, isa] + [rule_cell(results, row, None) for row in cells])
    header = [shape_name((d, d)) for d in RULE_ODD]
    return table(["rule", "by"] + header, rows) if rows else []


def rule_decode_table(results):
    """One token of many heads, ns per head: of linattn with its share of the bandwidth, of peers
    with how many times as fast linattn is."""
    kernel = "recurrent-decode"
    ours = [row for row in results.find(kernel=kernel) if row["by"] in results.vector_isas]
    peers = sorted({row["by"] for row in results.find(kernel=kernel)} - set(ISAS))
    rows = []
    for rule, heads in dict.fromkeys((row["map"], row["variant"]) for row in ours):
        cells = {row["by"]: row for row in results.find(kernel=kernel, map=rule, variant=heads)}
        best = cells.get(results.isas[0])
        mark = RULE_DECODE.get(heads, {}).get(rule, (None,))[0]
        rows.append([RULES[rule], heads[1:]])
        rows[-1] += [rule_cell(results, cells.get(isa), mark if isa == results.isas[0] else None)
                     for isa in results.vector_isas]
        rows[-1] += [peer_cell(best, cells.get(peer), RULE_PEERS) for peer in peers]
    return table(["rule", "heads of (128,128)"] + results.vector_isas + peers, rows)


def rule_steps_table(results):
    rows = []
    for row in results.find(kernel="recurrent-step"):
        if not row["times"]:
            continue
        plain = [results.find(kernel="recurrent-step", map=row["map"], by=row["by"],
                              variant=f"plain-{heads}") for heads in ["h1", "h8"]]
        rows.append([RULES[row["map"]], row["by"], time(row), f"{row['times']:.2f}×"])
        rows[-1] += [f"{found[0]['share']:.2f}×" if found and found[0]["share"] else "–"
                     for found in plain]
    return table(["rule, one token, (16,16)", "by", "ns", "against causal, elu1",
                  "against a plain loop", "eight heads of both"], rows)


STATE16_RULES = {"sum": "sum, elu1", "gated": "gated", "gated-delta": "gated delta"}


def state16_table(results):
    """How many times as fast as with floats."""
    rows = []
    for d in [128.0, 64.0]:
        for n, heads, what in [(1.0, 512, "one token of 512 heads"), (1.0, 32, "32 heads"),
                               (1.0, 1, "one head"), (1024.0, 1, "1,024 tokens of one head")]:
            cells = [results.one(kernel="state16", map=rule, by=isa, d=d, dv=d, n=n,
                                 variant=f"h{heads}-{kind}")
                     for isa in results.vector_isas for kind in ["f16", "bf16"]
                     for rule in STATE16_RULES]
            if any(cells):
                rows.append([f"{shape_name((d, d))}, {what}"])
                rows[-1] += [f"{1 / row['times']:.2f}" if row and row["times"] else "–"
                             for row in cells]
    header = [f"{rule}: {kind}, {isa}" for isa in results.vector_isas for kind in ["f16", "bf16"]
              for rule in STATE16_RULES.values()]
    return table(["f32 = 1"] + header, rows) if rows else []


def rules_document(results):
    text = ["Made by `bench/report.py` from the csv beside it. `linattn_recurrent`, one core, "
            "map identity: ns per token and head, and in brackets the share of an FMA loop or "
            "of the bandwidth, timed beside every sample, bold where that misses the mark, and of "
            f"the limit{limits_text(results)}. "
            "By its formula an element of the state takes 3 operations of the FMA units for a "
            "token (gated, RWKV-6, delta, mLSTM), 4 (gated delta, KDA) or 5 (general): the share "
            "counts those. A decay per head is multiplied up and takes none, so that shares of "
            "gated, gated delta and mLSTM may exceed 1; the limit has what is left. Errors are the "
            "largest against double precision, relative to the largest element of a row. How many "
            "times as fast as peers: over samples that were taken by turns (of onnxruntime and of "
            "one token, the quotient of the times). rows and panels are C "
            "([`bench/peers/plain_rules.c`](../peers/plain_rules.c)) with -O3 -march=native "
            "-ffast-math: a loop over the rows of S as most would write it, and one over panels "
            "of its columns, laid out for the compiler; so is the plain loop for one token "
            "([`bench/peers/plain_rule_step.c`](../peers/plain_rule_step.c))."]
    sections = [
        ("Marks", rule_marks(results)),
        ("Rules, n = 4096", rules_table(results)),
        ("Peers, n = 4096", rule_peers_table(results)),
        ("Odd sizes, n = 4096", rule_odd_table(results)),
        ("One token of many heads", rule_decode_table(results)),
        ("One token of a small state", rule_steps_table(results)),
        ("States of 16 bits: how many times as fast as of floats", state16_table(results)),
    ]
    return as_document(results, text, sections)


def rules_summary(results, folder):
    """For the README: every rule on the best instruction set."""
    stem = results.path.stem
    lines = [f"**{results.head.get('cpu', stem)}**, {results.head['compiler']}, one core, "
             "`linattn_recurrent`, n = 4096: ns per token and head, the share of the FMA peak by "
             "the formula's operations, of which a decay that is multiplied up is saved, and of "
             f"the limit ([all figures]({folder}/{stem}.md))", ""]
    best = results.isas[0]
    rows = []
    for rule, name in RULES.items():
        cells = [rule_row(results, rule, best, shape) for shape in RULE_SHAPES]
        if any(cells):
            rows.append([name] + [rule_cell(results, row, None) for row in cells])
            rows[-1].append(error(max(filter(None, cells), key=lambda row: row["error"] or 0.0)))
    header = [shape_name(shape) for shape in RULE_SHAPES]
    return lines + table([f"rule, {best}"] + header + ["error"], rows)


# ---- Exact attention ----------------------------------------------------------------------------

EXACT_KINDS = {"causal": "Causal", "full": "All keys", "decode": "One query against n keys",
               "grouped": "One query, four heads to a head of keys",
               "interleaved": "One query, operands [tokens][heads]",
               "window": "Causal, a window of 256 keys and 4 sinks",
               "alibi": "Causal, ALiBi", "capped": "Causal, scores capped"}
EXACT_ONE_QUERY = ["decode", "grouped", "interleaved"]
EXACT_PEER = 1.0  # times as fast as every peer


def is_exact(results):
    return results.head.get("part") == "exact"


def exact_cases(results, kind, variant):
    """linattn's row of each shape and length, and those of its peers by name."""
    ours = results.find(kernel="exact", map=kind, by=results.isas[0], variant=variant)
    return [(row, results.peers("exact", (row["d"], row["dv"]), row["n"], variant, map=kind))
            for row in sorted(ours, key=lambda row: (row["d"], row["n"]))]


def exact_variants(results):
    return sorted({row["variant"] for row in results.rows}, key=lambda name: int(name[1:]))


def threads_name(variant):
    return "one thread" if variant == "t1" else f"{variant[1:]} threads"


def exact_found(results, kind, variant):
    """For each peer, how many times as fast linattn is, and where."""
    found = {}
    for ours, peers in exact_cases(results, kind, variant):
        for name, peer in peers.items():
            where = f"{shape_name((ours['d'], ours['dv']))} n = {ours['n']:.0f}"
            found.setdefault(name, []).append((faster(ours, peer), where))
    return found


def exact_marks(results):
    rows = []
    for kind, title in EXACT_KINDS.items():
        for variant in exact_variants(results):
            for peer, found in exact_found(results, kind, variant).items():
                rows += times_as_fast(f"{title}, {threads_name(variant)}: times as fast as {peer}",
                                      found, EXACT_PEER)
    return table(["what", "least", "mark", "met"], rows)


def exact_table(results, kind, variant):
    """ns per query and head of all, with errors."""
    rows = []
    for ours, peers in exact_cases(results, kind, variant):
        rows.append([shape_name((ours["d"], ours["dv"])), f"{ours['n']:.0f}",
                     f"**{time(ours)}** ± {error(ours)}", f"{ours['gflops']:.3g}"])
        rows[-1] += [f"{peer_cell(ours, peers[name], EXACT_PEER)} ± {error(peers[name])}"
                     if name in peers else "–" for name in EXACT_PEERS]
    return table(["shape", "n", f"linattn, {results.isas[0]}", "GFLOP/s"] + EXACT_PEERS, rows)


def exact_document(results):
    text = ["Made by `bench/report.py` from the csv beside it. `linattn_softmax` beside "
            "onnxruntime's MultiHeadAttention, PyTorch's scaled_dot_product_attention, and NumPy: "
            "products of blocks of 64 queries with all their keys by OpenBLAS, and NumPy's exp. "
            "All are called from Python ([`bench/peers/exact_attention.py`]"
            "(../peers/exact_attention.py)), 8 heads, with the same operands: ns per query and "
            "head, and of peers in brackets how many times as fast linattn is; bold where it is "
            "behind. Samples are taken by turns. One thread is timed by the processor's time: "
            "medians, of the samples and of their ratios. Two are timed by the clock, which other "
            "programs' work on the machine disturbs: the least of the samples. ± the largest "
            "error against double precision, relative to the largest element of a row. – has no "
            "figure: the peer is absent, or was not run: onnxruntime stores the scores of all "
            "queries and keys, which must not take half of the free memory, and has no grouped "
            "queries; windows and ALiBi are masks for PyTorch, and nothing of the others'."]
    sections = [("Marks", exact_marks(results))]
    sections += [(f"{title}, {threads_name(variant)}", exact_table(results, kind, variant))
                 for kind, title in EXACT_KINDS.items() for variant in exact_variants(results)
                 if exact_cases(results, kind, variant)]
    return as_document(results, text, sections)


def exact_summary(results, folder):
    """For the README: a line."""
    stem = results.path.stem
    ranges = {}
    for kind in EXACT_KINDS:
        for peer, found in exact_found(results, kind, "t1").items():
            part = ranges.setdefault("one query" if kind in EXACT_ONE_QUERY else "prefill", {})
            part.setdefault(peer, []).extend(times for times, _ in found)
    told = "; ".join(
        f"{kind}: " + ", ".join(f"{min(times):.2f} to {max(times):.2f} times as fast as {peer}"
                                for peer, times in peers.items())
        for kind, peers in ranges.items())
    return [f"**{results.head.get('cpu', stem)}**, {results.head['compiler']}, one core: exact "
            f"attention, 512 to 16384 keys, beside other libraries' ([all figures]"
            f"({folder}/{stem}.md)); {told}.", ""]


# ---- Documents ----------------------------------------------------------------------------------


def document(results):
    stem = results.path.stem
    text = [f"![{stem}]({stem}.png)", "",
            "Made by `bench/report.py` from the csv beside it. ns are per token and head, one "
            "core. The peak is an FMA loop or the bandwidth of updating memory in the same "
            "place, whichever takes longer, timed beside every sample; the limit is that or what "
            f"ports need for the work{limits_text(results)}. Errors are the largest "
            "against double precision, relative to the largest element of a row. How many times "
            "as fast: the median over samples that were taken by turns (of decode and "
            "onnxruntime, the quotient of the times)."]
    sections = [
        ("Marks", marks_table(results)),
        ("Causal, elu1, n = 4096", peers_table(results, "causal", 4096.0,
                                               results.shapes("causal"))),
        ("Bidirectional, elu1, n = 4096", peers_table(results, "bidirectional", 4096.0,
                                                      results.shapes("bidirectional"))),
        ("Decode", decode_tables(results)),
        ("Every kernel, elu1, n = 4096", shares_table(results)),
        ("Other methods, n = 4096", methods_table(results)),
        ("Linear and exact, (64,64), causal", lengths_table(results)),
        ("Maps on arrays of 4096", maps_table(results)),
        ("Merging two states", merges_table(results)),
        ("Other operands, threads, calls", variants_table(results)),
        ("Code size", sizes_table(results)),
    ]
    return as_document(results, text, sections)


def methods_summary(results):
    best = results.isas[0]
    found = methods(results)
    wanted = [("favor, 256 random features, causal", ("causal", "favor-256", 64.0, 64.0, "")),
              ("taylor of degree 2, causal", ("causal", "taylor-2", 16.0, 64.0, "")),
              ("elu1, window of 256, causal", ("band", "elu1", 64.0, 64.0, "w256")),
              ("nystrom, 64 landmarks", ("nystrom", "l64", 64.0, 64.0, "")),
              ("exact attention, causal", ("softmax", "causal", 64.0, 64.0, ""))]
    rows = []
    for what, key in wanted:
        row = found.get(key, {}).get(best)
        if row:
            rows.append([what, shape_name(key[2:4]), f"**{time(row)}** ± {error(row)}"])
            rows[-1] += cells_of(results, best, row)[1:]
    header = ["n = 4096", "shape", f"linattn, {best}"] + header_of(results, best)[1:]
    return table(header, rows) if rows else []


def small_summary(results, folder):
    """For the README: the decode step with elu1."""
    stem = results.path.stem
    lines = [f"**{results.head.get('cpu', stem)}**, {results.head['compiler']} -O2: one token of a "
             "small state, ns per call, and the share of a plain loop's time; mark: the most that "
             f"it is meant to be ([all figures]({folder}/{stem}.md))", ""]
    return lines + small_tables(results, [("step", "elu1")])


def summary(results, folder, first):
    """For the README: the causal table, one of the other methods, and the picture, unless that is
    the first look already."""
    if is_small(results):
        return small_summary(results, folder)
    if is_rules(results):
        return rules_summary(results, folder)
    if is_exact(results):
        return exact_summary(results, folder)
    stem = results.path.stem
    machine = f"**{results.head.get('cpu', stem)}**, {results.head['compiler']}"
    lines = [f"{machine}, one core, causal with elu1, n = 4096: ns per token and head ± error, "
             "and how many times as fast as each "
             f"([all figures]({folder}/{stem}.md))", ""]
    lines += peers_table(results, "causal", 4096.0, SHAPES)
    lines += methods_summary(results)
    return lines + (picture(results, folder) if results is not first else [])


def others(left, folder):
    """Links to what has been measured elsewhere, or before."""
    links = [f"[{results.path.stem}]({folder}/{results.path.stem}.md)" for results in left]
    if not links:
        return []
    return [f"Measured elsewhere, before, or with another compiler: {', '.join(links)}.", ""]


def picture(results, folder):
    stem = results.path.stem
    return [f"![Time and speed-up on {stem}]({folder}/{stem}.png)", ""]


PEER_NAMES = {"plain": "a plain loop, `-O3 -march=native`", "plain-fast": "the same, `-ffast-math`"}


def first_look(results, folder):
    """For the top of the README: how many times as fast causal attention is as its peers."""
    best = results.isas[0]
    shapes = [shape for shape in SHAPES if results.peers("causal", shape, 4096.0)]
    ours = [results.one(kernel="causal", map="elu1", by=best, d=d, dv=dv, n=4096.0)
            for d, dv in shapes]
    exact = [results.one(kernel="softmax", map="causal", by=best, d=d, dv=dv, n=4096.0)
             for d, dv in shapes]
    peers = [results.peers("causal", shape, 4096.0) for shape in shapes]
    rows = [[f"linattn, {best}: ns per token and head"] + [f"**{time(row)}**" for row in ours]]
    for name in sorted({name for found in peers for name in found}):
        rows.append([f"times as fast as {PEER_NAMES.get(name, name)}"] +
                    [f"{faster(row, found[name]):.2f}" if name in found else "–"
                     for row, found in zip(ours, peers)])
    rows.append(["times as fast as exact attention, `linattn_softmax`"] +
                [f"{theirs['ns'] / row['ns']:.0f}" if theirs else "–"
                 for row, theirs in zip(ours, exact)])
    header = [f"4096 tokens, causal, elu + 1, one core of {results.head.get('cpu', '')}"]
    return (table(header + [shape_name(shape) for shape in shapes], rows) +
            picture(results, folder))


def replace_region(readme, name, lines):
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = readme.read_text()
    if begin not in text or end not in text:
        print(f"{readme}: no markers of {name}, left as it is", file=sys.stderr)
        return
    before, after = text.split(begin, 1)[0], text.split(end, 1)[1]
    readme.write_text(before + begin + "\n" + "\n".join(lines).strip() + "\n" + end + after)


# ---- Picture ------------------------------------------------------------------------------------


def draw_lengths(axes, results):
    fixed = {"by": results.isas[0], "d": 64.0, "dv": 64.0, "variant": ""}
    for label, kernel, map_name in [("linear, elu1", "causal", "elu1"),
                                    ("exact", "softmax", "causal")]:
        rows = [row for row in results.find(kernel=kernel, map=map_name, **fixed) if row["n"]]
        rows.sort(key=lambda row: row["n"])
        axes.loglog([row["n"] for row in rows], [row["ns"] for row in rows], "o-", label=label)
    axes.set_title("Causal attention, (64,64)")
    axes.set_xlabel("tokens")
    axes.set_ylabel("ns per token and head")
    axes.legend()


def draw_shares(axes, results):
    kernels = [("update", "elu1"), ("query", "elu1"), ("causal", "elu1"), ("softmax", "causal")]
    shapes = [(32.0, 32.0), (64.0, 64.0), (128.0, 128.0)]
    bars = [(kernel, kernel, map_name, shape) for kernel, map_name in kernels for shape in shapes]
    bars += [("favor", "causal", "favor-256", (64.0, 64.0)),
             ("taylor 2", "causal", "taylor-2", (16.0, 64.0)),
             ("nystrom", "nystrom", "l64", (64.0, 64.0))]
    isas = results.vector_isas
    width = 0.8 / len(isas)
    labels = [f"{name}\n{shape_name(shape)}" for name, _, _, shape in bars]
    for i, isa in enumerate(isas):
        rows = [results.one(kernel=kernel, map=map_name, by=isa, d=d, dv=dv, n=4096.0)
                for _, kernel, map_name, (d, dv) in bars]
        at = [x + (i - 0.5 * (len(isas) - 1)) * width for x in range(len(rows))]
        axes.bar(at, [row["peak"] if row else 0.0 for row in rows], width, label=isa)
    axes.set_xticks(range(len(labels)), labels, fontsize=6)
    axes.set_ylim(0.0, 1.0)
    axes.set_title("Share of the FMA peak, n = 4096")
    axes.legend()


def draw_speedups(axes, results):
    shapes = [shape for shape in [(32.0, 32.0), (64.0, 64.0), (128.0, 128.0), (256.0, 64.0)]
              if results.peers("causal", shape, 4096.0)]
    names = sorted({name for shape in shapes for name in results.peers("causal", shape, 4096.0)})
    width = 0.8 / max(1, len(names))
    for i, name in enumerate(names):
        heights = []
        for d, dv in shapes:
            ours = results.one(kernel="causal", map="elu1", by=results.isas[0], d=d, dv=dv,
                               n=4096.0)
            peer = results.peers("causal", (d, dv), 4096.0).get(name)
            heights.append(faster(ours, peer) if ours and peer else 0.0)
        at = [x + (i - 0.5 * (len(names) - 1)) * width for x in range(len(shapes))]
        axes.bar(at, heights, width, label=name)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(shapes)), [shape_name(shape) for shape in shapes])
    axes.set_title("How many times as fast as peers, causal elu1")
    axes.legend()


def draw(results):
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(20, 5), gridspec_kw={"width_ratios": [3, 5, 3]})
    draw_lengths(axes[0], results)
    draw_shares(axes[1], results)
    draw_speedups(axes[2], results)
    figure.suptitle(f"linattn {results.head['linattn']} on {results.head.get('cpu', '')}, "
                    f"{results.head['compiler']}")
    figure.tight_layout()
    figure.savefig(results.path.with_suffix(".png"), dpi=80, metadata={"Software": None})


def newest_parts(every):
    """The latest of each part of the benchmark, where vectors are widest."""
    newest = {}
    for results in sorted(every, key=lambda results: (
            -ISAS.index(results.isas[0]), results.head.get("date", ""))):
        newest[results.head.get("part")] = results
    return newest


def render(paths, readme):
    for path in paths:
        results = Results(path)
        part = results.head.get("part")
        make = {"small": small_document, "rules": rules_document,
                "exact": exact_document}.get(part, document)
        results.path.with_suffix(".md").write_text(make(results))
        if not part:
            draw(results)
    if not readme:
        return
    every = [Results(path) for path in sorted(pathlib.Path(paths[0]).parent.glob("*.csv"))]
    usual = [results for results in every if results.head["compiler"].startswith("gcc")]
    newest = newest_parts(usual or every)
    first = newest.get(None)
    lines = [line for results in usual or every if results in newest.values()
             for line in summary(results, "bench/results", first)]
    lines += others([results for results in every if results not in newest.values()],
                    "bench/results")
    replace_region(pathlib.Path(readme), "bench", lines)
    if first:
        replace_region(pathlib.Path(readme), "bench-first", first_look(first, "bench/results"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("collect")
    command.add_argument("out")
    command.add_argument("runs", nargs="+")
    command.add_argument("--rows", nargs="*", default=[])
    command.add_argument("--note", action="append", default=[])
    command = commands.add_parser("marks")
    command.add_argument("results")
    command = commands.add_parser("render")
    command.add_argument("results", nargs="+")
    command.add_argument("--readme")
    options = parser.parse_args()
    if options.command == "collect":
        collect(options.out, options.runs, options.rows, options.note)
    elif options.command == "marks":
        results = Results(options.results)
        if is_small(results):
            print(small_document(results))
        elif is_rules(results):
            print(rules_document(results))
        elif is_exact(results):
            print(exact_document(results))
        else:
            print("\n".join(marks_table(results)).rstrip())
    else:
        render(options.results, options.readme)


if __name__ == "__main__":
    try:
        main()
    except OSError as problem:
        sys.exit(f"report.py: {problem}")
