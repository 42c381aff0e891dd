"""Parameters whose names an exporter lost, found again by the modules that use them.

Exporters fold what PyTorch does to a parameter before they use it: `Linear` multiplies by the transpose of its weight,
a decomposed `GroupNorm` by its weight as [C, 1, 1]; what is left is a constant called onnx::MatMul_123 or val_45. Here the
constant becomes the parameter again, in the shape that the checkpoint has, and what was done to it a node.

Both fold a batch norm into the convolution before it; dynamo gives the result the name of the convolution's weight. That
name goes, because the constant is not what the checkpoint has under it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir

from graphc.ir import Graph, Node, Source, Value
from graphc.ir.graph import type_name
from graphc.ops.base import Op
from graphc.ops.conv import Conv
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Reshape, Transpose
from graphc.ops.norm import InstanceNorm
from graphc.ops.pointwise import Binary

NAMELESS = re.compile(r"(onnx::\w+_\d+|val_\d+)(_\d+)?")
"""Names that exporters make up."""

FOLDED_BIAS = "_bias"
"""What dynamo appends to the name of a weight for the bias of a folded batch norm."""


KIND, PERSISTENT = (f"pkg.torch.export.graph_signature.InputSpec.{key}" for key in ("kind", "persistent"))
"""What dynamo says of an initializer that was a parameter or a buffer."""


def parameter_names(graph: onnx_ir.Graph) -> set[str]:
    """The initializers that checkpoints hold: those that dynamo says were parameters, or buffers that PyTorch saves; of a
    file that says nothing, all whose names are not made up."""
    said = {name: value.metadata_props for name, value in graph.initializers.items()}
    if any(KIND in props for props in said.values()):
        return {
            name for name, props in said.items() if props.get(KIND) == "PARAMETER" or props.get(PERSISTENT) == "True"
        }
    return {name for name in said if not NAMELESS.fullmatch(name)}


def recover_parameters(graph: Graph) -> None:
    """Give constants the names and shapes of the parameters that they are, in place."""
    taken = {value.name for value in graph.constants()}
    by_scope: dict[tuple[str, ...], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        by_scope[node.source.scope].append(node)
    found: dict[Value, tuple[Value, Op]] = {}
    for scope, nodes in by_scope.items():
        if scope:
            _linear(graph, scope, nodes, taken, found)
            _group_norm(graph, scope, nodes, taken, found)
    if found:
        _insert(graph, found)
    _unfold_names(graph)


def _linear(
    graph: Graph, scope: Sequence[str], nodes: list[Node], taken: set[str], found: dict[Value, tuple[Value, Op]]
) -> None:
    """The weight of a module that multiplies by one nameless matrix."""
    matrices = {
        node.inputs[1]
        for node in nodes
        if isinstance(node.op, MatMul) and _nameless(node.inputs[1]) and node.inputs[1].type.rank == 2
    }
    name = ".".join((*scope, "weight"))
    if len(matrices) != 1 or name in taken:
        return
    (matrix,) = matrices
    assert matrix.data is not None
    bias = ".".join((*scope, "bias"))
    if any(value.name == bias and value.shape != matrix.shape[1:] for node in nodes for value in node.inputs):
        return
    found[matrix] = (_parameter(graph, matrix.data.T, name, taken), Transpose((1, 0)))


def _group_norm(
    graph: Graph, scope: Sequence[str], nodes: list[Node], taken: set[str], found: dict[Value, tuple[Value, Op]]
) -> None:
    """The weight and bias of a module that normalizes, then multiplies and adds one number for each channel."""
    if not any(isinstance(node.op, InstanceNorm) for node in nodes):
        return
    for function, kind in (("Mul", "weight"), ("Add", "bias")):
        operands = {
            value
            for node in nodes
            if node.op == Binary(function)
            for value in node.inputs
            if _nameless(value) and _per_channel(value)
        }
        name = ".".join((*scope, kind))
        if len(operands) == 1 and name not in taken:
            (operand,) = operands
            assert operand.data is not None
            found[operand] = (_parameter(graph, operand.data.reshape(-1), name, taken), Reshape(operand.shape))


def _nameless(value: Value) -> bool:
    return value.data is not None and value.dtype.kind not in "biu" and NAMELESS.fullmatch(value.name) is not None


def _per_channel(value: Value) -> bool:
    """True if the shape is [C, 1, ...]."""
    return value.type.rank >= 2 and all(size == 1 for size in value.shape[1:])


def _parameter(graph: Graph, data: np.ndarray, name: str, taken: set[str]) -> Value:
    taken.add(name)
    value = graph.constant(data, name)
    graph.declare_parameter(value, name)
    return value


def _insert(graph: Graph, found: dict[Value, tuple[Value, Op]]) -> None:
    """Read each parameter through the operator that makes the old constant of it."""
    made: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        for value in node.inputs:
            if value in found and value not in made:
                parameter, op = found[value]
                source = Source(parameter.name, type(op).__name__, node.source.scope)
                step = graph.make(op, [parameter], source, [f"{parameter.name}.{type_name(op)}"])
                nodes.append(step)
                made[value] = step.output
        nodes.append(node)
    graph.nodes = nodes
    graph.replace(lambda value: made.get(value, value))


def _unfold_names(graph: Graph) -> None:
    """Convolutions into which an exporter folded a batch norm: neither weight nor bias is a parameter, and the module is
    the convolution."""
    for node in graph.nodes:
        if not isinstance(node.op, Conv) or len(node.inputs) < 3:
            continue
        weight, bias = node.inputs[1:3]
        if weight.data is None or bias.data is None:
            continue
        if bias.name == weight.name + FOLDED_BIAS:
            module = weight.name.removesuffix(".weight")
            node.source = replace(node.source, scope=_sibling(node.source.scope, module))
        elif node.source.scope and _nameless(weight) and _nameless(bias):
            module = ".".join(node.source.scope)
        else:
            continue
        weight.name, bias.name = (graph.fresh(f"{module}.folded.{kind}") for kind in ("weight", "bias"))
        for each in (weight.origin, bias.origin):
            assert each is not None
            each.parameter = ""


def _sibling(scope: tuple[str, ...], module: str) -> tuple[str, ...]:
    """The scope of a module beside the scope's innermost one; the scope itself if it is not beside it."""
    parent = "".join(f"{each}." for each in scope[:-1])
    return (*scope[:-1], module[len(parent) :]) if scope and module.startswith(parent) else scope
