"""Flux.2: its transformer, whose blocks share what the time makes of them, and its autoencoder, whose latent is packed."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from examples.image_engines.autoencoders import halves
from examples.image_engines.networks import AXES, Config, Inputs, Kind, made, patch_inputs


def flux2_inputs(config: Config) -> Inputs:
    """Two images of patches, and words, with the places of both on four axes."""
    return patch_inputs(config["in_channels"], config["joint_attention_dim"], axes=4)


def flux2_forward(
    module: Any, patches: Tensor, time: Tensor, words: Tensor, places: Tensor, word_places: Tensor
) -> Tensor:
    """What the transformer predicts for each patch."""
    return module.call(
        hidden_states=patches, timestep=time, encoder_hidden_states=words, img_ids=places, txt_ids=word_places,
        return_dict=False,
    )[0]  # fmt: skip


FLUX2 = Kind(partial(made, "diffusers.Flux2Transformer2DModel"), flux2_inputs, flux2_forward, ("prediction",), AXES)


class Statistics(nn.Module):
    """The mean and the variance of each channel of packed latents, as numbers of the checkpoint."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.running_mean = nn.Parameter(torch.zeros(channels))
        self.running_var = nn.Parameter(torch.ones(channels))


def autoencoder(config: Config) -> nn.Module:
    """diffusers' autoencoder, with these numbers as parameters."""
    module = made("diffusers.AutoencoderKLFlux2", config)
    module.bn = Statistics(4 * config["latent_channels"])
    return module


def packed(latent: Tensor) -> Tensor:
    """Squares of 2 x 2 as channels: a convolution that chooses, whose sizes are known to be halves."""
    channels = latent.shape[1]
    chosen = torch.eye(4).reshape(4, 1, 2, 2).repeat(channels, 1, 1, 1)
    return conv2d(latent, chosen, stride=2, groups=channels)


def unpacked(latent: Tensor) -> Tensor:
    """Four channels as squares of 2 x 2."""
    batch, channels, height, width = latent.shape
    squares = latent.reshape(batch, channels // 4, 2, 2, height, width).permute(0, 1, 4, 2, 5, 3)
    return squares.reshape(batch, channels // 4, 2 * height, 2 * width)


def spread(module: Any) -> tuple[Tensor, Tensor]:
    """Mean and variance [channels, 1, 1]."""
    variance = module.bn.running_var + module.config.batch_norm_eps
    return module.bn.running_mean[:, None, None], variance[:, None, None]


def encode(module: Any, image: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the logarithm of the variance, of the packed latent that the transformer takes."""
    mean, logarithm = module._encode(image).chunk(2, dim=1)
    middle, variance = spread(module)
    return (packed(mean) - middle) / torch.sqrt(variance), packed(logarithm) - torch.log(variance)


def decode(module: Any, latent: Tensor) -> Tensor:
    """The picture, about -1 to 1."""
    middle, variance = spread(module)
    return module._decode(unpacked(latent * torch.sqrt(variance) + middle), return_dict=False)[0]


VAE_ENCODER, VAE_DECODER = halves(
    autoencoder, encode, decode, sides=(48, 80), channels=lambda config: 4 * config["latent_channels"]
)
