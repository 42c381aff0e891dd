"""A program in which the host acts between graphs, taken apart: what a backend runs as one graph becomes a straight program,
a part, which is rendered as any other program is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, Union

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.types import BF16, F16, F32, F64, I8, I16, I32, I64
from graphc.shapes import Dim, Expr, symbols
from graphc.targets.ggml.cpp.names import identifier
from graphc.targets.ggml.cpp.scopes import Ref, reference
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Host, Input, Output, Program
from graphc.targets.ggml.program.sections import Section, sections, sizes_read
from graphc.targets.ggml.program.tensor import STORAGE, Tensor, storage_ne

DTYPES: Mapping[str, np.dtype] = {
    "F32": F32, "F16": F16, "BF16": BF16, "F64": F64, "I8": I8, "I16": I16, "I32": I32, "I64": I64,
}  # fmt: skip
"""The element type as which the host sees a tensor of which nothing says more."""

BLOCKS: Mapping[str, tuple[str, ...]] = {"Measure": (), "If": ("then", "else"), "Loop": ("body",)}
"""What the blocks of the host's operators are called."""


@dataclass(frozen=True, eq=False)
class Part:
    """A straight program, the tensors of the whole one that are its inputs, and those that are its outputs: of a call, or of
    an output of the whole."""

    program: Program
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    symbols: frozenset[str]

    @property
    def name(self) -> str:
        """An identifier."""
        return self.program.name

    @property
    def member(self) -> str:
        """The member of the model's class that runs it."""
        return f"{self.name}_"


@dataclass(frozen=True, eq=False)
class HostStep:
    """A call of the host, and its blocks."""

    call: Call
    host: Host
    blocks: tuple[Block, ...]

    @property
    def args(self) -> tuple[Ref, ...]:
        """The tensors that the host reads."""
        return tuple(reference(arg) for arg in self.call.args if isinstance(arg, Tensor))


Step: TypeAlias = Union[Part, HostStep]


@dataclass(frozen=True, eq=False)
class Block:
    """A program, or a block of one, as what is to be done, in order. `labels` are what its calls' results are called."""

    program: Program
    steps: tuple[Step, ...]
    labels: Mapping[int, str]

    @property
    def parts(self) -> list[Part]:
        """Its parts and those of the blocks inside, in order."""
        return [part for step in self.steps for part in _parts(step)]

    def reads(self, ref: Ref) -> bool:
        """True if a step reads a tensor."""
        return any(ref in (step.inputs if isinstance(step, Part) else step.args) for step in self.steps)


def has_parts(program: Program) -> bool:
    """True if the host acts in a program."""
    return any(call.function == HOST for call in program.calls)


def split(program: Program, fresh: Callable[[str], str], name: str = "part") -> Block:
    """Take a program apart. `fresh` makes a part's name from the one that it should have; `name` is that of the first ones."""
    labels = _labels(program)
    steps: list[Step] = []
    for step in sections(program):
        if isinstance(step, Section):
            part = _part(program, step, labels, fresh, name)
            steps += [part] if part.outputs else []
        else:
            assert step.host is not None
            kinds = zip(BLOCKS[step.host.operator], step.host.blocks, strict=True)
            blocks = (split(block, fresh, f"{_plain(block.name)}_{kind}") for kind, block in kinds)
            steps.append(HostStep(step, step.host, tuple(blocks)))
    return Block(program, tuple(steps), labels)


def host_symbols(program: Program) -> Iterator[str]:
    """The named sizes that get their values while the program runs, in the order in which they do, perhaps repeatedly."""
    for call in program.calls:
        if call.host is None:
            continue
        for block in call.host.blocks:
            yield from _alone([size for each in block.inputs for size in each.shape])
            yield from host_symbols(block)
        yield from _alone([*(size for type in call.host.results for size in type.shape), call.host.size])


def is_symbol(size: Dim) -> bool:
    """True if a size is a named one and nothing else."""
    return isinstance(size, Expr) and str(size) in symbols(size)


def _alone(sizes: list[Dim]) -> Iterator[str]:
    return (str(size) for size in sizes if is_symbol(size))


def _plain(name: str) -> str:
    return identifier(name, "part").rstrip("_") or "part"


def _parts(step: Step) -> list[Part]:
    return [step] if isinstance(step, Part) else [part for block in step.blocks for part in block.parts]


def _part(
    program: Program, section: Section, labels: Mapping[int, str], fresh: Callable[[str], str], name: str
) -> Part:
    """A section as a program of its own, which shares weights and kernels with the whole."""
    part = Program("", weights=program.weights, kernels=program.kernels)
    made: dict[Ref, Tensor] = {}
    wanted = _outputs(program, section, labels)
    live = _live(program, section, wanted)
    outside = {ref for index in live for ref in _outside(program.calls[index], live)}
    given = sorted(outside, key=lambda ref: (ref[0] == "call", ref[1]))
    for ref in given:
        declared = _input(program, ref, labels)
        made[ref] = replace(declared.tensor, call=-1, input=len(part.inputs))
        part.inputs.append(replace(declared, tensor=made[ref]))
    for index in sorted(live):
        call = program.calls[index]
        args = tuple(_moved(arg, made) if isinstance(arg, Tensor) else arg for arg in call.args)
        made["call", index] = replace(call.result, call=len(part.calls))
        part.calls.append(replace(call, args=args, result=made["call", index]))
    for output in wanted.values():
        part.outputs.append(replace(output, tensor=_moved(output.tensor, made)))
    if part.outputs:
        part.name = fresh(name)
    sizes = sizes_read(part, range(len(part.calls)), range(len(part.inputs)), range(len(part.outputs)))
    return Part(part, tuple(given), tuple(wanted), frozenset(sizes))


