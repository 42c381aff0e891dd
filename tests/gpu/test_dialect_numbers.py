"""The dialect's functions of numbers, as all toolchains compute them, against NumPy: random bits, usual numbers, edges."""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np
import pytest

from graphc.kernels.gpu.dialect import divisor
from graphc.kernels.gpu.emulate import compile_emulated

COUNT = 40_000
EDGES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38,
     -3.4028235e38, 88.72283, 88.72284, -87.33654, -103.97208, 128, -149.5, 65504, 65519.996, 65520, 6.1e-5, 5.96e-8,
     2.98e-8, 1e5, 131072, 1e10, 1e22],
    np.float32,
)  # fmt: skip

UNITS = 2.0
FUNCTIONS = {
    "expf": (np.exp, UNITS), "exp2f": (np.exp2, UNITS), "expm1f": (np.expm1, UNITS), "logf": (np.log, UNITS),
    "log2f": (np.log2, UNITS), "log1pf": (np.log1p, UNITS), "sinf": (np.sin, UNITS), "cosf": (np.cos, UNITS),
    "tanf": (np.tan, 4.0), "asinf": (np.arcsin, UNITS), "acosf": (np.arccos, UNITS), "atanf": (np.arctan, UNITS),
    "sinhf": (np.sinh, UNITS), "coshf": (np.cosh, UNITS), "tanhf": (np.tanh, UNITS), "asinhf": (np.arcsinh, UNITS),
    "acoshf": (np.arccosh, UNITS), "atanhf": (np.arctanh, UNITS), "erff": (np.vectorize(math.erf), UNITS),
    "rsqrtf": (lambda x: 1 / np.sqrt(x), UNITS), "sqrtf": (np.sqrt, 0.5), "floorf": (np.floor, 0), "ceilf": (np.ceil, 0),
    "truncf": (np.trunc, 0), "rintf": (np.rint, 0), "fabsf": (np.abs, 0),
    "roundf": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), 0),
    "fast_exp": (np.exp, 200), "fast_exp2": (np.exp2, UNITS), "fast_log2": (np.log2, UNITS), "fast_tanh": (np.tanh, UNITS),
    "fast_reciprocal": (lambda x: 1 / x, UNITS), "fast_reciprocal_sqrt": (lambda x: 1 / np.sqrt(x), UNITS),
}  # fmt: skip
"""The right number in double, and how many units in the last place a result may be away."""

PAIRS = {
    "powf": (np.power, UNITS), "fmodf": (np.fmod, 0), "copysignf": (np.copysign, 0), "fmaxf": (np.fmax, 0),
    "fminf": (np.fmin, 0), "maximum": (np.maximum, 0), "minimum": (np.minimum, 0),
}  # fmt: skip

LOOP = "KERNEL(k_{name}, 256, 1, {parameters}, int n) {{ for (int i = thread_index(); i < n; i += 256) {body} }}\n"


@functools.cache
def functions():
    one, two = "const float *x, float *z", "const float *x, const float *y, float *z"
    text = "".join(
        LOOP.format(name=name, parameters=one, body=f"store_global(z + i, {name}(load_global(x + i)));")
        for name in FUNCTIONS
    )
    return compile_emulated(
        text
        + "".join(
            LOOP.format(
                name=name, parameters=two, body=f"store_global(z + i, {name}(load_global(x + i), load_global(y + i)));"
            )
            for name in PAIRS
        )
    )


def numbers(seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    bits = draw.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = [draw.normal(size=COUNT // 2), draw.uniform(-1.01, 1.01, COUNT // 2), draw.uniform(-100, 100, COUNT // 2)]
    return np.concatenate([bits, *(part.astype(np.float32) for part in usual), EDGES])


def units_away(got: np.ndarray, right: np.ndarray) -> float:
    """How far results are from the right numbers, at most, in units of float's last place; infinite where only one is a NaN."""
    rounded = right.astype(np.float32)
    unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, np.float32(3.4e38)))).astype(np.float64)
    away = (
        np.abs(
            got.astype(np.float64) - np.where(np.isinf(rounded) & np.isfinite(right), np.sign(right) * 2.0**128, right)
        )
        / unit
    )
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    assert (np.signbit(got) == np.signbit(rounded))[same & (rounded == 0)].all()
    return float(np.where(same, 0, np.nan_to_num(away, nan=np.inf)).max())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_a_function_of_one_number(name):
    right, units = FUNCTIONS[name]
    x = numbers(0)
    if name in ("roundf", "rintf", "floorf", "ceilf", "truncf"):
        x = np.concatenate([x, np.arange(-40, 40, dtype=np.float32) / 4])
    z = np.zeros_like(x)
    functions().launch(f"k_{name}", [1], 0, [x, z, len(x)])
    assert units_away(z, right(x.astype(np.float64))) <= units


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore")
def test_a_function_of_two_numbers(name):
    right, units = PAIRS[name]
    x, y = numbers(1), np.random.default_rng(2).permutation(numbers(3))
    if name == "powf":
        draw = np.random.default_rng(4)
        x = np.concatenate([x, np.abs(x), draw.uniform(0.9, 1.1, COUNT).astype(np.float32)])
        y = np.concatenate([np.rint(y), draw.uniform(-20, 20, len(y)), draw.uniform(-900, 900, COUNT)]).astype(
            np.float32
        )
    x, y = (np.concatenate([a, b]) for a, b in ((x, np.repeat(EDGES, len(EDGES))), (y, np.tile(EDGES, len(EDGES)))))
    z = np.zeros_like(x)
    functions().launch(f"k_{name}", [1], 0, [x, y, z, len(x)])
    wide = right(x.astype(np.float64), y.astype(np.float64))
    if name in ("fmaxf", "fminf"):
        z, wide = z + 0, wide + 0  # of 0 and -0 either
    assert units_away(z, wide) <= units


