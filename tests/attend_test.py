#!/usr/bin/env python3
"""Checks examples/attend.c from outside: its results against an oracle in double precision, written
from the formulas alone, and its manners with files and options.

    attend_test.py PATH_TO_ATTEND [DATA_DIR]

DATA_DIR (examples/data beside this file's folder) holds lm/ and encoder/ with q, k and v.npy.
ATTEND_RUN is put before the command, say "qemu-aarch64 -L /usr/aarch64-linux-gnu". Prints one line
for each check and exits with 1 if any failed. Needs Python 3 and NumPy.
"""
import contextlib
import ctypes
import functools
import itertools
import math
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import numpy as np

sys.dont_write_bytecode = True  # beside the source

import checks
from checks import OUT, check, check_common_options, present_isas, refuse, run

ELEMENTWISE = ["elu1", "identity", "relu", "exp", "softmax", "unit"]
FAVOR = ["favor", "favor-simple", "favor-hyperbolic"]
MONOMIALS = ["taylor", "expdef"]
# Sums of few of their features, rounded each, may all but vanish as denominators.
CANCELLING = [*MONOMIALS, "unit"]
MAPS = ELEMENTWISE + FAVOR + MONOMIALS
NORMS = ["sum", "feature", "length", "none"]
TOLERANCE = 1e-5
NYSTROM_TOLERANCE = 1e-4


# ---- The oracle: loops over heads, matrices over tokens, all in double precision ---------------

def divide(a, b):
    """a / b, and zero where b is exactly zero."""
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b != 0)


def visibility(n_q, n_k, causal, window):
    """1 where the query of the row sees the key of the column."""
    i, j = np.arange(n_q)[:, None], np.arange(n_k)
    seen = (j <= i) if causal else np.ones((n_q, n_k), bool)
    return (seen & (abs(i - j) < window) if window else seen).astype(float)


def phi(x, map, keys):
    """The maps that act on each coordinate."""
    if map == "identity":
        return x
    if map == "unit":
        return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-6)
    if map == "elu1":
        return np.where(x >= 0, x + 1, np.exp(np.minimum(x, 0)))
    if map == "relu":
        return np.maximum(x, 0)
    if map == "softmax" and not keys:
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)
    return np.exp(x)


def series_weight(map, degree, p):
    """w_p, by which the term of degree p of exp differs from that of the polynomial."""
    return math.prod(1 - j / degree for j in range(p)) if map == "expdef" else 1.0


@functools.lru_cache(maxsize=None)
def multi_indices(dim, p):
    """Every product of p of the coordinates, and 1 / prod a_i! of each."""
    index = np.array(list(itertools.combinations_with_replacement(range(dim), p)))
    repeats, inverse = np.ones(len(index)), np.ones(len(index))
    for a, b in zip(index.T, index.T[1:]):
        repeats = np.where(a == b, repeats + 1, 1)
        inverse /= repeats
    return index, inverse


def monomials(x, map, degree):
    blocks = [np.ones((len(x), 1))]
    for p in range(1, degree + 1):
        index, inverse = multi_indices(x.shape[1], p)
        root = np.sqrt(series_weight(map, degree, p) * inverse)
        blocks.append(root * x[:, index].prod(axis=2))
    return np.concatenate(blocks, axis=1)


def log_favor(x, map, projection):
    """The logarithms of the features."""
    w = x @ projection.T
    lowered = w - (x * x).sum(axis=1, keepdims=True) / 2
    if map == "favor-simple":
        return w
    if map == "favor":
        return lowered - np.log(len(projection)) / 2
    return np.concatenate([lowered, lowered - 2 * w], axis=1) - np.log(2 * len(projection)) / 2


def log_products(a, b):
    """log of sum_f exp(a_if + b_jf), whatever the exponents."""
    top_a, top_b = a.max(axis=1, keepdims=True), b.max(axis=1, keepdims=True)
    product = np.exp(a - top_a) @ np.exp(b - top_b).T
    result = np.log(np.maximum(product, 1e-300)) + top_a + top_b.T
    for i, j in np.argwhere(product < 1e-200):
        result[i, j] = np.logaddexp.reduce(a[i] + b[j])
    return result


def log_sums(b, visible):
    """log of sum_j visible_ij exp(b_jf), and 0 for a sum of nothing."""
    rows, which = np.unique(visible, axis=0, return_inverse=True)
    sums = np.array([np.logaddexp.reduce(b[row > 0], axis=0) if row.any() else 0 * b.sum(axis=0)
                     for row in rows])
    return sums.reshape(len(rows), b.shape[1])[which]


def normalise(similarity, visible, norm, eps):
    if norm == "sum":
        return divide(similarity, similarity.sum(axis=1, keepdims=True) + eps)
    return divide(similarity, visible.sum(axis=1, keepdims=True)) if norm == "length" \
        else similarity


def favor_weights(log_q, log_k, visible, norm, eps):
    if norm == "feature":
        log_q = log_q - log_sums(log_k, visible)
    logs = np.where(visible > 0, log_products(log_q, log_k), -np.inf)
    if norm != "sum":
        return normalise(np.exp(logs), visible, norm, eps)
    top = logs.max(axis=1, keepdims=True, initial=-1e300)
    return normalise(np.exp(logs - top), visible, norm, eps * np.exp(-top) if eps else 0)


def polynomial(x, map, degree):
    """phi(q).phi(k) of the monomials, from x = s q.k, in closed form."""
    if map == "expdef":
        return (1 + x / degree) ** degree
    return sum(x ** p / math.factorial(p) for p in range(degree + 1))


def linear_head(q, k, v, map, norm, causal, scale, eps=0.0, window=None, projection=None,
                degree=2, closed=False):
    visible = visibility(len(q), len(k), causal, window)
    x, y = q * np.sqrt(scale), k * np.sqrt(scale)
    if map in FAVOR:
        logs = log_favor(x, map, projection), log_favor(y, map, projection)
        return favor_weights(*logs, visible, norm, eps) @ v
    if closed:
        return normalise(polynomial(x @ y.T, map, degree) * visible, visible, norm, eps) @ v
    if map in MONOMIALS:
        fq, fk = monomials(x, map, degree), monomials(y, map, degree)
    else:
        fq, fk = phi(x, map, False), phi(y, map, True)
    if map == "unit":  # which would undo the scale
        fq, fk = phi(q, map, False) * scale, phi(k, map, True)
    if norm == "feature":
        return ((divide(fq, visible @ fk) @ fk.T) * visible) @ v
    return normalise((fq @ fk.T) * visible, visible, norm, eps) @ v


def softmax_rows(x):
    e = np.exp(x - x.max(axis=1, keepdims=True, initial=-1e300))
    return divide(e, e.sum(axis=1, keepdims=True))


def exact_head(q, k, v, causal, scale):
    hidden = visibility(len(q), len(k), causal, None) == 0
    return softmax_rows(np.where(hidden, -np.inf, scale * (q @ k.T))) @ v


