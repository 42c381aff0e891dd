"""`graphc check`: everything in a model that is not supported."""

from __future__ import annotations

from dataclasses import asdict

import typer

from graphc.commands import options
from graphc.commands.output import printable, say, say_json
from graphc.errors import UnsupportedError
from graphc.trace import terminal_progress


def check(model: options.Model, dim: options.Dims = None, as_json: options.Json = False) -> None:
    """List every node that is not supported, with its operator and the reason. Exit status 1 if there is any."""
    from graphc.compiler import compile_program

    calls = kernels = 0
    problems = []
    try:
        program = compile_program(model, dims=options.parse_dims(dim), progress=terminal_progress())
        calls, kernels = sum(call.kernel < 0 for call in program.calls), len(program.kernels)
    except UnsupportedError as error:
        problems = error.problems
    if as_json:
        listed = [asdict(problem) for problem in problems]
        say_json(
            {"model": str(model), "supported": not problems, "calls": calls, "kernels": kernels, "problems": listed}
        )
    elif problems:
        say(f"{printable(model)}: {len(problems)} unsupported")
        for problem in problems:
            say(f"  {printable(problem)}")
    else:
        say(f"{printable(model)}: supported ({calls} ggml calls, {kernels} generated kernels)")
    if problems:
        raise typer.Exit(1)
