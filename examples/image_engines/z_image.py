"""Z-Image's transformer: words and patches go through two layers each, and then through all others together."""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from examples.image_engines.networks import AXES, WORDS, Config, Inputs, Kind, example, made, patch_inputs

ONLY = "2-1"
"""What diffusers calls the layers for patches of 2 x 2 pixels of one picture."""

Turns = tuple[Tensor, Tensor]


class Turned:
    """Attention of diffusers among tokens [batch, tokens, width], whose cosines and sines are given."""

    def __call__(self, attention: Any, hidden: Tensor, freqs_cis: Turns, **_: object) -> Tensor:
        """The output [batch, tokens, width]."""
        query, key, value = (
            each(hidden).unflatten(2, (attention.heads, -1))
            for each in (attention.to_q, attention.to_k, attention.to_v)
        )
        query, key = (
            apply_rotary_emb(norm(each), freqs_cis, sequence_dim=1)
            for norm, each in ((attention.norm_q, query), (attention.norm_k, key))
        )
        found = scaled_dot_product_attention(*(each.transpose(1, 2) for each in (query, key, value)))
        return attention.to_out[0](found.transpose(1, 2).flatten(2))


def z_image(config: Config) -> nn.Module:
    """diffusers' transformer, which turns queries and keys by cosines and sines, and not by complex numbers from a table."""
    module = made("diffusers.ZImageTransformer2DModel", config)
    for layer in (*module.noise_refiner, *module.context_refiner, *module.layers):
        layer.attention.set_processor(Turned())
    module.rope_embedder = FluxPosEmbed(int(module.rope_theta), list(module.axes_dims))
    return module


def z_image_inputs(config: Config) -> Inputs:
    """Two images of patches, and words, with the places of both on three axes; the masks are 0 for those that only fill up."""
    found = patch_inputs(4 * config["in_channels"], config["cap_feat_dim"], axes=3, patches=64, words=32)
    return found | {"patch_mask": example(64), "word_mask": example(2, 32)}


def z_image_forward(
    module: Any, patches: Tensor, time: Tensor, words: Tensor, places: Tensor, word_places: Tensor, *masks: Tensor
) -> Tensor:
    """What the transformer predicts for each patch; the time is 0 for noise and 1 for the picture."""
    patch_mask, word_mask = masks
    told = module.t_embedder(time * module.t_scale)
    turns, word_turns = module.rope_embedder(places), module.rope_embedder(word_places)
    image = module.all_x_embedder[ONLY](patches)
    image = torch.where(patch_mask[None, :, None] > 0, image, module.x_pad_token)
    text = module.cap_embedder(words)
    text = torch.where(word_mask[:, :, None] > 0, text, module.cap_pad_token)
    for layer in module.noise_refiner:
        image = layer(image, None, turns, told)
    for layer in module.context_refiner:
        text = layer(text, None, word_turns)
    both = torch.cat([image, text], dim=1)
    together = tuple(torch.cat(each) for each in zip(turns, word_turns, strict=True))
    for layer in module.layers:
        both = layer(both, None, together, told)
    return module.all_final_layer[ONLY](both[:, : patches.shape[1]], c=told)


Z_IMAGE = Kind(
    z_image,
    z_image_inputs,
    z_image_forward,
    ("prediction",),
    {**AXES, "patch_mask": {0: "patches"}, "word_mask": WORDS},
)
