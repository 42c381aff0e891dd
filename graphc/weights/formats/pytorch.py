"""Reading what `torch.save` writes, without running anything that is in it.

The file is a zip archive of one pickle and the storages' bytes. A pickle is a program for a stack machine that may call any
function. The machine here knows data alone: names stay names, and of calls only those by which PyTorch writes a tensor mean
something, which is read as a view of the mapped storage.
"""

from __future__ import annotations

import pickletools
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from graphc.errors import CheckpointError
from graphc.ir.foreign import elements
from graphc.ir.types import BF16
from graphc.weights.formats.tensors import MOST_REPEATED, Tensors, check_shape, mapped

STORAGES = {
    "FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16,
    "BFloat16Storage": BF16, "LongStorage": np.int64, "IntStorage": np.int32, "ShortStorage": np.int16,
    "CharStorage": np.int8, "ByteStorage": np.uint8, "BoolStorage": np.bool_,
}  # fmt: skip

NOTED = {
    ("_codecs", "encode"), ("numpy", "dtype"), ("numpy.core.multiarray", "scalar"), ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("torch", "device"),
    ("__builtin__", "set"), ("builtins", "set"),
}  # fmt: skip
"""Calls by which training programs note other things beside the weights. Nothing is made of them."""

WITHIN = ("state_dict", "string_to_param", "params_ema", "params")
"""Where the tensors are in files that hold other things too: of training, of textual inversion, and of BasicSR's networks, of
which means over the training count before the last step's."""

READ_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error, zipfile.BadZipFile)


@dataclass(frozen=True)
class Name:
    """A function or class that the pickle names; it is never looked up."""

    module: str
    name: str


