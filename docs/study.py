#!/usr/bin/env python3
"""What each method of linattn is worth: measures it, writes the numbers and pictures of study.md.

    docs/study.py                       measure everything, then write (some minutes)
    docs/study.py --errors              measure all but the times, which stay as they were
    docs/study.py --times               measure the times alone
    docs/study.py --render              measure nothing: write from docs/study/*.json
    docs/study.py --more DIR[=causal]   the errors by head of further layers, into more-heads.json

It compiles examples/attend.c with $CC, or else cc, and lets attend compute: with the identity as
values its output is the attention matrix itself. Everything but the times has the same result on
every machine. Times are worth keeping from a machine that does nothing else.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile


def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--errors", action="store_true")
    what.add_argument("--times", action="store_true")
    what.add_argument("--render", action="store_true")
    what.add_argument("--more", nargs="+", metavar="DIR[=causal]")
    return parser.parse_args()


# Before what may be missing, which --help does without.
OPTIONS = read_options() if __name__ == "__main__" else None

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads only cost
try:
    import numpy as np

    import study_report
    from study_report import FOLDER, LANDMARKS, SPECTRUM, WINDOW
except ImportError as missing:
    sys.exit(f"study.py: {sys.executable}: {missing}. Install python3-numpy and python3-matplotlib"
             " (or with pip: numpy matplotlib), or use a python3 that has them.")

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORTHOGONAL = ["--orthogonal", "1"]
NYSTROM = ["--attention", "nystrom", "--landmarks", str(LANDMARKS)]
SEEDS = range(1, 6)

# What attend is told for each method that has no further parameter here.
METHODS = {
    "exact": ["--attention", "softmax"],
    "elu1": ["--map", "elu1"],
    "relu": ["--map", "relu"],
    "exp": ["--map", "exp"],
    "softmax map": ["--map", "softmax"],
    "favor": ["--map", "favor"] + ORTHOGONAL,
    "favor-simple": ["--map", "favor-simple"] + ORTHOGONAL,
    "favor-hyperbolic": ["--map", "favor-hyperbolic"] + ORTHOGONAL,
    "taylor 2": ["--map", "taylor", "--degree", "2"],
    "expdef 2": ["--map", "expdef", "--degree", "2"],
    "nystrom, 12 steps": NYSTROM + ["--iterations", "12"],
    "nystrom, 6 steps": NYSTROM + ["--iterations", "6"],
}


# ---- Attend -------------------------------------------------------------------------------------


def run(command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"study.py: {command[0]} was not found. A C compiler is needed: set CC, or install"
                 " gcc or clang.")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"study.py: {' '.join(map(str, command))}\n{failed.stderr.strip()}")


class Attend:
    """The program, and a folder for its files."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.program = self.folder / "attend"
        self.compiler = os.environ.get("CC") or "cc"
        run(self.compiler.split() + ["-O2", str(ROOT / "examples" / "attend.c"), "-o",
                                     str(self.program)])

    def save(self, **arrays):
        for name, array in arrays.items():
            np.save(self.folder / f"{name}.npy", np.ascontiguousarray(array, "<f4"))

    def output(self, layer, options):
        """[tokens][heads][dim of the values]"""
        self.save(q=layer.q, k=layer.k, v=layer.v)
        out = self.folder / "out.npy"
        causal = ["--causal"] if layer.causal else []
        run([self.program, "--dir", self.folder, "--out", out] + causal + options)
        return np.load(out).astype(float)

    def matrices(self, layer, options):
        """The attention matrix of each head: [heads][queries][keys]."""
        n, heads, _ = layer.k.shape
        identity = np.broadcast_to(np.eye(n)[:, None], (n, heads, n))
        return self.output(layer.replace(v=identity), options).transpose(1, 0, 2)

    def has(self, isa):
        self.save(q=np.ones((1, 1)), k=np.ones((1, 1)), v=np.ones((1, 1)))
        command = [self.program, "--dir", self.folder, "--isa", isa, "--out",
                   self.folder / "out.npy"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Layer:
    """Queries, keys and values, [tokens][heads][dim], and the mask."""

    def __init__(self, name, q, k, v, causal=False):
        self.name, self.q, self.k, self.v, self.causal = name, q, k, v, causal

    def replace(self, **changed):
        return Layer(**(vars(self) | changed))

    def centred(self):
        """Less the mean key: softmax does not notice, as each row's scores move together."""
        return self.replace(k=self.k - self.k.mean(0))

    def scores(self):
        """s q.k of each head, and which of them count: [heads][queries][keys]."""
        q, k = (x.transpose(1, 0, 2).astype(float) for x in (self.q, self.k))
        s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[2])
        return s, np.tril(np.ones(s.shape[1:])) if self.causal else np.ones(s.shape[1:])


