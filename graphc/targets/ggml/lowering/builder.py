"""Builds a program in the model's order of axes. This file and `calls.py` are all that know ggml's conventions.

ggml reverses the axes, has four of them, broadcasts only the second operand, and wants contiguous operands in places; each
method here takes the model's axes, adds the copy where ggml needs one, and nothing where it does not.
Methods return None where ggml cannot do what is asked, so that the caller can fall back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphc.ggml_types import HALVES
from graphc.ir.types import TensorType
from graphc.kernels.use import KernelUse
from graphc.shapes import Dim
from graphc.targets.ggml.lowering.images import ImageCalls
from graphc.targets.ggml.program.calls import repeats
from graphc.targets.ggml.program.composites.arithmetic import OVER_ROWS
from graphc.targets.ggml.program.program import Program
from graphc.targets.ggml.program.rules import RESHAPES
from graphc.targets.ggml.program.tensor import STORAGE, TYPE_SIZES, Arg, Constant, Tensor, storage_ne

MAX_RANK = 4
FEW_ROWS, LONG_ROW = 16, 128

MOVES = (*RESHAPES, "ggml_permute", "ggml_cont", "ggml_concat", "ggml_repeat_4d")
"""Calls that move elements of any type, and whose numbers do not depend on it."""


class Builder(ImageCalls):
    """Appends calls to a program, for the operator that is being lowered.

    `types` and `result` are its inputs' and its first result's types in the model's terms. They differ from the tensors'
    own sizes where a value has more than four axes: its tensor is then contiguous, with the leading axes merged.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.types: tuple[TensorType, ...] = ()
        self.result: TensorType = TensorType(np.dtype(np.float32), ())
        self.scope: tuple[str, ...] = ()
        self.source = ""
        self.within_definition = False
        """True while operators are lowered that another is defined as."""
        self.wide: dict[int, Tensor] = {}
        """What tensors of half precision were before an operator rounded them, by their calls."""

    def constant(self, index: int) -> np.ndarray | None:
        """The elements of the operator's input `index` if they are known when compiling."""
        raise NotImplementedError

    def whole_in_blocks(self, index: int, type: str) -> Tensor | None:
        """The operator's input `index`, constant int8 numbers, each as it is in blocks of this type (`ggml_types.WHOLE`); None if
        it is computed, or its rows are not whole blocks."""
        raise NotImplementedError

    def row_indices(self, index: int, limit: Dim) -> Tensor | None:
        """The operator's input `index` as I32 row numbers that are certain to lie in `0 <= i < limit`: a constant that
        does, an input of the model whose values are checked when it is run, or, where input 0 is a large constant table, what a
        kernel checks; None for other computed numbers."""
        raise NotImplementedError

    def call(self, function: str, *args: Arg, rank: int) -> Tensor:
        """Append one call as it is. Raises ProgramError."""
        return self.program.call(function, args, rank, self.scope, self.source)

    def kernel(self, use: KernelUse, *args: Tensor) -> Tensor:
        """Append a generated kernel."""
        return self.program.call_kernel(use, [self.cont(tensor) for tensor in args], self.scope, self.source)

    @staticmethod
    def single(number: float) -> float:
        """The number as float32 holds it, so that C++ and Python pass the same bits."""
        with np.errstate(over="ignore"):
            return float(np.float32(number))

    # Conditions

    def floats(self, *tensors: Tensor) -> bool:
        """True if all are float32, which every ggml operator takes."""
        return all(tensor.type == "F32" for tensor in tensors)

    # Layout

    def cont(self, x: Tensor) -> Tensor:
        """The same elements, contiguous; a copy only if they are not in order."""
        if x.contiguous:
            return x
        return self.call("ggml_reshape_4d", x, *x.ne, rank=x.rank) if x.in_order else self.copy(x)

    def copy(self, x: Tensor) -> Tensor:
        """The same elements, contiguous, in memory of their own."""
        return self.call("ggml_cont", x, rank=x.rank)

    def rows(self, x: Tensor) -> Tensor:
        """The same elements with contiguous rows; a copy only if they do not have them."""
        return x if x.nb[0] == TYPE_SIZES[x.type] else self.cont(x)

    def reshape(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """Other sizes over the same elements; the leading axes of a shape of more than four are merged."""
        rank = min(len(shape), MAX_RANK)
        ne = storage_ne(tuple(shape))
        if ne == x.ne:
            return replace(x, rank=rank)
        dims = max(rank, 1)
        return self.call(f"ggml_reshape_{dims}d", x if x.in_order else self.copy(x), *ne[:dims], rank=rank)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Axis `i` of the result is axis `axes[i]` of `x` (at most four axes). A view."""
        order = list(range(MAX_RANK))
        for new, old in enumerate(axes):
            order[x.rank - 1 - old] = x.rank - 1 - new
        made = self.program.calls[x.call] if x.call >= 0 else None
        if made is not None and made.function == "ggml_permute":  # of what is permuted already, another order
            before, *first = made.args
            assert isinstance(before, Tensor)
            x, order = replace(before, rank=x.rank), [order[place] for place in first]  # type: ignore[index]
        if order == list(range(MAX_RANK)):
            return x
        return self.call("ggml_permute", x, *order, rank=x.rank)

    def slice(self, x: Tensor, starts: Sequence[Dim], sizes: Sequence[Dim], steps: Sequence[int]) -> Tensor | None:
        """A part of each axis, as a view where adjacent elements stay adjacent; None for a step in the innermost axis
        or a negative one."""
        if any(step < 1 for step in steps) or (x.rank and steps[-1] != 1 and sizes[-1] != 1):
            return None
        if tuple(sizes) == x.shape:
            return x
        x = self.rows(x)
        offset: Dim = 0
        for start, stride in zip(starts, reversed(x.nb[: x.rank]), strict=True):
            offset = offset + start * stride
        strides = [stride * step for stride, step in zip(reversed(x.nb[: x.rank]), steps, strict=True)][::-1]
        ne = list(reversed(sizes))
        return self.call(f"ggml_view_{x.rank}d", x, *ne, *strides[1:], offset, rank=x.rank)

    def expand(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """Broadcast to `shape` (at most four axes, at least as many as `x` has)."""
        ne = storage_ne(tuple(shape))
        if x.ne == ne:
            return self.with_rank(x, len(shape))
        return self.call("ggml_repeat_4d", self.rows(x), *ne, rank=len(shape))

    def with_rank(self, x: Tensor, rank: int) -> Tensor:
        """The same tensor read with more or fewer leading axes of size 1."""
        shape = (*[1] * (rank - x.rank), *x.shape) if rank > x.rank else x.shape[x.rank - rank :]
        return self.reshape(x, shape)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Join along an axis."""
        result = tensors[0]
        for tensor in tensors[1:]:
            result = self.call("ggml_concat", result, tensor, result.rank - 1 - axis, rank=result.rank)
        return result

    # Arithmetic

    def binary(self, function: str, a: Tensor, b: Tensor) -> Tensor | None:
        """`ggml_add`, `ggml_sub`, `ggml_mul` or `ggml_div` with NumPy broadcasting; None for other types than float32."""
        if not self.floats(a, b):
            return None
        rank = max(a.rank, b.rank)
        if not repeats(b, a):
            if repeats(a, b) and function in ("ggml_add", "ggml_mul"):
                a, b = b, a
            else:
                ne = [y if x == 1 else x for x, y in zip(a.ne, b.ne, strict=True)]
                a = self.call("ggml_repeat_4d", self.rows(a), *ne, rank=rank)
        b = b if a.ne == b.ne else self.rows(b)
        return self.call(function, self.rows(a), b, rank=rank)

    def unary(self, function: str, x: Tensor, *settings: float) -> Tensor | None:
        """A function of one float32 tensor; None for other types."""
        if not self.floats(x):
            return None
        x = self.cont(x)
        found = self.call(function, self._with_long_rows(x), *map(self.single, settings), rank=x.rank)
        return found if found.ne == x.ne else self.call(f"ggml_reshape_{x.rank}d", found, *x.ne[: x.rank], rank=x.rank)

    def _with_long_rows(self, x: Tensor) -> Tensor:
        """The same numbers in longer rows, where rows are those of complex numbers or shorter: ggml computes row by row."""
        first, *others = x.ne
        if first not in (1, 2) or not isinstance(others[0], int) or others[0] < FEW_ROWS:
            return x
        while others and isinstance(others[0], int) and first < LONG_ROW:
            first *= others.pop(0)
        return self.call(f"ggml_reshape_{len(others) + 1}d", x, first, *others, rank=x.rank)

    def scale(self, x: Tensor, factor: float, bias: float = 0.0) -> Tensor | None:
        """`x * factor + bias` for float32; None for other types."""
        if bias:
            return self.unary("ggml_scale_bias", x, factor, bias)
        return self.unary("ggml_scale", x, factor)

    def cast(self, x: Tensor, dtype: str) -> Tensor | None:
        """Between ggml's floating-point types; None for others. What an operator rounds to half precision, and another reads as
        float32, stays as it was: as PyTorch has it where it computes several operators at once."""
        wide = self.before_rounding(x) if dtype == "F32" and x.type in HALVES else None
        if wide is not None:
            return wide
        found = self.rounded(x, dtype)
        if found is not None and x.type == "F32" and dtype in HALVES:
            self.wide[found.call] = x
        return found

    def rounded(self, x: Tensor, dtype: str) -> Tensor | None:
        """The same where the model itself rounds the numbers."""
        types = ("F32", *HALVES)
        if x.type not in types or dtype not in types:
            return None
        return x if x.type == dtype else self.call("ggml_cast", x, Constant(f"GGML_TYPE_{dtype}"), rank=x.rank)

    def before_rounding(self, x: Tensor) -> Tensor | None:
        """What a tensor of half precision was before an operator rounded it, also where it was moved since then; None if it was
        not."""
        if x.call in self.wide:
            return replace(self.wide[x.call], rank=x.rank)
        made = self.program.calls[x.call] if x.call >= 0 else None
        if made is None or made.kernel >= 0 or made.function not in MOVES:
            return None
        read = [self.before_rounding(arg) if isinstance(arg, Tensor) else arg for arg in made.args]
        if any(each is None for each in read):
            return None
        self.wide[x.call] = self.call(made.function, *(each for each in read if each is not None), rank=x.rank)
        return self.wide[x.call]

    def floats_of(self, x: Tensor) -> Tensor:
        """The numbers of an int32 tensor as float32."""
        return self.call("ggml_cast", self.cont(x), Constant("GGML_TYPE_F32"), rank=x.rank)

    def stored_alike(self, a: np.dtype, b: np.dtype) -> bool:
        """True if tensors of one type hold the elements of both dtypes."""
        return STORAGE[a] == STORAGE[b]

    def matmul(self, a: Tensor, b_transposed: Tensor) -> Tensor | None:
        """`a @ b` for `a` [..., M, K] and `b_transposed` [..., N, K], with NumPy broadcasting of the batch axes;
        float32 but for `b_transposed`, which may be float16 or bfloat16. None for other types."""
        if a.type != "F32" or b_transposed.type not in ("F32", "F16", "BF16"):
            return None
        rank = max(a.rank, b_transposed.rank, 2)
        if a.rank < 2 or b_transposed.rank < 2:
            return None
        batch = [y if x == 1 else x for x, y in zip(a.ne[2:], b_transposed.ne[2:], strict=True)]
        if list(a.ne[2:]) != batch:
            a = self.call("ggml_repeat_4d", self.rows(a), *a.ne[:2], *batch, rank=rank)
        return self.call("ggml_mul_mat", self.rows(b_transposed), self.rows(a), rank=rank)

    def gate(self, x: Tensor, linear: float, cubic: float = 0.0) -> Tensor | None:
        """`x * sigmoid(linear * x + cubic * x^3)` for float32; None for other types."""
        if not self.floats(x):
            return None
        return self.call("graphc_gate", self.cont(x), None, self.single(linear), self.single(cubic), rank=x.rank)

    def rotary(self, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor | None:
        """`x * cos + exchanged(x) * sin`, where the elements of each pair of the last axis are exchanged: neighbours, or those at
        one place of the halves; float32. None for others, or where cos and sin do not broadcast as ggml has it."""
        x, cos, sin = (self.rows(each) for each in (x, cos, sin))
        if not self.floats(x, cos, sin) or not all(repeats(each, x) for each in (cos, sin)):
            return None
        return self.call("graphc_rotary", x, cos, sin, None, interleaved, rank=x.rank)

    # Reductions and normalization over the last axis

    def over_rows(self, function: str, x: Tensor) -> Tensor | None:
        """The sum or the mean (`ggml_sum_rows`, `ggml_mean`) of a float32 tensor along its last axis but one, which it keeps."""
        if not self.floats(x):
            return None
        return self.call(OVER_ROWS[function], self.cont(x), rank=x.rank)

    def over_last(self, function: str, x: Tensor, *settings: float) -> Tensor | None:
        """A function along the last axis of a float32 tensor that keeps it (of size 1 for sums); None for other types."""
        if not self.floats(x) or x.rank == 0:
            return None
        return self.call(function, self.cont(x), *map(self.single, settings), rank=x.rank)
