"""RotaryEmbedding, of ONNX and of onnxruntime."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.indexing import Gather
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.ops.rotary import RotaryEmbedding, for_each_of_a_pair
from graphc.ops.sequences import Range
from graphc.shapes import Dim, is_static


@onnx_op("RotaryEmbedding")
def rotary_embedding(node: OnnxNode, emit: SizeEmit) -> Value:
    """On [B, H, S, D], or on [B, S, H * D] with the heads as an attribute. The caches have a row for each position, or are
    already those of the rows: [B, S, N / 2]."""
    cos, sin, positions = node.input(1), node.input(2), node.optional(3)
    if positions is not None:
        cos, sin = (emit(Gather(0), cache, positions) for cache in (cos, sin))
    return _rotated(node, emit, cos, sin)


@onnx_op("RotaryEmbedding", domain=MICROSOFT)
def microsoft_rotary_embedding(node: OnnxNode, emit: SizeEmit) -> Value:
    """As ONNX's, with other inputs: one position alone is that of the first row."""
    x, positions, caches = node.input(0), node.input(1), (node.input(2), node.input(3))
    refuse_unless(not node.int("is_packed_batching", 0), "batches of packed sequences are not supported")
    refuse_unless(node.float("scale", 1.0) == 1.0, "a scale is not supported")
    if positions.type.rank == 1:
        rows = emit(Range(0, x.shape[-2], 1, I64))
        positions = to_shape(emit, emit(Binary("Add"), rows, positions), (1, x.shape[-2]))
    return _rotated(node, emit, *(emit(Gather(0), cache, positions) for cache in caches))


@onnx_op("MRotaryEmbedding", domain=MICROSOFT)
def multimodal_rotary_embedding(node: OnnxNode, emit: SizeEmit) -> Value:
    """RotaryEmbedding with three positions for each row [3, B, S], of time, height and width: which one an angle is of depends
    on its place among the angles."""
    refuse_unless(not node.int("is_packed_batching", 0), "batches of packed sequences are not supported")
    refuse_unless(node.float("scale", 1.0) == 1.0, "a scale is not supported")
    positions, caches, sections = node.input(1), (node.input(2), node.input(3)), node.ints("mrope_section")
    half = fixed_size(caches[0].shape[1], "the number of angles")
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != half or positions.type.rank != 3:
        raise ModelError(f"sections {sections} of {half} angles for positions {positions.type}")
    if node.int("mrope_layout", 0):
        kinds = np.zeros(half, np.int64)
        for kind in (1, 2):
            kinds[kind : 3 * sections[kind] : 3] = kind
    else:
        kinds = np.repeat(np.arange(3), sections)
    angles = []
    for cache in caches:
        found = emit(Gather(0), cache, positions)
        every = [to_shape(emit, cut(emit, found, 0, kind, 1), found.shape[1:]) for kind in range(3)]
        chosen = every[0]
        for kind in (1, 2):
            chosen = emit(Where(), emit.constant(kinds == kind), every[kind], chosen)
        angles.append(chosen)
    return _rotated(node, emit, *angles)


@onnx_op("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """Queries and keys [B, H, S, D] by the cosines of angles [B, S, D], and what belongs to them by their sines."""
    angles, parts = node.input(0), [node.input(index) for index in range(1, 5)]
    wide = to_shape(emit, angles, (angles.shape[0], 1, *angles.shape[1:]))
    cos, sin = (converted(emit, emit(Unary(name), wide), parts[0].dtype) for name in ("Cos", "Sin"))
    return tuple(
        emit(Binary("Add"), emit(Binary("Mul"), x, cos), emit(Binary("Mul"), other, sin))
        for x, other in (parts[:2], parts[2:])
    )


def _rotated(node: OnnxNode, emit: SizeEmit, cos: Value, sin: Value) -> Value:
    x, interleaved = node.input(0), bool(node.int("interleaved", 0))
    if x.type.rank not in (3, 4) or cos.type.rank != 3 or sin.type != cos.type:
        raise ModelError(f"{x.type} with the cosines {cos.type} and the sines {sin.type}")
    batch, rows, half = cos.shape
    shape: tuple[Dim, ...] = x.shape
    apart: tuple[Dim, ...] = (batch, 1, rows, half)
    if x.type.rank == 3:
        count = node.int("num_heads", 0) or x.shape[2] // (2 * half)
        shape, apart = (*x.shape[:2], count, x.shape[2] // count), (batch, rows, 1, half)
    wide = node.int("rotary_embedding_dim", 0) or shape[-1]
    if is_static(wide, half) and wide != 2 * half:
        raise ModelError(f"the cosines {cos.type} for {wide} features of each head")
    angles = for_each_of_a_pair(emit, to_shape(emit, cos, apart), to_shape(emit, sin, apart), interleaved)
    return to_shape(emit, emit(RotaryEmbedding(interleaved), to_shape(emit, x, shape), *angles), x.shape)
