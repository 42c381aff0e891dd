"""CUDA's toolkit, as a GPU and its driver need it."""

from __future__ import annotations

import re

from graphc.hardware.gpu import GPU
from graphc.hardware.machine import Machine
from graphc.hardware.needs.check import Lack, Need
from graphc.hardware.needs.drivers import NVIDIA_PAGE
from graphc.hardware.system import version

FOLDERS = ("/usr/local/cuda", "/opt/cuda", "C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA/*")
"""Where the toolkit is, if it is not on the path."""

FIRST_TOOLKIT = (((12, 1), "12.9"), ((12, 0), "12.8"), ((10, 0), "12.8"), ((8, 9), "11.8"), ((8, 6), "11.1"))
"""From which compute capability on which toolkit is the first that knows it."""

OLDEST_TOOLKIT = "11.0"
"""For all older ones, and as long as the compute capability is not known."""

FIRST_OF_13 = (7, 5)
"""The lowest compute capability that CUDA 13 knows."""

FIRST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest driver for the programs of a toolkit."""

DOWNLOADS = "https://developer.nvidia.com/cuda-downloads"
ARCHIVE = "install a CUDA toolkit that fits: https://developer.nvidia.com/cuda-toolkit-archive"


def nvcc(machine: Machine) -> str:
    """Where CUDA's compiler is; empty if nowhere."""
    places = (f"{folder}/bin/{name}" for folder in FOLDERS for name in ("nvcc", "nvcc.exe"))
    return machine.which("nvcc") or next((path for place in places for path in reversed(machine.find(place))), "")


def cuda_release(machine: Machine) -> str:
    """The version of the CUDA toolkit: "12.4"."""
    found = re.search(r"release (\d+\.\d+)", machine.run(nvcc(machine), "--version"), re.ASCII)
    return found[1] if found else ""


def toolkit_for(gpu: GPU) -> str:
    """The first CUDA toolkit that knows a GPU."""
    capability = version(gpu.architecture)
    return next((toolkit for first, toolkit in FIRST_TOOLKIT if capability >= first), OLDEST_TOOLKIT)


def _misfit(machine: Machine, gpu: GPU) -> Lack | None:
    """True if the toolkit is another than the GPU needs."""
    release, wanted = cuda_release(machine), toolkit_for(gpu)
    if version(release) < version(wanted):
        return Lack(f"CUDA {wanted} or newer for this GPU (CUDA {release or 'of an unknown version'} is here)", ARCHIVE)
    if version(release) >= (13,) and (0,) < version(gpu.architecture) < FIRST_OF_13:
        return Lack(f"CUDA 12 for this GPU (CUDA {release} is here, which no longer knows it)", ARCHIVE)
    return None


def _toolkit(machine: Machine, gpu: GPU) -> Lack | None:
    if not nvcc(machine):
        return Lack("the CUDA toolkit (nvcc)")
    folder = re.sub(r"[/\\]bin[/\\][^/\\]*$", "", nvcc(machine))
    has_cublas = any(machine.find(f"{each}/include/cublas_v2.h") for each in (folder, "/usr", *FOLDERS))
    without = Lack(
        "cuBLAS, a part of the CUDA toolkit", f"install cuBLAS for CUDA {cuda_release(machine)}: {DOWNLOADS}"
    )
    return _misfit(machine, gpu) or (None if has_cublas else without)


def _driver(machine: Machine, gpu: GPU) -> Lack | None:
    release, driver = version(cuda_release(machine)), version(gpu.driver_version)
    first = FIRST_DRIVER.get(release[0] if release else 0, 0)
    if not driver or driver[0] >= first or _misfit(machine, gpu) is not None:
        return None
    return Lack(f"a driver of version {first} or newer for CUDA {release[0]} ({gpu.driver_version} is here)")


CUDA_TOOLKIT = Need(
    _toolkit,
    {
        "wsl": f"install the CUDA toolkit for WSL, without a driver: {DOWNLOADS}",
        "apt": "nvidia-cuda-toolkit",
        "pacman": "cuda",
        "winget": "Nvidia.CUDA",
        "old": f"install CUDA {{wanted}} or newer: {DOWNLOADS}",
        "*": f"install the CUDA toolkit: {DOWNLOADS}",
    },
    offered={"debian 12": "11.8", "debian 13": "12.4", "ubuntu 22.04": "11.5", "ubuntu 24.04": "12.0"},
    wanted=toolkit_for,
)
CUDA_DRIVER = Need(_driver, {"*": f"update NVIDIA's driver ({NVIDIA_PAGE}), or {ARCHIVE}"})
