"""A random valid graph while it is drawn, and what it must give.

A graph is drawn node by node; each node is computed at once by onnx's reference, so that the next one is drawn for tensors whose
elements are known. It is computed a second time with float64 in place of every float: the difference is what rounding does to a
value, of which the tolerance is a multiple. Operators that jump (Floor, comparisons, ArgMax) are given only exact numbers.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.reference import ReferenceEvaluator

OPSET = 21
MOST = 600
"""Elements of the largest tensor."""
LARGEST = 1e4
"""What no finite number exceeds."""
SPECIAL = (np.nan, np.inf, -np.inf, -0.0)

F16, F32, F64 = (np.dtype(t) for t in ("float16", "float32", "float64"))
I8, U8, I32, I64, BOOL = (np.dtype(t) for t in ("int8", "uint8", "int32", "int64", "bool"))
FLOATS, INTEGERS = (F32, F32, F32, F64, F16), (I64, I32, I8, U8)
REAL = (F32, F64)
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, BOOL)


@dataclass
class Tensor:
    """A value: what the reference computes, the same in float64, and whether every implementation gives the same bits."""

    name: str
    array: np.ndarray
    wide: np.ndarray
    exact: bool

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    def without(self, axis: int) -> tuple[int, ...]:
        """The sizes of the other axes."""
        return tuple(np.delete(self.shape, axis))

    def tolerance(self) -> float:
        """How far a result may be off."""
        if self.dtype.kind != "f":
            return 0.0
        largest = np.abs(self.wide).max(initial=1.0, where=np.isfinite(self.wide))
        noise = distance(self.array.astype(F64), self.wide)
        return 0.0 if self.exact else float(16 * noise + 32 * np.finfo(self.dtype).eps * largest)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference of finite elements."""
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))


class Rejected(Exception):
    """A node that is not drawn after all."""


def wide(array: np.ndarray) -> np.ndarray:
    """Floats as float64."""
    return array.astype(F64) if array.dtype.kind == "f" else array


