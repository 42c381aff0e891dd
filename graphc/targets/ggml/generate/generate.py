"""A program for devices whose kernels graphc generates.

Every call becomes an array (`arrays.py`): elements as expressions, which are put into memory by one kernel where something needs
them there. So views cost nothing, and chains of what is computed element by element are one kernel. Products and convolutions,
normalizations and softmax have kernels of their own. What no kernel can be generated for, ggml computes as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any
from typing import cast as typed

import numpy as np

from graphc.errors import GraphcError
from graphc.kernels.gpu.forms import CUDA, Form, Rendered
from graphc.kernels.gpu.render import cuda
from graphc.kernels.gpu.scheduling import Scheduling
from graphc.kernels.gpu.tile import TileKernel
from graphc.kernels.nest import Rewrite, extent, walk
from graphc.kernels.scalar import Scalar, make, result_index, trace
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op
from graphc.shapes import Dim
from graphc.targets.ggml.generate.arrays import ZERO, Array, Buffer, Index, K
from graphc.targets.ggml.generate.blocks import FORMATS, decoded
from graphc.targets.ggml.generate.elements import DTYPES, ELEMENTS, joined, view
from graphc.targets.ggml.generate.generator import MOST_BUFFERS, Generator, NotGenerated, renamed
from graphc.targets.ggml.generate.kernels import KERNELS, products
from graphc.targets.ggml.generate.narrow import HEADROOM, narrow, normalized
from graphc.targets.ggml.generate.together import equal_as_one, together
from graphc.targets.ggml.lowering.compose import composed
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.composites.composite import ActivationOrNone
from graphc.targets.ggml.program.launch import Launches
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program, Weight, with_blocks
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.tensor import Arg, Tensor

CHEAP, DEEP = 2, 48
"""How much may be computed again wherever it is read, and how much for one element before it is put into memory."""


@dataclass(frozen=True)
class Generated:
    """A program whose calls launch kernels, and the kernels as they are written for a device, by their names."""

    program: Program
    kernels: dict[str, Rendered]
    left: dict[str, str]
    """What ggml computes, and why."""
    sources: dict[Program, Program]
    """What the program, and each inside it, was made of."""
    names: dict[tuple[str, str | bytes], str]
    written: dict[TileKernel, Rendered]
    reads: Mapping[int, int]
    """See `Generator`."""
    weights: list[Weight]
    """The weights, some of them packed."""
    fast: bool
    scheduling: Scheduling | None = None
    form: Form = CUDA

    @property
    def text(self) -> str:
        """All kernels that are text, as one."""
        return cuda.file_of([each for each in self.kernels.values() if isinstance(each, cuda.Rendered)])

    def launches_for(self, call: Call, binding: Mapping[str, int]) -> Launches:
        """What a call launches for these sizes: the fastest of its ways, as far as is known."""
        assert call.launches is not None
        choice = call.launches.choice
        if choice is None or self.scheduling is None or len(choice.ways) == 1:
            return call.launches
        return choice.ways[self.scheduling.best(choice.sizes.bound(binding), choice.ways)]


def generated(
    program: Program, fast: bool = False, scheduling: Scheduling | None = None, form: Form = CUDA
) -> Generated:
    """A program for devices that take kernels in a form; `fast` if products may be of float16. `scheduling`
    names schedules that suit a device; without, they are those of the form's fixed rules."""
    program = composed(program, activations={products.RELU})
    reads = Counter(
        arg.weight
        for each in with_blocks(program)
        for call in each.calls
        for arg in call.args
        if isinstance(arg, Tensor)
    )
    reads.update(output.tensor.weight for each in with_blocks(program) for output in each.outputs)
    found = Generated(program, {}, {}, {}, {}, {}, reads, list(program.weights), fast, scheduling, form)
    return replace(found, program=_Pass(program, found).result())


