"""The tables and pictures of docs/study.md, from what study.py measured: docs/study/*.json is their
only source, so that writing them can be repeated."""

import json
import math
import pathlib
import re
import sys

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "study"
WINDOW = 64
LANDMARKS = 64
SICK = 40  # a condition number of Nystroem's landmark matrix that is worth a warning
SPECTRUM = sorted({round(2**(i / 4)) - 1 for i in range(37)})  # which singular values are kept

COLOURS = {
    "exact": "black", "uniform": "grey", "elu1": "tab:blue", "relu": "tab:cyan", "exp": "tab:green",
    "softmax map": "tab:olive", "favor": "tab:orange", "favor-simple": "tab:brown",
    "favor-hyperbolic": "tab:pink", "taylor 2": "tab:red", "expdef 2": "lightcoral",
    "exact, window": "tab:cyan",
    "nystrom, 12 steps": "tab:purple", "nystrom, 6 steps": "indigo", "nystrom": "tab:purple",
}


# ---- Tables -------------------------------------------------------------------------------------


def pick(rows, **wanted):
    return [row for row in rows if all(row.get(key) == want for key, want in wanted.items())]


def percent(error):
    """An error as a share of the norm of what is exact."""
    share = 100 * error
    if share >= 995:
        return f"{share / 100:,.0f}×"
    return f"{share:.0f} %" if share >= 9.5 else f"{share:.2g} %" if share >= 1e-3 else "< 0.001 %"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def slope(rows):
    m, error = zip(*((row["m"], row["error"]) for row in rows))
    return float(np.polyfit(np.log(m), np.log(error), 1)[0])


def favor_table(errors):
    rows = []
    for need in errors["favor_needs"]:
        found = pick(errors["favor"], data=need["data"])

        def error(name, m):
            return percent(pick(found, map=name, m=m)[0]["error"])
        plain = [row for row in pick(found, map="independent") if row["m"] >= 256]
        rows.append([need["data"], f"{need['product']:.1f}", error("uniform", 0),
                     *(error("independent", m) for m in [64, 256, 4096]), f"{slope(plain):.2f}",
                     error("orthogonal", 256), error("hyperbolic", 256), error("simplified", 4096),
                     f"10^{need['log10_m']:.0f}"])
    return table(["data", "median s‖q‖‖k‖", "plain average", "independent, m = 64", "256", "4096",
                  "slope", "orthogonal, 256", "hyperbolic, 256", "simplified, 4096",
                  "m for 10 %, theory"], rows)


def sphere_table(errors):
    found = pick(errors["polynomial"], data="sphere")
    rows = []
    for row in pick(found, map="uniform"):
        cells = [pick(found, map=kind, degree=degree, product=row["product"])[0]["error"]
                 for kind in ["taylor", "expdef"] for degree in [1, 2, 3, 4, 8]]
        rows.append([f"{row['product']:g}", percent(row["error"]), *map(percent, cells)])
    return table(["s‖q‖‖k‖", "plain average", "taylor 1", "2", "3", "4", "8", "expdef 1", "2", "3",
                  "4", "8"], rows)


def degree_table(errors):
    rows = []
    for need in pick(errors["favor_needs"], real=1):
        found, dim = pick(errors["polynomial"], data=need["data"]), need["dim"]
        for degree in [1, 2, 3, 4, 6, 8]:
            cells = [pick(found, map=kind, degree=degree, centred=centred)[0]["error"]
                     for centred in [0, 1] for kind in ["taylor", "expdef"]]
            rows.append([need["data"], str(degree), f"{math.comb(dim + degree, degree):,}",
                         *map(percent, cells)])
    return table(["data", "degree", "features", "taylor", "expdef", "taylor, centred keys",
                  "expdef, centred keys"], rows)


