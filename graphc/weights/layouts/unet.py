"""The U-Nets of Stable Diffusion, what steers them, and the autoencoder: as their authors' code names them, and as diffusers.

Source: the names in the published checkpoints, and the parameters of diffusers' UNet2DConditionModel, ControlNetModel,
ControlNetUnionModel, T2IAdapter and AutoencoderKL. A level of the U-Net has two resnets on the way down and three on the way up,
each with an attention or without; theirs are numbered through.
"""

from __future__ import annotations

from graphc.weights.layouts.table import Flat, Row, Table, rows, under

RESNET = rows(
    ("in_layers.0", "norm1"),
    ("in_layers.2", "conv1"),
    ("emb_layers.1", "time_emb_proj"),
    ("out_layers.0", "norm2"),
    ("out_layers.3", "conv2"),
    ("skip_connection", "conv_shortcut"),
)
CONDITION = rows(("label_emb.0.0", "add_embedding.linear_1"), ("label_emb.0.2", "add_embedding.linear_2"))
"""SDXL's sizes and pooled text."""


def encoder(levels: int) -> tuple[Row, ...]:
    """Down to the middle: what a U-Net and its ControlNet have in common."""
    made = rows(
        ("time_embed.0", "time_embedding.linear_1"),
        ("time_embed.2", "time_embedding.linear_2"),
        ("input_blocks.0.0", "conv_in"),
        ("middle_block.1", "mid_block.attentions.0"),
    )
    made += under("middle_block.0", "mid_block.resnets.0", RESNET) + under(
        "middle_block.2", "mid_block.resnets.1", RESNET
    )
    for level in range(levels):
        for layer in range(2):
            block = f"input_blocks.{3 * level + layer + 1}"
            made += under(f"{block}.0", f"down_blocks.{level}.resnets.{layer}", RESNET)
            made += rows((f"{block}.1", f"down_blocks.{level}.attentions.{layer}"))
        made += rows((f"input_blocks.{3 * level + 3}.0.op", f"down_blocks.{level}.downsamplers.0.conv"))
    return made


def unet(levels: int, deepest_attends: bool) -> tuple[Row, ...]:
    """A U-Net. Where the deepest level has no attention, the convolution that follows is number 1 of its block, not 2."""
    made = encoder(levels) + rows(("out.0", "conv_norm_out"), ("out.2", "conv_out"))
    for level in range(levels):
        for layer in range(3):
            block = f"output_blocks.{3 * level + layer}"
            made += under(f"{block}.0", f"up_blocks.{level}.resnets.{layer}", RESNET)
            made += rows((f"{block}.1", f"up_blocks.{level}.attentions.{layer}"))
        place = 2 if level or deepest_attends else 1
        made += rows((f"output_blocks.{3 * level + 2}.{place}.conv", f"up_blocks.{level}.upsamplers.0.conv"))
    return made


def controlnet(levels: int) -> tuple[Row, ...]:
    """A ControlNet; the image that it follows goes through eight convolutions, every second one of a SiLU."""
    return (
        encoder(levels)
        + rows(
            ("zero_convs.*.0", "controlnet_down_blocks.*"),
            ("middle_block_out.0", "controlnet_mid_block"),
            ("input_hint_block.0", "controlnet_cond_embedding.conv_in"),
            ("input_hint_block.14", "controlnet_cond_embedding.conv_out"),
        )
        + rows(
            *(
                (f"input_hint_block.{2 * place}", f"controlnet_cond_embedding.blocks.{place - 1}")
                for place in range(1, 7)
            )
        )
    )


UNET = Table(unet(4, deepest_attends=False))
UNET_XL = Table(unet(3, deepest_attends=True) + CONDITION)
UNET_REFINER = Table(unet(4, deepest_attends=False) + CONDITION)

UNION_MODULES = ("task_embedding", "transformer_layes", "spatial_ch_projs", "control_add_embedding")
"""Of ControlNets that are told what kind of picture they follow."""

CONTROLNET_MODULES = (
    "time_embedding", "add_embedding", "conv_in", "down_blocks.*", "mid_block", "controlnet_cond_embedding",
    "controlnet_down_blocks.*", "controlnet_mid_block", *UNION_MODULES,
)  # fmt: skip
CONTROLNET = Table(controlnet(4), CONTROLNET_MODULES)
CONTROLNET_XL = Table(controlnet(3) + CONDITION, CONTROLNET_MODULES)
CONTROLNET_NAMED = Table(rows(*((each, each) for each in CONTROLNET_MODULES)), CONTROLNET_MODULES)
"""A ControlNet as diffusers names it."""


