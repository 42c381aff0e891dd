"""What a machine's GPUs can be used by, what is missing for that, and the commands that mend it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import metadata

from graphc.hardware.find import find_gpus
from graphc.hardware.gpu import GPU
from graphc.hardware.machine import Machine
from graphc.hardware.needs.check import Need
from graphc.hardware.needs.compilers import BUILD, C_COMPILER
from graphc.hardware.needs.table import NEEDS, Needs
from graphc.hardware.suits import GENERATED, REGISTRIES, SUITS, Device, serves, why_never
from graphc.hardware.system import System, system_of

CPU = "cpu"
"""What installed code for the CPU is called, which a wheel brings."""

NO_GPU = "there is no GPU here that it suits"


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
        """True if it could be used and is not."""
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
    suited = {name: list(each.gpus) for each in reversed(advice) for name in visit.suiting(each.gpu)}
    ways = tuple(visit.way(name, suited.get(name, [])) for name in asked)
    return Diagnosis(visit.system, machine.architecture, advice, visit.cpu(), ways)


def reinstall() -> str:
    """The command that builds ggml again, of the version that graphc needs."""
    try:
        needed = metadata.requires("graphc") or []
    except metadata.PackageNotFoundError:
        needed = []
    own = "graphc" if needed else "ggml-python"  # a wheel that brings ggml does not ask for the package
    package = next((each for each in needed if each.startswith("ggml-python")), own)
    return f"pip install --force-reinstall --no-deps --no-cache-dir {package}"


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

    def cpu(self) -> Way:
        """What would make the CPU faster: nothing, where compiled code of our own is there."""
        if CPU in self.installed:
            return Way(CPU, installed=True)
        missing, steps = self.mended([C_COMPILER], GPU())
        return Way(CPU, missing=missing, steps=steps)

    def way(self, backend: str, alike: Sequence[GPU]) -> Way:
        """The way to use GPUs that are alike, or of none, what the backend lacks to be built."""
        gpu = alike[0] if alike else GPU()
        using = tuple(each.name for each in self.devices if any(serves(each, backend, gpu) for gpu in alike))
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
        if backend == GENERATED:
            missing, steps = self.mended((*run, *needs.build), gpu)
            return Way(backend, missing=missing, steps=steps)
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
