"""Runs cases in worker processes, so that one that crashes or hangs is one failure."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait

from .cases import Case, load_cases
from .run import Outcome, quick_kernels, run_case

Work = Callable[[Case], Outcome]

WORKERS = 2
TIME_LIMIT = 120.0
"""Seconds for one case; a worker's first includes its start."""

SPAWN = multiprocessing.get_context("spawn")
"""A forked worker hangs in ggml when its parent has computed anything: OpenMP's threads do not survive a fork."""


class Worker:
    """A process that runs one case at a time; started again after a crash."""

    def __init__(self, cases: Sequence[Case], work: Work) -> None:
        self.cases, self.work = cases, work
        self.case: int | None = None
        self.deadline = 0.0
        self.start()

    def start(self) -> None:
        self.pipe, other = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(other, self.work), daemon=True)
        self.process.start()
        other.close()

    def give(self, case: int) -> None:
        self.case, self.deadline = case, time.monotonic() + TIME_LIMIT
        self.pipe.send(self.cases[case].key)

    def result(self) -> Outcome | None:
        """The outcome of the case, or None while it runs."""
        assert self.case is not None
        case = self.cases[self.case]
        try:
            if self.pipe.poll():
                return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return self._restarted(case, "crash", f"exit status {self.process.exitcode}")
        if time.monotonic() > self.deadline:
            return self._restarted(case, "timeout", f"more than {TIME_LIMIT:.0f} s")
        return None

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _restarted(self, case: Case, status: str, reason: str) -> Outcome:
        self.stop()
        self.start()
        return Outcome(case.group, case.name, status, reason)


def serve(pipe: Connection, work: Work) -> None:
    """The worker's side: run what it is told to, until it is killed."""
    os.environ["GGML_NO_BACKTRACE"] = "1"
    quick_kernels()
    cases = {case.key: case for case in load_cases()}
    while True:
        pipe.send(work(cases[pipe.recv()]))


def run_all(cases: Sequence[Case], work: Work = run_case) -> list[Outcome]:
    """The outcome of every case, in order. `work` is a function of a module, or a partial one: it goes to the workers."""
    workers = [Worker(cases, work) for _ in range(min(WORKERS, len(cases)))]
    outcomes: dict[int, Outcome] = {}
    waiting = list(range(len(cases)))[::-1]
    try:
        while len(outcomes) < len(cases):
            for worker in workers:
                if worker.case is not None and (outcome := worker.result()) is not None:
                    outcomes[worker.case] = outcome
                    worker.case = None
                if worker.case is None and waiting:
                    worker.give(waiting.pop())
            wait([worker.pipe for worker in workers if worker.case is not None], timeout=1.0)
    finally:
        for worker in workers:
            worker.stop()
    return [outcomes[index] for index in range(len(cases))]
