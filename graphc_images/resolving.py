"""From what was asked for to what is done: the model's usual values in place of None, and chance where it was left to it."""

from __future__ import annotations

import secrets
from dataclasses import replace

from graphc_images.errors import SettingError
from graphc_images.models import Architecture
from graphc_images.noise.generators import GENERATORS
from graphc_images.sampling.names import chosen_scheduler, find_sampler
from graphc_images.settings import LARGEST_SEED, Settings


def resolved(settings: Settings, architecture: Architecture) -> Settings:
    """Settings of which only those are None that stay so. Raises SettingError for a size that the model cannot have."""
    usual = architecture.defaults
    if usual.guidance is None:  # A1111's clients send it to every model
        settings = replace(settings, guidance=None, hires_guidance=None)
    width, height = settings.width, settings.height
    if settings.image is not None and width is None and height is None:
        width, height = (_down(side, unit_of(architecture)) for side in settings.image.size)
    made = replace(
        settings,
        width=width or usual.width,
        height=height or usual.height,
        steps=settings.steps or usual.steps,
        sampler=settings.sampler or usual.sampler,
        scheduler=settings.scheduler or (usual.scheduler if settings.sampler is None else "Automatic"),
        cfg_scale=usual.cfg if settings.cfg_scale is None else settings.cfg_scale,
        guidance=usual.guidance if settings.guidance is None else settings.guidance,
        seed=secrets.randbelow(LARGEST_SEED - 1) if settings.seed < 0 else settings.seed,
        subseed=secrets.randbelow(LARGEST_SEED - 1) if settings.subseed < 0 else settings.subseed,
    )
    check_size(architecture, made.width, made.height)
    check_names(made)
    return made


def check_names(settings: Settings) -> None:
    """Raises SettingError for a sampler, scheduler or generator that there is not."""
    _, own = find_sampler(settings.sampler or "", settings.mode)
    chosen_scheduler(settings.scheduler, own)
    if settings.generator is not None and settings.generator not in GENERATORS:
        raise SettingError(f"generator: there is no {settings.generator!r}; there are {', '.join(GENERATORS)}")


def unit_of(architecture: Architecture) -> int:
    """What the sides of its pictures are multiples of, in pixels."""
    latent = architecture.latent
    return latent.pixels if architecture.kind == "unet" else latent.pixels * 2 // latent.packed


def check_size(architecture: Architecture, width: int | None, height: int | None) -> None:
    """Raises SettingError for a size that is not a multiple of the model's unit."""
    unit = unit_of(architecture)
    for name, side in (("width", width), ("height", height)):
        if side is None or side % unit or side < unit:
            raise SettingError(f"{name}: {side} is not a multiple of {unit}, which {architecture.name} needs")


def _down(side: int, unit: int) -> int:
    return max(side // unit * unit, unit)
