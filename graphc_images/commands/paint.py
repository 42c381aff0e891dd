"""`graphc image "a prompt"`: from what was typed to pictures in files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphc_images.commands.fast import fast_option
from graphc_images.commands.options import setting_of_text, settings_given
from graphc_images.errors import SettingError

if TYPE_CHECKING:
    from graphc_images.commands.writing import Preview, Writer
    from graphc_images.folders import ModelFolders
    from graphc_images.pictures.files import Notes
    from graphc_images.pipeline import Picture, Pipeline
    from graphc_images.settings import Settings

FILES, WRITTEN, SEVERAL = "Files", "What is written", "Several pictures"


def _option(*flags: str, help: str, metavar: str | None = None, panel: str = FILES, **more: Any) -> Any:
    return typer.Option(*flags, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **more)


ModelFile = Annotated[
    str | None, _option("--model", "-m", metavar="FILE|NAME", help="A checkpoint, or its name in --models.")
]
Folders = Annotated[
    list[Path] | None,
    _option(
        "--models", metavar="DIR", help="Models as A1111, ComfyUI or Easy Diffusion lay them out; may be repeated."
    ),
]

Fast = Annotated[bool, fast_option(FILES)]


def paint(
    prompt: Annotated[str, typer.Argument(help="What is to be seen; A1111's language.", metavar="PROMPT")] = "",
    model: ModelFile = None,
    models: Folders = None,
    vae: Annotated[str | None, _option(metavar="FILE|NAME", help="Another autoencoder.")] = None,
    clip_l: Annotated[str | None, _option("--clip-l", metavar="FILE|NAME", help="The text encoder CLIP-L.")] = None,
    clip_g: Annotated[str | None, _option("--clip-g", metavar="FILE|NAME", help="The text encoder CLIP-G.")] = None,
    clip_h: Annotated[str | None, _option("--clip-h", metavar="FILE|NAME", help="OpenCLIP-H.")] = None,
    t5: Annotated[str | None, _option("--t5", metavar="FILE|NAME", help="The text encoder T5-XXL.")] = None,
    llm: Annotated[str | None, _option("--llm", metavar="FILE|NAME", help="The language model Qwen.")] = None,
    tiny: Annotated[
        str | None, _option("--taesd", metavar="FILE|NAME", help="TAESD, TAEF2 or TAEW2.1, for previews.")
    ] = None,
    device: Annotated[str, _option(metavar="NAME,…", help="cpu, gpu or what graphc devices lists.")] = "cpu",
    memory: Annotated[
        str | None, _option(metavar="SIZE", help="For all models and what they compute: 4GiB, 900MiB.")
    ] = None,
    types: Annotated[
        list[str] | None,
        _option("--type", metavar="[PART=]TYPE", help="Keep weights as q8_0, f16, …; may be repeated."),
    ] = None,
    fast: Fast = False,
    threads: Annotated[int | None, _option(min=1, help="Of the CPU; all processors if not given.")] = None,
    like: Annotated[
        Path | None, _option("--from", metavar="FILE", help="With the settings that a picture, or a text, has in it.")
    ] = None,
    output: Annotated[
        str | None,
        _option(
            "--output",
            "-o",
            metavar="FILE|DIR|PATTERN",
            panel=WRITTEN,
            help="PNG, JPEG or WebP; replaced if it is there. A folder, or a name with [seed] and the like, gives new names: "
            "[number]-[seed].png if nothing is given.",
        ),
    ] = None,
    quality: Annotated[int, _option(min=1, max=100, panel=WRITTEN, help="Of JPEG and WebP. Usual: 80.")] = 80,
    graph: Annotated[
        bool, _option("--graph", panel=WRITTEN, help="ComfyUI's graph too, to be dropped into ComfyUI.")
    ] = False,
    hashes: Annotated[
        bool, _option("--hashes/--no-hashes", panel=WRITTEN, help="Hashes of the models in the text.")
    ] = True,
    preview: Annotated[Path | None, _option(metavar="FILE", panel=WRITTEN, help="Written after each step.")] = None,
    grid: Annotated[Path | None, _option(metavar="FILE", panel=WRITTEN, help="All pictures in one, besides.")] = None,
    prompts: Annotated[
        Path | None,
        _option(metavar="FILE", panel=SEVERAL, help='A prompt each line, or --prompt "…" --steps 20 and the like.'),
    ] = None,
    matrix: Annotated[bool, _option("--matrix", panel=SEVERAL, help="Each choice of what stands behind a | .")] = False,
    dynamic: Annotated[bool, _option("--dynamic", panel=SEVERAL, help="Draw {a|b} and __name__ in prompts.")] = False,
    wildcards: Annotated[
        Path | None, _option(metavar="DIR", panel=SEVERAL, help="The files of __name__; means --dynamic.")
    ] = None,
    style: Annotated[
        list[str] | None, _option("--style", metavar="NAME", panel=SEVERAL, help="Of --styles; may be repeated.")
    ] = None,
    styles: Annotated[Path | None, _option(metavar="FILE", panel=SEVERAL, help="A1111's styles.csv.")] = None,
    x: Annotated[
        str | None,
        _option("--x", metavar="AXIS=VALUES", panel=SEVERAL, help='A grid: --x "Steps=10-30 (+10)" across,'),
    ] = None,
    y: Annotated[
        str | None, _option("--y", metavar="AXIS=VALUES", panel=SEVERAL, help='--y "Sampler=Euler, DPM++ 2M" down,')
    ] = None,
    z: Annotated[
        str | None, _option("--z", metavar="AXIS=VALUES", panel=SEVERAL, help="and a grid for each of --z.")
    ] = None,
    **settings: Any,
) -> None:
    """Make a picture from a prompt."""
    from graphc_images.commands.writing import Preview, Writer
    from graphc_images.pictures.files import check_target

    shown = Preview(preview)
    if grid is not None:
        check_target(grid)
    folders, given = folders_of(models), settings_given(settings)
    if like is not None:
        notes = notes_of(like)
        given = said_by(notes, like) | given
        model = model or model_of(notes, like, folders)
    asked = lines_or_one(prompts, given | ({"prompt": prompt} if prompt else {}))
    if matrix:
        asked = [each for one in asked for each in matrix_of(one)]
    asked = styled(asked, style or (), styles)
    if dynamic or wildcards is not None:
        asked = drawn_by(asked, wildcards, folders)
    plotted = bool(x or y or z)
    if plotted and len(asked) > 1:
        raise SettingError("--x, --y, --z: a grid is of one prompt; --prompts, --matrix and --dynamic make several")
    count = sum(each.batches * each.batch_size for each in asked)
    writer = Writer(output, 1 if plotted else count, quality, graphs=graph)
    text = {"clip_l": clip_l, "clip_g": clip_g, "clip_h": clip_h, "t5xxl": t5, "llm": llm}
    where: dict[str, Any] = {"device": device, "memory": memory, "threads": threads, "types": types_of(types or ())}
    pipeline = pipeline_of(model, folders, vae=vae, tiny=tiny, text=text, hashes=hashes, **where)
    if graph:
        check_graphs(pipeline, asked)
    if plotted:
        paint_plot(pipeline, asked[0], writer, (x, y, z))
    else:
        paint_all(pipeline, asked, writer, shown, count, grid)


def check_graphs(pipeline: Pipeline, asked: Iterable[Settings]) -> None:
    """Raises SettingError, before anything is painted, for what ComfyUI's graph cannot say."""
    from graphc_images.describing import comfyui_graph

    for each in asked:
        comfyui_graph(pipeline.resolved(each), pipeline.name)


