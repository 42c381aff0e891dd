"""Every setting can be typed, is written into pictures, and is read back."""

import re
from dataclasses import fields, replace

import pytest
from PIL import Image
from typer.testing import CliRunner

from graphc_images.commands import image
from graphc_images.commands.options import IN_PYTHON_ONLY, options, record_of, settings_given
from graphc_images.control_units import ControlUnit
from graphc_images.describing import described, settings_of
from graphc_images.errors import SettingError
from graphc_images.models import ARCHITECTURES
from graphc_images.pictures.blending import SoftInpainting
from graphc_images.pictures.parameters import read_parameters
from graphc_images.resolving import resolved
from graphc_images.sampling.guidance import DynamicThreshold, FreeU, Frequencies, Projected
from graphc_images.settings import Settings
from graphc_server.own.parameters import PARAMETERS

NOT_WRITTEN = {
    "batches",
    "batch_size",
    "image",
    "mask",
    "control_image",
    "reference_images",
    "latent_mask",
    "firstpass_image",
    "noise",
    "latent",
    "loras",
    "embeddings",
}
"""Settings that are of several pictures, files, or arrays: a text of one picture cannot have them."""

PICTURE = Image.new("RGB", (64, 64))
RESOLVED = Settings("a (cat), big: nice", "bad, ugly", 512, 384, steps=20, sampler="Euler", scheduler="Karras",
                    cfg_scale=7.0, seed=1, subseed=2, image=PICTURE, mask=PICTURE)  # fmt: skip

OTHER = {
    "prompt": "a dog\nand: a cat, too",
    "negative_prompt": "no",
    "width": 640,
    "height": 256,
    "steps": 7,
    "sampler": "DPM++ 2M",
    "scheduler": "Exponential",
    "cfg_scale": 3.5,
    "guidance": 2.5,
    "mode": "comfyui",
    "seed": 77,
    "generator": "cpu",
    "subseed": 5,
    "subseed_strength": 0.25,
    "seed_resize_from": (256, 320),
    "eta_noise_seed_delta": 31337,
    "clip_skip": 2,
    "emphasis": "No norm",
    "sigmas": (10.0, 2.5, 0.0),
    "discard_next_to_last_sigma": True,
    "resize_mode": "crop",
    "uni_pc_variant": "bh2",
    "uni_pc_order": 2,
    "comma_backtrack": 5,
    "crop_top": 16,
    "crop_left": 8,
    "uni_pc_skip": "time_quadratic",
    "hires_checkpoint": "other",
    "hires_modules": ("fine.vae", "clip: l"),
    "hires_refiner": "both passes",
    "pad_prompts": "last",
    "resize_upscaler": "4x, sharp",
    "background": "#102030",
    "upscale_tile": 256,
    "upscale_overlap": 16,
    "inpainting_fill": "latent noise",
    "soft_inpainting": SoftInpainting(2.0, mask_influence=0.5),
    "slg_layers": (3, 4),
    "apg": Projected(0.5, 3.0, 0.25),
    "dynamic_thresholding": DynamicThreshold(5.0, 0.75, "Cosine Down", from_mean=False, by_deviation=True),
    "fresca": Frequencies(0.5, 2.0, 10),
    "free_u": FreeU(1.1, 1.2, 0.9, 0.2, second_version=False),
    "t5_mask_pad": 1,
    "refiner": "refine: r.safetensors",
    "hires_upscaler": "Lanczos",
    "hires_width": 1024,
    "hires_height": 768,
    "hires_steps": 3,
    "hires_scale": 1.5,
    "hires_denoising_strength": 0.35,
    "hires_sampler": "Heun",
    "hires_scheduler": "Simple",
    "hires_prompt": "b, c: d",
    "hires_negative_prompt": "e",
    "hires_cfg_scale": 4.0,
    "controls": (
        ControlUnit("depth", module="canny", weight=0.5, threshold_a=80.0, control_mode="My prompt is more important"),
        ControlUnit("tile", guidance_end=0.5, pixel_perfect=True, union_control_type="tile"),
    ),
    "tiling": "y",
    "vae_tiling": "on",
    "vae_tile": 256,
}
"""Another value than the usual one, where it is not a number or a switch, which are changed by themselves."""

