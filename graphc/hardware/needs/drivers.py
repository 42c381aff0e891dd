"""Drivers: what lets programs reach a GPU at all."""

from __future__ import annotations

from graphc.hardware.gpu import GPU
from graphc.hardware.machine import Machine
from graphc.hardware.needs.check import Lack, Need, everywhere
from graphc.hardware.sources import nvidia

NVIDIA_PAGE = "https://www.nvidia.com/drivers"
GROUPS = "sudo usermod -aG render,video $USER, then log in again"

CONTAINER = {
    "NVIDIA container": "start the container again with `--gpus all -e NVIDIA_DRIVER_CAPABILITIES=all`, "
    "which needs NVIDIA's container toolkit",
    "AMD container": "start the container again with `--device /dev/dri --device /dev/kfd`",
    "container": "start the container again with `--device /dev/dri`",
}  # fmt: skip

ICD_FOLDERS = ("/usr/share", "/etc", "/usr/local/share", "/run/opengl-driver/share")
ICDS = {
    "NVIDIA": ("nvidia",),
    "AMD": ("radeon", "amd"),
    "Intel": ("intel",),
    "Apple": ("asahi",),
    "Qualcomm": ("freedreno", "qcom"),
    "Arm": ("panfrost", "mali"),
    "Broadcom": ("broadcom",),
    "Imagination": ("powervr",),
}
"""How the files are named that say where a vendor's Vulkan driver is."""


def _nvidia(machine: Machine, gpu: GPU) -> Lack | None:
    said = nvidia.smi(machine)
    if "version mismatch" in said:
        return Lack("the driver that is loaded, which is older than the one installed", "restart the machine")
    if gpu.driver not in ("", "nvidia"):
        return Lack(f"NVIDIA's driver ({gpu.driver} runs it)")
    if not gpu.driver_version:
        return Lack("NVIDIA's driver")
    reaches = nvidia.report_smi(machine) or machine.find("/dev/nvidiactl")  # a container shows the host's modules
    return None if reaches else Lack("NVIDIA's devices (no /dev/nvidiactl)")


def _windows(machine: Machine, gpu: GPU) -> Lack | None:
    return None if gpu.driver else Lack(f"{gpu.vendor}'s driver")


def _render(machine: Machine, gpu: GPU) -> Lack | None:
    if gpu.driver == "vfio-pci":
        return Lack("the GPU itself, which is handed to a virtual machine (vfio-pci)", "take it back from it")
    if gpu.vendor == "NVIDIA":  # its driver has files of its own, which everyone may use
        return None
    nodes = machine.find("/dev/dri/renderD*")
    if not nodes:
        return Lack("a driver in the kernel (no /dev/dri/renderD*)")
    return None if any(map(machine.may_use, nodes)) else Lack(f"your permission for {nodes[0]}", GROUPS)


def _kfd(machine: Machine, gpu: GPU) -> Lack | None:
    if not machine.find("/dev/kfd"):
        return Lack("AMD's compute driver in the kernel (no /dev/kfd)")
    return None if machine.may_use("/dev/kfd") else Lack("your permission for /dev/kfd", GROUPS)


def _vulkan(machine: Machine, gpu: GPU) -> Lack | None:
    if gpu.vendor == "NVIDIA" and (lack := _nvidia(machine, gpu)) is not None:
        return lack
    names = ICDS.get(gpu.vendor, ("",))
    there = any(machine.find(f"{folder}/vulkan/icd.d/{name}*.json") for folder in ICD_FOLDERS for name in names)
    return None if there or machine.variable("VK_DRIVER_FILES") else Lack(f"a Vulkan driver for {gpu.vendor}")


NVIDIA_DRIVER = Need(
    _nvidia,
    CONTAINER
    | {
        "wsl": f"update NVIDIA's driver on Windows ({NVIDIA_PAGE}); Linux in WSL needs none of its own",
        "ubuntu": "sudo ubuntu-drivers install, then restart",
        "debian": "sudo apt install nvidia-driver, then restart "
        "(it is in non-free: https://wiki.debian.org/NvidiaGraphicsDrivers)",
        "fedora": "sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda, then restart (from https://rpmfusion.org)",
        "arch": "sudo pacman -S --needed nvidia-open nvidia-utils, then restart",
        "*": f"install NVIDIA's driver ({NVIDIA_PAGE}), then restart",
    },
)  # fmt: skip

WINDOWS_DRIVER = Need(
    _windows,
    {
        "NVIDIA *": f"install NVIDIA's driver: {NVIDIA_PAGE}",
        "AMD *": "install AMD's driver: https://www.amd.com/support",
        "Intel *": "install Intel's driver: https://www.intel.com/content/www/us/en/support/detect.html",
        "*": "install the driver from the page of the computer's maker",
    },
)

KERNEL = {"*": "update the system; its kernel or firmware may be older than the GPU"}

RENDER = Need(_render, CONTAINER | KERNEL)
KFD = Need(
    _kfd,
    CONTAINER | {"wsl": "install ROCm for WSL: https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest"} | KERNEL,
)

VULKAN_DRIVER = Need(
    _vulkan,
    everywhere("mesa-vulkan-drivers")
    | {
        "NVIDIA container": CONTAINER["NVIDIA container"],
        **{f"NVIDIA {key}": what for key, what in NVIDIA_DRIVER.mends.items() if " " not in key and key != "container"},
        "AMD pacman": "vulkan-radeon",
        "Intel pacman": "vulkan-intel",
        "AMD zypper": "libvulkan_radeon",
        "Intel zypper": "libvulkan_intel",
        "AMD apk": "mesa-vulkan-ati",
        "Intel apk": "mesa-vulkan-intel",
    },
)
