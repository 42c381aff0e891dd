"""Kernels as models have them, of the sizes that a Stable Diffusion has: those of which the assembler is asked what they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from graphc.ir.types import F16, F32, TensorType
from graphc.kernels.gpu.instructions import INSTRUCTIONS
from graphc.kernels.gpu.schedule import parsed
from graphc.kernels.gpu.skeletons.attention import Attention, attention
from graphc.kernels.gpu.skeletons.attention_anywhere import attention_anywhere, tiling_for
from graphc.kernels.gpu.skeletons.attention_together import TogetherTiling, attention_together
from graphc.kernels.gpu.skeletons.contraction import Beside, Contraction, contraction, unchanged
from graphc.kernels.gpu.skeletons.groups import Grouped, group_factors
from graphc.kernels.gpu.skeletons.operands import Computed, Rows, Window, images, kernels, matrix
from graphc.kernels.gpu.skeletons.pointwise import pointwise
from graphc.kernels.gpu.skeletons.reduction import Stage, WrittenRows, reduction
from graphc.kernels.gpu.skeletons.row import row_product
from graphc.kernels.gpu.tile import TileKernel, index
from graphc.kernels.nest import Nest
from graphc.kernels.scalar import Kernel, Scalar, constant, make, variable
from graphc.shapes import Dim, symbol
from graphc.shapes import product as size_of
from graphc.targets.ggml.generate.arrays import ZERO
from graphc.targets.ggml.generate.blocks import TOGETHER, decoded
from graphc.targets.ggml.generate.generator import numbered
from graphc.targets.ggml.program.tensor import dense

K = Kernel(())
M, N, H, W = map(symbol, "mnhw")
COLUMNS, CHANNELS = 1280, 640
BIAS = Beside("bias", F32, COLUMNS, lambda batch, row, column: column, by_column=True)

SCHEDULES = {
    "large, float16": "m128n128k32 w64x32 s3 z1 m16n8k16_half",
    "middle, float16": "m64n64k32 w32x32 s3 z1 m16n8k16_half",
    "small, float16": "m64n32k32 w16x32 s3 z1 m16n8k16_half",
    "in parts, float16": "m64n64k32 w32x32 s3 z4 m16n8k16_half",
    "middle, float32": "m64n64k32 w32x32 s2 z1 fma_4x4",
    "small, float32": "m64n32k32 w16x32 s2 z1 fma_4x4",
}
"""Of products and convolutions, by what they are called."""
GROUPED = {
    "large": "m128n256k64 w16x256 s4 z1 wgmma_half",
    "middle": "m128n160k64 w16x160 s3 z1 wgmma_half",
    "high": "m256n64k64 w16x64 s3 z1 wgmma_half",
    "small": "m64n64k64 w16x64 s4 z1 wgmma_half",
    "in parts": "m128n128k64 w16x128 s4 z4 wgmma_half",
}
"""Those that four warps multiply together, on Hopper alone."""
THRICE = "m64n64k32 w32x32 s2 z1 m16n8k8_float_thrice"
"""Needs tensor cores for TF32."""


def kernels_of_several_warps() -> Iterator[tuple[str, TileKernel]]:
    """Those of `GROUPED`."""
    for name, schedule in GROUPED.items():
        yield f"product, {name}", contraction(product(matrix_of(schedule)), parsed(schedule))
        yield f"convolution 3 x 3, {name}", contraction(convolution(F16), parsed(schedule))
    schedule = GROUPED["large"]
    many = replace(product(matrix_of(schedule)), pair=matrix_of(schedule), tail=gate)
    yield "gated products, large", contraction(many, parsed(schedule))
    small = parsed(GROUPED["small"])
    yield "product, small, Q8_0 weights", contraction(product(blocks("Q8_0"), F16), small)
    for width in (40, 64, 128):
        yield f"attention of {width}", attention_together(heads(width, False))
    yield "attention of 64 by one group", attention_together(heads(64, False), TogetherTiling(1, 64, 4))
    yield "attention of 128 by three", attention_together(heads(128, False), TogetherTiling(3, 64, 1))
    yield "attention of 64, masked", attention_together(heads(64, True), TogetherTiling(2, 64, 1))


def standard_kernels(with_tf32: bool) -> Iterator[tuple[str, TileKernel]]:
    """Every kernel, by what it is called."""
    for name, schedule in SCHEDULES.items():
        yield f"product, {name}", contraction(product(matrix_of(schedule)), parsed(schedule))
        kernel = contraction(convolution(parsed(schedule).instruction.operand), parsed(schedule))
        yield f"convolution 3 x 3, {name}", kernel
        if name.startswith("large") or name == "middle, float32":
            kernel = contraction(product(matrix_of(schedule)), parsed(schedule), two_more(schedule))
            yield f"products of one operand, {name}", kernel
    if with_tf32:
        yield "product, middle, float32 of TF32", contraction(product(matrix_of(THRICE)), parsed(THRICE))
    for name in ("large, float16", "middle, float16"):
        schedule = SCHEDULES[name]
        many = replace(product(matrix_of(schedule)), pair=matrix_of(schedule), tail=gate)
        yield f"gated products, {name}", contraction(many, parsed(schedule))
    for type in ("Q8_0", "Q4_K"):
        for name in ("middle, float16", "middle, float32"):
            schedule = parsed(SCHEDULES[name])
            kernel = contraction(product(blocks(type), schedule.instruction.operand), schedule)
            yield f"product, {name}, {type} weights", kernel
    for name, b in (("float16", matrix(F16, COLUMNS, CHANNELS)), ("Q4_K", blocks("Q4_K"))):
        many = product(b)
        row = replace(many, rows=1, a=matrix(F32, 1, many.channels), result_size=COLUMNS)
        yield f"one row, {name} weights", row_product(row)
    for width in (40, 64, 128, 160):
        yield f"attention of {width}", attention(heads(width, False))
    yield "attention of 64, masked", attention(heads(64, True))
    some = ("m16n8k16_half", 512, 64), ("m16n8k16_half", 512, 99), ("fma_4x4", 160, 99), ("fma_4x4", 512, 99)
    for name, width, shared in some:
        what, one = heads(width, False, INSTRUCTIONS[name].operand), INSTRUCTIONS[name]
        tiling = tiling_for(width, width, one, shared << 10, 1024)
        assert tiling is not None
        yield f"attention of {width} by {name} in {shared} KiB", attention_anywhere(what, tiling, one)
    for columns in (320, 40960):
        yield f"mean and deviation of {columns}", statistics(columns, False)
        yield f"normalization of {columns}", statistics(columns, True)
        yield f"softmax of {columns}", powers(columns)
    yield "normalization, SiLU", normalized()
    for own in (10, 20):
        yield f"group normalization of {own} channels", group_normalization(own)
        yield f"factors of groups of {own} channels", factors_of_groups(own)
    yield "gate", gated()


def matrix_of(schedule: str) -> Rows:
    """The second operand of a product."""
    return matrix(parsed(schedule).instruction.operand, COLUMNS, CHANNELS)


def two_more(schedule: str) -> list[Contraction]:
    """Products of the same operand as `product`'s, one with its tail and one with none."""
    same = product(matrix_of(schedule))
    return [replace(same, beside=(replace(BIAS, name="other"),)), replace(same, beside=(), tail=unchanged)]


