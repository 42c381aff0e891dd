"""GroupQueryAttention: attention of a decoder, with its cache, rotary embeddings and windows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.attention import apart
from graphc.frontend.onnx.importers.microsoft.attention import Scores, attend, joined, masked, plus, scale_of
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.indexing import Gather
from graphc.ops.movement import Expand, Pad
from graphc.ops.norm import RMSNorm
from graphc.ops.pointwise import Binary, Cast, Where
from graphc.ops.rotary import RotaryEmbedding, for_each_of_a_pair
from graphc.ops.scatter import ScatterElements
from graphc.ops.sequences import Range
from graphc.shapes import Dim, dim_max

NOT_SUPPORTED = {
    12: "a quantized cache",
    13: "a quantized cache",
    16: "a chunk with its own lengths",
}
"""What inputs stand for that are refused."""


@onnx_op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value, Value]:
    """Attention of new rows to those of a cache and to themselves. Each of the batch has its own number of rows in the cache,
    behind which its new ones are written."""
    for index, what in NOT_SUPPORTED.items():
        refuse_unless(node.optional(index) is None, f"{what} is not supported")
    refuse_unless(not node.int("sliding_window_cache", 0), "a cache of a window alone is not supported")
    refuse_unless(not node.int("qk_output", 0), "the scores as an output are not supported")
    q, k, v = _operands(node, emit)
    batch, rows = q.shape[0], q.shape[2]
    lengths = to_shape(emit, node.input(5), (batch, 1))
    lengths = plus(emit, lengths if lengths.dtype == I64 else emit(Cast(I64), lengths), emit.size(1))
    first = emit(Binary("Max"), emit(Binary("Sub"), lengths, emit.size(rows)), emit.size(0))
    numbers = plus(emit, first, emit(Range(0, rows, 1, I64)))
    past_k, past_v = node.optional(3), node.optional(4)
    cached = past_k is not None and past_v is not None
    total: Dim = emit.measured(node.input(6), "the total length", 1) if cached else rows
    if node.int("do_rotary", 0):
        positions = numbers if node.optional(9) is None else _positions(emit, node.input(9), rows, total)
        q, k = _rotated(node, emit, (q, k), positions)
    if past_k is not None and past_v is not None:
        k, v = (_written(emit, past, new, numbers, total) for past, new in ((past_k, k), (past_v, v)))
    seen_k, seen_v = (cut(emit, x, 2, 0, total) for x in (k, v))
    return joined(emit, attend(emit, q, seen_k, seen_v, _scores(node, emit, q, lengths, numbers, total))), k, v


def _operands(node: OnnxNode, emit: SizeEmit) -> list[Value]:
    """Queries, keys and values as [B, H, S, D]; all may be one tensor. The first two are normalized if there are weights."""
    heads, groups = node.int("num_heads"), node.int("kv_num_heads")
    query, key, value = node.input(0), node.optional(1), node.optional(2)
    if key is None or value is None:
        depth = fixed_size(query.shape[2], "the width of queries, keys and values") // (heads + 2 * groups)
        ends = (0, heads * depth, (heads + groups) * depth, (heads + 2 * groups) * depth)
        parts = [cut(emit, query, 2, start, end - start) for start, end in pairwise(ends)]
    else:
        parts = [query, key, value]
    found = [apart(emit, x, count) for x, count in zip(parts, (heads, groups, groups), strict=True)]
    usual = node.float("qk_norm_epsilon", 1e-6)
    for place, name in enumerate("qk"):
        weight = node.optional(14 + place)
        if weight is not None:
            found[place] = emit(RMSNorm(3, node.float(f"{name}_norm_epsilon", usual)), found[place], weight)
    return found


def _positions(emit: SizeEmit, given: Value, rows: Dim, total: Dim) -> Value:
    """Positions [B, S] that are given. Of a first prompt onnxruntime reads the very first alone, and counts on."""
    first = plus(emit, cut(emit, cut(emit, given, 0, 0, 1), 1, 0, 1), emit(Range(0, rows, 1, I64)))
    prompt = emit(Binary("Equal"), emit.size(total), emit.size(rows))
    return emit(Where(), prompt, first, given)


def _rotated(node: OnnxNode, emit: SizeEmit, parts: tuple[Value, ...], positions: Value) -> list[Value]:
    """Queries and keys, rotated by the angles of their positions [B, S]."""
    interleaved = bool(node.int("rotary_interleaved", 0))
    cos, sin = (emit(Gather(0), node.input(cache), positions) for cache in (7, 8))
    cos, sin = (to_shape(emit, x, (x.shape[0], 1, *x.shape[1:])) for x in (cos, sin))
    pair = for_each_of_a_pair(emit, cos, sin, interleaved)
    return [emit(RotaryEmbedding(interleaved), part, *pair) for part in parts]


def _written(emit: SizeEmit, past: Value, new: Value, numbers: Value, total: Dim) -> Value:
    """A cache [B, G, P, D] with new rows at places [B, S], as long as it was or as the total length, whichever is more."""
    room = dim_max(past.shape[2], total) - past.shape[2]
    if room != 0:
        past = emit(Pad((0,) * 4, (0, 0, room, 0)), past)
    batch, rows = numbers.shape
    places = emit(Expand(new.shape), to_shape(emit, numbers, (batch, 1, rows, 1)))
    return emit(ScatterElements(2), past, places, new)


def _scores(node: OnnxNode, emit: SizeEmit, q: Value, lengths: Value, numbers: Value, total: Dim) -> Scores:
    """What is hidden of keys: those behind a row, before its window, or behind the end."""
    batch, rows = numbers.shape
    columns, own = emit(Range(0, total, 1, I64)), to_shape(emit, numbers, (batch, 1, rows, 1))
    if node.int("causal", 1):
        hidden = emit(Binary("Greater"), columns, own)
    else:
        hidden = emit(Binary("GreaterOrEqual"), columns, to_shape(emit, lengths, (batch, 1, 1, 1)))
    window = node.int("local_window_size", -1)
    if window > 0:
        outside = emit(Binary("LessOrEqual"), columns, emit(Binary("Sub"), own, emit.size(window)))
        hidden = emit(Binary("Or"), hidden, outside)
    masks = [masked(emit, hidden, float(np.finfo(q.dtype).min), q)]
    bias, sink = node.optional(10), node.optional(11)
    if bias is not None:
        masks.append(bias)
    if sink is None and node.int("smooth_softmax", 0) > 0:
        sink = emit(Expand((q.shape[1],)), emit.constant(0, like=q))
    return Scores(scale_of(node, q), node.float("softcap", 0.0), tuple(masks), sink)
