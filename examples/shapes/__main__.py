"""Trains the small model that comes with graphc_images, on pictures that it draws.

    python -m examples.shapes autoencoder DIRECTORY --steps 3000
    python -m examples.shapes words DIRECTORY --steps 3000
    python -m examples.shapes denoiser DIRECTORY --steps 20000
    python -m examples.shapes write DIRECTORY -o graphc_images/shapes/shapes.safetensors
    python -m examples.shapes lora|embedding|controlnet DIRECTORY --steps 1000
    python -m examples.shapes read DIRECTORY -i graphc_images/shapes/shapes.safetensors

Needs torch, diffusers, transformers and peft. Each stage goes on where it was stopped: its state is in DIRECTORY. The autoencoder
learns first, and what words mean; then the text encoder and the U-Net together, on latents; then what can be added to them.
Small batches keep few cores busy: `--processes 2` is faster on two cores than two threads are.
`read` takes a written file in the place of the first: words, where 1000 steps do, and the denoiser learn on from it, velocities
too if it predicted noise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.multiprocessing

from examples.shapes.latents import latents_of
from examples.shapes.stages import ALONE, LATENTS, run, run_together


def main() -> None:
    """Read the command line, and run a stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=(*ALONE, *LATENTS, "write", "read"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--processes", type=int, default=1, help="that train the denoiser together, each with batches of its own"
    )
    parser.add_argument("-i", "--input", type=Path, default=Path("shapes.safetensors"))
    parser.add_argument("-o", "--output", type=Path, default=Path("shapes.safetensors"))
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    settings.directory.mkdir(parents=True, exist_ok=True)
    if settings.processes == 1 or settings.stage != "denoiser":
        run(settings)
    else:
        latents_of(settings.directory)  # made once for all
        (settings.directory / "processes").unlink(missing_ok=True)
        torch.multiprocessing.spawn(run_together, (settings,), settings.processes)


if __name__ == "__main__":
    main()
