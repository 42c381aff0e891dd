"""What tools write loosely, or in more ways than one: onnxruntime takes it, and so is what it gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from frontend_models import model, node, value
from onnx import ModelProto, TensorProto, helper

import graphc
from graphc.errors import InputError
from graphc.frontend.onnx import load
from graphc.shapes import symbol
from graphc.targets.ggml.lowering.lower import lower

RANDOM = np.random.default_rng(7)
INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def constant(name: str, array: Any) -> Any:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, *_typed(np.asarray(array))))


def _typed(array: np.ndarray) -> tuple[int, tuple[int, ...], np.ndarray]:
    return helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.reshape(-1)


def branch(name: str, *nodes: Any) -> Any:
    return helper.make_graph(nodes, name, [], [value(nodes[-1].output[0], None)])


def agrees(proto: ModelProto, compiled: graphc.Model, **inputs: np.ndarray) -> None:
    """The outputs have the shapes and numbers of onnxruntime's."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for got, wanted in zip(compiled.run(inputs).values(), session.run(None, inputs), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["?", "None"])
def test_dimensions_without_a_name_need_not_be_equal(name: str) -> None:
    """paddle2onnx calls every free size "?"."""
    proto = model([node("Relu", "x", "y")], [value("x", [name, 2, name, name])], ["y"])
    agrees(proto, graphc.compile(proto, threads=1), x=floats(1, 2, 3, 5))


def test_an_axis_that_is_dropped_has_size_1() -> None:
    """The height of a line of text after four convolutions with strides, which the file leaves free."""
    nodes = [
        node("MaxPool", "x", "a", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
        node("Squeeze", "a axis", "y"),
    ]
    proto = model(nodes, [value("x", [1, 3, "height", "width"])], ["y"], {"axis": np.array([2])})
    compiled = graphc.compile(proto, threads=1)
    for height in (1, 2):
        agrees(proto, compiled, x=floats(1, 3, height, 9))
    with pytest.raises(InputError, match=r"axis 2 has size 3, must be .*2"):
        compiled.run(x=floats(1, 3, 3, 9))


def test_all_axes_that_may_have_size_1_are_dropped() -> None:
    proto = model([node("Squeeze", "x", "y")], [value("x", ["batch", 3, 1])], ["y"])
    compiled = graphc.compile(proto, threads=1)
    agrees(proto, compiled, x=floats(1, 3, 1))
    with pytest.raises(InputError, match="axis 0 has size 2"):
        compiled.run(x=floats(2, 3, 1))


def squeezed_in_branches() -> ModelProto:
    """As a detector of voices is written: two rates, each with its own length of sound, and `squeeze` as PyTorch's older
    exporter has it, which is a branch."""

    def rate(name: str, length: int) -> Any:
        pool = node("MaxPool", "x", f"{name}_pooled", kernel_shape=[length], strides=[length])
        squeeze = branch(f"{name}_then", node("Squeeze", f"{name}_pooled {name}_last", f"{name}_dropped"))
        stay = branch(f"{name}_else", node("Identity", f"{name}_pooled", f"{name}_kept"))
        return branch(
            name,
            pool,
            constant(f"{name}_last", np.array([2])),
            node("Shape", f"{name}_pooled", f"{name}_shape"),
            node("Gather", f"{name}_shape {name}_last", f"{name}_frames"),
            constant(f"{name}_one", np.array([1])),
            node("Equal", f"{name}_frames {name}_one", f"{name}_single"),
            helper.make_node("If", [f"{name}_single"], [f"{name}_out"], then_branch=squeeze, else_branch=stay),
            node("Add", f"{name}_out bias", f"{name}_y"),
        )

    nodes = [
        node("Equal", "rate sixteen", "fast"),
        helper.make_node("If", ["fast"], ["y"], then_branch=rate("sixteen_khz", 8), else_branch=rate("eight_khz", 4)),
    ]
    inputs = [value("x", ["batch", 3, "length"]), value("rate", [], np.int64)]
    constants = {"sixteen": np.array(16000), "bias": floats(3)}
    return model(nodes, inputs, [value("y", None)], constants)


def test_an_axis_is_dropped_in_the_branch_that_is_taken() -> None:
    proto = squeezed_in_branches()
    compiled = graphc.compile(proto, threads=1)
    agrees(proto, compiled, x=floats(2, 3, 8), rate=np.array(16000))
    agrees(proto, compiled, x=floats(2, 3, 4), rate=np.array(8000))
    agrees(proto, compiled, x=floats(2, 3, 7), rate=np.array(8000))
    for length, rate in ((16, 16000), (8, 8000)):
        with pytest.raises(InputError, match=r"the condition of .* is 0, must be 1"):
            compiled.run(x=floats(2, 3, length), rate=np.array(rate))


def test_a_number_has_an_axis_in_one_branch_only() -> None:
    """As paddle2onnx writes a flag."""
    then = branch("then", constant("t", np.array([2.0], np.float32)))
    other = branch("other", node("ReduceMax", "x", "e", keepdims=0))
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Less", "sum zero", "negative"),
        helper.make_node("If", ["negative"], ["flag"], then_branch=then, else_branch=other),
        node("Mul", "x flag", "y"),
    ]
    proto = model(nodes, [value("x", [2, 3])], [value("y", None)], {"zero": np.array(0, np.float32)})
    compiled = graphc.compile(proto, threads=1)
    for sign in (1, -1):
        agrees(proto, compiled, x=sign * np.abs(floats(2, 3)))


