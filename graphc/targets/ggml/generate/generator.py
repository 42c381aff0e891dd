"""Makes kernels: what fills buffers, and the calls of the new program that launch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias
from typing import cast as typed

import numpy as np

from graphc.ir.types import F16, F32, TensorType
from graphc.kernels.gpu.candidates import Sizes
from graphc.kernels.gpu.evaluate import KernelFault
from graphc.kernels.gpu.forms import CUDA, Form, Rendered
from graphc.kernels.gpu.schedule import Schedule
from graphc.kernels.gpu.scheduling import Scheduling
from graphc.kernels.gpu.skeletons.pointwise import always_computed, pointwise
from graphc.kernels.gpu.skeletons.reduction import Stage, WrittenRows, reduction
from graphc.kernels.gpu.tile import TileKernel
from graphc.kernels.gpu.tile import index as scalar
from graphc.kernels.nest import Nest, Rewrite, extent, merged, name, rewritten, rows, walk
from graphc.kernels.scalar import Scalar, constant, make, variable
from graphc.shapes import Dim, product
from graphc.targets.ggml.generate.arrays import (
    KERNELS_LAST,
    PLAIN,
    ZERO,
    Array,
    Buffer,
    Index,
    K,
    Order,
    buffers_of,
    computed,
    flat,
    unflat,
    variables,
)
from graphc.targets.ggml.program.launch import (
    COUNTERS_TENSOR,
    LAUNCH,
    RESULT_TENSOR,
    SCRATCH_TENSOR,
    Choice,
    Launch,
    Launches,
)
from graphc.targets.ggml.program.program import Call, Packing, Program, Weight
from graphc.targets.ggml.program.tensor import STORAGE, Quad, Tensor, checked, dense

MOST_BUFFERS = 8
"""What a kernel reads at most: ggml's nodes have ten sources."""


def same(value: Scalar) -> Scalar:
    """The value itself."""
    return value


class ColumnStage(NamedTuple):
    """How a number is taken of what value, for an index, a column and the numbers of stages before; and what becomes of it."""

    kind: Literal["sum", "max"]
    value: Callable[..., Scalar]
    finish: Callable[[Scalar], Scalar] = same


def stage_of(stage: ColumnStage, ne: Quad, buffers: Sequence[Buffer]) -> Stage:
    """A stage of a kernel that reads buffers, for the lines of an index."""

    def at(line: Scalar, column: Scalar, *before: Scalar) -> Scalar:
        return normal(numbered(stage.value(unflat(line, ne), column, *before), buffers))

    return Stage(stage.kind, at, stage.finish)


@dataclass(frozen=True)
class Lines:
    """How the elements of an array are shared out among lines, of each of which numbers are taken: the sizes of a line's index,
    the columns of each, and the index of an element for a line's and a column. Lines of unknown size may be few and `long`."""

    ne: Quad
    columns: Dim
    place: Callable[[Index, Scalar], Index]
    long: bool = False

    @staticmethod
    def rows(ne: Quad) -> Lines:
        """The rows of ggml's."""
        return Lines((1, *ne[1:]), ne[0], lambda at, column: (column, *at[1:]))


class NotGenerated(Exception):
    """No kernel can be generated for this; ggml computes it."""


