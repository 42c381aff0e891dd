"""What a person says of a named size: that it is one number, or lies in a range, or is a multiple of something."""

from __future__ import annotations

import re
from math import lcm
from typing import TypeAlias, Union

from graphc.records import dataclass
from graphc.shapes.dim import Atom, Dim, symbol

_RANGE = re.compile(r"([0-9]{1,18})?\.\.([0-9]{1,18})?(?::([0-9]{1,18}))?")


@dataclass(frozen=True)
class SizeRange:
    """The sizes from `low` to `high` (inclusive; None for no bound) that are multiples of `multiple`.

    Raises ValueError if there is none.
    """

    low: int = 1
    high: int | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.multiple < 1:
            raise ValueError("the step of a range is at least 1")
        if self.high is not None and -(-self.low // self.multiple) * self.multiple > self.high:
            raise ValueError("no size lies in the range")

    def symbol(self, name: str) -> Dim:
        """A size of this range; the number itself, if there is only one."""
        first = -(-self.low // self.multiple) * self.multiple
        last = None if self.high is None else self.high // self.multiple * self.multiple
        return first if first == last else symbol(name, first, last, self.multiple)

    def scaled(self, factor: int) -> SizeRange:
        """What a number of this range is when it is multiplied."""
        high = None if self.high is None else self.high * factor
        return SizeRange(self.low * factor, high, self.multiple * factor)

    def within(self, other: SizeRange) -> SizeRange:
        """The sizes of both. Raises ValueError if there is none."""
        highs = [high for high in (self.high, other.high) if high is not None]
        return SizeRange(max(self.low, other.low), min(highs, default=None), lcm(self.multiple, other.multiple))

    def misfit(self, number: int) -> str:
        """What a number would have to be to lie in the range; nothing if it does."""
        if number < self.low:
            return f"at least {self.low}"
        if self.high is not None and number > self.high:
            return f"at most {self.high}"
        return f"a multiple of {self.multiple}" if number % self.multiple else ""

    def words(self) -> str:
        """The range as a person says it."""
        bounds = f"at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return bounds + (f", a multiple of {self.multiple}" if self.multiple > 1 else "")

    def __str__(self) -> str:
        """The range as `parse_size` reads it."""
        high = "" if self.high is None else self.high
        return f"{self.low}..{high}" + (f":{self.multiple}" if self.multiple > 1 else "")


Size: TypeAlias = Union[int, str, SizeRange]
"""How a size may be given: a number, a range, or the text of either."""

ANY = SizeRange()


def range_of(atom: Atom) -> SizeRange:
    """The range of a symbol."""
    return SizeRange(atom.low, atom.high, atom.multiple)


def parse_size(given: Size) -> int | SizeRange:
    """Read `64`, `64..128`, `64..128:8` (from 64 to 128 in steps of 8), `0..` or `..:8`. Raises ValueError."""
    if isinstance(given, SizeRange):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return given
    if isinstance(given, str):
        if given.isascii() and given.isdigit() and len(given) <= 18 and int(given) >= 1:
            return int(given)
        if match := _RANGE.fullmatch(given):
            low, high, multiple = (None if part is None else int(part) for part in match.groups())
            return SizeRange(1 if low is None else low, high, 1 if multiple is None else multiple)
    raise ValueError("a size is a positive number, or a range LOW..HIGH:MULTIPLE of which each part may be left out")
