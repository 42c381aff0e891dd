"""How long models take in a loop, where they are called now and then, and beside a program that always computes.

    python examples/export.py mobilenet_v2_full resnet50 --exporter dynamo --output models
    python benchmarks/threads.py models/*/dynamo/model.onnx
    python benchmarks/threads.py --runtime graphc --runtime onnxruntime --rounds 5 --seconds 1 model.onnx

Each runtime is a process of its own, which waits for work in its own way. They take turns, and a figure is the median of the
rounds, each the median of its runs, in milliseconds. Then what threads have to wait for: the steps of a run, and how many of them
follow one another because one needs what the other makes, or its memory; the rest may overlap. Run it on a machine that has
nothing else to do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import graphc
from graphc.ggml_library import ggml
from graphc.runtime.arrays import completed
from graphc.runtime.peers import PEERS, Task, chosen_peers
from graphc.targets.ggml.run.device.tensors import VIEW_OPS, address

Span: TypeAlias = tuple[int, int]

SPAWN = multiprocessing.get_context("spawn")

CONDITIONS = {"in a loop": (0.0, False), "every 5 ms": (0.005, False), "beside another program": (0.0, True)}
"""Seconds of sleep before each run, and whether another program computes, with one thread."""


def compute_forever() -> None:
    """What other programs do."""
    while True:
        pass


def measure(runtime: str, task: Task, seconds: float, pause: float, pipe: Any) -> None:
    """Send the median of the runs that so many seconds have room for."""
    run = PEERS[runtime].prepare(task)
    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        if pause:
            time.sleep(pause)
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    pipe.send(statistics.median(times))


def measured(runtime: str, task: Task, seconds: float, pause: float, busy: bool) -> float:
    """The same, in a process of its own."""
    with ExitStack() as undo:
        if busy:
            other = SPAWN.Process(target=compute_forever, daemon=True)
            other.start()
            undo.callback(other.kill)
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=measure, args=(runtime, task, seconds, pause, theirs))
        process.start()
        theirs.close()
        try:
            return float(ours.recv())
        except EOFError:
            return float("nan")
        finally:
            process.join()


def spans(tensor: Any) -> Span:
    """The bytes of a tensor, from the first to behind the last."""
    begin = tensor.contents.data or 0
    return begin, begin + ggml.ggml_nbytes(tensor) if begin else 0


def counts(model: graphc.Model) -> tuple[int, int]:
    """The steps of the graphs of a model that has run, and the longest chain of those that wait for one another."""
    steps = chain = 0
    for graph in model.executor.graphs:
        done: list[tuple[Span, list[Span], int]] = []  # what a step writes, what it reads, its place in a chain
        for node in graph.placement.nodes:
            if node.contents.op in VIEW_OPS:
                continue
            reads, writes = [spans(each) for each in node.contents.src if each and address(each)], spans(node)
            before = [
                place
                for wrote, read, place in done
                if any(begin < writes[1] and writes[0] < end for begin, end in (wrote, *read))
                or any(begin < wrote[1] and wrote[0] < end for begin, end in reads)
            ]
            done.append((writes, reads, 1 + max(before, default=0)))
        steps += len(done)
        chain += max((place for *_, place in done), default=0)
    return steps, chain


def main() -> None:
    """Prints a line for each model and condition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument(
        "--runtime", action="append", default=[], help="graphc, onnxruntime, openvino; all that are installed"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    runtimes = given.runtime or [each for each in ("graphc", "onnxruntime", "openvino") if PEERS[each].installed]
    chosen_peers(runtimes, "")
    print("| model | | " + " | ".join(runtimes) + " |\n" + "| --- " * (len(runtimes) + 2) + "|")
    for path in given.models:
        model = graphc.compile(path, threads=given.threads)
        inputs = completed(model.program, {}, {}, 0).arrays
        task = Task(path, inputs, tuple(each.name for each in model.program.outputs), given.threads, alone=True)
        for condition, (pause, busy) in CONDITIONS.items():
            found = {runtime: list[float]() for runtime in runtimes}
            for _ in range(given.rounds):
                for runtime in runtimes:
                    found[runtime].append(measured(runtime, task, given.seconds, pause, busy))
            medians = (f"{statistics.median(times) * 1e3:.2f}" for times in found.values())
            print(f"| {path} | {condition} | " + " | ".join(medians) + " |", flush=True)
        model.run(inputs)
        steps, chain = counts(model)
        print(f"| {path} | {steps} steps, {chain} one after the other |" + " |" * len(runtimes), flush=True)


if __name__ == "__main__":
    main()
