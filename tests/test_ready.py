"""Routines that are there compiled for all types are those that are compiled for a model, bit by bit."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from draws import DRAWS
from loops import Fault, run, use_of
from test_elements import drawn
from test_routines import ALL, NUMBERS, RANDOM, array, scattered
from test_vectors import canonical

from graphc.ir.types import F32, I64, NARROW
from graphc.kernels.c.routine import routine_of
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op, operators
from graphc.ops.pool import MaxPool
from graphc.ops.scatter import REDUCTIONS, ScatterElements, ScatterND
from graphc.ops.selection import NonZero
from graphc.ops.sequences import CumProd, CumSum
from graphc.ops.sorting import ArgSort, ArgSortRows
from graphc.shapes import symbol
from graphc.targets.ggml.run.interpreted import ReadyKernel
from graphc.targets.ggml.run.kernels import kernels_by

ROUTINES = ("MaxPool", "Pad", "CumSum", "CumProd", "ArgSort", "ArgSortRows", "NonZero", "BestBoxes", "Recurrent", "TreeEnsemble",
            "PairwiseCoupling",
            "ScatterElements", "ScatterND", "IntegerMatMul", "IntegerConv", "PackedConv", "DepthwiseConv", "ByteTable",
            "Quantize", "QuantizedBinary", "Extremes", "ByteScale", "ByteZero", "ChannelsLast", "ChannelsFirst")  # fmt: skip


def same(samples: list[tuple[KernelUse, list[np.ndarray], dict[str, int]]]) -> None:
    """Both ways give the same bits, or the same fault."""
    uses = [use for use, _, _ in samples]
    symbols = {name for _, _, binding in samples for name in binding}
    ready, native = kernels_by("interpreted", uses), kernels_by("compiled", uses)
    for number, (use, arrays, known) in enumerate(samples):
        assert isinstance(ready[number], ReadyKernel), use
        binding = dict.fromkeys(symbols, 1) | known
        results = []
        for kernel, threads in ((native[number], 1), (ready[number], 1), (ready[number], 3)):
            try:
                results.append(canonical(run(kernel, use, arrays, binding, threads)))
            except Fault as fault:
                results.append(str(fault).encode())
        assert results[0] == results[1] == results[2], use


def test_no_operator_with_a_routine_is_forgotten() -> None:
    ops = operators()
    assert {name for name, each in ops.items() if each.routine is not Op.routine} == set(ROUTINES)


@pytest.mark.parametrize("name", ROUTINES)
def test_drawn_uses(name: str) -> None:
    assert name in DRAWS
    samples = [drawn(name, zlib.crc32(name.encode()) % 100 + sample, sample % 2 == 1) for sample in range(12)]
    found = [(use, list(arrays), dict(d.binding)) for d, use, arrays in samples if routine_of(use) is not None]
    assert found
    same(found)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_type(dtype: np.dtype) -> None:
    shapes = ((0,), (1,), (13,), (3, 65), (0, 3))
    pairs = [(NonZero(int(np.count_nonzero(x))), [x]) for x in (array(dtype, *shape) for shape in shapes)]
    for shape in shapes:
        axis = len(shape) - 1
        pairs.append((ArgSort(axis, shape[axis], True), [array(dtype, *shape)]))
        if dtype in NUMBERS:
            pairs += [(op(axis, True, False), [array(dtype, *shape)]) for op in (CumSum, CumProd)]
    pairs.append((ArgSortRows(), [array(dtype, 41, 3)]))
    if dtype in NUMBERS:
        pool = MaxPool(
            kernel=(3, 2), strides=(2, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(1, 1), ceil_mode=False
        )
        pairs.append((pool, [array(dtype, 1, 2, 7, 9)]))
    for index in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        for reduction in REDUCTIONS:
            places = RANDOM.integers(0, 7, (4, 5)).astype(index)
            pairs.append((ScatterElements(1, reduction), [array(dtype, 4, 7), places, array(dtype, 4, 5)]))
            pairs.append((ScatterND(reduction), [array(dtype, 7, 3), places[:, :1], array(dtype, 4, 3)]))
    for reduction in REDUCTIONS:
        pairs += scattered(dtype, reduction)
    with np.errstate(all="ignore"):
        same([(use_of(op, arrays), list(arrays), {}) for op, arrays in pairs])


@pytest.mark.parametrize("dtype", sorted(NARROW, key=str), ids=str)
def test_narrow_types(dtype: np.dtype) -> None:
    x, updates = (np.ones(count).astype(dtype) for count in (5, 3))
    arrays = [x, np.array([4, 4, -5]), updates]
    same([(use_of(ScatterElements(0), arrays), arrays, {})])


def test_faults_are_those_of_compiled_kernels() -> None:
    n = symbol("n", low=0)
    use, x = KernelUse(NonZero(n), ((F32, (3, 4)),), I64, (2, n)), np.eye(3, 4, dtype=F32)
    (kernel,) = kernels_by("interpreted", [use])
    with pytest.raises(Fault, match="more or fewer"):
        run(kernel, use, [x], {"n": 2}, 3)
    assert run(kernel, use, [x], {"n": 3}, 3).tolist() == [[0, 1, 2]] * 2
    arrays = [x, np.full((3, 4), 9), x]
    same([(use, [x], {"n": 2}), (use_of(ScatterElements(1), arrays), arrays, {})])
