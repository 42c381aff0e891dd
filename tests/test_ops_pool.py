"""Pools: NumPy against onnxruntime, definitions against NumPy, sizes, and refusals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from operators import by_eval, by_kernel, by_onnxruntime, close, defined, floats, on_ggml

from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ir.types import BOOL, F32
from graphc.ops.pool import AveragePool, MaxPool
from graphc.shapes import bind, symbol

SIZES = (11, 8, 7)
SETTINGS = [
    # kernel, stride, dilation, pad before, pad after
    (2, 2, 1, 0, 0),
    (3, 2, 1, 1, 1),
    (3, 2, 1, 0, 1),
    (3, 1, 2, 2, 1),
    (2, 3, 1, 1, 0),
    (5, 4, 1, 2, 2),
]
CASES = list(product((1, 2, 3), SETTINGS, (False, True)))


def spread(setting: tuple[int, ...], axes: int) -> tuple[tuple[int, ...], ...]:
    return tuple((number,) * axes for number in setting)


def attributes(op: MaxPool | AveragePool) -> dict[str, object]:
    return {
        "kernel_shape": op.kernel,
        "strides": op.strides,
        "dilations": op.dilations,
        "pads": (*op.pads_before, *op.pads_after),
        "ceil_mode": int(op.ceil_mode),
    }


@pytest.mark.parametrize(("axes", "setting", "ceil"), CASES)
def test_max_pool(axes: int, setting: tuple[int, ...], ceil: bool) -> None:
    op = MaxPool(*spread(setting, axes), ceil)
    x = floats(2, 3, *SIZES[:axes])
    y = by_eval(op, x)
    close(y, by_onnxruntime("MaxPool", x, **attributes(op)), 0)
    if axes == 3:
        close(defined(op, x), y, 0)
    close(on_ggml(op, x)[0], y, 0)


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("axes", "setting", "ceil"), CASES)
def test_average_pool(axes: int, setting: tuple[int, ...], ceil: bool, include: bool) -> None:
    op = AveragePool(*spread(setting, axes), ceil, include)
    x = floats(2, 3, *SIZES[:axes])
    y = by_eval(op, x)
    close(y, by_onnxruntime("AveragePool", x, count_include_pad=int(include), **attributes(op)))
    if not op.whole(x.shape[2:]):
        close(defined(op, x), y)
    if setting[2] == 1:
        result, called = on_ggml(op, x)
        assert set(called) <= {"ggml_pool_2d", "ggml_cont", "ggml_mul"}
        close(result, y)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_loop_form(axes: int) -> None:
    x = floats(2, 3, *SIZES[:axes])
    settings = spread((3, 2, 2, 2, 1), axes)
    for op in (MaxPool(*settings, True), AveragePool(*settings, True, True), AveragePool(*settings, False, False)):
        close(by_kernel(op, x), by_eval(op, x))


def test_window_larger_than_the_image() -> None:
    op = MaxPool((5,), (3,), (1,), (0,), (1,), True)
    x = floats(1, 2, 3)
    close(by_eval(op, x), x.max(2, keepdims=True), 0)
    close(on_ggml(op, x)[0], x.max(2, keepdims=True), 0)


def test_max_pool_of_integers() -> None:
    x = np.arange(-8, 8, dtype=np.int8).reshape(1, 1, 4, 4)
    op = MaxPool((3, 3), (2, 2), (1, 1), (1, 1), (1, 1), False)
    close(by_eval(op, x), by_onnxruntime("MaxPool", x, **attributes(op)), 0)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_symbolic_sizes_on_ggml(setting: tuple[int, ...], ceil: bool) -> None:
    x = floats(2, 3, 11, 8)
    n = symbol("n", low=6)
    settings = spread(setting, 2)
    for op in (MaxPool(*settings, ceil), AveragePool(*settings, ceil, False), AveragePool(*settings, ceil, True)):
        for size in (10, 11):
            y, _ = on_ggml(op, x[:, :, :size], sizes={0: (2, 3, n, 8)}, binding={"n": size})
            close(y, by_eval(op, x[:, :, :size]))


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("setting", SETTINGS)
def test_symbolic_sizes(setting: tuple[int, ...], ceil: bool) -> None:
    op = MaxPool(*spread(setting, 1), ceil)
    n = symbol("n", low=6)
    (type,) = op.infer(TensorType(F32, (1, 1, n)))
    for size in range(6, 20):
        assert bind(type.shape[2], {"n": size}) == op.infer(TensorType(F32, (1, 1, size)))[0].shape[2]


@pytest.mark.parametrize(
    ("op", "type", "reason"),
    [
        (MaxPool((3,), (1,), (1,), (0,), (0,), False), TensorType(F32, (1, 1, 2)), "does not fit"),
        (MaxPool((3,), (1,), (1,), (0,), (0,), False), TensorType(F32, (1, 1, 4, 4)), "windows of 1 axes"),
        (MaxPool((2,), (0,), (1,), (0,), (0,), False), TensorType(F32, (1, 1, 4)), "at least 1"),
        (MaxPool((2,), (1,), (1,), (0,), (0,), False), TensorType(BOOL, (1, 1, 4)), "largest of bool"),
    ],
)
def test_refusals(op: MaxPool, type: TensorType, reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        op.infer(type)
