"""A program as text: the JSON document that an engine file carries, and back.

Sizes are written as `str(dim)`; the symbols in them are declared once. A tensor is referred to by what makes it. Reading
trusts nothing: the calls are made again through `Program.call`, which checks each of them.
"""

from __future__ import annotations

import hashlib
import json
import keyword
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from graphc.errors import EngineError, GraphcError
from graphc.ir.foreign import Absent
from graphc.ir.types import TensorType
from graphc.kernels.use import KernelUse
from graphc.ops.base import Op, operator_class
from graphc.shapes import Dim, Expr, Undecidable, bind, parse_dim, symbol, symbols
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Check, Host, Input, Output, Program
from graphc.targets.ggml.program.tensor import LARGEST, STORAGE, Constant, ProgramError, Tensor, checked
from graphc.targets.ggml.program.verify import (
    check_attributes,
    check_host,
    check_input,
    check_kernel,
    check_names,
    check_output,
    check_signature,
)

DTYPES = {dtype.name: dtype for dtype in STORAGE}
LONGEST_SIZE = 10_000
"""Characters of the longest size expression that is read."""


def write_text(program: Program) -> str:
    """The program as canonical JSON: the same program gives the same text."""
    return json.dumps(_Writer(program).document(), separators=(",", ":"), allow_nan=False)


def read_text(text: str) -> Program:
    """The program that a text describes; its weights have no values. Raises EngineError for anything but a valid one."""
    try:
        return _Reader(json.loads(text, parse_constant=_refuse_number)).program()
    except (GraphcError, Undecidable) as error:
        raise EngineError(f"its program is not valid: {error}") from error
    except READ_ERRORS as error:
        raise EngineError(f"its program is damaged ({type(error).__name__}: {error})") from error


def write_operator(op: Op) -> dict[str, Any]:
    """An operator whose attributes are numbers, as JSON. Raises ProgramError for one that has others."""
    return _Writer(Program("")).operator(op)


def read_operator(document: Any) -> Op:
    """The operator that a JSON object describes. Raises one of READ_ERRORS."""
    return _Reader({"name": ""}).operator(document)


