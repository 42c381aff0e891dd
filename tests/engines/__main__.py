"""Engines of the format that this graphc writes, with inputs and what they give: `python -m tests.engines` from the root.

They go into the folder of the format's number, in which a release leaves them as they are: `tests/test_versions.py` reads them
with every later graphc. So an engine that is there stays, unless it is named: `python -m tests.engines rows`.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

import graphc
from graphc.compiler import compile_program, write
from graphc.targets.ggml.engine import VERSION, read_engine, write_engine
from graphc.targets.ggml.program.device_code import DeviceCode, checksum

FOLDER = Path(__file__).parent / str(VERSION)
Arrays = dict[str, np.ndarray]


def main(named: list[str]) -> None:
    """Make those that are named, and those that are not there yet."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in MAKERS.items():
        engine = FOLDER / f"{name}.gguf.gz"
        if name in named or not engine.exists():
            with tempfile.TemporaryDirectory() as folder:
                plain = Path(folder) / f"{name}.gguf"
                inputs = make(plain)
                weights = FOLDER / f"{name}.safetensors"
                with closing(graphc.load(plain, weights=weights if weights.exists() else None, threads=1)) as model:
                    outputs = model.run(inputs)
                engine.write_bytes(gzip.compress(plain.read_bytes(), 9, mtime=0))
            kept = [("in", inputs), ("out", outputs)]
            np.savez_compressed(
                FOLDER / f"{name}.npz",
                **{f"{way} {key}": array for way, arrays in kept for key, array in arrays.items()},
            )
            print(engine)


def drawn(seed: int = 0) -> Callable[..., np.ndarray]:
    """Seeded float32 numbers of a shape."""
    generator = np.random.default_rng(seed)
    return lambda *shape: generator.standard_normal(shape).astype(np.float32)


