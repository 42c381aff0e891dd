"""The architectures that are known: one row for each, with what it is recognized by, its engines, and how it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from graphc_images.models import latents
from graphc_images.models.latents import LatentFormat

Prediction = Literal["eps", "v", "edm", "flow"]
Sizes = Mapping[str, "tuple[int | None, ...] | None"]
"""Tensors by name, with their sizes: None for a size that may be anything, and for a tensor that must not be there."""


@dataclass(frozen=True)
class Part:
    """A component of a checkpoint: the engines that compute it, what graphc calls it in such a checkpoint (`component`), and what
    the names of its tensors begin with there (one of `prefixes`). If the file has the tensor `TEXT_PROJECTION` in it, `projected`
    is the engine instead, if there is one."""

    engine: str
    component: str
    prefixes: tuple[str, ...]
    projected: str = ""


@dataclass(frozen=True)
class Defaults:
    """What people use with such a model. `guidance` is the distilled one, of models that take it."""

    steps: int = 25
    cfg: float = 7.0
    sampler: str = "Euler a"
    scheduler: str = "Automatic"
    width: int = 512
    height: int = 512
    guidance: float | None = None


@dataclass(frozen=True)
class Architecture:
    """A kind of model. It is recognized by the denoiser's tensors: all names of `marks` are there, with these sizes.

    `kind` is how the denoiser takes its inputs (see `denoisers.py`). `text` are the encoders that it reads, by the names that
    `graphc_images.prompts` gives them. `prediction` is what the denoiser gives, unless the checkpoint's keys say otherwise, and
    `shift` that of a flow's times (for Flux its logarithm, at 4096 patches; 1 is for none). `extra` are the channels that are
    joined to the latent, and `added` says which these are: "inpaint" a mask and the latent of what is kept, "fill" the same as
    Flux has it, "edit" the latent of a picture, "control" that of edges or depth. `sizes` is how many numbers about sizes it
    takes. `family` are the models for which its ControlNets and adapters are made.
    """

    name: str
    kind: str
    marks: Sizes
    denoiser: Part
    vae: Part
    latent: LatentFormat
    text: Mapping[str, Part] = field(default_factory=dict)
    prediction: Prediction = "eps"
    shift: float | None = None
    extra: int = 0
    added: str = ""
    sizes: int = 0
    defaults: Defaults = Defaults()
    family: str = ""

    @property
    def refers(self) -> bool:
        """True if it looks at pictures of reference; nothing in a file says whether it was trained for that."""
        return self.kind in ("flux", "flux2", "qwen_image")


DENOISER = ("model.diffusion_model.", "unet/", "transformer/", "")
AUTOENCODER = ("first_stage_model.", "vae/", "vae.")
FIRST = "input_blocks.0.0.weight"
LATER = "input_blocks.{}.1.transformer_blocks.0.attn2.to_k.weight"
POOLED = "label_emb.0.0.weight"
TEXT_PROJECTION = "text_projection.weight"

SD1, SD2, SDXL, SMALL = "Stable Diffusion 1", "Stable Diffusion 2", "Stable Diffusion XL", "coloured shapes"
"""Families: what their ControlNets and adapters are for."""


def unet(engine: str) -> Part:
    """A U-Net."""
    return Part(engine, "unet", DENOISER)


def transformer(engine: str) -> Part:
    """A transformer."""
    return Part(engine, "transformer", DENOISER)


VAE4 = Part("vae4", "vae", AUTOENCODER)
VAE32 = Part("vae32", "vae", AUTOENCODER)
VAE16 = Part("vae16", "vae", AUTOENCODER)
VAE_WAN = Part("vae_wan", "vae", AUTOENCODER)
CLIP_L1 = Part("clip_l", "text_encoder", ("cond_stage_model.transformer.", "text_encoder/"))
CLIP_H2 = Part("clip_h", "text_encoder", ("cond_stage_model.model.", "text_encoder/"))
CLIP_LX = Part("clip_l", "text_encoder", ("conditioner.embedders.0.transformer.", "text_encoder/"))
CLIP_GX = Part("clip_g", "text_encoder_2", ("conditioner.embedders.1.model.", "text_encoder_2/"))
CLIP_GR = Part("clip_g", "text_encoder_2", ("conditioner.embedders.0.model.", "text_encoder_2/"))
CLIP_L3 = Part("clip_l", "text_encoder", ("text_encoders.clip_l.", "text_encoder/"), projected="clip_l_projected")
CLIP_G3 = Part("clip_g", "text_encoder_2", ("text_encoders.clip_g.", "text_encoder_2/"))
T5_3 = Part("t5_xxl", "text_encoder_3", ("text_encoders.t5xxl.", "text_encoder_3/"))
CLIP_LF = Part("clip_l", "text_encoder", ("text_encoders.clip_l.", "text_encoder/"))
T5_F = Part("t5_xxl", "text_encoder_2", ("text_encoders.t5xxl.", "text_encoder_2/"))
QWEN_Z = Part("qwen3_4b", "text_encoder", ("text_encoders.qwen3_4b.", "text_encoder/"))
QWEN_4B = Part("qwen3_4b_joined", "text_encoder", ("text_encoders.qwen3_4b.", "text_encoder/"))
QWEN_8B = Part("qwen3_8b_joined", "text_encoder", ("text_encoders.qwen3_8b.", "text_encoder/"))
QWEN25 = Part("qwen25_7b", "text_encoder", ("text_encoders.qwen25_7b.", "text_encoder/"))
T5_C = Part("t5_xxl", "text_encoder", ("text_encoders.t5xxl.", "text_encoder/"))

SD1_TEXT = {"clip_l": CLIP_L1}
SDXL_TEXT = {"clip_l": CLIP_LX, "clip_g": CLIP_GX}
SD3_TEXT = {"clip_l": CLIP_L3, "clip_g": CLIP_G3, "t5xxl": T5_3}
FLUX_TEXT = {"clip_l": CLIP_LF, "t5xxl": T5_F}
ADDED = {4: "", 8: "edit", 9: "inpaint", 64: "", 128: "control", 384: "fill"}
"""By the channels that a denoiser takes, of U-Nets and of Flux."""

SQUARE_XL = Defaults(30, 6.0, width=1024, height=1024)
SD3_DEFAULTS = Defaults(28, 4.5, "Euler", "SGM Uniform", 1024, 1024)
FLUX_DEFAULTS = Defaults(20, 1.0, "Euler", "Simple", 1024, 1024, 3.5)


def sd1(name: str, channels: int, engine: str, defaults: Defaults = Defaults()) -> Architecture:
    """Stable Diffusion 1, whose denoiser takes so many channels."""
    marks = {FIRST: (320, channels, 3, 3), LATER.format(1): (320, 768)}
    return Architecture(
        name, "unet", marks, unet(engine), VAE4, latents.SD1, SD1_TEXT, extra=channels - 4, added=ADDED[channels],
        defaults=defaults, family=SD1,
    )  # fmt: skip


def sd2(name: str, channels: int, engine: str) -> Architecture:
    """Stable Diffusion 2: 2.0 and 2.1 have the same tensors, and those that predict velocity are told by their numbers."""
    marks = {FIRST: (320, channels, 3, 3), LATER.format(1): (320, 1024)}
    return Architecture(
        name, "unet", marks, unet(engine), VAE4, latents.SD1, {"clip_h": CLIP_H2}, extra=channels - 4,
        added=ADDED[channels], defaults=Defaults(25, 7.0, width=768, height=768), family=SD2,
    )  # fmt: skip


def sdxl(name: str, channels: int, engine: str, middle: Sizes, family: str = SDXL) -> Architecture:
    """Stable Diffusion XL."""
    marks = {FIRST: (320, channels, 3, 3), LATER.format(4): (640, 2048), POOLED: (1280, 2816), **middle}
    return Architecture(
        name,
        "unet",
        marks,
        unet(engine),
        VAE4,
        latents.SDXL,
        SDXL_TEXT,
        extra=channels - 4,
        added=ADDED[channels],
        sizes=6,
        defaults=SQUARE_XL,
        family=family,
    )


XL_MIDDLE: Sizes = {
    "middle_block.1.transformer_blocks.9.attn2.to_k.weight": (1280, 2048),
    "middle_block.1.transformer_blocks.10.attn2.to_k.weight": None,
    "input_blocks.7.1.transformer_blocks.9.attn2.to_k.weight": (1280, 2048),
}
SSD1B_MIDDLE: Sizes = {
    "middle_block.1.transformer_blocks.0.attn2.to_k.weight": None,
    "input_blocks.7.1.transformer_blocks.3.attn2.to_k.weight": (1280, 2048),
    "input_blocks.7.1.transformer_blocks.4.attn2.to_k.weight": None,
}

QKV = "joint_blocks.0.context_block.attn.qkv.weight"


def sd3(name: str, engine: str, layers: int, marks: Sizes, defaults: Defaults = SD3_DEFAULTS) -> Architecture:
    """Stable Diffusion 3 and 3.5, with so many layers of 64 channels each."""
    width = 64 * layers
    known = {
        QKV: (3 * width, width),
        f"joint_blocks.{layers - 1}.x_block.attn.qkv.weight": (3 * width, width),
        f"joint_blocks.{layers}.x_block.attn.qkv.weight": None,
    }
    return Architecture(
        name,
        "sd3",
        {**known, **marks},
        transformer(engine),
        VAE16,
        latents.SD3,
        SD3_TEXT,
        "flow",
        3.0,
        defaults=defaults,
    )


NORMS, SECOND = "joint_blocks.0.x_block.attn.ln_q.weight", "joint_blocks.0.x_block.attn2.qkv.weight"
PLACES = "pos_embed"

DOUBLE, IMAGE, GUIDANCE = "double_blocks.0.img_attn.qkv.weight", "img_in.weight", "guidance_in.in_layer.weight"
DISTILLED = "distilled_guidance_layer.in_proj.weight"


def flux(name: str, engine: str, channels: int, guided: bool, defaults: Defaults) -> Architecture:
    """Flux.1, whose denoiser takes so many numbers for each patch."""
    marks: Sizes = {
        DOUBLE: (9216, 3072),
        "double_blocks.18.img_attn.qkv.weight": (9216, 3072),
        "double_blocks.19.img_attn.qkv.weight": None,
        "single_blocks.37.linear1.weight": (21504, 3072),
        "single_blocks.38.linear1.weight": None,
        IMAGE: (3072, channels),
        GUIDANCE: (3072, 256) if guided else None,
        DISTILLED: None,
    }
    return Architecture(
        name, "flux", marks, transformer(engine), VAE16, latents.FLUX, FLUX_TEXT, "flow", 1.15 if guided else 1.0,
        extra=channels // 4 - 16, added=ADDED[channels], defaults=defaults,
    )  # fmt: skip


SHARED = "single_stream_modulation.lin.weight"


def flux2_klein(name: str, engine: str, heads: int, blocks: tuple[int, int], text: Part) -> Architecture:
    """Flux.2 klein, with heads of 128 channels and so many double and single blocks."""
    width, (double, single) = 128 * heads, blocks
    marks: Sizes = {
        SHARED: (3 * width, width),
        f"double_blocks.{double - 1}.img_attn.qkv.weight": (3 * width, width),
        f"double_blocks.{double}.img_attn.qkv.weight": None,
        f"single_blocks.{single - 1}.norm.query_norm.scale": (128,),
        f"single_blocks.{single}.norm.query_norm.scale": None,
        IMAGE: (width, 128),
        GUIDANCE: None,
    }
    return Architecture(
        name, "flux2", marks, transformer(engine), VAE32, latents.FLUX2, {"llm": text}, "flow",
        defaults=Defaults(4, 1.0, "Euler", "Flux2", 1024, 1024),
    )  # fmt: skip


WORDS_IN = "cap_embedder.1.weight"
Z_QKV = "layers.{}.attention.qkv.weight"
Z_IMAGE_MARKS: Sizes = {
    WORDS_IN: (3840, 2560), Z_QKV.format(0): (11520, 3840), Z_QKV.format(29): (11520, 3840), Z_QKV.format(30): None,
    "siglip_embedder.1.weight": None,
}  # fmt: skip

MODULATION = "transformer_blocks.{}.img_mod.1.weight"
QWEN_IMAGE_MARKS: Sizes = {
    "txt_norm.weight": (3584,), MODULATION.format(0): (18432, 3072), IMAGE: (3072, 64),
    MODULATION.format(59): (18432, 3072), MODULATION.format(60): None,
    "time_text_embed.addition_t_embedding.weight": None, "__index_timestep_zero__": None,
}  # fmt: skip
"""The last two are those of Qwen-Image-Layered, and of Qwen-Image-Edit since 2511."""

SHAPES = Architecture(
    "coloured shapes", "unet", {FIRST: (32, 4, 3, 3), LATER.format(1): (32, 48)},
    unet("unet_shapes"), Part("vae_shapes", "vae", AUTOENCODER), latents.SHAPES,
    {"clip_l": Part("clip_shapes", "text_encoder", CLIP_L1.prefixes)}, defaults=Defaults(20, 2.5, width=128, height=128),
    family=SMALL,
)  # fmt: skip
"""The small model that comes with the package: Stable Diffusion 1's structure, trained on pictures that a script draws."""

