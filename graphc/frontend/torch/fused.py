"""What PyTorch's modules call in evaluation as one operator that has no form in ONNX, as the operators that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

MASK = 18
"""Where an encoder layer takes its mask, of several kinds."""


def encoder_layer(
    x: torch.Tensor,
    width: int,
    heads: int,
    into: torch.Tensor,
    into_bias: torch.Tensor,
    out: torch.Tensor,
    out_bias: torch.Tensor,
    gelu: bool,
    norm_first: bool,
    eps: float,
    *parameters: Any,
) -> torch.Tensor:
    """`torch.nn.TransformerEncoderLayer` without a mask, for x [batch, length, width]. `parameters` are weights and biases of
    both normalizations and both layers that follow attention."""
    norm, norm_bias, deep, deep_bias, wide, wide_bias, narrow, narrow_bias = parameters[:8]

    def attention(x: torch.Tensor) -> torch.Tensor:
        parts = F.linear(x, into, into_bias)
        parts = parts.reshape(x.shape[0], x.shape[1], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return F.linear(found.transpose(1, 2).flatten(2), out, out_bias)

    def layers(x: torch.Tensor) -> torch.Tensor:
        inner = F.linear(x, wide, wide_bias)
        return F.linear(F.gelu(inner) if gelu else F.relu(inner), narrow, narrow_bias)

    if norm_first:
        x = x + attention(F.layer_norm(x, (width,), norm, norm_bias, eps))
        return x + layers(F.layer_norm(x, (width,), deep, deep_bias, eps))
    x = F.layer_norm(x + attention(x), (width,), norm, norm_bias, eps)
    return F.layer_norm(x + layers(x), (width,), deep, deep_bias, eps)


FUSED: Mapping[Any, Callable[..., torch.Tensor]] = {torch._transformer_encoder_layer_fwd: encoder_layer}
"""Functions of PyTorch's, and what stands for each."""


def take_fused_apart(graph: fx.Graph) -> None:
    """Have other functions called in the place of such, where they do the same."""
    for node in graph.nodes:
        if node.target in FUSED and not any(each is not None for each in node.args[MASK:]):
            node.target, node.args = FUSED[node.target], node.args[:MASK]
