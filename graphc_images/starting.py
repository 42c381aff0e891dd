"""What a batch starts from: nothing, a picture, or a picture of which a part is painted anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.inpainting import Region
from graphc_images.latent_scaling import scaled_latent
from graphc_images.masking import box_alone, prepared_mask
from graphc_images.models import ImageModel
from graphc_images.noise import noise_source
from graphc_images.painting import as_shape
from graphc_images.pictures import masks
from graphc_images.pictures.arrays import flatten, to_array
from graphc_images.pictures.blending import soft_overlay_mask, uncrop
from graphc_images.pictures.masks import Overlay
from graphc_images.pictures.sizes import Resizer, lanczos, pixel_mode, resize
from graphc_images.reading import Canvas
from graphc_images.seen import seen
from graphc_images.settings import Settings


@dataclass(frozen=True)
class Source:
    """The picture to begin with and its mask, at the size that is painted; what is put over the result, and the whole picture."""

    picture: Image.Image
    mask: Image.Image | None = None
    overlay: Overlay | None = None
    whole: Image.Image | None = None


@dataclass(frozen=True)
class Start:
    """A canvas, and what happens to the pictures that were painted on it: what is put over them, whose colours they get."""

    canvas: Canvas
    region: Region | None = None
    source: Source | None = None
    colours_of: Image.Image | None = None

    def overlay(self, picture: Image.Image, latent: np.ndarray, place: int) -> Overlay | None:
        """What stays of the picture that a batch began with, over one of its pictures; `latent` [channels, height, width]."""
        if self.source is None or self.source.overlay is None:
            return None
        soft = None if self.region is None else self.region.soft
        if soft is None or self.region is None or self.source.whole is None:
            return self.source.overlay
        box = self.source.overlay.box
        mask = soft_overlay_mask(self.region.mask[0, 0], self.region.latent[place], latent, picture.size, soft)
        if box is not None:
            mask = uncrop(mask, self.source.whole.size, box)
        return masks.overlay_of(self.source.whole, mask, box, self.source.overlay.by, soft=True)


def start_of(
    model: ImageModel, settings: Settings, seeds: Sequence[int], subseeds: Sequence[int], by: Resizer = lanczos
) -> Start:
    """The start of a batch; settings are resolved, and `by` brings pictures to their size. Raises SettingError."""
    shape = shape_of(model, settings)
    if settings.image is None or settings.latent is not None:
        latent = None if settings.latent is None else as_shape("latent", settings.latent, shape)
        return Start(Canvas(shape, seeds, subseeds, latent, seen(model, settings, shape)))
    source = source_of(settings, by)
    pixels = to_array(source.picture)[None]
    latent = np.repeat(_encoded(model, settings, pixels, shape), shape[0], 0)
    canvas = Canvas(shape, seeds, subseeds, latent, seen(model, settings, shape, pixels, source.mask))
    if source.mask is None:
        return Start(canvas, colours_of=source.picture if settings.color_correction else None)
    soft = settings.soft_inpainting is not None or settings.differential
    shown = source.mask if settings.latent_mask is None else settings.latent_mask
    if settings.mode == "comfyui":
        mask = masks.bilinear(np.asarray(shown.convert("L"), np.float32) / np.float32(255), *shape[2:])[None, None]
    else:
        mask = masks.latent_mask(shown, *shape[2:], rounded=settings.round_mask and not soft)[None, None]
    latent = filled(settings, latent, mask, canvas)
    region = Region(mask, latent, settings.soft_inpainting, settings.differential)
    colours = source.picture if settings.color_correction else None
    return Start(replace(canvas, latent=latent), region, source, colours)


def _encoded(model: ImageModel, settings: Settings, pixels: np.ndarray, shape: tuple[int, int, int, int]) -> np.ndarray:
    """The latent to begin with [1, channels, height, width]: of the picture at its size, or of its own, stretched."""
    if settings.resize_mode != "latent" or settings.mask is not None:
        return model.encode_image(pixels)
    assert settings.image is not None
    return scaled_latent(latent_of(model, settings.image), *shape[2:], "Latent")


def latent_of(model: ImageModel, picture: Image.Image) -> np.ndarray:
    """The latent [1, channels, height, width] of a picture of any size; what is over a whole latent pixel is cut off."""
    unit = model.architecture.latent.pixels
    width, height = (side // unit * unit for side in picture.size)
    if min(width, height) == 0:
        raise SettingError(
            f"image: {picture.width} x {picture.height} pixels are too few; a latent pixel stands for {unit}"
        )
    return model.encode_image(to_array(flatten(picture).crop((0, 0, width, height)))[None])


def again_of(model: ImageModel, settings: Settings, seeds: Sequence[int], subseeds: Sequence[int]) -> Canvas:
    """The canvas of a second pass, whose settings have its size. Raises SettingError."""
    shape = shape_of(model, settings)
    if settings.image is None:
        return Canvas(shape, seeds, subseeds, seen=seen(model, settings, shape))
    source = source_of(settings)
    pixels = to_array(source.picture)[None]
    return Canvas(shape, seeds, subseeds, seen=seen(model, settings, shape, pixels, source.mask))


def shape_of(model: ImageModel, settings: Settings) -> tuple[int, int, int, int]:
    """The latent's shape [batch, channels, height, width]."""
    assert settings.width is not None
    assert settings.height is not None
    latent = model.architecture.latent
    return settings.batch_size, latent.channels, settings.height // latent.pixels, settings.width // latent.pixels


def source_of(settings: Settings, by: Resizer = lanczos) -> Source:
    """The picture and the mask at the size that is painted (A1111's modules/processing.py, img2img's `init`)."""
    assert settings.image is not None
    assert settings.width is not None
    assert settings.height is not None
    width, height = settings.width, settings.height
    picture, mode = flatten(settings.image, settings.background), pixel_mode(settings.resize_mode)
    if settings.mask is None:
        return Source(resize(picture, width, height, mode, by))
    mask = prepared_mask(settings)
    if settings.only_masked:
        box = box_alone(settings, mask)
        whole, overlay = picture, masks.overlay_of(picture, mask, box, by)
        picture, mask = (resize(each.crop(box), width, height, "fill", by) for each in (picture, mask))
    else:
        picture, mask = (resize(each, width, height, mode, by) for each in (picture, mask))
        whole, overlay = picture, masks.overlay_of(picture, mask)
    if settings.inpainting_fill != "original":
        shown = mask if settings.latent_mask is None else settings.latent_mask.convert("L")
        picture = masks.fill_from_around(picture, resize(shown, width, height, "stretch"))
    return Source(picture, mask, overlay, whole)


def filled(settings: Settings, latent: np.ndarray, mask: np.ndarray, canvas: Canvas) -> np.ndarray:
    """The latent with noise, or nothing, under the mask, where that is asked for."""
    if settings.inpainting_fill == "latent nothing":
        return masks.fill_latent(latent, mask, None)
    if settings.inpainting_fill == "latent noise":
        noise = noise_source(settings.mode, canvas.shape, canvas.seeds[0], settings.generator).first()
        return masks.fill_latent(latent, mask, noise)
    return latent
