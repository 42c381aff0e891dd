"""`/graphc/v1/pictures`: what was painted and kept, with how; `/graphc/v1/notes`: what a picture that is sent says of itself.

A picture is named by its job and its place in it; its file's name comes from the database, never from a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from PIL import Image
from starlette.responses import FileResponse, Response

from graphc_images import ModelError
from graphc_images.describing import settings_in
from graphc_images.pictures.files import Notes, read_notes
from graphc_images.pictures.parameters import read_parameters
from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.own.parameters import BY_NAME
from graphc_server.own.strict import Strict
from graphc_server.pictures import MEDIA, decoded, encoded
from graphc_server.sdapi.painting import Served
from graphc_server.service import Service
from graphc_server.store import Kept

router = APIRouter(prefix="/graphc/v1")
SMALL = 384
"""The longer side of a small picture."""

LASTING = {"Cache-Control": "private, max-age=31536000, immutable"}
PICTURE: dict[int | str, dict[str, Any]] = {200: {"content": {"image/*": {}}}}


@router.get("/pictures")
def pictures(
    service: Served,
    search: Annotated[str, Query(max_length=1000, description="Words that are all in the text.")] = "",
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the answer before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 60,
) -> Json:
    """Pictures that were kept, the newest first. `next` is there if there may be more."""
    found = service.store.gallery(search.split(), before, limit)
    return Json(
        {"pictures": [_shown(each) for each in found], "next": found[-1].number if len(found) == limit else None}
    )


def _shown(kept: Kept) -> dict[str, Any]:
    address = f"/graphc/v1/pictures/{kept.job}/{kept.place}"
    said = read_parameters(kept.parameters)
    return {
        "job": kept.job, "place": kept.place, "number": kept.number, "seed": kept.seed, "created": kept.started,
        "prompt": said.prompt, "model": said.settings.get("Model", ""), "address": address, "url": f"{address}/file",
        "small": f"{address}/small",
    }  # fmt: skip


@router.get("/pictures/{job}/{place}")
def one(service: Served, job: str, place: int) -> Json:
    """A picture, with how it was made: A1111's text, its pairs, and the settings by graphc's names."""
    kept, _ = _file(service, job, place)
    return Json({**_shown(kept), **_said(service, Notes(kept.parameters))})


@router.get("/pictures/{job}/{place}/file", responses=PICTURE, response_class=FileResponse)
def file(service: Served, job: str, place: int) -> FileResponse:
    """The picture as it was written."""
    _, path = _file(service, job, place)
    return FileResponse(path, media_type=MEDIA.get(path.suffix[1:]), headers=LASTING)


@router.get("/pictures/{job}/{place}/small", responses=PICTURE, response_class=Response)
def small(service: Served, job: str, place: int) -> Response:
    """The picture, small."""
    _, path = _file(service, job, place)
    picture: Image.Image = Image.open(path, formats=("PNG", "JPEG", "WEBP"))
    picture.thumbnail((SMALL, SMALL))
    return Response(encoded(picture, "webp"), media_type="image/webp", headers=LASTING)


@router.delete("/pictures/{job}/{place}")
def remove(service: Served, job: str, place: int) -> Json:
    """Remove a picture and its file."""
    kept = service.store.kept(*_named(job, place))
    if kept is None:
        raise RequestError("there is no such picture", 404)
    _path(service, kept).unlink(missing_ok=True)
    service.store.remove_picture(job, place)
    return Json({"job": job, "place": place})


class Noted(Strict):
    """A picture as a data URI."""

    picture: str


@router.post("/notes")
def notes(service: Served, body: Noted) -> Json:
    """What a picture says of how it was made: A1111's text or ComfyUI's graph, also hidden in its lowest bits."""
    picture = decoded(body.picture, "picture", service.limits.pixels, service.setup.fetching.fetch)
    return Json(_said(service, read_notes(picture)))


def _said(service: Service, notes: Notes) -> dict[str, Any]:
    """The text, its pairs, and what of it is settings here. `model` is one that is here, if it names one."""
    read = read_parameters(notes.parameters) if notes.parameters else None
    labels: Mapping[str, str] = read.settings if read else {}
    settings = {name: _plain(value) for name, value in settings_in(notes).items() if _restored(name)}
    settings = {name: value for name, value in settings.items() if value is not None}
    return {"text": notes.parameters, "labels": dict(labels), "settings": settings, "model": _model(service, labels)}


def _restored(name: str) -> bool:
    """True if a text says all of a setting: it does not have the pictures of some."""
    return name in BY_NAME and BY_NAME[name].kind not in ("picture", "pictures", "controls")


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _model(service: Service, labels: Mapping[str, str]) -> str | None:
    """The model that a text names, by a hash that is known already, or by its name."""
    hashed = labels.get("Model hash", "").lower()
    for each in service.models.listed():
        if hashed and each.sha256.startswith(hashed):
            return each.file.name
    try:
        return service.models.folders.find("checkpoint", labels["Model"]).stem if labels.get("Model") else None
    except ModelError:
        return None


def _named(job: str, place: int) -> tuple[str, int]:
    """Raises RequestError for names that there cannot be."""
    if not (job.isascii() and 0 <= place < 2**31):
        raise RequestError("there is no such picture", 404)
    return job, place


def _file(service: Service, job: str, place: int) -> tuple[Kept, Path]:
    """The picture, and its file. Raises RequestError if there is none."""
    kept = service.store.kept(*_named(job, place))
    if kept is None:
        raise RequestError("there is no such picture", 404)
    path = _path(service, kept)
    if not path.is_file():
        raise RequestError("the picture's file is gone", 410)
    return kept, path


def _path(service: Service, kept: Kept) -> Path:
    return service.painter.pictures / Path(kept.file).name
