"""`graphc run`: arrays in, arrays out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, note_lora, note_tokens, printable, say, seconds_text
from graphc.errors import InputError
from graphc.files import check_folder
from graphc.trace import terminal_progress

if TYPE_CHECKING:
    import numpy as np

    from graphc.compiler import Settings
    from graphc.runtime.arrays import Completed
    from graphc.runtime.model import Model
    from graphc.targets.ggml.program.program import Program


def run(
    model: options.ModelOrEngine,
    compiling: options.Compiling,
    where: options.Where,
    input: options.InputFiles = None,
    inputs: options.InputArchive = None,
    random: Annotated[
        int | None,
        typer.Option(min=0, metavar="SEED", help="Make up the inputs that are not given.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR|FILE.npz", help="Where to write the outputs.", show_default=False),
    ] = None,
    weights: options.Weights = None,
    component: options.Component = None,
    dtype: options.Dtype = None,
    lora: options.Loras = None,
    embedding: options.Embeddings = None,
    repeat: Annotated[int, typer.Option(min=1, help="Run so many times, and print the times.")] = 1,
    dump: options.Dump = None,
) -> None:
    """Run a model on arrays from .npy or .npz files, or on random ones.

    `--dim` pins a size of an ONNX file, and says how large a random input is.
    """
    from graphc.runtime.arrays import as_declared, check_outputs, completed, read_inputs, summary, write_outputs
    from graphc.targets.ggml.engine import is_engine

    if output is not None:
        check_outputs(output)
    if dump is not None:
        check_dump(dump, where)
    given = read_inputs(input, inputs)
    settings, engine = compiling.settings(model), is_engine(model)
    if engine and settings.dims and random is None:
        raise InputError("the sizes of an engine's inputs are those of the arrays; --dim is for --random")
    loaded = open_model(model, settings, where, weights, component, dtype or ())
    for path, strength in options.parse_loras(lora):
        note_lora(loaded.load_lora(path, strength, name=str(path)))
    if tokens := options.parse_embeddings(embedding):
        note_tokens(loaded.load_embeddings(tokens))
    if random is not None:
        found = completed(loaded.program, given, compiling.free_sizes(model, loaded.program), random)
        note_sizes(found)
        for name in found.made:
            note(f"random input {printable(name)}: {summary(found.arrays[name])}")
        given = found.arrays
    elif not given and loaded.inputs:
        wanted = "\n  ".join(printable(info) for info in loaded.inputs)
        raise InputError(f"give the inputs with --inputs, --input or --random:\n  {wanted}")
    given = as_declared(loaded.program.inputs, given)
    if dump is not None:
        dump_kernels(loaded, dump, given)
    results, times = {}, []
    for _ in range(repeat):
        start = perf_counter()
        results = loaded.run(given)
        times.append(perf_counter() - start)
    note_memory(loaded, where)
    for name, array in results.items():
        say(f"{printable(name)}: {summary(array)}")
    if output is not None:
        for path in write_outputs(results, output):
            say(f"wrote {printable(path)}")
    if repeat > 1:
        median = seconds_text(statistics.median(times))
        say(f"{repeat} runs: median {median}, fastest {seconds_text(min(times))}, first {seconds_text(times[0])}")


def open_model(
    path: Path,
    settings: Settings,
    where: options.Where,
    weights: Path | None = None,
    component: str | None = None,
    dtype: Sequence[str] = (),
) -> Model:
    """An engine file, loaded, or an ONNX file, compiled in memory; with other weights if given, in these types. Remarks what is
    given up for speed. Raises GraphcError."""
    from graphc.compiler import compile_weights, in_memory, require_checkpoint
    from graphc.loading import load
    from graphc.targets.ggml.engine import is_engine

    place, progress = where.place(), terminal_progress()
    if is_engine(path):
        model = load(path, weights=weights, component=component, dtype=dtype, **asdict(place))
    else:
        require_checkpoint(dtype, weights)
        settings = replace(settings, dtype=dtype, weights=weights, component=component)
        model = in_memory(*compile_weights(path, settings, progress=progress), place, progress)
    if where.fast:
        note(f"fast: {model.given_up or 'nothing is given up, products are computed in float32'}")
    note_kernels(model, where)
    return model


def note_kernels(model: Model, where: options.Where) -> None:
    """Remark which kernels of a folder are not the generated ones."""
    if model.executor.launched is not None and where.kernels is not None:
        names = ", ".join(model.executor.launched.changed) or "none"
        note(f"kernels of {printable(where.kernels)} that differ from those that are generated: {names}")


def check_dump(folder: Path, where: options.Where) -> None:
    """Raises OSError or InputError if kernels certainly cannot be written to a folder."""
    if where.kernels is not None and check_folder(folder).exists() and folder.samefile(where.kernels):
        raise InputError(f"--dump {folder}: would write over what --kernels reads; give another folder")
    check_folder(folder)


def dump_kernels(model: Model, folder: Path, inputs: Mapping[str, np.ndarray]) -> None:
    """Write the kernels that a model launches for inputs of these sizes, and say so. Raises GraphcError and OSError."""
    from graphc.kernels.gpu.code import target_for
    from graphc.kernels.gpu.compile import find_toolchain
    from graphc.kernels.gpu.forms import Text
    from graphc.runtime.model import check_inputs
    from graphc.targets.ggml.generate.folder import write_kernels

    launched = model.executor.launched
    if launched is None:
        raise InputError(
            "--dump is for devices of generated kernels (`graphc devices`); for others, `graphc compile --gpu`"
        )
    form = launched.generated.form
    targets = [target_for(form.architecture)] if isinstance(form, Text) and find_toolchain() else []
    write_kernels(folder, launched.generated, check_inputs(model.program, inputs), targets, launched.changed)
    without = "" if targets or not isinstance(form, Text) else "; no PTX, for there is no compiler for GPU kernels"
    note(f"{printable(folder)}: {len(launched.generated.kernels)} kernels{without}")


def note_memory(model: Model, where: options.Where) -> None:
    """Remark what of the devices' memory holds what, if a limit was given."""
    if where.memory is not None:
        for line in model.executor.fitting.text():
            note(line)


def open_program(path: Path, settings: Settings) -> Program:
    """The program of an engine file or an ONNX file, without its weights. Raises GraphcError."""
    from graphc.targets.ggml.engine import is_engine

    if is_engine(path):
        from graphc.targets.ggml.engine import read_stripped_engine

        return read_stripped_engine(path)[0]
    from graphc.compiler import compile_program

    return compile_program(path, settings, progress=terminal_progress())


def given_or_random(
    program: Program,
    files: Sequence[str] | None,
    archive: Path | None,
    sizes: Mapping[str, int],
    seed: int,
) -> dict[str, np.ndarray]:
    """The arrays of all inputs: from files, or else random, where `sizes` gives named sizes. Remarks which sizes were taken.

    Raises InputError.
    """
    from graphc.runtime.arrays import completed, read_inputs

    found = completed(program, read_inputs(files, archive), sizes, seed)
    note_sizes(found)
    return found.arrays


def note_sizes(found: Completed) -> None:
    """Remark which sizes random inputs have."""
    if found.note:
        note(printable(found.note))