class Generator:
    """Adds calls to a program. `scope` and `source` are those of the call that is at hand, and `narrow` says whether its result
    is stored as products read it (`narrow.py`); `kernels` are those of all programs that belong together, by their names, which
    `names` has by what they are called at first, and their texts; `written` has them by what they are written of. `reads` counts
    how often each weight is read. If it is `fast`, products are of float16, added in float32, where the `form` has them.
    `scheduling` names the schedules of contractions; without, the form's fixed rules do."""

    def __init__(
        self, program: Program, kernels: dict[str, Rendered], names: dict[tuple[str, str | bytes], str],
        written: dict[TileKernel, Rendered], reads: Mapping[int, int], fast: bool, scheduling: Scheduling | None = None,
        form: Form = CUDA,
    ) -> None:  # fmt: skip
        self.program, self.kernels, self.names, self.written, self.reads = program, kernels, names, written, reads
        self.form, self.fast, self.scheduling = form, fast and form.is_narrow, scheduling
        self.scope: tuple[str, ...] = ()
        self.source = ""
        self.narrow = False
        self.unfinished: dict[Buffer, Unfinished] = {}
        self.made: dict[tuple[int, Order], tuple[Array, Buffer]] = {}
        self.narrow_arrays: dict[int, tuple[Array, Array]] = {}

    # Buffers

    def stored(self, array: Array, order: Order | None = None) -> Array:
        """The same elements in memory; in an order of axes, or in any."""
        if array.buffer is not None and (order is None or same_place(array.buffer, order)):
            self.finish(array.buffer)
            return array
        if order is not None and (packed := self.packed(array, order, array.dtype)):
            return packed
        key = id(array), order or PLAIN
        if key not in self.made:
            self.made[key] = array, self.pointwise(array, order or natural_order(array))
        return Array.of(self.made[key][1])

    def packed(self, array: Array, order: Order, dtype: np.dtype) -> Array | None:
        """A weight that nothing else reads, which is brought to the device in another order of its axes, or as a type that is no
        larger; None if it is none."""
        found = self._plain_weight(array, dtype)
        if found is None or (rank := len(found[1].shape)) > 4:
            return None
        packing = Packing(tuple(rank - 1 - axis for axis in order if axis < rank), dtype)
        return self._brought(*found, packing, array.ne, order)

    def of_doubled(self, kernel: Array) -> Array | None:
        """A kernel of 3 x 3 that nothing else reads as those for an image that is not doubled yet, [2, 2, C, 4 * C_out], which
        are brought to the device in its place; None if it is none."""
        found = self._plain_weight(kernel, self.multiplied)
        if found is None or len(found[1].shape) != 4 or kernel.ne[:2] != (3, 3):
            return None
        packing = Packing((0, 2, 3, 1), self.multiplied, of_doubled=True)
        return self._brought(*found, packing, (2, 2, kernel.ne[2], 4 * kernel.ne[3]), KERNELS_LAST)

    def _plain_weight(self, array: Array, dtype: np.dtype) -> tuple[Buffer, Weight] | None:
        """The buffer of a weight that nothing else reads, as it is stored, in a type that is no smaller; None if it is none."""
        buffer = array.buffer
        weight = None if buffer is None or buffer.tensor.weight < 0 else self.program.weights[buffer.tensor.weight]
        if buffer is None or weight is None or self.reads[buffer.tensor.weight] != 1 or weight.packing is not None:
            return None
        stored = weight.stored.dtype
        plain = buffer.order == PLAIN and buffer.dtype == stored and dtype.itemsize <= stored.itemsize
        return (buffer, weight) if plain else None

    def _brought(self, buffer: Buffer, weight: Weight, packing: Packing, ne: Quad, order: Order) -> Array:
        """What is brought to the device in a weight's place."""
        tensor = dense(STORAGE[packing.dtype], (product(ne), 1, 1, 1), 1, weight=buffer.tensor.weight)
        self.program.weights[buffer.tensor.weight] = replace(weight, tensor=tensor, packing=packing)
        return Array.of(Buffer(tensor, packing.dtype, ne, order))

    @property
    def multiplied(self) -> np.dtype:
        """The type of the numbers that are multiplied."""
        return F16 if self.fast else F32

    def operand(self, array: Array, order: Order) -> Array:
        """What products multiply of an array: its numbers in the type that they are multiplied in. Weights are brought so."""
        packed = array.dtype != self.multiplied and self.packed(array, order, self.multiplied)
        return packed or self.narrowed(array)

    def narrowed(self, array: Array) -> Array:
        """The numbers of an array in the type that they are multiplied in."""
        dtype = self.multiplied
        if array.dtype == dtype:
            return array
        if id(array) not in self.narrow_arrays:
            narrowed = computed(array.ne, [array], lambda at: cast(array.element(at), dtype), 1, dtype)
            self.narrow_arrays[id(array)] = array, replace(narrowed, called=array.called)
        return self.narrow_arrays[id(array)][1]

    @property
    def result_dtype(self) -> np.dtype:
        """The type in which the call's result is stored, if it is one of products."""
        return self.multiplied if self.narrow else F32

    # What is launched later

    def later(
        self, buffer: Buffer, launch: LaunchedLater, multiplied: object = None, pair: Paired | None = None
    ) -> Array:
        """What a kernel computes that is launched when it is known what becomes of its result: what alone reads it, an element at
        a time, becomes a part of it. `buffer` is the result where nothing does. Where it is read together with another that is
        `multiplied` too, `pair` launches both as one."""
        self.unfinished[buffer] = Unfinished(launch, self.scope, self.source, multiplied, pair)
        return widened(Array.of(buffer))

    def finish(self, *buffers: Buffer) -> None:
        """Launch the kernels of buffers, if they are not launched yet."""
        for buffer in buffers:
            if buffer in self.unfinished:
                buffer.tensor = self._launched_later([buffer], unchanged, buffer).tensor

    def settled(self, array: Array, narrow: bool = False) -> Array:
        """An array that may be read several times: nothing of it is launched as a part of one of its readers."""
        unfinished = [each for each in array.buffers if each in self.unfinished]
        # images side by side along their channels are read where they lie
        if array.work and any(each.order == PLAIN or each.ne == array.ne for each in unfinished):
            return self.in_memory(array, narrow)
        self.finish(*array.buffers)
        return array

    def in_memory(self, array: Array, narrow: bool) -> Array:
        """An array in memory, in any order; if it is `narrow`, as products read it."""
        return widened(self.stored(self.narrowed(array))) if narrow else self.stored(array)

    def scaled(self, array: Array, divisor: float) -> Array:
        """An array in memory, in the type of what is multiplied, divided by a power of two so that larger numbers fit."""
        dtype = self.multiplied
        divided = computed(array.ne, [array], lambda at: K.cast(array.element(at) * (1 / divisor), dtype), 1, dtype)
        stored = self.stored(replace(divided, called=array.called))
        return computed(array.ne, [stored], lambda at: K.cast(stored.element(at), F32) * divisor, 1)

    def _launched_later(self, parts: Sequence[Buffer], tail: Tail, target: Buffer) -> Buffer:
        unfinished, here = [self.unfinished.pop(each) for each in parts], (self.scope, self.source)
        first, *second = unfinished
        self.scope, self.source = first.scope, first.source
        try:
            return (
                first.pair(second[0].multiplied, tail, target) if first.pair and second else first.launch(tail, target)
            )
        except NotGenerated:
            self.unfinished.update(zip(parts, unfinished, strict=True))
            raise
        finally:
            self.scope, self.source = here

    def as_tail(self, array: Array, order: Order) -> Buffer | None:
        """An array in memory, computed by the kernel of what it reads, or of two such things; None if none could."""
        target = Buffer(NOWHERE, array.dtype, array.ne, order)
        if array.dtype not in (F32, F16):
            return None
        can = [
            each
            for each in array.buffers
            if each in self.unfinished and array.ne == each.ne and same_place(each, order) and in_place(array, each)
        ]
        pairs = [both for both in combinations(can, 2) if all(self.unfinished[each].pair for each in both)]
        for parts in (*pairs, *((each,) for each in can)):

            def tail(at: Index, *values: Scalar, parts: Sequence[Buffer] = parts) -> Scalar:
                found = array.element(at)
                own = {node: node.data for node in walk(found) if node.kind == "element"}
                places = {node: values[parts.index(data)] for node, data in own.items() if data in parts}
                return Substitution(places)(found)

            if all(each in self.unfinished for each in parts):
                self.finish(*(each for each in array.buffers if each not in parts))
                try:
                    return self._launched_later(parts, tail, target)
                except NotGenerated:
                    continue
        return None

    def pointwise(self, array: Array, order: Order) -> Buffer:
        """Compute an array, an element at a time."""
        if (found := self.as_tail(array, order)) is not None:
            return found
        at = variables(array.ne)
        place = Buffer(NOWHERE, array.dtype, array.ne, order).offset(at)
        axes = tuple(at[axis] for axis in order if at[axis].kind == "variable")
        loops = rewritten(Nest(axes, array.element(at), place), {}, axes)
        loops = rows(merged(loops))
        buffers = buffers_of(loops.body)
        loops = replace(loops, body=canonical(numbered(loops.body, buffers)))
        types = [TensorType(each.dtype, (product(each.ne),)) for each in buffers]
        if loops.body.dtype != array.dtype:
            raise NotGenerated(f"{loops.body.dtype} instead of {array.dtype}")
        kernel = pointwise(array.called, loops, types, array.dtype, product(array.ne), self.form.lanes)
        return self.launched([kernel], buffers, array.dtype, array.ne, order)

    def reduced(self, name: str, ne: Quad, columns: Dim, *stages: ColumnStage) -> list[Array]:
        """Arrays of float32 in memory, by one kernel: for each of their indices, and each stage, a number of all columns."""
        found = self.stage_buffers(ne, columns, stages)
        types = [(each.dtype, product(each.ne)) for each in found]
        stages_of = [stage_of(each, ne, found) for each in stages]
        kernel = reduction(name, product(ne), columns, types, stages_of, lanes=self.form.lanes)
        shape: Quad = (product(ne), len(stages), 1, 1)
        buffer = self.launched([kernel], found, F32, shape)

        def element(number: int) -> Callable[[Index], Scalar]:
            return lambda at: buffer.element((flat(at, ne), scalar(number), ZERO, ZERO))

        return [Array(F32, ne, element(number), (buffer,)) for number in range(len(stages))]

    def rows(
        self,
        name: str,
        ne: Quad,
        lines: Lines,
        value: Callable[..., Scalar],
        *stages: ColumnStage,
        order: Order = PLAIN,
    ) -> Array:
        """An array, each element a value of its index and the numbers of its line, by one kernel that is launched later."""

        def stage(value: Callable[..., Scalar]) -> ColumnStage:
            return ColumnStage("sum", lambda at, column, *numbers: value(lines.place(at, column), *numbers))

        self.finish(*self.stage_buffers(lines.ne, lines.columns, (*stages, stage(value))))

        def launch(tail: Tail, target: Buffer) -> Buffer:
            every = (*stages, stage(lambda at, *numbers: cast(tail(at, value(at, *numbers)), F32)))
            found = self.stage_buffers(lines.ne, lines.columns, every)
            types = [(each.dtype, product(each.ne)) for each in found]
            *before, last = (stage_of(each, lines.ne, found) for each in every)

            def offset(line: Scalar, column: Scalar) -> Scalar:
                return normal(target.offset(lines.place(unflat(line, lines.ne), column)))

            rows = WrittenRows(target.dtype, last.value, offset)
            kernel = reduction(name, product(lines.ne), lines.columns, types, before, rows, self.form.lanes, lines.long)
            return self.launched([kernel], found, target.dtype, target.ne, target.order)

        return self.later(Buffer(NOWHERE, self.result_dtype, ne, order), launch)

    def stage_buffers(self, ne: Quad, columns: Dim, stages: Sequence[ColumnStage]) -> list[Buffer]:
        """What stages read."""
        any_before = [variable(f"before_{number}", 2) for number in range(len(stages))]
        before = [K.cast(each, F32) for each in any_before]
        at = variables(ne)
        column = variable("column", columns)
        return buffers_of(*(each.value(at, column, *before[:number]) for number, each in enumerate(stages)))

    def launched(
        self, kernels: Sequence[TileKernel], buffers: Sequence[Buffer], dtype: np.dtype, ne: Quad, order: Order = PLAIN
    ) -> Buffer:
        """A buffer that kernels fill: their tensors are the buffers, in order, and the result."""
        (kernel,) = kernels
        self.finish(*buffers)
        tensors = list(dict.fromkeys(each.tensor for each in buffers))  # one may be read as elements of several types
        read = [tensors.index(each.tensor) for each in buffers]
        return self.call(self.launches(kernel, read), tensors, dtype, ne, order)

    def launches(self, kernel: TileKernel, read: Sequence[int]) -> Launches:
        """The launch of a kernel. Its tensors are those that it reads, by their numbers among the call's, then scratch memory and
        counters if it has them, and the result."""
        found = self.rendered(kernel)
        own = [each.size * each.dtype.itemsize for each in found.kernel.tensors if each.written][:-1]
        numbers = (*read, *(SCRATCH_TENSOR, COUNTERS_TENSOR)[: len(own)], RESULT_TENSOR)
        scratch, counters = own or (0, 0)
        return Launches((Launch(found, numbers),), scratch, counters)

    def contracted(
        self, sizes: Sizes, kernel: Callable[[Schedule], TileKernel], schedules: Sequence[Schedule],
        operands: Sequence[Buffer], beside: Sequence[Buffer], dtype: np.dtype, ne: Quad, order: Order,
    ) -> Buffer:  # fmt: skip
        """A buffer that the kernel of a contraction fills, in one of these schedules, which is chosen when sizes are known."""
        self.finish(*operands, *beside)
        tensors = list(dict.fromkeys(each.tensor for each in (*operands, *beside)))
        read = [tensors.index(each.tensor) for each in (*operands, *beside)]

        def way(schedule: Schedule) -> Launches:
            return self.launches(kernel(schedule), read)

        choice = Choice(sizes, {each: way(each) for each in schedules}, way)
        return self.call(replace(choice.ways[schedules[0]], choice=choice), tensors, dtype, ne, order)

    def call(self, launches: Launches, tensors: Sequence[Tensor], dtype: np.dtype, ne: Quad, order: Order) -> Buffer:
        """A buffer that a call's launches fill."""
        if len(tensors) > MOST_BUFFERS + 1:
            raise NotGenerated(f"reads {len(tensors)} tensors")
        calls = self.program.calls
        plain = same_place(Buffer(NOWHERE, dtype, ne, order), PLAIN)
        sizes = ne if plain else (product(ne), 1, 1, 1)
        result = checked(dense(STORAGE[dtype], sizes, 4 if plain else 1, call=len(calls)))
        assert NOWHERE not in tensors, "a result is read that became a part of another kernel"
        calls.append(Call(LAUNCH, tuple(tensors), result, self.scope, self.source, launches=launches))
        return Buffer(result, dtype, ne, order)

    def rendered(self, kernel: TileKernel) -> Rendered:
        """A kernel's text, under a name that no other text has. Raises NotGenerated for what devices cannot do."""
        if kernel not in self.written:
            self.written[kernel] = self.newly_rendered(kernel)
        return self.written[kernel]

    def newly_rendered(self, kernel: TileKernel) -> Rendered:
        """The same for a kernel that was not written yet."""
        try:
            found = self.form.render(kernel)
        except KernelFault as error:
            raise NotGenerated(str(error)) from error
        if found.faults:
            raise NotGenerated("a kernel on a device cannot report what its values are")
        key = kernel.name, found.code
        if key not in self.names:
            number = sum(base == kernel.name for base, _ in self.names)
            self.names[key] = f"{kernel.name}_{number}" if number else kernel.name
        found = found.named(self.names[key])
        self.kernels.setdefault(found.kernel.name, found)
        return found


