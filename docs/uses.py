"""A typical use of every core operator, from which `generate.py` sees how the compiler computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc.ir.types import BOOL, F32, I8, I32, I64, INTEGERS
from graphc.ops.activations import Clip, Elu, Gelu, all_activations
from graphc.ops.attention import Attention
from graphc.ops.base import Op
from graphc.ops.blocks import DepthToSpace, SpaceToDepth, Tile
from graphc.ops.conv import Conv, ConvTranspose
from graphc.ops.coupling import PairwiseCoupling
from graphc.ops.einsum import Einsum
from graphc.ops.functions import BINARY, UNARY
from graphc.ops.indexing import Gather, GatherElements, GatherND, OneHot, RowNumbers
from graphc.ops.integers import ChannelsFirst, ChannelsLast, IntegerConv, IntegerMatMul
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand, Pad, Reshape, Slice, Transpose
from graphc.ops.narrow import BitCast, Decode, Encode
from graphc.ops.norm import LRN, BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LpNorm, RMSNorm
from graphc.ops.panels import DepthwiseConv, PackedConv
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.pool import AveragePool, MaxPool
from graphc.ops.quantized import ByteTable, Dequantize, Quantize, QuantizedBinary, Requantize, ScaledMatMul
from graphc.ops.random import Random
from graphc.ops.ranges import ByteScale, ByteZero, Extremes
from graphc.ops.recurrent import Recurrent
from graphc.ops.reduce import KINDS, Reduce
from graphc.ops.resize import Resize
from graphc.ops.rotary import RotaryEmbedding
from graphc.ops.sampled import Sampled
from graphc.ops.scatter import ScatterElements, ScatterND
from graphc.ops.selection import BestBoxes, NonZero
from graphc.ops.sequences import CumProd, CumSum, EyeLike, Range, Trilu
from graphc.ops.softmax import Hardmax, LogSoftmax, Softmax
from graphc.ops.sorting import ArgMax, ArgMin, ArgSort, ArgSortRows, TopK
from graphc.ops.trees import TreeEnsemble


@dataclass(frozen=True)
class Input:
    """An operand: of the dtype that the use is tried with unless it has its own; `weight` if its elements are known."""

    shape: tuple[int, ...]
    dtype: np.dtype | None = None
    weight: bool = False


@dataclass(frozen=True)
class Use:
    """An operator for a dtype, and its operands. `label` says which form of the operator this is."""

    op: Callable[[np.dtype], Op]
    inputs: tuple[Input, ...]
    label: str = ""


def x(*shape: int) -> Input:
    """An operand."""
    return Input(shape)


def weight(*shape: int) -> Input:
    """An operand whose elements are known when compiling."""
    return Input(shape, weight=True)


def use(op: Op, *inputs: Input, label: str = "") -> Use:
    """An operator whose attributes do not depend on the dtype."""
    return Use(lambda dtype: op, inputs, label)


def conv(spatial: int, group: int = 1) -> Op:
    """A convolution of small kernels with padding."""
    ones = (1,) * spatial
    return Conv(strides=ones, dilations=ones, pads_before=ones, pads_after=ones, group=group)


def integer_conv(group: int = 1) -> Op:
    """A convolution of small kernels of bytes with padding."""
    return IntegerConv((1, 1), (1, 1), (1, 1), (1, 1), group)


def window(cls: Callable[..., Op], spatial: int = 2, pad: int = 0) -> Op:
    """A pooling whose windows do not overlap."""
    two, one, pads = (2,) * spatial, (1,) * spatial, (pad,) * spatial
    more = {"count_include_pad": False} if cls is AveragePool else {}
    return cls(two, two, one, pads, pads, ceil_mode=False, **more)


def resize(mode: str, coordinate: str = "half_pixel") -> Op:
    """To twice the height and width."""
    return Resize((1, 4, 16, 16), (1.0, 1.0, 2.0, 2.0), mode, coordinate)


def bytes_(shape: tuple[int, ...], weights: tuple[int, ...]) -> tuple[Input, ...]:
    """Operands of a product of bytes: a tensor, weights, their zero points, no bias."""
    return x(*shape), Input(weights, I8, weight=True), x(), Input((), I8, weight=True), Input((), I32, weight=True)


def packed_conv() -> Op:
    """A convolution with kernels of 3 x 3."""
    return PackedConv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))


def packed_() -> tuple[Input, ...]:
    """An image, packed kernels, zero points, no bias, the kernels' sums."""
    return x(1, 8, 8, 32), *bytes_((), (1, 72, 32, 4))[1:], Input((32,), I32, weight=True)


