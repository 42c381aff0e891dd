"""Sizes that are known only when a model runs: impossible ones are an error, not the end of the process."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from graphc.errors import InputError
from graphc.ir.types import F32
from graphc.runtime.model import Model
from graphc.shapes import Dim, Values, symbol
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.program.bound import SizeChecks
from graphc.targets.ggml.program.program import Call, Output, Program
from graphc.targets.ggml.program.tensor import ProgramError, Tensor
from graphc.targets.ggml.run.device.options import Place

H = symbol("h")
ONE_THREAD = Place(threads=1)


def model_of(result, shape: tuple[Dim, ...]) -> Model:
    """A model of x [h, 8]; `result(builder, x)` makes the calls."""
    program = Program("sizes")
    builder = Builder(program)
    builder.source = "/the/node"
    x = program.add_input("x", F32, (H, 8), "F32")
    result = builder.unary("ggml_relu", builder.cont(result(builder, x)))
    program.outputs.append(Output("y", F32, shape, result))
    return Model(program, [np.ones(each.shape, each.dtype) for each in program.weights], place=ONE_THREAD)


def view_past_the_end(b: Builder, x: Tensor) -> Tensor:
    return b.call("ggml_view_1d", x, 8, H * 64, rank=1)


def view_of_no_rows(b: Builder, x: Tensor) -> Tensor:
    return b.call("ggml_view_2d", x, 8, H - 5, 32, 0, rank=2)


def large_kernel(b: Builder, x: Tensor) -> Tensor:
    kernel = b.program.add_weight("kernel", F32, (1, 1, 7, 7))
    return b.call("ggml_conv_2d", kernel, b.reshape(x, (1, 1, H, 8)), 1, 1, 0, 0, 1, 1, rank=4)


def test_an_inner_size_of_0_is_refused() -> None:
    """No program of ours has such a product, but a file from a stranger may."""
    builder = Builder(Program("nothing"))
    x = builder.program.add_input("x", F32, (4, 0), "F32")
    with pytest.raises(ProgramError, match="inner size is 0"):
        builder.call("ggml_mul_mat", x, x, rank=2)
    program, n = Program("maybe"), symbol("n", low=0)
    y = program.add_input("y", F32, (4, n), "F32")
    program.outputs.append(Output("z", F32, (4, 4), Builder(program).call("ggml_mul_mat", y, y, rank=2)))
    model = Model(program, [], place=ONE_THREAD)
    np.testing.assert_array_equal(model.run(y=np.ones((4, 3), np.float32))["z"], np.full((4, 4), 3))
    with pytest.raises(InputError, match=r"n = 0: .*inner size is 0"):
        model.run(y=np.zeros((4, 0), np.float32))


@pytest.mark.parametrize(
    ("result", "shape", "reason"),
    [
        (view_past_the_end, (8,), "looks past the end"),
        (view_of_no_rows, (H - 5, 8), "at least 1"),
        (large_kernel, (1, 1, H - 6, 2), "larger than the image"),
    ],
)
def test_impossible_sizes(result, shape: tuple[Dim, ...], reason: str) -> None:
    model = model_of(result, shape)
    with pytest.raises(InputError, match=rf"h = 3 in /the/node: .*{reason}"):
        model.run(x=np.zeros((3, 8), np.float32))


@pytest.mark.parametrize(("result", "shape"), [(view_of_no_rows, (H - 5, 8)), (large_kernel, (1, 1, H - 6, 2))])
def test_possible_sizes_of_the_same_models(result, shape: tuple[Dim, ...]) -> None:
    model = model_of(result, shape)
    with pytest.raises(InputError):
        model.run(x=np.zeros((2, 8), np.float32))
    assert model.run(x=np.zeros((9, 8), np.float32))["y"].size


def two_images() -> Program:
    """Layers that are alike, of images of two sizes."""
    program = Program("layers")
    builder = Builder(program)
    for name in ("h", "w"):
        layer = program.add_input(name, F32, (symbol(name), 8), "F32")
        for _ in range(5):
            layer = builder.binary("ggml_add", builder.unary("ggml_relu", layer), layer)
        program.outputs.append(Output(f"{name}_after", F32, (symbol(name), 8), layer))
    return program


def test_what_is_alike_is_checked_once_and_what_stays_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def counted(program: Program, call: Call, binding: dict[str, int], values: Values) -> None:
        checked.append(f"{call.function} of {list(binding.values())}")

    program = two_images()
    checks = SizeChecks(program, range(len(program.calls)))
    monkeypatch.setattr("graphc.targets.ggml.program.bound._check", counted)
    checks.check({"h": 3, "w": 4})
    kinds = {(call.function, call.result.ne) for call in program.calls}
    assert len(checked) == len(kinds) < len(program.calls)
    checked.clear()
    checks.check({"h": 3, "w": 5})
    assert len(checked) == len(kinds) // 2
    checked.clear()
    checks.check({"h": 3, "w": 5})
    assert not checked


def test_what_was_refused_is_refused_again() -> None:
    model = model_of(large_kernel, (1, 1, H - 6, 2))
    for height in (3, 3, 9, 3):
        with pytest.raises(InputError, match="larger than the image") if height == 3 else nullcontext():
            model.run(x=np.zeros((height, 8), np.float32))


def test_sizes_that_a_call_does_not_give_are_refused() -> None:
    """Where a file says that a result has other sizes than ggml will give it, what reads it would read something else."""
    program = two_images()
    (call, *others), result = program.calls, program.calls[0].result
    wrong = Tensor("F32", (8, H * H, 1, 1), (4, 32, H * H * 32, H * H * 32), 2, call=0)
    program.calls[:] = [Call(call.function, call.args, wrong), *others]
    checks = SizeChecks(program, [0])
    with pytest.raises(InputError, match=r"h = 3: ggml_relu makes \[8, 3, 1, 1\], and the program says \[8, 9, 1, 1\]"):
        checks.check({"h": 3})
    assert result.ne == (8, H, 1, 1)
    checks.check({"h": 1})


def test_a_view_that_is_an_output_keeps_its_numbers() -> None:
    program = Program("views")
    b = Builder(program)
    x = program.add_input("x", F32, (4, 8), "F32")
    doubled = b.scale(x, 2.0)
    assert doubled is not None
    program.outputs.append(Output("flat", F32, (32,), b.reshape(doubled, (32,))))
    later = doubled
    for _ in range(4):
        later = b.binary("ggml_add", b.unary("ggml_relu", later), later)
    program.outputs.append(Output("later", F32, (4, 8), later))
    array = np.arange(32, dtype=np.float32).reshape(4, 8) - 16
    np.testing.assert_array_equal(Model(program, [], place=ONE_THREAD).run(x=array)["flat"], 2 * array.reshape(-1))
