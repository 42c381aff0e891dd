"""Kernels that differ in numbers alone: they are one, and give the bits of each by itself."""

import numpy as np
import pytest
from loops import run

from graphc.ir import TensorType
from graphc.ir.types import F32, F64, I64
from graphc.kernels.c.render import render
from graphc.kernels.use import KernelUse
from graphc.ops.activations import LeakyRelu
from graphc.ops.indexing import Gather
from graphc.ops.movement import Expand, Slice
from graphc.ops.pointwise import Binary, Cast, Where
from graphc.ops.pool import MaxPool
from graphc.ops.reduce import Reduce
from graphc.ops.sequences import Range
from graphc.shapes import symbol
from graphc.targets.ggml.run.kernels import load_kernels

N = symbol("n", 1)


def use(op, *types) -> KernelUse:
    """What an operator is applied to: pairs of a type and a shape, or shapes of float32."""
    given = [TensorType(*(each if isinstance(each[0], np.dtype) else (F32, each))) for each in types]
    (result,) = op.infer(*given)
    return KernelUse(op, tuple((each.dtype, each.shape) for each in given), result.dtype, result.shape)


def pool(size):
    return use(MaxPool((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), False), (N, size, 4 * size, 2 * size))


SHARED = {
    "a constant and sizes": [use(LeakyRelu(slope), (N, 3, size)) for slope, size in ((0.1, 5), (0.25, 7), (0.5, 8))],
    "sizes of images": [pool(size) for size in (2, 3, 5)],
    "rows": [use(Binary("Add"), (N, 3, size), (size,)) for size in (4, 9)],
    "columns": [use(Binary("Sub"), (I64, (size, 1)), (I64, (1, 4))) for size in (4, 9)],
    "both": [use(Expand((size, other)), (size, 1)) for size, other in ((3, 5), (4, 2))],
    "a symbol": [use(Range(0, size, 1, I64)) for size in (N, 3 * N, 7)],
    "double precision": [use(LeakyRelu(slope), (F64, (6,))) for slope in (0.1, 0.7)],
    "an index": [use(Gather(0), (rows, 4), (I64, (size,))) for rows, size in ((8, 3), (9, 5))],
    "a start": [use(Slice((start,), (4,), (1,)), (12,)) for start in (1, 5)],
}
"""Uses that are one kernel."""

APART = {
    "how often a reduction runs": [use(Reduce("max", (1,), True), (6, size)) for size in (3, 5)],
    "another order": [use(Binary("Add"), (4, 3), (3,)), use(Binary("Add"), (4, 3), (4, 1))],
    "another type": [use(Cast(F32), (I64, (3,))), use(Cast(F32), (F64, (3,)))],
    "an innermost stride": [use(Slice((0,), (4,), (step,)), (12,)) for step in (2, 3)],
    "no elements": [use(LeakyRelu(0.1), (0,)), use(LeakyRelu(0.1), (3,))],
    "an infinity": [use(LeakyRelu(slope), (3,)) for slope in (0.1, float("inf"))],
    "another operator": [use(Binary("Add"), (3,), (3,)), use(Where(), (np.dtype(bool), (3,)), (3,), (3,))],
}
"""Uses that are two."""


@pytest.mark.parametrize("name", SHARED)
def test_uses_that_differ_in_numbers_are_one_kernel(name):
    uses = SHARED[name]
    rendered = render(uses, ["n"])
    assert len(set(rendered.functions)) == 1
    rng = np.random.default_rng(5)
    for n in (1, 4):
        for each, together in zip(uses, load_kernels(uses, ["n"]), strict=True):
            arrays = [
                rng.integers(0, 3, shape) if dtype == I64 else rng.standard_normal(shape).astype(dtype)
                for dtype, given in each.inputs
                for shape in [tuple(n if size is N else size for size in given)]
            ]
            (alone,) = load_kernels([each], ["n"])
            found = run(together, each, arrays, {"n": n}, threads=3)
            np.testing.assert_array_equal(found, run(alone, each, arrays, {"n": n}, threads=1))


@pytest.mark.parametrize("name", APART)
def test_uses_that_are_compiled_better_apart(name):
    assert len(set(render(APART[name]).functions)) == 2


def test_a_use_by_itself_knows_its_numbers():
    rendered = render([SHARED["a constant and sizes"][0]])
    assert rendered.arguments == ((),)
    assert "0.1f" in rendered.text
