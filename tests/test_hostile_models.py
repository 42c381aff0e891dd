"""Models that nobody would write: whatever a file says, the answer is a result or one GraphcError, with little memory."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend_models import model, node, value
from onnx import AttributeProto, TensorProto, helper

import graphc
from graphc.errors import GraphcError, InputError, ModelError

resource = pytest.importorskip("resource")

ONES = np.ones((1, 1, 5, 5), np.float32)


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """Two gigabytes more than the process has: whoever asks for more gets a MemoryError, which no test expects."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def image(operator: str, **attributes: object) -> onnx.ModelProto:
    """An operator of an image."""
    return model([node(operator, "x", "y", **attributes)], [value("x", ONES.shape)], ["y"])


# Sizes


@pytest.mark.parametrize(
    "names", [("a+b", 3), ("a+b", "a"), ("a*b", 2), ("a//2", "n"), ("min(a, b)", "a + b"), ("a+1", 2)]
)
def test_an_expression_that_no_input_explains_is_a_size_of_its_own(names: tuple[str | int, ...]) -> None:
    found = graphc.compile(model([node("Neg", "x", "y")], [value("x", names)], ["y"]))
    for shape in ((2, 3), (5, 2)):
        shape = tuple(size if isinstance(size, int) else given for size, given in zip(names, shape, strict=True))
        np.testing.assert_array_equal(found.run(x=np.ones(shape, np.float32))["y"], -np.ones(shape, np.float32))


def test_an_expression_that_an_input_explains_is_checked() -> None:
    inputs = [value("x", ["a + b"]), value("y", ["a"]), value("z", ["b"])]
    found = graphc.compile(model([node("Concat", "y z", "c", axis=0), node("Add", "c x", "s")], inputs, ["s"]))
    arrays = {name: np.ones(size, np.float32) for name, size in (("x", 5), ("y", 2), ("z", 3))}
    assert found.run(arrays)["s"].tolist() == [2.0] * 5
    with pytest.raises(InputError, match="axis 0 has size 6, must be 5"):
        found.run({**arrays, "x": np.ones(6, np.float32)})


BATCHES = {
    "Conv": {"w": np.ones((1, 1, 3, 3), np.float32)},
    "ConvTranspose": {"w": np.ones((1, 1, 3, 3), np.float32)},
    "MaxPool": {"kernel_shape": [2, 2]},
    "AveragePool": {"kernel_shape": [2, 2], "pads": [1, 0, 1, 0]},
    "InstanceNormalization": {"s": np.ones(1, np.float32), "b": np.ones(1, np.float32)},
    "LRN": {"size": 3},
    "GlobalAveragePool": {},
}


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("operator", BATCHES)
def test_batches_of_no_images(operator: str, folded: bool) -> None:
    """Run, and computed while compiling."""
    constants = {name: each for name, each in BATCHES[operator].items() if isinstance(each, np.ndarray)}
    attributes = {name: each for name, each in BATCHES[operator].items() if name not in constants}
    nodes = [node(operator, " ".join(["x", *constants]), "e", **attributes), node("Add", "e z", "y")]
    empty = {"x": np.ones((0, 1, 5, 5), np.float32)}
    inputs = [value("z", [1]), *([] if folded else [value("x", [0, 1, 5, 5])])]
    found = graphc.compile(model(nodes, inputs, ["y"], {**constants, **(empty if folded else {})}))
    result = found.run(z=np.ones(1, np.float32), **({} if folded else empty))["y"]
    assert result.shape[0] == 0
    assert result.ndim == 4


@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool", "LpPool"])
def test_windows_of_gigabytes(operator: str) -> None:
    with pytest.raises(ModelError, match="a window of 2147483648 elements"):
        graphc.compile(image(operator, kernel_shape=[2**31, 1], pads=[2**30, 0, 2**30, 0]))
    with pytest.raises(ModelError, match=r"17179869184 of padding|not valid"):
        graphc.compile(image(operator, kernel_shape=[1, 1], pads=[2**34, 0, 2**34, 0], strides=[2**33, 1]))


