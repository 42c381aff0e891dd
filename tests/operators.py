"""What the tests of operators share: one operator, computed in every way that it has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.helper import np_dtype_to_tensor_dtype

from graphc.ir import Graph, TensorType, interp
from graphc.ir.interp import evaluate
from graphc.kernels.use import KernelUse
from graphc.ops.base import Emit, Op
from graphc.shapes import Dim
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.program.tensor import STORAGE
from graphc.targets.ggml.run.executor import Executor

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    """Normally distributed float32 numbers."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def onnx_model(name: str, arrays: Sequence[np.ndarray], opset: int = 20, **attributes: object) -> onnx.ModelProto:
    """A model of one node."""
    inputs = [
        helper.make_tensor_value_info(f"x{i}", np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for i, array in enumerate(arrays)
    ]
    node = helper.make_node(name, [value.name for value in inputs], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", np_dtype_to_tensor_dtype(arrays[0].dtype), None)
    graph = helper.make_graph([node], "one", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def by_onnxruntime(name: str, *arrays: np.ndarray, opset: int = 20, **attributes: object) -> np.ndarray:
    """What onnxruntime computes for one ONNX node."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = onnx_model(name, arrays, opset, **attributes).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {f"x{i}": array for i, array in enumerate(arrays)})[0]


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float = 2e-6) -> None:
    """Same dtype and shape, and equal to within `tolerance` of the largest element."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-6) if expected.size else 1.0
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * float(scale))


def by_eval(op: Op, *arrays: np.ndarray) -> np.ndarray:
    """What `eval` gives, of the type that `infer` says."""
    (type,) = op.infer(*(TensorType(array.dtype, array.shape) for array in arrays))
    (result,) = op.eval(*arrays)
    assert TensorType(result.dtype, result.shape) == type
    return result


def defined(op: Op, *arrays: np.ndarray, deep: bool = True) -> np.ndarray | None:
    """What the definition gives (with `deep`, down to operators without one); None if there is none."""
    graph = Graph()
    values = [graph.input(f"x{i}", TensorType(array.dtype, array.shape)) for i, array in enumerate(arrays)]
    graph.add(op, values)
    graph.output(graph.nodes[0].output, "y")
    if not expand(graph):
        return None
    while deep and expand(graph):
        pass
    return interp.run(graph, {f"x{i}": array for i, array in enumerate(arrays)})["y"]


def expand(graph: Graph) -> bool:
    """Replace every node that has a definition; False if none has."""
    nodes = []
    replaced = {}
    for node in graph.nodes:
        emit = Emit(graph)
        node.inputs = [replaced.get(value, value) for value in node.inputs]
        results = node.op.define(emit, *node.inputs)
        if results is None:
            nodes.append(node)
            continue
        assert [value.type for value in results] == [value.type for value in node.outputs]
        nodes += emit.nodes
        replaced.update(zip(node.outputs, results, strict=True))
    graph.nodes = nodes
    graph.outputs = [replaced.get(value, value) for value in graph.outputs]
    return bool(replaced)


def on_ggml(
    op: Op,
    *arrays: np.ndarray,
    weights: Sequence[int] = (),
    sizes: dict[int, Sequence[Dim]] | None = None,
    binding: dict[str, int] | None = None,
) -> tuple[np.ndarray, list[str]]:
    """What the lowered operator computes, and the ggml functions that it calls (without those that only look at memory).

    The inputs numbered in `weights` are constants; `sizes` are symbolic shapes of others, which `binding` makes those of
    the arrays.
    """
    graph = Graph()
    values = []
    for i, array in enumerate(arrays):
        shape = tuple((sizes or {}).get(i, array.shape))
        values.append(graph.constant(array) if i in weights else graph.input(f"x{i}", TensorType(array.dtype, shape)))
    node = graph.add(op, values)
    graph.output(node.output, "y")
    program = lower(graph)
    held = [evaluate(weight.value) for weight in program.weights if weight.value is not None]
    executor = Executor(program, held, threads=2)
    (result,) = executor.run({f"x{i}": array for i, array in enumerate(arrays)}, binding or {})
    executor.close()
    return result, [call.function for call in program.calls if call.function not in VIEWS]


def by_kernel(op: Op, *arrays: np.ndarray) -> np.ndarray:
    """What the generated kernel of an operator's loop form computes."""
    program = Program("one")
    tensors = [
        program.add_input(f"x{i}", array.dtype, array.shape, STORAGE[array.dtype]) for i, array in enumerate(arrays)
    ]
    types = [TensorType(array.dtype, array.shape) for array in arrays]
    (result,) = op.infer(*types)
    use = KernelUse(op, tuple((type.dtype, type.shape) for type in types), result.dtype, result.shape)
    tensor = program.call_kernel(use, tensors)
    program.outputs.append(Output("y", result.dtype, result.shape, tensor))
    executor = Executor(program, [], threads=2)
    (array,) = executor.run({f"x{i}": array for i, array in enumerate(arrays)}, {})
    executor.close()
    return array
