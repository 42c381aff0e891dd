"""Schedules that are chosen for a device: what may be chosen can be made, the guess is the roofline of the kernels, few kernels
serve all sizes, and measurements decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphc.errors import GraphcError
from graphc.ir.types import F16, F32
from graphc.kernels.gpu.candidates import Sizes, candidates, guess, in_parts, shared_of, terms_of
from graphc.kernels.gpu.devices import GPUS, gpu_like
from graphc.kernels.gpu.fitting import error, fitted
from graphc.kernels.gpu.forms import Spirv
from graphc.kernels.gpu.roofline import Coefficients, combined, estimate, usual
from graphc.kernels.gpu.schedule import Schedule, parsed
from graphc.kernels.gpu.scheduling import CLEARLY, MOST_WAYS, RANGE, Scheduling
from graphc.kernels.gpu.skeletons.contraction import Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import matrix
from graphc.kernels.gpu.verify import verify
from graphc.shapes import integer, symbol
from graphc.targets.ggml.generate.schedules import read

H200 = GPUS["h200"]


def product(dtype: np.dtype, rows: int, columns: int, channels: int) -> Contraction:
    a, b = matrix(dtype, rows, channels), matrix(dtype, columns, channels)
    return Contraction(
        "product", rows, columns, channels, a, b, F32, rows * columns, lambda batch, row, column: row * columns + column
    )


@pytest.mark.parametrize("gpu", ["t4", "rtx3090", "h200"])
@pytest.mark.parametrize("dtype", [F16, F32], ids=["f16", "f32"])
@pytest.mark.usefixtures("every_instruction")
def test_candidates_can_be_made_and_the_guess_is_about_their_roofline(gpu: str, dtype: np.dtype) -> None:
    """Every kernel is one, also of sizes that fill no block; in closed form it is as fast as counted, within a fifth."""
    device = GPUS[gpu]
    found = list(candidates(dtype, device))
    assert 20 < len(found) < 200
    for number, whole in enumerate(found):
        schedule = replace(whole, parts=(1, 4)[number % 2])
        rows, columns, channels = ((300, 520, 1100), (129, 40, 77), (1, 8, 640))[number % 3]
        kernel = contraction(product(dtype, rows, columns, channels), schedule)
        verify(kernel)
        assert kernel.shared_bytes <= device.block_shared
        by = usual(device)
        counted = estimate(kernel, {}, device, by).seconds
        assert guess(Sizes(dtype, rows, columns, channels), schedule, device, by) == pytest.approx(counted, rel=0.25), (
            schedule
        )


@pytest.mark.parametrize(
    ("gpu", "rows", "columns", "channels", "goes_across"),
    [
        ("h200", 1 << 18, 256, 256, True),  # each column of blocks would read 134 MB again
        ("h200", 1 << 16, 256, 256, False),  # which the second cache keeps
        ("rtx3060", 1 << 16, 256, 256, True),
        ("rtx3060", 1 << 16, 2560, 1280, False),  # here it does not keep the weights, either
        ("h200", 1 << 18, 32, 256, False),  # one column
    ],
)
def test_blocks_go_across_where_the_cache_has_the_weights_alone(
    gpu: str, rows: int, columns: int, channels: int, goes_across: bool
) -> None:
    device, sizes = GPUS[gpu], Sizes(F16, rows, columns, channels)
    best = Scheduling.of(device).ranked(sizes)[0]
    assert best.across == goes_across
    assert parsed(str(best)) == best
    rows_free, size = symbol("rows"), {"rows": rows}
    offered = Scheduling.of(device).schedules(replace(sizes, rows=rows_free))
    if columns > max(each.columns for each in offered):
        assert any(each.across for each in offered) == (columns * channels * 2 <= device.cache)
    narrow = parsed("m128n32k64 w32x32 s3 z1 m16n8k16_half")
    what = replace(product(F16, 1, columns, channels), rows=rows_free, result_size=rows_free * columns)
    what = replace(what, a=matrix(F16, rows_free, channels))
    down, across = (contraction(what, replace(narrow, across=each)) for each in (False, True))
    read = [estimate(kernel, size, device).nbytes - 4 * rows * columns for kernel in (down, across)]
    least = 2 * (rows * channels + columns * channels)
    if goes_across:
        assert read[0] > 1.9 * least
        assert read[1] < 1.01 * least
    x, y, _ = (integer(each, size) for each in down.grid)
    assert y == -(-columns // 32)
    assert [integer(each, size) for each in across.launched] == [x * y, 1, 1]


def test_sums_are_cut_where_there_are_few_blocks() -> None:
    few, many = Sizes(F16, 128, 1280, 11520, 9), Sizes(F16, 8192, 8192, 4096)
    schedule = parsed("m128n128k32 w64x32 s3 z1 m16n8k16_half")
    assert [each.parts for each in in_parts(schedule, many, H200)] == [1]
    assert len(list(in_parts(schedule, few, H200))) > 3
    scheduling = Scheduling.of(H200)
    assert scheduling.schedules(few)[0].parts > 1
    assert scheduling.schedules(many)[0].parts == 1


VULKAN = {
    "NVIDIA H200": Spirv(32, 1024, 48 << 10, 256, frozenset(("fused", "layout")), ((16, 8, 16), (16, 16, 16))),
    "NVIDIA GeForce RTX 4070": Spirv(32, 1024, 48 << 10, 256, frozenset(("fused", "layout")), ((16, 16, 16),)),
    "AMD Radeon RX 7900 XTX (RADV NAVI31)": Spirv(
        32, 1024, 64 << 10, 256, frozenset(("fused", "layout")), ((16, 16, 16),)
    ),
    "AMD Radeon Graphics (RADV PHOENIX)": Spirv(64, 1024, 32 << 10, 128, frozenset(("fused",))),
    "Intel(R) Arc(tm) A770 Graphics (DG2)": Spirv(
        32, 512, 64 << 10, 256, frozenset(("fused", "layout")), ((8, 8, 16),)
    ),
    "A device of nobody's": Spirv(16, 256, 32 << 10, 128, frozenset(("fused", "layout")), ((8, 8, 16),)),
}


@pytest.mark.parametrize("description", VULKAN)
def test_devices_of_vulkan_have_schedules_of_their_own(description: str) -> None:
    """Within what the device has; what is guessed of the kernel is what it costs."""
    form = VULKAN[description]
    device = form.gpu(gpu_like(description, f"vulkan_{form.lanes}", 0))
    assert device.name == {
        "NVIDIA H200": "h200", "NVIDIA GeForce RTX 4070": "rtx3060", "AMD Radeon RX 7900 XTX (RADV NAVI31)": "rx7900xtx",
        "AMD Radeon Graphics (RADV PHOENIX)": "rx7800xt", "Intel(R) Arc(tm) A770 Graphics (DG2)": "arca770",
        "A device of nobody's": "rtx3060",
    }[description]  # fmt: skip
    scheduling = Scheduling.of(device)
    for dtype in (F16, F32) if form.is_narrow else (F32,):
        large, small = (scheduling.ranked(Sizes(dtype, *sizes)) for sizes in ((8192, 8192, 4096), (256, 64, 4096)))
        if dtype == F16:
            assert large[0].rows * large[0].columns > small[0].rows * small[0].columns
        assert all(each.stages == 2 for each in large)
        assert any(each.parts > 1 for each in small)
        for schedule in {*large[:6], *small[:6]}:
            rows, columns, channels = (300, 520, 1100)
            kernel = contraction(product(dtype, rows, columns, channels), schedule)
            verify(kernel)
            assert form.render(kernel).kernel.shared_bytes <= form.shared
            assert shared_of(schedule) == kernel.shared_bytes
            counted = estimate(kernel, {}, device, usual(device)).seconds
            guessed = guess(Sizes(dtype, rows, columns, channels), schedule, device, usual(device))
            assert guessed == pytest.approx(counted, rel=0.3), schedule


def test_larger_products_have_larger_blocks() -> None:
    scheduling = Scheduling.of(H200)
    small, large = (scheduling.schedules(Sizes(F16, size, size, 1024))[0] for size in (64, 8192))
    assert small.rows * small.columns < large.rows * large.columns


def test_few_kernels_serve_all_sizes() -> None:
    scheduling = Scheduling.of(H200)
    for columns, depth, taps in ((320, 2880, 9), (1280, 11520, 9), (2560, 320, 1)):
        free = Sizes(F16, symbol("h") * symbol("w"), columns, depth, taps)
        compiled = scheduling.schedules(free)
        assert 1 <= len(compiled) <= MOST_WAYS
        alone, together, wanted = 1.0, 1.0, 1.0
        for rows in RANGE:
            known = free.bound({"h": rows, "w": 1})
            assert known.rows == rows
            alone *= scheduling.seconds(known, compiled[0])
            together *= scheduling.seconds(known, scheduling.best(known, compiled))
            wanted *= scheduling.seconds(known, scheduling.schedules(known)[0])
        assert wanted <= together <= alone < 3 ** len(RANGE) * wanted
        assert any(each.parts == 1 for each in compiled)
        assert len(compiled) == 1 or compiled[0].parts > 1 or together < alone * CLEARLY ** len(RANGE) * 1.001


def test_large_images_have_whole_sums() -> None:
    """Parts of an image's sums, added to its result, would be the largest memory of all."""
    scheduling = Scheduling.of(H200)
    for columns, depth in ((512, 4608), (256, 4608), (128, 1152)):
        free = Sizes(F16, symbol("h") * 8 * symbol("w") * 8, columns, depth, 9)
        for size in (64, 128):
            known = free.bound({"h": size, "w": size})
            assert scheduling.best(known, scheduling.schedules(free)).parts == 1


