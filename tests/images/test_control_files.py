"""Which file is which control, of those that fit a model and of those that do not; no network is run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import original_layouts as original
from test_engines import fits
from test_recognize import arrays

from graphc_images.errors import ModelError
from graphc_images.models import load_model
from graphc_images.models.controls import completed, load_control

SD1 = arrays(original.prefixed("model.diffusion_model.", original.unet(**original.SD1)))
SDXL = arrays(original.prefixed("model.diffusion_model.", original.unet(**original.SDXL)))
CONTROL_1 = original.prefixed("control_model.", original.controlnet(**original.SD1))
CONTROL_XL = original.controlnet(**original.SDXL)
MIDDLING_XL = original.controlnet(**{**original.SDXL, "depths": (0, 0, 1), "middle": 1})
SMALL_XL = original.controlnet(**{**original.SDXL, "depths": (0, 0, 0), "middle": 0})
UNION = {
    "task_embedding": (6, 320), "spatial_ch_projs.weight": (320, 320), "transformer_layes.0.attn.in_proj_weight": (960, 320),
}  # fmt: skip


def adapter(channels, square, light=False):
    """A T2I-Adapter as its authors name it: the tensors that tell it."""
    if light:
        return {"body.0.body.0.block1.weight": (80, 80, 3, 3), "body.0.in_conv.weight": (80, 192, 1, 1)}
    return {"body.0.block1.weight": (320, 320, 3, 3), "conv_in.weight": (320, channels * square**2, 3, 3)}


FILES = {
    "a ControlNet of Stable Diffusion 1": (SD1, CONTROL_1),
    "a ControlNet of Stable Diffusion XL": (SDXL, CONTROL_XL),
    "a mid-sized ControlNet of Stable Diffusion XL": (SDXL, MIDDLING_XL),
    "a small ControlNet of Stable Diffusion XL": (SDXL, SMALL_XL),
    "a ControlNet of Stable Diffusion XL for six kinds of pictures": (SDXL, {**CONTROL_XL, **UNION}),
    "a ControlNet of Stable Diffusion XL for eight kinds of pictures": (
        SDXL,
        {**CONTROL_XL, "task_embedding": (8, 320)},
    ),
    "a T2I-Adapter of Stable Diffusion 1": (SD1, adapter(3, 8)),
    "a T2I-Adapter of Stable Diffusion XL": (SDXL, adapter(3, 16)),
    "a light T2I-Adapter of Stable Diffusion 1": (SD1, adapter(3, 8, light=True)),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_recognized(name):
    base, shapes = FILES[name]
    assert load_control(load_model(base), arrays(shapes)).kind.name == name


def test_a_control_of_another_model():
    with pytest.raises(
        ModelError, match="it is a ControlNet of Stable Diffusion 1, and the model is Stable Diffusion XL"
    ):
        load_control(load_model(SDXL), arrays(CONTROL_1))


def test_what_differs_is_said():
    shapes = {**CONTROL_1, "control_model.input_blocks.0.0.weight": (320, 9, 3, 3)}
    with pytest.raises(ModelError, match=r"like a ControlNet of .*input_blocks.0.0.weight is \[320, 9, 3, 3\], not"):
        load_control(load_model(SD1), arrays(shapes))
    with pytest.raises(ModelError, match="it is not a ControlNet or T2I-Adapter that is known; it has x"):
        load_control(load_model(SD1), {"x": np.zeros(3, np.float32)})
    with pytest.raises(ModelError, match="not a ControlNet or T2I-Adapter that is known"):
        load_control(load_model(SD1), SD1)


ENGINES_OF = {
    "controlnet_sd1": CONTROL_1,
    "controlnet_sdxl": CONTROL_XL,
    "controlnet_sdxl_mid": MIDDLING_XL,
    "controlnet_sdxl_small": SMALL_XL,
}


@pytest.mark.parametrize(("engine", "shapes"), ENGINES_OF.items())
@pytest.mark.parametrize("hint", [False, True])
def test_engines_take_the_files(engine, shapes, hint):
    name = "controlnet_hint" if hint else engine
    fits(name, arrays(shapes), "controlnet")


def small_base():
    random = np.random.default_rng(0)
    shapes = {
        "time_embed.0.weight": (4, 3),
        "input_blocks.0.0.weight": (2, 4, 3, 3),
        "middle_block.0.x.bias": (5,),
        "out.0.bias": (7,),
    }
    return {name: random.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}


class Base:
    """What `completed` looks at of a model."""

    def __init__(self, tensors, prefix="model.diffusion_model."):
        from types import SimpleNamespace

        own = {prefix + name: each for name, each in tensors.items()}
        self.components = {"denoiser": SimpleNamespace(tensors=own, prefix=prefix, file="model.safetensors")}


def test_low_rank_files_are_added_to_the_encoder():
    base, random = small_base(), np.random.default_rng(1)
    up, down = random.standard_normal((2, 1, 1, 1)), random.standard_normal((1, 4, 3, 3))
    given = {
        "lora_controlnet": np.zeros(0), "input_blocks.0.0.up": up, "input_blocks.0.0.down": down,
        "middle_block.0.x.bias": np.ones(5), "zero_convs.0.0.weight": np.ones((2, 2, 1, 1)),
    }  # fmt: skip
    found = completed(given, Base(base))
    assert set(found) == {*base, "zero_convs.0.0.weight"} - {"out.0.bias"}
    expected = base["input_blocks.0.0.weight"] + np.einsum("oabc,aikl->oikl", up, down)
    np.testing.assert_allclose(found["input_blocks.0.0.weight"], expected, atol=2e-2)
    assert found["input_blocks.0.0.weight"].dtype == np.float16
    assert found["time_embed.0.weight"] is base["time_embed.0.weight"] or not np.any(
        found["time_embed.0.weight"] - base["time_embed.0.weight"]
    )
    assert found["middle_block.0.x.bias"].tolist() == [1] * 5
    for wrong in ((3, 1, 1, 1), (2, 2, 1, 1)):
        with pytest.raises(ModelError, match="for another model: it changes input_blocks"):
            completed({**given, "input_blocks.0.0.up": np.ones(wrong)}, Base(base))
    with pytest.raises(ModelError, match=r"has 'input_blocks.0.0.up' without"):
        completed({key: each for key, each in given.items() if "down" not in key}, Base(base))


def test_differences_are_added_to_the_encoder():
    base = small_base()
    given = {
        "difference": np.zeros(0),
        "control_model.time_embed.0.weight": np.ones((4, 3), np.float32),
        "control_model.x": np.ones(2),
    }
    found = completed(given, Base(base))
    assert set(found) == {"control_model.time_embed.0.weight", "control_model.x"}
    np.testing.assert_allclose(found["control_model.time_embed.0.weight"], base["time_embed.0.weight"] + 1, atol=1e-2)
    with pytest.raises(ModelError, match=r"model.safetensors has none"):
        completed(given, Base({"conv_in.weight": np.ones(2)}))
