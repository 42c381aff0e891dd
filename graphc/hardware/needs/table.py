"""What each backend needs to be built and to run on each system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphc.hardware.needs.check import Need
from graphc.hardware.needs.compilers import C_COMPILER, GPU_COMPILER
from graphc.hardware.needs.cuda import CUDA_DRIVER, CUDA_TOOLKIT
from graphc.hardware.needs.drivers import KFD, NVIDIA_DRIVER, RENDER, VULKAN_DRIVER, WINDOWS_DRIVER
from graphc.hardware.needs.toolkits import LEVEL_ZERO, MUSA, ONEAPI, OPENCL, ROCM
from graphc.hardware.needs.vulkan import GLSLC, SPIRV, VULKAN_HEADERS, VULKAN_SDK
from graphc.hardware.suits import GENERATED


class Needs(NamedTuple):
    """What a backend needs to run, and what more to be built."""

    run: tuple[Need, ...] = ()
    build: tuple[Need, ...] = ()


NEEDS: Mapping[tuple[str, str], Needs] = {
    ("cuda", "Linux"): Needs((NVIDIA_DRIVER, CUDA_DRIVER), (CUDA_TOOLKIT,)),
    ("cuda", "WSL"): Needs((NVIDIA_DRIVER, CUDA_DRIVER), (CUDA_TOOLKIT,)),
    ("cuda", "Windows"): Needs((WINDOWS_DRIVER, CUDA_DRIVER), (CUDA_TOOLKIT,)),
    (GENERATED, "Linux"): Needs((NVIDIA_DRIVER,), (C_COMPILER, GPU_COMPILER)),
    (GENERATED, "WSL"): Needs((NVIDIA_DRIVER,), (C_COMPILER, GPU_COMPILER)),
    (GENERATED, "Windows"): Needs((WINDOWS_DRIVER,), (C_COMPILER, GPU_COMPILER)),
    ("hip", "Linux"): Needs((RENDER, KFD), (ROCM,)),
    ("hip", "WSL"): Needs((), (ROCM,)),
    ("hip", "Windows"): Needs((WINDOWS_DRIVER,), (ROCM,)),
    ("vulkan", "Linux"): Needs((RENDER, VULKAN_DRIVER), (VULKAN_HEADERS, GLSLC, SPIRV)),
    ("vulkan", "WSL"): Needs((), (VULKAN_HEADERS, GLSLC, SPIRV)),
    ("vulkan", "Windows"): Needs((WINDOWS_DRIVER,), (VULKAN_SDK,)),
    ("sycl", "Linux"): Needs((RENDER, LEVEL_ZERO), (ONEAPI,)),
    ("sycl", "WSL"): Needs((LEVEL_ZERO,), (ONEAPI,)),
    ("sycl", "Windows"): Needs((WINDOWS_DRIVER,), (ONEAPI,)),
    ("metal", "Darwin"): Needs(),
    ("musa", "Linux"): Needs((), (MUSA,)),
    ("opencl", "Linux"): Needs((RENDER,), (OPENCL,)),
    ("opencl", "Windows"): Needs((WINDOWS_DRIVER,)),
}
"""By backend and kind of system; `BUILD` has what all need to be built."""
