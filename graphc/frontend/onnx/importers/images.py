"""Image files. No program decodes them: like strings, they are read while importing, for the values of one run."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import U8

FILES = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What the standard asks for, as Pillow names it; its decoders of other files are not tried."""

PIXELS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "RGB": ("RGB", lambda pixels: pixels),
    "BGR": ("RGB", lambda pixels: pixels[:, :, ::-1]),
    "Grayscale": ("L", lambda pixels: pixels[:, :, None]),
}
"""Pillow's mode for each pixel format, and the pixels [height, width, channels] of an image in it."""


@onnx_op("ImageDecoder")
def image_decoder(node: OnnxNode, emit: SizeEmit) -> Value:
    """An encoded image, uint8 [bytes] -> uint8 [height, width, channels]; [0, 0, channels] where it cannot be decoded."""
    x, pixel_format = node.input(0), node.choice("pixel_format", "RGB", tuple(PIXELS))
    if x.dtype != U8 or x.type.rank != 1:
        raise ModelError(f"an encoded image is {x.type}, not uint8 [bytes]")
    return emit.constant(decoded(emit.array(x, "an image").tobytes(), pixel_format))


def decoded(data: bytes, pixel_format: str) -> np.ndarray:
    """The pixels of an image file. Raises Refused without Pillow."""
    try:
        from PIL import Image
    except ImportError:
        refuse_unless(False, "decoding images needs Pillow", "pip install 'graphc[images]'")
    mode, arranged = PIXELS[pixel_format]
    try:
        with Image.open(io.BytesIO(data), formats=FILES) as image:
            return np.ascontiguousarray(arranged(np.asarray(image.convert(mode))))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return np.zeros((0, 0, len(mode)), U8)