def rank_table(errors):
    masks = ["all", "all, window", "causal", "causal, window"]
    rows = []
    for first in pick(errors["rank"], mask="all"):
        row = [first["map"], str(first["m"] or "–")]
        for mask in masks:
            found = pick(errors["rank"], map=first["map"], m=first["m"], mask=mask)[0]
            row.append(f"{found['rank']:.0f} ({found['rank99']:.0f})")
        rows.append(row)
    return table(["map", "m", "every key", f"window of {WINDOW}", "causal",
                  f"causal, window of {WINDOW}"], rows)


def concentration_table(errors):
    rows = []
    for name in dict.fromkeys(row["map"] for row in errors["concentration"]):
        row = [name]
        for found in pick(errors["concentration"], map=name):
            row += [f"{found['entropy']:.2f}", f"{100 * found['top'][1]:.0f} %"]
        rows.append(row)
    return table(["map", "encoder: entropy", "mass on the top 1 %", "lm: entropy",
                  "mass on the top 1 %"], rows)


def crossover(rows, method):
    """The length from which the method is faster than exact attention, between two that were
    measured by their ratio's logarithm."""
    points = sorted((row["n"], math.log(row["ns"]["exact"] / row["ns"][method])) for row in rows
                    if method in row["ns"])
    if not points:
        return "–"
    slower = [i for i, (_, gain) in enumerate(points) if gain <= 0]
    if not slower:
        return f"< {points[0][0]}"
    last = slower[-1]
    if last == len(points) - 1:
        return f"> {points[-1][0]}"
    (n0, gain0), (n1, gain1) = points[last:last + 2]
    return f"{n0 * (n1 / n0)**(-gain0 / (gain1 - gain0)):.0f}"


def crossover_table(measured):
    rows = []
    for isa in dict.fromkeys(row["isa"] for row in measured["times"]):
        for dim in sorted({row["dim"] for row in measured["times"]}):
            row = [isa, str(dim)]
            for causal in [0, 1]:
                found = pick(measured["times"], isa=isa, dim=dim, causal=causal)
                names = ["elu1", "favor", "taylor"] + ["nystrom"] * (not causal)
                row += [crossover(found, name) for name in names]
            rows.append(row)
    return table(["instructions", "d", "every key: elu1", "favor, m = 4d", "taylor 2",
                  f"nystrom {LANDMARKS}", "causal: elu1", "favor, m = 4d", "taylor 2"], rows)


def features_of(method, dim):
    if method in ("favor", "favor-simple"):
        return 4 * dim
    if method == "favor-hyperbolic":
        return 8 * dim
    return math.comb(dim + 2, 2) if method in ("taylor", "expdef") else dim


def cost_table(measured, dim=64):
    """On the best instruction set. The flops of projections, state and read-out; maps are extra."""
    best = measured["times"][0]["isa"]
    found = {(row["causal"], row["n"]): row["ns"]
             for row in pick(measured["times"], isa=best, dim=dim)}
    rows = []
    for method in found[0, 256]:
        m = features_of(method, dim)
        projection = 4 * 4 * dim * dim if method.startswith("favor") else 0
        sizes = [f"{m:,}", f"{(4 * m * dim + projection) / 1000:,.0f}",
                 f"{4 * m * (dim + 1) / 1024:,.0f}"]
        if method == "exact":
            sizes = ["–", f"{4 * dim / 1000:.2g} n", f"{8 * dim / 1024:.2g} n"]
        if method == "nystrom":
            sizes = [str(LANDMARKS), f"{4 * dim * 2 * LANDMARKS / 1000:.0f}", "–"]
        ns = [f"{found[key][method]:,.0f}" if method in found[key] else "–"
              for key in [(0, 256), (0, 4096), (1, 256), (1, 4096)]]
        rows.append([method, *sizes, *ns])
    return table(["method", "features", "kflop per token", "state, KiB", "every key, n = 256: ns",
                  "n = 4096", "causal, n = 256", "n = 4096"], rows)


