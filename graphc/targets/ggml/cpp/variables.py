"""What the variables of a generated function are called, and when one is used again.

The result of a module is called as the module is. A call that has the last use of what it computes on takes over its name,
as hand-written code does: `x = ggml_silu(ctx, x)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphc.targets.ggml.calls import VIEWS
from graphc.targets.ggml.cpp.functions import Function, Functions, Operand, Step
from graphc.targets.ggml.cpp.names import Names, identifier, singular, snake
from graphc.targets.ggml.cpp.ratios import SizeOf
from graphc.targets.ggml.cpp.scopes import Path, Ref, split_path

CALL_NAMES: Mapping[str, str] = {
    "ggml_add": "sum",
    "ggml_sub": "difference",
    "ggml_mul": "product",
    "ggml_div": "quotient",
    "ggml_mul_mat": "product",
    "ggml_soft_max": "attention",
    "ggml_soft_max_ext": "attention",
    "ggml_get_rows": "rows",
    "ggml_concat": "joined",
    "ggml_conv_2d": "conv",
    "ggml_conv_2d_direct": "conv",
    "ggml_im2col": "columns",
    "ggml_sqr": "square",
    "ggml_sum_rows": "sum",
    "ggml_permute": "permuted",
    "ggml_transpose": "transposed",
    "ggml_cont": "copy",
    "ggml_cast": "copy",
    "ggml_repeat_4d": "repeated",
}
"""What the result of a call is called that starts a variable; of other calls, what the function's own name says."""

POINTWISE = frozenset({"ggml_add", "ggml_sub", "ggml_mul", "ggml_div"})
FIRST = frozenset({"ggml_concat", "ggml_soft_max_ext"})
"""Calls whose result is another state of their first operand."""


