"""A device of generated kernels without a GPU: libcuda's stand-in (fake_driver), and a graph that it shares with the CPU."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
from library_file import library_file

from graphc.backends import generated
from graphc.backends.generated import check_devices, device_error, file_text, library, load_generated
from graphc.backends.launches import Launch, Module, Place, Scratch, Work
from graphc.backends.load import load_backends
from graphc.ggml_library import ggml
from graphc.kernels.c.compiled import library_bytes
from graphc.kernels.c.compiler import find_compiler
from graphc.kernels.c.joined import joined
from graphc.kernels.gpu.dialect import FOLDER
from graphc.kernels.gpu.emulate import emulated_image
from graphc.targets.ggml.run.memory.results import Placement

ALONE = Lock()


def emulated_file(text: str) -> str:
    """What the stand-in takes as text, in PTX's place: the path of a library of kernels. Of several targets' threads one compiles
    it, and the others find it in the cache."""
    with ALONE:
        return library_file(emulated_image(text))


SOURCES = Path(__file__).parent / "fake_driver"
FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
SANITIZERS = {"": (), "address": ("-fsanitize=address", "-fno-omit-frame-pointer"), "thread": ("-fsanitize=thread",)}
SANITIZER = SANITIZERS[os.environ.get("GRAPHC_TEST_SANITIZER", "")]
"""What the backend and the stand-in are compiled with besides."""

generated.FLAGS = (*generated.FLAGS, *SANITIZER)

LENGTH = 1000
BLOCK = 32
X = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)

KERNELS = f"""
KERNEL(scaled, {BLOCK}, 1, const float *x, float *y, int n, float factor, float added) {{
    const int i = block_index_x() * {BLOCK} + thread_index();
    if (i < n) store_global(y + i, load_global(x + i) * factor + added);
}}
KERNEL(copied, {BLOCK}, 1, const float *x, float *y, int n, float factor, float added) {{
    const int i = block_index_x() * {BLOCK} + thread_index();
    if (i < n) store_global(y + i, load_global(x + i));
}}
KERNEL(sum, {BLOCK}, 1, const float *x, const float *z, float *y, int64_t n) {{
    const int i = block_index_x() * {BLOCK} + thread_index();
    if (i < n) store_global(y + i, load_global(x + i) + load_global(z + i));
}}
KERNEL(remainders, {BLOCK}, 1, float *y, int n, Divisor divisor) {{
    const int i = block_index_x() * {BLOCK} + thread_index();
    if (i < n) store_global(y + i, (float) remainder((unsigned) i, divisor));
}}
KERNEL(turns, {BLOCK}, 1, unsigned *counters, float *y) {{
    if (thread_index() != 0) return;
    const unsigned before = atomic_add_global(counters + block_index_y(), 1u);
    if (before + 1 != grid_size_x()) return;
    store_global(counters + block_index_y(), 0u);
    store_global(y + block_index_y(), 1.0f);
}}
KERNEL(wild, {BLOCK}, 1, float *y) {{
    store_global(y + (1 << 24), 1.0f);
}}
"""


class Fake:
    """The stand-in, as tests see it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.functions = ctypes.CDLL(path)
        self.functions.fake_cuda_name.restype = ctypes.c_char_p
        self.functions.fake_cuda_count.restype = ctypes.c_long

    def fail(self, name: str, nth: int = 1, code: int = 1) -> None:
        """Have the n-th call from now fail."""
        self.functions.fake_cuda_fail(name.encode(), ctypes.c_long(nth), code)

    @contextmanager
    def meanwhile(self, name: str, function: Callable[[], object]) -> Iterator[None]:
        """Have another thread do something before the next call of this name. Raises what it raises."""
        with ThreadPoolExecutor(1) as other:
            done = list[Future[object]]()

            def call() -> None:
                done.append(other.submit(function))
                wait(done)

            kept = ctypes.CFUNCTYPE(None)(call)
            self.functions.fake_cuda_meanwhile(name.encode(), kept)
            yield
        assert done, f"nobody called {name}"
        done[0].result()

    def counts(self) -> Counter[str]:
        """How often each function was called."""
        names = (self.functions.fake_cuda_name(index) for index in range(64))
        return Counter({name.decode(): self.functions.fake_cuda_count(name) for name in names if name})

    def check(self) -> None:
        """Raises AssertionError for what was not given back, and for every misuse."""
        text = ctypes.create_string_buffer(512)
        left = self.functions.fake_cuda_left(text, 512)
        assert left == 0, f"{left} left: {text.value.decode()}"
        assert self.functions.fake_cuda_misuses(text, 512) == 0, text.value.decode()
        assert self.functions.fake_cuda_depth() == 0


