#!/usr/bin/env python3
"""Tests of bench/limits.py, the limits that bench/report.py prints: counts by hand, the numbers
that it repeats from the sources, and what tables say with and without a limit; and which runs and
which results the tables are made of.

    limits_test.py

Needs Python 3 alone."""
import json
import pathlib
import re
import sys
import tempfile

from checks import check

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import limits  # noqa: E402
import report  # noqa: E402

XEON, EPYC = "intel-xeon-emerald-rapids", "amd-epyc-zen4"


def near(a, b):
    return abs(a - b) < 1e-9


def test_by_hand():
    """A query with elu1, (16,16), AVX-512: one vector of features, one of columns."""
    limit = limits.limit_of(XEON, "query", "elu1", "avx512", 16, 16, 4096)
    products = 16  # rows of S, times one vector
    fma = 3 + 6  # n and r of x; polynomial
    fma += 2  # 2^n: comparison and scalef
    fma += 2  # x sqrt(s); x < 0
    sums = 1 + 1  # n; x + 1
    denominator = 1 + 7  # its term; three halves, four sums
    output = 1  # times 1 / denominator
    operations = products + fma + sums + denominator + output
    check("a query by hand", limit.port == "vector ports" and near(limit.cycles, operations / 2)
          and near(limit.share, products / operations), str(limit))


def test_by_hand_update():
    """Keys with relu, (64,64), AVX2 of Zen 4: 8 vectors of features and of columns."""
    counter = limits.Counter("avx2", limits.ports_of(EPYC, "avx2"))
    products, ops = limits.work_of(counter, "update", "relu", 64, 64, 4096)
    check("the products of update", products == 64 * 64)
    check("FMA ports by hand", ops.fma == 64 * 8 + 8 * 2, f"{ops.fma}")  # products; x sqrt(s), max
    check("other vector ports by hand", ops.any == 8)  # z
    # values for 6 rows; rows for 64 tokens; keys
    check("loads by hand", near(ops.loads, 64 * 8 / 6 + 64 * 8 / 64 + 8), f"{ops.loads}")
    check("broadcasts by hand", ops.broadcasts == 64 * 4)  # phi(k) for two vectors
    check("stores by hand", near(ops.stores, 64 * 8 / 64 + 8), f"{ops.stores}")
    limit = limits.limit_of(EPYC, "update", "relu", "avx2", 64, 64, 4096)
    check("the limit of update", limit.port == "FMA ports" and near(limit.cycles, 528 / 2) and
          near(limit.share, 512 / 528), str(limit))


def test_partial_vectors():
    """Zen 4 has half of a vector of 512 bits in half the time, others do not."""
    for cpu, isa, expected in [(EPYC, "avx512", 2.5), (XEON, "avx512", 3), (EPYC, "avx2", 5)]:
        counter = limits.Counter(isa, limits.ports_of(cpu, isa))
        check(f"vectors of 40 floats, {cpu} {isa}", counter.vectors(40) == expected and
              counter.vectors(41) == (6 if isa == "avx2" else 3))


def test_by_hand_window():
    """A window of 64 with relu, (16,16), AVX-512: a sub-block summed, 32 keys one by one."""
    limit = limits.limit_of(XEON, "band", "relu", "avx512", 16, 16, 4096, 64)
    vectors = (30 * 3 + 2 * 2) / 32  # that 32 keys reach into, of 16
    scores = 16 * vectors
    query = 2 + 1  # x sqrt(s), max; its term of the denominator
    keys = 2 * 2  # where they come, and as they are where their sub-block is summed
    products = 16 + (16 + 1) + (32 + 1)  # sums, and outputs of sums and of scores, scaled
    sums = 7 + 1 + 16 / 32  # the denominator's tree; z; what a sub-block's tokens read
    turned = 2 * 2
    operations = scores + query + keys + products + sums + turned + vectors  # of the denominator
    check("a window by hand", limit.port == "vector ports" and near(limit.cycles, operations / 2)
          and near(limit.share, 2 * 16 / operations), str(limit))
    check("a window with exponents is not counted",
          limits.limit_of(XEON, "band", "exp", "avx512", 16, 16, 4096, 64) is None)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.csv"
        rows = [{"kernel": "band", "map": "elu1", "by": "avx512", "d": 64, "dv": 64, "n": 4096,
                 "variant": f"w{w}", "ns": 300.0, "times": times}
                for w, times in [(16, 3.0), (256, 2.3)]]
        report.write_csv(path, {"cpu": XEON}, rows)
        known = report.Results(path)
        (times, where, ratio), = report.windows(known, 64)
        cycles = [limits.limit_of(XEON, "causal", "elu1", "avx512", 64, 64, 4096, w).cycles
                  for w in [256, 0]]
        check("windows from 64 up", times == 2.3 and where == "(64,64) avx512 w256" and
              near(ratio, cycles[0] / cycles[1]) and ratio > 1.4, f"{where} {ratio}")


