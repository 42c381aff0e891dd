"""Text encoders: which one a file is, by its tensors, and what they give."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from graphc_images.errors import ModelError, SettingError
from graphc_images.models.recognize import Tensors

T5 = ("encoder.block.0.layer.0.SelfAttention.q.weight", "enc.blk.0.attn_q.weight")
"""What T5's names end with, in files of transformers and of llama.cpp."""

LLM = ("layers.0.mlp.gate_proj.weight", "blk.0.ffn_gate.weight")
"""The same of language models."""

TOKENS = "token_embedding.weight"
CLIPS = {768: "clip_l", 1024: "clip_h", 1280: "clip_g"}
"""CLIP's encoders, by the width of their tables of tokens."""


def encoder_of(tensors: Tensors, read: Collection[str]) -> str:
    """The name of the encoder, of those that a model reads; whoever reads one CLIP takes it of any width.

    Raises ModelError for a file that is none, or that may be any of several.
    """
    if any(name.endswith(T5) for name in tensors):
        return "t5xxl"
    if any(name.endswith(LLM) for name in tensors):
        return "llm"
    widths = [tensor.shape[-1] for name, tensor in tensors.items() if name.endswith(TOKENS)]
    if not widths:
        raise ModelError(
            f"it is no text encoder that is known: neither CLIP, T5 nor Qwen; it has {', '.join(list(tensors)[:3])}, …"
        )
    clips = [name for name in read if name in CLIPS.values()]
    name = CLIPS.get(widths[0], clips[0] if len(clips) == 1 else "")
    if not name:
        raise ModelError(f"it is a CLIP of width {widths[0]}, which may be any of {', '.join(clips)}: say which")
    return name


@dataclass(frozen=True)
class Encoded:
    """What a text encoder makes of rows of tokens; float32.

    `states` [layers, batch, tokens, width] are those after each layer, and `normed` the same with the encoder's last norm; T5 and
    language models have only one, as it is read. `projected` [batch, tokens, width] is, of encoders that have one, the projection
    of each token's last state: a prompt's pooled vector is that of its end token, or else the last normed state there.
    """

    states: np.ndarray
    normed: np.ndarray
    projected: np.ndarray | None = None

    def skipping(self, skip: int = 1, normed: bool = True) -> np.ndarray:
        """The states [batch, tokens, width] of the last layer, or the one before (2), …. Raises SettingError."""
        if not 1 <= skip <= len(self.states):
            raise SettingError(f"clip skip {skip}: the text encoder has {len(self.states)} layers")
        layers = self.normed if normed else self.states
        found: np.ndarray = layers[-skip]
        return found

    def pooled(self, ends: Sequence[int]) -> np.ndarray:
        """One vector for each row [batch, width], whose end tokens are at these places."""
        vectors = self.normed[-1] if self.projected is None else self.projected
        return np.stack([row[end] for row, end in zip(vectors, ends, strict=True)])
