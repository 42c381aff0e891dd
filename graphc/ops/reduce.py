"""Reductions along axes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import BF16, BOOL, F16, F32, FLOATS, INTEGERS, U8, TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.collapse import MAX_RANK, group, merge
from graphc.ops.movement import Reshape
from graphc.shapes import Dim, Undecidable, dim_max, dim_min, product

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Reduction, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor


@dataclass(frozen=True)
class Kind:
    """A row of the table of reductions: what NumPy computes, what sizes of shapes do, and which dtypes it takes."""

    numpy: Callable[..., Any]
    loop: Reduction
    dims: Callable[[Dim, Dim], Dim] | None
    takes: frozenset[np.dtype]


_NUMBERS = FLOATS | INTEGERS

WIDE = 16
"""Columns from which on it is worth while to reduce each of them first."""


def _mean(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """The mean; of integers, truncated toward zero (of none, 0)."""
    if x.dtype.kind == "f":
        return np.asarray(np.mean(x, axis=axis, keepdims=keepdims, dtype=x.dtype))
    count = max(int(np.prod([x.shape[i] for i in axis], dtype=np.int64)), 1)
    total = np.asarray(np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype))
    return np.asarray(np.trunc(total / count) if count > 1 else total)


def _extreme(function: Callable[..., Any], largest: bool) -> Callable[..., np.ndarray]:
    """`np.max` or `np.min`, defined for no elements too: the result is then the other end of the dtype."""

    def reduce(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        if x.dtype.kind == "f":
            start: Any = -np.inf if largest else np.inf
        elif x.dtype.kind == "b":
            start = not largest
        else:
            info = np.iinfo(x.dtype)
            start = info.min if largest else info.max
        return np.asarray(function(x, axis=axis, keepdims=keepdims, initial=start))

    return reduce


def _fold(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def reduce(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        return np.asarray(function(x, axis=axis, keepdims=keepdims, dtype=x.dtype))

    return reduce


KINDS: dict[str, Kind] = {
    "sum": Kind(_fold(np.sum), "sum", lambda a, b: a + b, _NUMBERS),
    "mean": Kind(_mean, "sum", None, _NUMBERS),
    "max": Kind(_extreme(np.max, True), "max", dim_max, _NUMBERS | {BOOL}),
    "min": Kind(_extreme(np.min, False), "min", dim_min, _NUMBERS | {BOOL}),
    "prod": Kind(_fold(np.prod), "prod", lambda a, b: a * b, _NUMBERS),
}


@dataclass(frozen=True)
class Reduce(Op):
    """The sum, mean, max, min or prod over `axes`; `keepdims` leaves them with size 1.

    float16 and bfloat16 are accumulated in float32. The mean of integers is truncated toward zero. Over no elements:
    0, NaN, the lowest and the highest value, 1.
    """

    kind: str
    axes: tuple[int, ...]
    keepdims: bool

    @property
    def name(self) -> str:
        """ONNX's name: ReduceSum and so on."""
        return f"Reduce{self.kind.capitalize()}"

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if self.kind not in KINDS:
            raise ShapeError(f"there is no reduction {self.kind!r}")
        if x.dtype not in KINDS[self.kind].takes:
            raise ShapeError(f"{self.name} does not take {x.dtype.name}")
        if any(not 0 <= axis < x.rank for axis in self.axes) or len(set(self.axes)) != len(self.axes):
            raise ShapeError(f"axes {list(self.axes)} are not axes of a tensor of rank {x.rank}")
        return (TensorType(x.dtype, self._shape(x.shape)),)

    def _shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        sizes = (1 if axis in self.axes else size for axis, size in enumerate(shape))
        return tuple(size for axis, size in enumerate(sizes) if self.keepdims or axis not in self.axes)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        kind = KINDS[self.kind]
        if x.dtype == object:
            return (self._eval_dims(x, kind),)
        wide = x.astype(np.float32) if x.dtype in (F16, BF16) else x
        with np.errstate(all="ignore"):
            result = kind.numpy(wide, axis=self.axes, keepdims=self.keepdims) if self.axes else wide
            return (np.asarray(result).astype(x.dtype, copy=False),)

    def _eval_dims(self, x: np.ndarray, kind: Kind) -> np.ndarray:
        if kind.dims is None:
            raise Undecidable(f"{self.name} of symbolic sizes")
        identity = {"sum": 0, "prod": 1}.get(self.kind)
        kept = [axis for axis in range(x.ndim) if axis not in self.axes]
        rows = x.transpose([*kept, *self.axes])
        rows = rows.reshape(*(x.shape[axis] for axis in kept), prod(x.shape[axis] for axis in self.axes))
        result = np.empty(rows.shape[:-1], dtype=object)
        for place in np.ndindex(result.shape):
            sizes = list(rows[place]) if identity is None else [identity, *rows[place]]
            if not sizes:
                raise Undecidable(f"{self.name} of no sizes")
            result[place] = functools.reduce(kind.dims, sizes)
        return result.reshape(self._shape(x.shape))  # type: ignore[arg-type]

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_sum_rows` or `ggml_mean` of the reduced axes, moved to the end and merged."""
        function = {"sum": "ggml_sum_rows", "mean": "ggml_mean"}.get(self.kind)
        if function is None or b.types[0].dtype not in FLOATS:
            return None
        if not self.axes:
            return inputs[0]
        x = b.cast(inputs[0], "F32")
        if x is None:
            return None
        shape = b.types[0].shape
        reduced = [axis in self.axes for axis in range(len(shape))]
        groups = group([None if size == 1 else flag for size, flag in zip(shape, reduced, strict=True)])
        if len(groups) > MAX_RANK:
            return None
        result = self._rows(b, b.reshape(x, merge(shape, groups)), groups, reduced, shape, function)
        return None if result is None else b.cast(b.reshape(result, b.result.shape), inputs[0].type)

    def _rows(
        self, b: Builder, x: Tensor, groups: list[int], reduced: list[bool], shape: Sequence[Dim], function: str
    ) -> Tensor | None:
        """The function over the groups that are reduced; the result's sizes are those of the other groups, and 1."""
        flags, position = [], 0
        for count in groups:
            inside = range(position, position + count)
            flags.append(next((reduced[i] for i in inside if shape[i] != 1), all(reduced[i] for i in inside)))
            position += count
        kept = [i for i, flag in enumerate(flags) if not flag]
        folded = [i for i, flag in enumerate(flags) if flag]
        if not folded:
            return x
        sizes = x.shape
        columns = sizes[-1]
        if folded == [len(sizes) - 2] and isinstance(columns, int) and columns >= WIDE:
            return b.over_rows(function, x)
        x = b.transpose(x, [*kept, *folded])
        x = b.reshape(x, [*(sizes[i] for i in kept), product(sizes[i] for i in folded)])
        return b.over_last(function, x)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """The largest or the smallest of all elements: of each column, many at once, and then of these; None for all else."""
        (x,) = inputs
        *leading, last = x.shape or (1,)
        one_by_one = product(leading) == 1 or (isinstance(last, int) and last < WIDE)
        if self.kind not in ("max", "min") or len(self.axes) != len(x.shape) or one_by_one:
            return None
        columns = emit(Reduce(self.kind, tuple(range(len(leading))), False), x)
        found = emit(Reduce(self.kind, (0,), False), columns)
        return (emit(Reshape((1,) * len(x.shape)), found) if self.keepdims else found,)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """A loop over the reduced axes."""
        (x,) = inputs
        axes = sorted(self.axes)
        outer = [i for axis, i in enumerate(index) if not (self.keepdims and axis in self.axes)]
        wide = F32 if x.dtype in (F16, BF16) else U8 if x.dtype == BOOL else x.dtype

        def body(inner: Sequence[Scalar]) -> Scalar:
            kept, folded = iter(outer), iter(inner)
            return k.cast(k.load(0, [next(folded if axis in axes else kept) for axis in range(x.rank)]), wide)

        extents = [x.shape[axis] for axis in axes]
        result = k.reduce(KINDS[self.kind].loop, extents, body)
        if self.kind == "mean":
            result = result / k.cast(k.size(product(extents)), wide)
        return k.cast(result, x.dtype)
