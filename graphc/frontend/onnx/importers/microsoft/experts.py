"""Mixtures of experts: layers of which each row of features takes a few."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.microsoft.activations import biased, gated
from graphc.frontend.onnx.importers.microsoft.weights import bits_of, unpacked
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ops.activations import Gelu
from graphc.ops.indexing import GatherElements
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand, Transpose
from graphc.ops.pointwise import Binary, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.ops.scatter import ScatterElements
from graphc.ops.softmax import Softmax
from graphc.ops.sorting import TopK
from graphc.shapes import Dim, ceil_div

ACTIVATIONS = {
    "relu": Unary("Relu"),
    "gelu": Gelu("tanh"),
    "silu": Unary("Silu"),
    "identity": None,
}


@dataclass(frozen=True)
class Layer:
    """What all experts have of one layer: weights [E, N, K], and a bias [E, N]."""

    weight: Value
    bias: Value | None


@onnx_op("MoE", domain=MICROSOFT)
def mixture_of_experts(node: OnnxNode, emit: SizeEmit) -> Value:
    """Of each row the experts with the largest scores, weighed by the softmax of the scores. All are computed: their first
    layers are one product, and so are the second ones, where those that were not chosen get zeros."""
    layers = [
        None if weight is None else Layer(weight, node.optional(place + 1))
        for place, weight in ((place, node.optional(place)) for place in (2, 4, 6))
    ]
    chosen, gates = _routed(node, emit, None, bool(node.int("normalize_routing_weights", 0)))
    return _mixture(node, emit, layers, chosen, gates)


@onnx_op("QMoE", domain=MICROSOFT)
def quantized_mixture_of_experts(node: OnnxNode, emit: SizeEmit) -> Value:
    """MoE with weights of 2, 4 or 8 bits, which have a scale for each row or for each block of it. What the chosen experts
    are weighed by may be an input; if not, it is the softmax of their scores alone, whatever the attribute says."""
    kind = node.string("quant_type", "int")
    refuse_unless(kind == "int", f"experts of {kind} are not supported")
    refuse_unless(node.int("weights_prepacked", -1) != 1, "weights in the order of a device are not supported")
    layers = [_few_bits(node, emit, number, 2 + 3 * number) for number in range(3)]
    weights = node.optional(14)
    normalized = weights is None or bool(node.int("normalize_routing_weights", 0))
    chosen, gates = _routed(node, emit, weights, normalized)
    return _mixture(node, emit, layers, chosen, gates)


def _few_bits(node: OnnxNode, emit: SizeEmit, number: int, place: int) -> Layer | None:
    """The layer of a number whose inputs begin at a place, as numbers."""
    packed, scales, bias, zeros = (node.optional(index) for index in (place, place + 1, place + 2, 11 + number))
    if packed is None:
        return None
    if scales is None or scales.type.rank not in (2, 3) or packed.type.rank != 3:
        raise ModelError(f"the weights {packed.type} with the scales {'' if scales is None else scales.type}")
    bits = bits_of(node.int(f"fc{number + 1}_expert_weight_bits", node.int("expert_weight_bits", 4)))
    codes = unpacked(emit, packed, bits)
    experts, rows, columns = codes.shape
    blocks = 1 if scales.type.rank == 2 else scales.shape[2]
    codes = to_shape(emit, codes, (experts, rows, blocks, columns // blocks))
    if zeros is None:
        zero = emit.constant(float(1 << (bits - 1)), like=scales)
    else:
        line: tuple[Dim, ...] = (rows,) if scales.type.rank == 2 else (rows, blocks)
        packed_line = (experts, *line[:-1], ceil_div(line[-1] * bits, 8))
        found = cut(emit, unpacked(emit, to_shape(emit, zeros, packed_line), bits), len(line), 0, line[-1])
        zero = to_shape(emit, converted(emit, found, scales.dtype), (experts, rows, blocks, 1))
    moved = emit(Binary("Sub"), converted(emit, codes, scales.dtype), zero)
    weight = emit(Binary("Mul"), moved, to_shape(emit, scales, (experts, rows, blocks, 1)))
    return Layer(converted(emit, to_shape(emit, weight, (experts, rows, columns)), node.input(0).dtype), bias)


def _mixture(node: OnnxNode, emit: SizeEmit, layers: list[Layer | None], chosen: Value, gates: Value) -> Value:
    first, second, third = layers
    if first is None or second is None:
        raise ModelError("the weights of a layer are missing")
    refuse_unless(not node.int("use_sparse_mixer", 0), "the sparse mixer's choice of experts is not supported")
    refuse_unless(not node.int("swiglu_limit_after_activation", 0), "a limit behind the activation is not supported")
    x = node.input(0)
    flat = to_shape(emit, x, (x.type.size // x.shape[-1], x.shape[-1]))
    hidden = _activated(node, emit, flat, first, third)
    rows, experts, width = hidden.shape
    apart = (rows, experts, 1)
    weighed = emit(Binary("Mul"), hidden, to_shape(emit, gates, apart))
    weighed = emit(Where(), to_shape(emit, chosen, apart), weighed, emit.constant(0.0, like=weighed))
    side_by_side = emit(Transpose((1, 0, 2)), second.weight)
    side_by_side = to_shape(emit, side_by_side, (side_by_side.shape[0], experts * width))
    y = emit(MatMul(transpose_b=True), to_shape(emit, weighed, (rows, experts * width)), side_by_side)
    return to_shape(emit, biased(emit, y, second.bias and emit(MatMul(), gates, second.bias)), x.shape)


def _routed(node: OnnxNode, emit: SizeEmit, weights: Value | None, normalized: bool) -> tuple[Value, Value]:
    """Which experts are chosen by the scores [T, E], and what they are weighed by, 0 for the others: their softmax, or the
    weights, which may be divided by their sum."""
    scores = node.input(1)
    _, places = emit.all(TopK(1, node.int("k", 1)), scores)
    found = emit(GatherElements(1), emit(Softmax(1), scores) if weights is None else weights, places)
    if normalized:
        found = emit(Binary("Div"), found, emit(Reduce("sum", (1,), True), found))
    zeros = emit(Expand(scores.shape), emit.constant(0.0, like=found))
    ones = emit(Expand(found.shape), emit.constant(1.0, like=found))
    flags = emit(ScatterElements(1), zeros, places, ones)
    chosen = emit(Binary("Greater"), flags, emit.constant(0.5, like=flags))
    return chosen, emit(ScatterElements(1), zeros, places, found)


def _activated(node: OnnxNode, emit: SizeEmit, x: Value, first: Layer, third: Layer | None) -> Value:
    """[T, K] in the first layers, [T, E, N]."""
    kind, fusion = node.string("activation_type", "relu"), node.int("swiglu_fusion", 0)
    found = _of_all(emit, x, first)
    if kind == "swiglu" and fusion:
        rows, experts, both = found.shape
        width = both // 2
        pair = to_shape(emit, found, (rows, experts, *((width, 2) if fusion == 1 else (2, width))))
        axis = 3 if fusion == 1 else 2
        gate, up = (to_shape(emit, cut(emit, pair, axis, i, 1), (rows, experts, width)) for i in range(2))
        return gated(node, emit, gate, up, node.float("swiglu_limit") if node.has("swiglu_limit") else None)
    if kind == "swiglu":
        if third is None:
            raise ModelError("the weights of the third layer are missing")
        limit = node.float("swiglu_limit") if node.has("swiglu_limit") else None
        return gated(node, emit, found, _of_all(emit, x, third), limit)
    refuse_unless(kind in ACTIVATIONS, f"the activation {kind} is not supported")
    activation = ACTIVATIONS[kind]
    found = found if activation is None else emit(activation, found)
    return found if third is None else emit(Binary("Mul"), found, _of_all(emit, x, third))


def _of_all(emit: SizeEmit, x: Value, layer: Layer) -> Value:
    """[T, K] in a layer of all experts, [T, E, N]."""
    experts, rows, columns = layer.weight.shape
    found = emit(MatMul(transpose_b=True), x, to_shape(emit, layer.weight, (experts * rows, columns)))
    bias = layer.bias and to_shape(emit, layer.bias, (experts * rows,))
    return to_shape(emit, biased(emit, found, bias), (x.shape[0], experts, rows))
