"""The server's side: a painter that paints nothing by itself, but has as many jobs at hand as there are workers."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from graphc import replacing
from graphc_server.errors import RequestError, StoreError
from graphc_server.machines.wire import Said, Wire
from graphc_server.orders import pictures_of
from graphc_server.painter import Painter, Turn
from graphc_server.store import Job, Painted, Store

if TYPE_CHECKING:
    from graphc_server.models import Models

LOG = logging.getLogger("graphc.server")
OF_IMAGES = logging.getLogger("graphc.images")

HEARTBEAT = 1000
"""Milliseconds after which the server says again that it waits."""

PAUSE = 2.0
"""Seconds after which Redis is asked again, when it was not to be reached."""


class Lanes(Painter):
    """Hands each job to a worker, in a thread of its own that follows what the worker says.

    The queue stays in the server's database, so turns are as fair as with one machine: Redis has only what is being painted. Jobs
    of protocols with makers of their own are done by the server itself.
    """

    def __init__(self, store: Store, models: Models, folder: Path, wire: Wire) -> None:
        super().__init__(store, models, folder)
        self.wire = wire
        self._lanes: list[threading.Thread] = []
        self._counted, self._workers = 0.0, 0

    def _paint_next(self) -> bool:
        self._lanes = [each for each in self._lanes if each.is_alive()]
        if len(self._lanes) >= max(1, self.workers):
            return False
        jobs = self.store.take(at_hand=self.turns.keys() | {each.name for each in self._lanes})
        for job in jobs:
            if job.protocol in self.makers:
                self._paint(job)
            else:
                lane = threading.Thread(target=self._lane, args=(job,), name=job.id, daemon=True)
                self._lanes.append(lane)
                lane.start()
        return bool(jobs)

    def _finish(self) -> None:
        for each in self._lanes:
            each.join()

    @property
    def workers(self) -> int:
        """How many there are, as of a second ago; none while Redis is not to be reached."""
        if time.monotonic() - self._counted > HEARTBEAT / 1000:
            try:
                self._workers = len(self.wire.workers())
            except redis.RedisError as problem:
                LOG.error("Redis: %s", problem)
                self._workers = 0
            self._counted = time.monotonic()
        return self._workers

    def _lane(self, job: Job) -> None:
        try:
            self._paint(job)
        except StoreError as problem:
            LOG.error("%s", problem)
            time.sleep(PAUSE)
        self.call()

    def _follow(self, turn: Turn) -> None:
        """Attempts at a job, until one comes to its end. A new one is made where a worker gave it back, or Redis forgot it."""
        while turn.ask not in ("cancel", "give back"):
            try:
                if self._attempt(turn):
                    return
            except redis.RedisError as problem:
                LOG.error("Redis: %s", problem)
                time.sleep(PAUSE)

    def _attempt(self, turn: Turn) -> bool:
        """True if an attempt came to its end. Raises RequestError if that was an error."""
        attempt = uuid.uuid4().hex
        for name in pictures_of(turn.job.work):
            self.wire.put_file(name, (self.uploads / name).read_bytes())
        asked = Asked(turn)
        self.wire.ask(attempt, asked.text(), new=True)
        self.wire.send(attempt, turn.job.work)
        run, place = "", "0"
        try:
            while True:
                for at, said in self.wire.listen(attempt, place, HEARTBEAT):
                    place = at
                    if said.kind == "begun":
                        run = said.run
                        turn.batch, turn.step, turn.second = 0, 0, False
                    elif said.run == run:
                        if said.kind in ("done", "given back"):
                            self._remark(said)
                            return said.kind == "done"
                        self._hear(turn, said)
                if turn.ask in ("cancel", "give back") or not self.wire.ask(attempt, asked.text()):
                    return False
        finally:
            self.wire.forget(attempt)

    def _hear(self, turn: Turn, said: Said) -> None:
        """A step, a picture, or an error."""
        about = said.about
        if said.kind == "failed":
            self._remark(said)
            raise RequestError(about["error"], about["status"])
        if said.kind == "step":
            turn.batch, turn.step, turn.steps, turn.second = (about[name] for name in STEP)
            before = turn.previews
            if said.content:
                turn.preview, turn.previews = said.content, turn.previews + 1
            self.announce(turn, before)
        if said.kind == "picture":
            file = f"{turn.job.id}-{about['place']}.{turn.order.kind}"
            with replacing(self.pictures / file) as unfinished:
                unfinished.write_bytes(said.content)
            self.keep(turn.job.id, about["place"], Painted(file, about["seed"], about["parameters"]))
            if turn.ask == "skip":
                turn.ask = None

    def _remark(self, said: Said) -> None:
        """What the worker remarked is remarked here."""
        for each in said.about.get("remarks", []):
            OF_IMAGES.warning("%s", each)


STEP = ("batch", "step", "steps", "second")
"""What a step says of a turn."""


class Asked:
    """What is wanted of a turn, as a text with a number: a wish that is repeated has another one."""

    def __init__(self, turn: Turn) -> None:
        self.turn, self.last, self.number = turn, turn.ask, int(turn.ask is not None)

    def text(self) -> str:
        """The wish."""
        if self.turn.ask != self.last:
            self.last = self.turn.ask
            self.number += self.last is not None
        return f"{self.number} {self.last or ''}"
