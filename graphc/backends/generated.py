"""Our own backend, whose devices run generated kernels: compiled for this machine, and its devices made known to ggml.

The code is among the fixed files of the C++ project (`targets/ggml/project/gpu`); its headers say how it works.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphc.errors import BuildError, GraphcError
from graphc.ggml_library import ggml, ggml_include
from graphc.kernels.c.compiled import load_library
from graphc.kernels.c.compiler import find_compiler
from graphc.kernels.c.joined import joined
from graphc.once import once

FOLDER = Path(__file__).parents[1] / "targets" / "ggml" / "project" / "gpu"

FILES = (
    "errors.c", "devices.c", "buffers.c", "modules.c", "plan.c", "recordings.c", "backend.c", "cuda.c",
    "vulkan.c", "vulkan_memory.c", "vulkan_queues.c", "vulkan_kernels.c",
)  # fmt: skip

FLAGS = ("-std=gnu11", "-O2", "-pthread")

REGISTRY = "generated"
"""What ggml calls the backend."""

EMULATED = "GRAPHC_EMULATED"
"""The variable of the environment with the path of a stand-in for libcuda, whose devices are called emulated0, … For tests."""

DRIVERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "cuda": {"linux": ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"), "win32": ("nvcuda.dll",)},
    "vulkan": {
        "linux": ("libvulkan.so.1",),
        "win32": ("vulkan-1.dll",),
        "darwin": ("libvulkan.1.dylib", "libMoltenVK.dylib"),
    },
}
"""The libraries of drivers, by what their devices are called, and by system."""

ABSENT: Mapping[str, str] = {"cuda": "NVIDIA's driver is not here", "vulkan": "Vulkan's loader is not here"}
"""What is said where there is none."""


class DeviceError(GraphcError):
    """What a device was asked went wrong: its memory is out, a kernel failed, or it is lost."""


class Generated:
    """The backend's library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._functions = _ggml_functions()
        for function, result, parameters in SIGNATURES:
            getattr(library, function).restype = result
            getattr(library, function).argtypes = parameters

    def register(self, driver: str, prefix: str, path: str | None = None) -> str:
        """Make the devices of a driver known to ggml, by its library or that of the system; why there are none, or nothing."""
        said = self.library.graphc_gpu_register(
            self._functions, driver.encode(), path and os.fsencode(path), prefix.encode()
        )
        return said.decode(errors="replace").removeprefix(f"{prefix}: ") if said else ""

    def error(self) -> str:
        """The first error of this thread that nobody asked for yet; empty if there is none."""
        said = self.library.graphc_gpu_error()
        return said.decode(errors="replace") if said else ""


_HANDLE = ctypes.c_void_p


class Feature(ctypes.Structure):
    """What ggml calls `struct ggml_backend_feature`; a null name ends an array of them."""

    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_char_p))


_FEATURES = ctypes.POINTER(Feature)
_TIMER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double)
SIGNATURES: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("graphc_gpu_register", ctypes.c_char_p, (_HANDLE, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p)),
    ("graphc_gpu_is", ctypes.c_bool, (_HANDLE,)),
    ("graphc_gpu_features", _FEATURES, (_HANDLE,)),
    ("graphc_gpu_error", ctypes.c_char_p, ()),
    ("graphc_gpu_module", _HANDLE, (_HANDLE, ctypes.c_char_p, ctypes.c_size_t)),
    ("graphc_gpu_module_free", None, (_HANDLE,)),
    ("graphc_gpu_kernel", _HANDLE, (_HANDLE, ctypes.c_char_p, ctypes.c_uint32)),
    ("graphc_gpu_set_mode", None, (_HANDLE, ctypes.c_int)),
    ("graphc_gpu_set_timer", None, (_HANDLE, _TIMER, _HANDLE)),
    ("graphc_gpu_recordings", None, (_HANDLE, _HANDLE, _HANDLE)),
)
"""The functions of gpu.h: what they return and take."""

TRIAL = """
import json, sys
from graphc.backends.generated import register
print(json.dumps(register(sys.argv[1])))
"""
"""Makes the devices of a driver known in a process of its own, which a broken driver may end."""

