"""Mixtures of experts of onnxruntime's own domain, drawn, against onnxruntime and against their formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from microsoft_nodes import Case, agrees, run_onnxruntime

Draw = Callable[[np.random.Generator], Case]

DRAWS = 8


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def sometimes(random: np.random.Generator, array: np.ndarray) -> np.ndarray | None:
    """The array, or nothing."""
    return array if random.random() < 0.5 else None


def settings(random: np.random.Generator, experts: int) -> dict[str, object]:
    kind = str(random.choice(["relu", "gelu", "silu", "identity", "swiglu"]))
    found: dict[str, object] = {
        "k": int(random.integers(1, experts + 1)),
        "activation_type": kind,
        "normalize_routing_weights": int(random.integers(0, 2)),
    }
    if kind == "swiglu":
        found["swiglu_fusion"] = 1
        if random.random() < 0.5:
            found |= {"swiglu_limit": 0.7, "activation_alpha": 1.702, "activation_beta": 1.0}
    return found


def mixture(random: np.random.Generator) -> Case:
    rows, experts, width, inner = (int(random.integers(1, high)) for high in (6, 5, 9, 7))
    chosen = settings(random, experts)
    first = 2 * inner if "swiglu_fusion" in chosen else inner
    x = floats(random, *((rows, width) if random.random() < 0.5 else (2, rows, width)))
    inputs = [
        x,
        floats(random, x.size // width, experts),
        floats(random, experts, first, width),
        sometimes(random, floats(random, experts, first)),
        floats(random, experts, width, inner),
        sometimes(random, floats(random, experts, width)),
    ]
    return Case("MoE", inputs, chosen)


def few_bits(random: np.random.Generator) -> Case:
    bits = int(random.choice([4, 8]))
    block = int(random.choice([0, 16, 32])) if bits == 4 else 0  # blocks of 8 bits onnxruntime multiplies as bytes
    rows, experts = (int(size) for size in random.integers(1, 5, 2))
    width, inner = (32 * int(size) for size in random.integers(1, 3, 2))
    chosen = settings(random, experts) | {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
    first = 2 * inner if "swiglu_fusion" in chosen else inner
    layers = []
    for out, features in ((first, width), (width, inner)):
        scales = np.abs(floats(random, experts, out, *([features // block] if block else []))) * 0.05
        line = (-(-out * bits // 8),) if not block else (out, -(-(features // block) * bits // 8))
        codes, zeros = (random.integers(0, 256, (experts, *s)) for s in ((out, features * bits // 8), line))
        layers.append((codes.astype(np.uint8), scales, sometimes(random, floats(random, experts, out)), zeros))
    given = (
        random.random() < 0.5
    )  # of both: with those of the first layer alone, onnxruntime's CPU computes something else
    zeros = [layer[3].astype(np.uint8) if given else None for layer in layers]
    inputs = [floats(random, rows, width), floats(random, rows, experts), *layers[0][:3], *layers[1][:3]]
    inputs += [None, None, None, *zeros]
    if random.random() < 0.3:
        inputs += [None, np.abs(floats(random, rows, experts))]
    held = [i for i in (2, 3, 5, 6, 11, 12) if inputs[i] is not None]
    return Case("QMoE", inputs, chosen, constants=held)


OPERATORS: dict[str, Draw] = {"MoE": mixture, "QMoE": few_bits}


@pytest.mark.parametrize("operator", OPERATORS)
def test_agrees_with_onnxruntime(operator: str) -> None:
    for seed in range(DRAWS):
        agrees(OPERATORS[operator](np.random.default_rng(seed)), compiled=seed == 0)


@pytest.mark.parametrize("fusion", [0, 2])
def test_other_layouts_of_gates(fusion: int) -> None:
    """Gates in tensors of their own, and before what they gate, are those that lie between it: onnxruntime's CPU has no
    other layout."""
    random = np.random.default_rng(0)
    x, scores, first, bias = floats(random, 5, 8), floats(random, 5, 3), floats(random, 3, 12, 8), floats(random, 3, 12)
    second = floats(random, 3, 8, 6)
    common = {"k": 2, "activation_type": "swiglu", "activation_alpha": 1.3}
    wanted = Case("MoE", [x, scores, first, bias, second], common | {"swiglu_fusion": 1})
    gates, ups = ((first[:, i::2].copy(), bias[:, i::2].copy()) for i in range(2))
    if fusion:
        both = [np.concatenate(pair, axis=1) for pair in zip(gates, ups, strict=True)]
        inputs = [x, scores, *both, second]
    else:
        inputs = [x, scores, *gates, second, None, *ups]
    agrees(Case("MoE", inputs, common | {"swiglu_fusion": fusion}), run_onnxruntime(wanted.model(), wanted.feeds()))
