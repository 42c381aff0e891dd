"""Everything about a program's C++ that more than one of the generated files depends on: names, functions, kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from graphc.errors import GraphcError
from graphc.kernels.c.render import Rendered, render
from graphc.shapes import Expr
from graphc.targets.ggml.cpp.body import BodyWriter, Needs
from graphc.targets.ggml.cpp.functions import Function, Functions, Invocation
from graphc.targets.ggml.cpp.launches import LaunchedCode
from graphc.targets.ggml.cpp.names import RESERVED, Names, identifier, singular, snake, type_name
from graphc.targets.ggml.cpp.numbers import Labelled
from graphc.targets.ggml.cpp.parts import has_parts, split
from graphc.targets.ggml.cpp.regions import regions
from graphc.targets.ggml.cpp.scopes import placed, split_path
from graphc.targets.ggml.cpp.sizes import SizeNames
from graphc.targets.ggml.cpp.weights import WeightTree
from graphc.targets.ggml.lowering.compose import composed, expanded
from graphc.targets.ggml.program.composites import PREFIX
from graphc.targets.ggml.program.in_c import built_in_c
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.tensor import STORAGE
from graphc.targets.ggml.program.text import digest, write_text

STRUCTS = frozenset({"Inputs", "Outputs", "Sizes", "Weights"})
"""Structs that every model may have."""

TARGETS = frozenset(
    {
        "all",
        "test",
        "install",
        "help",
        "clean",
        "package",
        "depend",
        "edit_cache",
        "rebuild_cache",
        "m",
        "c",
        "dl",
        "pthread",
    }
)
"""Names that targets of cmake's and libraries have, which the project may not."""

NORMALIZATIONS = ("graphc_layer_norm", "graphc_group_norm", "graphc_rms_norm", "graphc_l2_norm")


class GraphCode:
    """The functions of one graph, a straight program. `main` is what the function of the whole graph is called."""

    def __init__(
        self, program: Program, main: str, tree: WeightTree, sizes: SizeNames, kernels: Sequence[str], names: Names
    ) -> None:
        self.program = program
        self.functions = Functions(program, tree, regions(program))
        self._name_functions(names, {struct.name for struct in tree.structs})
        self.functions.main.name = main
        self.needs: dict[Function, Needs] = {}
        for function in self.functions.list:
            self.needs[function] = self._needs(function, self.needs)
        self.written = {
            function: BodyWriter(self.functions, function, sizes, kernels, self.needs, names.taken).write()
            for function in self.functions.list
        }

    @property
    def results(self) -> list[str]:
        """The variable of each output."""
        main = self.functions.main
        variables = dict(zip(main.results, self.written[main].results, strict=True))
        return [variables[main.body.positions[output.tensor.call]] for output in self.program.outputs]

    def callers(self, function: Function) -> list[str]:
        """The paths of the modules that a function stands for."""
        return list(dict.fromkeys(".".join(split_path(body.region.path)) for body in function.bodies))

    def _name_functions(self, names: Names, structs: set[str]) -> None:
        for function in self.functions.list[:-1]:
            wanted = {_module_name(body.region.path) for body in function.bodies}
            if len(wanted) > 1 and function.type in structs:
                wanted = {self._normalization(function) or snake(function.type)}
            function.name = names.fresh(identifier(min(wanted, key=lambda name: (len(name), name)), "module"))

    def _normalization(self, function: Function) -> str:
        """What a function that normalizes is called."""
        calls = [self.program.calls[step].function for step in function.body.steps if isinstance(step, int)]
        return next((call.removeprefix(PREFIX) for call in calls if call in NORMALIZATIONS), "")

    def _needs(self, function: Function, known: dict[Function, Needs]) -> Needs:
        """What a function or those that it calls use."""
        sizes = kernels = False
        for position, step in enumerate(function.body.steps):
            for index, number in enumerate(self.functions.numbers(step)):
                sizes |= isinstance(number.value, Expr) and (position, index) not in function.holes
            if isinstance(step, Invocation):
                sizes |= known[step.function].sizes
                kernels |= known[step.function].kernels
            else:
                call = self.program.calls[step]
                apart = {number.position for number in self.functions.numbers(step)}
                sizes |= any(isinstance(arg, Expr) for place, arg in enumerate(call.args) if place not in apart)
                kernels |= call.kernel >= 0 or call.launches is not None
        return Needs(sizes, kernels)


