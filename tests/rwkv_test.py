#!/usr/bin/env python3
"""Checks examples/rwkv.c from outside: its logits against an oracle in double precision, written
from the formulas alone, and its manners with files and options.

    rwkv_test.py PATH_TO_RWKV [DATA_DIR]

DATA_DIR (examples/data beside this file's folder) holds a trained model and its logits.
RWKV_RUN is put before the command, say "qemu-aarch64 -L /usr/aarch64-linux-gnu". Prints one line
for each check and exits with 1 if any failed. Needs Python 3 and NumPy.
"""
import os
import pathlib
import struct
import sys

import numpy as np

sys.dont_write_bytecode = True  # beside the source

import checks
from checks import OUT, check, check_common_options, present_isas, refuse, run

VERSIONS = ["5.1", "5.2", "6", "7"]
TOLERANCE = 1e-4
TRAINED, TRAINED_LOGITS = "tiny-rwkv-7v0-834K-FP16.bin", "tiny-rwkv-7v0-834K-logits.npy"
TRAINED_PROMPT, TRAINED_TOLERANCE = b'"in', 1e-3
PROMPT = b"In the beginning, \xf0\x9f\x98\x80 was"


# ---- Files -------------------------------------------------------------------------------------

MAGIC = 0x67676d66
FLOATS = [".time_", ".k_k", ".k_a", ".r_k", ".x_rwkvag", ".x_k", ".w0", ".a0", ".v0"]


def header(vocabulary, width, layers, kind=0, version=101, magic=MAGIC):
    return struct.pack("<6i", magic, version, vocabulary, width, layers, kind)


def tensor(name, x, kind=None):
    """x with its outermost axis first, as in PyTorch; the file has it the other way round."""
    name = name.encode() if isinstance(name, str) else name
    kind = int(x.dtype == np.float16) if kind is None else kind
    return struct.pack("<3i", x.ndim, len(name), kind) \
        + struct.pack(f"<{x.ndim}i", *reversed(x.shape)) + name + x.tobytes()


def as_stored(weights, half):
    """The weights in the types that rwkv.cpp's converter gives them."""
    def stays(name, x):
        return not half or x.ndim == 1 or any(part in name for part in FLOATS)
    return {name: x.astype(np.float32 if stays(name, x) else np.float16)
            for name, x in weights.items()}


def file_of(weights, half=False, **fields):
    vocabulary, width = weights["emb.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks"))
    fields = {"vocabulary": vocabulary, "width": width, "layers": layers, "kind": int(half),
              **fields}
    return header(**fields) + b"".join(tensor(name, x) for name, x in weights.items())


# ---- Random models -----------------------------------------------------------------------------

def random_weights(version, seed, heads=3, size=8, hidden=29, rank=5, layers=3, vocabulary=256):
    g = np.random.default_rng(seed)
    width, w = heads * size, {}

    def matrix(name, rows, columns):
        w[name] = g.standard_normal((rows, columns)) / np.sqrt(columns)

    def vector(name, *shape, low=-1.0, high=1.0):
        w[name] = g.uniform(low, high, shape)

    def norm(name):
        vector(name + ".weight", width, low=0.5, high=1.5)
        vector(name + ".bias", width, low=-0.2, high=0.2)

    def low_rank(first, second, small):
        matrix(first, small, width)
        matrix(second, width, small)

    def mixes(prefix, letters):
        for c in letters:
            vector(prefix + c, width, low=0)

    def attention(a):
        for name in ["receptance", "key", "value", "output"]:
            matrix(f"{a}{name}.weight", width, width)
        norm(a + "ln_x")
        if version in ["5.2", "6"]:
            matrix(a + "gate.weight", width, width)
        if version == "5.1":
            mixes(a + "time_mix_", "kvr")
            vector(a + "time_decay", heads, 1, 1, low=0.5)
            vector(a + "time_first", heads, 1, 1)
        if version == "5.2":
            mixes(a + "time_mix_", "kvrg")
            vector(a + "time_decay", heads, size, 1, low=0)
            vector(a + "time_faaaa", heads, size, 1)
        if version == "6":
            mixes(a + "time_maa_", "xwkvrg")
            matrix(a + "time_maa_w1", 5 * rank, width)
            w[a + "time_maa_w2"] = g.standard_normal((5, width, rank)) / 4
            vector(a + "time_decay", heads, size, 1, low=-6)
            low_rank(a + "time_decay_w1", a + "time_decay_w2", rank + 2)
            vector(a + "time_faaaa", heads, size, 1)
        if version == "7":
            attention_7(a)

    def attention_7(a):
        vector(a + "x_rwkvag", 6, 1, width, low=0)
        for c, small in [("w", rank), ("a", rank + 1), ("v", rank + 2), ("g", rank + 3)]:
            if c == "v" and a.startswith("blocks.0."):
                continue
            low_rank(f"{a}{c}1", f"{a}{c}2", small)
            if c != "g":
                vector(f"{a}{c}0", 1, 1, width)
        vector(a + "k_k", 1, 1, width)
        vector(a + "k_a", 1, 1, width)
        vector(a + "r_k", heads, size)

    def feed_forward(f):
        matrix(f + "key.weight", hidden, width)
        matrix(f + "value.weight", width, hidden)
        if version != "7":
            matrix(f + "receptance.weight", width, width)
        if version == "7":
            vector(f + "x_k", 1, 1, width, low=0)
        else:
            mixes(f + ("time_maa_" if version == "6" else "time_mix_"), "kr")

    matrix("emb.weight", vocabulary, width)
    for i in range(layers):
        b = f"blocks.{i}."
        for name in ["ln1", "ln2"] + ["ln0"] * (i == 0):
            norm(b + name)
        attention(b + "att.")
        feed_forward(b + "ffn.")
    norm("ln_out")
    matrix("head.weight", vocabulary, width)
    return w


