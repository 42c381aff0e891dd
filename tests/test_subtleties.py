"""What implementations get wrong: a test for each, against onnxruntime, or onnx's reference where onnxruntime has no kernel.

Where one of the two is wrong, a comment says which and why, and the test compares with the other, or with PyTorch.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
import onnx.reference
import pytest
from frontend_models import expected, single

from graphc import onnx_backend

RANDOM = np.random.default_rng(11)
NAN, INF = np.float32(np.nan), np.float32(np.inf)
F32, I64 = np.float32, np.int64
MIXED = np.array([[1, 2, 3, 4], [NAN, 1, 2, 3], [3, 2, 1, NAN], [INF, 1, -INF, 2], [-INF] * 4, [INF, INF, 0, 1]], F32)
Arrays = Sequence[np.ndarray | None]
Constants = Mapping[int, np.ndarray]


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def ours(
    operator: str, inputs: Arrays, constants: Constants | None = None, outputs: int = 1, **attributes: object
) -> list:
    """What graphc computes for one node; `constants` are inputs by position."""
    proto, feeds = single(operator, inputs, constants, outputs=outputs, **attributes)
    return list(onnx_backend.prepare(proto).run(list(feeds.values())))


def agree(
    operator: str,
    inputs: Arrays,
    constants: Constants | None = None,
    outputs: int = 1,
    tolerance: float = 0.0,
    reference: bool = False,
    **attributes: object,
) -> None:
    """Compare with onnxruntime; with onnx's reference if asked to, or if onnxruntime has no such kernel."""
    proto, feeds = single(operator, inputs, constants, outputs=outputs, **attributes)
    if reference:
        with np.errstate(all="ignore"):
            rights = onnx.reference.ReferenceEvaluator(proto).run(None, dict(feeds))
    else:
        rights = list(expected(proto, feeds).values())
    for result, right in zip(onnx_backend.prepare(proto).run(list(feeds.values())), rights, strict=True):
        assert (result.dtype, result.shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(result.astype(np.float64), right.astype(np.float64), rtol=tolerance, atol=tolerance)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, I64)


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_reductions_of_nothing_are_their_neutral_element(operator: str) -> None:
    agree(operator, [np.zeros((2, 0, 3), F32)], {1: ints(1)}, reference=True)


@pytest.mark.parametrize(("kind", "right"), [("ReduceMax", -INF), ("ReduceMin", INF)])
def test_extremes_of_nothing_are_infinite(kind: str, right: float) -> None:
    (result,) = ours(kind, [np.zeros((2, 0), F32)], {1: ints(1)}, keepdims=0)
    np.testing.assert_array_equal(result, np.full(2, right, F32))


@pytest.mark.parametrize("shapes", [((2, 0), (0, 3)), ((0, 4), (4, 3)), ((2, 4), (4, 0)), ((3, 0, 4), (4, 2))])
def test_products_of_empty_matrices(shapes: tuple[tuple[int, ...], ...]) -> None:
    agree("MatMul", [floats(*shape) for shape in shapes])


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Relu", {}), ("Softmax", {"axis": 2}), ("Softmax", {"axis": 1}), ("Transpose", {"perm": [2, 0, 1]}), ("Flatten", {}),
        ("Shape", {}), ("Size", {}), ("GlobalAveragePool", {}), ("LogSoftmax", {}),
    ],
)  # fmt: skip
def test_tensors_without_elements(operator: str, attributes: dict) -> None:
    agree(operator, [np.zeros((0, 2, 3), F32)], **attributes)


def test_parts_without_elements() -> None:
    x, none = floats(2, 3), np.zeros((2, 0), F32)
    agree("Concat", [none, x, none], axis=1)
    agree("Split", [x], {1: ints(0, 3, 0)}, outputs=3, axis=1)
    agree("Slice", [x], {1: ints(2), 2: ints(1), 3: ints(1)})
    agree("Gather", [x], {1: np.zeros((0, 2), I64)}, axis=1)
    agree("Expand", [floats(2, 1)], {1: ints(2, 0)})
    agree("Add", [none, floats(1, 1)])
    agree("Where", [np.zeros((2, 0), bool), floats(2, 1), none])
    agree("Tile", [x], {1: ints(0, 2)})
    agree("Pad", [none], {1: ints(0, 1, 0, 2)})


