"""`graphc view`: the program as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import printable, say
from graphc.commands.run import given_or_random, open_model, open_program
from graphc.errors import InputError
from graphc.files import beside, check_target, replacing

ROUNDS = 3
"""Timed runs; the median of each step's times is shown."""


def view(
    model: options.ModelOrEngine,
    compiling: options.Compiling,
    where: options.Where,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.html", help="Where to write; beside the model if not given."),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Run the model, and show the time of each step.")] = False,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
) -> None:
    """Write one HTML file that shows the program by the modules of the model: steps, shapes, costs, copies, weights.

    A browser opens it without a network. `--dim` gives named sizes their values; inputs are for `--profile`.
    """
    from graphc.view.document import document
    from graphc.view.page import page

    target, settings = check_target(output or beside(model, ".html")), compiling.settings(model)
    if profile:
        from graphc.runtime.model import check_inputs
        from graphc.runtime.profile import profile as measure

        loaded = open_model(model, settings, where)
        given = given_or_random(loaded.program, input, inputs, compiling.free_sizes(model, loaded.program), random)
        shown = document(loaded.program, check_inputs(loaded.program, given), measure(loaded, given, ROUNDS))
    elif where != options.Where():
        raise InputError("--device, --memory, --fast and --threads say where --profile runs the model")
    else:
        program = open_program(model, settings)
        shown = document(program, compiling.free_sizes(model, program))
    with replacing(target) as unfinished:
        unfinished.write_text(page(shown), encoding="utf-8")
    say(f"wrote {printable(target)}")