def test_windows_of_convolutions_of_gigabytes() -> None:
    for attributes in (
        {"dilations": [2**31, 1], "pads": [2**32, 0, 2**32, 0]},
        {"pads": [2**31, 0, 0, 0], "strides": [2**30, 1]},
    ):
        proto = model(
            [node("Conv", "x w", "y", **attributes)], [value("x", ONES.shape)], ["y"], {"w": ONES[:, :, :3, :3]}
        )
        with pytest.raises(ModelError, match="a window of"):
            graphc.compile(proto)


def test_a_window_of_more_channels_than_there_are_is_of_all() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    for size in (5, 6, 7, 100, 2**31 + 1):
        proto = model([node("LRN", "x", "y", size=size, alpha=0.5)], [value("x", x.shape)], ["y"])
        total = np.square(x).sum(1, keepdims=True)
        if size < 6:
            total = np.stack([np.square(x)[:, max(0, c - 2) : c + 3].sum(1) for c in range(3)], 1)
        np.testing.assert_allclose(graphc.compile(proto).run(x=x)["y"], x / (1 + 0.5 / size * total) ** 0.75, 1e-6)


def test_a_sequence_of_very_many_tensors() -> None:
    count = 10**6
    nodes = [node("SplitToSequence", "x", "s"), node("SequenceAt", "s i", "y")]
    found = graphc.compile(
        model(nodes, [value("x", [count]), value("i", [], np.int64)], [onnx.ValueInfoProto(name="y")])
    )
    assert found.run(x=np.arange(count, dtype=np.float32), i=np.array(count - 7))["y"].tolist() == [count - 7]
    nodes[0] = node("SplitToSequence", "x two", "s")
    with pytest.raises(GraphcError, match="a sequence of 500000 tensors is not supported"):
        graphc.compile(model(nodes, [value("x", [count]), value("i", [], np.int64)], [onnx.ValueInfoProto(name="y")],
                             {"two": np.array(2)}))  # fmt: skip


MADE: dict[str, tuple[onnx.NodeProto, dict[str, list[int]], dict[str, np.ndarray]]] = {
    "samples of a region": (
        node("RoiAlign", "x r b", "y", sampling_ratio=2**31 - 1),
        {"x": [1, 1, 4, 4]},
        {"r": np.ones((1, 4), np.float32), "b": np.zeros(1, np.int64)},
    ),
    "places of the largest": (node("MaxPool", "x", "z y", kernel_shape=[1, 1]), {"x": [1, 1, 2**18, 2**18]}, {}),
    "blocks": (node("Col2Im", "x s s", "y"), {"x": [1, 2**20, 1]}, {"s": np.array([2**10, 2**10])}),
    "rows of a cache": (node("TensorScatter", "x u", "y"), {"x": [1, 2**30, 1], "u": [1, 2**30, 1]}, {}),
    "steps": (node("ReverseSequence", "x l", "y"), {"x": [2**30, 1]}, {"l": np.array([3])}),
    "frames": (
        helper.make_node("STFT", ["x", "one", "", "n"], ["y"]),
        {"x": [1, 2**30, 1]},
        {"one": np.array(1), "n": np.array(512)},
    ),
    "bands": (
        node("MelWeightMatrix", "bands n rate low high", "y"),
        {},
        {"bands": np.array(4096), "n": np.array(2**20), "rate": np.array(16000),
         "low": np.float32(0), "high": np.float32(8000)},
    ),
    "n-grams": (
        node("TfIdfVectorizer", "x", "y", mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
             ngram_counts=[0], ngram_indexes=[2**40], pool_int64s=[3]),
        {"x": [4]},
        {},
    ),
}  # fmt: skip
"""A few bytes that ask an importer for a table of gigabytes: the node, its inputs, its constants."""


@pytest.mark.parametrize("name", MADE)
def test_tables_of_gigabytes(name: str) -> None:
    made, inputs, constants = MADE[name]
    declared = [value(each, shape, np.int64 if name == "n-grams" else np.float32) for each, shape in inputs.items()]
    held = [onnx.numpy_helper.from_array(np.asarray(array), each) for each, array in constants.items()]
    graph = helper.make_graph([made], "g", declared, [onnx.ValueInfoProto(name="y")], held)
    with pytest.raises(GraphcError, match="numbers would have to be made"):
        graphc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10))


