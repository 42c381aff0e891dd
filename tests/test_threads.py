"""Many threads on one model: each gets what it would get alone, also while weights change; and loading in several threads."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from refitting import INPUTS, several, weights
from small_models import dense_model, stored
from test_memory import deep_model, rows

import graphc
from graphc.errors import GraphcError, InputError
from graphc.ggml_library import ggml
from graphc.ir.types import F16
from graphc.kernels.use import KernelUse
from graphc.once import once
from graphc.ops.sequences import CumSum
from graphc.runtime.turns import Turns
from graphc.shapes import symbol
from graphc.targets.ggml.run import executor
from graphc.targets.ggml.run.interpreted import InterpretedKernel
from graphc.targets.ggml.run.kernels import kernels_by
from graphc.targets.ggml.run.memory import streams
from graphc.targets.ggml.run.native_kernels import NativeKernel
from graphc.targets.ggml.run.numpy_kernels import EvaluatedKernel

MIXED = """<ir_version: 10, opset_import: ["": 21]>
mixed (float[n, 24] x, int64[n] which) => (float[n, 24] y, float[n] total)
<float[24, 24] w, float[7, 24] table> {
    product = MatMul(x, w)
    rows = Gather <axis = 0> (table, which)
    sum = Add(product, rows)
    bent = Softmax <axis = -1> (sum)
    running = CumSum(bent, one)
    y = Mul(running, x)
    last = Constant <value_ints: ints = [1]> ()
    total = ReduceMax <keepdims = 0> (y, last)
}"""
"""Products by our own code, a routine and generated kernels, for any number of rows."""


def mixed() -> onnx.ModelProto:
    text = MIXED.replace("product = MatMul", "one = Constant <value_int = 1> ()\n    product = MatMul")
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(3)
    for name, shape in (("w", (24, 24)), ("table", (7, 24))):
        array = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def feed(seed: int, rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((rows, 24)).astype(np.float32), "which": random.integers(0, 7, rows)}


FEEDS = [feed(seed, 1 + seed % 5) for seed in range(16)]

Outputs = Mapping[str, np.ndarray]


def bits(outputs: Outputs) -> tuple[bytes, ...]:
    return tuple(array.tobytes() for array in outputs.values())


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Have so many threads do the work, each with its number, all beginning together. Raises what one of them raises."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> None:
        barrier.wait(60)
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(begin, number) for number in range(count)]:
            done.result(300)


@pytest.mark.parametrize(
    ("threads", "contexts", "most"), [(1, None, 1), (2, None, 2), (4, None, 4), (2, 5, 5), (4, 1, 1)]
)
def test_every_thread_gets_its_own_results(threads: int, contexts: int | None, most: int) -> None:
    model = graphc.compile(mixed(), threads=threads, contexts=contexts)
    expected = [bits(model.run(each)) for each in FEEDS]

    def work(number: int) -> None:
        for turn in range(60):
            place = (number * 5 + turn) % len(FEEDS)
            assert bits(model.run(FEEDS[place])) == expected[place]

    at_once(6, work)
    assert 1 <= len(model.executor.contexts.idle) <= most


def test_contexts_are_a_number() -> None:
    for wrong in (0, -1, "2", True):
        with pytest.raises(InputError, match=r"contexts is .*, must be a number from 1"):
            graphc.compile(mixed(), contexts=wrong)


@pytest.mark.parametrize("limit", [None, 24 << 10])
def test_runs_on_a_device_take_turns(limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is for one of them; streamed weights have one place there."""
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: open_one("cpu", 2) + open_one("cpu", 2))
    monkeypatch.setattr(streams, "is_async", lambda backend: True)
    model = graphc.compile(deep_model(), device="d", memory=limit, threads=3)
    feeds = [rows(1 + number % 4) for number in range(8)]
    expected = [bits(model.run(each)) for each in feeds]
    assert bool(model.executor.weights.residence.streamed) == bool(limit)

    def work(number: int) -> None:
        for turn in range(8):
            assert bits(model.run(feeds[(number + turn) % 8])) == expected[(number + turn) % 8]

    at_once(4, work)
    assert len(model.executor.contexts.idle) == 1


def test_sessions_too() -> None:
    session = graphc.Session(mixed().SerializeToString())
    expected = [[array.tobytes() for array in session.run(None, each)] for each in FEEDS]

    def work(number: int) -> None:
        for turn in range(60):
            place = (number * 3 + turn) % len(FEEDS)
            assert [array.tobytes() for array in session.run(None, FEEDS[place])] == expected[place]

    at_once(4, work)


LOOKUP = """<ir_version: 10, opset_import: ["": 21]>
lookup (float[n, 4] x, int64[n, 2] which) => (float[n, 2] y) { y = GatherElements <axis = 1> (x, which) }"""


