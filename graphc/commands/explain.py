"""`graphc explain`: where a rule fired, and why it did not elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import printable, say, say_json
from graphc.trace import terminal_progress


def explain(
    rule: Annotated[str, typer.Argument(help="A rule's name.", metavar="RULE", show_default=False)],
    model: options.Model,
    compiling: options.Compiling,
    rows: Annotated[int, typer.Option(min=1, help="Nodes to show of each kind.")] = 5,
    as_json: options.Json = False,
) -> None:
    """Show where a rule fired, where it refused and why, and where its pattern nearly matched."""
    from graphc.frontend.onnx import load
    from graphc.optimize import checked, explained
    from graphc.rewrite.engine import Log

    settings = compiling.settings(model)
    log = Log(checked(settings.without), settings.stop_after)
    found = explained(rule, load(model, dims=settings.dims, progress=terminal_progress()), log)
    groups = [list(each) for _, each in groupby(found.missed, lambda miss: (miss.matched, miss.size, miss.reason))]
    if as_json:
        say_json(
            {
                "rule": rule,
                "fired": [source.name for source in found.fired],
                "refused": found.refused,
                "missed": [
                    {
                        "reason": near[0].reason,
                        "matched": near[0].matched,
                        "of": near[0].size,
                        "nodes": [miss.source.name for miss in near],
                    }
                    for near in groups
                ],
            }
        )
        return
    say(f"{rule}: {found.rule.doc.splitlines()[0] if found.rule.doc else ''}")
    say(f"fired {times(found.fired)}")
    _say_nodes((source.name for source in found.fired), len(found.fired), rows)
    for reason, nodes in sorted(found.refused.items(), key=lambda item: -len(item[1])):
        say(f"refused {times(nodes)}: {printable(reason)}")
        _say_nodes(nodes, len(nodes), rows)
    for near in groups:
        say(f"{near[0].matched} of {near[0].size} parts fit, {times(near)}: {printable(near[0].reason)}")
        _say_nodes((f"{miss.source.name}, at {miss.value}" for miss in near), len(near), rows)


def times(things: Sequence[object]) -> str:
    """How often, in words."""
    return "once" if len(things) == 1 else f"{len(things)} times"


def _say_nodes(nodes: Iterable[str], count: int, rows: int) -> None:
    for node, _ in zip(nodes, range(rows), strict=False):
        say(f"  {printable(node) or '(a node without a name)'}")
    if count > rows:
        say(f"  … {count - rows} more")