class ModelCode:
    """Everything about one program's C++. `title` is what a person calls the model.

    Raises GraphcError where the program cannot be said in C++.
    """

    def __init__(self, program: Program, title: str) -> None:
        _check_values(program)
        self.sha256 = digest(write_text(program))
        self.stored, whole = program, composed(program)
        program = self.composed = expanded(whole, built_in_c())
        self.launched: LaunchedCode | None = None
        if self.stored.device_code is not None:
            self.launched = LaunchedCode(self.stored.device_code, self.stored)
            program = expanded(self.launched.program, built_in_c())
        self.program, self.title = program, title
        self.class_name = type_name(title)
        if self.class_name in STRUCTS:
            self.class_name += "Model"
        self.namespace = snake(self.class_name)
        if self.namespace in (self.class_name, *TARGETS) or identifier(self.namespace) != self.namespace:
            self.namespace = f"{self.namespace.strip('_')}_model"
        self.header = f"{self.namespace}/model.h"
        self.sizes = SizeNames(program)
        self.kernels = self._kernels()
        if self.kernels:
            self.program = program = with_arguments(program, self.kernels)
        self.block = split(program, Names().fresh) if has_parts(program) else None
        self.parts = self.block.parts if self.block else []
        parts = [part.program for part in self.parts] if self.block else [program]
        named = parts
        if self.launched:  # what reads a weight says what it is called, and kernels say nothing
            whole = self.composed
            named = [part.program for part in split(whole, Names().fresh).parts] if self.block else [whole]
        self.tree = WeightTree([placed(part) for part in named] or [program], self.class_name)
        self.input_members = _members(each.name for each in program.inputs)
        self.output_members = _members(each.name for each in program.outputs)
        methods = [f"build_{part.name}" for part in parts] if self.block else ["build"]
        structs = {struct.name for struct in self.tree.structs}
        members = {part.member for part in self.parts}
        members |= set(self.launched.constants.values() if self.launched else ())
        self.names = Names(frozenset({*RESERVED, self.namespace, self.class_name, *structs, *methods, *members}))
        functions = self.kernels.functions if self.kernels else ()
        self.graphs = [
            GraphCode(placed(part), method, self.tree, self.sizes, functions, self.names)
            for part, method in zip(parts, methods, strict=True)
        ]

    def _kernels(self) -> Rendered | None:
        """The C file of the kernels, its functions called after the model: a program may hold several models."""
        if not self.program.kernels:
            return None
        rendered = render(self.program.kernels, list(self.sizes.members))
        names = {name: f"{self.namespace}_{name.removeprefix('graphc_')}" for name in rendered.functions}
        text = re.sub(r"\bgraphc_kernel_\w+", lambda name: names.get(name[0], name[0]), rendered.text)
        return replace(rendered, text=text, functions=tuple(names[each] for each in rendered.functions))


def with_arguments(program: Program, kernels: Rendered) -> Program:
    """The program whose calls of kernels are given what the kernels' functions are, behind the tensors; each calls the first
    kernel of its function."""

    def given(call: Call) -> Call:
        host = call.host and replace(
            call.host, blocks=tuple(with_arguments(each, kernels) for each in call.host.blocks)
        )
        if call.kernel < 0:
            return replace(call, host=host)
        arguments = [
            Labelled(each, label) if isinstance(each, float) else each
            for each, label in zip(kernels.arguments[call.kernel], kernels.labels[call.kernel], strict=True)
        ]
        first = kernels.functions.index(kernels.functions[call.kernel])
        return replace(call, args=(*call.args, *arguments), kernel=first)

    return replace(program, calls=list(map(given, program.calls)))


def _check_values(program: Program) -> None:
    """Raises GraphcError for inputs and outputs whose tensors do not hold their elements as the runtime reads them."""
    for declared in program.inputs:
        if declared.tensor.type not in (STORAGE.get(declared.dtype), "I32"):
            raise GraphcError(f"input {declared.name} of {declared.dtype} cannot be held as {declared.tensor.type}")
    for output in program.outputs:
        if output.tensor.call < 0:
            raise GraphcError(f"output {output.name} is an input or a weight itself")
        if output.tensor.type != STORAGE.get(output.dtype):
            raise GraphcError(f"output {output.name} of {output.dtype} cannot be read from {output.tensor.type}")


def _module_name(path: Iterable[str]) -> str:
    """What a module's function is called: `down_blocks.0` is `down_block`."""
    parts = split_path(tuple(path))
    named = [part for part in parts if not part.isdigit()]
    if not named:
        return "module"
    name = snake(singular(named[-1]) if parts[-1].isdigit() else named[-1])
    return name.rstrip("0123456789").rstrip("_") or name


def _members(texts: Iterable[str]) -> list[str]:
    """Members of the structs of inputs and outputs: a member may not be called as its struct."""
    names = Names(frozenset({"Inputs", "Outputs"}))
    return [names.fresh(identifier(text)) for text in texts]
