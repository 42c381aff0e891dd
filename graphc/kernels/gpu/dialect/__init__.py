"""The dialect of C++ that generated GPU kernels are written in: `README.md` says what its functions do.

A kernel's text includes nothing. What a toolchain needs before it is one of the headers beside this file, put into one text.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from graphc.kernels.c.joined import joined

FOLDER = Path(__file__).parent

TOOLCHAINS = {"nvcc": "nvcc.h", "clang": "clang.h", "emulator": "emulator.h"}
"""The header that each toolchain is given before a kernel's text."""


class Divisor(NamedTuple):
    """What a kernel divides by: a parameter of type `Divisor`, which is three unsigned integers."""

    divisor: int
    multiplier: int
    shift: int


def divisor(number: int) -> Divisor:
    """What divides integers from 0 to 2^31 - 1 by `number`, which is one of 1 to 2^31 - 1.

    With a shift s that makes 2^s at least the divisor, the multiplier is 2^(31 + s) / divisor, rounded up. What the rounding adds
    to a quotient is less than 1 / divisor, so it changes no digit before the point.
    """
    if not 1 <= number < 1 << 31:
        raise ValueError(f"{number} is no divisor: it must be one of 1 to 2^31 - 1")
    shift = (number - 1).bit_length()
    return Divisor(number, -(-(1 << (31 + shift)) // number), shift)


@functools.cache
def prelude(toolchain: str) -> str:
    """All that stands before a kernel's text, as one text."""
    return joined([TOOLCHAINS[toolchain]], lambda name: (FOLDER / name).read_text(encoding="utf-8"))


def complete(toolchain: str, text: str) -> str:
    """A kernel's text as the toolchain can compile it. Messages count lines from the text's first."""
    return f'{prelude(toolchain)}\n#line 1 "kernel"\n{text}'