def _outputs(program: Program, section: Section, labels: Mapping[int, str]) -> dict[Ref, Output]:
    """What a section gives: results that are read later, and outputs of the whole."""
    found: dict[Ref, Output] = {}
    for index in section.writes:
        dtype, shape = seen_as(program, index)
        found["call", index] = Output(labels.get(index, "x"), dtype, shape, program.calls[index].result)
    for number in section.outputs:
        output = program.outputs[number]
        if output.tensor.call < 0:
            raise GraphcError(f"output {output.name} is an input or a weight itself")
        if output.tensor.call not in section.writes:
            found["output", number] = output
    return found


def _live(program: Program, section: Section, wanted: Mapping[Ref, Output]) -> set[int]:
    """The calls of a section that its outputs depend on."""
    inside, live = set(section.calls), set[int]()
    waiting = [output.tensor.call for output in wanted.values()]
    while waiting:
        index = waiting.pop()
        if index in inside and index not in live:
            live.add(index)
            waiting += [arg.call for arg in program.calls[index].args if isinstance(arg, Tensor)]
    return live


def _outside(call: Call, inside: set[int]) -> Iterator[Ref]:
    """The tensors that a call reads which are no weights and not made by these calls."""
    for arg in call.args:
        if isinstance(arg, Tensor) and arg.weight < 0 and arg.call not in inside:
            yield reference(arg)


def _moved(tensor: Tensor, made: Mapping[Ref, Tensor]) -> Tensor:
    """A tensor of the whole program in the part; it is read with the rank that it is read with there."""
    if tensor.weight >= 0:
        return tensor
    return replace(made[reference(tensor)], rank=tensor.rank)


def _input(program: Program, ref: Ref, labels: Mapping[int, str]) -> Input:
    """What a part is given, as an input."""
    kind, index = ref
    if kind == "input":
        return program.inputs[index]
    dtype, shape = seen_as(program, index)
    return Input(labels.get(index, "x"), dtype, shape, program.calls[index].result)


def seen_as(program: Program, index: int) -> tuple[np.dtype, tuple[Dim, ...]]:
    """The element type and the shape of a call's result in the model's terms: as the host's call says that makes it, or the
    first one that reads it, else as the tensor says."""
    call = program.calls[index]
    if call.function == RESULT:
        token, number = call.args
        host = program.calls[token.call].host if isinstance(token, Tensor) else None
        assert host is not None
        assert isinstance(number, int)
        return host.results[number].dtype, host.results[number].shape
    uses = [
        (type.dtype, type.shape)
        for reader in program.calls
        if reader.host is not None
        for arg, type in zip(reader.args, reader.host.inputs, strict=True)
        if isinstance(arg, Tensor) and arg.call == index
    ]
    uses += [(output.dtype, output.shape) for output in program.outputs if output.tensor.call == index]
    tensor = call.result
    fitting = (use for use in uses if STORAGE[use[0]] == tensor.type and storage_ne(use[1]) == tensor.ne)
    return next(fitting, (DTYPES[tensor.type], tensor.shape))


def _labels(program: Program) -> dict[int, str]:
    """What results of calls are called: as the output that they are, as the host's blocks call them, or as what they are for."""
    labels = {output.tensor.call: output.name for output in program.outputs if output.tensor.call >= 0}
    for index, call in enumerate(program.calls):
        if call.host is None:
            continue
        for number, name in enumerate(_result_names(call.host)):
            labels.setdefault(index + 1 + number, name)
        for arg, name in zip(call.args, _argument_names(call.host), strict=True):
            if isinstance(arg, Tensor) and arg.call >= 0:
                labels.setdefault(arg.call, name)
    return labels


def _result_names(host: Host) -> list[str]:
    if host.operator == "Loop":
        (body,) = host.blocks
        carried = [each.name for each in body.inputs[2 : 2 + host.carried]]
        return carried + [each.name for each in body.outputs[1 + host.carried :]]
    return [each.name for each in host.blocks[0].outputs] if host.blocks else []


def _argument_names(host: Host) -> list[str]:
    if host.operator == "Measure":
        return [str(host.size) if is_symbol(host.size) else "size"]
    if host.operator == "If":
        return ["condition", *(each.name for each in host.blocks[0].inputs)]
    return ["trip_count", "condition", *(each.name for each in host.blocks[0].inputs[2:])]
