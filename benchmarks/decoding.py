"""Weights that meet one row, as when a language model writes a token: how fast they are read, by the type they are stored in.

    python benchmarks/decoding.py
    python benchmarks/decoding.py q4_k q8_0 --threads 4 --size 2048 5632

A chain of products, 4096 x 11008 and back (the sizes of a layer of Llama 7B), larger together than any cache. Our own code
multiplies what is stored with activations in float32; ggml's, which is llama.cpp's, rounds them to 8 bits first for the types
that have blocks. Both take turns; a figure is the median of the rounds, each the median of 15 runs, in GB/s of weights. Run it on
a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import graphc

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k")
PRODUCTS, RUNS = 4, 15


def chain(narrow: int, wide: int) -> onnx.ModelProto:
    """A row through products that make it wide and narrow by turns."""
    random = np.random.default_rng(0)
    nodes, weights = [], []
    for i in range(PRODUCTS):
        shape = (narrow, wide) if i % 2 == 0 else (wide, narrow)
        array = random.standard_normal(shape, np.float32) * 0.01
        weights.append(numpy_helper.from_array(array, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, narrow]) for name in ("x0", f"x{PRODUCTS}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def bandwidth(engine: Path, threads: int, own: bool) -> float:
    """GB of weights in a second: the median of some runs. Nothing else is loaded, for ggml's threads spin behind a run."""
    model = graphc.load(engine, threads=threads)
    model.executor.uses_own = own
    (row,) = model.inputs
    values = {row.name: np.random.default_rng(1).standard_normal(row.shape, np.float32)}
    times = []
    for i in range(3 + RUNS):
        start = time.perf_counter()
        model.run(values)
        if i >= 3:
            times.append(time.perf_counter() - start)
    size = sum(array.nbytes for array in model.executor.arrays)
    model.close()
    return size / statistics.median(times) / 1e9


def main() -> None:
    """Print a line for each type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", default=TYPES, metavar="TYPE", help=f"of {', '.join(TYPES)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--size", type=int, nargs=2, default=[4096, 11008], metavar=("NARROW", "WIDE"))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    model = chain(*arguments.size)
    print("type   threads  own, GB/s  ggml, GB/s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder, "chain.gguf")
        for kind in arguments.types:
            graphc.compile(model, engine, dtype=kind).close()
            for threads in arguments.threads:
                found = [[bandwidth(engine, threads, own) for own in (True, False)] for _ in range(arguments.rounds)]
                medians = [statistics.median(each) for each in zip(*found, strict=True)]
                print(f"{kind:6} {threads:7}  {medians[0]:9.1f}  {medians[1]:10.1f}", flush=True)


if __name__ == "__main__":
    main()
