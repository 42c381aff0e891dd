"""`graphc diff`: our numbers beside another runtime's, tensor by tensor."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, printable, say, say_json, say_table
from graphc.errors import InputError
from graphc.trace import terminal_progress

if TYPE_CHECKING:
    from graphc.runtime.compare import Difference


TOLERANCE = 1e-4
"""What float32 may differ by, if nobody says otherwise."""


class Reference(StrEnum):
    """What our numbers are compared with."""

    auto = "auto"
    onnxruntime = "onnxruntime"
    numpy = "numpy"


def diff(
    model: options.Model,
    compiling: options.Compiling,
    where: options.Where,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(min=0, metavar="SEED", help="Makes up the inputs that are not given.")] = 0,
    reference: Annotated[
        Reference, typer.Option(help="auto is onnxruntime if it is installed, else numpy.")
    ] = Reference.auto,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Largest |a-b| in units of the largest |b| that is accepted; 0.0001, or any with --dtype and --engine.",
            show_default=False,
        ),
    ] = None,
    dtype: options.Dtype = None,
    engine: options.Engine = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the table, worst first.")] = 20,
    as_json: options.Json = False,
) -> None:
    """Compare every tensor that the engine computes with another runtime's. Exit status 1 if one differs too much.

    With `--dtype`, what types of weights cost, layer by layer; with `--engine`, how far the outputs of an engine are away.
    """
    from graphc.runtime.arrays import read_inputs
    from graphc.runtime.compare import compare
    from graphc.targets.ggml.engine import is_engine
    from graphc.targets.ggml.lowering.dtypes import Dtypes

    if is_engine(model):
        raise InputError(
            f"{model}: is an engine; diff takes the ONNX file that it was made from, and the engine with --engine"
        )
    if dtype and engine is not None:
        raise InputError("an engine has its types of weights; give --dtype or --engine")
    if tolerance is None:
        tolerance = math.inf if dtype or engine is not None else TOLERANCE
    types = Dtypes.parsed(dtype or ())
    result = compare(
        model,
        read_inputs(input, inputs),
        seed=random,
        reference=None if reference is Reference.auto else reference.value,
        settings=replace(compiling.settings(model), dtype=types),
        engine=engine,
        place=where.place(),
        progress=terminal_progress(),
    )
    for line in dict.fromkeys(types.notes()):
        note(printable(line))
    worst = sorted(result.differences, key=lambda each: -each.relative)
    failed = [each for each in result.differences if each.relative > tolerance]
    if as_json:
        say_json(
            {
                "reference": result.reference,
                "tolerance": tolerance,
                "first_divergence": failed[0].name if failed else None,
                "tensors": [each.as_dict() for each in worst],
            }
        )
    else:
        if result.sizes:
            note(printable(result.sizes))
        limit = f"; tolerance {tolerance:g}" if tolerance < math.inf else ""
        say(f"{len(worst)} tensors compared with {result.reference}{limit}")
        if limit:
            _say_first(failed, tolerance)
        say()
        table = [
            (each.name, each.operator, each.type, f"{each.largest:.3g}", f"{each.relative:.3g}", each.mark)
            for each in worst[:rows]
        ]
        say_table(("tensor", "operator", "type", "max |a-b|", "relative", ""), table, "lllrr")
        if len(worst) > rows:
            note(f"{len(worst) - rows} more; --rows shows them")
    if failed:
        raise typer.Exit(1)


def _say_first(failed: list[Difference], tolerance: float) -> None:
    if not failed:
        say("no divergence")
        return
    first = failed[0]
    say(
        f"first divergence: {printable(first.name)} ({printable(first.operator)}), {first.relative:.3g} > {tolerance:g}"
    )
    for line in first.details:
        say(f"  {line}")
