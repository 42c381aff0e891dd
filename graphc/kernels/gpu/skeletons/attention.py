"""Attention without its matrix of scores: softmax(q @ k^T * scale + mask) @ v, a tile of keys at a time.

Each warp has strips of 16 rows of queries, in registers. For each tile of keys it multiplies, keeps the largest score of a row so
far and the sum of the powers, and scales what it has added up by how much the largest one rose. The powers are the first operand
of the second product in the registers in which the first product left them. Numbers are float16, sums and powers float32. Powers
are those of 2, an instruction each: the scale and the logarithm of e to base 2 are one factor, whose product is a sum's too. Only
the last tile has keys that there are not.

As in FlashAttention-2 (arXiv 2307.08691).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphc.ir.types import F16, F32, I64
from graphc.kernels.gpu.evaluate import COMPUTED
from graphc.kernels.gpu.instructions import INSTRUCTIONS
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.gpu.skeletons.operands import RowPlace, Rows
from graphc.kernels.gpu.skeletons.pointwise import always, always_computed, in_rows, largest_width
from graphc.kernels.gpu.tile import BLOCKS, CHUNK, Builder, Global, Shared, Tile, TileKernel, index, place
from graphc.kernels.nest import Rewrite
from graphc.kernels.nest import name as name_of
from graphc.kernels.scalar import Kernel, Scalar, constant, make
from graphc.shapes import Dim

MOST_WIDTH = 160
"""What a head has at most: more would not fit into registers."""

INSTRUCTION = INSTRUCTIONS["m16n8k16_half"]
DEPTH = INSTRUCTION.k
HIGHER = 8.0
"""How much higher than what scores are relative to one must be, as a logarithm of base 2, before they are relative to that: what
was added up is rarely multiplied, and powers up to 256 have as many digits."""

K = Kernel(())
WHOLE = constant(0, I64)
LOG = math.log2(math.e)
"""What a logarithm is multiplied by to be one of base 2."""


@dataclass(frozen=True)
class Tiling:
    """`warps` of a block, each with `strips` of 16 queries; `keys` of a tile; `blocks` that a multiprocessor should hold. Queries
    that are `held` lie in registers, others are read from shared memory for each tile."""

    warps: int
    strips: int
    keys: int
    blocks: int
    held: bool = True


TILINGS = {64: Tiling(4, 2, 64, 2), 128: Tiling(8, 1, 64, 1), MOST_WIDTH: Tiling(4, 1, 32, 2)}
"""By the most that a head has. 128 queries of a block read keys and values together, or the second cache could not keep up. Wide
heads are those of small images, of which blocks of 64 are more."""


@dataclass(frozen=True)
class Attention:
    """result[batch, row], of `result_dtype`, for queries [batch, rows, width], keys [batch, keys, width] and values [batch, keys,
    results], float16. `mask` is added to the scores, for a batch, a row and a key; it reads the tensors `masks`, which are
    numbered from 3."""

    name: str
    batch: Dim
    rows: Dim
    keys: Dim
    width: int
    results: int
    scale: float
    q: Rows
    k: Rows
    v: Rows
    result_size: Dim
    result_dtype: np.dtype
    result_offset: RowPlace
    masks: Sequence[tuple[np.dtype, Dim]] = ()
    mask: Callable[[Scalar, Scalar, Scalar], Scalar] | None = None


def attention(what: Attention) -> TileKernel:
    """The kernel; its tensors are q, k, v, those of the mask, and the result."""
    wide = max(what.width, what.results)
    return _Attention(what, next(each for most, each in TILINGS.items() if wide <= most)).kernel()


class Scores:
    """What kernels of attention have in common: their tensors, copies, and what becomes of scores, which are tiles for a block's
    rows and some keys each, one behind the other."""

    def __init__(self, what: Attention, threads: int, rows: int, keys: int) -> None:
        self.what, self.rows, self.keys = what, rows, keys
        self.k = k = Builder(what.name, threads)
        self.sources = [
            k.tensor(name, each.dtype, each.size) for name, each in zip("qkv", (what.q, what.k, what.v), strict=True)
        ]
        for number, (dtype, size) in enumerate(what.masks):
            k.tensor(f"mask_{number}", dtype, size)
        self.result = k.tensor("result", what.result_dtype, what.result_size, written=True)
        self.first, self.batch = BLOCKS[0] * rows, BLOCKS[2]
        self.scores: list[Tile] = []
        self.unit = what.scale * LOG
        """What scores are multiplied by to be logarithms of base 2."""
        if what.mask is not None or what.scale <= 0:
            self.unit = 1.0  # they are multiplied before their largest is looked for

    def tiles(self, scores: Layout, results: Layout) -> None:
        """The registers of a block's results and of what is known of each row; `joint` is laid out as a tile of scores."""
        self.joint, self.total = self.k.tile("joint", scores), self.k.tile("total", results, role="total")
        self.of_rows(results)

    def of_rows(self, layout: Layout) -> None:
        """The registers of what is known of each row of tiles that are laid out so."""
        self.base, self.rise, self.part = (self.k.tile(each, layout.without(1)) for each in ("base", "rise", "part"))
        self.sum, self.own = (self.k.tile(each, layout.of_threads(1)) for each in ("sum", "own"))

    def begin(self) -> None:
        """Nothing is known of the rows yet."""
        self.k.map(self.sum, 0.0)
        self.k.map(self.base, float(np.finfo(F32).max))

    def copy(
        self, target: Shared, stage: Scalar, source: Global, rows: Rows, first: Scalar, count: Dim, width: int,
        begin: Scalar = WHOLE,
    ) -> None:  # fmt: skip
        """Begin to copy rows, or what they have from a column on; what lies beyond them is 0."""
        across = target.shape[1]
        aligned = min(rows.aligned, CHUNK // target.dtype.itemsize, width & -width)

        def offset(row: Scalar, column: Scalar) -> Scalar:
            return rows.offset(self.batch, first + row, constant(0, I64)) + (begin + column)

        def where(row: Scalar, column: Scalar) -> Scalar:
            within = first + row < index(count)
            return within.and_(begin + column < index(width)) if width % across else within

        self.k.copy(target, stage, source, offset, where, aligned)

    def bound(self, step: Scalar) -> None:
        """Give the scores of a step their scale and mask; those of keys that there are not are -inf."""
        what, k, first = self.what, self.k, step * self.keys
        places = [first + number * tile.shape[1] for number, tile in enumerate(self.scores)]
        if what.mask is not None or self.unit == 1.0:
            for tile, place in zip(self.scores, places, strict=True):
                k.map(tile, self.masked(tile, place))
        if what.mask is None and not (isinstance(what.keys, int) and what.keys % self.keys == 0):
            with k.when(index(what.keys) < first + self.keys):
                for tile, place in zip(self.scores, places, strict=True):
                    k.map(tile, self.within(tile, place))

    def within(self, tile: Tile, first: Scalar) -> Callable[[Scalar, Scalar], Scalar]:
        """Scores of the keys that there are."""
        return lambda row, column: K.select(first + column < index(self.what.keys), tile.value, -math.inf)

    def masked(self, tile: Tile, first: Scalar) -> Callable[[Scalar, Scalar], Scalar]:
        """Scores with their scale and mask."""
        what, scale = self.what, constant(self.what.scale * LOG, F32)
        if what.mask is None:
            return lambda row, column: tile.value * scale
        row, column = place(tile.shape)
        inside = (first + column < index(what.keys)).and_(self.first + row < index(what.rows))
        mask = self.beside(what.mask(self.batch, self.first + row, first + column), tile, inside)
        return lambda row, column: K.select(inside, K.call("fma", tile.value, scale, mask * LOG), -math.inf)

    def beside(self, mask: Scalar, tile: Tile, inside: Scalar) -> Scalar:
        """A mask whose elements are read several at a time, where they lie side by side for the scores of a tile."""
        k, found = self.k, dict[Scalar, Scalar]()
        for node in always_computed(mask):
            tensor = k.tensors[node.data]  # type: ignore[call-overload]
            width = largest_width(self.what.keys, CHUNK // tensor.dtype.itemsize)
            while width > 1 and not in_rows(node.args[0], place(tile.shape)[1], width):
                width //= 2
            if width > 1:
                here = k.tile(f"mask_{len(k.tiles)}", tile.layout, COMPUTED.get(tensor.dtype, tensor.dtype))
                k.load(here, tensor, always(node.args[0]), always(inside), width)
                found[node] = make("tile", tensor.dtype, (), here)
        return Rewrite(found, tuple(sorted(mask.free, key=name_of)), ())(mask) if found else mask

    def compare(self) -> None:
        """What is added to the logarithms of a row: less the largest so far, or one that is little lower; as much as there is
        while all are masked. And what powers so far are multiplied by because it fell. Threads look at their own scores first:
        it falls seldom, and warps in which it does not have nothing to tell each other."""
        k = self.k
        if len(self.scores) > 1:
            k.map(self.joint, functools.reduce(Scalar.maximum, (each.value for each in self.scores)))
        k.reduce(self.own, self.joint if len(self.scores) > 1 else self.scores[0], 1, "max")
        k.map(self.rise, 1.0)
        with k.when(self.logarithm(self.own) > HIGHER, self.own):
            k.reduce(self.part, self.own, 1, "max")
            is_higher = self.logarithm(self.part) > HIGHER
            k.map(self.part, K.select(is_higher, self.part.value * -self.unit, self.base.value))
            k.map(self.rise, self.raised(self.part.value - self.base.value))
            k.map(self.base, self.part.value)

    def add_powers(self, powers: Tile) -> None:
        """Add powers to the sums of rows, of which each thread has a part."""
        k = self.k
        k.reduce(self.own, powers, 1, "sum")
        k.map(self.sum, K.call("fma", self.sum.value, self.rise.value, self.own.value))

    def rescale(self) -> None:
        """What was added up so far becomes relative to the same as the powers that come."""
        with self.k.when(self.rise.value.ne(1.0), self.rise):
            self.k.map(self.total, self.total.value * self.rise.value)

    def logarithm(self, scores: Tile) -> Scalar:
        """The logarithm of a score's power."""
        return K.call("fma", scores.value, constant(self.unit, F32), self.base.value)

    def power(self, scores: Tile) -> Scalar:
        """The power of a score, relative to what all of a row are relative to."""
        return self.raised(self.logarithm(scores))

    def raised(self, logarithm: Scalar) -> Scalar:
        """The power of 2."""
        return K.call("fast_exp2({0})" if self.sources[0].dtype == F16 else "exp2{f}({0})", logarithm)

    def write(self) -> None:
        """Divide what was added up by the sums of powers, and write it."""
        what, k = self.what, self.k
        k.reduce(self.part, self.sum, 1, "sum")
        k.map(self.part, 1.0 / self.part.value)
        k.map(self.total, self.total.value * self.part.value)
        k.store(
            self.result, lambda row, column: what.result_offset(self.batch, self.first + row, column), self.total,
            lambda row, column: (self.first + row < index(what.rows)).and_(column < index(what.results)),
            2 if what.results % 2 == 0 else 1,
        )  # fmt: skip


class _Attention(Scores):
    def __init__(self, what: Attention, tiling: Tiling) -> None:
        if what.mask is not None:  # it is read by more registers
            tiling = replace(tiling, warps=tiling.warps * tiling.strips, strips=1, blocks=1)
        self.tiling = tiling
        super().__init__(
            what, tiling.warps * INSTRUCTION.lanes, tiling.warps * tiling.strips * INSTRUCTION.m, tiling.keys
        )
        k = self.k
        self.k_buffer = self.buffer("k_buffer", tiling.keys, what.width, 2)
        self.v_buffer = self.buffer("v_buffer", tiling.keys, what.results, 2)
        self.q_buffer = self.buffer("q_buffer", self.rows, what.width, 1)
        second_keys = self.k_buffer.offset + self.k_buffer.nbytes // 2
        if tiling.held and second_keys + self.q_buffer.nbytes <= self.v_buffer.offset + self.v_buffer.nbytes // 2:
            k.shared[-1] = self.q_buffer = replace(self.q_buffer, offset=second_keys)
        warps = (tiling.warps, 1)
        rows = INSTRUCTION.a_layout(warps, tiling.strips)
        pieces = -(-what.width // DEPTH)
        self.q_rows = [k.tile(f"q_rows_{number}", rows, F16, "a") for number in range(pieces if tiling.held else 1)]
        self.k_rows = k.tile("k_rows", INSTRUCTION.b_layout(warps, 2), F16, "b")
        self.v_rows = k.tile("v_rows", INSTRUCTION.b_layout(warps, -(-what.results // 8)), F16, "b")
        self.powers = k.tile("powers", rows, F16, "a")
        square = INSTRUCTION.total_layout(warps, (tiling.strips, 2))
        self.scores = [k.tile(f"scores_{number}", square) for number in range(tiling.keys // DEPTH)]
        self.tiles(square, INSTRUCTION.total_layout(warps, (tiling.strips, -(-what.results // 8))))

    def buffer(self, name: str, rows: int, width: int, stages: int) -> Shared:
        """Shared memory for rows. A chunk lies between them, so that those of eight neighbours lie in different banks. Keys and
        values of one width lie alike, so that places are computed once. Three pieces take the place of four, whose chunks are
        shared out among lanes by shifts and without conflicts."""
        pieces = -(-width // DEPTH)
        columns = (4 if pieces == 3 else pieces) * DEPTH
        return self.k.array(name, F16, (rows, columns), stages, padding=CHUNK)

    def kernel(self) -> TileKernel:
        """The kernel. The first tiles of keys and of values are the first and the last of four in shared memory; queries that are
        held lie between them if they fit there, where the second tiles come when they have been read."""
        what, k = self.what, self.k
        none = constant(0, I64)
        self.copy(self.q_buffer, none, self.sources[0], what.q, self.first, what.rows, what.width)
        self.copy_keys(none)
        self.copy_values(none)
        k.commit()
        k.map(self.total, 0.0)
        self.begin()
        if self.tiling.held:
            k.wait(0)
            k.barrier()
            for piece, tile in enumerate(self.q_rows):
                k.get(tile, self.q_buffer, column=piece * DEPTH)
        with k.loop("step", -(-what.keys // self.tiling.keys)) as step:
            k.wait(0)
            k.barrier()
            self.copy_keys(step + 1)
            self.copy_values(step + 1)
            k.commit()
            self.score(step)
            self.compare()
            self.add(step)
        k.wait(0)
        self.write()
        return k.finished(-(-what.rows // self.rows), 1, what.batch, blocks=self.tiling.blocks)

    def copy_keys(self, step: Scalar) -> None:
        """Begin to copy a tile of keys."""
        what, first = self.what, step * self.tiling.keys
        self.copy(self.k_buffer, step % 2, self.sources[1], what.k, first, what.keys, what.width)

    def copy_values(self, step: Scalar) -> None:
        """Begin to copy a tile of values."""
        what, first = self.what, step * self.tiling.keys
        self.copy(self.v_buffer, (step + 1) % 2, self.sources[2], what.v, first, what.keys, what.results)

    def score(self, step: Scalar) -> None:
        """The scores of a tile of keys, in logarithms of base 2 divided by `unit`; those of keys that there are not are -inf."""
        what, k = self.what, self.k
        for tile in self.scores:
            k.map(tile, 0.0)
        for piece in range(-(-what.width // DEPTH)):
            queries = self.q_rows[piece if self.tiling.held else 0]
            if not self.tiling.held:
                k.get(queries, self.q_buffer, column=piece * DEPTH)
            for number, tile in enumerate(self.scores):
                k.get(self.k_rows, self.k_buffer, step % 2, row=number * DEPTH, column=piece * DEPTH)
                k.multiply(tile, queries, self.k_rows, INSTRUCTION)
        self.bound(step)

    def add(self, step: Scalar) -> None:
        """Add the values of a tile of keys, by their powers."""
        k = self.k
        self.rescale()
        for number, tile in enumerate(self.scores):
            k.map(tile, self.power(tile))
            k.map(self.joint, self.joint.value + tile.value if number else tile.value)
            k.map(self.powers, tile.value)
            k.get(self.v_rows, self.v_buffer, (step + 1) % 2, column=number * DEPTH, transposed=True)
            k.multiply(self.total, self.powers, self.v_rows, INSTRUCTION)
        self.add_powers(self.joint)
