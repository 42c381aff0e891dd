"""Weights in narrower types: what they hold, what a run makes of them, which layers keep theirs, and what is said of the rest."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from frontend_models import model, value
from gguf import GGMLQuantizationType, GGUFWriter
from onnx import helper
from refitting import file_of, same
from remarks import remarked, silent
from rule_graphs import FIRES

import graphc
from graphc.cli import main
from graphc.compiler import Settings, compile_program, refit, write
from graphc.errors import CheckpointError, EngineError, GraphcError, InputError
from graphc.ggml_types import GUIDED, QUANTIZED, TYPES, fits, narrowed, quantize, widened
from graphc.graph_text import parse_graph
from graphc.ir.graph import Graph, Origin, Value
from graphc.ir.types import TensorType
from graphc.ops.base import Op
from graphc.ops.movement import Concat, Reshape, Slice, Transpose
from graphc.ops.pointwise import Unary
from graphc.optimize import optimize
from graphc.rewrite.engine import Log
from graphc.runtime.model import Model
from graphc.targets.ggml.cpp import render_project
from graphc.targets.ggml.engine import read_stripped_engine
from graphc.targets.ggml.lowering.dtypes import NAMES, NEXT, Dtypes
from graphc.targets.ggml.program.text import read_text, write_text
from graphc.weights.checkpoint import open_checkpoint
from graphc.weights.formats.blocks import Blocks
from graphc.weights.moving import moved
from graphc.weights.recipes import recipes_of

node = helper.make_node

SHAPES = {
    "table.weight": (24, 512), "norm.weight": (512,), "up.weight": (512, 768), "up.bias": (768,), "down.weight": (768, 512),
    "odd.weight": (512, 80), "thin.weight": (80, 96), "first.weight": (8, 3, 3, 3), "middle.weight": (64, 8, 3, 3),
    "last.weight": (9, 64, 3, 3),
}  # fmt: skip
"""Parameters of `several`; those of products are exported as they are multiplied, not as they are stored."""


def weights(seed: int, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> dict[str, np.ndarray]:
    """Seeded parameters."""
    random = np.random.default_rng(seed)
    return {name: (random.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}


def several(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A table, products with rows of several lengths, three convolutions."""
    nodes = [
        node("Gather", ["table.weight", "ids"], ["rows"]),
        node("Mul", ["rows", "norm.weight"], ["x"]),
        node("MatMul", ["x", "up.weight"], ["up"]),
        node("Add", ["up", "up.bias"], ["sum"]),
        node("MatMul", ["sum", "down.weight"], ["down"]),
        node("MatMul", ["down", "odd.weight"], ["odd"]),
        node("MatMul", ["odd", "thin.weight"], ["scores"]),
        node("Conv", ["image", "first.weight"], ["a"], pads=[1] * 4),
        node("Conv", ["a", "middle.weight"], ["b"], pads=[1] * 4),
        node("Conv", ["b", "last.weight"], ["features"], pads=[1] * 4),
    ]
    inputs = [value("ids", [6], np.int64), value("image", [1, 3, 12, 12])]
    return model(nodes, inputs, ["scores", "features"], parameters)


INPUTS = {
    "ids": np.array([0, 3, 9, 3, 23, 1]),
    "image": np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32),
}


def types(found: Model) -> dict[str, str]:
    """The type of each weight, by the parameter that it is made of."""
    reads = recipes_of(found.program).reads
    return {
        read[0].parameter: weight.type_name for weight, read in zip(found.program.weights, reads, strict=True) if read
    }


def dequantized(found: Model) -> dict[str, np.ndarray]:
    """The numbers that a model's weights stand for, by parameter."""
    weights = zip(found.program.weights, recipes_of(found.program).reads, found.executor.arrays, strict=True)
    return {
        read[0].parameter: widened(weight.tensor.type, array, weight.shape) if weight.narrow else array
        for weight, read, array in weights
    }


# What is stored, and what a run makes of it


