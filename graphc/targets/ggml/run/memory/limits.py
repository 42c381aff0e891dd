"""Keeping weights and intermediate results of a program within the memory that its devices may use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.choose.library import Own
from graphc.targets.ggml.run.device.devices import device_name
from graphc.targets.ggml.run.device.options import Limit
from graphc.targets.ggml.run.memory.residence import HOST, Plan, Residence, weights_read
from graphc.targets.ggml.run.memory.weights import Weights

Measure: TypeAlias = Callable[[], tuple[list[int], set[int]]]
"""Bytes of intermediate results on each device, and the weights that are read by a device where they do not lie."""


class Fitting:
    """Gives weights their places: at once where there is room, else for each graph when its sizes are known.

    `limits` are bytes for each of the devices before the CPU, None for what a device reports as free; with `spill` the CPU
    computes what does not fit, else its weights are streamed. While `planning`, devices get nothing. Raises GraphcError for
    devices without code of our own.
    """

    def __init__(
        self, program: Program, weights: Weights, limits: Sequence[Limit], spill: bool, own: Own | None, planning: bool = False
    ) -> None:  # fmt: skip
        self.weights, devices = weights, weights.backends[:-1]
        names = [device_name(each) for each in devices]
        if len(limits) > len(names):
            known = ", ".join(names) or "the CPU, which uses weights where they lie"
            raise InputError(f"{len(limits)} limits of memory are given for {known}")
        self.plan: Plan | None = None
        if names:
            if own is None:
                raise GraphcError(
                    f"{', '.join(names)}: devices other than the CPU need graphc's own C code, which needs a C compiler: "
                    "set CC, or `pip install ziglang`"
                )
            reads = weights_read(program)
            host = reads.by_host | weights.refused() | {i for i, each in enumerate(program.weights) if not each.nbytes}
            given = [limit or 0 for limit in (*limits, *[None] * (len(names) - len(limits)))]
            rooms = [*zip(names, given, map(free_memory, devices), strict=True)]
            self.plan = Plan(own, rooms, weights.sizes(), reads, host, spill)
        self.bounded = self.plan is not None and self.plan.bounded
        if not self.bounded and not planning:
            weights.place(self.thought)

    @property
    def thought(self) -> Residence:
        """Where weights are thought to lie."""
        return Residence([HOST] * len(self.weights.tensors)) if self.plan is None else self.plan.residence

    def fit(self, measure: Measure) -> None:
        """See that the weights leave room for a graph, which `measure` measures. Raises GraphcError if that cannot be."""
        placed = self.weights.residence is not None
        if self.plan is not None and self.bounded and not (placed and self.plan.fits(*measure())):
            self.weights.place(self.planned(measure))

    def planned(self, measure: Measure) -> Residence:
        """What is to lie where for a graph. The weights look as if they lay there. Raises GraphcError if that cannot be."""
        self.weights.pretend(self.thought.device)
        while self.plan is not None and self.bounded and not self.plan.fits(*measure()):
            self.weights.pretend(self.thought.device)
        return self.thought

    def text(self, planned: bool = False) -> list[str]:
        """A line for each device: what of its memory holds what, or would. None before it is known, and for the CPU alone."""
        known = planned or self.weights.residence is not None
        return self.plan.text() if self.plan is not None and known else []


def free_memory(backend: Any) -> int:
    """Bytes that a device says are free."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(ggml.ggml_backend_get_device(backend), ctypes.byref(free), ctypes.byref(total))
    return free.value