# ---- The oracle: one token after another, all in double precision --------------------------------

def sigmoid(x):
    return 1 / (1 + np.exp(-np.maximum(x, -700)))


def layer_norm(x, w, name, epsilon=1e-5):
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    shape = x.shape
    return (x - mean) / np.sqrt(variance + epsilon) * w[name + ".weight"].reshape(shape) \
        + w[name + ".bias"].reshape(shape)


class Oracle:
    def __init__(self, version, stored, heads):
        self.version, self.heads = version, heads
        self.w = {name: x.astype(np.float64) for name, x in stored.items()}
        self.width = self.w["emb.weight"].shape[1]
        self.layers = sum(name.endswith("ln1.weight") for name in self.w)
        size = self.width // heads
        self.state = np.zeros((self.layers, heads, size, size))
        self.last = np.zeros((self.layers, 2, self.width))

    def part(self, prefix):
        return {name[len(prefix):]: x for name, x in self.w.items() if name.startswith(prefix)}

    def split(self, x):
        return x.reshape(self.heads, -1)

    def recurrence(self, i, r, k, v, decay, read=None, write=None, bonus=None):
        """Heads by rows; returns o."""
        s, o = self.state[i], np.zeros_like(v)
        for h in range(self.heads):
            kv = np.outer(k[h], v[h])
            if bonus is not None:
                o[h] = r[h] @ (s[h] + bonus[h][:, None] * kv)
            taken = np.outer(write[h], read[h] @ s[h]) if read is not None else 0
            s[h] = decay[h][:, None] * s[h] + taken + kv
            if bonus is None:
                o[h] = r[h] @ s[h]
        return o

    def attention_5(self, i, a, x, last):
        def mixed(c):
            return x * a["time_mix_" + c] + last * (1 - a["time_mix_" + c])
        r = self.split(a["receptance.weight"] @ mixed("r"))
        k = self.split(a["key.weight"] @ mixed("k"))
        v = self.split(a["value.weight"] @ mixed("v"))
        u = a["time_first"] if self.version == "5.1" else a["time_faaaa"]
        whole = np.ones_like(k)
        o = self.recurrence(i, r, k, v, whole * self.split(a["time_decay"]),
                            bonus=whole * self.split(u))
        o = layer_norm(o, a, "ln_x").reshape(-1)
        if self.version == "5.2":
            g = a["gate.weight"] @ mixed("g")
            o = o * g * sigmoid(g)
        return a["output.weight"] @ o

    def attention_6(self, i, a, x, last):
        d = last - x
        t = np.tanh(a["time_maa_w1"] @ (x + d * a["time_maa_x"])).reshape(5, -1)
        m = {c: a["time_maa_w2"][n] @ t[n] for n, c in enumerate("wkvrg")}
        mixed = {c: x + d * (a["time_maa_" + c] + m[c]) for c in "wkvrg"}
        r = self.split(a["receptance.weight"] @ mixed["r"])
        k = self.split(a["key.weight"] @ mixed["k"])
        v = self.split(a["value.weight"] @ mixed["v"])
        w = a["time_decay"].reshape(-1) + a["time_decay_w2"] @ np.tanh(a["time_decay_w1"]
                                                                       @ mixed["w"])
        o = self.recurrence(i, r, k, v, self.split(np.exp(-np.exp(np.minimum(w, 700)))),
                            bonus=self.split(a["time_faaaa"]))
        g = a["gate.weight"] @ mixed["g"]
        return a["output.weight"] @ (layer_norm(o, a, "ln_x", 64e-5).reshape(-1) * g * sigmoid(g))

    def attention_7(self, i, a, x, last):
        mixed = {c: x + (last - x) * a["x_rwkvag"][n, 0] for n, c in enumerate("rwkvag")}

        def low(c, x):
            return a[c + "0"].reshape(-1) + a[c + "2"] @ x
        r = a["receptance.weight"] @ mixed["r"]
        w = np.exp(-np.exp(-0.5) * sigmoid(low("w", np.tanh(a["w1"] @ mixed["w"]))))
        alpha = sigmoid(low("a", a["a1"] @ mixed["a"]))
        g = a["g2"] @ sigmoid(a["g1"] @ mixed["g"])
        k = a["key.weight"] @ mixed["k"]
        kappa = self.split(k * a["k_k"].reshape(-1))
        kappa = kappa / np.maximum(np.linalg.norm(kappa, axis=1, keepdims=True), 1e-12)
        k = k * (1 + (alpha - 1) * a["k_a"].reshape(-1))
        v = a["value.weight"] @ mixed["v"]
        if i == 0:
            self.first_v = v
        else:
            v = v + (self.first_v - v) * sigmoid(low("v", a["v1"] @ mixed["v"]))
        r, k, v = self.split(r), self.split(k), self.split(v)
        o = self.recurrence(i, r, k, v, self.split(w), -kappa, kappa * self.split(alpha))
        z = layer_norm(o, a, "ln_x", 64e-5) + (k * r * a["r_k"]).sum(axis=1, keepdims=True) * v
        return a["output.weight"] @ (z.reshape(-1) * g)

    def feed_forward(self, f, x, last):
        if self.version == "7":
            k = f["key.weight"] @ (x + (last - x) * f["x_k"].reshape(-1))
            return f["value.weight"] @ np.maximum(k, 0) ** 2
        if self.version == "6":
            mixed = {c: x + (last - x) * f["time_maa_" + c] for c in "kr"}
        else:
            mixed = {c: x * f["time_mix_" + c] + last * (1 - f["time_mix_" + c]) for c in "kr"}
        k = f["key.weight"] @ mixed["k"]
        return sigmoid(f["receptance.weight"] @ mixed["r"]) \
            * (f["value.weight"] @ np.maximum(k, 0) ** 2)

    def logits(self, tokens):
        """After these further tokens."""
        attention = {"5.1": self.attention_5, "5.2": self.attention_5, "6": self.attention_6,
                     "7": self.attention_7}[self.version]
        for token in tokens:
            x = layer_norm(self.w["emb.weight"][token], self.w, "blocks.0.ln0")
            for i in range(self.layers):
                b = self.part(f"blocks.{i}.")
                y, last = layer_norm(x, b, "ln1"), self.last[i, 0].copy()
                self.last[i, 0] = y
                x = x + attention(i, self.part(f"blocks.{i}.att."), y, last)
                y, last = layer_norm(x, b, "ln2"), self.last[i, 1].copy()
                self.last[i, 1] = y
                x = x + self.feed_forward(self.part(f"blocks.{i}.ffn."), y, last)
        return self.w["head.weight"] @ layer_norm(x, self.w, "ln_out")

    def greedy(self, tokens, count):
        result = []
        for _ in range(count):
            result.append(int(np.argmax(self.logits(tokens))))
            tokens = result[-1:]
        return result


