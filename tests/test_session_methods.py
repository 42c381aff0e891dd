"""`Session` beside onnxruntime's `InferenceSession`: the same code, written for that, on both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from small_models import dense_model, dense_result, stored

import graphc
from graphc.errors import GraphcError, InputError
from graphc.runtime.session import Session
from graphc.targets.ggml.run.executor import Executor

X = np.array([[1, 2, 3], [-1, 0.5, 2]], np.float32)
ERRORS = (GraphcError, ValueError, RuntimeError, *(
    getattr(onnxruntime.capi.onnxruntime_pybind11_state, name) for name in ("Fail", "InvalidArgument", "NoSuchFile")
))  # fmt: skip

BOTH = pytest.mark.parametrize("runtime", [graphc, onnxruntime], ids=["graphc", "onnxruntime"])


def described_model() -> onnx.ModelProto:
    model = dense_model()
    model.producer_name, model.domain, model.doc_string, model.model_version = "a test", "com.example", "It scores.", 7
    model.graph.doc_string = "One product."
    helper.set_model_props(model, {"labels": "cat,dog", "größe": "3"})
    return model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(described_model(), tmp_path_factory.mktemp("session") / "dense.onnx")


@pytest.fixture(scope="module")
def engine(path: Path) -> Path:
    graphc.compile(path, path.with_suffix(".gguf")).close()
    return path.with_suffix(".gguf")


@pytest.fixture(params=["graphc", "engine", "onnxruntime"])
def session(request: pytest.FixtureRequest, path: Path, engine: Path) -> Iterator[Any]:
    runtime = onnxruntime if request.param == "onnxruntime" else graphc
    return runtime.InferenceSession(engine if request.param == "engine" else path, providers=["CPUExecutionProvider"])


def value(session: Any, array: np.ndarray) -> Any:
    runtime = graphc if isinstance(session, Session) else onnxruntime
    return runtime.OrtValue.ortvalue_from_numpy(array.copy())


def right(outputs: list[np.ndarray], x: np.ndarray = X) -> None:
    for found, expected in zip(outputs, dense_result(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_the_model_says_of_itself(session: Any) -> None:
    meta = session.get_modelmeta()
    assert meta.producer_name == "a test"
    assert meta.graph_name == "dense"
    assert meta.graph_description == "One product."
    assert meta.domain == "com.example"
    assert meta.description == "It scores."
    assert meta.version == 7
    assert meta.custom_metadata_map == {"labels": "cat,dog", "größe": "3"}
    assert [(each.name, each.type, each.shape) for each in session.get_inputs()] == [
        ("x", "tensor(float)", ["batch", 3])
    ]
    assert [(each.name, each.type, each.shape) for each in session.get_outputs()] == [
        ("scores", "tensor(float)", ["batch", 4]), ("product", "tensor(float)", ["batch", 4])]  # fmt: skip
    assert session.get_overridable_initializers() == []


def test_a_model_that_says_nothing(tmp_path: Path) -> None:
    """An engine of it has no such key, as one of an older graphc."""
    plain = dense_model()
    plain.graph.name = "g"
    theirs = onnxruntime.InferenceSession(plain.SerializeToString()).get_modelmeta()
    ours = graphc.Session(plain.SerializeToString()).get_modelmeta()
    for name in (
        "producer_name",
        "graph_name",
        "graph_description",
        "domain",
        "description",
        "custom_metadata_map",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.version == 0  # the other says 2^63 - 1


def test_providers_and_their_options(session: Any) -> None:
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    right(session.run(None, {"x": X}))
    session.set_providers(["CPUExecutionProvider"])
    right(session.run(None, {"x": X}))
    if isinstance(session, Session):  # the other warns, and takes the CPU
        with pytest.raises(GraphcError, match="none of the providers"):
            session.set_providers(["NoSuchExecutionProvider"])
        right(session.run(None, {"x": X}))
    session.disable_fallback()
    session.enable_fallback()


def test_values(session: Any) -> None:
    x = value(session, X)
    assert (x.shape(), x.data_type(), x.element_type(), x.device_name()) == ([2, 3], "tensor(float)", 1, "cpu")
    assert (x.has_value(), x.is_tensor(), x.is_sparse_tensor(), x.is_tensor_sequence()) == (True, True, False, False)
    assert x.tensor_size_in_bytes() == 24
    results = session.run_with_ort_values(None, {"x": x})
    right([each.numpy() for each in results])
    (only,) = session.run_with_ort_values(["product"], {"x": x})
    np.testing.assert_array_equal(only.numpy(), results[1].numpy())
    x.update_inplace(X * 2)
    right([each.numpy() for each in session.run_with_ort_values(None, {"x": x})], X * 2)
    with pytest.raises(ERRORS):
        x.update_inplace(X[:, :1])


@BOTH
def test_values_of_types(runtime: Any) -> None:
    made = runtime.OrtValue.ortvalue_from_shape_and_type([3, 2], np.int64)
    assert (made.shape(), made.data_type(), made.element_type()) == ([3, 2], "tensor(int64)", 7)
    assert runtime.OrtValue.ortvalue_from_numpy(np.zeros(2, bool)).data_type() == "tensor(bool)"
    numbers = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(np.from_dlpack(runtime.OrtValue.from_dlpack(numbers)), numbers)


def test_outputs_in_another_thread(session: Any) -> None:
    told, found = threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        found.append((results, user_data, error))
        told.set()

    session.run_async(None, {"x": X}, callback, "mine")
    assert told.wait(60)
    ((results, user_data, error),) = found
    right(results)
    assert (user_data, error) == ("mine", "")
    told.clear()
    session.run_async(["nothing"], {"x": X}, callback, None)
    assert told.wait(60)
    assert not len(found[1][0])
    assert "nothing" in found[1][2]


def test_errors_in_another_thread(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session, told, found = graphc.Session(engine), threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        found.append((results, error))
        told.set()
        raise ValueError("of the callback")

    session.run_async(None, {"x": X[:, :2]}, callback, None)
    assert told.wait(60)
    ((results, error),) = found
    assert results == []
    assert "axis 1 has size 2, must be 3" in error
    session._pool.shutdown()
    assert "of the callback" in capsys.readouterr().err


def test_runs_in_many_threads(session: Any) -> None:
    told, found = threading.Semaphore(0), {}

    def callback(results: Any, user_data: Any, error: str) -> None:
        found[user_data] = error or results
        told.release()

    for number in range(40):
        session.run_async(["product"], {"x": X * number}, callback, number)
    for _ in range(40):
        assert told.acquire(timeout=60)
    for number, results in found.items():
        np.testing.assert_allclose(results[0], dense_result(X * number)[1], rtol=1e-5, atol=1e-6)


def test_runs_of_one_thread_each_happen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are processors, as in onnxruntime, whose threads are those of one run."""
    monkeypatch.setattr("graphc.targets.ggml.run.device.devices.default_threads", lambda: 3)
    options = graphc.SessionOptions()
    options.intra_op_num_threads = 1
    session = graphc.Session(stored(dense_model(), tmp_path / "m.onnx"), options)
    together, run = threading.Barrier(3, timeout=60), Executor._run

    def meeting(*args: Any) -> Any:
        together.wait()
        return run(*args)

    monkeypatch.setattr(Executor, "_run", meeting)
    with ThreadPoolExecutor(3) as callers:
        results = list(callers.map(lambda number: session.run(["product"], {"x": X * number})[0], range(3)))
    for number, result in enumerate(results):
        np.testing.assert_allclose(result, dense_result(X * number)[1], rtol=1e-5, atol=1e-6)


