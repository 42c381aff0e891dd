"""One engine: read, and run where it can be."""

from __future__ import annotations

import json
import warnings
from random import Random

import numpy as np

from graphc.errors import EngineError, GraphcError
from graphc.runtime.model import Model
from graphc.shapes import integer, symbols
from graphc.targets.ggml.program.program import Input, Program
from graphc.targets.ggml.program.tensor import ProgramError
from graphc.targets.ggml.program.text import read_text
from graphc.targets.ggml.program.verify import check_row_numbers
from graphc.targets.ggml.run.device.options import Place

from .mutate import mutated
from .seeds import document

MOST = 1 << 18
"""Bytes of the largest tensor that is given."""

KINDS = ("calls", "calls", "programs", "kernels")


def check(seed: int) -> str:
    """What became of an engine: refused, run, or why it was not. Whatever is raised is a fault."""
    random = Random(seed)
    kind = random.choice(KINDS)
    text = json.dumps(mutated(document(kind, random.randrange(1 << 20)), random))
    try:
        program = read_text(text)
    except EngineError:
        return "refused"
    rng = np.random.default_rng(seed)
    if sum(weight.nbytes for weight in program.weights) > MOST:
        return "large"
    weights = [some(rng, weight.stored.dtype, weight.stored.shape) for weight in program.weights]
    try:
        check_row_numbers(program, weights)
        return run(program, weights, random, rng)
    except (ProgramError, GraphcError):
        return "refused when run"


def run(program: Program, weights: list[np.ndarray], random: Random, rng: np.random.Generator) -> str:
    """Run it for a few sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Model(program, weights, place=Place(threads=random.choice((1, 2))))
    try:
        for _ in range(2):
            arrays = given(program.inputs, random, rng)
            if arrays is None:
                return "large"
            model.run(arrays)
    finally:
        model.close()
    return "run"


def given(inputs: list[Input], random: Random, rng: np.random.Generator) -> dict[str, np.ndarray] | None:
    """Inputs of sizes that the declarations allow; None where all are large."""
    atoms = {name: atom for each in inputs for size in each.shape for name, atom in symbols(size).items()}
    binding = {}
    for name, atom in atoms.items():
        size = atom.low + random.choice((0, 1, 2, 3, 5, 8)) * atom.multiple
        binding[name] = min(size, atom.high) if atom.high is not None else size
    arrays = {}
    for each in inputs:
        shape = tuple(integer(size, binding) for size in each.shape)
        if (
            min(shape, default=0) < 0
            or np.prod([size or 1 for size in shape], dtype=object) * each.dtype.itemsize > MOST
        ):
            return None
        array = some(rng, each.dtype, shape)
        if each.low is not None and each.high is not None and each.dtype.kind in "iu" and each.low < each.high:
            limits = np.iinfo(each.dtype)
            low, high = (int(np.clip(n, limits.min, limits.max)) for n in (each.low, each.high - 1))
            array = rng.integers(low, high, shape, each.dtype, endpoint=True)
        arrays[each.name] = array
    return arrays


def some(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers."""
    numbers = rng.integers(0, 5, shape)
    return numbers.astype(dtype) if dtype.kind != "b" else numbers > 1
