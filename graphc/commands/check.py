"""`graphc check`: everything in a model that is not supported, and how what is supported is computed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, printable, say, say_json, say_table
from graphc.errors import UnsupportedError
from graphc.trace import terminal_progress

if TYPE_CHECKING:
    from graphc.runtime.assigned import Assigned

NO_COMPILER = (
    "there is no C compiler (set CC, or `pip install ziglang`): routines and kernels run in NumPy, which is slow"
)

NOT_ASKED = (
    "what {} can compute is not known: servers cannot be asked, and end at what their device cannot. `graphc check` with that "
    "device, on its own machine, says what that is"
)


def check(
    model: options.Model, compiling: options.Compiling, where: options.Where, as_json: options.Json = False
) -> None:
    """List every node that is not supported, with its operator and the reason. Exit status 1 if there is any.

    Else say of each operator in which of the ways of docs/operators.md it is computed: by ggml's calls, by a routine (C that is
    written by hand), by a kernel (C that is generated), or by the host. "No call": only sizes change. With `--device`, say what
    the CPU computes instead of the devices, how much is copied for it, and with `--memory` what lies where.
    """
    from graphc.compiler import compile_program
    from graphc.runtime.assigned import assigned
    from graphc.targets.ggml.lowering.methods import Methods, method_of
    from graphc.targets.ggml.run.choose.library import has_own_code

    methods = Methods()
    try:
        program = compile_program(model, compiling.settings(model), methods=methods, progress=terminal_progress())
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
    kinds = [method_of(use) for use in program.kernels]
    rows = [(name, len(each.nodes), each.text) for name, each in sorted(methods.operators.items())]
    found = assigned(program, where.place(), compiling.sizes)
    if as_json:
        operators = {name: {"nodes": nodes, "computed_by": text.split(", ")} for name, nodes, text in rows}
        counts = {"calls": calls, "kernels": kinds.count("kernel"), "routines": kinds.count("routine")}
        say_json(
            {
                "model": str(model),
                "supported": True,
                **counts,
                "operators": operators,
                "problems": [],
                **_json(found),
            }
        )
        return
    counted = f"{calls} ggml calls, {kinds.count('routine')} routines, {kinds.count('kernel')} generated kernels"
    say(f"{printable(model)}: supported ({counted})\n")
    say_table(("operator", "nodes", "computed by"), rows, "lrl")
    if found.devices:
        say_assigned(found)
    if kinds and not has_own_code():
        say(f"\n{NO_COMPILER}")


def say_assigned(found: Assigned) -> None:
    """Print what devices compute, what the CPU does instead, and what lies where."""
    here = sum(each.total() for each in found.cpu.values())
    steps = "; ".join(f"on {name}: {count} steps" for name, count in found.devices.items())
    say(f"\n{printable(steps)}; on the CPU: {here}, {bytes_text(found.moved_bytes)} copied in a run")
    for line in found.memory:
        say(printable(line))
    rows = [(name, count, why) for why, each in found.cpu.items() for name, count in each.most_common()]
    if rows:
        say()
        say_table(("on the CPU", "steps", "why"), rows, "lrl")
    if found.unknown:
        say(f"\n{found.unknown} sections have sizes that are not known; give them with --dim")
    if found.servers:
        say(f"\n{NOT_ASKED.format(', '.join(map(printable, found.servers)))}")


def _json(found: Assigned) -> dict[str, Any]:
    return {"device": vars(found)} if found.devices else {}
