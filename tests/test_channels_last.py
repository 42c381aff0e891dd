"""Images whose channels lie one after the other: what is held so, and what our own code makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_models import model, node, value

from graphc.compiler import compile_program
from graphc.ir.types import F32, TensorType
from graphc.kernels.use import KernelUse
from graphc.ops.activations import Clip, LeakyRelu
from graphc.ops.conv import Conv
from graphc.ops.pool import MaxPool
from graphc.ops.sequences import Range
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.lowering.compose import composed
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.program.rules import RESHAPES
from graphc.targets.ggml.run.choose.library import load_own
from graphc.targets.ggml.run.executor import Executor

RANDOM = np.random.default_rng(0)
TILES = getattr(load_own(), "multiplies_tiles", False)


@pytest.fixture(autouse=True)
def _draws_of_its_own():
    """A test draws the same sizes in whatever order tests run."""
    RANDOM.bit_generator.state = np.random.default_rng(0).bit_generator.state


class Some:
    """A program of a few calls, its weights and its inputs: the same ones in whatever order tests run."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.program = Program("some")
        self.b = Builder(self.program)
        self.weights: list[np.ndarray] = []
        self.inputs: dict[str, np.ndarray] = {}

    def drawn(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.random.standard_normal(shape).astype(F32)

    def weight(self, *shape: int):
        self.weights.append(self.drawn(shape) / np.float32(3))
        return self.program.add_weight(f"w{len(self.weights)}", F32, shape)

    def input(self, name: str, *shape: int):
        self.inputs[name] = self.drawn(shape)
        return self.program.add_input(name, F32, shape, "F32")

    def conv(self, x, channels: int, size: int = 1, activation: str = "", bias: bool = True):
        y = self.b.call(
            "ggml_conv_2d", self.weight(channels, x.ne[2], size, size), x, 1, 1, size // 2, size // 2, 1, 1, rank=4
        )
        return self.ended(y, activation, bias)

    def each(self, x, size: int = 3, stride: int = 1, pad: int = 1, activation: str = "", bias: bool = True):
        kernel = self.weight(x.ne[2], 1, size, size)
        y = self.b.call("ggml_conv_2d_dw_direct", kernel, x, stride, stride, pad, pad, 1, 1, rank=4)
        return self.ended(y, activation, bias)

    def groups(
        self, x, channels: int, groups: int, size: int = 3, stride: int = 1, dilation: int = 1, activation: str = ""
    ):
        kernel, pad = self.weight(channels, x.ne[2] // groups, size, size), size // 2
        y = self.b.conv_2d(x, kernel, (stride, stride), (dilation, dilation), (pad, pad), groups)
        return self.ended(y, activation, bias=True)

    def ended(self, y, activation: str, bias: bool):
        y = self.b.binary("ggml_add", y, self.weight(1, y.ne[2], 1, 1)) if bias else y
        if activation == "clip":
            return self.program.call_kernel(KernelUse(Clip(0.0, 6.0), ((F32, y.shape),), F32, y.shape), [y])
        return self.b.unary(activation, y) if activation else y

    def output(self, y) -> None:
        self.program.outputs.append(Output(f"y{len(self.program.outputs)}", F32, y.shape, y))

    def functions(self) -> list[str]:
        return [call.function for call in composed(self.program).calls if "reshape" not in call.function]

    def run(self, threads: int = 2, own: bool = True, **inputs: np.ndarray) -> list[np.ndarray]:
        executor = Executor(self.program, self.weights, threads=threads)
        executor.uses_own = own
        return executor.run({**self.inputs, **inputs}, {})

    def check(self, atol: float = 1e-5) -> None:
        """With any number of threads the same bits, and ggml's numbers but for rounding."""
        for found, expected in zip(self.run(), self.run(own=False), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=atol * max(1, np.abs(expected).max() / 30))
        for threads in (1, 3, 8):
            for found, again in zip(self.run(), self.run(threads), strict=True):
                np.testing.assert_array_equal(found, again)


def inverted(some: Some, x, squeeze: bool = False, activation: str = "clip"):
    """A block of MobileNet, or of EfficientNet if it squeezes."""
    channels, images = x.ne[2], x.ne[3]
    y = some.each(some.conv(x, 6 * channels, activation=activation), activation=activation)
    if squeeze:
        flat = some.b.reshape(y, (images, 6 * channels, x.ne[0] * x.ne[1]))
        mean = some.b.reshape(some.b.call("ggml_mean", flat, rank=3), (images, 6 * channels, 1, 1))
        gate = some.conv(some.conv(mean, 4, activation="ggml_silu"), 6 * channels, activation="ggml_sigmoid")
        y = some.b.binary("ggml_mul", y, gate)
    return some.b.binary("ggml_add", some.conv(y, channels), x)


def test_blocks_of_mobilenet_are_products():
    some = Some()
    x = some.each(some.conv(some.input("x", 2, 3, 12, 10), 24, 3), activation="clip")
    some.output(inverted(some, inverted(some, x)))
    block = ["graphc_expanded_conv_2d", "graphc_linear"]
    there, back = ["ggml_permute", "graphc_copy", "graphc_conv_2d_last"], ["ggml_permute", "graphc_copy"]
    assert some.functions() == ["graphc_conv_2d", *there, *block, *block, *back]
    some.check()


def test_a_kernel_that_reads_nothing_stays_as_it_is():
    some = Some()
    image = inverted(some, some.conv(some.input("x", 2, 3, 12, 10), 24, 3))
    places = some.program.call_kernel(KernelUse(Range(0, 10, 1, F32), (), F32, (10,)), [])
    some.output(some.b.binary("ggml_add", image, places))
    assert "ggml_custom_4d" in some.functions()
    some.check()


def test_blocks_of_efficientnet_are_products():
    some = Some()
    x = some.each(some.input("x", 2, 24, 12, 10), activation="ggml_silu")
    some.output(inverted(some, x, squeeze=True, activation="ggml_silu"))
    squeezed = ["graphc_mean_over_rows", "graphc_linear", "graphc_linear", "graphc_gated_linear"]
    before = ["ggml_permute", "graphc_copy", "graphc_conv_2d_last", "graphc_expanded_conv_2d"]
    assert some.functions() == [*before, *squeezed, "ggml_permute", "graphc_copy"]
    some.check()


@pytest.mark.parametrize(
    ("shape", "wide", "size", "stride", "pads", "dilation", "activation"),
    [
        ((1, 16, 112, 112), 96, 3, 2, (0, 1, 0, 1), 1, "clip"),  # some lines of some channels at a time
        ((3, 24, 30, 56), 144, 5, 1, (2, 2, 2, 2), 1, "ggml_silu"),
        ((2, 7, 20, 31), 37, 3, 1, (1, 1, 1, 1), 1, ""),
        ((1, 8, 40, 200), 64, 7, 3, (3, 3, 3, 3), 1, "ggml_silu"),
        ((1, 8, 15, 20), 200, 3, 1, (6, 6, 6, 6), 4, "clip"),
        ((2, 160, 7, 7), 960, 3, 1, (1, 1, 1, 1), 1, "clip"),  # it is written after all, as rows of one matrix
        ((1, 8, 9, 9), 16, 3, 4, (5, 0, 5, 4), 1, "clip"),  # windows that meet nothing, and lines that none meets
    ],
)
def test_what_is_expanded_is_not_written(shape, wide, size, stride, pads, dilation, activation):
    """With the bits of both steps by themselves, as they are where others read the wide image too; to rounding, where a matrix
    unit multiplies the whole image."""

    def made(twice: bool) -> Some:
        some = Some()
        x = some.conv(some.input("x", *shape), wide, activation=activation)
        y = some.b.call("ggml_pad_ext", x, pads[0], pads[1], pads[2], pads[3], 0, 0, 0, 0, rank=4)
        kernel = some.weight(wide, 1, size, size)
        y = some.b.call("ggml_conv_2d_dw_direct", kernel, y, stride, stride, 0, 0, dilation, dilation, rank=4)
        some.output(some.ended(y, activation, bias=True))
        for _ in range(twice):
            some.output(x)
        return some

    one, two = made(twice=False), made(twice=True)
    two.weights, two.inputs = one.weights, one.inputs
    steps = ["graphc_expanded_conv_2d", "graphc_linear", "graphc_conv_2d_last"]
    assert [[some.functions().count(each) for each in steps] for some in (one, two)] == [[1, 0, 0], [0, 1, 1]]
    for threads in (1, 2, 5):
        found, apart = one.run(threads)[0], two.run(threads)[0]
        np.testing.assert_allclose(found, apart, rtol=0, atol=2e-6 * np.abs(apart).max() if TILES else 0)
    one.check()


def test_a_gate_is_a_step_of_its_own_where_others_read_what_it_makes():
    some = Some()
    x = some.each(some.input("x", 2, 24, 12, 10))
    gated = some.b.binary("ggml_mul", x, some.input("gate", 2, 24, 1, 1))
    some.output(some.b.binary("ggml_add", some.conv(gated, 24), gated))
    for name in ("another", "third"):
        some.output(some.conv(some.b.binary("ggml_mul", x, some.input(name, 1, 24, 1, 1)), 16))
    functions = some.functions()
    assert [functions.count(f"graphc_{name}") for name in ("mul", "linear", "gated_linear")] == [1, 1, 2]
    some.check()


def test_no_reshape_reads_another():
    """From product to product rows of pixels stay rows, also those that are added."""
    some = Some()
    x = some.each(some.input("x", 2, 24, 12, 10))
    y = some.conv(x, 20)
    some.output(some.conv(some.b.binary("ggml_add", some.conv(some.each(y), 20), y), 16))
    calls = composed(some.program).calls
    reshapes = [call for call in calls if call.function in RESHAPES]
    assert reshapes
    assert not [call for call in reshapes if calls[call.args[0].call].function in RESHAPES and call.args[0].call >= 0]
    products = [call for call in calls if call.function == "graphc_linear"]
    assert [call.result.rank for call in products] == [3, 3, 3]
    first, second, third = products
    assert (second.args[-1].call, third.args[1].call) == (first.result.call, second.result.call)
    some.check()


@pytest.mark.parametrize("squeeze", [False, True])
def test_an_image_has_the_same_numbers_in_any_batch(squeeze):
    def made(images: int) -> Some:
        some = Some()
        some.output(inverted(some, some.input("x", images, 20, 7, 7), squeeze, "ggml_silu"))
        return some

    whole = made(9)
    (together,) = whole.run()
    for i in (0, 4, 8):
        one = made(1)
        one.weights = whole.weights
        (alone,) = one.run(x=whole.inputs["x"][i : i + 1])
        np.testing.assert_array_equal(alone[0], together[i])


def test_blocks_of_convnext_are_not_copied():
    some = Some()
    b = some.b
    x = some.input("x", 1, 32, 14, 14)
    for _ in range(2):
        y = b.cont(b.transpose(some.each(x, 7, 1, 3), (0, 2, 3, 1)))
        y = b.binary(
            "ggml_add", b.binary("ggml_mul", b.call("ggml_norm", y, 1e-6, rank=4), some.weight(32)), some.weight(32)
        )
        y = b.call(
            "ggml_mul_mat",
            some.weight(32, 64),
            b.unary("ggml_gelu_erf", b.call("ggml_mul_mat", some.weight(64, 32), y, rank=4)),
            rank=4,
        )
        x = b.binary("ggml_add", x, b.transpose(y, (0, 3, 1, 2)))
    some.output(x)
    block = ["graphc_conv_2d_last", "graphc_layer_norm", "graphc_linear", "graphc_linear"]
    found = [each for each in some.functions() if each not in ("ggml_add", "graphc_add")]
    assert found == ["ggml_permute", "graphc_copy", *block, *block, "ggml_permute", "graphc_copy"]
    some.check()


def test_zeros_on_one_side_are_no_step():
    some = Some()
    x = some.conv(some.input("x", 2, 8, 9, 11), 20)
    padded = some.b.call("ggml_pad_ext", x, 0, 1, 2, 1, 0, 0, 0, 0, rank=4)
    some.output(some.each(padded, 3, 2, 0))
    assert "graphc_pad" not in some.functions()
    some.check()


def test_zeros_that_others_read_stay():
    some = Some()
    padded = some.b.call("ggml_pad_ext", some.input("x", 2, 20, 9, 11), 0, 1, 2, 1, 0, 0, 0, 0, rank=4)
    some.output(some.each(padded, 3, 2, 0))
    some.output(some.conv(padded, 5, 3))
    assert "graphc_pad" in some.functions()
    some.check()


def test_what_reads_planes_has_them():
    some = Some()
    x = some.each(some.input("x", 1, 20, 8, 8))
    some.output(x)
    some.output(some.b.unary("ggml_abs", x))
    some.output(some.conv(x, 8, 3, "ggml_relu"))  # of few channels
    some.output(some.conv(x, 8, activation="ggml_relu"))
    assert some.functions().count("graphc_copy") == 3  # there, back once for all three, and back
    some.check()


@pytest.mark.parametrize("channels", [3, 15])
def test_few_channels_stay_as_they_are(channels):
    some = Some()
    some.output(some.each(some.input("x", 1, channels, 8, 8)))
    assert some.functions() == ["graphc_conv_2d_dw"]
    some.check()


def bottleneck(some: Some, x, inner: int, stride: int = 1):
    """A block of ResNet-50."""
    b, channels = some.b, 4 * inner
    y = some.conv(x, inner, activation="ggml_relu")
    window = b.call("ggml_conv_2d", some.weight(inner, inner, 3, 3), y, stride, stride, 1, 1, 1, 1, rank=4)
    y = some.conv(some.ended(window, "ggml_relu", True), channels)
    if stride != 1 or x.ne[2] != channels:
        point = b.call("ggml_conv_2d", some.weight(channels, x.ne[2], 1, 1), x, stride, stride, 0, 0, 1, 1, rank=4)
        x = some.ended(point, "", True)
    return b.unary("ggml_relu", b.binary("ggml_add", y, x))


def test_blocks_of_resnet_change_no_order():
    some = Some()
    x = some.input("x", 2, 256, 9, 10)
    for inner, stride in ((64, 1), (80, 2), (80, 1)):
        x = bottleneck(some, x, inner, stride)
    some.output(x)
    window = ["graphc_conv_2d_last"]
    even, strided = ["graphc_linear", *window, "graphc_linear"], ["graphc_linear", *window, *window, "graphc_linear"]
    found = some.functions()
    assert found[:2] == found[-2:] == ["ggml_permute", "graphc_copy"]
    assert found[2:-2] == [*even, *strided, *even]
    some.weights = [each / np.float32(5) for each in some.weights]
    some.check()


def test_what_is_added_to_convolutions_with_strides_keeps_its_order():
    """As SE-ResNet's blocks are added to them, for these are multiplied by a gate first."""
    some = Some()
    b, x = some.b, some.input("x", 2, 256, 9, 10)
    for channels, stride in ((256, 1), (512, 2), (512, 1)):
        kernel = some.weight(128, x.ne[2], 1, 1)
        y = some.ended(b.call("ggml_conv_2d", kernel, x, stride, stride, 0, 0, 1, 1, rank=4), "ggml_relu", True)
        y = some.conv(some.conv(y, 128, 3, "ggml_relu"), channels)
        flat = b.reshape(y, (2, channels, y.ne[0] * y.ne[1]))
        mean = b.reshape(b.call("ggml_mean", flat, rank=3), (2, channels, 1, 1))
        y = b.binary(
            "ggml_mul", y, some.conv(some.conv(mean, 8, activation="ggml_relu"), channels, activation="ggml_sigmoid")
        )
        if stride != 1:
            kernel = some.weight(channels, x.ne[2], 1, 1)
            x = some.ended(b.call("ggml_conv_2d", kernel, x, stride, stride, 0, 0, 1, 1, rank=4), "", True)
        x = b.unary("ggml_relu", b.binary("ggml_add", y, x))
    some.output(x)
    found = some.functions()
    assert found[:2] == found[-2:] == ["ggml_permute", "graphc_copy"]
    assert not {"graphc_conv_2d", "graphc_copy"} & set(found[2:-2])
    some.weights = [each / np.float32(5) for each in some.weights]
    some.check()


@pytest.mark.parametrize("channels", [20, 100])
def test_what_saves_less_than_copies_take_stays(channels):
    some = Some()
    x = some.input("x", 1, channels, 8, 8)
    some.output(some.conv(some.conv(x, channels, 3), 30))
    assert some.functions() == ["graphc_conv_2d"] * 2


@pytest.mark.parametrize(("layers", "copies"), [(2, 0), (4, 2)])
def test_plain_networks_of_windows(layers, copies):
    """They have their channels last where they are deep enough to be worth two copies."""
    some = Some()
    x = some.input("x", 1, 200, 9, 10)
    for _ in range(layers):
        x = some.conv(x, 200, 3, "ggml_relu")
    some.output(x)
    function = "graphc_conv_2d_last" if copies else "graphc_conv_2d"
    assert [some.functions().count(each) for each in (function, "graphc_copy")] == [layers, copies]
    some.weights = [each / np.float32(10) for each in some.weights]
    some.check()


def test_blocks_of_two_windows_add_what_passes_by():
    """As ResNet-18's."""
    some = Some()
    x = some.input("x", 2, 128, 9, 10)
    for _ in range(3):
        y = some.conv(some.conv(x, 128, 3, "ggml_relu"), 128, 3)
        x = some.b.unary("ggml_relu", some.b.binary("ggml_add", y, x))
    some.output(x)
    copied = ["ggml_permute", "graphc_copy"]
    assert some.functions() == [*copied, *["graphc_conv_2d_last"] * 6, *copied]
    some.weights = [each / np.float32(10) for each in some.weights]
    some.check()


def test_convolutions_of_single_channels_add_what_passes_by():
    some = Some()
    x = some.input("x", 2, 20, 9, 10)
    y = some.b.binary("ggml_add", some.each(x), x)
    some.output(some.b.binary("ggml_add", some.each(some.conv(y, 20)), y))
    copied = ["ggml_permute", "graphc_copy"]
    assert some.functions() == [
        *copied,
        *["graphc_conv_2d_last", "graphc_linear", "graphc_conv_2d_last"],
        *copied,
    ]
    some.check()


def test_zeros_that_are_added_to_a_convolution_stay():
    some = Some()
    padded = some.b.call("ggml_pad_ext", some.input("x", 2, 20, 9, 11), 0, 2, 2, 0, 0, 0, 0, 0, rank=4)
    some.output(some.b.binary("ggml_add", some.each(padded), padded))
    assert "graphc_pad" in some.functions()
    some.check()


@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize(("channels", "size", "dilation"), [(20, 3, 1), (20, 5, 1), (20, 3, 9), (1, 3, 1)])
def test_images_that_are_added_to_convolutions(channels, size, dilation, width):
    """By Winograd's, as products, and as products that multiply no zeros; one is more than a call of our own reads."""
    some = Some()
    x, kernel = some.input("x", 2, 8, width, channels), some.weight(33, channels, size, size)
    sums = [some.input(f"sum{each}", 2, 8, width, 33) for each in range(6)]
    pads = [size // 2 * dilation] * 4
    y = some.b.call(
        "graphc_conv_2d_last",
        *(kernel, x, some.weight(33), 1, 1, *pads, dilation, dilation, False, False),
        *sums,
        rank=4,
    )
    some.output(some.b.unary("ggml_relu", y))
    some.check(atol=5e-5)


def test_convolutions_with_dilations_have_their_channels_last():
    some = Some()
    x = some.input("x", 1, 64, 9, 10)
    y = some.b.call("ggml_conv_2d", some.weight(64, 64, 3, 3), x, 1, 1, 2, 2, 2, 2, rank=4)
    some.output(some.ended(y, "ggml_relu", True))
    copied = ["ggml_permute", "graphc_copy"]
    assert some.functions() == [*copied, "graphc_conv_2d_last", *copied]
    some.check(atol=5e-5)


@pytest.mark.parametrize("activation", ["", "ggml_relu", "ggml_silu", "clip"])
@pytest.mark.parametrize("channels", [(16, 16), (20, 33), (70, 130), (300, 24), (5, 40)])
def test_convolutions_with_channels_last_before_and_after(channels, activation):
    """By Winograd's and as products; strides and dilations; pads before and behind that differ. The last two meet more of what is
    around the image than of it."""
    inner, outer = channels
    plain = ((3, 1, 1), (3, 1, 1), (3, 2, 1), (1, 2, 1), (5, 1, 2), (2, 3, 1))
    for size, stride, dilation in (*plain, (3, 1, 2), (3, 1, 3), (3, 1, 12), (2, 2, 25)):
        p0, p1, q0, q1 = (RANDOM.integers(0, 3, 4) + dilation // 2 * (size - 1)).tolist()
        images, height, width = RANDOM.integers((1, 9, 9), (4, 30, 30)).tolist()
        some = Some()
        x, kernel, bias = (
            some.input("x", images, height, width, inner),
            some.weight(outer, inner, size, size),
            some.weight(outer),
        )
        settings = (stride, stride, p0, p1, q0, q1, dilation, dilation, False, False)
        y = some.b.call("graphc_conv_2d_last", kernel, x, bias, *settings, rank=4)
        some.output(some.ended(y, activation, False))
        atol = 3e-6 * size * inner**0.5  # as sums of so many products are large
        some.check(atol)
        if not activation:
            op = Conv((stride, stride), (dilation, dilation), (p1, p0), (q1, q0), 1)
            image = some.inputs["x"].transpose(0, 3, 1, 2).astype(np.float64)
            (exact,) = op.eval(image, some.weights[0].astype(np.float64))
            exact = exact.transpose(0, 2, 3, 1) + some.weights[1]
            np.testing.assert_allclose(some.run()[0], exact, rtol=1e-5, atol=atol)


@pytest.mark.parametrize(("channels", "dilation"), [((16, 16), 1), ((20, 33), 1), ((70, 130), 1), ((40, 24), 3)])
def test_large_images_with_channels_last(channels, dilation):
    """Of which tiles are transformed by the thread that multiplies them: the numbers of exact sums, infinities where windows
    meet one, and the same bits with any number of threads."""
    inner, outer = channels
    height, width = RANDOM.integers(70, 100, 2).tolist()
    some = Some()
    x, kernel, added = (
        some.input("x", 2, height, width, inner),
        some.weight(outer, inner, 3, 3),
        some.input("added", 2, height, width, outer),
    )
    settings = (1, 1, *[dilation] * 6, False, False)
    y = some.b.call("graphc_conv_2d_last", kernel, x, some.weight(outer), *settings, added, rank=4)
    some.output(some.b.unary("ggml_relu", y))
    image, place = some.inputs["x"], (1, 33, 21, inner // 2)
    image[place] = np.inf
    atol = 9e-6 * inner**0.5
    found, again = some.run(1)[0], some.run(3)[0]
    np.testing.assert_array_equal(found, again)
    op = Conv((1, 1), (dilation, dilation), (dilation, dilation), (dilation, dilation), 1)
    with np.errstate(invalid="ignore"):
        (exact,) = op.eval(image.transpose(0, 3, 1, 2).astype(np.float64), some.weights[0].astype(np.float64))
        exact = np.maximum(exact.transpose(0, 2, 3, 1) + some.weights[1] + some.inputs["added"], 0)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(exact))
    finite = np.isfinite(exact)
    np.testing.assert_allclose(found[finite], exact[finite], rtol=1e-5, atol=atol)


def of_lines(some: Some, x, channels: int, size: int, dilation: int = 1, activation: str = ""):
    """A convolution of lines, [N, C, W], as of images of a line."""
    width, inner, count = x.ne[:3]
    image = some.b.call("ggml_reshape_4d", x, width, 1, inner, count, rank=4)
    kernel = some.weight(channels, inner, 1, size)
    y = some.b.call("ggml_conv_2d", kernel, image, 1, 1, dilation * (size // 2), 0, dilation, 1, rank=4)
    y = some.b.call("ggml_reshape_3d", y, y.ne[0], channels, count, rank=3)
    y = some.b.binary("ggml_add", y, some.weight(1, channels, 1))
    if activation == "leaky":
        return some.program.call_kernel(KernelUse(LeakyRelu(0.1), ((F32, y.shape),), F32, y.shape), [y])
    return some.b.unary(activation, y) if activation else y


@pytest.mark.parametrize(("channels", "images"), [(33, 1), (64, 2)])
def test_convolutions_of_long_lines_have_their_channels_last(channels, images):
    """What is computed element by element between them changes no order, and is done on their way out."""
    some = Some()
    x = some.input("x", images, channels, 1100)
    first = of_lines(some, x, channels, 7, 3, "leaky")
    second = some.b.binary("ggml_add", of_lines(some, first, channels, 11), x)
    scaled = some.b.call("ggml_scale", second, 0.3, rank=3)
    some.output(of_lines(some, scaled, channels, 2, 5, "ggml_relu"))
    functions = some.functions()
    assert [functions.count(each) for each in ("graphc_conv_2d_last", "ggml_scale", "graphc_copy")] == [3, 1, 2]
    assert set(functions) == {"graphc_conv_2d_last", "ggml_scale", "graphc_copy", "ggml_permute"}
    some.check(atol=3e-5)


def test_lines_that_are_read_as_they_are_stay_so():
    """Those of which others read some, and short ones, and what is no number for each element."""
    some = Some()
    x = some.input("x", 1, 32, 1100)
    y = of_lines(some, x, 32, 7, activation="leaky")
    some.output(some.b.call("ggml_view_3d", y, 500, 32, 1, *y.nb[1:3], 0, rank=3))
    some.output(some.b.call("ggml_sum_rows", of_lines(some, y, 32, 7), rank=3))
    some.check(atol=3e-5)
    short = Some()
    x = short.input("x", 1, 32, 1024)
    short.output(of_lines(short, of_lines(short, x, 32, 7, activation="leaky"), 32, 7))
    assert "graphc_conv_2d_last" not in short.functions()
    short.check(atol=3e-5)


@pytest.mark.parametrize("channels", [16, 33, 64, 300])
@pytest.mark.parametrize("dilation", [1, 2, 5])
def test_windows_of_lines_that_are_read_where_they_lie(channels, dilation):
    """Their ends meet some of the kernel's places alone; pads that no window of the image reaches, strides, and several lines."""
    for height, width, kernel, stride in (
        (1, 1100, (1, 7), 1),
        (1, 2300, (1, 3), 2),
        (40, 30, (3, 2), 1),
        (300, 5, (1, 3), 1),
    ):
        some = Some()
        p0, q0 = RANDOM.integers(0, dilation * (kernel[1] - 1) + 1, 2).tolist()
        p1, q1 = RANDOM.integers(0, kernel[0], 2).tolist()
        x, weight = some.input("x", 2, height, width, channels), some.weight(24, channels, *kernel)
        settings = (stride, 1, p0, p1, q0, q1, dilation, 1, False, False)
        some.output(some.b.call("graphc_conv_2d_last", weight, x, some.weight(24), *settings, rank=4))
        op = Conv((1, stride), (1, dilation), (p1, p0), (q1, q0), 1)
        (exact,) = op.eval(
            some.inputs["x"].transpose(0, 3, 1, 2).astype(np.float64), some.weights[0].astype(np.float64)
        )
        exact = exact.transpose(0, 2, 3, 1) + some.weights[1]
        np.testing.assert_allclose(
            some.run()[0], exact, rtol=1e-5, atol=3e-6 * (channels * kernel[0] * kernel[1]) ** 0.5
        )


@pytest.mark.parametrize("dilation", [1, 2, 7])
def test_what_is_not_finite_stays_where_windows_meet_it(dilation):
    some = Some()
    x, kernel = some.input("x", 2, 10, 11, 40), some.weight(33, 40, 3, 3)
    some.inputs["x"][0, 5, 5, 7], some.inputs["x"][1, 0, 0, 3] = np.inf, np.nan
    some.output(some.b.call("graphc_conv_2d_last", kernel, x, None, 1, 1, *[dilation] * 6, False, False, rank=4))
    (found,), (expected,) = some.run(), some.run(own=False)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", [None, "ggml_relu", "ggml_silu", "clip"])
@pytest.mark.parametrize("channels", [16, 17, 31, 40, 64, 70, 100, 144, 200])
def test_convolutions_of_single_channels(channels, activation):
    """With pads before and behind that differ, strides and dilations; also where windows meet nothing of the image."""
    for _ in range(6):
        (kh, kw, s1, s0, d1, d0), (p1, p0, q1, q0) = (
            RANDOM.integers(1, 4, 6).tolist(),
            RANDOM.integers(0, 5, 4).tolist(),
        )
        images, height, width = RANDOM.integers(1, (4, 20, 20)).tolist()
        if height + p1 + q1 <= (kh - 1) * d1 or width + p0 + q0 <= (kw - 1) * d0:
            continue
        some = Some()
        x = some.input("x", images, height, width, channels)
        kernel, bias = some.weight(channels, 1, kh, kw), some.weight(channels)
        settings = (s0, s1, p0, p1, q0, q1, d0, d1, False, False)
        y = some.b.call("graphc_conv_2d_last", kernel, x, bias, *settings, rank=4)
        some.output(some.ended(y, activation or "", False))
        some.check()
        if activation is None:
            op = Conv((s1, s0), (d1, d0), (p1, p0), (q1, q0), channels)
            image = some.inputs["x"].transpose(0, 3, 1, 2).astype(np.float64)
            (exact,) = op.eval(image, some.weights[0].astype(np.float64))
            exact = exact.transpose(0, 2, 3, 1) + some.weights[1]
            np.testing.assert_allclose(some.run()[0], exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["", "ggml_relu", "ggml_silu", "clip"])
@pytest.mark.parametrize("channels", [1, 5, 32, 40, 144])
def test_the_first_convolution_makes_it(channels, activation):
    """What it reads lies in planes; parts of sums, of channels and of pixels."""
    for inner, size, stride in ((3, 3, 2), (1, 1, 3), (40, 4, 4), (3, 7, 2)):
        some = Some()
        height, width = RANDOM.integers(size, 40, 2).tolist()
        x, kernel, bias = (
            some.input("x", 2, inner, height, width),
            some.weight(channels, inner, size, size),
            some.weight(channels),
        )
        seen = some.b.transpose(x, (0, 2, 3, 1))
        settings = (stride, stride, 0, 1, 1, 1, 1, 1, False, False)
        y = some.b.call("graphc_conv_2d_last", kernel, seen, bias, *settings, rank=4)
        some.output(some.ended(y, activation, False))
        some.check(3e-6 * size * inner**0.5)


def test_it_is_chosen_for_what_reads_it():
    some = Some()
    padded = some.b.call("ggml_pad_ext", some.input("x", 1, 3, 20, 20), 0, 1, 0, 1, 0, 0, 0, 0, rank=4)
    kernel = some.weight(24, 3, 3, 3)
    y = some.ended(some.b.call("ggml_conv_2d", kernel, padded, 2, 2, 0, 0, 1, 1, rank=4), "clip", True)
    some.output(some.each(y))
    copied = ["ggml_permute", "graphc_copy"]
    assert some.functions() == [*copied, *["graphc_conv_2d_last"] * 2, *copied]
    some.check()


def test_convolutions_with_strides_that_follow_one_another_keep_it():
    some = Some()
    y = some.input("x", 2, 3, 33, 37)
    for channels in (16, 40, 24):
        y = some.b.call("ggml_conv_2d", some.weight(channels, y.ne[2], 3, 3), y, 2, 2, 1, 1, 1, 1, rank=4)
        y = some.ended(y, "ggml_relu", True)
    some.output(some.each(y))
    copied = ["ggml_permute", "graphc_copy"]
    assert some.functions() == [*copied, *["graphc_conv_2d_last"] * 4, *copied]
    some.check(1e-4)


def test_zeros_and_joined_images_between_convolutions_that_make_it_keep_it():
    """As HGNet begins: two ways from one image to another, of which one has kernels of 2 x 2."""
    some = Some()

    def conv(x, channels: int, size: int, stride: int):
        kernel = some.weight(channels, x.ne[2], size, size)
        y = some.b.call("ggml_conv_2d", kernel, x, stride, stride, size // 3, size // 3, 1, 1, rank=4)
        return some.ended(y, "ggml_relu", True)

    def padded(x):
        return some.b.call("ggml_pad_ext", x, 0, 1, 0, 1, 0, 0, 0, 0, rank=4)

    x = padded(conv(some.input("x", 2, 3, 33, 37), 16, 3, 2))
    op = MaxPool((2, 2), (1, 1), (1, 1), (0, 0), (0, 0), False)
    (shape,) = (each.shape for each in op.infer(TensorType(F32, x.shape)))
    largest = some.program.call_kernel(KernelUse(op, ((F32, x.shape),), F32, shape), [x])
    y = conv(padded(conv(x, 8, 2, 1)), 16, 2, 1)
    some.output(some.each(conv(some.b.call("ggml_concat", largest, y, 2, rank=4), 24, 3, 2)))
    copied = ["ggml_permute", "graphc_copy"]
    functions = some.functions()
    assert functions[:2] == functions[-2:] == copied
    assert functions.count("graphc_copy") == 2
    assert functions.count("graphc_pad") == 1  # zeros that convolutions alone read are no step
    some.check(1e-4)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 49, 20), (1, 1, 100), (3, 1000, 5), (2, 33, 64)])
def test_means_over_rows(shape):
    some = Some()
    some.output(some.b.call("graphc_mean_over_rows", some.input("x", *shape), rank=3))
    some.check()
    np.testing.assert_allclose(
        some.run()[0], some.inputs["x"].mean(1, keepdims=True, dtype=np.float64), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("alone", [True, False])
def test_largest_elements_of_windows(alone):
    """As ResNet begins: nothing is copied between the first convolution and those of 1 x 1, unless planes are read too."""
    some = Some()
    image = some.input("x", 2, 3, 45, 38)
    kernel = some.weight(20, 3, 7, 7)
    x = some.ended(some.b.call("ggml_conv_2d", kernel, image, 2, 2, 3, 3, 1, 1, rank=4), "ggml_relu", True)
    op = MaxPool((3, 2), (2, 1), (1, 2), (1, 0), (1, 1), False)
    (shape,) = (each.shape for each in op.infer(TensorType(F32, x.shape)))
    before = list(some.program.kernels)
    x = some.program.call_kernel(KernelUse(op, ((F32, x.shape),), F32, shape), [x])
    some.output(some.conv(some.conv(x, 400), 16))
    if not alone:
        some.output(some.b.cont(some.b.transpose(x, (0, 1, 3, 2))))
    program = composed(some.program)
    functions = [call.function for call in program.calls]
    assert ("graphc_conv_2d_last" in functions) == alone
    assert len(program.kernels) == len(before) + 1 + alone
    assert len(some.program.kernels) == len(before) + 1
    copies = 2 if alone else 3  # of the output; of the image, or of what windows gave, and the one that is read
    assert functions.count("graphc_copy") == copies
    some.check(1e-4)
    (found, *_) = some.run(x=np.full((2, 3, 45, 38), np.nan, F32))
    assert np.isnan(found).all()


@pytest.mark.parametrize("around", [True, False], ids=["last", "planes"])
@pytest.mark.parametrize(
    ("shape", "channels", "groups", "size", "stride", "dilation", "activation"),
    [
        ((1, 64, 14, 14), 64, 32, 3, 1, 1, "ggml_relu"),  # of 2 channels, 4 and 8: vectors of several groups
        ((2, 128, 15, 13), 128, 32, 3, 2, 1, "ggml_relu"),
        ((1, 72, 9, 30), 72, 9, 3, 1, 2, "clip"),
        ((3, 40, 7, 7), 40, 10, 5, 1, 1, "ggml_silu"),  # a vector that overlaps
        ((2, 128, 12, 10), 128, 8, 3, 2, 1, "ggml_relu"),  # of 16: a product for each group
        ((1, 96, 11, 11), 96, 2, 3, 1, 1, ""),
        ((2, 400, 6, 5), 800, 2, 3, 1, 1, "ggml_silu"),  # sums of several parts, and more columns than a unit has
        ((1, 30, 9, 9), 20, 10, 3, 1, 1, "clip"),  # groups that become narrower
        ((1, 24, 8, 8), 96, 24, 3, 1, 1, "ggml_relu"),  # of one channel, which becomes several
        ((2, 48, 10, 10), 96, 4, 1, 1, 1, ""),  # of 1 x 1
        ((1, 32, 1, 1), 32, 8, 3, 1, 1, ""),  # most of the kernel meets nothing
    ],
)
def test_convolutions_in_groups(shape, channels, groups, size, stride, dilation, activation, around):
    some = Some()
    x = some.input("x", *shape)
    if around:
        x = some.conv(some.each(x), shape[1], activation="ggml_relu")
    y = some.groups(x, channels, groups, size, stride, dilation, activation)
    some.output(some.conv(y, 16) if around else y)
    functions = some.functions()
    assert ("graphc_conv_2d" in functions, "ggml_im2col" in functions) == (not around, False)
    some.check(atol=2e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_what_is_added_to_groups_as_images_keeps_planes(size):
    some = Some()
    x = some.conv(some.each(some.input("x", 2, 32, 9, 9)), 32)
    y = some.b.binary("ggml_add", some.groups(x, 32, 8, size), some.input("other", 2, 32, 9, 9))
    some.output(some.conv(y, 16))
    assert "graphc_conv_2d" in some.functions()
    some.check()


def test_an_infinity_stays_in_its_group():
    some = Some()
    some.output(some.conv(some.groups(some.conv(some.each(some.input("x", 1, 32, 9, 9)), 32), 32, 8), 16))
    some.output(some.groups(some.input("z", 1, 32, 9, 9), 32, 8))
    planes = some.inputs["z"].copy()
    planes[0, 5, 4, 4] = np.inf
    found = some.run(z=planes)[1]
    expected = some.run(own=False, z=planes)[1]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    assert np.isfinite(found[0, :4]).all()
    assert np.isfinite(found[0, 8:]).all()


def test_joined_enlarged_and_averaged_images_stay_as_they_are_held():
    some = Some()
    b = some.b
    x = some.conv(some.input("x", 2, 48, 6, 7), 40, activation="ggml_relu")
    sizes = ((2, 40, 12, 14), "NEAREST"), ((2, 40, 12, 14), "BILINEAR")
    larger = [some.conv(b.interpolate(x, *each), 32) for each in sizes]
    joined = some.conv(b.call("ggml_concat", *larger, 2, rank=4), 48)
    some.output(some.conv(b.pool_2d("AVG", joined, (3, 2), (2, 1), (1, 0)), 24))
    there, back = ["ggml_permute", "graphc_copy"], ["ggml_permute", "graphc_copy"]
    block = ["graphc_upscale", "graphc_linear"]
    rest = ["graphc_concat", "graphc_linear", "graphc_average_pool", "graphc_linear"]
    assert some.functions() == [*there, "graphc_linear", *block, *block, *rest, *back]
    some.check()


def test_some_channels_are_copied_as_they_are_held():
    some = Some()
    b = some.b
    x = some.conv(some.input("x", 2, 192, 6, 7), 320, activation="ggml_relu")
    parts = [b.cont(b.slice(x, (0, first, 0, 0), (2, 160, 6, 7), (1, 1, 1, 1))) for first in (0, 160)]
    some.output(b.call("ggml_concat", some.conv(parts[0], 128), some.conv(parts[1], 96), 2, rank=4))
    there, back = ["ggml_permute", "graphc_copy"], ["ggml_permute", "graphc_copy"]
    part = ["ggml_view_4d", "graphc_copy"]
    found = some.functions()
    assert found[:3] == [*there, "graphc_linear"]
    assert sorted(found[3:-3]) == sorted([*part, *part, "graphc_linear", "graphc_linear"])
    assert found[-3:] == ["graphc_concat", *back]
    some.check()


def test_several_kernels_for_each_channel_are_convolutions_of_single_channels():
    some = Some()
    x = some.each(some.input("x", 2, 24, 9, 8), activation="ggml_relu")
    some.output(some.groups(x, 72, 24, 5, stride=2, activation="ggml_silu"))
    there, back = ["ggml_permute", "graphc_copy"], ["ggml_permute", "graphc_copy"]
    assert some.functions() == [*there, "graphc_conv_2d_last", "graphc_upscale", "graphc_conv_2d_last", *back]
    some.check()


def bottlenecks(nodes: list, shape: list, constants: dict[str, np.ndarray]) -> list[str]:
    """The composed program's functions for five bottlenecks behind nodes that make `x0`, of 256 channels, of `x`."""
    kernels, nodes = dict(constants), list(nodes)
    shapes = {"a": (64, 256, 1, 1), "b": (64, 64, 3, 3), "c": (256, 64, 1, 1)}
    for block in range(5):
        kernels |= {name + str(block): np.ones(size, np.float32) for name, size in shapes.items()}
        nodes += [
            node("Conv", f"x{block} a{block}", f"p{block}"),
            node("Relu", f"p{block}", f"q{block}"),
            node("Conv", f"q{block} b{block}", f"r{block}", pads=[1, 1, 1, 1]),
            node("Conv", f"r{block} c{block}", f"s{block}"),
            node("Add", f"s{block} x{block}", f"x{block + 1}"),
        ]
    proto = model(nodes, [value("x", shape)], ["x5"], kernels)
    return [call.function for call in composed(compile_program(proto)).calls]


def test_a_free_batch_changes_no_order():
    """The numbers of images are not known, but that of an image's pixels is: bottlenecks are held as those of one image are."""
    one, any_number = (bottlenecks([node("Relu", "x", "x0")], [batch, 256, 14, 14], {}) for batch in (1, "batch"))
    assert any_number == one
    assert "graphc_conv_2d_last" in one


def test_a_free_height_and_width_change_no_order():
    """Copies are worth it at any size, or at none."""
    patches = [node("Conv", "x patches", "x0", strides=[16, 16])]
    kernel = {"patches": np.ones((256, 3, 16, 16), np.float32)}
    small, large, free = (
        bottlenecks(patches, [1, 3, *size], kernel) for size in ((64, 80), (2048, 2048), ("height", "width"))
    )
    assert small == large == free
    assert free.count("graphc_conv_2d_last") >= 5