def test_measurements_decide() -> None:
    known = Sizes(F16, 4096, 320, 2880, 9)
    guessed = Scheduling.of(H200).ranked(known)
    slow, fast = guessed[0], guessed[30]
    scheduling = Scheduling(H200, usual(H200), {known: {slow: 2e-4, fast: 1e-4}})
    assert scheduling.schedules(known) == [fast]
    assert scheduling.best(known, [slow, fast, guessed[1]]) == fast
    free = replace(known, rows=symbol("rows"))
    assert fast in scheduling.schedules(free)
    assert fast not in scheduling.schedules(replace(free, columns=640))
    assert fast not in scheduling.schedules(replace(free, terms=2))
    other = replace(known, rows=128)
    assert scheduling.best(other, guessed[:5]) == Scheduling.of(H200).best(other, guessed[:5])


def test_what_was_measured_of_what_a_device_cannot_have_does_not_count() -> None:
    known = Sizes(F16, 4096, 320, 2880, 9)
    foreign = parsed("m64n64k32 w32x32 s2 z1 m16n8k8_half")
    scheduling = Scheduling(H200, usual(H200), {known: {foreign: 1e-9}})
    assert foreign not in scheduling.schedules(known)


TRUE = Coefficients(products=2.2, operations=1.9, shared=1.3, memory=1.6, cache=1.4, wait=0.6, launch=1.5)
SHAPES = [
    Sizes(F16, *shape) for shape in (
        (8192, 320, 2880, 9), (2048, 640, 5760, 9), (128, 1280, 11520, 9), (4096, 4096, 4096), (64, 32768, 512), (32, 64, 64),
    )
]  # fmt: skip


