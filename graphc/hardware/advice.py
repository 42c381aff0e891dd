"""What a machine's GPUs can be used by, what is missing for that, and the commands that mend it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from graphc.hardware.find import find_gpus
from graphc.hardware.gpu import GPU, plain_name
from graphc.hardware.machine import Machine
from graphc.hardware.needs.check import Need
from graphc.hardware.needs.compilers import BUILD, C_COMPILER
from graphc.hardware.needs.table import NEEDS, Needs
from graphc.hardware.system import System, system_of, version

SUITS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("NVIDIA", "Linux"): ("cuda", "vulkan"),
    ("NVIDIA", "WSL"): ("cuda",),
    ("NVIDIA", "Windows"): ("cuda", "vulkan"),
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

ROCM_CHIPS = frozenset(("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1102")) | {
    "gfx1150",
    "gfx1151",
    "gfx1200",
    "gfx1201",
}
"""AMD's chips for which ROCm has libraries."""

REGISTRIES = {"CUDA": "cuda", "ROCm": "hip", "MUSA": "musa", "MTL": "metal", "Vulkan": "vulkan", "SYCL": "sycl",
              "OpenCL": "opencl"}  # fmt: skip
"""Our names of the backends that ggml calls so."""

NO_GPU = "there is no GPU here that it suits"


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


@dataclass(frozen=True)
class Way:
    """One backend for a GPU: the devices by which ggml uses it now, or why that cannot be, or what is missing and what to do."""

    backend: str
    devices: tuple[str, ...] = ()
    never: str = ""
    installed: bool = False
    missing: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advice:
    """A GPU, or several that are alike, and the ways to use it, the best first."""

    gpus: tuple[GPU, ...]
    ways: tuple[Way, ...]

    @property
    def gpu(self) -> GPU:
        """The first of them."""
        return self.gpus[0]

    @property
    def used(self) -> Way | None:
        """The best of the ways by which it is used."""
        return next((way for way in self.ways if way.devices), None)

    @property
    def is_idle(self) -> bool:
        """Whether it could be used and is not."""
        return self.used is None and any(not way.never for way in self.ways)


@dataclass(frozen=True)
class Diagnosis:
    """A machine, its GPUs, and what is to be done for each; what the CPU lacks; and the backends that were asked for."""

    system: System
    architecture: str
    advice: tuple[Advice, ...]
    cpu: Way
    asked: tuple[Way, ...] = ()

    @property
    def idle(self) -> list[Advice]:
        """What is there of GPUs that could be used and are not."""
        return [each for each in self.advice if each.is_idle]


def diagnose(
    machine: Machine, devices: Sequence[Device], installed: Collection[str] = (), asked: Sequence[str] = ()
) -> Diagnosis:
    """Look at a machine on which ggml has these devices, and the backends of these names were built.

    Of backends that are asked for, it is said what they lack for a GPU that they suit, or, where there is none, to be built.
    """
    built = {REGISTRIES.get(device.backend, "") for device in devices} | set(installed)
    visit = _Visit(machine, system_of(machine), tuple(devices), frozenset(built))
    alike: dict[tuple[object, ...], list[GPU]] = {}
    for gpu in find_gpus(machine):
        key = (gpu.vendor, gpu.model or gpu.pci_id, gpu.memory, gpu.driver_version, gpu.architecture)
        alike.setdefault(key, []).append(gpu)
    advice = tuple(
        Advice(tuple(gpus), tuple(visit.way(name, gpus) for name in visit.suiting(gpus[0]))) for gpus in alike.values()
    )
    missing, steps = visit.mended([C_COMPILER], GPU())
    suited = {name: list(each.gpus) for each in reversed(advice) for name in visit.suiting(each.gpu)}
    ways = tuple(visit.way(name, suited.get(name, [])) for name in asked)
    return Diagnosis(visit.system, machine.architecture, advice, Way("cpu", missing=missing, steps=steps), ways)


@dataclass(frozen=True)
class _Visit:
    """A machine that is looked at: what runs on it, ggml's devices on it, and the backends that were built."""

    machine: Machine
    system: System
    devices: tuple[Device, ...]
    installed: frozenset[str]

    def suiting(self, gpu: GPU) -> tuple[str, ...]:
        """The backends for a GPU, the best first."""
        return SUITS.get((gpu.vendor, self.system.kind), ())

    def way(self, backend: str, alike: Sequence[GPU]) -> Way:
        """The way to use GPUs that are alike, or of none, what the backend lacks to be built."""
        gpu = alike[0] if alike else GPU()
        using = tuple(each.name for each in self.devices if any(_serves(each, backend, gpu) for gpu in alike))
        if using:
            return Way(backend, using, installed=True)
        never = why_never(backend, gpu) if alike else ""
        if never:
            return Way(backend, never=never)
        installed = backend in self.installed
        if installed and not alike:
            return Way(backend, installed=True, never=NO_GPU if backend in REGISTRIES.values() else "")
        needs = NEEDS.get((backend, self.system.kind), Needs())
        run = needs.run if alike else ()
        missing, steps = self.mended(run if installed else (*run, *needs.build, *BUILD.get(self.system.kind, ())), gpu)
        again = () if installed and missing else (f"graphc backend install {backend}",)
        return Way(backend, installed=installed, missing=missing, steps=(*steps, *again))

    def mended(self, needs: Sequence[Need], gpu: GPU) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is missing, in words, and what mends it, in the order of the needs: one command for all packages."""
        lacks = [(need, lack) for need in needs if (lack := need.check(self.machine, gpu)) is not None]
        mends = [need.mend(lack, gpu, self.system) for need, lack in lacks]
        steps: dict[str, None] = {}
        for manager, what in mends:
            together = dict.fromkeys(each for other, each in mends if other == manager)
            commands = self.system.commands(manager, list(together)) if manager else [self.system.without_sudo(what)]
            steps |= dict.fromkeys(commands)
        return tuple(lack.text for _, lack in lacks), tuple(steps)


def _serves(device: Device, backend: str, gpu: GPU) -> bool:
    """Whether a device of ggml's is this GPU: by its address, or, where a backend is for GPUs of any vendor, by its name."""
    if REGISTRIES.get(device.backend) != backend:
        return False
    if device.pci_address and gpu.pci_address:
        return device.pci_address == gpu.pci_address
    name = plain_name(device.description).casefold()
    return backend not in ("vulkan", "opencl") or (gpu.model != "" and gpu.model.casefold() in name)


def why_never(backend: str, gpu: GPU) -> str:
    """Why a backend cannot use a GPU whatever is installed; empty if it can, or nothing is known against it."""
    if backend == "hip" and gpu.architecture and gpu.architecture not in ROCM_CHIPS:
        return f"ROCm has no libraries for its chip ({gpu.architecture})"
    if backend == "cuda" and (0,) < version(gpu.architecture) < (5, 0):
        return f"its compute capability ({gpu.architecture}) is too old; 5.0 is the first"
    if backend == "metal" and not gpu.driver:
        return "macOS has no Metal for it"
    return ""
