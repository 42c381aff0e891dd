"""Files of weights: what every format holds is read, and nothing of a hostile one is believed or run."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphc.errors import CheckpointError
from graphc.weights.checkpoint import open_checkpoint
from graphc.weights.formats.tensors import Unreadable

RANDOM = np.random.default_rng(11)
ARRAYS = {
    "a.weight": RANDOM.standard_normal((3, 4)).astype(np.float32),
    "a.bias": RANDOM.standard_normal(3).astype(np.float16),
    "b": RANDOM.standard_normal((2, 1, 5)).astype(ml_dtypes.bfloat16),
    "scale": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
    "ids": np.arange(6),
}
CODES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"}


def safetensors(arrays: dict[str, np.ndarray], **changed: Any) -> bytes:
    """A file of these arrays; `changed` replaces what the header says of tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in arrays.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    for name, fields in changed.items():
        header[name] = header.get(name, {}) | fields if fields is not None else None
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def same(found: dict[str, Any], arrays: dict[str, np.ndarray] = ARRAYS) -> None:
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_safetensors(tmp_path: Path) -> None:
    same(open_checkpoint(written(tmp_path / "m.safetensors", safetensors(ARRAYS))))


def test_safetensors_with_a_header_of_any_length(tmp_path: Path) -> None:
    """Its first byte is that of a pickle, or of a zip archive, for some."""
    for length in range(512, 512 + 256):
        content = safetensors({"a": np.ones(2, np.float32)})
        text = content[8:-8].ljust(length)
        same(
            open_checkpoint(written(tmp_path / "m", struct.pack("<Q", length) + text + content[-8:])),
            {"a": np.ones(2, np.float32)},
        )


def test_safetensors_are_mapped(tmp_path: Path) -> None:
    found = open_checkpoint(written(tmp_path / "m.safetensors", safetensors(ARRAYS)))
    assert not any(each.flags.owndata or each.flags.writeable for each in found.values())


def test_what_the_usual_library_writes(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    plain = {name: array for name, array in ARRAYS.items() if array.dtype.name != "bfloat16"}
    library.save_file(plain, tmp_path / "m.safetensors")
    same(open_checkpoint(tmp_path / "m.safetensors"), plain)


def test_shards_and_folders(tmp_path: Path) -> None:
    names = list(ARRAYS)
    files = {"one.safetensors": names[:2], "two.safetensors": names[2:]}
    for file, held in files.items():
        written(tmp_path / file, safetensors({name: ARRAYS[name] for name in held}))
    index = {"weight_map": {name: file for file, held in files.items() for name in held}}
    written(tmp_path / "model.safetensors.index.json", json.dumps(index).encode())
    same(open_checkpoint(tmp_path / "model.safetensors.index.json"))
    same(open_checkpoint(tmp_path))
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(CheckpointError, match=r"give one of one\.safetensors, two\.safetensors"):
        open_checkpoint(tmp_path)
    for file in files:
        (tmp_path / file).unlink()
    with pytest.raises(CheckpointError, match="there is no file of weights"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "a/b", "..", ""])
def test_shards_lie_beside_their_index(tmp_path: Path, file: str) -> None:
    index = written(tmp_path / "m.index.json", json.dumps({"weight_map": {"a": file}}).encode())
    with pytest.raises(CheckpointError, match="not beside it"):
        open_checkpoint(index)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "[" * 100_000])
def test_an_index_that_is_none(tmp_path: Path, content: str) -> None:
    with pytest.raises(CheckpointError, match="it is not an index"):
        open_checkpoint(written(tmp_path / "m.index.json", content.encode()))


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    for file in ("one", "two"):
        written(tmp_path / file, safetensors({"a": ARRAYS["scale"]}))
    index = written(tmp_path / "m.index.json", json.dumps({"weight_map": {"a": "one", "b": "two"}}).encode())
    with pytest.raises(CheckpointError, match="'a' is in another of the files too"):
        open_checkpoint(index)


