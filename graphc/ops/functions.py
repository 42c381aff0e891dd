"""The tables of unary and binary functions: one row says all there is to know of a function.

`loop` computes one element in a generated kernel: a function of scalars, or a C expression over `{0}` with `{f}` for the
suffix of C's mathematical functions (a name alone is such a function). `loop_integer` replaces it for integers. `dims`
computes it on symbolic sizes. `ggml` makes the calls for float32 tensors; they agree with NumPy for infinities and NaN too, so
ggml's relu and clamp, which give a number for NaN, are not among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphc.errors import InputError
from graphc.ir.types import BOOL, F32, F64, FLOATS, INTEGERS, STRING
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, Undecidable, dim_max, dim_min, lower_bound, upper_bound

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

    UnaryCall: TypeAlias = Callable[[Builder, Tensor], Tensor | None]
    BinaryCall: TypeAlias = Callable[[Builder, Tensor, Tensor], Tensor | None]
    UnaryLoop: TypeAlias = Callable[[Kernel, Scalar], Scalar]
    BinaryLoop: TypeAlias = Callable[[Kernel, Scalar, Scalar], Scalar]
    ScalarCall: TypeAlias = Callable[[Builder, Tensor, float], Tensor | None]

NUMBERS = FLOATS | INTEGERS
SIGNED = FLOATS | frozenset(dtype for dtype in INTEGERS if dtype.kind == "i")
BOOLEANS = frozenset({BOOL})
ANYTHING = NUMBERS | BOOLEANS


@dataclass(frozen=True)
class UnaryFunction:
    """A row of `UNARY`. The result has the input's dtype unless `gives` says otherwise."""

    takes: frozenset[np.dtype]
    numpy: Callable[[np.ndarray], Any]
    loop: str | UnaryLoop
    loop_integer: str | UnaryLoop | None = None
    ggml: UnaryCall | None = None
    dims: Callable[[Dim], Dim] | None = None
    gives: np.dtype | None = None


@dataclass(frozen=True)
class BinaryFunction:
    """A row of `BINARY`. Operands have one dtype unless `mixed`; the result has it unless `gives` says otherwise.

    `left` and `right` make the calls where that operand is a number known when compiling. `divides` marks functions of
    integers that are not defined for a second operand of 0, `commutes` those whose operands may be exchanged.
    """

    takes: frozenset[np.dtype]
    numpy: Callable[[np.ndarray, np.ndarray], Any]
    loop: BinaryLoop
    ggml: BinaryCall | None = None
    left: ScalarCall | None = None
    right: ScalarCall | None = None
    dims: Callable[[Dim, Dim], Any] | None = None
    gives: np.dtype | None = None
    mixed: bool = False
    divides: bool = False
    commutes: bool = False


def _call(function: str) -> UnaryCall:
    return lambda b, x: b.unary(function, x)


