"""`graphc worker`: paints what servers hand over. Dramatiq brings an attempt at a time; what is said of it goes over the wire."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dramatiq
import redis

from graphc import GraphcError
from graphc_server import cut_off
from graphc_server.errors import status_of
from graphc_server.machines.lanes import STEP
from graphc_server.machines.wire import ACTOR, LEASE, QUEUE, Said, Wire
from graphc_server.models import Models
from graphc_server.orders import Order, from_json, pictures_of
from graphc_server.painter import WISHES, Ask, Remarks, Turn
from graphc_server.series import Finished, Results, steps_of
from graphc_server.store import Job

LOG = logging.getLogger("graphc.server")


@dataclass(frozen=True)
class Work:
    """How a worker is started."""

    broker: str
    models: tuple[Path, ...]
    device: str = "cpu"
    memory: str | int | None = None
    threads: int | None = None
    patience: float = 30.0
    """Seconds for the picture at hand when the worker stops."""


class Unwanted(Exception):
    """Nobody waits for the attempt any more, or another worker has it."""


class Worker:
    """A worker process: one job at a time."""

    def __init__(self, work: Work) -> None:
        """Raises ImageError for folders that are not there, and for an address that is none."""
        self.wire = Wire(work.broker)
        self.models = Models(work.models, device=work.device, memory=work.memory, threads=work.threads)
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self.patience = work.patience
        self._leaving, self._out_of_patience = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._idle.set()

    def run(self) -> None:
        """Work until `leave`. Raises redis.RedisError if Redis is not to be reached at the start."""
        self.wire.redis.ping()
        dramatiq.Actor(self.paint, broker=self.wire.broker, actor_name=ACTOR, queue_name=QUEUE, priority=0, options={})
        hands = dramatiq.Worker(self.wire.broker, worker_threads=1, worker_timeout=500)
        hands.queue_prefetch = 1  # what waits is for others
        hands.start()
        LOG.info("worker begins", extra={"worker": self.name})
        while not self._leaving.is_set():
            try:
                self.wire.live(self.name)
            except redis.RedisError as problem:
                LOG.error("Redis: %s", problem)
            self._leaving.wait(LEASE / 5)
        with contextlib.suppress(redis.RedisError):
            self.wire.leave(self.name)
        if not self._idle.wait(self.patience):
            self._out_of_patience.set()
            self._idle.wait()
        hands.stop()
        self.models.free()

    def leave(self, *signal: object) -> None:
        """Begin nothing more; finish the job at hand within the patience, or give it back."""
        self._leaving.set()

    def paint(self, attempt: str, work: Mapping[str, Any]) -> None:
        """An attempt at an order's JSON, which says what it comes to. Raises redis.RedisError; the server makes another then."""
        run = uuid.uuid4().hex
        if self.wire.asked(attempt) is None:
            return
        self._idle.clear()
        try:
            self.wire.begin(attempt, run)
            self.wire.say(attempt, Said(run, "begun", {"worker": self.name}))
            remarks: list[str] = []
            try:
                with Remarks() as remarks, TemporaryDirectory() as folder:
                    kind = self._follow(attempt, run, work, Path(folder))
                self.wire.say(attempt, Said(run, kind, {"remarks": remarks}))
            except (Unwanted, redis.RedisError):
                raise
            except Exception as problem:  # whatever it is, the server hears of it
                known = isinstance(problem, GraphcError | OSError | MemoryError)
                if not known:
                    LOG.exception("attempt %s", attempt)
                error = (f"{problem}" if known else f"{type(problem).__name__}: {problem}") or type(problem).__name__
                self.wire.say(
                    attempt, Said(run, "failed", {"error": error, "status": status_of(problem), "remarks": remarks})
                )
        except Unwanted:
            LOG.info("nobody wants it any more", extra={"attempt": attempt})
        finally:
            self._idle.set()

    def _follow(self, attempt: str, run: str, work: Mapping[str, Any], folder: Path) -> str:
        """The steps and pictures of an order; how it ended."""
        if self._leaving.is_set():
            return "given back"
        for name in pictures_of(work):
            (folder / name).write_bytes(self.wire.file(name))
        order = from_json(dict(work), folder)
        turn = Turn(_job(attempt, work), order)
        heard = Heard()
        results = Results(order)
        for progress in steps_of(order, self.models, turn.wish):
            before = turn.previews
            turn.note(progress)
            self._hand_out(attempt, run, order, results.of(progress), folder)
            preview = turn.preview if turn.previews > before else None
            self.wire.say(attempt, Said(run, "step", {name: getattr(turn, name) for name in STEP}, preview or b""))
            wish = self.wire.asked(attempt, run)
            if wish is None:
                raise Unwanted
            if ask := heard.new(wish):
                turn.want(ask)
            if self._out_of_patience.is_set():
                return "given back"
        self._hand_out(attempt, run, order, results.sheets(), folder)
        return "done"

    def _hand_out(self, attempt: str, run: str, order: Order, made: Iterable[Finished], folder: Path) -> None:
        for each in made:
            file = folder / f"{each.place}.{order.kind}"
            each.save(file, order)
            about = {"place": each.place, "seed": each.seed, "parameters": each.parameters}
            self.wire.say(attempt, Said(run, "picture", about, file.read_bytes()))


class Heard:
    """What the server asks for, each wish once."""

    def __init__(self) -> None:
        self.number = 0

    def new(self, text: str) -> Ask | None:
        """The wish of a text (`Asked`), if it is a new one."""
        number, _, wish = text.partition(" ")
        if int(number) <= self.number:
            return None
        self.number = int(number)
        return next((ask for ask in WISHES if ask == wish), None)


def _job(attempt: str, work: Mapping[str, Any]) -> Job:
    return Job(0, attempt, "", "", "painting", work, {}, 0, time.time(), None, None, "", [], {}, 0)


def run(work: Work) -> None:
    """Work until a signal. Raises ImageError, and redis.RedisError if Redis is not to be reached."""
    worker = Worker(work)
    cut_off.guard()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, worker.leave)
    worker.run()
