"""FreeU in small models: beside diffusers' own, and beside ComfyUI's second version in its place."""

from __future__ import annotations

import numpy as np
import pytest

from graphc_images.errors import SettingError
from graphc_images.sampling.guidance import FreeU, frequency_scaled

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from test_controls import GUIDED, OURS, ControlUnit, changed, picture, sd1, sd1_oracle  # noqa: E402, F401
from test_other_pipelines import of_sdxl  # noqa: E402
from test_pipelines import FLOW, SIGMAS, asked, near, noise, opened, painted, quiet  # noqa: E402

pytestmark = pytest.mark.torch


def test_levels_of_the_decoder(tmp_path):
    """diffusers' first version."""
    pipeline, modules = opened("Stable Diffusion XL", tmp_path)
    oracle, start = quiet(diffusers.StableDiffusionXLPipeline(**of_sdxl(modules))), noise(4)
    oracle.enable_freeu(s1=0.6, s2=0.4, b1=1.3, b2=1.4)
    expected = oracle(**asked(start, **GUIDED)).images[0]
    free_u = FreeU(1.3, 1.4, 0.6, 0.4, second_version=False, by_blocks=True)
    mine = painted(pipeline, start, SIGMAS, free_u=free_u, **OURS)
    near(mine, expected)
    changed(pipeline, start, mine)
    nothing = painted(pipeline, start, SIGMAS, free_u=FreeU(1.0, 1.0, 1.0, 1.0), **OURS)
    near(nothing, torch.from_numpy(painted(pipeline, start, SIGMAS, **OURS).latent))


def test_blocks_by_their_channels(sd1, monkeypatch):  # noqa: F811
    """ComfyUI's second version, with a ControlNet."""
    from diffusers.models.unets import unet_2d_blocks

    pipeline, modules, path, network = sd1
    oracle, start = sd1_oracle("StableDiffusionControlNetPipeline", modules, controlnet=network), noise(4)
    monkeypatch.setattr(unet_2d_blocks, "apply_freeu", by_channels({64: (1.3, 0.9), 32: (1.4, 0.2)}))
    oracle.enable_freeu(s1=1.0, s2=1.0, b1=1.0, b2=1.0)
    expected = oracle(**asked(start, **GUIDED), image=picture(), controlnet_conditioning_scale=0.7).images[0]
    unit = ControlUnit(path, picture(), weight=0.7)
    mine = painted(pipeline, start, SIGMAS, controls=(unit,), free_u=FreeU(), **OURS)
    near(mine, expected)
    bare = painted(pipeline, start, SIGMAS, controls=(unit,), **OURS).latent
    assert np.abs(bare - mine.latent).max() > 1e-2 * np.abs(bare).max()


def test_transformers_have_none(tmp_path):
    pipeline, _ = opened("Flux dev", tmp_path)
    with pytest.raises(SettingError, match="free_u: Flux dev has no U-Net"):
        painted(pipeline, noise(16), FLOW, free_u=FreeU())


def by_channels(factors):
    """What ComfyUI's FreeU_V2 does, in the place of diffusers' function; where all means are alike, no backbone is scaled."""

    def apply(resolution_idx, hidden, skip, **_):
        if hidden.shape[1] not in factors:
            return hidden, skip
        backbone, low = factors[hidden.shape[1]]
        mean = hidden.mean(1, keepdim=True)
        least, most = mean.amin((2, 3), keepdim=True), mean.amax((2, 3), keepdim=True)
        share = torch.where(most > least, (mean - least) / (most - least), 0.0)
        half = hidden.shape[1] // 2
        scaled = torch.cat([hidden[:, :half] * ((backbone - 1) * share + 1), hidden[:, half:]], 1)
        return scaled, torch.from_numpy(frequency_scaled(skip.numpy(), low, 1.0, 1))

    return apply
