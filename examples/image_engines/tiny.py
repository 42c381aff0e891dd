"""Tiny autoencoders, which know the latents of others: TAESD, TAEF2 for Flux.2, and TAEW2.1 for Wan 2.1 and Qwen-Image.

Source: madebyollin's taesd and taehv, whose files number their layers as it is done here. TAESD is diffusers', which leaves out
the decoder's first layer, for it has no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate, relu

from examples.image_engines.autoencoders import halves
from examples.image_engines.networks import Config, made

NORMS = 4
"""Groups of TAEF2's norms, and how many times wider they are than what is around them."""


def pooled(config: Config) -> nn.Module:
    """TAEF2: TAESD whose three blocks beside the latent look at the whole picture first, by a norm over all of it."""
    module = made("diffusers.AutoencoderTiny", config)
    for block in (*module.encoder.layers[-4:-1], *module.decoder.layers[2:5]):
        width = block.conv[0].in_channels
        wide = NORMS * width
        into, out = (nn.Conv2d(*sizes, 1, bias=False) for sizes in ((width, wide), (wide, width)))
        block.pool = nn.Sequential(into, nn.GroupNorm(NORMS, wide), nn.ReLU(), out)
        block.__dict__["forward"] = partial(_after_a_look, block)
    return module


def _after_a_look(block: Any, x: Tensor) -> Tensor:
    return type(block).forward(block, x + block.pool(x))


def convolution(inputs: int, outputs: int, **settings: Any) -> nn.Conv2d:
    """Of 3 x 3 pixels, which leaves the picture as large as it is."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, **settings)


class Remembering(nn.Module):
    """A block that sees the frame before its own too, of which the first frame has none: that is zeros."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = (convolution(2 * width, width), convolution(width, width), convolution(width, width))
        self.conv = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])

    def forward(self, frame: Tensor, before: Tensor | None) -> Tensor:
        """The frame, changed."""
        first: Any = self.conv[0]
        if before is None:
            found = conv2d(frame, first.weight[:, : frame.shape[1]], first.bias, padding=1)
        else:
            found = first(torch.cat([frame, before], 1))
        return relu(self.conv[1:](found) + frame)


class Frames(nn.Module):
    """What makes one frame of several, or several of one: a convolution of 1 x 1."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)


class Fewer(Frames):
    """One frame of so many."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__(count * width, width)
        self.count = count

    def forward(self, frames: Sequence[Tensor]) -> list[Tensor]:
        """The frames that there are then."""
        firsts = range(0, len(frames), self.count)
        return [self.conv(torch.cat(list(frames[first : first + self.count]), 1)) for first in firsts]


class More(Frames):
    """So many frames of one, each twice as large. Each pixel is computed before it becomes four, which makes no difference."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__(width, count * width)
        self.count = count

    def forward(self, frames: Sequence[Tensor]) -> list[Tensor]:
        """The frames that there are then."""
        parts = self.conv.weight.chunk(self.count)
        return [interpolate(conv2d(frame, part), scale_factor=2.0) for frame in frames for part in parts]


class Video(nn.Module):
    """TAEW2.1, an autoencoder of videos; four frames are one latent."""

    def __init__(
        self, latent_channels: int, widths: Sequence[int] = (256, 128, 64, 64), fewer: Sequence[int] = (2, 2, 1)
    ) -> None:
        super().__init__()
        last = widths[-1]
        encoder: list[nn.Module] = [convolution(3, last), nn.ReLU()]
        for count in fewer:
            encoder += [Fewer(last, count), convolution(last, last, stride=2, bias=False)]
            encoder += [Remembering(last) for _ in range(3)]
        decoder: list[nn.Module] = [nn.Identity(), convolution(latent_channels, widths[0]), nn.ReLU()]
        for (width, next_width), count in zip(pairwise(widths), reversed(fewer), strict=True):
            decoder += [Remembering(width) for _ in range(3)]
            decoder += [nn.Identity(), More(width, count), convolution(width, next_width, bias=False)]
        self.encoder = nn.Sequential(*encoder, convolution(last, latent_channels))
        self.decoder = nn.Sequential(*decoder, nn.ReLU(), convolution(last, 3))


def last_frame(layers: nn.Sequential, frames: Sequence[Tensor]) -> Tensor:
    """The last of the frames that layers make of these."""
    for layer in layers:
        if isinstance(layer, Remembering):
            frames = [layer(frame, before) for before, frame in pairwise([None, *frames])]
        elif isinstance(layer, Frames):
            frames = layer(frames)
        else:
            frames = [layer(frame) for frame in frames]
    return frames[-1]


def video(config: Config) -> nn.Module:
    """TAEW2.1."""
    return Video(**config)


def encode_frame(module: Any, image: Tensor) -> Tensor:
    """The latent of four frames that are all this picture."""
    return last_frame(module.encoder, [image / 2 + 0.5] * 4)


def decode_frame(module: Any, latent: Tensor) -> Tensor:
    """The last of the four frames of a latent, about -1 to 1: those before it lie before the video's beginning."""
    return last_frame(module.decoder, [3 * torch.tanh(latent / 3)]) * 2 - 1


tiny = partial(halves, encoded=("latent",))
Forward = Callable[[Any, Tensor], Tensor]
OF_DIFFUSERS: tuple[Forward, Forward] = (lambda module, x: module.encoder(x), lambda module, x: module.decoder(x))
TAESD_ENCODER, TAESD_DECODER = tiny(partial(made, "diffusers.AutoencoderTiny"), *OF_DIFFUSERS)
TAEF2_ENCODER, TAEF2_DECODER = tiny(pooled, *OF_DIFFUSERS)
TAEW_ENCODER, TAEW_DECODER = tiny(video, encode_frame, decode_frame)
