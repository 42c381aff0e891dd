"""`graphc bundle`: models to one program that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, printable, say
from graphc.errors import InputError
from graphc.trace import said_progress


def bundle(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]MODEL|ENGINE...",
            help="ONNX files or engine files; of several, each is called by its file's name, or NAME.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The program, or its folder.", show_default=False)],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="SYSTEM",
            help="Make it for another system: x86_64-linux, aarch64-linux, x86_64-windows, x86_64-macos, aarch64-macos.",
            show_default=False,
        ),
    ] = None,
    cpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The least processor that a program for another system may assume: x86_64_v4, …; any of its kind if not given.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        bool, typer.Option("--folder", help="Make a folder with the program and the engines, instead of one file.")
    ] = False,
    jobs: options.Jobs = None,
) -> None:
    """Make one program of models that runs where there is nothing else: no Python, no compiler, no libraries.

    The program holds engines with their weights, ggml and the kernels. `--help` of it says what the models take and give.
    """
    from graphc.bundle import bundle as make

    found = named(models)
    note(f"the program is built with ggml's source for {target or 'this system'}: the first time takes a few minutes")
    program = make(found, output, target=target, cpu=cpu, folder=folder, jobs=jobs, progress=said_progress())
    if folder:
        say(f"{printable(output)}: a folder with the program and {_count(found)}")
    else:
        size = program.stat().st_size / 2**20
        say(f"{printable(output.parent / program.name)}: a program with {_count(found)}, {size:.1f} MiB")


def named(models: Sequence[str]) -> dict[str, Path]:
    """The files by what their models are called. Raises InputError where two are called the same."""
    found: dict[str, Path] = {}
    for text in models:
        name, equals, file = text.partition("=")
        is_named = bool(name and equals and file) and not Path(text).exists()
        path = Path(file if is_named else text)
        name = name if is_named else path.stem
        if name in found:
            raise InputError(f"{found[name]} and {path} are both called {name}: give one another name, as NAME={path}")
        found[name] = path
    return found


def _count(models: dict[str, Path]) -> str:
    return f"{len(models)} model{'s' if len(models) > 1 else ''}"
