"""The steps of a recurrent layer, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import F32, I64, TensorType
from graphc.ops.base import Emit, Op, Routine
from graphc.ops.movement import Concat, Pad, Reshape, Transpose
from graphc.shapes import ceil_div

UNITS = 32
"""Those of a layer that `routines/recurrent.h` computes at once."""


@dataclass(frozen=True)
class Cell:
    """How many gates a cell has, and how many states; and a step: from what is given for its gates, what gives the state's part
    of some of them, and the states, to the new ones, of which the first is the output."""

    gates: int
    states: int
    step: Callable[..., list[np.ndarray]]


def _lstm(given: np.ndarray, part: Callable[..., np.ndarray], state: np.ndarray, cell: np.ndarray) -> list[np.ndarray]:
    taken, shown, kept, fresh = given + part(state, 0, 4)
    cell = _sigmoid(kept) * cell + _sigmoid(taken) * np.tanh(fresh)
    return [_sigmoid(shown) * np.tanh(cell), cell]


def _gru(given: np.ndarray, part: Callable[..., np.ndarray], state: np.ndarray) -> list[np.ndarray]:
    update, reset = _sigmoid(given[:2] + part(state, 0, 2))
    return [(1 - update) * np.tanh(given[2] + part(reset * state, 2, 3)[0]) + update * state]


def _linear_gru(given: np.ndarray, part: Callable[..., np.ndarray], state: np.ndarray) -> list[np.ndarray]:
    update, reset, hidden = part(state, 0, 3)
    update, reset = _sigmoid(given[0] + update), _sigmoid(given[1] + reset)
    return [(1 - update) * np.tanh(given[2] + reset * hidden) + update * state]


def _rnn_of_tanh(given: np.ndarray, part: Callable[..., np.ndarray], state: np.ndarray) -> list[np.ndarray]:
    return [np.tanh(given[0] + part(state, 0, 1)[0])]


def _rnn_of_relu(given: np.ndarray, part: Callable[..., np.ndarray], state: np.ndarray) -> list[np.ndarray]:
    return [np.maximum(given[0] + part(state, 0, 1)[0], 0)]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(F32)


CELLS = {
    "lstm": Cell(4, 2, _lstm),
    "gru": Cell(3, 1, _gru),
    "linear_gru": Cell(3, 1, _linear_gru),
    "rnn_of_tanh": Cell(1, 1, _rnn_of_tanh),
    "rnn_of_relu": Cell(1, 1, _rnn_of_relu),
}
"""Cells by the names of their routines. Gates of an LSTM are input, output, forget and cell; of a GRU update, reset and hidden. A
linear GRU resets what the weights make of the state, the other one the state."""


@dataclass(frozen=True)
class Recurrent(Op):
    """A layer of one of the `CELLS`, in directions of which some may be in `reverse`: the outputs of all steps, 0 behind the end
    of a sequence, and then the states after its last step, [steps + states, directions, batch, hidden].

    Inputs: what the layer's input adds to the gates, [steps, batch, directions, gates * hidden]; the weights of the states, as
    `packed` has them; the length of each sequence, int64 [batch], from 0 to steps; the first states, each [directions, batch,
    hidden]. All else is float32.
    """

    cell: str
    reverse: tuple[bool, ...] = (False,)

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See the class."""
        if self.cell not in CELLS:
            raise ShapeError(f"Recurrent: there is no cell {self.cell}")
        cell, directions = CELLS[self.cell], len(self.reverse)
        message = f"Recurrent: a layer of {self.cell} with {', '.join(map(str, inputs))}"
        ranks, types = [4, 5, 1, *[3] * cell.states], [F32, F32, I64, *[F32] * cell.states]
        if [each.rank for each in inputs] != ranks or [each.dtype for each in inputs] != types or not directions:
            raise ShapeError(message)
        (steps, batch, _, _), hidden = inputs[0].shape, inputs[3].shape[2]
        shapes = [
            (steps, batch, directions, cell.gates * hidden),
            (directions, ceil_div(hidden, UNITS), hidden + 1, cell.gates, UNITS),
            (batch,),
            *[(directions, batch, hidden)] * cell.states,
        ]
        pairs = [
            pair for each, shape in zip(inputs, shapes, strict=True) for pair in zip(each.shape, shape, strict=True)
        ]
        if differ := [(found, size) for found, size in pairs if found != size]:
            raise ShapeError(message, differ)
        return (TensorType(F32, (steps + cell.states, directions, batch, hidden)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """In float32, but for the functions of gates."""
        gates, weights, lengths, *first = inputs
        cell, (steps, batch, directions, _), hidden = CELLS[self.cell], gates.shape, first[0].shape[2]
        result = np.zeros((steps + cell.states, directions, batch, hidden), F32)
        rows = weights.transpose(0, 2, 3, 1, 4).reshape(directions, hidden + 1, cell.gates, -1)[..., :hidden]
        for direction, which in np.ndindex(directions, batch):
            states = [each[direction, which] for each in first]
            order = range(int(lengths[which]))

            def part(state: np.ndarray, begin: int, end: int, own: np.ndarray = rows[direction]) -> np.ndarray:
                found: np.ndarray = np.tensordot(state, own[:-1, begin:end], 1) + own[-1, begin:end]
                return found

            for step in reversed(order) if self.reverse[direction] else order:
                states = cell.step(gates[step, which, direction].reshape(cell.gates, hidden), part, *states)
                result[step, direction, which] = states[0]
            result[steps:, direction, which] = states
        return (result,)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """A sequence after the other, in one direction after the other."""
        steps, batch, directions, _ = inputs[0].shape
        sizes = (steps, batch, directions, inputs[3].shape[2], tuple(map(int, self.reverse)))
        return Routine("recurrent", self.cell, (), sizes)


def packed(emit: Emit, weights: Value, bias: Value, gates: int) -> Value:
    """The weights of a layer's states, [directions, gates * hidden, hidden], and what is added to what they make, [directions,
    gates * hidden], in the order in which steps read them: those of all gates of UNITS together, which are 0 where there are no
    more, for a state after the other, and then what is added."""
    directions, _, hidden = weights.shape
    together = ceil_div(hidden, UNITS)
    rows = emit(Reshape((directions, hidden, gates, hidden)), emit(Transpose((0, 2, 1)), weights))
    whole = emit(Concat(1), rows, emit(Reshape((directions, 1, gates, hidden)), bias))
    padded = emit(Pad((0, 0, 0, 0), (0, 0, 0, UNITS * together - hidden)), whole)
    panels = emit(Reshape((directions, hidden + 1, gates, together, UNITS)), padded)
    return emit(Transpose((0, 3, 1, 2, 4)), panels)
