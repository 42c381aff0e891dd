"""Operators of onnxruntime's own domains, drawn, against onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from microsoft_nodes import Case, agrees, run_onnxruntime

from graphc.errors import UnsupportedError
from graphc.frontend.onnx import load
from graphc.frontend.onnx.importers.microsoft.refused import REFUSED

Draw = Callable[[np.random.Generator], Case]

DRAWS = 4
"""Cases of each operator."""


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def sometimes(random: np.random.Generator, array: np.ndarray) -> np.ndarray | None:
    """The array, or nothing."""
    return array if random.random() < 0.5 else None


CONV_ACTIVATIONS: dict[str, list[float]] = {
    "": [],
    "Relu": [],
    "Tanh": [],
    "Sigmoid": [],
    "HardSwish": [],
    "LeakyRelu": [0.2],
    "Clip": [-0.3, 0.8],
    "HardSigmoid": [0.3, 0.4],
}


def activation_of_conv(random: np.random.Generator) -> dict[str, object]:
    name = str(random.choice(list(CONV_ACTIVATIONS)))
    settings = CONV_ACTIVATIONS[name]
    given: dict[str, object] = {"activation": name} if name else {}
    return {**given, "activation_params": settings} if settings else given


def fused_conv(random: np.random.Generator) -> Case:
    group, width, height, batch = (int(random.integers(1, high)) for high in (3, 3, 9, 3))
    kernel = int(random.integers(1, 4))
    channels, out = group * int(random.integers(1, 3)), group * width
    pad = kernel // 2
    x = floats(random, batch, channels, height + kernel, 7)
    w, bias = floats(random, out, channels // group, kernel, kernel), floats(random, out)
    rows = height + 2 * pad + 1
    z = floats(random, batch, out, rows, 7 - kernel + 2 * pad + 1)
    settings = {"group": group, "pads": [pad] * 4, **activation_of_conv(random)}
    return Case("FusedConv", [x, w, bias, sometimes(random, z)], settings)


GEMM_ACTIVATIONS = ("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Celu", "Sigmoid", "Softplus", "Softsign")


def fused_gemm(random: np.random.Generator) -> Case:
    m, k, n = (int(size) for size in random.integers(1, 6, 3))
    flips = [int(bit) for bit in random.integers(0, 2, 2)]
    a, b = floats(random, m, k), floats(random, k, n)
    name = str(random.choice([*GEMM_ACTIVATIONS, "Tanh", "ThresholdedRelu"]))
    settings = {
        "transA": flips[0],
        "transB": flips[1],
        "alpha": 0.7,
        "beta": 1.3,
        "activation": name,
        "activation_alpha": 0.3,
        "activation_beta": 0.4,
        "activation_gamma": 1.2,
    }
    operands = [a.T.copy() if flips[0] else a, b.T.copy() if flips[1] else b, sometimes(random, floats(random, n))]
    return Case("FusedGemm", operands, settings)


def fused_matmul(random: np.random.Generator) -> Case:
    m, k, n, batch = (int(size) for size in random.integers(1, 6, 4))
    settings, operands = {"alpha": float(np.float32(random.random()))}, []
    for name, shape in (("A", [batch, 2, m, k]), ("B", [batch, 2, k, n])):
        if swapped := int(random.integers(0, 2)):
            shape[-1], shape[-2] = shape[-2], shape[-1]
        if moved := int(random.integers(0, 2)):
            shape = [shape[2], *shape[:2], shape[3]]
        settings |= {f"trans{name}": swapped, f"transBatch{name}": moved}
        operands.append(floats(random, *shape))
    return Case("FusedMatMul", operands, settings)


def transpose_matmul(random: np.random.Generator) -> Case:
    return Case("TransposeMatMul", [floats(random, 2, 5, 3), floats(random, 5, 4)], {"transA": 1, "alpha": 0.25})


def with_bias(operator: str) -> Draw:
    def draw(random: np.random.Generator) -> Case:
        x = floats(random, *map(int, random.integers(1, 6, 3)))
        bias = floats(random, x.shape[-1])
        return Case(operator, [x, bias if operator == "BiasGelu" else sometimes(random, bias)])

    return draw


def without_bias(operator: str, **settings: float) -> Draw:
    return lambda random: Case(operator, [floats(random, *map(int, random.integers(1, 6, 3)))], settings)


def skip_norm(random: np.random.Generator) -> Case:
    batch, rows, width = (int(size) for size in random.integers(1, 7, 3))
    x = floats(random, batch, rows, width)
    skip = floats(random, *x.shape) if random.random() < 0.5 else floats(random, rows, width)
    inputs = [x, skip, floats(random, width), *(sometimes(random, floats(random, width)) for _ in range(2))]
    return Case(
        "SkipLayerNormalization", inputs, {"epsilon": 1e-3}, outputs=str(random.choice(["y--y", "ynny", "ynnn"]))
    )


def simplified_skip_norm(random: np.random.Generator) -> Case:
    batch, rows, width = (int(size) for size in random.integers(1, 7, 3))
    x, skip = floats(random, batch, rows, width), floats(random, batch, rows, width)
    settings = {"epsilon": 1e-3} if random.random() < 0.5 else {}
    bias = sometimes(random, floats(random, width))
    outputs = str(random.choice(["y--y", "ynny", "ynnn"]))
    return Case("SkipSimplifiedLayerNormalization", [x, skip, floats(random, width), bias], settings, outputs=outputs)


def simplified_norm(random: np.random.Generator) -> Case:
    x = floats(random, 2, 3, int(random.integers(1, 9)))
    return Case("SimplifiedLayerNormalization", [x, floats(random, x.shape[-1])], {"axis": -1}, domain="")


def channels_last_pool(random: np.random.Generator) -> Case:
    x = random.integers(0, 256, (2, 7, 6, 3)).astype(random.choice([np.uint8, np.int8]))
    return Case("NhwcMaxPool", [x], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]})


OPERATORS: dict[str, Draw] = {
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "TransposeMatMul": transpose_matmul,
    "BiasGelu": with_bias("BiasGelu"),
    "FastGelu": with_bias("FastGelu"),
    "Gelu": without_bias("Gelu"),
    "QuickGelu": without_bias("QuickGelu", alpha=1.3),
    "SkipLayerNormalization": skip_norm,
    "SkipSimplifiedLayerNormalization": simplified_skip_norm,
    "SimplifiedLayerNormalization": simplified_norm,
    "NhwcMaxPool": channels_last_pool,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_agrees_with_onnxruntime(operator: str) -> None:
    for seed in range(DRAWS):
        agrees(OPERATORS[operator](np.random.default_rng(seed)), compiled=seed == 0)


Composed = Callable[[np.random.Generator], tuple[Case, np.ndarray]]


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_by_tanh(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x: np.ndarray) -> np.ndarray:
    exponents = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def channels_last_conv(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    inputs = [floats(random, 2, 6, 5, 4), floats(random, 6, 3, 2, 2), floats(random, 6)]
    settings = {"pads": [1, 0, 1, 1], "group": 2, "kernel_shape": [3, 2]}
    first = [np.moveaxis(x, -1, 1).copy() if x.ndim == 4 else x for x in inputs]
    other = Case("FusedConv", first, settings)
    (wanted,) = run_onnxruntime(other.model(), other.feeds()).values()
    return Case("NhwcConv", inputs, settings), np.moveaxis(wanted, 1, -1)


def channels_last_fused_conv(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    inputs = [floats(random, 2, 6, 5, 3), floats(random, 4, 3, 3, 3), floats(random, 4), floats(random, 2, 6, 5, 4)]
    settings = {"pads": [1, 1, 1, 1], **activation_of_conv(random)}
    first = [x if x.ndim == 1 or x is inputs[1] else np.moveaxis(x, -1, 1).copy() for x in inputs]
    other = Case("FusedConv", first, settings)
    (wanted,) = run_onnxruntime(other.model(), other.feeds()).values()
    return Case("NhwcFusedConv", inputs, settings), np.moveaxis(wanted, 1, -1)


def group_norm(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    last, skips, silu = (int(bit) for bit in random.integers(0, 2, 3))
    x, gamma, beta, bias = floats(random, 2, 3, 5, 6), floats(random, 6), floats(random, 6), floats(random, 6)
    skip = floats(random, *[(2, 3, 5, 6), (2, 1, 1, 6), (2, 6)][int(random.integers(0, 3))])
    total = x + (skip if skip.ndim == 4 else skip[:, None, None]) + bias if skips else x
    groups = total.reshape(2, 15, 3, 2).astype(np.float64)
    mean, deviation = groups.mean(axis=(1, 3), keepdims=True), np.sqrt(groups.var(axis=(1, 3), keepdims=True) + 1e-5)
    wanted = ((groups - mean) / deviation).reshape(x.shape) * gamma + beta
    wanted = wanted / (1 + np.exp(-wanted)) if silu else wanted
    inputs = [x, gamma, beta, *([skip, bias] if skips else [])]
    if not last:
        inputs = [np.moveaxis(each, -1, 1).copy() if each.ndim == 4 else each for each in inputs]
        wanted = np.moveaxis(wanted, -1, 1)
    settings = {"groups": 3, "activation": silu, "channels_last": last}
    return Case("SkipGroupNorm" if skips else "GroupNorm", inputs, settings), wanted


def split_gelu(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    x, bias = floats(random, 2, 3, 8), floats(random, 8)
    left, right = np.split(x + bias, 2, axis=-1)
    return Case("BiasSplitGelu", [x, bias]), left * gelu(right)


def bias_add(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    x, bias, skip = floats(random, 2, 3, 5), floats(random, 5), floats(random, 2, 3, 5)
    return Case("BiasAdd", [x, bias, skip]), x + bias + skip


def bias_dropout(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    x, bias, skip = floats(random, 2, 3, 5), floats(random, 5), floats(random, 2, 3, 5)
    return Case("BiasDropout", [x, bias, skip, np.array(0.5, np.float32)]), x + bias + skip


def gemm_fast_gelu(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    x, w, bias = floats(random, 2, 3, 5), floats(random, 5, 4), floats(random, 4)
    return Case("GemmFastGelu", [x, w, bias]), gelu_by_tanh(x @ w + bias)


def bias_softmax(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    x, bias = floats(random, 2, 3, 4, 5), floats(random, 2, 1, 1, 5)
    return Case("BiasSoftmax", [x, bias], {"axis": 3, "is_inner_broadcast": 1}), softmax(x + bias)


def product_activated(random: np.random.Generator) -> tuple[Case, np.ndarray]:
    x, w = floats(random, 2, 3, 5), floats(random, 4, 5)
    settings = {"transB": 1, "alpha": 0.5, "activation": "Relu"}
    return Case("FusedMatMulActivation", [x, w], settings), np.maximum(x @ w.T * 0.5, 0)


COMPOSED: dict[str, Composed] = {
    "NhwcConv": channels_last_conv,
    "NhwcFusedConv": channels_last_fused_conv,
    "GroupNorm, SkipGroupNorm": group_norm,
    "BiasSplitGelu": split_gelu,
    "BiasAdd": bias_add,
    "BiasDropout": bias_dropout,
    "GemmFastGelu": gemm_fast_gelu,
    "BiasSoftmax": bias_softmax,
    "FusedMatMulActivation": product_activated,
}
"""Operators that onnxruntime has for GPUs alone, and what their schemas' formulas give."""


@pytest.mark.parametrize("operators", COMPOSED)
def test_agrees_with_the_formula(operators: str) -> None:
    for seed in range(DRAWS):
        case, wanted = COMPOSED[operators](np.random.default_rng(seed))
        agrees(case, {"y0": wanted.astype(np.float32)})


@pytest.mark.parametrize("operator", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_statistics_that_are_read_are_refused(operator: str) -> None:
    rows, weight = np.ones((1, 2, 4), np.float32), np.ones(4, np.float32)
    with pytest.raises(UnsupportedError, match="the mean and the deviation as outputs are not supported"):
        load(Case(operator, [rows, rows, weight], outputs="yny").model())


@pytest.mark.parametrize("operator", REFUSED)
def test_refused_by_name(operator: str) -> None:
    reason, help = REFUSED[operator]
    with pytest.raises(UnsupportedError) as refused:
        load(Case(operator, [np.zeros((1, 2), np.float32)]).model())
    (problem,) = refused.value.problems
    assert (problem.operator, problem.reason, problem.help) == (operator, reason, help)
