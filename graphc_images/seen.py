"""What some models look at besides the latent: channels that are joined to it, and pictures of reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.models import ImageModel
from graphc_images.models.looking import Look, look_at
from graphc_images.pictures import masks
from graphc_images.pictures.arrays import flatten, to_array
from graphc_images.pictures.sizes import pixel_mode, resize
from graphc_images.resolving import unit_of
from graphc_images.settings import Settings

Shape = tuple[int, int, int, int]
LARGEST_REFERENCE = 1 << 20
"""Pixels of a reference; a larger one is made as small as this (ComfyUI's FluxKontextImageScale, diffusers)."""

EDITED_PIXELS, LOOKED_AT_PIXELS = 1 << 20, 384 * 384
"""About as many pixels has a reference of Qwen-Image-Edit, also a smaller one; and each of several, as it is looked at. Sides
are multiples of `EDITED_UNIT` (diffusers)."""

EDITED_UNIT = 32


@dataclass(frozen=True)
class Seen:
    """Arrays for a batch: `channels` [batch, extra, height, width] are joined to the latent, `without` are the same where there
    is not a picture, for guidance by it. `references` are latents [1, channels, height, width] of any size, and `looks` the same
    pictures for a language model that sees."""

    channels: np.ndarray | None = None
    without: np.ndarray | None = None
    references: tuple[np.ndarray, ...] = ()
    looks: tuple[Look, ...] = ()


NOTHING = Seen()


def seen(
    model: ImageModel,
    settings: Settings,
    shape: Shape,
    pixels: np.ndarray | None = None,
    mask: Image.Image | None = None,
) -> Seen:
    """What a batch of latents of a shape is painted beside.

    `pixels` [1, 3, height, width] are those of the picture that it begins with, `mask` is white where that is painted anew.
    Raises SettingError for what the model does not look at, or lacks.
    """
    architecture = model.architecture
    if settings.control_image is not None and architecture.added != "control" and not settings.controls:
        raise SettingError(f"control_image: {architecture.name} does not look at one")
    if settings.reference_images and not architecture.refers:
        raise SettingError(f"reference_images: {architecture.name} does not look at any")
    if settings.reference_images and architecture.kind == "qwen_image":
        return _edited(model, settings)
    references = tuple(_reference(model, each) for each in settings.reference_images)
    if not architecture.added:
        return Seen(references=references)
    added = ADDED[architecture.added](model, settings, shape, pixels, mask)
    channels = np.repeat(added, shape[0], 0)
    return Seen(channels, np.zeros_like(channels) if architecture.added == "edit" else None, references)


def _reference(model: ImageModel, picture: Image.Image) -> np.ndarray:
    unit = unit_of(model.architecture)
    smaller = min(1.0, sqrt(LARGEST_REFERENCE / (picture.width * picture.height)))
    width, height = (max(int(side * smaller) // unit, 1) * unit for side in picture.size)
    return model.encode_image(to_array(resize(flatten(picture), width, height, "stretch"))[None])


def _edited(model: ImageModel, settings: Settings) -> Seen:
    """What Qwen-Image-Edit looks at: one picture as its latent is made of it; those that are numbered smaller."""
    pictures = [flatten(each) for each in settings.reference_images]
    sized = [_of_about(each, EDITED_PIXELS) for each in pictures]
    references = tuple(model.encode_image(to_array(each)[None]) for each in sized)
    if len(pictures) == 1 and not settings.numbered_references:
        return Seen(references=references, looks=(look_at(sized[0]),))
    small = [_of_about(each, LOOKED_AT_PIXELS) for each in pictures]
    return Seen(references=references, looks=tuple(look_at(each, number) for number, each in enumerate(small, 1)))


def _of_about(picture: Image.Image, pixels: int) -> Image.Image:
    """The picture with so many pixels, in nearly its shape."""
    width = sqrt(pixels * picture.width / picture.height)
    height = width * picture.height / picture.width
    sides = [max(round(side / EDITED_UNIT), 1) * EDITED_UNIT for side in (width, height)]
    return resize(picture, sides[0], sides[1], "stretch")


def _masked(
    model: ImageModel, shape: Shape, pixels: np.ndarray | None, mask: Image.Image | None, weight: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """The latent of what stays [1, channels, height, width], and the mask of pixels [height, width]: 1 where it is painted.

    Under the mask, the picture is grey by `weight`. Without a mask all is painted, and without a picture it is grey (A1111).
    """
    scale = model.architecture.latent.pixels
    picture = np.zeros((1, 3, shape[2] * scale, shape[3] * scale), np.float32) if pixels is None else pixels
    levels = None if mask is None or pixels is None else np.asarray(mask, np.float32) / 255
    kept, rounded = masks.inpainting_inputs(
        picture[0], np.ones(picture.shape[2:], np.float32) if levels is None else levels, weight
    )
    return model.encode_image(kept[None]), rounded


def _inpaint(
    model: ImageModel, settings: Settings, shape: Shape, pixels: np.ndarray | None, mask: Image.Image | None
) -> np.ndarray:
    """Stable Diffusion's models for inpainting: the mask, then what stays."""
    kept, rounded = _masked(model, shape, pixels, mask, settings.mask_weight)
    return np.concatenate([masks.nearest(rounded, *shape[2:])[None, None], kept], 1).astype(np.float32)


def _fill(
    model: ImageModel, settings: Settings, shape: Shape, pixels: np.ndarray | None, mask: Image.Image | None
) -> np.ndarray:
    """Flux Fill: what stays, then the mask's pixels, as many channels as a latent pixel has of them."""
    kept, rounded = _masked(model, shape, pixels, mask)
    scale = model.architecture.latent.pixels
    squares = rounded.reshape(shape[2], scale, shape[3], scale).transpose(1, 3, 0, 2)
    return np.concatenate([kept, squares.reshape(1, scale * scale, *shape[2:])], 1).astype(np.float32)


def _edit(
    model: ImageModel, settings: Settings, shape: Shape, pixels: np.ndarray | None, mask: Image.Image | None
) -> np.ndarray:
    """instruct-pix2pix: the picture's latent as the autoencoder has it, not scaled."""
    if pixels is None:
        raise SettingError(f"image: {model.architecture.name} changes a picture, and there is none")
    return model.architecture.latent.to_encoded(model.encode_image(pixels))


def _control(
    model: ImageModel, settings: Settings, shape: Shape, pixels: np.ndarray | None, mask: Image.Image | None
) -> np.ndarray:
    """Flux Canny and Depth: the latent of a picture of edges or of depth."""
    if settings.control_image is None:
        raise SettingError(f"control_image: {model.architecture.name} follows a picture of edges or depth; give one")
    scale = model.architecture.latent.pixels
    picture = resize(
        flatten(settings.control_image), shape[3] * scale, shape[2] * scale, pixel_mode(settings.resize_mode)
    )
    return model.encode_image(to_array(picture)[None])


Adder = Callable[[ImageModel, Settings, Shape, "np.ndarray | None", "Image.Image | None"], np.ndarray]
ADDED: Mapping[str, Adder] = {"inpaint": _inpaint, "fill": _fill, "edit": _edit, "control": _control}
"""By `Architecture.added`; each gives [1, extra, height, width]."""
