"""The names of a model's dimensions, as symbols. A file may call a dimension anything; a symbol is an identifier."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import onnx_ir

from graphc.errors import InputError
from graphc.shapes import Dim, Expr, bind, parse_dim, symbol, symbols
from graphc.shapes.ranges import ANY, Size, SizeRange, parse_size

EXPRESSION = re.compile(r"[A-Za-z0-9_+*/%(), -]{1,200}")
MAX_FACTOR = 4096
"""The largest number by which the sizes of an input may be multiples of a symbol."""

NO_NAMES = frozenset({None, "", "?", "None", "-1"})
"""What exporters call dimensions that have no name, and need not be equal."""

RESERVED = frozenset({"min", "max"})


def name_of(size: int | onnx_ir.SymbolicDim) -> str | None:
    """What the file calls a size; None for a number, and for one that has no name."""
    return None if isinstance(size, int) or size.value in NO_NAMES else size.value


class Dimensions:
    """Turns what the file calls a dimension into a `Dim`, and replaces those that are pinned to a size.

    `given` says of dimensions what size they have, or the range that it lies in. `facts` says what is known of symbols,
    by name: a narrower symbol, a size, or an expression over other symbols. `alone` are the names that inputs have as a whole
    size: an expression over others is a size of its own, for no run could tell what is in it.
    """

    def __init__(
        self, given: Mapping[str, Size], facts: Mapping[str, Dim] | None = None, alone: Iterable[str] = ()
    ) -> None:
        self._alone = frozenset(alone)
        self._pinned: dict[str, int] = {}
        self._ranges: dict[str, SizeRange] = {}
        for name, size in given.items():
            try:
                parsed = parse_size(size)
            except ValueError as error:
                raise InputError(f"dimension {name} is to be {size!r}: {error}") from error
            if isinstance(parsed, int):
                self._pinned[name] = parsed
            else:
                self._ranges[name] = parsed
        self.measured_symbols: set[str] = set()
        self._facts = dict(facts or {})
        self._dims: dict[str, Dim] = {}
        self._taken: dict[str, None] = {}
        self._used: set[str] = set()
        self._first: set[str] = set()
        self._later: set[str] = set()

    def named(self, text: str) -> Dim:
        """The dim that the model calls `text`: a name, or an expression over names such as `8*h`."""
        if text not in self._dims:
            self._dims[text] = self._new(text)
        return self._dims[text]

    def unnamed(self, value: str, axis: int) -> Dim:
        """The dim of an axis of an input to which the model gives neither size nor name."""
        return self.named(f"{value}_{axis}")

    def measured(self, text: str, low: int, high: int | None) -> Dim:
        """A new size that is known once the model has computed it; `text` is what it is called by, if that is free."""
        size = self._symbol(text, low=low, high=high)
        self.measured_symbols |= symbols(size).keys()
        return size

    @property
    def measures(self) -> bool:
        """True if there is a size that only a run can tell."""
        return bool(self.measured_symbols)

    def is_measured(self, size: Dim) -> bool:
        """True if a size depends on one that only a run can tell."""
        return not self.measured_symbols.isdisjoint(symbols(size))

    def names(self) -> list[str]:
        """The symbols that inputs have so far, and the given names that were met."""
        return sorted(set(symbols(*self._dims.values())) | self._used)

    def of_inputs(self) -> list[str]:
        """The symbols that inputs have, in their order."""
        return [name for name in self._taken if name not in self.measured_symbols]

    def note_batch(self, shape: Sequence[Dim]) -> None:
        """Take note that an input has this shape."""
        self._first |= symbols(*shape[:1]).keys() if len(shape) > 1 else set()
        self._later |= symbols(*shape[1:]).keys()

    @property
    def batches(self) -> set[str]:
        """The symbols that inputs of several axes have as their first, and no input as another."""
        return self._first - self._later

    def of_runs(self) -> list[str]:
        """The symbols that only a run can tell, in the order in which they were made."""
        return [name for name in self._taken if name in self.measured_symbols]

    def unused(self) -> list[str]:
        """The given names that the model does not have."""
        return sorted({*self._pinned, *self._ranges} - self._used)

    def _new(self, text: str) -> Dim:
        if text in self._pinned:
            self._used.add(text)
            return self._pinned[text]
        parsed = _parse(text)
        if parsed is None:
            return self._symbol(text)
        if (scaled := self._multiple(parsed)) is not None:
            return scaled
        if any(
            name not in self._dims and name not in self._pinned and name not in self._alone for name in symbols(parsed)
        ):
            return self._symbol(text)
        binding: dict[str, Dim] = {}
        for name in symbols(parsed):
            binding[name] = self.named(name) if name != text else self._symbol(name)
        return bind(parsed, binding)

    def _multiple(self, dim: Dim) -> Dim | None:
        """A symbol for a dim such as 8*h of an `h` that is not known yet, so that the size of an input is a symbol and `h`
        an eighth of it; None for any other dim."""
        if not isinstance(dim, Expr) or len(dim.terms) != 1:
            return None
        ((monomial, factor),) = dim.terms
        if len(monomial) != 1 or monomial[0].kind != "symbol" or not 2 <= factor <= MAX_FACTOR:
            return None
        name = monomial[0].name
        if name in self._dims or name in self._pinned:
            return None
        whole = self._symbol(f"{name}_{factor}", self._range(name).scaled(factor))
        self._dims[name] = whole // factor
        return whole

    def _range(self, name: str) -> SizeRange:
        """What is said of a name."""
        if name not in self._ranges:
            return ANY
        self._used.add(name)
        return self._ranges[name]

    def _symbol(self, text: str, known: SizeRange | None = None, low: int = 1, high: int | None = None) -> Dim:
        name = re.sub(r"\W", "_", text, flags=re.ASCII)[:60]
        if not name.isidentifier() or keyword.iskeyword(name) or name in RESERVED:
            name = f"d_{name}"
        while name in self._taken:
            name += "_"
        self._taken[name] = None
        if name in self._pinned:
            self._used.add(name)
            return self._pinned[name]
        if name in self._facts:
            return self._facts[name]
        said = [self._range(each) for each in dict.fromkeys((text, name)) if each in self._ranges]
        if not said and known is None:
            return symbol(name, low, high)
        return reduce(SizeRange.within, [*([] if known is None else [known]), *said]).symbol(name)


def _parse(text: str) -> Dim | None:
    """The expression, if it is one over symbols."""
    if not EXPRESSION.fullmatch(text):
        return None
    try:
        dim = parse_dim(text)
    except ValueError:
        return None
    return dim if symbols(dim) else None
