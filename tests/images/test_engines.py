"""The engines that are shipped: made anew they have the same bytes, with weights or without, and the files of people fit them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples")]

import original_layouts as original
from test_recognize import FILES, arrays

from graphc.targets.ggml.engine import read_stripped_engine
from graphc.weights.layouts import detect
from graphc.weights.refit import Refit
from graphc_images.models import ARCHITECTURES
from graphc_images.models.ip_adapters import encoder_in
from graphc_images.models.model import ENGINES

ROWS = {each.name: each for each in ARCHITECTURES}
SHIPPED = sorted(path.name.removesuffix(".gguf.gz") for path in ENGINES.glob("*.gguf.gz"))
QWEN3_8B = {**original.qwen3(4096, 12288), "lm_head.weight": (151936, 4096)}
TEXTS = {
    "clip_l": original.clip(),
    "clip_l_projected": original.clip(projection=768),
    "clip_h": original.openclip(1024, 24),
    "clip_g": original.openclip(),
    "t5_xxl": original.t5(),
    "qwen3_4b": original.qwen3(),
    "qwen3_4b_joined": original.qwen3(),
    "qwen3_8b_joined": QWEN3_8B,
    **{f"qwen25_7b{part}": {**original.qwen2(), **original.visual()} for part in ("", "_seeing", "_visual")},
}
LIMIT = 25_000_000


def fits(engine, tensors, component):
    """Raises CheckpointError if the tensors are not those of the engine's parameters, all of them and no others."""
    program, stored = read_stripped_engine(ENGINES / f"{engine}.gguf.gz")
    found = Refit(program, stored, tensors, component=component)
    assert not found.recipes.pinned
    assert len(found.arrays) > 3


def require(engine):
    if engine not in SHIPPED:
        pytest.skip(f"python -m examples.image_engines {engine} makes it")


@pytest.mark.parametrize("name", FILES)
def test_denoisers_take_the_files(name):
    part = ROWS[name].denoiser
    require(part.engine)
    fits(part.engine, arrays(original.prefixed("model.diffusion_model.", FILES[name])), part.component)


@pytest.mark.parametrize("half", ["encoder", "decoder"])
@pytest.mark.parametrize(("engine", "settings"), [("vae4", {}), ("vae16", {"latents": 16, "quantized": False})])
def test_autoencoders_take_the_files(engine, settings, half):
    require(f"{engine}_{half}")
    fits(f"{engine}_{half}", arrays(original.prefixed("first_stage_model.", original.vae(**settings))), "vae")


@pytest.mark.parametrize("half", ["encoder", "decoder"])
@pytest.mark.parametrize("named", ["by the authors", "by diffusers"])
def test_the_autoencoder_of_flux2_takes_the_files(named, half):
    require(f"vae32_{half}")
    shapes = original.vae32()
    if named == "by diffusers":
        layout = detect(shapes)
        shapes = {ours: source.shape(shapes[source.name]) for ours, source in layout.sources(shapes)["vae"].items()}
        shapes["bn.num_batches_tracked"] = ()
    fits(f"vae32_{half}", arrays(shapes), "vae")


@pytest.mark.parametrize("half", ["encoder", "decoder"])
@pytest.mark.parametrize("named", ["by the authors", "by diffusers"])
def test_the_autoencoder_of_wan_takes_the_files(named, half):
    require(f"vae_wan_{half}")
    shapes = original.wan_vae()
    if named == "by diffusers":
        shapes = {ours: shapes[source.name] for ours, source in detect(shapes).sources(shapes)["vae"].items()}
    fits(f"vae_wan_{half}", arrays(shapes), "vae")


@pytest.mark.parametrize("engine", TEXTS)
def test_text_encoders_take_the_files(engine):
    require(engine)
    fits(engine, arrays(TEXTS[engine]), "text_encoder")


LAYERS = {
    "unet_sd1_prompted": ("Stable Diffusion 1", {320: 5, 640: 5, 1280: 6}),
    "unet_sd1_inpaint_prompted": ("Stable Diffusion 1 inpainting", {320: 5, 640: 5, 1280: 6}),
    "unet_sdxl_prompted": ("Stable Diffusion XL", {640: 10, 1280: 60}),
    "unet_sdxl_inpaint_prompted": ("Stable Diffusion XL inpainting", {640: 10, 1280: 60}),
}
"""How many layers of each width attend to words, of those U-Nets that also look at pictures."""


@pytest.mark.parametrize("engine", LAYERS)
def test_unets_that_look_at_pictures(engine):
    require(engine)
    name, layers = LAYERS[engine]
    program, _ = read_stripped_engine(ENGINES / f"{engine}.gguf.gz")
    found = {each.name: each.shape[0] for each in program.inputs if each.name.startswith(("keys_", "values_"))}
    assert found == {f"{kind}_{width}": count for kind in ("keys", "values") for width, count in layers.items()}
    fits(engine, arrays(original.prefixed("model.diffusion_model.", FILES[name])), ROWS[name].denoiser.component)


