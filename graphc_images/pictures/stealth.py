"""Texts in the lowest bits of a picture, which survive sites that take text chunks away.

Source: ashen-sensored's stealth_pnginfo; Forge's modules/stealth_infotext.py. Bits go down each column, then to the next;
first 15 letters that name the kind, then the number of bits, then the text, perhaps gzipped.
"""

from __future__ import annotations

import gzip
import zlib

import numpy as np
from PIL import Image

KINDS = {  # channels, whether the text is gzipped
    b"stealth_pnginfo": ("A", False),
    b"stealth_pngcomp": ("A", True),
    b"stealth_rgbinfo": ("RGB", False),
    b"stealth_rgbcomp": ("RGB", True),
}
NAME_BYTES, LENGTH_BYTES = 15, 4
MOST_TEXT = 1 << 24  # bytes, unpacked


def read_stealth(picture: Image.Image) -> str:
    """The hidden text, or an empty one if there is none."""
    for channels in ("A", "RGB"):
        if not set(channels) <= set(picture.getbands()) or picture.mode not in ("RGB", "RGBA"):
            continue
        pixels = np.asarray(picture)[:, :, :3] if channels == "RGB" else np.asarray(picture)[:, :, 3:]
        head = (NAME_BYTES + LENGTH_BYTES) * 8
        columns = -(-head // (pixels.shape[0] * pixels.shape[2]))
        start = _bytes(pixels[:, :columns])
        kind = KINDS.get(start[:NAME_BYTES])
        if kind is None or kind[0] != channels:
            continue
        size = int.from_bytes(start[NAME_BYTES : NAME_BYTES + LENGTH_BYTES]) // 8
        data = _bytes(pixels)[NAME_BYTES + LENGTH_BYTES :][:size]
        if len(data) == size:
            return _text(data, packed=kind[1])
    return ""


def _bytes(pixels: np.ndarray) -> bytes:
    """The lowest bits, column by column."""
    return np.packbits(pixels.transpose(1, 0, 2).reshape(-1) & 1).tobytes()


def _text(data: bytes, *, packed: bool) -> str:
    if packed:
        try:
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, MOST_TEXT)
        except zlib.error:
            return ""
    return data.decode("utf-8", "ignore")


def hide_text(picture: Image.Image, text: str) -> Image.Image:
    """The picture with a gzipped text in its transparency, which becomes 254 or 255 everywhere."""
    packed = gzip.compress(text.encode(), mtime=0)
    content = b"stealth_pngcomp" + (len(packed) * 8).to_bytes(LENGTH_BYTES) + packed
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    pixels = np.array(picture.convert("RGBA"))
    height, width = pixels.shape[:2]
    alpha = np.full(width * height, 255, np.uint8)
    if len(bits) > len(alpha):
        raise ValueError(f"a text of {len(bits)} bits does not fit into {len(alpha)} pixels")
    alpha[: len(bits)] = 254 | bits
    pixels[:, :, 3] = alpha.reshape(width, height).T
    return Image.fromarray(pixels)
