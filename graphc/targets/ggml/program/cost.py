"""What a program costs: floating-point operations call by call, and memory.

A multiplication and an addition are two operations; exp, tanh and the like count as one. Sizes may be symbolic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from graphc.kernels.use import KernelUse
from graphc.shapes import Dim, dim_min, integer, product
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.composites import COMPOSITES, Step
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program, with_blocks
from graphc.targets.ggml.program.tensor import TYPE_SIZES, Tensor

Count = Callable[[Call | Step], Dim]


def _elements(times: int) -> Count:
    """So many operations for each element of the result."""
    return lambda call: call.result.size * times


def _read(times: int) -> Count:
    """So many operations for each element that is read."""
    return lambda call: _arg(call, 0).size * times


def _products(call: Call | Step) -> Dim:
    """For each element of the result, one multiplication and addition for each of the first argument's innermost axis."""
    return 2 * _arg(call, 0).ne[0] * call.result.size


def _convolution(call: Call | Step) -> Dim:
    kernel = _arg(call, 0)
    return 2 * product(kernel.ne[:3]) * call.result.size


def _convolution_of_volumes(call: Call | Step) -> Dim:
    return 2 * product(_arg(call, 0).ne[:3]) * _whole(call, 11) * call.result.size


def _transposed_convolution(call: Call | Step) -> Dim:
    kernel, image = _arg(call, 0), _arg(call, 1)
    return 2 * product(kernel.ne[:3]) * image.size


def _window(call: Call | Step) -> Dim:
    return call.result.size * _whole(call, 2) * _whole(call, 3)


def _arg(call: Call | Step, index: int) -> Tensor:
    arg = call.args[index]
    assert isinstance(arg, Tensor)
    return arg


def _whole(call: Call | Step, index: int) -> int:
    arg = call.args[index]
    assert isinstance(arg, int)
    return arg


MOVES = {
    *VIEWS,
    "ggml_cont",
    "ggml_cast",
    "ggml_repeat_4d",
    "ggml_concat",
    "ggml_get_rows",
    "ggml_im2col",
    "ggml_im2col_3d",
    "ggml_pad_ext",
    "graphc_copy",
    "graphc_cast",
    "graphc_concat",
    "graphc_pad",
    "graphc_repeat",
}
"""Calls that compute nothing."""

COUNTS: Mapping[str, Count] = {
    **dict.fromkeys(MOVES, _elements(0)),
    "ggml_mul_mat": _products,
    "ggml_conv_2d": _convolution,
    "ggml_conv_2d_direct": _convolution,
    "ggml_conv_2d_dw_direct": _convolution,
    "ggml_conv_3d_direct": _convolution_of_volumes,
    "ggml_conv_transpose_2d_p0": _transposed_convolution,
    "ggml_pool_2d": _window,
    "ggml_norm": _elements(5),
    "ggml_rms_norm": _elements(3),
    "ggml_l2_norm": _elements(3),
    "ggml_group_norm": _elements(5),
    "ggml_soft_max": _elements(4),
    "ggml_soft_max_ext": _elements(6),
    "ggml_sum_rows": _read(1),
    "ggml_mean": _read(1),
    "ggml_scale_bias": _elements(2),
    "ggml_interpolate": _elements(8),
}
"""Operations of a call; one for each element of the result where nothing is said."""

KERNEL_MOVES = (
    *("Reshape", "Transpose", "Expand", "Slice", "Concat", "Pad", "Tile", "Gather", "GatherElements", "GatherND"),
    *(
        "ScatterElements",
        "ScatterND",
        "OneHot",
        "Range",
        "Trilu",
        "EyeLike",
        "Cast",
        "Where",
        "ChannelsFirst",
        "ChannelsLast",
        "DepthToSpace",
        "SpaceToDepth",
    ),
)
"""Operators that compute nothing."""

KERNEL_COUNTS: Mapping[str, Callable[[KernelUse], Dim]] = {
    "MatMul": lambda use: 2 * _inner(use) * product(use.shape),
    "Conv": lambda use: 2 * product(use.inputs[1][1][1:]) * product(use.shape),
    "IntegerMatMul": lambda use: 2 * _inner(use) * product(use.shape),
    "IntegerConv": lambda use: 2 * product(use.inputs[1][1][1:]) * product(use.shape),
    "PackedConv": lambda use: 2 * product(use.op.kernel) * use.inputs[0][1][-1] * product(use.shape),  # type: ignore[attr-defined]
    "DepthwiseConv": lambda use: 2 * product(use.inputs[1][1][:2]) * product(use.shape),
    "ConvTranspose": lambda use: 2 * product(use.inputs[1][1][1:]) * product(use.inputs[0][1]),
    **dict.fromkeys(("Reduce", "CumSum", "CumProd", "NonZero", "Extremes"), lambda use: product(use.inputs[0][1])),
    "MaxPool": lambda use: product(use.shape) * product(use.op.kernel),  # type: ignore[attr-defined]
    "AveragePool": lambda use: product(use.shape) * product(use.op.kernel),  # type: ignore[attr-defined]
    **dict.fromkeys(KERNEL_MOVES, lambda use: 0),
}
"""The same for the operator of a generated kernel."""