class _Pass:
    def __init__(self, program: Program, generated: Generated) -> None:
        self.old, self.generated = equal_as_one(program), generated
        self.new = replace(program, calls=[], outputs=[], weights=generated.weights)
        generated.sources[self.new] = program
        self.generator = Generator(
            self.new,
            generated.kernels,
            generated.names,
            generated.written,
            generated.reads,
            generated.fast,
            generated.scheduling,
            generated.form,
        )
        self.narrow = narrow(self.old) if self.generator.fast else set()
        self.normalized = normalized(self.old, self.narrow)
        self.together = together(self.old, self.narrow, KERNELS, MOST_BUFFERS)
        self.arrays: dict[int, Array] = {}
        self.plain: dict[int, Tensor] = {}
        self.given: dict[Tensor, Array] = {}
        self.uses = Counter(arg.call for call in self.old.calls for arg in call.args if isinstance(arg, Tensor))
        self.uses.update(output.tensor.call for output in program.outputs)

    def result(self) -> Program:
        """The new program."""
        for index, call in enumerate(self.old.calls):
            self.generator.scope, self.generator.source = call.scope, call.source
            self.generator.narrow = index in self.narrow
            if index in self.together:
                self.products(self.together[index])
            if index in self.arrays:
                continue
            try:
                found = self.array(call)
                if index in self.normalized - self.narrow:
                    found = self.generator.scaled(found, HEADROOM)
                self.arrays[index] = (
                    found if self.uses[index] <= 1 else self.generator.settled(found, index in self.narrow)
                )
            except NotGenerated as reason:
                self.leave(call, reason)
        for output in self.old.outputs:
            tensor = replace(self.in_order(output.tensor), rank=output.tensor.rank)
            self.new.outputs.append(replace(output, tensor=tensor))
        return self.new

    def products(self, numbers: Sequence[int]) -> None:
        """Launch products of one operand together; what no kernel can be generated for is tried alone."""
        calls = [self.old.calls[number] for number in numbers]
        levels = zip(*(call.scope for call in calls), strict=False)
        self.generator.scope = tuple(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels))
        try:
            x = self.read(calls[0].args[1])
            found = products.linear_products(self.generator, x, [*map(self.read_product, calls)])
            self.arrays.update(zip(numbers, found, strict=True))
        except NotGenerated:
            self.generator.scope = calls[0].scope

    def read_product(self, call: Call) -> tuple[Tensor, Array, ActivationOrNone, list[Array]]:
        """A product's result, its matrix, its activation and what is added to it."""
        weight, _, *rest = call.args
        activation, *sums = rest or [False]
        return call.result, self.read(weight), typed("ActivationOrNone", activation), [*map(self.read, sums)]

    # Arrays

    def array(self, call: Call) -> Array:
        """What a call computes. Raises NotGenerated."""
        if call.host is not None or call.function in (HOST, RESULT):
            raise NotGenerated("the host's")
        found = self.of_call(call, self.read)
        if len(found.buffers) > MOST_BUFFERS:
            found = self.of_call(call, self.read_stored)
        while len(found.buffers) > MOST_BUFFERS and found.joined is not None:
            found = joined(found.ne, found.joined[0], self.in_groups(*found.joined))
        if len(found.buffers) > MOST_BUFFERS or found.work > DEEP:
            return self.generator.stored(found)
        return found

    def of_call(self, call: Call, read: Callable[[Arg], Any]) -> Array:
        """What a call computes of what its arguments are read as. Raises NotGenerated."""
        if call.kernel < 0:
            return self.computed(call.function, call.args, call.result, read)
        return kernel_array(
            self.old.kernels[call.kernel], call.result, [read(arg) for arg in call.args], self.generator
        )

    def in_groups(self, axis: int, parts: Sequence[Array]) -> list[Array]:
        """Arrays that are joined along an axis, as many of them together in memory as a kernel reads."""
        found = []
        for group in (parts[first : first + MOST_BUFFERS] for first in range(0, len(parts), MOST_BUFFERS)):
            sizes = list(group[0].ne)
            sizes[axis] = sum((each.ne[axis] for each in group), start=0)
            found.append(self.generator.stored(joined((sizes[0], sizes[1], sizes[2], sizes[3]), axis, group)))
        return found

    def read_stored(self, arg: Arg) -> Any:
        """An argument, with an array in memory in a tensor's place."""
        found = self.read(arg)
        return self.generator.stored(found) if isinstance(found, Array) else found

    def computed(self, function: str, args: Sequence[Arg], result: Tensor, read: Callable[[Arg], Any]) -> Array:
        """What a function of ggml's, or a composite, computes of arguments. Raises NotGenerated."""
        found = None
        if function.startswith("ggml_view_"):
            source = args[0]
            assert isinstance(source, Tensor)
            found = view(result, source, read(source), args[-1])  # type: ignore[arg-type]
        elif function in KERNELS:
            found = KERNELS[function](self.generator, result, *map(read, args))
        elif function in ELEMENTS:
            found = ELEMENTS[function](result, *map(read, args))
        if found is None and function in COMPOSITES:
            found = self.expanded(function, args, read)
        if found is None:
            raise NotGenerated(function)
        return found

    def expanded(self, function: str, args: Sequence[Arg], read: Callable[[Arg], Any]) -> Array:
        """A composite by the calls that it stands for."""
        steps = COMPOSITES[function].expansion(args)
        uses = Counter(arg for step in steps for arg in step.args if isinstance(arg, Tensor))
        made: dict[Tensor, Array] = {}

        def inner(arg: Arg) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            if arg not in made:
                made[arg] = read(arg) if uses[arg] == 1 else self.generator.settled(read(arg))
            return made[arg]

        for step in steps:
            found = self.computed(step.function, step.args, step.result, inner)
            if uses[step.result] > 1:
                found = self.generator.settled(found)
            if found.work > CHEAP and step is not steps[-1]:
                found = self.generator.stored(found)
            made[step.result] = found
        return made[steps[-1].result]

    def read(self, arg: Arg) -> Any:
        """An argument, with an array in a tensor's place. Raises NotGenerated for what kernels do not read."""
        if not isinstance(arg, Tensor):
            return arg
        if arg.call < 0 or arg.call in self.plain:
            tensor = arg if arg.call < 0 else self.plain[arg.call]
            if tensor.type in FORMATS and tensor.weight >= 0 and tensor.contiguous:
                return self.given.setdefault(tensor, decoded(tensor))
            if tensor.type not in DTYPES or (arg.call >= 0 and not tensor.contiguous):
                raise NotGenerated(f"reads {tensor.type}")
            if tensor not in self.given:
                self.given[tensor] = self.brought(Array.of(Buffer(tensor, DTYPES[tensor.type], tensor.ne)))
            return self.given[tensor]
        found = self.arrays[arg.call]
        if self.uses[arg.call] > 1 and found.work > CHEAP:
            found = self.arrays[arg.call] = self.generator.in_memory(found, arg.call in self.narrow)
        return found

    def brought(self, array: Array) -> Array:
        """An array that ggml computed, copied by itself: its scheduler brings at most 30 tensors to a device at once, and looks
        before each node whether there is room for one more."""
        assert array.buffer is not None
        return array if array.buffer.tensor.call < 0 else Array.of(self.generator.pointwise(array, array.buffer.order))

    # What ggml computes

    def leave(self, call: Call, reason: NotGenerated) -> None:
        """Have ggml compute a call."""
        self.generated.left[call.source or call.function] = f"{call.function}: {reason}"
        self.plain[call.result.call] = self.kept(call)

    def kept(self, call: Call) -> Tensor:
        """A call as it is, of tensors as ggml has them."""
        args = tuple(self.as_ggml(arg) if isinstance(arg, Tensor) else arg for arg in call.args)
        blocks = [_Pass(each, self.generated).result() for each in call.host.blocks] if call.host else []
        host = call.host and replace(call.host, blocks=tuple(blocks))
        tensor = replace(call.result, call=len(self.new.calls))
        self.new.calls.append(replace(call, args=args, result=tensor, host=host))
        return tensor

    def as_ggml(self, tensor: Tensor) -> Tensor:
        """A tensor of the old program in the new one, with the same strides: views are views of it."""
        if tensor.call < 0:
            return tensor
        call = self.old.calls[tensor.call]
        if tensor.call not in self.plain:
            if call.function in VIEWS:
                self.plain[tensor.call] = self.kept(call)
            else:
                self.plain[tensor.call] = self.in_order(tensor)
        return replace(self.plain[tensor.call], rank=tensor.rank)

    def in_order(self, tensor: Tensor) -> Tensor:
        """A contiguous tensor with the elements of one of the old program."""
        if tensor.call < 0 or tensor.call in self.plain:
            return self.as_ggml(tensor)
        try:
            stored = self.generator.stored(self.arrays[tensor.call], (3, 2, 1, 0))
        except NotGenerated as reason:
            self.leave(self.old.calls[tensor.call], reason)
            return self.as_ggml(tensor)
        assert stored.buffer is not None
        found = stored.buffer.tensor
        if found.ne != tensor.ne:
            found = self.new.call("ggml_reshape_4d", (found, *tensor.ne), tensor.rank, *self._where(tensor))
        return found

    def _where(self, tensor: Tensor) -> tuple[tuple[str, ...], str]:
        call = self.old.calls[tensor.call]
        return call.scope, call.source


