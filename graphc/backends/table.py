"""The backends of ggml that graphc builds, and what each is built with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphc.errors import find_named


@dataclass(frozen=True)
class Backend:
    """One of ggml's backends: what it runs on, what has to be there to build it, what cmake must `also` be told, and what may
    help where it finds no device."""

    name: str
    runs_on: str
    needs: str
    also: tuple[str, ...] = ()
    without_device: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """The options of cmake that turn it on."""
        return (f"-DGGML_{self.name.upper()}=ON", *self.also)

    @property
    def library(self) -> str:
        """ggml's name of the library, which is also that of cmake's target."""
        return f"ggml-{self.name}"


BACKENDS: Mapping[str, Backend] = {
    each.name: each
    for each in (
        Backend("blas", "matrix products on the CPU", "a BLAS library with its headers"),
        Backend("cuda", "NVIDIA", "the CUDA toolkit (nvcc, cuBLAS)"),
        Backend("hip", "AMD", "ROCm (hipcc, hipBLAS, rocBLAS)"),
        Backend("metal", "Apple", "Xcode's command line tools", ("-DGGML_METAL_EMBED_LIBRARY=ON",)),
        Backend("musa", "Moore Threads", "the MUSA toolkit"),
        Backend("opencl", "Qualcomm Adreno, Intel", "OpenCL's headers and loader, Python"),
        Backend("rpc", "devices of another process or machine", "nothing more"),
        Backend("sycl", "Intel", "oneAPI (icpx, oneMKL)", ("-DCMAKE_C_COMPILER=icx", "-DCMAKE_CXX_COMPILER=icpx")),
        Backend("vulkan", "any GPU with a Vulkan driver", "headers of Vulkan (1.3.272 or newer) and SPIR-V, the loader, glslc",
            without_device="ggml passes over software devices (Mesa's llvmpipe) unless GGML_VK_VISIBLE_DEVICES=0 names one"),
        Backend("webgpu", "any GPU, through Dawn", "Dawn"),
    )
}  # fmt: skip
"""By name. The CPU's is not among them: it is part of every ggml."""


def find_backend(name: str) -> Backend:
    """The backend of that name. Raises BuildError if there is none."""
    return find_named(BACKENDS, "backend", name)
