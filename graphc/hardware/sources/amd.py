"""AMD's GPUs: what the kernel's compute driver says, and ROCm's tools, where they are installed."""

from __future__ import annotations

import re
from typing import Any

from graphc.hardware.gpu import GPU, gpu
from graphc.hardware.machine import Machine
from graphc.hardware.texts import document, memory, packed_address, pairs, pci_address, pci_id, text, whole

KFD = "/sys/class/kfd/kfd/topology/nodes/*/properties"
ROCM = "/opt/rocm/bin/"
SMI = ("--showproductname", "--showmeminfo", "vram", "--showbus", "--showdriverversion", "--json")


def from_kfd(properties: str) -> list[GPU]:
    """`/sys/class/kfd/kfd/topology/nodes/*/properties`: one node, which is a GPU if it has a chip's number."""
    known = dict(line.split(maxsplit=1) for line in properties.splitlines() if len(line.split()) >= 2)
    version = whole(known.get("gfx_target_version"))
    if not 0 < version < 10**6:
        return []
    ids = [f"{whole(known.get(name)):x}" for name in ("vendor_id", "device_id")]
    return [
        gpu(
            pci_id(*ids),
            vendor="AMD",
            driver="amdgpu",
            architecture=f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}",
            integrated=True if whole(known.get("cpu_cores_count")) else None,
            pci_address=packed_address(known.get("domain"), known.get("location_id")),
        )
    ]


def from_smi(printed: str) -> list[GPU]:
    """`rocm-smi --showproductname --showmeminfo vram --showbus --showdriverversion --json`."""
    cards = document(printed)
    if not isinstance(cards, dict):
        return []
    system = cards.get("system")
    version = text(system.get("Driver version")) if isinstance(system, dict) else ""
    found = [card for name, card in cards.items() if name.startswith("card") and isinstance(card, dict)]
    return [_of_card({name.casefold(): value for name, value in card.items()}, version) for card in found]


def _of_card(card: dict[str, Any], version: str) -> GPU:
    chip = text(card.get("gfx version"))
    return gpu(
        pci_id("1002", text(card.get("card model"))),
        _model(text(card.get("card series"))),
        vendor="AMD",
        memory=memory(card.get("vram total memory (b)")),
        driver="amdgpu",
        driver_version=version,
        architecture=chip if re.fullmatch("gfx[0-9a-f]{3,4}", chip) else "",
        pci_address=pci_address(card.get("pci bus")),
    )


def from_rocminfo(printed: str) -> list[GPU]:
    """`rocminfo`: an agent after the other; those of type GPU."""
    agents = [pairs(agent) for agent in re.split(r"^\*+\s*\nAgent \d+\s*\n\*+\s*\n", printed, flags=re.MULTILINE)[1:]]
    return [_of_agent(agent) for agent in agents if agent.get("Device Type") == "GPU" and "Name" in agent]


def _of_agent(agent: dict[str, str]) -> GPU:
    number = re.search(r"\((0x[0-9a-f]+)\)", agent.get("Chip ID", ""))
    return gpu(
        pci_id("1002", number[1] if number else ""),
        _model(agent.get("Marketing Name", "")),
        vendor="AMD",
        driver="amdgpu",
        architecture=agent["Name"] if re.fullmatch("gfx[0-9a-f]{3,4}", agent["Name"]) else "",
        integrated=True if agent.get("Memory Properties") == "APU" else None,
        pci_address=packed_address(0, agent.get("BDFID")),
    )


def _model(name: str) -> str:
    """The name of a GPU; the tools give that of the processor for some that are part of one."""
    return "" if "Processor" in name or name == "N/A" else name


def report_kfd(machine: Machine) -> list[GPU]:
    """The GPUs by the kernel's files, which are there without ROCm too."""
    return [each for path in machine.find(KFD) for each in from_kfd(machine.read(path))]


def report_smi(machine: Machine) -> list[GPU]:
    """The GPUs by rocm-smi."""
    return from_smi(machine.run("rocm-smi", *SMI) or machine.run(f"{ROCM}rocm-smi", *SMI))


def report_rocminfo(machine: Machine) -> list[GPU]:
    """The GPUs by rocminfo."""
    return from_rocminfo(machine.run("rocminfo") or machine.run(f"{ROCM}rocminfo"))
