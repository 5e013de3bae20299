"""What a processor can do at best for the work of a kernel: more than its products, which the share
of the FMA peak counts alone.

Operations on whole vectors are counted for a token and head, and by the ports that take them: what
the FMA units must do (products, max, min, comparisons, conversions, shifts), what any vector unit
may do (sums, logic, selections), loads, broadcasts from memory, stores. The port that takes longest
is the limit. Nothing waits for anything, caches never miss, addresses and loops cost nothing, and
the blocks of tokens and exponents that move are left out: no kernel can be faster. How often
operands are loaded follows from the tiles, which fill the registers.

    python3 bench/limits.py CPU KERNEL MAP ISA DxDV [N [WINDOW]]
                                      e.g. intel-xeon-emerald-rapids causal elu1 avx512 64x64
"""

import math
import re
import sys
from dataclasses import astuple, dataclass


# ---- Processors ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ports:
    """Operations on a vector that begin in a cycle."""
    fma: float
    any: float         # those of the FMA units included
    loads: float
    broadcasts: float  # of loads; together they take the sum of their times
    stores: float
    selection: int     # operations of a selection; 0: a mask of the operation before it
    parts: int = 1     # that a vector is taken in, one after the other
    wide: int = 0      # causal takes CAUSAL_WIDE


PORTS = {
    # p0 and p1, for 512 bits p0 with p1 and p5; any: p0, p1, p5. Three loads of 256 bits, two of
    # 512. Measured, instruction by instruction. Not counted: for 512 bits a store takes a turn of
    # an FMA unit whose operands all come from registers, none just computed (12 FMAs 6.1 cycles,
    # with 2 stores 7.3, with 4 8.5; products do not mind; 24 with 4 12): a fifth of the delta rule.
    "golden-cove": {"avx512": Ports(2, 2, 2, 2, 1, 0, wide=1),
                    "avx2": Ports(2, 3, 3, 3, 2, 3)},
    # FP0 and FP1, any FP0 to FP3, all of 256 bits. Not counted: measured, a store takes a turn of
    # both FMA units where what they add to was not just computed (12 FMAs 6.0 cycles, with 2
    # stores 7.7, with 4 9.8; products do not mind): a fifth of causal, a third of the delta rule.
    "zen3": {"avx2": Ports(2, 4, 2, 2, 1, 1)},
    # The same: those of 512 bits take two turns.
    "zen4": {"avx512": Ports(1, 2, 1, 2, 0.5, 0, 2), "avx2": Ports(2, 4, 2, 2, 1, 1)},
    # The same of 512 bits.
    "zen5": {"avx512": Ports(2, 4, 2, 2, 1, 0), "avx2": Ports(2, 4, 2, 2, 2, 1)},
}
# By the names of tools/machine.sh. Zen 5 in notebooks has vectors of 256 bits: servers alone.
CLASSES = {r"intel-xeon-(sapphire|emerald|granite)-rapids": "golden-cove",
           r"amd-\w+-zen3": "zen3", r"amd-\w+-zen4": "zen4", r"amd-epyc-zen5": "zen5"}

FLOATS = {"avx512": 16, "avx2": 8}  # of a vector


def ports_of(cpu, isa):
    """None: nothing is known of this processor."""
    for name, family in CLASSES.items():
        if re.fullmatch(name, cpu):
            return PORTS[family].get(isa)
    return None


# ---- What linattn_simd.h says of its tiles ------------------------------------------------------

TILES = {  # tokens or rows x vectors of columns, LA_BLOCK and LA_PART
    "avx512": {"CAUSAL_TOKENS": 4, "CAUSAL_VECS": 2, "CAUSAL_WIDE": 3, "QUERY_TOKENS": 12,
               "QUERY_VECS": 2, "UPDATE_ROWS": 8, "UPDATE_VECS": 2, "EXACT_VECS": 3, "PART": 64,
               "SCORE_ROWS": 4, "GENERAL_VECS": 4, "GATED_TOKENS": 3, "GATED_VECS": 4},
    "avx2": {"CAUSAL_TOKENS": 3, "CAUSAL_VECS": 2, "CAUSAL_WIDE": 0, "QUERY_TOKENS": 6,
             "QUERY_VECS": 2, "UPDATE_ROWS": 6, "UPDATE_VECS": 2, "EXACT_VECS": 2, "PART": 64,
             "SCORE_ROWS": 3, "GENERAL_VECS": 2, "GATED_TOKENS": 3, "GATED_VECS": 2},
}
CHUNK = 128   # features at a time, LINATTN__FEATURES
LANES = 16    # that denominators are summed over
STEPS = 12    # LINATTN__STEPS of the pseudo-inverse
BAND = 32     # tokens that a window sums at a time, LINATTN__BAND
SCORES = 144  # of a token in a window, LINATTN__SCORES
CHAINS = 8    # that a score is the sum of, LINATTN__CHAINS
EXP_FMA = 9   # of an exp: 3 reduce x, 6 are the polynomial


