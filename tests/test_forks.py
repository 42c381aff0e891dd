"""Models in processes that are forked, as `multiprocessing` does by itself on Linux with Python 3.11."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable

import pytest
from test_threads import FEEDS, bits, mixed

import graphc
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.runtime.turns import Turns
from graphc.targets.ggml.run import executor

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

SECONDS = 60
"""After which a child hangs."""


def in_a_child(work: Callable[[], None]) -> None:
    """Have a forked process do it. What it raises is on the standard error, and fails here."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(SECONDS)
    hangs = child.is_alive()
    child.kill()
    assert not hangs, "the child hangs"
    assert child.exitcode == 0


def test_a_child_runs_what_its_parent_ran() -> None:
    model = graphc.compile(mixed(), threads=2)
    expected = [bits(model.run(each)) for each in FEEDS]

    def right(of: graphc.Model) -> None:
        assert [bits(of.run(each)) for each in FEEDS] == expected

    def work() -> None:
        right(model)
        right(graphc.compile(mixed(), threads=2))
        thread = threading.Thread(target=right, args=(model,))
        thread.start()
        thread.join()
        in_a_child(lambda: right(model))
        model.close()

    in_a_child(work)
    right(model)


def test_a_fork_while_other_threads_run() -> None:
    """What they hold at that moment nobody gives back in the child."""
    model = graphc.compile(mixed(), threads=2)
    expected = [bits(model.run(each)) for each in FEEDS]
    ended = threading.Event()

    def run_on() -> None:
        while not ended.is_set():
            for each in FEEDS:
                model.run(each)

    def work() -> None:
        assert [bits(model.run(each)) for each in FEEDS] == expected

    threads = [threading.Thread(target=run_on) for _ in range(3)]
    for each in threads:
        each.start()
    try:
        for _ in range(8):
            in_a_child(work)
    finally:
        ended.set()
        for each in threads:
            each.join()


def test_a_fork_during_a_change() -> None:
    model = graphc.compile(mixed(), threads=2)

    def refused() -> None:
        with pytest.raises(GraphcError, match="forked while the model was changed; load it again"):
            model.run(FEEDS[0])

    def fork() -> None:
        in_a_child(refused)

    with model.alone():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    model.run(FEEDS[0])


def test_a_fork_by_who_has_a_turn() -> None:
    turns = Turns(3)
    with turns.one:
        child = os.fork()
    if child == 0:
        os._exit(turns._free)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_devices_stay_with_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child neither computes on them nor frees what the parent has there."""
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: open_one("cpu", 1) + open_one("cpu", 1))
    model = graphc.compile(mixed(), device="d", threads=1)
    expected = bits(model.run(FEEDS[0]))

    def work() -> None:
        with pytest.raises(GraphcError, match="on a device before this process was forked: load it in this process"):
            model.run(FEEDS[0])
        monkeypatch.setattr(ggml, "ggml_backend_free", lambda backend: os._exit(3))
        model.close()

    in_a_child(work)
    assert bits(model.run(FEEDS[0])) == expected


def test_drivers_do_not_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc.targets.ggml.run.device import devices

    drivers = devices._Drivers()
    monkeypatch.setattr(devices, "_drivers", drivers)
    drivers.use()
    drivers.renew()
    with pytest.raises(GraphcError, match="whose driver does not survive"):
        devices.open_backends("vulkan0", 1)
    for backend in devices.open_backends("cpu", 1):
        ggml.ggml_backend_free(backend)


def test_a_pool_of_processes() -> None:
    """As an application does it: the model is loaded, and workers use it."""
    global _shared
    _shared = graphc.compile(mixed(), threads=2)
    expected = [bits(_shared.run(each)) for each in FEEDS]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_run_shared, range(len(FEEDS))).get(SECONDS) == expected


_shared: graphc.Model


def _run_shared(index: int) -> tuple[bytes, ...]:
    return bits(_shared.run(FEEDS[index]))
