"""The steps of loops that C makes (`run/repeated.py`) give what steps that are runs give, and what onnxruntime does."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import graphc
from graphc.errors import GraphcError, InputError
from graphc.runtime.model import Model
from graphc.targets.ggml.run.graph import BuiltGraph

RECURRENT = """
<ir_version: 9, opset_import: ["": 17]>
recurrent (float[N, 2, 3] x, float[2, 4] start, float[3, 4] w, float[4, 4] u, float most)
    => (float[A, B] last, float[S, C, D] all) {
  sizes = Shape (x)
  first = Constant <value = int64 {0}> ()
  trips = Gather (sizes, first)
  yes = Constant <value = bool {1}> ()
  last, all = Loop (trips, yes, start) <body = step (int64 i, bool going, float[2, 4] h)
      => (bool again, float[2, 4] after, float[2, 4] seen) {
    now = Gather <axis = 0> (x, i)
    a = MatMul (now, w)
    b = MatMul (h, u)
    c = Add (a, b)
    after = Tanh (c)
    seen = Add (after, h)
    total = ReduceMax <keepdims = 0> (after)
    again = Less (total, most)
  }>
}
"""


def model_of(tmp_path, text: str) -> tuple[Model, onnxruntime.InferenceSession]:
    """A model in text, by graphc and by onnxruntime."""
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    return graphc.compile(path), onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def inputs_of(steps: int, most: float) -> dict[str, np.ndarray]:
    """Inputs of `RECURRENT`."""
    random = np.random.default_rng(steps)
    shapes = {"x": (steps, 2, 3), "start": (2, 4), "w": (3, 4), "u": (4, 4)}
    arrays = {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    return arrays | {"most": np.array(most, np.float32)}


def graphs_computed(model: Model, inputs: dict[str, np.ndarray]) -> int:
    """How often a run has C compute a graph."""
    compute, count = model.executor.compute_graph, 0

    def counted(*args):
        nonlocal count
        count += 1
        return compute(*args)

    model.executor.compute_graph = counted
    model.run(inputs)
    del model.executor.compute_graph
    return count


@pytest.mark.parametrize(("steps", "most"), [(1, 9), (2, 9), (7, 9), (3000, 9), (3000, 0.95), (5, -9)])
def test_steps_are_those_of_onnxruntime(tmp_path, monkeypatch, steps, most):
    """Also where the state has changed its place an odd number of times, where rows are given room more than once, and where a
    step is the last because it says so."""
    model, session = model_of(tmp_path, RECURRENT)
    inputs = inputs_of(steps, most)
    before = {name: array.copy() for name, array in inputs.items()}
    found = model.run(inputs)
    for (name, array), wanted in zip(found.items(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5, err_msg=name)
    for name, array in before.items():
        np.testing.assert_array_equal(array, inputs[name])
    monkeypatch.setattr(type(model.executor), "repeats", False)
    for array, wanted in zip(model.run(inputs).values(), found.values(), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_steps_need_no_python(tmp_path):
    """However many they are, C is called as often."""
    model, _ = model_of(tmp_path, RECURRENT)
    assert graphs_computed(model, inputs_of(500, 9)) == graphs_computed(model, inputs_of(5, 9))


PASSED_ON = """
<ir_version: 9, opset_import: ["": 17]>
passed (int64 trips, float[3] a, float[3] b) => (float[3] x, float[3] y, float[S, 3] all, float[S, 3] same) {
  yes = Constant <value = bool {1}> ()
  x, y, all, same = Loop (trips, yes, a, b) <body = step (int64 i, bool going, float[3] p, float[3] q)
      => (bool again, float[3] next, float[3] other, float[3] seen, float[3] twice) {
    again = Identity (going)
    next = Identity (q)
    other = Identity (p)
    number = Cast <to = 1> (i)
    seen = Add (p, number)
    twice = Identity (seen)
  }>
}
"""


@pytest.mark.parametrize("trips", [1, 2, 5])
def test_values_that_are_only_passed_on(tmp_path, trips):
    """What a step gives may be what it was given, or one value twice."""
    model, session = model_of(tmp_path, PASSED_ON)
    inputs = {"trips": np.array(trips), "a": np.float32([1, 2, 3]), "b": np.float32([4, 5, 6])}
    for array, wanted in zip(model.run(inputs).values(), session.run(None, inputs), strict=True):
        np.testing.assert_array_equal(array, wanted)


TABLE = """
<ir_version: 9, opset_import: ["": 17]>
table (int64 trips, float[4, 2] rows) => (float[S, 2] all) {
  yes = Constant <value = bool {1}> ()
  all = Loop (trips, yes) <body = step (int64 i, bool going) => (bool again, float[2] row) {
    again = Identity (going)
    row = Gather <axis = 0> (rows, i)
  }>
}
"""


def test_what_a_step_refuses_ends_the_loop(tmp_path):
    """And the next run is as any."""
    model, _ = model_of(tmp_path, TABLE)
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    with pytest.raises(InputError, match="out of range"):
        model.run(trips=np.array(1 << 60), rows=rows)
    np.testing.assert_array_equal(model.run(trips=np.array(4), rows=rows)["all"], rows)


FOREVER = """
<ir_version: 9, opset_import: ["": 17]>
forever (float[2] start) => (float[2] last) {
  yes = Constant <value = bool {1}> ()
  last = Loop ("", yes, start) <body = step (int64 i, bool going, float[2] x) => (bool again, float[2] after) {
    again = Identity (going)
    after = Sin (x)
  }>
}
"""


def test_a_loop_that_does_not_end_can_be_stopped(tmp_path):
    """After some step."""
    model, _ = model_of(tmp_path, FOREVER)
    asked = iter([False] * 100)
    with pytest.raises(GraphcError, match="stopped"):
        model.run_unless(lambda: next(asked, True), {}, start=np.float32([1, 2]))


COUNTED = """
<ir_version: 9, opset_import: ["": 17]>
counted (int64 trips, float[2] x) => (float[2] last, int64[S, 3] all) {
  yes = Constant <value = bool {1}> ()
  one = Constant <value = int64 {1}> ()
  three = Constant <value = int64 {3}> ()
  last, all = Loop (trips, yes, x) <body = step (int64 i, bool going, float[2] before)
      => (bool again, float[2] after, int64[3] some) {
    again = Identity (going)
    after = Sin (before)
    end = Add (i, three)
    some = Range (i, end, one)
  }>
}
"""


def test_a_graph_serves_all_steps_that_differ_in_what_kernels_read(tmp_path, monkeypatch):
    """Numbers begin at a size of the step, which no tensor has."""
    model, session = model_of(tmp_path, COUNTED)
    inputs = {"trips": np.array(30), "x": np.float32([1, 2])}
    built = 0

    class Counted(BuiltGraph):
        def __init__(self, *args):
            nonlocal built
            built += 1
            super().__init__(*args)

    monkeypatch.setattr("graphc.targets.ggml.run.context.BuiltGraph", Counted)
    for array, wanted in zip(model.run(inputs).values(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5)
    assert built < 9


def test_graphs_of_small_sizes_are_kept_for_all_steps(tmp_path, monkeypatch):
    """Where each step has sizes of its own, the next run finds all graphs."""
    text = COUNTED.replace("float[2] x) => (float[2] last", "float[N] x) => (float[M] last")
    text = text.replace("float[2] before", "float[P] before").replace("float[2] after", "float[Q] after")
    text = text.replace("after = Sin (before)", "wave = Sin (before) after = Concat <axis = 0> (wave, two)")
    text = text.replace("  last, all =", "  two = Constant <value = float[2] {1, 2}> ()\n  last, all =")
    model, session = model_of(tmp_path, text)
    inputs = {"trips": np.array(60), "x": np.float32([1, 2])}
    first = model.run(inputs)
    monkeypatch.setattr("graphc.targets.ggml.run.context.BuiltGraph", None)
    for array, again, wanted in zip(first.values(), model.run(inputs).values(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5)
        np.testing.assert_array_equal(array, again)
