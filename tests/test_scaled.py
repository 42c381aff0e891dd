"""Tensors of scaled floats of 8 bits: taken apart and put together as arrays are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphc.errors import CheckpointError
from graphc.weights.formats.blocks import joined
from graphc.weights.formats.scaled import Scaled, scale_of

RANDOM = np.random.default_rng(0)


def tensor(shape: tuple[int, ...], rows: bool) -> Scaled:
    raw = RANDOM.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
    return scale_of(raw, RANDOM.random((shape[0], 1) if rows else ()).astype(np.float32))


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 1, 1), (1, 5), (0, 3), (6,)])
def test_parts_are_those_of_the_numbers(shape: tuple[int, ...], rows: bool) -> None:
    scaled = tensor(shape, rows)
    numbers = np.asarray(scaled)
    assert numbers.dtype == np.float32
    assert (scaled.shape, scaled.ndim, scaled.size, len(scaled)) == (shape, numbers.ndim, numbers.size, len(numbers))
    for part, expected in (
        (scaled[1:3], numbers[1:3]),
        (scaled[:0], numbers[:0]),
        (
            scaled.reshape(shape[0], numbers.size // max(shape[0], 1)),
            numbers.reshape(shape[0], numbers.size // max(shape[0], 1)),
        ),
        (joined([scaled[2:], scaled[:2], scaled]), np.concatenate([numbers[2:], numbers[:2], numbers])),
    ):
        assert isinstance(part, Scaled)
        np.testing.assert_array_equal(np.asarray(part), expected)
    np.testing.assert_array_equal(np.asarray(scaled.reshape(-1)), numbers.reshape(-1))
    np.testing.assert_array_equal(np.asarray(joined([scaled, numbers])), np.concatenate([numbers, numbers]))
    if numbers.size:
        np.testing.assert_array_equal(scaled[-1], numbers[-1])


def test_scales_of_columns_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"not supported: float8_e4m3fn \[2, 4\] by float32 \[1, 4\]"):
        scale_of(np.zeros((2, 4), ml_dtypes.float8_e4m3fn), np.ones((1, 4), np.float32))
