"""`graphc bench`: side by side with the other runtimes that are installed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, printable, say, say_json, say_table, seconds_text
from graphc.commands.run import given_or_random, open_model
from graphc.errors import InputError


def bench(
    model: options.Model,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
    dim: options.Dims = None,
    threads: options.Threads = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each runtime, after one that is not timed.")] = 5,
    runtime: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this runtime; may be repeated.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Time a model beside onnxruntime and OpenVINO, where they are installed: one run of each in turn, on the CPU.

    The error is the largest difference from onnxruntime's result. Run it on a machine that has nothing else to do.
    """
    from graphc.runtime.bench import RUNTIMES
    from graphc.runtime.bench import bench as race
    from graphc.targets.ggml.executor import default_threads

    unknown = sorted(set(runtime or ()) - RUNTIMES.keys())
    if unknown:
        raise InputError(f"no runtime is called {', '.join(unknown)}; there are: {', '.join(RUNTIMES)}")
    dims = options.known_sizes(options.parse_dims(dim))
    loaded = open_model(model, {}, "cpu", threads)
    given = given_or_random(loaded.program.inputs, input, inputs, dims, random)
    loaded.close()
    results = race(model, given, threads or default_threads(), rounds, runtime)
    if as_json:
        say_json([asdict(each) for each in results])
        return
    ours = next((each.median for each in results if not each.problem), 0.0)
    rows = [
        (each.runtime, each.problem, "", "", "", "")
        if each.problem
        else (
            each.runtime,
            seconds_text(each.median),
            f"{each.median / ours:.2f}",
            seconds_text(each.load),
            "" if each.error is None else f"{each.error:.1e}",
            bytes_text(each.peak_bytes),
        )
        for each in results
    ]
    say(f"{printable(model)}: {rounds} rounds, {threads or default_threads()} threads")
    say()
    say_table(("runtime", "median", "ratio", "load", "error", "peak memory"), rows, "lrrrrr")
