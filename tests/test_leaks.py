"""Models that are dropped without `close` are freed at once: memory, mapped files, descriptors."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphc
from graphc.ggml_library import ggml

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what is in use")

SIZE = 1 << 10
"""Rows and columns of the weight: 4 MiB."""

ROUNDS = 30


def wide() -> onnx.ModelProto:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    wide (float[n, 1024] x) => (float[n, 1024] y) { h = MatMul(x, w) y = Softmax <axis = -1> (h) }""")
    weight = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


X = np.ones((64, SIZE), np.float32)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leaks") / "wide.gguf"
    graphc.compile(wide(), path).close()
    return path


def loaded(engine: Path) -> None:
    graphc.load(engine, threads=2).run(x=X)


def loaded_in_turn(engine: Path) -> None:
    model = graphc.load(engine, threads=1)
    model.load_weights({"w": np.eye(SIZE, dtype=np.float32)})
    model.run(x=X[:1])
    model.run(x=X)


def session(engine: Path) -> None:
    graphc.Session(str(engine)).run(None, {"x": X})


def session_of_bytes(engine: Path) -> None:
    graphc.Session(engine.read_bytes()).run(None, {"x": X})


def compiled(engine: Path) -> None:
    graphc.compile(wide(), threads=2).run(x=X)


def failed(engine: Path) -> None:
    with pytest.raises(graphc.GraphcError):
        graphc.load(engine, threads=2).run(x=X[:, 1:])


@pytest.mark.parametrize("use", [loaded, loaded_in_turn, session, session_of_bytes, failed])
def test_nothing_is_left(use: Callable[[Path], None], engine: Path) -> None:
    for _ in range(3):
        use(engine)
    gc.collect()
    gc.disable()  # so that nothing waits for it
    try:
        before = in_use()
        for _ in range(ROUNDS):
            use(engine)
        after = in_use()
    finally:
        gc.enable()
    assert after[0] <= before[0], "descriptors"
    assert after[1] - before[1] < ROUNDS << 20, "a quarter of the weights"


def test_nothing_is_left_of_compilations(engine: Path) -> None:
    """Graphs of a compiler have cycles, which the collector finds."""
    for _ in range(2):
        compiled(engine)
    gc.collect()
    before = in_use()
    for _ in range(ROUNDS // 3):
        compiled(engine)
    gc.collect()
    after = in_use()
    assert after[0] <= before[0]
    assert after[1] - before[1] < (ROUNDS // 3) * (2 << 20), "half of the weights"


def test_all_that_ggml_gave_is_given_back(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = dict.fromkeys(("context", "backend", "allocator", "buffer"), 0)

    def counted(kind: str, make: str, free: str) -> None:
        made, freed = getattr(ggml, make), getattr(ggml, free)

        def start(*args: object) -> object:
            live[kind] += 1
            return made(*args)

        def end(*args: object) -> None:
            live[kind] -= 1
            freed(*args)

        monkeypatch.setattr(ggml, make, start)
        monkeypatch.setattr(ggml, free, end)

    counted("context", "ggml_init", "ggml_free")
    counted("backend", "ggml_backend_cpu_init", "ggml_backend_free")
    counted("allocator", "ggml_gallocr_new", "ggml_gallocr_free")
    counted("buffer", "ggml_backend_dev_buffer_from_host_ptr", "ggml_backend_buffer_free")
    model = graphc.load(engine, threads=2)
    model.run(x=X)
    gone = weakref.ref(model.executor)
    assert all(live.values())
    del model
    assert gone() is None
    assert not any(live.values()), live


def in_use() -> tuple[int, int]:
    """Descriptors, and bytes of memory."""
    with contextlib.suppress(AttributeError):  # what is free already is given back to the system first
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")