def test_ports():
    """Loads, and stores, bind where they are many."""
    ports = limits.Ports(fma=2, any=2, loads=1, broadcasts=2, stores=1, selection=0)
    cycles = limits.Ops(fma=10, any=2, loads=7, broadcasts=4, stores=3).cycles(ports)
    check("cycles of ports", list(cycles.values()) == [5, 6, 9, 3], str(cycles))


def test_sources():
    """What is repeated from the sources is what stands there."""
    text = (ROOT / "linattn_simd.h").read_text()
    for isa, tiles in limits.TILES.items():
        block = text.split(f"LINATTN__ISA == LINATTN__ISA_{isa.upper()}\n")[-1].split("#elif")[0]
        for name, value in tiles.items():
            found = re.search(rf"^#define LA_{name} (\d+)$", block, re.M)
            check(f"LA_{name} of {isa}", found is not None and int(found[1]) == value)
    text = (ROOT / "linattn.h").read_text()
    for name, value in [("FEATURES", limits.CHUNK), ("STEPS", limits.STEPS),
                        ("BAND", limits.BAND), ("ROWS_COLUMNS", limits.EACH),
                        ("CHAINS", limits.CHAINS)]:
        found = re.search(rf"^#define LINATTN__{name} (\d+)", text, re.M)
        check(f"LINATTN__{name}", found is not None and int(found[1]) == value)
    rules = re.findall(r'\] = \{"([a-z0-9-]+)", LINATTN_RULE_\w+, (\d),',
                       (ROOT / "bench/rules.c").read_text())
    check("operations of the rules",
          {name: int(count) for name, count in rules} ==
          {name: row[0] for name, row in limits.RULES.items()}, str(rules))


def test_published():
    """No kernel was faster than what is taken for the limit, but for noise. A share of the peak
    beyond 1 is a sample that something disturbed."""
    seen = 0
    for path in sorted((ROOT / "bench/results").glob("*.csv")):
        results = report.Results(path)
        for row in results.rows:
            part = results.of_limit(row)
            if part and row["peak"] < 1.0:
                seen += 1
                if part > 1.05:
                    name = " ".join([path.stem, row["kernel"], row["map"], row["by"]])
                    check(name, False, f"{part:.2f} of the limit")
    check("published shares are within the limit", seen > 100, f"{seen} rows")


def results_of(folder, cpu):
    """Two rows of causal, one of them of a state beyond the caches."""
    path = pathlib.Path(folder) / f"{cpu}.csv"
    rows = [{"kernel": "causal", "map": "elu1", "by": "avx512", "d": d, "dv": d, "n": 4096,
             "ns": 100.0, "gflops": 70.0, "peak": peak, "memory_bound": bound}
            for d, peak, bound in [(32, 0.55, 0), (64, 0.60, 0), (128, 0.50, 1), (256, 0.70, 0)]]
    rows[3]["dv"] = 64
    report.write_csv(path, {"cpu": cpu, "linattn": "0", "compiler": "gcc"}, rows)
    return report.Results(path)


def test_tables():
    with tempfile.TemporaryDirectory() as folder:
        known, unknown = results_of(folder, XEON), results_of(folder, "intel-xeon-skylake-server")
        limit = known.limit(known.one(d=32.0))
        check("of the limit", near(known.of_limit(known.one(d=32.0)), 0.55 / limit.share))
        # of 70 GFLOP/s from the others' median peak, 70 / 0.60; memory takes longer than ports
        check("the bandwidth binds", near(known.of_limit(known.one(d=128.0)), 70 / (70 / 0.60) /
                                          known.limit(known.one(d=128.0)).share))
        table = "\n".join(report.shares_table(known))
        check("the column is there", table.count("of the limit") == 1 and
              f"| 0.55 | {0.55 / limit.share:.2f} |" in table)
        table = "\n".join(report.shares_table(unknown) +
                          report.peers_table(unknown, "causal", 4096.0, [(32.0, 32.0)]))
        check("an unknown processor has the share of the peak alone",
              "of the limit" not in table and "| 0.55 |" in table)
        marks = [0.99, 0.60, 0.80, 0.75]
        rows = [known.one(d=d) for d in [32.0, 64.0, 128.0, 256.0]]
        said = report.shares_at_least(known, "causal", rows, marks)[0][-1]
        check("a mark out of reach", f"(32,32) avx512 cannot be: {limit.share:.2f}, {limit}" in said
              and said.count("cannot be") == 1, said)
        rows = [(1.4, "one", 1.5), (1.6, "two", 1.2), (1.1, "three", 1.5), (1.7, "four", None)]
        said = report.at_most("odd sizes", rows, 1.3)[0]
        check("a ratio out of reach", said[1] == "1.70× (four)" and
              said[-1] == "**no**; where ports alone bind: one 1.50×", str(said))
        rows = [(1.2, "one", 1.4), (1.3, "two"), (1.1, "three", 1.6), (1.6, "four", 1.7)]
        said = report.times_as_fast("peers", rows, 1.5)[0]
        check("a peer that cannot be left behind", said[1] == "1.10× (three)" and said[-1] ==
              "**no**; cannot be, as where ports alone bind: one 1.40×", str(said))
        said = report.shares_at_least(unknown, "causal", [unknown.one(d=32.0)], [0.99])[0][-1]
        check("nothing is said of an unknown processor", said == "**no**", said)


