"""What each backend needs to be built and to run on each system."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.hardware.needs.check import Need
from graphc.hardware.needs.cuda import CUDA_DRIVER, CUDA_TOOLKIT
from graphc.hardware.needs.drivers import KFD, NVIDIA_DRIVER, RENDER, VULKAN_DRIVER, WINDOWS_DRIVER
from graphc.hardware.needs.toolkits import LEVEL_ZERO, MUSA, ONEAPI, OPENCL, ROCM
from graphc.hardware.needs.vulkan import GLSLC, SPIRV, VULKAN_HEADERS, VULKAN_SDK

VULKAN_ON_LINUX = (VULKAN_DRIVER, VULKAN_HEADERS, GLSLC, SPIRV)

NEEDS: Mapping[tuple[str, str], tuple[Need, ...]] = {
    ("cuda", "Linux"): (NVIDIA_DRIVER, CUDA_TOOLKIT, CUDA_DRIVER),
    ("cuda", "WSL"): (NVIDIA_DRIVER, CUDA_TOOLKIT, CUDA_DRIVER),
    ("cuda", "Windows"): (WINDOWS_DRIVER, CUDA_TOOLKIT, CUDA_DRIVER),
    ("hip", "Linux"): (RENDER, KFD, ROCM),
    ("hip", "WSL"): (ROCM,),
    ("hip", "Windows"): (WINDOWS_DRIVER, ROCM),
    ("vulkan", "Linux"): (RENDER, *VULKAN_ON_LINUX),
    ("vulkan", "Windows"): (WINDOWS_DRIVER, VULKAN_SDK),
    ("sycl", "Linux"): (RENDER, LEVEL_ZERO, ONEAPI),
    ("sycl", "WSL"): (LEVEL_ZERO, ONEAPI),
    ("sycl", "Windows"): (WINDOWS_DRIVER, ONEAPI),
    ("metal", "Darwin"): (),
    ("musa", "Linux"): (MUSA,),
    ("opencl", "Linux"): (RENDER, OPENCL),
    ("opencl", "Windows"): (WINDOWS_DRIVER,),
}
"""By backend and kind of system, what it needs beyond `BUILD`."""
