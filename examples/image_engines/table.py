"""The engines that are shipped: each a kind of network in a published configuration."""

from __future__ import annotations

from dataclasses import dataclass

from examples.image_engines import autoencoders, controls, flux2, qwen_image, tiny
from examples.image_engines import networks as kinds
from examples.image_engines.clip_vision import CLIP_VISION
from examples.image_engines.free_u import free
from examples.image_engines.image_prompts import prompted
from examples.image_engines.language_models import QWEN
from examples.image_engines.networks import Config, Kind
from examples.image_engines.qwen_vision import SEEING, VISUAL
from examples.image_engines.z_image import Z_IMAGE


@dataclass(frozen=True)
class Shipped:
    """An engine: the kind of its network and the configuration. `widened` names variants that only take other channels: for each
    the channels of the input, which its first layer multiplies."""

    kind: Kind
    config: Config
    variants: tuple[tuple[str, int], ...] = ()


CROSS, PLAIN = "CrossAttn{}Block2D", "{}Block2D"


def blocks(*attends: bool) -> Config:
    """A U-Net's blocks, down and up again, of which some attend to words."""
    return {
        "down_block_types": tuple((CROSS if each else PLAIN).format("Down") for each in attends),
        "up_block_types": tuple((CROSS if each else PLAIN).format("Up") for each in reversed(attends)),
    }


