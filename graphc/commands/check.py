"""`graphc check`: everything in a model that is not supported, and how what is supported is computed."""

from __future__ import annotations

from dataclasses import asdict

import typer

from graphc.commands import options
from graphc.commands.output import printable, say, say_json, say_table
from graphc.errors import UnsupportedError
from graphc.trace import terminal_progress

NO_COMPILER = "no C compiler is found (set CC): routines and kernels run in NumPy, which is slow"


def check(model: options.Model, dim: options.Dims = None, as_json: options.Json = False) -> None:
    """List every node that is not supported, with its operator and the reason. Exit status 1 if there is any.

    Else say of each operator in which of the ways of docs/operators.md it is computed: by ggml's calls, by a routine (C that is
    written by hand), by a kernel (C that is generated), or by the host. "No call": only sizes change.
    """
    from graphc.compiler import compile_program
    from graphc.targets.ggml.ways import Ways, way_of
    from graphc.targets.kernels.native import find_compiler

    ways = Ways()
    try:
        program = compile_program(model, dims=options.parse_dims(dim), ways=ways, progress=terminal_progress())
    except UnsupportedError as error:
        if as_json:
            listed = [asdict(problem) for problem in error.problems]
            say_json({"model": str(model), "supported": False, "calls": 0, "kernels": 0, "problems": listed})
        else:
            say(f"{printable(model)}: {len(error.problems)} unsupported")
            for problem in error.problems:
                say(f"  {printable(problem)}")
        raise typer.Exit(1) from None
    calls = sum(call.kernel < 0 for call in program.calls)
    kinds = [way_of(use) for use in program.kernels]
    rows = [(name, len(each.nodes), each.text) for name, each in sorted(ways.operators.items())]
    if as_json:
        operators = {name: {"nodes": nodes, "computed_by": text.split(", ")} for name, nodes, text in rows}
        counts = {"calls": calls, "kernels": kinds.count("kernel"), "routines": kinds.count("routine")}
        say_json({"model": str(model), "supported": True, **counts, "operators": operators, "problems": []})
        return
    counted = f"{calls} ggml calls, {kinds.count('routine')} routines, {kinds.count('kernel')} generated kernels"
    say(f"{printable(model)}: supported ({counted})\n")
    say_table(("operator", "nodes", "computed by"), rows, "lrl")
    if kinds and find_compiler() is None:
        say(f"\n{NO_COMPILER}")