class Variables:
    """The variables of one function while its statements are written, in order."""

    def __init__(self, functions: Functions, function: Function, taken: Iterable[str]) -> None:
        self.functions = functions
        self.function = function
        self.names = Names(frozenset(taken))
        self.of: dict[Operand, str] = {}
        self._born: dict[str, int] = {}
        self._modules: dict[str, str] = {}
        self._functions = {each.name for each in functions.list}
        self._readers = _readers(functions, function)
        for index, ref in enumerate(function.body.arguments):
            self.of["parameter", index] = self.names.fresh(identifier(self._parameter(index, ref), "x"))
        self.parameters = list(self.of.values())
        self._born.update((name, -1) for name in self.parameters)
        self._inputs = {self.of["parameter", index] for index in self._model_inputs()}
        self.numbers = [self.names.fresh(column[0].name) for column in function.numbers]

    def result(self, position: int, operands: list[Operand]) -> tuple[str, bool]:
        """The variable for the only result of a step, and whether it is new."""
        reused = self._reused(position, operands)
        if reused is None:
            return self.new(position, 0), True
        self.of["local", (position, 0)] = self.of[reused]
        return self.of[reused], False

    def new(self, position: int, index: int) -> str:
        """A new variable for a result of a step."""
        module, numbered = self._module(position)
        step = self.function.body.steps[position]
        suggestion = module or (self._call_name(step) if isinstance(step, int) else step.function.name)
        name = identifier("x" if numbered else suggestion, "x")
        name = self.names.fresh(name, f"{name}_out" if name in self._functions else "")
        self.of["local", (position, index)] = name
        self._born[name] = position
        if module and not numbered:
            self._modules[name] = module
        return name

    def is_free(self, operand: Operand, position: int) -> bool:
        """True if a step may take over an operand's variable: nothing reads it later, and it is no input of the model."""
        if operand[0] == "weight" or self.of[operand] in self._inputs:
            return False
        return max(self._readers.get(operand, [position])) <= position

    def _reused(self, position: int, operands: list[Operand]) -> Operand | None:
        """The operand whose variable the result of a step takes over: one that nothing else reads, and whose name still fits."""
        variables = [each for each in dict.fromkeys(operands) if each[0] != "weight"]
        free = [each for each in variables if self.is_free(each, position)]
        if not free or len({self.of[each] for each in variables}) < len(variables):
            return None
        step = self.function.body.steps[position]
        first = free[0] if free[0] == operands[0] else None
        if not isinstance(step, int):
            alike = [each for each in free if self._shape_is_kept(step, operands.index(each))]
            return self._chained(position, alike[0] if self._module(position)[1] and alike else first)
        call = self.functions.program.calls[step]
        if self._module(position)[0] and len(variables) < len(operands):
            return self._chained(position, free[0]) if len(variables) == 1 else None
        if len(variables) == 1:
            return free[0]
        if call.function in POINTWISE:
            fitting = [each for each in free if each == operands[0] or self._keeps_shape(step)]
            return min(fitting, key=lambda each: self._born[self.of[each]], default=None)
        return first if call.function in FIRST else None

    def _chained(self, position: int, operand: Operand | None) -> Operand | None:
        """The operand if a module's result may be called as it is: the module is one of a list, or nothing else read the
        operand; and it is not called as another module."""
        if operand is None:
            return None
        module, numbered = self._module(position)
        if self._modules.get(self.of[operand], module) != module:
            return None
        return operand if numbered or len(self._readers[operand]) == 1 else None

    def _shape_is_kept(self, step: Step, index: int) -> bool:
        """True if the result of a step has the sizes of what it reads at that place."""
        made = self.functions.tensor(("call", self.functions.makes(step)[0]))
        return self.functions.tensor(self.functions.reads(step)[index]).ne == made.ne

    def _keeps_shape(self, step: Step) -> bool:
        """True if all that a call reads has the shape of its result."""
        ne = [self.functions.tensor(ref).ne for ref in self.functions.reads(step)]
        return all(each == ne[0] for each in ne)

    def _module(self, position: int) -> tuple[str, bool]:
        """The child module that a step belongs to ("" if none), and whether it is one of a numbered list."""
        step = self.function.body.steps[position]
        scope = self.functions.program.calls[step].scope if isinstance(step, int) else step.body.region.path
        if isinstance(step, int) and scope in self.functions.containers and not self._leaves(step, scope):
            return "", False
        parts = split_path(scope[len(self.function.body.region.path) :])
        named = [part for part in parts if not part.isdigit()]
        if not named:
            return "", False
        return (singular(named[-1]), True) if parts[-1].isdigit() else (snake(named[-1]), False)

    def _leaves(self, index: int, scope: Path) -> bool:
        """True if a call's result is read outside of a module, or is an output."""
        readers = self.functions.readers.get(index, [])
        return not readers or any(self.functions.program.calls[each].scope[: len(scope)] != scope for each in readers)

    def _call_name(self, index: int) -> str:
        call = self.functions.program.calls[index]
        if call.kernel >= 0:
            return getattr(self.functions.program.kernels[call.kernel].op, "name", "result").lower()
        if call.function == "ggml_mul_mat" and self._is_normalized(index):
            return "scores"
        plain = call.function.removeprefix("ggml_")
        if call.function in VIEWS and call.function not in CALL_NAMES:
            return "part" if plain.startswith("view") else "reshaped"
        return CALL_NAMES.get(call.function, plain)

    def _is_normalized(self, index: int) -> bool:
        """True if softmax is what becomes of a call's result, perhaps scaled and masked."""
        for _ in range(3):
            readers = self.functions.readers.get(index, [])
            if len(readers) != 1:
                return False
            index = readers[0]
            function = self.functions.program.calls[index].function
            if function not in POINTWISE and function != "ggml_scale":
                return function.startswith("ggml_soft_max")
        return False

    def _model_inputs(self) -> set[int]:
        """The parameters that are the same input of the model wherever the function is called."""
        arguments = zip(*(body.arguments for body in self.function.bodies), strict=True)
        return {i for i, refs in enumerate(arguments) if refs[0][0] == "input" and len(set(refs)) == 1}

    def _parameter(self, index: int, ref: Ref) -> str:
        """What all callers' arguments are called if they agree, else "x" or the module that the first one comes from."""
        program, function = self.functions.program, self.function
        kind, number = ref
        if index in self._model_inputs():
            return program.inputs[number].name
        if kind == "weight":
            return self.functions.tree.paths[number][-1]
        if index == 0 or kind == "input":
            return "x"
        scope, inside = program.calls[number].scope, function.body.region.path
        parts = split_path(scope)
        return snake(parts[-1]) if parts and not parts[-1].isdigit() and scope != inside[: len(scope)] else "x"


def _readers(functions: Functions, function: Function) -> dict[Operand, list[int]]:
    """The steps that read each operand; the function's results are read after the last."""
    found: dict[Operand, list[int]] = {}
    for position, step in enumerate(function.body.steps):
        read = [functions.operand(function.body, ref) for ref in functions.reads(step)]
        for index in range(len(functions.numbers(step))):
            hole = function.holes.get((position, index))
            if isinstance(hole, SizeOf):
                read.append(hole.operand)
        for operand in dict.fromkeys(read):
            found.setdefault(operand, []).append(position)
    for result in function.results:
        found.setdefault(("local", result), []).append(len(function.body.steps))
    return found