tried: dict[str, str] = {}
"""Why drivers are not opened here, by what their devices are called: they failed where another process tried them. Empty where
they did not."""

_used: list[Generated] = []
"""The backend, once it is compiled."""


@once
def library() -> Generated:
    """The backend. Raises BuildError if it cannot be compiled."""
    compiler, include = find_compiler(), ggml_include()
    if compiler is None or include is None:
        raise BuildError("generated kernels need a C compiler, or `pip install ziglang`")
    _used.append(Generated(load_library(joined(FILES, file_text), compiler, include, FLAGS)))
    return _used[0]


@once
def load_generated() -> dict[str, str]:
    """Make the devices of generated kernels known, once. Returns why there are none, by the name that they would have."""
    from concurrent.futures import ThreadPoolExecutor  # a program that runs on no device starts without it

    with ThreadPoolExecutor(len(DRIVERS)) as pool:
        failing = dict(zip(DRIVERS, pool.map(_failing, DRIVERS), strict=True))
    absent = {driver: why or register(driver) for driver, why in failing.items()}
    if emulated := os.environ.get(EMULATED, ""):
        absent["emulated"] = library().register("cuda", "emulated", emulated)
    return {prefix: why for prefix, why in absent.items() if why}


def _failing(driver: str) -> str:
    """Why a driver cannot be used, as another process finds, or nothing."""
    from graphc.backends.trial import try_alone

    places = DRIVERS[driver].get(sys.platform)
    if driver in tried or not places:
        return tried.get(driver, ABSENT[driver])
    try:
        return str(try_alone(places[0], TRIAL, driver))
    except BuildError as error:
        return str(error).splitlines()[-1]


def register(driver: str) -> str:
    """Make the devices of a driver known to ggml; why there are none, or nothing."""
    try:
        return no_driver(driver) or library().register(driver, driver)
    except BuildError as error:
        return str(error)


def device_features(device: Any) -> dict[str, str]:
    """What is known of a device of generated kernels, ggml's handle, by names."""
    return named_features(library().library.graphc_gpu_features(device))


def named_features(listed: Any) -> dict[str, str]:
    """Features by their names, of an array of `Feature`s."""
    found: dict[str, str] = {}
    while listed and listed[len(found)].name:
        each = listed[len(found)]
        found[each.name.decode()] = (each.value or b"").decode(errors="replace")
    return found


def device_error() -> str:
    """What went wrong on devices since it was last asked in this thread; empty if nothing did."""
    return _used[0].error() if _used else ""


def check_devices() -> None:
    """Raises DeviceError if something went wrong on devices since it was last asked in this thread."""
    if said := device_error():
        raise DeviceError(said)


@contextmanager
def timed_nodes(backends: Iterable[Any]) -> Iterator[dict[int, float]]:
    """Have those of the backends that run generated kernels time each node that they compute, by the device's events. Gives
    seconds by the nodes' addresses, of which there are more after each run."""
    seconds: dict[int, float] = {}

    def told(data: Any, node: int, time: float) -> None:
        seconds[node] = time

    timer = _TIMER(told)
    own = [each for each in backends if _used and _used[0].library.graphc_gpu_is(ggml.ggml_backend_get_device(each))]
    for each in own:
        _used[0].library.graphc_gpu_set_timer(each, timer, None)
    try:
        yield seconds
    finally:
        for each in own:
            _used[0].library.graphc_gpu_set_timer(each, _TIMER(), None)


def no_driver(driver: str) -> str:
    """Why a driver is not there; empty if it is."""
    places = DRIVERS[driver].get(sys.platform, ())
    for each in places:
        try:
            ctypes.CDLL(each)
            return ""
        except OSError:
            continue
    return ABSENT[driver] + (f" (no {places[0]})" if places else "")


def file_text(name: str) -> str:
    """One of the backend's files."""
    return (FOLDER / name).read_text(encoding="utf-8")


def _ggml_functions() -> Any:
    """`graphc_gpu_ggml`: ggml's functions, in the order in which the header names them."""
    text = file_text("gpu.h")
    struct = text[text.index("struct graphc_gpu_ggml {") :]
    return ggml.table([f"ggml_{name}" for name in re.findall(r"\(\*(\w+)\)", struct[: struct.index("};")])])
