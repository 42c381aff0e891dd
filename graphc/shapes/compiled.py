"""Many sizes at once, as one Python function of their symbols: where they are computed for each step of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from graphc.shapes.dim import Dim, Expr, integer, symbols

PATIENCE = 4
"""How often sizes are computed one by one, before it is worth to compile a function, which takes as long as that."""


class SizeProgram:
    """Different `sizes`. Called with the values of their symbols, it gives theirs. Raises KeyError and ZeroDivisionError, as
    `integer` does."""

    def __init__(self, sizes: Iterable[Expr]) -> None:
        self.sizes = [*dict.fromkeys(sizes)]
        self.names = sorted(symbols(*self.sizes))
        self._asked = 0
        self._function: Callable[..., list[int]] | None = None

    def __call__(self, binding: Mapping[str, int]) -> list[int]:
        """The values, in the order of `sizes`."""
        if self._function is None:
            self._asked += 1
            if self._asked <= PATIENCE:
                return [integer(size, binding) for size in self.sizes]
            self._function = self._compiled()
        return self._function(*map(binding.__getitem__, self.names))

    def _compiled(self) -> Callable[..., list[int]]:
        places = {name: f"s{number}" for number, name in enumerate(self.names)}
        texts = ", ".join(_text(size, places) for size in self.sizes)
        return eval(f"lambda {', '.join(places.values())}: [{texts}]")  # type: ignore[no-any-return]


def _text(dim: Dim, places: Mapping[str, str]) -> str:
    """What computes a size, as Python writes it."""
    if not isinstance(dim, Expr):
        return str(dim)
    sums = []
    for monomial, coefficient in dim.terms:
        factors = [str(coefficient)]
        for atom in monomial:
            if atom.kind == "symbol":
                factors.append(places[atom.name] if atom.multiple == 1 else f"({places[atom.name]} // {atom.multiple})")
                continue
            left, right = (_text(arg, places) for arg in atom.args)
            call = atom.kind in ("min", "max")
            factors.append(f"{atom.kind}({left}, {right})" if call else f"(({left}) {atom.kind} ({right}))")
        sums.append("*".join(factors))
    return " + ".join(sums) or "0"
