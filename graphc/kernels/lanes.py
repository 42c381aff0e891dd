"""Which reductions of a kernel are computed for many numbers at once: for those of many neighbouring results, or of one.

A reduction within the innermost loop reads, for one result after the other, elements that lie far apart. Where those of
neighbouring results are adjacent (a sum over the first axis, a matrix product), the two loops change places: each step of
the reduction is done for a stretch of results, in an array of totals. Every total sees the same numbers in the same order.

The largest or smallest of numbers that lie one after the other is found by stretches: they are computed into an array, of which a
function takes several at a time. A sum is not, for its numbers are added in their order.
"""

from __future__ import annotations

from graphc.ir.types import F64, FLOATS
from graphc.kernels.linear import is_positive, linear
from graphc.kernels.nest import Nest, extent, walk
from graphc.kernels.scalar import Scalar

LANES = 128
"""Results of a stretch."""

STRETCH = 512
"""Numbers of a stretch of one result's."""

WORTHWHILE = 8
"""Results that the innermost loop must have, if their number is known."""


def reductions_by_lanes(loops: Nest) -> list[Scalar]:
    """The reductions to compute for a stretch of the innermost loop, each after those that it needs.

    Either all reductions that depend on that loop are among them, or none is.
    """
    if not loops.axes:
        return []
    axis = loops.axes[-1]
    size = extent(axis)
    dependent = {node for node in walk(loops.body) if node.kind == "reduce" and axis in node.free}
    found: dict[Scalar, None] = {}
    _collect(loops.body, axis, found)
    short = isinstance(size, int) and size < WORTHWHILE
    if short or set(found) != dependent or not all(_is_adjacent(node, axis, found) for node in found):
        return []
    return list(found)


def _collect(node: Scalar, axis: Scalar, found: dict[Scalar, None]) -> None:
    """Add the reductions that are computed for every result, whatever conditions hold, operands first."""
    if axis not in node.free or node in found:
        return
    if node.kind in ("select", "require") or node.data in ("and", "or"):
        _collect(node.args[0], axis, found)
        return
    if node.kind == "reduce" and not all(is_positive(extent(variable)) for variable in variables_of(node)):
        found[node] = None
        return
    for arg in node.args:
        _collect(arg, axis, found)
    if node.kind == "reduce":
        found[node] = None


def _is_adjacent(reduction: Scalar, axis: Scalar, found: dict[Scalar, None]) -> bool:
    """True if neighbouring results read neighbouring elements, and nothing is computed anew that a result needs once."""
    variables = frozenset(variables_of(reduction))
    adjacent = False
    for node in _own(reduction.args[0], found):
        if node.kind == "require" or (node.kind == "apply" and axis in node.free and not variables & node.free):
            return False
        if node.kind == "element" and axis in node.free:
            offset = linear(node.args[0])
            if offset.terms.get(axis) != 1 or any(axis in atom.free for atom in offset.terms if atom is not axis):
                return False
            adjacent = adjacent or bool(variables & node.free)
    return adjacent


def _own(body: Scalar, found: dict[Scalar, None]) -> list[Scalar]:
    """The nodes of a reduction's body, without those of other reductions that are computed before."""
    nodes: dict[Scalar, None] = {}

    def visit(node: Scalar) -> None:
        if node not in nodes and node not in found:
            nodes[node] = None
            for arg in node.args:
                visit(arg)

    visit(body)
    return list(nodes)


def is_by_stretches(reduction: Scalar) -> bool:
    """True if a reduction finds the largest or smallest of numbers in float that it reads one after the other."""
    kind, (innermost, *others) = reduction.data[0], variables_of(reduction)[::-1]  # type: ignore[index]
    if kind not in ("max", "min") or reduction.dtype not in FLOATS or reduction.dtype == F64 or others:
        return False
    size = extent(innermost)
    read = [
        linear(node.args[0]) for node in walk(reduction.args[0]) if node.kind == "element" and innermost in node.free
    ]
    adjacent = all(offset.terms.get(innermost) == 1 for offset in read)
    return bool(read) and adjacent and not (isinstance(size, int) and size < WORTHWHILE)


def variables_of(reduction: Scalar) -> tuple[Scalar, ...]:
    """The variables of a reduction's loops."""
    return reduction.data[1]  # type: ignore[index, no-any-return]
