"""Attention where it is the plain form. Masks that are computed, caps and windows are left to the body that the schema gives."""

from __future__ import annotations

from math import sqrt

import numpy as np

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import Results, onnx_op
from graphc.ir import Value
from graphc.ir.interp import evaluate
from graphc.ir.types import BOOL, FLOATS
from graphc.ops.attention import Attention
from graphc.ops.movement import Concat, Transpose
from graphc.shapes import product, static_shape

LARGEST_MASK = 1 << 24
"""Elements of the largest mask that is made a constant."""


@onnx_op("Attention")
def attention(node: OnnxNode, emit: SizeEmit) -> Results:
    """On [B, H, S, D], or on [B, S, H * D] with the heads as attributes; keys and values of the past come first."""
    q, k, v = node.input(0), node.input(1), node.input(2)
    if not is_plain(node) or not q.type.rank == k.type.rank == v.type.rank or q.dtype not in FLOATS:
        return None
    flat = q.type.rank == 3
    if flat:
        heads, groups = node.int("q_num_heads"), node.int("kv_num_heads")
        q, k, v = apart(emit, q, heads), apart(emit, k, groups), apart(emit, v, groups)
    past_k, past_v = node.optional(4), node.optional(5)
    before = 0 if past_k is None else past_k.shape[2]
    if past_k is not None and past_v is not None:
        k, v = emit(Concat(2), past_k, k), emit(Concat(2), past_v, v)
    depth = q.shape[3]
    if not isinstance(depth, int) or not isinstance(before, int):
        return None
    operands = [q, k, v]
    if node.int("is_causal", 0) or node.optional(3) is not None:
        mask = constant_mask(node, (q.shape[2], k.shape[2]), before)
        if mask is None:
            return None
        operands.append(emit.constant(mask.astype(q.dtype)))
    y = emit(Attention(node.float("scale", 1 / sqrt(depth))), *operands)
    if flat:
        y = to_shape(emit, emit(Transpose((0, 2, 1, 3)), y), (q.shape[0], q.shape[2], q.shape[1] * v.shape[3]))
    return y, k, v


def is_plain(node: OnnxNode) -> bool:
    """True if nothing is asked of the node that `ops.Attention` does not have."""
    window = max(node.int("left_window_size", -1), node.int("right_window_size", -1)) >= 0
    return not (window or node.float("softcap", 0.0) or node.wants(3) or node.optional(6) is not None)


def apart(emit: SizeEmit, x: Value, heads: int) -> Value:
    """[B, S, H * D] as [B, H, S, D]."""
    batch, rows, width = x.shape
    return emit(Transpose((0, 2, 1, 3)), to_shape(emit, x, (batch, rows, heads, width // heads)))


def constant_mask(node: OnnxNode, scores: tuple[object, object], before: int) -> np.ndarray | None:
    """What is added to the scores, if it is known when compiling and leaves something of every row; else None."""
    shape = static_shape(scores)  # type: ignore[arg-type]
    given = node.optional(3)
    if shape is None or shape[0] * shape[1] > LARGEST_MASK:
        return None
    mask = np.zeros(shape, np.float32)
    if given is not None:
        if not given.static or product(given.shape) > LARGEST_MASK or given.shape[-1] != shape[1]:
            return None
        written = evaluate(given)
        mask = mask + (np.where(written, 0, -np.inf) if given.dtype == BOOL else written.astype(np.float32))
    if node.int("is_causal", 0):
        rows, columns = np.indices(shape)
        mask = mask + np.where(columns <= rows + before, 0, -np.inf)
    return mask if np.isfinite(mask).any(axis=-1).all() else None
