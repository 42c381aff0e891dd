"""LoRAs on small models: what the weights become, in any order of coming and going, and files that are wrong."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from frontend_models import model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from refitting import INPUTS, file_of, node, same, several, weights
from remarks import remarked
from test_dtypes import blocks_file

import graphc
from graphc.compiler import compile_program, refit, write
from graphc.errors import CheckpointError, EngineError, GraphcError, InputError
from graphc.ggml_types import narrowed, widened

RANDOM = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def seeded():
    """The same numbers for a test, whichever ran before."""
    RANDOM.bit_generator.state = np.random.default_rng(11).bit_generator.state


def some(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


BIG = {
    "first.weight": (8, 6),
    "first.bias": (8,),
    "conv.weight": (8, 4, 3, 3),
    "norm.weight": (8,),
    "gate.weight": (12, 8),
}
"""Parameters of `blocks`."""


def blocks(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A product, a convolution, a norm's scale, and two products with the halves of one weight."""
    nodes = [
        node("Gemm", ["x", "first.weight", "first.bias"], ["a"], transB=1),
        node("Tanh", ["a"], ["bent"]),
        node("Mul", ["bent", "norm.weight"], ["b"]),
        node("Transpose", ["gate.weight"], ["turned"], perm=[1, 0]),
        node("Split", ["turned"], ["left", "right"], axis=1, num_outputs=2),
        node("MatMul", ["b", "left"], ["l"]),
        node("MatMul", ["b", "right"], ["r"]),
        node("Tanh", ["r"], ["t"]),
        node("Mul", ["l", "t"], ["gated"]),
        node("Conv", ["image", "conv.weight"], ["features"]),
    ]
    inputs = [value("x", [5, 6]), value("image", [1, 4, 6, 6])]
    return model(nodes, inputs, ["gated", "features"], {name: parameters[name] for name in BIG}, opset=18)


FEED = {"x": some(5, 6), "image": some(1, 4, 6, 6)}
BASE = weights(1, BIG)


def low_rank(
    name: str, rows: int, columns: tuple[int, ...], rank: int = 2, alpha: float = 1.0
) -> dict[str, np.ndarray]:
    up = some(rows, rank, *[1] * (len(columns) - 1))
    return {
        f"{name}.lora_down.weight": some(rank, *columns),
        f"{name}.lora_up.weight": up,
        f"{name}.alpha": np.array(alpha, np.float32),
    }


