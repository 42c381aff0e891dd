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
def models_in(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="DIR", help="Folders of models.")] = None,
    more: Annotated[list[Path] | None, typer.Option("--models", metavar="DIR", help="The same.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only these: checkpoint, lora, vae, …")] = None,
) -> None:
    """The models in folders."""
    from graphc_images.errors import ModelError
    from graphc_images.folders import KINDS, ModelFolders

    places = [*(folders or ()), *(more or ())]
    if not places:
        raise ModelError("say where the models are: graphc image models DIR")
    if kind is not None and kind not in KINDS:
        raise ModelError(f"--kind: there is no {kind!r}; there are {', '.join(KINDS)}")
    found = ModelFolders(*places)
    files = found.files if kind is None else found.of(kind)
    sizes = [(each, _size(each.path)) for each in files]
    _table(("kind", "name", "size", "file"), [(each.kind, each.name, size, str(each.path)) for each, size in sizes])


def _size(path: Path) -> str:
    """How large a file is, in words."""
    size = path.stat().st_size if path.exists() else 0
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


@image.command()
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of a model, or a picture.")],
    hashes: Annotated[bool, typer.Option("--hash", help="With its SHA-256, which civitai knows.")] = False,
) -> None:
    """What a file is (a checkpoint, a LoRA, an embedding, …), or how a picture was made."""
    from graphc_images.hashes import Hashes
    from graphc_images.inspecting import told

    for line in told(file):
        typer.echo(line)
    if hashes:
        whole = Hashes().begin(file).result()
        typer.echo(f"SHA-256: {whole} (A1111's short hash: {whole[:10]})")


@image.command()
def bundle(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.", show_default=False)
    ],
    model: Annotated[
        Path | None, typer.Option("--model", "-m", metavar="FILE", help="A checkpoint; the small model if not given.")
    ] = None,
    vae: Annotated[Path | None, typer.Option(metavar="FILE", help="Another autoencoder.")] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="[PART=]TYPE", help="Keep weights as q8_0, f16, …")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM", help="Another system: x86_64-linux, x86_64-windows, aarch64-macos, …"),
    ] = None,
    cpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="The processor that it may assume there, or `all`.")
    ] = None,
    cpp: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the C++ project in this folder.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Files that are compiled at once.")] = None,
) -> None:
    """Make a program of a model, which paints without Python: compiled for this computer, or another system."""
    from graphc_images.bundling import bundle as write_bundle
    from graphc_images.commands.paint import types_of
    from graphc_images.pipeline import load

    pipeline = load(model, vae=vae, types=types_of(types or ()))
    typer.echo("compiling: a few minutes", err=True)
    program = write_bundle(pipeline, output, target=target, cpu=cpu, cpp=cpp, jobs=jobs)
    typer.echo(f"{program}: {_size(program)}; its folder holds all that it needs: {_size_of_folder(output)}")


def _size_of_folder(folder: Path) -> str:
    return f"{sum(each.stat().st_size for each in folder.iterdir()) / 2**20:.1f} MiB"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print aligned columns."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in [heads, tuple("-" * width for width in widths), *rows]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
