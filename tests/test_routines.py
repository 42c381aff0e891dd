"""Kernels that are hand-written C: exactly what `eval` gives, for every type, at sizes where a quadratic one would not end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from loops import Fault, compute, run, use_of

from graphc.errors import InputError, ShapeError
from graphc.ir import TensorType
from graphc.ir.types import BOOL, F16, F32, FLOATS, I8, I64, INTEGERS, NARROW, U8
from graphc.kernels.c.routine import FOLDER
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op
from graphc.ops.scatter import REDUCTIONS, ScatterElements, ScatterND
from graphc.ops.selection import BestBoxes, NonZero
from graphc.ops.sequences import CumProd, CumSum
from graphc.ops.sorting import ArgSort, ArgSortRows
from graphc.shapes import symbol
from graphc.targets.ggml.run import kernels
from graphc.targets.ggml.run.kernels import load_kernels

NUMBERS = sorted(FLOATS | INTEGERS, key=str)
ALL = [*NUMBERS, BOOL]
RANDOM = np.random.default_rng(0)


def array(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Elements with duplicates, the ends of the type, and of floats the special ones."""
    if dtype == BOOL:
        return RANDOM.random(shape) < 0.5
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        ends = np.array([limits.min, limits.max, 0, 1], dtype)
        small = RANDOM.integers(max(limits.min, -50), 50, shape).astype(dtype)
        return np.where(RANDOM.random(shape) < 0.1, RANDOM.choice(ends, shape), small)
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan])
    usual = np.round(RANDOM.standard_normal(shape) * 9, 1)
    return np.where(RANDOM.random(shape) < 0.1, RANDOM.choice(special, shape), usual).astype(dtype)


def finite(dtype: np.dtype, *shape: int) -> np.ndarray:
    return np.nan_to_num(array(dtype, *shape), nan=2, posinf=3, neginf=-3)


def agree(op: Op, *arrays: np.ndarray, threads: int = 2) -> None:
    """The kernel gives what `eval` gives, bit by bit but for the kind of NaN."""
    with np.errstate(all="ignore"):
        (expected,) = op.eval(*arrays)
    (type,) = op.infer(*(TensorType(array.dtype, array.shape) for array in arrays))
    assert TensorType(expected.dtype, expected.shape) == type
    actual = compute(op, *arrays, threads=threads)
    assert actual.dtype == expected.dtype
    wide = np.float64 if expected.dtype in FLOATS else expected.dtype
    np.testing.assert_array_equal(actual.astype(wide), expected.astype(wide), err_msg=str(op))


@pytest.mark.parametrize("file", sorted(each.name for each in FOLDER.iterdir()))
def test_each_file_is_c(file: str) -> None:
    strict = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only"]
    command = ["cc", "-std=c11", *strict, f"-I{FOLDER}", "-x", "c", "-"]
    subprocess.run(command, input=f'#include "{file}"\n', text=True, check=True)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_running_totals(dtype: np.dtype) -> None:
    for op in (CumSum, CumProd):
        agree(op(0), array(dtype, 300), threads=3)
        agree(op(1, True, False), array(dtype, 3, 5, 130), threads=2)
        agree(op(1, False, True), finite(dtype, 2, 7, 1), threads=3)
        agree(op(2, True, True), finite(dtype, 2, 3, 40), threads=1)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("largest", [False, True])
def test_order(dtype: np.dtype, largest: bool) -> None:
    agree(ArgSort(0, 500, largest), array(dtype, 500))
    agree(ArgSort(1, 6, largest), array(dtype, 4, 50, 3), threads=3)
    agree(ArgSort(1, 30, largest), array(dtype, 9, 30), threads=3)
    if not largest:
        agree(ArgSortRows(), array(dtype, 300, 3))
        agree(ArgSortRows(), np.concatenate([array(dtype, 20, 2)] * 3))


