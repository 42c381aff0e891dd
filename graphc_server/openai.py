"""OpenAI's API for pictures: `/v1/images/generations`, `/v1/images/edits`, `/v1/models`.

Source: platform.openai.com's reference of images. `url` as response_format is refused: pictures come in the answer.
"""

from __future__ import annotations

import re
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from PIL import Image, ImageOps
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from graphc_images import ModelError, SettingError, Settings
from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.orders import Order, with_seeds
from graphc_server.pictures import base64_of, opened
from graphc_server.sdapi.painting import Served
from graphc_server.sdapi.requests import check_text, look_of, options_of
from graphc_server.service import Service, client_of

router = APIRouter(prefix="/v1")
SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")
USUAL_MODELS = ("", "auto", "gpt-image-1", "gpt-image-1-mini", "gpt-image-1.5", "dall-e-2", "dall-e-3")
"""What clients name that know no others: the model that is selected."""


class Generation(BaseModel):
    """A request for pictures."""

    model_config = ConfigDict(allow_inf_nan=False)
    prompt: str
    n: Annotated[int | None, Field(ge=1, le=1024)] = 1
    size: str | None = "auto"
    model: str | None = ""
    response_format: Literal["b64_json", "url"] | None = "b64_json"
    output_format: Literal["png", "jpeg", "webp"] | None = "png"
    output_compression: Annotated[int | None, Field(ge=0, le=100)] = 100
    quality: str | None = "auto"
    background: str | None = "auto"
    user: str | None = None
    stream: bool | None = False


@router.get("/models")
def models(service: Served) -> Json:
    """The models in the folders."""
    found = [
        {"id": each.file.name, "object": "model", "created": _made(each.file.path), "owned_by": "graphc"}
        for each in service.models.listed()
    ]
    return Json({"object": "list", "data": found})


def _made(path: Any) -> int:
    try:
        return int(path.stat().st_mtime)
    except OSError:
        return 0


@router.post("/images/generations")
async def generations(service: Served, request: Request, body: Generation) -> Json:
    """Pictures from words."""
    return await _answer(service, request, body, {})


@router.post(
    "/images/edits",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["image", "prompt"],
                        "properties": {
                            "image": {"type": "string", "format": "binary"},
                            "mask": {"type": "string", "format": "binary"},
                            "prompt": {"type": "string"},
                            "n": {"type": "integer"},
                            "size": {"type": "string"},
                        },
                    }
                }
            },
        }
    },
)
async def edits(service: Served, request: Request) -> Json:
    """A picture, of which the transparent part of the mask (or of itself) is painted anew; without one, all of it."""
    form = await request.form(max_files=18, max_fields=100)
    texts = {name: each for name, each in form.items() if isinstance(each, str)}
    pictures = [each for name in ("image", "image[]") for each in form.getlist(name) if isinstance(each, UploadFile)]
    if not pictures:
        raise RequestError("image: a file is needed", 400)
    if len(pictures) > 1:
        raise RequestError("image: one picture can be given", 400)
    body = _validated(texts)
    pixels = service.limits.pixels
    content = await pictures[0].read()
    masked = form.get("mask")
    mask_content = await masked.read() if isinstance(masked, UploadFile) else None
    found = await run_in_threadpool(_edited, content, mask_content, pixels)
    return await _answer(service, request, body, found)


def _validated(texts: dict[str, str]) -> Generation:
    from pydantic import ValidationError

    try:
        return Generation.model_validate(texts)
    except ValidationError as problem:
        first = problem.errors()[0]
        raise RequestError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", 400) from None


def _edited(content: bytes, mask_content: bytes | None, pixels: int) -> dict[str, Any]:
    """The settings of an edit."""
    picture = opened(content, "image", pixels)
    seen = picture if mask_content is None else opened(mask_content, "mask", pixels)
    found: dict[str, Any] = {"image": picture.convert("RGB"), "denoising_strength": 0.75}
    if "A" in seen.getbands() or "transparency" in seen.info:
        mask = ImageOps.invert(seen.convert("RGBA").getchannel("A"))
        if mask.size != picture.size:
            raise RequestError("mask: it has another size than the image", 400)
        if mask.getextrema() != (0, 0):
            found |= {"mask": mask, "denoising_strength": 1.0, "mask_blur": 0}
    elif mask_content is not None:
        raise RequestError("mask: it has no transparency, which says where the image is painted anew", 400)
    return found


async def _answer(service: Service, request: Request, body: Generation, more: dict[str, Any]) -> Json:
    began = time.monotonic()
    id = await run_in_threadpool(_put, service, body, more, client_of(request))
    job = await service.wait(request, id)

    def pictures() -> list[dict[str, str]]:
        texts = [each.parameters for each in service.store.pictures(job.id)]
        files = service.files_of(job)
        service.handed_over(job)
        return [
            {"b64_json": base64_of(file), "revised_prompt": body.prompt} for file, _ in zip(files, texts, strict=True)
        ]

    data = await run_in_threadpool(pictures)
    service.seconds += time.monotonic() - began
    return Json({"created": int(time.time()), "output_format": body.output_format, "data": data})


def _put(service: Service, body: Generation, more: dict[str, Any], client: str) -> str:
    check_text(body.model_dump())
    if body.response_format == "url":
        raise RequestError("response_format: pictures come in the answer, as b64_json", 400)
    if body.background == "transparent":
        raise RequestError("background: pictures cannot be transparent", 400)
    if body.stream:
        raise RequestError("stream: pictures come in the answer, and not one after the other", 400)
    options = options_of(service)
    name = options["sd_model_checkpoint"] if (body.model or "") in USUAL_MODELS else str(body.model)
    try:
        listed = service.models.find(str(name)) if name else service.models.first()
        sizes = _size(body.size or "auto", more.get("image"))
        settings = Settings.of(prompt=body.prompt, batches=body.n or 1, **sizes, **more)
    except ModelError as problem:
        raise RequestError(f"model: {problem}", 404) from None
    except SettingError as problem:
        raise RequestError(str(problem), 400) from None
    model = f"{listed.file.name}{listed.file.path.suffix}"
    quality = max(1, 100 if body.output_compression is None else body.output_compression)
    kind = "jpg" if body.output_format == "jpeg" else body.output_format or "png"
    order = Order(with_seeds(settings), model, None, kind, quality, look=look_of(options))
    asked = {"prompt": body.prompt, "n": body.n, "size": body.size, "user": body.user}
    return service.add(order, f"{client} {(body.user or '')[:100]}".strip(), "openai", asked)


def _size(text: str, picture: Image.Image | None) -> dict[str, int]:
    """Width and height; the model's own, or the picture's, for auto."""
    if text == "auto":
        return {}
    match = SIZE.fullmatch(text)
    if match is None:
        raise RequestError(f"size: {text[:40]!r} is neither auto nor such as 512x768", 400)
    return {"width": int(match[1]) // 8 * 8, "height": int(match[2]) // 8 * 8}
