"""`model.cpp`, the functions of a model's modules and of its class, and `weights.cpp`, where the engine's tensors go."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphc.ggml_types import QUANTIZED
from graphc.shapes import Dim
from graphc.shapes.dim import lower_bound
from graphc.targets.ggml.cpp.body import type_constant, wrapped
from graphc.targets.ggml.cpp.code import GraphCode, ModelCode
from graphc.targets.ggml.cpp.conditions import conditions
from graphc.targets.ggml.cpp.functions import Function
from graphc.targets.ggml.cpp.header import dtype_constant
from graphc.targets.ggml.cpp.names import comment, string_literal
from graphc.targets.ggml.cpp.parts import Part
from graphc.targets.ggml.cpp.sizes import symbol_limits
from graphc.targets.ggml.cpp.steps import render_compute
from graphc.targets.ggml.program.program import Input, Program, Weight
from graphc.targets.ggml.program.tensor import Tensor
from graphc.targets.ggml.run.memory.residence import Reads, weights_read
from graphc.targets.ggml.run.rows import counts_from_end
from graphc.weights.lora.beside import only_products

SHOWN_CALLERS = 2
"""Modules that the comment above a function names; numbers of a list are left out."""

CONSTRUCTOR = """\
{name}::{name}(graphc::Engine engine, const graphc::Options & options)
    : graphc::Model(describe(), std::move(engine), options){parts} {{
    load({namespace}::weight_slots(weights_), {namespace}::weights_together());
}}

Outputs {name}::run(const Inputs & inputs) const {{
    Outputs outputs;
    run(inputs, outputs);
    return outputs;
}}

void {name}::run(const Inputs & {given}, Outputs & {taken}) const {{
    run_into({{{inputs}}}, {{{outputs}}});
}}
"""

TOGETHER = "std::vector<std::vector<size_t>> weights_together()"
"""A function of `weights.cpp`."""


def render_source(code: ModelCode) -> str:
    """The text of `model.cpp`."""
    includes = [f'#include "{code.header}"', "", "#include <algorithm>", "#include <cmath>"]
    if code.kernels:
        includes.insert(1, '#include "kernels.h"')
    parts = ["\n".join([*includes, "", f"namespace {code.namespace} {{", ""])]
    declared = (
        f"std::vector<graphc::WeightSlot> weight_slots({code.tree.type(())} & weights);  // weights.cpp",
        f"{TOGETHER};",
    )
    parts.append("\n".join([*declared, ""]))
    inner = [_function(graph, function) for graph in code.graphs for function in graph.functions.list[:-1]]
    inner += [_describe_part(code, part) for part in code.parts]
    methods = [_constructor(code), _describe(code), _bind(code), _input_shapes(code), _check(code)]
    methods += [render_compute(code)] if code.block else []
    methods += [_build(code, graph) for graph in code.graphs]
    if any("values_of(sizes)" in method for method in methods):
        inner.append(_values_of(code))
    if derived := code.sizes.functions():
        inner.insert(0, derived)
    if code.launched:
        inner.insert(0, code.launched.declarations)
    if inner:
        parts += ["namespace {\n", *inner, "}  // namespace\n"]
    parts += methods
    parts.append(f"}}  // namespace {code.namespace}\n")
    return "\n".join(parts)


def render_weights(code: ModelCode) -> str:
    """The text of `weights.cpp`."""
    lines = [f'#include "{code.header}"', "", f"namespace {code.namespace} {{", ""]
    reads = weights_read(code.program)
    limits, uses = _row_limits(code), _uses(code, reads)
    weights = "weights" if code.program.weights else "/*weights*/"
    lines += [
        "/// Tensor w<i> of the engine goes into slot i.",
        f"std::vector<graphc::WeightSlot> weight_slots({code.tree.type(())} & {weights}) {{",
        "    return {",
    ]
    for index, weight in enumerate(code.program.weights):
        stored = code.stored.weights[index].tensor
        sizes = ", ".join(map(str, stored.ne))
        place = code.tree.access[code.tree.paths[index]]
        name = string_literal(weight.name)
        rows = [str(limits[index])] if index in limits else []
        use = [f"graphc::Use::{uses[index]}"] if rows or uses[index] != "whole" else []
        if weight.packing is not None:
            use, rows = [f"graphc::Use::{uses[index]}"], [str(limits.get(index, 0)), packing_literal(weight)]
        rest = "".join(f", {each}" for each in (*use, *rows))
        lines.append(f"        {{&{place}, {name}, {type_constant(stored)}, {{{sizes}}}{rest}}},")
    groups = [f"{{{', '.join(map(str, each))}}}" for each in dict.fromkeys(reads.together) if len(each) > 1]
    lines += ["    };", "}", "", "/// The weights that one call reads with others.", f"{TOGETHER} {{", "    return {"]
    lines += wrapped("        ", groups, ",", " " * 8) if groups else []
    return "\n".join([*lines, "    };", "}", "", f"}}  // namespace {code.namespace}", ""])


def packing_literal(weight: Weight) -> str:
    """The `graphc::Packing` of a weight, whose axes are those that ggml knows: four."""
    assert weight.packing is not None
    before = 4 - len(weight.packing.order)
    order = [*range(before), *(axis + before for axis in weight.packing.order)]
    rest = ", true" if weight.packing.of_doubled else ""
    return f"graphc::Packing{{{{{', '.join(map(str, order))}}}, {type_constant(weight.tensor)}{rest}}}"


def _uses(code: ModelCode, reads: Reads) -> list[str]:
    """The `graphc::Use` of each of a program's weights."""
    uses = dict.fromkeys(reads.order, "whole")
    uses |= dict.fromkeys(reads.by_rows, "rows") | dict.fromkeys(reads.by_host, "kernels")
    for index, weight in enumerate(code.program.weights):
        if weight.tensor.type in QUANTIZED and index in uses and only_products(code.stored, index):
            uses[index] = "products"
    return [uses.get(index, "none") for index in range(len(code.program.weights))]