def changed(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    return {**BASE, name: array.astype(np.float32)}


def outputs_with(parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return graphc.compile(blocks(parameters), threads=1).run(FEED)


def nearly(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=2e-6 * np.abs(array).max())


def norms(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.sqrt(np.square(array, dtype=np.float64).sum(axes, keepdims=True))


UP, DOWN, MID = some(8, 2), some(2, 6), some(3, 2, 3, 3)
CORE_UP, CORE_DOWN = some(8, 3, 1, 1), some(2, 4, 1, 1)
LENGTHS, WIDTHS = np.abs(some(8, 1)) + 1, np.abs(some(1, 4, 1, 1)) + 1
CONV_UP, CONV_DOWN = some(8, 2, 1, 1), some(2, 4, 3, 3)
CONV = np.einsum("or,rikl->oikl", CONV_UP[:, :, 0, 0], CONV_DOWN)
MIXED = np.einsum("or,rskl,si->oikl", CORE_UP[:, :, 0, 0], MID, CORE_DOWN[:, :, 0, 0])
FIRST, KERNEL = BASE["first.weight"], BASE["conv.weight"]
DIRECTION = FIRST + 0.5 * (UP @ DOWN)
COLUMNS = KERNEL + CONV


def rotations(blocks: np.ndarray, most: float = np.inf) -> np.ndarray:
    """Cayley's: of blocks minus themselves transposed, all together no longer than `most`."""
    skew = blocks.astype(np.float64) - blocks.swapaxes(-1, -2)
    skew *= min(1, most / np.linalg.norm(skew))
    return np.array([(np.eye(len(each)) + each) @ np.linalg.inv(np.eye(len(each)) - each) for each in skew])


def diagonal(blocks: np.ndarray) -> np.ndarray:
    """A matrix with these blocks along its diagonal."""
    count, size, _ = blocks.shape
    whole = np.zeros((count * size, count * size))
    for place in range(count):
        whole[place * size : place * size + size, place * size : place * size + size] = blocks[place]
    return whole


BLOCKS, SMALL, NUMBERS = some(2, 4, 4), 0.3 * some(2, 4, 4), 0.2 * some(2, 3)
SKEW = np.array([[[0, a, b], [-a, 0, c], [-b, -c, 0]] for a, b, c in NUMBERS.astype(np.float64)])
SERIES = np.eye(3) + 2 * SKEW + 2 * SKEW @ SKEW + 2 * SKEW @ SKEW @ SKEW + SKEW @ SKEW @ SKEW @ SKEW
IN_A, IN_B = some(4, 2), some(2, 4)
GENERAL = np.einsum("oikl,ij->ojkl", KERNEL, IN_A.astype(np.float64) @ IN_B)

CASES: dict[str, tuple[dict[str, np.ndarray], str, np.ndarray]] = {
    "alpha is divided by the rank": (
        {"first.lora_up.weight": UP, "first.lora_down.weight": DOWN, "first.alpha": np.float32(1)}, "first.weight", DIRECTION),
    "no alpha": ({"first.lora_up.weight": UP, "first.lora_down.weight": DOWN}, "first.weight", FIRST + UP @ DOWN),
    "an embedding": (
        {"first.lora_embedding_B": DOWN.T, "first.lora_embedding_A": UP.T}, "first.weight", FIRST + UP @ DOWN),
    "float16": (
        {"first.lora_up.weight": UP.astype(np.float16), "first.lora_down.weight": DOWN.astype(np.float16)}, "first.weight",
        FIRST + UP.astype(np.float16).astype(np.float64) @ DOWN.astype(np.float16)),
    "bfloat16": (
        {"first.lora_up.weight": UP.astype(ml_dtypes.bfloat16), "first.lora_down.weight": DOWN}, "first.weight",
        FIRST + UP.astype(ml_dtypes.bfloat16).astype(np.float64) @ DOWN),
    "a convolution": (
        {"conv.lora_up.weight": CONV_UP, "conv.lora_down.weight": CONV_DOWN}, "conv.weight", KERNEL + CONV),
    "a convolution with a core": (
        {"conv.lora_up.weight": CORE_UP, "conv.lora_down.weight": CORE_DOWN, "conv.lora_mid.weight": MID,
         "conv.alpha": np.float32(6)}, "conv.weight", KERNEL + 2 * MIXED),
    "both halves": (
        {"gate.lora_up.weight": (gate := some(12, 2)), "gate.lora_down.weight": (low := some(2, 8))}, "gate.weight",
        BASE["gate.weight"] + gate @ low),
    "lengths of rows": (
        {"first.lora_up.weight": UP, "first.lora_down.weight": DOWN, "first.alpha": np.float32(1), "first.dora_scale": LENGTHS},
        "first.weight", DIRECTION * LENGTHS / norms(DIRECTION, (1,))),
    "lengths of rows, as PEFT names them": (
        {"first.lora_B.weight": UP, "first.lora_A.weight": DOWN, "first.lora_magnitude_vector": LENGTHS[:, 0]},
        "first.weight", (FIRST + UP @ DOWN) * LENGTHS / norms(FIRST + UP @ DOWN, (1,))),
    "lengths of columns": (
        {"conv.lora_up.weight": CONV_UP, "conv.lora_down.weight": CONV_DOWN, "conv.dora_scale": WIDTHS},
        "conv.weight", COLUMNS * WIDTHS / norms(COLUMNS, (0, 2, 3))),
    "a product of blocks": (
        {"first.lokr_w1": (one := some(4, 2)), "first.lokr_w2": (two := some(2, 3)), "first.alpha": np.float32(5)},
        "first.weight", FIRST + np.kron(one, two)),
    "a product of blocks, one factored": (
        {"first.lokr_w1": one, "first.lokr_w2_a": UP[:2], "first.lokr_w2_b": DOWN[:, :3], "first.alpha": np.float32(1)},
        "first.weight", FIRST + 0.5 * np.kron(one, UP[:2] @ DOWN[:, :3])),
    "two products, element by element": (
        {"first.hada_w1_a": UP, "first.hada_w1_b": DOWN, "first.hada_w2_a": -UP, "first.hada_w2_b": DOWN},
        "first.weight", FIRST - (UP @ DOWN) ** 2),
    "the change itself": ({"conv.diff": CONV}, "conv.weight", KERNEL + CONV),
    "rows that are turned": (
        {"first.oft_blocks": BLOCKS}, "first.weight", diagonal(rotations(BLOCKS)).T @ FIRST),
    "rows that are turned no further than alpha says": (
        {"conv.oft_blocks": BLOCKS, "conv.alpha": np.float32(0.02)}, "conv.weight",
        np.einsum("po,pikl->oikl", diagonal(rotations(BLOCKS, 0.02 * 8)), KERNEL)),
    "rows that are turned in parts": (
        {"oft_unet_gate.oft_blocks.0": BLOCKS[:, :2, :2], "oft_unet_gate.oft_blocks.1": BLOCKS,
         "oft_unet_gate.alpha": np.float32(100)}, "gate.weight",
        np.concatenate([diagonal(rotations(BLOCKS[:, :2, :2])).T @ BASE["gate.weight"][:4],
                        diagonal(rotations(BLOCKS)).T @ BASE["gate.weight"][4:]])),
    "inputs that are turned": (
        {"first.oft_R.weight": NUMBERS}, "first.weight", FIRST @ diagonal(SERIES).T),
    "inputs that are turned less": (
        {"first.oft_R.weight": NUMBERS * np.float32(2 * 2**0.5), "first.oft_R.scaled_oft": np.array(True)}, "first.weight",
        FIRST @ diagonal(SERIES).T),
    "all inputs that are turned alike": (
        {"first.oft_R.weight": NUMBERS[:1]}, "first.weight", FIRST @ diagonal(SERIES[[0, 0]]).T),
    "a kernel's inputs that are turned": (
        {"conv.oft_R.weight": np.tile(NUMBERS, (6, 1))}, "conv.weight",
        (KERNEL.reshape(8, 36) @ diagonal(np.tile(SERIES, (6, 1, 1)))).reshape(KERNEL.shape)),
    "rows that are scaled": (
        {"conv.weight": LENGTHS.reshape(1, 8, 1, 1), "conv.on_input": np.array(0)}, "conv.weight",
        KERNEL * (1 + LENGTHS[:, :, None, None])),
    "inputs that are scaled": (
        {"conv.weight": WIDTHS, "conv.on_input": np.array(1)}, "conv.weight", KERNEL * (1 + WIDTHS)),
    "factors of the weight": (
        {"conv.a1.weight": IN_A[:, :, None, None], "conv.a2.weight": IN_B[:, :, None, None], "conv.b1.weight": CONV_UP,
         "conv.b2.weight": CONV_DOWN, "conv.alpha": np.float32(1)}, "conv.weight", KERNEL + 0.5 * (GENERAL + CONV)),
    "factors of the weight by their first names": (
        {"first.a2.weight": (wide := some(6, 2)), "first.a1.weight": (high := some(2, 6)), "first.b2.weight": UP,
         "first.b1.weight": DOWN}, "first.weight", FIRST + FIRST @ wide @ high + UP @ DOWN),
    "a bias beside a pair": (
        {"first.lora_B.bias": UP[:, 0]}, "first.bias", BASE["first.bias"] + UP[:, 0]),
    "lengths of rows in ai-toolkit's name": (
        {"first.lora_B.weight": UP, "first.lora_A.weight": DOWN, "first.magnitude": LENGTHS[:, 0]},
        "first.weight", (FIRST + UP @ DOWN) * LENGTHS / norms(FIRST + UP @ DOWN, (1,))),
    "a bias": ({"first.diff_b": UP[:, 0]}, "first.bias", BASE["first.bias"] + UP[:, 0]),
    "a norm": ({"norm.w_norm": UP[:, 0]}, "norm.weight", BASE["norm.weight"] + UP[:, 0]),
    "another weight": ({"first.set_weight": DIRECTION}, "first.weight", DIRECTION),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_a_weight_becomes(case: str) -> None:
    tensors, name, expected = CASES[case]
    found = graphc.compile(blocks(BASE), threads=1)
    before = found.run(FEED)
    lora = found.load_lora(tensors)
    assert (lora.parameters, lora.unmatched) == ([name], [])
    nearly(found.run(FEED), outputs_with(changed(name, expected)))
    found.set_lora({lora.name: 0.25})
    partly = BASE[name] + 0.25 * (expected - BASE[name])
    nearly(found.run(FEED), outputs_with(changed(name, partly)))
    found.set_lora({lora.name: 0})
    same(found.run(FEED), before)


def test_rows_that_are_turned_one_after_the_other() -> None:
    """BOFT: pairs of rows that are next to each other, then those two apart, then four; a part of it turns each by less."""
    levels, longer = some(3, 4, 2, 2), np.float32(1.5)
    pairs = [[0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 1, 3, 4, 6, 5, 7], [0, 4, 1, 5, 2, 6, 3, 7]]
    found = graphc.compile(blocks(BASE), threads=1)
    before = found.run(FEED)
    found.load_lora({"first.oft_blocks": levels, "first.rescale": np.full((8, 1), longer)}, name="turned")
    for strength in (1, 0.3):
        expected = FIRST.astype(np.float64)
        for places, level in zip(pairs, levels, strict=True):
            turned = np.eye(8) + strength * (diagonal(rotations(level)) - np.eye(8))
            expected[places] = turned @ expected[places]
        found.set_lora({"turned": strength})
        nearly(found.run(FEED), outputs_with(changed("first.weight", expected * (1 + strength * (longer - 1)))))
    found.unload_lora()
    same(found.run(FEED), before)


NAMES = ("a", "b", "c", "d")
FILES = {
    "a": {**low_rank("first", 8, (6,)), **low_rank("conv", 8, (4, 3, 3))},
    "b": {**low_rank("lora_unet_gate", 12, (8,)), **low_rank("lora_unet_first", 8, (6,))},
    "c": {**low_rank("first", 8, (6,)), "first.dora_scale": LENGTHS, "norm.w_norm": some(8)},
    "d": {"conv.diff": some(8, 4, 3, 3), "first.diff_b": some(8)},
}
OTHER = weights(2, BIG)
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from((-0.5, 0.0, 0.3, 1.0, 2.0)), st.booleans()), max_size=10
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "m.gguf"
    graphc.compile(blocks(BASE), path, threads=1).close()
    return path


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_the_way_makes_no_difference(engine: Path, steps: list[tuple[str, float, bool]]) -> None:
    """Whatever came and went: the same LoRAs give the same bits, and none those of before, also on other weights; and an engine
    that only has the stored weights those of a model that has the parameters."""
    found, fresh = graphc.load(engine, threads=1), graphc.compile(blocks(BASE), threads=1)
    before = found.run(FEED)
    strengths: dict[str, float] = {}
    for name, strength, stays in steps:
        if name not in strengths:
            found.load_lora(FILES[name], strength, name)
        elif stays:
            found.set_lora({name: strength})
        else:
            found.unload_lora(name)
            del strengths[name]
            continue
        strengths[name] = strength
    for name in sorted(strengths, reverse=True):
        fresh.load_lora(FILES[name], strengths[name], name)
    same(found.run(FEED), fresh.run(FEED))
    found.load_weights(OTHER)
    fresh.unload_lora()
    same(fresh.run(FEED), before)
    fresh.load_weights(OTHER)
    for name, strength in strengths.items():
        fresh.load_lora(FILES[name], strength, name)
    same(found.run(FEED), fresh.run(FEED))
    found.unload_lora()
    same(found.run(FEED), outputs_with(OTHER))
    found.load_weights(BASE)
    same(found.run(FEED), before)


def test_only_weights_that_change_are_computed() -> None:
    found = graphc.compile(blocks(BASE), threads=1)
    before = list(found.executor.arrays)
    found.load_lora(FILES["a"])
    names = [
        each.name
        for each, old, new in zip(found.program.weights, before, found.executor.arrays, strict=True)
        if old is not new
    ]
    assert names == ["first.weight", "conv.weight"]
    kept = list(found.executor.arrays)
    found.load_lora(FILES["d"], name="d")
    assert [new is old for old, new in zip(kept, found.executor.arrays, strict=True)].count(False) == 2
    found.unload_lora()
    assert all(new is old for old, new in zip(before, found.executor.arrays, strict=True))


def test_folded_weights_are_computed_again() -> None:
    """A convolution that took in a batch norm, a product that took in a scale: the parameters are the file's or checkpoint's."""
    parameters = weights(1)
    change = {
        "conv.lora_up.weight": some(5, 2, 1, 1),
        "conv.lora_down.weight": some(2, 3, 3, 3),
        "query.diff": some(6, 8),
    }
    product = np.einsum("orkl,rihw->oihw", change["conv.lora_up.weight"], change["conv.lora_down.weight"])
    expected = graphc.compile(
        several({**parameters, "conv.weight": parameters["conv.weight"] + product,
                 "query.weight": parameters["query.weight"] + change["query.diff"]}), threads=1,
    ).run(INPUTS)  # fmt: skip
    found = graphc.compile(several(parameters), threads=1)
    before = found.run(INPUTS)
    assert found.load_lora(change).parameters == ["conv.weight", "query.weight"]
    nearly(found.run(INPUTS), expected)
    found.unload_lora()
    same(found.run(INPUTS), before)


def test_an_engine_that_does_not_tell_its_parameters(tmp_path: Path) -> None:
    parameters, change = weights(1), {"query.diff": some(6, 8)}
    write(compile_program(several(parameters)), tmp_path / "m.gguf")
    checkpoint = file_of(tmp_path / "m.safetensors", parameters)
    found = graphc.load(tmp_path / "m.gguf", threads=1)
    before = found.run(INPUTS)
    lost = r"the weights in the engine do not tell gate, query\.weight, of which a LoRA is a change; give the checkpoint that"
    with pytest.raises(CheckpointError, match=lost):
        found.load_lora(change)
    with pytest.raises(CheckpointError, match=lost):
        refit(tmp_path / "m.gguf", None, tmp_path / "new.gguf", loras=[(change, 1.0)])
    assert not (tmp_path / "new.gguf").exists()
    same(found.run(INPUTS), before)
    found.load_lora({"table.norm.w_norm": some(6)}, name="told")
    found.unload_lora()
    expected = graphc.compile(
        several({**parameters, "query.weight": parameters["query.weight"] + change["query.diff"]}), threads=1
    ).run(INPUTS)
    given = graphc.load(tmp_path / "m.gguf", weights=checkpoint, threads=1)
    given.load_lora(change)
    found.load_weights(checkpoint)
    found.load_lora(change)
    for each in (given, found):
        nearly(each.run(INPUTS), expected)
        each.unload_lora()
        same(each.run(INPUTS), before)
    refit(tmp_path / "m.gguf", checkpoint, tmp_path / "new.gguf", loras=[(change, 1.0)])
    nearly(graphc.load(tmp_path / "new.gguf", threads=1).run(INPUTS), expected)


def test_an_engine_with_loras_is_written(tmp_path: Path) -> None:
    graphc.compile(blocks(BASE), tmp_path / "m.gguf", threads=1).close()
    found = graphc.load(tmp_path / "m.gguf", threads=1)
    file = file_of(tmp_path / "some.safetensors", FILES["d"])
    found.load_lora(file, 0.5)
    assert list(found.loras) == ["some"]
    found.save(tmp_path / "saved.gguf")
    refit(tmp_path / "m.gguf", None, tmp_path / "refitted.gguf", loras=[(file, 0.5)])
    refit(tmp_path / "m.gguf", OTHER, tmp_path / "other.gguf", loras=[(file, 0.5)])
    for name in ("saved", "refitted"):
        same(graphc.load(tmp_path / f"{name}.gguf", threads=1).run(FEED), found.run(FEED))
    assert (tmp_path / "saved.gguf").read_bytes() == (tmp_path / "refitted.gguf").read_bytes()
    found.load_weights(OTHER)
    same(graphc.load(tmp_path / "other.gguf", threads=1).run(FEED), found.run(FEED))


def test_weights_in_narrower_types(tmp_path: Path) -> None:
    """They are computed once from what they were, and only if that is given."""
    wide = {"w.weight": some(64, 64)}
    product = model([node("Gemm", ["x", "w.weight"], ["y"], transB=1)], [value("x", [2, 64])], ["y"], wide)
    feed, change = {"x": some(2, 64)}, {"w.diff": some(64, 64)}
    for dtype in ("q8_0", "f16"):
        graphc.compile(product, tmp_path / "m.gguf", dtype=f"*={dtype}", threads=1).close()
        found = graphc.load(tmp_path / "m.gguf", threads=1)
        before = found.run(feed)
        with pytest.raises(CheckpointError, match=r"do not tell w\.weight, of which"):
            found.load_lora(change)
        found.load_weights(wide)
        same(found.run(feed), before)
        found.load_lora(change, 0.5)
        merged = found.run(feed)
        found.unload_lora()
        same(found.run(feed), before)
        found.load_weights({"w.weight": wide["w.weight"] + np.float32(0.5) * change["w.diff"]})
        same(found.run(feed), merged)


def test_what_the_model_has_not_is_said() -> None:
    found = graphc.compile(blocks(BASE), threads=1)
    tensors = {
        **{f"lora_unet_{name}": array for name, array in FILES["a"].items()},
        "lora_unet_other.diff": some(2), "lora_unet_first.lora_mod": some(2, 2), "lora_te_first.diff": some(3),
    }  # fmt: skip
    with remarked(r"LoRA lora: the model has no lora_unet_other, lora_unet_first\.lora_mod$"):
        lora = found.load_lora(tensors)
    assert (lora.component, lora.unmatched) == ("denoiser", ["lora_unet_other", "lora_unet_first.lora_mod"])


def test_a_module_under_two_names_is_changed_once() -> None:
    """Files exist that have the model's own names and others; the others are said to be left over."""
    found, once = graphc.compile(blocks(BASE), threads=1), graphc.compile(blocks(BASE), threads=1)
    once.load_lora(FILES["d"])
    twice = {f"lora_unet_{name}": array for name, array in FILES["d"].items()}
    with remarked(r"the model has no unet\.unet\.conv$"):
        found.load_lora({**twice, "unet.unet.conv.diff": FILES["d"]["conv.diff"]})
    same(found.run(FEED), once.run(FEED))


def test_strengths_of_components() -> None:
    found = graphc.compile(blocks(BASE), threads=1)
    parts = {
        prefix: {f"{prefix}{name}": array for name, array in FILES["a"].items()}
        for prefix in ("lora_unet_", "lora_te2_", "lora_te_")
    }
    each = {"denoiser": 0.1, "text_encoder": 0.2}
    for prefix, strengths, expected in (
        ("lora_unet_", each, 0.1), ("lora_unet_", {"unet": 0.3}, 0.3), ("lora_unet_", {"text_encoder": 0.5}, 1.0),
        ("lora_te2_", each, 0.2), ("lora_te2_", {**each, "text_encoder_2": 0.7}, 0.7), ("lora_te_", each, 0.2),
    ):  # fmt: skip
        assert found.load_lora(parts[prefix], strengths, name="x").strength == expected
        found.set_lora({"x": {"transformer": 4, "text_encoder": 5}})
        assert found.loras["x"].strength == (4 if prefix == "lora_unet_" else 5)
        found.unload_lora("x")
    with pytest.raises(InputError, match="the file does not say of which component it is; give a number"):
        found.load_lora(FILES["a"], each)


WRONG: dict[str, tuple[Callable[[], dict[str, np.ndarray]], str]] = {
    "another base": (
        lambda: {f"lora_unet_{each}.diff": some(2) for each in "pqrs"},
        r"another base or component: it changes lora_unet_p, lora_unet_q, lora_unet_r, …, and the model has first\.weight, "),
    "no LoRA": (lambda: {"first.weight": some(8, 6)}, r"it is not a LoRA: it has first\.weight$"),
    "nothing": (dict, "it is not a LoRA: it has none$"),
    "embeddings": (lambda: {"bundle_emb.word.clip_l": some(2, 6)}, r"it is not a LoRA: it has bundle_emb\.word\.clip_l$"),
    "another width": (
        lambda: {**low_rank("first", 8, (7,)), **FILES["d"]},
        r"\n  first, for first\.weight: it is of \[8, 7\], must be \[8, 6\]$"),
    "another kernel": (lambda: low_rank("conv", 8, (4, 5, 5)), r"it is of \[8, 100\], must be \[8, 36\]"),
    "no up": (lambda: {"first.lora_down.weight": DOWN}, r"first.*: it has down without up$"),
    "no second half": (
        lambda: {"first.hada_w1_a": UP, "first.hada_w1_b": DOWN, "first.hada_w2_a": UP}, "without hada_w2_b$"),
    "ranks that differ": (
        lambda: {"first.lora_up.weight": UP, "first.lora_down.weight": some(3, 6)},
        r"its tensors do not fit together \(up \[8, 2\], down \[3, 6\]\)"),
    "rank 0": (
        lambda: {"first.lora_up.weight": UP[:, :0], "first.lora_down.weight": DOWN[:0]}, "it has a tensor without elements"),
    "a vector": (lambda: {"first.lora_up.weight": UP[0], "first.lora_down.weight": DOWN}, "its tensors do not fit together"),
    "alpha is not a number": (
        lambda: {**low_rank("first", 8, (6,)), "first.alpha": np.float32("nan")}, "its alpha is not a number"),
    "alphas": (lambda: {**low_rank("first", 8, (6,)), "first.alpha": some(2)}, "its alpha is not a number"),
    "not finite": (
        lambda: {"first.lora_up.weight": UP, "first.lora_down.weight": np.where(DOWN > 0, np.inf, DOWN)},
        "first: down has elements that are not numbers"),
    "a huge product": (
        lambda: {"first.lora_up.weight": some(1 << 20, 1), "first.lora_down.weight": some(1, 1 << 20)},
        r"it is of \[1048576, 1048576\], must be \[8, 6\]"),
    "huge blocks": (
        lambda: {"first.lokr_w1": some(1 << 10, 1 << 10), "first.lokr_w2": some(1 << 10, 1 << 10)},
        r"it is of \[1048576, 1048576\], must be \[8, 6\]"),
    "other lengths": (
        lambda: {**low_rank("first", 8, (6,)), "first.dora_scale": some(5, 1)},
        r"its magnitude \[5, 1\] does not fit \[8, 6\]"),
    "the same twice": (
        lambda: {**low_rank("first", 8, (6,)), "first.lora_A.weight": DOWN},
        r"first\.lora_A\.weight: another tensor says the same of this module"),
    "text": (lambda: {"first.diff": np.array(["a", "b"])}, r"first\.diff: it has str.*, no numbers of a LoRA"),
    "a name without end": (
        lambda: {"base_model.model." * 5000 + "x.diff": some(2)}, "it is a LoRA of another base"),
    "a kind that is not known": (
        lambda: {**FILES["a"], "first.lambda_layer": some(1, 2)},
        r"first\.lambda_layer: it is a part of a T-LoRA, which cannot be applied$"),
    "turned lengths": (
        lambda: {"first.oft_blocks": BLOCKS, "first.dora_scale": LENGTHS}, "first: an OFT with DoRA is no kind that is known"),
    "rotations of nothing": (
        lambda: {"first.oft_R.weight": some(2, 4)}, r"oft_R \[2, 4\] has no numbers of rotations"),
    "rotations of more inputs": (
        lambda: {"first.oft_R.weight": some(3, 3)}, r"it is of \[8, 9\], must be \[8, 6\]"),
    "rotations of fewer rows": (
        lambda: {"first.oft_blocks": some(2, 2, 2)}, r"it is of \[4, 6\], must be \[8, 6\]"),
    "other rescaling": (
        lambda: {"first.oft_blocks": BLOCKS, "first.rescale": some(3, 1)}, r"its rescale \[3, 1\] does not fit \[8, 6\]"),
    "factors of fewer inputs": (
        lambda: {"conv.a1.weight": IN_A, "conv.a2.weight": IN_B, "conv.b1.weight": some(8, 2), "conv.b2.weight": some(2, 27)},
        r"its tensors do not fit together \(of 27 and of 36 columns\)"),
    "parts of nothing": (lambda: {"first.alpha": np.float32(1)}, "first.*: alpha together are no kind of LoRA that is known"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_message_and_changes_nothing(case: str, tmp_path: Path) -> None:
    tensors, message = WRONG[case]
    found = graphc.compile(blocks(BASE), tmp_path / "m.gguf", threads=1)
    found.load_lora(FILES["a"], 0.5, "a")
    before, arrays = found.run(FEED), list(found.executor.arrays)
    with pytest.raises(CheckpointError, match=message):
        found.load_lora(tensors(), name="b")
    assert list(found.loras) == ["a"]
    assert all(new is old for old, new in zip(arrays, found.executor.arrays, strict=True))
    same(found.run(FEED), before)
    with pytest.raises(CheckpointError, match=message):
        refit(tmp_path / "m.gguf", None, tmp_path / "new.gguf", loras=[(tensors(), 1.0)])
    assert not (tmp_path / "new.gguf").exists()


def test_many_problems_are_a_few_lines() -> None:
    shapes = {f"m{index}.weight": (2, 2) for index in range(20)}
    nodes = [node("Sum", list(shapes), ["s"]), node("MatMul", ["x", "s"], ["y"])]
    found = graphc.compile(model(nodes, [value("x", [2, 2])], ["y"], weights(1, shapes)), threads=1)
    with pytest.raises(CheckpointError) as caught:
        found.load_lora({f"m{index}.diff": some(3, 3) for index in range(20)})
    lines = str(caught.value).split("\n  ")
    assert len(lines) == 10
    assert lines[-1] == "and 12 more"


def test_names_and_strengths_are_checked() -> None:
    found = graphc.compile(blocks(BASE), threads=1)
    found.load_lora(FILES["a"], name="a")
    before = found.run(FEED)
    for call, message in (
        (
            lambda: found.load_lora(FILES["b"], name="a"),
            "a LoRA 'a' is loaded; unload it, or give this one another name",
        ),
        (lambda: found.load_lora(FILES["b"], float("nan")), "strength nan is not a number"),
        (lambda: found.load_lora(FILES["b"], "much"), "strength 'much' is not a number"),
        (lambda: found.load_lora(FILES["b"], {"vae": 1}), "strengths 'vae': its names are no components"),
        (lambda: found.set_lora({"b": 1}), "no LoRA 'b' is loaded; there is a"),
        (lambda: found.set_lora({"a": float("inf")}), "strength inf is not a number"),
        (lambda: found.unload_lora("b"), "no LoRA 'b' is loaded"),
    ):
        with pytest.raises(InputError, match=message):
            call()
        same(found.run(FEED), before)


def test_pinned_parameters_are_not_changed() -> None:
    ones = {"w.weight": some(3, 4), "scale.weight": np.ones((2, 4), np.float32)}
    nodes = [node("MatMul", ["x", "w.weight"], ["y"]), node("Mul", ["y", "scale.weight"], ["z"])]
    found = graphc.compile(model(nodes, [value("x", [2, 3])], ["z"], ones), threads=1)
    with pytest.raises(
        CheckpointError, match=r"scale\.weight: the program relies on its numbers; compile the model with"
    ):
        found.load_lora({"scale.diff": some(2, 4), "w.diff": some(3, 4)})


def test_an_engine_of_before_has_no_recipes(tmp_path: Path) -> None:
    program = compile_program(blocks(BASE))
    program.recipes = ""
    write(program, tmp_path / "m.gguf")
    with pytest.raises(EngineError, match="it does not say how its weights are made"):
        graphc.load(tmp_path / "m.gguf", threads=1).load_lora(FILES["a"])


def safetensors(path: Path, header: Mapping[str, Any], data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_settings_of_peft(tmp_path: Path) -> None:
    """Alpha and rank of each module, by how names end; a transposed weight; settings that are not valid."""
    tensors = {f"base_model.model.{name}": array for name, array in {
        "first.lora_A.weight": DOWN, "first.lora_B.weight": UP, "gate.lora_A.default.weight": some(3, 8),
        "gate.lora_B.default.weight": some(12, 3),
    }.items()}  # fmt: skip
    file_of(tmp_path / "adapter_model.safetensors", tensors)
    config = {"r": 2, "lora_alpha": 8, "rank_pattern": {"gate": 3}, "alpha_pattern": {"^gate$": 12}}
    gate = (
        tensors["base_model.model.gate.lora_B.default.weight"] @ tensors["base_model.model.gate.lora_A.default.weight"]
    )
    found = graphc.compile(blocks(BASE), threads=1)
    for more, first, other in (({}, 4, 4), ({"use_rslora": True}, 8 / 2**0.5, 12 / 3**0.5)):
        (tmp_path / "adapter_config.json").write_text(json.dumps({**config, **more}))
        expected = {
            **BASE,
            "first.weight": FIRST + first * (UP @ DOWN),
            "gate.weight": BASE["gate.weight"] + other * gate,
        }
        for place in (tmp_path, tmp_path / "adapter_model.safetensors"):
            found.load_lora(place, name="x")
            nearly(found.run(FEED), outputs_with({name: array.astype(np.float32) for name, array in expected.items()}))
            found.unload_lora()
    for text in (
        "[]",
        "{",
        json.dumps({**config, "r": 0}),
        json.dumps({**config, "lora_alpha": "x"}),
        '{"r": 1, "alpha": NaN}',
    ):
        (tmp_path / "adapter_config.json").write_text(text)
        with pytest.raises(CheckpointError, match="settings"):
            found.load_lora(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    found = graphc.compile(blocks(BASE), threads=1)
    huge = {"first.diff": {"dtype": "F32", "shape": [1 << 40, 8], "data_offsets": [0, 1 << 45]}}
    for header in (huge, {"__metadata__": {"lora_adapter_metadata": "["}}):
        path = safetensors(tmp_path / "bad.safetensors", header)
        with pytest.raises(GraphcError, match=r"^[^\n]*bad\.safetensors: [^\n]*$") as caught:
            found.load_lora(path)
        assert str(caught.value).count("bad.safetensors") == 1
    with pytest.raises(CheckpointError, match=r"none\.safetensors: no such file"):
        found.load_lora(tmp_path / "none.safetensors")


def test_loras_on_the_command_line(graphc_command, engine: Path, tmp_path: Path) -> None:
    first = file_of(tmp_path / "first.safetensors", {**FILES["a"], "lost.diff": some(2)})
    second = file_of(tmp_path / "second:2.safetensors", FILES["d"])
    np.savez(tmp_path / "in.npz", **FEED)
    loras = ("--lora", f"{first}:0.5", "--lora", second)
    found = graphc.load(engine, threads=1)
    found.load_lora(FILES["a"], 0.5, "a")
    found.load_lora(FILES["d"], 1, "d")
    expected = found.run(FEED)
    done = graphc_command("run", engine, *loras, "--inputs", tmp_path / "in.npz", "-o", "out.npz")
    assert done.status == 0, done.err
    assert "first.safetensors: 0.5 of the changes of 2 parameters\n" in done.err
    assert "first.safetensors: the model has no lost\n" in done.err
    assert "second:2.safetensors: 1 of the changes of 2 parameters\n" in done.err
    same(dict(np.load("out.npz")), expected)
    done = graphc_command("refit", engine, *loras, "-o", "new.gguf")
    assert done.status == 0, done.err
    assert re.fullmatch(r"new\.gguf: the weights of .*m\.gguf, with LoRAs\n", done.out)
    same(graphc.load("new.gguf", threads=1).run(FEED), expected)
    done = graphc_command("refit", engine, file_of(tmp_path / "c.safetensors", BASE), *loras, "-o", "same.gguf")
    assert done.status == 0, done.err
    assert Path("same.gguf").read_bytes() == Path("new.gguf").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("refit", "-o", "new.gguf"), "give a checkpoint, a LoRA with --lora, or"),
        (("refit", "--lora", "none.safetensors:0.5", "-o", "new.gguf"), "none.safetensors: no such file"),
        (("refit", "--lora", "bad.safetensors", "-o", "new.gguf"), "bad.safetensors: it is not a LoRA: it has w"),
        (("refit", "--lora", "bad.safetensors", "-o", "bad.safetensors"), "would overwrite a LoRA"),
        (("run", "--random", "1", "--lora", "bad.safetensors:2"), "bad.safetensors: it is not a LoRA: it has w"),
        (("run", "--random", "1", "--lora", "x:nan"), "x: no such file"),
    ],
)
def test_a_bad_lora_is_one_message(graphc_command, engine: Path, arguments: tuple[str, ...], message: str) -> None:
    file_of(Path("bad.safetensors"), {"w": some(2)})
    done = graphc_command(arguments[0], engine, *arguments[1:])
    assert done.status == 1
    assert message in done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert not Path("new.gguf").exists()


HALVED = {"a.weight": (128, 64), "b.weight": (64, 64), "c.weight": (6, 4, 3, 3), "d.weight": (5, 6, 1, 1)}
STORED = weights(3, HALVED)
PAIRS = {
    "one": {**low_rank("a", 128, (64,), rank=4, alpha=0.2), **low_rank("b", 64, (64,), rank=3, alpha=0.2)},
    "two": {
        **low_rank("a", 128, (64,), rank=1, alpha=0.3),
        **low_rank("c", 6, (4, 3, 3)),
        **low_rank("d", 5, (6,), rank=3),
    },
}
X = {"x": some(5, 64), "image": some(2, 4, 7, 9)}


def gated(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Products with the halves of one weight, and with another."""
    nodes = [
        node("Transpose", ["a.weight"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["h"]),
        node("Split", ["h"], ["left", "right"], axis=1, num_outputs=2),
        node("Tanh", ["right"], ["bent"]),
        node("Mul", ["left", "bent"], ["gated"]),
        node("Gemm", ["gated", "b.weight"], ["y"], transB=1),
        node("Conv", ["image", "c.weight"], ["c"], strides=[2, 2], pads=[1, 0, 1, 0]),
        node("Relu", ["c"], ["positive"]),
        node("Conv", ["positive", "d.weight"], ["z"]),
    ]
    inputs = [value("x", [5, 64]), value("image", [2, 4, 7, 9])]
    return model(nodes, inputs, ["y", "z"], parameters, opset=18)


def asked(type: str) -> list[str]:
    """That type for products, and float16 for convolutions, which take no other."""
    return [type.lower(), "[cd].weight=f16"]


def held(type: str) -> dict[str, np.ndarray]:
    """The parameters as they are stored."""
    types = {name: type if array.ndim == 2 else "F16" for name, array in STORED.items()}
    return {name: widened(types[name], narrowed(types[name], array), array.shape) for name, array in STORED.items()}


def with_pairs(parameters: Mapping[str, np.ndarray], strengths: Mapping[str, float]) -> dict[str, np.ndarray]:
    found = dict(parameters)
    for name, strength in strengths.items():
        for module in "abcd":
            if f"{module}.alpha" in PAIRS[name]:
                up, down, alpha = (
                    PAIRS[name][f"{module}.{each}"] for each in ("lora_up.weight", "lora_down.weight", "alpha")
                )
                scaled = up.reshape(len(up), -1) * np.float32(strength * alpha / len(down))
                change = scaled @ down.reshape(len(down), -1)
                found[f"{module}.weight"] = found[f"{module}.weight"] + change.reshape(STORED[f"{module}.weight"].shape)
    return found


@pytest.mark.parametrize("type", ["Q8_0", "Q4_0", "F16"])
def test_beside_weights_in_narrower_types(type: str, tmp_path: Path) -> None:
    """What the engine holds stays as it is, and the numbers are those of it with the change, not quantized again."""
    graphc.compile(gated(STORED), tmp_path / "m.gguf", dtype=asked(type), threads=1).close()
    found, exact = graphc.load(tmp_path / "m.gguf", threads=1), graphc.compile(gated(STORED), threads=1)
    before, arrays, count = found.run(X), list(found.executor.arrays), len(found.program.weights)

    def agrees(strengths: Mapping[str, float]) -> None:
        exact.load_weights(with_pairs(held(type), strengths))
        for name, expected in exact.run(X).items():
            np.testing.assert_allclose(found.run(X)[name], expected, rtol=0, atol=2e-5 * np.abs(expected).max())
        assert all(new is old for old, new in zip(arrays, found.executor.arrays, strict=False))

    agrees({})
    found.load_lora(PAIRS["one"], 0.7, "one")
    agrees({"one": 0.7})
    found.load_lora(PAIRS["two"], -2, "two")
    agrees({"one": 0.7, "two": -2})
    found.set_lora({"one": 0, "two": 3})
    agrees({"two": 3})
    program = found.program
    found.set_lora({"one": 2})
    assert found.program is program
    agrees({"one": 2, "two": 3})
    both = found.run(X)
    found.save(tmp_path / "saved.gguf")
    loras = [
        (file_of(tmp_path / f"{name}.safetensors", PAIRS[name]), strength)
        for name, strength in (("one", 2), ("two", 3))
    ]
    refit(tmp_path / "m.gguf", None, tmp_path / "refitted.gguf", loras=loras)
    assert (tmp_path / "saved.gguf").read_bytes() == (tmp_path / "refitted.gguf").read_bytes()
    saved = graphc.load(tmp_path / "saved.gguf", threads=1)
    same(saved.run(X), both)
    saved.load_weights({name: array * 2 for name, array in STORED.items()})
    assert np.any(saved.run(X)["y"] != both["y"])
    found.unload_lora("one")
    agrees({"two": 3})
    found.unload_lora()
    assert len(found.program.weights) == count
    same(found.run(X), before)


def test_only_pairs_go_beside(tmp_path: Path) -> None:
    graphc.compile(gated(STORED), tmp_path / "m.gguf", dtype=asked("q8_0"), threads=1).close()
    found = graphc.load(tmp_path / "m.gguf", threads=1)
    before = found.run(X)
    found.load_lora(PAIRS["two"], name="two")
    two = found.run(X)
    for tensors in (
        {**PAIRS["one"], "a.dora_scale": some(128, 1)}, {"b.diff": some(64, 64)},
        {"b.lokr_w1": some(8, 8), "b.lokr_w2": some(8, 8)},
    ):  # fmt: skip
        with pytest.raises(
            CheckpointError, match=r"do not tell [ab]\.weight, of which a LoRA is a change; .*, not quantized"
        ):
            found.load_lora(tensors)
        same(found.run(X), two)
    found.unload_lora()
    same(found.run(X), before)


def test_blocks_of_a_checkpoint_stay_as_they_are(tmp_path: Path) -> None:
    """A checkpoint that is quantized does not tell what it was before either; float weights of it do."""
    path, numbers = blocks_file(tmp_path / "c.gguf", {name: STORED[name] for name in ("a.weight", "b.weight")}, "Q4_0")
    graphc.compile(gated(STORED), tmp_path / "m.gguf", dtype=asked("q4_0"), threads=1).close()
    found, wide = graphc.load(tmp_path / "m.gguf", threads=1), graphc.compile(gated(STORED), threads=1)
    for each, count in ((found, 11), (wide, 5)):
        each.load_weights(path, strict=False)
        each.load_lora(PAIRS["one"], 0.5, "one")
        assert len(each.program.weights) == count
    exact = graphc.compile(gated(with_pairs({**STORED, **numbers}, {"one": 0.5})), threads=1)
    expected = exact.run(X)["y"]
    for each in (found, wide):
        np.testing.assert_allclose(each.run(X)["y"], expected, rtol=0, atol=2e-5 * np.abs(expected).max())
    found.load_weights(STORED)
    assert len(found.program.weights) == 5
    graphc.compile(
        gated(with_pairs(STORED, {"one": 0.5})), tmp_path / "new.gguf", dtype=asked("q4_0"), threads=1
    ).close()
    expected = graphc.load(tmp_path / "new.gguf", threads=1).run(X)["y"]
    np.testing.assert_allclose(found.run(X)["y"], expected, rtol=0, atol=1e-2 * np.abs(expected).max())


def test_beside_weights_of_which_products_read_columns(tmp_path: Path) -> None:
    """A product with rows that were joined is two, each with a part of every row of the weight."""
    nodes = [node("Concat", ["x", "z"], ["c"], axis=1), node("Gemm", ["c", "w.weight"], ["y"], transB=1)]
    inputs = [value("x", [5, 256]), value("z", [5, 512])]
    weights = {"w.weight": some(256, 768)}
    graphc.compile(model(nodes, inputs, ["y"], weights), tmp_path / "m.gguf", dtype="q8_0", threads=1).close()
    found = graphc.load(tmp_path / "m.gguf", threads=1)
    assert [weight.shape for weight in found.program.weights] == [(256, 256), (256, 512)]
    given = {"x": some(5, 256), "z": some(5, 512)}
    before = found.run(given)
    tensors = low_rank("w", 256, (768,))
    found.load_lora(tensors, 0.5)
    change = 0.5 * 0.5 * tensors["w.lora_up.weight"] @ tensors["w.lora_down.weight"]
    nearly(found.run(given), {"y": before["y"] + np.concatenate([given["x"], given["z"]], axis=1) @ change.T})
    found.unload_lora()
    same(found.run(given), before)


def test_beside_weights_that_branches_read(tmp_path: Path) -> None:
    parameters = {"w.weight": some(64, 64), "s.weight": some(64, 64)}
    bodies = [
        helper.make_graph(
            [node("Gemm", ["x", name], [f"{name}_y"], transB=1)], name[0], [], [value(f"{name}_y", [2, 64])]
        )
        for name in parameters
    ]
    choice = node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    either = model([choice], [value("c", [], np.bool_), value("x", [2, 64])], ["y"], parameters)
    graphc.compile(either, tmp_path / "m.gguf", dtype="f16", threads=1).close()
    found, x = graphc.load(tmp_path / "m.gguf", threads=1), some(2, 64)
    runs = [{"c": np.array(chosen), "x": x} for chosen in (True, False)]
    before = [found.run(each) for each in runs]
    tensors = low_rank("w", 64, (64,))
    found.load_lora(tensors, 0.5)
    change = 0.5 * 0.5 * tensors["w.lora_up.weight"] @ tensors["w.lora_down.weight"]
    nearly(found.run(runs[0]), {"y": before[0]["y"] + x @ change.T})
    same(found.run(runs[1]), before[1])
    found.unload_lora()
    for each, expected in zip(runs, before, strict=True):
        same(found.run(each), expected)


def test_weights_that_a_lora_cannot_be_on_are_not_loaded(tmp_path: Path) -> None:
    path, _ = blocks_file(tmp_path / "c.gguf", {name: STORED[name] for name in ("a.weight", "b.weight")}, "Q4_0")
    graphc.compile(gated(STORED), tmp_path / "m.gguf", dtype=asked("q4_0"), threads=1).close()
    found = graphc.load(tmp_path / "m.gguf", weights=STORED, threads=1)
    found.load_lora({"b.diff": some(64, 64)}, 0.5, "whole")
    before = found.run(X)
    with pytest.raises(CheckpointError, match=r"do not tell b\.weight, of which a LoRA is a change"):
        found.load_weights(path, strict=False)
    same(found.run(X), before)
    found.set_lora({"whole": 0.25})
    found.set_lora({"whole": 0.5})
    same(found.run(X), before)
