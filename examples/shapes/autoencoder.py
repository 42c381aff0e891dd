"""The autoencoder: pictures to latents and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from examples.shapes.networks import build_autoencoder
from examples.shapes.scenes import OUTLINES, PLAIN, Scene, Style, scenes
from examples.shapes.training import SIDE, Stage, pixels_of


def train_autoencoder(directory: Path, steps: int) -> None:
    """Learn filled and hollow shapes, on squares of 64 pixels and now and then on whole pictures."""
    stage = Stage(directory / "autoencoder.pt", nn.ModuleDict({"vae": build_autoencoder()}), 1e-3, steps)
    vae = stage.modules["vae"]

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        drawn = scenes(1000 + step)
        styles = [PLAIN, OUTLINES] * 8
        if step % 8 == 7:
            pixels = torch.stack([pixels_of(next(drawn), style) for style in styles[:4]])
        else:
            pixels = torch.stack([window(next(drawn), style) for style in styles])
        posterior = vae.encode(pixels).latent_dist
        difference = vae.decode(posterior.sample()).sample.float() - pixels
        divergence = 0.5 * (posterior.mean.square() + posterior.var - 1 - posterior.logvar).mean()
        return difference.abs().mean() + difference.square().mean() + 1e-3 * divergence

    stage.train(loss)


def window(scene: Scene, style: Style, side: int = 64) -> Tensor:
    """A square of a scene's picture that has a thing, or a part of one, in it."""
    thing = scene.things[int(torch.randint(0, len(scene.things), ()))]
    left, top = (
        int(np.clip(centre * SIDE - side * float(torch.rand(())), 0, SIDE - side)) for centre in (thing.x, thing.y)
    )
    return pixels_of(scene, style)[:, top : top + side, left : left + side]
