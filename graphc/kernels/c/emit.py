"""Turns an expression of one element into C statements, each computed in the outermost loop where it can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir.types import BF16, BOOL, F16, F32, F64, FLOATS, I64, INTEGERS
from graphc.kernels.c.language import (
    AND,
    ATOM,
    CHOICE,
    EQUALITY,
    INFIX,
    NARROW_NAMES,
    OPERATOR_HELPERS,
    ORDER,
    PRODUCT,
    SUM,
    UNARY,
    Helper,
    Text,
    computed_type,
    expanded,
    literal,
    suffix,
)
from graphc.kernels.lanes import LANES, variables_of
from graphc.kernels.linear import is_positive, nonnegative
from graphc.kernels.nest import extent, name, walk
from graphc.kernels.scalar import COMPARISONS, Scalar, make
from graphc.shapes import Dim, Expr, lower_bound
from graphc.shapes.dim import Atom


class Block:
    """Statements between braces: a function's body, a loop's, or a branch's.

    `variables` are the indices that it declares. A `barrier` is a block that may not run at all, so that what reads memory
    must stay inside. `names` are the values that variables of the block hold.
    """

    def __init__(
        self, parent: Block | None = None, header: str = "", variables: Sequence[Scalar] = (), barrier: bool = False
    ) -> None:
        self.parent = parent
        self.header = header
        self.variables = frozenset(variables)
        self.barrier = barrier
        self.lines: list[str] = []
        self.names: dict[Scalar, str] = {}

    @property
    def is_loop(self) -> bool:
        """True for the body of a loop."""
        return bool(self.variables)

    def close(self) -> None:
        """Add the block to its parent."""
        assert self.parent is not None
        self.parent.lines += [f"{self.header} {{", *indented(self.lines), "}"]

    def loops_around(self) -> frozenset[Scalar]:
        """The indices of the loops that this block is in."""
        return frozenset() if self.parent is None else self.parent.variables | self.parent.loops_around()

    def find(self, value: Scalar) -> str | None:
        """The name of a value here, if it has one."""
        block: Block | None = self
        while block is not None:
            if value in block.names:
                return block.names[value]
            block = block.parent
        return None


class Emitter:
    """Renders the values of one kernel. `symbols` gives the C name of a size symbol, `fault` the number of a message; both,
    and `helper` and `narrow` (which C helpers and narrow types are used), are recorded by whoever owns the file."""

    def __init__(
        self,
        roots: Sequence[Scalar],
        symbols: Callable[[str], str],
        fault: Callable[[str], int],
        helper: Callable[[Helper], str],
        narrow: Callable[[np.dtype], str],
    ) -> None:
        self.symbols, self.fault, self.helper, self.narrow = symbols, fault, helper, narrow
        self.uses = Counter(arg for node in walk(*roots) for arg in _operands(node))
        self.count = 0
        self.numbers: dict[str, str] = {}

    def value(self, node: Scalar, block: Block) -> Text:
        """An expression for a value in a block; what it needs is computed before."""
        if node.kind == "constant":
            return literal(node.value, node.dtype)
        if node.kind == "variable":
            return Text(name(node))
        if node.kind == "number":
            self.numbers[str(node.data)] = computed_type(node.dtype)
            return Text(str(node.data))
        found = block.find(node)
        if found is not None:
            return Text(found)
        home = self.home(node, block)
        text = self.expression(node, home)
        if home is block and self.uses[node] < 2:
            return text
        if text.text.isidentifier():
            home.names[node] = text.text
            return text
        return Text(self.declare(node, home, text))

    def computed(self, node: Scalar, block: Block) -> str:
        """The name of what holds a value, or a constant."""
        text = self.value(node, block)
        return text.text if node.kind == "constant" or text.text.isidentifier() else self.declare(node, block, text)

    def home(self, node: Scalar, block: Block) -> Block:
        """The outermost block that can compute a value that is needed here. It leaves whole loops, and branches if it is
        index arithmetic that is needed again."""
        shared = self.uses[node] > 1 and node.dtype in (I64, BOOL)
        home = block
        while block.parent is not None:
            if block.variables & node.free or (block.barrier and not self.is_safe(node, block.parent)):
                break
            if block.is_loop or (shared and block.barrier):
                home = block.parent
            block = block.parent
        return home

    def is_safe(self, node: Scalar, block: Block) -> bool:
        """True if a value can be computed in a block even where the condition that guards it does not hold."""
        if node.total or block.find(node) is not None:
            return True
        return node.kind in ("operate", "apply", "select", "cast") and all(
            self.is_safe(arg, block) for arg in node.args
        )

    def declare(self, node: Scalar, block: Block, text: Text) -> str:
        """A variable that holds a value."""
        variable = block.names[node] = self.fresh("at" if node.dtype == I64 else "v")
        block.lines.append(f"const {computed_type(node.dtype)} {variable} = {text.text};")
        return variable

    def fresh(self, prefix: str) -> str:
        """A name that no other variable of the kernel has."""
        self.count += 1
        return f"{prefix}{self.count}"

    def expression(self, node: Scalar, block: Block) -> Text:
        """An expression for a node; its operands may become variables."""
        method: Callable[[Scalar, Block], Text] = getattr(self, f"_{node.kind}")
        return method(node, block)

    def dim(self, dim: Dim, block: Block) -> Text:
        """An expression for a size."""
        return self.value(make("size", I64, (), dim), block) if isinstance(dim, Expr) else literal(dim, I64)

    def operands(self, node: Scalar, block: Block, level: int) -> tuple[str, str]:
        """Both operands of an operator that binds as `level` says and groups to the left."""
        left, right = (self.value(arg, block) for arg in node.args)
        return left.within(level), right.within(level + 1)

    # Kinds of nodes

    def _size(self, node: Scalar, block: Block) -> Text:
        assert isinstance(node.data, Expr)
        return self._polynomial(node.data)

    def _element(self, node: Scalar, block: Block) -> Text:
        text = f"x{node.data}[{self.value(node.args[0], block).text}]"
        return Text(f"graphc_from_{self.narrow(node.dtype)}({text})" if node.dtype in NARROW_NAMES else text)

    def _apply(self, node: Scalar, block: Block) -> Text:
        dtype = next((x.dtype for x in (node, *node.args) if x.dtype in FLOATS), node.dtype)
        template = self.template(str(node.data), dtype)
        return expanded(template, [self.value(arg, block) for arg in node.args], dtype)

    def template(self, template: str, dtype: np.dtype) -> str:
        """A template of `Kernel.call` as it is for numbers of a type."""
        return template

    def _operate(self, node: Scalar, block: Block) -> Text:
        operator = str(node.data)
        if operator in ("and", "or"):
            return self._lazy(node, block)
        if len(node.args) == 1:
            sign = {"neg": "-", "~": "!" if node.dtype == BOOL else "~", "not": "!"}[operator]
            operand = self.value(node.args[0], block)
            return _narrowed(Text(sign + operand.within(UNARY + 1), UNARY), node.dtype)
        dtype = node.args[0].dtype
        if dtype == BOOL:
            operator = {"+": "|", "*": "&", "max": "|", "min": "&"}.get(operator, operator)
        if operator in OPERATOR_HELPERS and not _is_plain(node):
            left, right = (self.value(arg, block) for arg in node.args)
            function = self.helper(Helper(OPERATOR_HELPERS[operator], dtype))
            return Text(f"{function}({left.text}, {right.text})")
        spelling, level = INFIX[operator]
        # C's own precedence of & | ^ surprises readers, and compilers warn of chained comparisons.
        inner = max(level, SUM) if level < SUM else level
        left_text, right_text = self.operands(node, block, inner)
        text = Text(f"{left_text} {spelling} {right_text}", level)
        return text if operator in COMPARISONS else _narrowed(text, dtype)

    def _lazy(self, node: Scalar, block: Block) -> Text:
        spelling, level = INFIX[str(node.data)]
        first = self.value(node.args[0], block)
        branch = Block(block, barrier=True)
        second = self.value(node.args[1], branch)
        if not branch.lines:
            left = first.text if first.level == level else first.within(AND + 1)  # "and" within "or" in parentheses
            return Text(f"{left} {spelling} {second.within(AND + 1)}", level)
        result = self.fresh("v")
        block.lines.append(f"bool {result} = {first.text};")
        branch.header = f"if ({result})" if node.data == "and" else f"if (!{result})"
        branch.lines.append(f"{result} = {second.text};")
        branch.close()
        return Text(result)

    def _select(self, node: Scalar, block: Block) -> Text:
        condition = self.value(node.args[0], block)
        if node.data:
            first, second = (self.computed(arg, block) for arg in node.args[1:])
            return Text(f"{condition.within(CHOICE + 1)} ? {first} : {second}", CHOICE)
        branches = [Block(block, barrier=True), Block(block, barrier=True)]
        values = [self.value(arg, branch) for arg, branch in zip(node.args[1:], branches, strict=True)]
        if not any(branch.lines for branch in branches):
            first, second = (value.within(CHOICE + 1) for value in values)
            return Text(f"{condition.within(CHOICE + 1)} ? {first} : {second}", CHOICE)
        return self._branches(node, block, condition, branches, [value.text for value in values])

    def _branches(
        self, node: Scalar, block: Block, condition: Text, branches: Sequence[Block], values: Sequence[str]
    ) -> Text:
        result = self.fresh("v")
        block.lines.append(f"{computed_type(node.dtype)} {result};")
        for branch, value in zip(branches, values, strict=True):
            branch.lines.append(f"{result} = {value};")
        first, second = (indented(branch.lines) for branch in branches)
        block.lines += [f"if ({condition.text}) {{", *first, "} else {", *second, "}"]
        return Text(result)

    def _require(self, node: Scalar, block: Block) -> Text:
        condition = self.value(node.args[0], block)
        holds, fails = Block(block, barrier=True), Block(block, barrier=True)
        value = self.value(node.args[1], holds)
        fails.lines.append(self.fault_line(str(node.data)))
        return self._branches(node, block, condition, [holds, fails], [value.text, "0"])

    def fault_line(self, message: str) -> str:
        """The statement that reports a fault."""
        return f"data->fault = {self.fault(message)};"

    def _cast(self, node: Scalar, block: Block) -> Text:
        source = node.args[0].dtype
        value = self.value(node.args[0], block)
        if node.dtype in NARROW_NAMES:
            return Text(f"graphc_from_{self.narrow(node.dtype)}({self.rounded(value, source, node.dtype)})")
        if node.dtype == BOOL:
            return Text(f"{value.within(ORDER)} != 0", EQUALITY)
        type = computed_type(node.dtype)
        if source in FLOATS and node.dtype in INTEGERS:
            target = {"int64": "to_int64", "uint32": "to_int64", "uint64": "to_uint64"}.get(node.dtype.name, "to_int32")
            text = Text(f"{self.helper(Helper(target, source))}({value.text})")
            exact = target.endswith(f"_{node.dtype.name}")
            return text if exact else Text(f"({type}) {text.text}", UNARY)
        if type == computed_type(source):
            return value
        return Text(f"({type}) {value.within(UNARY)}", UNARY)

    def rounded(self, value: Text, source: np.dtype, dtype: np.dtype) -> str:
        """The bits of a number in a narrow floating-point type. bfloat16 is rounded by way of float, as elsewhere."""
        wide = F64 if source == F64 and dtype == F16 else F32
        return f"graphc_to_{self.narrow(dtype)}_{suffix(wide)}({value.text})"

    def _reduce(self, node: Scalar, block: Block) -> Text:
        total = self.fresh(str(node.data[0]))  # type: ignore[index]
        block.lines.append(f"{_total_type(node)} {total} = {_identity(node).text};")
        self.accumulate(node, block, total)
        return _total_value(node, total)

    def reduce_lanes(self, node: Scalar, block: Block, axis: Scalar, begin: str, end: str) -> None:
        """Compute a reduction for the results from `begin` to `end` of the innermost loop, which has the index `axis`."""
        total, lane = self.fresh(str(node.data[0])), name(axis)  # type: ignore[index]
        place, header = f"{total}[{lane} - {begin}]", f"for (int64_t {lane} = {begin}; {lane} < {end}; {lane}++)"
        block.lines += [f"{_total_type(node)} {total}[{LANES}];", f"{header} {place} = {_identity(node).text};"]
        self.accumulate(node, block, place, Block(header=header, variables=[axis]))
        block.names[node] = _total_value(node, place).within(ATOM)

    def accumulate(self, node: Scalar, block: Block, total: str, lanes: Block | None = None) -> None:
        """The loops of a reduction, around one over `lanes` if there is one."""
        inner = block
        for variable in variables_of(node):
            bound = self.dim(extent(variable), inner)
            header = f"for (int64_t {name(variable)} = 0; {name(variable)} < {bound.within(ORDER)}; {name(variable)}++)"
            inner = Block(inner, header, [variable], barrier=not is_positive(extent(variable)))
        if lanes is not None:
            lanes.parent, inner = inner, lanes
        value = self.value(node.args[0], inner)
        inner.lines.append(self._accumulation(str(node.data[0]), total, value, node.dtype))  # type: ignore[index]
        while inner is not block:
            inner.close()
            assert inner.parent is not None
            inner = inner.parent

    def _accumulation(self, kind: str, total: str, value: Text, dtype: np.dtype) -> str:
        if kind in ("sum", "prod"):
            return f"{total} {'+' if kind == 'sum' else '*'}= {value.text};"
        if dtype == BOOL:
            return f"{total} {'|' if kind == 'max' else '&'}= {value.text};"
        return f"{total} = {self.helper(Helper(kind, dtype))}({total}, {value.text});"

    # Sizes

    def _polynomial(self, dim: Dim) -> Text:
        if not isinstance(dim, Expr):
            return literal(dim, I64)
        text = ""
        for monomial, coefficient in dim.terms:
            factors = [self._atom(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, literal(abs(coefficient), I64))
            sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
            text += sign + " * ".join(factor.within(PRODUCT + 1) for factor in factors)
        atoms = [len(monomial) for monomial, _ in dim.terms]
        return Text(text, SUM if len(atoms) > 1 or text.startswith("-") else 16 if text.isidentifier() else PRODUCT)

    def _atom(self, atom: Atom) -> Text:
        if atom.kind == "symbol":
            name = self.symbols(atom.name)
            return Text(name) if atom.multiple == 1 else Text(f"{name} / {atom.multiple}", PRODUCT)
        left, right = (self._polynomial(arg) for arg in atom.args)
        low = lower_bound(atom.args[0])
        if atom.kind in ("//", "%") and low is not None and low >= 0 and is_positive(atom.args[1]):
            return Text(f"{left.within(PRODUCT)} {INFIX[atom.kind][0]} {right.within(PRODUCT + 1)}", PRODUCT)
        function = self.helper(Helper(OPERATOR_HELPERS[atom.kind], I64))
        return Text(f"{function}({left.text}, {right.text})")


def indented(lines: Sequence[str]) -> list[str]:
    """Lines one step to the right."""
    return [f"    {line}" if line else line for line in lines]


def _operands(node: Scalar) -> list[Scalar]:
    """The operands of a node, as often as they stand in its C expression."""
    if node.kind != "apply":
        return list(node.args)
    return [arg for i, arg in enumerate(node.args) for _ in range(str(node.data).count(f"{{{i}}}"))]


def _is_plain(node: Scalar) -> bool:
    """True if C's own operator gives the right result, whatever the operands are."""
    left, right = node.args
    if node.data == "/" and left.dtype in FLOATS:
        return True
    if node.data in ("//", "%") and left.dtype == I64 and right.dim is not None:
        return is_positive(right.dim) and nonnegative(left)
    divides = node.data in ("/", "rem") or (node.data in ("//", "%") and left.dtype.kind == "u")
    return divides and left.dtype in INTEGERS and right.kind == "constant" and right.value not in (0, -1)


