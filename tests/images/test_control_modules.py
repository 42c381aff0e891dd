"""What modules of controls keep of their picture, beside sd-webui-controlnet's formulas, and controls in a second pass."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from test_controls import OURS, ControlUnit, picture, sd1  # noqa: E402, F401
from test_pipelines import HEIGHT, PROMPT, SIGMAS, WIDTH, noise, painted  # noqa: E402

from graphc_images import steering  # noqa: E402

pytestmark = pytest.mark.torch
LATENTS = [np.random.default_rng(seed).standard_normal((1, 4, 8, 6)).astype(np.float32) for seed in range(3)]
pad, functional = torch.nn.functional.pad, torch.nn.functional


class Model:
    """Its estimates are given."""

    def __call__(self, x, sigma):
        return LATENTS[0]

    def pair(self, x, sigma):
        return LATENTS[0], LATENTS[1]


def means(latent, radius):
    side = 2 * radius + 1
    whole = pad(torch.from_numpy(latent), (radius,) * 4, mode="replicate")
    return functional.avg_pool2d(whole, (side, side), stride=1).numpy()


@pytest.mark.parametrize("radius", [3, 8])
def test_coarse_colours(radius):
    found = steering.Coloured(Model(), LATENTS[2], radius, 0.6)
    for made, own in zip((found(0, 1.0), *found.pair(0, 1.0)), (LATENTS[0], *LATENTS[:2]), strict=True):
        expected = own - means(own, radius) + means(LATENTS[2], radius)
        np.testing.assert_allclose(made, expected * 0.6 + own * 0.4, atol=1e-5)


def test_what_is_not_masked_stays():
    mask = np.zeros((64, 48), np.uint8)
    mask[20:29, 7:17] = 255
    small = functional.max_pool2d(
        torch.from_numpy(mask[None, None] / 255.0), (10, 10), stride=(8, 8), padding=1
    ).numpy()
    found = steering.Kept(Model(), LATENTS[2], steering._latent_mask(mask), 0.75)
    for made, own in zip((found(0, 1.0), *found.pair(0, 1.0)), (LATENTS[0], *LATENTS[:2]), strict=True):
        kept = LATENTS[2] * (1 - small) + own * small
        np.testing.assert_allclose(made, kept * 0.75 + own * 0.25, atol=1e-6)


def test_inpaint_only(sd1):  # noqa: F811
    """In a picture from words: what is far from the mask is the control's picture, in the latent and in the pixels."""
    pipeline, _, path, _ = sd1
    mask = Image.new("L", (WIDTH, HEIGHT))
    mask.paste(255, (0, 0, WIDTH, 16))
    unit = ControlUnit(path, picture(), mask=mask, module="inpaint_only")
    made = painted(pipeline, noise(4), SIGMAS, controls=(unit,), **OURS)
    pixels = np.asarray(picture(), np.float32).transpose(2, 0, 1)[None] / np.float32(127.5) - 1
    np.testing.assert_allclose(made.latent[:, 3:], pipeline.model.encode_image(pixels)[0, :, 3:], atol=1e-5)
    np.testing.assert_array_equal(np.asarray(made.image)[24:], np.asarray(picture())[24:])
    assert np.abs(np.asarray(made.image)[:12].astype(int) - np.asarray(picture())[:12]).mean() > 5
    half = painted(
        pipeline,
        noise(4),
        SIGMAS,
        controls=(ControlUnit(path, picture(), mask=mask, module="inpaint_only", weight=0.5),),
        **OURS,
    )
    assert np.abs(half.latent[:, 3:] - made.latent[:, 3:]).max() > 1e-2


def test_a_second_pass(sd1, monkeypatch):  # noqa: F811
    """Controls look at their picture in its size, colours are those of larger squares, and some are for one pass alone."""
    pipeline, _, path, _ = sd1
    radii, seen = [], []
    monkeypatch.setattr(steering, "Coloured", lambda model, latent, radius, share: radii.append(radius) or model)
    real = steering.Steering

    def noted(model, steers, prompts):
        seen.append([(steer.unit.hr_option, steer.hint.shape[:2]) for steer in steers])
        return real(model, steers, prompts)

    monkeypatch.setattr(steering, "Steering", noted)
    units = tuple(
        ControlUnit(path, picture(), module="tile_colorfix", hr_option=option, threshold_a=radius)
        for option, radius in (("Both", 4.0), ("Low res only", -1.0), ("High res only", 6.0))
    )
    (made,) = pipeline(
        PROMPT,
        controls=units,
        steps=2,
        seed=1,
        height=HEIGHT,
        width=WIDTH,
        hires_scale=1.5,
        hires_denoising_strength=0.7,
    )
    assert made.image.size == (72, 96)
    first, second = (HEIGHT, WIDTH), (96, 72)
    assert seen == [[("Both", first), ("Low res only", first)], [("Both", second), ("High res only", second)]]
    assert sorted(radii) == [4, 8, 8, 12]  # -1 is for the usual 8
