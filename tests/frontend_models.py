"""Small ONNX models for the tests of the frontend, and what other runtimes make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from graphc.frontend.onnx import load
from graphc.ir import Graph, interp

NEWEST = onnx.defs.onnx_opset_version()
ORT_NEWEST = 23
"""The newest opset that onnxruntime is asked about."""

Shape = Sequence[int | str | None]


def value(name: str, shape: Shape | None, dtype: type | np.dtype = np.float32) -> onnx.ValueInfoProto:
    """A declared value."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str | onnx.ValueInfoProto],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    **more: object,
) -> onnx.ModelProto:
    """A model; outputs that are only named have the types that onnx infers, if any."""
    results = [onnx.ValueInfoProto(name=each) if isinstance(each, str) else each for each in outputs]
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "model", inputs, results, weights)
    opsets = [helper.make_opsetid("", opset)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=more.pop("ir_version", 10), **more)  # type: ignore[arg-type]
    inferred = onnx.shape_inference.infer_shapes(proto)
    for result, found in zip(proto.graph.output, inferred.graph.output, strict=True):
        result.CopyFrom(found)
    return proto


def single(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    constants: Mapping[int, np.ndarray] | None = None,
    opset: int = 21,
    outputs: int = 1,
    **attributes: object,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and its inputs; `constants` are inputs of the node, by position, that are initializers."""
    constants = dict(constants or {})
    count = max([len(inputs), *(index + 1 for index in constants)])
    given = list(inputs) + [None] * (count - len(inputs))
    names = ["" if array is None and i not in constants else f"x{i}" for i, array in enumerate(given)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, names, results, **attributes)
    feeds = {f"x{i}": array for i, array in enumerate(given) if array is not None and i not in constants}
    declared = [value(name, array.shape, array.dtype) for name, array in feeds.items()]
    weights = {f"x{i}": array for i, array in constants.items()}
    return model([node], declared, results, weights, opset, ir_version=8), feeds


def expected(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs that onnxruntime gives; for opsets that it does not know, or kernels that it lacks, onnx's reference."""
    names = [output.name for output in proto.graph.output]
    opset = max(each.version for each in proto.opset_import)
    if opset <= ORT_NEWEST:
        inferred = onnx.shape_inference.infer_shapes(proto)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                inferred.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return dict(zip(names, session.run(names, dict(feeds)), strict=True))
        except (
            onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
            onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
        ):
            pass
    return dict(zip(names, onnx.reference.ReferenceEvaluator(proto).run(names, dict(feeds)), strict=True))


def agrees(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], tolerance: float = 1e-5) -> Graph:
    """Import the model, run it in NumPy, and compare with `expected`; the graph."""
    graph = load(proto)
    results = interp.run(graph, feeds)
    for name, wanted in expected(proto, feeds).items():
        found = results[name]
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance, err_msg=name
        )
    return graph


WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


def dense(weight: TensorProto | None = None) -> onnx.ModelProto:
    """x [2, 3] times a weight [3, 4]."""
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="dense")], [value("x", [2, 3])], ["y"], {"w": WEIGHT}
    )
    if weight is not None:
        proto.graph.initializer[0].CopyFrom(weight)
    return proto


def stored(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def node(operator: str, inputs: str, outputs: str, name: str = "", **attributes: object) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), name, **attributes)


def operators(graph: Graph) -> list[str]:
    return [each.op.name for each in graph.nodes]
