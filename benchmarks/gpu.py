"""Generated kernels on a GPU: products and convolutions of Stable Diffusion, by schedule, beside PyTorch where it has the device.

    python benchmarks/gpu.py --device "cuda0 (generated)" --output results.json

prints a row for each shape: the best schedule, its time, TFLOP/s and error, and PyTorch's time (channels last, float16, the
best of eager and, with --compile, torch.compile). Every measurement is a line of the JSON file: device, shape, schedule, seconds.
A time is the median of graphs of several launches each, whose operands change places so that the cache does not hold them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.backends.generated import check_devices
from graphc.backends.launches import Counters, Launch, Module, Place, Scratch, Work
from graphc.backends.load import load_backends
from graphc.ggml_library import ggml
from graphc.ir.types import F16, F32
from graphc.kernels.gpu.code import code_for
from graphc.kernels.gpu.dialect import Divisor
from graphc.kernels.gpu.launch import arguments, grid
from graphc.kernels.gpu.render.cuda import Rendered, file_of, render
from graphc.kernels.gpu.schedule import Schedule, parsed
from graphc.kernels.gpu.skeletons.contraction import Beside, Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import Window, images, kernels, matrix
from graphc.kernels.scalar import Kernel, Scalar
from graphc.shapes import integer
from graphc.targets.ggml.run.device.devices import features, find_device

SCHEDULES = (
    "m128n128k32 w64x32 s3 z1", "m128n128k32 w64x64 s3 z1", "m128n128k64 w64x32 s3 z1", "m128n64k32 w64x32 s4 z1",
    "m64n64k64 w32x32 s4 z1", "m256n128k32 w64x64 s3 z1", "m128n256k32 w64x64 s3 z1",
    "m128n64k64 w32x32 s3 z4", "m64n64k64 w32x32 s4 z4", "m128n128k32 w64x32 s3 z4",
)  # fmt: skip

REPEAT, ROUNDS = 20, 7
"""Launches of a graph, and graphs that are timed."""


@dataclass(frozen=True)
class Shape:
    """A convolution of images [count, size, size, channels], or with one tap and `size` 1 a product of `count` rows."""

    name: str
    count: int
    size: int
    channels: int
    results: int
    taps: int = 1

    @property
    def rows(self) -> int:
        """Rows of the matrix of results."""
        return self.count * self.size * self.size

    @property
    def operations(self) -> float:
        """Floating-point operations."""
        return 2.0 * self.rows * self.results * self.channels * self.taps**2


SHAPES = (
    Shape("product 4096", 4096, 1, 4096, 4096), Shape("product 8192", 8192, 1, 8192, 8192),
    Shape("SD 1.5 conv 64x64 320", 2, 64, 320, 320, 3), Shape("SD 1.5 conv 32x32 640", 2, 32, 640, 640, 3),
    Shape("SD 1.5 conv 16x16 1280", 2, 16, 1280, 1280, 3), Shape("SD 1.5 conv 8x8 1280", 2, 8, 1280, 1280, 3),
    Shape("SD 1.5 conv 16x16 2560", 2, 16, 2560, 1280, 3), Shape("SD 1.5 conv 32x32 1920", 2, 32, 1920, 640, 3),
    Shape("SD 1.5 linear 4096 320-2560", 8192, 1, 320, 2560), Shape("SD 1.5 linear 1024 640-5120", 2048, 1, 640, 5120),
    Shape("SDXL linear 1024 1280-1280", 2048, 1, 1280, 1280), Shape("SDXL linear 1024 1280-10240", 2048, 1, 1280, 10240),
    Shape("VAE conv 512x512 128", 1, 512, 128, 128, 3), Shape("VAE conv 128x128 512", 1, 128, 512, 512, 3),
)  # fmt: skip
TINY = (Shape("product", 100, 1, 64, 72), Shape("conv", 1, 9, 32, 40, 3))


def silu(total: Scalar, bias: Scalar) -> Scalar:
    """What is done on the way out."""
    return Kernel(()).call("({0} / (1 + exp{f}(-{0})))", total + bias)


def what(shape: Shape) -> Contraction:
    """A shape as a contraction of float16."""
    bias = Beside("bias", F32, shape.results, lambda batch, row, column: column, by_column=True)

    def place(batch: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return row * shape.results + column

    window = Window(shape.size, shape.taps, shape.size, pad=shape.taps // 2)
    a = (
        images(F16, shape.count, window, window, shape.channels)
        if shape.taps > 1
        else matrix(F16, shape.rows, shape.channels)
    )
    b = kernels(F16, shape.results, shape.taps**2, shape.channels)
    return Contraction(
        "contraction", shape.rows, shape.results, shape.channels, a, b, F16, shape.rows * shape.results, place,
        taps=shape.taps**2, beside=(bias,), tail=silu,
    )  # fmt: skip


class Device:
    """A device of generated kernels."""

    def __init__(self, name: str) -> None:
        load_backends()
        self.handle = find_device(name)
        self.name = ggml.ggml_backend_dev_name(self.handle).decode()
        self.description = ggml.ggml_backend_dev_description(self.handle).decode()
        self.features = features(ggml.ggml_backend_dev_backend_reg(self.handle))
        self.backend = ggml.ggml_backend_dev_init(self.handle, None)
        check_devices()

    def fits(self, schedule: Schedule) -> bool:
        """True if a block's buffers fit into shared memory."""
        item = schedule.instruction.operand.itemsize
        buffers = schedule.stages * (schedule.rows + schedule.columns) * schedule.depth * item
        strip = schedule.warps[0] * schedule.instruction.m * schedule.columns * 4
        return max(buffers, strip) <= int(self.features.get("SHARED_MEMORY", 48 << 10))

    def measured(self, step: Rendered, arrays: Sequence[np.ndarray], result: np.ndarray) -> tuple[float, np.ndarray]:
        """Seconds of a contraction, and its result."""
        module = Module(self.handle, code_for(self.name, self.features["ARCHITECTURE"], file_of([step])))
        copies = max(1, min(8, (256 << 20) // sum(each.nbytes for each in arrays)))
        context = ggml.ggml_init(ggml.ggml_init_params(mem_size=4 << 20, mem_buffer=None, no_alloc=True))
        types = {F16: ggml.GGML_TYPE_F16, F32: ggml.GGML_TYPE_F32}
        given = [
            [ggml.ggml_new_tensor_1d(context, types[each.dtype], each.size) for each in arrays] for _ in range(copies)
        ]
        work = Work([launch(module, step, len(arrays))])
        nodes = [work.node(context, types[result.dtype], [result.size], given[turn % copies]) for turn in range(REPEAT)]
        buffer = ggml.ggml_backend_alloc_ctx_tensors(context, self.backend)
        check_devices()
        for tensors in given:
            for tensor, array in zip(tensors, arrays, strict=True):
                ggml.ggml_backend_tensor_set(tensor, array.ctypes.data, 0, array.nbytes)
        graph = ggml.ggml_new_graph(context)
        for node in nodes:
            ggml.ggml_build_forward_expand(graph, node)
        seconds = [timed(lambda: ggml.ggml_backend_graph_compute(self.backend, graph)) for _ in range(ROUNDS + 2)]
        check_devices()
        ggml.ggml_backend_tensor_get(nodes[-1], result.ctypes.data, 0, result.nbytes)
        check_devices()
        ggml.ggml_backend_buffer_free(buffer)
        ggml.ggml_free(context)
        return statistics.median(seconds[2:]) / REPEAT, result


def launch(module: Module, step: Rendered, operands: int) -> Launch:
    """What a node does: a, b and what is beside are its sources; parts of sums are scratch memory, with counters."""
    kernel = step.kernel
    own = [integer(each.size, {}) * each.dtype.itemsize for each in kernel.tensors if each.written][:-1]
    places: list[Any] = [*map(Place, range(operands)), *[Scratch(), Counters()][: len(own)], Place(-1)]
    given = [
        np.array(each, np.uint32) if isinstance(each, Divisor) else np.int32(each) if isinstance(each, int) else each
        for each in arguments(step, places, {})
    ]
    found = module.kernel(kernel.name, kernel.shared_bytes)
    return Launch(found, grid(step, {}), kernel.threads, given, kernel.shared_bytes, *own)


def timed(run: Callable[[], Any]) -> float:
    """Seconds that it takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def operands(shape: Shape) -> list[np.ndarray]:
    """Random a, b and bias."""
    random = np.random.default_rng(0)
    sizes = ((shape.rows, shape.channels), (shape.results, shape.taps**2 * shape.channels), (shape.results,))
    a, b, bias = (random.standard_normal(size, np.float32) for size in sizes)
    return [a.astype(F16), (b * (2 / np.sqrt(sizes[1][1]))).astype(F16), bias]


def expected_rows(shape: Shape, arrays: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
    """A few rows of the result, in float64."""
    a, b, bias = (each.astype(np.float64) for each in arrays)
    pad = shape.taps // 2
    if shape.taps == 1:
        columns = a[list(rows)]
    else:
        image = np.pad(a.reshape(shape.count, shape.size, shape.size, -1), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        places = [(row // shape.size**2, row // shape.size % shape.size, row % shape.size) for row in rows]
        columns = np.stack([image[n, y : y + shape.taps, x : x + shape.taps].reshape(-1) for n, y, x in places])
    total = columns @ b.T + bias
    found: np.ndarray = total / (1 + np.exp(-total))
    return found


def by_torch(shape: Shape, compiled: bool) -> float | None:
    """Seconds of PyTorch on the GPU, None where it has none."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    options = {"device": "cuda", "dtype": torch.float16}
    if shape.taps == 1:
        x = torch.randn(shape.rows, shape.channels, **options)
        layer: torch.nn.Module = torch.nn.Linear(shape.channels, shape.results, **options)
    else:
        x = torch.randn(shape.count, shape.channels, shape.size, shape.size, **options).to(
            memory_format=torch.channels_last
        )
        layer = torch.nn.Conv2d(shape.channels, shape.results, shape.taps, padding=shape.taps // 2, **options)
        layer = layer.to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    model = torch.nn.Sequential(layer, torch.nn.SiLU())
    ways = [model, *([torch.compile(model, mode="max-autotune")] if compiled else [])]
    return min(_torch_seconds(torch, way, x) for way in ways)


def _torch_seconds(torch: Any, model: Any, x: Any) -> float:
    with torch.inference_mode():
        for _ in range(5):
            model(x)
        torch.cuda.synchronize()
        found = []
        for _ in range(ROUNDS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(REPEAT):
                model(x)
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) / 1000 / REPEAT)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda0 (generated)")
    parser.add_argument("--output", default="gpu.json")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to see that it works")
    parser.add_argument("--compile", action="store_true", help="PyTorch also by torch.compile with max-autotune")
    parser.add_argument("--seconds", type=float, default=1200, help="when to stop")
    given = parser.parse_args()
    device, begin, lines = Device(given.device), time.monotonic(), list[dict[str, Any]]()
    print(f"{device.description}, {device.features}")
    for shape in TINY if given.tiny else SHAPES:
        if time.monotonic() - begin > given.seconds:
            sys.exit("out of time")
        arrays, best = operands(shape), (float("inf"), "", 0.0)
        for text in SCHEDULES:
            schedule = parsed(f"{text} m16n8k16_half")
            if not device.fits(schedule):
                continue
            step = render(contraction(what(shape), schedule))
            seconds, result = device.measured(step, arrays, np.zeros((shape.rows, shape.results), F16))
            rows = np.linspace(0, shape.rows - 1, min(16, shape.rows)).astype(int).tolist()
            true = expected_rows(shape, arrays, rows)
            error = float(np.abs(result[rows].astype(np.float64) - true).max() / np.abs(true).max())
            line = {
                "device": device.description,
                "shape": shape.name,
                "schedule": str(schedule),
                "seconds": seconds,
                "error": error,
            }
            lines.append(line)
            best = min(best, (seconds, str(schedule), error))
            with open(given.output, "w", encoding="utf-8") as file:
                json.dump(lines, file, indent=1)
        peer = by_torch(shape, given.compile)
        rate = shape.operations / best[0] / 1e12
        ratio = f", {best[0] / peer:.2f} of PyTorch's {peer * 1e6:.0f} us" if peer else ""
        print(
            f"{shape.name}: {best[0] * 1e6:.0f} us, {rate:.1f} TFLOP/s by {best[1]}, error {best[2]:.1e}{ratio}",
            flush=True,
        )


if __name__ == "__main__":
    main()
