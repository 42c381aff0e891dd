"""Random graphs, and what they have found: a test for each."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import expected, model, node, single, value
from hypothesis import HealthCheck, Phase, given, settings
from random_graphs.check import Example, check, examples
from random_graphs.dressed import LAYERS

import graphc
from graphc import onnx_backend
from graphc.errors import InputError


def drawn(count: int) -> settings:
    """So many examples, always the same."""
    phases = [Phase.generate, Phase.shrink]
    health = list(HealthCheck)
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=phases, suppress_health_check=health
    )


@pytest.mark.slow
@drawn(100)
@given(examples())
def test_random_graphs(example: Example) -> None:
    check(example)


@pytest.mark.slow
@drawn(50)
@given(examples(2, tuple(LAYERS)))
def test_random_layers_with_what_is_done_to_their_results(example: Example) -> None:
    check(example)


@pytest.mark.parametrize(
    ("operator", "shape", "fits", "message"),
    [
        ("SpaceToDepth", ["n", 3, "h", "w"], (2, 3, 4, 6), "must be a multiple of 2"),
        ("DepthToSpace", ["n", "c", 3, "w"], (2, 8, 3, 5), "must be a multiple of 4"),
    ],
)
def test_blocks_of_symbolic_sizes(operator: str, shape: list, fits: tuple[int, ...], message: str) -> None:
    compiled = graphc.compile(model([node(operator, "x", "y", blocksize=2)], [value("x", shape)], ["y"]))
    x = np.random.default_rng(0).standard_normal(fits).astype(np.float32)
    proto, feeds = single(operator, [x], blocksize=2)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], expected(proto, feeds)["y0"])
    with pytest.raises(InputError, match=message):
        compiled.run({"x": np.zeros(tuple(size - (size in (4, 8)) for size in fits), np.float32)})


def test_indices_of_fewer_rows_than_a_symbolic_size() -> None:
    nodes = [node("GatherElements", "x i", "y", axis=1)]
    compiled = graphc.compile(model(nodes, [value("x", ["n", "m"])], ["y"], {"i": np.array([[1], [0]])}))
    x = np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_array_equal(compiled.run({"x": x})["y"], [[2], [3]])
    with pytest.raises(InputError, match="must be at least 2"):
        compiled.run({"x": x[:1]})


def test_tuples_of_a_length_that_is_known_when_the_model_runs() -> None:
    inputs = [value("x", [3, 4]), value("i", ["k"], np.int64)]
    prepared = onnx_backend.prepare(model([node("GatherND", "x i", "y")], inputs, [value("y", None)]))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for index in ([-1, 2], [1]):
        np.testing.assert_array_equal(prepared.run([x, np.array(index)])[0], x[tuple(index)])


def test_the_logarithm_of_a_sum_of_exponentials_of_infinity() -> None:
    x = np.array([[np.inf, 1], [-np.inf, -np.inf], [np.inf, -np.inf], [np.nan, np.inf], [800, 801]], np.float32)
    proto, feeds = single("ReduceLogSumExp", [x], {1: np.array([1])})
    with np.errstate(all="ignore"):
        right = np.logaddexp(x[:, :1], x[:, 1:])
    np.testing.assert_allclose(onnx_backend.prepare(proto).run(list(feeds.values()))[0], right, rtol=1e-6)


def test_a_slice_backward_from_before_the_first_element() -> None:
    far = np.array([-(1 << 40)])
    constants = {"start": far, "end": far, "axis": np.array([0]), "step": np.array([-1])}
    proto = model([node("Slice", "x start end axis step", "y")], [value("x", ["n"])], [value("y", None)], constants)
    for count in (1, 3):
        x = np.arange(count, dtype=np.float32) + 5
        np.testing.assert_array_equal(graphc.compile(proto).run({"x": x})["y"], [5])
