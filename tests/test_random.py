"""Random numbers: their distributions, and that everything that computes them gives the same ones."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np
import onnx
import pytest
from frontend_models import model, node, value
from loops import compute, run
from onnx import ModelProto, TensorProto, helper

import graphc
from graphc.errors import GraphcError
from graphc.frontend.onnx import load
from graphc.ir import interp
from graphc.ir.interp import bound
from graphc.ir.types import BF16, F16, F32, F64
from graphc.kernels.use import KernelUse
from graphc.ops.random import Random
from graphc.shapes import symbol
from graphc.targets.ggml.run.kernels import load_kernels

COUNT = 200_000
BINS = 100
CRITICAL = 148.2
"""What chi-square of 99 degrees of freedom exceeds once in a thousand draws; the streams are fixed, so it never varies."""


def numbers(kind: str, stream: int = 7, dtype: np.dtype = F64) -> np.ndarray:
    return Random(kind, stream, 0.0, 1.0, dtype, (COUNT,)).eval()[0]


def chi_square(fractions: np.ndarray) -> float:
    counts = np.bincount((fractions * BINS).astype(int), minlength=BINS)
    return float(np.sum((counts - COUNT / BINS) ** 2) / (COUNT / BINS))


def one(operator: str, x: list[int | str] | None = None, **attributes: object) -> ModelProto:
    """A model of one node, which reads an input `x` if that has a shape."""
    inputs = [] if x is None else [value("x", x)]
    return model([node(operator, "x" if inputs else "", "y", **attributes)], inputs, ["y"], opset=22)


@pytest.mark.parametrize("stream", [0, 7, 2**62])
def test_uniform_numbers_are_spread_evenly(stream: int) -> None:
    u = numbers("uniform", stream)
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 4 * np.sqrt(1 / 12 / COUNT)
    assert abs(u.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / COUNT)
    assert chi_square(u) < CRITICAL


@pytest.mark.parametrize("lag", [1, 2, 64])
def test_neighbours_are_independent(lag: int) -> None:
    u = numbers("uniform") - 0.5
    assert abs(np.mean(u[:-lag] * u[lag:]) * 12) < 4 / np.sqrt(COUNT)


def test_normal_numbers_have_the_normal_distribution() -> None:
    z = numbers("normal")
    edges = [NormalDist().inv_cdf(i / BINS) for i in range(1, BINS)]
    assert abs(z.mean()) < 4 / np.sqrt(COUNT)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / COUNT)
    assert chi_square((np.searchsorted(edges, z) + 0.5) / BINS) < CRITICAL


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_the_kernel_gives_the_numbers_of_numpy(kind: str, dtype: np.dtype) -> None:
    n = symbol("n")
    op = Random(kind, 99, 2.0, 3.0, dtype, (n, 3, n))
    (kernel,) = load_kernels([KernelUse(op, (), dtype, op.shape)])
    actual = run(kernel, KernelUse(op, (), dtype, op.shape), [], {"n": 50}, threads=3)
    (expected,) = bound(op, {"n": 50}).eval()
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual.astype(F64), expected.astype(F64), rtol=0 if kind == "uniform" else 1e-14)


def test_a_model_gives_the_same_numbers_in_every_run_and_from_its_engine(tmp_path: Path) -> None:
    proto = one("RandomNormalLike", ["n", 1000], mean=2.0, scale=3.0)
    feeds = {"x": np.zeros((100, 1000), np.float32)}
    compiled = graphc.compile(proto)
    first = compiled.run(feeds)["y"]
    assert abs(first.mean() - 2) < 0.04
    assert abs(first.std() - 3) < 0.03
    np.testing.assert_array_equal(compiled.run(feeds)["y"], first)
    compiled.save(tmp_path / "model.gguf")
    np.testing.assert_array_equal(graphc.load(tmp_path / "model.gguf").run(feeds)["y"], first)


def test_what_a_shape_makes_constant_is_what_the_kernel_computes() -> None:
    feeds = {"x": np.zeros((8, 9), np.float32)}
    fixed = graphc.compile(one("RandomUniform", shape=[8, 9], seed=4.0, low=-1.0)).run({})["y"]
    np.testing.assert_array_equal(
        graphc.compile(one("RandomUniformLike", ["n", 9], seed=4.0, low=-1.0)).run(feeds)["y"], fixed
    )


def test_nodes_differ_by_seed_by_name_and_by_step() -> None:
    body = helper.make_graph(
        [node("RandomNormal", "", "r", shape=[4]), node("Identity", "c", "d")],
        "body",
        [value("i", [], np.int64), value("c", [], np.bool_)],
        [value("d", [], np.bool_), value("r", [4])],
    )
    nodes = [
        node("RandomNormal", "", "a", shape=[4], seed=1.0),
        node("RandomNormal", "", "b", shape=[4], seed=2.0),
        node("RandomNormal", "", "e", shape=[4]),
        node("Loop", "count going", "steps", body=body),
    ]
    proto = model(nodes, [], ["a", "b", "e", "steps"], {"count": np.array(3), "going": np.array(True)}, opset=22)
    results = graphc.compile(proto).run({})
    rows = np.stack([*(results[name] for name in "abe"), *results["steps"]])
    assert len(np.unique(rows)) == rows.size


LOOPS = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
drawing (int64 outer, int64 inner, bool extra) => (float[a, b, 4] first, float[c, 3] second, float[d, 3] third) {
    yes = Constant<value = bool {1}>()
    first, second, third = Loop(outer, yes) <body = body (int64 i, bool go)
            => (bool on, float[b, 4] rows, float[3] u, float[3] v) {
        on = Identity(go)
        rows = Loop(inner, go) <body = inside (int64 j, bool going) => (bool again, float[4] row) {
            again = Identity(going)
            row = RandomNormal<shape = [4]>()
        }>
        u = RandomUniform<shape = [3], seed = 7.0>()
        v = If(extra) <
            then_branch = then () => (float[3] w) { w = RandomUniform<shape = [3], seed = 7.0>() },
            else_branch = other () => (float[3] z) { z = RandomNormal<shape = [3]>() }>
    }>
}""")
"""Loops in a loop, and a branch in it, that draw."""


