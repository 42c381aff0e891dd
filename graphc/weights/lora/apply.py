"""LoRAs on a program's weights: which there are, how strong, and what the weights become.

Weights are computed anew from their parameters each time, LoRAs in the order of their names; nothing is taken off again. So the
order in which they came makes no difference, and a weight that no LoRA changes is what it was, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, prod
from pathlib import Path
from typing import TypeAlias, Union

import numpy as np

from graphc.errors import CheckpointError, InputError
from graphc.ggml_types import HALVES
from graphc.ir.graph import Value
from graphc.ir.types import F32
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.run.device.tensors import aligned_empty
from graphc.trace import warn
from graphc.weights.checkpoint import Source
from graphc.weights.formats.blocks import Blocks
from graphc.weights.layouts.fit import some
from graphc.weights.lora.beside import Place, is_pair, place_of, with_factors
from graphc.weights.lora.by_rows import changed_by_rows
from graphc.weights.lora.files import COMPONENTS, read_lora
from graphc.weights.lora.names import Change, Match, match, matrix
from graphc.weights.undo import Base, shape_of

Strength: TypeAlias = Union[float, Mapping[str, float]]
"""How much of a change is added; where components differ, of each by its name."""

NAMES = {"unet": "denoiser", "transformer": "denoiser", **{each: each for each in COMPONENTS.values() if each}}
"""What a component may be called where strengths are given."""


@dataclass(frozen=True)
class Lora:
    """A LoRA that is loaded, and how much of it is added."""

    name: str
    match: Match = field(repr=False)
    strength: float

    @property
    def component(self) -> str:
        """What it changes: "denoiser", "text_encoder", "text_encoder_2", …; "" if the file does not say."""
        return self.match.component

    @property
    def parameters(self) -> list[str]:
        """The model's parameters that it changes."""
        return [each.parameter for each in self.match.changes]

    @property
    def unmatched(self) -> list[str]:
        """The modules and tensors for this component in the file that the model does not have."""
        return list(self.match.unmatched)


