"""Calls of ggml's that are composites, and composites that do what is behind them on their way out.

A program as it is stored says of these what ggml computes, whoever runs it. Before it runs, or becomes C++, they are put
together; each composite's file says of what (`program/composites/`). Reshapes of reshapes become one, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import replace

from graphc.ir import module_path
from graphc.kernels.use import KernelUse
from graphc.targets.ggml.lowering.channels_last import with_channels_last
from graphc.targets.ggml.lowering.lines import is_of_long_lines, with_lines_as_images
from graphc.targets.ggml.lowering.remade import add_call, as_it_is, remade, without_unused
from graphc.targets.ggml.lowering.sums import summed_at_once
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.composites import COMPOSITES
from graphc.targets.ggml.program.composites.activations import activation_of
from graphc.targets.ggml.program.composites.composite import RAISED, RAISED_LAST, TAILS, Raised
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program
from graphc.targets.ggml.program.prune import live_calls
from graphc.targets.ggml.program.rules import RESHAPES
from graphc.targets.ggml.program.tensor import Arg, ProgramError, Tensor, dense


def composed(
    program: Program, activations: Collection[str] | None = None, kernels: list[KernelUse] | None = None
) -> Program:
    """The same program by composites; weights, inputs and outputs are the same objects, or those of the same numbers. Products
    and convolutions do any activation, or one of those that are named. Its kernels, and perhaps more, are in a list of its own,
    or in that of the program around it."""
    program = replace(program, kernels=list(program.kernels) if kernels is None else kernels)
    if activations is None and any(map(is_of_long_lines, program.calls)):
        program = with_lines_as_images(program)

    def add(result: Program, call: Call) -> Tensor:
        source = call.args[0] if call.function in RESHAPES else None
        if isinstance(source, Tensor) and (source.ne, source.nb) == (call.result.ne, call.result.nb):
            return source
        host = call.host and replace(
            call.host, blocks=tuple(composed(each, activations, program.kernels) for each in call.host.blocks)
        )
        scope = tuple(map(module_path, call.scope))  # engines of an older version have them as the exporter did
        call = replace(call, host=host, scope=scope)
        by_rows = _add_by_rows(result, call) if call.function == "graphc_linear" else None
        return by_rows or add_call(result, call, call.function, call.args, call.result)

    result = remade(program, _composed(program, activations), add)
    if activations is not None:
        return result
    found = with_channels_last(result)
    found = found if found is result else without_unused(found)
    return remade(found, summed_at_once(found), as_it_is)


def expanded(program: Program, kept: Container[str]) -> Program:
    """The same program, with the calls that composites stand for in place of those that are not kept."""

    def add(result: Program, call: Call) -> Tensor:
        if call.function not in COMPOSITES or call.function in kept:
            host = call.host and replace(call.host, blocks=tuple(expanded(each, kept) for each in call.host.blocks))
            return add_call(result, replace(call, host=host), call.function, call.args, call.result)
        made: dict[Tensor, Tensor] = {}
        *before, last = COMPOSITES[call.function].expansion(call.args)
        for step, layout in (*((each, each.result) for each in before), (last, call.result)):
            given = [made.get(arg, arg) if isinstance(arg, Tensor) else arg for arg in step.args]
            made[step.result] = add_call(result, replace(call, kernel=step.kernel), step.function, given, layout)
        return made[last.result]

    return remade(program, enumerate(program.calls), add)


def _add_by_rows(program: Program, call: Call) -> Tensor | None:
    """A product of rows that lie along two axes of each image, [N, H, W, K], by all rows of an image at once, for which what is
    packed of the matrix is packed once; None if it is no such product."""
    weight, x, _, *sums = call.args
    rows = [each for each in (x, *sums) if isinstance(each, Tensor) and each.ne[1:] != (1, 1, 1)]
    assert isinstance(weight, Tensor)
    assert isinstance(x, Tensor)
    along = x.ne[1:]
    together = all(each.ne[1:] == along and each.contiguous for each in rows)
    if x.rank != 4 or 1 in along[:2] or weight.ne[2:] != (1, 1) or not together:
        return None

    def flat(layout: Tensor) -> Tensor:
        return dense(layout.type, (layout.ne[0], along[0] * along[1], along[2], 1), 3)

    made = {each: add_call(program, call, "ggml_reshape_3d", (each, *flat(each).ne[:3]), flat(each)) for each in rows}
    args = [made.get(arg, arg) if isinstance(arg, Tensor) else arg for arg in call.args]
    found = add_call(program, call, call.function, args, flat(call.result))
    return add_call(program, call, "ggml_reshape_4d", (found, *call.result.ne), call.result)


def _composed(program: Program, activations: Collection[str] | None) -> Iterator[tuple[int, Call]]:
    """The calls that are left, each with the number of the one in whose place it is; their arguments have the old numbers."""
    live = live_calls(program)
    uses = Counter(output.tensor.call for output in program.outputs)
    for index in live:
        uses.update(arg.call for arg in program.calls[index].args if isinstance(arg, Tensor))
    calls: dict[int, Call] = {}
    since = 0
    for index in sorted(live):
        call = _raised(_reshaped_once(program.calls[index], calls, since), RAISED)
        if call.function in (HOST, RESULT):
            since = index  # what was computed before it is another graph's
        read = [arg.call for arg in program.calls[index].args if isinstance(arg, Tensor) and arg.call >= since]
        for inner in read:
            if uses[inner] == 1 and inner in calls and (more := _with_tail(calls[inner], call)):
                del calls[inner]
                call = more
        calls[index] = call
    _take_activations(program, calls, uses, activations)
    calls = {index: _raised(_with_vectors(call, calls), RAISED_LAST) for index, call in calls.items()}
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


def _raised(call: Call, raised: Mapping[str, tuple[str, Raised]]) -> Call:
    """A call of ggml's as the composite that it is by itself, if it is one of these."""
    if call.kernel >= 0 or call.function not in raised:
        return call
    name, arguments = raised[call.function]
    args = arguments(*call.args)
    return call if args is None else replace(call, function=name, args=args)


