"""Sequences that loops make: what steps append is collected, and equals what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import graphc
from graphc.errors import InputError, UnsupportedError
from graphc.frontend.onnx import load
from graphc.ir import interp

RANDOM = np.random.default_rng(4)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text)


def appending(start: str, step: str, after: str, results: str) -> onnx.ModelProto:
    """A loop over the rows of x that appends to a sequence."""
    return model(f"""appending (float[t, n] x, float[n] h) => ({results}) {{
        shape = Shape(x)
        zero = Constant<value = int64 {{0}}>()
        one = Constant<value = int64 {{1}}>()
        minus = Constant<value = int64 {{-1}}>()
        steps = Gather(shape, zero)
        none = {start}
        last, kept = Loop(steps, , h, none) <body = body (int64 i, bool going, float[n] a, seq(float[n]) before)
                                            => (bool again, float[n] b, seq(float[n]) more) {{
            again = Identity(going)
            row = Gather(x, i)
            b = Add(row, a)
            {step}
        }}>
        {after}
    }}""")


EMPTY, APPEND = "SequenceEmpty<dtype = 1>()", "more = SequenceInsert(before, b)"
TWICE = "square = Mul(b, b)\n first = SequenceInsert(before, b)\n more = SequenceInsert(first, square)"

MODELS = {
    "stacked": (EMPTY, APPEND, "y = ConcatFromSequence<axis = 0, new_axis = 1>(kept)", "float[t, n] y"),
    "stacked last": (EMPTY, APPEND, "y = ConcatFromSequence<axis = -1, new_axis = 1>(kept)", "float[n, t] y"),
    "joined": (EMPTY, APPEND, "y = ConcatFromSequence<axis = 0>(kept)", "float[m] y"),
    "two at a time": (EMPTY, TWICE, "y = ConcatFromSequence<axis = 0, new_axis = 1>(kept)", "float[m, n] y"),
    "not from nothing": ("SequenceConstruct(h, h)", APPEND, "y = ConcatFromSequence<axis = 0>(kept)", "float[m] y"),
    "one of them": (
        EMPTY,
        APPEND,
        "y = SequenceAt(kept, minus)\n z = SequenceAt(kept, zero)",
        "float[n] y, float[n] z",
    ),
    "length": (EMPTY, APPEND, "y = SequenceLength(kept)", "int64 y"),
    "one more": (
        EMPTY,
        APPEND,
        "more = SequenceInsert(kept, h)\n y = ConcatFromSequence<axis = 0, new_axis = 1>(more)",
        "float[m, n] y",
    ),
    "passed on": ("SequenceConstruct(h, last0)", "more = Identity(before)", "y = SequenceAt(kept, one)", "float[n] y"),
}


def everywhere(proto: onnx.ModelProto, folder: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    """What the interpreter, the program and the engine give: all the same, and onnxruntime's numbers."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    compiled = graphc.compile(proto, folder / "model.gguf")
    ways = [interp.run(load(proto), inputs), compiled.run(**inputs), graphc.load(folder / "model.gguf").run(**inputs)]
    for found in ways:
        for actual, wanted in zip(found.values(), expected, strict=True):
            assert actual.dtype == wanted.dtype
            np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)
    return expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("steps", [1, 5])
def test_appended_tensors(name: str, steps: int, tmp_path: Path) -> None:
    start, *others = MODELS[name]
    proto = appending(start.replace("last0", "h"), *others)
    x, h = RANDOM.standard_normal((steps, 3)).astype(np.float32), RANDOM.standard_normal(3).astype(np.float32)
    everywhere(proto, tmp_path, x=x, h=h)


SPLIT = model("""split (float[b, t, n] x) => (float[b, k] y, int64 count) {
    parts = SplitToSequence<axis = 1, keepdims = 0>(x)
    count = SequenceLength(parts)
    none = SequenceEmpty<dtype = 1>()
    kept = Loop(count, , none) <body = body (int64 i, bool going, seq(float[b, n]) before)
                                => (bool again, seq(float[b, n]) more) {
        again = Identity(going)
        part = SequenceAt(parts, i)
        twice = Add(part, part)
        more = SequenceInsert(before, twice)
    }>
    y = ConcatFromSequence<axis = 1>(kept)
}""")


JOINED = model("""joined (float[b, t, n] x, float[b, p, n] h) => (float[b, p, n] y, float[b, t, n] z) {
    whole = Concat<axis = 1>(x, h)
    first = Shape<start = 1, end = 2>(x)
    second = Shape<start = 1, end = 2>(h)
    sizes = Concat<axis = 0>(first, second)
    parts = SplitToSequence<axis = 1>(whole, sizes)
    one = Constant<value_int = 1>()
    none = Constant<value_int = 0>()
    y = SequenceAt(parts, one)
    z = SequenceAt(parts, none)
}""")


