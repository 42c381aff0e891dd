"""What every reader of checkpoints gives: arrays by name, views of the mapped file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np

from graphc.errors import CheckpointError
from graphc.files import map_file
from graphc.ir.types import MOST_AXES
from graphc.weights.formats.blocks import Blocks
from graphc.weights.formats.scaled import Scaled


@dataclass(frozen=True)
class Unreadable:
    """A tensor that is there but cannot be used, and the reason."""

    reason: str


Tensor: TypeAlias = Union[np.ndarray, Blocks, Scaled, Unreadable]

Tensors: TypeAlias = dict[str, Tensor]
"""What a checkpoint has, by name. A quantized tensor is `Blocks`, one of scaled 8-bit floats `Scaled`, which are taken apart and
put together by rows as an array is: `tensor[a:b]`, `tensor.reshape(...)` and `joined([...])` of `blocks.py` keep what it is,
`np.asarray(tensor)` gives numbers."""


MOST_REPEATED = 1 << 24
"""Elements of a tensor whose file has fewer, because strides of zero repeat them."""


def shaped(raw: np.ndarray, shape: Any) -> np.ndarray:
    """An array's elements in the shape that a file declares. Raises CheckpointError for what is not a shape, or another's."""
    check_shape(shape)
    if prod(shape) != raw.size:
        raise CheckpointError(f"it is damaged: a tensor of {list(shape)} has {raw.size} elements")
    return raw.reshape(tuple(shape))


def check_shape(shape: Any) -> None:
    """Raise CheckpointError for what no array has as its shape."""
    if not isinstance(shape, list | tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise CheckpointError("it is damaged: a tensor with sizes that are not numbers")
    if len(shape) > MOST_AXES:
        raise CheckpointError(f"a tensor has {len(shape)} axes, more than {MOST_AXES}")
    if prod(size for size in shape if size) >= 1 << 59:
        raise CheckpointError(f"a tensor of {list(shape)} is larger than any file")


def mapped(path: Path) -> np.ndarray:
    """The bytes of a regular file. Raises CheckpointError if there is none."""
    try:
        return map_file(path)
    except OSError as error:
        raise CheckpointError(str(error.strerror or error).lower()) from error
