"""Attention of onnxruntime's own domain, drawn, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from microsoft_nodes import Case, agrees, run_onnxruntime

Draw = Callable[[np.random.Generator], Case]

DRAWS = 12


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def sometimes(random: np.random.Generator, array: np.ndarray) -> np.ndarray | None:
    """The array, or nothing."""
    return array if random.random() < 0.5 else None


def size(random: np.random.Generator, most: int, least: int = 1) -> int:
    return int(random.integers(least, most + 1))


def padding(random: np.random.Generator, batch: int, rows: int, total: int) -> np.ndarray | None:
    """A mask in one of its forms, or nothing."""
    ends = random.integers(1, total + 1, batch)
    match size(random, 4, 0):
        case 0:
            return ends.astype(np.int32)
        case 1:
            return np.concatenate([ends, random.integers(0, ends)]).astype(np.int32)
        case 2:
            return _first_seen(random.integers(0, 2, (batch, total)))
        case 3:
            return _first_seen(random.integers(0, 2, (batch, rows, total)))
    return None


def _first_seen(mask: np.ndarray) -> np.ndarray:
    """The mask with the first key seen by all: where nothing is, onnxruntime rounds scores to a thousandth."""
    mask[..., 0] = 1
    return mask.astype(np.int32)


def attention(random: np.random.Generator) -> Case:
    batch, rows, heads, depth, past = (
        size(random, 3),
        size(random, 5),
        size(random, 3),
        size(random, 4),
        size(random, 3),
    )
    width = heads * depth
    before = sometimes(random, floats(random, 2, batch, heads, past, depth))
    total = rows + (0 if before is None else past)
    settings: dict[str, object] = {"num_heads": heads, "unidirectional": size(random, 1, 0)}
    values = width
    if before is None and random.random() < 0.5:
        values = heads * 3
        settings["qkv_hidden_sizes"] = [width, width, values]
    if random.random() < 0.5:
        settings |= {"scale": 0.3, "mask_filter_value": -50.0}
    mask = padding(random, batch, rows, total)
    if mask is not None and mask.ndim == 1:
        settings["mask_filter_value"] = -50.0
    inputs = [
        floats(random, batch, rows, 6),
        floats(random, 6, 2 * width + values),
        floats(random, 2 * width + values),
        mask,
        before,
        None if before is not None else sometimes(random, floats(random, 1, heads, rows, total)),
    ]
    return Case("Attention", inputs, settings, outputs=1 if values != width else 2)


def multi_head(random: np.random.Generator) -> Case:
    batch, rows, heads, depth, past = (
        size(random, 3),
        size(random, 5),
        size(random, 3),
        size(random, 4),
        size(random, 3),
    )
    width = heads * depth
    settings: dict[str, object] = {"num_heads": heads}
    cached = random.random() < 0.4
    keys = rows if random.random() < 0.5 else size(random, 5)
    bias = sometimes(random, floats(random, 3 * width))
    before: list[np.ndarray | None] = [None, None]
    parts = [floats(random, batch, rows, width)]
    if cached:
        parts += [floats(random, batch, heads, keys, depth) for _ in range(2)]
    else:
        parts += [floats(random, batch, keys, width) for _ in range(2)]
        settings["unidirectional"] = int(keys == rows and random.random() < 0.5)
        if random.random() < 0.5:
            before = [floats(random, batch, heads, past, depth) for _ in range(2)]
            keys += past
    mask = padding(random, batch, rows, keys)
    mask = None if mask is not None and mask.shape == (2 * batch,) else mask
    extra = sometimes(random, floats(random, 1, heads, rows, keys))
    return Case("MultiHeadAttention", [*parts, bias, mask, extra, *before], settings, outputs=1 if cached else "yyy")


def embeddings(random: np.random.Generator) -> Case:
    batch, rows, width = size(random, 3), size(random, 5), size(random, 6)
    segments = sometimes(random, random.integers(0, 2, (batch, rows)).astype(np.int32))
    inputs = [
        random.integers(0, 9, (batch, rows)).astype(np.int32),
        segments,
        floats(random, 9, width),
        floats(random, 7, width),
        None if segments is None else floats(random, 2, width),
        floats(random, width),
        floats(random, width),
        sometimes(random, random.integers(0, 2, (batch, rows)).astype(np.int32)),
        sometimes(random, random.integers(0, 7, (random.choice([1, batch]), rows)).astype(np.int32)),
    ]
    return Case("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, outputs="yyy")


def grouped(random: np.random.Generator) -> Case:
    batch, groups, share, half = size(random, 3), size(random, 2), size(random, 3), 8
    heads, depth = groups * share, 2 * half
    prompt = random.random() < 0.4
    rows = size(random, 5) if prompt or batch == 1 else 1
    shared = random.random() < 0.5
    lengths = random.integers(1, rows + 1, batch) if prompt else random.integers(rows + 1, rows + 6, batch)
    if prompt:
        lengths[0] = rows
    total = int(lengths.max())
    room = total + 3 if shared else (0 if prompt else total - rows)
    if not prompt and not shared:
        lengths[:] = total
    inputs: list[np.ndarray | None] = [floats(random, batch, rows, heads * depth)]
    inputs += [floats(random, batch, rows, groups * depth) for _ in range(2)]
    if random.random() < 0.3:
        inputs = [np.concatenate(inputs, axis=-1), None, None]  # type: ignore[arg-type]
    inputs += [floats(random, batch, groups, room, depth) for _ in range(2)]
    inputs += [(lengths - 1).astype(np.int32), np.array(total, np.int32)]
    settings: dict[str, object] = {"num_heads": heads, "kv_num_heads": groups}
    if random.random() < 0.5:
        angles = floats(random, 12, half)
        inputs += [np.cos(angles), np.sin(angles)]
        settings |= {"do_rotary": 1, "rotary_interleaved": size(random, 1, 0)}
        inputs.append(sometimes(random, random.integers(0, 8, (batch, rows))))
    else:
        inputs += [None, None, None]
    inputs += [sometimes(random, floats(random, 1, heads, rows, total)), sometimes(random, floats(random, heads))]
    if random.random() < 0.5:
        settings["local_window_size"] = size(random, 4)
    if random.random() < 0.5:
        settings["softcap"] = 1.5
    if random.random() < 0.3 and inputs[-1] is None:
        settings["smooth_softmax"] = 1
    written = np.arange(max(room, total)) < lengths[:, None]
    valid = np.arange(rows) < lengths[:, None]
    counts = {"y0": valid[:, :, None], **dict.fromkeys(("y1", "y2"), written[:, None, :, None])}
    return Case("GroupQueryAttention", inputs, settings, outputs="yyy", counts=counts)


def packed(random: np.random.Generator) -> tuple[Case, dict[str, np.ndarray]]:
    """Queries, keys and values in one tensor, or keys and values: what they give as three."""
    q, k, v = (floats(random, 2, 3, 2, 4) for _ in range(3))
    apart = [x.reshape(2, 3, 8) for x in (q, k, v)]
    together = [np.stack((q, k, v), 3), None, None] if random.random() < 0.5 else [apart[0], np.stack((k, v), 3), None]
    plain = Case("MultiHeadAttention", apart, {"num_heads": 2})
    wanted = run_onnxruntime(plain.model(), plain.feeds())
    return Case("MultiHeadAttention", together, {"num_heads": 2}), wanted


def normalized(random: np.random.Generator) -> tuple[Case, dict[str, np.ndarray]]:
    """Queries and keys that are normalized first."""
    q, k, v = (floats(random, 1, 3, 32) for _ in range(3))
    weights = [floats(random, 16) for _ in range(2)]
    rest = [None, None, np.array([2], np.int32), np.array(3, np.int32)]
    settings = {"num_heads": 2, "kv_num_heads": 2}
    scaled = []
    for x, weight in zip((q, k), weights, strict=True):
        heads = x.reshape(1, 3, 2, 16)
        scaled.append((heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-6) * weight).reshape(x.shape))
    plain = Case("GroupQueryAttention", [*scaled, v, *rest], settings, outputs=3)
    wanted = run_onnxruntime(plain.model(), plain.feeds())
    inputs = [q, k, v, *rest, *[None] * 7, *weights]
    return Case("GroupQueryAttention", inputs, settings, outputs=3), wanted


OPERATORS: dict[str, Draw] = {
    "Attention": attention,
    "MultiHeadAttention": multi_head,
    "EmbedLayerNormalization": embeddings,
    "GroupQueryAttention": grouped,
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_agrees_with_onnxruntime(operator: str) -> None:
    for seed in range(DRAWS):
        agrees(OPERATORS[operator](np.random.default_rng(seed)), compiled=seed == 0)


@pytest.mark.parametrize("draw", [packed, normalized])
def test_agrees_with_another_form(draw: Callable[[np.random.Generator], tuple[Case, dict[str, np.ndarray]]]) -> None:
    for seed in range(DRAWS):
        agrees(*draw(np.random.default_rng(seed)))
