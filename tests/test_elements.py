"""`element` or `routine` ≡ `eval` for every operator that has one of them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from draws import DRAWS, Draw
from loops import run

from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ir.interp import bound
from graphc.ir.types import BF16, F16, F32, F64, FLOATS, NARROW
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op, operators
from graphc.shapes import Undecidable
from graphc.targets.ggml.run.kernels import load_kernels

SAMPLES = 6
TOLERANCE = {F16: 2e-3, BF16: 1.6e-2, F32: 4e-6, F64: 1e-13}


def test_every_operator_with_a_kernel_is_drawn() -> None:
    kernels = {
        name
        for name, op in operators().items()
        if op.__module__.startswith("graphc.") and (op.element is not Op.element or op.routine is not Op.routine)
    }
    assert kernels - {name.split("-")[0] for name in DRAWS} == set()


def agree(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.dtype in NARROW:
        actual, expected = actual.astype(F32), expected.astype(F32)
    if actual.dtype not in FLOATS:
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = TOLERANCE[actual.dtype]
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))  # sums of numbers of both signs cancel
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * min(max(scale, 1e-3), 100.0))


def drawn(name: str, sample: int, symbolic: bool) -> tuple[Draw, KernelUse, list[np.ndarray]]:
    """A sample; without symbols if the operator cannot be applied to these."""
    d = Draw(np.random.default_rng([zlib.crc32(name.encode()), sample]), symbolic)
    op, inputs = DRAWS[name](d)
    types = [TensorType(array.dtype, shape) for array, shape in inputs]
    try:
        (result,) = op.infer(*types)
    except (ShapeError, Undecidable):
        if not symbolic:
            raise
        return drawn(name, sample, False)
    use = KernelUse(op, tuple((type.dtype, type.shape) for type in types), result.dtype, result.shape)
    return d, use, [array for array, _ in inputs]


@pytest.mark.parametrize("name", DRAWS)
def test_kernel_is_eval(name: str) -> None:
    samples = [drawn(name, sample, symbolic=sample % 2 == 1) for sample in range(SAMPLES)]
    kernels = load_kernels([use for _, use, _ in samples])
    symbols = {symbol for d, _, _ in samples for symbol in d.binding}
    for number, ((d, use, arrays), kernel) in enumerate(zip(samples, kernels, strict=True)):
        binding = dict.fromkeys(symbols, 1) | d.binding
        with np.errstate(all="ignore"):
            (expected,) = bound(use.op, d.binding).eval(*arrays)
        actual = run(kernel, use, arrays, binding, threads=1 + number % 3)
        agree(actual, np.asarray(expected))
