"""From an operator's expression of one element to the loops that compute all of them.

Axes that every tensor walks through alike become one. What remains is at most two loops, so that the compiler sees a plain
inner one: `row`, over all axes but the last, and the last. Both are shared out among threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphc.ir.types import BOOL, I64
from graphc.kernels.linear import ARITHMETIC, ZERO, compare, linear
from graphc.kernels.scalar import COMPARISONS, Kernel, Scalar, constant, make, result_index, trace, variable
from graphc.kernels.use import KernelUse
from graphc.records import dataclass
from graphc.shapes import Dim, product


@dataclass(frozen=True)
class Nest:
    """The loops over `axes` (variables, the outermost first) around `body`, whose value is stored at `place`.

    In `body`, a node of kind `element` reads input `data` at the offset that is its argument: offsets, as `place`, count
    elements.
    """

    axes: tuple[Scalar, ...]
    body: Scalar
    place: Scalar


def nest(use: KernelUse) -> Nest:
    """The loops of a kernel, at most two. Raises GraphcError if its operator has no loop form."""
    return rows(ordered(use))


def ordered(use: KernelUse) -> Nest:
    """The loops of a kernel, as many as it needs. Raises GraphcError if its operator has no loop form."""
    index = result_index(use.shape)
    loops = Nest(tuple(entry for entry in index if entry.kind == "variable"), trace(use), flat(index, use.shape))
    loops = rewritten(loops, {}, loops.axes, [shape for _, shape in use.inputs])
    return reordered(merged(loops))


def flat(index: Sequence[Scalar], shape: Sequence[Dim]) -> Scalar:
    """The offset of an element of a row-major tensor."""
    total, stride = ZERO, 1
    for entry, size in zip(reversed(index), reversed(shape), strict=True):
        total = total.plus(linear(entry), stride)
        stride = stride * size  # type: ignore[assignment]
    return total.scalar()


def merged(loops: Nest) -> Nest:
    """The same loops where adjacent axes that every offset walks through alike, and nothing else looks at, are one."""
    position = 0
    while position + 1 < len(loops.axes):
        outer, inner = loops.axes[position : position + 2]
        first, last = name(outer).split("_")[0], name(inner).removeprefix("i")
        joined = variable(f"{first}_{last}", extent(outer) * extent(inner))
        axes = (*loops.axes[:position], joined, *loops.axes[position + 2 :])
        size = extent(inner)
        attempt = rewritten(loops, {outer: joined // size, inner: joined % size}, axes)
        if any(takes_apart(node, joined) for node in walk(attempt.body, attempt.place)):
            position += 1
        else:
            loops, position = attempt, max(position - 1, 0)
    return loops


def reordered(loops: Nest) -> Nest:
    """The same loops, with those innermost that no reduction depends on: the reductions then run once for all of them."""
    needed = {entry for node in walk(loops.body) if node.kind == "reduce" for entry in node.free}
    if not needed:
        return loops
    outer = [axis for axis in loops.axes if axis in needed]
    axes = (*outer, *(axis for axis in loops.axes if axis not in needed))
    return loops if axes == loops.axes else rewritten(loops, {}, axes)


def rows(loops: Nest) -> Nest:
    """The same loops, with all but the innermost as one."""
    if len(loops.axes) <= 2:
        return loops
    *leading, inner = loops.axes
    row = variable("row", product(extent(axis) for axis in leading))
    places: dict[Scalar, Scalar] = {}
    stride: Dim = 1
    for axis in reversed(leading):
        places[axis] = row // stride % extent(axis) if axis is not leading[0] else row // stride
        stride = stride * extent(axis)
    return rewritten(loops, places, (row, inner))


def rewritten(
    loops: Nest, places: Mapping[Scalar, Scalar], axes: tuple[Scalar, ...], shapes: Sequence[Sequence[Dim]] = ()
) -> Nest:
    """The loops over other `axes`, with variables replaced as `places` says, and index arithmetic in normal form."""
    rewrite = Rewrite(places, axes, shapes)
    return replace(loops, axes=axes, body=rewrite(loops.body), place=rewrite(loops.place))


class Rewrite:
    """Rebuilds an expression bottom-up: loads become elements at offsets, index arithmetic becomes short, conditions that
    always or never hold disappear."""

    def __init__(
        self, places: Mapping[Scalar, Scalar], axes: Sequence[Scalar], shapes: Sequence[Sequence[Dim]]
    ) -> None:
        self.done = dict(places)
        self.order = {axis: level for level, axis in enumerate(axes)}
        self.shapes = shapes

    def __call__(self, node: Scalar) -> Scalar:
        """The node, rebuilt."""
        found = self.done.get(node)
        if found is None:
            found = self.done[node] = self.rebuilt(node, tuple(map(self, node.args)))
        return found

    def rebuilt(self, node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        """The node with rewritten operands."""
        if node.kind == "load":
            shape = self.shapes[node.data]  # type: ignore[call-overload]
            return make("element", node.dtype, (self.offset(flat(args, shape)),), node.data)
        if node.kind == "element":
            return make("element", node.dtype, (self.offset(args[0]),), node.data)
        if node.kind == "select":
            condition, first, second = args
            return Kernel.select(_NO_INPUTS, condition, first, second, both=bool(node.data))
        if node.kind == "require":
            return Kernel.require(_NO_INPUTS, args[0], args[1], str(node.data))
        return self.operated(node, args) if node.kind == "operate" else make(node.kind, node.dtype, args, node.data)

    def operated(self, node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        """The node, an operator, with rewritten operands."""
        fresh = make("operate", node.dtype, args, node.data)
        if node.dtype == I64 and node.data in ARITHMETIC:
            return self.offset(fresh)
        if node.data in COMPARISONS and args[0].dtype == I64:
            truth = compare(str(node.data), *args)
            return fresh if truth is None else constant(truth, BOOL)
        fold = {"and": Scalar.and_, "or": Scalar.or_, "not": Scalar.not_}.get(str(node.data))
        return fold(*args) if fold else fresh  # type: ignore[operator]

    def offset(self, index: Scalar) -> Scalar:
        """An index in normal form, its terms in the order of the loops."""
        return linear(index).scalar(self.depth)

    def depth(self, atom: Scalar) -> int:
        """The innermost loop that a term depends on; those of reductions lie within those of the result."""
        return max((self.level(axis) for axis in atom.free), default=-1)

    def level(self, axis: Scalar) -> int:
        """The place of a variable's loop, counted from the outermost."""
        return self.order[axis] if axis in self.order else len(self.order) + int(name(axis).removeprefix("k"))


_NO_INPUTS = Kernel(())


def name(axis: Scalar) -> str:
    """A variable's name."""
    return str(axis.data[0])  # type: ignore[index]


def extent(axis: Scalar) -> Dim:
    """How often a variable's loop runs."""
    return axis.data[1]  # type: ignore[index, no-any-return]


def takes_apart(node: Scalar, axis: Scalar) -> bool:
    """True for a quotient or a rest of what depends on a variable."""
    return node.kind == "operate" and node.data in ("//", "%") and axis in node.free


def walk(*roots: Scalar) -> list[Scalar]:
    """Every node of expressions once, operands first."""
    found: dict[Scalar, None] = {}

    def visit(node: Scalar) -> None:
        if node not in found:
            for arg in node.args:
                visit(arg)
            found[node] = None

    for root in roots:
        visit(root)
    return list(found)
