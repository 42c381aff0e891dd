"""Text encoders: CLIP, T5 and Qwen under the names of transformers, T5 and Qwen under llama.cpp's, and OpenCLIP under its own.

Source: the names in the published checkpoints, and the parameters of transformers' CLIPTextModelWithProjection, T5EncoderModel,
Qwen2Model and Qwen3Model.
"""

from __future__ import annotations

from graphc.weights.layouts.table import SAME, Row, Table, Transposed, rows, stacked, under

SPARE = ("text_model.encoder.layers.*", "text_model.final_layer_norm", "text_projection")
"""Pipelines read what comes out of the last layer, or of the one before; Stable Diffusion 2 leaves out OpenCLIP's last."""

CLIP = Table(rows(*((each, each) for each in ("text_model.embeddings", *SPARE))), SPARE)

CLIP_BARE = Table(
    rows(*((each, f"text_model.{each}") for each in ("embeddings", "encoder.layers", "final_layer_norm"))), SPARE
)
"""The same in files that leave out the outer module."""

ATTENTION = tuple(
    row
    for kind in ("weight", "bias")
    for row in stacked(f"in_proj_{kind}", *(f"{each}_proj.{kind}" for each in "qkv"))
) + rows(("out_proj", "out_proj"))  # fmt: skip

LAYER: tuple[Row, ...] = under("attn", "self_attn", ATTENTION) + rows(
    ("ln_1", "layer_norm1"), ("ln_2", "layer_norm2"), ("mlp.c_fc", "mlp.fc1"), ("mlp.c_proj", "mlp.fc2")
)

OPENCLIP = Table(
    rows(
        ("token_embedding", "text_model.embeddings.token_embedding"),
        ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
        ("ln_final", "text_model.final_layer_norm"),
        ("text_projection", "text_projection.weight", Transposed()),
    )
    + under("transformer.resblocks.*", "text_model.encoder.layers.*", LAYER),
    SPARE,
)

T5 = Table(
    rows(
        ("shared", "shared"),
        ("encoder.embed_tokens", "encoder.embed_tokens"),
        ("shared", "encoder.embed_tokens"),
        ("encoder.embed_tokens", "shared"),
        ("encoder.block", "encoder.block"),
        ("encoder.final_layer_norm", "encoder.final_layer_norm"),
    )
)
"""The table of tokens has two names, of which a file has one or both."""

T5_LLAMA = Table(
    rows(
        ("token_embd", "shared"),
        ("token_embd", "encoder.embed_tokens"),
        ("enc.output_norm", "encoder.final_layer_norm"),
    )
    + under(
        "enc.blk.*",
        "encoder.block.*.layer",
        rows(
            ("attn_q", "0.SelfAttention.q"),
            ("attn_k", "0.SelfAttention.k"),
            ("attn_v", "0.SelfAttention.v"),
            ("attn_o", "0.SelfAttention.o"),
            ("attn_rel_b", "0.SelfAttention.relative_attention_bias"),
            ("attn_norm", "0.layer_norm"),
            ("ffn_gate", "1.DenseReluDense.wi_0"),
            ("ffn_up", "1.DenseReluDense.wi_1"),
            ("ffn_down", "1.DenseReluDense.wo"),
            ("ffn_norm", "1.layer_norm"),
        ),
    )
)
"""The same in llama.cpp's names, as GGUF files of T5 have them."""

QWEN_SPARE = ("embed_tokens", "layers.*", "norm", "lm_head", "visual")
"""Pipelines read states from within; behind the last of these are layers, a norm and what chooses words. Qwen2.5-VL also has what
makes words of pictures, which is a program of its own."""

QWEN = Table(
    rows(*((f"model.{each}", each) for each in ("embed_tokens", "layers", "norm")), ("lm_head", "lm_head"))
    + rows(*((f"model.language_model.{each}", each) for each in ("embed_tokens", "layers", "norm")))
    + rows(("visual", "visual"), ("model.visual", "visual")),
    QWEN_SPARE,
)
"""Within Qwen2.5-VL, transformers of today names it in the second way."""

QWEN_LLAMA = Table(
    rows(("token_embd", "embed_tokens"), ("output_norm", "norm"), ("output", "lm_head"))
    + under(
        "blk.*",
        "layers.*",
        rows(
            ("attn_q", "self_attn.q_proj"),
            ("attn_k", "self_attn.k_proj"),
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("attn_q_norm", "self_attn.q_norm"),
            ("attn_k_norm", "self_attn.k_norm"),
            ("attn_norm", "input_layernorm"),
            ("ffn_norm", "post_attention_layernorm"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
        ),
    ),
    QWEN_SPARE,
)
"""The same in llama.cpp's names."""

AS_FILED = Table(SAME.rows + QWEN.rows, SPARE + QWEN_SPARE)
"""A text encoder of a folder of diffusers: under our names, or within the module that also chooses words."""
