#!/usr/bin/env python3
"""Checks the rules of examples/attend.c from outside: --rule with its gates, states as plain sums,
against an oracle in double precision, written from the formulas of linattn_rule in linattn.h alone.

    attend_rules_test.py PATH_TO_ATTEND

ATTEND_RUN as for attend_test.py. Prints one line for each check and exits with 1 if any failed.
Needs Python 3 and NumPy.
"""
import itertools
import sys

import numpy as np

sys.dont_write_bytecode = True  # beside the source

import checks
from attend_test import Case, bytes_of, header, npy, options
from checks import OUT, check, present_isas, refuse, run

RULES = ["sum", "gated", "delta", "gated-delta", "general", "mlstm"]
MAPS = ["identity", "elu1", "relu", "exp", "unit"]
TAKES = {"sum": [], "gated": ["decay", "bonus"], "delta": ["beta"],
         "gated-delta": ["decay", "beta"], "general": ["decay", "read", "write"],
         "mlstm": ["decay", "input-gate"]}
GATES = ["decay", "beta", "read", "write", "bonus", "input-gate"]
TOLERANCE = 1e-5


# ---- The oracle: token by token, one head at a time, in double precision -----------------------

def phi(x, map, scale, is_query):
    """The scale is half on each side, but for the maps that it passes through."""
    if map in ["identity", "unit"]:
        norm = np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-6) if map == "unit" else 1.0
        return x / norm * (scale if is_query else 1.0)
    x = x * np.sqrt(scale)
    if map == "elu1":
        return np.where(x >= 0, x + 1, np.exp(np.minimum(x, 0)))
    return np.maximum(x, 0) if map == "relu" else np.exp(x)


def divisor(norm, read, tokens, eps):
    return read + eps if norm == "sum" else tokens if norm == "length" else 1.0


def quotient(a, b):
    return a / b if b != 0 else 0 * a


def linear_rule(rule, q, k, v, seen, gates, state, norm, eps):
    """q: [n][group][m], mapped; gates: a [n][m] and what else the rule has; seen: not masked."""
    S, z, out = state.copy(), np.zeros(k.shape[1]), np.zeros((*q.shape[:2], v.shape[1]))
    for t in range(len(k)):
        a, before = gates["decay"][t][:, None], S
        if seen[t]:
            if rule == "general":
                taken = np.outer(gates["write"][t], gates["read"][t] @ S)
                S = a * S + taken + np.outer(k[t], v[t])
            else:
                S, z = a * S, a[:, 0] * z + k[t]
                u = v[t] if rule in ["sum", "gated"] else gates["beta"][t] * (v[t] - k[t] @ S)
                S = S + np.outer(k[t], u)
        visible = S
        if "bonus" in gates:
            visible = before + (np.outer(gates["bonus"] * k[t], v[t]) if seen[t] else 0)
        for g, x in enumerate(q[t]):
            out[t, g] = quotient(x @ visible, divisor(norm, x @ z, t + 1, eps))
    return out, S


def mlstm(q, k, v, seen, gates):
    """With a stabiliser like that of xLSTM: S and z are e^-top of what they mean. top is the
    largest input gate, without the decays since: beside 3e38, these would be lost."""
    S, z, top = np.zeros((k.shape[1], v.shape[1])), np.zeros(k.shape[1]), -np.inf
    out = np.zeros((*q.shape[:2], v.shape[1]))
    for t in range(len(k)):
        if seen[t]:
            before, i = top, gates["input-gate"][t]
            top = max(top, i)
            f, i = gates["decay"][t][0] * np.exp(before - top), np.exp(i - top)
            S, z = f * S + i * np.outer(k[t], v[t]), f * z + i * k[t]
        for g, x in enumerate(q[t]):
            with np.errstate(over="ignore"):
                out[t, g] = x @ S / max(abs(x @ z), np.exp(-top))
    with np.errstate(over="ignore", invalid="ignore"):
        return out, S * np.exp(top)


def gates_of_head(files, h, key_head, n, m, decay_is):
    """Of one head of the values, in double: the decay as a factor for each feature."""
    decay = files.get("decay", np.zeros((1, h + 1)) if decay_is == "log" else np.ones((1, h + 1)))
    decay = decay.astype(np.float64)[:, h]
    decay = np.exp(decay) if decay_is == "log" else decay
    gates = {"decay": np.broadcast_to(decay if decay.ndim == 2 else decay[:, None], (n, m))}
    for name in ["beta", "input-gate"]:
        if name in files:
            x = files[name].astype(np.float64)
            gates[name] = x[:, 0 if x.shape[1] == 1 else h]
    for name in ["read", "write"]:
        if name in files:
            gates[name] = files[name].astype(np.float64)[:, key_head]
    if "bonus" in files:
        gates["bonus"] = files["bonus"].astype(np.float64)[h]
    return gates


