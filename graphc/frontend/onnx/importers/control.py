"""Branches and loops: those whose course is known are imported in place, others as graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx_ir

from graphc.errors import ModelError
from graphc.frontend.onnx.bodies import Bind, ImportedBody, finish_loop, new_size, scalar
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.frame import Growing, Item, Slices, ValueList, tensors
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.frontend.onnx.tensors import Refused, Unknown
from graphc.ir import TensorType, Value
from graphc.ir.graph import names_in
from graphc.ir.types import BOOL, I64
from graphc.ops.base import normalize_axis
from graphc.ops.control import FOREVER, Body, If
from graphc.ops.indexing import Gather
from graphc.ops.movement import Concat, Expand, Slice, Transpose
from graphc.ops.pointwise import Binary
from graphc.shapes import Dim, product

UNROLLED = 16
"""Steps of a loop that is written out."""

MOST_UNROLLED = 4096
"""The same for one that cannot be repeated, because its sizes depend on the step."""

ROUNDS = 8
"""How often a loop's body is imported until the sizes that change from step to step are found."""


@onnx_op("If")
def if_(node: OnnxNode, emit: SizeEmit) -> tuple[Item | None, ...]:
    """The branch that a known condition takes, else both."""
    condition = node.input(0)
    known = emit.known(condition)
    if known is not None:
        if known.size != 1:
            raise ModelError(f"its condition has {known.size} elements, not one")
        return node.run(node.graph("then_branch" if known.item() else "else_branch"), ())
    try:
        branches = [node.body(node.graph(name), (), None) for name in ("then_branch", "else_branch")]
    except Refused as refused:  # for a run in which the other branch is taken, the model may do
        raise Unknown(refused.reason, refused.help) from refused
    captured = list(dict.fromkeys(value for branch in branches for value in branch.captured))
    for branch in branches:
        branch.take_all(captured)
    for number, pair in enumerate(zip(*(branch.results for branch in branches), strict=True)):
        shapes = [item.shape for item in pair if isinstance(item, Value)]
        for branch, item in zip(branches, pair, strict=True):
            if isinstance(item, Value):
                branch.results[number] = as_number(branch.emit, item, min(shapes, key=len))
    given = [declared(branch) for branch in branches]
    if emit.is_of_sizes(condition) and any(first.rank != second.rank for first, second in zip(*given, strict=True)):
        return _squeezed(node, emit, sum(type.rank for type in given[0]) < sum(type.rank for type in given[1]))
    inner = branches[0].sizes | branches[1].sizes
    types = [common(emit, pair, inner) for pair in zip(*given, strict=True)]
    results = tuple(type for type, _ in types)
    then_body, else_body = (Body(branch.graph) for branch in branches)
    op = If(then_body, else_body, results, tuple(name for _, new in types for name in new))
    return emit.all(op, scalar(emit, condition), *captured)


def as_number(emit: SizeEmit, value: Value, shape: tuple[Dim, ...]) -> Value:
    """A single element in this shape, if that holds one, and anything else as it is: tools write a number with an axis of size 1
    in one branch, or after a step, and without axes in the other, or before."""
    return to_shape(emit, value, shape) if {value.type.size, product(shape)} == {1} else value


def _squeezed(node: OnnxNode, emit: SizeEmit, taken: bool) -> tuple[Item | None, ...]:
    """The branch whose results have fewer axes, where sizes say which one is taken: so PyTorch's older exporter writes `squeeze`,
    and what comes after it fits one of them. Runs with other sizes are refused."""
    emit.require(node.input(0), int(taken), f"the condition of {emit.base}")
    return node.run(node.graph("then_branch" if taken else "else_branch"), ())


@onnx_op("Loop")
def loop(node: OnnxNode, emit: SizeEmit) -> tuple[Item | None, ...]:
    """Repeated as often as the trip count and the condition say: written out where that is known and not often."""
    count, condition = node.optional(0), node.optional(1)
    trips = None if count is None else emit.known(count)
    known = (count is None or trips is not None) and (condition is None or emit.known(condition) is not None)
    short = known and trips is not None and isinstance(trips.item(), int) and trips.item() <= UNROLLED
    return first_of(emit, [unrolled, repeated] if short else [repeated, unrolled] if known else [repeated], node)


