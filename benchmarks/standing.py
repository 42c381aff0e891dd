"""The standing set: models of the zoo at full size beside every runtime that is installed, as tables for `benchmarks/results`.

    python examples/export.py --output models sd15_unet resnet50 …
    python benchmarks/standing.py models --rounds 5 --json standing.json

Takes the models that lie in the folder, or those that are named. Times are medians, one run of each runtime in turn; errors are
differences from PyTorch's own outputs. "elsewhere" is graphc's time in anything that is no product, convolution or attention,
each step timed by itself. Run it on a machine that has nothing else to do. The runtimes hold a model at the same time: where
memory is short (the U-Net takes 4 to 6 GB in each), name some with --runtime.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

import graphc
from graphc.commands.bench import machine_name, versions
from graphc.commands.output import bytes_text, seconds_text
from graphc.runtime.bench import SPAWN, Result, bench
from graphc.runtime.peers import PEERS, Peer, Run, Task, chosen_peers
from graphc.runtime.profile import is_product, profile

EXAMPLES = Path(__file__).parent.parent / "examples"
REFERENCE = "PyTorch when exporting"


def stored_outputs(path: Path, task: Task) -> Run:
    """What PyTorch gave when the model was exported."""
    with np.load(path) as stored:
        outputs = dict(stored)
    return lambda: outputs


def task_of(folder: Path, name: str, threads: int) -> Task:
    """The model in a folder that `examples/export.py` wrote, and how the zoo makes it in PyTorch."""
    from zoo import EXAMPLES as ZOO

    with np.load(folder / "inputs.npz") as inputs, np.load(folder / "outputs.npz") as outputs:
        origin = f"{ZOO[name].build.__module__}:{name}.build"
        return Task(folder / "model.onnx", dict(inputs), tuple(outputs), threads, origin)


def elsewhere(task: Task) -> float:
    """The share of time in steps that are no products, in a profile."""
    steps = profile(graphc.compile(task.path, threads=task.threads), task.inputs, rounds=3)
    return sum(each.seconds for each in steps if not is_product(each.step)) / sum(each.seconds for each in steps)


def cell(result: Result, text: str) -> str:
    return result.problem.partition(":")[0].partition(" (")[0] if result.problem else text


def table(head: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n| {head} | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="the folder into which examples/export.py wrote")
    parser.add_argument("names", nargs="*", help="models of it; all if not given")
    parser.add_argument("--runtime", action="append", choices=list(PEERS), help="only this one; may be repeated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, str(EXAMPLES))
    names = arguments.names or sorted(path.parent.parent.name for path in arguments.models.glob("*/dynamo/model.onnx"))
    peers = chosen_peers(arguments.runtime, "zoo")
    found: dict[str, list[Result]] = {}
    shares: dict[str, float] = {}
    for name in names:
        folder = arguments.models / name / "dynamo"
        task = task_of(folder, name, arguments.threads)
        reference = {REFERENCE: Peer("numpy", partial(stored_outputs, folder / "outputs.npz"))}
        found[name] = bench(task, arguments.rounds, {**peers, **reference}, reference=REFERENCE)[:-1]
        with SPAWN.Pool(1) as pool:
            shares[name] = pool.apply(elsewhere, (task,))
        print(
            f"{name}: " + ", ".join(f"{each.runtime} {cell(each, seconds_text(each.median))}" for each in found[name]),
            file=sys.stderr,
        )
    used = ", ".join(f"{name} {number}" for name, number in versions().items())
    print(f"{machine_name()}, {arguments.threads} threads, medians of {arguments.rounds}; {used}")
    times = [
        [name, *(cell(each, seconds_text(each.median)) for each in found[name]), f"{100 * shares[name]:.1f}%"]
        for name in names
    ]
    table("time", [*peers, "elsewhere"], times)
    table(
        "peak memory",
        list(peers),
        [[name, *(cell(each, bytes_text(each.peak_bytes)) for each in found[name])] for name in names],
    )
    table(
        "error",
        list(peers),
        [[name, *(cell(each, f"{each.error or 0:.1e}") for each in found[name])] for name in names],
    )
    if arguments.json:
        results = {
            name: {"elsewhere": shares[name], "runtimes": [asdict(each) for each in found[name]]} for name in names
        }
        about = {"machine": machine_name(), "threads": arguments.threads, "versions": versions()}
        arguments.json.write_text(json.dumps({**about, "models": results}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
