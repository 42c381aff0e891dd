"""The command line: `graphc image "a prompt" --model FILE -o out.png`, and what there is to choose from."""

from __future__ import annotations

import sys
import warnings
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from graphc_images.pipeline import Pipeline

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


@image.command(PAINT)
def paint(
    prompt: Text = "",
    model: ModelFile = None,
    models: Folder = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="PNG, JPEG or WebP.")] = Path(
        "out.png"
    ),
    negative: Annotated[str, typer.Option("--negative", "-n", help="What is not to be seen.")] = "",
    width: Annotated[int | None, typer.Option(help="In pixels; the model's own if not given.")] = None,
    height: Annotated[int | None, typer.Option(help="In pixels.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the sampler.")] = None,
    sampler: Annotated[str | None, typer.Option(help="See graphc image samplers.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="See graphc image schedulers.")] = None,
    cfg: Annotated[float | None, typer.Option(help="How strongly the prompt guides.")] = None,
    guidance: Annotated[float | None, typer.Option(help="The distilled guidance of Flux dev.")] = None,
    seed: Annotated[int, typer.Option(help="-1 for any.")] = -1,
    count: Annotated[int, typer.Option(help="How many pictures, one after the other.")] = 1,
    batch: Annotated[int, typer.Option(help="How many go through the model together.")] = 1,
    clip_skip: Annotated[int | None, typer.Option(help="Which layer of CLIP from the end.")] = None,
    mode: Annotated[str, typer.Option(help="a1111 or comfyui: whose pictures the seeds give.")] = "a1111",
    init: Annotated[Path | None, typer.Option("--image", metavar="FILE", help="Begin with this picture.")] = None,
    mask: Annotated[Path | None, typer.Option(metavar="FILE", help="White where --image is painted anew.")] = None,
    strength: Annotated[float, typer.Option(help="How much of --image changes: 0 to 1.")] = 0.75,
    only_masked: Annotated[bool, typer.Option("--only-masked", help="Paint the masked part at full size.")] = False,
    fill: Annotated[str, typer.Option(help="fill, original, latent noise or latent nothing.")] = "original",
    hires: Annotated[float, typer.Option(metavar="SCALE", help="Make it again so many times larger.")] = 1.0,
    hires_upscaler: Annotated[str, typer.Option(help="Latent, Latent (bicubic), Lanczos, …")] = "Latent",
    hires_strength: Annotated[float, typer.Option(help="How much the second pass changes.")] = 0.7,
    lora: Annotated[
        list[str] | None, typer.Option(metavar="FILE[:STRENGTH]", help="Add a LoRA; may be repeated.")
    ] = None,
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
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU; all processors if not given.")] = None,
) -> None:
    """Make a picture from a prompt."""
    from graphc_images.describing import settings_of
    from graphc_images.pictures.files import check_target, open_picture
    from graphc_images.pictures.parameters import read_parameters

    for target in filter(None, (output, preview)):
        check_target(target)
    given: dict[str, Any] = {}
    if like is not None:
        _, notes = open_picture(like)
        given = settings_of(read_parameters(notes.parameters))
    asked = {
        "prompt": prompt, "negative_prompt": negative, "width": width, "height": height, "steps": steps,
        "sampler": sampler, "scheduler": scheduler, "cfg_scale": cfg, "guidance": guidance, "clip_skip": clip_skip,
    }  # fmt: skip
    given |= {name: value for name, value in asked.items() if value not in (None, "")}
    if seed >= 0 or like is None:
        given["seed"] = seed
    given |= {"batches": count, "batch_size": batch}
    if mode != "a1111" or like is None:
        given["mode"] = mode
    if init is not None:
        given |= {"image": open_picture(init)[0], "denoising_strength": strength}
    if mask is not None:
        given |= {"mask": open_picture(mask)[0], "only_masked": only_masked, "inpainting_fill": fill}
    if hires > 1:
        given |= {"hires_scale": hires, "hires_upscaler": hires_upscaler, "hires_denoising_strength": hires_strength}
    given["loras"] = dict(map(_lora, lora or ()))
    pipeline = _pipeline(model, models, vae=vae, tiny=tiny, threads=threads)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        if x or y or z:
            _plot(pipeline, given, output, x, y, z)
        else:
            _paint(pipeline, given, output, preview)


def _plot(pipeline: Pipeline, given: dict[str, Any], output: Path, *texts: str | None) -> None:
    """Paint a grid, or one for each value of Z, and write it."""
    from graphc_images.errors import SettingError
    from graphc_images.pictures.files import save_picture
    from graphc_images.plots import NOTHING, axis_of, plot
    from graphc_images.settings import Settings

    axes = []
    for text in texts:
        name, equals, values = (text or "").partition("=")
        if text and not equals:
            raise SettingError(f"{text!r}: an axis is NAME=VALUES, such as Steps=10-30 (+10)")
        axes.append(axis_of(name, values) if text else NOTHING)
    steps = plot(pipeline, Settings.of(**given), *axes)
    with _bar() as bar:
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


def _bar() -> Any:
    """A bar on the terminal, with the pace and the remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _paint(pipeline: Pipeline, given: dict[str, Any], output: Path, preview: Path | None) -> None:
    """Paint, show where it is, and write each picture when it is finished: an interrupt keeps what is done."""
    from graphc_images.pictures.files import save_picture

    several = given["batches"] * given["batch_size"] > 1
    written: list[Path] = []
    with _bar() as bar:
        task = bar.add_task("", total=None, pace="")
        for progress in pipeline.steps(**given):
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


def _lora(text: str) -> tuple[str, float]:
    """A file or name, and the strength behind the last colon."""
    name, colon, strength = text.rpartition(":")
    try:
        return (name, float(strength)) if colon and name else (text, 1.0)
    except ValueError:
        return text, 1.0


def _pipeline(model: str | None, models: Path | None, **settings: Any) -> Pipeline:
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
