"""Probabilities of classes, from what is known of each pair of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import F32, F64, TensorType
from graphc.ops.base import Op, Routine

MOST_CLASSES = 1024
"""As `coupling.h` has room for."""
MOST_STEPS = 100
CLOSE = 0.005
"""How much nearer to a solution a step has to come, as a share of what one class of all has, as in LIBSVM."""


@dataclass(frozen=True)
class PairwiseCoupling(Op):
    """x [rows, pairs] -> [rows, classes], float32

    The probabilities of classes that agree best with those of the first class of each pair against its second: (0, 1), (0, 2), …,
    (1, 2), …. They are what LIBSVM's steps come to (Wu, Lin, Weng 2004, the second method), which end before the best ones.
    """

    classes: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        pairs = self.classes * (self.classes - 1) // 2
        if not 2 <= self.classes <= MOST_CLASSES or x != TensorType(F32, (*x.shape[:1], pairs)):
            raise ShapeError(f"PairwiseCoupling: {x} for pairs of {self.classes} classes")
        return (TensorType(F32, (x.shape[0], self.classes)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        x = inputs[0].astype(F64)
        over = np.zeros((len(x), self.classes, self.classes))
        first, second = np.triu_indices(self.classes, 1)
        over[:, first, second], over[:, second, first] = x, 1 - x
        between = -over.swapaxes(1, 2) * over
        classes = np.arange(self.classes)
        between[:, classes, classes] = (over**2).sum(1)
        return (np.array([_solved(each) for each in between], F32).reshape(len(x), self.classes),)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Row by row."""
        return Routine("coupling", "pairwise_coupling", (), (inputs[0].shape[0], self.classes))


def _solved(between: np.ndarray) -> np.ndarray:
    """The probabilities p that make p @ between @ p small."""
    found = np.full(len(between), 1 / len(between))
    for _ in range(MOST_STEPS):
        slope = between @ found
        value = found @ slope
        if np.abs(slope - value).max() < CLOSE / len(between):
            break
        for place, row in enumerate(between):
            change = (value - slope[place]) / row[place]
            whole = 1 + change
            value = (value + change * (change * row[place] + 2 * slope[place])) / whole / whole
            slope = (slope + change * row) / whole
            found[place] += change
            found /= whole
    return found
