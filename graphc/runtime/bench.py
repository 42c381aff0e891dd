"""Side by side with the other runtimes that are installed: each in a process of its own, one run of each in turn."""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

Run: TypeAlias = Callable[[], Mapping[str, np.ndarray]]
Inputs: TypeAlias = Mapping[str, np.ndarray]

SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Result:
    """One runtime: seconds to load the model and of the median and the fastest run, the largest difference from the
    reference in units of its largest number, and the process's peak memory. `problem` says why there are no numbers."""

    runtime: str
    load: float = 0.0
    median: float = 0.0
    fastest: float = 0.0
    error: float | None = None
    peak_bytes: int = 0
    problem: str = ""
    times: tuple[float, ...] = ()


def _graphc(path: Path, inputs: Inputs, threads: int) -> Run:
    import graphc
    from graphc.runtime.session import is_engine

    model = (graphc.load if is_engine(path) else graphc.compile)(path, threads=threads)
    return lambda: model.run(inputs)


def _ggml(path: Path, inputs: Inputs, threads: int) -> Run:
    """The same program, with ggml's own products."""
    import graphc

    model = graphc.compile(path, threads=threads)
    model.executor.products = None
    return lambda: model.run(inputs)


def _onnxruntime(path: Path, inputs: Inputs, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # between runs the others compute
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _openvino(path: Path, inputs: Inputs, threads: int) -> Run:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Core().compile_model(path, "CPU", settings)
    names = [output.get_any_name() for output in model.outputs]
    return lambda: {name: array.copy() for name, array in zip(names, model(dict(inputs)).values(), strict=True)}


RUNTIMES: Mapping[str, tuple[str, Callable[[Path, Inputs, int], Run]]] = {
    "graphc": ("graphc", _graphc),
    "graphc, ggml's products": ("graphc", _ggml),
    "onnxruntime": ("onnxruntime", _onnxruntime),
    "openvino": ("openvino", _openvino),
}
"""Each by its name: the package that it needs, and how it makes a model ready to run."""


class Racer:
    """A runtime in its own process."""

    def __init__(self, runtime: str, path: Path, archive: Path, threads: int) -> None:
        self.pipe, other = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(runtime, path, archive, threads, other), daemon=True)
        self.process.start()
        other.close()

    def ask(self, command: str) -> Any:
        """The answer to a command. Raises EOFError if the process ends instead."""
        self.pipe.send(command)
        return self.pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def serve(runtime: str, path: Path, archive: Path, threads: int, pipe: Connection) -> None:
    """A racer's process: load, then run or answer what it is asked."""
    with np.load(archive) as stored:
        inputs = dict(stored)
    start = perf_counter()
    try:
        run = RUNTIMES[runtime][1](path, inputs, threads)
        loaded = perf_counter() - start
        results = run()
    except Exception as error:
        pipe.recv()
        pipe.send(f"{type(error).__name__}: {error}")
        return
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
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def bench(path: Path, inputs: Inputs, threads: int, rounds: int, runtimes: Sequence[str] | None = None) -> list[Result]:
    """Every runtime that is installed (or the given ones), in the table's order; the reference of errors is onnxruntime, or
    else the first that works."""
    chosen = [
        name for name in RUNTIMES if (runtimes is None and find_spec(RUNTIMES[name][0])) or name in (runtimes or ())
    ]
    with tempfile.TemporaryDirectory(prefix="graphc-bench-") as folder:
        archive = Path(folder) / "inputs.npz"
        np.savez(archive, **inputs)  # type: ignore[arg-type]
        racers: dict[str, Racer] = {}
        results = {name: Result(name) for name in chosen}
        loads: dict[str, float] = {}
        try:
            for name in chosen:
                racer = Racer(name, path, archive, threads)
                answer = _answer(racer, "load")
                if isinstance(answer, str):
                    results[name] = Result(name, problem=answer)
                    racer.stop()
                else:
                    racers[name], loads[name] = racer, answer
            times: dict[str, list[float]] = {name: [] for name in racers}
            for _ in range(rounds):
                for name, racer in racers.items():
                    times[name].append(racer.ask("run"))
            answers = {name: racer.ask("result") for name, racer in racers.items()}
        finally:
            for racer in racers.values():
                racer.stop()
    reference = answers.get("onnxruntime") or next(iter(answers.values()), None)
    for name, (outputs, peak) in answers.items():
        error = None if reference is None else _difference(outputs, reference[0])
        median, fastest = statistics.median(times[name]), min(times[name])
        results[name] = Result(name, loads[name], median, fastest, error, peak, times=tuple(times[name]))
    return list(results.values())


def _answer(racer: Racer, command: str) -> Any:
    try:
        return racer.ask(command)
    except (EOFError, OSError):
        racer.process.join()
        return f"its process ended with status {racer.process.exitcode}"


def _difference(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> float:
    """The largest difference of numbers, in units of the largest of each output."""
    worst = 0.0
    for name, right in reference.items():
        if name not in outputs or right.dtype.kind not in "fiu" or not right.size:
            continue
        wide = right.astype(np.float64)
        scale = max(float(np.abs(wide).max()), 1e-30)
        worst = max(worst, float(np.abs(outputs[name].astype(np.float64) - wide).max()) / scale)
    return worst
