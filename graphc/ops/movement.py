"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.types import BF16, F16, F32, I64, TensorType
from graphc.ops.base import Op, Routine
from graphc.ops.collapse import (
    MAX_RANK,
    block_swaps,
    broadcast_groups,
    collapse_transpose,
    left_padded,
    merge,
    split,
    touched_groups,
)
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, Undecidable, dim_max, is_static, lower_bound, product

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

MERGED = 16
"""Rows of fewer elements are padded as parts of the rows that they make together."""

REPEATED_TYPES = ("F32", "F16", "BF16", "I32", "I16")
"""The types that ggml_repeat takes on every backend's fallback, the CPU."""


def static(dims: Sequence[Dim], what: str) -> tuple[int, ...]:
    """Sizes that must be plain integers to be evaluated. Raises Undecidable."""
    if not is_static(*dims):
        raise Undecidable(f"{what} is {list(dims)}")
    return tuple(int(dim) for dim in dims if not isinstance(dim, Expr))


def merged(b: Builder, x: Tensor, shape: Sequence[Dim], groups: Sequence[int]) -> Tensor:
    """The tensor with each group of axes as one."""
    return b.reshape(x, merge(shape, groups))


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in the same order, with other sizes."""

    shape: tuple[Dim, ...]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if product(self.shape) != x.size:
            shown = ", ".join(map(str, self.shape))
            proven = "" if is_static(*self.shape, *x.shape) else " for every value of the symbols"
            message = f"{x} does not have as many elements as [{shown}]{proven}"
            raise ShapeError(message, [(product(self.shape), x.size)])
        return (TensorType(x.dtype, self.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (inputs[0].reshape(static(self.shape, "the shape")),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """A view."""
        return b.reshape(inputs[0], self.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element at the same place in memory."""
        place = k.const(0, I64)
        for i, size in zip(index, self.shape, strict=True):
            place = place * size + i
        position: list[Scalar] = []
        for size in reversed(inputs[0].shape):
            position.insert(0, place % size)
            place = place // size
        return k.load(0, position)


