#!/usr/bin/env python3
"""Times onnxruntime's com.microsoft LinearAttention on one thread; prints csv rows for report.py.

The operator has neither a feature map nor a normaliser (o = q'S, S += k v'), so it does less than
the other rows and its figure flatters it. Needs: pip install onnxruntime onnx numpy. Where the
installed onnxruntime has no such operator it says so and exits with 77.
"""

import argparse
import csv
import statistics
import sys
import time

SHAPES = [(32, 32), (64, 64), (128, 128), (256, 64)]
DECODE_HEADS = [1, 32, 512]


def skip(why):
    print(f"onnxruntime: {why}", file=sys.stderr)
    sys.exit(77)


try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
except ImportError as missing:
    skip(missing)


def model(heads, m, dv):
    """One LinearAttention node with the state as input and output."""
    def tensor(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    node = helper.make_node("LinearAttention", ["q", "k", "v", "state"], ["out", "next"],
                            domain="com.microsoft", q_num_heads=heads, kv_num_heads=heads,
                            update_rule="linear", scale=1.0)
    inputs = [tensor("q", [1, None, heads * m]), tensor("k", [1, None, heads * m]),
              tensor("v", [1, None, heads * dv]), tensor("state", [1, heads, m, dv])]
    outputs = [tensor("out", [1, None, heads * dv]), tensor("next", [1, heads, m, dv])]
    graph = helper.make_graph([node], "linear_attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def session(heads, m, dv):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model(heads, m, dv), options,
                                            providers=["CPUExecutionProvider"])
    except Exception as error:  # each version has an exception of its own for an unknown operator
        skip(f"version {onnxruntime.__version__} has no LinearAttention: {error}")


def operands(heads, m, dv, n):
    random = np.random.default_rng(0)
    sizes = {"q": (1, n, heads * m), "k": (1, n, heads * m), "v": (1, n, heads * dv)}
    values = {name: random.standard_normal(size, dtype=np.float32) for name, size in sizes.items()}
    # An operator outside would have applied the map: its values are of that size.
    values["k"] = np.abs(values["k"])
    values["state"] = np.zeros((1, heads, m, dv), np.float32)
    return values


def largest_error(run, values, heads, m, dv):
    """Of the first head, relative to the largest element of its row."""
    out = run()[0][0].reshape(-1, heads, dv)[:, 0]
    q, k = (values[name][0].reshape(-1, heads, m)[:, 0].astype(float) for name in "qk")
    v = values["v"][0].reshape(-1, heads, dv)[:, 0].astype(float)
    state, worst = np.zeros((m, dv)), 0.0
    for t in range(min(len(q), 512)):
        state += np.outer(k[t], v[t])
        row = q[t] @ state
        worst = max(worst, np.abs(out[t] - row).max() / np.abs(row).max())
    return worst


def measure(heads, m, dv, n, seconds):
    """Inputs and outputs are bound, so that only the operator and its dispatch are timed."""
    made = session(heads, m, dv)
    values = operands(heads, m, dv, n)
    binding = made.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    results = [np.zeros((1, n, heads * dv), np.float32), np.zeros_like(values["state"])]
    for name, result in zip(["out", "next"], results):
        binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(result))
    error = largest_error(lambda: made.run(None, values), values, heads, m, dv)
    samples, end = [], time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        start = time.process_time()
        made.run_with_iobinding(binding)
        samples.append(time.process_time() - start)
    samples.sort()
    middle = statistics.median(samples)
    spread = (samples[len(samples) * 3 // 4] - samples[len(samples) // 4]) / middle
    return 1e9 * middle / (heads * n), spread, error


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row")
    parser.add_argument("--n", type=int, default=4096, help="tokens of the causal rows")
    options = parser.parse_args()
    cases = [("causal", 1, m, dv, options.n, "") for m, dv in SHAPES]
    cases += [("decode", heads, d, d, 1, f"h{heads}") for d in (64, 128) for heads in DECODE_HEADS]
    names = ["kernel", "map", "by", "d", "dv", "n", "variant", "ns", "spread", "error"]
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(names)
    for kernel, heads, m, dv, n, variant in cases:
        ns, spread, error = measure(heads, m, dv, n, options.seconds)
        rows.writerow([kernel, "none", "onnxruntime", m, dv, n, variant, f"{ns:.4g}",
                       f"{spread:.3g}", f"{error:.3g}"])


if __name__ == "__main__":
    main()
