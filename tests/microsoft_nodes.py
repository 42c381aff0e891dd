"""Models of one node of onnxruntime's own operators, and what onnxruntime makes of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import graphc
from graphc.frontend.onnx import load
from graphc.ir import interp

DOMAIN = "com.microsoft"
OPSETS = {"": 17, DOMAIN: 1, "com.microsoft.nchwc": 1}


@dataclass
class Case:
    """One node: inputs (None for one that is left out), attributes, and the inputs that are constants, by their places."""

    operator: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    outputs: int | str = 1
    """How many, or a text with `y` for each that is wanted, `-` for one that is not, and `n` for one that has a name though."""

    domain: str = DOMAIN
    opset: int = 17
    """Of ONNX's own domain."""

    tolerance: float = 1e-5
    steps: int = 0
    """By how much whole numbers may differ: a rounding that falls to the other side."""

    counts: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What of an output is specified, as booleans that broadcast to it."""

    def model(self) -> onnx.ModelProto:
        """The model; its outputs have no types, which onnxruntime infers."""
        wanted = self.outputs if isinstance(self.outputs, str) else "y" * self.outputs
        results = ["" if letter == "-" else f"{letter}{i}" for i, letter in enumerate(wanted)]
        names = ["" if array is None else f"x{i}" for i, array in enumerate(self.inputs)]
        node = helper.make_node(self.operator, names, results, domain=self.domain, **self.attributes)
        given = [
            helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for i, array in enumerate(self.inputs)
            if array is not None and i not in self.constants
        ]
        held = [numpy_helper.from_array(np.asarray(self.inputs[i]), f"x{i}") for i in self.constants]
        outputs = [helper.make_empty_tensor_value_info(name) for name in results if name.startswith("y")]
        graph = helper.make_graph([node], "node", given, outputs, held)
        opsets = [helper.make_opsetid(domain, version) for domain, version in {**OPSETS, "": self.opset}.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self) -> dict[str, np.ndarray]:
        """The inputs by name."""
        return {f"x{i}": array for i, array in enumerate(self.inputs) if array is not None and i not in self.constants}


@functools.cache
def overflows() -> bool:
    """True if onnxruntime adds two products of unsigned and signed bytes in 16 bits, which may overflow: on x86 without VNNI.
    With signed bytes of 7 bits they do not."""
    a, b = np.full((1, 64), 255, np.uint8), np.full((64, 1), 127, np.int8)
    case = Case("MatMulInteger", [a, b], domain="")
    return bool(next(iter(run_onnxruntime(case.model(), case.feeds()).values())) != a.astype(int) @ b.astype(int))


def run_onnxruntime(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, of the model as it is."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in proto.graph.output]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def agrees(case: Case, wanted: Mapping[str, np.ndarray] | None = None, compiled: bool = False) -> None:
    """graphc's NumPy reference, or the compiled model, gives what onnxruntime does, or what is wanted."""
    proto, feeds = case.model(), case.feeds()
    found = graphc.compile(proto).run(feeds) if compiled else interp.run(load(proto), feeds)
    for name, array in (wanted or run_onnxruntime(proto, feeds)).items():
        counts = case.counts.get(name, True)
        here, there = (np.where(counts, each, np.zeros((), each.dtype)) for each in (found[name], array))
        close(here, there, case.tolerance, case.steps, f"{case.operator} {name}")


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float, steps: int, message: str) -> None:
    """Two arrays are of one type and shape, and differ by no more than the tolerance, relative to the largest element."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), message
    if wanted.dtype.kind in "iu" and wanted.size:
        assert np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max() <= steps, message
        return
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(a, b, tolerance, tolerance * np.abs(b).max(initial=1.0), err_msg=message)
