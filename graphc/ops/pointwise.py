"""Operators that compute each element of the result from the elements at the same place: functions, Where and Cast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.errors import InputError, ShapeError
from graphc.ir.types import BF16, BOOL, F16, F32, FLOATS, I32, INTEGERS, STRING, TensorType
from graphc.ops.base import Op, broadcast_shapes
from graphc.ops.collapse import MAX_RANK, broadcast_groups, left_padded, merge
from graphc.ops.functions import BINARY, UNARY, BinaryFunction, UnaryFunction
from graphc.records import dataclass
from graphc.shapes import Expr, Undecidable

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

NARROW = (F16, BF16)
"""Floating-point types that are computed in float32 and rounded back."""


def widened(function: Callable[..., Any], dtype: np.dtype, *inputs: np.ndarray) -> np.ndarray:
    """A function of arrays, float16 and bfloat16 ones as float32, rounded to `dtype`."""
    arrays = [x.astype(np.float32) if x.dtype in NARROW else x for x in inputs]
    with np.errstate(all="ignore"):
        return np.asarray(function(*arrays)).astype(dtype, copy=False)


def on_dims(function: Callable[..., Any] | None, name: str, *inputs: np.ndarray) -> np.ndarray:
    """A function of sizes, element by element; an array of Dims (or bools). Raises Undecidable if there is none."""
    if function is None:
        raise Undecidable(f"{name} of symbolic sizes")
    exact = [np.asarray(x if x.dtype == object else [_exact(v) for v in x.ravel()], dtype=object) for x in inputs]
    shaped = [array.reshape(x.shape) for array, x in zip(exact, inputs, strict=True)]
    return np.asarray(np.frompyfunc(function, len(inputs), 1)(*shaped), dtype=object)


def _exact(number: Any) -> int | bool:
    """A plain number beside symbolic sizes. Raises Undecidable for a fraction."""
    value = number.item()
    if isinstance(value, float) and not value.is_integer():
        raise Undecidable(f"arithmetic of symbolic sizes with {value}")
    return value if isinstance(value, bool) else int(value)


def pointwise(b: Builder, inputs: Sequence[Tensor], compute: Callable[..., Tensor | None]) -> Tensor | None:
    """The calls that `compute` makes for tensors of at most four axes, in float32 and rounded back to the result's type;
    axes that broadcast alike are merged where there are more. None if that is not possible."""
    tensors = [b.cast(x, "F32") for x in inputs]
    shapes = [type.shape for type in b.types]
    if any(x is None for x in tensors):
        return None
    if b.result.rank > MAX_RANK and any(shape != b.result.shape for shape in shapes):
        groups = broadcast_groups(shapes, b.result.shape)
        if len(groups) > MAX_RANK:
            return None
        merged = [merge(left_padded(shape, b.result.rank), groups) for shape in shapes]
        tensors = [b.reshape(x, shape) for x, shape in zip(tensors, merged, strict=True) if x is not None]
    result = compute(*tensors)
    if result is None:
        return None
    storage = {F32: "F32", F16: "F16", BF16: "BF16"}.get(b.result.dtype)
    return b.cast(b.reshape(result, b.result.shape), storage) if storage else None


def load_broadcast(k: Kernel, input: int, type: TensorType, index: Sequence[Scalar]) -> Scalar:
    """The element of an input that broadcasts to the result's index."""
    return k.load(input, index[len(index) - type.rank :])


