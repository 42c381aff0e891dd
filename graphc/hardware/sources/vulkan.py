"""What a Vulkan driver finds, by `vulkaninfo --summary`, on every system that has the tool."""

from __future__ import annotations

import re

from graphc.hardware.gpu import GPU, VENDORS, gpu
from graphc.hardware.machine import Machine
from graphc.hardware.texts import pairs, pci_id, whole

INTEGRATED = {"PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU": True, "PHYSICAL_DEVICE_TYPE_DISCRETE_GPU": False}
"""Other types are software on the CPU, and what virtual machines make up."""


def from_summary(printed: str) -> list[GPU]:
    """`vulkaninfo --summary`: a paragraph a device. One that two drivers run is listed twice, with the same UUID by Dozen."""
    devices = [pairs(part, "=") for part in re.split(r"^GPU\d+:[^\n]*\n", printed, flags=re.MULTILINE)[1:]]
    distinct = {each.get("deviceUUID", str(number)): each for number, each in enumerate(devices)}
    return [_of_device(each) for each in distinct.values() if each.get("deviceType") in INTEGRATED]


def _of_device(device: dict[str, str]) -> GPU:
    vendor = device.get("vendorID", "")
    return gpu(
        pci_id(vendor, device.get("deviceID", "")),
        device.get("deviceName", ""),
        vendor=VENDORS.get(f"{whole(vendor, 16):04x}", ""),
        driver_version=device.get("driverInfo", "")[:60],
        integrated=INTEGRATED[device["deviceType"]],
    )


def report(machine: Machine) -> list[GPU]:
    """The GPUs by vulkaninfo; one without numbers cannot be told from others."""
    return [each for each in from_summary(machine.run("vulkaninfo", "--summary")) if each.vendor]
