"""The routes that make no pictures from words: enlarging, and what a picture says of itself."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from PIL import Image
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from graphc_images.pictures.files import read_notes
from graphc_images.pictures.parameters import read_parameters
from graphc_images.upscalers import made_larger
from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.pictures import base64_of, decoded, encoded
from graphc_server.sdapi.painting import Served
from graphc_server.sdapi.requests import check_text, options_of
from graphc_server.service import Service

router = APIRouter(prefix="/sdapi/v1")
NONE = "None"
REFUSED = ("gfpgan_visibility", "codeformer_visibility")


class Enlarging(BaseModel):
    """How pictures are made larger, under A1111's names."""

    model_config = ConfigDict(allow_inf_nan=False)
    resize_mode: int = 0
    show_extras_results: bool = True
    gfpgan_visibility: float = 0
    codeformer_visibility: float = 0
    codeformer_weight: float = 0
    upscaling_resize: float = 2
    upscaling_resize_w: int = 512
    upscaling_resize_h: int = 512
    upscaling_crop: bool = True
    upscaler_1: str = NONE
    upscaler_2: str = NONE
    extras_upscaler_2_visibility: float = 0
    upscale_first: bool = False


class Single(Enlarging):
    """One picture."""

    image: str = ""


class Named(BaseModel):
    """A picture of several."""

    data: str
    name: str = ""


class Several(Enlarging):
    """Several pictures."""

    imageList: list[Named]


def enlarged(picture: Image.Image, asked: Enlarging, service: Service) -> Image.Image:
    """The picture at the size that is asked for; by two upscalers it is a mixture. Raises RequestError that names the field."""
    if asked.upscaler_1 == NONE:
        return picture
    options = options_of(service)
    tile, overlap = int(options["ESRGAN_tile"]), int(options["ESRGAN_tile_overlap"])
    ways = [service.models.enlargers(name, tile, overlap) for name in _names(asked)]
    size = None if asked.resize_mode == 0 else _size(picture, asked)
    return made_larger(picture, ways, asked.upscaling_resize, size, asked.extras_upscaler_2_visibility)


def check(picture: Image.Image, asked: Enlarging, service: Service) -> None:
    """Raises RequestError that names the field, for what cannot be done."""
    for name in REFUSED:
        if getattr(asked, name):
            raise RequestError(f"{name}: there is no model that restores faces")
    if not 0 <= asked.extras_upscaler_2_visibility <= 1:
        raise RequestError("extras_upscaler_2_visibility: it is a number from 0 to 1")
    if asked.resize_mode not in (0, 1):
        raise RequestError("resize_mode: it is 0, by a factor, or 1, to a size")
    if not 0 < asked.upscaling_resize <= 64:
        raise RequestError("upscaling_resize: it is a factor above 0, and at most 64")
    known = service.models.upscalers()
    for name in ("upscaler_1", "upscaler_2"):
        if getattr(asked, name) not in known:
            raise RequestError(f"{name}: there is no {getattr(asked, name)[:60]!a}; there are {', '.join(known)}")
    width, height = _size(picture, asked)
    if min(width, height) < 1 or width * height > service.limits.pixels:
        most = service.limits.pixels
        raise RequestError(f"upscaling_resize: {width} x {height} pixels are asked for, and the server allows {most}")


def _names(asked: Enlarging) -> list[str]:
    second = asked.upscaler_2 != NONE and asked.extras_upscaler_2_visibility > 0
    return [asked.upscaler_1, *([asked.upscaler_2] if second else [])]


def _size(picture: Image.Image, asked: Enlarging) -> tuple[int, int]:
    if asked.resize_mode == 0:
        return int(picture.width * asked.upscaling_resize), int(picture.height * asked.upscaling_resize)
    wide, high = asked.upscaling_resize_w, asked.upscaling_resize_h
    if asked.upscaling_crop:
        return wide, high
    factor = max(wide / picture.width, high / picture.height)
    return int(picture.width * factor), int(picture.height * factor)


def _picture(service: Service, text: str, field: str) -> Image.Image:
    found = decoded(text, field, service.limits.pixels, service.setup.fetching.fetch)
    return found if found.mode in ("RGB", "RGBA") else found.convert("RGB")


def _answered(service: Service, picture: Image.Image) -> str:
    options = options_of(service)
    return base64_of(encoded(picture, options["samples_format"], max(1, min(int(options["jpeg_quality"]), 100))))


async def _all(service: Service, texts: dict[str, str], asked: Enlarging) -> list[str]:
    """The pictures of these fields, larger. The painting thread makes them, between two jobs."""

    def read() -> list[Image.Image]:
        pictures = [_picture(service, text, field) for field, text in texts.items()]
        for picture in pictures:
            check(picture, asked, service)
        return pictures

    def make() -> list[Image.Image]:
        return [enlarged(picture, asked, service) for picture in pictures]

    pictures = await run_in_threadpool(read)
    made = await asyncio.wrap_future(service.painter.between(make))
    return await run_in_threadpool(lambda: [_answered(service, each) for each in made])


@router.post("/extra-single-image")
async def extra_single_image(service: Served, body: Single) -> Json:
    """Make a picture larger."""
    return Json({"html_info": "", "image": (await _all(service, {"image": body.image}, body))[0]})


@router.post("/extra-batch-images")
async def extra_batch_images(service: Served, body: Several) -> Json:
    """Make several pictures larger."""
    if len(body.imageList) > service.limits.pictures:
        raise RequestError(f"imageList: the server allows {service.limits.pictures} pictures")
    texts = {f"imageList[{place}]": each.data for place, each in enumerate(body.imageList)}
    return Json({"html_info": "", "images": await _all(service, texts, body)})


class Noted(BaseModel):
    """A picture of which something is to be known."""

    image: str = ""


@router.post("/png-info")
def png_info(service: Served, body: Noted) -> Json:
    """How a picture was made, as it says."""
    if not body.image.strip():
        return Json({"info": "", "items": {}, "parameters": {}})
    picture = decoded(body.image, "image", service.limits.pixels, service.setup.fetching.fetch)
    notes = read_notes(picture)
    items: dict[str, Any] = {str(name): each for name, each in picture.info.items() if isinstance(each, str)}
    items |= {"parameters": notes.parameters} if notes.parameters else {}
    if not notes.parameters:
        return Json({"info": "", "items": items, "parameters": {}})
    read = read_parameters(notes.parameters).complete()
    size = read.size() or ()
    parameters: dict[str, Any] = {"Prompt": read.prompt, "Negative prompt": read.negative_prompt, **read.settings}
    parameters |= {f"Size-{number}": side for number, side in enumerate(size, 1)}
    return Json({"info": notes.parameters, "items": items, "parameters": parameters})


class Interrogation(BaseModel):
    """A picture to be put into words."""

    image: str = ""
    model: str = "clip"


@router.post("/interrogate")
def interrogate(service: Served, body: Interrogation) -> Json:
    """There is no model that puts a picture into words: what A1111 answers for a model that it does not know."""
    check_text(body.model)
    if len(body.image) < 64:
        raise RequestError("Image not found", 404)
    raise RequestError(f"model: Model not found: {body.model[:60]!r}", 404)
