"""Quantized tensors of checkpoints: read as ggml reads them, moved without being computed, and what no file may say of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants

from graphc.errors import CheckpointError, GraphcError
from graphc.ggml_library import ggml
from graphc.ggml_types import GUIDED, LARGEST, QUANTIZED, TYPES, dequantize, quantize
from graphc.weights.checkpoint import open_checkpoint
from graphc.weights.formats.blocks import Blocks, joined

NUMBERS = np.random.default_rng(3).standard_normal((6, 512)).astype(np.float32)


def blocks_of(type: str, array: np.ndarray) -> Blocks:
    """An array's blocks."""
    return Blocks(type, quantize(type, array).reshape(-1), array.shape)


def test_the_types_are_ggmls() -> None:
    for name, type in TYPES.items():
        assert getattr(ggml, f"GGML_TYPE_{name}") == type.code
        assert ggml.ggml_blck_size(type.code) == type.elements
        assert ggml.ggml_type_size(type.code) == type.size
        assert ggml.ggml_is_quantized(type.code) == (name in QUANTIZED), name
        assert ggml.ggml_quantize_requires_imatrix(type.code) == (name in GUIDED)


@pytest.mark.parametrize(("type", "searched"), {"Q4_0": 1, "Q5_1": 1, "Q8_0": 0, "TQ2_0": 0, "MXFP4": 0}.items())
def test_ggml_and_gguf_convert_alike(type: str, searched: bool) -> None:
    """Where ggml searches for scales, it is closer than gguf, which takes those of the largest element."""
    code = GGMLQuantizationType(TYPES[type].code)
    raw, other = quantize(type, NUMBERS), quants.quantize(NUMBERS, code)
    numbers, others = dequantize(type, raw, NUMBERS.size).reshape(NUMBERS.shape), quants.dequantize(other, code)
    assert np.array_equal(numbers, quants.dequantize(raw, code))
    assert np.array_equal(raw, other) == (not searched)
    if searched:
        assert np.linalg.norm(numbers - NUMBERS) < 0.96 * np.linalg.norm(others - NUMBERS)


@pytest.mark.parametrize("type", ["Q4_0", "Q8_0", "Q5_1", "Q6_K", "Q2_K", "IQ4_NL", "NVFP4"])
def test_rows_of_one_number(type: str) -> None:
    array = np.repeat(np.array([[0], [1e-12], [-1], [LARGEST[type]]], np.float32), 256, 1)
    numbers = dequantize(type, quantize(type, array), array.size).reshape(array.shape)
    assert np.all(numbers[0] == 0)
    assert np.all(np.abs(numbers[1]) <= 1e-11)
    assert np.allclose(numbers[2:], array[2:], rtol=0.08)


def test_many_rows_are_converted_as_one_by_one() -> None:
    array = np.random.default_rng(4).standard_normal((5000, 512)).astype(np.float32)
    raw = quantize("Q4_K", array)
    assert np.array_equal(raw[4998:], quantize("Q4_K", array[4998:]))
    numbers = dequantize("Q4_K", raw, array.size).reshape(array.shape)
    assert np.array_equal(numbers[4998:].reshape(-1), dequantize("Q4_K", raw[4998:], 1024))
    assert quantize("Q8_0", array[:0]).shape == (0, 544)
    assert quantize("Q8_0", array[:, :0]).shape == (5000, 0)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 1e5])
def test_what_scales_do_not_reach_has_no_blocks(number: float) -> None:
    array = NUMBERS.copy()
    array[2, 3] = number
    with pytest.raises(GraphcError, match=r"not finite, or larger than 65504, .* Q8_0"):
        quantize("Q8_0", array)


def test_rows_move_as_blocks() -> None:
    whole = blocks_of("Q4_0", NUMBERS)
    numbers = np.asarray(whole)
    assert (whole.shape, whole.ndim, whole.size, whole.dtype, len(whole)) == ((6, 512), 2, 3072, np.float32, 6)
    for start, stop in ((0, 2), (2, 6), (-3, None), (4, 4)):
        part = whole[start:stop]
        assert isinstance(part, Blocks)
        assert np.shares_memory(part.raw, whole.raw) or not part.size
        assert np.array_equal(np.asarray(part), numbers[start:stop])
    again = joined([whole[4:], whole[:4]])
    assert isinstance(again, Blocks)
    assert np.array_equal(np.asarray(again), np.concatenate([numbers[4:], numbers[:4]]))
    shaped = whole.reshape(2, 3, -1)
    assert isinstance(shaped, Blocks)
    assert np.array_equal(np.asarray(shaped), numbers.reshape(2, 3, 512))
    with pytest.raises(ValueError, match="reshape"):
        whole.reshape(5, 5)


