"""Raising attention, in the spellings of the exporters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphc.ir.graph import Node, Value
from graphc.ir.numbers import read_numbers, sources
from graphc.ops.attention import Attention
from graphc.ops.base import Emit, broadcast_shapes
from graphc.ops.matmul import MatMul, swap
from graphc.ops.movement import Expand, Reshape, Transpose
from graphc.ops.pointwise import Binary, Where
from graphc.ops.reduce import Reduce
from graphc.ops.softmax import Softmax
from graphc.rewrite.engine import Refusal, Site, rule
from graphc.rewrite.rules.masks import everywhere
from graphc.shapes import Dim, product

EXCLUDES = -1e30
"""A score of at most this, or one that this is added to, has no weight beside any other."""

MOST_JOINED = 16 << 20
"""Bytes of several masks that become one, at most; more stay apart. Windows of an image may have a mask each, and heads too."""

MOST_APART = 4
"""Masks that stay apart."""


@dataclass(frozen=True)
class Scores:
    """What a softmax is taken of: the matrix product, times a number, and one for each matrix, and the masks that are added."""

    product: Node
    scale: float = 1.0
    factors: tuple[Value, ...] = ()
    masks: tuple[Value, ...] = ()


@rule("product := MatMul(s := Softmax(scores), v)", "product := MatMul(Reshape(s := Softmax(scores)), v)")
def attention(emit: Emit, scores: Value, v: Value, s: Node, product: Node) -> Value | Refusal:
    """softmax(q @ k^T * scale + mask) @ v, whether the scale is on the scores, on q, on k, or split among them.

    A mask is added, or chooses numbers that have no weight, and may broadcast. The heads may be merged with the batch. Each
    may have a scale of its own.
    """
    found = _attention(emit, scores, v, s, product)
    return found if isinstance(found, Refusal) else found[0]


@rule(
    "product := MatMul(Where(IsNaN(s := Softmax(scores)), 0, s), v)",
    "product := MatMul(Reshape(Where(IsNaN(s := Softmax(scores)), 0, s)), v)",
)
def guarded_attention(emit: Emit, scores: Value, v: Value, s: Node, product: Node) -> Value | Refusal:
    """Attention whose result is 0 where a mask excludes a whole row: such a row is found by its mask alone."""
    found = _attention(emit, scores, v, s, product)
    if isinstance(found, Refusal):
        return found
    result, masks = found
    if len(masks) != 1 or len(product.output.shape) != 4:
        return Refusal("there is not one mask, or the heads are merged with the batch")
    (mask,) = masks
    highest = emit(Reduce("max", (len(mask.shape) - 1,), True), mask)
    empty = emit(Binary("Equal"), highest, emit.constant(-np.inf, like=mask))
    return emit(Where(), empty, emit.constant(0, like=result), result)


@rule("product := MatMul(Where(empty, 0, s := Softmax(scores)), v)")
def attention_of_some_rows(
    emit: Emit, scores: Value, v: Value, s: Node, product: Node, empty: Value
) -> Value | Refusal:
    """Attention whose result is 0 in rows that were found beforehand, as the body of ONNX's Attention has it."""
    found = _attention(emit, scores, v, s, product)
    if isinstance(found, Refusal):
        return found
    if empty.shape[-1:] != (1,) or len(empty.shape) != len(product.output.shape):
        return Refusal("what becomes 0 is not whole rows")
    return emit(Where(), empty, emit.constant(0, like=found[0]), found[0])


@rule("a := Attention(q, rk := Reshape(Expand(ik := Reshape(k))), rv := Reshape(Expand(iv := Reshape(v))), *mask)")
def grouped_heads(
    emit: Emit, q: Value, k: Value, v: Value, a: Node, rk: Node, ik: Node, rv: Node, iv: Node, mask: Value | None = None
) -> Value | Refusal:
    """Heads of k and v that are repeated, each for adjacent heads of q, need not be."""
    for value, inner, outer in ((k, ik, rk), (v, iv, rv)):
        batch, heads, *rest = value.shape if len(value.shape) == 4 else (0, 0)
        if inner.output.shape != (batch, heads, 1, *rest) or outer.output.shape != (
            batch,
            outer.output.shape[1],
            *rest,
        ):
            return Refusal("what is repeated is not each head")
    if k.shape[1] != v.shape[1]:
        return Refusal("k and v have different heads")
    return emit(a.op, q, k, v, *([] if mask is None else [mask]))