def split_mix(seed):
    """The numbers below 1 that rwkv draws."""
    mask = 2 ** 64 - 1
    while True:
        seed = (seed + 0x9e3779b97f4a7c15) & mask
        x = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9 & mask
        x = (x ^ x >> 27) * 0x94d049bb133111eb & mask
        yield ((x ^ x >> 31) >> 11) * 2.0 ** -53


def sampled(logits, temperature, seed):
    weights = np.exp((logits - logits.max()) / temperature)
    return int(np.searchsorted(np.cumsum(weights), next(split_mix(seed)) * weights.sum(),
                               side="right"))


# ---- Running rwkv ------------------------------------------------------------------------------

def text(model, *more, prompt=PROMPT):
    done = run(model, "--prompt", prompt, *more)
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"{done.args}: {done.returncode} {done.stderr!r}")
    return done.stdout


def logits_bytes(model, *more, prompt=PROMPT):
    out = pathlib.Path(str(model) + ".npy")
    if text(model, "--logits", out, *more, prompt=prompt):
        raise RuntimeError("text without being asked for any")
    content = out.read_bytes()
    out.unlink()
    return content


def logits(model, *more, prompt=PROMPT):
    path = pathlib.Path(str(model) + ".read.npy")
    path.write_bytes(logits_bytes(model, *more, prompt=prompt))
    return np.load(path)


