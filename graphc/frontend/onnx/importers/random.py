"""Random numbers.

The standard leaves the generator to the runtime, and the seed too where a node gives none. Here numbers depend on nothing but
the model: a node's stream is named by its seed, or else by its output, and each further use of the same name (a step of an
unrolled loop) has a stream of its own, as has each round of a loop. So every run of a model gives the same numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, F64, I32
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.random import Random
from graphc.ops.sorting import ArgMax
from graphc.shapes import Dim

SETTINGS: dict[str, Callable[[OnnxNode], tuple[float, float]]] = {
    "normal": lambda node: (node.float("mean", 0.0), node.float("scale", 1.0)),
    "uniform": lambda node: (node.float("low", 0.0), node.float("high", 1.0) - node.float("low", 0.0)),
}
"""Where each kind's numbers start, and how far apart they lie."""


def drawn(node: OnnxNode, emit: SizeEmit, shape: Sequence[Dim], kind: str = "uniform", dtype: np.dtype = F64) -> Value:
    """Numbers of the node's stream; without more, of float64 from 0 up to but not including 1."""
    seed = node.float("seed", None)
    name = emit.outermost.fresh(f"random {node.outputs[0]}" if seed is None else f"seed {seed}")
    stream = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 2
    return emit(Random(kind, stream, *SETTINGS[kind](node), dtype, tuple(shape)), *emit.rounds())


@onnx_op("RandomNormal", "RandomUniform")
def random(node: OnnxNode, emit: SizeEmit) -> Value:
    """Of the shape that an attribute gives."""
    return _of_shape(node, emit, node.ints("shape"), F32)


@onnx_op("RandomNormalLike", "RandomUniformLike")
def random_like(node: OnnxNode, emit: SizeEmit) -> Value:
    """Of the shape and, without an attribute, the element type of another tensor."""
    return _of_shape(node, emit, node.input(0).shape, node.input(0).dtype)


def _of_shape(node: OnnxNode, emit: SizeEmit, shape: Sequence[Dim], dtype: np.dtype) -> Value:
    kind = "normal" if "Normal" in node.operator else "uniform"
    return drawn(node, emit, shape, kind, node.dtype("dtype", dtype))


@onnx_op("Bernoulli")
def bernoulli(node: OnnxNode, emit: SizeEmit) -> Value:
    """1 with the probabilities that the input holds, else 0."""
    x = node.input(0)
    hit = emit(Binary("Less"), drawn(node, emit, x.shape), emit(Cast(F64), x))
    return emit(Cast(node.dtype("dtype", x.dtype)), hit)


@onnx_op("Multinomial")
def multinomial(node: OnnxNode, emit: SizeEmit) -> Value:
    """[batch, classes], logarithms of weights -> [batch, sample_size], classes.

    The largest logarithm is chosen after to each is added -log(-log u), u being uniform: Gumbel's way to draw by weights.
    """
    x = node.input(0)
    if x.type.rank != 2:
        raise ModelError(f"Multinomial of {x.type}, which is not [batch, classes]")
    batch, classes = x.shape
    u = drawn(node, emit, (batch, node.int("sample_size", 1), classes))
    for _ in range(2):
        u = emit(Unary("Neg"), emit(Unary("Log"), u))
    logarithms = to_shape(emit, emit(Cast(F64), x), (batch, 1, classes))
    chosen = emit(ArgMax(2, keepdims=False), emit(Binary("Add"), logarithms, u))
    return emit(Cast(node.dtype("dtype", I32)), chosen)
