"""The trained model as one file, as Stable Diffusion 1 is published."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import AutoencoderKL
from safetensors.torch import save_file
from torch import Tensor

from examples.shapes.latents import measure
from examples.shapes.networks import State, averages, trained_autoencoder
from graphc.weights.layouts.table import Flat
from graphc.weights.layouts.text import CLIP
from graphc.weights.layouts.unet import UNET, VAE

SCALING_FACTOR = 0.18215
NOTES = {"format": "pt", "modelspec.title": "coloured shapes", "modelspec.license": "MIT"}


def write(directory: Path, output: Path) -> None:
    """Write what is trained in `directory`."""
    vae = with_white_latents(trained_autoencoder(directory), *measure(directory))
    unet, text = (averages(directory / "denoiser.pt", name) for name in ("unet", "text"))
    velocities = {"v_pred": torch.empty(0)}  # how a file says that they are predicted
    write_checkpoint(unet, vae.state_dict(), text, output, velocities)


def with_white_latents(vae: AutoencoderKL, mean: Tensor, matrix: Tensor) -> AutoencoderKL:
    """The same autoencoder, whose latents times its scaling factor are those that the U-Net has (`latents.white`).

    How likely others are is no longer said of each channel: it is what it is on average.
    """
    matrix = matrix / SCALING_FACTOR
    into, out_of = vae.quant_conv, vae.post_quant_conv
    inside = out_of.weight.flatten(1)
    out_of.bias += inside @ mean
    out_of.weight.copy_((inside @ torch.linalg.inv(matrix))[..., None, None])
    into.weight[:4] = (matrix @ into.weight[:4].flatten(1))[..., None, None]
    into.bias[:4] = matrix @ (into.bias[:4] - mean)
    into.weight[4:] = 0
    into.bias[4:] = torch.log(matrix.square() @ into.bias[4:].exp())
    return vae


def write_checkpoint(unet: State, vae: State, text: State, output: Path, others: State | None = None) -> None:
    """Write tensors under the names of Stable Diffusion 1's own layout, in float16, and others as they are."""
    parts = {
        "model.diffusion_model.": (UNET, unet),
        "first_stage_model.": (VAE, vae),
        "cond_stage_model.transformer.": (
            CLIP,
            {f"text_model.{name.removeprefix('text_model.')}": text[name] for name in text},
        ),
    }
    tensors = dict(others or {})
    for prefix, (table, named) in parts.items():
        for ours, source in table.theirs(named).items():
            tensor = named[ours].half().contiguous()
            if any(isinstance(step, Flat) for step in source.steps) and tensor.ndim == 2:
                tensor = tensor[:, :, None, None]
            tensors[prefix + source.name] = tensor
    save_file(tensors, output, NOTES)
