"""A small model of every kind of weight, its parameters by seed, and files of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from frontend_models import model, value
from onnx import helper

node = helper.make_node

SHAPES = {
    "table.weight": (10, 6), "table.norm.weight": (6,), "table.norm.bias": (6,),
    "query.weight": (6, 8), "query.bias": (8,), "gate": (8,), "head.half": (8, 4),
    "conv.weight": (5, 3, 3, 3), "conv.bias": (5,),
    "bn.weight": (5,), "bn.bias": (5,), "bn.running_mean": (5,), "bn.running_var": (5,),
}  # fmt: skip
"""Parameters of `several`."""

BATCH_NORM = ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]


def weights(seed: int, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> dict[str, np.ndarray]:
    """Seeded parameters; variances are above 0, and `half` is float16."""
    random = np.random.default_rng(seed)
    made = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    made = {name: np.abs(array) + 0.5 if name.endswith("var") else array for name, array in made.items()}
    return {name: array.astype(np.float16) if name.endswith("half") else array for name, array in made.items()}


def several(parameters: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A table whose rows are normalized and multiplied; a convolution that takes in a batch norm; parts, casts and joins."""
    nodes = [
        node("Gather", ["table.weight", "ids"], ["rows"]),
        node("LayerNormalization", ["rows", "table.norm.weight", "table.norm.bias"], ["normal"], axis=-1),
        node("MatMul", ["normal", "query.weight"], ["product"]),
        node("Add", ["product", "query.bias"], ["sum"]),
        node("Mul", ["sum", "gate"], ["gated"]),
        node("Cast", ["head.half"], ["head"], to=onnx.TensorProto.FLOAT),
        node("Concat", ["head", "head"], ["heads"], axis=1),
        node("MatMul", ["gated", "heads"], ["scores"]),
        node("Conv", ["image", "conv.weight", "conv.bias"], ["features"]),
        node("BatchNormalization", ["features", *BATCH_NORM], ["normalized"]),
        node("Relu", ["normalized"], ["positive"]),
    ]  # fmt: skip
    inputs = [value("ids", [4], np.int64), value("image", [1, 3, 6, 7])]
    return model(nodes, inputs, ["scores", "positive"], {name: parameters[name] for name in SHAPES})


INPUTS = {
    "ids": np.array([0, 3, 9, 3]),
    "image": np.random.default_rng(1).standard_normal((1, 3, 6, 7)).astype(np.float32),
}


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """The same bits."""
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].tobytes() == array.tobytes(), name


def file_of(path: Path, parameters: Mapping[str, np.ndarray], shift: int = 0) -> Path:
    """A safetensors file whose data begin at a multiple of 64 bytes, and `shift` more."""
    header, position = {}, 0
    for name, array in parameters.items():
        code = {"float32": "F32", "float16": "F16", "int64": "I64"}[array.dtype.name]
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": [position, position + array.nbytes]}
        position += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64 + shift)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(map(np.ndarray.tobytes, parameters.values())))
    return path
