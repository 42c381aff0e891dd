"""Pictures over HTTP: `/view`, `/upload/image`, `/upload/mask`.

Source: ComfyUI's server.py.
"""

from __future__ import annotations

import io
import json
from typing import Annotated, Any

from fastapi import APIRouter, Request
from PIL import Image, PngImagePlugin
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import FileResponse, Response

from graphc_server.answers import Json
from graphc_server.comfyui.files import Files
from graphc_server.comfyui.routes import Made
from graphc_server.errors import RequestError
from graphc_server.pictures import opened

router = APIRouter()
MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".bmp": "image/bmp",
}
"""What is sent as a picture. All else is sent as bytes, which no browser shows."""

UNKNOWN = "application/octet-stream"
PREVIEW_QUALITY = 90
Text = str | None


@router.get("/view", response_class=FileResponse)
def view(
    graphs: Made,
    filename: str = "",
    type: str = "output",
    subfolder: str = "",
    preview: Text = None,
    channel: Text = None,
) -> Response:
    """A picture: as it is, as a smaller file (`preview`, such as `webp;90`), or a part of its channels (`rgb` or `a`)."""
    found = graphs.files.named(filename) if filename.endswith("]") else graphs.files.file(type, subfolder, filename)
    if not found.is_file():
        raise RequestError(f"there is no file {filename[:80]!r}", 404)
    kind = MEDIA.get(found.suffix.lower(), UNKNOWN)
    headers = {"Content-Disposition": "inline", "X-Content-Type-Options": "nosniff"}
    if kind == UNKNOWN or (preview is None and channel in (None, "rgba")):
        return FileResponse(found, media_type=kind, headers=headers)
    content, kind = changed(opened(found.read_bytes(), "filename", graphs.service.limits.pixels), preview, channel)
    return Response(content, media_type=kind, headers=headers)


def changed(picture: Image.Image, preview: str | None, channel: str | None) -> tuple[bytes, str]:
    """A picture in another format, or some of its channels, and its media type."""
    made = io.BytesIO()
    if preview is not None:
        name, _, quality = preview.partition(";")
        kind = name if name in ("webp", "jpeg") else "webp"
        if kind == "jpeg" or channel == "rgb":
            picture = picture.convert("RGB")
        picture.save(
            made, kind.upper(), quality=int(quality) if quality.isdecimal() and int(quality) <= 100 else PREVIEW_QUALITY
        )
        return made.getvalue(), f"image/{kind}"
    if channel == "rgb":
        picture = picture.convert("RGB")
    elif channel == "a":
        alpha = picture.convert("RGBA").getchannel("A")
        picture = Image.new("RGBA", picture.size)
        picture.putalpha(alpha)
    picture.save(made, "PNG")
    return made.getvalue(), "image/png"


async def _form(request: Request) -> FormData:
    """A form of several parts. Raises RequestError for a body that is none."""
    if "multipart/form-data" not in request.headers.get("content-type", "").lower():
        raise RequestError("the body is not multipart/form-data", 400)
    return await request.form()


def _text(form: FormData, name: str, usual: str = "") -> str:
    found = form.get(name, usual)
    return found if isinstance(found, str) else usual


async def _upload(form: FormData) -> tuple[str, bytes]:
    """The name and the content of the picture that was sent."""
    image = form.get("image")
    if not isinstance(image, UploadFile) or not image.filename:
        raise RequestError("image: there is none", 400)
    return image.filename.replace("\\", "/").rpartition("/")[2], await image.read()


def _kept(files: Files, form: FormData, name: str, content: bytes) -> Json:
    kind, below = _text(form, "type", "input") or "input", _text(form, "subfolder")
    replace = _text(form, "overwrite").lower() in ("true", "1")
    called = files.keep(kind, below, name, content, replace=replace)
    return Json({"name": called, "subfolder": below, "type": kind})


UPLOAD: dict[str, Any] = {
    "requestBody": {
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "image": {"type": "string", "format": "binary"},
                        "type": {"type": "string", "default": "input"},
                        "subfolder": {"type": "string"},
                        "overwrite": {"type": "string"},
                    },
                }
            }
        }
    }
}


@router.post("/upload/image", openapi_extra=UPLOAD)
async def upload_image(graphs: Made, request: Request) -> Json:
    """Keep a picture for graphs, in the folder `input` if not said otherwise."""
    form = await _form(request)
    name, content = await _upload(form)

    def kept() -> Json:
        opened(content, "image", graphs.service.limits.pixels)
        return _kept(graphs.files, form, name, content)

    return await run_in_threadpool(kept)


@router.post("/upload/mask", openapi_extra=UPLOAD)
async def upload_mask(graphs: Made, request: Request) -> Json:
    """Keep a picture that is there (`original_ref`) with the transparency of the one that is sent."""
    form = await _form(request)
    name, content = await _upload(form)
    return await run_in_threadpool(lambda: _kept(graphs.files, form, name, _masked(graphs, form, content)))


def _masked(graphs: Made, form: FormData, content: bytes) -> bytes:
    try:
        said: Annotated[Any, "the picture that is there"] = json.loads(_text(form, "original_ref"))
        where = [str(said.get("type", "output")), str(said.get("subfolder", "")), str(said["filename"])]
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        raise RequestError("original_ref: it names no picture", 400) from None
    path = graphs.files.file(*where)
    if not path.is_file():
        raise RequestError("original_ref: there is no such picture", 400)
    limit = graphs.service.limits.pixels
    original, mask = opened(path.read_bytes(), "original_ref", limit), opened(content, "image", limit)
    notes = PngImagePlugin.PngInfo()
    for key, text in original.info.items():
        if isinstance(text, str) and isinstance(key, str) and key.isascii() and 0 < len(key) < 80:
            notes.add_text(key, text)
    if mask.size != original.size:
        raise RequestError("image: the mask has another size than the picture", 400)
    made = io.BytesIO()
    whole = original.convert("RGBA")
    whole.putalpha(mask.convert("RGBA").getchannel("A"))
    whole.save(made, "PNG", pnginfo=notes)
    return made.getvalue()
