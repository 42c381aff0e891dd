"""Pictures at another size: stretched, cut, or filled at the borders.

Source: AUTOMATIC1111's modules/images.py (resize_image).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from PIL import Image

from graphc_images.errors import SettingError

ResizeMode = Literal["stretch", "crop", "fill"]
Resizer = Callable[[Image.Image, int, int], Image.Image]


def pixel_mode(mode: str) -> ResizeMode:
    """How pixels are brought to a size, where that is said of a picture whose latent may be stretched in their place."""
    return "stretch" if mode == "latent" else cast(ResizeMode, mode)


def lanczos(picture: Image.Image, width: int, height: int) -> Image.Image:
    """The picture at this size."""
    return picture if picture.size == (width, height) else picture.resize((width, height), Image.Resampling.LANCZOS)


def larger_by(way: Resizer) -> Resizer:
    """What makes a coloured picture larger in this way, and everything else in the usual one."""

    def by(picture: Image.Image, width: int, height: int) -> Image.Image:
        smaller = picture.mode == "L" or (width <= picture.width and height <= picture.height)
        return lanczos(picture if smaller else way(picture, width, height), width, height)

    return by


def resize(picture: Image.Image, width: int, height: int, mode: ResizeMode, by: Resizer = lanczos) -> Image.Image:
    """The picture at this size. "crop" and "fill" keep its shape: one cuts what is over, the other repeats the edges."""
    if min(width, height, *picture.size) < 1:
        raise SettingError(f"a picture of {picture.width}x{picture.height} cannot become one of {width}x{height}")
    if mode == "stretch":
        return by(picture, width, height)
    wider = width * picture.height > picture.width * height  # than the picture is
    inner_width, inner_height = width, height
    if wider == (mode == "crop"):
        inner_height = max(picture.height * width // picture.width, 1)
    else:
        inner_width = max(picture.width * height // picture.height, 1)
    inner = by(picture, inner_width, inner_height)
    left, top = width // 2 - inner_width // 2, height // 2 - inner_height // 2
    result = Image.new(inner.mode, (width, height))
    result.paste(inner, (left, top))
    if mode == "fill":
        _repeat_edges(result, inner, left, top)
    return result


def _repeat_edges(result: Image.Image, inner: Image.Image, left: int, top: int) -> None:
    """Fills what is around the inner picture with its outermost lines, as pillow samples a box without an area."""
    width, height = inner.size
    right, bottom = result.width - left - width, result.height - top - height
    sides = (
        ((left, height), (0, 0, 0, height), (0, top)),
        ((right, height), (width, 0, width, height), (left + width, top)),
        ((width, top), (0, 0, width, 0), (left, 0)),
        ((width, bottom), (0, height, width, height), (left, top + height)),
    )
    for size, box, place in sides:
        if min(size) > 0:
            result.paste(inner.resize(size, box=box), place)
