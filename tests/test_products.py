"""Products, convolutions and attention by code of our own: exact for all sizes, the same for any number of threads."""

from __future__ import annotations

from contextlib import closing

import ml_dtypes
import numpy as np
import pytest
from remarks import remarked

from graphc.ggml_library import ggml
from graphc.ggml_types import GUIDED, QUANTIZED, TYPES, narrowed, widened
from graphc.ir.graph import Graph
from graphc.ir.interp import evaluate
from graphc.ir.types import BF16, F16, F32, TensorType
from graphc.ops.activations import Clip, Elu, Gelu, Swish
from graphc.ops.attention import Attention
from graphc.ops.base import Op
from graphc.ops.conv import Conv
from graphc.ops.matmul import MatMul
from graphc.ops.movement import Concat, Pad, Reshape, Slice, Transpose
from graphc.ops.norm import GroupNorm, LayerNorm, LpNorm, RMSNorm
from graphc.ops.pointwise import Binary, Cast, Unary
from graphc.ops.quantized import ScaledMatMul
from graphc.ops.reduce import Reduce
from graphc.ops.rotary import RotaryEmbedding
from graphc.ops.softmax import Softmax
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.lowering.compose import composed
from graphc.targets.ggml.lowering.lower import lower
from graphc.targets.ggml.program.program import Output, Program, undoubled
from graphc.targets.ggml.program.tensor import Constant
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.executor import Executor

RANDOM = np.random.default_rng()


@pytest.fixture(autouse=True)
def seeded():
    """The same numbers for a test, whichever ran before."""
    RANDOM.bit_generator.state = np.random.default_rng(11).bit_generator.state


PRODUCTS = [((1, 5), (5, 1)), ((40, 3), (3, 7)), ((64, 300), (300, 129)), ((257, 40), (40, 128)),
            ((2, 3, 33, 513), (2, 3, 513, 31)),
            ((3, 100, 64), (64, 200)), ((4096, 16), (16, 33)),
            ((1, 4099), (4099, 70)), ((7, 3, 5, 31), (7, 3, 31, 100)), ((2, 9, 1000), (1000, 33))]  # fmt: skip
"""Shapes of operands: below, at and above the sizes of tiles, panels and blocks, with batches, and with few rows."""

CONVOLUTIONS = [
    ((1, 3, 9, 11), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 70, 17, 40), (33, 70, 3, 3), (2, 2), (1, 1), (1, 1)),
    ((1, 8, 20, 24), (13, 8, 1, 1), (1, 1), (0, 0), (1, 1)),
    ((1, 4, 16, 16), (300, 4, 5, 3), (1, 2), (4, 3), (2, 1)),
    ((1, 2, 3, 3), (1, 2, 3, 3), (3, 3), (0, 0), (1, 1)),
    ((1, 6, 9, 95), (13, 6, 3, 3), (1, 2), (1, 1), (1, 1)),
    ((1, 5, 2, 30), (6, 5, 1, 7), (1, 1), (0, 9), (1, 3)),
]
"""Images, kernels, strides, pads and dilations."""

WINOGRADS = [
    ((1, 40, 32, 64), (96, 40, 3, 3), (1, 1)),
    ((2, 33, 25, 33), (37, 33, 3, 3), (0, 2)),
    ((3, 300, 29, 9), (100, 300, 3, 3), (1, 0)),
    ((1, 32, 3, 700), (32, 32, 3, 3), (1, 1)),
    ((2, 50, 14, 13), (70, 50, 3, 3), (1, 1)),
    ((1, 290, 22, 22), (33, 290, 3, 3), (1, 1)),
    ((2, 40, 99, 83), (50, 40, 3, 3), (1, 1)),
]
"""Images, kernels and pads of what is computed by Winograd's way."""

ALL_CONVOLUTIONS = [*CONVOLUTIONS, *((image, kernel, (1, 1), pads, (1, 1)) for image, kernel, pads in WINOGRADS)]


def computed(op: Op, arrays: list[np.ndarray], threads: int, own: bool) -> tuple[np.ndarray, list[str]]:
    graph = Graph()
    values = [graph.input(f"x{i}", TensorType(array.dtype, array.shape)) for i, array in enumerate(arrays)]
    graph.output(graph.add(op, values).output, "y")
    executor = Executor(lower(graph), [], threads=threads)
    executor.uses_own = own
    (result,) = executor.run({f"x{i}": array for i, array in enumerate(arrays)}, {})
    functions = [call.function for call in executor.program.calls]
    executor.close()
    return result, functions


def check(op: Op, *shapes: tuple[int, ...], rounding: float = 1e-6) -> None:
    """Compare with the exact result, within what ggml's sums differ by and `rounding`, relative to the largest number."""
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    (exact,) = op.eval(*(array.astype(np.float64) for array in arrays))
    results = {threads: computed(op, arrays, threads, True)[0] for threads in (1, 2, 3)}
    theirs, functions = computed(op, arrays, 2, False)
    assert any(function.startswith(("graphc_linear", "graphc_conv_2d")) for function in functions)
    error = np.abs(results[1] - exact).max()
    assert error <= 2 * np.abs(theirs - exact).max() + rounding * np.abs(exact).max()
    for result in results.values():
        np.testing.assert_array_equal(result, results[1])


@pytest.mark.parametrize(("a", "b"), PRODUCTS)
def test_products(a, b):
    check(MatMul(), a, b)


@pytest.mark.parametrize(("image", "kernel", "strides", "pads", "dilations"), CONVOLUTIONS)
def test_convolutions(image, kernel, strides, pads, dilations):
    check(Conv(strides, dilations, pads, pads), image, kernel)


@pytest.mark.parametrize(("image", "kernel", "pads"), WINOGRADS)
def test_convolutions_by_winograds_way(image, kernel, pads):
    # of 40 draws of sums of 450 products, all were within 1.7e-6: large tiles round twice as much as a plain sum
    check(Conv((1, 1), (1, 1), pads, pads), image, kernel, rounding=2e-6)


DEPTHWISE = [
    ((1, 3, 9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 70, 7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 33, 14, 15), (5, 5), (2, 2), (2, 2), (1, 1)),
    ((1, 40, 56, 56), (7, 7), (1, 1), (3, 3), (1, 1)),
    ((1, 2, 3, 5000), (3, 9), (1, 3), (1, 4), (1, 1)),
    ((1, 2, 3000, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 17, 20, 31), (3, 2), (3, 1), (0, 9), (2, 3)),
    ((1, 5, 1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((1, 2, 40, 40), (40, 40), (1, 1), (0, 0), (1, 1)),
    ((1, 2, 200, 200), (3, 3), (130, 150), (1, 1), (1, 1)),
]
"""Images, sizes of the kernels of single channels, strides, pads and dilations; the last two are ggml's."""


@pytest.mark.parametrize(("image", "kernel", "strides", "pads", "dilations"), DEPTHWISE)
def test_convolutions_of_single_channels(image, kernel, strides, pads, dilations):
    op = Conv(strides, dilations, pads, pads, image[1])
    check(op, image, (image[1], 1, *kernel))
    check(op, image, (image[1], 1, *kernel), image[1:2])


def test_convolutions_of_single_channels_of_any_size():
    """An infinity is seen where the kernel meets it, and nowhere else."""
    for _ in range(60):
        channels, height, width = (int(RANDOM.integers(1, top)) for top in (20, 70, 70))
        kernel, strides, pads, dilations = (
            tuple(map(int, RANDOM.integers(low, top, 2))) for low, top in ((1, 8), (1, 4), (0, 4), (1, 4))
        )
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        if height + 2 * pads[0] < reach[0] or width + 2 * pads[1] < reach[1]:
            continue
        image = RANDOM.standard_normal((2, channels, height, width)).astype(np.float32)
        image[1, 0, height // 2, width // 3] = np.inf
        weight = RANDOM.standard_normal((channels, 1, *kernel)).astype(np.float32)
        op = Conv(strides, dilations, pads, pads, channels)
        (expected,) = op.eval(image, weight)
        for threads in (1, 2):
            found, _ = computed(op, [image, weight], threads, True)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [5, 9, 40])
@pytest.mark.parametrize("other", [(33,), (3, 1, 33), (1, 9, 33), (3, 9, 33), (3, 9, 1)])
def test_a_batch_has_the_numbers_of_its_parts(rows, other):
    """A matrix is packed once for all of them, whatever is added."""
    x, w = RANDOM.standard_normal((3, rows, 70)).astype(F32), RANDOM.standard_normal((33, 70)).astype(F32)
    added = RANDOM.standard_normal([rows if size == 9 else size for size in other]).astype(F32)

    def sums(x: np.ndarray, added: np.ndarray) -> np.ndarray:
        graph = Graph()
        a, b, c = (graph.input(name, TensorType(F32, each.shape)) for name, each in (("a", x), ("b", w), ("c", added)))
        product = graph.add(MatMul(transpose_b=True), [a, b]).output
        graph.output(graph.add(Unary("Relu"), [graph.add(Binary("Add"), [product, c]).output]).output, "y")
        executor = Executor(lower(graph), [], threads=2)
        (result,) = executor.run({"a": x, "b": w, "c": added}, {})
        assert [call.function for call in executor.program.calls] == ["graphc_linear"]
        return result

    found = sums(x, added)
    exact = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64) + added, 0)
    np.testing.assert_allclose(found, exact, atol=1e-5)
    for i in range(3):
        part = added if added.ndim < 3 or len(added) == 1 else added[i : i + 1]
        np.testing.assert_array_equal(sums(x[i : i + 1], part)[0], found[i])


