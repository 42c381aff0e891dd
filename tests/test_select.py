"""Branches that become selections."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import graphc
from graphc.frontend.onnx import load
from graphc.optimize import optimize


def branches(then: str, other: str) -> str:
    """A model whose branches give z of x, y."""
    return f"""<ir_version: 9, opset_import: ["": 17]>
branches (bool c, int32[3] x, int32[3] y, float[64, 2] w) => (int32[3] z) {{
  z = If (c) <then_branch = a () => (int32[3] r) {{ {then} }}, else_branch = b () => (int32[3] s) {{ {other} }}>
}}"""


@pytest.mark.parametrize(
    ("then", "other", "stays"),
    [
        ("r = Add (x, y)", "s = Identity (y)", False),
        ("f = Cast <to = 1> (x) g = Neg (f) r = Cast <to = 6> (g)", "t = Mul (x, y) s = Sub (t, x)", False),
        ("r = Add (x, y)", "s = Div (x, y)", True),  # which a processor may not divide
        (
            "r = Add (x, y)",
            "v = Mul (w, w) n = ReduceSum <keepdims = 0> (v) i = Cast <to = 6> (n) s = Add (x, i)",
            True,
        ),
    ],
)
def test_branches_of_few_numbers(tmp_path, then, other, stays):
    """Those that cannot fail are both computed, others are taken by the host."""
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(branches(then, other)).SerializeToString())
    graph = load(path)
    optimize(graph)
    assert stays == any(node.op.name == "If" for node in graph.nodes)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {"x": np.int32([1, -2, 3]), "y": np.int32([4, 5, -6]), "w": np.ones((64, 2), np.float32)}
    compiled = graphc.compile(path)
    for condition in (False, True):
        given = {"c": np.array(condition), **inputs}
        used = {each.name: given[each.name] for each in session.get_inputs()}
        np.testing.assert_array_equal(compiled.run(given)["z"], session.run(None, used)[0])
