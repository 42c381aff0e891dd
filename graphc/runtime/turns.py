"""Who may use a model, and when: runs a few at a time, a change of its weights alone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from graphc.errors import GraphcError
from graphc.forking import renew_in_child


class Turns:
    """`count` turns, given in the order in which they were asked for: `one` for a run, `all` for a change. So a change waits for
    the runs before it, and runs that come later wait for it. Who has a turn must not ask for another.

    A child that is forked has all of them back, for the threads that had them are not there. If one had all, what it changed
    may be half done: then there is an error.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._lost = False
        self._start()
        renew_in_child(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Wanted] = deque()
        self._free = self.count
        self._changing = False

    def renew(self) -> None:
        """See `Renewed`."""
        self._lost |= self._changing
        self._start()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A turn beside others. Raises GraphcError in a child that was forked during a change."""
        with self._taken(1):
            yield

    @contextmanager
    def all(self) -> Iterator[None]:
        """Every turn, so that nothing else happens. Raises GraphcError in a child that was forked during a change."""
        with self._taken(self.count):
            self._changing = True
            try:
                yield
            finally:
                self._changing = False

    @contextmanager
    def _taken(self, count: int) -> Iterator[None]:
        if self._lost:
            raise GraphcError("this process was forked while the model was changed; load it again")
        wanted = _Wanted(count)
        try:
            with self._lock:
                self._waiting.append(wanted)
                self._give()
            wanted.given.acquire()
            yield
        finally:
            with self._lock:
                if wanted in self._waiting:  # an interrupt ended the waiting
                    self._waiting.remove(wanted)
                elif wanted.counted:
                    self._free += count
                self._give()

    def _give(self) -> None:
        """Let those go on, in order, for whom there are turns enough."""
        while self._waiting and self._waiting[0].count <= self._free:
            first = self._waiting.popleft()
            self._free -= first.count
            first.counted = True
            first.given.release()


class _Wanted:
    """So many turns that somebody waits for, or has."""

    def __init__(self, count: int) -> None:
        self.count, self.counted = count, False
        self.given = threading.Lock()
        self.given.acquire()
