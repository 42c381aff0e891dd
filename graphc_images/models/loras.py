"""LoRAs of a model: which are on, and that every engine of it has them, also one that is loaded later."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import graphc
from graphc_images.errors import SettingError

Source = str | os.PathLike[str] | Mapping[str, Any]
"""A file of weights, a folder of diffusers, or arrays by name."""

Strength = float | Mapping[str, float]


class Loras:
    """LoRAs by name, with strengths. `there` gives the engines that are loaded, by part."""

    def __init__(self, there: Callable[[], Mapping[str, graphc.Model]]) -> None:
        self._there = there
        self._loaded: dict[str, tuple[Source, Strength]] = {}
        self._foreign: dict[tuple[str, str], graphc.NothingFitsError] = {}
        self._unmatched: dict[str, dict[str, tuple[str, ...]]] = {}

    @property
    def strengths(self) -> dict[str, Strength]:
        """What is on, and how much."""
        return {name: strength for name, (_, strength) in self._loaded.items()}

    @property
    def unmatched(self) -> dict[str, list[str]]:
        """Of each LoRA, the names in its file that are for a part of the model and fit nothing there."""
        return {
            name: sorted({each for found in parts.values() for each in found})
            for name, parts in self._unmatched.items()
        }

    def load(
        self,
        source: Source,
        strength: Strength,
        name: str | None,
        parts: Sequence[str],
        engine: Callable[[str], graphc.Model],
        later: Sequence[str] = (),
    ) -> str:
        """One more, on the engines of these parts now, one after the other, for there may be no room for all, and on others when
        they are loaded; of those only if these parts have no use for it, on the first of `later` that has. Raises
        NothingFitsError if none has."""
        called = name or (
            Path(source).stem if isinstance(source, str | os.PathLike) else f"lora {len(self._loaded) + 1}"
        )
        if called in self._loaded:
            raise SettingError(f"a LoRA is already called {called!r}")
        self._loaded[called], self._unmatched[called] = (source, strength), {}
        try:
            for part in parts:
                self._add(part, engine(part), called)
            refused = [self._foreign[part, called] for part in parts if (part, called) in self._foreign]
            for part in later:
                if len(refused) == len(parts):
                    self._add(part, engine(part), called)
                    parts = [*parts, part]
                    refused += [self._foreign[part, called]] if (part, called) in self._foreign else []
            if refused and len(refused) == len(parts):
                raise refused[0]
        except graphc.GraphcError:
            self.unload(called)
            raise
        return called

    def fit(self, part: str, engine: graphc.Model) -> None:
        """Put all that is on onto an engine that was just loaded."""
        for name in self._loaded:
            self._add(part, engine, name)

    def set(self, strengths: Mapping[str, Strength]) -> None:
        """Other strengths. Raises SettingError for a name that there is not."""
        self._known(strengths)
        for name, strength in strengths.items():
            self._loaded[name] = self._loaded[name][0], strength
        for engine in self._there().values():
            if own := {name: strength for name, strength in strengths.items() if name in engine.loras}:
                engine.set_lora(own)

    def unload(self, name: str | None = None) -> None:
        """Take one off, or all. Raises SettingError for a name that there is not."""
        names = list(self._loaded) if name is None else [name]
        self._known(names)
        for each in names:
            for engine in self._there().values():
                if each in engine.loras:
                    engine.unload_lora(each)
            del self._loaded[each], self._unmatched[each]
            self._foreign = {key: error for key, error in self._foreign.items() if key[1] != each}

    def _add(self, part: str, engine: graphc.Model, name: str) -> None:
        if name in engine.loras or (part, name) in self._foreign:
            return
        source, strength = self._loaded[name]
        try:
            with warnings.catch_warnings(action="ignore"):  # `unmatched` says it
                lora = engine.load_lora(source, strength, name)
        except graphc.NothingFitsError as error:
            self._foreign[part, name] = graphc.NothingFitsError(str(error))
            return
        self._unmatched[name][part] = tuple(lora.unmatched)

    def _known(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._loaded:
                raise SettingError(f"no LoRA is called {name!r}; there are {', '.join(self._loaded) or 'none'}")
