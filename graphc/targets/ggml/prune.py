"""Dropping what a program does not need: calls, weights and kernels that no output depends on."""

from __future__ import annotations

from dataclasses import replace

from graphc.targets.ggml.program import Program, Tensor


def pruned(program: Program) -> Program:
    """The same program without unused calls, weights and kernels; weights are in the order of their first use."""
    live = live_calls(program)
    result = Program(program.name, checks=program.checks)
    weights: dict[int, Tensor] = {}
    results: dict[int, Tensor] = {}

    def moved(tensor: Tensor) -> Tensor:
        if tensor.input >= 0:
            return tensor
        if tensor.call >= 0:
            return replace(tensor, call=results[tensor.call].call)
        if tensor.weight not in weights:
            weight = program.weights[tensor.weight]
            weights[tensor.weight] = result.add_weight(weight.name, weight.dtype, weight.shape, weight.value)
        return replace(tensor, weight=weights[tensor.weight].weight)

    result.inputs = list(program.inputs)
    kernels: dict[int, int] = {}
    for index, call in enumerate(program.calls):
        if index not in live:
            continue
        args = tuple(moved(arg) if isinstance(arg, Tensor) else arg for arg in call.args)
        kernel = -1
        if call.kernel >= 0:
            kernel = kernels.setdefault(call.kernel, len(kernels))
        results[index] = replace(call.result, call=len(result.calls))
        result.calls.append(replace(call, args=args, result=results[index], kernel=kernel))
    result.kernels = [program.kernels[old] for old in kernels]
    result.outputs = [replace(output, tensor=moved(output.tensor)) for output in program.outputs]
    return result


def live_calls(program: Program) -> set[int]:
    """The indices of the calls that an output depends on."""
    live: set[int] = set()
    stack = [output.tensor.call for output in program.outputs]
    while stack:
        index = stack.pop()
        if index < 0 or index in live:
            continue
        live.add(index)
        stack += [arg.call for arg in program.calls[index].args if isinstance(arg, Tensor)]
    return live