def test_a_batch_of_no_images() -> None:
    agree("Conv", [np.zeros((0, 2, 5, 5), F32)], {1: floats(3, 2, 3, 3)})
    agree("MaxPool", [np.zeros((0, 2, 5, 5), F32)], kernel_shape=[2, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_scalars(dtype: type) -> None:
    x = np.array(3, dtype)
    agree("Add", [x, x])
    agree("Neg", [x])
    agree("Unsqueeze", [x], {1: ints(0, -1)})
    agree("Reshape", [x], {1: ints(1, 1)})
    agree("Reshape", [x.reshape(1, 1)], {1: ints()})
    agree("Squeeze", [x.reshape(1, 1)])
    agree("Expand", [x], {1: ints(2, 2)})
    agree("ReduceSum", [x])
    agree("ReduceMax", [x.reshape(1)], {1: ints(0)}, keepdims=0)
    agree("Gather", [np.arange(4).astype(dtype)], {1: np.array(-1)})
    agree("Where", [np.array(True), x, np.zeros(3, dtype)])
    agree("Shape", [x])
    agree("Size", [x])


def test_the_size_0_of_a_reshape_copies_or_is_none() -> None:
    agree("Reshape", [floats(2, 3, 4)], {1: ints(0, -1)})
    agree("Reshape", [np.zeros((2, 0, 4), F32)], {1: ints(0, 0, 2, 2)})
    agree("Reshape", [np.zeros((2, 0, 4), F32)], {1: ints(3, 0, 5)}, allowzero=1)


@pytest.mark.parametrize("operator", ["Min", "Max"])
def test_nan_wins_a_comparison(operator: str) -> None:
    a, b = np.meshgrid(*[np.array([NAN, INF, -INF, 0, 1], F32)] * 2)
    agree(operator, [a, b])
    agree(operator, [a], {1: np.array(1, F32)})
    agree(operator, [a], {1: np.array(NAN, F32)})
    agree(operator, [a, b, b + 1])


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
def test_nan_and_infinity_in_reductions(operator: str) -> None:
    # onnxruntime's ReduceMax and ReduceMin skip some NaN; NumPy, PyTorch and the reference do not.
    for axis in (0, 1):
        agree(operator, [MIXED], {1: ints(axis)}, reference=True)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_the_first_or_last_nan_is_the_extreme(operator: str, last: int) -> None:
    # onnxruntime skips NaN; NumPy, PyTorch and the reference find it.
    agree(operator, [MIXED], axis=1, select_last_index=last, reference=True)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_nan_and_infinity_in_softmax(operator: str) -> None:
    agree(operator, [MIXED], axis=1, tolerance=1e-6, reference=True)


def test_a_masked_softmax_is_exactly_0_where_masked() -> None:
    x = np.array([[1, -INF, 2], [-INF, 0, -INF]], F32)
    (result,) = ours("Softmax", [x])
    np.testing.assert_array_equal(result == 0, np.isinf(x))


@pytest.mark.torch
@pytest.mark.parametrize("largest", [0, 1])
def test_nan_is_larger_than_all_in_top_k(largest: int) -> None:
    torch = pytest.importorskip("torch")
    values, _ = ours("TopK", [MIXED[:4]], {1: ints(3)}, outputs=2, largest=largest)
    np.testing.assert_array_equal(
        values, torch.topk(torch.from_numpy(MIXED[:4]), 3, largest=bool(largest)).values.numpy()
    )


@pytest.mark.torch
@pytest.mark.parametrize(
    ("operator", "function", "attributes"),
    [
        ("Relu", "relu", {}),
        ("LeakyRelu", "leaky_relu", {"alpha": 0.01}),
        ("HardSwish", "hardswish", {}),
        ("HardSigmoid", "hardsigmoid", {"alpha": 1 / 6, "beta": 0.5}),
        ("Elu", "elu", {}),
        ("Selu", "selu", {}),
        ("Celu", "celu", {}),
        ("Sigmoid", "sigmoid", {}),
        ("Tanh", "tanh", {}),
        ("Softplus", "softplus", {}),
        ("Softsign", "softsign", {}),
        ("Mish", "mish", {}),
    ],
)
def test_activations_of_nan_and_infinity(operator: str, function: str, attributes: dict) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([NAN, INF, -INF, 0.0, 100.0, -100.0], F32)
    (result,) = ours(operator, [x], **attributes)
    np.testing.assert_allclose(result, getattr(torch.nn.functional, function)(torch.from_numpy(x)).numpy(), rtol=2e-6)


def test_a_parametric_relu_of_0_by_an_infinite_slope_is_nan() -> None:
    a, b = np.meshgrid(*[np.array([NAN, INF, -INF, 0, -1, 1], F32)] * 2)
    # So it is in PyTorch, too; onnxruntime makes 0 of it, but NaN in float64.
    agree("PRelu", [a, b], reference=True)


def test_clip_keeps_nan_and_takes_infinite_bounds() -> None:
    x = np.array([NAN, INF, -INF, 0.5, 3], F32)
    for low, high in ((0.0, 1.0), (-np.inf, 1.0), (0.0, np.inf)):
        agree("Clip", [x], {1: np.array(low, F32), 2: np.array(high, F32)})


def test_where_the_lower_bound_of_clip_is_the_higher_the_upper_one_wins() -> None:
    agree("Clip", [floats(9)], {1: np.array(2, F32), 2: np.array(-1, F32)}, reference=True)


@pytest.mark.torch
def test_nan_and_infinity_in_max_pool() -> None:
    torch = pytest.importorskip("torch")  # onnxruntime skips NaN
    x = floats(1, 2, 6, 6)
    x[0, 0, 2, 2], x[0, 1, :4, :4] = NAN, -INF
    (result,) = ours("MaxPool", [x], kernel_shape=[2, 2], strides=[1, 1])
    np.testing.assert_array_equal(result, torch.nn.functional.max_pool2d(torch.from_numpy(x), 2, 1).numpy())


def test_what_is_not_a_number_has_no_sign_and_no_order() -> None:
    agree("Sign", [MIXED], reference=True)
    for operator in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        agree(operator, [MIXED, MIXED])
    agree("IsNaN", [MIXED])
    agree("IsInf", [MIXED], detect_negative=0)


@pytest.mark.parametrize("axis", [-1, -2, -3])
def test_axes_from_the_end(axis: int) -> None:
    x = floats(2, 3, 4)
    agree("Softmax", [x], axis=axis, tolerance=1e-6)
    agree("ArgMax", [x], axis=axis)
    agree("ReduceMax", [x], {1: ints(axis)})
    agree("Concat", [x, x], axis=axis)
    agree("Split", [x], axis=axis, num_outputs=2, outputs=2)
    agree("Flatten", [x], axis=axis)
    agree("Gather", [x], {1: ints(-1, 0, -2)}, axis=axis)
    agree("CumSum", [x], {1: np.array(axis)}, reverse=1, tolerance=1e-6)
    agree("TopK", [x], {1: ints(2)}, outputs=2, axis=axis)
    agree("LayerNormalization", [x], {1: np.ones(x.shape[axis:], F32)}, axis=axis, tolerance=2e-6)
    agree("Unsqueeze", [x], {1: ints(axis)})
    agree("OneHot", [np.arange(6).reshape(2, 3)], {1: np.array(6), 2: np.array([0, 1], F32)}, axis=axis)


@pytest.mark.parametrize(
    # The first: onnx's reference takes nothing; by the standard the start is moved to the first element.
    ("start", "end", "step"),
    [
        (-(1 << 40), -(1 << 40), -1),
        (-1, -100, -1),
        (100, 0, -2),
        (-2, 0, -1),
        (1, 1 << 62, 3),
        (-(1 << 62), 3, 2),
        (0, -1, -1),
        (5, 2, 1),
        (4, -7, -3),
    ],
)
def test_slices_by_negative_and_far_bounds(start: int, end: int, step: int) -> None:
    agree("Slice", [floats(3, 6)], {1: ints(start), 2: ints(end), 3: ints(-1), 4: ints(step)})


SIGNED = [np.int8, np.int16, np.int32, np.int64]


@pytest.mark.parametrize("dtype", SIGNED)
def test_quotients_of_negative_integers_are_rounded_toward_zero(dtype: type) -> None:
    a, b = np.array([7, -7, 7, -7, 0, -1], dtype), np.array([2, 2, -2, -2, -3, 5], dtype)
    (result,) = ours("Div", [a, b])
    np.testing.assert_array_equal(result, np.array([3, -3, -3, 3, 0, 0], dtype))
    (known,) = ours("Div", [a], {1: np.array(-2, dtype)})
    np.testing.assert_array_equal(known, np.array([-3, 3, -3, 3, 0, 0], dtype))


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_negative_integers(dtype: type, fmod: int) -> None:
    agree("Mod", [np.array([7, -7, 7, -7, 6, -6], dtype), np.array([3, 3, -3, -3, -3, 3], dtype)], fmod=fmod)


def test_remainders_of_floats_have_the_sign_of_the_dividend() -> None:
    agree("Mod", [np.array([5.5, -5.5, 5.5, -5.5, -0.0], F32), np.array([2, 2, -2, -2, 3], F32)], fmod=1)


def test_the_lowest_integer_divided_by_minus_one_wraps() -> None:
    for dtype in SIGNED:
        low = np.array([np.iinfo(dtype).min], dtype)
        np.testing.assert_array_equal(ours("Div", [low, np.array([-1], dtype)])[0], low)
        np.testing.assert_array_equal(ours("Mod", [low, np.array([-1], dtype)])[0], low - low)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
def test_sums_and_products_of_integers_wrap(dtype: type) -> None:
    high = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min, 3], dtype)
    with np.errstate(all="ignore"):
        for operator, right in (("Add", high + high), ("Mul", high * high), ("Sub", high[::-1] - high)):
            other = high[::-1] if operator == "Sub" else high
            (result,) = ours(operator, [other, high])
            np.testing.assert_array_equal(result, right)


