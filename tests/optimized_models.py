"""Models as onnxruntime's own optimizer writes them, and small ones for it to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

LEVELS = {
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def optimized(proto: onnx.ModelProto, level: str, folder: Path) -> onnx.ModelProto:
    """What the optimizer writes at a level."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(folder / f"{level}.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def used(proto: onnx.ModelProto) -> set[str]:
    """The operators of onnxruntime's own domains that a model has, with the last part of the domain."""
    nodes = [node for node in proto.graph.node if node.domain.startswith("com.microsoft")]
    return {f"{node.domain.rpartition('.')[2]}.{node.op_type}" for node in nodes}


class Drawing:
    """Writes a model node after node, with drawn weights."""

    def __init__(self, seed: int, opset: int = 17) -> None:
        self.random, self.opset = np.random.default_rng(seed), opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        """A drawn initializer."""
        drawn = self.random.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        return self.constant(drawn.astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        """An initializer."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def __call__(self, operator: str, *inputs: str, **attributes: object) -> str:
        """A node of one result."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def conv(self, x: str, channels: int, out: int, kernel: int = 3, group: int = 1, **attributes: object) -> str:
        """A convolution with a bias that keeps the image's size."""
        pads = [kernel // 2] * 4
        w, bias = self.weight(out, channels // group, kernel, kernel), self.weight(out)
        return self("Conv", x, w, bias, pads=pads, group=group, **attributes)

    def norm(self, x: str, channels: int) -> str:
        """A batch normalization."""
        variance = self.constant(np.abs(self.random.standard_normal(channels)).astype(np.float32) + 0.5)
        return self("BatchNormalization", x, *(self.weight(channels) for _ in range(3)), variance)

    def model(self, result: str, shape: tuple[int | str, ...]) -> onnx.ModelProto:
        """From the input x to a result."""
        given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
        made = helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "drawn", [given], [made], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def residual_network(seed: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A stem, a block with a sum, a pool, and a product, as of ResNet."""
    d = Drawing(seed)
    y = d("Relu", d.norm(d.conv("x", 3, 32, 7, strides=[2, 2]), 32))
    y = d("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    z = d("Relu", d.conv(y, 32, 32))
    y = d("Relu", d("Add", d.conv(z, 32, 32), y))
    y = d("Flatten", d("GlobalAveragePool", y))
    return d.model(d("Gemm", y, d.weight(32, 5), d.weight(5)), (2, 3, 21, 18)), (2, 3, 21, 18)


def mobile_network(seed: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Depthwise convolutions, channels that fill no block, and a gate for each channel, as of MobileNet."""
    d = Drawing(seed)
    y = d("Clip", d.conv("x", 3, 16, strides=[2, 2]), d.constant(np.float32(0)), d.constant(np.float32(6)))
    y = d("HardSigmoid", d.conv(d.conv(y, 16, 72, 1), 72, 72, 3, 72), alpha=0.2, beta=0.5)
    gate = d("Sigmoid", d.conv(d("Relu", d.conv(d("GlobalAveragePool", y), 72, 20, 1)), 20, 72, 1))
    y = d.conv(d("Mul", y, gate), 72, 24, 1)
    y = d("LeakyRelu", d.conv(y, 24, 20), alpha=0.1)
    return d.model(d("AveragePool", y, kernel_shape=[2, 2], pads=[1, 0, 0, 1]), (1, 3, 14, 17)), (1, 3, 14, 17)


def pyramid(seed: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Images enlarged and laid side by side, grouped convolutions, 12 channels that a convolution reads directly."""
    d = Drawing(seed, 13)
    y = d("Relu", d.conv("x", 12, 32))
    small = d("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2])
    scales = d.constant(np.array([1, 1, 2, 2], np.float32))
    ways = ({"mode": "nearest", "nearest_mode": "floor"}, {"mode": "linear"})
    large = [d("Resize", small, "", scales, coordinate_transformation_mode="asymmetric", **way) for way in ways]
    y = d("Tanh", d.conv(d("Concat", y, *large, axis=1), 96, 64, 3, 2))
    y = d("GlobalMaxPool", d("Sigmoid", d.conv(y, 64, 48, 1)))
    return d.model(d("Transpose", y, perm=[0, 2, 3, 1]), (1, 12, 8, 6)), (1, 12, 8, 6)


def channels_last(seed: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Transposes around convolutions, as converters from TensorFlow write them."""
    d = Drawing(seed)
    y = d("Relu", d.conv(d("Transpose", "x", perm=[0, 3, 1, 2]), 32, 36))
    y = d("Transpose", d("MaxPool", y, kernel_shape=[2, 2]), perm=[0, 2, 3, 1])
    return d.model(d("Mul", y, d.weight(36)), (1, 5, 6, 32)), (1, 5, 6, 32)


def lines(seed: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Convolutions over one axis, and activated products."""
    d = Drawing(seed)
    y = d("Relu", d("Conv", "x", d.weight(8, 4, 3), d.weight(8)))
    y = d("Tanh", d("Gemm", d("Flatten", y), d.weight(56, 6), d.weight(6), alpha=0.5))
    y = d("MatMul", d("Transpose", y, perm=[1, 0]), d("Mul", y, d.constant(np.float32(0.3))))
    return d.model(y, (3, 4, 9)), (3, 4, 9)


NETWORKS: dict[str, Callable[[int], tuple[onnx.ModelProto, tuple[int, ...]]]] = {
    "residual": residual_network,
    "mobile": mobile_network,
    "pyramid": pyramid,
    "channels last": channels_last,
    "lines": lines,
}


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """An input of each shape."""
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
