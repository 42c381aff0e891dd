"""`graphc image upscale`: pictures made larger by networks, without words; and with words, painted again in tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphc_images.commands.bars import progress_bar
from graphc_images.commands.image import image
from graphc_images.commands.options import same_option, settings_given, with_settings
from graphc_images.commands.paint import Fast, Folders, ModelFile, folders_of, pipeline_of

Network = Annotated[
    str, typer.Option("--upscaler", "-u", metavar="FILE|NAME", help="ESRGAN, Real-ESRGAN; or Lanczos, Nearest.")
]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="PNG, JPEG or WebP.")]
Scale = Annotated[float, typer.Option(help="How many times as wide and high.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, gpu or what graphc devices lists.")]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="For all that is loaded and computed: 4GiB.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Of the CPU; all processors if not given.")]


@image.command()
def upscale(
    picture: Annotated[Path, typer.Argument(metavar="PICTURE")],
    upscaler: Network,
    output: Output = Path("out.png"),
    scale: Scale = 2.0,
    width: Annotated[int | None, typer.Option(help="To this size instead, cut to its shape.")] = None,
    height: Annotated[int | None, typer.Option(help="With --width.")] = None,
    second: Annotated[
        str | None, typer.Option("--upscaler-2", metavar="FILE|NAME", help="Mixed with the first.")
    ] = None,
    visibility: Annotated[float, typer.Option(min=0, max=1, help="How much of the second.")] = 0.5,
    tile: Annotated[int, typer.Option(min=0, help="Pixels of a tile's side; 0 for the whole at once.")] = 192,
    overlap: Annotated[int, typer.Option(min=0, help="Pixels by which tiles overlap.")] = 8,
    models: Folders = None,
    device: Device = "cpu",
    memory: Memory = None,
    fast: Fast = False,
    threads: Threads = None,
) -> None:
    """Make a picture larger, as A1111's Extras do."""
    from graphc_images.models import Loaded
    from graphc_images.pictures.files import check_target, open_picture, save_picture
    from graphc_images.upscalers import Enlargers, made_larger

    check_target(output)
    loaded, notes = open_picture(picture)
    ways = Enlargers(folders_of(models), Loaded(memory, device), threads)
    named = [ways(name, tile, overlap) for name in (upscaler, second) if name is not None]
    size = None if width is None and height is None else (width or loaded.width, height or loaded.height)
    save_picture(made_larger(loaded, named, scale, size, visibility), output, notes)
    typer.echo(f"{output}")


@image.command("sd-upscale", context_settings={"token_normalize_func": same_option})
@with_settings
def sd_upscale(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT")] = "",
    model: ModelFile = None,
    models: Folders = None,
    upscaler: Network = "Lanczos",
    output: Output = Path("out.png"),
    scale: Scale = 2.0,
    overlap: Annotated[int, typer.Option(min=0, help="Pixels by which tiles overlap.")] = 64,
    device: Device = "cpu",
    memory: Memory = None,
    fast: Fast = False,
    threads: Threads = None,
    **settings: Any,
) -> None:
    """Make --image larger, and paint it again tile by tile, each as large as --width and --height say."""
    from graphc_images.pictures.files import check_target
    from graphc_images.settings import Settings
    from graphc_images.upscalers.painting import sd_upscale

    check_target(output)
    asked = Settings.of(prompt, **settings_given(settings))
    pipeline = pipeline_of(model, folders_of(models), device=device, memory=memory, threads=threads)
    with progress_bar() as shown:
        task = shown.add_task("", total=None, count="", pace="")
        for progress in sd_upscale(pipeline, asked, upscaler, scale, overlap):
            done = progress.batch * progress.steps + progress.step
            shown.update(task, total=progress.batches * progress.steps, completed=done)
            for made in progress.pictures:
                made.save(output)
    typer.echo(f"{output}")