INDICES = Input((2, 3), I64)
PAIRS = Input((3, 2), I64)
BOXES = Input((1, 8, 4), F32)

UNARY_USES = {name: [use(Unary(name), x(2, 8))] for name in sorted(UNARY)}

BINARY_USES = {
    name: [
        use(Binary(name), x(2, 8), x(2, 8)),
        *([use(Binary(name), x(2, 8), weight(), label="with a known number")] if row.left or row.right else []),
    ]
    for name, row in sorted(BINARY.items())
}

USES: dict[str, list[Use]] = {
    **{name: [use(op(), x(2, 8))] for name, op in all_activations().items()},
    "Where": [use(Where(), Input((2, 8), BOOL), x(2, 8), x(2, 8))],
    "Cast": [
        Use(lambda dtype: Cast(F32), (x(2, 8),), "to float32"),
        Use(lambda dtype: Cast(I64), (x(2, 8),), "to int64"),
    ],
    "BitCast": [Use(lambda dtype: BitCast(np.dtype(f"u{dtype.itemsize}")), (x(2, 8),), "to unsigned integers")],
    "Decode": [use(Decode(), x(2, 8))],
    "Encode": [
        Use(lambda dtype: Encode(dtype), (Input((2, 8), F32),), "of float32"),
        Use(lambda dtype: Encode(dtype), (Input((2, 8), I32),), "of int32"),
    ],
    "Clip": [Use(lambda dtype: Clip(*((0, 6) if dtype in INTEGERS else (0.0, 6.0))), (x(2, 8),))],
    "Elu": [use(Elu(1.0), x(2, 8)), use(Elu(0.5), x(2, 8), label="alpha is not 1")],
    "Gelu": [use(Gelu(), x(2, 8), label="exact"), use(Gelu("tanh"), x(2, 8), label="tanh")],
    "Reshape": [use(Reshape((4, 4)), x(2, 8))],
    "Transpose": [
        use(Transpose((1, 0)), x(2, 8)),
        use(Transpose((4, 0, 3, 1, 2)), x(2, 2, 2, 2, 2), label="five axes"),
    ],
    "Expand": [use(Expand((2, 8)), x(1, 8))],
    "Slice": [
        use(Slice((0, 1), (2, 4), (1, 1)), x(2, 8)),
        use(Slice((1, 7), (2, 4), (-1, -2)), x(2, 8), label="negative or inner steps"),
    ],
    "Concat": [use(Concat(1), x(2, 8), x(2, 4))],
    "Pad": [
        use(Pad((0, 1), (0, 2)), x(2, 8), label="by zeros"),
        use(Pad((0, 1), (0, 2), "reflect"), x(2, 8), label="reflected"),
    ],
    "MatMul": [
        use(MatMul(False, True), x(4, 8), x(4, 8), label="the second transposed"),
        use(MatMul(), x(4, 8), weight(8, 4), label="with a weight"),
        use(MatMul(), x(2, 4, 8), x(2, 8, 4), label="of two results"),
    ],
    "IntegerMatMul": [
        use(IntegerMatMul(), *bytes_((64, 200), (200, 32)), label="a long sum"),
        use(IntegerMatMul(), *bytes_((64, 50), (50, 32)), label="a short sum"),
    ],
    "IntegerConv": [
        use(integer_conv(), *bytes_((1, 32, 8, 8), (32, 32, 3, 3)), label="a long sum"),
        use(integer_conv(16), *bytes_((1, 16, 8, 8), (16, 1, 3, 3)), label="depthwise"),
    ],
    "PackedConv": [
        use(packed_conv(), *packed_(), label="int32"),
        use(packed_conv(), *packed_(), Input((), F32), label="scaled"),
        use(packed_conv(), *packed_(), Input((), F32), x(), label="bytes"),
    ],
    "DepthwiseConv": [
        use(DepthwiseConv((1, 1), (1, 1), (1, 1), (1, 1)), x(1, 8, 8, 32), *bytes_((), (3, 3, 32))[1:], label="int32")
    ],
    "ChannelsLast": [use(ChannelsLast(), x(1, 32, 8, 8))],
    "ChannelsFirst": [use(ChannelsFirst(), x(1, 8, 8, 32))],
    "ScaledMatMul": [
        use(ScaledMatMul(), x(4, 64), Input((8, 64), I8, weight=True), weight(8, 2)),
        use(ScaledMatMul(), x(4, 8), Input((8, 8), I8, weight=True), weight(8, 2), label="with blocks of other sizes"),
    ],
    "Dequantize": [use(Dequantize(), x(2, 8), Input((), F32), x())],
    "Quantize": [Use(lambda dtype: Quantize(), (Input((2, 8), F32), Input((), F32), x()))],
    "QuantizedBinary": [
        use(QuantizedBinary("Add"), x(2, 8), Input((), F32), x(), x(2, 8), Input((), F32), x(), Input((), F32), x())
    ],
    "Extremes": [use(Extremes(), Input((2, 8), F32))],
    "ByteScale": [use(ByteScale(), Input((64, 2), F32))],
    "ByteZero": [use(ByteZero(), Input((64, 2), F32))],
    "ByteTable": [use(ByteTable(), x(2, 8), Input((256,), I8, weight=True))],
    "Requantize": [Use(lambda dtype: Requantize(), (Input((2, 8), I32), Input((), F32), x()))],
    "MaxPool": [
        use(window(MaxPool), x(1, 4, 8, 8)),
        use(window(MaxPool, pad=1), x(1, 4, 8, 8), label="padded"),
        use(window(MaxPool, 3), x(1, 2, 4, 4, 4), label="3-D"),
    ],
    "AveragePool": [
        use(window(AveragePool), x(1, 4, 8, 8)),
        use(window(AveragePool, pad=1), x(1, 4, 8, 8), label="padded"),
    ],
    "Reduce": [use(Reduce(kind, (1,), True), x(2, 8), label=kind) for kind in KINDS],
    "Gather": [
        use(Gather(0), weight(8, 4), INDICES, label="rows of a table"),
        use(Gather(1), x(2, 8, 4), INDICES, label="of a result"),
    ],
    "GatherElements": [use(GatherElements(1), x(2, 8), INDICES)],
    "GatherND": [use(GatherND(0), x(4, 8), PAIRS)],
    "RowNumbers": [use(RowNumbers(4), INDICES)],
    "OneHot": [use(OneHot(1, 8), Input((2,), I64), x(2))],
    "Range": [Use(lambda dtype: Range(0, 8, 1, dtype), ())],
    "Random": [Use(lambda dtype: Random("normal", 1, 0.0, 1.0, dtype, (2, 8)), ())],
    "EyeLike": [Use(lambda dtype: EyeLike(0, dtype, (4, 4)), ())],
    "Trilu": [use(Trilu(True, 0), x(4, 4))],
    "CumSum": [use(CumSum(1, False, False), x(2, 8))],
    "CumProd": [use(CumProd(1, False, False), x(2, 8))],
    "ArgMax": [use(ArgMax(1, True, False), x(2, 8))],
    "ArgMin": [use(ArgMin(1, True, False), x(2, 8))],
    "TopK": [use(TopK(1, 3, True, True), x(2, 8))],
    "ArgSort": [use(ArgSort(1, 3, True), x(2, 8))],
    "ArgSortRows": [use(ArgSortRows(), x(8, 2))],
    "NonZero": [use(NonZero(5), x(2, 8))],
    "BestBoxes": [
        use(BestBoxes(3), BOXES, Input((1, 2, 8), F32), Input((1, 2, 8), I64), Input((), F32), Input((), F32))
    ],
    "PairwiseCoupling": [use(PairwiseCoupling(3), x(2, 3))],
    "TreeEnsemble": [
        use(
            TreeEnsemble(1),
            x(2, 8),
            weight(3),
            Input((3, 4), I32),
            Input((1,), I32),
            Input((4,), I32),
            Input((4,), I32),
            weight(4),
        )
    ],
    "Recurrent": [
        use(Recurrent("lstm"), x(9, 1, 1, 512), weight(1, 4, 129, 4, 32), Input((1,), I64), x(1, 1, 128), x(1, 1, 128))
    ],
    "LayerNorm": [use(LayerNorm(1, 1e-5), x(2, 8), weight(8), weight(8))],
    "RMSNorm": [use(RMSNorm(1, 1e-5), x(2, 8), weight(8))],
    "GroupNorm": [use(GroupNorm(2, 1e-5), x(1, 4, 8, 8), weight(4), weight(4))],
    "InstanceNorm": [use(InstanceNorm(1e-5), x(1, 4, 8, 8), weight(4), weight(4))],
    "BatchNorm": [use(BatchNorm(1e-5), x(1, 4, 8, 8), *[weight(4)] * 4)],
    "LpNorm": [use(LpNorm(1, 2, 1e-12), x(2, 8))],
    "LRN": [use(LRN(3, 1e-4, 0.75, 1.0), x(1, 4, 8, 8))],
    "Softmax": [use(Softmax(1), x(2, 8))],
    "LogSoftmax": [use(LogSoftmax(1), x(2, 8))],
    "Hardmax": [use(Hardmax(1), x(2, 8))],
    "Attention": [use(Attention(0.5), *[x(1, 2, 6, 4)] * 3)],
    "RotaryEmbedding": [
        use(RotaryEmbedding(False), x(1, 2, 6, 8), x(6, 8), x(6, 8), label="by halves"),
        use(RotaryEmbedding(True), x(1, 2, 6, 8), x(6, 4), x(6, 4), label="by neighbours, of a part"),
    ],
    "Tile": [use(Tile((2, 3)), x(2, 8))],
    "DepthToSpace": [use(DepthToSpace(2, "DCR"), x(1, 8, 4, 4))],
    "SpaceToDepth": [use(SpaceToDepth(2), x(1, 2, 8, 8))],
    "Conv": [
        use(conv(2), x(1, 4, 8, 8), weight(6, 4, 3, 3), weight(6), label="2-D"),
        use(conv(2, 4), x(1, 4, 8, 8), weight(4, 1, 3, 3), label="2-D, depthwise"),
        use(conv(2, 2), x(1, 4, 8, 8), weight(6, 2, 3, 3), label="2-D, groups"),
        use(conv(1), x(1, 4, 8), weight(6, 4, 3), label="1-D"),
        use(conv(3), x(1, 2, 4, 4, 4), weight(3, 2, 3, 3, 3), label="3-D"),
    ],
    "ConvTranspose": [use(ConvTranspose((2, 2), (1, 1), (0, 0), (0, 0), (0, 0), 1), x(1, 4, 4, 4), weight(4, 3, 2, 2))],
    "Einsum": [use(Einsum("bij,bjk->bik"), x(2, 3, 4), x(2, 4, 5))],
    "Resize": [
        use(resize("nearest", "asymmetric"), x(1, 4, 8, 8), label="nearest"),
        use(resize("linear"), x(1, 4, 8, 8), label="linear"),
        use(resize("cubic"), x(1, 4, 8, 8), label="cubic"),
    ],
    "Sampled": [use(Sampled(1, 2), x(2, 8), Input((2, 4), I32), weight(2, 4))],
    "ScatterElements": [use(ScatterElements(1, "none"), x(2, 8), INDICES, x(2, 3))],
    "ScatterND": [use(ScatterND("none"), x(4, 8), PAIRS, x(3))],
}
"""By the operator's class; those of the tables of functions are in `UNARY_USES` and `BINARY_USES`."""
