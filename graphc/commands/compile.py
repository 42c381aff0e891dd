"""`graphc compile`: a model to an engine file and a C++ project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.inspect_weights import sizes_text
from graphc.commands.output import note, printable, say
from graphc.errors import InputError
from graphc.files import beside, check_folder, check_target
from graphc.trace import terminal_progress


def compile(
    model: options.Model,
    compiling: options.Compiling,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The engine file; MODEL with the ending .gguf if not given.", show_default=False
        ),
    ] = None,
    cpp: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a C++ project to this folder too.", show_default=False)
    ] = None,
    strip_weights: Annotated[
        bool, typer.Option("--strip-weights", help="Leave the weights out; they are given when the engine is loaded.")
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(
            metavar="CHECKPOINT",
            help="The model's own weights: finds the names of constants again that the exporter lost.",
            show_default=False,
        ),
    ] = None,
    dtype: options.Dtype = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="CHECKPOINT", help="Store these weights instead of the model's own.", show_default=False),
    ] = None,
    component: options.Component = None,
    gpu: options.Gpu = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Have the kernels for --gpu multiply float32 in float16.")
    ] = False,
    dump: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the kernels for --gpu to this folder, to be read.", show_default=False),
    ] = None,
) -> None:
    """Compile an ONNX model to an engine file, and to C++.

    The engine holds the weights and the program; it runs with `graphc run`, `graphc.load()` and the C++ project. With `--gpu` it
    also carries kernels, compiled, which `--trust-kernels` runs where there is no compiler.
    """
    from graphc.backends.precision import set_float32_matmul_precision
    from graphc.compiler import add_device_code, compile_weights, require_checkpoint, weights_of, write, write_project
    from graphc.kernels.gpu.compile import parse_targets
    from graphc.targets.ggml.generate.folder import write_kernels
    from graphc.targets.ggml.lowering.dtypes import Dtypes
    from graphc.targets.ggml.program.cost import parameters

    target = output or beside(model, ".gguf")
    for read, what in ((model, "model"), (weights, "checkpoint")):
        if read is not None and target.exists() and read.exists() and target.samefile(read):
            raise InputError(f"{target}: the engine would overwrite the {what}; give another name with -o")
    check_target(target)
    if (fast or dump is not None) and gpu is None:
        raise InputError("--fast and --dump are for the kernels of --gpu")
    targets = parse_targets(gpu) if gpu is not None else []
    for folder in filter(None, (cpp, dump)):
        check_folder(folder)
    progress = terminal_progress()
    types = Dtypes.parsed(dtype or ())
    if not strip_weights:
        require_checkpoint(types, weights)
    settings = compiling.settings(model)
    settings = replace(settings, name=target.stem, names=names, dtype=types, weights=weights, component=component)
    program, refit = compile_weights(model, settings, progress=progress)
    if targets:
        set_float32_matmul_precision("high" if fast else "highest")
        found = add_device_code(program, targets)
        note(f"{len(found.kernels)} kernels for {', '.join(targets)}" + left_text(found.left))
        if dump is not None:
            write_kernels(dump, found, compiling.free_sizes(model, program), targets)
            say(f"{printable(dump)}: the kernels' texts and PTX")
    write(program, target, progress, strip_weights=strip_weights, arrays=weights_of(program, refit))
    counts = f"{len(program.calls)} calls, {len(program.kernels)} generated kernels"
    size = sizes_text(program)
    left_out = ", left out: give them with --weights" if strip_weights else ""
    say(f"{printable(target)}: {counts}, {parameters(program):,} parameters in {size}{left_out}")
    for line in types.notes():
        note(printable(line))
    if cpp is not None:
        write_project(program, cpp)
        say(f"{printable(cpp)}: C++ project; graphc build {quote(printable(cpp))}")
    if not program.inputs:
        note("the model has no inputs: its outputs are constants")


def left_text(left: Mapping[str, str]) -> str:
    """What the CPU computes of a program whose kernels run on a GPU; empty if that is nothing."""
    return (
        f"; the CPU computes {', '.join(printable(name) for name in list(left)[:4])}"
        + (f" and {len(left) - 4} more" if len(left) > 4 else "")
        if left
        else ""
    )
