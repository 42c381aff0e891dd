"""Half-precision types in operators that sum: computed in float32, and rounded once."""

from __future__ import annotations

from graphc.ir.graph import Value
from graphc.ir.types import BF16, F16, F32
from graphc.ops.base import Emit, Op
from graphc.ops.pointwise import Cast

NARROW = frozenset({F16, BF16})
"""Types whose sums are made in float32."""


def in_float32(emit: Emit, op: Op, *inputs: Value) -> tuple[Value]:
    """An operator of half-precision values, applied to them in float32."""
    result = emit(op, *(emit(Cast(F32), value) for value in inputs))
    return (emit(Cast(inputs[0].dtype), result),)
