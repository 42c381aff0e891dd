"""Products in the body of a loop that no step changes are computed before it: of what stays the same, and of rows of which each
step takes the next. A product of all rows takes less than theirs one by one, for which the weights would be read each time."""

from __future__ import annotations

from graphc.ir.graph import Graph, Node, Value, names_in
from graphc.ops.control import Loop
from graphc.ops.indexing import Gather
from graphc.ops.matmul import MatMul
from graphc.ops.pointwise import Binary


def hoist(graph: Graph) -> None:
    """Move such products from the bodies of loops to the graph around, in place."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node.op, Loop):
            hoist(node.op.body.graph)
            nodes += _Body(graph, node).hoisted()
        nodes.append(node)
    graph.nodes = nodes


class _Body:
    """The body of a loop, and the graph around it."""

    def __init__(self, around: Graph, loop: Node) -> None:
        assert isinstance(loop.op, Loop)
        self.around, self.loop, self.graph = around, loop, loop.op.body.graph
        self.first = 2 + loop.op.carried
        self.outside = dict(zip(self.graph.inputs[self.first :], loop.inputs[self.first :], strict=True))
        carried = zip(self.graph.inputs[2 : self.first], self.graph.outputs[1:], strict=False)
        self.counters = {self.graph.inputs[0], *(before for before, after in carried if _is_next(before, after))}
        bound = {name for node in self.graph.nodes for name in node.op.binds}
        self.inner = bound | (names_in(tuple(value.type for value in self.graph.inputs)) - self._known())

    def hoisted(self) -> list[Node]:
        """The products that are moved, as nodes of the graph around. The body reads what they give, and no longer what is read
        there alone."""
        moved, instead = list[Node](), dict[Value, Value]()
        for number, node in enumerate(self.graph.nodes):
            if not isinstance(node.op, MatMul) or not self._keeps(node):
                continue
            rows = instead.get(node.inputs[0], node.inputs[0])
            gather = rows.producer
            if rows in self.outside:
                moved.append(self._moved(node, rows))
                instead[node.output] = self.graph.inputs[-1]
            elif gather is not None and self._takes_next(gather, node):
                moved.append(self._moved(node, gather.inputs[0]))
                taken = self.graph.make(gather.op, [self.graph.inputs[-1], gather.inputs[1]], node.source)
                self.graph.nodes[number] = taken
                instead[node.output] = taken.output
        if moved:
            self.graph.replace(lambda value: instead.get(value, value))
            self.graph.prune()
            self._forget_unread()
        return moved

    def _keeps(self, product: Node) -> bool:
        """True if no step changes the weights of a product, or the sizes."""
        return product.inputs[1].is_constant and self.inner.isdisjoint(product.sizes())

    def _moved(self, node: Node, rows: Value) -> Node:
        """The product outside, of a value that the body captures; the body captures what it gives."""
        made = self.around.make(node.op, [self.outside[rows], node.inputs[1]], node.source)
        self.outside[self.graph.input(made.output.name, made.output.type)] = made.output
        self.loop.inputs.append(made.output)
        return made

    def _takes_next(self, gather: Node, product: Node) -> bool:
        """True if a node takes a row of a captured value in each step, and from the next row in the next; the product is of its
        last axis."""
        if not isinstance(gather.op, Gather) or gather.inputs[0] not in self.outside:
            return False
        table, place = gather.inputs
        weights, swapped = product.inputs[1], product.op.transpose_a  # type: ignore[attr-defined]
        is_row = place in self.counters and not place.shape and gather.op.axis < table.type.rank - 1
        return is_row and weights.type.rank == 2 and table.type.rank > 2 and not swapped and not table.static

    def _forget_unread(self) -> None:
        read = {*self.graph.reads()}
        kept = [
            *range(self.first),
            *(n for n in range(self.first, len(self.graph.inputs)) if self.graph.inputs[n] in read),
        ]
        self.graph.inputs = [self.graph.inputs[number] for number in kept]
        self.loop.inputs = [self.loop.inputs[number] for number in kept]

    def _known(self) -> set[str]:
        """The names of sizes around the loop, as far as its arguments have them."""
        return names_in(tuple(value.type for value in self.loop.inputs))


def _is_next(before: Value, after: Value) -> bool:
    """True if a carried number is one more after each step."""
    node = after.producer
    if node is None or node.op != Binary("Add") or before not in node.inputs:
        return False
    (other,) = [value for value in node.inputs if value is not before] or [before]
    return other.data is not None and other.data.size == 1 and other.data.item() == 1
