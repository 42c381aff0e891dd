"""The transformers of Stable Diffusion 3, Flux, Flux.2, Chroma, Z-Image and Qwen-Image: as their authors' code names them, and as
diffusers.

Source: the names in the published checkpoints, and the parameters of diffusers' SD3Transformer2DModel, FluxTransformer2DModel,
Flux2Transformer2DModel, ChromaTransformer2DModel, ZImageTransformer2DModel and QwenImageTransformer2DModel. Queries, keys and
values are one product there and three here. Where a modulation has two parts, there the shift is first, and here the scale.
"""

from __future__ import annotations

from graphc.weights.layouts.table import SAME, AsRow, Row, Rows, SwapHalves, Table, rows, stacked, under


def embedder(theirs: str, ours: str, first: str, second: str) -> tuple[Row, ...]:
    """Two linear layers with a SiLU between."""
    return under(theirs, f"time_text_embed.{ours}", rows((first, "linear_1"), (second, "linear_2")))


def stream(
    side: str, feed_forward: tuple[str, str], norm: str, queries: tuple[str, ...], norms: tuple[str, str], out: str
) -> tuple[Row, ...]:
    """What a double block of Flux does with the image, or with the text."""
    return (
        stacked(f"{side}_attn.qkv", *(f"attn.{each}" for each in queries))
        + rows(
            (f"{side}_mod.lin", f"{norm}.linear"),
            (f"{side}_attn.proj", f"attn.{out}"),
            (f"{side}_attn.norm.query_norm.scale", f"attn.{norms[0]}.weight"),
            (f"{side}_attn.norm.key_norm.scale", f"attn.{norms[1]}.weight"),
            (f"{side}_mlp.0", feed_forward[0]),
            (f"{side}_mlp.2", feed_forward[1]),
        )
    )  # fmt: skip


IMAGE_QUERIES, TEXT_QUERIES = ("to_q", "to_k", "to_v"), ("add_q_proj", "add_k_proj", "add_v_proj")
IMAGE = stream("img", ("ff.net.0.proj", "ff.net.2"), "norm1", IMAGE_QUERIES, ("norm_q", "norm_k"), "to_out.0")
TEXT = stream(
    "txt", ("ff_context.net.0.proj", "ff_context.net.2"), "norm1_context", TEXT_QUERIES, ("norm_added_q", "norm_added_k"),
    "to_add_out",
)  # fmt: skip

SINGLE = rows(
    ("modulation.lin", "norm.linear"),
    ("linear1", "attn.to_q", Rows(0, 1, 7)),
    ("linear1", "attn.to_k", Rows(1, 2, 7)),
    ("linear1", "attn.to_v", Rows(2, 3, 7)),
    ("linear1", "proj_mlp", Rows(3, 7, 7)),
    ("linear2", "proj_out"),
    ("norm.query_norm.scale", "attn.norm_q.weight"),
    ("norm.key_norm.scale", "attn.norm_k.weight"),
)
"""A single block: its feed-forward layer is four times as wide as its queries."""

BLOCKS = (
    rows(("img_in", "x_embedder"), ("txt_in", "context_embedder"), ("final_layer.linear", "proj_out"))
    + under("double_blocks.*", "transformer_blocks.*", IMAGE + TEXT)
    + under("single_blocks.*", "single_transformer_blocks.*", SINGLE)
)

FLUX = Table(
    BLOCKS
    + embedder("time_in", "timestep_embedder", "in_layer", "out_layer")
    + embedder("vector_in", "text_embedder", "in_layer", "out_layer")
    + embedder("guidance_in", "guidance_embedder", "in_layer", "out_layer")
    + rows(("final_layer.adaLN_modulation.1", "norm_out.linear", SwapHalves()))
)

FLUX2 = Table(
    rows(
        ("img_in", "x_embedder"),
        ("txt_in", "context_embedder"),
        ("time_in.in_layer", "time_guidance_embed.timestep_embedder.linear_1"),
        ("time_in.out_layer", "time_guidance_embed.timestep_embedder.linear_2"),
        ("guidance_in.in_layer", "time_guidance_embed.guidance_embedder.linear_1"),
        ("guidance_in.out_layer", "time_guidance_embed.guidance_embedder.linear_2"),
        ("double_stream_modulation_img.lin", "double_stream_modulation_img.linear"),
        ("double_stream_modulation_txt.lin", "double_stream_modulation_txt.linear"),
        ("single_stream_modulation.lin", "single_stream_modulation.linear"),
        ("final_layer.linear", "proj_out"),
        ("final_layer.adaLN_modulation.1", "norm_out.linear", SwapHalves()),
    )
    + under(
        "double_blocks.*",
        "transformer_blocks.*",
        stream("img", ("ff.linear_in", "ff.linear_out"), "norm1", IMAGE_QUERIES, ("norm_q", "norm_k"), "to_out.0")
        + stream(
            "txt", ("ff_context.linear_in", "ff_context.linear_out"), "norm1_context", TEXT_QUERIES,
            ("norm_added_q", "norm_added_k"), "to_add_out",
        ),
    )
    + under(
        "single_blocks.*",
        "single_transformer_blocks.*.attn",
        rows(
            ("linear1", "to_qkv_mlp_proj"),
            ("linear2", "to_out"),
            ("norm.query_norm.scale", "norm_q.weight"),
            ("norm.key_norm.scale", "norm_k.weight"),
        ),
    )
)  # fmt: skip