def rounding(type: str, x: np.ndarray, weight: np.ndarray, own: bool) -> np.ndarray:
    """How far a product of float32 rows with a weight of this type [N, K] may be from that with its numbers.

    Code of our own sums in float32, as whatever computes the exact product here. ggml rounds rows to float16 or bfloat16
    beside such weights. Beside blocks it makes blocks of 32 of 8 bits of them (of 256 for types with blocks of that size):
    each element is off by half a step, the largest element of the block over 127; the step itself is rounded to float16, and
    so is the sum of a block for types with an offset, which is at most the largest weight of the block.
    """
    rows = np.abs(x).astype(np.float64)
    count = rows.shape[-1]
    if own or type == "F32":
        error = np.zeros_like(rows)
    elif type in ("F16", "BF16"):
        error = rows * 2.0 ** (-11 if type == "F16" else -9)
    else:
        size = 256 if TYPES[type].elements == 256 else 32
        largest = rows.reshape(*rows.shape[:-1], -1, size).max(-1, keepdims=True)
        error = np.broadcast_to(largest * (0.5 / 127 + 2.0**-11), (*largest.shape[:-1], size)).reshape(rows.shape)
        if type in ("Q4_1", "Q5_1"):
            error = error + np.repeat(largest[..., 0], size, -1) * 2.0**-10
    largest_weight = np.abs(weight).astype(np.float64)
    if type in ("Q4_1", "Q5_1"):
        blocks = largest_weight.reshape(len(weight), -1, 32)
        largest_weight = np.broadcast_to(blocks.max(-1, keepdims=True), blocks.shape).reshape(largest_weight.shape)
    sums = rows @ np.abs(weight).astype(np.float64).T
    return error @ largest_weight.T + count * 2.0**-24 * sums


def runs(found: Model, own: bool) -> Model:
    """The model, with code of our own or by ggml's products alone, as on other devices than the CPU."""
    if own and found.executor.own is None:
        pytest.skip("needs a C compiler")
    found.executor.uses_own = own
    return found


@pytest.mark.parametrize("own", [True, False], ids=["own", "ggml"])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(
    "type", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("IQ1_M", "IQ2_S"))) for name in NAMES]
)
def test_a_product_is_that_with_the_numbers_stored(type: str, rows: int, own: bool) -> None:
    parameters = weights(1, {"w": (512, 96)})
    x = np.random.default_rng(2).standard_normal((rows, 512)).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [rows, 512])], ["y"], parameters)
    found = graphc.compile(proto, dtype=type.lower(), threads=1)
    (weight,), (stored,) = found.program.weights, found.executor.arrays
    assert weight.tensor.type == type
    numbers = dequantized(found)["w"]
    if type in QUANTIZED:
        assert np.array_equal(stored, quantize(type, parameters["w"].T))
    y = runs(found, own).run({"x": x})["y"]
    exact = x.astype(np.float64) @ numbers.astype(np.float64).T
    assert np.all(np.abs(y - exact) <= rounding(type, x, numbers, own))
    others = np.abs(numbers - parameters["w"].T).max() > 0
    assert others == (type != "F32"), "a narrower type has other numbers"


@pytest.mark.parametrize("type", ["F16", "BF16", "Q8_0", "Q4_K", "IQ4_NL"])
def test_a_table_has_the_numbers_stored(type: str) -> None:
    parameters = weights(1, {"w": (40, 256)})
    proto = model([node("Gather", ["w", "ids"], ["y"])], [value("ids", [5], np.int64)], ["y"], parameters)
    found = graphc.compile(proto, dtype={"w": type.lower()})
    ids = np.array([0, 7, 39, 7, -1])
    assert types(found) == {"w": type.lower()}
    assert np.array_equal(found.run(ids=ids)["y"], dequantized(found)["w"][ids])


def test_a_narrow_model_has_the_bits_of_the_float_one_with_its_numbers() -> None:
    parameters = weights(1, {"w": (512, 96), "kernel": (16, 64, 3, 3)})
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Conv", ["image", "kernel"], ["z"])]
    inputs = [value("x", [64, 512]), value("image", [1, 64, 20, 20])]
    narrow = runs(
        graphc.compile(model(nodes, inputs, ["y", "z"], parameters), dtype={"w": "q4_k", "kernel": "f16"}), True
    )
    numbers = dequantized(narrow)
    wide = graphc.compile(model(nodes, inputs, ["y", "z"], {**numbers, "w": np.ascontiguousarray(numbers["w"].T)}))
    random = np.random.default_rng(2)
    feed = {"x": random.standard_normal((64, 512)), "image": random.standard_normal((1, 64, 20, 20))}
    feed = {name: array.astype(np.float32) for name, array in feed.items()}
    same(narrow.run(feed), wide.run(feed))


