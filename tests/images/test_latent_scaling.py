"""Latents at another size are what PyTorch makes of them."""

import numpy as np
import pytest

from graphc_images.errors import SettingError
from graphc_images.latent_scaling import LATENT_UPSCALERS, scaled_latent

torch = pytest.importorskip("torch")

MODES = {
    "Latent": {"mode": "bilinear"},
    "Latent (antialiased)": {"mode": "bilinear", "antialias": True},
    "Latent (bicubic)": {"mode": "bicubic"},
    "Latent (bicubic antialiased)": {"mode": "bicubic", "antialias": True},
    "Latent (nearest)": {"mode": "nearest"},
    "Latent (nearest-exact)": {"mode": "nearest-exact"},
}


@pytest.mark.torch
@pytest.mark.parametrize("size", [(12, 10), (17, 9), (4, 3), (1, 1), (6, 5)])
@pytest.mark.parametrize("upscaler", LATENT_UPSCALERS)
def test_sizes(upscaler, size):
    latent = np.random.default_rng(1).standard_normal((2, 4, 6, 5), np.float32)
    expected = torch.nn.functional.interpolate(torch.from_numpy(latent), size=size, **MODES[upscaler]).numpy()
    assert np.abs(scaled_latent(latent, *size, upscaler) - expected).max() < 5e-6


def test_an_upscaler_that_there_is_not():
    with pytest.raises(SettingError, match="no latent upscaler 'Latents'; there are Latent, "):
        scaled_latent(np.zeros((1, 4, 2, 2), np.float32), 4, 4, "Latents")