def test_parts_whose_sizes_are_those_of_inputs(tmp_path: Path) -> None:
    x, h = (RANDOM.standard_normal((2, size, 3)).astype(np.float32) for size in (4, 5))
    found = everywhere(JOINED, tmp_path, x=x, h=h)
    np.testing.assert_array_equal(found[0], h)


def test_the_parts_of_an_axis_of_any_size(tmp_path: Path) -> None:
    everywhere(SPLIT, tmp_path, x=RANDOM.standard_normal((2, 5, 3)).astype(np.float32))


LISTED = model("""listed (float[n] x, float[n] y, int64 which, int64 steps) => (float[n] z) {
    parts = SequenceConstruct(x, y, x)
    chosen = SequenceAt(parts, which)
    z = Loop(steps, , chosen) <body = body (int64 i, bool going, float[n] a) => (bool again, float[n] b) {
        again = Identity(going)
        part = SequenceAt(parts, i)
        b = Add(part, a)
    }>
}""")


@pytest.mark.parametrize("which", [0, 1, -2])
def test_one_of_a_list_by_a_position_that_only_a_run_knows(which: int, tmp_path: Path) -> None:
    x, y = (RANDOM.standard_normal(4).astype(np.float32) for _ in range(2))
    everywhere(LISTED, tmp_path, x=x, y=y, which=np.array(which), steps=np.array(3))


def test_a_position_that_is_not_there_is_an_error() -> None:
    x = np.zeros(4, np.float32)
    with pytest.raises(InputError, match=r"out of range|outside"):
        graphc.compile(LISTED).run(x=x, y=x, which=np.array(3), steps=np.array(1))


REFUSED = {
    "is read in the loop": ("row2 = SequenceAt(before, zero)\n more = SequenceInsert(before, row2)", "more with it than append"),
    "grows at its beginning": ("more = SequenceInsert(before, b, zero)", "more with it than append"),
    "is replaced": ("more = SequenceConstruct(b)", "becomes another one"),
    "holds two shapes": ("two = Concat<axis = 0>(b, b)\n"
        " first = SequenceInsert(before, b)\n more = SequenceInsert(first, two)", "different shapes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_sequence_that_does_more_than_grow_is_refused(name: str) -> None:
    step, reason = REFUSED[name]
    proto = appending(EMPTY, step, "y = SequenceLength(kept)", "int64 y")
    with pytest.raises(UnsupportedError, match=reason):
        graphc.compile(proto)


def test_shapes_that_differ_from_step_to_step_are_an_error() -> None:
    proto = model("""ragged (float[n] x, int64 trips) => (float[m] y) {
        none = SequenceEmpty<dtype = 1>()
        last, kept = Loop(trips, , x, none) <body = body (int64 i, bool going, float[k] a, seq(float) before)
                                             => (bool again, float[l] longer, seq(float) more) {
            again = Identity(going)
            longer = Concat<axis = 0>(a, x)
            more = SequenceInsert(before, longer)
        }>
        y = ConcatFromSequence<axis = 0>(kept)
    }""")
    x = np.ones(2, np.float32)
    compiled = graphc.compile(proto)
    np.testing.assert_array_equal(compiled.run(x=x, trips=np.array(1))["y"], np.ones(4, np.float32))
    with pytest.raises(InputError, match="different shapes"):
        compiled.run(x=x, trips=np.array(2))


class Cell(torch.nn.Module):
    """A recurrent layer as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.Linear(10, 6)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        states: list[torch.Tensor] = []
        for step in range(x.size(0)):
            h = torch.tanh(self.cell(torch.cat([x[step], h], 1)))
            states.append(h)
        return torch.stack(states), torch.cat(states, 1), states[-1]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_loop_of_torchscript(tmp_path: Path) -> None:
    torch.manual_seed(0)
    cell = Cell().eval()
    x, h, path = torch.randn(7, 2, 4), torch.randn(2, 6), tmp_path / "cell.onnx"
    axes = {"x": {0: "steps", 1: "batch"}, "h": {0: "batch"}}
    torch.onnx.export(
        torch.jit.script(cell), (x, h), str(path), dynamo=False, opset_version=17, input_names=["x", "h"],
        output_names=["all", "wide", "last"], dynamic_axes=axes,
    )  # fmt: skip
    compiled = graphc.compile(path)
    for steps, batch in ((7, 2), (30, 3)):
        x, h = torch.randn(steps, batch, 4), torch.randn(batch, 6)
        with torch.no_grad():
            expected = cell(x, h)
        found = compiled.run(x=x.numpy(), h=h.numpy())
        for actual, wanted in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(actual, wanted.numpy(), rtol=1e-5, atol=1e-6)