def samples(by: Coefficients, shapes: list[Sizes], noise: float = 0.0) -> list:
    random = np.random.default_rng(0)
    terms = [terms_of(shape, each, H200) for shape in shapes for each in Scheduling.of(H200).ranked(shape)[:40:5]]
    return [(each, combined(each, by)[0] * float(np.exp(noise * random.standard_normal()))) for each in terms]


def test_measurements_refit_the_guess() -> None:
    believed = usual(H200)
    learnt, held = samples(TRUE, SHAPES[::2], 0.03), samples(TRUE, SHAPES[1::2])
    found = fitted(learnt, believed)
    assert error(learnt, found) < 0.5 * error(learnt, believed)
    assert error(held, found) < 0.7 * error(held, believed)


def test_a_fit_stays_with_what_is_believed_where_nothing_was_measured() -> None:
    believed = usual(H200)
    assert fitted([], believed) == believed
    assert fitted(samples(believed, SHAPES), believed) == believed
    wild = fitted([(samples(believed, SHAPES[:1])[0][0], 100.0)], believed)
    assert all(0 < value < np.inf for value in vars(wild).values())


MEASURED = (
    (Path(__file__).parent / "measured" / "h200.txt", 92),
    (Path(__file__).parent / "measured" / "h200_later.txt", 12),
    (Path(__file__).parent / "measured" / "h200_together.txt", 12),
)
"""Contractions of an H200, and how many operations there were for each result on its way out. Those of the last file are the
dozen that were guessed to be the fastest of each shape, nearly all of them of warps that multiply together."""
DISTURBED = Sizes(F16, 4096, 4096, 4096)
"""Of the later file: most of its times are above those of the same kernels with more operations; the others' are below."""


