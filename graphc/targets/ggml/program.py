"""The lowered program: ggml calls with symbolic sizes, and the weights, inputs and outputs that they read and write.

One lowering, three consumers: the executor replays the calls through ctypes, the C++ renderer prints them, and the
engine file stores them. Sizes here are in ggml's order (`ne[0]` is the innermost axis); `builder.py` is where the
model's order of axes is translated.

Every call is checked against `calls.CALLS`, by the lowering and again when an engine file is read, so neither a mistake
nor a damaged file reaches one of ggml's own asserts, which would end the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, Union

import numpy as np

from graphc.errors import GraphcError
from graphc.ggml_types import HALVES, QUANTIZED, TYPES, fits, narrowed, nbytes, stored_shape, widened
from graphc.ir.about import About
from graphc.ir.graph import Value, names_in
from graphc.ir.numbers import sources
from graphc.ir.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, MOST_BYTES, NARROW, U8, TensorType
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

HOST, RESULT = "graphc_host", "graphc_result"
"""What stands for a function in a call that the host makes itself, and in one that names a result of it."""

TENSORS_MADE = {"ggml_conv_2d": 7, "ggml_conv_2d_direct": 7}
"""Tensors that a call makes, or what is made in its place, where it is more than one."""


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


Arg: TypeAlias = Union[Tensor, int, Expr, float, Constant, None]


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call of a ggml function (its context argument left out) and the tensor that it returns.

    A call of `ggml_custom_4d` runs `kernel`: then `args` are the tensors that it reads. One of `HOST` does what `host`
    says; each of its results is a call of `RESULT`, whose arguments are the host's call and the result's number.
    """

    function: str
    args: tuple[Arg, ...]
    result: Tensor
    scope: tuple[str, ...] = ()
    source: str = ""
    kernel: int = -1
    host: Host | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Host:
    """What the host does between two graphs of a backend, as the operator of this name in `ops/control.py`.

    `inputs` are the types of the call's arguments and `results` those of its results, in the model's terms. `blocks` are
    programs that share weights and kernels with the one that they are in.
    """

    operator: str
    inputs: tuple[TensorType, ...]
    results: tuple[TensorType, ...] = ()
    blocks: tuple[Program, ...] = ()
    carried: int = 0
    size: Dim = 0
    what: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Weight:
    """A stored tensor. `name` is the parameter's in PyTorch where known; `value` (compile time only) is what to store:
    a constant, or a value computed from constants, evaluated when the engine is written.

    `dtype` and `shape` are the model's. The tensor's type is the dtype's or, of a float32 one, narrower. The array that is stored
    has bytes if that is a quantized one, those of a row along its last axis.
    """

    name: str
    tensor: Tensor
    dtype: np.dtype
    shape: tuple[int, ...]
    value: Value | None = None

    @property
    def stored(self) -> TensorType:
        """Type and shape of the array that is stored."""
        dtype = HALVES.get(self.tensor.type, U8) if self.narrow else self.dtype
        return TensorType(dtype, stored_shape(self.tensor.type, self.shape))

    def array(self, raw: np.ndarray) -> np.ndarray:
        """What is stored, of its bytes."""
        found: np.ndarray = raw.view(self.stored.dtype).reshape(stored_shape(self.tensor.type, self.shape))
        return found

    def numbers(self, array: np.ndarray) -> np.ndarray:
        """The elements, in its dtype, of what is stored."""
        return widened(self.tensor.type, array, self.shape) if self.narrow else array

    def converted(self, array: np.ndarray) -> np.ndarray:
        """What is stored for elements of its dtype and shape. Raises GraphcError for what its type has nothing like."""
        try:
            return narrowed(self.tensor.type, array) if self.narrow else array
        except GraphcError as error:
            raise GraphcError(f"weight {self.label}: {error}; keep it in a wider type with --dtype") from error

    @property
    def label(self) -> str:
        """Its parameter's name if it is known to be made of one, else its own."""
        names = [] if self.value is None else [each.parameter for each in sources(self.value) if each.parameter]
        return names[0] if len(names) == 1 else self.name

    @property
    def narrow(self) -> bool:
        """Whether it is held in a narrower type than its dtype."""
        return self.tensor.type != STORAGE[self.dtype]

    @property
    def type_name(self) -> str:
        """What a person reads: the dtype's name, or ggml's of a narrower type."""
        return self.tensor.type.lower() if self.narrow else self.dtype.name

    @property
    def nbytes(self) -> int:
        """Bytes that are stored."""
        return nbytes(self.tensor.type, self.shape)


