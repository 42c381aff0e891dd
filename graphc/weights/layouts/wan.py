"""The autoencoder of Wan 2.1, which Qwen-Image has too: as its authors' code names it, and as diffusers.

Source: the names in the published checkpoints, and the parameters of diffusers' AutoencoderKLQwenImage. It is one of videos; of
one frame alone, nobody reads what looks at several of them (`time_conv`).
"""

from __future__ import annotations

from graphc.weights.layouts.table import Row, Table, rows, under
from graphc.weights.layouts.unet import VAE_BEFORE, VAE_MODULES

RESIDUAL = rows(
    ("residual.0", "norm1"), ("residual.2", "conv1"), ("residual.3", "norm2"), ("residual.6", "conv2"),
    ("shortcut", "conv_shortcut"),
)  # fmt: skip
RESAMPLE = rows(("resample", "resample"), ("time_conv", "time_conv"))


def autoencoder(levels: int = 4) -> tuple[Row, ...]:
    """The autoencoder. All layers on the way down are numbered through, here too; on the way up, a level has three resnets and
    what enlarges the image, which are numbered through there alone."""
    made = rows(("conv1", "quant_conv"), ("conv2", "post_quant_conv"))
    for half in ("encoder", "decoder"):
        made += rows(
            (f"{half}.conv1", f"{half}.conv_in"),
            (f"{half}.middle.1", f"{half}.mid_block.attentions.0"),
            (f"{half}.head.0", f"{half}.norm_out"),
            (f"{half}.head.2", f"{half}.conv_out"),
        )
        for place in (0, 1):
            made += under(f"{half}.middle.{2 * place}", f"{half}.mid_block.resnets.{place}", RESIDUAL)
    made += under("encoder.downsamples.*", "encoder.down_blocks.*", RESIDUAL + RESAMPLE)
    for level in range(levels):
        theirs, ours = "decoder.upsamples.{}", f"decoder.up_blocks.{level}"
        for layer in range(3):
            made += under(theirs.format(4 * level + layer), f"{ours}.resnets.{layer}", RESIDUAL)
        made += under(theirs.format(4 * level + 3), f"{ours}.upsamplers.0", RESAMPLE)
    return made


MODULES = ("encoder.down_blocks.*.time_conv", "decoder.up_blocks.*.upsamplers.0.time_conv", *VAE_MODULES)
VAE = Table(autoencoder(), MODULES)
VAE_NAMED = Table(rows(*((each, each) for each in VAE_MODULES)), MODULES)
"""As diffusers names it."""

VAE_IN_FOLDER = Table(VAE_BEFORE.rows, MODULES)
"""The autoencoder of a folder of diffusers: this one, or that of Stable Diffusion."""
