"""Pictures at another size: stretched, cut, or filled at the borders.

Source: AUTOMATIC1111's modules/images.py (resize_image).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from PIL import Image

from graphc_images.errors import SettingError

ResizeMode = Literal["stretch", "crop", "fill"]
Resizer = Callable[[Image.Image, int, int], Image.Image]


def lanczos(picture: Image.Image, width: int, height: int) -> Image.Image:
    """The picture at this size."""
    return picture if picture.size == (width, height) else picture.resize((width, height), Image.Resampling.LANCZOS)


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
    """Fills what is around the inner picture with its outermost lines."""
    right, bottom = left + inner.width, top + inner.height
    for start, stop, line in ((0, left, 0), (right, result.width, inner.width - 1)):
        if stop > start:
            edge = inner.crop((line, 0, line + 1, inner.height))
            result.paste(edge.resize((stop - start, inner.height)), (start, top))
    for start, stop, line in ((0, top, 0), (bottom, result.height, inner.height - 1)):
        if stop > start:
            edge = inner.crop((0, line, inner.width, line + 1))
            result.paste(edge.resize((inner.width, stop - start)), (left, start))
