"""Weights that ggml stores in blocks: an element as an expression of the bytes of its block, with the bits that ggml's own
dequantization gives.

Blocks are read where they lie, in words as wide as all of them are aligned. The formats are those of ggml-common.h, and the
functions `dequantize_row_*` of ggml-quants.c. Types that look numbers up in tables are not among them.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.ggml_types import TYPES
from graphc.ir.types import F16, F32, I8, I16, I32
from graphc.kernels.gpu.tile import index as scalar
from graphc.kernels.scalar import Operand, Scalar
from graphc.shapes import product
from graphc.targets.ggml.generate.arrays import ZERO, Array, Buffer, Index, K, flat
from graphc.targets.ggml.program.tensor import Tensor

TOGETHER = 8
"""Neighbours whose numbers lie side by side in every format, and that have their scale in common."""


class Block:
    """The block that an element lies in, and the element's number in it, `at`. Places are in bytes, from the block's start."""

    def __init__(self, words: Buffer, halves: Buffer, begin: Scalar, at: Scalar) -> None:
        self.words, self.halves, self.begin, self.at = words, halves, begin, at

    def byte(self, place: Operand) -> Scalar:
        """A byte, from 0 to 255."""
        place, width = self.begin + place, self.words.dtype.itemsize
        word = K.cast(self.words.element((place // width, ZERO, ZERO, ZERO)), I32)
        return (word >> whole(place % width * 8)) & 255

    def signed(self, place: Operand) -> Scalar:
        """A byte, from -128 to 127, as float32."""
        return K.cast(K.cast(self.byte(place), I8), F32)

    def half(self, place: int) -> Scalar:
        """A float16, as float32."""
        return K.cast(self.halves.element(((self.begin + place) // 2, ZERO, ZERO, ZERO)), F32)

    def bits(self, place: Operand, shift: Operand, mask: int) -> Scalar:
        """Some bits of a byte; the shift counts as indices do."""
        return (self.byte(place) >> whole(shift)) & mask

    def half_byte(self, begin: int) -> Scalar:
        """The element's 4 bits in a block of 32: those of the second half are the upper ones of the same bytes."""
        return self.bits(self.at % 16 + begin, self.at // 16 * 4, 15)

    def fifth_bit(self, begin: int) -> Scalar:
        """The element's bit of 32 that follow each other, as 0 or 16."""
        return self.bits(self.at // 8 + begin, self.at % 8, 1) << 4


def whole(value: Operand) -> Scalar:
    """An index as a number that bits are shifted by."""
    return K.cast(value if isinstance(value, Scalar) else scalar(value), I32)


def real(value: Scalar) -> Scalar:
    """A whole number as float32."""
    return K.cast(value, F32)


def _scale_and_least(block: Block) -> tuple[Scalar, Scalar]:
    """What the element's 32 neighbours of 256 are multiplied by, and what is taken off: two float16, each times 6 bits. Of 12
    bytes the first and second four have those of parts 0 to 3; parts 4 to 7 have the lower 4 bits in the last four, and the
    others in the upper 2 of the first and second."""
    late, part = block.at // 128, block.at // 32 % 4
    scale = (block.byte(late * 8 + part + 4) & 15) | (block.bits(part + 4, late * 2, 255) & 48)
    least = block.bits(late * 4 + part + 8, late * 4, 15) | (block.bits(part + 8, late * 2, 255) & 48)
    return block.half(0) * real(scale), block.half(2) * real(least)


def _q4_k(block: Block) -> Scalar:
    scale, least = _scale_and_least(block)
    pair, rest = block.at // 64, block.at % 64
    return scale * real(block.bits(pair * 32 + rest % 32 + 16, rest // 32 * 4, 15)) - least


def _q5_k(block: Block) -> Scalar:
    scale, least = _scale_and_least(block)
    pair, rest = block.at // 64, block.at % 64
    low = block.bits(pair * 32 + rest % 32 + 48, rest // 32 * 4, 15)
    return scale * real(low + (block.bits(rest % 32 + 16, block.at // 32, 1) << 4)) - least


def _q6_k(block: Block) -> Scalar:
    half, rest = block.at // 128, block.at % 128
    quarter, place = rest // 32, rest % 32
    low = block.bits(half * 64 + quarter % 2 * 32 + place, quarter // 2 * 4, 15)
    high = block.bits(half * 32 + place + 128, quarter * 2, 3)
    scale = block.half(208) * block.signed(block.at // 16 + 192)
    return scale * real((low | (high << 4)) - 32)


def _q2_k(block: Block) -> Scalar:
    half, rest = block.at // 128, block.at % 128
    scales = block.byte(block.at // 16)
    number = block.bits(half * 32 + rest % 32 + 16, rest // 32 * 2, 3)
    return block.half(80) * real(scales & 15) * real(number) - block.half(82) * real(scales >> 4)


def _q3_k(block: Block) -> Scalar:
    half, rest, part = block.at // 128, block.at % 128, block.at // 16
    low = block.bits(half * 32 + rest % 32 + 32, rest // 32 * 2, 3)
    high = block.bits(rest % 32, block.at // 32, 1)
    scale = block.bits(part % 8 + 96, part // 8 * 4, 15) | (block.bits(part % 4 + 104, part // 4 * 2, 3) << 4)
    return block.half(108) * real(scale - 32) * real(low + (high << 2) - 4)


def _tq2_0(block: Block) -> Scalar:
    half, rest = block.at // 128, block.at % 128
    return real(block.bits(half * 32 + rest % 32, rest // 32 * 2, 3) - 1) * block.half(64)


FORMATS: dict[str, Callable[[Block], Scalar]] = {
    "Q4_0": lambda block: real(block.half_byte(2) - 8) * block.half(0),
    "Q4_1": lambda block: real(block.half_byte(4)) * block.half(0) + block.half(2),
    "Q5_0": lambda block: real((block.half_byte(6) | block.fifth_bit(2)) - 16) * block.half(0),
    "Q5_1": lambda block: real(block.half_byte(8) | block.fifth_bit(4)) * block.half(0) + block.half(2),
    "Q8_0": lambda block: block.signed(block.at + 2) * block.half(0),
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
    "TQ2_0": _tq2_0,
}  # fmt: skip
"""An element of a block, for each of ggml's types whose blocks kernels read."""


def decoded(tensor: Tensor) -> Array:
    """The numbers of a weight that is stored in blocks."""
    kind = TYPES[tensor.type]
    width = I32 if kind.size % 4 == 0 else I16
    nbytes = product(tensor.ne) // kind.elements * kind.size
    words, halves = (Buffer(tensor, dtype, (nbytes // dtype.itemsize, 1, 1, 1)) for dtype in (width, F16))

    def element(at: Index) -> Scalar:
        number = flat(at, tensor.ne)
        begin = number // kind.elements * kind.size
        return FORMATS[tensor.type](Block(words, halves, begin, number % kind.elements))

    return Array(F32, tensor.ne, element, (words, halves), 8)


def is_in_blocks(array: Array) -> bool:
    """True for what is computed of weights in blocks, and of other weights at most."""
    tensors = [buffer.tensor for buffer in array.buffers]
    return any(each.type in FORMATS for each in tensors) and all(each.weight >= 0 for each in tensors)
