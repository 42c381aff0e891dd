"""What Qwen2.5-VL sees: a picture as words for its language model, and the language model that reads these among others.

A picture is cut into patches of 14 x 14 pixels, four of which become a word. Most layers look only at windows of 8 x 8 patches.
So patches come window by window; where a window reaches beyond the picture, patches are missing, and nobody looks at those.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision

from examples.image_engines.language_models import causal, own_settings, qwen, states_after
from examples.image_engines.networks import WORDS, Config, Inputs, Kind, made

WINDOW = 64
"""Patches of a window."""

NEVER = torch.finfo(torch.float32).min


def visual(config: Config) -> nn.Module:
    """The part that sees, called as within the whole model."""
    whole = nn.Module()
    model = "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel"
    whole.visual = made(model, config)
    return whole


def visual_inputs(config: Config) -> Inputs:
    """Three windows: the colours of each patch [windows, patches, 3 * 14 * 14], its row and column, and 0 where it is missing."""
    colours = 3 * config["patch_size"] ** 2
    return {
        "patches": torch.zeros(3, WINDOW, colours),
        "places": torch.zeros(3, WINDOW, 2),
        "present": torch.ones(3, WINDOW),
    }


def visual_forward(module: Any, patches: Tensor, places: Tensor, present: Tensor) -> Tensor:
    """The words [windows, 16, width] of each window. A picture is a video of two frames that are alike."""
    model = module.visual
    frames = torch.cat([patches.unflatten(-1, (3, 1, -1))] * 2, dim=-2).flatten(-3)
    state = linear(frames, model.patch_embed.proj.weight.flatten(1))
    angles = (places[..., None] * model.rotary_pos_emb.inv_freq).flatten(2)
    angles = torch.cat([angles, angles], dim=-1)
    turns = angles.cos(), angles.sin()
    hidden = torch.where(present == 0, NEVER, 0.0)
    for number, block in enumerate(model.blocks):
        whole = number in model.fullatt_block_indexes
        state = state + _look(block.attn, block.norm1(state), turns, hidden, whole)
        state = state + block.mlp(block.norm2(state))
    return model.merger.mlp(model.merger.ln_q(state).unflatten(1, (-1, 4)).flatten(2))


def _look(attention: Any, state: Tensor, turns: tuple[Tensor, Tensor], hidden: Tensor, whole: bool) -> Tensor:
    """What patches make of those in their window, or of all."""
    query, key, value = attention.qkv(state).unflatten(-1, (3, attention.num_heads, -1)).unbind(2)
    query, key = apply_rotary_pos_emb_vision(query, key, *turns)
    rows = [query, key, value]
    if whole:
        rows, hidden = [each.flatten(0, 1)[None] for each in rows], hidden.flatten()[None]
    found = scaled_dot_product_attention(*(each.transpose(1, 2) for each in rows), attn_mask=hidden[:, None, None])
    return attention.proj(found.transpose(1, 2).flatten(2).reshape(state.shape))


WINDOWS = {0: "windows"}
VISUAL = Kind(
    visual, visual_inputs, visual_forward, ("words",), {"patches": WINDOWS, "places": WINDOWS, "present": WINDOWS}
)


def seeing_inputs(config: Config) -> Inputs:
    """Two prompts; what was seen, in the places of the tokens that stand for it; and where each token is: a moment, a row and a
    column, which are all its number for a word."""
    width = config["hidden_size"]
    return {
        "input_ids": torch.zeros(2, 19, dtype=torch.int64),
        "seen": torch.zeros(2, 19, width),
        "places": torch.zeros(2, 19, 3),
    }


def seeing(config: Config) -> nn.Module:
    """Qwen's layers. `sections` are how many angles turn by the moment, the row and the column; `image` is the token of what is
    seen."""
    module = qwen(own_settings(config, "sections", "image"))
    module.__dict__["sections"], module.__dict__["image"] = config["sections"], config["image"]
    return module


def seeing_forward(module: Any, ids: Tensor, seen: Tensor, places: Tensor) -> Tensor:
    """The states [batch, tokens, width], as those of words alone."""
    mask = causal(torch.arange(ids.shape[1]))
    state = torch.where((ids == module.image)[..., None], seen, module.embed_tokens(ids))
    parts = module.rotary_emb.inv_freq.split(list(module.sections))
    angles = torch.cat([places[..., axis : axis + 1] * part for axis, part in enumerate(parts)], dim=-1)
    angles = torch.cat([angles, angles], dim=-1)
    return states_after(module, state, (angles.cos(), angles.sin()), mask)


SEEING = Kind(seeing, seeing_inputs, seeing_forward, ("states",), {"input_ids": WORDS, "seen": WORDS, "places": WORDS})
