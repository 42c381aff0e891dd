"""Which text encoder a file is, by its tensors."""

from __future__ import annotations

from collections.abc import Collection

from graphc_images.errors import ModelError
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