def kernel_array(use: KernelUse, result: Tensor, arrays: Sequence[Array], generator: Generator) -> Array:
    """What a generated kernel of the CPU's computes, from the same expression. Raises NotGenerated."""
    if getattr(type(use.op), "element", Op.element) is Op.element:
        raise NotGenerated(f"{use.op} is a routine")
    try:
        body = trace(use)
    except GraphcError as error:
        raise NotGenerated(str(error)) from error
    if any(node.kind == "require" for node in walk(body)):
        raise NotGenerated("a kernel on a device does not report what is wrong with values")
    read = [as_dtype(array, dtype, generator) for array, (dtype, _) in zip(arrays, use.inputs, strict=True)]
    shapes = [shape for _, shape in use.inputs]

    def element(at: Index) -> Scalar:
        places = dict(zip(result_index(use.shape), model_index(at, use.shape), strict=True))
        return Inlined({key: value for key, value in places.items() if key.kind == "variable"}, read, shapes)(body)

    buffers = tuple(dict.fromkeys(buffer for each in read for buffer in each.buffers))
    nodes = walk(body)
    work = 16 if any(node.kind == "reduce" for node in nodes) else 1 + len(nodes) // 4
    return Array(use.dtype, result.ne, element, buffers, work + sum(each.work for each in read))