def read_pytorch(path: Path) -> Tensors:
    """The tensors by name, as views of the mapped file: of `WITHIN` where it holds one of these among other things. Where it
    holds dictionaries of tensors alone, their names are before those of the tensors, with a point between.

    Raises CheckpointError if the file is damaged, calls what is not a part of a tensor, or holds no tensors by name.
    """
    raw = mapped(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = _Unpickler(_Archive(raw, archive)).run()
    except (*READ_ERRORS, OSError, RuntimeError, NotImplementedError, MemoryError) as error:
        raise CheckpointError(f"it is damaged: it cannot be read ({error})") from error
    for within in WITHIN:
        if isinstance(found, dict) and isinstance(found.get(within), dict):
            found = found[within]
    tensors = _tensors(found)
    if not tensors and isinstance(found, dict):
        tensors = {f"{outer}.{name}": each for outer, inner in found.items() for name, each in _tensors(inner).items()}
    if not tensors:
        raise CheckpointError("it holds no tensors by name")
    return tensors


def _tensors(found: Any) -> Tensors:
    """What is a tensor by name, of what a pickle holds."""
    entries = found.items() if isinstance(found, dict) else ()
    return {name: each for name, each in entries if isinstance(name, str) and isinstance(each, np.ndarray)}


class _Archive:
    """The entries of the archive, where they lie in the mapped file."""

    def __init__(self, raw: np.ndarray, archive: zipfile.ZipFile) -> None:
        self.raw = raw
        self.entries = {entry.filename: entry for entry in archive.infolist()}
        pickles = [name for name in self.entries if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1 or len(self.entries) != len(archive.infolist()):
            raise CheckpointError("it is a zip archive, but not one of PyTorch's")
        self.folder = pickles[0].removesuffix("data.pkl")
        order = f"{self.folder}byteorder"
        if order in self.entries and self.bytes("byteorder").tobytes() != b"little":
            raise CheckpointError("its numbers are big-endian")

    def bytes(self, name: str) -> np.ndarray:
        """An entry's bytes. Raises CheckpointError if it is compressed, or not in the file."""
        entry = self.entries[self.folder + name]
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise CheckpointError("it is damaged: an entry of it is compressed or encrypted")
        head = self.raw[entry.header_offset : entry.header_offset + 30].tobytes()
        signature, name_size, extra_size = struct.unpack("<4s22xHH", head)
        start = entry.header_offset + 30 + name_size + extra_size
        if signature != b"PK\x03\x04" or start + entry.file_size > self.raw.size:
            raise CheckpointError("it is damaged or cut off: an entry goes past the end of the file")
        return self.raw[start : start + entry.file_size]


class _Unpickler:
    """The stack machine. Keys of dictionaries are text and numbers; others are left out with what they stand for.

    `below` has the stacks below the marks. `allowed` is how many parameters objects may still take over: a pickle that has them
    is longer.
    """

    def __init__(self, archive: _Archive) -> None:
        self.archive = archive
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.allowed = 0
        self.memo: dict[int, Any] = {}
        self.calls: dict[tuple[str, str], Callable[..., Any]] = {
            ("collections", "OrderedDict"): lambda *args: {},
            ("torch.nn.modules.container", "ParameterDict"): lambda *args: {},
            ("torch._utils", "_rebuild_tensor_v2"): self.tensor,
            ("torch._utils", "_rebuild_parameter"): lambda data, *rest: data,
        }

    def run(self) -> Any:
        """What the pickle describes. Raises CheckpointError, or one of READ_ERRORS if it is damaged."""
        pickle = self.archive.bytes("data.pkl").tobytes()
        self.allowed = len(pickle)
        for opcode, argument, _ in pickletools.genops(pickle):
            if opcode.name == "STOP":
                break
            step = STEPS.get(opcode.name)
            if step is None:
                raise CheckpointError(f"its pickle does what no checkpoint needs ({opcode.name})")
            step(self, argument)
        return self.stack.pop()

    def group(self) -> list[Any]:
        """The items since the last mark."""
        items, self.stack = self.stack, self.below.pop()
        return items

    def mark(self) -> None:
        """What comes next is a group."""
        self.below.append(self.stack)
        self.stack = []

    def push(self, item: Any) -> None:
        """Put an item onto the stack."""
        self.stack.append(item)

    def take(self, count: int) -> list[Any]:
        """The last items."""
        if len(self.stack) < count:
            raise ValueError("the pickle takes what is not there")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def store(self, items: Sequence[Any]) -> None:
        """Put pairs into the dictionary on the stack."""
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if isinstance(target, dict) and isinstance(key, str | int | float):
                target[key] = value

    def append(self, items: Sequence[Any]) -> None:
        """Put items into the list on the stack."""
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def state(self, state: Any) -> None:
        """Give the object on the stack its state: of one that holds parameters, those are put into the dictionary it is here."""
        target, held = self.stack[-1], state.get("_parameters") if isinstance(state, dict) else None
        if isinstance(target, dict) and isinstance(held, dict):
            self.allowed -= len(held)
            if self.allowed < 0:
                raise CheckpointError("it is damaged: its pickle repeats itself")
            target.update(held)

    def global_name(self, argument: str) -> None:
        """GLOBAL has both parts in its argument."""
        module, _, name = argument.partition(" ")
        self.stack.append(Name(module, name))

    def stack_global(self) -> None:
        """STACK_GLOBAL has them on the stack."""
        module, name = self.take(2)
        self.stack.append(Name(str(module) if isinstance(module, str) else "", name if isinstance(name, str) else ""))

    def call(self) -> None:
        """What a call gives. Raises CheckpointError for any but those of tensors, and those that are passed over."""
        function, args = self.take(2)
        key = (function.module, function.name) if isinstance(function, Name) else ("", "a computed function")
        if key not in self.calls and key not in NOTED:
            raise CheckpointError(f"it would call {'.'.join(filter(None, key))}, which is no part of a tensor")
        self.stack.append(self.calls[key](*args) if key in self.calls else None)

    def storage(self) -> None:
        """A storage's elements: the persistent identity is ("storage", its type, its entry, its device, its size)."""
        kind, type, entry, _, count = self.take(1)[0]
        if kind != "storage" or not isinstance(type, Name) or type.module != "torch" or type.name not in STORAGES:
            raise CheckpointError("it refers to something that is not a storage of numbers")
        found = elements(self.archive.bytes(f"data/{entry}"), STORAGES[type.name])
        if found.size != count:
            raise CheckpointError(f"it is damaged: a storage of {count} elements holds {found.size}")
        self.stack.append(found)

    def tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> np.ndarray:
        """A view of a storage. Raises CheckpointError if it goes past its end."""
        check_shape(shape)
        numbers = (offset, *strides)
        if not isinstance(storage, np.ndarray) or not all(type(each) is int and each >= 0 for each in numbers):
            raise CheckpointError("it is damaged: a tensor of no storage, or with strides that are not numbers")
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if 0 not in shape and last >= storage.size:
            raise CheckpointError("it is damaged: a tensor goes past the end of its storage")
        if 0 in shape:
            return np.empty(shape, storage.dtype)
        if prod(shape) > max(storage.size, MOST_REPEATED):
            raise CheckpointError(f"a tensor of {list(shape)} repeats {storage.size} elements")
        steps = [stride * storage.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)


def _push(value: Callable[[Any], Any]) -> Callable[[_Unpickler, Any], None]:
    return lambda machine, argument: machine.stack.append(value(argument))


def _remember(machine: _Unpickler, place: Any) -> None:
    machine.memo[len(machine.memo) if place is None else place] = machine.stack[-1]


_SAME, _REMEMBER, _NOTHING = _push(lambda argument: argument), _remember, lambda machine, argument: None

STEPS: dict[str, Callable[[_Unpickler, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME"), _NOTHING),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT"), _SAME),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"), _SAME),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING", "STRING"), _SAME),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"), _REMEMBER),
    **dict.fromkeys(
        ("BINGET", "LONG_BINGET", "GET"), lambda machine, place: machine.stack.append(machine.memo[int(place)])
    ),
    "NONE": _push(lambda _: None),
    "NEWTRUE": _push(lambda _: True),
    "NEWFALSE": _push(lambda _: False),
    "EMPTY_DICT": _push(lambda _: {}),
    "EMPTY_LIST": _push(lambda _: []),
    "EMPTY_TUPLE": _push(lambda _: ()),
    "EMPTY_SET": _push(lambda _: None),
    "MARK": lambda machine, _: machine.mark(),
    "POP": lambda machine, _: machine.take(1),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.group())),
    "TUPLE1": lambda machine, _: machine.stack.append(tuple(machine.take(1))),
    "TUPLE2": lambda machine, _: machine.stack.append(tuple(machine.take(2))),
    "TUPLE3": lambda machine, _: machine.stack.append(tuple(machine.take(3))),
    "LIST": lambda machine, _: machine.push(machine.group()),
    "SETITEM": lambda machine, _: machine.store(machine.take(2)),
    "SETITEMS": lambda machine, _: machine.store(machine.group()),
    "APPEND": lambda machine, _: machine.append(machine.take(1)),
    "APPENDS": lambda machine, _: machine.append(machine.group()),
    "ADDITEMS": lambda machine, _: machine.group(),
    "GLOBAL": lambda machine, argument: machine.global_name(argument),
    "STACK_GLOBAL": lambda machine, _: machine.stack_global(),
    "REDUCE": lambda machine, _: machine.call(),
    "NEWOBJ": lambda machine, _: machine.call(),
    "BINPERSID": lambda machine, _: machine.storage(),
    "BUILD": lambda machine, _: machine.state(*machine.take(1)),
}
"""What each opcode does."""