def test_what_would_cut_a_block_is_numbers() -> None:
    narrow = Blocks("Q8_0", quantize("Q8_0", NUMBERS).reshape(-1), (192, 16))
    numbers = np.asarray(narrow)
    for key in (slice(0, 3), slice(0, 4, 2), 5, (slice(None), 3)):
        found = blocks_of("Q8_0", NUMBERS)[key] if key == 5 else narrow[key]
        assert isinstance(found, np.ndarray)
    assert np.array_equal(narrow[1:4], numbers[1:4])
    for others in ([numbers], [blocks_of("Q4_0", numbers.reshape(6, 512)).reshape(192, 16)]):
        found = joined([narrow, *others])
        assert isinstance(found, np.ndarray)
        assert found.shape == (384, 16)


def write(path: Path, tensors: dict[str, tuple[np.ndarray, str]], **metadata: Any) -> Path:
    """A GGUF file; a quantized tensor is given as its bytes."""
    writer = GGUFWriter(path, "flux")
    for key, shape in metadata.items():
        writer.add_array(f"comfy.gguf.orig_shape.{key}", shape)
    for name, (array, type) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=GGMLQuantizationType(TYPES[type].code))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("type", sorted(QUANTIZED.keys() - GUIDED - {"IQ1_M", "IQ2_S"}))
def test_a_file_of_blocks(tmp_path: Path, type: str) -> None:
    raw = quantize(type, NUMBERS)
    found = open_checkpoint(write(tmp_path / "m.gguf", {"w": (raw, type), "b": (NUMBERS[0], "F32")}))
    w = found["w"]
    assert isinstance(w, Blocks)
    assert (w.type, w.shape, w.raw.tobytes()) == (type, (6, 512), raw.tobytes())
    assert np.array_equal(np.asarray(w).reshape(-1), dequantize(type, raw, NUMBERS.size))
    assert np.array_equal(found["b"], NUMBERS[0])


def test_a_tensor_in_rows_that_fit_blocks_has_its_own_shape(tmp_path: Path) -> None:
    raw = quantize("Q4_K", NUMBERS.reshape(12, 256))
    w = open_checkpoint(write(tmp_path / "m.gguf", {"w": (raw, "Q4_K")}, w=(16, 64, 1, 3)))["w"]
    assert isinstance(w, Blocks)
    assert w.shape == (16, 64, 1, 3)
    assert np.array_equal(np.asarray(w).reshape(-1), dequantize("Q4_K", raw, NUMBERS.size))
    with pytest.raises(CheckpointError, match=r"m\.gguf: tensor 'w' of \[256, 12\]: .* are no tensor of \[17, 64\]"):
        open_checkpoint(write(tmp_path / "m.gguf", {"w": (raw, "Q4_K")}, w=(17, 64)))


def test_hostile_files(tmp_path: Path) -> None:
    content = write(tmp_path / "m.gguf", {"name": (quantize("Q8_0", NUMBERS), "Q8_0")}).read_bytes()
    place = content.index(b"name") + 4  # the number of axes, two sizes, the type, the offset
    changes = {
        "cut off": content[:-200],
        "rows of 500": content[: place + 4] + struct.pack("<Q", 500) + content[place + 12 :],
        "goes past the end": content[: place + 12] + struct.pack("<Q", 1 << 40) + content[place + 20 :],
        "larger than any file": content[: place + 12] + struct.pack("<Q", 1 << 60) + content[place + 20 :],
        "type 99": content[: place + 20] + struct.pack("<I", 99) + content[place + 24 :],
        "type 9,": content[: place + 20] + struct.pack("<I", 9) + content[place + 24 :],
        "past the end": content[: place + 24] + struct.pack("<Q", 1 << 62) + content[place + 32 :],
    }
    for reason, changed in changes.items():
        (tmp_path / "bad.gguf").write_bytes(changed)
        with pytest.raises(CheckpointError, match=rf"bad\.gguf: .*{reason}"):
            open_checkpoint(tmp_path / "bad.gguf")
