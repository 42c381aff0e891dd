"""Tensors of other libraries, read and written where they lie: DLPack, and outputs that go into given arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphc
from graphc.errors import InputError
from graphc.runtime.lent import lent

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def model() -> graphc.Model:
    """y = 2x, z = x, w = the sums of y's rows."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("Identity", ["x"], ["z"]),
        helper.make_node("ReduceSum", ["y"], ["w"], keepdims=0),
    ]
    names = {"y": ["n", 4], "z": ["n", 4], "w": []}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in names.items()]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    opset = [helper.make_opsetid("", 20)]
    return graphc.compile(onnx.helper.make_model(helper.make_graph(nodes, "g", given, outputs), opset_imports=opset))


class Elsewhere:
    """A tensor of CUDA's."""

    def __dlpack__(self, **settings: Any) -> Any:
        raise AssertionError("it is not asked for")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class Only:
    """A tensor that has nothing but DLPack's protocol."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **settings: Any) -> Any:
        return self.tensor.__dlpack__(**settings)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_what_has_the_protocol_alone_is_read_where_it_lies(model: graphc.Model) -> None:
    assert lent(Only(X)).ctypes.data == X.ctypes.data
    np.testing.assert_array_equal(model.run(x=Only(X))["y"], X * 2)
    session_value = graphc.OrtValue.from_dlpack(Only(X))
    assert session_value.data_ptr() == X.ctypes.data
    assert np.from_dlpack(session_value).ctypes.data == X.ctypes.data
    assert graphc.OrtValue.from_dlpack(session_value.to_dlpack()).data_ptr() == X.ctypes.data


def test_what_is_not_on_the_cpu_is_refused(model: graphc.Model) -> None:
    with pytest.raises(InputError, match="x: lies on CUDA 0, must be on the CPU"):
        model.run(x=Elsewhere())
    with pytest.raises(InputError, match="lies on CUDA 0"):
        graphc.OrtValue.from_dlpack(Elsewhere())


@pytest.mark.torch
def test_tensors_of_pytorch(model: graphc.Model) -> None:
    torch = pytest.importorskip("torch")
    for dtype, name in ((torch.float32, "float32"), (torch.bfloat16, "bfloat16"), (torch.float8_e5m2, "float8_e5m2")):
        tensor = torch.from_numpy(X % 8).to(dtype)
        array = lent(tensor)
        assert (array.dtype.name, array.ctypes.data) == (name, tensor.data_ptr())
        np.testing.assert_array_equal(lent(tensor.T[1:, ::2]).astype(np.float32), (X % 8).T[1:, ::2])
    assert lent(torch.zeros(0, 3, dtype=torch.bfloat16)).shape == (0, 3)
    kept = lent(torch.full((1000,), 7, dtype=torch.bfloat16))  # the tensor is gone, its memory is not
    _ = [torch.zeros(1000, dtype=torch.bfloat16) for _ in range(10)]
    assert (kept == 7).all()
    with pytest.raises(InputError, match="require gradient"):
        model.run(x=torch.zeros(3, 4, requires_grad=True))
    target = torch.zeros(3, 4)
    found = model.run_into({"y": target}, x=torch.from_numpy(X))
    assert found["y"].ctypes.data == target.data_ptr()
    assert torch.equal(target, torch.from_numpy(X * 2))


@pytest.mark.parametrize("way", ["whole", "in steps", "input"])
def test_outputs_go_into_arrays(model: graphc.Model, way: str) -> None:
    x = X.copy()
    y, z, w = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32), np.zeros((), np.float32)
    if way == "in steps":
        y = np.zeros((4, 3), np.float32).T
    if way == "input":
        y = x
    found = model.run_into({"y": y, "z": z, "w": w}, {"x": x})
    assert list(found) == ["y", "z", "w"]
    assert all(np.may_share_memory(one, other) for one, other in zip(found.values(), (y, z, w), strict=True))
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(z, X)
    assert w == (X * 2).sum()
    part = model.run_into({"w": w}, x=X * 2)
    assert w == part["w"] == (X * 4).sum()
    np.testing.assert_array_equal(part["y"], X * 4)


def test_a_target_gets_the_numbers_without_a_copy(model: graphc.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(*args: Any) -> None:
        raise AssertionError("an output was copied")

    y = np.zeros((3, 4), np.float32)
    monkeypatch.setattr("graphc.targets.ggml.run.device.tensors.np.empty", copied)
    results = model.executor.run({"x": X}, {"n": 3}, {0: y, 1: y.copy(), 2: np.zeros((), np.float32)})
    assert results[0] is y


def test_targets_that_do_not_fit(model: graphc.Model) -> None:
    for target, message in (
        (np.zeros((2, 4), np.float32), r"output y is float32\[3, 4\], and where it goes there is float32\[2, 4\]"),
        (np.zeros((3, 4)), r"there is float64\[3, 4\]"),
        (X.astype(">f4"), "cannot be written"),
        (X.tolist(), "cannot be written"),
        (np.broadcast_to(X[0], (3, 4)), "cannot be written"),
    ):
        with pytest.raises(InputError, match=message):
            model.run_into({"y": target}, x=X)
    with pytest.raises(InputError, match="no output q; it has y, z, w"):
        model.run_into({"q": X}, x=X)


def test_bindings_write_where_they_are_told(model: graphc.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.gguf")
    session = graphc.Session(tmp_path / "m.gguf")
    binding, y, w = session.io_binding(), np.zeros((3, 4), np.float32), graphc.OrtValue(np.zeros((), np.float32))
    binding.bind_cpu_input("x", Only(X))
    binding.bind_output("y", "cpu", 0, np.float32, (3, 4), y.ctypes.data)
    binding.bind_ortvalue_output("w", w)
    for factor in (1, 2):
        binding.bind_cpu_input("x", X * factor)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, X * 2 * factor)
        assert w.numpy() == (X * 2 * factor).sum()
    assert [each.data_ptr() for each in binding.get_outputs()] == [y.ctypes.data, w.data_ptr()]
    found = session.run_into({"y": graphc.OrtValue(y)}, {"x": X})
    assert found["y"].ctypes.data == y.ctypes.data


def test_values_of_types_that_numpy_lacks() -> None:
    ones = np.full(3, 0x3F80, np.uint16)
    value = graphc.OrtValue.ortvalue_from_numpy_with_onnx_type(ones, TensorProto.BFLOAT16)
    assert (value.data_type(), value.data_ptr()) == ("tensor(bfloat16)", ones.ctypes.data)
    assert value.numpy().astype(ml_dtypes.bfloat16).tolist() == [1, 1, 1]
    with pytest.raises(InputError, match="uint16 cannot be taken for float32"):
        graphc.OrtValue.ortvalue_from_numpy_with_onnx_type(ones, TensorProto.FLOAT)