@functools.cache
def stand_in() -> str:
    """The path of the stand-in, compiled."""
    compiler = find_compiler()
    assert compiler is not None, "the tests need a C compiler"

    def read(name: str) -> str:
        folder = FOLDER if name.startswith("emulator") else SOURCES
        return (folder / name).read_text()

    content = library_bytes(
        joined(("context_calls.c", "stream_calls.c", "asked.c"), read), compiler, flags=(*FLAGS, *SANITIZER)
    )
    return library_file(content)


@functools.cache
def fake() -> Fake:
    """The stand-in, with two devices that ggml knows as emulated0 and emulated1."""
    load_backends()
    load_generated()
    said = library().register("cuda", "emulated", stand_in())
    assert said == "", said
    return Fake(stand_in())


def looked_for(driver: str, path: str) -> str:
    """What is said where a driver's devices are looked for; ggml is told of none."""
    struct = file_text("gpu.h").split("struct graphc_gpu_ggml {")[1].split("};")[0]
    own = library()._functions
    functions, listed = type(own)(*own), list[Any]()
    keep = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(listed.append)
    place = re.findall(r"\(\*(\w+)\)", struct).index("backend_register")
    functions[place] = ctypes.cast(keep, ctypes.c_void_p).value
    said = library().library.graphc_gpu_register(functions, driver.encode(), path.encode(), b"again")
    assert bool(said) != bool(listed)
    return said.decode() if said else ""


def device(number: int = 0) -> Any:
    """The device, as ggml's handle."""
    fake()
    return ggml.ggml_backend_dev_by_name(f"emulated{number}".encode())


@functools.cache
def image() -> bytes:
    """The kernels, compiled."""
    return emulated_image(KERNELS)


