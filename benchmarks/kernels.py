"""Generated kernels in the three ways that the CPU has for them: compiled, interpreted by our own code, and evaluated by NumPy.

    python benchmarks/kernels.py [--elements 1000000] [--threads 1] [models/NAME/dynamo/model.onnx …]

Without models: typical uses of operators, with results of about so many elements. With models: the kernels of their programs, on
drawn numbers. Each row is the median of runs in this process, one of each way in turn; "ratio" is interpreted by compiled.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.ggml_library import ggml
from graphc.ir import TensorType
from graphc.ir.types import BOOL, F16, F32, F64, FLOATS, I32, I64, U8
from graphc.kernels.use import KernelUse
from graphc.ops.activations import Gelu
from graphc.ops.base import Op
from graphc.ops.indexing import Gather
from graphc.ops.movement import Concat, Pad, Slice, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.quantized import Dequantize, Quantize
from graphc.ops.reduce import Reduce
from graphc.ops.resize import Resize
from graphc.ops.sequences import Trilu
from graphc.ops.sorting import ArgMax
from graphc.shapes import integer, symbols
from graphc.targets.ggml.program.tensor import STORAGE, storage_ne
from graphc.targets.ggml.run.kernels import WAYS, kernels_by

ROUNDS = 15

RANDOM = np.random.default_rng(0)


def drawn(dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """Numbers that are good for most operators: small, and as indices the first two."""
    if dtype == BOOL:
        return RANDOM.random(shape) < 0.5
    if dtype not in FLOATS and dtype.kind in "iu":
        return RANDOM.integers(0, 2, shape).astype(dtype)
    return RANDOM.standard_normal(shape).astype(dtype)


def typical(elements: int) -> Iterator[tuple[str, KernelUse]]:
    """Uses of operators with about so many elements."""
    n = max(elements // 1024, 1)
    image = (1, 32, max(elements // 32 // 64, 1), 64)
    rows = (n, 1024)
    cases: list[tuple[str, Op, list[tuple[np.dtype, tuple[int, ...]]]]] = [
        ("a + b", Binary("Add"), [(F32, rows), (F32, rows)]),
        ("a + row", Binary("Add"), [(F32, rows), (F32, (1024,))]),
        ("a + column", Binary("Add"), [(F32, rows), (F32, (n, 1))]),
        ("a * b, rows of 16", Binary("Mul"), [(F32, (n, 64, 16)), (F32, (n, 1, 16))]),
        ("a / b, int64", Binary("Div"), [(I64, rows), (I64, rows)]),
        ("a < column", Binary("Less"), [(F32, rows), (F32, (n, 1))]),
        ("sigmoid", Unary("Sigmoid"), [(F32, rows)]),
        ("gelu", Gelu(), [(F32, rows)]),
        ("mish, float16", Unary("Mish"), [(F16, rows)]),
        ("relu, float16", Unary("Relu"), [(F16, rows)]),
        ("abs, float64", Unary("Abs"), [(F64, rows)]),
        ("where", Where(), [(BOOL, rows), (F32, rows), (F32, (1024,))]),
        ("float32 to int64", Cast(I64), [(F32, rows)]),
        ("float32 to float16", Cast(F16), [(F32, rows)]),
        ("int32 to float32", Cast(F32), [(I32, rows)]),
        ("quantize", Quantize(), [(F32, rows), (F32, ()), (U8, ())]),
        ("dequantize", Dequantize(), [(U8, rows), (F32, ()), (U8, ())]),
        ("transpose, int32", Transpose((0, 2, 1)), [(I32, (n, 32, 32))]),
        ("slice, int64", Slice((1,), (1023,), (2,)), [(I64, (2048 * n,))]),
        ("concat, int64", Concat(1), [(I64, (n, 512)), (I64, (n, 512))]),
        ("pad, reflected", Pad((0, 0, 1, 1), (0, 0, 1, 1), "reflect"), [(F32, image)]),
        ("trilu", Trilu(True), [(F32, rows)]),
        ("gather rows", Gather(0), [(F32, rows), (I64, (n,))]),
        ("resize, cubic", Resize(image, (1.0, 1.0, 2.0, 2.0), "cubic"), [(F32, (*image[:2], image[2] // 2, 32))]),
        ("resize, nearest", Resize(image, (1.0, 1.0, 1.5, 1.5)), [(F32, (*image[:2], image[2] * 2 // 3, 42))]),
        ("sum of rows", Reduce("sum", (1,), False), [(F32, rows)]),
        ("sum of columns", Reduce("sum", (0,), False), [(F32, rows)]),
        ("max of the middle", Reduce("max", (1,), False), [(F32, (n, 32, 32))]),
        ("mean of 4 x 4", Reduce("mean", (1, 3), False), [(F32, (8 * n, 4, 8, 4))]),
        ("argmax", ArgMax(1, False, False), [(F32, rows)]),
    ]
    for name, op, inputs in cases:
        (result,) = op.infer(*(TensorType(dtype, shape) for dtype, shape in inputs))
        yield name, KernelUse(op, tuple(inputs), result.dtype, result.shape)


def of_model(path: Path) -> Iterator[tuple[str, KernelUse]]:
    """The kernels of a program."""
    for use in graphc.compile(path).executor.program.kernels:
        yield f"{path.parent.parent.name}: {use.op}", use


def runs(use: KernelUse, threads: int) -> tuple[dict[str, Callable[[], Any]], list[Any]]:
    """What computes a kernel once, by each way, and what must live as long."""
    binding = dict.fromkeys(use.sizes() | set(symbols(*use.shape)), 8)
    found: dict[str, Callable[[], Any]] = {}
    shapes = [tuple(integer(size, binding) for size in shape) for _, shape in use.inputs]
    arrays = [drawn(dtype, shape) for (dtype, _), shape in zip(use.inputs, shapes, strict=True)]
    shape = tuple(integer(size, binding) for size in use.shape)
    size = sum(array.nbytes for array in arrays) + int(np.prod(shape)) * use.dtype.itemsize
    alive: list[Any] = []
    for way in WAYS:
        (kernel,) = kernels_by(way, [use])
        context = ggml.ggml_init(ggml.ggml_init_params(mem_size=size + (1 << 20), mem_buffer=None, no_alloc=False))
        inputs = []
        for array in arrays:
            tensor = ggml.ggml_new_tensor_4d(context, type_of(array.dtype), *storage_ne(array.shape))
            ctypes.memmove(tensor.contents.data, np.ascontiguousarray(array).ctypes.data, array.nbytes)
            inputs.append(tensor)
        pointers = (ctypes.POINTER(ggml.ggml_tensor) * max(len(inputs), 1))(*inputs)
        userdata = kernel.userdata(binding)
        address = ctypes.cast(userdata, ctypes.c_void_p)
        result = ggml.ggml_custom_4d(
            context, type_of(use.dtype), *storage_ne(shape), pointers, len(inputs), kernel.function, -1, address
        )
        graph = ggml.ggml_new_graph(context)
        ggml.ggml_build_forward_expand(graph, result)
        alive += [kernel, userdata, context]
        found[way] = lambda context=context, graph=graph: ggml.ggml_graph_compute_with_ctx(context, graph, threads)
    return found, alive


def type_of(dtype: np.dtype) -> int:
    return int(getattr(ggml, f"GGML_TYPE_{STORAGE[dtype]}"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files")
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="only those with this in their name")
    arguments = parser.parse_args()
    uses = [each for path in arguments.models for each in of_model(path)] or list(typical(arguments.elements))
    ratios, totals = [], dict.fromkeys(WAYS, 0.0)
    print(f"| kernel | {' | '.join(WAYS)} | ratio |\n| --- |{' --- |' * (len(WAYS) + 1)}")
    for name, use in uses:
        if arguments.only not in name:
            continue
        ways, alive = runs(use, arguments.threads)
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, run in ways.items():
                start = time.perf_counter()
                run()
                times[way].append(time.perf_counter() - start)
        medians = {way: statistics.median(each) for way, each in times.items()}
        for way, seconds in medians.items():
            totals[way] += seconds
        ratios.append(medians["interpreted"] / medians["compiled"])
        shown = " | ".join(f"{1e6 * seconds:.1f} us" for seconds in medians.values())
        print(f"| {name} | {shown} | {ratios[-1]:.2f} |", flush=True)
        for each in alive[2::3]:
            ggml.ggml_free(each)
    shown = " | ".join(f"{1e3 * seconds:.2f} ms" for seconds in totals.values())
    print(f"| all | {shown} | {totals['interpreted'] / totals['compiled']:.2f} |")
    print(f"\ngeometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