TERABYTES = 1 << 42
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a header of terabytes": (lambda: struct.pack("<Q", TERABYTES) + b"{}" * 9, f"a header of {TERABYTES} bytes"),
    "a tensor of terabytes": (
        lambda: safetensors(ARRAYS, scale={"shape": [1 << 20, 1 << 20], "data_offsets": [0, TERABYTES]}),
        "overlaps|past the end",
    ),
    "sizes that overflow": (lambda: safetensors(ARRAYS, scale={"shape": [1 << 62, 4]}), "larger than any file"),
    "negative sizes": (lambda: safetensors(ARRAYS, ids={"shape": [-2, -3]}), "sizes that are not numbers"),
    "other sizes": (lambda: safetensors(ARRAYS, ids={"shape": [2, 2]}), r"tensor 'ids': .*\[2, 2\] has 6 elements"),
    "half an element": (lambda: safetensors(ARRAYS, scale={"dtype": "F64"}), "has 4 bytes"),
    "no shape": (lambda: safetensors({}, a={"dtype": "F32", "data_offsets": [0, 0]}), "header is not valid"),
    "a size that is true": (lambda: safetensors(ARRAYS, scale={"shape": [True]}), "sizes that are not numbers"),
    "sizes that are an object": (lambda: safetensors(ARRAYS, scale={"shape": {}}), "sizes that are not numbers"),
    "65 axes": (lambda: safetensors(ARRAYS, scale={"shape": [1] * 65}), "65 axes, more than 64"),
    "no elements of terabytes": (
        lambda: safetensors({}, a={"dtype": "F32", "shape": [0, 1 << 62, 1 << 62], "data_offsets": [0, 0]}),
        "larger than any file",
    ),
    "an overlap": (lambda: safetensors(ARRAYS, b={"data_offsets": [0, 20]}), "overlaps another"),
    "a gap": (lambda: safetensors(ARRAYS, ids=None), "its header is not valid"),
    "bytes of no tensor": (lambda: safetensors(ARRAYS) + b"more", "4 bytes at its end belong to no tensor"),
    "negative offsets": (lambda: safetensors(ARRAYS, b={"data_offsets": [-20, 0]}), "header is not valid"),
    "offsets that are text": (lambda: safetensors(ARRAYS, b={"data_offsets": ["0", "20"]}), "header is not valid"),
    "no offsets": (lambda: safetensors(ARRAYS, more={"dtype": "F32", "shape": []}), "header is not valid"),
    "a name twice": (
        lambda: (lambda text: struct.pack("<Q", len(text)) + text)(b'{"a": {}, "a": {}}'),
        "a name is there twice",
    ),
    "deep JSON": (lambda: (lambda text: struct.pack("<Q", len(text)) + text)(b'{"a":' * 50_000), "header is not valid"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_safetensors(tmp_path: Path, case: str) -> None:
    content, message = HOSTILE[case]
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(written(tmp_path / "m.safetensors", content()))
    assert str(tmp_path / "m.safetensors") in str(caught.value)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 255)), max_size=4), st.integers(0, 800))
def test_damaged_safetensors(tmp_path: Path, changes: list[tuple[int, int]], length: int) -> None:
    content = bytearray(safetensors(ARRAYS))
    for place, byte in changes:
        content[place % len(content)] = byte
    try:
        found = open_checkpoint(written(tmp_path / "m.safetensors", bytes(content[:length])))
    except CheckpointError:
        return
    assert all(isinstance(each, Unreadable | np.ndarray) for each in found.values())


def test_a_type_that_is_not_known_is_no_error_until_it_is_needed(tmp_path: Path) -> None:
    found = open_checkpoint(written(tmp_path / "m", safetensors(ARRAYS, scale={"dtype": "F7"})))
    assert found["scale"] == Unreadable("its type F7 is not supported")


