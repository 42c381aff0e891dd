"""What is made of graphc, and for it: `python -m graphc_build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphc.ggml_source import ggml_source
from graphc_build.declarations import module, read_headers

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


if __name__ == "__main__":
    app()