HALVES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388609.0, -0.2], F32)


def test_halves_are_rounded_to_even() -> None:
    agree("Round", [HALVES])
    agree("QuantizeLinear", [HALVES[:7] * 2], {1: np.array(2, F32), 2: np.array(10, np.uint8)})
    agree("Cast", [HALVES], to=onnx.TensorProto.INT32)


@pytest.mark.parametrize("target", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_casts_round_ties_to_even(target: int) -> None:
    step = 2.0**-10 if target == onnx.TensorProto.FLOAT16 else 2.0**-7
    x = np.array([1 + step / 2, 1 + 1.5 * step, 1 + step / 2 + 2**-23, -1 - step / 2], F32)
    agree("Cast", [x], to=target, reference=True)


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("size", [3, 4, 10, 12])
def test_ties_between_nearest_elements(nearest: str, size: int) -> None:
    constants = {3: ints(1, 1, size)}
    agree("Resize", [floats(1, 1, 6), None, None], constants, mode="nearest", nearest_mode=nearest)


CONV = {"Conv": (3, 2, 3, 3), "ConvTranspose": (2, 3, 3, 3)}


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [2, 3])
def test_padding_by_rule(rule: str, stride: int, kernel: int) -> None:
    x, settings = floats(1, 2, 7, 8), {"auto_pad": rule, "strides": [stride] * 2}
    agree("Conv", [x], {1: floats(3, 2, kernel, kernel)}, tolerance=1e-5, **settings)
    agree("MaxPool", [x], kernel_shape=[kernel] * 2, **settings)
    agree("AveragePool", [x], kernel_shape=[kernel] * 2, tolerance=1e-6, **settings)


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_padded_by_rule(rule: str) -> None:
    settings = {"auto_pad": rule, "strides": [2, 3]}
    agree("ConvTranspose", [floats(1, 2, 4, 5)], {1: floats(2, 3, 3, 4)}, tolerance=1e-5, **settings)