def load(folder, causal):
    folder = pathlib.Path(folder)
    try:
        return Layer(folder.name, *(np.load(folder / f"{name}.npy") for name in "qkv"), causal)
    except OSError as failed:
        sys.exit(f"study.py: {failed}")


def real_layers():
    data = ROOT / "examples" / "data"
    return [load(data / "encoder", False), load(data / "lm", True)]


def gaussian_layer(product, n=256, dim=32):
    """Gaussian queries and keys with s|q||k| = product on average."""
    random = np.random.default_rng(1)
    scale = math.sqrt(product / math.sqrt(dim))
    q, k = (random.standard_normal((n, 1, dim)) * scale for _ in range(2))
    return Layer(f"Gaussian, s‖q‖‖k‖ = {product}", q, k, k)


# ---- Errors -------------------------------------------------------------------------------------


def relative(x, exact):
    return float(np.linalg.norm(x - exact) / np.linalg.norm(exact))


def normalised(weights):
    """Rows that sum to one."""
    return weights / weights.sum(-1, keepdims=True)


def uniform(layer):
    s, mask = layer.scores()
    return normalised(np.broadcast_to(mask, s.shape))


def softmax(layer):
    s, mask = layer.scores()
    s = np.where(mask > 0, s, -np.inf)
    return normalised(np.exp(s - s.max(-1, keepdims=True)))


def mean_error(matrices, exact):
    return float(np.mean([relative(a, b) for a, b in zip(matrices, exact)]))


def favor_errors(attend):
    """Of the attention matrix, against the number of features."""
    rows = []
    for layer in [gaussian_layer(1), gaussian_layer(4)] + real_layers():
        exact = attend.matrices(layer, METHODS["exact"])
        rows.append({"data": layer.name, "map": "uniform", "m": 0,
                     "error": mean_error(uniform(layer), exact)})
        for name, kind, orthogonal in [("independent", "favor", 0), ("orthogonal", "favor", 1),
                                       ("simplified", "favor-simple", 1),
                                       ("hyperbolic", "favor-hyperbolic", 1)]:
            for m in [16, 64, 256, 1024, 4096]:
                count = m // 2 if name == "hyperbolic" else m
                options = ["--map", kind, "--features", str(count), "--orthogonal",
                           str(orthogonal), "--seed"]
                errors = [mean_error(attend.matrices(layer, options + [str(seed)]), exact)
                          for seed in SEEDS]
                rows.append({"data": layer.name, "map": name, "m": m,
                             "error": float(np.median(errors))})
    return rows


def median_product(layer):
    """s|q||k| of each head: medians over all pairs."""
    q, k = (np.linalg.norm(x, axis=2).T for x in (layer.q, layer.k))
    products = q[:, :, None] * k[:, None] / math.sqrt(layer.q.shape[2])
    return [float(x) for x in np.median(products, axis=(1, 2))]


def favor_needs():
    """What theory asks of plain favor with independent rows. The relative variance of one weight is
    (exp(|q + k|^2) - 1) / m in scaled vectors (Choromanski et al. 2020, lemma 2); and the spread of
    exp(|k|^2 / 2), which simplified favor leaves in the weights."""
    rows = []
    for layer in [gaussian_layer(1), gaussian_layer(4)] + real_layers():
        q, k = (x.transpose(1, 0, 2) * layer.q.shape[2]**-0.25 for x in (layer.q, layer.k))
        q2, k2 = (q**2).sum(-1), (k**2).sum(-1)
        square = q2[:, :, None] + k2[:, None] + 2 * q @ k.transpose(0, 2, 1)
        tenth = (np.median(square) + math.log(100)) / math.log(10)
        rows.append({"data": layer.name, "causal": int(layer.causal), "dim": layer.q.shape[2],
                     "real": int(layer.q.shape[1] > 1), "log10_m": float(tenth),
                     "product": float(np.mean(median_product(layer))),
                     "spread": float(np.std(k2 / 2, axis=1).mean())})
    return rows