def _row_limits(code: ModelCode) -> dict[int, int]:
    """The weights that number rows of tables, and how many rows the smallest table certainly has."""
    limits: dict[int, int] = {}
    for weight, readers in code.tree.readers.items():
        for call, position in readers:
            if call.function == "ggml_get_rows" and position == 1 and isinstance(call.args[0], Tensor):
                rows = lower_bound(call.args[0].ne[1]) or 1
                limits[weight] = min(rows, limits.get(weight, rows))
    return limits


def _function(graph: GraphCode, function: Function) -> str:
    written, needs = graph.written[function], graph.needs[function]
    parameters = ["const graphc::Builder & ctx"]
    parameters += ["graphc::Kernels & kernels"] if needs.kernels else []
    parameters += ["const Sizes & sizes"] if needs.sizes else []
    parameters += [f"const {function.type} & weights"] if function.type else []
    parameters += [f"ggml_tensor * {name}" for name in written.parameters]
    parameters += [f"{type} {name}" for type, name in written.numbers]
    count = len(written.results)
    result = "ggml_tensor *" if count == 1 else f"std::array<ggml_tensor *, {count}>"
    variables = written.results[0] if count == 1 else f"{{{', '.join(written.results)}}}"
    returned = [] if written.returned else [f"    return {variables};"]
    head = wrapped(f"{result} {function.name}(", parameters, ") {", " " * 8)
    return "\n".join([*_about(graph, function), *head, *written.lines, *returned, "}", ""])


def _about(graph: GraphCode, function: Function) -> list[str]:
    """The comment above a function: the modules that it computes, and what its letters stand for."""
    callers = graph.callers(function)
    shown = callers
    if len(callers) > 1:
        shown = list(dict.fromkeys(re.sub(r"\b\d+\b", "*", caller) for caller in callers))
    text = ", ".join(shown[:SHOWN_CALLERS])
    if len(shown) > SHOWN_CALLERS:
        text += f", ... ({len(callers)} modules)"
    return [f"/// {comment(line)}" for line in [text, *graph.written[function].legend]]


