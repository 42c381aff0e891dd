"""Language models as text encoders: their states after some of the layers; what comes behind the last of these is left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from examples.image_engines.networks import WORDS, Config, Inputs, Kind, made

FOREIGN = ("model", "taken", "padded", "normed")
"""What transformers does not want to know."""


def own_settings(config: Config, *others: str) -> Config:
    """A configuration without these."""
    return {key: value for key, value in config.items() if key not in others}


def qwen(config: Config) -> nn.Module:
    """Qwen's layers of transformers; `taken` are those after which states are read, counted from 1. With `padded`, states of
    padding are read too, which see the text; with `normed`, states as the last norm makes them."""
    path, taken = config["model"], config["taken"]
    module = made(
        path, {**own_settings(config, *FOREIGN), "num_hidden_layers": max(taken), "attn_implementation": "sdpa"}
    )
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
    mask = causal(place, *seen)
    state = module.embed_tokens(ids)
    return states_after(module, state, module.rotary_emb(state, place[None]), mask)


def causal(place: Tensor, *seen: Tensor) -> Tensor:
    """What is added to products of queries and keys: tokens behind one's own place, and padding, are not looked at."""
    hidden = (place[None] > place[:, None])[None, None]
    for each in seen:
        hidden = hidden | (each == 0)[:, None, None]
    return torch.where(hidden, torch.finfo(torch.float32).min, 0.0)


def states_after(module: Any, state: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
    """The states that are read, of tokens whose queries and keys are turned by these cosines and sines."""
    found = []
    for number, layer in enumerate(module.layers, 1):
        state = layer(state, attention_mask=mask, position_embeddings=turns)
        if number in module.taken:
            found.append(module.norm(state) if hasattr(module, "norm") else state)
    return torch.cat(found, dim=-1)


QWEN = Kind(qwen, qwen_inputs, qwen_forward, ("states",), {"input_ids": WORDS, "attention_mask": WORDS})
