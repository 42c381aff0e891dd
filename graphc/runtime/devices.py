"""The devices that the installed ggml can compute on."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from graphc.backends.load import load_backends
from graphc.ggml_library import ggml

KINDS = {0: "CPU", 1: "GPU", 2: "integrated GPU", 3: "accelerator"}
"""`enum ggml_backend_dev_type`."""


@dataclass(frozen=True)
class Device:
    """One device: the name that `device=` takes, what it is, and its memory in bytes (0 where the driver does not say).

    `pci_address` is "0000:01:00.0", and empty where a device has none or its backend does not say.
    """

    name: str
    description: str
    kind: str
    backend: str
    memory_free: int
    memory_total: int
    pci_address: str = ""
    features: dict[str, str] = field(default_factory=dict)


def ggml_version() -> str:
    """The version of ggml itself."""
    return str(ggml.ggml_version().decode())


def devices() -> list[Device]:
    """Every device, with the features that its backend was built with (`LLAMAFILE`, `AVX512`, …)."""
    load_backends()
    return [_device(ggml.ggml_backend_dev_get(index)) for index in range(ggml.ggml_backend_dev_count())]


def devices_of(registry: Any) -> list[Device]:
    """The devices of one backend, given its `ggml_backend_reg_t`."""
    count = ggml.ggml_backend_reg_dev_count(registry)
    return [_device(ggml.ggml_backend_reg_dev_get(registry, index)) for index in range(count)]


def _device(handle: Any) -> Device:
    properties = ggml.ggml_backend_dev_props()
    ggml.ggml_backend_dev_get_props(handle, ctypes.byref(properties))
    registry = ggml.ggml_backend_dev_backend_reg(handle)
    return Device(
        name=_text(properties.name),
        description=_text(properties.description),
        kind=KINDS.get(properties.type, f"kind {properties.type}"),
        backend=_text(ggml.ggml_backend_reg_name(registry)),
        memory_free=properties.memory_free,
        memory_total=properties.memory_total,
        pci_address=_text(properties.device_id),
        features=_features(registry),
    )


class _Feature(ctypes.Structure):
    """`struct ggml_backend_feature`; a null name ends the array."""

    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_char_p))


def _features(registry: Any) -> dict[str, str]:
    address = ggml.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_get_features")
    if not address:
        return {}
    listed = ctypes.CFUNCTYPE(ctypes.POINTER(_Feature), ctypes.c_void_p)(address)(registry)
    found: dict[str, str] = {}
    index = 0
    while listed and listed[index].name:
        found[_text(listed[index].name)] = _text(listed[index].value)
        index += 1
    return found


def _text(raw: bytes | None) -> str:
    return raw.decode(errors="replace") if raw else ""
