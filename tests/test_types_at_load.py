"""A stripped engine gets its types with its weights: those of the checkpoint, which is used where it lies; packed engines."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from refitting import INPUTS, file_of, same, several, weights

import graphc
from graphc.cli import main
from graphc.compiler import Settings, compile_program, write
from graphc.errors import EngineError, InputError
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
