"""Models in which a size or a branch depends on an input: compiled for the values of a run."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphc import onnx_backend
from graphc.errors import InputError, UnsupportedError
from graphc.onnx_backend import Backend
from graphc.ops.narrow import E8M0, FORMATS, ROUNDING, Encode
from graphc.runtime.specializing import SpecializingModel


def model(nodes: list[onnx.NodeProto], inputs: dict, outputs: list[str]) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


SUMS = model(
    [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
    {"x": (TensorProto.FLOAT, [2, 6]), "axes": (TensorProto.INT64, [1])},
    ["y"],
)
X = np.arange(12, dtype=np.float32).reshape(2, 6)


def test_a_program_is_kept_for_the_values_that_it_was_made_for() -> None:
    prepared = onnx_backend.prepare(SUMS)
    assert isinstance(prepared.model, SpecializingModel)
    for axis in (0, 1, 0):
        (y,) = prepared.run([X + axis, np.array([axis])])
        np.testing.assert_array_equal(y, (X + axis).sum(axis))
    assert len(prepared.model.variants) == 2


def test_what_was_looked_at_is_copied() -> None:
    prepared, axes = onnx_backend.prepare(SUMS), np.array([0])
    assert prepared.run([X, axes])[0].shape == (6,)
    axes[:] = 1
    assert prepared.run([X, axes])[0].shape == (2,)


def test_a_value_that_decides_is_computed_and_what_does_not_decide_may_change() -> None:
    nodes = [helper.make_node("Sub", ["a", "a"], ["b"]), helper.make_node("ReduceSum", ["x", "b"], ["y"])]
    inputs = {"a": (TensorProto.INT64, [1]), "x": (TensorProto.FLOAT, ["n", 2])}
    prepared = onnx_backend.prepare(model(nodes, inputs, ["y"]))
    for x in (X[:, :2], X[:, 2:4]):
        (y,) = prepared.run({"a": np.array([1]), "x": x})
        np.testing.assert_array_equal(y, x.sum(0, keepdims=True))
    assert len(prepared.model.variants) == 1


def test_inputs_that_do_not_fit_are_named() -> None:
    prepared = onnx_backend.prepare(SUMS)
    for given, message in (
        ({"x": X}, "the input axes is missing"),
        ({"x": X, "axes": np.array([1.0])}, "the input axes holds float64"),
        ({"x": X[:1], "axes": np.array([1])}, "the input x: axis 0 has size 1, must be 2"),
        ({"x": X, "axes": np.array([1]), "z": X}, "no input z"),
    ):
        with pytest.raises(InputError, match=message):
            prepared.run(given)


def test_what_no_input_helps_is_refused_at_once() -> None:
    nodes = [helper.make_node("Unheard", [], ["y"])]
    refused = model(nodes, {}, ["y"])
    with pytest.raises(UnsupportedError):
        onnx_backend.prepare(refused)
    assert not Backend.is_compatible(refused)
    assert Backend.is_compatible(SUMS)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_encoding_is_that_of_ml_dtypes(dtype: np.dtype) -> None:
    codes = np.arange(256 if dtype.itemsize and "float8" in dtype.name else 16, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    middle = (finite[1:] + finite[:-1]) / 2
    x = np.concatenate(
        [values, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, -np.float32(np.inf))]
    )
    (found,) = Encode(dtype, saturate=False).eval(x)
    np.testing.assert_array_equal(found.astype(np.float32), x.astype(dtype).astype(np.float32))
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    (kept,) = Encode(dtype).eval(np.array([1e9, -1e9, np.inf], np.float32))
    np.testing.assert_array_equal(kept.astype(np.float32), [largest, -largest, largest])


def test_powers_of_two_round_as_told() -> None:
    x = np.array([1.0, 1.25, 1.5, 1.75, 3.0], np.float32)
    expected = {"up": [1, 2, 2, 2, 4], "down": [1, 1, 1, 1, 2], "nearest": [1, 1, 2, 2, 4]}
    for rounding in ROUNDING:
        (found,) = Encode(E8M0, True, rounding).eval(x)
        np.testing.assert_array_equal(found.astype(np.float32), expected[rounding])