ARCHITECTURES: tuple[Architecture, ...] = (
    SHAPES,
    sd1("Stable Diffusion 1", 4, "unet_sd1"),
    sd1("Stable Diffusion 1 inpainting", 9, "unet_sd1_inpaint"),
    sd1("Stable Diffusion 1 instruct-pix2pix", 8, "unet_sd1_edit"),
    sd2("Stable Diffusion 2", 4, "unet_sd2"),
    sd2("Stable Diffusion 2 inpainting", 9, "unet_sd2_inpaint"),
    sdxl("Stable Diffusion XL", 4, "unet_sdxl", XL_MIDDLE),
    sdxl("Stable Diffusion XL inpainting", 9, "unet_sdxl_inpaint", XL_MIDDLE),
    sdxl("SSD-1B", 4, "unet_ssd1b", SSD1B_MIDDLE, family=""),
    Architecture(
        "Stable Diffusion XL refiner", "unet",
        {FIRST: (384, 4, 3, 3), LATER.format(4): (768, 1280), POOLED: (1536, 2560)},
        unet("unet_sdxl_refiner"), VAE4, latents.SDXL, {"clip_g": CLIP_GR}, sizes=5, defaults=SQUARE_XL,
    ),
    sd3("Stable Diffusion 3 medium", "sd3_medium", 24, {NORMS: None, SECOND: None, PLACES: (1, 192 * 192, 1536)}),
    sd3("Stable Diffusion 3.5 medium", "sd35_medium", 24, {NORMS: (64,), SECOND: (4608, 1536)}),
    sd3("Stable Diffusion 3.5 large", "sd35_large", 38, {NORMS: (64,), SECOND: None}),
    Architecture(
        "Chroma", "chroma",
        {DISTILLED: (5120, 64), DOUBLE: (9216, 3072), IMAGE: (3072, 64), "single_blocks.37.linear1.weight": (21504, 3072)},
        transformer("chroma"), VAE16, latents.FLUX, {"t5xxl": T5_C}, "flow", 1.0,
        defaults=Defaults(26, 4.0, "Euler", "Beta", 1024, 1024),
    ),
    Architecture(
        "Z-Image", "z_image", Z_IMAGE_MARKS, transformer("z_image"), VAE16, latents.FLUX, {"llm": QWEN_Z}, "flow", 3.0,
        defaults=Defaults(9, 1.0, "Euler", "Simple", 1024, 1024),
    ),
    Architecture(
        "Qwen-Image", "qwen_image", QWEN_IMAGE_MARKS, transformer("qwen_image"), VAE_WAN, latents.WAN, {"llm": QWEN25},
        "flow", 1.15, defaults=Defaults(20, 2.5, "Euler", "Simple", 1328, 1328),
    ),
    flux2_klein("Flux.2 klein 4B", "flux2_klein_4b", 24, (5, 20), QWEN_4B),
    flux2_klein("Flux.2 klein 9B", "flux2_klein_9b", 32, (8, 24), QWEN_8B),
    flux("Flux dev", "flux_dev", 64, True, FLUX_DEFAULTS),
    flux("Flux schnell", "flux_schnell", 64, False, Defaults(4, 1.0, "Euler", "Simple", 1024, 1024)),
    flux("Flux Fill", "flux_fill", 384, True, Defaults(50, 1.0, "Euler", "Simple", 1024, 1024, 30.0)),
    flux("Flux Canny or Depth", "flux_control", 128, True, Defaults(50, 1.0, "Euler", "Simple", 1024, 1024, 10.0)),
)  # fmt: skip
"""In no particular order: no two have marks that the same file has."""
