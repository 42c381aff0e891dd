"""Whole models on a device of generated kernels: what it is called, and what goes wrong on it."""

from contextlib import closing

import numpy as np
import pytest
from emulated_device import fake, nothing_is_left  # noqa: F401
from small_models import dense_model, dense_result

import graphc
from graphc.backends.generated import device_error
from graphc.errors import GraphcError
from graphc.runtime.devices import devices

DEVICE = "emulated0"
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def check(model, x=X):
    result = model.run(x=x)
    for name, expected in zip(("scores", "product"), dense_result(x), strict=True):
        np.testing.assert_allclose(result[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["emulated0", "Emulated", "emulated0 (generated)", "emulated1"])
def test_a_device_is_called_as_it_is_listed(name):
    with closing(graphc.compile(dense_model(), device=name)) as model:
        for rows in (5, 1, 5):
            check(model, X[:rows])


def test_devices_are_listed():
    (found,) = (each for each in devices() if each.name == "emulated0 (generated)")
    assert (found.kind, found.backend, found.description) == ("GPU", "generated", "Emulated GPU")
    assert found.memory_free == found.memory_total == 1 << 30
    assert found.pci_address == "0000:c0:00.0"
    assert found.features["ARCHITECTURE"] == "sm_90"


def test_a_graphics_processor_is_one_of_ggmls_own_backends():
    with pytest.raises(GraphcError, match=r"no device 'gpu'; there is .*emulated0 \(generated\)"):
        graphc.compile(dense_model(), device="gpu")


def life():
    """What went wrong."""
    try:
        with closing(graphc.compile(dense_model(), device=DEVICE)) as model:
            check(model)
            check(model, X[:2])
            model.load_weights({"dense.weight": np.ones((3, 4), np.float32), "dense.bias": np.ones(4, np.float32)})
            model.run(x=X)
    except GraphcError as error:
        return str(error)
    return ""


NEEDED = (
    "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuModuleLoadDataEx",
    "cuModuleGetFunction", "cuLaunchKernel", "cuStreamSynchronize",
)  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("code", [1, 2, 700])
def test_each_call_that_fails_is_one_clear_error(name, code):
    before = fake().counts()[name]
    assert life() == ""
    count = fake().counts()[name] - before
    assert count > 0
    for nth in range(1, count + 1):
        fake().fail(name, nth, code)
        said = life()
        fake().fail(name, 0)
        assert name in said or not said, (nth, said)
        assert device_error() == ""
        fake().check()
        assert life() == ""
