"""What ggml's Vulkan backend is built with."""

from __future__ import annotations

import re

from graphc.hardware.gpu import GPU
from graphc.hardware.machine import Machine
from graphc.hardware.needs.check import Lack, Need, everywhere, tool
from graphc.hardware.system import version

HEADERS = ("/usr/include", "/usr/local/include")
SDK_PAGE = "https://vulkan.lunarg.com/sdk/home"
SDK = f"install the Vulkan SDK ({SDK_PAGE}) and set VULKAN_SDK as it says; the system's own headers are too old"

OLD_VULKAN = {"debian 11": "1.2.162", "debian 12": "1.3.239", "ubuntu 20.04": "1.2.131", "ubuntu 22.04": "1.3.204"}
"""Releases whose packages are too old for ggml."""

NUMBERS = (r"VK_MAKE_API_VERSION\(0, (\d+), (\d+), VK_HEADER_VERSION\)", r"#define VK_HEADER_VERSION (\d+)")
"""Where a header says its version: 1 and 3, then 239."""

WANTED = "1.3.272"
"""The first headers with `VkLayerSettingEXT`, which ggml uses."""


def vulkan_sdk(machine: Machine) -> str:
    """The folder of LunarG's SDK; empty if it is not set up."""
    return machine.variable("VULKAN_SDK").rstrip("/\\")


def _headers(machine: Machine, gpu: GPU) -> Lack | None:
    sdk = vulkan_sdk(machine)
    folders = (*([f"{sdk}/include"] if sdk else []), *HEADERS)
    texts = [text for folder in folders if (text := machine.read(f"{folder}/vulkan/vulkan_core.h"))]
    if not texts:
        return Lack("Vulkan's headers")
    found = [re.search(pattern, texts[0], re.ASCII) for pattern in NUMBERS]
    here = ".".join(".".join(each.groups()) for each in found if each)
    if version(here) >= version(WANTED):
        return None
    return Lack(f"Vulkan's headers {WANTED} or newer ({here or 'an unknown version'} is here)", SDK)


def _spirv(machine: Machine, gpu: GPU) -> Lack | None:
    roots = [each for each in (vulkan_sdk(machine), "/usr", "/usr/local") if each]
    places = [f"{root}/{folder}/cmake/SPIRV-Headers" for root in roots for folder in ("share", "lib", "lib64")]
    return None if any(map(machine.find, places)) else Lack("SPIR-V's headers")


def _sdk(machine: Machine, gpu: GPU) -> Lack | None:
    return None if vulkan_sdk(machine) or machine.find("C:/VulkanSDK/*/Bin/glslc.exe") else Lack("the Vulkan SDK")


VULKAN_HEADERS = Need(
    _headers,
    {"apt": "libvulkan-dev", "dnf": "vulkan-headers vulkan-loader-devel", "zypper": "vulkan-devel",
     "pacman": "vulkan-headers vulkan-icd-loader", "apk": "vulkan-headers vulkan-loader-dev", "old": SDK},
    offered=OLD_VULKAN,
    wanted=lambda gpu: WANTED,
)  # fmt: skip
GLSLC = Need(
    tool("glslc", "glslc"),
    everywhere("glslc") | {"pacman": "shaderc", "zypper": "shaderc", "apk": "shaderc", "old": SDK},
    offered={release: "0" for release in OLD_VULKAN if release != "debian 12"},
    wanted=lambda gpu: "1",
)
SPIRV = Need(_spirv, everywhere("spirv-headers") | {"dnf": "spirv-headers-devel"})
VULKAN_SDK = Need(_sdk, {"winget": "KhronosGroup.VulkanSDK", "*": f"install the Vulkan SDK: {SDK_PAGE}"})
