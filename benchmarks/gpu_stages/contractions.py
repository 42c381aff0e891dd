"""Products and convolutions of Stable Diffusion by generated kernels, by schedule, beside PyTorch.

A time is the median of graphs of several launches each, whose operands change places so that the cache does not hold them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_stages.stage import Stage, captured, median_of, torch_on_gpu, torch_seconds

from graphc.backends.generated import check_devices, device_features
from graphc.backends.launches import Counters, Launch, Module, Place, Scratch, Work
from graphc.backends.load import load_backends
from graphc.ggml_library import ggml
from graphc.ir.types import F16, F32
from graphc.kernels.gpu.candidates import Sizes
from graphc.kernels.gpu.dialect import Divisor
from graphc.kernels.gpu.forms import Rendered, Text
from graphc.kernels.gpu.launch import arguments, grid
from graphc.kernels.gpu.schedule import Schedule, parsed
from graphc.kernels.gpu.scheduling import Scheduling
from graphc.kernels.gpu.skeletons.contraction import Beside, Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import Window, images, kernels, matrix
from graphc.kernels.scalar import Scalar
from graphc.shapes import integer
from graphc.targets.ggml.generate.elements import UNARY
from graphc.targets.ggml.generate.schedules import device_of, form_for
from graphc.targets.ggml.run.device.devices import find_device

SCHEDULES = (
    "m128n128k32 w64x32 s3 z1", "m128n128k32 w64x64 s3 z1", "m128n128k64 w64x32 s3 z1", "m128n64k32 w64x32 s4 z1",
    "m64n64k64 w32x32 s4 z1", "m256n128k32 w64x64 s3 z1", "m128n256k32 w64x64 s3 z1",
    "m128n64k64 w32x32 s3 z4", "m64n64k64 w32x32 s4 z4", "m128n128k32 w64x32 s3 z4",
)  # fmt: skip
GUESSED, GUESSED_TOGETHER, GUESSED_ON_VULKAN = 4, 8, 8
"""Schedules of each shape besides, guessed to be the fastest; of those whose warps multiply together; and of Vulkan's."""


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

    @property
    def sizes(self) -> Sizes:
        """What its time depends on."""
        return Sizes(F16, self.rows, self.results, self.channels * self.taps**2, self.taps**2)


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
    return UNARY["silu"](total + bias)


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

    def __init__(self, stage: Stage) -> None:
        load_backends()
        self.stage, self.handle = stage, find_device(stage.device)
        self.form, self.shared = form_for(self.handle), int(device_features(self.handle).get("SHARED_MEMORY", 48 << 10))
        self.backend = ggml.ggml_backend_dev_init(self.handle, None)
        check_devices()

    def close(self) -> None:
        """Give back what a graph was recorded with."""
        ggml.ggml_backend_free(self.backend)

    def schedules(self, shape: Shape) -> list[Schedule]:
        """Those of the list, and those that are guessed to be the fastest; on Vulkan, whose matrices have other sizes, that of
        the fixed rules and those that are guessed."""
        scheduling = Scheduling.of(device_of(self.backend).gpu)
        guessed = scheduling.guessed(shape.sizes)
        if isinstance(self.form, Text):
            listed = [parsed(f"{text} m16n8k16_half") for text in SCHEDULES]
            together = [each for each in guessed if each.instruction.together > 1]
            alone = [each for each in guessed if each.instruction.together == 1]
            return list(dict.fromkeys([*listed, *alone[:GUESSED], *together[:GUESSED_TOGETHER]]))
        return list(dict.fromkeys([self.form.schedule(shape.results, F16), *guessed[:GUESSED_ON_VULKAN]]))

    def code(self, step: Rendered) -> bytes:
        """What the device loads."""
        ((content, _),) = self.form.files([step], compilers=1)
        return self.form.images(content)[-1]

    def measured(
        self, step: Rendered, code: bytes, arrays: Sequence[np.ndarray], result: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Seconds of a contraction, and its result."""
        module, repeat = Module(self.handle, code), self.stage.repeat
        copies = max(1, min(8, (256 << 20) // sum(each.nbytes for each in arrays)))
        context = ggml.ggml_init(ggml.ggml_init_params(mem_size=4 << 20, mem_buffer=None, no_alloc=True))
        types = {F16: ggml.GGML_TYPE_F16, F32: ggml.GGML_TYPE_F32}
        given = [
            [ggml.ggml_new_tensor_1d(context, types[each.dtype], each.size) for each in arrays] for _ in range(copies)
        ]
        work = Work([launch(module, step, len(arrays))])
        nodes = [work.node(context, types[result.dtype], [result.size], given[turn % copies]) for turn in range(repeat)]
        buffer = ggml.ggml_backend_alloc_ctx_tensors(context, self.backend)
        check_devices()
        for tensors in given:
            for tensor, array in zip(tensors, arrays, strict=True):
                ggml.ggml_backend_tensor_set(tensor, array.ctypes.data, 0, array.nbytes)
        graph = ggml.ggml_new_graph(context)
        for node in nodes:
            ggml.ggml_build_forward_expand(graph, node)
        seconds = median_of(lambda: ggml.ggml_backend_graph_compute(self.backend, graph), self.stage.rounds)
        check_devices()
        ggml.ggml_backend_tensor_get(nodes[-1], result.ctypes.data, 0, result.nbytes)
        check_devices()
        ggml.ggml_backend_buffer_free(buffer)
        ggml.ggml_free(context)
        return seconds / repeat, result


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


def by_torch(shape: Shape, compiles: bool) -> float | None:
    """Seconds of PyTorch on the GPU, the best of its ways; None where it has none."""
    torch = torch_on_gpu()
    if torch is None:
        return None
    options = {"device": "cuda", "dtype": torch.float16}
    if shape.taps == 1:
        x = torch.randn(shape.rows, shape.channels, **options)
        layer = torch.nn.Linear(shape.channels, shape.results, **options)
    else:
        x = torch.randn(shape.count, shape.channels, shape.size, shape.size, **options)
        x = x.to(memory_format=torch.channels_last)
        layer = torch.nn.Conv2d(shape.channels, shape.results, shape.taps, padding=shape.taps // 2, **options)
        layer = layer.to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    model = torch.nn.Sequential(layer, torch.nn.SiLU())
    ways = [model, *([torch.compile(model, mode="max-autotune")] if compiles else [])]
    return min(torch_seconds(way, x) for way in (*ways, *(captured(way, [x]) for way in ways)))


def contractions(stage: Stage) -> None:
    """A line for each shape and schedule, and one for PyTorch's time."""
    with closing(Device(stage)) as device:
        if device.form.is_narrow:
            measure(stage, device)
        else:
            stage.note("this device multiplies no float16")


def measure(stage: Stage, device: Device) -> None:
    """The lines of a device."""
    for shape in TINY if stage.tiny else SHAPES:
        arrays, schedules = operands(shape), device.schedules(shape)
        if stage.tiny:
            schedules = [schedules[0], *schedules[1:][-1:]]  # sums in one part, and in several
        rendered = [(each, device.form.render(contraction(what(shape), each))) for each in schedules]
        fitting = [(schedule, step) for schedule, step in rendered if step.kernel.shared_bytes <= device.shared]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            codes = list(threads.map(device.code, (step for _, step in fitting)))
        rows = np.linspace(0, shape.rows - 1, min(16, shape.rows)).astype(int).tolist()
        expected = expected_rows(shape, arrays, rows)
        for (schedule, step), code in zip(fitting, codes, strict=True):
            seconds, result = device.measured(step, code, arrays, np.zeros((shape.rows, shape.results), F16))
            error = float(np.abs(result[rows] - expected).max() / np.abs(expected).max())
            stage.note(shape.name, seconds, schedule=str(schedule), error=error, operations=shape.operations)
        if (peer := by_torch(shape, stage.compiles)) is not None:
            stage.note(shape.name, peer, runtime="PyTorch", operations=shape.operations)
