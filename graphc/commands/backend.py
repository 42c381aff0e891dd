"""`graphc backend`: ggml's backends for other devices than the CPU."""

from __future__ import annotations

from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.flags import Command, Group
from graphc.commands.output import note, printable, say, say_table
from graphc.trace import said_progress

backend = typer.Typer(help="Install ggml's backends for GPUs and other devices.", no_args_is_help=True, cls=Group)

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="cuda, hip, vulkan, metal, …", show_default=False)]


@backend.command(cls=Command)
def install(
    names: Names,
    cmake_arg: options.CmakeArgs = None,
    jobs: options.Jobs = None,
) -> None:
    """Build backends from ggml's source for this machine; every model can use their devices from then on."""
    from graphc.backends.install import install as install_backend
    from graphc.backends.table import find_backend

    for backend in [find_backend(name) for name in names]:
        devices = install_backend(backend.name, cmake_args=cmake_arg or (), jobs=jobs, progress=said_progress())
        say(f"installed {backend.name}; it finds {', '.join(map(printable, devices)) or 'no device here'}")
        if not devices and backend.without_device:
            note(backend.without_device)


@backend.command("list", cls=Command)
def list_backends() -> None:
    """List what there is, and what is installed."""
    from graphc.backends.brought import brought
    from graphc.backends.install import installed
    from graphc.backends.table import BACKENDS

    there = dict.fromkeys(brought(), "by the wheel") | dict.fromkeys(installed(), "yes")
    rows = [(each.name, there.get(each.name, ""), each.runs_on, each.needs) for each in BACKENDS.values()]
    say_table(("backend", "installed", "runs on", "to build it, there must be"), rows, "llll")


@backend.command(cls=Command)
def remove(names: Names) -> None:
    """Remove installed backends."""
    from graphc.backends.install import remove as remove_backend

    for name in names:
        say(f"removed {name}" if remove_backend(name) else f"{name} is not installed")
