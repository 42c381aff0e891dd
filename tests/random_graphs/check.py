"""Compiles random graphs, and compares their results with what they must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from hypothesis import strategies as st

from graphc import onnx_backend
from graphc.errors import GraphcError
from graphc.targets.ggml.program.composites import COMPOSITES, PREFIX

from .drawing import F32, Drawing, Rejected, Tensor, difference, info, model_of, reads
from .nodes import NODES

MOST_NODES = 8


@dataclass(frozen=True, eq=False)
class Example:
    """A drawn graph: its first nodes, and which of their results it gives."""

    drawing: Drawing
    nodes: list[onnx.NodeProto]
    expected: list[Tensor]
    symbolic: bool
    ways: Mapping[str, str]

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs that are read."""
        used = reads(self.nodes)
        return {name: array for name, array in self.drawing.feeds.items() if name in used}

    def model(self) -> onnx.ModelProto:
        """The graph as a model."""
        used = reads(self.nodes)
        constants = {name: array for name, array in self.drawing.constants.items() if name in used}
        outputs = [info(t.name, t.array) for t in self.expected]
        for output in outputs if self.symbolic else ():
            output.type.tensor_type.ClearField("shape")
        return model_of(self.nodes, outputs, self.feeds, constants, self.symbolic)

    def culprit(self) -> str:
        """The first operator whose results are not what they must be."""
        for count, node in enumerate(self.nodes, 1):
            results = [t for t in self.drawing.tensors if t.name in node.output]
            try:
                check(replace(self, nodes=self.nodes[:count], expected=results))
            except Exception:  # of any kind
                return str(node.op_type)
        return "the whole graph"

    def __repr__(self) -> str:
        return f"by these ways: {self.ways}\n{onnx.printer.to_text(self.model())}\n{self.feeds}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def examples(draw: st.DrawFn, most: int = MOST_NODES, among: Sequence[str] = tuple(NODES)) -> Example:
    """A graph of some nodes; outputs are all values that no node reads, and some that one does. Where there are several ways
    of computing something, one is drawn."""
    d = Drawing(draw)
    for _ in range(d.number(1, most)):
        try:
            NODES[d.pick(among)](d)
        except Rejected:
            continue
    if not d.nodes:
        d.add("Identity", d.leaf(d.array(F32, ())), exact=True)
    made = {name for node in d.nodes for name in node.output}
    outputs = [t for t in d.tensors if t.name in made and (t.name not in d.read or d.number(0, 3) == 0)]
    ways = {name.removeprefix(PREFIX): d.pick(("", *each.ways)) for name, each in COMPOSITES.items() if each.ways}
    return Example(d, d.nodes, outputs, d.flag(), ways)


def check(example: Example) -> bool:
    """True if graphc runs the graph; with symbolic sizes it may refuse it, for what does not work for all of them.

    Raises AssertionError if a result is not right, and what graphc raises for a graph that it must take.
    """
    try:
        choices = "".join(f"{kind} * = {way}\n" for kind, way in example.ways.items() if way).encode()
        with patch("graphc.targets.ggml.run.executor.choices_for", lambda *_: choices):
            results = onnx_backend.prepare(example.model()).run(list(example.feeds.values()))
    except GraphcError:
        if example.symbolic:
            return False
        raise
    for result, tensor in zip(results, example.expected, strict=True):
        problem = difference(result, tensor.array, tensor.tolerance())
        assert not problem, f"{tensor.name}: {problem}"
    return True