HEAD_METHODS = ["uniform", "elu1", "relu", "exp", "softmax map", "favor", "favor-simple",
                "favor-hyperbolic", "taylor 2", "taylor 2, centred keys", "expdef 2",
                "nystrom, 6 steps", "nystrom, 12 steps", "elu1, window", "exact, window"]


LINEAR = [name for name in HEAD_METHODS if "exact" not in name and "nystrom" not in name]


def heads_table(rows):
    lines = []
    for name in HEAD_METHODS:
        lines.append([name.replace("uniform", "plain average")])
        lines[-1] += [percent(row["errors"][name]) if name in row["errors"] else "–"
                      for row in rows]
    header = [f"{row['layer']} {row['head']}" for row in rows]
    entropy = ["*entropy of the rows*"] + [f"*{row['entropy']:.2f}*" for row in rows]
    return table(["method"] + header, [entropy] + lines)


def spread_table(rows):
    """Median and extremes over the heads, by mask."""
    lines = []
    for name in HEAD_METHODS:
        line = [name.replace("uniform", "plain average")]
        for causal in [0, 1]:
            found = [row["errors"][name] for row in pick(rows, causal=causal)
                     if name in row["errors"]]
            line.append(f"**{percent(np.median(found))}** ({percent(min(found))} to "
                        f"{percent(max(found))})" if found else "–")
        lines.append(line)
    counts = [len(pick(rows, causal=causal)) for causal in [0, 1]]
    return table(["method", f"encoder, {counts[0]} heads", f"lm, causal, {counts[1]} heads"], lines)


def nystrom_table(rows):
    lines = [[f"{row['layer']} {row['head']}", f"{row['entropy']:.2f}",
              f"{row['nystrom']['condition']:.0e}".replace("e+0", "e"),
              percent(row["errors"]["nystrom, 6 steps"]),
              percent(row["errors"]["nystrom, 12 steps"]), percent(row["nystrom"]["inverse"]),
              percent(row["errors"]["exp"])]
             for row in sorted(rows, key=lambda row: row.get("nystrom", {}).get("condition", 0))
             if "nystrom" in row]
    return table(["head", "entropy", "condition of A", "6 steps", "12 steps", "exact inverse",
                  "for comparison: exp"], lines)


# ---- Pictures -----------------------------------------------------------------------------------


def save(figure, name):
    figure.tight_layout()
    figure.savefig(FOLDER / name, dpi=80, metadata={"Software": None})
    pyplot.close(figure)


def label_axes(axes, title, x, y, legend=True):
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    if legend:
        axes.legend(fontsize=8)


def draw_favor(errors):
    colours = {"independent": "tab:blue", "orthogonal": "tab:orange", "simplified": "tab:brown",
               "hyperbolic": "tab:pink"}
    needs = errors["favor_needs"]
    figure, all_axes = pyplot.subplots(1, len(needs), figsize=(15, 4), sharey=True)
    for axes, need in zip(all_axes, needs):
        found = pick(errors["favor"], data=need["data"])
        for name, colour in colours.items():
            rows = pick(found, map=name)
            axes.loglog([row["m"] for row in rows], [row["error"] for row in rows], "o-",
                        color=colour, label=name)
        axes.axhline(pick(found, map="uniform")[0]["error"], color="grey", linestyle="--",
                     label="plain average")
        start = pick(found, map="independent", m=256)[0]["error"]
        axes.loglog([256, 4096], [start, start / 4], color="black", linewidth=0.8, linestyle=":",
                    label="slope −1/2")
        label_axes(axes, need["data"], "features", "", axes is all_axes[0])
    all_axes[0].set_ylabel("error of the attention matrix")
    save(figure, "favor.png")


