"""ggml's types of numbers, and its own conversions to and from those that hold rows in blocks.

A quantized type holds so many neighbours of a row as a block of so many bytes. Arrays of blocks are bytes here: the last axis
is a row's bytes, the others are the tensor's.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.foreign import BF16_STORED, U16, from_bf16, to_bf16
from graphc.ir.types import F16, F32
from graphc.records import dataclass


@dataclass(frozen=True, slots=True)
class GgmlType:
    """`code` is its number in ggml and in GGUF files; a block has so many elements, and so many bytes."""

    code: int
    elements: int
    size: int


PLAIN = {
    "F32": GgmlType(0, 1, 4), "F16": GgmlType(1, 1, 2), "BF16": GgmlType(30, 1, 2), "F64": GgmlType(28, 1, 8),
    "I8": GgmlType(24, 1, 1), "I16": GgmlType(25, 1, 2), "I32": GgmlType(26, 1, 4), "I64": GgmlType(27, 1, 8),
}  # fmt: skip
"""Types of which a block is an element."""

QUANTIZED = {
    "Q4_0": GgmlType(2, 32, 18), "Q4_1": GgmlType(3, 32, 20), "Q5_0": GgmlType(6, 32, 22), "Q5_1": GgmlType(7, 32, 24),
    "Q8_0": GgmlType(8, 32, 34), "Q2_K": GgmlType(10, 256, 84), "Q3_K": GgmlType(11, 256, 110),
    "Q4_K": GgmlType(12, 256, 144), "Q5_K": GgmlType(13, 256, 176), "Q6_K": GgmlType(14, 256, 210),
    "IQ2_XXS": GgmlType(16, 256, 66), "IQ2_XS": GgmlType(17, 256, 74), "IQ3_XXS": GgmlType(18, 256, 98),
    "IQ1_S": GgmlType(19, 256, 50), "IQ4_NL": GgmlType(20, 32, 18), "IQ3_S": GgmlType(21, 256, 110),
    "IQ2_S": GgmlType(22, 256, 82), "IQ4_XS": GgmlType(23, 256, 136), "IQ1_M": GgmlType(29, 256, 56),
    "TQ1_0": GgmlType(34, 256, 54), "TQ2_0": GgmlType(35, 256, 66), "MXFP4": GgmlType(39, 32, 17),
    "NVFP4": GgmlType(40, 64, 36), "Q1_0": GgmlType(41, 128, 18),
}  # fmt: skip
"""Types of weights in blocks, which ggml's products and lookups of rows take on the CPU."""

TYPES = {**PLAIN, **QUANTIZED}

HALVES = {"F16": F16, "BF16": BF16_STORED}

GUIDED = {"IQ2_XXS", "IQ2_XS", "IQ1_S"}
"""Types that ggml does not quantize to without knowing how much each column matters."""

LARGEST = dict.fromkeys(QUANTIZED, 65504.0) | {"NVFP4": 2688.0}
"""The largest number that a type certainly holds: scales are float16; those of NVFP4, for numbers to 6, floats of 8 bits."""

WHOLE = {"Q4_0": (-8, 7), "Q8_0": (-128, 127)}
"""Types whose blocks hold whole numbers from the one to the other exactly: their scale is 1 then."""

_PART = 1 << 20
"""Elements that a thread converts at a time."""


def nbytes(type: str, sizes: Sequence[int]) -> int:
    """Bytes of a dense tensor of whole blocks."""
    found = TYPES[type]
    return prod(sizes) // found.elements * found.size


def fits(type: str, row: int) -> bool:
    """True if rows of so many elements are whole blocks."""
    return row % TYPES[type].elements == 0