class Model:
    """A random model in a file."""

    def __init__(self, path, version, seed, half=False, **shape):
        self.version, self.half, self.heads = version, half, shape.get("heads", 3)
        self.weights = as_stored(random_weights(version, seed, **shape), half)
        self.path = path
        path.write_bytes(file_of(self.weights, half))

    def oracle(self):
        return Oracle(self.version, self.weights, self.heads)


def error_of(model, prompt=PROMPT, tokens=None, *more):
    expected = model.oracle().logits(tokens or list(prompt))
    got = logits(model.path, *more, prompt=prompt)
    if got.dtype != np.float32 or got.shape != expected.shape:
        return np.inf
    return abs(got - expected).max() / abs(expected).max()


def check_error(name, error):
    check(name, error <= TOLERANCE, f"{error:.1e}, limit {TOLERANCE:.0e}")


# ---- Results -----------------------------------------------------------------------------------

def test_trained(work, data):
    model, expected = work / TRAINED, np.load(data / TRAINED_LOGITS)
    model.write_bytes((data / TRAINED).read_bytes())
    automatic = logits_bytes(model, prompt=TRAINED_PROMPT)
    for isa in present_isas(model, "--tokens", 0):
        got = logits(model, "--isa", isa, prompt=TRAINED_PROMPT)
        error = abs(got - expected).max()
        check(f"the logits of a trained model, {isa}",
              got.shape == expected.shape and error <= TRAINED_TOLERANCE,
              f"{error:.1e}, limit {TRAINED_TOLERANCE:.0e}")
        check(f"same bytes with {isa}",
              logits_bytes(model, "--isa", isa, prompt=TRAINED_PROMPT) == automatic)
    whole = logits_bytes(model, prompt=PROMPT * 5)
    for more in [["--chunk", c] for c in (1, 7, 1000)] + [["--threads", t] for t in (2, 5)]:
        check("same bytes with " + " ".join(map(str, more)),
              logits_bytes(model, *more, prompt=PROMPT * 5) == whole)


def test_versions(work):
    shapes = [dict(), dict(heads=1, size=7, hidden=64, rank=1, layers=1),
              dict(heads=4, size=16, hidden=100, rank=12, layers=2), dict(heads=5, size=1, rank=3)]
    for version in VERSIONS:
        for half in [False, True]:
            models = [Model(work / f"{version}-{half}-{i}", version, i, half, **shape)
                      for i, shape in enumerate(shapes)]
            worst = max(error_of(m) for m in models)
            check_error(f"RWKV-{version}, {'f16' if half else 'f32'}", worst)
        model = models[0]
        whole = logits_bytes(model.path)
        for more in [["--chunk", 1], ["--chunk", 3, "--threads", 3], ["--isa", "scalar"]]:
            check(f"RWKV-{version}: same bytes with " + " ".join(map(str, more)),
                  logits_bytes(model.path, *more) == whole)
        got = text(model.path, "--temperature", 0, "--tokens", 20)
        check(f"RWKV-{version}: the likeliest tokens",
              got == bytes(model.oracle().greedy(list(PROMPT), 20)) + b"\n")


def test_other_writers(work):
    """What rwkv.cpp's converter does not write, but the format has."""
    for version in VERSIONS:
        model = Model(work / version, version, 3)
        plain = logits_bytes(model.path)
        model.path.write_bytes(file_of(model.weights, version=100))
        check(f"RWKV-{version}: file version 100", logits_bytes(model.path) == plain)
        extra = {"zzz": np.zeros((3, 2), np.float32), **model.weights,
                 "blocks.0.att.v0": np.zeros(5, np.float16)}
        model.path.write_bytes(file_of(dict(reversed(extra.items()))))
        check(f"RWKV-{version}: tensors in another order, and others besides",
              logits_bytes(model.path) == plain)
        model.weights = {name: x.astype(np.float16) for name, x in model.weights.items()}
        model.path.write_bytes(file_of(model.weights, True))
        check_error(f"RWKV-{version}: vectors of f16, too", error_of(model))
        squeezed = {name: x if name.endswith("time_decay") else x.squeeze()
                    for name, x in model.weights.items()}
        model.path.write_bytes(file_of(squeezed, True))
        check_error(f"RWKV-{version}: without axes of one element", error_of(model))
    model = Model(work / "one-head", "5.2", 13, heads=1)
    squeezed = {name: x[0] if name.endswith(("time_decay", "time_faaaa")) else x
                for name, x in model.weights.items()}
    model.path.write_bytes(file_of(squeezed))
    check_error("RWKV-5.2: one head, as the converter writes it", error_of(model))


