"""What is on Linux's PCI bus: the kernel's files, and `lspci`, which has the names."""

from __future__ import annotations

import re

from graphc.hardware.gpu import GPU, gpu
from graphc.hardware.machine import Machine
from graphc.hardware.texts import memory, pairs, pci_address, pci_id, whole

DEVICES = "/sys/bus/pci/devices"
LSPCI = ("-Dvmmnnk",)
VIDEO_MEMORY = ("mem_info_vram_total", "tile0/physical_vram_size_bytes", "drm/card*/lmem_total_bytes")
"""Where drivers say how much memory a card has, in bytes: amdgpu, xe, and i915 as Intel ships it (the kernel's does not)."""

DISPLAY, ACCELERATOR = 0x03, 0x12
"""PCI's classes; AMD's Instinct are of the second, as are others' chips that are no GPUs."""


def from_uevent(uevent: str, video_memory: str = "", version: str = "") -> list[GPU]:
    """`/sys/bus/pci/devices/*/uevent`, with a file of `VIDEO_MEMORY` and the version of the driver's module."""
    known = pairs(uevent, "=")
    numbers = pci_id(*known["PCI_ID"].split(":", 1)) if ":" in known.get("PCI_ID", "") else ""
    if not _is_gpu(whole(known.get("PCI_CLASS"), 16) >> 16, numbers):
        return []
    return [
        gpu(
            numbers,
            memory=memory(video_memory),
            driver=known.get("DRIVER", ""),
            driver_version=version.strip()[:40],
            pci_address=pci_address(known.get("PCI_SLOT_NAME", "")),
        )
    ]


def from_lspci(printed: str) -> list[GPU]:
    """`lspci -Dvmmnnk`: a paragraph a device, with "name [number]" as values."""
    devices = [pairs(paragraph) for paragraph in re.split(r"\n\s*\n", printed)]
    return [each for device in devices for each in _of_device(device)]


def _of_device(device: dict[str, str]) -> list[GPU]:
    parts = [re.fullmatch(r"(.*?)\s*\[([0-9a-f]{4})\]", device.get(name, "")) for name in ("Class", "Vendor", "Device")]
    kind, vendor, model = parts
    if kind is None or vendor is None or model is None:
        return []
    numbers = pci_id(vendor[2], model[2])
    if not _is_gpu(int(kind[2], 16) >> 8, numbers):
        return []
    name = "" if model[1] == "Device" else model[1]
    return [gpu(numbers, name, driver=device.get("Driver", ""), pci_address=pci_address(device.get("Slot", "")))]


def _is_gpu(kind: int, numbers: str) -> bool:
    return bool(numbers) and (kind == DISPLAY or (kind == ACCELERATOR and numbers.startswith("1002:")))


def report_sysfs(machine: Machine) -> list[GPU]:
    """The GPUs by the kernel's files."""
    return [each for path in machine.find(f"{DEVICES}/*/uevent") for each in _report_device(machine, path)]


def _report_device(machine: Machine, path: str) -> list[GPU]:
    found = from_uevent(machine.read(path))
    if not found:
        return []
    folder = path.rpartition("/")[0]
    version = machine.read(f"/sys/module/{found[0].driver}/version") if found[0].driver else ""
    sizes = [machine.read(place) for pattern in VIDEO_MEMORY for place in machine.find(f"{folder}/{pattern}")]
    return from_uevent(machine.read(path), sizes[0] if sizes else "", version)


def report_lspci(machine: Machine) -> list[GPU]:
    """The GPUs by lspci."""
    return from_lspci(machine.run("lspci", *LSPCI))
