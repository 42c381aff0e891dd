"""Products that leave the bodies of loops."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import graphc
from graphc.frontend.onnx import load
from graphc.ir.graph import Graph, Node
from graphc.ops.control import Loop
from graphc.optimize import optimize

WEIGHTS = "<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2, 2] u = {0.5, 0.25, -0.5, 0.75}>"
"""Of products by numbers that are known."""


def recurrent(product: str, more: str = "") -> str:
    """A loop over the rows of x, whose body multiplies what is called `now`; steps count from 1 in a value that is carried."""
    return f"""<ir_version: 9, opset_import: ["": 17]>
recurrent (float[N, B, 3] x, float[B, 2] start, float[B, 3] same, int64 trips) => (float[B, 2] last, float[S, B, 2] all, int64 n)
{WEIGHTS} {{
  yes = Constant <value = bool {{1}}> ()
  zero = Constant <value = int64 {{0}}> ()
  last, n, all = Loop (trips, yes, start, zero) <body = step (int64 i, bool going, float[B, 2] h, int64 count)
      => (bool again, float[B, 2] after, int64 next, float[B, 2] seen) {{
    again = Identity (going)
    one = Constant <value = int64 {{1}}> ()
    two = Constant <value = int64 {{2}}> ()
    next = Add (count, {"two" if more else "one"})
    {product}
    a = MatMul (now, w)
    b = MatMul (h, u)
    c = Add (a, b)
    after = Tanh (c)
    seen = Identity (after)
  }}>
}}"""


def loop_of(graph: Graph) -> Node:
    """The only loop."""
    (found,) = [node for node in graph.nodes if isinstance(node.op, Loop)]
    return found


@pytest.mark.parametrize(
    ("product", "more", "left"),
    [
        ("now = Gather <axis = 0> (x, i)", "", 1),
        ("now = Gather <axis = 0> (x, count)", "", 1),
        ("now = Identity (same)", "", 1),
        ("now = Gather <axis = 0> (x, count)", "by two", 2),  # most rows might be read by no step
        ("taken = Gather <axis = 0> (x, i)\n now = Tanh (taken)", "", 2),
    ],
)
def test_products_of_what_no_step_changes(tmp_path, product, more, left):
    """Those of the next row, and of what stays the same, are computed before the loop."""
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(recurrent(product, more)).SerializeToString())
    graph = load(path)
    optimize(graph)
    loop = loop_of(graph)
    inside = [node.op.name for node in loop.op.body.graph.nodes]
    assert inside.count("MatMul") + inside.count("Linear") == left
    assert len(loop.inputs) == len(loop.op.body.graph.inputs)
    random = np.random.default_rng(0)
    shapes = {"x": (12, 4, 3), "start": (4, 2), "same": (4, 3)}
    inputs = {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    compiled = graphc.compile(path)
    for trips in (0, 1, 6):
        given = inputs | {"trips": np.array(trips)}
        for name, array in zip(("last", "all", "n"), session.run(None, given), strict=True):
            if trips or name != "all":
                np.testing.assert_allclose(compiled.run(given)[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
