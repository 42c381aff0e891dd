"""Sums of products by an index equation, as `numpy.einsum` understands it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphc.errors import ShapeError
from graphc.ir.graph import Value
from graphc.ir.types import F32, FLOATS, INTEGERS, TensorType
from graphc.ops.base import Emit, Op
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Expand, Pad, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary
from graphc.ops.precision import NARROW, in_float32
from graphc.ops.reduce import Reduce
from graphc.shapes import Dim, product

Labels = tuple[str, ...]
"""The names of axes: letters of the equation, and `0`, `1`, ... for those that an ellipsis stands for, from the right."""


@dataclass(frozen=True)
class Einsum(Op):
    """The sum, over the indices that the result lacks, of the product of the operands: `bij,bjk->bik`.

    Letters name axes, an ellipsis stands for any number of leading ones; axes of one name have one size, or 1. Without
    `->`, the result has the letters that occur once, in alphabetical order, after the ellipsis.
    """

    equation: str

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        """Numeric operands of one type -> the axes on the right."""
        dtype = inputs[0].dtype
        if any(x.dtype != dtype for x in inputs) or dtype not in FLOATS | INTEGERS:
            raise ShapeError(
                f"an einsum takes numeric tensors of one type, not {', '.join(str(x.dtype) for x in inputs)}"
            )
        operands, result = self.labels([x.rank for x in inputs])
        sizes = self.sizes(operands, [x.shape for x in inputs])
        return (TensorType(dtype, tuple(sizes[label] for label in result)),)

    def labels(self, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
        """The names of the axes of each operand and of the result. Raises ShapeError."""
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(terms) != len(ranks):
            raise ShapeError(f"the equation {self.equation!r} is for {len(terms)} operands, not {len(ranks)}")
        operands = [self.term(term, rank) for term, rank in zip(terms, ranks, strict=True)]
        hidden = max((sum(label.isdigit() for label in labels) for labels in operands), default=0)
        ellipsis = tuple(str(i) for i in reversed(range(hidden)))
        everything = [label for labels in operands for label in labels]
        if arrow:
            result = self.term(right, hidden + len(right.replace("...", "")) if "..." in right else len(right))
            if len(set(result)) != len(result) or not set(result) <= set(everything):
                raise ShapeError(
                    f"the result of the equation {self.equation!r} names an axis twice, or one that is not there"
                )
            return operands, result
        once = sorted(label for label in set(everything) if everything.count(label) == 1 and not label.isdigit())
        return operands, (*ellipsis, *once)

    def term(self, term: str, rank: int) -> Labels:
        """The names of the axes of one operand. Raises ShapeError."""
        before, dots, after = term.partition("...")
        letters = before + after
        hidden = rank - len(letters) if dots else 0
        if (letters and not (letters.isascii() and letters.isalpha())) or hidden < 0 or len(letters) + hidden != rank:
            raise ShapeError(
                f"{term!r} of the equation {self.equation!r} does not name the axes of a tensor of rank {rank}"
            )
        return (*before, *(str(i) for i in reversed(range(hidden))), *after)

    def sizes(self, operands: Sequence[Labels], shapes: Sequence[tuple[Dim, ...]]) -> dict[str, Dim]:
        """The size of each axis. Raises ShapeError if there are two."""
        found: dict[str, Dim] = {}
        for labels, shape in zip(operands, shapes, strict=True):
            own = dict(zip(labels, shape, strict=True))
            for label, size in zip(labels, shape, strict=True):
                if own[label] != size:
                    message = f"axis {label!r} of {self.equation!r} has sizes {size} and {own[label]} in one operand"
                    raise ShapeError(message, [(own[label], size)])
                if found.get(label, 1) == 1:
                    found[label] = size
                elif size not in (1, found[label]):
                    message = f"axis {label!r} of {self.equation!r} has sizes {found[label]} and {size}"
                    raise ShapeError(message, [(found[label], size)])
        return found

    def eval(self, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """NumPy's; half-precision types are summed in float32."""
        dtype = inputs[0].dtype
        arrays = [x.astype(F32) if dtype in NARROW else x for x in inputs]
        return (np.asarray(np.einsum(self.equation, *arrays, optimize=len(arrays) > 2), dtype),)

    def define(self, emit: Emit, *inputs: Value) -> tuple[Value, ...]:
        """Operand by operand: a matrix product over the axes that nothing needs afterwards."""
        if inputs[0].dtype in NARROW:
            return in_float32(emit, self, *inputs)
        operands, result = self.labels([len(x.shape) for x in inputs])
        value, labels = inputs[0], operands[0]
        for i, operand in enumerate(operands):
            needed = {label for other in (*operands[i + 1 :], result) for label in other}
            term, own = single(emit, inputs[i], operand)
            if i == 0:
                value, labels = summed(emit, term, own, needed)
            else:
                term, own = summed(emit, term, own, needed | set(labels))
                value, labels = contracted(emit, (value, labels), (term, own), needed)
        return (ordered(emit, value, labels, result),)


