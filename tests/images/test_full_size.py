"""Every architecture at its published size: files of zeros that take no room are recognized, opened and, where asked for, run."""

from __future__ import annotations

import json
import re
import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import original_layouts as original
from original_layouts import prefixed
from test_recognize import FILES

from graphc_images.models import ARCHITECTURES, Conditioning, load_model
from graphc_images.models.model import ENGINES

pytestmark = pytest.mark.thorough
ROWS = {each.name: each for each in ARCHITECTURES if each.name in FILES and each.name != "coloured shapes"}
TEXTS = {
    "clip_l": original.clip(projection=768),
    "clip_h": original.openclip(1024, 24),
    "clip_g": original.openclip(),
    "t5xxl": original.t5(),
    "llm": original.qwen3(),
}
OTHERS = {"Flux.2 klein 9B": original.qwen3(4096, 12288), "Qwen-Image": {**original.qwen2(), **original.visual()}}
"""The language models of those that read another one."""

VAES = {
    "vae4": original.vae(),
    "vae16": original.vae(latents=16, quantized=False),
    "vae32": original.vae32(),
    "vae_wan": original.wan_vae(),
}
MOST, MOST_MEANWHILE = 128_000, 512_000
"""KiB of memory of its own that a part of a model may have once it is open, and before that, with what of files was read then.
The most that was seen are 91,000 and 353,000, of Qwen-Image's VAE; a table of tokens that is copied has 150,000."""


def write_zeros(path, shapes, kind="F16", width=2):
    """A file of safetensors that is as long as it says, and has nothing in it."""
    header, place = {}, 0
    for name, shape in shapes.items():
        end = place + width * prod(shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # as the library does, so that numbers lie where they can be read
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + place)
    return path


def opened(name, folder):
    row = ROWS[name]
    whole = {**prefixed("model.diffusion_model.", FILES[name]), **prefixed("first_stage_model.", VAES[row.vae.engine])}
    known = {**TEXTS, "llm": OTHERS.get(name, TEXTS["llm"])}
    text = {each: write_zeros(folder / f"{each}.safetensors", known[each]) for each in row.text}
    return load_model(write_zeros(folder / "model.safetensors", whole), text=text)


def memory(key):
    """KiB of this process, by what Linux calls them."""
    return int(re.search(rf"^{key}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)[1])


@pytest.mark.parametrize("name", ROWS)
def test_every_part_is_opened(name, tmp_path):
    """Nothing of the weights is read or copied."""
    own = memory("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")  # the most that was ever needed begins anew
    all_of_it = memory("VmRSS")
    model = opened(name, tmp_path)
    assert model.architecture.name == name
    for key in ("denoiser", "vae encoder", "vae decoder", *model.architecture.text):
        assert model._engine(key).inputs
        assert memory("RssAnon") - own < MOST, key
        assert memory("VmHWM") - all_of_it < MOST_MEANWHILE, key
        model.close()


@pytest.mark.parametrize("name", ["Stable Diffusion 3 medium", "Flux dev"])
def test_it_runs(name, tmp_path):
    """One evaluation of 32 x 32 pixels; zeros give zeros."""
    model = opened(name, tmp_path)
    ids = np.zeros((1, 8), np.int64)
    words = model.encode_tokens("t5xxl", ids).skipping(1)
    pooled = np.ones((1, 2048 if name.startswith("Stable") else 768), np.float32)
    guidance = None if name.startswith("Stable") else np.array([3.5], np.float32)
    found = model.denoise(
        np.ones((1, 16, 4, 4), np.float32), 0.5, Conditioning(words, pooled=pooled, guidance=guidance)
    )
    assert words.shape == (1, 8, 4096)
    assert found.shape == (1, 16, 4, 4)
    assert not found.any()


def test_all_engines_are_there():
    assert not [
        each.denoiser.engine for each in ROWS.values() if not (ENGINES / f"{each.denoiser.engine}.gguf.gz").exists()
    ]
