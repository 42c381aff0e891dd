"""Sequences without their padding: rows [tokens, features], and where each one is in the batch.

The places [B, S] number the rows of the batch, those of tokens first and then those of the padding.
"""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.attention import apart
from graphc.frontend.onnx.importers.microsoft.activations import biased
from graphc.frontend.onnx.importers.microsoft.attention import (
    MASKED,
    Scores,
    attend,
    joined,
    masked,
    places,
    scale_of,
)
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I32, I64
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.reduce import Reduce
from graphc.ops.scatter import ScatterND
from graphc.ops.sequences import CumSum
from graphc.ops.sorting import ArgSort


@onnx_op("RemovePadding", domain=MICROSOFT)
def remove_padding(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """[B, S, features] and a number of tokens for each of the batch: the tokens, their places, where each sequence begins and
    the last one ends, and the length of the longest."""
    x, given = node.input(0), node.input(1)
    batch, rows, width = x.shape
    counts = given if given.dtype == I64 else emit(Cast(I64), given)
    _, columns = places(emit, 1, rows)
    padding = emit(Unary("Not"), emit(Binary("Less"), columns, to_shape(emit, counts, (batch, 1))))
    flat = to_shape(emit, emit(Cast(I64), padding), (batch * rows,))
    order = emit(ArgSort(0, batch * rows), flat)
    most = batch * rows
    total = emit.measured(
        emit(Reduce("sum", (0,), False), counts), "the number of tokens", 0, most if isinstance(most, int) else None
    )
    tokens = emit(Gather(0), to_shape(emit, x, (batch * rows, width)), cut(emit, order, 0, 0, total))
    ends = emit(Concat(0), emit(Expand((1,)), emit.constant(0, like=counts)), emit(CumSum(0), counts))
    longest = emit(Reduce("max", (0,), True), counts)
    order, ends, longest = (emit(Cast(I32), each) for each in (order, ends, longest))
    return tokens, to_shape(emit, order, (batch, rows)), ends, longest


@onnx_op("RestorePadding", domain=MICROSOFT)
def restore_padding(node: OnnxNode, emit: SizeEmit) -> Value:
    """The tokens at their places, and zeros for the padding, [B, S, features]."""
    return restored(emit, node.input(0), node.input(1))


def restored(emit: SizeEmit, tokens: Value, offsets: Value) -> Value:
    """Tokens [tokens, features] as [B, S, features]."""
    (batch, rows), (count, width) = offsets.shape, tokens.shape
    zeros = emit(Expand((batch * rows, width)), emit.constant(0.0, like=tokens))
    found = emit(ScatterND("none"), zeros, to_shape(emit, _of_tokens(emit, offsets, tokens), (count, 1)), tokens)
    return to_shape(emit, found, (batch, rows, width))


def _of_tokens(emit: SizeEmit, offsets: Value, tokens: Value) -> Value:
    """The places of tokens alone, [tokens]."""
    every = to_shape(emit, offsets, (offsets.type.size,))
    found = cut(emit, every, 0, 0, tokens.shape[0])
    return found if found.dtype == I64 else emit(Cast(I64), found)


@onnx_op("PackedAttention", domain=MICROSOFT)
def packed_attention(node: OnnxNode, emit: SizeEmit) -> Value:
    """Attention of tokens, by one product with the weights of queries, keys and values, within each sequence."""
    projected = biased(emit, emit(MatMul(), node.input(0), node.input(1)), node.optional(2))
    third = fixed_size(projected.shape[1], "the width of the projections") // 3
    sizes = node.ints("qkv_hidden_sizes", [third] * 3)
    ends = (0, sizes[0], sizes[0] + sizes[1])
    parts = [cut(emit, projected, 1, start, size) for start, size in zip(ends, sizes, strict=True)]
    return _within_sequences(node, emit, parts, 3)


@onnx_op("PackedMultiHeadAttention", domain=MICROSOFT)
def packed_multi_head_attention(node: OnnxNode, emit: SizeEmit) -> Value:
    """Attention of tokens whose queries, keys and values are three tensors, or one [tokens, H, 3, D]."""
    query, key, value, bias = node.input(0), node.optional(1), node.optional(2), node.optional(3)
    if key is None or value is None:
        count, heads, _, depth = query.shape
        parts = [to_shape(emit, cut(emit, query, 2, i, 1), (count, heads * depth)) for i in range(3)]
    else:
        parts = [query, key, value]
    if bias is not None:
        whole = biased(emit, emit(Concat(1), *parts), bias)
        starts = (0, parts[0].shape[1], parts[0].shape[1] + parts[1].shape[1])
        parts = [cut(emit, whole, 1, start, part.shape[1]) for start, part in zip(starts, parts, strict=True)]
    return _within_sequences(node, emit, parts, 4)


def _within_sequences(node: OnnxNode, emit: SizeEmit, parts: list[Value], place: int) -> Value:
    """Queries, keys and values [tokens, H * D] to [tokens, H * D]; the places, the ends of the sequences and what is added to
    scores are the inputs from a place on."""
    offsets, ends, bias = node.input(place), node.input(place + 1), node.optional(place + 2)
    q, k, v = (apart(emit, restored(emit, part, offsets), node.int("num_heads")) for part in parts)
    batch, rows = offsets.shape
    lengths = emit(Binary("Sub"), cut(emit, ends, 0, 1, batch), cut(emit, ends, 0, 0, batch))
    lengths = to_shape(emit, lengths if lengths.dtype == I64 else emit(Cast(I64), lengths), (batch, 1, 1, 1))
    _, columns = places(emit, rows, rows)
    filler = node.float("mask_filter_value", MASKED)
    masks = [masked(emit, emit(Binary("GreaterOrEqual"), columns, lengths), filler, q)]
    masks += [] if bias is None else [bias]
    y = joined(emit, attend(emit, q, k, v, Scores(scale_of(node, q), masks=tuple(masks))))
    flat = to_shape(emit, y, (batch * rows, y.shape[2]))
    return emit(Gather(0), flat, _of_tokens(emit, offsets, parts[0]))