def oracle(data, files, rule, map="elu1", norm="none", scale=None, eps=0.0, decay_is="log",
           state=None):
    """The outputs and S, from attend's options."""
    q, k, v = [x.astype(np.float64) if x.ndim == 3 else x[:, None].astype(np.float64)
               for x in data]
    n, key_heads, m = k.shape
    heads, scale = v.shape[1], scale or 1 / np.sqrt(m)
    group = max(1, q.shape[1] // heads)  # queries of one head of values
    out, sums = np.zeros((n, heads * group, v.shape[2])), np.zeros((heads, m, v.shape[2]))
    seen = ~np.isneginf(k).all(axis=2)
    k = np.where(np.isneginf(k), 0, k)
    q, k = phi(q, map, scale, True), phi(k, map, scale, False)
    for h in range(heads):
        key_head = h // (heads // key_heads)
        queries = q[:, h * group:(h + 1) * group] if heads == key_heads else \
            q[:, key_head:key_head + 1]
        gates = gates_of_head(files, h, key_head, n, m, decay_is)
        begin = sums[h] if state is None else state[h].astype(np.float64)
        one = queries, k[:, key_head], v[:, h], seen[:, key_head], gates
        out[:, h * group:(h + 1) * group], sums[h] = \
            mlstm(*one) if rule == "mlstm" else linear_rule(rule, *one, begin, norm, eps)
    return out, sums


# ---- Cases -------------------------------------------------------------------------------------

# Tokens, heads of queries, keys and values, dimensions of these and of values.
SHAPES = {"one number": (7, 1, 1, 1, 1, 1), "grouped queries": (33, 6, 2, 2, 3, 17),
          "grouped keys": (29, 2, 2, 6, 17, 65), "one key head of four": (40, 1, 1, 4, 8, 5),
          "wide keys": (130, 2, 2, 2, 65, 3), "one token": (1, 2, 2, 2, 17, 16),
          "no token": (0, 2, 2, 2, 3, 5)}
LONG = (4096, 2, 1, 1, 48, 33)

# What there is of each rule: a name, and what make_files() makes of it.
VARIANTS = {
    "gated, per head": dict(rule="gated"),
    "gated, per channel": dict(rule="gated", channels=True),
    "gated, fixed per head": dict(rule="gated", fixed=True),
    "gated, fixed per channel": dict(rule="gated", fixed=True, channels=True),
    "gated, read before": dict(rule="gated", channels=True, bonus=True),
    "gated, fixed, read before": dict(rule="gated", fixed=True, channels=True, bonus=True),
    "delta": dict(rule="delta"),
    "delta, one beta": dict(rule="delta", one_beta=True),
    "gated delta, per head": dict(rule="gated-delta"),
    "gated delta, per channel": dict(rule="gated-delta", channels=True),
    "gated delta, fixed, one beta": dict(rule="gated-delta", fixed=True, one_beta=True),
    "general, per channel": dict(rule="general", channels=True),
    "general, per head": dict(rule="general"),
    "general, fixed": dict(rule="general", channels=True, fixed=True),
    "mlstm": dict(rule="mlstm"),
    "mlstm, large gates": dict(rule="mlstm", input_size=60.0),
    "mlstm, fixed": dict(rule="mlstm", fixed=True),
}


def owes(variant):
    """May decays go into the sums some tokens at a time?"""
    return variant["rule"] != "delta"


def unit_rows(x):
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-12)


def make_files(g, shape, rule, channels=False, fixed=False, bonus=False, one_beta=False,
               decay_is="log", input_size=1.0):
    """Gates of ordinary size."""
    n, _, key_heads, heads, dim, _ = shape
    files = {}
    if rule in ["gated", "gated-delta", "general", "mlstm"]:
        # A memory from some tokens to some thousands. A fixed one of so many would add up the one
        # rounding of e^log thousands of times.
        longest = -2.0 if fixed and decay_is == "log" else -3.5
        log = -10.0 ** g.uniform(longest, -0.3, (1 if fixed else n, heads) + (dim,) * channels)
        files["decay"] = log if decay_is == "log" else np.exp(log)
    if rule in ["delta", "gated-delta"]:
        files["beta"] = 1 / (1 + np.exp(-g.standard_normal((n, 1 if one_beta else heads))))
    if rule == "general":
        direction = unit_rows(g.standard_normal((n, key_heads, dim)))
        files["read"] = -direction
        files["write"] = direction * g.uniform(0.1, 0.9, direction.shape)
    if rule == "mlstm":
        files["input-gate"] = input_size * g.standard_normal((n, heads))
    if bonus:
        files["bonus"] = g.standard_normal((heads, dim))
    return {name: x.astype(np.float32) for name, x in files.items()}


class RuleCase(Case):
    """A case with gates in files of the same folder."""

    def __init__(self, folder, data, files, rule, **given):
        super().__init__(folder, data)
        self.files, self.rule, self.given = files, rule, given
        for name, x in files.items():
            np.save(self.folder / (name + ".npy"), x)

    def arguments(self, **more):
        gates = [x for name in self.files for x in ("--" + name, self.folder / (name + ".npy"))]
        return ["--rule", self.rule, *gates, *options(**{**self.given, **more})]

    def both(self, *more, **given):
        """The bytes of the outputs, and of the sums."""
        sums = self.folder / "sums.npy"
        out = self.attend("--export-state", sums, *self.arguments(**given), *more)
        return out, sums.read_bytes()

    def arrays(self, *more, **given):
        out = []
        for content in self.both(*more, **given):
            path = self.folder / "array.npy"
            path.write_bytes(content)
            out.append(np.load(path))
        return out

    def oracle(self, **more):
        known = {k: v for k, v in {**self.given, **more}.items()
                 if k not in ["causal", "precision"]}
        return oracle(self.data, self.files, self.rule, **known)


