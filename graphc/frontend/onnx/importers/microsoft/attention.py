"""Attention with what onnxruntime's optimizer put into one node: projections, masks that are numbers or lengths, caches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import sqrt

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.attention import apart
from graphc.frontend.onnx.importers.microsoft.activations import biased
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.attention import Attention, repeat_heads
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.sequences import Range
from graphc.ops.softmax import Softmax
from graphc.shapes import Dim

NOT_MASKED, MASKED = 0.0, -10000.0
"""What onnxruntime adds to scores, unless `mask_filter_value` says otherwise."""


@dataclass(frozen=True)
class Scores:
    """What becomes of the products of queries and keys before they weigh the values."""

    scale: float
    softcap: float = 0.0
    masks: tuple[Value, ...] = ()
    """What is added; each broadcasts to [B, H, S, T]."""

    sink: Value | None = None
    """[H]: the score of a key whose value is zero."""


@onnx_op("Attention", domain=MICROSOFT)
def attention(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value | None]:
    """Of one tensor to itself, by one product with the weights of queries, keys and values."""
    projected = biased(emit, emit(MatMul(), node.input(0), node.input(1)), node.optional(2))
    refuse_unless(not node.int("do_rotary", 0), "rotary embeddings inside are not supported")
    refuse_unless(not node.int("past_present_share_buffer", 0), "a cache that is written in place is not supported")
    return self_attention(node, emit, projected, node.optional(3), node.optional(4), node.optional(5))


def self_attention(
    node: OnnxNode, emit: SizeEmit, projected: Value, mask: Value | None, past: Value | None, bias: Value | None
) -> tuple[Value, Value | None]:
    """Attention of [B, S, queries, keys and values], and the cache [2, B, H, T, D] of keys and values."""
    heads, width = node.int("num_heads"), projected.shape[2]
    third = fixed_size(width, "the width of the projections") // 3
    sizes = node.ints("qkv_hidden_sizes", [third] * 3)
    q, k, v = (
        apart(emit, cut(emit, projected, 2, start, size), heads)
        for start, size in zip((0, sizes[0], sizes[0] + sizes[1]), sizes, strict=True)
    )
    before: Dim = 0
    if past is not None:
        before = past.shape[3]
        k, v = (emit(Concat(2), _half(emit, past, i), new) for i, new in enumerate((k, v)))
    y = attend(emit, q, k, v, _scores(node, emit, q, k, mask, bias, before))
    present = emit(Concat(0), *(to_shape(emit, x, (1, *x.shape)) for x in (k, v))) if node.wants(1) else None
    return joined(emit, y), present


def _half(emit: SizeEmit, past: Value, which: int) -> Value:
    """The keys or the values of a cache."""
    return to_shape(emit, cut(emit, past, 0, which, 1), past.shape[1:])


@onnx_op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: OnnxNode, emit: SizeEmit) -> tuple[Value | None, ...]:
    """Of queries to keys and values, each [B, S, H * D]; or these in one tensor [B, S, H, 3, D], or [B, T, H, 2, D] for keys
    and values; or those of another layer's cache, [B, H, T, D]. A bias may be added, and a cache come before."""
    refuse_unless(
        node.optional(8) is None and node.optional(9) is None, "caches that are written in place are not supported"
    )
    refuse_unless(not node.wants(3), "the scores as an output are not supported")
    heads = node.int("num_heads")
    q, k, v = _operands(node, emit, heads)
    past_k, past_v = node.optional(6), node.optional(7)
    before: Dim = 0
    if past_k is not None and past_v is not None:
        before = past_k.shape[2]
        k, v = emit(Concat(2), past_k, k), emit(Concat(2), past_v, v)
    y = attend(emit, q, k, v, _scores(node, emit, q, k, node.optional(4), node.optional(5), before))
    return joined(emit, y), k, v


def _operands(node: OnnxNode, emit: SizeEmit, heads: int) -> list[Value]:
    """Queries, keys and values as [B, H, S, D], with the bias."""
    query, key, value, bias = node.input(0), node.optional(1), node.optional(2), node.optional(3)
    if query.type.rank == 5:
        parts = _unpacked(emit, query)
    elif key is not None and key.type.rank == 5:
        parts = [query, *_unpacked(emit, key)]
    elif key is None or value is None:
        raise ModelError("keys or values are missing")
    else:
        parts = [query, key, value]
    start: Dim = 0
    found = []
    for part in parts:
        if part.type.rank == 4:
            found.append(part)
            continue
        width = part.shape[2]
        found.append(apart(emit, biased(emit, part, None if bias is None else cut(emit, bias, 0, start, width)), heads))
        start = start + width
    return found


def _unpacked(emit: SizeEmit, x: Value) -> list[Value]:
    """[B, S, H, N, D] as N times [B, S, H * D]."""
    batch, rows, heads, count, depth = x.shape
    parts = (cut(emit, x, 3, i, 1) for i in range(fixed_size(count, "the number of tensors in one")))
    return [to_shape(emit, part, (batch, rows, heads * depth)) for part in parts]


