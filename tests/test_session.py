"""The interfaces that other runtimes have: an onnxruntime-like session, and onnx.backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import dense_model, dense_result, stored, unsupported_model

import graphc
from graphc import onnx_backend
from graphc.errors import EngineError, GraphcError, InputError, ModelError
from graphc.runtime.devices import devices
from graphc.targets.ggml.run import executor

X = np.array([[1, 2, 3], [-1, 0.5, 2]], np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(dense_model(), tmp_path_factory.mktemp("session") / "dense.onnx")


@pytest.fixture(scope="module")
def engine(model: Path) -> Path:
    path = model.with_suffix(".gguf")
    graphc.compile(model, path)
    return path


def test_a_session_describes_the_model(model: Path) -> None:
    session = graphc.Session(model)
    assert [(each.name, each.type, each.shape) for each in session.get_inputs()] == [
        ("x", "tensor(float)", ["batch", 3])
    ]
    assert [(each.name, each.shape) for each in session.get_outputs()] == [
        ("scores", ["batch", 4]),
        ("product", ["batch", 4]),
    ]
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("kind", ["model", "engine", "model bytes", "engine bytes"])
def test_a_session_takes_files_and_bytes(kind: str, model: Path, engine: Path) -> None:
    path = engine if "engine" in kind else model
    session = graphc.Session(
        path.read_bytes() if "bytes" in kind else str(path), SimpleNamespace(intra_op_num_threads=1)
    )
    scores, product = session.run(None, {"x": X})
    for ours, theirs in zip((scores, product), dense_result(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    (only,) = session.run(["product"], {"x": X})
    np.testing.assert_array_equal(only, product)


def test_a_session_runs_several_sizes(engine: Path) -> None:
    session = graphc.Session(engine)
    for rows in (1, 5, 2, 1):
        x = np.full((rows, 3), rows, np.float32)
        np.testing.assert_allclose(session.run(["scores"], {"x": x})[0], dense_result(x)[0], rtol=1e-5, atol=1e-6)


def test_wrong_inputs_are_all_named(engine: Path) -> None:
    session = graphc.Session(engine)
    with pytest.raises(InputError, match=r"x: missing\n.*y: the model has no such input"):
        session.run(None, {"y": X})
    with pytest.raises(InputError, match="float64, must be float32"):
        session.run(None, {"x": X.astype(np.float64)})
    with pytest.raises(InputError, match="1 axes"):
        session.run(None, {"x": X[0]})
    with pytest.raises(InputError, match="axis 1 has size 2, must be 3"):
        session.run(None, {"x": X[:, :2]})
    with pytest.raises(InputError, match="has size 0, must be at least 1"):
        session.run(None, {"x": X[:0]})
    with pytest.raises(InputError, match="no output nothing; it has scores, product"):
        session.run(["nothing"], {"x": X})


def test_what_is_no_model(tmp_path: Path) -> None:
    for content, error in ((b"GGUF but not really an engine at all", EngineError), (b"hello", ModelError)):
        with pytest.raises(error):
            graphc.Session(content)
    with pytest.raises(ModelError):
        graphc.Session(tmp_path / "missing.onnx")


def test_providers(engine: Path) -> None:
    session = graphc.Session(engine, providers=[("NoSuchExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(GraphcError, match="none of the providers NoSuchExecutionProvider"):
        graphc.Session(engine, providers=["NoSuchExecutionProvider"])


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[int | None]]:
    """A device CUDA1, which computes as the CPU does. The limits of memory of each executor, as they are made."""
    open_one = executor.open_backends
    monkeypatch.setattr(
        executor,
        "open_backends",
        lambda device, threads: open_one("cpu", 1) + (open_one("cpu", 1) if "cuda1" in device else []),
    )
    there = [SimpleNamespace(name=name) for name in ("CPU", "CUDA1")]
    monkeypatch.setattr("graphc.runtime.devices.devices", lambda: there)
    monkeypatch.setattr(onnx_backend, "devices", lambda: there)
    given: list[Sequence[int | None]] = []

    class Noted(executor.Fitting):
        def __init__(self, program, weights, limits, *others) -> None:
            given.append(limits)
            super().__init__(program, weights, limits, *others)

    monkeypatch.setattr(executor, "Fitting", Noted)
    return given


def test_a_session_runs_on_devices_with_so_much_memory(engine: Path, fake_device: list[Sequence[int | None]]) -> None:
    cuda = ("CUDAExecutionProvider", {"device_id": 1, "gpu_mem_limit": 1 << 20})
    for settings in (
        {"providers": [cuda]},
        {"providers": ["CUDAExecutionProvider"], "provider_options": [cuda[1]]},
        {"providers": ["NoSuchExecutionProvider", cuda, "CPUExecutionProvider"]},
        {"device": "cuda1", "memory": "1MiB"},
        {"device": "cuda1,cpu", "memory": 1 << 20},
    ):
        session = graphc.Session(engine, **settings)
        assert session.get_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
        assert list(fake_device[-1]) == [1 << 20]
        np.testing.assert_allclose(session.run(["scores"], {"x": X})[0], dense_result(X)[0], rtol=1e-5, atol=1e-6)
    for settings, message in (
        ({"providers": [cuda], "device": "cuda1"}, "providers or a device, and not both"),
        ({"providers": [cuda], "provider_options": [{}, {}]}, "2 provider_options are given for 1 providers"),
        ({"device": "cuda1", "memory": "much"}, "not an amount of memory"),
    ):
        with pytest.raises(InputError, match=message):
            graphc.Session(engine, **settings)
    with pytest.raises(GraphcError, match="none of the providers CUDAExecutionProvider"):
        graphc.Session(engine, providers=["CUDAExecutionProvider"])


def test_the_backend_takes_devices_and_memory(fake_device: list[Sequence[int | None]]) -> None:
    assert onnx_backend.supports_device("CUDA:1")
    assert onnx_backend.supports_device("cuda1,cpu")
    for missing in ("CUDA:0", "cuda1,vulkan0", "rpc://127.0.0.1:1", "rpc://"):
        assert not onnx_backend.supports_device(missing)
    prepared = onnx_backend.prepare(dense_model(), "CUDA:1,CPU", memory="1MiB", threads=1)
    assert list(fake_device[-1]) == [1 << 20]
    np.testing.assert_allclose(prepared.run([X])[0], dense_result(X)[0], rtol=1e-5, atol=1e-6)
    sums = onnx.parser.parse_model(AXES)
    (y,) = onnx_backend.run_model(sums, [X, np.array([1])], "CUDA:1", memory="1MiB")
    np.testing.assert_allclose(y[:, 0], X.sum(1), rtol=1e-6)
    with pytest.raises(InputError, match="1 limits of memory are given for the CPU"):
        onnx_backend.run_model(sums, [X, np.array([1])], memory="1MiB")


AXES = """<ir_version: 10, opset_import: ["": 21]>
sums (float[2, 3] x, int64[k] axes) => (float[a, b] y) { y = ReduceSum(x, axes) }"""


def test_devices_have_a_cpu_with_features() -> None:
    (cpu,) = [device for device in devices() if device.name == "CPU"]
    assert cpu.kind == "CPU"
    assert cpu.memory_total > 0
    assert cpu.features


def test_backend_prepares_and_runs() -> None:
    prepared = onnx_backend.prepare(dense_model())
    outputs = prepared.run([X])
    for ours, theirs in zip(outputs, dense_result(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["product"], outputs[1])
    np.testing.assert_array_equal(prepared.run({"x": X})[0], outputs[0])
    np.testing.assert_array_equal(onnx_backend.run_model(dense_model(), X)[0], outputs[0])
    with pytest.raises(InputError, match="2 inputs for a model that has 1"):
        prepared.run([X, X])


def test_backend_knows_what_it_can() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:7")
    assert onnx_backend.is_compatible(dense_model())
    assert not onnx_backend.is_compatible(unsupported_model())
    assert isinstance(onnx_backend.Backend(), onnx.backend.base.Backend)


def test_backend_runs_a_node() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    (y,) = onnx_backend.run_node(node, [X, np.float32(1)])
    np.testing.assert_array_equal(y, np.minimum(X, 1))
    info = [(np.dtype(np.float32), X.shape)]
    (y,) = onnx_backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [X], outputs_info=info, opset_version=13)
    np.testing.assert_array_equal(y, -X)
    with pytest.raises(InputError, match="1 inputs for a node that has 2"):
        onnx_backend.run_node(helper.make_node("Add", ["a", "b"], ["y"]), [X])
