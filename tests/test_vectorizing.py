"""Kernels for the CPU in forms of which compilers make vectors: functions that stand in for those of math.h, and what is
largest or smallest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from loops import run, use_of

from graphc.ir.types import F16, F32, F64
from graphc.kernels.c.render import render
from graphc.ops.pointwise import Unary
from graphc.ops.reduce import Reduce
from graphc.targets.ggml.run.kernels import kernels_by

WAYS = "compiled", "interpreted"

FUNCTIONS = {
    "Exp": (np.exp, 3), "Expm1": (np.expm1, 3), "Log": (np.log, 3), "Tanh": (np.tanh, 3), "Erf": (np.vectorize(math.erf), 7),
    "Atan": (np.arctan, 3), "Softplus": (lambda x: np.logaddexp(0, x), 6),
}  # fmt: skip
"""What the functions are in float64, and how many units in the last place they may be off."""

SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1e-38, -1e-38, 2.0**-126, 88.72, 88.73, -87.4, -103.9, -104.1,
    3.4e38, -3.4e38, -0.99999994, 0.41421357, 2.4142137,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_to_the_last_places(name: str, way: str) -> None:
    random = np.random.default_rng(0)
    anything = random.integers(0, 2**32, 100_000, np.uint32).view(F32)
    x = np.concatenate([np.array(SPECIAL, F32), anything, random.uniform(-110, 110, 100_000).astype(F32),
                        random.standard_normal(100_000).astype(F32)])  # fmt: skip
    function, units = FUNCTIONS[name]
    (kernel,) = kernels_by(way, [use := use_of(Unary(name), [x])])
    found = run(kernel, use, [x], {}, threads=2)
    with np.errstate(all="ignore"):
        exact = function(x.astype(F64))
        rounded = exact.astype(F32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    rest = np.isfinite(rounded)
    np.testing.assert_array_equal(np.signbit(found[rest]), np.signbit(rounded[rest]))
    assert np.abs(found[rest].astype(F64) - exact[rest]).max(initial=0, where=rounded[rest] == 0) < 1e-44
    assert (np.abs(found[rest].astype(F64) - exact[rest]) / np.spacing(np.abs(rounded[rest]))).max() <= units


def test_a_file_has_the_functions_that_it_calls() -> None:
    x = np.zeros((3, 4), F32)
    text = render([use_of(Unary("Tanh"), [x])]).text
    assert "graphc_expm1f(" in text
    assert "graphc_logf" not in text
    of_halves, of_doubles = (render([use_of(Unary("Erf"), [x.astype(dtype)])]).text for dtype in (F16, F64))
    assert "graphc_erff(" in of_halves
    assert "graphc_erff" not in of_doubles


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("size", [1, 7, 8, 31, 32, 33, 511, 512, 513, 1100])
def test_the_largest_and_smallest_of_rows(size: int, kind: str, way: str) -> None:
    random = np.random.default_rng(size)
    x = random.standard_normal((40, size)).astype(F32)
    x[::3, random.integers(size)] = np.nan
    x[1::3, random.integers(size)] = random.choice([np.inf, -np.inf])
    x[38] = {"max": -np.inf, "min": np.inf}[kind]
    for dtype in (F32, F16):
        (kernel,) = kernels_by(way, [use := use_of(Reduce(kind, (1,), False), [x.astype(dtype)])])
        found = run(kernel, use, [x.astype(dtype)], {}, threads=3)
        np.testing.assert_array_equal(found, getattr(np, kind)(x.astype(dtype), axis=1))