def single(emit: Emit, x: Value, labels: Labels) -> tuple[Value, Labels]:
    """A tensor whose axes have different names: of two axes with one name, the diagonal."""
    for label in labels:
        if labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = tuple(i for i in range(len(labels)) if i not in (first, second))
            x = emit(Transpose((*rest, first, second)), x)
            return single(emit, diagonal(emit, x), (*(labels[i] for i in rest), label))
    return x, labels


def diagonal(emit: Emit, x: Value) -> Value:
    """The diagonal of the last two axes, of n elements each: the first column of their elements in rows of n + 1."""
    *lead, size, _ = x.shape
    none = (0,) * len(lead)
    x = emit(Pad((*none, 0), (*none, size), "constant", 0), emit(Reshape((*lead, size * size)), x))
    x = emit(Reshape((*lead, size, size + 1)), x)
    x = emit(Slice((*none, 0, 0), (*lead, size, 1), (1,) * (len(lead) + 2)), x)
    return emit(Reshape((*lead, size)), x)


def summed(emit: Emit, x: Value, labels: Labels, needed: set[str]) -> tuple[Value, Labels]:
    """The sum over the axes that nothing needs."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in needed)
    kept = tuple(label for label in labels if label in needed)
    return (emit(Reduce("sum", axes, False), x), kept) if axes else (x, kept)


Labelled = tuple[Value, Labels]


def contracted(emit: Emit, a: Labelled, b: Labelled, needed: set[str]) -> Labelled:
    """The product of two tensors, summed over the axes that both have and nothing needs."""
    shared = [label for label in a[1] if label in b[1]]
    batch = tuple(label for label in shared if label in needed)
    inner = tuple(label for label in shared if label not in needed)
    rows, columns = (tuple(label for label in labels if label not in shared) for labels in (a[1], b[1]))
    sizes = dict(zip((*a[1], *b[1]), (*a[0].shape, *b[0].shape), strict=True))
    sizes.update({label: size for label, size in zip(a[1], a[0].shape, strict=True) if sizes[label] == 1})
    result = (*batch, *rows, *columns)
    shape = tuple(sizes[label] for label in result)
    x = ordered(emit, *a, (*batch, *rows, *inner))
    y = ordered(emit, *b, (*batch, *columns, *inner))
    if not inner:
        y = shaped(emit, y, (*y.shape[: len(batch)], *[1] * len(rows), *y.shape[len(batch) :]))
        x = shaped(emit, x, (*x.shape, *[1] * len(columns)))
        return emit(Binary("Mul"), x, y), result
    x, y = (whole(emit, value, (*batch, *free, *inner), sizes) for value, free in ((x, rows), (y, columns)))
    x, y = (matrices(emit, value, len(batch), len(free)) for value, free in ((x, rows), (y, columns)))
    return shaped(emit, emit(MatMul(transpose_b=True), x, y), shape), result


def whole(emit: Emit, x: Value, labels: Labels, sizes: dict[str, Dim]) -> Value:
    """A tensor with every axis of its full size: one of size 1 stands for any."""
    shape = tuple(sizes[label] for label in labels)
    return x if x.shape == shape else emit(Expand(shape), x)


def matrices(emit: Emit, x: Value, batch: int, free: int) -> Value:
    """[batch axes, free axes, inner axes] as matrices; at most two batch axes stay apart."""
    shape = x.shape
    lead = shape[:batch] if batch <= 2 else (product(shape[:batch]),)
    return shaped(emit, x, (*lead, product(shape[batch : batch + free]), product(shape[batch + free :])))


def shaped(emit: Emit, x: Value, shape: tuple[Dim, ...]) -> Value:
    """The same elements with other sizes."""
    return x if x.shape == shape else emit(Reshape(shape), x)


def ordered(emit: Emit, x: Value, labels: Labels, order: Labels) -> Value:
    """The axes in another order."""
    return x if labels == order else emit(Transpose(tuple(labels.index(label) for label in order)), x)