def rule_case(folder, seed, shape, rule, map="identity", decay_is="log", **variant):
    """Keys of length one where a rule needs that: by attend's map, or by themselves. Queries and
    keys without signs, but for whole queries, where outputs are divided by their products, which
    might all but vanish."""
    n, q_heads, key_heads, heads, dim, dim_value = shape
    g = np.random.default_rng(seed)
    data = [g.standard_normal(s) for s in
            [(n, q_heads, dim), (n, key_heads, dim), (n, heads, dim_value)]]
    if rule in ["delta", "gated-delta", "general"] and map == "identity":
        data[1] = unit_rows(data[1])
    if rule == "mlstm":
        data[:2] = [abs(x) for x in data[:2]]
        data[0][::3] *= -1
    data = [x.astype(np.float32) for x in data]
    if shape == SHAPES["one number"]:
        data = [x[:, 0] for x in data]
    files = make_files(g, shape, rule, decay_is=decay_is, **variant)
    if "beta" in files and map not in ["identity", "unit"]:
        files["beta"] /= 4 * dim  # longer keys, lest the state grow without end
    more = {"decay_is": decay_is} if "decay" in files else {}
    return RuleCase(folder, data, files, rule, map=map, **more)


def worst_error(got, expected):
    """Over rows, of the largest element: in the row, or as is usual in its head."""
    if got.shape != expected.shape or got.dtype != np.float32 or not np.isfinite(got).all():
        return np.inf
    if got.size == 0:
        return 0.0
    usual = np.sqrt((expected ** 2).mean(axis=(0, 2), keepdims=True))
    size = np.maximum(abs(expected).max(axis=2, keepdims=True), usual)
    return (abs(got - expected) / np.where(size > 0, size, 1)).max()


def sums_error(got, expected):
    """The same for sums, head by head. One number alone may be near zero, of terms of size one."""
    if got.shape != expected.shape or got.dtype != np.float32 or not np.isfinite(got).all():
        return np.inf
    size = abs(expected).max(axis=(1, 2), keepdims=True)
    return (abs(got - expected) / np.maximum(size, 0.1)).max() if got.size else 0.0


def check_case(name, case, with_sums=True, **given):
    got, expected = case.arrays(**given), case.oracle(**given)
    if case.data[0].ndim == 2 and got[0].ndim == 2:
        got[0] = got[0][:, None]
    error = worst_error(got[0], expected[0])
    sums = sums_error(got[1], expected[1]) if with_sums else 0.0
    check(name, max(error, sums) <= TOLERANCE, f"{error:.1e}, sums {sums:.1e}")
    return error


# ---- Results -----------------------------------------------------------------------------------

def test_accuracy(work):
    for i, (name, variant) in enumerate(VARIANTS.items()):
        for j, (shape_name, shape) in enumerate(SHAPES.items()):
            case = rule_case(work / f"{i}-{j}", 100 * i + j, shape, **variant)
            check_case(f"{name}: {shape_name}", case, with_sums="large" not in name)
        if "beta" not in case.files or "decay" in case.files:
            for j, shape in enumerate([SHAPES["grouped keys"], LONG]):
                case = rule_case(work / f"{i}-{j}-factor", i, shape, decay_is="factor", **variant)
                check_case(f"{name}: {shape[0]} decays as factors", case,
                           with_sums="large" not in name)


def test_long(work):
    worst = {}
    for i, (name, variant) in enumerate(VARIANTS.items()):
        case = rule_case(work / str(i), i, LONG, **variant)
        error = check_case(f"4096 tokens: {name}", case, with_sums="large" not in name)
        worst[variant["rule"]] = max(error, worst.get(variant["rule"], 0.0))
    print("worst over 4096 tokens: " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items()))


def test_maps(work):
    shape = SHAPES["grouped queries"]
    for map, (name, variant) in itertools.product(MAPS[1:], VARIANTS.items()):
        if name in ["gated, per channel", "gated, read before", "delta", "general, per channel",
                    "gated delta, per head", "mlstm"]:
            case = rule_case(work / f"{map}-{name}", 5, shape, map=map, **variant)
            check_case(f"{map}: {name}", case)
    case = rule_case(work / "long", 5, LONG, map="unit", rule="gated-delta")
    check_case("4096 tokens: unit, gated delta", case)


def test_precision(work):
    given = dict(precision="compensated")
    for name in ["gated, per head", "gated, per channel", "gated, read before", "mlstm",
                 "mlstm, large gates"]:
        for map in ["identity", "elu1", "relu", "exp", "unit"]:
            case = rule_case(work / f"{map}-{name}", 7, LONG, map=map, **VARIANTS[name])
            check_case(f"compensated: {name}, {map}", case, with_sums="large" not in name, **given)
            whole = case.both(**given)
            check(f"the same bytes in calls and threads: {name}, {map}",
                  all(case.both(*more, **given) == whole
                      for more in [["--split", "100,27"], ["--threads", 3]]))
    for name in ["delta", "general, per channel"]:
        case = rule_case(work / name, 8, SHAPES["one number"], **VARIANTS[name])
        refuse(f"compensated: {name}", "--dir", case.folder, "--out", OUT,
               *case.arguments(**given), says=[b"--precision belongs to --rule sum, gated, mlstm"])


def test_state_types(work):
    """Every rule with sums of 16 bits, over 64 tokens."""
    limits = dict(f16=(1e-5, 1e-2), bf16=(1e-4, 8e-2))
    for (name, variant), (kind, (least, most)) in itertools.product(VARIANTS.items(),
                                                                  limits.items()):
        case = rule_case(work / f"{kind}-{name}", 9, SHAPES["grouped keys"], **variant)
        whole = case.both(state_type=kind)
        out = case.arrays(state_type=kind)[0]
        error = worst_error(out, case.oracle()[0])
        check(f"sums of 16 bits: {kind}, {name}", least < error < most,
              f"{error:.1e}")
        check(f"the same bytes in calls and threads: {kind}, {name}",
              all(case.both(*more, state_type=kind) == whole
                  for more in [["--split", "10,7"], ["--threads", 3], ["--isa", "scalar"]]))


