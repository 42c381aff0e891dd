"""Calls of ggml that talk to servers. Where a server is lost, ggml ends the process; here that becomes an error.

Such calls run in a thread of their own. ggml says that it is about to end the process by calling a function in that thread, which
then waits forever, while the caller gets an error. What the thread held is lost with it: nothing that belongs to the lost server
may be used or freed afterwards.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.once import once

Result = TypeVar("Result")

TIMEOUT = "GRAPHC_RPC_TIMEOUT"
"""The variable of the environment that says how many seconds a server may take for a run."""

SECONDS = 600.0

_turn = threading.Lock()
_guarded: dict[int, Guarded] = {}


class ServerLost(GraphcError):
    """A server ended, hangs, or the connection to it was lost."""


class Guarded:
    """One call in a thread of its own, which has its turn until it ends, also if nobody waits for it any more."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._ended = threading.Lock()
        self.thread = threading.Thread(target=self._run, name="graphc-server", daemon=True)

    def lost(self, message: str) -> None:
        """Give the caller an error. Never returns."""
        self.error = ServerLost(message)
        self.end()
        threading.Event().wait()

    def end(self) -> None:
        """Let the caller go on, and others have their turn."""
        self.done.set()
        if self._ended.acquire(blocking=False):
            _turn.release()

    def _run(self) -> None:
        identity = threading.get_ident()
        _guarded[identity] = self
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            del _guarded[identity]
            self.end()


def guarded(call: Callable[[], Result]) -> Result:
    """What `call` returns or raises; ServerLost if ggml gives up on a server, or after `run_seconds`. One call at a time; what
    is collected during one is freed in it."""
    if threading.get_ident() in _guarded:
        return call()
    catch_ends()
    limit = run_seconds()
    if not _turn.acquire(timeout=limit):
        raise ServerLost(f"what was asked before has no answer for {limit:g} seconds")
    running = Guarded(call)
    running.thread.start()
    if not running.done.wait(limit):
        running.end()
        raise ServerLost(f"no answer for {limit:g} seconds (it may take more with {TIMEOUT}=SECONDS)")
    if running.error is not None:
        raise running.error
    result: Result = running.result
    return result


def run_seconds() -> float:
    """How long a run may take. Raises GraphcError for what is no number."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text or SECONDS)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise GraphcError(f"{TIMEOUT}={text}: must be a number of seconds")
    return min(seconds, threading.TIMEOUT_MAX)


@once
def catch_ends() -> Any:
    """Have a function called before ggml ends the process; returns what ggml has the address of."""

    def ending(message: bytes) -> None:
        text = message.decode(errors="replace")
        found = _guarded.get(threading.get_ident())
        if found is not None:
            found.lost(text.rsplit(": ", 1)[-1])  # the rest is where in ggml's source it is said
        sys.stderr.write(f"error: ggml: {text}\n")
        sys.stderr.flush()
        os._exit(1)

    callback = ggml.ggml_abort_callback_t(ending)
    ggml.ggml_set_abort_callback(callback)
    return callback
