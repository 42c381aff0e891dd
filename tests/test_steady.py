"""Inputs that stay the same from run to run: what is computed of them alone is kept, and nobody sees it but by the time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphc
from graphc.errors import GraphcError, InputError
from graphc.targets.ggml.program.sections import Section
from graphc.targets.ggml.run import executor
from graphc.targets.ggml.run.context import Context
from graphc.targets.ggml.run.graph import BuiltGraph
from graphc.targets.ggml.run.steady import KEPT_VALUES

WIDTH = 32
STEADY = ["words", "size"]


def weight(name: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *name.encode()])
    return (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)


def attending(seed: int = 0) -> onnx.ModelProto:
    """Rows that attend to words, a number for all of them, and an output that depends on the words alone."""
    nodes = [
        helper.make_node("MatMul", ["x", "q"], ["queries"]),
        helper.make_node("Relu", ["words"], ["positive"]),
        helper.make_node("MatMul", ["positive", "k"], ["keys"]),
        helper.make_node("MatMul", ["words", "v"], ["values"]),
        helper.make_node("Transpose", ["keys"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["queries", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "values"], ["seen"]),
        helper.make_node("MatMul", ["seen", "o"], ["out"]),
        helper.make_node("Mul", ["out", "size"], ["y"]),
        helper.make_node("ReduceMean", ["keys", "axis"], ["mean"], keepdims=0),
    ]
    weights = [numpy_helper.from_array(weight(name, seed), name) for name in "qkvo"]
    weights.append(numpy_helper.from_array(np.array([0]), "axis"))
    sizes = {"x": ["rows", WIDTH], "words": ["words", WIDTH], "size": [1], "y": ["rows", WIDTH], "mean": [WIDTH]}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sizes.items()}
    graph = helper.make_graph(
        nodes, "attending", [infos[each] for each in ("x", "words", "size")], [infos["y"], infos["mean"]], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def given(rows: int, words: int, seed: int) -> dict[str, np.ndarray]:
    """Rows of this seed; the same words for the same number of them."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
    said = np.random.default_rng(words).standard_normal((words, WIDTH)).astype(np.float32)
    return {"x": x, "words": said, "size": np.full(1, 1 + words, np.float32)}


@pytest.fixture
def computed(monkeypatch) -> list[bool]:
    """Of each graph that is computed, whether it is of steady inputs alone."""
    found: list[bool] = []
    run = BuiltGraph.run

    def counted(graph: BuiltGraph, *args):
        found.append(graph.section.steady)
        return run(graph, *args)

    monkeypatch.setattr(BuiltGraph, "run", counted)
    return found


@pytest.fixture(params=["cpu", "a device", "a device of little memory"])
def model(request, monkeypatch) -> graphc.Model:
    """The model on the CPU, or before it a second backend of the CPU that stands for a device, to which weights are streamed."""
    open_one = executor.open_backends
    if request.param != "cpu":
        monkeypatch.setattr(executor, "open_backends", lambda *args: open_one(*args) + open_one(*args))
    memory = 20 << 10 if request.param == "a device of little memory" else None
    return graphc.compile(attending(), steady=STEADY, threads=2, memory=memory)


@pytest.fixture
def plain() -> graphc.Model:
    """The same, which keeps nothing."""
    return graphc.compile(attending(), threads=2)


def check(model: graphc.Model, plain: graphc.Model, feed: dict[str, np.ndarray]) -> None:
    expected = plain.run(feed)
    for name, found in model.run(feed).items():
        np.testing.assert_array_equal(found, expected[name])


def test_the_words_are_read_once(model, plain, computed):
    for seed in range(4):
        check(model, plain, given(5, 7, seed))
    assert [each for each in computed if each] == [True]
    assert len(computed) == 4 + 1 + 4  # those of the model that keeps nothing are among them


def test_what_depends_on_the_rest_is_computed_each_time(model):
    steady, rest = (each for each in model.executor.sections(model.executor.program) if isinstance(each, Section))
    assert steady.steady
    assert [model.program.inputs[index].name for index in steady.inputs] == ["words"]
    assert len(rest.kept) == 2, "keys and values"
    assert steady.outputs == (1,)