BESIDES = {
    "subseed": {"subseed_strength": 0.5},
    "only_masked_padding": {"only_masked": True},
    "refiner_switch_at": {"refiner": "r"},
    **{
        f"hires_{name}": {"hires_width": 1024, "hires_height": 768, "image": None, "mask": None}
        for name in (
            "upscaler",
            "denoising_strength",
            "sampler",
            "scheduler",
            "prompt",
            "negative_prompt",
            "checkpoint",
            "modules",
        )
    },
}
"""What else has to be so for a setting to count."""

NAMES = [each.name for each in fields(Settings)]


def another(name):
    if name in OTHER:
        return OTHER[name]
    usual = next(each.default for each in fields(Settings) if each.name == name)
    return not usual if isinstance(usual, bool) else 0.5 if usual is None or usual == float("inf") else usual / 2 + 0.25


def test_every_setting_is_an_option():
    assert sorted([*options(), *IN_PYTHON_ONLY]) == sorted(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_WRITTEN])
def test_a_setting_comes_back_from_the_text(name):
    value = int(another(name)) or 9 if name == "only_masked_padding" else another(name)
    asked = replace(RESOLVED, **{**BESIDES.get(name, {}), name: value})
    found = settings_of(read_parameters(described(asked, "m")))
    assert found[name] == value
    assert Settings.of(**found)


@pytest.mark.parametrize("model", ARCHITECTURES, ids=lambda model: model.name)
def test_guidance_is_for_models_that_take_it(model):
    """Clients of Forge send it to all; Flux schnell, say, has no input for it."""
    found = resolved(Settings(guidance=2.5, hires_guidance=1.5), model)
    takes = model.defaults.guidance is not None
    assert (found.guidance, found.hires_guidance) == ((2.5, 1.5) if takes else (None, None))
    assert ("guidance" in {each.name for each in PARAMETERS if each.has(model)}) == takes


def test_what_is_usual_is_not_written():
    text = described(replace(RESOLVED, image=None, mask=None), "model")
    assert text.splitlines()[-1].partition(", Version")[0] == (
        "Steps: 20, Sampler: Euler, Schedule type: Karras, CFG scale: 7, Seed: 1, Size: 512x384, Model: model"
    )


def test_loras_of_the_settings_stand_in_the_text():
    assert described(replace(RESOLVED, loras={"/some/style.safetensors": 0.5}), "m").startswith(
        "a (cat), big: nice<lora:style:0.5>\n"
    )


def test_a_text_of_others_is_understood():
    text = (
        "a cat\nNegative prompt: bad\nSteps: 20, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 7, Seed: 3, "
        "Size: 512x512, Denoising strength: 0.4, Hires resize: 1024x768, Hires sampler: Use same sampler, "
        "Hires upscaler: Latent, Hires steps: many, Eta DDIM: 0.5, Clip skip: 2, Something: else, Version: v1.10.1"
    )
    found = settings_of(read_parameters(text))
    assert (found["hires_width"], found["hires_height"], found["hires_denoising_strength"]) == (1024, 768, 0.4)
    assert found["eta"] == 0.5
    assert not {"hires_sampler", "hires_steps", "denoising_strength"} & found.keys()


def test_options_are_read():
    values = {"loras": ["a:0.5", "c:/b.safetensors"], "sigmas": "3,1.5,0", "seed_resize_from": "64x32", "width": None,
              "embeddings": ["x=/y/z.pt", "/y/w.pt"], "soft_inpainting": "schedule_bias=2, mask_influence=0.5"}  # fmt: skip
    assert settings_given(values) == {
        "loras": {"a": 0.5, "c:/b.safetensors": 1.0},
        "sigmas": (3.0, 1.5, 0.0),
        "seed_resize_from": (64, 32),
        "embeddings": {"x": "/y/z.pt", "w": "/y/w.pt"},
        "soft_inpainting": SoftInpainting(2.0, mask_influence=0.5),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sigmas", "3,x"),
        ("seed_resize_from", "64"),
        ("soft_inpainting", "bias=1"),
        ("soft_inpainting", "mask_influence=x"),
    ],
)
def test_an_option_that_is_wrong_is_named(name, text):
    with pytest.raises(SettingError, match=f"--{name.replace('_', '-')}: "):
        settings_given({name: text})


def test_a_record_is_usual_by_itself():
    assert record_of(SoftInpainting, "on") == SoftInpainting()


def test_every_option_is_in_the_help_as_it_is_typed():
    shown = CliRunner().invoke(image, ["paint", "--help"], terminal_width=100).output
    for option in options().values():
        assert f"{option.names[0]} " in shown, option.names[0]
    assert not re.search(r"--[\w-]+…", shown)  # a name that has no room
