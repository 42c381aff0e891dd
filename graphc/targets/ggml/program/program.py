"""The lowered program: ggml calls with symbolic sizes, and the weights, inputs and outputs that they read and write.

One lowering, three consumers: the executor replays the calls through ctypes, the C++ renderer prints them, and the
engine file stores them. Sizes here are in ggml's order (`ne[0]` is the innermost axis); `builder.py` is where the
model's order of axes is translated.

Every call is checked against `calls.CALLS`, by the lowering and again when an engine file is read, so neither a mistake
nor a damaged file reaches one of ggml's own asserts, which would end the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from graphc.errors import GraphcError
from graphc.ggml_types import HALVES, QUANTIZED, WHOLE, fits, narrowed, nbytes, stored_shape, whole_in_blocks, widened
from graphc.ir.about import About
from graphc.ir.types import F32, I8, U8, TensorType
from graphc.kernels.use import KernelUse
from graphc.records import dataclass
from graphc.shapes import Dim, product
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.device_code import DeviceCode
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.tensor import (
    STORAGE,
    Activation,
    Arg,
    ProgramError,
    Tensor,
    checked,
    dense,
    storage_ne,
)

if TYPE_CHECKING:  # what runs was lowered before, and mostly on the CPU
    from graphc.ir.graph import Value
    from graphc.targets.ggml.program.launch import Launches

HOST, RESULT = "graphc_host", "graphc_result"
"""What stands for a function in a call that the host makes itself, and in one that names a result of it."""

TENSORS_MADE = {"ggml_conv_2d": 7}
"""Tensors that a function makes, where it is more than one."""


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call of a ggml function (its context argument left out) and the tensor that it returns.

    A call of `ggml_custom_4d` runs `kernel`: then `args` are the tensors that it reads. One of `HOST` does what `host`
    says; each of its results is a call of `RESULT`, whose arguments are the host's call and the result's number. One of `LAUNCH`
    does what `launches` say, on a device of generated kernels.
    """

    function: str
    args: tuple[Arg, ...]
    result: Tensor
    scope: tuple[str, ...] = ()
    source: str = ""
    kernel: int = -1
    host: Host | None = None
    launches: Launches | None = None

    @property
    def kernels(self) -> list[int]:
        """The kernels that it runs, or may run."""
        told = [self.kernel, *(arg.kernel for arg in self.args if isinstance(arg, Activation))]
        return [each for each in told if each >= 0]


def tensors_made(call: Call) -> int:
    """Tensors that are made for a call at most."""
    if call.function in COMPOSITES:
        return COMPOSITES[call.function].made + len(call.args)
    return TENSORS_MADE.get(call.function, 1)


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


@dataclass(frozen=True, slots=True)
class Packing:
    """The order of a weight's axes in a tensor, and the type of its elements there. Of a kernel `of_doubled` images, the tensor
    has what is left for images that are not doubled yet (`undoubled`), each in this order."""

    order: tuple[int, ...]
    dtype: np.dtype
    of_doubled: bool = False

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """The elements as the tensor holds them."""
        if self.of_doubled:
            return np.stack([np.asarray(each.transpose(self.order), self.dtype) for each in undoubled(array)])
        return np.ascontiguousarray(array.transpose(self.order), self.dtype)


def undoubled(kernel: np.ndarray) -> list[np.ndarray]:
    """Of a kernel [..., 3, 3] that meets an image each of whose pixels is there twice along each line, and each line twice, the
    four of 2 x 2 that meet the pixels themselves: for even lines and columns of the result, even lines and odd columns, and so
    on."""
    rows = kernel.astype(np.float32)
    found = []
    for even in (True, False):
        upper, middle, lower = rows[..., 0, :], rows[..., 1, :], rows[..., 2, :]
        lines = np.stack([upper, middle + lower] if even else [upper + middle, lower], -2)
        left, center, right = lines[..., 0], lines[..., 1], lines[..., 2]
        found += [np.stack([left, center + right], -1), np.stack([left + center, right], -1)]
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Weight:
    """A stored tensor. `name` is the parameter's in PyTorch where known; `value` (compile time only) is what to store:
    a constant, or a value computed from constants, evaluated when the engine is written.

    `dtype` and `shape` are the model's. The tensor's type is the dtype's or, of a float32 one, narrower; int8 numbers may lie in
    blocks, each as it is. The array that is stored has bytes if the type is a quantized one, those of a row along its last axis.
    The tensor of one with a `packing` holds what generated kernels read.
    """

    name: str
    tensor: Tensor
    dtype: np.dtype
    shape: tuple[int, ...]
    value: Value | None = None
    packing: Packing | None = None

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
        return widened(self.tensor.type, array, self.shape).astype(self.dtype, copy=False) if self.narrow else array

    def converted(self, array: np.ndarray) -> np.ndarray:
        """What is stored for elements of its dtype and shape. Raises GraphcError for what its type has nothing like."""
        if not self.narrow:
            return array
        if self.dtype == I8:
            return whole_in_blocks(self.tensor.type, array)
        try:
            return narrowed(self.tensor.type, array)
        except GraphcError as error:
            raise GraphcError(f"weight {self.label}: {error}; keep it in a wider type with --dtype") from error

    @property
    def label(self) -> str:
        """Its parameter's name if it is known to be made of one, else its own."""
        if self.value is None:
            return self.name
        from graphc.ir.numbers import sources

        names = [each.parameter for each in sources(self.value) if each.parameter]
        return names[0] if len(names) == 1 else self.name

    @property
    def narrow(self) -> bool:
        """True if it is held in another type than its dtype's: a narrower one, or blocks."""
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
    where they are known, `about` what the model's file says of itself, `device_code` kernels for GPUs: in a program that was read
    from an engine, a stranger's."""

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
    device_code: DeviceCode | None = None

    @property
    def tensor_count(self) -> int:
        """Tensors of ggml's that a graph of the program, or of one of its blocks, has at most, weights and inputs included."""
        made = sum(map(tensors_made, self.calls))
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
        """Declare a stored tensor; a float32 one may have a narrower type, int8 numbers blocks. Raises ProgramError or ShapeError
        if it cannot be."""
        TensorType(dtype, shape).check_size()
        type = type or STORAGE[dtype]
        blocks = type in QUANTIZED and bool(shape) and fits(type, shape[-1])
        narrow = (dtype == F32 and (type in HALVES or blocks)) or (dtype == I8 and type in WHOLE and blocks)
        if type != STORAGE[dtype] and not narrow:
            raise ProgramError(f"weight {name}, {TensorType(dtype, shape)}, cannot be of the type {type}")
        tensor = checked(dense(type, storage_ne(shape), min(len(shape), 4), weight=len(self.weights)))
        self.weights.append(Weight(name, tensor, dtype, shape, value))
        return tensor

    def call(
        self, function: str, args: Sequence[Arg], rank: int, scope: tuple[str, ...] = (), source: str = ""
    ) -> Tensor:
        """Append a call, checked against what ggml accepts. Raises ProgramError."""
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
        """True if a tensor reads the memory of another."""
        return tensor.call >= 0 and self.calls[tensor.call].function in VIEWS


def with_blocks(program: Program) -> Iterator[Program]:
    """The program, and the programs inside it."""
    yield program
    for block in program.blocks:
        yield from with_blocks(block)
