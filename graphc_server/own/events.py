"""`/graphc/v1/events`: what happens to jobs, as server-sent events, or over a WebSocket at the same address; and by asking again
and again at `/graphc/v1/progress` and `/graphc/v1/jobs/ID/preview`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, WebSocket
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.events import KINDS, Channel, Event, Kind
from graphc_server.pictures import MEDIA, base64_of
from graphc_server.sdapi.painting import Served
from graphc_server.service import Service

router = APIRouter(prefix="/graphc/v1")
QUIET = 15.0
"""Seconds after which something is sent though nothing happened, so that whatever lies between keeps the connection."""

Job = Annotated[str | None, Query(description="Of this job alone.", max_length=100)]
Kinds = Annotated[list[Kind] | None, Query(alias="kind", description="Of these kinds alone; may be repeated.")]


def as_json(event: Event) -> dict[str, Any]:
    """An event as it is sent. A preview is a data URI."""
    said = {"kind": event.kind, "job": event.job, **event.said}
    if event.preview:
        said["picture"] = f"data:{event.said['type']};base64,{base64_of(event.preview)}"
    return said


def as_it_is(service: Service) -> list[Event]:
    """Where things are, as the events that somebody would have heard."""
    waiting = [Event("job", id, {"state": "waiting", "error": ""}) for id in service.store.waiting()]
    found = []
    for id, turn in list(service.painter.turns.items()):
        found += [Event("job", id, {"state": "painting", "error": ""}), Event("progress", id, turn.said())]
        preview = turn.preview
        if preview is not None:
            said = {"number": turn.previews, "type": MEDIA[turn.order.look.kind]}
            found.append(Event("preview", id, said, preview))
    return [*found, *waiting]


def of_one(service: Service, job: str) -> list[Event]:
    """The same for one job, also if it is over."""
    found = [event for event in as_it_is(service) if event.job == job]
    ended = None if found else service.store.job(job)
    return [Event("job", job, {"state": ended.state, "error": ended.error})] if ended else found


def wanted(job: str | None, kinds: list[Kind] | None) -> Callable[[Event], bool]:
    """True if somebody who asks for this wants an event."""
    some = kinds or KINDS
    return lambda event: event.kind in some and job in (None, event.job)


async def told(service: Service, job: str | None, kinds: list[Kind] | None) -> AsyncIterator[list[Event]]:
    """Nothing, as soon as all is heard; how things are, then what happens; nothing now and then, to keep the connection."""
    with Channel(service.painter.announcer, wanted(job, kinds)) as channel:
        yield []
        now = as_it_is if job is None else lambda service: of_one(service, job)
        for event in await run_in_threadpool(now, service):
            channel.put(event)
        while not service.painter.closing and (found := await channel.next(QUIET)) is not None:
            yield found


STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events, each JSON in a `data` line.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get("/events", responses=STREAM, response_class=StreamingResponse)
async def events(service: Served, job: Job = None, kinds: Kinds = None) -> StreamingResponse:
    """What happens to jobs, from now on, as server-sent events; first, where the queue and the job at hand are. The same comes
    over a WebSocket at this address, a message for each event."""

    async def lines() -> AsyncIterator[str]:
        async for found in told(service, job, kinds):
            sent = (f"event: {each.kind}\ndata: {json.dumps(as_json(each))}\n\n" for each in found)
            yield "".join(sent) or "retry: 2000\n\n"

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)


@router.websocket("/events")
async def socket(service: Served, websocket: WebSocket, job: Job = None, kinds: Kinds = None) -> None:
    """The same over a WebSocket. What a client sends is not looked at."""
    await websocket.accept()

    async def gone() -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                await websocket.receive()

    async def send() -> None:
        async for found in told(service, job, kinds):
            for each in found:
                await websocket.send_json(as_json(each))
        await websocket.close(1001)

    both = [asyncio.ensure_future(each) for each in (gone(), send())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)


@router.get("/progress")
def progress(service: Served, kinds: Kinds = None) -> Json:
    """How things are, as a list of the events that `/graphc/v1/events` begins with; previews if they are asked for."""
    some: list[Kind] = kinds or ["job", "progress", "picture"]
    return Json([as_json(event) for event in as_it_is(service) if event.kind in some])


@router.get("/jobs/{id}/preview", responses={200: {"content": {"image/*": {}}}}, response_class=Response)
def preview(service: Served, id: str) -> Response:
    """The last preview of a job at hand. 404 if there is none."""
    turn = service.painter.turns.get(id)
    if turn is None or turn.preview is None:
        raise RequestError("there is no preview of such a job", 404)
    headers = {"Cache-Control": "no-store", "X-Preview": str(turn.previews)}
    return Response(turn.preview, media_type=MEDIA[turn.order.look.kind], headers=headers)