NOWHERE = dense("F32", (1, 1, 1, 1), 1)
"""What stands for a tensor that there is not yet."""

Tail: TypeAlias = Callable[..., Scalar]
"""What is done with a result on its way out: the element that is stored, of its index and of the result's element there; or
of the elements of two results."""

LaunchedLater: TypeAlias = Callable[[Tail, Buffer], Buffer]
"""Launches a kernel with a tail, for a buffer as the given one. Raises NotGenerated if it cannot have the tail."""


Paired: TypeAlias = Callable[[object, Tail, Buffer], Buffer]
"""The same for a kernel that computes two results: its own, and what another's is `multiplied` of."""


@dataclass(frozen=True, eq=False)
class Unfinished:
    """A kernel that is not launched yet, and what it is of."""

    launch: LaunchedLater
    scope: tuple[str, ...]
    source: str
    multiplied: object = None
    pair: Paired | None = None


def unchanged(at: Index, value: Scalar) -> Scalar:
    """The tail of what is stored as it is."""
    return value


def cast(value: Scalar, dtype: np.dtype) -> Scalar:
    """A float in another type; what was of that type before it was made wider is itself."""
    return value.args[0] if value.kind == "cast" and value.args[0].dtype == dtype else K.cast(value, dtype)


def widened(array: Array) -> Array:
    """The same numbers as float32, which `cast` undoes."""
    if array.dtype == F32:
        return array
    return computed(array.ne, [array], lambda at: K.cast(array.element(at), F32), 0)


