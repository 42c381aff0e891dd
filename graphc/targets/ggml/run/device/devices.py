"""Opening the devices that a program runs on."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from graphc.backends.generated import REGISTRY, Feature, check_devices, named_features
from graphc.backends.precision import settle_precision
from graphc.backends.rpc import SCHEME, Address, connect, is_address
from graphc.errors import GraphcError, InputError
from graphc.forking import renew_in_child
from graphc.ggml_library import ggml
from graphc.targets.ggml.run.device.options import split_devices

MOST_THREADS = 512
"""GGML_MAX_N_THREADS: with more, ggml ends the process."""

MOST_DEVICES = 15
"""GGML_SCHED_MAX_BACKENDS, of which the CPU is one: with more, too."""


class _Drivers:
    """True if drivers of devices and connections to servers are used in this process, and in one that it was forked from."""

    def __init__(self) -> None:
        self.used = self.foreign = False

    def renew(self) -> None:
        """See `Renewed`."""
        self.foreign |= self.used

    def use(self) -> None:
        """Raises GraphcError in a child of a process that used some."""
        if self.foreign:
            raise GraphcError(
                "this process was forked from one that used a device other than the CPU, whose driver does not survive that; "
                'start it in another way (multiprocessing\'s "spawn"), or use devices in the child alone'
            )
        self.used = True


_drivers = _Drivers()
renew_in_child(_drivers)


def default_threads() -> int:
    """Threads to use unless told: the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: Any) -> int:
    """The number of threads, which is that of the processors if none is given. Raises InputError for what is no such number."""
    if threads is None:
        return min(default_threads(), MOST_THREADS)
    if not isinstance(threads, int | np.integer) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads is {threads!r}, must be a number from 1 to {MOST_THREADS}")
    return int(threads)


def open_backends(device: str, threads: int) -> list[Any]:
    """The backends of a device, or of several with commas between, and the CPU's behind them. Raises GraphcError if there is no
    such device, one is named twice, or there are too many."""
    names = [each for each in split_devices(device) if each != "cpu"]
    if names:
        from graphc.backends.load import load_backends

        _drivers.use()
        settle_precision()
        load_backends()
    handles = [handle for name in names for handle in find_devices(name)]
    if len(set(handles)) < len(handles):
        raise GraphcError(f"--device {device}: a device is named twice")
    if len(handles) > MOST_DEVICES:
        raise GraphcError(f"{len(handles)} devices; ggml can use at most {MOST_DEVICES} besides the CPU")
    return [*map(_opened, handles), open_cpu(threads)]


def open_cpu(threads: int) -> Any:
    """A backend of the CPU."""
    cpu = ggml.ggml_backend_cpu_init()
    ggml.ggml_backend_cpu_set_n_threads(cpu, threads)
    return cpu


def find_devices(name: str) -> list[Any]:
    """The device of that name, or those of the server at that address. Raises GraphcError."""
    return connect(Address.parse(name)) if is_address(name) else [find_device(name)]


def find_device(name: str) -> Any:
    """The device of this process with that name, in any case, with or without a final 0; "gpu" is the first graphics processor
    of ggml's own backends, one with memory of its own before others. What is listed as "cuda0 (generated)" is cuda0 too, unless
    ggml's backend has one of that name. Raises GraphcError."""
    handles = [ggml.ggml_backend_dev_get(index) for index in range(ggml.ggml_backend_dev_count())]
    if name.lower() == "gpu":
        own = [handle for handle in handles if not is_generated(handle)]
        for kind in (ggml.GGML_BACKEND_DEVICE_TYPE_GPU, ggml.GGML_BACKEND_DEVICE_TYPE_IGPU):
            if found := next((handle for handle in own if ggml.ggml_backend_dev_type(handle) == kind), None):
                return found
    for handle in handles:
        plain = ggml.ggml_backend_dev_name(handle).decode().lower()
        if name.lower() in (plain, plain.removesuffix("0"), shown_name(handle).lower()):
            return handle
    from graphc.backends.generated import load_generated
    from graphc.backends.load import load_brought

    known = ", ".join(map(shown_name, handles))
    kind = name.lower().rstrip("0123456789")
    why = load_brought().get(kind) or load_generated().get(kind)
    said = f": {why}" if why else ""
    raise GraphcError(f"no device {name!r}{said}; there is {known} (`graphc doctor` says how to get others to work)")


def is_generated(device: Any) -> bool:
    """True if a device is one of generated kernels."""
    return bool(ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(device)).decode() == REGISTRY)


def shown_name(device: Any) -> str:
    """What a person reads of a device: ggml's name, and whose it is where another may have the same."""
    name = str(ggml.ggml_backend_dev_name(device).decode())
    return f"{name} ({REGISTRY})" if is_generated(device) else name


def _opened(handle: Any) -> Any:
    backend = ggml.ggml_backend_dev_init(handle, None)
    if not backend:
        check_devices()
        raise GraphcError(f"device {ggml.ggml_backend_dev_name(handle).decode()} could not be opened")
    return backend


def backend_name(backend: Any) -> str:
    """ggml's name of what a backend is for: "CPU", "Vulkan"."""
    return str(
        ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(ggml.ggml_backend_get_device(backend))).decode()
    )


def device_name(backend: Any) -> str:
    """What a person calls a backend's device: ggml's name, or the address of its server."""
    device = ggml.ggml_backend_get_device(backend)
    if backend_name(backend) == "RPC":
        return f"{SCHEME}{ggml.ggml_backend_dev_description(device).decode()}"
    return str(ggml.ggml_backend_dev_name(device).decode())


def features(registry: Any) -> dict[str, str]:
    """What a backend says of itself, by ggml's names."""
    address = ggml.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_get_features")
    if not address:
        return {}
    return named_features(ctypes.CFUNCTYPE(ctypes.POINTER(Feature), ctypes.c_void_p)(address)(registry))