def draw_polynomials(errors):
    figure, all_axes = pyplot.subplots(1, 3, figsize=(15, 4))
    found = pick(errors["polynomial"], data="sphere")
    for degree, colour in zip([1, 2, 4, 8], ["tab:olive", "tab:red", "tab:purple", "tab:blue"]):
        for kind, style in [("taylor", "o-"), ("expdef", "s--")]:
            rows = pick(found, map=kind, degree=degree)
            all_axes[0].loglog([row["product"] for row in rows], [row["error"] for row in rows],
                               style, color=colour, label=f"{kind} {degree}", markersize=4)
    rows = pick(found, map="uniform")
    all_axes[0].loglog([row["product"] for row in rows], [row["error"] for row in rows], "--",
                       color="grey", label="plain average")
    all_axes[0].set_ylim(1e-6, 30)
    label_axes(all_axes[0], "directions at random, d = 8", "s‖q‖‖k‖",
               "error of the attention matrix")
    for axes, data in zip(all_axes[1:], ["encoder", "lm"]):
        found = pick(errors["polynomial"], data=data)
        for kind, colour in [("taylor", "tab:red"), ("expdef", "tab:blue")]:
            for centred, style in [(0, "o-"), (1, "s--")]:
                rows = [row for row in pick(found, map=kind, centred=centred)
                        if row["degree"] % 2 == 0]
                axes.semilogy([row["degree"] for row in rows], [row["error"] for row in rows],
                              style, color=colour, label=kind + ", centred keys" * centred)
        axes.axhline(pick(found, map="uniform")[0]["error"], color="grey", linestyle="--",
                     label="plain average")
        axes.set_ylim(0.18, 1.2)
        axes.set_xticks([2, 4, 6, 8])
        axes.set_yticks([0.2, 0.5, 1], ["20 %", "50 %", "100 %"])
        axes.minorticks_off()
        label_axes(axes, f"{data}, even degrees", "degree", "", data == "encoder")
    save(figure, "polynomial.png")


def draw_ranks(errors):
    figure, all_axes = pyplot.subplots(1, 3, figsize=(15, 4), sharey=True)
    shown = {("exact", 0): ("black", "-"), ("elu1", 32): ("tab:blue", "-"),
             ("exp", 32): ("tab:green", "-"), ("favor", 32): ("tab:orange", ":"),
             ("favor", 128): ("tab:orange", "--"), ("favor", 1024): ("tab:orange", "-")}
    for axes, mask, title in zip(all_axes, ["all", "causal", "all, window"],
                                 ["every key", "causal", f"window of {WINDOW}"]):
        for (name, m), (colour, style) in shown.items():
            row = pick(errors["rank"], map=name, m=m, mask=mask)[0]
            axes.loglog([i + 1 for i in SPECTRUM], np.maximum(row["spectrum"], 1e-9), style,
                        color=colour, label=name + (f", m = {m}" if m else ""))
        axes.axhline(1e-5, color="grey", linewidth=0.8)
        axes.set_ylim(1e-7, 2)
        label_axes(axes, f"encoder, head 0: {title}", "number of the singular value", "",
                   mask == "all")
    all_axes[0].set_ylabel("singular value over the largest")
    save(figure, "rank.png")


def draw_concentration(errors):
    figure, all_axes = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    for axes, data in zip(all_axes, ["encoder", "lm"]):
        rows = pick(errors["concentration"], data=data)[::-1]
        for y, row in enumerate(rows):
            low, middle, high = row["top"]
            axes.plot([low, high], [y, y], linewidth=4, alpha=0.4, color=COLOURS[row["map"]])
            axes.plot(middle, y, "o", color=COLOURS[row["map"]])
        axes.axvline(0.01, color="grey", linestyle="--")
        axes.set_yticks(range(len(rows)), [row["map"] for row in rows])
        axes.set_xscale("log")
        label_axes(axes, data, "mass on the top 1 % of the keys: median, 10 % to 90 % of the rows",
                   "", False)
    save(figure, "concentration.png")