def _constructor(code: ModelCode) -> str:
    inputs = ", ".join(f"&inputs.{member}" for member in code.input_members)
    outputs = ", ".join(f"&outputs.{member}" for member in code.output_members)
    parts = [
        f",\n      {part.member}(*this, &{code.class_name}::build_{part.name}, describe_{part.name}())"
        for part in code.parts
    ]
    return CONSTRUCTOR.format(
        name=code.class_name,
        namespace=code.namespace,
        inputs=inputs,
        outputs=outputs,
        parts="".join(parts),
        given="inputs" if inputs else "/*inputs*/",
        taken="outputs" if outputs else "/*outputs*/",
    )


def _describe(code: ModelCode) -> str:
    program = code.program
    lines = [f"graphc::ModelInfo {code.class_name}::describe() {{", "    graphc::ModelInfo info;"]
    lines += [f"    info.name = {string_literal(code.title)};", f'    info.program_sha256 = "{code.sha256}";']
    lines += [f"    info.tensor_count = {program.tensor_count};"] if code.block is None else []
    lines += _arrays_info(program)
    symbols = ", ".join(symbol_limits(solution.symbol) for solution in code.sizes.solutions)
    lines.append(f"    info.symbols = {{{symbols}}};")
    if code.kernels:
        lines.append(f"    info.faults = {{{', '.join(map(string_literal, code.kernels.faults))}}};")
    if code.launched:
        lines.append(f"    info.gpu = {code.launched.description};")
    lines += ["    return info;", "}", ""]
    return "\n".join(lines)


def _describe_part(code: ModelCode, part: Part) -> str:
    """The function that says what a part is given, what it gives, and which sizes it depends on."""
    program = part.program
    places = [str(place) for place, name in enumerate(code.sizes.members) if name in part.symbols]
    lines = [f"graphc::PartInfo describe_{part.name}() {{", "    graphc::PartInfo info;"]
    lines += [f"    info.tensor_count = {program.tensor_count};", *_arrays_info(program)]
    return "\n".join([*lines, f"    info.sizes = {{{', '.join(places)}}};", "    return info;", "}", ""])


def _values_of(code: ModelCode) -> str:
    """The function that lists the named sizes."""
    members = ", ".join(f"sizes.{member}" for member in code.sizes.members.values())
    return f"std::vector<int64_t> values_of(const Sizes & sizes) {{ return {{{members}}}; }}\n"


def _arrays_info(program: Program) -> list[str]:
    """The inputs and outputs of a model, or of a part of one."""
    lines = ["    info.inputs = {", *(f"        {_input_info(program, each)}," for each in program.inputs), "    };"]
    lines.append("    info.outputs = {")
    for output in program.outputs:
        parts = [string_literal(output.name), dtype_constant(output.dtype), shape_literal(output.shape)]
        lines.append(f"        {{{', '.join(parts)}}},")
    return [*lines, "    };"]


def _input_info(program: Program, declared: Input) -> str:
    parts = [string_literal(declared.name), dtype_constant(declared.dtype), str(len(declared.shape))]
    parts += [shape_literal(declared.shape), type_constant(declared.tensor)]
    if declared.low is not None and declared.high is not None:
        parts += ["/*bounded=*/true", f"/*low=*/{declared.low}", f"/*high=*/{declared.high}"]
        parts += ["/*from_end=*/true"] if counts_from_end(program, declared) else []
    return f"{{{', '.join(parts)}}}"


def shape_literal(shape: Sequence[Dim]) -> str:
    """A shape as a string literal for messages."""
    return string_literal(f"[{', '.join(map(str, shape))}]")


def _bind(code: ModelCode) -> str:
    lines = []
    for solution in code.sizes.solutions:
        args = [symbol_limits(solution.symbol), str(solution.input), str(solution.axis)]
        if not solution.plain:
            args += [str(solution.factor), str(solution.offset)]
        lines.append(f"        given.symbol({', '.join(args)}),")
    given = "given" if lines else "/*given*/"
    head = f"std::vector<int64_t> {code.class_name}::bind(const graphc::InputSizes & {given}) const {{"
    return "\n".join([head, "    return {", *lines, "    };", "}", ""] if lines else [head, "    return {};", "}", ""])


