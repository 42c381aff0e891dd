"""Each call of libcuda's that the backend makes fails once, wherever a device is used: that is one clear error, leaves nothing
behind, and the device can be used again."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from emulated_device import Alone, Mixed, X, device, double, fake, looked_for, nothing_is_left, result_of  # noqa: F401

from graphc.backends.generated import DeviceError, check_devices, device_error, file_text, timed_nodes
from graphc.ggml_library import ggml

FEW = X[:64]


def look_for_devices() -> None:
    """What is done once for a driver."""
    if said := looked_for("cuda", fake().path):
        raise DeviceError(said)


def run_graphs() -> None:
    """Launched, recorded, replayed."""
    with Mixed(65) as mixed:
        for turn in range(3):
            np.testing.assert_array_equal(mixed.run(X[:65] + turn), result_of(X[:65] + turn))


def time_nodes() -> None:
    """By events."""
    with Mixed(65) as mixed, timed_nodes([mixed.own]) as told:
        np.testing.assert_array_equal(mixed.run(X[:65]), result_of(X[:65]))
        assert len(told) == 2


def move_data() -> None:
    """Whole tensors and parts, within a device."""
    with Alone(double, FEW) as alone:
        ggml.ggml_backend_tensor_memset(alone.x, 0, 0, 8)
        check_devices()
        ggml.ggml_backend_tensor_copy(alone.x, alone.y)
        check_devices()
        y = np.empty_like(FEW)
        ggml.ggml_backend_tensor_get(alone.y, y.ctypes.data, 0, y.nbytes)
        check_devices()
        np.testing.assert_array_equal(y, [0, 0, *FEW[2:]])


@contextmanager
def event_of(number: int) -> Iterator[Any]:
    """An event of a device. Raises DeviceError."""
    event = ggml.ggml_backend_event_new(device(number))
    check_devices()
    try:
        yield event
    finally:
        ggml.ggml_backend_event_free(event)


def move_between_devices() -> None:
    """Later and at once, with events. What one computes of the other's is right if both say that nothing went wrong."""
    with Alone(double, FEW) as first, Alone(double, FEW, 1) as second, event_of(0) as event:
        ggml.ggml_backend_graph_compute_async(first.own, first.graph)
        check_devices()
        ggml.ggml_backend_tensor_copy_async(first.own, second.own, first.y, second.x)
        check_devices()
        found = second.run(64)
        ggml.ggml_backend_synchronize(first.own)
        check_devices()
        np.testing.assert_array_equal(found, 4 * FEW)
        for step in (
            lambda: ggml.ggml_backend_event_record(event, first.own),
            lambda: ggml.ggml_backend_event_wait(second.own, event),
            lambda: ggml.ggml_backend_event_synchronize(event),
            lambda: ggml.ggml_backend_tensor_copy(first.x, second.x),
            lambda: ggml.ggml_backend_synchronize(first.own),
        ):
            step()
            check_devices()
        np.testing.assert_array_equal(second.run(64), 2 * FEW)


def ask_for_memory() -> None:
    """Who only wants to know gets no error."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(device(), ctypes.byref(free), ctypes.byref(total))
    assert free.value in (0, total.value)
    check_devices()


LIVES: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (look_for_devices, run_graphs, time_nodes, move_data, move_between_devices, ask_for_memory)
}  # fmt: skip


def ended(live: Callable[[], None]) -> str:
    """What went wrong; nothing of it is left."""
    said = ""
    try:
        live()
    except DeviceError as error:
        said = str(error)
    assert device_error() == "", "one error"
    fake().check()
    return said


def calls_of(live: Callable[[], None]) -> dict[str, int]:
    """How often each function is called."""
    before = fake().counts()
    assert ended(live) == ""
    return {name: count - before[name] for name, count in fake().counts().items() if count > before[name]}


def declared() -> set[str]:
    """All functions of libcuda's that the backend can call, as `cuda_calls.h` names them."""
    return {f"cu{name}" for name in re.findall(r"^    X\((\w+), cu\w+,", file_text("cuda_calls.h"), re.M)}


