"""Rules that remove and join movements of data."""

from __future__ import annotations

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand, Reshape, Transpose
from graphc.rewrite.engine import Refusal, rule


@rule("r := Reshape(x)", "r := Expand(x)", "r := Cast(x)", "r := Identity(x)")
def same(emit: Emit, x: Value, r: Node) -> Value | Refusal:
    """A movement or cast that changes nothing is what it reads."""
    if r.output.type != x.type:
        return Refusal("the type changes")
    return x


@rule("t := Transpose(x)")
def transpose_in_order(emit: Emit, x: Value, t: Node) -> Value | Refusal:
    """A transpose that only moves axes of size 1 is a reshape."""
    assert isinstance(t.op, Transpose)
    moved = [axis for axis in t.op.perm if x.shape[axis] != 1]
    if moved != sorted(moved):
        return Refusal("axes change places")
    return emit(Reshape(t.output.shape), x)


@rule("outer := Reshape(Reshape(x))")
def reshape_of_reshape(emit: Emit, x: Value, outer: Node) -> Value:
    """Only the last of two reshapes counts."""
    return emit(Reshape(outer.output.shape), x)


@rule("outer := Transpose(inner := Transpose(x))")
def transpose_of_transpose(emit: Emit, x: Value, outer: Node, inner: Node) -> Value:
    """Two transposes are one."""
    assert isinstance(outer.op, Transpose)
    assert isinstance(inner.op, Transpose)
    return emit(Transpose(tuple(inner.op.perm[axis] for axis in outer.op.perm)), x)


@rule("m := MatMul(a, t := Transpose(b))")
def matmul_of_transposed(emit: Emit, a: Value, b: Value, m: Node, t: Node) -> Value | Refusal:
    """A @ B^T reads B as it lies."""
    assert isinstance(m.op, MatMul)
    assert isinstance(t.op, Transpose)
    rank = len(t.op.perm)
    if rank < 2 or t.op.perm[-2:] != (rank - 1, rank - 2) or m.op.transpose_b:
        return Refusal("the last two axes are not swapped")
    batch = t.op.perm[:-2]
    moved = b if batch == tuple(range(rank - 2)) else emit(Transpose((*batch, rank - 2, rank - 1)), b)
    return emit(MatMul(transpose_a=m.op.transpose_a, transpose_b=True), a, moved)


@rule("m := MatMul(a, b)")
def matmul_of_weight(emit: Emit, a: Value, b: Value, m: Node) -> Value | Refusal:
    """A constant right operand is stored transposed, as ggml's matrix product reads it."""
    assert isinstance(m.op, MatMul)
    if m.op.transpose_b or len(b.shape) < 2 or not b.static:
        return Refusal("the right operand is computed, or lies right already")
    rank = len(b.shape)
    turned = emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), b)
    return emit(MatMul(transpose_a=m.op.transpose_a, transpose_b=True), a, turned)


@rule("m := MatMul(e := Expand(x), b)")
def matmul_of_expanded(emit: Emit, x: Value, b: Value, e: Node, m: Node) -> Value | Refusal:
    """The matrix product broadcasts batches by itself."""
    assert isinstance(m.op, MatMul)
    assert isinstance(e.op, Expand)
    if len(x.shape) < 2 or x.shape[-2:] != e.output.shape[-2:]:
        return Refusal("more than the batch is expanded")
    result = m.op.infer(x.type, b.type)[0]
    if result != m.output.type:
        return Refusal("the batch comes from the expanded operand")
    return emit(m.op, x, b)


CANCEL = [same, transpose_in_order, reshape_of_reshape, transpose_of_transpose]
"""Rules that remove movements alone."""

ABSORB = [matmul_of_transposed, matmul_of_weight, matmul_of_expanded]
"""Rules by which a matrix product takes a movement of its operands in."""
