"""The command line. Each command is a module of `graphc.commands`, which imports what it needs when it is run."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Annotated, Any

import typer

from graphc import __version__
from graphc.commands.backend import backend
from graphc.commands.bench import bench
from graphc.commands.bisect import bisect
from graphc.commands.build import build
from graphc.commands.bundle import bundle
from graphc.commands.check import check
from graphc.commands.compile import compile
from graphc.commands.demo import demo
from graphc.commands.devices import devices
from graphc.commands.diff import diff
from graphc.commands.doctor import doctor
from graphc.commands.explain import explain
from graphc.commands.flags import Command, Group
from graphc.commands.inspect import inspect
from graphc.commands.options import spread
from graphc.commands.output import note, printable, tolerate_any_encoding
from graphc.commands.profile import profile
from graphc.commands.refit import refit
from graphc.commands.run import run
from graphc.commands.serve_device import serve_device
from graphc.commands.simulate import simulate
from graphc.commands.tune import tune
from graphc.commands.view import view
from graphc.errors import GraphcError

COMMANDS = (
    compile,
    run,
    refit,
    check,
    diff,
    inspect,
    view,
    profile,
    tune,
    simulate,
    bench,
    bisect,
    explain,
    build,
    bundle,
    devices,
    serve_device,
    doctor,
    demo,
)
INTERRUPTED = 130

ENDING = ("SIGTERM", "SIGHUP", "SIGBREAK")
"""Signals that end a process that does nothing about them, besides that of the keyboard. Not every system has all."""

app = typer.Typer(
    cls=Group,
    help="Compile ONNX models to small native programs on ggml.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in COMMANDS:
    app.command(cls=Command)(spread(command))
app.add_typer(backend, name="backend")
OWN = {*(command.__name__.replace("_", "-") for command in COMMANDS), "backend"}
"""The names of the commands that are here."""


@cache
def whole_app() -> typer.Typer:
    """With the commands of packages that build on this one: what of them is imported takes as long as all of these."""
    from importlib.metadata import entry_points

    for installed in entry_points(group="graphc.commands"):
        group = installed.load()
        for each in group.registered_commands:
            each.cls = Command
        app.add_typer(group, name=installed.name)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphc {__version__}")
        raise typer.Exit


@app.callback()
def _settings(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error comes from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    context.find_root().obj["debug"] = debug


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: with 0, 1 after an error of the input, 2 for a wrong command line, 130 if interrupted, as shells
    count 143 if ended by SIGTERM."""
    tolerate_any_encoding()
    given = sys.argv[1:] if arguments is None else list(arguments)
    commands = app if given[:1] and given[0] in OWN else whole_app()
    settings: dict[str, Any] = {"debug": False}
    try:
        with _ended_by_signals(), _remarks(), warnings.catch_warnings():
            warnings.showwarning = _remark
            commands(arguments if arguments is None else given, prog_name="graphc", obj=settings)
    except (GraphcError, OSError, MemoryError) as error:
        if settings["debug"]:
            traceback.print_exc()
        note(f"error: {message_of(error)}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Signals that end a process end the command as an interrupt does, so that nothing is left behind. Those that are ignored
    (by `nohup`, by a shell for a job in the background) stay so."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one would end the cleaning up
        sys.exit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
        before = {
            number: signal.signal(number, end) for number in numbers if signal.getsignal(number) == signal.SIG_DFL
        }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _remarks() -> Iterator[None]:
    """Show what the library logs as remarks."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: _remark(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("graphc")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _remark(message: Warning | str, *where: Any, **more: Any) -> None:
    """Show a warning as a person reads it, without the line of code that it comes from."""
    note(f"warning: {printable(message)}")


def message_of(error: Exception) -> str:
    """What went wrong, in words; made of names from files, so only what can be printed."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        return printable(f"{place}{error.strerror.lower()}")
    if isinstance(error, MemoryError):
        return "not enough memory"
    return "\n".join(printable(line) for line in str(error).split("\n"))


if __name__ == "__main__":
    main()