def test_scale_and_norms(work):
    shape = SHAPES["grouped keys"]
    for name in ["gated, per head", "delta", "general, per channel", "mlstm"]:
        case = rule_case(work / f"scale-{name}", 6, shape, **VARIANTS[name])
        check_case(f"scale 0.3: {name}", case, scale=0.3)
        default = case.both()
        check(f"the defaults are scale 1/sqrt(dim), norm none and causal: {name}",
              default == case.both(scale=repr(float(np.float32(1 / np.sqrt(17)))), norm="none")
              == case.both(causal=True))
    for map, norm, channels in itertools.product(["elu1", "exp"], ["sum", "length"], [False, True]):
        case = rule_case(work / f"{map}-{norm}-{channels}", 7, shape, "gated", map=map,
                         channels=channels)
        name = f"{map}, norm {norm}, {'per channel' if channels else 'per head'}"
        check_case(name, case, norm=norm)
        if norm == "sum":
            check_case(name + ", epsilon 2", case, norm=norm, eps=2)
    case = rule_case(work / "defaults", 8, shape, "gated", map="elu1")
    plain = case.attend("--rule", "gated", "--decay", case.folder / "decay.npy")
    check("the defaults are elu1 and logarithms",
          plain == case.both(map="elu1", decay_is="log")[0])


def test_sum(work):
    """The rule of linear attention, as ONNX has it."""
    given = dict(norm="none", scale=0.25)
    for name, shape in SHAPES.items():
        if shape[2] == shape[3]:
            case = rule_case(work / name, 9, shape, "sum")
            check_case(f"rule sum: {name}", case, causal=True, **given)
            sums, expected = case.arrays(**given)[1], case.oracle(**given)[1]
            error = sums_error(sums, expected)
            check(f"rule sum, its sums without --causal: {name}", error <= TOLERANCE,
                  f"{error:.1e}")
    case = rule_case(work / "same", 10, SHAPES["grouped queries"], "sum")
    check("rule sum is the default",
          case.both(**given)[0] == case.attend(map="identity", **given))


def test_same_bytes(work):
    none = small(work, "none", "sum").folder
    isas = list(present_isas("--dir", none, "--out", none / "out.npy"))
    for i, (name, variant) in enumerate(VARIANTS.items()):
        cases = [rule_case(work / f"{i}-{s}", i, SHAPES[s], **variant)
                 for s in ["grouped queries", "grouped keys", "wide keys"]]
        whole = [case.both() for case in cases]
        for more in [dict(split="1"), dict(split="64"), dict(split="3,1,40,7"), dict(threads=2),
                     dict(threads=5, split="16,5")]:
            check(f"same bytes with {more}: {name}",
                  all(case.both(**more) == w for case, w in zip(cases, whole)))
        for isa in isas:
            check(f"same bytes with {isa}: {name}",
                  all(case.both(isa=isa) == w for case, w in zip(cases, whole)))


