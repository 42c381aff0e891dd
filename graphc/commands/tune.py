"""`graphc tune`: ways of computing that are the fastest on a device."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, printable, say, say_json, say_table, seconds_text
from graphc.commands.run import given_or_random, open_model
from graphc.errors import InputError
from graphc.files import check_target
from graphc.trace import terminal_progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from graphc.runtime.model import Model
    from graphc.runtime.rounding import Rounding
    from graphc.runtime.tuning import Measured


def tune(
    model: options.ModelOrEngine,
    compiling: options.Compiling,
    where: options.Where,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(min=0, metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Add the choices to this file too.", show_default=False),
    ] = None,
    error: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="E",
            help="With --fast on the CPU, let products stay float32 until the error is at most E of the largest number.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Measure the ways of computing a model's calls on a device, and remember the fastest.

    From then on every model on this device, with as many threads, computes such calls in the ways that were chosen. A way is
    chosen if it is clearly faster than the one that fixed rules take. Results stay exact to rounding, but their last bits may
    change. Measure while the machine does nothing else. `--output` is for C++ programs (`--ways FILE`) and other processes
    (`GRAPHC_WAYS=FILE`).

    With `--fast` on the CPU, `--error` has the model run once for each product, to see how much its rounding alone changes the
    results. Those that hurt most stay float32, as few as the error allows.

    On a device of generated kernels it is the schedules of products and convolutions that are measured, by the device's events.
    """
    from graphc.runtime.busy import Watch
    from graphc.runtime.rounding import choose_rounding
    from graphc.runtime.tuning import tune as measure
    from graphc.targets.ggml.run.choose.choices import remember, store_for

    if output is not None:
        check_target(output)
    loaded = open_model(model, compiling.settings(model), where)
    executor = loaded.executor
    if executor.launched is not None:
        if output is not None:
            raise InputError("--output is for ways of the CPU and of ggml's backends; C++ programs choose no schedules")
        if error is not None:
            raise InputError("--error is for the CPU: what kernels of a device multiply is not chosen for each of them")
        sizes = compiling.free_sizes(model, loaded.program)
        _tune_schedules(model, loaded, given_or_random(loaded.program, input, inputs, sizes, random), as_json)
        return
    store = store_for(executor.backends, executor.threads)
    if store is None:
        raise InputError("ways are measured on one device of this machine; on the CPU that needs a C compiler (set CC)")
    given = given_or_random(loaded.program, input, inputs, compiling.free_sizes(model, loaded.program), random)
    with Watch(executor.threads) as watch:
        measured = measure(loaded, given, terminal_progress())
    if watch.warning:
        note(f"warning: {watch.warning}")
    lines = {each.key: f"{each.way}  # {_times(each)}" for each in measured if each.steady}
    rounding = None
    if error is not None:
        ways = {each.key: each.way for each in measured if each.steady}
        rounding = choose_rounding(loaded, given, error, ways, terminal_progress())
        lines |= rounding.lines
    for path in filter(None, (store.path, output)):
        remember(path, store.device, lines)
    if as_json:
        calls = [{**asdict(each), "saved": each.saved} for each in measured]
        rounded = None if rounding is None else asdict(rounding)
        say_json({"device": store.device, "file": store.path, "calls": calls, "rounding": rounded})
        return
    others = [each for each in measured if each.way != each.usual]
    saved = seconds_text(sum(each.saved for each in others))
    say(
        f"{printable(model)} on {printable(store.device)}: {len(measured)} kinds of calls that several ways can compute"
    )
    say(
        f"{len(others)} of them in another way than usual, which saves {saved} in a run"
        if others
        else "the usual ways stay"
    )
    say()
    _say(measured)
    if rounding is not None:
        _say_rounding(rounding)
    if unsteady := sum(not each.steady for each in measured):
        note(f"{unsteady} could not be measured, because other programs used the machine: try again")
    for path in filter(None, (store.path, output)):
        note(f"wrote {printable(path)}")


def _tune_schedules(path: Path, model: Model, inputs: Mapping[str, np.ndarray], as_json: bool) -> None:
    """Measure schedules on a device of generated kernels, and remember them."""
    from graphc.runtime.schedules import tune_schedules
    from graphc.targets.ggml.generate.schedules import device_of, remember

    device = device_of(model.executor.backends[0])
    measured = tune_schedules(model, inputs, terminal_progress())
    remember(device, {each.sizes: each.seconds for each in measured})
    if as_json:
        rows = [
            {
                "sizes": str(each.sizes), "count": each.count, "usual": str(each.usual), "best": str(each.best),
                "saved": each.saved, "seconds": {str(schedule): time for schedule, time in each.seconds.items()},
            }
            for each in measured
        ]  # fmt: skip
        say_json({"device": device.description, "file": device.path, "calls": rows})
        return
    saved = seconds_text(sum(each.saved for each in measured))
    others = sum(each.best != each.usual for each in measured)
    say(f"{printable(path)} on {printable(device.description)}: {len(measured)} kinds of products and convolutions")
    say(
        f"{others} of them in another schedule than before, which saves {saved} in a run"
        if others
        else "schedules stay"
    )
    say()
    table = [
        (
            each.sizes,
            each.count,
            seconds_text(each.seconds[each.usual]),
            seconds_text(each.seconds[each.best]),
            each.best,
        )
        for each in measured
    ]
    say_table(("product or convolution", "count", "before", "now", "schedule"), table, "lrrr")
    note(f"wrote {printable(device.path)}")


def _say(measured: Sequence[Measured]) -> None:
    ways = list(dict.fromkeys(way for each in measured for way in each.seconds))
    rows = [
        (
            each.key,
            each.count,
            *(seconds_text(each.seconds[way]) if way in each.seconds else "" for way in ways),
            (each.way + ("" if each.way == each.usual else f", not {each.usual}")) if each.steady else "",
        )
        for each in measured
    ]
    say_table(("call", "count", *ways, "chosen"), rows, "lr" + "r" * len(ways))


def _say_rounding(rounding: Rounding) -> None:
    kept = list(rounding.errors.items())[: rounding.kept]
    say()
    say(
        f"{len(kept)} of {len(rounding.errors)} products stay float32: the error is {rounding.error:.1e}, "
        f"{rounding.error_of_all:.1e} if all are rounded"
    )
    if kept:
        say()
        say_table(("product", "error alone"), [(name, f"{error:.1e}") for name, error in kept], "lr")


def _times(measured: Measured) -> str:
    return ", ".join(f"{way} {seconds_text(seconds)}" for way, seconds in measured.seconds.items())