CHROMA = Table(
    BLOCKS
    + rows(
        ("distilled_guidance_layer.in_proj", "distilled_guidance_layer.in_proj"),
        ("distilled_guidance_layer.out_proj", "distilled_guidance_layer.out_proj"),
        ("distilled_guidance_layer.layers.*.in_layer", "distilled_guidance_layer.layers.*.linear_1"),
        ("distilled_guidance_layer.layers.*.out_layer", "distilled_guidance_layer.layers.*.linear_2"),
        ("distilled_guidance_layer.norms.*.scale", "distilled_guidance_layer.norms.*.weight"),
    )
)


def joint(side: str, attention: str, queries: tuple[str, ...], norms: tuple[str, str], out: str) -> tuple[Row, ...]:
    """An attention of a block of Stable Diffusion 3."""
    return stacked(f"{side}.{attention}.qkv", *(f"{attention}.{each}" for each in queries)) + rows(
        (f"{side}.{attention}.proj", f"{attention}.{out}"),
        (f"{side}.{attention}.ln_q", f"{attention}.{norms[0]}"),
        (f"{side}.{attention}.ln_k", f"{attention}.{norms[1]}"),
    )


JOINT = (
    joint("x_block", "attn", IMAGE_QUERIES, ("norm_q", "norm_k"), "to_out.0")
    + joint("x_block", "attn2", IMAGE_QUERIES, ("norm_q", "norm_k"), "to_out.0")
    + joint("context_block", "attn", TEXT_QUERIES, ("norm_added_q", "norm_added_k"), "to_add_out")
    + rows(
        ("x_block.adaLN_modulation.1", "norm1.linear"),
        ("x_block.mlp.fc1", "ff.net.0.proj"),
        ("x_block.mlp.fc2", "ff.net.2"),
        ("context_block.adaLN_modulation.1", "norm1_context.linear"),
        ("context_block.mlp.fc1", "ff_context.net.0.proj"),
        ("context_block.mlp.fc2", "ff_context.net.2"),
    )
)

SD3 = Table(
    embedder("t_embedder", "timestep_embedder", "mlp.0", "mlp.2")
    + embedder("y_embedder", "text_embedder", "mlp.0", "mlp.2")
    + rows(
        ("pos_embed", "pos_embed.pos_embed"),
        ("x_embedder.proj", "pos_embed.proj"),
        ("context_embedder", "context_embedder"),
        ("final_layer.linear", "proj_out"),
        ("final_layer.adaLN_modulation.1", "norm_out.linear", SwapHalves()),
        # the last block's text goes nowhere: it is only scaled and shifted before its keys and values are made
        ("joint_blocks.$.context_block.adaLN_modulation.1", "transformer_blocks.$.norm1_context.linear", SwapHalves()),
    )
    + under("joint_blocks.*", "transformer_blocks.*", JOINT)
)

Z_BLOCK = stacked("attention.qkv.weight", *(f"attention.{each}.weight" for each in IMAGE_QUERIES)) + rows(
    ("attention.out", "attention.to_out.0"),
    ("attention.q_norm", "attention.norm_q"),
    ("attention.k_norm", "attention.norm_k"),
    *(
        (each, each)
        for each in (
            "attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2", "feed_forward", "adaLN_modulation"
        )
    ),
)  # fmt: skip

Z_IMAGE = Table(
    rows(
        ("x_embedder", "all_x_embedder.2-1"),
        ("final_layer", "all_final_layer.2-1"),
        ("x_pad_token", "x_pad_token", AsRow()),
        ("cap_pad_token", "cap_pad_token", AsRow()),
        ("cap_embedder", "cap_embedder"),
        ("t_embedder", "t_embedder"),
        ("norm_final", "norm_final"),
    )
    + tuple(
        row
        for each in ("layers", "noise_refiner", "context_refiner")
        for row in under(f"{each}.*", f"{each}.*", Z_BLOCK)
    ),
    idle=("norm_final",),
)

QWEN_IMAGE = Table(
    rows(
        *(
            (each, each)
            for each in (
                "img_in",
                "txt_in",
                "txt_norm",
                "time_text_embed",
                "transformer_blocks",
                "norm_out",
                "proj_out",
            )
        )
    ),
    idle=("transformer_blocks.$.attn.to_add_out", "transformer_blocks.$.txt_mlp"),
)
"""Its authors' names are diffusers'. Nobody reads what the last block makes of the words."""

AS_FILED = Table(SAME.rows, idle=QWEN_IMAGE.idle)
"""A transformer of a folder of diffusers."""
