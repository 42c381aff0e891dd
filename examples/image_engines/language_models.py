"""Language models as text encoders: their states after some of the layers; what comes behind the last of these is left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from examples.image_engines.networks import WORDS, Config, Inputs, Kind, made

FOREIGN = ("model", "taken", "padded", "normed")
"""What transformers does not want to know."""


def qwen(config: Config) -> nn.Module:
    """Qwen's layers of transformers; `taken` are those after which states are read, counted from 1. With `padded`, states of
    padding are read too, which see the text; with `normed`, states as the last norm makes them."""
    path, taken = config["model"], config["taken"]
    own = {key: value for key, value in config.items() if key not in FOREIGN}
    module = made(path, {**own, "num_hidden_layers": max(taken), "attn_implementation": "sdpa"})
    if not config.get("normed"):
        del module.norm
    module.__dict__["taken"] = taken
    return module


def qwen_inputs(config: Config) -> Inputs:
    """Two prompts, and with `padded` which of their tokens others look at."""
    found = {"input_ids": torch.zeros(2, 19, dtype=torch.int64)}
    return found | ({"attention_mask": torch.ones(2, 19, dtype=torch.int64)} if config.get("padded") else {})


def qwen_forward(module: Any, ids: Tensor, *seen: Tensor) -> Tensor:
    """The states [batch, tokens, width]; of several layers side by side. No token sees those behind it, so padding makes no
    difference to a text."""
    place = torch.arange(ids.shape[1])
    hidden = (place[None] > place[:, None])[None, None]
    for each in seen:
        hidden = hidden | (each == 0)[:, None, None]
    mask = torch.where(hidden, torch.finfo(torch.float32).min, 0.0)
    state = module.embed_tokens(ids)
    turns = module.rotary_emb(state, place[None])
    found = []
    for number, layer in enumerate(module.layers, 1):
        state = layer(state, attention_mask=mask, position_embeddings=turns)
        if number in module.taken:
            found.append(module.norm(state) if hasattr(module, "norm") else state)
    return torch.cat(found, dim=-1)


QWEN = Kind(qwen, qwen_inputs, qwen_forward, ("states",), {"input_ids": WORDS, "attention_mask": WORDS})
