"""Sums of embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I32
from graphc.ops.indexing import Gather
from graphc.ops.movement import Expand
from graphc.ops.norm import LayerNorm
from graphc.ops.pointwise import Binary, Cast
from graphc.ops.reduce import Reduce


@dataclass(frozen=True)
class Tables:
    """The embeddings that are added, one a row, and what the norm of the sum is scaled and moved by."""

    words: Value
    places: Value
    segments: Value | None
    gamma: Value
    beta: Value


@onnx_op("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value, Value]:
    """The normalized sum of the embeddings of words, places and segments; how many words are not padding; and the sum."""
    tables = Tables(node.input(2), node.input(3), node.optional(4), node.input(5), node.input(6))
    return embedded(node, emit, tables, node.optional(8))


def embedded(
    node: OnnxNode, emit: SizeEmit, tables: Tables, positions: Value | None = None
) -> tuple[Value, Value, Value]:
    """The results for the node's words, segments and mask. Without positions they are those of the first rows."""
    words, segments, mask = node.input(0), node.optional(1), node.optional(7)
    rows = tables.places
    places = cut(emit, rows, 0, 0, words.shape[1]) if positions is None else emit(Gather(0), rows, positions)
    total = emit(Binary("Add"), emit(Gather(0), tables.words, words), places)
    if segments is not None and tables.segments is not None:
        total = emit(Binary("Add"), total, emit(Gather(0), tables.segments, segments))
    y = emit(LayerNorm(2, node.float("epsilon", 1e-12)), total, tables.gamma, tables.beta)
    return y, _count(emit, words, mask), total


def _count(emit: SizeEmit, words: Value, mask: Value | None) -> Value:
    """[B]: how often the mask has a 1; 0 without one."""
    if mask is None:
        return emit(Expand(words.shape[:1]), emit.constant(np.zeros((), I32)))
    there = emit(Cast(I32), emit(Binary("Equal"), mask, emit.constant(1, like=mask)))
    return emit(Reduce("sum", (1,), False), there)
