"""Quantized operators of onnxruntime's own domain, drawn, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from microsoft_nodes import Case, agrees, overflows

Draw = Callable[[np.random.Generator], Case]

DRAWS = 6


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def kind(random: np.random.Generator) -> type:
    return np.uint8 if random.random() < 0.5 else np.int8


def quantized(random: np.random.Generator, dtype: type, *shape: int) -> list[np.ndarray]:
    """Bytes with a scale and a zero point; signed ones of 7 bits where onnxruntime's sums of others are wrong."""
    info, share = np.iinfo(dtype), 2 if dtype is np.int8 and overflows() else 1
    return [random.integers(info.min // share, (info.max + 1) // share, shape).astype(dtype), *settings(random, dtype)]


def settings(random: np.random.Generator, dtype: type, scale: float = 0.02) -> list[np.ndarray]:
    """A scale and a zero point."""
    zero = np.iinfo(dtype).min + random.integers(100, 150)
    return [np.array(scale * (0.5 + random.random()), np.float32), np.array(zero, dtype)]


def binary(operator: str) -> Draw:
    def draw(random: np.random.Generator) -> Case:
        dtype = kind(random)
        shape = (3, 4) if random.random() < 0.5 else (4,)
        inputs = [*quantized(random, dtype, 2, 3, 4), *quantized(random, dtype, *shape), *settings(random, dtype, 0.04)]
        return Case(operator, inputs, constants=(1, 2, 4, 5, 6, 7), steps=1)

    return draw


def unary(operator: str, scale: float, **attributes: object) -> Draw:
    def draw(random: np.random.Generator) -> Case:
        dtype = kind(random)
        inputs = [*quantized(random, dtype, 2, 3, 5, 4), *settings(random, dtype, scale)]
        return Case(operator, inputs, attributes, constants=(1, 2, 3, 4), steps=1)

    return draw


def softmax(random: np.random.Generator) -> Case:
    dtype = kind(random)
    inputs = [*quantized(random, dtype, 2, 3, 5), np.array(1 / 256, np.float32), np.array(np.iinfo(dtype).min, dtype)]
    attributes = {"axis": int(random.integers(0, 3)), "opset": int(random.choice([11, 13]))}
    return Case("QLinearSoftmax", inputs, attributes, constants=(1, 2, 3, 4), steps=1)


def pool(random: np.random.Generator) -> Case:
    last = int(random.integers(0, 2))
    inputs = [*quantized(random, np.uint8, 2, 6, 5, 4), *settings(random, np.uint8)]
    attributes = {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [2, 1], "channels_last": last}
    return Case("QLinearAveragePool", inputs, attributes, constants=(1, 2, 3, 4), steps=1)


def concat(random: np.random.Generator) -> Case:
    dtype = kind(random)
    parts = [quantized(random, dtype, 2, width, 3) for width in (1, 4, 2)]
    return Case("QLinearConcat", [*settings(random, dtype), *(x for part in parts for x in part)], {"axis": 1}, steps=1)


def where(random: np.random.Generator) -> Case:
    dtype = kind(random)
    condition = random.random((2, 1, 4)) < 0.5
    inputs = [condition, *quantized(random, dtype, 2, 3, 4), *quantized(random, dtype, 3, 1), *settings(random, dtype)]
    return Case("QLinearWhere", inputs, constants=(2, 3, 5, 6, 7, 8), steps=1)


def conv(random: np.random.Generator) -> Case:
    last = int(random.integers(0, 2))
    x, x_scale, x_zero = quantized(random, np.uint8, 1, *((6, 5, 4) if last else (4, 6, 5)))
    w = quantized(random, np.int8, 3, 4, 3, 3)[0]
    scales, zeros = np.abs(floats(random, 3)) / 50, np.zeros(3, np.int8)
    bias = random.integers(-99, 99, 3).astype(np.int32)
    inputs = [x, x_scale, x_zero, w, scales, zeros, *settings(random, np.uint8, 0.1), bias]
    attributes = {"channels_last": last, "pads": [1, 0, 1, 1]}
    return Case("QLinearConv", inputs, attributes, constants=range(1, 9), steps=1)


def gemm(random: np.random.Generator) -> Case:
    m, k, n = (int(size) for size in random.integers(1, 7, 3))
    a_flip, b_flip, columns, bytes_ = (int(bit) for bit in random.integers(0, 2, 4))
    a, a_scale, a_zero = quantized(random, np.uint8, *((k, m) if a_flip else (m, k)))
    b, b_scale, b_zero = quantized(random, np.int8, *((n, k) if b_flip else (k, n)))
    if columns:
        b_scale, b_zero = np.abs(floats(random, n)) / 50, np.zeros(n, np.int8)
    c = random.integers(-999, 999, n).astype(np.int32) if random.random() < 0.5 else None
    result = settings(random, np.uint8, 0.1) if bytes_ else []
    attributes = {"transA": a_flip, "transB": b_flip, "alpha": 0.5}
    return Case("QGemm", [a, a_scale, a_zero, b, b_scale, b_zero, c, *result], attributes, steps=1)


def weights(random: np.random.Generator, dtype: type, rows: int, columns: int) -> list[np.ndarray]:
    """Bytes, their scale and their zero point; for all or for each column."""
    b, scale, zero = quantized(random, dtype, rows, columns)
    if random.random() < 0.5:
        return [b, np.abs(floats(random, columns)) / 50, random.integers(0, 99, columns).astype(dtype)]
    return [b, scale.reshape(1), zero.reshape(1)]


def dynamic(random: np.random.Generator) -> Case:
    b, scale, zero = weights(random, kind(random), 4, 5)
    bias = floats(random, 5) if random.random() < 0.5 else None
    x = floats(random, 2, 3, 4) * (0 if random.random() < 0.2 else 1) + float(random.integers(-2, 3))
    return Case("DynamicQuantizeMatMul", [x.astype(np.float32), b, scale, zero, bias], constants=(1,))


def to_float(random: np.random.Generator) -> Case:
    a, a_scale, a_zero = quantized(random, np.uint8, 2, 3, 4)
    b, b_scale, b_zero = weights(random, kind(random), 4, 5)
    bias = floats(random, 5) if random.random() < 0.5 else None
    return Case("MatMulIntegerToFloat", [a, b, a_scale, b_scale, a_zero, b_zero, bias], constants=(1,))


def attention(random: np.random.Generator) -> Case:
    x, x_scale, x_zero = quantized(random, np.uint8, 2, 3, 4)
    w, w_scale, w_zero = quantized(random, kind(random), 4, 12)
    mask = random.integers(1, 4, 2).astype(np.int32) if random.random() < 0.5 else None
    past = floats(random, 2, 2, 2, 3, 2) if random.random() < 0.5 else None
    mask = None if past is not None else mask
    inputs = [x, w, floats(random, 12), x_scale, w_scale, mask, x_zero, w_zero, past]
    attributes = {"num_heads": 2, "unidirectional": int(random.integers(0, 2))}
    return Case("QAttention", inputs, attributes, constants=(1, 2, 3, 4, 6, 7), outputs=2)


def embeddings(random: np.random.Generator) -> Case:
    tables = [quantized(random, np.uint8, *shape) for shape in ((9, 4), (7, 4), (2, 4), (4,), (4,))]
    words, segments = random.integers(0, 9, (2, 3)).astype(np.int32), random.integers(0, 2, (2, 3)).astype(np.int32)
    mask = random.integers(0, 2, (2, 3)).astype(np.int32) if random.random() < 0.5 else None
    inputs = [words, segments, *(each[0] for each in tables), mask, *(each[1] for each in tables)]
    inputs += [each[2] for each in tables]
    return Case(
        "QEmbedLayerNormalization", inputs, {"epsilon": 1e-5}, constants=(*range(2, 7), *range(8, 18)), outputs=2
    )


def to_bytes(random: np.random.Generator) -> Case:
    dtype = random.choice([np.uint8, np.int8, np.uint16, np.int16])
    scales, zeros = np.abs(floats(random, 3)) + 0.01, np.full(3, 5, dtype)
    return Case("QuantizeLinear", [floats(random, 2, 3, 4), scales, zeros], {"axis": 1})


def to_numbers(random: np.random.Generator) -> Case:
    dtype = random.choice([np.uint8, np.int8, np.uint16, np.int16])
    x = random.integers(0, 99, (2, 3, 4)).astype(dtype)
    return Case("DequantizeLinear", [x, np.array(0.3, np.float32), np.array(7, dtype)])


def lstm(random: np.random.Generator) -> Case:
    """In one direction or both, with a scale for all weights or for each column."""
    dtype, both = kind(random), random.random() < 0.5
    directions, hidden, features, steps = 1 + both, 5, 4, 3
    many = (directions, 4 * hidden) if random.random() < 0.5 else (directions,)
    inputs: list[np.ndarray | None] = [
        floats(random, steps, 1, features),
        quantized(random, dtype, directions, features, 4 * hidden)[0],
        quantized(random, dtype, directions, hidden, 4 * hidden)[0],
        floats(random, directions, 8 * hidden) if random.random() < 0.5 else None,
        None,
        *(floats(random, directions, 1, hidden) * 0.1 for _ in range(2)),
        floats(random, directions, 3 * hidden) if random.random() < 0.5 else None,
    ]
    for _ in range(2):
        zero = 128 + np.iinfo(dtype).min if len(many) == 2 else 120  # onnxruntime takes no others
        inputs += [(random.random(many) * 0.005 + 0.001).astype(np.float32), np.full(many, zero, dtype)]
    attributes = {"hidden_size": hidden, "direction": "bidirectional" if both else "reverse"}
    constants = (1, 2, 8, 9, 10, 11)
    return Case(
        "DynamicQuantizeLSTM", inputs, attributes, constants, outputs=3, tolerance=2e-3
    )  # a state rounds to another byte


OPERATORS: dict[str, Draw] = {
    "DynamicQuantizeLSTM": lstm,
    "QLinearAdd": binary("QLinearAdd"),
    "QLinearMul": binary("QLinearMul"),
    "QLinearSigmoid": unary("QLinearSigmoid", 0.006),
    "QLinearLeakyRelu": unary("QLinearLeakyRelu", 0.02, alpha=0.2),
    "QLinearGlobalAveragePool": unary("QLinearGlobalAveragePool", 0.01),
    "QLinearGlobalAveragePool, channels last": unary("QLinearGlobalAveragePool", 0.01, channels_last=1),
    "QLinearSoftmax": softmax,
    "QLinearAveragePool": pool,
    "QLinearConcat": concat,
    "QLinearWhere": where,
    "QLinearConv": conv,
    "QGemm": gemm,
    "DynamicQuantizeMatMul": dynamic,
    "MatMulIntegerToFloat": to_float,
    "QAttention": attention,
    "QEmbedLayerNormalization": embeddings,
    "QuantizeLinear": to_bytes,
    "DequantizeLinear": to_numbers,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_agrees_with_onnxruntime(operator: str) -> None:
    for seed in range(DRAWS):
        agrees(OPERATORS[operator](np.random.default_rng(seed)), compiled=seed == 0)


def test_mean_of_bytes() -> None:
    """QLinearReduceMean, which onnxruntime's quantizer writes and no kernel of its own reads."""
    random = np.random.default_rng(0)
    x, scale, zero = quantized(random, np.uint8, 2, 3, 4)
    y_scale, y_zero = settings(random, np.uint8)
    mean = ((x.astype(np.float32) - zero) * scale).mean(axis=(1, 2), keepdims=True)
    wanted = np.clip(np.round(mean / y_scale) + y_zero, 0, 255).astype(np.uint8)
    case = Case("QLinearReduceMean", [x, scale, zero, y_scale, y_zero], {"axes": [1, 2], "keepdims": 1}, steps=1)
    agrees(case, {"y0": wanted})
