"""Writing slices or elements into a copy of a tensor."""

from __future__ import annotations

from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ops.base import normalize_axis
from graphc.ops.scatter import ScatterElements, ScatterND

REDUCTIONS = ("none", "add", "mul", "max", "min")


@onnx_op("ScatterElements", "Scatter")
def scatter_elements(node: OnnxNode, emit: SizeEmit) -> Value:
    """One element for each index (Scatter is its name before opset 11)."""
    x = node.input(0)
    axis = normalize_axis(node.int("axis", 0), x.type.rank)
    reduction = node.choice("reduction", "none", REDUCTIONS)
    return emit(ScatterElements(axis, reduction), x, node.input(1), node.input(2))


@onnx_op("ScatterND")
def scatter_nd(node: OnnxNode, emit: SizeEmit) -> Value:
    """Slices, by tuples of indices."""
    reduction = node.choice("reduction", "none", REDUCTIONS)
    return emit(ScatterND(reduction), node.input(0), node.input(1), node.input(2))
