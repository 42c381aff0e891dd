"""The networks of the small model: Stable Diffusion 1.5's, with a tenth of its channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, ControlNetModel, UNet2DConditionModel
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel

from examples.image_engines.table import SHAPES_CLIP, SHAPES_UNET, SHAPES_VAE
from graphc_images.tokenizers.clip import ClipTokenizer

State = dict[str, Tensor]

TOKENS = 77
TOKENIZER = ClipTokenizer()


def build_autoencoder() -> AutoencoderKL:
    """Stable Diffusion's, with an eighth of its channels."""
    return AutoencoderKL(**SHAPES_VAE)


def build_unet() -> UNet2DConditionModel:
    """Stable Diffusion 1.5's, with a tenth of its channels.

    Attention is written out: on a CPU, the gradient of PyTorch's own takes several times as long.
    """
    unet = UNet2DConditionModel(**SHAPES_UNET)
    unet.set_attn_processor(attend)
    return unet


def attend(attention: Any, hidden: Tensor, encoder_hidden_states: Tensor | None = None, **_: object) -> Tensor:
    """diffusers' attention, all of it in the type of the products."""
    seen = hidden if encoder_hidden_states is None else encoder_hidden_states
    query, key, value = (
        each.unflatten(2, (attention.heads, -1)).transpose(1, 2)
        for each in (attention.to_q(hidden), attention.to_k(seen), attention.to_v(seen))
    )
    with torch.autocast("cpu", enabled=False):
        found = (query * attention.scale @ key.transpose(2, 3)).softmax(3) @ value
    return attention.to_out[0](found.transpose(1, 2).flatten(2))


def build_text_encoder() -> CLIPTextModel:
    """CLIP's, with three layers; all of its tokens."""
    config = CLIPTextConfig(**SHAPES_CLIP, bos_token_id=TOKENIZER.start, eos_token_id=TOKENIZER.end)
    config._attn_implementation = "eager"
    return CLIPTextModel(config)


def build_controlnet(unet: UNet2DConditionModel) -> ControlNetModel:
    """A copy of the U-Net's first half, which looks at a picture too."""
    control = ControlNetModel.from_unet(unet)
    control.set_attn_processor(attend)
    return control


def tokens_of(caption: str) -> list[int]:
    """A caption's token ids, filled up with the end as Stable Diffusion 1 does."""
    ids = TOKENIZER.encode(caption)
    return [TOKENIZER.start, *ids, *[TOKENIZER.end] * (TOKENS - 1 - len(ids))]


def averages(path: Path, module: str) -> State:
    """The averaged weights of a module that was trained (see `training.py`)."""
    state = torch.load(path, weights_only=True)["averages"]
    return {name.removeprefix(f"{module}."): value for name, value in state.items() if name.startswith(f"{module}.")}


def trained_autoencoder(directory: Path) -> AutoencoderKL:
    """The autoencoder as it was trained; it learns no more."""
    vae = build_autoencoder()
    vae.load_state_dict(averages(directory / "autoencoder.pt", "vae"))
    return vae.requires_grad_(False).eval()


def trained_denoiser(directory: Path) -> tuple[UNet2DConditionModel, CLIPTextModel]:
    """The U-Net and the text encoder as they were trained; they learn no more."""
    unet, text = build_unet(), build_text_encoder()
    for name, module in (("unet", unet), ("text", text)):
        module.load_state_dict(averages(directory / "denoiser.pt", name))
        module.requires_grad_(False).eval()
    return unet, text
