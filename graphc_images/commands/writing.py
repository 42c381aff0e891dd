"""What `graphc image` writes: each picture when it is finished, previews while it works, grids at the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphc_images.errors import ImageError
from graphc_images.pictures.files import FORMATS, Notes, check_target, save_picture
from graphc_images.pictures.names import USUAL, Facts, file_for, has_fields

if TYPE_CHECKING:
    from PIL import Image

    from graphc_images.pipeline import Picture, Progress

LOG = logging.getLogger("graphc.images")


class Writer:
    """Writes finished pictures, and says so.

    A file that was named is replaced, as any command does; several get numbers behind the name. A folder, or a pattern with
    `[seed]` and the like, gives each picture a new name, and so does nothing at all (`pictures/names.py`).
    """

    def __init__(self, output: str | None, count: int, quality: int, *, graphs: bool = False) -> None:
        """Raises ImageError if nothing can be written there: before anything is painted."""
        self.pattern = USUAL if output is None else output
        if Path(self.pattern).is_dir() or self.pattern.endswith("/"):
            self.pattern = str(Path(self.pattern) / USUAL)
        self.new_names = has_fields(self.pattern)
        self.numbered, self.quality, self.graphs = count > 1, quality, graphs
        self.written: list[Path] = []
        if not self.new_names:
            check_target(Path(self.pattern))
        elif Path(self.pattern).suffix.lower() not in FORMATS:
            self.pattern += ".png"

    def write(self, picture: Picture) -> Path:
        """Write one. Raises ImageError."""
        path = self._path(picture)
        picture.save(path, quality=self.quality, graph=self.graphs)
        self.written.append(path)
        typer.echo(f"{path}: seed {picture.seed}")
        return path

    def write_grids(self, grids: Sequence[tuple[str, Image.Image]]) -> None:
        """Write the grids of a plot under the name that was given, several with numbers. Raises ImageError."""
        whole = Path(self.pattern)
        if self.new_names:
            whole = file_for(str(whole.with_name("grid-[number].png")), None)
        for place, (label, grid) in enumerate(grids, 1):
            write_grid(grid, whole if len(grids) == 1 else whole.with_stem(f"{whole.stem}-{place}"), label)

    def _path(self, picture: Picture) -> Path:
        whole = Path(self.pattern)
        if not self.new_names:
            return whole.with_stem(f"{whole.stem}-{len(self.written) + 1}") if self.numbered else whole
        path = file_for(self.pattern, Facts(picture.settings, *picture.model, place=len(self.written) + 1))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ImageError(f"{path.parent}: the folder cannot be made: {problem.strerror}") from None
        return path


class Preview:
    """A picture that is written after each step; that it cannot be is said once, and ends nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is not None:
            check_target(path)

    def write(self, progress: Progress) -> None:
        """The first picture of the batch as it is now."""
        if self.path is None or progress.pictures:
            return
        try:
            save_picture(progress.previews()[0], self.path)
        except ImageError as error:
            LOG.warning("%s; there are no more previews", error)
            self.path = None


def write_grid(grid: Image.Image, path: Path, label: str = "", parameters: str = "") -> None:
    """Write a grid, and say so. Raises ImageError."""
    save_picture(grid, path, Notes(parameters))
    typer.echo(f"{path}: {label}" if label else f"{path}")
