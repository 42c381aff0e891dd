"""Models in which the host acts between graphs, each of many kinds at once, because each is compiled as C++."""

from __future__ import annotations

import numpy as np
import onnx

X = np.arange(6, dtype=np.float32) - 2


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text)


LOOPS = model("""loops (float[n] x, int64 trips, float limit, bool twice)
        => (float[n] sum, float[k, n] rows, float[m] longer, float[n] doubled, int64 steps, float[p] branch, float[n] mixed) {
    one = Constant<value = int64 {1}>()
    two = Constant<value = int64 {2}>()
    weight = Constant<value = float[1] {0.3}>()
    sum, rows = Loop(trips, , x) <body = adding (int64 i, bool going, float[n] a) => (bool again, float[n] b, float[n] row) {
        again = Identity(going)
        weighted = Mul(x, weight)
        b = Add(a, weighted)
        step = Cast<to = 1>(i)
        row = Mul(b, step)
    }>
    longer = Loop(trips, , x) <body = growing (int64 i, bool going, float[c] a) => (bool again, float[d] b) {
        again = Identity(going)
        b = Concat<axis = 0>(a, x)
    }>
    yes = Constant<value = bool {1}>()
    zero = Constant<value = int64 {0}>()
    doubled, steps = Loop(, yes, x, zero) <body = doubling (int64 i, bool going, float[n] a, int64 k)
                                           => (bool again, float[n] b, int64 next) {
        b = Add(a, a)
        next = Add(k, one)
        total = ReduceSum<keepdims = 0>(b)
        again = Less(total, limit)
    }>
    branch = If(twice) <then_branch = then () => (float[e] b) { b = Concat<axis = 0>(longer, longer) },
                        else_branch = other () => (float[f] b) { b = Neg(x) }>
    mixed = Loop(trips, , x) <body = mixing (int64 i, bool going, float[n] a) => (bool again, float[n] b) {
        again = Identity(going)
        left = Mod(i, two)
        odd = Cast<to = 9>(left)
        b = If(odd) <then_branch = product () => (float[n] c) { c = Mul(a, x) },
                     else_branch = sum () => (float[n] c) { c = Add(a, x) }>
    }>
}""")

SELECTED = model("""selected (float[n] x, bool[n] keep, int64[2] range)
        => (int64[1, a] places, float[b] kept, float[c] values, int64[c] counts, float[d] part, float[] sum,
            int64[n] numbers, int64[b] kept_numbers) {
    places = NonZero(x)
    compressed = Compress<axis = 0>(x, keep)
    kept = Relu(compressed)
    sum = ReduceSum<keepdims = 0>(kept)
    values, first, inverse, counts = Unique(x)
    zero = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    start = Gather(range, zero)
    end = Gather(range, one)
    sliced = Slice(x, start, end)
    part = Mul(sliced, sliced)
    none = Constant<value_int = 0>()
    step = Constant<value_int = 1>()
    size = Size(x)
    kept_size = Size(compressed)
    from_end = Neg(size)
    kept_from_end = Neg(kept_size)
    numbers = Range(from_end, none, step)
    kept_numbers = Range(kept_from_end, none, step)
}""")

CARRIED = model("""carried (float[a, b, c, d, e] x, float[a, b, c, d, e] w, int64 trips, bool[a] flags, float16[a] h)
        => (float[a, b, c, d, e] p, float[a, b, c, d, e] q, bool[a] z, float16[a] g,
            float[k, a, b, c, d, e] rows, bool[k, a] seen) {
    p, q, z, g, rows, seen = Loop(trips, , x, w, flags, h) <body = swapping
            (int64 i, bool going, float[a, b, c, d, e] v, float[a, b, c, d, e] u, bool[a] f, float16[a] s)
            => (bool again, float[a, b, c, d, e] v2, float[a, b, c, d, e] u2, bool[a] f2, float16[a] s2,
                float[a, b, c, d, e] row, bool[a] old) {
        again = Identity(going)
        v2 = Identity(u)
        u2 = Identity(v)
        f2 = Not(f)
        s2 = Add(s, h)
        row = Mul(v, u)
        old = Identity(f)
    }>
}""")

RAGGED = model("""ragged (float[n] x, int64 trips) => (float[k, m] y) {
    z, y = Loop(trips, , x) <body = body (int64 i, bool going, float[a] v) => (bool again, float[b] w, float[b] seen) {
        again = Identity(going)
        w = Concat<axis = 0>(v, x)
        seen = Identity(w)
    }>
}""")


DRAWN = model("""drawn (float[n] x, int64 trips) => (float[k, n] y) {
    yes = Constant<value = bool {1}>()
    y = Loop(trips, yes) <body = body (int64 i, bool going) => (bool again, float[n] row) {
        again = Identity(going)
        u = RandomUniformLike(x)
        row = Add(u, x)
    }>
}""")


def loops(trips: int, limit: float, twice: bool, x: np.ndarray = X) -> dict[str, np.ndarray]:
    """Inputs of `LOOPS`."""
    return {"x": x, "trips": np.array(trips), "limit": np.array(limit, np.float32), "twice": np.array(twice)}


def selected(x: np.ndarray, keep: list[bool], start: int, end: int) -> dict[str, np.ndarray]:
    """Inputs of `SELECTED`."""
    return {"x": x, "keep": np.array(keep), "range": np.array([start, end])}


def carried(trips: int) -> dict[str, np.ndarray]:
    """Inputs of `CARRIED`."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 1, 2, 2)
    halves = np.array([0.5, 3], np.float16)
    return {"x": x, "w": -x, "trips": np.array(trips), "flags": np.array([True, False]), "h": halves}


HOSTED = {
    "loops": (LOOPS, [loops(3, 50, True), loops(0, 0, False), loops(12, 1000, True, X[3:5]), loops(1, 7, False)]),
    "selected": (
        SELECTED,
        [
            selected(X, [True, False] * 3, 1, 4),
            selected(np.zeros(4, np.float32), [False] * 4, 3, 1),
            selected(X + 7, [True] * 6, -4, 2**63 - 1),
        ],
    ),
    "carried": (CARRIED, [carried(3), carried(0)]),
    "drawn": (DRAWN, [{"x": X, "trips": np.array(n)} for n in (4, 1)]),
    "ragged": (RAGGED, [{"x": X, "trips": np.array(1)}]),
}
"""Each model with the inputs of some runs: some, none and all; no step and several."""