def unrolled(node: OnnxNode, emit: SizeEmit) -> tuple[Item | None, ...]:
    """Step after step. Raises Refused where the trip count or the condition is not known at each."""
    body, count, condition = node.graph("body"), node.optional(0), node.optional(1)
    steps = None if count is None else int(emit.scalar(count, "how often the loop runs"))
    going = condition is None or bool(emit.scalar(condition, "whether the loop runs"))
    carried = [_given(item) for item in node.inputs[2:]]
    columns: list[list[Value]] = [[] for _ in node.outputs[len(carried) :]]
    step = 0
    while going and (steps is None or step < steps):
        if step == MOST_UNROLLED:
            raise Refused(f"the loop runs more than {MOST_UNROLLED} times")
        place = emit.size(step)
        results = node.run(body, [place, emit.constant(True), *carried])
        if len(results) != 1 + len(carried) + len(columns):
            raise ModelError(f"its body has {len(results)} results")
        carried = list(results[1 : 1 + len(carried)])
        for column, value in zip(columns, tensors(results[1 + len(carried) :]), strict=True):
            column.append(value)
        if condition is not None or steps is None:
            going = bool(emit.scalar(tensors(results[:1])[0], "how often the loop runs"))
        step += 1
    return (*carried, *(stacked(emit, column, 0) for column in columns))


def repeated(node: OnnxNode, emit: SizeEmit) -> tuple[Item | None, ...]:
    """One body that runs again and again."""
    count, condition = node.optional(0), node.optional(1)
    trips = emit.constant(np.array(FOREVER)) if count is None else scalar(emit, count)
    going = emit.constant(True) if condition is None else scalar(emit, condition)
    return repeat(node, emit, trips, going, [_given(item) for item in node.inputs[2:]], None)


@onnx_op("Scan")
def scan(node: OnnxNode, emit: SizeEmit) -> tuple[Item | None, ...]:
    """One step for each slice of the scanned inputs."""
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
    steps = scanned[0].shape[axes[0]]

    def bind(inner: SizeEmit, given: Sequence[Value], capture: Callable[[Value], Value]) -> list[Item]:
        """A step's slices; what is scanned backward is counted from the end."""
        places = [given[0], inner(Binary("Sub"), inner.size(steps - 1), given[0])]
        slices = [
            inner(Gather(axis), capture(x), places[1 if reverse else 0])
            for x, axis, reverse in zip(scanned, axes, backward, strict=True)
        ]
        return [*given[2:], *slices]

    def by_steps(node: OnnxNode, emit: SizeEmit) -> tuple[Item | None, ...]:
        trips = emit.size(steps)
        return repeat(node, emit, trips, emit.constant(True), state, bind)

    def written_out(node: OnnxNode, emit: SizeEmit) -> tuple[Item | None, ...]:
        return _scan_steps(node, emit, state, scanned, axes, backward, steps)

    ways = [written_out, by_steps] if isinstance(steps, int) and steps <= UNROLLED else [by_steps, written_out]
    results = first_of(emit, ways, node)
    reverse = node.ints("scan_output_directions", [0] * outputs)
    along = node.ints("scan_output_axes", [0] * outputs)
    collected = [
        _reversed(emit, value, axis, bool(back))
        for value, axis, back in zip(tensors(results[len(state) :]), along, reverse, strict=True)
    ]
    return (*results[: len(state)], *collected)


