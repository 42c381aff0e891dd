"""Calls that C makes in a graph are those that Python makes one by one, in all that ggml knows of them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from exported_models import exported
from hypothesis import given
from random_graphs.check import Example, examples
from test_random_graphs import drawn

import graphc
from graphc.errors import GraphcError
from graphc.ggml_library import ggml
from graphc.runtime.model import Model
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.in_c import built_in_c
from graphc.targets.ggml.run import native_calls, replay
from graphc.targets.ggml.run.choose.kinds import KERNEL, LETTERS, TENSORS, kind_of, kinds
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.device.tensors import address
from graphc.targets.ggml.run.graph import BuiltGraph

pytestmark = pytest.mark.skipif(load_own() is None, reason="needs a C compiler")

BYTES = {ctypes.c_int: "i", ctypes.c_uint32: "u", ctypes.c_int64: "l", ctypes.c_size_t: "z", ctypes.c_bool: "b"}


def described(graph: BuiltGraph) -> list[tuple[Any, ...]]:
    """What ggml knows of what a graph gives and all that it reads. Of kernels' and our own functions, other contexts have other
    settings."""
    numbers: dict[int, int] = {}
    found: list[tuple[Any, ...]] = []

    def walk(tensor: Any) -> int:
        if address(tensor) in numbers:
            return numbers[address(tensor)]
        it = tensor.contents
        sources = [walk(source) if source else -1 for source in it.src]
        view = walk(it.view_src) if it.view_src else -1
        words = list(it.op_params)
        settings = words[2:3] if it.op == ggml.GGML_OP_CUSTOM else words
        found.append((it.op, it.type, tuple(it.ne), tuple(it.nb), it.flags, it.view_offs, settings, sources, view))
        number = numbers[address(tensor)] = len(numbers)
        return number

    for tensor in graph.outputs:
        walk(tensor)
    return found


def run(compiled: Model, inputs: Mapping[str, np.ndarray]) -> tuple[list[bytes], list[Any]]:
    """The outputs, and what ggml knows of the graphs, with the ways that were taken."""
    outputs = [array.tobytes() for array in compiled.run(inputs).values()]
    return outputs, [(described(graph), graph.taken, graph.products) for graph in compiled.executor.graphs]


def both(compiled: Model, again: Model, inputs: Mapping[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a model in both ways."""
    by_c = run(compiled, inputs)
    with monkeypatch.context() as patch:
        patch.setattr(replay, "_is_native", lambda call: False)
        patch.setattr(native_calls.NativeCalls, "make", None)
        one_by_one = run(again, inputs)
    assert by_c == one_by_one


@pytest.mark.slow
@drawn(60)
@given(examples())
def test_random_graphs(example: Example) -> None:
    inputs = example.feeds
    try:
        compiled, again = (graphc.compile(example.model(), threads=1) for _ in range(2))
    except GraphcError:
        return
    with pytest.MonkeyPatch.context() as patch:
        try:
            both(compiled, again, inputs, patch)
        except GraphcError:
            assert example.symbolic


@pytest.mark.parametrize("name", ["tiny_cnn", "llama_cached", "mobilenet_v2", "flux_transformer"])
def test_models(tmp_path_factory, monkeypatch, name):
    path, inputs, _ = exported(tmp_path_factory, name)
    both(graphc.compile(path, threads=1), graphc.compile(path, threads=1), inputs, monkeypatch)


@pytest.mark.parametrize("function", [each for each in CALLS if each not in COMPOSITES])
def test_the_kind_of_a_function_is_what_it_takes(function):
    takes = [BYTES.get(each, "f" if each is ctypes.c_float else "p") for each in getattr(ggml, function).argtypes]
    assert kind_of(function) == "".join(takes)
    assert kind_of(function) in kinds()


def test_the_kinds_of_kernels_and_composites():
    assert kind_of(KERNEL) == "pilllltpip"
    for name, composite in built_in_c().items():
        kind = kind_of(name)
        assert kind in kinds()
        assert kind[0] == "p"
        assert len(kind) == 1 + len(composite.parameters) + bool(composite.more)
        assert (kind[-1] == TENSORS) == bool(composite.more)
        assert set(kind) <= {"p", TENSORS, *LETTERS.values()}


def test_what_ggml_cannot_make_is_an_error(tmp_path_factory, monkeypatch):
    path, inputs, _ = exported(tmp_path_factory, "tiny_cnn")
    compiled = graphc.compile(path, threads=1)
    own = compiled.executor.own
    assert own is not None
    monkeypatch.setattr(own, "library", Failing(own.library))
    with pytest.raises(GraphcError, match="failed for"):
        compiled.run(inputs)


class Failing:
    """Our own code, but for calls after the second, which give nothing."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: 2) if name == "graphc_make_calls" else getattr(self._library, name)
