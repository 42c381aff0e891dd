"""Parts of image generators, by diffusers: the U-Nets, autoencoders and diffusion transformers."""

from typing import Any

import torch
from torch import Tensor

from zoo.build import architecture, built, noise, with_forward
from zoo.example import Axes, Built, Config, Exporter, example

# The published configurations of runwayml/stable-diffusion-v1-5.
SD15_UNET: Config = {
    "sample_size": 64,
    "in_channels": 4,
    "out_channels": 4,
    "center_input_sample": False,
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    "block_out_channels": (320, 640, 1280, 1280),
    "layers_per_block": 2,
    "downsample_padding": 1,
    "mid_block_scale_factor": 1,
    "act_fn": "silu",
    "norm_num_groups": 32,
    "norm_eps": 1e-5,
    "cross_attention_dim": 768,
    "attention_head_dim": 8,
}
SD15_VAE: Config = {
    "sample_size": 512,
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
    "act_fn": "silu",
    "norm_num_groups": 32,
}

# The same structures, narrow.
SMALL_UNET: Config = {
    "sample_size": 16,
    "block_out_channels": (16, 32, 64, 64),
    "norm_num_groups": 4,
    "attention_head_dim": 2,
    "cross_attention_dim": 48,
}
SMALL_VAE: Config = {"sample_size": 64, "block_out_channels": (16, 32, 64, 64), "norm_num_groups": 4}
CONTROLNET = {
    *("in_channels", "flip_sin_to_cos", "freq_shift", "down_block_types", "block_out_channels", "layers_per_block"),
    *("downsample_padding", "mid_block_scale_factor", "act_fn", "norm_num_groups", "norm_eps", "cross_attention_dim"),
    "attention_head_dim",
}
TAESD: Config = {
    "encoder_block_out_channels": (16,) * 4,
    "decoder_block_out_channels": (16,) * 4,
    "num_encoder_blocks": (1, 3, 3, 3),
    "num_decoder_blocks": (3, 3, 3, 1),
}
FLUX: Config = {
    "in_channels": 16,
    "num_layers": 2,
    "num_single_layers": 3,
    "attention_head_dim": 24,
    "num_attention_heads": 4,
    "joint_attention_dim": 48,
    "axes_dims_rope": (8, 8, 8),
}

UNET_AXES: Axes = {
    "sample": {0: "batch", 2: "height", 3: "width"},
    "encoder_hidden_states": {0: "batch", 1: "tokens"},
}
IMAGE_AXES: Axes = {"image": {0: "batch", 2: "height", 3: "width"}}
LATENT_AXES: Axes = {"latent": IMAGE_AXES["image"]}
SD3_AXES: Axes = {
    "hidden_states": UNET_AXES["sample"],
    "encoder_hidden_states": UNET_AXES["encoder_hidden_states"],
    "pooled_projections": {0: "batch"},
    "timestep": {0: "batch"},
}
FLUX_AXES: Axes = {
    "hidden_states": {0: "batch", 1: "patches"},
    "encoder_hidden_states": {0: "batch", 1: "tokens"},
    "timestep": {0: "batch"},
    "img_ids": {0: "patches"},
    "txt_ids": {0: "tokens"},
}

NO_RMS_NORM: dict[Exporter, str] = {"torchscript": "it has no translation of aten::rms_norm, at any opset"}


def unet(config: Config, size: int) -> Built:
    """A conditional U-Net on one latent of size x size."""
    return built(architecture("diffusers.UNet2DConditionModel", **config), unet_inputs(config, size), "sample")


def unet_inputs(config: Config, size: int) -> dict[str, Tensor]:
    """One latent of size x size, a time, 77 words."""
    return {
        "sample": noise(1, config["in_channels"], size, size),
        "timestep": torch.tensor([601]),
        "encoder_hidden_states": noise(1, 77, config["cross_attention_dim"], seed=2),
    }


def vae_encoder(config: Config, size: int) -> Built:
    """The encoder of an AutoencoderKL, up to the moments: mean and log variance, stacked."""
    module = architecture("diffusers.AutoencoderKL", **config)
    del module.decoder, module.post_quant_conv
    return with_forward(module, lambda _, image: module._encode(image)), {"image": noise(1, 3, size, size)}


def vae_decoder(config: Config, size: int) -> Built:
    """The decoder of an AutoencoderKL, on one latent of size x size."""
    module = architecture("diffusers.AutoencoderKL", **config)
    del module.encoder, module.quant_conv
    latent = noise(1, config["latent_channels"], size, size)
    return with_forward(module, lambda _, latent: module._decode(latent, return_dict=False)[0]), {"latent": latent}


