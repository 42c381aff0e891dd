"""Rules that raise the spellings of the exporters to one operator."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import decided, read_numbers
from graphc.ops.activations import Gelu, Swish
from graphc.ops.base import Emit
from graphc.ops.pointwise import Unary
from graphc.ops.reduce import Reduce
from graphc.ops.softmax import Softmax
from graphc.rewrite.engine import Refusal, rule


@rule("Mul(x, Sigmoid(x))", "Div(x, Add(Exp(Neg(x)), 1))")
def silu(emit: Emit, x: Value) -> Value:
    """x * sigmoid(x)."""
    return emit(Unary("Silu"), x)


@rule("Mul(x, Sigmoid(Mul(x, factor)))")
def swish(emit: Emit, x: Value, factor: Value) -> Value | Refusal:
    """x * sigmoid(factor * x)."""
    if not factor.is_constant or factor.type.size != 1 or factor.type.rank > x.type.rank:
        return Refusal("the factor is not a number")
    return emit(Swish(float(read_numbers(factor).item())), x)


@rule("Reciprocal(Add(Exp(Neg(x)), 1))")
def sigmoid(emit: Emit, x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return emit(Unary("Sigmoid"), x)


@rule("Mul(x, Tanh(Softplus(x)))")
def mish(emit: Emit, x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return emit(Unary("Mish"), x)


def halved(*bends: str) -> list[str]:
    """Patterns of x / 2 * (1 + bend)."""
    forms = ("Mul(Mul(x, Add({}, 1)), 0.5)", "Mul(Mul(x, 0.5), Add({}, 1))", "Mul(x, Mul(Add({}, 1), 0.5))")
    return [form.format(bend) for bend in bends for form in forms]


@rule(*halved("Erf(Div(x, 1.4142135))", "Erf(Mul(x, 0.70710678))"))
def gelu(emit: Emit, x: Value) -> Value:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    return emit(Gelu("none"), x)


@rule(
    *halved(
        "Tanh(Mul(Add(x, Mul(Mul(x, Sqr(x)), 0.044715)), 0.79788456))",
        "Tanh(Mul(Mul(x, 0.79788456), Add(Mul(Mul(x, 0.044715), x), 1)))",
        "Tanh(Mul(Mul(x, 0.79788456), Add(Mul(Sqr(x), 0.044715), 1)))",
        "Tanh(Mul(x, Add(Mul(Sqr(x), 0.035677408), 0.79788456)))",
    )
)
def gelu_tanh(emit: Emit, x: Value) -> Value:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    return emit(Gelu("tanh"), x)


@rule(
    "Div(Exp(Sub(x, top := ReduceMax(x))), total := ReduceSum(Exp(Sub(x, top))))",
    "Div(Exp(x), total := ReduceSum(Exp(x)))",
)
def softmax(emit: Emit, x: Value, total: Node, top: Node | None = None) -> Value | Refusal:
    """Exponentials divided by their sum along an axis, whatever was subtracted before."""
    assert isinstance(total.op, Reduce)
    if len(total.op.axes) != 1 or not total.op.keepdims:
        return Refusal("the sum is not along one axis")
    if top is not None and (not isinstance(top.op, Reduce) or not top.op.keepdims or top.op.axes != total.op.axes):
        return Refusal("the largest is not along the same axis")
    return emit(Softmax(total.op.axes[0]), x)


@rule("Where(IsNaN(s := Softmax(Add(x, mask))), 0, s)", "Where(IsNaN(s := Softmax(x)), 0, s)")
def softmax_guard(emit: Emit, x: Value, s: Node, mask: Value | None = None) -> Value | Refusal:
    """A guard against rows that a mask excludes wholly does nothing where no row is."""
    summed = s.inputs[0].producer
    if mask is None and summed is not None and summed.op.name in ("Add", "Where"):
        return Refusal("a mask may be among the summands")
    if mask is not None and _finite_choice(mask):
        return s.output
    if mask is not None and not mask.static:
        return Refusal("the mask is computed when the model is run")
    if mask is not None and not decided(mask, _no_row_excluded):
        return Refusal("the mask excludes a whole row")
    return s.output


def _finite_choice(mask: Value) -> bool:
    """True if a mask chooses between finite numbers, so that it excludes no row wholly."""
    node = mask.producer
    choices = node.inputs[1:] if node is not None and node.op.name == "Where" else []
    return bool(choices) and all(value.is_constant and decided(value, _all_finite) for value in choices)


def _all_finite(mask: np.ndarray) -> bool:
    return bool(np.isfinite(np.asarray(mask, np.float32)).all())


def _no_row_excluded(mask: np.ndarray) -> bool:
    return bool(np.isfinite(np.asarray(mask, np.float32)).any(axis=-1).all())


RULES = {"raise": [silu, swish, sigmoid, mish, gelu, gelu_tanh, softmax, softmax_guard]}
