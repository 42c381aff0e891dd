"""Symbolic integers: the sizes of tensors, known only when a model is run."""

from graphc.shapes.dim import (
    Dim,
    Expr,
    Undecidable,
    bind,
    bind_known,
    ceil_div,
    dim_max,
    dim_min,
    divisible,
    integer,
    is_static,
    lower_bound,
    product,
    static_shape,
    symbol,
    symbols,
    upper_bound,
)
from graphc.shapes.parse import parse_dim

__all__ = [
    "Dim",
    "Expr",
    "Undecidable",
    "bind",
    "bind_known",
    "ceil_div",
    "dim_max",
    "dim_min",
    "divisible",
    "integer",
    "is_static",
    "lower_bound",
    "parse_dim",
    "product",
    "static_shape",
    "symbol",
    "symbols",
    "upper_bound",
]