def series(kind, degree, x):
    """The polynomial in place of exp(x) that taylor and expdef of this degree are."""
    if kind == "expdef":
        return (1 + x / degree)**degree
    return sum(x**p / math.factorial(p) for p in range(degree + 1))


def sphere_layer(products, n=128, dim=8):
    """Directions at random, s|q||k| of head h exactly products[h]."""
    random = np.random.default_rng(2)
    q, k = (random.standard_normal((n, len(products), dim)) for _ in range(2))
    q, k = (x / np.linalg.norm(x, axis=2, keepdims=True) for x in (q, k))
    k = k * np.array(products)[:, None] * math.sqrt(dim)
    return Layer("directions at random, d = 8", q, k, k)


def polynomial_errors(attend):
    """Of the attention matrix, against degree and |q||k|. On the real heads features above degree 2
    are too many to be formed (C(d+n,n)): there by the formula, in double precision."""
    products = [0.5, 1, 2, 4, 8, 16]
    layer = sphere_layer(products)
    exact = attend.matrices(layer, METHODS["exact"])
    even = uniform(layer)
    rows = [{"data": "sphere", "map": "uniform", "product": product,
             "error": relative(even[h], exact[h])} for h, product in enumerate(products)]
    for kind in ["taylor", "expdef"]:
        for degree in range(1, 9):
            found = attend.matrices(layer, ["--map", kind, "--degree", str(degree)])
            rows += [{"data": "sphere", "map": kind, "degree": degree, "product": product,
                      "error": relative(found[h], exact[h])} for h, product in enumerate(products)]
    for plain in real_layers():
        exact = softmax(plain)
        rows.append({"data": plain.name, "map": "uniform",
                     "error": mean_error(uniform(plain), exact)})
        for layer, centred in [(plain, 0), (plain.centred(), 1)]:
            s, mask = layer.scores()
            for kind in ["taylor", "expdef"]:
                for degree in range(1, 9):
                    found = normalised(series(kind, degree, s) * mask)
                    rows.append({"data": plain.name, "map": kind, "degree": degree,
                                 "centred": centred, "error": mean_error(found, exact)})
            found = attend.matrices(layer, METHODS["taylor 2"])
            rows.append({"data": plain.name, "map": "attend", "degree": 2, "centred": centred,
                         "error": mean_error(found, exact)})
    return rows


# ---- Rank and concentration ---------------------------------------------------------------------


def banded(matrices):
    """What is left of exact attention within the window."""
    i = np.arange(matrices.shape[1])
    return normalised(matrices * (abs(i[:, None] - i) < WINDOW))


def rank_row(name, mask, m, matrices):
    """Singular values above 1e-5 of the largest (float32 leaves some 1e-7), and how many of them
    hold 99 % of the sum of squares; mean over the heads."""
    values = np.linalg.svd(matrices, compute_uv=False)
    squares = np.cumsum(values**2, axis=1) / (values**2).sum(1, keepdims=True)
    diagonal = np.diagonal(matrices, axis1=1, axis2=2)
    return {"map": name, "mask": mask, "m": m, "n": matrices.shape[1],
            "rank": float((values > 1e-5 * values[:, :1]).sum(1).mean()),
            "rank99": float(((squares < 0.99).sum(1) + 1).mean()),
            "diagonal": float(diagonal.min()),
            "spectrum": [float(x) for x in (values / values[:, :1])[0, SPECTRUM]]}


def ranks(attend):
    """The encoder's heads under every mask, so that only the mask differs."""
    layer = real_layers()[0]
    dim = layer.q.shape[2]
    methods = [("exact", 0, METHODS["exact"])]
    methods += [(name, dim, METHODS[name]) for name in ["elu1", "exp"]]
    methods += [("favor", m, METHODS["favor"] + ["--features", str(m), "--seed", "1"])
                for m in [dim, 2 * dim, 4 * dim, 8 * dim, 32 * dim]]
    rows = []
    for name, m, options in methods:
        for causal in [False, True]:
            masked = layer.replace(causal=causal)
            found = attend.matrices(masked, options)
            window = (banded(found) if name == "exact" else
                      attend.matrices(masked, options + ["--window", str(WINDOW)]))
            mask = "causal" if causal else "all"
            rows.append(rank_row(name, mask, m, found))
            rows.append(rank_row(name, f"{mask}, window", m, window))
    return rows


