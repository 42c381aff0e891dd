"""One GPU, as far as it is known, and the reports of several sources made into one list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

VENDORS = {
    "10de": "NVIDIA",
    "1002": "AMD",
    "8086": "Intel",
    "106b": "Apple",
    "5143": "Qualcomm",
    "17cb": "Qualcomm",
    "1ed5": "Moore Threads",
    "13b5": "Arm",
    "14e4": "Broadcom",
    "1010": "Imagination",
    "1414": "Microsoft",
    "1af4": "QEMU",
    "1234": "QEMU",
    "1b36": "QEMU",
    "15ad": "VMware",
    "80ee": "VirtualBox",
    "1ab8": "Parallels",
    "5853": "Xen",
    "1013": "Cirrus",
    "1a03": "ASPEED",
    "102b": "Matrox",
}
"""Vendors of GPUs by their PCI number."""

DISPLAY_ONLY = frozenset(
    ("Microsoft", "QEMU", "VMware", "VirtualBox", "Parallels", "Xen", "Cirrus", "ASPEED", "Matrox")
)
"""Vendors whose adapters show pictures, in a virtual machine or a server, and compute nothing."""

INTEGRATED_CHIPS = frozenset((
    "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103", "gfx1150", "gfx1151",
    "gfx1152", "gfx1153",
))  # fmt: skip
"""AMD's chips that are part of a processor."""

INTEL_CARDS = re.compile(r"Arc\W.*\b[AB]\d{2,3}M?\b|Data Center|Iris.*Max|DG[12]", re.IGNORECASE)
"""Intel's GPUs that are cards; Arc without a number, or with a V behind it, is part of a processor."""

NVIDIA_INTEGRATED = re.compile(r"\b(Tegra|Xavier|Orin|Thor|GB10)\b")
"""NVIDIA's GPUs that share the machine's memory."""

AMD_INTEGRATED = re.compile(r"Radeon (Graphics|[678]\d0M|8\d{3}S|Vega \d+|R\d Graphics)|Processor", re.IGNORECASE)
"""How AMD calls GPUs in processors."""


@dataclass(frozen=True)
class GPU:
    """What is known of one GPU; empty, 0 or None where it is not.

    `memory` is its own, in bytes. `driver` is the kernel's name of the driver that runs it. `architecture` is the compute
    capability of NVIDIA's ("8.9"), the chip of AMD's ("gfx1100"), the version of Metal of Apple's. `pci_address` is
    "0000:01:00.0", `pci_id` the numbers of vendor and model, "10de:2684".
    """

    vendor: str = ""
    model: str = ""
    memory: int = 0
    driver: str = ""
    driver_version: str = ""
    architecture: str = ""
    integrated: bool | None = None
    pci_address: str = ""
    pci_id: str = ""

    @property
    def name(self) -> str:
        """Vendor and model, as a person says it."""
        model = self.model or (f"GPU {self.pci_id}" if self.pci_id else "GPU")
        return model if self.vendor.casefold() in model.casefold() else f"{self.vendor} {model}"

    @property
    def computes(self) -> bool:
        """True if it is more than a display."""
        return self.vendor not in DISPLAY_ONLY


def gpu(pci_id: str = "", model: str = "", **known: object) -> GPU:
    """A GPU with the vendor that its PCI number says, and its name made plain."""
    found = GPU(pci_id=pci_id, model=plain_name(model), **known)  # type: ignore[arg-type]
    return found if found.vendor else replace(found, vendor=VENDORS.get(pci_id[:4], ""))


def plain_name(name: str) -> str:
    """A model's name without trademarks, the chip's name around it, and what a driver adds in parentheses behind it."""
    name = re.sub(r"\((?:R|TM|C)\)|[®™]", "", name[:400], flags=re.IGNORECASE).strip()
    for around in (r"Microsoft Direct3D12 \((.*)\)", r"[^][]*\[([^][]+)\][^][]*", r"(.+)\([^()]*\)"):
        name = re.sub(f"^{around}$", r"\1", name)
    return " ".join(name.split())[:80]


def merge(reports: Iterable[Sequence[GPU]]) -> list[GPU]:
    """One record for each GPU. What an earlier report says goes before what later ones say.

    Two records are of one GPU if their PCI addresses are equal, or, where one has none, their PCI numbers, or, where
    one has none of these either, their names. A source without
    addresses may list a GPU twice (by two drivers), but within one report of such a source, each record is a GPU.
    """
    known: list[GPU] = []
    for report in reports:
        before = len(known)
        taken: set[int] = set()
        for each in report:
            same = [i for i, other in enumerate(known) if _same(other, each) and (i not in taken or i < before)]
            place = next((i for i in same if i not in taken), same[0] if same and not each.pci_address else None)
            if place is None:
                place = len(known)
                known.append(each)
            else:
                known[place] = completed(known[place], each)
            taken.add(place)
    return [replace(each, integrated=is_integrated(each)) for each in known]


def completed(first: GPU, other: GPU) -> GPU:
    """The first record, with the other's facts where it has none."""
    missing = {
        field.name: getattr(other, field.name)
        for field in fields(GPU)
        if getattr(first, field.name) in ("", 0, None) and getattr(first, field.name) is not False
    }
    return replace(first, **missing)


def is_integrated(gpu: GPU) -> bool | None:
    """True if it is part of a processor and shares the machine's memory; None if nothing says so."""
    if gpu.integrated is not None or not gpu.computes:
        return gpu.integrated
    if gpu.vendor == "NVIDIA":
        return NVIDIA_INTEGRATED.search(gpu.model) is not None
    if gpu.vendor == "Intel":
        if gpu.pci_address:
            return gpu.pci_address.startswith("0000:00:")
        return INTEL_CARDS.search(gpu.model) is None if gpu.model else None
    if gpu.architecture.startswith("gfx"):
        return gpu.architecture in INTEGRATED_CHIPS
    if gpu.vendor == "AMD" and gpu.model:
        return AMD_INTEGRATED.search(gpu.model) is not None
    return None


def _same(one: GPU, other: GPU) -> bool:
    if one.pci_address and other.pci_address:
        return one.pci_address == other.pci_address
    if one.pci_id and other.pci_id:
        return one.pci_id == other.pci_id
    return bool(one.model) and (one.vendor, one.model) == (other.vendor, other.model)