@pytest.mark.parametrize("shape", [[1] * 65, [1] * 1000])
def test_tensors_of_many_axes(shape: list[int]) -> None:
    constants = {"c": np.ones(1, np.float32), "s": np.array(shape)}
    for nodes in (
        [node("Reshape", "x s", "y")],
        [node("Expand", "x s", "y")],
        [node("Reshape", "c s", "e"), node("Add", "e x", "y")],
        [node("Expand", "c s", "e"), node("Add", "e x", "y")],
        [node("ConstantOfShape", "s", "e"), node("Add", "e x", "y")],
    ):
        with pytest.raises(GraphcError, match=f"{len(shape)} axes, more than 64|not valid"):
            graphc.compile(model(nodes, [value("x", [1])], [onnx.ValueInfoProto(name="y")], constants))
    with pytest.raises(GraphcError, match=f"{len(shape)} axes"):
        graphc.compile(model([node("Neg", "x", "y")], [value("x", shape)], [onnx.ValueInfoProto(name="y")]))


def test_a_few_bytes_that_ask_for_gigabytes() -> None:
    last = node("Add", "e x", "y")
    constants = {
        "s": np.array([2**30]),
        "c": np.ones(1, np.float32),
        "z": np.array(0),
        "n": np.array(2**30),
        "one": np.array(1),
    }
    for nodes in (
        [node("ConstantOfShape", "s", "e"), last],
        [node("Expand", "c s", "t"), node("ReduceSum", "t", "e"), last],
        [node("Range", "z n one", "r"), node("Cast", "r", "e", to=1), last],
        [node("Tile", "c s", "e"), last],
        [node("Pad", "c p", "e"), last],
        [node("OneHot", "z n v", "o"), node("ReduceMax", "o", "e"), last],
    ):
        more = {"p": np.array([0, 2**30]), "v": np.array([0, 1], np.float32)}
        with pytest.raises(GraphcError, match=r"takes (4096|8192) MiB; it is computed from what takes far less"):
            graphc.compile(model(nodes, [value("x", [1])], [onnx.ValueInfoProto(name="y")], {**constants, **more}))
    found = graphc.compile(model([node("Expand", "c s", "t"), node("ReduceSum", "t", "e", keepdims=0), last], [value("x", [1])],
                                 [onnx.ValueInfoProto(name="y")], {**constants, "s": np.array([2**21])}))  # fmt: skip
    assert found.run(x=np.ones(1, np.float32))["y"].tolist() == [2**21 + 1]


# What was accepted


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("LSTM", 4), ("GRU", 3)])
@pytest.mark.parametrize("lengths", [[-5, 2], [3, 4], [2, -1]])
def test_lengths_that_sequences_cannot_have(operator: str, gates: int, lengths: list[int]) -> None:
    weights = {"w": np.ones((1, gates * 3, 2), np.float32), "r": np.ones((1, gates * 3, 3), np.float32)}
    recurrent = helper.make_node(operator, ["x", "w", "r", "", "s"], ["y"], hidden_size=3)
    x, given = np.ones((3, 2, 2), np.float32), np.array(lengths, np.int32)
    with pytest.raises(ModelError, match="of sequences of 3 steps"):
        graphc.compile(model([recurrent], [value("x", x.shape)], ["y"], {**weights, "s": given}))
    found = graphc.compile(model([recurrent], [value("x", x.shape), value("s", [2], np.int32)], ["y"], weights))
    with pytest.raises(GraphcError, match="out of range"):
        found.run(x=x, s=given)
    assert found.run(x=x, s=np.array([0, 3], np.int32))["y"].shape == (3, 1, 2, 3)


def test_a_deformed_convolution_of_another_kernel_or_size() -> None:
    def made(sizes: tuple[int, int], **attributes: object) -> onnx.ModelProto:
        inputs = [value("x", ONES.shape), value("o", [1, 18, *sizes])]
        return model([node("DeformConv", "x w o", "y", **attributes)], inputs, ["y"], {"w": ONES[:, :, :3, :3]})

    graphc.compile(made((3, 3), kernel_shape=[3, 3]))
    with pytest.raises(ModelError, match="attribute kernel_shape"):
        graphc.compile(made((3, 3), kernel_shape=[5, 5]))
    with pytest.raises(ModelError, match="for 3 x 3 windows"):
        graphc.compile(made((4, 3)))