def best_of_rank(attend):
    """The error of the best matrix of each rank in place of softmax: no map of as many features can
    do better (Eckart and Young 1936)."""
    layer = real_layers()[0]
    values = np.linalg.svd(attend.matrices(layer, METHODS["exact"]), compute_uv=False)**2
    rest = values[:, ::-1].cumsum(1)[:, ::-1] / values.sum(1, keepdims=True)
    dim = layer.q.shape[2]
    return [{"rank": rank, "error": float(np.sqrt(rest[:, rank]).mean())}
            for rank in [dim // 4, dim, 2 * dim, 4 * dim]]


def concentration_of(matrices, visible):
    """Of rows that see at least 100 keys: entropy as a share of its maximum, and the mass on the
    hundredth of the keys that has most."""
    entropies, tops = [], []
    for i in np.flatnonzero(visible >= 100):
        rows = np.clip(matrices[:, i, :visible[i]], 1e-30, None)
        entropies += list(-(rows * np.log(rows)).sum(1) / math.log(visible[i]))
        tops += list(np.sort(rows, axis=1)[:, -math.ceil(visible[i] / 100):].sum(1))
    return np.array(entropies), np.array(tops)


def visible_keys(layer):
    n = layer.q.shape[0]
    return np.arange(1, n + 1) if layer.causal else np.full(n, layer.k.shape[0])


def concentrations(attend):
    rows = []
    for layer in real_layers():
        for name in list(METHODS)[:-2]:
            found = attend.matrices(layer, METHODS[name])
            entropy, top = concentration_of(found, visible_keys(layer))
            rows.append({"data": layer.name, "map": name, "entropy": float(np.median(entropy)),
                         "top": [float(x) for x in np.percentile(top, [10, 50, 90])]})
    return rows


# ---- Head by head -------------------------------------------------------------------------------


def head_outputs(attend, layer):
    """Every method put in place of softmax: outputs [tokens][heads][dim], one or several each."""
    for name, options in METHODS.items():
        if name == "exact" or (name.startswith("nystrom") and layer.causal):
            continue
        seeded = [options + ["--seed", str(seed)] for seed in SEEDS]
        runs = seeded if name.startswith("favor") else [options]
        yield name, [attend.output(layer, run_options) for run_options in runs]
    yield "taylor 2, centred keys", [attend.output(layer.centred(), METHODS["taylor 2"])]
    yield "elu1, window", [attend.output(layer, METHODS["elu1"] + ["--window", str(WINDOW)])]
    values = layer.v.transpose(1, 0, 2)
    for name, matrices in [("uniform", uniform(layer)), ("exact, window", banded(softmax(layer)))]:
        yield name, [(matrices @ values).transpose(1, 0, 2)]


def landmark_attention(q, k, v, landmarks=LANDMARKS):
    """Nystroem's three matrices in double precision: F, A, and B V."""
    def mean_of_segments(x):
        return np.stack([part.mean(0) for part in np.array_split(x, landmarks)])

    def weights(a, b):
        s = a @ b.T / math.sqrt(a.shape[1])
        return normalised(np.exp(s - s.max(1, keepdims=True)))
    qs, ks = mean_of_segments(q), mean_of_segments(k)
    return weights(q, ks), weights(qs, ks), weights(qs, k) @ v


def nystrom_row(layer, h, exact):
    """How the pseudo-inverse decides about Nystroem's error."""
    f, a, bv = landmark_attention(*(x[:, h].astype(float) for x in (layer.q, layer.k, layer.v)))
    return {"condition": float(np.linalg.cond(a)),
            "inverse": relative(f @ (np.linalg.pinv(a) @ bv), exact[:, h])}


def heads(attend, layers):
    """A row for each head: how concentrated it is, and the error of the output of each method."""
    rows = []
    for layer in layers:
        exact = attend.output(layer, METHODS["exact"])
        attention = softmax(layer)
        count = exact.shape[1]
        found = [{"layer": layer.name, "head": h, "errors": {}} for h in range(count)]
        for h, row in enumerate(found):
            entropy, top = concentration_of(attention[h:h + 1], visible_keys(layer))
            row |= {"causal": int(layer.causal), "entropy": float(np.mean(entropy)),
                    "top": float(np.mean(top)), "product": median_product(layer)[h]}
            if not layer.causal:
                row["nystrom"] = nystrom_row(layer, h, exact)
        for name, outputs in head_outputs(attend, layer):
            for h, row in enumerate(found):
                row["errors"][name] = float(np.median([relative(x[:, h], exact[:, h])
                                                       for x in outputs]))
        rows += found
    return rows


# ---- Times --------------------------------------------------------------------------------------


def compare(attend, layer, isa, degree):
    """ns per token and head of each method, from attend's own table: medians of several runs."""
    attend.save(q=layer.q, k=layer.k, v=layer.v)
    more = ["--causal"] if layer.causal else ["--iterations", "6"]
    text = run([attend.program, "--dir", attend.folder, "--compare", "--isa", isa, "--degree",
                str(degree)] + more)
    heads_count = layer.q.shape[1]
    found = re.findall(r"^([a-z][a-z0-9-]*) .* +([0-9.]+) +[0-9.]+$", text, re.MULTILINE)
    if not found:
        sys.exit(f"study.py: no times in what attend --compare printed:\n{text}")
    return {name: float(f"{1000 * float(us) / heads_count:.4g}") for name, us in found}


def times(attend):
    """Against length. Where the monomials of degree 2 are too many (d = 128) or the instruction set
    slow, those of degree 1 stand in, so that it ends, and are not kept."""
    random = np.random.default_rng(3)
    rows = []
    for isa in [isa for isa in ["avx512", "avx2", "neon", "scalar"] if attend.has(isa)]:
        for dim in [16, 32, 64, 128]:
            most = 256 if isa == "scalar" else 4096 if dim == 64 else 2048
            degree = 1 if isa == "scalar" or dim > 64 else 2
            for n in [2**i for i in range(4, 13) if 2**i <= most]:
                heads_count = 1 if isa == "scalar" else 2 if n >= 1024 else 4
                q, k, v = random.standard_normal((3, n, heads_count, dim))
                for causal in [False, True]:
                    ns = compare(attend, Layer("", q, k, v, causal), isa, degree)
                    if degree == 1:
                        del ns["taylor"], ns["expdef"]
                    rows.append({"isa": isa, "dim": dim, "causal": int(causal), "n": n, "ns": ns})
    return rows


def processor():
    """Virtual machines often hide the model's name, but not its number."""
    try:
        fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$",
                                 pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    except OSError:
        fields = {}
    name = fields.get("model name", platform.processor() or platform.machine())
    if "cpu family" in fields:
        name += f", family {fields['cpu family']}, model {fields['model']}"
    return name


# ---- Files --------------------------------------------------------------------------------------


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def write_json(name, sections):
    """One row a line, so that changes can be read."""
    parts = []
    for key, rows in sections.items():
        lines = rows if isinstance(rows, list) else [rows]
        text = ",\n".join("    " + json.dumps(rounded(row), ensure_ascii=False) for row in lines)
        parts.append(f'  "{key}": [\n{text}\n  ]')
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def measure(options):
    with tempfile.TemporaryDirectory() as folder:
        attend = Attend(folder)
        if options.more:
            layers = [load(text.removesuffix("=causal"), text.endswith("=causal"))
                      for text in options.more]
            write_json("more-heads.json", {"heads": heads(attend, layers)})
            return
        if not options.times:
            write_json("errors.json", {
                "favor": favor_errors(attend), "favor_needs": favor_needs(),
                "polynomial": polynomial_errors(attend), "rank": ranks(attend),
                "best_of_rank": best_of_rank(attend), "concentration": concentrations(attend),
                "heads": heads(attend, real_layers())})
        if not options.errors:
            compiler = run([*attend.compiler.split(), "--version"]).splitlines()[0]
            write_json("times.json", {"machine": {"processor": processor(), "compiler": compiler},
                                      "times": times(attend)})


def main(options):
    if not options.render:
        measure(options)
    study_report.render()


if __name__ == "__main__":
    main(OPTIONS)