def _then(value: Tensor | None, function: Callable[[Tensor], Tensor | None]) -> Tensor | None:
    """The function of a result, or None if there is none."""
    return None if value is None else function(value)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, computed in float64."""
    values = np.array([math.erf(value) for value in x.ravel().tolist()], dtype=np.float64)
    return values.reshape(x.shape).astype(x.dtype)


def _rounded_once(function: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """A function that is computed in float64: NumPy's of float32 are off by a unit in many places, and what PyTorch computes is
    not. Frequencies, which are constants of many models, meet numbers of ten thousands before a sine is taken."""
    return lambda x: np.asarray(function(x.astype(np.float64, copy=False))).astype(x.dtype, copy=False)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _silu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * _sigmoid(x))


def _relu(b: Builder, x: Tensor) -> Tensor | None:
    """On the CPU, NaN stays NaN by code of our own; on other devices `ggml_relu` makes it 0."""
    return b.unary("ggml_relu", x) if x.type == "F32" else None


def _softsign(b: Builder, x: Tensor) -> Tensor | None:
    below = _then(b.unary("ggml_abs", x), lambda size: b.scale(size, 1.0, 1.0))
    return _then(below, lambda d: b.binary("ggml_div", x, d))


def _divided_by(b: Builder, x: Tensor, c: float) -> Tensor | None:
    """c / x."""
    return _then(b.unary("ggml_fill", x, c), lambda top: b.binary("ggml_div", top, x))


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _softplus_loop(k: Kernel, x: Scalar) -> Scalar:
    return x.maximum(0) + k.call("log1p{f}(exp{f}(-fabs{f}({0})))", x)


UNARY: dict[str, UnaryFunction] = {
    "Abs": UnaryFunction(NUMBERS, np.abs, "fabs", lambda k, x: k.select(x < 0, -x, x), _call("ggml_abs")),
    "Neg": UnaryFunction(SIGNED, np.negative, lambda k, x: -x, ggml=_call("ggml_neg"), dims=lambda a: -a),
    "Exp": UnaryFunction(FLOATS, _rounded_once(np.exp), "exp", ggml=_call("ggml_exp")),
    "Expm1": UnaryFunction(FLOATS, _rounded_once(np.expm1), "expm1"),  # ggml_expm1 is exp(x) - 1, which cancels near 0
    "Log": UnaryFunction(FLOATS, _rounded_once(np.log), "log", ggml=_call("ggml_log")),
    "Sqrt": UnaryFunction(FLOATS, np.sqrt, "sqrt", ggml=_call("ggml_sqrt")),
    "Sqr": UnaryFunction(NUMBERS, lambda x: x * x, lambda k, x: x * x, ggml=_call("ggml_sqr"), dims=lambda a: a * a),
    "Reciprocal": UnaryFunction(FLOATS, np.reciprocal, lambda k, x: 1 / x, ggml=lambda b, x: _divided_by(b, x, 1.0)),
    "Sin": UnaryFunction(FLOATS, _rounded_once(np.sin), "sin", ggml=_call("ggml_sin")),
    "Cos": UnaryFunction(FLOATS, _rounded_once(np.cos), "cos", ggml=_call("ggml_cos")),
    "Tan": UnaryFunction(FLOATS, _rounded_once(np.tan), "tan"),
    "Asin": UnaryFunction(FLOATS, _rounded_once(np.arcsin), "asin"),
    "Acos": UnaryFunction(FLOATS, _rounded_once(np.arccos), "acos"),
    "Atan": UnaryFunction(FLOATS, _rounded_once(np.arctan), "atan"),
    "Sinh": UnaryFunction(FLOATS, _rounded_once(np.sinh), "sinh"),
    "Cosh": UnaryFunction(FLOATS, _rounded_once(np.cosh), "cosh"),
    "Asinh": UnaryFunction(FLOATS, _rounded_once(np.arcsinh), "asinh"),
    "Acosh": UnaryFunction(FLOATS, _rounded_once(np.arccosh), "acosh"),
    "Atanh": UnaryFunction(FLOATS, _rounded_once(np.arctanh), "atanh"),
    "Tanh": UnaryFunction(FLOATS, _rounded_once(np.tanh), "tanh", ggml=_call("ggml_tanh")),
    "Erf": UnaryFunction(FLOATS, erf, "erf"),
    "Sigmoid": UnaryFunction(FLOATS, _rounded_once(_sigmoid), "(1 / (1 + exp{f}(-{0})))", ggml=_call("ggml_sigmoid")),
    "Relu": UnaryFunction(SIGNED, lambda x: np.maximum(x, 0), lambda k, x: x.maximum(0), ggml=_relu),
    "Silu": UnaryFunction(FLOATS, _rounded_once(_silu), "({0} / (1 + exp{f}(-{0})))", ggml=_call("ggml_silu")),
    "Floor": UnaryFunction(FLOATS, np.floor, "floor", ggml=_call("ggml_floor"), dims=lambda a: a),
    "Ceil": UnaryFunction(FLOATS, np.ceil, "ceil", ggml=_call("ggml_ceil"), dims=lambda a: a),
    # Half to even, as rint rounds; ggml_round rounds half away from zero.
    "Round": UnaryFunction(FLOATS, np.round, "rint", dims=lambda a: a),
    # ggml_sgn gives 0 for NaN.
    "Sign": UnaryFunction(NUMBERS, np.sign, lambda k, x: k.select(x > 0, 1, k.select(x < 0, -1, x)),
                          dims=lambda a: int(a > 0) - int(a < 0)),
    "Not": UnaryFunction(BOOLEANS, np.logical_not, lambda k, x: x.not_()),
    "BitwiseNot": UnaryFunction(INTEGERS, np.invert, lambda k, x: ~x),
    "IsNaN": UnaryFunction(FLOATS, np.isnan, lambda k, x: x.ne(x), gives=BOOL),
    # ggml_softplus is log(1 + exp(x)), which cancels for negative x.
    "Softplus": UnaryFunction(FLOATS, _rounded_once(_softplus), _softplus_loop),
    "Softsign": UnaryFunction(FLOATS, lambda x: x / (1 + np.abs(x)), "({0} / (1 + fabs{f}({0})))", ggml=_softsign),
    "HardSwish": UnaryFunction(
        FLOATS,
        lambda x: x * np.clip((x + 3) / 6, 0, 1),
        lambda k, x: x * ((x + 3) / 6).maximum(0).minimum(1),
        ggml=_call("ggml_hardswish"),
    ),
    "Mish": UnaryFunction(
        FLOATS,
        _rounded_once(lambda x: x * np.tanh(_softplus(x))),
        lambda k, x: x * k.call("tanh", _softplus_loop(k, x)),
    ),
    "Identity": UnaryFunction(ANYTHING | {STRING}, _same, lambda k, x: x, dims=lambda a: a),
}  # fmt: skip


def _equal(a: Any, b: Any) -> bool:
    """True if two sizes (or strings) are equal. Raises Undecidable if it depends on symbols."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return bool(a == b)
    difference = a - b
    low, high = lower_bound(difference), upper_bound(difference)
    if low == 0 == high:
        return True
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    raise Undecidable(f"whether {a} equals {b}")


