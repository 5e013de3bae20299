#!/usr/bin/env python3
"""Checks exact attention of examples/attend.c from outside: windows, sinks, soft caps, slopes and
float16, against an oracle in double precision written from the formulas alone.

    attend_exact_test.py PATH_TO_ATTEND

ATTEND_RUN is put before the command. Prints one line for each check and exits with 1 if any
failed. Needs Python 3 and NumPy.
"""
import sys

sys.dont_write_bytecode = True  # beside the source

import numpy as np

import checks
from checks import OUT, check, refuse, run

TOLERANCE = 1e-5
SOFTMAX = ["--attention", "softmax"]


def exact(q, k, v, causal=False, window=0, sinks=0, soft_cap=0, slopes=None):
    """[tokens][heads][dim], key and value heads shared by groups of query heads."""
    q, k, v = (x.astype(float) for x in (q, k, v))
    n_q, heads, dim = q.shape
    n_k, kv_heads = k.shape[:2]
    out = np.zeros((n_q, heads, v.shape[2]))
    i, j = np.arange(n_q)[:, None] + n_k - n_q, np.arange(n_k)
    seen = np.ones((n_q, n_k), bool)
    if window:
        seen = (abs(i - j) < window) | (j < sinks)
    if causal:
        seen &= j <= i
    for h in range(heads):
        g = h // (heads // kv_heads)
        s = q[:, h] @ k[:, g].T / np.sqrt(dim)
        if soft_cap:
            s = soft_cap * np.tanh(s / soft_cap)
        if slopes is not None:
            s = s - float(slopes[h]) * abs(i - j)
        s = np.where(seen, s, -np.inf)
        a = np.exp(s - s.max(axis=1, keepdims=True))
        out[:, h] = a / a.sum(axis=1, keepdims=True) @ v[:, g]
    return out


def outputs(folder, *more):
    done = run(*more, "--out", folder / "out.npy")
    if done.returncode:
        raise RuntimeError(done.stderr)
    return np.load(folder / "out.npy")


class Case:
    """One set of files, and what attend makes of them."""

    def __init__(self, folder, n_q, n_k, heads, kv_heads, dim, dim_value, seed, halves=""):
        r = np.random.default_rng(seed)
        self.folder, self.data = folder, {}
        for name, shape in dict(q=(n_q, heads, dim), k=(n_k, kv_heads, dim),
                                v=(n_k, kv_heads, dim_value)).items():
            x = 2 * r.standard_normal(shape)
            self.data[name] = x.astype(np.float16 if name in halves else np.float32)
            np.save(folder / f"{name}.npy", self.data[name])
        self.slopes = (0.5 ** np.arange(1, heads + 1)).astype(np.float32)
        np.save(folder / "slopes.npy", self.slopes)

    def attend(self, *more):
        return outputs(self.folder, "--dir", self.folder, *SOFTMAX, *more)

    def options(self, causal=False, window=0, sinks=0, soft_cap=0, alibi=False):
        given = {"--window": window, "--sinks": sinks, "--soft-cap": soft_cap}
        return (["--causal"] * causal + [x for o, v in given.items() if v for x in (o, v)]
                + (["--alibi", self.folder / "slopes.npy"] if alibi else []))

    def oracle(self, alibi=False, **what):
        return exact(**self.data, slopes=self.slopes if alibi else None, **what)

    def holds(self, name, *more, **what):
        expected = self.oracle(**what)
        actual = self.attend(*self.options(**what), *more)
        error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
        check(name, error < TOLERANCE, f"error {error:.2g}")
        return actual


def results(work):
    case = Case(work, 150, 150, 4, 2, 24, 17, 1)
    for causal in [False, True]:
        for name, what in {"a window": dict(window=20), "sinks": dict(window=20, sinks=3),
                           "a soft cap": dict(soft_cap=1.5), "slopes": dict(alibi=True),
                           "all": dict(window=70, sinks=5, soft_cap=3, alibi=True)}.items():
            case.holds(f"{name}, {'causal' if causal else 'both ways'}", causal=causal, **what)
    plain = case.attend("--causal")
    for name, more in {"a window of all": ["--window", 150], "sinks alone": ["--sinks", 9],
                       "a window of 1 and sinks for all": ["--window", 1, "--sinks", 150]}.items():
        check(f"{name} changes no bit", (case.attend("--causal", *more) == plain).all())


def halves(work):
    for which in ["k", "v", "kv", "qkv"]:
        case = Case(work, 60, 60, 2, 2, 16, 9, 2, which)
        got = case.holds(f"float16 for {which}", causal=True, window=25, soft_cap=5)
        for name in which:
            np.save(work / f"{name}.npy", case.data[name].astype(np.float32))
        same = case.attend(*case.options(causal=True, window=25, soft_cap=5))
        check(f"float16 for {which} has the bits of float32", (got == same).all())
    case = Case(work, 3, 40, 2, 2, 16, 9, 3, "kv")
    case.holds("float16 of a longer cache, both ways", soft_cap=5)


