"""The second pass of a picture: its size, its settings, and how the latents of the first come to that size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphc_images.settings import Settings


def enlarged(settings: Settings, unit: int) -> tuple[int, int] | None:
    """The width and height of the second pass, if there is one; those of a scale are multiples of the model's unit, and no more
    than so many times as large."""
    if settings.hires_width or settings.hires_height:
        return settings.hires_width or settings.width or 0, settings.hires_height or settings.height or 0
    if settings.hires_scale <= 1 or settings.image is not None:
        return None
    assert settings.width is not None
    assert settings.height is not None
    wide, high = (int(side * settings.hires_scale) // unit * unit for side in (settings.width, settings.height))
    return wide, high


def second(settings: Settings, width: int, height: int) -> Settings:
    """The settings of the second pass."""
    return replace(
        settings,
        width=width,
        height=height,
        steps=settings.hires_steps or settings.steps,
        denoising_strength=settings.hires_denoising_strength,
        sampler=settings.hires_sampler or settings.sampler,
        scheduler=settings.hires_scheduler or settings.scheduler,
        prompt=settings.prompt if settings.hires_prompt is None else settings.hires_prompt,
        negative_prompt=(
            settings.negative_prompt if settings.hires_negative_prompt is None else settings.hires_negative_prompt
        ),
        cfg_scale=settings.cfg_scale if settings.hires_cfg_scale is None else settings.hires_cfg_scale,
        guidance=settings.guidance if settings.hires_guidance is None else settings.hires_guidance,
        sigmas=(),
        noise=None,
        latent=None,
    )


@dataclass(frozen=True)
class Covering:
    """How latents of one shape cover another: `size` is the width and height in pixels to which they are made larger, and so many
    latent pixels are cut off, half of them on each side (A1111's hr_resize_x and hr_resize_y)."""

    size: tuple[int, int]
    cut: tuple[int, int] = (0, 0)

    def trimmed(self, latent: np.ndarray) -> np.ndarray:
        """The middle of a latent [batch, channels, height, width]."""
        (across, down), (height, width) = self.cut, latent.shape[2:]
        return latent[:, :, down // 2 : height - (down + 1) // 2, across // 2 : width - (across + 1) // 2]


def covering(old: tuple[int, int], new: tuple[int, int], unit: int) -> Covering:
    """How a picture of an old size (width, height) covers a new one and keeps its shape; a latent pixel is `unit` pixels."""
    if old[0] * new[1] < new[0] * old[1]:
        wide, high = new[0], new[0] * old[1] // old[0]
    else:
        wide, high = new[1] * old[0] // old[1], new[1]
    return Covering((wide // unit * unit, high // unit * unit), ((wide - new[0]) // unit, (high - new[1]) // unit))
