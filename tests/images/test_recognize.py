"""A checkpoint is recognized by names and sizes alone; what is like a known one is named with what differs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import original_layouts as original

from graphc_images.errors import ModelError
from graphc_images.models import ARCHITECTURES, recognize

PREFIX = "model.diffusion_model."
SSD1B_LESS = re.compile(
    r"middle_block\.[12]\."
    r"|input_blocks\.[78]\.1\.transformer_blocks\.[4-9]\."
    r"|output_blocks\.[01]\.1\.transformer_blocks\.[4-9]\."
    r"|output_blocks\.[45]\.1\.transformer_blocks\.1\."
)
"""What SDXL has and segmind/SSD-1B has not: its output blocks have 4, 4, 10, 2, 1 and 1 layers that attend."""


def arrays(shapes):
    """Tensors that take no memory."""
    return {name: np.broadcast_to(np.float16(0), shape) for name, shape in shapes.items()}


def wider(shapes, name, channels):
    first = shapes[name]
    return {**shapes, name: (first[0], channels, *first[2:])}


FIRST = "input_blocks.0.0.weight"
SD1, SD2, SDXL = (original.unet(**each) for each in (original.SD1, original.SD2, original.SDXL))
FLUX = original.flux()
FILES = {
    "coloured shapes": original.unet(**{**original.SD1, "width": 32, "levels": (1, 2, 3, 3), "context": 48}),
    "Stable Diffusion 1": SD1,
    "Stable Diffusion 1 inpainting": wider(SD1, FIRST, 9),
    "Stable Diffusion 1 instruct-pix2pix": wider(SD1, FIRST, 8),
    "Stable Diffusion 2": SD2,
    "Stable Diffusion 2 inpainting": wider(SD2, FIRST, 9),
    "Stable Diffusion XL": SDXL,
    "Stable Diffusion XL inpainting": wider(SDXL, FIRST, 9),
    "SSD-1B": {name: shape for name, shape in SDXL.items() if not SSD1B_LESS.match(name)},
    "Stable Diffusion XL refiner": original.unet(**original.REFINER),
    "Stable Diffusion 3 medium": original.sd3(),
    "Stable Diffusion 3.5 medium": original.sd3(places=384, normed=True, dual=13),
    "Stable Diffusion 3.5 large": original.sd3(38, normed=True),
    "Chroma": original.chroma(),
    "Z-Image": original.z_image(),
    "Qwen-Image": original.qwen_image(),
    "Flux.2 klein 4B": original.klein(),
    "Flux.2 klein 9B": original.klein(4096, 128, 8, 24, text=12288),
    "Flux dev": FLUX,
    "Flux schnell": original.flux(guidance=False),
    "Flux Fill": wider(FLUX, "img_in.weight", 384),
    "Flux Canny or Depth": wider(FLUX, "img_in.weight", 128),
}


def test_every_architecture_has_a_file():
    assert set(FILES) == {each.name for each in ARCHITECTURES}


@pytest.mark.parametrize("prefix", [PREFIX, ""])
@pytest.mark.parametrize("name", FILES)
def test_architectures(name, prefix):
    found = recognize(arrays(original.prefixed(prefix, FILES[name])), ARCHITECTURES)
    assert (found.architecture.name, found.prefix) == (name, prefix)
    assert found.prediction == found.architecture.prediction


def test_the_file_of_diffusers():
    """Its names for what the marks of Stable Diffusion 1 and XL are, in a folder or alone."""
    block = "attentions.0.transformer_blocks.{}.attn2.to_k.weight"
    sd1 = {"conv_in.weight": (320, 4, 3, 3), "down_blocks.0." + block.format(0): (320, 768)}
    assert recognize(arrays(sd1), ARCHITECTURES).architecture.name == "Stable Diffusion 1"
    xl = {
        "conv_in.weight": (320, 4, 3, 3), "down_blocks.1." + block.format(0): (640, 2048),
        "add_embedding.linear_1.weight": (1280, 2816), "mid_block." + block.format(9): (1280, 2048),
        "down_blocks.2." + block.format(9): (1280, 2048),
    }  # fmt: skip
    found = recognize(arrays(original.prefixed("unet/", xl)), ARCHITECTURES)
    assert (found.architecture.name, found.prefix) == ("Stable Diffusion XL", "unet/")


def test_keys_say_what_is_predicted():
    given = arrays(original.prefixed(PREFIX, SDXL))
    marked = recognize({**given, "v_pred": np.zeros(0), "ztsnr": np.zeros(0)}, ARCHITECTURES)
    assert (marked.prediction, marked.zero_snr) == ("v", True)
    edm = recognize({**given, "edm_mean": np.zeros(4), "edm_std": np.ones(4)}, ARCHITECTURES)
    assert (edm.prediction, edm.edm) == ("edm", (0.002, 80.0, 0.5))
    cosine = recognize({**given, "edm_vpred.sigma_max": np.float32(120)}, ARCHITECTURES)
    assert (cosine.prediction, cosine.edm) == ("v", (0.002, 120.0, 1.0))


@pytest.mark.parametrize(("spread", "prediction"), [(0.02, "eps"), (0.2, "v")])
def test_numbers_say_what_stable_diffusion_2_predicts(spread, prediction):
    given = arrays(original.prefixed(PREFIX, SD2))
    name = PREFIX + "output_blocks.11.1.transformer_blocks.0.norm1.bias"
    given[name] = (np.random.default_rng(1).standard_normal(given[name].shape) * spread).astype(np.float16)
    assert recognize(given, ARCHITECTURES).prediction == prediction


def test_other_sizes_are_named():
    pruned = original.unet(**{**original.SD1, "context": 512})
    with pytest.raises(
        ModelError, match=r"like Stable Diffusion 1, but of other sizes: .*\[320, 512\], not \[320, 768\]"
    ):
        recognize(arrays(pruned), ARCHITECTURES)
    shallow = original.flux(single=30)
    with pytest.raises(ModelError, match=r"like Flux dev.*single_blocks\.37\.linear1\.weight is missing"):
        recognize(arrays(shallow), ARCHITECTURES)


@pytest.mark.parametrize("more", ["__index_timestep_zero__", "time_text_embed.addition_t_embedding.weight"])
def test_relatives_of_qwen_image_are_named(more):
    """Qwen-Image-Edit since 2511, and Qwen-Image-Layered, in which nothing else is other."""
    related = {**original.qwen_image(), more: (2, 3072)}
    with pytest.raises(ModelError, match=f"like Qwen-Image, but of other sizes: {more} is there"):
        recognize(arrays(related), ARCHITECTURES)
    with pytest.raises(ModelError, match=r"like Qwen-Image.*transformer_blocks\.59\.img_mod\.1\.weight is missing"):
        recognize(arrays(original.qwen_image(layers=40)), ARCHITECTURES)


def test_something_else_is_refused():
    with pytest.raises(ModelError, match=r"not a model of pictures that is known; it has shared\.weight"):
        recognize(arrays(original.t5(64, 1)), ARCHITECTURES)
    with pytest.raises(ModelError, match="nothing"):
        recognize({}, ARCHITECTURES)
