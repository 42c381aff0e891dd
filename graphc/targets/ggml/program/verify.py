"""What an engine file's program must satisfy beside the rules of `calls.py`, since it may come from a stranger.

`calls.py` says which sizes ggml accepts; here is what only a file can get wrong: arguments of another kind than the C
function takes, kernels whose result is not what their operator gives, row numbers out of range.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from graphc.ir.types import BOOL, I64, TensorType
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op
from graphc.shapes import Expr, product
from graphc.targets.ggml.program.calls import CALLS, VIEWS
from graphc.targets.ggml.program.composites import COMPOSITES, ActivationOrNone
from graphc.targets.ggml.program.program import Host, Input, Output, Program
from graphc.targets.ggml.program.tensor import LARGEST, STORAGE, Constant, ProgramError, Tensor

_KINDS: dict[Any, tuple[str, Any]] = {
    ctypes.c_int: ("a whole number", lambda arg: _int32(arg) or isinstance(arg, Constant)),
    ctypes.c_uint: ("a whole number", lambda arg: (_int32(arg) and arg >= 0) or isinstance(arg, Constant)),
    ctypes.c_int64: ("a size", lambda arg: isinstance(arg, Expr) or (_is_int(arg) and abs(arg) <= LARGEST)),
    ctypes.c_size_t: ("a size", lambda arg: isinstance(arg, Expr) or (_is_int(arg) and 0 <= arg <= LARGEST)),
    ctypes.c_float: ("a number", lambda arg: isinstance(arg, float) or _int32(arg)),
    ctypes.c_bool: ("true or false", lambda arg: isinstance(arg, bool)),
}
_NUMBERS = {
    float: ctypes.c_float, int: ctypes.c_int, Constant: ctypes.c_int, bool: ctypes.c_bool, ActivationOrNone: ctypes.c_bool,
}  # fmt: skip
_TENSOR = ("a tensor", lambda arg: arg is None or isinstance(arg, Tensor))
_OPERAND = ("a tensor", lambda arg: isinstance(arg, Tensor))
_IMAGES = 12
"""Which argument of `ggml_conv_3d_direct` is how many images there are: a size, though ggml declares an int."""


def check_signature(function: str, args: Sequence[Any]) -> None:
    """Raise ProgramError unless the arguments are of the number and kinds that the C function takes."""
    if function not in CALLS:
        raise ProgramError(f"{function} is not a call that a program may make")
    kinds = _signature(function)
    if function in COMPOSITES and COMPOSITES[function].more:
        kinds = [*kinds, *[_OPERAND] * (len(args) - len(kinds))]
    if len(args) != len(kinds):
        raise ProgramError(f"{function} takes {len(kinds)} arguments, not {len(args)}")
    for position, (arg, (kind, fits)) in enumerate(zip(args, kinds, strict=True)):
        if not fits(arg):
            raise ProgramError(f"{function}: argument {position} must be {kind}")


@cache
def _signature(function: str) -> list[tuple[str, Any]]:
    """The kinds of a function's arguments after the context, as ggml's header or a composite declares them."""
    if function in COMPOSITES:
        return [
            _OPERAND if kind is Tensor else _KINDS.get(_NUMBERS.get(kind), _TENSOR)
            for kind in COMPOSITES[function].parameters.values()
        ]
    from graphc.ggml_library import ggml

    kinds = [_KINDS.get(type, _TENSOR) for type in getattr(ggml, function).argtypes[1:]]
    if function == "ggml_conv_3d_direct":
        kinds[_IMAGES] = _KINDS[ctypes.c_int64]
    return kinds


def _is_int(arg: Any) -> bool:
    return isinstance(arg, int) and not isinstance(arg, bool)


def _int32(arg: Any) -> bool:
    return _is_int(arg) and -(2**31) <= arg < 2**31


def check_input(declared: Input) -> None:
    """Raise ProgramError unless the input's tensor can hold it."""
    bounded = declared.low is not None and declared.high is not None
    narrowed = declared.tensor.type == "I32" and declared.dtype.kind == "i" and bounded
    if declared.tensor.type != STORAGE[declared.dtype] and not narrowed:
        raise ProgramError(f"input {declared.name} of {declared.dtype.name} is held as {declared.tensor.type}")
    if narrowed and not -(2**31) <= declared.low < declared.high <= 2**31:  # type: ignore[operator]
        raise ProgramError(f"input {declared.name} has no possible values")


def check_names(inputs: Sequence[Input]) -> None:
    """Raise ProgramError unless each input has its own name."""
    if len({declared.name for declared in inputs}) != len(inputs):
        raise ProgramError("two inputs have the same name")