# runwayml/stable-diffusion-v1-5
SD1: Config = {
    **blocks(True, True, True, False),
    "sample_size": 64,
    "in_channels": 4,
    "block_out_channels": (320, 640, 1280, 1280),
    "layers_per_block": 2,
    "cross_attention_dim": 768,
    "attention_head_dim": 8,
}
# stabilityai/stable-diffusion-2-1
SD2: Config = {**SD1, "cross_attention_dim": 1024, "attention_head_dim": (5, 10, 20, 20), "use_linear_projection": True}
# stabilityai/stable-diffusion-xl-base-1.0
SDXL: Config = {
    **blocks(False, True, True),
    "sample_size": 128,
    "in_channels": 4,
    "block_out_channels": (320, 640, 1280),
    "layers_per_block": 2,
    "transformer_layers_per_block": (1, 2, 10),
    "cross_attention_dim": 2048,
    "attention_head_dim": (5, 10, 20),
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "conditions": 6,
}
# stabilityai/stable-diffusion-xl-refiner-1.0
REFINER: Config = {
    **SDXL,
    **blocks(False, True, True, False),
    "block_out_channels": (384, 768, 1536, 1536),
    "transformer_layers_per_block": 4,
    "cross_attention_dim": 1280,
    "attention_head_dim": (6, 12, 24, 24),
    "projection_class_embeddings_input_dim": 2560,
    "conditions": 5,
}
# segmind/SSD-1B
SSD1B: Config = {
    **SDXL,
    "mid_block_type": "UNetMidBlock2D",
    "transformer_layers_per_block": (1, (2, 2), (4, 4)),
    "reverse_transformer_layers_per_block": ((4, 4, 10), (2, 1, 1), 1),
}
VAE4: Config = {
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
}
# stabilityai/stable-diffusion-3-medium, black-forest-labs/FLUX.1-dev
VAE16: Config = {**VAE4, "latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False}
TAESD4: Config = {"latent_channels": 4}
TAESD16: Config = {"latent_channels": 16}
TAEF2: Config = {"latent_channels": 32}
# xinsir/controlnet-union-sdxl-1.0, and its "promax", which knows two kinds of pictures more
UNION: Config = {**SDXL, "num_control_type": 6, "num_trans_head": 8}
PROMAX: Config = {**UNION, "num_control_type": 8}
# diffusers/controlnet-canny-sdxl-1.0-mid, -small: the middle of the last has only what is around a transformer's layers
SDXL_MID: Config = {**SDXL, **blocks(False, False, True), "transformer_layers_per_block": (0, 0, 1)}
SDXL_SMALL: Config = {**SDXL, **blocks(False, False, False), "transformer_layers_per_block": 0}
# TencentARC/t2iadapter_depth_sd15v2, t2i-adapter-depth-midas-sdxl-1.0, t2iadapter_color_sd14v1
ADAPTER: Config = {
    "in_channels": 3,
    "channels": (320, 640, 1280, 1280),
    "num_res_blocks": 2,
    "downscale_factor": 8,
    "adapter_type": "full_adapter",
}
ADAPTER_XL: Config = {**ADAPTER, "downscale_factor": 16, "adapter_type": "full_adapter_xl"}
ADAPTER_LIGHT: Config = {
    **ADAPTER, "channels": (320, 640, 1280), "num_res_blocks": 4, "adapter_type": "light_adapter"
}  # fmt: skip
# openai/clip-vit-large-patch14
CLIP_L: Config = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "quick_gelu",
}
# the text encoders of stable-diffusion-2 and of stable-diffusion-xl-base-1.0, both of OpenCLIP
CLIP_H: Config = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "hidden_act": "gelu",
}
CLIP_G: Config = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "hidden_act": "gelu",
    "projection_dim": 1280,
}
# laion/CLIP-ViT-H-14-laion2B-s32B-b79K, laion/CLIP-ViT-bigG-14-laion2B-39B-b160k
VISION_H: Config = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "hidden_act": "gelu",
    "image_size": 224,
    "patch_size": 14,
    "projection_dim": 1024,
}
VISION_G: Config = {
    **VISION_H,
    "hidden_size": 1664,
    "intermediate_size": 8192,
    "num_hidden_layers": 48,
    "projection_dim": 1280,
}
# google/t5-v1_1-xxl
T5_XXL: Config = {
    "vocab_size": 32128,
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": False,
    "use_cache": False,
}
# stabilityai/stable-diffusion-3-medium, -3.5-medium, -3.5-large
SD3: Config = {
    "sample_size": 128,
    "patch_size": 2,
    "in_channels": 16,
    "num_layers": 24,
    "attention_head_dim": 64,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "caption_projection_dim": 1536,
    "pooled_projection_dim": 2048,
    "pos_embed_max_size": 192,
}
SD35_MEDIUM: Config = {
    **SD3,
    "pos_embed_max_size": 384,
    "dual_attention_layers": tuple(range(13)),
    "qk_norm": "rms_norm",
}
SD35_LARGE: Config = {
    **SD3,
    "num_layers": 38,
    "num_attention_heads": 38,
    "caption_projection_dim": 2432,
    "qk_norm": "rms_norm",
}
# black-forest-labs/FLUX.1-dev
FLUX: Config = {
    "in_channels": 64,
    "out_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": True,
}
# lodestones/Chroma
CHROMA: Config = {
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "joint_attention_dim": 4096,
    "approximator_num_channels": 64,
    "approximator_hidden_dim": 5120,
    "approximator_layers": 5,
}
# Tongyi-MAI/Z-Image-Turbo, Z-Image
Z_IMAGE_CONFIG: Config = {
    "in_channels": 16,
    "dim": 3840,
    "n_layers": 30,
    "n_refiner_layers": 2,
    "n_heads": 30,
    "n_kv_heads": 30,
    "cap_feat_dim": 2560,
    "axes_dims": (32, 48, 48),
}
# Qwen/Qwen3-4B, of which Z-Image reads the state after the last layer but one
QWEN3_4B: Config = {
    "model": "transformers.Qwen3Model",
    "taken": (35,),
    "vocab_size": 151936,
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
}
# black-forest-labs/FLUX.2-klein-4B and -9B; their text encoders are Qwen/Qwen3-4B and -8B
KLEIN_4B: Config = {
    "in_channels": 128,
    "num_layers": 5,
    "num_single_layers": 20,
    "num_attention_heads": 24,
    "joint_attention_dim": 7680,
    "guidance_embeds": False,
}
KLEIN_9B: Config = {
    **KLEIN_4B,
    "num_layers": 8,
    "num_single_layers": 24,
    "num_attention_heads": 32,
    "joint_attention_dim": 12288,
}
QWEN3_4B_JOINED: Config = {**QWEN3_4B, "taken": (9, 18, 27), "padded": True}
QWEN3_8B_JOINED: Config = {**QWEN3_4B_JOINED, "hidden_size": 4096, "intermediate_size": 12288}
VAE32: Config = {**VAE4, "latent_channels": 32}
# Qwen/Qwen-Image; its text encoder is the language model of Qwen/Qwen2.5-VL-7B-Instruct, its autoencoder that of Wan 2.1
QWEN_IMAGE: Config = {
    "in_channels": 64,
    "out_channels": 16,
    "num_layers": 60,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 3584,
    "axes_dims_rope": (16, 56, 56),
}
QWEN25_7B: Config = {
    "model": "transformers.Qwen2Model",
    "taken": (28,),
    "normed": True,
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
}
# the same: how it reads what it sees, and what sees
QWEN25_7B_SEEING: Config = {**QWEN25_7B, "sections": (16, 24, 24), "image": 151655}
QWEN25_7B_VISUAL: Config = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 3584,
    "patch_size": 14,
    "window_size": 112,
    "fullatt_block_indexes": (7, 15, 23, 31),
}
VAE_WAN: Config = {"base_dim": 96, "z_dim": 16}
# the small model that comes with the package (examples/shapes)
SHAPES_UNET: Config = {
    **SD1,
    "sample_size": 16,
    "block_out_channels": (32, 64, 96, 96),
    "cross_attention_dim": 48,
    "attention_head_dim": 4,
    "norm_num_groups": 16,
}
SHAPES_VAE: Config = {**VAE4, "block_out_channels": (16, 32, 64, 64), "norm_num_groups": 8}
SHAPES_CLIP: Config = {
    "vocab_size": 49408,
    "hidden_size": 48,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "hidden_act": "quick_gelu",
}