def test_each_round_of_a_loop_draws_other_numbers(tmp_path: Path) -> None:
    compiled = graphc.compile(LOOPS, tmp_path / "model.gguf")
    engine = graphc.load(tmp_path / "model.gguf")
    for extra in (False, True):
        feeds = {"outer": np.array(3), "inner": np.array(5), "extra": np.array(extra)}
        found = compiled.run(feeds)
        every = np.concatenate([array.ravel() for array in found.values()])
        assert every.size == 3 * (5 * 4 + 3 + 3)
        assert len(np.unique(every)) == every.size
        for way in (compiled.run(feeds), engine.run(feeds), interp.run(load(LOOPS), feeds)):
            for name, array in way.items():
                np.testing.assert_allclose(array, found[name], rtol=1e-6)


def test_an_engine_holds_every_stream(tmp_path: Path) -> None:
    names = [f"y{seed}" for seed in range(16)]
    nodes = [node("RandomUniformLike", "x", name, seed=float(seed)) for seed, name in enumerate(names)]
    compiled = graphc.compile(model(nodes, [value("x", ["n"])], names, opset=22), tmp_path / "model.gguf")
    feeds = {"x": np.zeros(3, np.float32)}
    found = graphc.load(tmp_path / "model.gguf").run(feeds)
    for name, array in compiled.run(feeds).items():
        np.testing.assert_array_equal(array, found[name])


def test_rounds_are_spread_as_evenly_as_places() -> None:
    u = np.stack([Random("uniform", 7, 0.0, 1.0, F64, (20,)).eval(np.array(round))[0] for round in range(COUNT // 20)])
    assert chi_square(u.ravel()) < CRITICAL
    assert chi_square(u.T.ravel()) < CRITICAL
    between = (u[:-1] - 0.5) * (u[1:] - 0.5)
    assert abs(between.mean() * 12) < 4 / np.sqrt(COUNT)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_the_kernel_of_a_round_gives_the_numbers_of_numpy(kind: str) -> None:
    rounds = [np.array(3), np.array([12345678901])]
    op = Random(kind, 2**62, 0.0, 1.0, F64, (100,))
    actual, (expected,) = compute(op, *rounds, threads=2), op.eval(*rounds)
    np.testing.assert_allclose(actual, expected, rtol=0 if kind == "uniform" else 1e-14)


def test_bernoulli_hits_as_often_as_it_should() -> None:
    proto = one("Bernoulli", ["n"], dtype=TensorProto.BOOL, seed=3.0)
    run_with = graphc.compile(proto).run
    for p in (0.0, 0.3, 1.0):
        hits = run_with({"x": np.full(COUNT, p, np.float32)})["y"]
        assert hits.dtype == np.bool_
        assert abs(hits.mean() - p) <= 4 * np.sqrt(p * (1 - p) / COUNT)


def test_multinomial_draws_by_weight() -> None:
    weights = np.array([[0.1, 0.2, 0.7, 0.0], [3.0, 2.0, 1.0, 2.0]])
    proto = one("Multinomial", ["batch", 4], sample_size=COUNT, dtype=TensorProto.INT64)
    with np.errstate(divide="ignore"):
        chosen = graphc.compile(proto).run({"x": np.log(weights).astype(np.float32)})["y"]
    assert chosen.dtype == np.int64
    assert chosen.shape == (2, COUNT)
    found = np.stack([np.bincount(row, minlength=4) / COUNT for row in chosen])
    assert found[0, 3] == 0
    np.testing.assert_allclose(found, weights / weights.sum(1, keepdims=True), atol=4 * np.sqrt(0.25 / COUNT))


def test_dropout_in_training_keeps_the_mean() -> None:
    nodes = [node("Dropout", "x ratio training", "y mask")]
    constants = {"ratio": np.float32(0.25), "training": np.array(True)}
    proto = model(nodes, [value("x", ["n"])], ["y", "mask"], constants, opset=22)
    results = graphc.compile(proto).run({"x": np.ones(COUNT, np.float32)})
    np.testing.assert_array_equal(results["y"], results["mask"] / np.float32(0.75))
    assert abs(results["mask"].mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / COUNT)


def test_a_shape_below_zero_is_refused() -> None:
    with pytest.raises(GraphcError, match="shape"):
        graphc.compile(one("RandomNormal", shape=[-2]))
