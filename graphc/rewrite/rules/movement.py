"""Rules that remove and join movements of data."""

from __future__ import annotations

from graphc.ir.graph import Node, Value
from graphc.ops.base import Emit
from graphc.ops.collapse import MAX_RANK
from graphc.ops.conv import Conv
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand, Reshape, Slice, Transpose
from graphc.ops.norm import LayerNorm, RMSNorm
from graphc.rewrite.blocks import before_reshape, blocks, cut_axes, inverse
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.shapes import Dim, divisible, product

ARITHMETIC = ("Add", "Sub", "Mul", "Div")
ACTIVATIONS = (
    "Relu",
    "Gelu",
    "Silu",
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "HardSigmoid",
    "Clip",
    "LeakyRelu",
    "Elu",
    "Mish",
)


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


@rule("outer := Reshape(t := Transpose(inner := Reshape(x)))")
def transpose_between_reshapes(emit: Emit, x: Value, outer: Node, t: Node, inner: Node) -> Value | Refusal:
    """A transpose of merged or split axes is one of the axes as they were, where these move as blocks."""
    assert isinstance(t.op, Transpose)
    merged = inner.output.shape
    order = before_reshape(x.shape, merged, t.op.perm)
    if order is None:
        return Refusal("axes that were one come apart")
    if len(x.shape) > max(len(merged), MAX_RANK):
        return Refusal("there would be more than four axes to move")
    return emit(Reshape(outer.output.shape), emit(Transpose(order), x))


@rule("outer := Transpose(r := Reshape(inner := Transpose(x)))")
def reshape_between_transposes(emit: Emit, x: Value, outer: Node, r: Node, inner: Node) -> Value | Refusal:
    """Two transposes around a reshape of blocks are one behind it, or none."""
    assert isinstance(outer.op, Transpose)
    assert isinstance(inner.op, Transpose)
    shape = r.output.shape
    back = before_reshape(shape, inner.output.shape, inverse(inner.op.perm))
    if back is None:
        return Refusal("axes that were one come apart")
    forth = inverse(back)
    reshaped = emit(Reshape(tuple(shape[axis] for axis in back)), x)
    return emit(Transpose(tuple(forth[axis] for axis in outer.op.perm)), reshaped)


@rule("r := Reshape(t := Transpose(x))")
def split_of_transposed(emit: Site, x: Value, r: Node, t: Node) -> Value | Refusal:
    """Axes that are split behind a transpose are split before it where a convolution reads them: rows that become the pixels of
    an image are one with its channels last. Others would each copy what one copy gives them all."""
    assert isinstance(t.op, Transpose)
    shape = r.output.shape
    if not len(t.op.perm) < len(shape) <= MAX_RANK:
        return Refusal("it splits no axis, or there would be more than four axes to move")
    back = before_reshape(shape, t.output.shape, inverse(t.op.perm))
    if back is None:
        return Refusal("axes that were one come apart")
    if not any(isinstance(each.op, Conv) for each in emit.readers(r.output)):
        return Refusal("no convolution reads it")
    return emit(Transpose(inverse(back)), emit(Reshape(tuple(shape[axis] for axis in back)), x))


@rule("t := Transpose(r := Reshape(x))")
def transpose_of_merged(emit: Site, x: Value, t: Node, r: Node) -> Value | Refusal:
    """Axes that are merged before a transpose are merged behind it, as images become rows: they may have their channels last."""
    assert isinstance(t.op, Transpose)
    if not len(r.output.shape) < len(x.shape) <= MAX_RANK:
        return Refusal("it merges no axis, or there would be more than four axes to move")
    order = before_reshape(x.shape, r.output.shape, t.op.perm)
    if order is None:
        return Refusal("axes that were one come apart")
    if any(isinstance(each.op, MatMul) and not each.inputs[1].static for each in emit.readers(t.output)):
        return Refusal("a product of two that are computed reads it in either order")
    return emit(Reshape(t.output.shape), emit(Transpose(order), x))


@rule(*(f"f := {name}(m := {move}(x))" for name in ACTIVATIONS for move in ("Reshape", "Transpose")))
def activation_of_moved(emit: Site, x: Value, f: Node, m: Node) -> Value | Refusal:
    """A function of each number comes before numbers are moved, where a convolution makes them and can do it on its way out."""
    if not emit.alone(m.output) or not _is_of_convolution(x):
        return Refusal("it is not of what a convolution makes, and nothing else reads")
    return emit(m.op, emit(f.op, x))


def _is_of_convolution(x: Value) -> bool:
    while x.producer is not None and isinstance(x.producer.op, Reshape | Transpose):
        x = x.producer.inputs[0]
    return x.producer is not None and isinstance(x.producer.op, Conv)


