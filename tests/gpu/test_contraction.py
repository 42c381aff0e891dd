"""Products and convolutions as tile kernels: the numbers of NumPy and PyTorch, the same bits interpreted and emulated, and memory
read and written as it should be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tile_runs import both_ways, launch, steps_of

from graphc.ir.types import BF16, F16, F32
from graphc.kernels.gpu.emulate import compile_emulated
from graphc.kernels.gpu.interpret import split_tf32
from graphc.kernels.gpu.render.cuda import file_of, render
from graphc.kernels.gpu.schedule import ScheduleError, parsed
from graphc.kernels.gpu.skeletons.contraction import Beside, Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import Products, Rows, Window, images, kernels, matrix
from graphc.kernels.gpu.skeletons.row import row_product
from graphc.kernels.gpu.tile import index
from graphc.kernels.scalar import Kernel, Scalar
from graphc.shapes import symbol

M = symbol("m")
STEP = {F16: 2.0**-10, BF16: 2.0**-7, F32: 2.0**-20}
"""What rounding may change, of the largest number."""


def silu(total: Scalar, bias: Scalar, residual: Scalar | float) -> Scalar:
    return Kernel(()).call("({0} / (1 + exp{f}(-{0})))", total + bias) + residual


def product(columns: int, channels: int, dtype: np.dtype, batch: int = 1) -> Contraction:
    def place(number: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return (number * M + row) * columns + column

    beside = (
        Beside("bias", F32, columns, lambda number, row, column: column, by_column=True),
        Beside("residual", dtype, batch * M * columns, place),
    )
    a, b = matrix(dtype, M, channels, batch), matrix(dtype, columns, channels, batch)
    size = batch * M * columns
    return Contraction("product", M, columns, channels, a, b, dtype, size, place, batch=batch, beside=beside, tail=silu)


def drawn(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_near(interpreted: np.ndarray, emulated: np.ndarray, expected: np.ndarray) -> None:
    """Both ways differ from what is expected, and from each other, by rounding."""
    limit = STEP[interpreted.dtype] * np.abs(expected).max()
    assert np.abs(interpreted.astype(np.float64) - expected).max() < limit
    assert np.abs(interpreted.astype(np.float64) - emulated.astype(np.float64)).max() < limit


CASES = [
    ("m128n128k32 w64x32 s3 z1 m16n8k16_half", F16, 129, 136, 96, 1),
    ("m128n128k32 w64x32 s3 z1 m16n8k16_half", F16, 1, 8, 32, 1),
    ("m64n64k64 w32x32 s2 z3 m16n8k16_half", F16, 127, 72, 328, 1),
    ("m64n64k64 w32x32 s2 z3 m16n8k16_half", F16, 65, 64, 16, 2),
    ("m64n64k64 w32x32 s2 z1 m16n8k16_half across", F16, 130, 200, 72, 2),
    ("m32n64k32 w16x32 s2 z2 m16n8k16_half across", F16, 65, 136, 72, 2),
    ("m32n64k16 w16x32 s4 z1 m16n8k16_half", F16, 33, 7, 5, 1),
    ("m128n64k64 w32x32 s3 z1 m16n8k8_half", F16, 130, 64, 64, 2),
    ("m64n128k32 w32x64 s2 z1 m16n8k16_bfloat16", BF16, 64, 256, 96, 1),
    ("m64n64k64 w16x64 s3 z1 wgmma_half", F16, 65, 72, 200, 2),
    ("m128n160k64 w16x160 s4 z1 wgmma_half", F16, 129, 136, 96, 1),
    ("m128n256k64 w16x256 s3 z2 wgmma_half", F16, 127, 256, 328, 1),
    ("m256n32k64 w16x32 s6 z1 wgmma_half", F16, 3, 7, 5, 1),
    ("m64n96k64 w16x96 s3 z1 wgmma_bfloat16", BF16, 1, 8, 32, 1),
    ("m64n64k32 w32x32 s3 z1 fma_4x4", F32, 65, 40, 36, 3),
    ("m64n64k32 w32x32 s2 z2 fma_4x4", F32, 3, 33, 7, 1),
]


@pytest.mark.parametrize(("schedule", "dtype", "rows", "columns", "channels", "batch"), CASES)
def test_products(schedule: str, dtype: np.dtype, rows: int, columns: int, channels: int, batch: int) -> None:
    a, b = drawn((batch, rows, channels), dtype, 0), drawn((batch, columns, channels), dtype, 1)
    bias, residual = drawn((columns,), F32, 2), drawn((batch, rows, columns), dtype, 3)
    result = np.full((batch, rows, columns), np.nan, dtype)
    steps = steps_of(product(columns, channels, dtype, batch), schedule, [a, b, bias, residual, result], {"m": rows})
    interpreted, emulated, counters = both_ways(steps, {"m": rows})
    total = a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2) + bias
    expected = total / (1 + np.exp(-total)) + residual
    assert_near(interpreted, emulated, expected)
    assert dtype == F32 or (interpreted == emulated).mean() > 0.999  # exp may differ in its last bit
    if channels % 8 == columns % 8 == 0:
        assert all(each.wide_share > 0.99 for each in counters)
        assert sum(each.conflicts for each in counters) == 0


PAIRS = [
    ("m128n128k32 w64x32 s3 z1 m16n8k16_half", F16, 129, 136, 96, 1),
    ("m64n64k64 w32x32 s2 z1 m16n8k16_half", F16, 1, 8, 32, 1),
    ("m64n64k32 w32x32 s3 z1 m16n8k16_half", F16, 65, 33, 40, 2),
    ("m128n256k32 w32x64 s2 z1 m16n8k8_half", F16, 70, 72, 7, 1),
    ("m64n128k32 w32x32 s2 z1 m16n8k16_bfloat16", BF16, 64, 256, 96, 1),
    ("m128n128k64 w16x128 s3 z1 wgmma_half", F16, 129, 136, 96, 1),
    ("m64n192k64 w16x192 s4 z1 wgmma_half", F16, 65, 33, 40, 2),
]


@pytest.mark.parametrize(("schedule", "dtype", "rows", "columns", "channels", "batch"), PAIRS)
def test_pairs(schedule: str, dtype: np.dtype, rows: int, columns: int, channels: int, batch: int) -> None:
    """What a gate lets through: two products of one operand, whose sums meet in a block."""
    a, b, gate = (
        drawn((batch, each, channels), dtype, each + seed) for seed, each in enumerate((rows, columns, columns))
    )
    bias = drawn((columns,), F32, 3)
    result = np.full((batch, rows, columns), np.nan, dtype)
    one = product(columns, channels, dtype, batch)
    pair = replace(
        one, pair=one.b, beside=one.beside[:1], tail=lambda total, other, bias: silu(other, bias, 0.5) * total
    )
    steps = steps_of(pair, schedule, [a, b, gate, bias, result], {"m": rows})
    interpreted, emulated, counters = both_ways(steps, {"m": rows})
    total, other = (a.astype(np.float64) @ each.astype(np.float64).swapaxes(1, 2) for each in (b, gate))
    expected = total * ((other + bias) / (1 + np.exp(-other - bias)) + 0.5)
    assert_near(interpreted, emulated, expected)
    if channels % 8 == columns % 8 == 0:
        assert all(each.wide_share > 0.99 for each in counters)
        narrow = parsed(schedule).columns == 64  # rows of 32 sums are read in two phases
        assert narrow or sum(each.conflicts for each in counters) == 0


@pytest.mark.parametrize("schedule", [
    "m64n32k32 w16x32 s3 z1 m16n8k16_half", "m64n64k32 w32x32 s2 z2 m16n8k16_half", "m64n64k32 w32x32 s2 z1 fma_4x4",
])  # fmt: skip
def test_pairs_that_no_block_has(schedule: str) -> None:
    one = product(64, 32, F16)
    with pytest.raises(ScheduleError, match="two products whose sums meet"):
        contraction(replace(one, pair=one.b, beside=one.beside[:1]), parsed(schedule))


SEVERAL = [
    ("m64n64k64 w32x32 s3 z1 m16n8k16_half", F16, 130, (72, 8, 200), 96),
    ("m64n64k64 w32x32 s2 z3 m16n8k16_half", F16, 65, (64, 136), 328),
    ("m64n64k64 w32x32 s2 z1 m16n8k16_half across", F16, 130, (72, 8, 200), 96),
    ("m64n64k32 w32x32 s2 z1 fma_4x4", F32, 3, (33, 7, 64), 7),
    ("m64n32k32 w16x32 s2 z2 fma_4x4", F32, 1, (130, 131), 40),
    ("one row", F32, 1, (33, 7, 16), 300),
]


@pytest.mark.parametrize(("schedule", "dtype", "rows", "columns", "channels"), SEVERAL)
def test_products_of_one_operand(
    schedule: str, dtype: np.dtype, rows: int, columns: tuple[int, ...], channels: int
) -> None:
    """Of several widths, each with a tail of its own, one result behind the other."""
    a, bs = drawn((rows, channels), dtype, 0), [drawn((each, channels), dtype, 1 + each) for each in columns]
    bias, scale = drawn((columns[0],), F32, 2), drawn((columns[1],), F32, 3)
    m = 1 if schedule == "one row" else M
    parts = []
    for number, each in enumerate(columns):
        before = sum(columns[:number])

        def place(batch: Scalar, row: Scalar, column: Scalar, each: int = each, before: int = before) -> Scalar:
            return index(m * before) + row * each + column

        name = {0: "bias", 1: "scale"}.get(number)
        beside = () if name is None else (Beside(name, F32, each, lambda batch, row, column: column, by_column=True),)
        parts.append(Contraction(
            "products", m, each, channels, matrix(dtype, m, channels), matrix(dtype, each, channels), dtype, m * sum(columns),
            place, beside=beside,
            tail=[lambda total, bias: (total + bias).maximum(0), lambda total, scale: total * scale, lambda total: total][number],
        ))  # fmt: skip
    result = np.full(rows * sum(columns), np.nan, dtype)
    arrays, symbols = [a, *bs, bias, scale, result], {"m": rows}
    if schedule == "one row":
        steps = [(row_product(parts[0], others=parts[1:]), arrays)]
    else:
        steps = steps_of(parts[0], schedule, arrays, symbols, parts[1:])
    interpreted, emulated, counters = both_ways(steps, symbols)
    totals = [a.astype(np.float64) @ b.T.astype(np.float64) for b in bs]
    totals[:2] = np.maximum(totals[0] + bias, 0), totals[1] * scale
    expected = np.concatenate([each.ravel() for each in totals])
    limit = STEP[dtype] * np.abs(expected).max()
    assert np.abs(interpreted - expected).max() < limit
    assert np.abs(emulated - expected).max() < limit
    if dtype == F16:
        assert all(each.wide_share > 0.99 for each in counters)
        assert sum(each.conflicts for each in counters) == 0


@pytest.mark.parametrize(
    ("rows", "columns", "channels", "parts"), [(65, 72, 328, 1), (3, 33, 37, 1), (64, 64, 4000, 3)]
)
def test_float32_on_tensor_cores(rows: int, columns: int, channels: int, parts: int) -> None:
    a, b = drawn((rows, channels), F32, 0), drawn((columns, channels), F32, 1)
    place = lambda number, row, column: row * columns + column  # noqa: E731
    expected = a.astype(np.float64) @ b.T.astype(np.float64)
    errors = {}
    for instruction in ("fma_4x4", "m16n8k8_float_thrice", "m16n8k8_float_once"):
        what = Contraction(
            "product", M, columns, channels, matrix(F32, M, channels), matrix(F32, columns, channels), F32, M * columns, place
        )  # fmt: skip
        result = np.full((rows, columns), np.nan, F32)
        schedule = f"m64n64k32 w32x32 s2 z{parts} {instruction}"
        interpreted, emulated, counters = both_ways(steps_of(what, schedule, [a, b, result], {"m": rows}), {"m": rows})
        assert np.array_equal(interpreted, emulated)
        assert channels % 4 or sum(each.conflicts for each in counters) == 0
        errors[instruction] = np.abs(interpreted - expected).max() / np.abs(expected).max()
    assert errors["m16n8k8_float_thrice"] < 2 * errors["fma_4x4"] + 2.0**-22
    assert 2.0**-14 < errors["m16n8k8_float_once"] < 2.0**-9


def test_splitting_into_tf32() -> None:
    numbers = np.array([1.0, 1 / 3, -np.pi, 1 + 2.0**-11, 3e38, 1e-38, 0.0, np.inf, np.nan], F32)
    high, low = split_tf32(numbers)
    with np.errstate(invalid="ignore"):
        rest = np.abs(numbers.astype(np.float64) - high - low)[:7]
    assert (rest <= np.abs(numbers[:7]) * 2.0**-22 + 2.0**-137).all()
    assert not (high[:7].view(np.uint32) & 0x1FFF).any()
    assert not (low[:7].view(np.uint32) & 0x1FFF).any()
    assert high[3] == 1 + 2.0**-10, "ties go away from zero"
    assert np.isinf(high[7])
    assert np.isnan(high[8])


CONVOLUTIONS = {
    "3 x 3": {"channels": 32, "results": 40, "size": 3, "pad": 1},
    "stride 2": {"channels": 40, "results": 40, "size": 3, "pad": 1, "stride": 2},
    "few channels, dilated": {"channels": 4, "results": 8, "size": 3, "pad": 1, "dilation": 2},
    "3 channels": {"channels": 3, "results": 8, "size": 3, "pad": 1},
    "in groups": {"channels": 64, "results": 64, "size": 3, "pad": 1, "groups": 2},
    "enlarged": {"channels": 32, "results": 64, "size": 3, "pad": 1, "scale": 2},
    "1 x 1": {"channels": 32, "results": 64, "size": 1},
    "no pad": {"channels": 16, "results": 16, "size": 5},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("schedule", ["m64n64k32 w32x32 s3 z1 m16n8k16_half", "m32n32k32 w16x32 s2 z2 fma_4x4"])
def test_convolutions(name: str, schedule: str) -> None:
    convolution = {"stride": 1, "pad": 0, "dilation": 1, "groups": 1, "scale": 1} | CONVOLUTIONS[name]
    dtype = F32 if "fma" in schedule else F16
    for count, height, width in ((2, 9, 7), (1, 5, 11)):
        agrees_with_torch(convolution, schedule, dtype, (count, height, width))


def agrees_with_torch(it: dict[str, int], schedule: str, dtype: np.dtype, size: tuple[int, int, int]) -> None:
    """A convolution by a kernel whose sizes are all symbols."""
    count, height, width = size
    taps, groups, channels, results = it["size"], it["groups"], it["channels"], it["results"]
    reach = it["dilation"] * (taps - 1) + 1
    high, wide = ((each * it["scale"] + 2 * it["pad"] - reach) // it["stride"] + 1 for each in (height, width))
    symbols = {"n": count, "h": height, "w": width, "high": high, "wide": wide}
    n, h, w, down, across = map(symbol, symbols)
    windows = [
        Window(each, taps, out, it["stride"], it["pad"], it["dilation"], it["scale"])
        for each, out in ((h, down), (w, across))
    ]
    own = results // groups

    def place(group: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return row * results + group * own + column

    bias = Beside("bias", F32, results, lambda group, row, column: group * own + column, by_column=True)
    what = Contraction(
        "convolution", n * down * across, own, channels // groups, images(dtype, n, *windows, channels // groups, groups),
        kernels(dtype, own, taps * taps, channels // groups, groups), dtype, n * down * across * results, place,
        taps=taps * taps, batch=groups, beside=(bias,), tail=lambda total, bias: total + bias,
    )  # fmt: skip
    image, weight = (
        drawn((count, height, width, channels), dtype, 0),
        drawn((results, taps, taps, channels // groups), dtype, 1),
    )
    added, result = drawn((results,), F32, 2), np.full((count, high, wide, results), np.nan, dtype)
    interpreted, emulated, _ = both_ways(steps_of(what, schedule, [image, weight, added, result], symbols), symbols)
    x = torch.from_numpy(image.astype(np.float64)).permute(0, 3, 1, 2)
    x = torch.nn.functional.interpolate(x, scale_factor=it["scale"], mode="nearest") if it["scale"] > 1 else x
    kernel = torch.from_numpy(weight.astype(np.float64)).permute(0, 3, 1, 2)
    expected = torch.nn.functional.conv2d(
        x, kernel, torch.from_numpy(added.astype(np.float64)), it["stride"], it["pad"], it["dilation"], groups
    ).permute(0, 2, 3, 1)
    assert np.abs(interpreted - expected.numpy()).max() < STEP[dtype] * float(expected.abs().max())
    np.testing.assert_allclose(interpreted.astype(F32), emulated.astype(F32), rtol=0, atol=1e-5 if dtype == F32 else 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m128n128k32", "is no schedule"),
        ("m128n128k32 w64x32 s3 z1 m9n9k9", "is no schedule"),
        ("m64n64k64 w32x64 s3 z1 wgmma_half", "each has 16 rows and all columns"),
        ("m32n64k64 w16x64 s3 z1 wgmma_half", "4 warps multiply together"),
        ("m64n64k64 w16x64 s2 z1 wgmma_half", "stages are at least 3"),
        ("m64n80k64 w16x80 s3 z1 wgmma_half", "32, 64, 96, 128, 160, 192, 256 columns"),
        ("m64n64k32 w16x64 s3 z1 wgmma_half", "rows of 128 bytes"),
        ("m128n128k32 w48x32 s3 z1 m16n8k16_half", "warps do not fill"),
        ("m128n128k24 w64x32 s3 z1 m16n8k16_half", "no multiples"),
        ("m128n128k32 w64x32 s1 z1 m16n8k16_half", "stages"),
        ("m512n256k32 w16x32 s2 z1 m16n8k16_half", "threads"),
        ("m128n128k128 w64x32 s2 z1 m16n8k16_half", "bytes"),
    ],
)
def test_what_is_no_schedule(text: str, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        parsed(text)


def test_a_schedule_is_its_text() -> None:
    for schedule, *_ in CASES:
        assert str(parsed(schedule)) == schedule


TERMS = [
    ("m64n64k32 w32x32 s3 z1 m16n8k16_half", F16, (96, 40, 7)),
    ("m64n64k64 w32x32 s2 z3 m16n8k16_half", F16, (328, 64, 200)),
    ("m64n64k32 w32x32 s2 z2 fma_4x4", F32, (7, 64)),
]


@pytest.mark.parametrize(("schedule", "dtype", "channels"), TERMS)
def test_a_sum_goes_on_with_other_operands(schedule: str, dtype: np.dtype, channels: tuple[int, ...]) -> None:
    """A convolution and products with matrices that lie behind each other in one."""
    size, columns = 9, 72
    rows, window = size * size, Window(size, 3, size, pad=1)
    image, kernel = drawn((size, size, 16), dtype, 0), drawn((columns, 3, 3, 16), dtype, 1)
    parts, matrix_of_all = (
        [drawn((rows, each), dtype, each) for each in channels],
        drawn((columns, sum(channels)), dtype, 2),
    )

    def behind(begin: int) -> Rows:
        aligned = next(width for width in (16, 8, 4, 2, 1) if begin % width == sum(channels) % width == 0)
        return Rows(dtype, matrix_of_all.size, lambda batch, row, tap: row * sum(channels) + begin, aligned=aligned)

    more = tuple(
        Products(matrix(dtype, rows, each), behind(sum(channels[:number])), each)
        for number, each in enumerate(channels)
    )
    what = Contraction(
        "several", rows, columns, 16, images(dtype, 1, window, window, 16), kernels(dtype, columns, 9, 16), dtype, rows * columns,
        lambda batch, row, column: row * columns + column, taps=9,
        beside=(Beside("bias", F32, columns, lambda number, row, column: column, by_column=True),),
        tail=lambda total, bias: total + bias, more=more,
    )  # fmt: skip
    bias, result = drawn((columns,), F32, 3), np.full((rows, columns), np.nan, dtype)
    operands = [each for part in parts for each in (part, matrix_of_all)]
    steps = steps_of(what, schedule, [image, kernel, *operands, bias, result], {})
    interpreted, emulated, _ = both_ways(steps, {}, seed=3)
    padded = np.pad(image.astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    patches = np.stack([padded[y : y + size, x : x + size] for y in range(3) for x in range(3)], 2).reshape(rows, -1)
    total = patches @ kernel.reshape(columns, -1).T.astype(np.float64)
    expected = total + np.concatenate(parts, 1).astype(np.float64) @ matrix_of_all.T.astype(np.float64) + bias
    assert_near(interpreted, emulated, expected)
    assert (interpreted == emulated).all()


def test_parts_are_added_in_one_order() -> None:
    """Whichever block comes last, the bits are the same, counters are as they were, and nothing of the parts is kept."""
    a, b, bias = drawn((1, 70, 328), F16, 0), drawn((1, 72, 328), F16, 1), drawn((72,), F32, 2)
    residual, result = drawn((1, 70, 72), F16, 3), np.zeros((1, 70, 72), F16)
    schedule = "m64n64k64 w32x32 s2 z3 m16n8k16_half"
    ((kernel, arrays),) = steps_of(product(72, 328, F16), schedule, [a, b, bias, residual, result], {"m": 70})
    rendered = render(kernel)
    emulated, found = compile_emulated(file_of([rendered])), set()
    for seed in range(6):
        launch(emulated, rendered, arrays, {"m": 70}, seed)
        found.add(result.tobytes())
        assert not arrays[-2].any()
        assert np.isnan(arrays[-3]).all()
    assert len(found) == 1
