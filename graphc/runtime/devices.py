"""The devices that the installed ggml can compute on."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from graphc.backends.generated import REGISTRY, device_features, load_generated
from graphc.backends.load import load_backends, load_brought
from graphc.ggml_library import ggml
from graphc.targets.ggml.run.device.devices import features, is_generated, shown_name

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


def absent() -> dict[str, str]:
    """Why there is no device of a backend that a wheel brings, or for generated kernels, by the name that it would have."""
    load_backends()
    brought = {f"{prefix}0": why for prefix, why in load_brought().items()}
    return brought | {f"{prefix}0 ({REGISTRY})": why for prefix, why in load_generated().items()}


def devices_of(registry: Any) -> list[Device]:
    """The devices of one backend, given its `ggml_backend_reg_t`."""
    count = ggml.ggml_backend_reg_dev_count(registry)
    return [_device(ggml.ggml_backend_reg_dev_get(registry, index)) for index in range(count)]


def _device(handle: Any) -> Device:
    properties = ggml.ggml_backend_dev_props()
    ggml.ggml_backend_dev_get_props(handle, ctypes.byref(properties))
    registry = ggml.ggml_backend_dev_backend_reg(handle)
    return Device(
        name=shown_name(handle),
        description=_text(properties.description),
        kind=KINDS.get(properties.type, f"kind {properties.type}"),
        backend=_text(ggml.ggml_backend_reg_name(registry)),
        memory_free=properties.memory_free,
        memory_total=properties.memory_total,
        pci_address=_text(properties.device_id),
        features=device_features(handle) if is_generated(handle) else features(registry),
    )


def _text(raw: bytes | None) -> str:
    return raw.decode(errors="replace") if raw else ""
