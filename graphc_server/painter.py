"""The thread that paints: it takes job after job from the database, with those that are alike, says where it is, and does what is
wished for in between."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from graphc import GraphcError
from graphc_images.models import together
from graphc_server.alike import beside
from graphc_server.errors import StoreError, status_of
from graphc_server.events import Announcer
from graphc_server.orders import Look, Order, from_json, pictures_of
from graphc_server.pictures import MEDIA, encoded
from graphc_server.series import Finished, Results, steps_of
from graphc_server.store import HINT, Job, Painted, State, Store

if TYPE_CHECKING:
    from graphc_images import Progress
    from graphc_images.pipeline import Wish
    from graphc_server.models import Models

LOG = logging.getLogger("graphc.server")
OFTEN = 0.5
"""Seconds after which an idle painter looks at the queue though nobody called."""

PATIENT = 5
"""By how much the painter's threads are nicer than others: these get three times as much of a processor."""

PAUSE = 2.0
"""Seconds after which a database that could not be used is tried again."""

Ask = Literal["skip", "interrupt", "cancel", "give back"]
WISHES: dict[Ask, Wish] = {"skip": "skip", "interrupt": "stop", "cancel": "stop", "give back": "stop"}


@dataclass
class Turn:
    """The job that is being painted, and where it is."""

    job: Job
    order: Order
    began: float = field(default_factory=time.monotonic)
    batch: int = 0
    step: int = 0
    steps: int = 0
    second: bool = False
    """True if it is the second pass."""
    preview: bytes | None = None
    previews: int = 0
    """How many there were, which names the last one."""
    ask: Ask | None = None
    asked: frozenset[Ask] = frozenset()
    """All that was asked for so far."""

    @property
    def passes(self) -> int:
        """How many a batch has."""
        settings = self.order.settings
        return 2 if settings.hires_scale > 1 or settings.hires_width or settings.hires_height else 1

    @property
    def share(self) -> float:
        """How much is done, 0 to 1."""
        done = self.batch * self.passes + self.second + (self.step / self.steps if self.steps else 0)
        return min(done / (self.order.batches * self.passes), 1.0)

    @property
    def seconds_left(self) -> float:
        """As far as can be seen."""
        passed, share = time.monotonic() - self.began, self.share
        return passed / share - passed if share else 0.0

    def said(self) -> dict[str, Any]:
        """Where it is, as events say it."""
        return {
            "batch": self.batch,
            "batches": self.order.batches,
            "pass": self.second + 1,
            "passes": self.passes,
            "step": self.step,
            "steps": self.steps,
            "share": round(self.share, 4),
            "seconds_left": round(self.seconds_left, 1),
        }

    def want(self, ask: Ask) -> None:
        """Ask for something; it is done after the step."""
        self.ask, self.asked = ask, self.asked | {ask}

    def wish(self) -> Wish:
        """What the pipeline is told after each step."""
        return "go on" if self.ask is None else WISHES[self.ask]

    def note(self, progress: Progress) -> None:
        """A step is done."""
        self.second = self.second or (progress.step < self.step and progress.batch == self.batch)
        self.batch, self.step, self.steps = progress.batch, progress.step, progress.steps
        if progress.pictures:
            self.batch, self.step, self.second = progress.batch + 1, 0, False
            if self.ask == "skip":
                self.ask = None
        elif _due(self.order.look, progress.step):
            by: Any = self.order.look.by
            self.preview = encoded(progress.previews(by)[0], self.order.look.kind)
            self.previews += 1


class Maker(Protocol):
    """What carries out the jobs of a protocol that are no orders."""

    def begin(self, job: Job) -> Turn:
        """A turn of a job. Raises StoreError if it cannot be read."""
        ...

    def follow(self, turn: Turn) -> None:
        """Do what the job says; what `turn.wish()` says counts after each step. Raises GraphcError."""
        ...

    def ended(self, turn: Turn) -> None:
        """The job is over, and the store says how; or it was given back."""
        ...


def _due(look: Look, step: int) -> bool:
    return look.every > 0 and step % look.every == 0


