"""`/graphc/v1/plots`: the same picture with other values of settings (X/Y/Z). Each cell is a job of its own: other clients have
their turns in between, and a server that was killed goes on with the cells that are missing."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import product
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from PIL import Image
from pydantic import Field
from starlette.responses import Response

from graphc_images import Settings
from graphc_images.pictures.grids import labelled_grid
from graphc_images.plots import Axis, axis_of, changed
from graphc_images.resolving import resolved
from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.orders import Order
from graphc_server.own.asking import Asked, model_of, order_of
from graphc_server.own.strict import Strict
from graphc_server.pictures import encoded
from graphc_server.sdapi.painting import Served
from graphc_server.service import Service, client_of

router = APIRouter(prefix="/graphc/v1/plots")


class AxisAsked(Strict):
    """An axis by A1111's name, and its values: `10, 20`, `1-5 (+2)`, `1-10 [5]`, `"a, b", c`."""

    name: Annotated[str, Field(max_length=100)] = "Nothing"
    values: Annotated[str, Field(max_length=10_000)] = ""


class PlotAsked(Strict):
    """A picture, and what is changed of it along each axis."""

    picture: Asked
    x: AxisAsked = AxisAsked()
    y: AxisAsked = AxisAsked()
    z: AxisAsked = AxisAsked()


@router.post("", status_code=202)
def add(service: Served, request: Request, body: PlotAsked) -> Json:
    """Put a plot's pictures into the queue: all of them, or none if one cannot be done."""
    order = order_of(service, body.picture)
    axes = [axis_of(each.name, each.values) for each in (body.x, body.y, body.z)]
    cells = _cells(service, order, axes)
    id = uuid.uuid4().hex
    jobs = [f"{id}-{place}" for place in range(len(cells))]
    said = {"axes": [{"name": each.name, "labels": list(each.labels)} for each in axes], "jobs": jobs}
    service.store.add_plot(id, said)
    client = client_of(request)
    for job, settings in zip(jobs, cells, strict=True):
        service.add(replace(order, settings=settings), client, "graphc", {}, job)
    return Json({"id": id, "jobs": jobs}, 202)


def _cells(service: Service, order: Order, axes: list[Axis]) -> list[Settings]:
    """The settings of all cells, X fastest. Raises RequestError and SettingError for what cannot be done."""
    x, y, z = (each.changes for each in axes)
    count = len(x) * len(y) * len(z)
    room = service.limits.waiting - service.store.counts().get("waiting", 0)
    if count > min(service.limits.pictures, room):
        status = 422 if count > service.limits.pictures else 429
        most = min(service.limits.pictures, max(room, 0))
        raise RequestError(f"pictures: the plot has {count}, and the server allows {most} now", status)
    architecture = service.models.architecture(model_of(service, order.model))
    one = replace(order.settings, batches=1, batch_size=1)
    cells = [changed(one, (in_x, in_y, in_z)) for in_z, in_y, in_x in product(z, y, x)]
    for each in cells:
        service.limits.check(each)
        resolved(each, architecture)
    return cells


@router.get("/{id}")
def one(service: Served, id: str) -> Json:
    """A plot: its axes, and where each cell is."""
    said = _plot(service, id)
    return Json({"id": id, "axes": said["axes"], "cells": [_cell(service, job) for job in said["jobs"]]})


def _cell(service: Service, id: str) -> dict[str, Any]:
    job, kept = service.store.job(id), service.store.kept(id, 0)
    return {
        "job": id,
        "state": job.state if job else "cancelled",
        "error": job.error if job else "",
        "address": f"/graphc/v1/pictures/{id}/0" if kept else None,
    }


@router.get("/{id}/grid", responses={200: {"content": {"image/png": {}}}}, response_class=Response)
def grid(service: Served, id: str, z: Annotated[int, Query(ge=0, le=10_000)] = 0) -> Response:
    """The finished cells as one picture with a legend, for a value of Z. Cells that are not finished are empty."""
    said = _plot(service, id)
    across, down, deep = (each["labels"] for each in said["axes"])
    if z >= len(deep):
        raise RequestError(f"z: there are {len(deep)} values", 404)
    size = len(across) * len(down)
    found = [_picture(service, job) for job in said["jobs"][z * size : (z + 1) * size]]
    first = next((each for each in found if each is not None), None)
    if first is None:
        raise RequestError("none of its pictures is finished", 404)
    most = sum(each.width * each.height for each in found if each is not None)
    if most > 16 * service.limits.pixels:
        raise RequestError(f"pixels: the grid has {most}", 413)
    empty = Image.new("RGB", first.size, "#ffffff")
    return Response(encoded(labelled_grid([each or empty for each in found], across, down)), media_type="image/png")


def _picture(service: Service, job: str) -> Image.Image | None:
    kept = service.store.kept(job, 0)
    if kept is None:
        return None
    try:
        with Image.open(service.painter.pictures / kept.file, formats=("PNG", "JPEG", "WEBP")) as picture:
            return picture.convert("RGB")
    except OSError:
        return None


def _plot(service: Service, id: str) -> dict[str, Any]:
    said = service.store.plot(id) if id.isascii() else None
    if said is None:
        raise RequestError("there is no such plot", 404)
    return said
