"""Graphs over HTTP: `/prompt`, `/queue`, `/history`, `/interrupt`, `/free`, `/api/jobs`, and events over `/ws`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, WebSocket
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from graphc_server.answers import Json
from graphc_server.comfyui import history
from graphc_server.comfyui.checking import check, problem
from graphc_server.comfyui.making import PROTOCOL, Graphs, GraphTurn, work_of
from graphc_server.errors import RequestError
from graphc_server.service import client_of
from graphc_server.store import ENDED, Job

router = APIRouter()
NAME = re.compile(r"[\w.:-]{1,100}", re.ASCII)
LARGEST_UPLOAD = "max_upload_size"


async def graphs_of(connection: HTTPConnection) -> Graphs:
    """What carries out graphs."""
    found: Graphs = connection.app.state.graphs
    return found


Made = Annotated[Graphs, Depends(graphs_of)]


def finite(text: str) -> float:
    """A number of JSON. Raises ValueError for one that is too large to be one."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text} is not a number")
    return found


async def body_of(request: Request) -> dict[str, Any]:
    """A JSON object, whatever the request calls it; none for an empty body. Raises RequestError."""
    content = await request.body()
    if not content.strip():
        return {}
    try:
        found = json.loads(content, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {str(error)[:200]}", 400) from None
    if not isinstance(found, dict):
        raise RequestError("the body is not a JSON object", 400)
    return found


Body = Annotated[dict[str, Any], Depends(body_of)]


@router.get("/prompt")
def queue_size(graphs: Made) -> Json:
    """How many jobs are in the queue."""
    return Json({"exec_info": {"queue_remaining": graphs.waiting()}})


@router.post("/prompt")
def put_graph(graphs: Made, request: Request, body: Body) -> Json:
    """Check a graph and put it into the queue; what is wrong is answered as ComfyUI does."""
    if "prompt" not in body:
        said = problem("no_prompt", "No prompt provided", "No prompt provided")
        return Json({"error": said, "node_errors": {}}, 400)
    wanted = body.get("partial_execution_targets")
    try:
        found = check(body["prompt"], graphs.library, wanted if isinstance(wanted, list) else None)
        if found.error is not None:
            return Json({"error": found.error, "node_errors": dict(found.node_errors)}, 400)
        id, extra = _named(body.get("prompt_id")), _extra(body)
        work = work_of(body["prompt"], extra, found.outputs)
        name = graphs.service.add_work(work, client_of(request), PROTOCOL, {}, id)
    except RequestError as error:
        return Json({"error": problem("invalid_request", str(error)), "node_errors": {}}, error.status)
    graphs.tell_status()
    job = graphs.service.store.job(name)
    return Json({"prompt_id": name, "number": job.number if job else 0, "node_errors": dict(found.node_errors)})


def _named(given: Any) -> str | None:
    if given is None or given == "":
        return None
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise RequestError("prompt_id: a name has letters, digits, and . : _ -", 400)
    return given


def _extra(body: dict[str, Any]) -> dict[str, Any]:
    """What was sent besides the graph."""
    extra = body.get("extra_data")
    found = dict(extra) if isinstance(extra, dict) else {}
    if isinstance(body.get("client_id"), str):
        found["client_id"] = body["client_id"]
    return found


@router.get("/queue")
def queue(graphs: Made) -> Json:
    """The graphs that are carried out and those that wait."""
    store = graphs.service.store
    running, pending = (
        [history.entry_of(job) for job in store.of_protocol(PROTOCOL, state)] for state in ("painting", "waiting")
    )
    return Json({"queue_running": running, "queue_pending": pending})


@router.post("/queue")
def change_queue(graphs: Made, body: Body) -> Response:
    """Take all, or some, of the graphs that wait out of the queue."""
    store = graphs.service.store
    waiting = {job.id for job in store.of_protocol(PROTOCOL, "waiting")}
    for id in waiting if body.get("clear") else _names(body.get("delete")):
        if id in waiting:
            graphs.service.painter.cancel(id)
    graphs.tell_status()
    return Response()


def _names(given: Any) -> list[str]:
    return [each for each in given if isinstance(each, str)] if isinstance(given, list) else []


@router.post("/interrupt")
def interrupt(graphs: Made, body: Body) -> Response:
    """End the graph that is carried out, after this step; with a `prompt_id`, only if it is that one."""
    for job in graphs.service.store.of_protocol(PROTOCOL, "painting"):
        if body.get("prompt_id") in (None, "", job.id):
            graphs.service.painter.cancel(job.id)
    return Response()


@router.post("/free")
def free(graphs: Made, body: Body) -> Response:
    """Give back the memory of models, and what the last graph made, before the next job."""
    if body.get("unload_models") or body.get("free_memory"):
        graphs.service.painter.between(lambda: graphs.free(bool(body.get("free_memory"))))
    return Response()


@router.get("/history")
def all_history(graphs: Made, max_items: int | None = None, offset: int = -1) -> Json:
    """What was carried out."""
    most = None if max_items is None else max(max_items, 0)
    return Json({job.id: history.history_of(job) for job in history.ended(graphs.service.store, most, offset)})


@router.get("/history/{id}")
def one_history(graphs: Made, id: str) -> Json:
    """A graph that was carried out; nothing if it was not."""
    job = _job(graphs, id)
    if job is None or job.state not in ENDED or job.started is None:
        return Json({})
    return Json({job.id: history.history_of(job)})


def _job(graphs: Graphs, id: str) -> Job | None:
    job = graphs.service.store.job(id) if NAME.fullmatch(id) else None
    return job if job is not None and job.protocol == PROTOCOL and job.work else None


@router.post("/history")
def forget(graphs: Made, body: Body) -> Response:
    """Forget all of it, or some; files stay."""
    store = graphs.service.store
    known = {job.id for job in store.of_protocol(PROTOCOL, *ENDED)}
    for id in known if body.get("clear") else _names(body.get("delete")):
        if id in known:
            store.forget(id)
    return Response()


def _whole(name: str, least: int) -> Callable[..., Awaitable[int | None]]:
    async def read(request: Request) -> int | None:
        given = request.query_params.get(name)
        if given is None or given == "":
            return None
        try:
            return max(int(given[:20]), least)
        except ValueError:
            raise RequestError(f"{name}: {given[:40]!r} is not a whole number", 400) from None

    return read


@router.get("/jobs")
def jobs(
    graphs: Made,
    limit: Annotated[int | None, Depends(_whole("limit", 1))],
    offset: Annotated[int | None, Depends(_whole("offset", 0))],
    status: str = "",
    workflow_id: str = "",
    sort_by: str = "created_at",
    sort_order: Annotated[str, Query(description="asc or desc.")] = "desc",
) -> Json:
    """All graphs: those that wait, are carried out, and were."""
    wanted = [each for each in status.lower().split(",") if each]
    known = set(history.STATES.values())
    if unknown := set(wanted) - known:
        raise RequestError(f"status: {min(unknown)[:40]!r} is none of {', '.join(sorted(known))}", 400)
    if sort_by not in ("created_at", "execution_duration") or sort_order not in ("asc", "desc"):
        raise RequestError("sort_by is created_at or execution_duration, and sort_order asc or desc", 400)
    states = [state for state, said in history.STATES.items() if not wanted or said in wanted]
    all_jobs = graphs.service.store.of_protocol(PROTOCOL, *states)  # type: ignore[arg-type]
    found = [history.summary_of(job) for job in all_jobs]
    found = [each for each in found if workflow_id in ("", each.get("workflow_id"))]
    found = history.sorted_by(found, sort_by, sort_order == "desc")
    first = offset or 0
    part = found[first:] if limit is None else found[first : first + limit]
    pages = {"offset": first, "limit": limit, "total": len(found), "has_more": first + len(part) < len(found)}
    return Json({"jobs": part, "pagination": pages})


@router.get("/jobs/{id}")
def one_job(graphs: Made, id: str) -> Json:
    """A graph, with what it made."""
    job = _job(graphs, id)
    if job is None:
        return Json({"error": "Job not found"}, 404)
    return Json(history.summary_of(job, whole=True))


def features_of(graphs: Graphs) -> dict[str, Any]:
    """What this server can do that not all can."""
    return {"supports_preview_metadata": True, LARGEST_UPLOAD: graphs.service.limits.body}


@router.get("/features")
def features(graphs: Made) -> Json:
    """What this server can do that not all can."""
    return Json(features_of(graphs))


@router.websocket("/ws")
async def events(websocket: WebSocket) -> None:
    """What happens to the graphs of a client, which gives its name as `clientId`."""
    graphs = await graphs_of(websocket)
    await websocket.accept()
    socket = graphs.sockets.open(websocket.query_params.get("clientId"))

    async def send() -> None:
        while (message := await socket.next()) is not None:
            await (websocket.send_bytes(message) if isinstance(message, bytes) else websocket.send_text(message))
        await websocket.close(1001)

    async def listen() -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while (message := await websocket.receive())["type"] != "websocket.disconnect":
                _heard(graphs, socket, message.get("text") or "")

    both: list[asyncio.Future[None]] = []
    try:
        again = _under_way(graphs, socket.client)
        graphs.sockets.tell("status", {**await run_in_threadpool(graphs.status), "sid": socket.client}, socket.client)
        if again is not None:
            graphs.sockets.tell("executing", again, socket.client)
        both = [asyncio.ensure_future(each) for each in (send(), listen())]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        graphs.sockets.close(socket)
        for each in both:
            each.cancel()


def _under_way(graphs: Graphs, client: str) -> dict[str, Any] | None:
    """Which node of a client's graph is carried out, for one that comes again; None if it has none under way."""
    turn = graphs.service.painter.turn
    if isinstance(turn, GraphTurn) and turn.client == client and turn.now:
        return {"node": turn.now, "prompt_id": turn.job.id}
    return None


def _heard(graphs: Graphs, socket: Any, text: str) -> None:
    """What a client says: which features it has. All else is not looked at."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(said, dict) and said.get("type") == "feature_flags" and isinstance(said.get("data"), dict):
        socket.features = said["data"]
        graphs.sockets.tell("feature_flags", features_of(graphs), socket.client)