OF_TWO = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@pytest.mark.parametrize("name", OF_TWO)
@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((2, 3, 5, 7), (1, 3, 1, 1)), ((2, 3, 5, 7), (2, 3, 5, 1)), ((2, 3, 5, 7), (1, 1, 1, 1)), ((2, 3, 5, 7), (2, 1, 5, 1)),
        ((1, 40, 33, 30), (1, 40, 1, 1)), ((1, 1, 1, 65), (1, 1, 1, 1)), ((4, 1, 3, 2), (1, 1, 3, 1)),
    ],
)  # fmt: skip
def test_what_serves_whole_rows(name, shape, other):
    x, y = (RANDOM.standard_normal(each).astype(np.float32) for each in (shape, other))
    for threads in (1, 2, 5):
        found, functions = computed(Binary(name), [x, y], threads, True)
        assert functions == [f"graphc_{name.lower()}"]
        np.testing.assert_array_equal(found, OF_TWO[name](x, y))


@pytest.mark.parametrize("name", OF_TWO)
@pytest.mark.parametrize("other", [(2, 5, 3, 1), (1, 5, 1, 1), (3, 10), (2, 5, 3, 10)])
def test_rows_that_lie_apart(name, other):
    """The first operand's rows are in another order than those of the result."""
    x, y = (RANDOM.standard_normal(each).astype(np.float32) for each in ((2, 3, 5, 10), other))
    graph = Graph()
    a, b = graph.input("a", TensorType(F32, x.shape)), graph.input("b", TensorType(F32, y.shape))
    turned = graph.add(Transpose((0, 2, 1, 3)), [a]).output
    graph.output(graph.add(Binary(name), [turned, b]).output, "y")
    for threads in (1, 2, 5):
        (found,) = Executor(lower(graph), [], threads=threads).run({"a": x, "b": y}, {})
        np.testing.assert_array_equal(found, OF_TWO[name](x.transpose(0, 2, 1, 3), y))


@pytest.mark.parametrize("name", OF_TWO)
def test_elements_in_another_order(name):
    """One operand's rows lie across the other's."""
    x, y = (RANDOM.standard_normal(each).astype(np.float32) for each in ((2, 3, 33, 20), (2, 33, 20, 3)))
    for swapped in (False, True):
        graph = Graph()
        a, b = graph.input("a", TensorType(F32, x.shape)), graph.input("b", TensorType(F32, y.shape))
        turned = graph.add(Transpose((0, 3, 1, 2)), [b]).output
        graph.output(graph.add(Binary(name), [turned, a] if swapped else [a, turned]).output, "y")
        executor = Executor(lower(graph), [], threads=2)
        (found,) = executor.run({"a": x, "b": y}, {})
        turned_y = y.transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(found, OF_TWO[name](*((turned_y, x) if swapped else (x, turned_y))))


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize("shape", [(1, 2), (3, 7), (40, 49), (5, 1000), (2, 100_003)])
def test_sums_of_rows(kind, shape):
    x = (RANDOM.standard_normal(shape) + 1).astype(np.float32)
    exact = getattr(x.astype(np.float64), kind)(1)
    for threads in (1, 2, 5):
        found, functions = computed(Reduce(kind, (1,), False), [x], threads, True)
        assert {"sum": "graphc_sum_rows", "mean": "graphc_mean"}[kind] in functions
        np.testing.assert_allclose(found, exact, rtol=3e-7)


@pytest.mark.parametrize("shape", [(1, 2), (3, 7), (40, 16), (5, 1000), (2, 100_003)])
def test_softmax_of_rows(shape):
    x = (RANDOM.standard_normal(shape) * 3).astype(np.float32)
    x[:, 0] = -np.inf
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    for threads in (1, 2, 5):
        found, functions = computed(Softmax(1), [x], threads, True)
        assert "graphc_soft_max" in functions
        np.testing.assert_allclose(found, exact, rtol=3e-6)  # differences of scores are rounded
    for unknown in (np.nan, np.inf):
        x[-1, 1] = unknown
        found, _ = computed(Softmax(1), [x], 2, True)
        assert np.isnan(found[-1]).all()
        assert not np.isnan(found[:-1]).any()


@pytest.mark.parametrize("size", [(7, 7), (8, 8), (14, 14), (16, 16), (33, 30), (70, 65)])
def test_an_image_has_the_same_numbers_in_any_batch(size):
    """How many are computed together decides nothing; in panels of few images and of parts of several."""
    op = Conv((1, 1), (1, 1), (1, 1), (1, 1))
    images, kernel = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((5, 280, *size), (50, 280, 3, 3)))
    together, _ = computed(op, [images, kernel], 2, True)
    for i in (0, 3, 4):
        np.testing.assert_array_equal(computed(op, [images[i : i + 1], kernel], 1, True)[0][0], together[i])


def rounded(x: np.ndarray) -> np.ndarray:
    """To bfloat16 and back."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def filtered(kernel: np.ndarray, axis: int) -> np.ndarray:
    """Three numbers along an axis as Winograd's four, rounded as our code does."""
    first, second, third = (kernel.take(i, axis) for i in range(3))
    outer, inner = (first + third) / 2, second / 2
    return np.stack([first, outer + inner, outer - inner, third], axis)


def by_winograd(image: np.ndarray, kernel: np.ndarray, pads: tuple[int, int]) -> np.ndarray:
    """A convolution of 3 x 3, of transformed tiles and a transformed kernel that are rounded to bfloat16."""
    height, width = (size + 2 * pad - 2 for size, pad in zip(image.shape[2:], pads, strict=True))
    y, x = height % 2, width % 2
    padded = np.pad(image, ((0, 0), (0, 0), (pads[0], pads[0] + y), (pads[1], pads[1] + x)))
    tiles = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), (2, 3))[:, :, ::2, ::2]
    a, b, c, d = (tiles[..., i, :] for i in range(4))
    lines = np.stack([a - c, b + c, c - b, b - d], -2)
    a, b, c, d = (lines[..., i] for i in range(4))
    tiles = np.stack([a - c, b + c, c - b, b - d], -1)
    kernels = filtered(filtered(kernel, 2), 3)
    sums = np.einsum("bituyx,oiyx->botuyx", rounded(tiles), rounded(kernels), optimize=True)
    back = np.float64([[1, 1, 1, 0], [0, 1, -1, -1]])
    pixels = np.einsum("ay,bx,notuyx->notaub", back, back, sums, optimize=True)
    return pixels.reshape(*pixels.shape[:2], height + y, width + x)[:, :, :height, :width]


TILES = getattr(load_own(), "multiplies_tiles", False)
"""True if there is a matrix unit, which needs no Winograd's way for what is rounded, and takes heads of any size."""

needs_pairs = pytest.mark.skipif(
    getattr(load_own(), "multiplies_pairs", False) is False, reason="needs a processor that multiplies bfloat16"
)


