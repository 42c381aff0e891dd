"""Products and convolutions by the skeleton of contractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate
from typing import cast as typed

import numpy as np

from graphc.ir.types import F32
from graphc.kernels.gpu.candidates import Sizes
from graphc.kernels.gpu.skeletons.contraction import Beside, Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import Products, RowPlace, Rows
from graphc.kernels.gpu.skeletons.pointwise import steps_of_rows
from graphc.kernels.gpu.skeletons.row import row_product
from graphc.kernels.gpu.tile import index as scalar
from graphc.kernels.scalar import Scalar, variable
from graphc.shapes import Dim, divisible, product
from graphc.targets.ggml.generate.arrays import (
    CHANNELS_LAST,
    KERNELS_LAST,
    PLAIN,
    ZERO,
    Array,
    Buffer,
    Index,
    K,
    Order,
    computed,
    repeated,
    reshaped,
    unflat,
)
from graphc.targets.ggml.generate.blocks import TOGETHER
from graphc.targets.ggml.generate.elements import conv_sizes
from graphc.targets.ggml.generate.generator import (
    MOST_BUFFERS,
    NOWHERE,
    Generator,
    NotGenerated,
    Substitution,
    Tail,
    normal,
    tail_elements,
    unchanged,
    widened,
    widened_of,
)
from graphc.targets.ggml.generate.kernels.registry import kernels_of
from graphc.targets.ggml.generate.operands import (
    BATCH,
    CHANNELS,
    LINE,
    TAP,
    Operand,
    Term,
    alignment,
    operand_rows,
    terms_of_parts,
    weight_rows,
)
from graphc.targets.ggml.program.composites.activations import told
from graphc.targets.ggml.program.composites.composite import ActivationOrNone
from graphc.targets.ggml.program.rules import packed
from graphc.targets.ggml.program.tensor import Quad, Tensor

ResultPlace = Callable[[Scalar, Scalar, Scalar], Index]
"""The index of a result's element for a batch, a row and a column."""

RELU = "relu"
"""The activation that kernels of products take with their sums; they take up any other expression as what reads these."""

TOTAL, OTHER_TOTAL = (K.cast(variable(name, 2), F32) for name in ("total", "other_total"))
"""Any sum, and one of a second product."""


@kernels_of("graphc_linear")
def linear_product(
    g: Generator, result: Tensor, weight: Array, x: Array, activation: ActivationOrNone, *sums: Array
) -> Array:
    """`graphc_linear`."""
    k, m, b2, b3 = x.ne
    w2, w3 = weight.ne[2:]
    if w2 == w3 == 1:
        return linear_products(g, x, [(result, weight, activation, sums)])[0]

    def halves(batch: Scalar) -> tuple[Scalar, Scalar]:
        second, third, *_ = unflat(batch, (b2, b3, 1, 1))
        return second, third

    def x_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        return channel, line, *halves(batch)

    def w_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        second, third = halves(batch)
        return channel, line, shared_batch(second, w2, b2), shared_batch(third, w3, b3)

    def place(batch: Scalar, line: Scalar, column: Scalar) -> Index:
        return column, line, *halves(batch)

    a, b = operand_rows(g, x, k, x_place), weight_rows(g, weight, k, w_place)
    found = _Sums(g, result, place, activation, sums)
    return found.contracted("linear", m, weight.ne[1], [Term(a, b, k)], b2 * b3, PLAIN)


@kernels_of("ggml_mul_mat")
def matrix_product(g: Generator, result: Tensor, weight: Array, x: Array) -> Array:
    """`ggml_mul_mat`."""
    return linear_product(g, result, weight, x, False)