@rule("a := Attention(q, k, t := Transpose(heads := Reshape(m := MatMul(x, w))), *mask)")
def values_as_columns(
    emit: Site,
    q: Value,
    k: Value,
    x: Value,
    w: Value,
    a: Node,
    t: Node,
    heads: Node,
    m: Node,
    mask: Value | None = None,
) -> Value | Refusal:
    """The product that reads the values wants their columns as rows: so a product with the operands exchanged makes them."""
    assert isinstance(t.op, Transpose)
    assert isinstance(m.op, MatMul)
    batch, rows, *matrix = heads.output.shape
    if not m.op.transpose_b or m.op.transpose_a or not w.static or len(w.shape) != 2 or not emit.alone(m.output):
        return Refusal("they are no product with a constant, or something else reads it")
    if t.op.perm != (0, 2, 1, 3) or batch != 1 or x.shape != (*[1] * (len(x.shape) - 2), rows, x.shape[-1]):
        return Refusal("they are in a batch, or in another order")
    if any(each.origin is not None and each.origin.narrow for each in sources(w)):
        return Refusal("the constant is to be stored in a narrower type, in which it cannot be the second operand")
    emit.source = m.source
    columns = emit(m.op, w, emit(Reshape(x.shape[-2:]), x))
    emit.source = a.source
    v = emit(Transpose((0, 1, 3, 2)), emit(Reshape((1, *matrix, rows)), columns))
    return emit(a.op, q, k, v, *([] if mask is None else [mask]))


@rule("a := Attention(q, k, v, mask)")
def mask_of_nothing(emit: Emit, q: Value, k: Value, v: Value, mask: Value, a: Node) -> Value | Refusal:
    """Attention needs no mask that adds 0 to all scores."""
    number = everywhere(mask)
    if number is None or number != 0:
        return Refusal("the mask is not known to be 0 everywhere")
    return emit(a.op, q, k, v)


@rule("t := Transpose(w := Where(rows, number, x))")
def transpose_of_some_rows(emit: Site, rows: Value, number: Value, x: Value, t: Node, w: Node) -> Value | Refusal:
    """Rows are replaced by a number behind a transpose, where that costs nothing: it is a part of attention."""
    assert isinstance(t.op, Transpose)
    if x.producer is None or x.producer.op.name not in ("Attention", "Transpose") or not emit.alone(w.output):
        return Refusal("what is transposed is no result of attention, or something else reads it")
    if number.type.size != 1 or rows.shape[-1:] != (1,) or len(rows.shape) != len(x.shape) or x.type != w.output.type:
        return Refusal("what is replaced are not whole rows, or it is not by one number")
    return emit(Where(), emit(t.op, rows), number, emit(t.op, x))


def _attention(emit: Emit, scores: Value, v: Value, s: Node, product: Node) -> tuple[Value, list[Value]] | Refusal:
    """The product by an `Attention`, and its masks."""
    assert isinstance(s.op, Softmax)
    assert isinstance(product.op, MatMul)
    rank, shape = len(scores.shape), scores.shape
    if rank not in (3, 4) or s.op.axis != rank - 1 or product.op.transpose_a or product.op.transpose_b:
        return Refusal("it is not a softmax along the rows of a product of matrices")
    if product.inputs[0].shape[-2:] != shape[-2:]:
        return Refusal("more than batch and heads are merged")
    found = _scores(emit, scores)
    if found is None:
        return Refusal("the scores are no matrix product")
    (q, q_scale), (k, k_scale) = (_scaled(value) for value in found.product.inputs)
    assert isinstance(found.product.op, MatMul)
    if not found.product.op.transpose_b:
        k = emit(swap(len(k.shape)), k)
    for factor in found.factors:
        q = emit(Binary("Mul"), q, factor)
    lead = shape[:-2] if rank == 4 else (1, *shape[:-2])
    operands = [_as_four(emit, value, lead) for value in (q, k, v)]
    if any(value is None for value in operands):
        return Refusal("the batch or the heads of q, k and v differ")
    apart = len(found.masks) > 1 and _joined_bytes(found.masks) > MOST_JOINED
    if apart and len(found.masks) > MOST_APART:
        return Refusal("there are many masks, which together would be a large constant")
    groups = [(mask,) for mask in found.masks] if apart else [found.masks] * bool(found.masks)
    masks = [_joined(emit, group, shape) for group in groups]
    scale = found.scale * q_scale * k_scale
    parts = [value for value in operands if value is not None]
    if parts[1].shape[:2] != parts[2].shape[:2]:
        return Refusal("k and v have different heads")
    return emit(Reshape(product.output.shape), emit(Attention(scale), *parts, *masks)), masks