def halves_elsewhere(work):
    """Of every method that works on states, and of Nystroem's, the bits are those of float32."""
    methods = [["--causal"], [], ["--causal", "--split", "7,1"], ["--split", "20"],
               ["--causal", "--map", "exp", "--threads", 3], ["--causal", "--window", 9],
               ["--map", "taylor"], ["--map", "favor", "--causal"], ["--attention", "nystrom"],
               ["--causal", "--rule", "gated", "--decay", work / "decay.npy"]]
    np.save(work / "decay.npy", np.full((60, 2), -0.1, np.float32))
    for which in ["q", "v", "qkv"]:
        Case(work, 60, 60, 2, 2, 16, 9, 2, which)
        for method in methods:
            method = ["--dir", work, *method]
            got = outputs(work, *method)
            for name in which:
                x = np.load(work / f"{name}.npy")
                np.save(work / f"{name}.npy", x.astype(np.float32))
            check(f"float16 for {which} has the bits of float32, {' '.join(map(str, method[2:]))}",
                  (got == outputs(work, *method)).all())
            for name in which:
                x = np.load(work / f"{name}.npy")
                np.save(work / f"{name}.npy", x.astype(np.float16))


def same_bytes(work):
    case = Case(work, 90, 90, 4, 1, 33, 20, 4, "kv")
    more = case.options(causal=True, window=30, sinks=2, soft_cap=4, alibi=True)
    expected = case.attend(*more)
    for extra in [["--split", "1"], ["--split", "50,7"], ["--threads", 3]]:
        check(f"{' '.join(map(str, extra))} changes no bit",
              (case.attend(*more, *extra) == expected).all())
    base = ["--dir", work, *SOFTMAX, "--out", work / "other.npy", *more]
    for isa in checks.present_isas(*base):
        check(f"{isa} has the same bits", (np.load(work / "other.npy") == expected).all())


def refusals(work):
    case = Case(work, 5, 5, 2, 2, 4, 4, 5)
    base, slopes = ["--dir", work, "--out", OUT, *SOFTMAX], work / "slopes.npy"
    for extra in [["--sinks", 2], ["--soft-cap", 3], ["--alibi", slopes]]:
        option = extra[0].encode()
        refuse(f"{extra[0]} with linear attention", *base[:4], *extra, says=[option, b"belongs to"])
        refuse(f"{extra[0]} with nystrom", *base[:4], "--attention", "nystrom", *extra,
               says=[option, b"belongs to"])
        refuse(f"{extra[0]} with --compare", *base[:2], "--compare", *extra,
               says=[option, b"exclude"])
    for text in ["0", "-1", "nan", "inf", "1e60", "x"]:
        refuse(f"--soft-cap {text}", *base, "--soft-cap", text, says=[b"--soft-cap"])
    refuse("--sinks -1", *base, "--sinks", "-1", says=[b"--sinks"])
    refuse("too many sinks", *base, "--sinks", 2 ** 30, says=[b"sinks"])
    refuse("too long a window", *base, "--window", 2 ** 30, says=[b"window"])
    for name, x in {"as many slopes as heads": np.ones(3, np.float32),
                    "not a matrix": np.ones((2, 1), np.float32),
                    "float32": np.ones(2), "finite": np.float32([1, np.inf])}.items():
        np.save(work / "other.npy", x)
        refuse(f"slopes: {name}", *base, "--alibi", work / "other.npy", says=[b"other.npy"])
    refuse("pieces without places", *base, "--alibi", slopes, "--split", 2, says=[b"--causal"])
    refuse("a window of pieces", *base, "--window", 2, "--split", 2, says=[b"--causal"])
    np.save(work / "k.npy", np.ones((7, 2, 4), np.float32))
    np.save(work / "v.npy", np.ones((7, 2, 4), np.float32))
    for extra in [["--alibi", slopes], ["--window", 2]]:
        refuse(f"{extra[0]} of more keys", *base, *extra, says=[extra[0].encode(), b"as many"])
    np.save(work / "k.npy", np.ones((5, 2, 4), np.float16))
    np.save(work / "v.npy", np.ones((5, 2, 4), np.float32))
    data = (work / "k.npy").read_bytes()
    for name, bytes_ in {"truncated": data[:-1], "too long": data + b"x"}.items():
        (work / "k.npy").write_bytes(bytes_)
        refuse(f"float16, {name}", *base, says=[b"k.npy"])


if __name__ == "__main__":
    tests = [results, halves, halves_elsewhere, same_bytes, refusals]
    checks.main("attend", __doc__, lambda work, data: {t: () for t in tests}, False)
