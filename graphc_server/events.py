"""What happens to jobs, told while it happens: by the thread that paints, to connections that listen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["job", "progress", "preview", "picture"]
KINDS: tuple[Kind, ...] = ("job", "progress", "preview", "picture")
MOST = 4096
"""Events that may wait for a connection that does not take them; then it is ended, and begins again with how things are."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a job.

    `job` is another state, or another place in the queue; `progress` a step; `preview` a picture so far (`preview` holds its
    bytes, and `said` its number and type); `picture` one that is finished.
    """

    kind: Kind
    job: str
    said: Mapping[str, Any]
    preview: bytes = b""

    @property
    def key(self) -> Hashable:
        """Of events with the same, the last alone is of interest."""
        return self.kind, self.job, self.said.get("state"), self.said.get("place")


Listener = Callable[[Event | None], None]


class Announcer:
    """Tells every listener of each event, in whichever thread it happens; None is the last."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()

    def tell(self, kind: Kind, job: str, said: Mapping[str, Any], preview: bytes = b"") -> None:
        """Something happened."""
        for each in tuple(self.listeners):
            each(Event(kind, job, said, preview))

    def close(self) -> None:
        """Nothing more happens."""
        for each in tuple(self.listeners):
            each(None)


class Channel:
    """The events that one connection has not been sent, in the order in which they happened. As a context manager, it listens
    meanwhile; what happened before can be put in by `put`. It is made, and asked, in the thread of an event loop."""

    def __init__(self, announcer: Announcer, wanted: Callable[[Event], bool]) -> None:
        self._announcer, self._wanted = announcer, wanted
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Hashable, Event] = {}
        self._something = asyncio.Event()
        self._ended = False

    def __enter__(self) -> Channel:
        self._announcer.listeners.add(self._heard)
        return self

    def __exit__(self, *error: object) -> None:
        self._announcer.listeners.discard(self._heard)

    def _heard(self, event: Event | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the connection
            self._loop.call_soon_threadsafe(self.put, event)

    def put(self, event: Event | None) -> None:
        """An event, or the end."""
        if event is None or len(self._waiting) >= MOST:
            self._ended = True
        elif self._wanted(event):
            self._waiting.pop(event.key, None)
            self._waiting[event.key] = event
        self._something.set()

    async def next(self, seconds: float) -> list[Event] | None:
        """The events since it was asked last, waited for so long; None when there will be no more."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._something.wait(), seconds)
        self._something.clear()
        found, self._waiting = list(self._waiting.values()), {}
        return None if self._ended and not found else found
