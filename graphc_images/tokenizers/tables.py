"""The files beside this one: arrays, written by `examples/tokenizer_tables.py`."""

from pathlib import Path

import numpy as np


def read_tables(name: str) -> dict[str, np.ndarray]:
    """The arrays of a file of tables by name; texts are UTF-8 bytes."""
    with np.load(Path(__file__).with_name(name), allow_pickle=False) as tables:
        return dict(tables)


def text_of(array: np.ndarray) -> str:
    """A text that was stored as bytes."""
    return array.tobytes().decode()
