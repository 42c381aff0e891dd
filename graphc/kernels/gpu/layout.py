"""Who holds which element of a tile: layouts as data.

A block's threads are warps of lanes. An `Atom` says which elements of a small tile each lane of a warp holds in its registers;
a `Layout` repeats it in registers, and shares the repetitions out among warps. Coordinates are sums: each bit of the lane's and
of the register's number adds its own, so that what a layout does can be computed, compared and proven. A bit that adds nothing
means that several lanes hold the same element.

The idea is that of Triton's linear layouts (arXiv 2505.23819).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

Coordinates = tuple[int, ...]


@dataclass(frozen=True)
class Atom:
    """A tile of `shape` that one warp holds: the coordinates that each bit of a lane's number adds (the lowest bit first),
    and each bit of a register's number. An `opaque` one is held as the device likes: nothing may be asked about its places."""

    shape: Coordinates
    lanes: tuple[Coordinates, ...]
    registers: tuple[Coordinates, ...] = ()
    opaque: bool = False

    @property
    def count(self) -> int:
        """Registers of a lane, one for each element that it holds."""
        if self.opaque:
            return int(np.prod(self.shape)) >> len(self.lanes)
        return 1 << len(self.registers)


@dataclass(frozen=True)
class Layout:
    """An atom, repeated along each axis in registers, and along axes by warps.

    `warps` has how many warps there are, from the slowest digit of a warp's number to the fastest, each with the axis that it
    counts along, or None if those warps hold the same elements.
    """

    atom: Atom
    repeat: Coordinates
    warps: tuple[tuple[int, int | None], ...] = ()

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.atom.shape)

    @property
    def warp_shape(self) -> Coordinates:
        """The part of the tile that one warp holds."""
        return tuple(size * times for size, times in zip(self.atom.shape, self.repeat, strict=True))

    @property
    def shape(self) -> Coordinates:
        """The sizes of the tile."""
        sizes = list(self.warp_shape)
        for count, axis in self.warps:
            if axis is not None:
                sizes[axis] *= count
        return tuple(sizes)

    @property
    def lanes(self) -> int:
        """Lanes of a warp."""
        return 1 << len(self.atom.lanes)

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.lanes * int(np.prod([count for count, _ in self.warps], dtype=int))

    @property
    def registers(self) -> int:
        """Elements that a thread holds: those of an atom are neighbours, then come the repetitions, the last axis first."""
        return self.atom.count * int(np.prod(self.repeat, dtype=int))

    def places(self) -> np.ndarray:
        """The coordinates of each element, [threads, registers, rank]. Raises ValueError for an opaque atom."""
        return _places(self)

    def vector(self) -> int:
        """Elements that lie side by side along the last axis in a thread's registers."""
        width = 1
        for bit in self.atom.registers:
            if bit != (0,) * (self.rank - 1) + (width,):
                break
            width *= 2
        return width

    def without(self, axis: int) -> Layout:
        """The layout of what remains when an axis is reduced to one element, which all who had a part of it then hold."""

        def dropped(at: Coordinates) -> Coordinates:
            return (*at[:axis], 0, *at[axis + 1 :])

        registers = tuple(dropped(bit) for bit in self.atom.registers if any(dropped(bit)))
        shape = (*self.atom.shape[:axis], 1, *self.atom.shape[axis + 1 :])
        atom = Atom(shape, tuple(map(dropped, self.atom.lanes)), registers, self.atom.opaque)
        repeat = (*self.repeat[:axis], 1, *self.repeat[axis + 1 :])
        return Layout(atom, repeat, tuple((count, None if along == axis else along) for count, along in self.warps))

    def of_threads(self, axis: int) -> Layout:
        """The layout of what remains when each thread reduces its own part along an axis to one element."""
        apart = [bit for bit, at in enumerate(self.atom.lanes) if at[axis]]
        whole = self.without(axis)
        lanes = tuple(
            (*at[:axis], 1 << apart.index(bit) if bit in apart else 0, *at[axis + 1 :])
            for bit, at in enumerate(self.atom.lanes)
        )
        shape = (*whole.atom.shape[:axis], 1 << len(apart), *whole.atom.shape[axis + 1 :])
        return replace(whole, atom=replace(whole.atom, shape=shape, lanes=lanes), warps=self.warps)

    def part(self, axis: int, count: int = 1) -> Layout:
        """The layout of so many repetitions along an axis, by all warps together."""
        return replace(self, repeat=(*self.repeat[:axis], count, *self.repeat[axis + 1 :]))


