"""`graphc build`: the C++ project of a model to a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, printable, say
from graphc.trace import said_progress


def build(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of `graphc compile --cpp`.", show_default=False)
    ],
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Build ggml from its source with this backend: cuda, hip, vulkan, metal, sycl, …; cpu for a faster CPU.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="SYSTEM",
            help="Build for another system: x86_64-linux, aarch64-linux, x86_64-windows, x86_64-macos, aarch64-macos.",
            show_default=False,
        ),
    ] = None,
    cpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The processor that programs for another system may assume: x86_64_v4, cortex_a76, …; or `all`, here too: "
            "any processor of the kind, with code for several.",
            show_default=False,
        ),
    ] = None,
    cmake_arg: options.CmakeArgs = None,
    jobs: options.Jobs = None,
) -> None:
    """Build a C++ project with cmake: with the installed ggml, or with ggml's source for another backend or system."""
    from graphc.build import build as build_project

    if target is not None or backend is not None or cpu is not None:
        note(f"ggml is built from its source for {target or 'this system'}, with the project: a few minutes")
    program = build_project(directory, backend, cmake_arg or (), jobs, said_progress(), target=target, cpu=cpu)
    say(f"built {printable(program)}")
