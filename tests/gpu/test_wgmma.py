"""Products of four warps as the dialect has them: which rows and registers each lane gets, for every width and type, and what the
emulator says where an operand is not as the instruction reads it."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir.types import BF16, F16
from graphc.kernels.gpu.emulate import Emulated, KernelFault, compile_emulated
from graphc.kernels.gpu.instructions import INSTRUCTIONS

WIDTHS = INSTRUCTIONS["wgmma_half"].widths
WARPS = 8
DEPTH = 64


def text(width: int, kind: str) -> str:
    """A kernel that multiplies 128 x 64 by 64 x `width`, all of which is in shared memory first."""
    return f"""
KERNEL(multiply_{width}_{kind}, 256, 1, const {kind}_t *a, const {kind}_t *b, float *result) {{
    shared_byte *const memory = shared_memory();
    for (int chunk = thread_index(); chunk < (128 + {width}) * 8; chunk += 256) {{
        const int row = chunk / 8, place = chunk % 8;
        const {kind}_t *const from = row < 128 ? a + chunk * 8 : b + (chunk - 128 * 8) * 8;
        copy_async_16(memory + row * 128 + (place ^ row % 8) * 16, from, true);
    }}
    copy_commit();
    copy_wait<0>();
    wgmma_publish();
    barrier();
    float sums[{width // 2}];
    UNROLL for (int i = 0; i < {width // 2}; i++) sums[i] = i;
    const uint64_t left = wgmma_operand(memory + warp_index() / 4 * 64 * 128), right = wgmma_operand(memory + 128 * 128);
    wgmma_begin();
    UNROLL for (int k = 0; k < 4; k++) wgmma_m64n{width}k16_{kind}(sums, left + k * 2, right + k * 2, true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_arrived<{width // 2}>(sums);
    UNROLL for (int i = 0; i < {width // 2}; i++) store_global(result + thread_index() * {width // 2} + i, sums[i]);
}}
"""


def run(library: Emulated, width: int, kind: str = "half") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both operands, and the registers of every lane."""
    dtype = F16 if kind == "half" else BF16
    draw = np.random.default_rng(width)
    a, b = (draw.standard_normal((rows, DEPTH)).astype(dtype) for rows in (128, width))
    result = np.zeros((WARPS * 32, width // 2), np.float32)
    counters = library.launch(f"multiply_{width}_{kind}", [1], (128 + width) * 128, [a, b, result], seed=width)
    assert counters.mma == WARPS * 4 * width // 8
    return a, b, result


def test_who_gets_what() -> None:
    cases = [(width, kind) for width in WIDTHS for kind in ("half", "bfloat16")]
    library = compile_emulated("".join(text(width, kind) for width, kind in cases))
    for width, kind in cases:
        a, b, found = run(library, width, kind)
        sums = a.astype(np.float64) @ b.astype(np.float64).T
        thread, register = np.indices(found.shape)
        lane, warp = thread % 32, thread // 32
        row = warp * 16 + lane // 4 + register // 2 % 2 * 8
        column = register // 4 * 8 + lane % 4 * 2 + register % 2
        assert np.abs(found - register - sums[row, column]).max() < 1e-4


FAULTS = {
    "not shown": ("wgmma_publish();", "", "no wgmma_publish"),
    "shown too late": ("wgmma_publish();\n    barrier();", "barrier();\n    wgmma_publish();", "no wgmma_publish"),
    "no barrier": ("barrier();", "", "a race|nothing has written|under way"),
    "not waited for": ("copy_wait<0>();", "", "under way"),
    "begins between rows of eight": ("memory + 128 * 128", "memory + 129 * 128", "a multiple of 1,024"),
    "begins within a chunk": ("left + k * 2", "left + k", "this operand begins"),
    "another of each warp": ("warp_index() / 4 * 64", "warp_index() / 4 % 1 * 64", "numbers"),
    "other operands in a warp": ("right + k * 2", "right + k * 2 + (lane_index() == 3 ? 64 : 0)", "by this lane than"),
    "some lanes alone": ("wgmma_commit();", "if (lane_index() < 31) wgmma_commit();", "divergent"),
    "no end": ("wgmma_commit();", "", "numbers"),
    "waits for fewer": ("wgmma_wait<0>()", "wgmma_wait<1>()", "numbers"),
    "beyond shared memory": ("memory + 128 * 128", "memory + 136 * 128", "shared memory, which has"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(name: str) -> None:
    old, new, said = FAULTS[name]
    right = text(64, "half")
    assert old in right
    library = compile_emulated(right.replace(old, new))
    if said == "numbers":
        _, _, expected = run(compile_emulated(right), 64)
        assert not np.array_equal(run(library, 64)[2], expected)
        return
    with pytest.raises(KernelFault, match=said):
        run(library, 64)
