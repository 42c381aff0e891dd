"""Who may use a model, and when: runs a few at a time, a change of its weights alone."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from graphc.errors import GraphcError
from graphc.forking import renew_in_child


class Turns:
    """`count` turns, in the order in which they were asked for: `with turns.one:` for a run, `with turns.all:` for a change.
    So a change waits for the runs before it, and runs that come later wait for it. Who has a turn must not ask for another.

    A child that is forked has all of them back, for the threads that had them are not there. If one had all, what it changed
    may be half done: then to ask raises GraphcError.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.one, self.all = _Taken(self, 1, False), _Taken(self, count, True)
        self.lost = False
        self._start()
        renew_in_child(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Wanted] = deque()
        self._free = self.count
        self._changing = False

    def renew(self) -> None:
        """See `Renewed`."""
        self.lost |= self._changing
        self._start()

    def take(self, count: int, changing: bool) -> None:
        """Wait for so many turns. Raises GraphcError in a child that was forked during a change."""
        if self.lost:
            raise GraphcError("this process was forked while the model was changed; load it again")
        with self._lock:
            if not self._waiting and count <= self._free:
                self._free -= count
                self._changing = changing
                return
            wanted = _Wanted(count)
            self._waiting.append(wanted)
        try:
            wanted.given.acquire()
        except BaseException:  # an interrupt ended the waiting
            with self._lock:
                if wanted in self._waiting:
                    self._waiting.remove(wanted)
                else:
                    self._free += count
                self._give()
            raise
        self._changing = changing

    def give_back(self, count: int) -> None:
        """Let others have them."""
        with self._lock:
            self._changing = False
            self._free = min(self.count, self._free + count)  # in a child, all are there already
            self._give()

    def _give(self) -> None:
        """Let those go on, in order, for whom there are turns enough."""
        while self._waiting and self._waiting[0].count <= self._free:
            first = self._waiting.popleft()
            self._free -= first.count
            first.given.release()


class _Taken:
    """A block with so many turns."""

    def __init__(self, turns: Turns, count: int, changing: bool) -> None:
        self._turns, self._count, self._changing = turns, count, changing

    def __enter__(self) -> None:
        self._turns.take(self._count, self._changing)

    def __exit__(self, *_: Any) -> None:
        self._turns.give_back(self._count)


class _Wanted:
    """So many turns that somebody waits for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = threading.Lock()
        self.given.acquire()
