"""What runs on a machine: its system's name, and how things are installed there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.hardware.find import is_wsl
from graphc.hardware.machine import Machine
from graphc.hardware.texts import pairs

MANAGERS: Mapping[str, str] = {
    "apt": "sudo apt install",
    "dnf": "sudo dnf install",
    "zypper": "sudo zypper install",
    "pacman": "sudo pacman -S --needed",
    "apk": "sudo apk add",
    "winget": "winget install --exact --id",
    "brew": "brew install",
}
"""Package managers, and how each installs; winget one package at a time."""

UNKNOWN = "?"
"""In place of a package manager, where nobody knows how a system names a package."""

MANAGER_OF: Mapping[str, str] = {
    "debian": "apt",
    "ubuntu": "apt",
    "fedora": "dnf",
    "rhel": "dnf",
    "arch": "pacman",
    "suse": "zypper",
    "alpine": "apk",
    "Windows": "winget",
    "Darwin": "brew",
}
"""By a distribution, as /etc/os-release calls it or says that it is like it, or by system."""

INSIDE = ("/.dockerenv", "/run/.containerenv")
"""Files that containers have."""


@dataclass(frozen=True)
class System:
    """A system, as far as it matters for installing things.

    `keys` are the names under which a table has what is to be done here, the most special first: "container", "wsl", the
    distribution and what it is like, the system, its package manager, "*". `release` is "debian 12".
    """

    name: str
    kind: str
    release: str
    keys: tuple[str, ...]
    is_root: bool

    @property
    def is_container(self) -> bool:
        """True if it is inside a container."""
        return "container" in self.keys

    def commands(self, manager: str, packages: Sequence[str]) -> list[str]:
        """What installs packages: one command, where the manager takes several."""
        if manager == UNKNOWN:
            return [f"install, under the names that your system has for them: {', '.join(packages)}"]
        install = self.without_sudo(MANAGERS[manager])
        if manager == "winget":
            return [f"{install} {package}" for package in packages]
        return [f"{install} {' '.join(packages)}"]

    def without_sudo(self, command: str) -> str:
        """The command as this user needs it: root has no sudo, and often there is none."""
        return command.replace("sudo ", "") if self.is_root else command


def system_of(machine: Machine) -> System:
    """What runs there. Of a Linux that does not say what it is, nothing but that is known."""
    release = {name: _unquoted(value) for name, value in pairs(machine.read("/etc/os-release"), "=").items()}
    likes = [each for name in ("ID", "ID_LIKE") for each in release.get(name, "").split()]
    names = likes if machine.system == "Linux" else [machine.system]
    manager = next((MANAGER_OF[each] for each in names if each in MANAGER_OF), "")
    inside = ["container"] if any(machine.find(each) for each in INSIDE) else []
    wsl = ["wsl"] if is_wsl(machine) else []
    keys = [*inside, *wsl, *likes, machine.system, manager, "*"]
    return System(
        name=_name(machine, release) + (" in WSL" if wsl else "") + (", in a container" if inside else ""),
        kind="WSL" if wsl else machine.system,
        release=f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip(),
        keys=tuple(each for each in keys if each),
        is_root=machine.is_root,
    )


def _name(machine: Machine, release: Mapping[str, str]) -> str:
    if machine.system == "Darwin":
        return f"macOS {machine.run('sw_vers', '-productVersion').strip()}".strip()
    return release.get("PRETTY_NAME", "") or machine.system or "an unknown system"


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))[:100]
    except ValueError:
        return ""


def version(text: str) -> tuple[int, ...]:
    """The numbers of the first version in a text: (12, 4) of "release 12.4, V12.4"."""
    found = re.search(r"\d{1,6}(?:\.\d{1,6})*", text, re.ASCII)
    return tuple(int(each) for each in found[0].split(".")) if found else ()
