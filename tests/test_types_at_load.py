"""A stripped engine gets its types with its weights: those of the checkpoint, which is used where it lies; packed engines."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from frontend_models import model, value
from refitting import INPUTS, file_of, node, same, several, weights
from test_blocks import write as write_blocks

import graphc
from graphc.cli import main
from graphc.compiler import Settings, compile_program, write
from graphc.errors import EngineError, InputError
from graphc.ggml_types import narrowed
from graphc.weights.formats import gguf

HALF = ("table.weight", "query.weight", "head.half", "conv.weight")
"""What the checkpoints here have in float16."""


def halved(seed):
    given = weights(seed)
    return {name: array.astype(np.float16) if name in HALF else array for name, array in given.items()}


@pytest.fixture
def stripped(tmp_path):
    path = tmp_path / "stripped.gguf"
    write(compile_program(several(weights(0)), Settings(name="several", dtype="checkpoint")), path, strip_weights=True)
    return path


def types_of(model):
    return {weight.name: weight.tensor.type for weight in model.program.weights}


def mapped_bytes(model, path):
    """How many bytes of the weights lie in the mapped file, anywhere in it."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    spans = [[int(each, 16) for each in line.split()[0].split("-")] for line in lines if line.endswith(str(path))]
    return sum(
        array.nbytes for array in model.executor.arrays for low, high in spans if low <= array.ctypes.data < high
    )


@pytest.mark.parametrize("shift", [0, 8, 2])
def test_types_are_the_checkpoints(stripped, tmp_path, shift):
    given = halved(5)
    file = file_of(tmp_path / "given.safetensors", given, shift=shift)
    compiled = graphc.compile(several(weights(0)), weights=file, dtype="checkpoint")
    model = graphc.load(stripped, weights=file, dtype="checkpoint")
    assert types_of(model) == types_of(compiled)
    assert {"F16", "F32"} == set(types_of(model).values())
    same(model.run(INPUTS), compiled.run(INPUTS))
    if Path("/proc/self/maps").exists():
        assert mapped_bytes(model, file) >= given["table.weight"].nbytes  # float16 may lie at any even place


JOINED = {
    "x": np.random.default_rng(2).standard_normal((40, 256), np.float32),
    "z": np.random.default_rng(3).standard_normal((40, 512), np.float32),
}


def of_joined_rows():
    """A product with rows that were joined: it becomes two, each with a part of every row of the weight."""
    nodes = [node("Concat", ["x", "z"], ["c"], axis=1), node("Gemm", ["c", "w.weight"], ["y"], transB=1)]
    inputs = [value(name, array.shape) for name, array in JOINED.items()]
    return model(nodes, inputs, ["y"], {"w.weight": np.random.default_rng(4).standard_normal((256, 768), np.float32)})


@pytest.fixture
def halves(tmp_path):
    path = tmp_path / "halves.gguf"
    write(compile_program(of_joined_rows(), Settings(name="joined", dtype="checkpoint")), path, strip_weights=True)
    return path


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped")
@pytest.mark.parametrize("type", ["F32", "F16", "BF16", "Q8_0", "Q4_K", "Q6_K"])
def test_parts_of_rows_are_used_where_they_lie(halves, tmp_path, type):
    """They have the bits that they have in an engine, one after the other, also with a LoRA and when that is off again."""
    numbers = np.random.default_rng(5).standard_normal((256, 768), np.float32)
    stored = numbers if type == "F32" else narrowed(type, numbers)
    file = write_blocks(tmp_path / "given.gguf", {"w.weight": (stored, type)})
    found = graphc.load(halves, weights=file, dtype="checkpoint")
    assert [weight.tensor.type for weight in found.program.weights] == [type] * 2
    assert mapped_bytes(found, file) == stored.nbytes
    found.save(tmp_path / "together.gguf")
    expected = graphc.load(tmp_path / "together.gguf").run(JOINED)
    same(found.run(JOINED), expected)
    found.page_out()
    same(found.run(JOINED), expected)
    found.load_weights({"w.weight": numbers[::-1].copy()})
    assert not np.array_equal(found.run(JOINED)["y"], expected["y"])
    found.load_weights(file)
    assert mapped_bytes(found, file) == stored.nbytes
    same(found.run(JOINED), expected)
    random = np.random.default_rng(6)
    down, up = random.standard_normal((2, 768), np.float32), random.standard_normal((256, 2), np.float32)
    found.load_lora({"w.lora_down.weight": down, "w.lora_up.weight": up}, name="change")
    change = np.concatenate([JOINED["x"], JOINED["z"]], axis=1) @ (up @ down).T
    np.testing.assert_allclose(found.run(JOINED)["y"], expected["y"] + change, rtol=0, atol=0.5)
    found.unload_lora()
    same(found.run(JOINED), expected)


