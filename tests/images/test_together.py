"""Paintings at the same time: the bits that they have alone, and each its own end."""

from __future__ import annotations

import pytest
from PIL import Image
from small_checkpoint import small_modules, write_small

import graphc_images
from graphc_images.errors import SettingError
from graphc_images.models import together

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ASKED = (
    {"prompt": "a red circle", "seed": 1, "steps": 3},
    {"prompt": "a blue square", "negative_prompt": "green", "seed": 9, "steps": 2, "sampler": "DPM++ 2M SDE", "cfg_scale": 3},
    {"prompt": "[a:b:0.5] AND green :0.5", "seed": 3, "steps": 3, "sampler": "Heun", "batch_size": 2},
    {"prompt": " ".join(["red"] * 90), "seed": 4, "steps": 3, "sampler": "Euler a"},
    {"prompt": "a", "seed": 5, "steps": 4, "image": Image.new("RGB", (64, 64), "red"), "denoising_strength": 0.6},
    {"prompt": "a", "seed": 6, "steps": 2, "hires_scale": 2.0},
    {"prompt": "a", "seed": 7, "steps": 2, "mode": "comfyui", "batch_size": 2},
    {"prompt": "a", "seed": 8, "steps": 2, "pag_scale": 3.0},
)  # fmt: skip


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    path = write_small(tmp_path_factory.mktemp("models") / "small.safetensors", small_modules())
    return graphc_images.load(path, hashes=False, threads=1)


def pictures(pipeline, asked):
    return [each.image.tobytes() for each in pipeline(**{"width": 64, "height": 64, **asked})]


def test_each_has_the_bits_that_it_has_alone(pipeline, monkeypatch):
    alone = [pictures(pipeline, asked) for asked in ASKED]
    rows, found = [], {}
    run = graphc_images.models.ImageModel._denoise
    monkeypatch.setattr(
        graphc_images.models.ImageModel,
        "_denoise",
        lambda self, x, *more: (rows.append(len(x)), run(self, x, *more))[1],
    )
    together([lambda n=n, asked=asked: found.update({n: pictures(pipeline, asked)}) for n, asked in enumerate(ASKED)])
    assert [found[place] for place in range(len(ASKED))] == alone
    assert max(rows) >= 8


def test_one_that_fails_does_so_alone(pipeline):
    found = []

    def fails():
        pipeline(**{**ASKED[0], "width": 64, "height": 64, "slg_scale": 3.0, "slg_start": 0.0, "slg_end": 1.0})

    def stops():
        for progress in pipeline.steps("a", width=64, height=64, steps=5, seed=1):
            found.append(progress.step)
            if progress.step == 2:
                return

    expected = pictures(pipeline, ASKED[0])
    with pytest.raises(SettingError, match="layers"):
        together([fails, lambda: found.append(pictures(pipeline, ASKED[0])), stops])
    assert expected in found
    assert [each for each in found if each != expected] == [1, 2]


def test_more_than_there_is_memory_for_go_in_parts(pipeline, monkeypatch):
    alone = [pictures(pipeline, asked) for asked in ASKED[:2]]
    found = {}
    run = graphc_images.models.ImageModel._run

    def limited(self, key, feed):
        if "sample" in feed and len(feed["sample"]) > 2:
            raise graphc_images.models.TooLarge("too large")
        return run(self, key, feed)

    monkeypatch.setattr(graphc_images.models.ImageModel, "_run", limited)
    together([lambda n=n: found.update({n: pictures(pipeline, ASKED[n])}) for n in range(2)])
    assert [found[0], found[1]] == alone


def test_a_batch_is_as_many_single_ones(pipeline):
    batch = pictures(pipeline, {**ASKED[0], "batch_size": 5})
    assert batch == [each for seed in range(1, 6) for each in pictures(pipeline, {**ASKED[0], "seed": seed})]


def test_a_single_one_needs_no_thread(pipeline):
    import threading

    found = []
    together([lambda: found.append(threading.current_thread())])
    assert found == [threading.current_thread()]
    together([])
