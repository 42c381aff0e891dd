"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BOOL, F32, STRING, TensorType
from graphc.ops.base import Emit, Op, broadcast_shapes
from graphc.ops.movement import Expand, Reshape, Transpose
from graphc.ops.precision import NARROW, in_float32
from graphc.records import dataclass
from graphc.shapes import Dim

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class MatMul(Op):
    """`a @ b` of one numeric type, with NumPy's broadcasting of the leading axes and its rules for vectors.

    A flag swaps the last two axes of its operand first; that operand has at least two.
    """

    transpose_a: bool = False
    transpose_b: bool = False

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """[..., M, K] @ [..., K, N] -> [..., M, N]; a vector's missing axis is missing in the result."""
        a, b = inputs
        if a.dtype != b.dtype or a.dtype in (BOOL, STRING):
            raise ShapeError(f"a matrix product takes two numeric tensors of one type, not {a.dtype} and {b.dtype}")
        left, right = matrix(a, self.transpose_a, (1, 0)), matrix(b, self.transpose_b, (0, 1))
        if left[-1] != right[-2]:
            message = f"inner sizes {left[-1]} and {right[-2]} of {a} @ {b} differ"
            raise ShapeError(message, [(left[-1], right[-2])])
        rows = left[-2:-1] if a.rank > 1 else ()
        columns = right[-1:] if b.rank > 1 else ()
        return (TensorType(a.dtype, (*broadcast_shapes(left[:-2], right[:-2]), *rows, *columns)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """NumPy's product; half-precision types are summed in float32."""
        dtype = inputs[0].dtype
        a, b = (x.astype(F32) if dtype in NARROW else x for x in inputs)
        a = a.swapaxes(-1, -2) if self.transpose_a else a
        b = b.swapaxes(-1, -2) if self.transpose_b else b
        return (np.matmul(a, b).astype(dtype, copy=False),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """The same product in the form that ggml has (at least two axes each, only `b` transposed); None if it is in it."""
        a, b = inputs
        if a.dtype in NARROW:
            return in_float32(emit, self, a, b)
        (result,) = self.infer(a.type, b.type)
        if a.dtype != F32 or self.is_plain(a.type, b.type):
            return None
        if len(a.shape) == 1:
            a = emit(Reshape((1, *a.shape)), a)
        if len(b.shape) == 1:
            b = emit(Reshape((1, *b.shape)), b)
        elif not self.transpose_b:
            b = emit(swap(len(b.shape)), b)
        if self.transpose_a:
            a = emit(swap(len(a.shape)), a)
        if max(len(a.shape), len(b.shape)) > 4:
            a, b = merge_batches(emit, a, b)
        return (emit(Reshape(result.shape), emit(MatMul(transpose_b=True), a, b)),)

    def is_plain(self, a: TensorType, b: TensorType) -> bool:
        """True for the one form that ggml has."""
        return self.transpose_b and not self.transpose_a and 2 <= a.rank <= 4 and 2 <= b.rank <= 4

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_mul_mat`, for float32. A single matrix is multiplied with many from the other side: only the second
        operand of a product is broadcast without a copy."""
        if not self.is_plain(*b.types) or not b.floats(*inputs):
            return None
        left, right = inputs
        if any(size != 1 for size in left.shape[:-2]) or all(size == 1 for size in right.shape[:-2]):
            return b.matmul(left, right)
        transposed = b.matmul(right, left)
        return None if transposed is None else b.transpose(transposed, swap(len(b.result.shape)).perm)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar:
        """The sum over the inner axis."""
        a, b = inputs
        places = list(index)
        column = places.pop() if b.rank > 1 else None
        row = places.pop() if a.rank > 1 else None
        inner = matrix(a, self.transpose_a, (1, 0))[-1]

        def term(at: Sequence[Scalar]) -> Scalar:
            left = operand_index(places, row, at[0], a, self.transpose_a)
            right = operand_index(places, column, at[0], b, not self.transpose_b)
            return k.load(0, left) * k.load(1, right)

        return k.reduce("sum", (inner,), term)


def matrix(x: TensorType, transposed: bool, missing: tuple[int, int]) -> tuple[Dim, ...]:
    """An operand's shape with at least two axes; a vector becomes a row or a column: `missing` says which axis is added
    (0 for the one before, 1 for the one after, as a pair of counts). Raises ShapeError."""
    if x.rank == 0 or (transposed and x.rank == 1):
        raise ShapeError(f"{x} is not an operand of a matrix product" + (" that swaps its axes" if transposed else ""))
    if x.rank == 1:
        return (*[1] * missing[0], *x.shape, *[1] * missing[1])
    return (*x.shape[:-2], x.shape[-1], x.shape[-2]) if transposed else x.shape


def operand_index(
    batch: Sequence[Scalar], outer: Scalar | None, inner: Scalar, x: TensorType, inner_first: bool
) -> list[Scalar]:
    """Where an operand's element lies."""
    if outer is None:
        return [inner]
    lead = batch[len(batch) - (x.rank - 2) :]
    return [*lead, inner, outer] if inner_first else [*lead, outer, inner]


def swap(rank: int) -> Transpose:
    """The operator that swaps the last two axes."""
    return Transpose((*range(rank - 2), rank - 1, rank - 2))


def merge_batches(emit: Emit, a: Value, b: Value) -> tuple[Value, Value]:
    """Operands with all leading axes merged into one, broadcast unless one operand is a single matrix."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    merged: list[Value] = []
    for x in (a, b):
        lead = x.shape[:-2]
        if any(size != 1 for size in lead) and (*[1] * (len(batch) - len(lead)), *lead) != batch:
            x = emit(Expand((*batch, *x.shape[-2:])), x)
        count: Dim = 1
        for size in x.shape[:-2]:
            count = count * size
        merged.append(emit(Reshape((count, *x.shape[-2:])), x))
    return merged[0], merged[1]
