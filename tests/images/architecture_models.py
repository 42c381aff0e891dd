"""Small models of each architecture: rows for the table, files in the authors' layout with seeded weights, and the same weights
in diffusers' and transformers' modules.

    small = SMALL["Stable Diffusion 1"]
    path = small.write(tmp_path)                        # a file as people have it
    model = load_model(path, architectures=[small.architecture], engines=ENGINES)
    small.module("denoiser", path), small.module("vae", path), small.module("clip_l", path)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import original_layouts as original
from original_layouts import Shapes, prefixed

from examples.image_engines import small as configs
from examples.image_engines.networks import made
from graphc.weights.layouts import detect
from graphc_images.models import ARCHITECTURES, Architecture, Part

ENGINES = Path(__file__).parent / "engines"
ROWS = {each.name: each for each in ARCHITECTURES}
DENOISER, FIRST = "model.diffusion_model.", "first_stage_model."
CLIP_L, T5 = "text_encoders.clip_l.transformer.", "text_encoders.t5xxl.transformer."
NARROW = {"width": 16, "context": 48}
VOCABULARY = 49408


@dataclass(frozen=True)
class Module:
    """A class of diffusers or transformers, its configuration, and what graphc calls the component."""

    path: str
    config: Mapping[str, Any]
    component: str


@dataclass(frozen=True)
class Small:
    """A small model: its row, the tensors of its file, and the modules that it becomes."""

    architecture: Architecture
    shapes: Shapes
    modules: Mapping[str, Module]

    def weights(self, seed: int = 0, dtype: Any = np.float32) -> dict[str, np.ndarray]:
        """Seeded numbers of a size that keeps what they are multiplied with about as large as it is."""
        random = np.random.default_rng(seed)
        return {name: drawn(random, name, shape).astype(dtype) for name, shape in self.shapes.items()}

    def write(self, folder: Path, seed: int = 0, dtype: Any = np.float32, name: str = "model.safetensors") -> Path:
        """A file of them."""
        save_file(self.weights(seed, dtype), folder / name)
        return folder / name

    def module(self, name: str, path: Path) -> Any:
        """PyTorch's module of a part (`denoiser`, `vae`, or a text encoder) with the weights of a file."""
        import torch

        told = self.modules[name]
        module = made(told.path, told.config)
        given = load_file(path)
        layout = detect({key: array.shape for key, array in given.items()})
        assert layout is not None
        sources = layout.sources(given)[told.component]
        found = {ours: np.array(each.array(given[each.name]), np.float32) for ours, each in sources.items()}
        own = {name: each for name, each in module.state_dict().items() if not name.endswith("num_batches_tracked")}
        bare = {key.removeprefix("text_model."): array for key, array in found.items()}
        state = {
            key: torch.from_numpy(found[key] if key in found else bare[key.removeprefix("text_model.")]) for key in own
        }
        module.load_state_dict(state, strict=len(own) == len(module.state_dict()))
        return module.eval().requires_grad_(False)


