"""Keeping weights and intermediate results of a program within the memory that its devices may use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.device.devices import device_name
from graphc.targets.ggml.run.device.options import Limit
from graphc.targets.ggml.run.memory.residence import (
    HOST,
    SLOTS,
    Residence,
    TooSmall,
    devices_of_weights,
    residence_for,
    weights_read,
)
from graphc.targets.ggml.run.memory.weights import Weights

MARGIN = 1 / 16
"""The part of a device's free memory that is left to others, where no limit is given."""

UNKNOWN = 1 << 50
"""Bytes that a device is taken to have which does not say."""

Measure: TypeAlias = Callable[[], tuple[list[int], set[int]]]
"""Bytes of intermediate results on each device, and the weights that are read by a device where they do not lie."""


class Fitting:
    """Gives weights their places: at once where there is room, else for each graph when its sizes are known.

    `limits` are bytes for each of the devices before the CPU, None for what a device reports as free; with `spill` the CPU
    computes what does not fit, else its weights are streamed. While `planning`, devices get nothing.
    """

    def __init__(
        self, program: Program, weights: Weights, limits: Sequence[Limit], spill: bool, planning: bool = False
    ) -> None:
        self.weights, self.spill = weights, spill
        self.devices = weights.backends[:-1]
        self.names = [device_name(each) for each in self.devices]
        self.limits = limits_of(self.devices, self.names, limits)
        self.reads = weights_read(program)
        self.host = set(self.reads.by_host) | {index for index, each in enumerate(program.weights) if not each.nbytes}
        self.needed = [0] * len(self.devices)
        if not self.devices:
            weights.place(Residence((HOST,) * len(program.weights), frozenset(), ()))
            self.bounded = False
            return
        self.host |= weights.refused()
        self.sizes = weights.sizes()
        total = sum(self.sizes[index] for index in self.reads.order)
        self.bounded = any(limits) or 2 * total > sum(self.limits)
        if not self.bounded and not planning:
            weights.place(self.whole())

    def fit(self, measure: Measure) -> None:
        """See that the weights leave room for a graph, which `measure` measures. Raises GraphcError if that cannot be."""
        if self.bounded and (self.weights.residence is None or not self._suits(*measure())):
            self.weights.place(self.plan(measure))

    def plan(self, measure: Measure) -> Residence:
        """What is to lie where for a graph. The weights look as if they lay there. Raises GraphcError if that cannot be."""
        if not self.bounded:
            residence = self.whole()
            self.weights.pretend(residence.device)
            return residence
        while True:
            if self.spill and sum(self.sizes[index] for index in self.reads.order) > sum(self._room()):
                self.host |= self.reads.by_rows
            device = devices_of_weights(self.reads.order, self.sizes, self._room(), self.host, self.spill)
            self.weights.pretend(device)
            if not self._suits(*measure()):
                continue
            try:
                residence = residence_for(device, self.reads, self.sizes, self._room())
            except TooSmall as error:
                raise GraphcError(self._too_small(error)) from error
            if residence.device == device:
                return residence
            self.host.update(index for index, each in enumerate(device) if each != residence.device[index])

    def whole(self) -> Residence:
        """Where weights lie that fit easily."""
        device = devices_of_weights(self.reads.order, self.sizes, self.limits, self.host, self.spill)
        return Residence(device, frozenset(), (0,) * len(self.devices))

    def text(self, planned: Residence | None = None) -> list[str]:
        """A line for each device: what of its memory holds what, or would. None before it is known, and for the CPU alone."""
        residence = planned or self.weights.residence
        if residence is None or not self.devices:
            return []
        lines = []
        for number, name in enumerate(self.names):
            own, slot = sum(self.sizes[index] for index in residence.resident(number)), residence.slots[number]
            streamed = sum(self.sizes[index] for index in residence.streamed if residence.device[index] == number)
            through = f", {mib(streamed)} streamed through 2 x {mib(slot)}" if streamed else ""
            results = f", intermediate results {mib(self.needed[number])}" if self.bounded and own + streamed else ""
            lines.append(f"{name}: weights {mib(own)}{through}{results}")
        rest = sum(self.sizes[index] for index in self.reads.order if residence.device[index] == HOST)
        return [*lines, f"CPU: weights {mib(rest)}"] if rest else lines

    def _too_small(self, error: TooSmall) -> str:
        """What would do, and what for."""
        needed, limit = self.needed[error.device], self.limits[error.device]
        return (
            f"{self.names[error.device]} may use {mib(limit)}, and these sizes need {mib(needed + error.nbytes)} there at least: "
            f"{mib(needed)} for intermediate results, and twice the {mib(error.nbytes // SLOTS)} of weights that one step reads"
        )

    def _room(self) -> list[float]:
        return [limit - needed for limit, needed in zip(self.limits, self.needed, strict=True)]

    def _suits(self, needed: Sequence[int], displaced: set[int]) -> bool:
        """True if it is as was thought; else it will be thought so from now on."""
        if displaced <= self.host and all(new <= old for new, old in zip(needed, self.needed, strict=True)):
            return True
        self.host |= displaced
        self.needed = [max(pair) for pair in zip(needed, self.needed, strict=True)]
        return False


def limits_of(devices: Sequence[Any], names: Sequence[str], limits: Sequence[Limit]) -> list[int]:
    """The bytes that each device may use. Raises InputError for more limits than devices."""
    if len(limits) > len(devices):
        known = f"{', '.join(names)}" if names else "the CPU, which uses weights where they lie"
        raise InputError(f"{len(limits)} limits of memory are given for {known}")
    given = [*limits, *[None] * (len(devices) - len(limits))]
    return [free_memory(device) if limit is None else limit for device, limit in zip(devices, given, strict=True)]


def free_memory(backend: Any) -> int:
    """Bytes that a device has for us."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(ggml.ggml_backend_get_device(backend), ctypes.byref(free), ctypes.byref(total))
    return int(free.value * (1 - MARGIN)) or UNKNOWN


def mib(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / 2**20:.1f} MiB"
