"""The language of loop bodies: one element of a result, written as an expression of its index.

`Op.element` builds a `Scalar` with a `Kernel`. A `Scalar` is immutable and interned (equal expressions are one object),
so a renderer finds shared subexpressions by identity. Index arithmetic is int64 and folds where it is trivial.

Meaning of the operators, for every target:

- Both operands have one dtype; a Python number or a `Dim` takes the dtype of the other. Comparisons give bool.
- float16 and bfloat16 are computed in float32 and rounded when they are stored, or by an explicit `Kernel.cast`.
- Integers wrap around. `//` and `%` round down; `/` rounds toward zero for integers, `remainder` is its rest (C's `%`,
  and `fmod` for floats). Division of integers by zero gives 0. A shift by the width of the type or more gives 0
  (or the sign: -1).
- `maximum` and `minimum` give NaN if either operand is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, get_args
from weakref import WeakValueDictionary

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.types import BF16, BOOL, F16, F32, I64, INTEGERS, TensorType
from graphc.shapes import Dim, Expr
from graphc.shapes.dim import Undecidable, decide

if TYPE_CHECKING:
    from graphc.kernels.use import KernelUse

Operand: TypeAlias = Union["Scalar", int, float, Expr]
Reduction: TypeAlias = Literal["sum", "prod", "max", "min"]

_WIDE = {F16: F32, BF16: F32}
_TABLE: WeakValueDictionary[tuple[Hashable, ...], Scalar] = WeakValueDictionary()
_LOCK = RLock()


class Scalar:
    """A node of an expression. What `args` and `data` are depends on `kind`:

    | kind | data | args |
    | --- | --- | --- |
    | constant | the value's bytes (see `value`) | |
    | variable | (name, extent): runs from 0 to extent - 1 | |
    | size | a symbolic Dim | |
    | number | the name of an argument of the kernel | |
    | load | the input's number | its index, one int64 an axis |
    | element | the input's number | its offset in row-major order: what a load becomes |
    | operate | a key of `OPERATORS` | one or two operands |
    | apply | a C expression with `{0}`, `{1}`, … and `{f}` | the operands |
    | select | | condition, value if true, value if false |
    | cast | | the operand |
    | reduce | (kind, its variables) | the body |
    | require | the message | condition, value |

    `free` are the variables that the value depends on. `total` is true if it can be computed anywhere, even where a
    condition that guards it is false: it reads no tensor and cannot fault. A constant alone has a `value`, its number. `dim` is
    the size that an int64 constant or size is; None for what is not known before the loop runs.
    """

    __slots__ = ("__weakref__", "args", "data", "dim", "dtype", "free", "kind", "total", "value")

    kind: str
    dtype: np.dtype
    args: tuple[Scalar, ...]
    data: Hashable
    free: frozenset[Scalar]
    total: bool
    value: int | float | bool
    dim: Dim | None

    def __reduce__(self) -> tuple[Callable[..., Scalar], tuple[Any, ...]]:
        """How it is pickled: what is read is the one node with these fields, too."""
        return make, (self.kind, self.dtype, self.args, self.data)

    def __add__(self, other: Operand) -> Scalar:
        return _binary("+", self, other)

    def __radd__(self, other: Operand) -> Scalar:
        return _binary("+", other, self)

    def __sub__(self, other: Operand) -> Scalar:
        return _binary("-", self, other)

    def __rsub__(self, other: Operand) -> Scalar:
        return _binary("-", other, self)

    def __mul__(self, other: Operand) -> Scalar:
        return _binary("*", self, other)

    def __rmul__(self, other: Operand) -> Scalar:
        return _binary("*", other, self)

    def __truediv__(self, other: Operand) -> Scalar:
        return _binary("/", self, other)

    def __rtruediv__(self, other: Operand) -> Scalar:
        return _binary("/", other, self)

    def __floordiv__(self, other: Operand) -> Scalar:
        return _binary("//", self, other)

    def __rfloordiv__(self, other: Operand) -> Scalar:
        return _binary("//", other, self)

    def __mod__(self, other: Operand) -> Scalar:
        return _binary("%", self, other)

    def __rmod__(self, other: Operand) -> Scalar:
        return _binary("%", other, self)

    def __pow__(self, other: Operand) -> Scalar:
        return _binary("**", self, other)

    def __and__(self, other: Operand) -> Scalar:
        return _binary("&", self, other)

    def __or__(self, other: Operand) -> Scalar:
        return _binary("|", self, other)

    def __xor__(self, other: Operand) -> Scalar:
        return _binary("^", self, other)

    def __lshift__(self, other: Operand) -> Scalar:
        return _binary("<<", self, other)

    def __rshift__(self, other: Operand) -> Scalar:
        return _binary(">>", self, other)

    def __lt__(self, other: Operand) -> Scalar:
        return _binary("<", self, other)

    def __le__(self, other: Operand) -> Scalar:
        return _binary("<=", self, other)

    def __gt__(self, other: Operand) -> Scalar:
        return _binary(">", self, other)

    def __ge__(self, other: Operand) -> Scalar:
        return _binary(">=", self, other)

    def __neg__(self) -> Scalar:
        return constant(-self.value, I64) if self.dtype == I64 and self.kind == "constant" else _unary("neg", self)

    def __invert__(self) -> Scalar:
        """Bitwise complement of an integer; negation of a bool."""
        return _unary("~", self)

    def __bool__(self) -> bool:
        raise TypeError("a Scalar has no truth value before the kernel runs: use Kernel.select, and_, or_, not_")

    def eq(self, other: Operand) -> Scalar:
        """True if both are equal."""
        return _binary("==", self, other)

    def ne(self, other: Operand) -> Scalar:
        """True if both differ."""
        return _binary("!=", self, other)

    def and_(self, other: Scalar) -> Scalar:
        """True if both conditions hold; the second is computed only if the first holds."""
        if _is_constant(self):
            return other if self.value else self
        return self if _is_constant(other) and other.value else make("operate", BOOL, (self, other), "and")

    def or_(self, other: Scalar) -> Scalar:
        """True if one of the conditions holds; the second is computed only if the first does not."""
        if _is_constant(self):
            return self if self.value else other
        return self if _is_constant(other) and not other.value else make("operate", BOOL, (self, other), "or")

    def not_(self) -> Scalar:
        """True if the condition does not hold."""
        return constant(not self.value, BOOL) if _is_constant(self) else make("operate", BOOL, (self,), "not")

    def remainder(self, other: Operand) -> Scalar:
        """The rest of the division that rounds toward zero: it has the sign of the dividend."""
        return _binary("rem", self, other)

    def maximum(self, other: Operand) -> Scalar:
        """The larger one; NaN if either is."""
        return _binary("max", self, other)

    def minimum(self, other: Operand) -> Scalar:
        """The smaller one; NaN if either is."""
        return _binary("min", self, other)

    def __repr__(self) -> str:
        match self.kind:
            case "constant":
                return repr(self.value)
            case "variable":
                return str(self.data[0])  # type: ignore[index]
            case "size":
                return str(self.data)
        shown = [] if self.data is None else [str(self.data)]
        return f"{self.kind}({', '.join(shown + [repr(arg) for arg in self.args])})"


class Kernel:
    """What `Op.element` builds its expression with. `inputs` are the types of the tensors that are read."""

    def __init__(self, inputs: Sequence[TensorType]) -> None:
        self.inputs = tuple(inputs)
        self._variables = 0

    def load(self, i: int, index: Sequence[Operand]) -> Scalar:
        """The element of input `i` at `index`, one entry for each of its axes.

        An axis of size 1 is read at 0 whatever its entry is, so that a NumPy-broadcast operand needs no special case.
        Every other entry must be in range wherever the value is computed: guard it with `select` or `require`.
        """
        type = self.inputs[i]
        if len(index) != type.rank:
            raise ValueError(f"an index of {len(index)} entries for input {i}, which is {type}")
        entries = [
            constant(0, I64) if size == 1 else _operand(entry, I64)
            for entry, size in zip(index, type.shape, strict=True)
        ]
        return make("load", type.dtype, tuple(entries), i)

    def const(self, value: float, dtype: np.dtype) -> Scalar:
        """A number."""
        return constant(value, dtype)

    def size(self, dim: Dim) -> Scalar:
        """A size, as int64."""
        return _operand(dim, I64)

    def call(self, template: str, *args: Scalar, dtype: np.dtype | None = None) -> Scalar:
        """A C expression of `args`, which stand in it as `{0}`, `{1}`, …; `dtype` is the result's (default: that of the
        first argument).

        `{f}` is `f` where the computation is in float32 and nothing in float64, as in `sqrt{f}({0})` and `1.0{f}`. A
        name alone is a function: `erf` stands for `erf{f}({0})`. The expression may use math.h. It must be defined for
        every value, so integer division, shifts and casts are written with the operators and `cast` instead.
        """
        if template.isidentifier():
            template = f"{template}{{f}}({', '.join(f'{{{i}}}' for i in range(len(args)))})"
        return make("apply", dtype or args[0].dtype, tuple(args), template)

    def select(self, condition: Scalar, a: Operand, b: Operand, both: bool = False) -> Scalar:
        """`a` if the condition holds, else `b`. Only the chosen one is computed; or `both`, where both can be, for compilers make
        vectors of that."""
        first, second = _same(a, b)
        if _is_constant(condition):
            return first if condition.value else second
        return first if first is second else make("select", first.dtype, (condition, first, second), both)

    def cast(self, x: Scalar, dtype: np.dtype) -> Scalar:
        """The number in another type. To an integer: toward zero, and what does not fit becomes what NumPy makes of it
        on x86; to bool: whether it is not zero; to a narrower float: to nearest, ties to even."""
        if x.dtype == dtype:
            return x
        if x.kind == "constant" and x.dtype.kind in "iub" and dtype.kind in "iub":
            return constant(np.asarray(x.value).astype(dtype).item(), dtype)
        return make("cast", dtype, (x,))

    def reduce(
        self,
        kind: Reduction,
        extents: Sequence[Dim | Scalar],
        body: Callable[[tuple[Scalar, ...]], Scalar],
        dtype: np.dtype | None = None,
    ) -> Scalar:
        """The sum, product, largest or smallest value of `body` at every index within `extents` (sizes), in row-major
        order.

        Sums and products of floats are accumulated in float64; NaN makes a maximum or minimum NaN. Of nothing, a sum
        is 0, a product 1, a maximum the lowest value of the type (-inf), a minimum the highest. `dtype` (default: the
        body's) is the result's; the body is cast to it first.
        """
        if kind not in get_args(Reduction):
            raise ValueError(f"no reduction {kind!r}")
        dims = [extent.dim if isinstance(extent, Scalar) else extent for extent in extents]
        if any(dim is None for dim in dims):
            raise ValueError("the extents of a reduction are sizes")
        index = tuple(constant(0, I64) if dim == 1 else self._variable(dim) for dim in dims)  # type: ignore[arg-type]
        value = body(index)
        value = self.cast(value, dtype or value.dtype)
        variables = tuple(entry for entry in index if entry.kind == "variable")
        return make("reduce", value.dtype, (value,), (kind, variables)) if variables else value

    def require(self, condition: Scalar, then: Scalar, message: str) -> Scalar:
        """`then`, which is computed only if the condition holds. If it does not, the run fails with `message`."""
        if _is_constant(condition) and condition.value:
            return then
        return make("require", then.dtype, (condition, then), message)

    def _variable(self, extent: Dim) -> Scalar:
        self._variables += 1
        return variable(f"k{self._variables - 1}", extent)


def trace(use: KernelUse) -> Scalar:
    """The expression of one element of a kernel's result, at `result_index(use.shape)`.

    Raises GraphcError if the operator has no loop form, or one of another dtype.
    """
    types = [TensorType(dtype, shape) for dtype, shape in use.inputs]
    body = use.op.element(Kernel(types), result_index(use.shape), *types)  # type: ignore[attr-defined]
    if body is None:
        raise GraphcError(f"{use.op} has no loop form for {', '.join(map(str, types))}")
    if body.dtype != use.dtype:
        raise GraphcError(f"{use.op}: its loop form gives {body.dtype}, not {use.dtype}")
    return body  # type: ignore[no-any-return]


def result_index(shape: Sequence[Dim]) -> tuple[Scalar, ...]:
    """The index of an element of a result: a variable for each axis, 0 for an axis of size 1."""
    return tuple(constant(0, I64) if size == 1 else variable(f"i{axis}", size) for axis, size in enumerate(shape))


def make(kind: str, dtype: np.dtype, args: tuple[Scalar, ...] = (), data: Hashable = None) -> Scalar:
    """The one node with these fields."""
    key = (kind, dtype, args, data)
    with _LOCK:
        found = _TABLE.get(key)
        if found is not None:
            return found
        found = Scalar()
        found.kind, found.dtype, found.args, found.data = key
        bound = data[1] if kind == "reduce" else ()  # type: ignore[index]
        free = frozenset().union(*(arg.free for arg in args)).difference(bound)
        found.free = frozenset({found}) if kind == "variable" else free
        found.total = kind not in ("load", "element", "reduce", "require") and all(arg.total for arg in args)
        found.dim = data if kind == "size" else None  # type: ignore[assignment]
        if kind == "constant":
            found.value = np.frombuffer(data, _WIDE.get(dtype, dtype))[0].item()  # type: ignore[call-overload]
            found.dim = found.value if dtype == I64 else None  # type: ignore[assignment]
        _TABLE[key] = found
        return found


def constant(value: float, dtype: np.dtype) -> Scalar:
    """A number; one of float16 or bfloat16 is as exact as what is computed with it, float32. Raises TypeError if the type
    is of integers and the number is none."""
    if type(value) is int and dtype == I64:
        return _index(value)
    if dtype in INTEGERS and not float(value).is_integer():
        raise TypeError(f"{value} is not an integer")
    return make("constant", dtype, (), np.asarray(value).astype(_WIDE.get(dtype, dtype)).tobytes())


@lru_cache(maxsize=4096)
def _index(value: int) -> Scalar:
    """A number of int64: most constants are places and sizes, and most of those the same few."""
    return make("constant", I64, (), np.asarray(value).astype(I64).tobytes())


def variable(name: str, extent: Dim) -> Scalar:
    """A loop's index, from 0 to `extent` - 1."""
    return make("variable", I64, (), (name, extent))


_FOLD: dict[str, Callable[[Dim, Dim], Dim | bool]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "==": lambda a, b: True if a == b else not decide((a - b) * (a - b), "positive"),
    "!=": lambda a, b: False if a == b else decide((a - b) * (a - b), "positive"),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
OPERATORS = frozenset(
    {*_FOLD, "/", "rem", "**", "&", "|", "^", "<<", ">>", "max", "min", "neg", "~", "and", "or", "not"}
)
_RIGHT_IDENTITY = {"+": 0, "-": 0, "*": 1, "//": 1, "/": 1}
_LEFT_IDENTITY = {"+": 0, "*": 1}


def _binary(operator: str, left: Operand, right: Operand) -> Scalar:
    a, b = _same(left, right)
    if a.dtype in INTEGERS:
        folded = _folded(operator, a, b)
        if folded is not None:
            return folded
    return make("operate", BOOL if operator in COMPARISONS else a.dtype, (a, b), operator)


def _unary(operator: str, x: Scalar) -> Scalar:
    return make("operate", x.dtype, (x,), operator)


def _folded(operator: str, a: Scalar, b: Scalar) -> Scalar | None:
    """What integer arithmetic simplifies to, or None."""
    left, right = a.dim, b.dim
    if left is not None and right is not None and operator in _FOLD and right != 0:
        return _fold(operator, left, right)
    right_value, left_value = (x.value if x.kind == "constant" else None for x in (b, a))
    if right_value is not None and _RIGHT_IDENTITY.get(operator) == right_value:
        return a
    if left_value is not None and _LEFT_IDENTITY.get(operator) == left_value:
        return b
    if (operator == "*" and 0 in (left_value, right_value)) or (operator == "%" and right_value == 1):
        return constant(0, a.dtype)
    return constant(0, a.dtype) if operator == "-" and a is b else None


def _fold(operator: str, a: Dim, b: Dim) -> Scalar | None:
    try:
        result = _FOLD[operator](a, b)
    except Undecidable:
        return None
    if operator in COMPARISONS:
        return constant(bool(result), BOOL)
    return _operand(result, I64) if isinstance(result, Expr) or -(2**63) <= result < 2**63 else None


def _same(a: Operand, b: Operand) -> tuple[Scalar, Scalar]:
    """Both operands as scalars of one dtype."""
    dtype = next((x.dtype for x in (a, b) if isinstance(x, Scalar)), I64)
    first, second = _operand(a, dtype), _operand(b, dtype)
    if first.dtype != second.dtype:
        raise TypeError(f"operands of {first.dtype} and {second.dtype}: cast one")
    return first, second


def _operand(x: Operand, dtype: np.dtype) -> Scalar:
    if isinstance(x, Scalar):
        return x
    if isinstance(x, Expr):
        return make("size", I64, (), x)
    return constant(x, dtype)


def _is_constant(x: Scalar) -> bool:
    return x.kind == "constant"
