"""What the variables of a generated function are called, and when one is used again.

The result of a module is called as the module is. A call that has the last use of what it computes on takes over its name,
as hand-written code does: `x = ggml_silu(ctx, x)`. What goes on from module to module is called `cur`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from graphc.targets.ggml.cpp.functions import Function, Functions, Invocation, Operand, Step
from graphc.targets.ggml.cpp.names import Names, identifier, singular, snake
from graphc.targets.ggml.cpp.ratios import SizeOf
from graphc.targets.ggml.cpp.scopes import Path, Ref, common, reference, split_path
from graphc.targets.ggml.program.calls import VIEWS
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.tensor import Tensor

CALL_NAMES: Mapping[str, str] = {
    "ggml_add": "sum",
    "graphc_add": "sum",
    "ggml_sub": "difference",
    "graphc_sub": "difference",
    "ggml_mul": "product",
    "graphc_mul": "product",
    "ggml_div": "quotient",
    "graphc_div": "quotient",
    "graphc_soft_max": "weights",
    "ggml_soft_max_ext": "weights",
    "ggml_get_rows": "rows",
    "ggml_im2col": "columns",
    "ggml_sqr": "square",
    "graphc_sum_rows": "sum",
    "ggml_permute": "permuted",
    "ggml_cast": "copy",
    "graphc_cast": "copy",
    "ggml_repeat_4d": "repeated",
    "graphc_linear": "product",
    "graphc_gated_linear": "product",
    "graphc_scaled_linear": "product",
    "graphc_conv_2d": "conv",
    "graphc_conv_3d": "conv",
    "graphc_conv_2d_dw": "conv",
    "graphc_conv_2d_last": "conv",
    "graphc_expanded_conv_2d": "conv",
    "graphc_mean_over_rows": "mean",
    "graphc_sum_over_rows": "total",
    "graphc_concat": "joined",
    "graphc_gate": "activated",
    "graphc_rotary": "rotated",
    "graphc_pad": "padded",
    "graphc_repeat": "repeated",
    "graphc_upscale": "upscaled",
    "graphc_average_pool": "averaged",
}
"""What the result of a call is called that starts a variable; of other calls, what the function's own name says."""

POINTWISE = frozenset(f"{by}_{name}" for by in ("ggml", "graphc") for name in ("add", "sub", "mul", "div"))
FIRST = frozenset({"graphc_concat", "ggml_soft_max_ext"})
"""Calls whose result is another state of their first operand."""

PLAIN = ("", "x", "other", "image", "volumes", "weight", "kernel")
"""What composites call what they compute on, which says nothing to a reader."""

SUMMED = ("bias", "residual")
"""What is added to a product or a convolution: a number for all of a row or a plane, or one for each element."""

PASSING = {*SUMMED, "q", "k", "v"}
"""What a tensor may be to those that read it and is not called for that, as it has a name by where it comes from."""

FARTHEST = 8
"""Calls through which a tensor is followed to where it comes from."""

STREAM = "cur"
"""What a variable is called that several modules change."""

Birth: TypeAlias = tuple[int, int]
"""The step, and the number of its result, for which a variable is new."""


