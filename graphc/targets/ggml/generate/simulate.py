"""How long a program of generated kernels would take on a device that is not here, kernel by kernel, by its data sheet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from graphc.kernels.gpu.devices import Gpu
from graphc.kernels.gpu.roofline import Coefficients, Estimate, estimate
from graphc.shapes import integer, symbols
from graphc.targets.ggml.generate.generate import Generated
from graphc.targets.ggml.program.cost import count_of, peak_bytes
from graphc.targets.ggml.program.launch import Launch
from graphc.targets.ggml.program.program import Call, with_blocks
from graphc.targets.ggml.program.rules import VIEWS
from graphc.targets.ggml.program.sections import steady_calls, steady_inputs


@dataclass(frozen=True)
class Step:
    """A launch: the kernel, the node and the module of the model that it computes, and what it is expected to cost."""

    kernel: str
    source: str
    module: str
    seconds: float
    limit: str
    operations: int
    nbytes: int
    resident: int


@dataclass(frozen=True)
class Simulated:
    """The steps of a run in order; the kernels of which the device cannot have a block, which are not among them; the calls that
    the CPU would compute, whose time is not known; those whose sizes only a run can tell; and the bytes of weights, and of
    intermediate results at least, None where they are not known."""

    steps: list[Step]
    too_large: list[str]
    on_cpu: list[str]
    unknown: list[str]
    weight_bytes: int
    result_bytes: int | None

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(each.seconds for each in self.steps)


def simulated(
    found: Generated,
    binding: Mapping[str, int],
    gpu: Gpu,
    coefficients: Coefficients | None = None,
    steady: Collection[str] = (),
) -> Simulated:
    """A run for these sizes, whose `steady` inputs are those of the run before. Bodies of loops and branches count once. Raises
    GraphcError."""
    kept = steady_calls(found.program, steady_inputs(found.program, steady))
    steps, on_cpu, unknown = list[Step](), list[str](), list[str]()
    known: dict[tuple[object, ...], Estimate] = {}
    for program in with_blocks(found.program):
        for index, call in enumerate(program.calls):
            if program is found.program and index in kept:
                continue
            if call.launches is None:
                if call.function not in VIEWS:
                    on_cpu.append(count_of(found.program, call)[0])
            elif not _sizes(call) <= binding.keys():
                unknown.append(call.source or call.function)
            else:
                launches = found.launches_for(call, binding)
                steps += [_step(call, each, binding, gpu, coefficients, known) for each in launches.each]
    too_large = [each.kernel for each in steps if each.resident == 0]
    steps = [each for each in steps if each.resident]
    results = None if unknown else peak_bytes(found.program, binding)
    weights = sum(integer(each.tensor.nbytes, {}) for each in found.program.weights)
    return Simulated(steps, too_large, on_cpu, unknown, weights, results)


def _step(
    call: Call, launch: Launch, binding: Mapping[str, int], gpu: Gpu, coefficients: Coefficients | None,
    known: dict[tuple[object, ...], Estimate],
) -> Step:  # fmt: skip
    """One launch. `known` are the estimates so far: of kernels that have one text and the same sizes, the cost is the same."""
    rendered, kernel = launch.rendered, launch.rendered.kernel
    sizes = (*(each.value for each in rendered.parameters if each.kind != "tensor"), *kernel.grid)
    key = kernel.name, *(integer(each, binding) for each in (*sizes, *(tensor.size for tensor in kernel.tensors)))
    if key not in known:
        known[key] = estimate(kernel, binding, gpu, coefficients)
    cost = known[key]
    return Step(
        kernel.name,
        call.source,
        ".".join(call.scope),
        cost.seconds,
        cost.limit,
        cost.operations,
        cost.nbytes,
        cost.resident,
    )


def _sizes(call: Call) -> set[str]:
    """The names of sizes that a call's launches depend on."""
    assert call.launches is not None
    kernels = [each.rendered.kernel for each in call.launches.all]
    return set(symbols(*(size for each in kernels for size in (*each.grid, *(tensor.size for tensor in each.tensors)))))
