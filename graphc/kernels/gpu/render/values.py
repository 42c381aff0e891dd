"""Scalars in the text of a GPU kernel: those of `kernels/c/emit.py`, with tiles, tensors and sizes as kernels have them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.ir.types import BF16, F16, I64
from graphc.kernels.c.emit import Block, Emitter
from graphc.kernels.c.language import ATOM, Helper, Text, computed_type
from graphc.kernels.gpu.evaluate import check_template
from graphc.kernels.gpu.tile import Tile, TileKernel
from graphc.kernels.linear import is_positive, nonnegative
from graphc.kernels.nest import walk
from graphc.kernels.scalar import Scalar, make
from graphc.shapes import Dim, Expr

NARROW = {F16: "half", BF16: "bfloat16"}
"""What the dialect calls the narrow types; in memory they are followed by _t."""

OF_DIALECT = {"graphc_max_float": "maximum", "graphc_min_float": "minimum"}
"""Helpers that the dialect has, because they are one instruction."""


@dataclass(frozen=True)
class Parameter:
    """What a kernel takes, in order: a `tensor` by its number; a size, as it is (`int`) or to divide by (`Divisor`); last, if it
    has faults to report, where (`fault`): an int32, in which it writes the number of one."""

    kind: str
    name: str
    value: int | Dim


class Parameters:
    """What a kernel is given besides its tensors: sizes, and sizes to divide by, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, Dim], str] = {}

    def __call__(self, kind: str, dim: Dim) -> str:
        """The name of a size (`int`), or of a size as something to divide by (`Divisor`)."""
        key = kind, dim
        if key not in self.names:
            word = str(dim) if str(dim).isidentifier() else f"size_{len(self.names)}"
            self.names[key] = word if kind == "int" else f"by_{word}"
        return self.names[key]


class Values(Emitter):
    """Expressions for values. `register` gives the register of a tile that holds its element at the place at hand."""

    def __init__(self, kernel: TileKernel, roots: Sequence[Scalar], parameters: Parameters) -> None:
        self.definitions: dict[str, str] = {}
        self.faults: list[str] = []
        super().__init__(roots, lambda symbol: symbol, self._fault, self._helper, lambda dtype: NARROW[dtype])
        self.kernel, self.parameters = kernel, parameters
        self.register: Callable[[Tile], str] = lambda tile: "0"

    def expect(self, roots: Sequence[Scalar]) -> None:
        """Say that more values are to be written."""
        self.uses.update(arg for node in walk(*roots) for arg in node.args)

    def _fault(self, message: str) -> int:
        if message not in self.faults:
            self.faults.append(message)
        return self.faults.index(message) + 1

    def _helper(self, helper: Helper) -> str:
        if helper.function in OF_DIALECT:
            return OF_DIALECT[helper.function]
        self.definitions[helper.function] = helper.definition().replace("static inline", "DEVICE")
        return helper.function

    def home(self, node: Scalar, block: Block) -> Block:
        """As without tiles; but what depends on a tile is computed where it is needed, for tiles change."""
        return block if depends_on_tiles(node) else super().home(node, block)

    def declare(self, node: Scalar, block: Block, text: Text) -> str:
        """As for C; but indices are `int`: no tensor has so many elements that they would not fit."""
        variable = block.names[node] = self.fresh("at" if node.dtype == I64 else "value_")
        kind = "int" if is_index(node) else computed_type(node.dtype)
        block.lines.append(f"const {kind} {variable} = {text.text};")
        return variable

    def dim(self, dim: Dim, block: Block) -> Text:
        """A number, or the parameter that has a size."""
        return Text(self.parameters("int", dim)) if isinstance(dim, Expr) else Text(str(dim), ATOM if dim >= 0 else 14)

    def rounded(self, value: Text, source: np.dtype, dtype: np.dtype) -> str:
        """A narrow float of a value."""
        text = value.text if source.itemsize <= 4 else f"(float) {value.within(14)}"
        return f"to_{NARROW[dtype]}({text})"

    def _size(self, node: Scalar, block: Block) -> Text:
        return self.dim(node.data, block)  # type: ignore[arg-type]

    def _tile(self, node: Scalar, block: Block) -> Text:
        assert isinstance(node.data, Tile)
        return Text(f"{node.data.name}[{self.register(node.data)}]")

    def _element(self, node: Scalar, block: Block) -> Text:
        tensor = self.kernel.tensors[node.data]  # type: ignore[call-overload]
        text = f"load_global({tensor.name} + {self.value(node.args[0], block).within(13)})"
        return Text(f"to_float({text})" if node.dtype in NARROW else text)

    def _apply(self, node: Scalar, block: Block) -> Text:
        check_template(str(node.data))
        return super()._apply(node, block)

    def fault_line(self, message: str) -> str:
        """The statement that reports a fault."""
        return f"store_global(fault, {self._fault(message)});"

    def _cast(self, node: Scalar, block: Block) -> Text:
        if node.dtype in NARROW:
            value = self.value(node.args[0], block)
            return Text(f"to_float({self.rounded(value, node.args[0].dtype, node.dtype)})")
        return super()._cast(node, block)

    def _operate(self, node: Scalar, block: Block) -> Text:
        if node.data in ("//", "%") and is_index(node):
            left, right = node.args
            by = right.dim
            if by is not None and is_positive(by) and nonnegative(left):
                if isinstance(by, Expr):
                    function = "divide" if node.data == "//" else "remainder"
                    divided = f"{function}({self.value(left, block).text}, {self.parameters('Divisor', by)})"
                    return Text(f"(int) {divided}", 14)
                return super()._operate(node, block)
        return super()._operate(node, block)


MOST_KNOWN = 1 << 14
"""Of how many nodes it is kept what they are computed of."""


@functools.lru_cache(MOST_KNOWN)
def depends_on_tiles(node: Scalar) -> bool:
    """True for what is computed of elements of tiles."""
    return node.kind == "tile" or any(map(depends_on_tiles, node.args))


def is_index(node: Scalar) -> bool:
    """True for index arithmetic: an int64 that depends on places, loops and sizes alone."""
    return node.dtype == I64 and is_of_places(node)


@functools.lru_cache(MOST_KNOWN)
def is_of_places(node: Scalar) -> bool:
    """True for what is computed of places, loops and sizes alone."""
    return node.kind in ("constant", "variable", "size", "operate", "select") and all(map(is_of_places, node.args))


def bits(terms: Sequence[tuple[str, int, int]]) -> str:
    """A sum of bits of numbers, each with what it adds: (name, bit, amount); neighbours that double become one term."""
    runs: list[tuple[str, int, int, int]] = []
    for name, bit, amount in terms:
        if amount == 0:
            continue
        if runs:
            last, first, count, unit = runs[-1]
            if last == name and bit == first + count and amount == unit << count:
                runs[-1] = (name, first, count + 1, unit)
                continue
        runs.append((name, bit, 1, amount))
    parts = []
    for name, first, count, unit in runs:
        shifted = f"{name} >> {first}" if first else name
        text = f"({shifted} & {(1 << count) - 1})"
        parts.append(text if unit == 1 else f"{text} * {unit}")
    return " + ".join(parts) or "0"


def as_size(dim: Dim) -> Scalar:
    """A size as a Scalar."""
    return make("size", I64, (), dim)
