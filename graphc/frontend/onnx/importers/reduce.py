"""Reductions, and global pooling, which is one."""

from __future__ import annotations

from collections.abc import Callable

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.sizes import axes_of
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import BOOL, U8
from graphc.ops.activations import IsInf
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.reduce import Reduce

Step = Callable[[SizeEmit, Value], Value]


def _same(emit: SizeEmit, x: Value) -> Value:
    return x


def _function(name: str) -> Step:
    return lambda emit, x: emit(Unary(name), x)


REDUCTIONS: dict[str, tuple[Step, str, Step]] = {
    "ReduceSum": (_same, "sum", _same),
    "ReduceMean": (_same, "mean", _same),
    "ReduceMax": (_same, "max", _same),
    "ReduceMin": (_same, "min", _same),
    "ReduceProd": (_same, "prod", _same),
    "ReduceSumSquare": (_function("Sqr"), "sum", _same),
    "ReduceL1": (_function("Abs"), "sum", _same),
    "ReduceL2": (_function("Sqr"), "sum", _function("Sqrt")),
    "ReduceLogSum": (_same, "sum", _function("Log")),
}
"""What is done to the elements, how they are combined, and what is done to the result."""

AXES_INPUT = {"ReduceSum": 13}
"""Since which opset the axes are an input; 18 for the others."""


@onnx_op(*REDUCTIONS)
def reduce(node: OnnxNode, emit: SizeEmit) -> Value:
    """A reduction over some axes, or over all of them."""
    before, kind, after = REDUCTIONS[node.operator]
    return after(emit, _reduce(node, emit, before(emit, node.input(0)), kind))


@onnx_op("ReduceLogSumExp")
def reduce_log_sum_exp(node: OnnxNode, emit: SizeEmit) -> Value:
    """The largest element is taken out first if it is finite, so that nothing overflows."""
    x = node.input(0)
    axes = _axes(node, emit, x)
    if not axes:
        return emit(Unary("Log"), emit(Unary("Exp"), x)) if x.type.rank else x
    largest = emit(Reduce("max", axes, True), x)
    largest = emit(Where(), emit(IsInf(), largest), emit.constant(0, like=largest), largest)
    total = emit(Reduce("sum", axes, True), emit(Unary("Exp"), emit(Binary("Sub"), x, largest)))
    result = emit(Binary("Add"), emit(Unary("Log"), total), largest)
    return result if node.int("keepdims", 1) else emit(Reduce("sum", axes, False), result)


def _axes(node: OnnxNode, emit: SizeEmit, x: Value) -> tuple[int, ...]:
    given = axes_of(node, emit, x.type.rank, AXES_INPUT.get(node.operator, 18))
    if given:
        return given
    return () if node.int("noop_with_empty_axes", 0) else tuple(range(x.type.rank))


def _reduce(node: OnnxNode, emit: SizeEmit, x: Value, kind: str) -> Value:
    axes = _axes(node, emit, x)
    if not axes:
        return x
    operator = Reduce(kind, axes, bool(node.int("keepdims", 1)))
    if x.dtype == BOOL:
        return emit(Cast(BOOL), emit(operator, emit(Cast(U8), x)))
    return emit(operator, x)


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode, emit: SizeEmit) -> Value:
    """The mean or the largest element of each channel."""
    x = node.input(0)
    kind = "mean" if node.operator == "GlobalAveragePool" else "max"
    return emit(Reduce(kind, tuple(range(2, x.type.rank)), True), x)


@onnx_op("GlobalLpPool")
def global_lp_pool(node: OnnxNode, emit: SizeEmit) -> Value:
    """The p-norm of each channel."""
    x = node.input(0)
    return lp_root(emit, emit(Reduce("sum", tuple(range(2, x.type.rank)), True), lp_power(emit, x, node)), node)


def lp_power(emit: SizeEmit, x: Value, node: OnnxNode) -> Value:
    """|x| to the p."""
    p = node.int("p", 2)
    return emit(Binary("Pow"), emit(Unary("Abs"), x), emit.constant(p, like=x))


def lp_root(emit: SizeEmit, x: Value, node: OnnxNode) -> Value:
    """The p-th root."""
    return emit(Binary("Pow"), x, emit.constant(1.0 / node.int("p", 2), like=x))