def drawn(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Seeded numbers for a tensor: scales near 1, small biases, matrices by what they sum."""
    array = random.standard_normal(shape, np.float32) if shape else np.float32(random.standard_normal())
    if len(shape) > 1:
        table = "embedding" in name or "shared" in name or "embed_tokens" in name or name.endswith("pos_embed")
        return np.asarray(array * np.float32(0.5 if table else np.prod(shape[1:]) ** -0.5))
    return np.asarray(array * np.float32(0.05) if "bias" in name else 1 + np.float32(0.1) * array)


def part(row: Part, engine: str) -> Part:
    return replace(row, engine=engine, projected=f"{engine}_projected" if row.projected else "")


def row(name: str, marks: Mapping[str, Any], denoiser: str, text: Mapping[str, str]) -> Architecture:
    """The row of an architecture, with other sizes and engines."""
    known = ROWS[name]
    encoders = {key: part(known.text[key], engine) for key, engine in text.items()}
    return replace(known, marks=marks, denoiser=replace(known.denoiser, engine=denoiser), text=encoders)


VAE = "diffusers.AutoencoderKL"
VAE4 = Module(VAE, {**configs.table.VAE4, **configs.VAE}, "vae")
VAE16 = Module(VAE, {**configs.table.VAE16, **configs.VAE}, "vae")
CLIP, PROJECTED = "transformers.CLIPTextModel", "transformers.CLIPTextModelWithProjection"
UNET = "diffusers.UNet2DConditionModel"
KEY = "attn2.to_k.weight"


def qwen_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers wants to know of an engine's configuration."""
    return {key: value for key, value in config.items() if key not in ("model", "taken", "padded", "normed")}


SMALL = {
    "Stable Diffusion 1": Small(
        row(
            "Stable Diffusion 1", {"input_blocks.0.0.weight": (16, 4, 3, 3)}, "unet_sd1", {"clip_l": "clip_48"},
        ),
        {
            **prefixed(DENOISER, original.unet(**{**original.SD1, **NARROW})),
            **prefixed(FIRST, original.vae(16)),
            **prefixed("cond_stage_model.transformer.", original.clip(48, 2, VOCABULARY)),
        },
        {
            "denoiser": Module(UNET, configs.SD1, "unet"), "vae": VAE4,
            "clip_l": Module(CLIP, configs.CLIP_48, "text_encoder"),
        },
    ),
    "Stable Diffusion XL": Small(
        row(
            "Stable Diffusion XL", {"input_blocks.0.0.weight": (16, 4, 3, 3), "label_emb.0.0.weight": (64, 80)}, "unet_sdxl",
            {"clip_l": "clip_16", "clip_g": "clip_32"},
        ),
        {
            **prefixed(DENOISER, original.unet(**{**original.SDXL, **NARROW, "depths": (0, 2, 3), "middle": 3, "pooled": 80})),
            **prefixed(FIRST, original.vae(16)),
            **prefixed("conditioner.embedders.0.transformer.", original.clip(16, 2, VOCABULARY)),
            **prefixed("conditioner.embedders.1.model.", original.openclip(32, 2, VOCABULARY)),
        },
        {
            "denoiser": Module(UNET, {k: v for k, v in configs.SDXL.items() if k != "conditions"}, "unet"), "vae": VAE4,
            "clip_l": Module(CLIP, configs.CLIP_16, "text_encoder"),
            "clip_g": Module(PROJECTED, configs.CLIP_32, "text_encoder_2"),
        },
    ),
    "Stable Diffusion 3.5 medium": Small(
        row(
            "Stable Diffusion 3.5 medium", {"joint_blocks.0.context_block.attn.qkv.weight": (192, 64)}, "sd3",
            {"clip_l": "clip_16", "clip_g": "clip_32", "t5xxl": "t5"},
        ),
        {
            **prefixed(DENOISER, original.sd3(3, 16, 16, 48, 48, 24, normed=True, dual=1, heads=4)),
            **prefixed(FIRST, original.vae(16, latents=16, quantized=False)),
            **prefixed(CLIP_L, original.clip(16, 2, VOCABULARY, projection=16)),
            **prefixed("text_encoders.clip_g.transformer.", original.clip(32, 2, VOCABULARY, projection=32)),
            **prefixed(T5, original.t5(48, 2, 4, 96)),
        },
        {
            "denoiser": Module("diffusers.SD3Transformer2DModel", configs.SD3, "transformer"), "vae": VAE16,
            "clip_l": Module(PROJECTED, {**configs.CLIP_16, "projection_dim": 16}, "text_encoder"),
            "clip_g": Module(PROJECTED, configs.CLIP_32, "text_encoder_2"),
            "t5xxl": Module("transformers.T5EncoderModel", configs.T5, "text_encoder_3"),
        },
    ),
    "Flux dev": Small(
        row(
            "Flux dev", {"double_blocks.0.img_attn.qkv.weight": (288, 96), "guidance_in.in_layer.weight": (96, 256)}, "flux",
            {"clip_l": "clip_16", "t5xxl": "t5"},
        ),
        {
            **prefixed(DENOISER, original.flux(96, 24, 2, 3, 64, 48, 16)),
            **prefixed(FIRST, original.vae(16, latents=16, quantized=False)),
            **prefixed(CLIP_L, original.clip(16, 2, VOCABULARY)),
            **prefixed(T5, original.t5(48, 2, 4, 96)),
        },
        {
            "denoiser": Module("diffusers.FluxTransformer2DModel", configs.FLUX, "transformer"), "vae": VAE16,
            "clip_l": Module(CLIP, configs.CLIP_16, "text_encoder"),
            "t5xxl": Module("transformers.T5EncoderModel", configs.T5, "text_encoder_2"),
        },
    ),
    "Chroma": Small(
        row("Chroma", {"distilled_guidance_layer.in_proj.weight": (80, 16)}, "chroma", {"t5xxl": "t5"}),
        {
            **prefixed(DENOISER, original.chroma(96, 24, 2, 3, 64, 48, 80, 2, 16)),
            **prefixed(FIRST, original.vae(16, latents=16, quantized=False)),
            **prefixed(T5, original.t5(48, 2, 4, 96)),
        },
        {
            "denoiser": Module("diffusers.ChromaTransformer2DModel", configs.CHROMA, "transformer"), "vae": VAE16,
            "t5xxl": Module("transformers.T5EncoderModel", configs.T5, "text_encoder"),
        },
    ),
    "Flux.2 klein 4B": Small(
        row("Flux.2 klein 4B", {"single_stream_modulation.lin.weight": (288, 96)}, "flux2_klein", {"llm": "qwen3_joined"}),
        {
            **prefixed(DENOISER, original.klein(96, 24, 2, 3, text=96)),
            **prefixed(FIRST, original.vae32(16)),
            **prefixed("text_encoders.qwen3_4b.transformer.", original.qwen3(48, 96, 3, 4, 2, 16)),
        },
        {
            "denoiser": Module("diffusers.Flux2Transformer2DModel", configs.KLEIN, "transformer"),
            "vae": Module("diffusers.AutoencoderKLFlux2", {**configs.table.VAE32, **configs.VAE}, "vae"),
            "llm": Module(
                "transformers.Qwen3Model", {**qwen_config(configs.QWEN3), "num_hidden_layers": 3}, "text_encoder"
            ),
        },
    ),
    "Qwen-Image": Small(
        row("Qwen-Image", {"txt_norm.weight": (48,)}, "qwen_image", {"llm": "qwen25"}),
        {
            **prefixed(DENOISER, original.qwen_image(96, 24, 3, 64, 48)),
            **prefixed(FIRST, original.wan_vae(8)),
            **prefixed("text_encoders.qwen25_7b.transformer.", original.qwen2(48, 96, 3, 4, 2, 12)),
        },
        {
            "denoiser": Module("diffusers.QwenImageTransformer2DModel", configs.QWEN_IMAGE, "transformer"),
            "vae": Module("diffusers.AutoencoderKLQwenImage", configs.VAE_WAN, "vae"),
            "llm": Module(
                "transformers.Qwen2Model", {**qwen_config(configs.QWEN25), "num_hidden_layers": 3}, "text_encoder"
            ),
        },
    ),
    "Z-Image": Small(
        row("Z-Image", {"cap_embedder.1.weight": (96, 48)}, "z_image", {"llm": "qwen3"}),
        {
            **prefixed(DENOISER, original.z_image(96, 24, 2, 1, 48)),
            **prefixed(FIRST, original.vae(16, latents=16, quantized=False)),
            **prefixed("text_encoders.qwen3_4b.transformer.", original.qwen3(48, 96, 3, 4, 2, 16)),
        },
        {
            "denoiser": Module("diffusers.ZImageTransformer2DModel", configs.Z_IMAGE_CONFIG, "transformer"), "vae": VAE16,
            "llm": Module(
                "transformers.Qwen3Model", {**qwen_config(configs.QWEN3), "num_hidden_layers": 3}, "text_encoder"
            ),
        },
    ),
}  # fmt: skip


def wider(name: str, base: str, engine: str, first: str, channels: int) -> Small:
    """A small model whose denoiser takes other channels, which the first layer reads."""
    plain = SMALL[base]
    before = plain.shapes[DENOISER + first]
    shape = (before[0], channels, *before[2:])
    known = plain.architecture
    changed = replace(
        known, name=name, marks={**known.marks, first: shape}, denoiser=replace(known.denoiser, engine=engine),
        extra=ROWS[name].extra, added=ROWS[name].added,
    )  # fmt: skip
    module = plain.modules["denoiser"]
    config = {**module.config, "in_channels": channels}
    if base == "Flux dev":
        config["out_channels"] = 64
    modules = {**plain.modules, "denoiser": replace(module, config=config)}
    return Small(changed, {**plain.shapes, DENOISER + first: shape}, modules)


FIRST_LAYER, PATCHES = "input_blocks.0.0.weight", "img_in.weight"
CLIP_H = "cond_stage_model.model."

SMALL_REFINER = {**original.REFINER, "width": 16, "depths": (0, 1, 1, 0), "middle": 1, "context": 32, "pooled": 72}

VARIANTS = {
    **{
        name: wider(name, base, engine, FIRST_LAYER if channels < 64 else PATCHES, channels)
        for name, base, engine, channels in (
            ("Stable Diffusion 1 inpainting", "Stable Diffusion 1", "unet_sd1_inpaint", 9),
            ("Stable Diffusion 1 instruct-pix2pix", "Stable Diffusion 1", "unet_sd1_edit", 8),
            ("Stable Diffusion XL inpainting", "Stable Diffusion XL", "unet_sdxl_inpaint", 9),
            ("Flux Fill", "Flux dev", "flux_fill", 384),
            ("Flux Canny or Depth", "Flux dev", "flux_control", 128),
        )
    },
    "Stable Diffusion 2": Small(
        row("Stable Diffusion 2", {"input_blocks.0.0.weight": (16, 4, 3, 3)}, "unet_sd2", {"clip_h": "clip_h"}),
        {
            **prefixed(DENOISER, original.unet(**{**original.SD2, **NARROW})),
            **prefixed(FIRST, original.vae(16)),
            **prefixed(CLIP_H, original.openclip(48, 2, VOCABULARY)),
        },
        {
            "denoiser": Module(UNET, configs.SD2, "unet"), "vae": VAE4,
            "clip_h": Module(CLIP, {**configs.CLIP_H, "num_hidden_layers": 1}, "text_encoder"),
        },
    ),
    "Stable Diffusion XL refiner": Small(
        row(
            "Stable Diffusion XL refiner", {"input_blocks.0.0.weight": (16, 4, 3, 3), "label_emb.0.0.weight": (64, 72)},
            "unet_sdxl_refiner", {"clip_g": "clip_32"},
        ),
        {
            **prefixed(DENOISER, original.unet(**SMALL_REFINER)),
            **prefixed(FIRST, original.vae(16)),
            **prefixed("conditioner.embedders.0.model.", original.openclip(32, 2, VOCABULARY)),
        },
        {
            "denoiser": Module(UNET, {k: v for k, v in configs.REFINER.items() if k != "conditions"}, "unet"), "vae": VAE4,
            "clip_g": Module(PROJECTED, configs.CLIP_32, "text_encoder_2"),
        },
    ),
}  # fmt: skip
"""Those that are used in another way, of which only whole pipelines are compared."""
