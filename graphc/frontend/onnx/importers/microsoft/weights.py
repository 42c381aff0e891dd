"""Weights of a few bits: several to a byte, the lowest bits first, with a scale and a zero point for each block of a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.microsoft.activations import biased
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, fixed_size, refuse_unless
from graphc.frontend.onnx.table import MICROSOFT, onnx_op
from graphc.ir import Value
from graphc.ir.types import F32, I64, U8
from graphc.ops.activations import Gelu
from graphc.ops.base import Op, normalize_axis
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Expand
from graphc.ops.norm import RMSNorm
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.quantized import ScaledMatMul, around_zero
from graphc.shapes import Dim, ceil_div

BITS = (2, 4, 8)

NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
FP4 = (0.0, 5.208333333e-03, 0.6666667, 1.0, 0.3333333, 0.5, 0.1666667, 0.25)
"""Levels of the types of bitsandbytes (arXiv 2305.14314 has the first); the second one's other eight are these, negated."""


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_few_bits(node: OnnxNode, emit: SizeEmit) -> Value:
    """[..., K] by a matrix [N, K] of 2, 4 or 8 bits, swapped, with a bias. Zero points are bits too, or numbers."""
    refuse_unless(node.optional(4) is None, "columns in another order (g_idx) are not supported")
    refuse_unless(not node.int("weight_prepacked", 0), "weights in the order of a device are not supported")
    weight = Packed(node.input(1), node.input(2), node.optional(3), node.optional(5))
    return product_of_few_bits(node, emit, node.input(0), weight, node.int("N"))


@dataclass(frozen=True)
class Packed:
    """A matrix of a few bits: the bits, the scales of its blocks, zero points, and a bias behind the product."""

    codes: Value
    scales: Value
    zeros: Value | None
    bias: Value | None


def product_of_few_bits(node: OnnxNode, emit: SizeEmit, x: Value, weight: Packed, rows: int) -> Value:
    """[..., K] by a matrix of so many rows, with the node's settings."""
    packed, scales, zeros = weight.codes, weight.scales, weight.zeros
    bits, size, columns = bits_of(node.int("bits", 4)), node.int("block_size"), node.int("K")
    blocks: Dim = ceil_div(columns, size)
    codes = to_shape(emit, around_zero(emit, unpacked(emit, packed, bits), bits), (rows, blocks * size))
    if zeros is not None and zeros.dtype == U8:
        per_row = to_shape(emit, zeros, (rows, ceil_div(blocks * bits, 8)))
        zeros = cut(emit, unpacked(emit, per_row, bits), 1, 0, blocks)
    numbers = [to_shape(emit, converted(emit, scales, F32), (rows, blocks))]
    if zeros is not None:
        zero = to_shape(emit, converted(emit, zeros, F32), (rows, blocks))
        numbers.append(emit(Binary("Sub"), emit.constant(1 << (bits - 1), like=zero), zero))
    found = emit(ScaledMatMul(max(bits, 4)), converted(emit, x, F32), codes, *numbers)
    return biased(emit, converted(emit, found, x.dtype), weight.bias)


@onnx_op("MatMulNBitsQkv", domain=MICROSOFT)
def projections_of_few_bits(node: OnnxNode, emit: SizeEmit) -> tuple[Value | None, ...]:
    """Queries, keys and values: three products of MatMulNBits with the norm of the input, and the sum before the norm."""
    x, total = _normalized(node, emit, 1, 2)
    sizes = (node.int("Nq"), node.int("Nkv"), node.int("Nkv"))
    return *(product_of_few_bits(node, emit, x, _given(node, 3 + 3 * i), size) for i, size in enumerate(sizes)), total


@onnx_op("MatMulNBitsMlp", domain=MICROSOFT)
def gate_of_few_bits(node: OnnxNode, emit: SizeEmit) -> tuple[Value, Value | None]:
    """Two products of MatMulNBits with the input or its norm, of which the first, activated, gates the other."""
    x, total = _normalized(node, emit, 1, 2)
    kind = node.string("activation")
    refuse_unless(kind in ("silu", "gelu", "relu"), f"the activation {kind} is not supported")
    gate, up = (product_of_few_bits(node, emit, x, _given(node, 3 + 3 * i), node.int("N")) for i in range(2))
    activation: Op = Gelu("none") if kind == "gelu" else Unary(kind.capitalize())
    return emit(Binary("Mul"), emit(activation, gate), up), total


def _given(node: OnnxNode, place: int) -> Packed:
    """The matrix whose inputs begin at a place."""
    return Packed(node.input(place), node.input(place + 1), None, node.optional(place + 2))


