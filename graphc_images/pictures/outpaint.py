"""Pictures made ready to be painted on beyond their edges.

Source: ComfyUI's ImagePadForOutpaint; AUTOMATIC1111's scripts/poor_mans_outpainting.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError


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
    inner = np.zeros((height, width))
    if feather > 0 and feather * 2 < min(width, height):
        rows, columns = np.arange(height)[:, None], np.arange(width)
        far = float(max(size))
        edges = (
            columns if margins.left else far,
            rows if margins.top else far,
            width - columns if margins.right else far,
            height - rows if margins.bottom else far,
        )
        distance = np.minimum(np.minimum(edges[0], edges[1]), np.minimum(edges[2], edges[3]))
        inner = np.broadcast_to(np.clip((feather - distance) / feather, 0, 1) ** 2, (height, width))
    mask = np.ones(size[::-1])
    mask[margins.top : margins.top + height, margins.left : margins.left + width] = inner
    return padded, Image.fromarray((mask * 255).astype(np.uint8))


def extend_edges(picture: Image.Image, margins: Margins) -> Image.Image:
    """The picture with its outermost pixels repeated: a beginning for models that paint over what is there."""
    pixels = np.asarray(picture.convert("RGB"))
    around = ((margins.top, margins.bottom), (margins.left, margins.right), (0, 0))
    return Image.fromarray(np.pad(pixels, around, mode="edge"))
