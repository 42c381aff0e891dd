"""Complex tensors, which are real ones whose last axis holds the two parts of a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx_ir import DataType, tensor
from onnxscript import BOOL, COMPLEX64, COMPLEX128, DOUBLE, FLOAT, INT32

from graphc.frontend.torch.translations.graph import Translation, Value, like, op, squeeze_axes
from graphc.frontend.torch.translations.numbers import copied

PARTS: Mapping[int, int] = {COMPLEX64.dtype: FLOAT.dtype, COMPLEX128.dtype: DOUBLE.dtype}
"""Complex types, and the type of each part."""


def before_parts(axis: int) -> int:
    """An axis of complex numbers among those of the real tensor."""
    return axis - 1 if axis < 0 else axis


def squeeze_complex(x: Value, dim: int | Sequence[int]) -> Value:
    """Without those of the axes whose size is 1, of complex numbers."""
    axes = [dim] if isinstance(dim, int) else dim
    return squeeze_axes(x, [before_parts(axis) for axis in axes] if len(x.shape) > 1 else [])


MOVED: Mapping[str, Callable[[Any], Any]] = {
    "dim": before_parts,
    "dims": lambda dims: [*map(before_parts, dims)],
    "size": lambda sizes: [*sizes, 2],
    "shape": lambda sizes: [*sizes, 2],
    "repeats": lambda counts: [*counts, 1],
    "pad": lambda counts: [0, 0, *counts],
}
"""What operators call their axes, sizes and counts per axis, and what these are for the real tensor."""

OTHER: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "aten.tile.default": {"dims": MOVED["repeats"]},
    "aten.repeat_interleave.self_int": {"repeats": lambda count: count},
}
"""Operators that call other things so."""


def with_parts(target: Any, real: Translation, name: str) -> Translation:
    """The translation of an operator that leaves the parts together, for complex numbers, by the one for real numbers."""
    names = [each.name for each in target._schema.arguments]
    moved = {**MOVED, **OTHER.get(name, {})}

    def translated(*arguments: Any, **keywords: Any) -> Any:
        given = dict(zip(names, arguments, strict=False)) | keywords
        for each in target._schema.arguments:
            if each.name in moved and (each.name in given or each.has_default_value()):
                given[each.name] = moved[each.name](given.get(each.name, each.default_value))
        if given.get("value"):
            raise ValueError("complex numbers are padded with zeros alone")
        ordered = [given.pop(each) for each in names[: len(arguments)]]
        return real(*ordered, **given)

    return translated


def apart(target: Any, real: Translation, name: str) -> Translation:
    """The translation of an operator that does the same with both parts, by the one for real numbers."""

    def translated(x: Value, *arguments: Any, **keywords: Any) -> Value:
        shape = x.shape[:-1]
        return join(*(real(like(x, op.Squeeze(part, [-1]), shape), *arguments, **keywords) for part in parts(x)))

    return translated


def parts(z: Value) -> tuple[Value, Value]:
    """Real and imaginary parts, each with a last axis of size 1."""
    return op.Slice(z, [0], [1], [-1]), op.Slice(z, [1], [2], [-1])


def join(real: Value, imaginary: Value) -> Value:
    """Complex numbers of their parts."""
    return op.Concat(op.Unsqueeze(real, [-1]), op.Unsqueeze(imaginary, [-1]), axis=-1)


def number(given: complex, dtype: int) -> Value:
    """A number as its parts."""
    whole = complex(given)
    return op.Constant(value=tensor([whole.real, whole.imag], dtype=DataType(dtype)))


def filled_where_complex(value: complex | None, usual: Translation) -> Translation:
    """`torch.full` and the like for complex types too; with `value`, of that."""

    def translated(size: Sequence[Any], *arguments: Any, **settings: Any) -> Value:
        given = arguments[0] if value is None else value
        dtype = settings.get("dtype", -1)
        if dtype not in PARTS and isinstance(given, complex):
            dtype = COMPLEX64.dtype
        if dtype not in PARTS:
            return usual(size, *arguments, **settings)
        return op.Expand(number(given, PARTS[dtype]), [*size, 2])

    return translated


def filled_like(value: complex | None, z: Value, *arguments: Any, dtype: int = -1, **settings: Any) -> Value:
    """`torch.full_like` and the like of a complex tensor."""
    given: Any = arguments[0] if value is None else value
    if dtype in (-1, None) or dtype in PARTS:
        return op.Expand(number(given, PARTS.get(dtype, z.dtype)), op.Shape(z))
    return op.Expand(op.Cast(op.Constant(value_float=float(given)), to=dtype), op.Shape(z, end=-1))


def new_filled(
    value: complex | None, z: Value, size: Sequence[Any], *arguments: Any, dtype: int = -1, **settings: Any
) -> Value:
    """`Tensor.new_full` and the like of a complex tensor."""
    given: Any = arguments[0] if value is None else value
    if dtype in (-1, None) or dtype in PARTS:
        return op.Expand(number(given, PARTS.get(dtype, z.dtype)), [*size, 2])
    return op.Expand(op.Cast(op.Constant(value_float=float(given)), to=dtype), size)


def copied_complex(z: Value, source: Value, non_blocking: bool = False) -> Value:
    """Complex numbers in the type of z. With fewer axes they could be real ones."""
    if len(source.shape) != len(z.shape):
        raise ValueError("numbers are copied for several complex ones")
    return copied(z, source)


def cast_complex(z: Value, dtype: int = -1, **settings: Any) -> Value:
    """To a complex type, or of the real parts to a real one."""
    if dtype in (-1, None):
        return op.Identity(z)
    if dtype in PARTS:
        return op.Cast(z, to=PARTS[dtype])
    return op.Cast(op.Squeeze(parts(z)[0], [-1]), to=dtype)


def gather_complex(z: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """`torch.gather` of complex numbers: both parts of each."""
    wide = op.Expand(op.Unsqueeze(index, [-1]), [1] * len(index.shape) + [2])
    return op.GatherElements(z, wide, axis=before_parts(dim))


def where_complex(condition: Value, x: Value, y: Value) -> Value:
    """`torch.where` for complex numbers: both parts of each."""
    return op.Where(op.Unsqueeze(condition, [-1]), x, y)


def masked_fill_complex(z: Value, mask: Value, value: Any) -> Value:
    """`torch.masked_fill` of complex numbers with a number."""
    if not isinstance(value, int | float | complex):
        raise ValueError("a tensor fills complex numbers")
    return op.Where(op.Unsqueeze(mask, [-1]), number(value, z.dtype), z)


def fill_complex(z: Value, value: Any) -> Value:
    """Of the shape of z, with a number or with the one of a tensor, which may be a real one."""
    if not hasattr(value, "shape"):
        return filled_like(None, z, value)
    if not value.shape:
        value = op.Concat(op.Reshape(op.CastLike(value, z), [1]), op.CastLike([0.0], z), axis=0)
    return op.Expand(value, op.Shape(z))


def multiply(x: Value, y: Value) -> Value:
    """Of complex numbers."""
    (a, b), (c, d) = parts(x), parts(y)
    return op.Concat(op.Sub(op.Mul(a, c), op.Mul(b, d)), op.Add(op.Mul(a, d), op.Mul(b, c)), axis=-1)


def multiply_number(z: Value, factor: complex) -> Value:
    """Complex numbers times one."""
    return multiply(z, number(factor, z.dtype))


def subtracted_complex(z: Value, other: complex, alpha: complex = 1) -> Value:
    """A number minus complex ones."""
    return op.Sub(number(other, z.dtype), z if alpha == 1 else multiply_number(z, alpha))


def exponential(z: Value) -> Value:
    """Of complex numbers."""
    real, imaginary = parts(z)
    return op.Mul(op.Exp(real), op.Concat(op.Cos(imaginary), op.Sin(imaginary), axis=-1))


def power(z: Value, exponent: complex) -> Value:
    """A small whole power, by products."""
    if exponent not in (1, 2, 3, 4):
        raise ValueError(f"complex numbers to the power of {exponent}")
    found = z
    for _ in range(int(exponent.real) - 1):
        found = multiply(found, z)
    return op.Identity(found)


def equal_complex(x: Value, y: Value) -> Value:
    """Where both parts are."""
    y = y if hasattr(y, "shape") else number(y, x.dtype)
    same = op.Cast(op.Equal(x, y), to=INT32.dtype)
    return op.Cast(op.ReduceMin(same, [-1], keepdims=0), to=BOOL.dtype)


def unequal_complex(x: Value, y: Value) -> Value:
    """Where a part differs."""
    return op.Not(equal_complex(x, y))


def either_part(test: Translation, z: Value) -> Value:
    """Where a test holds of a part."""
    found = op.Cast(test(z), to=INT32.dtype)
    return op.Cast(op.ReduceMax(found, [-1], keepdims=0), to=BOOL.dtype)