def as_dtype(array: Array, dtype: np.dtype, generator: Generator) -> Array:
    """The elements of an array, whose bytes are of another dtype."""
    if array.dtype == dtype:
        return array
    buffer = generator.stored(array).buffer
    assert buffer is not None
    return Array.of(replace(buffer, dtype=dtype))


class Inlined(Rewrite):
    """An expression with its variables replaced, its loads become elements of arrays, and its reductions' variables new ones."""

    def __init__(
        self, places: dict[Scalar, Scalar], arrays: Sequence[Array], shapes: Sequence[tuple[Dim, ...]]
    ) -> None:
        super().__init__(places, (), ())
        self.arrays, self.own_shapes = arrays, shapes

    def __call__(self, node: Scalar) -> Scalar:
        """The node, rebuilt."""
        if node.kind == "reduce" and node not in self.done:
            for each in node.data[1]:  # type: ignore[index]
                self.done[each] = K._variable(extent(each))
        return super().__call__(node)

    def rebuilt(self, node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        """The node with rewritten operands."""
        if node.kind == "load":
            number = node.data
            assert isinstance(number, int)
            return self.arrays[number].element(ggml_index(args, self.own_shapes[number]))
        if node.kind == "reduce":
            return renamed(node, args, self.done)
        if node.kind == "select":
            condition, first, second = args
            return K.select(condition, first, second, both=bool(node.data))
        return make(node.kind, node.dtype, args, node.data)


def model_index(at: Index, shape: Sequence[Dim]) -> tuple[Scalar, ...]:
    """An index in the model's order of axes; ggml's outermost holds all axes beyond the fourth."""
    rank = len(shape)
    if rank <= 4:
        return tuple(at[rank - 1 - axis] for axis in range(rank))
    outer, found = at[3], []
    for size in reversed(shape[1 : rank - 3]):
        found.append(outer % size)
        outer = outer // size
    return (outer, *reversed(found), at[2], at[1], at[0])


def ggml_index(index: Sequence[Scalar], shape: Sequence[Dim]) -> Index:
    """The same index in ggml's order."""
    rank = len(index)
    if rank <= 4:
        found = [*reversed(index), *[ZERO] * (4 - rank)]
        return found[0], found[1], found[2], found[3]
    outer = index[0]
    for entry, size in zip(index[1 : rank - 3], shape[1 : rank - 3], strict=True):
        outer = outer * size + entry
    return index[-1], index[-2], index[-3], outer