SHIPPED = {
    "unet_shapes": Shipped(kinds.UNET, SHAPES_UNET),
    "vae_shapes_decoder": Shipped(autoencoders.VAE_DECODER, SHAPES_VAE),
    "vae_shapes_encoder": Shipped(autoencoders.VAE_ENCODER, SHAPES_VAE),
    "clip_shapes": Shipped(kinds.CLIP, SHAPES_CLIP),
    "taesd_decoder": Shipped(tiny.TAESD_DECODER, TAESD4),
    "taesd_encoder": Shipped(tiny.TAESD_ENCODER, TAESD4),
    "taesd16_decoder": Shipped(tiny.TAESD_DECODER, TAESD16),
    "taesd16_encoder": Shipped(tiny.TAESD_ENCODER, TAESD16),
    "taef2_decoder": Shipped(tiny.TAEF2_DECODER, TAEF2),
    "taef2_encoder": Shipped(tiny.TAEF2_ENCODER, TAEF2),
    "taew2_1_decoder": Shipped(tiny.TAEW_DECODER, TAESD16),
    "taew2_1_encoder": Shipped(tiny.TAEW_ENCODER, TAESD16),
    "vae4_decoder": Shipped(autoencoders.VAE_DECODER, VAE4),
    "vae4_encoder": Shipped(autoencoders.VAE_ENCODER, VAE4),
    "vae16_decoder": Shipped(autoencoders.VAE_DECODER, VAE16),
    "vae16_encoder": Shipped(autoencoders.VAE_ENCODER, VAE16),
    "clip_l": Shipped(kinds.CLIP, CLIP_L),
    "clip_l_projected": Shipped(kinds.CLIP_PROJECTED, {**CLIP_L, "projection_dim": 768}),
    "clip_h": Shipped(kinds.CLIP, CLIP_H),
    "clip_g": Shipped(kinds.CLIP_PROJECTED, CLIP_G),
    "unet_sd1": Shipped(kinds.UNET, SD1, (("unet_sd1_inpaint", 9), ("unet_sd1_edit", 8))),
    "unet_sdxl": Shipped(kinds.UNET, SDXL, (("unet_sdxl_inpaint", 9),)),
    "unet_sd2": Shipped(kinds.UNET, SD2, (("unet_sd2_inpaint", 9),)),
    "t5_xxl": Shipped(kinds.T5, T5_XXL),
    "flux_dev": Shipped(kinds.FLUX, FLUX, (("flux_fill", 384), ("flux_control", 128))),
    "sd3_medium": Shipped(kinds.SD3, SD3),
    "sd35_medium": Shipped(kinds.SD3, SD35_MEDIUM),
    "unet_sdxl_refiner": Shipped(kinds.UNET, REFINER),
    "chroma": Shipped(kinds.CHROMA, CHROMA),
    "flux_schnell": Shipped(kinds.FLUX, {**FLUX, "guidance_embeds": False}),
    "sd35_large": Shipped(kinds.SD3, SD35_LARGE),
    "z_image": Shipped(Z_IMAGE, Z_IMAGE_CONFIG),
    "qwen3_4b": Shipped(QWEN, QWEN3_4B),
    "flux2_klein_4b": Shipped(flux2.FLUX2, KLEIN_4B),
    "qwen3_4b_joined": Shipped(QWEN, QWEN3_4B_JOINED),
    "vae32_decoder": Shipped(flux2.VAE_DECODER, VAE32),
    "vae32_encoder": Shipped(flux2.VAE_ENCODER, VAE32),
    "flux2_klein_9b": Shipped(flux2.FLUX2, KLEIN_9B),
    "qwen3_8b_joined": Shipped(QWEN, QWEN3_8B_JOINED),
    "qwen_image": Shipped(qwen_image.QWEN_IMAGE, QWEN_IMAGE),
    "qwen25_7b": Shipped(QWEN, QWEN25_7B),
    "qwen25_7b_seeing": Shipped(SEEING, QWEN25_7B_SEEING),
    "qwen25_7b_visual": Shipped(VISUAL, QWEN25_7B_VISUAL),
    "vae_wan_decoder": Shipped(qwen_image.VAE_DECODER, VAE_WAN),
    "vae_wan_encoder": Shipped(qwen_image.VAE_ENCODER, VAE_WAN),
    "unet_ssd1b": Shipped(kinds.UNET, SSD1B),
    "unet_sd1_controlled": Shipped(controls.controlled(SD1), SD1, (("unet_sd1_inpaint_controlled", 9),)),
    "unet_sd2_controlled": Shipped(controls.controlled(SD2), SD2, (("unet_sd2_inpaint_controlled", 9),)),
    "unet_sdxl_controlled": Shipped(controls.controlled(SDXL), SDXL, (("unet_sdxl_inpaint_controlled", 9),)),
    "unet_shapes_controlled": Shipped(controls.controlled(SHAPES_UNET), SHAPES_UNET),
    "unet_sd1_free": Shipped(free(SD1), SD1, (("unet_sd1_inpaint_free", 9), ("unet_sd1_edit_free", 8))),
    "unet_sd2_free": Shipped(free(SD2), SD2, (("unet_sd2_inpaint_free", 9),)),
    "unet_sdxl_free": Shipped(free(SDXL), SDXL, (("unet_sdxl_inpaint_free", 9),)),
    "unet_sdxl_refiner_free": Shipped(free(REFINER), REFINER),
    "unet_ssd1b_free": Shipped(free(SSD1B), SSD1B),
    "unet_shapes_free": Shipped(free(SHAPES_UNET), SHAPES_UNET),
    "unet_sd1_prompted": Shipped(prompted(SD1), SD1, (("unet_sd1_inpaint_prompted", 9),)),
    "unet_sdxl_prompted": Shipped(prompted(SDXL), SDXL, (("unet_sdxl_inpaint_prompted", 9),)),
    "clip_vision_h": Shipped(CLIP_VISION, VISION_H),
    "clip_vision_g": Shipped(CLIP_VISION, VISION_G),
    "controlnet_sd1": Shipped(controls.controlnet(SD1), SD1),
    "controlnet_sd2": Shipped(controls.controlnet(SD2), SD2),
    "controlnet_sdxl": Shipped(controls.controlnet(SDXL), SDXL),
    "controlnet_sdxl_mid": Shipped(controls.controlnet(SDXL_MID), SDXL_MID),
    "controlnet_sdxl_small": Shipped(controls.controlnet(SDXL_SMALL), SDXL_SMALL),
    "controlnet_shapes": Shipped(controls.controlnet(SHAPES_UNET), SHAPES_UNET),
    "controlnet_hint": Shipped(controls.HINT, SD1),
    "controlnet_shapes_hint": Shipped(controls.HINT, SHAPES_UNET),
    "controlnet_union_hint": Shipped(controls.UNION, UNION),
    "controlnet_promax_hint": Shipped(controls.UNION, PROMAX),
    "adapter_sd1": Shipped(controls.ADAPTER, ADAPTER, (("adapter_sd1_gray", 64),)),
    "adapter_sdxl": Shipped(controls.ADAPTER, ADAPTER_XL, (("adapter_sdxl_gray", 256),)),
    "adapter_light": Shipped(controls.ADAPTER, ADAPTER_LIGHT),
}
"""By the name of the engine's file."""
