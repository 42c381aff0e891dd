"""What GPUs can do, by their makers' data sheets: what an estimate begins with for a device that nobody has at hand.

Rates are those of dense products without sparsity, at the clock that the sheet calls boost; of float16, those that add in
float32, which GeForce cards do at half of what their sheets name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from graphc.errors import InputError


@dataclass(frozen=True)
class Gpu:
    """A GPU: multiprocessors, operations a second in float16 on tensor cores and in float32, bytes a second of its memory, and
    its clock in Hz; bytes of its memory and of its last cache; bytes of shared memory, registers and threads of a
    multiprocessor, and what one block may have of shared memory; registers of a thread and threads of a block at most; and the
    `instructions` that multiply, by name, where a driver decides that and not the architecture."""

    name: str
    architecture: str
    multiprocessors: int
    half: float
    single: float
    bandwidth: float
    clock: float
    memory: int
    cache: int
    shared: int
    block_shared: int
    registers: int = 65536
    threads: int = 2048
    thread_registers: int = 255
    block_threads: int = 1024
    instructions: tuple[str, ...] = ()

    @property
    def rates(self) -> str:
        """What it can do, in words."""
        compute = f"{self.half / 1e12:.4g} TFLOP/s on tensor cores, {self.single / 1e12:.3g} others"
        return f"{self.multiprocessors} multiprocessors, {compute}, {self.bandwidth / 1e9:.0f} GB/s"

    @property
    def discards(self) -> bool:
        """True if the second cache can forget what was written to it, without writing it to memory."""
        return not self.architecture.startswith(VULKAN) and self.architecture != "sm_75"

    @property
    def cache_bandwidth(self) -> float:
        """Bytes a second that all multiprocessors together get from the second cache."""
        return self.multiprocessors * self.clock * CACHE_BYTES

    @property
    def shared_bandwidth(self) -> float:
        """Bytes a second that all multiprocessors together read from shared memory: a word of each of 32 banks in a clock."""
        return self.multiprocessors * self.clock * 128


VULKAN = "vulkan_"
"""What architectures begin with where Vulkan runs the kernels."""

CACHE_BYTES = 32
"""What a multiprocessor gets from the second cache in a clock. No data sheet has it: a sector in each clock is assumed."""

GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("t4", "sm_75", 40, 65e12, 8.1e12, 320e9, 1.59e9, 16 << 30, 4 << 20, 64 << 10, 64 << 10, threads=1024),
        Gpu("a100", "sm_80", 108, 312e12, 19.5e12, 1555e9, 1.41e9, 40 << 30, 40 << 20, 164 << 10, 163 << 10),
        Gpu("rtx3060", "sm_86", 28, 25.6e12, 12.7e12, 360e9, 1.777e9, 12 << 30, 3 << 20, 100 << 10, 99 << 10, threads=1536),
        Gpu("rtx3090", "sm_86", 82, 71e12, 35.6e12, 936e9, 1.695e9, 24 << 30, 6 << 20, 100 << 10, 99 << 10, threads=1536),
        Gpu("rtx4080", "sm_89", 76, 97.5e12, 48.7e12, 717e9, 2.505e9, 16 << 30, 64 << 20, 100 << 10, 99 << 10, threads=1536),
        Gpu("rtx4090", "sm_89", 128, 165e12, 82.6e12, 1008e9, 2.52e9, 24 << 30, 72 << 20, 100 << 10, 99 << 10, threads=1536),
        Gpu("h100", "sm_90", 132, 989e12, 67e12, 3350e9, 1.83e9, 80 << 30, 50 << 20, 228 << 10, 227 << 10),
        Gpu("h200", "sm_90", 132, 989e12, 67e12, 4800e9, 1.83e9, 141 << 30, 60 << 20, 228 << 10, 227 << 10),
    )
}  # fmt: skip
"""Those that CUDA runs on, by name. Sources: NVIDIA's data sheets of T4, A100, H100 and H200, and its architecture papers of
Turing, Ampere (GA102) and Ada (AD102); limits of multiprocessors from the table of compute capabilities in the CUDA programming
guide."""

_RDNA, _XE = (64 << 10, 64 << 10, 98304, 1024, 256), (128 << 10, 64 << 10, 131072, 1024, 128)
"""What a multiprocessor and a block have."""

OTHERS = {
    gpu.name: gpu
    for gpu in (
        Gpu("rx7800xt", "rdna3", 60, 74.6e12, 37.3e12, 624e9, 2.43e9, 16 << 30, 64 << 20, *_RDNA),
        Gpu("rx7900xtx", "rdna3", 96, 122.8e12, 61.4e12, 960e9, 2.5e9, 24 << 30, 96 << 20, *_RDNA),
        Gpu("rx9070xt", "rdna4", 64, 195e12, 48.7e12, 640e9, 2.97e9, 16 << 30, 64 << 20, *_RDNA),
        Gpu("arca770", "xe1", 32, 137e12, 17.2e12, 560e9, 2.1e9, 16 << 30, 16 << 20, *_XE),
        Gpu("arcb580", "xe2", 20, 116e12, 13.7e12, 456e9, 2.67e9, 12 << 30, 18 << 20, *_XE),
    )
}  # fmt: skip
"""Those that Vulkan alone runs on. A multiprocessor is what AMD calls a compute unit, and Intel a core. Sources: AMD's and
Intel's data sheets; registers, threads and shared memory from AMD's papers of RDNA and Intel's of Xe-HPG."""

UNNAMED = {"radeon": "rx7800xt", "amd": "rx7800xt", "intel": "arcb580", "": "rtx3060"}
"""What is expected of a device of Vulkan's whose data sheet is not here, by a word of its description: a middling one of its
maker's."""


def gpu_named(name: str) -> Gpu:
    """A GPU of the table, by its name without regard to case, spaces and hyphens. Raises InputError with those that are known."""
    plain = _plain(name)
    if plain not in GPUS:
        raise InputError(f"no data sheet of {name!r} is known; there is {', '.join(GPUS)}")
    return GPUS[plain]


def gpu_like(description: str, architecture: str, multiprocessors: int) -> Gpu:
    """What is expected of a GPU at hand: the data sheet of the one that its driver describes ("NVIDIA H200"); of another, that
    of the nearest architecture, with rates by the number of its multiprocessors, or of one of its maker's if it is Vulkan's."""
    words = _plain(description)
    named = [gpu for gpu in (GPUS | OTHERS).values() if gpu.name in words]
    if named:
        return max(named, key=lambda gpu: len(gpu.name))
    if architecture.startswith(VULKAN):
        return (GPUS | OTHERS)[next(name for word, name in UNNAMED.items() if word in words)]
    number = int(re.sub(r"\D", "", architecture) or 0)
    nearest = min(GPUS.values(), key=lambda gpu: abs(int(gpu.architecture[3:]) - number))
    part = multiprocessors / nearest.multiprocessors if multiprocessors > 0 else 1.0
    return replace(
        nearest, name=description, architecture=architecture, multiprocessors=multiprocessors or nearest.multiprocessors,
        half=nearest.half * part, single=nearest.single * part, bandwidth=nearest.bandwidth * part,
    )  # fmt: skip


def _plain(name: str) -> str:
    return re.sub(r"\((r|tm)\)|[^a-z0-9]", "", name.lower())