def test_floats_stay_floats(stripped):
    model = graphc.load(stripped, weights=weights(6), dtype="checkpoint")
    assert types_of(model)["table.weight"] == "F32"
    same(model.run(INPUTS), graphc.compile(several(weights(6))).run(INPUTS))


def test_without_types_the_engine_decides(stripped):
    assert set(types_of(graphc.load(stripped, weights=halved(5))).values()) == {"F32"}


def test_a_type_may_be_asked_for(stripped):
    model = graphc.load(stripped, weights=weights(6), dtype=["query.weight=f16"])
    assert set(types_of(model).values()) == {"F16", "F32"}
    expected = graphc.compile(several(weights(6)), dtype=["query.weight=f16"])
    same(model.run(INPUTS), expected.run(INPUTS))


def test_weights_of_the_engine_are_converted(tmp_path):
    """A whole engine has weights that no checkpoint gives; they become what is asked for too."""
    path = tmp_path / "whole.gguf"
    graphc.compile(several(weights(0)), path, dtype="*.weight=f32")
    model = graphc.load(path, weights=halved(5), dtype="checkpoint")
    expected = graphc.compile(several(weights(0)), weights=halved(5), dtype="checkpoint")
    same(model.run(INPUTS), expected.run(INPUTS))


def test_types_need_weights(stripped, tmp_path, capsys):
    with pytest.raises(InputError, match="of which weights"):
        graphc.load(stripped, dtype="f16")
    with pytest.raises(InputError, match="--strip-weights"):
        graphc.compile(several(weights(0)), dtype="checkpoint")


def test_loras_go_on_weights_in_the_file(stripped, tmp_path):
    given = halved(5)
    file = file_of(tmp_path / "given.safetensors", given)
    model = graphc.load(stripped, weights=file, dtype="checkpoint")
    before = model.run(INPUTS)
    shape = given["conv.weight"].shape
    random = np.random.default_rng(3)
    change = {
        "conv.lora_down.weight": random.standard_normal((2, *shape[1:])).astype(np.float32),
        "conv.lora_up.weight": random.standard_normal((shape[0], 2, 1, 1)).astype(np.float32),
    }
    model.load_lora(change, name="change")
    assert not np.array_equal(model.run(INPUTS)["positive"], before["positive"])
    model.unload_lora()
    same(model.run(INPUTS), before)


def test_a_packed_engine_is_the_same(stripped, tmp_path):
    packed = tmp_path / "packed.gguf.gz"
    packed.write_bytes(gzip.compress(stripped.read_bytes()))
    given = halved(5)
    same(graphc.load(packed, weights=given).run(INPUTS), graphc.load(stripped, weights=given).run(INPUTS))


def test_damaged_packed_engines(stripped, tmp_path, monkeypatch):
    raw = gzip.compress(stripped.read_bytes())
    damaged = bytearray(raw)
    damaged[len(raw) // 2] ^= 255
    cases = {
        "damaged": bytes(damaged),
        "cut off": raw[:-20],
        "does not end": raw + b"more",
        "not a GGUF": gzip.compress(b"few"),
    }
    for reason, content in cases.items():
        path = tmp_path / "damaged.gguf"
        path.write_bytes(content)
        with pytest.raises(EngineError, match=reason):
            graphc.load(path, weights=halved(5))
    monkeypatch.setattr(gguf, "LARGEST_UNPACKED", 1000)
    (tmp_path / "large.gguf").write_bytes(raw)
    with pytest.raises(EngineError, match="larger than 1000 bytes"):
        graphc.load(tmp_path / "large.gguf", weights=halved(5))


def test_the_command_line(stripped, tmp_path, capsys):
    file = file_of(tmp_path / "given.safetensors", halved(5))
    packed = tmp_path / "packed.gguf.gz"
    packed.write_bytes(gzip.compress(stripped.read_bytes()))
    np.savez(tmp_path / "in.npz", **INPUTS)
    options = ["--weights", str(file), "--dtype", "checkpoint", "--inputs", str(tmp_path / "in.npz")]
    with pytest.raises(SystemExit, match="0"):
        main(["run", str(packed), *options, "-o", str(tmp_path / "out.npz")])
    expected = graphc.load(stripped, weights=file, dtype="checkpoint").run(INPUTS)
    same(dict(np.load(tmp_path / "out.npz")), expected)
