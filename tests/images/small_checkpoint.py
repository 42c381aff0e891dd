"""A checkpoint of the small model's architecture with weights by chance, in Stable Diffusion 1's own layout, and its modules."""

from __future__ import annotations

from pathlib import Path

import torch

from examples.shapes.files import write_checkpoint
from examples.shapes.networks import build_autoencoder, build_text_encoder, build_unet


def small_modules(seed=0):
    """The U-Net, the autoencoder and the text encoder, their weights as float16 has them."""
    torch.manual_seed(seed)
    modules = build_unet(), build_autoencoder(), build_text_encoder()
    with torch.no_grad():
        for module in modules:
            module.eval().requires_grad_(False)
            for parameter in module.parameters():
                parameter.copy_(parameter.half().float())
    return modules


def write_folders(root: Path, names, *models) -> Path:
    """Folders of models by A1111's names; checkpoints of such names are among them, each with other weights."""
    for name in ("Stable-diffusion", *names):
        (root / name).mkdir()
    for seed, name in enumerate(models):
        write_small(root / "Stable-diffusion" / f"{name}.safetensors", small_modules(seed))
    return root


def write_small(path: Path, modules) -> Path:
    unet, vae, text = modules
    write_checkpoint(unet.state_dict(), vae.state_dict(), text.state_dict(), path)
    return path
