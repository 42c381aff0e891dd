"""Tensors of floats of 8 bits that a checkpoint multiplies by numbers beside them: one for the whole tensor, or one for each row.

Sources: ComfyUI's files of `scaled_fp8` (`x.scale_weight`), and the later ones of its and vLLM's (`x.weight_scale`). What such a
file says of inputs (`x.scale_input`) is for products that round these to 8 bits too; ours do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.errors import CheckpointError
from graphc.ir.foreign import elements, foreign
from graphc.ir.types import F32

EIGHT_BITS = {foreign("float8_e4m3fn"), foreign("float8_e5m2")}
"""Types whose numbers float16 has."""

READ_AS = {elements(np.empty(0, np.uint8), each).dtype for each in EIGHT_BITS}
"""What arrays of them have."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A tensor [rows, ...] of floats of 8 bits, and the numbers [rows] or [1] that its rows are multiplied by.

    It is read as a float32 array of its shape is: `np.asarray(scaled)` computes the numbers, each time anew. A slice of the first
    axis, `reshape` and `stacked` compute nothing.
    """

    raw: np.ndarray
    scales: np.ndarray

    dtype = F32

    def __post_init__(self) -> None:
        if self.raw.dtype not in READ_AS or self.scales.shape not in {(1,), self.raw.shape[:1]}:
            given = f"{self.raw.dtype} {list(self.raw.shape)} by {self.scales.dtype} {list(self.scales.shape)}"
            raise CheckpointError(f"it is scaled in a way that is not supported: {given}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's sizes."""
        return self.raw.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.raw.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.raw.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        numbers: np.ndarray = self.raw.astype(F32) * self.scales.reshape(-1, *[1] * (self.ndim - 1))
        return numbers if dtype is None else numbers.astype(dtype, copy=False)

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, key: Any) -> Scaled | np.ndarray:
        if not isinstance(key, slice):
            found: np.ndarray = np.asarray(self)[key]
            return found
        return Scaled(self.raw[key], self.scales if len(self.scales) == 1 else self.scales[key])

    def reshape(self, *shape: Any) -> Scaled | np.ndarray:
        """Other sizes over the same elements: numbers, where rows of different scales would be cut or joined."""
        raw = self.raw.reshape(*shape)
        if len(self.scales) == 1 or raw.shape[:1] == self.raw.shape[:1]:
            return Scaled(raw, self.scales)
        return np.asarray(self).reshape(*shape)


def stacked(parts: Sequence[Scaled]) -> Scaled:
    """Tensors one behind the other along their first axis, of one type."""
    scales = [np.broadcast_to(each.scales, (len(each),)) for each in parts]
    return Scaled(np.concatenate([each.raw for each in parts]), np.concatenate(scales))


def scale_of(array: np.ndarray, scale: np.ndarray) -> Scaled:
    """A tensor with its scale: one number in any shape, or [rows], or [rows, 1, ...]. Raises CheckpointError for another."""
    rows = scale.size == 1 or scale.shape == (*array.shape[:1], *[1] * (scale.ndim - 1))
    if not rows or scale.dtype.kind not in "fV" or scale.dtype in EIGHT_BITS:
        raise CheckpointError(
            f"it is scaled in a way that is not supported: {array.dtype} {list(array.shape)} by {scale.dtype} {list(scale.shape)}"
        )
    return Scaled(array, scale.astype(F32).reshape(-1))
