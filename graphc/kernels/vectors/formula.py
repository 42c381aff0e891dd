"""The C expressions of `Kernel.call` as operators of the interpreter."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphc.errors import GraphcError
from graphc.kernels.vectors.code import Register

Number: TypeAlias = float
Operate: TypeAlias = Callable[..., Register]
"""Makes an operator's instruction: its name, the type of the result, and the operands, of which each is a register or a number
of the type of the first register."""

INFIX = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.NotEq: "not_equal",
}  # fmt: skip

GIVES = {
    "ilogb": "i32",
    "signbit": "u8",
    "not_equal": "u8",
    "to_f16": "u16",
    "to_bf16": "u16",
    "from_f16": "f32",
    "from_bf16": "f32",
}
"""The results of operators that do not have their first operand's type."""

SHORT = {"float": "f32", "double": "f64"}

_UNION = re.compile(r"\(\(union \{ \w+ from; (\w+) to; \}\) \{ \.from = \{0\} \}\)\.to")
_CAST = re.compile(r"\((\w+)\) \{0\}")


def formula(template: str, args: Sequence[Register], operate: Operate) -> Register:
    """What a template of `Kernel.call` gives for these operands. Raises GraphcError for what is no such expression."""
    if found := _UNION.fullmatch(template):
        return args[0].read_as(type_of(found[1]))
    if found := _CAST.fullmatch(template):
        return operate(f"to_{type_of(found[1])}", type_of(found[1]), args[0])
    text = re.sub(r"\{(\d+)\}", r"_\1", template.replace("{f}", ""))
    try:
        result = _value(ast.parse(text, mode="eval").body, args, operate)
    except SyntaxError as error:
        raise GraphcError(f"no formula that can be interpreted: {template}") from error
    assert isinstance(result, Register)
    return result


def type_of(c_type: str) -> str:
    """The short name of a C type."""
    found = re.fullmatch(r"(u?)int(\d+)_t", c_type)
    return f"{'u' if found[1] else 'i'}{found[2]}" if found else SHORT[c_type]


def _value(node: ast.expr, args: Sequence[Register], operate: Operate) -> Register | Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name():
            return args[int(node.id[1:])]
        case ast.UnaryOp(op=ast.USub()):
            value = _value(node.operand, args, operate)
            return _operated("negate", [value], operate) if isinstance(value, Register) else -value
        case ast.BinOp():
            return _operated(
                INFIX[type(node.op)], [_value(each, args, operate) for each in (node.left, node.right)], operate
            )
        case ast.Compare(ops=[operator], comparators=[right]):
            return _operated(
                INFIX[type(operator)], [_value(each, args, operate) for each in (node.left, right)], operate
            )
        case ast.Call(func=ast.Name(name)):
            return _operated(_function(name), [_value(each, args, operate) for each in node.args], operate)
    raise SyntaxError


def _function(name: str) -> str:
    """The operator that a C function is."""
    found = re.fullmatch(r"graphc_((?:to|from)_b?f16)(_float)?", name)
    if found:
        return found[1]
    name = name.removesuffix("f") if name != "erf" else name
    return {"pow": "power"}.get(name, name)


def _operated(name: str, values: Sequence[Register | Number], operate: Operate) -> Register:
    type = next(each.type for each in values if isinstance(each, Register))
    return operate(name, GIVES.get(name, type), *values)
