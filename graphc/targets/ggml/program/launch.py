"""A call that generated kernels of a device compute."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.kernels.gpu.render.cuda import Rendered
from graphc.shapes import Dim

LAUNCH = "graphc_launch"
"""What stands for a function in such a call; its arguments are the tensors that its kernels read."""

RESULT_TENSOR, SCRATCH_TENSOR = -1, -2
"""What stands for an argument's number where a kernel has the call's result, or memory that nobody else needs."""


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel of a call. `tensors` are, for each of its tensors, the number of the call's argument, or what stands for it."""

    rendered: Rendered
    tensors: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Launches:
    """What a call launches, one after the other; the `scratch` is so many bytes, which all of them share."""

    each: tuple[Launch, ...]
    scratch: Dim = 0