@dataclass(frozen=True, eq=False, slots=True)
class Input:
    """An input in the model's terms, and the tensor that holds it.

    `low` and `high` (exclusive) bound its values where the program relies on it: row numbers of a table. The runtime
    checks them. `dtype` is the model's; the tensor may hold it in a narrower type (int64 indices as I32).
    """

    name: str
    dtype: np.dtype
    shape: tuple[Dim, ...]
    tensor: Tensor
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Output:
    """An output in the model's terms, and the tensor that holds its elements contiguously."""

    name: str
    dtype: np.dtype
    shape: tuple[Dim, ...]
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A generated kernel: the operator, as its one element function says, and the types it is applied to."""

    op: object
    inputs: tuple[tuple[np.dtype, tuple[Dim, ...]], ...]
    dtype: np.dtype
    shape: tuple[Dim, ...]

    def sizes(self) -> set[str]:
        """The names of the size symbols in the operator's settings and in the types."""
        return names_in((tuple(self.op.settings), self.shape, *(shape for _, shape in self.inputs)))  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on sizes that must hold when the model is run: `left` equals `right`, else `message`."""

    left: Dim
    right: Dim
    message: str


@dataclass(frozen=True, slots=True)
class Growth:
    """That a program is the one with the checksum `program`, but a weight has so many more `rows`, which an input numbers."""

    program: str
    weight: int
    input: int
    rows: int


@dataclass(eq=False)
class Program:
    """Everything that a target needs to run a model; `recipes` says how its weights are made (`graphc/weights/recipes.py`),
    `growth` of which program code may be that runs it too, and `example` values of size symbols that the model was exported with,
    where they are known, `about` what the model's file says of itself."""

    name: str
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[KernelUse] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    recipes: str = ""
    growth: Growth | None = None
    example: dict[str, int] = field(default_factory=dict)
    about: About = field(default_factory=About)

    @property
    def tensor_count(self) -> int:
        """Tensors of ggml's that a graph of the program, or of one of its blocks, has at most, weights and inputs included."""
        made = sum(TENSORS_MADE.get(call.function, 1) for call in self.calls)
        own = made + len(self.inputs) + len(self.weights)
        return max(own, *(block.tensor_count for block in self.blocks), 0)

    @property
    def blocks(self) -> list[Program]:
        """The programs inside this one, without those inside them."""
        return [block for call in self.calls if call.host is not None for block in call.host.blocks]

    def block(self, name: str) -> Program:
        """An empty program that shares weights and kernels with this one."""
        return Program(name, weights=self.weights, kernels=self.kernels)

    def add_input(self, name: str, dtype: np.dtype, shape: tuple[Dim, ...], type: str, **bounds: int | None) -> Tensor:
        """Declare an input whose tensor has ggml's `type`. Raises ProgramError or ShapeError for sizes that cannot be."""
        TensorType(dtype, shape).check_size()
        tensor = checked(dense(type, storage_ne(shape), min(len(shape), 4), input=len(self.inputs)))
        self.inputs.append(Input(name, dtype, shape, tensor, **bounds))
        return tensor

    def add_weight(
        self, name: str, dtype: np.dtype, shape: tuple[int, ...], value: Value | None = None, type: str = ""
    ) -> Tensor:
        """Declare a stored tensor; a float32 one may have a narrower type. Raises ProgramError or ShapeError if it cannot be."""
        TensorType(dtype, shape).check_size()
        type = type or STORAGE[dtype]
        narrow = dtype == F32 and (type in HALVES or (type in QUANTIZED and bool(shape) and fits(type, shape[-1])))
        if type != STORAGE[dtype] and not narrow:
            raise ProgramError(f"weight {name}, {TensorType(dtype, shape)}, cannot be of the type {type}")
        tensor = checked(dense(type, storage_ne(shape), min(len(shape), 4), weight=len(self.weights)))
        self.weights.append(Weight(name, tensor, dtype, shape, value))
        return tensor

    def call(
        self, function: str, args: Sequence[Arg], rank: int, scope: tuple[str, ...] = (), source: str = ""
    ) -> Tensor:
        """Append a call, checked against what ggml accepts. Raises ProgramError."""
        from graphc.targets.ggml.calls import CALLS

        rule = CALLS.get(function)
        if rule is None:
            raise ProgramError(f"{function} is not a call that a program may make")
        layout = rule(*args)
        tensor = checked(Tensor(layout.type, layout.ne, layout.nb, rank, call=len(self.calls)))
        self.calls.append(Call(function, tuple(args), tensor, scope, source))
        return tensor

    def call_kernel(
        self, use: KernelUse, args: Sequence[Tensor], scope: tuple[str, ...] = (), source: str = ""
    ) -> Tensor:
        """Append a call of a generated kernel; every tensor that it reads must be contiguous. Raises ProgramError."""
        if len(args) > 9:
            raise ProgramError(f"a kernel reads at most 9 tensors, not {len(args)}")
        for tensor, (dtype, shape) in zip(args, use.inputs, strict=True):
            if not tensor.contiguous or tensor.type != STORAGE[dtype] or tensor.size != product(shape):
                raise ProgramError(f"kernel of {use.op}: an argument is not laid out as {dtype}{list(shape)}")
        if use not in self.kernels:
            self.kernels.append(use)
        tensor = checked(dense(STORAGE[use.dtype], storage_ne(use.shape), min(len(use.shape), 4), call=len(self.calls)))
        kernel = self.kernels.index(use)
        self.calls.append(Call("ggml_custom_4d", tuple(args), tensor, scope, source, kernel))
        return tensor

    def call_host(
        self, host: Host, args: Sequence[Tensor], scope: tuple[str, ...] = (), source: str = ""
    ) -> list[Tensor]:
        """Append what the host does with tensors that are inputs or contiguous results of calls. Raises ProgramError."""
        for tensor, type in zip(args, host.inputs, strict=True):
            placed = tensor.input >= 0 or (tensor.call >= 0 and not self.is_view(tensor))
            if not placed or not tensor.contiguous or tensor.type != STORAGE[type.dtype] or tensor.size != type.size:
                raise ProgramError(f"{host.operator}: an argument is not laid out as {type}")
        token = dense("I8", (1, 1, 1, 1), 1, call=len(self.calls))
        self.calls.append(Call(HOST, tuple(args), token, scope, source, host=host))
        results = []
        for index, type in enumerate(host.results):
            place = len(self.calls)
            tensor = checked(dense(STORAGE[type.dtype], storage_ne(type.shape), min(type.rank, 4), call=place))
            self.calls.append(Call(RESULT, (token, index), tensor, scope, source))
            results.append(tensor)
        return results

    def is_view(self, tensor: Tensor) -> bool:
        """Whether a tensor reads the memory of another."""
        from graphc.targets.ggml.calls import VIEWS

        return tensor.call >= 0 and self.calls[tensor.call].function in VIEWS


def checked(tensor: Tensor) -> Tensor:
    """The tensor. Raises ProgramError for one whose rank is not its rank, or whose known sizes cannot be: ggml counts bytes in 64
    bits without looking whether they suffice."""
    if not 0 <= tensor.rank <= 4 or any(size != 1 for size in tensor.ne[tensor.rank :]):
        raise ProgramError(f"a tensor of sizes {list(tensor.ne)} has not rank {tensor.rank}")
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
