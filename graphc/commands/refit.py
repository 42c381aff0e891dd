"""`graphc refit`: an engine with the weights of another checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, note_lora, note_tokens, printable, say
from graphc.errors import InputError
from graphc.files import check_target
from graphc.trace import terminal_progress


def refit(
    engine: Annotated[Path, typer.Argument(help="An engine file, also one without weights.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The engine file to write.", show_default=False)],
    checkpoint: options.Checkpoint = None,
    lora: options.Loras = None,
    embedding: options.Embeddings = None,
    component: options.Component = None,
    allow_differences: options.AllowDifferences = False,
) -> None:
    """Put the weights of another checkpoint of the same architecture into an engine, or LoRAs, or tokens, without compiling.

    The checkpoint is a file (safetensors, GGUF, or of torch.save), an index of shards, or a folder with one of them. Files of
    Stable Diffusion, Flux and Chroma may be in their authors' layout, and folders as diffusers writes them.
    """
    from graphc.compiler import refit as write_refitted

    loras, tokens = options.parse_loras(lora), options.parse_embeddings(embedding)
    if checkpoint is None and not loras and not tokens:
        raise InputError("give a checkpoint, a LoRA with --lora, or a token with --embedding")
    added = [*(("a LoRA", path) for path, _ in loras), *(("an embedding", path) for path in tokens.values())]
    for what, path in (("the checkpoint", checkpoint), *added):
        if output.exists() and path is not None and path.exists() and output.samefile(path):
            raise InputError(f"{output}: the engine would overwrite {what}; give another name with -o")
    check_target(output)
    found, loaded, grown = write_refitted(
        engine,
        checkpoint,
        output,
        strict=not allow_differences,
        component=component,
        loras=loras,
        embeddings=tokens,
        progress=terminal_progress(),
    )
    if found is None:
        what = " and ".join(name for name, there in (("LoRAs", loras), ("tokens", tokens)) if there)
        say(f"{printable(output)}: the weights of {printable(engine)}, with {what}")
    else:
        made = [index for index, recipe in enumerate(found.recipes.weights) if recipe is not None]
        count = sum(index not in found.kept for index in made)
        say(
            f"{printable(output)}: {count} weights of {len(found.arrays)} parameters, {len(found.stored) - count} as before"
        )
        if found.fit.component:
            note(f"taken from {printable(str(found.fit))}")
        if found.kept:
            note(f"{len(found.kept)} weights stay as they were: the checkpoint has none of their parameters")
    for each in loaded.loaded.values():
        note_lora(each)
    note_tokens(grown.ids)
