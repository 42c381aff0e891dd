"""Activations, times another tensor: what gates it."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.composite import Args, Expansion, composite, other_operand, raises, tail
from graphc.targets.ggml.program.rules import require
from graphc.targets.ggml.program.tensor import Tensor


@composite()
def relu(call: Expansion, x: Tensor) -> Tensor:
    """What is negative becomes 0; NaN stays."""
    return call("ggml_relu", x)


@composite()
def gelu(call: Expansion, x: Tensor, other: Tensor | None) -> Tensor:
    """GELU by the error function, times another tensor."""
    return times(call, call("ggml_gelu_erf", x), other)


@composite()
def silu(call: Expansion, x: Tensor, other: Tensor | None) -> Tensor:
    """`x * sigmoid(x)`, times another tensor."""
    return times(call, call("ggml_silu", x), other)


@composite()
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


@raises(relu, "ggml_relu")
def _relu(x: Tensor) -> Args:
    return (x,)


@raises(gelu, "ggml_gelu_erf")
@raises(silu, "ggml_silu")
def _alone(x: Tensor) -> Args:
    return x, None


@tail(gelu, "ggml_mul")
@tail(silu, "ggml_mul")
@tail(gate, "ggml_mul")
def _gated(args: Args, result: Tensor, behind: Args) -> Args | None:
    x, before, *settings = args
    other = other_operand(behind, result)
    return (x, other, *settings) if before is None and other is not None and other.ne == result.ne else None
