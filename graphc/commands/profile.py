"""`graphc profile`: where the time of a run goes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import printable, say, say_json, say_table, seconds_text
from graphc.commands.run import given_or_random, open_model
from graphc.files import check_target, replacing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphc.runtime.profile import Total

SHOWN = 12


def profile(
    model: options.ModelOrEngine,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
    dim: options.Dims = None,
    threads: options.Threads = None,
    depth: Annotated[int, typer.Option(min=1, help="Levels of modules to tell apart.")] = 2,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome trace (for Perfetto).", show_default=False)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Time every step of a run on the CPU, by kind and by module of the model.

    GFLOP/s and GB/s are of the steps' own operations and of the bytes that they read and write.
    """
    from graphc.runtime.profile import chrome_trace, totals
    from graphc.runtime.profile import profile as measure

    if trace is not None:
        check_target(trace)
    dims = options.parse_dims(dim)
    loaded = open_model(model, dims, "cpu", threads)
    given = given_or_random(loaded.program.inputs, input, inputs, options.known_sizes(dims), random)
    timings = measure(loaded, given)
    by_step = totals(timings, lambda each: each.step)
    by_module = totals(timings, lambda each: ".".join(each.module.split(".")[:depth]) or "(model)")
    if trace is not None:
        with replacing(trace) as unfinished:
            unfinished.write_text(json.dumps(chrome_trace(timings)), encoding="utf-8")
    if as_json:
        say_json({"steps": [asdict(each) for each in timings], "kinds": [asdict(each) for each in by_step]})
        return
    whole = sum(each.seconds for each in timings)
    say(f"{printable(model)}: {len(timings)} steps, {seconds_text(whole)}")
    say()
    _say_totals("step", by_step, whole)
    if len(by_module) > 1:
        say()
        _say_totals("module", by_module[:SHOWN], whole)
    say()
    longest = sorted(timings, key=lambda each: -each.seconds)[:SHOWN]
    rows = [(seconds_text(each.seconds), each.step, each.result, each.source) for each in longest]
    say_table(("longest", "step", "result", "node"), rows, "r")
    if trace is not None:
        say(f"wrote {printable(trace)}")


def _say_totals(kind: str, rows: Sequence[Total], whole: float) -> None:
    shown = [
        (
            each.name,
            each.count,
            seconds_text(each.seconds),
            f"{100 * each.seconds / whole:.1f}%" if whole else "",
            f"{each.gflops:.1f}",
            f"{each.gbytes:.1f}",
        )
        for each in rows
    ]
    say_table((kind, "count", "time", "share", "GFLOP/s", "GB/s"), shown, "lrrrrr")
