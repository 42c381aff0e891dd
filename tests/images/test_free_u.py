"""What a U-Net is told for FreeU; test_free_u_pipelines.py runs it."""

from __future__ import annotations

import numpy as np
import pytest

from graphc_images.errors import SettingError
from graphc_images.models.free_u import scales, waves
from graphc_images.sampling.guidance import FreeU, frequency_scaled
from graphc_images.settings import Settings

SD1 = [320, 320, 320, 320, 640, 640, 640, 1280, 1280, 1280, 1280, 1280]
SDXL = [320, 320, 320, 320, 640, 640, 640, 1280, 1280]


@pytest.mark.parametrize(("height", "width"), [(8, 6), (7, 5), (2, 3), (1, 5), (4, 1), (2, 2), (1, 1)])
def test_waves_are_the_lowest_frequencies(height, width):
    skip = np.random.default_rng(0).standard_normal((2, 3, height, width))
    rows = waves(height, width).reshape(7, -1).astype(np.float64)
    flat = skip.reshape(2, 3, -1)
    found = (flat + (0.3 - 1) * (flat @ rows.T @ rows)).reshape(skip.shape)
    np.testing.assert_allclose(found, frequency_scaled(skip, 0.3, 1.0, 1), atol=1e-6)


def stages(encoder, **given):
    """Which of both pairs of factors counts in each block."""
    found = scales(encoder, encoder[-1], FreeU(2.0, 3.0, 0.5, 0.25, **given).numbers()[0])
    pairs = {(1.0, -0.5): 1, (2.0, -0.75): 2, (0.0, 0.0): 0}
    return [pairs[float(backbone), float(skip)] for backbone, skip, _ in found]


def test_blocks_that_are_scaled():
    """By the channels that come from below, or by levels."""
    assert stages(SD1) == [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 0, 0]
    assert stages(SDXL) == [1, 1, 1, 1, 2, 2, 2, 0, 0]
    assert stages(SD1, by_blocks=True) == [1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0]
    first, last = scales(SD1, 1280, FreeU().numbers()[0])[[0, -1], 2]
    assert (first, last) == (1, 0)


def test_numbers_are_checked():
    with pytest.raises(SettingError, match="free_u: b1: nan is not a number"):
        Settings(free_u=FreeU(b1=float("nan")))