READ_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a damaged document runs into."""


class _Writer:
    def __init__(self, program: Program) -> None:
        self.source = program
        self.symbols: dict[str, dict[str, Any]] = {}
        self.texts: dict[Expr, str] = {}

    def document(self) -> dict[str, Any]:
        program = self.source
        return {
            "name": program.name,
            "symbols": [],
            "weights": [
                {"name": each.name, "dtype": each.dtype.name, "shape": list(each.shape)}
                | ({"type": each.tensor.type} if each.narrow else {})
                for each in program.weights
            ],
            "kernels": [self.kernel(each) for each in program.kernels],
            **self.block(program),
        } | {"symbols": list(self.symbols.values())}

    def block(self, program: Program) -> dict[str, Any]:
        """What is a program's own: a block shares the rest with the program that it is in."""
        outer, self.source = self.source, program
        document = {
            "name": program.name,
            "inputs": [self.input(each) for each in program.inputs],
            "calls": [self.call(each) for each in program.calls if each.function != RESULT],
            "outputs": [
                {"name": each.name, "dtype": each.dtype.name, "shape": self.value(each.shape), "tensor": self.value(each.tensor)}
                for each in program.outputs
            ],
            "checks": [
                {"left": self.value(each.left), "right": self.value(each.right), "message": each.message}
                for each in program.checks
            ],
        }  # fmt: skip
        self.source = outer
        return document

    def call(self, call: Call) -> dict[str, Any]:
        written = {
            "function": call.function,
            "args": [self.value(arg) for arg in call.args],
            "rank": call.result.rank,
            "scope": list(call.scope),
            "source": call.source,
        }
        if call.kernel >= 0:
            written["kernel"] = call.kernel
        if call.host is not None:
            written["host"] = self.host(call.host)
        return written

    def host(self, host: Host) -> dict[str, Any]:
        return {
            "operator": host.operator,
            "inputs": [[type.dtype.name, self.value(type.shape)] for type in host.inputs],
            "results": [[type.dtype.name, self.value(type.shape)] for type in host.results],
            "blocks": [self.block(block) for block in host.blocks],
            "carried": host.carried,
            "size": self.value(host.size),
            "what": host.what,
        }

    def input(self, declared: Input) -> dict[str, Any]:
        return {
            "name": declared.name,
            "dtype": declared.dtype.name,
            "shape": self.value(declared.shape),
            "type": declared.tensor.type,
            "low": declared.low,
            "high": declared.high,
        }

    def kernel(self, use: KernelUse) -> dict[str, Any]:
        return {
            **self.operator(use.op),
            "inputs": [[dtype.name, self.value(shape)] for dtype, shape in use.inputs],
            "dtype": use.dtype.name,
            "shape": self.value(use.shape),
        }

    def operator(self, op: object) -> dict[str, Any]:
        assert is_dataclass(op)
        return {
            "operator": type(op).__name__,
            "attributes": {field.name: self.value(getattr(op, field.name)) for field in fields(op)},
        }

    def value(self, value: Any) -> Any:
        """An argument of a call or a field of an operator; strings are sizes, so text is wrapped."""
        match value:
            case None | bool() | np.bool_():
                return value if value is None else bool(value)
            case int() | np.integer():
                return int(value)
            case float() | np.floating():
                return float(value) if math.isfinite(value) else {"number": str(float(value))}
            case Expr():
                return self.size(value)
            case str():
                return {"text": value}
            case np.dtype() | Absent():
                return {"dtype": value.name}
            case Constant(name):
                return {"constant": name}
            case Tensor():
                return self.reference(value)
            case tuple() | list():
                return [self.value(item) for item in value]
        raise ProgramError(f"an engine file cannot hold a {type(value).__name__}")

    def reference(self, tensor: Tensor) -> dict[str, int]:
        program = self.source
        if tensor.call >= 0:
            kind, index, made = "call", tensor.call, program.calls[tensor.call].result
        elif tensor.weight >= 0:
            kind, index, made = "weight", tensor.weight, program.weights[tensor.weight].tensor
        else:
            kind, index, made = "input", tensor.input, program.inputs[tensor.input].tensor
        if (tensor.type, tensor.ne, tensor.nb) != (made.type, made.ne, made.nb):
            raise ProgramError(f"{kind} {index} is not the tensor that the program refers to")
        return {kind: index} if tensor.rank == made.rank else {kind: index, "rank": tensor.rank}

    def size(self, size: Expr) -> str:
        if size not in self.texts:
            binding: dict[str, Dim] = {}
            for name, atom in symbols(size).items():
                declared = {"name": name, "low": atom.low, "high": atom.high, "multiple": atom.multiple}
                known = self.symbols.setdefault(name, {"text": self.spelling(name), **declared})
                if {**known, **declared} != known:
                    raise ProgramError(f"size {name} is declared in two ways")
                binding[name] = symbol(known["text"], atom.low, atom.high, atom.multiple)
            self.texts[size] = str(bind(size, binding))
        return self.texts[size]

    def spelling(self, name: str) -> str:
        """The symbol's own name if it reads as one, else one that does."""
        plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and name not in ("min", "max")
        return name if plain and not name.startswith("_size") else f"_size{len(self.symbols)}"


