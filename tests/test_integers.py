"""Products and convolutions of bytes: the same numbers by every way that they have."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import product
from pathlib import Path
from platform import machine

import numpy as np
import pytest
from draws import panels_of
from loops import compute
from operators import defined, on_ggml

from graphc.ir.types import I8, I32, U8
from graphc.kernels.c.routine import definitions, function_name
from graphc.ops.base import Routine
from graphc.ops.integers import IntegerConv, IntegerMatMul
from graphc.ops.panels import PackedConv
from graphc.shapes import symbol
from graphc.zig import find_zig

RANDOM = np.random.default_rng(3)
TYPES = list(product((U8, I8), repeat=2))


def processor_has(what: str) -> bool:
    """True if Linux says that the processor has some instructions."""
    about = Path("/proc/cpuinfo")
    return about.exists() and what in about.read_text().split()


def bytes_of(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Any bytes, the ends of the type among them."""
    limits = np.iinfo(dtype)
    any_ = RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(RANDOM.random(shape) < 0.2, RANDOM.choice([limits.min, limits.max], shape), any_).astype(dtype)


def same_everywhere(op: IntegerMatMul | IntegerConv, *arrays: np.ndarray) -> list[str]:
    """`eval`, the definition and what ggml runs agree; the calls that it makes."""
    (expected,) = op.eval(*arrays)
    by_definition = defined(op, *arrays)
    if by_definition is not None:
        np.testing.assert_array_equal(by_definition, expected)
    actual, calls = on_ggml(op, *arrays, weights=range(1, 5))
    np.testing.assert_array_equal(actual, expected)
    return calls


def zeros(op_rows: int, op_columns: int, left: np.dtype, right: np.dtype, many: bool) -> list[np.ndarray]:
    """Zero points and a bias: one, or one for each row and column."""
    shapes = ((op_rows,), (op_columns,), (op_columns,)) if many else ((), (), ())
    bias = RANDOM.integers(-(1 << 20), 1 << 20, shapes[2]).astype(I32)
    return [bytes_of(left, *shapes[0]), bytes_of(right, *shapes[1]), np.asarray(bias)]


@pytest.mark.parametrize(("left", "right"), TYPES, ids=str)
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(1, 300, 70), (5, 64, 33), (70, 1100, 20), (3, 0, 4), (66, 257, 1)]
)
@pytest.mark.parametrize("many", [False, True])
def test_products(left: np.dtype, right: np.dtype, rows: int, inner: int, columns: int, many: bool) -> None:
    a, b = bytes_of(left, rows, inner), bytes_of(right, inner, columns)
    same_everywhere(IntegerMatMul(), a, b, *zeros(rows, columns, left, right, many))


@pytest.mark.parametrize(
    "shapes",
    [((2, 3, 4, 200), (200, 18)), ((2, 3, 4, 200), (3, 200, 18)), ((5, 150), (2, 150, 18)), ((2, 5, 30), (30, 18))],
)
@pytest.mark.parametrize("many", [False, True])
def test_products_of_many_matrices(shapes: tuple[tuple[int, ...], ...], many: bool) -> None:
    a, b = (bytes_of(dtype, *shape) for dtype, shape in zip((U8, I8), shapes, strict=True))
    same_everywhere(IntegerMatMul(), a, b, *zeros(a.shape[-2], 18, U8, I8, many))
    same_everywhere(IntegerMatMul(True), a, b.swapaxes(-1, -2).copy(), *zeros(a.shape[-2], 18, U8, I8, many))


