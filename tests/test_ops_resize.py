"""Resizes: NumPy against onnx's reference and onnxruntime, definitions against NumPy, and refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from operators import by_eval, by_kernel, close, defined, floats, on_ggml

from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ir.types import BOOL, F32
from graphc.ops.resize import Resize
from graphc.ops.sampling import COORDINATES, ROUNDINGS
from graphc.shapes import Dim, bind, symbol

X = floats(1, 2, 5, 8)
N = symbol("n")
ROI = (0.0, 0.0, 0.3, 0.13, 1.0, 1.0, 0.8, 1.21)


def model(op: Resize, by_sizes: bool, opset: int = 19) -> onnx.ModelProto:
    values = {"roi": np.float32(op.roi), "scales": np.float32([] if by_sizes else op.scales)}
    if by_sizes:
        values["sizes"] = np.int64(op.sizes)
    node = helper.make_node(
        "Resize",
        ["x", *values],
        ["y"],
        mode=op.mode,
        coordinate_transformation_mode=op.coordinate,
        nearest_mode=op.nearest,
        cubic_coeff_a=op.cubic_a,
        exclude_outside=int(op.exclude_outside),
        extrapolation_value=op.extrapolation,
        **({"antialias": int(op.antialias)} if opset >= 18 else {}),
    )
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def resize(height: float, width: float, **settings: object) -> Resize:
    """By scales, as ONNX has them: float32, and sizes rounded down."""
    scales = tuple(float(np.float32(scale)) for scale in (1, 1, height, width))
    sizes = tuple(int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(X.shape, scales, strict=True))
    roi = ROI if settings.get("coordinate") == "tf_crop_and_resize" else ()
    return Resize(sizes, scales, roi=roi, **settings)  # type: ignore[arg-type]


def by_onnxruntime(op: Resize, opset: int = 19) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model(op, False, opset).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": X})[0]


SCALES = [(2, 2), (3, 1.5), (0.61, 0.5), (0.41, 2.7)]
LENGTHS = frozenset({"align_corners", "tf_crop_and_resize"})
"""Coordinates that depend on the result's size, for which onnx's reference takes one that is not rounded down."""


@pytest.mark.parametrize(("coordinate", "rounding"), list(product(sorted(COORDINATES), sorted(ROUNDINGS))))
@pytest.mark.parametrize("scales", SCALES)
def test_nearest(scales: tuple[float, float], coordinate: str, rounding: str) -> None:
    """Compared with onnxruntime: its coordinates are float32, which decides ties."""
    op = resize(*scales, mode="nearest", coordinate=coordinate, nearest=rounding, extrapolation=7.0)
    y = by_eval(op, X)
    close(y, by_onnxruntime(op, 11 if coordinate == "tf_half_pixel_for_nn" else 19), 0)
    close(defined(op, X), y, 0)


@pytest.mark.parametrize("coordinate", sorted(LENGTHS))
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation_by_length(mode: str, scales: tuple[float, float], coordinate: str) -> None:
    op = resize(*scales, mode=mode, coordinate=coordinate, extrapolation=7.0)
    y = by_eval(op, X)
    close(y, by_onnxruntime(op), 2e-5)
    close(defined(op, X), y)


@pytest.mark.parametrize(
    ("mode", "coordinate"),
    list(product(("linear", "cubic"), sorted(set(COORDINATES) - LENGTHS - {"tf_half_pixel_for_nn"}))),
)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize(("antialias", "exclude"), [(False, False), (True, False), (False, True), (True, True)])
def test_interpolation(scales: tuple[float, float], mode: str, coordinate: str, antialias: bool, exclude: bool) -> None:
    op = resize(
        *scales, mode=mode, coordinate=coordinate, antialias=antialias, exclude_outside=exclude, extrapolation=7.0
    )
    y = by_eval(op, X)
    close(y, ReferenceEvaluator(model(op, False)).run(None, {"x": X})[0].astype(np.float32), 2e-5)
    close(defined(op, X), y)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(7, 3), (15, 24), (5, 8), (9, 2)])
def test_by_sizes(mode: str, sizes: tuple[int, int]) -> None:
    op = Resize((1, 2, *sizes), (1.0, 1.0, 0.0, 0.0), mode, "pytorch_half_pixel", "floor")
    y = by_eval(op, X)
    close(y, ReferenceEvaluator(model(op, True)).run(None, {"x": X})[0].astype(np.float32), 2e-5)
    close(defined(op, X), y)


@pytest.mark.parametrize("factor", range(1, 9))
@pytest.mark.parametrize("coordinate", ["half_pixel", "asymmetric"])
def test_whole_factors_repeat(factor: int, coordinate: str) -> None:
    """What `Resize.agrees_nearest` claims."""
    x = np.arange(100, dtype=np.float32)[None]
    rounding = "floor" if coordinate == "asymmetric" else "round_prefer_ceil"
    op = Resize((1, 100 * factor), (1.0, float(factor)), "nearest", coordinate, rounding)
    assert op.agrees_nearest(1, 100)
    assert replace(op, sizes=(1, factor * N)).agrees_nearest(1, N)
    np.testing.assert_array_equal(by_eval(op, x)[0], np.repeat(x[0], factor))


def test_integers() -> None:
    x = np.array([[0, 10, 250]], np.uint8)
    op = Resize((1, 6), (1.0, 2.0), "linear", "half_pixel")
    np.testing.assert_array_equal(by_eval(op, x), np.uint8([[0, 2, 7, 70, 190, 250]]))


KERNELS = {
    "nearest": resize(0.41, 2.7, mode="nearest", coordinate="half_pixel_symmetric", nearest="ceil"),
    "linear": resize(0.61, 1.5, mode="linear", coordinate="align_corners"),
    "cubic": resize(2.7, 1.5, mode="cubic", coordinate="pytorch_half_pixel"),
    "cubic inside": resize(2.7, 1.5, mode="cubic", coordinate="half_pixel", exclude_outside=True),
    "crop": resize(2.0, 0.5, mode="linear", coordinate="tf_crop_and_resize", extrapolation=7.0),
    "one": Resize((1, 2, 1, 1), (1.0, 1.0, 0.0, 0.0), "linear", "align_corners"),
}


@pytest.mark.parametrize("case", KERNELS)
def test_loop_form(case: str) -> None:
    close(by_kernel(KERNELS[case], X), by_eval(KERNELS[case], X))


def test_loop_form_of_integers() -> None:
    x = np.array([[0, 255, 0, 255, 255]], np.uint8)
    op = Resize((1, 11), (1.0, 0.0), "cubic")
    np.testing.assert_array_equal(by_kernel(op, x), by_eval(op, x))


@pytest.mark.parametrize(
    ("op", "functions"),
    [
        (Resize((1, 2, 10, 16), (1, 1, 2, 2), "nearest", "asymmetric", "floor"), ["ggml_interpolate"]),
        (Resize((1, 2, 15, 32), (1, 1, 3, 4), "nearest", "half_pixel"), ["ggml_interpolate"]),
        (Resize((1, 2, 7, 3), (1, 1, 0, 0), "nearest", "asymmetric", "floor"), ["ggml_interpolate"]),
        (Resize((1, 2, 10, 32), (1, 1, 2, 4), "linear", "half_pixel"), ["ggml_interpolate"]),
        (Resize((1, 2, 10, 16), (1, 1, 2, 2), "linear", "align_corners"), ["ggml_mul_mat"] * 2),
        (Resize((1, 2, 15, 8), (1, 1, 3, 1), "linear", "half_pixel"), ["ggml_interpolate"]),
        (Resize((1, 2, 7, 5), (1, 1, 0, 0), "linear", "pytorch_half_pixel"), ["ggml_interpolate"]),
        (Resize((1, 2, 10, 16), (1, 1, 2, 2), "cubic", "half_pixel"), ["ggml_mul_mat"] * 2),
    ],
)
def test_ggml(op: Resize, functions: list[str]) -> None:
    y, called = on_ggml(op, X)
    assert [function for function in called if function != "ggml_cont"] == functions
    close(y, by_eval(op, X))


def test_symbols_that_are_multiples() -> None:
    """A symbol that is a multiple of 4 is held as 4 times its quotient."""
    m = symbol("m", multiple=4)
    op = Resize((1, 2, m // 2, m), (1.0, 1.0, 2.0, 2.0), "linear", "align_corners")
    y, called = on_ggml(op, X[:, :, :4], sizes={0: (1, 2, m // 4, m // 2)}, binding={"m": 16})
    assert called == ["ggml_custom_4d"]
    close(y, by_eval(replace(op, sizes=(1, 2, 8, 16)), X[:, :, :4]))


def test_volumes() -> None:
    x = floats(2, 3, 4, 5, 6)
    op = Resize((2, 3, 8, 10, 12), (1, 1, 2, 2, 2), "nearest", "asymmetric", "floor")
    y, called = on_ggml(op, x)
    assert called == ["ggml_interpolate"]
    close(y, by_eval(op, x), 0)
    op = replace(op, mode="linear", coordinate="half_pixel")
    close(on_ggml(op, x)[0], by_eval(op, x))


def test_large_coordinates_are_exact() -> None:
    """In float32 they would be off by 1e-4."""
    x = floats(1, 1, 2, 1500)
    op = Resize((1, 1, 2, 4093), (1.0, 1.0, 1.0, 0.0), "linear", "half_pixel")
    assert not op.agrees_linear(3, 1500)
    y, called = on_ggml(op, x)
    assert called == ["ggml_custom_4d"]
    close(y, by_eval(op, x))


@pytest.mark.parametrize(
    ("sizes", "mode", "rounding", "functions"),
    [
        ((2 * N, 16), "nearest", "round_prefer_floor", ["ggml_interpolate"]),
        ((2 * N, 16), "linear", "floor", ["ggml_interpolate"]),
        ((N + 2, 3 * N), "linear", "floor", ["ggml_custom_4d"]),
        ((N + 2, 3 * N), "nearest", "round_prefer_ceil", ["ggml_custom_4d"]),
        ((N + 2, 3 * N), "cubic", "floor", ["ggml_custom_4d"]),
    ],
)
def test_symbolic_sizes(sizes: tuple[Dim, Dim], mode: str, rounding: str, functions: list[str]) -> None:
    scales = (1.0, 1.0, 2.0 if sizes[1] == 16 else 0.0, 2.0 if sizes[1] == 16 else 0.0)
    op = Resize((1, 2, *sizes), scales, mode, "half_pixel", rounding)
    assert op.infer(TensorType(F32, (1, 2, N, 8)))[0].shape == (1, 2, *sizes)
    y, called = on_ggml(op, X, sizes={0: (1, 2, N, 8)}, binding={"n": 5})
    assert called == functions
    known = tuple(int(bind(size, {"n": 5})) for size in sizes)
    close(y, by_eval(Resize((1, 2, *known), scales, mode, "half_pixel", rounding), X))


@pytest.mark.parametrize(
    ("op", "dtype", "reason"),
    [
        (Resize((1, 2), (1.0,)), F32, "2 sizes and 1 scales"),
        (Resize((1, 0), (1.0, 0.1)), F32, "size 0"),
        (Resize((1, 4), (1.0, 2.0), coordinate="nowhere"), F32, "nowhere"),
        (Resize((1, 4), (1.0, 2.0), coordinate="tf_crop_and_resize"), F32, "region"),
        (Resize((1, 4), (1.0, 2.0), "linear"), BOOL, "interpolated"),
    ],
)
def test_refusals(op: Resize, dtype: np.dtype, reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        op.infer(TensorType(dtype, (1, 2)))