CONVERSIONS = """
KERNEL(widen, 256, 1, const half_t *h, const bfloat16_t *b, float *x, float *y, unsigned *wrong, int n) {
    for (int i = thread_index(); i < n; i += 256) {
        const half_t half = load_global(h + i);
        const bfloat16_t brain = load_global(b + i);
        store_global(x + i, to_float(half));
        store_global(y + i, to_float(brain));
        const unsigned halves = pack(half, half_t{7}), brains = pack(bfloat16_t{9}, brain);
        const float two_halves[2] = {half_low(halves), half_high(halves)};
        const float two_brains[2] = {bfloat16_high(brains), bfloat16_low(brains)};
        const bool half_same = bits_of(two_halves[0]) == bits_of(to_float(half)) && two_halves[1] == to_float(half_t{7});
        const bool brain_same = bits_of(two_brains[0]) == bits_of(to_float(brain)) && two_brains[1] == to_float(bfloat16_t{9});
        if (!half_same || !brain_same) atomic_add_global(wrong, 1u);
    }
}
KERNEL(narrow, 256, 1, const float *x, half_t *h, bfloat16_t *b, unsigned *t, unsigned *wrong, int n) {
    for (int i = thread_index(); i < n; i += 256) {
        const float number = load_global(x + i);
        store_global(h + i, to_half(number));
        store_global(b + i, to_bfloat16(number));
        store_global(t + i, to_tf32(number));
        const bool half_same = pack_half(number, 1.5f) == pack(to_half(number), half_t{0x3e00});
        const bool brain_same = pack_bfloat16(1.5f, number) == pack(bfloat16_t{0x3fc0}, to_bfloat16(number));
        if (!half_same || !brain_same) atomic_add_global(wrong, 1u);
    }
}
KERNEL(quotients, 256, 1, const unsigned *x, unsigned *q, unsigned *r, Divisor by, int n) {
    for (int i = thread_index(); i < n; i += 256) {
        store_global(q + i, divide(load_global(x + i), by));
        store_global(r + i, remainder(load_global(x + i), by));
    }
}
KERNEL(dots, 256, 1, const int *a, const int *b, const int *c, int *y) {
    const int i = thread_index();
    store_global(y + i, dot_bytes(load_global(a + i), load_global(b + i), load_global(c + i)));
}
"""


def same_numbers(got: np.ndarray, right: np.ndarray) -> bool:
    """Equal bits, but for those of NaN."""
    bits = f"u{got.itemsize}"
    nan = np.isnan(right.astype(np.float32))
    return bool((np.isnan(got.astype(np.float32)) == nan).all() and (got.view(bits) == right.view(bits))[~nan].all())


def test_all_narrow_numbers_widen():
    every = np.arange(1 << 16, dtype=np.uint16)
    x, y, wrong = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32), np.zeros(1, np.uint32)
    compile_emulated(CONVERSIONS).launch("widen", [1], 0, [every, every.copy(), x, y, wrong, 1 << 16])
    assert same_numbers(x, every.view(np.float16).astype(np.float32))
    assert same_numbers(y, every.view(ml_dtypes.bfloat16).astype(np.float32))
    assert wrong[0] == 0


