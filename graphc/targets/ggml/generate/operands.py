"""What products multiply: arrays as rows of channels, in memory or computed as they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphc.kernels.gpu.skeletons.operands import Computed, RowPlace, Rows
from graphc.kernels.gpu.tile import index as scalar
from graphc.kernels.linear import linear
from graphc.kernels.scalar import Scalar, variable
from graphc.shapes import Dim, divisible, product
from graphc.targets.ggml.generate.arrays import PLAIN, ZERO, Array, Buffer, Index, Order, buffers_of
from graphc.targets.ggml.generate.blocks import TOGETHER, is_in_blocks
from graphc.targets.ggml.generate.generator import Generator, NotGenerated, normal, numbered

OperandPlace = Callable[[Scalar, Scalar, Scalar, Scalar], Index]
"""The index of an operand's element for a batch, a row, a tap and a channel."""

BATCH, LINE, TAP = (variable(name, 2**31 - 1) for name in ("batch", "line", "tap"))
"""Any batch, row and tap."""

CHANNELS = 2
"""The axis of an image's channels."""


class Operand:
    """An operand in memory, and its rows."""

    def __init__(self, buffer: Buffer, rows: Rows) -> None:
        self.buffer, self.rows, self.buffers = buffer, rows, [buffer]

    def behind(self, begin: Dim) -> Operand:
        """The same from a channel on."""
        rows = self.rows

        def offset(batch: Scalar, line: Scalar, tap: Scalar) -> Scalar:
            return rows.offset(batch, line, tap) + scalar(begin)

        moved = replace(rows, offset=offset, aligned=min(rows.aligned, alignment([begin])), steps=(*rows.steps, begin))
        return Operand(self.buffer, moved if begin != 0 else rows)


class ComputedOperand:
    """An operand that is computed as it is read, of buffers."""

    def __init__(self, buffers: Sequence[Buffer], rows: Computed) -> None:
        self.buffers, self.rows = buffers, rows


@dataclass(frozen=True, eq=False)
class Term:
    """What is multiplied, and over how many channels and taps."""

    a: Operand
    b: Operand | ComputedOperand
    channels: Dim
    taps: int = 1


def weight_rows(
    g: Generator, weight: Array, channels: Dim, place: OperandPlace, first: int = 1, order: Order | None = None
) -> Operand | ComputedOperand:
    """The second operand of a product: blocks are read where they lie, from the kernel's tensor `first` on."""
    if not is_in_blocks(weight) or channels == 0:
        return operand_rows(g, weight, channels, place, order)
    buffers = weight.buffers

    def value(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Scalar:
        return numbered(weight.element(place(batch, line, tap, channel)), buffers, first)

    types = tuple((each.dtype, product(each.ne)) for each in buffers)
    return ComputedOperand(buffers, Computed(types, value, TOGETHER if divisible(channels, TOGETHER) else 1))


def operand_rows(
    g: Generator, array: Array, channels: Dim, place: OperandPlace, order: Order | None = None, where: RowPlace | None = None
) -> Operand:  # fmt: skip
    """An array as rows of channels; it is put into memory, in an order, if it does not lie so."""
    array = g.operand(array, order or PLAIN)
    found = rows_in_memory(array, channels, place, where)
    found = found or rows_in_memory(g.stored(array, order or PLAIN), channels, place, where)
    if found is None:
        raise NotGenerated("an operand whose channels do not lie side by side")
    return found


def rows_in_memory(array: Array, channels: Dim, place: OperandPlace, where: RowPlace | None = None) -> Operand | None:
    """An array as rows of channels; None if it does not lie so."""
    channel = ZERO if channels == 1 else variable("channel", channels)
    found = _rows(array, place(BATCH, LINE, TAP, channel), channel)
    if found is None:
        return None
    buffer, steps = found

    def offset(batch: Scalar, line: Scalar, tap: Scalar) -> Scalar:
        form = linear(normal(array.element(place(batch, line, tap, channel)).args[0]))
        return form.plus(linear(channel), -1).scalar() if channel in form.terms else form.scalar()

    return Operand(buffer, Rows(buffer.dtype, product(buffer.ne), offset, where, alignment(steps), tuple(steps)))


def _rows(array: Array, at: Index, channel: Scalar) -> tuple[Buffer, list[Dim]] | None:
    """The buffer in which channels lie side by side, and what the beginnings of their rows are sums of multiples of."""
    value = array.element(at)
    if value.kind != "element" or buffers_of(*value.args):
        return None
    form = linear(normal(value.args[0]))
    others = {atom: factor for atom, factor in form.terms.items() if atom is not channel}
    if channel is not ZERO and (form.terms.get(channel) != 1 or any(channel in atom.free for atom in others)):
        return None
    assert isinstance(value.data, Buffer)
    return value.data, [*others.values(), form.constant]


def alignment(steps: Sequence[Dim]) -> int:
    """The largest power of two, 16 or less, that divides all steps."""
    return next(width for width in (16, 8, 4, 2, 1) if all(divisible(step, width) for step in steps))


def terms_of_parts(
    g: Generator, parts: Sequence[Array], b: Operand | ComputedOperand, taps: int, place: OperandPlace, inside: RowPlace | None
) -> list[Term]:  # fmt: skip
    """What a convolution is the sum of that reads images side by side along their channels, where they lie; none if they do not
    lie so, or if the kernel is computed as it is read."""
    found: list[Term] = []
    begin: Dim = 0
    for part in parts:
        a = rows_in_memory(g.narrowed(part), part.ne[CHANNELS], place, inside)
        if a is None or not isinstance(b, Operand):
            return []
        found.append(Term(a, b.behind(begin), part.ne[CHANNELS], taps))
        begin = begin + part.ne[CHANNELS]
    return found
