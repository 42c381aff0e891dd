"""`graphc profile`: where the time of a run goes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, note, printable, say, say_json, say_table, seconds_text
from graphc.commands.run import check_dump, dump_kernels, given_or_random, note_memory, open_model
from graphc.errors import GraphcError, InputError
from graphc.files import check_target, replacing
from graphc.kernels.gpu.devices import Gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphc.runtime.peaks import Peaks
    from graphc.runtime.profile import Total

SHOWN = 12

STRETCHED = 3.0
"""Steps one by one that take so many times as long as a run are not what a run does."""

BETWEEN = 20e-6
"""Seconds that a step by itself takes more than in a run."""


def profile(
    model: options.ModelOrEngine,
    compiling: options.Compiling,
    where: options.Where,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(min=0, metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Runs; the median of each step's times counts.")] = 3,
    depth: Annotated[int, typer.Option(min=1, help="Levels of modules to tell apart.")] = 2,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome trace (for Perfetto).", show_default=False)
    ] = None,
    roofline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg", help="Draw what is reached under what the machine can do.", show_default=False
        ),
    ] = None,
    dump: options.Dump = None,
    remeasure: Annotated[bool, typer.Option("--remeasure", help="Measure the machine's peaks again.")] = False,
    as_json: options.Json = False,
) -> None:
    """Time every step of a run, by kind and by module of the model.

    GFLOP/s and GB/s are of the steps' own operations and of the bytes that they read and write. "of peak" is how near the
    larger of the two comes to what this machine's CPU can do, which is measured once; it is above 100% where data is in a cache,
    or where an algorithm needs fewer operations than it counts for. With `--device`, steps are told apart by device too, copies
    from one to another are steps, and there are no peaks. Of a device of generated kernels there is its data sheet: "of roofline"
    is how near a kernel comes to what that allows for its operations or its bytes, whichever takes longer.
    """
    from graphc.commands.charts import roofline as draw
    from graphc.runtime.busy import Watch
    from graphc.runtime.peaks import peaks
    from graphc.runtime.profile import chrome_trace, is_product, sheet_of, together, totals, whole_run
    from graphc.runtime.profile import profile as measure
    from graphc.targets.ggml.run.device.devices import default_threads

    for target in filter(None, (trace, roofline)):
        check_target(target)
    if dump is not None:
        check_dump(dump, where)
    on_cpu = where.place().only_cpu
    if not on_cpu and (roofline is not None or remeasure):
        raise InputError("--roofline and --remeasure are for the CPU: peaks of other devices are not measured")
    most = peaks(where.threads or default_threads(), remeasure) if on_cpu else None
    if roofline is not None and most is None:
        raise GraphcError("--roofline needs the machine's peaks, and those a C compiler (set CC)")
    loaded = open_model(model, compiling.settings(model), where)
    given = given_or_random(loaded.program, input, inputs, compiling.free_sizes(model, loaded.program), random)
    if dump is not None:
        dump_kernels(loaded, dump, given)
    with Watch(where.threads or default_threads()) as watch:
        timings = measure(loaded, given, rounds)
        run = whole_run(loaded, given, rounds)
    note_memory(loaded, where)
    sheet = sheet_of(loaded.executor)
    whole = sum(each.seconds for each in timings)
    for remark in filter(None, (watch.warning, _apart(whole, run, len(timings)))):
        note(f"warning: {remark}")
    by_step = totals(timings, lambda each: each.step)
    by_module = totals(timings, lambda each: ".".join(each.module.split(".")[:depth]) or "(model)")
    copies = together("copies", [each for each in timings if each.copies])
    products = together("products", [each for each in timings if is_product(each.step)])
    if trace is not None:
        _write(trace, json.dumps(chrome_trace(timings)))
    if roofline is not None and most is not None:
        _write(roofline, draw(f"{loaded.program.name}: what is reached", by_step, most))
    if as_json:
        kinds = [asdict(each) for each in by_step]
        found = {
            "run": run,
            "peaks": most and asdict(most),
            "data_sheet": sheet and asdict(sheet),
            "products": asdict(products),
            "copies": asdict(copies),
            "kinds": kinds,
        }
        say_json({**found, "steps": [asdict(each) for each in timings]})
        return
    times = f"{seconds_text(whole)} one by one, {seconds_text(run)} in a run as a whole"
    say(f"{printable(model)}: {len(timings)} steps, {times}; medians of {rounds} runs")
    if most is not None:
        say(f"peaks of this machine: {most.gflops:.0f} GFLOP/s, {most.gbytes:.0f} GB/s with {most.threads} threads")
    elif sheet is not None:
        say(f"by the data sheet of {printable(sheet.name)}: {sheet.rates}")
    elif on_cpu:
        say("peaks of this machine: not measured, for want of a C compiler (set CC)")
    say(f"what multiplies matrices: {products.count} steps, {_part(products, whole)} of the time")
    say(f"copies: {copies.count} steps, {_part(copies, whole)}, {bytes_text(copies.nbytes)} read and written")
    say()
    _say_totals("kernel" if sheet else "step", by_step, whole, most or sheet)
    if not on_cpu:
        say()
        _say_totals("device", totals(timings, lambda each: each.device), whole, most or sheet)
    if len(by_module) > 1:
        say()
        _say_totals("module", by_module[:SHOWN], whole, most or sheet)
    say()
    longest = sorted(timings, key=lambda each: -each.seconds)[:SHOWN]
    rows = [
        (
            seconds_text(each.seconds),
            _share(together("", [each]), most) if on_cpu else each.device,
            each.step,
            each.result,
            each.module or each.source,
        )
        for each in longest
    ]
    say_table(("longest", "of peak" if on_cpu else "device", "step", "result", "module"), rows, "rr" if on_cpu else "r")
    for target in filter(None, (trace, roofline)):
        say(f"wrote {printable(target)}")


def _apart(steps: float, run: float, count: int) -> str:
    """What is to be said if steps took much longer one by one than together."""
    if steps < STRETCHED * (run + count * BETWEEN):
        return ""
    times = f"{steps / run:.0f} times as long as in a run as a whole"
    return f"one by one, the steps took {times}: something else held threads up; measure again"


def _write(target: Path, text: str) -> None:
    with replacing(target) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _share(total: Total, most: Peaks | Gpu | None) -> str:
    if isinstance(most, Gpu):
        return f"{100 * total.roofline / total.seconds:.1f}%" if total.roofline and total.seconds else ""
    return "" if most is None else f"{100 * most.share(total.operations, total.nbytes, total.seconds):.0f}%"


def _part(total: Total, whole: float) -> str:
    return f"{100 * total.seconds / whole:.1f}%" if whole else ""


def _say_totals(kind: str, rows: Sequence[Total], whole: float, most: Peaks | Gpu | None) -> None:
    on_gpu = isinstance(most, Gpu)
    rate, limit = ("TFLOP/s", "of roofline") if on_gpu else ("GFLOP/s", "of peak")
    titles = (kind, "count", "time", "share", rate, "GB/s", limit)
    shown = [
        (
            each.name,
            each.count,
            seconds_text(each.seconds),
            _part(each, whole),
            f"{each.gflops / 1000:.2f}" if on_gpu else f"{each.gflops:.1f}",
            f"{each.gbytes:.1f}",
            _share(each, most),
        )
        for each in rows
    ]
    columns = len(titles) - (most is None)
    say_table(titles[:columns], [row[:columns] for row in shown], "lrrrrrr"[:columns])
