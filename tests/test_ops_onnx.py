"""Core operators against the results that ONNX's own tests expect: types, NumPy, and definitions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_cases import Case, cases

from graphc.ir import Graph, TensorType, interp
from graphc.ir.types import BF16, F16

CASES = cases()
TOLERANCE = {F16: 2e-3, BF16: 2e-2}


def agree(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if actual.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = TOLERANCE.get(actual.dtype, 2e-6)
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_onnx_case(case: Case) -> None:
    types = case.op.infer(*(TensorType(x.dtype, x.shape) for x in case.inputs))
    results = case.op.eval(*case.inputs)
    assert types == tuple(TensorType(y.dtype, y.shape) for y in results)
    for actual, expected in zip(results, case.expected, strict=True):
        agree(actual, expected)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_definition(case: Case) -> None:
    from operators import expand

    graph = Graph()
    values = [graph.input(f"x{i}", TensorType(x.dtype, x.shape)) for i, x in enumerate(case.inputs)]
    for value in graph.add(case.op, values).outputs:
        graph.output(value)
    if not expand(graph):
        return
    while expand(graph):
        pass
    results = interp.run(graph, {f"x{i}": x for i, x in enumerate(case.inputs)})
    for actual, expected in zip(results.values(), case.op.eval(*case.inputs), strict=True):
        agree(actual, expected)


def test_enough_cases() -> None:
    operators = {type(case.op).__name__ for case in CASES}
    assert len(CASES) > 450
    assert len(operators) >= 32
