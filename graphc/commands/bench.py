"""`graphc bench`: side by side with the other runtimes that are installed."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, note, printable, say, say_json, say_table, seconds_text
from graphc.commands.run import given_or_random, open_program
from graphc.errors import InputError
from graphc.files import check_target, replacing

if TYPE_CHECKING:
    from graphc.runtime.bench import Result

PACKAGES = ("graphc", "ggml-python", "onnxruntime", "openvino", "torch")
"""Whose versions are noted beside the numbers."""


def bench(
    model: options.ModelOrEngine,
    compiling: options.Compiling,
    where: options.Where,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(min=0, metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each runtime, after one that is not timed.")] = 5,
    runtime: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this runtime; may be repeated.", show_default=False),
    ] = None,
    torch: Annotated[
        str,
        typer.Option(
            metavar="MODULE:NAME", help="What makes the same model in PyTorch, to time torch and torch.compile."
        ),
    ] = "",
    dtype: options.Dtype = None,
    engine: options.Engine = None,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds after which a runtime that does not answer is given up.")
    ] = 600,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the times.", show_default=False)] = None,
    as_json: options.Json = False,
) -> None:
    """Time a model beside the runtimes that are installed, one run of each in turn.

    They are onnxruntime, OpenVINO, ggml-python's own ONNX runtime, and with `--torch` PyTorch, eager and compiled; all of them
    compute on the CPU. `--device`, `--memory` and `--fast` are for graphc. The error is the largest difference from
    onnxruntime's result; with `--dtype` it says what types of weights cost. Run it on a machine that has nothing else to do.
    Of an engine alone, only graphc's own runtimes are timed; `--engine` has graphc run one, and the others the model.
    """
    from graphc.commands.charts import bars
    from graphc.runtime.bench import bench as race
    from graphc.runtime.peers import Task, chosen_peers
    from graphc.targets.ggml.engine import is_engine
    from graphc.targets.ggml.run.device.devices import default_threads

    place = where.place()
    peers = chosen_peers(runtime, torch, place.only_cpu)
    if is_engine(model):
        if dtype or engine is not None or runtime is not None:
            raise InputError(f"{model}: is an engine; --dtype, --engine and --runtime go with its ONNX file")
        peers, engine = {name: peer for name, peer in peers.items() if peer.takes_engines}, model
    if dtype and engine is not None:
        raise InputError("an engine has its types of weights; give --dtype or --engine")
    if plot is not None:
        check_target(plot)
    settings = replace(compiling.settings(model), dims=None)  # others get the file as it is
    program = open_program(model, settings)
    given = given_or_random(program, input, inputs, compiling.sizes, random)
    task = Task(
        path=model,
        inputs=given,
        outputs=tuple(each.name for each in program.outputs),
        threads=where.threads or default_threads(),
        torch=torch,
        without=tuple(settings.without),
        stop_after=settings.stop_after,
        device=where.device,
        memory=place.memory,
        kernels=where.kernels,
        trust_kernels=where.trust_kernels,
        steady=tuple(place.steady),
        fast=where.fast,
        dtype=tuple(dtype or ()),
        engine=engine,
    )
    results = race(task, rounds, peers, patience)
    device = "" if place.only_cpu else f", graphc on {place.device}"
    if plot is not None:
        with replacing(plot) as unfinished:
            unfinished.write_text(bars(f"{model}, {task.threads} threads{device}", results), encoding="utf-8")
        note(f"wrote {printable(plot)}")
    if as_json:
        about = {
            "model": str(model),
            "threads": task.threads,
            "device": place.device,
            "rounds": rounds,
            "machine": machine_name(),
            "versions": versions(),
        }
        say_json({**about, "results": [asdict(each) for each in results]})
        return
    say(f"{printable(model)}: {rounds} rounds, {task.threads} threads, {machine_name()}{printable(device)}")
    say()
    say_results(results)


def say_results(results: Sequence[Result]) -> None:
    """Print a table; ratios are to the first."""
    ours = next((each.median for each in results if not each.problem), 0.0)
    rows = [
        (each.runtime, each.problem.partition("\n")[0][:100], "", "", "", "")
        if each.problem
        else (
            each.runtime,
            seconds_text(each.median),
            f"{each.median / ours:.2f}",
            seconds_text(each.load),
            "" if each.error is None else f"{each.error:.1e}",
            bytes_text(each.peak_bytes) if each.peak_bytes else "",
        )
        for each in results
    ]
    say_table(("runtime", "median", "ratio", "load", "error", "peak memory"), rows, "lrrrrr")


def machine_name() -> str:
    """The processor's name, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The versions of what is compared, where it is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
