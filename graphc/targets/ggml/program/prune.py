"""Dropping what a program does not need: calls, weights and kernels that no output and no call of the host depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.program import HOST, RESULT, Call, Host, Program
from graphc.targets.ggml.program.tensor import Arg, Tensor


def pruned(program: Program, types: Sequence[str] | None = None) -> Program:
    """The same program without unused calls, weights and kernels; weights are in the order of their first use. With `types`
    they are of these types of ggml's. Raises ProgramError if a call does not take one."""
    types = [weight.tensor.type for weight in program.weights] if types is None else types
    return Pruning(program, Program(program.name, example=program.example, about=program.about), types).copied(program)


class Pruning:
    """One pass over a program and its blocks, which share weights and kernels."""

    def __init__(self, old: Program, new: Program, types: Sequence[str]) -> None:
        self.old, self.new, self.types = old, new, types
        self.weights: dict[int, Tensor] = {}
        self.kernels: dict[int, int] = {}

    def copied(self, program: Program) -> Program:
        """The program, or a block of it, with what it needs."""
        result = self.new if program is self.old else self.new.block(program.name)
        result.checks = program.checks
        result.inputs = list(program.inputs)
        live = live_calls(program)
        results: dict[int, Tensor] = {}

        def moved(tensor: Tensor) -> Tensor:
            if tensor.input >= 0:
                return tensor
            if tensor.call >= 0:
                return replace(results[tensor.call], rank=tensor.rank)
            return replace(self.weight(tensor.weight), rank=tensor.rank)

        for index, call in enumerate(program.calls):
            if index not in live:
                continue
            args = tuple(moved(arg) if isinstance(arg, Tensor) else arg for arg in call.args)
            args = self.prepared(result, call, args)
            results[index] = replace(self.result(call, args), call=len(result.calls))
            kernel = self.kernel(call.kernel) if call.kernel >= 0 else -1
            host = call.host and self.host(call.host)
            result.calls.append(replace(call, args=args, result=results[index], kernel=kernel, host=host))
            results[index] = self.followed(result, results[index])
        result.outputs = [replace(output, tensor=moved(output.tensor)) for output in program.outputs]
        return result

    def prepared(self, result: Program, call: Call, args: tuple[Arg, ...]) -> tuple[Arg, ...]:
        """The arguments of a call, for which further calls may be made before it."""
        return args

    def result(self, call: Call, args: tuple[Arg, ...]) -> Tensor:
        """What a call gives for its arguments, of which some may be of another type now."""
        if all(
            a.type == b.type
            for a, b in zip(call.args, args, strict=True)
            if isinstance(a, Tensor) and isinstance(b, Tensor)
        ):
            return call.result
        layout = CALLS[call.function](*args)
        return Tensor(layout.type, layout.ne, layout.nb, call.result.rank)

    def followed(self, result: Program, tensor: Tensor) -> Tensor:
        """What takes the place of a call's result; it may be of further calls."""
        return tensor

    def weight(self, index: int) -> Tensor:
        """The tensor that a weight has now."""
        if index not in self.weights:
            weight = self.old.weights[index]
            self.weights[index] = self.new.add_weight(
                weight.name, weight.dtype, weight.shape, weight.value, self.types[index]
            )
        return self.weights[index]

    def kernel(self, index: int) -> int:
        """The number that a kernel has now."""
        if index not in self.kernels:
            self.kernels[index] = len(self.new.kernels)
            self.new.kernels.append(self.old.kernels[index])
        return self.kernels[index]

    def host(self, host: Host) -> Host:
        """What the host does, with its blocks pruned."""
        return replace(host, blocks=tuple(map(self.copied, host.blocks)))


def live_calls(program: Program, calls: Mapping[int, Call] | None = None) -> set[int]:
    """The indices of the calls that an output or a call of the host depends on; of other `calls` than the program's, if given."""
    calls = dict(enumerate(program.calls)) if calls is None else calls
    outputs = [output.tensor.call for output in program.outputs]
    return with_needed(calls, [*outputs, *(index for index, call in calls.items() if call.function in (HOST, RESULT))])


def with_needed(calls: Mapping[int, Call] | Sequence[Call], wanted: Iterable[int]) -> set[int]:
    """The indices of some of the calls, and of all that they depend on."""
    found: set[int] = set()
    stack = list(wanted)
    while stack:
        index = stack.pop()
        if index < 0 or index in found:
            continue
        found.add(index)
        stack += [arg.call for arg in calls[index].args if isinstance(arg, Tensor)]
    return found
