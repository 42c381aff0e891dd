"""`graphc simulate`: how long a model would take on a GPU that is not here."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, count_text, note, printable, say, say_json, say_table, seconds_text
from graphc.commands.run import open_program
from graphc.errors import InputError
from graphc.kernels.gpu.devices import GPUS, Gpu, gpu_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from graphc.targets.ggml.generate.simulate import Simulated, Step
    from graphc.targets.ggml.program.program import Program


@dataclass(frozen=True)
class Layer:
    """The launches of one node, or of one kind: how many, seconds, floating-point operations, bytes of the device's memory, and
    what limits the longest part of it."""

    name: str
    kernels: str
    module: str
    launches: int
    seconds: float
    operations: int
    nbytes: int
    limit: str


def simulate(
    model: options.ModelOrEngine,
    compiling: options.Compiling,
    device: Annotated[
        str, typer.Option(metavar="NAME", help=f"A GPU whose data sheet is known: {', '.join(GPUS)}.")
    ] = "rtx4090",
    fast: Annotated[bool, typer.Option("--fast", help="Let products be of float16, on tensor cores.")] = False,
    steady: options.Steady = None,
    top: Annotated[int, typer.Option(min=0, help="How many layers to show, the longest first.")] = 12,
    as_json: options.Json = False,
) -> None:
    """Say how long a run would take on a GPU that is not here, with kernels that graphc generates, and what limits it.

    Nothing is run or compiled: what each kernel computes, reads and writes is counted, and the time is what the data sheet
    allows, with what is known of the architecture. "limit" is what a kernel waits for: tensor cores, other arithmetic, shared
    memory, memory, the second cache, latency (it waits for what it reads, with too little beside it), occupancy (it has too few
    blocks for all multiprocessors), or its launch. Sizes are given with `--dim`.
    """
    from graphc.kernels.gpu.scheduling import Scheduling
    from graphc.targets.ggml.generate.generate import generated
    from graphc.targets.ggml.generate.simulate import simulated

    gpu = gpu_named(device)
    program = open_program(model, compiling.settings(model))
    sizes = _sizes(program, compiling.free_sizes(model, program))
    scheduling = Scheduling.of(gpu)
    found = simulated(generated(program, fast, scheduling), sizes, gpu, steady=steady or ())
    layers = _together(found.steps, lambda step: (step.module, step.source))
    if as_json:
        _say_json(gpu, sizes, found, layers)
        return
    if sizes:
        note("sizes: " + ", ".join(f"{printable(name)}={size}" for name, size in sizes.items()))
    _say(printable(model), gpu, found, layers[:top])


def _sizes(program: Program, given: Mapping[str, int]) -> dict[str, int]:
    """The value of each named size: what is given, or that of the example with which the model was exported."""
    from graphc.runtime.arrays import smallest
    from graphc.shapes import symbols

    free = symbols(*(size for each in program.inputs for size in each.shape))
    sizes = {name: given.get(name, program.example.get(name, 0)) for name in free}
    if missing := [name for name, size in sizes.items() if not size]:
        proposal = " ".join(f"--dim {name}={smallest(free[name])}" for name in missing)
        raise InputError(
            f"how long it takes depends on sizes; give them, with these numbers or larger ones: {proposal}"
        )
    return sizes


def _together(steps: Iterable[Step], key: Callable[[Step], object]) -> list[Layer]:
    """The steps by a key, the longest first."""
    groups: dict[object, list[Step]] = {}
    for each in steps:
        groups.setdefault(key(each), []).append(each)
    found = [_layer(group) for group in groups.values()]
    return sorted(found, key=lambda layer: -layer.seconds)


def _layer(steps: list[Step]) -> Layer:
    limits = Counter[str]()
    for each in steps:
        limits[each.limit] += each.seconds  # type: ignore[assignment]
    return Layer(
        steps[0].source, ", ".join(dict.fromkeys(each.kernel for each in steps)), steps[0].module, len(steps),
        sum(each.seconds for each in steps), sum(each.operations for each in steps), sum(each.nbytes for each in steps),
        max(limits, key=lambda limit: limits[limit]),
    )  # fmt: skip


def _kind(step: Step) -> tuple[str, str]:
    """What a kernel is: its name without its number, and what limits it."""
    return step.kernel.rstrip("0123456789").rstrip("_"), step.limit


def _say(model: str, gpu: Gpu, found: Simulated, layers: list[Layer]) -> None:
    whole = found.seconds
    operations, nbytes = (sum(getattr(each, name) for each in found.steps) for name in ("operations", "nbytes"))
    say(f"{model} on {gpu.name}: {seconds_text(whole)} expected, {len(found.steps)} launches")
    say(f"by its data sheet: {gpu.rates}")
    say(f"operations: {count_text(operations)}; read and written in the device's memory: {bytes_text(nbytes)}")
    results = "" if found.result_bytes is None else f", intermediate results {bytes_text(found.result_bytes)} at least"
    needed = found.weight_bytes + (found.result_bytes or 0)
    say(f"memory: weights {bytes_text(found.weight_bytes)}{results}{'' if needed <= gpu.memory else _too_much(gpu)}")
    for why, calls in (
        ("the CPU computes", found.on_cpu),
        (f"{gpu.name} has too little shared memory for", found.too_large),
        ("only a run can tell the sizes of", found.unknown),
    ):
        if calls:
            names = ", ".join(f"{name} ({count})" for name, count in Counter(calls).most_common())
            say(f"not in the times, because {why}: {printable(names)}")
    kinds = sorted({_kind(each) for each in found.steps})
    rows = [(*kind, _together((each for each in found.steps if _kind(each) == kind), _kind)[0]) for kind in kinds]
    rows.sort(key=lambda row: -row[2].seconds)
    say()
    table = [(kind, limit, *_numbers(layer, whole)) for kind, limit, layer in rows]
    say_table(("kernel", "limit", *TITLES), table, "ll" + RIGHT)
    if layers:
        say()
        shown = [(each.kernels, each.limit, *_numbers(each, whole), each.module or each.name) for each in layers]
        say_table(("longest", "limit", *TITLES, "module"), shown, "ll" + RIGHT)


TITLES, RIGHT = ("launches", "time", "share", "FLOP", "bytes"), "rrrrr"


def _numbers(layer: Layer, whole: float) -> tuple[object, ...]:
    share = f"{100 * layer.seconds / whole:.1f}%" if whole else ""
    return layer.launches, seconds_text(layer.seconds), share, count_text(layer.operations), bytes_text(layer.nbytes)


def _too_much(gpu: Gpu) -> str:
    return f"; {gpu.name} has {bytes_text(gpu.memory)}: weights would be streamed, which is not in the times"


def _say_json(gpu: Gpu, sizes: Mapping[str, int], found: Simulated, layers: list[Layer]) -> None:
    say_json(
        {
            "device": asdict(gpu),
            "sizes": sizes,
            "seconds": found.seconds,
            "launches": len(found.steps),
            "weight_bytes": found.weight_bytes,
            "result_bytes": found.result_bytes,
            "too_large": found.too_large,
            "on_cpu": found.on_cpu,
            "unknown": found.unknown,
            "layers": [asdict(each) for each in layers],
            "steps": [asdict(each) for each in found.steps],
        }
    )
