"""What the denoiser learns from: latents of drawn scenes, and their captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from examples.shapes.networks import tokens_of, trained_autoencoder
from examples.shapes.scenes import PLAIN, Scene, Style
from examples.shapes.training import pixels_of, scenes

DRAWN = 40_000
TOGETHER = 50


def latents_of(directory: Path) -> tuple[Tensor, Tensor]:
    """Latents [DRAWN, 4, h, w] of spread 1 and captions [DRAWN, TOKENS] to learn from, kept in a file."""
    path = directory / "latents.pt"
    if not path.exists():
        drawn = scenes(1)
        chosen = [next(drawn) for _ in range(DRAWN)]
        captions = torch.tensor([tokens_of(each.caption) for each in chosen])
        torch.save({"latents": encoded(directory, chosen), "captions": captions}, path)
    state = torch.load(path, weights_only=True)
    mean, spread = measure(directory)
    return (state["latents"].float() - mean) / spread, state["captions"]


def encoded(directory: Path, drawn: Sequence[Scene], style: Style = PLAIN) -> Tensor:
    """The autoencoder's own latents [scenes, 4, h, w], float16."""
    vae, made = trained_autoencoder(directory), []
    for first in range(0, len(drawn), TOGETHER):
        pictures = torch.stack([pixels_of(each, style) for each in drawn[first : first + TOGETHER]])
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            made.append(vae.encode(pictures).latent_dist.mean.half())
    return torch.cat(made)


def measure(directory: Path) -> tuple[Tensor, Tensor]:
    """What the autoencoder's latents are shifted and scaled by, so that each channel has mean 0 and spread 1."""
    latents = torch.load(directory / "latents.pt", weights_only=True)["latents"].float()
    return latents.mean((0, 2, 3), keepdim=True), latents.std((0, 2, 3), keepdim=True)
