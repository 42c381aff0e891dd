"""CLIP's encoder of pictures, which IP-Adapters read.

Radford et al., Learning Transferable Visual Models From Natural Language Supervision (2021).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from examples.image_engines.networks import EACH, Config, Inputs, Kind, example, made


def clip_vision(config: Config) -> nn.Module:
    """transformers' encoder with its projection."""
    module: nn.Module = made("transformers.CLIPVisionModelWithProjection", {**config, "attn_implementation": "sdpa"})
    return module


def clip_vision_inputs(config: Config) -> Inputs:
    """Two pictures of the size that it was trained on."""
    return {"image": example(2, 3, config["image_size"], config["image_size"])}


def clip_vision_forward(module: Any, image: Tensor) -> tuple[Tensor, Tensor]:
    """The states [batch, tokens, width] before the last layer, and the projection of the whole picture."""
    vision = module.vision_model
    state = vision.pre_layrnorm(vision.embeddings(image))
    *layers, last = vision.encoder.layers
    for layer in layers:
        state = layer(state, None)
    whole = vision.post_layernorm(last(state, None)[:, 0])
    return state, module.visual_projection(whole)


CLIP_VISION = Kind(clip_vision, clip_vision_inputs, clip_vision_forward, ("states", "projected"), {"image": EACH})
