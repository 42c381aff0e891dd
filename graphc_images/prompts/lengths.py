"""Conditionings of different lengths in one batch.

Arrays are [batch, tokens, channels]. A denoiser that has no mask sees each of its tokens: only `repeat_to_common` leaves
what it computes as it was.
"""

from __future__ import annotations

import math

import numpy as np

MOST_REPEATS = 4


def pad_with_last(array: np.ndarray, tokens: int) -> np.ndarray:
    """Repeats the last vector up to this many (A1111: stages and sub-prompts of a batch, and pad_cond_uncond_v0).

    What is longer is cut, as pad_cond_uncond_v0 does with a negative prompt.
    """
    missing = tokens - array.shape[1]
    return array[:, :tokens] if missing <= 0 else np.concatenate([array, array[:, -1:].repeat(missing, 1)], 1)


def pad_with_empty(array: np.ndarray, empty: np.ndarray, tokens: int) -> np.ndarray:
    """Appends the empty prompt's chunk [1, chunk, channels] as often as whole ones fit (A1111: pad_cond_uncond)."""
    times = max(tokens - array.shape[1], 0) // empty.shape[1]
    return np.concatenate([array, *[empty.repeat(len(array), 0)] * times], 1)


def repeat_to_common(arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """Repeats each to the least common multiple of lengths, or None if one would be repeated more than 4 times (ComfyUI).

    Cross-attention gives the same for keys that are repeated, so this is exact.
    """
    common = math.lcm(*(array.shape[1] for array in arrays))
    if common > MOST_REPEATS * min(array.shape[1] for array in arrays):
        return None
    return [np.tile(array, (1, common // array.shape[1], 1)) for array in arrays]
