"""The maker of graphs' jobs: carries them out in the thread that paints, tells who listens, and keeps what the history says."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from graphc import GraphcError
from graphc_images import Settings
from graphc_images.pictures.arrays import to_picture
from graphc_server.comfyui.checking import Graph
from graphc_server.comfyui.executor import Drawn, Executor, Interrupted, NodeError, Room
from graphc_server.comfyui.files import Files
from graphc_server.comfyui.inspected import Inspected
from graphc_server.comfyui.library import Library
from graphc_server.comfyui.sockets import Sockets, picture_message
from graphc_server.comfyui.values import Shown
from graphc_server.errors import StoreError
from graphc_server.orders import Look, Order
from graphc_server.painter import Turn
from graphc_server.store import Job, Painted

if TYPE_CHECKING:
    from graphc_server.service import Service

PROTOCOL = "comfyui"
PREVIEW_SIDE = 512
"""Pixels of the longer side of a preview."""


def work_of(graph: Graph, extra: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
    """What a graph's job has to do, as the store keeps it. Texts of clients are texts in it: nothing else reads them."""
    return {"kept": True, "graph": json.dumps(graph), "extra": json.dumps(extra), "outputs": list(outputs)}


def graph_of(job: Job) -> tuple[Graph, dict[str, Any], list[str]]:
    """The graph of such a job, what was sent besides, and its outputs."""
    return json.loads(job.work["graph"]), json.loads(job.work["extra"]), list(job.work["outputs"])


@dataclass
class GraphTurn(Turn):
    """A graph that is being carried out."""

    graph: Graph = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    done: int = 0
    """Nodes that are."""
    cached: frozenset[str] = frozenset()
    now: str = ""
    """The node at hand."""
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def client(self) -> str | None:
        """The name of who sent it, if it gave one."""
        given = self.extra.get("client_id")
        return given if isinstance(given, str) else None

    @property
    def share(self) -> float:
        """How much is done, 0 to 1."""
        nodes = max(len(self.graph) - len(self.cached), 1)
        return min((self.done + (self.step / self.steps if self.steps else 0)) / nodes, 1.0)


class Graphs:
    """What carries out graphs (see `painter.Maker`)."""

    def __init__(self, service: Service, **library: Any) -> None:
        """`library` are settings of the `Library`."""
        self.service = service
        self.files = Files(service.setup.data, service.painter.pictures, self._names)
        self.library = Library(service.models, service.limits, self.files, **library)
        self.executor, self.sockets, self.inspected = Executor(), Sockets(), Inspected(self.library)

    def _names(self, handed: str) -> bool:
        """True if a graph that is not done yet names a handed picture."""
        jobs = self.service.store.of_protocol(PROTOCOL, "waiting", "painting")
        return any(handed in job.work["graph"] for job in jobs)

    def begin(self, job: Job) -> GraphTurn:
        """See `Maker.begin`."""
        try:
            graph, extra, outputs = graph_of(job)
        except (KeyError, ValueError) as error:
            raise StoreError(f"job {job.id}: its graph cannot be read: {error}") from error
        order = Order(Settings(), "", kept=True, look=Look(1, "rough", "jpg"))
        return GraphTurn(job, order, graph=graph, extra=extra, outputs=outputs)

    def follow(self, turn: Turn) -> None:
        """See `Maker.follow`."""
        assert isinstance(turn, GraphTurn)
        watch = Watch(self, turn)
        for kind, below, name in turn.job.result.get("files", []):  # of a try that was killed
            self.files.file(kind, below, name).unlink(missing_ok=True)
        watch.begin()
        try:
            self.library.begin()
            self.executor.run(Room(self.library, self.files, turn.graph, turn.extra, watch), turn.outputs)
            watch.say("execution_success", {})
        except Interrupted:
            if turn.ask != "give back":
                turn.ask = "cancel"
                watch.say("execution_interrupted", watch.at_node())
        except NodeError as error:
            cause = error.__cause__
            assert isinstance(cause, Exception)
            watch.failed(error, cause)
            raise cause from None
        finally:
            self.library.end(self.executor.held())
            watch.keep()

    def ended(self, turn: Turn) -> None:
        """See `Maker.ended`."""
        assert isinstance(turn, GraphTurn)
        if turn.ask != "give back":
            if turn.client is not None:
                self.sockets.tell("executing", {"node": None, "prompt_id": turn.job.id}, turn.client)
            self.tell_status()

    def waiting(self) -> int:
        """How many jobs are in the queue, or being painted."""
        counts = self.service.store.counts()
        return counts.get("waiting", 0) + counts.get("painting", 0)

    def status(self) -> dict[str, Any]:
        """The queue, as the event has it."""
        return {"status": {"exec_info": {"queue_remaining": self.waiting()}}}

    def tell_status(self) -> None:
        """Tell everybody how long the queue is."""
        with contextlib.suppress(StoreError):
            self.sockets.tell("status", self.status())

    def free(self, memory: bool) -> None:
        """Close all models, and if `memory` forget what the last graph made. For the thread that paints."""
        if memory:
            self.executor.clear()
        self.library.close()
        self.service.models.free()


