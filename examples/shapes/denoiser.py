"""The text encoder and the U-Net, which learn together to predict velocities."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn

from examples.shapes.latents import latents_of
from examples.shapes.networks import averages, build_text_encoder, build_unet, tokens_of
from examples.shapes.scenes import scenes
from examples.shapes.training import Stage, velocity_error
from examples.shapes.words import Questions, answers_of

ASKED = 0.02
"""How much what the text encoder answers (`words.py`) counts beside the velocities: it goes on saying what is where."""
WITHOUT_CAPTION = 0.1
"""How many examples have an empty caption, for guidance."""


def train_denoiser(directory: Path, steps: int, batch: int) -> None:
    """Learn from latents of drawn scenes and their captions."""
    latents, captions = latents_of(directory)
    answers = torch.tensor([answers_of(each) for each in islice(scenes(1), len(latents))])
    text = build_text_encoder()
    parts = {"unet": build_unet(), "text": text, "questions": Questions(text.config.hidden_size)}
    stage = Stage(directory / "denoiser.pt", nn.ModuleDict(parts), 1e-3, steps)
    if stage.done == 0:  # what the words mean is known
        for name in ("text", "questions"):
            known = averages(directory / "words.pt", name)
            stage.modules[name].load_state_dict(known)
            stage.averages[name].load_state_dict(known)
    modules = stage.modules
    empty = torch.tensor(tokens_of(""))
    length = longest(captions)

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        chosen = torch.randint(0, len(latents), (batch,))
        without = torch.rand(batch) < WITHOUT_CAPTION
        words = torch.where(without[:, None], empty, captions[chosen])
        if step % 8:  # what follows the end of a caption is alike in all; most of the time it is left out
            words = words[:, :length]
        states = modules["text"](words).last_hidden_state
        error = velocity_error(lambda noisy, level: modules["unet"](noisy, level, states).sample, latents[chosen])
        return error + ASKED * modules["questions"].error(states[~without], answers[chosen][~without])

    stage.train(loss)


def longest(captions: Tensor) -> int:
    """How many tokens the longest caption has, with its end."""
    return int((captions != captions[0, -1]).sum(1).max()) + 1