def check_fast(op: Op, arrays: list[np.ndarray], expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """What is computed fast, for any number of threads, is what is expected."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    result, *others = (computed(op, arrays, threads, True)[0] for threads in (1, 2, 3))
    assert np.abs(result - expected).max() <= 3e-6 * np.abs(expected).max()
    for each in others:
        np.testing.assert_array_equal(each, result)
    monkeypatch.undo()
    assert np.abs(computed(op, arrays, 1, True)[0] - expected).max() >= 2e-4 * np.abs(expected).max()
    return result


@needs_pairs
@pytest.mark.parametrize(("a", "b"), [each for each in PRODUCTS if each[0][-2] > 8])
def test_fast_products_are_those_of_bfloat16(a, b, monkeypatch):
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in (a, b)]
    check_fast(MatMul(), arrays, rounded(arrays[0]) @ rounded(arrays[1]), monkeypatch)


@needs_pairs
@pytest.mark.parametrize(("image", "kernel", "strides", "pads", "dilations"), ALL_CONVOLUTIONS)
def test_fast_convolutions_are_those_of_bfloat16(image, kernel, strides, pads, dilations, monkeypatch):
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in (image, kernel)]
    op, winograd = (
        Conv(strides, dilations, pads, pads),
        (image, kernel) in [each[:2] for each in WINOGRADS] and not TILES,
    )
    (direct,) = op.eval(*map(rounded, arrays))
    check_fast(op, arrays, by_winograd(*arrays, pads) if winograd else direct, monkeypatch)


DOUBLED = [(1, 40, 9, 7, 33), (2, 16, 1, 1, 20), (1, 96, 5, 70, 40), (1, 20, 2, 600, 3), (2, 70, 16, 16, 64)]
"""Sizes [N, C, H, W] of images, and channels of what they become when they were doubled: lines of up to 1,200 pixels."""


@pytest.mark.skipif(not TILES, reason="needs a matrix unit")
@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
@pytest.mark.parametrize(("images", "channels", "height", "width", "columns"), DOUBLED)
def test_fast_convolutions_of_doubled_images_read_those_that_were_doubled(
    images, channels, height, width, columns, last, monkeypatch
):
    """By kernels of 2 x 2 that are summed up before they are rounded; plus a vector and an image."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    x, added = (
        RANDOM.standard_normal((images, *each)).astype(np.float32)
        for each in ((channels, height, width), (columns, 2 * height, 2 * width))
    )
    kernel, bias = (RANDOM.standard_normal(each).astype(np.float32) for each in ((columns, channels, 3, 3), columns))
    padded = np.pad(rounded(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = added + bias[:, None, None]
    for phase, part in enumerate(undoubled(kernel)):
        y, x_ = divmod(phase, 2)
        (found,) = Conv((1, 1), (1, 1), (0, 0), (0, 0)).eval(
            padded[:, :, y : y + height + 1, x_ : x_ + width + 1], rounded(part)
        )
        expected[:, :, y::2, x_::2] += found
    turn, back = ((0, 2, 3, 1), (0, 3, 1, 2)) if last else ((0, 1, 2, 3), (0, 1, 2, 3))
    b = Builder(Program("doubled"))
    given, plus = (
        b.program.add_input(name, F32, each.transpose(turn).shape, "F32") for name, each in (("x", x), ("added", added))
    )
    w, vector = b.program.add_weight("w", F32, kernel.shape), b.program.add_weight("b", F32, bias.shape)
    sizes = (channels, 2 * width, 2 * height) if last else (2 * width, 2 * height, channels)
    image = b.call("graphc_upscale", given, *sizes, images, Constant("GGML_SCALE_MODE_NEAREST"), last, rank=4)
    if last:
        y = b.call("graphc_conv_2d_last", w, image, vector, 1, 1, 1, 1, 1, 1, 1, 1, False, False, plus, rank=4)
    else:
        y = b.call("graphc_conv_2d", w, image, vector, 1, 1, 1, 1, 1, 1, False, False, plus, rank=4)
    b.program.outputs.append(Output("y", F32, y.shape, y))
    results = []
    for threads in (1, 2, 3):
        executor = Executor(b.program, [kernel, bias], threads=threads)
        for _ in range(2):
            results.append(executor.run({"x": x.transpose(turn), "added": added.transpose(turn)}, {})[0])
        assert "upscale" not in dict(steps_of(executor))
        executor.close()
    assert np.abs(results[0].transpose(back) - expected).max() <= 3e-6 * np.abs(expected).max()
    for each in results:
        np.testing.assert_array_equal(each, results[0])


@pytest.mark.skipif(not TILES, reason="needs a matrix unit")
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["inside", "given"])
@pytest.mark.parametrize(
    ("images", "channels", "height", "width", "kernel"), [(2, 48, 9, 37, 3), (1, 33, 70, 16, 1), (2, 20, 1, 1, 3)]
)
def test_fast_convolutions_normalize_what_they_read(images, channels, height, width, kernel, silu, given, monkeypatch):
    """On the way, and the image itself is made where others read it."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    x = 3 + RANDOM.standard_normal((images, channels, height, width)).astype(np.float32)
    weights = [
        RANDOM.standard_normal(each).astype(np.float32)
        for each in ((24, channels, kernel, kernel), (channels,), (channels,))
    ]
    groups, pad = (channels if channels == 33 else 4), kernel // 2
    rows = x.reshape(images, groups, -1).astype(np.float64)
    y = ((rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)).reshape(x.shape)
    y = y * weights[1][:, None, None] + weights[2][:, None, None]
    y = y / (1 + np.exp(-y)) if silu else y
    (expected,) = Conv((1, 1), (1, 1), (pad, pad), (pad, pad)).eval(y, weights[0].astype(np.float64))
    b = Builder(Program("normalized"))
    image = b.program.add_input("x", F32, x.shape, "F32")
    w, scale, shift = (b.program.add_weight(f"w{i}", F32, each.shape) for i, each in enumerate(weights))
    normal = b.call("graphc_group_norm", image, scale, shift, groups, 1e-5, silu, rank=4)
    found = b.call("graphc_conv_2d", w, normal, None, 1, 1, pad, pad, 1, 1, False, False, rank=4)
    for each in [found, normal] if given else [found]:
        b.program.outputs.append(Output(f"y{len(b.program.outputs)}", F32, each.shape, each))
    results = []
    for threads in (1, 2, 3):
        executor = Executor(b.program, weights, threads=threads)
        results.append(executor.run({"x": x}, {}))
        met = dict(steps_of(executor))
        assert ("group_norm" in met, "group_norm_terms" in met) == (given, True)
        executor.close()
    assert (
        np.abs(results[0][0] - expected).max()
        <= 2**-8 * np.abs(weights[0]).max() * np.sqrt(channels) * kernel * np.abs(y).max()
    )
    if given:
        np.testing.assert_allclose(results[0][1], y, atol=2e-5)
    for each in results:
        for one, other in zip(each, results[0], strict=True):
            np.testing.assert_array_equal(one, other)


@needs_pairs
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("q", "keys", "values", "hidden"),
    [((1, 2, 70, 40), 300, 24, False), ((2, 4, 300, 17), 601, 50, True), ((1, 1, 20, 128), 1, 128, False),
     ((1, 1, 40, 300), 77, 9, True)],
)  # fmt: skip
def test_fast_attention_is_that_of_bfloat16(q, keys, values, hidden, turned, monkeypatch):
    """Queries, keys and values are rounded, and exponentials, but not their sum; large heads by a matrix unit alone."""
    shapes = q, (*q[:2], keys, q[3]), (*q[:2], keys, values)
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) for shape in shapes]
    arrays += [masked(q[2], keys)] if hidden else []
    graph = Graph()
    inputs = dict(zip("qkvm", arrays, strict=False))
    if turned:
        inputs["v"] = np.ascontiguousarray(arrays[2].swapaxes(2, 3))
    given = [graph.input(name, TensorType(each.dtype, each.shape)) for name, each in inputs.items()]
    given[2] = graph.add(Transpose((0, 1, 3, 2)), [given[2]]).output if turned else given[2]
    graph.output(graph.add(Attention(0.3), given).output, "y")
    found = {}
    for precision, threads in (("highest", 1), ("high", 1), ("high", 2), ("high", 3)):
        monkeypatch.setattr("graphc.backends.precision._chosen", precision)
        executor = Executor(lower(graph), [], threads=threads)
        (found[precision, threads],) = executor.run(inputs, {})
        executor.close()
    usual, result = found["highest", 1], found["high", 1]
    np.testing.assert_array_equal(found["high", 2], result)
    np.testing.assert_array_equal(found["high", 3], result)
    if q[3] > 128 and not TILES:
        np.testing.assert_array_equal(usual, result)
        return
    unit = np.float32(1 if hidden else 1.44269504)  # scores without masks are powers of 2
    scores = np.einsum("bhqd,bhkd->bhqk", rounded(arrays[0] * (np.float32(0.3) * unit)), rounded(arrays[1])) / unit
    scores = scores + (arrays[3] if hidden else 0)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    error = np.abs(result - shares @ rounded(arrays[2]))
    assert (error <= 2**-8 * (shares @ np.abs(arrays[2])) + 1e-6).all()
    assert np.abs(result - usual).max() > 1e-4


@needs_pairs
def test_what_is_no_number_stays_so_in_fast_products(monkeypatch):
    """Numbers that round to infinity, infinity and NaN, also one whose bits are all in the lower half."""
    monkeypatch.setattr("graphc.backends.precision._chosen", "high")
    x = np.eye(40, dtype=np.float32)
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = 3.4e38, -np.inf, np.nan, np.uint32(0x7F800001).view(np.float32)
    result, _ = computed(MatMul(), [x, np.ones((40, 33), np.float32)], 1, True)
    np.testing.assert_array_equal(result[:, 0], [np.inf, -np.inf, np.nan, np.nan] + [1] * 36)


def masked(queries: int, keys: int) -> np.ndarray:
    """Some keys hidden from each query, and all of a block of them from the first."""
    mask = np.where(RANDOM.random((queries, keys)) < 0.3, -np.inf, RANDOM.standard_normal((queries, keys)))
    mask[0, : min(256, keys - 1)] = -np.inf
    return mask.astype(np.float32)


@pytest.mark.parametrize(
    ("q", "k", "v", "mask"),
    [
        ((1, 2, 70, 40), (1, 2, 300, 40), (1, 2, 300, 24), False),
        ((2, 4, 33, 16), (2, 2, 600, 16), (2, 2, 600, 50), True),
        ((1, 1, 16, 512), (1, 1, 20, 512), (1, 1, 20, 512), True),
        ((1, 3, 300, 8), (1, 3, 1, 8), (1, 3, 1, 8), False),
        ((1, 1, 2, 8), (1, 1, 9, 8), (1, 1, 9, 8), True),
    ],
)
def test_attention(q, k, v, mask):
    arrays = [RANDOM.standard_normal(shape).astype(np.float32) * 2 for shape in (q, k, v)]
    arrays += [masked(q[2], k[2])] if mask else []
    op = Attention(0.3)
    (exact,) = op.eval(*(array.astype(np.float64) for array in arrays))
    results = [computed(op, arrays, threads, own)[0] for threads, own in ((1, True), (2, True), (3, True), (2, False))]
    scores = 0.3 * np.einsum("bhqd,bhkd->bhqk", arrays[0], arrays[1].repeat(q[1] // k[1], 1))
    bound = 2e-6 + np.spacing(np.abs(scores).max())  # a score's rounding error is its exponential's relative error
    for result in results[:3]:
        assert np.abs(result - exact).max() <= bound * np.abs(exact).max()
        np.testing.assert_array_equal(result, results[0])
    assert np.abs(results[3] - exact).max() <= bound * np.abs(exact).max()


@pytest.mark.parametrize("turned", [False, True])
def test_attention_of_views(turned):
    """Heads beside one another, before and after, and values in either order: nothing is copied."""
    arrays = {name: RANDOM.standard_normal((2, 70, 3, 24)).astype(np.float32) for name in "qkv"}
    exact = Attention(0.3).eval(*(array.astype(np.float64).transpose(0, 2, 1, 3) for array in arrays.values()))[0]
    arrays["v"] = np.ascontiguousarray(arrays["v"].transpose(0, 2, 3, 1)) if turned else arrays["v"]
    graph = Graph()
    q, k, v = (
        graph.add(Transpose(axes), [graph.input(name, TensorType(array.dtype, array.shape))]).output
        for axes, (name, array) in zip(
            [(0, 2, 1, 3)] * 2 + [(0, 1, 3, 2) if turned else (0, 2, 1, 3)], arrays.items(), strict=True
        )
    )
    result = graph.add(Transpose((0, 2, 1, 3)), [graph.add(Attention(0.3), [q, k, v]).output]).output
    graph.output(graph.add(Reshape((2, 70, 72)), [result]).output, "y")
    met = close_to(exact.transpose(0, 2, 1, 3).reshape(2, 70, 72), lower(graph), arrays)
    assert [step for step in met if step[0] not in ("RESHAPE", "PERMUTE")] == [("attention", 3)]


@pytest.mark.parametrize(("queries", "keys"), [(64, 64), (49, 49), (16, 5), (1, 70), (33, 300)])
@pytest.mark.parametrize("depth", [10, 16, 1])
def test_attention_with_several_masks(queries, keys, depth):
    """A mask for each window, one for each head and one for all: what ggml is given is their sum."""
    arrays = [RANDOM.standard_normal((4, 3, count, depth)).astype(np.float32) for count in (queries, keys, keys)]
    arrays += [RANDOM.standard_normal((*lead, queries, keys)).astype(np.float32) for lead in ((4, 1), (1, 3), ())]
    op = Attention(0.3)
    (exact,) = op.eval(*(array.astype(np.float64) for array in arrays))
    results = [computed(op, arrays, threads, own)[0] for threads, own in ((1, True), (3, True), (2, False))]
    np.testing.assert_array_equal(results[0], results[1])
    for result in results:
        assert np.abs(result - exact).max() <= 3e-6 * np.abs(exact).max()


def test_a_query_that_sees_nothing_has_no_result():
    arrays = [RANDOM.standard_normal((1, 1, 40, 8)).astype(np.float32) for _ in "qkv"]
    arrays.append(np.zeros((40, 40), np.float32))
    arrays[3][7] = -np.inf
    result, _ = computed(Attention(1.0), arrays, 2, True)
    assert np.isnan(result[0, 0, 7]).all()
    assert np.isfinite(np.delete(result, 7, 2)).all()


@pytest.mark.parametrize("hidden", [np.finfo(np.float32).min, -2.4e38, -1e30])
def test_a_query_that_hides_all_keys_alike_sees_them_alike(hidden):
    """As models mask with the least number: scores are nothing beside it."""
    arrays = [RANDOM.standard_normal((1, 1, 40, 8)).astype(np.float32) for _ in "qkv"]
    arrays.append(np.zeros((40, 40), np.float32))
    arrays[3][7] = arrays[3][8, 3:] = hidden
    result, _ = computed(Attention(1.0), arrays, 2, True)
    np.testing.assert_allclose(result[0, 0, 7], arrays[2][0, 0].mean(0), atol=1e-6)
    np.testing.assert_allclose(
        result, Attention(1.0).eval(*(each.astype(np.float64) for each in arrays))[0], atol=2e-6, rtol=1e-5
    )


def test_gelu():
    x = np.concatenate([np.linspace(-12, 12, 200_001), [0, 1e-30, 1e-6, 0.9999, 1.0001, np.inf, -np.inf, np.nan]])
    x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        (exact,) = Gelu("none").eval(x.astype(np.float64))
        result, functions = computed(Gelu("none"), [x], 2, True)
    assert functions == ["graphc_gelu"]
    error = np.abs(result[:-3] - exact[:-3]) / np.maximum(np.abs(x[:-3]), 1)
    assert error.max() < 2.2e-7  # of the factor: 1 + erf(x) cancels for negative numbers; PyTorch has 3.6e-7
    np.testing.assert_array_equal(result[-3:], [np.inf, np.nan, np.nan])


FAR = [0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 8192, 8193, 1e6, -1e9, 3e38, 88.6, 88.73, 89, -87.3, -104, -200]
"""Numbers that no wave, and no exponential, is computed of as of others."""


@pytest.mark.parametrize(
    ("op", "exact", "units"),
    [
        (Unary("Sin"), np.sin, 2), (Unary("Cos"), np.cos, 2), (Unary("Exp"), np.exp, 1.5), (Unary("Tanh"), np.tanh, 3.5),
        (Elu(1.0), lambda x: np.where(x < 0, np.expm1(x), x), 1.5),
    ],
    ids=["sine", "cosine", "exponential", "hyperbolic tangent", "ELU"],
)  # fmt: skip
def test_functions_of_each_element(op, exact, units):
    """To so many units in the last place, near 0 and far from it, and for what is not a number or not finite."""
    parts = [RANDOM.standard_normal(50_001) * scale for scale in (1e-3, 1, 30, 4000)]
    x = np.concatenate([*parts, FAR, np.zeros(600), FAR]).astype(np.float32)
    with np.errstate(all="ignore"):
        right = exact(x.astype(np.float64))
        rounded = right.astype(np.float32)
        for threads in (1, 3):
            found, functions = computed(op, [x], threads, True)
            assert functions == [f"graphc_{op.name.lower()}"]
            finite = np.isfinite(rounded)
            np.testing.assert_array_equal(found[~finite], rounded[~finite])
            error = np.abs(found[finite] - right[finite]) / np.spacing(np.maximum(np.abs(rounded[finite]), 1e-37))
            assert error.max() < units


@pytest.mark.parametrize("op", [Gelu("none"), Gelu("tanh"), Unary("Silu")], ids=str)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("shape", [(3, 70), (2, 5, 64), (7,)])
def test_activations_that_gate(op, order, shape):
    """Times another tensor, left or right of it: one function."""
    arrays = {name: RANDOM.standard_normal(shape).astype(np.float32) for name in "xz"}
    graph = Graph()
    x, z = (graph.input(name, TensorType(array.dtype, shape)) for name, array in arrays.items())
    pair = (graph.add(op, [x]).output, z)
    graph.output(graph.add(Binary("Mul"), [pair[place] for place in order]).output, "y")
    exact = op.eval(arrays["x"].astype(np.float64))[0] * arrays["z"]
    assert close_to(exact, lower(graph), arrays) == [("activate", 2)]


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("shape", [(2, 8, 5, 7), (1, 64, 33, 40), (1, 4, 1, 1)])
def test_group_normalization(shape, silu):
    """With its scale and shift, and SiLU: one function in the place of three or four calls."""
    channels, groups = shape[1], 4
    x = (RANDOM.standard_normal(shape) * 3 + 100).astype(np.float32)
    scale, shift = (RANDOM.standard_normal(channels).astype(np.float32) for _ in "ab")
    graph = Graph()
    values = [graph.input("x", TensorType(x.dtype, shape)), graph.constant(scale), graph.constant(shift)]
    result = graph.add(GroupNorm(groups, 1e-5), values).output
    result = graph.add(Unary("Silu"), [result]).output if silu else result
    graph.output(result, "y")
    program = lower(graph)
    assert "ggml_group_norm" in [call.function for call in program.calls]
    wide = x.astype(np.float64).reshape(shape[0], groups, -1)
    exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    exact = exact.reshape(shape) * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)
    exact = exact / (1 + np.exp(-exact)) if silu else exact
    close_to(exact, program, {"x": x})


def named(executor: Executor, node) -> tuple[str, int]:
    """What computes a node: a function of ours with the number of operands that it reads, or one of ggml's with none."""
    name = executor.own.function_of(node) if executor.uses_own else ""
    operands = sum(map(bool, node.contents.src)) - (name == "winograd")  # which reads what was transformed for it, too
    return (name, operands) if name else (ggml.ggml_op_desc(node).decode(), 0)


def steps_of(executor: Executor) -> list[tuple[str, int]]:
    """What computes the nodes of its only graph, one after the other."""
    (graph,) = executor.graphs
    return [named(executor, ggml.ggml_graph_node(graph.graph, i)) for i in range(ggml.ggml_graph_n_nodes(graph.graph))]


def close_to(
    exact: np.ndarray, program: Program, inputs: dict[str, np.ndarray], choices: bytes = b""
) -> list[tuple[str, int]]:
    """Check that our own code is as exact as ggml, for any number of threads. The steps: ours with the number of tensors that
    they read, ggml's with none."""
    found = []
    for threads, own in ((2, False), (1, True), (2, True)):
        executor = Executor(program, [evaluate(weight.value) for weight in program.weights], threads=threads)
        executor.uses_own, executor.choices = own, choices
        found += executor.run(inputs, {})
        met = steps_of(executor)
        executor.close()
    np.testing.assert_array_equal(found[1], found[2])
    errors = [np.abs(each - exact).max() for each in found]
    rounding = 2e-6 if "winograd" in [name for name, _ in met] else 1e-6
    assert errors[1] <= 2 * errors[0] + rounding * np.abs(exact).max()
    return met


@pytest.mark.parametrize("op", [LayerNorm(2, 1e-5), RMSNorm(2, 1e-5)])
@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("size", [2, 77, 1280])
def test_normalization_of_rows(op, count, size):
    """With a scale, and a scale and a shift, if there are: one function in the place of up to three calls."""
    x = (RANDOM.standard_normal((2, 9, size)) * 3 + 2).astype(np.float32)
    graph = Graph()
    factors = [RANDOM.standard_normal(size).astype(np.float32) for _ in range(count)]
    result = graph.add(op, [graph.input("x", TensorType(x.dtype, x.shape))]).output

    for name, factor in zip(("Mul", "Add"), factors, strict=False):
        result = graph.add(Binary(name), [result, graph.constant(factor)]).output
    graph.output(result, "y")
    exact = x.astype(np.float64)
    exact = exact - exact.mean(-1, keepdims=True) if isinstance(op, LayerNorm) else exact
    exact = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5)
    for factor, join in zip(factors, (np.multiply, np.add), strict=False):
        exact = join(exact, factor)
    assert close_to(exact, lower(graph), {"x": x})[-1] == ("norm", 1 + count)


