"""Filters of arrays [height, width] or [height, width, channels], as OpenCV has them, in NumPy."""

from __future__ import annotations

import numpy as np


def convolve_lines(array: np.ndarray, kernel: np.ndarray, axis: int, mode: str = "reflect") -> np.ndarray:
    """Each line along an axis with a kernel of odd length, in the array's type; borders as NumPy's `pad` calls them."""
    radius = len(kernel) // 2
    width = [(0, 0)] * array.ndim
    width[axis] = (radius, radius)
    padded = np.pad(array, width, mode=mode if array.shape[axis] > 1 else "edge")  # type: ignore[call-overload]
    total = np.zeros_like(array)
    for place, weight in enumerate(kernel):
        window = [slice(None)] * array.ndim
        window[axis] = slice(place, place + array.shape[axis])
        total += padded[tuple(window)] * weight
    return total


def gaussian_kernel(sigma: float, size: int) -> np.ndarray:
    """`size` weights with the sum 1."""
    places = np.arange(size) - (size - 1) / 2
    weights = np.exp(-(places**2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum())


def gaussian_blur(array: np.ndarray, sigma: float, size: int) -> np.ndarray:
    """Floats, blurred along both axes by kernels of `size` pixels."""
    kernel = gaussian_kernel(sigma, size)
    return convolve_lines(convolve_lines(array, kernel, 1), kernel, 0)


def blur_levels(levels: np.ndarray, sizes: dict[int, tuple[float, int]]) -> np.ndarray:
    """Levels of 8 bits, blurred along axes by kernels of (sigma, size), in OpenCV's fixed-point arithmetic.

    Weights are in 256ths with the sum 256; it is rounded once, at the end.
    """
    total = levels.astype(np.int64)
    for axis, (sigma, size) in sizes.items():
        total = convolve_lines(total, _weights_in_256ths(sigma, size), axis)
    one = 256 ** len(sizes)
    return np.asarray(np.clip((total + one // 2) // one, 0, 255), np.uint8)


def _weights_in_256ths(sigma: float, size: int) -> np.ndarray:
    """A kernel in whole numbers: from the ends on what was rounded away goes to the next, and the rest to the middle."""
    weights = np.zeros(size, np.int64)
    left_over = 0.0
    for place, weight in enumerate(gaussian_kernel(sigma, size)[: size // 2]):
        exact = weight * 256 + left_over
        weights[place] = weights[-1 - place] = round(exact)
        left_over = exact - round(exact)
    weights[size // 2] = 256 - weights.sum()
    return weights


def sobel(gray: np.ndarray, axis: int) -> np.ndarray:
    """The 3 x 3 derivative along an axis, of integers, with borders repeated as OpenCV's canny does."""
    across = convolve_lines(gray, np.array([1, 2, 1]), 1 - axis, "edge")
    return convolve_lines(across, np.array([-1, 0, 1]), axis, "edge")


def resize_area(array: np.ndarray, height: int, width: int) -> np.ndarray:
    """Means over the area of each new pixel, for shrinking: float [height, width, channels] to another size."""
    for axis, size in ((0, height), (1, width)):
        old = array.shape[axis]
        sums = np.concatenate([np.zeros_like(array.take([0], axis)), np.cumsum(array, axis)], axis)
        edges = np.arange(size + 1) * old / size
        below = np.minimum(edges.astype(int), old - 1)
        part = (edges - below).reshape([-1 if each == axis else 1 for each in range(array.ndim)])
        at_edges = sums.take(below, axis) * (1 - part) + sums.take(below + 1, axis) * part
        array = np.diff(at_edges, axis=axis) * (size / old)
    return array


def levels(pixels: np.ndarray) -> np.ndarray:
    """Whole levels of numbers, 0 to 255."""
    return np.asarray(np.clip(np.rint(pixels), 0, 255), np.uint8)
