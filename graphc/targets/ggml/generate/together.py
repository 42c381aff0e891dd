"""Which products read the same operand: one launch computes several of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from graphc.shapes import divisible
from graphc.targets.ggml.generate.narrow import SAME_NUMBERS
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.tensor import Arg, Tensor

PRODUCTS = {"graphc_linear", "ggml_mul_mat"}
"""Calls that multiply a matrix, their first argument, with rows of their second, and add those that follow."""

NEIGHBOURS = 8
"""Of how many columns each product has a multiple, so that results begin where 16 bytes are read and written at once."""


def equal_as_one(program: Program) -> Program:
    """The program where calls that only move numbers, and are equal, are read as the first of them: each product that needs an
    operand in another order has a copy of its own."""
    first: dict[tuple[object, ...], int] = {}
    instead: dict[int, int] = {}
    calls = []
    for number, call in enumerate(program.calls):
        if any(isinstance(arg, Tensor) and arg.call in instead for arg in call.args):
            call = replace(call, args=tuple(_read_instead(arg, instead) for arg in call.args))
        calls.append(call)
        if call.function in SAME_NUMBERS:
            key = call.function, *map(_what, call.args), *_what(call.result)[:3]
            if first.setdefault(key, number) != number:
                instead[number] = first[key]
    return replace(program, calls=calls)


def _read_instead(arg: Arg, instead: Mapping[int, int]) -> Arg:
    return replace(arg, call=instead[arg.call]) if isinstance(arg, Tensor) and arg.call in instead else arg


def _what(arg: Arg) -> tuple[object, ...]:
    """What an argument is; tensors are told apart by what they are of, and how that is seen."""
    if not isinstance(arg, Tensor):
        return (arg,)
    return arg.type, arg.ne, arg.nb, arg.rank, arg.call, arg.weight, arg.input


def together(program: Program, narrow: Container[int], kernels: Container[str], most: int) -> dict[int, list[int]]:
    """The numbers of the calls that are launched together, by the first of them: they have the same second argument, add weights
    alone, and no more than `most` weights are read in all. What becomes a part of the kernel that alone reads it stays alone:
    functions of `kernels` read results from memory."""
    readers: dict[int, list[Call]] = defaultdict(list)
    for call in program.calls:
        for arg in call.args:
            if isinstance(arg, Tensor) and arg.call >= 0:
                readers[arg.call].append(call)
    outputs = {output.tensor.call for output in program.outputs}

    def becomes_a_part(number: int, call: Call) -> bool:
        if number in outputs or len(readers[number]) != 1:
            return False
        (reader,) = readers[number]
        from_memory = reader.function in kernels or reader.function in VIEWS | SAME_NUMBERS
        return not from_memory and reader.result.ne == call.result.ne

    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, call in enumerate(program.calls):
        if _multiplies_weight(call) and not becomes_a_part(number, call):
            weight, x, *_ = call.args
            assert isinstance(weight, Tensor)
            assert isinstance(x, Tensor)
            alike[x.call, x.input, x.weight, weight.type, number in narrow].append(number)
    groups = [part for each in alike.values() for part in _parts(program, each, most)]
    return {each[0]: each for each in groups if len(each) > 1}


def _multiplies_weight(call: Call) -> bool:
    """True for a product with a matrix, to which only weights are added."""
    if call.function not in PRODUCTS:
        return False
    weight, _, *added = call.args
    assert isinstance(weight, Tensor)
    is_matrix = weight.weight >= 0 and weight.ne[2:] == (1, 1) and isinstance(weight.ne[1], int)
    return (
        is_matrix
        and divisible(weight.ne[1], NEIGHBOURS)
        and all(each.weight >= 0 for each in added if isinstance(each, Tensor))
    )


def _parts(program: Program, numbers: Sequence[int], most: int) -> Iterator[list[int]]:
    """Calls, in order, as few parts as there can be that read no more weights."""
    part: list[int] = []
    read = 0
    for number in numbers:
        own = sum(isinstance(each, Tensor) and each.weight >= 0 for each in program.calls[number].args)
        if part and read + own > most:
            yield part
            part, read = [], 0
        part.append(number)
        read += own
    if part:
        yield part
