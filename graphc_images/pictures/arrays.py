"""Between pictures and the arrays that models take and give: [3, height, width] float32, from -1 to 1."""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import Image

from graphc_images.errors import SettingError

Rounding = Literal["truncate", "round"]  # A1111 and ComfyUI cut fractions off; diffusers rounds


def to_array(picture: Image.Image) -> np.ndarray:
    """[3, height, width], -1 is black and 1 white; transparency is ignored. Rounded as in A1111, ComfyUI and diffusers."""
    pixels = np.asarray(picture.convert("RGB"), np.float32)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) / np.float32(255) * np.float32(2) - np.float32(1))


def to_picture(array: np.ndarray, rounding: Rounding = "truncate") -> Image.Image:
    """The picture of [3, height, width]; what is not a number is black."""
    if array.ndim != 3 or array.shape[0] != 3:
        raise SettingError(f"a picture is made from an array [3, height, width], not {list(array.shape)}")
    levels = np.clip((np.nan_to_num(array, nan=-1.0).astype(np.float32) + 1) / 2, 0, 1) * np.float32(255)
    levels = np.rint(levels) if rounding == "round" else levels
    return Image.fromarray(np.ascontiguousarray(levels.astype(np.uint8).transpose(1, 2, 0)))


def flatten(picture: Image.Image, background: str = "#ffffff") -> Image.Image:
    """Without transparency: what shows through is the background, as in A1111's img2img. Raises SettingError for a colour that
    there is not."""
    if "A" not in picture.getbands() and "transparency" not in picture.info:
        return picture.convert("RGB")
    picture = picture.convert("RGBA")
    try:
        solid = Image.new("RGBA", picture.size, background)
    except ValueError:
        raise SettingError(f"background: {background[:40]!r} is not a colour, such as #ffffff") from None
    solid.alpha_composite(picture)
    return solid.convert("RGB")
