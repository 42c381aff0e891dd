"""Calls that launch kernels of GPUs, in C++: a constant says how the kernels are launched, and a call gives the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphc.errors import GraphcError
from graphc.shapes import Dim
from graphc.targets.ggml.cpp.names import Names, identifier, string_literal
from graphc.targets.ggml.generate.generate import Generated, generated
from graphc.targets.ggml.program.device_code import DeviceCode, checksum
from graphc.targets.ggml.program.launch import COUNTERS_TENSOR, RESULT_TENSOR, SCRATCH_TENSOR, Launch
from graphc.targets.ggml.program.program import Call, Program
from graphc.targets.ggml.program.tensor import Constant

PARAMETERS = {"int": "graphc::size", "Divisor": "graphc::divisor"}
"""What a parameter is that takes a number, by its kind."""

PLACES = {RESULT_TENSOR: "graphc::result", SCRATCH_TENSOR: "graphc::scratch", COUNTERS_TENSOR: "graphc::counters"}
"""What a parameter is that takes no tensor which the call reads."""


class LaunchedCode:
    """What a program carries for GPUs: the kernels, and constants that say how calls launch them, by their texts."""

    def __init__(self, code: DeviceCode, program: Program) -> None:
        self.code, self.generated = code, kernels_of(code, program)
        self.names = Names()
        self.constants: dict[str, str] = {}
        self.program = self.with_numbers(self.generated.program)

    def with_numbers(self, program: Program) -> Program:
        """The program whose launching calls are given, behind their tensors, the constant, and then all numbers: for each kernel
        its blocks along x, y and z and its parameters' sizes, and last the bytes of scratch memory and of counters."""
        return replace(program, calls=list(map(self._given, program.calls)))

    def _given(self, call: Call) -> Call:
        if call.host is not None:
            return replace(call, host=replace(call.host, blocks=tuple(map(self.with_numbers, call.host.blocks))))
        if call.launches is None:
            return call
        numbers = [number for each in call.launches.each for number in numbers_of(each)]
        constant = Constant(self._constant(call.launches.each))
        room = call.launches.scratch, call.launches.counters
        return replace(call, args=(*call.args, constant, *numbers, *room))

    def _constant(self, launches: Sequence[Launch]) -> str:
        text = ", ".join(map(launch_text, launches))
        if text not in self.constants:
            name = launches[-1].rendered.kernel.name
            self.constants[text] = self.names.fresh(identifier(f"{name}_kernel"))
        return self.constants[text]

    @property
    def declarations(self) -> str:
        """The constants."""
        lines = ["/// How calls launch kernels: threads and shared memory of a block, and what the parameters are."]
        lines += [f"const graphc::Launched {name}{{{{{text}}}}};" for text, name in self.constants.items()]
        return "\n".join([*lines, ""])

    @property
    def description(self) -> str:
        """The `graphc::GpuCode`."""
        code = ", ".join(f'{{{string_literal(target)}, "{checksum(text)}"}}' for target, text in self.code.code.items())
        kernels = [each.kernel for each in self.generated.kernels.values()]
        listed = ", ".join(f"{{{string_literal(each.name)}, {each.shared_bytes}}}" for each in kernels)
        return f"{{{{{code}}}, {{{listed}}}}}"


def kernels_of(code: DeviceCode, program: Program) -> Generated:
    """The program that launches the kernels of which the code is. Raises GraphcError if it is of others."""
    found = generated(program, fast=code.fast)
    if checksum(found.text) != code.text:
        raise GraphcError(
            "the kernels for GPUs are of another program, or another graphc made them; compile the model again"
        )
    return found


def numbers_of(launch: Launch) -> list[Dim]:
    """What a launch is given beside tensors."""
    return [
        *launch.rendered.kernel.launched,
        *(each.value for each in launch.rendered.parameters if each.kind in PARAMETERS),
    ]


def launch_text(launch: Launch) -> str:
    """A `graphc::LaunchInfo`."""
    kernel = launch.rendered.kernel
    parameters = []
    for each in launch.rendered.parameters:
        if each.kind in PARAMETERS:
            parameters.append(PARAMETERS[each.kind])
        else:
            assert isinstance(each.value, int)
            number = launch.tensors[each.value]
            parameters.append(PLACES.get(number, str(number)))
    return f"{{{string_literal(kernel.name)}, {kernel.threads}, {kernel.shared_bytes}, {{{', '.join(parameters)}}}}}"
