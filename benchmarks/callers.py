"""Runs per second of one model with 1, 2, … threads of a program calling it, each run computed by one thread.

    python benchmarks/callers.py                    # the demonstration's model, a convolution, a product
    python benchmarks/callers.py model.onnx         # or one of yours, on random inputs
    python benchmarks/callers.py --callers 4 --seconds 2 --rounds 5

Where there are as many processors as callers, n callers should make nearly n times the runs of one. The numbers of callers take
turns, and a figure is the median of the rounds. Every result is compared with that of a single caller, bit for bit. onnxruntime
does the same beside it, where it is installed.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphc
from graphc.runtime.arrays import completed
from graphc.runtime.busy import Watch

Arrays = Mapping[str, np.ndarray]
Run = Callable[[Arrays], Mapping[str, np.ndarray]]


def layers(operator: str, shape: tuple[int, ...], weight: tuple[int, ...], **attributes: object) -> onnx.ModelProto:
    """Four layers of one operator, which leave a tensor's shape as it is, with activations between."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for number in range(4):
        array = random.standard_normal(weight).astype(np.float32) / np.float32(np.prod(weight[1:]) ** 0.5)
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        nodes.append(helper.make_node(operator, [last, f"w{number}"], [f"p{number}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"p{number}"], [last := f"h{number}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", last)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def models(given: Path | None) -> dict[str, onnx.ModelProto]:
    """What is measured, by name."""
    if given is not None:
        return {given.name: onnx.load(given)}
    return {
        "digits": onnx.load_from_string((files("graphc.demo") / "digits.onnx").read_bytes()),
        "convolutions": layers("Conv", (1, 64, 64, 64), (64, 64, 3, 3), pads=[1, 1, 1, 1]),
        "products": layers("MatMul", (128, 512), (512, 512)),
    }


def of_graphc(proto: onnx.ModelProto, callers: int) -> Run:
    """A thread for each caller: those who run at once share them, so that each has one."""
    return graphc.compile(proto, threads=callers).run


def of_onnxruntime(proto: onnx.ModelProto, callers: int) -> Run:
    """One thread for each run, whoever calls."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def rate(run: Run, inputs: Arrays, expected: Arrays, callers: int, seconds: float) -> float:
    """Runs per second. Raises AssertionError for a result that a single caller would not have got."""
    counts, wrong = [0] * callers, []
    start = threading.Barrier(callers + 1)

    def call(caller: int) -> None:
        start.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            found = run(inputs)
            counts[caller] += 1
        wrong.extend(name for name, array in found.items() if array.tobytes() != expected[name].tobytes())

    threads = [threading.Thread(target=call, args=(each,)) for each in range(callers)]
    for each in threads:
        each.start()
    start.wait()
    began = time.perf_counter()
    for each in threads:
        each.join()
    assert not wrong, f"wrong results: {wrong}"
    return sum(counts) / (time.perf_counter() - began)


def measure(name: str, proto: onnx.ModelProto, options: argparse.Namespace) -> None:
    """Print a row for each runtime."""
    inputs = completed(graphc.compile(proto, threads=1).program, {}, {}, 0).arrays
    runtimes = {"graphc": of_graphc}
    if find_spec("onnxruntime"):
        runtimes["onnxruntime"] = of_onnxruntime
    runs = {
        (kind, callers): make(proto, callers)
        for kind, make in runtimes.items()
        for callers in range(1, options.callers + 1)
    }
    expected = {kind: runs[kind, 1](inputs) for kind in runtimes}
    found: dict[tuple[str, int], list[float]] = {each: [] for each in runs}
    with Watch(options.callers) as watch:
        for _ in range(options.rounds):
            for (kind, callers), run in runs.items():
                found[kind, callers].append(rate(run, inputs, expected[kind], callers, options.seconds))
    for kind in runtimes:
        rates = [statistics.median(found[kind, callers]) for callers in range(1, options.callers + 1)]
        cells = [f"{each:,.1f} ({each / rates[0]:.2f})" for each in rates]
        print(f"| {name} | {kind} | {' | '.join(cells)} |", flush=True)
    if watch.warning:
        print(watch.warning)


def main() -> None:
    """Print a table: runs per second, and in parentheses how many times those of one caller."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--callers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each figure is measured")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    numbers = [f"{count} caller{'s'[: count - 1]}" for count in range(1, options.callers + 1)]
    print(f"| model | runtime | {' | '.join(numbers)} |\n| --- | --- |{' --- |' * len(numbers)}")
    for name, proto in models(options.model).items():
        measure(name, proto, options)


if __name__ == "__main__":
    main()
