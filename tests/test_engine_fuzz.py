"""Engines with a valid checksum from strangers: what ggml and our C need is a rule, and mutated engines break none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_fuzz.children import fuzz
from engine_fuzz.seeds import AVG, F16, NEAREST, Tensors

import graphc
from graphc.errors import EngineError, InputError
from graphc.ir.types import BF16, F32
from graphc.kernels.use import KernelUse
from graphc.ops.movement import Slice
from graphc.runtime.model import Model
from graphc.shapes import Dim, symbol
from graphc.targets.ggml.engine import VERSION
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.program.tensor import ProgramError
from graphc.targets.ggml.program.text import write_text
from graphc.targets.ggml.run.device.options import Place
from graphc.weights.formats.gguf import write_container

H = symbol("h")


@pytest.mark.slow
def test_mutated_engines_never_end_the_process() -> None:
    found = fuzz(0, 1000)
    assert not found.faults
    assert found.counts["run"] > 100
    assert found.counts["refused"] > 300


@pytest.mark.thorough
@pytest.mark.parametrize(("count", "sanitize"), [(100_000, False), (10_000, True)])
def test_a_hundred_thousand_mutated_engines(count: int, sanitize: bool) -> None:
    found = fuzz(1 << 30, count, sanitize)
    assert not found.faults


BAD: dict[str, tuple[str, Callable[[Tensors], tuple[Any, ...]], str]] = {
    "writes over its argument": ("ggml_clamp", lambda t: (t.kernel, 0.0, 1.0), "not a call"),
    "rows in one place": ("ggml_view_2d", lambda t: (t.x, 8, 4, 0, 0), "not positive"),
    "rows that overlap": ("ggml_view_2d", lambda t: (t.x, 8, 4, 16, 0), "overlap"),
    "parts of elements": ("ggml_view_2d", lambda t: (t.x, 8, 4, 42, 0), "not a multiple"),
    "an offset within an element": ("ggml_view_1d", lambda t: (t.x, 8, 3), "not a multiple"),
    "a bias without a mask": ("ggml_soft_max_ext", lambda t: (t.x, None, 1.0, 8.0), "no bias"),
    "half a pad": ("ggml_pool_2d", lambda t: (t.x, AVG, 2, 2, 2, 2, 0.5, 0.0), "whole"),
    "a pad that is not a number": ("ggml_pool_2d", lambda t: (t.x, AVG, 2, 2, 2, 2, float("nan"), 0.0), "wrong kind"),
    "columns of another type": ("ggml_im2col", lambda t: (t.kernel, t.x, 1, 1, 1, 1, 1, 1, True, F16), "F16 as the kernel"),
    "a large pad": ("ggml_conv_2d", lambda t: (t.kernel, t.x, 1, 1, 2**30, 1, 1, 1), "from 0 to"),
    "half a stride": ("ggml_conv_transpose_2d_p0", lambda t: (t.other, t.x, 0.5), "from 0 to"),
    "a size that float32 does not count": ("ggml_interpolate", lambda t: (t.x, 2**23, 1, 1, 1, NEAREST), "float32"),
}  # fmt: skip
"""Calls for which ggml would end the process, or write where it must not."""


@pytest.mark.parametrize("name", BAD)
def test_calls_that_ggml_would_not_survive(name: str) -> None:
    function, arguments, message = BAD[name]
    tensors = Tensors(Program("bad"))
    with pytest.raises(ProgramError, match=message):
        tensors.builder.call(function, *arguments(tensors), rank=4)


@pytest.mark.parametrize("function", ["ggml_silu", "ggml_gelu_erf"])
def test_functions_that_have_no_bfloat16(function: str) -> None:
    program = Program("bad")
    x = program.add_input("x", BF16, (4,), "BF16")
    with pytest.raises(ProgramError, match="BF16"):
        program.call(function, (x,), 1)


def test_the_columns_of_a_large_kernel() -> None:
    """ggml's direct convolutions have no room for one."""
    program = Program("large")
    kernel = program.add_weight("kernel", F32, (1, 2**12, 32, 32))
    image = program.add_input("x", F32, (1, 2**12, 40, 40), "F32")
    with pytest.raises(ProgramError, match="workspace"):
        program.call("ggml_conv_2d_direct", (kernel, image, 1, 1, 0, 0, 1, 1), 4)


def test_a_kernel_that_would_read_outside_for_some_sizes() -> None:
    """With symbols, where a slice begins is checked when they are known."""
    program = Program("slice")
    shapes: list[tuple[Dim, ...]] = [(H,), (3,)]
    x = program.add_input("x", F32, shapes[0], "F32")
    op = Slice((H * 2 - 8,), (3,), (1,))
    y = Builder(program).kernel(KernelUse(op, ((F32, shapes[0]),), F32, shapes[1]), x)
    program.outputs.append(Output("y", F32, shapes[1], y))
    model = Model(program, [], place=Place(threads=1))
    x5 = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(model.run(x=x5)["y"], [2, 3, 4])
    for size in (3, 9):
        with pytest.raises(InputError, match=f"h = {size}: .*does not have 3 elements"):
            model.run(x=np.zeros(size, np.float32))


@pytest.mark.parametrize(("before", "after"), [('"shape":[2,3]', f'"shape":{[1] * 65}'.replace(" ", "")),
                                               ('"shape":[2,3]', f'"shape":[{2**62},3]'), ('"rank":2', '"rank":65'),
                                               ('"rank":2', '"rank":2.0'), ('"args":[{"input":0}]', '"args":[0.5]')])  # fmt: skip
def test_engines_of_no_sense_are_refused(tmp_path: Path, before: str, after: str) -> None:
    program = Program("relu")
    x = program.add_input("x", F32, (2, 3), "F32")
    program.outputs.append(Output("y", F32, (2, 3), Builder(program).unary("ggml_relu", x)))
    text = write_text(program)
    assert before in text
    text = text.replace(before, after)
    metadata = {"general.architecture": "graphc", "graphc.version": VERSION, "graphc.program": text,
                "graphc.program.sha256": hashlib.sha256(text.encode()).hexdigest()}  # fmt: skip
    write_container(tmp_path / "e.gguf", metadata, [], lambda index: np.empty(0))
    with pytest.raises(EngineError):
        graphc.load(tmp_path / "e.gguf")