def test_numbers(work):
    """Decays at their limits, f16 that is subnormal, and weights that are no numbers."""
    for name in ["time_decay", "w0"]:
        model = Model(work / name, "7" if name == "w0" else "6", 14)
        x = model.weights["blocks.1.att." + name].reshape(-1)
        x[:8], x[8:16] = 200, -200
        model.path.write_bytes(file_of(model.weights))
        check_error(f"{name} of 200 and -200", error_of(model))
    model = Model(work / "small", "7", 4, True)
    x = model.weights["blocks.0.att.w2"]
    x[:] = np.linspace(-6e-5, 6e-5, x.size).reshape(x.shape)
    model.weights["blocks.1.att.key.weight"][0, :4] = [6e-8, -6e-8, 0, -0.0]
    model.path.write_bytes(file_of(model.weights, True))
    check_error("subnormal weights", error_of(model))
    for value in [np.nan, np.inf, -np.inf]:
        for name in ["blocks.1.att.key.weight", "blocks.0.ln1.weight", "head.weight"]:
            weights = dict(model.weights)
            weights[name] = np.full_like(weights[name], value)
            model.path.write_bytes(file_of(weights, True))
            got = logits(model.path)
            printed = text(model.path, "--tokens", 3)
            check(f"{value} in {name} comes through", np.isnan(got).all() and len(printed) == 4)
    weights = dict(model.weights)
    weights["head.weight"] = weights["head.weight"].copy()
    weights["head.weight"][7, 0] = np.nan
    model.path.write_bytes(file_of(weights, True))
    got = logits(model.path)
    check("a NaN stays in its logit", np.isnan(got[7]) and np.isfinite(np.delete(got, 7)).all())
    check("and is never the likeliest token", text(model.path, "--tokens", 1, "--temperature", 0)
          == bytes([int(np.nanargmax(got))]) + b"\n")


# ---- Text --------------------------------------------------------------------------------------

def test_sampling(work):
    model = Model(work / "model", "6", 5)
    path, seeds = model.path, 40
    after = model.oracle().logits(list(PROMPT))
    for temperature in [1, 0.3, 4]:
        expected = b"".join(b"--- %d ---\n%c\n" % (s, sampled(after, temperature, s))
                            for s in range(seeds))
        check(f"tokens at random, temperature {temperature}",
              text(path, "--tokens", 1, "--temperature", temperature, "--branches", seeds)
              == expected)
    default = text(path)
    check("the defaults are 100 tokens, temperature 1, seed 0", len(default) == 101 and default
          == text(path, "--tokens", 100, "--temperature", 1, "--seed", 0))
    check("another seed is another text", text(path, "--seed", 1) != default)
    check("a tiny temperature is the likeliest tokens",
          text(path, "--temperature", "1e-37") == text(path, "--temperature", 0))
    check("the default prompt is a newline", run(path).stdout == text(path, prompt=b"\n"))
    check("no tokens", text(path, "--tokens", 0) == b"")
    for chunk, threads in [(1, 1), (5, 3)]:
        check(f"the same text with --chunk {chunk} --threads {threads}",
              text(path, "--chunk", chunk, "--threads", threads) == default)
    branches = text(path, "--branches", 3, "--seed", 2 ** 64 - 2, "--tokens", 30)
    expected = b"".join(b"--- %d ---\n" % s + text(path, "--seed", s, "--tokens", 30)
                        for s in (2 ** 64 - 2, 2 ** 64 - 1, 0))
    check("every branch goes on from the state after the prompt", branches == expected)
    out = work / "out.npy"
    both = text(path, "--logits", out, "--tokens", 100)
    check("text and logits", both == default and out.read_bytes() == logits_bytes(path))
    done = run(path, "--prompt", PROMPT, "--time")
    check("--time tells the share of attention, on stderr", done.stdout == default
          and done.stderr.count(b"attention") == 2 and done.stderr.count(b"\n") == 1)


