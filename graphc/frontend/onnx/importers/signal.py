"""Fourier transforms as matrix products, and the constants of signal processing."""

from __future__ import annotations

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.movement import cut
from graphc.frontend.onnx.importers.sizes import to_shape
from graphc.frontend.onnx.node import OnnxNode, check_table, fixed_size, refuse_unless
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import I64
from graphc.ops.base import normalize_axis
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Pad, Transpose
from graphc.ops.pointwise import Binary, Unary
from graphc.ops.sequences import Range
from graphc.shapes import is_static

MAX_LENGTH = 4096
"""The longest transform that is made a matrix."""


@onnx_op("DFT")
def dft(node: OnnxNode, emit: SizeEmit) -> Value:
    """[..., n, ..., 1 or 2] -> [..., m, ..., 2]; the axis is an attribute before opset 20 and an input since."""
    x = node.input(0)
    length, axis = node.optional(1), node.int("axis", 1)
    if node.opset >= 20:
        given = node.optional(2)
        axis = -2 if given is None else int(emit.scalar(given, "the axis"))
    axis = normalize_axis(axis, x.type.rank)
    if axis == x.type.rank - 1 or x.shape[-1] not in (1, 2):
        raise ModelError(f"a transform of axis {axis} of {x.type}")
    inverse, one_sided = bool(node.int("inverse", 0)), bool(node.int("onesided", 0))
    size = fixed_size(x.shape[axis], "the length")
    natural = 2 * (size - 1) if inverse and one_sided else size
    count = natural if length is None else emit.ints(length, "the length")[0]
    if inverse and one_sided:
        return real_inverse(emit, x, axis, count)
    return transform(emit, fitted(emit, x, axis, count), axis, inverse, count // 2 + 1 if one_sided else count)


def fitted(emit: SizeEmit, x: Value, axis: int, count: int) -> Value:
    """Cut, or filled with zeros, to a length along an axis."""
    size = fixed_size(x.shape[axis], "the length")
    if count <= size:
        return cut(emit, x, axis, 0, count)
    none = (0,) * x.type.rank
    after = tuple(count - size if i == axis else 0 for i in range(x.type.rank))
    return emit(Pad(none, after, "constant", 0.0), x)


def waves(count: int, rows: int, inverse: bool, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The real and imaginary parts of the matrix [rows, count] of a transform."""
    refuse_unless(0 < count <= MAX_LENGTH, f"a transform of length {count}")
    turns = (np.outer(np.arange(rows), np.arange(count)) % count) / count
    angles = turns * (2 * np.pi if inverse else -2 * np.pi)
    scale = 1 / count if inverse else 1.0
    return (np.cos(angles) * scale).astype(dtype), (np.sin(angles) * scale).astype(dtype)


def transform(emit: SizeEmit, x: Value, axis: int, inverse: bool, rows: int) -> Value:
    """The transform along an axis; the last axis holds real and imaginary parts, of the result always both."""
    cosine, sine = waves(fixed_size(x.shape[axis], "the length"), rows, inverse, x.dtype)
    last = x.type.rank - 1
    order = (*(i for i in range(last) if i != axis), last, axis)
    moved = emit(Transpose(order), x)
    parts = [_component(emit, moved, index) for index in range(2 if x.shape[-1] == 2 else 1)]
    real, imaginary = ([_waved(emit, part, matrix) for matrix in (cosine, sine)] for part in (parts[0], parts[-1]))
    if len(parts) == 2:
        real = [emit(Binary("Sub"), real[0], imaginary[1]), emit(Binary("Add"), real[1], imaginary[0])]
    whole = emit(Concat(last - 1), *real)
    return emit(Transpose(tuple(np.argsort(order).tolist())), whole)


def _component(emit: SizeEmit, x: Value, index: int) -> Value:
    return cut(emit, x, x.type.rank - 2, index, 1)


def _waved(emit: SizeEmit, x: Value, matrix: np.ndarray) -> Value:
    return emit(MatMul(transpose_b=True), x, emit.constant(matrix))


def real_inverse(emit: SizeEmit, x: Value, axis: int, count: int) -> Value:
    """From half a spectrum, whose other half is its conjugate, to real numbers [..., count, ..., 1]."""
    half = fitted(emit, x, axis, count // 2 + 1)
    cosine, sine = waves(count, count, True, x.dtype)
    weights = np.full(count // 2 + 1, 2.0)
    weights[0] = 1.0
    if count % 2 == 0:
        weights[-1] = 1.0
    last = x.type.rank - 1
    order = (*(i for i in range(last) if i != axis), last, axis)
    moved = emit(Transpose(order), half)
    parts = [
        _waved(emit, _component(emit, moved, index), (matrix[:, : count // 2 + 1] * weights).astype(x.dtype))
        for index, matrix in enumerate((cosine, sine)[: 2 if x.shape[-1] == 2 else 1])
    ]
    whole = parts[0] if len(parts) == 1 else emit(Binary("Sub"), *parts)
    return emit(Transpose(tuple(np.argsort(order).tolist())), whole)


@onnx_op("STFT")
def stft(node: OnnxNode, emit: SizeEmit) -> Value:
    """[batch, samples(, 1 or 2)] -> [batch, frames, bins, 2]."""
    x, window, length = node.input(0), node.optional(2), node.optional(3)
    if x.type.rank == 2:
        x = to_shape(emit, x, (*x.shape, 1))
    step = emit.ints(node.input(1), "the step")[0]
    count = _frame_length(emit, window, length)
    samples = x.shape[1]
    frames = (samples - count) // step + 1 if step > 0 else 0
    if is_static(frames) and frames < 1:
        raise ModelError(f"{samples} samples hold no frame of {count} with a step of {step}")
    check_table(frames, count)
    starts = emit(Binary("Mul"), emit(Range(0, frames, 1, I64)), emit.constant(np.array(step, I64)))
    places = emit(Binary("Add"), to_shape(emit, starts, (frames, 1)), emit.constant(np.arange(count, dtype=I64)))
    pieces = emit(Gather(1), x, places)
    if window is not None:
        pieces = emit(Binary("Mul"), pieces, to_shape(emit, window, (count, 1)))
    one_sided = bool(node.int("onesided", 1))
    return transform(emit, pieces, 2, False, count // 2 + 1 if one_sided else count)


def _frame_length(emit: SizeEmit, window: Value | None, length: Value | None) -> int:
    if length is not None:
        return emit.ints(length, "the frame length")[0]
    if window is None:
        raise ModelError("neither a window nor a frame length is given")
    return fixed_size(window.shape[0], "the window")


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(node: OnnxNode, emit: SizeEmit) -> Value:
    """Triangles, evenly spaced in mels, over the bins of a spectrum."""
    bins, length, rate = (int(emit.scalar(node.input(index), "a setting")) for index in range(3))
    low, high = (float(emit.scalar(node.input(index), "an edge")) for index in (3, 4))
    refuse_unless(0 < bins <= MAX_LENGTH and 0 < length <= 1 << 20 and rate > 0, f"{bins} bands of {length} bins")
    check_table(length // 2 + 1, bins)
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = first + np.arange(bins + 2) * (last - first) / (bins + 2)  # not bins + 1: what every runtime computes
    edges = (((length + 1) * (700 * (10 ** (mels / 2595) - 1))) // rate).astype(np.int64)
    rows = np.arange(length // 2 + 1)
    result = np.zeros((len(rows), bins))
    for band in range(bins):
        start, middle, end = edges[band : band + 3]
        rising = (rows - start) / max(middle - start, 1)
        falling = (end - rows) / max(end - middle, 1)
        result[:, band] = np.where((rows >= start) & (rows < middle), rising, 0)
        result[:, band] += np.where((rows > middle) & (rows < end), falling, 0) + (rows == middle)
    return emit.constant(result.astype(node.dtype("output_datatype", np.dtype(np.float32))))


@onnx_op("Det")
def det(node: OnnxNode, emit: SizeEmit) -> Value:
    """The determinant of small matrices, by cofactors."""
    x = node.input(0)
    size = fixed_size(x.shape[-1], "the size of the matrices")
    if x.type.rank < 2 or x.shape[-2] != size:
        raise ModelError(f"the determinant of {x.type}")
    refuse_unless(1 <= size <= 4, f"the determinant of matrices of size {size}")
    return to_shape(emit, minor(emit, x, list(range(size)), list(range(size))), x.shape[:-2])


def minor(emit: SizeEmit, x: Value, rows: list[int], columns: list[int]) -> Value:
    """The determinant [..., 1, 1] of some rows and columns."""
    rank = x.type.rank
    first = [cut(emit, cut(emit, x, rank - 2, rows[0], 1), rank - 1, column, 1) for column in columns]
    if len(rows) == 1:
        return first[0]
    total: Value | None = None
    for index, (entry, column) in enumerate(zip(first, columns, strict=True)):
        rest = [other for other in columns if other != column]
        term = emit(Binary("Mul"), entry, minor(emit, x, rows[1:], rest))
        if index % 2:
            term = emit(Unary("Neg"), term)
        total = term if total is None else emit(Binary("Add"), total, term)
    assert total is not None
    return total
