"""Which of a model's parameters each adapter of a file changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np

from graphc.errors import CheckpointError, NothingFitsError
from graphc.ir.graph import Value
from graphc.ir.numbers import is_pinned
from graphc.weights.layouts import Origin, Source, Table, Transposed, origins
from graphc.weights.layouts.fit import some
from graphc.weights.layouts.table import modules, stacked
from graphc.weights.lora.adapter import Adapter
from graphc.weights.lora.files import LoraFile
from graphc.weights.undo import shape_of

OUTER = re.compile(r"^((text_model|unet|transformer|model|module)_)+")
"""Modules around the one that is meant, which a model or a file may lack."""

Targets: TypeAlias = dict[str, list[tuple[Value, Source]]]
"""By a file's name for it: a parameter, or several that a tensor in another layout has one below the other."""

JOINED = Table(
    stacked("single_blocks.*.linear1_qkv", *(f"single_transformer_blocks.*.attn.to_{each}" for each in "qkv"))
    + stacked("transformer_blocks.*.attn.to_qkv", *(f"transformer_blocks.*.attn.to_{each}" for each in "qkv"))
    + stacked(
        "transformer_blocks.*.attn.to_added_qkv", *(f"transformer_blocks.*.attn.add_{each}_proj" for each in "qkv")
    )
)
"""What files change as one tensor that no checkpoint has: of Flux's single blocks without the feed-forward layer (XLabs), and as
diffusers joins queries, keys and values."""

MOST = 8
"""Lines of one message."""


@dataclass(frozen=True, eq=False)
class Change:
    """An adapter, and where a parameter of ours is in what it changes."""

    adapter: Adapter
    source: Source

    def take(self, array: np.ndarray) -> np.ndarray:
        """The parameter's matrix, out of the adapter's."""
        return np.asarray(self.source.array(array))

    def misfit(self, parameter: Value) -> str:
        """Why the change cannot be one of the parameter; "" if it can."""
        rows, *rest = shape_of(parameter) or (1,)
        wanted = rows, prod(rest)
        try:
            found = self.adapter.shape(prod(rest[1:]))
            if None in found and any(isinstance(step, Transposed) for step in self.source.steps):
                return (
                    f"a {self.adapter.kind} of a matrix that lies the other way round in the file's layout is not known"
                )
            given = [wanted[axis] if size is None else size for axis, size in enumerate(found)]
            shape = wanted if found[0] is None and given[1] == wanted[1] else self.source.shape(given)
            if shape == wanted and self.adapter.splits(self.take):
                return f"its {self.adapter.kind} is of rows of several of the model's weights together"
        except ValueError as error:
            return str(error)
        return "" if shape == wanted else f"it is of {list(shape)}, must be {list(wanted)}"


@dataclass(frozen=True)
class Match:
    """The change of each parameter by a component of a file, and the names of what has no parameter."""

    component: str
    changes: Mapping[Value, Change]
    unmatched: Sequence[str]

    def problems(self) -> Iterator[str]:
        """A line for each change that does not fit its parameter."""
        for parameter, change in self.changes.items():
            if reason := change.misfit(parameter):
                yield f"{change.adapter.name}, for {parameter.parameter}: {reason}"

    @property
    def quality(self) -> tuple[int, int]:
        """How many changes fit, and how many have names that the model has."""
        return len(self.changes) - sum(1 for _ in self.problems()), len(self.changes)


def match(file: LoraFile, parameters: Sequence[Value]) -> Match:
    """The changes of the component that fits a model with these parameters best.

    Raises NothingFitsError if none has names of the model's, or nothing that it changes is of the model's sizes (it is for the
    other of two text encoders), and CheckpointError if something does not fit.
    """
    if not file.adapters:
        found = [name for names in file.unknown.values() for name in names] + file.embeddings
        raise CheckpointError(f"it is not a LoRA: it has {some(found)}")
    spellings = _Spellings(parameters)
    best = max((_matched(file, component, spellings) for component in file.adapters), key=lambda each: each.quality)
    if not best.changes:
        changed = [adapter.name for adapters in file.adapters.values() for adapter in adapters.values()]
        raise NothingFitsError(
            f"it is a LoRA of another base or component: it changes {some(changed)}, "
            f"and the model has {some([each.parameter for each in parameters])}"
        )
    problems = list(best.problems())
    error = CheckpointError if len(problems) < len(best.changes) else NothingFitsError
    if problems := problems or list(_contents(best)):
        raise error("\n  ".join(["the LoRA does not fit the model:", *some_lines(problems)]))
    return best


