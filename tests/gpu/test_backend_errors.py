"""What goes wrong on a device of generated kernels is one clear error and leaves nothing behind, whichever call fails."""

import ctypes
import threading

import numpy as np
import pytest
from emulated_device import (
    BLOCK,
    Alone,
    Mixed,
    X,
    device,
    double,
    doubled,
    fake,
    image,
    nothing_is_left,  # noqa: F401
    result_of,
)

from graphc.backends.generated import DeviceError, check_devices, device_error, library
from graphc.backends.launches import Launch, Module, Place, Work
from graphc.errors import GraphcError
from graphc.ggml_library import ggml

STEP = 2
"""GRAPHC_GPU_STEP."""


def test_what_goes_wrong_is_told_to_the_thread_that_asked():
    said = []

    def run():
        fake().fail("cuMemAlloc")
        assert not ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_dev_buffer_type(device()), 1000)
        happened.set()
        asked.wait()
        said.append(device_error())

    happened, asked = threading.Event(), threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    happened.wait()
    here = device_error()
    asked.set()
    thread.join()
    assert here == ""
    assert "cuMemAlloc" in said[0]


def test_nothing_is_computed_of_what_could_not_be_copied():
    with Mixed() as mixed:
        before = fake().counts()["cuLaunchKernel"]
        fake().fail("cuMemcpyHtoDAsync")
        with pytest.raises(DeviceError, match=r"^emulated0: copying to the device \(4000 bytes\): cuMemcpyHtoDAsync"):
            mixed.run(X)
        assert fake().counts()["cuLaunchKernel"] == before
        np.testing.assert_array_equal(mixed.run(X), result_of(X))


def test_a_copy_that_failed_writes_nothing_later():
    with Alone(double, X[:64]) as alone:
        y, z = np.zeros(64, np.float32), np.zeros(64, np.float32)
        fake().fail("cuStreamSynchronize")
        ggml.ggml_backend_tensor_get(alone.x, y.ctypes.data, 0, y.nbytes)
        assert "copying from the device" in device_error()
        y[:] = 7
        ggml.ggml_backend_tensor_get(alone.x, z.ctypes.data, 0, z.nbytes)
        assert (y == 7).all()
        assert (z == X[:64]).all()


@pytest.mark.parametrize("name", ["cuMemGetInfo", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"])
def test_memory_that_the_driver_does_not_tell_is_no_error(name):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    for expected in (0, 1 << 30):
        if not expected:
            fake().fail(name)
        ggml.ggml_backend_dev_memory(device(), ctypes.byref(free), ctypes.byref(total))
        assert (free.value, total.value) == (expected, 1 << 30)
        assert device_error() == ""


def life():
    """All that a model does on a device; what went wrong."""
    try:
        with Mixed(65) as mixed:
            for turn in range(3):
                np.testing.assert_array_equal(mixed.run(X[:65] + turn), result_of(X[:65] + turn))
    except DeviceError as error:
        assert device_error() == "", "one error"
        return str(error)
    return ""


def test_of_a_lost_device_everything_says_so():
    with Mixed() as mixed:
        mixed.run(X)
        fake().fail("cuLaunchKernel", 1, 719)
        with pytest.raises(
            DeviceError, match=r"^emulated0: the device is lost, .* kernel scaled of first: cuLaunchKernel"
        ):
            mixed.run(X)
        for what in (lambda: mixed.run(X), lambda: Mixed(), lambda: mixed.module.kernel("sum")):
            with pytest.raises(DeviceError, match=r"^emulated0: the device is lost, .* kernel scaled of first"):
                what()
        assert not ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_dev_buffer_type(device()), 100)
        assert "the device is lost" in device_error()
    assert life() == "", "when all of it was given back, it can be used again"


def test_a_kernel_that_goes_astray_is_named():
    def make(alone):
        values = [np.int32(8), np.float32(2), np.float32(0)]
        kernels = (alone.module.kernel(name) for name in ("scaled", "wild"))
        arguments = [Place(0), Place(-1), *values], [Place(-1)]
        alone.work = Work(
            [Launch(*each) for each in zip(kernels, [(1, 1, 1)] * 2, [BLOCK] * 2, arguments, strict=True)]
        )
        node = alone.work.node(alone.context, ggml.GGML_TYPE_F32, [8], [alone.x])
        ggml.ggml_set_name(node, b"here")
        return node

    with (
        Alone(make, X[:8]) as alone,
        pytest.raises(DeviceError, match=r"2 launches, kernel scaled of here to kernel wild"),
    ):
        alone.run(8)
    with Alone(make, X[:8]) as alone:
        library().library.graphc_gpu_set_mode(alone.own, STEP)
        with pytest.raises(DeviceError, match=r"kernel wild of here: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"):
            alone.run(8)


def test_a_word_for_how_to_compute_that_is_none_is_an_error(monkeypatch):
    monkeypatch.setenv("GRAPHC_GPU", "fast")
    with pytest.raises(DeviceError, match=r"^emulated0: GRAPHC_GPU=fast: must be record, launch or step"):
        Mixed()
    monkeypatch.setenv("GRAPHC_GPU", "launch")
    with Mixed() as mixed:
        for _ in range(3):
            np.testing.assert_array_equal(mixed.run(X), result_of(X))
        assert mixed.recordings() == (0, 0)


def test_memory_that_is_out_is_an_error():
    backend = ggml.ggml_backend_dev_init(device(), None)
    first = ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_dev_buffer_type(device()), 600 << 20)
    assert not ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_dev_buffer_type(device()), 600 << 20)
    with pytest.raises(
        DeviceError, match=r"^emulated0: 600.0 MiB of memory: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY \(out of"
    ):
        check_devices()
    for size in (2 << 30, (1 << 64) - 1):
        assert not ggml.ggml_backend_buft_alloc_buffer(ggml.ggml_backend_dev_buffer_type(device()), size)
        with pytest.raises(DeviceError, match=r"MiB of memory: one allocation has at most 1024.0"):
            check_devices()
    ggml.ggml_backend_buffer_free(first)
    ggml.ggml_backend_free(backend)


