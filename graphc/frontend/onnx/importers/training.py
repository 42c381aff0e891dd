"""One step of an optimizer, from ONNX's preview of training: elementwise arithmetic."""

from __future__ import annotations

from collections.abc import Callable

from graphc.errors import ModelError
from graphc.frontend.onnx.emit import SizeEmit
from graphc.frontend.onnx.importers.pointwise import converted
from graphc.frontend.onnx.node import OnnxNode
from graphc.frontend.onnx.table import onnx_op
from graphc.ir import Value
from graphc.ir.types import BOOL
from graphc.ops.pointwise import Binary, Unary, Where

DOMAIN = "ai.onnx.preview.training"


class Arithmetic:
    """Arithmetic of values of one dtype and numbers."""

    def __init__(self, emit: SizeEmit, like: Value) -> None:
        self.emit, self.like = emit, like

    def __call__(self, function: str, a: Value | float, b: Value | float) -> Value:
        """A function of two operands."""
        first, second = (x if isinstance(x, Value) else self.emit.constant(x, like=self.like) for x in (a, b))
        return self.emit(Binary(function), first, second)

    def where_started(self, count: Value, then: Value, otherwise: Value) -> Value:
        """One of two values: the first unless the update count is 0."""
        return self.emit(Where(), converted(self.emit, count, BOOL), then, otherwise)


Step = Callable[[OnnxNode, Arithmetic, Value, Value, list[Value]], tuple[Value, ...]]


def _step(node: OnnxNode, emit: SizeEmit, states: int, step: Step) -> tuple[Value, ...]:
    """The new tensors, then the new states, for tensors, their gradients and their states, in groups of equal length."""
    rate, count, *values = node.given()
    group = len(values) // (2 + states)
    if not group or len(values) != group * (2 + states):
        raise ModelError(f"{len(values)} tensors do not make {2 + states} groups")
    results = []
    for i in range(group):
        x, gradient, *state = values[i::group]
        c = Arithmetic(emit, x)
        regularized = c("Add", c("Mul", node.float("norm_coefficient", 0.0), x), gradient)
        results.append(step(node, c, rate, count, [x, regularized, *state]))
    return tuple(result[part] for part in range(1 + states) for result in results)


@onnx_op("Momentum", domain=DOMAIN)
def momentum(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """Gradient descent with momentum, or with Nesterov's."""
    nesterov = node.choice("mode", "", ("standard", "nesterov")) == "nesterov"

    def step(node: OnnxNode, c: Arithmetic, rate: Value, count: Value, given: list[Value]) -> tuple[Value, ...]:
        x, gradient, v = given
        alpha = node.float("alpha")
        scaled = c.where_started(count, c("Mul", node.float("beta"), gradient), gradient)
        v = c("Add", c("Mul", alpha, v), scaled)
        direction = c("Add", gradient, c("Mul", alpha, v)) if nesterov else v
        return c("Sub", x, c("Mul", rate, direction)), v

    return _step(node, emit, 1, step)


@onnx_op("Adagrad", domain=DOMAIN)
def adagrad(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """Gradient descent with a rate for each element."""

    def step(node: OnnxNode, c: Arithmetic, rate: Value, count: Value, given: list[Value]) -> tuple[Value, ...]:
        x, gradient, h = given
        steps = converted(emit, count, x.dtype)
        rate = c("Div", rate, c("Add", 1.0, c("Mul", steps, node.float("decay_factor", 0.0))))
        h = c("Add", h, c("Mul", gradient, gradient))
        root = c("Add", emit(Unary("Sqrt"), h), node.float("epsilon", 1e-6))
        return c("Sub", x, c("Div", c("Mul", rate, gradient), root)), h

    return _step(node, emit, 1, step)


@onnx_op("Adam", domain=DOMAIN)
def adam(node: OnnxNode, emit: SizeEmit) -> tuple[Value, ...]:
    """Running means of the gradient and of its square."""
    alpha, beta = node.float("alpha", 0.9), node.float("beta", 0.999)

    def step(node: OnnxNode, c: Arithmetic, rate: Value, count: Value, given: list[Value]) -> tuple[Value, ...]:
        x, gradient, v, h = given
        v = c("Add", c("Mul", alpha, v), c("Mul", 1 - alpha, gradient))
        h = c("Add", c("Mul", beta, h), c("Mul", c("Mul", 1 - beta, gradient), gradient))
        root = c("Add", emit(Unary("Sqrt"), h), node.float("epsilon", 1e-6))
        steps = converted(emit, count, x.dtype)
        left = emit(Unary("Sqrt"), c("Sub", 1.0, c("Pow", beta, steps)))
        adjusted = c("Div", c("Mul", rate, left), c("Sub", 1.0, c("Pow", alpha, steps)))
        rate = c.where_started(count, adjusted, rate)
        moved = c("Sub", x, c("Div", c("Mul", rate, v), root))
        return c("Mul", 1 - node.float("norm_coefficient_post", 0.0), moved), v, h

    return _step(node, emit, 2, step)
