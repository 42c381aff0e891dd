"""What else onnxruntime's own domain has, and what ONNX dropped: drawn, against onnxruntime, or against the documented formula
where its CPU has no kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log

import numpy as np
import pytest
from microsoft_nodes import Case, agrees, run_onnxruntime

Draw = Callable[[np.random.Generator], Case]

DRAWS = 4


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def size(random: np.random.Generator, most: int, least: int = 1) -> int:
    return int(random.integers(least, most + 1))


def sometimes(random: np.random.Generator, array: np.ndarray) -> np.ndarray | None:
    """The array, or nothing."""
    return array if random.random() < 0.5 else None


def held(case: Case, *places: int) -> Case:
    """The case with those of the inputs at these places that there are as constants."""
    case.constants = [i for i in places if case.inputs[i] is not None]
    return case


def inverse(random: np.random.Generator) -> Case:
    n = size(random, 4)
    return Case("Inverse", [floats(random, 2, n, n) + 2 * np.eye(n, dtype=np.float32)], tolerance=1e-4)


def crops(random: np.random.Generator) -> Case:
    batch, count = size(random, 3), size(random, 4)
    boxes = (random.random((count, 4)) * 1.4 - 0.2).astype(np.float32)
    images = random.integers(0, batch, count).astype(np.int32)
    sizes = random.integers(1, 5, 2).astype(np.int32)
    inputs = [floats(random, batch, 2, size(random, 6), size(random, 7)), boxes, images, sizes]
    chosen = {"mode": str(random.choice(["bilinear", "nearest"])), "extrapolation_value": 0.5}
    return Case("CropAndResize", inputs, chosen, constants=[3])


def expand_dims(random: np.random.Generator) -> Case:
    return Case("ExpandDims", [floats(random, 2, 3), np.array(size(random, 2, -3), np.int32)], constants=[1])


def words(random: np.random.Generator) -> Case:
    longest = size(random, 7, 2)
    window, depth, filters = size(random, longest), size(random, 4), size(random, 5)
    texts = random.integers(0, 6, (4, longest)).astype(np.int32)
    texts[:, 0] = 1  # words that begin with 0 are whatever onnxruntime finds in its memory
    kernels, table = floats(random, filters, 1, window, depth), floats(random, 6, depth)
    return Case("WordConvEmbedding", [texts, kernels, floats(random, filters), table])


def distances(random: np.random.Generator) -> Case:
    n, metric = size(random, 6), str(random.choice(["euclidean", "sqeuclidean"]))
    return Case("CDist", [floats(random, size(random, 5), n) for _ in range(2)], {"metric": metric}, tolerance=2e-5)


def triangle(random: np.random.Generator) -> Case:
    x = floats(random, 2, size(random, 4), size(random, 4))
    return held(Case("Trilu", [x, sometimes(random, np.array(size(random, 2, -2)))], {"upper": size(random, 1, 0)}), 1)


def numbers(random: np.random.Generator) -> Case:
    bounds = [np.array(size(random, 3, 0)), np.array(size(random, 20, 4)), sometimes(random, np.array(size(random, 3)))]
    if random.random() < 0.5:
        bounds = [None if bound is None else bound.reshape(1) for bound in bounds]
    return held(Case("Range", bounds), 0, 1, 2)


def padded(random: np.random.Generator) -> Case:
    pads = random.integers(0, 3, 6)
    pads = pads[None] if random.random() < 0.5 else pads
    inputs = [floats(random, 3, 4, 5), pads, sometimes(random, np.array(0.5, np.float32))]
    return held(Case("Pad", inputs, {"mode": str(random.choice(["constant", "reflect", "edge"]))}), 1, 2)


def gathered(random: np.random.Generator) -> Case:
    places = random.integers(0, 3, (2, 3, size(random, 3))).astype(random.choice([np.int32, np.int64]))
    return Case("GatherND", [floats(random, 3, 4, 5), places])


def different(random: np.random.Generator) -> Case:
    return Case("Unique", [random.integers(0, 5, 9).astype(np.float32)], outputs=3)


def wide_integers(random: np.random.Generator) -> Case:
    return Case("MatMulInteger16", [random.integers(-300, 300, s).astype(np.int16) for s in ((2, 3, 4), (4, 5))])


def windows(random: np.random.Generator) -> Case:
    chosen = {"dim": size(random, 2, -1), "size": size(random, 4), "step": size(random, 3)}
    return Case("UnfoldTensor", [floats(random, 5, 6, 7)], chosen)


def scaled_silu(random: np.random.Generator) -> Case:
    return Case("ScaledSiLU", [floats(random, 3, 4), sometimes(random, np.array(0.7, np.float32))], {"alpha": 1.3})


def no_repetition(random: np.random.Generator) -> Case:
    tokens = random.integers(0, 3, (2, size(random, 8, 3)))
    return Case("NGramRepeatBlock", [tokens, floats(random, 2, 4)], {"ngram_size": size(random, 3)})


def gated_add(random: np.random.Generator) -> Case:
    return Case("GatedAdd", [floats(random, 2, 3, 4), floats(random, 2, 3, 4), floats(random, 2, 3, 1)])


def gated_norm(random: np.random.Generator) -> Case:
    width, heads = size(random, 5), size(random, 3)
    inputs = [floats(random, 2, 3, heads * width), floats(random, width), floats(random, 2, 3, heads * width)]
    return Case("GatedRMSNorm", inputs, {"activation": str(random.choice(["silu", "swish", "sigmoid"]))})


def branchwise_norm(random: np.random.Generator) -> Case:
    count, width = size(random, 4), size(random, 5)
    scale = [None, *(floats(random, *shape) for shape in ((count * width,), (count, width), (width,)))]
    scale = scale[size(random, 3, 0)]
    if random.random() < 0.5:
        return Case("BranchwiseRMSNorm", [floats(random, 2, 3, count * width), scale], {"num_branches": count})
    return Case("BranchwiseRMSNorm", [floats(random, 2, 3, count, width), scale])


def causal(random: np.random.Generator) -> Case:
    channels, kernel, length, batch, dilation = (size(random, most) for most in (4, 4, 5, 2, 2))
    chosen: dict[str, object] = {"activation": str(random.choice(["none", "silu", "swish"])), "dilation": dilation}
    x, past = floats(random, batch, channels, length), floats(random, batch, channels, (kernel - 1) * dilation)
    if random.random() < 0.4:
        x, past, chosen["channels_last"] = x.transpose(0, 2, 1).copy(), past.transpose(0, 2, 1).copy(), 1
    inputs = [x, floats(random, channels, 1, kernel), sometimes(random, floats(random, channels))]
    return Case("CausalConvWithState", [*inputs, sometimes(random, past)], chosen, outputs=2)


def three_positions(random: np.random.Generator) -> Case:
    half, rows, heads, batch = 6, size(random, 4), 2, 2
    first = size(random, half, 0)
    second = size(random, half - first, 0)
    layout = size(random, 1, 0)
    chosen = {
        "mrope_section": [2, 2, 2] if layout else [first, second, half - first - second],
        "mrope_layout": layout,
        "interleaved": size(random, 1, 0),
    }
    x = floats(random, batch, heads, rows, 2 * half)
    if random.random() < 0.5:
        x = x.reshape(batch, rows, heads * 2 * half)
        chosen |= {"num_heads": heads, "rotary_embedding_dim": 2 * half}
    angles = floats(random, 9, half)
    positions = random.integers(0, 9, (3, batch, rows))
    return Case("MRotaryEmbedding", [x, positions, np.cos(angles), np.sin(angles)], chosen)


def old(operator: str, *shape: int, **chosen: object) -> Draw:
    return lambda random: Case(operator, [floats(random, *shape)], chosen, domain="", opset=9)


OPERATORS: dict[str, Draw] = {
    "Inverse": inverse,
    "CropAndResize": crops,
    "ExpandDims": expand_dims,
    "WordConvEmbedding": words,
    "CDist": distances,
    "Trilu": triangle,
    "Range": numbers,
    "Pad": padded,
    "GatherND": gathered,
    "Unique": different,
    "MatMulInteger16": wide_integers,
    "UnfoldTensor": windows,
    "ScaledSiLU": scaled_silu,
    "SampleOp": lambda random: Case("SampleOp", [floats(random, 3, 4)]),
    "NGramRepeatBlock": no_repetition,
    "GatedAdd": gated_add,
    "GatedRMSNorm": gated_norm,
    "BranchwiseRMSNorm": branchwise_norm,
    "CausalConvWithState": causal,
    "MRotaryEmbedding": three_positions,
    "Affine": old("Affine", 2, 3, alpha=0.5, beta=0.3),
    "Scale": old("Scale", 2, 3, scale=0.5),
    "ScaledTanh": old("ScaledTanh", 2, 3, alpha=0.5, beta=0.3),
    "ParametricSoftplus": old("ParametricSoftplus", 2, 3, alpha=0.5, beta=0.3),
    "ImageScaler": old("ImageScaler", 2, 3, 4, 5, scale=0.5, bias=[0.1, 0.2, 0.3]),
    "Crop": old("Crop", 2, 3, 7, 8, border=[1, 2, 0, 1]),
    "Crop to a size": old("Crop", 2, 3, 7, 8, border=[1, 2, 0, 1], scale=[2, 3]),
}


@pytest.mark.filterwarnings("ignore:One of rtol or atol")  # scores of -inf
@pytest.mark.parametrize("operator", OPERATORS)
def test_agrees_with_onnxruntime(operator: str) -> None:
    for seed in range(DRAWS):
        agrees(OPERATORS[operator](np.random.default_rng(seed)), compiled=seed == 0)


Composed = Callable[[np.random.Generator], tuple[Case, Mapping[str, np.ndarray]]]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def tokens(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths, places of tokens and padding, and ends of sequences, of a batch of 3 with up to 4 rows."""
    lengths = np.array([4, *random.integers(1, 5, 2)])
    there = np.arange(4) < lengths[:, None]
    places = np.concatenate([np.flatnonzero(there), np.flatnonzero(~there)]).reshape(3, 4).astype(np.int32)
    return lengths, places, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def remove_padding(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    (lengths, places, ends), x = tokens(random), floats(random, 3, 4, 5)
    kept = x.reshape(12, 5)[places.reshape(-1)[: lengths.sum()]]
    wanted = {"y0": kept, "y1": places, "y2": ends, "y3": np.array([4], np.int32)}
    return Case("RemovePadding", [x, lengths.astype(np.int32)], outputs=4), wanted


def restore_padding(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    lengths, places, _ = tokens(random)
    x, wanted = floats(random, int(lengths.sum()), 5), np.zeros((12, 5), np.float32)
    wanted[places.reshape(-1)[: len(x)]] = x
    return Case("RestorePadding", [x, places]), {"y0": wanted.reshape(3, 4, 5)}


def packed(operator: str) -> Composed:
    """Attention without padding is attention with it, at the places of tokens."""

    def draw(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
        lengths, places, ends = tokens(random)
        chosen = places.reshape(-1)[: lengths.sum()]
        x, w, bias = floats(random, 3, 4, 6), floats(random, 6, 24), floats(random, 24)
        extra = sometimes(random, floats(random, 1, 2, 4, 4))
        plain = Case("Attention", [x, w, bias, lengths.astype(np.int32), None, extra], {"num_heads": 2})
        (whole,) = run_onnxruntime(plain.model(), plain.feeds()).values()
        rows = x.reshape(12, 6)[chosen]
        if operator == "PackedAttention":
            inputs: list[np.ndarray | None] = [rows, w, bias]
        elif random.random() < 0.5:
            inputs = [*np.split(rows @ w, 3, axis=1), bias]
        else:
            inputs = [(rows @ w + bias).reshape(-1, 3, 2, 4).transpose(0, 2, 1, 3).copy(), None, None, None]
        case = Case(operator, [*inputs, places, ends, extra], {"num_heads": 2})
        return case, {"y0": whole.reshape(12, 8)[chosen]}

    return draw


def relative_bias(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    both, rows, columns = size(random, 1, 0), size(random, 20), size(random, 20)
    table = floats(random, 3, 8)  # of each head a row
    each = 4 if both else 8
    wanted = np.zeros((1, 3, rows, columns), np.float32)
    for row in range(rows):
        for column in range(columns):
            ahead = column - row
            start = each if both and ahead > 0 else 0
            distance = abs(ahead) if both else max(-ahead, 0)
            half = each // 2
            if distance >= half:
                distance = min(half + int(log(distance / half) / log(13 / half) * (each - half)), each - 1)
            wanted[0, :, row, column] = table[:, start + distance]
    inputs = [table.reshape(8, 3), np.array([rows]), np.array([columns])]
    return Case("RelativePositionBias", inputs, {"max_distance": 13, "is_bidirectional": both}), {"y0": wanted}


def gated_bias(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    lengths, places, _ = tokens(random)
    query, bias, relative = floats(random, 3, 4, 6), floats(random, 6), floats(random, 1, 2, 4, 4)
    weight, shift, scale = floats(random, 3, 8), floats(random, 8), floats(random, 1, 2, 1, 1)
    offsets = None
    if random.random() < 0.5:
        chosen = places.reshape(-1)[: lengths.sum()]
        whole, rows = np.zeros((12, 6), np.float32), query.reshape(12, 6)[chosen]
        whole[chosen] = rows + bias
        given, offsets, moved = rows, places, whole.reshape(3, 4, 6)
    else:
        given, moved = query, query + bias
    heads = moved.reshape(3, 4, 2, 3).transpose(0, 2, 1, 3)
    gates = sigmoid((heads @ weight + shift).reshape(3, 2, 4, 2, 4).sum(-1))
    wanted = (gates[..., :1] * (gates[..., 1:] * scale - 1) + 2) * relative
    inputs = [given, bias, relative, weight, shift, scale, offsets]
    return Case("GatedRelativePositionBias", inputs, {"num_heads": 2}), {"y0": wanted.astype(np.float32)}


def gemma(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    angles, parts = floats(random, 2, 3, 4), [floats(random, 2, 2, 3, 4) for _ in range(4)]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    wanted = {f"y{i}": parts[2 * i] * cos + parts[2 * i + 1] * sin for i in range(2)}
    return Case("GemmaRotaryEmbedding", [angles, *parts], outputs=2), wanted


def complex_product(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    a, b = floats(random, 2, 3, 2), floats(random, 2, 3, 2)
    conjugate = random.random() < 0.5
    x, y = (each[..., 0] + 1j * each[..., 1] for each in (a, b))
    product = x * (y.conj() if conjugate else y)
    wanted = np.stack([product.real, product.imag], -1).astype(np.float32)
    return Case("ComplexMulConj" if conjugate else "ComplexMul", [a, b]), {"y0": wanted}


def sampled(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    inputs = [floats(random, 2, 3, 4, 5), floats(random, 2, 3, 3, 2)]
    modes = {"mode": str(random.choice(["bilinear", "nearest", "bicubic"])), "align_corners": size(random, 1, 0)}
    other = Case("GridSample", inputs, modes, domain="", opset=16)
    return Case("GridSample", inputs, modes), run_onnxruntime(other.model(), other.feeds())


def spectrum(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    x = floats(random, 2, 3, 2 * size(random, 5))
    half = np.fft.rfft(x)
    parts = np.stack([half.real, half.imag], -1).astype(np.float32)
    if random.random() < 0.5:
        return Case("Rfft", [x]), {"y0": parts}
    return Case("Irfft", [parts], {"signal_ndim": 1}), {"y0": x}


def finite(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    x, y = floats(random, 2, 3), floats(random, 4)
    y[1] = random.choice([np.inf, -np.inf, np.nan, 1.0])
    kind = [{}, {"isinf_only": 1}, {"isnan_only": 1}][size(random, 2, 0)]
    bad = (np.isinf(y).any() and "isnan_only" not in kind) or (np.isnan(y).any() and "isinf_only" not in kind)
    return Case("IsAllFinite", [x, y], kind), {"y0": np.array(not bad)}


def embedding(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    table, places = floats(random, 6, 4), random.integers(0, 6, (2, 3))
    return Case("TorchEmbedding", [table, places, np.array(0)], constants=[2]), {"y0": table[places]}


def bytes_multiplied(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    a, b = (random.integers(0, 256, (2, 3)).astype(np.uint8) for _ in range(2))
    zero = sometimes(random, np.array(7, np.uint8))
    wanted = (a.astype(np.int32) - (0 if zero is None else 7)) * b
    return Case("MulInteger", [a, zero, b]), {"y0": wanted}


def bytes_added(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    x = random.integers(-128, 128, (2, 3, 4)).astype(np.int8)
    wanted = x.sum((0, 2), np.int32, keepdims=True)
    return Case("ReduceSumInteger", [x], {"axes": [0, 2], "keepdims": 1}), {"y0": wanted}


def swiglu(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
    gate, up, limit = floats(random, 2, 3), floats(random, 2, 3), float(random.choice([0.0, 0.5]))
    low, high = (np.minimum(gate, limit), np.clip(up, -limit, limit)) if limit else (gate, up)
    inputs = [np.concatenate([gate, up], -1)] if random.random() < 0.5 else [gate, up]
    wanted = low * sigmoid(np.float32(1.7) * low) * (high + 1)
    return Case("SwiGLU", inputs, {"limit": limit, "activation_alpha": 1.7, "activation_beta": 1.0}), {"y0": wanted}


def with_norm(operator: str) -> Composed:
    """Products of few bits with a norm: those of MatMulNBits with the normalized input."""

    def draw(random: np.random.Generator) -> tuple[Case, Mapping[str, np.ndarray]]:
        x, weight = floats(random, 2, 32), floats(random, 32)
        skip = sometimes(random, floats(random, 2, 32))
        total = x if skip is None else x + skip
        y = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5) * weight
        common = {"K": 32, "bits": 4, "block_size": 32}
        given: list[np.ndarray | None] = [x, skip, weight]
        products = []
        for rows in (3, 5, 5) if operator == "MatMulNBitsQkv" else (4, 4):
            codes = random.integers(0, 256, (rows, 1, 16)).astype(np.uint8)
            inputs = [codes, np.abs(floats(random, rows, 1)), sometimes(random, floats(random, rows))]
            case = Case("MatMulNBits", [y, *inputs[:2], None, None, inputs[2]], common | {"N": rows}, constants=(1, 2))
            products += run_onnxruntime(case.model(), case.feeds()).values()
            given += inputs
        if operator == "MatMulNBitsQkv":
            wanted = {f"y{i}": each for i, each in enumerate(products)}
            return Case(operator, given, common | {"Nq": 3, "Nkv": 5, "epsilon": 1e-5}, outputs=3), wanted
        wanted = {"y0": products[0] * sigmoid(products[0]) * products[1]}
        return Case(operator, given, common | {"N": 4, "activation": "silu"}), wanted

    return draw


COMPOSED: dict[str, Composed] = {
    "RemovePadding": remove_padding,
    "RestorePadding": restore_padding,
    "PackedAttention": packed("PackedAttention"),
    "PackedMultiHeadAttention": packed("PackedMultiHeadAttention"),
    "RelativePositionBias": relative_bias,
    "GatedRelativePositionBias": gated_bias,
    "GemmaRotaryEmbedding": gemma,
    "ComplexMul, ComplexMulConj": complex_product,
    "GridSample": sampled,
    "Rfft, Irfft": spectrum,
    "IsAllFinite": finite,
    "TorchEmbedding": embedding,
    "MulInteger": bytes_multiplied,
    "ReduceSumInteger": bytes_added,
    "SwiGLU": swiglu,
    "MatMulNBitsQkv": with_norm("MatMulNBitsQkv"),
    "MatMulNBitsMlp": with_norm("MatMulNBitsMlp"),
}
"""Operators that onnxruntime has for GPUs alone, and what their documentation says."""


@pytest.mark.parametrize("operators", COMPOSED)
def test_agrees_with_the_formula(operators: str) -> None:
    for seed in range(DRAWS):
        agrees(*COMPOSED[operators](np.random.default_rng(seed)), compiled=seed == 0)