def _scores(emit: Emit, value: Value) -> Scores | None:
    """The matrix product below scalings, masks and reshapes of its batch."""
    node = value.producer
    if node is None:
        return None
    if isinstance(node.op, MatMul):
        return None if node.op.transpose_a else Scores(node)
    if isinstance(node.op, Reshape) and node.inputs[0].shape[-2:] == value.shape[-2:]:
        inner = _scores(emit, node.inputs[0])
        plain = inner is None or not (inner.masks or inner.factors)
        return inner if plain or _is_same(node.inputs[0].shape, value.shape) else None
    if node.op.name == "Mul":
        for scores, factor in (node.inputs, node.inputs[::-1]):
            each = scores.shape == value.shape and factor.type.size != 1 and factor.shape[-2:] == (1, 1)
            inner = _scores(emit, scores) if each else None
            if inner is not None and not inner.masks and _is_same(inner.product.output.shape, value.shape):
                return replace(inner, factors=(*inner.factors, factor))
    if node.op.name == "Add":
        for summand, mask in (node.inputs, node.inputs[::-1]):
            inner = _scores(emit, summand) if summand.shape == value.shape else None
            if inner is not None:
                return replace(inner, masks=(*inner.masks, mask))
    if isinstance(node.op, Where):
        condition, yes, no = node.inputs
        return _chosen(emit, condition, yes, no)
    unscaled, scale = _scaled(value)
    inner = None if unscaled is value else _scores(emit, unscaled)
    return None if inner is None or inner.masks else replace(inner, scale=inner.scale * scale)


def _chosen(emit: Emit, condition: Value, yes: Value, no: Value) -> Scores | None:
    """Scores where a condition holds, or does not, and else a number that has no weight: the same is added."""
    shape = broadcast_shapes(condition.shape, yes.shape, no.shape)
    for summand, other in ((yes, no), (no, yes)):
        low = _number(other)
        inner = _scores(emit, summand) if low is not None and low <= EXCLUDES and summand.shape == shape else None
        if inner is not None:
            choices = (emit.constant(0, like=other) if value is summand else other for value in (yes, no))
            return replace(inner, masks=(*inner.masks, emit(Where(), condition, *choices)))
    return None


def _without_ones(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Sizes without those of 1 that lead."""
    return _without_ones(shape[1:]) if shape[:1] == (1,) else shape


def _is_same(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    """True if one shape is the other with more sizes of 1 before it."""
    return _without_ones(a) == _without_ones(b)


def _joined_bytes(masks: tuple[Value, ...]) -> int:
    """Bytes of the constant that masks are together; 0 if they are none."""
    size = product(broadcast_shapes(*(_without_ones(mask.shape) for mask in masks)))
    return size * masks[0].dtype.itemsize if isinstance(size, int) and all(mask.static for mask in masks) else 0


def _joined(emit: Emit, masks: tuple[Value, ...], shape: tuple[Dim, ...]) -> Value:
    """The sum of masks, with a number for each score of a matrix, and four axes."""
    long = [mask for mask in masks if len(mask.shape) > len(shape)]
    flat = {mask: emit(Reshape(mask.shape[len(mask.shape) - len(shape) :]), mask) for mask in long}
    mask, *others = (flat.get(mask, mask) for mask in masks)
    for other in others:
        mask = emit(Binary("Add"), mask, other)
    full = broadcast_shapes(mask.shape, (1, 1))[:-2] + shape[-2:]
    mask = mask if mask.shape == full else emit(Expand(full), mask)
    return mask if len(full) >= 4 else emit(Reshape((*[1] * (4 - len(full)), *full)), mask)


def _scaled(value: Value) -> tuple[Value, float]:
    """The value without the scalar factors that it is multiplied with or divided by, and their product."""
    scale = 1.0
    while value.producer is not None and value.producer.op.name in ("Mul", "Div"):
        left, right = value.producer.inputs
        if value.producer.op.name == "Mul" and _number(left) is not None:
            left, right = right, left
        number = _number(right)
        if not number or left.shape != value.shape:
            break
        scale = scale * number if value.producer.op.name == "Mul" else scale / number
        value = left
    return value, scale


def _number(value: Value) -> float | None:
    if not value.is_constant or value.type.size != 1:
        return None
    return float(read_numbers(value).reshape(-1)[0])


def _as_four(emit: Emit, value: Value, lead: tuple[Dim, ...]) -> Value | None:
    """[..., M, N] with the batch and heads as two axes; one head may serve all. None where they are others."""
    own, matrix = value.shape[:-2], value.shape[-2:]
    if own == (lead[0], 1):
        return value
    if own != lead and own not in ((lead[0] * lead[1],), lead[1:]):
        return None
    return emit(Reshape((*lead, *matrix)), value) if own != lead else value


RULES = {
    "raise": [attention, guarded_attention, attention_of_some_rows, grouped_heads],
    "masks": [mask_of_nothing],
    "sink": [transpose_of_some_rows],
    "absorb": [values_as_columns],
}
