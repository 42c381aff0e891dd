"""Matrix products."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.node import OnnxNode, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import FLOATS, I32
from graphc.ops.einsum import Einsum
from graphc.ops.integers import IntegerMatMul
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Reshape
from graphc.ops.pointwise import Binary, Cast


@onnx_op("MatMul")
def matmul(node: OnnxNode, emit: SizeEmit) -> Value:
    """NumPy's matmul."""
    return emit(MatMul(), node.input(0), node.input(1))


@onnx_op("Gemm")
def gemm(node: OnnxNode, emit: SizeEmit) -> Value:
    """alpha * A' B' + beta * C; C may be left out since opset 11."""
    return general_product(node, emit)


def general_product(node: OnnxNode, emit: SizeEmit) -> Value:
    """Gemm of the node's inputs, with its settings."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    if a.type.rank != 2 or b.type.rank != 2:
        raise ModelError(f"Gemm of {a.type} and {b.type}, which are not matrices")
    product = emit(MatMul(bool(node.int("transA", 0)), bool(node.int("transB", 0))), a, b)
    product = scaled(emit, product, node.float("alpha", 1.0))
    return product if c is None else emit(Binary("Add"), product, scaled(emit, c, node.float("beta", 1.0)))


def scaled(emit: SizeEmit, x: Value, factor: float) -> Value:
    """x times a number."""
    if factor == 1.0:
        return x
    refuse_unless(x.dtype in FLOATS or factor == int(factor), f"integers are multiplied by {factor}")
    return emit(Binary("Mul"), x, emit.constant(factor, like=x))


@onnx_op("Einsum")
def einsum(node: OnnxNode, emit: SizeEmit) -> Value:
    """Sums of products over named axes."""
    return emit(Einsum(node.string("equation")), *node.given())


@onnx_op("MatMulInteger")
def matmul_integer(node: OnnxNode, emit: SizeEmit) -> Value:
    """Products of 8-bit integers less their zero points, in int32."""
    return integer_product(emit, node.input(0), node.input(1), node.optional(2), node.optional(3))


def integer_product(emit: SizeEmit, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Value:
    """(a - a_zero) @ (b - b_zero) in int32; a zero point is one number, or one for each row of a or column of b."""
    a_zero, b_zero = (
        emit.constant(np.zeros((), x.dtype)) if zero is None else zero for x, zero in ((a, a_zero), (b, b_zero))
    )
    if min(a.type.rank, b.type.rank) >= 2 and max(a_zero.type.rank, b_zero.type.rank) <= 1:
        return emit(IntegerMatMul(), a, b, a_zero, b_zero, emit.constant(np.zeros((), I32)))
    return emit(MatMul(), less_zero_point(emit, a, a_zero, -1), less_zero_point(emit, b, b_zero, 0))


def less_zero_point(emit: SizeEmit, x: Value, zero: Value, new_axis: int) -> Value:
    """x - zero in int32; a zero point for each row or column gets the axis that it lacks."""
    x = emit(Cast(I32), x)
    if zero.type.rank == 1 and x.type.rank > 1 and new_axis == -1 and zero.shape[0] != 1:
        zero = emit(Reshape((*zero.shape, 1)), zero)
    return emit(Binary("Sub"), x, emit(Cast(I32), zero))
