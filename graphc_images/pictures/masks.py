"""Masks of what is painted anew: white there, black where the picture stays.

Source: AUTOMATIC1111's modules/masking.py and processing.py (StableDiffusionProcessingImg2Img); ComfyUI's nodes.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from graphc_images.errors import SettingError
from graphc_images.pictures.filters import blur_levels
from graphc_images.pictures.sizes import Resizer, lanczos, resize


class Box(NamedTuple):
    """A rectangle of pixels; right and bottom are the first outside."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.right - self.left, self.bottom - self.top


def mask_of(picture: Image.Image, *, rounded: bool = True) -> Image.Image:
    """A mask from what a person drew: the transparency where there is some, else the brightness."""
    if picture.mode == "RGBA" and picture.getextrema()[-1] != (255, 255):
        alpha = picture.getchannel("A")
        return alpha.point(lambda level: 255 if level > 128 else 0) if rounded else alpha
    return picture.convert("L")


def blur_mask(mask: Image.Image, blur_x: float, blur_y: float) -> Image.Image:
    """The mask with soft edges: Gaussians of these standard deviations in pixels, 0 for none."""
    levels = np.asarray(mask.convert("L"))
    for axis, sigma in ((1, blur_x), (0, blur_y)):
        if sigma > 0:
            levels = blur_levels(levels, {axis: (sigma, 2 * int(2.5 * sigma + 0.5) + 1)})
    return Image.fromarray(levels)


def invert(mask: Image.Image) -> Image.Image:
    """Paint what was kept, keep what was painted."""
    return ImageOps.invert(mask.convert("L"))


def masked_box(mask: Image.Image, padding: int, width: int, height: int) -> Box | None:
    """The part of a picture to work on for "only masked": what is masked, with padding, in the shape width : height.

    None if nothing is masked. The box grows to the shape, moves if it is over an edge, and is cut where it has no room.
    """
    found = mask.getbbox()
    if found is None:
        return None
    left, top = max(found[0] - padding, 0), max(found[1] - padding, 0)
    right, bottom = min(found[2] + padding, mask.width), min(found[3] + padding, mask.height)
    if (right - left) / (bottom - top) > width / height:
        top, bottom = _grow(top, bottom, int((right - left) * height / width - (bottom - top)), mask.height)
    else:
        left, right = _grow(left, right, int((bottom - top) * width / height - (right - left)), mask.width)
    return Box(left, top, right, bottom)


def _grow(start: int, stop: int, more: int, limit: int) -> tuple[int, int]:
    """A range made longer at both ends, within 0 to limit."""
    start -= more // 2
    stop += more - more // 2
    if stop > limit:
        start -= stop - limit
        stop = limit
    if start < 0:
        stop = min(stop - start, limit)
        start = 0
    return start, stop


def latent_mask(mask: Image.Image, height: int, width: int, *, rounded: bool = True) -> np.ndarray:
    """How much of each latent [height, width] is painted anew, from 0 to 1; only 0 and 1 if rounded."""
    levels = np.asarray(mask.convert("RGB").resize((width, height)), np.float32)[:, :, 0] / np.float32(255)
    return np.asarray(np.around(levels) if rounded else levels)


def grow_mask(mask: np.ndarray, pixels: int) -> np.ndarray:
    """A mask [height, width] of 0 to 1, rounded, and larger by half of `pixels` on each side: ComfyUI's VAEEncodeForInpaint."""
    rounded: np.ndarray = np.rint(mask).astype(np.float32)
    if pixels == 0:
        return rounded
    before = -(-(pixels - 1) // 2)
    padded = np.pad(rounded, before)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (pixels, pixels))
    return np.asarray(np.minimum(windows.max((2, 3))[: mask.shape[0], : mask.shape[1]], 1))