def _normalized(node: OnnxNode, emit: SizeEmit, skip: int, weight: int) -> tuple[Value, Value | None]:
    """The first input, normalized if there are weights, after something is added; and that sum, if there is one."""
    x, added, scale = node.input(0), node.optional(skip), node.optional(weight)
    total = None if added is None else emit(Binary("Add"), x, added)
    y = x if total is None else total
    usual = 1e-6 if node.operator == "MatMulNBitsQkv" else 1e-5
    return y if scale is None else emit(RMSNorm(y.type.rank - 1, node.float("epsilon", usual)), y, scale), total


def bits_of(bits: int) -> int:
    """A number of bits that weights may have. Raises Refused for others."""
    refuse_unless(bits in BITS, f"weights of {bits} bits are not supported")
    return bits


def _scaled(emit: SizeEmit, codes: Value, zero: Value, scale: Value) -> Value:
    return emit(Binary("Mul"), emit(Binary("Sub"), codes, zero), scale)


def unpacked(emit: SizeEmit, packed: Value, bits: int) -> Value:
    """Bytes as the numbers in them, along the last axis."""
    if packed.dtype != U8:
        raise ModelError(f"{packed.type} does not hold bytes")
    if bits == 8:
        return packed
    count = 8 // bits
    shifts = emit.constant((np.arange(count) * bits).astype(np.uint8))
    moved = emit(Binary("BitShiftRight"), to_shape(emit, packed, (*packed.shape, 1)), shifts)
    found = emit(Binary("BitwiseAnd"), moved, emit.constant(np.array((1 << bits) - 1, np.uint8)))
    return to_shape(emit, found, (*packed.shape[:-1], packed.shape[-1] * count))


@onnx_op("GatherBlockQuantized", domain=MICROSOFT)
def gather_few_bits(node: OnnxNode, emit: SizeEmit) -> Value:
    """Places of an axis of a table whose other axis is in blocks, as numbers."""
    data, places, scales, zeros = node.input(0), node.input(1), node.input(2), node.optional(3)
    rank, size = data.type.rank, node.int("block_size", 128)
    axis, blocked = (
        normalize_axis(node.int(name, usual), rank) for name, usual in (("gather_axis", 0), ("quantize_axis", 1))
    )
    refuse_unless(size > 0 and axis != blocked, "blocks along the axis that is gathered are not supported")
    few = data.dtype == U8
    bits = bits_of(node.int("bits", 4)) if few else 0
    middle = 1 << (bits - 1) if few else 0

    def taken(x: Value) -> Value:
        return emit(Gather(axis), x, places)

    after = blocked + places.type.rank - 1 if blocked > axis else blocked
    rows = converted(emit, unpacked(emit, taken(data), bits) if few else taken(data), scales.dtype)
    scale = taken(scales)
    if zeros is None:
        zero = emit.constant(middle, like=scale)
    else:
        found = taken(zeros)
        found = cut(emit, unpacked(emit, found, bits), found.type.rank - 1, 0, scale.shape[-1]) if few else found
        zero = _repeated(emit, converted(emit, found, scales.dtype), after, size, rows.shape[after])
    return _scaled(emit, rows, zero, _repeated(emit, scale, after, size, rows.shape[after]))


def _repeated(emit: SizeEmit, x: Value, axis: int, times: int, size: Dim) -> Value:
    """Each element of an axis so many times, and of these the first `size`."""
    before, count, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    wide = emit(Expand((*before, count, times, *behind)), to_shape(emit, x, (*before, count, 1, *behind)))
    return cut(emit, to_shape(emit, wide, (*before, count * times, *behind)), axis, 0, size)


@onnx_op("MatMulBnb4", domain=MICROSOFT)
def matmul_bitsandbytes(node: OnnxNode, emit: SizeEmit) -> Value:
    """[..., K] by a matrix [N, K] of 4 bits that number the levels of a type of bitsandbytes, the highest bits first."""
    x, packed, scales = node.input(0), node.input(1), node.input(2)
    rows, columns, size = node.int("N"), node.int("K"), node.int("block_size")
    levels = NF4 if node.int("quant_type") else (*FP4, *(-level for level in FP4))
    count = fixed_size(packed.type.size, "the number of bytes")
    high = emit(Binary("BitShiftRight"), packed, emit.constant(np.array(4, np.uint8)))
    low = emit(Binary("BitwiseAnd"), packed, emit.constant(np.array(15, np.uint8)))
    pairs = (to_shape(emit, part, (count, 1)) for part in (high, low))
    codes = emit(Cast(I64), to_shape(emit, emit(Concat(1), *pairs), (2 * count,)))
    table = emit.constant(np.array(levels, scales.dtype))
    every = to_shape(emit, scales, (scales.type.size,))
    scale = _repeated(emit, every, 0, size, rows * columns)
    flat = emit(Binary("Mul"), cut(emit, emit(Gather(0), table, codes), 0, 0, rows * columns), scale)
    w = to_shape(emit, flat, (rows, columns))
    return emit(MatMul(transpose_b=bool(node.int("transB", 1))), x, w)
