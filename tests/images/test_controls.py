"""ControlNets and T2I-Adapters of small models beside diffusers' own pipelines, from words and a picture to the last latent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file
from test_pipelines import AGAINST, HEIGHT, SIGMAS, WIDTH, asked, eps, near, noise, opened, painted, quiet, tokenizer

from graphc.weights.layouts import detect
from graphc_images.control_units import ControlUnit
from graphc_images.models.controls import CONTROLS, ZERO
from graphc_images.steering import Controls

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
pytestmark = pytest.mark.torch

FIRST = "input_blocks.0.0.weight"
XL = {ZERO: (16, 16, 1, 1), "label_emb.0.0.weight": (64, 80), "task_embedding": None}
SMALL_MARKS = {
    "a ControlNet of Stable Diffusion 1": {ZERO: (16, 16, 1, 1), FIRST: (16, 4, 3, 3), "label_emb.0.0.weight": None},
    "a ControlNet of Stable Diffusion XL": {**XL, "input_blocks.4.1.norm.weight": (32,)},
    "a mid-sized ControlNet of Stable Diffusion XL": {
        **XL,
        "input_blocks.4.1.norm.weight": None,
        "input_blocks.7.1.norm.weight": (64,),
    },
    "a small ControlNet of Stable Diffusion XL": {**XL, "input_blocks.7.1.norm.weight": None},
    "a ControlNet of Stable Diffusion XL for six kinds of pictures": {ZERO: (16, 16, 1, 1), "task_embedding": (6, 16)},
    "a T2I-Adapter of Stable Diffusion 1": {"body.0.block1.weight": (16, 16, 3, 3), "conv_in.weight": (16, 192, 3, 3)},
    "a T2I-Adapter of Stable Diffusion XL": {"body.0.block1.weight": (16, 16, 3, 3), "conv_in.weight": (16, 768, 3, 3)},
    "a light T2I-Adapter of Stable Diffusion 1": {"body.0.body.0.block1.weight": (4, 4, 3, 3)},
}
KINDS = [
    replace(each, marks=SMALL_MARKS[each.name]) for each in CONTROLS if each.name in SMALL_MARKS and each.channels == 3
]


def picture(seed=0):
    pixels = np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    return Image.fromarray(pixels)


def seeded(shapes, seed):
    from architecture_models import drawn

    random = np.random.default_rng(seed)
    return {name: drawn(random, name, shape) for name, shape in shapes.items()}


def original_controlnet(settings, seed=5):
    """A ControlNet of a small model, as its authors name it."""
    from architecture_models import NARROW, original

    return seeded(original.controlnet(**{**settings, **NARROW}), seed)


def written(path, tensors, prefix=""):
    save_file({prefix + name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return path


def in_torch(module, path):
    """A module of diffusers with the numbers of a file."""
    given = load_file(path)
    layout = detect({name: array.shape for name, array in given.items()})
    (component,) = layout.parts
    sources = layout.sources(given)[component]
    state = {name: torch.from_numpy(np.array(source.array(given[source.name]))) for name, source in sources.items()}
    module.load_state_dict(state)
    return module.eval().requires_grad_(False)


def steered(name, folder):
    """A pipeline of a small model that knows small controls, and its modules."""
    pipeline, modules = opened(name, folder)
    pipeline.controls = Controls(pipeline.model, None, KINDS)
    return pipeline, modules


def unet_config(config):
    return {key: value for key, value in config.items() if key not in ("up_block_types", "sample_size", "conditions")}


@pytest.fixture
def sd1(tmp_path):
    from architecture_models import configs, original

    pipeline, modules = steered("Stable Diffusion 1", tmp_path)
    path = written(tmp_path / "control.safetensors", original_controlnet(original.SD1), "control_model.")
    network = in_torch(diffusers.ControlNetModel(**unet_config(configs.SD1)), path)
    return pipeline, modules, path, network


def sd1_oracle(kind, modules, **parts):
    return quiet(getattr(diffusers, kind)(
        vae=modules["vae"], text_encoder=modules["clip_l"], tokenizer=tokenizer("<|endoftext|>"), unet=modules["denoiser"],
        scheduler=eps(), safety_checker=None, feature_extractor=None, requires_safety_checker=False, **parts,
    ))  # fmt: skip


GUIDED = {"negative_prompt": AGAINST, "guidance_scale": 6.0, "sigmas": list(SIGMAS)}
OURS = {"negative_prompt": AGAINST, "cfg_scale": 6.0}


def adapted(pipeline, oracle, start, path):
    """Fails unless an adapter does to a picture what diffusers has it do."""
    expected = oracle(**asked(start, **GUIDED), image=picture(), adapter_conditioning_scale=0.6).images[0]
    mine = painted(pipeline, start, SIGMAS, controls=(ControlUnit(path, picture(), weight=0.6),), **OURS)
    near(mine, expected)
    changed(pipeline, start, mine)


def changed(pipeline, start, mine):
    """Fails if a control did nothing."""
    bare = painted(pipeline, start, SIGMAS, **OURS)
    assert np.abs(bare.latent - mine.latent).max() > 1e-2 * np.abs(bare.latent).max()


def test_stable_diffusion_1(sd1):
    """Diffusers ends a control with the last step that is done at the end, and sd-webui-controlnet with one that begins there."""
    pipeline, modules, path, network = sd1
    oracle, start = sd1_oracle("StableDiffusionControlNetPipeline", modules, controlnet=network), noise(4)
    expected = oracle(
        **asked(start, **GUIDED), image=picture(), controlnet_conditioning_scale=0.7, control_guidance_start=0.2,
        control_guidance_end=0.8,
    ).images[0]  # fmt: skip
    unit = ControlUnit(path, picture(), weight=0.7, guidance_start=0.2, guidance_end=0.7)
    mine = painted(pipeline, start, SIGMAS, controls=(unit,), **OURS)
    near(mine, expected)
    changed(pipeline, start, mine)


def test_several_controls_are_summed(sd1, tmp_path):
    from architecture_models import configs, original

    pipeline, modules, path, network = sd1
    second = written(tmp_path / "second.safetensors", original_controlnet(original.SD1, seed=6))
    other = in_torch(diffusers.ControlNetModel(**unet_config(configs.SD1)), second)
    named = written(tmp_path / "named.safetensors", {name: each.numpy() for name, each in other.state_dict().items()})
    oracle, start = sd1_oracle("StableDiffusionControlNetPipeline", modules, controlnet=[network, other]), noise(4)
    images = [picture(1), picture(2)]
    expected = oracle(**asked(start, **GUIDED), image=images, controlnet_conditioning_scale=[0.5, 0.9]).images[0]
    units = (ControlUnit(path, images[0], weight=0.5), ControlUnit(named, weight=0.9))
    near(painted(pipeline, start, SIGMAS, controls=units, control_image=images[1], **OURS), expected)


@pytest.mark.parametrize("light", [False, True])
def test_adapters(light, tmp_path):
    """T2I-Adapters, in their authors' layout and in diffusers'."""
    pipeline, modules = steered("Stable Diffusion 1", tmp_path)
    config = {"channels": [16, 32, 64] if light else [16, 32, 64, 64], "num_res_blocks": 4 if light else 2}
    network = diffusers.T2IAdapter(**config, adapter_type="light_adapter" if light else "full_adapter")
    shapes = {name: tuple(each.shape) for name, each in network.state_dict().items()}
    tensors = seeded(shapes, 7)
    renamed = tensors if light else {theirs_of(name): array for name, array in tensors.items()}
    path = written(tmp_path / "adapter.safetensors", renamed)
    network = in_torch(network, path)
    oracle, start = sd1_oracle("StableDiffusionAdapterPipeline", modules, adapter=network), noise(4)
    adapted(pipeline, oracle, start, path)


def theirs_of(name):
    """A tensor of a T2I-Adapter of diffusers as its authors call it, whose layers are numbered through."""
    parts = name.removeprefix("adapter.").split(".")
    if parts[0] == "body":
        inner = int(parts[3]) if parts[2] == "resnets" else 0
        parts = ["body", str(2 * int(parts[1]) + inner), *(parts[4:] if parts[2] == "resnets" else parts[2:])]
    return ".".join(parts)


@pytest.fixture
def sdxl(tmp_path):
    return *steered("Stable Diffusion XL", tmp_path), tmp_path


def sdxl_oracle(kind, modules, **parts):
    return quiet(getattr(diffusers, kind)(
        vae=modules["vae"], text_encoder=modules["clip_l"], text_encoder_2=modules["clip_g"],
        tokenizer=tokenizer("<|endoftext|>"), tokenizer_2=tokenizer("!"), unet=modules["denoiser"], scheduler=eps(),
        **parts,
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("depths", "config"), [((0, 2, 3), "SDXL"), ((0, 0, 1), "SDXL_MID"), ((0, 0, 0), "SDXL_SMALL")]
)
def test_stable_diffusion_xl(sdxl, depths, config):
    from architecture_models import configs, original

    pipeline, modules, folder = sdxl
    shapes = {**original.SDXL, "depths": depths, "middle": depths[-1], "pooled": 80}
    path = written(folder / "control.safetensors", original_controlnet(shapes))
    network = in_torch(diffusers.ControlNetModel(**unet_config(getattr(configs, config))), path)
    oracle, start = (
        sdxl_oracle("StableDiffusionXLControlNetPipeline", modules, controlnet=network, add_watermarker=False),
        noise(4),
    )
    expected = oracle(**asked(start, **GUIDED), image=picture(), controlnet_conditioning_scale=0.7).images[0]
    mine = painted(pipeline, start, SIGMAS, controls=(ControlUnit(path, picture(), weight=0.7),), **OURS)
    near(mine, expected)
    changed(pipeline, start, mine)


def test_control_lora(sdxl):
    """A file that has the model's own encoder changed by products of small matrices, and what a ControlNet has besides."""
    from architecture_models import configs, original

    pipeline, modules, folder = sdxl
    shapes = {**original.SDXL, "depths": (0, 2, 3), "middle": 3, "pooled": 80}
    whole, random = original_controlnet(shapes), np.random.default_rng(9)
    given = {"lora_controlnet": np.zeros(1, np.float32)}
    base = load_file(folder / "Stable Diffusion XL.safetensors")
    for name, own in whole.items():
        before = base.get(f"model.diffusion_model.{name}")
        if before is None or before.ndim < 2:
            given[name] = own
            continue
        module, inputs = name.removesuffix(".weight"), before.shape[1:]
        up = random.standard_normal((len(before), 3), np.float32)
        down = random.standard_normal((3, *inputs), np.float32) * np.float32(np.prod(inputs) ** -0.5)
        given[f"{module}.up"], given[f"{module}.down"] = up.reshape(*up.shape, *(1 for _ in inputs[1:])), down
        whole[name] = (before.astype(np.float32) + np.tensordot(up, down, (1, 0))).astype(np.float16)
    network = in_torch(
        diffusers.ControlNetModel(**unet_config(configs.SDXL)), written(folder / "whole.safetensors", whole)
    )
    oracle, start = (
        sdxl_oracle("StableDiffusionXLControlNetPipeline", modules, controlnet=network, add_watermarker=False),
        noise(4),
    )
    expected = oracle(**asked(start, **GUIDED), image=picture(), controlnet_conditioning_scale=0.7).images[0]
    path = written(folder / "lora.safetensors", given)
    mine = painted(pipeline, start, SIGMAS, controls=(ControlUnit(path, picture(), weight=0.7),), **OURS)
    assert (
        np.abs(mine.latent - expected.numpy()).max() < 1e-3 * np.abs(mine.latent).max()
    )  # sums are rounded to float16
    changed(pipeline, start, mine)


