"""What a kernel is launched with for certain sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

from graphc.kernels.gpu.dialect import Divisor, divisor
from graphc.kernels.gpu.evaluate import KernelFault
from graphc.kernels.gpu.forms import Rendered
from graphc.shapes import Dim, integer

MOST_ELEMENTS = 2**31 - 1
"""Indices are 32 bits wide: a kernel's tensors have no more elements, and a size is no larger."""

Tensor = TypeVar("Tensor")
Argument: TypeAlias = "int | Divisor"


def grid(rendered: Rendered, symbols: Mapping[str, int]) -> tuple[int, int, int]:
    """Blocks along x, y and z; one of them is 0 if there is nothing to compute."""
    x, y, z = (integer(count, symbols) for count in rendered.kernel.launched)
    return x, y, z


def arguments(
    rendered: Rendered, tensors: Sequence[Tensor], symbols: Mapping[str, int], fault: Tensor | None = None
) -> list[Tensor | int | Divisor]:
    """The arguments in the order of the kernel's parameters, for its tensors, and the one in which it reports a fault. Raises
    KernelFault for sizes that are too large."""
    for tensor in rendered.kernel.tensors:
        _checked(rendered, tensor.name, tensor.size, symbols)
    found: list[Tensor | int | Divisor] = []
    for each in rendered.parameters:
        if each.kind == "tensor":
            assert isinstance(each.value, int)
            found.append(tensors[each.value])
        elif each.kind == "fault":
            assert fault is not None
            found.append(fault)
        else:
            size = _checked(rendered, each.name, each.value, symbols)
            found.append(size if each.kind == "int" else divisor(size))
    return found


def _checked(rendered: Rendered, name: str, dim: Dim, symbols: Mapping[str, int]) -> int:
    size = integer(dim, symbols)
    if abs(size) > MOST_ELEMENTS:
        raise KernelFault(f"{rendered.kernel.name}: {name} is {size}, and a kernel counts to {MOST_ELEMENTS}")
    return size