@dataclass(frozen=True)
class Transpose(Op):
    """Axis `i` of the result is axis `perm[i]` of the input."""

    perm: tuple[int, ...]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if sorted(self.perm) != list(range(x.rank)):
            raise ShapeError(f"{list(self.perm)} is not an order of the {x.rank} axes")
        return (TensorType(x.dtype, tuple(x.shape[axis] for axis in self.perm)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (inputs[0].transpose(self.perm),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """A view; of more than four axes, the same of fewer, or two exchanges of blocks of axes."""
        (x,) = inputs
        if len(self.perm) <= MAX_RANK:
            return b.transpose(x, self.perm)
        sizes, perm = collapse_transpose(b.types[0].shape, self.perm)
        if len(perm) <= MAX_RANK:
            return b.reshape(b.cont(b.transpose(b.reshape(x, sizes), perm)), b.result.shape)
        swaps = block_swaps(perm)
        if len(swaps) > 2:
            return None
        for start, middle, end in swaps:
            groups = [start, middle - start, end - middle, len(sizes) - end]
            x = b.cont(b.transpose(b.reshape(x, merge(sizes, groups)), (0, 2, 1, 3)))
            first, left, right, last = split(sizes, groups)
            sizes = (*first, *right, *left, *last)
        return b.reshape(x, b.result.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element at the permuted index."""
        return k.load(0, [index[self.perm.index(axis)] for axis in range(len(self.perm))])


@dataclass(frozen=True)
class Expand(Op):
    """NumPy's `broadcast_to`: the result has exactly `shape`."""

    shape: tuple[Dim, ...]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        fits = len(self.shape) >= x.rank and all(
            size in (1, target) for size, target in zip(x.shape[::-1], self.shape[::-1], strict=False)
        )
        if not fits:
            raise ShapeError(f"{x} does not broadcast to [{', '.join(map(str, self.shape))}]")
        return (TensorType(x.dtype, self.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (np.broadcast_to(inputs[0], static(self.shape, "the shape")),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_repeat_4d`, for the types that it takes."""
        (x,), rank = inputs, len(self.shape)
        shape = left_padded(b.types[0].shape, rank)
        if shape == self.shape:
            return b.reshape(x, self.shape)
        if x.type not in REPEATED_TYPES:
            return None
        if rank <= MAX_RANK:
            return b.expand(x, self.shape)
        groups = broadcast_groups([shape], self.shape)
        if len(groups) > MAX_RANK:
            return None
        return b.reshape(b.expand(merged(b, x, shape, groups), merge(self.shape, groups)), self.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element that is repeated there."""
        return k.load(0, index[len(index) - inputs[0].rank :])


@dataclass(frozen=True)
class Slice(Op):
    """Element `i` of each axis is element `starts + i * steps` of the input's; `sizes` of them. A step may be negative."""

    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if not len(self.starts) == len(self.sizes) == len(self.steps) == x.rank:
            raise ShapeError(f"a slice of {len(self.starts)} axes of a tensor of rank {x.rank}")
        for axis, (start, size, step, limit) in enumerate(self._axes(x.shape)):
            last = start + (size - 1) * step
            known = [n for n in (start, last) if isinstance(n, int)] if (lower_bound(size) or 0) > 0 else []
            outside = any(n < 0 or (isinstance(limit, int) and n >= limit) for n in known)
            if step == 0 or (isinstance(size, int) and size < 0) or outside:
                raise ShapeError(f"axis {axis} of {x} does not have {size} elements from {start} in steps of {step}")
        return (TensorType(x.dtype, self.sizes),)

    def _axes(self, shape: Sequence[Dim]) -> list[tuple[Dim, Dim, int, Dim]]:
        return list(zip(self.starts, self.sizes, self.steps, shape, strict=True))

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        parts = []
        starts, sizes = static(self.starts, "the start"), static(self.sizes, "the size")
        for start, size, step in zip(starts, sizes, self.steps, strict=True):
            stop = start + size * step
            parts.append(slice(start, stop if stop >= 0 else None, step) if size else slice(0, 0))
        return (inputs[0][tuple(parts)],)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """A view where adjacent elements stay adjacent; of more than four axes, a view of fewer. Every `n`th element of
        the innermost axis is a view of it as rows of `n`."""
        (x,), shape = inputs, b.types[0].shape
        if any(step < 1 for step in self.steps):
            return None
        strided = bool(shape) and self.steps[-1] != 1 and self.sizes[-1] != 1
        if len(shape) <= MAX_RANK and not strided:
            return b.slice(x, self.starts, self.sizes, self.steps)
        step = self.steps[-1] if strided else 1
        if strided and shape[-1] % step != 0:
            return None
        starts, sizes, steps = self.starts, self.sizes, self.steps
        if strided:
            shape = (*shape[:-1], shape[-1] // step, step)
            starts, sizes, steps = (
                (*starts[:-1], starts[-1] // step, starts[-1] % step),
                (*sizes, 1),
                (*steps[:-1], 1, 1),
            )
        touched = [size != full or step != 1 for size, full, step in zip(sizes, shape, steps, strict=True)]
        groups = touched_groups(touched, [step == 1 for step in steps], shape)
        if len(groups) > MAX_RANK:
            return None
        heads = [sum(groups[:i]) for i in range(len(groups))]
        blocks = [product(part[1:]) for part in split(shape, groups)]
        firsts = [starts[head] * block for head, block in zip(heads, blocks, strict=True)]
        view = b.slice(merged(b, x, shape, groups), firsts, merge(sizes, groups), [steps[head] for head in heads])
        return None if view is None else b.reshape(view, b.result.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element that the slice takes."""
        return k.load(0, [start + i * step for start, i, step in zip(self.starts, index, self.steps, strict=True)])


@dataclass(frozen=True)
class Concat(Op):
    """The inputs joined along an axis."""

    axis: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        if not inputs:
            raise ShapeError("there is nothing to join")
        first = inputs[0]
        if not 0 <= self.axis < first.rank:
            raise ShapeError(f"axis {self.axis} is not an axis of a tensor of rank {first.rank}")
        total: Dim = 0
        for x in inputs:
            message = f"{first} and {x} cannot be joined along axis {self.axis}"
            if x.dtype != first.dtype or x.rank != first.rank:
                raise ShapeError(message)
            pairs = enumerate(zip(first.shape, x.shape, strict=True))
            if differ := [(a, b) for axis, (a, b) in pairs if axis != self.axis and a != b]:
                raise ShapeError(message, differ)
            total = total + x.shape[self.axis]
        return (TensorType(first.dtype, (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        if any(x.dtype == object for x in inputs):
            inputs = tuple(x.astype(object) for x in inputs)
        return (np.concatenate(inputs, axis=self.axis),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_concat` of pairs, of pairs of pairs and so on, so that no element is copied often."""
        axis, tensors = self.axis, list(inputs)
        rank = b.result.rank
        if rank > MAX_RANK:
            groups = [axis, rank - axis] if axis else [rank]
            tensors = [merged(b, x, type.shape, groups) for x, type in zip(inputs, b.types, strict=True)]
            axis = len(groups) - 1
        while len(tensors) > 1:
            pairs = [tensors[i : i + 2] for i in range(0, len(tensors), 2)]
            tensors = [b.concat(pair, axis) for pair in pairs]
        return b.reshape(tensors[0], b.result.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element of the input that the index falls into."""
        place = index[self.axis]
        end: Dim = 0
        found: list[tuple[Dim, Scalar]] = []
        for number, x in enumerate(inputs):
            inner = [*index[: self.axis], place - end, *index[self.axis + 1 :]]
            end = end + x.shape[self.axis]
            if x.shape[self.axis] != 0:
                found.append((end, k.load(number, inner)))
        result = found.pop()[1] if found else k.const(0, inputs[0].dtype)
        for limit, element in reversed(found):
            result = k.select(place < limit, element, result)
        return result


MOST_PADDED = 8
"""Axes that `pad.h` takes."""


@dataclass(frozen=True)
class Pad(Op):
    """`before` and `after` elements more on each axis: `value`, or the input's reflected, repeated at the edge, or wrapped. Where
    `value` is added, elements may be fewer as well."""

    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    mode: str = "constant"
    value: float | int = 0

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if self.mode not in ("constant", "reflect", "edge", "wrap"):
            raise ShapeError(f"there is no padding mode {self.mode!r}")
        if not len(self.before) == len(self.after) == x.rank:
            raise ShapeError(f"pads of {len(self.before)} axes for a tensor of rank {x.rank}")
        for axis, size in enumerate(x.shape):
            before, after = self.before[axis], self.after[axis]
            pads, total = [n for n in (before, after) if isinstance(n, int)], before + size + after
            if self.mode != "constant" and any(n < 0 for n in pads):
                raise ShapeError(f"a pad of axis {axis} is negative")
            if isinstance(total, int) and total < 0:
                raise ShapeError(f"the padding {before} and {after} of axis {axis} cuts more than there is")
            if self.mode == "reflect" and isinstance(size, int) and any(n > max(size - 1, 0) for n in pads):
                raise ShapeError(f"axis {axis} of size {size} does not have {max(pads)} elements to reflect")
            if self.mode in ("edge", "wrap") and size == 0 and any(pads):
                raise ShapeError(f"axis {axis} has no elements to pad with")
        return (TensorType(x.dtype, self._shape(x.shape)),)

    def _shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(b + size + a for b, size, a in zip(self.before, shape, self.after, strict=True))

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        pads = list(zip(static(self.before, "a pad"), static(self.after, "a pad"), strict=True))
        if self.mode != "constant":
            return (np.pad(x, pads, mode=self.mode) if x.ndim else x,)  # type: ignore[call-overload]
        result = np.full(
            static(self._shape(x.shape), "the shape"), np.asarray(self.value).astype(x.dtype), dtype=x.dtype
        )
        inside = [slice(max(b, 0), max(b + size, 0)) for (b, _), size in zip(pads, x.shape, strict=True)]
        taken = [slice(max(-b, 0), max(size + a, 0)) for (b, a), size in zip(pads, x.shape, strict=True)]
        result[tuple(inside)] = x[tuple(taken)]
        return (result,)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_pad_ext`, which adds zeros."""
        shape, names = b.types[0].shape, {F32: "F32", F16: "F16", BF16: "BF16"}
        touched = [before != 0 or after != 0 for before, after in zip(self.before, self.after, strict=True)]
        if not any(touched):
            return inputs[0]
        if self.mode != "constant" or self.value != 0 or b.types[0].dtype not in names:
            return None
        short = not touched[-1] and is_static(shape[-1]) and shape[-1] < MERGED
        few = len(shape) <= MAX_RANK and not short
        groups = [1] * len(shape) if few else touched_groups(touched, touched, shape)
        x = b.cast(inputs[0], "F32")
        if len(groups) > MAX_RANK or x is None:
            return None
        heads = [sum(groups[:i]) for i in range(len(groups))]
        blocks = [product(part[1:]) for part in split(shape, groups)]
        pads = [
            side[head] * block for head, block in zip(heads, blocks, strict=True) for side in (self.after, self.before)
        ]
        if not all(isinstance(pad, int) and pad >= 0 for pad in pads):
            return None
        pads = [*reversed(pads), *[0] * (2 * MAX_RANK - len(pads))]
        padded = b.call("ggml_pad_ext", b.rows(merged(b, x, shape, groups)), *pads, rank=len(groups))
        return b.cast(b.reshape(padded, b.result.shape), names[b.result.dtype])

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The value outside, the input's element inside; for the other modes, the element that the index comes from."""
        (x,) = inputs
        places = [i - before for i, before in zip(index, self.before, strict=True)]
        if self.mode != "constant":
            return k.load(
                0, [self._source(k, axis, i, size) for axis, (i, size) in enumerate(zip(places, x.shape, strict=True))]
            )
        inside = k.const(True, np.dtype(np.bool_))
        for i, before, after, size in zip(places, self.before, self.after, x.shape, strict=True):
            inside = inside if before == 0 else inside.and_(i >= 0)
            inside = inside if after == 0 else inside.and_(i < size)
        outside = k.const(self.value, x.dtype)
        return outside if x.size == 0 else k.select(inside, k.load(0, places), outside)

    def routine(self, *inputs: TensorType) -> Routine | None:
        """Row by row, for known sizes of what is reflected, repeated at the edge or wrapped."""
        (x,), sizes = inputs, (*self.before, *self.after, *inputs[0].shape)
        if self.mode == "constant" or not is_static(*sizes) or not 0 < x.rank <= MOST_PADDED or 0 in x.shape:
            return None
        modes = {"reflect": 0, "edge": 1, "wrap": 2}
        axes = [(*each, *[0] * (MOST_PADDED - x.rank)) for each in (x.shape, self._shape(x.shape), self.before)]
        return Routine(
            "pad", "pad", (x.dtype,), ((modes[self.mode], x.rank, *(size for each in axes for size in each)),)
        )

    def _source(self, k: Kernel, axis: int, i: Scalar, size: Dim) -> Scalar:
        """The index inside from which an element at `i`, perhaps outside, comes."""
        if self.before[axis] == 0 == self.after[axis]:
            return i
        if self.mode == "edge":
            return i.maximum(0).minimum(k.size(size) - 1)
        if self.mode == "wrap":
            return i % size
        forward = k.select(i < 0, -i, i)
        mirrored = k.select(forward >= size, 2 * (k.size(size) - 1) - forward, forward)
        enough = k.size(dim_max(self.before[axis], self.after[axis])) < k.size(size)
        return k.require(enough, mirrored, f"Pad: axis {axis} has fewer elements than are reflected")
