"""Windows' display adapters, by PowerShell; from inside WSL too, which can run Windows' programs."""

from __future__ import annotations

import re
from typing import Any

from graphc.hardware.gpu import GPU, VENDORS, gpu
from graphc.hardware.machine import Machine
from graphc.hardware.texts import document, memory, objects, pci_id, text, whole

POWERSHELL = ("powershell.exe", "-NoProfile", "-NonInteractive", "-Command")
UTF8 = "[Console]::OutputEncoding = [Text.Encoding]::UTF8; "

CONTROLLERS = (
    UTF8 + "Get-CimInstance Win32_VideoController | Select-Object Name, AdapterRAM, DriverVersion, PNPDeviceID, "
    "InfFilename, ConfigManagerErrorCode | ConvertTo-Json"
)
REGISTRY = (
    UTF8 + r"Get-ItemProperty 'HKLM:\SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}\0*' "
    "-ErrorAction SilentlyContinue | Select-Object MatchingDeviceId, 'HardwareInformation.qwMemorySize' | ConvertTo-Json"
)

LARGEST_RAM = 0xFFF00000
"""AdapterRAM has 32 bits: of 4 GiB and more it says this, or less. The registry's number has 64."""

PLAIN_DRIVER = "display.inf"
"""Windows' own driver for any adapter, which shows pictures and does nothing else."""


def from_controllers(printed: str, registry: str = "") -> list[GPU]:
    """`Get-CimInstance Win32_VideoController | ConvertTo-Json`, with the sizes of memory from the registry.

    What is not on the PCI bus is not a GPU (remote desktops, virtual screens), except for Qualcomm's.
    """
    sizes = registry_memory(registry)
    return [each for controller in objects(document(printed)) for each in _of_controller(controller, sizes)]


def registry_memory(printed: str) -> dict[str, int]:
    """Bytes by PCI number. The registry keeps entries of adapters that were removed."""
    sizes: dict[str, int] = {}
    for entry in objects(document(printed)):
        number = _number(text(entry.get("MatchingDeviceId")))
        size = _size(entry.get("HardwareInformation.qwMemorySize"))
        if number and size:
            sizes[number] = size
    return sizes


def _of_controller(controller: dict[str, Any], sizes: dict[str, int]) -> list[GPU]:
    place = text(controller.get("PNPDeviceID"))
    number, is_qualcomm = _number(place), re.match(r"ACPI\\(VEN_)?QCOM", place) is not None
    if not number and not is_qualcomm:
        return []
    plain = text(controller.get("InfFilename")).casefold() == PLAIN_DRIVER
    works = not plain and whole(controller.get("ConfigManagerErrorCode")) == 0
    ram = whole(controller.get("AdapterRAM"))
    vendor = VENDORS["5143"] if is_qualcomm else VENDORS.get(number[:4], "")
    return [
        gpu(
            number,
            "" if plain else text(controller.get("Name")),
            vendor=vendor,
            memory=sizes.get(number, ram if ram < LARGEST_RAM else 0),
            driver=(vendor or "windows").casefold() if works else "",
            driver_version=_version(text(controller.get("DriverVersion")), number) if works else "",
        )
    ]


def _number(place: str) -> str:
    r"""The PCI number in `PCI\VEN_10DE&DEV_2684&…`."""
    found = re.match(r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", place, re.IGNORECASE)
    return pci_id(found[1], found[2]) if found else ""


def _size(value: Any) -> int:
    """A number; some drivers store its bytes, the lowest first, and PowerShell may write a list as an object."""
    value = value.get("value") if isinstance(value, dict) else value
    if isinstance(value, list) and len(value) <= 8 and all(isinstance(each, int) and 0 <= each < 256 for each in value):
        return memory(int.from_bytes(bytes(value), "little"))
    return memory(value)


def _version(version: str, number: str) -> str:
    """The version as NVIDIA names it: 560.94 for Windows' 32.0.15.6094."""
    digits = "".join(version.split(".")[2:])
    nvidia = number.startswith("10de") and len(digits) >= 5 and digits.isdecimal()
    return f"{digits[-5:-2]}.{digits[-2:]}" if nvidia else version[:40]


def report(machine: Machine) -> list[GPU]:
    """The GPUs by PowerShell."""
    printed = machine.run(*POWERSHELL, CONTROLLERS)
    return from_controllers(printed, machine.run(*POWERSHELL, REGISTRY)) if printed else []
