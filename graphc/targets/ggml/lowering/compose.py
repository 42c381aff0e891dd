"""Calls of ggml's that are composites, and composites that do what is behind them on their way out.

A program as it is stored says of these what ggml computes, whoever runs it. Before it runs, or becomes C++, they are put
together; each composite's file says of what (`program/composites/`). Reshapes of reshapes become one, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from graphc.ir import module_path
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.composites import COMPOSITES, RAISED, TAILS
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program
from graphc.targets.ggml.program.prune import live_calls
from graphc.targets.ggml.program.rules import RESHAPES
from graphc.targets.ggml.program.tensor import Arg, ProgramError, Tensor


def composed(program: Program) -> Program:
    """The same program by composites; weights, kernels, inputs and outputs are the same objects, or those of the same numbers."""
    result = replace(program, calls=[], outputs=[])
    moved: dict[int, Tensor] = {}

    for index, call in _composed(program):
        source = call.args[0] if call.function in RESHAPES else None
        if isinstance(source, Tensor) and (source.ne, source.nb) == (call.result.ne, call.result.nb):
            moved[index] = _moved(source, moved)
            continue
        tensor = replace(call.result, call=len(result.calls))
        host = call.host and replace(call.host, blocks=tuple(map(composed, call.host.blocks)))
        scope = tuple(map(module_path, call.scope))  # engines of an older version have them as the exporter did
        result.calls.append(replace(call, args=_all_moved(call.args, moved), result=tensor, host=host, scope=scope))
        moved[index] = tensor
    for output in program.outputs:
        result.outputs.append(replace(output, tensor=_moved(output.tensor, moved)))
    return result


def expanded(program: Program, kept: Container[str]) -> Program:
    """The same program, with the calls that composites stand for in place of those that are not kept."""
    result = replace(program, calls=[], outputs=[])
    moved: dict[int, Tensor] = {}

    def append(call: Call, function: str, args: Iterable[Arg], layout: Tensor) -> Tensor:
        tensor = replace(layout, call=len(result.calls))
        result.calls.append(replace(call, function=function, args=tuple(args), result=tensor))
        return tensor

    for index, call in enumerate(program.calls):
        args = _all_moved(call.args, moved)
        if call.function not in COMPOSITES or call.function in kept:
            host = call.host and replace(call.host, blocks=tuple(expanded(each, kept) for each in call.host.blocks))
            moved[index] = append(replace(call, host=host), call.function, args, call.result)
            continue
        made: dict[Tensor, Tensor] = {}
        *before, last = COMPOSITES[call.function].expansion(args)
        for step, layout in (*((each, each.result) for each in before), (last, call.result)):
            given = [made.get(arg, arg) if isinstance(arg, Tensor) else arg for arg in step.args]
            made[step.result] = append(call, step.function, given, layout)
        moved[index] = made[last.result]
    for output in program.outputs:
        result.outputs.append(replace(output, tensor=_moved(output.tensor, moved)))
    return result


def _moved(tensor: Tensor, moved: Mapping[int, Tensor]) -> Tensor:
    """A tensor where another call makes it."""
    return replace(moved[tensor.call], rank=tensor.rank) if tensor.call in moved else tensor


def _all_moved(args: Iterable[Arg], moved: Mapping[int, Tensor]) -> tuple[Arg, ...]:
    """Arguments where other calls make them."""
    return tuple(_moved(arg, moved) if isinstance(arg, Tensor) else arg for arg in args)


def _composed(program: Program) -> Iterator[tuple[int, Call]]:
    """The calls that are left, each with the number of the one in whose place it is; their arguments have the old numbers."""
    live = live_calls(program)
    uses = Counter(output.tensor.call for output in program.outputs)
    for index in live:
        uses.update(arg.call for arg in program.calls[index].args if isinstance(arg, Tensor))
    calls: dict[int, Call] = {}
    since = 0
    for index in sorted(live):
        call = _raised(_reshaped_once(program.calls[index], calls, since))
        if call.function in (HOST, RESULT):
            since = index  # what was computed before it is another graph's
        read = [arg.call for arg in program.calls[index].args if isinstance(arg, Tensor) and arg.call >= since]
        for inner in read:
            if uses[inner] == 1 and inner in calls and (more := _with_tail(calls[inner], call)):
                del calls[inner]
                call = more
        calls[index] = call
    calls = {index: _with_vectors(call, calls) for index, call in calls.items()}
    left = live_calls(program, calls)
    yield from ((index, call) for index, call in calls.items() if index in left)


def _reshaped_once(call: Call, calls: Mapping[int, Call], since: int) -> Call:
    """A reshape of what a reshape of the same graph is made of, if it is one of a reshape."""
    source = call.args[0] if call.function in RESHAPES else None
    if not isinstance(source, Tensor) or source.call < since or source.call not in calls:
        return call
    inner = calls[source.call]
    return replace(call, args=(inner.args[0], *call.args[1:])) if inner.function in RESHAPES else call


def _with_vectors(call: Call, calls: Mapping[int, Call]) -> Call:
    """A composite that reads vectors, in place of those that were given the axes of an image for it."""
    if call.function not in COMPOSITES:
        return call
    composite = COMPOSITES[call.function]
    args = dict(enumerate(call.args))
    for place, name in enumerate(composite.parameters):
        operand = args[place]
        reshape = calls.get(operand.call) if name in composite.vectors and isinstance(operand, Tensor) else None
        if reshape is None or reshape.function not in RESHAPES:
            continue
        vector = reshape.args[0]
        if isinstance(vector, Tensor) and vector.weight >= 0 and reshape.result.ne == (1, 1, vector.ne[0], 1):
            args[place] = vector
    return replace(call, args=tuple(args.values()))


def _raised(call: Call) -> Call:
    """A call of ggml's as the composite that it is."""
    if call.kernel >= 0 or call.function not in RAISED:
        return call
    name, arguments = RAISED[call.function]
    return replace(call, function=name, args=arguments(*call.args))


def _with_tail(call: Call, behind: Call) -> Call | None:
    """A composite that does what a call behind it does, which alone reads it, in its own module; None if it does not."""
    arguments = TAILS.get((call.function, behind.function))
    args = arguments and arguments(call.args, call.result, behind.args)
    if not args:
        return None
    try:
        layout = CALLS[call.function](*args)
    except ProgramError:
        return None
    if (layout.type, layout.ne, layout.nb) != (behind.result.type, behind.result.ne, behind.result.nb):
        return None
    return replace(behind, function=call.function, args=args, scope=call.scope, source=call.source)
