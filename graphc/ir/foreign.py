"""Types of numbers that NumPy does not have itself: bfloat16, and those of a byte and less.

They are those of `ml_dtypes`. Where that is not installed (it has no wheel for musl), programs name them and compute with them
all the same, weights of bfloat16 are held as their bits, and those of checkpoints become float32 when they are read; another
array of such a type is refused.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from graphc.errors import InputError

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None  # type: ignore[assignment]

F32 = np.dtype(np.float32)
U16 = np.dtype(np.uint16)


class Absent:
    """Stands for a type of which there are no arrays here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.itemsize = 2 if name == "bfloat16" else 1

    @property
    def dtype(self) -> np.dtype:
        """What NumPy asks for where it is to make an array of the type. Raises InputError."""
        raise InputError(f"there are no arrays of {self.name} without the package ml_dtypes: pip install ml_dtypes")

    def __repr__(self) -> str:
        return self.name


_absent: dict[str, Absent] = {}


def foreign(name: str) -> np.dtype[np.generic]:
    """The type of this name, or what stands for it."""
    found: Any = _absent.setdefault(name, Absent(name)) if ml_dtypes is None else np.dtype(getattr(ml_dtypes, name))
    return cast("np.dtype[np.generic]", found)


def named(name: str) -> np.dtype[np.generic]:
    """The type of this name, NumPy's own or one of these."""
    try:
        return np.dtype(name)
    except TypeError:
        return foreign(name)


BF16_STORED = U16 if ml_dtypes is None else foreign("bfloat16")
"""What an array of weights has that are stored as bfloat16."""


def elements(raw: np.ndarray, dtype: Any) -> np.ndarray:
    """Bytes as elements of a type; of one that there are no arrays of, their numbers as float32. Raises InputError if they are of
    a type that no checkpoint has."""
    if not isinstance(dtype, Absent) or dtype.name not in NUMBERS:
        return raw.view(dtype)
    numbers: np.ndarray = NUMBERS[dtype.name](raw)
    return numbers


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The numbers, float32, of which these uint16 are the upper halves."""
    return (bits.astype(np.uint32) << 16).view(F32)


def to_bf16(numbers: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers as uint16, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(numbers, F32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(numbers), (bits >> 16 & 0x8000) | 0x7FC0, rounded).astype(U16)


def _from_e5m2(codes: np.ndarray) -> np.ndarray:
    return (codes.astype(U16) << 8).view(np.float16).astype(F32)


def _from_e4m3fn(codes: np.ndarray) -> np.ndarray:
    wide = codes.astype(U16)
    numbers = ((wide & 0x80) << 8 | (wide & 0x7F) << 7).view(np.float16).astype(F32) * F32.type(256)
    numbers[(codes & 0x7F) == 0x7F] = np.nan
    return numbers


NUMBERS = {
    "bfloat16": lambda raw: from_bf16(raw.view(U16)),
    "float8_e4m3fn": _from_e4m3fn,
    "float8_e5m2": _from_e5m2,
}
"""What a type's bytes stand for, of those that checkpoints have."""
