"""Textual inversion: more rows for the table of a text encoder's tokens.

The new rows follow the old ones, so a token of several vectors has ids from the old number of tokens upwards. A program that
reads its table by row numbers alone is the same for any number of rows, but for the sizes that it declares.

Files: AUTOMATIC1111's, `string_to_param` of a PyTorch file or `emb_params` of a safetensors one; those for two encoders
(`clip_l`, `clip_g`); diffusers', a tensor under the token's own name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, Union

import numpy as np

from graphc.errors import CheckpointError, EngineError, InputError
from graphc.ops.movement import Concat
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.program import Growth, Program, with_blocks
from graphc.targets.ggml.program.tensor import Tensor
from graphc.targets.ggml.program.text import digest, read_text, write_operator, write_text
from graphc.weights.checkpoint import Source, open_checkpoint
from graphc.weights.formats.tensors import Unreadable

Vectors: TypeAlias = Union[Source, np.ndarray]
"""A file, tensors by name, or the vectors themselves."""


@dataclass(frozen=True)
class Embeddings:
    """Vectors of tokens that a program does not know. `rows` has them by token, in the order of their ids."""

    program: Program
    rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    def load(self, given: Mapping[str, Vectors]) -> Embeddings:
        """With more tokens. Raises InputError for one that is there, CheckpointError for a file that does not fit, and
        EngineError for a program without a table of tokens that can grow."""
        if not given:
            return self
        if known := [token for token in given if token in self.rows]:
            raise InputError(
                f"an embedding {known[0]!r} is loaded; unload the embeddings, or give this one another name"
            )
        width = self.program.weights[self.table].shape[1]
        return Embeddings(self.program, {**self.rows, **{token: _rows(each, width) for token, each in given.items()}})

    def none(self) -> Embeddings:
        """Without tokens."""
        return Embeddings(self.program)

    @cached_property
    def table(self) -> int:
        """The weight that the rows are added to. Raises EngineError if there is none."""
        return table_of(self.program)[0]

    @property
    def ids(self) -> dict[str, list[int]]:
        """The numbers of each token's rows."""
        found, start = {}, self.program.weights[self.table].shape[0] if self.rows else 0
        for token, rows in self.rows.items():
            found[token] = list(range(start, start + len(rows)))
            start += len(rows)
        return found

    def grown(self) -> Program:
        """The program with so many rows more, and a recipe that adds them; itself, if there are none."""
        if not self.rows:
            return self.program
        index, place = table_of(self.program)
        document = json.loads(write_text(self.program))
        document["weights"][index]["shape"][0] += len(self._added)
        document["inputs"][place]["high"] += len(self._added)
        program = read_text(json.dumps(document))
        program.recipes, program.example = self._recipes(index), self.program.example
        program.about = self.program.about
        before = self.program.growth or Growth(digest(write_text(self.program)), index, place, 0)
        program.growth = replace(before, rows=before.rows + len(self._added))
        return program

    def array(self, index: int, stored: np.ndarray) -> np.ndarray:
        """A weight of the grown program, of the one that the program has: both as they are stored."""
        if not self.rows or index != self.table:
            return stored
        weight = self.program.weights[index]
        return np.concatenate([stored, weight.converted(self._added.astype(weight.dtype))])

    @property
    def _added(self) -> np.ndarray:
        return np.concatenate(list(self.rows.values()))

    def _recipes(self, index: int) -> str:
        if not self.program.recipes:
            return ""
        recipes = json.loads(self.program.recipes)
        table, weight = recipes["weights"][index], self.program.weights[index]
        if table is not None:
            rows = self._added.astype(weight.dtype)
            data = base64.b64encode(rows.tobytes()).decode()
            inputs = [table, {"constant": len(recipes["constants"])}]
            recipes["weights"][index] = {"node": len(recipes["nodes"])}
            recipes["constants"].append({"dtype": weight.dtype.name, "shape": list(rows.shape), "data": data})
            recipes["nodes"].append({**write_operator(Concat(0)), "inputs": inputs})
        return json.dumps(recipes, separators=(",", ":"))


def table_of(program: Program) -> tuple[int, int]:
    """The weight that is the table of tokens, and the input that numbers its rows: the largest that an input numbers.

    Raises EngineError if there is none, or if it is read in another way too.
    """
    read = {
        (call.args[0].weight, _input(program, call.args[1]))
        for call in program.calls
        if call.function == "ggml_get_rows" and isinstance(call.args[0], Tensor) and call.args[0].weight >= 0
    }
    tables = [(index, place) for index, place in read if place >= 0 and len(program.weights[index].shape) == 2]
    if not tables:
        raise EngineError("the model has no table of tokens whose rows an input numbers")
    index, place = max(tables, key=lambda each: program.weights[each[0]].shape[0])
    others = [each for each in _readers(program, index) if each != "ggml_get_rows"]
    if others or program.inputs[place].high != program.weights[index].shape[0]:
        why = f"{others[0]} reads it too" if others else f"{program.inputs[place].name} numbers the rows of others too"
        raise EngineError(f"the table of tokens {program.weights[index].name} cannot grow: {why}")
    return index, place


def _input(program: Program, tensor: Any) -> int:
    """The input that a tensor is a view of; -1 if it is of none."""
    while tensor.call >= 0 and program.calls[tensor.call].function in VIEWS:
        tensor = program.calls[tensor.call].args[0]
    return int(tensor.input)


def _readers(program: Program, index: int) -> Iterator[str]:
    """The functions that read a weight."""
    for call in (call for block in with_blocks(program) for call in block.calls):
        yield from (call.function for arg in call.args if isinstance(arg, Tensor) and arg.weight == index)


def _rows(given: Vectors, width: int) -> np.ndarray:
    """The vectors [count, width] of a token. Raises CheckpointError if there are none so wide, or several tensors of them."""
    where = f"{given}: " if not isinstance(given, Mapping | np.ndarray) else ""
    tensors = open_checkpoint({"vectors": given} if isinstance(given, np.ndarray) else given)
    found = {name: each for name, each in tensors.items() if not isinstance(each, Unreadable) and each.ndim in (1, 2)}
    fitting = {name: each for name, each in found.items() if each.shape[-1] == width and each.dtype.kind in "fV"}
    if len(fitting) != 1:
        there = ", ".join(f"{name} {list(each.shape)}" for name, each in (fitting or found).items()) or "none"
        wanted = "one tensor of vectors" if fitting else f"vectors of {width} numbers, as the model's tokens have"
        raise CheckpointError(f"{where}an embedding must have {wanted}; there is {there}")
    (each,) = fitting.values()
    rows: np.ndarray = np.asarray(each).reshape(-1, width)
    if not len(rows) or not np.isfinite(rows.astype(np.float32)).all():
        raise CheckpointError(f"{where}an embedding must have finite numbers, and at least one vector")
    return rows
