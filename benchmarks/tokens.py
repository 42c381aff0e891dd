"""Writing tokens one by one, with a cache that grows: a language model as exporters write it, beside onnxruntime.

    python benchmarks/tokens.py decoder.onnx --past 32 1000
    python benchmarks/tokens.py decoder.onnx decoder-q8_0.gguf --threads 1 2

Keys and values are inputs and outputs, and have one token more in each step: `past_key_0` takes what `key_0` was (the names of
the zoo), or `past_key_values.0.key` what `present.0.key` was (Optimum's). Processes take turns, each with its model alone; a
figure is the median of their medians, in milliseconds for a token. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

Step = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def by_graphc(path: Path, threads: int) -> tuple[dict[str, Any], Step]:
    """The shapes of the inputs, and what runs a model."""
    import graphc

    model = (graphc.load if path.suffix == ".gguf" else graphc.compile)(path, threads=threads)
    return {each.name: each.shape for each in model.inputs}, model.run


def by_onnxruntime(path: Path, threads: int) -> tuple[dict[str, Any], Step]:
    """The same."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    shapes = {each.name: each.shape for each in session.get_inputs()}
    return shapes, lambda given: dict(zip(names, session.run(None, dict(given)), strict=True))


RUNTIMES = {"graphc": by_graphc, "onnxruntime": by_onnxruntime}


def next_of(name: str) -> str:
    """The output that an input of the cache has in the next step."""
    if name.startswith("past_key_values."):
        return name.replace("past_key_values", "present")
    return name.removeprefix("past_")


def measure(runtime: str, path: Path, threads: int, past: int, steps: int) -> float:
    """Seconds that a token takes, the median of so many, after so many in the cache."""
    shapes, run = RUNTIMES[runtime](path, threads)
    random = np.random.default_rng(0)
    cache = {
        name: (random.standard_normal((1, shape[1], past, shape[3])) * 0.1).astype(np.float32)
        for name, shape in shapes.items()
        if name.startswith("past")
    }
    ids, times = np.array([[1]]), []
    for step in range(steps):
        known = {
            "input_ids": ids,
            "attention_mask": np.ones((1, past + step + 1), np.int64),
            "position_ids": np.array([[past + step]]),
        }
        given = {name: array for name, array in known.items() if name in shapes}
        start = perf_counter()
        found = run({**given, **cache})
        times.append(perf_counter() - start)
        ids = found["logits"][:, -1:].argmax(-1)
        cache = {name: found[next_of(name)] for name in cache}
    return statistics.median(times[steps // 10 + 1 :])


def main() -> None:
    """Print a line for each model, number of threads and cache."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--past", type=int, nargs="+", default=[32, 1000], help="tokens in the cache at first")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=RUNTIMES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        (path,), (threads,), (past,) = arguments.models, arguments.threads, arguments.past
        print(measure(arguments.one, path, threads, past, arguments.steps))
        return
    print(f"{'model':24} threads   past  graphc  onnxruntime  ratio", flush=True)
    for path in arguments.models:
        runtimes = ["graphc"] if path.suffix == ".gguf" else list(RUNTIMES)
        for threads in arguments.threads:
            for past in arguments.past:
                found: dict[str, list[float]] = {name: [] for name in runtimes}
                for _ in range(arguments.rounds):
                    for name, each in found.items():
                        options = [f"--threads={threads}", f"--past={past}", f"--steps={arguments.steps}"]
                        command = [sys.executable, __file__, str(path), *options, f"--one={name}"]
                        each.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
                own, *others = (1e3 * statistics.median(each) for each in found.values())
                beside = f"{others[0]:12.1f} {own / others[0]:6.2f}" if others else ""
                print(f"{path.name:24} {threads:7} {past:6} {own:7.1f} {beside}", flush=True)


if __name__ == "__main__":
    main()
