"""Autoencoders: an engine for each half, with its convolution on the latent if it has one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from examples.image_engines.networks import PICTURE, Config, Inputs, Kind, example, made

HALVES = {"encoder": ("encoder", "quant_conv"), "decoder": ("decoder", "post_quant_conv")}
"""What of an autoencoder is whose."""


def half_of(build: Callable[[Config], Any], half: str, config: Config) -> nn.Module:
    """An autoencoder without the other half."""
    module = build(config)
    (other,) = HALVES.keys() - {half}
    for each in HALVES[other]:
        if hasattr(module, each):
            delattr(module, each)
    return module


def halves(
    build: Callable[[Config], Any],
    encode: Callable[..., Any],
    decode: Callable[..., Any],
    sides: tuple[int, int] = (24, 40),
    channels: Callable[[Config], int] = lambda config: config["latent_channels"],
    encoded: tuple[str, ...] = ("mean", "log_variance"),
) -> tuple[Kind, Kind]:
    """The encoder and the decoder. `sides` are those of an example's two pictures, `channels` those of its latents."""

    def pictures(config: Config) -> Inputs:
        return {"image": example(2, 3, *sides)}

    def latents(config: Config) -> Inputs:
        return {"latent": example(2, channels(config), 5, 3)}

    encoder = Kind(partial(half_of, build, "encoder"), pictures, encode, encoded, {"image": PICTURE})
    return encoder, Kind(partial(half_of, build, "decoder"), latents, decode, ("image",), {"latent": PICTURE})


def encode(module: Any, image: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the logarithm of the variance."""
    mean, variance = module._encode(image).chunk(2, dim=1)
    return mean, variance


def decode(module: Any, latent: Tensor) -> Tensor:
    """The picture, about -1 to 1."""
    return module._decode(latent, return_dict=False)[0]


VAE_ENCODER, VAE_DECODER = halves(partial(made, "diffusers.AutoencoderKL"), encode, decode)
