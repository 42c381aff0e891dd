"""Operators that read elements at computed indices. Negative indices count from the end; others out of range are errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import InputError, ShapeError
from graphc.ir.types import BF16, F16, F32, I32, I64, INTEGERS, TensorType
from graphc.ops.base import Op
from graphc.ops.collapse import MAX_RANK
from graphc.shapes import Dim, Expr, Undecidable, dim_min, product

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


def counted_from_front(name: str, indices: np.ndarray, size: int) -> np.ndarray:
    """Indices of an axis with negative ones counted from the end, as int64. Raises InputError for those out of range."""
    numbers = indices.astype(np.int64)
    if numbers.size and (numbers.min() < -size or numbers.max() >= size):
        raise InputError(f"{name}: an index from {numbers.min()} to {numbers.max()} is outside an axis of size {size}")
    return np.where(numbers < 0, numbers + size, numbers)


def wrapped(k: Kernel, i: Scalar, size: Dim) -> tuple[Scalar, Scalar]:
    """An index as int64 counted from the front, and the condition that it is in range."""
    i = k.cast(i, I64)
    i = k.select(i < 0, i + size, i)
    return i, (i >= 0).and_(i < size)


def check_indices(name: str, indices: TensorType) -> None:
    """Raise ShapeError if the indices are not integers."""
    if indices.dtype not in INTEGERS:
        raise ShapeError(f"{name}: the indices are {indices.dtype.name}, not integers")


def check_axis(name: str, axis: int, x: TensorType) -> None:
    """Raise ShapeError if the tensor has no such axis."""
    if not 0 <= axis < x.rank:
        raise ShapeError(f"{name}: axis {axis} is not an axis of a tensor of rank {x.rank}")


@dataclass(frozen=True)
class Gather(Op):
    """Slices of an axis: result[..., i..., ...] is data[..., indices[i...], ...]."""

    axis: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        data, indices = inputs
        check_indices(self.name, indices)
        check_axis(self.name, self.axis, data)
        shape = (*data.shape[: self.axis], *indices.shape, *data.shape[self.axis + 1 :])
        return (TensorType(data.dtype, shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        data, indices = inputs
        numbers = counted_from_front(self.name, indices, data.shape[self.axis])
        return (np.asarray(np.take(data, numbers, axis=self.axis), dtype=data.dtype),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """A view for one known index; `ggml_get_rows` along the first axis that is not 1."""
        x, (data, indices) = inputs[0], b.types
        limit = data.shape[self.axis]
        known = b.constant(1) if indices.size == 1 else None
        if known is not None and isinstance(limit, int):
            return self._one(b, x, data.shape, limit, int(known.reshape(())))
        return None if product(data.shape[: self.axis]) != 1 else looked_up(b, x, limit)

    def _one(self, b: Builder, x: Tensor, shape: Sequence[Dim], limit: int, index: int) -> Tensor | None:
        """A view of one index; of more than four axes, with those on either side as one."""
        if not -limit <= index < limit:
            raise InputError(f"Gather: index {index} is outside axis {self.axis} of size {limit}")
        axis = self.axis
        if len(shape) > MAX_RANK:
            shape, axis = (product(shape[:axis]), limit, product(shape[axis + 1 :])), 1
            x = b.reshape(x, shape)
        starts: list[Dim] = [0] * len(shape)
        starts[axis] = index % limit
        view = b.slice(x, starts, [*shape[:axis], 1, *shape[axis + 1 :]], [1] * len(shape))
        return None if view is None else b.reshape(view, b.result.shape)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element at the index that the indices hold."""
        data, indices = inputs
        end = self.axis + indices.rank
        row, inside = wrapped(k, k.load(1, index[self.axis : end]), data.shape[self.axis])
        found = k.load(0, [*index[: self.axis], row, *index[end:]])
        return k.require(inside, found, "Gather: an index is out of range")


