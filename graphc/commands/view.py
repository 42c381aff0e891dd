"""`graphc view`: the program as a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import printable, say
from graphc.commands.run import free_sizes, given_or_random, open_model, open_program
from graphc.files import check_target, replacing

if TYPE_CHECKING:
    from graphc.runtime.profile import Timing
    from graphc.shapes.ranges import SizeRange
    from graphc.targets.ggml.program import Program


ROUNDS = 3
"""Timed runs; the median of each step's times is shown."""


def view(
    model: options.ModelOrEngine,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.html", help="Where to write; beside the model if not given."),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Run the model, and show the time of each step.")] = False,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
    dim: options.Dims = None,
    threads: options.Threads = None,
    without: options.Without = None,
    stop_after: options.StopAfter = None,
) -> None:
    """Write one HTML file that shows the program by the modules of the model: steps, shapes, costs, copies, weights.

    A browser opens it without a network. `--dim` gives named sizes their values; inputs are for `--profile`.
    """
    from graphc.view.document import document
    from graphc.view.page import page

    target = check_target(output or model.with_suffix(".html"))
    dims = options.parse_dims(dim)
    limits = options.parse_limits(model, without, stop_after)
    if profile:
        shown = _profiled(model, dims, input, inputs, random, threads, limits)
    else:
        program = open_program(model, dims, limits)
        shown = program, free_sizes(program.inputs, options.known_sizes(dims)), ()
    with replacing(target) as unfinished:
        unfinished.write_text(page(document(*shown)), encoding="utf-8")
    say(f"wrote {printable(target)}")


def _profiled(
    model: Path,
    dims: Mapping[str, int | SizeRange],
    files: Sequence[str] | None,
    archive: Path | None,
    seed: int,
    threads: int | None,
    limits: options.Limits,
) -> tuple[Program, Mapping[str, int], Iterable[Timing]]:
    """The program, the sizes of one run, and its steps' times."""
    from graphc.runtime.model import check_inputs
    from graphc.runtime.profile import profile

    loaded = open_model(model, dims, "cpu", threads, limits=limits)
    given = given_or_random(loaded.program.inputs, files, archive, options.known_sizes(dims), seed)
    return loaded.program, check_inputs(loaded.program, given), profile(loaded, given, ROUNDS)