FITS = [(4, 0, True), (4, 8, True), (2, 4, True), (3, 0, False), (4, 4, False), (4, -2, False), (1, 4, False)]


@pytest.mark.parametrize(("width", "dim", "fits"), FITS)
def test_widths_of_rotary_embeddings(width: int, dim: int, fits: bool) -> None:
    caches = {name: np.ones((10, width), np.float32) for name in ("c", "s")}
    inputs = [value("x", [1, 2, 3, 8]), value("p", [1, 3], np.int64)]
    proto = model(
        [node("RotaryEmbedding", "x c s p", "y", rotary_embedding_dim=dim)],
        inputs,
        [onnx.ValueInfoProto(name="y")],
        caches,
        23,
    )
    if fits:
        graphc.compile(proto)
    else:
        with pytest.raises(ModelError, match="features of each head"):
            graphc.compile(proto)


@pytest.mark.parametrize(
    "declared", [TensorProto.COMPLEX64, TensorProto.COMPLEX128, TensorProto.STRING, TensorProto.INT4]
)
@pytest.mark.parametrize("output", ["y", "x", "w"])
def test_outputs_of_another_type(declared: int, output: str) -> None:
    result = helper.make_tensor_value_info(output, declared, [2])
    weight = onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")
    graph = helper.make_graph([node("Neg", "x", "y")], "g", [value("x", [2])], [result], [weight])
    with pytest.raises(
        GraphcError, match=r"is declared (complex|string|int4).* but is float32|not supported|does not take int4"
    ):
        graphc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


# From Python


@pytest.mark.parametrize("threads", ["x", 1.5, 0, -1, True, 10**9, [1]])
def test_what_is_no_number_of_threads(threads: object) -> None:
    with pytest.raises(InputError, match="must be a number from 1 to 512"):
        graphc.compile(image("Neg"), threads=threads)  # type: ignore[arg-type]


def test_what_is_no_device() -> None:
    for device in (3, None, b"cpu"):
        with pytest.raises(InputError, match="must be a name"):
            graphc.compile(image("Neg"), device=device)  # type: ignore[arg-type]


def test_what_is_given_to_run() -> None:
    found = graphc.compile(image("Neg"))
    for given in (ONES, [ONES], 3, "x"):
        with pytest.raises(InputError, match="arrays are given by name"):
            found.run(given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="x: is not an array"):
        found.run(x=[[1], [2, 3]])  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.run(x=ONES.astype(">f4"))["y"], -ONES)
    found.close()
    with pytest.raises(GraphcError, match="the model is closed"):
        found.run(x=ONES)


# Anything

NUMBERS = (0, 1, 2, 3, -1, -2, 5, 7, 64, 65, 100, 4096, 2**15, 2**20, 2**31 - 1, 2**31, -(2**31), 2**32 + 1, 2**40, 2**62,
           2**63 - 1, -(2**63))  # fmt: skip
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3e38, float("inf"), float("-inf"), float("nan"), 2.0**31, 1e10)
WORDS = (
    b"",
    b"x",
    b"SAME_UPPER",
    b"VALID",
    b"linear",
    b"reflect",
    b"\xff\xfe",
    b"NOTSET",
    b"mean",
    b"...i->i",
    b"ij,jk->ik",
)