def widened_of(array: Array) -> Buffer | None:
    """The memory of which an array is the numbers, perhaps as float32; None if it is more than that."""
    value = array.element(variables(array.ne))
    read = value.args[0] if value.kind == "cast" else value
    buffer = read.data if read.kind == "element" else None
    return buffer if isinstance(buffer, Buffer) and buffer.ne == array.ne and in_place(array, buffer) else None


def in_place(array: Array, buffer: Buffer) -> bool:
    """True if each element of an array reads of a buffer, which is as large, only the element at its own index."""
    at = variables(array.ne)
    own = normal(buffer.offset(at))
    read = [node for node in walk(array.element(at)) if node.kind == "element" and node.data is buffer]
    return all(normal(each.args[0]) is own for each in read)


def tail_elements(tail: Tail, at: Index, *wanted: Scalar) -> tuple[Scalar, list[Scalar]]:
    """What a tail makes of results, and the elements of buffers that it reads for it. Raises NotGenerated if it reads some on
    conditions, or at places that others tell."""
    value = cast(tail(at, *wanted), F32)
    elements = always_computed(value)
    if len(elements) != sum(each.kind == "element" for each in walk(value)):
        raise NotGenerated("what a tail reads depends on what it finds")
    if Substitution(dict.fromkeys([*wanted, *elements], constant(0.0, F32)))(value).free:
        raise NotGenerated("a tail depends on where its result goes")
    return value, elements


