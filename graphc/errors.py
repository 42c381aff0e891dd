"""What graphc raises: each error is one clear message for the person who gave the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from graphc.records import dataclass

Found = TypeVar("Found")


class GraphcError(Exception):
    """Any error that the input causes; the command line prints its message and exits with status 1."""


class ModelError(GraphcError):
    """The model file is missing, damaged, or not valid."""


class EngineError(GraphcError):
    """The engine file is missing, damaged, or was made by another version."""


class CheckpointError(GraphcError):
    """The file of weights is missing, damaged, or does not fit the model."""


class NothingFitsError(CheckpointError):
    """A LoRA is sound, but has nothing for the model: it is for another component, or another base."""


class InputError(GraphcError):
    """A value given to a model has a wrong name, dtype or shape."""


class BuildError(GraphcError):
    """A compiler, cmake or another tool failed or is missing."""


def find_named(table: Mapping[str, Found], kind: str, name: str) -> Found:
    """The entry of a table that has this name, in any case. Raises BuildError, which lists those that there are of this kind."""
    found = table.get(name.lower())
    if found is None:
        raise BuildError(f"no {kind} {name!r}; there is {', '.join(table)}")
    return found


class ShapeError(GraphcError):
    """Sizes or dtypes do not fit an operator.

    `differ` holds the pairs of sizes (`Dim`s) that would have to be equal and are not proven to be.
    """

    def __init__(self, message: str, differ: Sequence[tuple[object, object]] = ()) -> None:
        super().__init__(message)
        self.differ = tuple(differ)


@dataclass(frozen=True)
class Problem:
    """One unsupported node: which, its operator, the reason, and what would help.

    `unknown` is true if it is only that an input's elements or structure are not known until the model runs.
    """

    node: str
    operator: str
    reason: str
    help: str = ""
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.node} ({self.operator}): {self.reason}" + (f"; {self.help}" if self.help else "")


class UnsupportedError(GraphcError):
    """The model needs what graphc cannot do; `problems` lists all of it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        count = f"{len(self.problems)} unsupported node" + ("s" if len(self.problems) != 1 else "")
        super().__init__("\n  ".join([f"{count}:", *map(str, self.problems)]))
