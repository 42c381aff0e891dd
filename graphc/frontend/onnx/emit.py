"""`SizeEmit`: makes nodes, and computes at once what is about sizes.

In an ONNX file the sizes that operators need are tensors, computed by nodes (Shape, Gather, Concat, ...) from the shapes
of other tensors. Here a tensor of sizes has known elements, integers or `Dim`s. An operator of which all inputs are
such tensors is evaluated by its own `eval`, and leaves no node. So sizes become attributes, and symbols stay symbols.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence

import numpy as np

from graphc.errors import ModelError
from graphc.frontend.onnx import ratios
from graphc.frontend.onnx.dims import Dimensions
from graphc.frontend.onnx.node import PIN
from graphc.frontend.onnx.observed import Observed
from graphc.frontend.onnx.ratios import Ratio, is_known
from graphc.frontend.onnx.tensors import Refused, Unknown
from graphc.ir import Graph, TensorType, Value
from graphc.ir.graph import type_name
from graphc.ir.numbers import has_parameter, pin
from graphc.ir.types import BOOL, FLOATS, I32, I64, INTEGERS
from graphc.ops.base import Emit, Op
from graphc.ops.control import Measure
from graphc.ops.indexing import Gather
from graphc.ops.movement import Concat, Expand, Reshape, Slice
from graphc.ops.pointwise import Binary, Cast
from graphc.ops.sequences import Range
from graphc.shapes import Dim, Expr, Undecidable, is_polynomial, is_static, lower_bound, static_shape

MOST_MEASURED = 64
"""The most elements of a tensor that each become a size when the model runs."""

ANY_NUMBER = -(1 << 62)

ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul}
"""What is done with measured numbers as it is with sizes."""

DECISIVE = {"And": False, "Or": True}
"""What decides alone, whatever stands beside it."""

LIMIT = 1 << 16
"""The most elements of a tensor that is computed while importing."""


class SizeEmit(Emit):
    """An `Emit` that knows the elements of small tensors."""

    def __init__(self, graph: Graph, dimensions: Dimensions, observed: Observed | None) -> None:
        super().__init__(graph)
        self.base = "value"
        self.dimensions = dimensions
        self.outermost = graph
        self.rounds: Callable[[], list[Value]] = list
        """The numbers of the steps of the loops around, the outermost first."""
        self._observed = observed
        self._measured: dict[tuple[Value, int], Dim] = {}
        self._lengths: dict[Dim, Dim] = {}
        self._least: dict[Value, int] = {}
        self._symbolic: dict[Value, np.ndarray] = {}
        self._foldable: set[Value] = set()
        self._made: dict[Value, Value] = {}

    def all(self, op: Op, *inputs: Value, names: Sequence[str] = ()) -> tuple[Value, ...]:
        """Apply an operator; its results are known if its inputs are. Raises ShapeError and Refused."""
        if (decided := self._decided(op, inputs)) is not None:
            return (decided,)
        if all(value in self._foldable for value in inputs):
            results = self._evaluate(op, inputs)
            if results is not None:
                return results
        tensors = [self.materialized(value) for value in inputs]
        return super().all(op, *tensors, names=names or (f"{self.base}.{type_name(op)}",))

    def unfolded(self, op: Op, *inputs: Value) -> Value:
        """Apply an operator that has one result, which stays a node for rules to see: only a single number is computed."""
        if inputs[0].type.size == 1:
            return self(op, *inputs)
        return self._node(op, *map(self.materialized, inputs))

    def constant(self, data: np.ndarray | float | int, like: Value | None = None, name: str = "") -> Value:
        """A constant that takes part in size arithmetic."""
        value = super().constant(data, like, name or f"{self.base}.constant")
        if value.data is not None and value.data.size <= LIMIT:
            self._foldable.add(value)
        return value

    def parameter(self, data: np.ndarray, name: str) -> Value:
        """An initializer. Integers take part in size arithmetic; weights stay what they are, with their names."""
        value = super().constant(data, name=name)
        size_like = (value.dtype in INTEGERS and value.dtype.itemsize >= 4) or value.dtype == np.bool_
        if data.size <= LIMIT and (size_like or data.ndim == 0):
            self._foldable.add(value)
        return value

    def sizes(self, dims: Sequence[Dim] | np.ndarray, dtype: np.dtype = I64) -> Value:
        """A tensor with these sizes as elements."""
        array = dims if isinstance(dims, np.ndarray) else object_array(dims)
        return self._known(array, dtype)

    def size(self, dim: Dim) -> Value:
        """A tensor without axes that holds one size."""
        array = np.empty((), object)
        array[()] = dim
        return self.sizes(array)

    def is_known(self, value: Value) -> bool:
        """True if the elements are known for every run, as numbers or in terms of size symbols."""
        return value.is_constant or value in self._foldable

    def is_of_sizes(self, value: Value) -> bool:
        """True if the elements depend on sizes alone, which inputs have, and not on elements of any."""
        stack, seen = [value], {value}
        while stack:
            top = stack.pop()
            if self.is_known(top):
                continue
            if top.producer is None:
                return False
            stack += {*top.producer.inputs} - seen
            seen |= {*top.producer.inputs}
        return True

    def one_element(self, value: Value) -> Dim | None:
        """What all elements of an integer tensor are, if they are known to be the same."""
        while value.producer is not None and isinstance(value.producer.op, Expand | Reshape):
            value = value.producer.inputs[0]
        found = {*known.reshape(-1).tolist()} if (known := self.known(value)) is not None else set()
        element = found.pop() if len(found) == 1 else None
        return element if isinstance(element, int | Expr) else None

    def known(self, value: Value) -> np.ndarray | None:
        """The elements, if they are known: of the value's dtype, or objects where one is symbolic. Who asks decides by them."""
        array = self._symbolic.get(value, value.data)
        if array is None and self._observed is not None:
            array = self._observed.look(value)
        if value.is_constant:
            pin(value)
        return array

    def array(self, value: Value, what: str) -> np.ndarray:
        """The elements as plain numbers. Raises Unknown if they are known only when the model runs."""
        array = self.known(value)
        if array is None or value in self._symbolic:
            raise Unknown(f"{what} depends on {self._origin(value)}", self._pin_help(value))
        return array

    def inside(self, graph: Graph) -> SizeEmit:
        """An emit for a graph inside this one, which knows the same elements."""
        inner = SizeEmit(graph, self.dimensions, self._observed)
        inner.base, inner.source, inner.outermost = self.base, self.source, self.outermost
        inner._symbolic, inner._foldable = self._symbolic, self._foldable
        return inner

    def dims(self, value: Value, what: str, low: int = ANY_NUMBER) -> list[Dim]:
        """The elements of an integer tensor of rank 0 or 1, as sizes. Those that only a run can tell are measured then;
        they must be at least `low`. Raises Unknown if not even their number is known."""
        count = value.type.size
        if self.known(value) is not None or value.type.rank > 1 or not isinstance(count, int) or count > MOST_MEASURED:
            return self.known_dims(value, what)
        if value.type.rank == 0:
            return [self.measured(value, what, low)]
        if value.producer is not None and value.producer.op == Concat(0):  # some of its parts may be known
            return [size for part in value.producer.inputs for size in self.dims(part, what, low)]
        numbers = (self._node(Slice((place,), (1,), (1,)), value) for place in range(count))
        return [self.measured(number, what, low) for number in numbers]

    def known_dims(self, value: Value, what: str) -> list[Dim]:
        """The same as `dims`. Raises Unknown as `array` does, but not for symbols."""
        array = self.known(value)
        if array is None:
            raise Unknown(f"{what} depends on {self._origin(value)}")
        if array.ndim > 1 or array.size > LIMIT or value.dtype not in INTEGERS:
            raise ModelError(f"{what} is {value.type}, not a list of integers")
        return [item if isinstance(item, Expr) else int(item) for item in array.reshape(-1).tolist()]

    def measured(self, value: Value, what: str, low: int = 0, high: int | None = None) -> Dim:
        """The one element of an integer tensor as a size, which lies in `low..high`: what is known of it, else a new symbol
        that gets its value when the model has computed it, or a sum or product of such."""
        known = self.known(value)
        if known is not None:
            element = known.reshape(()).item()
            return element if isinstance(element, Expr) else int(element)
        place = self._place(value)
        if place not in self._measured:
            combined = self._combined(value, what)
            self._measured[place] = self._new_size(value, what, low, high) if combined is None else combined
        return self._measured[place]

    def length(self, size: Dim, start: Dim, end: Dim) -> Dim:
        """A size of what lies between two places: a symbol of its own, where only a run can tell both. So it can be what others
        leave of a sum (`max(end - start, 0)` rows of each group, all rows together)."""
        if is_polynomial(size) or not (self.dimensions.is_measured(start) and self.dimensions.is_measured(end)):
            return size
        if size not in self._lengths:
            self._lengths[size] = self._new_size(self._number(size, I64), "the length", 0, None)
        return self._lengths[size]

    def require(self, number: Value, wanted: Dim, what: str) -> None:
        """Have a run refused in which the one element of a tensor, an integer or a bool, is not this; `what` names it. Raises
        Refused if it never is."""
        known = self.known(number)
        element = None if known is None else known.reshape(()).item()
        if not isinstance(element, Expr) and element is not None and not isinstance(wanted, Expr):
            if element != wanted:
                raise Refused(f"{what} is {int(element)}, must be {wanted}")
            return
        whole = number if number.dtype == I64 else self(Cast(I64), number)
        self._node(Measure(wanted, what), self.materialized(whole))

    def _place(self, value: Value) -> tuple[Value, int]:
        """The tensor that the one element of a value was taken from, and its place there in row-major order."""
        place = 0
        while (node := value.producer) is not None and node.inputs:
            source = node.inputs[0]
            match node.op:
                case Reshape() | Cast() if source.dtype in (I32, I64):
                    value = source
                case Slice() if source.type.rank == 1 and is_static(*node.op.starts):
                    value, place = source, int(node.op.starts[0]) + place * node.op.steps[0]  # type: ignore[arg-type]
                case Gather() if source.type.rank == 1 and node.inputs[1].data is not None:
                    taken = int(node.inputs[1].data.reshape(-1)[place])
                    value, place = source, taken + (source.type.size if taken < 0 else 0)  # type: ignore[assignment]
                case _:
                    break
        return value, place

    def at_least(self, value: Value, low: int) -> None:
        """Say that no element of a tensor is ever below `low`."""
        self._least[value] = low

    def _combined(self, value: Value, what: str) -> Dim | None:
        """The element of a tensor that is a size, or another of one element, or computed from such by sums and products."""
        node = self._place(value)[0].producer
        if node is not None and isinstance(node.op, Range) and node.outputs[0].type.size == 1:  # see `_number`
            return node.op.start if isinstance(node.op.start, int | Expr) else None
        if node is None or any(each.type.size != 1 or each.dtype not in (I32, I64) for each in node.inputs):
            return None
        combine = ARITHMETIC.get(node.op.name)
        if not isinstance(node.op, Binary) or combine is None:
            return None
        left, right = (self.measured(each, what, ANY_NUMBER) for each in node.inputs)
        return combine(left, right)

    def _new_size(self, value: Value, what: str, low: int, high: int | None) -> Dim:
        number = value if value.dtype == I64 else self._node(Cast(I64), value)
        name = re.sub(r"\W+", "_", f"{self.base}_{what.split()[-1]}").strip("_")
        size = self.dimensions.measured(name, max(low, self._least.get(self._place(value)[0], low)), high)
        self._node(Measure(size, f"{what} of {self.base}"), number)
        return size

    def ints(self, value: Value, what: str) -> list[int]:
        """The elements of an integer tensor as plain integers. Raises Unknown as `array` does."""
        return [int(item) for item in self.dims_static(value, what)]

    def dims_static(self, value: Value, what: str) -> list[int]:
        """The same as `known_dims`, but a symbol is refused."""
        dims = self.known_dims(value, what)
        if not is_static(*dims):
            raise Unknown(f"{what} depends on {self._origin(value)}", self._pin_help(value))
        return [int(dim) for dim in dims]  # type: ignore[arg-type]

    def scalar(self, value: Value, what: str) -> float | int:
        """The one element of a known tensor. Raises Unknown as `array` does."""
        array = self.array(value, what)
        if array.size != 1:
            raise ModelError(f"{what} has {array.size} elements, not one")
        number: float | int = array.reshape(()).item()
        return number

    def _origin(self, value: Value) -> str:
        if value in self._symbolic:
            return f"the size {', '.join(map(str, self._symbolic[value].reshape(-1)[:4]))}"
        producer = value.producer
        if producer is None:
            return f"the input {value.name}"
        return f"the value {value.name}, which {producer.source.name or producer.op} computes"

    def _pin_help(self, value: Value) -> str:
        return PIN if value in self._symbolic else ""

    def _decided(self, op: Op, inputs: Sequence[Value]) -> Value | None:
        """The result that one input decides, where another depends on sizes: whether a quotient is negative and rounded up."""
        if not isinstance(op, Binary) or op.name not in DECISIVE:
            return None
        decisive, (result,) = DECISIVE[op.name], op.infer(*(value.type for value in inputs))
        decides = any(x.data is not None and x in self._foldable and np.all(x.data == decisive) for x in inputs)
        shape = static_shape(result.shape)
        return self._known(np.full(shape, decisive), BOOL) if decides and shape is not None else None

    def _evaluate(self, op: Op, inputs: Sequence[Value]) -> tuple[Value, ...] | None:
        """The results where they can be computed now, else None. Raises ShapeError."""
        types = op.infer(*(value.type for value in inputs))
        if not all(is_static(*type.shape) and type.size <= LIMIT for type in types):
            return None
        arrays = [self._symbolic.get(value, value.data) for value in inputs]
        if any(value in self._symbolic for value in inputs):
            floating = any(dtype in FLOATS for dtype in (types[0].dtype, *(value.dtype for value in inputs)))
            return self._evaluate_symbolic(op, arrays, types, floating)
        with np.errstate(all="ignore"):
            results = op.eval(*arrays)  # type: ignore[arg-type]
        made = tuple(self._known(np.asarray(result), type.dtype) for result, type in zip(results, types, strict=True))
        if any(map(has_parameter, inputs)):
            for value, unfolded in zip(made, Graph().make(op, inputs).outputs, strict=True):
                if value.origin is not None:
                    value.origin.unfolded = unfolded
        return made

    def _evaluate_symbolic(
        self, op: Op, arrays: Sequence[np.ndarray | None], types: Sequence[TensorType], floating: bool
    ) -> tuple[Value, ...] | None:
        try:
            result = ratios.evaluate(op, arrays) if floating else None
            if result is not None:
                return (self._known(result, types[0].dtype),)
            objects = [exact_objects(array) for array in arrays]
            if any(array is None for array in objects) or not self._divides(op, objects):
                return None
            results = op.eval(*objects)  # type: ignore[arg-type]
        except (Undecidable, TypeError, NotImplementedError):
            return None
        return tuple(self._known(np.asarray(result), type.dtype) for result, type in zip(results, types, strict=True))

    def _divides(self, op: Op, arrays: Sequence[np.ndarray | None]) -> bool:
        """True if a division of sizes can be one of integers: by a number that is not 0. True for every other operator."""
        if op != Binary("Div") or len(arrays) != 2 or arrays[0] is None or arrays[1] is None:
            return True
        pairs = list(np.broadcast(arrays[0], arrays[1]))
        if any(is_static(b) and b == 0 for _, b in pairs):
            return False
        return all(is_static(b) or _least(b, 1) for _, b in pairs)

    def materialized(self, value: Value) -> Value:
        """The value as a tensor that nodes compute: sizes that are only known when the model runs become one."""
        if value not in self._symbolic:
            return value
        if value not in self._made:
            parts = [self._number(element, value.dtype) for element in self._symbolic[value].reshape(-1).tolist()]
            whole = parts[0] if len(parts) == 1 else self._node(Concat(0), *parts)
            self._made[value] = whole if whole.shape == value.shape else self._node(Reshape(value.shape), whole)
        return self._made[value]

    def _number(self, element: Dim | Ratio, dtype: np.dtype) -> Value:
        """A tensor of one element: a size is the first of the numbers that start there."""
        if isinstance(element, Ratio):
            divisor = self.constant(np.array([element.denominator], dtype))
            return self._node(Binary("Div"), self._number(element.numerator, dtype), divisor)
        if not isinstance(element, Expr):
            return self.constant(np.array([element], dtype))
        size = self._node(Range(element, element + 1, 1, I64))
        return size if dtype == I64 else self._node(Cast(dtype), size)

    def _node(self, op: Op, *inputs: Value) -> Value:
        return super().all(op, *inputs, names=(f"{self.base}.{type_name(op)}",))[0]

    def _known(self, array: np.ndarray, dtype: np.dtype) -> Value:
        if array.dtype != object or all(map(is_known, array.reshape(-1).tolist())):
            return self.constant(array.astype(dtype, copy=False))
        value = Value(self.graph.fresh(f"{self.base}.sizes"), TensorType(dtype, array.shape))
        self._symbolic[value] = array
        self._foldable.add(value)
        return value


def object_array(dims: Sequence[Dim]) -> np.ndarray:
    """A vector of objects."""
    array = np.empty(len(dims), object)
    array[:] = list(dims)
    return array


def exact_objects(array: np.ndarray | None) -> np.ndarray | None:
    """The elements as integers and `Dim`s; None if one is not an integer (a `Dim` has no fractions)."""
    if array is None or array.dtype == object:
        return array
    if array.dtype in FLOATS:
        if not np.all(np.isfinite(array)) or np.any(array != np.floor(array)):
            return None
        array = array.astype(np.int64)
    result = np.empty(array.shape, object)
    result[...] = array.tolist() if array.ndim else array.item()
    return result


def _least(dim: Dim, bound: int) -> bool:
    """True if the dim is proven not to be below the bound."""
    least = lower_bound(dim)
    return least is not None and least >= bound
