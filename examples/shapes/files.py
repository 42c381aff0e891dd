"""The trained model as one file, as Stable Diffusion 1 is published."""

from __future__ import annotations

from pathlib import Path

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
    vae = with_latents_of_spread(trained_autoencoder(directory), *measure(directory))
    unet, text = (averages(directory / "denoiser.pt", name) for name in ("unet", "text"))
    write_checkpoint(unet, vae.state_dict(), text, output)


def with_latents_of_spread(vae: AutoencoderKL, mean: Tensor, spread: Tensor) -> AutoencoderKL:
    """The same autoencoder, whose latents times its scaling factor have mean 0 and spread 1 in each channel."""
    mean, spread = mean.flatten(), spread.flatten() * SCALING_FACTOR
    into, out_of = vae.quant_conv, vae.post_quant_conv
    out_of.bias += out_of.weight.flatten(1) @ mean
    out_of.weight *= spread.reshape(1, -1, 1, 1)
    into.weight[:4] /= spread.reshape(-1, 1, 1, 1)
    into.bias[:4] = (into.bias[:4] - mean) / spread
    into.bias[4:] -= 2 * spread.log()
    return vae


def write_checkpoint(unet: State, vae: State, text: State, output: Path) -> None:
    """Write tensors under the names of Stable Diffusion 1's own layout, in float16."""
    parts = {
        "model.diffusion_model.": (UNET, unet),
        "first_stage_model.": (VAE, vae),
        "cond_stage_model.transformer.": (
            CLIP,
            {f"text_model.{name.removeprefix('text_model.')}": text[name] for name in text},
        ),
    }
    tensors = {}
    for prefix, (table, named) in parts.items():
        for ours, source in table.theirs(named).items():
            tensor = named[ours].half().contiguous()
            if any(isinstance(step, Flat) for step in source.steps) and tensor.ndim == 2:
                tensor = tensor[:, :, None, None]
            tensors[prefix + source.name] = tensor
    save_file(tensors, output, NOTES)