@pytest.mark.parametrize(("left", "right"), TYPES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_sum_that_does_not_fit_wraps_around(left: np.dtype, right: np.dtype, threads: int) -> None:
    a, b = np.full((1, 3, 40000), np.iinfo(left).max, left), np.full((1, 40, 40000), np.iinfo(right).max, right)
    ends = [np.array([np.iinfo(dtype).min], dtype) for dtype in (left, right)]
    op, bias = IntegerMatMul(True), np.array([7], I32)
    if left == right:
        pytest.skip("the kernel takes bytes of different signs")
    expected = np.full((1, 3, 40), 40000 * 255 * 255 + 7 - (1 << 32))
    np.testing.assert_array_equal(compute(op, a, b, *ends, bias, threads=threads), expected)
    np.testing.assert_array_equal(op.eval(a, b, *ends, bias)[0], expected)


@pytest.mark.parametrize(("left", "right"), TYPES, ids=str)
@pytest.mark.parametrize(
    ("op", "image", "kernel"),
    [
        (IntegerConv((1, 1), (1, 1), (1, 1), (1, 1)), (2, 20, 9, 11), (18, 20, 3, 3)),
        (IntegerConv((2, 1), (1, 2), (2, 0), (0, 3), 2), (1, 64, 9, 11), (34, 32, 3, 2)),
        (IntegerConv((1, 1), (1, 1), (0, 0), (0, 0)), (1, 300, 5, 5), (40, 300, 1, 1)),
        (IntegerConv((1, 1), (1, 1), (1, 1), (1, 1), 4), (1, 4, 6, 6), (8, 1, 3, 3)),
        (IntegerConv((2,), (2,), (2,), (1,)), (2, 50, 17), (19, 50, 4)),
        (IntegerConv((1, 1, 1), (1, 1, 1), (1, 0, 1), (1, 0, 1)), (1, 2, 4, 5, 4), (3, 2, 3, 2, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("many", [False, True])
def test_convolutions(
    left: np.dtype, right: np.dtype, op: IntegerConv, image: tuple[int, ...], kernel: tuple[int, ...], many: bool
) -> None:
    x, w = bytes_of(left, *image), bytes_of(right, *kernel)
    same_everywhere(op, x, w, *zeros(1, kernel[0], left, right, many))


@pytest.mark.skipif(machine() not in ("x86_64", "AMD64"), reason="has the flags of one kind of processor")
@pytest.mark.parametrize("kind", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_every_kind_of_processor_has_the_same_sums(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no instruction multiplies bytes, where one adds their products in 16 bits, and where vectors are shorter."""
    if kind == "x86-64-v3" and not processor_has("avx2"):
        pytest.skip("the processor is too old")
    monkeypatch.setattr("graphc.kernels.c.compiled.machine_flags", lambda: (f"-march={kind}",))
    for rows, inner, columns in ((3, 700, 9), (45, 1031, 67)):
        a, b = bytes_of(U8, 1, rows, inner), bytes_of(I8, 1, columns, inner)
        more = zeros(rows, columns, U8, I8, True)
        (expected,) = IntegerMatMul(True).eval(a, b, *more)
        np.testing.assert_array_equal(compute(IntegerMatMul(True), a, b, *more, threads=2), expected)
    op, x, w = (
        IntegerConv((1, 1), (1, 1), (1, 1), (1, 1), channels_last=True),
        bytes_of(I8, 2, 9, 11, 37),
        bytes_of(U8, 18, 3, 3, 37),
    )
    more = zeros(1, 18, I8, U8, True)
    np.testing.assert_array_equal(compute(op, x, w, *more, threads=2), op.eval(x, w, *more)[0])
    same_packed(PackedConv((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)), bytes_of(U8, 1, 1, 45, 1031), I8)
    same_packed(PackedConv((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), bytes_of(I8, 2, 9, 11, 37), U8)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize(
    ("shape", "kernel", "before", "behind"),
    [
        ((1, 9, 31, 64), (3, 3), (1, 1), (1, 1)),
        ((2, 5, 40, 100), (3, 3), (0, 2), (1, 0)),
        ((1, 30, 3, 36), (4, 2), (3, 0), (0, 1)),
        ((1, 1, 200, 32), (1, 7), (0, 3), (0, 3)),
        ((1, 17, 2, 128), (5, 1), (4, 0), (2, 0)),
        ((1, 2, 2, 64), (3, 3), (2, 2), (2, 2)),
        ((1, 20, 130, 64), (2, 2), (0, 0), (0, 1)),
    ],
)
def test_convolutions_of_windows_that_are_read_where_they_lie(
    dtype: np.dtype, shape: tuple[int, ...], kernel: tuple[int, int], before: tuple[int, int], behind: tuple[int, int]
) -> None:
    """By a matrix unit: lines that are longer than a tile or shorter, and more of what is around them than of them."""
    same_packed(PackedConv(kernel, (1, 1), (1, 1), before, behind), bytes_of(dtype, *shape), I8 if dtype == U8 else U8)


def same_packed(op: PackedConv, x: np.ndarray, dtype: np.dtype) -> None:
    """The same by C and by `eval`, for symmetric kernels and others, and all that may be done with sums."""
    panels, sums = panels_of(bytes_of(dtype, 70, *op.kernel, x.shape[-1]))
    finish = [RANDOM.uniform(1e-6, 1e-4, 70).astype(np.float32), np.array(-5, I8)]
    for count, w_zero in (
        (0, bytes_of(dtype, 70)),
        (0, np.zeros(70, dtype)),
        (1, bytes_of(dtype)),
        (1, np.zeros((), dtype)),
        (2, bytes_of(dtype, 70)),
        (2, np.zeros((), dtype)),
    ):
        given = (
            x,
            panels,
            bytes_of(x.dtype),
            w_zero,
            RANDOM.integers(-9999, 9999, 70).astype(I32),
            sums,
            *finish[:count],
        )
        np.testing.assert_array_equal(compute(op, *given, threads=3), op.eval(*given)[0])


MEMORY = """
void * memcpy(void * to, const void * from, size_t count) {
    for (size_t i = 0; i < count; i++) ((char *) to)[i] = ((const char *) from)[i];
    return to;
}

void * memset(void * to, int value, size_t count) {
    for (size_t i = 0; i < count; i++) ((char *) to)[i] = (char) value;
    return to;
}
"""
"""There is no library of C."""

ARM = """
enum { HIGH = 5, WIDE = 7, CHANNELS = 150, OUT = 40, PANELS = 2, QUADS = (9 * CHANNELS + 3) / 4 };
static X x[HIGH][WIDE][CHANNELS];
static Y w[OUT][3][3][CHANNELS], packed[PANELS][QUADS][32][4];
static int32_t sums[OUT], bias[OUT], y[HIGH][WIDE][OUT];
static uint32_t state = 1;

static uint8_t draw(void) { return (uint8_t) ((state = state * 1664525 + 1013904223) >> 24); }

void _start(void) {
    const X x_zero = (X) draw();
    Y w_zero[OUT];
    int64_t wrong = 0;
    for (int i = 0; i < HIGH * WIDE * CHANNELS; i++) (&x[0][0][0])[i] = (X) draw();
    for (int i = 0; i < OUT; i++) {
        for (int k = 0; k < 9 * CHANNELS; k++) {
            const Y drawn = (Y) draw();
            sums[i] += (&w[i][0][0][0])[k] = packed[i / 32][k / 4][i % 32][k % 4] = drawn;
        }
        w_zero[i] = ZEROS ? (Y) draw() : 0, bias[i] = draw();
    }
    const int64_t sizes[] = {1, 1, CHANNELS, OUT, HIGH, WIDE, 3, 3, HIGH, WIDE, 1, 1, 1, 1, 1, 1, 1, 1, 1, OUT, OUT, 1, 0};
    for (int i = 0; i < 3; i++) FUNCTION(&x[0][0][0], &packed[0][0][0][0], &x_zero, w_zero, bias, sums, &y[0][0][0], sizes, i, 3);
    for (int i = 0; i < HIGH * WIDE * OUT; i++) {
        const int out = i % OUT, column = i / OUT % WIDE, row = i / OUT / WIDE;
        int32_t sum = bias[out];
        for (int tap = 0; tap < 9; tap++) {
            const int from = row + tap / 3 - 1, at = column + tap % 3 - 1;
            const int within = from >= 0 && from < HIGH && at >= 0 && at < WIDE;
            const Y * const kernel = w[out][tap / 3][tap % 3];
            for (int c = 0; within && c < CHANNELS; c++) sum += (x[from][at][c] - x_zero) * (kernel[c] - w_zero[out]);
        }
        wrong += sum != (&y[0][0][0])[i];
    }
    register int64_t code __asm__("x0") = wrong != 0, call __asm__("x8") = 93;  // exit
    __asm__ volatile("svc 0" : : "r"(code), "r"(call));
}
"""


@pytest.mark.skipif(not shutil.which("qemu-aarch64") or find_zig() is None, reason="needs qemu-user and ziglang")
@pytest.mark.parametrize("processor", ["generic", "apple_m1", "generic+i8mm"])
@pytest.mark.parametrize(("left", "right"), [(U8, I8), (I8, U8)], ids=str)
@pytest.mark.parametrize("zeros", [0, 1])
def test_arm_has_the_same_sums(processor: str, left: np.dtype, right: np.dtype, zeros: int, tmp_path: Path) -> None:
    """Where no instruction multiplies bytes, where one multiplies signed ones, and where one multiplies those of both kinds."""
    routine = Routine("panels", "packed_sums", (left, right), ())
    kinds = [f"#define X {left}_t", f"#define Y {right}_t", f"#define ZEROS {zeros}"]
    heads = ["#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>"]
    text = [*heads, MEMORY, *kinds, f"#define FUNCTION {function_name(routine)}", *definitions(routine).values(), ARM]
    (tmp_path / "main.c").write_text("\n".join(text))
    flags = [
        "-target",
        "aarch64-linux-none",
        f"-mcpu={processor}",
        "-O2",
        "-fwrapv",
        "-w",
        "-fno-builtin",
        "-nostdlib",
        "-static",
    ]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "zig")}
    command = [str(find_zig()), "cc", *flags, "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, env=environment)
    assert subprocess.run(["qemu-aarch64", "-cpu", "max", "main"], cwd=tmp_path).returncode == 0


def test_sizes_may_be_symbols() -> None:
    rows, a, b = symbol("rows"), bytes_of(U8, 6, 200), bytes_of(I8, 200, 24)
    more = zeros(6, 24, U8, I8, False)
    actual, _ = on_ggml(IntegerMatMul(), a, b, *more, weights=range(1, 5), sizes={0: (rows, 200)}, binding={"rows": 6})
    np.testing.assert_array_equal(actual, IntegerMatMul().eval(a, b, *more)[0])
    high, x, w = symbol("high"), bytes_of(U8, 1, 32, 7, 6), bytes_of(I8, 20, 32, 3, 3)
    op, more = IntegerConv((1, 1), (1, 1), (1, 1), (1, 1)), zeros(1, 20, U8, I8, True)
    sizes = {0: (1, 32, high, 6)}
    actual, _ = on_ggml(op, x, w, *more, weights=range(1, 5), sizes=sizes, binding={"high": 7})
    np.testing.assert_array_equal(actual, op.eval(x, w, *more)[0])


def test_long_sums_run_in_the_kernel_and_short_ones_in_float32() -> None:
    """255 * 255 * 258 < 2 ** 24: every sum of so many products is exact in float32."""
    for inner, kernel in ((20, False), (200, True)):
        a, b = bytes_of(U8, 40, inner), bytes_of(I8, inner, 32)
        calls = same_everywhere(IntegerMatMul(), a, b, *zeros(40, 32, U8, I8, False))
        assert ("ggml_mul_mat" in calls) == (not kernel)
