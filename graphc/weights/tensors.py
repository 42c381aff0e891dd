"""What every reader of checkpoints gives: arrays by name, views of the mapped file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, Union

import numpy as np

from graphc.errors import CheckpointError
from graphc.files import map_file
from graphc.weights.blocks import Blocks


@dataclass(frozen=True)
class Unreadable:
    """A tensor that is there but cannot be used, and the reason."""

    reason: str


Tensor: TypeAlias = Union[np.ndarray, Blocks, Unreadable]

Tensors: TypeAlias = dict[str, Tensor]
"""What a checkpoint has, by name. A quantized tensor is `Blocks`, which is taken apart and put together by rows as an array is:
`tensor[a:b]`, `tensor.reshape(...)` and `joined([...])` of `blocks.py` keep its blocks, `np.asarray(tensor)` gives numbers."""


def mapped(path: Path) -> np.ndarray:
    """The bytes of a regular file. Raises CheckpointError if there is none."""
    try:
        return map_file(path)
    except OSError as error:
        raise CheckpointError(str(error.strerror or error).lower()) from error
