"""What normalizes the channels of images in groups: what each is multiplied by, and what is added to that.

Channels of a pixel are neighbours in memory. A block has some of them, of a strip of an image's pixels: it takes their means, and
the squares of what differs from these, so that nothing large is subtracted from something as large. The last of an image's blocks
puts them together in groups (Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np

from graphc.ir.types import F32, I64
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.gpu.layout import rows as lanes_in_rows
from graphc.kernels.gpu.skeletons.pointwise import NO_INPUTS, always, in_tiles, largest_width, widest
from graphc.kernels.gpu.tile import BLOCKS, LINE, U32, Builder, Tile, TileKernel, index, place
from graphc.kernels.nest import walk
from graphc.kernels.scalar import Scalar, constant
from graphc.shapes import Dim

WARPS = 8
"""Of a block."""

AT_ONCE = 16
"""Numbers that a lane reads before it adds them."""

PUT_TOGETHER = 16384
"""Means that the last block of an image reads, about: so many channels in all strips."""

GROUPS = 32
"""Groups that it puts together at a time."""

HELD = 16
"""Means of strips that a lane has at once, at most."""

TOGETHER = 3
"""Blocks that a multiprocessor has at once: what they wait for is what hides how long memory takes."""

FLOATS = 4
"""Numbers of float32 that are read or written at once: 16 bytes."""

PER_CHANNEL = 2
"""Numbers of a channel: of a strip, the mean and the squares; of the whole image, what it is multiplied by and what is added."""

ZERO = constant(0, I64)


@dataclass(frozen=True)
class Grouped:
    """`images` of so many pixels, and channels in groups, of which only multiples of `together` are neighbours. `usual` is how
    many pixels there are as a rule. `value` is an element for an image, a pixel and a channel; `scale` and `shift`, for an image
    and a channel, what it is multiplied by and what is added, once it is normalized."""

    name: str
    images: Dim
    pixels: Dim
    channels: int
    groups: int
    together: int
    epsilon: float
    usual: int
    value: Callable[[Scalar, Scalar, Scalar], Scalar]
    scale: Callable[[Scalar, Scalar], Scalar] | None = None
    shift: Callable[[Scalar, Scalar], Scalar] | None = None


def group_factors(what: Grouped, inputs: Sequence[tuple[np.dtype, Dim]], lanes: int = 32) -> TileKernel:
    """result[image, 2, channel], float32: the factor of each channel, and what is added. `inputs` are the types and sizes of the
    tensors that values read; behind them come scratch memory, counters, and the result."""
    return _GroupFactors(what, inputs, lanes).kernel()


def shape_of(layout: Layout) -> tuple[int, int]:
    """The rows and columns of a layout."""
    rows, columns = layout.shape
    return rows, columns


def side_by_side(channels: int, together: int, nbytes: int) -> int:
    """How many neighbouring channels a block has: a power of two, of as many bytes as caches keep together."""
    return largest_width(channels, largest_width(together, LINE // nbytes))


class _GroupFactors:
    def __init__(self, what: Grouped, inputs: Sequence[tuple[np.dtype, Dim]], lanes: int) -> None:
        self.what = what
        read = what.value(ZERO, ZERO, ZERO)
        nbytes = max(inputs[each.data][0].itemsize for each in walk(read) if each.kind == "element")  # type: ignore[call-overload]
        self.chunk = chunk = side_by_side(what.channels, what.together, nbytes)
        self.vector = min(chunk, 16 // nbytes)
        atom = lanes_in_rows(chunk, self.vector, lanes)
        below = atom.shape[0] * WARPS
        self.strips = strips = largest_strips(what, below)
        times = max(1, min(AT_ONCE // self.vector, what.usual // (strips * below)))
        self.layout = layout = Layout(atom, (times, chunk // atom.shape[1]), ((WARPS, 0),))
        self.steps = -(-what.pixels // (strips * layout.shape[0]))
        self.k = k = Builder(what.name, layout.threads)
        self.tensors = [k.tensor(f"x{number}", dtype, size) for number, (dtype, size) in enumerate(inputs)]
        self.parts = k.tensor("parts", F32, what.images * (PER_CHANNEL * strips * what.channels), written=True)
        self.counters = k.tensor("counters", U32, what.images, written=True)
        self.result = k.tensor("result", F32, what.images * (PER_CHANNEL * what.channels), written=True)
        self.image = BLOCKS[2]
        self.row, self.column = place(shape_of(layout))

    def kernel(self) -> TileKernel:
        """The kernel."""
        k, what = self.k, self.what
        chunks = what.channels // self.chunk
        begin, channel = self.begin(BLOCKS[0]), BLOCKS[1] * self.chunk + self.column
        first = begin.minimum(index(what.pixels - 1))
        pivot = self.read("pivot", first, channel, self.layout.without(0))
        sums, squares, difference = (k.tile(name, self.layout) for name in ("sums", "squares", "difference"))
        k.map(sums, 0.0)
        k.map(squares, 0.0)
        with self.loop("step", self.steps) as step:
            pixel = begin + step * self.layout.shape[0] + self.row
            inside = pixel < index(what.pixels)
            found = self.value(pixel, channel, self.layout, inside)
            k.map(difference, NO_INPUTS.select(inside, found - pivot.value, 0.0))
            k.map(sums, sums.value + difference.value)
            k.map(squares, squares.value + difference.value * difference.value)
        mean, rest = self.added(sums, squares)
        pivot = self.read("pivot_here", first, channel, mean.layout)
        count = NO_INPUTS.cast(self.count(BLOCKS[0]).maximum(1), F32)
        k.map(rest, rest.value - mean.value * mean.value / count)
        k.map(mean, pivot.value + mean.value / count)
        for which, tile in enumerate((mean, rest)):
            k.store(self.parts, always(self.part(which, BLOCKS[0], channel)), tile)
        told = k.array("told", U32, (1, FLOATS), instead_of=[k.shared[0]])
        with k.last(self.counters, self.image, self.strips * chunks, told):
            self.put_together()
        return k.finished(self.strips, chunks, what.images, blocks=TOGETHER)

    def added(self, *tiles: Tile) -> list[Tile]:
        """The sum of each column, in one thread or a few of a warp: what threads have goes through shared memory."""
        k, own = self.k, self.layout.of_threads(0)
        height, lanes = own.shape[0], self.layout.lanes
        width = max(1, self.chunk // WARPS)
        padding = 16 * -(-width // FLOATS)
        rows = -(-self.chunk // FLOATS) * FLOATS
        buffer = k.array("by_thread", F32, (height, rows), len(tiles), padding=padding)
        atom = lanes_in_rows(width, 1, lanes)
        warps = (self.chunk // width, 1), (WARPS * width // self.chunk, None)
        layout = Layout(atom, (height // atom.shape[0], width // atom.shape[1]), warps)
        for stage, tile in enumerate(tiles):
            k.put(buffer, k.reduce(k.tile(f"{tile.name}_of_thread", own), tile, 0, "sum"), stage)
        k.barrier()
        found = []
        for stage, tile in enumerate(tiles):
            read = k.get(k.tile(f"{tile.name}_of_threads", layout), buffer, stage)
            found.append(k.reduce(k.tile(f"{tile.name}_of_strip", layout.without(0)), read, 0, "sum"))
        return found

    def begin(self, strip: Scalar) -> Scalar:
        """The first pixel of a strip."""
        return strip * index(self.steps * self.layout.shape[0])

    def count(self, strip: Scalar) -> Scalar:
        """The pixels of a strip; the last ones may have none."""
        size = index(self.steps * self.layout.shape[0])
        return (index(self.what.pixels) - self.begin(strip)).maximum(0).minimum(size)

    def part(self, which: int, strip: Scalar, channel: Scalar) -> Scalar:
        """Where a number of a channel of a strip lies."""
        return ((self.image * PER_CHANNEL + which) * self.strips + strip) * self.what.channels + channel

    @contextmanager
    def loop(self, name: str, count: Dim) -> Iterator[Scalar]:
        """A loop, unless it is known to run once."""
        with self.k.loop(name, count) if count != 1 else nullcontext(ZERO) as step:
            yield step

    def value(self, pixel: Scalar, channel: Scalar, layout: Layout, inside: Scalar) -> Scalar:
        """The value of a pixel's channels, as many as possible read at once."""
        column, most = self.column, min(self.vector, layout.vector())
        value = self.what.value(self.image, pixel, channel)
        return in_tiles(
            self.k, self.tensors, value, column, layout, inside, lambda offset: widest(offset, column, most)
        )

    def read(self, name: str, pixel: Scalar, channel: Scalar, layout: Layout) -> Tile:
        """The same in a tile, of a pixel that there is if there are any."""
        some = index(self.what.pixels) > ZERO
        value = NO_INPUTS.select(some, self.value(pixel, channel, layout, some), 0.0)
        return self.k.map(self.k.tile(name, layout), value)

    def put_together(self) -> None:
        """Of an image whose strips are all there."""
        k, what = self.k, self.what
        own = what.channels // what.groups
        vector, lanes = largest_width(own, FLOATS), self.layout.lanes
        across = max(1, lanes * WARPS // GROUPS)
        atom = lanes_in_rows(across * vector, vector, lanes)
        width, below = atom.shape[1], atom.shape[0] * WARPS
        columns = own * self.strips
        layout = Layout(atom, (1, min(-(-columns // width), HELD // vector)), ((WARPS, 0),))
        _, column = place(shape_of(layout))
        row = place((below, 1))[0]
        size = NO_INPUTS.cast(index(what.pixels * own), F32)
        names = ("partial", "strip_means", "strip_squares")
        partial, means, squares = (k.tile(name, layout) for name in names)
        mean, inverse = (k.tile(name, layout.without(1)) for name in ("mean", "inverse"))
        with self.loop("some_groups", -(-what.groups // below)) as some:
            group = some * below + row
            there = group < index(what.groups)

            @contextmanager
            def pieces(name: str) -> Iterator[tuple[Scalar, Scalar]]:
                """The means of strips, and the squares: of how many pixels each is, and whether there is one."""
                with self.loop(name, -(-columns // layout.shape[1])) as step:
                    here = step * layout.shape[1] + column
                    inside = there.and_(here < index(columns))
                    strip = here // own
                    for which, tile in enumerate((means, squares)):
                        offset = self.part(which, strip, group * own + here % own)
                        if tile is means or name == "squared":
                            k.load(tile, self.parts, always(offset), always(inside), vector)
                    yield NO_INPUTS.cast(self.count(strip), F32), inside

            k.map(partial, 0.0)
            with pieces("added") as (count, _):
                k.map(partial, partial.value + means.value * count)
            k.reduce(mean, partial, 1, "sum")
            k.map(mean, mean.value / size)
            k.map(partial, 0.0)
            with pieces("squared") as (count, inside):
                difference = means.value - mean.value
                found = squares.value + difference * difference * count
                k.map(partial, partial.value + NO_INPUTS.select(inside, found, 0.0))
            k.reduce(inverse, partial, 1, "sum")
            k.map(inverse, 1.0 / NO_INPUTS.call("sqrt", inverse.value / size + what.epsilon))
            self.write(Layout(atom, (1, -(-own // width)), ((WARPS, 0),)), group, own, mean, inverse)

    def write(self, layout: Layout, group: Scalar, own: int, mean: Tile, inverse: Tile) -> None:
        """What each channel of some groups is multiplied by, and what is added to it."""
        k, what = self.k, self.what
        _, column = place(shape_of(layout))
        channel = group * own + column
        inside = (group < index(what.groups)).and_(column < index(own))

        def there(value: Callable[[Scalar, Scalar], Scalar]) -> Scalar:
            return NO_INPUTS.select(inside, value(self.image, channel), 0.0)

        factor, term = k.tile("factor", layout), k.tile("term", layout)
        k.map(factor, inverse.value * there(what.scale) if what.scale else inverse.value)
        k.map(term, (there(what.shift) if what.shift else 0.0) - mean.value * factor.value)
        for which, tile in enumerate((factor, term)):
            offset = (self.image * PER_CHANNEL + which) * what.channels + channel
            k.store(self.result, always(offset), tile, always(inside), largest_width(own, FLOATS))


def largest_strips(what: Grouped, below: int) -> int:
    """Into how many strips an image is cut: as many as the last block can put together in a short time, each of which has pixels
    for all warps as a rule."""
    most = max(1, min(PUT_TOGETHER // what.channels, -(-what.usual // below)))
    return 1 << (most.bit_length() - 1)
