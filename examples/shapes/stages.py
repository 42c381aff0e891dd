"""The stages of training by their names, in this process or in several."""

from __future__ import annotations

import argparse

import torch
import torch.distributed

from examples.shapes.additions import train_controlnet, train_embedding, train_lora
from examples.shapes.autoencoder import train_autoencoder
from examples.shapes.denoiser import train_denoiser
from examples.shapes.files import read, write
from examples.shapes.words import train_words

ALONE = {"autoencoder": train_autoencoder, "words": train_words}
LATENTS = {"denoiser": train_denoiser, "lora": train_lora, "embedding": train_embedding, "controlnet": train_controlnet}
"""The stages that learn from latents."""


def run_together(number: int, settings: argparse.Namespace) -> None:
    """Run a stage as one of several processes, which have their share of the threads."""
    torch.set_num_threads(max(1, settings.threads // settings.processes))
    meeting = (settings.directory / "processes").resolve().as_uri()
    torch.distributed.init_process_group("gloo", meeting, rank=number, world_size=settings.processes)
    run(settings)
    torch.distributed.destroy_process_group()


def run(settings: argparse.Namespace) -> None:
    """Run a stage. All processes begin with the same weights."""
    torch.manual_seed(0)
    if settings.stage in ALONE:
        ALONE[settings.stage](settings.directory, settings.steps)
    elif settings.stage == "write":
        write(settings.directory, settings.output)
    elif settings.stage == "read":
        read(settings.directory, settings.input)
    else:
        LATENTS[settings.stage](settings.directory, settings.steps, settings.batch)
