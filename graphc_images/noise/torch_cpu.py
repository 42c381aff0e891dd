"""torch.randn on the CPU, bit for bit: the Mersenne Twister, and Box and Muller's method in the way of AVX2 and AVX-512.

PyTorch computes logarithm, sine and cosine there by Cephes' polynomials in float32 (aten/src/ATen/native/cpu/avx_mathfun.h,
which is Moshier's Cephes in Pommier's arrangement), with products and sums fused where its compiler fuses them. The same
steps are here, so that a seed gives the same bits on every machine; PyTorch's own build without AVX2 differs by about 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

BLOCK = 16
"""So many numbers are made of each other; smaller arrays are made one by one, in float64."""

PIECE = 8192
"""So many are computed at once: what they need stays in the processor's cache."""

f = np.float32
LOGARITHM = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
LOG_2_LOW, LOG_2_HIGH = f(-2.12194440e-4), f(0.693359375)
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
QUARTER_TURN = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
"""-pi/4 in three parts, the first of which times a small whole number is exact."""


def fused(a: np.ndarray, b: np.ndarray | np.float32, c: np.ndarray | np.float32) -> np.ndarray:
    """a * b + c, rounded once to float32."""
    wide = np.multiply(a, b, dtype=np.float64)
    wide += c
    return np.asarray(wide, f)


def polynomial(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    """Horner's scheme in float32, highest power first."""
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = fused(result, x, f(coefficient))
    return result


def logarithm(x: np.ndarray) -> np.ndarray:
    """Cephes' logf for float32 in (0, 1]."""
    bits = x.view(np.int32)
    exponent = ((bits >> 23) - 126).astype(f)
    mantissa = ((bits & 0x007FFFFF) | 0x3F000000).view(f)
    low = mantissa < f(0.707106781186547524)
    x = mantissa - f(1) + np.where(low, mantissa, f(0))
    exponent = exponent - low.astype(f)
    square = x * x
    tail = fused(polynomial(x, LOGARITHM) * x, square, exponent * LOG_2_LOW)
    tail = fused(-square, f(0.5), tail)
    return fused(exponent, LOG_2_HIGH, x + tail)


def sine_and_cosine(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cephes' sinf and cosf for float32 in [0, 2 pi]."""
    octant = ((x * f(1.27323954473516)).astype(np.int32) + 1) & ~1
    for part in QUARTER_TURN:
        x = fused(octant.astype(f), f(part), x)
    square = x * x
    cosine = fused(polynomial(square, COSINE) * square, square, -(square * f(0.5))) + f(1)
    sine = fused(polynomial(square, SINE) * square, x, x)
    swapped = (octant & 2) != 0
    sign_of_sine = np.where(octant & 4, f(-1), f(1))
    sign_of_cosine = np.where((octant + 2) & 4, f(-1), f(1))
    return sign_of_sine * np.where(swapped, cosine, sine), sign_of_cosine * np.where(swapped, sine, cosine)


def box_muller(uniform: np.ndarray) -> np.ndarray:
    """Normal numbers from as many uniform ones: in each block of 16, the first eight give radii, the others angles."""
    halves = uniform.reshape(-1, 2, BLOCK // 2)
    radius = np.sqrt(f(-2) * logarithm(f(1) - halves[:, 0]))
    sine, cosine = sine_and_cosine(f(2 * math.pi) * halves[:, 1])
    return np.stack([radius * cosine, radius * sine], axis=1).reshape(-1)


class TorchCpu:
    """What `torch.Generator("cpu").manual_seed(seed)` gives. The seed's lower 32 bits count."""

    def __init__(self, seed: int) -> None:
        self.twister = np.random.MT19937()
        self.twister._legacy_seeding(seed & 0xFFFFFFFF)
        self.spare: float | None = None

    def uniform(self, shape: Sequence[int]) -> np.ndarray:
        """`torch.rand`: float32 in [0, 1), multiples of 2**-24."""
        words = self.twister.random_raw(math.prod(shape)) & 0xFFFFFF
        return (words.astype(f) * f(2**-24)).reshape(tuple(shape))

    def seed(self) -> int:
        """`torch.randint(0, 2**63 - 1, [])`: what others of PyTorch's draw as a seed."""
        high, low = (int(word) for word in self.twister.random_raw(2))
        return (high << 32 | low) % (2**63 - 1)

    def normal(self, shape: Sequence[int], dtype: type = np.float32) -> np.ndarray:
        """`torch.randn` in float32 or float16.

        A float16 array is the rounded float32 one, except where its size is not a multiple of 16: the last sixteen numbers are
        made anew, and PyTorch has then drawn as many uniform numbers as the array has elements for float32, and a multiple
        of 16 for float16.
        """
        count = math.prod(shape)
        if count < BLOCK:
            numbers = np.array([self._one() for _ in range(count)])
        else:
            whole = count - count % BLOCK
            numbers = np.empty(count, f)
            drawn = self.uniform([count if dtype == np.float32 else whole])
            for start in range(0, whole, PIECE):
                numbers[start : min(start + PIECE, whole)] = box_muller(drawn[start : min(start + PIECE, whole)])
            if whole < count:
                numbers[-BLOCK:] = box_muller(self.uniform([BLOCK]))
        return numbers.astype(dtype).reshape(tuple(shape))

    def _one(self) -> float:
        """A number by float64: each second one was left over from the one before."""
        if self.spare is not None:
            number, self.spare = self.spare, None
            return number
        words = [int(word) for word in self.twister.random_raw(4)]
        first, second = (((words[k] << 32 | words[k + 1]) & (2**53 - 1)) * 2.0**-53 for k in (0, 2))
        radius, angle = math.sqrt(-2 * math.log1p(-second)), 2 * math.pi * first
        self.spare = radius * math.sin(angle)
        return radius * math.cos(angle)