def test_adapters_of_stable_diffusion_xl(sdxl):
    pipeline, modules, folder = sdxl
    config = {"channels": [16, 32, 64, 64], "num_res_blocks": 2, "downscale_factor": 16}
    network = diffusers.T2IAdapter(**config, adapter_type="full_adapter_xl")
    shapes = {theirs_of(name): tuple(each.shape) for name, each in network.state_dict().items()}
    path = written(folder / "adapter.safetensors", seeded(shapes, 7))
    network = in_torch(network, path)
    oracle, start = sdxl_oracle("StableDiffusionXLAdapterPipeline", modules, adapter=network), noise(4)
    adapted(pipeline, oracle, start, path)


def test_union(sdxl):
    """A ControlNet that is told that the picture is of depth."""
    from architecture_models import configs

    pipeline, modules, folder = sdxl
    sizes = {"num_control_type": 6, "num_trans_channel": 16, "num_trans_head": 2, "num_proj_channel": 16}
    sizes["conditioning_embedding_out_channels"] = (16, 32, 96, 256)
    network = diffusers.ControlNetUnionModel(**unet_config(configs.SDXL), **sizes)
    numbers = seeded({name: tuple(each.shape) for name, each in network.state_dict().items()}, 8)
    for name in numbers:  # so that it shows which kind it is
        if name.startswith(("task_embedding", "spatial_ch_projs", "control_add_embedding.linear_2", "controlnet_down")):
            numbers[name] *= 30
    path = written(folder / "union.safetensors", numbers)
    network = in_torch(network, path)
    oracle, start = (
        sdxl_oracle("StableDiffusionXLControlNetUnionPipeline", modules, controlnet=network, add_watermarker=False),
        noise(4),
    )
    told = {"control_image": [picture()], "control_mode": [1], "controlnet_conditioning_scale": 0.8}
    expected = oracle(**asked(start, **GUIDED), **told).images[0]
    unit = ControlUnit(path, picture(), weight=0.8, union_control_type="depth")
    mine = painted(pipeline, start, SIGMAS, controls=(unit,), **OURS)
    near(mine, expected)
    other = painted(pipeline, start, SIGMAS, controls=(replace(unit, union_control_type="canny"),), **OURS)
    expected = oracle(**asked(start, **GUIDED), **{**told, "control_mode": [3]}).images[0].numpy()
    assert np.abs(other.latent - expected).max() < 0.5 * np.abs(mine.latent - expected).max()


