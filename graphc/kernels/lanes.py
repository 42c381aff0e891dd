"""Which reductions of a kernel are computed for many neighbouring results at once.

A reduction within the innermost loop reads, for one result after the other, elements that lie far apart. Where those of
neighbouring results are adjacent (a sum over the first axis, a matrix product), the two loops change places: each step of
the reduction is done for a stretch of results, in an array of totals. Every total sees the same numbers in the same order.
"""

from __future__ import annotations

from graphc.kernels.linear import is_positive, linear
from graphc.kernels.nest import Nest, extent, walk
from graphc.kernels.scalar import Scalar

LANES = 128
"""Results of a stretch."""

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


def variables_of(reduction: Scalar) -> tuple[Scalar, ...]:
    """The variables of a reduction's loops."""
    return reduction.data[1]  # type: ignore[index, no-any-return]
