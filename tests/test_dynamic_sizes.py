"""What exporters compute from sizes, compiled once and run at several sizes, against ONNX's own interpreter."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphc
from graphc.errors import InputError, UnsupportedError
from graphc.frontend.onnx import load
from graphc.targets.ggml.run import context, executor

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Net:
    """A model in the making: `net("Add", "x", 1)` is a node's result; numbers and arrays become constants."""

    def __init__(self, **inputs: list[int | str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()]

    def __call__(self, operator: str, *args: object, outputs: int = 1, **attributes: object):
        names = [f"t{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(operator, [self.named(arg) for arg in args], names, **attributes))
        return names[0] if outputs == 1 else names

    def named(self, arg: object) -> str:
        if isinstance(arg, str):
            return arg
        self.constants.append(numpy_helper.from_array(np.asarray(arg), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def size(self, x: str, axis: int) -> str:
        """One size of a tensor, as a list of one number."""
        return self("Gather", self("Shape", x), np.array([axis]))

    def concat(self, *parts: object) -> str:
        """Sizes, one after the other."""
        return self("Concat", *(np.array([part]) if isinstance(part, int) else part for part in parts), axis=0)

    def model(self, *results: str, opset: int = 18) -> onnx.ModelProto:
        outputs = [helper.make_empty_tensor_value_info(name) for name in results]
        for value in outputs:
            value.type.tensor_type.elem_type = FLOAT
        graph = helper.make_graph(self.nodes, "net", self.inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def arrays(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Seeded inputs of these sizes."""
    generator = np.random.default_rng(0)
    found = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [eval(dim.dim_param, {}, sizes) if dim.dim_param else dim.dim_value for dim in dims]
        found[value.name] = generator.standard_normal(shape).astype(np.float32)
    return found


def agree(model: onnx.ModelProto, *bindings: dict[str, int], dims: dict | None = None) -> graphc.Model:
    """Compile once, run at each binding, compare with the interpreter."""
    compiled = graphc.compile(model, threads=1, dims=dims)
    reference = ReferenceEvaluator(model)
    for binding in bindings:
        feed = arrays(model, binding)
        expected = reference.run(None, feed)
        for array, (name, got) in zip(expected, compiled.run(feed).items(), strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6, err_msg=f"{name} at {binding}")
    return compiled


def attention_heads(net: Net) -> str:
    """Shape, Gather, Concat and Reshape: [b, c, h, w] to [b, h*w, c] and back."""
    b, c, h, w = (net.size("x", axis) for axis in range(4))
    rows = net("Transpose", net("Reshape", "x", net.concat(b, c, net("Mul", h, w))), perm=[0, 2, 1])
    back = net("Transpose", net("Mul", rows, np.float32(2)), perm=[0, 2, 1])
    return net("Reshape", back, net.concat(b, c, h, w))


def left_over(net: Net) -> str:
    """One size left open, one taken over."""
    flat = net("Reshape", "x", net.concat(0, -1, net("Mul", net.size("x", 2), np.array([2]))))
    return net("ReduceMean", flat, np.array([1]), keepdims=0)


def expand_by_where(net: Net) -> str:
    """PyTorch's expand: -1 stands for a size that stays."""
    shape = net.concat(net.size("x", 0), -1, net.size("x", 2), net.size("x", 3))
    ones = net("ConstantOfShape", net("Shape", shape), value=numpy_helper.from_array(np.array([1])))
    known = net("Where", net("Equal", shape, np.array(-1)), ones, shape)
    return net("Add", net("Expand", np.ones((1, 1, 1, 1), np.float32), known), "x")


def halves(net: Net) -> str:
    """Slices with computed ends, also from behind, put together in the other order."""
    half = net("Div", net.size("x", 3), np.array([2]))
    first = net("Slice", "x", np.array([0]), half, np.array([3]))
    second = net("Slice", "x", half, net.size("x", 3), np.array([3]))
    last = net("Slice", "x", net("Neg", half), np.array([2**62]), np.array([3]))
    return net("Concat", second, first, last, axis=3)


def positions(net: Net) -> str:
    """Range and ConstantOfShape."""
    tokens = net("Squeeze", net.size("x", 3))
    numbers = net("Cast", net("Range", np.int64(0), tokens, np.int64(1)), to=FLOAT)
    zeros = net("ConstantOfShape", net("Shape", "x"))
    return net("Add", net("Add", zeros, numbers), "x")


def float_positions(net: Net) -> str:
    """Range of floats up to a size: the mask of a sequence's length, where lengths are sums of durations."""
    length = net("Cast", net("Squeeze", net.size("x", 3)), to=FLOAT)
    places = net("Range", np.float32(0), length, np.float32(1))
    twice = net("Range", net("Neg", length), length, np.float32(2))
    return net("Add", net("Mul", "x", places), twice)


def causal_mask(net: Net) -> str:
    """Rows and columns compared, where a size is also the number that they are shifted by."""
    columns = net("Range", np.int64(0), net("Squeeze", net.size("x", 3)), np.int64(1))
    rows = net("Range", np.int64(0), net("Squeeze", net.size("x", 2)), np.int64(1))
    shift = net("Sub", net.size("x", 3), net.size("x", 2))
    seen = net("LessOrEqual", columns, net("Unsqueeze", net("Add", rows, shift), np.array([1])))
    return net("Where", seen, "x", np.float32(-1e4))


def resize_by_sizes(net: Net) -> str:
    """To the size of another tensor, which is twice as large here."""
    twice = net("Mul", net("Slice", net("Shape", "x"), np.array([2]), np.array([4])), np.array([2]))
    target = net("Concat", net("Slice", net("Shape", "x"), np.array([0]), np.array([2])), twice, axis=0)
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return net("Resize", "x", "", "", target, mode="nearest", **how)


def resize_by_scales(net: Net) -> str:
    """Linear, by a scale that is not a whole number."""
    return net("Resize", "x", "", np.array([1, 1, 1.5, 2], np.float32), mode="linear")


def pad_to_multiple(net: Net) -> str:
    """Computed pads: up to the next multiple of 4, then a mean over blocks."""
    size = net.size("x", 3)
    rest = net("Mod", net("Sub", np.array([4]), net("Mod", size, np.array([4]))), np.array([4]))
    padded = net("Pad", "x", net.concat(0, 0, 0, 0, 0, 0, 0, rest))
    return net("AveragePool", padded, kernel_shape=[1, 4], strides=[1, 4])


def smallest_and_largest(net: Net) -> str:
    """min and max of sizes as the size of a square."""
    low, high = (net(operator, net.size("x", 2), net.size("x", 3)) for operator in ("Min", "Max"))
    cut = net("Slice", "x", np.array([0, 0]), net.concat(low, low), np.array([2, 3]))
    return net("Pad", cut, net.concat(0, 0, 0, 0, 0, 0, net("Sub", high, low), net("Sub", high, low)))


def scaled_by_size(net: Net) -> str:
    """Sizes as numbers: divided by the root of one, times the quotient of two."""
    width = net("Cast", net.size("x", 3), to=FLOAT)
    ratio = net("Div", net("Cast", net.size("x", 2), to=FLOAT), width)
    return net("Mul", net("Div", "x", net("Sqrt", width)), ratio)


def split_and_tile(net: Net) -> str:
    """Parts of computed sizes, and as many copies as there are channels."""
    half = net("Div", net.size("x", 2), np.array([2]))
    parts = net("Split", "x", net.concat(half, net("Sub", net.size("x", 2), half)), axis=2, outputs=2)
    return net("Tile", net("Concat", *parts[::-1], axis=2), net.concat(1, net.size("x", 1), 1, 1))


def last_rows(net: Net) -> str:
    """A slice whose start is counted from the back or the front, as the size is."""
    start = net("Div", net("Sub", np.array([3]), net.size("x", 3)), np.array([2]))
    return net("Slice", "x", start, np.array([2**62]), np.array([3]))


def guarded(net: Net) -> str:
    """A comparison that every size decides the same way."""
    positive = net("Greater", net("Mul", net.size("x", 3), net.size("x", 2)), np.array([0]))
    taken = net("Where", positive, net.size("x", 3), np.array([7]))
    return net("Reshape", "x", net.concat(-1, taken))


PATTERNS = [attention_heads, left_over, expand_by_where, halves, positions, causal_mask, resize_by_sizes, resize_by_scales,
            pad_to_multiple, smallest_and_largest, scaled_by_size, split_and_tile, last_rows, guarded,
            float_positions]  # fmt: skip
SIZES = [{"b": 1, "h": 4, "w": 6}, {"b": 2, "h": 5, "w": 3}, {"b": 3, "h": 2, "w": 9}]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.__name__)
def test_sizes_are_computed_when_the_model_runs(pattern):
    net = Net(x=["b", 2, "h", "w"])
    result = pattern(net)
    agree(net.model(result), *SIZES)


def pyramid() -> onnx.ModelProto:
    """Halved twice and added to itself doubled: only multiples of 4 fit."""
    net = Net(sample=["b", 1, "h", "w"])
    small = net(
        "MaxPool", net("MaxPool", "sample", kernel_shape=[2, 2], strides=[2, 2]), kernel_shape=[2, 2], strides=[2, 2]
    )
    large = net("Resize", small, "", np.array([1, 1, 4, 4], np.float32), mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip
    return net.model(net("Add", "sample", large))


def test_a_size_that_does_not_fit_is_refused_in_the_models_words():
    model = agree(pyramid(), {"b": 1, "h": 8, "w": 12}, {"b": 2, "h": 4, "w": 4})
    with pytest.raises(InputError, match=r"sample: axis 2 has size 6, must be a multiple of 4 \(h\)"):
        model.run(sample=np.zeros((1, 1, 6, 8), np.float32))
    with pytest.raises(InputError, match=r"sample: axis 3 has size 2, must be at least 4 \(w\)"):
        model.run(sample=np.zeros((1, 1, 8, 2), np.float32))


def test_a_size_is_learned_where_two_meet_in_a_product():
    """A table of 6 x 6 positions, cut from the middle, for each of h x w patches."""
    net = Net(x=["b", "h", "w", 2])
    size, table = np.array([6]), np.arange(72, dtype=np.float32).reshape(6, 6, 2)
    for axis in (0, 1):
        here = net.size("x", axis + 1)
        start = net("Div", net("Sub", size, here), np.array([2]))
        table = net("Slice", table, start, net("Add", start, here), np.array([axis]))
    patches = net.concat(net("Mul", net.size("x", 1), net.size("x", 2)), 2)
    flat = net("Reshape", "x", net.concat(net.size("x", 0), patches))
    result = net("Add", flat, net("Reshape", table, np.array([-1, 2])))
    model = agree(net.model(result), {"b": 1, "h": 6, "w": 1}, {"b": 2, "h": 3, "w": 4})
    with pytest.raises(InputError, match=r"x: axis 1 has size 7, must be at most 6 \(h\)"):
        model.run(x=np.zeros((1, 7, 1, 2), np.float32))


def test_a_quotient_that_is_rounded_down():
    """As PyTorch's exporter writes it: one less where a rest is left and the signs differ, which those of sizes do not."""
    net = Net(x=["b", 1, "h", "w"])
    size, three = net("Squeeze", net.size("x", 3)), np.int64(3)
    differ = net("Not", net("Equal", net("Sign", size), np.int64(1)))
    less = net("And", differ, net("Cast", net("Mod", size, three), to=BOOL))
    third = net("Sub", net("Div", size, three), net("Cast", less, to=INT64))
    cut = net("Slice", "x", np.array([0]), net("Unsqueeze", third, np.array([0])), np.array([3]))
    model = agree(net.model(cut), *SIZES)
    assert str(model.outputs[0].shape[3]) == "(w//3)"


def test_a_size_that_is_divided_by_one_that_may_be_zero():
    """Windows of 4 words, of which short inputs have none: how wide they are is told when the model runs, and is then what is
    known of the input."""
    net = Net(x=["b", "n", 8])
    windows = net("Div", net.size("x", 1), np.array([4]))
    cut = net("Slice", "x", np.array([0]), net("Mul", windows, np.array([4])), np.array([1]))
    width = net("Div", net("Mul", windows, np.array([8])), windows)
    told = net("Reshape", cut, net.concat(net.size("x", 0), windows, 4, width))
    rest = net("Slice", told, np.array([1]), np.array([2**62]), np.array([1]))
    before = net("Slice", told, np.array([0]), np.array([-1]), np.array([1]))
    known = net("Reshape", cut, net.concat(net.size("x", 0), windows, 4, 8))
    agree(
        net.model(net("Add", told, known), net("Add", rest, before)),
        {"b": 2, "n": 4},
        {"b": 1, "n": 7},
        {"b": 1, "n": 21},
    )


def test_rows_of_an_input_have_whole_patches():
    """Patches of 3 x 4 numbers: the last axis has whole ones, whatever the number of rows is."""
    net = Net(x=["n", "f"])
    patches = net("Reshape", "x", np.array([-1, 3, 4]))
    model = agree(net.model(net("ReduceMax", patches, np.array([2]))), {"n": 5, "f": 12}, {"n": 1, "f": 36})
    with pytest.raises(InputError, match=r"x: axis 1 has size 8, must be at least 12 \(f\)"):
        model.run(x=np.zeros((3, 8), np.float32))


def test_a_row_that_is_taken_out_must_be_there():
    """As `x[1:][0]`, of which only an input with two rows has one."""
    net = Net(x=["n", 3])
    rest = net("Slice", "x", np.array([1]), np.array([2**62]), np.array([0]))
    row = net("Squeeze", net("Slice", rest, np.array([0]), np.array([1]), np.array([0])), np.array([0]))
    model = agree(net.model(net("Mul", "x", row)), {"n": 2}, {"n": 7})
    with pytest.raises(InputError, match=r"x: axis 0 has size 1, must be at least 2 \(n\)"):
        model.run(x=np.zeros((1, 3), np.float32))


def test_where_a_table_ends_is_found_however_long_the_input_then_is():
    """A frame of each 320 samples, and positions of 20 frames from the middle of a table, as Wav2Vec2-Conformer has them."""
    net = Net(x=["b", 1, "time"])
    frames = net("AveragePool", "x", kernel_shape=[320], strides=[320])
    count, middle = net.size(frames, 2), np.array([20])
    table = np.arange(40, dtype=np.float32)
    positions = net("Slice", table, net("Sub", middle, count), net("Add", middle, count), np.array([0]))
    model = agree(net.model(net("Add", net("Concat", frames, frames, axis=2), positions)), {"b": 2, "time": 700})
    with pytest.raises(InputError, match=r"x: axis 2 has size 6720, must be at most 6719 \(time\)"):
        model.run(x=np.zeros((1, 1, 6720), np.float32))


def test_any_number_of_rows_goes_into_a_cache():
    """First a prompt, then word by word, as decoders with a cache of one size do."""
    net = Net(cache=["b", 2, 8, 4], new=["b", 2, "n", 4])
    start = net("Expand", np.array([6]), net.size("new", 0))
    result = net("TensorScatter", "cache", "new", start, axis=-2, mode="circular")
    agree(net.model(result, opset=24), {"b": 1, "n": 5}, {"b": 2, "n": 1}, {"b": 3, "n": 8})


@pytest.mark.parametrize("pool", ["AveragePool", "MaxPool"])
def test_sizes_that_are_rounded_up_in_two_ways(pool):
    """A bottleneck of ResNet-D: a convolution of every second pixel beside a pool that takes in the rest of an odd size."""
    net = Net(x=[1, 3, "h", "w"])
    convolved = net("Conv", "x", np.ones((3, 3, 3, 3), np.float32), strides=[2, 2], pads=[1, 1, 1, 1])
    pooled = net(pool, "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    agree(net.model(net("Add", convolved, pooled)), {"h": 8, "w": 5}, {"h": 7, "w": 2}, {"h": 1, "w": 9})


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("operator", ["Conv", "MaxPool", "AveragePool", "with padding"])
def test_padding_that_depends_on_the_size(operator, pad):
    """TensorFlow's, where windows are two apart: an even size has one more at one end, an odd one has as many at both."""
    net = Net(x=["b", 3, "h", "w"])
    common = {"auto_pad": pad, "strides": [2, 2], "kernel_shape": [3, 5]}
    if operator == "Conv":
        result = net("Conv", "x", np.random.default_rng(1).standard_normal((2, 3, 3, 5)).astype(np.float32), **common)
    elif operator == "with padding":
        result = net("AveragePool", "x", count_include_pad=1, **common)
    else:
        result = net(operator, "x", **common)
    model = net.model(result)
    compiled, session = graphc.compile(model, threads=1), onnxruntime.InferenceSession(model.SerializeToString())
    for sizes in ({"b": 2, "h": 6, "w": 7}, {"b": 1, "h": 5, "w": 8}, {"b": 1, "h": 1, "w": 1}):
        feed = arrays(model, sizes)
        (expected,) = session.run(None, feed)
        np.testing.assert_allclose(next(iter(compiled.run(feed).values())), expected, rtol=1e-5, atol=1e-5)


def test_sequences_filled_up_to_whole_chunks():
    """As Mamba 2 computes them: `n + (8 - n % 8) % 8` words are some eights."""
    net = Net(x=["b", "n", 2])
    rest = net("Mod", net("Sub", np.array([8]), net("Mod", net.size("x", 1), np.array([8]))), np.array([8]))
    filled = net("Pad", "x", net.concat(0, 0, 0, 0, rest, 0))
    chunks = net("Reshape", filled, net.concat(net.size("x", 0), -1, 8, 2))
    sums = net("ReduceSum", chunks, np.array([2]))
    back = net(
        "Slice",
        net("Reshape", chunks, net.concat(net.size("x", 0), -1, 2)),
        np.array([0]),
        net.size("x", 1),
        np.array([1]),
    )
    agree(net.model(sums, net("Sub", back, "x")), {"b": 2, "n": 5}, {"b": 1, "n": 16}, {"b": 1, "n": 17})


def test_the_last_of_a_mask():
    """`mask[:, -n:]` for n words: a mask as long as the words, and neither of some number that is tried."""
    net = Net(x=["b", "n"], mask=["b", "m"])
    start = net("Sub", np.array([0]), net.size("x", 1))
    last = net("Slice", "mask", start, np.array([2**63 - 1]), np.array([1]))
    model = agree(net.model(net("Mul", "x", last)), {"b": 2, "n": 5, "m": 5}, {"b": 1, "n": 70, "m": 70})
    with pytest.raises(InputError, match="mask: axis 1 has size 4, must be 5"):
        model.run(x=np.zeros((1, 5), np.float32), mask=np.zeros((1, 4), np.float32))


def test_one_chunk_that_was_seen():
    """An exporter that saw fewer words than a chunk has writes a chunk's words: it is for up to a chunk."""
    net = Net(x=["n", 2])
    filled = net("Sub", net("Add", net.size("x", 0), np.array([63])), np.array([0]))
    words = net("Min", net.size("x", 0), np.array([64]))
    shape = net.concat(net("Div", filled, np.array([64])), words, 2)
    model = agree(net.model(net("Reshape", "x", shape)), {"n": 5}, {"n": 64})
    with pytest.raises(InputError, match=r"x: axis 0 has size 65, must be at most 64 \(n\)"):
        model.run(x=np.zeros((65, 2), np.float32))


def test_padding_that_short_inputs_turn_into_a_cut():
    """Relative positions within a window, as a tracer writes them: 2 n - 1 of the 9 that the model has, or zeros around these."""
    net = Net(x=["b", "n", 2])
    more = net("Sub", net.size("x", 1), np.array([5]))
    table = np.arange(1, 19, dtype=np.float32).reshape(1, 9, 2)
    window = net("Pad", table, net.concat(0, more, 0, 0, more, 0))
    scores = net("MatMul", "x", net("Transpose", window, perm=[0, 2, 1]))
    model = net.model(scores, window)
    compiled, session = graphc.compile(model, threads=1), onnxruntime.InferenceSession(model.SerializeToString())
    for n in (1, 2, 5, 7):
        feed = arrays(model, {"b": 2, "n": n})
        for expected, got in zip(session.run(None, feed), compiled.run(feed).values(), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5)
    with pytest.raises(UnsupportedError, match="whether the padding n - 5 is negative is not known"):
        graphc.compile(net.model(net("Pad", table, net.concat(0, more, 0, 0, more, 0), mode="edge")))


def test_what_a_mask_counts_twice_is_one_number():
    """As torch.onnx writes `y[mask] = (2 * x)[mask]`: as many of the elements that were taken as there are places to put them."""
    net = Net(x=["n"])
    taken = net("Transpose", net("NonZero", net("Greater", "x", np.float32(0))))
    places = net("Transpose", net("NonZero", net("Not", net("LessOrEqual", "x", np.float32(0)))))
    values = net("GatherND", net("Add", "x", "x"), taken)
    values = net("Slice", values, np.array([0]), net.size(places, 0))
    model = agree(net.model(net("ScatterND", net("Sub", "x", "x"), places, values)), {"n": 1}, {"n": 5}, {"n": 300})
    np.testing.assert_array_equal(next(iter(model.run(x=np.full(3, -1, np.float32)).values())), 0)
    with pytest.raises(
        InputError, match=r"the count of t5_0 is 2, must be 1 \(t1_0_count\)"
    ):  # what is not a number is put, but not taken
        model.run(x=np.array([np.nan, 1], np.float32))


def masked_rows(rows):
    """A model of rows of 3, and the mask of those whose sum is positive."""
    net = Net(x=[rows, 3])
    return net, net("Greater", net("ReduceSum", "x", np.array([1]), keepdims=0), np.float32(0))


def places_of_elements(net, mask):
    """Where the elements of the rows are that a mask chooses."""
    whole = net("Expand", net("Unsqueeze", mask, np.array([-1])), np.array([1, 3]))
    return net("Transpose", net("NonZero", whole))


def check_written(net, rows, result, written):
    """The result agrees with onnxruntime's, and has what is written where rows are positive: in none of them, and in all."""
    sizes = [{}] if rows == 16 else [{"n": 1}, {"n": 5}, {"n": 300}]
    model = agree(net.model(result), *sizes)
    for x in (np.full((16, 3), -1, np.float32), np.full((16, 3), 2, np.float32)):
        np.testing.assert_array_equal(next(iter(model.run(x=x).values())), np.where(x > 0, written(x), x))


@pytest.mark.parametrize("rows", ["n", 16])
def test_rows_that_a_mask_chooses_are_written_where_they_were(rows):
    """As torch.onnx writes `x[mask] = 2 * x[mask]` for rows of 3: all elements are counted, and rows by the mask's sum."""
    net, mask = masked_rows(rows)
    chosen = net("Unsqueeze", net("Squeeze", net("Transpose", net("NonZero", mask)), np.array([1])), np.array([-1]))
    doubled = net("Mul", net("GatherND", "x", chosen), np.float32(2))
    count = net("ReduceSum", net("Cast", net("Reshape", mask, np.array([-1])), to=INT64))
    updates = net("Reshape", net("Expand", doubled, net.concat(count, 3)), np.array([-1]))
    places = places_of_elements(net, mask)
    check_written(net, rows, net("ScatterND", "x", places, updates), lambda x: 2 * x)


@pytest.mark.parametrize("rows", ["n", 16])
def test_what_a_mask_counts_by_rows_and_by_elements_is_one_number(rows):
    """As torch.onnx writes `x.masked_scatter(mask, values)`: as many of the values as there are places, of rows of 3."""
    net, mask = masked_rows(rows)
    chosen = net("GatherND", net("Add", "x", "x"), net("Transpose", net("NonZero", mask)))
    places = places_of_elements(net, mask)
    values = net("Slice", net("Reshape", chosen, np.array([-1])), np.array([0]), net.size(places, 0))
    check_written(net, rows, net("ScatterND", "x", places, values), lambda x: 2 * x)


@pytest.mark.parametrize("rows", ["n", 16])
def test_a_row_is_written_where_a_mask_says_so(rows):
    """As torch.onnx writes `x[mask] = row`: the elements are counted before the rows are, of which nothing else is known."""
    net, mask = masked_rows(rows)
    places = places_of_elements(net, mask)
    count = net("ReduceSum", net("Cast", mask, to=INT64), np.array([0]))
    row = np.arange(3, dtype=np.float32)
    updates = net("Reshape", net("Expand", row, net.concat(count, 3)), np.array([-1]))
    check_written(net, rows, net("ScatterND", "x", places, updates), lambda _: row)


def between(net, start, end):
    """Rows from one number to another."""
    return net("Gather", "x", net("Range", net("Squeeze", start), net("Squeeze", end), np.int64(1)), axis=0)


def sliced(net, start, end):
    return net("Slice", "x", start, end, np.array([0]))


@pytest.mark.parametrize("rows_of", [between, sliced], ids=lambda rows_of: rows_of.__name__)
@pytest.mark.parametrize("rows", ["n", 16])
def test_groups_of_rows_that_are_joined_again_are_all_rows(rows, rows_of):
    """As mixtures of experts are exported: groups end where a running sum of counts says, and have all rows together."""
    net = Net(x=[rows, 3])
    net.inputs.append(helper.make_tensor_value_info("counts", INT64, [12]))
    ends = net("Split", net("CumSum", "counts", np.int64(0)), outputs=12, num_outputs=12)
    starts = [np.array([0]), *ends]
    groups = [net("Mul", rows_of(net, *pair), np.float32(n)) for n, pair in enumerate(zip(starts, ends, strict=False))]
    model = graphc.compile(net.model(net("Add", net("Concat", *groups, axis=0), "x")), threads=1)
    generator = np.random.default_rng(0)
    for count in (16,) if rows == 16 else (16, 1, 40):
        x = generator.standard_normal((count, 3), dtype=np.float32)
        for counts in (generator.multinomial(count, np.full(12, 1 / 12)), np.eye(12, dtype=np.int64)[7] * count):
            (got,) = model.run(x=x, counts=counts).values()
            np.testing.assert_array_equal(got, x * np.repeat(np.arange(12, dtype=np.float32), counts)[:, None] + x)
    with pytest.raises(InputError, match=r"the length of t\d+_0 is 2, must be 3"):
        model.run(x=x, counts=np.r_[np.ones(10, np.int64), len(x) - 13, 2])


def test_what_a_run_tells_is_called_as_the_size_of_an_input_that_it_must_be():
    net = Net(x=["n", 3])
    net.inputs.append(helper.make_tensor_value_info("counts", INT64, [1]))
    model = graphc.compile(net.model(net("Concat", net("Split", "x", "counts", axis=0), "x", axis=1)), threads=1)
    assert str(model.inputs[0].shape[0]) == "n"
    x = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(next(iter(model.run(x=x, counts=np.array([5])).values())), np.hstack([x, x]))
    with pytest.raises(InputError, match=r"the sizes of the parts of t0_0 is 4, must be 5 \(n\)"):
        model.run(x=x, counts=np.array([4]))


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul"])
def test_a_size_and_a_number_of_the_run_make_a_size(operator):
    """As many columns as the input has, and as many more or fewer as another input says."""
    net = Net(x=["n", 6])
    net.inputs.append(helper.make_tensor_value_info("more", INT64, []))
    end = net(operator, net("Squeeze", net.size("x", 0)), "more")
    cut = net("Slice", "x", np.array([0]), net("Reshape", end, np.array([-1])), np.array([1]))
    model = graphc.compile(net.model(cut), threads=1)
    x = np.arange(18, dtype=np.float32).reshape(3, 6)
    for more in (0, 1, 2):
        columns = {"Add": 3 + more, "Sub": 3 - more, "Mul": 3 * more}[operator]
        (got,) = model.run(x=x, more=np.array(more)).values()
        np.testing.assert_array_equal(got, x[:, :columns])


def test_a_declared_range_is_used_and_checked():
    model = agree(pyramid(), {"b": 1, "h": 8, "w": 16}, dims={"h": "8..16:8", "w": 16})
    assert [str(size) for size in model.inputs[0].shape] == ["b", "1", "h", "16"]
    with pytest.raises(InputError, match=r"axis 2 has size 24, must be at most 16 \(h\)"):
        model.run(sample=np.zeros((1, 1, 24, 16), np.float32))
    with pytest.raises(InputError, match=r"axis 2 has size 12, must be a multiple of 8 \(h\)"):
        model.run(sample=np.zeros((1, 1, 12, 16), np.float32))


@pytest.mark.parametrize("text", ["0", "-1", "8..4", "9..15:8", "1..2:0", "a", "1.5", "", "1..2..3"])
def test_ranges_that_are_none(text):
    with pytest.raises(InputError, match="dimension h is to be"):
        graphc.compile(pyramid(), dims={"h": text})


def test_a_range_decides_a_comparison():
    net = Net(x=["n"])
    long = net("Greater", net("Size", "x"), np.int64(100))
    result = net("If", long, then_branch=branch(2.0), else_branch=branch(3.0))
    proto = net.model(net("Mul", "x", result))
    for sizes, dims, decided in (
        ({"n": 8}, {"n": "1..100"}, True),
        ({"n": 128}, {"n": "101.."}, True),
        ({"n": 8}, {}, False),
    ):
        agree(proto, sizes, dims=dims)
        assert decided is all(node.op.name != "If" for node in load(proto, dims=dims).nodes)
    agree(proto, {"n": 128})


def branch(number: float) -> onnx.GraphProto:
    node = helper.make_node("Constant", [], ["number"], value_float=number)
    return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("number", FLOAT, [])])


def joined() -> onnx.ModelProto:
    """A cache: what was there and what is new, weighted by a mask over both."""
    net = Net(past=["p", 4], new=["n", 4], mask=["m", 1])
    return net.model(net("Mul", net("Concat", "past", "new", axis=0), "mask"))


def test_a_size_that_must_be_a_sum_of_others():
    model = agree_joined(None)
    assert str(model.inputs[2].shape[0]) == "n + p"
    with pytest.raises(InputError, match=r"mask: axis 0 has size 4, must be 5 \(n \+ p\)"):
        model.run(run_joined(3, 2, 4))
    with pytest.raises(InputError, match=r"past: axis 0 has size 0, must be at least 1 \(p\); .*--dim p=0\.\."):
        model.run(run_joined(0, 2, 2))


def test_a_size_may_be_zero_where_that_is_declared():
    model = agree_joined({"p": "0.."})
    feed = run_joined(0, 2, 2)
    (result,) = model.run(feed).values()
    np.testing.assert_array_equal(result, feed["new"] * feed["mask"])


def run_joined(past: int, new: int, mask: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {"past": (past, 4), "new": (new, 4), "mask": (mask, 1)}
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def agree_joined(dims: dict | None) -> graphc.Model:
    model = graphc.compile(joined(), threads=1, dims=dims)
    for past, new in ((1, 1), (5, 2), (2, 7)):
        feed = run_joined(past, new, past + new)
        (result,) = model.run(feed).values()
        np.testing.assert_array_equal(result, np.concatenate([feed["past"], feed["new"]]) * feed["mask"])
    return model


def test_sizes_share_memory_and_are_kept():
    model = graphc.compile(pyramid(), threads=1)
    reference = ReferenceEvaluator(pyramid())
    reserved = []
    for size in (64, 16, 128, 64, 16, 128, 32):
        feed = {"sample": np.random.default_rng(size).standard_normal((1, 1, size, size)).astype(np.float32)}
        for _ in range(2):
            (result,) = model.run(feed).values()
            np.testing.assert_array_equal(result, reference.run(None, feed)[0])
        reserved.append(model.executor.compute_bytes)
    assert reserved[0] == reserved[1] < reserved[2] == reserved[-1]
    assert len(model.executor.graphs) == 4


def test_the_least_recently_used_size_goes_first(monkeypatch):
    monkeypatch.setattr(context, "KEPT_SIZES", 2)
    monkeypatch.setattr(context, "KEPT_BYTES", 0)
    model = graphc.compile(pyramid(), threads=1)
    for size in (4, 8, 4, 12):
        model.run(sample=np.zeros((1, 1, size, size), np.float32))
    assert [graph.binding["h"] for graph in model.executor.graphs] == [4, 12]


def test_two_backends_share_a_scheduler(monkeypatch):
    open_one = executor.open_backends
    monkeypatch.setattr(executor, "open_backends", lambda *args: open_one(*args) + open_one(*args))
    model = graphc.compile(pyramid(), threads=1)
    assert len(model.executor.backends) == 2
    reference = ReferenceEvaluator(pyramid())
    for batch, size in ((1, 16), (2, 8), (1, 16), (4, 4), (2, 8)):
        feed = {"sample": np.random.default_rng(size).standard_normal((batch, 1, size, size)).astype(np.float32)}
        (result,) = model.run(feed).values()
        np.testing.assert_array_equal(result, reference.run(None, feed)[0])
