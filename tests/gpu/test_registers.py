"""What standard kernels need of a multiprocessor, as NVIDIA's assembler says, for eight architectures: registers are those of the
table registers.json but for a few, and nothing is spilled. `GRAPHC_UPDATE=1 pytest -n 0` of this file writes the table anew."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from standard_kernels import kernels_of_several_warps, standard_kernels

from graphc.kernels.gpu.assemble import find_assembler
from graphc.kernels.gpu.compile import TOOLCHAINS, compile_ptx
from graphc.kernels.gpu.registers import Resources, resources
from graphc.kernels.gpu.render.cuda import file_of, render
from graphc.kernels.gpu.verify import verify

TABLE = Path(__file__).parent / "registers.json"
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
USUAL = ("sm_80", "sm_90", "sm_90a")
"""Those that are looked at each time; the others need the same instructions."""
MOST_SHARED = {"sm_75": 64 << 10, "sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_90": 227 << 10,
               "sm_90a": 227 << 10, "sm_100": 227 << 10, "sm_120": 99 << 10}  # fmt: skip
"""Bytes of shared memory that a block may have (CUDA's programming guide, compute capabilities)."""
TOO_LARGE = {
    ("sm_75", name): "more than 64 KiB, which a block there may have"
    for name in ("attention of 128", "attention of 512 by m16n8k16_half in 99 KiB",
                 "attention of 160 by fma_4x4 in 99 KiB", "attention of 512 by fma_4x4 in 99 KiB")
}  # fmt: skip
"""What does not fit, and why."""
SPILLED = {
    ("sm_75", "attention of 512 by m16n8k16_half in 64 KiB"): 16,
    ("sm_80", "attention of 512 by fma_4x4 in 99 KiB"): 124,  # its blocks may have 163 KiB, so that another is taken
}
"""Bytes that some have in memory all the same: each thread holds 128 sums."""
TOLERANCE = 12
"""Registers that another version of a compiler may need more or less."""

pytestmark = [
    pytest.mark.skipif(find_assembler() is None, reason="ptxas is not installed (nvidia-cuda-nvcc)"),
    pytest.mark.skipif(TOOLCHAINS["clang"]() is None, reason="ziglang is not installed"),
]


@dataclass(frozen=True)
class Needs:
    """Of one kernel, with the shared memory that its launch asks for."""

    resources: Resources
    shared: int


def needs(architecture: str) -> dict[str, Needs]:
    """What each kernel needs."""
    alone = architecture == "sm_90a"  # the others are those of sm_90
    every = dict(kernels_of_several_warps() if alone else standard_kernels(with_tf32=architecture != "sm_75"))
    for kernel in every.values():
        verify(kernel)
    rendered = {name: render(kernel).named(f"kernel_{number}") for number, (name, kernel) in enumerate(every.items())}
    found = resources(compile_ptx(file_of(list(rendered.values())), architecture, "clang"), architecture)
    return {name: Needs(found[each.kernel.name], each.kernel.shared_bytes) for name, each in rendered.items()}


@pytest.mark.parametrize(
    "architecture", [pytest.param(each, marks=[pytest.mark.thorough] * (each not in USUAL)) for each in ARCHITECTURES]
)
def test_what_kernels_need(architecture: str) -> None:
    found = needs(architecture)
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    if os.environ.get("GRAPHC_UPDATE"):
        table[architecture] = {name: each.resources.registers for name, each in found.items()}
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
    for name, each in found.items():
        it = each.resources
        fits = each.shared + it.shared <= MOST_SHARED[architecture]
        assert it.spilled <= SPILLED.get((architecture, name), 0) or not fits, name
        assert fits == ((architecture, name) not in TOO_LARGE), name
        assert abs(it.registers - table[architecture][name]) <= TOLERANCE, f"{name}; GRAPHC_UPDATE=1 accepts it"
    assert set(found) == set(table[architecture])
