"""What Krita AI Diffusion asks besides ComfyUI's own requests: pictures by name, what models are, languages (`/api/etn/…`).

Source: Acly's comfyui-tooling-nodes, api.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import graphc
from graphc_server.answers import Json
from graphc_server.comfyui.library import FOLDERS
from graphc_server.comfyui.nodes.tooling import in_english
from graphc_server.comfyui.routes import Body, Made
from graphc_server.errors import RequestError
from graphc_server.pictures import opened

router = APIRouter(prefix="/api/etn")

UPLOAD = re.compile(r"[\w\-][\w\-. ]{0,200}\.(?:safetensors|sft)", re.ASCII | re.IGNORECASE)


@router.get("/model_info")
def checkpoints(graphs: Made, offset: int = 0, limit: int | None = None) -> Json:
    """What the checkpoints are."""
    return model_info(graphs, "checkpoints", offset, limit)


@router.get("/model_info/{folder}")
def model_info(
    graphs: Made, folder: str, offset: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int | None, Query(ge=0)] = None
) -> Json:
    """What the files of a folder are, so many from one on."""
    if folder not in FOLDERS:
        return _wrong(f"Invalid folder path, must be one of {', '.join(FOLDERS)}")
    names = graphs.library.names(folder)
    part = names[offset:] if limit is None else names[offset : offset + limit]
    found: dict[str, Any] = {name: graphs.inspected(folder, name) for name in part}
    if limit is not None:
        found["_meta"] = {"offset": offset, "count": len(part), "total": len(names)}
    return Json(found)


def _wrong(said: str, status: int = 400) -> Json:
    return Json({"error": said}, status)


@router.get("/languages")
def languages() -> Json:
    """The languages that prompts are translated from: none."""
    return Json([])


@router.get("/translate/{language}/{text:path}")
def translate(language: str, text: str) -> Json:
    """A text in English, if it is in English already."""
    try:
        return Json(in_english(f"lang:{language} {text}"))
    except graphc.GraphcError as problem:
        return _wrong(str(problem))


@router.get("/image/{id}", response_class=Response)
def picture(graphs: Made, id: str) -> Response:
    """A picture that a graph handed back, or that was sent."""
    content = graphs.files.handed.get(id)
    if content is None:
        return _wrong("Image not found", 404)
    kind = (
        "image/png" if content.startswith(b"\x89PNG") else "image/jpeg" if content.startswith(b"\xff\xd8") else UNKNOWN
    )
    return Response(content, media_type=kind, headers={"X-Content-Type-Options": "nosniff"})


UNKNOWN = "application/octet-stream"
PICTURE: Mapping[str, Any] = {"requestBody": {"content": {UNKNOWN: {"schema": {"type": "string", "format": "binary"}}}}}


@router.put("/image/{id}", openapi_extra=dict(PICTURE))
async def put_picture(graphs: Made, request: Request, id: str) -> Json:
    """Hand a picture to graphs, under a name; what is there already stays."""
    content, handed = await request.body(), graphs.files.handed

    def kept() -> Json:
        if handed.has(id):
            return Json({"status": "cached"})
        opened(content, "image", graphs.service.limits.pixels)
        handed.put(id, content)
        return Json({"status": "success"}, 201)

    return await run_in_threadpool(kept)


@router.put("/upload/{folder}/{filename}", openapi_extra=dict(PICTURE))
async def upload(graphs: Made, request: Request, folder: str, filename: str) -> Json:
    """Put a LoRA into the folder of those. Its name has no folder, and what is there already stays."""
    if folder != "loras":
        return _wrong("Invalid folder path, must be one of loras")
    if not UPLOAD.fullmatch(filename) or ".." in filename:
        return _wrong("Invalid filename: a name of a safetensors file")
    if filename in graphs.library.names(folder):
        return Json({"status": "cached"})
    place = graphs.service.models.folders.place(FOLDERS[folder])
    if place is None:
        return _wrong("the server's folders of models have none for LoRAs")
    with graphc.replacing(place / filename) as unfinished:
        with unfinished.open("wb") as file:
            async for part in request.stream():
                await run_in_threadpool(file.write, part)
        await run_in_threadpool(_check_safetensors, unfinished)
    graphs.service.models.refresh()
    return Json({"status": "success"}, 201)


def _check_safetensors(path: Path) -> None:
    try:
        graphc.open_checkpoint(path)
    except graphc.GraphcError as problem:
        raise RequestError(f"the file cannot be read: {problem}", 400) from None


@router.post("/workflow/subscribe")
@router.post("/workflow/unsubscribe")
def subscribe(body: Body) -> Json:
    """Who asks will be told of graphs that others publish. Here nobody can, so there is nothing to be told."""
    if not isinstance(body.get("client_id"), str):
        return _wrong("'client_id'")
    return Json({"status": "success"})
