"""Operators whose results are as large as their data say: that size is an attribute, which somebody else measures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.errors import InputError, ShapeError
from graphc.ir.types import BOOL, F32, FLOATS, I64, INTEGERS, TensorType
from graphc.ops.base import Op, Routine
from graphc.ops.movement import static
from graphc.shapes import Dim


@dataclass(frozen=True)
class NonZero(Op):
    """The places of the elements that are not 0, of which there are `count`, in row-major order: int64 [rank, count].

    Another number of them is an InputError.
    """

    count: Dim

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in FLOATS | INTEGERS | {BOOL} or x.rank == 0:
            raise ShapeError(f"NonZero does not take {x}")
        if isinstance(self.count, int) and self.count < 0:
            raise ShapeError(f"NonZero: a count of {self.count}")
        return (TensorType(I64, (x.rank, self.count)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (count,) = static((self.count,), "the count")
        places = np.array(np.nonzero(inputs[0]), I64)
        if places.shape[1] != count:
            raise InputError(COUNT_FAULT)
        return (places,)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """A walk through the elements."""
        (x,) = inputs
        return Routine("select", "nonzero", (x.dtype,), (x.rank, x.shape, self.count), (COUNT_FAULT,))


COUNT_FAULT = "NonZero: there are more or fewer elements that are not zero than was measured"
"""What a run that fails says."""


@dataclass(frozen=True)
class BestBoxes(Op):
    """boxes [batch, n, 4], scores and order [batch, class, n], overlap [], least [] -> int64 [batch, class, most]

    The numbers of up to `most` boxes for each class, then -1: in `order` (numbers of boxes), those that score more than
    `least`, and with each one before share at most `overlap` of the area that both cover. A box is its lower corner and its
    upper one.
    """

    most: Dim

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        boxes, scores, order, *limits = inputs
        check_boxes(boxes, scores)
        if order != TensorType(I64, scores.shape) or limits != [TensorType(F32, ())] * 2:
            raise ShapeError(f"BestBoxes: order {order} of scores {scores}, limits {', '.join(map(str, limits))}")
        if isinstance(self.most, int) and self.most < 0:
            raise ShapeError(f"BestBoxes: at most {self.most} boxes")
        return (TensorType(I64, (*scores.shape[:2], self.most)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        boxes, scores, order, overlap, least = inputs
        (most,) = static((self.most,), "the number of boxes")
        result = np.full((*scores.shape[:2], most), -1, I64)
        if order.size and (order.min() < 0 or order.max() >= boxes.shape[1]):
            raise InputError(ORDER_FAULT)
        for batch, kind in np.ndindex(*scores.shape[:2]):
            candidates = [box for box in order[batch, kind] if scores[batch, kind, box] > least]
            kept = best(boxes[batch], candidates, most, overlap)
            result[batch, kind, : len(kept)] = kept
        return (result,)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Each box against those that are kept."""
        batches, classes, count = inputs[1].shape
        return Routine("boxes", "best_boxes", (), (batches, classes, count, self.most), (ORDER_FAULT,))


def check_boxes(boxes: TensorType, scores: TensorType) -> None:
    """Raise ShapeError unless they are float32 [batch, n, 4] and [batch, class, n]."""
    message = f"boxes {boxes} and scores {scores} do not fit"
    if boxes.rank != 3 or scores.rank != 3 or boxes.dtype != F32 or scores.dtype != F32:
        raise ShapeError(message)
    batch, _, count = scores.shape
    differ = [(found, size) for found, size in zip(boxes.shape, (batch, count, 4), strict=True) if found != size]
    if differ:
        raise ShapeError(message, differ)


ORDER_FAULT = "BestBoxes: the order names a box that is not there"
"""What a run that fails says."""


def best(boxes: np.ndarray, candidates: list[int], most: int, overlap: np.ndarray) -> list[int]:
    """The first candidates [n, 4] that do not overlap too much with one before."""
    low, high = boxes[:, :2], boxes[:, 2:]
    areas = np.prod(high - low, -1)
    kept: list[int] = []
    for box in candidates:
        if len(kept) == most:
            break
        sides = np.minimum(high[kept], high[box]) - np.maximum(low[kept], low[box])
        shared = np.prod(np.maximum(sides, 0), -1)
        if not np.any(shared > overlap * (areas[kept] + areas[box] - shared)):
            kept.append(int(box))
    return kept
