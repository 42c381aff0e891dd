"""Generated loop kernels: what the operators of loop bodies compute, for every size and number of threads."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import Body, Fault, apply, apply_all, compute, loop, run

from graphc.errors import GraphcError
from graphc.ir import TensorType
from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, INTEGERS, U8
from graphc.kernels.c.render import render
from graphc.kernels.linear import compare, linear
from graphc.kernels.scalar import Kernel, Scalar, constant, result_index, trace, variable
from graphc.kernels.use import KernelUse
from graphc.ops.base import operator_class
from graphc.ops.conv import Conv
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Slice
from graphc.ops.pointwise import Cast
from graphc.ops.reduce import Reduce
from graphc.ops.sorting import ArgMax
from graphc.shapes import integer, symbol
from graphc.targets.ggml.run.kernels import load_kernels

# Operators


OPERATORS = {
    "//": (lambda a, b: a // b, np.floor_divide),
    "%": (lambda a, b: a % b, np.mod),
    "remainder": (lambda a, b: a.remainder(b), np.fmod),
    "maximum": (lambda a, b: a.maximum(b), np.maximum),
    "minimum": (lambda a, b: a.minimum(b), np.minimum),
    "+": (lambda a, b: a + b, np.add),
    "-": (lambda a, b: a - b, np.subtract),
    "*": (lambda a, b: a * b, np.multiply),
}
PAIRS = [lambda k, i, loop=loop: loop(k.load(0, i), k.load(1, i)) for loop, _ in OPERATORS.values()]


@pytest.mark.parametrize("dtype", sorted(INTEGERS, key=str), ids=str)
def test_integer_operators_wrap_and_never_trap(dtype: np.dtype) -> None:
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.min + 1, 0, 1, 2, 7, limits.max - 1, limits.max, *([-1, -7] if limits.min else [])]
    a, b = (x.ravel() for x in np.meshgrid(np.array(edges, dtype), np.array(edges, dtype)))
    results = apply_all(PAIRS, dtype, a.shape, a, b)
    for result, (name, (_, numpy)) in zip(results, OPERATORS.items(), strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(result, numpy(a, b), err_msg=name)


def test_integer_division_rounds_toward_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 5, -128], I8), np.array([2, 2, -2, -2, 0, -1], I8)
    result = apply(lambda k, i: k.load(0, i) / k.load(1, i), I8, a.shape, a, b)
    assert result.tolist() == [3, -3, -3, 3, 0, -128]


@pytest.mark.parametrize("dtype", [U8, I8, I32, I64], ids=str)
def test_shifts_by_any_amount(dtype: np.dtype) -> None:
    width = dtype.itemsize * 8
    a = np.array([1, 3, 100, 100, -100 if dtype != U8 else 200, 1], dtype)
    b = np.array([0, 1, width - 1, width, width + 1, 2], dtype)
    bodies = [lambda k, i: k.load(0, i) << k.load(1, i), lambda k, i: k.load(0, i) >> k.load(1, i)]
    left, right = apply_all(bodies, dtype, a.shape, a, b)
    np.testing.assert_array_equal(left, np.left_shift(a, b))
    np.testing.assert_array_equal(right, np.right_shift(a, b))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_float_operators_keep_nan_infinity_and_signs(dtype: np.dtype) -> None:
    edges = np.array([0.0, -0.0, 1.0, -1.5, 3.25, np.inf, -np.inf, np.nan]).astype(dtype)
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    wide = np.float64 if dtype == F64 else np.float32
    results = apply_all(PAIRS, dtype, a.shape, a, b)
    for result, (name, (_, numpy)) in zip(results, OPERATORS.items(), strict=True):
        with np.errstate(all="ignore"):
            expected = np.asarray(numpy(a.astype(wide), b.astype(wide)).astype(dtype), np.float64)
        np.testing.assert_array_equal(result.astype(np.float64), expected, err_msg=name)
        if name in ("*", "//", "%", "remainder"):
            zero = expected == 0
            np.testing.assert_array_equal(np.signbit(result.astype(np.float64))[zero], np.signbit(expected)[zero])


@pytest.mark.parametrize("target", sorted(FLOATS | INTEGERS | {BOOL}, key=str), ids=str)
@pytest.mark.parametrize("source", [F16, BF16, F32, F64], ids=str)
def test_casts_of_what_does_not_fit_are_numpys(source: np.dtype, target: np.dtype) -> None:
    numbers = [1e10, -1e10, 3e9, -1.0, 300.0, -129.7, np.inf, -np.inf, np.nan, 1e19, 2e19, -1e19, 65519.9, 65520, -0.0]
    numbers += [2.0**-24, 2.0**-25, 2.0**-25 * 1.0001, 6.1e-5, 5e-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 0.5, 1.5, -0.5]
    with np.errstate(all="ignore"):
        x = np.array(numbers).astype(source)
        if target == np.uint32:  # beyond 64 bits NumPy's result depends on how it was compiled
            x = x[np.abs(np.nan_to_num(x.astype(F64), nan=1e30)) < 2**32]
        expected = x.astype(target)
    np.testing.assert_array_equal(compute(Cast(target), x).astype(F64), expected.astype(F64))


def test_float16_is_rounded_to_nearest_even() -> None:
    every = np.arange(65536, dtype=np.uint16).view(F16)
    np.testing.assert_array_equal(compute(Cast(F32), every), every.astype(F32))
    with np.errstate(all="ignore"):
        middles = (every.astype(F64) + np.nextafter(every, F16.type(np.inf)).astype(F64)) / 2
        for dtype in (F32, F64):
            low, high = (np.nextafter(middles.astype(dtype), dtype.type(end)) for end in (-np.inf, np.inf))
            numbers = np.concatenate([every.astype(dtype), middles.astype(dtype), low, high])
            np.testing.assert_array_equal(compute(Cast(F16), numbers), numbers.astype(F16))


def test_float_sums_are_accumulated_in_double() -> None:
    x = np.full((2, 100_000), 0.1, F32)
    body: Body = lambda k, i: k.reduce("sum", [100_000], lambda at: k.load(0, [i[0], at[0]]))  # noqa: E731
    assert apply(body, F32, (2,), x).tolist() == [np.float32(np.float64(np.float32(0.1)) * 100_000)] * 2


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [F16, F32, F64, I8, I64], ids=str)
def test_reductions_of_neighbours_go_together(dtype: np.dtype, threads: int) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-9, 9, (3, 5, 300)).astype(dtype)
    a, b = random.integers(-9, 9, (2, 7, 4)).astype(dtype), random.integers(-9, 9, (4, 259)).astype(dtype)
    image, kernel = random.integers(-9, 9, (1, 2, 3, 150)).astype(F64), random.integers(-9, 9, (3, 2, 2, 3)).astype(F64)
    for op, *arrays in (
        (Reduce("max", (1,), True), x),
        (Reduce("mean", (0, 1), False), x),
        (ArgMax(1, False, True), x),
        (MatMul(), a, b),
        (Conv((1, 2), (1, 1), (0, 1), (1, 2)), image, kernel),
    ):
        np.testing.assert_array_equal(compute(op, *arrays, threads=threads), op.eval(*arrays)[0])


def test_only_the_chosen_branch_is_computed() -> None:
    x = np.arange(5, dtype=F32)

    def body(k: Kernel, i: Sequence[Scalar]) -> Scalar:
        at = i[0] - 1_000_000_000
        far = k.reduce("sum", [3], lambda j: k.load(0, [at + j[0]]))  # faults if it is read
        return k.select(i[0] > 100, far + k.load(0, [at]), k.load(0, i)) + k.select(i[0] > 100, far, 1.0)

    assert apply(body, F32, (5,), x).tolist() == [1, 2, 3, 4, 5]


def test_a_guarded_element_stays_behind_its_guard() -> None:
    """Even where no inner loop changes it."""

    def body(k: Kernel, i: Sequence[Scalar]) -> Scalar:
        far = k.load(0, [i[0] * 1_000_000_000])
        return k.select((i[0] < 1).and_(i[1] < 3), far * far, k.load(1, i))

    text = render([loop(body, F32, (5, 40), (F32, (9,)), (F32, (5, 40)))]).text
    assert re.search(r"if \(.*\) \{\n +const float \w+ = x0\[", text)
    x, y = np.full(9, 2, F32), np.ones((5, 40), F32)
    assert apply(body, F32, (5, 40), x, y).sum() == 5 * 40 + 3 * 3


def test_a_condition_is_computed_from_left_to_right() -> None:
    x = np.arange(5, dtype=I64)

    def body(k: Kernel, i: Sequence[Scalar]) -> Scalar:
        far = k.load(0, [i[0] * 1_000_000_000])
        return (i[0] < 1).and_((far * far).eq(0)).or_((i[0] > 0).and_(i[0].eq(3)))

    assert apply(body, BOOL, (5,), x).tolist() == [True, False, False, True, False]


def test_operands_of_two_types_are_refused() -> None:
    k = Kernel([TensorType(F32, (3,)), TensorType(I32, (3,))])
    (i,) = result_index((3,))
    with pytest.raises(TypeError, match="float32 and int32"):
        k.load(0, [i]) + k.load(1, [i])
    with pytest.raises(TypeError, match=r"0\.5 is not an integer"):
        i * 0.5
    with pytest.raises(TypeError, match="truth value"):
        bool(i < 3)


# Index arithmetic


@st.composite
def index_expression(draw: st.DrawFn, variables: Sequence[Scalar], depth: int) -> Scalar:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(variables)) if draw(st.booleans()) else constant(draw(st.integers(-6, 12)), I64)
    left = draw(index_expression(variables, depth - 1))
    operator = draw(st.sampled_from(["+", "-", "*", "//", "%", "neg"]))
    if operator in ("//", "%", "*"):
        by = draw(st.sampled_from([1, 2, 3, 4, 6, 12, *([-2, 0] if operator == "*" else [-3])]))
        return {"//": left // by, "%": left % by, "*": left * by}[operator]
    if operator == "neg":
        return -left
    right = draw(index_expression(variables, depth - 1))
    return left + right if operator == "+" else left - right


def value_of(node: Scalar, where: dict[Scalar, int]) -> int:
    if node.kind == "variable":
        return where[node]
    if node.dim is not None:
        return integer(node.dim, {})
    values = [value_of(arg, where) for arg in node.args]
    return (
        {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__}[
            str(node.data)
        ](*values)
        if node.data != "neg"
        else -values[0]
    )


VARIABLES = (variable("i0", 3), variable("i1", 4), variable("i2", 12))
PLACES = [dict(zip(VARIABLES, place, strict=True)) for place in np.ndindex(3, 4, 12)][::5]


@settings(max_examples=200)
@given(index_expression(VARIABLES, 4), index_expression(VARIABLES, 3))
def test_the_normal_form_is_the_same_number(left: Scalar, right: Scalar) -> None:
    form = linear(left).scalar()
    truth = {operator: compare(operator, left, right) for operator in ("<", "<=", ">", ">=", "==", "!=")}
    for place in PLACES:
        a, b = value_of(left, place), value_of(right, place)
        assert value_of(form, place) == a
        actual = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}
        assert all(known is None or known == actual[operator] for operator, known in truth.items())


def test_what_a_split_takes_apart_comes_together_again() -> None:
    h, w = symbol("h"), symbol("w")
    flat = variable("i0", h * w * 3)
    whole = flat // (w * 3) * w * 3 + flat // 3 % w * 3 + flat % 3
    assert linear(whole).scalar() is flat
    assert compare("<", flat // 3 % w, linear(constant(0, I64) + w).scalar()) is True


# Sizes, threads and faults


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_one_kernel_serves_every_size(threads: int) -> None:
    n, m = symbol("n"), symbol("m", low=0)
    body: Body = lambda k, i: k.load(0, [i[2], i[0], i[1]]) * 2 + k.cast(i[1] * (n + m) // 2 % m, I32)  # noqa: E731
    one = loop(body, I32, (m, n, 3), (I32, (3, m, n)))
    (kernel,) = load_kernels([one])
    for sizes in ((4, 5), (1, 1), (7, 2), (2, 0), (33, 1)):
        binding = dict(zip("nm", sizes, strict=True))
        x = np.random.default_rng(0).integers(-9, 9, (3, binding["m"], binding["n"])).astype(I32)
        extra = np.arange(sizes[0]) * sum(sizes) // 2 % max(sizes[1], 1)
        np.testing.assert_array_equal(
            run(kernel, one, [x], binding, threads), x.transpose(1, 2, 0) * 2 + extra[None, :, None]
        )


def test_symbols_of_attributes_are_sizes_too() -> None:
    n = symbol("n")
    one = KernelUse(Slice((n - 1,), (2,), (-1,)), ((F32, (5,)),), F32, (2,))
    (kernel,) = load_kernels([one])
    x = np.arange(5, dtype=F32)
    assert run(kernel, one, [x], {"n": 4}).tolist() == [3, 2]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_index_out_of_range_is_a_fault(threads: int) -> None:
    data, good, bad = np.arange(40, dtype=F32).reshape(10, 4), np.array([-10, 9, 3]), np.array([0, 10**12, 1])
    one = KernelUse(Gather(0), ((F32, (10, 4)), (I64, (3,))), F32, (3, 4))
    (kernel,) = load_kernels([one])
    np.testing.assert_array_equal(run(kernel, one, [data, good], {}, threads), data[good])
    with pytest.raises(Fault, match="out of range"):
        run(kernel, one, [data, bad], {}, threads)
    userdata = kernel.userdata({})
    userdata[0] = 1
    assert kernel.fault(userdata) is not None
    userdata[0] = 0
    assert kernel.fault(userdata) is None


def test_an_operator_without_a_loop_form_is_named() -> None:
    with pytest.raises(GraphcError, match="has no loop form"):
        trace(KernelUse(operator_class("DepthToSpace")(2, "DCR"), ((F32, (1, 4, 2, 2)),), F32, (1, 1, 4, 4)))
    with pytest.raises(GraphcError, match="gives float32, not int8"):
        trace(loop(lambda k, i: k.load(0, i), I8, (3,), (F32, (3,))))
    with pytest.raises(GraphcError, match="complex64"):
        render([loop(lambda k, i: k.load(0, i), np.dtype(np.complex64), (3,), (np.dtype(np.complex64), (3,)))])
