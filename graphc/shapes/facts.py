"""Learning what sizes a model works for, from sizes that must be equal.

Where an operator needs two sizes to be equal and they are not for every value of their symbols, the model only works for
some values. If those are all numbers in a range, all multiples of a number, or if one symbol is just another name of a
second or a sum of others, the symbol is declared so, and the import starts again with it: derived sizes then simplify by
themselves, and the runtime refuses other values in the input's own words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import gcd, lcm
from typing import TypeGuard

from graphc.shapes.dim import (
    Atom,
    Dim,
    Expr,
    bind,
    dim_min,
    integer,
    is_polynomial,
    lower_bound,
    symbol,
    symbols,
    upper_bound,
)
from graphc.shapes.ranges import ANY, SizeRange, range_of

TRIED = 4096
"""Values of a symbol that are tried out."""

FARTHEST = 1 << 40
"""A size up to which the end of those that work is looked for."""

LONG = 32
"""So many sizes from the least on that work are the ones meant, and not what some of the larger ones have in common: an exporter
that saw one chunk writes what is right up to a chunk, and for whole chunks by chance."""

LARGEST_FACTOR = 256
"""The largest number whose multiples are tried, where the sizes that work are no simple row: half of them would do for
one level of a pyramid, but only the multiples for all of its levels."""

LATER = (8, 16, 32, 64)
"""Sizes from which on it may be shown that two are equal, where it cannot from the first for which they are."""

USUAL = (64, 16, 1024, 1)
"""Sizes that the other symbols are given, one after the other, while the values of one are tried out."""


def learn(
    facts: dict[str, Dim],
    differ: Iterable[tuple[object, object]],
    order: Sequence[str] = (),
    measured: Sequence[str] = (),
    batches: Collection[str] = (),
) -> bool:
    """Add to `facts` (what each symbol is, by name) what makes the first pair of sizes equal that can be. `order` are the symbols
    of inputs, `measured` those that only a run tells: of those that could be told by others, the last is. `batches` are those of
    inputs of which 1 is the usual size.

    Returns False if nothing simple does; the sizes then really do not fit.
    """
    for left, right in differ:
        assert isinstance(left, int | Expr)
        assert isinstance(right, int | Expr)
        found = (
            _one_symbol(left, right)
            or _two_symbols(left, right, measured)
            or _counted_twice(left, right, order)
            or _left_over(left, right, measured)
            or _solved(left, right, order)
            or _alike(left, right, order)
            or _divided(left, right, [name for name in order if name not in batches])
            or _box(left, right, [name for name in order if name not in batches])
            or _one_of_many(left, right, batches)
            or _counted_in_rows(left, right, order)
            or _square(left, right, order, batches)
        )
        if found:
            name, dim = found
            facts[name] = dim
            for other, known in facts.items():
                facts[other] = bind(
                    known, {**{each: symbol_of(atom) for each, atom in symbols(known).items()}, name: dim}
                )
            return True
    return False


def symbol_of(atom: Atom) -> Expr:
    """The symbol that an atom belongs to."""
    return symbol(atom.name, atom.low, atom.high, atom.multiple)


def _one_symbol(left: Dim, right: Dim, alone: bool = True) -> tuple[str, Dim] | None:
    """The narrower symbol, or the size, for which the two are equal. Where they are for all sizes, but not provably, those may be
    meant for which they are not 0; if others have been given sizes (not `alone`), it is they that matter."""
    atoms = symbols(left, right)
    if len(atoms) != 1:
        return None
    ((name, atom),) = atoms.items()
    last = min(atom.high or TRIED, TRIED)
    first = -(-max(atom.low, 0) // atom.multiple) * atom.multiple
    fitting = [n for n in range(first, last + 1, atom.multiple) if _equal(left, right, {name: n})]
    if len(fitting) == len(range(first, last + 1, atom.multiple)) and atom.low >= 0:
        fitting = [n for n in fitting if integer(left, {name: n}) > 0] if alone else []
    if not fitting:
        return None
    if len(fitting) == 1:
        return name, fitting[0]
    multiple = gcd(*fitting)
    beginning = [n for place, n in enumerate(fitting) if n == first + place * atom.multiple]
    if len(fitting) > len(beginning) >= LONG:
        return name, symbol(name, first, beginning[-1], atom.multiple)
    if fitting != list(range(fitting[0], fitting[-1] + 1, multiple)):
        rows = (range(-(-fitting[0] // n) * n, fitting[-1] + 1, n) for n in range(2, LARGEST_FACTOR + 1))
        row = next((row for row in rows if len(row) > 1 and set(row) <= set(fitting)), range(0))
        places = [n - place * atom.multiple for place, n in enumerate(fitting)]
        end = range(fitting[places.index(places[-1])], fitting[-1] + 1, atom.multiple)
        row = max(row, end, key=len)
        if len(row) < 2:
            return None
        fitting, multiple = list(row), row.step
    open_ended = atom.high is None and fitting[-1] + multiple > last
    most = _last_that_fits(left, right, name, fitting[-1], multiple) if open_ended else fitting[-1]
    candidates = [symbol(name, first, most, multiple) for first in (fitting[0], *LATER) if first in fitting]
    return name, next((each for each in candidates if _equal(left, right, {name: each})), candidates[0])


def _last_that_fits(left: Dim, right: Dim, name: str, tried: int, multiple: int) -> int | None:
    """Up to which of the multiples after the last that was tried the two are equal; None if no end is seen. A table of positions
    has an end where a voice is minutes long, so steps are doubled until one is too far, and then halved."""
    fits, step = tried, multiple
    while _equal(left, right, {name: fits + step}):
        fits, step = fits + step, 2 * step
        if fits > FARTHEST:
            return None
    while step > multiple:
        step //= 2
        if _equal(left, right, {name: fits + step}):
            fits += step
    return fits


def _two_symbols(left: Dim, right: Dim, measured: Sequence[str] = ()) -> tuple[str, Dim] | None:
    """A symbol as another name of the other side: of a symbol, or of an expression over other symbols. What only a run tells is
    called as what an input tells.

    What is known of the symbol must follow from what is known of the other side; two symbols of different ranges are
    first narrowed to what both may be.
    """
    for renamed, other in sorted(((right, left), (left, right)), key=lambda pair: str(pair[0]) not in measured):
        atom = symbols(renamed).get(str(renamed))
        if atom is None or atom.name in symbols(other):
            continue
        kept = symbols(other).get(str(other))
        if kept is None:
            if range_of(atom) == ANY and (lower_bound(other) or 0) >= 1:
                return atom.name, other
            continue
        try:
            both = range_of(kept).within(range_of(atom))
        except ValueError:
            return None
        return (atom.name, symbol_of(kept)) if both == range_of(kept) else (kept.name, both.symbol(kept.name))
    return None


def _counted_twice(left: Dim, right: Dim, order: Sequence[str]) -> tuple[str, Dim] | None:
    """Of `min(a, b) = b`, where no input tells `a` or `b`: one as another name of the other, or so many of it. So exporters write
    what is put where a mask is true, which they count anew each time, by elements or rows."""
    for whole, least in ((left, right), (right, left)):
        for atom in (atom for monomial, _ in whole.terms for atom in monomial) if isinstance(whole, Expr) else ():
            if atom.kind == "min" and least in atom.args and whole == dim_min(*atom.args):
                one, other = atom.args
                found = _two_symbols(one, other) or _counted_in_rows(one, other, order)
                if found and not {*symbols(*atom.args)} & {*order}:
                    return found
    return None


def _counted_in_rows(left: Dim, right: Dim, order: Sequence[str]) -> tuple[str, Dim] | None:
    """A symbol that no input tells as a product of others, if all that is known of the symbol is known of that. So exporters
    write `x[mask] = …`: they count elements, and rows elsewhere. There are no more rows than there is room for."""
    for renamed, other in ((right, left), (left, right)):
        atom, least, most = symbols(renamed).get(str(renamed)), lower_bound(other), upper_bound(other)
        if atom is None or atom.multiple > 1 or atom.name in {*order, *symbols(other)} or not _is_product(other):
            continue
        if least is None or least < atom.low:
            continue
        if atom.high is None or (most is not None and most <= atom.high):
            return atom.name, other
        (((rows, *others), factor),) = other.terms
        if not others and atom.high // factor >= rows.low:
            return rows.name, symbol(rows.name, rows.low, atom.high // factor, rows.multiple)
    return None


def _is_product(dim: Dim) -> TypeGuard[Expr]:
    """True for symbols times a number."""
    return isinstance(dim, Expr) and len(dim.terms) == 1 and is_polynomial(dim)


def _solved(left: Dim, right: Dim, order: Sequence[str]) -> tuple[str, Dim] | None:
    """A symbol of which nothing is known, by sums of others: `past + 1 = mask - 1` says what `mask` is.

    What it is may not be at least 1 for all values of the others (`img + text = ids_1 + ids_2`). It is the size of an input,
    which is looked at when the model is run.
    """
    atoms = symbols(left, right)
    solutions = [
        (name, symbol_of(atoms[name]) + difference)
        for name in reversed(order)
        for difference in (left - right, right - left)
        if name in atoms and range_of(atoms[name]) == ANY
    ]
    found = [(name, dim) for name, dim in solutions if name not in symbols(dim)]
    return min(found, key=lambda each: (lower_bound(each[1]) or 0) < 1, default=None)


def _left_over(left: Dim, right: Dim, measured: Sequence[str]) -> tuple[str, Dim] | None:
    """A symbol that only a run tells, as what the others leave of a sum: groups of rows that are joined again are all rows that
    there are, so the last group has the rest. When the model is run, the number that it counts must be that."""
    atoms = symbols(left, right)
    for name in (name for name in reversed(measured) if name in atoms):
        for difference in (left - right, right - left):
            dim = symbol_of(atoms[name]) + difference
            if name not in symbols(dim):
                return name, dim
    return None


def _alike(left: Dim, right: Dim, order: Sequence[str]) -> tuple[str, Dim] | None:
    """A symbol of which nothing is known as another name of one before it, if the two sizes are equal then: `min(mask, words) =
    words`, where the last of a mask are taken, is for masks as long as the words."""
    atoms = symbols(left, right)
    free = [name for name in order if name in atoms and range_of(atoms[name]) == ANY]
    for place, name in reversed([*enumerate(free)]):
        for other in free[:place]:
            binding = {**{each: symbol_of(atom) for each, atom in atoms.items()}, name: symbol_of(atoms[other])}
            if _equal(left, right, binding):
                return name, symbol_of(atoms[other])
    return None


def _divided(left: Dim, right: Dim, order: Sequence[str]) -> tuple[str, Dim] | None:
    """A symbol of an input as a multiple of what its product with others is divided by, if the two sizes are equal then, whatever
    the others are: patches as rows, of which the last axis has whole ones."""
    atoms = symbols(left, right)
    for name in (name for name in reversed(order) if name in atoms):
        for divisor in sorted(_divisors(left, right), reverse=True):
            known = range_of(atoms[name])
            dim = SizeRange(known.low, known.high, lcm(known.multiple, divisor)).symbol(name)
            others = {each: symbol_of(atom) for each, atom in atoms.items()}
            if dim != others[name] and _equal(left, right, {**others, name: dim}):
                return name, dim
    return None


def _divisors(*dims: Dim) -> set[int]:
    """The numbers by which something is divided in the dims."""
    atoms = {atom for dim in dims if isinstance(dim, Expr) for monomial, _ in dim.terms for atom in monomial}
    found = {arg for atom in atoms if atom.kind == "//" for arg in atom.args[1:] if isinstance(arg, int)}
    return found.union(*(_divisors(*atom.args) for atom in atoms))


def _box(left: Dim, right: Dim, order: Sequence[str]) -> tuple[str, Dim] | None:
    """The range of a size of an input that another one has as well, where all that matters is their product: images of which a
    table of positions has an end. Taken alone, one of them would get what is left by a guess at the other."""
    atoms = symbols(left, right)
    if len(atoms) != 2 or not {*atoms} <= {*order} or not _multiplied(left, right):
        return None
    first = max(-(-atom.low // atom.multiple) * atom.multiple for atom in atoms.values())
    last = min(TRIED, *(atom.high or TRIED for atom in atoms.values()))
    step = lcm(*(atom.multiple for atom in atoms.values()))
    fitting = [
        size
        for size in range(-(-first // step) * step, last + 1, step)
        if _equal(left, right, dict.fromkeys(atoms, size))
    ]
    if len(fitting) < 2 or fitting != list(range(fitting[0], fitting[-1] + 1, step)) or fitting[-1] + step > TRIED:
        return None
    ends = fitting[0], fitting[-1]
    name = next((name for name in atoms if (atoms[name].low, atoms[name].high) != ends), None)
    corners = all(_equal(left, right, dict(zip(atoms, corner, strict=True))) for corner in (ends, ends[::-1]))
    return (name, symbol(name, *ends, atoms[name].multiple)) if name is not None and corners else None


def _multiplied(*dims: Dim) -> bool:
    """True if sizes of different names are multiplied with each other somewhere in the dims."""
    monomials = [monomial for dim in dims if isinstance(dim, Expr) for monomial, _ in dim.terms]
    return any(
        len({*symbols(*map(_alone, monomial))}) > 1 or any(_multiplied(*atom.args) for atom in monomial)
        for monomial in monomials
    )


def _alone(atom: Atom) -> Expr:
    """An atom as a size."""
    return Expr({(atom,): 1})


def _one_of_many(left: Dim, right: Dim, batches: Collection[str]) -> tuple[str, Dim] | None:
    """As `_one_symbol` for one of several symbols, while the others have a size that most models take; or, where it only matters
    that nothing is 0, the same for each of these sizes."""
    atoms = symbols(left, right)
    if len(atoms) < 2:
        return None

    def narrowed(name: str, size: int, alone: bool) -> tuple[str, Dim] | None:
        usual = {each: 1 if each in batches else size for each in atoms if each != name}
        others = {each: _within(size, atoms[each]) for each, size in usual.items()}
        binding: dict[str, Dim] = {**others, name: symbol_of(atoms[name])}
        try:
            found = _one_symbol(bind(left, binding), bind(right, binding), alone)
        except ZeroDivisionError:
            return None
        return found if found and isinstance(found[1], Expr) and found[1] != symbol_of(atoms[name]) else None

    for size in USUAL:
        for name in atoms:
            if found := narrowed(name, size, alone=False):
                return found
    for name in atoms:
        found = narrowed(name, USUAL[0], alone=True)
        if found and all(narrowed(name, size, alone=True) == found for size in USUAL):
            return found
    return None


def _square(left: Dim, right: Dim, order: Sequence[str], batches: Collection[str]) -> tuple[str, Dim] | None:
    """The one size of an input that all others but batches have as well, where an exporter wrote that of its example as a number:
    an image of 64 x 64 in `height * width = 4096`."""
    atoms = symbols(left, right)
    others = [name for name in order if name in atoms and name not in batches]
    if not others or not {*atoms} <= {*order}:
        return None
    batch = {name: _within(1, atoms[name]) for name in atoms if name in batches}
    sizes = range(atoms[others[0]].low, TRIED + 1)
    fitting = [size for size in sizes if _equal(left, right, {**batch, **dict.fromkeys(others, size)})]
    found = fitting[0] if len(fitting) == 1 else None
    known = found is not None and all(range_of(atoms[name]).misfit(found) == "" for name in others)
    return (others[0], found) if found is not None and known else None


def _equal(left: Dim, right: Dim, binding: Mapping[str, Dim]) -> bool:
    """True if both have the same value; false where a divisor is 0."""
    try:
        numbers = {name: size for name, size in binding.items() if isinstance(size, int)}
        if len(numbers) == len(binding):
            return integer(left, numbers) == integer(right, numbers)
        return bind(left, binding) == bind(right, binding)
    except ZeroDivisionError:
        return False


def _within(size: int, atom: Atom) -> int:
    """The size, or the nearest below it that the symbol may have, or else its smallest."""
    below = min(size, size if atom.high is None else atom.high) // atom.multiple * atom.multiple
    return max(below, -(-atom.low // atom.multiple) * atom.multiple)
