"""Chooses which products stay float32 with `--fast` on the CPU, where others are of bfloat16, by the error that each makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from graphc.errors import InputError
from graphc.runtime.compare import relative_error
from graphc.runtime.model import Model, prepared
from graphc.targets.ggml.run.executor import Executor
from graphc.trace import SILENT, Progress


@dataclass(frozen=True)
class Rounding:
    """Products by the names that choices have for them, those that hurt most first, each with the error of the results if it
    alone is rounded; how many of them, the first, stay float32; and the error of the results then, and if all are rounded.

    An error is the largest difference from what float32 gives, in units of the largest number of an output."""

    errors: Mapping[str, float]
    kept: int
    error: float
    error_of_all: float

    @property
    def lines(self) -> dict[str, str]:
        """What is to be remembered: each product's way."""
        ways = choices(self.errors, self.kept)
        return {name: f"{way}  # error {self.errors[name]:.1e} alone" for name, way in ways.items()}


def choices(names: Iterable[str], kept: int) -> dict[str, str]:
    """The way of each product, if so many of the first stay float32."""
    return {name: "float32" if place < kept else "bfloat16" for place, name in enumerate(names)}


def choose_rounding(
    model: Model, inputs: Mapping[str, np.ndarray], bound: float, ways: Mapping[str, str], progress: Progress = SILENT
) -> Rounding:
    """The fewest products, of those that hurt most, that must stay float32 for the error to be at most the bound; other calls are
    computed in these ways. The model runs once for each product, and a few times more, and follows the choice from then on.

    Raises InputError where nothing is rounded.
    """
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    with model.alone() as executor:
        if not executor.rounds:
            raise InputError("--error is for the CPU with --fast, where it has AVX512_BF16 and code of our own")

        def choose(products: Mapping[str, str]) -> None:
            executor.choices = "".join(f"{key} = {way}\n" for key, way in {**ways, **products}.items()).encode()
            executor.forget()

        def outputs(products: Mapping[str, str]) -> dict[str, np.ndarray]:
            choose(products)
            found = executor.run(*prepared(model.program, arrays))
            return {each.name: array for each, array in zip(model.program.outputs, found, strict=True)}

        rounded = outputs({})
        names = _products(executor)
        exact = outputs(choices(names, len(names)))

        def error(products: Mapping[str, str]) -> float:
            return relative_error(outputs(products), exact)

        of_all = relative_error(rounded, exact)
        errors = {}
        with progress.stage("round", len(names)) as step:
            for name in names:
                errors[name] = error({**choices(names, len(names)), name: "bfloat16"})
                step(1)
        order = sorted(names, key=lambda name: -errors[name])
        least, most = (0, of_all), (len(names), 0.0)  # with so many kept, the error: too large, and small enough
        if of_all <= bound:
            most = least
        while most[0] - least[0] > 1:
            middle = (most[0] + least[0]) // 2
            tried = middle, error(choices(order, middle))
            least, most = (least, tried) if tried[1] <= bound else (tried, most)
        choose(choices(order, most[0]))
        return Rounding({name: errors[name] for name in order}, *most, of_all)


def _products(executor: Executor) -> list[str]:
    """The products that our own code may round in the graphs of the last run."""
    return list(dict.fromkeys(name for graph in executor.graphs for name in graph.products))