def test_odd_sizes_and_threads():
    """33 needs a vector more than 32 of each kind; halves of columns need all of the map."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.csv"
        rows = [{"kernel": "causal", "map": "elu1", "by": "avx512", "d": d, "dv": d, "n": 4096,
                 "ns": ns} for d, ns in [(32, 1024.0), (33, 2178.0), (64, 4096.0)]]
        rows.append(rows[-1] | {"variant": "heads1-t2", "speedup": 1.5})
        report.write_csv(path, {"cpu": XEON}, rows)
        known = report.Results(path)
        (ratio, where, limit), = report.odd_sizes(known, {"causal": {"kernel": "causal"}})
        cycles = [known.limit(known.one(d=d)).cycles / d**2 for d in [32.0, 33.0, 64.0]]
        check("an odd size", near(ratio, 2.0) and where == "causal avx512 33", f"{ratio} {where}")
        check("an odd size at the limits",
              near(limit, cycles[1] / ((cycles[0] + cycles[2]) / 2)) and limit > 1.3, f"{limit}")
        half = limits.limit_of(XEON, "causal", "elu1", "avx512", 64, 32, 4096).cycles
        wanted = known.limit(known.one(d=64.0)).cycles / half
        said = report.thread_marks(known)[0]
        check("one head over two threads", 1.5 < wanted < 1.85 and
              said[-1] == f"**no**; cannot be: {wanted:.2f}×, as both map all keys and queries",
              str(said))


def test_shared_core():
    """Runs in which another program was on the core count where there are no others."""
    name = "causal/elu1/avx2/64x64/4096/manual_time"
    alone, shared = {"ns": 250.0, "alone": 0.5}, {"ns": 400.0, "alone": 0.0}
    row = report.median_row(name, [shared, alone, shared])
    check("the run that was alone", row["ns"] == 250.0, str(row))
    row = report.median_row(name, [shared, shared | {"ns": 300.0}])
    check("none was alone", row["ns"] == 350.0, str(row))
    with tempfile.TemporaryDirectory() as folder:
        for disturbed, run in enumerate([alone, shared]):
            source, out = pathlib.Path(folder) / "run.json", pathlib.Path(folder) / "rows.csv"
            source.write_text(json.dumps({"context": {}, "benchmarks": [run | {"name": name}]}))
            report.collect(out, [source], [], [])
            said = report.Results(out).head.get("disturbed")
            check(f"what the head says of {disturbed}",
                  said == ("1 of 1 benchmarks" if disturbed else None), str(said))


def test_newest():
    """An older table of wider vectors goes before a newer one."""
    with tempfile.TemporaryDirectory() as folder:
        every = []
        for isa, date in [("avx512", "2026-01-02"), ("avx512", "2026-01-01"),
                          ("avx2", "2026-01-03")]:
            path = pathlib.Path(folder) / f"{isa}-{date}.csv"
            report.write_csv(path, {"date": date}, [{"kernel": "causal", "by": isa, "ns": 1.0}])
            every.append(report.Results(path))
        newest = report.newest_parts(every)[None].path.stem
        check("the newest of the widest", newest == "avx512-2026-01-02", newest)
        newest = report.newest_parts(every[2:])[None].path.stem
        check("the widest that there is", newest == "avx2-2026-01-03", newest)


for test in [test_by_hand, test_by_hand_update, test_partial_vectors, test_by_hand_window,
             test_ports, test_sources, test_published, test_tables, test_odd_sizes_and_threads,
             test_shared_core, test_newest]:
    test()
check.finish()
