"""Raising attention, in the spellings of the exporters."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ops.attention import Attention
from graphc.ops.base import Emit
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Reshape, Transpose
from graphc.ops.norm import Softmax
from graphc.rewrite.engine import Refusal, rule


@rule("product := MatMul(s := Softmax(scores), v)")
def attention(emit: Emit, scores: Value, v: Value, s: Node, product: Node) -> Value | Refusal:
    """softmax(q @ k^T * scale + mask) @ v, whether the scale is on the scores, on q, on k, or split among them."""
    assert isinstance(s.op, Softmax)
    assert isinstance(product.op, MatMul)
    rank = len(scores.shape)
    if rank not in (3, 4) or s.op.axis != rank - 1 or product.op.transpose_a or product.op.transpose_b:
        return Refusal("it is no softmax along the rows of a product of matrices")
    scores, mask = _masked(scores)
    scores, scale = _scaled(scores)
    inner = scores.producer
    if inner is None or not isinstance(inner.op, MatMul) or inner.op.transpose_a:
        return Refusal("the scores are no matrix product")
    (q, q_scale), (k, k_scale) = (_scaled(value) for value in inner.inputs)
    if not inner.op.transpose_b:
        k = emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), k)
    if not len(q.shape) == len(k.shape) == len(v.shape) == rank or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return Refusal("the batch or the heads of q, k and v differ")
    if mask is not None and (len(mask.shape) < 2 or mask.shape[-2:] != scores.shape[-2:]):
        return Refusal("the mask is not one number a score")
    parts = [q, k, v] if mask is None else [q, k, v, mask]
    parts = [value if len(value.shape) == 4 else _as_four(emit, value) for value in parts]
    return emit(Reshape(product.output.shape), emit(Attention(scale * q_scale * k_scale), *parts))


def _masked(scores: Value) -> tuple[Value, Value | None]:
    """The scores without the mask that is added to them, and the mask: the summand that is no product."""
    node = scores.producer
    if node is None or node.op.name != "Add":
        return scores, None
    for value, mask in (node.inputs, node.inputs[::-1]):
        inner, _ = _scaled(value)
        if inner.producer is not None and isinstance(inner.producer.op, MatMul) and value.shape == scores.shape:
            return value, mask
    return scores, None


def _scaled(value: Value) -> tuple[Value, float]:
    """The value without the scalar factors that it is multiplied with or divided by, and their product."""
    scale = 1.0
    while value.producer is not None and value.producer.op.name in ("Mul", "Div"):
        left, right = value.producer.inputs
        if value.producer.op.name == "Mul" and _number(left) is not None:
            left, right = right, left
        number = _number(right)
        if not number or left.shape != value.shape:
            break
        scale = scale * number if value.producer.op.name == "Mul" else scale / number
        value = left
    return value, scale


def _number(value: Value) -> float | None:
    if value.data is None or value.data.size != 1:
        return None
    return float(np.asarray(value.data).reshape(-1)[0])


def _as_four(emit: Emit, value: Value) -> Value:
    """[..., M, N] with leading axes of size 1 up to rank 4; of three axes the first is the heads."""
    return emit(Reshape((*[1] * (4 - len(value.shape)), *value.shape)), value)


RULES = [attention]
