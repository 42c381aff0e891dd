"""What CPython 3.12.0 to 3.12.3, Ubuntu 24.04's among them, run wrongly (python/cpython#118513), and none of ours may hold.

There a comprehension is part of the function that holds it. A name that one of them binds and another reads from outside is not
found in the second.
"""

import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="its symbol tables have comprehensions inlined")

ROOT = Path(__file__).parents[1]
OURS = [
    path
    for folder in ("graphc", "graphc_build", "graphc_images", "graphc_server", "examples", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
INLINED = ("listcomp", "setcomp", "dictcomp")


def mistaken(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that one comprehension of a function binds and another reads from outside of the function."""
    made = [child for child in table.get_children() if child.get_name() in INLINED]
    bound = {symbol.get_name() for child in made for symbol in child.get_symbols() if symbol.is_local()}
    read = {symbol.get_name() for child in made for symbol in child.get_symbols() if not symbol.is_local()}
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_local()}
    yield from (f"{table.get_name()}: {name}" for name in sorted((bound & read) - own))
    for child in table.get_children():
        yield from mistaken(child)


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_comprehension_hides_a_name_from_another(path):
    assert not list(mistaken(symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec")))


def test_one_that_does_is_found():
    text = "def found(): return [name for name in ()] + [name(x) for x in ()]"
    assert list(mistaken(symtable.symtable(text, "text", "exec"))) == ["found: name"]
