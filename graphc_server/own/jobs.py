"""`/graphc/v1/jobs`: the queue. A request is put into it and answered at once; how it goes is told by events."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.own.asking import Asked, order_of
from graphc_server.own.strict import Strict
from graphc_server.sdapi.painting import Served
from graphc_server.service import Service, client_of
from graphc_server.store import Job

router = APIRouter(prefix="/graphc/v1/jobs")
SHOWN = 300
"""Letters of a prompt in the list."""


@router.post("", status_code=202)
def add(service: Served, request: Request, body: Asked) -> Json:
    """Put a request for pictures into the queue."""
    id = service.add(order_of(service, body), client_of(request), "graphc", {})
    return Json({"id": id}, 202)


@router.get("")
def jobs(service: Served, request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 200) -> Json:
    """The job at hand, and those that wait, in the order in which they will have their turns."""
    at_hand = {id: turn.job for id, turn in service.painter.turns.copy().items()}
    found = [*at_hand.values(), *(job for job in service.store.upcoming() if job.id not in at_hand)]
    client = client_of(request)
    shown = [_listed(job, client, at_hand=job.id in at_hand) for job in found[:limit]]
    return Json({"jobs": shown, "count": len(found)})


def _listed(job: Job, client: str, *, at_hand: bool) -> dict[str, Any]:
    settings: Any = job.work.get("settings") if isinstance(job.work.get("settings"), dict) else {}
    return {
        "id": job.id,
        "state": "painting" if at_hand else job.state,
        "mine": job.client == client,
        "protocol": job.protocol,
        "model": job.work.get("model"),
        "prompt": str(settings.get("prompt", ""))[:SHOWN],
        "pictures": settings.get("batches", 1) * settings.get("batch_size", 1),
        "seconds_waiting": round(time.time() - job.created, 1),
    }


@router.get("/{id}")
def one(service: Served, request: Request, id: str) -> Json:
    """A job: where it is, and its pictures as far as they are finished."""
    job = job_of(service, id)
    turn = service.painter.turns.get(id)
    pictures = [
        {"place": place, "seed": each.seed, "url": f"/graphc/v1/pictures/{id}/{place}/file"}
        for place, each in enumerate(service.store.pictures(id))
    ]
    said = turn.said() if turn is not None else None
    ended = {"error": job.error, "remarks": job.remarks}
    return Json(
        {**_listed(job, client_of(request), at_hand=turn is not None), **ended, "progress": said, "pictures": pictures}
    )


@router.delete("/{id}")
def cancel(service: Served, id: str) -> Json:
    """Take a job out of the queue, or end it after this step, without its pictures unless they are finished."""
    job_of(service, id)
    if not service.painter.cancel(id):
        raise RequestError("the job is over already", 409)
    return Json({"id": id, "state": "cancelled"})


@router.post("/{id}/{ask}")
def end(service: Served, id: str, ask: Literal["interrupt", "skip"]) -> Json:
    """End the job at hand after this step with what there is, or its batch alone (skip)."""
    turn = service.painter.turns.get(id)
    if turn is None:
        raise RequestError("it is not this job that is being painted", 409)
    turn.want(ask)
    return Json({"id": id})


class Place(Strict):
    """Among the client's own jobs that wait, from 0."""

    place: Annotated[int, Field(ge=0, le=100_000)]


@router.put("/{id}/place")
def put_at(service: Served, id: str, body: Place) -> Json:
    """Have a job that waits sooner or later than its client's others. Turns of other clients stay."""
    job_of(service, id)
    if not service.store.put_at(id, body.place):
        raise RequestError("the job does not wait", 409)
    service.painter.announcer.tell("job", id, {"state": "waiting", "error": ""})
    return Json({"id": id, "place": body.place})


def job_of(service: Service, id: str) -> Job:
    """The job of this name. Raises RequestError if there is none."""
    job = service.store.job(id) if id.isascii() else None
    if job is None:
        raise RequestError("there is no such job", 404)
    return job