def adapter(levels: int = 4, layers: int = 2) -> tuple[Row, ...]:
    """A T2I-Adapter, whose authors number the layers of all levels through."""
    made = rows(("conv_in", "adapter.conv_in"))
    for level in range(levels):
        made += rows((f"body.{layers * level}.in_conv", f"adapter.body.{level}.in_conv"))
        made += rows(
            *(
                (f"body.{layers * level + layer}.block{number}", f"adapter.body.{level}.resnets.{layer}.block{number}")
                for layer in range(layers)
                for number in (1, 2)
            )
        )
    return made


ADAPTER = Table(adapter())
ADAPTER_LIGHT = Table(
    rows(
        ("body.*.in_conv", "adapter.body.*.in_conv"),
        ("body.*.body.*", "adapter.body.*.resnets.*"),
        ("body.*.out_conv", "adapter.body.*.out_conv"),
    )
)
ADAPTER_NAMED = Table(rows(("adapter", "adapter")))
"""A T2I-Adapter as diffusers names it."""

VAE_ATTENTION = rows(
    ("norm", "group_norm"), ("q", "to_q", Flat()), ("k", "to_k", Flat()), ("v", "to_v", Flat()),
    ("proj_out", "to_out.0", Flat()),
)  # fmt: skip


def autoencoder(levels: int = 4) -> tuple[Row, ...]:
    """The autoencoder; the levels of its decoder are numbered the other way around."""
    made = rows(("quant_conv", "quant_conv"), ("post_quant_conv", "post_quant_conv"))
    for half in ("encoder", "decoder"):
        made += rows(
            (f"{half}.conv_in", f"{half}.conv_in"),
            (f"{half}.conv_out", f"{half}.conv_out"),
            (f"{half}.norm_out", f"{half}.conv_norm_out"),
            (f"{half}.mid.block_1", f"{half}.mid_block.resnets.0"),
            (f"{half}.mid.block_2", f"{half}.mid_block.resnets.1"),
            (f"{half}.mid.block_1.nin_shortcut", f"{half}.mid_block.resnets.0.conv_shortcut"),
        )
        made += under(f"{half}.mid.attn_1", f"{half}.mid_block.attentions.0", VAE_ATTENTION)
    for level in range(levels):
        places = (
            ("encoder.down", level, "encoder.down_blocks", "downsample"),
            ("decoder.up", levels - 1 - level, "decoder.up_blocks", "upsample"),
        )
        for theirs, number, ours, resample in places:
            made += rows(
                (f"{theirs}.{number}.block.*", f"{ours}.{level}.resnets.*"),
                (f"{theirs}.{number}.block.*.nin_shortcut", f"{ours}.{level}.resnets.*.conv_shortcut"),
                (f"{theirs}.{number}.{resample}", f"{ours}.{level}.{resample}rs.0"),
            )
    return made


TINY_MODULES = ("encoder", "decoder")
TINY = Table(rows(*((each, each) for each in TINY_MODULES)), TINY_MODULES)
"""TAESD as diffusers names it."""

TINY_ENCODER = Table(rows(("*", "encoder.layers.*")))
TINY_DECODER = Table(rows(*((str(place), f"decoder.layers.{place - 1}") for place in range(1, 20))))
"""Its halves in files of their own, whose layers are only numbered; the decoder's first limits the latent and has no weights."""

VAE_MODULES = ("encoder", "quant_conv", "decoder", "post_quant_conv", "bn")
VAE = Table(autoencoder(), VAE_MODULES)
VAE_PACKED = Table(
    rows(("encoder.quant_conv", "quant_conv"), ("decoder.post_quant_conv", "post_quant_conv"), ("bn", "bn"))
    + autoencoder(),
    VAE_MODULES,
)
"""Flux.2's, which has the convolutions on the latent within its halves, and statistics of packed latents."""

VAE_BEFORE = Table(
    rows(*((each, each) for each in VAE_MODULES))
    + rows(
        *(
            (f"{half}.mid_block.attentions.0.{theirs}", f"{half}.mid_block.attentions.0.{ours}")
            for half in ("encoder", "decoder")
            for theirs, ours in (("query", "to_q"), ("key", "to_k"), ("value", "to_v"), ("proj_attn", "to_out.0"))
        )
    ),
    VAE_MODULES,
)
"""The autoencoder as diffusers named it at first, and as many folders have it; today's names are in it too."""