@pytest.mark.parametrize(
    "op", [LayerNorm(3, 1e-5), RMSNorm(3, 1e-5), LpNorm(3, 2, 1e-12), LpNorm(3, 2, 0.0), LpNorm(3, 2, 3.0)]
)
@pytest.mark.parametrize("size", [1, 3, 8, 10, 15, 16, 17, 31, 32, 33, 60, 1024, 1025, 3000])
def test_normalization_of_heads_beside_one_another(op, size):
    """Rows of any length, where they lie: the last one ends where memory does."""
    x = (RANDOM.standard_normal((2, 7, 3, size)) * 3 + 2).astype(np.float32)
    graph = Graph()
    heads = graph.add(Transpose((0, 2, 1, 3)), [graph.input("x", TensorType(x.dtype, x.shape))]).output
    graph.output(graph.add(op, [heads]).output, "y")
    (exact,) = op.eval(x.astype(np.float64).transpose(0, 2, 1, 3))
    met = close_to(exact, lower(graph), {"x": x})
    assert [step for step in met if step[0] != "PERMUTE"][-1] == ("norm", 1)
    assert isinstance(op, LpNorm) <= (len(met) == 2), "nothing is copied"


SUMS = [
    ((2, 3, 5, 7), [(7,), (1, 3, 1, 1), (2, 3, 5, 7)]),
    ((2, 3, 5, 7), [(), (2, 1, 5, 1)]),
    ((1, 40, 9, 33), [(40, 1, 1), (40, 1, 1)]),
    ((2, 6, 64), [(64,), (64,), (2, 6, 64), (2, 1, 64), (1,), (2, 6, 1)]),
    ((3000,), [(3000,), (1,)]),
    ((1, 1, 1, 1), [(1,), (1,)]),
    ((3, 1, 2050), [(1, 1, 2050), (3, 1, 1)]),
]
"""What is multiplied and added: whole tensors, and what serves rows, columns, planes and all."""


