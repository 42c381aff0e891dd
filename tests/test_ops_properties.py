"""Matrix and image operators at random settings and sizes: what is inferred, defined and lowered for symbolic sizes is what
NumPy computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import by_eval, close, defined, floats, on_ggml

from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ops.base import Op
from graphc.ops.conv import Conv, ConvTranspose
from graphc.ops.einsum import Einsum
from graphc.ops.matmul import MatMul
from graphc.ops.norm import GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from graphc.ops.pool import AveragePool, MaxPool
from graphc.ops.resize import Resize
from graphc.ops.softmax import LogSoftmax, Softmax
from graphc.shapes import Dim, bind, symbol

SYMBOLS = {name: symbol(name) for name in "abcd"}
EXAMPLES = settings(max_examples=25, derandomize=True)
small = st.integers(1, 3)
flag = st.booleans()


def agree(op: Op, arrays: Sequence[np.ndarray], shapes: dict[int, tuple[Dim, ...]], binding: dict[str, int]) -> None:
    """`infer`, `define` and the lowered program are what `eval` is."""
    types = [TensorType(array.dtype, shapes.get(i, array.shape)) for i, array in enumerate(arrays)]
    try:
        y = by_eval(op, *arrays)
    except ShapeError:
        return
    (type,) = op.infer(*types)
    assert tuple(bind(size, binding) for size in type.shape) == y.shape
    result = defined(op, *arrays)
    if result is not None:
        close(result, y, 1e-5)
    lowered, _ = on_ggml(
        op, *arrays, sizes=shapes, binding=binding, weights=[i for i in range(len(arrays)) if i not in shapes]
    )
    close(lowered, y, 1e-5)


def symbolic(draw: st.DrawFn, shape: Sequence[int]) -> tuple[tuple[Dim, ...], dict[str, int]]:
    """The shape with some sizes as symbols, and their values."""
    chosen = [draw(flag) for _ in shape]
    names = dict(zip(range(len(shape)), SYMBOLS, strict=False))
    dims = tuple(
        SYMBOLS[names[i]] if i in names and on else size for i, (size, on) in enumerate(zip(shape, chosen, strict=True))
    )
    return dims, {names[i]: size for i, size in enumerate(shape) if i in names and chosen[i]}


@st.composite
def image(draw: st.DrawFn, axes: int, channels: int) -> tuple[np.ndarray, dict[int, tuple[Dim, ...]], dict[str, int]]:
    """An image whose batch and spatial sizes may be symbols."""
    shape = (draw(small), channels, *(draw(st.integers(4, 9)) for _ in range(axes)))
    dims, binding = symbolic(draw, shape)
    dims = (dims[0], channels, *dims[2:])
    binding.pop("b", None)
    return floats(*shape), {0: dims}, binding


def numbers(draw: st.DrawFn, axes: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(low, high)) for _ in range(axes))


@EXAMPLES
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    axes, group = draw(small), draw(st.sampled_from([1, 2, 4]))
    x, shapes, binding = draw(image(axes, 4))
    strides, dilations = numbers(draw, axes, 1, 3), numbers(draw, axes, 1, 2)
    before, after, kernel = numbers(draw, axes, 0, 2), numbers(draw, axes, 0, 2), numbers(draw, axes, 1, 3)
    bias = [floats(4)] if draw(flag) else []
    if draw(flag):
        extra = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations, strict=True))
        op: Op = ConvTranspose(strides, dilations, before, after, extra, group)
        agree(op, [x, floats(4, 4 // group, *kernel), *bias], shapes, binding)
    else:
        agree(
            Conv(strides, dilations, before, after, group), [x, floats(4, 4 // group, *kernel), *bias], shapes, binding
        )


@EXAMPLES
@given(st.data())
def test_pools(data: st.DataObject) -> None:
    draw = data.draw
    axes = draw(small)
    x, shapes, binding = draw(image(axes, 3))
    kernel = numbers(draw, axes, 1, 3)
    before, after = (tuple(draw(st.integers(0, size - 1)) for size in kernel) for _ in range(2))
    setting = (kernel, numbers(draw, axes, 1, 3), numbers(draw, axes, 1, 2), before, after, draw(flag))
    agree(MaxPool(*setting) if draw(flag) else AveragePool(*setting, draw(flag)), [x], shapes, binding)


@EXAMPLES
@given(st.data())
def test_normalizations(data: st.DataObject) -> None:
    draw = data.draw
    x, shapes, binding = draw(image(draw(st.integers(0, 3)), 6))
    axis = draw(st.integers(1, x.ndim - 1))
    channel = [floats(6), floats(6)]
    last = floats(x.shape[-1])
    if not isinstance(shapes[0][-1], int):
        last = last[:1]
    cases: list[tuple[Op, list[np.ndarray]]] = [
        (LayerNorm(axis, 1e-5), [last, last]),
        (RMSNorm(axis, 1e-5), [last]),
        (GroupNorm(draw(st.sampled_from([1, 2, 3, 6])), 1e-5), channel),
        (InstanceNorm(1e-5), channel),
        (Softmax(axis), []),
        (LogSoftmax(axis), []),
    ]
    op, parameters = draw(st.sampled_from(cases))
    agree(op, [x, *parameters], shapes, binding)


@EXAMPLES
@given(st.data())
def test_products(data: st.DataObject) -> None:
    draw = data.draw
    batch, (m, k, n) = [draw(small) for _ in range(draw(st.integers(0, 3)))], (draw(small) for _ in range(3))
    left, right = ([size if draw(flag) else 1 for size in batch[draw(st.integers(0, len(batch))) :]] for _ in range(2))
    op = MatMul(draw(flag), draw(flag))
    a, b = (
        floats(*left, *((k, m) if op.transpose_a else (m, k))),
        floats(*right, *((n, k) if op.transpose_b else (k, n))),
    )
    dims, binding = symbolic(draw, a.shape)
    inner = -2 if op.transpose_a else -1
    fixed = tuple(
        size if i in (a.ndim + inner, *range(a.ndim - 2)) else dim
        for i, (size, dim) in enumerate(zip(a.shape, dims, strict=True))
    )
    agree(
        op, [a, b], {0: fixed, 1: b.shape}, {name: value for name, value in binding.items() if SYMBOLS[name] in fixed}
    )


@EXAMPLES
@given(st.data())
def test_resizes(data: st.DataObject) -> None:
    draw = data.draw
    x, shapes, binding = draw(image(2, 2))
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    coordinate = draw(st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]))
    factors = [draw(st.integers(1, 4)) for _ in range(2)]
    sizes = (*shapes[0][:2], *(size * factor for size, factor in zip(shapes[0][2:], factors, strict=True)))
    scales = (1.0, 1.0, *(float(factor) if draw(flag) else 0.0 for factor in factors))
    op = Resize(
        sizes, scales, mode, coordinate, draw(st.sampled_from(["floor", "round_prefer_floor", "round_prefer_ceil"]))
    )
    known = replace(op, sizes=tuple(int(bind(size, binding)) for size in sizes))
    y = by_eval(known, x)
    close(defined(known, x), y, 1e-5)
    lowered, _ = on_ggml(op, x, sizes=shapes, binding=binding)
    close(lowered, y, 1e-5)


@EXAMPLES
@given(st.lists(st.text("abcde", min_size=1, max_size=3), min_size=1, max_size=3), st.data())
def test_equations(terms: list[str], data: st.DataObject) -> None:
    names = sorted(set("".join(terms)))
    sizes = {name: data.draw(st.integers(1, 4)) for name in names}
    result = "".join(data.draw(st.permutations([name for name in names if data.draw(flag)])))
    arrays = [floats(*(sizes[name] for name in term)) for term in terms]
    agree(Einsum(f"{','.join(terms)}->{result}"), arrays, {i: array.shape for i, array in enumerate(arrays)}, {})


@pytest.mark.parametrize("size", [1, 2, 3])
def test_diagonals_of_symbolic_size(size: int) -> None:
    n = SYMBOLS["a"]
    agree(Einsum("bii->ib"), [floats(2, size, size)], {0: (2, n, n)}, {"a": size})