WORDS = [None, b"a", b"b", "ab", b"abc", "abcd ", b"c", b"d", b" ", "\n", "\t\r\\", "'", '"', "'\"",
         "\xe9", b"\xc3", b"\xa9", "€", "\U0001f600", b"\xf0\x9f", b"\x98\x80", b"\xff\x00", "\x00",
         "  ", "\x7f\x85", None, "ba", b"'\"\\\n"]


def vocabulary(words=WORDS):
    lines = [f"{i} {word!r} {len(word if isinstance(word, bytes) else word.encode())}\n"
             for i, word in enumerate(words) if word is not None]
    return "".join(lines).encode()


def tokens_of(prompt, words=WORDS):
    """Greedy, the longest first."""
    coded = {w if isinstance(w, bytes) else w.encode(): i for i, w in enumerate(words) if w}
    result = []
    while prompt:
        word = max((w for w in coded if prompt.startswith(w)), key=len)
        result.append(coded[word])
        prompt = prompt[len(word):]
    return result


def only(model, token, second):
    """The file of the model with all weight on one token, then on another."""
    weights = dict(model.weights)
    weights["ln_out.weight"] = np.zeros_like(weights["ln_out.weight"])
    weights["ln_out.bias"] = np.ones_like(weights["ln_out.bias"])
    weights["head.weight"] = np.full_like(weights["head.weight"], -9)
    weights["head.weight"][token], weights["head.weight"][second] = 2, 1
    model.path.write_bytes(file_of(weights))


def test_vocabulary(work):
    file, model = work / "vocabulary", Model(work / "model", "5.2", 6, vocabulary=len(WORDS))
    file.write_bytes(vocabulary())
    with_words = ["--vocab", file]
    prompts = ["abcd abcab\n", "aabbabc", "'\"\"'\t\r\\ab", "é€😀   a", "abcdab"]
    prompts = [p.encode() for p in prompts] + [b"\xc3\xa9\xc3", b"\xf0\x9f\x98\x80\xf0\x9f"]
    for prompt in prompts:
        check_error(f"world vocabulary: {prompt!r}",
                    error_of(model, prompt, tokens_of(prompt), *with_words))
    expected = model.oracle().greedy(tokens_of(b"abc"), 12)
    words = [w if isinstance(w, bytes) or w is None else w.encode() for w in WORDS]
    expected = expected[:expected.index(0)] if 0 in expected else expected
    if None in [words[i] for i in expected]:
        raise RuntimeError("take another seed")
    check("world vocabulary: text", text(model.path, *with_words, "--temperature", 0, "--tokens",
                                         12, prompt=b"abc") == b"".join(words[i] for i in expected)
          + b"\n")
    file.write_bytes(vocabulary().replace(b"\n", b"\r\n"))
    check("world vocabulary: lines that end in CR LF",
          error_of(model, prompts[0], tokens_of(prompts[0]), *with_words) <= TOLERANCE)
    file.write_bytes(vocabulary())
    for temperature in [0, 1]:
        more = [*with_words, "--temperature", temperature]
        only(model, 0, 1)
        check(f"token 0 ends the text, temperature {temperature}",
              text(model.path, *more, prompt=b"abc") == b"\n")
        only(model, 25, 5)
        check(f"tokens without a word are left out, temperature {temperature}",
              text(model.path, *more, "--tokens", 2, prompt=b"abc") == b"abcd abcd \n")
    refuse("a prompt that the vocabulary has no words for", model.path, *with_words, "--prompt",
           "abx", "--logits", OUT, says=[b"byte 3"])
    refuse("no vocabulary where tokens are not bytes", model.path, "--logits", OUT,
           says=[b"--vocab"])
    for name, content in BAD_VOCABULARIES.items():
        file.write_bytes(content)
        refuse(f"vocabulary: {name}", model.path, *with_words, "--logits", OUT, "--prompt", "a")
    refuse("vocabulary: missing", model.path, "--vocab", work / "none", "--logits", OUT)
    refuse("vocabulary: a folder", model.path, "--vocab", work, "--logits", OUT)


