"""Pictures in requests and answers: base64 with or without a data URI, or an address on the web."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Callable

from PIL import Image, UnidentifiedImageError

from graphc_server.errors import RequestError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""What is decoded. Pillow knows many more, of which few are safe."""

MEDIA = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp"}
Fetch = Callable[[str], bytes]


def decoded(text: str, field: str, pixels: int, fetch: Fetch) -> Image.Image:
    """The picture of a request's field. Raises RequestError that names the field."""
    if text.startswith(("http://", "https://")):
        return opened(fetch(text), field, pixels)
    head, comma, rest = text.partition(",")
    body = rest if comma and head.startswith("data:") else text
    try:
        return opened(base64.b64decode("".join(body.split()), validate=True), field, pixels)
    except (binascii.Error, ValueError):
        raise RequestError(f"{field}: Invalid encoded image") from None


def opened(content: bytes, field: str, pixels: int) -> Image.Image:
    """The picture in bytes, decoded. Raises RequestError for what is none, or has more pixels than are allowed."""
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
        if picture.width * picture.height > pixels:
            size = f"{picture.width} x {picture.height}"
            raise RequestError(f"{field}: the picture has {size} pixels, and the server allows {pixels}")
        picture.load()
    except RequestError:
        raise
    except UnidentifiedImageError:
        raise RequestError(f"{field}: Invalid encoded image: it is none of {', '.join(FORMATS)}") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise RequestError(f"{field}: Invalid encoded image: {str(problem)[:200]}") from None
    return picture


def encoded(picture: Image.Image, kind: str = "png", quality: int = 80) -> bytes:
    """The bytes of a picture of no notes; `kind` is png, jpeg or webp."""
    made = io.BytesIO()
    name = "JPEG" if kind in ("jpg", "jpeg") else kind.upper()
    (picture.convert("RGB") if name == "JPEG" else picture).save(made, name, quality=quality)
    return made.getvalue()


def base64_of(content: bytes) -> str:
    """As JSON has it."""
    return base64.b64encode(content).decode("ascii")
