"""What templates of `Kernel.call`, and operators of floats, are made of in SPIR-V.

GLSL's own functions are used where they are exact, and for exponentials, where devices have an instruction (3 + 2 |x| units in
the last place); for the rest they promise little (2^-11 for a sine), so it is the dialect's text of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from graphc.ir.types import BOOL, F32, F64, FLOATS
from graphc.kernels.gpu.evaluate import check_template, parsed
from graphc.kernels.gpu.render.c_functions import NotUnderstood, applied
from graphc.kernels.gpu.render.c_numbers import I32, NO_INPUTS
from graphc.kernels.scalar import Scalar, constant, make

NATIVE: dict[str, tuple[int | str, bool]] = {
    "rint": (2, True), "trunc": (3, True), "fabs": (4, True), "floor": (8, True), "ceil": (9, True), "sqrt": (31, True),
    "exp": (27, False), "exp2": (29, False), "fast_exp": (27, False), "fast_exp2": (29, False), "fma": (50, True),
    "isnan": ("IsNan", True), "isinf": ("IsInf", True), "bits_of": ("Bitcast", False), "float_of": ("Bitcast", False),
}  # fmt: skip
"""Functions that devices have: a number among GLSL's or an instruction of SPIR-V, and whether there is one of float64."""


def native(name: str, *operands: Scalar) -> Scalar:
    """A function that devices have."""
    return make("apply", BOOL if name.startswith("is") else operands[0].dtype, operands, name)


def rounded_once(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """a b + c by way of float64: but for rare ties what an instruction gives that rounds once."""
    wide = [NO_INPUTS.cast(each, F64) for each in (a, b, c)]
    return NO_INPUTS.cast(wide[0] * wide[1] + wide[2], F32)


def fmod(a: Scalar, b: Scalar) -> Scalar:
    """The rest of a division toward zero: each step leaves less than 2^-22 of what there was, until it is below the divisor."""
    dividend, divisor = native("fabs", a), native("fabs", b)
    rest = dividend
    for _ in range(12):
        rest = native("fma", -native("trunc", rest / divisor), divisor, rest)
    rest = NO_INPUTS.select(rest < 0, rest + divisor, rest)
    rest = NO_INPUTS.select(rest >= divisor, rest - divisor, rest)
    rest = NO_INPUTS.select(divisor.eq(float("inf")), dividend, rest)
    rest = NO_INPUTS.select(dividend.eq(float("inf")), constant(float("nan"), a.dtype), rest)
    return applied("copysignf", [rest, a])


def floor_divided(a: Scalar, b: Scalar) -> Scalar:
    """A quotient rounded down, as NumPy computes it: from the rest, so that both belong together."""
    rest = fmod(a, b)
    quotient = (a - rest) / b
    quotient = NO_INPUTS.select(is_apart(rest, b), quotient - 1.0, quotient)
    whole = native("floor", quotient)
    whole = NO_INPUTS.select(quotient - whole > 0.5, whole + 1.0, whole)
    return NO_INPUTS.select(b.eq(0.0), a / b, whole)


def modulo(a: Scalar, b: Scalar) -> Scalar:
    """The rest of a division that rounds down: it has the sign of the divisor."""
    rest = fmod(a, b)
    found = NO_INPUTS.select(is_apart(rest, b), rest + b, rest)
    return NO_INPUTS.select(rest.eq(0.0), applied("copysignf", [rest, b]), found)


def is_apart(rest: Scalar, divisor: Scalar) -> Scalar:
    """True if there is a rest, on the other side of 0 than the divisor."""
    return rest.ne(0.0).and_((rest < 0).ne(divisor < 0))


def chosen(greater: bool) -> Callable[[Scalar, Scalar], Scalar]:
    """fmax or fmin: what is no number does not count."""

    def one(a: Scalar, b: Scalar) -> Scalar:
        found = a.maximum(b) if greater else a.minimum(b)
        found = NO_INPUTS.select(native("isnan", b), a, found)
        return NO_INPUTS.select(native("isnan", a), b, found)

    return one


def rounded(x: Scalar) -> Scalar:
    """To the nearest whole number, halves away from 0."""
    return native("trunc", x + applied("copysignf", [constant(0.5, x.dtype), x]))


FUNCTIONS: dict[str, Callable[..., Scalar]] = {
    "fmod": fmod, "fmax": chosen(True), "fmin": chosen(False), "round": rounded,
    "int32_t": lambda x: NO_INPUTS.cast(x, I32), "fast_reciprocal": lambda x: constant(1.0, x.dtype) / x,
}  # fmt: skip
OPERATORS: dict[str, Callable[..., Scalar]] = {
    "rem": lambda a, b: on_floats("fmod", [a, b]),
    "%": modulo,
    "//": floor_divided,
    "**": lambda a, b: on_floats("pow", [a, b]),
}


def on_floats(name: str, operands: list[Scalar]) -> Scalar:
    """A function of C's."""
    if name in NATIVE:
        return native(name, *operands)
    if name not in ("fmax", "fmin") and any(each.dtype == F64 for each in operands):
        raise NotUnderstood(f"Vulkan does not compute {name} in float64")
    return FUNCTIONS[name](*operands) if name in FUNCTIONS else applied(f"{name}f", operands)


def expanded(node: Scalar) -> Scalar:
    """A node of kind `apply` as what SPIR-V has. Raises KernelFault for what it has not."""
    check_template(str(node.data))
    wide = F64 if F64 in (node.dtype, *(each.dtype for each in node.args)) else F32
    operands = [NO_INPUTS.cast(each, wide) if each.dtype in FLOATS else each for each in node.args]

    def made(tree: ast.expr) -> Scalar:
        match tree:
            case ast.Name(id=name):
                return operands[int(name.removeprefix("a"))]
            case ast.Constant(value=int() | float() as number):
                return constant(number, wide)
            case ast.UnaryOp(operand=operand):
                return -made(operand)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = made(left), made(right)
                return {ast.Add: a.__add__, ast.Sub: a.__sub__, ast.Mult: a.__mul__, ast.Div: a.__truediv__}[type(op)](
                    b
                )
            case ast.Call(func=ast.Name(id=name), args=args):
                return on_floats(name, [made(each) for each in args])
        raise NotUnderstood(f"{ast.unparse(tree)} is more C than is understood here")

    found = made(parsed(str(node.data)))
    return found if found.dtype == node.dtype or node.dtype.itemsize == 2 else NO_INPUTS.cast(found, node.dtype)
