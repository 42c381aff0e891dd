"""Scalars as SPIR-V: each value is computed once, in the outermost block where it can be. Indices have 32 bits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import cast

import numpy as np

from graphc.ir.types import BOOL, F32, F64, I64
from graphc.kernels.gpu.evaluate import KernelFault, identity
from graphc.kernels.gpu.render.c_numbers import NO_INPUTS
from graphc.kernels.gpu.render.spirv_functions import NATIVE, OPERATORS, expanded, rounded_once
from graphc.kernels.gpu.render.spirv_module import Block, Module
from graphc.kernels.gpu.render.spirv_numbers import Kind, Numbers, kind_in_registers
from graphc.kernels.gpu.render.values import Parameters, depends_on_tiles, is_index
from graphc.kernels.gpu.tile import Tile, TileKernel
from graphc.kernels.linear import is_positive, nonnegative
from graphc.kernels.nest import extent
from graphc.kernels.scalar import Scalar
from graphc.shapes import Dim, Expr


def kind_of(node: Scalar) -> Kind:
    """What a node's value is in registers."""
    return "i32" if node.dtype == I64 and is_index(node) else kind_in_registers(node.dtype)


class Values(Numbers):
    """Computes values in `block`, the block at hand, where variables in `bound` are other values. `register` gives an element of
    a tile at the place at hand, `read` one of a tensor at an offset; `report` tells of a fault, by its number among `faults`."""

    def __init__(self, kernel: TileKernel, module: Module, block: Block, parameters: Parameters) -> None:
        super().__init__(module, block)
        self.kernel, self.parameters = kernel, parameters
        self.loaded: dict[str, list[int]] = {}
        self.bound: dict[Scalar, Scalar] = {}
        self.variables: dict[Scalar, int] = {}
        self.known: dict[Hashable, tuple[Block, int]] = {}
        self.changeable: dict[Scalar, bool] = {}
        self.fused = True
        self.statement = 0
        self.leaves_loops = False
        self.faults: list[str] = []
        self.report: Callable[[int], None] = lambda number: None
        self.register: Callable[[Tile], int] = lambda tile: 0
        self.read: Callable[[int, int], int] = lambda number, offset: 0

    def fault(self, message: str) -> KernelFault:
        """What this kernel cannot do."""
        return KernelFault(f"{self.kernel.name}: {message}")

    # Where values are computed

    def value(self, node: Scalar, kind: Kind | None = None) -> int:
        """A value in the block at hand. Indices may be wanted with 64 bits, and integers as indices."""
        found, has = self.found(node), kind_of(node)
        return (
            self.make(kind, "SConvert", found)
            if kind is not None and kind[0] == "i" and has[0] == "i" and has != kind
            else found
        )

    def found(self, node: Scalar) -> int:
        """A value in the kind that it has, computed if it is not yet known here."""
        if node.kind == "constant":
            return self.constant(node.value, kind_of(node))
        if node.kind == "variable":
            return self.found(self.bound[node]) if node in self.bound else self.variables[node]
        varies = self.varies(node)
        places = frozenset((each, self.bound[each]) for each in node.free if each in self.bound)
        key = node, places, self.statement if varies else -1
        known = self.known.get(key)
        if known is not None and self.block.is_within(known[0]):
            return known[1]
        outer = self.block
        self.block = home = outer if varies or (places and not self.leaves_loops) else self.home(node)
        result: int = getattr(self, f"_{node.kind}")(node)
        self.known[key], self.block = (home, result), outer
        return result

    def home(self, node: Scalar) -> Block:
        """The outermost block that can compute a value that is needed here: it leaves loops."""
        free = {inner for each in node.free for inner in (self.bound[each].free if each in self.bound else (each,))}
        block = home = self.block
        while block.parent is not None and not block.changing & free:
            home = block.parent if block.changing else home
            block = block.parent
        return home

    def varies(self, node: Scalar) -> bool:
        """True for what one statement may compute to something else than the next: it reads tiles or tensors."""
        if node not in self.changeable:
            self.changeable[node] = not node.total or depends_on_tiles(node)
        return self.changeable[node]

    def dim(self, dim: Dim) -> int:
        """A size."""
        return self.parameter("int", dim) if isinstance(dim, Expr) else self.module.number(dim)

    def parameter(self, kind: str, dim: Dim) -> int:
        """A size that the kernel is given; of a divisor the first of three words, whose numbers follow each other."""
        name = self.parameters(kind, dim)
        if name not in self.loaded:
            self.loaded[name] = [self.module.fresh() for _ in range(3 if kind == "Divisor" else 1)]
        return self.loaded[name][0]

    # Kinds of nodes

    def _size(self, node: Scalar) -> int:
        return self.dim(node.data)  # type: ignore[arg-type]

    def _tile(self, node: Scalar) -> int:
        assert isinstance(node.data, Tile)
        return self.register(node.data)

    def _element(self, node: Scalar) -> int:
        assert isinstance(node.data, int)
        return self.read(node.data, self.value(node.args[0], "i32"))

    def _apply(self, node: Scalar) -> int:
        name = str(node.data)
        if name not in NATIVE:
            return self.value(expanded(node))
        if name == "fma" and not self.fused and node.dtype == F32:
            return self.value(rounded_once(*node.args))
        operation, of_wide = NATIVE[name]
        if F64 in (node.dtype, *(arg.dtype for arg in node.args)) and not of_wide:
            raise self.fault(f"Vulkan does not compute {name} in float64")
        operands = [self.value(arg) for arg in node.args]
        if isinstance(operation, str):
            return self.make(kind_of(node), operation, *operands)
        return self.make(kind_of(node), "ExtInst", self.module.functions_of_glsl, operation, *operands)

    def _operate(self, node: Scalar) -> int:
        name, first = str(node.data), node.args[0]
        if name in ("and", "or"):
            return self.lazy(node)
        kinds = {kind_of(each) for each in (*node.args, *([node] if node.dtype == first.dtype else []))}
        kind: Kind = "i64" if "i64" in kinds else kind_of(first)
        if kind[0] == "f" and name in OPERATORS:
            if kind == "f64":
                raise self.fault(f"Vulkan does not compute {name} in float64")
            return self.value(OPERATORS[name](*(NO_INPUTS.cast(each, F32) for each in node.args)))
        operands = [self.value(arg, kind) for arg in node.args]
        by = node.args[1].dim if name in ("//", "%") and kind == "i32" else None
        if by is not None and is_positive(by) and nonnegative(first):
            if isinstance(by, Expr):
                return self.divided(name, operands[0], self.parameter("Divisor", by))
            return self.make(kind, "UDiv" if name == "//" else "UMod", *operands)
        dtype = np.dtype("int32") if kind == "i32" and first.dtype == I64 else first.dtype
        return self.operator(name, dtype, kind, operands)

    def lazy(self, node: Scalar) -> int:
        """`and` and `or`: the second operand is computed only if it is needed, if it reads."""
        first, is_and = self.value(node.args[0]), node.data == "and"
        if node.args[1].total:
            return self.make("bool", "LogicalAnd" if is_and else "LogicalOr", first, self.value(node.args[1]))
        condition = first if is_and else self.make("bool", "LogicalNot", first)
        return self.branches(condition, "bool", lambda: self.value(node.args[1]), lambda: first)

    def branches(self, condition: int, kind: Kind, first: Callable[[], int], second: Callable[[], int]) -> int:
        """One of two values, of which only one is computed."""
        outer, found = self.block, []
        for compute in (first, second):
            self.block = Block(self.module, outer)
            found.append((compute(), self.block))
        self.block = outer
        outer.choose(condition, found[0][1], found[1][1])
        return self.make(kind, "Phi", *(word for value, block in found for word in (value, block.label)))

    def _select(self, node: Scalar) -> int:
        condition, first, second = node.args
        kind, chosen = kind_of(node), self.value(condition)
        if first.total and second.total:
            return self.choice(kind, chosen, self.value(first, kind), self.value(second, kind))
        return self.branches(chosen, kind, lambda: self.value(first, kind), lambda: self.value(second, kind))

    def _require(self, node: Scalar) -> int:
        condition, kind, message = self.value(node.args[0]), kind_of(node), str(node.data)
        if message not in self.faults:
            self.faults.append(message)
        number = self.faults.index(message) + 1

        def reported() -> int:
            self.report(number)
            return self.constant(0, kind)

        return self.branches(condition, kind, lambda: self.value(node.args[1], kind), reported)

    def _cast(self, node: Scalar) -> int:
        source = node.args[0]
        return self.cast(self.value(source), kind_of(source), source.dtype, node.dtype)

    def _reduce(self, node: Scalar) -> int:
        how, variables = cast("tuple[str, tuple[Scalar, ...]]", node.data)
        kind = kind_of(node)
        start = self.constant(how in ("min", "prod") if node.dtype == BOOL else identity(how, node.dtype), kind)
        if how != "sum" or kind != "f32":
            return self.accumulated(node, variables, [start])[0]
        return self.make(kind, "FAdd", *self.accumulated(node, variables, [start, start]))

    def accumulated(self, node: Scalar, variables: Sequence[Scalar], totals: list[int]) -> list[int]:
        """What a reduction has after loops over variables, from what it had before."""
        outer, kind = self.block, kind_of(node)
        if not variables:
            value = self.value(node.args[0], kind)
            if len(totals) == 2:
                return self.compensated(totals, value)
            how = node.data[0]  # type: ignore[index]
            dtype = np.dtype("int32") if kind == "i32" and node.dtype == I64 else node.dtype
            return [self.operator({"sum": "+", "prod": "*"}.get(how, how), dtype, kind, [*totals, value])]
        index, count = variables[0], self.dim(extent(variables[0]))
        self.block = body = Block(self.module, outer, frozenset((index,)))
        self.variables[index] = self.module.fresh()
        begun = [self.module.fresh() for _ in totals]
        ended = self.accumulated(node, variables[1:], begun)
        self.block = outer
        carried = [(self.type(kind), *each) for each in zip(begun, totals, ended, strict=True)]
        outer.repeat(self.variables[index], count, body, carried)
        return begun

    def compensated(self, totals: list[int], value: int) -> list[int]:
        """A sum, and what rounding has lost of it, with one more number: together they are nearly what float64 would give."""
        total, lost = totals
        fresh = self.make("f32", "FAdd", total, value)
        part = self.make("f32", "FSub", fresh, total)
        rest = self.make("f32", "FSub", total, self.make("f32", "FSub", fresh, part))
        error = self.make("f32", "FAdd", rest, self.make("f32", "FSub", value, part))
        kept = self.choice("f32", self.make("bool", "FOrdEqual", error, error), error, self.constant(0, "f32"))
        return [fresh, self.make("f32", "FAdd", lost, kept)]