def notes_of(path: Path) -> Notes:
    """What a picture, or a file of A1111's text, says of how it was made. Raises ImageError where it cannot be read."""
    from graphc_images.pictures.files import Notes, open_picture

    return Notes(text_of(path)) if path.suffix.lower() == ".txt" else open_picture(path)[1]


def said_by(notes: Notes, path: Path) -> dict[str, Any]:
    """The settings of a picture's notes. Raises SettingError where they say none."""
    from graphc_images.describing import settings_in

    found = settings_in(notes)
    if not found:
        raise SettingError(f"--from: {path} does not say how it was made")
    return found


def model_of(notes: Notes, path: Path, folders: ModelFolders | None) -> str | None:
    """The model that a picture was made with, in the folders; None if it says none, or the one that comes with the package.
    Raises ImageError if it is not there."""
    from graphc_images.describing import model_in
    from graphc_images.folders import SHAPES

    name = model_in(notes)
    if name is None or name == SHAPES.stem:
        return None
    if folders is None:
        raise SettingError(f"--from: {path} was made with the model {name!r}: say where it is with --model or --models")
    return str(folders.find("checkpoint", name))


def text_of(path: Path) -> str:
    """What is in a file of text. Raises SettingError."""
    import graphc

    try:
        with graphc.open_regular(path) as file:
            return file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is no text in UTF-8"
        raise SettingError(f"{path}: {reason}") from None