def grid(length: int) -> tuple[int, int, int]:
    """Blocks for so many elements."""
    return -(-length // BLOCK), 1, 1


def result_of(x: np.ndarray, factor: float = 2.0) -> np.ndarray:
    """What a `Mixed` graph computes."""
    y = x * x * np.float32(factor) + np.float32(1)
    return -(y + (y * np.float32(0.5) + np.float32(3)))


class Mixed:
    """sqr on the CPU, three kernels in two nodes on the device, the second with scratch memory, neg on the CPU.

    Raises what goes wrong; what was made until then is given back.
    """

    def __init__(self, length: int = LENGTH, number: int = 0, factor: float = 2.0, pinned: bool = True) -> None:
        self.length, self.pinned, self._made = length, pinned, list[Any]()
        try:
            self._make(number, factor)
        except BaseException:
            self.free()
            raise

    def _make(self, number: int, factor: float) -> None:
        n = self.length
        self.own = self._own(ggml.ggml_backend_dev_init(device(number), None), ggml.ggml_backend_free)
        self.cpu = self._own(ggml.ggml_backend_cpu_init(), ggml.ggml_backend_free)
        self.module = Module(device(number), image())
        self._own(self.module, lambda module: module.free())
        scaled, sum = self.module.kernel("scaled"), self.module.kernel("sum", 64 << 10)
        self.context = self._own(
            ggml.ggml_init(ggml.ggml_init_params(mem_size=1 << 20, mem_buffer=None, no_alloc=True)), ggml.ggml_free
        )
        self.x = ggml.ggml_new_tensor_1d(self.context, ggml.GGML_TYPE_F32, n)
        ggml.ggml_set_input(self.x)
        ggml.ggml_set_output(self.x)
        length, one, three = np.int32(n), np.float32(1), np.float32(3)
        first = [Launch(scaled, grid(n), BLOCK, [Place(0), Place(-1), length, np.float32(factor), one])]
        second = [
            Launch(
                scaled, grid(n), BLOCK, [Place(0), Scratch(256), length, np.float32(0.5), three], scratch=256 + 4 * n
            ),
            Launch(sum, grid(n), BLOCK, [Place(0), Scratch(256), Place(-1), np.int64(n)], scratch=256 + 4 * n),
        ]
        self.works = [Work(first), Work(second)]
        self.nodes = [self.works[0].node(self.context, ggml.GGML_TYPE_F32, [n], [ggml.ggml_sqr(self.context, self.x)])]
        self.nodes.append(self.works[1].node(self.context, ggml.GGML_TYPE_F32, [n], self.nodes))
        for name, node in zip((b"first", b"second"), self.nodes, strict=True):
            ggml.ggml_set_name(node, name)
        self.y = ggml.ggml_neg(self.context, self.nodes[1])
        ggml.ggml_set_output(self.y)
        self.graph = ggml.ggml_new_graph(self.context)
        ggml.ggml_build_forward_expand(self.graph, self.y)
        backends = (ctypes.c_void_p * 2)(self.own, self.cpu)
        self.scheduler = self._own(
            ggml.ggml_backend_sched_new(backends, None, 2, 64, False, False), ggml.ggml_backend_sched_free
        )
        self.placement = Placement(self.context, self.graph)
        for place in (ggml.ggml_backend_sched_reserve, ggml.ggml_backend_sched_alloc_graph):
            self.placement.reset()
            for node in self.nodes:  # reserving forgets it
                ggml.ggml_backend_sched_set_tensor_backend(self.scheduler, node, self.own if self.pinned else self.cpu)
            placed = place(self.scheduler, self.graph)
            check_devices()
            assert placed

    def _own(self, made: Any, free: Any) -> Any:
        check_devices()
        assert made
        self._made.append((made, free))
        return made

    def run(self, x: np.ndarray) -> np.ndarray:
        """The result. Raises DeviceError."""
        ggml.ggml_backend_tensor_set(self.x, x.ctypes.data, 0, x.nbytes)
        status = ggml.ggml_backend_sched_graph_compute(self.scheduler, self.graph)
        check_devices()
        assert status == ggml.GGML_STATUS_SUCCESS
        y = np.empty_like(x)
        ggml.ggml_backend_tensor_get(self.y, y.ctypes.data, 0, y.nbytes)
        check_devices()
        return y

    def recordings(self) -> tuple[int, int]:
        """How many graphs were recorded, and how often one was replayed."""
        counts = ctypes.c_int64(), ctypes.c_int64()
        library().library.graphc_gpu_recordings(self.own, *map(ctypes.byref, counts))
        return counts[0].value, counts[1].value

    def free(self, order: Sequence[int] | None = None) -> None:
        """Give everything back, the last first, or in an order."""
        parts = self._made[::-1] if order is None else [self._made[index] for index in order]
        self._made = []
        for made, free in parts:
            free(made)

    def __enter__(self) -> Mixed:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(IndexError):
            self.free()


class Alone:
    """Nodes on the device alone: `make` is given a context, the module and `x`, and returns them. All of it is in one buffer.

    Raises what goes wrong; what was made until then is given back.
    """

    def __init__(self, make, x, number=0):
        with ExitStack() as made:
            self.own = ggml.ggml_backend_dev_init(device(number), None)
            check_devices()
            made.callback(ggml.ggml_backend_free, self.own)
            self.module = Module(device(number), image())
            made.callback(self.module.free)
            self.context = ggml.ggml_init(ggml.ggml_init_params(mem_size=1 << 20, mem_buffer=None, no_alloc=True))
            made.callback(ggml.ggml_free, self.context)
            self.x = ggml.ggml_new_tensor_4d(self.context, ggml.GGML_TYPE_F32, *x.shape[::-1], *[1] * (4 - x.ndim))
            self.y = make(self)
            self.graph = ggml.ggml_new_graph(self.context)
            ggml.ggml_build_forward_expand(self.graph, self.y)
            self.buffer = ggml.ggml_backend_alloc_ctx_tensors(self.context, self.own)
            check_devices()
            assert self.buffer
            made.callback(ggml.ggml_backend_buffer_free, self.buffer)
            ggml.ggml_backend_tensor_set(self.x, x.ctypes.data, 0, x.nbytes)
            check_devices()
            self.made = made.pop_all()

    def run(self, count):
        status = ggml.ggml_backend_graph_compute(self.own, self.graph)
        check_devices()
        assert status == ggml.GGML_STATUS_SUCCESS
        y = np.empty(count, np.float32)
        ggml.ggml_backend_tensor_get(self.y, y.ctypes.data, 0, y.nbytes)
        check_devices()
        return y

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.made.close()


def doubled(module, n, source=0, offset=0):
    """Twice the elements of a source from some byte on."""
    arguments = [Place(source, offset), Place(-1), np.int32(n), np.float32(2), np.float32(0)]
    return Work([Launch(module.kernel("scaled"), grid(n), BLOCK, arguments)])


def double(alone):
    """For `Alone`: twice each of 64 elements."""
    alone.work = doubled(alone.module, 64)
    return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [64], [alone.x])


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """For the tests of a file that imports it."""
    fake().check()
    yield
    assert device_error() == ""
    fake().check()
