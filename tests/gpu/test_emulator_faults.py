"""Faults that are put into a convolution that is right, and by which means each is found: a message, numbers, or counters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from convolutions import CONVOLUTION, convolve

from graphc.kernels.gpu.emulate import KernelFault, compile_emulated

ROUNDING = 1e-3
"""Of the largest number, for results of half precision."""


def test_the_convolution_is_right_and_has_no_conflicts():
    error, counters = convolve(CONVOLUTION)
    assert error < ROUNDING
    assert counters.conflicts == 0
    assert counters.wide_share > 0.95
    assert counters.mma == counters.blocks * 9 * 2 * 16 * 8
    assert counters.load_matrix_wavefronts == counters.mma // 16 * 6 * 4


def test_seeds_and_workers_change_nothing():
    several = [convolve(CONVOLUTION, seed, workers=workers) for seed, workers in ((0, 1), (1, 1), (2, 3))]
    assert several[0] == several[1] == several[2]


FAULTS = {
    "waits for one group too few": ("copy_wait<1>()", "copy_wait<2>()", "not waited for"),
    "waits behind the barrier": (
        "copy_wait<1>();\n            barrier();", "barrier();\n            copy_wait<1>();", "not waited for|a race"
    ),
    "no barrier in the loop": ("<1>();\n            barrier();", "<1>();", "a race"),
    "no barrier before the way out": ("16 bytes a thread.\n    barrier();", "", "a race"),
    "no barrier on the way out": ("barrier();\n    UNROLL", "UNROLL", "a race|nothing has written"),
    "no commit": ("copy_commit();", "", "not waited for"),
    "reads the next stage": ("b_stages + step % 3", "b_stages + (step + 1) % 3", "not waited for|nothing has written"),
    "writes a stage too early": ("a_stages + ahead % 3", "a_stages + (ahead + 1) % 3", "nothing has|not waited for"),
    "too few stages": ("b_stages + ahead % 3", "b_stages + ahead % 2", "a race|under way|nothing has written"),
    "lanes of b exchanged": ("lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2", "lane % 16, k * 2 + lane / 16", "numbers"),
    "rows of the result exchanged": ("lane / 4 + half * 8", "lane / 4 * 2 + half", "numbers"),
    "registers of b exchanged": ("fb[j / 2][j % 2 * 2]", "fb[j / 2][2 - j % 2 * 2]", "numbers"),
    "no swizzle where a is read": (
        "a + place(warp_row * 64 + i * 16 + lane % 16, k * 2 + lane / 16)",
        "a + (warp_row * 64 + i * 16 + lane % 16) * 64 + (k * 2 + lane / 16) * 16",
        "numbers",
    ),
    "no swizzle at all": ("(chunk ^ ((row >> 1) & 3))", "chunk", "conflicts"),
    "another swizzle on the way out": ("(chunk ^ row % 8)", "(chunk ^ row % 4)", "numbers"),
    "no guard of columns": ("&& (unsigned) from_v < (unsigned) W", "", "numbers|global memory"),
    "no guard of places": ("at < places && n < K", "n < K", "global memory .* behind the end"),
    "no guard of channels": ("w_valid[i] = channel < K", "w_valid[i] = true", "global memory"),
    "sums are not 0 first": ("sums[i][j][e] = 0;", "if (e) sums[i][j][e] = 0;", "numbers"),
    "divergent barrier": (
        "barrier();\n    shared_byte *out", "if (lane < 31) barrier();\n    shared_byte *out", "divergent|a race"
    ),
    "a warp leaves early": (
        "barrier();\n    shared_byte *out", "if (thread >= 224) return;\n    barrier();\n    shared_byte *out", "divergent"
    ),
    "mma of some lanes": ("mma_m16n8k16_half(", "if (lane != 5 || step) mma_m16n8k16_half(", "divergent"),
    "not aligned": ("quarter * 8;\n        w_row", "quarter * 8 + 1;\n        w_row", "not aligned"),
}  # fmt: skip
"""What is replaced by what, and how it is found."""


def found_by(text: str, seed: int) -> str:
    """What shows that a convolution is wrong."""
    try:
        error, counters = convolve(text, seed)
    except KernelFault as fault:
        return str(fault)
    return "numbers" if not error < ROUNDING else "conflicts" if counters.conflicts else "nothing"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name):
    old, new, means = FAULTS[name]
    assert CONVOLUTION.count(old) == 1
    for seed in range(2):
        assert re.search(means, found_by(CONVOLUTION.replace(old, new), seed))


RACES = """
KERNEL(races, 64, 1, float *y) {
    shared_byte *mine = shared_memory() + 4 * thread_index();
    store_shared(mine, 1.0f);
    BETWEEN
    const int other = OTHER;
    store_global(y + thread_index(), load_shared<float>(shared_memory() + 4 * other));
    BEHIND
}
"""
ORDERED = {
    "own": ("", "thread_index()", "", ""),
    "neighbour": ("warp_barrier();", "thread_index() ^ 1", "", ""),
    "neighbour without": ("", "thread_index() ^ 1", "", "another lane of the warp wrote|nothing has written"),
    "shuffles do not order": ("shuffle_xor(1, 1);", "thread_index() ^ 1", "", "another lane of the warp wrote"),
    "other warp": ("barrier();", "thread_index() ^ 32", "", ""),
    "other warp, warp's barrier": ("warp_barrier();", "thread_index() ^ 32", "", "warp . wrote|nothing has written"),
    "written after reading": (
        "barrier();",
        "thread_index() ^ 32",
        "store_shared(mine, 2.0f);",
        "with no barrier between",
    ),
    "the same again": ("barrier();", "thread_index() ^ 32", "store_shared(mine, 1.0f);", ""),
    "in order again": ("barrier();", "thread_index() ^ 32", "barrier(); store_shared(mine, 2.0f);", ""),
    "read by several": (
        "barrier();",
        "0",
        "if (thread_index() == 0) store_shared(mine, 2.0f);",
        "barrier between",
    ),
    "read by one's warp": (
        "barrier();",
        "thread_index() & 32",
        "warp_barrier(); if (lane_index() == 0) store_shared(mine, 2.0f);",
        "",
    ),
}


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_a_race_and_what_is_not(name):
    between, other, behind, said = ORDERED[name]
    emulated = compile_emulated(RACES.replace("BETWEEN", between).replace("OTHER", other).replace("BEHIND", behind))
    for seed in range(6):
        y = np.zeros(64, np.float32)
        if said:
            with pytest.raises(KernelFault, match=said):
                emulated.launch("races", [1], 256, [y], seed)
        else:
            emulated.launch("races", [1], 256, [y], seed)
            assert y.all()


PARTS = """
KERNEL(parts, 64, 1, float *parts, unsigned *counters, float *y) {
    const int thread = thread_index(), count = grid_size_x();
    store_global(parts + block_index_x() * 64 + (thread ^ 32), (float) (block_index_x() + 1));
    barrier();
    if (thread == 0) {
        device_fence();
        const unsigned before = atomic_add_global(counters, 1u);
        device_fence();
        if (before == count - 1) store_global(counters, 0u);
        store_shared(shared_memory(), before);
    }
    barrier();
    if (load_shared<unsigned>(shared_memory()) != count - 1) return;
    float sum = 0;
    for (int i = 0; i < count; i++) sum += load_global(parts + i * 64 + thread);
    store_global(y + thread, sum);
    barrier();
    if (thread < 2 * count) discard_global(parts + thread * 32);
}
"""
UNSEEN = {
    "as it should be": ("", "", ""),
    "no fence before": ("device_fence();\n        const", "const", "with no device_fence and atomic"),
    "a fence of each thread": ("barrier();\n    if (thread == 0) {\n        device_fence();",
                               "device_fence();\n    barrier();\n    if (thread == 0) {", "with no device_fence and atomic"),
    "no barrier before": ("32), (float) (block_index_x() + 1));\n    barrier();", "32), (float) (block_index_x() + 1));",
                          "with no device_fence and atomic"),
    "no fence behind": ("device_fence();\n        if", "if", "with no atomic add and device_fence before"),
    "no barrier behind": ("}\n    barrier();", "}", "a race|nothing has written"),
    "read as what nobody writes": ("sum += load_global(parts + i * 64 + thread);",
                                   "{ float x; load_readonly_4(&x, parts + i * 64 + thread); sum += x; }", "as what nobody"),
    "discarded too early": ("float sum = 0;", "float sum = 0;\n    discard_global(parts + thread % 10 * 32);", "numbers"),
    "discarded from the middle of a line": ("parts + thread * 32", "parts + thread * 32 + 4", "no whole line of 128 bytes"),
    "discarded beyond the end": ("thread < 2 * count", "thread < 2 * count + 1", "behind the end of"),
    "too early": ("!= count - 1) return", "!= count - 2) return", "numbers"),
    "not set back": ("if (before == count - 1) store_global(counters, 0u);", "", "numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSEEN)
def test_what_blocks_see_of_each_other(name):
    old, new, said = UNSEEN[name]
    assert not old or PARTS.count(old) == 1
    emulated = compile_emulated(PARTS.replace(old, new) if old else PARTS)
    for seed in range(6):
        counters, found = np.zeros(1, np.uint32), ""
        try:
            for _ in range(2):
                parts, y = (np.full(count, np.nan, np.float32) for count in (5 * 64, 64))
                emulated.launch("parts", [5], 4, [parts, counters, y], seed, workers=1 if said else 1 + seed % 2)
            found = "" if (y == 15).all() and not counters.any() else "numbers"
        except KernelFault as fault:
            found = str(fault)
        assert re.search(said, found) if said else not found