class TestWeights:
    """What sd-webui-controlnet's modes do to the residuals, beside sums of its own."""

    def residuals(self, pipeline, unit, monkeypatch):
        """Of both rows of the first evaluation, and the same without weights."""
        found = []
        real = pipeline.model.denoise

        def denoise(x, time, conditioning, weakening):
            found.append(conditioning)
            return real(x, time, conditioning, weakening)

        monkeypatch.setattr(pipeline.model, "denoise", denoise)
        painted(pipeline, noise(4), SIGMAS, controls=(unit,), **OURS)
        return [np.array(each) for each in found[0].residuals]

    def test_modes(self, sd1, monkeypatch):
        pipeline, _, path, _ = sd1
        unit = ControlUnit(path, picture())
        plain = self.residuals(pipeline, unit, monkeypatch)
        assert all(np.abs(each).max() > 0 for each in plain)
        soft = [0.825 ** (12 - place) for place in range(13)]
        prompt = self.residuals(pipeline, replace(unit, control_mode="My prompt is more important"), monkeypatch)
        for each, whole, weight in zip(prompt, plain, soft, strict=True):
            np.testing.assert_allclose(each, whole * weight, rtol=1e-4, atol=1e-5)
        control = self.residuals(pipeline, replace(unit, control_mode="ControlNet is more important"), monkeypatch)
        for each, whole, weight in zip(control, plain, soft, strict=True):
            np.testing.assert_allclose(each[0], whole[0] * weight, rtol=1e-4, atol=1e-5)
            assert not each[1].any()
        half = Image.new("L", (WIDTH, HEIGHT), 255)
        half.paste(0, (0, 0, WIDTH // 2, HEIGHT))
        masked = self.residuals(pipeline, replace(unit, effective_region_mask=half, weight=2.0), monkeypatch)
        assert not masked[0][..., :2].any()
        np.testing.assert_allclose(masked[0][..., -2:], 2 * plain[0][..., -2:], rtol=1e-4, atol=1e-5)
        own = tuple(float(place) for place in range(13))
        advanced = self.residuals(pipeline, replace(unit, advanced_weighting=own), monkeypatch)
        np.testing.assert_allclose(advanced[12], 12 * plain[12], rtol=1e-4, atol=1e-4)
