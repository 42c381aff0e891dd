"""A compiled model that runs in this process: arrays in, arrays out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from graphc.errors import InputError
from graphc.shapes import Dim, Expr, bind, symbols
from graphc.shapes.ranges import range_of
from graphc.targets.ggml.executor import Executor
from graphc.targets.ggml.program import Input, Program
from graphc.targets.ggml.rows import from_start
from graphc.weights.checkpoint import Source
from graphc.weights.refit import refitted


@dataclass(frozen=True)
class TensorInfo:
    """Name, element type and sizes of an input or output; a size that is chosen when running is a symbol."""

    name: str
    dtype: np.dtype
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"


class Model:
    """A program with its weights, ready to run.

    Made by `graphc.compile` or `graphc.load`. `weights` holds an array for each of the program's weights.
    """

    def __init__(
        self, program: Program, weights: Iterable[np.ndarray], *, device: str = "cpu", threads: int | None = None
    ) -> None:
        self.program = program
        self.inputs = [TensorInfo(each.name, each.dtype, each.shape) for each in program.inputs]
        self.outputs = [TensorInfo(each.name, each.dtype, each.shape) for each in program.outputs]
        self.executor = Executor(program, weights, device, threads)

    def run(self, feed: Mapping[str, np.ndarray] | None = None, /, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name, for inputs by name, given as keywords or as one mapping.

        Raises InputError that lists every missing or unknown name, wrong dtype, rank and size.
        """
        given = {name: np.asarray(array) for name, array in {**(feed or {}), **arrays}.items()}
        binding = check_inputs(self.program, given)
        results = self.executor.run(from_start(self.program, given), binding)
        return {info.name: array for info, array in zip(self.outputs, results, strict=True)}

    __call__ = run

    def load_weights(self, source: Source, *, strict: bool = True, component: str | None = None) -> None:
        """Take the weights of another checkpoint of the same architecture.

        `source` is a file (safetensors, GGUF, or of `torch.save`), an index of shards, a folder, or arrays by name. It may have
        the names of another layout, and hold more than this model: the component that fits is taken, or else `component`
        ("unet", "text_encoder_2"; see `graphc inspect`). Where the checkpoint has a weight as it is stored, aligned, it is used
        where it lies in the file. If not `strict`, tensors that the model has not are passed over, and weights stay as they are
        if the checkpoint has none of their parameters.

        Raises CheckpointError with all that does not fit, and EngineError if the engine does not say how its weights are
        made; the model is as before then.
        """
        self.executor.replace_weights(
            refitted(self.program, self.executor.arrays, source, strict=strict, component=component)
        )

    def close(self) -> None:
        """Free the device's memory now, instead of when the model is collected."""
        self.executor.close()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the engine file."""
        from graphc.targets.ggml.engine import write_engine

        write_engine(path, self.program, lambda index: self.executor.arrays[index])


def check_inputs(program: Program, given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The values of the size symbols that the arrays imply. Raises InputError with everything that does not fit."""
    declared = {each.name: each for each in program.inputs}
    problems = [f"{name}: missing" for name in declared if name not in given]
    problems += [
        f"{name}: the model has no such input (it has {_list(declared)})" for name in given if name not in declared
    ]
    binding: dict[str, int] = {}
    fitting = [each for each in program.inputs if each.name in given]
    for each in fitting:
        problems += _check_declaration(each, given[each.name], binding)
    if not problems:
        problems = [problem for each in fitting for problem in _check_sizes(each, given[each.name], binding)]
    if not problems:
        problems = [
            check.message for check in program.checks if bind(check.left, binding) != bind(check.right, binding)
        ]
    if problems:
        raise InputError("\n  ".join(["the inputs do not fit the model:", *problems]))
    return binding


def _check_declaration(declared: Input, array: np.ndarray, binding: dict[str, int]) -> Iterable[str]:
    """Dtype and rank; binds the symbols that stand alone as a size."""
    if array.dtype != declared.dtype:
        yield f"{declared.name}: dtype {array.dtype.name}, must be {declared.dtype.name}"
    if array.ndim != len(declared.shape):
        expected = f"[{', '.join(map(str, declared.shape))}]"
        yield f"{declared.name}: {array.ndim} axes {list(array.shape)}, must be {len(declared.shape)} {expected}"
        return
    for size, dim in zip(array.shape, declared.shape, strict=True):
        atoms = symbols(dim)
        if len(atoms) == 1 and isinstance(dim, Expr) and str(dim) in atoms:
            binding.setdefault(str(dim), int(size))


def _check_sizes(declared: Input, array: np.ndarray, binding: Mapping[str, int]) -> Iterable[str]:
    for axis, (size, dim) in enumerate(zip(array.shape, declared.shape, strict=True)):
        where = f"{declared.name}: axis {axis} has size {size}"
        atom = symbols(dim).get(str(dim))
        if atom is not None and (misfit := range_of(atom).misfit(size)):
            hint = f"; one compiled with --dim {dim}=0.. may take it" if size == 0 and atom.low == 1 else ""
            yield f"{where}, must be {misfit} ({dim}){hint}"
        elif size != (expected := bind(dim, binding)):
            yield f"{where}, must be {expected}" + (f" ({dim})" if isinstance(dim, Expr) else "")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
