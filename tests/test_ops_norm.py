"""Normalizations and the softmax family: NumPy against onnxruntime, definitions against NumPy, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from operators import by_eval, by_onnxruntime, close, defined, floats, on_ggml

from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ir.types import F16, F32, I64
from graphc.ops.norm import LRN, BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LpNorm, RMSNorm
from graphc.ops.softmax import Hardmax, LogSoftmax, Softmax
from graphc.shapes import symbol

X = floats(2, 6, 5, 4) * 3 + 1


def scales(count: int) -> list[np.ndarray]:
    return [floats(6) for _ in range(count)]


TINY = float(np.finfo(np.float32).smallest_normal)

CASES = {
    "layer norm": (LayerNorm(3, 1e-5), [X, floats(4), floats(4)], "LayerNormalization", {"axis": 3, "epsilon": 1e-5}),
    "layer norm of two axes": (
        LayerNorm(2, 1e-2), [X, floats(5, 4), floats(5, 4)], "LayerNormalization", {"axis": 2, "epsilon": 1e-2},
    ),
    "layer norm without bias": (LayerNorm(3, 1e-5), [X, floats(4)], "LayerNormalization", {"axis": 3}),
    "instance norm": (InstanceNorm(1e-5), [X, *scales(2)], "InstanceNormalization", {"epsilon": 1e-5}),
    "instance norm of rows": (
        InstanceNorm(1e-5), [X[:, :, 0], *scales(2)], "InstanceNormalization", {"epsilon": 1e-5},
    ),
    "batch norm": (
        BatchNorm(1e-3), [X, *scales(3), np.abs(floats(6))], "BatchNormalization", {"epsilon": 1e-3},
    ),
    "batch norm of vectors": (
        BatchNorm(1e-3), [X[:, :, 0, 0], *scales(3), np.abs(floats(6))], "BatchNormalization", {"epsilon": 1e-3},
    ),
    "L1": (LpNorm(1, 1, TINY), [X], "LpNormalization", {"axis": 1, "p": 1}),
    "L2": (LpNorm(3, 2, TINY), [X], "LpNormalization", {"axis": 3, "p": 2}),
    "local response": (LRN(3, 0.1, 0.75, 1.0), [X], "LRN", {"size": 3, "alpha": 0.1, "beta": 0.75, "bias": 1.0}),
    "local response of four": (LRN(4, 0.1, 0.5, 2.0), [X], "LRN", {"size": 4, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
    "softmax": (Softmax(3), [X], "Softmax", {"axis": 3}),
    "softmax over channels": (Softmax(1), [X], "Softmax", {"axis": 1}),
    "log softmax": (LogSoftmax(2), [X * 30], "LogSoftmax", {"axis": 2}),
    "hardmax": (Hardmax(2), [X.round()], "Hardmax", {"axis": 2}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_onnxruntime(case: str) -> None:
    op, arrays, name, attributes = CASES[case]
    opset = 17 if name == "LRN" and op.size % 2 == 0 else 20
    if name == "LRN" and op.size % 2 == 0:
        pytest.skip("onnxruntime wants an odd window")
    close(by_eval(op, *arrays), by_onnxruntime(name, *arrays, opset=opset, **attributes), 3e-6)


@pytest.mark.parametrize("case", CASES)
def test_definition(case: str) -> None:
    op, arrays, _, _ = CASES[case]
    result = defined(op, *arrays)
    assert result is not None
    close(result, by_eval(op, *arrays), 3e-6)


CALLED = {
    "layer norm": ["ggml_norm", "ggml_mul", "ggml_add"],
    "layer norm of two axes": ["ggml_norm", "ggml_mul", "ggml_add"],
    "layer norm without bias": ["ggml_norm", "ggml_mul"],
    "instance norm": ["ggml_group_norm", "ggml_mul", "ggml_add"],
    "batch norm": ["ggml_mul", "ggml_add"],
    "softmax": ["ggml_soft_max"],
    "softmax over channels": ["ggml_cont", "ggml_soft_max", "ggml_cont"],
}


@pytest.mark.parametrize("case", CASES)
def test_ggml(case: str) -> None:
    op, arrays, _, _ = CASES[case]
    y, called = on_ggml(op, *arrays, weights=range(1, len(arrays)))
    assert called == CALLED.get(case, called)
    close(y, by_eval(op, *arrays), 3e-6)


@pytest.mark.parametrize("case", ["layer norm", "instance norm", "batch norm", "L2", "softmax over channels"])
def test_half_precision_on_ggml(case: str) -> None:
    op, arrays, _, _ = CASES[case]
    half = [array.astype(F16) for array in arrays]
    y, called = on_ggml(op, *half, weights=range(1, len(arrays)))
    assert called.count("ggml_cast") == 2
    close(y, by_eval(op, *half), 1e-3)


def test_volumes_on_ggml() -> None:
    x = floats(2, 6, 2, 5, 8)
    for op, size in ((LayerNorm(4, 1e-5), 8), (GroupNorm(3, 1e-5), 6)):
        y, called = on_ggml(op, x, floats(size), floats(size), weights=[1, 2])
        assert called[1:] == ["ggml_mul", "ggml_add"]
        assert y.shape == x.shape


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 5, 4), (1, 6, 2, 3, 2)])
def test_group_norm(shape: tuple[int, ...]) -> None:
    """Each group of channels of each image has mean 0 and variance 1 before the scale and the bias."""
    random = np.random.default_rng(len(shape))  # of its own: what divides by a scale or a spread near 0 is less exact
    x, scale, bias = (random.uniform(0.5, 1.5, size).astype(np.float32) for size in (shape, 6, 6))
    y = by_eval(GroupNorm(3, 1e-5), x, scale, bias)
    spread = (6, *[1] * (len(shape) - 2))
    groups = ((y - bias.reshape(spread)) / scale.reshape(spread)).reshape(shape[0], 3, -1).astype(np.float64)
    assert np.abs(groups.mean(-1)).max() < 1e-5
    variance = x.astype(np.float64).reshape(shape[0], 3, -1).var(-1)
    np.testing.assert_allclose(groups.var(-1), variance / (variance + 1e-5), rtol=1e-4)
    result = defined(GroupNorm(3, 1e-5), x, scale, bias)
    assert result is not None
    close(result, y)
    close(on_ggml(GroupNorm(3, 1e-5), x, scale, bias)[0], y)


def test_rms_norm() -> None:
    x, scale = floats(2, 5, 8), floats(8)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * scale
    close(by_eval(RMSNorm(2, 1e-6), x, scale), expected.astype(np.float32))
    result = defined(RMSNorm(1, 1e-6), x, floats(5, 8))
    assert result is not None
    assert result.shape == x.shape


def test_half_precision_is_rounded_once() -> None:
    x = floats(3, 64).astype(F16)
    close(by_eval(Softmax(1), x), by_eval(Softmax(1), x.astype(np.float32)).astype(F16), 0)


def test_softmax_of_large_numbers() -> None:
    np.testing.assert_array_equal(by_eval(Softmax(0), np.float32([1e30, -1e30, 1e30])), np.float32([0.5, 0, 0.5]))


def test_norm_of_zeros() -> None:
    zeros = np.zeros((2, 3), np.float32)
    for p in (1, 2):
        np.testing.assert_array_equal(by_eval(LpNorm(1, p, TINY), zeros), zeros)
        np.testing.assert_array_equal(defined(LpNorm(1, p, TINY), zeros), zeros)


def test_symbolic_sizes() -> None:
    n, c = symbol("n"), symbol("c")
    x = TensorType(F32, (n, c, 4))
    assert LayerNorm(2, 1e-5).infer(x, TensorType(F32, (4,))) == (x,)
    assert InstanceNorm(1e-5).infer(x, TensorType(F32, (c,)), TensorType(F32, (c,))) == (x,)
    assert GroupNorm(2, 1e-5).infer(TensorType(F32, (n, 2 * c, 3)), *[TensorType(F32, (2 * c,))] * 2)
    with pytest.raises(ShapeError, match="do not divide into 2 groups"):
        GroupNorm(2, 1e-5).infer(x, TensorType(F32, (c,)), TensorType(F32, (c,)))


@pytest.mark.parametrize(
    ("op", "types", "reason"),
    [
        (LayerNorm(1, 1e-5), [(F32, (2, 3)), (F32, (4,))], "broadcast"),
        (LayerNorm(2, 1e-5), [(F32, (2, 3)), (F32, (3,))], "axis 2"),
        (GroupNorm(4, 1e-5), [(F32, (2, 6)), (F32, (6,)), (F32, (6,))], "do not divide into 4 groups"),
        (InstanceNorm(1e-5), [(F32, (2, 6)), (F32, (5,)), (F32, (6,))], "for each of 6 channels"),
        (Softmax(1), [(I64, (2, 3))], "floats"),
        (LpNorm(1, 3, 0.0), [(F32, (2, 3))], "only 1 and 2"),
    ],
)
def test_refusals(op: object, types: list[tuple[np.dtype, tuple[int, ...]]], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        op.infer(*(TensorType(*type) for type in types))  # type: ignore[attr-defined]