class Variables:
    """The variables of one function while its statements are written, in order. A first writing finds those that are called
    `STREAM`, where they are new, and what each is `at_last`."""

    def __init__(
        self,
        functions: Functions,
        function: Function,
        taken: Iterable[str],
        streams: Collection[Birth] = (),
        at_last: Mapping[Birth, str] | None = None,
    ) -> None:
        self.functions = functions
        self.function = function
        self.names = Names(frozenset(taken))
        self.of: dict[Operand, str] = {}
        self._streams = streams
        self._at_last = at_last or {}
        self._births: dict[str, Birth] = {}
        self._born: dict[str, int] = {}
        self._modules: dict[str, str] = {}
        self._held: dict[str, Operand] = {}
        self._fixed: set[str] = set()
        self._functions = {each.name for each in functions.list}
        self._readers = _readers(functions, function)
        for index, ref in enumerate(function.body.arguments):
            wanted = identifier(self._parameter(index, ref), "x")
            name = self._fresh(wanted)
            self.of["parameter", index] = name
            self._born[name] = -1
            if wanted != "x" or self._same_input(index):
                self._fixed.add(name)
        self.parameters = list(self.of.values())
        self.numbers = [self.names.fresh(column[0].name) for column in function.numbers]

    def result(self, position: int, operands: list[Operand]) -> tuple[str, bool]:
        """The variable for the only result of a step, and whether it is new."""
        reused = None if self._stays(("local", (position, 0))) else self._reused(position, operands)
        if reused is None:
            return self.named(position, 0)
        self.hold(self.of[reused], ("local", (position, 0)))
        return self.of[reused], False

    def named(self, position: int, index: int) -> tuple[str, bool]:
        """A variable for a result of a step, and whether it is new: what went from module to module before may have left one."""
        if (position, index) in self._streams:
            for name, operand in self._held.items():
                if self._births.get(name) in self._streams and max(self._readers.get(operand, [-1])) <= position:
                    self.hold(name, ("local", (position, index)))
                    return name, False
        return self.new(position, index), True

    def new(self, position: int, index: int) -> str:
        """A new variable for a result of a step."""
        operand: Operand = ("local", (position, index))
        module, numbered = self._module(position)
        step = self.function.body.steps[position]
        stays = self._stays(operand) or len(self.functions.makes(step)) > 1
        at_last = self._at_last.get((position, index), "")
        if (position, index) in self._streams:
            module, numbered = at_last if at_last and STREAM in self.names.taken else STREAM, False
        elif stays:
            module, numbered = self._lasting_name(position, index) or module, False
        suggestion = module or at_last or (self._call_name(step) if isinstance(step, int) else step.function.name)
        name = self._fresh(identifier(suggestion, "x"))
        self._born[name] = position
        self._births[name] = position, index
        self.hold(name, operand)
        if stays:
            self._fixed.add(name)
        if module and not numbered and (position, index) not in self._streams:
            self._modules[name] = module
        return name

    def _fresh(self, name: str) -> str:
        """A name that is not given yet; the results of a function are not called as it is."""
        return self.names.fresh(name, f"{name}_out" if name in self._functions else "")

    def hold(self, name: str, operand: Operand) -> None:
        """From here on a variable is the operand's."""
        self.of[operand] = name
        self._held[name] = operand

    def streams(self) -> set[Birth]:
        """Where variables are new that other modules took over, or that the function returns when its own calls have."""
        found = set()
        for (kind, place), name in self.of.items():
            if kind == "local" and isinstance(place, tuple) and name in self._births:
                birth, position = self._births[name], int(place[0])
                module, unit = self._module(position), self._unit(position)
                other = module != self._module(birth[0]) or (module[1] and unit != self._unit(birth[0]))
                if other and (module[0] or place in self.function.results):
                    found.add(birth)
        return found

    def at_last(self) -> dict[Birth, str]:
        """What each variable is at last to all that read it, or which of the model's outputs if there are several; by where it is
        new."""
        found = {
            self._births[name]: self._final(operand) for name, operand in self._held.items() if name in self._births
        }
        return {birth: name for birth, name in found.items() if name}

    def _final(self, operand: Operand) -> str:
        """What an operand is to all that read it, or the output that it is of several; "" if that says nothing."""
        role = self._role(operand)
        if role:
            return "" if role in PASSING else role
        kind, place = operand
        outputs = self.functions.program.outputs
        if kind != "local" or not isinstance(place, tuple) or place not in self.function.results or len(outputs) < 2:
            return ""
        made = self.functions.makes(self.function.body.steps[place[0]])[place[1]]
        names = [each.name for each in outputs if each.tensor.call == made]
        return snake(names[0]) if len(names) == 1 else ""

    def is_free(self, operand: Operand, position: int) -> bool:
        """True if a step may take over an operand's variable: nothing reads it later, and its name does not say what it holds."""
        if operand[0] == "weight" or self.of[operand] in self._fixed:
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
        if call.launches is not None:
            return call.launches.each[-1].rendered.kernel.name.rstrip("_0123456789")
        plain = call.function.removeprefix("ggml_").removeprefix("graphc_")
        if call.function in VIEWS and call.function not in CALL_NAMES:
            return "part" if plain.startswith("view") else "reshaped"
        return CALL_NAMES.get(call.function, plain)

    def _stays(self, operand: Operand) -> bool:
        """True if several modules read it: it is more than what goes on from one to the next."""
        return len({self._unit(position) for position in self._readers.get(operand, ())}) > 1

    def _unit(self, position: int) -> str:
        """The child of the function's module that a step belongs to; that of a step behind the last is none of them."""
        if position >= len(self.function.body.steps):
            return "return"
        step = self.function.body.steps[position]
        scope = self.functions.program.calls[step].scope if isinstance(step, int) else step.body.region.path
        depth = len(self.function.body.region.path)
        return scope[depth] if len(scope) > depth else ""

    def _lasting_name(self, position: int, index: int) -> str:
        """What a result is called that several modules read: the module that made it with its number in a list, or what they all
        use it as, or else the module."""
        unit = self._unit(position)
        parts = split_path((unit,))
        if len(parts) > 1 and parts[1].isdigit():
            return f"{singular(parts[0])}_{parts[1]}"
        role = self._role(("local", (position, index)))
        if role and role not in PASSING:
            return role
        made = self.functions.makes(self.function.body.steps[position])[index]
        return snake(parts[0]) if parts else self._origin(("call", made), False)

    def _same_input(self, index: int) -> bool:
        """True if a parameter is the same input of the model wherever the function is called."""
        refs = {body.arguments[index] for body in self.function.bodies}
        return len(refs) == 1 and self.function.body.arguments[index][0] == "input"

    def _role(self, operand: Operand) -> str:
        """What all that reads an operand calls it, where that says more than "x": composites, and functions of the project."""
        roles = {role for position in self._readers.get(operand, ()) for role in self._roles_in(position, operand)}
        return re.sub(r"_\d+$", "", roles.pop()) if len(roles) == 1 else ""

    def _roles_in(self, position: int, operand: Operand) -> Iterator[str]:
        """What a step calls what it reads as this operand; "" where that says nothing."""
        if position >= len(self.function.body.steps):
            yield ""
            return
        step = self.function.body.steps[position]
        reads = [self.functions.operand(self.function.body, ref) for ref in self.functions.reads(step)]
        if operand not in reads:  # only its sizes are read
            return
        if isinstance(step, Invocation):
            names = [name if name.rstrip("_0123456789") not in PLAIN else "" for name in step.function.parameters]
            yield from (name for name, read in zip(names, reads, strict=True) if read == operand)
            return
        call = self.functions.program.calls[step]
        if call.function in VIEWS:
            yield self._role(("local", (position, 0)))
            return
        composite = COMPOSITES.get(call.function)
        if composite is None:
            yield ""
            return
        for place, arg in enumerate(call.args):
            if isinstance(arg, Tensor) and self.functions.operand(self.function.body, reference(arg)) == operand:
                more = SUMMED[arg.ne == call.result.ne] if composite.more == "sums" else ""
                role = [*composite.parameters, more][min(place, len(composite.parameters))]
                yield "" if role in PLAIN else role

    def _parameter(self, index: int, ref: Ref) -> str:
        """What all callers' arguments are called if they agree, else what it is used as, "x", or what the first one is."""
        kind, number = ref
        if self._same_input(index):
            return self.functions.program.inputs[number].name
        if kind == "weight":
            return self.functions.tree.paths[number][-1]
        if role := self._role(("parameter", index)):
            return role
        if index == 0:
            return "x"
        made = kind == "call" and self.functions.program.calls[number].kernel >= 0
        return self._origin(ref) or (self._call_name(number) if made else "x")

    def _origin(self, ref: Ref, inputs: bool = True) -> str:
        """The module outside of the function's that a tensor comes from, or the input; "" if that is far away, or no `inputs` are
        wanted."""
        program, inside = self.functions.program, split_path(self.function.body.region.path)
        for _ in range(FARTHEST):
            kind, number = ref
            if kind == "input" and inputs:
                return program.inputs[number].name
            if kind != "call":
                return ""
            scope = split_path(program.calls[number].scope)
            parts = scope[len(common([scope, inside])) :]
            if parts and not parts[0].isdigit():
                return snake(singular(parts[0]) if len(parts) > 1 and parts[1].isdigit() else parts[0])
            computed = [arg for arg in program.calls[number].args if isinstance(arg, Tensor) and arg.weight < 0]
            if not computed:
                return ""
            ref = reference(computed[0])
        return ""


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