def blocks(type: str) -> Computed:
    """The second operand of a product, in blocks; of more channels, for whole blocks."""
    array = decoded(dense(type, (2 * CHANNELS, COLUMNS, 1, 1), 2, weight=0))

    def value(batch: Scalar, row: Scalar, tap: Scalar, channel: Scalar) -> Scalar:
        return numbered(array.element((channel, row, ZERO, ZERO)), array.buffers, 1)

    return Computed(tuple((each.dtype, size_of(each.ne)) for each in array.buffers), value, TOGETHER)


def product(b: Rows | Computed, dtype: np.dtype = F16) -> Contraction:
    """A product with a bias and SiLU."""
    channels = CHANNELS if isinstance(b, Rows) else 2 * CHANNELS
    return Contraction(
        "product", M, COLUMNS, channels, matrix(b.dtype if isinstance(b, Rows) else dtype, M, channels), b, F32, M * COLUMNS,
        lambda batch, row, column: row * COLUMNS + column, beside=(BIAS,), tail=lambda total, bias: silu(total + bias),
    )  # fmt: skip


def gate(total: Scalar, other: Scalar, bias: Scalar) -> Scalar:
    """One sum by SiLU of another with a bias."""
    return total * silu(other + bias)


def silu(x: Scalar) -> Scalar:
    """x times its sigmoid."""
    return K.call("({0} / (1 + exp{f}(-{0})))", x)


def convolution(dtype: np.dtype) -> Contraction:
    """3 x 3 with a pad, a bias, and a number for each channel and image."""
    windows = Window(H, 3, H, pad=1), Window(W, 3, W, pad=1)
    rows: Dim = N * H * W
    return Contraction(
        "convolution", rows, COLUMNS, CHANNELS, images(dtype, N, *windows, CHANNELS), kernels(dtype, COLUMNS, 9, CHANNELS), F32,
        rows * COLUMNS, lambda batch, row, column: row * COLUMNS + column, taps=9, beside=(BIAS,),
        tail=lambda total, bias: total + bias,
    )  # fmt: skip


def heads(width: int, masked: bool, dtype: np.dtype = F16) -> Attention:
    """Attention of several heads."""
    mask = (((F32, M * N),), lambda batch, row, key: make("element", F32, (row * N + key,), 3)) if masked else ()
    q, k, v = (matrix(dtype, each, width, H) for each in (M, N, N))
    size = H * M * width
    return Attention(
        "attention", H, M, N, width, width, width**-0.5, q, k, v, size, dtype,
        lambda batch, row, column: (batch * M + row) * width + column, *mask,
    )  # fmt: skip


