"""`graphc bisect`: which application of a rule makes a model's numbers wrong."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, printable, say
from graphc.errors import InputError
from graphc.trace import terminal_progress

if TYPE_CHECKING:
    import numpy as np

    from graphc.ir.graph import Graph


class By(StrEnum):
    """What runs the graphs."""

    engine = "engine"
    numpy = "numpy"


def bisect(
    model: options.Model,
    where: options.Where,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(min=0, metavar="SEED", help="Makes up the inputs that are not given.")] = 0,
    by: Annotated[By, typer.Option(help="What runs the graphs: the engine, or the reference in NumPy.")] = By.engine,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest |a-b| in units of an output's largest |b| that is accepted.")
    ] = 1e-4,
    lines: Annotated[int, typer.Option(min=1, help="Lines of the graphs to show.")] = 40,
    dim: options.Dims = None,
) -> None:
    """Find the first rule or pass after which the outputs are not those of the model without optimizations.

    Exit status 1 if there is one. `graphc compile --stop-after N` compiles what was found.
    """
    from graphc.frontend.onnx import load
    from graphc.runtime.arrays import read_inputs
    from graphc.runtime.bisect import bisect as search
    from graphc.runtime.compare import Runner, by_numpy

    if by is By.numpy and where != options.Where():
        raise InputError(
            "--device, --memory, --fast and --threads say where the engine runs; they are not for --by numpy"
        )
    arrays, dims = read_inputs(input, inputs), options.parse_dims(dim)
    place, progress = where.place(), terminal_progress()

    def run(graph: Graph) -> Mapping[str, np.ndarray]:
        runner = Runner(graph, place, progress)
        arrays.update(runner.inputs(arrays, dims, random))  # the first graph's, for all
        if by is By.numpy:
            return by_numpy(graph, arrays, graph.output_names)
        return runner.run(dict(zip(graph.output_names, graph.outputs, strict=True)))

    total, found = search(lambda: load(model, dims=dims, progress=progress), run, tolerance)
    if found is None:
        say(f"{printable(model)}: {total} applications of rules and passes; none changes the outputs")
        return
    source = found.step.source
    say(f"{printable(model)}: application {found.number} of {total}: {found.step.name}")
    say(f"node     {printable(source.name) or '(the whole graph)'}")
    say(f"module   {printable('.'.join(source.scope)) or '(model)'}")
    say(f"error    {found.before:.3g} before, {found.after:.3g} after; tolerance {tolerance:g}")
    say()
    for line in found.changed[:lines]:
        say(printable(line))
    if len(found.changed) > lines:
        note(f"{len(found.changed) - lines} lines more; --lines shows them")
    raise typer.Exit(1)
