"""Activations, times another tensor: what gates it. Products and convolutions do those by themselves on their way out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from graphc.ir.graph import type_name
from graphc.ir.types import F32
from graphc.targets.ggml.program.composites.composite import COMPOSITES, PREFIX, ActivationOrNone, Expansion, composite
from graphc.targets.ggml.program.rules import require
from graphc.targets.ggml.program.tensor import Activation, Tensor

if TYPE_CHECKING:
    from graphc.kernels.use import KernelUse
    from graphc.targets.ggml.program.program import Call


GATED = {"other": "ggml_mul"}


@composite("ggml_relu")
def relu(call: Expansion, x: Tensor) -> Tensor:
    """What is negative becomes 0; NaN stays."""
    return call("ggml_relu", x)


@composite("ggml_sigmoid")
def sigmoid(call: Expansion, x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`."""
    return call("ggml_sigmoid", x)


@composite("ggml_hardswish")
def hard_swish(call: Expansion, x: Tensor) -> Tensor:
    """`x * min(max((x + 3) / 6, 0), 1)`."""
    return call("ggml_hardswish", x)


@composite("ggml_tanh")
def tanh(call: Expansion, x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return call("ggml_tanh", x)


@composite("ggml_elu")
def elu(call: Expansion, x: Tensor) -> Tensor:
    """x, or `exp(x) - 1` where it is negative."""
    return call("ggml_elu", x)


@composite("ggml_exp")
def exp(call: Expansion, x: Tensor) -> Tensor:
    """The exponential."""
    return call("ggml_exp", x)


@composite("ggml_sin")
def sin(call: Expansion, x: Tensor) -> Tensor:
    """The sine."""
    return call("ggml_sin", x)


@composite("ggml_cos")
def cos(call: Expansion, x: Tensor) -> Tensor:
    """The cosine."""
    return call("ggml_cos", x)


@composite("ggml_log")
def log(call: Expansion, x: Tensor) -> Tensor:
    """The natural logarithm."""
    return call("ggml_log", x)


@composite("ggml_sqrt")
def sqrt(call: Expansion, x: Tensor) -> Tensor:
    """The square root."""
    return call("ggml_sqrt", x)


@composite("ggml_gelu_erf", behind=GATED)
def gelu(call: Expansion, x: Tensor, other: Tensor | None) -> Tensor:
    """GELU by the error function, times another tensor."""
    return times(call, call("ggml_gelu_erf", x), other)


@composite("ggml_silu", behind=GATED)
def silu(call: Expansion, x: Tensor, other: Tensor | None) -> Tensor:
    """`x * sigmoid(x)`, times another tensor."""
    return times(call, call("ggml_silu", x), other)


@composite(behind=GATED)
def gate(call: Expansion, x: Tensor, other: Tensor | None, linear: float, cubic: float) -> Tensor:
    """`x * sigmoid(linear * x + cubic * x^3)`, times another tensor: two approximations of GELU."""
    if cubic:
        bent = call("ggml_mul", call("ggml_scale_bias", call("ggml_sqr", x), cubic, linear), x)
    else:
        bent = call("ggml_scale", x, linear)
    return times(call, call("ggml_mul", call("ggml_sigmoid", bent), x), other)


def times(call: Expansion, x: Tensor, other: Tensor | None) -> Tensor:
    """x times another tensor of its sizes, if there is one."""
    require(other is None or other.ne == x.ne, "takes two tensors of the same sizes")
    return x if other is None else call("ggml_mul", x, other)


ACTIVATIONS = frozenset({relu, sigmoid, hard_swish, tanh, elu, exp, sin, cos, gelu, silu, gate})
"""The composites that products and convolutions do by themselves, if nothing is multiplied with them."""

KERNELS: Mapping[str, Callable[[Any], Activation]] = {
    "clip": lambda op: Activation("clip", (-inf if op.low is None else op.low, inf if op.high is None else op.high)),
    "leakyrelu": lambda op: Activation("leaky_relu", (op.alpha,)),
    "mish": lambda op: Activation("mish"),
}
"""The operators that are an activation where a kernel computes them, by their `type_name`."""


def activation_of(call: Call, kernels: Sequence[KernelUse]) -> Activation | None:
    """The activation that a call of a program with these kernels is; None if it is none."""
    if call.kernel >= 0:
        use = kernels[call.kernel]
        known = KERNELS.get(type_name(use.op))
        return replace(known(use.op), kernel=call.kernel) if known and use.dtype == F32 else None
    if call.function not in ACTIVATIONS or any(isinstance(arg, Tensor) for arg in call.args[1:]):
        return None
    return Activation(call.function.removeprefix(PREFIX), tuple(arg for arg in call.args if isinstance(arg, float)))


def told(activation: ActivationOrNone) -> Activation | None:
    """The activation that a composite is told of; None if it is none."""
    if isinstance(activation, bool):
        return Activation("relu") if activation else None
    return activation


def activated(call: Expansion, x: Tensor, activation: ActivationOrNone) -> Tensor:
    """What an activation makes of x."""
    found = told(activation)
    if found is None:
        return x
    if found.kernel >= 0:
        return call.by_kernel(found.kernel, x)
    composite = COMPOSITES[PREFIX + found.name]
    nothing = [None] * ("other" in composite.parameters)
    return composite.expand(call, x, *nothing, *found.numbers)