def model_of(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """A model in ONNX's text, with weights."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> model {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def compiled(path: Path, model: onnx.ModelProto, **settings: object) -> None:
    graphc.compile(model, path, threads=1, **settings).close()


def rows(path: Path) -> Arrays:
    """A table, sizes that are chosen when it runs, kernels with and without a routine, whole numbers as results."""
    draw = drawn()
    text = """(float[batch, length, 8] x, int64[batch, length] ids)
        => (float[batch, length, 4] y, float[batch, length, 8] total, int64[batch, length] best)
        { rows = Gather(table, ids)
          sum = Add(x, rows)
          axis = Constant<value = int64 {1}>()
          total = CumSum(sum, axis)
          product = MatMul(sum, weight)
          scores = Add(product, bias)
          y = Softmax<axis = -1>(scores)
          best = ArgMax<axis = -1, keepdims = 0>(y) }"""
    compiled(path, model_of(text, table=draw(5, 8), weight=draw(8, 4), bias=draw(4)))
    return {"x": draw(2, 3, 8), "ids": np.array([[0, 4, 2], [1, 1, 3]])}


def grown(path: Path) -> Arrays:
    """A table that got a row more after it was compiled."""
    inputs = rows(path)
    with closing(graphc.load(path, threads=1)) as model:
        ((_, (token,)),) = model.load_embeddings({"<new>": drawn(2)(1, 8)}).items()
        model.save(path)
    return {**inputs, "ids": np.array([[0, token, 2], [1, 1, token]])}


def carried(path: Path) -> Arrays:
    """Kernels for a GPU, as far as they are read where nobody trusts them."""
    inputs = rows(path)
    program, arrays = read_engine(path)
    program.device_code = DeviceCode(checksum(""), False, {"sm_80": "// a target's code"})
    write_engine(path, program, arrays.__getitem__)
    return inputs


def layers(path: Path) -> Arrays:
    """Convolutions, normalizations, activations, a skip, a resized picture, attention."""
    draw = drawn()
    text = """(float[batch, 4, high, wide] x) => (float[batch, 4, high2, wide2] y, float[batch, high, wide, wide] attended)
        { features = Conv<pads = [1, 1, 1, 1]>(x, kernel, shift)
          normal = InstanceNormalization(features, scale, offset)
          gate = Sigmoid(normal)
          active = Mul(normal, gate)
          skip = Add(active, x)
          factors = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
          y = Resize<mode = "nearest">(skip, , factors)
          rows = Transpose<perm = [0, 2, 3, 1]>(skip)
          columns = Transpose<perm = [0, 2, 1, 3]>(rows)
          turned = Transpose<perm = [0, 2, 3, 1]>(skip)
          normed = LayerNormalization<axis = -1>(turned, scale, offset)
          sideways = Transpose<perm = [0, 1, 3, 2]>(normed)
          products = MatMul(normed, sideways)
          attended = Softmax<axis = -1>(products) }"""
    compiled(path, model_of(text, kernel=draw(4, 4, 3, 3) / 4, shift=draw(4), scale=draw(4), offset=draw(4)))
    return {"x": draw(1, 4, 5, 6)}


def narrow(path: Path) -> Arrays:
    """Weights in float16 and in blocks."""
    draw = drawn()
    text = """(float[batch, 32] x) => (float[batch, 16] y)
        { hidden = MatMul(x, first)
          positive = Relu(hidden)
          y = MatMul(positive, second) }"""
    weights = {"first": draw(32, 32), "second": draw(32, 16)}
    compiled(path, model_of(text, **weights), dtype=["f16", "first=q8_0"])
    return {"x": draw(3, 32)}


def integers(path: Path) -> Arrays:
    """A quantized product, in whole numbers."""
    draw = drawn()
    text = """(float[batch, 16] x) => (float[batch, 8] y, uint8[batch, 16] small)
        { small = QuantizeLinear(x, step, zero)
          product = QLinearMatMul(small, step, zero, weight, step, middle, wide, zero)
          y = DequantizeLinear(product, wide, zero) }"""
    weight = np.random.default_rng(1).integers(-100, 100, (16, 8)).astype(np.int8)
    numbers = {"step": np.float32(0.02), "wide": np.float32(0.3), "zero": np.uint8(100), "middle": np.int8(3)}
    compiled(path, model_of(text, weight=weight, **{name: np.asarray(each) for name, each in numbers.items()}))
    return {"x": draw(2, 16)}


def branches(path: Path) -> Arrays:
    """What the host decides: a branch, a loop, a size that depends on data."""
    text = """(float[4] x, int64 count) => (float[4] y, int64[1, found] places)
        { zero = Constant<value = float {0.0}>()
          sum = ReduceSum<keepdims = 0>(x)
          above = Greater(sum, zero)
          start = If(above)<then_branch = more () => (float[4] a) { a = Mul(x, x) },
                            else_branch = less () => (float[4] b) { b = Neg(x) }>
          yes = Constant<value = bool {1}>()
          y = Loop(count, yes, start)<body = step (int64 i, bool c, float[4] v) => (bool d, float[4] w)
              { d = Identity(c)
                w = Add(v, x) }>
          positive = Greater(x, zero)
          places = NonZero(positive) }"""
    compiled(path, model_of(text))
    return {"x": drawn()(4), "count": np.array(3)}


def chance(path: Path) -> Arrays:
    """Random numbers, which are a function of their place."""
    text = """(float[batch, 5] x) => (float[batch, 5] y)
        { noise = RandomNormalLike<seed = 3.0>(x)
          y = Add(x, noise) }"""
    compiled(path, model_of(text))
    return {"x": drawn()(2, 5)}


def stripped(path: Path) -> Arrays:
    """No weights: the recipes make them of the checkpoint beside the engine."""
    draw = drawn()
    text = """(float[1, 3, 6, 7] image) => (float[1, 5, 4, 5] y)
        { features = Conv(image, conv_weight, conv_bias)
          normal = BatchNormalization(features, bn_weight, bn_bias, bn_mean, bn_var)
          y = Relu(normal) }"""
    weights = {f"bn_{name}": draw(5) for name in ("weight", "bias", "mean")}
    weights |= {"conv_weight": draw(5, 3, 3, 3), "conv_bias": draw(5), "bn_var": abs(draw(5)) + 0.5}
    model = model_of(text, **weights)
    dotted = {name: name.replace("_", ".") for name in weights}  # as PyTorch names them; the text has no such names
    for initializer in model.graph.initializer:
        initializer.name = dotted[initializer.name]
    for node in model.graph.node:
        node.input[:] = [dotted.get(name, name) for name in node.input]
    write(compile_program(model), path, strip_weights=True)
    checkpoint = {dotted[name]: array for name, array in weights.items()}
    (FOLDER / f"{path.stem}.safetensors").write_bytes(safetensors_of(checkpoint))
    return {"image": draw(1, 3, 6, 7)}


def safetensors_of(arrays: Arrays) -> bytes:
    """A safetensors file of float32 arrays."""
    ends = np.cumsum([array.nbytes for array in arrays.values()]).tolist()
    header = {
        name: {"dtype": "F32", "shape": array.shape, "data_offsets": [end - array.nbytes, end]}
        for (name, array), end in zip(arrays.items(), ends, strict=True)
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in arrays.values())


MAKERS = {make.__name__: make for make in (rows, grown, carried, layers, narrow, integers, branches, chance, stripped)}


if __name__ == "__main__":
    main(sys.argv[1:])
