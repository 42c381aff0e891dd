"""A weight with LoRAs that are products of two matrices, a few rows after the other: what is computed stays in the processor's
cache, and several threads compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from graphc.ir.types import F32
from graphc.targets.ggml.run.device.devices import default_threads
from graphc.targets.ggml.run.device.tensors import aligned_empty
from graphc.weights.lora.names import matrix

PART = 1 << 18
"""Multiplications that are computed at once. For more, OpenBLAS would have its own threads compute, which wait for each other."""

SHARED = 1 << 20
"""Elements from which several threads compute."""

Pair = tuple[np.ndarray, np.ndarray]


def changed_by_rows(
    before: np.ndarray, pairs: Sequence[Pair], stored: np.dtype, converted: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """A weight in the type in which it is `stored`: in float32 the one `before`, of any type of numbers, plus the products of the
    pairs [rows, rank] and [rank, columns], in their order. `converted` makes what is stored of float32 numbers, and may raise
    what it raises."""
    old = matrix(before)
    rows, columns = old.shape
    result = aligned_empty(before.shape, stored)
    rank = max(len(right) for _, right in pairs)
    new, step = matrix(result), max(PART // max(columns * rank, 1), 1)

    def part(start: int) -> None:
        here = slice(start, min(start + step, rows))
        with np.errstate(all="ignore"):
            total = old[here].astype(F32)
            for left, right in pairs:
                total += left[here] @ right
        new[here] = converted(total)

    count = default_threads() if old.size >= SHARED else 1

    def parts(thread: int) -> None:
        for start in range(thread * step, rows, count * step):
            part(start)

    if count == 1:
        parts(0)
        return result
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(parts, range(count)))
    return result