def inpainting_inputs(picture: np.ndarray, mask: np.ndarray, weight: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """What models with 9 input channels want: the picture [3, height, width] (-1 to 1) grey under the mask, and the mask.

    At a smaller `weight`, some of the picture stays there. The mask [height, width] is rounded.
    The picture then goes through the VAE, the mask to the latent's size by `nearest`.
    """
    rounded = np.around(mask).astype(np.float32)
    return picture * (1 - rounded * np.float32(weight)), rounded


def bilinear(mask: np.ndarray, height: int, width: int) -> np.ndarray:
    """A mask [height, width] at another size, as torch's `interpolate` does: ComfyUI's masks of latents."""
    for axis, size in ((0, height), (1, width)):
        old = mask.shape[axis]
        places = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        below = np.minimum(places.astype(int), max(old - 2, 0))
        share = (places - below).astype(np.float32).reshape([-1 if each == axis else 1 for each in range(2)])
        mask = mask.take(below, axis) * (1 - share) + mask.take(np.minimum(below + 1, old - 1), axis) * share
    return np.asarray(mask, np.float32)


def nearest(mask: np.ndarray, height: int, width: int) -> np.ndarray:
    """A mask [height, width] at another size, each pixel that of the nearest above and to the left."""
    rows = np.arange(height) * mask.shape[0] // height
    columns = np.arange(width) * mask.shape[1] // width
    return np.asarray(mask[rows[:, None], columns])


class Overlay(NamedTuple):
    """What is put over a result: the picture outside of the mask, where the result goes ("only masked"), and the mask [L]."""

    picture: Image.Image
    box: Box | None
    mask: Image.Image
    by: Resizer = lanczos

    def placed(self, result: Image.Image) -> Image.Image:
        """The result at its place in the whole picture, transparent around it."""
        if self.box is None:
            return result.convert("RGBA")
        whole = Image.new("RGBA", self.picture.size)
        whole.paste(resize(result, *self.box.size, "crop", self.by), self.box[:2])
        return whole

    def over(self, result: Image.Image) -> Image.Image:
        """The finished picture."""
        result = self.placed(result)
        result.alpha_composite(self.picture)
        return result.convert("RGB")

    def composite(self, result: Image.Image) -> Image.Image:
        """What was painted, as far as the mask shows it; transparent elsewhere."""
        empty = Image.new("RGBa", self.picture.size)
        return Image.composite(self.placed(result).convert("RGBa"), empty, self.mask).convert("RGBA")


def overlay_of(
    picture: Image.Image, mask: Image.Image, box: Box | None = None, by: Resizer = lanczos, *, soft: bool = False
) -> Overlay:
    """The overlay of a picture and a mask of the same size (blurred). For the whole picture the mask counts twice, unless it is
    one of soft inpainting. `by` brings a result to the size of its box."""
    if picture.size != mask.size:
        raise SettingError(
            f"the mask has {mask.width}x{mask.height} pixels, the picture {picture.width}x{picture.height}"
        )
    levels = mask.convert("L") if box or soft else mask.convert("L").point(lambda level: min(2 * level, 255))
    kept = Image.new("RGBa", picture.size)
    kept.paste(picture.convert("RGBA").convert("RGBa"), mask=ImageOps.invert(levels))
    return Overlay(kept.convert("RGBA"), box, levels, by)


def fill_from_around(picture: Image.Image, mask: Image.Image) -> Image.Image:
    """The picture with what is masked painted in colours from around it: ever finer blurs, one over the other."""
    kept = Image.new("RGBa", picture.size)
    kept.paste(picture.convert("RGBA").convert("RGBa"), mask=ImageOps.invert(mask.convert("L")))
    result = Image.new("RGBA", picture.size)
    for radius, times in ((256, 1), (64, 1), (16, 2), (4, 4), (2, 2), (0, 1)):
        blurred = kept.filter(ImageFilter.GaussianBlur(radius)).convert("RGBA")
        for _ in range(times):
            result.alpha_composite(blurred)
    return result.convert("RGB")


def fill_latent(latent: np.ndarray, mask: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
    """A latent with noise under the mask ("latent noise"), or zeros ("latent nothing") if there is no noise."""
    kept = latent * (1 - mask)
    return np.asarray(kept if noise is None else kept + noise * mask, latent.dtype)