@pytest.mark.parametrize("activation", [None, "Silu", "Relu", "Clip"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("shape", "others"), SUMS, ids=str)
def test_what_follows_one_another_is_summed_at_once(shape, others, scaled, activation):
    """The same bits for any number of threads, in one step."""
    arrays = {"x": RANDOM.standard_normal(shape).astype(np.float32)}
    arrays |= {f"other{i}": RANDOM.standard_normal(each).astype(np.float32) for i, each in enumerate(others)}
    graph = Graph()
    result, *values = (graph.input(name, TensorType(each.dtype, each.shape)) for name, each in arrays.items())
    exact = arrays["x"].astype(np.float64)
    for index, (value, other) in enumerate(zip(values, list(arrays.values())[1:], strict=True)):
        multiplies = scaled and index == 0
        result = graph.add(
            Binary("Mul" if multiplies else "Add"), [result, value] if index % 2 == 0 else [value, result]
        ).output
        exact = exact * other if multiplies else exact + other
    if activation == "Clip":
        result, exact = graph.add(Clip(-0.5, 0.75), [result]).output, exact.clip(-0.5, 0.75)
    elif activation is not None:
        op = Unary(activation)
        result, (exact,) = graph.add(op, [result]).output, op.eval(exact)
    graph.output(result, "y")
    met = close_to(exact, lower(graph), arrays)
    steps = [step for step in met if step[0] not in ("RESHAPE", "PERMUTE")]
    assert steps == ([("scaled_sum", 1 + len(others))] if len(others) + (activation is not None) > 1 else steps)


def test_what_others_read_too_is_a_step_of_its_own():
    x = RANDOM.standard_normal((3, 20)).astype(np.float32)
    graph = Graph()
    given = graph.input("x", TensorType(x.dtype, x.shape))
    doubled = graph.add(Binary("Add"), [given, graph.constant(RANDOM.standard_normal(20).astype(np.float32))]).output
    graph.output(doubled, "between")
    graph.output(graph.add(Unary("Silu"), [doubled]).output, "y")
    program = composed(lower(graph))
    assert [call.function for call in program.calls] == ["graphc_add", "graphc_silu"]


@pytest.mark.parametrize(("least", "zeros"), [(0.0, np.nan), (1e-12, 0.0)])
def test_rows_without_length(least, zeros):
    """Divided by nothing, or by the least number; what is not a number stays so."""
    x = np.zeros((3, 20), np.float32)
    x[1, 4], x[2, 5] = 2, np.nan
    graph = Graph()
    graph.output(graph.add(LpNorm(1, 2, least), [graph.input("x", TensorType(x.dtype, x.shape))]).output, "y")
    with closing(Executor(lower(graph), [], threads=1)) as executor:
        (found,) = executor.run({"x": x}, {})
    np.testing.assert_array_equal(found, np.stack([np.full(20, zeros), x[1] / 2, np.full(20, np.nan)]))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("shape", "order", "cos"),
    [((9, 6), (0, 1), (9, 6)), ((2, 3, 5, 70), (0, 2, 1, 3), (5, 1, 70)), ((1, 40, 3, 64), (0, 1, 2, 3), (40, 1, 32)),
     ((2, 4, 7, 12), (0, 1, 2, 3), (2, 1, 7, 10))],
)  # fmt: skip
def test_rotary_embeddings(shape, order, cos, interleaved):
    """Of rows in order, or of heads that lie beside one another; of whole rows, or a part of each: one function."""
    arrays = {
        name: RANDOM.standard_normal(size).astype(np.float32)
        for name, size in zip("xcs", (shape, cos, cos), strict=True)
    }
    graph, op = Graph(), RotaryEmbedding(interleaved)
    x, *angles = (graph.input(name, TensorType(array.dtype, array.shape)) for name, array in arrays.items())
    moved = graph.add(Transpose(order), [x]).output
    graph.output(graph.add(op, [moved, *angles]).output, "y")
    (exact,) = op.eval(arrays["x"].astype(np.float64).transpose(order), arrays["c"], arrays["s"])
    met = [step for step in close_to(exact, lower(graph), arrays) if step[0] not in ("VIEW", "PERMUTE")]
    assert met == [("rotary", 3 if shape[-1] == cos[-1] else 4)]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64], ids=str)
@pytest.mark.parametrize(("axis", "count"), [(0, 2), (1, 3), (2, 5), (3, 4), (2, 10)])
def test_concatenations(axis, count, dtype):
    """Of two tensors and more, of which some are views: one function, or a few."""
    shapes = [
        tuple(size + (i if place == axis else 0) for place, size in enumerate((2, 3, 4, 9))) for i in range(count)
    ]
    arrays = {f"x{i}": (RANDOM.standard_normal(shape) * 40).astype(dtype) for i, shape in enumerate(shapes)}
    graph = Graph()
    values = [graph.input(name, TensorType(array.dtype, array.shape)) for name, array in arrays.items()]
    graph.output(graph.add(Concat(axis), values).output, "y")
    met = close_to(np.concatenate(list(arrays.values()), axis), lower(graph), arrays)
    assert met == ([("concat", count)] if count <= 8 else [("concat", 8), ("concat", count - 7)])


