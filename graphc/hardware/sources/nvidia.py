"""NVIDIA's GPUs: `nvidia-smi` on every system, and the files of the kernel's driver on Linux."""

from __future__ import annotations

import re

from graphc.hardware.gpu import GPU, gpu
from graphc.hardware.machine import Machine
from graphc.hardware.texts import MIB, memory, pairs, pci_address, pci_id

TOOLS = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
"""Windows puts the second into WSL, where it is not always on the path."""

QUERIES = (
    "name,memory.total,driver_version,pci.bus_id,pci.device_id,compute_cap",
    "name,memory.total,driver_version,pci.bus_id,pci.device_id",
)
"""What is asked for. Drivers before 510 do not know compute_cap, and then answer nothing else either."""

PROC = "/proc/driver/nvidia"


def from_smi(printed: str) -> list[GPU]:
    """`nvidia-smi --query-gpu=… --format=csv,nounits`: a line of names, then a line a GPU; none after a failure."""
    rows = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines()]
    start = next((i for i, row in enumerate(rows) if row[0] == "name"), len(rows))
    names = [name.split("[")[0].strip() for name in rows[start]] if start < len(rows) else []
    return [_of_row(dict(zip(names, row, strict=True))) for row in rows[start + 1 :] if len(row) == len(names)]


def _of_row(row: dict[str, str]) -> GPU:
    numbers = row.get("pci.device_id", "")  # 0x268410DE: the model, then the vendor
    version, capability = row.get("driver_version", ""), row.get("compute_cap", "")
    return gpu(
        pci_id(numbers[-4:], numbers[:-4]),
        row.get("name", ""),
        vendor="NVIDIA",
        memory=memory(row.get("memory.total"), MIB),
        driver="nvidia",
        driver_version=version if re.fullmatch(r"[\d.]{1,20}", version, re.ASCII) else "",
        architecture=capability if re.fullmatch(r"\d{1,2}\.\d", capability, re.ASCII) else "",
        pci_address=pci_address(row.get("pci.bus_id", "")),
    )


def from_proc(information: str, version: str = "") -> list[GPU]:
    """`/proc/driver/nvidia/gpus/*/information`, with `/proc/driver/nvidia/version`."""
    known = pairs(information)
    if "Model" not in known:
        return []
    model = known["Model"] if known["Model"] != "Unknown" else ""
    place = pci_address(known.get("Bus Location", ""))
    return [gpu("", model, vendor="NVIDIA", driver="nvidia", driver_version=kernel_version(version), pci_address=place)]


def kernel_version(version: str) -> str:
    """The driver's version in the kernel's words: "… Kernel Module [for x86_64]  550.54.14  Thu …"."""
    found = re.search(r"Kernel Module .*?(\d{3,4}\.\d{2,3}(?:\.\d{2})?)\b", version[:1000], re.ASCII)
    return found[1] if found else ""


def smi(machine: Machine, *arguments: str) -> str:
    """What nvidia-smi prints, wherever it is."""
    return next((printed for tool in TOOLS if (printed := machine.run(tool, *arguments))), "")


def report_smi(machine: Machine) -> list[GPU]:
    """The GPUs by the first question that nvidia-smi answers."""
    answers = (from_smi(smi(machine, f"--query-gpu={query}", "--format=csv,nounits")) for query in QUERIES)
    return next((found for found in answers if found), [])


def report_proc(machine: Machine) -> list[GPU]:
    """The GPUs by the driver's files."""
    version = machine.read(f"{PROC}/version")
    return [
        each for path in machine.find(f"{PROC}/gpus/*/information") for each in from_proc(machine.read(path), version)
    ]