@example("moments", dynamic=IMAGE_AXES)
def sd15_vae_encoder_small() -> Built:
    """The encoder of SD 1.5's VAE, narrow."""
    return vae_encoder({**SD15_VAE, **SMALL_VAE}, 64)


@example("image", dynamic=LATENT_AXES)
def sd15_vae_decoder_small() -> Built:
    """The decoder of SD 1.5's VAE, narrow."""
    return vae_decoder({**SD15_VAE, **SMALL_VAE}, 8)


@example("out_sample", dynamic=UNET_AXES)
def sd15_unet_small() -> Built:
    """SD 1.5's U-Net, narrow."""
    return unet({**SD15_UNET, **SMALL_UNET}, 16)


@example("out_sample", dynamic=UNET_AXES)
def sd21_unet() -> Built:
    """SD 2.1's U-Net, narrow: linear projections, heads of one width, attention in float32."""
    config = {**SD15_UNET, **SMALL_UNET, "attention_head_dim": (1, 2, 4, 4)}
    return unet({**config, "use_linear_projection": True, "upcast_attention": True}, 16)


@example("out_sample", dynamic={**UNET_AXES, "text_embeds": {0: "batch"}, "time_ids": {0: "batch"}})
def sdxl_unet() -> Built:
    """SDXL's U-Net, narrow: three levels, up to three transformer layers in each block, conditions on size."""
    config = {
        **SD15_UNET,
        **SMALL_UNET,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "block_out_channels": (16, 32, 64),
        "transformer_layers_per_block": (1, 2, 3),
        "attention_head_dim": (1, 2, 4),
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 40 + 6 * 8,
    }
    module = architecture("diffusers.UNet2DConditionModel", **config)
    added = {"text_embeds": noise(1, 40, seed=3), "time_ids": torch.tensor([[512.0, 768, 0, 0, 512, 512]])}

    def forward(call: Any, sample: Tensor, time: Tensor, text: Tensor, text_embeds: Tensor, time_ids: Tensor) -> Any:
        return call(sample, time, text, added_cond_kwargs={"text_embeds": text_embeds, "time_ids": time_ids}).sample

    return with_forward(module, forward), unet_inputs(config, 16) | added