@functools.lru_cache(maxsize=1000)
def _places(layout: Layout) -> np.ndarray:
    atom, rank = layout.atom, layout.rank
    if atom.opaque:
        raise ValueError("nobody knows who holds which element of an opaque tile")
    found = np.zeros((layout.threads, layout.registers, rank), np.int64)
    threads, registers = np.arange(layout.threads), np.arange(layout.registers)
    for bit, at in enumerate(atom.lanes):
        found += (threads >> bit & 1)[:, None, None] * np.array(at)
    for bit, at in enumerate(atom.registers):
        found += (registers >> bit & 1)[None, :, None] * np.array(at)
    repetition = registers // atom.count
    for axis in reversed(range(rank)):
        found[:, :, axis] += (repetition % layout.repeat[axis] * atom.shape[axis])[None, :]
        repetition = repetition // layout.repeat[axis]
    warp = threads // layout.lanes
    step = list(layout.warp_shape)
    for count, along in reversed(layout.warps):
        if along is not None:
            found[:, :, along] += (warp % count * step[along])[:, None]
            step[along] *= count
        warp = warp // count
    found.setflags(write=False)
    return found


@functools.lru_cache(maxsize=1000)
def register_map(source: Layout, target: Layout) -> tuple[int, ...] | None:
    """For each register of a layout, the register of another in which the same thread has the same element; an axis of size 1 is
    the same for all. None if some thread does not have it."""
    theirs, ours = source.places(), target.places()
    if len(theirs) != len(ours):
        return None
    ours = np.where(np.array(source.shape) == 1, 0, ours)
    found: tuple[int, ...] | None = None
    for mine, other in zip(ours, theirs, strict=True):
        where = {tuple(place): register for register, place in reversed(list(enumerate(other.tolist())))}
        registers = tuple(where.get(tuple(place), -1) for place in mine.tolist())
        if -1 in registers or (found is not None and registers != found):
            return None
        found = registers
    return found


def rows(width: int, vector: int, lanes: int = 32, columns: int | None = None) -> Atom:
    """An atom of `vector` neighbours in each lane, with lanes side by side along rows of `width` elements first. `columns` is
    how many lanes lie along a row, if fewer than would fit. All are powers of two."""
    across = min(lanes, width // vector if columns is None else columns)
    bits = lanes.bit_length() - 1
    inner = across.bit_length() - 1
    places = [(0, vector << bit) for bit in range(inner)] + [(1 << bit, 0) for bit in range(bits - inner)]
    registers = [(0, 1 << bit) for bit in range(vector.bit_length() - 1)]
    return Atom((lanes // across, across * vector), tuple(places), tuple(registers))


def spread(shape: Sequence[int], vector: int, warps: int, lanes: int = 32) -> Layout:
    """A layout of a tile of rows for reading and writing memory: neighbours in each lane, lanes side by side, warps below each
    other. Raises ValueError if the tile cannot be shared out so."""
    height, width = shape
    power = width & -width
    atom = rows(power, min(vector, power), lanes)
    if width % atom.shape[1]:
        raise ValueError(f"a row of {width} elements cannot be shared out in steps of {atom.shape[1]}")
    if height % (atom.shape[0] * warps) == 0:
        return Layout(atom, (height // (atom.shape[0] * warps), width // atom.shape[1]), ((warps, 0),))
    down = max(1, height // atom.shape[0])
    if height % atom.shape[0] or warps % down or width % (atom.shape[1] * (warps // down)):
        raise ValueError(f"a tile of {height} x {width} cannot be shared out among {warps} warps")
    across = warps // down
    return Layout(atom, (1, width // (atom.shape[1] * across)), ((down, 0), (across, 1)))