@pytest.mark.parametrize("own", [True, False], ids=["own", "ggml"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_convolution_has_kernels_of_float16(size: int, own: bool) -> None:
    parameters = weights(1, {"w": (24, 64, size, size)})
    x = np.random.default_rng(2).standard_normal((1, 64, 9, 8)).astype(np.float32)
    conv = node("Conv", ["x", "w"], ["y"], pads=[size // 2] * 4)
    proto = model([conv], [value("x", x.shape)], ["y"], parameters)
    found = graphc.compile(proto, dtype={"w": "q8_0"})
    assert types(found) == {"w": "f16"}
    kernel = dequantized(found)["w"]
    assert np.array_equal(kernel, parameters["w"].astype(np.float16))

    def convolved(image: np.ndarray, by: np.ndarray) -> np.ndarray:
        padded = np.pad(image.astype(np.float64), [(0, 0), (0, 0), *[(size // 2, size // 2)] * 2])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
        return np.einsum("nchwij,ocij->nohw", windows, by.astype(np.float64))

    rounded = 64 * size * size * 2.0**-24 + (0 if own else 2.0**-11)
    bound = convolved(np.abs(x), np.abs(kernel)) * rounded
    assert np.all(np.abs(runs(found, own).run(x=x)["y"] - convolved(x, kernel)) <= bound)


def test_what_float16_cannot_hold_is_refused() -> None:
    proto = several({**weights(1), "up.weight": weights(1)["up.weight"] * 1e6})
    with pytest.raises(GraphcError, match=r"weight up\.weight: \d+ is larger than any number of f16; .* --dtype"):
        graphc.compile(proto, dtype="f16")
    assert types(graphc.compile(proto, dtype=["f16", "up*=bf16"]))["up.weight"] == "bf16"
    with pytest.raises(GraphcError, match=r"weight up\.weight: an element that is not finite"):
        graphc.compile(several({**weights(1), "up.weight": np.full((512, 768), np.inf, np.float32)}), dtype="q8_0")


# Which weights


KEPT = {"table.weight": "f16", "norm.weight": "float32", "up.bias": "float32", "first.weight": "float32",
        "last.weight": "float32"}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("q8_0", {"up.weight": "q8_0", "down.weight": "q8_0", "odd.weight": "q8_0", "thin.weight": "f16"}),
        ("q6_k", {"up.weight": "q6_k", "down.weight": "q6_k", "odd.weight": "q6_k", "thin.weight": "f16"}),
        ("f16", {"up.weight": "f16", "down.weight": "f16", "odd.weight": "f16", "thin.weight": "f16", "table.weight": "f16"}),
    ],
)  # fmt: skip
def test_the_layers_that_would_lose_the_most_keep_theirs(asked: str, expected: dict[str, str]) -> None:
    found = graphc.compile(several(weights(1)), dtype=asked)
    assert types(found) == {**KEPT, "middle.weight": "f16", **expected}


def test_rows_that_blocks_do_not_fit() -> None:
    parameters = weights(1, {"w": (320, 64), "v": (64, 72), "u": (72, 64)})
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["b"]), node("MatMul", ["b", "u"], ["y"])]
    proto = model(nodes, [value("x", [3, 320])], ["y"], parameters)
    for asked, next in NEXT.items():
        dtypes = Dtypes.parsed(asked.lower()) if asked in NAMES else None
        if dtypes is None:
            continue
        found = compile_program(proto, Settings(dtype=dtypes))
        assert [weight.tensor.type for weight in found.weights] == [next, next, "F16"]
        assert TYPES[next].size / TYPES[next].elements >= TYPES[asked].size / TYPES[asked].elements
        assert [line.split(" (")[0] for line in dtypes.notes()] == [
            f"1 weight is {next.lower()} instead of {asked.lower()}: blocks do not fit rows of 320",
            f"1 weight is {next.lower()} instead of {asked.lower()}: blocks do not fit rows of 64",
            f"1 weight is f16 instead of {asked.lower()}: blocks do not fit rows of 72",
        ]


def test_patterns() -> None:
    asked = ["q8_0", "*.weight=q4_k", "down.*=f32", "nothing.*=q4_0"]
    with pytest.raises(InputError, match=r"--dtype nothing\.\*: no weight has such a name"):
        graphc.compile(several(weights(1)), dtype=asked)
    dtypes = Dtypes.parsed(asked[:3])
    found = graphc.compile(several(weights(1)), dtype=dtypes)
    assert types(found) == {
        "table.weight": "q4_k", "norm.weight": "float32", "up.weight": "q4_k", "up.bias": "float32", "down.weight": "float32",
        "odd.weight": "q4_k", "thin.weight": "f16", "first.weight": "f16", "middle.weight": "f16", "last.weight": "f16",
    }  # fmt: skip
    assert sorted(dtypes.notes()) == [
        "1 weight is f16 instead of q4_k: blocks do not fit rows of 80 (thin.weight)",
        "1 weight is f32 instead of q4_k: no weight of a product, a convolution or a table (norm.weight)",
        "3 weights are f16 instead of q4_k: a convolution takes no other (first.weight, middle.weight, last.weight)",
    ]
    again = graphc.compile(several(weights(1)), dtype={"*": "q8_0", "*.weight": "q4_k", "down.*": "f32"})
    assert types(again) == types(found)


@pytest.mark.parametrize("asked", ["q9_0", "*=", "=q8_0", "iq2_xxs", "i32", ["q8_0", "a=b=c"]])
def test_types_that_there_are_not(asked: Any) -> None:
    with pytest.raises(InputError, match=r"--dtype .*: must be TYPE or PATTERN=TYPE; types are f32, f16, bf16, q4_0, "):
        graphc.compile(several(weights(1)), dtype=asked)


def test_weights_that_are_read_in_other_ways_too() -> None:
    parameters = weights(1, {"w": (256, 256), "v": (256, 256), "u": (256, 256)})
    nodes = [
        node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "w"], ["b"]), node("MatMul", ["v", "b"], ["c"]),
        node("MatMul", ["c", "u"], ["y"]), node("Identity", ["u"], ["z"]),
    ]  # fmt: skip
    dtypes = Dtypes.parsed({"*": "q8_0", "v": "q8_0"})
    found = graphc.compile(model(nodes, [value("x", [256, 256])], ["y", "z"], parameters), dtype=dtypes)
    assert {weight.name: weight.type_name for weight in found.program.weights if weight.name in ("w", "v")} == {
        "w": "float32", "v": "float32",
    }  # fmt: skip
    x = np.eye(256, dtype=np.float32)
    result = found.run(x=x)
    expected = graphc.compile(model(nodes, [value("x", [256, 256])], ["y", "z"], parameters)).run(x=x)
    assert np.array_equal(result["z"], parameters["u"])
    assert np.abs(result["y"] - expected["y"]).max() < 0.02 * np.abs(expected["y"]).max()


def test_a_product_is_not_turned_around_its_narrow_constant() -> None:
    for narrow in (False, True):
        graph = parse_graph(FIRES["values_as_columns"])
        Dtypes.parsed("f16" if narrow else "f32").mark(graph)
        log = Log()
        optimize(graph, log)
        assert ("values_as_columns" in [step.name for step in log.steps]) == (not narrow)


# Files


def test_engines_have_the_types(tmp_path: Path) -> None:
    asked = ["q8_0", "down*=q4_k", "table*=bf16"]
    found = graphc.compile(several(weights(1)), tmp_path / "m.gguf", dtype=asked, threads=1)
    assert types(found)["table.weight"] == "bf16"
    text = write_text(found.program)
    assert write_text(read_text(text)) == text
    plain = graphc.compile(several(weights(1)), dtype=asked, threads=1)
    for array, other in zip(found.executor.arrays, plain.executor.arrays, strict=True):
        assert (array.dtype, array.tobytes()) == (other.dtype, other.tobytes())
    same(found.run(INPUTS), plain.run(INPUTS))
    plain.program.name = "m"
    plain.save(tmp_path / "saved.gguf")
    assert (tmp_path / "saved.gguf").read_bytes() == (tmp_path / "m.gguf").read_bytes()
    slots = render_project(found.program)["weights.cpp"]
    for weight in found.program.weights:
        assert f'"{weight.name}", GGML_TYPE_{weight.tensor.type}, {{{weight.tensor.ne[0]}, ' in slots


def test_an_engine_that_lies_about_its_types(tmp_path: Path) -> None:
    program = compile_program(several(weights(1)), Settings(dtype="q8_0"))
    text = write_text(program)
    for old, new, reason in (
        ('"shape":[768,512],"type":"Q8_0"', '"shape":[768,500],"type":"Q8_0"', "cannot be of the type Q8_0"),
        ('"shape":[768,512],"type":"Q8_0"', '"shape":[],"type":"Q8_0"', "cannot be of the type Q8_0"),
        ('"type":"Q8_0"', '"type":"I32"', "cannot be of the type I32"),
        ('"type":"Q8_0"', '"type":"Q8_1"', "cannot be of the type Q8_1"),
        ('"type":"Q8_0"', '"type":8', "a string is missing"),
        ('"dtype":"float32","shape":[768,512],"type"', '"dtype":"int64","shape":[768,512],"type"', "cannot be of the type"),
        ('{"name":"up.bias","dtype":"float32","shape":[768]', '{"name":"up.bias","dtype":"float32","shape":[768],"type":"Q8_0"',
         "takes no blocks of Q8_0 there"),
    ):  # fmt: skip
        assert old in text
        with pytest.raises(EngineError, match=reason):
            read_text(text.replace(old, new))
    write(program, tmp_path / "m.gguf")
    content = (tmp_path / "m.gguf").read_bytes()
    sizes = struct.pack("<IQQ", 2, 512, 768)
    assert sizes + struct.pack("<I", 8) in content
    for type in (2, 24, 99):
        (tmp_path / "m.gguf").write_bytes(
            content.replace(sizes + struct.pack("<I", 8), sizes + struct.pack("<I", type))
        )
        with pytest.raises(EngineError, match=r"damaged|not supported"):
            graphc.load(tmp_path / "m.gguf")


# Refitting


def test_floats_are_quantized_by_the_engines_types(tmp_path: Path) -> None:
    asked = ["q8_0", "down*=q5_k", "table*=f16"]
    found = graphc.compile(several(weights(1)), tmp_path / "first.gguf", dtype=asked, threads=1)
    other = graphc.compile(several(weights(2)), dtype=asked, threads=1)
    before = found.run(INPUTS)
    found.load_weights(weights(2))
    same(found.run(INPUTS), other.run(INPUTS))
    found.load_weights(weights(1))
    same(found.run(INPUTS), before)
    checkpoint = file_of(tmp_path / "m.safetensors", weights(2))
    refit(tmp_path / "first.gguf", checkpoint, tmp_path / "refitted.gguf")
    same(graphc.load(tmp_path / "refitted.gguf", threads=1).run(INPUTS), other.run(INPUTS))
    program = compile_program(several(weights(1)), Settings(dtype=asked))
    write(program, tmp_path / "stripped.gguf", strip_weights=True)
    same(graphc.load(tmp_path / "stripped.gguf", weights=checkpoint, threads=1).run(INPUTS), other.run(INPUTS))
    _, stored = read_stripped_engine(tmp_path / "stripped.gguf")
    assert all(each is None for each in stored)


def test_float16_is_used_where_it_lies(tmp_path: Path) -> None:
    parameters = weights(1, {"w": (64, 512)})
    proto = model([node("MatMul", ["x", "t"], ["y"]), node("Transpose", ["w"], ["t"], perm=[1, 0])][::-1],
                  [value("x", [3, 512])], ["y"], parameters)  # fmt: skip
    found = graphc.compile(proto, dtype="f16")
    halves = {"w": parameters["w"].astype(np.float16)}
    found.load_weights(file_of(tmp_path / "m.safetensors", halves))
    (stored,) = found.executor.arrays
    assert not stored.flags.writeable
    assert stored.tobytes() == halves["w"].tobytes()
    found.load_weights(file_of(tmp_path / "m.safetensors", parameters))
    assert found.executor.arrays[0].tobytes() == halves["w"].tobytes()


# Quantized checkpoints

LINEAR = {"a.weight": (768, 512), "b.weight": (512, 768), "gate.weight": (1024, 512), "c.weight": (64, 320)}


def linear(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Products with weights as PyTorch stores them; rows of one are two weights, another's rows are not whole blocks of 256."""
    nodes = [
        *(node("Transpose", [f"{name}.weight"], [f"{name}_t"], perm=[1, 0]) for name in ("a", "b", "gate", "c")),
        node("MatMul", ["x", "a_t"], ["a"]),
        node("MatMul", ["a", "b_t"], ["b"]),
        node("MatMul", ["b", "gate_t"], ["both"]),
        node("Split", ["both"], ["left", "right"], axis=-1, num_outputs=2),
        node("Sigmoid", ["right"], ["gate"]),
        node("Mul", ["left", "gate"], ["y"]),
        node("MatMul", ["v", "c_t"], ["z"]),
    ]
    return model(nodes, [value("x", [5, 512]), value("v", [5, 320])], ["y", "z"], parameters)


FEED = {
    name: np.random.default_rng(5).standard_normal((5, size)).astype(np.float32)
    for name, size in (("x", 512), ("v", 320))
}


def blocks_file(path: Path, parameters: Mapping[str, np.ndarray], type: str) -> tuple[Path, dict[str, np.ndarray]]:
    """A GGUF file with every matrix in a type, as other programs write it, and the numbers that it holds."""
    writer, numbers = GGUFWriter(path, "flux"), {}
    for name, array in parameters.items():
        rows = array if fits(type, array.shape[-1]) else array.reshape(-1, 256)
        raw = narrowed(type, rows)
        if rows is not array:
            writer.add_array(f"comfy.gguf.orig_shape.{name}", array.shape)
        code = GGMLQuantizationType(TYPES[type].code)
        writer.add_tensor(name, raw if type in QUANTIZED else raw.view(np.uint8), raw_dtype=code)
        numbers[name] = widened(type, raw, array.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, numbers


@pytest.mark.parametrize("type", ["Q8_0", "Q4_K", "BF16", "Q5_1"])
def test_a_checkpoints_own_types(tmp_path: Path, type: str) -> None:
    path, numbers = blocks_file(tmp_path / "m.gguf", weights(2, LINEAR), type)
    dtypes = Dtypes.parsed("checkpoint")
    found = graphc.compile(linear(weights(1, LINEAR)), dtype=dtypes, weights=path, threads=1)
    cut = type == "Q4_K"
    expected = [type.lower()] * 4 + ["f16" if cut else type.lower()]
    assert [weight.type_name for weight in found.program.weights] == expected
    stored = [array.tobytes() for array in found.executor.arrays]
    whole = {name: narrowed(type, array).tobytes() for name, array in weights(2, LINEAR).items() if name != "c.weight"}
    half = len(whole["gate.weight"]) // 2
    assert stored[:2] == [whole["a.weight"], whole["b.weight"]]
    assert sorted(stored[2:4]) == sorted([whole["gate.weight"][:half], whole["gate.weight"][half:]])
    assert [line.split(" (")[0] for line in dtypes.notes()] == (
        ["1 weight is f16 instead of q4_k: blocks do not fit rows of 320"] if cut else []
    )
    floats = graphc.compile(linear(weights(1, LINEAR)), weights=path, threads=1)
    assert all(weight.type_name == "float32" for weight in floats.program.weights)
    same(floats.run(FEED), graphc.compile(linear(numbers), threads=1).run(FEED))
    program = compile_program(linear(weights(1, LINEAR)), Settings(dtype="checkpoint", weights=path, name="m"))
    write(program, tmp_path / "stripped.gguf", strip_weights=True)
    with silent():
        loaded = graphc.load(tmp_path / "stripped.gguf", weights=path, threads=1)
    assert [array.tobytes() for array in loaded.executor.arrays] == stored
    same(loaded.run(FEED), found.run(FEED))


def test_a_checkpoint_is_read_once_for_types_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = blocks_file(tmp_path / "m.gguf", weights(2, LINEAR), "Q8_0")
    read: list[Any] = []
    monkeypatch.setattr(
        "graphc.weights.refit.open_checkpoint", lambda source: read.append(source) or open_checkpoint(source)
    )
    found = graphc.compile(linear(weights(1, LINEAR)), dtype="checkpoint", weights=path, threads=1)
    assert read == [path]
    assert {weight.type_name for weight in found.program.weights} == {"q8_0"}


def test_blocks_are_quantized_again_with_a_warning(tmp_path: Path) -> None:
    path, numbers = blocks_file(tmp_path / "m.gguf", weights(2, LINEAR), "Q8_0")
    found = graphc.compile(linear(weights(1, LINEAR)), dtype=["q8_0", "b*=q5_0"], threads=1)
    with remarked(r"is quantized again, .*: b\.weight$"):
        found.load_weights(path)
    place = [weight.name for weight in found.program.weights].index("b.weight")
    assert found.executor.arrays[place].tobytes() == narrowed("Q5_0", numbers["b.weight"]).tobytes()


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_floats_of_8_bits_are_kept_in_float16(dtype: Any) -> None:
    bits = np.arange(256, dtype=np.uint8)
    bits = bits[np.isfinite(bits.view(dtype).astype(np.float32))]
    parameters = {"w": np.resize(bits, (64, 256)).view(dtype)}
    nodes = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])]
    proto = model(nodes, [value("x", [3, 256])], ["y"], weights(1, {"w": (64, 256)}))
    found = graphc.compile(proto, dtype="checkpoint", weights=parameters)
    assert types(found) == {"w": "f16"}
    assert np.array_equal(dequantized(found)["w"], parameters["w"].astype(np.float32))


def test_what_is_computed_of_blocks_becomes_float16(tmp_path: Path) -> None:
    parameters = weights(1, {"w": (256, 512), "scale": (256,)})
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["a"]),
        node("Mul", ["a", "scale"], ["y"]),
    ]
    proto = model(nodes, [value("x", [3, 512])], ["y"], parameters)
    path, numbers = blocks_file(tmp_path / "m.gguf", weights(2, {"w": (256, 512), "scale": (256,)}), "Q8_0")
    dtypes = Dtypes.parsed("checkpoint")
    found = graphc.compile(proto, dtype=dtypes, weights=path)
    (stored,) = found.executor.arrays
    assert np.array_equal(stored, (numbers["w"] * numbers["scale"][:, None]).astype(np.float16))
    assert [line.split(" (")[0] for line in dtypes.notes()] == [
        "1 weight is f16 instead of q8_0: computed of the checkpoint's, or cuts its blocks"
    ]


