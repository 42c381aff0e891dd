"""The command line: `graphc image "a prompt" --model FILE -o out.png`, and what there is to choose from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from graphc_images.commands.options import same_option, with_settings
from graphc_images.commands.paint import paint

PAINT = "paint"
"""The command that is meant where none is named."""


class PromptOrCommand(TyperGroup):
    """A group whose first word may be a prompt instead of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`graphc image "a cat" …` is `graphc image paint "a cat" …`."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = [PAINT, *args]
        return super().parse_args(ctx, args)


image = typer.Typer(
    cls=PromptOrCommand,
    no_args_is_help=True,
    help='Make pictures from words: graphc image "a prompt" --model FILE -o out.png (see graphc image paint --help).',
)

image.command(PAINT, context_settings={"token_normalize_func": same_option})(with_settings(paint))


@image.command()
def samplers() -> None:
    """The samplers, under the names that A1111 and ComfyUI give them."""
    from graphc_images.sampling.names import SAMPLERS

    _table(("name", "A1111, Forge", "ComfyUI", "diffusers", "stable-diffusion.cpp"),
           [(each.name, each.label, each.comfyui, each.diffusers, each.cpp) for each in SAMPLERS])  # fmt: skip


@image.command()
def schedulers() -> None:
    """The schedulers, under the names that A1111 and ComfyUI give them."""
    from graphc_images.sampling.names import SCHEDULERS

    _table(("name", "A1111, Forge", "ComfyUI", "stable-diffusion.cpp"),
           [(each.name, each.label, each.comfyui, each.cpp) for each in SCHEDULERS])  # fmt: skip


@image.command("models")
def models_in(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of models.")]) -> None:
    """The models in a folder."""
    from graphc_images.folders import ModelFolders

    _table(("kind", "name", "file"), [(each.kind, each.name, str(each.path)) for each in ModelFolders(folder).files])


@image.command()
def info(file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint, or a picture.")]) -> None:
    """What a checkpoint is, or how a picture was made."""
    from graphc_images.models import load_model
    from graphc_images.pictures.files import FORMATS, open_picture

    if file.suffix.lower() in FORMATS:
        typer.echo(open_picture(file)[1].parameters or "the file does not say how the picture was made")
        return
    model = load_model(file)
    architecture, usual = model.architecture, model.architecture.defaults
    typer.echo(f"{architecture.name}, predicts {model.recognized.prediction}")
    typer.echo(f"has {', '.join(model.components)}")
    typer.echo(f"usual: {usual.width} x {usual.height}, {usual.steps} steps, CFG {usual.cfg:g}, {usual.sampler}")


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print aligned columns."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in [heads, tuple("-" * width for width in widths), *rows]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
