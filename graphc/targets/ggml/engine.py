"""The engine file: a program with its weights in one GGUF file, which runs without the model that it was made from.

Tensor `w<i>` holds weight `i`, aligned so that it is used where it lies in the mapped file; its full name is in the
program. Metadata: `graphc.version` (the format's number), `graphc.needs` (the least graphc that reads it, see
`graphc/versions.py`), `graphc.program` (see `text.py`), `graphc.program.sha256`,
`graphc.recipes` (see `graphc/weights/recipes.py`) with its own checksum, `graphc.example`, sizes to try the model with,
`graphc.about`, what the model's file says of itself, and `graphc.kernels`, code for GPUs (`program/device_code.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from graphc.errors import EngineError
from graphc.files import open_regular
from graphc.ir.about import About
from graphc.ir.types import TensorType
from graphc.shapes import symbols
from graphc.shapes.ranges import range_of
from graphc.targets.ggml.program.device_code import read_device_code
from graphc.targets.ggml.program.program import Growth, Program, Weight
from graphc.targets.ggml.program.tensor import ProgramError
from graphc.targets.ggml.program.text import digest, read_text, write_text
from graphc.targets.ggml.program.verify import check_row_numbers
from graphc.trace import SILENT, Progress
from graphc.versions import check_format, check_reader, least_reader
from graphc.weights.formats.gguf import GZIP, Entry, read_container, write_container

ARCHITECTURE = "graphc"
VERSION = 1
NEEDS = "graphc.needs"
"""What the metadata call the least graphc that reads the engine."""

FIRST = "0.1.0"
"""The least graphc that reads an engine which does not say so: such were written before the first release."""

GROWTH = "graphc.growth."
"""Before what the metadata say of a table that grew."""

EXAMPLE = "graphc.example"
"""What the metadata call the sizes with which the model was exported."""

ABOUT = "graphc.about"
"""What the metadata call that which the model's file says of itself."""

NOTHING = np.empty(0)
"""In place of a weight that was left out; none has row numbers."""


def write_engine(
    path: str | os.PathLike[str],
    program: Program,
    arrays: Callable[[int], np.ndarray],
    progress: Progress = SILENT,
    stripped: bool = False,
    needed: str = least_reader(),
) -> None:
    """Write an engine file whole or not at all.

    `arrays(i)` gives weight `i` as it is stored (`Weight.stored`); it is called once for each, in order, so one
    weight at a time is in memory. If `stripped`, those with a recipe are left out. `needed` is the least graphc that reads
    the file; "" if it never leaves the one that it comes with. Raises OSError where the file cannot be written.
    """
    text = write_text(program)
    metadata: dict[str, str | int] = {
        "general.architecture": ARCHITECTURE,
        "general.name": program.name.encode(errors="replace").decode(),
        "graphc.version": VERSION,
        "graphc.program": text,
        "graphc.program.sha256": digest(text),
        "graphc.recipes": program.recipes,
        "graphc.recipes.sha256": digest(program.recipes),
    }
    if needed:
        metadata[NEEDS] = needed
    indices: Sequence[int] = range(len(program.weights))
    if program.example:
        metadata[EXAMPLE] = json.dumps(program.example)
    if program.about != About():
        metadata[ABOUT] = program.about.text
    if program.device_code is not None:
        metadata |= program.device_code.metadata()
    if program.growth is not None:
        metadata |= {GROWTH + name: value for name, value in asdict(program.growth).items()}
    if stripped:
        metadata["graphc.stripped"] = 1
        indices = _without_recipe(program)

    def data(place: int) -> np.ndarray:
        weight, array = program.weights[indices[place]], arrays(indices[place])
        if TensorType(array.dtype, array.shape) != weight.stored:
            raise ProgramError(f"weight {weight.name} is {TensorType(array.dtype, array.shape)}, not {weight.stored}")
        return array

    entries = [_entry(index, program.weights[index]) for index in indices]
    write_container(path, metadata, entries, data, progress)


def read_engine(path: str | os.PathLike[str]) -> tuple[Program, list[np.ndarray]]:
    """The program, every call checked again, and its weights as views of the mapped file.

    Raises EngineError if the file is missing, damaged, no engine, of another version, or without its weights.
    """
    program, stored = read_stripped_engine(path)
    arrays = [array for array in stored if array is not None]
    if len(arrays) != len(stored):
        raise EngineError(
            f"{os.fspath(path)}: {len(stored) - len(arrays)} of its {len(stored)} weights were left out (--strip-weights); "
            "give them with --weights or graphc.load(..., weights=...), or make a whole engine with graphc refit"
        )
    return program, arrays