@rule("outer := Reshape(part := Slice(x))")
def reshape_of_slice(emit: Emit, x: Value, outer: Node, part: Node) -> Value | Refusal:
    """A part of an axis that is then split is some of the pieces: a view, where reshaping a part would be a copy."""
    assert isinstance(part.op, Slice)
    if x.producer is None or x.producer.op.name in ("Transpose", "Slice", "Expand"):
        return Refusal("what is sliced may have to be copied itself")
    if len(outer.output.shape) > MAX_RANK:
        return Refusal("a part of more than four axes is a copy")
    cut = cut_axes(part)
    shape = outer.output.shape
    block = next((each for each in blocks(part.output.shape, shape) if each.before[-1:] == tuple(cut)), None)
    if block is None or any(x.shape[axis] != 1 for axis in block.before[:-1]) or part.op.steps[cut[0]] != 1:
        return Refusal("it is not a part of one axis, or that axis is merged with others")
    first, *rest = block.after
    inner = product(shape[axis] for axis in rest)
    start, size = part.op.starts[cut[0]], x.shape[cut[0]]
    if not isinstance(inner, int) or not divisible(start, inner) or not divisible(size, inner):
        return Refusal("the part is not made of whole pieces")
    whole = (*shape[:first], size // inner, *shape[first + 1 :])
    starts = tuple(start // inner if axis == first else 0 for axis in range(len(shape)))
    return emit(Slice(starts, shape, (1,) * len(shape)), emit(Reshape(whole), x))


@rule("outer := Slice(inner := Slice(x))")
def slice_of_slice(emit: Emit, x: Value, outer: Node, inner: Node) -> Value:
    """A part of a part is a part."""
    assert isinstance(outer.op, Slice)
    assert isinstance(inner.op, Slice)
    steps = tuple(a * b for a, b in zip(outer.op.steps, inner.op.steps, strict=True))
    starts = zip(inner.op.starts, outer.op.starts, inner.op.steps, strict=True)
    return emit(Slice(tuple(first + then * step for first, then, step in starts), outer.op.sizes, steps), x)


@rule("part := Slice(x)")
def slice_of_concat(emit: Emit, x: Value, part: Node) -> Value | Refusal:
    """A part of one of the tensors that were joined needs no others."""
    assert isinstance(part.op, Slice)
    if x.producer is None or not isinstance(x.producer.op, Concat):
        return Refusal("it is not a part of a concatenation")
    axis = x.producer.op.axis
    first, count, step = part.op.starts[axis], part.op.sizes[axis], part.op.steps[axis]
    if not isinstance(first, int) or not isinstance(count, int) or count < 1 or step < 1:
        return Refusal("where the part lies is not known")
    begin: Dim = 0
    for joined in x.producer.inputs:
        size = joined.shape[axis]
        if not isinstance(begin, int) or not isinstance(size, int):
            break
        if begin <= first and first + (count - 1) * step < begin + size:
            starts = (*part.op.starts[:axis], first - begin, *part.op.starts[axis + 1 :])
            return emit(Slice(starts, part.op.sizes, part.op.steps), joined)
        begin += size
    return Refusal("it is a part of several of them")


@rule("s := Add(a := Transpose(x), b := Transpose(y))", "s := Mul(a := Transpose(x), b := Transpose(y))")
def binary_of_transposed(emit: Site, x: Value, y: Value, s: Node, a: Node, b: Node) -> Value | Refusal:
    """What is done to two tensors in another order can be done before."""
    if a.op != b.op or x.shape != y.shape:
        return Refusal("the orders or the shapes differ")
    if not emit.alone(s.output):
        return Refusal("each of its readers would copy it")
    return emit(a.op, emit(s.op, x, y))


@rule(
    "outer := Transpose(s := Add(inner := Transpose(x), y))", "outer := Transpose(s := Mul(inner := Transpose(x), y))"
)
def binary_between_transposes(emit: Site, x: Value, y: Value, s: Node, outer: Node, inner: Node) -> Value | Refusal:
    """A transpose that is undone after a sum is left out; the other operand is moved instead, which the sum can read."""
    assert isinstance(outer.op, Transpose)
    assert isinstance(inner.op, Transpose)
    if outer.op.perm != inverse(inner.op.perm):
        return Refusal("the second does not undo the first")
    if y.shape != s.output.shape or x.type != outer.output.type:
        return Refusal("the operands broadcast")
    if not emit.alone(s.output):
        return Refusal("something else reads the sum")
    return emit(s.op, x, emit(outer.op, y))


@rule("n := RMSNorm(t := Transpose(x), *scale)", "n := LayerNorm(t := Transpose(x), *scale, *bias)")
def norm_of_transposed(emit: Emit, x: Value, n: Node, t: Node, **parameters: Value) -> Value | Refusal:
    """Rows that stay together are normalized where they lie, and then moved."""
    assert isinstance(n.op, RMSNorm | LayerNorm)
    assert isinstance(t.op, Transpose)
    rank, first = len(x.shape), n.op.axis
    if t.op.perm[first:] != tuple(range(first, rank)):
        return Refusal("the normalized axes move")
    if any(size != 1 for each in n.inputs[1:] for size in each.shape[: first - rank]):
        return Refusal("the scale or bias is not along the normalized axes alone")
    return emit(t.op, emit(n.op, x, *n.inputs[1:]))


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
    transposed = emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), b)
    return emit(MatMul(transpose_a=m.op.transpose_a, transpose_b=True), a, transposed)


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


@rule(*(f"f := {name}({operands})" for name in ARITHMETIC for operands in ("e := Expand(x), y", "y, e := Expand(x)")))
def binary_of_expanded(emit: Emit, x: Value, y: Value, f: Node, e: Node) -> Value | Refusal:
    """A function of two tensors broadcasts them by itself."""
    operands = [x if each is e.output else each for each in f.inputs]
    if f.op.infer(*(each.type for each in operands))[0] != f.output.type:
        return Refusal("the other operand is smaller than the result")
    return emit(f.op, *operands)


RULES = {
    "cancel": [
        same,
        transpose_in_order,
        reshape_of_reshape,
        transpose_of_transpose,
        transpose_between_reshapes,
        reshape_between_transposes,
        slice_of_slice,
        slice_of_concat,
        binary_of_expanded,
    ],
    "sink": [
        split_of_transposed,
        transpose_of_merged,
        activation_of_moved,
        reshape_of_slice,
        binary_of_transposed,
        binary_between_transposes,
        norm_of_transposed,
    ],
    "absorb": [matmul_of_transposed, matmul_of_weight, matmul_of_expanded],
}
