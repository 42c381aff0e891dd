"""NonZero, Compress, Unique and NonMaxSuppression: their sizes are computed by the graph, from inputs of open sizes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, helper
from onnx.helper import np_dtype_to_tensor_dtype

import graphc
from graphc import onnx_backend
from graphc.frontend.onnx import load
from graphc.ir import interp
from graphc.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8

RANDOM = np.random.default_rng(0)
ALL = [F16, BF16, F32, F64, I8, I32, I64, U8, BOOL]


def model(operator: str, arrays: list[np.ndarray], outputs: int, known: int = 0, **attributes: object) -> ModelProto:
    """A node whose inputs have sizes that only a run tells; the last `known` inputs are constants."""
    names = [f"x{i}" for i in range(len(arrays))]
    given = list(zip(names, arrays, strict=True))
    inputs = []
    for name, x in given[: len(arrays) - known]:
        shape = [f"{name}_{axis}" if size else 0 for axis, size in enumerate(x.shape)]
        inputs.append(helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(x.dtype), shape))
    constants = [
        helper.make_tensor(name, np_dtype_to_tensor_dtype(x.dtype), x.shape, x.reshape(-1).tolist())
        for name, x in given[len(arrays) - known :]
    ]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    node = helper.make_node(operator, names, [value.name for value in results], **attributes)
    graph = helper.make_graph([node], "g", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(made: ModelProto, arrays: list[np.ndarray], expected: list[np.ndarray], compiled: bool = True) -> None:
    """What the graph gives, and what the model that is compiled for any sizes gives, is what is expected."""
    given = {f"x{i}": array for i, array in enumerate(arrays[: len(made.graph.input)])}
    found = [interp.run(load(made), given), *([graphc.compile(made).run(given)] if compiled else [])]
    for results in found:
        for result, right in zip(results.values(), expected, strict=True):
            assert (result.dtype, result.shape) == (right.dtype, right.shape)
            np.testing.assert_array_equal(result, right)


def numbers(dtype: np.dtype, *shape: int) -> np.ndarray:
    return RANDOM.integers(0, 2 if dtype == BOOL else 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_non_zero(dtype: np.dtype) -> None:
    for shape in ((5,), (3, 4, 2), (2, 0), (1,)):
        x = numbers(dtype, *shape)
        check(model("NonZero", [x], 1), [x], [np.array(np.nonzero(x), I64)], compiled=shape == (3, 4, 2))


def test_nothing_is_not_zero() -> None:
    for shape in ((2, 0), (2, 3)):
        x = np.zeros(shape, F32)
        check(model("NonZero", [x], 1), [x], [np.zeros((2, 0), I64)])
    check(model("Unique", [x[:0]], 4, axis=0), [x[:0]], [x[:0], *[np.zeros(0, I64)] * 3])


def test_non_zero_of_a_number() -> None:
    for number in (0, 3):
        x = np.array(number, F32)
        check(model("NonZero", [x], 1), [x], [np.zeros((1, int(number != 0)), I64)])


@pytest.mark.parametrize("keep", [[1, 0, 1], [0, 0, 0], [1, 1, 1, 1], []], ids=str)
def test_compress(keep: list[int]) -> None:
    x, condition = numbers(I32, 4, 5), np.array(keep, bool)
    for made, arrays, axis in ((model("Compress", [x, condition], 1, axis=-2), [x, condition], 0),
                               (model("Compress", [x, condition], 1), [x, condition], None)):  # fmt: skip
        check(made, arrays, [np.compress(condition, x, axis)])


def by_numpy(x: np.ndarray, axis: int | None, ascending: bool) -> list[np.ndarray]:
    """What Unique gives."""
    wide = x.astype(F64) if x.dtype in (F16, BF16, F32) else x
    _, first, inverse, counts = np.unique(wide, True, True, True, axis)
    if not ascending:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    taken = x.reshape(-1)[first] if axis is None else np.take(x, first, axis)
    return [taken, *(each.reshape(-1).astype(I64) for each in (first, inverse, counts))]


@pytest.mark.parametrize("ascending", [0, 1])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_unique(dtype: np.dtype, ascending: int) -> None:
    for shape, axis in (
        ((40,), None),
        ((3, 4), None),
        ((20, 2), 0),
        ((2, 9, 1), 1),
        ((1,), 0),
        ((0,), None),
        ((0, 2), 0),
    ):
        x = numbers(dtype, *shape)
        settings = {} if axis is None else {"axis": axis - len(shape)}
        made = model("Unique", [x], 4, sorted=ascending, **settings)
        check(made, [x], by_numpy(x, axis, bool(ascending)), compiled=shape == (20, 2))


def test_every_nan_is_the_same() -> None:
    x = np.array([np.nan, 1, -0.0, np.nan, 0.0, 1], F32)
    expected = [
        np.array([-0.0, 1, np.nan], F32),
        np.array([2, 1, 0]),
        np.array([2, 1, 0, 2, 0, 1]),
        np.array([2, 2, 2]),
    ]
    check(model("Unique", [x], 4), [x], expected)
    rows = np.stack([x, x], 1)
    check(model("Unique", [rows], 4, axis=0), [rows], [np.stack([expected[0]] * 2, 1), *expected[1:]])


def test_strings_are_ranked_while_importing() -> None:
    words = np.array(["b", "a", "b", "c"], object)
    made = model("Unique", [np.zeros(4, F32)], 4)
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x0", 8, ["n"]))
    results = onnx_backend.prepare(made).run([words])
    assert [each.tolist() for each in results] == [["a", "b", "c"], [1, 0, 3], [1, 0, 1, 2], [1, 2, 1]]


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("limits", [(2, 0.5, 0.3), (100, 0.1, 0.0), (3, 0.0, 2.0), (0, 0.5, 0.0)], ids=str)
def test_non_max_suppression(limits: tuple[int, float, float], centered: int) -> None:
    boxes = RANDOM.random((2, 30, 4)).astype(F32)
    scores = np.round(RANDOM.random((2, 3, 30)), 1).astype(F32)
    most, overlap, least = (np.array([each], dtype) for each, dtype in zip(limits, (I64, F32, F32), strict=True))
    arrays = [boxes, scores, most, overlap, least]
    for known in (0, 3):
        made = model("NonMaxSuppression", arrays, 1, known, center_point_box=centered)
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        given = {value.name: array for value, array in zip(made.graph.input, arrays, strict=False)}
        check(made, arrays, session.run(None, given))


def test_more_boxes_than_there_are() -> None:
    boxes, scores = np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], F32), np.array([[[0.1, 0.9]]], F32)
    arrays = [boxes, scores, np.array([2**62])]
    check(model("NonMaxSuppression", arrays, 1), arrays, [np.array([[0, 0, 1], [0, 0, 0]])])
