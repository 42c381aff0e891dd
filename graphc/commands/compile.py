"""`graphc compile`: a model to an engine file and a C++ project."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, note, printable, say
from graphc.errors import InputError
from graphc.files import check_target
from graphc.trace import terminal_progress


def compile(
    model: options.Model,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The engine file; MODEL with the ending .gguf if not given.", show_default=False
        ),
    ] = None,
    cpp: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a C++ project to this folder too.", show_default=False)
    ] = None,
    strip_weights: Annotated[
        bool, typer.Option("--strip-weights", help="Leave the weights out; they are given when the engine is loaded.")
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="The model's own weights: finds the names of constants again that the exporter lost.",
            show_default=False,
        ),
    ] = None,
    dim: options.Dims = None,
    without: options.Without = None,
    stop_after: options.StopAfter = None,
) -> None:
    """Compile an ONNX model to an engine file, and to C++.

    The engine holds the weights and the program; it runs with `graphc run`, `graphc.load()` and the C++ project.
    """
    from graphc.compiler import compile_program, write, write_project
    from graphc.targets.ggml.cost import parameters, weight_bytes

    target = output or model.with_suffix(".gguf")
    if target.exists() and model.exists() and target.samefile(model):
        raise InputError(f"{target}: the engine would overwrite the model; give another name with -o")
    check_target(target)
    progress = terminal_progress()
    program = compile_program(
        model,
        name=target.stem,
        dims=options.parse_dims(dim),
        without=without or (),
        stop_after=stop_after,
        names=names,
        progress=progress,
    )
    write(program, target, progress, strip_weights=strip_weights)
    counts = f"{len(program.calls)} calls, {len(program.kernels)} generated kernels"
    size = bytes_text(weight_bytes(program))
    left_out = ", left out: give them with --weights" if strip_weights else ""
    say(f"{printable(target)}: {counts}, {parameters(program):,} parameters in {size}{left_out}")
    if cpp is not None:
        write_project(program, cpp)
        say(f"{printable(cpp)}: C++ project; graphc build {quote(printable(cpp))}")
    if not program.inputs:
        note("the model has no inputs: its outputs are constants")
