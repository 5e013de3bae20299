#!/usr/bin/env python3
"""Times exact attention: linattn_softmax by turns with onnxruntime's MultiHeadAttention, PyTorch's
scaled_dot_product_attention, and NumPy, whose products are OpenBLAS's.

    exact_attention.py LIBRARY [OPTION...] >RUN.json

LIBRARY is bench/exact.c. Prints what report.py collects, as Google Benchmark would. All of them get
the same operands, [heads][tokens][dim], but for onnxruntime's queries and outputs, which it wants
as [tokens][heads][dim]. One thread is timed by the processor time of the process: medians. More
are timed by the clock, to which other programs' work only adds: the least of the samples. They need
processors that nothing else runs on: what waits for its turn there takes hundreds of microseconds.
"grouped" and "interleaved" are decode steps: heads that share a quarter as many of keys and values,
which onnxruntime's operator has not; and operands that are [tokens][heads][dim], as it wants them.
"window", "alibi" and "capped" are causal: PyTorch takes the first two as a mask. Needs NumPy; a
peer that cannot be imported is reported as absent: pip install onnxruntime onnx torch, and
threadpoolctl for NumPy as one.
"""
import argparse
import concurrent.futures
import ctypes
import datetime
import importlib
import json
import os
import re
import statistics
import sys
import time

import numpy as np

HEADS = 8
KV_HEADS = 2  # of "grouped"
WINDOW, SINKS = 256, 4
CAP = 50.0
KINDS = ["causal", "full", "decode", "grouped", "interleaved", "window", "alibi", "capped"]
LEFT_OUT = {"grouped": [512, 4096], "interleaved": [512, 4096],  # lengths that tell little new
            **dict.fromkeys(["window", "alibi", "capped"], [512, 4096, 16384])}
SAMPLE_SECONDS = 0.002
LEAST_SAMPLES = 3
SETTLE_SECONDS = 0.08   # in which other libraries' threads stop spinning: onnxruntime's take 60 ms
WRONG = 1e-3            # with --check


class Absent(Exception):
    """Why a peer has no figure."""