def draw_times(axes, measured, causal, dim=64):
    best = measured["times"][0]["isa"]
    rows = pick(measured["times"], isa=best, dim=dim, causal=causal)
    names = {"exact": "exact", "elu1": "elu1", "exp": "exp", "favor": f"favor, m = {4 * dim}",
             "taylor": "taylor 2", "nystrom": f"nystrom, {LANDMARKS}"}
    for name, label in names.items():
        points = [(row["n"], row["ns"][name]) for row in rows if name in row["ns"]]
        if points:
            colour = COLOURS["taylor 2" if name == "taylor" else name]
            axes.loglog(*zip(*points), "o-", color=colour, label=label, markersize=4)
    label_axes(axes, f"time, {'causal' if causal else 'every key'}, d = {dim}, {best}", "tokens",
               "ns per token and head", False)
    axes.set_ylim(top=8 * axes.get_ylim()[1])
    axes.legend(fontsize=8, loc="upper left", ncol=2)


def draw_heads(axes, rows, names, title):
    for name in names:
        found = [(row["entropy"], row["errors"][name]) for row in rows if name in row["errors"]]
        axes.semilogy(*zip(*found), "x" if name == "uniform" else "o", color=COLOURS[name],
                      markersize=5, alpha=0.75, label=name.replace("uniform", "plain average"))
    axes.axhline(1, color="grey", linewidth=0.8)
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2]
    axes.set_yticks(ticks, [f"{100 * tick:.0f} %" for tick in ticks])
    axes.minorticks_off()
    label_axes(axes, f"{title} in place of the softmax of trained heads",
               "entropy of the rows (0: one key, 1: all alike)", "error of the output")


def draw_nystrom(axes, rows):
    rows = [row for row in rows if "nystrom" in row]
    condition = [row["nystrom"]["condition"] for row in rows]
    for label, colour, error in [
            ("6 steps", "indigo", [row["errors"]["nystrom, 6 steps"] for row in rows]),
            ("12 steps", "tab:purple", [row["errors"]["nystrom, 12 steps"] for row in rows]),
            ("exact inverse", "plum", [row["nystrom"]["inverse"] for row in rows])]:
        axes.loglog(condition, error, "o", color=colour, label=f"nystrom, {label}", alpha=0.75)
    axes.axhline(1, color="grey", linewidth=0.8)
    label_axes(axes, "Nyström: the pseudo-inverse decides", "condition of the landmark matrix",
               "error of the output")


def draw_summary(measured, rows):
    """The one figure of the README: what is lost and what is gained."""
    figure, all_axes = pyplot.subplots(1, 2, figsize=(13, 5))
    draw_heads(all_axes[0], rows, ["uniform", "exp", "favor", "taylor 2", "nystrom, 6 steps",
                                   "exact, window"], "each method")
    draw_times(all_axes[1], measured, 0)
    save(figure, "summary.png")


def draw_all(errors, measured, rows):
    draw_favor(errors)
    draw_polynomials(errors)
    draw_ranks(errors)
    draw_concentration(errors)
    draw_summary(measured, rows)
    figure, all_axes = pyplot.subplots(1, 2, figsize=(13, 4.6))
    draw_times(all_axes[0], measured, 0)
    draw_times(all_axes[1], measured, 1)
    save(figure, "times.png")
    figure, all_axes = pyplot.subplots(1, 2, figsize=(13, 4.6))
    draw_heads(all_axes[0], rows, ["uniform", "elu1", "relu", "exp", "softmax map"],
               "elementwise maps")
    draw_nystrom(all_axes[1], rows)
    save(figure, "heads.png")


# ---- The page -----------------------------------------------------------------------------------


