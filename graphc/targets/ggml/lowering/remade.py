"""Programs made of others, call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.prune import live_calls
from graphc.targets.ggml.program.tensor import Arg, Tensor


def remade(program: Program, calls: Iterable[tuple[int, Call]], add: Callable[[Program, Call], Tensor]) -> Program:
    """The same program by other calls, which `add` makes of these: each has the number of that in whose place it is."""
    result = replace(program, calls=[], outputs=[])
    moved: dict[int, Tensor] = {}

    def there(arg: Tensor) -> Tensor:
        return replace(moved[arg.call], rank=arg.rank) if arg.call in moved else arg

    for index, call in calls:
        args = tuple(there(arg) if isinstance(arg, Tensor) else arg for arg in call.args)
        moved[index] = add(result, replace(call, args=args))
    result.outputs.extend(replace(output, tensor=there(output.tensor)) for output in program.outputs)
    return result


def as_it_is(program: Program, call: Call) -> Tensor:
    """The same call, in another program."""
    return add_call(program, call, call.function, call.args, call.result)


def add_call(program: Program, call: Call, function: str, args: Iterable[Arg], layout: Tensor) -> Tensor:
    """The result of one more call of a program, made of another."""
    tensor = replace(layout, call=len(program.calls))
    program.calls.append(replace(call, function=function, args=tuple(args), result=tensor))
    return tensor


def without_unused(program: Program) -> Program:
    """The same program without calls whose results nothing reads."""
    calls = ((index, program.calls[index]) for index in sorted(live_calls(program)))
    return remade(program, calls, as_it_is)
