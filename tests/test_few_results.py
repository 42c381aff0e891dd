"""Convolutions with few results read pixels where they lie: in lines of all lengths, with windows over every edge."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from frontend_models import model, node, value

import graphc

RANDOM = np.random.default_rng(8)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


LAYERS = {
    "colours": ((1, 20, 9, 130), (3, 20, 7, 7), {"pads": [3, 3, 3, 3]}),
    "a mask": ((2, 8, 5, 48), (1, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    "a pixel": ((1, 33, 6, 40), (2, 33, 1, 1), {}),
    "four results": ((1, 5, 4, 257), (4, 5, 3, 5), {"pads": [1, 2, 1, 2]}),
    "dilation": ((1, 4, 9, 100), (3, 4, 3, 3), {"pads": [2, 5, 2, 5], "dilations": [2, 5]}),
    "every second line": ((2, 3, 11, 64), (3, 3, 5, 3), {"pads": [2, 1, 2, 1], "strides": [2, 1]}),
    "edges that differ": ((1, 6, 7, 33), (1, 6, 3, 3), {"pads": [0, 2, 2, 0]}),
    "wider than the image": ((1, 6, 2, 20), (2, 6, 5, 9), {"pads": [3, 6, 3, 6]}),
    "beside the image": ((1, 3, 3, 16), (2, 3, 2, 2), {"pads": [4, 4, 4, 4]}),
    "a line of a vector": ((3, 300, 3, 16), (3, 300, 3, 3), {"pads": [1, 1, 1, 1]}),
    "lines too short": ((1, 6, 9, 9), (3, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_few_results(name: str, threads: int) -> None:
    shape, kernel, settings = LAYERS[name]
    constants = {"w": floats(*kernel), "b": floats(kernel[0])}
    nodes = [
        node("Conv", "x w b", "convolved", **settings),
        node("Relu", "convolved", "positive"),
        node("Conv", "x w", "bare", **settings),
        node("Mul", "bare bare", "squared"),
        node("Conv", "x w b", "other", **settings),
        node("Add", "other squared", "summed"),
        node("Sigmoid", "summed", "share"),
    ]
    proto = model(nodes, [value("x", list(shape))], ["positive", "share"], constants)
    x = floats(*shape)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})
    found = graphc.compile(proto, threads=threads).run(x=x)
    size = float(np.abs(expected[0]).max())
    np.testing.assert_allclose(found["positive"], expected[0], rtol=1e-5, atol=2e-6 * size)
    np.testing.assert_allclose(found["share"], expected[1], rtol=1e-4, atol=2e-6)