def _scan_steps(
    node: OnnxNode,
    emit: SizeEmit,
    state: Sequence[Value],
    scanned: Sequence[Value],
    axes: Sequence[int],
    backward: Sequence[int],
    steps: Dim,
) -> tuple[Item | None, ...]:
    """Every step of a scan written out."""
    if not isinstance(steps, int) or steps > MOST_UNROLLED:
        raise Unknown(f"it runs {steps} times")
    columns: list[list[Value]] = [[] for _ in node.outputs[len(state) :]]
    for step in range(steps):
        places = [steps - 1 - step if reverse else step for reverse in backward]
        slices = [take(emit, x, axis, place) for x, axis, place in zip(scanned, axes, places, strict=True)]
        results = tensors(node.run(node.graph("body"), [*state, *slices]))
        state = results[: len(state)]
        for column, value in zip(columns, results[len(state) :], strict=True):
            column.append(value)
    return (*state, *(stacked(emit, column, 0) for column in columns))


def _batched_scan(node: OnnxNode, emit: SizeEmit) -> tuple[Item, ...]:
    """Opset 8: each batch (the first axis of everything) is scanned by itself, over the second axis, for all its steps."""
    refuse_unless(node.optional(0) is None, "sequences of different lengths in a Scan are not supported")
    count = node.int("num_scan_inputs")
    given = tensors(node.inputs[1:])
    states = len(given) - count
    backward = node.ints("directions", [0] * count)
    size = given[0].shape[0]
    if not isinstance(size, int):
        raise Unknown(f"the number of batches is {size}")
    batches: list[tuple[Item | None, ...]] = []
    for batch in range(size):
        parts = [take(emit, x, 0, batch) for x in given]
        scanned = parts[states:]
        batches.append(_scan_steps(node, emit, parts[:states], scanned, [0] * count, backward, scanned[0].shape[0]))
    return tuple(stacked(emit, list(tensors(parts)), 0) for parts in zip(*batches, strict=True))


def repeat(
    node: OnnxNode, emit: SizeEmit, trips: Value, going: Value, state: Sequence[Item], bind: Bind | None
) -> tuple[Item, ...]:
    """A `Loop` for the body of a node. A size of a carried value that a step changes becomes a symbol of the body. What steps
    append to a carried sequence is collected. What steps pass on as it is counts as a value of the graph around."""
    stays = set[int]() if bind is not None else _passed_on(node.graph("body"), len(state))
    values = [item for number, item in enumerate(state) if isinstance(item, Value) and number not in stays]
    carried = [value.type for value in values]
    changing: set[tuple[int, int]] = set()
    for _ in range(ROUNDS):
        types = [_with_symbols(emit, type, index, changing) for index, type in enumerate(carried)]
        given = [TensorType(I64, ()), TensorType(BOOL, ()), *types]
        body = node.body(node.graph("body"), given, partial(_from_0, bind, state, stays))
        results = [body.emit.constant(True), *body.results] if bind is not None else body.results
        if len(results) != 1 + len(node.outputs):
            raise ModelError(f"its body has {len(results)} results")
        kept, columns = results[1 : 1 + len(state)], _appended(state, results[1 : 1 + len(state)])
        after = tensors([item for number, item in enumerate(kept) if isinstance(item, Value) and number not in stays])
        steps = [as_number(body.emit, value, type.shape) for value, type in zip(after, types, strict=True)]
        if filled := [index for index, value in enumerate(steps) if _is_filler(body, index, value)]:
            _check_runs(emit, trips, going)
            for index in filled:
                values[index] = emit(Expand(steps[index].shape), emit.constant(np.zeros((), steps[index].dtype)))
                carried[index] = values[index].type
            continue
        found = changes(types, [value.type for value in steps], body.sizes)
        if found <= changing:
            break
        changing |= found
    else:
        raise Unknown("the sizes that change from step to step are not found")
    scanned = [*tensors(results[1 + len(state) :]), *(value for column in columns for value in column)]
    body.declare([scalar(body.emit, tensors(results[:1])[0]), *steps, *scanned])
    inner = names_in(tuple(types)) - names_in(tuple(carried))
    made = finish_loop(emit, body, trips, going, values, inner)
    last, whole = iter(made[: len(values)]), iter(made[len(made) - sum(map(len, columns)) :])

    def end(number: int, item: Item) -> Item:
        if isinstance(item, Value):
            return item if number in stays else next(last)
        return lengthened(emit, item, [next(whole) for _ in columns[number]])

    return (
        *(end(number, item) for number, item in enumerate(state)),
        *made[len(values) : len(node.outputs) - len(state) + len(values)],
    )


