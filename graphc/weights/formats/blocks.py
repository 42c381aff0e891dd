"""Tensors of quantized numbers as a checkpoint has them: blocks, which stay as they are where whole rows move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphc.errors import CheckpointError
from graphc.ggml_types import TYPES, dequantize, nbytes
from graphc.ir.types import F32
from graphc.weights.formats.scaled import Scaled, stacked


@dataclass(frozen=True, eq=False)
class Blocks:
    """A tensor in a quantized type of ggml: the bytes of its blocks, in order, where they lie in the mapped file.

    It is read as a float32 array of `shape` is. `np.asarray(blocks)` computes the numbers, each time anew, and so does whatever
    NumPy makes of it. What moves whole blocks gives blocks again, without computing anything: a slice of the first axis
    (`blocks[a:b]`), `reshape`, and `joined` of several along the first axis. Where that would cut a block, and for any other
    index, the result is an array of numbers.
    """

    type: str
    raw: np.ndarray
    shape: tuple[int, ...]

    dtype = F32

    def __post_init__(self) -> None:
        if self.size % TYPES[self.type].elements or self.raw.size != nbytes(self.type, self.shape):
            raise CheckpointError(f"{self.raw.size} bytes of {self.type} are no tensor of {list(self.shape)}")

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        numbers = dequantize(self.type, np.ascontiguousarray(self.raw), self.size).reshape(self.shape)
        return numbers if dtype is None else numbers.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Blocks | np.ndarray:
        if not isinstance(key, slice) or key.step not in (None, 1) or not self.whole(1):
            found: np.ndarray = np.asarray(self)[key]
            return found
        rows = self.along(1)[key]
        return Blocks(self.type, rows, (len(rows), *self.shape[1:]))

    def reshape(self, *shape: Any) -> Blocks:
        """Other sizes over the same elements; one may be -1. Raises ValueError if they are not as many."""
        sizes = np.broadcast_to(np.uint8(0), self.shape).reshape(*shape).shape
        return Blocks(self.type, self.raw, sizes)

    def whole(self, axes: int) -> bool:
        """True if what belongs to one place along the first axes is whole blocks."""
        return prod(self.shape[axes:]) % TYPES[self.type].elements == 0

    def along(self, axes: int) -> np.ndarray:
        """The bytes, an axis of them behind the first axes."""
        run = nbytes(self.type, self.shape[axes:])
        found: np.ndarray = self.raw.reshape((*self.shape[:axes], run))
        return found


def joined(parts: Sequence[np.ndarray | Blocks | Scaled]) -> np.ndarray | Blocks | Scaled:
    """Tensors one behind the other along their first axis: blocks if all are, of one type and shape of rows; so scaled ones."""
    first, *others = parts
    scaled = [each for each in parts if isinstance(each, Scaled)]
    if len(scaled) == len(parts) and len({each.raw.dtype for each in scaled}) == 1:
        return stacked(scaled)
    if isinstance(first, Blocks) and first.whole(1) and all(
        isinstance(each, Blocks) and each.type == first.type and each.shape[1:] == first.shape[1:] for each in others
    ):  # fmt: skip
        raw = np.concatenate([each.along(1) for each in parts if isinstance(each, Blocks)])
        return Blocks(first.type, raw, (sum(map(len, parts)), *first.shape[1:]))
    return np.concatenate([np.asarray(each) for each in parts])