def x_at(row: Scalar, column: Scalar, columns: int) -> Scalar:
    """An element of rows."""
    return make("element", F32, (row * columns + column,), 0)


def statistics(columns: int, written: bool) -> TileKernel:
    """A row's mean, and 1 divided by its deviation, or the row that is normalized by them, float16."""

    def square(row: Scalar, column: Scalar, mean: Scalar) -> Scalar:
        difference = x_at(row, column, columns) - mean
        return difference * difference

    rows = WrittenRows(F16, lambda row, column, mean, inverse: (x_at(row, column, columns) - mean) * inverse)
    return reduction("row_statistics", M, columns, [(F32, M * columns)], [
        Stage("sum", lambda row, column: x_at(row, column, columns), lambda total: total / columns),
        Stage("sum", square, lambda total: 1.0 / K.call("sqrt", total / columns + 1e-5)),
    ], rows if written else None)  # fmt: skip


def group_normalization(own: int, groups: int = 32) -> TileKernel:
    """Images [N, H, W, groups * own], each group of channels normalized by its mean and deviation, a scale and a shift for each
    channel; float16 of SiLU."""

    def place(row: Scalar, column: Scalar) -> Scalar:
        image, group = row // groups, row % groups
        return (image * (H * W) + column // own) * (groups * own) + group * own + column % own

    def x_at(row: Scalar, column: Scalar) -> Scalar:
        return make("element", F32, (place(row, column),), 0)

    def squared(row: Scalar, column: Scalar, mean: Scalar) -> Scalar:
        return (x_at(row, column) - mean) * (x_at(row, column) - mean)

    def value(row: Scalar, column: Scalar, mean: Scalar, inverse: Scalar) -> Scalar:
        scale, shift = (make("element", F32, (row % groups * own + column % own,), number) for number in (1, 2))
        return silu((x_at(row, column) - mean) * inverse * scale + shift)

    columns, channels = H * W * own, groups * own
    count = K.cast(index(columns), F32)
    return reduction("group_norm", N * groups, columns, [(F32, N * H * W * channels), (F32, channels), (F32, channels)], [
        Stage("sum", x_at, lambda total: total / count),
        Stage("sum", squared, lambda total: 1.0 / K.call("sqrt", total / count + 1e-5)),
    ], WrittenRows(F16, value, place), long=True)  # fmt: skip


def factors_of_groups(own: int, groups: int = 32) -> TileKernel:
    """What normalizes images of float16 [N, H, W, groups * own]."""
    channels = groups * own

    def value(image: Scalar, pixel: Scalar, channel: Scalar) -> Scalar:
        return K.cast(make("element", F16, ((image * (H * W) + pixel) * channels + channel,), 0), F32)

    scale, shift = (lambda image, channel, number=number: make("element", F32, (channel,), number) for number in (1, 2))
    what = Grouped("group_factors", N, H * W, channels, groups, channels, 1e-5, 4096, value, scale, shift)
    return group_factors(what, [(F16, N * H * W * channels), (F32, channels), (F32, channels)])


def powers(columns: int) -> TileKernel:
    """Softmax of rows."""

    def power(row: Scalar, column: Scalar, largest: Scalar) -> Scalar:
        return K.call("exp", x_at(row, column, columns) - largest)

    rows = WrittenRows(F32, lambda row, column, largest, total: power(row, column, largest) / total)
    return reduction("softmax", M, columns, [(F32, M * columns)], [
        Stage("max", lambda row, column: x_at(row, column, columns)),
        Stage("sum", power),
    ], rows)  # fmt: skip


def normalized() -> TileKernel:
    """What becomes of numbers, by their row's mean and deviation, a scale and a shift; and SiLU."""
    row, column = variable("i0", M), variable("i1", CHANNELS)
    place = row * CHANNELS + column

    def element(number: int, offset: Scalar) -> Scalar:
        return make("element", F32, (offset,), number)

    value = (element(0, place) - element(1, row)) * element(1, row + make("size", row.dtype, (), M))
    value = silu(value * element(2, column) + element(3, column))
    inputs = [TensorType(F32, (size,)) for size in (M * CHANNELS, 2 * M, CHANNELS, CHANNELS)]
    return pointwise("normalized", Nest((row, column), value, place), inputs, F32, M * CHANNELS)


def gated() -> TileKernel:
    """GELU of one half of each row, times the other."""
    row, column = variable("i0", M), variable("i1", COLUMNS)
    x, other = (make("element", F16, (row * (2 * COLUMNS) + column + begin,), 0) for begin in (0, COLUMNS))
    x, other = K.cast(x, F32), K.cast(other, F32)
    gelu = other * 0.5 * (K.call("erf", other * 0.7071067811865476) + 1)
    place = row * COLUMNS + column + constant(0, row.dtype)
    inputs = [TensorType(F16, (2 * M * COLUMNS,))]
    return pointwise("gate", Nest((row, column), K.cast(x * gelu, F16), place), inputs, F16, M * COLUMNS)
