"""Checking a program for the sizes at hand.

With symbolic sizes some of ggml's conditions cannot be decided when a model is compiled: a kernel may be larger than a
small image, a view may look past the end. Before the calls are made for certain sizes, each is checked for these sizes, so
that an input of an impossible size is an error and not the end of the process.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from graphc.errors import InputError, ShapeError
from graphc.ir.interp import bound as with_sizes
from graphc.kernels.use import KernelUse
from graphc.shapes import Expr, Values, integer, symbols
from graphc.shapes.compiled import SizeProgram
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program
from graphc.targets.ggml.program.rules import Layout
from graphc.targets.ggml.program.sections import sizes_of_tensors, sizes_read
from graphc.targets.ggml.program.tensor import ProgramError, Quad, Tensor, checked, dense, storage_ne
from graphc.targets.ggml.program.verify import check_kernel


class SizeChecks:
    """What is checked of some of a program's calls before they are made for certain sizes. Calls of which a check sees the same,
    as those of a model's layers, are checked once; and where the sizes that they have stay what they were, or were
    accepted before, not again."""

    def __init__(self, program: Program, calls: Sequence[int]) -> None:
        self.program = program
        first: dict[Any, int] = {}
        for index in calls:
            first.setdefault(_seen(program.calls[index]), index)
        groups: dict[frozenset[str], list[tuple[Call, list[Expr]]]] = {}
        for index in first.values():
            sizes = _sizes(program, index)
            groups.setdefault(frozenset(symbols(*sizes)), []).append((program.calls[index], sizes))
        self._groups = [_Group(calls) for calls in groups.values()]

    def check(self, binding: Mapping[str, int]) -> None:
        """Raise InputError, with the node, unless ggml accepts these calls when the size symbols have these values."""
        for group in self._groups:
            group.check(self.program, binding)


MOST_ACCEPTED = 1024
"""Sizes that were accepted, of which that is remembered: the steps of a loop have the same in each run."""


class _Group:
    """Calls that depend on the same symbols, each with the sizes that its check looks at."""

    def __init__(self, calls: Sequence[tuple[Call, Sequence[Expr]]]) -> None:
        self._sizes = SizeProgram(size for _, sizes in calls for size in sizes)
        places = {size: place for place, size in enumerate(self._sizes.sizes)}
        self._calls = [(call, [places[size] for size in sizes]) for call, sizes in calls]
        self._right: list[int] = []
        self._accepted: set[tuple[int, ...]] = set()

    def check(self, program: Program, binding: Mapping[str, int]) -> None:
        """See `SizeChecks.check`."""
        known = tuple([binding[name] for name in self._sizes.names])
        if known in self._accepted:
            return
        values, right = Values(binding), self._right
        try:
            found = self._sizes(binding)
        except ArithmeticError:  # one of the checks says why
            found, right = [], []
        for call, places in self._calls:
            if not right or any(found[place] != right[place] for place in places):
                _check(program, call, binding, values)
        if len(self._accepted) == MOST_ACCEPTED:
            self._accepted.clear()
        self._right = found
        self._accepted.add(known)


def _sizes(program: Program, index: int) -> list[Expr]:
    """What a check of a call looks at."""
    kernel = program.calls[index].kernel
    read = program.kernels[kernel].sizes_read() if kernel >= 0 else []
    return [*dict.fromkeys([*sizes_of_tensors(program, [index], (), ()), *read])]


def _seen(call: Call) -> Any:
    """What a check sees of a call."""

    def kind(arg: Any) -> Any:
        return (arg.type, arg.ne, arg.nb, arg.rank) if isinstance(arg, Tensor) else (type(arg), arg)

    return call.function, call.kernel, call.launches is None, kind(call.result), *map(kind, call.args)


def _check(program: Program, call: Call, binding: Mapping[str, int], values: Values) -> None:
    """Raise InputError, with the node, unless ggml accepts a call for these sizes, and makes of it what the program says."""

    def bound(arg: Any) -> Any:
        match arg:
            case Tensor():
                return Tensor(arg.type, quad(arg.ne, values), quad(arg.nb, values), arg.rank)
            case Expr():
                return values[arg]
        return arg

    try:
        result = bound(call.result)
        if (
            0 in result.ne or call.launches is not None
        ):  # nothing is computed, or what the calls say that it was made of
            return
        if call.kernel >= 0:
            made: Tensor | Layout = bound_kernel(program.kernels[call.kernel], call, binding)
        else:
            made = CALLS[call.function](*map(bound, call.args))
        checked(result)
        if (made.type, made.ne, made.nb) != (result.type, result.ne, result.nb):
            raise ProgramError(f"{call.function} makes {list(made.ne)}, and the program says {list(result.ne)}")
    except (ProgramError, ShapeError, ArithmeticError) as error:
        sizes = ", ".join(f"{name} = {size}" for name, size in binding.items())
        where = f" in {call.source}" if call.source else ""
        raise InputError(f"the model cannot be run with {sizes}{where}: {error}") from error


def known_calls(program: Program, names: Collection[str]) -> list[int]:
    """The calls of a program that depend on sizes of these names alone."""
    made = [index for index, call in enumerate(program.calls) if call.function not in (HOST, RESULT)]
    return [index for index in made if set(sizes_read(program, [index], (), ())).issubset(names)]


def bound_kernel(use: KernelUse, call: Call, binding: Mapping[str, int]) -> Tensor:
    """The result of a generated kernel. Raises ProgramError or ShapeError unless its operator gives it for these sizes."""
    shapes = [
        tuple(integer(size, binding) for size in shape) for shape in (use.shape, *(shape for _, shape in use.inputs))
    ]
    inputs = tuple((dtype, shape) for (dtype, _), shape in zip(use.inputs, shapes[1:], strict=True))
    check_kernel(KernelUse(with_sizes(use.op, binding), inputs, use.dtype, shapes[0]))
    return dense(call.result.type, storage_ne(shapes[0]), call.result.rank)


def quad(sizes: Quad, values: Values) -> Quad:
    """Four sizes with their values."""
    a, b, c, d = map(values.__getitem__, sizes)
    return a, b, c, d