def seeds() -> list[onnx.ModelProto]:
    """Valid models of many operators, to be changed."""
    x, matrix = value("x", ONES.shape), value("x", ["n", 6])
    weights = {
        "w": np.ones((2, 1, 3, 3), np.float32),
        "m": np.ones((6, 4), np.float32),
        "i": np.array([0, 3]),
        "two": np.array(2),
    }
    shape = {
        name: np.array(each)
        for name, each in {"s4": [1, 1, 5, 5], "s2": [3, 2], "p8": [0] * 8, "r4": [1, 1, 1, 2]}.items()
    }
    scales = {"f4": np.array([1, 1, 2, 2], np.float32), "one": np.float32(1)}
    made = [
        ([node("Conv", "x w", "y", pads=[1, 1, 1, 1], strides=[1, 2], dilations=[1, 1], group=1)], x),
        ([node("ConvTranspose", "x w1", "y", strides=[2, 2], output_padding=[1, 0])], x),
        ([node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[0, 1, 0, 1], strides=[1, 1], ceil_mode=1)], x),
        ([node("AveragePool", "x", "y", kernel_shape=[2, 3], pads=[1, 1, 0, 1], count_include_pad=1)], x),
        ([node("LRN", "x", "y", size=3), ], x),
        ([helper.make_node("Resize", ["x", "", "f4"], ["y"], mode="linear")], x),
        ([helper.make_node("Resize", ["x", "", "", "s4"], ["y"], mode="cubic", cubic_coeff_a=-0.5)], x),
        ([node("Pad", "x p8", "y", mode="constant")], x),
        ([node("Tile", "x r4", "y")], x),
        ([node("Expand", "x s4", "y")], x),
        ([node("Reshape", "x s4", "y", allowzero=0)], x),
        ([node("Transpose", "x", "y", perm=[0, 2, 3, 1])], x),
        ([node("SpaceToDepth", "x", "y", blocksize=5)], x),
        ([node("DepthToSpace", "x", "y", blocksize=1)], x),
        ([node("GroupNormalization", "x one1 one1", "y", num_groups=1, epsilon=1e-5)], x),
        ([node("InstanceNormalization", "x one1 one1", "y")], x),
        ([node("Gemm", "x m", "y", alpha=0.5, transB=0)], matrix),
        ([node("Split", "x", "a b", axis=1, num_outputs=2), node("Add", "a b", "y")], matrix),
        ([node("Gather", "x i", "y", axis=1)], matrix),
        ([node("GatherElements", "x ii", "y", axis=0)], value("x", [3, 2])),
        ([node("Concat", "x x", "y", axis=1)], matrix),
        ([node("Softmax", "x", "y", axis=-1)], matrix),
        ([node("LayerNormalization", "x one1", "y", axis=-1)], matrix),
        ([node("TopK", "x k", "y j", axis=1, largest=1)], matrix),
        ([node("CumSum", "x two", "y")], x),
        ([node("ReduceMean", "x i", "y", keepdims=1)], x),
        ([node("OneHot", "x two v", "y", axis=-1)], value("x", [3], np.int64)),
        ([node("Einsum", "x m", "y", equation="ij,jk->ik")], matrix),
        ([node("Range", "z two k0", "r"), node("Cast", "r", "f", to=1), node("Add", "f x", "y")], value("x", [1])),
        ([node("ConstantOfShape", "s2", "c"), node("Add", "c x", "y")], value("x", [1])),
        ([node("EyeLike", "x", "y", k=1)], matrix),
        ([node("Trilu", "x", "y", upper=1)], matrix),
        ([node("SplitToSequence", "x", "q", axis=0), node("ConcatFromSequence", "q", "y", axis=0)], value("x", [4, 2])),
        ([node("Unsqueeze", "x i", "y")], value("x", [4, 2])),
        ([node("Slice", "x i e", "y")], value("x", [9, 9])),
        ([node("BlackmanWindow", "two", "b"), node("Mul", "b x", "y")], value("x", [1])),
        ([node("Col2Im", "x s2 s2", "y")], value("x", [1, 6, 1])),
        ([node("GridSample", "x g", "y", mode="linear")], x),
        ([node("RandomNormal", "", "r", shape=[3, 1], seed=1.0), node("Add", "r x", "y")], value("x", [1])),
        ([node("DequantizeLinear", "q1 one", "d", axis=0), node("Add", "d x", "y")], value("x", [1])),
    ]  # fmt: skip
    more = {"one1": np.ones(1, np.float32), "ii": np.zeros((3, 2), np.int64), "k": np.array([2]),
            "v": np.array([0, 1], np.float32),
            "z": np.array(0), "k0": np.array(1), "e": np.array([5, 9]), "g": np.zeros((1, 2, 2, 2), np.float32),
            "q1": np.array([1, 2, 3], np.int8), "w1": ONES[:, :, :3, :3]}  # fmt: skip
    constants = {**weights, **shape, **scales, **more}
    protos = []
    for nodes, declared in made:
        read = {name for each in nodes for name in each.input}
        held = {name: np.asarray(array) for name, array in constants.items() if name in read}
        protos.append(model(nodes, [declared], [onnx.ValueInfoProto(name="y")], held))
    return protos