class _Reader:
    """Makes the program again, from a document whose every part may be wrong."""

    def __init__(self, document: Any) -> None:
        self.document = _object(document)
        self.result = Program(_text(self.document["name"]))
        self.atoms: dict[str, Expr] = {}
        self.names: dict[str, str] = {}
        self.known: set[str] = set()
        self.sizes: dict[str, Dim] = {}

    def program(self) -> Program:
        program = self.result
        for each in self.items("symbols"):
            self.symbol(each)
        for each in self.items("weights"):
            sizes = tuple(_whole(size, 0) for size in _list(each["shape"]))
            name, type = _text(each["name"]), _text(each.get("type", ""))
            program.add_weight(name, DTYPES[each["dtype"]], sizes, type=type)
        self.known = set(self.names.values())  # a kernel's sizes are looked at where it is called
        program.kernels += [self.kernel(each) for each in self.items("kernels")]
        self.known = set()
        self.block(self.document, program)
        return program

    def block(self, document: Mapping[str, Any], program: Program) -> Program:
        """Fill a program, or a block of one, which knows the sizes that are known around it."""
        outer, known = (self.document, self.result), set(self.known)
        self.document, self.result = document, program
        inputs = self.items("inputs")
        self.know(each["shape"] for each in inputs)
        for each in inputs:
            self.input(each)
        check_names(program.inputs)
        for each in self.items("calls"):
            self.call(each)
        for each in self.items("outputs"):
            tensor, shape = self.value(each["tensor"]), self.shape(each["shape"])
            program.outputs.append(check_output(Output(_text(each["name"]), DTYPES[each["dtype"]], shape, tensor)))
        for each in self.items("checks"):
            left, right = self.shape([each["left"], each["right"]])
            program.checks.append(Check(left, right, _text(each["message"])))
        (self.document, self.result), self.known = outer, known
        return program

    def know(self, shapes: Iterable[Any]) -> None:
        """The symbols that stand alone in the shapes of tensors that are there get their values from them."""
        self.known |= {self.names[size] for shape in shapes for size in _list(shape) if size in self.names}

    def items(self, key: str) -> list[Mapping[str, Any]]:
        return [_object(item) for item in _list(self.document[key])]

    def symbol(self, declared: Mapping[str, Any]) -> None:
        low, multiple, high = _whole(declared["low"]), _whole(declared["multiple"], 1), declared["high"]
        if high is not None and _whole(high) < -(-low // multiple) * multiple:
            raise ValueError("a size that nothing fits")
        name, text = _text(declared["name"]), _text(declared["text"])
        if name in self.names.values():
            raise ValueError(f"size {name} is declared twice")
        self.names[text] = name
        self.atoms[text] = symbol(name, low, high, multiple)

    def input(self, declared: Mapping[str, Any]) -> None:
        bounds = {key: None if declared[key] is None else _whole(declared[key]) for key in ("low", "high")}
        shape, type = self.shape(declared["shape"]), _text(declared["type"])
        self.result.add_input(_text(declared["name"]), DTYPES[declared["dtype"]], shape, type, **bounds)
        check_input(self.result.inputs[-1])

    def operator(self, declared: Any) -> Op:
        cls = operator_class(_text(_object(declared)["operator"]))
        given = _object(declared["attributes"])
        if set(given) != {field.name for field in fields(cls)}:  # type: ignore[arg-type]
            raise ValueError(f"the attributes of a {cls.__name__} are others")
        op = cls(**{name: self.value(value) for name, value in given.items()})
        check_attributes(op)
        return op

    def kernel(self, declared: Mapping[str, Any]) -> KernelUse:
        op = self.operator(declared)
        inputs = tuple((DTYPES[dtype], self.shape(shape)) for dtype, shape in _list(declared["inputs"]))
        return check_kernel(KernelUse(op, inputs, DTYPES[declared["dtype"]], self.shape(declared["shape"])))

    def call(self, declared: Mapping[str, Any]) -> None:
        function, rank = _text(declared["function"]), _whole(declared["rank"], 0)
        args = [self.value(arg) for arg in _list(declared["args"])]
        scope = tuple(_text(part) for part in _list(declared["scope"]))
        label = (scope, _text(declared["source"]))
        if function == HOST:
            self.host(_object(declared["host"]), args, label)
            return
        if "kernel" in declared:
            use = self.result.kernels[_whole(declared["kernel"], 0)]
            self.check_known(use.sizes())
            if function != "ggml_custom_4d" or not all(isinstance(arg, Tensor) for arg in args):
                raise ValueError("a kernel that is called as something else")
            tensor = self.result.call_kernel(use, args, *label)
        else:
            check_signature(function, args)
            tensor = self.result.call(function, args, rank, *label)
        if tensor.rank != rank:
            raise ValueError(f"a tensor of rank {rank} that has rank {tensor.rank}")

    def host(self, declared: Mapping[str, Any], args: Sequence[Any], label: tuple[tuple[str, ...], str]) -> None:
        """What the host does; the sizes of its results, or the one that it measures, are known after it."""
        if not all(isinstance(arg, Tensor) for arg in args):
            raise ValueError("an argument that is not a tensor")
        inputs = self.types(declared["inputs"])
        documents = [_object(each) for each in _list(declared["blocks"])]
        blocks = tuple(self.block(each, self.result.block(_text(each["name"]))) for each in documents)
        self.know(shape for _, shape in _list(declared["results"]))
        self.know([[declared["size"]]])
        host = Host(
            _text(declared["operator"]),
            inputs,
            self.types(declared["results"]),
            blocks,
            _whole(declared["carried"], 0),
            self.value(declared["size"]),
            _text(declared["what"]),
        )
        check_host(host)
        self.result.call_host(host, args, *label)

    def types(self, declared: Any) -> tuple[TensorType, ...]:
        return tuple(TensorType(DTYPES[dtype], self.shape(shape)) for dtype, shape in _list(declared))

    def value(self, value: Any) -> Any:
        match value:
            case None | bool() | float():
                return value
            case int():
                return _whole(value)
            case str():
                return self.size(value)
            case list():
                return tuple(self.value(item) for item in value)
            case {"text": str(text)} if len(value) == 1:
                return text
            case {"dtype": str(name)} if len(value) == 1:
                return DTYPES[name]
            case {"constant": str(name)} if len(value) == 1:
                return Constant(name)
            case {"number": "inf" | "-inf" | "nan" as number} if len(value) == 1:
                return float(number)
            case dict():
                return self.reference(value)
        raise ValueError("an unknown kind of value")

    def reference(self, value: Mapping[str, Any]) -> Tensor:
        program = self.result
        match value:
            case {"call": int(index), **rest}:
                call = _element(program.calls, index)
                if call.function == HOST:
                    raise ValueError("a reference to what the host does, which is no tensor")
                tensor: Tensor = call.result
            case {"weight": int(index), **rest}:
                tensor = _element(program.weights, index).tensor
            case {"input": int(index), **rest}:
                tensor = _element(program.inputs, index).tensor
            case _:
                raise ValueError("a reference to no tensor")
        if rest:
            (rank,) = rest.values()
            tensor = checked(replace(tensor, rank=_whole(rank, 0)))
        return tensor

    def shape(self, value: Any) -> tuple[Dim, ...]:
        return tuple(self.size(size) if isinstance(size, str) else _whole(size) for size in _list(value))

    def size(self, text: str) -> Dim:
        if text not in self.sizes:
            if len(text) > LONGEST_SIZE:
                raise ValueError("a size expression that is too long")
            self.sizes[text] = parse_dim(text, self.atoms)
        self.check_known(set(symbols(self.sizes[text])))
        return self.sizes[text]

    def check_known(self, names: set[str]) -> None:
        if unknown := names - self.known:
            raise ValueError(f"no tensor says what {min(unknown)} is")


def _element(items: Sequence[Any], index: int) -> Any:
    if not 0 <= index < len(items):
        raise ValueError(f"a reference to number {index} of {len(items)}")
    return items[index]


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object is missing")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("a list is missing")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a string is missing")
    return value


def _whole(value: Any, low: int = -LARGEST) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= LARGEST:
        raise ValueError(f"a whole number of at least {low} is missing")
    return value


def _refuse_number(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def digest(text: str) -> str:
    """The SHA-256 of a program's text, which engine and C++ carry to know each other."""
    return hashlib.sha256(text.encode()).hexdigest()
