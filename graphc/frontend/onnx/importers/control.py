"""Branches and loops whose course is known while importing: the branch taken, and loops unrolled."""

from __future__ import annotations

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.frame import Item, tensors
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.frontend.onnx.tensors import Refused
from graphc.ir import Value
from graphc.ops.base import normalize_axis
from graphc.ops.movement import Concat

MAX_STEPS = 4096


@onnx_op("If")
def if_(node: OnnxNode, emit: SizeEmit) -> tuple[Item, ...]:
    """The branch that a known condition takes."""
    condition = emit.scalar(node.input(0), "which branch is taken")
    return node.run(node.graph("then_branch" if condition else "else_branch"), ())


@onnx_op("Loop")
def loop(node: OnnxNode, emit: SizeEmit) -> tuple[Item, ...]:
    """Repeated as often as the trip count and the condition say, both of which must be known at each step."""
    body = node.graph("body")
    count, condition = node.optional(0), node.optional(1)
    steps = None if count is None else int(emit.scalar(count, "how often the loop runs"))
    going = condition is None or bool(emit.scalar(condition, "whether the loop runs"))
    carried = [_given(item) for item in node.inputs[2:]]
    columns: list[list[Value]] = [[] for _ in node.outputs[len(carried) :]]
    step = 0
    while going and (steps is None or step < steps):
        if step == MAX_STEPS:
            raise Refused(f"the loop runs more than {MAX_STEPS} times")
        keep: list[Item] = [emit.sizes([step]), emit.constant(True)]
        keep[0] = to_shape(emit, tensors(keep)[0], ())
        results = node.run(body, [*keep, *carried])
        if len(results) != 1 + len(carried) + len(columns):
            raise ModelError(f"its body has {len(results)} results")
        carried = list(results[1 : 1 + len(carried)])
        for column, value in zip(columns, tensors(results[1 + len(carried) :]), strict=True):
            column.append(value)
        if condition is not None or steps is None:
            going = bool(emit.scalar(tensors(results[:1])[0], "how often the loop runs"))
        step += 1
    return (*carried, *(stacked(emit, column, 0) for column in columns))


@onnx_op("Scan")
def scan(node: OnnxNode, emit: SizeEmit) -> tuple[Item, ...]:
    """One step for each slice of the scanned inputs, whose number must be known."""
    if node.opset < 9:
        return _batched_scan(node, emit)
    count = node.int("num_scan_inputs")
    state = list(tensors(node.inputs[: len(node.inputs) - count]))
    scanned = tensors(node.inputs[len(node.inputs) - count :])
    outputs = len(node.outputs) - len(state)
    if count < 1 or outputs < 0:
        raise ModelError(f"{count} scanned inputs and {outputs} scanned outputs")
    axes = [
        normalize_axis(a, x.type.rank) for a, x in zip(node.ints("scan_input_axes", [0] * count), scanned, strict=True)
    ]
    backward = node.ints("scan_input_directions", [0] * count)
    steps = fixed_size(scanned[0].shape[axes[0]], "the number of steps")
    refuse_unless(steps <= MAX_STEPS, f"it runs {steps} times")
    columns: list[list[Value]] = [[] for _ in range(outputs)]
    for step in range(steps):
        places = [steps - 1 - step if reverse else step for reverse in backward]
        slices = [take(emit, x, axis, place) for x, axis, place in zip(scanned, axes, places, strict=True)]
        results = tensors(node.run(node.graph("body"), [*state, *slices]))
        state = list(results[: len(state)])
        for column, value in zip(columns, results[len(state) :], strict=True):
            column.append(value)
    reverse = node.ints("scan_output_directions", [0] * outputs)
    along = node.ints("scan_output_axes", [0] * outputs)
    ordered = [column[::-1] if back else column for column, back in zip(columns, reverse, strict=True)]
    return (*state, *(stacked(emit, column, axis) for column, axis in zip(ordered, along, strict=True)))


def _batched_scan(node: OnnxNode, emit: SizeEmit) -> tuple[Item, ...]:
    """Opset 8: each batch (the first axis of everything) is scanned by itself, over the second axis, for all its steps."""
    refuse_unless(node.optional(0) is None, "sequences of different lengths in a Scan are not supported")
    count = node.int("num_scan_inputs")
    given = tensors(node.inputs[1:])
    states = len(given) - count
    backward = node.ints("directions", [0] * count)
    batches: list[list[Value]] = []
    for batch in range(fixed_size(given[0].shape[0], "the number of batches")):
        parts = [take(emit, x, 0, batch) for x in given]
        state, scanned = parts[:states], parts[states:]
        steps = fixed_size(scanned[0].shape[0], "the number of steps")
        refuse_unless(steps <= MAX_STEPS, f"it runs {steps} times")
        columns: list[list[Value]] = [[] for _ in node.outputs[states:]]
        for step in range(steps):
            places = [steps - 1 - step if reverse else step for reverse in backward]
            slices = [take(emit, x, 0, place) for x, place in zip(scanned, places, strict=True)]
            results = tensors(node.run(node.graph("body"), [*state, *slices]))
            state = list(results[:states])
            for column, value in zip(columns, results[states:], strict=True):
                column.append(value)
        batches.append([*state, *(stacked(emit, column, 0) for column in columns)])
    return tuple(stacked(emit, list(parts), 0) for parts in zip(*batches, strict=True))


def _given(item: Item | None) -> Item:
    if item is None:
        raise ModelError("a value that the loop carries is missing")
    return item


def take(emit: SizeEmit, x: Value, axis: int, place: int) -> Value:
    """The slice at one place of an axis, without that axis."""
    return to_shape(emit, cut(emit, x, axis, place, 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


def stacked(emit: SizeEmit, values: list[Value], axis: int) -> Value:
    """Tensors of one shape along a new axis."""
    refuse_unless(bool(values), "the loop does not run, so the shape of what it collects is not known")
    axis = normalize_axis(axis, values[0].type.rank + 1)
    rows = [to_shape(emit, x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in values]
    return rows[0] if len(rows) == 1 else emit(Concat(axis), *rows)