@pytest.mark.filterwarnings("ignore:no C compiler")
@pytest.mark.parametrize(
    ("way", "kind"), {"compiled": NativeKernel, "interpreted": InterpretedKernel, "evaluated": EvaluatedKernel}.items()
)
def test_an_error_belongs_to_the_run_that_made_it(way: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_KERNELS", way)
    model = graphc.compile(onnx.parser.parse_model(LOOKUP), threads=4)
    assert isinstance(model.executor.kernels[0], kind)

    def work(number: int) -> None:
        x = np.full((3, 4), number, np.float32)
        good, bad = np.zeros((3, 2), np.int64), np.full((3, 2), 4)
        for _ in range(40):
            if number % 2:
                with pytest.raises(InputError):
                    model.run(x=x, which=bad)
            else:
                np.testing.assert_array_equal(model.run(x=x, which=good)["y"], x[:, :2])

    at_once(4, work)


def test_a_thread_writes_nothing_that_another_has_to_write() -> None:
    """gcc's predictive commoning reads the cells beside those of a thread, and writes them back."""
    rows, shape = 20000, (symbol("n"), 3)
    (kernel,) = kernels_by("compiled", [KernelUse(CumSum(0, True, True), ((F16, shape),), F16, shape)])
    x, y = np.zeros((rows, 3), np.float16), np.ones((rows, 3), np.float16)
    source, result = ggml.ggml_tensor(), ggml.ggml_tensor()
    source.data, result.data, result.src[0] = x.ctypes.data, y.ctypes.data, ctypes.pointer(source)
    run, data = ctypes.cast(kernel.function, ggml.ggml_custom_op_t), kernel.userdata({"n": rows})
    ended = time.monotonic() + 0.3

    def compute() -> None:
        while time.monotonic() < ended:
            run(ctypes.pointer(result), 1, 2, ctypes.addressof(data))

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(compute)
        turn = 0
        while not other.done():
            turn = (turn + 1) % 1000
            y[:, 0] = turn
            assert (y[:, 0] == turn).all()
        other.result()
    assert not y[:, 1:].any()


def repeat(
    model: graphc.Model,
    change: Callable[[], None],
    allowed: set[tuple[bytes, ...]],
    inputs: Mapping[str, np.ndarray] = INPUTS,
) -> set[tuple[bytes, ...]]:
    """What three threads get who run the model while another changes it; nothing else than what is allowed."""
    ended, found = threading.Event(), set[tuple[bytes, ...]]()

    def work(number: int) -> None:
        if number == 0:
            try:
                change()
            finally:
                ended.set()
            return
        while not ended.is_set():
            result = bits(model.run(inputs))
            assert result in allowed
            found.add(result)

    at_once(4, work)
    return found


def test_running_while_weights_are_loaded() -> None:
    checkpoints = [weights(seed) for seed in range(3)]
    model = graphc.compile(several(checkpoints[0]), threads=2)
    allowed = []
    for each in checkpoints:
        model.load_weights(each)
        allowed.append(bits(model.run(INPUTS)))

    def change() -> None:
        for turn in range(40):
            model.load_weights(checkpoints[turn % 3])
            assert bits(model.run(INPUTS)) == allowed[turn % 3], "who changes weights sees them"
            time.sleep(0.002)

    assert len(repeat(model, change, set(allowed))) > 1


def product() -> onnx.ModelProto:
    """A parameter a.weight [64, 64]."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    product (float[5, 64] x) => (float[5, 64] y) { y = Gemm <transB = 1> (x, "a.weight") }"""
    model = onnx.parser.parse_model(text)
    array = np.random.default_rng(6).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "a.weight"))
    return model