@pytest.mark.parametrize(
    ("engine", "sizes"), [("clip_vision_h", (1280, 5120, 32, 1024)), ("clip_vision_g", (1664, 8192, 48, 1280))]
)
def test_encoders_of_pictures_take_the_files(engine, sizes):
    require(engine)
    width, inner, layers, projected = sizes
    norm = {"weight": (width,), "bias": (width,)}
    shapes = {
        "embeddings.class_embedding": (width,),
        "embeddings.patch_embedding.weight": (width, 3, 14, 14),
        "embeddings.position_embedding.weight": (257, width),
        **{f"{name}.{part}": shape for name in ("pre_layrnorm", "post_layernorm") for part, shape in norm.items()},
    }
    for layer in (f"encoder.layers.{number}" for number in range(layers)):
        shapes |= {
            f"{layer}.{name}.{part}": shape for name in ("layer_norm1", "layer_norm2") for part, shape in norm.items()
        }
        for name in "qkv":
            shapes |= {
                f"{layer}.self_attn.{name}_proj.weight": (width, width),
                f"{layer}.self_attn.{name}_proj.bias": (width,),
            }
        shapes |= {f"{layer}.self_attn.out_proj.weight": (width, width), f"{layer}.self_attn.out_proj.bias": (width,)}
        shapes |= {f"{layer}.mlp.fc1.weight": (inner, width), f"{layer}.mlp.fc1.bias": (inner,)}
        shapes |= {f"{layer}.mlp.fc2.weight": (width, inner), f"{layer}.mlp.fc2.bias": (width,)}
    file = {**original.prefixed("vision_model.", shapes), "visual_projection.weight": (projected, width)}
    assert encoder_in(arrays(file)) == engine
    fits(engine, arrays(file), None)


def test_they_are_small():
    assert sum(path.stat().st_size for path in ENGINES.glob("*.gguf.gz")) < LIMIT


def tiny(half, latents=4, width=64):
    """TAESD's tensors, as its own files number them."""
    made = {}
    place = 0

    def conv(outputs, inputs, bias=True):
        nonlocal place
        made[f"{place}.weight"] = (outputs, inputs, 3, 3)
        made.update({f"{place}.bias": (outputs,)} if bias else {})
        place += 1

    def block():
        nonlocal place
        for layer in (0, 2, 4):
            made.update({f"{place}.conv.{layer}.weight": (width, width, 3, 3), f"{place}.conv.{layer}.bias": (width,)})
        place += 1

    if half == "encoder":
        conv(width, 3)
        block()
        for _ in range(3):
            conv(width, width, bias=False)
            for _ in range(3):
                block()
        conv(latents, width)
        return made
    place = 1  # the first limits the latent
    conv(width, latents)
    place += 1
    for _ in range(3):
        for _ in range(3):
            block()
        place += 1  # twice as large
        conv(width, width, bias=False)
    block()
    conv(3, width)
    return made


@pytest.mark.parametrize("half", ["encoder", "decoder"])
@pytest.mark.parametrize(("engine", "latents"), [("taesd", 4), ("taesd16", 16)])
def test_tiny_autoencoders_take_the_files(engine, latents, half):
    require(f"{engine}_{half}")
    own = tiny(half, latents)
    fits(f"{engine}_{half}", arrays(own), "tiny")
    shift = 1 if half == "decoder" else 0
    both = {}
    for name, shape in own.items():
        place, _, rest = name.partition(".")
        both[f"{half}.layers.{int(place) - shift}.{rest}"] = shape
    other = "encoder" if half == "decoder" else "decoder"
    fits(f"{engine}_{half}", arrays({**both, f"{other}.layers.0.weight": (64, 3, 3, 3)}), "tiny")


@pytest.mark.torch
class TestMadeAnew:
    """By the script: exported by torch and compiled."""

    @pytest.fixture(autouse=True)
    def _needs(self):
        pytest.importorskip("torch")
        pytest.importorskip("diffusers")

    @pytest.mark.parametrize("name", ["taef2_decoder", "taew2_1_encoder"])
    def test_what_is_shipped(self, name):
        from examples.image_engines.export import engines, unpacked
        from examples.image_engines.table import SHIPPED

        (packed,) = engines(name, SHIPPED[name]).values()
        assert unpacked(packed) == unpacked((ENGINES / f"{name}.gguf.gz").read_bytes())

    def test_weights_make_no_difference(self, tmp_path):
        """Exported with weights and without."""
        import torch
        from zoo.build import randomize

        from examples.image_engines.autoencoders import VAE_DECODER
        from examples.image_engines.export import engine, engines, exported_from, parametrized, unpacked
        from examples.image_engines.small import VAE
        from examples.image_engines.table import VAE4, Shipped

        config = {**VAE4, **VAE, "block_out_channels": (16, 16), "layers_per_block": 1}
        config |= {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
        (bare,) = engines("vae", Shipped(VAE_DECODER, config)).values()
        with torch.no_grad():
            module = randomize(VAE_DECODER.build(config))
        path = parametrized(exported_from(module, VAE_DECODER, config), tmp_path)
        assert unpacked(engine("vae", path)) == unpacked(bare)
