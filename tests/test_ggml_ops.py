"""Operators as ggml programs against NumPy: ONNX's cases, random shapes up to six axes, views, and special values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import inf

import numpy as np
import pytest
from onnx_cases import cases
from programs import Batch, calls_of
from test_ops_onnx import agree

from graphc.errors import InputError
from graphc.ir.types import BF16, F16, F32, I64
from graphc.ops import activations
from graphc.ops.base import Op
from graphc.ops.blocks import DepthToSpace, SpaceToDepth, Tile
from graphc.ops.functions import BINARY, UNARY
from graphc.ops.indexing import Gather, GatherElements, GatherND
from graphc.ops.movement import Concat, Expand, Pad, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.pool import MaxPool
from graphc.ops.reduce import Reduce
from graphc.ops.scatter import ScatterElements, ScatterND
from graphc.ops.sequences import CumSum

RANDOM = np.random.default_rng(1)
CASES = [case for case in cases() if case.inputs]
Made = tuple[Op, list[np.ndarray]]


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    """As `agree`, but relative to the largest element, as models are compared."""
    if actual.dtype.kind in "biu":
        agree(actual, expected)
        return
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    wide, true = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(true)
    np.testing.assert_array_equal(wide[~finite], true[~finite])
    scale = np.abs(true[finite]).max(initial=1e-30)
    tolerance = {F16: 2e-3, BF16: 2e-2}.get(actual.dtype, 2e-6)
    np.testing.assert_allclose(wide[finite] / scale, true[finite] / scale, rtol=0, atol=tolerance)


def close_each(actual: np.ndarray, expected: np.ndarray) -> None:
    """To rounding, element by element."""
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=2e-7)


def check(
    batch: Batch,
    expected: list[tuple[str, int, np.ndarray]],
    compare: Callable[[np.ndarray, np.ndarray], None],
) -> None:
    """Run a batch and compare every result; all that differ are told."""
    results = batch.run()
    wrong = []
    for what, number, array in expected:
        try:
            compare(results[number], array)
        except AssertionError as error:
            wrong.append(f"{what}: {error}")
    assert not wrong, "\n".join(wrong[:10])


def check_all(
    made: Iterator[tuple[Op, list[np.ndarray], dict]], compare: Callable[[np.ndarray, np.ndarray], None] = close,
    device: str = "cpu",
) -> None:  # fmt: skip
    """Every operator in one program, against NumPy."""
    batch, expected = Batch(device=device), []
    for op, inputs, settings in made:
        results = op.eval(*inputs)
        for number, array in zip(batch.add(op, inputs, **settings), results, strict=True):
            expected.append((f"{op} of {[x.shape for x in inputs]} {settings}", number, np.asarray(array)))
    check(batch, expected, compare)


def test_onnx_cases() -> None:
    check_all((case.op, case.inputs, {}) for case in CASES)


def shape(rank: int, smallest: int = 1) -> tuple[int, ...]:
    """Random sizes, some of them 1."""
    return tuple(int(n) for n in RANDOM.integers(smallest, 5, rank))


def numbers(*sizes: int, dtype: np.dtype = F32) -> np.ndarray:
    """Random numbers between -4 and 4."""
    return (RANDOM.random(sizes) * 8 - 4).astype(dtype)


def unary() -> Iterator[Made]:
    for rank, (name, row) in itertools.product(range(0, 7, 2), UNARY.items()):
        dtype = F32 if F32 in row.takes else I64 if I64 in row.takes else np.dtype(np.bool_)
        positive = name in ("Log", "Sqrt", "Acosh")
        x = numbers(*shape(rank), dtype=dtype)
        yield Unary(name), [np.abs(x) + 1 if positive else x / 4 if name in ("Asin", "Acos", "Atanh") else x]


def broadcast_pair(rank: int) -> list[np.ndarray]:
    """Two arrays that broadcast: some axes are 1 in either, and the second may have fewer."""
    full = shape(rank)
    left = tuple(1 if RANDOM.random() < 0.3 else n for n in full)
    right = tuple(1 if RANDOM.random() < 0.3 else n for n in full)
    return [numbers(*left), numbers(*right[int(RANDOM.integers(0, rank + 1)) :])]


def binary() -> Iterator[Made]:
    for rank in range(7):
        for name in ("Add", "Sub", "Mul", "Div", "Min", "Max"):
            yield Binary(name), broadcast_pair(rank)
        a, b = broadcast_pair(rank)
        yield Binary("Pow"), [np.abs(a), b]
        yield Binary("PRelu"), [np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)).copy(), b]
        yield Binary("Less"), [a, b]
        yield Where(), [a > 0, b, numbers(1)]


def scalars() -> Iterator[Made]:
    for rank, number in itertools.product((0, 2, 5), (0.0, 1.0, 0.125, -3.0, 2.0, 0.5, -1.0, 1e-30)):
        x = np.abs(numbers(*shape(rank))) + 0.1
        c = np.full([1] * int(RANDOM.integers(0, rank + 2)), number, F32)
        for name in ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max"):
            yield Binary(name), [x, c]
            if name != "Pow":
                yield Binary(name), [c, x]


def movement() -> Iterator[Made]:
    for rank in range(1, 7):
        for _ in range(3):
            x = numbers(*shape(rank, 2))
            yield Transpose(tuple(int(i) for i in RANDOM.permutation(rank))), [x]
            yield from slices(x)
            ones = numbers(*(1 if RANDOM.random() < 0.5 else n for n in x.shape))
            yield Expand((2, *x.shape) if rank < 6 else x.shape), [ones]
            yield Tile(tuple(int(n) for n in RANDOM.integers(1, 3, rank))), [x]
            axis = int(RANDOM.integers(rank))
            parts = [numbers(*x.shape[:axis], int(n), *x.shape[axis + 1 :]) for n in RANDOM.integers(1, 4, 5)]
            yield Concat(axis), parts
            pads = [tuple(int(n) for n in RANDOM.integers(0, 2, rank)) for _ in range(2)]
            for mode in ("constant", "reflect", "edge", "wrap"):
                yield Pad(pads[0], pads[1], mode), [x]
            yield Pad(pads[0], pads[1], "constant", 1.5), [x]
            yield Reshape((x.size,)), [x]
            yield Reshape((*x.shape, 1, 1)[:6] if rank < 6 else (x.shape[0] * x.shape[1], *x.shape[2:])), [x]
    for mode in ("DCR", "CRD"):
        yield DepthToSpace(2, mode), [numbers(2, 12, 3, 5)]
    yield SpaceToDepth(3), [numbers(2, 2, 6, 9)]


def slices(x: np.ndarray) -> Iterator[Made]:
    """Parts, every second element, and reversed axes."""
    starts = [int(RANDOM.integers(n)) for n in x.shape]
    part = Slice(tuple(starts), tuple(n - s for n, s in zip(x.shape, starts, strict=True)), (1,) * x.ndim)
    yield part, [x]
    full = tuple(n * 2 for n in x.shape)
    wide = numbers(*full)
    steps = [int(RANDOM.integers(1, 3)) for _ in full]
    yield Slice((1,) * x.ndim, tuple((n - 1) // s for n, s in zip(full, steps, strict=True)), tuple(steps)), [wide]
    last = (*full[:-1], full[-1] // 2)
    yield Slice((0,) * x.ndim, last, (*(1,) * (x.ndim - 1), 2)), [wide]
    yield Slice(tuple(n - 1 for n in full), full, (-1,) * x.ndim), [wide]


def reductions() -> Iterator[Made]:
    for rank in range(1, 7):
        for count in range(rank + 1):
            axes = tuple(sorted(int(i) for i in RANDOM.permutation(rank)[:count]))
            x = numbers(*shape(rank))
            for kind in ("sum", "mean", "max", "min", "prod"):
                yield Reduce(kind, axes, bool(RANDOM.integers(2))), [x]
        axis = int(RANDOM.integers(rank))
        for exclusive, reverse in itertools.product((False, True), repeat=2):
            yield CumSum(axis, exclusive, reverse), [numbers(*shape(rank))]


def gathers() -> Iterator[Made]:
    for rank, dtype in itertools.product(range(1, 6), (F32, F16, BF16, I64)):
        for axis in range(rank):
            x = numbers(*shape(rank, 2), dtype=dtype)
            for indices in (shape(0), shape(1), shape(2)):
                # Row numbers of a constant table that are an input of the model may not be negative.
                lowest = 0 if axis == 0 else -x.shape[axis]
                yield Gather(axis), [x, RANDOM.integers(lowest, x.shape[axis], indices)]


def functions_with_settings() -> Iterator[Made]:
    made = [
        *(op() for op in activations.all_activations().values()),
        activations.Clip(-1.0, 2.0),
        activations.Clip(None, 0.5),
        activations.Clip(2.0, -1.0),
        activations.Elu(0.3),
        activations.Celu(2.5),
        activations.HardSigmoid(1 / 6, 0.5),
        activations.Gelu("tanh"),
        *(Cast(dtype) for dtype in (F16, BF16, I64, F32)),
    ]
    for op, rank in itertools.product(made, (0, 2, 5)):
        yield op, [numbers(8, *shape(rank))]


FAMILIES = [unary, binary, scalars, movement, reductions, gathers, functions_with_settings]


@pytest.mark.parametrize("family", FAMILIES, ids=[family.__name__ for family in FAMILIES])
def test_random_shapes(family: Callable[[], Iterator[Made]]) -> None:
    def all_forms() -> Iterator[tuple[Op, list[np.ndarray], dict]]:
        for op, inputs in family():
            yield op, inputs, {}
            if any(x.ndim > 1 for x in inputs):
                yield op, inputs, {"transposed": True}
            for known in range(len(inputs)) if len(inputs) == 2 else ():
                yield op, inputs, {"constant": (known,)}

    check_all(all_forms())


def test_special_values() -> None:
    x = np.array(
        [0.0, -0.0, inf, -inf, 1e-40, -1e-40, 3.4e38, -3.4e38, 0.5, 1.5, 2.5, -0.5, -1.5, 1e-3, -88.0, 89.0], F32
    )
    with np.errstate(all="ignore"):
        made = [(Unary(name), [x], {}) for name, row in UNARY.items() if F32 in row.takes]
        made += [
            (op, inputs, {}) for op, inputs in functions_with_settings() if inputs[0].ndim == 1 and type(op) is not Cast
        ]
        made = [(op, [x], {}) for op, _, _ in made]
        pair = [np.repeat(x, x.size), np.tile(x, x.size)]
        made += [(Binary(name), pair, {}) for name, row in BINARY.items() if F32 in row.takes]
        for number in (inf, -inf, 0.0, 2.0, -3.0, 1e-40):
            for name in ("Add", "Sub", "Mul", "Div", "Min", "Max"):
                made.append((Binary(name), [x, np.array(number, F32)], {"constant": (1,)}))
                made.append((Binary(name), [np.array(number, F32), x], {"constant": (0,)}))
    check_all(iter(made), close_each)


def test_not_a_number() -> None:
    x = np.array([np.nan, 1.0, 2.0], F32)
    made = [Unary(name) for name, row in UNARY.items() if F32 in row.takes]
    made += [op for op, inputs in functions_with_settings() if inputs[0].ndim == 1 and type(op) is not Cast]
    check_all(((op, [x], {}) for op in made), close_each)
    pair = [np.array([np.nan, 1.0, np.nan], F32), np.array([1.0, np.nan, np.nan], F32)]
    check_all(((Binary(name), pair, {}) for name, row in BINARY.items() if F32 in row.takes), close_each)
    for number in (np.nan, 0.0):
        known = np.array(number, F32)
        check_all(((Binary(name), [x, known], {"constant": (1,)}) for name in ("Min", "Max", "PRelu")), close_each)
    image = np.where(np.arange(49) % 9 == 4, np.nan, -inf).astype(F32).reshape(1, 1, 7, 7)
    check_all(((MaxPool((k, k), (1, 1), (1, 1), (0, 0), (0, 0), False), [image], {}) for k in (2, 3)), close_each)


@pytest.mark.parametrize("function", ["Div", "Mod", "Fmod"])
def test_integer_division(function: str) -> None:
    lowest = np.iinfo(np.int32).min
    a = np.array([7, -7, 7, -7, lowest, lowest], np.int32)
    b = np.array([2, 2, -2, -2, -1, 3], np.int32)
    check_all(iter([(Binary(function), [a, b], {}), (Binary(function), [a.astype(I64), b.astype(I64)], {})]))
    batch = Batch()
    batch.add(Binary(function), [a, b - b])
    with pytest.raises(InputError, match="divided by zero"):
        batch.run()
    with pytest.raises(InputError, match="divided by zero"):
        Binary(function).eval(a, b - b)


@pytest.mark.parametrize("number", [-8, 7])
def test_index_out_of_range(number: int) -> None:
    data, indices = numbers(7, 2), np.array([[0, number]])
    for op in (Gather(0), GatherElements(0), GatherND(0), ScatterElements(0), ScatterND()):
        arrays = [data, indices]
        if isinstance(op, GatherND | ScatterND):
            arrays[1] = indices.reshape(2, 1)
        if isinstance(op, ScatterElements | ScatterND):
            arrays.append(numbers(1, 2) if isinstance(op, ScatterElements) else numbers(2, 2))
        with pytest.raises(InputError, match="index"):
            op.eval(*arrays)
        batch = Batch()
        batch.add(op, arrays)
        with pytest.raises(InputError, match="out of range"):
            batch.run()


def test_no_elements() -> None:
    none = numbers(2, 0, 3)
    made: list[Made] = [
        (Unary("Exp"), [none]),
        (Binary("Add"), [none, numbers(3)]),
        (Binary("Mul"), [none, np.array(2.0, F32)]),
        (Where(), [none > 0, none, none]),
        (Cast(F16), [none]),
        (activations.Gelu(), [none]),
        (Reshape((0, 6)), [none]),
        (Transpose((2, 0, 1)), [none]),
        (Expand((4, 2, 0, 3)), [none]),
        (Slice((0, 1), (2, 0), (1, 1)), [numbers(2, 3)]),
        (Concat(1), [none, numbers(2, 2, 3), none]),
        (Concat(1), [none, none]),
        (Pad((0, 1, 0), (0, 1, 0)), [none]),
        (Tile((1, 2, 1)), [none]),
        (Tile((1, 0)), [numbers(2, 3)]),
        (Gather(0), [numbers(4, 3), np.zeros((0,), I64)]),
        (ScatterND(), [numbers(4), np.zeros((0, 1), I64), numbers(0)]),
        (ScatterElements(0), [numbers(4), np.zeros((0,), I64), numbers(0)]),
        (CumSum(1), [none]),
        *((Reduce(kind, (1,), True), [none]) for kind in ("sum", "max", "min", "prod")),
        (Reduce("sum", (0,), True), [none]),
    ]
    check_all((op, inputs, {}) for op, inputs in made)


NARROW_OPS = [Unary("Exp"), Unary("Relu"), Unary("Silu"), activations.Gelu(), activations.Clip(-1.0, 1.0)]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_narrow_floats(dtype: np.dtype) -> None:
    def made() -> Iterator[tuple[Op, list[np.ndarray], dict]]:
        x, y = numbers(3, 4, 5, dtype=dtype), numbers(4, 1, dtype=dtype)
        yield from ((op, [x], {"transposed": True}) for op in NARROW_OPS)
        yield from ((Binary(name), [x, y], {}) for name in ("Add", "Sub", "Mul", "Div", "Max", "PRelu"))
        yield Binary("Mul"), [x, np.array(3.0, dtype)], {"constant": (1,)}
        yield Pad((0, 1, 2), (1, 0, 0)), [x], {}
        yield Tile((2, 1, 2)), [x], {}
        yield Expand((2, 3, 4, 5)), [x], {}
        yield from ((Reduce(kind, (0, 2), True), [x], {}) for kind in ("sum", "mean", "max"))

    check_all(made())


X = numbers(2, 3, 4)
TABLE = numbers(7, 5)


@pytest.mark.parametrize(
    ("op", "inputs", "constant", "functions"),
    [
        (Binary("Mul"), [X, np.array(0.125, F32)], (1,), ["scale"]),
        (Binary("Div"), [X, np.array([[3]], F32)], (1,), ["scale"]),
        (Binary("Add"), [np.array(1, F32), X], (0,), ["scale_bias"]),
        (Binary("Sub"), [np.array(1, F32), X], (0,), ["scale_bias"]),
        (Binary("Pow"), [X, np.array(2, F32)], (1,), ["sqr"]),
        (Binary("Pow"), [X, np.array(0.5, F32)], (1,), ["sqrt"]),
        (Binary("Div"), [np.array(1, F32), X], (0,), ["fill", "div"]),
        (Binary("Max"), [X, np.array(0.1, F32)], (1,), ["custom_4d"]),
        (Binary("Add"), [X, numbers(3, 1)], (), ["add"]),
        (Unary("Sigmoid"), [X], (), ["sigmoid"]),
        (Unary("Round"), [X], (), ["custom_4d"]),
        (activations.Gelu(), [X], (), ["gelu_erf"]),
        (activations.Gelu("tanh"), [X], (), ["gate"]),
        (activations.Swish(1.702), [X], (), ["gate"]),
        (Unary("Tanh"), [numbers(2, 3, 4, 5, 6)], (), ["tanh"]),
        (Gather(2), [numbers(2, 3, 3, 5, 6), np.array(-1)], (1,), ["cont"]),
        (Reduce("mean", (1, 2), False), [X], (), ["mean"]),
        (Gather(0), [TABLE, np.array([3, -1, 0])], (1,), ["get_rows"]),
        (Gather(0), [TABLE, np.array([3, 1, 0])], (0,), ["get_rows"]),
        (Gather(1), [X, np.array(2)], (1,), ["cont"]),
        (Slice((0, 0, 0), (2, 3, 2), (1, 1, 2)), [X], (), ["cont"]),
        (Concat(1), [X, X, X], (), ["concat", "concat"]),
        (Transpose((0, 1, 4, 2, 3)), [numbers(2, 3, 4, 5, 6)], (), ["cont"]),
        (DepthToSpace(2), [numbers(1, 8, 3, 5)], (), ["cont"]),
        (DepthToSpace(2), [numbers(2, 8, 3, 5)], (), ["cont", "cont"]),
    ],
)  # fmt: skip
def test_calls(op: Op, inputs: list[np.ndarray], constant: tuple[int, ...], functions: list[str]) -> None:
    assert calls_of(op, *inputs, constant=constant) == functions
