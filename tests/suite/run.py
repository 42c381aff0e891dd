"""Runs one case through the `onnx.backend` interface and says how it went."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .cases import Case
from .refusals import expected_status

if TYPE_CHECKING:
    from graphc.onnx_backend import Prepared

BF16_ULPS = 2.0**-6
"""Two units in the last place of a bfloat16: the least relative tolerance for it, as in ONNX's own runner."""

DRAWS = {"rtol": 0.0, "atol": 1.0}
"""The tolerance between two draws of 0 or 1."""


@dataclass(frozen=True)
class Outcome:
    """`status` is `pass`, `refused` (a clear error), `wrong`, `drawn` (random numbers, right but for their values), `error` (any
    other exception), `crash` or `timeout`."""

    group: str
    name: str
    status: str
    reason: str = ""


def quick_flags() -> tuple[str, ...]:
    """Options that compile kernels with few optimizations: there are thousands, each is run once."""
    from graphc.kernels.c.compiler import FLAGS

    return tuple("-O1" if flag == "-O3" else flag for flag in FLAGS)


def quick_kernels() -> None:
    """Compile the kernels of this process with `quick_flags`."""
    from graphc.kernels.c import compiled

    compiled.FLAGS = quick_flags()


def run_case(case: Case, device: str = "CPU") -> Outcome:
    """Compile and run a case on a device, and compare its results."""
    return outcome(case, partial(check, device=device))


def check(case: Case, device: str = "CPU") -> Prepared:
    """The compiled model. Raises AssertionError unless it gives the results that it must give."""
    from graphc import onnx_backend

    model = case.model()
    prepared = onnx_backend.prepare(model, device)
    for inputs, expected in case.data_sets(model):
        compare(prepared.run(inputs), expected, DRAWS if is_random(case) else case.tolerance)
    return prepared


def outcome(case: Case, work: Callable[[Case], object]) -> Outcome:
    """How a case went, by what `work` raises."""
    from graphc.errors import GraphcError, ModelError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work(case)
    except AssertionError as error:
        return Outcome(case.group, case.name, "wrong", _short(error))
    except ModelError as error:  # every model of the suite is valid
        return Outcome(case.group, case.name, "error", _short(error))
    except GraphcError as error:
        return Outcome(case.group, case.name, "refused", _short(error))
    except Exception as error:
        return Outcome(case.group, case.name, "error", f"{type(error).__name__}: {_short(error)}")
    return Outcome(case.group, case.name, "drawn" if is_random(case) else "pass")


def is_random(case: Case) -> bool:
    """True if only dtypes and shapes of the results are determined."""
    return expected_status(case.name) == "drawn"


def compare(results: Any, expected: Any, tolerance: dict[str, float]) -> None:
    """Raise AssertionError unless the results have the right number, dtypes, shapes and values."""
    assert len(results) == len(expected), f"{len(results)} results, not {len(expected)}"
    for result, right in zip(results, expected, strict=True):
        if isinstance(right, list | tuple):
            assert isinstance(result, list | tuple), f"{type(result).__name__}, not a sequence"
            compare(result, right, tolerance)
        elif right is None:
            assert result is None, f"{type(result).__name__}, not an empty optional"
        else:
            _compare_arrays(result, np.asarray(right), tolerance)


def _compare_arrays(result: Any, right: np.ndarray, tolerance: dict[str, float]) -> None:
    assert isinstance(result, np.ndarray), f"{type(result).__name__}, not an array"
    assert result.shape == right.shape, f"shape {result.shape}, not {right.shape}"
    if right.dtype.kind in "OSU":
        np.testing.assert_array_equal(result, right)
        return
    assert result.dtype == right.dtype, f"dtype {result.dtype}, not {right.dtype}"
    if right.dtype.isbuiltin == 2:  # NumPy cannot compare the types of ml_dtypes with tolerances
        result, right = result.astype(np.float32), right.astype(np.float32)
        tolerance = {**tolerance, "rtol": max(tolerance["rtol"], BF16_ULPS)} if result.size else tolerance
    np.testing.assert_allclose(result, right, **tolerance)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__
