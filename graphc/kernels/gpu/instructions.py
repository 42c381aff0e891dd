"""Instructions that multiply matrices, as data: their sizes, and which lane holds what of their operands.

Sources: NVIDIA's PTX ISA (fragments of mma.sync and wgmma), AMD's RDNA3 ISA (WMMA), Vulkan's VK_KHR_cooperative_matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphc.ir.types import BF16, F16, F32
from graphc.kernels.gpu.layout import Atom, Coordinates, Layout

_QUADS = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
"""Lanes of a fragment of 8 rows in which four lanes share a row, two elements each: every fragment of mma.sync with 16 bits."""
_SINGLES = ((0, 1), (0, 2), (1, 0), (2, 0), (4, 0))
"""The same with one element each: operands of 32 bits."""


@dataclass(frozen=True)
class MatrixInstruction:
    """What adds the product of an m x k and an n x k matrix to an m x n one. `a`, `b` and `total` say who holds what; `b` has a
    row for each column of the result. `function` is what the dialect calls it, none where it is ordinary arithmetic. Tensor
    cores read of float32 11 binary digits (TF32): `parts` is of how many such numbers an operand's are the sum, 0 where they are
    taken as they are. Of two parts there are three products, all but that of the small ones.

    `together` is how many warps, below each other, run it as one: if they are several, it reads operands where they lie in shared
    memory, in rows of 128 bytes whose chunks are swizzled, has one of `widths` columns, and goes on while threads do
    something else. What a warp then holds of the result is as if it ran one of 8 columns again and again."""

    name: str
    function: str
    operand: np.dtype
    a: Atom
    b: Atom
    total: Atom
    parts: int = 0
    together: int = 1
    widths: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def m(self) -> int:
        """Rows of the result."""
        return self.total.shape[0]

    @property
    def n(self) -> int:
        """Columns of the result."""
        return self.total.shape[1]

    @property
    def k(self) -> int:
        """Products that each element of the result is the sum of."""
        return self.a.shape[1]

    @property
    def lanes(self) -> int:
        """Lanes of the warp that runs it."""
        return 1 << len(self.total.lanes)

    def total_layout(self, warps: tuple[int, int], repeat: tuple[int, int]) -> Layout:
        """The layout of results that so many warps hold, with so many atoms below and beside each other in each."""
        return Layout(self.total, repeat, ((warps[0], 0), (warps[1], 1)))

    def a_layout(self, warps: tuple[int, int], repeat: int) -> Layout:
        """The layout of their rows of the first operand, for one instruction's k."""
        return Layout(self.a, (repeat, 1), ((warps[0], 0), (warps[1], None)))

    def b_layout(self, warps: tuple[int, int], repeat: int) -> Layout:
        """The layout of their rows of the second operand."""
        return Layout(self.b, (repeat, 1), ((warps[0], None), (warps[1], 0)))


def _mma(name: str, operand: np.dtype, k: int, parts: int = 0) -> MatrixInstruction:
    """A row of PTX's mma.sync with 8 columns and 16 rows."""
    lanes, width = (_SINGLES, 1) if operand == F32 else (_QUADS, 2)
    pair: tuple[Coordinates, ...] = ((0, 1),) if width == 2 else ()
    halves: tuple[Coordinates, ...] = ((0, 4 * width),) if k == 8 * width else ()
    return MatrixInstruction(
        name, f"mma_{name}", operand,
        a=Atom((16, k), lanes, (*pair, (8, 0), *halves)),
        b=Atom((8, k), lanes, (*pair, *halves)),
        total=Atom((16, 8), _QUADS, ((0, 1), (8, 0))),
        parts=parts,
    )  # fmt: skip


def _wgmma(name: str, like: MatrixInstruction) -> MatrixInstruction:
    """PTX's wgmma.mma_async: four warps multiply 64 rows; each holds its 16 of the result as mma.sync does."""
    return replace(like, name=name, function=name, together=4, widths=(32, 40, 64, 80, 96, 128, 160, 192, 256))


def _arithmetic(rows: int, columns: int, k: int, lanes: int = 32) -> MatrixInstruction:
    """Products and sums one by one, in float32: `rows` x `columns` elements for each lane; the lanes lie in a square, or in a
    rectangle that is twice as wide; `k` products at a time."""
    bits = lanes.bit_length() - 1
    down, across, still = _doubled(rows, bits // 2), _doubled(columns, bits - bits // 2), (0, 0)
    own_rows, own_columns, depth = (_doubled(1, each.bit_length() - 1) for each in (rows, columns, k))
    steps = tuple((0, at) for at in depth)
    return MatrixInstruction(
        f"fma_{rows}x{columns}{_of_lanes(lanes)}", "", F32,
        a=Atom((rows << len(down), k), (*(still,) * len(across), *_rows(down)), (*steps, *_rows(own_rows))),
        b=Atom((columns << len(across), k), (*_rows(across), *(still,) * len(down)), (*steps, *_rows(own_columns))),
        total=Atom(
            (rows << len(down), columns << len(across)),
            (*((0, at) for at in across), *_rows(down)), (*((0, at) for at in own_columns), *_rows(own_rows)),
        ),
    )  # fmt: skip


def _doubled(first: int, count: int) -> tuple[int, ...]:
    return tuple(first << bit for bit in range(count))


def _rows(places: tuple[int, ...]) -> tuple[Coordinates, ...]:
    return tuple((at, 0) for at in places)


def _of_lanes(lanes: int) -> str:
    """What the names of instructions of other warps than NVIDIA's end with."""
    return "" if lanes == 32 else f"_{lanes}lanes"


def _cooperative(m: int, n: int, k: int, operand: np.dtype, lanes: int) -> MatrixInstruction:
    """A shape of Vulkan's cooperative matrices: subgroups hold them as they like."""
    name = f"coop_{m}x{n}x{k}_{'half' if operand == F16 else 'bfloat16'}{_of_lanes(lanes)}"
    still: tuple[Coordinates, ...] = ((0, 0),) * (lanes.bit_length() - 1)
    a, b, total = (Atom(shape, still, opaque=True) for shape in ((m, k), (n, k), (m, n)))
    return MatrixInstruction(name, "cooperative", operand, a, b, total)


LANES = (4, 8, 16, 32, 64)
"""Lanes of a warp: 4 to 16 are those of Mesa's software device, 8 to 32 Intel's, 32 NVIDIA's and AMD's, 64 AMD's too."""
SHAPES = ((8, 8, 8), (8, 8, 16), (16, 8, 8), (16, 8, 16), (16, 16, 16))
"""Shapes of cooperative matrices that devices have."""

INSTRUCTIONS: dict[str, MatrixInstruction] = {
    each.name: each
    for each in (
        *(_arithmetic(4, 4, 4, lanes) for lanes in LANES),
        _mma("m16n8k16_half", F16, 16),
        _mma("m16n8k16_bfloat16", BF16, 16),
        _wgmma("wgmma_half", _mma("m16n8k16_half", F16, 16)),
        _wgmma("wgmma_bfloat16", _mma("m16n8k16_bfloat16", BF16, 16)),
        _mma("m16n8k8_half", F16, 8),
        _mma("m16n8k8_float_once", F32, 8, 1),
        _mma("m16n8k8_float_thrice", F32, 8, 2),
        *(_cooperative(*shape, F16, lanes) for shape in SHAPES for lanes in LANES),
    )
}
"""By name."""

UNTRIED = {"wgmma_bfloat16"}
"""Those that no device has run yet: nothing takes them unless they are taken out of here (`benchmarks/gpu.py --untried`)."""