def measured() -> list[tuple[Sizes, int, Mapping[Schedule, float]]]:
    return [
        (sizes, tail, times)
        for path, tail in MEASURED
        for sizes, times in read(path).items()
        if path is not MEASURED[1][0] or sizes != DISTURBED
    ]


def ranks(values: list[float]) -> list[float]:
    """The place of each in their order; equals share the mean of theirs."""
    return [sum(each < value for each in values) + (values.count(value) - 1) / 2 for value in values]


def order_and_regret(sizes: Sizes, tail: int, times: Mapping[Schedule, float], by: Coefficients) -> tuple[float, float]:
    """The rank correlation (Spearman) of guessed and measured times, and the time of what is guessed to be the fastest by that of
    the fastest."""
    guessed = {each: combined(terms_of(sizes, each, H200, tail), by)[0] for each in times}
    order = np.corrcoef(ranks([guessed[each] for each in times]), ranks(list(times.values())))[0, 1]
    return float(order), times[min(times, key=guessed.__getitem__)] / min(times.values())


def orders_and_regrets(every: list[tuple[Sizes, int, Mapping[Schedule, float]]]) -> tuple[list[float], list[float]]:
    """Of each shape by coefficients that all others gave, beginning with those of GPUs of which nothing is known."""
    found = []
    for left_out, tail, times in every:
        others = [
            (terms_of(s, each, H200, t), time) for s, t, known in every if s != left_out for each, time in known.items()
        ]
        found.append(order_and_regret(left_out, tail, times, fitted(others, Coefficients())))
    orders, regrets = zip(*found, strict=True)
    return list(orders), list(regrets)


ALIKE = len(read(MEASURED[-1][0]))
"""Shapes of the last file, whose schedules are all nearly the fastest."""


def test_schedules_of_shapes_that_were_not_measured_are_in_their_order() -> None:
    alone = measured()[:-ALIKE]
    assert sum(len(times) for *_, times in alone) == 218
    orders, regrets = orders_and_regrets(alone)
    assert np.mean(orders) > 0.84
    assert min(orders) > 0.55
    assert math.exp(np.mean(np.log(regrets))) < 1.07
    assert max(regrets) < 1.25


def test_those_of_warps_that_multiply_together_are_in_their_order_with_all_others() -> None:
    every = measured()
    assert sum(len(times) for *_, times in every) == 400
    orders, regrets = orders_and_regrets(every)
    assert np.mean(orders[:-ALIKE]) > 0.8
    assert np.mean(orders[-ALIKE:]) > 0.55
    assert math.exp(np.mean(np.log(regrets))) < 1.06
    assert max(regrets) < 1.5


def test_what_is_expected_of_a_measured_gpu_is_what_was_measured() -> None:
    samples = [(terms_of(s, each, H200, tail), time) for s, tail, times in measured() for each, time in times.items()]
    assert error(samples, usual(H200)) < 0.11
    assert error(samples, usual(H200)) < 1.1 * error(samples, fitted(samples, usual(H200)))


def test_a_schedule_that_is_none_is_refused() -> None:
    with pytest.raises(GraphcError):
        parsed("m16n16k16")
