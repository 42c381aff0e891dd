"""The steps of a recurrent layer, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import F32, TensorType
from graphc.ops.base import Emit, Op, Routine
from graphc.ops.movement import Pad, Reshape, Transpose
from graphc.shapes import ceil_div

UNITS = 32
"""Those of a layer that `routines/recurrent.h` computes at once."""


@dataclass(frozen=True)
class LSTM(Op):
    """The states of a layer of long short-term memory after each step, [2, steps, batch, hidden]: its outputs, and its cells.

    Inputs, all of float32: what the layer's input adds to the gates (input, output, forget and cell, with both biases),
    [steps, batch, 4 * hidden]; the weights of the outputs, as `packed` has them; the first outputs and cells, [batch, hidden].
    `reverse` begins at the last step.
    """

    reverse: bool = False

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See the class."""
        gates, weights, *states = inputs
        message = f"LSTM: gates {gates}, weights {weights}, states {', '.join(map(str, states))}"
        ranks = [each.rank for each in inputs]
        if ranks != [3, 4, 2, 2] or any(each.dtype != F32 for each in inputs):
            raise ShapeError(message)
        steps, batch, wide = gates.shape
        hidden = weights.shape[1]
        sizes = [
            (wide, 4 * hidden),
            *zip(weights.shape, (ceil_div(hidden, UNITS), hidden, 4, UNITS), strict=True),
        ]
        sizes += [pair for state in states for pair in zip(state.shape, (batch, hidden), strict=True)]
        if differ := [(found, size) for found, size in sizes if found != size]:
            raise ShapeError(message, differ)
        return (TensorType(F32, (2, steps, batch, hidden)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float32, but for the functions of gates."""
        gates, weights, output, cell = inputs
        hidden = weights.shape[1]
        weights = weights.transpose(1, 2, 0, 3).reshape(hidden, 4, -1)[:, :, :hidden].reshape(hidden, 4 * hidden)
        result = np.empty((2, *gates.shape[:2], hidden), F32)
        steps = range(len(gates))
        for step in reversed(steps) if self.reverse else steps:
            taken, shown, kept, fresh = np.split(gates[step] + output @ weights, 4, axis=1)
            cell = _sigmoid(kept) * cell + _sigmoid(taken) * np.tanh(fresh)
            output = _sigmoid(shown) * np.tanh(cell)
            result[:, step] = output, cell
        return (result,)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """A sequence of the batch after the other."""
        steps, batch, _ = inputs[0].shape
        return Routine("recurrent", "lstm", (), (steps, batch, inputs[1].shape[1], int(self.reverse)))


def packed(emit: Emit, weights: Value) -> Value:
    """The weights of a layer's outputs, [4 * hidden, hidden], in the order in which steps read them: those of all gates of UNITS
    together, which are 0 where there are no more, for an output after the other."""
    hidden = weights.shape[1]
    together = ceil_div(hidden, UNITS)
    rows = emit(Reshape((hidden, 4, hidden)), emit(Transpose((1, 0)), weights))
    padded = emit(Pad((0, 0, 0), (0, 0, UNITS * together - hidden)), rows)
    return emit(Transpose((2, 0, 1, 3)), emit(Reshape((hidden, 4, together, UNITS)), padded))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(F32)
