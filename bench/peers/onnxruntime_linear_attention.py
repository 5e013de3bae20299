#!/usr/bin/env python3
"""Times onnxruntime's com.microsoft LinearAttention on one thread; prints csv rows for report.py.

The operator has neither a feature map nor a normaliser (o = q'S, S += k v'), so it does less than
the other rows and its figure flatters it. With --rules: its recurrences gated, delta and
gated_delta, with one decay for each head and token, which do what linattn does. Needs: pip install
onnxruntime onnx numpy. Where the installed onnxruntime has no such operator it says so and exits
with 77.
"""

import argparse
import csv
import statistics
import sys
import time

SHAPES = [(32, 32), (64, 64), (128, 128), (256, 64)]
DECODE_HEADS = [1, 32, 512]
RULES = ["gated", "delta", "gated_delta"]
RULE_SHAPES = [(64, 64), (128, 128), (256, 256), (128, 64)]
RULE_HEADS = [32, 512]  # of the decode rows, (128,128)


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


def gates(rule):
    """The names of its gates."""
    return ["decay"] * ("gated" in rule) + ["beta"] * ("delta" in rule)


def model(rule, heads, m, dv):
    """One LinearAttention node with the state as input and output."""
    def tensor(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    names = ["q", "k", "v", "state"]
    if gates(rule):  # in these places, empty where the rule has none
        names += [name if name in gates(rule) else "" for name in ["decay", "beta"]]
    node = helper.make_node("LinearAttention", names, ["out", "next"], domain="com.microsoft",
                            q_num_heads=heads, kv_num_heads=heads, update_rule=rule, scale=1.0)
    inputs = [tensor("q", [1, None, heads * m]), tensor("k", [1, None, heads * m]),
              tensor("v", [1, None, heads * dv]), tensor("state", [1, heads, m, dv])]
    inputs += [tensor(name, [1, None, heads]) for name in gates(rule)]
    outputs = [tensor("out", [1, None, heads * dv]), tensor("next", [1, heads, m, dv])]
    graph = helper.make_graph([node], "linear_attention", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def session(rule, heads, m, dv):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model(rule, heads, m, dv), options,
                                            providers=["CPUExecutionProvider"])
    except Exception as error:  # each version has an exception of its own for an unknown operator
        skip(f"version {onnxruntime.__version__} has no LinearAttention ({rule}): {error}")


def operands(rule, heads, m, dv, n):
    random = np.random.default_rng(0)
    sizes = {"q": (1, n, heads * m), "k": (1, n, heads * m), "v": (1, n, heads * dv)}
    values = {name: random.standard_normal(size, dtype=np.float32) for name, size in sizes.items()}
    # An operator outside would have applied the map: its values are of that size.
    values["k"] = np.abs(values["k"])
    for name in gates(rule):
        values[name] = random.standard_normal((1, n, heads), dtype=np.float32)
    if rule != "linear":
        keys = values["k"].reshape(1, n, heads, m)
        keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    if "decay" in values:
        values["decay"] = -0.1 * np.abs(values["decay"])
    if "beta" in values:
        values["beta"] = 1.0 / (1.0 + np.exp(-values["beta"]))
    values["state"] = np.zeros((1, heads, m, dv), np.float32)
    return values


def largest_error(run, rule, values, heads, m, dv):
    """Of the first head, relative to the largest element of its row."""
    out = run()[0][0].reshape(-1, heads, dv)[:, 0]
    q, k = (values[name][0].reshape(-1, heads, m)[:, 0].astype(float) for name in "qk")
    v = values["v"][0].reshape(-1, heads, dv)[:, 0].astype(float)
    decay, beta = (values[name][0, :, 0].astype(float) if name in values else None
                   for name in ["decay", "beta"])
    state, worst = np.zeros((m, dv)), 0.0
    for t in range(min(len(q), 512)):
        if decay is not None:
            state *= np.exp(decay[t])
        added = v[t] if beta is None else beta[t] * (v[t] - k[t] @ state)
        state += np.outer(k[t], added)
        row = q[t] @ state
        worst = max(worst, np.abs(out[t] - row).max() / np.abs(row).max())
    return worst


def measure(rule, heads, m, dv, n, seconds):
    """Inputs and outputs are bound, so that only the operator and its dispatch are timed."""
    made = session(rule, heads, m, dv)
    values = operands(rule, heads, m, dv, n)
    binding = made.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    results = [np.zeros((1, n, heads * dv), np.float32), np.zeros_like(values["state"])]
    for name, result in zip(["out", "next"], results):
        binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(result))
    error = largest_error(lambda: made.run(None, values), rule, values, heads, m, dv)
    samples, end = [], time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        start = time.process_time()
        made.run_with_iobinding(binding)
        samples.append(time.process_time() - start)
    samples.sort()
    middle = statistics.median(samples)
    spread = (samples[len(samples) * 3 // 4] - samples[len(samples) // 4]) / middle
    return 1e9 * middle / (heads * n), spread, error


def cases(rules, n):
    """kernel, name in the column of the maps, update rule, heads, m, dv, n, variant"""
    if rules:
        found = [("recurrent", rule, 1, m, dv, n, "") for rule in RULES for m, dv in RULE_SHAPES]
        found += [("recurrent-decode", rule, heads, 128, 128, 1, f"h{heads}")
                  for rule in RULES for heads in RULE_HEADS]
        return [(kernel, rule.replace("_", "-"), rule, *rest) for kernel, rule, *rest in found]
    found = [("causal", 1, m, dv, n, "") for m, dv in SHAPES]
    found += [("decode", heads, d, d, 1, f"h{heads}") for d in (64, 128) for heads in DECODE_HEADS]
    return [(kernel, "none", "linear", *rest) for kernel, *rest in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each row")
    parser.add_argument("--n", type=int, default=4096, help="tokens of the causal rows")
    parser.add_argument("--rules", action="store_true", help="the recurrences alone")
    options = parser.parse_args()
    names = ["kernel", "map", "by", "d", "dv", "n", "variant", "ns", "spread", "error"]
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(names)
    for kernel, name, rule, heads, m, dv, n, variant in cases(options.rules, options.n):
        ns, spread, error = measure(rule, heads, m, dv, n, options.seconds)
        rows.writerow([kernel, name, "onnxruntime", m, dv, n, variant, f"{ns:.4g}",
                       f"{spread:.3g}", f"{error:.3g}"])


if __name__ == "__main__":
    main()
