"""What a job of several requests paints one after the other, and what is handed out of it: pictures, ControlNets' maps, grids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from graphc_images import sd_upscale
from graphc_images.pictures.files import Notes, save_picture
from graphc_images.pictures.grids import grid_of, labelled_grid
from graphc_images.pictures.parameters import without
from graphc_server import cut_off
from graphc_server.store import HINT

if TYPE_CHECKING:
    from graphc_images import Pipeline, Progress, Settings
    from graphc_images.pipeline import Wish
    from graphc_server.models import Models
    from graphc_server.orders import Order

BEHIND = 1 << 20
"""A place behind those of all pictures."""


@dataclass(frozen=True)
class Sheet:
    """Grids of a job's pictures, which come before them: one of all, and with `each` one for each page too. Texts say what
    columns, rows and pages are. Without `alone`, the pictures themselves are not handed out."""

    columns: tuple[str, ...]
    rows: tuple[str, ...] = ("",)
    pages: tuple[str, ...] = ("",)
    legend: bool = True
    each: bool = False
    alone: bool = True


@dataclass(frozen=True)
class Enlarging:
    """Pictures to begin with are made larger by an upscaler, and painted again in tiles that overlap by some pixels."""

    upscaler: str
    scale: float = 2.0
    overlap: int = 64


class Finished(NamedTuple):
    """A picture, its place among those of a job (below 0 for grids), its seed, and A1111's text."""

    place: int
    image: Image.Image
    seed: int
    parameters: str

    def save(self, path: Path, order: Order) -> None:
        """Write it as the order wants it."""
        save_picture(self.image, path, Notes(self.parameters if order.notes else ""), quality=order.quality)


def steps_of(order: Order, models: Models, wish: Callable[[], Wish]) -> Iterator[Progress]:
    """The steps of all requests of an order, whose batches are counted on. Raises as `Models.pipeline` and `Pipeline.paint`, and
    ModelError for a file that became shorter meanwhile."""
    before, last = 0, None
    for number, settings in enumerate(order.requests):
        if number % order.loops and last is not None:
            settings = replace(settings, image=last)
        pipeline = models.pipeline(*order.files_of(number), order.text)
        for progress in _painted(order, pipeline, settings, wish):
            cut_off.check()
            batches = order.batches if order.enlarging is None else progress.batches * len(order.requests)
            yield replace(progress, batch=before + progress.batch, batches=batches)
            last = progress.pictures[-1].image if progress.pictures else last
        before += progress.batches
        if wish() == "stop":
            return


def _painted(order: Order, pipeline: Pipeline, settings: Settings, wish: Callable[[], Wish]) -> Iterator[Progress]:
    if order.enlarging is None:
        return pipeline.paint(settings, wish)
    return sd_upscale(pipeline, settings, **asdict(order.enlarging), wish=wish)


class Results:
    """What is handed out of an order, as its batches are finished."""

    def __init__(self, order: Order) -> None:
        self.order, self.sheet, self.count = order, order.sheet, 0
        self.hidden = order.loops if 1 < order.loops < len(order.requests) else 1
        """Of several chains of so many loops, the last pictures alone are handed out."""
        self._made: list[Finished] = []

    def of(self, progress: Progress) -> list[Finished]:
        """The pictures of a finished batch; with the first, what ControlNets looked at, behind all others."""
        if (progress.batch + 1) % self.hidden:
            return []
        made = []
        for each in progress.pictures:
            made.append(Finished(self.count, each.image, each.seed, without(each.parameters, self.order.unsaid)))
            if self.sheet is not None:
                self._made.append(made[-1])
            parts = [part for name in self.order.parts if (part := getattr(each, name)) is not None]
            made += [Finished(self.count + 1 + n, part, HINT, "") for n, part in enumerate(parts)]
            self.count += 1 + len(parts)
        hints = progress.hints if made and progress.batch == 0 else ()
        maps = [Finished(BEHIND + n, image, HINT, "") for n, image in enumerate(hints)]
        return maps if self.sheet is not None and not self.sheet.alone else made + maps

    def sheets(self) -> list[Finished]:
        """The grids of all pictures, with the first one's seed and text; none if there are no pictures."""
        if self.sheet is None or not self._made:
            return []
        grids = _grids(self.sheet, [each.image for each in self._made])
        first = self._made[0]
        return [Finished(n - len(grids), grid, first.seed, first.parameters) for n, grid in enumerate(grids)]


def _grids(sheet: Sheet, images: list[Image.Image]) -> list[Image.Image]:
    size = len(sheet.columns) * len(sheet.rows)
    empty = Image.new("RGB", images[0].size, "#ffffff" if sheet.legend else "#000000")
    images = images + [empty] * (size * len(sheet.pages) - len(images))
    pages = [images[start : start + size] for start in range(0, len(images), size)]
    made = [_grid(page, sheet.columns, sheet.rows, sheet.legend) for page in pages]
    if len(made) == 1:
        return [made[0], *made] if sheet.each else made
    return [_grid(made, sheet.pages, ("",), sheet.legend), *(made if sheet.each else [])]


def _grid(images: list[Image.Image], columns: tuple[str, ...], rows: tuple[str, ...], legend: bool) -> Image.Image:
    return labelled_grid(images, columns, rows) if legend else grid_of(images, len(rows))
