"""What normalizes the channels of images in groups, put together of strips by the last of an image's blocks."""

from __future__ import annotations

import numpy as np
import pytest
from tile_runs import both_ways

from graphc.ir.types import F16, F32
from graphc.kernels.gpu.interpret import interpret
from graphc.kernels.gpu.skeletons.groups import Grouped, group_factors
from graphc.kernels.gpu.tile import U32
from graphc.kernels.gpu.verify import verify, verify_order
from graphc.kernels.scalar import Kernel, Scalar, make
from graphc.shapes import Dim, integer, symbol

EPSILON, WARP = 1e-5, 32


def element(number: int, dtype: np.dtype, offset: Scalar) -> Scalar:
    """A number of a tensor."""
    return make("element", dtype, (offset,), number)


def factors_of(x: np.ndarray, groups: int, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Of images [N, pixels, C]: [N, 2, C]."""
    count, pixels, channels = x.shape
    wide = x.astype(np.float64).reshape(count, pixels, groups, -1)
    mean, variance = wide.mean((1, 3)), wide.var((1, 3))
    own = channels // groups
    factor = np.repeat(1 / np.sqrt(variance + EPSILON), own, 1) * scale
    return np.stack([factor, shift - np.repeat(mean, own, 1) * factor], 1)


def whether_right(
    count: int, pixels: int, groups: int, own: int, dtype: np.dtype, symbolic: bool, usual: int, parts: tuple[int, int] = (1, 0),
    lanes: int = WARP,
) -> None:  # fmt: skip
    """Images of so many pixels, interpreted, and emulated where warps are those of CUDA. Channels lie in two tensors side by
    side, in these shares."""
    channels = groups * own
    n: Dim = symbol("n") if symbolic else count
    p: Dim = symbol("p", low=min(pixels, 1)) if symbolic else pixels
    first, second = (channels * part // sum(parts) for part in parts)

    def value(image: Scalar, pixel: Scalar, channel: Scalar) -> Scalar:
        def of(number: int, begin: int, width: int) -> Scalar:
            place = (image * p + pixel) * width + (channel - begin)
            return Kernel(()).cast(element(number, dtype, place), F32)

        if not second:
            return of(0, 0, channels)
        return Kernel(()).select(channel < first, of(0, 0, first), of(3, first, second))

    what = Grouped(
        "group_factors", n, p, channels, groups, np.gcd.reduce([channels, first]).item(), EPSILON, usual, value,
        lambda image, channel: element(1, F32, channel), lambda image, channel: element(2, F32, channel),
    )  # fmt: skip
    rng = np.random.default_rng(own)
    x = (rng.standard_normal((count, pixels, channels)) * rng.uniform(0.1, 3, channels) + 30).astype(dtype)
    scale, shift = (rng.standard_normal(channels).astype(np.float32) for _ in range(2))
    inputs = [(dtype, n * p * first), (F32, channels), (F32, channels)]
    arrays = [np.ascontiguousarray(x[:, :, :first]), scale, shift]
    if second:
        inputs.append((dtype, n * p * second))
        arrays.append(np.ascontiguousarray(x[:, :, first:]))
    kernel = group_factors(what, inputs, lanes)
    sizes = {"n": count, "p": pixels} if symbolic else {}
    scratch = np.full(integer(kernel.tensors[-3].size, sizes), np.nan, np.float32)
    counters, result = np.zeros(count, U32), np.full((count, 2, channels), np.nan, np.float32)
    given = [*arrays, scratch, counters, result]
    if not pixels:
        both_ways([(kernel, given)], sizes)
        return
    expected = factors_of(x, groups, scale, shift)
    bound = 2e-5 * np.abs(expected).max()
    if lanes != WARP:
        verify(kernel)
        verify_order(kernel, sizes)
        interpret(kernel, given, sizes)
        np.testing.assert_allclose(result, expected, rtol=0, atol=bound)
        return
    interpreted, emulated, (counted,) = both_ways([(kernel, given)], sizes)
    np.testing.assert_allclose(interpreted, expected, rtol=0, atol=bound)
    np.testing.assert_allclose(emulated, expected, rtol=0, atol=bound)
    assert counted.conflicts <= counted.blocks * 128


@pytest.mark.parametrize(("dtype", "symbolic"), [(F16, True), (F32, False)])
@pytest.mark.parametrize(
    ("count", "pixels", "groups", "own", "usual"),
    [
        (2, 300, 32, 10, 4096),
        (1, 1, 32, 4, 4096),
        (3, 70, 8, 8, 64),
        (1, 513, 4, 16, 262144),
        (2, 33, 1, 32, 1024),
        (1, 50, 40, 8, 1024),
    ],
)
def test_factors(count: int, pixels: int, groups: int, own: int, usual: int, dtype: np.dtype, symbolic: bool) -> None:
    whether_right(count, pixels, groups, own, dtype, symbolic, usual)


def test_images_of_no_pixels() -> None:
    """Nothing is read of them."""
    whether_right(2, 0, 8, 8, F16, True, 4096)


@pytest.mark.parametrize("parts", [(1, 1), (3, 1), (1, 4)])
def test_images_side_by_side(parts: tuple[int, int]) -> None:
    """Channels of two images, of which a block has those of one."""
    whether_right(2, 90, 32, 20, F16, True, 1024, parts)


@pytest.mark.parametrize("lanes", [4, 8, 64])
def test_other_numbers_of_lanes(lanes: int) -> None:
    whether_right(1, 40, 8, 16, F32, True, 1024, lanes=lanes)
