"""Matrix products: NumPy against onnxruntime, definitions against NumPy, shapes, and refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from operators import by_eval, by_kernel, by_onnxruntime, close, defined, floats, on_ggml

from graphc.errors import ShapeError
from graphc.ir import TensorType
from graphc.ir.types import BOOL, F16, F32, F64, I32
from graphc.ops.matmul import MatMul
from graphc.shapes import symbol

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 1, 2, 3, 4), (3, 1, 4, 5)),
    ((2, 2, 2, 3, 4), (4, 5)),
    ((2, 3, 1, 1, 4), (2, 3, 1, 4, 1)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_agrees_with_onnxruntime(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = floats(*left), floats(*right)
    y = by_eval(MatMul(), a, b)
    close(y, by_onnxruntime("MatMul", a, b))
    close(defined(MatMul(), a, b), y)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_transposed_operands(transpose_a: bool, transpose_b: bool) -> None:
    a, b = floats(2, 3, 4), floats(4, 5)
    y = a @ b
    a = a.swapaxes(1, 2) if transpose_a else a
    b = b.T if transpose_b else b
    op = MatMul(transpose_a, transpose_b)
    close(by_eval(op, a, b), y)
    result = defined(op, a, b)
    assert (result is None) == (transpose_b and not transpose_a)
    if result is not None:
        close(result, y)


@pytest.mark.parametrize("dtype", [F16, np.dtype(ml_dtypes.bfloat16)])
def test_half_precision_is_summed_in_float32(dtype: np.dtype) -> None:
    a, b = floats(3, 300).astype(dtype), floats(300, 2).astype(dtype)
    close(by_eval(MatMul(), a, b), (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype), 0)


def test_integers_wrap() -> None:
    a, b = np.full((1, 4), 2**30, np.int32), np.full((4, 1), 2, np.int32)
    np.testing.assert_array_equal(by_eval(MatMul(), a, b), np.int32([[0]]))


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_ggml(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = floats(*left), floats(*right)
    y, called = on_ggml(MatMul(), a, b)
    assert called.count("ggml_mul_mat") == 1
    close(y, by_eval(MatMul(), a, b))


def test_weights_are_turned_when_compiling() -> None:
    a, b = floats(2, 3, 4), floats(4, 5)
    y, called = on_ggml(MatMul(), a, b, weights=[1])
    assert called == ["ggml_mul_mat"]
    close(y, a @ b)


def test_one_matrix_times_many_is_not_repeated() -> None:
    a, b = floats(6, 4), floats(2, 3, 5, 4)
    y, called = on_ggml(MatMul(transpose_b=True), a, b, weights=[0])
    assert called == ["ggml_mul_mat", "ggml_cont"]
    close(y, a @ b.swapaxes(2, 3))


def test_half_precision_on_ggml() -> None:
    a, b = floats(3, 300).astype(F16), floats(300, 2).astype(F16)
    y, called = on_ggml(MatMul(), a, b, weights=[1])
    assert called == ["ggml_cast", "ggml_mul_mat", "ggml_cast"]
    close(y, by_eval(MatMul(), a, b), 1e-3)


@pytest.mark.parametrize("dtype", [F64, np.dtype(np.uint8), I32])
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
def test_loop_form(dtype: np.dtype, flags: tuple[bool, bool]) -> None:
    a, b = (floats(2, 3, 4) * 9).astype(dtype), (floats(2, 4, 5) * 9).astype(dtype)
    y = a @ b
    a = a.swapaxes(1, 2).copy() if flags[0] else a
    b = b.swapaxes(1, 2).copy() if flags[1] else b
    close(by_kernel(MatMul(*flags), a, b), y, 1e-14)


def test_loop_form_of_vectors() -> None:
    a, b = floats(4).astype(F64), floats(3, 4, 5).astype(F64)
    close(by_kernel(MatMul(), a, b), a @ b, 1e-14)
    close(by_kernel(MatMul(), a, b[0, :, 0].copy()), a @ b[0, :, 0], 1e-14)


def test_symbolic_sizes_on_ggml() -> None:
    n, m = symbol("n"), symbol("m")
    a, b = floats(2, 3, 4, 5), floats(3, 5, 6)
    y, _ = on_ggml(MatMul(), a, b, sizes={0: (n, 3, m, 5), 1: (3, 5, 3 * n)}, binding={"n": 2, "m": 4})
    close(y, a @ b)


def test_symbolic_sizes() -> None:
    n, k = symbol("n"), symbol("k")
    (type,) = MatMul().infer(TensorType(F32, (n, 1, 3, k)), TensorType(F32, (7, k, 5 * n)))
    assert type == TensorType(F32, (n, 7, 3, 5 * n))
    with pytest.raises(ShapeError, match="inner sizes n and k"):
        MatMul().infer(TensorType(F32, (3, n)), TensorType(F32, (k, 5)))


@pytest.mark.parametrize(
    ("op", "a", "b", "reason"),
    [
        (MatMul(), (F32, (2, 3)), (F32, (4, 5)), "inner sizes 3 and 4"),
        (MatMul(), (F32, (2, 3, 4)), (F32, (3, 4, 5)), "do not broadcast"),
        (MatMul(), (F32, ()), (F32, (4, 5)), "not an operand"),
        (MatMul(transpose_b=True), (F32, (4,)), (F32, (4,)), "swaps its axes"),
        (MatMul(), (F32, (2, 3)), (I32, (3, 5)), "one type"),
        (MatMul(), (BOOL, (2, 3)), (BOOL, (3, 5)), "numeric"),
    ],
)
def test_refusals(op: MatMul, a: tuple, b: tuple, reason: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ShapeError, match=reason):
        op.infer(TensorType(*a), TensorType(*b))
