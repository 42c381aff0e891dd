"""What is expected of devices that nobody has at hand: the order of GPUs, of sizes and of types is the true one, and what limits
a kernel is what should."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from graphc.errors import InputError
from graphc.ir import Graph, TensorType
from graphc.ir.types import F16, F32
from graphc.kernels.gpu.analyse import cost, registers
from graphc.kernels.gpu.devices import GPUS, Gpu, gpu_like, gpu_named
from graphc.kernels.gpu.roofline import TERMS, Coefficients, estimate
from graphc.kernels.gpu.schedule import parsed
from graphc.kernels.gpu.skeletons.contraction import Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import Window, images, kernels, matrix
from graphc.ops.matmul import MatMul
from graphc.ops.pointwise import Unary
from graphc.shapes import symbol
from graphc.targets.ggml.generate.generate import generated
from graphc.targets.ggml.generate.simulate import Simulated, simulated
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.program.program import Program

FAST = "m128n128k32 w64x32 s3 z1 m16n8k16_half"


def layers(width: int, depth: int = 3) -> Program:
    """Products of x[rows, width] with square matrices, and what is not linear between them."""
    graph, rows = Graph(), symbol("rows")
    value = graph.input("x", TensorType(F32, (rows, width)))
    for _ in range(depth):
        weight = graph.constant(np.zeros((width, width), np.float32))
        value = graph.add(Unary("Relu"), [graph.add(MatMul(), [value, weight]).output]).output
    graph.output(value, "y")
    return lower(graph)


def expected(gpu: str, rows: int = 4096, width: int = 1024, fast: bool = True) -> Simulated:
    return simulated(generated(layers(width), fast), {"rows": rows}, GPUS[gpu])


def test_what_is_larger_takes_longer() -> None:
    times = [
        expected("rtx4090", rows, width).seconds
        for rows, width in ((512, 512), (4096, 512), (4096, 1024), (8192, 2048))
    ]
    assert times == sorted(times)
    assert times[-1] > 10 * times[0]


def test_gpus_are_in_their_order() -> None:
    times = {name: expected(name).seconds for name in GPUS}
    slowest_first = ["t4", "rtx3060", "rtx3090", "rtx4080", "rtx4090", "h200"]
    assert sorted(slowest_first, key=lambda name: -times[name]) == ["rtx3060", "t4", *slowest_first[2:]]
    assert times["h200"] <= times["h100"] < times["a100"]


@pytest.mark.parametrize("gpu", GPUS)
def test_tensor_cores_are_faster(gpu: str) -> None:
    fast, exact = expected(gpu), expected(gpu, fast=False)
    assert fast.seconds < exact.seconds
    assert "tensor cores" not in {each.limit for each in exact.steps}


def test_a_product_takes_about_what_was_measured_elsewhere() -> None:
    """Of 4096 x 4096 x 4096, cuBLAS and the best by mma.sync reach 154 TFLOP/s on an RTX 4090, a plain kernel 127
    (spatters/mma-matmul); this schedule 286 on an H200 (benchmarks/results/2026-11-26-gpu.md)."""
    what = product(4096, 4096, 4096)
    kernel = contraction(what, parsed(FAST))
    for gpu, low, high in (("rtx4090", 110e12, 155e12), ("h200", 240e12, 330e12)):
        rate = 2 * 4096**3 / estimate(kernel, {}, GPUS[gpu]).seconds
        assert low < rate < high, gpu


def test_a_ladder_of_kernels_is_in_its_order() -> None:
    """Each is faster than the one before, as in spatters/mma-matmul, measured on this GPU: larger tiles of a block, copies
    that are under way meanwhile, larger tiles of a warp. What avoids conflicts of banks there, all kernels do here."""
    ladder = ("m32n32k32 w16x32 s2", "m128n128k32 w64x32 s2", "m128n128k32 w64x32 s3", "m128n128k32 w64x64 s3")
    kernels = [contraction(product(4096, 4096, 4096), parsed(f"{each} z1 m16n8k16_half")) for each in ladder]
    times = [estimate(kernel, {}, GPUS["rtx4090"]).seconds for kernel in kernels]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


def product(rows: int, columns: int, channels: int) -> Contraction:
    a, b = matrix(F16, rows, channels), matrix(F16, columns, channels)
    return Contraction(
        "product", rows, columns, channels, a, b, F16, rows * columns, lambda batch, row, column: row * columns + column
    )


def test_what_limits() -> None:
    def limit(rows: int, columns: int, channels: int, gpu: str = "rtx4090", schedule: str = FAST) -> str:
        kernel = contraction(product(rows, columns, channels), parsed(schedule))
        return estimate(kernel, {}, GPUS[gpu]).limit

    assert limit(8192, 8192, 1024) == "tensor cores"
    assert limit(32, 32768, 4096, "rtx3060", "m32n128k64 w32x32 s4 z1 m16n8k16_half") == "memory"
    assert limit(128, 1280, 11520, "t4") == "occupancy"
    assert limit(128, 1280, 11520, "h200", "m64n64k32 w32x32 s2 z1 m16n8k16_half") == "latency"
    assert limit(128, 128, 32) == "launch"


def convolution(size: int, channels: int) -> Contraction:
    window = Window(size, 3, size, pad=1)
    a, b = images(F16, 1, window, window, channels), kernels(F16, channels, 9, channels)
    return Contraction(
        "convolution", size * size, channels, channels, a, b, F16, size * size * channels,
        lambda batch, row, column: row * channels + column, taps=9,
    )  # fmt: skip


def test_steps_of_a_loop_are_counted_together_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for what in (convolution(24, 40), convolution(9, 64), product(100, 72, 200)):
        for schedule in ("m64n64k32 w32x32 s3 z1 m16n8k16_half", "m64n32k64 w32x32 s2 z3 m16n8k16_half"):
            kernel = contraction(what, parsed(schedule))
            together = cost(kernel, {})
            with monkeypatch.context() as patch:
                patch.setattr("graphc.kernels.gpu.analyse.MOST_PLACES", 1)
                assert cost(kernel, {}) == together


def test_registers_are_about_what_an_assembler_finds() -> None:
    """128 by ptxas for sm_80, as nvcc and clang give it (the experiments of this kernel)."""
    kernel = contraction(product(4096, 4096, 4096), parsed(FAST))
    assert 100 <= registers(kernel) <= 150


def test_nothing_takes_no_time() -> None:
    found = simulated(generated(layers(64), True), {"rows": 0}, GPUS["h200"])
    assert found.seconds == 0
    assert {each.limit for each in found.steps} == {"nothing"}


def test_what_does_not_fit_is_named() -> None:
    program = generated(layers(64), True)
    for small, count in ((GPUS["t4"], 0), (replace(GPUS["t4"], block_shared=4 << 10), 3)):
        found = simulated(program, {"rows": 64}, small)
        assert len(found.too_large) == count
        assert np.isfinite(found.seconds)


def test_sizes_that_are_not_known_are_named() -> None:
    found = simulated(generated(layers(64), True), {}, GPUS["h200"])
    assert (found.steps, found.result_bytes) == ([], None)
    assert len(found.unknown) >= 3


def test_names() -> None:
    assert gpu_named("RTX 4090") is gpu_named("rtx-4090") is GPUS["rtx4090"]
    with pytest.raises(InputError, match="rtx4080, rtx4090"):
        gpu_named("rtx5090")
    assert gpu_like("NVIDIA GeForce RTX 3090", "sm_86", 82) is GPUS["rtx3090"]
    other = gpu_like("NVIDIA GeForce RTX 4070", "sm_89", 46)
    assert (other.architecture, other.multiprocessors) == ("sm_89", 46)
    assert other.half == pytest.approx(GPUS["rtx4080"].half * 46 / 76)
    assert gpu_like("something", "", 0).multiprocessors > 0


def test_every_data_sheet_is_whole() -> None:
    for gpu in GPUS.values():
        assert isinstance(gpu, Gpu)
        assert gpu.single < gpu.half < 20 * gpu.single
        assert gpu.bandwidth < gpu.cache_bandwidth < 20 * gpu.bandwidth
        assert gpu.block_shared <= gpu.shared < gpu.cache < gpu.memory
    assert set(TERMS) == set(vars(Coefficients()))


def test_the_command(graphc_command, tmp_path) -> None:
    graphc_command("demo", "-o", ".")
    words = ("simulate", "digits.onnx", "--dim", "batch=64")
    found = json.loads(graphc_command(*words, "--device", "RTX 3060", "--json").out)
    assert found["device"]["name"] == "rtx3060"
    assert found["seconds"] == pytest.approx(sum(each["seconds"] for each in found["layers"]))
    assert found["launches"] == sum(each["launches"] for each in found["layers"]) == len(found["steps"])
    shown = graphc_command(*words, "--device", "h200", "--top", 2).out
    assert shown.startswith("digits.onnx on h200: ")
    assert len(shown.split("longest")[1].splitlines()) == 4
    assert "longest" not in graphc_command(*words, "--top", 0).out
    assert json.loads(graphc_command(*words, "--fast", "--json").out)["seconds"] > 0
    for refused, why in ((("--device", "gtx"), "no data sheet of 'gtx'"), (("--dim", "batch=0"), "batch")):
        done = graphc_command(*words, *refused)
        assert (done.status, done.out) == (1, "")
        assert why in done.err