def normal(value: Scalar) -> Scalar:
    """A value with its index arithmetic in normal form, and the variables of its reductions numbered."""
    free = sorted(value.free, key=lambda each: name(each))
    return canonical(Rewrite({}, tuple(free), ())(value))


def canonical(value: Scalar) -> Scalar:
    """A value whose reductions' variables are k0, k1, … in order."""
    bound = [each for node in walk(value) if node.kind == "reduce" for each in node.data[1]]  # type: ignore[index]
    renamed = {each: variable(f"k{number}", extent(each)) for number, each in enumerate(dict.fromkeys(bound))}
    return Renaming(renamed)(value) if renamed else value


def numbered(value: Scalar, buffers: Sequence[Buffer], first: int = 0) -> Scalar:
    """A value whose elements name buffers by their numbers, from `first` on."""
    places = {
        node: make("element", node.dtype, (numbered(node.args[0], buffers, first),), first + buffers.index(node.data))
        for node in walk(value)
        if node.kind == "element" and isinstance(node.data, Buffer)
    }
    return Substitution(places)(value)


class Substitution(Rewrite):
    """Replaces nodes, and leaves the others as they are."""

    def __init__(self, places: dict[Scalar, Scalar]) -> None:
        super().__init__(places, (), ())

    def rebuilt(self, node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        """The node with these operands."""
        return node if args == node.args else make(node.kind, node.dtype, args, node.data)


class Renaming(Substitution):
    """Gives the variables of reductions other names."""

    def rebuilt(self, node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        """The node with these operands."""
        return renamed(node, args, self.done) if node.kind == "reduce" else super().rebuilt(node, args)


def renamed(node: Scalar, args: tuple[Scalar, ...], names: Mapping[Scalar, Scalar]) -> Scalar:
    """A reduction with other variables."""
    kind, bound = typed("tuple[str, tuple[Scalar, ...]]", node.data)
    return make("reduce", node.dtype, args, (kind, tuple(names[each] for each in bound)))


def same_place(buffer: Buffer, order: Order) -> bool:
    """True if the elements lie as they would in another order of axes: those of size 1 make no difference."""
    own = [axis for axis in buffer.order if buffer.ne[axis] != 1]
    return own == [axis for axis in order if buffer.ne[axis] != 1]


def natural_order(array: Array) -> Order:
    """The order of axes in which an array is computed with the least movement: that of a buffer that it reads, of its sizes, or
    of its sizes but along one axis, as where several are joined."""
    for differing in range(2):
        for buffer in array.buffers:
            if sum(own != other for own, other in zip(array.ne, buffer.ne, strict=True)) == differing:
                return buffer.order
    return PLAIN
