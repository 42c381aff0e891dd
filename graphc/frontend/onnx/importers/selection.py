"""Operators whose results have sizes that depend on data: what they select is worked out while importing."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, I64
from graphc.ops.base import normalize_axis
from graphc.ops.indexing import Gather
from graphc.ops.movement import Reshape


@onnx_op("Unique")
def unique(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """Different elements, or slices of an axis, where each is first, which each one is, and how often each occurs."""
    x = node.input(0)
    array = emit.array(x, "which elements differ")
    axis = normalize_axis(node.int("axis"), array.ndim) if node.has("axis") else None
    compared = array if array.dtype.isbuiltin == 1 else array.astype(F32)
    _, first, inverse, counts = np.unique(
        compared, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    if not node.int("sorted", 1):
        order = np.argsort(first)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    places = emit.constant(first.astype(I64))
    taken = emit(Gather(0), emit(Reshape((array.size,)), x), places) if axis is None else emit(Gather(axis), x, places)
    return taken, places, emit.constant(inverse.reshape(-1).astype(I64)), emit.constant(counts.astype(I64))


@onnx_op("NonMaxSuppression")
def non_max_suppression(node: OnnxNode, emit: SizeEmit) -> Value:
    """For each batch and class the best boxes, of those that overlap too much only the best: (batch, class, box)."""
    boxes, scores = (emit.array(node.input(index), "which boxes are kept") for index in (0, 1))
    if boxes.ndim != 3 or boxes.shape[-1] != 4 or scores.ndim != 3 or scores.shape[::2] != boxes.shape[:2]:
        raise ModelError(f"boxes of shape {list(boxes.shape)} and scores of shape {list(scores.shape)}")
    settings = [node.optional(index) for index in (2, 3, 4)]
    most, overlap, least = (
        default if value is None else emit.scalar(value, "a threshold")
        for value, default in zip(settings, (0, 0.0, -np.inf), strict=True)
    )
    corners = _corners(boxes, bool(node.int("center_point_box", 0)))
    kept = [
        (batch, kind, box)
        for batch, kind in np.ndindex(*scores.shape[:2])
        for box in _best(corners[batch], scores[batch, kind], int(most), overlap, least)
    ]
    return emit.constant(np.array(kept, I64).reshape(-1, 3))


def _corners(boxes: np.ndarray, centered: bool) -> np.ndarray:
    """Boxes as two corners, the smaller first: [..., 2, 2]."""
    a, b = boxes[..., :2], boxes[..., 2:]
    if centered:
        a, b = a - b / 2, a + b / 2
    return np.stack([np.minimum(a, b), np.maximum(a, b)], -2)


def _best(boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float) -> list[int]:
    areas = np.prod(boxes[:, 1] - boxes[:, 0], -1)
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(kept) >= most or scores[box] <= least:
            break
        sides = np.minimum(boxes[kept, 1], boxes[box, 1]) - np.maximum(boxes[kept, 0], boxes[box, 0])
        shared = np.prod(np.maximum(sides, 0), -1)
        if not np.any(shared > overlap * (areas[kept] + areas[box] - shared)):
            kept.append(int(box))
    return kept
