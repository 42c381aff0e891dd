"""Side by side with the other runtimes that are installed: each in a process of its own, one run of each in turn."""

from __future__ import annotations

import multiprocessing
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from graphc.runtime.peers import Peer, Task

SPAWN = multiprocessing.get_context("spawn")

PATIENCE = 600
"""Seconds for each answer of a runtime, after which it is given up, unless the caller says otherwise."""


GRACE = 5
"""Seconds for a process to end by itself."""


@dataclass(frozen=True)
class Result:
    """One runtime: seconds to load the model, of the median and the fastest run and of each, the largest difference from
    the reference in units of its largest number, and the process's peak memory (0 where it is not known). `problem` says
    why there are no numbers."""

    runtime: str
    load: float = 0.0
    median: float = 0.0
    fastest: float = 0.0
    error: float | None = None
    peak_bytes: int = 0
    problem: str = ""
    times: tuple[float, ...] = ()


class Failed(Exception):
    """A runtime could not do it; why."""


class Racer:
    """A runtime in its own process."""

    def __init__(self, peer: Peer, task: Task, archive: Path, patience: float) -> None:
        self.patience = patience
        self.times: list[float] = []
        self.pipe, other = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(peer, replace(task, inputs={}), archive, other), daemon=True)
        self.process.start()
        other.close()

    def ask(self, command: str) -> Any:
        """The answer to a command. Raises Failed if there is none."""
        try:
            self.pipe.send(command)
            if not self.pipe.poll(self.patience):
                raise Failed(f"no answer in {self.patience:g} s")
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise Failed(_ending(self.process.exitcode)) from None
        if isinstance(answer, str):
            raise Failed(answer)
        return answer

    def stop(self) -> None:
        """End the process, which may tidy up if it does so soon."""
        self.pipe.close()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()


def serve(peer: Peer, task: Task, archive: Path, pipe: Connection) -> None:
    """A racer's process: load, then run or answer what it is asked, until nobody asks any more."""
    with np.load(archive) as stored:
        task = replace(task, inputs=dict(stored))
    start = perf_counter()
    try:
        run = peer.prepare(task)
        loaded = perf_counter() - start
        results = run()
    except Exception as error:
        pipe.recv()
        pipe.send(f"{type(error).__name__}: {error}")
        return
    with suppress(EOFError):
        while True:
            command = pipe.recv()
            start = perf_counter()
            if command == "run":
                results = run()
                pipe.send(perf_counter() - start)
            elif command == "load":
                pipe.send(loaded)
            else:
                pipe.send((dict(results), peak_memory()))


def peak_memory() -> int:
    """Bytes that this process has held at most; 0 on Windows, which does not tell so simply."""
    if sys.platform == "linux":  # ru_maxrss begins with what the parent held
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    if sys.platform != "win32":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 0


def bench(
    task: Task,
    rounds: int,
    runtimes: Mapping[str, Peer],
    patience: float = PATIENCE,
    reference: str = "onnxruntime",
) -> list[Result]:
    """The runtimes in the given order; errors are differences from `reference`, or else from the first that works."""
    racers: dict[str, Racer] = {}
    found: dict[str, tuple[float, Mapping[str, np.ndarray], int]] = {}
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="graphc-bench-", ignore_cleanup_errors=True) as folder:
        archive = Path(folder) / "inputs.npz"
        np.savez(archive, **task.inputs)  # type: ignore[arg-type]
        loads: dict[str, float] = {}

        def ask(name: str, command: str) -> Any:
            """The answer; a runtime that has none is out of the race."""
            try:
                return racers[name].ask(command)
            except Failed as error:
                problems[name] = str(error)
                racers.pop(name).stop()
                return None

        try:
            for name, peer in runtimes.items():  # one after the other: loading is timed too
                racers[name] = Racer(peer, task, archive, patience)
                loads[name] = ask(name, "load")
            for _ in range(rounds):
                for name in list(racers):
                    if (seconds := ask(name, "run")) is not None:
                        racers[name].times.append(seconds)
            times = {name: tuple(racer.times) for name, racer in racers.items()}
            for name in list(racers):
                if (answer := ask(name, "result")) is not None:
                    found[name] = (loads[name], *answer)
        finally:
            for racer in racers.values():
                racer.stop()
    from graphc.runtime.compare import relative_error  # here: runtimes that are timed should not hold what it imports

    right = found.get(reference) or next(iter(found.values()), None)
    results = []
    for name in runtimes:
        if name in problems or right is None:
            results.append(Result(name, problem=problems[name]))
            continue
        load, outputs, peak = found[name]
        median, error = statistics.median(times[name]), relative_error(outputs, right[1])
        results.append(Result(name, load, median, min(times[name]), error, peak, times=times[name]))
    return results


def _ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is not None and -status == getattr(signal, "SIGKILL", 0):
        return "killed (SIGKILL), as the system does when memory is out"
    if status is not None and status < 0:
        return f"crashed ({signal.Signals(-status).name})"
    return f"its process ended with status {status}"
