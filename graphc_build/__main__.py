"""What is made of graphc, and for it: `python -m graphc_build`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from graphc.ggml_source import ggml_source
from graphc_build.declarations import module, read_headers
from graphc_build.libraries import build_libraries
from graphc_build.parts import parts_of
from graphc_build.symbols import check_libraries
from graphc_build.targets import TARGETS, find_target
from graphc_build.vulkan import compiled_shaders, copy_headers, vulkan_library
from graphc_build.wheel import complete, installed_size, pure_wheel

ROOT = Path(__file__).parent.parent

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Makes what is not written by hand."""


@app.command()
def declarations(
    headers: Annotated[
        Path | None, typer.Option(help="ggml's headers; without it, those of the pinned source.")
    ] = None,
) -> None:
    """Write what Python knows of ggml's functions."""
    folder = headers or ggml_source() / "include"
    (ROOT / "graphc" / "ggml_declarations.py").write_text(module(read_headers(folder)), encoding="utf-8")


@app.command()
def wheel(
    targets: Annotated[list[str], typer.Option("--target", help=f"For which system: {', '.join(TARGETS)}, or all.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the wheels.")] = Path("dist"),
    jobs: Annotated[
        int | None, typer.Option(help="Files that are compiled at once; without it, one a processor.")
    ] = None,
) -> None:
    """Make a wheel for each system, with ggml and our own code compiled for it."""
    chosen = [*TARGETS.values()] if targets == ["all"] else [*map(find_target, targets)]
    output.mkdir(parents=True, exist_ok=True)
    source = ggml_source()
    with tempfile.TemporaryDirectory() as temporary:
        pure = pure_wheel(Path(temporary))
        included = Path(temporary) / "headers"
        also = []
        if any(target.has_vulkan for target in chosen):
            also = [vulkan_library(source, copy_headers(included), compiled_shaders(source))]
        for target in chosen:
            folder = Path(temporary) / target.name
            folder.mkdir()
            libraries = build_libraries(target, source, folder, jobs, also=also if target.has_vulkan else ())
            check_libraries(libraries, target)
            made = complete(pure, target, libraries, source, parts_of(source, target, included), output)
            typer.echo(f"{made}: {made.stat().st_size / 1e6:.1f} MB, {installed_size(made) / 1e6:.1f} MB installed")


if __name__ == "__main__":
    app()
