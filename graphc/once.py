"""Functions that must run once in a process, however many threads ask at the same time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from graphc.forking import renew_in_child

Result = TypeVar("Result")


class once(Generic[Result]):
    """A function without arguments, which is called the first time that its result is wanted. Threads that ask meanwhile wait;
    where `functools.cache` would have each of them call it. What raises is called again the next time."""

    def __init__(self, function: Callable[[], Result]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._results: list[Result] = []
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """See `Renewed`."""
        self._lock = threading.RLock()

    def __call__(self) -> Result:
        """The result."""
        if not self._results:
            with self._lock:
                if not self._results:
                    self._results.append(self._function())
        return self._results[0]

    def cache_clear(self) -> None:
        """Have it called again."""
        self._results = []