def pair(name: str, rows: int, columns: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    return {
        f"{name}.lora_up.weight": random.standard_normal((rows, 2)).astype(np.float32),
        f"{name}.lora_down.weight": random.standard_normal((2, columns)).astype(np.float32),
    }


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_running_while_loras_change(dtype: str, tmp_path: Path) -> None:
    """Also where another program takes the place of the first: the LoRA's products are beside weights in blocks."""
    graphc.compile(product(), tmp_path / "m.gguf", dtype=dtype, threads=2).close()
    model, lora = graphc.load(tmp_path / "m.gguf", threads=2), pair("a", 64, 64)
    inputs = {"x": np.random.default_rng(7).standard_normal((5, 64)).astype(np.float32)}
    program, plain = model.program, bits(model.run(inputs))
    model.load_lora(lora, 0.5, name="a")
    half = bits(model.run(inputs))
    assert (model.program is program) == (dtype == "f32")
    model.set_lora({"a": 2})
    double = bits(model.run(inputs))
    model.unload_lora()

    def change() -> None:
        for _ in range(12):
            model.load_lora(lora, 0.5, name="a")
            assert bits(model.run(inputs)) == half
            model.set_lora({"a": 2})
            assert bits(model.run(inputs)) == double
            model.unload_lora("a")
            assert bits(model.run(inputs)) == plain

    assert len(repeat(model, change, {plain, half, double}, inputs)) > 1


def test_changes_of_several_threads_are_one_after_the_other() -> None:
    model = graphc.compile(several(weights(0)), threads=2)
    factors = pair("query", 6, 8)

    def work(number: int) -> None:
        for turn in range(5):
            model.load_lora(factors, 1.0, name=f"{number} {turn}")
            if turn % 2:
                model.unload_lora(f"{number} {turn}")

    at_once(4, work)
    assert sorted(model.loras) == [f"{number} {turn}" for number in range(4) for turn in (0, 2, 4)]


def test_closing_waits_for_runs() -> None:
    model = graphc.compile(mixed(), threads=2)
    expected = [bits(model.run(each)) for each in FEEDS]
    began = threading.Event()

    def run_on() -> None:
        for turn in range(1_000_000):
            assert bits(model.run(FEEDS[turn % 16])) == expected[turn % 16]
            began.set()

    def work(number: int) -> None:
        if number == 0:
            assert began.wait(60)
            model.close()
            return
        with pytest.raises(GraphcError, match="the model is closed"):
            run_on()

    at_once(4, work)
    model.close()
    for change in (lambda: model.load_weights(weights(0)), lambda: model.run(FEEDS[0])):
        with pytest.raises(GraphcError):
            change()
    assert model.given_up == ""
    assert model.executor.compute_bytes == 0


def test_turns_are_given_in_order() -> None:
    """Runs that come after a change wait for it, and so it does not wait forever."""
    turns, order = Turns(2), list[str]()
    threads = []

    def start(name: str, all: bool) -> None:
        def wait() -> None:
            with turns.all if all else turns.one:
                order.append(name)

        threads.append(threading.Thread(target=wait))
        threads[-1].start()
        while len(turns._waiting) < len(threads):
            time.sleep(0.001)

    with turns.one:
        start("change", True)
        start("run", False)
        start("change again", True)
        assert not order
    for each in threads:
        each.join(60)
    assert order == ["change", "run", "change again"]


def test_who_stops_waiting_leaves_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt reaches a thread that waits for its turn."""
    turns = Turns(1)
    lock = threading.Lock

    class Interrupted:
        def __init__(self) -> None:
            self.lock = lock()

        def acquire(self) -> bool:
            if self.lock.acquire(blocking=False):
                return True
            raise KeyboardInterrupt

        def release(self) -> None:
            self.lock.release()

    with turns.one:
        monkeypatch.setattr("graphc.runtime.turns.threading.Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt), turns.all:
            pass
        monkeypatch.undo()
    assert not turns._waiting
    with turns.all:
        pass


def test_once_means_once() -> None:
    calls: list[int] = []

    @once
    def slow() -> object:
        calls.append(len(calls))
        time.sleep(0.05)
        if len(calls) == 1:
            raise GraphcError("not yet")
        return object()

    with pytest.raises(GraphcError):
        slow()
    found: list[object] = []
    at_once(6, lambda number: found.append(slow()))
    assert calls == [0, 1]
    assert len(found) == 6
    assert len(set(map(id, found))) == 1


def test_compiling_in_several_threads(tmp_path: Path) -> None:
    models = [mixed(), dense_model(), several(weights(0)), onnx.parser.parse_model(LOOKUP)]
    for number, each in enumerate(models):
        graphc.compile(each, tmp_path / f"{number}.gguf").close()

    def work(number: int) -> None:
        for turn in range(3):
            place = (number + turn) % len(models)
            path = tmp_path / f"{number}-{turn}"
            path.mkdir()
            graphc.compile(models[place], path / f"{place}.gguf").close()
            assert (path / f"{place}.gguf").read_bytes() == (tmp_path / f"{place}.gguf").read_bytes()

    at_once(6, work)


FRESH = """
import sys, threading, numpy as np, graphc
barrier, results = threading.Barrier(6), []
def work(number):
    barrier.wait()
    if number % 2:
        results.append(graphc.load(sys.argv[1], threads=2).run(x=np.ones((2, 3), np.float32))["scores"])
    else:
        results.append(graphc.Session(sys.argv[2]).run(["scores"], {"x": np.ones((2, 3), np.float32)})[0])
threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for each in threads: each.start()
for each in threads: each.join()
from graphc.runtime.devices import devices
names = [each.name for each in devices()]
assert len(results) == 6 and all((each == results[0]).all() for each in results), results
assert len(names) == len(set(names)), names
"""


def test_the_first_use_in_several_threads(tmp_path: Path) -> None:
    """Nothing is imported or loaded yet."""
    model = stored(dense_model(), tmp_path / "dense.onnx")
    graphc.compile(model, tmp_path / "dense.gguf").close()
    command = [sys.executable, "-c", FRESH, str(tmp_path / "dense.gguf"), str(model)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
