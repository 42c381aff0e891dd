"""Convolutions: NumPy against onnxruntime, definitions against NumPy, sizes, and refusals."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from operators import by_eval, by_kernel, by_onnxruntime, close, defined, floats, on_ggml, onnx_model

import graphc
from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ir.types import BOOL, F16, F32
from graphc.ops import conv
from graphc.ops.conv import Conv, ConvTranspose
from graphc.shapes import bind, symbol
from graphc.targets.ggml.program import image_calls

SIZES, KERNEL = (9, 8, 7), (3, 2, 3)
AXES = (1, 2, 3)
CONVOLUTIONS = [
    # stride, dilation, pad before, pad after, group
    (1, 1, 0, 0, 1),
    (2, 1, 1, 0, 2),
    (1, 2, 2, 1, 4),
    (3, 2, 2, 2, 1),
]
TRANSPOSED = [
    # stride, dilation, pad before, pad after, output padding, group
    (1, 1, 0, 0, 0, 1),
    (2, 1, 1, 0, 1, 2),
    (2, 2, 1, 1, 1, 4),
    (3, 1, 0, 2, 2, 1),
    (2, 1, 0, 0, 0, 1),
    (4, 1, 1, 1, 0, 1),
    (2, 1, 0, 0, 1, 1),
]


def attributes(op: Conv | ConvTranspose) -> dict[str, object]:
    found: dict[str, object] = {
        "strides": op.strides,
        "dilations": op.dilations,
        "pads": (*op.pads_before, *op.pads_after),
        "group": op.group,
    }
    if isinstance(op, ConvTranspose):
        found["output_padding"] = op.output_padding
    return found


def spread(setting: tuple[int, ...], axes: int) -> list[tuple[int, ...]]:
    return [(number,) * axes for number in setting]


@pytest.mark.parametrize(("axes", "setting"), list(product(AXES, CONVOLUTIONS)))
def test_convolution(axes: int, setting: tuple[int, ...]) -> None:
    op = Conv(*spread(setting[:-1], axes), setting[-1])
    arrays = floats(2, 4, *SIZES[:axes]), floats(8, 4 // op.group, *KERNEL[:axes]), floats(8)
    close(by_eval(op, *arrays), by_onnxruntime("Conv", *arrays, **attributes(op)))


@pytest.mark.parametrize(("axes", "setting"), list(product(AXES, TRANSPOSED)))
def test_transposed_convolution(axes: int, setting: tuple[int, ...]) -> None:
    op = ConvTranspose(*spread(setting[:-1], axes), setting[-1])
    arrays = floats(2, 4, *SIZES[:axes]), floats(4, 3, *KERNEL[:axes]), floats(3 * op.group)
    y = by_eval(op, *arrays)
    close(y, by_onnxruntime("ConvTranspose", *arrays, **attributes(op)))
    close(defined(op, *arrays), y)
    close(defined(op, *arrays[:2]), by_eval(op, *arrays[:2]))


def test_kernels_of_one_element_and_strides() -> None:
    op = Conv((2, 3), (1, 1), (0, 0), (0, 0))
    arrays = floats(1, 4, 5, 7), floats(3, 4, 1, 1)
    close(by_eval(op, *arrays), by_onnxruntime("Conv", *arrays, **attributes(op)))


def test_slices_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    op = Conv((1, 1), (1, 1), (1, 1), (1, 1), 2)
    arrays = floats(2, 4, 9, 5), floats(6, 2, 3, 3)
    whole = by_eval(op, *arrays)
    monkeypatch.setattr(conv, "SLICE_BYTES", 4096)
    close(by_eval(op, *arrays), whole, 1e-6)


def test_half_precision_is_summed_in_float32() -> None:
    op = Conv((1,), (1,), (0,), (0,))
    x, w = floats(1, 64, 9), floats(4, 64, 3)
    x, w = x.astype(F16), w.astype(F16)
    close(by_eval(op, x, w), by_eval(op, x.astype(np.float32), w.astype(np.float32)).astype(F16), 0)


@pytest.mark.parametrize("setting", CONVOLUTIONS)
def test_symbolic_sizes(setting: tuple[int, ...]) -> None:
    op = Conv(*spread(setting[:-1], 1), setting[-1])
    n = symbol("n", low=5)
    kernel = TensorType(F32, (8, 4 // op.group, 3))
    (type,) = op.infer(TensorType(F32, (n, 4, 2 * n)), kernel)
    for size in range(5, 12):
        (expected,) = op.infer(TensorType(F32, (size, 4, 2 * size)), kernel)
        assert tuple(bind(dim, {"n": size}) for dim in type.shape) == expected.shape


PLAIN = ["ggml_conv_2d", "ggml_add"]
GROUPED = ["graphc_conv_2d", "ggml_add"]
ON_GGML = {
    "two axes": (Conv((2, 1), (1, 2), (1, 0), (1, 0)), (2, 4, 9, 8), (8, 4, 3, 2), PLAIN),
    "pads that differ": (
        Conv((2, 1), (1, 2), (1, 0), (0, 3)), (2, 4, 9, 8), (8, 4, 3, 2), ["ggml_pad_ext", *PLAIN],
    ),
    "one axis": (Conv((2,), (2,), (3,), (3,)), (2, 4, 9), (8, 4, 3), PLAIN),
    "groups": (Conv((1, 2), (2, 1), (1, 1), (1, 1), 2), (2, 4, 9, 8), (8, 2, 3, 3), GROUPED),
    "groups of one image": (
        Conv((1, 2), (2, 1), (1, 1), (1, 1), 2), (1, 4, 9, 8), (8, 2, 3, 3), GROUPED,
    ),
    "groups of one axis": (Conv((1,), (1,), (1,), (1,), 4), (2, 4, 9), (8, 1, 3), GROUPED),
    "a kernel for each channel": (
        Conv((1, 2), (2, 1), (1, 1), (1, 1), 4), (2, 4, 9, 8), (4, 1, 3, 3), ["ggml_conv_2d_dw_direct", "ggml_add"],
    ),
    "three axes": (
        Conv((1, 2, 1), (1, 1, 2), (1, 0, 1), (1, 0, 1)), (2, 4, 5, 6, 7), (8, 4, 3, 2, 3),
        ["graphc_conv_3d"],
    ),
    "three axes in groups": (
        Conv((1, 2, 1), (1, 1, 2), (1, 0, 1), (1, 0, 1), 2), (2, 4, 5, 6, 7), (8, 2, 3, 2, 3), ["graphc_conv_3d"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ON_GGML)
def test_ggml(case: str) -> None:
    op, image, kernel, functions = ON_GGML[case]
    arrays = floats(*image), floats(*kernel), floats(kernel[0])
    y, called = on_ggml(op, *arrays, weights=[1, 2])
    assert called == functions
    close(y, by_eval(op, *arrays))
    without, _ = on_ggml(op, *arrays[:2])
    close(without, by_eval(op, *arrays[:2]))


@pytest.mark.parametrize("count", [1, 3])
def test_an_engine_convolves_any_number_of_volumes(tmp_path: Path, count: int) -> None:
    arrays = floats(2, 4, 5, 6, 7), floats(8, 4, 3, 2, 3), floats(8)
    model = onnx_model("Conv", arrays)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    model.graph.initializer.extend(numpy_helper.from_array(arrays[i], f"x{i}") for i in (1, 2))
    del model.graph.input[1:]
    x = floats(count, 4, 5, 6, 7)
    compiled = graphc.compile(model, tmp_path / "model.gguf", threads=1)
    assert [call.function for call in compiled.program.calls if "conv" in call.function] == ["graphc_conv_3d"]
    close(compiled.run(x0=x)["y"], by_onnxruntime("Conv", x, *arrays[1:]))


@pytest.mark.parametrize("axes", AXES)
def test_transposed_on_ggml(axes: int) -> None:
    op = ConvTranspose(*spread((2, 1, 1, 0, 1), axes))
    arrays = floats(2, 4, *SIZES[:axes]), floats(4, 3, *KERNEL[:axes]), floats(3)
    y, called = on_ggml(op, *arrays, weights=[1, 2])
    assert {"ggml_conv_2d", "graphc_conv_3d"} & set(called)
    close(y, by_eval(op, *arrays))


def test_columns_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    op = Conv((1, 1), (1, 1), (1, 1), (1, 1))
    arrays = floats(2, 4, 9, 8), floats(8, 4, 3, 3)
    monkeypatch.setattr(image_calls, "COLUMN_LIMIT", 2 * 9 * 8 * 36 * 4 - 1)
    y, called = on_ggml(op, *arrays, weights=[1])
    assert called == ["ggml_conv_2d_direct"]
    close(y, by_eval(op, *arrays))


@pytest.mark.parametrize("group", [1, 2, 4])
def test_symbolic_sizes_on_ggml(group: int) -> None:
    n, h = symbol("n"), symbol("h", low=3)
    op = Conv((2, 2), (1, 1), (1, 1), (1, 1), group)
    arrays = floats(2, 4, 9, 5), floats(4, 4 // group, 3, 3), floats(4)
    y, _ = on_ggml(op, *arrays, weights=[1, 2], sizes={0: (n, 4, h, 5)}, binding={"n": 2, "h": 9})
    close(y, by_eval(op, *arrays))


@pytest.mark.parametrize("axes", AXES)
def test_loop_form(axes: int) -> None:
    op = Conv(*spread((2, 2, 2, 1), axes), 2)
    arrays = floats(2, 4, *SIZES[:axes]), floats(6, 2, *KERNEL[:axes]), floats(6)
    close(by_kernel(op, *arrays), by_eval(op, *arrays))


def test_integers() -> None:
    op = Conv((1,), (1,), (1,), (1,))
    x, w = np.arange(-6, 6, dtype=np.int32).reshape(1, 2, 6), np.arange(6, dtype=np.int32).reshape(1, 2, 3)
    np.testing.assert_array_equal(by_eval(op, x, w), by_eval(op, x.astype(np.float32), w.astype(np.float32)))
    np.testing.assert_array_equal(by_kernel(op, x, w), by_eval(op, x, w))


ONE = ((1,), (1,), (0,), (0,))


@pytest.mark.parametrize(
    ("op", "types", "reason"),
    [
        (Conv(*ONE), [(F32, (1, 4, 9)), (F32, (8, 3, 3))], "4 channels, the kernel takes 3"),
        (Conv(*ONE, 3), [(F32, (1, 6, 9)), (F32, (8, 2, 3))], "8 output channels"),
        (Conv(*ONE), [(F32, (1, 4, 2)), (F32, (8, 4, 3))], "does not fit"),
        (Conv(*ONE), [(F32, (1, 4, 9, 9)), (F32, (8, 4, 3, 3))], "not 2 numbers"),
        (Conv(*ONE), [(F32, (1, 4, 9)), (F32, (8, 4, 3)), (F32, (4,))], "8 channels"),
        (Conv(*ONE), [(BOOL, (1, 4, 9)), (BOOL, (8, 4, 3))], "numeric"),
        (Conv((0,), *ONE[1:]), [(F32, (1, 4, 9)), (F32, (8, 4, 3))], "at least 1"),
        (ConvTranspose(*ONE, (0,)), [(F32, (1, 4, 9)), (F32, (3, 8, 3))], "kernel takes 3"),
        (ConvTranspose(*ONE, (-1,)), [(F32, (1, 4, 9)), (F32, (4, 8, 3))], "output padding"),
        (ConvTranspose((1,), (1,), (9,), (9,), (0,)), [(F32, (1, 4, 9)), (F32, (4, 8, 3))], "leave nothing"),
    ],
)
def test_refusals(op: Conv, types: list[tuple[np.dtype, tuple[int, ...]]], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        op.infer(*(TensorType(*type) for type in types))


@pytest.mark.parametrize(
    ("strides", "dilations", "spread"),
    [
        ((1, 1), (2, 2), 0),
        ((2, 2), (2, 2), 0),
        ((3, 1), (2, 2), 0),
        ((2, 2), (3, 1), 0),
        ((1, 1), (1, 1), 0),
        ((2, 2), (1, 1), 7),
    ],
)
def test_what_an_infinite_element_reaches(strides: tuple[int, int], dilations: tuple[int, int], spread: int) -> None:
    """Nothing but what depends on it; but zeros that fill an undilated kernel up to a multiple of the stride make NaN there."""
    x, w = floats(1, 2, 6, 6), floats(2, 1, 3, 3)
    x[0, 0, 3, 3] = np.inf
    op = ConvTranspose(strides, dilations, (0, 0), (0, 0), (0, 0))
    expected = by_onnxruntime("ConvTranspose", x, w, strides=strides, dilations=dilations)
    assert np.isinf(expected).sum() == 9
    actual, _ = on_ggml(op, x, w, weights=[1])
    lost = np.isnan(actual)
    assert lost.sum() == spread
    np.testing.assert_allclose(actual[~lost], expected[~lost], rtol=1e-5, atol=1e-5)


def test_transposed_convolutions_of_any_strides_and_dilations() -> None:
    for strides, dilations, before, extra, kernel, group in product(
        ((1, 1), (2, 1), (3, 2)),
        ((2, 3), (3, 1), (2, 2), (1, 4)),
        ((0, 0), (1, 2)),
        ((0, 0), (1, 1)),
        ((1, 2), (4, 3)),
        (1, 2),
    ):
        op, x, w = (
            ConvTranspose(strides, dilations, before, (0, 1), extra, group),
            floats(1, 4, 5, 4),
            floats(4, 3, *kernel),
        )
        by_definition = defined(op, x, w)
        assert by_definition is not None
        close(by_definition, by_eval(op, x, w), 1e-5)
