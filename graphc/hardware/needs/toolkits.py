"""The toolkits of AMD, Intel and others."""

from __future__ import annotations

from graphc.hardware.gpu import GPU
from graphc.hardware.machine import Machine
from graphc.hardware.needs.check import Lack, Need, file
from graphc.hardware.system import version

ROCM_PAGE = "https://rocm.docs.amd.com/projects/install-on-linux"
FIRST_ROCM = {"gfx1200": "6.4", "gfx1201": "6.4", "gfx1150": "7.0", "gfx1151": "7.0", "gfx950": "7.0"}
"""The first ROCm for these chips; ggml wants 6.1 for any."""

SETVARS = "/opt/intel/oneapi/setvars.sh"


def rocm_for(gpu: GPU) -> str:
    """The first ROCm that ggml can be built with for a GPU."""
    return FIRST_ROCM.get(gpu.architecture, "6.1")


def _rocm(machine: Machine, gpu: GPU) -> Lack | None:
    places = [f"{root}/cmake/hipblas" for root in ("/opt/rocm/lib", "/usr/lib", "/usr/lib64", "/usr/lib/*")]
    if not (machine.which("hipcc") or machine.find("/opt/rocm/bin/hipcc")) or not any(map(machine.find, places)):
        return Lack("ROCm (hipcc, hipBLAS, rocBLAS)")
    release = machine.read("/opt/rocm/.info/version").strip()
    if release and version(release) < version(rocm_for(gpu)):
        return Lack(f"ROCm {rocm_for(gpu)} or newer for this GPU ({release} is here)", f"update ROCm: {ROCM_PAGE}")
    return None


def _oneapi(machine: Machine, gpu: GPU) -> Lack | None:
    if machine.which("icpx"):
        return None
    there = machine.find(SETVARS)
    return Lack("oneAPI's variables (it is installed)", f"source {SETVARS}") if there else Lack("Intel's oneAPI (icpx)")


ROCM = Need(
    _rocm,
    {
        "rhel": f"install ROCm {{wanted}} or newer: {ROCM_PAGE}",
        "apt": "hipcc libhipblas-dev librocblas-dev",
        "dnf": "rocm-hip-devel hipblas-devel rocblas-devel",
        "pacman": "rocm-hip-sdk",
        "Windows": "install AMD's HIP SDK: https://www.amd.com/en/developer/resources/rocm-hub/hip-sdk.html",
        "*": f"install ROCm {{wanted}} or newer: {ROCM_PAGE}",
    },
    offered={"debian 12": "5.2", "debian 13": "6.1", "ubuntu 22.04": "0", "ubuntu 24.04": "5.7"},
    wanted=rocm_for,
)
ONEAPI = Need(
    _oneapi,
    {
        "winget": "Intel.OneAPI.BaseToolkit",
        "pacman": "intel-oneapi-basekit",
        "*": f"install Intel's oneAPI Base Toolkit (https://www.intel.com/oneapi), then: source {SETVARS}",
    },
)
LEVEL_ZERO = Need(
    file("Intel's compute driver (Level Zero)", *(f"/usr/{folder}/libze_intel_gpu.so*" for folder in ("lib", "lib64", "lib/*"))),
    {
        "apt": "libze-intel-gpu1 libze1",
        "dnf": "intel-compute-runtime",
        "pacman": "intel-compute-runtime level-zero-loader",
        "*": "install Intel's compute driver: https://dgpu-docs.intel.com",
    },
    offered={"debian 12": "0", "ubuntu 22.04": "0", "ubuntu 24.04": "0"},
    wanted=lambda gpu: "1",
)  # fmt: skip
MUSA = Need(
    file("the MUSA toolkit", "/usr/local/musa/bin/mcc"), {"*": "install the MUSA SDK: https://developer.mthreads.com"}
)
OPENCL = Need(
    file("OpenCL's headers", "/usr/include/CL/cl.h"),
    {
        "apt": "opencl-headers ocl-icd-opencl-dev",
        "dnf": "opencl-headers ocl-icd-devel",
        "pacman": "opencl-headers ocl-icd",
    },
)