@kernels_of("graphc_scaled_linear")
def scaled_product(
    g: Generator,
    result: Tensor,
    weight: Array,
    x: Array,
    scales: Array,
    shifts: Array | None,
    activation: ActivationOrNone,
    *sums: Array,
) -> Array:
    """`graphc_scaled_linear`: the weight is brought to its numbers as blocks are, where it is read."""
    size = weight.ne[0] // scales.ne[0]
    if not divisible(size, TOGETHER):
        raise NotGenerated("blocks whose neighbours have several scales")

    def element(at: Index) -> Scalar:
        number, block = weight.element(at), (at[0] // size, at[1], ZERO, ZERO)
        return (number if shifts is None else number + shifts.element(block)) * scales.element(block)

    parts = [weight, scales] if shifts is None else [weight, scales, shifts]
    return linear_product(g, result, computed(weight.ne, parts, element, len(parts) - 1), x, activation, *sums)


def linear_products(
    g: Generator, x: Array, products: Sequence[tuple[Tensor, Array, ActivationOrNone, Sequence[Array]]]
) -> list[Array]:
    """Products of one operand with matrices: of each the result, the matrix, and what else `linear_product` takes. Several are
    one launch, at once; their results lie one behind the other."""
    k, m, b2, b3 = x.ne
    outer: Quad = (m, b2, b3, 1)

    def x_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        return channel, *unflat(line, outer)[:3]

    def w_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        return channel, line, ZERO, ZERO

    def place(batch: Scalar, line: Scalar, column: Scalar) -> Index:
        return column, *unflat(line, outer)[:3]

    lines, a = m * b2 * b3, operand_rows(g, x, k, x_place)
    if len(products) == 1:
        ((result, weight, activation, sums),) = products
        term = Term(a, weight_rows(g, weight, k, w_place), k)
        return [_Sums(g, result, place, activation, sums).contracted("linear", lines, weight.ne[1], [term], 1, PLAIN)]
    g.finish(a.buffer)
    every: list[Contraction] = []
    operands, read = [a.buffer], list[Buffer]()
    begins = [0, *accumulate(weight.ne[1] for _, weight, _, _ in products)]
    size = lines * begins[-1]
    for begin, (result, weight, activation, sums) in zip(begins, products, strict=False):
        b = weight_rows(g, weight, k, w_place, len(operands))
        own = _Multiplied(_Sums(g, result, place, activation, sums), "linear", lines, weight.ne[1], [Term(a, b, k)])
        own_place = partial(_behind, lines * begin, weight.ne[1])
        beside, what = own.contraction(unchanged, g.result_dtype, size, own_place, len(read))
        every.append(what)
        operands += b.buffers
        read += beside
    found = launched(g, every, operands, read, g.result_dtype, (size, 1, 1, 1), PLAIN)
    results = []
    for begin, (result, *_) in zip(begins, products, strict=False):
        offset = lines * begin * found.dtype.itemsize
        tensor = g.program.call("ggml_view_1d", (found.tensor, product(result.ne), offset), 1, g.scope, g.source)
        results.append(widened(Array.of(Buffer(tensor, found.dtype, result.ne))))
    return results


def _behind(begin: Dim, columns: Dim, batch: Scalar, line: Scalar, column: Scalar) -> Scalar:
    """The place of an element of a matrix that begins somewhere."""
    return scalar(begin) + line * columns + column


def launched(
    g: Generator, every: Sequence[Contraction], operands: Sequence[Buffer], read: Sequence[Buffer], dtype: np.dtype, ne: Quad,
    order: Order,
) -> Buffer:  # fmt: skip
    """A buffer that contractions with the same first operand fill, by one kernel for all of them; the buffers are in the order
    of its tensors."""
    what, *others = every
    assert isinstance(what.a, Rows)
    if what.rows == 1 and what.batch == 1 and what.taps == 1 and not what.more:
        return g.launched([row_product(what, g.form.lanes, others)], [*operands, *read], dtype, ne, order)
    widest = max(each.columns for each in every) if others else what.columns
    paired = what.pair is not None
    columns = sum(each.columns for each in every) * (1 + paired)
    depth = sum((each.channels * each.taps for each in what.terms), start=0)
    sizes = Sizes(what.a.dtype, what.rows, columns, depth, what.taps, what.batch, paired, len(what.terms))
    schedules = [g.form.schedule(widest * (1 + paired), what.a.dtype)]
    if g.scheduling is not None and isinstance(what.b, Rows):
        schedules = g.scheduling.schedules(sizes)
    schedules = [each for each in schedules if sizes.take(each)]
    if not schedules:
        raise NotGenerated("two products whose sums meet are too wide for a block")
    by = partial(contraction, what, others=others)
    return g.contracted(sizes, by, schedules, operands, read, dtype, ne, order)


def shared_batch(entry: Scalar, few: Dim, many: Dim) -> Scalar:
    """The batch of an operand that serves several batches of the result."""
    if few == many:
        return entry
    return ZERO if few == 1 else entry // (many // few)


@kernels_of("graphc_conv_2d")
def convolution(
    g: Generator, result: Tensor, kernel: Array, image: Array, bias: Array | None, s0: int, s1: int, p0: int, p1: int, d0: int,
    d1: int, direct: bool, activation: ActivationOrNone, *sums: Array,
) -> Array | None:  # fmt: skip
    """`graphc_conv_2d`, unless it is in groups."""
    if kernel.ne[2] != image.ne[2]:
        return None  # its columns are computed as they are multiplied
    width, height = conv_sizes(kernel.ne, image.ne, (s0, s1, p0, p1, d0, d1))
    along = _Axis(image.ne[0], kernel.ne[0], width, s0, p0, d0)
    below = _Axis(image.ne[1], kernel.ne[1], height, s1, p1, d1)
    added = (*(() if bias is None else (of_channels(bias, result.ne),)), *sums)
    if image.doubled is not None and kernel.ne[:2] == (3, 3) and (s0, s1, p0, p1, d0, d1) == (1,) * 6:
        kernels = g.of_doubled(kernel)
        if kernels is not None:
            return _convolved_doubled(g, result, kernels, image.doubled, activation, added)
    return _convolved(g, result, kernel, image, (along, below, ONE_PLANE), activation, added)


@kernels_of("graphc_conv_3d")
def convolution_of_volumes(
    g: Generator, result: Tensor, kernel: Array, volumes: Array, bias: Array | None, s0: int, s1: int, s2: int, p0: int, p1: int,
    p2: int, d0: int, d1: int, d2: int, channels: int, groups: int, activation: ActivationOrNone, *sums: Array,
) -> Array | None:  # fmt: skip
    """`graphc_conv_3d`, unless it is in groups: as a convolution of images whose planes lie one below the other."""
    if groups != 1:
        return None

    def as_images(ne: Quad, channels: Dim) -> Quad:
        return ne[0], ne[1] * ne[2], channels, ne[3] // channels

    settings = (s0, s1, s2), (p0, p1, p2), (d0, d1, d2)
    axes = [
        _Axis(size, taps, found, *each)
        for size, taps, found, *each in zip(volumes.ne, kernel.ne, result.ne, *settings, strict=False)
    ]
    ne = as_images(result.ne, kernel.ne[3] // channels)
    images = replace(result, ne=ne, nb=packed(result.type, ne).nb)
    if any(each.ne != result.ne for each in sums):
        raise NotGenerated("a sum that is repeated along volumes")
    added = () if bias is None else (of_channels(bias, ne),)
    image, matrices = (reshaped(each, as_images(each.ne, channels)) for each in (volumes, kernel))
    found = _convolved(
        g,
        images,
        matrices,
        image,
        (axes[0], axes[1], axes[2]),
        activation,
        (*added, *(reshaped(each, ne) for each in sums)),
    )
    return reshaped(found, result.ne)


@dataclass(frozen=True)
class _Axis:
    """An axis of a convolution: the sizes of the image, of the kernel and of the result, and how one goes over the other."""

    size: Dim
    taps: Dim
    result: Dim
    stride: int
    pad: int
    dilation: int

    def source(self, place: Scalar, tap: Scalar) -> Scalar:
        """Where the image is met."""
        return place * self.stride + tap * self.dilation - self.pad

    @property
    def may_miss(self) -> bool:
        """True if some of what is met may be beside the image."""
        return self.taps != 1 or self.pad != 0


ONE_PLANE = _Axis(1, 1, 1, 1, 0, 1)


def _convolved(
    g: Generator, result: Tensor, kernel: Array, image: Array, axes: tuple[_Axis, _Axis, _Axis], activation: ActivationOrNone,
    added: Sequence[Array],
) -> Array:  # fmt: skip
    """A convolution of images, of which each may be planes one below the other, as a product with what is met at each pixel."""
    channels, results = kernel.ne[2:]
    across, down, deep = axes
    pixels: Quad = (across.result, down.result, deep.result, image.ne[3])
    taps = [axis.taps for axis in axes]
    if not all(isinstance(each, int) for each in taps):
        raise NotGenerated("a kernel whose size is not known")
    of_taps: Quad = (taps[0], taps[1], taps[2], 1)

    def sources(line: Scalar, tap: Scalar) -> list[Scalar]:
        places = zip(axes, unflat(line, pixels), unflat(tap, of_taps), strict=False)
        return [axis.source(place, each) for axis, place, each in places]

    def image_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        x, y, z = sources(line, tap)
        return x, y if deep is ONE_PLANE else z * down.size + y, channel, unflat(line, pixels)[3]

    def within(batch: Scalar, line: Scalar, tap: Scalar) -> Scalar:
        met = [(axis, place) for axis, place in zip(axes, sources(line, tap), strict=True) if axis is not ONE_PLANE]
        inside = [(place >= 0).and_(place < scalar(axis.size)) for axis, place in met]
        return reduce(Scalar.and_, inside)

    def kernel_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        x, y, z, _ = unflat(tap, of_taps)
        return x, y if deep is ONE_PLANE else z * down.taps + y, channel, line

    def place(batch: Scalar, line: Scalar, column: Scalar) -> Index:
        x, y, z, number = unflat(line, pixels)
        return x, y if deep is ONE_PLANE else z * down.result + y, column, number

    inside = within if any(axis.may_miss for axis in axes) else None
    b = weight_rows(g, kernel, channels, kernel_place, order=KERNELS_LAST)
    count = product(taps)
    assert isinstance(count, int)
    parts = image.joined[1] if image.joined is not None and image.joined[0] == CHANNELS else ()
    terms = terms_of_parts(g, parts, b, count, image_place, inside)
    if not terms:
        a = operand_rows(g, image, channels, image_place, CHANNELS_LAST, inside)
        terms = [Term(a, b, channels, count)]
    found = _Sums(g, result, place, activation, added)
    return found.contracted("convolution", product(pixels), results, terms, 1, CHANNELS_LAST)


def _convolved_doubled(
    g: Generator, result: Tensor, kernels: Array, image: Array, activation: ActivationOrNone, added: Sequence[Array]
) -> Array:
    """A convolution of 3 x 3 of what an image is when doubled: each pixel becomes four, by a kernel of 2 x 2 for each. They
    multiply four ninths of what the one of 3 x 3 would."""
    width, height, channels, images = image.ne
    pixels: Quad = (width, height, 1, images)

    def corner(batch: Scalar, line: Scalar, tap: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        x, y, _, number = unflat(line, pixels)
        across, down, *_ = unflat(batch, (2, 2, 1, 1))
        right, below, *_ = unflat(tap, (2, 2, 1, 1))
        return x + across + right - 1, y + down + below - 1, number

    def image_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        x, y, number = corner(batch, line, tap)
        return x, y, channel, number

    def within(batch: Scalar, line: Scalar, tap: Scalar) -> Scalar:
        x, y, _ = corner(batch, line, tap)
        inside = [(place >= 0).and_(place < scalar(size)) for place, size in ((x, width), (y, height))]
        return inside[0].and_(inside[1])

    def kernel_place(batch: Scalar, line: Scalar, tap: Scalar, channel: Scalar) -> Index:
        x, y, *_ = unflat(tap, (2, 2, 1, 1))
        return x, y, channel, batch * result.ne[2] + line

    def place(batch: Scalar, line: Scalar, column: Scalar) -> Index:
        x, y, _, number = unflat(line, pixels)
        across, down, *_ = unflat(batch, (2, 2, 1, 1))
        return 2 * x + across, 2 * y + down, column, number

    a = operand_rows(g, image, channels, image_place, CHANNELS_LAST, within)
    b = weight_rows(g, kernels, channels, kernel_place, order=KERNELS_LAST)
    found = _Sums(g, result, place, activation, added)
    return found.contracted("doubled", product(pixels), result.ne[2], [Term(a, b, channels, 4)], 4, CHANNELS_LAST)


def of_channels(vector: Array, ne: Quad) -> Array:
    """A vector of channels as an image of one pixel, if it is not one already."""
    if vector.ne[0] == 1:
        return vector
    return computed(
        (1, 1, vector.ne[0], 1), [vector], lambda at: vector.element((at[2], ZERO, ZERO, ZERO)), 0, vector.dtype
    )


class _Sums:
    """What becomes of the sums of a product: where they go, and what is done with them on their way out."""

    def __init__(
        self, g: Generator, result: Tensor, place: ResultPlace, activation: ActivationOrNone, added: Sequence[Array]
    ) -> None:
        self.g, self.ne, self.place, known = g, result.ne, place, told(activation)
        if known is not None and known.name != RELU:
            raise NotGenerated(f"a product with {known.name}")
        self.relu = known is not None
        self.column = variable("column", result.ne[0] if result.ne[0] != 1 else 2)
        self.added = [self.readable(each) for each in added]

    def readable(self, array: Array) -> Array:
        """What is added, in memory unless it can be computed of what is read for each sum."""
        try:
            tail_elements(lambda at, total: total + repeated(array, at, self.ne), self.anywhere, TOTAL)
        except NotGenerated:
            return self.g.stored(array)
        return array if len(array.buffers) == 1 else self.g.stored(array)

    @property
    def anywhere(self) -> Index:
        """Any index of the result."""
        return self.place(BATCH, LINE, self.column)

    def own(self, at: Index, total: Scalar) -> Scalar:
        """What the product itself makes of a sum."""
        for each in self.added:
            total = total + repeated(each, at, self.ne)
        return total.maximum(0) if self.relu else total

    def contracted(self, name: str, lines: Dim, columns: Dim, terms: Sequence[Term], batch: Dim, order: Order) -> Array:
        """The result, in memory; what alone reads it becomes a part of the kernel."""
        g = self.g
        own = _Multiplied(self, name, lines, columns, terms, batch, order)
        g.finish(*own.operands)
        own.take_up_sums()
        g.finish(*(buffer for each in self.added for buffer in each.buffers))

        def launch(tail: Tail, target: Buffer) -> Buffer:
            read, what = own.contraction(tail, target.dtype, product(self.ne), own.offset)
            return launched(g, [what], own.operands, read, target.dtype, target.ne, target.order)

        return g.later(Buffer(NOWHERE, g.result_dtype, self.ne, order), launch, own, own.launched_with)

    def beside(self, number: int, element: Scalar) -> Beside:
        """What the tail reads, for any index of the result."""
        column, buffer = self.column, element.data
        assert isinstance(buffer, Buffer)
        steps = steps_of_rows(normal(element.args[0]), column)
        neighbours = 1 if steps is None else alignment(steps)

        def offset(batch: Scalar, line: Scalar, here: Scalar) -> Scalar:
            return normal(Substitution({BATCH: batch, LINE: line, column: here})(element.args[0]))

        by_column = not {BATCH, LINE} & element.free
        return Beside(f"beside_{number}", buffer.dtype, product(buffer.ne), offset, by_column, neighbours)


@dataclass(eq=False)
class _Multiplied:
    """A contraction, by what becomes of its sums and what they are of."""

    sums: _Sums
    name: str
    lines: Dim
    columns: Dim
    terms: Sequence[Term]
    batch: Dim = 1
    order: Order = PLAIN

    @property
    def operands(self) -> list[Buffer]:
        """The buffers that are multiplied, in the order of the kernel's tensors."""
        return [buffer for each in self.terms for buffer in (each.a.buffer, *each.b.buffers)]

    def take_up_sums(self) -> None:
        """Go on with the products whose sums are added and that nothing else reads: one kernel then computes both."""
        g = self.sums.g
        for added in list(self.sums.added):
            buffer = widened_of(added)
            other = g.unfinished[buffer].multiplied if buffer in g.unfinished else None
            if isinstance(other, _Multiplied) and self.goes_on_with(other):
                del g.unfinished[typed("Buffer", buffer)]
                self.terms = sorted([*other.terms, *self.terms], key=lambda each: -each.taps)
                self.sums.added = [*(each for each in self.sums.added if each is not added), *other.sums.added]

    def goes_on_with(self, other: _Multiplied) -> bool:
        """True if another has the same sums' places, and one kernel can have all that both read."""
        both = [*self.terms, *other.terms]
        added = [buffer for each in (self, other) for array in each.sums.added for buffer in array.buffers]
        read = {buffer.tensor for buffer in (*self.operands, *other.operands, *added)}
        sizes = [(each.lines, each.columns, each.batch, each.sums.ne) for each in (self, other)]
        places = [list(map(normal, each.sums.place(BATCH, LINE, self.sums.column))) for each in (self, other)]
        return (
            sizes[0] == sizes[1]
            and all(one is two for one, two in zip(*places, strict=True))
            and self.batch == 1
            and self.lines != 1
            and not other.sums.relu
            and all(isinstance(each.b, Operand) for each in both)
            and len(read) <= MOST_BUFFERS
        )

    def offset(self, batch: Scalar, line: Scalar, column: Scalar) -> Scalar:
        """The place of a result that lies alone."""
        if self.batch == 1 or self.order == PLAIN:
            first = line if self.batch == 1 else batch * self.lines + line
            return first * self.columns + column
        return normal(Buffer(NOWHERE, F32, self.sums.ne, self.order).offset(self.sums.place(batch, line, column)))

    def contraction(
        self,
        tail: Tail,
        dtype: np.dtype,
        size: Dim,
        offset: RowPlace,
        before: int = 0,
        second: _Multiplied | None = None,
    ) -> tuple[list[Buffer], Contraction]:
        """The contraction, perhaps with a second one, and what its tail reads, behind so many tensors that others read."""
        both = [self] if second is None else [self, second]
        totals = [TOTAL, OTHER_TOTAL][: len(both)]

        def whole(at: Index, *found: Scalar) -> Scalar:
            return tail(at, *(each.sums.own(at, total) for each, total in zip(both, found, strict=True)))

        value, elements = tail_elements(whole, self.sums.anywhere, *totals)

        def finished(*values: Scalar) -> Scalar:
            return Substitution(dict(zip([*totals, *elements], values, strict=True)))(value)

        beside = tuple(self.sums.beside(before + number, each) for number, each in enumerate(elements))
        first, *more = (Products(each.a.rows, each.b.rows, each.channels, each.taps) for each in self.terms)
        what = Contraction(
            self.name, self.lines, self.columns, first.channels, first.a, first.b, dtype, size, offset, first.taps,
            self.batch, beside, finished, None if second is None else second.terms[0].b.rows, tuple(more),
        )  # fmt: skip
        return [typed("Buffer", each.data) for each in elements], what

    def launched_with(self, other: object, tail: Tail, target: Buffer) -> Buffer:
        """The kernel of two products of one operand, whose sums meet in its tail. Raises NotGenerated."""
        if not isinstance(other, _Multiplied) or not self.is_like(other):
            raise NotGenerated("what is multiplied is not of one operand")
        read, what = self.contraction(tail, target.dtype, product(self.sums.ne), self.offset, second=other)
        operands = [*self.operands, *other.terms[0].b.buffers]
        return launched(self.sums.g, [what], operands, read, target.dtype, target.ne, target.order)

    def is_like(self, other: _Multiplied) -> bool:
        """True if another has the same first operand and sizes, and a block can have both."""
        if len(self.terms) > 1 or len(other.terms) > 1:
            return False
        one, two = self.terms[0], other.terms[0]
        if not isinstance(one.b, Operand) or not isinstance(two.b, Operand) or one.a.buffer is not two.a.buffer:
            return False
        places = [normal(each.a.rows.offset(BATCH, LINE, TAP)) for each in (one, two)]
        sizes = [(each.lines, each.columns, each.batch, each.sums.ne) for each in (self, other)]
        sums = [(each.channels, each.taps) for each in (one, two)]
        alike = places[0] is places[1] and sizes[0] == sizes[1] and sums[0] == sums[1]
        return alike and one.taps == 1 and self.lines != 1