def _inner(use: KernelUse) -> Dim:
    shape = use.inputs[0][1]
    transposed = getattr(use.op, "transpose_a", False) and len(shape) > 1
    return shape[-2] if transposed else shape[-1]


@dataclass(frozen=True)
class Row:
    """Calls of one kind: how many, and the operations of all of them."""

    operator: str
    calls: int
    operations: Dim


def operations(program: Program) -> list[Row]:
    """The calls by kind, a kernel by its operator; views are left out. Branches and the bodies of loops count once."""
    counts: Counter[str] = Counter()
    sums: dict[str, Dim] = {}
    for block in with_blocks(program):
        for call in block.calls:
            if call.function in VIEWS or call.function == RESULT:
                continue
            name, count = count_of(program, call)
            counts[name] += 1
            sums[name] = sums.get(name, 0) + count
    return [Row(name, counts[name], sums[name]) for name in counts]


def is_measured(program: Program) -> bool:
    """True if the program has sizes that only a run can tell."""
    return any(call.function == HOST for call in program.calls)


def count_of(program: Program, call: Call) -> tuple[str, Dim]:
    """What a call is called, and its operations."""
    if call.host is not None:
        return call.host.operator, 0
    if call.function in COMPOSITES:
        steps = COMPOSITES[call.function].expansion(call.args)
        counts = [COUNTS.get(each.function, _elements(1))(each) for each in steps]
        return call.function, sum(counts, start=0)
    if call.kernel < 0:
        return call.function, COUNTS.get(call.function, _elements(1))(call)
    use = program.kernels[call.kernel]
    operator = type(use.op).__name__
    count = KERNEL_COUNTS[operator](use) if operator in KERNEL_COUNTS else product(use.shape)
    return f"kernel {getattr(use.op, 'name', operator)}", count


def is_copy(program: Program, call: Call) -> bool:
    """True if a call only moves elements from one place in memory to another."""
    if call.kernel >= 0:
        return type(program.kernels[call.kernel].op).__name__ in KERNEL_MOVES
    return call.function in MOVES and not _is_view(call)


def traffic(program: Program, call: Call) -> Dim:
    """Bytes that a call reads and writes; none for a view. A copy reads no more elements than it writes."""
    if _is_view(call) or call.function == RESULT:
        return 0
    tensors = [call.result, *_tensors(call.args)]
    if is_copy(program, call):
        most = call.result.size
        return sum((dim_min(tensor.size, most) * TYPE_SIZES[tensor.type] for tensor in tensors), 0)
    return sum((tensor.nbytes for tensor in tensors), 0)


def numbered(program: Program) -> dict[Call, int]:
    """The calls of the program and of all blocks, each with a number of its own."""
    calls = (call for block in with_blocks(program) for call in block.calls)
    return {call: number for number, call in enumerate(calls)}


def weight_bytes(program: Program) -> int:
    """Bytes of all weights."""
    return sum(weight.nbytes for weight in program.weights)


def parameters(program: Program) -> int:
    """Elements of all weights."""
    return sum(prod(weight.shape) for weight in program.weights)


def peak_bytes(program: Program, binding: Mapping[str, int]) -> int:
    """The most bytes of intermediate results that are needed at once when the calls run in order, inputs included.

    A backend allocates at least this much; scratch memory of its own comes on top.
    """
    last = _last_uses(program)
    sizes = {index: _bytes(call.result, binding) for index, call in enumerate(program.calls) if not _is_view(call)}
    live = sum(_bytes(declared.tensor, binding) for declared in program.inputs)
    peak = live
    ending: dict[int, list[int]] = {}
    for owner, step in last.items():
        ending.setdefault(step, []).append(owner)
    for index in range(len(program.calls)):
        live += sizes.get(index, 0)
        peak = max(peak, live)
        live -= sum(sizes[owner] for owner in ending.get(index, ()))
    return peak


def _last_uses(program: Program) -> dict[int, int]:
    """For each call that owns memory, the last call that reads it; the end for outputs."""
    owners: list[int] = []
    last: dict[int, int] = {}
    for index, call in enumerate(program.calls):
        first = call.args[0] if call.args else None
        if _is_view(call) and isinstance(first, Tensor):
            owners.append(owners[first.call] if first.call >= 0 else -1)
        else:
            owners.append(index)
        for arg in _tensors(call.args):
            if arg.call >= 0 and owners[arg.call] >= 0:
                last[owners[arg.call]] = index
    for output in program.outputs:
        if output.tensor.call >= 0 and owners[output.tensor.call] >= 0:
            last[owners[output.tensor.call]] = len(program.calls)
    return last


def _is_view(call: Call) -> bool:
    return call.function in VIEWS


def _tensors(args: Iterable[Any]) -> Iterable[Tensor]:
    return (arg for arg in args if isinstance(arg, Tensor))


def _bytes(tensor: Tensor, binding: Mapping[str, int]) -> int:
    return integer(tensor.nbytes, binding)
