"""Which module each call of a program belongs to, and who reads what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.prune import live_calls
from graphc.targets.ggml.program.tensor import Arg, Tensor

Ref: TypeAlias = tuple[str, int]
"""A tensor by where it comes from: ("call", i), ("weight", i) or ("input", i)."""

Path: TypeAlias = tuple[str, ...]
"""A module: the names by which its parents know it, from the root."""

MOST_HOISTED = 16
"""Calls that a shared result may depend on to be moved out of a module together with them."""

PARAMETRIC = frozenset({
    "graphc_linear", "graphc_gated_linear", "graphc_scaled_linear", "graphc_conv_2d", "ggml_get_rows", "ggml_im2col",
    "graphc_conv_2d_dw", "graphc_conv_3d", "graphc_conv_2d_last", "graphc_expanded_conv_2d", "ggml_conv_transpose_2d_p0",
})  # fmt: skip
"""Calls whose constant operands are parameters, whatever they are called."""


def reference(tensor: Tensor) -> Ref:
    """What a tensor is, whatever rank it is read with."""
    if tensor.call >= 0:
        return "call", tensor.call
    return ("weight", tensor.weight) if tensor.weight >= 0 else ("input", tensor.input)


def reads(args: Sequence[Arg]) -> list[int]:
    """The calls whose results the arguments are."""
    return [arg.call for arg in args if isinstance(arg, Tensor) and arg.call >= 0]


def readers(program: Program) -> dict[int, list[int]]:
    """The live calls that read the result of each call, in order."""
    found: dict[int, list[int]] = {}
    for index in sorted(live_calls(program)):
        for read in dict.fromkeys(reads(program.calls[index].args)):
            found.setdefault(read, []).append(index)
    return found


def common(paths: Sequence[Path]) -> Path:
    """The longest path that all of them begin with; () if there are none."""
    shortest = min(paths, key=len, default=())
    for depth, part in enumerate(shortest):
        if any(path[depth] != part for path in paths):
            return shortest[:depth]
    return shortest


def split_path(path: Sequence[str]) -> Path:
    """The parts of a module path, as its parameters' names have them: "down_blocks.0" is two."""
    return tuple(part for entry in path for part in entry.split(".") if part)


def placed(program: Program) -> Program:
    """The program with each call in the module where a reader of the code expects it.

    A call between calls of one module belongs there, though it names none or an outer one: exporters and rewrites make such
    calls. What one module computes for others too, from nothing of its own, belongs to what contains them all: it is the
    same expression in each of them, computed once.
    """
    return _hoisted(_adopted(program))


def _adopted(program: Program) -> Program:
    scopes = {index: program.calls[index].scope for index in sorted(live_calls(program))}
    read_by, outputs = readers(program), {output.tensor.call for output in program.outputs}
    before, after = dict(scopes), dict(scopes)
    for index in scopes:
        before[index] = scopes[index] or common([before[read] for read in reads(program.calls[index].args)])
    for index in reversed(scopes):
        after[index] = scopes[index] or common([after[reader] for reader in read_by.get(index, ())])
    for index, own in list(scopes.items()):
        made = [before[read] for read in reads(program.calls[index].args)]
        read = [after[reader] for reader in read_by.get(index, ())]
        inner = common([*made, *read])
        if made and read and index not in outputs and inner[: len(own)] == own:
            scopes[index] = inner
    return _with_scopes(program, scopes)


def _hoisted(program: Program) -> Program:
    scopes = {index: program.calls[index].scope for index in sorted(live_calls(program))}
    read_by = readers(program)
    for index, own in list(scopes.items()):
        around = [scopes[reader] for reader in read_by.get(index, ())]
        outer = common([own, *around])
        if len(outer) == len(own) or all(common([own, each]) == outer for each in around):
            continue
        together = list(_sources(program, scopes, index, outer))
        if len(together) <= MOST_HOISTED and not any(_own_weights(program, program.calls[each]) for each in together):
            scopes.update((each, outer) for each in together)
    return _with_scopes(program, scopes)


def _sources(program: Program, scopes: Mapping[int, Path], index: int, outer: Path) -> Iterator[int]:
    """The call and those that it depends on in the same module below `outer`; no more than are needed to say "too many"."""
    inside = scopes[index][: len(outer) + 1]
    seen, stack = {index}, [index]
    while stack and len(seen) <= MOST_HOISTED + 1:
        call = stack.pop()
        for read in reads(program.calls[call].args):
            if read not in seen and scopes[read][: len(inside)] == inside:
                seen.add(read)
                stack.append(read)
    yield from sorted(seen)


def _own_weights(program: Program, call: Call) -> bool:
    """True if a call reads a parameter of its module, by the parameter's name or by what the call is."""
    prefix = ".".join(split_path(call.scope[:1])) + "."
    names = [program.weights[arg.weight].name for arg in call.args if isinstance(arg, Tensor) and arg.weight >= 0]
    return any(call.function in PARAMETRIC or name.startswith(prefix) for name in names)


def _with_scopes(program: Program, scopes: Mapping[int, Path]) -> Program:
    calls = [replace(call, scope=scopes.get(index, call.scope)) for index, call in enumerate(program.calls)]
    return replace(program, calls=calls)
