"""A U-Net that takes what FreeU does to its decoder, beside what ControlNets and T2I-Adapters add to it.

Si, Huang, Jiang, Liu, FreeU: Free Lunch in Diffusion U-Net (2023). Where a block of the decoder takes in what comes from below
(the backbone) and what comes from the encoder (the skip), half of the backbone's channels are scaled, and of the skip the lowest
frequencies: four numbers of its Fourier transform. These are sums over a few waves, which are inputs (`waves`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from examples.image_engines.controls import (
    controlled,
    controlled_forward,
    controlled_inputs,
    halved,
    layer,
    skips,
)
from examples.image_engines.networks import EACH, Config, Inputs, Kind, example, unet

NUMBERS = 3
"""For each block of the decoder: what is added to 1 as the factor of the backbone and of the skip's lowest frequencies, and 1 if
the backbone is scaled more where it is stronger, as FreeU's second version has it."""

WAVES = 7
"""A constant, and a cosine and a sine for each of three other frequencies; divided by the root of the number of places."""

SMALLEST = 1e-20
"""Where the backbone's mean is the same everywhere, it is not scaled."""


def free(config: Config) -> Kind:
    """Such a U-Net. At the usual numbers, which are 0, it has the bits of one without FreeU."""
    plain = controlled(config)
    levels = range(len(config["block_out_channels"]))
    axes = {f"waves_{level}": {axis - 1: name for axis, name in halved(level).items() if axis} for level in levels}
    return Kind(freed, free_inputs, free_forward, plain.outputs, {**plain.axes, "free": EACH, **axes})


def free_inputs(config: Config) -> Inputs:
    """A controlled U-Net's, FreeU's numbers for each block, and the waves of each level."""
    widths = config["block_out_channels"]
    found = {**controlled_inputs(config), "free": example(2, len(skips(config)) - 1, NUMBERS)}
    return found | {f"waves_{level}": layer(WAVES, level)[0] for level in range(len(widths))}


def free_forward(module: Any, *inputs: Tensor) -> Tensor:
    """What it predicts."""
    levels = len(module.config.block_out_channels)
    *others, module.__dict__["free"] = inputs[:-levels]
    module.__dict__["waves"] = inputs[-levels:]
    return controlled_forward(module, *others)


def freed(config: Config) -> nn.Module:
    """diffusers' U-Net, each of whose decoder blocks scales what it takes in."""
    module = unet(config)
    widths = [width for width, _ in skips(config)[-2::-1]]
    blocks = [(level, block) for level, each in enumerate(reversed(module.up_blocks)) for block in each.resnets]
    blocks.sort(key=lambda each: -each[0])
    for number, ((level, block), width) in enumerate(zip(blocks, widths, strict=True)):
        block.__dict__["forward"] = _scaling(module, block.forward, number, level, width)
    return module


def _scaling(module: Any, own: Callable[..., Tensor], number: int, level: int, width: int) -> Callable[..., Tensor]:
    """A block's forward, of whose input so many channels are the skip's."""

    def forward(joined: Tensor, *others: Tensor) -> Tensor:
        backbone, low, local = module.free[:, number, :, None, None, None].unbind(1)
        hidden, skip = joined.split([joined.shape[1] - width, width], dim=1)
        half = hidden.shape[1] // 2
        strong, rest = hidden.split([half, hidden.shape[1] - half], dim=1)
        strong = strong * (1 + backbone * (1 - local + local * strength(hidden)))
        return own(torch.cat([strong, rest, skip + low * lowest(skip, module.waves[level])], dim=1), *others)

    return forward


def strength(hidden: Tensor) -> Tensor:
    """The mean of all channels at each place, from 0 where it is lowest to 1 where it is highest."""
    mean = hidden.mean(1, keepdim=True)
    least, most = mean.amin((2, 3), keepdim=True), mean.amax((2, 3), keepdim=True)
    return (mean - least) / (most - least).clamp(min=SMALLEST)


def lowest(skip: Tensor, waves: Tensor) -> Tensor:
    """The skip's lowest frequencies alone, by its sums over waves [7, height, width]."""
    rows = waves.flatten(1)
    return (skip.flatten(2) @ rows.T @ rows).unflatten(2, skip.shape[2:])
