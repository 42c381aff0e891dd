"""ONNX's own tests of single operators, as core operators with arrays: the oracle's oracle."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.helper import get_attribute_value, tensor_dtype_to_np_dtype

from graphc.ir.types import BOOL, FLOATS, INTEGERS
from graphc.ops.activations import Clip, Gelu, IsInf, all_activations
from graphc.ops.base import Op
from graphc.ops.blocks import DepthToSpace, SpaceToDepth, Tile
from graphc.ops.functions import BINARY, UNARY
from graphc.ops.indexing import Gather, GatherElements, GatherND, OneHot
from graphc.ops.movement import Concat, Expand, Pad, Reshape, Slice, Transpose
from graphc.ops.pointwise import Binary, Cast, Unary, Where
from graphc.ops.reduce import Reduce
from graphc.ops.scatter import ScatterElements, ScatterND
from graphc.ops.sequences import CumSum, Range, Trilu
from graphc.ops.sorting import ArgMax, ArgMin, TopK

Arrays = list[np.ndarray]
Attributes = dict[str, Any]
Made = tuple[Op, Arrays]


@dataclass(frozen=True)
class Case:
    """One test: the operator, its inputs, and the results that ONNX expects."""

    name: str
    op: Op
    inputs: Arrays
    expected: Arrays


def _reduce(kind: str) -> Callable[[Attributes, Arrays], Made | None]:
    def make(a: Attributes, x: Arrays) -> Made | None:
        axes = a.get("axes", x[1].tolist() if len(x) > 1 else [])
        if not axes:
            axes = [] if a.get("noop_with_empty_axes") else list(range(x[0].ndim))
        return Reduce(kind, tuple(axis % x[0].ndim for axis in axes), bool(a.get("keepdims", 1))), x[:1]

    return make


def _slice(a: Attributes, x: Arrays) -> Made:
    data, begins, ends = x[:3]
    axes = x[3].tolist() if len(x) > 3 else range(len(begins))
    steps = x[4].tolist() if len(x) > 4 else [1] * len(begins)
    starts, sizes, strides = [0] * data.ndim, list(data.shape), [1] * data.ndim
    for begin, end, axis, step in zip(begins.tolist(), ends.tolist(), axes, steps, strict=True):
        places = range(data.shape[axis])[begin:end:step]
        starts[axis], sizes[axis], strides[axis] = places.start, len(places), step
    starts = [start if size else 0 for start, size in zip(starts, sizes, strict=True)]
    return Slice(tuple(starts), tuple(sizes), tuple(strides)), [data]


def _pad(a: Attributes, x: Arrays) -> Made | None:
    data, pads = x[0], x[1].tolist()
    axes = x[3].tolist() if len(x) > 3 else list(range(data.ndim))
    before, after = [0] * data.ndim, [0] * data.ndim
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    value = x[2].item() if len(x) > 2 else 0
    return Pad(tuple(before), tuple(after), a.get("mode", b"constant").decode(), value), [data]


def _reshape(a: Attributes, x: Arrays) -> Made:
    keep = not a.get("allowzero", 0)
    shape = [x[0].shape[i] if n == 0 and keep else n for i, n in enumerate(x[1].tolist())]
    return Reshape(tuple(np.empty(x[0].shape).reshape(shape).shape)), x[:1]


def _one_hot(a: Attributes, x: Arrays) -> Made:
    return OneHot(a.get("axis", -1) % (x[0].ndim + 1), int(x[1].item())), [x[0].astype(np.int64), x[2]]


def _clip(a: Attributes, x: Arrays) -> Made:
    bounds = [array.item() for array in x[1:]]
    return Clip(*bounds), x[:1]


def _extreme(op: type[ArgMax] | type[ArgMin]) -> Callable[[Attributes, Arrays], Made]:
    return lambda a, x: (
        op(a.get("axis", 0) % x[0].ndim, bool(a.get("keepdims", 1)), bool(a.get("select_last_index", 0))),
        x,
    )


MAKERS: dict[str, Callable[[Attributes, Arrays], Made | None]] = {
    **{name: (lambda a, x, name=name: (Unary(name), x)) for name in UNARY},
    **{name: (lambda a, x, name=name: (Binary(name), x) if len(x) == 2 else None) for name in BINARY},
    **{name: (lambda a, x, op=op: (op(**a), x)) for name, op in all_activations().items()},
    "Mod": lambda a, x: (Binary("Fmod" if a.get("fmod") else "Mod"), x),
    "BitShift": lambda a, x: (Binary("BitShiftLeft" if a["direction"] == b"LEFT" else "BitShiftRight"), x),
    "Where": lambda a, x: (Where(), x),
    "Cast": lambda a, x: (Cast(np.dtype(tensor_dtype_to_np_dtype(a["to"]))), x),
    "Clip": _clip,
    "IsInf": lambda a, x: (IsInf(bool(a.get("detect_positive", 1)), bool(a.get("detect_negative", 1))), x),
    "Gelu": lambda a, x: (Gelu(a.get("approximate", b"none").decode()), x),
    "Reshape": _reshape,
    "Transpose": lambda a, x: (Transpose(tuple(a.get("perm", range(x[0].ndim)[::-1]))), x),
    "Expand": lambda a, x: (Expand(np.broadcast_shapes(x[0].shape, tuple(x[1].tolist()))), x[:1]),
    "Tile": lambda a, x: (Tile(tuple(x[1].tolist())), x[:1]),
    "Slice": lambda a, x: _slice(a, x),
    "Concat": lambda a, x: (Concat(a["axis"] % x[0].ndim), x),
    "Pad": _pad,
    "DepthToSpace": lambda a, x: (DepthToSpace(a["blocksize"], a.get("mode", b"DCR").decode()), x),
    "SpaceToDepth": lambda a, x: (SpaceToDepth(a["blocksize"]), x) if "mode" not in a else None,
    "Gather": lambda a, x: (Gather(a.get("axis", 0) % x[0].ndim), x),
    "GatherElements": lambda a, x: (GatherElements(a.get("axis", 0) % x[0].ndim), x),
    "GatherND": lambda a, x: (GatherND(a.get("batch_dims", 0)), x),
    "ScatterElements": lambda a, x: (
        ScatterElements(a.get("axis", 0) % x[0].ndim, a.get("reduction", b"none").decode()),
        x,
    ),
    "ScatterND": lambda a, x: (ScatterND(a.get("reduction", b"none").decode()), x),
    "OneHot": _one_hot,
    "CumSum": lambda a, x: (
        CumSum(int(x[1].item()) % x[0].ndim, bool(a.get("exclusive", 0)), bool(a.get("reverse", 0))),
        x[:1],
    ),
    "Range": lambda a, x: (Range(*(array.item() for array in x), x[0].dtype), []),
    "Trilu": lambda a, x: (Trilu(bool(a.get("upper", 1)), int(x[1].item()) if len(x) > 1 else 0), x[:1]),
    "ArgMax": _extreme(ArgMax),
    "ArgMin": _extreme(ArgMin),
    "TopK": lambda a, x: (
        TopK(a.get("axis", -1) % x[0].ndim, int(x[1].item()), bool(a.get("largest", 1)), bool(a.get("sorted", 1))),
        x[:1],
    ),
    **{f"Reduce{kind.capitalize()}": _reduce(kind) for kind in ("sum", "mean", "max", "min", "prod")},
}
"""How ONNX's operators are spelled as core operators; the frontend has a richer form of this table."""

KNOWN = FLOATS | INTEGERS | {BOOL}


@functools.cache
def cases() -> list[Case]:
    """Every ONNX test of one node that a core operator of this part spells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        collected = collect_testcases(None)
    found = []
    for case in collected:
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in MAKERS or nodes[0].domain or "" in nodes[0].input:
            continue
        attributes = {attribute.name: get_attribute_value(attribute) for attribute in nodes[0].attribute}
        for inputs, expected in case.data_sets:
            if not all(isinstance(x, np.ndarray) and x.dtype in KNOWN for x in [*inputs, *expected]):
                continue
            made = MAKERS[nodes[0].op_type](attributes, list(inputs))
            if made is not None:
                found.append(Case(case.name, *made, list(expected)))
    return found