def test_binding_arrays(session: Any) -> None:
    binding = session.io_binding()
    x = X.copy()
    binding.bind_cpu_input("x", x)
    binding.bind_output("product")
    binding.bind_output("scores")
    session.run_with_iobinding(binding)
    right(binding.copy_outputs_to_cpu()[::-1])
    x *= 3  # it is read where it lies
    session.run_with_iobinding(binding)
    right([each.numpy() for each in binding.get_outputs()][::-1], x)
    binding.clear_binding_outputs()
    with pytest.raises(ERRORS):
        session.run_with_iobinding(binding)
    with pytest.raises(ERRORS):
        binding.bind_cpu_input("nothing", X)


def test_binding_values(session: Any) -> None:
    binding, target = session.io_binding(), value(session, np.zeros((2, 4), np.float32))
    binding.bind_ortvalue_input("x", value(session, X))
    binding.bind_ortvalue_output("scores", target)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_allclose(target.numpy(), dense_result(X)[0], rtol=1e-5, atol=1e-6)
    binding.bind_ortvalue_output("scores", value(session, np.zeros((1, 4), np.float32)))
    with pytest.raises(ERRORS):
        session.run_with_iobinding(binding)


def test_binding_addresses(session: Any) -> None:
    x, product = X.copy(), np.zeros((2, 4), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("product", "cpu", 0, np.float32, product.shape, product.ctypes.data)
    binding.clear_binding_inputs()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(product, dense_result(X)[1], rtol=1e-5, atol=1e-6)
    with pytest.raises(ERRORS):
        binding.bind_output("scores", "cpu", 0, buffer_ptr=product.ctypes.data)


@BOTH
def test_settings(runtime: Any, path: Path) -> None:
    """Those that say how onnxruntime works inside mean nothing to a Session, and do no harm."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.use_env_allocators", "1")
    assert options.get_session_config_entry("session.use_env_allocators") == "1"
    options.add_free_dimension_override_by_name("batch", 2)
    session = runtime.InferenceSession(path, options, ["CPUExecutionProvider"], enable_fallback=0)
    assert session.get_session_options().intra_op_num_threads == 1
    assert [each.shape for each in session.get_inputs()] == [[2, 3]]
    run = runtime.RunOptions()
    run.add_run_config_entry("a setting", "cpu:0")
    assert run.get_run_config_entry("a setting") == "cpu:0"
    right(session.run(None, {"x": X}, run))
    run.terminate = True
    with pytest.raises(ERRORS):
        session.run(None, {"x": X}, run)
    with pytest.raises(ERRORS):
        session.run_with_ort_values(None, {"x": runtime.OrtValue.ortvalue_from_numpy(X)}, run)


def test_onnxruntimes_own_settings(path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = graphc.Session(path, options)
    assert session._model.executor.threads == 1
    right(session.run(None, {"x": X}, onnxruntime.RunOptions()))
    options.enable_profiling = True
    with pytest.raises(InputError, match=r"SessionOptions\.enable_profiling: a Session does not write profiles"):
        graphc.Session(path, options)


def test_what_is_not_there_is_refused_by_name(path: Path, engine: Path) -> None:
    options = graphc.SessionOptions()
    for attempt, message in (
        (lambda: options.add_initializer("w", None), "takes no initializer 'w'"),
        (lambda: options.register_custom_ops_library("x.so"), "x.so: a Session loads no libraries"),
        (
            lambda: options.add_free_dimension_override_by_denotation("DATA_BATCH", 1),
            "add_free_dimension_override_by_name",
        ),
        (lambda: options.get_session_config_entry("nothing"), "no setting 'nothing'"),
        (lambda: setattr(options, "threads", 3), "SessionOptions have no 'threads'"),
        (lambda: graphc.RunOptions().add_active_adapter(None), "Model.load_lora"),
        (lambda: graphc.OrtValue.ortvalue_from_numpy(X, "cuda", 0), "values lie on the CPU, and not on 'cuda'"),
        (lambda: graphc.Session(path).io_binding().bind_output("scores", "cuda"), "not on 'cuda'"),
        (lambda: graphc.Session(path).io_binding().bind_input("x", "cpu", 0, "words", [1], 0), "not an element type"),
    ):
        with pytest.raises(GraphcError, match=message):
            attempt()
    options.optimized_model_filepath = "x.onnx"
    with pytest.raises(InputError, match="optimized_model_filepath"):
        graphc.Session(path, options)
    sizes = graphc.SessionOptions()
    sizes.add_free_dimension_override_by_name("batch", 2)
    with pytest.raises(InputError, match=r"batch.* for an engine, which was compiled with its own"):
        graphc.Session(engine, sizes)
    with pytest.raises(TypeError, match="unknown"):
        graphc.Session(path, unknown=1)


def test_every_method_is_there_or_known_not_to_be() -> None:
    """What onnxruntime's classes have and ours have not is about profiles, graphs of GPUs, sparse tensors and plugins."""
    missing = {
        (theirs.__name__, name)
        for ours, theirs in (
            (Session, onnxruntime.InferenceSession),
            (graphc.OrtValue, onnxruntime.OrtValue),
            (graphc.SessionOptions(), onnxruntime.SessionOptions),
            (graphc.RunOptions(), onnxruntime.RunOptions),
            (graphc.Session.io_binding.__globals__["IOBinding"], onnxruntime.IOBinding),
            (graphc.Session.get_modelmeta.__globals__["About"](), onnxruntime.ModelMetadata),
        )
        for name in dir(theirs)
        if not name.startswith("_") and not hasattr(ours, name)
    }
    parts = ("profil", "ep", "captured_graph", "tuning", "sparse", "provider", "vector", "memory_info", "external",
             "cancellation", "shape_and_type", "onnx_type", "graph_assignment")  # fmt: skip
    assert not [each for each in missing if not any(part in each[1] for part in parts)]


def test_a_run_that_is_stopped(engine: Path) -> None:
    """`terminate` is looked at while it runs; the session works afterwards, with the same options too."""

    class Options(graphc.RunOptions):
        asked = 0

        @property
        def terminate(self) -> bool:
            self.asked += 1
            return self.asked > 1

        @terminate.setter
        def terminate(self, told: bool) -> None:
            self.asked = 0

    alone = graphc.SessionOptions()
    alone.intra_op_num_threads = 1  # others may have done all steps before the first thread looks again
    session, options = graphc.Session(engine, alone), Options()
    for _ in range(2):
        options.terminate = False
        with pytest.raises(GraphcError, match="the run was stopped"):
            session.run(None, {"x": X}, options)
        assert options.asked == 2
        right(session.run(None, {"x": X}))
        right(session.run(None, {"x": X}, graphc.RunOptions()))
