"""What the denoiser learns from: latents of drawn scenes, and their captions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing
from torch import Tensor, nn

from examples.shapes.networks import tokens_of, trained_autoencoder
from examples.shapes.scenes import PLAIN, Scene, Style, scenes
from examples.shapes.training import pixels_of

DRAWN = 60_000
TOGETHER = 50
"""Pictures that are encoded at once."""
LEAST = 0.02


def latents_of(directory: Path) -> tuple[Tensor, Tensor]:
    """Latents [DRAWN, 4, h, w] as the U-Net has them and captions [DRAWN, TOKENS] to learn from, kept in a file."""
    path = directory / "latents.pt"
    if not path.exists():
        drawn = scenes(1)
        chosen = [next(drawn) for _ in range(DRAWN)]
        captions = torch.tensor([tokens_of(each.caption) for each in chosen])
        processes = torch.get_num_threads()
        share = -(-DRAWN // processes)
        parts = [(directory, chosen[first : first + share]) for first in range(0, DRAWN, share)]
        with torch.multiprocessing.Pool(processes, torch.set_num_threads, (1,)) as pool:
            latents = torch.cat(pool.starmap(encoded, parts))
        torch.save({"latents": latents, "captions": captions}, path)
    state = torch.load(path, weights_only=True)
    return white(state["latents"], *measure(directory)), state["captions"]


def encoded(directory: Path, drawn: Sequence[Scene], style: Style = PLAIN) -> Tensor:
    """The autoencoder's own latents [scenes, 4, h, w], float16."""
    vae, made = trained_autoencoder(directory).to(memory_format=torch.channels_last), []
    for first in range(0, len(drawn), TOGETHER):
        pictures = torch.stack([pixels_of(each, style) for each in drawn[first : first + TOGETHER]])
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            made.append(vae.encode(pictures).latent_dist.mean.half())
    return torch.cat(made)


def measure(directory: Path) -> tuple[Tensor, Tensor]:
    """The mean [4] of the autoencoder's latents, and a matrix [4, 4] that makes their channels independent, with a spread of
    about 1: what hardly varies stays small, so that what is only rounded does not become as large as what counts."""
    if (directory / "white.pt").exists():  # they are so already (`files.read`)
        return tuple(torch.load(directory / "white.pt", weights_only=True))
    latents = torch.load(directory / "latents.pt", weights_only=True)["latents"].double()
    rows = latents.movedim(1, -1).flatten(0, 2)
    values, axes = torch.linalg.eigh(torch.cov(rows.T))
    return rows.mean(0).float(), (axes / (values + LEAST * values.mean()).sqrt() @ axes.T).float()


def white(latents: Tensor, mean: Tensor, matrix: Tensor) -> Tensor:
    """Latents [batch, 4, h, w] as the U-Net has them."""
    return torch.einsum("oc,bchw->bohw", matrix, latents.float() - mean.reshape(1, -1, 1, 1))


def preview_colours(directory: Path, pictures: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """What latents look like, by least squares: red, green and blue of each channel [4, 3], -1 to 1, and what is added [3]."""
    drawn = list(islice(scenes(1), pictures))
    small = torch.stack([nn.functional.avg_pool2d(pixels_of(each), 8) for each in drawn])
    latents = latents_of(directory)[0][:pictures]
    rows, wanted = (each.movedim(1, -1).flatten(0, 2) for each in (latents, small))
    found, *_ = np.linalg.lstsq(np.pad(rows.numpy(), ((0, 0), (0, 1)), constant_values=1), wanted.numpy(), rcond=None)
    return found[:-1], found[-1]
