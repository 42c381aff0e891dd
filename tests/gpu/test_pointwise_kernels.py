"""Every operator with an `element` as a tile kernel: interpreted and emulated, it gives what `eval` does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from draws import DRAWS
from test_elements import agree, drawn
from tile_runs import launch

from graphc.ir import TensorType
from graphc.ir.interp import bound
from graphc.kernels.gpu.emulate import compile_emulated
from graphc.kernels.gpu.evaluate import KernelFault
from graphc.kernels.gpu.interpret import interpret
from graphc.kernels.gpu.launch import grid
from graphc.kernels.gpu.render.cuda import Rendered, file_of, render
from graphc.kernels.gpu.skeletons.pointwise import pointwise
from graphc.kernels.gpu.verify import verify
from graphc.kernels.nest import nest
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op, operator_class
from graphc.shapes import integer

TOGETHER = 12
"""Operators whose kernels are compiled in one go."""
NAMES = [name for name in DRAWS if operator_class(name.split("-")[0]).element is not Op.element]
BEYOND = {"BitCast", "Encode"}
"""What needs more C than devices are given."""


@dataclass
class Sample:
    use: KernelUse
    arrays: list[np.ndarray]
    binding: dict[str, int]
    rendered: Rendered
    expected: np.ndarray


def sample(name: str, number: int) -> Sample | None:
    d, use, arrays = drawn(name, number, symbolic=number % 2 == 1)
    types = [TensorType(dtype, shape) for dtype, shape in use.inputs]
    try:
        kernel = pointwise(
            f"{name.replace('-', '_').lower()}_{number}",
            nest(use),
            types,
            use.dtype,
            TensorType(use.dtype, use.shape).size,
        )
        verify(kernel)
        rendered = render(kernel)
    except KernelFault:
        assert name in BEYOND
        return None
    with np.errstate(all="ignore"):
        (expected,) = bound(use.op, d.binding).eval(*arrays)
    return Sample(use, arrays, d.binding, rendered, np.asarray(expected))


def result_of(it: Sample) -> np.ndarray:
    return np.zeros([integer(size, it.binding) for size in it.use.shape], it.use.dtype)


@pytest.mark.parametrize("start", range(0, len(NAMES), TOGETHER))
def test_operators(start: int) -> None:
    samples = [
        found for name in NAMES[start : start + TOGETHER] for number in range(4) if (found := sample(name, number))
    ]
    emulated = compile_emulated(file_of([each.rendered for each in samples]))
    for each in samples:
        interpreted, computed = result_of(each), result_of(each)
        arrays = [np.ascontiguousarray(array) for array in each.arrays]
        interpret(each.rendered.kernel, [*arrays, interpreted], each.binding)
        agree(interpreted, each.expected)
        if 0 not in grid(each.rendered, each.binding):
            launch(emulated, each.rendered, [*arrays, computed], each.binding)
        agree(computed, each.expected)
