"""The same networks, small: tests run them, by engines that lie in tests/images/engines.

python -m examples.image_engines --small
"""

from __future__ import annotations

from examples.image_engines import autoencoders, controls, flux2, qwen_image, table
from examples.image_engines import networks as kinds
from examples.image_engines.clip_vision import CLIP_VISION
from examples.image_engines.free_u import free
from examples.image_engines.image_prompts import prompted
from examples.image_engines.language_models import QWEN
from examples.image_engines.networks import Config
from examples.image_engines.qwen_vision import SEEING, VISUAL
from examples.image_engines.table import Shipped
from examples.image_engines.z_image import Z_IMAGE

NARROW: Config = {"block_out_channels": (16, 32, 64, 64), "norm_num_groups": 4, "sample_size": 16}
SD1: Config = {**table.SD1, **NARROW, "attention_head_dim": 2, "cross_attention_dim": 48}
SDXL: Config = {
    **table.SDXL,
    **NARROW,
    "block_out_channels": (16, 32, 64),
    "transformer_layers_per_block": (1, 2, 3),
    "attention_head_dim": (1, 2, 4),
    "cross_attention_dim": 48,
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 80,
}
SDXL_MID: Config = {**SDXL, **table.blocks(False, False, True), "transformer_layers_per_block": (0, 0, 1)}
SDXL_SMALL: Config = {**SDXL, **table.blocks(False, False, False), "transformer_layers_per_block": 0}
SD2: Config = {**SD1, "use_linear_projection": True}
REFINER: Config = {
    **table.REFINER,
    **NARROW,
    "transformer_layers_per_block": 1,
    "attention_head_dim": (1, 2, 4, 4),
    "cross_attention_dim": 32,
    "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 72,
}
VAE: Config = {**NARROW, "sample_size": 64}
CLIP: Config = {"num_hidden_layers": 2, "num_attention_heads": 2}
CLIP_48: Config = {**table.CLIP_L, **CLIP, "hidden_size": 48, "intermediate_size": 192}
CLIP_16: Config = {**table.CLIP_L, **CLIP, "hidden_size": 16, "intermediate_size": 64}
CLIP_H: Config = {**CLIP_48, "hidden_act": "gelu"}
CLIP_32: Config = {**table.CLIP_G, **CLIP, "hidden_size": 32, "intermediate_size": 128, "projection_dim": 32}
VISION: Config = {
    **table.VISION_H,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 56,
    "projection_dim": 16,
}
T5: Config = {**table.T5_XXL, "d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4}
SD3: Config = {
    **table.SD3,
    "sample_size": 16,
    "num_layers": 3,
    "attention_head_dim": 16,
    "num_attention_heads": 4,
    "joint_attention_dim": 48,
    "caption_projection_dim": 64,
    "pooled_projection_dim": 48,
    "pos_embed_max_size": 24,
    "dual_attention_layers": (0,),
    "qk_norm": "rms_norm",
}
FLUX: Config = {
    **table.FLUX,
    "num_layers": 2,
    "num_single_layers": 3,
    "attention_head_dim": 24,
    "num_attention_heads": 4,
    "joint_attention_dim": 48,
    "pooled_projection_dim": 16,
    "axes_dims_rope": (8, 8, 8),
}
CHROMA: Config = {
    **{key: value for key, value in FLUX.items() if key not in ("pooled_projection_dim", "guidance_embeds")},
    "approximator_num_channels": 16,
    "approximator_hidden_dim": 80,
    "approximator_layers": 2,
}
Z_IMAGE_CONFIG: Config = {
    **table.Z_IMAGE_CONFIG,
    "dim": 96,
    "n_layers": 2,
    "n_refiner_layers": 1,
    "n_heads": 4,
    "n_kv_heads": 4,
    "cap_feat_dim": 48,
    "axes_dims": (8, 8, 8),
}
QWEN3: Config = {
    **table.QWEN3_4B,
    "taken": (2,),
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
KLEIN: Config = {
    **table.KLEIN_4B,
    "num_layers": 2,
    "num_single_layers": 3,
    "attention_head_dim": 24,
    "num_attention_heads": 4,
    "joint_attention_dim": 96,
    "axes_dims_rope": (6, 6, 6, 6),
}
QWEN3_JOINED: Config = {**QWEN3, "taken": (1, 2), "padded": True}
QWEN_IMAGE: Config = {
    **table.QWEN_IMAGE,
    "num_layers": 3,
    "attention_head_dim": 24,
    "num_attention_heads": 4,
    "joint_attention_dim": 48,
    "axes_dims_rope": (8, 8, 8),
}
QWEN25: Config = {
    **table.QWEN25_7B,
    "taken": (3,),
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
QWEN25_SEEING: Config = {**QWEN25, "sections": (2, 2, 2), "image": table.QWEN25_7B_SEEING["image"]}
QWEN25_VISUAL: Config = {
    **table.QWEN25_7B_VISUAL,
    "depth": 4,
    "hidden_size": 32,
    "num_heads": 2,
    "out_hidden_size": 48,
    "fullatt_block_indexes": (1, 3),
}
VAE_WAN: Config = {**table.VAE_WAN, "base_dim": 8}
UNION: Config = {**SDXL, "num_control_type": 6, "num_trans_head": 2}
ADAPTER: Config = {**table.ADAPTER, "channels": (16, 32, 64, 64)}
ADAPTER_XL: Config = {**table.ADAPTER_XL, "channels": (16, 32, 64, 64)}
ADAPTER_LIGHT: Config = {**table.ADAPTER_LIGHT, "channels": (16, 32, 64)}

SMALL = {
    "clip_16": Shipped(kinds.CLIP, CLIP_16),
    "clip_32": Shipped(kinds.CLIP_PROJECTED, CLIP_32),
    "clip_48": Shipped(kinds.CLIP, CLIP_48),
    "clip_h": Shipped(kinds.CLIP, CLIP_H),
    "clip_16_projected": Shipped(kinds.CLIP_PROJECTED, {**CLIP_16, "projection_dim": 16}),
    "t5": Shipped(kinds.T5, T5),
    "vae4_decoder": Shipped(autoencoders.VAE_DECODER, {**table.VAE4, **VAE}),
    "vae4_encoder": Shipped(autoencoders.VAE_ENCODER, {**table.VAE4, **VAE}),
    "vae16_decoder": Shipped(autoencoders.VAE_DECODER, {**table.VAE16, **VAE}),
    "vae16_encoder": Shipped(autoencoders.VAE_ENCODER, {**table.VAE16, **VAE}),
    "sd3": Shipped(kinds.SD3, SD3),
    "flux": Shipped(kinds.FLUX, FLUX, (("flux_fill", 384), ("flux_control", 128))),
    "chroma": Shipped(kinds.CHROMA, CHROMA),
    "z_image": Shipped(Z_IMAGE, Z_IMAGE_CONFIG),
    "qwen3": Shipped(QWEN, QWEN3),
    "flux2_klein": Shipped(flux2.FLUX2, KLEIN),
    "qwen3_joined": Shipped(QWEN, QWEN3_JOINED),
    "vae32_decoder": Shipped(flux2.VAE_DECODER, {**table.VAE32, **VAE}),
    "vae32_encoder": Shipped(flux2.VAE_ENCODER, {**table.VAE32, **VAE}),
    "qwen_image": Shipped(qwen_image.QWEN_IMAGE, QWEN_IMAGE),
    "qwen25": Shipped(QWEN, QWEN25),
    "qwen25_seeing": Shipped(SEEING, QWEN25_SEEING),
    "qwen25_visual": Shipped(VISUAL, QWEN25_VISUAL),
    "vae_wan_decoder": Shipped(qwen_image.VAE_DECODER, VAE_WAN),
    "vae_wan_encoder": Shipped(qwen_image.VAE_ENCODER, VAE_WAN),
    "unet_sd1": Shipped(kinds.UNET, SD1, (("unet_sd1_inpaint", 9), ("unet_sd1_edit", 8))),
    "unet_sd2": Shipped(kinds.UNET, SD2),
    "unet_sdxl": Shipped(kinds.UNET, SDXL, (("unet_sdxl_inpaint", 9),)),
    "unet_sdxl_refiner": Shipped(kinds.UNET, REFINER),
    "unet_sd1_controlled": Shipped(controls.controlled(SD1), SD1, (("unet_sd1_inpaint_controlled", 9),)),
    "unet_sdxl_controlled": Shipped(controls.controlled(SDXL), SDXL),
    "unet_sd1_free": Shipped(free(SD1), SD1),
    "unet_sdxl_free": Shipped(free(SDXL), SDXL),
    "unet_sd1_prompted": Shipped(prompted(SD1), SD1),
    "unet_sdxl_prompted": Shipped(prompted(SDXL), SDXL),
    "clip_vision": Shipped(CLIP_VISION, VISION),
    "controlnet_sd1": Shipped(controls.controlnet(SD1), SD1),
    "controlnet_sdxl": Shipped(controls.controlnet(SDXL), SDXL),
    "controlnet_sdxl_mid": Shipped(controls.controlnet(SDXL_MID), SDXL_MID),
    "controlnet_sdxl_small": Shipped(controls.controlnet(SDXL_SMALL), SDXL_SMALL),
    "controlnet_hint": Shipped(controls.HINT, SD1),
    "controlnet_union_hint": Shipped(controls.UNION, UNION),
    "adapter_sd1": Shipped(controls.ADAPTER, ADAPTER, (("adapter_sd1_gray", 64),)),
    "adapter_sdxl": Shipped(controls.ADAPTER, ADAPTER_XL),
    "adapter_light": Shipped(controls.ADAPTER, ADAPTER_LIGHT),
}
"""By the name of the engine's file."""
