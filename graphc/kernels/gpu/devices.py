"""What GPUs can do, by their makers' data sheets: what an estimate begins with for a device that nobody has at hand.

Rates are those of dense products without sparsity, at the clock that the sheet calls boost; of float16, those that add in
float32, which GeForce cards do at half of what their sheets name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A GPU: multiprocessors, operations a second in float16 on tensor cores and in float32, bytes a second of its memory; bytes
    of shared memory, registers and threads of a multiprocessor, and what one block may have of shared memory."""

    name: str
    architecture: str
    multiprocessors: int
    half: float
    single: float
    bandwidth: float
    shared: int
    block_shared: int
    registers: int = 65536
    threads: int = 2048


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("t4", "sm_75", 40, 65e12, 8.1e12, 320e9, 64 << 10, 64 << 10, threads=1024),
        Gpu("a100", "sm_80", 108, 312e12, 19.5e12, 1555e9, 164 << 10, 163 << 10),
        Gpu("rtx3060", "sm_86", 28, 25.6e12, 12.7e12, 360e9, 100 << 10, 99 << 10, threads=1536),
        Gpu("rtx3090", "sm_86", 82, 71e12, 35.6e12, 936e9, 100 << 10, 99 << 10, threads=1536),
        Gpu("rtx4080", "sm_89", 76, 97.5e12, 48.7e12, 717e9, 100 << 10, 99 << 10, threads=1536),
        Gpu("rtx4090", "sm_89", 128, 165e12, 82.6e12, 1008e9, 100 << 10, 99 << 10, threads=1536),
        Gpu("h100", "sm_90", 132, 989e12, 67e12, 3350e9, 228 << 10, 227 << 10),
        Gpu("h200", "sm_90", 132, 989e12, 67e12, 4800e9, 228 << 10, 227 << 10),
    )
}  # fmt: skip
"""By name. Sources: NVIDIA's data sheets of T4, A100, H100 and H200, and its architecture papers of Turing, Ampere (GA102) and
Ada (AD102); limits of multiprocessors from the table of compute capabilities in the CUDA programming guide."""