@dataclass
class Drawing:
    """A graph that is being drawn."""

    draw: Callable[[st.SearchStrategy], Any]
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def number(self, low: int, high: int) -> int:
        """An integer within bounds."""
        return int(self.draw(st.integers(low, high)))

    def pick(self, items: Iterable[Any]) -> Any:
        """One of several."""
        return self.draw(st.sampled_from(list(items)))

    def some(self, items: Sequence[int], count: int) -> list[int]:
        """Several different ones, in any order."""
        return list(self.draw(st.permutations(list(items))))[:count]

    def flag(self) -> bool:
        """True or false."""
        return bool(self.draw(st.booleans()))

    def shape(self, low: int = 0, high: int = 6, sizes: Sequence[int] = (1, 2, 3, 4, 5, 7)) -> tuple[int, ...]:
        """Random sizes, not too many elements."""
        shape: list[int] = []
        for _ in range(self.number(low, high)):
            shape.append(self.pick([size for size in sizes if np.prod(shape, dtype=int) * size <= MOST] or [1]))
        return tuple(shape)

    def array(self, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
        """Random elements: small fractions of two, or small integers."""
        random = np.random.default_rng(self.number(0, 1 << 30))
        if dtype == BOOL:
            return random.integers(0, 2, shape).astype(BOOL)
        low = 0 if dtype.kind == "u" else -12
        numbers = (random.integers(low, 13, shape) / (4 if dtype.kind == "f" else 1)).astype(dtype)
        if dtype.kind == "f" and self.number(0, 7) == 7:
            numbers = np.where(random.random(shape) < 0.2, random.choice(SPECIAL, shape), numbers).astype(dtype)
        return numbers

    def leaf(self, array: np.ndarray, constant: bool | None = None) -> Tensor:
        """A new input or initializer."""
        name = f"x{len(self.feeds) + len(self.constants)}"
        fixed = self.flag() if constant is None else constant
        (self.constants if fixed else self.feeds)[name] = array
        self.tensors.append(Tensor(name, array, wide(array), True))
        return self.tensors[-1]

    def tensor(
        self,
        dtypes: Sequence[np.dtype] = FLOATS,
        low: int = 0,
        high: int = 6,
        exact: bool = False,
        finite: bool = False,
    ) -> Tensor:
        """A value of one of these dtypes and ranks, mostly one that there is; with `finite`, of finite numbers."""

        def fits(t: Tensor) -> bool:
            return t.dtype in dtypes and low <= t.rank <= high and t.array.size > 0 and (t.exact or not exact)

        fitting = [t for t in self.tensors if fits(t) and not (finite and not np.isfinite(t.array).all())]
        if fitting and self.number(0, 9):
            return self.pick(fitting[::-1])
        array = self.array(self.pick(dtypes), self.shape(low, high))
        return self.leaf(np.nan_to_num(array, posinf=1, neginf=-1) if finite else array)

    def beside(self, x: Tensor, exact: bool = False) -> Tensor:
        """A value of x's dtype that broadcasts with it."""
        fitting = [
            t for t in self.tensors if t.dtype == x.dtype and broadcast(t.shape, x.shape) and (t.exact or not exact)
        ]
        if fitting and self.flag():
            return self.pick(fitting)
        shape = [size if self.number(0, 3) else 1 for size in x.shape]
        return self.leaf(self.array(x.dtype, shape[self.number(0, len(shape)) :]))

    def ints(self, numbers: Sequence[int]) -> Tensor:
        """Sizes or axes, as an initializer."""
        return self.leaf(np.array(numbers, I64), constant=True)

    def axis(self, x: Tensor) -> int:
        """An axis, from either end."""
        return self.number(-x.rank, x.rank - 1)

    def add(
        self,
        operator: str,
        *inputs: Tensor | None,
        outputs: int = 1,
        exact: bool = False,
        captured: Sequence[Tensor] = (),
        **attributes: Any,
    ) -> list[Tensor]:
        """A node, whose graphs read `captured`. `exact` says that every implementation gives the same result for the same
        numbers. Raises Rejected."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(operator, ["" if t is None else t.name for t in inputs], names, **attributes)
        present = [t for t in (*inputs, *captured) if t is not None]
        arrays = by_reference(node, {t.name: t.array for t in present})
        widened = by_reference(node, {t.name: t.wide for t in present})
        same = exact and all(t.exact for t in present)
        made = [
            Tensor(name, array, w.astype(F64) if array.dtype.kind == "f" else array, same)
            for name, array, w in zip(names, arrays, widened, strict=True)
        ]
        for t in made:
            usual = t.dtype in ANY and t.array.size <= MOST and t.rank <= 6
            numbers = np.abs(t.wide.astype(F64))
            if not usual or numbers.max(initial=0, where=np.isfinite(numbers)) > LARGEST:
                raise Rejected(operator)
            if t.array.size == 0 and operator in WINDOWED:  # a window larger than the image is no valid node
                raise Rejected(operator)
        feeds = {t.name: t.array for t in present}
        others = by_onnxruntime(model_of([node], [info(t.name, t.array) for t in made], feeds), feeds)
        if others is None and operator in MISTAKEN:
            raise Rejected(f"{operator}: onnxruntime does not support it")
        for t, other in zip(made, others or arrays, strict=True):
            problem = difference(other, t.array, t.tolerance())
            if (
                operator in MISTAKEN
            ):  # small numbers may differ by less than the tolerance, and still by all that they are
                t.wide = wide(other) + rounding(t) if other.shape == t.shape and t.dtype.kind == "f" else wide(other)
                t.array = other
            elif problem:
                AMBIGUOUS[operator] += 1
                raise Rejected(f"{operator}: onnxruntime and the reference differ: {problem}")
        self.nodes.append(node)
        self.read.update(reads([node]))
        self.tensors += made
        return made


def rounding(t: Tensor) -> np.ndarray:
    """What float32 does to the reference's numbers: it does something like that to onnxruntime's too, which approximates."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(t.wide - t.array.astype(F64), posinf=0, neginf=0)


def broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    """True if two shapes broadcast, to not too many elements."""
    try:
        return bool(np.prod(np.broadcast_shapes(tuple(a), tuple(b))) <= MOST)
    except ValueError:
        return False


WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")


def reads(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The names that nodes read, their graphs included."""
    inner = (reads(attribute.g.node) for node in nodes for attribute in node.attribute if attribute.HasField("g"))
    return {name for node in nodes for name in node.input}.union(*inner)


MISTAKEN = {
    "LSTM": "lengths of sequences, and a reverse direction, are ignored",
    "GRU": "as LSTM",
    "RNN": "as LSTM",
    "Loop": "what is collected is concatenated along its first axis, not stacked",
    "GlobalMaxPool": "the channels are maximized too where there is one spatial axis",
    "AveragePool": "wrong for dilated windows beyond the image",
    "LpNormalization": "sums numbers for p = 1, not their sizes",
    "Slice": "a start far below 0 is left of the first element for negative steps; the standard moves it there",
}
"""What is wrong in onnx's reference: where it differs from onnxruntime, that is right."""

AMBIGUOUS: Counter[str] = Counter()
"""How often the two gave different results for another operator; the node is not drawn."""


def by_reference(node: onnx.NodeProto, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What onnx's reference computes for one node. Raises Rejected if it fails."""
    model = model_of([node], [onnx.ValueInfoProto(name=name) for name in node.output], arrays)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, dict(arrays))]
    except Exception as error:
        raise Rejected(str(error)) from error


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """What onnxruntime gives; None where it does not support the graph."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(result) for result in session.run(None, dict(feeds))]
    except Exception:  # its exceptions share no other base
        return None


def model_of(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    feeds: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] = MappingProxyType({}),
    symbolic: bool = False,
) -> onnx.ModelProto:
    """Nodes as a model, whose inputs have symbolic sizes or not."""
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    inputs = [info(name, array, symbolic) for name, array in feeds.items()]
    graph = helper.make_graph(nodes, "random", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def info(name: str, array: np.ndarray, symbolic: bool = False) -> onnx.ValueInfoProto:
    """The declaration of a value; with symbols for the sizes over 1, the same for equal ones."""
    shape = [f"n{size}" if symbolic and size > 1 else size for size in array.shape]
    return helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(array.dtype), shape)


def difference(result: np.ndarray, right: np.ndarray, tolerance: float) -> str:
    """In what a result is not right, or nothing."""
    if (result.dtype, result.shape) != (right.dtype, right.shape):
        return f"{result.dtype}{list(result.shape)}, not {right.dtype}{list(right.shape)}"
    a, b = result.astype(F64), right.astype(F64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return f"has {a[~finite][:4]} where it must have {b[~finite][:4]}"
    off = distance(a, b)
    return "" if off <= tolerance else f"differs by {off:.3g}, more than {tolerance:.3g}"


Node = Callable[[Drawing], object]
"""Draws a node, or some that belong together. Raises Rejected."""
