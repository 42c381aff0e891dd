"""Operations and memory of programs, counted by hand."""

from __future__ import annotations

from graphc.ir.types import F16, F32, I8, I32, U8
from graphc.kernels.use import KernelUse
from graphc.ops.integers import IntegerConv
from graphc.ops.matmul import MatMul
from graphc.shapes import bind, symbol
from graphc.targets.ggml.lowering.builder import Builder
from graphc.targets.ggml.program.cost import (
    is_copy,
    numbered,
    operations,
    parameters,
    peak_bytes,
    traffic,
    weight_bytes,
)
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.program.tensor import STORAGE


def test_a_convolution() -> None:
    height = symbol("h")
    program = Program("conv")
    b = Builder(program)
    image = program.add_input("image", F32, (1, 3, height, 10), "F32")
    kernel = program.add_weight("kernel", F32, (8, 3, 3, 3))
    result = b.call("ggml_conv_2d", kernel, image, 1, 1, 1, 1, 1, 1, rank=4)
    program.outputs.append(Output("y", F32, (1, 8, height, 10), b.unary("ggml_relu", result)))
    rows = {row.operator: row for row in operations(program)}
    assert rows["ggml_conv_2d"].calls == 1
    assert bind(rows["ggml_conv_2d"].operations, {"h": 6}) == 2 * 3 * 3 * 3 * 8 * 6 * 10
    assert bind(rows["ggml_relu"].operations, {"h": 6}) == 8 * 6 * 10
    assert parameters(program) == 8 * 27
    assert weight_bytes(program) == 8 * 27 * 4
    assert peak_bytes(program, {"h": 6}) == 4 * (3 * 60 + 8 * 60 + 8 * 60)


def test_a_chain_needs_two_results_at_once() -> None:
    program = Program("chain")
    b = Builder(program)
    x = program.add_input("x", F32, (100,), "F32")
    for _ in range(10):
        x = b.reshape(b.unary("ggml_relu", x), (100,))
    program.outputs.append(Output("y", F32, (100,), x))
    assert peak_bytes(program, {}) == 3 * 400


def test_a_kernel_counts_as_its_operator() -> None:
    program = Program("kernel")
    a, c = (program.add_input(name, F16, (4, 4), "F16") for name in "ab")
    use = KernelUse(MatMul(), ((F16, (4, 4)), (F16, (4, 4))), F16, (4, 4))
    program.outputs.append(Output("y", F16, (4, 4), program.call_kernel(use, (a, c))))
    (row,) = operations(program)
    assert (row.operator, row.operations) == ("kernel MatMul", 2 * 4 * 16)


def test_what_calls_read_and_write() -> None:
    program = Program("traffic")
    b = Builder(program)
    n = symbol("n")
    x = program.add_input("x", F32, (n, 4), "F32")
    table = program.add_weight("table", F32, (1000, 4))
    rows = program.add_input("rows", I32, (n,), "I32")
    looked = b.call("ggml_get_rows", table, rows, rank=2)
    summed = b.call("ggml_add", looked, x, rank=2)
    program.outputs.append(Output("y", F32, (n * 4,), b.reshape(summed, (n * 4,))))
    calls = list(numbered(program))
    assert [is_copy(program, call) for call in calls] == [True, False, False]
    assert [bind(traffic(program, call), {"n": 10}) for call in calls] == [
        10 * 4 * 4 + 10 * 4 * 4 + 10 * 4,  # rows of the table, not all of it
        3 * 10 * 4 * 4,
        0,
    ]


def test_products_of_bytes_count_as_those_of_floats() -> None:
    program = Program("bytes")
    shapes = ((2, 4, 4, 20), U8), ((6, 3, 3, 20), I8), ((), U8), ((), I8), ((), I32)
    inputs = [program.add_input(f"x{i}", dtype, shape, STORAGE[dtype]) for i, (shape, dtype) in enumerate(shapes)]
    op = IntegerConv((1, 1), (1, 1), (1, 1), (1, 1), channels_last=True)
    use = KernelUse(op, tuple((dtype, shape) for shape, dtype in shapes), I32, (2, 6, 4, 4))
    program.outputs.append(Output("y", I32, (2, 6, 4, 4), program.call_kernel(use, inputs)))
    (row,) = operations(program)
    assert (row.operator, row.operations) == ("kernel IntegerConv", 2 * 2 * 6 * 16 * 20 * 9)
