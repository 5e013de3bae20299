#!/usr/bin/env python3
"""Checks examples/attend.c against ONNX's LinearAttention.

    onnx_test.py PATH_TO_ATTEND cases          the node tests of the onnx package, 1.23 or later
    onnx_test.py PATH_TO_ATTEND onnxruntime    random cases, against onnxruntime's operator

Prints one line for each check and exits with 1 if any failed; with 77, saying why in its last line,
where a package or its operator is missing. Needs: pip install onnx onnxruntime numpy.
"""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True  # beside the source

import checks
from checks import check, run

CASES = 14  # as of onnx 1.23
TOLERANCE = 1e-5


def skip(why):
    print(why)
    sys.exit(77)


try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
except ImportError as missing:
    skip(f"{missing}: pip install onnx")

INPUTS = ["query", "key", "value", "past_state", "decay", "beta"]
FILES = {"query": "--q", "key": "--k", "value": "--v", "past_state": "--import-state",
         "decay": "--decay", "beta": "--beta"}
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


# ---- attend as the operator --------------------------------------------------------------------

def unpacked(name, x, heads):
    """attend's array for one sequence of the operator's, whose heads lie side by side."""
    if name in ["past_state", "beta"] or (name == "decay" and x.shape[1] == heads["value"]):
        return x
    return x.reshape(len(x), heads[name], -1)


def attend_one(folder, inputs, heads, rule, scale):
    """One sequence: outputs [tokens][heads * dim_value], and the state after them."""
    arguments = ["--rule", {"linear": "sum", "gated_delta": "gated-delta"}.get(rule, rule),
                 "--map", "identity", "--norm", "none", "--causal"]
    for name, x in inputs.items():
        path = folder / (name + ".npy")
        np.save(path, np.ascontiguousarray(unpacked(name, x, heads), np.float32))
        arguments += [FILES[name], path]
    if rule == "linear" and not scale:  # the rule whose own default is 1
        scale = 1 / np.sqrt(inputs["query"].shape[1] / heads["query"])
    if scale:
        arguments += ["--scale", repr(float(scale))]
    out, state = folder / "out.npy", folder / "state.npy"
    run(*arguments, "--out", out, "--export-state", state, check=True, stderr=None)
    return np.load(out).reshape(len(inputs["query"]), -1), np.load(state)


def attend(inputs, attributes):
    """The operator's outputs from its inputs by name, sequence by sequence."""
    q, kv = attributes["q_num_heads"], attributes["kv_num_heads"]
    dim = inputs["query"].shape[2] // q
    heads = {"query": q, "key": inputs["key"].shape[2] // dim, "value": kv, "decay": kv}
    rule = attributes.get("update_rule", "gated_delta")
    with tempfile.TemporaryDirectory() as folder:
        all = [attend_one(pathlib.Path(folder), {name: x[b] for name, x in inputs.items()}, heads,
                          rule, attributes.get("scale", 0.0))
               for b in range(len(inputs["query"]))]
    return [np.stack(x) for x in zip(*all)]


# ---- Checks ------------------------------------------------------------------------------------

def error_of(got, expected):
    """Relative to the largest element of the row."""
    size = abs(expected).max(axis=-1, keepdims=True)
    return (abs(got - expected) / np.where(size > 0, size, 1)).max()


def check_outputs(name, got, expected, onnx_too=False):
    """By our measure and, element by element, by that of ONNX's node tests."""
    same = all(a.shape == b.shape for a, b in zip(got, expected))
    errors = [error_of(a, b.astype(float)) for a, b in zip(got, expected)] if same else [np.inf]
    limit = TOLERANCE if expected[0].dtype == np.float32 else 2.0 ** -10
    if same and onnx_too:
        same = all(np.allclose(a.astype(b.dtype), b, rtol=1e-3, atol=1e-7)
                   for a, b in zip(got, expected))
    check(name, same and max(errors) <= limit,
          f"{expected[0].dtype}, {max(errors):.1e}, limit {limit:.1e}")


def named(node, inputs):
    """The inputs that a node has, some of which it may leave out."""
    return dict(zip([kind for kind, name in zip(INPUTS, node.input) if name], inputs))


def test_cases():
    from onnx.backend.test.case import node as cases

    def expect(node, inputs, outputs, name, **_):
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if "update_rule" in attributes:
            attributes["update_rule"] = attributes["update_rule"].decode()
        check_outputs(name, attend(named(node, inputs), attributes), outputs, onnx_too=True)

    cases.expect = expect  # which the cases call with what they are, when they are imported
    try:
        from onnx.backend.test.case.node import linear_attention  # noqa: F401
    except ImportError:
        skip(f"onnx {onnx.__version__} has no LinearAttention, 1.23 has")
    check("all of the cases were there", check.count >= CASES, f"{check.count} of {CASES}")


# ---- onnxruntime -------------------------------------------------------------------------------

def session(inputs, attributes):
    """The operator of com.microsoft, with these inputs."""
    values = [helper.make_tensor_value_info(name, TYPES[str(x.dtype)], x.shape)
              for name, x in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
               for name in ["output", "present_state"]]
    node = helper.make_node("LinearAttention", [x if x in inputs else "" for x in INPUTS],
                            ["output", "present_state"], domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "linear_attention", values, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), settings,
                                        providers=["CPUExecutionProvider"])


