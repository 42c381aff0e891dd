"""Operators on sizes that are symbols: what is inferred and lowered once holds for every value of the symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.errors import ShapeError
from graphc.ir import Graph, TensorType
from graphc.ir.interp import evaluate
from graphc.ir.types import BOOL, F16, F32, I32, I64
from graphc.ops.activations import Clip, Gelu
from graphc.ops.base import Op
from graphc.ops.blocks import DepthToSpace, SpaceToDepth, Tile
from graphc.ops.coupling import PairwiseCoupling
from graphc.ops.indexing import Gather, GatherElements, GatherND, OneHot
from graphc.ops.movement import Concat, Expand, Pad, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.ops.scatter import ScatterElements, ScatterND
from graphc.ops.selection import BestBoxes, NonZero
from graphc.ops.sequences import CumProd, CumSum, EyeLike, Range, Trilu
from graphc.ops.sorting import ArgMax, ArgMin, ArgSort, ArgSortRows, TopK
from graphc.ops.trees import TreeEnsemble
from graphc.shapes import Dim, Undecidable, bind, dim_max, dim_min, symbol
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.run.executor import Executor

A, B, C = symbol("a"), symbol("b"), symbol("c")
Shape = tuple[Dim, ...]
Spec = tuple[Op, Sequence[tuple[np.dtype, Shape]]]

SPECS: dict[str, Callable[[Dim, Dim, Dim], Spec]] = {
    "unary": lambda a, b, c: (Unary("Tanh"), [(F32, (a, b, c))]),
    "unary of six axes": lambda a, b, c: (Unary("Abs"), [(F32, (a, 2, b, 2, c, 3))]),
    "add": lambda a, b, c: (Binary("Add"), [(F32, (a, b, c)), (F32, (b, 1))]),
    "add both ways": lambda a, b, c: (Binary("Sub"), [(F32, (a, 1, c)), (F32, (b, 1))]),
    "add of six axes": lambda a, b, c: (Binary("Mul"), [(F32, (a, 2, b, 2, c, 3)), (F32, (c, 3))]),
    "add of five unlike axes": lambda a, b, c: (Binary("Add"), [(F32, (a, 1, b, 1, c)), (F32, (1, 2, 1, 3, 1))]),
    "less": lambda a, b, c: (Binary("Less"), [(F32, (a, b)), (F32, (b,))]),
    "integers": lambda a, b, c: (Binary("Add"), [(I64, (a, b)), (I64, (b,))]),
    "where": lambda a, b, c: (Where(), [(BOOL, (a, 1, c)), (F32, (b, c)), (F32, ())]),
    "cast": lambda a, b, c: (Cast(F16), [(F32, (a, b * c))]),
    "to integers": lambda a, b, c: (Cast(I64), [(F32, (a, b * c))]),
    "clip": lambda a, b, c: (Clip(-0.5, 0.5), [(F32, (a, b))]),
    "gelu": lambda a, b, c: (Gelu("tanh"), [(F32, (a, b))]),
    "reshape": lambda a, b, c: (Reshape((a * b, 2, c)), [(F32, (a, b, 2 * c))]),
    "reshape to six": lambda a, b, c: (Reshape((a, b, 1, 2, c, 1)), [(F32, (a, b, 2 * c))]),
    "reshape from six": lambda a, b, c: (Reshape((a * b, 2 * c)), [(F32, (a, b, 1, 2, c, 1))]),
    "transpose": lambda a, b, c: (Transpose((2, 0, 1)), [(F32, (a, b, c))]),
    "window partition": lambda a, b, c: (Transpose((0, 1, 3, 2, 4, 5)), [(F32, (a, b, 2, c, 2, 3))]),
    "transpose of five": lambda a, b, c: (Transpose((4, 3, 2, 1, 0)), [(F32, (a, 2, b, 2, c))]),
    "expand": lambda a, b, c: (Expand((a, b, c)), [(F32, (b, 1))]),
    "expand of six": lambda a, b, c: (Expand((a, 2, b, 3, c, 2)), [(F32, (a, 2, 1, 1, c, 2))]),
    "expand of bools": lambda a, b, c: (Expand((a, b)), [(BOOL, (b,))]),
    "slice": lambda a, b, c: (Slice((1, 0, 2), (a, b, c), (1, 1, 1)), [(F32, (a + 1, b, c + 3))]),
    "slice from a symbol": lambda a, b, c: (Slice((a, 0), (b, c), (1, 1)), [(F32, (a + b, c))]),
    "every second": lambda a, b, c: (Slice((0, 1), (a, b), (1, 2)), [(F32, (a, 2 * b))]),
    "every second row": lambda a, b, c: (Slice((1, 0), (a, b), (2, 1)), [(F32, (2 * a, b))]),
    "flip": lambda a, b, c: (Slice((a - 1, 0), (a, b), (-1, 1)), [(F32, (a, b))]),
    "slice of six": lambda a, b, c: (Slice((0,) * 5 + (1,), (a, 2, b, 2, c, 1), (1,) * 6), [(F32, (a, 2, b, 2, c, 3))]),
    "concat": lambda a, b, c: (Concat(1), [(F32, (a, b)), (F32, (a, c)), (F32, (a, 1))]),
    "concat of five": lambda a, b, c: (Concat(2), [(F32, (a, 2, b, 2, 3)), (F32, (a, 2, c, 2, 3))]),
    "concat of integers": lambda a, b, c: (Concat(0), [(I64, (a,)), (I64, (b,))]),
    "pad": lambda a, b, c: (Pad((0, 1), (2, 0)), [(F32, (a, b))]),
    "pad by a symbol": lambda a, b, c: (Pad((0, c), (2, 0)), [(F32, (a, b))]),
    "pad or cut by symbols": lambda a, b, c: (Pad((b - c, c - a), (2, a)), [(F32, (c + 1, a))]),
    "reflect": lambda a, b, c: (Pad((0, 1), (2, 0), "reflect"), [(F32, (a + 2, b + 1))]),
    "tile": lambda a, b, c: (Tile((2, 1, 3)), [(F32, (a, b, 2))]),
    "depth to space": lambda a, b, c: (DepthToSpace(2), [(F32, (a, 8, b, c))]),
    "space to depth": lambda a, b, c: (SpaceToDepth(2), [(F32, (1, a, 2 * b, 2 * c))]),
    "gather": lambda a, b, c: (Gather(1), [(F32, (a, 7, b)), (I64, (c, 2))]),
    "gather rows": lambda a, b, c: (Gather(0), [(F32, (7, b)), (I64, (a, c))]),
    "gather elements": lambda a, b, c: (GatherElements(1), [(F32, (a, 7)), (I64, (a, b))]),
    "gather nd": lambda a, b, c: (GatherND(1), [(F32, (a, 7, 7, b)), (I64, (a, c, 2))]),
    "scatter elements": lambda a, b, c: (ScatterElements(0, "add"), [(F32, (7, a)), (I64, (b, a)), (F32, (b, a))]),
    "scatter nd": lambda a, b, c: (ScatterND(), [(F32, (7, a)), (I64, (b, 1)), (F32, (b, a))]),
    "one hot": lambda a, b, c: (OneHot(1, c), [(I64, (a, b)), (F32, (2,))]),
    "range": lambda a, b, c: (Range(a, a + 2 * b, 2, I64), []),
    "range of floats": lambda a, b, c: (Range(0, a, 1, F32), []),
    "eye": lambda a, b, c: (EyeLike(1, F32, (a, b)), []),
    "triangle": lambda a, b, c: (Trilu(True, 1), [(F32, (a, b, c))]),
    "cumulative sum": lambda a, b, c: (CumSum(0, True, False), [(F32, (a, b))]),
    "cumulative product": lambda a, b, c: (CumProd(1, False, True), [(F16, (a, b, c))]),
    "order": lambda a, b, c: (ArgSort(1, b, True), [(F32, (a, b + c))]),
    "order of rows": lambda a, b, c: (ArgSortRows(), [(I64, (a, b * c))]),
    "not zero": lambda a, b, c: (NonZero(a * b * c), [(F32, (a, b, c))]),
    "best boxes": lambda a, b, c: (
        BestBoxes(c), [(F32, (a, 7, 4)), (F32, (a, b, 7)), (I64, (a, b, 7)), (F32, ()), (F32, ())]
    ),
    "argmax": lambda a, b, c: (ArgMax(1), [(F32, (a, b))]),
    "argmin": lambda a, b, c: (ArgMin(0, False, True), [(F32, (a, b))]),
    "top k": lambda a, b, c: (TopK(1, 2), [(F32, (a, b + 1))]),
    "sum": lambda a, b, c: (Reduce("sum", (0, 2), False), [(F32, (a, b, c))]),
    "mean": lambda a, b, c: (Reduce("mean", (2, 3), True), [(F32, (a, 2, b, c))]),
    "mean of six": lambda a, b, c: (Reduce("mean", (1, 3, 5), False), [(F32, (a, 2, b, 2, c, 3))]),
    "largest": lambda a, b, c: (Reduce("max", (1,), True), [(F32, (a, b))]),
}  # fmt: skip
"""Operators and the types of their inputs, for three sizes."""


def array(dtype: np.dtype, shape: Sequence[int], seed: int) -> np.ndarray:
    """Elements that every operator above accepts: integers are indices of axes of size 7."""
    random = np.random.default_rng(seed)
    return random.integers(0, 2 if dtype == BOOL else 7, shape).astype(dtype) + (
        random.random(shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
    )


sizes = st.integers(1, 6)


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=8, deadline=None)
@given(sizes, sizes, sizes)
def test_inferred_types(name: str, a: int, b: int, c: int) -> None:
    binding = {"a": a, "b": b, "c": c}
    op, inputs = SPECS[name](A, B, C)
    symbolic = op.infer(*(TensorType(dtype, shape) for dtype, shape in inputs))
    op, inputs = SPECS[name](a, b, c)
    static = op.infer(*(TensorType(dtype, shape) for dtype, shape in inputs))
    bound = tuple(TensorType(t.dtype, tuple(bind(size, binding) for size in t.shape)) for t in symbolic)
    assert bound == static
    results = op.eval(*(array(dtype, shape, i) for i, (dtype, shape) in enumerate(inputs)))
    assert tuple(TensorType(y.dtype, y.shape) for y in results) == static


@pytest.fixture(scope="module")
def executor() -> Executor:
    """One program with every operator above, its sizes symbols."""
    graph = Graph()
    for name, spec in SPECS.items():
        op, inputs = spec(A, B, C)
        values = [graph.input(f"{name} {i}", TensorType(dtype, shape)) for i, (dtype, shape) in enumerate(inputs)]
        for value in graph.add(op, values).outputs:
            graph.output(value)
    program = lower(graph)
    return Executor(program, [evaluate(weight.value) for weight in program.weights], threads=1)


@pytest.mark.parametrize("binding", [(1, 1, 1), (3, 2, 4), (5, 6, 1), (2, 1, 7)])
def test_one_program_for_all_sizes(executor: Executor, binding: tuple[int, int, int]) -> None:
    arrays: dict[str, np.ndarray] = {}
    expected: list[tuple[str, np.ndarray]] = []
    for name, spec in SPECS.items():
        op, inputs = spec(*binding)
        own = {f"{name} {i}": array(dtype, shape, i) for i, (dtype, shape) in enumerate(inputs)}
        arrays |= own
        expected += [(name, np.asarray(y)) for y in op.eval(*own.values())]
    results = executor.run(arrays, dict(zip("abc", binding, strict=True)))
    for (name, right), result in zip(expected, results, strict=True):
        assert result.shape == right.shape, name
        np.testing.assert_allclose(result, right, rtol=3e-6, atol=1e-6, err_msg=name)


def dims(*values: Dim) -> np.ndarray:
    """An array of sizes."""
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


N = np.array([2, 3])
ARITHMETIC = [
    (Unary("Neg"), [dims(A, 3)], [-A, -3]),
    (Unary("Floor"), [dims(A, 3)], [A, 3]),
    (Binary("Add"), [dims(A, B), N], [A + 2, B + 3]),
    (Binary("Sub"), [N, dims(A, B)], [2 - A, 3 - B]),
    (Binary("Mul"), [dims(A, 5), dims(B, 2)], [A * B, 10]),
    (Binary("Mul"), [dims(A, 5), np.array(2.0, np.float32)], [2 * A, 10]),
    (Binary("Div"), [dims(4 * A, -7), dims(2, 2)], [2 * A, -3]),
    (Binary("Mod"), [dims(4 * A, -7), dims(2, 2)], [0, 1]),
    (Binary("Min"), [dims(A, 2), dims(B, A + 5)], [dim_min(A, B), 2]),
    (Binary("Max"), [dims(A, 0), dims(B, A)], [dim_max(A, B), A]),
    (Binary("Equal"), [dims(A, A), dims(A, 0)], [True, False]),
    (Binary("Less"), [dims(0, A), dims(A, A)], [True, False]),
    (Binary("GreaterOrEqual"), [dims(A, A), dims(1, A + 1)], [True, False]),
    (Where(), [np.array([True, False]), dims(A, B), N], [A, 3]),
    (Clip(0, None), [dims(A, -3)], [A, 0]),
    (Cast(np.dtype(np.float32)), [dims(A, B)], [A, B]),
    (Cast(BOOL), [dims(A, 0)], [True, False]),
    (Reshape((1, 2)), [dims(A, B)], [[A, B]]),
    (Transpose((0,)), [dims(A, B)], [A, B]),
    (Expand((2, 2)), [dims(A, B)], [[A, B], [A, B]]),
    (Slice((1,), (1,), (1,)), [dims(A, B)], [B]),
    (Slice((1,), (2,), (-1,)), [dims(A, B)], [B, A]),
    (Concat(0), [dims(A), N], [A, 2, 3]),
    (Gather(0), [dims(A, B), np.array(-1)], B),
    (Reduce("sum", (0,), False), [dims(A, B, 2)], A + B + 2),
    (Reduce("prod", (0,), True), [dims(A, B, 2)], [2 * A * B]),
    (Reduce("max", (0,), True), [dims(A, 0)], [A]),
    (Range(A, A + 2, 1, I64), [], [A, A + 1]),
]


@pytest.mark.parametrize(("op", "inputs", "expected"), ARITHMETIC, ids=[str(op) for op, _, _ in ARITHMETIC])
def test_shape_arithmetic(op: Op, inputs: list[np.ndarray], expected: object) -> None:
    (result,) = op.eval(*inputs)
    assert result.tolist() == expected


UNDECIDED = [
    (Binary("Equal"), [dims(A), dims(B)]),
    (Binary("Equal"), [dims(A), np.array([3])]),
    (Binary("Less"), [dims(A), dims(B)]),
    (Binary("Mul"), [dims(A), np.array([0.5])]),
    (Cast(BOOL), [dims(A - 1)]),
    (Unary("Sqrt"), [dims(A)]),
    (Reduce("mean", (0,), False), [dims(A, B)]),
    (Reshape((A,)), [np.zeros(3)]),
]


@pytest.mark.parametrize(("op", "inputs"), UNDECIDED, ids=[str(op) for op, _ in UNDECIDED])
def test_what_depends_on_symbols_is_not_guessed(op: Op, inputs: list[np.ndarray]) -> None:
    with pytest.raises(Undecidable):
        op.eval(*inputs)


def f32(*shape: Dim) -> TensorType:
    """A float32 type."""
    return TensorType(F32, shape)


REFUSED = [
    (Binary("Add"), [f32(A), f32(B)], "broadcast"),
    (Binary("Add"), [f32(2), TensorType(I64, (2,))], "one dtype"),
    (Binary("And"), [f32(2), f32(2)], "does not take float32"),
    (Binary("Pow2"), [f32(2), f32(2)], "no function 'Pow2'"),
    (Binary("PRelu"), [f32(2), f32(3, 2)], "slope"),
    (Unary("Exp"), [TensorType(I64, (2,))], "does not take int64"),
    (Unary("Gelu"), [f32(2)], "no function"),
    (Where(), [f32(2), f32(2), f32(2)], "not bool"),
    (Reshape((A, 2)), [f32(A)], "as many elements"),
    (Reshape((A // 2, 2)), [f32(A)], "for every value"),
    (Transpose((0, 0)), [f32(2, 2)], "not an order"),
    (Expand((3,)), [f32(2)], "broadcast"),
    (Slice((0,), (3,), (1,)), [f32(2)], "does not have 3 elements"),
    (Slice((-1,), (1,), (1,)), [f32(2)], "does not have 1 elements"),
    (Slice((0,), (1,), (0,)), [f32(2)], "steps of 0"),
    (Slice((0, 0), (1, 1), (1, 1)), [f32(2)], "rank 1"),
    (Concat(0), [], "nothing"),
    (Concat(1), [f32(2)], "not an axis"),
    (Concat(0), [f32(2, A), f32(2, B)], "cannot be joined"),
    (Pad((1,), (0,), "mirror"), [f32(2)], "no padding mode"),
    (Pad((2,), (0,), "reflect"), [f32(2)], "to reflect"),
    (Pad((-1,), (0,), "edge"), [f32(2)], "negative"),
    (Pad((-2,), (-1,)), [f32(2)], "cuts more"),
    (Tile((1,)), [f32(2, 2)], "rank 2"),
    (DepthToSpace(2), [f32(1, 6, 2, 2)], "blocks"),
    (SpaceToDepth(2), [f32(1, 6, 3, 2)], "blocks"),
    (Gather(2), [f32(2, 2), TensorType(I64, ())], "axis 2"),
    (Gather(0), [f32(2, 2), f32(2)], "not integers"),
    (GatherElements(0), [f32(2, 2), TensorType(I64, (2, 3))], "along axis 1"),
    (GatherND(0), [f32(2, 2), TensorType(I64, (2, 3))], "GatherND"),
    (ScatterElements(0), [f32(2, 2), TensorType(I64, (2, 2)), f32(2, 1)], "updates"),
    (ScatterND("sum"), [f32(2), TensorType(I64, (2, 1)), f32(2)], "no reduction"),
    (OneHot(0, 3), [TensorType(I64, ()), f32(3)], "not two"),
    (Range(0, 1, 0, I64), [], "step is 0"),
    (Range(0.0, float("inf"), 1.0, F32), [], "inf"),
    (Trilu(True), [f32(3)], "no matrix"),
    (CumSum(1), [f32(3)], "axis 1"),
    (ArgMax(0), [f32(0)], "no elements"),
    (TopK(0, 4), [f32(3)], "4 elements"),
    (ArgSort(0, 4), [f32(3)], "4 elements"),
    (ArgSort(1, 1), [f32(3)], "axis 1"),
    (ArgSortRows(), [f32(3)], "no matrix"),
    (NonZero(1), [f32()], "does not take"),
    (NonZero(-1), [f32(3)], "count of -1"),
    (BestBoxes(1), [f32(1, 7, 4), f32(1, 1, 6), TensorType(I64, (1, 1, 6)), f32(), f32()], "boxes"),
    (PairwiseCoupling(3), [f32(2, 4)], "pairs of 3 classes"),
    (PairwiseCoupling(1), [f32(2, 0)], "pairs of 1 classes"),
    (TreeEnsemble(1), [f32(2, 4), f32(3), TensorType(I32, (2, 4)), *[TensorType(I32, (2,))] * 3, f32(2)], "trees of"),
    (
        TreeEnsemble(-1),
        [f32(2, 4), f32(3), TensorType(I32, (3, 4)), *[TensorType(I32, (2,))] * 3, f32(2)],
        "for -1 targets",
    ),
    (BestBoxes(-1), [f32(1, 6, 4), f32(1, 1, 6), TensorType(I64, (1, 1, 6)), f32(), f32()], "at most -1"),
    (CumProd(0), [TensorType(BOOL, (3,))], "does not take"),
    (Reduce("median", (0,), True), [f32(3)], "no reduction"),
    (Reduce("sum", (1,), True), [f32(3)], "not axes"),
]


@pytest.mark.parametrize(("op", "inputs", "reason"), REFUSED, ids=[f"{op} {reason}" for op, _, reason in REFUSED])
def test_refusals(op: Op, inputs: list[TensorType], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        op.infer(*inputs)