def test_same_meaning(work):
    """What can be said in two ways."""
    shape = SHAPES["grouped keys"]
    n, _, key_heads, heads, dim, _ = shape
    for i, channels in enumerate([False, True]):
        case = rule_case(work / f"fixed-{i}", 11, shape, "gated-delta", channels=channels,
                         fixed=True, one_beta=True)
        decay, beta = case.files["decay"], case.files["beta"]
        files = dict(decay=np.repeat(decay, n, axis=0), beta=np.repeat(beta, heads, axis=1))
        other = RuleCase(work / f"repeated-{i}", case.data, files, "gated-delta", map="identity")
        check(f"a fixed decay and one beta are those of all tokens and heads: channels {channels}",
              case.both() == other.both())
    case = rule_case(work / "heads", 12, shape, "gated-delta")
    q, k, v = case.data
    whole = [np.repeat(q, heads // key_heads, axis=1), np.repeat(k, heads // key_heads, axis=1), v]
    other = RuleCase(work / "repeated-heads", whole, case.files, "gated-delta", map="identity")
    check("grouped keys are keys and queries that are repeated", case.both() == other.both())
    channels = dict(case.files, decay=np.repeat(case.files["decay"][..., None], dim, axis=2))
    other = RuleCase(work / "repeated-channels", case.data, channels, "gated-delta", map="identity")
    one, all = case.arrays(), other.arrays()
    errors = worst_error(one[0], all[0]), sums_error(one[1], all[1])
    check("a decay of heads is that of all their channels", max(errors) <= TOLERANCE,
          "{:.1e}, sums {:.1e}".format(*errors))
    none = RuleCase(work / "none", case.data, dict(case.files, decay=0 * case.files["decay"]),
                    "gated-delta", map="identity")
    delta = RuleCase(work / "delta", case.data, dict(beta=case.files["beta"]), "delta",
                     map="identity")
    check("no decay leaves the delta rule", none.both() == delta.both())
    equals = [f"--{x}={case.folder / (x + '.npy')}" for x in ["q", "k", "v", "decay", "beta"]]
    run(*equals, "--rule=gated-delta", "--map=identity", f"--out={work / 'named.npy'}")
    check("--name=value", bytes_of(work / "named.npy") == case.both()[0])


def test_masks(work):
    for i, (name, variant) in enumerate(VARIANTS.items()):
        for map in ["identity", "unit", "elu1"]:
            case = rule_case(work / f"{i}-{map}", 13, SHAPES["grouped queries"], map=map, **variant)
            q, k, v = [x.copy() for x in case.data]
            k[[0, 3, 4, 20], :] = -np.inf
            masked = RuleCase(work / f"{i}-{map}-masked", [q, k, v], case.files, case.rule,
                              **case.given)
            check_case(f"masked tokens, {map}: {name}", masked, with_sums="large" not in name)


def test_extremes(work):
    """Gates of an mLSTM of any size; a decay of nothing."""
    n, heads, dim = 60, 2, 8
    g = np.random.default_rng(14)
    data = [g.standard_normal((n, heads, d)).astype(np.float32) for d in (dim, dim, 5)]
    data[:2] = [abs(x) for x in data[:2]]
    decay = np.log(g.uniform(0.5, 1, (n, heads))).astype(np.float32)
    inputs = {"up to 1e4": g.uniform(-1e4, 1e4, (n, heads)),
              "that rise by 90 a token": 90.0 * np.arange(n)[:, None] + np.zeros((n, heads)),
              "that fall by 90 a token": -90.0 * np.arange(n)[:, None] + np.zeros((n, heads)),
              "of 3e38": g.choice([-3e38, 3e38, 0.0], (n, heads))}
    for i, (name, gate) in enumerate(inputs.items()):
        files = {"decay": decay, "input-gate": gate.astype(np.float32)}
        case = RuleCase(work / f"mlstm-{i}", data, files, "mlstm", map="identity")
        check_case(f"input gates {name}", case, with_sums=False)
    for decay_is, nothing in [("log", -np.inf), ("factor", 0.0)]:
        gone = np.exp(decay) if decay_is == "factor" else decay.copy()
        gone[[7, 30]] = nothing
        case = RuleCase(work / f"gone-{decay_is}", data, {"decay": gone}, "gated", map="identity",
                        decay_is=decay_is)
        check_case(f"a decay to nothing, as {decay_is}", case)
    v = data[2].copy()
    v[9, 1, 3] = np.nan
    case = RuleCase(work / "nan", [*data[:2], v], {"decay": decay}, "gated", map="identity")
    out = case.arrays()[0]
    check("a NaN stays in its head and is not hidden",
          np.isfinite(out[:, 0]).all() and np.isnan(out[9:, 1, 3]).all())


# ---- States ------------------------------------------------------------------------------------

def halves(work, case, cut):
    """The case as two, one after the other."""
    per_token = [name for name, x in case.files.items()
                 if name != "bonus" and len(x) == len(case.data[1])]
    for name, part in [("first", slice(None, cut)), ("second", slice(cut, None))]:
        files = {k: x[part] if k in per_token else x for k, x in case.files.items()}
        yield RuleCase(work / f"{case.folder.name}-{name}", [x[part] for x in case.data], files,
                       case.rule, **case.given)


def test_states(work):
    for i, (name, variant) in enumerate(VARIANTS.items()):
        case = rule_case(work / str(i), i, SHAPES["grouped keys"], **variant)
        whole, expected = case.arrays(), case.oracle()
        first, second = halves(work, case, 11)
        state = work / "state"
        parts = [first.arrays("--state-out", state)[0], second.arrays("--state-in", state)]
        check(f"a sequence continues with the same bytes: {name}",
              np.concatenate([parts[0], parts[1][0]]).tobytes() == whole[0].tobytes()
              and parts[1][1].tobytes() == whole[1].tobytes())
        if case.rule == "mlstm":
            continue
        first.both()
        rest = second.arrays("--import-state", first.folder / "sums.npy")
        if owes(variant):  # and the sums were rounded
            errors = worst_error(rest[0], whole[0][11:]), sums_error(rest[1], whole[1])
            check(f"a sequence continues from its sums: {name}", max(errors) <= TOLERANCE,
                  "{:.1e}, sums {:.1e}".format(*errors))
        else:
            check(f"a sequence continues from its sums: {name}",
                  np.concatenate([parts[0], rest[0]]).tobytes() == whole[0].tobytes()
                  and rest[1].tobytes() == whole[1].tobytes())
        error = worst_error(rest[0], expected[0][11:])
        check(f"and is right: {name}", error <= TOLERANCE, f"{error:.1e}")


def test_imports(work):
    shape = (5, 4, 2, 2, 7, 19)
    g = np.random.default_rng(15)
    begin = g.standard_normal((2, 7, 19)).astype(np.float32)
    path = work / "begin.npy"
    np.save(path, begin)
    for i, (name, variant) in enumerate(VARIANTS.items()):
        if variant["rule"] == "mlstm":
            continue
        case = rule_case(work / str(i), i, shape, **variant)
        got, expected = case.arrays("--import-state", path), case.oracle(state=begin)
        errors = worst_error(got[0], expected[0]), sums_error(got[1], expected[1])
        check(f"a state that is given: {name}", max(errors) <= TOLERANCE,
              "{:.1e}, sums {:.1e}".format(*errors))
        first, second = halves(work, case, 2)
        first.attend("--import-state", path, "--state-out", work / "state", *first.arguments())
        check(f"a state that is given, and goes on: {name}",
              second.arrays("--state-in", work / "state")[1].tobytes() == got[1].tobytes())
        none = rule_case(work / f"{i}-none", i, (0, *shape[1:]), **variant)
        check(f"without tokens it comes back: {name}",
              none.both("--import-state", path)[1] == bytes_of(path))
    case = rule_case(work / "sum", 16, shape, "sum")
    for causal, map in itertools.product([True, False], ["identity", "elu1", "relu", "unit"]):
        given = dict(causal=causal, map=map, norm="none", scale=0.25)
        got = case.arrays("--import-state", path, **given)
        mode = f"{map}, {'causal' if causal else 'not causal'}"
        expected = oracle(case.data, {}, "sum", map, scale=0.25, state=begin)
        error = sums_error(got[1], expected[1])
        if causal:
            error = max(error, worst_error(got[0], expected[0]))
        check(f"rule sum, a state that is given: {mode}", error <= TOLERANCE, f"{error:.1e}")
    case = rule_case(work / "features", 17, shape, "sum")
    sums = case.arrays(map="taylor", degree=2, norm="none")[1]
    check("the sums of a map with features of its own", sums.shape == (2, 36, 19))


# ---- What is refused ---------------------------------------------------------------------------

def small(work, name, rule, **more):
    return rule_case(work / name, 18, (5, 4, 2, 2, 3, 4), rule, **more)


def arguments(case, without=(), **other):
    """Of a run; `other` replaces files by their names."""
    files = {name: case.folder / (name + ".npy") for name in case.files if name not in without}
    files.update({name.replace("_", "-"): path for name, path in other.items()})
    gates = [x for name, path in files.items() for x in ("--" + name, path)]
    return ["--dir", case.folder, "--out", OUT, "--map", "identity", "--rule", case.rule, *gates]


def test_what_rules_take(work):
    cases = {rule: small(work, rule, rule) for rule in RULES}
    spare = work / "spare.npy"
    np.save(spare, np.ones((5, 2), np.float32))
    for rule, case in cases.items():
        for gate in GATES:
            if gate not in TAKES[rule]:
                refuse(f"--{gate} with rule {rule}", *arguments(case), "--" + gate, spare,
                       says=[f"--{gate} belongs to --rule".encode(), f"is {rule}".encode()])
            elif gate != "bonus":
                refuse(f"rule {rule} without --{gate}", *arguments(case, without=[gate]),
                       says=[f"--rule {rule} needs --{gate}".encode()])
        if "decay" not in TAKES[rule]:
            refuse(f"--decay-is with rule {rule}", *arguments(case), "--decay-is", "log",
                   says=[b"--decay-is belongs to"])
    for gate in GATES:
        refuse(f"--{gate} without a rule", "--dir", cases["sum"].folder, "--out", OUT,
               "--" + gate, spare, says=[b"belongs to --rule", b"what runs is sum"])
    for rule in RULES[1:]:
        base = arguments(cases[rule])
        for norm in ["sum", "length", "feature"]:
            if norm == "feature" or rule != "gated":
                refuse(f"norm {norm} with rule {rule}", *base, "--norm", norm,
                       says=[b"--norm " + norm.encode(), b"belongs to --rule sum", rule.encode()])
        for map in ["softmax", "favor", "taylor", "expdef"]:
            other = [map if x == "identity" else x for x in base]
            refuse(f"map {map} with rule {rule}", *other, says=[b"identity", map.encode()])
        for extra in [["--window", 3], ["--eps", 1], ["--attention", "softmax"],
                      ["--attention", "nystrom"], ["--features", 5]]:
            refuse(f"{' '.join(map_str(extra))} with rule {rule}", *base, *extra)
        refuse(f"--compare with rule {rule}", "--dir", cases[rule].folder, "--compare", "--rule",
               rule, says=[b"exclude"])


def map_str(values):
    return [str(x) for x in values]


def test_names(work):
    base = arguments(small(work, "case", "gated"))
    for rule in ["Gated", "gated_delta", "gateddelta", "retnet", "rwkv7", "mLSTM", "linear", "1"]:
        refuse(f"--rule {rule}", "--dir", work / "case", "--out", OUT, f"--rule={rule}",
               says=[b"unknown name", b"gated-delta", b"mlstm"])
    for kind in ["ln", "Log", "factors", "0"]:
        refuse(f"--decay-is {kind}", *base, f"--decay-is={kind}", says=[b"log, factor"])
    for near in ["--rules", "--decays", "--decay_is", "--gate", "--input_gate", "--input", "--u",
                 "--reads", "--import", "--state-import", "--export_state", "--log-decay"]:
        refuse(f"{near}, a near miss", *base, near, "x", says=[near.encode(), b"--help"])
    for option in ["--decay-is", "--bonus", "--import-state", "--export-state", "--rule"]:
        refuse(f"{option} without its value", *base, option)
        refuse(f"{option} without its value, before another", option, "--causal")
    refuse("--rule twice", *base, "--rule", "gated", says=[b"twice"])
    refuse("--decay twice", *base, "--decay", "x", says=[b"twice"])


def test_gate_files(work):
    g = np.random.default_rng(19)
    right = {"decay": [("gated", (5, 2)), ("gated", (5, 2, 3)), ("gated", (1, 2)),
                       ("gated", (1, 2, 3)), ("mlstm", (5, 2)), ("mlstm", (1, 2))],
             "beta": [("delta", (5, 2)), ("delta", (5, 1))],
             "read": [("general", (5, 2, 3))], "write": [("general", (5, 2, 3))],
             "bonus": [("gated", (2, 3))], "input-gate": [("mlstm", (5, 2))]}
    shapes = [(5, 2), (5, 2, 3), (1, 2), (1, 2, 3), (5, 1), (2, 3), (5, 4), (5, 4, 3), (4, 2),
              (6, 2), (4, 2, 3), (5, 2, 4), (5, 1, 3), (5, 3), (2, 5), (1, 1), (1, 4), (3, 2, 3),
              (0, 2), (5,), (2,), (), (5, 2, 3, 1), (1, 5, 2), (5, 2, 1), (1, 3)]
    cases = {rule: small(work, rule, rule) for rule in RULES[1:]}
    path = work / "odd.npy"
    for gate, rule in sorted({(gate, rule) for gate, some in right.items() for rule, _ in some}):
        case = cases[rule]
        for shape in shapes:
            numbers = g.random(shape).astype(np.float32)
            np.save(path, -numbers if gate == "decay" else numbers)
            given = arguments(case, **{gate: path})
            if (rule, shape) in right[gate]:
                out = work / "out.npy"
                done = run(*[out if x is OUT else x for x in given])
                check(f"--{gate} of shape {shape}, rule {rule}", done.returncode == 0,
                      repr(done.stderr))
            else:
                refuse(f"--{gate} of shape {shape}, rule {rule}", *given,
                       says=[b"odd.npy", b"shape", b"expected"])
        good = npy(header(shape="(5, 2)"), bytes(40))
        bad = {"float64": (npy(header("'<f8'", shape="(5, 2)"), bytes(80)), b"'<f4'"),
               "float16": (npy(header("'<f2'", shape="(5, 2)"), bytes(20)), b"'<f4'"),
               "Fortran order": (npy(header(order="True", shape="(5, 2)"), bytes(40)), b"C order"),
               "a truncated file": (good[:-1], b"truncated"), "a tail": (good + b"x", b"behind"),
               "nothing": (b"", b".npy"), "text": (b"0.5, 0.25\n" * 9, b".npy")}
        for name, (content, says) in bad.items():
            path.write_bytes(content)
            refuse(f"--{gate} of {name}, rule {rule}", *arguments(case, **{gate: path}),
                   says=[b"odd.npy", says])
        refuse(f"--{gate} of no file, rule {rule}", *arguments(case, **{gate: work / "none.npy"}),
               says=[b"none.npy"])
        refuse(f"--{gate} of a folder, rule {rule}", *arguments(case, **{gate: work}),
               says=[b"not a regular file"])


def test_gate_numbers(work):
    """Each in its range, the ends of which are taken."""
    nan, inf, cases = np.nan, np.inf, {rule: small(work, rule, rule) for rule in RULES[1:]}
    ranges = [("gated", "decay", "log", [0, -0.0, -3e38, -inf], [1e-30, 0.5, inf, nan],
               b"at most 0"),
              ("gated", "decay", "factor", [0, -0.0, 1], [-1e-30, 1.001, inf, -inf, nan],
               b"0 to 1"),
              ("mlstm", "decay", "log", [-inf], [0.5, nan, -nan], b"at most 0"),
              ("delta", "beta", "", [0, -0.0, 2], [-1e-30, 2.001, inf, nan], b" 0 to 2"),
              ("gated-delta", "beta", "", [0, 2], [-0.1, 2.001, nan], b" 0 to 2"),
              ("general", "read", "", [7], [inf, -inf, nan], b"finite"),
              ("general", "write", "", [-7], [inf, -inf, nan], b"finite"),
              ("gated", "bonus", "", [3e38], [inf, -inf, nan], b"finite"),
              ("mlstm", "input-gate", "", [3e38, -3e38], [inf, -inf, nan], b"finite")]
    path = work / "odd.npy"
    for rule, gate, kind, good, bad, says in ranges:
        shape = {"read": (5, 2, 3), "write": (5, 2, 3), "bonus": (2, 3)}.get(gate, (5, 2))
        place = tuple(size - 1 for size in shape)
        numbers = np.zeros(shape, np.float32)
        given = [*arguments(cases[rule], **{gate: path}), *(["--decay-is", kind] if kind else [])]
        for number in [*good, *bad]:
            numbers[place] = number
            np.save(path, numbers)
            name = f"--{gate} of {number} {kind}, rule {rule}"
            if number in good:
                done = run(*[work / "out.npy" if x is OUT else x for x in given])
                check(name, done.returncode == 0, repr(done.stderr))
            else:
                refuse(name, *given, says=[b"odd.npy: element " + str(place).encode(), says])
    refuse("a bonus with the norm sum", *arguments(cases["gated"], bonus=path), "--norm", "sum",
           says=[b"--bonus", b"--norm sum", b"length or none"])


def test_shapes(work):
    def refuse_shapes(name, q, k, v, *says):
        n = len(np.zeros(v)) if v else 0
        case = RuleCase(work / name, [np.ones(s, np.float32) for s in (q, k, v)],
                        {"beta": np.ones((n, v[1]), np.float32)}, "delta")
        refuse(name, *arguments(case), says=says)

    refuse_shapes("values that are no multiple", (4, 2, 3), (4, 2, 3), (4, 3, 3), b"v.npy has 3",
                  b"multiple")
    refuse_shapes("fewer values than keys", (4, 4, 3), (4, 4, 3), (4, 2, 3), b"v.npy has 2")
    refuse_shapes("grouped queries and keys", (4, 4, 3), (4, 2, 3), (4, 4, 3), b"q.npy has 4",
                  b"expected 2")
    refuse_shapes("queries that are no multiple", (4, 3, 3), (4, 2, 3), (4, 2, 3), b"q.npy has 3")
    refuse_shapes("more keys", (4, 2, 3), (5, 2, 3), (5, 2, 3), b"--rule needs as many")
    refuse_shapes("more values", (4, 2, 3), (4, 2, 3), (5, 2, 3), b"must agree")
    refuse_shapes("other dimensions", (4, 2, 3), (4, 2, 5), (4, 2, 3), b"must agree")
    case = rule_case(work / "sum", 18, (5, 2, 2, 4, 3, 4), "sum")
    refuse("grouped keys with rule sum", *arguments(case), says=[b"must agree"])


def test_state_files(work):
    case = small(work, "case", "gated")
    base, path = arguments(case), work / "sums.npy"
    for shape in [(2, 3, 5), (2, 4, 4), (3, 3, 4), (4, 3, 4), (2, 4, 3), (2, 12), (24,),
                  (1, 2, 3, 4)]:
        np.save(path, np.zeros(shape, np.float32))
        refuse(f"a state of shape {shape}", *base, "--import-state", path,
               says=[b"sums.npy", b"expected", b"(kv_heads, dim, dim_value)"])
    np.save(path, np.zeros((2, 3, 4)))
    refuse("a state of float64", *base, "--import-state", path, says=[b"sums.npy", b"'<f4'"])
    np.save(path, np.zeros((2, 3, 4), np.float32))
    path.write_bytes(path.read_bytes()[:-1])
    refuse("a truncated state", *base, "--import-state", path, says=[b"sums.npy", b"truncated"])
    sums = np.zeros((2, 3, 4), np.float32)
    for number, kind in [(np.nan, "f32"), (-np.inf, "f32"), (np.inf, "bf16"), (1e6, "f16"),
                         (-65520, "f16"), (1e38, "bf16")]:
        sums[1, 2, 0] = number
        np.save(path, sums)
        refuse(f"a state with {number} as {kind}", *base, "--scale", 1, "--state-type", kind,
               "--import-state", path, says=[b"sums.npy: element (1, 2, 0) is "])
    for number, kind in [(-3.4e38, "f32"), (65519, "f16"), (1e-30, "f16"), (4e33, "bf16")]:
        sums[1, 2, 0] = number
        np.save(path, sums)
        done = run(*[work / "taken.npy" if x is OUT else x for x in base], "--scale", 1,
                   "--state-type", kind, "--import-state", path)
        check(f"a state with {number} as {kind}", done.returncode == 0, repr(done.stderr))
    refuse("a missing state", *base, "--import-state", work / "none.npy", says=[b"none.npy"])
    np.save(path, np.zeros((2, 3, 4), np.float32))
    refuse("--import-state with --state-in", *base, "--import-state", path, "--state-in", path,
           says=[b"exclude"])
    refuse("--import-state with a norm", *base, "--import-state", path, "--norm", "sum",
           says=[b"--import-state", b"--norm none", b"sum"])
    refuse("--import-state with mlstm", *arguments(small(work, "mlstm", "mlstm")),
           "--import-state", path, says=[b"--import-state", b"mlstm"])
    refuse("--import-state with the norm of linear attention", "--dir", case.folder, "--out", OUT,
           "--import-state", path, says=[b"--import-state", b"--norm none"])
    for option in ["--import-state", "--export-state"]:
        plain = ["--dir", case.folder, "--map", "identity", "--norm", "none", option, path]
        refuse(f"{option} with --window", *plain, "--out", OUT, "--causal", "--window", 3,
               says=[b"exclude"])
        refuse(f"{option} with --compare", "--dir", case.folder, "--compare", option, path,
               says=[b"exclude"])
        for kind in ["softmax", "nystrom"]:
            refuse(f"{option} with --attention {kind}", "--dir", case.folder, "--out", OUT,
                   "--attention", kind, option, path, says=[b"belongs to --attention linear"])
    refuse("one file for --out and --export-state", *base, "--export-state", OUT,
           says=[b"same file"])
    refuse("--export-state in a missing folder", *base, "--export-state", work / "x" / "y.npy")
    out = work / "kept.npy"
    out.write_bytes(b"older")
    np.save(path, np.zeros((2, 3, 5), np.float32))
    done = run(*[work / "out.npy" if x is OUT else x for x in base], "--export-state", out,
               "--import-state", path)
    check("an older state survives a failure",
          done.returncode == 2 and bytes_of(out) == b"older" and not (work / "out.npy").exists())
    other = small(work, "delta", "delta")
    state = work / "state"
    case.both("--state-out", state)
    refuse("a state of another rule", *arguments(other), "--state-in", state, says=[b"state"])


def test_help(_):
    text = run("--help").stdout.decode()
    names = ["rule", "decay", "decay-is", "beta", "read", "write", "bonus", "input-gate",
             "import-state", "export-state"]
    check("--help names every option and rule",
          all("--" + name in text for name in names) and all(rule in text for rule in RULES)
          and "unit" in text)
    check("--help has lines of 100 columns at most", max(map(len, text.splitlines())) <= 100)


def make_tests(*_):
    tests = [test_accuracy, test_long, test_maps, test_precision, test_state_types,
             test_scale_and_norms, test_sum, test_same_bytes, test_same_meaning, test_masks,
             test_extremes, test_states, test_imports, test_what_rules_take, test_names,
             test_gate_files, test_gate_numbers, test_shapes, test_state_files, test_help]
    return dict.fromkeys(tests, ())


if __name__ == "__main__":
    checks.main("attend", __doc__, make_tests, takes_data=False)