@pytest.mark.filterwarnings("ignore")
def test_numbers_are_rounded_to_narrow_ones():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = halves[:-1] + (halves[1:] - halves[:-1]) / 2  # ties, and what is next to them
    x = np.concatenate(
        [numbers(5), between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(9e9))]
    )
    h, b = np.zeros(len(x), np.uint16), np.zeros(len(x), np.uint16)
    t, wrong = np.zeros(len(x), np.uint32), np.zeros(1, np.uint32)
    compile_emulated(CONVERSIONS).launch("narrow", [1], 0, [x, h, b, t, wrong, len(x)])
    assert same_numbers(h.view(np.float16), x.astype(np.float16))
    assert same_numbers(b.view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))
    finite = np.isfinite(x)
    away = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    assert same_numbers(t.view(np.float32), np.where(finite, away, x).astype(np.float32))
    assert wrong[0] == 0


@pytest.mark.parametrize("by", [1, 2, 3, 5, 7, 10, 64, 641, 65_535, 65_536, 99_991, 2**30 + 1, 2**31 - 1])
def test_quotients_are_exact(by):
    edges = [k * by + d for k in (0, 1, 2, (2**31 - 2) // by) for d in (-1, 0, 1)]
    x = np.random.default_rng(by).integers(0, 1 << 31, 2000)
    x = np.concatenate([x, [number for number in (*edges, 2**31 - 1) if 0 <= number < 1 << 31]]).astype(np.uint32)
    q, r = np.zeros_like(x), np.zeros_like(x)
    compile_emulated(CONVERSIONS).launch("quotients", [1], 0, [x, q, r, divisor(by), len(x)])
    np.testing.assert_array_equal(q, x // by)
    np.testing.assert_array_equal(r, x % by)


@pytest.mark.parametrize("number", [0, -1, 2**31])
def test_what_is_no_divisor(number):
    with pytest.raises(ValueError, match="is no divisor"):
        divisor(number)


def test_products_of_bytes():
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-128, 128, (256, 4)).astype(np.int8) for _ in range(2))
    c, y = draw.integers(-(2**20), 2**20, 256).astype(np.int32), np.zeros(256, np.int32)
    compile_emulated(CONVERSIONS).launch("dots", [1], 0, [a, b, c, y])
    np.testing.assert_array_equal(y, c + (a.astype(np.int32) * b).sum(1))


DOUBLE = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": np.vectorize(math.erf),
}  # fmt: skip
DOUBLES = "".join(
    LOOP.format(
        name=name, parameters="const double *x, double *z", body=f"store_global(z + i, {name}(load_global(x + i)));"
    )
    for name in DOUBLE
) + "".join(
    LOOP.format(
        name=name,
        parameters="const double *x, const double *y, double *z",
        body=f"store_global(z + i, {name}(load_global(x + i), load_global(y + i)));",
    )
    for name in ("pow", "fmod")
)


def doubles() -> np.ndarray:
    draw = np.random.default_rng(7)
    usual = [draw.normal(size=5000), draw.uniform(-1.01, 1.01, 5000), draw.uniform(-800, 800, 5000)]
    edges = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 5e-324, 2.3e-308, 1e-300, 1e308, 709.7, -745.1, 1e9]
    return np.concatenate([*usual, np.exp(draw.uniform(-700, 20, 5000)), edges])


@pytest.mark.parametrize("name", DOUBLE)
@pytest.mark.filterwarnings("ignore")
def test_a_function_of_doubles(name):
    x = doubles()
    if name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) >= 2**30)]
    z, right = np.zeros_like(x), DOUBLE[name](x)
    compile_emulated(DOUBLES).launch(f"k_{name}", [1], 0, [x, z, len(x)])
    same = (z == right) | (np.isnan(z) & np.isnan(right))
    units = np.abs(z - right) / np.spacing(np.abs(np.where(np.isfinite(right), right, 1)))
    assert np.where(same, 0, np.nan_to_num(units, nan=np.inf)).max() <= (32 if name == "erf" else 8)


@pytest.mark.filterwarnings("ignore")
def test_powers_and_rests_of_doubles():
    x, y = doubles(), np.random.default_rng(8).permutation(doubles())
    power, rest, exact = np.zeros_like(x), np.zeros_like(x), np.zeros(400)
    emulated = compile_emulated(DOUBLES)
    emulated.launch("k_fmod", [1], 0, [x, y, rest, len(x)])
    np.testing.assert_array_equal(rest, np.fmod(x, y))
    emulated.launch("k_pow", [1], 0, [x, np.clip(y, -20, 20), power, len(x)])
    np.testing.assert_allclose(power, np.power(x, np.clip(y, -20, 20)), rtol=2.0**-40, atol=1e-307)
    base, exponent = (part.astype(np.float64).ravel() for part in np.mgrid[-10:10, 0:20])
    emulated.launch("k_pow", [1], 0, [base, exponent, exact, 400])
    whole = np.array([int(b) ** int(e) for b, e in zip(base, exponent, strict=True)], np.float64)
    np.testing.assert_array_equal(exact[np.abs(whole) < 2**53], whole[np.abs(whole) < 2**53])
