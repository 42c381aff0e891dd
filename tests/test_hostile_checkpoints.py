"""Checkpoints that nobody would write: whatever a file says, the answer is tensors or a CheckpointError, with little memory."""

from __future__ import annotations

import json
import pickle
import random
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frontend_models import model as onnx_model
from frontend_models import node, value

import graphc
from graphc.errors import CheckpointError
from graphc.weights.checkpoint import open_checkpoint
from graphc.weights.lora.settings import FILE

resource = pytest.importorskip("resource")

COUNTS = [pytest.param(400, id="few"), pytest.param(100_000, id="many", marks=pytest.mark.thorough)]

NASTY: tuple[Any, ...] = (
    0, 1, 2, 3, 4, 12, -1, 7, 8, 64, 65, 1 << 20, 1 << 31, 1 << 40, 1 << 62, 1 << 63, 1 << 64, 1 << 70, True, False, None, 1.5,
    float("nan"), float("inf"), "", "F32", "x", [], {}, [[]], [0], [1] * 65, [0, 1 << 62, 1 << 62], [3, 4], [4, 3], [-1], [12.0],
)  # fmt: skip
"""What a number in a file may be instead."""


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """Two gigabytes more than the process has: whoever asks for more gets a MemoryError, which no test expects."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def mutated(thing: Any, chance: random.Random) -> Any:
    """JSON's values with some of them changed."""
    if chance.random() < 0.12:
        return chance.choice(NASTY)
    if isinstance(thing, dict):
        return {key: mutated(value, chance) for key, value in thing.items() if chance.random() > 0.03}
    if isinstance(thing, list):
        return [mutated(value, chance) for value in thing for _ in range(chance.choice((1, 1, 1, 1, 1, 1, 0, 2)))]
    return thing


def answered(path: Path) -> bool:
    """True if there are tensors; all of them can be read."""
    said = ""
    try:
        for each in open_checkpoint(path).values():
            if isinstance(each, np.ndarray):
                each.sum() if each.dtype.kind in "fiu" else each.size
    except CheckpointError as error:
        said = str(error)
    assert not said or said.startswith(f"{path}: ")
    assert len(said) < 1000
    return not said


HEADER = {
    "__metadata__": {"format": "pt"},
    "a.weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]},
    "a.bias": {"dtype": "F16", "shape": [4], "data_offsets": [48, 56]},
    "ids": {"dtype": "I64", "shape": [1, 1], "data_offsets": [56, 64]},
}


@pytest.mark.parametrize("count", COUNTS)
def test_safetensors(tmp_path: Path, count: int) -> None:
    path, chance = tmp_path / "m.safetensors", random.Random(1)
    read = 0
    for _ in range(count):
        text = json.dumps(mutated(HEADER, chance)).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
        read += answered(path)
    assert 0 < read < count


STEPS = [
    b"(", b")", b"]", b"}", b"0", b"1", b"2", b"N", b"\x88", b"\x89", b"K\x01", b"K\x03", b"K\x04", b"K\x0c", b"M\xff\xff",
    b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x3f", b"X\x01\0\0\0w", b"X\x0b\0\0\0_parameters", b"X\x07\0\0\0storage",
    b"X\x03\0\0\0cpu", b"X\x01\0\0\x000", b"h\0", b"h\1", b"q\0", b"q\1", b"t", b"\x85", b"\x86", b"\x87", b"a", b"e", b"s", b"u",
    b"b", b"R", b"\x81", b"Q", b"l", b"d", b"\x94", b"\x90", b"\x8f", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n", b"ccodecs\nencode\n", b"cos\nsystem\n",
    b"G\x7f\xf0" + b"\0" * 6,
]  # fmt: skip
"""Pieces of pickles."""


def whole_pickle() -> bytes:
    """A dictionary of one tensor, step by step."""
    return (
        b"\x80\x02}(X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
        b"X\x01\0\0\x000X\x03\0\0\0cpuK\x0ctQK\0K\x03K\x04\x86K\x04K\x01\x86\x89ccollections\nOrderedDict\n)RtRu."
    )


def pieces(content: bytes) -> list[bytes]:
    """The operations of a pickle."""
    import pickletools

    places = [place for _, _, place in pickletools.genops(content) if place is not None]
    return [content[start:end] for start, end in zip(places, [*places[1:], len(content)], strict=True)]


@pytest.mark.parametrize("count", COUNTS)
def test_pickles(tmp_path: Path, count: int) -> None:
    path, chance, whole = tmp_path / "m.pt", random.Random(2), pieces(whole_pickle())
    read = 0
    for turn in range(count):
        steps = list(whole)
        for _ in range(turn % 4):
            place = chance.randrange(1, len(steps))
            steps[place : place + chance.choice((0, 1, 1))] = [chance.choice(STEPS)] * chance.choice((0, 1, 1, 2))
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("a/data.pkl", b"".join(steps))
            file.writestr("a/data/0", np.arange(12, dtype=np.float32).tobytes())
        read += answered(path)
    assert 0 < read < count


LORA = {
    "dense.lora_A.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "dense.lora_B.weight": {"dtype": "F32", "shape": [4, 2], "data_offsets": [24, 56]},
    "dense.alpha": {"dtype": "F32", "shape": [], "data_offsets": [56, 60]},
}


@pytest.mark.parametrize("count", COUNTS)
def test_loras(tmp_path: Path, count: int) -> None:
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    proto = onnx_model(
        [node("Gemm", "x dense.weight", "y", transB=1)], [value("x", [2, 3])], ["y"], {"dense.weight": weight}
    )
    model = graphc.compile(proto)
    before = model.run(x=np.ones((2, 3), np.float32))["y"]
    chance, loaded = random.Random(3), 0
    for turn in range(count // 4):
        folder = tmp_path / "lora"
        folder.mkdir(exist_ok=True)
        text = json.dumps(mutated(LORA, chance) if turn % 8 else LORA).encode()
        (folder / "adapter_model.safetensors").write_bytes(
            struct.pack("<Q", len(text)) + text + np.arange(15, dtype=np.float32).tobytes()
        )
        settings = mutated({"r": 2, "lora_alpha": 4, "alpha_pattern": {"dense": 3}, "rank_pattern": {}}, chance)
        (folder / FILE).write_text(json.dumps(settings))
        try:
            model.load_lora(folder, name="it")
        except CheckpointError:
            continue
        loaded += 1
        assert model.run(x=np.ones((2, 3), np.float32))["y"].shape == before.shape
        model.unload_lora("it")
    assert 0 < loaded < count // 4
    np.testing.assert_array_equal(model.run(x=np.ones((2, 3), np.float32))["y"], before)


def test_the_pickle_that_is_mutated_is_one(tmp_path: Path) -> None:
    assert pieces(whole_pickle())[-1] == pickle.STOP
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as file:
        file.writestr("a/data.pkl", whole_pickle())
        file.writestr("a/data/0", np.arange(12, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(
        np.asarray(open_checkpoint(tmp_path / "m.pt")["w"]), np.arange(12, dtype=np.float32).reshape(3, 4)
    )
