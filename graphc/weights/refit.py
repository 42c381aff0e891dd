"""Putting a checkpoint into a program: what fits, what does not, and each weight computed from it by its recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from graphc.errors import CheckpointError
from graphc.ggml_types import HALVES, QUANTIZED, has_rows_apart
from graphc.ir.graph import Value
from graphc.ir.types import BF16, F16, F32, F64, FLOATS, TensorType
from graphc.shapes import integer
from graphc.targets.ggml.lowering.dtypes import Dtypes
from graphc.targets.ggml.program.program import Program
from graphc.trace import warn
from graphc.weights.checkpoint import Source, open_checkpoint
from graphc.weights.formats.blocks import Blocks
from graphc.weights.formats.scaled import EIGHT_BITS, Scaled
from graphc.weights.formats.tensors import Tensors, Unreadable
from graphc.weights.layouts.fit import KNOWN, Fit, fit, some
from graphc.weights.moving import moved
from graphc.weights.names import FEWEST
from graphc.weights.recipes import Recipes, recipes_of

WIDER = {(F16, F32), (BF16, F32), (F16, F64), (BF16, F64), (F32, F64)} | {(each, F32) for each in EIGHT_BITS}
"""Conversions that keep every number."""


class Refit:
    """A program's weights as a checkpoint has them. `array(i)` gives the elements of weight `i`.

    `stored` are the weights that the program has, None for one that was left out. If not `strict`, tensors that the model has
    not are passed over, and weights stay as they are if the checkpoint has none of their parameters.

    Of a checkpoint with several components the one that fits is taken, or `component`, whatever names its layout has. With
    `dtypes`, `program` is then another, whose weights have these types.

    Raises CheckpointError with all that is missing, too much, of another shape or type, or unlike a pinned parameter, and
    EngineError if the program has no recipes.
    """

    def __init__(
        self,
        program: Program,
        stored: Sequence[np.ndarray | None],
        source: Source,
        *,
        strict: bool = True,
        component: str | None = None,
        dtypes: Dtypes | None = None,
    ) -> None:
        self.program, self.stored = program, stored
        self.recipes = recipes_of(program)
        given = open_checkpoint(source)
        wanted = shapes_of((*self.recipes.parameters, *self.recipes.pinned))
        self.fit = fit(given, wanted, component)
        found = self.fit.tensors(given, wanted)
        self.kept = set() if strict else set(_untouched(self.recipes, found, stored))
        needed = {
            each: None for index, read in enumerate(self.recipes.reads) for each in read if index not in self.kept
        }
        problems = [*_misfits(needed, found), *_unlike(self.recipes.pinned, found)]
        if strict:
            problems += self._surplus(given)
        if not needed or not any(each.parameter in found for each in needed):
            problems = [_stranger(self.recipes, given, self.fit)]
        if problems:
            raise CheckpointError("\n  ".join([f"{self.fit} does not fit the model:", *problems]))
        self.arrays = {each: found[each.parameter] for each in needed}
        if dtypes is not None:
            self._retype(dtypes)
        if again := self.requantized:
            warn(
                "what the checkpoint has quantized in another type or shape is quantized again, and less exact than others of "
                f"its type: {some(again)}"
            )

    @property
    def given(self) -> Tensors:
        """The parameters that weights are computed from, by name, as the checkpoint has them."""
        return {value.parameter: array for value, array in self.arrays.items()}

    def array(self, index: int) -> np.ndarray:
        """A weight as it is stored: where it lies in the checkpoint, if the recipe does nothing, or takes a part of each row."""
        old, weight, recipe = self.stored[index], self.program.weights[index], self.recipes.weights[index]
        if old is not None and (index in self.kept or recipe is None):
            return old
        found = None if recipe is None else moved(recipe, self.arrays)
        if isinstance(found, Blocks) and found.type == weight.tensor.type:
            return weight.array(found.raw)
        if isinstance(found, np.ndarray) and TensorType(found.dtype, found.shape) == weight.stored:
            return found if has_rows_apart(found) else np.asarray(found, order="C")
        return weight.converted(self.recipes.compute(index, _Widened(self.arrays)))

    def types(self, index: int) -> tuple[str, str]:
        """The narrowest of ggml's types in which the checkpoint has what a weight is made of, and the one that keeps most of it:
        the same if the recipe only moves it, else float16 for what is computed."""
        recipe = self.recipes.weights[index]
        if recipe is None or index in self.kept:
            return "F32", "F32"
        narrow = [type for each in self.recipes.reads[index] if (type := _type(self.arrays[each])) != "F32"]
        found = moved(recipe, self.arrays)
        return (narrow or ["F32"])[0], _type(found) if found is not None else "F16" if narrow else "F32"

    def _retype(self, dtypes: Dtypes) -> None:
        """Have the program's weights in other types; those that the checkpoint does not give are converted."""
        before = self.program.weights
        made_of = [[each.parameter for each in read] for read in self.recipes.reads]
        self.program = dtypes.applied(self.program, self.types, made_of)
        self.stored = [
            array if array is None or old.tensor.type == new.tensor.type else new.converted(old.numbers(array))
            for array, old, new in zip(self.stored, before, self.program.weights, strict=True)
        ]

    @property
    def requantized(self) -> list[str]:
        """The weights that are quantized, but made of what the checkpoint has in other blocks."""
        return [
            some([each.parameter for each in self.recipes.reads[index]])
            for index, weight in enumerate(self.program.weights)
            if weight.tensor.type in QUANTIZED
            and any(isinstance(self.arrays.get(each), Blocks) for each in self.recipes.reads[index])
            and self.types(index) != (weight.tensor.type, weight.tensor.type)
        ]

    def _surplus(self, given: Tensors) -> list[str]:
        """What the model does not have; whole numbers are no parameters but positions and counts, which are in the program."""
        surplus = [
            f"{name}: the model has no such parameter"
            for name in self.fit.surplus
            if isinstance(each := given[name], Unreadable) or each.dtype.kind not in "biu"
        ]
        pairs = zip(self.program.weights, self.recipes.weights, strict=True)
        nameless = [weight.name for weight, recipe in pairs if recipe is None and prod(weight.shape) >= FEWEST]
        if surplus and nameless:
            surplus.append(
                f"({len(nameless)} weights are made of no parameter, as {nameless[0]}: an exporter may have computed them of "
                "these; export without its optimizer, or compile with --names)"
            )
        return surplus


