"""Each call of Vulkan's that fails is one clear error, leaves nothing behind, and the device can be used again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
from emulated_device import looked_for
from small_models import dense_model, dense_result
from software_device import counted, path, software_alone

import graphc
from graphc.backends.generated import device_error
from graphc.errors import GraphcError
from graphc.runtime.profile import profile

DEVICE = "lavapipe0"
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)

ANY, FULL, LOST = -3, -2, -4
"""Vulkan's codes: initialization failed, the device has no memory left, the device is lost."""

NOT_NEEDED = {"DeviceWaitIdle"}
"""Who gives something back asks for it, and can do nothing if it fails."""


def run_model() -> str:
    """All that a model does on a device; what went wrong."""
    try:
        with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
            for x in (X, X, X[:2]):
                result = model.run(x=x)
                for name, expected in zip(("scores", "product"), dense_result(x), strict=True):
                    np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)
    except GraphcError as error:
        return str(error)
    return ""


def time_kernels() -> str:
    """By the device's clock; what went wrong."""
    try:
        with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
            assert profile(model, {"x": X})
    except GraphcError as error:
        return str(error)
    return ""


def look_for_devices() -> str:
    """What is done once for the driver; what went wrong."""
    with software_alone():
        return looked_for("vulkan", path())


LIVES = {each.__name__: each for each in (run_model, time_kernels, look_for_devices)}


def calls_of(live: Callable[[], str]) -> dict[str, int]:
    """How often each function that may fail is called."""
    before = counted().counts()
    assert live() == ""
    now, names = counted().counts(), counted().may_fail()
    return {name: now[name] - before[name] for name in sorted(names) if now[name] > before[name]}


def test_no_call_is_left_out() -> None:
    """One that is new is in the header, and so must be in a life."""
    assert {name for live in LIVES.values() for name in calls_of(live)} == counted().may_fail()
    left = counted().left()
    assert run_model() == time_kernels() == ""
    assert counted().left() == left


@pytest.mark.parametrize("code", [ANY, FULL, LOST])
@pytest.mark.parametrize("live", LIVES.values(), ids=LIVES)
def test_each_call_that_fails_is_one_clear_error(live: Callable[[], str], code: int) -> None:
    counts, left, told = calls_of(live), counted().left(), set()
    for name, count in counts.items():
        for nth in sorted({1, (count + 1) // 2}):
            counted().fail(name, nth, code)
            said = live()
            counted().fail(name, 0)
            told |= {name} if said else set()
            assert f"vk{name}: " in said or not said, (name, nth, said)
            assert device_error() == "", (name, nth)
            assert counted().left() == left, (name, nth, said)
    assert told == set(counts) - NOT_NEEDED
    assert live() == ""


def test_a_device_without_memory_says_how_much_was_wanted() -> None:
    counted()
    run_model()
    counted().fail("AllocateMemory", 1, FULL)
    said = run_model()
    assert said.startswith(f"{DEVICE} does not have the 0 MiB that the weights need")
    assert "MiB of memory: vkAllocateMemory: the device has no memory left (-2)" in said


def test_of_a_lost_device_everything_says_so() -> None:
    counted()
    with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
        model.run(x=X)
        counted().fail("QueueSubmit", 1, LOST)
        for _ in range(2):
            with pytest.raises(
                GraphcError, match=r"^lavapipe0: the device is lost, .*vkQueueSubmit: the device was lost"
            ):
                model.run(x=X)
    assert run_model() == "", "when all of it was given back, it can be used again"
