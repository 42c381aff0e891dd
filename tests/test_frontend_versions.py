"""Every version's spelling of the operators whose spelling changed: attributes that became inputs, defaults, new modes."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import NEWEST, agrees, model, single, value
from onnx import helper

from graphc.frontend.onnx import load
from graphc.ir import interp

RANDOM = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


X = floats(2, 3, 4, 5)


IMAGE = floats(1, 2, 5, 7)


CASES = {
    "clip by attributes": ("Clip", [X], {}, (7, 10), {"min": -0.5, "max": 0.4}),
    "clip by one attribute": ("Clip", [X], {}, (7,), {"max": 0.4}),
    "clip by inputs": (
        "Clip",
        [X],
        {1: np.float32(-0.5).reshape(()), 2: np.float32(0.4).reshape(())},
        (11, NEWEST),
        {},
    ),
    "clip from above": ("Clip", [X, None, np.array(0.4, np.float32)], {}, (12, NEWEST), {}),
    "softmax flattens": ("Softmax", [X], {}, (7, 11), {"axis": 1}),
    "softmax of one axis": ("Softmax", [X], {}, (13, NEWEST), {"axis": 1}),
    "softmax default": ("Softmax", [X], {}, (7, 12, 13, NEWEST), {}),
    "log softmax flattens": ("LogSoftmax", [X], {}, (7, 12), {"axis": 2}),
    "hardmax flattens": ("Hardmax", [X], {}, (7, 12), {"axis": 2}),
    "hardmax of one axis": ("Hardmax", [X], {}, (13,), {"axis": 1}),
    "squeeze by attribute": ("Squeeze", [floats(1, 3, 1, 2)], {}, (7, 11, 12), {"axes": [2]}),
    "squeeze by input": ("Squeeze", [floats(1, 3, 1, 2)], {1: ints(-2)}, (13, NEWEST), {}),
    "squeeze all": ("Squeeze", [floats(1, 3, 1, 2)], {}, (7, 13), {}),
    "unsqueeze by attribute": ("Unsqueeze", [X], {}, (7, 12), {"axes": [0, 3]}),
    "unsqueeze by input": ("Unsqueeze", [X], {1: ints(0, -1)}, (13, NEWEST), {}),
    "reduce sum by attribute": ("ReduceSum", [X], {}, (7, 12), {"axes": [1, -1], "keepdims": 0}),
    "reduce sum by input": ("ReduceSum", [X], {1: ints(1, -1)}, (13, 18), {"keepdims": 0}),
    "reduce nothing": ("ReduceSum", [X], {}, (13,), {"noop_with_empty_axes": 1}),
    "reduce mean by attribute": ("ReduceMean", [X], {}, (7, 13, 17), {"axes": [2]}),
    "reduce mean by input": ("ReduceMean", [X], {1: ints(2)}, (18, NEWEST), {}),
    "reduce all": ("ReduceMax", [X], {}, (7, 13, 18, 20), {}),
    "reduce log sum exp": ("ReduceLogSumExp", [X * 80], {}, (7, 17), {"axes": [0, 2], "keepdims": 0}),
    "reduce l1": ("ReduceL1", [X], {1: ints(1)}, (18,), {}),
    "reduce l2": ("ReduceL2", [X], {}, (11,), {"axes": [1]}),
    "reduce sum of squares": ("ReduceSumSquare", [X], {}, (11,), {"axes": [3]}),
    "reduce log sum": ("ReduceLogSum", [np.abs(X)], {}, (11,), {"axes": [3]}),
    "slice by attributes": ("Slice", [X], {}, (7, 9), {"starts": [1, -4], "ends": [9, -1], "axes": [1, 3]}),
    "slice by attributes of the first axes": ("Slice", [X], {}, (7,), {"starts": [0, 1], "ends": [1, 99]}),
    "slice by inputs": (
        "Slice",
        [X],
        {1: ints(1, -1), 2: ints(3, -9), 3: ints(1, 3), 4: ints(1, -2)},
        (10, NEWEST),
        {},
    ),
    "slice to nothing": ("Slice", [X], {1: ints(3), 2: ints(1), 3: ints(2)}, (13,), {}),
    "split by attribute": ("Split", [X], {}, (7, 11), {"axis": 3, "split": [2, 3], "outputs": 2}),
    "split by input": ("Split", [X], {1: ints(2, 3)}, (13, NEWEST), {"axis": -1, "outputs": 2}),
    "split evenly": ("Split", [X], {}, (7, 11, 13), {"axis": 2, "outputs": 2}),
    "split unevenly": ("Split", [X], {}, (18, NEWEST), {"axis": 3, "num_outputs": 3, "outputs": 3}),
    "pad by attributes": ("Pad", [IMAGE], {}, (7, 10), {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "value": 2.0}),
    "pad by inputs": ("Pad", [IMAGE], {1: ints(0, 0, 1, 2, 0, 0, 3, 0), 2: np.array(2, np.float32)}, (11, 13), {}),
    "pad some axes": ("Pad", [IMAGE], {1: ints(1, 2), 2: np.array(2, np.float32), 3: ints(-1)}, (18, NEWEST), {}),
    "pad by reflection": ("Pad", [IMAGE], {}, (7,), {"pads": [0, 0, 2, 2, 0, 0, 1, 0], "mode": "reflect"}),
    "pad by the edge": ("Pad", [IMAGE], {1: ints(0, 0, 2, 2, 0, 0, 1, 0)}, (11,), {"mode": "edge"}),
    "pad around": ("Pad", [IMAGE], {1: ints(0, 0, 2, 2, 0, 0, 1, 0)}, (19, NEWEST), {"mode": "wrap"}),
    "pad and cut": ("Pad", [IMAGE], {1: ints(0, 0, -1, 2, 0, 0, 1, -3)}, (11, 19), {}),
    "upsample by attribute": ("Upsample", [IMAGE], {}, (7, 8), {"scales": [1.0, 1.0, 2.0, 3.0]}),
    "upsample by input": ("Upsample", [IMAGE], {1: np.array([1, 1, 2, 3], np.float32)}, (9,), {"mode": "nearest"}),
    "resize of opset 10": ("Resize", [IMAGE], {1: np.array([1, 1, 2, 1.5], np.float32)}, (10,), {"mode": "linear"}),
    "resize by scales": (
        "Resize",
        [IMAGE, None],
        {2: np.array([1, 1, 0.6, 2.5], np.float32)},
        (13, 18, 19),
        {"mode": "linear"},
    ),
    "resize by sizes": (
        "Resize",
        [IMAGE, None, None],
        {3: ints(1, 2, 10, 4)},
        (13, 19),
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "resize some axes": (
        "Resize",
        [IMAGE, None, None],
        {3: ints(10, 4)},
        (18, 19),
        {"mode": "cubic", "axes": [2, 3]},
    ),
    "top of opset 7": ("TopK", [X], {}, (7,), {"k": 2, "axis": 2, "outputs": 2}),
    "top of opset 10": ("TopK", [X], {1: ints(2)}, (10,), {"outputs": 2}),
    "least": ("TopK", [X], {1: ints(2)}, (11, NEWEST), {"largest": 0, "axis": 1, "outputs": 2}),
    "dropout": ("Dropout", [X], {}, (7, 10, 12, 13, NEWEST), {}),
    "dropout's mask": ("Dropout", [X], {}, (12, 13), {"outputs": 2}),
    "flatten": ("Flatten", [X], {}, (7, 9, 13, NEWEST), {"axis": 2}),
    "flatten to a row": ("Flatten", [X], {}, (9, 13), {"axis": 0}),
    "flatten to a column": ("Flatten", [X], {}, (9, 13), {"axis": 4}),
    "flatten from the end": ("Flatten", [X], {}, (11,), {"axis": -1}),
    "argmax": ("ArgMax", [X], {}, (7, 11, 13), {"axis": 2, "keepdims": 0}),
    "the last argmin": ("ArgMin", [np.round(X)], {}, (12, 13), {"axis": 1, "select_last_index": 1}),
    "gather": ("Gather", [X], {1: ints(1, -1)}, (11, NEWEST), {"axis": 2}),
    "scatter": ("Scatter", [floats(3, 4), None, floats(1, 4)], {1: ints(2, 1, 0, 2)[None]}, (9, 10), {}),
    "scatter and add": (
        "ScatterElements",
        [floats(3, 4), None, floats(1, 4)],
        {1: ints(2, 1, 0, 2)[None]},
        (16, 18),
        {"reduction": "add"},
    ),
    "one hot": (
        "OneHot",
        [],
        {0: ints(1, -1, 7), 1: ints(3).reshape(()), 2: np.array([0.5, 2], np.float32)},
        (9, 11),
        {"axis": 0},
    ),
    "range": ("Range", [], {0: ints(1).reshape(()), 1: ints(9).reshape(()), 2: ints(3).reshape(())}, (11, NEWEST), {}),
    "constant of a shape": ("ConstantOfShape", [], {0: ints(2, 3)}, (9, 20), {}),
    "tile": ("Tile", [X], {1: ints(1, 2, 1, 2)}, (7, 13), {}),
    "expand": ("Expand", [floats(3, 1)], {1: ints(2, 1, 4)}, (8, 13), {}),
    "reshape": ("Reshape", [X], {1: ints(0, -1, 5)}, (7, 14, NEWEST), {}),
    "cumulative sum": ("CumSum", [X], {1: ints(2).reshape(())}, (11, 14), {"exclusive": 1, "reverse": 1}),
    "triangle": ("Trilu", [X], {1: ints(1).reshape(())}, (14,), {"upper": 0}),
    "shape": ("Shape", [X], {}, (7, 13), {}),
    "part of a shape": ("Shape", [X], {}, (15, NEWEST), {"start": 1, "end": -1}),
    "size": ("Size", [X], {}, (7, 13), {}),
    "cast": ("Cast", [X], {}, (7, 13, NEWEST), {"to": 7}),
    "sum of one": ("Sum", [X], {}, (8,), {}),
    "sum of three": ("Sum", [X, floats(5), X], {}, (8, 13), {}),
    "mean": ("Mean", [X, floats(5)], {}, (8, 13), {}),
    "max": ("Max", [X, floats(4, 1), X], {}, (8, 13), {}),
    "modulo": ("Mod", [ints(-7, 7, -7, 7), ints(3, 3, -3, -3)], {}, (10, 13), {}),
    "remainder": ("Mod", [X, np.float32(0.3).reshape(1)], {}, (10, 13), {"fmod": 1}),
    "integer power": ("Pow", [X, ints(2, 3, 2, 1, 2)], {}, (12, 13), {}),
    "slopes": ("PRelu", [X, floats(3, 1, 1)], {}, (7, 9, 16), {}),
    "where": ("Where", [X > 0, X, floats(5)], {}, (9, 16), {}),
    "depth to space": ("DepthToSpace", [floats(1, 8, 2, 3)], {}, (7, 11, 13), {"blocksize": 2}),
    "depth to space by columns": ("DepthToSpace", [floats(1, 8, 2, 3)], {}, (11,), {"blocksize": 2, "mode": "CRD"}),
    "space to depth": ("SpaceToDepth", [floats(1, 2, 4, 6)], {}, (7, 13), {"blocksize": 2}),
    "average with padding": (
        "AveragePool",
        [IMAGE],
        {},
        (7, 10, 19, 22),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "average, rounded up": (
        "AveragePool",
        [IMAGE],
        {},
        (10, 19),
        {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1},
    ),
    "average of all": ("AveragePool", [IMAGE], {}, (19,), {"kernel_shape": [9, 9], "strides": [9, 9], "ceil_mode": 1}),
    "largest of windows": ("MaxPool", [IMAGE], {}, (7, 8, 12), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    "largest of wide windows": ("MaxPool", [IMAGE], {}, (10, 12), {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    "norm of windows": ("LpPool", [IMAGE], {}, (11, 18), {"kernel_shape": [2, 2], "p": 3}),
    "global average": ("GlobalAveragePool", [IMAGE], {}, (7, NEWEST), {}),
    "global maximum": ("GlobalMaxPool", [IMAGE], {}, (7, NEWEST), {}),
    "global norm": ("GlobalLpPool", [IMAGE], {}, (7, 21), {"p": 3}),
    "batch norm": (
        "BatchNormalization",
        [IMAGE, floats(2), floats(2), floats(2), np.abs(floats(2))],
        {},
        (7, 9, 14, 15),
        {"epsilon": 0.01},
    ),
    "group norm of opset 18": (
        "GroupNormalization",
        [floats(2, 6, 4), floats(3), floats(3)],
        {},
        (18,),
        {"num_groups": 3},
    ),
    "group norm": ("GroupNormalization", [floats(2, 6, 4), floats(6), floats(6)], {}, (21, NEWEST), {"num_groups": 3}),
    "layer norm": ("LayerNormalization", [X, floats(4, 5), floats(4, 5)], {}, (17, NEWEST), {"axis": 2}),
    "layer norm's mean": ("LayerNormalization", [X, floats(5)], {}, (17,), {"outputs": 3}),
    "root mean square norm": ("RMSNormalization", [X, floats(5)], {}, (23, NEWEST), {}),
    "instance norm": ("InstanceNormalization", [IMAGE, floats(2), floats(2)], {}, (7, NEWEST), {}),
    "p-norm": ("LpNormalization", [X], {}, (7,), {"axis": 2, "p": 1}),
    "local response": ("LRN", [floats(1, 5, 3, 3)], {}, (7, 13), {"size": 3}),
    "mean and variance": ("MeanVarianceNormalization", [IMAGE], {}, (9, 13), {}),
    "gemm of opset 7": (
        "Gemm",
        [floats(3, 2), floats(4, 3), floats(4)],
        {},
        (7, 9, 11),
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    "gemm without a sum": ("Gemm", [floats(2, 3), floats(3, 4)], {}, (11, 13), {}),
    "einsum": ("Einsum", [floats(2, 3, 4), floats(2, 5, 4)], {}, (12,), {"equation": "bij, bkj -> bik"}),
    "convolution": (
        "Conv",
        [IMAGE, floats(4, 1, 3, 2), floats(4)],
        {},
        (7, 11, 22),
        {"group": 2, "strides": [2, 1], "auto_pad": "SAME_LOWER"},
    ),
    "transposed convolution": (
        "ConvTranspose",
        [IMAGE, floats(2, 3, 3, 3)],
        {},
        (7, 11, 22),
        {"strides": [2, 2], "pads": [1, 0, 1, 2], "output_padding": [1, 1]},
    ),
    "transposed convolution to a shape": (
        "ConvTranspose",
        [IMAGE, floats(2, 3, 3, 3)],
        {},
        (11,),
        {"strides": [2, 2], "output_shape": [10, 14]},
    ),
    "transposed convolution beyond its reach": (
        "ConvTranspose",
        [floats(1, 1, 3, 3), floats(1, 2, 3, 3)],
        {},
        (11,),
        {"strides": [3, 2], "output_shape": [10, 8]},
    ),
    "gelu": ("Gelu", [X], {}, (20, NEWEST), {"approximate": "tanh"}),
    "hard sigmoid": ("HardSigmoid", [X], {}, (7, 22), {"alpha": 0.3}),
    "selu": ("Selu", [X], {}, (7, 22), {}),
    "celu": ("Celu", [X], {}, (12,), {"alpha": 0.7}),
    "shrink": ("Shrink", [X], {}, (9,), {"bias": 0.1, "lambd": 0.3}),
    "infinite": ("IsInf", [np.array([np.inf, -np.inf, 1], np.float32)], {}, (10, 20), {"detect_negative": 0}),
    "quantize": ("QuantizeLinear", [X, np.array(0.02, np.float32), np.array(9, np.uint8)], {}, (10, 13, 21), {}),
    "dequantize an axis": (
        "DequantizeLinear",
        [RANDOM.integers(-90, 90, (2, 3, 4)).astype(np.int8), floats(3), ints(1, -2, 3).astype(np.int8)],
        {},
        (13, 19),
        {},
    ),
    "dequantize blocks": (
        "DequantizeLinear",
        [RANDOM.integers(-90, 90, (2, 6)).astype(np.int8), floats(2, 3)],
        {},
        (21,),
        {"block_size": 2, "axis": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_spelling(name: str) -> None:
    operator, inputs, constants, opsets, attributes = CASES[name]
    for opset in opsets:
        proto, feeds = single(operator, inputs, constants, opset, **attributes)  # type: ignore[arg-type]
        agrees(proto, feeds)


@pytest.mark.parametrize("broadcast_axis", [1, None])
def test_broadcasting_of_opset_6(broadcast_axis: int | None) -> None:

    attributes = {"broadcast": 1} if broadcast_axis is None else {"broadcast": 1, "axis": broadcast_axis}
    operand = floats(5) if broadcast_axis is None else floats(3, 4)
    proto, feeds = single("Add", [X, operand], opset=6, **attributes)
    (y,) = interp.run(load(proto), feeds).values()
    np.testing.assert_allclose(y, X + (operand if broadcast_axis is None else operand[:, :, None]))


def test_constants_in_every_form() -> None:
    forms = {
        "value_float": 1.5,
        "value_floats": [1.5, 2.0],
        "value_int": 3,
        "value_ints": [3, 4],
        "value": helper.make_tensor("t", 1, [2], [5.0, 6.0]),
    }
    nodes = [helper.make_node("Constant", [], [name], **{name: form}) for name, form in forms.items()]
    agrees(model(nodes, [value("unused", [1])], list(forms)), {"unused": np.zeros(1, np.float32)})