def _uses_sizes(lines: Sequence[str]) -> bool:
    return any(re.search(r"\bsizes\b", line) for line in lines)


def _sizes_of(code: ModelCode, used: bool, count: int) -> list[str]:
    """The declaration of `sizes` from the values of the first `count` symbols."""
    if not used:
        return []
    members = ", ".join(f"values[{index}]" if index < count else "0" for index in range(len(code.sizes.members)))
    return [f"    const Sizes sizes{{{members}}};"]


def _input_shapes(code: ModelCode) -> str:
    rows = [", ".join(map(code.sizes.expression, each.shape)) for each in code.program.inputs]
    used = _uses_sizes(rows)
    values = "values" if used else "/*values*/"
    head = f"std::vector<graphc::Shape> {code.class_name}::input_shapes(const std::vector<int64_t> & {values}) const {{"
    lines = [f"        graphc::Shape{{{row}}}," for row in rows]
    return "\n".join(
        [head, *_sizes_of(code, used, len(code.sizes.solutions)), "    return {", *lines, "    };", "}", ""]
    )


def _check(code: ModelCode) -> str:
    lines = []
    for check in code.program.checks:
        sides = f"{code.sizes.expression(check.left)}, {code.sizes.expression(check.right)}"
        lines.append(f"    graphc::require_equal({sides}, {string_literal(check.message)});")
    lines += _conditions(code, code.composed) if code.block is None else []
    used = _uses_sizes(lines)
    values = "values" if used else "/*values*/"
    head = f"void {code.class_name}::check(const std::vector<int64_t> & {values}) const {{"
    body = [*_sizes_of(code, used, len(code.sizes.solutions)), *lines]
    return "\n".join([head, *body, "}", ""] if lines else [f"{head}}}", ""])


def _conditions(code: ModelCode, program: Program) -> list[str]:
    """What must hold of sizes for ggml to accept a program's calls."""
    lines = []
    for condition in conditions(program):
        size, text = code.sizes.expression(condition.size), string_literal(condition.text)
        line = f"    graphc::require_at_least({size}, {condition.least}, {text});"
        if condition.unless_empty:
            ne = ", ".join(map(code.sizes.expression, condition.unless_empty))
            lines += [f"    if (!graphc::has_no_elements({{{ne}}})) {{", f"    {line}", "    }"]
        else:
            lines.append(line)
    return lines


def _build(code: ModelCode, graph: GraphCode) -> str:
    """The function of a graph, from its inputs to its outputs."""
    main = graph.functions.main
    written, needs = graph.written[main], graph.needs[main]
    returned = [
        f"        graphc::GraphOutput{{{variable}, {{{', '.join(map(code.sizes.expression, output.shape))}}}}},"
        for variable, output in zip(graph.results, graph.program.outputs, strict=True)
    ]
    checks = _conditions(code, graph.program) if code.block else []
    sized = needs.sizes or _uses_sizes([*returned, *checks])
    kernels, values = ("kernels" if needs.kernels else "/*kernels*/"), ("values" if sized else "/*values*/")
    body = _sizes_of(code, sized, len(code.sizes.members)) + checks
    if main.type:
        body.append(f"    const {main.type} & weights = weights_;")
    for name, (kind, index) in zip(written.parameters, main.body.arguments, strict=True):
        declared = graph.program.inputs[index]
        shape = comment(f"[{', '.join(map(str, declared.shape))}]")
        assert kind == "input"
        body.append(f"    ggml_tensor * {name} = inputs[{index}];  // {shape}")
    body += written.lines
    inputs = "inputs" if main.body.arguments else "/*inputs*/"
    ctx = "ctx" if main.body.steps else "/*ctx*/"
    head = f"std::vector<graphc::GraphOutput> {code.class_name}::{main.name}("
    parameters = [f"const graphc::Builder & {ctx}", f"graphc::Kernels & {kernels}", f"const std::vector<int64_t> & {values}",
                  f"const std::vector<ggml_tensor *> & {inputs}"]  # fmt: skip
    lines = wrapped(head, parameters, ") const {", " " * 8)
    return "\n".join([*lines, *body, "    return {", *returned, "    };", "}", ""])
