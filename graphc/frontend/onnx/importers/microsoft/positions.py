"""What is added to scores by how far apart two rows are."""

from __future__ import annotations

from math import log

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.microsoft.activations import biased
from graphc.frontend.onnx.importers.microsoft.attention import places
from graphc.frontend.onnx.importers.microsoft.packed import restored
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Transpose
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.ops.reduce import Reduce


@onnx_op("RelativePositionBias", domain=MICROSOFT)
def relative_position_bias(node: OnnxNode, emit: SizeEmit) -> Value:
    """T5's: a number for each head and bucket of distances, as [1, heads, queries, keys]. The table says [buckets, heads], and
    holds the numbers of one head after the other."""
    table = node.input(0)
    buckets, heads = (fixed_size(size, "the table") for size in table.shape)
    rows, columns = (
        emit.measured(node.input(index), what, 0) for index, what in ((1, "the query length"), (2, "the key length"))
    )
    both, farthest = bool(node.int("is_bidirectional", 0)), node.int("max_distance")
    numbers, others = places(emit, rows, columns)
    ahead = emit(Binary("Sub"), others, numbers)
    zero, most = emit.constant(0, like=ahead), emit.constant(farthest, like=ahead)
    behind = emit(Unary("Abs"), ahead) if both else emit(Binary("Max"), emit(Unary("Neg"), ahead), zero)
    each = buckets // 2 if both else buckets
    found = emit(Gather(0), emit.constant(_buckets(each, farthest)), emit(Binary("Min"), behind, most))
    if both:
        later = emit(Where(), emit(Binary("Greater"), ahead, zero), emit.constant(each, like=ahead), zero)
        found = emit(Binary("Add"), found, later)
    bias = emit(Gather(1), to_shape(emit, table, (heads, buckets)), found)
    return to_shape(emit, bias, (1, heads, rows, columns))


def _buckets(count: int, farthest: int) -> np.ndarray:
    """The bucket of each distance up to the farthest: half of them are of one distance each, the others ever wider."""
    exact = count // 2
    if exact < 1 or farthest <= exact:
        raise ModelError(f"distances up to {farthest} in {count} buckets")
    check_table(farthest)
    distances = np.arange(farthest + 1)
    ratio = np.maximum(distances, 1).astype(np.float32) / np.float32(exact)
    wide = exact + (np.log(ratio) / np.float32(log(farthest / exact)) * np.float32(count - exact)).astype(np.int64)
    return np.where(distances < exact, distances, np.minimum(wide, count - 1))


@onnx_op("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(node: OnnxNode, emit: SizeEmit) -> Value:
    """WavLM's: a bias [1, heads, S, S] times a gate that each query has of its own, [B, heads, S, S]."""
    query, heads = node.input(0), node.int("num_heads")
    offsets = node.optional(6)
    query = biased(emit, query, node.input(1))
    query = query if offsets is None else restored(emit, query, offsets)
    batch, rows, width = query.shape
    q = emit(Transpose((0, 2, 1, 3)), to_shape(emit, query, (batch, rows, heads, width // heads)))
    both = biased(emit, emit(MatMul(), q, node.input(3)), node.input(4))
    halves = to_shape(emit, both, (*both.shape[:3], 2, both.shape[3] // 2))
    sums = emit(Unary("Sigmoid"), emit(Reduce("sum", (4,), False), halves))
    update, reset = (cut(emit, sums, 3, i, 1) for i in range(2))
    one, two = (emit.constant(number, like=sums) for number in (1.0, 2.0))
    gate = emit(Binary("Sub"), emit(Binary("Mul"), reset, node.input(5)), one)
    gate = emit(Binary("Add"), emit(Binary("Mul"), update, gate), two)
    return emit(Binary("Mul"), gate, node.input(2))
