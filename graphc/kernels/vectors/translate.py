"""Turns an expression of one element into instructions for blocks of elements, each in the outermost place where it can be.

The values are those that `kernels/c/emit.py` makes of the same expression, bit by bit. Where a condition decides what is
computed, both sides are, for a whole block, unless none of its elements needs one of them; tensors are read, and faults found,
only where the conditions around hold (a mask).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from graphc.errors import GraphcError
from graphc.ir.types import BF16, BOOL, F16, F64, FLOATS, INTEGERS, NARROW
from graphc.kernels.lanes import variables_of
from graphc.kernels.linear import Linear, is_positive, linear
from graphc.kernels.nest import extent, ordered, walk
from graphc.kernels.scalar import Scalar, variable
from graphc.kernels.use import KernelUse
from graphc.kernels.vectors.code import ELEMENTS, ONE, ROWS, Argument, Code, Frame, Instruction, Register
from graphc.kernels.vectors.formula import formula
from graphc.shapes import Dim, Expr, lower_bound, product

SHORT_REDUCTION = 32
"""Numbers up to which a reduction is a loop around all results at once, even if these do not lie side by side in memory."""

SHORT_ROW = 8
"""Results that must lie side by side for that, in a longer reduction."""

OPERATORS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "rem": "remainder", "//": "floor_divide", "%": "modulo",
    "**": "power", "<<": "shift_left", ">>": "shift_right", "&": "and", "|": "or", "^": "xor", "max": "max", "min": "min",
    "<": "less", "<=": "less_equal", ">": "less", ">=": "less_equal", "==": "equal", "!=": "not_equal",
    "neg": "negate", "~": "complement", "not": "not", "and": "and", "or": "or",
}  # fmt: skip
"""The interpreter's names of operators; those of `SWAPPED` have their operands exchanged."""

SWAPPED = frozenset({">", ">="})

COMPARISONS = frozenset({"less", "less_equal", "equal", "not_equal"})

OF_BOOLS = {"+": "or", "*": "and", "max": "or", "min": "and", "~": "not", "-": "xor"}

OF_ANY_SIGN = frozenset(
    {
        "add",
        "subtract",
        "multiply",
        "and",
        "or",
        "xor",
        "shift_left",
        "equal",
        "not_equal",
        "negate",
        "complement",
        "truth",
    }
)
"""Operators that are the same for integers with and without a sign: the interpreter has those without."""

TOTALS = {"sum": "add", "prod": "multiply", "max": "max", "min": "min"}


def translate(use: KernelUse) -> Code:
    """A kernel's instructions. Raises GraphcError if its operator has no loop form."""
    loops = ordered(use)
    axes = loops.axes or (variable("i0", 1),)
    made = _Translation([loops.place, loops.body], [product(shape) for _, shape in use.inputs])
    main = made.frame(None, axes)
    made.store(loops.place, loops.body, use.dtype, main)
    return made.code(main)


class Region:
    """Instructions that are done together: `once` in a frame, the `body` of a frame, of a loop, or of a `branch`.

    `variables` are the indices that it makes, `axes` those of its frame. A `barrier` may not run at all, so that what reads
    memory must stay inside. `values` are the registers in which values are.
    """

    def __init__(
        self, kind: str, parent: Region | None, frame: Frame, axes: tuple[Scalar, ...], variables: Sequence[Scalar] = ()
    ) -> None:
        self.kind, self.parent, self.frame, self.axes = kind, parent, frame, axes
        self.variables = frozenset(variables)
        self.barrier = kind == "branch"
        self.condition: tuple[Register, bool] | None = None
        self.parts: list[Instruction | Region] = []
        self.values: dict[Scalar, Register] = {}
        self.masked: Register | None = None
        self.wide: dict[tuple[Register, int], Register] = {}

    def around(self) -> list[Region]:
        """The region and those that it is in."""
        return [self, *([] if self.parent is None else self.parent.around())]