BAD_VOCABULARIES = {
    "empty": b"",
    "an index beyond the model's": b"28 'a' 1\n",
    "an index that is no number": b"x 'a' 1\n",
    "an index of 30 digits": b"1" * 30 + b" 'a' 1\n",
    "no string": b"1 a 1\n",
    "a string without an end": b"1 'a 1\n2 'b' 1\n",
    "no length": b"1 'a'\n",
    "another length": b"1 'a' 2\n",
    "the length of characters rather than bytes": "1 'é' 1\n".encode(),
    "something behind the length": b"1 'a' 1 1\n",
    "an empty string": b"1 '' 0\n",
    "an index twice": b"1 'a' 1\n1 'b' 1\n",
    "a string twice": b"1 'a' 1\n2 b'a' 1\n",
    "an unknown escape": b"1 '\\a' 1\n",
    "half an escape": b"1 '\\x4' 1\n",
    "an escape at the end": b"1 '\\",
    "a surrogate": b"1 '\\ud800' 3\n",
    "a character beyond all": b"1 '\\U00110000' 4\n",
    "a character in bytes": b"1 b'\\u20ac' 3\n",
    "an empty line": b"1 'a' 1\n\n",
    "a zero byte": b"1 'a' 1\n\0002 'b' 1\n",
    "only a zero byte": b"\0",
}


# ---- What is refused ---------------------------------------------------------------------------

def bad_beginnings(weights):
    """What is wrong before any tensor is looked at: name, content, what the message says."""
    whole = file_of(weights)
    yield "an empty file", b"", [b"fmgg"]
    yield "half a header", whole[:13], [b"truncated"]
    yield "a header alone", whole[:24], [b"not a model"]
    yield "a text", b"To be, or not to be. " * 50, [b"fmgg"]
    yield "another magic number", file_of(weights, magic=MAGIC + 1), [b"fmgg"]
    yield "another byte order", whole[3::-1] + whole[4:], [b"fmgg"]
    for version in [102, -1, 100 + 256]:
        yield f"file version {version}", file_of(weights, version=version), \
            [f"version {version},".encode()]
    for kind in [2, 8, -1, 256, 1 << 16]:
        yield f"data type {kind}", file_of(weights, kind=kind), [f"type {kind},".encode()]
    yield "fewer layers than it has", file_of(weights, layers=1), [b"blocks.1.", b"1 layers"]
    others = {"vocabulary": 257, "width": len(weights["ln_out.bias"]) + 1, "layers": 4}
    for field, other in others.items():
        for value in [0, -1, 2 ** 31 - 1, -2 ** 31, other]:
            yield f"a {field} of {value}", file_of(weights, **{field: value}), []