@pytest.mark.parametrize("size", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_ceil_mode(size: int, pads: tuple[int, int]) -> None:
    x = floats(1, 2, size)
    settings = {"kernel_shape": [3], "strides": [2], "pads": list(pads), "ceil_mode": 1}
    agree("MaxPool", [x], **settings)
    for counted in (0, 1):
        # The reference counts padding beyond the declared one; onnxruntime and PyTorch do not.
        agree("AveragePool", [x], tolerance=1e-6, count_include_pad=counted, **settings)


@pytest.mark.parametrize("dilations", [[2, 1], [1, 3], [2, 2]])
def test_dilations(dilations: list[int]) -> None:
    x = floats(1, 2, 8, 9)
    for operator, shape in CONV.items():
        agree(operator, [x], {1: floats(*shape)}, tolerance=1e-5, dilations=dilations, strides=[2, 1])
    agree("MaxPool", [x], kernel_shape=[2, 3], dilations=dilations)


@pytest.mark.parametrize("group", [1, 2, 3, 6])
def test_groups(group: int) -> None:
    x = floats(2, 6, 5, 5)
    agree("Conv", [x], {1: floats(2 * group, 6 // group, 3, 3), 2: floats(2 * group)}, tolerance=1e-5, group=group)
    agree("ConvTranspose", [x], {1: floats(6, 2, 3, 3)}, tolerance=1e-5, group=group, strides=[2, 2])


@pytest.mark.parametrize("pads", [[0, 1, 2, 0], [2, 0, 0, 1], [1, 2, 0, 0]])
def test_different_padding_at_each_end(pads: list[int]) -> None:
    x = floats(1, 2, 6, 7)
    for operator, shape in CONV.items():
        agree(operator, [x], {1: floats(*shape)}, tolerance=1e-5, pads=pads, strides=[2, 2])
    agree("MaxPool", [x], kernel_shape=[3, 3], pads=pads)
    for counted in (0, 1):
        agree("AveragePool", [x], tolerance=1e-6, kernel_shape=[3, 3], pads=pads, count_include_pad=counted)
    for mode in ("constant", "edge", "reflect"):
        agree("Pad", [x[0, 0]], {1: ints(*pads)}, mode=mode)


def test_padding_that_cuts() -> None:
    agree("Pad", [floats(4, 5)], {1: ints(-1, 2, 1, -3)})


def test_casts_of_integers_that_do_not_fit_wrap() -> None:
    x = np.array([300, -300, 2**31, -(2**31) - 1, 2**40 + 5, -1], I64)
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64):
        agree("Cast", [x], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def test_casts_of_floats_that_do_not_fit_are_infinite() -> None:
    agree("Cast", [np.array([1e39, -1e39, 1e300, 3.4028235e38], np.float64)], to=onnx.TensorProto.FLOAT)
    agree("Cast", [np.array([65519, 65520, -65520, 1e10, 6e-8, 2e-8], F32)], to=onnx.TensorProto.FLOAT16)
    agree("Cast", [np.array([3.4e38, -3.4e38, NAN], F32)], to=onnx.TensorProto.BFLOAT16, reference=True)


def test_whatever_is_not_zero_is_true() -> None:
    agree("Cast", [np.array([0.0, -0.0, 0.3, NAN, -INF, 1e-40], F32)], to=onnx.TensorProto.BOOL)
    agree("Cast", [np.array([0, 256, -1], I64)], to=onnx.TensorProto.BOOL)


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dynamo", [False, True])
def test_aligned_corners_of_a_rounded_size_are_those_of_pytorch(mode: str, dynamo: bool) -> None:
    # onnx's reference goes on with the size that is not rounded; the standard's formula and onnxruntime agree with PyTorch.
    torch = pytest.importorskip("torch")

    class Shrink(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, scale_factor=0.6, mode=mode, align_corners=True)

    x = torch.from_numpy(floats(1, 2, 7, 9))
    file = io.BytesIO()
    torch.onnx.export(Shrink().eval(), (x,), file, opset_version=18, dynamo=dynamo)
    (result,) = onnx_backend.prepare(onnx.load_from_string(file.getvalue())).run(x.numpy())
    np.testing.assert_allclose(result, Shrink()(x).numpy(), atol=2e-6)


@pytest.mark.torch
def test_a_softmax_of_float16_is_rounded_once() -> None:
    torch = pytest.importorskip("torch")
    x = floats(40, 30).astype(np.float16)
    (result,) = ours("Softmax", [x])
    np.testing.assert_array_equal(result, torch.softmax(torch.from_numpy(x), -1).numpy())
