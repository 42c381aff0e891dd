"""The kernels of operators, compiled and run, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from loops import run, use_of
from onnx_cases import cases
from test_ops_onnx import agree

from graphc.kernels.c.routine import has_kernel
from graphc.targets.ggml.run.kernels import LoadedKernel, load_kernels

CASES = [case for case in cases() if has_kernel(case.op) and len(case.expected) == 1]


@pytest.fixture(scope="module")
def kernels() -> list[LoadedKernel]:
    """The kernels of all cases, compiled at once."""
    return load_kernels([use_of(case.op, case.inputs) for case in CASES])


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_onnx_case(number: int, kernels: list[LoadedKernel]) -> None:
    case = CASES[number]
    result = run(kernels[number], use_of(case.op, case.inputs), case.inputs, {})
    (expected,) = case.op.eval(*case.inputs)
    agree(result, np.asarray(expected))