def aligned(shape):
    """Floats from a multiple of 64 bytes on, as PyTorch and onnxruntime have their own."""
    count = int(np.prod(shape))
    block = np.zeros(count + 16, np.float32)
    first = -(block.ctypes.data // 4) % 16
    return block[first:first + count].reshape(shape)


class Problem:
    """Normally distributed operands of one attention."""

    def __init__(self, kind, dim, n, threads):
        random = np.random.default_rng(0)
        self.kind, self.dim, self.threads = kind, dim, threads
        self.changed = kind in ["window", "alibi", "capped"]
        self.causal = kind == "causal" or self.changed
        self.queries, self.keys = n if self.causal or kind == "full" else 1, n
        self.window, self.sinks = (WINDOW, SINKS) if kind == "window" else (0, 0)
        self.cap = CAP if kind == "capped" else 0.0
        self.slopes = np.exp2(-1 - np.arange(HEADS, dtype=np.float32)) if kind == "alibi" else None
        self.kv_heads = KV_HEADS if kind == "grouped" else HEADS
        self.interleaved = kind == "interleaved"
        self.scale = float(np.float32(dim ** -0.5))
        self.q, self.k, self.v = (self.rows(heads, tokens) for heads, tokens in
                                  [(HEADS, self.queries), (self.kv_heads, n), (self.kv_heads, n)])
        for x in (self.q, self.k, self.v):
            x[:] = random.standard_normal(x.shape, np.float32)

    def rows(self, heads, tokens):
        """[heads][tokens][dim], wherever they lie."""
        if self.interleaved:
            return aligned((tokens, heads, self.dim)).transpose(1, 0, 2)
        return aligned((heads, tokens, self.dim))

    def seen(self, row):
        """Which keys query `row` of a causal call sees."""
        key = np.arange(self.keys)
        return (key <= row) & ((self.window == 0) | (key > row - self.window) | (key < self.sinks))

    def pairs(self):
        """Of a query and a key that it sees, in each head."""
        if self.window:
            return sum(int(self.seen(row).sum()) for row in range(self.queries))
        return self.keys * (self.keys + 1) // 2 if self.causal else self.queries * self.keys

    def name(self, by):
        shape = f"{self.dim}x{self.dim}"
        return f"exact/{self.kind}/{by}/{shape}/{self.keys}/t{self.threads}"

    def largest_error(self, out):
        """Of some rows, relative to the largest element of each, against double."""
        worst = 0.0
        for head in {0, HEADS - 1}:
            k, v = (x[head * self.kv_heads // HEADS].astype(float) for x in (self.k, self.v))
            for row in {0, self.queries // 3, self.queries // 2, self.queries - 1}:
                scores = self.scale * (k @ self.q[head, row].astype(float))
                if self.cap:
                    scores = self.cap * np.tanh(scores / self.cap)
                if self.slopes is not None:
                    scores -= float(self.slopes[head]) * abs(row - np.arange(self.keys))
                if self.causal:
                    scores[~self.seen(row)] = -np.inf
                weights = np.exp(scores - scores.max())
                exact = weights @ v / weights.sum()
                worst = max(worst, abs(out[head, row] - exact).max() / abs(exact).max())
        return worst


# ---- Those that are timed: each makes a call of no arguments, and what has its outputs -----------


class Linattn:
    class Operands(ctypes.Structure):
        _fields_ = [(name, ctypes.c_void_p) for name in ["q", "k", "v", "out"]] + \
            [(name, ctypes.c_size_t) for name in
             ["heads", "kv_heads", "dim", "queries", "keys", "threads"]] + \
            [("causal", ctypes.c_int), ("interleaved", ctypes.c_int), ("scale", ctypes.c_float),
             ("soft_cap", ctypes.c_float), ("window", ctypes.c_size_t), ("sinks", ctypes.c_size_t),
             ("slopes", ctypes.c_void_p)]

    def __init__(self, path):
        self.library = ctypes.CDLL(os.path.abspath(path))
        self.library.exact_open.restype = ctypes.c_void_p
        for text in ["run", "version", "compiler", "isa"]:
            getattr(self.library, "exact_" + text).restype = ctypes.c_char_p
        self.name = self.text("isa")

    def text(self, what):
        return getattr(self.library, "exact_" + what)().decode()

    def prepare(self, p):
        out = p.rows(HEADS, p.queries)
        opened = ctypes.c_void_p(self.library.exact_open(ctypes.byref(self.Operands(
            *(x.ctypes.data for x in (p.q, p.k, p.v, out)), HEADS, p.kv_heads, p.dim, p.queries,
            p.keys, p.threads, p.causal, p.interleaved, p.scale, p.cap, p.window, p.sinks,
            None if p.slopes is None else p.slopes.ctypes.data))))
        if not opened:
            sys.exit("exact_attention.py: linattn refuses it, or has no memory")

        def call():
            refused = self.library.exact_run(opened)
            if refused:
                sys.exit(f"exact_attention.py: linattn: {refused.decode()}")

        return call, lambda: out


def installed(package):
    try:
        return importlib.import_module(package)
    except ImportError as missing:
        raise Absent(str(missing)) from missing


class OnnxRuntime:
    name = "onnxruntime"

    def __init__(self):
        self.onnx, self.runtime = installed("onnx"), installed("onnxruntime")

    def describe(self):
        return f"{self.runtime.__version__} (MultiHeadAttention)"

    def model(self, p):
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["out"],
                                domain="com.microsoft", num_heads=HEADS, scale=p.scale,
                                unidirectional=int(p.causal))
        rows = [p.keys, HEADS * p.dim] if p.interleaved else p.k.shape
        shapes = {"q": [1, p.queries, HEADS * p.dim], "k": [1, *rows], "v": [1, *rows]}
        inputs = [helper.make_tensor_value_info(name, kind, shapes[name]) for name in shapes]
        output = helper.make_tensor_value_info("out", kind, shapes["q"])
        graph = helper.make_graph([node], "attention", inputs, [output])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    def prepare(self, p):
        refuse_beyond_memory(p)
        if p.kv_heads < HEADS:
            raise Absent("MultiHeadAttention takes no grouped queries")
        if p.changed:
            raise Absent("it would add a bias to all scores")
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = p.threads, 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.force_spinning_stop", "1")
        q, out = (aligned((1, p.queries, HEADS * p.dim)) for _ in "qo")
        q[:] = p.q.transpose(1, 0, 2).reshape(q.shape)
        k, v = ((x.transpose(1, 0, 2).reshape(p.keys, -1) if p.interleaved else x)[None]
                for x in (p.k, p.v))
        values = {name: self.runtime.OrtValue.ortvalue_from_numpy(x) for name, x in
                  {"q": q, "k": k, "v": v, "out": out}.items()}
        try:
            made = self.runtime.InferenceSession(self.model(p), options,
                                                 providers=["CPUExecutionProvider"])
            binding = made.io_binding()
            for name in "qkv":
                binding.bind_ortvalue_input(name, values[name])
            binding.bind_ortvalue_output("out", values["out"])
            made.run_with_iobinding(binding)
        except Exception as error:  # each version has exceptions of its own for what it has not
            raise Absent(str(error).splitlines()[0]) from error

        def output():  # with the values, of which the binding keeps no hold
            return values["out"].numpy().reshape(p.queries, HEADS, p.dim).transpose(1, 0, 2)

        return lambda: made.run_with_iobinding(binding), output


def refuse_beyond_memory(p):
    """onnxruntime's kernel for causal attention stores all scores, in twice as much memory."""
    needed = 4 * HEADS * p.queries * p.keys if p.causal else 0
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 2 * needed > free / 2:
        raise Absent(f"stores scores of {needed / 2 ** 30:.0f} GiB")


class Torch:
    name = "torch"

    def __init__(self):
        self.torch = installed("torch")

    def describe(self):
        found = re.search(r"Math Kernel Library Version (\S+)", self.torch.__config__.show())
        products = f", MKL {found[1].removesuffix('-Product')}" if found else ""
        vectors = self.torch.backends.cpu.get_cpu_capability()
        return f"{self.torch.__version__} ({vectors}{products})"

    def prepare(self, p):
        attention = self.torch.nn.functional.scaled_dot_product_attention
        operands = [self.torch.from_numpy(x)[None] for x in (p.q, p.k, p.v)]
        mask = self.mask(p)
        last = [None]
        self.torch.set_num_threads(p.threads)

        def call():
            with self.torch.inference_mode():
                last[0] = attention(*operands, attn_mask=mask, scale=p.scale,
                                    is_causal=p.causal and mask is None,
                                    enable_gqa=p.kv_heads < HEADS)

        return call, lambda: last[0][0].numpy()

    def mask(self, p):
        if not p.changed:
            return None
        if p.cap:
            raise Absent("scaled_dot_product_attention caps no scores")
        mask = np.array([p.seen(row) for row in range(p.queries)])
        if p.slopes is not None:
            behind = np.arange(p.keys, dtype=np.float32) - np.arange(p.queries)[:, None]
            mask = np.where(mask, p.slopes[:, None, None] * behind, -np.inf).astype(np.float32)
        return self.torch.from_numpy(mask)


class NumPy:
    """Products of matrices over blocks of queries, whose scores are in the cache; heads go to
    threads."""
    name = "numpy"
    block = 64

    def __init__(self):
        threadpoolctl = installed("threadpoolctl")
        found = [x for x in threadpoolctl.threadpool_info() if "numpy" in x["filepath"]
                 or x["internal_api"] == "openblas"]
        self.products = found[0] if found else {}
        self.limit = threadpoolctl.threadpool_limits(1, "blas")

    def describe(self):
        products = " ".join(self.products.get(key) or "?" for key in
                            ["internal_api", "version", "architecture"])
        return f"{np.__version__} ({products})"

    def head(self, p, h, out):
        k, v = (x[h * p.kv_heads // HEADS] for x in (p.k, p.v))
        for i in range(0, p.queries, self.block):
            rows = min(self.block, p.queries - i)
            seen = i + rows if p.causal else p.keys
            scores = (p.q[h, i:i + rows] * np.float32(p.scale)) @ k[:seen].T
            if p.causal:
                scores[:, i:][np.triu_indices(rows, 1)] = -np.inf
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            np.matmul(scores, v[:seen], out=out[h, i:i + rows])
            out[h, i:i + rows] /= scores.sum(axis=1, keepdims=True)

    def prepare(self, p):
        if p.changed:
            raise Absent("its blocks take all keys, as they are")
        out = aligned(p.q.shape)
        pool = concurrent.futures.ThreadPoolExecutor(p.threads)

        def call():
            if p.threads == 1:
                for h in range(HEADS):
                    self.head(p, h, out)
            else:
                list(pool.map(lambda h: self.head(p, h, out), range(HEADS)))

        return call, lambda: out


# ---- Timing -------------------------------------------------------------------------------------


def seconds_of(call, count, threads):
    """Of each of so many calls."""
    clock = time.process_time if threads == 1 else time.perf_counter
    if threads > 1:
        time.sleep(SETTLE_SECONDS)
        if count > 1:
            call()
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def calls_per_sample(call, threads):
    count, taken = 1, seconds_of(call, 1, threads)  # the first one, which also gets ready
    while taken * count < SAMPLE_SECONDS:
        count *= 2
        taken = seconds_of(call, count, threads)
    return count


def by_turns(calls, counts, threads, seconds):
    """Seconds of samples of each, taken one after the other."""
    samples, end = [], time.perf_counter() + seconds
    while len(samples) < LEAST_SAMPLES or time.perf_counter() < end:
        samples.append([seconds_of(call, count, threads) for call, count in zip(calls, counts)])
    return list(zip(*samples))


def row_of(p, name, error, samples, base):
    middle, low, high = (float(np.quantile(samples, at)) for at in (0.5, 0.25, 0.75))
    taken = middle if p.threads == 1 else min(samples)
    row = {"name": p.name(name), "ns": 1e9 * taken / (HEADS * p.queries),
           "spread": (high - low) / middle, "error": error,
           "gflops": 4e-9 * HEADS * p.dim * p.pairs() / taken}
    if base is not samples:
        row["times"] = statistics.median(x / y for x, y in zip(samples, base)) \
            if p.threads == 1 else taken / min(base)
    return row


def measure(p, subjects, seconds):
    rows, ready = [], []
    for subject in subjects:
        try:
            call, output = subject.prepare(p)
            count = calls_per_sample(call, p.threads)
            ready.append((subject.name, call, count, output, p.largest_error(output())))
        except Absent as why:
            rows.append({"name": p.name(subject.name), "error_occurred": True,
                         "error_message": str(why)})
    samples = by_turns([call for _, call, *_ in ready], [count for _, _, count, *_ in ready],
                       p.threads, seconds)
    return rows + [row_of(p, name, float(error), each, samples[0])
                   for (name, *_, error), each in zip(ready, samples)]


def main():
    def numbers(text):
        return [int(x) for x in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row, at least")
    parser.add_argument("--n", type=numbers, default=[512, 2048, 4096, 16384])
    parser.add_argument("--dims", type=numbers, default=[64, 128])
    parser.add_argument("--check", action="store_true", help="fail if a result is wrong")
    options = parser.parse_args()
    linattn = Linattn(options.library)
    subjects, context = [linattn], {
        "linattn": linattn.text("version"), "isa": linattn.name,
        "compiler": linattn.text("compiler"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    for peer in [OnnxRuntime, Torch, NumPy]:
        try:
            subjects.append(peer())
            context[peer.name] = subjects[-1].describe()
        except Absent as why:
            context[peer.name] = f"absent ({why})"
        print(f"{peer.name}: {context[peer.name]}", file=sys.stderr)
    rows = []
    for kind in KINDS:
        for dim in options.dims:
            for n in [n for n in options.n if n not in LEFT_OUT.get(kind, [])]:
                rows += measure(Problem(kind, dim, n, options.threads), subjects, options.seconds)
    json.dump({"context": context, "benchmarks": rows}, sys.stdout, indent=1)
    wrong = [row["name"] for row in rows if not row.get("error", 0.0) < WRONG]
    if options.check and wrong:
        sys.exit(f"exact_attention.py: wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
