"""Which schedules the contractions of a program have on a GPU.

Where a contraction was measured on the device, the fastest schedule counts; else the one that is guessed to be it. Sizes stay
free: a kernel serves all of them, but which schedule is the fastest depends on how many blocks there are. So a contraction whose
sizes are free is compiled in up to two schedules when the program is loaded: the one that is best over a wide range of sizes, and
a second if the two are clearly faster together. Which of them is launched is decided when sizes are known, by measurements or the
guess; that takes microseconds, and another size never compiles anything. Each further schedule would take as much time to compile
as the first, and gain less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from graphc.kernels.gpu.candidates import (
    Sizes,
    candidates,
    fits,
    guess,
    in_orders,
    in_parts,
    instructions_for,
    parts_bytes,
)
from graphc.kernels.gpu.devices import Gpu
from graphc.kernels.gpu.roofline import Coefficients, usual
from graphc.kernels.gpu.schedule import Schedule
from graphc.shapes import integer, symbols

RANGE = (64, 512, 4096, 32768)
"""What a free size may turn out to be."""

SIDES, IMAGES = (64, 128), 2
"""The same of the height and the width of images, those of the latents of pictures of 512 and 1024 pixels; and how many there are
of them, with and without a prompt. Rows of images are as many as that is for each layer: those of the innermost are few, for any
picture."""

SIZES_OF_IMAGES = 3
"""Free sizes whose product rows of images are: how many images, their height and their width."""

LARGE = 1 << 20
"""More than any cache holds of it: the pixels of a picture of 1024 x 1024."""

FREE_BATCH = 8
"""What a free number of products is taken for."""

MOST_WAYS = 2
"""Schedules in which a contraction of free sizes is compiled."""

CLEARLY = 0.95
"""A second schedule must bring the time, over the whole range, down to so much of that by the first."""

PARTS_CLEARLY = 0.85
"""Sums in parts must bring down the time of whole ones to so much of it, by the guess, which does not know what parts push out of
the second cache that other kernels would read; and of what is more than half of it as much is written and read again. On an
H200 0.85 to 1 choose equally well among what was measured."""

Measured = Mapping[Sizes, Mapping[Schedule, float]]
"""Seconds of contractions of known sizes, by their schedules."""


@dataclass
class Scheduling:
    """The schedules for a GPU, by what was measured there and by coefficients of its roofline."""

    gpu: Gpu
    coefficients: Coefficients = field(default_factory=Coefficients)
    measured: Measured = field(default_factory=dict)
    _all: dict[np.dtype, list[Schedule]] = field(default_factory=dict)
    _chosen: dict[str, list[Schedule]] = field(default_factory=dict)

    @staticmethod
    def of(gpu: Gpu) -> Scheduling:
        """For a GPU of which nothing was measured."""
        return Scheduling(gpu, usual(gpu))

    def schedules(self, sizes: Sizes) -> list[Schedule]:
        """Those in which a contraction is compiled, the most important first; none if there is none for these sizes."""
        key = str(sizes)
        if key not in self._chosen:
            if not any(map(sizes.take, self.candidates(sizes.operand))):
                self._chosen[key] = []
            else:
                self._chosen[key] = self._for_free(sizes) if sizes.free else self.ranked(sizes)[:1]
        return self._chosen[key]

    def best(self, sizes: Sizes, among: Iterable[Schedule]) -> Schedule:
        """The fastest of some schedules for known sizes: of those that were measured, if any was."""
        times = self.measured.get(sizes, {})
        found = list(among)
        known = [each for each in found if each in times]
        return min(known or found, key=lambda each: (self.seconds(sizes, each), str(each)))

    def ranked(self, sizes: Sizes) -> list[Schedule]:
        """All schedules for known sizes, those that were measured first, then those that are guessed to be the fastest."""
        measured = self.measured.get(sizes, {})
        times = {each: time for each, time in measured.items() if self.takes(each, sizes.operand) and sizes.take(each)}
        return list(dict.fromkeys([*_fastest_first(times), *self.guessed(sizes)]))

    def guessed(self, sizes: Sizes) -> list[Schedule]:
        """All candidates for known sizes, those that are guessed to be the fastest first."""
        times = {
            each: self._guess(sizes, each)
            for whole in self.candidates(sizes.operand)
            for each in in_parts(whole, sizes, self.gpu)
        }
        return _fastest_first(times)

    def learn(self, sizes: Sizes, times: Mapping[Schedule, float]) -> None:
        """Take measurements into account from now on."""
        self.measured = {**self.measured, sizes: {**self.measured.get(sizes, {}), **times}}
        self._chosen.clear()

    def seconds(self, sizes: Sizes, schedule: Schedule) -> float:
        """How long a contraction of known sizes takes, measured or guessed."""
        time = self.measured.get(sizes, {}).get(schedule)
        return self._guess(sizes, schedule) if time is None else time

    def _guess(self, sizes: Sizes, schedule: Schedule) -> float:
        """Seconds by which schedules that nobody measured are compared."""
        time = guess(sizes, schedule, self.gpu, self.coefficients)
        if schedule.parts == 1:
            return time
        beyond = max(2 * parts_bytes(schedule, sizes) - self.gpu.cache, 0)
        return time / PARTS_CLEARLY + 2 * beyond / self.gpu.bandwidth

    def candidates(self, operand: np.dtype) -> list[Schedule]:
        """All schedules that the GPU can have."""
        if operand not in self._all:
            self._all[operand] = list(candidates(operand, self.gpu))
        return self._all[operand]

    def takes(self, schedule: Schedule, operand: np.dtype) -> bool:
        """True if the GPU can have a schedule, which somebody may have written, for numbers of a type."""
        return schedule.instruction in instructions_for(operand, self.gpu) and fits(schedule, self.gpu)

    def _for_free(self, sizes: Sizes) -> list[Schedule]:
        """A few schedules that serve all sizes; those that were measured to be the fastest for some are always among them. One of
        them has whole sums: parts of the sums of an image, which may be of any size, would need several times its memory."""
        samples = _samples(sizes)
        offered = {replace(self.ranked(each)[0], across=False) for each in samples}
        times = {each: [self.seconds(sample, each) for sample in samples] for each in sorted(offered, key=str)}
        chosen: list[Schedule] = []
        whole = [each for each in times if each.parts == 1]
        while len(chosen) < min(MOST_WAYS, len(times)):
            lacking = bool(whole) and all(each.parts > 1 for each in chosen)
            among = whole if lacking and len(chosen) == MOST_WAYS - 1 else times
            found = min(among, key=lambda each: _mean([*chosen, each], times))
            if chosen and not lacking and _mean([*chosen, found], times) > CLEARLY * _mean(chosen, times):
                break
            chosen.append(found)
        known = [self.ranked(each)[0] for each in self.measured if _may_be(each, sizes)]
        return list(dict.fromkeys([*(self._in_order(each, sizes) for each in chosen), *known]))

    def _in_order(self, schedule: Schedule, sizes: Sizes) -> Schedule:
        """A schedule with the order of its blocks that is best for large sizes; for small ones all are alike."""
        large = _sample(sizes, LARGE)
        return self.best(large, in_orders(schedule, large, self.gpu))


def _fastest_first(times: Mapping[Schedule, float]) -> list[Schedule]:
    return sorted(times, key=lambda each: (times[each], str(each)))


def _mean(chosen: list[Schedule], times: Mapping[Schedule, list[float]]) -> float:
    """The geometric mean over all samples, each by the fastest of the chosen."""
    best = [min(column) for column in zip(*(times[each] for each in chosen), strict=True)]
    return math.exp(sum(map(math.log, best)) / len(best))


def _samples(sizes: Sizes) -> list[Sizes]:
    """What sizes may turn out to be."""
    free = symbols(sizes.rows)
    if len(free) < SIZES_OF_IMAGES:
        return [_sample(sizes, size) for size in RANGE]
    rows = [integer(sizes.rows, dict.fromkeys(free, side)) * IMAGES // side for side in SIDES]
    return [_sample(replace(sizes, rows=each), side) for each, side in zip(rows, SIDES, strict=True)]


def _sample(sizes: Sizes, size: int) -> Sizes:
    """Known sizes, where each that is free has this value."""
    rows, columns, depth = (
        each if isinstance(each, int) else size for each in (sizes.rows, sizes.columns, sizes.depth)
    )
    batch = sizes.batch if isinstance(sizes.batch, int) else FREE_BATCH
    return replace(sizes, rows=rows, columns=columns, depth=depth, batch=batch)


def _may_be(known: Sizes, sizes: Sizes) -> bool:
    """True if sizes may turn out to be these."""
    names = ("operand", "taps", "paired", "terms", "rows", "columns", "depth", "batch")
    pairs = ((getattr(known, name), getattr(sizes, name)) for name in names)
    return all(own == other or (isinstance(own, int) and not isinstance(other, int | np.dtype)) for own, other in pairs)
