"""Every tensor of a published layout is mapped, to what diffusers and transformers call it, as their converters do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import original_layouts as original
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from original_layouts import Shapes, prefixed

from graphc.errors import CheckpointError
from graphc.weights.formats.blocks import Blocks
from graphc.weights.formats.tensors import Unreadable
from graphc.weights.layouts import IGNORED, Flat, Rows, Source, SwapHalves, Transposed, detect, origins
from graphc.weights.layouts.fit import fit

torch = pytest.importorskip("torch")
single_file = pytest.importorskip("diffusers.loaders.single_file_utils")
pytestmark = pytest.mark.torch

UNET, FIRST = "model.diffusion_model.", "first_stage_model."


def text_encoders(prefix: str) -> Shapes:
    return prefixed(prefix, original.clip())


FULL: dict[str, tuple[str, Shapes]] = {
    "sd1": ("Stable Diffusion 1", {
        **prefixed(UNET, original.unet(**original.SD1)), **prefixed(FIRST, original.vae()),
        **prefixed("cond_stage_model.transformer.", original.clip()),
    }),
    "sd2": ("Stable Diffusion 2", {
        **prefixed(UNET, original.unet(**original.SD2)), **prefixed(FIRST, original.vae()),
        **prefixed("cond_stage_model.model.", original.openclip(1024, 24)),
    }),
    "sdxl": ("Stable Diffusion XL", {
        **prefixed(UNET, original.unet(**original.SDXL)), **prefixed(FIRST, original.vae()),
        **prefixed("conditioner.embedders.0.transformer.", original.clip()),
        **prefixed("conditioner.embedders.1.model.", original.openclip()),
    }),
    "refiner": ("Stable Diffusion XL refiner", {
        **prefixed(UNET, original.unet(**original.REFINER)), **prefixed(FIRST, original.vae()),
        **prefixed("conditioner.embedders.0.model.", original.openclip()),
    }),
    "sd3": ("Stable Diffusion 3", {
        **prefixed(UNET, original.sd3()), **prefixed(FIRST, original.vae(latents=16, quantized=False)),
        **prefixed("text_encoders.clip_l.transformer.", original.clip(projection=768)),
        **prefixed("text_encoders.clip_g.transformer.", original.clip(1280, 32, projection=1280)),
        **prefixed("text_encoders.t5xxl.transformer.", original.t5()),
    }),
    "sd3.5 medium": ("Stable Diffusion 3", original.sd3(places=384, normed=True, dual=13)),
    "sd3.5 large": ("Stable Diffusion 3", original.sd3(38, normed=True)),
    "flux dev": ("Flux", {
        **prefixed(UNET, original.flux()), **prefixed("vae.", original.vae(latents=16, quantized=False)),
        **prefixed("text_encoders.clip_l.transformer.", original.clip(projection=768)),
        **prefixed("text_encoders.t5xxl.transformer.", original.t5()),
    }),
    "flux schnell": ("Flux", original.flux(guidance=False)),
    "chroma": ("Chroma", original.chroma()),
    "z-image": ("Z-Image", {
        **prefixed(UNET, original.z_image()), **prefixed("vae.", original.vae(latents=16, quantized=False)),
        **prefixed("text_encoders.qwen3_4b.transformer.", original.qwen3()),
    }),
    "klein": ("Flux.2", {
        **prefixed(UNET, original.klein()), **prefixed("vae.", original.vae32()),
        **prefixed("text_encoders.qwen3_4b.transformer.", original.qwen3()),
    }),
    "qwen-image": ("Qwen-Image", {
        **prefixed(UNET, original.qwen_image()), **prefixed("vae.", original.wan_vae()),
        **prefixed("text_encoders.qwen25_7b.transformer.", original.qwen2()),
    }),
    "vae of wan": ("autoencoder of Wan 2.1", original.wan_vae()),
    "qwen that sees": ("Qwen", {**original.qwen2(), **original.visual()}),
    "qwen": ("Qwen", original.qwen3()),
    "controlnet": ("ControlNet of Stable Diffusion 1 or 2", prefixed("control_model.", original.controlnet(**original.SD1))),
    "controlnet xl": ("ControlNet of Stable Diffusion XL", original.controlnet(**original.SDXL)),
    "vae": ("autoencoder", original.vae()),
    "openclip": ("OpenCLIP", original.openclip(1024, 24)),
}  # fmt: skip
"""Checkpoints as they are published: what they are, and their tensors."""


def modules() -> dict[tuple[str, str], Any]:
    """Modules of full size, without elements: by checkpoint and component."""
    import diffusers
    import transformers

    sd1 = {"cross_attention_dim": 768}
    sd2 = {
        "cross_attention_dim": 1024,
        "use_linear_projection": True,
        "attention_head_dim": (5, 10, 20, 20),
    }
    xl = {
        "block_out_channels": (320, 640, 1280),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "transformer_layers_per_block": (1, 2, 10), "attention_head_dim": (5, 10, 20), "cross_attention_dim": 2048,
        "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    }  # fmt: skip
    ups = {"up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D")}
    refiner = {
        "block_out_channels": (384, 768, 1536, 1536),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": 4, "attention_head_dim": (6, 12, 24, 24), "cross_attention_dim": 1280,
        "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2560,
    }  # fmt: skip
    vae = {
        "block_out_channels": (128, 256, 512, 512), "layers_per_block": 2,
        "down_block_types": ("DownEncoderBlock2D",) * 4, "up_block_types": ("UpDecoderBlock2D",) * 4,
    }  # fmt: skip
    bare = {**vae, "latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False}
    sd3 = {
        "num_layers": 24, "num_attention_heads": 24, "joint_attention_dim": 4096, "caption_projection_dim": 1536,
        "pooled_projection_dim": 2048, "out_channels": 16, "pos_embed_max_size": 192,
    }  # fmt: skip
    large = {**sd3, "num_layers": 38, "num_attention_heads": 38, "caption_projection_dim": 2432, "qk_norm": "rms_norm"}
    dual = {"qk_norm": "rms_norm", "pos_embed_max_size": 384, "dual_attention_layers": tuple(range(13))}
    big = {"hidden_size": 1280, "num_hidden_layers": 32, "intermediate_size": 5120, "projection_dim": 1280}
    middle = {"hidden_size": 1024, "num_hidden_layers": 23, "intermediate_size": 4096}
    small = {"hidden_size": 768, "intermediate_size": 3072, "projection_dim": 768}

    def clip(settings: Mapping[str, Any], projected: bool = False) -> Any:
        kind = transformers.CLIPTextModelWithProjection if projected else transformers.CLIPTextModel
        return kind(transformers.CLIPTextConfig(vocab_size=49408, **settings))

    def t5() -> Any:
        return transformers.T5EncoderModel(
            transformers.T5Config(
                d_model=4096, d_ff=10240, d_kv=64, num_heads=64, num_layers=24, feed_forward_proj="gated-gelu"
            )
        )

    def qwen2() -> Any:
        return transformers.Qwen2Model(
            transformers.Qwen2Config(
                vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
                num_attention_heads=28, num_key_value_heads=4,
            )
        )  # fmt: skip

    def qwen3() -> Any:
        return transformers.Qwen3Model(
            transformers.Qwen3Config(
                vocab_size=151936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36,
                num_attention_heads=32, num_key_value_heads=8, head_dim=128,
            )
        )  # fmt: skip

    unets, autoencoder = diffusers.UNet2DConditionModel, diffusers.AutoencoderKL
    with torch.device("meta"):
        return {
            ("sd1", "unet"): unets(**sd1), ("sd1", "vae"): autoencoder(**vae), ("sd1", "text_encoder"): clip(small),
            ("sd2", "unet"): unets(**sd2), ("sd2", "text_encoder"): clip(middle),
            ("sdxl", "unet"): unets(**xl, **ups), ("sdxl", "vae"): autoencoder(**vae),
            ("sdxl", "text_encoder"): clip(small), ("sdxl", "text_encoder_2"): clip(big, projected=True),
            ("refiner", "unet"): unets(**refiner), ("refiner", "text_encoder_2"): clip(big, projected=True),
            ("sd3", "transformer"): diffusers.SD3Transformer2DModel(**sd3), ("sd3", "vae"): autoencoder(**bare),
            ("sd3", "text_encoder"): clip(small, projected=True), ("sd3", "text_encoder_2"): clip(big, projected=True),
            ("sd3", "text_encoder_3"): t5(),
            ("sd3.5 medium", "transformer"): diffusers.SD3Transformer2DModel(**{**sd3, **dual}),
            ("sd3.5 large", "transformer"): diffusers.SD3Transformer2DModel(**large),
            ("flux dev", "transformer"): diffusers.FluxTransformer2DModel(guidance_embeds=True),
            ("flux dev", "vae"): autoencoder(**bare), ("flux dev", "text_encoder"): clip(small),
            ("flux dev", "text_encoder_2"): t5(),
            ("flux schnell", "transformer"): diffusers.FluxTransformer2DModel(),
            ("chroma", "transformer"): diffusers.ChromaTransformer2DModel(),
            ("z-image", "transformer"): diffusers.ZImageTransformer2DModel(), ("z-image", "vae"): autoencoder(**bare),
            ("klein", "transformer"): diffusers.Flux2Transformer2DModel(
                num_layers=5, num_single_layers=20, num_attention_heads=24, joint_attention_dim=7680, guidance_embeds=False
            ),
            ("qwen-image", "transformer"): diffusers.QwenImageTransformer2DModel(),
            ("qwen-image", "vae"): diffusers.AutoencoderKLQwenImage(), ("qwen-image", "text_encoder"): qwen2(),
            ("vae of wan", "vae"): diffusers.AutoencoderKLQwenImage(), ("qwen that sees", "text_encoder"): qwen2(),
            ("klein", "vae"): diffusers.AutoencoderKLFlux2(**vae), ("klein", "text_encoder"): qwen3(),
            ("z-image", "text_encoder"): qwen3(), ("qwen", "text_encoder"): qwen3(),
            ("controlnet", "controlnet"): diffusers.ControlNetModel(**sd1),
            ("controlnet xl", "controlnet"): diffusers.ControlNetModel(**xl),
            ("vae", "vae"): autoencoder(**vae), ("openclip", "text_encoder"): clip({**middle, "num_hidden_layers": 24}),
        }  # fmt: skip


def state_of(module: Any) -> Shapes:
    """A module's names and shapes, as files have them: transformers of today leaves out CLIP's outer module."""
    found = {name: tuple(each.shape) for name, each in module.state_dict().items() if not IGNORED.match(name)}
    outer = "text_model." if "embeddings.token_embedding.weight" in found else ""
    return prefixed(outer, found)


EXTRA = (
    "text_projection.weight", "text_model.encoder.layers.23.", "norm_final.", "bn.num_batches_tracked", "lm_head.",
    "visual.",
)  # fmt: skip
"""What files have and nobody reads: CLIP's projection, its last layer in Stable Diffusion 2, a norm of Z-Image, a count, and what
Qwen chooses words by and sees with."""


@pytest.fixture(scope="module")
def full_modules() -> dict[tuple[str, str], Any]:
    return modules()


@pytest.mark.parametrize("case", FULL)
def test_every_tensor_of_a_published_checkpoint_is_mapped(
    case: str, full_modules: Mapping[tuple[str, str], Any]
) -> None:
    name, shapes = FULL[case]
    layout = detect(shapes)
    assert layout is not None
    assert layout.name == name
    found = layout.sources(shapes)
    used = {source.name for each in found.values() for source in each.values()}
    assert [each for each in shapes if each not in used and not IGNORED.match(each)] == []
    checked = {component: module for (place, component), module in full_modules.items() if place == case}
    assert checked
    for component, module in checked.items():
        expected = state_of(module)
        made = {ours: source.shape(shapes[source.name]) for ours, source in found[component].items()}
        more = {each for each in made.keys() - expected.keys() if not each.startswith(EXTRA)}
        assert not more, component
        assert {each: made.get(each) for each in expected} == expected, component
        prefix = layout.parts[component][1]
        there = {ours: (source.name, source.steps) for ours, source in found[component].items() if ours in expected}
        back = [
            {ours: (prefix + source.name, source.steps) for ours, source in each.sources.items()}
            for each in origins(expected)
        ]
        assert there in back, component


def narrow(shapes: Shapes) -> Shapes:
    """Matrices of three columns: diffusers' converter of Flux knows only the published number of rows."""
    return {name: (shape[0], 3) if len(shape) == 2 else shape for name, shape in shapes.items()}


