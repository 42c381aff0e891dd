"""Texts as numbers: words of characters, and tokens that may not come again."""

from __future__ import annotations

from functools import reduce

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.ops.scatter import ScatterElements
from graphc.shapes import dim_max


@onnx_op("WordConvEmbedding", domain=MICROSOFT)
def word_embedding(node: OnnxNode, emit: SizeEmit) -> Value:
    """Words [..., characters], as long as they have characters that are not 0, as features [..., filters]: a convolution over
    the embeddings of the characters, tanh, and the maximum. One that has none gets zeros."""
    words, w, bias, table = (node.input(index) for index in range(4))
    filters, window, depth = w.shape[0], fixed_size(w.shape[-2], "the window"), w.shape[-1]
    longest = fixed_size(words.shape[-1], "the length of words")
    refuse_unless(window <= longest, f"words of {longest} characters for windows of {window} are not supported")
    count = words.type.size // longest
    check_table(longest, window)
    flat = to_shape(emit, words, (count, longest))
    starts = longest - window + 1
    places = np.arange(starts)[:, None] + np.arange(window)
    characters = emit(Gather(0), table, emit(Gather(1), flat, emit.constant(places)))
    rows = to_shape(emit, characters, (count, starts, window * depth))
    product = emit(MatMul(transpose_b=True), rows, to_shape(emit, w, (filters, window * depth)))
    found = emit(Unary("Tanh"), emit(Binary("Add"), product, bias))
    there = emit(Cast(I64), emit(Binary("Greater"), flat, emit.constant(0, like=flat)))
    length = to_shape(emit, emit(Reduce("sum", (1,), False), there), (count, 1, 1))
    ends = np.where(np.arange(starts) == 0, 0, np.arange(starts) + window)  # the first window counts in short words too
    whole = emit(Binary("LessOrEqual"), emit.constant(ends[None, :, None]), length)
    least = emit.constant(-2.0, like=found)  # below every tanh
    best = emit(Reduce("max", (1,), False), emit(Where(), whole, found, least))
    some = emit(Binary("Greater"), to_shape(emit, length, (count, 1)), emit.constant(0, like=length))
    y = emit(Where(), some, best, emit.constant(0.0, like=best))
    return to_shape(emit, y, (*words.shape[:-1], filters))


@onnx_op("NGramRepeatBlock", domain=MICROSOFT)
def block_repetition(node: OnnxNode, emit: SizeEmit) -> Value:
    """Scores [B, tokens], -inf for those that would make the last tokens [B, S] an n-gram that was there already."""
    tokens, scores, size = node.input(0), node.input(1), node.int("ngram_size")
    if size < 1 or tokens.type.rank != 2:
        raise ModelError(f"n-grams of {size} of {tokens.type}")
    batch, length = tokens.shape
    starts = dim_max(length - size + 1, 0)
    if starts == 0:
        return scores
    tokens = tokens if tokens.dtype == I64 else emit(Cast(I64), tokens)
    next_ = cut(emit, tokens, 1, size - 1, starts)
    blocked = emit(Expand((batch, starts)), emit.constant(np.array(-np.inf, scores.dtype)))
    if size > 1:
        same = [
            emit(Binary("Equal"), cut(emit, tokens, 1, i, starts), cut(emit, tokens, 1, length - size + 1 + i, 1))
            for i in range(size - 1)
        ]
        every = reduce(lambda a, b: emit(Binary("And"), a, b), same)
        blocked = emit(Where(), every, blocked, emit.constant(np.array(np.inf, scores.dtype)))
    return emit(ScatterElements(1, "min"), scores, next_, blocked)
