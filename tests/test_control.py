"""Branches, loops and sizes that only a run can tell: in the interpreter, in process, and from an engine file."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import graphc
from graphc.errors import EngineError, InputError
from graphc.frontend.onnx import load
from graphc.ir import interp
from graphc.targets.ggml.program.sections import Section, sections
from graphc.targets.ggml.program.text import read_text, write_text

X = np.arange(6, dtype=np.float32) - 2


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text)


def add_loop(condition: str = "") -> onnx.ModelProto:
    """x plus w so many times, and what it was times the step's number."""
    return model(f"""loop (float[n] x, int64 trips, float[n] w) => (float[n] y, float[k, n] seen) {{
        yes = Constant<value = bool {{1}}>()
        y, seen = Loop(trips, {condition}, x) <body = body (int64 i, bool going, float[n] a)
                                                => (bool again, float[n] sum, float[n] row) {{
            again = Identity(going)
            sum = Add(a, w)
            step = Cast<to = 1>(i)
            row = Mul(sum, step)
        }}>
    }}""")


GROWING = model("""growing (float[n] x, int64 trips) => (float[m] y) {
    y = Loop(trips, , x) <body = body (int64 i, bool going, float[k] a) => (bool again, float[l] longer) {
        again = Identity(going)
        longer = Concat<axis = 0>(a, x)
    }>
}""")

DOUBLING = model("""doubling (float[2] x, float limit) => (float[2] y, int64 steps) {
    zero = Constant<value = int64 {0}>()
    yes = Constant<value = bool {1}>()
    y, steps = Loop(, yes, x, zero) <body = body (int64 i, bool going, float[2] a, int64 k)
                                      => (bool again, float[2] twice, int64 next) {
        twice = Add(a, a)
        one = Constant<value = int64 {1}>()
        next = Add(k, one)
        sum = ReduceSum<keepdims = 0>(twice)
        again = Less(sum, limit)
    }>
}""")

BRANCHES = model("""branches (float[n] x, bool twice) => (float[m] z) {
    y = If(twice) <then_branch = then () => (float[p] a) { a = Concat<axis = 0>(x, x) },
                   else_branch = other () => (float[q] b) { b = Neg(x) }>
    z = Relu(y)
}""")

NESTED = model("""nested (float[n] x, int64 trips) => (float[n] y) {
    y = Loop(trips, , x) <body = body (int64 i, bool going, float[n] a) => (bool again, float[n] next) {
        again = Identity(going)
        two = Constant<value = int64 {2}>()
        left = Mod(i, two)
        odd = Cast<to = 9>(left)
        next = If(odd) <then_branch = then () => (float[n] b) { b = Mul(a, x) },
                        else_branch = other () => (float[n] c) { c = Add(a, x) }>
    }>
}""")

SLICED = model("""sliced (float[n] x, int64[2] range) => (float[m] y) {
    zero = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    start = Gather(range, zero)
    end = Gather(range, one)
    y = Slice(x, start, end)
}""")

STEPPED = model("""stepped (float[n] x, int64 trips) => (float[1] y) {
    start = Constant<value = float[1] {0.0}>()
    y = Loop(trips, , start) <body = body (int64 i, bool going, float[1] a) => (bool again, float[1] sum) {
        again = Identity(going)
        axis = Constant<value_ints = [0]>()
        from = Unsqueeze(i, axis)
        one = Constant<value_ints = [1]>()
        to = Add(from, one)
        part = Slice(x, from, to)
        sum = Add(a, part)
    }>
}""")

MASKED = model("""masked (float[n, 2] x, float[n, 2] limit) => (float[m] y, int64 count) {
    mask = Greater(x, limit)
    places = NonZero(mask)
    rows = Transpose(places)
    picked = GatherND(x, rows)
    y = Mul(picked, picked)
    count = Size(y)
}""")

COMPRESSED = model("""compressed (float[n, 3] x, bool[n] keep) => (float[3] y) {
    kept = Compress<axis = 0>(x, keep)
    axis = Constant<value_ints = [0]>()
    y = ReduceSum<keepdims = 0>(kept, axis)
}""")

UNIQUE = model("""distinct (int64[n] x) => (int64[m] y, int64[m] first, int64[n] inverse, int64[m] counts) {
    y, first, inverse, counts = Unique(x)
}""")

EXPANDED = model("""expanded (float[1, 3] x, int64[2] shape, int64 limit) => (float[a, b] y, int64[c] numbers, float[e, f] z) {
    y = Expand(x, shape)
    zero = Constant<value = int64 {0}>()
    three = Constant<value = int64 {3}>()
    numbers = Range(zero, limit, three)
    z = ConstantOfShape<value = float[1] {2.0}>(shape)
}""")

RESHAPED = model("""reshaped (float[n, 2] x, int64[3] shape) => (float[a, b, c] y) {
    y = Reshape(x, shape)
}""")

