"""Checking a program for the sizes at hand.

With symbolic sizes some of ggml's conditions cannot be decided when a model is compiled: a kernel may be larger than a
small image, a view may look past the end. Before the calls are made for certain sizes, each is checked for these sizes, so
that an input of an impossible size is an error and not the end of the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphc.errors import InputError, ShapeError
from graphc.ir.interp import bound as with_sizes
from graphc.kernels.use import KernelUse
from graphc.shapes import Expr, bind, integer, symbols
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program
from graphc.targets.ggml.program.tensor import ProgramError, Quad, Tensor, checked, dense, storage_ne
from graphc.targets.ggml.program.verify import check_kernel


def check_bound(program: Program, calls: Sequence[int], binding: Mapping[str, int]) -> None:
    """Raise InputError, with the node, unless ggml accepts these calls when the size symbols have these values."""
    results: dict[int, Tensor] = {}

    def bound(arg: Any) -> Any:
        match arg:
            case Tensor() if arg.call in results:
                return results[arg.call]
            case Tensor():
                return Tensor(arg.type, quad(arg.ne, binding), quad(arg.nb, binding), arg.rank)
            case Expr():
                return bind(arg, binding)
        return arg

    for index in calls:
        call = program.calls[index]
        try:
            ne = quad(call.result.ne, binding)
            if 0 in ne or call.launches is not None:  # nothing is computed, or what the calls say that it was made of
                results[index] = Tensor(call.result.type, ne, quad(call.result.nb, binding), call.result.rank)
                continue
            if call.kernel >= 0:
                result = bound_kernel(program.kernels[call.kernel], call, binding)
            else:
                layout = CALLS[call.function](*map(bound, call.args))
                result = Tensor(layout.type, layout.ne, layout.nb, call.result.rank)
            checked(result)
        except (ProgramError, ShapeError, ArithmeticError) as error:
            sizes = ", ".join(f"{name} = {size}" for name, size in binding.items())
            where = f" in {call.source}" if call.source else ""
            raise InputError(f"the model cannot be run with {sizes}{where}: {error}") from error
        results[index] = result


def known_calls(program: Program, binding: Mapping[str, int]) -> list[int]:
    """The calls of a program all of whose sizes have values."""

    def known(call: Call) -> bool:
        tensors = [call.result, *(arg for arg in call.args if isinstance(arg, Tensor))]
        sizes = [size for tensor in tensors for size in (*tensor.ne, *tensor.nb)]
        return symbols(*sizes, *(arg for arg in call.args if isinstance(arg, Expr))).keys() <= binding.keys()

    made = [index for index, call in enumerate(program.calls) if call.function not in (HOST, RESULT)]
    return [index for index in made if known(program.calls[index])]


def bound_kernel(use: KernelUse, call: Call, binding: Mapping[str, int]) -> Tensor:
    """The result of a generated kernel. Raises ProgramError or ShapeError unless its operator gives it for these sizes."""
    shapes = [
        tuple(integer(size, binding) for size in shape) for shape in (use.shape, *(shape for _, shape in use.inputs))
    ]
    inputs = tuple((dtype, shape) for (dtype, _), shape in zip(use.inputs, shapes[1:], strict=True))
    check_kernel(KernelUse(with_sizes(use.op, binding), inputs, use.dtype, shapes[0]))
    return dense(call.result.type, storage_ne(shapes[0]), call.result.rank)


def quad(sizes: Quad, binding: Mapping[str, int]) -> Quad:
    """Four sizes with their values."""
    a, b, c, d = (bind(size, binding) for size in sizes)
    return a, b, c, d
