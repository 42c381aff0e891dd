"""Attention where four warps multiply together (Hopper's wgmma): as `attention.py` does it, with other products.

Queries, keys and values are multiplied as they lie in shared memory; powers are in registers, as the scores were. While the
values of a tile of keys are added up, the scores of the next are multiplied, compared and raised to powers. The first tile's
scores come before the loop, the last tile's values behind it: a step adds the values of one tile and looks at the next.

As in FlashAttention-3 (arXiv 2407.08608), without warps that only copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphc.ir.types import F16, I64
from graphc.kernels.gpu.instructions import INSTRUCTIONS
from graphc.kernels.gpu.layout import Layout
from graphc.kernels.gpu.skeletons.attention import Attention, Scores
from graphc.kernels.gpu.tile import Shared, Swizzle, TileKernel, index
from graphc.kernels.scalar import Scalar, constant

INSTRUCTION = INSTRUCTIONS["wgmma_half"]
PANEL = 64
"""Columns of float16 that lie in one row of shared memory."""


@dataclass(frozen=True)
class TogetherTiling:
    """`groups` of four warps, each with 64 queries; `keys` of a tile; `blocks` that a multiprocessor should hold."""

    groups: int
    keys: int
    blocks: int


TOGETHER_TILINGS: Mapping[int, TogetherTiling] = {
    40: TogetherTiling(2, 64, 2),
    64: TogetherTiling(1, 128, 2),
    128: TogetherTiling(1, 64, 2),
}
"""By the most that a head has, the fastest on an H200 of those that were measured."""
MOST_TOGETHER = max(TOGETHER_TILINGS)
"""What a head has at most."""


def attention_together(what: Attention, tiling: TogetherTiling | None = None) -> TileKernel:
    """The kernel; its tensors are q, k, v, those of the mask, and the result. For heads of at most `MOST_TOGETHER`."""
    wide = max(what.width, what.results)
    return _Together(what, tiling or next(each for most, each in TOGETHER_TILINGS.items() if wide <= most)).kernel()


class _Together(Scores):
    def __init__(self, what: Attention, tiling: TogetherTiling) -> None:
        self.tiling = tiling
        warps = tiling.groups * INSTRUCTION.together
        super().__init__(what, warps * INSTRUCTION.lanes, warps * INSTRUCTION.m, tiling.keys)
        self.q_buffer = self.buffer("q_buffer", self.rows, what.width, 1)
        self.k_buffer = self.buffer("k_buffer", tiling.keys, what.width, 2)
        self.v_buffer = self.buffer("v_buffer", tiling.keys, what.results, 2)
        self.columns = next(width for width in INSTRUCTION.widths if width >= what.results)
        square = INSTRUCTION.total_layout((warps, 1), (1, tiling.keys // INSTRUCTION.n))
        self.scores = [self.k.tile("scores", square, role="total")]
        powers = Layout(INSTRUCTION.a, (1, tiling.keys // INSTRUCTION.k), square.warps)
        self.powers = self.k.tile("powers", powers, F16, "a")
        self.tiles(square, INSTRUCTION.total_layout((warps, 1), (1, self.columns // INSTRUCTION.n)))

    def buffer(self, name: str, rows: int, width: int, stages: int) -> Shared:
        """Shared memory for rows, in whole panels."""
        columns = -(-width // PANEL) * PANEL
        return self.k.array(name, F16, (rows, columns), stages, Swizzle(0, 7), in_panels=True)

    def kernel(self) -> TileKernel:
        """The kernel. A step copies the keys of the tile after the next, and the values of the next."""
        what, k = self.what, self.k
        none, last = constant(0, I64), index(-(-what.keys // self.keys) - 1).maximum(0)
        self.copy(self.q_buffer, none, self.sources[0], what.q, self.first, what.rows, what.width)
        self.copy_keys(none)
        k.commit()
        self.copy_keys(constant(1, I64))
        self.copy_values(none)
        k.commit()
        k.map(self.total, 0.0)
        self.begin()
        k.wait(1)
        k.barrier()
        self.begin_scores(none)
        k.wait(0, "products", self.scores)
        self.raise_scores(none)
        self.take_powers()
        with k.loop("step", -(-what.keys // self.keys) - 1) as step:
            k.wait(0)
            k.barrier()
            self.begin_scores(step + 1)
            self.begin_values(step)
            self.copy_keys(step + 2)
            self.copy_values(step + 1)
            k.commit()
            k.wait(1, "products", self.scores)
            self.raise_scores(step + 1)
            k.wait(0, "products", [self.total])
            self.take_powers()
        k.wait(0)
        k.barrier()
        self.begin_values(last)
        k.wait(0, "products", [self.total])
        self.write()
        return k.finished(-(-what.rows // self.rows), 1, what.batch, blocks=self.tiling.blocks)

    def copy_keys(self, tile: Scalar) -> None:
        """Begin to copy a tile of keys."""
        what = self.what
        self.copy(self.k_buffer, tile % 2, self.sources[1], what.k, tile * self.keys, what.keys, what.width)

    def copy_values(self, tile: Scalar) -> None:
        """Begin to copy a tile of values."""
        what = self.what
        self.copy(self.v_buffer, tile % 2, self.sources[2], what.v, tile * self.keys, what.keys, what.results)

    def begin_scores(self, tile: Scalar) -> None:
        """Begin to multiply queries by a tile of keys."""
        (scores,), depth = self.scores, -(-self.what.width // INSTRUCTION.k) * INSTRUCTION.k
        self.k.multiply_shared(scores, self.q_buffer, 0, self.k_buffer, tile % 2, depth, INSTRUCTION, fresh=True)
        self.k.commit("products")

    def begin_values(self, tile: Scalar) -> None:
        """Begin to add the values of a tile, by the powers at hand."""
        self.k.multiply_shared(self.total, self.powers, 0, self.v_buffer, tile % 2, self.keys, INSTRUCTION)
        self.k.commit("products")

    def raise_scores(self, tile: Scalar) -> None:
        """Make powers of scores, in their place, and add them up."""
        k, (scores,) = self.k, self.scores
        self.bound(tile)
        self.compare()
        k.map(scores, self.power(scores))
        self.add_powers(scores)

    def take_powers(self) -> None:
        """What was added up so far becomes relative to the same as the powers, which are the next to be multiplied."""
        (scores,) = self.scores
        self.rescale()
        self.k.map(self.powers, scores.value)
