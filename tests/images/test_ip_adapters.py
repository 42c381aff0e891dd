"""IP-Adapters of small models beside diffusers' own pipelines, from words and pictures to the last latent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from graphc_images.control_units import ControlUnit
from graphc_images.errors import ModelError, SettingError
from graphc_images.image_prompts import WEIGHT_TYPES, image_prompt
from graphc_images.models import ip_adapters
from graphc_images.models.ip_adapters import ADAPTERS, AdapterKind, PictureEncoder, load_ip_adapter, prepared
from graphc_images.sampling.guidance import FreeU
from graphc_images.steering import Controls

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from test_controls import GUIDED, OURS, changed, sd1_oracle, seeded  # noqa: E402
from test_other_pipelines import of_sdxl  # noqa: E402
from test_pipelines import SIGMAS, asked, near, noise, opened, painted, quiet  # noqa: E402

pytestmark = pytest.mark.torch

HIDDEN, PROJECTED, TOKENS = 32, 16, 4
KNOWN = {("projected", PROJECTED): "clip_vision", ("states", HIDDEN): "clip_vision"}


def small_kind(family, width, *layers):
    """A row of the table, for small models of a family."""
    return AdapterKind(f"a small IP-Adapter of {family}", family, {"ip_adapter.1.to_k_ip.weight": (width, 48)}, *layers)


FAMILIES = {
    "Stable Diffusion 1": (48, small_kind("Stable Diffusion 1", 16, (1,) * 6, 1, (1,) * 9)),
    "Stable Diffusion XL": (48, small_kind("Stable Diffusion XL", 32, (2, 2, 3, 3), 3, (3, 3, 3, 2, 2, 2))),
}
WIDTHS = {
    "Stable Diffusion 1": [16] * 2 + [32] * 2 + [64] * 2 + [64] * 3 + [32] * 3 + [16] * 3 + [64],
    "Stable Diffusion XL": [32] * 4 + [64] * 6 + [64] * 9 + [32] * 6 + [64] * 3,
}


@pytest.fixture(autouse=True)
def small_encoders(monkeypatch):
    monkeypatch.setattr(ip_adapters, "ENCODERS", KNOWN)


def projection(kind, width):
    """The shapes of what makes tokens of width `width`."""
    if kind == "plain":
        return {
            "proj.weight": (TOKENS * width, PROJECTED),
            "proj.bias": (TOKENS * width,),
            "norm.weight": (width,),
            "norm.bias": (width,),
        }
    if kind == "full":
        return {
            "proj.0.weight": (HIDDEN, HIDDEN),
            "proj.0.bias": (HIDDEN,),
            "proj.2.weight": (width, HIDDEN),
            "proj.2.bias": (width,),
            "proj.3.weight": (width,),
            "proj.3.bias": (width,),
        }
    inner = 64
    found = {"latents": (1, 6, inner), "proj_in.weight": (inner, HIDDEN), "proj_in.bias": (inner,)}
    found |= {
        "proj_out.weight": (width, inner),
        "proj_out.bias": (width,),
        "norm_out.weight": (width,),
        "norm_out.bias": (width,),
    }
    for number in range(4):  # as many as diffusers takes there to be
        looks, thinks = f"layers.{number}.0", f"layers.{number}.1"
        found |= {f"{looks}.{norm}.{part}": (inner,) for norm in ("norm1", "norm2") for part in ("weight", "bias")}
        found |= {
            f"{looks}.to_q.weight": (inner, inner),
            f"{looks}.to_kv.weight": (2 * inner, inner),
            f"{looks}.to_out.weight": (inner, inner),
        }
        found |= {f"{thinks}.0.weight": (inner,), f"{thinks}.0.bias": (inner,)}
        found |= {f"{thinks}.1.weight": (4 * inner, inner), f"{thinks}.3.weight": (inner, 4 * inner)}
    return found


def adapter_weights(name, kind="plain", seed=3):
    """A file of an adapter, as the authors name its tensors."""
    width = FAMILIES[name][0]
    shapes = {f"image_proj.{key}": shape for key, shape in projection(kind, width).items()}
    for number, wide in enumerate(WIDTHS[name]):
        shapes |= {f"ip_adapter.{2 * number + 1}.to_{which}_ip.weight": (wide, width) for which in "kv"}
    return seeded(shapes, seed)


def vision():
    import transformers

    from examples.image_engines.small import VISION

    torch.manual_seed(11)
    module = transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(**VISION))
    for parameter in module.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return module.eval().requires_grad_(False)


def picture(seed=0, size=(300, 240)):
    pixels = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def files(folder, name, kind="plain"):
    """An adapter's file, the encoder's, and the encoder in PyTorch."""
    adapter, encoder, module = folder / "ip.safetensors", folder / "vision.safetensors", vision()
    save_file(adapter_weights(name, kind), adapter)
    save_file({key: np.ascontiguousarray(each.numpy()) for key, each in module.state_dict().items()}, encoder)
    return adapter, encoder, module


def prompted(name, folder):
    """A pipeline of a small model that knows small adapters, and its modules."""
    pipeline, modules = opened(name, folder)
    pipeline.controls = Controls(pipeline.model, None, adapters=[FAMILIES[name][1]])
    return pipeline, modules


def test_what_clip_sees(tmp_path):
    from transformers import CLIPImageProcessor

    pipeline, _ = prompted("Stable Diffusion 1", tmp_path)
    _, encoder, module = files(tmp_path, "Stable Diffusion 1")
    for size in ((300, 240), (224, 224), (100, 333)):
        pixels = prepared(picture(size=size))
        theirs = CLIPImageProcessor()(picture(size=size), return_tensors="pt").pixel_values
        np.testing.assert_allclose(pixels, theirs[0], atol=1e-5)
        expected = module(theirs, output_hidden_states=True)
        found = PictureEncoder(pipeline.model, encoder).see(pixels[None])
        np.testing.assert_allclose(found["projected"], expected.image_embeds, atol=1e-4)
        np.testing.assert_allclose(found["states"], expected.hidden_states[-2], atol=1e-4)


def oracle_of(name, modules, file, module, weight):
    """diffusers' pipeline with the adapter, and what it is told of a picture."""
    if name == "Stable Diffusion 1":
        oracle = sd1_oracle("StableDiffusionPipeline", modules, image_encoder=None)
    else:
        oracle = quiet(diffusers.StableDiffusionXLPipeline(**of_sdxl(modules)))
    from safetensors.torch import load_file

    given = {"image_proj": {}, "ip_adapter": {}}
    for key, tensor in load_file(file).items():
        part, _, rest = key.partition(".")
        given[part][rest] = tensor
    oracle.unet._load_ip_adapter_weights([given], low_cpu_mem_usage=False)
    oracle.set_ip_adapter_scale(weight)
    pixels = torch.from_numpy(prepared(picture()))[None]
    if "proj.weight" in given["image_proj"]:
        seen = module(pixels).image_embeds
        both = torch.stack([torch.zeros_like(seen), seen])
    else:
        both = torch.stack(
            [module(each, output_hidden_states=True).hidden_states[-2] for each in (torch.zeros_like(pixels), pixels)]
        )
    return oracle, [both]