def _passed_on(body: onnx_ir.Graph, count: int) -> set[int]:
    """Which of its carried values a loop's body gives on as they are: so tools write what a step reads of the graph around."""
    found = set()
    for number, (before, after) in enumerate(zip(body.inputs[2:], body.outputs[1 : 1 + count], strict=False)):
        value: onnx_ir.Value | None = after
        while value is not None and (made := value.producer()) is not None and made.op_type == "Identity":
            value = made.inputs[0]
        if value is before:
            found.add(number)
    return found


def _is_filler(body: ImportedBody, index: int, after: Value) -> bool:
    """True if no step reads a carried value, which has another number of axes before the first: so tools write variables that
    their languages need not declare."""
    before = body.given[2 + index]
    read = before in body.results or any(before in node.inputs for node in body.emit.nodes)
    known = names_in(after.type).isdisjoint({name for node in body.emit.nodes for name in node.op.binds})
    return before.type.rank != after.type.rank and not read and known


def _check_runs(emit: SizeEmit, trips: Value, going: Value) -> None:
    """Refuse runs in which a loop makes no step."""
    some = emit(Binary("Greater"), trips, emit.constant(0, like=trips))
    emit.require(emit(Binary("And"), some, going), 1, f"whether {emit.base} makes a step")


def _appended(state: Sequence[Item], results: Sequence[Item]) -> list[tuple[Value, ...]]:
    """What a step appends to each carried sequence; nothing to a tensor. Raises Unknown where it does something else."""
    columns: list[tuple[Value, ...]] = []
    for number, (before, after) in enumerate(zip(state, results, strict=True)):
        if isinstance(before, Value) != isinstance(after, Value):
            raise ModelError("a carried sequence becomes a tensor, or the other way round")
        if not isinstance(after, Value | Growing) or (isinstance(after, Growing) and after.number != number):
            raise Unknown("a carried sequence becomes another one")
        columns.append(after.added if isinstance(after, Growing) else ())
    return columns


def lengthened(emit: SizeEmit, before: Item, columns: Sequence[Value]) -> Item:
    """A sequence after a loop; `columns` are what it appended, stacked along their first axis: one or several at each step."""
    if not columns:
        return before
    steps, *shape = columns[0].shape
    if any(column.shape != columns[0].shape for column in columns):
        raise Unknown("the tensors of a sequence that grows in a loop have different shapes")
    rows = [to_shape(emit, column, (steps, 1, *shape)) for column in columns]
    joined = rows[0] if len(rows) == 1 else emit(Concat(1), *rows)
    return joined_slices(emit, before, Slices(to_shape(emit, joined, (steps * len(rows), *shape))))


def joined_slices(emit: SizeEmit, before: Item, after: Slices) -> Slices:
    """Two sequences, one after the other. Raises Unknown where shapes differ."""
    if isinstance(before, ValueList) and not before.items:
        return after
    shapes = {value.shape for value in before.items} if isinstance(before, ValueList) else set()
    if len(shapes) <= 1 and isinstance(before, ValueList):
        before = Slices(stacked(emit, list(before.items), 0))
    if not isinstance(before, Slices) or before.whole.shape[1:] != after.whole.shape[1:]:
        raise Unknown("the tensors of a sequence that grows in a loop have different shapes")
    return Slices(emit(Concat(0), before.whole, after.whole))


def _from_0(
    bind: Bind | None,
    state: Sequence[Item],
    stays: set[int],
    inner: SizeEmit,
    given: Sequence[Value],
    capture: Callable[[Value], Value],
) -> Sequence[Item]:
    """What a body's inputs stand for: steps count from 0, sequences grow."""
    inner.at_least(given[0], 0)
    around = inner.rounds
    inner.rounds = lambda: [*around(), given[0]]
    values = iter(given[2:])
    items = [
        (capture(item) if number in stays else next(values)) if isinstance(item, Value) else Growing(number)
        for number, item in enumerate(state)
    ]
    return [*given[:2], *items] if bind is None else bind(inner, given, capture)


