"""Scaled dot-product attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BF16, F16, F32, F64, FLOATS, TensorType
from graphc.ops.base import Emit, Op, broadcast_shapes
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand, Reshape
from graphc.ops.pointwise import Binary, Cast
from graphc.ops.softmax import Softmax
from graphc.shapes import Dim, divisible, is_static

if TYPE_CHECKING:
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class Attention(Op):
    """`softmax(q @ k^T * scale + mask) @ v`, where the mask is the sum of all that there are.

    q is [B, H, M, D], k [B, G, N, D], v [B, G, N, E], where G divides H: a head of k and v serves H / G adjacent heads of
    q. Masks broadcast to [B, H, M, N]. The result is [B, H, M, E].
    """

    scale: float

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See the class."""
        q, k, v = inputs[:3]
        if any(x.rank != 4 or x.dtype != q.dtype for x in (q, k, v)) or q.dtype not in FLOATS:
            raise ShapeError(f"attention takes three tensors of rank 4 of one float type, not {q}, {k}, {v}")
        batch, heads, rows, depth = q.shape
        groups, columns = k.shape[1:3]
        pairs = [
            (batch, k.shape[0]),
            (batch, v.shape[0]),
            (groups, v.shape[1]),
            (columns, v.shape[2]),
            (depth, k.shape[3]),
        ]
        if differ := [(a, b) for a, b in pairs if a != b]:
            raise ShapeError(f"q {q}, k {k} and v {v} do not fit each other", differ)
        if isinstance(groups, int) and not divisible(heads, groups):
            raise ShapeError(f"{groups} heads of k and v do not serve {heads} heads of q")
        scores = (batch, heads, rows, columns)
        for mask in inputs[3:]:
            if mask.dtype != q.dtype or broadcast_shapes(mask.shape, scores) != scores:
                raise ShapeError(f"the mask {mask} does not broadcast to {list(scores)}")
        return (TensorType(q.dtype, (batch, heads, rows, v.shape[3])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float64, rounded once."""
        q, k, v, *masks = (x.astype(F64) for x in inputs)
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
        scores = q @ k.swapaxes(-1, -2) * self.scale
        for mask in masks:
            scores = scores + mask
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return ((weights / weights.sum(axis=-1, keepdims=True) @ v).astype(inputs[0].dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """By two matrix products and a softmax; halves in float32, so that they are rounded once."""
        if inputs[0].dtype in (F16, BF16):
            wide = emit(self, *(emit(Cast(F32), x) for x in inputs))
            return (emit(Cast(inputs[0].dtype), wide),)
        q, k, v, *masks = inputs
        k, v = (repeat_heads(emit, x, q.shape[1]) for x in (k, v))
        scores = emit(MatMul(transpose_b=True), q, k)
        scores = emit(Binary("Mul"), scores, emit.constant(self.scale, like=q))
        for mask in masks:
            scores = emit(Binary("Add"), scores, mask)
        return (emit(MatMul(), emit(Softmax(3), scores), v),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """The composite, whose heads of k and v may each serve several of q; float32."""
        q, k, v = inputs[:3]
        masks = [b.cont(each) for each in inputs[3:]]
        if any(x.dtype != F32 for x in b.types) or not is_static(q.shape[1], k.shape[1]):
            return None
        if any(each.rank < 2 or each.ne[:2] != (k.ne[1], q.ne[1]) for each in masks):
            return None
        mask, others = masks[0] if masks else None, masks[1:]
        found = b.call("graphc_attention", b.rows(q), b.rows(k), v, mask, b.single(self.scale), *others, rank=4)
        return b.transpose(found, (0, 2, 1, 3))


def repeat_heads(emit: Emit, x: Value, heads: Dim) -> Value:
    """Each head of [B, G, N, D] as often as makes `heads` heads."""
    batch, groups, rows, depth = x.shape
    if groups == heads:
        return x
    apart = emit(Reshape((batch, groups, 1, rows, depth)), x)
    wide = emit(Expand((batch, groups, heads // groups, rows, depth)), apart)
    return emit(Reshape((batch, heads, rows, depth)), wide)