class Remarks(logging.Handler):
    """What graphc_images says besides, in this thread: such as LoRAs that are not there."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread, self._log, self.said = threading.get_ident(), logging.getLogger("graphc.images"), list[str]()

    def __enter__(self) -> list[str]:
        self._log.addHandler(self)
        return self.said

    def __exit__(self, *error: object) -> None:
        self._log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was said."""
        if record.thread == self._thread:
            self.said.append(record.getMessage())


def give_way() -> None:
    """Have this thread, and those that it begins, wait for the others of the process: what computes takes all processors, and
    each thread that a request goes through would wait for one. On Linux, where each thread has a priority of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + PATIENT)


class Painter(threading.Thread):
    """Paints until `stop`. What happens to a job is in the store; `ended` tells who waits for it."""

    def __init__(self, store: Store, models: Models, folder: Path) -> None:
        super().__init__(name="painter", daemon=True)
        self.store, self.models = store, models
        self.pictures, self.uploads = folder / "pictures", folder / "uploads"
        for each in (self.pictures, self.uploads):
            each.mkdir(parents=True, exist_ok=True)
        self.filing = threading.Lock()
        """Held while a job and the pictures that it needs come together, and while pictures that none needs go."""
        self.turns: dict[str, Turn] = {}
        """What is being painted, by the job's name: one, or several that are alike."""
        self.makers: dict[str, Maker] = {}
        """By protocol; jobs of others are orders."""
        self.announcer = Announcer()
        self._waiting: dict[str, list[Future[None]]] = {}
        self._errands: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._lock, self._called, self._closing = threading.Lock(), threading.Event(), False

    def run(self) -> None:
        """The loop of the thread."""
        give_way()
        try:
            self._clean()
        except (StoreError, OSError) as error:
            LOG.error("%s", error)
        while True:
            self._called.clear()
            self._run_errands()
            if self._closing:
                self._finish()
                self._tell_all()
                return
            try:
                if not self._paint_next():
                    self._called.wait(OFTEN)
            except StoreError as error:
                LOG.error("%s", error)
                self._called.wait(PAUSE)

    def _paint_next(self) -> bool:
        """Paint what is next in the queue; False if nothing is, or not now."""
        jobs = self.store.take(lambda first: beside(first, self.models.device))
        together([partial(self._paint, job) for job in jobs])
        return bool(jobs)

    def _finish(self) -> None:
        """Wait for what is being painted elsewhere."""

    def call(self) -> None:
        """There is something in the queue."""
        self._called.set()

    def between(self, errand: Callable[[], Any]) -> Future[Any]:
        """Run something in the painting thread, between two jobs."""
        future: Future[Any] = Future()
        with self._lock:
            self._errands.append((errand, future))
        self.call()
        return future

    def ended(self, id: str) -> Future[None]:
        """What is done when the job is over, however it ends; also when the server stops before."""
        future: Future[None] = Future()
        with self._lock:
            self._waiting.setdefault(id, []).append(future)
        job = self.store.job(id)
        if job is None or job.state not in ("waiting", "painting") or self._closing:
            self._tell(id)
        return future

    def cancel(self, id: str) -> bool:
        """End a job, wherever it is; False if there is nothing to end."""
        job = self.store.job(id)
        if job is not None and self.store.cancel_waiting(id):
            self._sweep(set(pictures_of(job.work)))
            self.announcer.tell("job", id, {"state": "cancelled", "error": ""})
            self._tell(id)
            return True
        turn = self.turns.get(id)
        if turn is None:
            return False
        turn.want("cancel")
        return True

    def close(self) -> None:
        """Begin no more jobs. Who waits for one that has not begun is told; the job stays in the queue."""
        self._closing = True
        self.announcer.close()
        self.call()

    def stop(self, patience: float) -> None:
        """Finish the job at hand within so many seconds, or let it wait for the next start."""
        self.close()
        self._tell_all()
        if self.is_alive():
            self.join(patience)
            for turn in list(self.turns.values()):
                turn.want("give back")
            self.join()

    def turn_of(self, client: str = "") -> Turn | None:
        """What is being painted for a client; if nothing is for this one, what was begun first, if anything."""
        turns = list(self.turns.values())
        return next((turn for turn in turns if turn.job.client == client), turns[0] if turns else None)

    @property
    def turn(self) -> Turn | None:
        """What is being painted, and was begun first."""
        return self.turn_of()

    @property
    def workers(self) -> int:
        """How many paint."""
        return int(self.is_alive())

    @property
    def closing(self) -> bool:
        """True if the server is stopping."""
        return self._closing

    def _run_errands(self) -> None:
        with self._lock:
            errands, self._errands = self._errands, []
        for errand, future in errands:
            try:
                future.set_result(errand())
            except Exception as error:
                future.set_exception(error)

    def _paint(self, job: Job) -> None:
        remarks: list[str] = []
        turn, maker = None, self.makers.get(job.protocol)
        error, status = "", 0
        try:
            turn = maker.begin(job) if maker else Turn(job, from_json(dict(job.work), self.uploads))
            self.turns[job.id] = turn
            self.announcer.tell("job", job.id, {"state": "painting", "error": ""})
            with Remarks() as remarks:
                (maker.follow if maker else self._follow)(turn)
        except StoreError:
            raise  # the job is still the first of the queue
        except (GraphcError, OSError, MemoryError) as problem:
            error, status = f"{problem}" or type(problem).__name__, status_of(problem)
        except Exception as problem:  # a mistake of ours must not end the thread
            LOG.exception("job %s", job.id)
            error, status = f"{type(problem).__name__}: {problem}", status_of(problem)
        finally:
            self.turns.pop(job.id, None)
        ask = None if turn is None else turn.ask
        if ask == "give back":
            self.store.give_back(job.id)
        else:
            state: State = "failed" if status else "cancelled" if ask == "cancel" else "done"
            self.store.end(job.id, state, error, remarks, status)
            LOG.info("job ended", extra={"job": job.id, "client": job.client, "state": state, "error": error})
            self._sweep(set(pictures_of(job.work)))
            if state == "cancelled":
                self.discard(job)
            self.announcer.tell("job", job.id, {"state": state, "error": error, "remarks": remarks})
        if maker is not None and turn is not None:
            maker.ended(turn)
        self._tell(job.id)

    def _follow(self, turn: Turn) -> None:
        results = Results(turn.order)
        for progress in steps_of(turn.order, self.models, turn.wish):
            before = turn.previews
            turn.note(progress)
            self.announce(turn, before)
            if turn.ask in ("cancel", "give back"):
                return
            self._hand_out(turn, results.of(progress))
        self._hand_out(turn, results.sheets())

    def _hand_out(self, turn: Turn, made: Iterable[Finished]) -> None:
        order = turn.order
        for each in made:
            file = f"{turn.job.id}-{each.place}.{order.kind}"
            each.save(self.pictures / file, order)
            self.keep(turn.job.id, each.place, Painted(file, each.seed, each.parameters))

    def keep(self, job: str, place: int, picture: Painted) -> None:
        """A picture is in its file."""
        self.store.add_picture(job, place, picture)
        if picture.seed != HINT:
            self.announcer.tell("picture", job, {"place": place, "seed": picture.seed})

    def announce(self, turn: Turn, previews: int) -> None:
        """Tell of a step, and of the preview if there is another than before."""
        self.announcer.tell("progress", turn.job.id, turn.said())
        if turn.previews > previews and turn.preview is not None:
            said = {"number": turn.previews, "type": MEDIA[turn.order.look.kind]}
            self.announcer.tell("preview", turn.job.id, said, turn.preview)

    def discard(self, job: Job) -> None:
        """Forget a job that is over, and its pictures, unless they are to be kept."""
        if not job.work.get("kept", False):
            for each in self.store.pictures(job.id):
                (self.pictures / each.file).unlink(missing_ok=True)
            self.store.forget(job.id)

    def _sweep(self, names: Iterable[str]) -> None:
        """Remove pictures that were sent, and that no job needs any more."""
        with self.filing:
            for name in names:
                if not self.store.needed(name):
                    (self.uploads / name).unlink(missing_ok=True)

    def _clean(self) -> None:
        """Remove what an earlier process left."""
        self._sweep([path.name for path in self.uploads.iterdir()])
        for job in self.store.left_over():
            self.discard(job)

    def _tell_all(self) -> None:
        """Tell everybody whose job is not at hand."""
        for id in list(self._waiting):
            if id not in self.turns:
                self._tell(id)

    def _tell(self, id: str) -> None:
        with self._lock:
            waiting = self._waiting.pop(id, [])
        for each in waiting:
            each.set_result(None)