@pytest.mark.parametrize(
    "content", [b"", b"GG", b"hello, world", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"PK\x03\x04"]
)
def test_what_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"not a checkpoint|before 1\.6|damaged"):
        open_checkpoint(written(tmp_path / "m", content))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="it is not a regular file"):
        open_checkpoint(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="no such file"):
        open_checkpoint(tmp_path / "missing.safetensors")


def test_gguf(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "sd1")
    kept = {name: ARRAYS[name] for name in ("a.weight", "a.bias", "ids")}
    for name, array in kept.items():
        writer.add_tensor(name, array)
    writer.add_tensor("b", ARRAYS["b"].view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = open_checkpoint(tmp_path / "m.gguf")
    same(found, {**kept, "b": ARRAYS["b"]})
    content = (tmp_path / "m.gguf").read_bytes()
    for length in range(4, len(content) - 40, 7):
        with pytest.raises(CheckpointError, match=r"damaged|not a GGUF"):
            open_checkpoint(written(tmp_path / "cut.gguf", content[:length]))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([0, 5], r"of \[0, 5\] has 32 elements|no tensor of \[0, 5\]"),
        ([1 << 30, 0, 1 << 30], "larger than any file"),
        ([-4, -8], "sizes that are not numbers"),
        ([31], "31"),
        ("32", "sizes that are not numbers"),
    ],
)
def test_shapes_that_a_gguf_file_cannot_have(tmp_path: Path, shape: list[int] | str, message: str) -> None:
    blocks = np.zeros((1, 34), np.uint8)
    for array, more in ((np.zeros(32, np.float32), {}), (blocks, {"raw_dtype": GGMLQuantizationType.Q8_0})):
        writer = GGUFWriter(tmp_path / "m.gguf", "sd1")
        add = writer.add_string if isinstance(shape, str) else writer.add_array
        add("comfy.gguf.orig_shape.w", shape)
        writer.add_tensor("w", array, **more)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(tmp_path / "m.gguf")


