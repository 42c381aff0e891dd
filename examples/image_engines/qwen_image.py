"""Qwen-Image: its transformer, and its autoencoder, which is that of the video model Wan 2.1 with one frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl_qwenimage import (
    QwenImageAttentionBlock,
    QwenImageCausalConv3d,
    QwenImageResample,
    QwenImageRMS_norm,
    QwenImageUpsample,
)
from diffusers.models.embeddings import apply_rotary_emb
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate, scaled_dot_product_attention

from examples.image_engines.autoencoders import halves
from examples.image_engines.networks import AXES, Config, Inputs, Kind, made, patch_inputs

Turns = tuple[Tensor, Tensor]


# The transformer


class Joint:
    """Attention of diffusers among words and patches [batch, tokens, width], whose cosines and sines are given."""

    def __call__(
        self, attention: Any, hidden_states: Tensor, encoder_hidden_states: Tensor, image_rotary_emb: Turns, **_: object
    ) -> tuple[Tensor, Tensor]:
        """What is added to patches and to words."""
        text = self._heads(
            attention, encoder_hidden_states, (attention.add_q_proj, attention.add_k_proj, attention.add_v_proj),
            (attention.norm_added_q, attention.norm_added_k),
        )  # fmt: skip
        image = self._heads(
            attention,
            hidden_states,
            (attention.to_q, attention.to_k, attention.to_v),
            (attention.norm_q, attention.norm_k),
        )
        query, key, value = (torch.cat(each, dim=1) for each in zip(text, image, strict=True))
        turned = [apply_rotary_emb(each, image_rotary_emb, sequence_dim=1) for each in (query, key)]
        found = scaled_dot_product_attention(*(each.transpose(1, 2) for each in (*turned, value)))
        found, words = found.transpose(1, 2).flatten(2), encoder_hidden_states.shape[1]
        return attention.to_out[0](found[:, words:]), attention.to_add_out(found[:, :words])

    @staticmethod
    def _heads(attention: Any, x: Tensor, layers: Sequence[Any], norms: Sequence[Any]) -> list[Tensor]:
        """Queries, keys and values [batch, tokens, heads, channels]."""
        query, key, value = (layer(x).unflatten(2, (attention.heads, -1)) for layer in layers)
        return [norms[0](query), norms[1](key), value]


def transformer(config: Config) -> nn.Module:
    """diffusers' transformer, which turns queries and keys by cosines and sines, and not by complex numbers from a table."""
    module = made("diffusers.QwenImageTransformer2DModel", config)
    for block in module.transformer_blocks:
        block.attn.set_processor(Joint())
    module.pos_embed = FluxPosEmbed(module.pos_embed.theta, module.pos_embed.axes_dim)
    return module


def transformer_inputs(config: Config) -> Inputs:
    """Two images of patches, and words, with the places of both on three axes. No word is padding, so there is no mask."""
    return patch_inputs(config["in_channels"], config["joint_attention_dim"], axes=3)


def transformer_forward(
    module: Any, patches: Tensor, time: Tensor, words: Tensor, places: Tensor, word_places: Tensor
) -> Tensor:
    """What the transformer predicts for each patch; the time is 1 for noise and 0 for the picture."""
    image, text = module.img_in(patches), module.txt_in(module.txt_norm(words))
    told = module.time_text_embed(time, image)
    turns = module.pos_embed(torch.cat([word_places, places]))
    for block in module.transformer_blocks:
        text, image = block(image, text, None, told, turns)
    return module.proj_out(module.norm_out(image, told))


QWEN_IMAGE = Kind(transformer, transformer_inputs, transformer_forward, ("prediction",), AXES)


# The autoencoder

LEAST = 1e-12
"""diffusers and Wan's authors have this for the length, which is some times the root mean square; either is for black alone."""


def still(module: nn.Module) -> None:
    """Have the parts of an autoencoder of videos compute one frame [batch, channels, height, width]. Before the first frame there
    are zeros, so of a convolution over three frames only the last part counts."""
    for each in module.modules():
        if forward := STILL.get(type(each)):
            each.__dict__["forward"] = partial(forward, each)


def _convolve(conv: Any, x: Tensor) -> Tensor:
    return conv2d(x, conv.weight[:, :, -1], conv.bias, padding=(conv._padding[2], conv._padding[0]))


def _norm(norm: Any, x: Tensor) -> Tensor:
    """Each pixel's channels over their root mean square, which is at least `LEAST`; they are moved to where they lie together."""
    pixels = x.movedim(1, -1)
    normed = pixels * torch.rsqrt(pixels.pow(2).mean(-1, keepdim=True) + LEAST**2)
    return (normed * norm.gamma.flatten()).movedim(-1, 1)


def _resample(resample: Any, x: Tensor) -> Tensor:
    return resample.resample(x)


def _enlarge(upsample: Any, x: Tensor) -> Tensor:
    return interpolate(x, scale_factor=2.0, mode="nearest")


def _attend(block: Any, x: Tensor) -> Tensor:
    rows = block.to_qkv(block.norm(x)).flatten(2).transpose(1, 2)
    found = scaled_dot_product_attention(*(each[:, None] for each in rows.chunk(3, dim=-1)))
    return x + block.proj(found[:, 0].transpose(1, 2).reshape(x.shape))


STILL: dict[type[nn.Module], Any] = {
    QwenImageCausalConv3d: _convolve,
    QwenImageRMS_norm: _norm,
    QwenImageResample: _resample,
    QwenImageUpsample: _enlarge,
    QwenImageAttentionBlock: _attend,
}
"""What the parts do to one frame."""


def autoencoder(config: Config) -> nn.Module:
    """diffusers' autoencoder for one frame."""
    module = made("diffusers.AutoencoderKLQwenImage", config)
    still(module)
    return module


def encode(module: Any, image: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the logarithm of the variance."""
    mean, logarithm = module.quant_conv(module.encoder(image)).chunk(2, dim=1)
    return mean, logarithm


def decode(module: Any, latent: Tensor) -> Tensor:
    """The picture, about -1 to 1."""
    return module.decoder(module.post_quant_conv(latent))


VAE_ENCODER, VAE_DECODER = halves(autoencoder, encode, decode, sides=(40, 24), channels=lambda config: config["z_dim"])