def test_other_words_and_sizes(model, plain, computed):
    asked = [(5, 7), (5, 8), (5, 7), (9, 7), (1, 1), (9, 7), (5, 8), (1, 7)]
    for seed, (rows, words) in enumerate(asked):
        check(model, plain, given(rows, words, seed))
    assert sum(computed) == 3, "of 7, 8 and 1 words"


def test_the_last_few_are_kept(model, plain, computed):
    for words in (*range(1, KEPT_VALUES + 2), *range(2, KEPT_VALUES + 2)):
        check(model, plain, given(3, words, 0))
    assert sum(computed) == KEPT_VALUES + 1
    check(model, plain, given(3, 1, 0))
    assert sum(computed) == KEPT_VALUES + 2


def test_numbers_that_change_in_place_are_seen(model, plain):
    feed = given(5, 7, 0)
    check(model, plain, feed)
    feed["words"][3, 4] += 1
    check(model, plain, feed)
    feed["words"][3, 4] = np.nan
    check(model, plain, feed)


def test_who_gets_an_output_may_write_into_it(model, plain):
    feed = given(5, 7, 0)
    model.run(feed)["mean"][:] = 9
    check(model, plain, feed)
    target = np.empty(WIDTH, np.float32)
    np.testing.assert_array_equal(model.run_into({"mean": target}, feed)["mean"], plain.run(feed)["mean"])
    target[:] = 9
    check(model, plain, feed)


def test_other_weights(model, computed):
    feed = given(5, 7, 0)
    model.run(feed)
    model.load_weights({name: weight(name, 1) for name in "qkvo"})
    check(model, graphc.compile(attending(1), threads=2), feed)
    assert sum(computed) == 2


def test_memory_that_was_given_back(model, plain, computed):
    for give_back in (model.release, model.page_out, lambda: None):
        check(model, plain, given(5, 7, 0))
        give_back()
    assert 1 <= sum(computed) <= 2


def test_needed_bytes_are_counted_without_a_run(model):
    sizes = {"x": (5, WIDTH), "words": (900, WIDTH), "size": (1,)}
    assert model.bytes_for(sizes) > 2 * 900 * WIDTH * 4


def test_many_threads(model, plain):
    feeds = [given(1 + seed % 3, 1 + seed % 5, seed) for seed in range(40)]
    expected = [plain.run(feed)["y"] for feed in feeds]
    with ThreadPoolExecutor(4) as threads:
        for found, right in zip(threads.map(lambda feed: model.run(feed)["y"], feeds), expected, strict=True):
            np.testing.assert_array_equal(found, right)


def test_one_graph_has_memory_of_its_own(model):
    for rows in (5, 6, 7):
        model.run(given(rows, 7, 0))
        with model.executor.context() as context:
            assert sum(graph.kept.nbytes > 0 for graph in context.graphs.values()) == 1


def test_a_run_that_is_stopped_keeps_nothing_wrong(plain):
    model = graphc.compile(attending(), steady=STEADY, threads=1)
    feed = given(5, 7, 0)
    with pytest.raises(GraphcError, match="stopped"):
        model.run_unless(lambda: True, {}, feed)
    check(model, plain, feed)


def test_all_inputs_may_be_steady(plain, computed):
    model = graphc.compile(attending(), steady=["x", *STEADY], threads=1)
    for _ in range(3):
        check(model, plain, given(5, 7, 0))
    assert sum(computed) == 1


def test_nothing_worth_keeping(plain):
    model = graphc.compile(attending(), steady=["size"], threads=1)
    (section,) = model.executor.sections(model.executor.program)
    assert not section.steady
    check(model, plain, given(5, 7, 0))


def test_an_input_that_there_is_not():
    with pytest.raises(InputError, match="no input tokens; it has x, words, size"):
        graphc.compile(attending(), steady=["words", "tokens"])


def test_loading(tmp_path, plain, computed):
    graphc.compile(attending(), tmp_path / "model.gguf").close()
    model = graphc.load(tmp_path / "model.gguf", steady=STEADY, threads=2)
    for one, other in pairwise(range(4)):
        check(model, plain, given(5, 7, one))
        check(model, plain, given(5, 7, other))
    assert sum(computed) == 1
    assert isinstance(model.executor.contexts.idle[0], Context)