ASKED_WHY = {"cuGetErrorName", "cuGetErrorString"}
"""What is called when another has failed."""

NOT_NEEDED = {
    "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphDestroy", "cuGraphExecDestroy", "cuMemFree",
    "cuModuleUnload", "cuStreamDestroy", "cuEventDestroy", "cuDevicePrimaryCtxRelease", "cuCtxSynchronize", "cuMemGetInfo",
}  # fmt: skip
"""Without these a run still has its results."""


def is_needed(live: Callable[[], None], name: str, nth: int, count: int) -> bool:
    """True if something cannot go on without a call. The second of three runs is recorded, or else launched; a backend waits
    before it goes, and nobody asks it how that went."""
    if live is ask_for_memory:
        return False
    recorded = live is run_graphs and name == "cuLaunchKernel" and nth in (4, 5, 6)
    backends = 2 if live is move_between_devices else 1
    last_wait = name == "cuStreamSynchronize" and nth > count - backends
    return name not in NOT_NEEDED and not name.startswith("cuCtx") and not recorded and not last_wait


EARLY = {"cuFuncGetAttribute", "cuLaunchKernelEx"}
"""What is called where kernels begin early, which is decided when the driver is opened (`test_backend.py`)."""


def test_no_call_is_left_out() -> None:
    """One that is new is in the header, and so must be in a life."""
    seen = {name for live in LIVES.values() for name in calls_of(live)}
    assert len(declared()) > 40
    assert seen == declared() - ASKED_WHY - EARLY


@pytest.mark.parametrize(("code", "named"), [(1, "CUDA_ERROR_INVALID_VALUE"), (2, "CUDA_ERROR_OUT_OF_MEMORY")])
@pytest.mark.parametrize("live", LIVES.values(), ids=LIVES)
def test_each_call_that_fails_is_one_clear_error(live: Callable[[], None], code: int, named: str) -> None:
    told = set()
    for name, count in calls_of(live).items():
        for nth in range(1, count + 1):
            fake().fail(name, nth, code)
            said = ended(live)
            fake().fail(name, 0)
            if is_needed(live, name, nth, count):
                assert re.match(r"(emulated|again)[01]?: ", said), (name, nth, said)
                assert re.search(f"{name}(Ex)?: {re.escape(named)} \\(", said), (name, nth, said)
            elif said:
                assert name.startswith("cuCtxP"), (name, nth, said)
                assert f"{name}: {named} (" in said, (name, nth, said)
            told |= {name} if said else set()
            assert ended(live) == "", f"after {name} failed for the {nth}. time"
    if live is run_graphs:
        assert {"cuCtxPushCurrent", "cuCtxPopCurrent"} <= told


@pytest.mark.parametrize("live", LIVES.values(), ids=LIVES)
def test_a_device_can_be_lost_at_any_call(live: Callable[[], None]) -> None:
    for name, count in calls_of(live).items():
        for nth in range(1, count + 1):
            fake().fail(name, nth, 700)
            said = ended(live)
            fake().fail(name, 0)
            assert said == "" or "CUDA_ERROR_ILLEGAL_ADDRESS" in said, (name, nth, said)
            if name in ("cuLaunchKernel", "cuMemcpyHtoDAsync", "cuGraphLaunch"):
                assert re.match(r"emulated[01]: the device is lost", said), (name, nth, said)
            assert ended(live) == "", f"after it was lost at {name}, the {nth}. time"


def test_what_the_driver_cannot_name_has_its_number() -> None:
    """Newer drivers give codes that nobody here knows, and what names them may fail too."""
    for name, code in (("", 977), ("cuGetErrorName", 2), ("cuGetErrorString", 2)):
        fake().fail("cuMemAlloc", 1, code)
        if name:
            fake().fail(name)
        said = ended(run_graphs)
        assert f"cuMemAlloc: {'CUDA_ERROR_OUT_OF_MEMORY' if name == 'cuGetErrorString' else f'error {code}'} (" in said