class Loras:
    """LoRAs on the weights of a program. It is not changed: what is loaded, unloaded or set makes another."""

    def __init__(self, base: Base, loaded: Mapping[str, Lora] | None = None) -> None:
        self.base, self.loaded = base, dict(sorted((loaded or {}).items()))
        self._last: tuple[Value, np.ndarray] | None = None

    def load(self, source: Source, strength: Strength = 1.0, name: str | None = None) -> tuple[Lora, Loras]:
        """One more, which is called `name`, or as its file is, and these with it.

        Raises CheckpointError if the file is damaged, of another base, or changes what cannot be computed again, InputError if
        the name is taken or the strength is not a number, and EngineError if the program has no recipes.
        """
        shown = "" if isinstance(source, Mapping) else str(source)
        name = name or Path(shown).stem or "lora"
        if name in self.loaded:
            raise InputError(f"a LoRA {name!r} is loaded; unload it, or give this one another name")
        recipes = self.base.recipes
        try:
            found = match(read_lora(source), [*recipes.parameters, *recipes.pinned])
        except CheckpointError as error:
            raise type(error)(f"{shown}: {error}" if shown not in str(error) else str(error)) from error
        lora = Lora(name, found, _strength(strength, found.component))
        after = Loras(self.base, {**self.loaded, name: lora}).checked()
        if lora.unmatched:
            warn(f"LoRA {name}: the model has no {some(lora.unmatched)}")
        return lora, after

    def set(self, strengths: Mapping[str, Strength]) -> Loras:
        """With other strengths. Raises InputError for a name that there is not, or a strength that is not a number."""
        self._look_for(strengths)
        changed = {
            name: replace(self.loaded[name], strength=_strength(each, self.loaded[name].component))
            for name, each in strengths.items()
        }
        return Loras(self.base, {**self.loaded, **changed})

    def unload(self, name: str | None) -> Loras:
        """Without one, or for None without any. Raises InputError for a name that there is not."""
        self._look_for([] if name is None else [name])
        return Loras(self.base, {key: each for key, each in self.loaded.items() if name not in (None, key)})

    def on(self, base: Base) -> Loras:
        """The same on other weights (see `Base.refitted`). Raises CheckpointError if they do not tell what is changed."""
        return Loras(base, self.loaded).checked()

    def checked(self) -> Loras:
        """These. Raises CheckpointError if weights that they change do not tell what they were."""
        _ = self.beside
        return self

    @cached_property
    def beside(self) -> dict[int, Place]:
        """The weights that stay as they are stored, with the LoRAs as products beside them: they do not tell what they were.

        Raises CheckpointError for those where that is not possible.
        """
        changed = {value for lora in self.loaded.values() for value in lora.match.changes}
        found, lost = {}, set[str]()
        for index, reads in enumerate(self.base.recipes.reads if changed else ()):
            unknown = [] if changed.isdisjoint(reads) else [each for each in reads if not self._told(index, each)]
            if unknown and (place := self._place(index)):
                found[index] = place
            else:
                lost |= {each.parameter for each in unknown}
        if lost:
            raise CheckpointError(
                f"the weights in the engine do not tell {some(sorted(lost))}, of which a LoRA is a change; give the checkpoint "
                "that they are from, not quantized (Model.load_weights, graphc run --weights, graphc refit)"
            )
        return found

    def _told(self, index: int, parameter: Value) -> bool:
        """True if a parameter of a weight is known. What is quantized already would lose more by being quantized again."""
        again = self.base.program.weights[index].narrow and isinstance(self.base.given.get(parameter.parameter), Blocks)
        return self.base.knows(parameter) and not again

    def _place(self, index: int) -> Place | None:
        recipe = self.base.recipes.weights[index]
        place = place_of(index, recipe, self.base.program) if recipe is not None else None
        return place if place is not None and all(is_pair(each) for each, _ in self._all(place.parameter)) else None

    @property
    def ranks(self) -> dict[int, int]:
        """The rank of what is beside a weight, of all LoRAs together."""
        return {
            index: sum(change.adapter.rank for change, _ in self._all(place.parameter))
            for index, place in self.beside.items()
        }

    @property
    def program(self) -> Program:
        """The program of which `array(i)` is weight `i`."""
        return with_factors(self.base.program, self.ranks)

    def weight(self, index: int) -> np.ndarray:
        """A weight as it is stored, with the LoRAs that are in it. Raises GraphcError if its type cannot hold it."""
        changed = self.loaded and index not in self.beside
        if not changed or not any(self._terms(each) for each in self.base.recipes.reads[index]):
            return self.base.weight(index)
        if (found := self._by_rows(index)) is not None:
            return found
        arrays = {each: self._changed(each) for each in self.base.recipes.reads[index]}
        return self.base.program.weights[index].converted(self.base.recipes.compute(index, arrays))

    def _by_rows(self, index: int) -> np.ndarray | None:
        """A weight that is a parameter as it is, and whose changes are products of two matrices; None for others."""
        weight, parameter = self.base.program.weights[index], self.base.recipes.weights[index]
        if parameter is None or parameter.producer is not None or parameter.dtype != F32:
            return None
        if weight.tensor.type not in ("F32", *HALVES) or weight.shape != shape_of(parameter):
            return None
        terms = self._terms(parameter)
        if not all(is_pair(change) for change, _ in terms):
            return None
        given = self.base.given.get(parameter.parameter)
        before = given if isinstance(given, np.ndarray) else self.base.parameter(parameter)
        if before.dtype not in (F32, *HALVES.values()):
            return None
        pairs = [(change, change.adapter.pair(strength)) for change, strength in terms]
        taken = [(change.take(up), down) for change, (up, down) in pairs]
        return changed_by_rows(before, taken, weight.stored.dtype, weight.converted)

    @cached_property
    def factors(self) -> list[np.ndarray]:
        """The weights that `program` has more: what is beside others."""
        return [each for place in self.beside.values() for each in place.factors(self._all(place.parameter))]

    def array(self, index: int) -> np.ndarray:
        """A weight of `program`."""
        count = len(self.base.program.weights)
        return self.weight(index) if index < count else self.factors[index - count]

    def differs(self, other: Loras, index: int) -> bool:
        """True if a weight may be another than with other LoRAs on the same weights."""
        if not self.loaded and not other.loaded:
            return False
        return any(self._terms(each) != other._terms(each) for each in self.base.recipes.reads[index])

    def _all(self, parameter: Value) -> list[tuple[Change, float]]:
        """The changes of a parameter, with their strengths."""
        found = ((lora.match.changes.get(parameter), lora.strength) for lora in self.loaded.values())
        return [(change, strength) for change, strength in found if change is not None]

    def _terms(self, parameter: Value) -> list[tuple[Change, float]]:
        return [(change, strength) for change, strength in self._all(parameter) if strength]

    def _changed(self, parameter: Value) -> np.ndarray:
        """A parameter with its changes. The last is kept: weights that are parts of one follow one another."""
        if self._last is None or self._last[0] is not parameter:
            self._last = None
            self._last = parameter, self._sum(parameter, self._terms(parameter))
        return self._last[1]

    def _sum(self, parameter: Value, terms: Iterable[tuple[Change, float]]) -> np.ndarray:
        array = self.base.parameter(parameter)
        if not terms:
            return array
        dtype = np.promote_types(np.float32, array.dtype) if array.dtype.kind == "f" else np.dtype(np.float32)
        before, kernel = matrix(array).astype(dtype, copy=False), prod(shape_of(parameter)[2:])
        total, so_far = aligned_empty(before.shape, dtype), before
        with np.errstate(all="ignore"):
            for change, strength in terms:
                np.add(so_far, change.adapter.change(before, strength, change.take, kernel), out=total)
                so_far = total
        return total.astype(parameter.dtype, copy=False).reshape(shape_of(parameter))

    def _look_for(self, names: Iterable[str]) -> None:
        if missing := [name for name in names if name not in self.loaded]:
            raise InputError(f"no LoRA {missing[0]!r} is loaded; there is {some(list(self.loaded))}")


def _strength(given: Strength, component: str) -> float:
    """The strength for a component: its own, else that of all text encoders, else 1."""
    if isinstance(given, Mapping):
        known = {NAMES.get(name): each for name, each in given.items()}
        if None in known or (not component and known):
            reason = "its names are no components" if component else "the file does not say of which component it is"
            raise InputError(f"strengths {', '.join(map(repr, given))}: {reason}; give a number, or {', '.join(NAMES)}")
        group = "text_encoder" if component.startswith("text_encoder") else component
        given = known.get(component, known.get(group, 1.0))
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not isfinite(given):
        raise InputError(f"strength {given!r} is not a number")
    return float(given)
