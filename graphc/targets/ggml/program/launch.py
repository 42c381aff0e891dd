"""A call that generated kernels of a device compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.shapes import Dim

if TYPE_CHECKING:  # what runs on the CPU alone starts without the generator
    from graphc.kernels.gpu.candidates import Sizes
    from graphc.kernels.gpu.forms import Rendered
    from graphc.kernels.gpu.schedule import Schedule

LAUNCH = "graphc_launch"
"""What stands for a function in such a call; its arguments are the tensors that its kernels read."""

RESULT_TENSOR, SCRATCH_TENSOR, COUNTERS_TENSOR = -1, -2, -3
"""What stands for an argument's number where a kernel has the call's result, memory that nobody else needs, or counters, which
are 0 when it begins and when it ends."""


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel of a call. `tensors` are, for each of its tensors, the number of the call's argument, or what stands for it."""

    rendered: Rendered
    tensors: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Launches:
    """What a call launches, one after the other; the `scratch` is so many bytes, which all of them share, and so are `counters`.
    With a `choice`, they are the first of its ways, and another may be launched instead."""

    each: tuple[Launch, ...]
    scratch: Dim = 0
    counters: Dim = 0
    choice: Choice | None = None

    @property
    def all(self) -> Iterator[Launch]:
        """The launches of every way."""
        if self.choice is None:
            yield from self.each
        else:
            for way in self.choice.ways.values():
                yield from way.each


@dataclass(frozen=True, eq=False)
class Choice:
    """The ways in which a contraction can be launched, by their schedules, and what decides which of them is the fastest. `make`
    makes one of any schedule."""

    sizes: Sizes
    ways: dict[Schedule, Launches]
    make: Callable[[Schedule], Launches]
