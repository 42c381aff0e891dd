"""The text form of a graph: what `str(graph)` prints, read back. For tests of rules, for dumps, and for networks that a program
writes by itself.

    graph g(%x: float32[2, 3])
      %half: float32[] = constant(0.5)
      %w: float32[4, 3] = constant
      %b: float32[4] = parameter(layer.bias)
      %y: float32[2, 4] = MatMul[transpose_a=False, transpose_b=True](%x, %w)
      %z = Mul(%y, %half)
      return z=%z

Result types are inferred; one that is written must agree. A constant without a number gets seeded random elements, and so
does a parameter, whose name is the one that checkpoints have.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import Any

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.graph import Graph, Value
from graphc.ir.types import BF16, TensorType
from graphc.ops.base import Op, operator_class
from graphc.ops.functions import BINARY, UNARY
from graphc.ops.pointwise import Binary, Unary
from graphc.shapes import parse_dim

NAME = r"%([^\s:,()=]+)"
TYPE = r"(\w+)\[([^\]]*)\]"
STATEMENT = re.compile(rf"^({NAME}(?:: {TYPE})?(?:, {NAME}(?:: {TYPE})?)*) = (\w+)(.*)$")


class TextError(GraphcError):
    """A line that is not part of a graph."""


def parse_graph(text: str) -> Graph:
    """Read a graph. Raises TextError with the line, ShapeError where operators do not fit."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    header = re.fullmatch(r"graph (\S+?)\((.*)\)", lines[0])
    if header is None:
        raise TextError(f"not the head of a graph: {lines[0]!r}")
    graph = Graph(header[1])
    values: dict[str, Value] = {}
    for name, dtype, shape in re.findall(rf"{NAME}: {TYPE}", header[2]):
        values[name] = graph.input(name, _type(dtype, shape))
    random = np.random.default_rng(0)
    for line in lines[1:]:
        if line.startswith("return "):
            for name, value in re.findall(rf"(\S+)={NAME}", line):
                graph.output(values[value], name)
        else:
            _statement(graph, values, line, random)
    return graph


def _statement(graph: Graph, values: dict[str, Value], line: str, random: np.random.Generator) -> None:
    match = STATEMENT.match(line)
    if match is None:
        raise TextError(f"not a statement: {line!r}")
    left, operator, rest = match[1], match[match.re.groups - 1], match[match.re.groups]
    results = re.findall(rf"{NAME}(?:: {TYPE})?", left)
    if operator == "constant":
        name, dtype, shape = results[0]
        values[name] = graph.constant(_data(_type(dtype, shape), rest, random), name)
        return
    if operator == "parameter":
        name, dtype, shape = results[0]
        values[name] = graph.constant(_data(_type(dtype, shape), "", random), name)
        graph.declare_parameter(values[name], rest.strip("()"))
        return
    attributes, arguments = re.fullmatch(r"(?:\[(.*)\])?\((.*)\)", rest).groups()  # type: ignore[union-attr]
    inputs = [values[name] for name in re.findall(NAME, arguments)]
    node = graph.add(_operator(operator, attributes or ""), inputs, names=[name for name, *_ in results])
    for (name, dtype, shape), value in zip(results, node.outputs, strict=True):
        if dtype and _type(dtype, shape) != value.type:
            raise TextError(f"{line!r}: the type is {value.type}")
        values[name] = value


def _operator(name: str, attributes: str) -> Op:
    given = _attributes(attributes)
    if name in UNARY:
        return Unary(name)
    if name in BINARY:
        return Binary(name)
    try:
        found = operator_class(name)
    except KeyError:
        raise TextError(f"no operator {name!r}") from None
    known = {field.name for field in fields(found)}  # type: ignore[arg-type]
    if unknown := set(given) - known:
        raise TextError(f"{name} has no attribute {', '.join(sorted(unknown))}")
    return found(**given)


def _attributes(text: str) -> dict[str, Any]:
    """`axis=1, shape=(2, h*8)` as keyword arguments; names in expressions are size symbols."""
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {keyword.arg or "": _attribute(keyword.value) for keyword in call.keywords}


def _attribute(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_attribute, node.elts))
    try:
        return ast.literal_eval(node)
    except ValueError:
        text = ast.unparse(node)
        try:
            return _dtype(text)
        except TextError:
            return parse_dim(text)


def _dtype(name: str) -> np.dtype:
    try:
        return BF16 if name == "bfloat16" else np.dtype(name)
    except (TypeError, ValueError) as error:
        raise TextError(f"no dtype {name!r}") from error


def _type(dtype: str, shape: str) -> TensorType:
    sizes = ast.parse(f"[{shape}]", mode="eval").body
    assert isinstance(sizes, ast.List)
    return TensorType(_dtype(dtype), tuple(parse_dim(ast.unparse(size)) for size in sizes.elts))


def _data(type: TensorType, written: str, random: np.random.Generator) -> np.ndarray:
    shape = tuple(int(size) for size in type.shape if isinstance(size, int))
    if written:
        return np.full(shape, ast.literal_eval(written.strip("()")), type.dtype)
    return np.asarray(random.standard_normal(shape) * 0.5, type.dtype)
