"""Kernels run lane by lane: right ones give what they should, and each kind of fault is one clear error."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import pytest

from graphc.kernels.gpu.dialect import complete
from graphc.kernels.gpu.emulate import FLAGS, KernelFault, compile_emulated
from graphc.zig import find_zig

REVERSE = """
KERNEL(reverse, 64, 1, const float *x, float *y, int n) {
    const int i = block_index_x() * 64 + thread_index();
    store_shared(shared_memory() + 4 * thread_index(), i < n ? load_global(x + i) : 0.0f);
    barrier();
    const int from = 63 - thread_index(), to = block_index_x() * 64 + thread_index();
    if (to < n) store_global(y + to, load_shared<float>(shared_memory() + 4 * from));
}
"""


def test_a_kernel_runs_over_a_grid():
    x, y = np.arange(200, dtype=np.float32), np.zeros(200, np.float32)
    counters = compile_emulated(REVERSE).launch("reverse", [4], 256, [x, y, 200])
    padded = np.zeros(256, np.float32)
    padded[:200] = x
    np.testing.assert_array_equal(y, padded.reshape(4, 64)[:, ::-1].reshape(-1)[:200])
    assert counters.blocks == counters.barriers == 4
    assert counters.conflicts == 0


FAULTS = {
    "no barrier": (("barrier();", ""), "warp"),
    "no guard": (("i < n ? load_global(x + i) : 0.0f", "load_global(x + i)"), "global memory .* behind the end of buffer 0"),
    "too little shared memory": (("4 * thread_index()", "8 * thread_index()"), "of shared memory, which has 256"),
    "not aligned": (("+ 4 * from", "+ 4 * from + 1"), "not aligned"),
    "divergent": (("if (to < n)", "if (thread_index() < 7) barrier();\n    if (to < n)"), "divergent"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_kind_of_fault_is_an_error_that_says_what(name):
    (old, new), said = FAULTS[name]
    assert old in REVERSE
    x, y = np.arange(200, dtype=np.float32), np.zeros(200, np.float32)
    emulated = compile_emulated(REVERSE.replace(old, new))
    for seed in range(3):
        with pytest.raises(KernelFault, match=said):
            emulated.launch("reverse", [4], 256, [x, y, 200], seed=seed)
    assert not y.any()


MAIN = """
int main() {
    alignas(16) float x[200], y[200] = {};
    for (int i = 0; i < 200; i++) x[i] = i;
    const EmulatorBuffer buffers[] = {{x, sizeof x, "x"}, {y, sizeof y, "y"}};
    const float *from = x;
    float *to = y;
    int n = 200;
    void *arguments[] = {&from, &to, &n};
    EmulatorReport report;
    EmulatorLaunch launch = {{4, 1, 1}, 64, 256, 7, 2, 3, arguments, 2, buffers};
    int wrong = graphc_emulate_reverse(&launch, &report);
    for (int i = 0; i < 200; i++) wrong += y[i] != (i / 64 * 64 + 63 - i % 64 < 200 ? i / 64 * 64 + 63 - i % 64 : 0);
    n = 201;
    const int refused = graphc_emulate_reverse(&launch, &report);
    printf("%d %d %s\\n", wrong, refused, report.error);
}
"""


@pytest.mark.thorough  # the C library for another processor is compiled first
@pytest.mark.skipif(not shutil.which("qemu-aarch64") or find_zig() is None, reason="needs qemu-user and ziglang")
def test_it_runs_on_arm64(tmp_path):
    (tmp_path / "main.cpp").write_text(complete("emulator", REVERSE) + MAIN)
    target = ["-target", "aarch64-linux-musl", "-static"]
    command = [str(find_zig()), "cc", *FLAGS, *target, "main.cpp", "-o", "main"]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "zig")}
    subprocess.run(command, cwd=tmp_path, check=True, env=environment)
    done = subprocess.run(["qemu-aarch64", "main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("0 1 line 4: reads 4 bytes of global memory")