def read_stripped_engine(path: str | os.PathLike[str]) -> tuple[Program, list[np.ndarray | None]]:
    """The same of an engine that may be without the weights that have a recipe: those are None."""
    try:
        return _read(path)
    except EngineError as error:
        raise EngineError(f"{os.fspath(path)}: {error}") from error


def _read(path: str | os.PathLike[str]) -> tuple[Program, list[np.ndarray | None]]:
    metadata, entries, data = read_container(path, ARCHITECTURE)
    check_reader(metadata.get(NEEDS, FIRST))
    check_format("it is an engine", metadata.get("graphc.version"), VERSION)
    text = metadata.get("graphc.program")
    if not isinstance(text, str) or metadata.get("graphc.program.sha256") != digest(text):
        raise EngineError("it is damaged: the program is not the one that its checksum was made of")
    program = read_text(text)
    program.recipes = _recipes(metadata)
    program.growth = _growth(metadata)
    program.example = _example(metadata, program)
    program.about = _about(metadata)
    program.device_code = read_device_code(metadata)
    indices: Sequence[int] = range(len(program.weights))
    if metadata.get("graphc.stripped"):
        indices = _without_recipe(program)
    if entries != [_entry(index, program.weights[index]) for index in indices]:
        raise EngineError("it is damaged: the tensors are not the weights of the program")
    arrays: list[np.ndarray | None] = [None] * len(program.weights)
    for index, raw in zip(indices, data, strict=True):
        arrays[index] = program.weights[index].array(raw)
    try:
        check_row_numbers(program, [NOTHING if array is None else array for array in arrays])
    except ProgramError as error:
        raise EngineError(f"it is damaged: {error}") from error
    return program, arrays


def _without_recipe(program: Program) -> list[int]:
    """The weights that no checkpoint has, by number."""
    from graphc.weights.recipes import recipes_of

    return [index for index, recipe in enumerate(recipes_of(program).weights) if recipe is None]


def _recipes(metadata: Mapping[str, Any]) -> str:
    """The document of recipes as it was written; an engine of an older graphc has none."""
    text = metadata.get("graphc.recipes", "")
    if not isinstance(text, str) or (text and metadata.get("graphc.recipes.sha256") != digest(text)):
        raise EngineError("it is damaged: the recipes are not those that their checksum was made of")
    return text


def _growth(metadata: Mapping[str, Any]) -> Growth | None:
    """What a program was before a table of it grew; None if it did not."""
    found = {key.removeprefix(GROWTH): value for key, value in metadata.items() if key.startswith(GROWTH)}
    types = {each.name: str if each.name == "program" else int for each in fields(Growth)}
    if not found:
        return None
    if found.keys() != types.keys() or not all(isinstance(value, types[name]) for name, value in found.items()):
        raise EngineError("it is damaged: it does not say how a table of its program grew")
    return Growth(**found)


def _about(metadata: Mapping[str, Any]) -> About:
    """What the model's file said of itself; an engine of an older graphc does not know it."""
    try:
        return About.read(metadata[ABOUT]) if ABOUT in metadata else About()
    except (ValueError, TypeError) as error:
        raise EngineError("it is damaged: it does not say what the model is") from error


def _example(metadata: Mapping[str, Any], program: Program) -> dict[str, int]:
    """Sizes by symbol, if the engine has them and the symbols may have them."""
    text = metadata.get(EXAMPLE, "{}")
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    free = symbols(*(size for each in program.inputs for size in each.shape))
    if not isinstance(found, dict) or not all(
        type(size) is int and name in free and not range_of(free[name]).misfit(size) for name, size in found.items()
    ):
        raise EngineError("it is damaged: the sizes of its example are not the program's")
    return found


def _entry(index: int, weight: Weight) -> Entry:
    """How a weight is stored; ggml's reader takes no size of 0 but the first."""
    ne = tuple(size for size in weight.tensor.ne[: max(weight.tensor.rank, 1)] if isinstance(size, int))
    return Entry(f"w{index}", weight.tensor.type, ne if all(ne) else (0,))


def is_engine(path: str | os.PathLike[str]) -> bool:
    """True if a file starts as an engine file does, or as one that gzip compressed; False if it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(4).startswith((b"GGUF", GZIP))
    except OSError:
        return False