def _take_activations(
    program: Program, calls: dict[int, Call], uses: Mapping[int, int], activations: Collection[str] | None
) -> None:
    """Have composites do the activations that alone read their results; of those which gate something, there are none left."""
    for index, behind in list(calls.items()):
        activation = activation_of(behind, program.kernels)
        taken = activation is not None and (activations is None or activation.name in activations)
        source = behind.args[0] if taken else None
        call = calls.get(source.call) if isinstance(source, Tensor) and uses[source.call] == 1 else None
        if call is None or call.function not in COMPOSITES:
            continue
        named = dict(zip(COMPOSITES[call.function].parameters, call.args, strict=False))
        if named.get("activation", True):
            continue  # it knows of none, or has one
        args = *(named | {"activation": activation}).values(), *call.args[len(named) :]
        if more := _in_place_of(behind, call, args):
            del calls[call.result.call]
            calls[index] = more


def _with_tail(call: Call, behind: Call) -> Call | None:
    """A composite that does what a call behind it does, which alone reads it, in its own module; None if it does not."""
    arguments = TAILS.get((call.function, behind.function))
    args = arguments and arguments(call.args, call.result, behind.args)
    return _in_place_of(behind, call, args) if args else None


def _in_place_of(behind: Call, call: Call, args: tuple[Arg, ...]) -> Call | None:
    """A composite with other arguments, in the place of a call behind it; None if its result is not the same."""
    try:
        found = CALLS[call.function](*args)
    except ProgramError:
        return None
    result = behind.result
    fits = (found.type, found.ne, found.nb) == (result.type, result.ne, result.nb)
    return (
        replace(behind, function=call.function, args=args, scope=call.scope, source=call.source, kernel=-1)
        if fits
        else None
    )
