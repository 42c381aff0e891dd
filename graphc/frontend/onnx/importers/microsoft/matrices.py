"""Matrices: inverses, distances, complex numbers."""

from __future__ import annotations

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.signal import minor
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, NARROW
from graphc.ops.movement import Concat
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.reduce import Reduce


@onnx_op("Inverse", domain=MICROSOFT)
def inverse(node: OnnxNode, emit: SizeEmit) -> Value:
    """The inverses of small matrices, by cofactors."""
    x = node.input(0)
    if x.type.rank < 2 or x.shape[-2] != x.shape[-1]:
        raise ModelError(f"the inverse of {x.type}")
    size = fixed_size(x.shape[-1], "the size of the matrices")
    refuse_unless(1 <= size <= 4, f"the inverse of matrices of size {size} is not supported")
    wide = emit(Cast(F32), x) if x.dtype in NARROW else x
    every, rank = list(range(size)), x.type.rank
    whole = minor(emit, wide, every, every)
    rows = []
    for row in every:
        parts = []
        for column in every:
            others = ([i for i in every if i != column], [i for i in every if i != row])
            part = minor(emit, wide, *others) if size > 1 else emit.constant(1.0, like=wide)
            parts.append(emit(Binary("Div"), emit(Unary("Neg"), part) if (row + column) % 2 else part, whole))
        rows.append(parts[0] if size == 1 else emit(Concat(rank - 1), *parts))
    y = rows[0] if size == 1 else emit(Concat(rank - 2), *rows)
    return emit(Cast(x.dtype), y) if x.dtype in NARROW else y


@onnx_op("CDist", domain=MICROSOFT)
def distances(node: OnnxNode, emit: SizeEmit) -> Value:
    """The distance of each row of one matrix from each of another, or its square."""
    a, b = node.input(0), node.input(1)
    metric = node.string("metric", "sqeuclidean")
    refuse_unless(metric in ("euclidean", "sqeuclidean"), f"the distance {metric} is not supported")
    if a.type.rank != 2 or b.type.rank != 2:
        raise ModelError(f"distances of {a.type} and {b.type}, which are not matrices")
    apart = emit(Binary("Sub"), to_shape(emit, a, (a.shape[0], 1, a.shape[1])), to_shape(emit, b, (1, *b.shape)))
    squares = emit(Reduce("sum", (2,), False), emit(Binary("Mul"), apart, apart))
    return emit(Unary("Sqrt"), squares) if metric == "euclidean" else squares


@onnx_op("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def complex_product(node: OnnxNode, emit: SizeEmit) -> Value:
    """Products of complex numbers, whose parts are the last axis; of the second operand the conjugates may be taken."""
    (a, b), (c, d) = ([_part(emit, node.input(index), i) for i in range(2)] for index in range(2))
    pairs = [(a, c), (b, d), (b, c), (a, d)]
    ac, bd, bc, ad = (emit(Binary("Mul"), *pair) for pair in pairs)
    real, imaginary = ("Add", "Sub") if node.operator == "ComplexMulConj" else ("Sub", "Add")
    found = emit(Binary(real), ac, bd), emit(Binary(imaginary), bc, ad)
    return emit(Concat(found[0].type.rank - 1), *found)


def _part(emit: SizeEmit, x: Value, index: int) -> Value:
    if x.type.rank < 1 or x.shape[-1] != 2:
        raise ModelError(f"{x.type} does not hold complex numbers")
    return cut(emit, x, x.type.rank - 1, index, 1)