def test_a_variable_that_a_loop_writes_before_it_reads_it() -> None:
    """As paddle2onnx writes what a loop's body first defines: with a number as its value before. Only a loop that makes no step
    would give that back."""
    body = helper.make_graph(
        [
            node("Add", "sum x", "sum_out"),
            node("Mul", "sum_out x", "seen_out"),
            node("Identity", "cond", "cond_out"),
        ],
        "body",
        [value("i", [], np.int64), value("cond", [], np.bool_), value("sum", ["n", 3]), value("seen", None)],
        [value("cond_out", [], np.bool_), value("sum_out", ["n", 3]), value("seen_out", None)],
    )
    nodes = [
        node("Sub", "x x", "start"),
        helper.make_node("Loop", ["trips", "", "start", "undefined"], ["sum", "y"], body=body),
    ]
    inputs = [value("x", ["n", 3]), value("trips", [], np.int64)]
    proto = model(nodes, inputs, [value("y", None)], {"undefined": np.array([0.5], np.float32)})
    compiled = graphc.compile(proto, threads=1)
    for trips in (1, 4):
        agrees(proto, compiled, x=floats(2, 3), trips=np.array(trips))
    with pytest.raises(InputError, match="makes a step"):
        compiled.run(x=floats(2, 3), trips=np.array(0))


def test_frames_of_a_sound_of_any_length() -> None:
    constants = {"step": np.array(3), "window": np.hanning(8).astype(np.float32), "length": np.array(8)}
    proto = model(
        [node("STFT", "x step window length", "y")], [value("x", ["batch", "samples"])], ["y"], constants, opset=17
    )
    compiled = graphc.compile(proto, threads=1)
    for batch, samples in ((1, 8), (2, 31), (3, 100)):
        agrees(proto, compiled, x=floats(batch, samples))


@pytest.mark.parametrize("time", [0, 1])
@pytest.mark.parametrize("lengths", ["given", "whole"])
def test_sequences_are_turned_up_to_their_lengths(time: int, lengths: str) -> None:
    """What a run gives, or the number of steps for each, as tf2onnx writes what goes backwards through an LSTM."""
    whole = [
        node("Shape", "x", "sizes"),
        node("Slice", "sizes start end", "steps"),
        node("Slice", "sizes other_start other_end", "batches"),
        node("Expand", "steps batches", "lengths"),
    ]
    reverse = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=time, batch_axis=1 - time)
    given = [value("x", ["a", "b", 2])] + (
        [value("lengths", [["b", "a"][time]], np.int64)] if lengths == "given" else []
    )
    ends = {"start": time, "end": time + 1, "other_start": 1 - time, "other_end": 2 - time}
    constants = {name: np.array([number]) for name, number in ends.items()}
    proto = model([*(whole if lengths == "whole" else []), reverse], given, ["y"], constants)
    compiled = graphc.compile(proto, threads=1)
    for steps, batches in ((1, 1), (5, 3)):
        x = floats(*((steps, batches) if time == 0 else (batches, steps)), 2)
        more = {"lengths": RANDOM.integers(0, steps + 1, batches)} if lengths == "given" else {}
        agrees(proto, compiled, x=x, **more)


