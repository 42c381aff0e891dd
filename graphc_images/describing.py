"""What is written into pictures: A1111's text, from settings, and settings from such a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from graphc_images.pictures.parameters import Parameters, write_parameters
from graphc_images.sampling.names import chosen_scheduler, find_sampler, find_scheduler
from graphc_images.settings import Settings


def described(settings: Settings, model: str) -> str:
    """The text of a picture of resolved settings."""
    from_picture = settings.image is not None
    again = settings.hires_scale > 1 or bool(settings.hires_width or settings.hires_height)
    masked = settings.mask is not None
    return write_parameters(
        settings.prompt,
        settings.negative_prompt,
        {
            "Steps": settings.steps,
            "Sampler": sampler_label(settings),
            "Schedule type": scheduler_label(settings),
            "CFG scale": number(settings.cfg_scale),
            "Distilled CFG Scale": number(settings.guidance),
            "Seed": settings.seed,
            "Size": f"{settings.width}x{settings.height}",
            "Model": model,
            "Variation seed": settings.subseed if settings.subseed_strength else None,
            "Variation seed strength": number(settings.subseed_strength) if settings.subseed_strength else None,
            "Seed resize from": "{}x{}".format(*settings.seed_resize_from) if settings.seed_resize_from else None,
            "Denoising strength": number(
                settings.denoising_strength if from_picture else settings.hires_denoising_strength if again else None
            ),
            "Clip skip": settings.clip_skip if settings.clip_skip and settings.clip_skip > 1 else None,
            "ENSD": settings.eta_noise_seed_delta or None,
            "RNG": None if settings.generator is None else settings.generator.upper(),
            "Hires upscale": number(settings.hires_scale) if again and settings.hires_scale > 1 else None,
            "Hires resize": (
                f"{settings.hires_width or settings.width}x{settings.hires_height or settings.height}"
                if settings.hires_width or settings.hires_height
                else None
            ),
            "Hires steps": settings.hires_steps,
            "Hires upscaler": settings.hires_upscaler if again else None,
            "Mask blur": number(settings.mask_blur) if masked else None,
            "Inpaint area": "Only masked" if masked and settings.only_masked else None,
            "Masked area padding": settings.only_masked_padding if masked and settings.only_masked else None,
            "Masked content": settings.inpainting_fill if masked and settings.inpainting_fill != "original" else None,
            "Emphasis": settings.emphasis if settings.emphasis != "Original" else None,
            "Version": f"graphc {version('graphc')}" + ("" if settings.mode == "a1111" else f" ({settings.mode})"),
        },
    )


def sampler_label(settings: Settings) -> str:
    """A1111's name of the sampler, or its own."""
    assert settings.sampler is not None
    sampler, _ = find_sampler(settings.sampler, settings.mode)
    return sampler.label or sampler.name


def scheduler_label(settings: Settings) -> str | None:
    """A1111's name of the scheduler, or its own."""
    _, own = find_sampler(settings.sampler or "", settings.mode)
    named = find_scheduler(settings.scheduler) if settings.scheduler else None
    scheduler = chosen_scheduler(settings.scheduler, own) or named
    return None if scheduler is None else scheduler.label or scheduler.name


def number(value: float | None) -> float | int | None:
    """A whole number without its point, as A1111 writes it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


READ: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "Steps": ("steps", int),
    "Sampler": ("sampler", str),
    "Schedule type": ("scheduler", str),
    "CFG scale": ("cfg_scale", float),
    "Distilled CFG Scale": ("guidance", float),
    "Seed": ("seed", int),
    "Variation seed": ("subseed", int),
    "Variation seed strength": ("subseed_strength", float),
    "Clip skip": ("clip_skip", int),
    "ENSD": ("eta_noise_seed_delta", int),
    "RNG": ("generator", str.lower),
    "Hires upscale": ("hires_scale", float),
    "Hires steps": ("hires_steps", int),
    "Hires upscaler": ("hires_upscaler", str),
    "Mask blur": ("mask_blur", float),
    "Masked content": ("inpainting_fill", str),
    "Masked area padding": ("only_masked_padding", int),
    "Emphasis": ("emphasis", str),
}
"""A1111's names, ours, and what the text becomes."""


def settings_of(parameters: Parameters) -> dict[str, Any]:
    """What a picture's text says, as keywords of `Settings`. What cannot be read is left out."""
    found: dict[str, Any] = {"prompt": parameters.prompt, "negative_prompt": parameters.negative_prompt}
    for name, (ours, made) in READ.items():
        if name in parameters.settings:
            try:
                found[ours] = made(parameters.settings[name])
            except ValueError:
                continue
    size, resized = parameters.size(), parameters.size("Seed resize from")
    if size is not None:
        found["width"], found["height"] = size
    if resized is not None:
        found["seed_resize_from"] = resized
    if "Hires upscale" in parameters.settings and "Denoising strength" in parameters.settings:
        found["hires_denoising_strength"] = float(parameters.settings["Denoising strength"])
    elif "Denoising strength" in parameters.settings:
        found["denoising_strength"] = float(parameters.settings["Denoising strength"])
    if "(comfyui)" in parameters.settings.get("Version", ""):
        found["mode"] = "comfyui"
    return found
