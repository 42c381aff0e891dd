"""How the compiler computes each core operator: seen by lowering a typical use of it for every dtype."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from uses import BINARY_USES, UNARY_USES, USES, Use

from graphc.errors import GraphcError
from graphc.ir.graph import Graph, Node
from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, NARROW, TensorType
from graphc.ops.base import Emit, Op, operators
from graphc.ops.control import Control
from graphc.ops.pointwise import Binary, Unary
from graphc.targets.ggml.lowering.lower import Lowering
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.program import Call, Program

DTYPES = (
    F16,
    BF16,
    F32,
    F64,
    *sorted(INTEGERS, key=lambda dtype: (dtype.kind, dtype.itemsize)),
    BOOL,
    *sorted(NARROW, key=str),
)

GROUPS = (
    ("any", frozenset(DTYPES)),
    ("numbers", FLOATS | INTEGERS),
    ("narrow", NARROW),
    ("floats", FLOATS),
    ("float16, bfloat16, float32", frozenset({F16, BF16, F32})),
    ("integers", INTEGERS),
    ("signed integers", frozenset(dtype for dtype in INTEGERS if dtype.kind == "i")),
)
"""Names of sets of dtypes, larger sets first."""

HEAD = "| operator | ggml calls | for | otherwise |\n| --- | --- | --- | --- |"


@dataclass(frozen=True)
class Method:
    """How an operator is computed for one dtype: by which ggml functions, by which smaller operators, or by a kernel ("routine"
    or "kernel")."""

    functions: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    kernel: str = ""
    widened: bool = False

    @property
    def text(self) -> str:
        """The method in words."""
        if self.operators:
            return "in float32" if self.widened else "by " + ", ".join(self.operators)
        return self.kernel or ", ".join(f"`{name}`" for name in self.functions) or "no call"


def tables() -> list[tuple[str, list[str]]]:
    """Titles and rows of the tables. Raises GraphcError if an operator has no typical use."""
    left_out = (Unary, Binary, Control)
    described = [name for name, op in operators().items() if not issubclass(op, left_out)]
    if missing := [name for name in described if name not in USES]:
        raise GraphcError(f"docs/uses.py has no typical use of {', '.join(missing)}; add one")
    others = {name: forms for name, forms in USES.items() if name in described}
    return [
        ("Functions of one tensor (`UNARY`)", rows(UNARY_USES)),
        ("Functions of two tensors (`BINARY`)", rows(BINARY_USES)),
        ("Operators with a class of their own", rows(others)),
    ]


def rows(uses: dict[str, list[Use]]) -> list[str]:
    """A line for each use."""
    return [
        row(f"{name}, {each.label}" if each.label else name, each) for name, forms in uses.items() for each in forms
    ]


def row(name: str, use: Use) -> str:
    """One line: the ggml calls with their dtypes, and what happens for the other dtypes that the operator takes."""
    found: dict[Method, list[np.dtype]] = defaultdict(list)
    for dtype in DTYPES:
        method = computed(use, dtype)
        if method is not None:
            found[method].append(dtype)
    by_ggml = {method: dtypes for method, dtypes in found.items() if not method.kernel and not method.operators}
    native = [dtype for dtypes in by_ggml.values() for dtype in dtypes]
    shown = next((method for method in by_ggml if F32 in by_ggml[method]), next(iter(by_ggml), None))
    calls = "–" if shown is None else shown.text
    others = [(method.text, dtypes) for method, dtypes in found.items() if method not in by_ggml]
    otherwise = "; ".join(
        f"{text} ({names(dtypes)})" if by_ggml or len(others) > 1 else text for text, dtypes in others
    )
    return f"| {name} | {calls} | {names(native) if native else ''} | {otherwise} |"


def names(dtypes: Iterable[np.dtype]) -> str:
    """The dtypes, by the names of groups where they fill one."""
    left, found = set(dtypes), []
    for name, group in GROUPS:
        if group <= left:
            found.append(name)
            left -= group
    return ", ".join([*found, *(dtype.name for dtype in DTYPES if dtype in left)])


def computed(use: Use, dtype: np.dtype) -> Method | None:
    """How a use is lowered for a dtype; None where the operator does not take it."""
    graph = Graph()
    operands = []
    for index, operand in enumerate(use.inputs):
        kind = operand.dtype or dtype
        if operand.weight:
            operands.append(graph.constant(np.full(operand.shape, 2, kind)))
        else:
            operands.append(graph.input(f"x{index}", TensorType(kind, operand.shape)))
    try:
        node = graph.add(use.op(dtype), operands)
    except GraphcError:
        return None
    lowering = Lowering(graph, Program(graph.name), {})
    lowering.builder.enter(node)
    if lowering.by_ggml(node) is not None:
        return Method(functions=functions(lowering.program.calls))
    if type(node.op).define is not Op.define:
        operators = definition(graph, node)
        if operators and lowering.by_definition(node) is not None:
            return Method(operators=operators, widened=dtype in (F16, BF16) and operators == ("Cast", node.op.name))
    lowering.by_kernel(node)
    return Method(kernel="routine" if node.op.routine(*(value.type for value in operands)) else "kernel")


def definition(graph: Graph, node: Node) -> tuple[str, ...]:
    """The smaller operators of an operator's definition, each once; none for a primitive."""
    emit = Emit(graph)
    if node.op.define(emit, *node.inputs) is None:
        return ()
    return tuple(dict.fromkeys(inner.op.name for inner in emit.nodes if not inner.outputs[0].static))


def functions(calls: Sequence[Call]) -> tuple[str, ...]:
    """The ggml functions that are called, each once, without those that only look at memory and the kernels of operands."""
    return tuple(dict.fromkeys(call.function for call in calls if call.function not in VIEWS and call.kernel < 0))