def moving(value: Value) -> np.ndarray | Blocks | None:
    """What recipes make of a tensor of blocks of rows of 64."""
    return moved(value, {W: WHOLE})


W = Value("w", TensorType(np.dtype(np.float32), (6, 4, 64)), origin=Origin("w"))
WHOLE = Blocks("Q8_0", quantize("Q8_0", np.random.default_rng(8).standard_normal((6, 4, 64))).reshape(-1), (6, 4, 64))


@pytest.mark.parametrize(
    ("op", "count", "whole"),
    [
        (Reshape((24, 64)), 1, True),
        (Reshape((3, 512)), 1, True),
        (Reshape((96, 16)), 1, True),
        (Transpose((1, 0, 2)), 1, True),
        (Transpose((0, 2, 1)), 1, False),
        (Slice((5, 0, 0), (3, 4, 64), (-2, 1, 1)), 1, True),
        (Slice((0, 1, 0), (6, 2, 64), (1, 1, 1)), 1, True),
        (Slice((0, 0, 32), (6, 4, 32), (1, 1, 1)), 1, True),
        (Slice((1, 2, 32), (2, 2, 32), (2, 1, 1)), 1, True),
        (Slice((0, 0, 16), (6, 4, 32), (1, 1, 1)), 1, False),
        (Slice((0, 0, 0), (6, 4, 48), (1, 1, 1)), 1, False),
        (Slice((0, 0, 0), (6, 4, 32), (1, 1, 2)), 1, False),
        (Concat(0), 2, True),
        (Concat(1), 3, True),
        (Concat(2), 2, False),
        (Unary("Neg"), 1, False),
    ],
)
def test_what_keeps_blocks(op: Op, count: int, whole: bool) -> None:
    graph = Graph()
    value = graph.make(op, [W] * count).output
    found = moving(value)
    assert isinstance(found, Blocks) == whole
    if isinstance(found, Blocks):
        assert np.array_equal(np.asarray(found), op.eval(*[np.asarray(WHOLE)] * count)[0])
        again = graph.make(Reshape((1, *found.shape)), [value]).output
        assert np.array_equal(np.asarray(moving(again)), np.asarray(found)[None])


