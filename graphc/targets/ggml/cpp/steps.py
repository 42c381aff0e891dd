"""What the host does between the graphs of a model, as C++: sizes are read, branches taken, parts repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graphc.shapes import Dim, symbols
from graphc.targets.ggml.cpp.body import INDENT, wrapped
from graphc.targets.ggml.cpp.code import ModelCode
from graphc.targets.ggml.cpp.header import describe_type, dtype_constant
from graphc.targets.ggml.cpp.names import Names, comment, identifier, string_literal
from graphc.targets.ggml.cpp.parts import Block, HostStep, Part, is_symbol
from graphc.targets.ggml.cpp.scopes import Ref, reference
from graphc.targets.ggml.cpp.sizes import symbol_limits

Shape: TypeAlias = tuple[Dim, ...]

WIDEST = 140
"""Characters of the longest line that has a comment with what it makes."""


@dataclass(frozen=True)
class Variable:
    """An array of the code. Its scope may give away its elements at the end if it is `own`."""

    name: str
    dtype: np.dtype
    shape: Shape
    own: bool = True


def render_compute(code: ModelCode) -> str:
    """The method `compute` of a model that has parts."""
    assert code.block is not None
    writer = StepWriter(code)
    results = writer.model(code.block)
    given = "inputs" if any(" *inputs[" in line for line in writer.lines) else "/*inputs*/"
    values = "values" if code.sizes.solutions else "/*values*/"
    context = "context" if code.parts else "/*context*/"
    head = wrapped(
        f"void {code.class_name}::compute(",
        [
            f"graphc::Context & {context}",
            f"const std::vector<int64_t> & {values}",
            f"const std::vector<const graphc::Array *> & {given}",
            "const std::vector<graphc::Array *> & outputs",
        ],
        ") const {",
        " " * 8,
    )
    gives = wrapped("    graphc::give(", ["outputs", *results], ");", " " * 8)
    return "\n".join([*head, *writer.lines, *gives, "}", ""])


class StepWriter:
    """Writes the statements. `known` are the named sizes that have a value where the next one will stand."""

    def __init__(self, code: ModelCode) -> None:
        self.code, self.sizes = code, code.sizes
        self.names = Names(code.names.taken | {"values_of", "outputs"})
        self.known: set[str] = set()
        self.lines: list[str] = []
        self.depth = 1

    def model(self, block: Block) -> list[str]:
        """The statements of the whole model; its outputs as expressions."""
        count = len(self.sizes.solutions)
        if self.sizes.members:
            values = [f"values[{i}]" if i < count else "0" for i in range(len(self.sizes.members))]
            self.line(f"Sizes sizes{{{', '.join(values)}}};")
        self.known.update(solution.symbol.name for solution in self.sizes.solutions)
        given = {}
        for index, declared in enumerate(block.program.inputs):
            if block.reads(("input", index)):
                given[index] = Variable(self.fresh(declared.name), declared.dtype, declared.shape, own=False)
                about = describe_type(declared.dtype, declared.shape)
                self.line(f"const graphc::Array & {given[index].name} = *inputs[{index}];  // {about}")
        return self.moved(self.block(block, given))

    def block(self, block: Block, given: dict[int, Variable]) -> list[Variable]:
        """The statements of a block, for its inputs; its outputs."""
        arrays: dict[Ref, Variable] = {("input", index): variable for index, variable in given.items()}
        for step in block.steps:
            if isinstance(step, Part):
                self.part(step, arrays)
            else:
                self.host(block, step, arrays)
        outputs = []
        for number, output in enumerate(block.program.outputs):
            ref: Ref = ("output", number)
            found = arrays[ref if ref in arrays else reference(output.tensor)]
            outputs.append(self.seen_as(found, output.dtype, output.shape))
        return outputs

    def part(self, part: Part, arrays: dict[Ref, Variable]) -> None:
        """The call of a part."""
        args = []
        for ref, declared in zip(part.inputs, part.program.inputs, strict=True):
            args.append(self.seen_as(arrays[ref], declared.dtype, declared.shape).name)
        for ref, output in zip(part.outputs, part.program.outputs, strict=True):
            arrays[ref] = Variable(self.fresh(output.name), output.dtype, output.shape)
        made = [arrays[ref] for ref in part.outputs]
        sizes = "values_of(sizes)" if part.symbols else "{}"
        indent = INDENT * self.depth
        names = wrapped(f"{indent}auto [", [each.name for each in made], "] = ", indent + INDENT)
        self.lines += names[:-1]
        head = f"{names[-1]}{part.member}.run<{len(made)}>("
        self.call(head.removeprefix(indent), ["context", sizes, f"{{{', '.join(f'&{arg}' for arg in args)}}}"], made)

    def host(self, block: Block, step: HostStep, arrays: dict[Ref, Variable]) -> None:
        """What the host does."""
        args = [
            self.seen_as(arrays[ref], type.dtype, type.shape)
            for ref, type in zip(step.args, step.host.inputs, strict=True)
        ]
        place = step.call.result.call + 1
        names = [self.fresh(block.labels.get(place + number, "x")) for number in range(len(step.host.results))]
        results = [Variable(name, type.dtype, type.shape) for name, type in zip(names, step.host.results, strict=True)]
        WAYS[step.host.operator](self, step, args, results)
        arrays.update({("call", place + number): result for number, result in enumerate(results)})

    def measure(self, step: HostStep, args: Sequence[Variable], results: Sequence[Variable]) -> None:
        """A number becomes a size, or must be one."""
        size, what = step.host.size, string_literal(step.host.what)
        atom = symbols(size).get(str(size))
        if atom is None or atom.name in self.known:
            text = string_literal("" if isinstance(size, int) else str(size))
            number = self.sizes.expression(size)
            self.call("graphc::require_measured(", [args[0].name, what, number, text])
        else:
            self.known.add(atom.name)
            self.call(f"{self.size(atom.name)} = graphc::measured(", [args[0].name, what, symbol_limits(atom)])

    def branch(self, step: HostStep, args: Sequence[Variable], results: Sequence[Variable]) -> None:
        """One block or the other."""
        condition, *captured = args
        self.heading(step)
        for result in results:
            self.line(f"graphc::Array {result.name};  // {describe_type(result.dtype, result.shape)}")
        self.line(f"if (graphc::element<bool>({condition.name})) {{")
        for block, end in zip(step.blocks, ("} else {", "}"), strict=True):
            outer = self.enter()
            outputs = self.block(block, self.given(block, captured, [[each.shape] for each in captured]))
            for result, text in zip(results, self.moved(outputs), strict=True):
                self.line(f"{result.name} = {text};")
            self.leave(outer, end)
        for number, result in enumerate(results):
            self.settle(result, [block.program.outputs[number].shape for block in step.blocks], "a result of If")

    def loop(self, step: HostStep, args: Sequence[Variable], results: Sequence[Variable]) -> None:
        """A block, repeated. Its carried values are the variables of the first results."""
        (block,), carried = step.blocks, step.host.carried
        (trips, condition, *rest), made = args, [output.shape for output in block.program.outputs[1:]]
        going, limit, count = self.fresh("going"), self.fresh("trips"), self.fresh("step")
        self.heading(step)
        self.line(f"bool {going} = graphc::element<bool>({condition.name});")
        self.line(f"const int64_t {limit} = graphc::element<int64_t>({trips.name});")
        for result, initial in zip(results, rest[:carried], strict=False):
            self.line(f"graphc::Array {result.name} = {initial.name};  // {describe_type(result.dtype, initial.shape)}")
        rounds = [self.fresh(f"{result.name}_rounds") for result in results[carried:]]
        for name in rounds:
            self.line(f"std::vector<graphc::Array> {name};")
        self.line(f"for (int64_t {count} = 0; {going} && {count} < {limit}; ++{count}) {{")
        outer = self.enter()
        inner = [self.scalar(block, 0, count), self.scalar(block, 1, going), *results[:carried], *rest[carried:]]
        shapes = [[variable.shape] for variable in (*inner[:2], *rest)]
        for number in range(carried):
            shapes[2 + number].append(made[number])
        again, *outputs = self.block(block, self.given(block, inner, shapes))
        self.line(f"{going} = graphc::element<bool>({again.name});")
        texts = self.moved(outputs)
        for result, text in zip(results, texts[:carried], strict=False):
            self.line(f"{result.name} = {text};")
        for name, text in zip(rounds, texts[carried:], strict=True):
            self.line(f"{name}.push_back({text});")
        self.leave(outer)
        for number, result in enumerate(results):
            if number < carried:
                self.settle(result, [rest[number].shape, made[number]], "a result of Loop")
            else:
                self.stack(result, rounds[number - carried], made[number])

    def scalar(self, block: Block, index: int, name: str) -> Variable:
        """A number of the loop as an array, if its block reads it."""
        declared = block.program.inputs[index]
        if block.reads(("input", index)):
            number, name = name, self.fresh(declared.name)
            self.line(f"const graphc::Array {name} = graphc::scalar({number});")
        return Variable(name, declared.dtype, ())

    def stack(self, result: Variable, rounds: str, shape: Shape) -> None:
        """What a loop collected, as one array. Without a round, a size that is not known is 0."""
        sizes = [size if set(symbols(size)) <= self.known else 0 for size in result.shape[1:]]
        none = self.shape((0, *sizes))
        self.call(
            f"graphc::Array {result.name} = graphc::stacked(", [rounds, dtype_constant(result.dtype), none], [result]
        )
        self.settle(result, [(None, *shape)], "a result of Loop")

    def given(
        self, block: Block, args: Sequence[Variable], shapes: Sequence[Sequence[Sequence[Dim | None]]]
    ) -> dict[int, Variable]:
        """The inputs of a block, whose sizes they are from there on. `shapes` are those that each may have."""
        for declared, arg, actual in zip(block.program.inputs, args, shapes, strict=True):
            self.settle(Variable(arg.name, declared.dtype, declared.shape), actual, declared.name)
        return {
            index: Variable(arg.name, declared.dtype, declared.shape, own=False)
            for index, (declared, arg) in enumerate(zip(block.program.inputs, args, strict=True))
        }

    def settle(self, variable: Variable, shapes: Sequence[Sequence[Dim | None]], what: str) -> None:
        """Give the named sizes in a variable's shape the array's, and check the others, unless all of the shapes that the
        array may have say the same."""
        before, proven = set(self.known), True
        for axis, size in enumerate(variable.shape):
            if is_symbol(size) and str(size) not in self.known:
                self.known.add(str(size))
                self.line(f"{self.size(str(size))} = {variable.name}.shape()[{axis}];")
            else:
                proven &= set(symbols(size)) <= before and all(shape[axis] == size for shape in shapes)
        if not proven:
            self.call("graphc::require_shape(", [variable.name, self.shape(variable.shape), string_literal(what)])

    def seen_as(self, variable: Variable, dtype: np.dtype, shape: Shape) -> Variable:
        """The same array, read in another way."""
        if (variable.dtype, variable.shape) == (dtype, shape):
            return variable
        seen = Variable(self.fresh(variable.name), dtype, shape)
        args = [variable.name, dtype_constant(dtype), self.shape(shape)]
        self.call(f"graphc::Array {seen.name} = graphc::reinterpreted(", args, [seen])
        return seen

    def moved(self, variables: Sequence[Variable]) -> list[str]:
        """Variables at the end of their scope, as expressions that may take their elements away."""
        names = [each.name for each in variables]
        return [
            f"std::move({each.name})" if each.own and each.name not in names[number + 1 :] else each.name
            for number, each in enumerate(variables)
        ]

    def fresh(self, name: str) -> str:
        """A new variable."""
        return self.names.fresh(identifier(name, "x"))

    def size(self, name: str) -> str:
        """A named size."""
        return f"sizes.{self.sizes.members[name]}"

    def shape(self, shape: Shape) -> str:
        """A shape as an initializer."""
        return f"{{{', '.join(map(self.sizes.expression, shape))}}}"

    def heading(self, step: HostStep) -> None:
        """A comment where a branch or a loop begins."""
        name = step.call.source or step.host.blocks[0].name
        if self.lines:
            self.lines.append("")
        self.line(comment(f"// {step.host.operator} {name}".rstrip()))

    def line(self, text: str) -> None:
        """A statement."""
        self.lines.append(INDENT * self.depth + text)

    def call(self, head: str, args: Sequence[str], made: Sequence[Variable] = ()) -> None:
        """A statement that ends in a call, with a comment that says what it makes."""
        indent = INDENT * self.depth
        lines = wrapped(indent + head, args, ");", indent + INDENT)
        about = "  // " + ", ".join(describe_type(each.dtype, each.shape) for each in made)
        fits = made and len(lines[-1] + about) <= WIDEST
        self.lines += [*lines[:-1], lines[-1] + (about if fits else "")]

    def enter(self) -> set[str]:
        """Begin a scope; returns the sizes that are known outside."""
        self.depth += 1
        return set(self.known)

    def leave(self, known: set[str], end: str = "}") -> None:
        """End it."""
        self.depth -= 1
        self.known = known
        self.line(end)


WAYS = {"Measure": StepWriter.measure, "If": StepWriter.branch, "Loop": StepWriter.loop}
"""How each of the host's operators is written."""
