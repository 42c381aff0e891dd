"""What all protocols share: the queue, the models, the options, the limits; and how a request becomes a job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from starlette.requests import Request

from graphc_images.upscalers import enlarged_size
from graphc_server.errors import RequestError
from graphc_server.fetching import Fetching
from graphc_server.limits import Limits
from graphc_server.models import Models
from graphc_server.orders import Order, to_json
from graphc_server.painter import Painter
from graphc_server.store import ENDED, Job, Store

LOG = logging.getLogger("graphc.server")
ATTENTIVE = 0.25
"""Seconds after which it is looked whether a client that waits is still there."""


@dataclass(frozen=True)
class Setup:
    """How a server is started."""

    models: tuple[Path, ...]
    data: Path
    users: Mapping[str, str] = field(default_factory=dict)
    """Passwords by name; nobody is asked for one if there are none."""
    hosts: tuple[str, ...] = ()
    """Names of the Host header besides those of this machine's own loopback; `*` for all."""
    origins: tuple[str, ...] = ()
    """Pages of other hosts that may send requests; `*` for all."""
    fetching: Fetching = field(default_factory=Fetching)
    limits: Limits = field(default_factory=Limits)
    styles: Path | None = None
    device: str = "cpu"
    memory: str | int | None = None
    """For all models together: bytes, or such as "6GiB"."""
    threads: int | None = None
    stoppable: bool = False
    """True if clients may stop the server (`/sdapi/v1/server-stop`)."""
    patience: float = 30.0
    """Seconds for the picture at hand when the server stops."""
    broker: str | None = None
    """Redis' address, for workers on other machines that paint in this one's place."""


class Service:
    """A server's state."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.limits = setup, setup.limits
        setup.data.mkdir(parents=True, exist_ok=True)
        self.store = Store(setup.data / "jobs.sqlite")
        self.models = Models(setup.models, device=setup.device, memory=setup.memory, threads=setup.threads)
        self.painter = self._painter()
        self.began = time.time()
        self.seconds = 0.0
        """Of all answers to requests for pictures."""

    def _painter(self) -> Painter:
        if self.setup.broker is None:
            return Painter(self.store, self.models, self.setup.data)
        from graphc_server.machines.lanes import Lanes
        from graphc_server.machines.wire import Wire

        return Lanes(self.store, self.models, self.setup.data, Wire(self.setup.broker))

    def start(self) -> None:
        """Begin to paint."""
        self.painter.start()

    def stop(self) -> None:
        """Finish or keep what is being painted, and close."""
        self.painter.stop(self.setup.patience)
        self.models.free()
        self.store.close()

    def add(self, order: Order, client: str, protocol: str, asked: Mapping[str, Any], id: str | None = None) -> str:
        """Put an order into the queue; the job's name is returned. Raises RequestError for one above a limit, or while the
        server stops."""
        self.limits.check(*order.requests)
        if order.enlarging is not None and order.settings.image is not None:
            self.limits.check_number("pixels", prod(enlarged_size(order.settings.image, order.enlarging.scale)))
        return self._queue(lambda: to_json(order, self.painter.uploads), client, protocol, asked, id)

    def add_work(
        self, work: Mapping[str, Any], client: str, protocol: str, asked: Mapping[str, Any], id: str | None = None
    ) -> str:
        """The same with work for the protocol's own maker (see `painter.Maker`)."""
        return self._queue(lambda: work, client, protocol, asked, id)

    def _queue(
        self,
        work: Callable[[], Mapping[str, Any]],
        client: str,
        protocol: str,
        asked: Mapping[str, Any],
        id: str | None,
    ) -> str:
        if self.painter.closing:
            raise RequestError("the server stops", 503)
        if self.store.counts().get("waiting", 0) >= self.limits.waiting:
            raise RequestError(f"waiting: {self.limits.waiting} requests are in the queue already", 429)
        name = id or uuid.uuid4().hex
        before = self.store.job(name)
        if before is not None:
            if before.state not in ENDED or before.work:
                raise RequestError(f"there is a job {name!r} already", 409)
            self.store.drop(name)  # it was handed over; its name is free again
        with self.painter.filing:
            self.store.add(name, client, protocol, work(), asked)
        self.painter.announcer.tell("job", name, {"state": "waiting", "error": ""})
        self.painter.call()
        return name

    async def wait(self, request: Request, id: str) -> Job:
        """The job when it is over. Who goes away meanwhile has it cancelled. Raises RequestError for one that did not work."""
        ended, gone = asyncio.wrap_future(self.painter.ended(id)), False
        while not ended.done() and not self._left_alone(id):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(ended), ATTENTIVE)
            if not ended.done() and not gone and await request.is_disconnected():
                gone = True
                self.painter.cancel(id)  # the job may end by itself at this moment: what is left of it is seen to below
        job = self.store.job(id)
        if gone:
            if job is not None and job.state in ENDED:
                self.painter.discard(job)
            raise RequestError("the client has gone away", 499)
        assert job is not None
        if job.state == "failed":
            raise RequestError(job.error, job.status or 500)
        if job.state in ("waiting", "painting"):
            raise RequestError("the server stops; the job waits for its next start", 503)
        return job

    def _left_alone(self, id: str) -> bool:
        """True if the server is stopping and does not finish the job first."""
        return self.painter.closing and id not in self.painter.turns

    def files_of(self, job: Job) -> list[bytes]:
        """The pictures of a job, as they lie in their files."""
        return [(self.painter.pictures / each.file).read_bytes() for each in self.store.pictures(job.id)]

    def handed_over(self, job: Job) -> None:
        """Forget the pictures of a job that were not to be kept."""
        self.painter.discard(job)


def client_of(request: Request) -> str:
    """Who asks: the name that was proven, else the address; and the program. Turns are fair among these."""
    address = request.client.host if request.client else "local"
    return f"{request.scope.get('user_name') or address} {request.headers.get('user-agent', '')[:100]}".strip()
