"""Products, sums and activations that follow one another, and that nothing before or behind does, as one step: each alone would
read and write all of an image, or of a layer's states. What is repeated along axes for such a step is not written at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.composites.activations import activation_of
from graphc.targets.ggml.program.composites.arithmetic import MOST_SUMS, add, mul, scaled_sum
from graphc.targets.ggml.program.composites.copies import repeat
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Program
from graphc.targets.ggml.program.tensor import Arg, Tensor


def summed_at_once(program: Program) -> Iterator[tuple[int, Call]]:
    """The calls that are left of a program of composites, each with the number of the one in whose place it is."""
    uses = Counter(output.tensor.call for output in program.outputs)
    for call in program.calls:
        uses.update(arg.call for arg in call.args if isinstance(arg, Tensor))
    calls: dict[int, Call] = {}
    since = 0
    for index, call in enumerate(program.calls):
        if call.function in (HOST, RESULT):
            since = index  # what was computed before it is another graph's
        for arg in call.args:
            if not isinstance(arg, Tensor) or arg.call < since or uses[arg.call] != 1 or arg.call not in calls:
                continue
            if more := _with(program, calls[arg.call], call):
                del calls[arg.call]
                call = more
                break
        calls[index] = call
    yield from calls.items()


def _with(program: Program, before: Call, call: Call) -> Call | None:
    """A sum that does what a call behind it does, in the place of that; None if it does not."""
    result, sum_before = call.result, _as_sum(before)
    if sum_before is None or before.result.ne != result.ne or result.type != "F32":
        return None
    x, factor, activation, *sums = sum_before
    if activation:
        return None
    found: list[Arg]
    if call.function == add:
        found = [x, factor, False, *sums, _beside(before, call)]
    elif call.function == mul and before.function == repeat:
        found = [x, _beside(before, call), False]
    else:
        does = activation_of(call, program.kernels)
        if does is None:
            return None
        found = [x, factor, does, *sums]
    if len(found) > 3 + MOST_SUMS:
        return None
    made = CALLS[scaled_sum](*found)
    fits = (made.type, made.ne, made.nb) == (result.type, result.ne, result.nb)
    return replace(call, function=scaled_sum, args=tuple(found), kernel=-1) if fits else None


def _beside(before: Call, call: Call) -> Arg:
    """What a call of two operands reads beside the result of one before."""
    left, right = call.args
    return right if isinstance(left, Tensor) and left.call == before.result.call else left


def _as_sum(call: Call) -> list[Arg] | None:
    """The arguments of a call as a sum; None if it is none."""
    if call.function == scaled_sum:
        return list(call.args)
    if call.function == mul:
        return [*call.args, False]
    if call.function == add:
        return [call.args[0], None, False, call.args[1]]
    if call.function == repeat:
        x = call.args[0]
        assert isinstance(x, Tensor)
        spread = all(size in (1, wanted) for size, wanted in zip(x.ne, call.result.ne, strict=True))
        return [x, None, False] if spread else None
    return None