def looked_up(b: Builder, table: Tensor, limit: Dim) -> Tensor | None:
    """The rows of a table, of which there are `limit`, that input 1 numbers, by `ggml_get_rows`; None where it does not do."""
    data, indices = b.types
    rows = None if data.dtype not in (F32, F16, BF16) or isinstance(limit, Expr) else b.row_indices(1, limit)
    if rows is None:
        return None
    lines = b.rows(b.reshape(table, (limit, data.size // limit)))
    found = b.call("ggml_get_rows", lines, b.reshape(rows, (indices.size,)), rank=2)
    return b.cast(b.reshape(found, b.result.shape), table.type)


@dataclass(frozen=True)
class RowNumbers(Op):
    """Indices as numbers of a table's rows, of which there are `limit`, counted from the front. ggml ends the process for rows
    that there are not, so numbers that a model computes are checked by this before it reads a table: a kernel gives 0 where it
    finds a fault."""

    limit: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (indices,) = inputs
        check_indices(self.name, indices)
        if not 1 <= self.limit <= 2**31:
            raise ShapeError(f"RowNumbers: a table of {self.limit} rows")
        return (TensorType(I32, indices.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        return (counted_from_front(self.name, inputs[0], self.limit).astype(I32),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """A row's number."""
        row, inside = wrapped(k, k.load(0, index), self.limit)
        return k.require(inside, k.cast(row, I32), "Gather: an index is out of range")


@dataclass(frozen=True)
class GatherElements(Op):
    """One element for each index: along `axis` the index's, along the others the same place."""

    axis: int

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        data, indices = inputs
        check_indices(self.name, indices)
        check_axis(self.name, self.axis, data)
        check_inside(self.name, self.axis, data, indices)
        return (TensorType(data.dtype, indices.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        data, indices = inputs
        numbers = counted_from_front(self.name, indices, data.shape[self.axis])
        return (data[along(numbers, self.axis)],)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element at the index that the indices hold."""
        row, inside = wrapped(k, k.load(1, index), inputs[0].shape[self.axis])
        found = k.load(0, [*index[: self.axis], row, *index[self.axis + 1 :]])
        return k.require(inside, found, "GatherElements: an index is out of range")


def along(numbers: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """NumPy's index for one number an element along `axis`, and the element's own place along the others."""
    grids: list[np.ndarray] = list(np.ogrid[tuple(slice(size) for size in numbers.shape)])
    grids[axis] = numbers
    return tuple(grids)


def check_inside(name: str, axis: int, data: TensorType, indices: TensorType) -> None:
    """Raise ShapeError if the indices have other axes than the data, or more elements along one that is not `axis`."""
    if data.rank != indices.rank:
        raise ShapeError(f"{name}: indices {indices} for data {data}")
    for i, (size, limit) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if i == axis or dim_min(size, limit) == size:
            continue
        both = isinstance(size, Expr) and isinstance(limit, Expr)
        enough = (size, limit) if both else (dim_min(size, limit), size)
        raise ShapeError(f"{name}: {size} indices along axis {i} for {limit} elements", [enough])


@dataclass(frozen=True)
class GatherND(Op):
    """Slices, by tuples of indices that the last axis of `indices` holds; the first `batch_dims` axes go together."""

    batch_dims: int = 0

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        data, indices = inputs
        check_indices(self.name, indices)
        if indices.rank < 1:
            raise ShapeError(f"GatherND: {indices} holds no tuples")
        if isinstance(indices.shape[-1], Expr):
            raise Undecidable(f"the length of the tuples of {indices}")
        depth = self.batch_dims + indices.shape[-1]
        batch = (data.shape[: self.batch_dims], indices.shape[: self.batch_dims])
        if self.batch_dims >= indices.rank or batch[0] != batch[1] or depth > data.rank:
            raise ShapeError(f"GatherND: indices {indices} for data {data} with {self.batch_dims} batch axes")
        return (TensorType(data.dtype, (*indices.shape[:-1], *data.shape[depth:])),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_get_rows` for tuples of one index."""
        data, indices = b.types
        return looked_up(b, inputs[0], data.shape[0]) if self.batch_dims == 0 and indices.shape[-1] == 1 else None

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        data, indices = inputs
        return (np.asarray(data[tuples(self.name, data.shape, indices, self.batch_dims)], dtype=data.dtype),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The element at the tuple that the indices hold."""
        data, indices = inputs
        outer = index[: indices.rank - 1]
        place, inside = tuple_at(k, 1, outer, indices, data.shape[self.batch_dims :])
        found = k.load(0, [*index[: self.batch_dims], *place, *index[indices.rank - 1 :]])
        return k.require(inside, found, "GatherND: an index is out of range")


def tuples(name: str, shape: Sequence[int], indices: np.ndarray, batch_dims: int = 0) -> tuple[np.ndarray, ...]:
    """NumPy's index for the tuples in the last axis of `indices`. Raises InputError for an index out of range."""
    grids = list(np.ogrid[tuple(slice(size) for size in indices.shape[:-1])])[:batch_dims]
    sizes = shape[batch_dims:]
    parts = [counted_from_front(name, indices[..., i], sizes[i]) for i in range(indices.shape[-1])]
    return (*grids, *parts)


def tuple_at(
    k: Kernel, input: int, outer: Sequence[Scalar], indices: TensorType, sizes: Sequence[Dim]
) -> tuple[list[Scalar], Scalar]:
    """The tuple of indices that an input holds at `outer`, and the condition that all of them are in range."""
    place: list[Scalar] = []
    inside = k.const(True, np.dtype(np.bool_))
    for number in range(int(indices.shape[-1])):  # type: ignore[arg-type]
        entry, fits = wrapped(k, k.load(input, [*outer, k.const(number, I64)]), sizes[number])
        place.append(entry)
        inside = inside.and_(fits)
    return place, inside


@dataclass(frozen=True)
class OneHot(Op):
    """A new axis of `depth` elements: values[1] where the index is, values[0] elsewhere, and everywhere if the index is
    out of range."""

    axis: int
    depth: Dim

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        indices, values = inputs
        check_indices(self.name, indices)
        if values.shape != (2,):
            raise ShapeError(f"OneHot: the values are {values}, not two")
        if not 0 <= self.axis <= indices.rank:
            raise ShapeError(f"OneHot: axis {self.axis} is not an axis of a tensor of rank {indices.rank + 1}")
        return (TensorType(values.dtype, (*indices.shape[: self.axis], self.depth, *indices.shape[self.axis :])),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        from graphc.ops.movement import static

        indices, (off, on) = inputs
        (depth,) = static((self.depth,), "the depth")
        numbers = indices.astype(np.int64)
        numbers = np.expand_dims(np.where(numbers < 0, numbers + depth, numbers), self.axis)
        places = np.arange(depth).reshape([-1 if axis == self.axis else 1 for axis in range(numbers.ndim)])
        return (np.where(numbers == places, on, off).astype(inputs[1].dtype),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One of the two values."""
        number = k.load(0, [*index[: self.axis], *index[self.axis + 1 :]])
        place, _ = wrapped(k, number, self.depth)
        return k.select(place.eq(index[self.axis]), k.load(1, [1]), k.load(1, [0]))