class _Translation:
    """The instructions of expressions; `sizes` are the numbers of elements of the kernel's inputs."""

    def __init__(self, roots: Sequence[Scalar], sizes: Sequence[Dim]) -> None:
        self.sizes = sizes
        self.uses = Counter(arg for node in walk(*roots) for arg in node.args)
        self.registers: list[Register] = []
        self.constants: dict[object, Register] = {}
        self.literals: dict[int, tuple[bytes | Dim, str]] = {}
        self.places: list[tuple[Register, int]] = []
        self.numbers: dict[bytes | Dim, int] = {}
        self.frames: list[Frame] = []
        self.homes: dict[int, Region] = {}
        self.faults: list[str] = []

    # Registers and regions

    def register(self, type: str, lanes: int, home: Region | None) -> Register:
        """A new register, of a region; of none, if it holds a constant."""
        found = Register(len(self.registers), type, lanes)
        self.registers.append(found)
        if home is not None:
            self.homes[found.number] = home
        return found

    def number(self, value: bytes | Dim) -> int:
        """The place of a constant's bits, or of a size, among the numbers."""
        return self.numbers.setdefault(value, len(self.numbers))

    def constant(self, value: bytes | Dim, type: str, lanes: int = ONE) -> Register:
        """A register that holds a number in all lanes; integers as sizes."""
        value = value.ljust(8, b"\0") if isinstance(value, bytes) else value
        key = (value, type, lanes)
        if key not in self.constants:
            found = self.constants[key] = self.register(type, lanes, None)
            self.literals[found.number] = value, type
            self.places.append((found, self.number(value)))
        return self.constants[key]

    def frame(self, parent: Region | None, axes: Sequence[Scalar]) -> Region:
        """The body of a new frame."""
        frame = Frame([(self.number(extent(axis)), None) for axis in axes])
        self.frames.append(frame)
        once = Region("once", parent, frame, tuple(axes))
        once.barrier = not all(is_positive(extent(axis)) for axis in axes)
        return Region("body", once, frame, once.axes, axes)

    def emit(self, region: Region, name: str, to: Register | None, *args: Argument, lanes: int | None = None) -> None:
        """Add an instruction."""
        region.parts.append(Instruction(name, to.lanes if lanes is None and to else lanes or 0, to, list(args)))

    def operate(self, region: Region, name: str, type: str, *args: Register | float) -> Register:
        """The result of an operator, for as many lanes as its operands have."""
        first = next(arg for arg in args if isinstance(arg, Register))
        of = _unsigned(name, first)
        if name.startswith("select"):
            of = next(arg.type for arg in args[1:] if isinstance(arg, Register)).replace("f", "u").replace("i", "u")
        registers = [arg if isinstance(arg, Register) else self.literal(arg, first.type) for arg in args]
        lanes = max(arg.lanes for arg in registers)
        wide = [self.expanded(arg, lanes, region) for arg in registers]
        result = self.register(type, lanes, region)
        self.emit(region, f"{name}_{of}", result, *wide)
        return result

    def literal(self, value: float, type: str) -> Register:
        """A number of a type of floats or integers."""
        if type[0] == "f":
            return self.constant(np.array(value, np.float32 if type == "f32" else np.float64).tobytes(), type)
        return self.constant(int(value), type)

    def expanded(self, value: Register, lanes: int, region: Region) -> Register:
        """The same value in more lanes."""
        if value.lanes == lanes:
            return value
        if value.number in self.literals:
            return self.constant(*self.literals[value.number], lanes).read_as(value.type)
        home, around, place = self.homes[value.number], region.around(), region
        while home in around and place is not home and place.kind != "once":
            assert place.parent is not None
            place = place.parent
        found_wide = place.wide.get((value, lanes))
        if found_wide is None:
            found_wide = place.wide[value, lanes] = self.register(value.type, lanes, place)
            self.emit(place, "expand", found_wide, value, None, None, None, value.lanes)
        return found_wide

    def mask(self, region: Region) -> Register | None:
        """The lanes for which the conditions around a region hold; None for all."""
        if region.kind == "once":
            return None
        assert region.parent is not None
        if region.masked is None:
            above = self.mask(region.parent)
            if region.condition is None:
                return above
            condition, holds = region.condition
            own = condition if holds else self.operate(region.parent, "not", "u8", condition)
            region.masked = own if above is None else self.operate(region.parent, "and", "u8", above, own)
        return region.masked

    # Values

    def value(self, node: Scalar, region: Region) -> Register:
        """The register that holds a value in a region; what it needs is computed before."""
        if node.kind == "constant" or node.kind == "size":
            return self.constant_of(node)
        found = self.find(node, region)
        if found is not None:
            return found
        home = self.home(node, region)
        method: Callable[[Scalar, Region], Register] = getattr(self, f"_{node.kind}")
        home.values[node] = made = method(node, home)
        return made if home is region else self.find(node, region) or made

    def constant_of(self, node: Scalar) -> Register:
        """A constant or a size."""
        if node.kind == "size":
            return self.constant(node.data, "i64")  # type: ignore[arg-type]
        assert isinstance(node.data, bytes)
        return self.constant(node.data, register_type(node.dtype))

    def find(self, node: Scalar, region: Region | None) -> Register | None:
        """A value that is known in a region, or around it: within a frame, that of the lane for which it runs."""
        if region is None:
            return None
        found = region.values.get(node)
        if found is None and node in region.variables:
            found = self.index(node, region)
        if found is None:
            found = self.find(node, region.parent)
            if found is not None and region.kind == "once" and found.lanes != ONE:
                source, found = found, self.register(found.type, ONE, region)
                region.frame.imports.append((source, found))
                region.values[node] = found
        return found

    def index(self, node: Scalar, region: Region) -> Register:
        """The register of a frame's index."""
        place = region.axes.index(node)
        found = self.register("i64", ELEMENTS if node is region.axes[-1] else ROWS, region)
        region.frame.axes[place] = region.frame.axes[place][0], found
        region.values[node] = found
        return found

    def home(self, node: Scalar, region: Region) -> Region:
        """The outermost region that can compute a value that is needed here. It leaves whole loops, and branches if it is needed
        again, or reads what is surely there."""
        home = region
        while region.parent is not None:
            if region.variables & node.free or (region.barrier and not self.is_safe(node, region.parent)):
                break
            if region.kind != "branch" or (node.total and self.uses[node] > 1) or self.is_there(node):
                home = region.parent
            region = region.parent
        return home

    def is_safe(self, node: Scalar, region: Region) -> bool:
        """True if a value can be computed in a region even where the condition that guards it does not hold."""
        if node.total or self.is_there(node) or self.find(node, region) is not None:
            return True
        return node.kind in ("operate", "apply", "select", "cast") and all(
            self.is_safe(arg, region) for arg in node.args
        )

    def is_there(self, node: Scalar) -> bool:
        """True if a node reads an element that is proven to be in its tensor, whatever conditions hold."""
        if node.kind != "element" or not node.args[0].total:
            return False
        offset = linear(node.args[0])
        low, high = offset.low, offset.high
        least = None if low is None else lower_bound(low)
        return least is not None and least >= 0 and high is not None and is_positive(self.sizes[int(node.data)] - high)  # type: ignore[call-overload]

    # Kinds of nodes

    def _variable(self, node: Scalar, region: Region) -> Register:
        raise AssertionError(f"{node} is not the index of a loop around")

    def _element(self, node: Scalar, region: Region) -> Register:
        place = self.affine(node.args[0], region)
        mask = self.mask(region)
        number = int(node.data)  # type: ignore[call-overload]
        type = register_type(node.dtype) if node.dtype not in (F16, BF16) else "u16"
        if place is not None and place[0].lanes != ELEMENTS:
            base, stride = place
            mask = None if mask is None else self.expanded(mask, ELEMENTS, region)
            raw = self.register(type, ELEMENTS, region)
            self.emit(region, "load", raw, number, base, stride, mask, base.lanes)
        else:
            index = self.value(node.args[0], region)
            lanes = max(index.lanes, ONE if mask is None else mask.lanes)
            index = self.expanded(index, lanes, region)
            mask = None if mask is None else self.expanded(mask, lanes, region)
            raw = self.register(type, lanes, region)
            self.emit(region, "gather", raw, number, index, None, mask)
        return self.widened(raw, node.dtype, region)

    def widened(self, raw: Register, dtype: np.dtype, region: Region) -> Register:
        """What is computed with: halves as float32."""
        if dtype not in (F16, BF16):
            return raw
        return self.operate(region, "from_f16" if dtype == F16 else "from_bf16", "f32", raw)

    def affine(self, index: Scalar, region: Region) -> tuple[Register, Register] | None:
        """The offset of a row's first element, and from there the distance of one to the next; None if they are not so
        regular, or the same for a whole row."""
        axis = region.axes[-1]
        terms = linear(index).terms
        stride = terms.get(axis)
        if stride is None or any(axis in atom.free for atom in terms if atom is not axis):
            return None
        rest = Linear({atom: factor for atom, factor in terms.items() if atom is not axis}, linear(index).constant)
        return self.value(rest.scalar(self.depth(region)), region), self.constant(stride, "i64")

    def depth(self, region: Region) -> Callable[[Scalar], int]:
        """The innermost loop that a term of an offset depends on."""
        order: dict[Scalar, int] = {}
        place: Region | None = region
        while place is not None:
            axes = place.axes if place.kind == "body" else tuple(place.variables)
            order = {axis: level for level, axis in enumerate([*axes, *order])}
            place = place.parent
        return lambda atom: max((order.get(axis, 0) for axis in atom.free), default=-1)

    def _apply(self, node: Scalar, region: Region) -> Register:
        args = [self.value(arg, region) for arg in node.args]
        made = formula(str(node.data), args, lambda name, type, *values: self.operate(region, name, type, *values))
        return made.read_as(register_type(node.dtype))

    def _operate(self, node: Scalar, region: Region) -> Register:
        operator, bools = str(node.data), node.args[0].dtype == BOOL
        if operator in ("and", "or"):
            return self._lazy(node, region)
        args = [self.value(arg, region) for arg in node.args]
        if operator in SWAPPED:
            args.reverse()
        name = OF_BOOLS.get(operator, OPERATORS[operator]) if bools else OPERATORS[operator]
        return self.operate(region, name, "u8" if name in COMPARISONS else args[0].type, *args)

    def _lazy(self, node: Scalar, region: Region) -> Register:
        first = self.value(node.args[0], region)
        branch = self.branch(region, first, node.data == "and")
        second = self.value(node.args[1], branch)
        self.close(branch)
        if node.data == "and":
            return self.operate(region, "and", "u8", first, second)
        return self.operate(region, "select", "u8", first, first, second)

    def branch(self, region: Region, condition: Register, holds: bool) -> Region:
        """What is done where a condition holds, or does not."""
        made = Region("branch", region, region.frame, region.axes)
        made.condition = condition, holds
        return made

    def close(self, branch: Region) -> None:
        """Add a branch to the region that it is in, if there is something in it."""
        if branch.parts:
            assert branch.parent is not None
            self.mask(branch)
            branch.parent.parts.append(branch)

    def _select(self, node: Scalar, region: Region) -> Register:
        condition = self.value(node.args[0], region)
        if node.data:
            first, second = (self.value(arg, region) for arg in node.args[1:])
            return self.operate(region, "select", first.type, condition, first, second)
        values = []
        for arg, holds in zip(node.args[1:], (True, False), strict=True):
            branch = self.branch(region, condition, holds)
            values.append(self.value(arg, branch))
            self.close(branch)
        return self.operate(region, "select", values[0].type, condition, *values)

    def _require(self, node: Scalar, region: Region) -> Register:
        condition = self.value(node.args[0], region)
        fails = self.branch(region, condition, False)
        mask = self.mask(fails)
        assert mask is not None
        self.emit(region, "fault", None, mask, self.fault(str(node.data)), lanes=mask.lanes)
        holds = self.branch(region, condition, True)
        value = self.value(node.args[1], holds)
        self.close(holds)
        if node.dtype in FLOATS:  # what is there where it fails may be anything but an index
            return value
        return self.operate(region, "select", value.type, condition, value, self.literal(0, value.type))

    def fault(self, message: str) -> int:
        """The number of a message, from 1."""
        if message not in self.faults:
            self.faults.append(message)
        return self.faults.index(message) + 1

    def _cast(self, node: Scalar, region: Region) -> Register:
        source, dtype = node.args[0].dtype, node.dtype
        value = self.value(node.args[0], region)
        if dtype in (F16, BF16):
            return self.widened(self.rounded(value, source, dtype, region), dtype, region)
        return self.converted(value, register_type(dtype), region, truth=dtype == BOOL and source != BOOL)

    def converted(self, value: Register, type: str, region: Region, truth: bool = False) -> Register:
        """A number as another type."""
        if truth:
            return self.operate(region, "truth", "u8", value)
        if value.type == type:
            return value
        if type[0] == "f":
            return self.operate(region, f"to_{type}", type, value)
        if value.type[0] == "f":
            by = {"i64": "i64", "u32": "i64", "u64": "u64"}.get(type, "i32")
            value = self.operate(region, f"to_{by}", by, value)
        if value.size == int(type[1:]) // 8:
            return value.read_as(type)
        return self.operate(region, f"to_u{type[1:]}", type, value)

    def rounded(self, value: Register, source: np.dtype, dtype: np.dtype, region: Region) -> Register:
        """The bits of a number as a half. bfloat16 is rounded by way of float, as elsewhere."""
        if source != F64 or dtype == BF16:
            value = self.converted(value, "f32", region)
        return self.operate(region, "to_f16" if dtype == F16 else "to_bf16", "u16", value)

    # Reductions

    def _reduce(self, node: Scalar, region: Region) -> Register:
        return self._in_lanes(node, region) if self.side_by_side(node, region) else self._in_frame(node, region)

    def side_by_side(self, node: Scalar, region: Region) -> bool:
        """True if a reduction is a loop around all lanes at once, rather than one lane after the other."""
        axis = region.axes[-1]
        count = 1
        for each in variables_of(node):
            size = extent(each)
            count = count * size if not isinstance(size, Expr) else SHORT_REDUCTION + 1
        size = extent(axis)
        if axis in node.free and (isinstance(size, Expr) or size >= SHORT_ROW):
            strides = [linear(each.args[0]).terms.get(axis) for each in walk(node.args[0]) if each.kind == "element"]
            if 1 in strides and all(stride in (None, 1) for stride in strides):
                return True
        return count <= SHORT_REDUCTION

    def total(self, node: Scalar) -> tuple[str, bytes | int, str]:
        """The type in which a reduction adds up, what it begins with, and how it goes on."""
        kind, dtype = str(node.data[0]), node.dtype  # type: ignore[index]
        name = TOTALS[kind]
        if dtype in FLOATS and kind in ("sum", "prod"):
            return "f64", np.float64(kind == "prod").tobytes(), name
        type = register_type(dtype)
        if dtype in FLOATS:
            infinity = np.array(-np.inf if kind == "max" else np.inf, np.float64 if type == "f64" else np.float32)
            return type, infinity.tobytes(), name
        if dtype == BOOL:
            return type, int(kind in ("prod", "min")), "max" if kind in ("sum", "max") else "min"
        limits = np.iinfo(dtype)
        return type, int({"sum": 0, "prod": 1, "max": limits.min, "min": limits.max}[kind]), name

    def _in_lanes(self, node: Scalar, region: Region) -> Register:
        type, first, name = self.total(node)
        inner, opened = region, []
        for each in variables_of(node):
            size = self.constant(extent(each), "i64")
            inner = Region("loop", inner, region.frame, region.axes, [each])
            inner.barrier = not is_positive(extent(each))
            index = inner.values[each] = self.register("i64", ONE, inner)
            opened.append((inner, size, index))
        value = self.value(node.args[0], inner)
        total = self.register(type, value.lanes, region)
        start = self.constant(first, type, ONE)
        self.emit(region, "expand", total, start, None, None, None, ONE)
        self.emit(inner, f"total_{name}_{_unsigned(name, value)}", total, value)
        for loop, size, index in reversed(opened):
            assert loop.parent is not None
            loop.parts.insert(0, Instruction("loop", ONE, index, [size]))
            loop.parts.append(Instruction("next", ONE, None, [index]))
            loop.parent.parts.append(loop)
        return self.converted(total, register_type(node.dtype), region)

    def _in_frame(self, node: Scalar, region: Region) -> Register:
        type, first, name = self.total(node)
        body = self.frame(region, variables_of(node))
        frame, once = body.frame, body.parent
        number = len(self.frames) - 1
        assert once is not None
        total = self.register(type, ONE, once)
        self.emit(once, "expand", total, self.constant(first, type), None, None, None, ONE)
        value = self.expanded(self.value(node.args[0], body), ELEMENTS, body)
        self.emit(body, f"fold_{name}_{_unsigned(name, value)}", total, value, lanes=ELEMENTS)
        mask = self.mask(region)
        lanes = max([ONE if mask is None else mask.lanes, *(source.lanes for source, _ in frame.imports)])
        frame.imports = [(self.expanded(source, lanes, region), to) for source, to in frame.imports]
        mask = None if mask is None else self.expanded(mask, lanes, region)
        result = self.register(type, lanes, region)
        region.parts.append(Instruction("reduce", lanes, result, [number, None, total, mask]))
        region.parts += [once, body]
        return self.converted(result, register_type(node.dtype), region)

    # The whole

    def store(self, place: Scalar, body: Scalar, dtype: np.dtype, region: Region) -> None:
        """Compute all elements and store them."""
        found = self.affine(place, region)
        base, stride = found if found is not None else (self.value(place, region), self.constant(0, "i64"))
        if base.lanes == ELEMENTS:
            raise GraphcError(f"results at {place} cannot be interpreted")
        if dtype in (F16, BF16):
            narrow = body.args[0] if body.kind == "cast" else body
            value = self.rounded(self.value(narrow, region), narrow.dtype, dtype, region)
        else:
            value = self.value(body, region)
        value = self.expanded(value, ELEMENTS, region)
        last = region.parts[-1] if region.parts else None
        if (
            isinstance(last, Instruction)
            and last.to is not None
            and last.to.number == value.number
            and last.name[-1].isdigit()
        ):
            region.parts.insert(-1, Instruction("aim", ELEMENTS, value, [None, base, stride, None, base.lanes]))
        self.emit(region, "store", None, value, base, stride, None, base.lanes, lanes=ELEMENTS)

    def code(self, main: Region) -> Code:
        """All instructions in their order."""
        found: list[Instruction] = []
        repeated: list[tuple[int, int]] = []

        def add(region: Region) -> None:
            frame, begin = region.frame, len(found)
            if region.kind == "once":
                frame.once = begin
            if region.kind == "body":
                frame.body = begin
            skip = None
            if region.kind == "branch":
                skip = Instruction("skip", region.masked.lanes, None, [region.masked, 0])  # type: ignore[union-attr]
                found.append(skip)
            for each in region.parts:
                if isinstance(each, Region):
                    add(each)
                else:
                    found.append(each)
            if skip is not None:
                skip.args[1] = len(found)
            if region.kind == "loop":
                found[begin].args.append(len(found))
                found[-1].args.append(begin)
                repeated.append((begin, len(found)))
            if region.kind == "body":
                frame.end = len(found)
                repeated.append((begin, len(found)))
                if frame is not self.frames[0]:
                    repeated.append((frame.once - 1, len(found)))

        assert main.parent is not None
        add(main.parent)
        add(main)
        return Code(found, self.frames, self.registers, self.places, list(self.numbers), repeated, tuple(self.faults))


def _unsigned(name: str, register: Register) -> str:
    """The type of which the interpreter has an operator for a register."""
    return f"u{register.type[1:]}" if name in OF_ANY_SIGN and register.type[0] == "i" else register.type


def register_type(dtype: np.dtype) -> str:
    """The type in which numbers are computed, as in C."""
    if dtype in (F16, BF16):
        return "f32"
    if dtype == BOOL or dtype in NARROW:
        return "u8"
    if dtype not in FLOATS and dtype not in INTEGERS:
        raise GraphcError(f"a kernel cannot hold {dtype}")
    return f"{dtype.kind}{8 * dtype.itemsize}"
