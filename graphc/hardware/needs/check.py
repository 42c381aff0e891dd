"""What something needs, how to see whether it is there, and what mends it; `table.py` says what needs what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graphc.hardware.gpu import GPU
from graphc.hardware.machine import Machine
from graphc.hardware.system import MANAGERS, UNKNOWN, System, version


@dataclass(frozen=True)
class Lack:
    """Something that is missing: in words, and what mends it, if that is not what mends the need at other times."""

    text: str
    mend: str = ""


Check = Callable[[Machine, GPU], Lack | None]


@dataclass(frozen=True)
class Need:
    """One thing that a backend needs.

    `mends` has packages under the name of a package manager, and under the other keys of `System` what a person has to do;
    a key with a vendor's name before it ("AMD pacman") goes before those without. `offered` has the releases of systems
    whose packages are old, with their version: if the GPU needs a later one (`wanted`), what is under "old" is done.
    """

    check: Check
    mends: Mapping[str, str]
    offered: Mapping[str, str] = field(default_factory=dict)
    wanted: Callable[[GPU], str] = lambda gpu: ""

    def mend(self, lack: Lack, gpu: GPU, system: System) -> tuple[str, str]:
        """A package manager and the packages that it has to install; or "" and what a person has to do; or UNKNOWN."""
        if lack.mend:
            return "", lack.mend
        keys = system.keys
        if system.release in self.offered and version(self.offered[system.release]) < version(self.wanted(gpu)):
            keys = ("old", *(key for key in keys if key not in MANAGERS))
        names = (*(f"{gpu.vendor} {key}" for key in keys), *keys)
        found = next((name for name in names if name in self.mends), None)
        if found is None:
            return UNKNOWN, lack.text
        manager = found.rpartition(" ")[2]
        return (manager if manager in MANAGERS else ""), self.mends[found].replace("{wanted}", self.wanted(gpu))


def tool(text: str, *names: str) -> Check:
    """True if one of these tools is there."""
    return lambda machine, gpu: None if any(map(machine.which, names)) else Lack(text)


def file(text: str, *patterns: str) -> Check:
    """True if one of these files is there."""
    return lambda machine, gpu: None if any(map(machine.find, patterns)) else Lack(text)


def everywhere(package: str) -> dict[str, str]:
    """A package that has the same name for every package manager of Linux."""
    return dict.fromkeys(("apt", "dnf", "zypper", "pacman", "apk"), package)