class Watch:
    """Who is told what happens to a graph (see `executor.Watcher`): the client that sent it, the history, the turn."""

    def __init__(self, graphs: Graphs, turn: GraphTurn) -> None:
        self.graphs, self.turn = graphs, turn
        self.run: list[str] = []
        self.result: dict[str, Any] = {"outputs": {}, "meta": {}, "messages": [], "files": []}

    def begin(self) -> None:
        """It begins."""
        self.say("execution_start", {})

    def goes_on(self) -> bool:
        """See `Watcher`."""
        return self.turn.wish() == "go on"

    def cached(self, names: Sequence[str]) -> None:
        """See `Watcher`."""
        self.turn.cached = frozenset(names)
        self.say("execution_cached", {"nodes": list(names)})

    def executing(self, name: str) -> None:
        """See `Watcher`."""
        if self.turn.now:
            self.run.append(self.turn.now)
            self.turn.done += 1
        self.turn.now, self.turn.step, self.turn.steps = name, 0, 0
        self._tell("executing", {"node": name, "display_node": name})

    def progress(self, name: str, value: int, most: int, draw: Drawn | None) -> None:
        """See `Watcher`."""
        turn = self.turn
        turn.step, turn.steps = value, most
        self._tell("progress", {"value": value, "max": most, "node": name})
        painter, before = self.graphs.service.painter, turn.previews
        client, listens = turn.client, self.graphs.sockets.listens(turn.client)
        if draw is not None and (listens or painter.announcer.listeners):
            turn.preview = small_jpeg(draw())
            turn.previews += 1
        painter.announce(turn, before)
        if turn.previews == before or client is None:
            return
        said = {"node_id": name, "display_node_id": name, "real_node_id": name, "prompt_id": turn.job.id}
        self.graphs.sockets.preview(lambda: turn.preview or b"", said, client)

    def writes(self, kind: str, below: str, name: str) -> None:
        """See `Watcher`. It is known before it is written, so that it can be removed if the server is killed."""
        self.result["files"].append([kind, below, name])
        self.keep()

    def sends(self, name: str, value: int, most: int, picture: bytes) -> None:
        """See `Watcher`."""
        self.progress(name, value, most, None)
        if self.turn.client is not None:
            self.graphs.sockets.send(picture_message(picture), self.turn.client)

    def written(self, below: str, name: str, seed: int, parameters: str) -> None:
        """See `Watcher`."""
        store, job = self.graphs.service.store, self.turn.job.id
        place = len(store.pictures(job))
        store.add_picture(job, place, Painted(f"{below}/{name}" if below else name, seed, parameters))
        self.graphs.service.painter.announcer.tell("picture", job, {"place": place, "seed": seed})

    def executed(self, name: str, shown: Shown, again: bool) -> None:
        """See `Watcher`."""
        said = {"node": name, "display_node": name, "output": shown.ui()}
        self.result["outputs"][name] = shown.ui()
        self.result["meta"][name] = {"node_id": name, "display_node": name, "parent_node": None, "real_node_id": name}
        self._tell("executed", said)

    def say(self, kind: str, said: Mapping[str, Any]) -> None:
        """An event that the history keeps."""
        whole = {"prompt_id": self.turn.job.id, **said, "timestamp": int(time.time() * 1000)}
        self.result["messages"].append([kind, whole])
        self._tell(kind, whole)

    def at_node(self) -> dict[str, Any]:
        """Where it is."""
        now = self.turn.now
        kind = self.turn.graph[now]["class_type"] if now else None
        return {"node_id": now or None, "node_type": kind, "executed": list(self.run)}

    def failed(self, error: NodeError, cause: Exception) -> None:
        """A node could not be carried out."""
        inputs = {name: [_shortly(value)] for name, value in error.inputs.items()}
        message = str(cause) if isinstance(cause, GraphcError | OSError) else f"{type(cause).__name__}: {cause}"
        said = {
            "exception_message": message or type(cause).__name__,
            "exception_type": type(cause).__name__,
            "traceback": [],
            "current_inputs": inputs,
            "current_outputs": list(self.run),
        }
        self.say("execution_error", {**self.at_node(), **said})

    def keep(self) -> None:
        """Have the store know what there is so far."""
        self.graphs.service.store.set_result(self.turn.job.id, self.result)

    def _tell(self, kind: str, said: Mapping[str, Any]) -> None:
        if self.turn.client is not None:
            self.graphs.sockets.tell(kind, {**said, "prompt_id": self.turn.job.id}, self.turn.client)


LONGEST_SHOWN = 200
"""Characters of a text that an error repeats: graphs carry whole pictures in base64."""


def _shortly(value: Any) -> str | int | float:
    """A value as an error names it."""
    if isinstance(value, str) and len(value) > LONGEST_SHOWN:
        return f"{value[:LONGEST_SHOWN]}… ({len(value)} characters)"
    return value if isinstance(value, str | int | float) else type(value).__name__


def small_jpeg(drawn: np.ndarray) -> bytes:
    """A preview [3, height, width], -1 to 1, as a file."""
    made = io.BytesIO()
    picture = ImageOps.contain(to_picture(drawn), (PREVIEW_SIDE, PREVIEW_SIDE), Image.Resampling.BILINEAR)
    picture.save(made, "JPEG", quality=95)
    return made.getvalue()
