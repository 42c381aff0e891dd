"""Operators that lay blocks of elements side by side: Tile, and images to and from blocks of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.collapse import MAX_RANK, merge, touched_groups
from graphc.ops.movement import REPEATED_TYPES, Reshape, Transpose, merged, static
from graphc.shapes import Dim, is_static

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class Tile(Op):
    """The whole tensor `repeats[i]` times along each axis."""

    repeats: tuple[Dim, ...]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if len(self.repeats) != x.rank:
            raise ShapeError(f"{len(self.repeats)} repeats for a tensor of rank {x.rank}")
        if any(isinstance(count, int) and count < 0 for count in self.repeats):
            raise ShapeError(f"a repeat of {list(self.repeats)} is negative")
        return (TensorType(x.dtype, tuple(n * size for n, size in zip(self.repeats, x.shape, strict=True))),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (np.tile(inputs[0], static(self.repeats, "the number of repeats")),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_repeat_4d`, for the types that it takes and whole sizes that are known."""
        (x,), shape = inputs, b.types[0].shape
        if x.type not in REPEATED_TYPES:
            return None
        touched = [count != 1 for count in self.repeats]
        if any(moved and not is_static(size) for moved, size in zip(touched, shape, strict=True)):
            return None
        groups = [1] * len(shape) if len(shape) <= MAX_RANK else touched_groups(touched, touched, shape)
        if len(groups) > MAX_RANK:
            return None
        x = b.rows(merged(b, x, shape, groups))
        ne = (*reversed(merge(b.result.shape, groups)), 1, 1, 1, 1)[:MAX_RANK]
        return b.reshape(b.call("ggml_repeat_4d", x, *ne, rank=len(groups)), b.result.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element that is repeated there."""
        return k.load(0, [i % size for i, size in zip(index, inputs[0].shape, strict=True)])


class _BySteps:
    """An operator that is a reshape, a transpose of six axes and a reshape."""

    def _steps(self, shape: Sequence[Dim]) -> tuple[Reshape, Transpose, Reshape]:
        raise NotImplementedError

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        for step in self._steps(inputs[0].shape):
            inputs = step.eval(*inputs)
        return inputs

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """A transpose of six axes."""
        (x,) = inputs
        for step in self._steps(x.shape):
            x = emit(step, x)
        return (x,)


def check_image(x: TensorType, block: int, mode: str) -> None:
    """Raise ShapeError unless it is an image, and blocks can be arranged like this."""
    if x.rank != 4 or block < 1 or mode not in ("DCR", "CRD"):
        raise ShapeError(f"blocks of {block}×{block}, arranged by {mode}, of {x}, which should be [N, C, H, W]")


@dataclass(frozen=True)
class DepthToSpace(_BySteps, Op):
    """[N, C, H, W] to [N, C / block², H * block, W * block]; mode "DCR" has the block's axes before the depth, "CRD" after."""

    block: int
    mode: str = "DCR"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,), block = inputs, self.block
        check_image(x, block, self.mode)
        n, c, h, w = x.shape
        if c % (block * block) != 0:
            whole = c // (block * block) * block * block
            raise ShapeError(f"{x} is not an image whose channels are whole blocks of {block}×{block}", [(c, whole)])
        return (TensorType(x.dtype, (n, c // (block * block), h * block, w * block)),)

    def _steps(self, shape: Sequence[Dim]) -> tuple[Reshape, Transpose, Reshape]:
        n, _, h, w = shape
        block, depth = self.block, shape[1] // (self.block * self.block)
        first = (n, block, block, depth, h, w) if self.mode == "DCR" else (n, depth, block, block, h, w)
        perm = (0, 3, 4, 1, 5, 2) if self.mode == "DCR" else (0, 1, 4, 2, 5, 3)
        return Reshape(first), Transpose(perm), Reshape((n, depth, h * block, w * block))


@dataclass(frozen=True)
class SpaceToDepth(_BySteps, Op):
    """[N, C, H, W] to [N, C * block², H / block, W / block]; mode "DCR" has the block's axes before the depth, "CRD" after."""

    block: int
    mode: str = "DCR"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,), block = inputs, self.block
        check_image(x, block, self.mode)
        n, c, h, w = x.shape
        differ = [(size, size // block * block) for size in (h, w) if size % block != 0]
        if differ:
            raise ShapeError(f"{x} is not an image of whole blocks of {block}×{block}", differ)
        return (TensorType(x.dtype, (n, c * block * block, h // block, w // block)),)

    def _steps(self, shape: Sequence[Dim]) -> tuple[Reshape, Transpose, Reshape]:
        n, c, h, w = shape
        block = self.block
        first = Reshape((n, c, h // block, block, w // block, block))
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return first, Transpose(order), Reshape((n, c * block * block, h // block, w // block))