TINY = {"width": 4, "context": 6}
XL = {**original.SDXL, **TINY, "depths": (0, 2, 3), "middle": 3, "pooled": 10}
TOKENS = {"vocabulary": 30, "length": 9}


def as_diffusers(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a converter of diffusers makes of tensors."""
    added = {"addition_embed_type": "text_time"}
    blocks = {"down_block_types": range(4), "up_block_types": range(4)}

    class Text:
        class config:
            hidden_size = 8

    converters = {
        "unet": lambda: single_file.convert_ldm_unet_checkpoint(given, {"layers_per_block": 2}),
        "xl": lambda: single_file.convert_ldm_unet_checkpoint(given, {"layers_per_block": 2, **added}),
        "controlnet": lambda: single_file.convert_controlnet_checkpoint(given, {"layers_per_block": 2}),
        "vae": lambda: single_file.convert_ldm_vae_checkpoint(given, blocks),
        "clip": lambda: single_file.convert_ldm_clip_checkpoint(given),
        "clip of sd3": lambda: single_file.convert_ldm_clip_checkpoint(given, "text_encoders.clip_l.transformer."),
        "openclip": lambda: single_file.convert_open_clip_checkpoint(Text, given),
        "openclip of xl": lambda: single_file.convert_open_clip_checkpoint(
            Text, given, "conditioner.embedders.1.model."
        ),
        "t5": lambda: single_file.convert_sd3_t5_checkpoint_to_diffusers(given),
        "sd3": lambda: single_file.convert_sd3_transformer_checkpoint_to_diffusers(given),
        "flux": lambda: single_file.convert_flux_transformer_checkpoint_to_diffusers(given),
        "chroma": lambda: single_file.convert_chroma_transformer_checkpoint_to_diffusers(given),
        "klein": lambda: single_file.convert_flux2_transformer_checkpoint_to_diffusers(given),
        "vae of wan": lambda: single_file.convert_wan_vae_to_diffusers(given),
        "z-image": lambda: single_file.convert_z_image_transformer_checkpoint_to_diffusers(given),
    }
    return converters[kind]()


CONVERTED: dict[str, tuple[str, str, Shapes]] = {
    "sd1": ("unet", "unet", prefixed(UNET, original.unet(**{**original.SD1, **TINY}))),
    "sd2": ("unet", "unet", prefixed(UNET, original.unet(**{**original.SD2, **TINY}))),
    "sdxl": ("xl", "unet", prefixed(UNET, original.unet(**XL))),
    "refiner": ("xl", "unet", prefixed(UNET, original.unet(**{**original.REFINER, **TINY, "pooled": 10}))),
    "controlnet": ("controlnet", "controlnet", prefixed("control_model.", original.controlnet(**{**original.SD1, **TINY}))),
    "vae": ("vae", "vae", prefixed(FIRST, original.vae(4))),
    "vae alone": ("vae", "vae", original.vae(4, latents=16, quantized=False)),
    "clip": ("clip", "text_encoder", prefixed("cond_stage_model.transformer.", original.clip(8, 2, **TOKENS))),
    "clip of sd3": (
        "clip of sd3", "text_encoder", prefixed("text_encoders.clip_l.transformer.", original.clip(8, 2, **TOKENS))
    ),
    "openclip": ("openclip", "text_encoder", prefixed("cond_stage_model.model.", original.openclip(8, 3, **TOKENS))),
    "openclip of xl": (
        "openclip of xl", "text_encoder_2", prefixed("conditioner.embedders.1.model.", original.openclip(8, 3, **TOKENS))
    ),
    "t5": ("t5", "text_encoder_3", prefixed("text_encoders.t5xxl.transformer.", original.t5(8, 2, 2, 12, 30))),
    "sd3": ("sd3", "transformer", original.sd3(2, head=4, channels=2, text=6, pooled=5, places=3)),
    "sd3.5": ("sd3", "transformer", prefixed(UNET, original.sd3(3, 4, 2, 6, 5, 3, normed=True, dual=2))),
    "flux": ("flux", "transformer", narrow(original.flux(double=2, single=1))),
    "flux schnell": ("flux", "transformer", prefixed(UNET, narrow(original.flux(double=1, single=2, guidance=False)))),
    "chroma": ("chroma", "transformer", narrow(original.chroma(double=2, single=1, hidden=8, layers=2))),
    "klein": ("klein", "transformer", original.klein(12, 3, 2, 1, 8, 6)),
    "vae of wan": ("vae of wan", "vae", original.wan_vae(4)),
    "z-image": ("z-image", "transformer", prefixed(UNET, original.z_image(12, 3, 2, 1, 6))),
}  # fmt: skip
"""What is converted how, into which component, of which tensors."""

COMPANY = {
    "clip": prefixed(UNET, original.unet(**{**original.SD1, **TINY})),
    "openclip": prefixed(UNET, original.unet(**{**original.SD2, **TINY})),
    "openclip of xl": prefixed(UNET, original.unet(**XL)),
    "clip of sd3": original.sd3(1, 4, 2, 6, 5, 3),
    "t5": original.sd3(1, 4, 2, 6, 5, 3),
}
"""What a text encoder is in a file with: by this its architecture is recognized."""


@pytest.mark.parametrize("case", CONVERTED)
def test_the_numbers_are_those_of_the_converters(case: str) -> None:
    kind, component, shapes = CONVERTED[case]
    given = original.filled(shapes)
    expected = as_diffusers(kind, {name: torch.from_numpy(array) for name, array in given.items()})
    layout = detect({**COMPANY.get(case, {}), **shapes})
    assert layout is not None
    made = {ours: source.array(given[source.name]) for ours, source in layout.sources(shapes)[component].items()}
    left_out = {"openclip": {"text_projection.weight"}, "z-image": {"norm_final.weight"}}  # which are not used
    assert made.keys() == expected.keys() | left_out.get(case, set())
    for name, tensor in expected.items():
        assert made[name].dtype == np.float32
        assert np.array_equal(made[name], tensor.numpy()), name
        swapped = name.startswith("norm_out.") or "norm1_context" in name
        assert swapped or any(np.shares_memory(made[name], array) for array in given.values()), "a view"


def test_qwen_that_sees_in_every_kind_of_file() -> None:
    """transformers names the language model in two ways, also in a folder of diffusers; pictures are not looked at."""
    before = {**original.qwen2(8, 12, 1, 2, 1, 4, 30), **original.visual(4, 8, 1)}
    today = {
        re.sub("^visual", "model.visual", re.sub(r"^model\.", "model.language_model.", name)): shape
        for name, shape in before.items()
    }
    assert len(before.keys() - today.keys()) == len(before) - 1
    wanted = {name.removeprefix("model."): shape for name, shape in before.items() if name.startswith("model.")}
    for shapes in (before, today):
        for prefix, more in (("", {}), ("text_encoder/", {"transformer/txt_norm.weight": (8,)})):
            arrays = {name: np.zeros(shape, np.float32) for name, shape in (prefixed(prefix, shapes) | more).items()}
            found = fit(arrays, wanted, "text_encoder")
            assert found.surplus == []
            assert {name: tensor.shape for name, tensor in found.tensors(arrays, wanted).items()} == wanted


def test_the_autoencoder_of_wan_in_every_kind_of_file() -> None:
    """The authors' names and diffusers', in a file or in a folder; what looks at several frames is left over."""
    published = original.wan_vae(4)
    layout = detect(published)
    assert layout is not None
    named = {ours: published[source.name] for ours, source in layout.sources(published)["vae"].items()}
    wanted = {
        name: shape for name, shape in named.items() if name.startswith(("decoder", "post")) and "time_" not in name
    }
    assert len(named) == len(published)
    assert sum("time_conv" in name for name in named) == 8
    for shapes, name in (
        (published, "autoencoder of Wan 2.1"),
        (prefixed("vae.", published), "autoencoder of Wan 2.1"),
        (named, "autoencoder of Qwen-Image in diffusers"),
        (prefixed("vae/", named), "folder of diffusers"),
    ):
        found = fit({key: np.zeros(shape, np.float32) for key, shape in shapes.items()}, wanted, "vae")
        assert (found.layout.name, found.surplus) == (name, [])
        assert wanted.keys() <= found.sources.keys()


def test_qwen_in_a_folder_of_diffusers() -> None:
    shapes = prefixed("text_encoder/", original.qwen3(8, 12, 1, 2, 1, 4, 30)) | {"transformer/x_pad_token": (1, 12)}
    layout = detect(shapes)
    assert layout is not None
    found = layout.sources(shapes)["text_encoder"]
    assert found["embed_tokens.weight"].name == "text_encoder/model.embed_tokens.weight"
    assert found["layers.0.mlp.up_proj.weight"].name == "text_encoder/model.layers.0.mlp.up_proj.weight"


def test_quantized_tensors_are_cut_in_blocks() -> None:
    array = np.random.default_rng(0).standard_normal((21, 64), np.float32)
    raw = gguf.quantize(array, gguf.GGMLQuantizationType.Q8_0)
    blocks = Blocks("Q8_0", raw.reshape(-1), array.shape)
    numbers = np.asarray(blocks)
    for steps in ((Rows(3, 7, 7),), (Rows(0, 2, 3), SwapHalves()), (Flat(),)):
        source = Source("x", steps)
        made = source.array(blocks)
        assert isinstance(made, Blocks)
        assert made.shape == source.shape(array.shape)
        assert np.array_equal(np.asarray(made), source.array(numbers))
    assert np.array_equal(Source("x", (Transposed(),)).array(blocks), numbers.T)


def test_names_that_some_files_have() -> None:
    bare = {name.removeprefix("text_model."): shape for name, shape in original.clip(8, 2, **TOKENS).items()}
    sd1 = {**CONVERTED["sd1"][2], **prefixed("cond_stage_model.transformer.", bare)}
    layout = detect(sd1)
    assert layout is not None
    assert layout.sources(sd1)["text_encoder"].keys() == original.clip(8, 2, **TOKENS).keys()
    whole = {**sd1, **CONVERTED["vae"][2], **CONVERTED["controlnet"][2]}
    layout = detect(whole)
    assert layout is not None
    found = layout.sources(whole)
    assert {name: len(each) for name, each in found.items()} == {
        "controlnet": 340,
        "unet": 686,
        "vae": 248,
        "text_encoder": 36,
    }
    for name in ("shared.weight", "encoder.embed_tokens.weight"):
        t5 = {
            key: shape
            for key, shape in original.t5(8, 2, 2, 12, 30).items()
            if "." in key and not key.startswith(("shared", "encoder.e"))
        }
        layout = detect({**t5, name: (30, 8)})
        assert layout is not None
        sources = layout.sources([*t5, name])["text_encoder"]
        assert sources["shared.weight"].name == sources["encoder.embed_tokens.weight"].name == name


def test_the_autoencoder_as_diffusers_named_it_at_first() -> None:
    today = as_diffusers(
        "vae", {name: torch.from_numpy(array) for name, array in original.filled(original.vae(4)).items()}
    )
    before = {
        re.sub(
            r"(attentions\.0\.)(to_\w+?)(\.0)?\.(weight|bias)$",
            lambda found: f"{found[1]}{OLD[found[2]]}.{found[4]}",
            name,
        ): each
        for name, each in today.items()
    }
    assert len(before.keys() - today.keys()) == 16
    layout = detect({name: tuple(each.shape) for name, each in before.items()})
    assert layout is not None
    sources = layout.sources(before)["vae"]
    assert {name: before[source.name] is today[name] for name, source in sources.items()} == dict.fromkeys(today, True)


OLD = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out": "proj_attn"}


PARTS = sorted(
    {part for _, shapes in FULL.values() for name in list(shapes)[::97] for part in re.split(r"(?<=\.)", name)}
    | {"9" * 5000 + ".", "joint_blocks.", "x_block.adaLN_modulation.1.", "../", "\n", "*", "$"}
)


@settings(max_examples=200)
@given(st.dictionaries(
    st.lists(st.sampled_from(PARTS), max_size=6).map("".join) | st.sampled_from(sorted(FULL["sd3"][1])),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    max_size=12,
))  # fmt: skip
def test_any_names_and_shapes_are_taken_or_refused(shapes: Shapes) -> None:
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    for component in (None, "unet", "transformer"):
        try:
            found = fit(
                arrays, {"conv_in.weight": (4, 4), "time_text_embed.text_embedder.linear_1.bias": (3,)}, component
            )
        except CheckpointError:
            continue
        for tensor in found.tensors(arrays).values():
            assert isinstance(tensor, np.ndarray | Unreadable)
    origins(shapes)
