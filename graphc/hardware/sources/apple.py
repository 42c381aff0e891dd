"""The GPUs of a Mac, by `system_profiler`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from graphc.hardware.gpu import GPU, VENDORS, gpu
from graphc.hardware.machine import Machine
from graphc.hardware.texts import document, memory, objects, pci_id, sized, text

NAMES = ("Apple", "AMD", "ATI", "NVIDIA", "Intel")
METAL = ("spdisplays_mtlgpufamilysupport", "spdisplays_metalfamily", "spdisplays_metal")


def from_profiler(printed: str, machine_memory: str = "") -> list[GPU]:
    """`system_profiler SPDisplaysDataType -json`, with `sysctl -n hw.memsize`: what a processor's GPU shares."""
    profile = document(printed)
    cards = objects(profile.get("SPDisplaysDataType", [])) if isinstance(profile, dict) else []
    return [_of_card(card, memory(machine_memory)) for card in cards]


def _of_card(card: dict[str, Any], machine_memory: int) -> GPU:
    built_in = "builtin" in text(card.get("sppci_bus"))
    metal = next((value for name in METAL if (value := text(card.get(name)))), "")
    version = re.search(r"metal(\d)", metal, re.IGNORECASE)
    found = gpu(
        pci_id(text(card.get("spdisplays_vendor-id")), text(card.get("spdisplays_device-id"))),
        text(card.get("sppci_model")) or text(card.get("_name")),
        memory=machine_memory if built_in else sized(card.get("spdisplays_vram")),
        driver="of macOS" if metal else "",
        architecture=f"Metal {version[1]}" if version else "",
        integrated=built_in,
    )
    return found if found.vendor else replace(found, vendor=_vendor(card))


def _vendor(card: dict[str, Any]) -> str:
    said = f"{card.get('spdisplays_vendor', '')} {card.get('sppci_model', '')}".casefold()
    name = next((name for name in NAMES if name.casefold() in said), "")
    return VENDORS["1002"] if name == "ATI" else name


def report(machine: Machine) -> list[GPU]:
    """The GPUs by the system's tools."""
    return from_profiler(
        machine.run("system_profiler", "SPDisplaysDataType", "-json"), machine.run("sysctl", "-n", "hw.memsize")
    )
