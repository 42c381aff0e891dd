"""Reading sizes that were printed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from graphc.shapes.dim import Dim, Expr, dim_max, dim_min, symbol


def parse_dim(text: str, atoms: Mapping[str, Expr] | None = None) -> Dim:
    """Read what `str(dim)` printed; unknown names become symbols of at least 1. Raises ValueError."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not a size expression: {text!r}") from error
    return _parse(tree, atoms or {}, text)


_BINARY: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _parse(node: ast.expr, atoms: Mapping[str, Expr], text: str) -> Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return atoms[name] if name in atoms else symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parse(operand, atoms, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _parse(left, atoms, text), _parse(right, atoms, text)
            if isinstance(op, ast.FloorDiv | ast.Mod) and b == 0:
                raise ValueError(f"division by zero in {text!r}")
            return _BINARY[type(op)](a, b)
        case ast.Call(func=ast.Name(id="min" | "max" as kind), args=[left, right], keywords=[]):
            choose = dim_min if kind == "min" else dim_max
            return choose(_parse(left, atoms, text), _parse(right, atoms, text))
    raise ValueError(f"not a size expression: {text!r}")
