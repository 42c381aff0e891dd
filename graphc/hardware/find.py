"""All sources of a system, asked at the same time, and what they say made into one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from graphc.hardware.gpu import GPU, merge
from graphc.hardware.machine import Machine
from graphc.hardware.sources import amd, apple, nvidia, pci, vulkan, windows

Source = Callable[[Machine], list[GPU]]

SOURCES: Mapping[str, tuple[Source, ...]] = {
    "Linux": (
        nvidia.report_smi,
        amd.report_rocminfo,
        amd.report_smi,
        amd.report_kfd,
        nvidia.report_proc,
        pci.report_sysfs,
        vulkan.report,
        pci.report_lspci,
    ),
    "WSL": (nvidia.report_smi, amd.report_rocminfo, windows.report, vulkan.report),
    "Windows": (nvidia.report_smi, windows.report, vulkan.report),
    "Darwin": (apple.report,),
}
"""By system, the most trusted source first."""


def is_wsl(machine: Machine) -> bool:
    """True if this is Linux in Windows, where GPUs are behind one device of Microsoft's, not on the PCI bus."""
    return machine.system == "Linux" and bool(machine.find("/dev/dxg"))


def find_gpus(machine: Machine) -> list[GPU]:
    """The machine's GPUs; those that compute first, cards before processors' parts, large ones before small ones."""
    sources = SOURCES.get("WSL" if is_wsl(machine) else machine.system, ())
    with ThreadPoolExecutor(max(len(sources), 1)) as threads:
        reports = list(threads.map(lambda source: source(machine), sources))
    return sorted(merge(reports), key=lambda gpu: (not gpu.computes, gpu.integrated is True, -gpu.memory))
