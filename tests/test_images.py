"""ImageDecoder beyond ONNX's cases: other kinds of pixels, what cannot be decoded, and an installation without Pillow."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from frontend_models import single

from graphc import onnx_backend
from graphc.errors import UnsupportedError

Image = pytest.importorskip("PIL.Image")
PIXELS = np.random.default_rng(3).integers(0, 256, (5, 7, 3), np.uint8)


def decode(data: bytes, **attributes: object) -> np.ndarray:
    proto, feeds = single("ImageDecoder", [np.frombuffer(data, np.uint8)], **attributes)
    return onnx_backend.prepare(proto).run(feeds)[0]


def encoded(image: object, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("mode", ["RGBA", "P", "L", "1"])
def test_other_kinds_of_pixels_become_rgb(mode: str) -> None:
    image = Image.fromarray(PIXELS).convert(mode)
    found = decode(encoded(image))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.asarray(image.convert("RGB")))


def test_two_images_are_two_results() -> None:
    proto, _ = single("ImageDecoder", [np.zeros(1, np.uint8)])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "bytes"
    prepared = onnx_backend.prepare(proto)
    for pixels in (PIXELS, PIXELS[::-1], PIXELS[:2]):
        data = np.frombuffer(encoded(Image.fromarray(pixels)), np.uint8)
        np.testing.assert_array_equal(prepared.run([data])[0], pixels)


@pytest.mark.parametrize("data", [b"", b"not an image", encoded(Image.fromarray(PIXELS))[:60]])
@pytest.mark.parametrize(("pixel_format", "channels"), [("RGB", 3), ("Grayscale", 1)])
def test_what_cannot_be_decoded_is_empty(data: bytes, pixel_format: str, channels: int) -> None:
    assert decode(data, pixel_format=pixel_format).shape == (0, 0, channels)


def test_only_the_files_of_the_standard_are_tried() -> None:
    assert decode(encoded(Image.fromarray(PIXELS), "GIF")).shape == (0, 0, 3)


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(Image.fromarray(PIXELS))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedError, match=r"graphc\[images\]"):
        decode(data)