def segment_means(x, count):
    length = -(-len(x) // count) or 1
    return np.array([x[i:i + length].mean(axis=0) for i in range(0, len(x), length)])


def pseudo_inverse(a, steps):
    """The Z of smallest residual |AZA - A| until it no longer falls."""
    z = a.T / (abs(a).sum(axis=0).max() * abs(a).sum(axis=1).max())
    best, unit = np.inf, np.eye(len(a))
    for _ in range(steps + 1):
        az = a @ z
        residual = np.linalg.norm(az @ a - a)
        if residual >= best:
            break
        best, kept = residual, z
        z = z @ (13 * unit - az @ (15 * unit - az @ (7 * unit - az))) / 4
    return kept


def nystrom_head(q, k, v, scale, landmarks=64, iterations=12):
    if len(k) == 0 or len(q) == 0:
        return np.zeros((len(q), v.shape[1]))
    few_q, few_k = segment_means(q, landmarks), segment_means(k, landmarks)
    a = softmax_rows(scale * few_q @ few_k.T)
    values = softmax_rows(scale * few_q @ k.T) @ v
    return softmax_rows(scale * q @ few_k.T) @ (pseudo_inverse(a, iterations) @ values)


def oracle(data, attention="linear", map="elu1", norm=None, causal=False, scale=None,
           projection=None, **more):
    """The output, from attend's options."""
    q, k, v = [x.astype(np.float64) for x in data]
    if q.ndim == 2:
        return oracle([x[:, None] for x in data], attention, map, norm, causal, scale, projection,
                      **more)[:, 0]
    if projection is not None:
        more["projection"] = np.load(projection).astype(np.float64)
    approximates = attention != "linear" or map not in ELEMENTWISE
    scale = scale or (1 / np.sqrt(q.shape[2]) if approximates else 1.0)
    norm = norm or ("feature" if map == "softmax" else "sum")
    group = q.shape[1] // k.shape[1]
    out = np.zeros((len(q), q.shape[1], v.shape[2]))
    for h in range(q.shape[1]):
        head = q[:, h], k[:, h // group], v[:, h // group]
        if attention == "softmax":
            out[:, h] = exact_head(*head, causal, scale)
        elif attention == "nystrom":
            out[:, h] = nystrom_head(*head, scale, **more)
        else:
            out[:, h] = linear_head(*head, map, norm, causal, scale, **more)
    return out


# ---- Running attend ----------------------------------------------------------------------------

def bytes_of(path):
    """The bytes of a file, or None."""
    return path.read_bytes() if path.exists() else None


def options(causal=False, **given):
    """attend's options for the keywords of the oracle."""
    result = ["--causal"] if causal else []
    for name, value in given.items():
        result += ["--" + name.replace("_", "-"), str(value)]
    return result


class Case:
    """Queries, keys and values in files of their own folder."""

    def __init__(self, folder, data):
        self.folder, self.data = pathlib.Path(folder), data
        self.folder.mkdir()
        for name, x in zip("qkv", data):
            np.save(self.folder / (name + ".npy"), x)

    def attend(self, *more, **given):
        """The bytes of the output file."""
        out = self.folder / "out.npy"
        done = run("--dir", self.folder, "--out", out, *options(**given), *more)
        if done.returncode != 0 or done.stderr or done.stdout:
            raise RuntimeError(f"{done.args}: {done.returncode} {done.stderr!r} {done.stdout!r}")
        content = out.read_bytes()
        out.unlink()
        return content

    def output(self, *more, **given):
        path = self.folder / "read.npy"
        path.write_bytes(self.attend(*more, **given))
        return np.load(path)

    def projection(self, features=None):
        """A file of random rows, four for each coordinate unless told."""
        dim = self.data[0].shape[-1]
        rows = np.random.default_rng(dim).standard_normal((features or 4 * dim, dim))
        path = self.folder / f"projection-{len(rows)}.npy"
        np.save(path, rows.astype(np.float32))
        return path


def random_case(folder, seed, n_q, n_k, heads, kv_heads, dim, dim_value, flat=False):
    g = np.random.default_rng(seed)
    shapes = [(n_q, heads, dim), (n_k, kv_heads, dim), (n_k, kv_heads, dim_value)]
    data = [g.standard_normal(s).astype(np.float32) for s in shapes]
    return Case(folder, [x[:, 0] for x in data] if flat else data)


def error_of(case, closed=False, **given):
    """The relative error in the norm of the output."""
    if given.get("map") in FAVOR and "projection" not in given:
        given["projection"] = case.projection()
    expected = oracle(case.data, **(dict(given, closed=True) if closed else given))
    got = case.output(**given)
    if got.shape != expected.shape or got.dtype != np.float32 or not np.isfinite(got).all():
        return np.inf
    norm, error = np.linalg.norm(expected), np.linalg.norm(got - expected)
    return error / norm if norm > 0 else np.inf if error > 0 else 0.0


def check_errors(name, cases, **given):
    limit = NYSTROM_TOLERANCE if given.get("attention") == "nystrom" else TOLERANCE
    worst = max(error_of(case, **given) for case in cases)
    check(name, worst <= limit, f"{worst:.1e}, limit {limit:.1e}")


def variants():
    """Every attention there is, as keywords, with its name."""
    for causal in [False, True]:
        mode = "causal" if causal else "not causal"
        for map, norm in itertools.product(MAPS, NORMS):
            yield f"{map}, {norm}, {mode}", dict(map=map, norm=norm, causal=causal)
        yield f"exact, {mode}", dict(attention="softmax", causal=causal)
    yield "nystrom", dict(attention="nystrom")


def main_variants():
    """One for every kernel family: every map with its default norm, and the other attentions."""
    for causal in [False, True]:
        mode = "causal" if causal else "not causal"
        for map in MAPS:
            yield f"{map}, {mode}", dict(map=map, causal=causal)
        yield f"exact, {mode}", dict(attention="softmax", causal=causal)
    yield "nystrom", dict(attention="nystrom")


# ---- Results -----------------------------------------------------------------------------------

def make_cases(work, data_dir):
    real = {}
    for name in ["lm", "encoder"]:
        data = [np.load(data_dir / name / (x + ".npy")) for x in "qkv"]
        real[name] = Case(work / name, data)
    square = [random_case(work / "flat", 1, 7, 7, 1, 1, 1, 1, flat=True),
              random_case(work / "grouped", 2, 33, 33, 3, 1, 3, 17),
              random_case(work / "wide-values", 3, 19, 19, 6, 2, 17, 65),
              random_case(work / "wide-keys", 4, 130, 130, 4, 4, 65, 3),
              random_case(work / "one-token", 5, 1, 1, 2, 1, 17, 1),
              random_case(work / "no-token", 6, 0, 0, 2, 2, 3, 5)]
    cross = [random_case(work / "few-queries", 7, 5, 37, 4, 2, 17, 3),
             random_case(work / "one-key", 8, 37, 1, 2, 2, 65, 17),
             random_case(work / "no-key", 9, 9, 0, 2, 1, 3, 3),
             random_case(work / "no-query", 10, 0, 9, 1, 1, 17, 17)]
    return real, square, cross


def positive(work, name, case):
    """The case with nothing below zero in queries and keys, and smaller ones."""
    q, k, v = case.data
    return Case(work / name, [abs(q) / 4, abs(k) / 4, v])


def test_accuracy(work, real, brief, square, cross):
    # The sums of single features, and of all at few keys, cancel in other data.
    few = [positive(work, case.folder.name, case) for case in square + cross]
    heads = {data: positive(work, data, case) for data, case in brief.items()}
    for name, given in variants():
        cancels, norm = given.get("map") in CANCELLING, given.get("norm")
        # The oracle takes its time: whole heads for the norm that most have by default.
        cases = heads if cancels and norm == "feature" else \
            real if norm in [None, "sum"] else brief
        for data, case in cases.items():
            check_errors(f"{data}: {name}", [case], **given)
        odd = few if cancels else square + cross
        check_errors(f"odd shapes: {name}", odd[:len(square)] if given.get("causal") else odd,
                     **given)


def test_scale_and_epsilon(_, real, square):
    for map in MAPS:
        norm = dict(norm="none") if map == "unit" else {}  # else it cancels
        check_errors(f"scale 0.3: {map}", [real["lm"], square[2]], map=map, scale=0.3, **norm)
    check_errors("scale 0.05: exact", [real["lm"], square[2]], attention="softmax", scale=0.05)
    check_errors("scale 2, causal: elu1", square[:4], scale=2, causal=True)
    check_errors("epsilon 0.5", [real["lm"], square[2]], eps=0.5)
    check_errors("epsilon 1e3, causal, relu", [real["encoder"]], map="relu", eps=1e3, causal=True)
    plain = square[1].attend()
    check("the defaults are elu1 and sum, scale 1, epsilon 0",
          plain == square[1].attend(map="elu1", norm="sum", scale=1, eps=0, attention="linear"))
    check("the default norm of the softmax map is feature",
          square[1].attend(map="softmax") == square[1].attend(map="softmax", norm="feature"))
    for zero in ["0.0", ".0", "0e5", "-0", "0E-999"]:
        check(f"an epsilon of {zero} is zero", plain == square[1].attend(eps=zero))
    folder = square[1].folder
    run(*[f"--{x}={folder / (x + '.npy')}" for x in "qkv"], f"--out={folder / 'named.npy'}")
    check("a file per option, and --name=value", plain == bytes_of(folder / "named.npy"))


def test_features_and_degrees(work, brief):
    small = random_case(work / "small", 20, 33, 33, 3, 1, 5, 7)
    for map, features in itertools.product(FAVOR, [1, 2, 16, 17, 127, 300]):
        cases = [small, brief["encoder"]]
        worst = max(error_of(c, map=map, projection=c.projection(features)) for c in cases)
        check(f"{map} of {features} features", worst <= TOLERANCE, f"{worst:.1e}")
    for map, degree in itertools.product(MONOMIALS, range(1, 9)):
        # A polynomial of odd degree has a zero: these are kept away from it.
        given = dict(map=map, degree=degree, scale=0.1 if degree % 2 else 0.4)
        for causal in [False, True]:
            name = f"{map} of degree {degree}, {'causal' if causal else 'not causal'}"
            check_errors(f"{name}: monomials", [small], causal=causal, **given)
            check_errors(f"{name}: closed form", [small], causal=causal, closed=True, **given)
        check_errors(f"{map} of degree {degree}, no norm", [small], norm="none", closed=True,
                     **given)
    for map in MONOMIALS:
        for data, degree in [("lm", 2), ("lm", 3), ("encoder", 2), ("encoder", 4)]:
            norm = "none" if degree % 2 else "sum"
            check_errors(f"{data}: {map} of degree {degree}, closed form", [brief[data]], map=map,
                         degree=degree, norm=norm, closed=True)


def test_large_norms(work):
    """On a grid on which every exponent is a float: the error is that of attend alone."""
    g = np.random.default_rng(23)

    def grid(step, *shape):
        return (np.round(g.standard_normal(shape) * 4) * step).astype(np.float32)

    projection = work / "projection.npy"
    np.save(projection, grid(0.25, 32, 4))
    for size in [1, 16, 256]:
        q, k, v = grid(size / 2, 40, 2, 4), grid(size / 2, 40, 1, 4), grid(1, 40, 1, 5)
        case = Case(work / f"size-{size}", [q, k, v])
        k = k.copy()
        k[30] *= 1e6
        later = Case(work / f"later-{size}", [q, k, v])
        for map, causal in itertools.product(FAVOR, [False, True]):
            check_errors(f"norms of about {4 * size}: {map}, "
                         f"{'causal' if causal else 'not causal'}", [case], map=map, scale=1,
                         causal=causal, projection=projection)
        for map in FAVOR:
            given = dict(map=map, causal=True, projection=projection)
            check(f"a far larger key changes nothing before it: {map}, {size}",
                  case.output(**given)[:30].tobytes() == later.output(**given)[:30].tobytes())


def test_windows(work, brief, square):
    for map, causal in itertools.product(MAPS, [False, True]):
        mode = f"{map}, {'causal' if causal else 'not causal'}"
        few = [positive(work, f"{c.folder.name}-{mode}", c) for c in square] \
            if map in CANCELLING else square
        for window in [2, 19, 1000]:
            check_errors(f"window of {window}: {mode}", few, map=map, causal=causal, window=window)
        for data, window in [("lm", 16), ("encoder", 1), ("encoder", 40)]:
            check_errors(f"{data}, window of {window}: {mode}", [brief[data]], map=map,
                         causal=causal, window=window)
        for norm in NORMS[1:]:
            check_errors(f"window of 7, {norm}: {mode}", few[1:4], map=map, causal=causal,
                         norm=norm, window=7)
        given, case = dict(map=map, causal=causal, window=19), brief["encoder"]
        whole = case.attend(**given)
        alike = [dict(threads=2)] + ([dict(split="1"), dict(split="3,1,40")] if causal else [])
        check(f"same bytes with a window, in calls and threads: {mode}",
              all(case.attend(**given, **more) == whole for more in alike))


def test_precision(work, brief, square):
    """Sums of two floats: as near as plain ones, the same bytes, and no drift."""
    def compensated(case, *more, **given):
        return case.output("--precision", "compensated", *more, **given)

    for map, causal in itertools.product(["elu1", "relu", "exp", "softmax"], [False, True]):
        mode, given = f"{map}, {'causal' if causal else 'not causal'}", dict(map=map, causal=causal)
        errors = []
        for case in [brief["lm"], *square[:5]]:
            expected = oracle(case.data, **given)
            errors.append(np.linalg.norm(compensated(case, **given) - expected)
                          / np.linalg.norm(expected))
        check(f"compensated: {mode}", max(errors) <= TOLERANCE, f"{max(errors):.1e}")
        whole = compensated(brief["lm"], **given).tobytes()
        check(f"the same bytes in calls and threads, compensated: {mode}",
              all(compensated(brief["lm"], *more, **given).tobytes() == whole
                  for more in [["--split", "1"], ["--split", "3,40"], ["--threads", 3]]))
    n = 400000
    values = np.repeat(np.float32([0, 1]), n // 2)[:, None]
    case = Case(work / "drift", [np.full((n, 1), 0.3, np.float32)] * 2 + [values])
    share = np.maximum(0, np.arange(n) - n // 2 + 1) / (np.arange(n) + 1)
    plain, exact = [np.abs(x[:, 0] - share).max()
                    for x in [case.output(causal=True), compensated(case, causal=True)]]
    check("compensated sums do not drift", exact < 2e-6 < 1e-4 < plain,
          f"{exact:.1e}, plain ones by {plain:.1e}")
    check("plain is the default",
          case.attend("--precision", "plain", causal=True) == case.attend(causal=True))


def test_state_types(work, brief, square):
    """Sums of 16 bits: as near as these allow and no nearer, the same bytes, files of their own."""
    limits = dict(f16=(1e-5, 2e-3), bf16=(1e-4, 2e-2))
    for kind, map, causal in itertools.product(limits, ELEMENTWISE, [False, True]):
        mode = f"{kind}, {map}, {'causal' if causal else 'not causal'}"
        given = dict(map=map, causal=causal, norm="feature" if map == "softmax" else "length")
        errors = []
        for case in [brief["lm"], *square[1:4]]:
            expected = oracle(case.data, **given)
            got = case.output("--state-type", kind, **given)
            errors.append(np.linalg.norm(got - expected) / np.linalg.norm(expected))
        least, most = limits[kind]
        check(f"sums of 16 bits: {mode}", least < max(errors) < most, f"{max(errors):.1e}")
        case, given["state_type"] = square[3], kind
        whole = case.attend(**given)
        check(f"the same bytes in calls and threads, and by scalar code: {mode}",
              all(case.attend(*more, **given) == whole
                  for more in [["--split", "1"], ["--split", "3,40"], ["--threads", 3],
                               ["--isa", "scalar"]]))
    case = square[2]
    check("f32 is the default", case.attend("--state-type", "f32", causal=True)
          == case.attend(causal=True))
    parts = [Case(work / f"part{i}", [x[rows] for x in case.data])
             for i, rows in enumerate([slice(0, 8), slice(8, None)])]
    states = {kind: work / kind for kind in [*limits, "f32"]}
    for kind, state in states.items():
        given = dict(causal=True, state_type=kind)
        first = parts[0].output("--state-out", state, **given)
        second = parts[1].output("--state-in", state, **given)
        check(f"a file of a state goes on: {kind}",
              (np.concatenate([first, second]) == case.output(**given)).all())
    sizes = {kind: len(state.read_bytes()) for kind, state in states.items()}
    check("sums of 16 bits take half the file",
          sizes["f16"] == sizes["bf16"] < 0.7 * sizes["f32"], f"{sizes}")
    for kind, other in itertools.permutations(states, 2):
        refuse(f"a state of {kind} for {other}", "--dir", parts[1].folder, "--out", OUT,
               "--causal", "--state-type", other, "--state-in", states[kind],
               says=[bytes(states[kind]), b"these options and shapes"])


def test_random_features(work):
    g = np.random.default_rng(21)
    shapes = [(40, 2, 16), (60, 1, 16), (60, 1, 5)]
    near = Case(work / "near", [g.standard_normal(s).astype(np.float32) / 2 for s in shapes])
    exact = oracle(near.data, "softmax")
    for map in FAVOR:
        plain = near.attend(map=map)
        defaults = dict(seed=0, orthogonal=0, features=64)
        check(f"the defaults are seed 0, independent rows and 4 dim of them: {map}",
              near.attend(map=map, **defaults) == plain)
        seeds = [0, 1, 2 ** 32, 2 ** 63, 2 ** 64 - 1]
        outputs = [near.attend(map=map, seed=seed, orthogonal=o) for seed in seeds for o in (0, 1)]
        check(f"another seed and orthogonal rows are others: {map}",
              len(set(outputs)) == len(outputs))

        def error(features, orthogonal):
            """The mean over some seeds."""
            runs = [near.output(map=map, features=features, orthogonal=orthogonal, seed=s)
                    for s in range(8)]
            return np.mean([np.linalg.norm(x - exact) for x in runs]) / np.linalg.norm(exact)

        if map == "favor-simple":
            continue  # leaves the norms of the keys out, and so is biased
        for orthogonal in [0, 1]:
            errors = [error(m, orthogonal) for m in (32, 512, 8192)]
            # sqrt(16) = 4 from each to the next, more or less.
            check(f"the error falls as 1/sqrt(features): {map}, orthogonal {orthogonal}",
                  all(2.5 < a / b < 6.5 for a, b in zip(errors, errors[1:])),
                  ", ".join(f"{e:.3g}" for e in errors))


def check_landmarks(name, cases, **given):
    check_errors(f"nystrom, {name}", cases, attention="nystrom", **given)


def test_nystrom(_, real, brief, square, cross):
    for data, case in real.items():
        for landmarks in [1, 7, 16, 100]:
            check_landmarks(f"{data}, {landmarks} landmarks", [case], landmarks=landmarks)
        check_landmarks(f"{data}, a landmark for each token", [brief[data]], landmarks=1000)
        for iterations in [1, 2, 6]:
            check_landmarks(f"{data}, {iterations} iterations", [case], iterations=iterations)
    for landmarks in [1, 2, 5, 64]:
        check_landmarks(f"odd shapes, {landmarks} landmarks", square + cross, landmarks=landmarks)
    check_landmarks("scale 0.05", [real["lm"], square[2]], scale=0.05)
    check("the defaults are 64 landmarks and 12 iterations",
          real["lm"].attend(attention="nystrom")
          == real["lm"].attend(attention="nystrom", landmarks=64, iterations=12))
    for threads in [2, 5]:
        check(f"same bytes with {threads} threads: nystrom",
              all(c.attend(attention="nystrom", landmarks=9, threads=threads)
                  == c.attend(attention="nystrom", landmarks=9) for c in real.values()))


def test_same_bytes(_, brief, square, cross):
    for name, given in main_variants():
        cases = [brief["lm"], square[2], square[3]] + ([] if given.get("causal") else cross[:2])
        whole = [case.attend(**given) for case in cases]
        for split in ["1", "64", "3,1,40,7"] if given.get("attention") != "nystrom" else []:
            same = [c.attend(split=split, **given) == w for c, w in zip(cases, whole)]
            check(f"same bytes in calls of {split}: {name}", all(same))
        for threads in [2, 5]:
            same = [c.attend(threads=threads, **given) == w for c, w in zip(cases, whole)]
            check(f"same bytes with {threads} threads: {name}", all(same))


def state_of(case, **given):
    path = case.folder / "state"
    case.attend("--state-out", path, causal=True, **given)
    return path.read_bytes()


def test_isas(_, brief, square):
    cases = [brief["encoder"], *square[1:4], brief["lm"]]
    # Scalar code takes its time over the many features of the last two.
    variants = [(name, given, cases if given.get("map") in ELEMENTWISE else cases[:3])
                for name, given in main_variants()]
    variants += [(f"{map}, window", dict(map=map, causal=True, window=16), cases[:3])
                 for map in MAPS]
    automatic = {name: [c.attend(**given) for c in some] for name, given, some in variants}
    check("the automatic instruction set is the default",
          cases[0].attend(isa="auto") == cases[0].attend())
    for isa in present_isas("--dir", cases[0].folder, "--out", cases[0].folder / "out.npy"):
        for name, given, some in variants:
            same = [c.attend(isa=isa, **given) == a for c, a in zip(some, automatic[name])]
            check(f"same bytes with {isa}: {name}", all(same))
        for map in MAPS:
            check(f"same state with {isa}: {map}",
                  state_of(cases[2], map=map, isa=isa) == state_of(cases[2], map=map))


def test_masks_and_extremes(work):
    g = np.random.default_rng(11)
    q, k, v = [g.standard_normal((40, 2, 17)).astype(np.float32) for _ in range(3)]
    kept = g.random(40) < 0.6
    k[~kept] = -np.inf
    masked, absent = Case(work / "masked", [q, k, v]), Case(work / "absent", [q, k[kept], v[kept]])
    for given in [dict(map=m) for m in MAPS if m not in ["identity", *CANCELLING]] \
            + [dict(attention="softmax")]:
        name = given.get("map", "exact attention")
        check(f"a masked key is as if absent: {name}",
              masked.attend(**given) == absent.attend(**given))
    for map, norm in itertools.product(["elu1", "relu", "exp"], ["sum", "length"]):
        check_errors(f"a masked key keeps its place in a window and in the count: {map}, {norm}",
                     [masked], map=map, norm=norm, window=5)
    k[~kept] = 0
    q, k = [np.clip(x.astype(np.float64) * 2e38, -3e38, 3e38).astype(np.float32) for x in (q, k)]
    huge = Case(work / "huge", [q, k, v * np.float32(1e29)])
    for map, causal in itertools.product(["exp", "softmax", *FAVOR], [False, True]):
        out = huge.output(map=map, causal=causal)
        check(f"huge queries and keys stay finite: {map}, {'causal' if causal else 'not causal'}",
              np.isfinite(out).all() and abs(out).max() < 1e31)
    v[7, 1, 3] = np.nan
    q, k = np.sign(q), np.sign(k)
    out = Case(work / "nan", [q, k, v]).output(causal=True)
    check("a NaN stays in its head and is not hidden",
          np.isfinite(out[:, 0]).all() and np.isnan(out[7:, 1, 3]).all())


# ---- States ------------------------------------------------------------------------------------

def test_states(work, case):
    q, k, v = case.data
    first = Case(work / "first", [x[:100] for x in case.data])
    second = Case(work / "second", [x[100:] for x in case.data])
    a, b, c = [work / f"state-{x}" for x in "abc"]
    for map, window in itertools.product(MAPS, [{}, {"window": 37}]):
        given = dict(map=map, causal=True, **window)
        whole = case.output("--state-out", c, **given)
        parts = [first.output("--state-out", a, **given),
                 second.output("--state-in", a, "--state-out", b, **given)]
        check(f"a causal sequence continues with the same bytes: {map}{', window' * len(window)}",
              np.concatenate(parts).tobytes() == whole.tobytes() and bytes_of(b) == bytes_of(c))
    for map in MAPS:
        first.attend("--state-out", a, map=map, causal=True)
        second.attend("--state-in", a, "--state-out", b, map=map, causal=True)
        before = bytes_of(a)
        second.attend("--state-in", a, "--state-out", a, map=map, causal=True)
        check(f"a state file is continued in place: {map}",
              bytes_of(a) == bytes_of(b) != before)

        ahead = Case(work / f"ahead-{map}", [q[:0], k[:100], v[:100]])
        rest = Case(work / f"rest-{map}", [q, k[100:], v[100:]])
        ahead.attend("--state-out", a, map=map)
        check(f"without --causal, queries see the keys of the state too: {map}",
              rest.attend("--state-in", a, map=map) == case.attend(map=map))


def test_foreign_states(work, lm, encoder):
    state = work / "state"
    lm.attend("--state-out", state, causal=True)
    content = state.read_bytes()
    # More query heads leave the size of the state as it is, so that only its contents can tell.
    same_size = Case(work / "other-heads", [np.repeat(lm.data[0], 2, axis=1), *lm.data[1:]])
    others = {"another map": (lm, dict(map="relu")), "a window": (lm, dict(window=9)),
              "another norm": (lm, dict(norm="none")),
              "another scale": (lm, dict(scale=0.5)), "another epsilon": (lm, dict(eps=1)),
              "other shapes": (encoder, {}), "other query heads": (same_size, {})}
    for name, (case, given) in others.items():
        refuse(f"a state of {name}", "--dir", case.folder, "--out", OUT, "--causal", "--state-in",
               state, *options(**given), says=[b"state"])
    pairs = {"another seed": (dict(map="favor"), dict(map="favor", seed=1)),
             "other features": (dict(map="favor"), dict(map="favor", features=255)),
             "another form of favor": (dict(map="favor"), dict(map="favor-simple")),
             "another degree": (dict(map="expdef"), dict(map="expdef", degree=1)),
             "expdef for taylor": (dict(map="expdef"), dict(map="taylor")),
             "another window": (dict(window=9), dict(window=10))}
    for name, (here, there) in pairs.items():
        encoder.attend("--state-out", state, causal=True, **here)
        refuse(f"a state of {name}", "--dir", encoder.folder, "--out", OUT, "--causal",
               "--state-in", state, *options(**there), says=[b"state"])
    files = {"a truncated state": content[:-1], "a state with bytes behind it": content + b"\0",
             "an empty state file": b"", "a state of zeros": bytes(len(content)),
             "a state of another byte order": content[3::-1] + content[4:],
             "no state at all": (b"To be, or not to be. " * len(content))[:len(content)]}
    for name, damaged in files.items():
        state.write_bytes(damaged)
        refuse(name, "--dir", lm.folder, "--out", OUT, "--causal", "--state-in", state)
    refuse("a missing state", "--dir", lm.folder, "--out", OUT, "--causal", "--state-in",
           work / "none")
    g = np.random.default_rng(12)
    small = Case(work / "small", [g.standard_normal((5, 1, 3)).astype(np.float32)] * 3)
    small.attend("--state-out", state, causal=True, map="exp")
    content, survived = state.read_bytes(), True
    for i in range(0, len(content), max(1, len(content) // 100)):
        state.write_bytes(content[:i] + b"\xff" + content[i + 1:])
        survived &= run("--dir", small.folder, "--out", small.folder / "out.npy", "--causal",
                        "--map", "exp", "--state-in", state).returncode in (0, 2)
    check("a damaged state is refused or used, never a crash", survived)


# ---- What is refused ---------------------------------------------------------------------------

def npy(header, data=b"", version=(1, 0), magic=b"\x93NUMPY", length=None):
    if isinstance(header, str):
        header = header.encode()
    size = len(header) if length is None else length
    return magic + bytes(version) + size.to_bytes(2 if version[0] == 1 else 4, "little") + header \
        + data


def header(descr="'<f4'", order="False", shape="(4, 2, 3)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


DATA = bytes(4 * 4 * 2 * 3)

BAD_FILES = {
    "an empty file": b"",
    "half a magic string": b"\x93NUM",
    "a text file": b"one,two,three\n" * 20,
    "version 0.0": npy(header(), DATA, (0, 0)),
    "version 1.1": npy(header(), DATA, (1, 1)),
    "version 4.0": npy(header(), DATA, (4, 0)),
    "a file that ends in its prelude": b"\x93NUMPY\x01\x00\x50",
    "a file that ends in its header": npy(header())[:40],
    "a header length beyond the file": npy(header(), length=5000),
    "a giant header length": npy(header(), DATA, (2, 0), length=0xfffffff0),
    "a header length of 0": npy("", DATA),
    "float64": npy(header("'<f8'"), DATA * 2),
    "big-endian float32": npy(header("'>f4'"), DATA),
    "int32": npy(header("'<i4'"), DATA),
    "a structured dtype": npy(header("[('x', '<f4')]"), DATA),
    "a dtype of many fields": npy(header("[" + "('x', '<f4'), " * 100 + "]"), DATA),
    "a dtype with a line break": npy(header("'<f4\n'"), DATA),
    "a dtype without quotes": npy(header("f4"), DATA),
    "an endless dtype": npy(header("'" + "f" * 3000 + "'"), DATA),
    "Fortran order": npy(header(order="True"), DATA),
    "an order that is no truth value": npy(header(order="0"), DATA),
    "an order with a tail": npy(header(order="Falsehood"), DATA),
    "no dimension": npy(header(shape="()"), DATA[:4]),
    "one dimension": npy(header(shape="(24,)"), DATA),
    "four dimensions": npy(header(shape="(4, 2, 3, 1)"), DATA),
    "a hundred dimensions": npy(header(shape="(" + "1, " * 100 + ")"), DATA),
    "a negative size": npy(header(shape="(-4, 2, 3)"), DATA),
    "a size that is no number": npy(header(shape="(4, two, 3)"), DATA),
    "a fraction as size": npy(header(shape="(4.0, 2, 3)"), DATA),
    "a leading zero": npy(header(shape="(04, 2, 3)"), DATA),
    "sizes without commas": npy(header(shape="(4 2 3)"), DATA),
    "two commas": npy(header(shape="(4,, 2, 3)"), DATA),
    "a shape that is a list": npy(header(shape="[4, 2, 3]"), DATA),
    "an open shape": npy(header(shape="(4, 2, 3"), DATA),
    "a size of 2^64": npy(header(shape="(18446744073709551616, 2, 3)"), DATA),
    "a product of 2^64": npy(header(shape="(4294967296, 4294967296, 1)")),
    "a product of heads and dimension of 2^64": npy(header(shape="(1, 4611686018427387904, 4)")),
    "a product of bytes of 2^64": npy(header(shape="(4611686018427387904, 1, 1)")),
    "no head": npy(header(shape="(4, 0, 3)")),
    "dimension 0": npy(header(shape="(4, 2, 0)")),
    "dimension 65537": npy(header(shape="(1, 1, 65537)"), bytes(4 * 65537)),
    "a terabyte that is not there": npy(header(shape="(1000000000, 16, 16)"), DATA),
    "one byte missing": npy(header(), DATA[:-1]),
    "one token missing": npy(header(), DATA[:-24]),
    "one byte too many": npy(header(), DATA + b"\0"),
    "no dtype": npy("{'fortran_order': False, 'shape': (4, 2, 3)}", DATA),
    "no order": npy("{'descr': '<f4', 'shape': (4, 2, 3)}", DATA),
    "no shape": npy("{'descr': '<f4', 'fortran_order': False}", DATA),
    "two shapes": npy(header()[:-3] + "'shape': (4, 2, 3)}", DATA),
    "two dtypes": npy(header()[:-3] + "'descr': '<f4'}", DATA),
    "an unknown key": npy(header()[:-3] + "'colour': 'red'}", DATA),
    "no braces": npy(header()[1:-2], DATA),
    "an open dictionary": npy(header()[:-2], DATA),
    "text behind the dictionary": npy(header() + "x", DATA),
    "a zero byte in the header": npy(header() + "\0   ", DATA),
    "a colon missing": npy(header().replace(":", " ", 1), DATA),
}

GOOD_FILES = {
    "version 1.0": npy(header(), DATA),
    "version 2.0": npy(header(), DATA, (2, 0)),
    "version 3.0": npy(header(), DATA, (3, 0)),
    "float16": npy(header("'<f2'"), DATA[:48]),
    "another order of keys": npy('{"shape":(4,2,3),"descr":"<f4","fortran_order":False}', DATA),
    "blanks everywhere": npy(header().replace(",", " , ").replace(":", " : ") + " " * 300, DATA),
}


def test_files(work):
    plain = Case(work / "plain", [np.zeros((4, 2, 3), np.float32)] * 3)
    expected, path = plain.attend(), plain.folder / "other.npy"
    for name, content in BAD_FILES.items():
        path.write_bytes(content)
        # As all three, so that no difference of shapes is what is refused.
        refuse(name, "--q", path, "--k", path, "--v", path, "--out", OUT, says=[b"other.npy"])
    for name in ["float64", "big-endian float32", "a structured dtype", "a dtype of many fields"]:
        path.write_bytes(BAD_FILES[name])
        refuse(f"{name}, and what is taken", "--q", path, "--k", path, "--v", path, "--out", OUT,
               says=[b"dtype", b"expected '<f4'", b"'<f2'"])
    path.write_bytes(BAD_FILES["one byte missing"])
    for bad in "qkv":
        files = [x for y in "qkv" for x in
                 ("--" + y, path if y == bad else plain.folder / (y + ".npy"))]
        refuse(f"one byte missing in {bad}", *files, "--out", OUT, says=[b"other", b"truncated"])
    for name, content in GOOD_FILES.items():
        path.write_bytes(content)
        shutil.copy(path, plain.folder / "k.npy")
        check(f"read: {name}", plain.attend() == expected)
    valid = npy(header(), DATA)
    survived = True
    g = np.random.default_rng(13)
    for _ in range(100):
        damaged = bytearray(valid)
        for _ in range(g.integers(1, 4)):
            damaged[g.integers(0, len(valid) - len(DATA))] = g.integers(0, 256)
        (plain.folder / "k.npy").write_bytes(damaged)
        done = run("--dir", plain.folder, "--out", plain.folder / "out.npy")
        survived &= done.returncode in (0, 2) and done.stderr.count(b"\n") == done.returncode // 2
    check("100 damaged headers are refused or read, never a crash", survived)


def test_projections(work):
    case = Case(work / "case", [np.ones((4, 2, 3), np.float32)] * 3)
    path, rows = work / "rows.npy", np.arange(15, dtype=np.float32).reshape(5, 3) / 8
    np.save(path, rows)
    plain = case.attend(map="favor", projection=path)
    check("as many features as the projection has rows",
          case.attend(map="favor", projection=path, features=5) == plain)
    huge = rows.copy()
    for bad in [np.nan, np.inf, -np.inf, 1.5e6, -1.5e6]:
        huge[3, 1] = bad
        np.save(path, huge)
        refuse(f"a projection with {bad}", "--dir", case.folder, "--out", OUT, "--map", "favor",
               "--projection", path, says=[b"rows.npy", b"(3, 1)", b"finite"])
    good = npy(header(shape="(5, 3)"), bytes(60))
    bad = {"of another dimension": (npy(header(shape="(3, 5)"), bytes(60)), b"expected 3"),
           "of one axis": (npy(header(shape="(15,)"), bytes(60)), b"(features, dim)"),
           "of three axes": (npy(header(shape="(5, 1, 3)"), bytes(60)), b"(features, dim)"),
           "without rows": (npy(header(shape="(0, 3)")), b"at least 1"),
           "of float64": (npy(header("'<f8'", shape="(5, 3)"), bytes(120)), b"'<f4'"),
           "in Fortran order": (npy(header(order="True", shape="(5, 3)"), bytes(60)), b"C order"),
           "that is truncated": (good[:-1], b"truncated"), "with a tail": (good + b"x", b"behind"),
           "that is empty": (b"", b".npy"), "of text": (b"0.5, 0.25\n" * 9, b".npy")}
    for name, (content, says) in bad.items():
        path.write_bytes(content)
        refuse(f"a projection {name}", "--dir", case.folder, "--out", OUT, "--map", "favor",
               "--projection", path, says=[b"rows.npy", says])
    path.write_bytes(good)
    refuse("a projection of other rows than --features", "--dir", case.folder, "--out", OUT,
           "--map", "favor", "--projection", path, "--features", 6,
           says=[b"rows.npy", b"5 rows", b"expected 6"])
    refuse("a missing projection", "--dir", case.folder, "--out", OUT, "--map", "favor",
           "--projection", work / "none.npy", says=[b"none.npy"])


def test_shapes(work):
    def case(name, q, k, v):
        return Case(work / name, [np.ones(s, np.float32) for s in (q, k, v)]).folder

    bad = {"keys and values of different lengths": ((4, 2, 3), (4, 2, 3), (5, 2, 3)),
           "keys and values of different heads": ((4, 2, 3), (4, 2, 3), (4, 1, 3)),
           "queries and keys of different dimensions": ((4, 2, 3), (4, 2, 5), (4, 2, 3)),
           "heads that are no multiple": ((4, 3, 3), (4, 2, 3), (4, 2, 3)),
           "fewer heads than key/value heads": ((4, 1, 3), (4, 2, 3), (4, 2, 3))}
    for i, (name, shapes) in enumerate(bad.items()):
        refuse(name, "--dir", case(f"bad-{i}", *shapes), "--out", OUT)
    heads = case("heads", (1, 65537, 1), (1, 65537, 1), (1, 65537, 1))
    for more in [[], ["--causal"], ["--attention", "softmax"]]:
        refuse(f"65537 heads {more}", "--dir", heads, "--out", OUT, *more,
               says=[b"q.npy: 65537 heads", b"1 to 65536 heads"])
    halves = Case(work / "halves", [np.ones((2, 4, 2048), x) for x in
                                    (np.float16, np.float32, np.float16)]).folder
    np.save(work / "d.npy", np.zeros((1, 4), np.float32))
    for more in [[], ["--causal"], ["--split", 1], ["--rule", "gated", "--decay", work / "d.npy"]]:
        refuse(f"rows of float16 that are too long {more[:1]}", "--dir", halves, "--out", OUT,
               *more, says=[b"q.npy, v.npy: float16", b"is 6144", b"4096", b"float32"])
    for kind in ["softmax", "nystrom"]:
        done = run("--dir", halves, "--out", work / "halves.npy", "--attention", kind)
        check(f"rows of float16 of any length: {kind}", done.returncode == 0, repr(done.stderr))
    uneven = case("uneven", (4, 2, 3), (5, 2, 3), (5, 2, 3))
    refuse("--causal with more keys", "--dir", uneven, "--out", OUT, "--causal")
    refuse("--causal with more keys, exact", "--dir", uneven, "--out", OUT, "--causal",
           "--attention", "softmax")
    refuse("--window with more keys", "--dir", uneven, "--out", OUT, "--window", 2,
           says=[b"--window"])
    refuse("--compare with 0 tokens", "--dir", case("none", (0, 1, 3), (0, 1, 3), (0, 1, 3)),
           "--compare")


def test_options(work):
    d = Case(work / "data", [np.ones((4, 2, 3), np.float32)] * 3).folder
    base = ["--dir", d, "--out", OUT]
    q, k, v = [d / (x + ".npy") for x in "qkv"]
    refuse("no arguments")
    refuse("no output", "--dir", d)
    refuse("no input", "--out", OUT)
    refuse("no values", "--q", q, "--k", k, "--out", OUT, says=[b"--v"])
    refuse("--dir and --q", *base, "--q", q)
    refuse("an unknown option", *base, "--frobnicate", says=[b"--frobnicate"])
    refuse("an unknown option with line breaks", *base, "--x\ny\n")
    refuse("an abbreviated option", *base, "--caus")
    refuse("a short option", *base, "-c")
    refuse("an argument that is no option", *base, "causal")
    refuse("an empty argument", *base, "")
    refuse("an option twice", *base, "--map", "relu", "--map", "exp")
    refuse("a flag twice", *base, "--causal", "--causal")
    refuse("a flag with a value", *base, "--causal=1")
    refuse("an option without its value", *base, "--map")
    refuse("an option before its value", *base, "--map", "--causal")
    refuse("an empty value", *base, "--map=")
    wrong = {"--attention": ["exact", "Linear", "linear "], "--map": ["elu", "EXP", "favor-hyper"],
             "--norm": ["default", "rows"], "--isa": ["sse2", "AVX2", "1"],
             "--precision": ["double", "Plain"], "--state-type": ["f64", "F16", "half", "0"],
             "--scale": ["0", "-1", "nan", "inf", "1e39", "1e-60", "1e-999", "1e999", "1x",
                         " 1", "0x1p3", "1e", "."],
             "--eps": ["-1", "nan", "infinity", "1e400", "1e-60", "1e-999", "0.00001e-50", "0.1.2",
                       "--"],
             "--threads": ["0", "-2", "257", "2.0", "two", "18446744073709551617", "+2"],
             "--split": ["0", "3,0", "3,", ",3", "3,,4", "-1", "3;4", "3 4", "x", "1e3",
                         "99999999999999999999"]}
    for option, values in wrong.items():
        for value in values:
            refuse(f"{option} {value!r}", *base, f"{option}={value}", says=[option.encode()])
    whole = {"--features": ("favor", 1, 2 ** 18), "--seed": ("favor-simple", 0, 2 ** 64 - 1),
             "--orthogonal": ("favor-hyperbolic", 0, 1), "--degree": ("taylor", 1, 8),
             "--window": ("relu", 1, 2 ** 30 - 1)}
    for option, (map, least, most) in whole.items():
        for value in [least - 1, most + 1, "1.0", "", " 1", "1x", "0x1"]:
            refuse(f"{option} {value!r}", *base, "--map", map, f"{option}={value}",
                   says=[option.encode()])
    for option, value in itertools.product(["--landmarks", "--iterations"], ["0", "-1", "2.5"]):
        refuse(f"{option} {value}", *base, "--attention", "nystrom", f"{option}={value}",
               says=[option.encode()])
    for kind, option, most in [("softmax", "--window", 2 ** 30 - 1),
                               ("softmax", "--sinks", 2 ** 30 - 1),
                               ("nystrom", "--landmarks", 65536)]:
        for value in [most + 1, 10 ** 11, 2 ** 64 - 1]:
            refuse(f"{option} {value}", *base, "--attention", kind, option, value,
                   says=[option.encode(), f"to {most}\n".encode()])
    state = ["--state-in", d / "s"]
    state_out = ["--state-out", d / "t"]
    linear = [["--map", "exp"], ["--norm", "sum"], ["--eps", "1"], state, state_out,
              ["--precision", "compensated"], ["--state-type", "f16"], ["--window", 2],
              ["--features", 5], ["--degree", 2]]
    favor = [["--features", 5], ["--seed", 1], ["--orthogonal", 1], ["--projection", q]]
    nystrom = [["--landmarks", 3], ["--iterations", 3]]
    sums = [x for x in linear if x[0] != "--window"]
    halves = [["--state-type", kind] for kind in ["f16", "bf16"]]
    scopes = {("--attention", "softmax"): sums + nystrom, ("--map", "taylor"): favor + halves,
                  ("--attention", "nystrom"): linear + [["--split", "2"]],
                  ("--map", "elu1"): favor + nystrom + [["--degree", 2]],
                  ("--map", "favor"): nystrom + halves + [["--degree", 2]],
                  ("--compare", "--causal"): nystrom}
    for (a, b), unfit in scopes.items():
        for extra in unfit:
            refuse(f"{extra[0]} with {a} {b}", *(base[:2] if a == "--compare" else base), a, b,
                   *extra, says=[extra[0].encode(), b"belongs to"])
    for extra in favor[1:3]:
        refuse(f"--projection with {extra[0]}", *base, "--map", "favor", "--projection", q, *extra,
               says=[b"exclude"])
    for extra in [["--split", "2"], state, state_out]:
        refuse(f"--window with {extra[0]} without --causal", *base, "--window", 2, *extra,
               says=[b"needs --causal"])
    refuse("--precision with --window", *base, "--causal", "--window", 2, "--precision",
           "compensated", says=[b"--precision compensated", b"--window"])
    for (kind, extra), causal in itertools.product(
            itertools.product(["f16", "bf16"], ["--window=2", "--precision=compensated"]),
            [[], ["--causal"]]):
        refuse(f"--state-type {kind} with {' '.join([extra, *causal])}", *base, extra, *causal,
               "--state-type", kind,
               says=[b"--state-type " + kind.encode(), extra.split("=")[0].encode()])
    refuse("--causal with nystrom", *base, "--attention", "nystrom", "--causal",
           says=[b"nystrom", b"--causal", b"combination"])
    for extra in [["--out", OUT], ["--map", "exp"], ["--norm", "sum"], ["--split", "2"], state,
                  ["--precision", "compensated"], ["--state-type", "bf16"],
                  ["--attention", "linear"], ["--state-out", OUT]]:
        refuse(f"{extra[0]} with --compare", "--dir", d, "--compare", *extra)
    for extra in [["--norm", "none"], ["--norm", "length"], ["--map", "softmax"]]:
        refuse(f"--eps with {extra[0]} {extra[1]}", *base, "--eps", "1", *extra)
    refuse("one file for --out and --state-out", *base, "--state-out", OUT)


def test_paths(work, case):
    d = case.folder
    refuse("a missing folder", "--dir", work / "nowhere", "--out", OUT, says=[b"nowhere/q.npy"])
    refuse("a long path", "--dir", work / "/".join(["n" * 200] * 8), "--out", OUT,
           says=[b"nnn/q.npy", b"cannot be opened: "])
    refuse("a missing file", "--q", d / "q.npy", "--k", work / "k\n.npy", "--v", d / "v.npy",
           "--out", OUT)
    refuse("a folder as input", "--q", d, "--k", d / "k.npy", "--v", d / "v.npy", "--out", OUT)
    refuse("a device as input", "--q", "/dev/zero", "--k", d / "k.npy", "--v", d / "v.npy",
           "--out", OUT)
    refuse("an output in a missing folder", "--dir", d, "--out", work / "nowhere" / "out.npy",
           says=[b"nowhere"])
    refuse("a folder as output", "--dir", d, "--out", work)
    refuse("a state in a missing folder", "--dir", d, "--out", OUT, "--state-out",
           work / "nowhere" / "state")
    if os.path.exists("/dev/full"):
        # By a link: a program that renames onto its output must not get at the device as root.
        device = work / "full"
        device.symlink_to("/dev/full")
        refuse("an output on a full device", "--dir", d, "--out", device, says=[b"full"])
        tiny = random_case(work / "tiny", 14, 1, 1, 1, 1, 1, 1).folder
        refuse("a small output on a full device", "--dir", tiny, "--out", device, says=[b"full"])
        refuse("a state on a full device", "--dir", d, "--out", OUT, "--state-out", device)
        with open("/dev/full", "wb") as full:
            refuse("--compare on a full device", "--dir", d, "--compare", stdout=full)
            refuse("--help on a full device", "--help", stdout=full)
        check("a link to a device stays one", device.is_symlink())


TEMPORARY = ".attend0.tmp"


def test_replacing(folder, case):
    out, link = folder / "out.npy", folder / "link.npy"
    expected = case.attend()
    out.write_bytes(b"older")
    done = run("--dir", case.folder, "--out", out, "--state-out", folder / "nowhere" / "state")
    check("an older output survives a failure",
          done.returncode == 2 and bytes_of(out) == b"older")
    run("--dir", case.folder, "--out", out)
    check("an older output is replaced", bytes_of(out) == expected)
    out.write_bytes(b"")
    link.symlink_to(out)
    run("--dir", case.folder, "--out", link)
    check("a symbolic link is written through", link.is_symlink() and bytes_of(out) == expected)
    (folder / TEMPORARY).write_bytes(b"someone else's")
    run("--dir", case.folder, "--out", out)
    check("a file with the temporary's name is left alone",
          bytes_of(folder / TEMPORARY) == b"someone else's"
          and sorted(os.listdir(folder)) == [TEMPORARY, "link.npy", "out.npy"])
    run("--dir", case.folder, "--out", "plain.npy", cwd=folder)
    check("an output in the current folder", bytes_of(folder / "plain.npy") == expected)
    v = folder / "v.npy"
    shutil.copy(case.folder / "v.npy", v)
    run("--q", case.folder / "q.npy", "--k", case.folder / "k.npy", "--v", v, "--out", v)
    check("an output may take the place of an input", bytes_of(v) == expected)
    for length in [252, 255]:
        name = folder / ("n" * length)
        run("--dir", case.folder, "--out", name, "--state-out", folder / ("s" * length))
        check(f"names of {length} bytes", bytes_of(name) == expected
              and bytes_of(folder / ("s" * length)))
    refuse("a name of 256 bytes", "--dir", case.folder, "--out", folder / ("n" * 256))


def test_links(folder, case):
    """A symbolic link is as good as what it leads to, and stays."""
    folder, expected = pathlib.Path(folder).resolve(), case.attend()
    target, away = folder / "target.npy", folder / "away"
    away.mkdir()
    links = {"absolute": target, "relative": "target.npy", "of a link": folder / "relative",
             "by a folder": "away/../target.npy"}
    for name, to in links.items():
        link = folder / name
        link.symlink_to(to)
        target.write_bytes(b"older")
        done = run("--dir", case.folder, "--out", link, "--state-out", folder / "nowhere" / "x")
        check(f"what a link leads to survives a failure: {name}",
              done.returncode == 2 and target.read_bytes() == b"older" and link.is_symlink())
        for content in [b"older", None]:
            target.unlink() if content is None else target.write_bytes(content)
            run("--dir", case.folder, "--out", link)
            check(f"written through a link to {'a file' if content else 'none as yet'}: {name}",
                  link.is_symlink() and os.readlink(link) == str(to)
                  and bytes_of(target) == expected)
    other = away / "into"
    other.symlink_to("../target.npy")
    target.unlink()
    run("--dir", case.folder, "--out", other)
    check("a relative link is read from its own folder", bytes_of(target) == expected)
    (folder / "loop").symlink_to("loop")
    refuse("a link to itself", "--dir", case.folder, "--out", folder / "loop", says=[b"loop"])
    (folder / "lost").symlink_to(folder / "nowhere" / "x")
    refuse("a link into a missing folder", "--dir", case.folder, "--out", folder / "lost",
           says=[b"lost"])
    (folder / "slash").symlink_to("absent/")
    refuse("a link to a missing folder", "--dir", case.folder, "--out", folder / "slash",
           says=[b"slash"])
    check("no temporary stays behind", sorted(os.listdir(folder)) == sorted(
        [*links, "target.npy", "away", "loop", "lost", "slash"]))


def test_two_outputs(folder, case):
    """Two outputs that are one file would leave one."""
    folder = pathlib.Path(folder).resolve()
    (folder / "sub").mkdir()
    for exists in [False, True]:
        a = folder / f"a{exists}"
        pairs = {"./a": f"{folder}/./a{exists}", "sub/../a": f"{folder}/sub/../a{exists}",
                 "a link": folder / f"link{exists}",
                 "a link to its folder": folder / f"folder{exists}" / f"a{exists}"}
        (folder / f"link{exists}").symlink_to(a)
        (folder / f"folder{exists}").symlink_to(folder)
        if exists:
            a.write_bytes(b"older")
            pairs["a hard link"] = folder / "hard"
            os.link(a, folder / "hard")
        for name, b in pairs.items():
            for out, state in [(a, b), (b, a)]:
                refuse(f"one file for two outputs, {'old' if exists else 'new'}: {name}", "--dir",
                       case.folder, "--out", out, "--state-out", state, says=[b"same file"])
        check("an output of two names is left alone",
              bytes_of(a) == (b"older" if exists else None))
    done = run("--dir", case.folder, "--out", "/dev/null", "--state-out", "/dev/null")
    check("/dev/null takes both outputs", done.returncode == 0 and not done.stderr)


def mode_of(path):
    return path.stat().st_mode & 0o7777


def test_modes(folder, case):
    out, state = folder / "out.npy", folder / "state"
    expected = case.attend()
    for umask, mode in [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)]:
        out.unlink(missing_ok=True)
        before = os.umask(umask)
        run("--dir", case.folder, "--out", out)
        os.umask(before)
        check(f"a new file, umask {umask:03o}", mode_of(out) == mode)
    for mode in [0o600, 0o640, 0o666, 0o755]:
        for path in [out, state]:
            path.write_bytes(b"older")
            path.chmod(mode)
        run("--dir", case.folder, "--out", out, "--state-out", state)
        check(f"a file of mode {mode:03o} keeps it",
              mode_of(out) == mode_of(state) == mode and bytes_of(out) == expected)
    with contextlib.suppress(OSError):  # it takes root
        os.chown(out, 1234, 1235)
        run("--dir", case.folder, "--out", out)
        check("a file keeps its owner",
              (out.stat().st_uid, out.stat().st_gid) == (1234, 1235) and mode_of(out) == 0o755)


def limited(bytes):
    """No file may become longer than this: a disk that is full after so much."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, bytes))


def test_full_disk(folder, case):
    out, state = folder / "out.npy", folder / "state"
    size = len(case.attend())
    for name, limit in {"nothing": 0, "the header": 130, "half": size // 2,
                        "all but a byte": size - 1, "the output but not the state": size}.items():
        out.write_bytes(b"older")
        done = run("--dir", case.folder, "--out", out, "--state-out", state, "--map", "taylor",
                   preexec_fn=limited(limit))
        check(f"a disk that holds {name}",
              done.returncode == 2 and done.stderr.startswith(b"attend: ")
              and done.stderr.count(b"\n") == 1 and bytes_of(out) == b"older"
              and os.listdir(folder) == ["out.npy"], repr(done.stderr))


def may_not_replace():
    """Takes root's rights over others' files in a sticky folder from a process to be."""
    drop_from_bounding_set, chown, fowner = 24, 0, 3
    for right in [chown, fowner]:
        if ctypes.CDLL(None).prctl(drop_from_bounding_set, right, 0, 0, 0) != 0:
            raise OSError("prctl")


def test_renaming(folder, case):
    """A file that can be written, but not replaced, as shows only when all else is done."""
    ours, sticky = folder / "out.npy", folder / "sticky"
    theirs = sticky / "state"
    sticky.mkdir()
    theirs.write_bytes(b"older")
    try:
        for path, mode in {theirs: 0o666, sticky: 0o1777}.items():
            path.chmod(mode)
            os.chown(path, 1234, 1234)
        run("--help", preexec_fn=may_not_replace)
    except (OSError, AttributeError, subprocess.SubprocessError):
        return  # it takes a Linux, and root on it
    for content in [b"older", None]:
        if content:
            ours.write_bytes(content)
        done = run("--dir", case.folder, "--out", ours, "--state-out", theirs,
                   preexec_fn=may_not_replace)
        check(f"an output is taken back if a later one fails: {'old' if content else 'new'}",
              done.returncode == 2 and b"sticky/state: cannot be created" in done.stderr
              and bytes_of(ours) == content and bytes_of(theirs) == b"older"
              and os.listdir(sticky) == ["state"]
              and sorted(os.listdir(folder)) == ["out.npy"] * bool(content) + ["sticky"],
              repr(done.stderr))
        ours.unlink(missing_ok=True)


def test_streams(folder, case):
    """Devices, pipes and standard output are written directly."""
    expected = case.attend()
    os.mkfifo(folder / "pipe")
    pipe = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    run("--dir", case.folder, "--out", folder / "pipe")
    check("an output to a pipe, which holds all of it", os.read(pipe, 65536) == expected)
    done = run("--dir", case.folder, "--out", folder / "pipe", "--state-out",
               folder / "nowhere" / "state")
    check("nothing of a failure goes into a pipe",
          done.returncode == 2 and os.read(pipe, 65536) == b"")
    done = run("--dir", case.folder, "--out", folder / "pipe", "--state-out", folder / "state",
               preexec_fn=limited(10))
    check("nothing goes into a pipe before the files are written",
          done.returncode == 2 and os.read(pipe, 65536) == b"" and not (folder / "state").exists())
    os.close(pipe)
    refuse("a pipe for both outputs", "--dir", case.folder, "--out", folder / "pipe",
           "--state-out", folder / "pipe", says=[b"same file"])
    if not os.path.exists("/dev/stdout"):
        return
    done = run("--dir", case.folder, "--out", "/dev/stdout")
    check("an output to /dev/stdout, a pipe", done.stdout == expected and not done.stderr)
    path = folder / "printed"
    path.write_bytes(b"before")
    with open(path, "ab") as printed:
        run("--dir", case.folder, "--out", "/dev/stdout", stdout=printed)
    check("an output to /dev/stdout, the end of a file", path.read_bytes() == b"before" + expected)
    read, write = os.pipe()
    os.close(read)
    done = run("--dir", case.folder, "--out", "/dev/stdout", "--state-out", folder / "state",
               stdout=write)
    os.close(write)
    check("a reader that went away",
          done.returncode == 2 and b"Broken pipe" in done.stderr
          and sorted(os.listdir(folder)) == ["pipe", "printed"], repr(done.stderr))
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            refuse("an output to /dev/stdout, a full device", "--dir", case.folder, "--out",
                   "/dev/stdout", "--state-out", folder / "state", stdout=full)
        check("no state is left then", not (folder / "state").exists())


# ---- The comparison ----------------------------------------------------------------------------

METHODS = MAPS + ["exact", "nystrom"]


def compared_with(**given):
    """The options of --compare for its methods, one by one."""
    for map in MAPS:
        own = {"features": FAVOR, "degree": MONOMIALS, "landmarks": [], "window": MAPS}
        yield map, dict(map=map, **{k: v for k, v in given.items() if map in own.get(k, MAPS)})
    if not given.get("causal"):
        own = {k: v for k, v in given.items() if k in ("landmarks", "scale")}
        yield "nystrom", dict(attention="nystrom", **own)


def table(case, *more):
    """The rows of --compare: name -> (norm, error, microseconds, speed-up)."""
    done = run("--dir", case.folder, "--compare", *more)
    if done.returncode != 0 or done.stderr:
        return {}
    rows = [line.split() for line in done.stdout.decode().splitlines()]
    return {r[0]: r[1:] for r in rows if len(r) == 5 and r[0] in METHODS}


def check_table(name, case, **given):
    """Every row of --compare tells the error of what attend writes under the same options."""
    seen = {k: v for k, v in given.items() if k in ("causal", "scale")}
    exact = oracle(case.data, "softmax", **seen)
    begin = time.monotonic()
    rows = table(case, *options(**given))
    seconds = time.monotonic() - begin
    methods = dict(compared_with(**given))
    check(f"{name}: a row for each method and for exact attention",
          sorted(rows) == sorted([*methods, "exact"]), f"{seconds:.1f} s")
    for method, own in methods.items():
        expected = np.linalg.norm(case.output(**own) - exact) / np.linalg.norm(exact)
        norm, shown, time_taken, speed_up = rows.get(method, ["", "nan", "nan", "nan"])
        ratio = float(rows.get("exact", ["", "", "nan"])[2]) / float(time_taken)
        default = {"softmax": "feature", "nystrom": "-"}.get(method, "sum")
        check(f"{name}: {method}", abs(float(shown) / expected - 1) < 1e-2 and norm == default
              and abs(float(speed_up) - ratio) < 0.01 + (0.01 + 0.001 / float(time_taken)) * ratio,
              f"{shown}, expected {expected:.4g}; {speed_up} times as fast")


def test_compare(work, real, square):
    for data, causal in [("lm", True), ("lm", False), ("encoder", False)]:
        check_table(f"--compare on {data}, {'causal' if causal else 'not causal'}", real[data],
                    causal=causal)
    more = dict(features=24, degree=3, window=9, landmarks=5, scale=0.02)
    check_table("--compare with options", square[2], **more)
    q, k, v = [x[:32].copy() for x in real["lm"].data]
    v[3, 0, 0] = np.nan
    rows = table(Case(work / "compare-nan", [q, k, v]), "--threads", "2", "--scale", "0.5")
    check("--compare does not hide a NaN", len(rows) == len(METHODS)
          and all(rows[m][1].strip("-") == "nan" for m in METHODS if m != "exact"))
    rows = table(Case(work / "compare-inf", [np.full((32, 1, 8), x, np.float32)
                                             for x in (1e5, 1e5, 1e30)]))
    check("--compare does not hide an overflow of the maps that grow like a polynomial",
          len(rows) == len(METHODS)
          and not any(np.isfinite(float(rows[m][1])) for m in ["elu1", "relu", *MONOMIALS])
          and all(np.isfinite(float(rows[m][1])) for m in ["exp", "softmax", *FAVOR]))
    wide = random_case(work / "wide", 22, 2, 2, 1, 1, 600, 1)
    done = run("--dir", wide.folder, "--compare")
    check("--compare leaves out what would take too many features",
          sorted(table(wide)) == sorted(set(METHODS) - set(MONOMIALS))
          and done.stdout.count(b"left out") == 2)
    for degree in [7, 8]:
        refuse(f"--compare with monomials of degree {degree} of 600", "--dir", wide.folder,
               "--compare", "--degree", degree)
    done = run("--dir", square[2].folder, "--compare", "--isa", "scalar")
    check("--compare names the instruction set and says why errors are large",
          b"scalar" in done.stdout and b"trained with" in done.stdout)


def test_help(_):
    check_common_options("--dir", "none", "--out", "none")
    done = run("--help")
    of_compare = done.stdout.split(b"\n  --compare")[1].split(b"\n\n")[0]
    check("--help tells what --compare refuses",
          all(option in of_compare for option in [b"--sinks", b"--soft-cap", b"--alibi"]))
    names = ["dir", "q", "k", "v", "out", "attention", "map", "norm", "scale", "eps", "causal",
             "precision", "state-type", "isa", "split", "threads", "state-in", "state-out",
             "compare", "help", "window", "features", "seed", "orthogonal", "projection",
             "degree", "landmarks", "iterations"]
    check("--help names every option, map and kind of attention",
          done.returncode == 0 and not done.stderr
          and all(b"--" + name.encode() in done.stdout for name in names)
          and all(word.encode() in done.stdout for word in MAPS + ["nystrom"]))


def make_tests(work, data_dir):
    real, square, cross = make_cases(work, data_dir)
    # Where bytes are compared, a part of the real heads tells as much, sooner.
    brief = {name: Case(work / f"{name}-brief", [x[:101] for x in case.data])
             for name, case in real.items()}
    of_files = [test_paths, test_replacing, test_links, test_two_outputs, test_modes,
                test_full_disk, test_renaming, test_streams]
    return {test_accuracy: (real, brief, square, cross),
            test_scale_and_epsilon: (real, square), test_features_and_degrees: (brief,),
            test_large_norms: (), test_windows: (brief, square), test_precision: (brief, square),
            test_state_types: (brief, square),
            test_random_features: (),
            test_nystrom: (real, brief, square, cross), test_same_bytes: (brief, square, cross),
            test_isas: (brief, square), test_masks_and_extremes: (), test_states: (real["lm"],),
            test_foreign_states: (real["lm"], real["encoder"]), test_files: (),
            test_projections: (), test_shapes: (), test_options: (),
            **dict.fromkeys(of_files, (square[2],)),
            test_compare: (real, square), test_help: ()}


if __name__ == "__main__":
    checks.main("attend", __doc__, make_tests)
