"""What this machine can do at most: floating-point operations and bytes from memory in a second, measured once.

Measured with code that is compiled as the products are, and kept in the user's cache for each number of threads.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.resources import files
from threading import Barrier
from time import perf_counter

import numpy as np

from graphc.cache import cache_folder, keep, read_own
from graphc.errors import BuildError
from graphc.ggml_library import ggml_include
from graphc.kernels.c.compiled import load_library, machine
from graphc.kernels.c.compiler import find_compiler
from graphc.targets.ggml.run.choose.library import FAST_FLAGS, source

KEPT_IN = "peaks"
"""The folder of the cache."""

TRIES = 7
"""Measurements of each; the best counts."""

ROUNDS = 1 << 21
"""Of arithmetic: some tens of milliseconds."""

ELEMENTS = 1 << 25
"""Of each of the three arrays in memory: 128 MiB, more than caches hold."""


@dataclass(frozen=True)
class Peaks:
    """Billions of float32 operations a second (a multiplication and an addition are two), and of bytes that are read and
    written, with all of `threads`."""

    threads: int
    gflops: float
    gbytes: float

    def share(self, operations: float, nbytes: float, seconds: float) -> float:
        """Of the two peaks, the part of the one that work came nearer to. More than 1 where data came from a cache."""
        if not seconds:
            return 0.0
        return max(operations / self.gflops, nbytes / self.gbytes) / seconds / 1e9


def peaks(threads: int, again: bool = False) -> Peaks | None:
    """The machine's peaks: those that were measured before, unless they are wanted `again`. None without a C compiler
    that can compile the products."""
    name = hashlib.sha256(machine().encode()).hexdigest()[:16] + f"-{threads}.json"
    if not again and (known := _read(name)):
        return known
    measured = _measure(threads)
    if measured is not None:
        keep(KEPT_IN, name, json.dumps(asdict(measured)).encode())
    return measured


def _read(name: str) -> Peaks | None:
    try:
        found = Peaks(**json.loads(read_own(cache_folder(KEPT_IN) / name) or b""))
        return found if found.gflops > 0 and found.gbytes > 0 else None
    except (OSError, ValueError, TypeError):
        return None


def _measure(threads: int) -> Peaks | None:
    compiler, include = find_compiler(), ggml_include()
    if compiler is None or include is None:
        return None
    text = source(("own/tiles.h",)) + files("graphc.runtime").joinpath("peaks.c").read_text(encoding="utf-8")
    try:
        library = load_library(text, compiler, include, FAST_FLAGS)
    except BuildError:
        return None
    library.graphc_peak_operations.restype = ctypes.c_int64
    a, b, c = (np.ones(ELEMENTS, np.float32) for _ in range(3))
    part = ELEMENTS // threads

    def arithmetic(_: int) -> None:
        library.graphc_peak_arithmetic(ctypes.c_int64(ROUNDS))

    def memory(thread: int) -> None:
        places = (ctypes.c_void_p(array.ctypes.data + 4 * part * thread) for array in (a, b, c))
        library.graphc_peak_memory(*places, ctypes.c_int64(part))

    operations = library.graphc_peak_operations() * ROUNDS * threads
    return Peaks(
        threads,
        operations / _fastest(arithmetic, threads) / 1e9,
        3 * 4 * part * threads / _fastest(memory, threads) / 1e9,
    )


def _fastest(work: Callable[[int], None], threads: int) -> float:
    """Seconds that all threads together need for it, at best."""
    barrier = Barrier(threads)

    def timed(thread: int) -> tuple[float, float]:
        barrier.wait()
        start = perf_counter()
        work(thread)
        return start, perf_counter()

    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(TRIES):
            done = list(pool.map(timed, range(threads)))
            times.append(max(end for _, end in done) - min(start for start, _ in done))
    return min(times)