def _narrowed(text: Text, dtype: np.dtype) -> Text:
    """The expression with the value that its type can hold: C computes small integers as int."""
    small = dtype in INTEGERS and dtype.itemsize < 4
    return Text(f"({computed_type(dtype)}) {text.within(UNARY)}", UNARY) if small else text


def _total_type(node: Scalar) -> str:
    """The type in which a reduction accumulates."""
    wide = node.dtype in FLOATS and node.data[0] in ("sum", "prod")  # type: ignore[index]
    return "double" if wide else computed_type(node.dtype)


def _total_value(node: Scalar, total: str) -> Text:
    """A reduction's result, when it is accumulated."""
    type = computed_type(node.dtype)
    return Text(f"({type}) {total}", UNARY) if type != _total_type(node) else Text(total)


def _identity(node: Scalar) -> Text:
    """What a reduction of nothing gives."""
    kind, dtype = node.data[0], node.dtype  # type: ignore[index]
    if kind in ("sum", "prod"):
        number = int(kind == "prod")
        return Text(f"{number}.0") if dtype in FLOATS else literal(number, dtype)
    if dtype == BOOL:
        return literal(kind == "min", dtype)
    if dtype in FLOATS:
        return literal(-np.inf if kind == "max" else np.inf, dtype if dtype not in (F16, BF16) else F32)
    limits = np.iinfo(dtype)
    return literal(limits.min if kind == "max" else limits.max, dtype)