def bad_headers(whole):
    """What is wrong with a tensor behind all others, or with the end."""
    number = np.zeros(1, np.float32)
    for left in [25, 30, 40, 60, len(whole) // 2, len(whole) - 1]:
        yield f"{left} bytes of it", whole[:left], [b"truncated"]
    yield "one byte behind its end", whole + b"\0", [b"truncated"]
    yield "zeros behind its end", whole + bytes(100), [b"malformed"]
    for rank in [0, -1, 5, 2 ** 31 - 1]:
        yield f"a tensor of {rank} axes", whole + struct.pack("<3i", rank, 1, 0) + bytes(40), \
            [b"malformed"]
    for length in [0, -1, 96, 2 ** 31 - 1]:
        yield f"a name of {length} bytes", whole + struct.pack("<4i", 1, length, 0, 1) \
            + bytes(200), [b"malformed"]
    yield "a name with a zero byte", whole + tensor("a\0b", number), [b"zero"]
    for kind in [2, 8, -1, 256, 1 << 16]:
        yield f"a tensor of type {kind}", whole + tensor("x", number, kind), \
            [f"type {kind},".encode()]
    for layer in [2, 10 ** 9]:
        yield f"a tensor of layer {layer}", whole + tensor(f"blocks.{layer}.x", number), \
            [f"blocks.{layer}.x".encode(), b"2 layers"]
    for shape in [(2 ** 31 - 1,) * 4, (2 ** 31 - 1, 2 ** 31 - 1, 4), (65536,) * 4, (2 ** 30, 4),
                  (1, 1000), (3, 0), (3, -1)]:
        yield f"a tensor of shape {shape}", whole + struct.pack("<3i", len(shape), 1, 0) \
            + struct.pack(f"<{len(shape)}i", *shape) + b"x" + bytes(60), \
            [b"axis" if min(shape) < 1 else b"truncated"]


def bad_tensors(weights):
    """What is wrong with each of them. Those of a layer after the first are as these."""
    start = file_of(weights)[:24]

    def with_tensors(changed):
        return start + b"".join(tensor(name, x) for name, x in changed.items())
    first = next(iter(weights))
    yield "a tensor twice", file_of(weights) + tensor(first, weights[first]), [b"two tensors"]
    for name, x in weights.items():
        others = {n: y for n, y in weights.items() if n != name}
        if name.startswith("blocks.1."):
            continue
        yield f"{name} is missing", with_tensors(others), []
        more = np.concatenate([x, x], axis=int(np.argmax(x.shape)))
        yield f"{name} has shape {more.shape}", with_tensors({**others, name: more}), []
        if x.ndim == 2 and x.shape[0] != x.shape[1]:
            yield f"{name} is transposed", with_tensors({**others, name: x.T.copy()}), []


def test_bad_models(work):
    path = work / "model"
    for version in VERSIONS:
        weights = as_stored(random_weights(version, 7, layers=2), False)
        bad = [*bad_tensors(weights)]
        if version == "7":
            bad += [*bad_beginnings(weights), *bad_headers(file_of(weights))]
        for name, content, says in bad:
            path.write_bytes(content)
            refuse(f"RWKV-{version}: {name}", path, "--logits", OUT, says=says)
    weights = {"emb.weight": np.zeros((256, 8), np.float32),
               "blocks.0.att.time_first": np.zeros(8, np.float32)}
    path.write_bytes(file_of(weights))
    refuse("RWKV-4", path, "--logits", OUT, says=[b"RWKV-4"])
    path.write_bytes(file_of({"emb.weight": np.zeros((256, 8), np.float32),
                              "blocks.0.x": np.zeros(8, np.float32)}))
    refuse("no version at all", path, "--logits", OUT, says=[b"not a model"])
    refuse("a missing file", work / "none", "--logits", OUT)
    refuse("a folder", work, "--logits", OUT)


def test_damage(work):
    """Any byte of what is not data may be anything."""
    g = np.random.default_rng(8)
    weights = as_stored(random_weights("6", 9, heads=1, size=2, hidden=2, rank=1, layers=1), True)
    content, path, survived = file_of(weights, True), work / "model", True
    embedding = len(tensor("emb.weight", weights["emb.weight"]))
    places = [*range(60), *range(24 + embedding, len(content) - 1100)]
    for at in g.choice(places, 150, replace=False):
        path.write_bytes(content[:at] + bytes([g.integers(256)]) + content[at + 1:])
        done = run(path, "--logits", work / "out.npy", "--tokens", 2)
        survived &= done.returncode in (0, 2) and (done.returncode == 0) == (not done.stderr)
    check("a damaged model is refused or used, never a crash", survived)


def test_options(work):
    model = Model(work / "model", "7", 10).path
    bad = {"no model": [], "an option before the model": ["--tokens", "3", model],
           "two models": [model, model], "an unknown option": [model, "--what"],
           "tokens -1": [model, "--tokens", "-1"], "tokens x": [model, "--tokens=x"],
           "temperature -1": [model, "--temperature", "-1"],
           "temperature nan": [model, "--temperature", "nan"],
           "seed 2^64": [model, "--seed", str(2 ** 64)], "no branches": [model, "--branches", "0"],
           "chunk 0": [model, "--chunk", "0"], "threads 0": [model, "--threads", "0"],
           "threads 257": [model, "--threads", "257"], "isa sse9": [model, "--isa", "sse9"],
           "an empty prompt": [model, "--prompt", ""],
           "seed twice": [model, "--seed=1", "--seed=1"],
           "--time with a value": [model, "--time=1"]}
    for name, arguments in bad.items():
        refuse(name, *arguments, *(["--logits", OUT] if arguments else []))
    refuse("an output that cannot be", model, "--logits", work / "none" / "out.npy")
    existing = work / "existing.npy"
    existing.write_bytes(b"before")
    (work / "bad").write_bytes(model.read_bytes()[:-1])
    done = run(work / "bad", "--logits", existing)
    check("an existing file stays as it is when the model is refused",
          done.returncode == 2 and existing.read_bytes() == b"before")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            done = run(model, "--logits", existing, "--tokens", "3", stdout=full)
        check("a full standard output is a failure, and leaves the file as it is",
              done.returncode == 2 and existing.read_bytes() == b"before")
    check_common_options(model)
    done = run("--help")
    names = ["prompt", "tokens", "temperature", "seed", "branches", "logits", "vocab", "chunk",
             "threads", "isa", "time", "help"]
    check("--help names every option", done.returncode == 0 and not done.stderr
          and all(b"--" + name.encode() in done.stdout for name in names))


def make_tests(_, data):
    tests = [test_versions, test_other_writers, test_numbers, test_sampling, test_vocabulary,
             test_bad_models, test_damage, test_options]
    return {test_trained: (data,), **dict.fromkeys(tests, ())}


if __name__ == "__main__":
    checks.main("rwkv", __doc__, make_tests)
