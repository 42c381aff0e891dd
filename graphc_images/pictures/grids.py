"""Several pictures as one: grids, and grids with a legend for each column and row.

Source: AUTOMATIC1111's modules/images.py (image_grid, draw_grid_annotations).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from graphc_images.errors import SettingError

INK = "#000000"


def grid_of(pictures: Sequence[Image.Image], rows: int | None = None, background: str = "#ffffff") -> Image.Image:
    """Pictures beside and below each other, each in the middle of a cell of the largest's size.

    Without `rows` about as many as columns, and no cell empty where the number allows it.
    """
    if not pictures:
        raise SettingError("a grid needs a picture")
    if rows is None:
        rows = math.isqrt(len(pictures))
        while len(pictures) % rows:
            rows -= 1
    rows = max(1, min(rows, len(pictures)))
    columns = math.ceil(len(pictures) / rows)
    width, height = (max(sides) for sides in zip(*(picture.size for picture in pictures), strict=True))
    grid = Image.new("RGB", (columns * width, rows * height), background)
    for place, picture in enumerate(pictures):
        left, top = place % columns * width, place // columns * height
        grid.paste(picture, (left + (width - picture.width) // 2, top + (height - picture.height) // 2))
    return grid


def labelled_grid(
    pictures: Sequence[Image.Image], columns: Sequence[str], rows: Sequence[str], background: str = "#ffffff"
) -> Image.Image:
    """Pictures, row by row, with a text over each column and before each row; empty texts take no room."""
    if len(pictures) != len(columns) * len(rows):
        raise SettingError(f"{len(pictures)} pictures do not fill {len(columns)} columns and {len(rows)} rows")
    grid = grid_of(pictures, len(rows), background)
    cell_width, cell_height = grid.width // len(columns), grid.height // len(rows)
    size = max((cell_width + cell_height) // 25, 10)
    font = ImageFont.load_default(size)
    heads = [_broken(text, cell_width, font) for text in columns]
    sides = [_broken(text, cell_width * 3 // 4, font) for text in rows]
    top = max(_height(text, size) for text in heads)
    left = cell_width * 3 // 4 + size if any(rows) else 0
    whole = Image.new("RGB", (left + grid.width, top + grid.height), background)
    whole.paste(grid, (left, top))
    draw = ImageDraw.Draw(whole)
    for place, text in enumerate(heads):
        centre = (left + place * cell_width + cell_width // 2, top // 2)
        draw.multiline_text(centre, text, INK, font, "mm", align="center")
    for place, text in enumerate(sides):
        centre = (left // 2, top + place * cell_height + cell_height // 2)
        draw.multiline_text(centre, text, INK, font, "mm", align="center")
    return whole


def _height(text: str, size: int) -> int:
    """Room for a text's lines."""
    return (text.count("\n") + 2) * size * 5 // 4 if text else 0


def _broken(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """A text with line breaks where it would be wider than `width` pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)