def _divide_dims(a: Dim, b: Dim) -> Dim:
    """Integer division, truncated toward zero; a symbolic divisor is positive."""
    if isinstance(a, Expr) and isinstance(b, int) and b < 0:
        return -_divide_dims(a, -b)
    if isinstance(a, Expr) or isinstance(b, Expr):
        least = lower_bound(a)
        if (least is not None and least >= 0) or a % b == 0:
            return a // b
        return dim_max(a, 0) // b - dim_max(-a, 0) // b
    _reject_zero(np.asarray(b))
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _modulo_dims(a: Dim, b: Dim) -> Dim:
    if not isinstance(b, Expr):
        _reject_zero(np.asarray(b))
    return a % b


def _reject_zero(divisor: np.ndarray) -> None:
    if np.any(divisor == 0):
        raise InputError("an integer is divided by zero")


def _divide(a: np.ndarray, b: np.ndarray) -> Any:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    _reject_zero(b)
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _checked(function: Callable[..., Any]) -> Callable[[np.ndarray, np.ndarray], Any]:
    def compute(a: np.ndarray, b: np.ndarray) -> Any:
        if a.dtype.kind != "f":
            _reject_zero(b)
        return function(a, b)

    return compute


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a to the b, of a's dtype: an integer exactly (and wrapping) where the exponent is not negative, else by float64."""
    rounded = np.asarray(np.power(a.astype(np.float64), b.astype(np.float64))).astype(a.dtype)
    if "f" in a.dtype.kind + b.dtype.kind:
        return rounded
    return np.where(b < 0, rounded, np.power(a, np.maximum(b, 0).astype(a.dtype)))


def _power_loop(k: Kernel, a: Scalar, b: Scalar) -> Scalar:
    """The same as `_power`, in a kernel."""
    if a.dtype in INTEGERS and b.dtype in INTEGERS:
        small = (1 << 31) - 1
        exact = a ** k.cast(b.maximum(0).minimum(min(small, int(np.iinfo(b.dtype).max))), a.dtype)
        return k.select(b < 0, _float_power(k, a, b, F64), exact)
    wide = F64 if F64 in (a.dtype, b.dtype) or a.dtype in INTEGERS else F32
    return _float_power(k, a, b, wide)


def _float_power(k: Kernel, a: Scalar, b: Scalar, wide: np.dtype) -> Scalar:
    return k.cast(k.call("pow", k.cast(a, wide), k.cast(b, wide)), a.dtype)


def _prelu(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a > 0, a, a * b)  # as PyTorch and others do: of 0 and an infinite slope it makes NaN


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A shift by a negative number, or by all the bits or more, leaves 0."""
    bits = a.dtype.itemsize * 8
    return np.where((b >= 0) & (b < bits), np.left_shift(a, np.clip(b, 0, bits - 1)), 0).astype(a.dtype)


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A shift by a negative number, or by all the bits or more, leaves 0, or -1 of a negative number."""
    bits = a.dtype.itemsize * 8
    fill = np.where(a < 0, -1, 0).astype(a.dtype)
    return np.where((b >= 0) & (b < bits), np.right_shift(a, np.clip(b, 0, bits - 1)), fill)


def _calls(function: str) -> BinaryCall:
    return lambda b, x, y: b.binary(function, x, y)


def _divide_by_scalar(b: Builder, x: Tensor, c: float) -> Tensor | None:
    with np.errstate(all="ignore"):
        inverse = float(np.float32(1) / np.float32(c))
    normal = np.finfo(np.float32).tiny <= abs(inverse) < math.inf
    return b.scale(x, inverse) if normal else None