def head_values(rows):
    """Medians and ranges for sentences, and on how many heads methods are far off."""
    values = {}
    for causal, mask in [(0, "encoder"), (1, "lm")]:
        found = pick(rows, causal=causal)
        values[f"heads.{mask}"] = str(len(found))
        for name in HEAD_METHODS:
            errors = [row["errors"][name] for row in found if name in row["errors"]]
            if errors:
                key = f"{mask}.{name}"
                values[key] = percent(np.median(errors))
                values[f"{key}.range"] = f"{percent(min(errors))} to {percent(max(errors))}"
        best = [min(row["errors"][name] for name in ["elu1", "relu", "exp", "softmax map"])
                for row in found]
        values[f"{mask}.off"] = str(sum(error >= 0.6 for error in best))
    products = [row["product"] for row in rows]
    values["products"] = f"{min(products):.0f} to {max(products):.0f}"
    values["lm.linear.least"] = percent(min(
        error for row in pick(rows, causal=1) for name, error in row["errors"].items()
        if name in LINEAR))
    sick = [row for row in rows if row.get("nystrom", {}).get("condition", 0) >= SICK]
    values["condition"] = str(SICK)
    values["sick"] = str(len(sick))
    values["sick.linear"] = str(sum(row["nystrom"]["inverse"] > row["errors"]["exp"]
                                    for row in sick))
    values["sick.12"] = str(sum(row["errors"]["nystrom, 12 steps"] > row["errors"]["exp"]
                                for row in sick))
    values["sick.6"] = str(sum(row["errors"]["nystrom, 6 steps"] > row["errors"]["exp"]
                               for row in sick))
    return values


def page_values(errors, measured, rows):
    """What stands between the markers: a list of lines for a block, a string within a line."""
    values = {
        "favor": favor_table(errors), "sphere": sphere_table(errors),
        "degree": degree_table(errors), "rank": rank_table(errors),
        "concentration": concentration_table(errors), "crossover": crossover_table(measured),
        "cost": cost_table(measured), "heads": heads_table(errors["heads"]),
        "spread": spread_table(rows), "nystrom": nystrom_table(rows),
        "processor": measured["machine"][0]["processor"],
        "compiler": measured["machine"][0]["compiler"], "window": str(WINDOW),
    } | head_values(rows)
    best = measured["times"][0]["isa"]
    values["isa"] = best
    for causal, mask in [(0, "all"), (1, "causal")]:
        for name in ["elu1", "favor", "taylor", "nystrom"]:
            found = pick(measured["times"], isa=best, dim=64, causal=causal)
            values[f"cross.{mask}.{name}"] = crossover(found, name)
    for row in errors["best_of_rank"]:
        values[f"best.{row['rank']}"] = percent(row["error"])
    easy = pick(errors["favor"], data=errors["favor_needs"][0]["data"])
    for row in easy:
        values[f"{row['map']}.{row['m']}"] = percent(row["error"])
    gains = [1 - pick(easy, map="orthogonal", m=row["m"])[0]["error"] / row["error"]
             for row in pick(easy, map="independent") if row["m"] >= 64]
    values["orthogonal.gain"] = f"{percent(min(gains))} to {percent(max(gains))}"
    one = pick(errors["polynomial"], data="sphere", map="taylor", degree=2, product=1)[0]
    values["taylor.2"] = percent(one["error"])
    return values


def fill(path, values):
    def put(match):
        value = values[match[1]]
        text = value if isinstance(value, str) else "\n" + "\n".join(value) + "\n"
        return f"<!-- study:{match[1]} -->{text}<!-- /study -->"
    text = path.read_text()
    unknown = set(re.findall(r"<!-- study:(.*?) -->", text)) - set(values)
    if unknown:
        sys.exit(f"study.py: {path}: there is nothing to put in {', '.join(sorted(unknown))}")
    path.write_text(re.sub(r"<!-- study:(.*?) -->.*?<!-- /study -->", put, text, flags=re.DOTALL))


def read_json(name):
    path = FOLDER / name
    return json.loads(path.read_text()) if path.exists() else None


def render():
    errors, measured = read_json("errors.json"), read_json("times.json")
    if not errors or not measured:
        sys.exit("study.py: errors.json or times.json is missing in docs/study: run it without"
                 " options")
    more = read_json("more-heads.json")
    rows = (more or errors)["heads"]
    draw_all(errors, measured, rows)
    values = page_values(errors, measured, rows)
    fill(ROOT / "docs" / "study.md", values)
    fill(ROOT / "README.md", values)
