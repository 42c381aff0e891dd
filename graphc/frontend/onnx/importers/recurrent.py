"""Recurrent layers: a loop over the steps, written out where they are known and few; but those of most layers are one operator.

The input's part of every gate is one matrix product for all steps; a step adds the state's part. Steps after the end of a
shorter sequence of the batch leave its state as it is, and their output is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.bodies import ImportedBody, finish_loop
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.control import backwards, stacked, take
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import TensorType, Value
from graphc.ir.types import BOOL, F32, I64
from graphc.ops.activations import Clip, all_activations
from graphc.ops.base import Op
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.recurrent import CELLS as OWN_CELLS
from graphc.ops.recurrent import Recurrent, packed
from graphc.ops.sequences import Range
from graphc.shapes import is_static

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

GATES = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu")
"""Functions of gates, whose names may be written in any case; Affine and ScaledTanh are not there."""

UNROLLED = 64
"""Steps of a layer that is written out."""


@dataclass(frozen=True)
class Cell:
    """What kinds of layers differ in: the number of gates, their functions, and one step from states to states.

    `step(layer, x, states)` gets the input's part of all gates [batch, gates * hidden] and returns the new states, the
    first of which is the output.
    """

    gates: int
    functions: tuple[str, ...]
    states: int
    step: Callable[[Layer, Value, list[Value]], list[Value]]


class Layer:
    """One direction of a layer: its weights, and arithmetic with them. `held` are the names of its values."""

    held: tuple[str, ...] = ("weight", "recurrence", "bias", "peepholes")
    hidden_axis = 2

    def __init__(self, node: OnnxNode, emit: SizeEmit, cell: Cell, direction: int, functions: Sequence[Op]) -> None:
        self.emit, self.functions, self.node = emit, functions, node
        self.hidden = hidden_size(node, self.hidden_axis)
        self.cell = cell
        self.weight, self.recurrence = (take(emit, node.input(index), 0, direction) for index in (1, 2))
        bias, peepholes = node.optional(3), node.optional(7) if cell.states == 2 else None
        self.bias = None if bias is None else take(emit, bias, 0, direction)
        self.peepholes = None if peepholes is None else take(emit, peepholes, 0, direction)
        self.clip = node.float("clip", None)

    def inside(self, body: ImportedBody) -> Layer:
        """The same layer in a loop's body."""
        inner = copy(self)
        inner.emit = body.emit
        for name in self.held:
            value = getattr(self, name)
            setattr(inner, name, None if value is None else body.capture(value))
        return inner

    def product(self, name: str, x: Value, first: int, count: int) -> Value:
        """The part of some gates that the weights of this name make of x."""
        return self.emit(MatMul(transpose_b=True), x, self.part(getattr(self, name), first, count))

    def inputs(self, x: Value) -> Value:
        """[steps, batch, features] -> the input's part of all gates, with its bias."""
        product = self.product("weight", x, 0, self.cell.gates)
        return product if self.bias is None else self.add(product, self.part(self.bias, 0, self.cell.gates))

    def part(self, values: Value, first: int, count: int = 1) -> Value:
        """Some gates of what has all of them along its first axis."""
        return cut(self.emit, values, 0, first * self.hidden, count * self.hidden)

    def gate(self, values: Value, index: int) -> Value:
        """One gate of [batch, gates * hidden]."""
        return cut(self.emit, values, 1, index * self.hidden, self.hidden)

    def recur(self, state: Value, first: int, count: int) -> Value:
        """The state's part of some gates, with its bias."""
        product = self.product("recurrence", state, first, count)
        if self.bias is None:
            return product
        return self.add(product, self.part(self.bias, self.cell.gates + first, count))

    def function(self, index: int, x: Value) -> Value:
        """A gate's function, after clipping."""
        return self.emit(self.functions[index], self.emit(Clip(-self.clip, self.clip), x) if self.clip else x)

    def peep(self, x: Value, state: Value, index: int) -> Value:
        """x and what a gate sees of the cell's state."""
        return x if self.peepholes is None else self.add(x, self.mul(state, self.part(self.peepholes, index)))

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        return self.emit(Binary("Add"), a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """a * b."""
        return self.emit(Binary("Mul"), a, b)

    def rest(self, a: Value) -> Value:
        """1 - a."""
        return self.emit(Binary("Sub"), self.emit.constant(1.0, like=a), a)


def _rnn(layer: Layer, x: Value, states: list[Value]) -> list[Value]:
    return [layer.function(0, layer.add(x, layer.recur(states[0], 0, 1)))]


def _gru(layer: Layer, x: Value, states: list[Value]) -> list[Value]:
    """Gates: update, reset, hidden."""
    (state,) = states
    both = layer.recur(state, 0, 2)
    update = layer.function(0, layer.add(layer.gate(x, 0), layer.gate(both, 0)))
    reset = layer.function(0, layer.add(layer.gate(x, 1), layer.gate(both, 1)))
    if layer.node.int("linear_before_reset", 0):
        hidden = layer.mul(reset, layer.recur(state, 2, 1))
    else:
        hidden = layer.recur(layer.mul(reset, state), 2, 1)
    hidden = layer.function(1, layer.add(layer.gate(x, 2), hidden))
    return [layer.add(layer.mul(layer.rest(update), hidden), layer.mul(update, state))]


def _lstm(layer: Layer, x: Value, states: list[Value]) -> list[Value]:
    """Gates: input, output, forget, cell; peepholes: input, output, forget."""
    state, cell = states
    gates = layer.add(x, layer.recur(state, 0, 4))
    taken = layer.function(0, layer.peep(layer.gate(gates, 0), cell, 0))
    if layer.node.int("input_forget", 0):
        kept = layer.rest(taken)
    else:
        kept = layer.function(0, layer.peep(layer.gate(gates, 2), cell, 2))
    fresh = layer.function(1, layer.gate(gates, 3))
    cell = layer.add(layer.mul(kept, cell), layer.mul(taken, fresh))
    shown = layer.function(0, layer.peep(layer.gate(gates, 1), cell, 1))
    return [layer.mul(shown, layer.emit(layer.functions[2], cell)), cell]


CELLS = {
    "RNN": Cell(1, ("Tanh",), 1, _rnn),
    "GRU": Cell(3, ("Sigmoid", "Tanh"), 1, _gru),
    "LSTM": Cell(4, ("Sigmoid", "Tanh", "Tanh"), 2, _lstm),
}


@onnx_op(*CELLS)
def recurrent(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """All outputs [steps, directions, batch, hidden], and the last states; with layout 1 the batch comes first."""
    return layers(node, emit, CELLS[node.operator], Layer)


def layers(node: OnnxNode, emit: SizeEmit, cell: Cell, kind: type[Layer]) -> tuple[Value, ...]:
    """The outputs of a layer of some kind, in all directions."""
    batch_first = node.int("layout", 0) == 1
    x = node.input(0)
    if x.type.rank != 3 or node.input(1).type.rank != 3 or node.input(2).type.rank != 3:
        raise ModelError(f"a recurrent layer of {x.type}")
    x = emit(Transpose((1, 0, 2)), x) if batch_first else x
    refuse_unless(x.shape[0] != 0, "it has no steps")
    backward = DIRECTIONS[node.choice("direction", "forward", tuple(DIRECTIONS))]
    functions = _functions(node, cell, len(backward))
    usual = _usual(node, cell, functions, x) if kind is Layer else ""
    if usual:
        whole, ends = _together(node, emit, usual, x, backward, batch_first)
    else:
        whole, ends = _apart([kind(node, emit, cell, *each) for each in enumerate(functions)], x, backward, batch_first)
    if batch_first:
        whole = emit(Transpose((2, 0, 1, 3)), whole)
        ends = [emit(Transpose((1, 0, 2)), end) for end in ends]
    return whole, *ends


def _apart(every: Sequence[Layer], x: Value, backward: Sequence[bool], batch_first: bool) -> tuple[Value, list[Value]]:
    """The outputs of all steps, and the states after the last one, of each direction by itself, written out or as a loop."""
    emit = every[0].emit
    run = _unrolled if isinstance(x.shape[0], int) and x.shape[0] <= UNROLLED else _repeated
    found = [
        run(layer, x, _initial(layer, x, direction, batch_first), reverse)
        for direction, (layer, reverse) in enumerate(zip(every, backward, strict=True))
    ]
    ends = [stacked(emit, list(states), 0) for states in zip(*(states for _, states in found), strict=True)]
    return stacked(emit, [rows for rows, _ in found], 1), ends


def _functions(node: OnnxNode, cell: Cell, directions: int) -> list[list[Op]]:
    """The functions of each direction. Alphas and betas are given in order to those functions that have them."""
    attribute = node.attributes.get("activations")
    names = [str(name) for name in attribute.value] if attribute is not None else list(cell.functions) * directions
    if len(names) != len(cell.functions) * directions:
        raise ModelError(f"{len(names)} activations for {directions} directions")
    given = {name: iter(node.floats(f"activation_{name}", [])) for name in ("alpha", "beta")}
    known = {name.lower(): name for name in GATES}
    found = []
    for name in (each.lower() for each in names):
        refuse_unless(name in known, f"the activation {name} is not supported")
        op = all_activations().get(known[name])
        settings = {} if op is None else {key: next(given[key], usual) for key, usual in op.usual().items()}
        found.append(Unary(known[name]) if op is None else op(**settings))
    count = len(cell.functions)
    return [found[start : start + count] for start in range(0, len(found), count)]


def _initial(layer: Layer, x: Value, direction: int, batch_first: bool) -> list[Value]:
    """The states before the first step: given ones, or 0."""
    states = []
    for index in range(layer.cell.states):
        given = layer.node.optional(5 + index)
        if given is None:
            zero = layer.emit.constant(0.0, like=x)
            states.append(layer.emit(Expand((x.shape[1], layer.hidden)), zero))
        else:
            states.append(take(layer.emit, given, 1 if batch_first else 0, direction))
    return states


def _usual(node: OnnxNode, cell: Cell, functions: Sequence[Sequence[Op]], x: Value) -> str:
    """The cell by which an operator of ours computes the layer; none unless its functions are those of most, in float32."""
    linear = bool(node.int("linear_before_reset", 0))
    known = {
        (4, *map(Unary, ("Sigmoid", "Tanh", "Tanh"))): "lstm",
        (3, *map(Unary, ("Sigmoid", "Tanh"))): "linear_gru" if linear else "gru",
        (1, Unary("Tanh")): "rnn_of_tanh",
        (1, Unary("Relu")): "rnn_of_relu",
    }
    more = node.float("clip", None) or (cell.states == 2 and (node.int("input_forget", 0) or node.optional(7)))
    alike = all(each == functions[0] for each in functions)
    return known.get((cell.gates, *functions[0]), "") if alike and not more and x.dtype == F32 else ""


def _together(
    node: OnnxNode, emit: SizeEmit, name: str, x: Value, backward: Sequence[bool], batch_first: bool
) -> tuple[Value, list[Value]]:
    """The outputs of all steps in all directions, and the states after the last one: by one operator."""
    (steps, batch, features), directions, cell = x.shape, len(backward), OWN_CELLS[name]
    hidden = hidden_size(node, Layer.hidden_axis)
    wide = cell.gates * hidden
    rows = to_shape(emit, x, (steps * batch, features))  # of one matrix, not of one for each step
    gates = emit(MatMul(transpose_b=True), rows, to_shape(emit, node.input(1), (directions * wide, features)))
    bias = node.optional(3)
    if bias is None:
        bias = emit(Expand((directions, 2 * wide)), emit.constant(0.0, like=x))
    else:
        gates = emit(Binary("Add"), gates, to_shape(emit, cut(emit, bias, 1, 0, wide), (directions * wide,)))
    gates = to_shape(emit, gates, (steps, batch, directions, wide))
    weights = packed(emit, node.input(2), cut(emit, bias, 1, wide, wide), cell.gates)
    ends = _ends(node, emit)
    lengths = emit(Expand((batch,)), emit.size(steps)) if ends is None else to_shape(emit, ends, (batch,))
    states = []
    for index in range(cell.states):
        given = node.optional(5 + index)
        if given is None:
            given = emit(Expand((directions, batch, hidden)), emit.constant(0.0, like=x))
        elif batch_first:
            given = emit(Transpose((1, 0, 2)), given)
        states.append(given)
    found = emit(Recurrent(name, tuple(backward)), gates, weights, lengths, *states)
    return cut(emit, found, 0, 0, steps), [take(emit, found, 0, steps + index) for index in range(cell.states)]


def _unrolled(layer: Layer, x: Value, states: list[Value], reverse: bool) -> tuple[Value, list[Value]]:
    """The output of every step, in the order of the input, and the states after the last one."""
    emit, prepared, ends = layer.emit, layer.inputs(x), _ends(layer.node, layer.emit)
    rows: dict[int, Value] = {}
    steps = range(fixed_size(x.shape[0], "the number of steps"))
    for step in reversed(steps) if reverse else steps:
        place = emit.constant(np.array(step))
        rows[step], states = _step(layer, take(emit, prepared, 0, step), states, place, ends)
    return stacked(emit, [rows[step] for step in steps], 0), states


def _repeated(layer: Layer, x: Value, states: list[Value], reverse: bool) -> tuple[Value, list[Value]]:
    """The same as a loop."""
    emit, prepared, ends, steps = layer.emit, layer.inputs(x), _ends(layer.node, layer.emit), x.shape[0]
    types = [TensorType(I64, ()), TensorType(BOOL, ()), *(state.type for state in states)]
    body = ImportedBody.opened(emit, ["step", "going", *(f"state{i}" for i in range(len(states)))], types)
    inner, place = body.emit, body.given[0]
    if reverse:
        place = inner(Binary("Sub"), inner.size(steps - 1), place)
    fresh_x = inner(Gather(0), body.capture(prepared), place)
    lengths = None if ends is None else body.capture(ends)
    row, fresh = _step(layer.inside(body), fresh_x, body.given[2:], place, lengths)
    body.declare([inner.constant(True), *fresh, row])
    trips = emit.size(steps)
    *last, rows = finish_loop(emit, body, trips, emit.constant(True), states, set())
    return backwards(emit, rows) if reverse else rows, last


def _step(layer: Layer, x: Value, states: list[Value], place: Value, ends: Value | None) -> tuple[Value, list[Value]]:
    """One step's output and the states after it; past its end, a sequence keeps its states and gives 0."""
    emit, fresh = layer.emit, layer.cell.step(layer, x, states)
    if ends is None:
        return fresh[0], fresh
    inside = emit(Binary("Less"), place, ends)
    row = emit(Where(), inside, fresh[0], emit.constant(0.0, like=x))
    return row, [emit(Where(), inside, new, old) for new, old in zip(fresh, states, strict=True)]


def hidden_size(node: OnnxNode, axis: int) -> int:
    """How many elements a state has, by an axis of its weights for all directions."""
    found = fixed_size(node.input(2).shape[axis], "the hidden size")
    if node.int("hidden_size", found) != found:
        raise ModelError(f"attribute hidden_size is {node.int('hidden_size')}, the weights are for {found}")
    return found


def _ends(node: OnnxNode, emit: SizeEmit) -> Value | None:
    """The lengths of the sequences [batch, 1], or None if all are whole. A run with others than there can be fails."""
    lengths, steps = node.optional(4), node.input(0).shape[1 if node.int("layout", 0) == 1 else 0]
    if lengths is None:
        return None
    known = emit.known(lengths)
    if known is not None and is_static(steps, *known.reshape(-1).tolist()):
        if known.min(initial=0) < 0 or known.max(initial=0) > steps:
            raise ModelError(f"lengths {known.tolist()} of sequences of {steps} steps")
        return to_shape(emit, emit(Cast(I64), lengths), (*lengths.shape, 1))
    ends = emit(Cast(I64), lengths)
    outside = emit(Binary("Less"), ends, emit.constant(np.array(0)))
    # Gather takes negative numbers, but none from the end on.
    place = emit(Where(), outside, emit.size(steps + 1), ends)
    return to_shape(emit, emit(Gather(0), emit(Range(0, steps + 1, 1, I64)), place), (*lengths.shape, 1))
