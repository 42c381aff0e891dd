"""Philox 4x32-10, as PyTorch uses it on CUDA and A1111 by the names "GPU" and "NV".

The generator: Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3 (2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
WORD = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)

PIECE = 1 << 12
"""So many numbers are computed at once: what they need stays in the processor's cache."""

SCALE = float(np.float32(2.3283064e-10))
SCALE_TO_CIRCLE = float(np.float32(2.3283064e-10 * 6.2831855))


def philox(counter: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Four words for each counter. The words are uint64 arrays of numbers below 2**32; the key is the seed's 64 bits."""
    a, b, c, d = map(np.array, counter)
    first, second = np.empty_like(a), np.empty_like(c)
    key = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF]
    for _ in range(ROUNDS):  # in place: what is computed stays in the processor's cache
        np.multiply(a, MULTIPLIERS[0], out=first)
        np.multiply(c, MULTIPLIERS[1], out=second)
        for word, product, other, part in ((a, second, b, key[0]), (c, first, d, key[1])):
            np.right_shift(product, HALF, out=word)
            word ^= other
            word ^= np.uint64(part)
            np.bitwise_and(product, WORD, out=other)
        key = [(part + step) & 0xFFFFFFFF for part, step in zip(key, WEYL, strict=True)]
    return [a, b, c, d]


class Philox:
    """Numbers of the normal distribution by Box and Muller's method: one for each counter (call, 0, element, 0)."""

    def __init__(self, seed: int) -> None:
        """`seed`'s lower 64 bits count."""
        self.seed = seed
        self.calls = 0

    def normal(self, shape: Sequence[int]) -> np.ndarray:
        """float32; the n-th element of the c-th call depends on the seed, n and c alone."""
        numbers = np.empty(math.prod(shape), np.float32)
        for start in range(0, len(numbers), PIECE):
            piece = numbers[start : start + PIECE]
            piece[:] = self._normal(np.arange(start, start + len(piece), dtype=np.uint64))
        self.calls += 1
        return numbers.reshape(tuple(shape))

    def _normal(self, elements: np.ndarray) -> np.ndarray:
        zeros = np.zeros_like(elements)
        radius, angle, *_ = philox([zeros + np.uint64(self.calls), zeros, elements, zeros], self.seed)
        uniform = radius * SCALE + SCALE / 2
        direction = angle * SCALE_TO_CIRCLE + SCALE_TO_CIRCLE / 2
        return np.asarray(np.sqrt(-2.0 * np.log(uniform)) * np.sin(direction))