def test_a_fitting_checkpoint_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--dtype checkpoint: say which one with --weights"):
        graphc.compile(linear(weights(1, LINEAR)), dtype="checkpoint")
    path, _ = blocks_file(tmp_path / "m.gguf", weights(2, {**LINEAR, "a.weight": (768, 256)}), "Q8_0")
    with pytest.raises(CheckpointError, match=r"a\.weight: shape \[768, 256\], must be \[768, 512\]"):
        graphc.compile(linear(weights(1, LINEAR)), dtype="checkpoint", weights=path)


@pytest.mark.parametrize("own", [True, False], ids=["own", "ggml"])
@pytest.mark.parametrize("type", sorted(GUIDED))
def test_types_that_only_checkpoints_have(type: str, own: bool) -> None:
    parameters = weights(1, {"w": (96, 512)})
    nodes = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])]
    proto = model(nodes, [value("x", [4, 512])], ["y"], parameters)
    raw = np.random.default_rng(3).integers(0, 256, (96, 512 // TYPES[type].elements, TYPES[type].size), np.uint8)
    raw[..., 1] = 0x28  # the upper half of a scale: a small number
    blocks = Blocks(type, raw.reshape(-1), (96, 512))
    found = graphc.compile(proto, dtype="checkpoint", weights={"w": blocks}, threads=1)
    assert types(found) == {"w": type.lower()}
    x = np.random.default_rng(2).standard_normal((4, 512)).astype(np.float32)
    numbers = np.asarray(blocks)
    bound = rounding(type, x, numbers, own)
    assert np.all(np.abs(runs(found, own).run(x=x)["y"] - x.astype(np.float64) @ numbers.T) <= bound)
    with pytest.raises(GraphcError, match=rf"weight \w+: ggml makes {type} only with an importance matrix"):
        found.load_weights(parameters)


# The command line


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """A command's status, and what it prints."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return int(caught.value.code or 0), *capsys.readouterr()


def test_the_command_says_what_it_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(several(weights(1)), tmp_path / "m.onnx")
    path, engine = file_of(tmp_path / "m.safetensors", weights(2)), tmp_path / "e.gguf"
    arguments = ("--dtype", "q8_0", "--dtype", "down*=q4_k", "--weights", path)
    status, out, notes = command(capsys, "compile", tmp_path / "m.onnx", *arguments, "-o", engine)
    assert status == 0
    assert re.search(r"q8_0 [\d.]+ KiB, .*q4_k [\d.]+ KiB", out)
    assert "1 weight is f16 instead of q8_0: blocks do not fit rows of 80 (thin.weight)" in notes
    assert "q4_k(Transpose[perm=(1, 0)](down.weight))" in command(capsys, "inspect", engine, "--weights")[1]
    _, out, _ = command(capsys, "inspect", engine, "--json")
    assert json.loads(out)["weight_types"]["q4_k"] == 512 * 768 // 256 * 144
    expected = graphc.compile(several(weights(2)), dtype=["q8_0", "down*=q4_k"], threads=1)
    same(graphc.load(engine, threads=1).run(INPUTS), expected.run(INPUTS))
    blocks, _ = blocks_file(tmp_path / "m.gguf", {name: weights(2)[name] for name in ("up.weight",)}, "Q4_0")
    status, _, notes = command(capsys, "refit", engine, blocks, "--allow-differences", "-o", tmp_path / "r.gguf")
    assert status == 0
    assert "warning: what the checkpoint has quantized in another type or shape is quantized again" in notes
    assert "refit.py" not in notes
    status, _, error = command(capsys, "compile", tmp_path / "m.onnx", "--dtype", "q7_0")
    assert (status, error.count("--dtype q7_0: must be TYPE or PATTERN=TYPE")) == (1, 1)
    status, _, error = command(capsys, "compile", tmp_path / "m.onnx", "--weights", path, "-o", path)
    assert (status, "would overwrite the checkpoint" in error) == (1, True)