@pytest.mark.parametrize(
    ("shape", "order"),
    [((40, 70), (1, 0)), ((2, 3, 37, 16), (0, 1, 3, 2)), ((2, 33, 5, 18), (0, 3, 2, 1)), ((5, 7, 48, 3), (3, 1, 2, 0)),
     ((3, 20, 4, 33), (0, 3, 1, 2)), ((1, 64, 17, 1), (0, 2, 3, 1)), ((5, 2, 300), (0, 2, 1)), ((3, 4, 9000), (0, 2, 1)),
     ((2, 3, 700, 1), (0, 2, 1, 3)), ((2, 300, 3), (0, 2, 1)), ((1, 77, 4, 5), (0, 2, 3, 1)), ((3, 9, 40, 2), (3, 0, 1, 2))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8], ids=str)
def test_copies_that_have_another_axis_first(shape, order, dtype):
    graph, x = Graph(), (RANDOM.standard_normal(shape) * 40).astype(dtype)
    moved = graph.add(Transpose(order), [graph.input("x", TensorType(x.dtype, shape))]).output
    graph.output(graph.add(Reshape((x.size,)), [moved]).output, "y")
    assert ("permuted_copy", 1) in close_to(x.transpose(order).reshape(-1), lower(graph), {"x": x})


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (2, 0, 1, 3), (0, 2, 1, 3)])
@pytest.mark.parametrize(
    ("depth", "dtype"),
    [(8, np.float32), (17, np.float32), (64, np.float32), (17, np.int64), (35, np.uint8), (19, np.float16)],
)
def test_copies_of_rows_in_another_order(order, depth, dtype):
    graph, x = Graph(), (RANDOM.standard_normal((5, 9, 6, depth)) * 40).astype(dtype)
    moved = graph.add(Transpose(order), [graph.input("x", TensorType(x.dtype, x.shape))]).output
    graph.output(graph.add(Reshape((x.size,)), [moved]).output, "y")
    assert ("row_copy", 1) in close_to(x.transpose(order).reshape(-1), lower(graph), {"x": x})


@pytest.mark.parametrize(("starts", "sizes", "steps"), [
    ((0, 0, 0), (3, 20, 35), (1, 1, 2)),
    ((0, 1, 1), (3, 39, 34), (1, 1, 2)),
])  # fmt: skip
def test_copies_of_every_second_element(starts, sizes, steps):
    graph, x = Graph(), RANDOM.standard_normal((3, 40, 70)).astype(np.float32)
    part = graph.add(Slice(starts, sizes, steps), [graph.input("x", TensorType(x.dtype, x.shape))]).output
    graph.output(graph.add(Reshape((np.prod(sizes).item(),)), [part]).output, "y")
    taken = tuple(slice(a, a + n * s, s) for a, n, s in zip(starts, sizes, steps, strict=True))
    assert ("row_copy", 1) in close_to(x[taken].reshape(-1), lower(graph), {"x": x})


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
@pytest.mark.parametrize(
    ("before", "after"), [((0, 0, 0, 0), (0, 0, 1, 1)), ((1, 2, 3, 4), (2, 1, 0, 3)), ((0, 3, 0, 0), (0, 0, 0, 0))]
)
def test_zeros_around(before, after, order):
    """Of a tensor as it is, and of one whose rows lie otherwise in memory."""
    graph, x = Graph(), RANDOM.standard_normal((2, 5, 3, 19)).astype(np.float32)
    moved = graph.add(Transpose(order), [graph.input("x", TensorType(x.dtype, x.shape))]).output
    graph.output(graph.add(Pad(before, after), [moved]).output, "y")
    exact = np.pad(x.transpose(order), list(zip(before, after, strict=True)))
    assert ("pad", 1) in close_to(exact, lower(graph), {"x": x})


@pytest.mark.parametrize(("order", "by"), [((0, 1, 2), ("concat", 2)), ((1, 0, 2), ("CONCAT", 0))])
def test_rows_that_are_short_are_joined_by_ggml_if_they_lie_apart(order, by):
    graph = Graph()
    arrays = {name: RANDOM.standard_normal((3, 5, 4)).astype(np.float32) for name in "ab"}
    values = [graph.input(name, TensorType(array.dtype, array.shape)) for name, array in arrays.items()]
    moved = [graph.add(Transpose(order), [value]).output for value in values]
    graph.output(graph.add(Concat(0), moved).output, "y")
    exact = np.concatenate([array.transpose(order) for array in arrays.values()])
    assert by in close_to(exact, lower(graph), arrays)


SUMMED = {
    "conv_2d": (
        Conv((2, 2), (1, 1), (1, 1), (1, 1)),
        (2, 40, 32, 40),
        (56, 40, 3, 3),
        [(56, 1, 1), (2, 56, 1, 1), (16, 20)],
    ),
    "winograd": (
        Conv((1, 1), (1, 1), (1, 1), (1, 1)),
        (2, 40, 17, 25),
        (56, 40, 3, 3),
        [(56, 1, 1), (1, 56, 17, 25), ()],
    ),
    "mul_mat": (MatMul(), (2, 3, 100, 70), (2, 3, 70, 90), [(90,), (2, 1, 100, 90), (3, 1, 90), (100, 1)]),
}


ONES = {
    "conv_2d": (Conv((1, 1), (1, 1), (1, 0), (1, 0)), (2, 3, 40, 1), (5, 3, 3, 1), [(2, 5, 40, 1), (5, 1, 1), (1, 5, 40, 1)]),
    "winograd": (Conv((1, 1), (1, 1), (1, 1), (1, 1)), (2, 20, 90, 1), (5, 20, 3, 3), [(2, 5, 90, 1), (2, 1, 90, 1), ()]),
    "mul_mat": (MatMul(), (2, 1, 40, 9), (9, 1), [(2, 1, 40, 1), (40, 1), (1,)]),
}  # fmt: skip
"""The same for results of width 1."""

NARROW = b"conv_2d f32 3x3x20x5 1x90x20x2 stride 1x1 pad 1x1 dilation 1x1 = winograd"
"""That one's way, which takes longer there."""


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("name", "case"), [*SUMMED.items(), *ONES.items()])
def test_sums(name, case, relu):
    """What is added to a product, left or right of it, is added on the way, and ReLU taken of the sum; after that, nothing."""
    op, first, second, sums = case
    arrays = {
        f"x{i}": RANDOM.standard_normal(shape).astype(np.float32) * 3 for i, shape in enumerate([first, second, *sums])
    }
    graph = Graph()
    values = [graph.input(key, TensorType(array.dtype, array.shape)) for key, array in arrays.items()]
    result = graph.add(op, values[:2]).output
    (exact,) = op.eval(*(arrays[f"x{i}"].astype(np.float64) for i in range(2)))
    for i, value in enumerate(values[2:]):
        result = graph.add(Binary("Add"), [result, value] if i % 2 else [value, result]).output
        exact = exact + arrays[value.name]
    if relu:
        rectified = graph.add(Unary("Relu"), [result]).output
        result = graph.add(Binary("Add"), [rectified, values[2]]).output
        exact = np.maximum(exact, 0) + arrays["x2"]
    graph.output(result, "y")
    assert (name, 2 + len(sums)) in close_to(exact, lower(graph), arrays, NARROW)


@pytest.mark.parametrize("shape", [(5, 7), (3, 64, 65)])
@pytest.mark.parametrize("name", ["silu", "quick", "tanh"])
def test_gates(name, shape):
    """x times a sigmoid of it: one function, exact to rounding."""
    x = (RANDOM.standard_normal(shape) * 6).astype(np.float32)
    wide = x.astype(np.float64)
    inside = {"quick": 1.702 * wide, "tanh": np.sqrt(8 / np.pi) * (wide + 0.044715 * wide**3)}.get(name, wide)
    graph = Graph()
    value = graph.input("x", TensorType(x.dtype, x.shape))
    op = {"silu": Unary("Silu"), "quick": Swish(1.702), "tanh": Gelu("tanh")}[name]
    result = graph.add(op, [value]).output
    graph.output(result, "y")
    assert close_to(wide / (1 + np.exp(-inside)), lower(graph), {"x": x}) == [("activate", 1)]


@pytest.mark.parametrize("op", [Unary("Silu"), Gelu("tanh")])
def test_gates_far_from_zero(op):
    x = np.array([-1e30, -200, 0, 200, 1e30, np.inf, np.nan] * 5, np.float32)
    result, _ = computed(op, [x], 2, True)
    np.testing.assert_array_equal(result, np.where(x < 0, 0, x))


def test_relu_keeps_what_is_not_a_number():
    x = RANDOM.standard_normal((3, 5, 77)).astype(np.float32)
    x[0, 1, 2:5] = np.nan, np.inf, -np.inf
    result, functions = computed(Unary("Relu"), [x], 2, True)
    assert functions == ["graphc_relu"]
    np.testing.assert_array_equal(result, np.maximum(x, 0))