def _power_of_scalar(b: Builder, x: Tensor, c: float) -> Tensor | None:
    """The powers that are products, roots and reciprocals."""
    if c == 3.0:
        return _then(b.unary("ggml_sqr", x), lambda square: b.binary("ggml_mul", square, x))
    if c == 1.0:
        return x
    row = UNARY.get({2.0: "Sqr", 0.5: "Sqrt", -1.0: "Reciprocal"}.get(c, ""))
    return row.ggml(b, x) if row and row.ggml else None


def _add_scalar(b: Builder, x: Tensor, c: float) -> Tensor | None:
    return b.scale(x, 1.0, c)


def _larger(a: Any, b: Any) -> bool:
    return bool(a > b)


BINARY: dict[str, BinaryFunction] = {
    "Add": BinaryFunction(NUMBERS, np.add, lambda k, a, b: a + b, ggml=_calls("ggml_add"),
                          left=_add_scalar, right=_add_scalar, dims=lambda a, b: a + b, commutes=True),
    "Sub": BinaryFunction(NUMBERS, np.subtract, lambda k, a, b: a - b, ggml=_calls("ggml_sub"),
                          left=lambda b, x, c: b.scale(x, -1.0, c), right=lambda b, x, c: b.scale(x, 1.0, -c),
                          dims=lambda a, b: a - b),
    "Mul": BinaryFunction(NUMBERS, np.multiply, lambda k, a, b: a * b, ggml=_calls("ggml_mul"),
                          left=lambda b, x, c: b.scale(x, c), right=lambda b, x, c: b.scale(x, c),
                          dims=lambda a, b: a * b, commutes=True),
    "Div": BinaryFunction(NUMBERS, _divide, lambda k, a, b: a / b, ggml=_calls("ggml_div"),
                          left=_divided_by, right=_divide_by_scalar, dims=_divide_dims, divides=True),
    "Pow": BinaryFunction(NUMBERS, _power, _power_loop, right=_power_of_scalar, mixed=True),
    "Mod": BinaryFunction(NUMBERS, _checked(np.mod), lambda k, a, b: a % b, dims=_modulo_dims, divides=True),
    "Fmod": BinaryFunction(NUMBERS, _checked(np.fmod), lambda k, a, b: a.remainder(b), divides=True),
    "Min": BinaryFunction(NUMBERS, np.minimum, lambda k, a, b: a.minimum(b), dims=dim_min, commutes=True),
    "Max": BinaryFunction(NUMBERS, np.maximum, lambda k, a, b: a.maximum(b), dims=dim_max, commutes=True),
    "And": BinaryFunction(BOOLEANS, np.logical_and, lambda k, a, b: a.and_(b), commutes=True),
    "Or": BinaryFunction(BOOLEANS, np.logical_or, lambda k, a, b: a.or_(b), commutes=True),
    "Xor": BinaryFunction(BOOLEANS, np.logical_xor, lambda k, a, b: a.ne(b), commutes=True),
    "Equal": BinaryFunction(ANYTHING | {STRING}, np.equal, lambda k, a, b: a.eq(b), dims=_equal, gives=BOOL, commutes=True),
    "Less": BinaryFunction(NUMBERS, np.less, lambda k, a, b: a < b, dims=lambda a, b: _larger(b, a), gives=BOOL),
    "LessOrEqual": BinaryFunction(NUMBERS, np.less_equal, lambda k, a, b: a <= b,
                                  dims=lambda a, b: not _larger(a, b), gives=BOOL),
    "Greater": BinaryFunction(NUMBERS, np.greater, lambda k, a, b: a > b, dims=_larger, gives=BOOL),
    "GreaterOrEqual": BinaryFunction(NUMBERS, np.greater_equal, lambda k, a, b: a >= b,
                                     dims=lambda a, b: not _larger(b, a), gives=BOOL),
    "BitwiseAnd": BinaryFunction(INTEGERS, np.bitwise_and, lambda k, a, b: a & b),
    "BitwiseOr": BinaryFunction(INTEGERS, np.bitwise_or, lambda k, a, b: a | b),
    "BitwiseXor": BinaryFunction(INTEGERS, np.bitwise_xor, lambda k, a, b: a ^ b),
    "BitShiftLeft": BinaryFunction(INTEGERS, _shift_left, lambda k, a, b: k.select(b < 0, 0, a << b)),
    "BitShiftRight": BinaryFunction(INTEGERS, _shift_right,
                                    lambda k, a, b: a >> k.select(b < 0, 8 * a.dtype.itemsize - 1, b)),
    "PRelu": BinaryFunction(SIGNED, _prelu, lambda k, a, b: k.select(a > 0, a, a * b, both=True)),
}  # fmt: skip