class Tensor:
    """What `torch.save` writes for a tensor, without PyTorch: a call of `_rebuild_tensor_v2` on a storage."""

    def __init__(self, key: str, array: np.ndarray, kind: str = "FloatStorage", **more: Any) -> None:
        strides = tuple(stride // array.itemsize for stride in array.strides)
        self.key, self.array, self.kind = key, array, kind
        self.args = (
            more.get("offset", 0),
            more.get("shape", array.shape),
            more.get("strides", strides),
            False,
            OrderedDict(),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (Storage(self), *self.args)


class Storage:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def rebuild(*args: Any) -> None:
    raise AssertionError("it is only named")


rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"


class Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """Names what is not importable here, as PyTorch's pickles do."""

    def persistent_id(self, thing: Any) -> Any:
        if not isinstance(thing, Storage):
            return None
        kind = Named("torch", thing.tensor.kind)
        return "storage", kind, thing.tensor.key, "cpu", thing.tensor.array.size

    def save_global(self, thing: Any, name: str | None = None) -> None:
        module, name = (
            (thing.module, thing.name) if isinstance(thing, Named) else (thing.__module__, thing.__qualname__)
        )
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]


class Named:
    """A class by its name alone."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


Pickler.dispatch[Named] = Pickler.save_global
Pickler.dispatch[type(rebuild)] = Pickler.save_global


class Called:
    """A call of a function by its name."""

    def __init__(self, module: str, name: str, *args: Any) -> None:
        self.function, self.args = Named(module, name), args

    def __reduce_ex__(self, protocol: Any) -> Any:
        return "unused"


def save_called(pickler: Any, thing: Called) -> None:
    pickler.save(thing.function)
    pickler.save(thing.args)
    pickler.write(pickle.REDUCE)


Pickler.dispatch[Called] = save_called


def archive(path: Path, thing: Any, *tensors: Tensor, **more: Any) -> Path:
    """A file as `torch.save` writes it."""
    with zipfile.ZipFile(path, "w", more.get("compression", zipfile.ZIP_STORED)) as file:
        with file.open("archive/data.pkl", "w") as stream:
            stream.write(more["raw"]) if "raw" in more else Pickler(stream, 2).dump(thing)
        file.writestr("archive/byteorder", more.get("order", "little"))
        for each in tensors:
            file.writestr(f"archive/data/{each.key}", each.array.tobytes())
    return path


WEIGHT = Tensor("0", ARRAYS["a.weight"])


def test_pytorch_without_pytorch(tmp_path: Path) -> None:
    turned = Tensor("1", np.arange(6, dtype=np.float16), "HalfStorage", offset=1, shape=(2, 2), strides=(1, 2))
    state = OrderedDict({"w": WEIGHT, "t": turned, "steps": 7})
    found = open_checkpoint(archive(tmp_path / "m.pt", state, WEIGHT, turned))
    same(found, {"w": ARRAYS["a.weight"], "t": np.array([[1, 3], [2, 4]], np.float16)})
    inside = {
        "epoch": 3,
        "state_dict": {"w": WEIGHT},
        "callbacks": {Named("training", "Checkpoint"): Called("numpy.core.multiarray", "scalar", 1)},
    }
    same(open_checkpoint(archive(tmp_path / "m.ckpt", inside, WEIGHT)), {"w": ARRAYS["a.weight"]})


def test_what_pytorch_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(torch.float16)
    state = {**layer.state_dict(), "view": torch.arange(12.0).reshape(3, 4).T[1:], "empty": torch.zeros(0, 3)}
    for stored, name in (
        (state, "plain"),
        ({"state_dict": layer.state_dict(), "lr": 0.1}, "nested"),
        (layer.state_dict(), "own"),
    ):
        torch.save(stored, tmp_path / name)
        expected = stored.get("state_dict", stored)
        same(open_checkpoint(tmp_path / name), {key: each.numpy() for key, each in expected.items()})
    torch.save(torch.nn.ParameterDict({"p": torch.nn.Parameter(torch.ones(2))}).state_dict(), tmp_path / "parameter")
    same(open_checkpoint(tmp_path / "parameter"), {"p": np.ones(2, np.float32)})


REPEATED = (
    b"\x80\x02}(X\x0b\0\0\0_parameters}("
    + b"".join(b"M%c%cN" % divmod(i, 256) for i in range(20_000))
    + b"uuq\x01}"
    + b"h\x01b" * 20_000
    + b"."
)
"""A state of 20,000 parameters, which is given 20,000 times."""

DOUBLED = b"\x80\x02}(" + b")" + b"2\x86" * 64 + b"K\x01u."
"""A dictionary whose key is a tuple of a tuple of …, twice each: hashing it would take 2**64 steps."""

PICKLES: dict[str, tuple[Any, str]] = {
    "a call of the system": ({"w": Called("os", "system", "touch owned")}, r"would call os\.system"),
    "a builtin": ({"w": Called("builtins", "eval", "open('owned', 'w')")}, r"would call builtins\.eval"),
    "a call while it is built": (OrderedDict({"w": WEIGHT, "x": Called("builtins", "exec", "1")}), r"builtins\.exec"),
    "PyTorch's own loader": ({"w": Called("torch", "load", "/etc/passwd")}, r"would call torch\.load"),
    "a name that is like a tensor's": ({"w": Called("torch._utils.os", "_rebuild_tensor_v2")}, "would call"),
    "a tensor of no storage": (
        {"w": Called("torch._utils", "_rebuild_tensor_v2", 1, 0, (2,), (1,), False, None)},
        "of no storage",
    ),
    "too few arguments": ({"w": Called("torch._utils", "_rebuild_tensor_v2", 1)}, "cannot be read"),
    "past its storage": ({"w": Tensor("0", ARRAYS["a.weight"], offset=1)}, "past the end of its storage"),
    "terabytes": (
        {"w": Tensor("0", ARRAYS["a.weight"], shape=(1 << 40,), strides=(1,))},
        "past the end of its storage",
    ),
    "repeated to gigabytes": (
        {"w": Tensor("0", ARRAYS["a.weight"], shape=(1 << 15, 1 << 15), strides=(0, 0))},
        "repeats 12 elements",
    ),
    "65 axes": ({"w": Tensor("0", ARRAYS["a.weight"], shape=(1,) * 65, strides=(0,) * 65)}, "65 axes"),
    "no elements of terabytes": (
        {"w": Tensor("0", ARRAYS["a.weight"], shape=(0, 1 << 62), strides=(1, 1))},
        "larger than any file",
    ),
    "negative strides": ({"w": Tensor("0", ARRAYS["a.weight"], strides=(-4, 1))}, "not numbers"),
    "another size of storage": (
        {"w": Tensor("0", ARRAYS["a.weight"], "DoubleStorage")},
        "a storage of 12 elements holds 6",
    ),
    "a storage of nothing": ({"w": Tensor("0", ARRAYS["a.weight"], "system")}, "not a storage of numbers"),
    "an entry that is not there": ({"w": Tensor("../../data.pkl", ARRAYS["a.weight"])}, "cannot be read"),
    "no tensors": ([1, 2, 3], "no tensors by name"),
    "tensors without names": ({1: WEIGHT}, "no tensors by name"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_hostile_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    thing, message = PICKLES[case]
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(archive(tmp_path / "m.pt", thing, WEIGHT))
    assert os.listdir(tmp_path) == ["m.pt"]


@pytest.mark.parametrize(
    "raw",
    [
        pickle.dumps(print),
        pickle.dumps(OSError("x"), 4),
        b"cos\nsystem\n(S'touch owned'\ntR.",
        b"(S'touch owned'\nios\nsystem\n.",
        b"\x80\x02cos\nsystem\n)\x81.",
        b"\x80\x02cos\nsystem\n}b.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.",
        b"\x80\x02\x82\x01.",
        DOUBLED,
        b"",
        b".",
        b"}",
        b"u.",
        b"\x80\x02(((((.",
        b"h\x07.",
        b"\x8e" + b"\xff" * 8,
        b"(" * 200_000 + b"t" * 200_000 + b".",  # in the square of the marks, minutes
        b"(" * 200_000 + b"0" * 200_000 + b".",
        REPEATED,
    ],
)
def test_hostile_opcodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError):
        open_checkpoint(archive(tmp_path / "m.pt", None, raw=raw))
    assert os.listdir(tmp_path) == ["m.pt"]


def test_hostile_archives(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="compressed"):
        open_checkpoint(archive(tmp_path / "bomb.pt", {"w": WEIGHT}, WEIGHT, compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(CheckpointError, match="big-endian"):
        open_checkpoint(archive(tmp_path / "big.pt", {"w": WEIGHT}, WEIGHT, order="big"))
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as file:
        file.writestr("hello.txt", "hello")
    with pytest.raises(CheckpointError, match=r"not one of PyTorch's"):
        open_checkpoint(tmp_path / "other.pt")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_archives(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(archive(tmp_path / "m.pt", OrderedDict({"w": WEIGHT}), WEIGHT).read_bytes())
    for place, byte in changes:
        content[place % len(content)] = byte
    try:
        found = open_checkpoint(written(tmp_path / "m.pt", bytes(content)))
    except CheckpointError:
        return
    assert all(isinstance(each, np.ndarray) for each in found.values())


def test_arrays_by_name_are_copied() -> None:
    given = {"w": np.ones(3, np.float32)}
    found = open_checkpoint(given)
    given["w"][:] = 7
    np.testing.assert_array_equal(found["w"], np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="w is not an array of numbers"):
        open_checkpoint({"w": object()})
