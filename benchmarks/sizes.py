"""One engine at several sizes: time of the first run and of the next ones, and peak memory, beside onnxruntime.

    python examples/export.py --exporter dynamo --dynamic --output dyn sd15_unet
    python benchmarks/sizes.py dyn/sd15_unet/dynamo/model.onnx batch=1,height=32,width=32 batch=1,height=64,width=96

Each runtime meets the sizes in order, in a process of its own; memory is the process's peak up to then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from pathlib import Path
from time import perf_counter

import numpy as np

import graphc
from graphc.runtime.arrays import random_inputs
from graphc.runtime.bench import peak_memory

SPAWN = multiprocessing.get_context("spawn")


def ours(path: Path, sizes: list[dict[str, int]], threads: int, results) -> None:
    engine = path.with_suffix(".gguf")
    graphc.compile(path, engine)
    model = graphc.load(engine, threads=threads)
    measure(sizes, lambda inputs: model.run(inputs), model.program.inputs, results)


def theirs(path: Path, sizes: list[dict[str, int]], threads: int, results) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options)
    inputs = graphc.load(path.with_suffix(".gguf")).program.inputs
    measure(sizes, lambda given: session.run(None, given), inputs, results)


def measure(sizes, run, declared, results) -> None:
    found = []
    for each in sizes:
        inputs = random_inputs(declared, each, 0)
        inputs = {name: np.clip(array, -3, 3) if array.dtype.kind == "f" else array for name, array in inputs.items()}
        times = []
        for _ in range(4):
            start = perf_counter()
            run(inputs)
            times.append(perf_counter() - start)
        found.append((times[0], statistics.median(times[1:]), peak_memory()))
    results.put(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("sizes", nargs="+", help="NAME=SIZE,NAME=SIZE ...")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    sizes = [
        {name: int(size) for name, size in (pair.split("=") for pair in text.split(","))} for text in arguments.sizes
    ]
    columns = []
    for runtime in (ours, theirs):
        results = SPAWN.Queue()
        process = SPAWN.Process(target=runtime, args=(arguments.model, sizes, arguments.threads, results))
        process.start()
        columns.append(results.get())
        process.join()
    print("| sizes | graphc: first run | next | peak | onnxruntime: first | next | peak |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for text, *rows in zip(arguments.sizes, *columns, strict=True):
        cells = [f"{first:.2f} s | {later:.2f} s | {peak / 2**30:.2f} GiB" for first, later, peak in rows]
        print(f"| {text.replace(',', ', ')} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