def scattered(dtype: np.dtype, reduction: str) -> Iterator[tuple[Op, list[np.ndarray]]]:
    for index, unsigned in ((np.int32, False), (np.int64, False), (np.uint8, True)):
        low = 0 if unsigned else -7
        places = RANDOM.integers(low, 7, (4, 90, 3)).astype(index)
        yield ScatterElements(1, reduction), [array(dtype, 5, 7, 3), places, array(dtype, 4, 90, 3)]
        places = RANDOM.integers(low, 7, (2, 90)).astype(index)
        yield ScatterElements(1, reduction), [array(dtype, 3, 7), places, array(dtype, 2, 90)]
        tuples = RANDOM.integers(low // 2, 4, (6, 20, 2)).astype(index)
        yield ScatterND(reduction), [array(dtype, 4, 5, 3), tuples, array(dtype, 6, 20, 3)]
        yield ScatterND(reduction), [array(dtype, 4, 5), tuples, array(dtype, 6, 20)]
    yield ScatterND(reduction), [array(dtype, 4, 2), np.zeros((3, 0), I64), array(dtype, 3, 4, 2)]


def combinations() -> Iterator[Any]:
    """Each type by one reduction in turn, and each reduction by float32; all others on request."""
    for number, dtype in enumerate(ALL):
        for which, reduction in enumerate(REDUCTIONS):
            always = dtype == F32 or which == number % len(REDUCTIONS)
            yield pytest.param(dtype, reduction, marks=[] if always else [pytest.mark.thorough])


@pytest.mark.parametrize(("dtype", "reduction"), combinations(), ids=str)
def test_scattered_updates(dtype: np.dtype, reduction: str) -> None:
    for number, (op, arrays) in enumerate(scattered(dtype, reduction)):
        agree(op, *arrays, threads=1 + number % 3)


def test_narrow_types_are_only_moved() -> None:
    for dtype in NARROW:
        x, updates = (np.ones(count).astype(dtype) for count in (5, 3))
        agree(ScatterElements(0), x, np.array([4, 4, -5]), updates)
        with pytest.raises(ShapeError, match="is not supported"):
            use_of(ScatterElements(0, "add"), [x, np.array([4, 4, -5]), updates])


def test_a_maximum_with_nan_is_nan() -> None:
    for reduction in ("max", "min"):
        x, places = np.array([1, np.nan, 3], F32), np.array([0, 1, 2])
        result = compute(ScatterElements(0, reduction), x, places, np.array([np.nan, 1, 3], F32))
        np.testing.assert_array_equal(result, np.array([np.nan, np.nan, 3], F32))


def test_float16_updates_are_rounded_one_by_one() -> None:
    updates = np.array([1, 1, 1, 1], F16)
    x = np.array([2048], F16)
    assert compute(ScatterElements(0, "add"), x, np.zeros(4, I64), updates).tolist() == [2048]


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (0, 3), (1, 1)], ids=str)
def test_nothing_and_one(shape: tuple[int, ...]) -> None:
    x, axis = array(F32, *shape), len(shape) - 1
    for op in (CumSum(axis, True), CumProd(axis), ArgSort(axis, shape[axis])):
        agree(op, x)
    agree(ArgSortRows(), x.reshape(-1, shape[0]) if shape[0] else x.reshape(0, 2))
    agree(ArgSortRows(), np.zeros((3, 0), F32))
    agree(ScatterElements(axis, "add"), x, np.zeros((*shape[:-1], 0), I64), x[..., :0])


@pytest.mark.parametrize("threads", [1, 3])
def test_an_index_out_of_range_is_a_fault(threads: int) -> None:
    x = array(I8, 4, 6)
    for wrong in (6, -7, 10**15, -(10**18)):
        places = np.zeros((4, 3), I64)
        places[2, 1] = wrong
        for op, indices in ((ScatterElements(1), places), (ScatterND("max"), places.reshape(3, 2, 2))):
            updates = x[:, :3] if op.name == "ScatterElements" else x.reshape(-1)[:6].reshape(3, 2)
            with pytest.raises(Fault, match="an index is out of range"):
                compute(op, x, indices, updates, threads=threads)
            with pytest.raises(InputError, match="index"):
                op.eval(x, indices, updates)


