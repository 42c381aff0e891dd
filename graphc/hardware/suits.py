"""Which of ggml's backends suits which GPU, and which of ggml's devices is which GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from graphc.hardware.gpu import GPU, plain_name
from graphc.hardware.system import version

GENERATED = "generated"
"""What is no backend of ggml's: kernels that graphc generates, for which there is nothing to be installed but compilers."""

FIRST_GENERATED = (7, 5)
"""The lowest compute capability for which kernels are generated."""

SUITS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("NVIDIA", "Linux"): ("cuda", "vulkan", GENERATED),
    ("NVIDIA", "WSL"): ("cuda", GENERATED),
    ("NVIDIA", "Windows"): ("cuda", "vulkan", GENERATED),
    ("AMD", "Linux"): ("hip", "vulkan"),
    ("AMD", "WSL"): ("hip",),
    ("AMD", "Windows"): ("vulkan", "hip"),
    ("AMD", "Darwin"): ("metal",),
    ("Intel", "Linux"): ("vulkan", "sycl"),
    ("Intel", "WSL"): ("sycl",),
    ("Intel", "Windows"): ("vulkan", "sycl"),
    ("Intel", "Darwin"): ("metal",),
    ("Apple", "Darwin"): ("metal",),
    ("Apple", "Linux"): ("vulkan",),
    ("Qualcomm", "Linux"): ("opencl", "vulkan"),
    ("Qualcomm", "Windows"): ("opencl", "vulkan"),
    ("Moore Threads", "Linux"): ("musa", "vulkan"),
    ("Arm", "Linux"): ("vulkan",),
    ("Broadcom", "Linux"): ("vulkan",),
    ("Imagination", "Linux"): ("vulkan",),
}
"""The backends for a vendor's GPUs on a kind of system, the best first. In WSL, Vulkan reaches no GPU without tinkering."""

ROCM_CHIPS = frozenset((
    "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1150", "gfx1151", "gfx1200",
    "gfx1201",
))  # fmt: skip
"""AMD's chips for which ROCm has libraries."""

REGISTRIES = {"CUDA": "cuda", "ROCm": "hip", "MUSA": "musa", "MTL": "metal", "Vulkan": "vulkan", "SYCL": "sycl",
              "OpenCL": "opencl", "generated": GENERATED}  # fmt: skip
"""Our names of the backends that ggml calls so."""


class Device(Protocol):
    """A device of ggml's, as `graphc.runtime.devices` describes it."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def backend(self) -> str: ...  # noqa: D102
    @property
    def pci_address(self) -> str: ...  # noqa: D102
    @property
    def features(self) -> Mapping[str, str]: ...  # noqa: D102


def serves(device: Device, backend: str, gpu: GPU) -> bool:
    """True if a device of ggml's is this GPU: by its address, or, where a backend is for GPUs of any vendor, by its name."""
    if REGISTRIES.get(device.backend) != backend:
        return False
    if device.pci_address and gpu.pci_address:
        return device.pci_address == gpu.pci_address
    name = plain_name(device.description).casefold()
    return backend not in ("vulkan", "opencl", GENERATED) or (gpu.model != "" and gpu.model.casefold() in name)


def why_never(backend: str, gpu: GPU) -> str:
    """Why a backend cannot use a GPU whatever is installed; empty if it can, or nothing is known against it."""
    if backend == "hip" and gpu.architecture and gpu.architecture not in ROCM_CHIPS:
        return f"ROCm has no libraries for its chip ({gpu.architecture})"
    if backend == "cuda" and (0,) < version(gpu.architecture) < (5, 0):
        return f"its compute capability ({gpu.architecture}) is too old; 5.0 is the first"
    if backend == GENERATED and (0,) < version(gpu.architecture) < FIRST_GENERATED:
        return (
            f"its compute capability ({gpu.architecture}) is too old; 7.5 is the first for which kernels are generated"
        )
    if backend == "metal" and not gpu.driver:
        return "macOS has no Metal for it"
    return ""