SCANNED = model("""scanned (float[n, 3] x) => (float[3] last, float[n, 3] sums) {
    zero = Constant<value_floats = [0.0, 0.0, 0.0]>()
    last, sums = Scan<num_scan_inputs = 1, body = body (float[3] s, float[3] row) => (float[3] t, float[3] out) {
        t = Add(s, row)
        out = Identity(t)
    }>(zero, x)
}""")

TWO = np.arange(8, dtype=np.float32).reshape(4, 2)

CASES = {
    "loop": (add_loop(), [{"x": X, "trips": np.array(n), "w": X * X} for n in (3, 1, 5)]),
    "loop while true": (add_loop("yes"), [{"x": X, "trips": np.array(4), "w": X * X}]),
    "growing": (GROWING, [{"x": X, "trips": np.array(n)} for n in (3, 0, 2)]),
    "doubling": (DOUBLING, [{"x": X[3:5], "limit": np.array(n, np.float32)} for n in (100, 0, 7)]),
    "branches": (BRANCHES, [{"x": X, "twice": np.array(n)} for n in (True, False)]),
    "nested": (NESTED, [{"x": X[:4], "trips": np.array(n)} for n in (5, 0)]),
    "sliced": (SLICED, [{"x": X, "range": np.array(n)} for n in ([1, 4], [-3, 6], [4, 2], [0, 100])]),
    "stepped": (STEPPED, [{"x": X, "trips": np.array(n)} for n in (4, 6)]),
    "masked": (MASKED, [{"x": TWO, "limit": np.full((4, 2), n, np.float32)} for n in (3, -1, 100)]),
    "compressed": (COMPRESSED, [{"x": X.reshape(2, 3), "keep": np.array(n)} for n in ([True, False], [False, False])]),
    "unique": (UNIQUE, [{"x": np.array(n)} for n in ([3, 1, 3, 2, 1, 3], [7])]),
    "expanded": (EXPANDED, [{"x": X[None, :3], "shape": np.array([4, 1]), "limit": np.array(n)} for n in (10, 0, 3)]),
    "reshaped": (RESHAPED, [{"x": TWO, "shape": np.array(n)} for n in ([2, 2, 2], [0, -1, 1], [1, 4, -1])]),
    "scanned": (SCANNED, [{"x": TWO.repeat(n, 0).reshape(-1, 1).repeat(3, 1)} for n in (1, 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_host_does_agrees(name, tmp_path):
    proto, feeds = CASES[name]
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    graph = load(proto)
    model = graphc.compile(proto, threads=2)
    graphc.compile(proto, tmp_path / "e.gguf")
    stored = graphc.load(tmp_path / "e.gguf", threads=2)
    for feed in [*feeds, *feeds]:
        wanted = session.run(None, feed)
        for results in (interp.run(graph, feed), model.run(feed), stored.run(feed)):
            for found, right in zip(results.values(), wanted, strict=True):
                assert (found.dtype, found.shape) == (right.dtype, right.shape)
                np.testing.assert_allclose(found, right, rtol=1e-6)


def test_what_a_loop_collects_in_no_step_has_the_sizes_of_a_step():
    """onnxruntime, which does not know them, gives 0 for each."""
    feed = {"x": X, "trips": np.array(0), "w": X}
    for results in (interp.run(load(add_loop()), feed), graphc.compile(add_loop()).run(feed)):
        assert results["seen"].shape == (0, 6)
        assert results["y"].tolist() == X.tolist()


def test_sections_are_few():
    """Everything that is measured is measured at once."""
    program = graphc.compile(EXPANDED).program
    steps = [type(step) is Section for step in sections(program)]
    assert steps == [True, *[False] * 4, True]


def test_sizes_that_a_model_cannot_have():
    model = graphc.compile(EXPANDED)
    with pytest.raises(InputError, match="the shape of y is -1, must be at least 0"):
        model.run(x=X[None, :3], shape=np.array([-1, 3]), limit=np.array(3))
    reshape = graphc.compile(RESHAPED)
    with pytest.raises(InputError, match=r"the number of elements of y is 27, must be 8 \(2\*n\)"):
        reshape.run(x=TWO, shape=np.array([3, 3, 3]))
    with pytest.raises(InputError, match="the shape of y is 5, must be 3"):
        model.run(x=X[None, :3], shape=np.array([2, 5]), limit=np.array(3))


def test_a_loop_that_collects_different_shapes():
    proto = model("""ragged (float[n] x, int64 trips) => (float[k, m] y) {
        z, y = Loop(trips, , x) <body = body (int64 i, bool going, float[a] v) => (bool again, float[b] w, float[b] seen) {
            again = Identity(going)
            w = Concat<axis = 0>(v, x)
            seen = Identity(w)
        }>
    }""")
    compiled = graphc.compile(proto)
    assert compiled.run(x=X, trips=np.array(1))["y"].shape == (1, 12)
    with pytest.raises(InputError, match="different shapes"):
        compiled.run(x=X, trips=np.array(2))


@pytest.mark.parametrize("name", CASES)
def test_programs_are_read_back(name):
    program = graphc.compile(CASES[name][0]).program
    text = write_text(program)
    assert write_text(read_text(text)) == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"operator":"Loop"', '"operator":"Goto"'),
        ('"carried":1', '"carried":7'),
        ('"blocks":[{', '"blocks":[{},{'),
        ('["bool",[]]', '["int64",[]]'),
        ('"size":"y_end"', '"size":"unheard"'),
        ('"size":"y_end"', '"size":3'),
    ],
)
def test_damaged_programs_are_refused(old, new):
    refused = 0
    for proto in (add_loop(), SLICED):
        text = write_text(graphc.compile(proto).program)
        if old in text:
            with pytest.raises(EngineError):
                read_text(text.replace(old, new, 1))
            refused += 1
    assert refused


KINDS = {
    "LSTM": {}, "GRU": {}, "linear GRU": {"linear_before_reset": 1}, "RNN": {}, "RNN of Relu": {"activations": ["Relu"]},
    "clipped GRU": {"clip": 0.5}, "other LSTM": {"activations": ["Sigmoid", "Relu", "Tanh"]},
}  # fmt: skip
"""Layers by their operators, which are the last or the first of their words, and what they are told besides."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("whole", [False, True])
def test_recurrent_layers_of_any_length(kind, direction, whole):
    """Sequences of different lengths in one batch, or whole ones, given first states; one program for every number of steps."""
    (operator,) = {"LSTM", "GRU", "RNN"} & set(kind.split())
    directions, gates = (2 if direction == "bidirectional" else 1), {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    told = {name: each * directions if name == "activations" else each for name, each in KINDS[kind].items()}
    random = np.random.default_rng(3)

    def floats(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    weights = {
        "W": floats(directions, gates * 4, 3),
        "R": floats(directions, gates * 4, 4),
        "B": floats(directions, gates * 8),
    }
    types = {"x": [None, None, 3], "lengths": [None], "first": [directions, None, 4]}
    if whole:
        del types["lengths"]
    infos = [
        onnx.helper.make_tensor_value_info(
            name,
            onnx.TensorProto.INT32 if name == "lengths" else onnx.TensorProto.FLOAT,
            [size or f"{'t' if name == 'x' and axis == 0 else 'b'}" for axis, size in enumerate(shape)],
        )
        for name, shape in types.items()
    ]
    node = onnx.helper.make_node(
        operator,
        ["x", *weights, "" if whole else "lengths", "first"],
        ["y", "last"],
        hidden_size=4,
        direction=direction,
        **told,
    )
    outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("y", "last")]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph([node], "layer", infos, outputs, initializers)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    compiled = graphc.compile(proto, threads=2)
    for steps, lengths in ((5, [5, 2, 3]), (1, [1]), (70, [70, 1])):
        feed = {"x": floats(steps, len(lengths), 3), "lengths": np.array(lengths, np.int32)}
        feed["first"] = floats(directions, len(lengths), 4)
        if whole:
            del feed["lengths"]
        for found, right in zip(compiled.run(feed).values(), session.run(None, feed), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_the_batch_may_come_first(operator, gates):
    """Also where sequences have lengths, of which there are more than steps; one without any keeps its state."""
    random = np.random.default_rng(4)
    weights = {
        name: random.standard_normal((2, *shape)).astype(np.float32)
        for name, shape in (("W", (gates * 4, 3)), ("R", (gates * 4, 4)), ("B", (gates * 8,)))
    }
    x, first = random.standard_normal((3, 5, 3)), random.standard_normal((2, 5, 4))
    lengths = np.array([3, 1, 0, 2, 3], np.int32)
    feed = {"x": x.astype(np.float32), "lengths": lengths, "first": first.astype(np.float32)}
    found = []
    for layout in (0, 1):
        given = {name: array.swapaxes(0, 1) if layout and array.ndim == 3 else array for name, array in feed.items()}
        inputs = ["x", *weights, "lengths", "first"]
        told = {"hidden_size": 4, "direction": "bidirectional", "layout": layout}
        node = onnx.helper.make_node(operator, inputs, ["y", "last"], **told)
        types = {"lengths": onnx.TensorProto.INT32}
        infos = [
            onnx.helper.make_tensor_value_info(name, types.get(name, onnx.TensorProto.FLOAT), array.shape)
            for name, array in given.items()
        ]
        outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("y", "last")]
        initializers = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
        graph = onnx.helper.make_graph([node], "layer", infos, outputs, initializers)
        proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        found.append(graphc.compile(proto, threads=2).run(given))
    np.testing.assert_array_equal(found[1]["y"].transpose(1, 2, 0, 3), found[0]["y"])
    np.testing.assert_array_equal(found[1]["last"].swapaxes(0, 1), found[0]["last"])
    np.testing.assert_array_equal(found[0]["last"][:, 2], feed["first"][:, 2])
