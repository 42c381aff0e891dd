"""What an operator is.

An operator is one frozen dataclass whose fields are its attributes. Sizes in attributes are `Dim`s, so an operator never
reads a shape from a tensor: the frontend turns shape arithmetic into attributes. A class has `infer` and `eval`, and says in
one of four ways, tried in this order, how a target computes it:

- `to_ggml`: the ggml calls, or None where ggml has none for these types and sizes.
- `define`: the same thing in smaller operators.
- `routine`: a C function, for what goes through an axis from one end to the other (running sums, sorting, scattering).
- `element`: one element of the result as a function of its index, from which a loop kernel is generated. Only primitives
  (pointwise, movement, indexing, reductions, contractions) need one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import numpy as np

import graphc.ops
from graphc.errors import ShapeError
from graphc.ir.graph import Graph, Node, Source, Value
from graphc.ir.types import TensorType
from graphc.records import dataclass
from graphc.shapes import Dim, product

if TYPE_CHECKING:
    from graphc.kernels.scalar import Kernel, Scalar
    from graphc.targets.ggml.lowering.builder import Builder
    from graphc.targets.ggml.program.tensor import Tensor

OPS: dict[str, type[Op]] = {}
"""The operator classes that are imported, by the names that engine files and the text form of the IR have for them."""


@cache
def operators() -> Mapping[str, type[Op]]:
    """All operator classes, by name: every module of the package is imported, which takes longer than starting a model."""
    for module in iter_modules(graphc.ops.__path__, f"{graphc.ops.__name__}."):
        import_module(module.name)
    return OPS


@cache
def _texts() -> Mapping[str, bytes]:
    """What is in the files of the package, by the names of their modules."""
    return {file.stem: file.read_bytes() for file in Path(__file__).parent.glob("*.py")}


def operator_class(name: str) -> type[Op]:
    """The class of this name; of the package, the module whose text defines it is imported alone. Raises KeyError."""
    if name not in OPS:
        start = f"\nclass {name}(".encode()
        for module in [module for module, text in _texts().items() if start in text]:
            import_module(f"{graphc.ops.__name__}.{module}")
    return OPS[name] if name in OPS else operators()[name]


@dataclass(frozen=True)
class Routine:
    """A function of `kernels/c/routines/SUBJECT.h` that computes an operator.

    Its arguments are the inputs, the result, `numbers` (a tuple is an array, a text the name of a constant in C) and which
    of how many threads it is. `types` are what its type parameters stand for: T, and I where there are indices. One that can
    fail returns 0, or which of the `faults`, counted from 1, is what the run fails with.
    """

    subject: str
    function: str
    types: tuple[np.dtype, ...]
    numbers: tuple[Dim | str | tuple[Dim, ...], ...]
    faults: tuple[str, ...] = ()


class Op:
    """Base of all operators. Subclasses are `@dataclass(frozen=True)`; defining one registers it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        OPS[cls.__name__] = cls

    @property
    def name(self) -> str:
        """The name that a person reads: the class's, or the function's for a row of a table."""
        return type(self).__name__

    @property
    def settings(self) -> Iterator[Any]:
        """Every attribute; the entries of those that are tuples."""
        for attribute in vars(self).values():
            yield from attribute if isinstance(attribute, tuple) else (attribute,)

    @property
    def binds(self) -> tuple[str, ...]:
        """The size symbols that have no value before this operator has run."""
        return ()

    @property
    def asserts(self) -> bool:
        """True if it is there to fail where something does not hold, though nothing reads its result."""
        return False

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """Result types for input types. Raises ShapeError with the reason if they do not fit."""
        raise NotImplementedError

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The results in NumPy: the oracle, the constant folder, and shape arithmetic (arrays of `Dim` objects)."""
        raise NotImplementedError

    def settle(self, shapes: Sequence[tuple[Dim, ...]], arrays: Sequence[np.ndarray], binding: dict[str, int]) -> None:
        """Add the values of what it binds to `binding`, for results of these declared shapes."""

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...] | None:
        """The results by smaller operators, or None for a primitive."""
        return None

    def to_ggml(self, b: Builder, *inputs: Tensor) -> Tensor | tuple[Tensor, ...] | None:
        """The results by ggml calls, or None where ggml cannot compute exactly this."""
        return None

    def routine(self, *inputs: TensorType) -> Routine | None:
        """The C function that computes result 0; None without one."""
        return None

    def element(self, k: Kernel, index: Sequence[Scalar], *inputs: TensorType) -> Scalar | None:
        """Result 0 at `index` (one int64 scalar an axis), reading inputs with `k.load(i, index)`; None without a loop form."""
        return None

    def __str__(self) -> str:
        shown = [f"{field.name}={getattr(self, field.name)}" for field in fields(self) if field.name != "function"]  # type: ignore[arg-type]
        name = getattr(self, "function", type(self).__name__)
        return name + (f"[{', '.join(shown)}]" if shown else "")


class Emit:
    """Makes nodes one after the other: `emit(Softmax(1), x)`. Used by the frontend, by `define` and by rewrites.

    The nodes are collected in `nodes`; they carry `source`. Where every input is known (a constant, or a small integer
    tensor of sizes), nothing is folded here: that is the fold pass's work.
    """

    def __init__(self, graph: Graph, source: Source | None = None) -> None:
        self.graph = graph
        self.source = source or Source()
        self.nodes: list[Node] = []

    def all(self, op: Op, *inputs: Value, names: Sequence[str] = ()) -> tuple[Value, ...]:
        """Apply an operator; all its results. Raises ShapeError."""
        node = self.graph.make(op, inputs, self.source, names)
        self.nodes.append(node)
        return tuple(node.outputs)

    def __call__(self, op: Op, *inputs: Value, name: str = "") -> Value:
        """Apply an operator that has one result. Raises ShapeError."""
        (value,) = self.all(op, *inputs, names=(name,) if name else ())
        return value

    def constant(self, data: np.ndarray | float | int, like: Value | None = None, name: str = "") -> Value:
        """A constant; with `like`, a scalar of that value's dtype."""
        array = np.asarray(data, dtype=like.dtype if like is not None else None)
        return self.graph.constant(array, name or self.source.name or "constant")


def normalize_axis(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises ShapeError if there is no such axis."""
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(f"axis {axis} is not an axis of a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def lanes(shape: Sequence[Dim], axis: int) -> tuple[Dim, Dim, Dim]:
    """Elements before, along and behind an axis."""
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def differing(shape: Sequence[Dim], other: Sequence[Dim]) -> list[tuple[Dim, Dim]]:
    """The sizes of two shapes that would have to be equal, for `ShapeError.differ`; none if their ranks differ."""
    same_rank = len(shape) == len(other)
    return [(a, b) for a, b in zip(shape, other, strict=True) if a != b] if same_rank else []


def broadcast_shapes(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape that NumPy broadcasting gives. Raises ShapeError with both sizes."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis and shape[axis] != 1}
        if len(sizes) > 1:
            first, *others = sorted(sizes, key=str)
            shown = " and ".join(map(str, (first, *others)))
            raise ShapeError(f"sizes {shown} do not broadcast (axis {axis})", [(first, other) for other in others])
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)
