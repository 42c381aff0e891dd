"""`graphc refit`: an engine with the weights of another checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, printable, say
from graphc.errors import InputError
from graphc.files import check_target
from graphc.trace import terminal_progress


def refit(
    engine: Annotated[Path, typer.Argument(help="An engine file, also one without weights.", show_default=False)],
    checkpoint: options.Checkpoint,
    output: Annotated[Path, typer.Option("-o", "--output", help="The engine file to write.", show_default=False)],
    component: options.Component = None,
    allow_differences: options.AllowDifferences = False,
) -> None:
    """Put the weights of another checkpoint of the same architecture into an engine, without compiling.

    The checkpoint is a file (safetensors, GGUF, or of torch.save), an index of shards, or a folder with one of them. Files of
    Stable Diffusion, Flux and Chroma may be in their authors' layout, and folders as diffusers writes them.
    """
    from graphc.compiler import refit as write_refitted

    if output.exists() and checkpoint.exists() and output.samefile(checkpoint):
        raise InputError(f"{output}: the engine would overwrite the checkpoint; give another name with -o")
    check_target(output)
    strict, progress = not allow_differences, terminal_progress()
    found = write_refitted(engine, checkpoint, output, strict=strict, component=component, progress=progress)
    made = sum(recipe is not None for recipe in found.recipes.weights) - len(found.kept)
    say(f"{printable(output)}: {made} weights of {len(found.arrays)} parameters, {len(found.stored) - made} as before")
    if found.fit.component:
        note(f"taken from {printable(str(found.fit))}")
    if found.kept:
        note(f"{len(found.kept)} weights stay as they were: the checkpoint has none of their parameters")