def test_what_is_not_finite_stays_so():
    a, b = (RANDOM.standard_normal((64, 64)).astype(F32) for _ in "ab")
    a[3, 4], b[5, 6] = np.nan, np.inf
    with np.errstate(all="ignore"):
        (right,) = MatMul().eval(a, b)
    found, _ = computed(MatMul(), [a, b], 2, True)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(right))


@pytest.mark.parametrize("channels", [1, 16, 40])
@pytest.mark.parametrize(
    ("image", "sides"),
    [((20, 30), (3, 3)), ((70, 90), (3, 3)), ((1, 200), (3, 3)), ((9, 70), (1, 3)), ((50, 14), (3, 1))],
)
@pytest.mark.parametrize("place", ["image", "kernel", "both", "large"])
def test_winograd_with_numbers_that_are_not_finite(place, image, sides, channels):
    """Each pixel is what the sum of its products is, finite or not; in units of all sizes, and for any number of threads."""
    x = RANDOM.standard_normal((2, channels, *image)).astype(np.float32)
    kernel = RANDOM.standard_normal((5, channels, *sides)).astype(np.float32)
    if place in ("image", "both"):
        x[0, 0, 0, 0], x[1, -1, -1, -1], x[0, channels // 2, 0, 11] = np.inf, -np.inf, np.nan
    if place in ("kernel", "both"):
        kernel[1, 0, sides[0] // 2, sides[1] // 2], kernel[2, -1, 0, -1] = np.inf, np.nan
    if place == "large":
        kernel = np.abs(kernel)  # sums that are not finite are so in any order
        x[1, 0, 0, 5:8], kernel[3] = 3e38, 0.25
    graph = Graph()
    values = [graph.input(name, TensorType(F32, array.shape)) for name, array in (("x", x), ("kernel", kernel))]
    pads = (sides[0] // 2, sides[1] // 2)
    graph.output(graph.add(Conv((1, 1), (1, 1), pads, pads), values).output, "y")
    results = {}
    for way, threads in (("tiles", 2), ("winograd", 1), ("winograd", 3)):
        executor = Executor(lower(graph), [], threads=threads)
        executor.run({"x": x, "kernel": kernel}, {})
        ((taken,),) = (made.taken.values() for made in executor.graphs)
        executor.choices = f"{taken.key} = {way}".encode()
        executor.forget()
        (results[way, threads],) = executor.run({"x": x, "kernel": kernel}, {})
        assert [each.way for made in executor.graphs for each in made.taken.values()] == [way]
        executor.close()
    right, found, again = results.values()
    np.testing.assert_array_equal(found, again)
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(right))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(right))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    finite = np.isfinite(right)
    np.testing.assert_allclose(found[finite], right[finite], rtol=1e-4, atol=1e-4)
    assert finite.any()
    assert not finite.all()


def test_the_kernel_of_a_small_image_stays_until_it_is_read():
    """Each part of it is transformed when it is needed: until then its memory is not given to another result."""
    arrays = {"x": RANDOM.standard_normal((2, 64, 14, 14)), "kernel": RANDOM.standard_normal((64, 64, 3, 3))}
    graph = Graph()
    x, kernel = (graph.input(name, TensorType(F32, array.shape)) for name, array in arrays.items())
    computed = graph.add(Unary("Neg"), [graph.add(Unary("Abs"), [kernel]).output]).output
    graph.output(graph.add(Conv((1, 1), (1, 1), (1, 1), (1, 1)), [x, computed]).output, "y")
    inputs = {name: array.astype(np.float32) for name, array in arrays.items()}
    (exact,) = Conv((1, 1), (1, 1), (1, 1), (1, 1)).eval(arrays["x"], -np.abs(arrays["kernel"]))
    assert ("winograd", 2) in close_to(exact, lower(graph), inputs)


def test_a_compiler_that_cannot_do_it(monkeypatch):
    monkeypatch.setattr("graphc.targets.ggml.run.choose.library.source", lambda: "#error no")
    load_own.cache_clear()
    try:
        with remarked("ggml computes everything"):
            assert load_own() is None
    finally:
        load_own.cache_clear()


def test_the_code_is_compiled_once():
    products = load_own()
    assert products is not None
    assert load_own() is products


@pytest.mark.parametrize("shape", [(1,), (15,), (16,), (3, 7, 5), (70_000,)])
@pytest.mark.parametrize(("source", "target"), [(F32, F16), (F16, F32), (BF16, F32), (BF16, F16)])
def test_numbers_of_another_type(source, target, shape):
    """Each the nearest, ties to even, the smallest and those that are none too; by vectors and behind them, by two threads."""
    graph = Graph()
    x = graph.input("x", TensorType(source, shape))
    graph.output(graph.add(Cast(target), [x]).output, "y")
    count = np.prod(shape)
    bits = RANDOM.integers(0, 2**32, count, np.uint64).astype(np.uint32 if source == F32 else np.uint16)
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.9, 65520, 1e-8, 5.96e-8, 2.98e-8, 2.99e-8, 1 + 2**-11]
    )
    with np.errstate(all="ignore"):
        values = bits.view(source)
        values[: len(special)] = special.astype(source)[:count]
        values = values.reshape(shape)
        expected = values.astype(F32).astype(target)
    executor = Executor(lower(graph), [], threads=2)
    (found,) = executor.run({"x": values}, {})
    (placed,) = executor.graphs
    assert list(placed.own.values()) == ["cast"]
    np.testing.assert_array_equal(np.isnan(found.astype(F32)), np.isnan(expected.astype(F32)))
    there = ~np.isnan(expected.astype(F32))
    unsigned = np.uint32 if target == F32 else np.uint16
    np.testing.assert_array_equal(found[there].view(unsigned), expected[there].view(unsigned))


STORED = [*sorted(QUANTIZED.keys() - GUIDED - {"IQ1_M", "IQ2_S"}), "F16", "BF16", "F32"]
"""Types of weights that arrays can be put into."""

TYPED = {
    "mul_mat": [((5, 512), (40, 512)), ((1, 768), (33, 768)), ((2, 77, 768), (129, 768)), ((300, 256), (7, 256))],
    "conv_2d": [((1, 40, 9, 11), (13, 40, 1, 1)), ((2, 15, 10, 12), (200, 15, 3, 3))],
    "winograd": [((1, 40, 32, 64), (96, 40, 3, 3)), ((2, 50, 14, 13), (70, 50, 3, 3))],
}


@pytest.mark.parametrize(
    ("name", "type"),
    [("mul_mat", type) for type in STORED if type != "F32"] + [("conv_2d", "F16"), ("winograd", "F16")],
)
def test_weights_of_other_types(name, type):
    """The numbers that the weights stand for, bit for bit: what is multiplied with them is not rounded. Where blocks of parts
    meet one row, scales come behind sums."""
    for first, second in TYPED[name]:
        x, weight = (RANDOM.standard_normal(shape).astype(np.float32) for shape in (first, second))
        stored = narrowed(type, weight)
        numbers = widened(type, stored, second)
        found, expected = weighed(name, type, second, stored, x), weighed(name, "F32", second, numbers, x)
        if type in ("Q4_K", "Q5_K", "Q6_K") and first[:-1] == (1,):
            exact = x.astype(np.float64) @ numbers.T.astype(np.float64)
            assert (np.abs(found - exact) <= 2.0**-23 * (np.abs(x) @ np.abs(numbers).T)).all()
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("type", ["Q4_K", "Q5_K", "Q6_K"])
@pytest.mark.parametrize("columns", [1, 15, 16, 17, 150, 1100])
@pytest.mark.parametrize("depth", [256, 4096, 4352, 11008])
def test_blocks_of_parts_that_meet_one_row(type, columns, depth):
    """Of one block, and of more than are packed at once; fewer columns and more than a thread takes."""
    x, weight = RANDOM.standard_normal((1, depth)), RANDOM.standard_normal((columns, depth)) + 1
    stored = narrowed(type, weight.astype(np.float32))
    numbers = widened(type, stored, weight.shape)
    found = weighed("mul_mat", type, weight.shape, stored, x.astype(np.float32))
    x = x.astype(np.float32).astype(np.float64)
    assert (np.abs(found - x @ numbers.T) <= 2.0**-23 * (np.abs(x) @ np.abs(numbers).T)).all()


