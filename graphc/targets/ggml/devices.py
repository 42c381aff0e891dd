"""Opening the devices that a program runs on."""

from __future__ import annotations

import os
from typing import Any

from graphc.backends.load import load_backends
from graphc.backends.precision import settle_precision
from graphc.backends.rpc import SCHEME, Address, connect, is_address
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.targets.ggml.place import split_devices


def default_threads() -> int:
    """Threads to use unless told: the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_backends(device: str, threads: int) -> list[Any]:
    """The backends of a device, or of several with commas between, and the CPU's behind them. Raises GraphcError if there is no
    such device, or it is named twice."""
    cpu = ggml.ggml_backend_cpu_init()
    ggml.ggml_backend_cpu_set_n_threads(cpu, threads)
    names = [each for each in split_devices(device) if each != "cpu"]
    if names:
        settle_precision()
        load_backends()
    handles = [handle for name in names for handle in find_devices(name)]
    if len(set(handles)) < len(handles):
        raise GraphcError(f"--device {device}: a device is named twice")
    return [*map(_opened, handles), cpu]


def find_devices(name: str) -> list[Any]:
    """The device of that name, or those of the server at that address. Raises GraphcError."""
    return connect(Address.parse(name)) if is_address(name) else [find_device(name)]


def find_device(name: str) -> Any:
    """The device of this process with that name, in any case, with or without a final 0. Raises GraphcError."""
    names = [
        ggml.ggml_backend_dev_name(ggml.ggml_backend_dev_get(index)).decode()
        for index in range(ggml.ggml_backend_dev_count())
    ]
    wanted = [each for each in names if each.lower() in (name.lower(), f"{name.lower()}0")]
    if not wanted:
        raise GraphcError(
            f"no device {name!r}; there is {', '.join(names)} (`graphc doctor` says how to get others to work)"
        )
    return ggml.ggml_backend_dev_by_name(wanted[0].encode())


def _opened(handle: Any) -> Any:
    backend = ggml.ggml_backend_dev_init(handle, None)
    if not backend:
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
