"""Programs that are mutated: those of the C++ tests, one of each call that a program may make, and one of each kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import cpp_programs
import numpy as np
from draws import DRAWS, Draw

from graphc.ir.types import F32, I8, I32, TensorType
from graphc.kernels.use import KernelUse
from graphc.shapes import symbol, symbols
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.program.tensor import STORAGE, Constant, Tensor
from graphc.targets.ggml.program.text import write_text

MAX, AVG = Constant("GGML_OP_POOL_MAX"), Constant("GGML_OP_POOL_AVG")
F16, COLUMNS = Constant("GGML_TYPE_F16"), Constant("GGML_TYPE_F32")
NEAREST = Constant("GGML_SCALE_MODE_NEAREST")
LARGEST_WEIGHTS = 1 << 16


class Tensors:
    """What calls are made with."""

    def __init__(self, program: Program) -> None:
        self.builder = Builder(program)
        self.x = program.add_input("x", F32, (2, 6, 8, 10), "F32")
        self.y = program.add_input("y", F32, (2, 6, 8, 10), "F32")
        self.rows = program.add_input("rows", I32, (5,), "I32", low=0, high=6)
        self.flat = program.add_input("flat", F32, (6, 64), "F32")
        self.many = program.add_input("many", F32, (2, 9, 64), "F32")
        self.gate = program.add_input("gate", F32, (2, 1, 64), "F32")
        self.number = program.add_weight("number", F32, (6,))
        self.matrix = program.add_weight("matrix", F32, (6, 64), type="Q8_0")
        self.whole = program.add_weight("whole", I8, (6, 64), type="Q4_0")
        self.scales, self.shifts = (program.add_weight(name, F32, (6, 4)) for name in ("scales", "shifts"))
        self.half = program.add_weight("half", F32, (3, 6, 3, 3), type="F16")
        self.kernel = program.add_weight("kernel", F32, (3, 6, 3, 3))
        self.each = program.add_weight("each", F32, (6, 1, 3, 3))
        self.other = program.add_weight("other", F32, (6, 3, 2, 2))
        self.row = program.add_weight("row", F32, (10,))
        self.matrix_sum = program.add_weight("matrix_sum", F32, (6, 6))
        self.image_sum = program.add_weight("image_sum", F32, (1, 3, 1, 1))
        self.channel = program.add_weight("channel", F32, (1, 6, 1, 1))
        self.vector, self.bias = program.add_weight("vector", F32, (6,)), program.add_weight("bias", F32, (3,))
        self.pixels = program.add_input("pixels", F32, (2, 3, 5, 20), "F32")
        self.pixel_kernels = program.add_weight("pixel_kernels", F32, (20, 1, 3, 3))
        self.pixel = program.add_weight("pixel", F32, (20,))
        self.narrow = program.add_input("narrow", F32, (2, 8, 8, 4), "F32")
        self.widening = program.add_weight("widening", F32, (20, 4))
        self.deep, self.pair = program.add_weight("deep", F32, (4, 3, 3, 3)), program.add_weight("pair", F32, (2,))
        self.turned = self.builder.call("ggml_permute", self.x, 1, 0, 2, 3, rank=4)


Arguments = Callable[[Tensors], tuple[Any, ...]]

OTHERS: dict[str, Arguments] = {
    **dict.fromkeys(("ggml_add", "ggml_sub", "ggml_mul", "ggml_div"), lambda t: (t.x, t.y)),
    **dict.fromkeys(("ggml_scale", "ggml_fill", "ggml_norm", "ggml_rms_norm", "ggml_l2_norm"), lambda t: (t.x, 0.5)),
    "ggml_scale_bias": lambda t: (t.x, 0.5, 1.0),
    "ggml_cont": lambda t: (t.turned,),
    **dict.fromkeys(("ggml_cast", "graphc_cast"), lambda t: (t.x, F16)),
    "ggml_reshape_1d": lambda t: (t.x, 960),
    "ggml_reshape_2d": lambda t: (t.x, 80, 12),
    "ggml_reshape_3d": lambda t: (t.x, 80, 6, 2),
    "ggml_reshape_4d": lambda t: (t.x, 8, 10, 6, 2),
    "ggml_permute": lambda t: (t.x, 0, 2, 1, 3),
    "ggml_view_1d": lambda t: (t.x, 8, 40),
    "ggml_view_2d": lambda t: (t.x, 8, 4, 40, 4),
    "ggml_view_3d": lambda t: (t.x, 8, 4, 3, 40, 320, 4),
    "ggml_view_4d": lambda t: (t.x, 8, 4, 3, 2, 40, 320, 1920, 4),
    **dict.fromkeys(("ggml_repeat_4d", "graphc_repeat"), lambda t: (t.x, 20, 8, 6, 4)),
    "ggml_concat": lambda t: (t.x, t.y, 1),
    "ggml_mul_mat": lambda t: (t.matrix, t.flat),
    "ggml_get_rows": lambda t: (t.matrix, t.rows),
    "ggml_group_norm": lambda t: (t.x, 3, 0.5),
    "ggml_soft_max_ext": lambda t: (t.x, t.y, 0.5, 0.0),
    **dict.fromkeys(("ggml_conv_2d", "ggml_conv_2d_direct"), lambda t: (t.kernel, t.x, 1, 1, 1, 1, 1, 1)),
    "ggml_conv_2d_dw_direct": lambda t: (t.each, t.x, 1, 1, 1, 1, 1, 1),
    "ggml_conv_3d_direct": lambda t: (t.half, t.x, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3),
    "ggml_im2col_3d": lambda t: (t.deep, t.x, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, COLUMNS),
    "ggml_im2col": lambda t: (t.half, t.x, 1, 1, 1, 1, 1, 1, True, F16),
    "ggml_conv_transpose_2d_p0": lambda t: (
        t.other, t.builder.call("ggml_view_4d", t.x, 10, 8, 6, 1, 40, 320, 1920, 0, rank=4), 2),
    "ggml_pool_2d": lambda t: (t.x, AVG, 2, 2, 2, 2, 0.0, 1.0),
    "ggml_interpolate": lambda t: (t.x, 20, 5, 6, 2, NEAREST),
    **dict.fromkeys(("ggml_pad_ext", "graphc_pad"), lambda t: (t.x, 1, 2, 0, 3, 1, 0, 0, 1)),
    "graphc_upscale": lambda t: (t.x, 20, 12, 6, 2, NEAREST, False),
    "graphc_average_pool": lambda t: (t.x, 2, 2, 2, 2, 0.0, 1.0, True),
    "graphc_attention": lambda t: (t.x, t.y, t.x, None, 0.5),
    **dict.fromkeys((f"graphc_{name}" for name in ("add", "sub", "mul", "div")), lambda t: (t.x, t.channel)),
    "graphc_scaled_sum": lambda t: (t.x, t.row, True, t.channel, t.y),
    "graphc_linear": lambda t: (t.matrix, t.flat, True, t.matrix_sum),
    "graphc_gated_linear": lambda t: (t.matrix, t.many, t.gate, True, t.number),
    "graphc_scaled_linear": lambda t: (t.whole, t.flat, t.scales, t.shifts, True, t.matrix_sum),
    "graphc_conv_2d": lambda t: (t.kernel, t.x, t.bias, 1, 1, 1, 1, 1, 1, True, False, t.image_sum),
    "graphc_conv_3d": lambda t: (t.deep, t.x, t.pair, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, True, t.y),
    "graphc_conv_2d_dw": lambda t: (t.each, t.x, t.vector, 1, 1, 1, 1, 1, 1, False, t.channel),
    "graphc_conv_2d_last": lambda t: (
        t.kernel, t.builder.call("ggml_permute", t.x, 1, 2, 0, 3, rank=4), t.bias, 1, 1, 1, 1, 2, 1, 1, 1, False, False,
        t.bias),
    "graphc_expanded_conv_2d": lambda t: (
        t.widening, t.narrow, t.pixel, True, t.pixel_kernels, t.pixel, 1, 2, 1, 1, 2, 1, 1, 1, False),
    **dict.fromkeys(("graphc_layer_norm", "graphc_rms_norm"), lambda t: (t.x, t.row, t.row, 0.5)),
    "graphc_l2_norm": lambda t: (t.x, 0.5),
    "graphc_group_norm": lambda t: (t.x, t.vector, t.channel, 3, 0.5, True),
    **dict.fromkeys(("graphc_gelu", "graphc_silu"), lambda t: (t.x, t.y)),
    "graphc_gate": lambda t: (t.x, t.y, 0.5, 0.1),
    "graphc_rotary": lambda t: (t.x, t.row, t.row, t.y, True),
    "graphc_copy": lambda t: (t.turned,),
    "graphc_concat": lambda t: (1, t.x, t.y, t.x),
}  # fmt: skip
"""The arguments of calls that take more than one tensor."""


def called(function: str) -> Program:
    """A call, of what is an input, a weight or a result, and what reads its result."""
    program = Program("call")
    tensors = Tensors(program)
    b = tensors.builder
    arguments = OTHERS.get(function, lambda t: (b.unary("ggml_neg", t.x),))(tensors)
    y = b.call(function, *arguments, rank=4)
    program.outputs.append(declared("y", b.cont(y)))
    if y.type == "F32":
        program.outputs.append(declared("z", b.unary("ggml_relu", b.cont(y))))
    return program


def declared(name: str, tensor: Tensor) -> Output:
    """An output of a tensor, whatever it holds."""
    dtype = next(dtype for dtype, type in STORAGE.items() if type == tensor.type)
    return Output(name, dtype, tensor.shape, tensor)


def drawn(name: str, seed: int) -> Program:
    """A kernel, with sizes of which some are symbols."""
    d = Draw(np.random.default_rng(seed), symbolic=seed % 2 == 0)
    op, operands = DRAWS[name](d)
    program = Program("kernel")
    b = Builder(program)
    types = [(array.dtype, shape) for array, shape in operands]
    args = [program.add_input(f"x{i}", dtype, shape, STORAGE[dtype]) for i, (dtype, shape) in enumerate(types)]
    (result,) = op.infer(*(TensorType(dtype, shape) for dtype, shape in types))
    shapes = [result.shape, *(shape for _, shape in types)]
    atoms = {name: atom for shape in shapes for size in shape for name, atom in symbols(size).items()}
    for name, atom in atoms.items():
        program.add_input(f"size of {name}", F32, (symbol(name, atom.low, atom.high, atom.multiple),), "F32")
    y = b.kernel(KernelUse(op, tuple(types), result.dtype, result.shape), *args)
    program.outputs.append(Output("y", result.dtype, result.shape, y))
    return program


@cache
def documents() -> dict[str, list[str]]:
    """Texts of programs by kind."""
    small = [program for program in _of_cpp() if sum(w.nbytes for w in program.weights) < LARGEST_WEIGHTS]
    return {
        "programs": [write_text(program) for program in small],
        "calls": [write_text(called(function)) for function in sorted(CALLS)],
        "kernels": [write_text(drawn(name, seed)) for name in DRAWS if "-" not in name for seed in range(2)],
    }


def _of_cpp() -> Iterator[Program]:
    for make in (*cpp_programs.PROGRAMS.values(), *cpp_programs.OTHERS.values()):
        yield make()


def document(kind: str, number: int) -> Any:
    """One of them, to be mutated."""
    texts = documents()[kind]
    return json.loads(texts[number % len(texts)])