@pytest.mark.parametrize("precision", ["highest", pytest.param("high", marks=needs_pairs)])
@pytest.mark.parametrize("type", STORED)
def test_rows_of_weights_may_lie_apart(type, precision, monkeypatch):
    """Parts of longer rows are read where they lie, with the bits that they have one after the other."""
    monkeypatch.setattr("graphc.backends.precision._chosen", precision)
    size, elements = TYPES[type].size, TYPES[type].elements
    for rows in (1, 5, 40):
        for first, depth, whole in ((256, 512, 1024), (0, 4096, 4608), (512, 256, 768)):
            weight = RANDOM.standard_normal((83, whole)).astype(np.float32)
            stored = weight if type == "F32" else narrowed(type, weight)
            per_item = 1 if type in QUANTIZED else size
            begin, end = (each // elements * size // per_item for each in (first, first + depth))
            part = stored[:, begin:end]
            x = RANDOM.standard_normal((rows, depth)).astype(np.float32)
            apart, together = (weighed("mul_mat", type, (83, depth), each, x) for each in (part, part.copy()))
            np.testing.assert_array_equal(apart, together)
            exact = x @ widened(type, part, (83, depth)).astype(np.float64).T
            assert np.abs(apart - exact).max() <= (0.02 if precision == "high" else 1e-5) * np.abs(exact).max()
            np.testing.assert_array_equal(*(theirs(type, (83, depth), each, x) for each in (part, part.copy())))


def theirs(type: str, shape: tuple[int, ...], weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The product by ggml."""
    b = Builder(Program("theirs"))
    given, w = b.program.add_input("x", F32, x.shape, "F32"), b.program.add_weight("w", F32, shape, type=type)
    y = b.call("ggml_mul_mat", w, given, rank=2)
    b.program.outputs.append(Output("y", F32, y.shape, y))
    executor = Executor(b.program, [weight], threads=2)
    executor.uses_own = False
    assert np.shares_memory(executor.arrays[0], weight)
    (result,) = executor.run({"x": x}, {})
    executor.close()
    return result


def weighed(name: str, type: str, shape: tuple[int, ...], weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The product of an array with a weight that is stored in a type, or the convolution, by that function of ours. A single
    row with float32 weights, which is ggml's, is one of two."""
    if type == "F32" and x.shape[-2] == 1:
        return weighed(name, type, shape, weight, np.concatenate([x, x], -2))[..., :1, :]
    b = Builder(Program(name))
    image, w = b.program.add_input("x", F32, x.shape, "F32"), b.program.add_weight("w", F32, shape, type=type)
    pad = shape[-1] // 2
    if name == "mul_mat":
        y = b.call("ggml_mul_mat", w, image, rank=x.ndim)
    else:
        y = b.call("ggml_conv_2d", w, image, 1, 1, pad, pad, 1, 1, rank=4)
    b.program.outputs.append(Output("y", F32, y.shape, y))
    executor = Executor(b.program, [weight], threads=2)
    assert np.shares_memory(executor.arrays[0], weight)
    (result,) = executor.run({"x": x}, {})
    (graph,) = executor.graphs
    assert list(graph.own.values()) == [name]
    executor.close()
    return result


@pytest.mark.parametrize("type", STORED)
def test_few_rows(type):
    """With sums and ReLU: exact to rounding for the numbers that the weights stand for."""
    block = TYPES[type].elements
    for depth in (256, 4096 + block, 19 * block if block > 1 else 301):
        weight = RANDOM.standard_normal((83, depth)).astype(np.float32)
        stored = weight if type == "F32" else narrowed(type, weight)
        weight = widened(type, stored, weight.shape).astype(np.float64)
        bias = RANDOM.standard_normal(83).astype(np.float32)
        inputs = {
            f"x{rows}": RANDOM.standard_normal((rows, depth)).astype(np.float32)
            for rows in range(1 + (type == "F32"), 9)
        }
        results = [few_rows(type, stored, bias, inputs, threads) for threads in (1, 2, 3)]
        for x, plain, rectified in zip(inputs.values(), results[0][::2], results[0][1::2], strict=True):
            exact, sizes = x @ weight.T, np.abs(x) @ np.abs(weight).T
            assert (np.abs(plain - exact) <= 2.0**-23 * sizes).all()
            assert (np.abs(rectified - np.maximum(exact + bias, 0)) <= 2.0**-23 * (sizes + np.abs(bias))).all()
        for each in results[1:]:
            np.testing.assert_equal(each, results[0])


def few_rows(
    type: str, weight: np.ndarray, bias: np.ndarray, inputs: dict[str, np.ndarray], threads: int
) -> list[np.ndarray]:
    """For each input its products with the rows of a weight, and the ReLU of them plus a bias."""
    b = Builder(Program("few rows"))
    depth = inputs["x8"].shape[1]
    w, added = b.program.add_weight("w", F32, (len(bias), depth), type=type), b.program.add_weight("b", F32, bias.shape)
    for name, x in inputs.items():
        given = b.program.add_input(name, F32, x.shape, "F32")
        product = b.call("ggml_mul_mat", w, given, rank=2)
        summed = b.binary("ggml_add", b.call("ggml_mul_mat", w, given, rank=2), added)
        for y in (product, b.unary("ggml_relu", summed)):
            b.program.outputs.append(Output(f"y{len(b.program.outputs)}", F32, y.shape, y))
    executor = Executor(b.program, [weight, bias], threads=threads)
    results = executor.run(inputs, {})
    met = steps_of(executor)
    assert sorted(met) == [("mul_mat", 2)] * len(inputs) + [("mul_mat", 3)] * len(inputs)
    executor.close()
    return results


@pytest.mark.parametrize(("bits", "size"), [(4, 16), (4, 32), (4, 96), (4, 128), (8, 64), (8, 512), (4, 1536)])
@pytest.mark.parametrize("shifted", [False, True])
def test_whole_numbers_with_scales(bits, size, shifted):
    """Few rows and many, with a sum and ReLU, by our code and by ggml's calls: exact to rounding; codes stay as they are."""
    codes = RANDOM.integers(-(1 << bits - 1), 1 << bits - 1, (83, 1536)).astype(np.int8)
    scaling = [RANDOM.uniform(0.01, 0.02, (83, 1536 // size)).astype(np.float32) for _ in range(1 + shifted)]
    for rows in (1, 2, 8, 9, 200):
        x = RANDOM.standard_normal((2, rows, 1536)).astype(np.float32)
        graph = Graph()
        y = graph.add(
            ScaledMatMul(bits), [graph.input("x", TensorType(F32, x.shape)), *map(graph.constant, (codes, *scaling))]
        )
        bias = RANDOM.standard_normal(83).astype(np.float32)
        total = graph.add(Binary("Add"), [y.output, graph.constant(bias)]).output
        graph.output(graph.add(Unary("Relu"), [total]).output, "y")
        program = lower(graph)
        weights = [weight.converted(weight.value.data) for weight in program.weights]
        assert {weight.tensor.type for weight in program.weights} == {"Q4_0" if bits == 4 else "Q8_0", "F32"}
        for weight, stored in zip(program.weights, weights, strict=True):
            np.testing.assert_array_equal(weight.numbers(stored), weight.value.data)
        wide = [each.astype(np.float64) for each in (x, codes, *scaling)]
        (exact,) = ScaledMatMul(bits).eval(*wide)
        (sizes,) = ScaledMatMul(bits).eval(*map(np.abs, wide))
        for own, threads in ((True, 1), (True, 3), (False, 2)):
            executor = Executor(program, weights, threads=threads)
            executor.uses_own = own
            (found,) = executor.run({"x": x}, {})
            assert (np.abs(found - np.maximum(exact + bias, 0)) <= 2.0**-22 * (sizes + np.abs(bias))).all()
            executor.close()


def test_halves_of_all_kinds():
    """Each float16: the smallest, the largest, infinite ones and what is not a number."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    for rows in (1, 2, 40):
        result = weighed("mul_mat", "F16", (256, 256), halves, np.eye(256, dtype=np.float32)[:rows])
        exact = np.where(np.isfinite(halves).all(1), halves.astype(np.float32).T[:rows], np.nan)
        np.testing.assert_array_equal(result, exact)


@pytest.mark.parametrize("masks", [0, 1, 2])
def test_a_matrix_of_scores_that_is_too_large_is_made_in_parts(masks):
    """By ggml alone: 300 MB of scores, of which no part is above 256 MiB. A mask may be that of each head."""
    rows, keys = 4400, 8600
    arrays = [RANDOM.standard_normal((1, 2, count, 8)).astype(np.float32) for count in (rows, keys, keys)]
    arrays += [np.where(RANDOM.random((1, masks, rows, keys)) < 0.3, -np.inf, 0).astype(np.float32)] if masks else []
    graph = Graph()
    inputs = {f"x{i}": array for i, array in enumerate(arrays)}
    given = [graph.input(name, TensorType(each.dtype, each.shape)) for name, each in inputs.items()]
    graph.output(graph.add(Attention(0.3), given).output, "y")
    with closing(Executor(lower(graph), [], threads=2)) as executor:
        executor.uses_own = False
        (result,) = executor.run(inputs, {})
        with executor.context() as context:
            (section,) = executor.sections(executor.program)
            nodes = context.graph(executor.program, section, {}).placement.nodes
            sizes = [tuple(each.contents.ne) for each in nodes if each.contents.op == ggml.GGML_OP_SOFT_MAX]
            assert masks or context.compute.nbytes < 1.1 * 4 * rows * keys
    assert sizes == [(keys, rows // 2, 2, 1)] * 2
    places = [0, 1, rows // 2 - 1, rows // 2, rows - 1]
    queries, *others = (each.astype(np.float64) for each in arrays[:3])
    (exact,) = Attention(0.3).eval(queries[:, :, places], *others, *(each[:, :, places] for each in arrays[3:]))
    assert np.abs(result[:, :, places] - exact).max() < 2e-6
