"""Convolutions with few results, or large kernels, read pixels where they lie: lines of all lengths, windows over every edge."""

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
    "many results": ((1, 5, 20, 40), (18, 5, 8, 8), {"pads": [4, 4, 3, 3]}),
    "a large kernel": ((2, 16, 19, 64), (16, 16, 17, 17), {"pads": [8, 8, 8, 8]}),
    "a larger kernel": ((1, 3, 40, 48), (7, 3, 33, 33), {"pads": [16, 16, 16, 16]}),
    "lines too short": ((1, 6, 9, 9), (3, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", LAYERS)
def test_few_results(name: str, threads: int) -> None:
    shape, kernel, settings = LAYERS[name]
    constants = {"w": floats(*kernel) / np.float32(np.prod(kernel[1:]) ** 0.5), "b": floats(kernel[0])}
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


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("pads", [[6, 6, 6, 6], [5, 7, 7, 5]])
def test_large_kernels_between_images_with_channels_last(pads: list[int], threads: int) -> None:
    """As upscalers have them (PLKSR): some of the channels of a wider image, between its convolutions."""
    constants = {
        "first": floats(64, 8, 3, 3),
        "large": floats(16, 16, 13, 13),
        "last": floats(32, 64, 1, 1),
        "b": floats(16),
    }
    nodes = [
        node("Conv", "x first", "wide", pads=[1, 1, 1, 1]),
        node("Split", "wide sizes", "some others", axis=1),
        node("Conv", "some large b", "seen", pads=pads),
        node("Gelu", "seen", "active"),
        node("Concat", "active others", "joined", axis=1),
        node("Conv", "joined last", "y"),
    ]
    shape = [1, 8, "height", "width"]
    proto = model(nodes, [value("x", shape)], ["y"], {**constants, "sizes": np.array([16, 48])})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = graphc.compile(proto, threads=threads)
    for height, width in ((20, 24), (33, 40), (9, 7)):
        x = floats(1, 8, height, width)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(compiled.run(x=x)["y"], expected, rtol=1e-5, atol=3e-6 * np.abs(expected).max())