def random_inputs(g, rule, n, q_heads, key_heads, heads, dim, dim_value, channels, past):
    """Two sequences."""
    key = g.standard_normal((2, n, key_heads, dim))
    if "delta" in rule:
        key /= np.sqrt((key * key).sum(axis=3, keepdims=True))
    inputs = {"query": g.standard_normal((2, n, q_heads * dim)),
              "key": key.reshape(2, n, key_heads * dim),
              "value": g.standard_normal((2, n, heads * dim_value))}
    if past:
        inputs["past_state"] = g.standard_normal((2, heads, dim, dim_value))
    if "gated" in rule:
        inputs["decay"] = -10.0 ** g.uniform(-3, 0, (2, n, heads * (dim if channels else 1)))
    if "delta" in rule:
        inputs["beta"] = g.uniform(0, 1, (2, n, heads))
    return {name: x.astype(np.float32) for name, x in inputs.items()}


# Tokens, heads of queries, keys and values, dimensions of these and of values.
SHAPES = {"grouped queries": (33, 6, 2, 2, 16, 24), "one token": (1, 4, 4, 4, 32, 32),
          "many tokens": (1000, 2, 2, 2, 64, 64), "grouped keys": (50, 2, 2, 4, 16, 16)}


def runs(g, rule, shape, channels, past):
    """The inputs and attributes of a run, and onnxruntime's results, or why there are none."""
    inputs = random_inputs(g, rule, *shape, channels, past)
    attributes = dict(update_rule=rule, q_num_heads=shape[1], kv_num_heads=shape[3])
    try:
        return inputs, attributes, session(inputs, attributes).run(None, inputs)
    except Exception as error:  # each version has exceptions of its own for what it has not
        return inputs, attributes, str(error).splitlines()[0]


def test_onnxruntime():
    g = np.random.default_rng(0)
    *_, result = runs(g, "linear", SHAPES["one token"], False, False)
    if isinstance(result, str):
        skip(f"onnxruntime {onnxruntime.__version__} has no LinearAttention: {result}")
    for rule in ["linear", "gated", "delta", "gated_delta"]:
        for name, shape in SHAPES.items():
            if shape[2] != shape[3] and rule == "linear":
                continue  # the sum has as many keys as values
            for channels in [False, True] if "gated" in rule else [False]:
                inputs, attributes, result = runs(g, rule, shape, channels, name != "many tokens")
                what = f"{rule}, {'per channel' if channels else 'per head'}, {name}"
                if isinstance(result, str):
                    check(what, shape[2] != shape[3], f"onnxruntime refuses it: {result}")
                else:
                    check_outputs(what, attend(inputs, attributes), result)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in ["cases", "onnxruntime"]:
        sys.exit(__doc__)
    checks.use("attend", sys.argv[1])
    if sys.argv[2] == "cases":
        test_cases()
    else:
        try:
            import onnxruntime
        except ImportError as missing:
            skip(f"{missing}: pip install onnxruntime")
        test_onnxruntime()
    check.finish()
