"""A model that cannot be compiled for all inputs at once: it is compiled for the values that its sizes depend on.

Kept for the next run with the same ones: a shape that is an input rarely changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphc.compiler import compile
from graphc.errors import InputError
from graphc.frontend.onnx.importer import Result
from graphc.frontend.onnx.observed import Given
from graphc.frontend.onnx.specialize import Specialized, flat, specialize
from graphc.runtime.model import Model

KEPT = 8
"""Programs that are kept; the least recently used one goes first."""


@dataclass(frozen=True, eq=False)
class Variant:
    """A program, and the inputs that it was made for."""

    made_for: Specialized
    model: Model | None

    def fits(self, given: Mapping[str, np.ndarray]) -> bool:
        """True if the program is right for these inputs."""
        made_for = self.made_for
        return made_for.inputs.keys() == given.keys() and all(
            array.shape == given[name].shape
            and array.dtype == given[name].dtype
            and (name not in made_for.read or same(array, given[name]))
            for name, array in made_for.inputs.items()
        )

    def run(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The graph's outputs by name."""
        if self.model is None:
            return {}
        return self.model.run({info.name: given[info.name] for info in self.model.inputs})


class SpecializingModel:
    """Compiles a model for each run whose inputs none of the kept programs is right for. `settings` are those of
    `graphc.compile`."""

    def __init__(self, source: onnx.ModelProto, **settings: Any) -> None:
        self.source, self.settings = source, settings
        weights = {tensor.name for tensor in source.graph.initializer}
        self.inputs = [info.name for info in source.graph.input if info.name not in weights]
        self.outputs = [info.name for info in source.graph.output]
        self.variants: list[Variant] = []

    def run(self, given: Mapping[str, Given]) -> list[Any]:
        """The outputs in order: arrays, lists for sequences, None for an optional without a value.

        Raises InputError for inputs that do not fit, UnsupportedError for what cannot be compiled for them either.
        """
        unknown = sorted(given.keys() - set(self.inputs))
        if unknown:
            raise InputError(f"the model has no input {', '.join(unknown)}")
        arrays = {key: array for name, item in given.items() for key, array in flat(name, item).items()}
        fitting = [variant for variant in self.variants if variant.fits(arrays)]
        variant = fitting[0] if fitting else self._compile(given)
        self.variants = [variant, *(each for each in self.variants if each is not variant)][:KEPT]
        outputs = variant.run(arrays)
        return [_restored(result, outputs) for result in variant.made_for.results]

    def _compile(self, given: Mapping[str, Given]) -> Variant:
        made_for = specialize(self.source, given)
        if not made_for.graph.outputs:
            return Variant(made_for, None)
        return Variant(made_for, compile(made_for.graph, **self.settings))


def _restored(result: Result, outputs: Mapping[str, np.ndarray]) -> Any:
    """An output of the model from those of the graph."""
    if isinstance(result, str):
        return outputs[result]
    return [_restored(item, outputs) for item in result] if isinstance(result, list) else result


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """True if two arrays have the same elements, bit for bit where they are numbers."""
    return bool(np.array_equal(a, b)) if a.dtype.kind in "OUS" else a.tobytes() == b.tobytes()
