"""What `--fast` gains and costs on the CPU: seconds and errors beside those of float32, by turns in one process.

    python benchmarks/fast.py                                    # products, convolutions and attention of some sizes
    python examples/export.py --exporter dynamo --output models sd15_clip
    python benchmarks/fast.py models/sd15_clip/dynamo --runs 7   # model.onnx, with inputs.npz and outputs.npz beside it

Seconds are those that the process computes, with one thread, so that what other programs do meanwhile counts little: the least
of all runs. Errors are the root mean square of an output's, relative to the output's, and the largest, relative to its largest
element.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

import graphc
from graphc.ir.graph import Graph
from graphc.ir.types import TensorType
from graphc.ops.attention import Attention
from graphc.ops.base import Op
from graphc.ops.conv import Conv
from graphc.ops.matmul import MatMul
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.run.executor import Executor

Arrays = Mapping[str, np.ndarray]

SAME = Conv((1, 1), (1, 1), (1, 1), (1, 1))
ONE = Conv((1, 1), (1, 1), (0, 0), (0, 0))

SHAPES: list[tuple[Op, list[tuple[int, ...]]]] = [
    (MatMul(), [(1024, 1024), (1024, 1024)]),
    (MatMul(), [(4096, 320), (320, 2560)]),
    (SAME, [(1, 320, 64, 64), (320, 320, 3, 3)]),
    (SAME, [(1, 640, 32, 32), (640, 640, 3, 3)]),
    (SAME, [(1, 1280, 16, 16), (1280, 1280, 3, 3)]),
    (SAME, [(1, 1280, 8, 8), (1280, 1280, 3, 3)]),
    (ONE, [(1, 320, 64, 64), (320, 320, 1, 1)]),
    (SAME, [(1, 512, 64, 64), (512, 512, 3, 3)]),
    (SAME, [(1, 512, 128, 128), (512, 512, 3, 3)]),
    (SAME, [(1, 256, 256, 256), (256, 256, 3, 3)]),
    (SAME, [(1, 128, 512, 512), (128, 128, 3, 3)]),
    (Attention(0.15), [(1, 8, 4096, 40)] * 3),
    (Attention(0.11), [(1, 8, 1024, 80)] * 3),
]
"""Operators and their operands' shapes: those of SD 1.5's U-Net and of its VAE's decoder, and a large square product."""

PRECISIONS = ("highest", "high")


def errors(got: Arrays, expected: Arrays) -> tuple[float, float]:
    """The larger of all outputs' errors: their root mean square, and the largest."""
    means, largest = [], []
    for name, wanted in expected.items():
        error = got[name].astype(np.float64) - wanted
        means.append(float(np.sqrt((error**2).sum() / (wanted.astype(np.float64) ** 2).sum())))
        largest.append(float(np.abs(error).max() / np.abs(wanted).max()))
    return max(means), max(largest)


def seconds(runs: list[Callable[[], object]], times: int) -> list[float]:
    """The least seconds of each, by turns."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(times):
        for run, each in zip(runs, found, strict=True):
            start = time.process_time()
            run()
            each.append(time.process_time() - start)
    return [min(each) for each in found]


def row(name: str, usual: Callable[[], Arrays], fast: Callable[[], Arrays], expected: Arrays | None, times: int) -> str:
    """A line of the table. Without what is expected, errors are differences from float32."""
    exact = usual()
    mean, largest = errors(fast(), exact if expected is None else expected)
    before, after = seconds([usual, fast], times)
    return f"| {name} | {before:.4f} | {after:.4f} | {after / before:.2f} | {mean:.1e} | {largest:.1e} |"


def of_model(folder: Path, times: int) -> str:
    """A model's line."""
    inputs, expected = (dict(np.load(folder / f"{name}.npz")) for name in ("inputs", "outputs"))
    runs = []
    for precision in PRECISIONS:
        graphc.set_float32_matmul_precision(precision)
        model = graphc.compile(folder / "model.onnx", threads=1)
        runs.append(lambda model=model: dict(model.run(inputs)))
    return row(folder.parent.name, *runs, expected, times)


def of_operator(op: Op, shapes: list[tuple[int, ...]], times: int) -> str:
    """An operator's line."""
    random = np.random.default_rng(1)
    arrays = {f"x{i}": random.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    graph = Graph()
    values = [graph.input(name, TensorType(each.dtype, each.shape)) for name, each in arrays.items()]
    graph.output(graph.add(op, values).output, "y")
    runs = []
    for precision in PRECISIONS:
        graphc.set_float32_matmul_precision(precision)
        executor = Executor(lower(graph), [], threads=1)
        runs.append(lambda executor=executor: {"y": executor.run(arrays, {})[0]})
    name = " ".join([type(op).__name__, *("x".join(map(str, shape)) for shape in shapes[:2])])
    return row(name, *runs, None, times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", help="folders of exported models")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    print("| | float32, s | fast, s | ratio | error, mean | error, largest |\n| --- | --- | --- | --- | --- | --- |")
    for folder in args.models:
        print(of_model(folder, args.runs), flush=True)
    for op, shapes in () if args.models else SHAPES:
        print(of_operator(op, shapes, args.runs), flush=True)


if __name__ == "__main__":
    main()
