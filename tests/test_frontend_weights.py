"""Weights in files beside the model and in the model's own: mapped, checked before they are allocated, inside the folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from frontend_models import WEIGHT, dense, model, stored, value
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from graphc.errors import ModelError
from graphc.frontend.onnx import load
from graphc.frontend.onnx.wire import split
from graphc.ir import interp

RANDOM = np.random.default_rng(7)


def outside(location: str, offset: int | None = None, length: int | None = None, name: str = "w") -> TensorProto:
    """The weight as external data."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=WEIGHT.shape, data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": location, "offset": offset, "length": length}.items():
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))
    return tensor


def backing(array: np.ndarray | None) -> object:
    """What holds an array's memory."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview) and not isinstance(base, np.memmap):
        base = base.obj if isinstance(base, memoryview) else base.base
    return base


@pytest.mark.parametrize("folder", ["plain", "mit Leerzeichen und Umläuten äöü", "数据"])
def test_external_data_is_mapped(tmp_path: Path, folder: str) -> None:
    home = tmp_path / folder
    home.mkdir()
    (home / "gewichte ß.bin").write_bytes(b"12345678" + WEIGHT.tobytes())
    path = stored(home, dense(outside("gewichte ß.bin", 8, WEIGHT.nbytes)), "modell ü.onnx")
    graph = load(path)
    (weight,) = graph.constants()
    assert weight.data is not None
    assert isinstance(backing(weight.data), np.memmap)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(interp.run(graph, {"x": x})["y"], x @ WEIGHT)


def test_external_data_in_a_subfolder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w").write_bytes(WEIGHT.tobytes())
    (tmp_path / "link").symlink_to(tmp_path / "data" / "w")
    for location in ("data/w", "./data/w", "link"):
        assert load(stored(tmp_path, dense(outside(location)))).nodes


def test_external_data_of_a_model_that_onnx_ir_loaded(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(WEIGHT.tobytes())
    (weight,) = load(onnx_ir.load(stored(tmp_path, dense(outside("w"))))).constants()
    np.testing.assert_array_equal(weight.data, WEIGHT)


def test_saved_by_onnx(tmp_path: Path) -> None:
    onnx.save(dense(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    (weight,) = load(tmp_path / "m.onnx").constants()
    np.testing.assert_array_equal(weight.data, WEIGHT)


ESCAPES = [
    "../secret",
    "a/../../secret",
    "/etc/passwd",
    "",
    "link",
    "linked/secret",
    "..",
    ".",
    "nothing\0more",
    "~/secret",
]


@pytest.mark.parametrize("location", ESCAPES)
def test_external_data_stays_in_the_folder(tmp_path: Path, location: str) -> None:
    home = tmp_path / "model"
    home.mkdir()
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "linked").symlink_to(tmp_path)
    with pytest.raises(ModelError, match=r"external data|lies in"):
        load(stored(home, dense(outside(location))))


def test_external_data_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="not a regular file"):
        load(stored(tmp_path, dense(outside("pipe"))))


@pytest.mark.parametrize(
    ("offset", "length"),
    [(8, 48), (0, 44), (0, 52), (-4, 48), (1 << 62, 48), (0, 1 << 62), (1 << 70, None), (None, -48)],
)
def test_external_data_of_another_size(tmp_path: Path, offset: int | None, length: int | None) -> None:
    (tmp_path / "w").write_bytes(WEIGHT.tobytes())
    with pytest.raises(ModelError):
        load(stored(tmp_path, dense(outside("w", offset, length))))


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"w is missing: .*weights\.bin"):
        load(stored(tmp_path, dense(outside("weights.bin"))))
    with pytest.raises(ModelError, match="not loaded from a folder"):
        load(dense(outside("weights.bin")))


def test_sizes_are_checked_before_they_are_allocated(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(WEIGHT.tobytes())
    for dims in ([1 << 40, 1 << 40], [1 << 62], [-3, 4], [3, 1 << 30]):
        external, inline = outside("w"), numpy_helper.from_array(WEIGHT, "w")
        for tensor in (external, inline):
            del tensor.dims[:]
            tensor.dims.extend(dims)
            with pytest.raises(ModelError):
                load(stored(tmp_path, dense(tensor)))


LARGE = RANDOM.standard_normal((40, 50)).astype(np.float32)


def with_large_weight() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    constants = {"b": np.ones(50, np.float32), "w": LARGE, "unused": np.ones(3000, np.int8)}
    return model(nodes, [value("x", [2, 40])], ["y"], constants)


def test_weights_in_the_file_are_mapped(tmp_path: Path) -> None:
    graph = load(stored(tmp_path, with_large_weight()))
    weights = {each.name: each.data for each in graph.constants()}
    assert isinstance(backing(weights["w"]), np.memmap)
    np.testing.assert_array_equal(weights["w"], LARGE)
    x = np.ones((2, 40), np.float32)
    np.testing.assert_allclose(interp.run(graph, {"x": x})["y"], x @ LARGE + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.BOOL])
def test_weights_of_every_width_are_read_from_the_file(tmp_path: Path, dtype: int) -> None:
    numbers = np.arange(20000) % 2
    weight = helper.make_tensor("w", dtype, [100, 200], numbers)
    if not weight.HasField("raw_data"):
        weight = numpy_helper.from_array(numpy_helper.to_array(weight), "w")
    nodes = [helper.make_node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), helper.make_node("Add", ["x", "c"], ["y"])]
    proto = model(nodes, [value("x", [1])], ["y"])
    proto.graph.initializer.append(weight)
    graph = load(stored(tmp_path, proto))
    found = interp.run(graph, {"x": np.zeros(1, np.float32)})["y"]
    np.testing.assert_array_equal(found.ravel(), numbers)


def test_a_weight_of_another_size_than_its_bytes(tmp_path: Path) -> None:
    proto = with_large_weight()
    proto.graph.initializer[1].dims[0] = 41
    with pytest.raises(ModelError):
        load(stored(tmp_path, proto))


def test_taking_weights_out_loses_nothing() -> None:
    proto = with_large_weight()
    data = np.frombuffer(proto.SerializeToString(), np.uint8)
    parts = split(data)
    assert set(parts.weights) == {1}
    assert len(parts.skeleton) < LARGE.nbytes
    back = onnx.ModelProto.FromString(parts.skeleton)
    back.graph.initializer[1].raw_data = parts.weights[1].tobytes()
    assert back == proto


def test_a_graph_in_two_pieces_is_one() -> None:
    """Protobuf joins a message that is there twice."""
    first, second = with_large_weight(), onnx.ModelProto()
    second.graph.initializer.append(numpy_helper.from_array(LARGE, "second"))
    data = first.SerializeToString() + second.SerializeToString()
    parts = split(np.frombuffer(data, np.uint8))
    assert set(parts.weights) == {1, 3}
    assert [each.name for each in onnx.ModelProto.FromString(parts.skeleton).graph.initializer][3] == "second"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3), st.integers(0, 9000))
def test_taking_weights_out_of_mutated_bytes(changes: list[tuple[int, int]], size: int) -> None:
    data = bytearray(with_large_weight().SerializeToString())
    for place, byte in changes:
        data[place] = byte
    whole = bytes(data[:size]) if size < len(data) else bytes(data)
    try:
        parts = split(np.frombuffer(whole, np.uint8))
    except ModelError:
        return
    try:
        proto = onnx.ModelProto.FromString(whole)
    except Exception:
        return
    back = onnx.ModelProto.FromString(parts.skeleton)
    for index, raw in parts.weights.items():
        back.graph.initializer[index].raw_data = raw.tobytes()
    assert back.SerializeToString(deterministic=True) == proto.SerializeToString(deterministic=True)


def test_external_data_helper_agrees(tmp_path: Path) -> None:
    proto = dense()
    external_data_helper.convert_model_to_external_data(proto, location="w.bin", size_threshold=0)
    onnx.save(proto, tmp_path / "m.onnx")
    assert load(tmp_path / "m.onnx").nodes