def test_more_than_there_are_cannot_be_sorted() -> None:
    n, k = symbol("n"), symbol("k", low=0)
    one = KernelUse(ArgSort(0, k), ((F32, (n,)),), I64, (k,))
    (kernel,) = load_kernels([one])
    x = array(F32, 9)
    assert run(kernel, one, [x], {"n": 9, "k": 4}).tolist() == np.argsort(x, kind="stable")[:4].tolist()
    with pytest.raises(Fault, match="fewer elements"):
        run(kernel, one, [x], {"n": 9, "k": 10})
    with pytest.raises(InputError, match="fewer elements"):
        ArgSort(0, 10).eval(x)
    with pytest.raises(ShapeError, match="10 elements of axis 0"):
        ArgSort(0, 10).infer(TensorType(F32, (9,)))


def test_numpy_serves_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "c_tools", lambda: None)
    monkeypatch.setattr(kernels, "load_own", lambda: None)
    n = symbol("n", low=0)
    use = KernelUse(NonZero(n), ((F32, (3, 4)),), I64, (2, n))
    (kernel,) = load_kernels([use])
    x = np.eye(3, 4, dtype=F32)
    assert run(kernel, use, [x], {"n": 3}, 2).tolist() == [[0, 1, 2]] * 2
    with pytest.raises(Fault, match="more or fewer"):
        run(kernel, use, [x], {"n": 2}, 2)


@pytest.mark.parametrize("dtype", [F32, U8], ids=str)
def test_a_million_elements(dtype: np.dtype) -> None:
    count = 1_000_000
    x, places = array(dtype, count), RANDOM.integers(-count, count, count)
    for op, arrays in (
        (CumSum(0, False, True), [finite(dtype, count)]),
        (ArgSort(0, 1000, True), [x]),
        (ScatterElements(0, "add"), [x, places, x]),
        (ScatterND("max"), [x, places[:, None], x]),
        (NonZero(int(np.count_nonzero(x))), [x]),
    ):
        agree(op, *arrays)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_places_of_what_is_not_zero(dtype: np.dtype) -> None:
    for shape in ((90,), (4, 5, 6), (3, 0), (1,)):
        x = np.where(RANDOM.random(shape) < 0.4, array(dtype, *shape), 0).astype(dtype)
        agree(NonZero(int(np.count_nonzero(x))), x, threads=3)
    agree(NonZero(0), np.zeros((2, 3), dtype))


def test_a_wrong_count_is_a_fault_that_writes_nothing_else() -> None:
    n = symbol("n", low=0)
    use = KernelUse(NonZero(n), ((F32, (3, 4)),), I64, (2, n))
    (kernel,) = load_kernels([use])
    x = np.eye(3, 4, dtype=F32)
    assert run(kernel, use, [x], {"n": 3}, 2).tolist() == [[0, 1, 2]] * 2
    for count in (1, 2, 4, 50):
        with pytest.raises(Fault, match="more or fewer"):
            run(kernel, use, [x], {"n": count}, 2)
        with pytest.raises(InputError, match="more or fewer"):
            NonZero(count).eval(x)


def test_best_boxes() -> None:
    low = RANDOM.random((2, 200, 2)).astype(F32)
    boxes = np.concatenate([low, low + RANDOM.random((2, 200, 2)).astype(F32) / 4], 2)
    scores = np.round(RANDOM.random((2, 3, 200)), 2).astype(F32)
    scores[0, 0, 5] = np.nan
    order = np.argsort(-scores, kind="stable")
    for most, overlap, least in ((20, 0.1, 0.5), (300, 0.3, -np.inf), (1, 0, 2), (0, 0, 0)):
        agree(BestBoxes(most), boxes, scores, order, np.array(overlap, F32), np.array(least, F32), threads=3)
    for wrong in (-1, 200):
        order[1, 2, 0] = wrong
        arrays = [boxes, scores, order, np.array(0.1, F32), np.array(0, F32)]
        with pytest.raises(Fault, match="is not there"):
            compute(BestBoxes(3), *arrays)
        with pytest.raises(InputError, match="is not there"):
            BestBoxes(3).eval(*arrays)