def lines_or_one(prompts: Path | None, given: dict[str, Any]) -> list[Settings]:
    """What is asked for: each line of a file, or once."""
    from graphc_images.requests import lines_of
    from graphc_images.settings import Settings

    if prompts is None:
        return [Settings.of(**given)]
    return lines_of(text_of(prompts), str(prompts), given, setting_of_text)


def matrix_of(asked: Settings) -> list[Settings]:
    """See `requests.in_matrix`."""
    from graphc_images.requests import in_matrix

    return in_matrix(asked)


def styled(asked: Sequence[Settings], names: Sequence[str], file: Path | None) -> list[Settings]:
    """The same in styles. Raises SettingError."""
    from graphc_images.prompts.styles import read_styles
    from graphc_images.requests import in_styles

    if not names:
        return list(asked)
    if file is None:
        raise SettingError(f"--style {names[0]}: say where the styles are: --styles styles.csv")
    known = read_styles(file)
    return [in_styles(each, names, known) for each in asked]


def drawn_by(asked: Sequence[Settings], folder: Path | None, folders: ModelFolders | None) -> list[Settings]:
    """The same with choices made, of files in a folder or in the folders of models."""
    from graphc_images.prompts.wildcards import Wildcards
    from graphc_images.requests import drawn

    if folder is not None and not folder.is_dir():
        raise SettingError(f"--wildcards: {folder}: there is no such folder")
    files = {} if folders is None else {each.name: each.path for each in folders.of("wildcards")}
    known = Wildcards(folder, files)
    return [each for one in asked for each in drawn(one, known)]


def folders_of(places: Sequence[Path] | None) -> ModelFolders | None:
    """The folders of models that were given. Raises ModelError."""
    from graphc_images.folders import ModelFolders

    return ModelFolders(*places) if places else None


def types_of(texts: Sequence[str]) -> str | dict[str, str]:
    """The types of weights: one for all parts, or by part."""
    pairs = [text.partition("=") for text in texts]
    return {name: type for name, equals, type in pairs if equals} or (texts[-1] if texts else "checkpoint")


def pipeline_of(model: str | None, folders: ModelFolders | None, **settings: Any) -> Pipeline:
    """The pipeline of a model, or that of the small one that comes with the package. Raises ImageError."""
    from graphc_images.pipeline import load

    return load(model, folders=folders, **settings)


def paint_all(
    pipeline: Pipeline, asked: Sequence[Settings], writer: Writer, preview: Preview, count: int, grid: Path | None
) -> None:
    """Paint, show where it is, and write each picture when it is finished: an interrupt keeps what is done."""
    from graphc_images.commands.bars import bars
    from graphc_images.commands.writing import write_grid
    from graphc_images.pictures.grids import grid_of

    resolved = [pipeline.resolved(each) for each in asked]
    pictures: list[Picture] = []
    try:
        with bars(count) as shown:
            for each in resolved:
                for progress in pipeline.paint(each):
                    shown.show(progress)
                    preview.write(progress)
                    for picture in progress.pictures:
                        writer.write(picture)
                        pictures.append(picture)
    finally:
        if grid is not None and pictures:
            write_grid(grid_of([each.image for each in pictures]), grid, parameters=pictures[0].parameters)


def paint_plot(pipeline: Pipeline, asked: Settings, writer: Writer, texts: Iterable[str | None]) -> None:
    """Paint a grid, or one for each value of Z, and write it; after an interrupt, with what is done."""
    from graphc_images.commands.bars import bars
    from graphc_images.plots import NOTHING, Plot, axis_of

    axes = []
    for flag, text in zip(("--x", "--y", "--z"), texts, strict=True):
        name, equals, values = (text or "").partition("=")
        if text and not equals:
            raise SettingError(f"{flag}: {text!r}: an axis is NAME=VALUES, such as Steps=10-30 (+10)")
        axes.append(axis_of(name, values) if text else NOTHING)
    made = Plot(pipeline, asked, *axes)
    try:
        with bars(prod(len(axis.labels) for axis in axes)) as shown:
            for progress in made:
                shown.show(progress)
    finally:
        writer.write_grids(made.grids())
