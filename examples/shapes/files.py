"""The trained model as one file, as Stable Diffusion 1 is published, and what training goes on from of such a file."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from examples.shapes.latents import measure
from examples.shapes.networks import (
    State,
    averages,
    build_autoencoder,
    build_text_encoder,
    build_unet,
    trained_autoencoder,
)
from examples.shapes.training import Stage
from examples.shapes.words import Questions
from graphc.weights.layouts.table import Flat, Table
from graphc.weights.layouts.text import CLIP
from graphc.weights.layouts.unet import UNET, VAE

SCALING_FACTOR = 0.18215
LAYOUT = {"first_stage_model.": VAE, "model.diffusion_model.": UNET, "cond_stage_model.transformer.": CLIP}
"""What the names of each part begin with, and the others of its layout."""
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


def read(directory: Path, checkpoint: Path) -> None:
    """Write into `directory` what the stages that made a file left there, but for their optimizers' state: training goes on."""
    vae, unet, text = read_checkpoint(checkpoint)
    Stage(directory / "autoencoder.pt", nn.ModuleDict({"vae": vae}), 1e-3, 0).save()
    questions = Questions(text.config.hidden_size)
    Stage(
        directory / "denoiser.pt", nn.ModuleDict({"unet": unet, "text": text, "questions": questions}), 1e-3, 0
    ).save()
    torch.save((torch.zeros(4), torch.eye(4) * SCALING_FACTOR), directory / "white.pt")


def read_checkpoint(path: Path) -> tuple[nn.Module, nn.Module, nn.Module]:
    """The autoencoder, the U-Net and the text encoder of a file that `write` made."""
    file, modules = load_file(path), (build_autoencoder(), build_unet(), build_text_encoder())
    for (prefix, table), module in zip(LAYOUT.items(), modules, strict=True):
        own = published_names(table, module.state_dict())
        module.load_state_dict({
            name: file[prefix + theirs].float().reshape(tensor.shape) for name, (theirs, tensor, _) in own.items()
        })  # fmt: skip
    return modules


def write_checkpoint(unet: State, vae: State, text: State, output: Path, others: State | None = None) -> None:
    """Write tensors under the names of Stable Diffusion 1's own layout, in float16, and others as they are."""
    tensors = dict(others or {})
    for (prefix, table), state in zip(LAYOUT.items(), (vae, unet, text), strict=True):
        for theirs, tensor, flat in published_names(table, state).values():
            half = tensor.half().contiguous()
            tensors[prefix + theirs] = half[:, :, None, None] if flat and half.ndim == 2 else half
    save_file(tensors, output, NOTES)


def published_names(table: Table, state: State) -> dict[str, tuple[str, Tensor, bool]]:
    """Of each tensor of a module, by its name there: the name in a published layout, the tensor, and whether a matrix is a
    convolution of 1 x 1 there."""
    names = {f"text_model.{name.removeprefix('text_model.')}" if table is CLIP else name: name for name in state}
    found = table.theirs({ours: state[name] for ours, name in names.items()})
    return {
        names[ours]: (source.name, state[names[ours]], any(isinstance(step, Flat) for step in source.steps))
        for ours, source in found.items()
    }