def test_padding_to_a_multiple_of_what_is_long_enough() -> None:
    """`max(256, n)` samples, and as many as fill whole frames: that they do shows only where what `max` adds is one thing."""
    nodes = [
        node("Shape", "x", "n", start=1),
        node("Sub", "least n", "missing"),
        node("Max", "missing zero", "short"),
        node("Concat", "zero zero zero short", "first", axis=0),
        node("Pad", "x first", "long"),
        node("Shape", "long", "m", start=1),
        node("Neg", "m", "minus"),
        node("Mod", "minus least", "rest"),
        node("Concat", "zero zero zero rest", "second", axis=0),
        node("Pad", "long second", "whole"),
        node("Max", "n least", "most"),
        node("Add", "most more", "sum"),
        node("Div", "sum least", "frames"),
        node("Concat", "frames least", "shape", axis=0),
        node("Reshape", "whole shape", "y"),
    ]
    constants = {"least": np.array([8]), "zero": np.array([0]), "more": np.array([7])}
    proto = model(nodes, [value("x", [1, "n"])], ["y"], constants)
    compiled = graphc.compile(proto, threads=1)
    for samples in (1, 8, 9, 24, 31):
        agrees(proto, compiled, x=floats(1, samples))


def test_what_a_loop_passes_on_is_known_inside() -> None:
    """tf2onnx and paddle2onnx give a body the weights that it reads as values that it carries."""
    body = helper.make_graph(
        [node("MatMul", "h w", "h_out"), node("Identity", "cond", "cond_out"), node("Identity", "w", "w_out")],
        "body",
        [value("i", [], np.int64), value("cond", [], np.bool_), value("h", ["n", 3]), value("w", [3, 3])],
        [value("cond_out", [], np.bool_), value("h_out", ["n", 3]), value("w_out", [3, 3])],
    )
    nodes = [
        helper.make_node("Loop", ["trips", "", "x", "weight"], ["y", "same"], body=body),
        node("MatMul", "y same", "z"),
    ]
    inputs = [value("x", ["n", 3]), value("trips", [], np.int64)]
    proto = model(nodes, inputs, [value("z", None)], {"weight": floats(3, 3)})
    (loop,) = (each for each in load(proto).nodes if each.op.name == "Loop")
    assert [each.type.shape for each in loop.inputs[2:]] == [(symbol("n"), 3)]
    compiled = graphc.compile(proto, threads=1)
    for trips in (0, 1, 3):
        agrees(proto, compiled, x=floats(2, 3), trips=np.array(trips))


@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 0, 1, 1]])
def test_images_that_may_be_empty_are_convolved_as_others(pads: list[int]) -> None:
    """`(height - 1) // 4` lines of a small image are none, and so is what strides make of them. By a kernel that computes its
    elements one by one, a convolution takes a hundred times as long."""
    nodes = [
        node("Conv", "x first", "a", pads=[1, 1, 1, 1]),
        node("Conv", "a second", "b", pads=pads, strides=[4, 4]),
        node("Conv", "b second", "y", pads=pads, strides=[2, 2]),
    ]
    constants = {"first": floats(4, 3, 4, 4) / 8, "second": floats(4, 4, 3, 3) / 8}
    proto = model(nodes, [value("x", [1, 3, "height", "width"])], ["y"], constants)
    program = lower(load(proto))
    assert not any(call.kernel >= 0 for call in program.calls)
    compiled = graphc.compile(proto, threads=1)
    for height, width in ((33, 16), (17, 64)):
        agrees(proto, compiled, x=floats(1, 3, height, width))


def test_an_axis_that_a_branch_drops_has_size_1_where_it_is_taken() -> None:
    then = branch("then", node("Squeeze", "x last", "t"))
    other = branch("other", node("ReduceSum", "x last", "e", keepdims=0))
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Less", "sum zero", "negative"),
        helper.make_node("If", ["negative"], ["y"], then_branch=then, else_branch=other),
    ]
    constants = {"zero": np.array(0, np.float32), "last": np.array([2])}
    proto = model(nodes, [value("x", ["batch", 3, "length"])], [value("y", None)], constants)
    compiled = graphc.compile(proto, threads=1)
    for length, sign in ((1, -1), (1, 1), (4, 1)):
        agrees(proto, compiled, x=sign * np.abs(floats(2, 3, length)))
    with pytest.raises(InputError, match=r"axis 2 of what .* takes is 4, must be 1"):
        compiled.run(x=-np.abs(floats(2, 3, 4)))
