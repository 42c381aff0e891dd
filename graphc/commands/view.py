"""`graphc view`: the program as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import printable, say
from graphc.commands.run import given_or_random, open_model, open_program
from graphc.errors import InputError
from graphc.files import beside, check_target, replacing

if TYPE_CHECKING:
    from graphc.kernels.gpu.forms import Form

ROUNDS = 3
"""Timed runs; the median of each step's times is shown."""


def view(
    model: options.ModelOrEngine,
    compiling: options.Compiling,
    where: options.Where,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.html", help="Where to write; beside the model if not given."),
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Run the model, and show the time of each step.")] = False,
    gpu: options.Gpu = None,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[int, typer.Option(min=0, metavar="SEED", help="Seed of the inputs that are not given.")] = 0,
) -> None:
    """Write one HTML file that shows the program by the modules of the model: steps, shapes, costs, copies, weights.

    A browser opens it without a network. `--dim` gives named sizes their values; inputs are for `--profile`. With `--gpu`, or a
    `--device` of generated kernels, the steps are kernels, and it has their text.
    """
    from graphc.targets.ggml.generate.folder import read_kernels, texts_of
    from graphc.targets.ggml.generate.generate import generated
    from graphc.view.document import document
    from graphc.view.page import page

    target, settings = check_target(output or beside(model, ".html")), compiling.settings(model)
    if profile:
        from graphc.runtime.model import check_inputs
        from graphc.runtime.profile import profile as measure

        if gpu is not None:
            raise InputError("--gpu is for a GPU that is not here; --profile runs the model on a --device")
        loaded = open_model(model, settings, where)
        launched = loaded.executor.launched
        texts = None if launched is None else texts_of(launched.generated, launched.changed)
        given = given_or_random(loaded.program, input, inputs, compiling.free_sizes(model, loaded.program), random)
        program, sizes = loaded.program, check_inputs(loaded.program, given)
        shown = document(loaded.executor.program if texts else program, sizes, measure(loaded, given, ROUNDS), texts)
    elif gpu is not None or where != options.Where():
        form = shown_form(where, gpu)
        program = open_program(model, settings)
        found = generated(program, where.fast, form=form)
        changed = read_kernels(where.kernels, found) if where.kernels is not None else {}
        shown = document(found.program, compiling.free_sizes(model, program), texts=texts_of(found, changed))
    else:
        program = open_program(model, settings)
        shown = document(program, compiling.free_sizes(model, program))
    with replacing(target) as unfinished:
        unfinished.write_text(page(shown), encoding="utf-8")
    say(f"wrote {printable(target)}")


def shown_form(where: options.Where, gpu: str | None) -> Form:
    """How kernels are written for the GPU or the device that is named. Raises GraphcError unless some are generated for it."""
    from graphc.backends.load import load_backends
    from graphc.kernels.gpu.compile import parse_targets
    from graphc.kernels.gpu.forms import CUDA
    from graphc.targets.ggml.generate.schedules import form_for
    from graphc.targets.ggml.run.device.devices import find_device, is_generated
    from graphc.targets.ggml.run.device.options import split_devices

    form: Form = CUDA
    shown = options.Where(where.device if gpu is None else "cpu", fast=where.fast, kernels=where.kernels)
    names = split_devices(shown.device)
    if gpu is not None:
        parse_targets(gpu)
    elif len(names) == 1 and names != ["cpu"]:
        load_backends()
        device = find_device(names[0])
        shown = shown if is_generated(device) else options.Where()
        form = form_for(device) if is_generated(device) else CUDA
    else:
        shown = options.Where()
    if where != shown:
        raise InputError(
            "--device, --memory, --fast, --threads and --kernels say where --profile runs the model; without it, a --device of "
            "generated kernels shows what it is given, and so does --gpu"
        )
    return form