def shapes_of(parameters: Iterable[Value]) -> dict[str, tuple[int, ...]]:
    """What a checkpoint must have."""
    return {each.parameter: tuple(integer(size, {}) for size in each.shape) for each in parameters}


def _type(tensor: Any) -> str:
    """The narrowest type of ggml's that has a tensor's numbers; if they are scaled, float16, which programs of such files
    compute them in."""
    if isinstance(tensor, Blocks):
        return tensor.type
    if isinstance(tensor, Scaled):
        return "F16"
    types = {dtype: name for name, dtype in HALVES.items()} | dict.fromkeys(EIGHT_BITS, "F16")
    return types.get(tensor.dtype, "F32")


class _Widened(dict[Value, Any]):
    """The parameters' arrays in the dtypes that the recipes want."""

    def __getitem__(self, value: Value) -> np.ndarray:
        return np.asarray(super().__getitem__(value)).astype(value.dtype, copy=False)


def _untouched(recipes: Recipes, found: Tensors, stored: Sequence[np.ndarray | None]) -> Iterator[int]:
    """The weights that are there, and of which the checkpoint has no parameter."""
    for index, read in enumerate(recipes.reads):
        if stored[index] is not None and not any(each.parameter in found for each in read):
            yield index


def _misfits(needed: Mapping[Value, None], found: Tensors) -> Iterator[str]:
    for value in needed:
        name, array = value.parameter, found.get(value.parameter)
        if array is None:
            yield f"{name}: missing ({value.type})"
        elif isinstance(array, Unreadable):
            yield f"{name}: {array.reason}"
        elif array.shape != value.shape:
            yield f"{name}: shape {list(array.shape)}, must be {list(value.shape)}"
        elif isinstance(array, Blocks) and value.dtype in FLOATS:
            continue
        elif array.dtype != value.dtype and (array.dtype, value.dtype) not in WIDER:
            yield f"{name}: dtype {array.dtype.name}, must be {value.dtype.name}"


def _unlike(pinned: Sequence[Value], found: Tensors) -> Iterator[str]:
    """The parameters on whose numbers the program relies, and which have others. One may be missing: its numbers are known."""
    for value in pinned:
        array = found.get(value.parameter)
        if array is None:
            continue
        same = not isinstance(array, Unreadable) and array.shape == value.shape
        if not same or not np.array_equal(np.asarray(array), value.data, equal_nan=True):  # type: ignore[arg-type]
            yield f"{value.parameter}: other numbers than those that the program was compiled for; compile it with these"


def _stranger(recipes: Recipes, given: Tensors, found: Fit) -> str:
    wanted = some([each.parameter for each in recipes.parameters])
    unknown = "" if found.component else f"; nor is it in a layout of {KNOWN}"
    return f"it has none of the model's parameters ({wanted}), but {some(list(given))}{unknown}"