def stored_shape(type: str, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the array that holds a tensor: for a quantized type one of bytes."""
    return (*shape[:-1], nbytes(type, shape[-1:])) if type in QUANTIZED else tuple(shape)


def has_rows_apart(array: np.ndarray) -> bool:
    """True for a part of each row of a matrix: the elements of a row are adjacent, and behind them lie others."""
    return (
        array.ndim == 2
        and not array.flags.c_contiguous
        and array.strides[1] == array.itemsize
        and array.strides[0] > array.shape[1] * array.itemsize
    )


def narrowed(type: str, array: np.ndarray) -> np.ndarray:
    """A float32 array as a narrower type stores it, a quantized one in bytes.

    Raises GraphcError for an element that the type has nothing like: too large, or not finite in a block.
    """
    if type in QUANTIZED:
        return quantize(type, array)
    with np.errstate(over="ignore"):
        found = to_bf16(array) if HALVES[type] == U16 else array.astype(HALVES[type])
    numbers = from_bf16(found) if HALVES[type] == U16 else found
    if np.isinf(numbers).any() and not np.array_equal(np.isinf(numbers), np.isinf(array)):
        raise GraphcError(f"{np.abs(array[np.isfinite(array)]).max():g} is larger than any number of {type.lower()}")
    return found


def widened(type: str, stored: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The float32 numbers of an array of this shape that is stored in a narrower type."""
    if type in QUANTIZED:
        return dequantize(type, np.ascontiguousarray(stored), prod(shape)).reshape(shape)
    return (from_bf16(stored) if stored.dtype == U16 else stored.astype(F32)).reshape(shape)


def whole_in_blocks(type: str, array: np.ndarray) -> np.ndarray:
    """Whole numbers of int8, whose rows are whole blocks, in a type of `WHOLE`: every block's scale is 1.

    Raises GraphcError for a number that the type does not hold.
    """
    least, most = WHOLE[type]
    if array.size and (array.min() < least or array.max() > most):
        raise GraphcError(f"{type} holds no whole numbers below {least} or above {most}")
    numbers = np.ascontiguousarray(array).reshape(-1, TYPES[type].elements)
    blocks = np.empty((len(numbers), TYPES[type].size), np.uint8)
    blocks[:, :2] = np.array([1], "<f2").view(np.uint8)
    if type == "Q8_0":
        blocks[:, 2:] = numbers.view(np.uint8)
    else:
        first, second = np.split((numbers + np.int8(8)).view(np.uint8), 2, axis=1)
        blocks[:, 2:] = first | second << 4
    return blocks.reshape(stored_shape(type, array.shape))


def quantize(type: str, array: np.ndarray) -> np.ndarray:
    """A float32 array of at least one axis, whose rows are whole blocks, in a quantized type.

    ggml is told that all columns matter alike: it then looks for the scales of the least error, where it would take those of the
    largest element else. Raises GraphcError where an element is not finite, or too large for scales, and for a type of `GUIDED`.
    """
    array = np.ascontiguousarray(array, np.float32)
    row = array.shape[-1]
    assert fits(type, row)
    if type in GUIDED:
        raise GraphcError(f"ggml makes {type} only with an importance matrix; take a checkpoint that is stored so")
    if not np.abs(array).max(initial=0) <= LARGEST[type]:
        raise GraphcError(
            f"an element that is not finite, or larger than {LARGEST[type]:g}, cannot be stored in {type}"
        )
    result = np.empty(stored_shape(type, array.shape), np.uint8)
    alike = np.ones(row, np.float32)
    ggml = _ggml()
    ggml.ggml_quantize_init(TYPES[type].code)  # makes tables, which threads must not do at once

    def convert(start: int, rows: int) -> None:
        source, importance = (ctypes.cast(each.ctypes.data, ctypes.POINTER(ctypes.c_float)) for each in (array, alike))
        target = ctypes.c_void_p(result.ctypes.data)
        ggml.ggml_quantize_chunk(TYPES[type].code, source, target, start * row, rows, row, importance)

    _by_rows(convert, array.size // row if row else 0, row)
    return result


def dequantize(type: str, raw: np.ndarray, count: int) -> np.ndarray:
    """The first `count` elements, whole blocks, of contiguous bytes; float32, one axis."""
    kind = TYPES[type]
    assert count % kind.elements == 0
    assert raw.flags.c_contiguous
    assert raw.nbytes >= nbytes(type, (count,))
    result = np.empty(count, np.float32)
    to_float = _ggml().ggml_get_type_traits(kind.code).contents.to_float

    def convert(start: int, blocks: int) -> None:
        source = ctypes.c_void_p(raw.ctypes.data + start * kind.size)
        place = result.ctypes.data + start * kind.elements * result.itemsize
        to_float(source, ctypes.cast(place, ctypes.POINTER(ctypes.c_float)), blocks * kind.elements)

    _by_rows(convert, count // kind.elements, kind.elements)
    return result


def _by_rows(convert: Callable[[int, int], None], rows: int, row: int) -> None:
    """Call with a first row and a number of rows until all are done, by as many threads as there are processors."""
    from concurrent.futures import ThreadPoolExecutor  # most models have their weights converted already

    step = max(1, _PART // max(row, 1))
    starts = range(0, rows, step)
    with ThreadPoolExecutor(min(len(starts), os.cpu_count() or 1) or 1) as threads:
        list(threads.map(lambda start: convert(start, min(step, rows - start)), starts))


def _ggml() -> Any:
    from graphc.ggml_library import ggml

    return ggml