KINDS = [(name, kind) for name in FAMILIES for kind in ("plain", "plus", "full") if (kind, name[-2:]) != ("full", "XL")]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_adapters_as_diffusers_has_them(tmp_path, name, kind):
    pipeline, modules = prompted(name, tmp_path)
    file, encoder, module = files(tmp_path, name, kind)
    oracle, seen = oracle_of(name, modules, file, module, 0.7)
    start = noise(4)
    expected = oracle(**asked(start, **GUIDED), ip_adapter_image_embeds=seen).images[0]
    unit = ControlUnit(file, picture(), weight=0.7, clip_vision=encoder)
    mine = painted(pipeline, start, SIGMAS, controls=(unit,), **OURS)
    near(mine, expected)
    changed(pipeline, start, mine)
    assert "Model: ip [" in mine.parameters


def test_nothing_counts_is_as_without(tmp_path):
    """A weight of 0, a share of the steps that never comes, and a region where nothing is."""
    name = "Stable Diffusion 1"
    pipeline, _ = prompted(name, tmp_path)
    file, encoder, _ = files(tmp_path, name)
    start, unit = noise(4), ControlUnit(file, picture(), clip_vision=encoder)
    bare = torch.from_numpy(painted(pipeline, start, SIGMAS, **OURS).latent)
    black = Image.new("L", (64, 64))
    for each in (
        replace(unit, weight=0.0),
        replace(unit, effective_region_mask=black),
        replace(unit, guidance_start=0.99),
    ):
        near(painted(pipeline, start, SIGMAS, controls=(each,), **OURS), bare)
    whole = painted(pipeline, start, SIGMAS, controls=(unit,), **OURS)
    half = replace(unit, effective_region_mask=Image.new("L", (64, 64), 255))
    near(painted(pipeline, start, SIGMAS, controls=(half,), **OURS), torch.from_numpy(whole.latent))
    twice = painted(pipeline, start, SIGMAS, controls=(unit, replace(unit, weight=0.0)), **OURS)
    near(twice, torch.from_numpy(whole.latent))
    mirrored = painted(pipeline, start, SIGMAS, controls=(replace(unit, weight=0.5), replace(unit, weight=0.5)), **OURS)
    near(mirrored, torch.from_numpy(whole.latent))