# ---- Operations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ops:
    fma: float = 0.0
    any: float = 0.0
    loads: float = 0.0
    broadcasts: float = 0.0
    stores: float = 0.0

    def __add__(self, other):
        return Ops(*(a + b for a, b in zip(astuple(self), astuple(other))))

    def __rmul__(self, times):
        return Ops(*(times * a for a in astuple(self)))

    def cycles(self, ports):
        """Of each port."""
        return {"FMA ports": self.fma / ports.fma,
                "vector ports": (self.fma + self.any) / ports.any,
                "load ports": self.loads / ports.loads + self.broadcasts / ports.broadcasts,
                "store port": self.stores / ports.stores}


class Counter:
    """Counts for one instruction set: W floats in a vector."""

    def __init__(self, isa, ports):
        self.isa, self.w, self.tile, self.ports = isa, FLOATS[isa], TILES[isa], ports
        self.wide = isa == "avx512"
        self.selection = Ops(any=ports.selection)

    def vectors(self, floats):
        """Where a vector takes two turns, a last one that is at most half full takes one."""
        parts = self.ports.parts
        return math.ceil(parts * floats / self.w) / parts

    # -- exp and the maps, of a vector

    def exp(self):
        """e^x without its end: a sum and 3 fma reduce x, 6 fma are the polynomial."""
        return Ops(fma=EXP_FMA, any=1)

    def scale(self):
        """p 2^n, 0 below: comparison and vscalef, or conversion, shift, sum and logic."""
        return Ops(fma=2) if self.wide else Ops(fma=3, any=2)

    def split(self):
        """e^(x sqrt(s)) = p 2^n: as exp, clamped, and with 4 more for the product's low half."""
        return self.exp() + Ops(fma=6, any=1) + self.selection

    def exponent(self):
        """The n of split alone: clamped, an fma and a sum, -inf."""
        return Ops(fma=4, any=1) + self.selection

    def phi(self, name):
        """A map on a vector, by what the features are passed through."""
        if name == "elu1":  # x sqrt(s), e^x, x + 1, which of them
            return Ops(fma=2, any=1) + self.exp() + self.scale() + self.selection
        if name == "exp":  # split, less the exponent of its row
            return self.split() + Ops(any=1) + self.scale()
        if name == "positive":  # x sqrt(s), not below the floor
            return Ops(fma=2)
        return Ops(fma=1)  # x sqrt(s)

    def two_sum(self):
        """The identity's z and denominators keep what rounding loses."""
        return Ops(any=7)

    def keys(self, name, m):
        """m features of a key: mapped, kept, added to z; exp looks for exponents that move."""
        one = self.phi(name) + Ops(loads=1, stores=1)
        one += self.two_sum() if name == "identity" else Ops(any=1)
        if name == "exp":
            one += Ops(fma=3, loads=2)
        return self.vectors(m) * one

    def queries(self, name, m):
        """m features of a query: mapped, kept, their terms of the denominator, then its 16 lanes'
        tree of sums and 1 / x, a division for many queries. exp first finds its largest exponent.
        """
        one = self.phi(name) + Ops(fma=1, loads=1, stores=1)
        if name == "identity":
            one += Ops(fma=2, any=1) + self.two_sum()
        if name == "exp":
            one += Ops(any=1) + self.exponent() + Ops(fma=1, any=1, loads=2)
        lanes = LANES // self.w  # vectors
        tree = Ops(any=lanes - 1 + 7, loads=lanes, stores=lanes)
        return self.vectors(m) * one + tree

    # -- products

    def outputs(self, rows, columns, vecs):
        """An output: stored for every chunk of rows, loaded again for all but the first, scaled."""
        vectors, chunks = self.vectors(columns), math.ceil(rows / CHUNK)
        return Ops(fma=vectors, loads=vectors * (chunks - 1), stores=vectors * chunks,
                   broadcasts=math.ceil(vectors / vecs))

    def reads(self, rows, columns, n):
        """A row of S is loaded for a tile of tokens, a weight is broadcast for its columns."""
        tokens, vecs = min(n, self.tile["QUERY_TOKENS"]), self.tile["QUERY_VECS"]
        vectors = self.vectors(columns)
        return (Ops(fma=rows * vectors, loads=rows * vectors / tokens,
                    broadcasts=rows * math.ceil(vectors / vecs)) +
                self.outputs(rows, columns, vecs))

    def writes(self, rows, columns, n):
        """S += phi(k) v: a value is loaded for a tile of rows, S for a block of tokens."""
        vectors, tile = self.vectors(columns), self.tile
        return Ops(fma=rows * vectors,
                   loads=rows * vectors * (1 / tile["UPDATE_ROWS"] + 1 / min(n, tile["PART"])),
                   broadcasts=rows * math.ceil(vectors / tile["UPDATE_VECS"]),
                   stores=rows * vectors / min(n, tile["PART"]))

    def both(self, rows, columns, n):
        """A row of S is loaded and stored for a tile of tokens, which write and read it."""
        tokens, vecs = self.tile["CAUSAL_TOKENS"], self.tile["CAUSAL_VECS"]
        vectors, chunks = self.vectors(columns), math.ceil(rows / CHUNK)
        if self.ports.wide and vectors >= 4:
            tokens, vecs = self.tile["CAUSAL_WIDE"], 4
        tokens = min(n, tokens)
        return (Ops(fma=2 * rows * vectors, loads=rows * vectors / tokens + vectors * chunks,
                    broadcasts=2 * rows * math.ceil(vectors / vecs),
                    stores=rows * vectors / tokens) +
                self.outputs(rows, columns, vecs))

    # -- features

    def project(self, d, rows, m, n):
        """m features w.x - |x|^2/2 from as many rows of length d, or half as many with both signs:
        x scaled and squared, what is tiny 0; its length's tree of sums."""
        scaled = Ops(fma=5, any=1, loads=2, stores=1) + self.selection
        signs = Ops(any=self.vectors(m) if rows < m else 0)
        return (self.vectors(d) * scaled + Ops(any=8) + self.reads(d, rows, n) + signs +
                Ops(any=self.vectors(m), fma=-self.vectors(rows)))  # less, not times

    def monomials(self, m):
        """A product of two shorter ones, and its weight. Lists of the shorter ones are not counted.
        """
        return self.vectors(m) * Ops(fma=2, loads=2, broadcasts=1, stores=1)

    # -- windows

    def columns(self, m):
        """phi(k) of m features, which was kept, turned by whole matrices into a column beside S."""
        return self.vectors(m) * Ops(any=2, loads=1, stores=1)

    def scores(self, m, single):
        """Scores of as many keys, which end anywhere in a sub-block, masked, and their part of the
        denominator."""
        ends = range(BAND)
        vectors = sum(end // self.w - (end + 1 - single) // self.w + 1 for end in ends) / BAND
        tokens, vecs = self.tile["QUERY_TOKENS"], self.tile["QUERY_VECS"]
        return vectors * Ops(fma=m, any=1, loads=m / tokens + 1, broadcasts=m / vecs, stores=2)

    def parts(self, m, dv, middle):
        """Sums of sub-blocks: cleared, added to those before in their round and to those behind,
        and the sum that a sub-block's tokens read."""
        clear, add = Ops(stores=1), Ops(any=1, loads=2, stores=1)
        passes = clear + add + 2 * (middle - 1) / middle * add
        return m * self.vectors(dv) / BAND * passes

    # -- exact attention

    def pairs(self, count, d, dv):
        """Queries lie in lanes. A query and a key: scores, whose chains are added, their maximum,
        e^(score - maximum), its sum; then its weight times the value."""
        rows, vecs = self.tile["UPDATE_ROWS"], self.tile["EXACT_VECS"]
        weights = self.exp() + self.scale() + Ops(fma=2, any=2, loads=2, stores=2)
        products = Ops(fma=d + dv, any=min(d, CHAINS) - 1,
                       loads=d / self.tile["SCORE_ROWS"] + dv / rows,
                       broadcasts=(d + dv) / vecs)
        return (count / self.w) * (weights + products)

    def means(self, d):
        """A token's part of its landmark: a sum of doubles, half as many to a vector."""
        return 2 * self.vectors(d) * Ops(fma=1, any=1, loads=1)

    def inverse(self, landmarks):
        """The pseudo-inverse, of a call: E^2, E^3, G P and the next E for every step, but for G in
        the first and E in the last; symmetric, so half of each; in double. On random operands the
        steps do not converge, and none is saved."""
        products = 4 * STEPS - 2
        return Ops(fma=products * landmarks**3 / 2 / (self.w / 2))


# ---- Kernels ------------------------------------------------------------------------------------

PLAIN = {"elu1": "elu1", "exp": "exp", "relu": "positive", "identity": "identity"}
LANDMARKS = 64
# turns of one FMA unit that 1 / x takes for a vector: a division, or an estimate and four products
RECIPROCAL = {"avx512": 6, "avx2": 5}
EACH = 64     # columns from which decays per feature are multiplied up, LINATTN__ROWS_COLUMNS
RULES = {  # products of an element by the formula, and without the decay, which is multiplied up;
    # numbers for a feature that are broadcast; decays per feature, which are logarithms
    "gated": (3, 2, 2, False, False), "gated-channel": (3, 2, 2, True, True),
    "rwkv6": (3, 2, 2, True, True), "delta": (3, 3, 3, False, False),
    "gated-delta": (4, 3, 3, False, False), "kda": (4, 3, 3, True, True),
    "general": (5, 4, 4, True, False), "mlstm": (3, 2, 2, False, False),
}


def features(name, d):
    """(source, rows, m, map) of a map by its name in the tables, or None."""
    if name in PLAIN:
        return "operand", d, d, PLAIN[name]
    source, _, number = name.rpartition("-")
    if not number.isdigit():
        return None
    rows = int(number)
    if source in ["favor", "favor-simplified"]:
        return "projected", rows, rows, "exp"
    if source == "favor-hyperbolic":
        return "projected", rows, 2 * rows, "exp"
    if source in ["taylor", "expdef"]:  # the monomials up to a degree
        m = math.comb(d + rows, rows)
        return "monomials", m, m, "identity" if rows % 2 else "positive"
    return None


def made(counter, d, source, rows, m, n):
    """What making the features of one key or query takes."""
    if source == "projected":
        return counter.project(d, rows, m, n)
    return counter.monomials(m) if source == "monomials" else Ops()


def sums_work(counter, kernel, name, d, dv, n):
    found = features(name, d)
    if not found:
        return None
    source, rows, m, name = found
    inputs = made(counter, d, source, rows, m, n)
    products = m * dv + (rows * d if source == "projected" else 0)
    keys = inputs + counter.keys(name, m)
    queries = inputs + counter.queries(name, m)
    if kernel == "update":
        return products, keys + counter.writes(m, dv, n)
    if kernel == "query":
        return products, queries + counter.reads(m, dv, n)
    if kernel == "bidirectional":
        return 2 * products, keys + queries + counter.writes(m, dv, n) + counter.reads(m, dv, n)
    return 2 * products, keys + queries + counter.both(m, dv, n)


def window_work(counter, name, d, dv, n, window):
    """Causal, of maps without exponents: `middle` sub-blocks as one sum, the other keys one by one.
    A key is mapped where it comes. The products are those without a window."""
    if name not in ["elu1", "relu"]:
        return None
    name = PLAIN[name]
    kept = Ops(loads=1, stores=1)
    whole = window // BAND
    middle = max(whole - 1, 0)
    if window <= SCORES - 15 and middle * BAND * (d + dv) <= 2 * d * dv:
        middle = 0
    single = window - middle * BAND
    left = max(math.ceil((single - 1) / BAND), 1)
    made = 1 + left if middle else 1  # times that a key becomes a column; else it is moved
    work = counter.queries(name, d) + made * counter.columns(d)
    work += (1 + left - made) * (counter.vectors(d) + counter.vectors(dv)) * kept
    work += counter.vectors(d) * (counter.phi(name) + kept) + counter.vectors(dv) * kept
    work += counter.vectors(dv) * Ops(stores=1)
    work += counter.scores(d, single) + counter.reads(single, dv, n)
    if middle:
        work += counter.keys("positive", d) + counter.writes(d, dv, BAND)
        work += counter.parts(d, dv, middle) + counter.reads(d, dv, n)
    return 2 * d * dv, work


def features_work(counter, name, d, n):
    """Features into an array: the products are those of the projection."""
    source, rows, m, _ = features(name, d) or ("", 0, 0, "")
    if source != "projected":
        return None
    end = counter.exp() + counter.scale() + Ops(fma=2)  # not beyond floats, times sqrt(s)
    return rows * d, made(counter, d, source, rows, m, n) + counter.vectors(m) * (end +
                                                                                  Ops(stores=1))


def exact_work(counter, name, d, dv, n):
    count = (n + 1) / 2 if name == "causal" else n
    return count * (d + dv), counter.pairs(count, d, dv)


def nystrom_work(counter, d, dv, n):
    """Queries against landmarks, and landmarks against keys; means and inverse of landmarks."""
    return (2 * LANDMARKS * (d + dv),
            2 * counter.pairs(LANDMARKS, d, dv) + 2 * counter.means(d) +
            (1 / n) * counter.inverse(LANDMARKS))


def rule_work(counter, name, d, dv):
    """Token by token, or several at a time where no token reads before it writes: then a row of S
    is loaded and stored once for all. Decays per feature that are logarithms pass through exp."""
    products, taken, numbers, each, logarithms = RULES[name]
    vectors = counter.vectors(dv)
    tokens, vecs = 1, 4
    if name == "general":
        vecs = counter.tile["GENERAL_VECS"]
    elif name not in ["delta", "gated-delta", "kda"]:
        tokens, vecs = counter.tile["GATED_TOKENS"], counter.tile["GATED_VECS"]
    if counter.wide and d > 192:
        vecs = 2
    if each and dv < EACH:
        each, taken = False, products
    work = Ops(fma=taken * d * vectors, loads=d * vectors / tokens,
               broadcasts=numbers * d * math.ceil(vectors / vecs), stores=d * vectors / tokens)
    work += vectors * Ops(fma=2, loads=1, stores=1)  # the value's gain, the output's scale
    if logarithms:
        work += counter.vectors(d) * (counter.exp() + counter.scale())
    if each:  # what is due; keys divided, queries multiplied, and so what is read and written
        more = 1 if name == "kda" else 2 if name == "general" else 0
        work += counter.vectors(d) * Ops(fma=3 + more + RECIPROCAL[counter.isa], loads=4 + more,
                                         stores=3 + more)
    return products * d * dv, work


def work_of(counter, kernel, name, d, dv, n, window=0):
    """The products that the share of the peak counts, and all operations; or None."""
    if window:
        return window_work(counter, name, d, dv, n, window)
    if kernel in ["update", "query", "bidirectional", "causal"]:
        return sums_work(counter, kernel, name, d, dv, n)
    if kernel == "map_features":
        return features_work(counter, name, d, n)
    if kernel == "softmax":
        return exact_work(counter, name, d, dv, n)
    if kernel == "nystrom" and name == f"l{LANDMARKS}" and n > LANDMARKS:
        return nystrom_work(counter, d, dv, n)
    if kernel == "recurrent" and name in RULES:
        return rule_work(counter, name, d, dv)
    return None


@dataclass(frozen=True)
class Limit:
    share: float     # of the FMA peak that can be reached
    port: str        # the one that binds
    cycles: float    # of it, for a token and head
    products: float  # cycles of what the share counts

    def __str__(self):
        return f"{self.port} {self.cycles:.0f} cycles, products {self.products:.0f}"


def limit_of(cpu, kernel, name, isa, d, dv, n, window=0):
    """Of one row of the tables, or None where nothing is counted."""
    ports = ports_of(cpu, isa)
    if not ports or isa not in FLOATS or not d:
        return None
    work = work_of(Counter(isa, ports), kernel, name, int(d), int(dv), int(n), int(window))
    if not work:
        return None
    products = work[0] / FLOATS[isa] / ports.fma
    port, cycles = max(work[1].cycles(ports).items(), key=lambda item: item[1])
    return Limit(products / cycles, port, cycles, products)


def main(cpu, kernel, name, isa, shape, n="4096", window="0"):
    d, dv = shape.split("x")
    found = limit_of(cpu, kernel, name, isa, int(d), int(dv), int(n), int(window))
    print(f"{found.share:.2f} of the FMA peak: {found}" if found else "nothing is counted for this")


if __name__ == "__main__":
    if not 6 <= len(sys.argv) <= 8:
        sys.exit(__doc__)
    main(*sys.argv[1:])
