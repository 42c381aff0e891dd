"""Pictures made ready to be painted on beyond their edges.

Source: ComfyUI's ImagePadForOutpaint; AUTOMATIC1111's scripts/outpainting_mk_2.py, whose noise is parlance-zz's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures.colour import match_histogram


class Margins(NamedTuple):
    """Pixels to add at each side."""

    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0


def pad_picture(picture: Image.Image, margins: Margins, feather: int = 40) -> tuple[Image.Image, Image.Image]:
    """The picture on a larger grey one, and a mask that reaches into it, falling over `feather` pixels (ComfyUI)."""
    if min(margins) < 0:
        raise SettingError(f"a picture cannot be padded by {min(margins)} pixels")
    width, height = picture.size
    size = (width + margins.left + margins.right, height + margins.top + margins.bottom)
    padded = Image.new("RGB", size, (127, 127, 127))
    padded.paste(picture.convert("RGB"), margins[:2])
    mask = margin_mask(width, height, margins, feather)
    return padded, Image.fromarray((mask * 255).astype(np.uint8))


def margin_mask(width: int, height: int, margins: Margins, feather: int) -> np.ndarray:
    """A mask of a padded picture, 0 to 1: 1 in the margins, and falling over `feather` pixels inside (ComfyUI)."""
    inner = np.zeros((height, width))
    if feather > 0 and feather * 2 < min(width, height):
        rows, columns = np.arange(height)[:, None], np.arange(width)
        far = float(width + height + sum(margins))
        edges = (
            columns if margins.left else far,
            rows if margins.top else far,
            width - columns if margins.right else far,
            height - rows if margins.bottom else far,
        )
        distance = np.minimum(np.minimum(edges[0], edges[1]), np.minimum(edges[2], edges[3]))
        inner = np.broadcast_to(np.clip((feather - distance) / feather, 0, 1) ** 2, (height, width))
    mask = np.ones((height + margins.top + margins.bottom, width + margins.left + margins.right))
    mask[margins.top : margins.top + height, margins.left : margins.left + width] = inner
    return mask


def extend_edges(picture: Image.Image, margins: Margins) -> Image.Image:
    """The picture with its outermost pixels repeated: a beginning for models that paint over what is there."""
    pixels = np.asarray(picture.convert("RGB"))
    around = ((margins.top, margins.bottom), (margins.left, margins.right), (0, 0))
    return Image.fromarray(np.pad(pixels, around, mode="edge"))


def noise_like(
    picture: Image.Image, mask: Image.Image, exponent: float = 1, colourfulness: float = 0.05
) -> Image.Image:
    """The picture with noise under the mask that has the picture's spectrum and colours: a beginning for any model.

    `exponent` is how much of the spectrum it has ("fall-off exponent" in A1111, lower is more detail).
    """
    pixels = np.asarray(picture.convert("RGB")) / 255
    painted = np.asarray(mask.convert("L"))[..., None] / 255
    inside, outside = painted[..., 0] > 1e-6, painted[..., 0] < 1e-3
    if not (inside.any() and outside.any()):
        raise SettingError("the mask must leave a part of the picture, and paint another")
    seen = pixels * (1 - painted)
    seen = seen / max(seen.max(), 1e-9) + pixels.mean() * painted
    spectrum = _spectrum(seen)
    size = np.abs(spectrum)
    noise = np.random.default_rng(0).random(pixels.shape)
    noise = noise * colourfulness + noise.mean(-1, keepdims=True) * (1 - colourfulness)
    smooth = _picture_of(_spectrum(noise) * _window(*pixels.shape[:2]))
    shaped = _picture_of(np.abs(_spectrum(smooth)) ** 2 * size**exponent * spectrum / np.maximum(size, 1e-12))
    shaped = (shaped - shaped.min()) / max(np.ptp(shaped), 1e-9)
    for channel in range(3):
        shaped[inside, channel] = match_histogram(shaped[inside, channel], pixels[outside, channel])
    result = np.clip(pixels * (1 - painted) + shaped * painted, 0, 1)
    return Image.fromarray((result * 255).astype(np.uint8))


def _spectrum(pixels: np.ndarray) -> np.ndarray:
    """Each channel's Fourier transform, with what is constant in the middle."""
    return np.fft.ifftshift(np.fft.fft2(np.fft.fftshift(pixels, (0, 1)), axes=(0, 1), norm="ortho"), (0, 1))


def _picture_of(spectrum: np.ndarray) -> np.ndarray:
    """The other way."""
    shifted = np.fft.fftshift(spectrum, (0, 1))
    return np.asarray(np.fft.ifftshift(np.fft.ifft2(shifted, axes=(0, 1), norm="ortho").real, (0, 1)))


def _window(height: int, width: int) -> np.ndarray:
    """A weight [height, width, 1] for each frequency, 1 in the middle."""
    y, x = (np.arange(side) / side * 2 - 1 for side in (height, width))
    shorter = min(height, width)
    y, x = y[:, None, None] * (height / shorter), x[:, None] * (width / shorter)
    return np.asarray(1 / ((x**2 + 1) * (y**2 + 1)))
