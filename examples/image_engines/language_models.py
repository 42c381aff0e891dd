"""Language models as text encoders: their states after some of the layers; what comes behind the last of these is left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from examples.image_engines.networks import WORDS, Config, Inputs, Kind, made


def qwen(config: Config) -> nn.Module:
    """Qwen's layers of transformers; `taken` are those after which states are read, counted from 1."""
    path, taken = config["model"], config["taken"]
    own = {key: value for key, value in config.items() if key not in ("model", "taken")}
    module = made(path, {**own, "num_hidden_layers": max(taken), "attn_implementation": "sdpa"})
    del module.norm
    module.__dict__["taken"] = taken
    return module


def qwen_inputs(config: Config) -> Inputs:
    """Two prompts."""
    return {"input_ids": torch.zeros(2, 19, dtype=torch.int64)}


def qwen_forward(module: Any, ids: Tensor) -> Tensor:
    """The states [batch, tokens, width]; of several layers side by side. No token sees those behind it, so padding makes no
    difference to a text."""
    place = torch.arange(ids.shape[1])
    mask = torch.where(place[None] > place[:, None], torch.finfo(torch.float32).min, 0.0)[None, None]
    state = module.embed_tokens(ids)
    turns = module.rotary_emb(state, place[None])
    found = []
    for number, layer in enumerate(module.layers, 1):
        state = layer(state, attention_mask=mask, position_embeddings=turns)
        if number in module.taken:
            found.append(state)
    return torch.cat(found, dim=-1)


QWEN = Kind(qwen, qwen_inputs, qwen_forward, ("states",), {"input_ids": WORDS})
