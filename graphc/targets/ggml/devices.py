"""Opening the devices that a program runs on, and what they want of a graph beyond what a program says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from graphc.backends.load import load_backends
from graphc.backends.precision import settle_precision
from graphc.errors import GraphcError
from graphc.ggml_library import ggml

ROUND_STRIDED = ("Vulkan",)
"""Backends that convert an operand of a product to float16 if its rows do not lie one after the other."""


def default_threads() -> int:
    """Threads to use unless told: the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_backends(device: str, threads: int) -> list[Any]:
    """The device's backend, and the CPU's behind it where they differ. Raises GraphcError if there is no such device."""
    cpu = ggml.ggml_backend_cpu_init()
    ggml.ggml_backend_cpu_set_n_threads(cpu, threads)
    if device.lower() in ("cpu", ""):
        return [cpu]
    settle_precision()
    load_backends()
    names = [
        ggml.ggml_backend_dev_name(ggml.ggml_backend_dev_get(index)).decode()
        for index in range(ggml.ggml_backend_dev_count())
    ]
    wanted = [name for name in names if name.lower() in (device.lower(), f"{device.lower()}0")]
    if not wanted:
        raise GraphcError(
            f"no device {device!r}; there is {', '.join(names)} (`graphc doctor` says how to get others to work)"
        )
    chosen = ggml.ggml_backend_dev_by_name(wanted[0].encode())
    if ggml.ggml_backend_dev_type(chosen) == ggml.GGML_BACKEND_DEVICE_TYPE_CPU and wanted[0] == "CPU":
        return [cpu]
    backend = ggml.ggml_backend_dev_init(chosen, None)
    if not backend:
        raise GraphcError(f"device {wanted[0]} could not be opened")
    return [backend, cpu]


def names_cpu(device: str) -> bool:
    """Whether the CPU is one of several devices that are named, so that it gets a part of the model."""
    return "cpu" in split_devices(device)[1:]


def split_devices(device: str) -> list[str]:
    """The names of several devices, which have commas between them."""
    return [each.strip().lower() for each in device.split(",") if each.strip()]


def backend_name(backend: Any) -> str:
    """ggml's name of what a backend is for: "CPU", "Vulkan"."""
    return str(
        ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(ggml.ggml_backend_get_device(backend))).decode()
    )


def rounds_strided(backends: Sequence[Any]) -> bool:
    """Whether one of the backends is among `ROUND_STRIDED`."""
    return any(backend_name(each) in ROUND_STRIDED for each in backends)


def lying_together(context: Any, tensor: Any) -> Any:
    """The tensor, or a copy of it if its rows do not lie one after the other."""
    return tensor if ggml.ggml_is_contiguous(tensor) else ggml.ggml_cont(context, tensor)
