"""The text encoder and the U-Net, which learn together to predict velocities."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from examples.shapes.latents import latents_of
from examples.shapes.networks import averages, build_text_encoder, build_unet, tokens_of
from examples.shapes.training import Stage, velocity_error

WITHOUT_CAPTION = 0.1
"""How many examples have an empty caption, for guidance."""


def train_denoiser(directory: Path, steps: int, batch: int) -> None:
    """Learn from latents of drawn scenes and their captions."""
    latents, captions = latents_of(directory)
    text, path = build_text_encoder(), directory / "denoiser.pt"
    if not path.exists():
        text.load_state_dict(averages(directory / "words.pt", "text"))
    stage = Stage(path, nn.ModuleDict({"unet": build_unet(), "text": text}), 1e-3, steps)
    modules = stage.modules
    empty = torch.tensor(tokens_of(""))
    length = longest(captions)

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        chosen = torch.randint(0, len(latents), (batch,))
        words = torch.where(torch.rand(batch, 1) < WITHOUT_CAPTION, empty, captions[chosen])
        if step % 8:  # what follows the end of a caption is alike in all; most of the time it is left out
            words = words[:, :length]
        states = modules["text"](words).last_hidden_state
        return velocity_error(lambda noisy, level: modules["unet"](noisy, level, states).sample, latents[chosen])

    stage.train(loss)


def longest(captions: Tensor) -> int:
    """How many tokens the longest caption has, with its end."""
    return int((captions != captions[0, -1]).sum(1).max()) + 1