@dataclass(frozen=True)
class Unary(Op):
    """A function of one tensor, by its ONNX name: a row of `UNARY`."""

    function: str

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function

    @property
    def row(self) -> UnaryFunction:
        """The row of the table. Raises ShapeError if there is none."""
        if self.function not in UNARY:
            raise ShapeError(f"there is no function {self.function!r} of one tensor")
        return UNARY[self.function]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        if x.dtype not in self.row.takes:
            raise ShapeError(f"{self.function} does not take {x.dtype.name}")
        return (TensorType(self.row.gives or x.dtype, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        (x,) = inputs
        if x.dtype == object:
            return (on_dims(self.row.dims, self.function, x),)
        return (widened(self.row.numpy, self.row.gives or x.dtype, x),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """The row's calls."""
        call = self.row.ggml
        if self.function == "Identity":
            return inputs[0]
        return pointwise(b, inputs, lambda x: call(b, x)) if call else None

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The row's loop form."""
        row, (x,) = self.row, inputs
        loop = row.loop_integer if row.loop_integer and x.dtype in INTEGERS else row.loop
        loaded = k.load(0, index)
        return k.call(loop, loaded, dtype=row.gives) if isinstance(loop, str) else loop(k, loaded)


@dataclass(frozen=True)
class Binary(Op):
    """A function of two tensors with NumPy broadcasting, by its ONNX name: a row of `BINARY`."""

    function: str

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function

    @property
    def row(self) -> BinaryFunction:
        """The row of the table. Raises ShapeError if there is none."""
        if self.function not in BINARY:
            raise ShapeError(f"there is no function {self.function!r} of two tensors")
        return BINARY[self.function]

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        a, b = inputs
        if a.dtype != b.dtype and not self.row.mixed:
            raise ShapeError(f"{self.function} takes two tensors of one dtype, not {a.dtype.name} and {b.dtype.name}")
        for operand in inputs:
            if operand.dtype not in self.row.takes:
                raise ShapeError(f"{self.function} does not take {operand.dtype.name}")
        shape = broadcast_shapes(a.shape, b.shape)
        if self.function == "PRelu" and shape != a.shape:
            raise ShapeError(f"the slope {b} does not broadcast to {a}")
        return (TensorType(self.row.gives or a.dtype, shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        a, b = inputs
        if a.dtype == object or b.dtype == object:
            result = on_dims(self.row.dims, self.function, a, b)
            return (result.astype(self.row.gives) if self.row.gives else result,)
        return (widened(self.row.numpy, self.row.gives or a.dtype, a, b),)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """The row's calls, those for a known number where an operand is one."""
        row = self.row
        for known, other, call in ((1, 0, row.right), (0, 1, row.left)):
            number = None if call is None or b.types[other].size != b.result.size else _number(b, known)
            if call is not None and number is not None:
                found = _with_number(b, inputs[other], other, call, number)
                if found is not None:
                    return found
        general = row.ggml
        return pointwise(b, inputs, lambda x, y: general(b, x, y)) if general else None

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """The row's loop form; dividing an integer by zero is an error when the model is run."""
        a, b = (load_broadcast(k, i, type, index) for i, type in enumerate(inputs))
        result = self.row.loop(k, a, b)
        if self.row.divides and b.dtype in INTEGERS:
            return k.require(b.ne(0), result, f"{self.function}: an integer is divided by zero")
        return result


def _number(b: Builder, index: int) -> float | None:
    """The operator's input as one number, if it is known when compiling and numeric."""
    if b.types[index].size != 1 or b.types[index].dtype not in FLOATS | INTEGERS:
        return None
    data = b.constant(index)
    return None if data is None else float(data.reshape(()).astype(np.float64))


def _with_number(b: Builder, x: Tensor, index: int, call: Callable[..., Tensor | None], number: float) -> Tensor | None:
    wide = b.cast(x, "F32")
    result = None if wide is None else call(b, wide, number)
    return None if result is None else b.reshape(b.cast(result, x.type) or result, b.result.shape)


@dataclass(frozen=True)
class Where(Op):
    """The second input where the first (bool) is true, else the third; all three broadcast."""

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        condition, a, b = inputs
        if condition.dtype != BOOL:
            raise ShapeError(f"the condition is {condition.dtype.name}, not bool")
        if a.dtype != b.dtype:
            raise ShapeError(f"the two choices are {a.dtype.name} and {b.dtype.name}, not of one dtype")
        return (TensorType(a.dtype, broadcast_shapes(condition.shape, a.shape, b.shape)),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`."""
        condition, a, b = inputs
        return (np.asarray(np.where(condition.astype(np.bool_), a, b)),)

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One choice."""
        condition, a, b = (load_broadcast(k, i, type, index) for i, type in enumerate(inputs))
        return k.select(condition, a, b, both=True)


@dataclass(frozen=True)
class Cast(Op):
    """The same numbers in another dtype: to integers truncated toward zero, to bool "is not zero"."""

    dtype: np.dtype

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """See `Op.infer`."""
        (x,) = inputs
        known = FLOATS | INTEGERS | {BOOL, STRING}
        for dtype in (x.dtype, self.dtype):
            if dtype not in known:
                raise ShapeError(f"Cast does not know {dtype.name}")
        return (TensorType(self.dtype, x.shape),)

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Op.eval`. Symbolic sizes stay exact integers, whatever the dtype; only to bool they must be decidable."""
        (x,) = inputs
        if self.dtype == STRING:
            return (
                x if x.dtype == object else np.array([str(v) for v in x.ravel().tolist()], object).reshape(x.shape),
            )
        if x.dtype == object:
            return (self._from_objects(x),)
        with np.errstate(all="ignore"):
            wide = x.astype(np.float32) if BF16 in (x.dtype, self.dtype) and x.dtype in FLOATS else x
            return (wide.astype(self.dtype, copy=False),)

    def _from_objects(self, x: np.ndarray) -> np.ndarray:
        values = x.ravel().tolist()
        if self.dtype == BOOL:
            return np.array([bool(value) for value in values], dtype=np.bool_).reshape(x.shape)
        if any(isinstance(value, Expr) for value in values):
            return x
        try:
            parsed = [(float if self.dtype in FLOATS else int)(value) for value in values]
        except ValueError as error:
            raise InputError(f"a string is not a number: {error}") from None
        return np.array(parsed).astype(self.dtype).reshape(x.shape)

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | None:
        """`ggml_cast` between floating-point types and from int32; nothing between types of the same bits."""
        (x,), source = inputs, b.types[0].dtype
        if source == self.dtype or same_bits(source, self.dtype):
            return x
        if source == I32 and self.dtype == F32:
            return b.floats_of(x)
        targets = {F32: "F32", F16: "F16", BF16: "BF16"}
        if source not in targets or self.dtype not in targets:
            return None
        asked = self.dtype != F32 and not b.within_definition
        return b.rounded(x, targets[self.dtype]) if asked else b.cast(x, targets[self.dtype])

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """One conversion."""
        return k.cast(k.load(0, index), self.dtype)

    def __str__(self) -> str:
        return f"Cast[{self.dtype.name}]"


def same_bits(source: np.dtype, target: np.dtype) -> bool:
    """True if converting changes no bit: integers of one width (they wrap), and bool to a byte."""
    integers = source in INTEGERS and target in INTEGERS and source.itemsize == target.itemsize
    return integers or (source == BOOL and target in INTEGERS and target.itemsize == 1)
