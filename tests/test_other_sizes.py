"""Images of other sizes and the means of windows by our own code: ggml's numbers, the same bits with any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from test_channels_last import Some

from graphc.targets.ggml.program.tensor import Constant

BILINEAR, NEAREST = Constant("GGML_SCALE_MODE_BILINEAR"), Constant("GGML_SCALE_MODE_NEAREST")
SIZES = [(1, 1), (1, 7), (5, 1), (2, 2), (4, 9), (13, 6), (33, 40)]
RANDOM = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def _draws_of_its_own():
    """A test draws the same sizes in whatever order tests run."""
    RANDOM.bit_generator.state = np.random.default_rng(1).bit_generator.state


def held(some: Some, last: bool, channels: int, height: int, width: int):
    """Two images, with their channels as the innermost axis or not."""
    return some.input("x", *((2, height, width, channels) if last else (2, channels, height, width)))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", [NEAREST, BILINEAR], ids=["nearest", "bilinear"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_another_size(size: tuple[int, int], mode: Constant, last: bool):
    for channels in (1, 3, 24):
        for to in [*SIZES, (2 * size[0], 2 * size[1]), (3 * size[0], 1100)]:
            some = Some()
            x = held(some, last, channels, *size)
            ne = (channels, to[1], to[0], 2) if last else (to[1], to[0], channels, 2)
            some.output(some.b.call("graphc_upscale", x, *ne, mode, last, rank=4))
            some.check()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("window", [(1, 1), (2, 2), (3, 3), (2, 5), (7, 4)], ids=str)
def test_means_of_windows(window: tuple[int, int], last: bool):
    for _ in range(12):
        strides, pads = RANDOM.integers(1, 4, 2).tolist(), [int(RANDOM.integers(0, 1 + each // 2)) for each in window]
        height, width, channels = np.add(RANDOM.integers(1, 30, 3), (*window, 0)).tolist()
        some = Some()
        x = held(some, last, channels, height, width)
        settings = (*reversed(window), *strides, *map(float, reversed(pads)))
        some.output(some.b.call("graphc_average_pool", x, *settings, last, rank=4))
        some.check()


def test_parts_of_any_size_are_joined():
    for _ in range(40):
        axis, shape = int(RANDOM.integers(0, 4)), RANDOM.integers(1, 9, 4).tolist()
        shape[int(RANDOM.integers(0, 4))] *= int(RANDOM.integers(1, 900))
        some = Some()
        parts = []
        for number in range(int(RANDOM.integers(2, 7))):
            shape[3 - axis] = int(RANDOM.integers(1, 20))
            parts.append(some.input(f"x{number}", *shape))
        some.output(some.b.call("graphc_concat", axis, *parts, rank=4))
        some.check(atol=0)