class _Spellings:
    """A model's parameters by the names that files may give them: the model's own, and those of other layouts."""

    def __init__(self, parameters: Sequence[Value]) -> None:
        self.parameters = {each.parameter: each for each in parameters}
        self.own = {
            name: targets
            for name, targets in _by_name({name: Source(name) for name in self.parameters}, self.parameters).items()
            if len(targets) == 1
        }

    @cached_property
    def others(self) -> list[Targets]:
        """One for each layout that knows the model's names."""
        joined = _by_name(JOINED.theirs(self.parameters), self.parameters)
        return [_by_name(each.sources, self.parameters) | joined | self.own for each in self._origins]

    @cached_property
    def idle(self) -> re.Pattern[str]:
        """The names, as `_plain` has them, of modules that are in files of such a model and that nobody reads."""
        patterns = self._origins[0].idle if self._origins else ()
        found = [_plain(each.replace(r"\.", "_")) for each in modules(patterns, self.parameters)]
        return re.compile("|".join(rf"{each}(?=_|$)" for each in found) or r"\b\B")

    @cached_property
    def _origins(self) -> list[Origin]:
        return origins(self.parameters)


def _by_name(sources: Mapping[str, Source], parameters: Mapping[str, Value]) -> Targets:
    found: Targets = {}
    for name, source in sources.items():
        found.setdefault(_plain(source.name), []).append((parameters[name], source))
    return found


def _matched(file: LoraFile, component: str, spellings: _Spellings) -> Match:
    """The match by those names that fit best."""
    best = _match(file, component, spellings.own)
    if best.quality[0] < len(file.adapters[component]):
        others = (_match(file, component, each) for each in spellings.others)
        best = max([best, *others], key=lambda each: each.quality)
    if not best.unmatched:
        return best
    idle = {adapter.name for name, adapter in file.adapters[component].items() if spellings.idle.match(_plain(name))}
    return replace(best, unmatched=[each for each in best.unmatched if each not in idle])


def _match(file: LoraFile, component: str, targets: Targets) -> Match:
    """The match by certain names. Where a file has a module under two, that of the model's own counts."""
    changes: dict[Value, Change] = {}
    unmatched = dict.fromkeys(adapter.name for adapter in file.adapters[component].values())
    found = [
        (parameter, Change(adapter, source))
        for name, adapter in file.adapters[component].items()
        for parameter, source in targets.get(_plain(name), ())
    ]
    for parameter, change in sorted(
        found, key=lambda each: bool(each[1].source.steps) or each[1].source.name != each[0].parameter
    ):
        if changes.setdefault(parameter, change) is change:
            unmatched.pop(change.adapter.name, None)
    return Match(component, changes, [*unmatched, *file.unknown.get(component, ())])


def _contents(match: Match) -> Iterator[str]:
    """What is wrong with the tensors of changes that fit, and with changing these parameters."""
    for parameter, change in match.changes.items():
        if is_pinned(parameter):
            yield f"{parameter.parameter}: the program relies on its numbers; compile the model with the LoRA in its weights"
        try:
            change.adapter.check(shape_of(parameter))
        except ValueError as error:
            yield f"{change.adapter.name}: {error}"


def matrix(array: np.ndarray) -> np.ndarray:
    """A weight as the matrix that changes are made for: a view."""
    return array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)


def some_lines(lines: Sequence[str]) -> Iterator[str]:
    """The first few, and how many more there are."""
    yield from lines[:MOST]
    if len(lines) > MOST:
        yield f"and {len(lines) - MOST} more"


def _plain(name: str) -> str:
    """A name as kohya writes it, without modules around."""
    return OUTER.sub("", name.replace(".", "_"))
