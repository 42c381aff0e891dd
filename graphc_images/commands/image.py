"""The command line: `graphc image "a prompt" --model FILE -o out.png`, and what there is to choose from."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from graphc_images.commands.options import same_option, settings_given, with_settings

if TYPE_CHECKING:
    from graphc_images.pipeline import Pipeline
    from graphc_images.settings import Settings

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

Text = Annotated[str, typer.Argument(help="What is to be seen; A1111's language.", metavar="PROMPT")]
ModelFile = Annotated[
    str | None, typer.Option("--model", "-m", metavar="FILE|NAME", help="A checkpoint, or its name in --models.")
]
Folder = Annotated[
    Path | None,
    typer.Option("--models", metavar="DIR", help="Models as A1111, ComfyUI or Easy Diffusion lay them out."),
]


@image.command(PAINT, context_settings={"token_normalize_func": same_option})
@with_settings
def paint(
    prompt: Text = "",
    model: ModelFile = None,
    models: Folder = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="PNG, JPEG or WebP.")] = Path(
        "out.png"
    ),
    like: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="With the settings that a picture has in its file.")
    ] = None,
    x: Annotated[
        str | None, typer.Option("--x", metavar="AXIS=VALUES", help='A grid: --x "Steps=10-30 (+10)" across,')
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", metavar="AXIS=VALUES", help='--y "Sampler=Euler, DPM++ 2M" down,')
    ] = None,
    z: Annotated[str | None, typer.Option("--z", metavar="AXIS=VALUES", help="and a grid for each of --z.")] = None,
    preview: Annotated[Path | None, typer.Option(metavar="FILE", help="Written after each step.")] = None,
    vae: Annotated[Path | None, typer.Option(metavar="FILE", help="Another autoencoder.")] = None,
    tiny: Annotated[Path | None, typer.Option("--taesd", metavar="FILE", help="TAESD, for previews.")] = None,
    device: Annotated[str, typer.Option(metavar="NAME,...", help="cpu, gpu or what graphc devices lists.")] = "cpu",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="For all models and what they compute: 4GiB, 900MiB.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="[PART=]TYPE", help="Keep weights as q8_0, f16, …; may be repeated."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU; all processors if not given.")] = None,
    **settings: Any,
) -> None:
    """Make a picture from a prompt."""
    from graphc_images.describing import settings_of
    from graphc_images.pictures.files import check_target, open_picture
    from graphc_images.pictures.parameters import read_parameters
    from graphc_images.settings import Settings

    for target in filter(None, (output, preview)):
        check_target(target)
    given: dict[str, Any] = {}
    if like is not None:
        _, notes = open_picture(like)
        given = settings_of(read_parameters(notes.parameters))
    given |= settings_given(settings) | ({"prompt": prompt} if prompt else {})
    asked = Settings.of(**given)
    where: dict[str, Any] = {"device": device, "memory": memory, "threads": threads, "types": _types(types or ())}
    pipeline = opened_pipeline(model, models, vae=vae, tiny=tiny, **where)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        if x or y or z:
            _plot(pipeline, asked, output, x, y, z)
        else:
            _paint(pipeline, asked, output, preview)


def _plot(pipeline: Pipeline, asked: Settings, output: Path, *texts: str | None) -> None:
    """Paint a grid, or one for each value of Z, and write it."""
    from graphc_images.errors import SettingError
    from graphc_images.pictures.files import save_picture
    from graphc_images.plots import NOTHING, axis_of, plot

    axes = []
    for text in texts:
        name, equals, values = (text or "").partition("=")
        if text and not equals:
            raise SettingError(f"{text!r}: an axis is NAME=VALUES, such as Steps=10-30 (+10)")
        axes.append(axis_of(name, values) if text else NOTHING)
    steps = plot(pipeline, asked, *axes)
    with progress_bar() as bar:
        task = bar.add_task("", total=prod(len(axis.labels) for axis in axes), pace="")
        while True:
            try:
                progress = next(steps)
            except StopIteration as end:
                made = end.value
                break
            bar.update(task, advance=len(progress.pictures))
    for place, (label, grid) in enumerate(made.grids, 1):
        path = output if len(made.grids) == 1 else output.with_stem(f"{output.stem}-{place}")
        save_picture(grid, path)
        typer.echo(f"{path}: {label}" if label else f"{path}")


def progress_bar() -> Any:
    """A bar on the terminal, with the pace and the remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _paint(pipeline: Pipeline, asked: Settings, output: Path, preview: Path | None) -> None:
    """Paint, show where it is, and write each picture when it is finished: an interrupt keeps what is done."""
    from graphc_images.pictures.files import save_picture

    several = asked.batches * asked.batch_size > 1
    written: list[Path] = []
    with progress_bar() as bar:
        task = bar.add_task("", total=None, pace="")
        for progress in pipeline.paint(asked):
            done = bar.tasks[task]
            pace = f"{done.speed:.2f} it/s" if done.speed else ""
            bar.update(task, total=progress.steps, completed=progress.step, pace=pace)
            if preview is not None and not progress.pictures:
                save_picture(progress.previews()[0], preview)
            for picture in progress.pictures:
                place = output.with_stem(f"{output.stem}-{len(written) + 1}") if several else output
                picture.save(place)
                written.append(place)
                typer.echo(f"{place}: seed {picture.seed}")


def _types(texts: Sequence[str]) -> str | dict[str, str]:
    """The types of weights: one for all parts, or by part."""
    pairs = [text.partition("=") for text in texts]
    return {name: type for name, equals, type in pairs if equals} or (texts[-1] if texts else "checkpoint")


def opened_pipeline(model: str | None, models: Path | None, **settings: Any) -> Pipeline:
    """A pipeline of a file or a name. Raises ModelError."""
    from graphc_images.errors import ModelError
    from graphc_images.pipeline import load

    if model is None:
        raise ModelError("say which model paints: --model FILE, or --model NAME with --models DIR")
    return load(model, folders=models, **settings)


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
