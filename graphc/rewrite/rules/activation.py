"""Rules that raise the spellings of the exporters to one operator."""

from __future__ import annotations

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.interp import evaluate
from graphc.ops.activations import Gelu
from graphc.ops.base import Emit
from graphc.ops.pointwise import Unary
from graphc.rewrite.engine import Refusal, rule


@rule("Mul(x, Sigmoid(x))")
def silu(emit: Emit, x: Value) -> Value:
    """x * sigmoid(x)."""
    return emit(Unary("Silu"), x)


@rule(
    "Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1)), 0.5)",
    "Mul(Mul(x, 0.5), Add(Erf(Div(x, 1.4142135)), 1))",
    "Mul(x, Mul(Add(Erf(Div(x, 1.4142135)), 1), 0.5))",
    "Mul(Mul(x, Add(Erf(Mul(x, 0.70710678)), 1)), 0.5)",
    "Mul(Mul(x, 0.5), Add(Erf(Mul(x, 0.70710678)), 1))",
    "Mul(x, Mul(Add(Erf(Mul(x, 0.70710678)), 1), 0.5))",
)
def gelu(emit: Emit, x: Value) -> Value:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    return emit(Gelu("none"), x)


@rule("Where(IsNaN(s := Softmax(Add(x, mask))), 0, s)", "Where(IsNaN(s := Softmax(x)), 0, s)")
def softmax_guard(emit: Emit, x: Value, s: Node, mask: Value | None = None) -> Value | Refusal:
    """A guard against rows that a mask excludes wholly does nothing where no row is."""
    summed = s.inputs[0].producer
    if mask is None and summed is not None and summed.op.name in ("Add", "Where"):
        return Refusal("a mask may be among the summands")
    if mask is not None and not mask.static:
        return Refusal("the mask is computed when the model is run")
    if mask is not None and not np.isfinite(np.asarray(evaluate(mask), np.float32)).any(axis=-1).all():
        return Refusal("the mask excludes a whole row")
    return s.output


RULES = [silu, gelu, softmax_guard]