def _scores(
    node: OnnxNode, emit: SizeEmit, q: Value, k: Value, mask: Value | None, bias: Value | None, before: Dim
) -> Scores:
    """What the attributes and inputs say that becomes of the scores; so many keys are those of a cache."""
    masks = [] if bias is None else [bias]
    if mask is not None:
        masks.append(_padding(node, emit, mask, q, k))
    if node.int("unidirectional", 0):
        rows, columns = places(emit, q.shape[2], k.shape[2])
        ahead = emit(Binary("Greater"), columns, plus(emit, rows, emit.size(before)))
        masks.append(masked(emit, ahead, float(np.finfo(q.dtype).min), q))
    return Scores(scale_of(node, q), masks=tuple(masks))


def scale_of(node: OnnxNode, q: Value) -> float:
    """The attribute, or one over the root of the number of features; 0 stands for that too."""
    given: float = node.float("scale", 0.0)
    return given or 1 / sqrt(fixed_size(q.shape[3], "the number of features of a head"))


def _padding(node: OnnxNode, emit: SizeEmit, mask: Value, q: Value, k: Value) -> Value:
    """What a mask adds: numbers that are 0 where nothing is to be seen, [B, T] or [B, S, T]; or where sequences end, [B], and
    where they start behind that, [2 * B]."""
    batch, rows, total = q.shape[0], q.shape[2], k.shape[2]
    filler = node.float("mask_filter_value", MASKED)
    if mask.shape in ((batch, total), (batch, rows, total)):
        hidden = emit(Binary("LessOrEqual"), mask, emit.constant(0, like=mask))
        return masked(
            emit, to_shape(emit, hidden, (batch, 1, *([1] if mask.type.rank == 2 else []), *mask.shape[1:])), filler, q
        )
    refuse_unless(
        mask.shape in ((batch,), (batch * 2,)), f"a mask {mask.type} for scores of {rows} x {total} is not supported"
    )
    _, columns = places(emit, rows, total)
    mask = mask if mask.dtype == I64 else emit(Cast(I64), mask)
    hidden = emit(Binary("GreaterOrEqual"), columns, _of_each(emit, mask, 0, batch))
    if mask.shape != (batch,):
        before = emit(Binary("Less"), columns, _of_each(emit, mask, batch, batch))
        hidden = emit(Binary("Or"), hidden, before)
    return masked(emit, hidden, filler, q)


def _of_each(emit: SizeEmit, x: Value, start: Dim, batch: Dim) -> Value:
    """A number for each of the batch, as [B, 1, 1, 1]."""
    return to_shape(emit, cut(emit, x, 0, start, batch), (batch, 1, 1, 1))


def places(emit: SizeEmit, rows: Dim, columns: Dim) -> tuple[Value, Value]:
    """The numbers of queries, [S, 1], and of keys, [T]."""
    return to_shape(emit, emit(Range(0, rows, 1, I64)), (rows, 1)), emit(Range(0, columns, 1, I64))


def plus(emit: SizeEmit, a: Value, b: Value) -> Value:
    """a + b."""
    return emit(Binary("Add"), a, b)


def masked(emit: SizeEmit, hidden: Value, filler: float, like: Value) -> Value:
    """A number where something is hidden, else 0."""
    return emit(Where(), hidden, emit.constant(filler, like=like), emit.constant(NOT_MASKED, like=like))


def attend(emit: SizeEmit, q: Value, k: Value, v: Value, scores: Scores) -> Value:
    """[B, H, S, D], [B, G, T, D] and [B, G, T, E] to [B, H, S, E]; a head of keys serves H / G of queries."""
    mask = reduce(lambda a, b: plus(emit, a, b), scores.masks) if scores.masks else None
    if mask is not None:
        lead = (1,) * (4 - mask.type.rank) + mask.shape[:-2]
        wanted = (*lead[-4:][:2], q.shape[2], k.shape[2])
        mask = mask if mask.shape == wanted else emit(Expand(wanted), mask)
    if not scores.softcap and scores.sink is None:
        return emit(Attention(scores.scale), *((q, k, v) if mask is None else (q, k, v, mask)))
    k, v = (repeat_heads(emit, x, q.shape[1]) for x in (k, v))
    found = emit(Binary("Mul"), emit(MatMul(transpose_b=True), q, k), emit.constant(scores.scale, like=q))
    if scores.softcap:
        cap = emit.constant(scores.softcap, like=q)
        found = emit(Binary("Mul"), emit(Unary("Tanh"), emit(Binary("Div"), found, cap)), cap)
    found = found if mask is None else plus(emit, found, mask)
    if scores.sink is not None:
        sink = to_shape(emit, scores.sink, (1, q.shape[1], 1, 1))
        found = emit(Concat(3), found, emit(Expand((*q.shape[:3], 1)), sink))
    weights = emit(Softmax(3), found)
    return emit(MatMul(), cut(emit, weights, 3, 0, k.shape[2]), v)


def joined(emit: SizeEmit, y: Value) -> Value:
    """[B, H, S, D] as [B, S, H * D]."""
    batch, heads, rows, depth = y.shape
    return to_shape(emit, emit(Transpose((0, 2, 1, 3)), y), (batch, rows, heads * depth))
