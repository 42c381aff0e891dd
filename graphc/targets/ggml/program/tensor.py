"""A tensor of ggml's as a program knows it: its type, and its sizes and strides, which may be symbolic, in ggml's order."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias, Union

import numpy as np

from graphc.errors import GraphcError
from graphc.ggml_types import TYPES
from graphc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, MOST_BYTES, NARROW, U8
from graphc.records import dataclass
from graphc.shapes import Dim, Expr, product

TYPE_SIZES: dict[str, int] = {name: type.size for name, type in TYPES.items()}
"""Bytes of an element of each of ggml's types, or of a block of those that only weights have."""

STORAGE: dict[np.dtype, str] = {
    F32: "F32", F16: "F16", BF16: "BF16", F64: "F64",
    I8: "I8", U8: "I8", BOOL: "I8", I16: "I16", I32: "I32", I64: "I64",
    **dict.fromkeys(NARROW, "I8"),
    np.dtype(np.uint16): "I16", np.dtype(np.uint32): "I32", np.dtype(np.uint64): "I64",
}  # fmt: skip
"""The ggml type whose elements hold the bytes of a dtype. Only kernels compute on one that is not the dtype's own."""


LARGEST = 2**62
"""What no number of a program exceeds, so that 64-bit arithmetic on one of them never overflows."""

MOST_CALLS = 2**18
"""Of how many calls a program consists at most: all their results together have fewer than 2^63 bytes."""


class ProgramError(GraphcError):
    """A call that ggml would not accept."""


Quad: TypeAlias = tuple[Dim, Dim, Dim, Dim]


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A ggml tensor: `ne` sizes and `nb` byte strides in ggml's order, `rank` of them meaningful.

    `weight` is the index in `Program.weights` if it is one, `input` the index in `Program.inputs`, else `call` is the
    index in `Program.calls` of the call that makes it.
    """

    type: str
    ne: Quad
    nb: Quad
    rank: int
    call: int = -1
    weight: int = -1
    input: int = -1

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Sizes in the model's order of axes."""
        return tuple(reversed(self.ne[: self.rank]))

    @property
    def contiguous(self) -> bool:
        """True if the strides are proven to be those of a dense tensor, also along axes of size 1: some of ggml's
        functions step over rows by `nb[1]` even where there is one row in each plane."""
        return self.nb == dense_strides(self.type, self.ne)

    @property
    def in_order(self) -> bool:
        """True if the elements are proven to lie in order without gaps; a reshape then makes it contiguous."""
        dense = dense_strides(self.type, self.ne)
        return all(size == 1 or step == own for size, step, own in zip(self.ne, self.nb, dense, strict=True))

    @property
    def contiguous_rows(self) -> bool:
        """True if the elements of the innermost axis are adjacent."""
        return self.nb[0] == TYPE_SIZES[self.type] or self.ne[0] == 1

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.ne)

    @property
    def nbytes(self) -> Dim:
        """Bytes that the elements take."""
        return _blocks(self.type, self.size) * TYPE_SIZES[self.type]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of ggml's C interface, by its name (`GGML_TYPE_F32`)."""

    name: str


@dataclass(frozen=True, slots=True)
class Activation:
    """What becomes of each element of a result on its way out: a function of our own code by its name there, and the numbers that
    it takes. `kernel` is the program's kernel that says the same, if no composite does (else -1)."""

    name: str
    numbers: tuple[float, ...] = ()
    kernel: int = field(default=-1, compare=False)


Arg: TypeAlias = Union[Tensor, int, Expr, float, Constant, Activation, None]


def checked(tensor: Tensor) -> Tensor:
    """The tensor. Raises ProgramError for one whose rank is not its rank, or whose known sizes cannot be: ggml counts bytes in 64
    bits without looking whether they suffice."""
    if not 0 <= tensor.rank <= 4 or any(size != 1 for size in tensor.ne[tensor.rank :]):
        raise ProgramError(f"a tensor of sizes {list(tensor.ne)} does not have rank {tensor.rank}")
    sizes = [size for size in tensor.ne if isinstance(size, int)]
    steps = [step for step in tensor.nb if isinstance(step, int)]
    if min([*sizes, *steps, 0]) < 0:
        raise ProgramError(f"a tensor of sizes {list(tensor.ne)} cannot be")
    if max([*sizes, *steps, product(sizes) * TYPE_SIZES[tensor.type]]) > MOST_BYTES:
        raise ProgramError(f"a tensor of sizes {list(tensor.ne)} is larger than {MOST_BYTES >> 40} TiB")
    if tensor.call >= MOST_CALLS:
        raise ProgramError(f"a program of more than {MOST_CALLS} calls")
    return tensor


def dense(type: str, ne: Quad, rank: int, *, call: int = -1, weight: int = -1, input: int = -1) -> Tensor:
    """A tensor whose elements lie in order without gaps."""
    return Tensor(type, ne, dense_strides(type, ne), rank, call, weight, input)


def dense_strides(type: str, ne: Quad) -> Quad:
    """Byte strides of a contiguous tensor."""
    strides: list[Dim] = [TYPE_SIZES[type], _blocks(type, ne[0]) * TYPE_SIZES[type]]
    for size in ne[1:3]:
        strides.append(strides[-1] * size)
    return strides[0], strides[1], strides[2], strides[3]


def storage_ne(shape: tuple[Dim, ...]) -> Quad:
    """ggml sizes that hold a tensor of this shape: reversed; the leading axes of more than four are merged."""
    if len(shape) > 4:
        shape = (product(shape[: len(shape) - 3]), *shape[len(shape) - 3 :])
    ne = (*reversed(shape), 1, 1, 1, 1)
    return ne[0], ne[1], ne[2], ne[3]


def _blocks(type: str, count: Dim) -> Dim:
    """How many blocks so many elements are."""
    elements = TYPES[type].elements
    return count if elements == 1 else count // elements