def check_host(host: Host) -> None:
    """Raise ProgramError unless the host's operator can be done with these types and blocks."""
    expected: dict[str, tuple[int, list[np.dtype]]] = {
        "Measure": (0, [I64]),
        "If": (2, [BOOL]),
        "Loop": (1, [I64, BOOL]),
    }
    number, leading = expected.get(host.operator, (-1, []))
    scalars = len(leading)
    told = [type.dtype for type in host.inputs[:scalars] if type.size == 1]
    if number != len(host.blocks) or told != leading:
        raise ProgramError(
            f"{host.operator} is not one of the host's operators, or is told something else than it takes"
        )
    given = host.inputs[scalars:]
    for block in host.blocks:
        taken, results = [(each.dtype, len(each.shape)) for each in block.inputs], list(block.outputs)
        own = [(type.dtype, type.rank) for type in given]
        made = [(type.dtype, type.rank) for type in host.results]
        if host.operator == "Loop":
            own = [(I64, 0), (BOOL, 0), *own]
            made = [*made[: host.carried], *((dtype, rank - 1) for dtype, rank in made[host.carried :])]
            going, *results = results
            if (going.dtype, going.shape) != (BOOL, ()) or host.carried > min(len(made), len(given)):
                raise ProgramError("a loop that does not say whether it goes on")
            if made[: host.carried] != [(type.dtype, type.rank) for type in given[: host.carried]]:
                raise ProgramError("a loop whose carried values change their type")
        if taken != own or made != [(each.dtype, len(each.shape)) for each in results]:
            raise ProgramError(f"a block of {host.operator} takes or gives something else")


def check_output(declared: Output) -> Output:
    """The output; raises ProgramError unless its tensor holds just its elements."""
    tensor = declared.tensor
    TensorType(declared.dtype, declared.shape).check_size()
    if not isinstance(tensor, Tensor) or tensor.type != STORAGE[declared.dtype] or not tensor.contiguous:
        raise ProgramError(f"output {declared.name} is not held as {declared.dtype.name}")
    sizes = [size for size in declared.shape if isinstance(size, int)]
    if tensor.size != product(declared.shape) or min(sizes, default=0) < 0:
        raise ProgramError(f"output {declared.name} has other sizes than its tensor")
    return declared


def check_attributes(op: Op) -> None:
    """Raise ProgramError unless each attribute is of the kind that the operator's class declares; a size may be symbolic."""
    cls: Any = type(op)
    for name, declared in _declared(cls).items():
        if not _is_a(getattr(op, name), declared):
            raise ProgramError(f"{type(op).__name__} with {name} = {getattr(op, name)!r}")


@cache
def _declared(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _is_a(value: Any, declared: Any) -> bool:
    parts = get_args(declared)
    if get_origin(declared) is tuple:
        return isinstance(value, tuple) and all(_is_a(item, parts[0]) for item in value)
    if parts:
        return any(_is_a(value, part) for part in parts)
    kinds = {int: (int, Expr), float: (int, float)}.get(declared, declared)
    return isinstance(value, kinds) and isinstance(value, bool) == (declared is bool)


def check_kernel(use: KernelUse) -> KernelUse:
    """The kernel; raises an error unless its operator gives what it is said to."""
    assert isinstance(use.op, Op)
    for value in vars(use.op).values():
        if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_]*", value):
            raise ProgramError(f"{type(use.op).__name__} has an attribute that is not a name")
    inputs = [TensorType(dtype, shape) for dtype, shape in use.inputs]
    for each in (*inputs, TensorType(use.dtype, use.shape)):
        each.check_size()
    result = use.op.infer(*inputs)
    if result != (TensorType(use.dtype, use.shape),):
        raise ProgramError(f"{use.op} does not give {TensorType(use.dtype, use.shape)}")
    return use


def check_row_numbers(program: Program, weights: Sequence[np.ndarray]) -> None:
    """Raise ProgramError unless every `ggml_get_rows` is given rows that exist: ggml ends the process otherwise."""
    for block in program.blocks:
        check_row_numbers(block, weights)
    for call in program.calls:
        if call.function != "ggml_get_rows":
            continue
        table, rows = call.args[0], call.args[1]
        assert isinstance(table, Tensor)
        assert isinstance(rows, Tensor)
        low, high = _range(program, weights, rows)
        if low is None or high is None or low < 0 or not high <= table.ne[1]:
            raise ProgramError(f"row numbers of a table of {table.ne[1]} rows that are not known to exist")


def _range(program: Program, weights: Sequence[np.ndarray], tensor: Tensor) -> tuple[int | None, int | None]:
    """Bounds (the upper one exclusive) of the elements of an integer tensor, None where not known."""
    while tensor.call >= 0 and program.calls[tensor.call].function in {*VIEWS, "ggml_cont", "ggml_repeat_4d"}:
        tensor = program.calls[tensor.call].args[0]  # type: ignore[assignment]
    if tensor.input >= 0:
        return program.inputs[tensor.input].low, program.inputs[tensor.input].high
    if tensor.weight >= 0:
        array = weights[tensor.weight]
        return (int(array.min()), int(array.max()) + 1) if array.size else (0, 0)
    kernel = program.calls[tensor.call].kernel
    if kernel < 0:
        return None, None
    from graphc.ops.indexing import RowNumbers

    op = program.kernels[kernel].op
    return (0, op.limit) if isinstance(op, RowNumbers) else (None, None)