def change(proto: onnx.ModelProto, chance: random.Random) -> None:
    """Make one number of a model, or one size, another."""
    kind = chance.choice(("attribute", "attribute", "constant", "size", "input", "type", "dims"))
    attributes = [each for every in proto.graph.node for each in every.attribute]
    if kind == "attribute" and attributes:
        each = chance.choice(attributes)
        if each.type == AttributeProto.INT:
            each.i = chance.choice(NUMBERS)
        elif each.type == AttributeProto.FLOAT:
            each.f = chance.choice(REALS)
        elif each.type == AttributeProto.STRING:
            each.s = chance.choice(WORDS)
        elif each.type == AttributeProto.INTS:
            each.ints[:] = chance.choice((
                [chance.choice(NUMBERS) if chance.random() < 0.5 else number for number in each.ints],
                [*each.ints, 1], list(each.ints)[:-1], [1] * 65, [],
            ))  # fmt: skip
    elif kind == "constant" and proto.graph.initializer:
        each = chance.choice(proto.graph.initializer)
        if len(each.dims) > 64 or np.prod(each.dims, dtype=object) * helper.tensor_dtype_to_np_dtype(
            each.data_type
        ).itemsize != len(each.raw_data):
            return  # its dims were changed before
        array = onnx.numpy_helper.to_array(each).copy()
        if array.size and array.dtype.kind in "if":
            with np.errstate(all="ignore"):
                flat = array.reshape(-1)
                pool = NUMBERS if array.dtype.kind == "i" and array.dtype.itemsize == 8 else REALS
                flat[chance.randrange(flat.size)] = chance.choice(
                    pool if pool is NUMBERS or array.dtype.kind == "f" else (0, 1, -1)
                )
            each.CopyFrom(onnx.numpy_helper.from_array(array, each.name))
    elif kind == "dims" and proto.graph.initializer:
        each = chance.choice(proto.graph.initializer)
        each.dims[:] = chance.choice(([*each.dims, 1], [1] * 65, [0], [], [-1], [2**62, 0], list(each.dims)[::-1]))
    elif kind == "input":
        names = proto.graph.node[0].input
        if names:
            names[chance.randrange(len(names))] = chance.choice(
                ["", "x", *(each.name for each in proto.graph.initializer)]
            )
    elif kind == "type":
        proto.graph.input[0].type.tensor_type.elem_type = chance.choice(list(TensorProto.DataType.values()))
    else:
        sizes = proto.graph.input[0].type.tensor_type.shape.dim
        if sizes:
            size = chance.choice(sizes)
            if chance.random() < 0.5:
                size.dim_value = chance.choice((0, 1, 2, 3, 7, 2**31, 2**62, -1))
            else:
                size.dim_param = chance.choice(
                    ("a", "a+b", "2*a", "a//0", "min(a,b)", "x y", "", "-a", "a*" * 60 + "a", "9" * 40)
                )


def example(found: graphc.Model) -> dict[str, np.ndarray]:
    """Small inputs; sizes that are free are 2."""
    from graphc.shapes import bind, symbols

    given = {}
    for each in found.inputs:
        shape = [max(int(bind(size, dict.fromkeys(symbols(size), 2))), 0) for size in each.shape]
        given[each.name] = np.ones(shape if np.prod(shape, dtype=object) < 1 << 16 else [1], each.dtype)
    return given


@pytest.mark.parametrize(
    "count", [pytest.param(300, id="few"), pytest.param(20_000, id="many", marks=pytest.mark.thorough)]
)
def test_changed_models(count: int) -> None:
    chance, protos, answers = random.Random(7), seeds(), {"run": 0, "compiled": 0, "refused": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(count):
            proto = copy.deepcopy(protos[turn % len(protos)])
            for _ in range(1 + turn // len(protos) % 3):
                change(proto, chance)
            answers[answer(proto)] += 1
    assert min(answers.values()) > 0


def answer(proto: onnx.ModelProto) -> str:
    try:
        found = graphc.compile(proto)
    except GraphcError:
        return "refused"
    try:
        found.run(example(found))
    except GraphcError:
        return "compiled"
    finally:
        found.close()
    return "run"


def test_the_models_that_are_changed_are_valid() -> None:
    for proto in seeds():
        assert answer(proto) == "run", proto.graph.node[0].op_type
