"""Hints for ControlNets that need no network: functions from pixels [height, width, 3] uint8 to the same.

Source: lllyasviel's ControlNet annotators and Mikubill's extension; Canny 1986 as OpenCV has it.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures.colour import rgb_to_lab
from graphc_images.pictures.filters import blur_levels, gaussian_blur, levels, resize_area, sobel

TANGENT = round(0.4142135623730950488 * (1 << 15))  # of 22.5 degrees, below which a gradient counts as horizontal


def _as_rgb(gray: np.ndarray) -> np.ndarray:
    return np.repeat(gray[..., None], 3, -1)


def canny(pixels: np.ndarray, low: float = 100, high: float = 200) -> np.ndarray:
    """White edges: where the gradient is largest across the edge, above `high`, or above `low` and joined to such."""
    edges = canny_edges(pixels, low, high)
    return _as_rgb(np.where(edges, 255, 0).astype(np.uint8))


def canny_edges(pixels: np.ndarray, low: float, high: float) -> np.ndarray:
    """The edges [height, width] of a picture, of each pixel's strongest channel, with Sobel's 3 x 3 and |x| + |y|."""
    channels = pixels.astype(np.int64).reshape(*pixels.shape[:2], -1)
    x, y = sobel(channels, axis=1), sobel(channels, axis=0)
    strongest = (abs(x) + abs(y)).argmax(-1)[..., None]
    x, y = (np.take_along_axis(each, strongest, -1)[..., 0] for each in (x, y))
    size = np.pad(abs(x) + abs(y), 1)
    height, width = x.shape

    def beside(row: int, column: int) -> np.ndarray:
        return size[1 + row : 1 + row + height, 1 + column : 1 + column + width]

    middle = beside(0, 0)
    slope, across = abs(y) * (1 << 15), abs(x) * TANGENT
    flat = slope < across
    steep = slope > across + abs(x) * (1 << 16)
    rising = (x ^ y) < 0
    first = np.where(
        flat, beside(0, -1), np.where(steep, beside(-1, 0), np.where(rising, beside(-1, 1), beside(-1, -1)))
    )
    second = np.where(flat, beside(0, 1), np.where(steep, beside(1, 0), np.where(rising, beside(1, -1), beside(1, 1))))
    straight = flat | steep
    peak = (middle > first) & np.where(straight, middle >= second, middle > second) & (middle > int(low))
    return _joined(peak & (middle > int(high)), peak)


def _joined(sure: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """What of the possible is joined to the sure, over edges and corners."""
    found = np.pad(sure, 1)
    open_ = np.pad(possible, 1)
    width = found.shape[1]
    neighbours = np.array([-width - 1, -width, -width + 1, -1, 1, width - 1, width, width + 1])
    flat_found, flat_open = found.reshape(-1), open_.reshape(-1)
    front = np.flatnonzero(flat_found)
    while front.size:
        near = (front[:, None] + neighbours).reshape(-1)
        front = np.unique(near[flat_open[near] & ~flat_found[near]])
        flat_found[front] = True
    return found[1:-1, 1:-1]


def invert(pixels: np.ndarray) -> np.ndarray:
    """White on black for what was black on white: drawings for lineart and scribble models."""
    return 255 - pixels


def threshold(pixels: np.ndarray, level: float = 127) -> np.ndarray:
    """White where every colour is above a level."""
    return _as_rgb(np.where(pixels.min(-1) > level, 255, 0).astype(np.uint8))


def blur(pixels: np.ndarray, sigma: float = 9) -> np.ndarray:
    """A Gaussian of this standard deviation in pixels; the kernel has OpenCV's size for 8-bit pixels."""
    size = int(np.rint(sigma * 6 + 1)) | 1
    return blur_levels(pixels, {1: (sigma, size), 0: (sigma, size)})


def tile(pixels: np.ndarray, factor: float = 1) -> np.ndarray:
    """Fewer details, for tile models: shrunk by a factor. It is enlarged again when it is fitted."""
    if factor < 1.1:
        return pixels
    height, width = (max(int(side / factor), 1) for side in pixels.shape[:2])
    return levels(resize_area(pixels.astype(np.float64), height, width))


def shuffle(pixels: np.ndarray, seed: int = 0, scale: int = 256) -> np.ndarray:
    """The picture's parts moved about by two smooth random fields: its colours without its content."""
    height, width = pixels.shape[:2]
    random = np.random.default_rng(seed)
    x = _smooth_noise(random, height, width, scale) * (width - 1)
    y = _smooth_noise(random, height, width, scale) * (height - 1)
    return sample(pixels, x, y)


def _smooth_noise(random: np.random.Generator, height: int, width: int, scale: int) -> np.ndarray:
    """A field [height, width] from 0 to 1, by cubic interpolation of points `scale` pixels apart."""
    points = random.random((height // scale + 2, width // scale + 2)).astype(np.float32)
    larger = Image.fromarray(points).resize((width + 2 * scale, height + 2 * scale), Image.Resampling.BICUBIC)
    field = np.asarray(larger)[scale : scale + height, scale : scale + width]
    least, most = field.min(), field.max()
    return np.asarray((field - least) / (most - least) if most > least else np.zeros_like(field))


def sample(pixels: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pixels at places between them, [height, width] each: means weighted by distance."""
    left = np.clip(np.floor(x).astype(int), 0, pixels.shape[1] - 1)
    top = np.clip(np.floor(y).astype(int), 0, pixels.shape[0] - 1)
    right, bottom = np.minimum(left + 1, pixels.shape[1] - 1), np.minimum(top + 1, pixels.shape[0] - 1)
    across, down = (x - left)[..., None], (y - top)[..., None]
    upper = pixels[top, left] * (1 - across) + pixels[top, right] * across
    lower = pixels[bottom, left] * (1 - across) + pixels[bottom, right] * across
    return levels(upper * (1 - down) + lower * down)


def recolor(pixels: np.ndarray, gamma: float = 1, *, by: str = "luminance") -> np.ndarray:
    """The picture in gray, for models that colour it: by luminance (CIELAB's L) or intensity (the largest of the three)."""
    if by == "luminance":
        gray = rgb_to_lab(pixels[..., ::-1])[..., 0]  # models are used to A1111's red for blue
    elif by == "intensity":
        gray = pixels.max(-1)
    else:
        raise SettingError(f"recolor takes luminance or intensity, not {by!r}")
    levels = (gray.astype(np.float32) / 255) ** gamma * 255
    return _as_rgb(np.clip(levels, 0, 255).astype(np.uint8))


def scribble(pixels: np.ndarray, level: int = 32) -> np.ndarray:
    """Lines as if drawn by hand: where a fine blur is darker than a coarse one by half a level (Winnemöller's XDoG)."""
    fine, coarse = (gaussian_blur(pixels.astype(np.float64), sigma, size) for sigma, size in ((0.5, 5), (5.0, 41)))
    paper = np.clip(255 - (coarse - fine).min(-1), 0, 255).astype(np.uint8)
    return _as_rgb(np.where(2 * (255 - paper.astype(int)) > level, 255, 0).astype(np.uint8))


def inpaint(pixels: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """For inpainting models: [3, height, width] from 0 to 1, and -1 in every channel under the mask [height, width]."""
    hint = pixels.astype(np.float32).transpose(2, 0, 1) / np.float32(255)
    return np.asarray(np.where(mask > 0.5, np.float32(-1), hint))