@example(*(f"down_{index}" for index in range(12)), "mid")
def controlnet() -> Built:
    """SD 1.5's ControlNet, narrow: residuals for each skip of the U-Net, from an image eight times larger."""
    config = {key: value for key, value in {**SD15_UNET, **SMALL_UNET}.items() if key in CONTROLNET}
    module = architecture("diffusers.ControlNetModel", **config, conditioning_embedding_out_channels=(8, 8, 16, 16))
    inputs = unet_inputs({**SD15_UNET, **SMALL_UNET}, 16) | {"controlnet_cond": noise(1, 3, 128, 128, seed=3)}

    def forward(call: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        down, mid = call(*tensors, return_dict=False)
        return (*down, mid)

    return with_forward(module, forward), inputs


@example(*(f"feature_{index}" for index in range(4)))
def t2i_adapter() -> Built:
    """A T2I-Adapter for SD 1.5, narrow: pixel unshuffle, then features of four levels."""
    module = architecture("diffusers.T2IAdapter", in_channels=3, channels=(16, 32, 64, 64), num_res_blocks=2)
    return with_forward(module, lambda call, image: tuple(call(image))), {"image": noise(1, 3, 64, 64)}


@example("latent", dynamic=IMAGE_AXES)
def taesd_encoder() -> Built:
    """TAESD's encoder: a tiny autoencoder without norms or attention."""
    module = architecture("diffusers.AutoencoderTiny", **TAESD).encoder
    return module, {"image": noise(1, 3, 64, 64)}


@example("image", dynamic=LATENT_AXES)
def taesd_decoder() -> Built:
    """TAESD's decoder."""
    module = architecture("diffusers.AutoencoderTiny", **TAESD).decoder
    return module, {"latent": noise(1, 4, 8, 8)}


@example("out_sample", dynamic=SD3_AXES)
def sd3_transformer() -> Built:
    """SD 3.5's MMDiT, narrow: joint attention of image and text, a second attention in the first block."""
    module = architecture(
        "diffusers.SD3Transformer2DModel",
        sample_size=16,
        patch_size=2,
        in_channels=16,
        num_layers=3,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=48,
        caption_projection_dim=64,
        pooled_projection_dim=40,
        pos_embed_max_size=24,
        dual_attention_layers=(0,),
        qk_norm="rms_norm",
    )
    inputs = {
        "hidden_states": noise(1, 16, 16, 16),
        "encoder_hidden_states": noise(1, 20, 48, seed=2),
        "pooled_projections": noise(1, 40, seed=3),
        "timestep": torch.tensor([601.0]),
    }
    return built(module, inputs, "sample")


def flux_inputs(
    rows: int = 8, columns: int = 6, channels: int = 16, words: int = 20, width: int = 48
) -> dict[str, Tensor]:
    """An image of rows x columns patches, and words, with the positions of both."""
    grid = torch.cartesian_prod(torch.zeros(1), torch.arange(float(rows)), torch.arange(float(columns)))
    return {
        "hidden_states": noise(1, rows * columns, channels),
        "encoder_hidden_states": noise(1, words, width, seed=2),
        "timestep": torch.tensor([0.601]),
        "img_ids": grid,
        "txt_ids": torch.zeros(words, 3),
    }


@example(
    "out_sample",
    refusals=NO_RMS_NORM,
    dynamic={**FLUX_AXES, "pooled_projections": {0: "batch"}, "guidance": {0: "batch"}},
)
def flux_transformer() -> Built:
    """Flux dev's transformer, narrow: double and single blocks, rotary positions of three axes, guidance."""
    module = architecture("diffusers.FluxTransformer2DModel", **FLUX, pooled_projection_dim=40, guidance_embeds=True)
    inputs = flux_inputs() | {"pooled_projections": noise(1, 40, seed=3), "guidance": torch.tensor([3.5])}
    return built(module, inputs, "sample")


@example("out_sample", refusals=NO_RMS_NORM)
def chroma_transformer() -> Built:
    """Chroma's transformer, narrow: Flux with all modulations from one small network, and a text mask."""
    approximator = {"approximator_num_channels": 16, "approximator_hidden_dim": 80, "approximator_layers": 2}
    module = architecture("diffusers.ChromaTransformer2DModel", **FLUX, **approximator)
    mask = torch.ones(1, 20 + 48, dtype=torch.bool).index_fill_(1, torch.arange(15, 20), False)
    return built(module, flux_inputs() | {"attention_mask": mask}, "sample")


@example("moments", size="full", dynamic=IMAGE_AXES)
def sd15_vae_encoder() -> Built:
    """The encoder of SD 1.5's VAE, on 512 x 512 pixels."""
    return vae_encoder(SD15_VAE, 512)


@example("image", size="full", dynamic=LATENT_AXES)
def sd15_vae_decoder() -> Built:
    """The decoder of SD 1.5's VAE, to 512 x 512 pixels."""
    return vae_decoder(SD15_VAE, 64)


@example("out_sample", size="full", dynamic=UNET_AXES)
def sd15_unet() -> Built:
    """SD 1.5's U-Net, on one latent of 64 x 64."""
    return unet(SD15_UNET, 64)


@example("out_sample", refusals=NO_RMS_NORM, size="full", dynamic=FLUX_AXES)
def flux_blocks() -> Built:
    """Flux dev's transformer with one double and one single block at full width, for 512 x 512 pixels and 512 words."""
    module = architecture("diffusers.FluxTransformer2DModel", num_layers=1, num_single_layers=1, guidance_embeds=True)
    inputs = flux_inputs(32, 32, 64, 512, 4096)
    inputs |= {"pooled_projections": noise(1, 768, seed=3), "guidance": torch.tensor([3.5])}
    return built(module, inputs, "sample")


@example("out_sample", "down", size="full", dynamic={"sample": UNET_AXES["sample"]})
def sdxl_block() -> Built:
    """SDXL's deepest down block at full width, for 1024 x 1024 pixels, with two of its ten transformer layers."""
    module = architecture(
        "diffusers.models.unets.unet_2d_blocks.CrossAttnDownBlock2D",
        in_channels=640,
        out_channels=1280,
        temb_channels=1280,
        num_layers=1,
        transformer_layers_per_block=2,
        num_attention_heads=20,
        cross_attention_dim=2048,
        use_linear_projection=True,
        add_downsample=False,
    )
    inputs = {"sample": noise(1, 640, 32, 32), "temb": noise(1, 1280, seed=2), "words": noise(1, 77, 2048, seed=3)}

    def forward(call: Any, sample: Tensor, temb: Tensor, words: Tensor) -> tuple[Tensor, ...]:
        result, states = call(sample, temb, words)
        return result, *states

    return with_forward(module, forward), inputs