def test_what_is_refused(tmp_path):
    name = "Stable Diffusion 1"
    pipeline, _ = prompted(name, tmp_path)
    file, encoder, _ = files(tmp_path, name)
    start, unit = noise(4), ControlUnit(file, picture(), clip_vision=encoder)
    with pytest.raises(ModelError, match="none in the folder clip_vision"):
        painted(pipeline, start, SIGMAS, controls=(replace(unit, clip_vision=None),))
    with pytest.raises(SettingError, match="no image to look at"):
        painted(pipeline, start, SIGMAS, controls=(replace(unit, image=None),))
    with pytest.raises(SettingError, match="looks at the picture itself, not at canny"):
        painted(pipeline, start, SIGMAS, controls=(replace(unit, module="canny"),))
    with pytest.raises(SettingError, match="16 weights, and not 3"):
        painted(pipeline, start, SIGMAS, controls=(replace(unit, advanced_weighting=(1.0, 2.0, 3.0)),))
    with pytest.raises(SettingError, match="free_u"):
        painted(pipeline, start, SIGMAS, controls=(unit,), free_u=FreeU())
    faces = {**adapter_weights(name), "ip_adapter.0.to_q_lora.down.weight": np.zeros((4, 4), np.float32)}
    with pytest.raises(ModelError, match="reads faces"):
        load_ip_adapter(faces, [FAMILIES[name][1]])
    other = replace(FAMILIES[name][1], family="Stable Diffusion XL")
    with pytest.raises(ModelError, match="and the model is Stable Diffusion 1"):
        load_ip_adapter(file, [other]).check(pipeline.model)
    with pytest.raises(ModelError, match="of other sizes"):
        load_ip_adapter(file)


def test_the_authors_files_of_pytorch(tmp_path):
    """They hold two dictionaries."""
    weights = adapter_weights("Stable Diffusion 1")
    given = {"image_proj": {}, "ip_adapter": {}}
    for name, array in weights.items():
        part, _, rest = name.partition(".")
        given[part][rest] = torch.from_numpy(array)
    torch.save(given, tmp_path / "ip.bin")
    adapter = load_ip_adapter(tmp_path / "ip.bin", [FAMILIES["Stable Diffusion 1"][1]])
    (keys, _), *_ = adapter.keys_values(np.ones((1, 48), np.float32))
    np.testing.assert_allclose(keys[0], weights["ip_adapter.1.to_k_ip.weight"].sum(1), rtol=1e-4, atol=1e-5)


def test_kinds_of_weights():
    """The published adapters have so many layers; kinds of weights leave some transformers out, as ComfyUI's nodes do."""
    sd1, xl = ADAPTERS
    assert (len(sd1.layers), len(xl.layers)) == (16, 70)
    assert [place for _, place in sd1.layers][-1] == "middle"
    assert sd1.layers[-1][0] == 6
    assert {number for number, _ in xl.layers} == set(range(11))
    style = [WEIGHT_TYPES["style transfer"](number, 11, place) for number, place in xl.layers]
    assert sum(style) == 10
    assert style[34:44] == [1.0] * 10  # of the decoder's second transformer
    assert [WEIGHT_TYPES["weak output"](0, 16, place) for place in ("encoder", "middle", "decoder")] == [1, 1, 0.2]


def test_weights_of_layers_and_scalings(tmp_path):
    name = "Stable Diffusion 1"
    file, _, _ = files(tmp_path, name)
    adapter = load_ip_adapter(file, [FAMILIES[name][1]])
    seen = np.random.default_rng(0).standard_normal((2, PROJECTED)).astype(np.float32)
    plain = image_prompt(adapter, seen, 0 * seen, 1.0)
    assert plain.tokens == 2 * TOKENS
    eased = image_prompt(adapter, seen, 0 * seen, 2.0, layers=[0.5] + [0.0] * 15)
    np.testing.assert_array_equal(eased.positive[0][1], plain.positive[0][1])
    assert not any(values.any() for _, values in eased.positive[1:])
    both = image_prompt(adapter, seen, 0 * seen, 0.5, scaling="K+V")
    np.testing.assert_array_equal(both.positive[3][0], plain.positive[3][0] / 2)
