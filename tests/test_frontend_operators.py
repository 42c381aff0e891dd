"""Operators that are imported as several: recurrent layers, transforms, sampling, quantized arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import agrees, single, value
from onnx import helper

RANDOM = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


X = floats(2, 3, 4, 5)


IMAGE = floats(1, 2, 5, 7)


CASES = {
    "recurrent": (
        "RNN",
        [floats(5, 2, 3), floats(1, 4, 3), floats(1, 4, 4), floats(1, 8)],
        {},
        (7, 14),
        {"hidden_size": 4},
    ),
    "recurrent both ways": (
        "RNN",
        [floats(5, 2, 3), floats(2, 4, 3), floats(2, 4, 4), None, np.array([5, 3], np.int32)],
        {},
        (7, 14),
        {"hidden_size": 4, "direction": "bidirectional", "activations": ["Tanh", "LeakyRelu"], "outputs": 2},
    ),
    "gated recurrent": (
        "GRU",
        [floats(5, 2, 3), floats(1, 12, 3), floats(1, 12, 4), floats(1, 24), None, floats(1, 2, 4)],
        {},
        (7, 14),
        {"hidden_size": 4, "linear_before_reset": 1, "outputs": 2},
    ),
    "gated recurrent in reverse": (
        "GRU",
        [floats(5, 2, 3), floats(1, 12, 3), floats(1, 12, 4), None, np.array([2, 5], np.int32)],
        {},
        (7, 14),
        {"hidden_size": 4, "direction": "reverse", "clip": 0.5, "outputs": 2},
    ),
    "long short-term memory": (
        "LSTM",
        [
            floats(5, 2, 3),
            floats(2, 16, 3),
            floats(2, 16, 4),
            floats(2, 32),
            np.array([4, 5], np.int32),
            floats(2, 2, 4),
            floats(2, 2, 4),
            floats(2, 12),
        ],
        {},
        (7, 14),
        {"hidden_size": 4, "direction": "bidirectional", "outputs": 3},
    ),
    "places of a grid": (
        "GridSample",
        [IMAGE, 1.3 * floats(1, 3, 4, 2)],
        {},
        (16, 20),
        {"padding_mode": "border", "align_corners": 1},
    ),
    "places of a grid, reflected": (
        "GridSample",
        [IMAGE, 1.3 * floats(1, 3, 4, 2)],
        {},
        (16,),
        {"mode": "bicubic", "padding_mode": "reflection"},
    ),
    "Fourier": ("DFT", [floats(2, 6, 1)], {}, (17,), {"axis": 1, "onesided": 1}),
    "Fourier and back": ("DFT", [floats(2, 6, 2)], {2: np.array(-2)}, (20,), {"inverse": 1}),
    "short-time Fourier": (
        "STFT",
        [floats(1, 20, 1)],
        {1: np.array(3), 2: floats(8), 3: np.array(8)},
        (17,),
        {"onesided": 0},
    ),
    "columns to an image": (
        "Col2Im",
        [floats(1, 12, 6)],
        {1: ints(5, 6), 2: ints(2, 3)},
        (18,),
        {"strides": [2, 1], "pads": [0, 0, 0, 1], "dilations": [2, 2]},
    ),
    "unpooled": (
        "MaxUnpool",
        [floats(1, 1, 2, 2), np.array([5, 7, 13, 15]).reshape(1, 1, 2, 2)],
        {},
        (9, 11),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "running products": ("CumProd", [floats(7)], {1: np.array(0)}, (26,), {"exclusive": 1, "reverse": 1}),
    "determinant": ("Det", [floats(2, 3, 3)], {}, (11, 22), {}),
    "rows into a cache": (
        "TensorScatter",
        [floats(2, 5, 3), floats(2, 2, 3), ints(1, 4)],
        {},
        (24,),
        {"mode": "circular"},
    ),
    "reversed sequences": ("ReverseSequence", [floats(4, 3)], {1: ints(1, 4, 2)}, (10,), {}),
    "compressed": ("Compress", [X], {1: np.array([True, False, True])}, (9, 11), {"axis": 1}),
    "quantized product": (
        "QLinearMatMul",
        [
            RANDOM.integers(0, 255, (2, 3)).astype(np.uint8),
            np.array(0.1, np.float32),
            np.array(100, np.uint8),
            RANDOM.integers(0, 255, (3, 4)).astype(np.uint8),
            np.array(0.2, np.float32),
            np.array(120, np.uint8),
            np.array(9, np.float32),
            np.array(128, np.uint8),
        ],
        {},
        (10, 21),
        {},
    ),
    "quantized convolution": (
        "QLinearConv",
        [
            RANDOM.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8),
            np.array(0.1, np.float32),
            np.array(100, np.uint8),
            RANDOM.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8),
            np.abs(floats(3)),
            np.array([120, 120, 120], np.uint8),
            np.array(900, np.float32),
            np.array(128, np.uint8),
            RANDOM.integers(-99, 99, 3).astype(np.int32),
        ],
        {},
        (10,),
        {"pads": [1, 1, 1, 1]},
    ),
    "integer convolution": (
        "ConvInteger",
        [
            RANDOM.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8),
            RANDOM.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8),
        ],
        {},
        (10,),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_spelling(name: str) -> None:
    operator, inputs, constants, opsets, attributes = CASES[name]
    for opset in opsets:
        proto, feeds = single(operator, inputs, constants, opset, **attributes)  # type: ignore[arg-type]
        agrees(proto, feeds)


ROWS = np.array([[3, 0, 8], [1, 1, 2]])
"""Positions of rows."""

ANGLES = floats(9, 4)

MICROSOFT = {
    "gelu with a bias": ("BiasGelu", [X, floats(5)], {}),
    "quick gelu": ("QuickGelu", [X], {}),
    "fast gelu": ("FastGelu", [X, floats(5)], {}),
    "norm of a sum": ("SkipLayerNormalization", [X[0], X[1], floats(5), floats(5), floats(5)], {"epsilon": 0.01}),
    "rotary positions": ("RotaryEmbedding", [floats(2, 3, 24), ROWS, ANGLES, floats(9, 4)], {}),
    "of heads before the rows": (
        "RotaryEmbedding",
        [floats(2, 3, 3, 8), ROWS, ANGLES, floats(9, 4)],
        {"interleaved": 1},
    ),
    "from a first one on": ("RotaryEmbedding", [floats(2, 3, 24), np.array([4]), ANGLES, floats(9, 4)], {}),
    "of a part of each head": (
        "RotaryEmbedding",
        [floats(2, 3, 24), ROWS, ANGLES, floats(9, 4)],
        {"num_heads": 2, "rotary_embedding_dim": 8, "interleaved": 1},
    ),
    "scaled product": ("FusedMatMul", [X, floats(6, 5)], {"transB": 1, "alpha": 0.5}),
}


@pytest.mark.parametrize("name", MICROSOFT)
def test_operators_of_onnxruntime(name: str) -> None:
    operator, inputs, attributes = MICROSOFT[name]
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], domain="com.microsoft", **attributes)  # type: ignore[arg-type]
    feeds = dict(zip(names, inputs, strict=True))
    inputs = [value(each, x.shape, x.dtype) for each, x in feeds.items()]
    graph = helper.make_graph([node], "g", inputs, [value("y", None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    agrees(helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds)
