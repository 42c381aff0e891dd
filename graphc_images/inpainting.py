"""Painting a part of a picture anew: what stays is put back at each evaluation, in A1111's way or in ComfyUI's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graphc_images.noise import NoiseSource
from graphc_images.pictures.blending import SoftInpainting, blend_latents, differential_mask, painted_at
from graphc_images.sampling.plan import Plan
from graphc_images.sampling.samplers import PairDenoiser


@dataclass(frozen=True)
class Region:
    """What is painted: `mask` [1, 1, height, width] is 1 there and 0 where `latent` [batch, channels, height, width] stays."""

    mask: np.ndarray
    latent: np.ndarray
    soft: SoftInpainting | None = None
    differential: bool = False

    def wrap(self, model: PairDenoiser, way: Plan, source: NoiseSource) -> PairDenoiser:
        """A denoiser that paints this region alone."""
        return Inpainted(self, model, way, source)

    def finished(self, latent: np.ndarray) -> np.ndarray:
        """The result, with what stays put back. Soft masks were blended on the way."""
        if self.soft is not None or self.differential:
            return latent
        return np.asarray(latent * self.mask + self.latent * (1 - self.mask))


class Inpainted:
    """A denoiser that keeps what is outside of a region.

    A1111 blends the estimate (modules/sd_samplers_cfg_denoiser.py); for samplers on times x itself. ComfyUI blends x with the
    picture at the noise level, and the estimate (comfy/samplers.py, KSamplerX0Inpaint).
    """

    def __init__(self, region: Region, model: PairDenoiser, way: Plan, source: NoiseSource) -> None:
        self.region, self.model, self.way = region, model, way
        self.noise: np.ndarray | None = None
        if way.mode == "comfyui":
            # Its DDIM has other noise for this: that of the next seed, which the source goes on with.
            self.noise = source.next() if way.sampler.comfyui == "ddim" else source.first()
        self.first = way.sigmas[0] if way.sigmas else 0.0

    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        """The estimate, with what stays."""
        mask = self._mask(sigma)
        return self._after(self.model(self._before(x, sigma, mask), sigma), sigma, mask)

    def pair(self, x: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
        """The estimate with what stays, and the negative one."""
        mask = self._mask(sigma)
        denoised, negative = self.model.pair(self._before(x, sigma, mask), sigma)
        return self._after(denoised, sigma, mask), negative

    def _mask(self, sigma: float) -> np.ndarray:
        if not self.region.differential:
            return self.region.mask
        levels = self.way.levels
        times = [levels.timestep(max(each, levels.lowest)) for each in (sigma, self.first, levels.lowest)]
        return differential_mask(self.region.mask, *times)

    def _before(self, x: np.ndarray, sigma: float, mask: np.ndarray) -> np.ndarray:
        if self.noise is not None:
            return np.asarray(
                x * mask + self.way.levels.path.noised(self.region.latent, self.noise, sigma) * (1 - mask)
            )
        if self.way.sampler.on_times:  # samplers on times see x smaller than it is here
            return np.asarray(x * mask + self.region.latent * (math.hypot(1, sigma) * (1 - mask)))
        return x

    def _after(self, denoised: np.ndarray, sigma: float, mask: np.ndarray) -> np.ndarray:
        if self.region.soft is not None:
            painted = np.broadcast_to(painted_at(mask, sigma, self.region.soft).astype(np.float32), denoised.shape)
            return blend_latents(self.region.latent, denoised, painted, self.region.soft)
        if self.noise is None and self.way.sampler.on_times:
            return denoised
        return np.asarray(denoised * mask + self.region.latent * (1 - mask))
