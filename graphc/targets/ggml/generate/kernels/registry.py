"""What a program calls that has kernels of its own, and what makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from graphc.targets.ggml.generate.arrays import Array

MakesKernels = Callable[..., "Array | None"]
Maker = TypeVar("Maker", bound=MakesKernels)

KERNELS: dict[str, MakesKernels] = {}
"""By what a program calls: of a `Generator`, the result and the arguments, what it computes as an array; None where there is no
kernel for that, as then a composite's expansion is taken."""


def kernels_of(*functions: str) -> Callable[[Maker], Maker]:
    """Say that kernels of calls are made by what follows."""

    def register(make: Maker) -> Maker:
        KERNELS.update(dict.fromkeys(functions, make))
        return make

    return register
