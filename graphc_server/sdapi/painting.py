"""The routes that make pictures, say where they are, and end them."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from graphc_server.answers import Json
from graphc_server.pictures import MEDIA, base64_of
from graphc_server.sdapi import replies
from graphc_server.sdapi.fields import IMG2IMG, TXT2IMG
from graphc_server.sdapi.requests import Body, Img2Img, Txt2Img, wanted
from graphc_server.service import Service, client_of

router = APIRouter()


async def service_of(connection: HTTPConnection) -> Service:
    """The server's state. Were it no coroutine, FastAPI would have a thread ask for it, for each request."""
    found: Service = connection.app.state.service
    return found


Served = Annotated[Service, Depends(service_of)]


async def _made(service: Service, request: Request, body: Body, fields: Any) -> Json:
    began = time.monotonic()

    def put() -> tuple[str, Any]:
        asked = wanted(service, body, fields)
        id = service.add(asked.order, client_of(request), "sdapi", asked.echo, asked.task)
        if asked.lasting:
            service.store.set_options(asked.lasting)
        return id, asked

    id, asked = await run_in_threadpool(put)
    job = await service.wait(request, id)
    answer = await run_in_threadpool(replies.painted, service, job, asked.styles, asked.send)
    service.seconds += time.monotonic() - began
    return Json(answer)


@router.post("/sdapi/v1/txt2img")
async def txt2img(service: Served, request: Request, body: Txt2Img) -> Json:  # type: ignore[valid-type]
    """Pictures from words."""
    return await _made(service, request, body, TXT2IMG)


@router.post("/sdapi/v1/img2img")
async def img2img(service: Served, request: Request, body: Img2Img) -> Json:  # type: ignore[valid-type]
    """Pictures from a picture."""
    return await _made(service, request, body, IMG2IMG)


@router.get("/sdapi/v1/progress")
async def progress(service: Served, request: Request, skip_current_image: Annotated[bool, Query()] = False) -> Json:
    """Where the client's picture is, or else the one at hand."""
    return Json(replies.progress(service.painter.turn_of(client_of(request)), picture=not skip_current_image))


@router.post("/sdapi/v1/interrupt")
async def interrupt(service: Served, request: Request) -> Json:
    """End the client's request after this step, or else the one at hand; it is answered with what there is."""
    return _asked(service, request, "interrupt")


@router.post("/sdapi/v1/skip")
async def skip(service: Served, request: Request) -> Json:
    """End the batch at hand after this step, and go on with the next."""
    return _asked(service, request, "skip")


def _asked(service: Service, request: Request, ask: Any) -> Json:
    turn = service.painter.turn_of(client_of(request))
    if turn is not None:
        turn.want(ask)
    return Json({} if ask == "interrupt" else None)


@router.get("/internal/ping")
async def ping() -> Json:
    """True if there is anybody."""
    return Json({})


class Task(BaseModel):
    """A question after a task."""

    id_task: str | None = None
    id_live_preview: int = -1
    live_preview: bool = True


@router.post("/internal/progress")
def task_progress(service: Served, body: Task) -> Json:
    """Where a task is: in the queue, at hand, or over."""
    job = service.store.job(body.id_task) if body.id_task and body.id_task.isascii() else None
    turn = None if job is None else service.painter.turns.get(job.id)
    active = turn is not None
    queued = job is not None and job.state == "waiting"
    answer: dict[str, Any] = {
        "active": active,
        "queued": queued,
        "completed": job is not None and not active and not queued,
        "progress": None,
        "eta": None,
        "live_preview": None,
        "id_live_preview": body.id_live_preview,
        "textinfo": "In queue..." if queued else "Waiting..." if job is None else None,
    }
    if queued and job is not None:
        waiting = service.store.waiting()
        place = waiting.index(job.id) + 1 if job.id in waiting else 1
        answer["textinfo"] = f"In queue: {place}/{len(waiting)}"
    if turn is not None:
        answer |= {"progress": replies.done(turn), "eta": replies.eta(turn)}
        if body.live_preview and turn.preview and turn.previews != body.id_live_preview:
            media = MEDIA[turn.order.look.kind]
            answer["live_preview"] = f"data:{media};base64,{base64_of(turn.preview)}"
            answer["id_live_preview"] = turn.previews
    return Json(answer)


@router.get("/internal/pending-tasks")
def pending(service: Served) -> Json:
    """The tasks that wait."""
    tasks = service.store.waiting()
    return Json({"size": len(tasks), "tasks": tasks})