def test_a_node_that_the_cpu_gets_is_an_error():
    with Mixed(pinned=False) as mixed:
        said = "emulated0: ggml has the CPU compute first, which is a kernel of the device (scaled)"
        with pytest.raises(DeviceError) as caught:
            mixed.run(X)
        assert str(caught.value) == said


def test_code_that_is_none_is_an_error():
    with pytest.raises(
        DeviceError, match=r"loading kernels: cuModuleLoadDataEx: .*such file.*: CUDA_ERROR_INVALID_IMAGE"
    ):
        Module(device(), b"/no/such/file.so")
    module = Module(device(), image())
    with pytest.raises(DeviceError, match=r"^emulated0: kernel nothing: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND"):
        module.kernel("nothing")
    module.free()
    with pytest.raises(DeviceError, match="was given back"):
        module.kernel("scaled")
    with pytest.raises(GraphcError, match="takes no generated kernels"):
        Module(ggml.ggml_backend_dev_by_name(b"CPU"), image())


def test_what_does_not_lie_on_the_device_is_an_error():
    def make(alone):
        alone.work = doubled(alone.module, 8, source=3)
        return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [8], [alone.x])

    with Alone(make, X[:8]) as alone, pytest.raises(DeviceError, match=r"source 3 of .* does not lie on the device"):
        alone.run(8)


def test_what_lies_on_another_device_is_an_error():
    def make(alone):
        alone.work = doubled(alone.module, 8)
        return alone.work.node(alone.context, ggml.GGML_TYPE_F32, [8], [other.x])

    with (
        Alone(lambda alone: ggml.ggml_view_tensor(alone.context, alone.x), X[:8], 1) as other,
        Alone(make, X[:8]) as alone,
        pytest.raises(DeviceError, match=r"source 0 of .* does not lie on the device"),
    ):
        alone.run(8)


def test_only_nodes_of_its_own_kernels_are_a_devices():
    with Mixed(8) as mixed:
        for node, expected in ((mixed.nodes[0], True), (mixed.y, False), (mixed.x, True)):
            assert ggml.ggml_backend_dev_supports_op(device(0), node) == expected
        assert not ggml.ggml_backend_dev_supports_op(device(1), mixed.nodes[0]), "its kernels are another device's"


def test_a_library_that_is_no_driver_says_so(tmp_path):
    register = library().register
    assert "cannot open shared object file" in register("cuda", "absent", str(tmp_path / "libcuda.so.1"))
    assert register("cuda", "absent", "libm.so.6") == "looking for devices: the driver has no cuInit; it is too old"
    assert register("abacus", "absent") == "there is no such driver"
    fake().fail("cuInit", 1, 100)
    assert register("cuda", "absent", fake().path) == (
        "looking for devices: cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)"
    )


def test_another_version_of_ggml_is_an_error():
    class Registry(ctypes.Structure):
        _fields_ = (("version", ctypes.c_int), ("rest", ctypes.c_void_p * 5))

    registry = Registry(3)
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(lambda index: ctypes.addressof(registry))
    functions = type(library()._functions)(*library()._functions)
    functions[-1] = ctypes.cast(get, ctypes.c_void_p).value
    said = library().library.graphc_gpu_register(functions, b"cuda", fake().path.encode(), b"absent")
    assert said == b"this ggml has version 3 of the interface of backends, and graphc's is written for version 2"