def first_of(
    emit: SizeEmit, ways: Sequence[Callable[[OnnxNode, SizeEmit], tuple[Item | None, ...]]], node: OnnxNode
) -> tuple[Item | None, ...]:
    """What the first of several ways to import a node gives that does not refuse. Raises the first refusal."""
    refusal: Refused | None = None
    for way in ways:
        made = len(emit.nodes)
        try:
            return way(node, emit)
        except Refused as refused:
            refusal = refusal or refused
            del emit.nodes[made:]
    assert refusal is not None
    raise refusal


def changes(before: Sequence[TensorType], after: Sequence[TensorType], inner: set[str]) -> set[tuple[int, int]]:
    """The axes of carried values (index and axis) whose sizes a step may change."""
    found = set()
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.dtype != new.dtype:
            raise ModelError(f"a carried value is {old}, and {new} after a step")
        if old.rank != new.rank:
            raise Unknown("the number of axes of a carried value changes from step to step")
        sizes = zip(old.shape, new.shape, strict=True)
        found |= {(index, axis) for axis, (a, b) in enumerate(sizes) if a != b or not names_in(b).isdisjoint(inner)}
    return found


def _with_symbols(emit: SizeEmit, type: TensorType, index: int, changing: set[tuple[int, int]]) -> TensorType:
    shape = [
        emit.dimensions.measured(f"{emit.base}_step_{index}_{axis}", 0, None) if (index, axis) in changing else size
        for axis, size in enumerate(type.shape)
    ]
    return TensorType(type.dtype, tuple(shape))


def common(emit: SizeEmit, types: Sequence[TensorType], inner: set[str]) -> tuple[TensorType, list[str]]:
    """A type for values of either branch, and the symbols of the sizes in which they differ."""
    first, second = types
    if first.dtype != second.dtype:
        raise ModelError(f"its branches give {first} and {second}")
    if first.rank != second.rank:
        raise Unknown("the number of axes of its result depends on the condition")
    shape, new = list(first.shape), list[str]()
    for axis, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)):
        if a != b or not names_in(a).isdisjoint(inner):
            shape[axis] = new_size(emit, str(axis), new)
    return TensorType(first.dtype, tuple(shape)), new


def declared(body: ImportedBody) -> list[TensorType]:
    """The types of a body's results, which become its graph's outputs. Raises Unknown for a sequence."""
    if not all(isinstance(item, Value) for item in body.results):
        raise Unknown("its result is a sequence, or an optional without a value")
    body.declare(list(tensors(body.results)))
    return [value.type for value in body.graph.outputs]


def _given(item: Item | None) -> Item:
    if item is None:
        raise ModelError("a value that the loop carries is missing")
    return item


def _reversed(emit: SizeEmit, value: Value, axis: int, backward: bool) -> Value:
    """What a scan collected along its first axis, in the order and along the axis that is asked for."""
    rank = value.type.rank
    value = backwards(emit, value) if backward else value
    axis = normalize_axis(axis, rank)
    order = (*range(1, axis + 1), 0, *range(axis + 1, rank))
    return value if axis == 0 else emit(Transpose(order), value)


def backwards(emit: SizeEmit, value: Value) -> Value:
    """The same in the other order along the first axis."""
    others = value.type.rank - 1
    return emit(Slice((value.shape[0] - 1, *[0] * others), value.shape, (-1, *[1] * others)), value)


def take(emit: SizeEmit, x: Value, axis: int, place: Dim) -> Value:
    """The slice at one place of an axis, without that axis."""
    return to_shape(emit, cut(emit, x, axis, place, 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


def stacked(emit: SizeEmit, values: list[Value], axis: int) -> Value:
    """Tensors of one shape along a new axis."""
    refuse_unless(bool(values), "the loop does not run, so the shape of what it collects is not known")
    axis = normalize_axis(axis, values[0].type.rank + 1)
    rows = [to_shape(emit, x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in values]
    return rows[0] if len(rows) == 1 else emit(Concat(axis), *rows)
